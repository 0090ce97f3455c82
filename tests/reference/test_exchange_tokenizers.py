"""Imported and exported tokenizers give the same ids as those of `transformers`, for any text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

import regard
from command_line import fail, succeed
from exchange_cases import (
    FEW,
    TEXTS,
    UNICODE,
    save_bert,
    save_gpt2,
    save_marian,
    save_pegasus,
    wordpiece,
)
from regard.exchange.folder import Exported
from regard.exchange.tokenizers import tokenizer_files
from regard.tasks.masked_language_modeling import with_gaps
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.text.vocabularies import MASKING

transformers = pytest.importorskip("transformers")

HANGUL = st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3)
KOREAN = st.text(HANGUL | st.sampled_from(" .ᄒ\u1161ᆫaB"), max_size=30)
PIECES = KOREAN | st.text("Teh quickdog한국어문장☃, ", max_size=30)
"""Texts for SentencePiece, which normalises others in its own way."""
IMPORTS: dict[str, tuple[Callable[..., Any], str]] = {
    **{
        f"bert-{file}-{'lower' if lowercase else 'cased'}": (
            partial(save_bert, vocabulary=file, lowercase=lowercase),
            "BertTokenizerFast",
        )
        for file in ("tokenizer.json", "vocab.txt")
        for lowercase in (True, False)
    },
    "gpt2": (save_gpt2, "PreTrainedTokenizerFast"),
    "gpt2-merges": (partial(save_gpt2, vocabulary="merges.txt"), "GPT2Tokenizer"),
    "marian": (save_marian, "MarianTokenizer"),
    "marian-separate": (partial(save_marian, shared=False), "MarianTokenizer"),
    "pegasus": (save_pegasus, "PegasusTokenizer"),
    "pegasus-json": (partial(save_pegasus, vocabulary="tokenizer.json"), "PegasusTokenizer"),
}


@pytest.mark.parametrize("case", IMPORTS)
def test_an_imported_tokenizer(tmp_path: Path, case: str) -> None:
    save, name = IMPORTS[case]
    save(tmp_path / "theirs")
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "theirs")
    bert, gpt2, pegasus = (case.startswith(kind) for kind in ("bert", "gpt2", "pegasus"))
    ours = run.tokenizers["text" if bert or gpt2 else "source"]

    @FEW
    @given((UNICODE | KOREAN if bert or gpt2 else PIECES) | st.sampled_from(TEXTS))
    def same(text: str) -> None:
        if not (bert or gpt2):  # here a syllable and a letter that ends it are composed first
            assume(unicodedata.is_normalized("NFC", text))
        if pegasus:  # SentencePiece itself drops spaces at the ends, as we do, and transformers does not
            assume(text == text.strip())
        begin, end = [ours.begin] if bert else [], [] if gpt2 else [ours.end]
        assert [*begin, *ours.encode(text), *end] == theirs(text).input_ids
        if "target" in run.tokenizers and not pegasus:
            target = run.tokenizers["target"]
            assert [*target.encode(text), target.end] == theirs(text_target=text).input_ids
        if gpt2:
            assert ours.decode(ours.encode(text)) == text

    same()
    roles = ours.pad, ours.unk, ours.begin, ours.end
    if bert:
        assert (*roles, ours.mask) == (0, 2, 3, 4, 5), "they keep their ids"
        assert (ours.encode("The ANIMAL") == ours.encode("the animal")) is case.endswith("lower")
    elif gpt2:
        assert (ours.size, set(roles)) == (301, {300}), "no token is added: the end stands for all that is missing"
    elif pegasus:
        assert run.tokenizers.joint
        assert roles == (0, theirs.unk_token_id, 0, 1)
        text = theirs.decode(theirs(TEXTS[0]).input_ids, skip_special_tokens=True)
        assert ours.decode(ours.encode(TEXTS[0])) == text
    elif case == "marian":
        assert ours.encode(">>kor<< The dog") == theirs(">>kor<< The dog").input_ids[:-1]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tokenizer, Any]]:
    """A vocabulary of ours of every kind, and the same as AutoTokenizer reads it."""
    pairs = {}
    texts = ["The fox ate the hen. A fox (big) went home, 여우가 갔다!"] * 4
    template = "[CLS] $A [SEP] $B [SEP]"
    exported = Exported("BertForMaskedLM", {"max_position_embeddings": 64}, {}, template, raw_text=True)
    for kind in ("word", "wordpiece", "bpe", "unigram", "character", "byte"):
        config = TokenizerConfig(kind=kind, vocabulary=90, lowercase=kind == "bpe")  # type: ignore[arg-type]
        own, folder = Tokenizer.train(config, texts, MASKING), tmp_path_factory.mktemp(kind)
        for name, text in tokenizer_files(own, exported).items():
            (folder / name).write_text(text, encoding="utf-8")
        pairs[kind] = own, transformers.AutoTokenizer.from_pretrained(folder)
    return pairs


PARTS = ["[MASK]", " ", "  ", "fox", "The", "ing", ".", "(", "여우가", "\u1112\u1161", "▁", "\t", "1"]


@given(st.lists(st.sampled_from(PARTS), max_size=9).map(lambda parts: "".join(parts).strip()))
@example("The fox ate the [MASK].")
@example("[MASK] fox[MASK][MASK]ing  [MASK]")
def test_masks_are_read_as_here(kinds: dict[str, tuple[Tokenizer, Any]], text: str) -> None:
    """Also by a run that comes back, and with one space for all white space."""
    for kind, (own, theirs) in kinds.items():
        expected = with_gaps(own, re.sub(r"\s+", " ", text))
        assert theirs(text)["input_ids"] == [own.begin, *expected, own.end], kind
        assert with_gaps(Tokenizer.from_json(theirs.backend_tokenizer.to_str()), text) == expected, kind


@pytest.mark.parametrize("prompt", ["The animal", "one\n\ntwo ", "one two"])
def test_gpt2_continues_a_text_as_there(tmp_path: Path, prompt: str) -> None:
    """White space counts: the vocabulary was learned with it."""
    theirs = save_gpt2(tmp_path / "theirs", texts=["one  two\n\n\nthree  four\n\n\nfive"] * 9 + TEXTS)
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    reads = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "theirs")
    result = succeed("predict", run.folder, prompt, "--json", "--beam", 1, "--set", "search.max_length=6").json
    start = torch.tensor([[reads.eos_token_id, *reads(prompt).input_ids]])
    written = theirs.generate(
        start, do_sample=False, num_beams=1, max_new_tokens=5, pad_token_id=0, eos_token_id=reads.eos_token_id
    )
    assert result["output"] == run.tokenizers["text"].decode(written[0].tolist())
    assert result["output"].startswith(prompt)


@pytest.mark.parametrize(("size", "fits"), [(150, True), (140, True), (160, False)])
def test_a_tokenizer_of_another_size(tmp_path: Path, size: int, fits: bool) -> None:
    """Rows without a token get spare ones; a vocabulary with more tokens than rows is another model's."""
    save_bert(tmp_path / "theirs")
    (tmp_path / "theirs" / "tokenizer.json").write_text(wordpiece(size, lowercase=True).to_str())
    if fits:
        run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
        assert run.tokenizers["text"].size == len(run.load_model().embedding.tokens.weight) == 150
    else:
        [message] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run")
        what = "the tokenizer has 160 tokens, but the embedding 150 rows (the two must come from the same model)"
        assert what in message
