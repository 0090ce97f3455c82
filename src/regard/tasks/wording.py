"""What an output must and must not say: from the user's words to tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice

from regard.data.tokenizers import Tokenizer
from regard.data.vocabularies import MARK
from regard.errors import DecodeError, Problem, first_of
from regard.search import SearchConfig, Wording

WORD_STARTS = (MARK, "Ġ", " ")
"""What begins a word, in our vocabularies, in those of byte-level BPE, and where a `▁` of the text's own stood."""
SPELLINGS = 1_000
"""Ways to cut a banned text into tokens that are ruled out, those with the fewest tokens first."""


def wording_of(tokenizer: Tokenizer, config: SearchConfig, prefixes: Sequence[str] | None, count: int) -> Wording:
    """The wording of `count` outputs. `prefixes` has one for each, empty for none; else `config.prefix` is for all."""
    if prefixes is None and config.prefix is None and not config.banned:
        return Wording()
    where = ["search.prefix"]
    if prefixes is not None:
        where = [f"prefix {number}" for number in range(1, len(prefixes) + 1)]
        if len(prefixes) != count:
            raise DecodeError(f"there are {len(prefixes):,} prefixes for {count:,} inputs", where="prefixes")
    banned = banned_sequences(tokenizer, config.banned)
    texts = [config.prefix or ""] if prefixes is None else prefixes
    encoded = [ids if text.strip() else [] for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True)]
    problems = [_problem(tokenizer, *one, banned) for one in zip(texts, encoded, where, strict=True)]
    if found := [problem for problem in problems if problem]:
        raise DecodeError(problems=first_of(found))
    return Wording(encoded * count if prefixes is None else encoded, banned)


def _problem(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], where: str, banned: Sequence[Sequence[int]]
) -> Problem | None:
    if tokenizer.unk in ids:
        return Problem(
            where, f"the tokenizer cannot write {text!r}", "its vocabulary lacks a part of it: use other words"
        )
    if text.strip() and tokenizer.is_foreign(ids):
        return Problem(where, f"there is no token for {text!r}", "use other words")
    if any(_holds(ids, sequence) for sequence in banned):
        return Problem(where, f"{text!r} holds a text that search.banned rules out", "change one of the two")
    return None


def _holds(ids: Sequence[int], sequence: Sequence[int]) -> bool:
    return any(list(ids[i : i + len(sequence)]) == list(sequence) for i in range(len(ids)))


def banned_sequences(tokenizer: Tokenizer, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Every way to write each text as whole tokens: at the start of a word, and after a sign or inside a word.

    A text that the vocabulary cannot write needs no ban.
    """
    if not texts:
        return []
    special = tokenizer.tokens([tokenizer.pad, tokenizer.unk, tokenizer.begin, tokenizer.end])
    tokens = enumerate(tokenizer.tokens(range(tokenizer.size)))
    spelling = {token: number for number, token in tokens if token not in special}
    found: dict[tuple[int, ...], None] = {}
    for ids in tokenizer.encode_batch([text.strip() for text in texts]):
        if tokenizer.unk in ids:
            continue
        found[tuple(ids)] = None
        inside = "".join(tokenizer.tokens(ids)).lstrip("".join(WORD_STARTS))
        for spelt in (inside, *(start + inside for start in WORD_STARTS)):
            found.update(dict.fromkeys(islice(_cuts(spelt, spelling), SPELLINGS)))
    return list(found)


def _cuts(spelt: str, spelling: dict[str, int]) -> Iterator[tuple[int, ...]]:
    """The ways to put a text together from tokens, those with the fewest first."""
    nexts: dict[int, list[tuple[int, int]]] = {len(spelt): []}
    """From each place from which the end can be reached: the tokens that lead on, and where to."""
    for place in reversed(range(len(spelt))):
        tokens = ((spelling.get(spelt[place:end]), end) for end in range(place + 1, len(spelt) + 1) if end in nexts)
        if leading := [(token, end) for token, end in tokens if token is not None]:
            nexts[place] = leading
    begun: deque[tuple[int, tuple[int, ...]]] = deque([(0, ())] if 0 in nexts else [])
    while begun:
        place, ids = begun.popleft()
        if place == len(spelt):
            yield ids
        begun.extend((end, (*ids, token)) for token, end in nexts[place])
