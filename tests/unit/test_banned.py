"""Texts that are not to be written: no output holds one, whatever the vocabulary, and nothing else
is ruled out."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import fail, succeed
from model_cases import tokens_of
from regard import predict
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.search.hypotheses import NEVER, Live
from regard.search.rules import BannedTexts, Constraints
from regard.tasks.written import ban_of
from regard.text.normalise import nfc
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.text.vocabularies import BEGIN, END, PAD, UNK
from texts import TOKENIZER_KINDS
from toy_models import Toy, ban_tokens

Ids = tuple[int, ...]
KINDS = TOKENIZER_KINDS
LETTERS = st.sampled_from("aab책책을e\u0301 ▁.A")
"""Few, so that texts overlap: Korean, a sign that composes with the one before, the mark of a space
as a letter."""
TEXTS = st.lists(st.text(LETTERS, min_size=1, max_size=12), min_size=2, max_size=6)


def test_a_forced_text_may_begin_another_one() -> None:
    """Banned are a and a b; a prefix writes a all the same: then b is still ruled out."""
    a, b, c = 4, 5, 6
    ban = ban_tokens([(a,), (a, b), (c,)])
    assert ban.after([a]) == {b}
    model, config = Toy(7, 1), SearchConfig(beam=1, max_length=3)
    [[best]] = search(model, tokens_of([[END]]), config, constraints=Constraints([(a,)], ban))
    assert best.tokens[0] == a
    assert best.tokens[1] != b


def vocabulary_of(kind: Any, texts: list[str], lowercase: bool = False) -> Tokenizer:
    """The smallest that holds all letters, or nearly: texts then have many cuts."""
    config = TokenizerConfig(
        kind=kind, lowercase=lowercase, vocabulary=4 + 2 * len(set("".join(texts))) + 6
    )
    return Tokenizer.train(config, texts)


def banned_in(texts: list[str]) -> st.SearchStrategy[list[str]]:
    parts = {
        text[i:j] for text in texts for i in range(len(text)) for j in range(i + 1, len(text) + 1)
    }
    return st.lists(
        st.sampled_from(sorted(part for part in parts if part.strip())), min_size=1, max_size=3
    )


def ruled_out(ban: BannedTexts, outputs: Sequence[Ids], size: int) -> set[Ids]:
    """The outputs that the rule keeps from being written, token by token; all of one length."""
    found = set[Ids]()
    ids_B1T = torch.tensor(outputs)[:, None]
    rows_B, total_B1 = torch.arange(len(outputs)), torch.zeros(len(outputs), 1)
    for place in range(ids_B1T.shape[-1]):
        log_p_B1V = torch.zeros(len(outputs), 1, size)
        ban.forbid(log_p_B1V, Live(rows_B, ids_B1T[..., :place], total_B1))
        never_B = log_p_B1V[rows_B, 0, ids_B1T[:, 0, place]] == NEVER
        found.update(outputs[row] for row in rows_B[never_B].tolist())
    return found


@settings(max_examples=150)
@given(
    kind=st.sampled_from(KINDS),
    texts=TEXTS,
    lower=st.booleans(),
    unknown=st.booleans(),
    data=st.data(),
)
def test_banned_texts_ruled_out(
    kind: str, texts: list[str], lower: bool, unknown: bool, data: st.DataObject
) -> None:
    """What an output holds, its text says, as the vocabulary spells it: in jamo, 책 holds 채. Outputs
    are all of one and two tokens, and some of five."""
    texts = [*texts, "ab 책"]
    tokenizer = vocabulary_of(kind, texts, lower)
    config = SearchConfig(banned=data.draw(banned_in(texts)), unknown=unknown)
    words = [
        token
        for token in range(tokenizer.size)
        if token not in (PAD, BEGIN, END) and (unknown or token != UNK)
    ]
    if kind == "byte":
        words = sorted({token for text in texts for token in tokenizer.encode(text)})
    longer = data.draw(
        st.lists(st.lists(st.sampled_from(words), min_size=5, max_size=5).map(tuple), max_size=20)
    )
    longer += [
        tuple(ids[:5])
        for text in texts
        if len(ids := tokenizer.encode(text + text)) >= 5 and UNK not in ids
    ]
    ban, banned = ban_of(tokenizer, config), [tokenizer.normalised(text) for text in config.banned]
    assert ban is not None
    for outputs in (
        [(token,) for token in words],
        list(itertools.product(words, repeat=2)),
        longer,
    ):
        holding = {
            ids for ids in outputs if any(text in tokenizer.spelt_text(ids) for text in banned)
        }
        assert not outputs or ruled_out(ban, outputs, tokenizer.size) == holding


# By hand


def test_particles_and_cuts_by_hand() -> None:
    """The ban does not hang on the merges: `▁책을` is one token, or two, or begins in another."""
    size, pieces = (
        12,
        {4: " 책을", 5: " 책", 6: "을", 7: " 공책", 8: "교", 9: " 학", 10: "생", 11: " 집"},
    )
    ban = BannedTexts(
        ["책".encode(), "학교".encode()], {token: piece.encode() for token, piece in pieces.items()}
    )
    outputs = [*itertools.product(pieces, repeat=2)]
    expected = {ids for ids in outputs if {4, 5, 7} & {*ids} or ids == (9, 8)}
    assert ruled_out(ban, outputs, size) == expected


def test_the_beginning_of_a_text_counts_and_may_hold_it() -> None:
    """As language models go on with a prompt: `farmer` is banned and stands there, but is not
    finished by the model."""
    pieces = {4: b" farm", 5: b"er", 6: b" farmer", 7: b" a"}
    ban, size = BannedTexts([b"farmer"], pieces), 8
    for begun, forbidden in (
        ((4,), {5, 6}),
        ((6,), {6}),
        ((6, 4), {5, 6}),
        ((4, 7), {6}),
        ((), {6}),
    ):
        log_p_BWV = torch.zeros(1, 1, size)
        live = Live(
            torch.zeros(1, dtype=torch.long),
            torch.empty(1, 1, 0, dtype=torch.long),
            torch.zeros(1, 1),
        )
        ban.forbid(log_p_BWV, live, [begun])
        assert {token for token in range(size) if log_p_BWV[0, 0, token] == NEVER} == forbidden


def test_many_texts_over_a_large_vocabulary_take_little_room() -> None:
    """400 words, 20,000 tokens: a table of states x tokens would have 25 million places."""
    signs = "abcdefghijklmnopqrst"
    pieces = dict(
        enumerate("".join(four).encode() for four in itertools.product(signs[:12], repeat=4))
    )
    ban = BannedTexts(
        [f"{a}{b}{a}{b}z".encode() for a, b in itertools.product(signs, repeat=2)], pieces
    )
    assert sum(map(len, ban.completing.values())) < 200_000


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_token_writes_makes_the_text(kind: Any) -> None:
    texts = ["das Haus ist groß", "im Haus, „Haus“", "책을  읽었어요 ▁ .", "e\u0301 Aa"] * 2
    tokenizer = Tokenizer.train(TokenizerConfig(kind=kind, vocabulary=300), texts)
    written = tokenizer.token_bytes()
    for text in texts:
        ids = tokenizer.encode(text)
        spelt = b"".join(written[token] for token in ids).decode()
        assert nfc(spelt.removeprefix(" ")) == tokenizer.decode(ids)
    assert [written[token] for token in (PAD, UNK, BEGIN, END)] == [b""] * 4


def test_vocabularies_of_other_makes() -> None:
    """Byte-level BPE; words whose ends are marked; pieces that go on with a word; single bytes
    where a piece lacks."""
    from tokenizers import decoders, models, normalizers

    made = {
        "Ġb": (models.BPE({"<unk>": 0, "a": 1, "Ġb": 2}, []), decoders.ByteLevel(), [b"a", b" b"]),
        "b</w>": (
            models.BPE({"<unk>": 0, "a": 1, "b</w>": 2}, []),
            decoders.BPEDecoder("</w>"),
            [b"a", b"b "],
        ),
        "##b": (
            models.WordPiece({"<unk>": 0, "a": 1, "##b": 2}, unk_token="<unk>"),
            decoders.WordPiece(),
            [b" a", b"b"],
        ),
        "<0xE6>": (
            models.BPE({"<unk>": 0, "a": 1, "<0xE6>": 2}, []),
            decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()]),
            [b"a", b"\xe6"],
        ),
    }
    for model, decoder, expected in made.values():
        library = tokenizers.Tokenizer(model)
        library.decoder, library.normalizer = decoder, normalizers.Lowercase()
        tokenizer = Tokenizer.from_json(library.to_str())
        assert tokenizer.token_bytes()[1:3] == expected
        assert tokenizer.normalised(" Ab ") == "ab"


def test_no_output_of_a_run_holds_a_banned_word(tiny_run: Path) -> None:
    inputs = ["a b c d", "h g f", "b b a"]
    free = predict(tiny_run, inputs, beam=2)
    letter = next(sign for sign in free[0].output if sign != " ")
    for prediction in predict(
        tiny_run, inputs, beam=2, nbest=2, overrides=[f"search.banned=[{letter}]"]
    ):
        assert all(letter not in one.output for one in prediction.nbest)
    cannot = succeed("predict", tiny_run, *inputs, "--beam", "2", "--set", "search.banned=[☃]").out
    assert cannot.splitlines() == [one.output for one in free]
    [message] = fail("predict", tiny_run, "a b", "--prefix", "a b", "--set", "search.banned=['a ']")
    assert (
        message
        == "search.prefix: 'a b' holds a text that search.banned rules out (change one of the two)"
    )
