"""What an output must and must not say: from the user's words to tokens."""

from __future__ import annotations

from collections.abc import Sequence

from regard.errors import DecodeError, Problem, first_of
from regard.search import BannedTexts, Constraints, SearchConfig
from regard.text.tokenizers import Tokenizer


def wording_of(tokenizer: Tokenizer, config: SearchConfig, prefixes: Sequence[str] | None, count: int) -> Constraints:
    """The wording of `count` outputs. `prefixes` has one for each, empty for none; else `config.prefix` is for all."""
    if prefixes is None and config.prefix is None and not config.banned:
        return Constraints()
    where = ["search.prefix"]
    if prefixes is not None:
        where = [f"prefix {number}" for number in range(1, len(prefixes) + 1)]
        if len(prefixes) != count:
            raise DecodeError(f"there are {len(prefixes):,} prefixes for {count:,} inputs", where="prefixes")
    banned = [tokenizer.as_written(text) for text in config.banned]
    texts = [config.prefix or ""] if prefixes is None else prefixes
    encoded = [ids if text.strip() else [] for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True)]
    problems = [_problem(tokenizer, *one, banned) for one in zip(texts, encoded, where, strict=True)]
    if found := [problem for problem in problems if problem]:
        raise DecodeError(problems=first_of(found))
    return Constraints(encoded * count if prefixes is None else encoded, ban_of(tokenizer, config))


def _problem(tokenizer: Tokenizer, text: str, ids: Sequence[int], where: str, banned: Sequence[str]) -> Problem | None:
    if tokenizer.unk in ids:
        return Problem(
            where, f"the tokenizer cannot write {text!r}", "its vocabulary lacks a part of it: use other words"
        )
    if text.strip() and tokenizer.is_foreign(ids):
        return Problem(where, f"there is no token for {text!r}", "use other words")
    written = tokenizer.decode(ids)
    if any(one and one in written for one in banned):
        return Problem(where, f"{text!r} holds a text that search.banned rules out", "change one of the two")
    return None


def ban_of(tokenizer: Tokenizer, config: SearchConfig) -> BannedTexts | None:
    """The texts of `config.banned`, as outputs spell them, worked out for a vocabulary; None where there is none."""
    spelt = [one.encode() for text in config.banned if (one := tokenizer.as_written(text))]
    if not spelt:
        return None
    never = {tokenizer.pad, tokenizer.begin, tokenizer.end} | (set() if config.unknown else {tokenizer.unk})
    return BannedTexts(spelt, {token: piece for token, piece in enumerate(tokenizer.written()) if token not in never})
