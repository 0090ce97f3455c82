"""Imported and exported tokenizers give the same ids as those of `transformers`, for any text."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

import regard
from command_line import fail, succeed
from exchange_cases import (
    TEXTS,
    near,
    save_bert,
    save_gpt2,
    save_marian,
    save_pegasus,
    spells_nothing_special,
    trained,
    wordpiece,
)
from regard.exchange.folder import Exported
from regard.exchange.tokenizers import tokenizer_files
from regard.tasks.masked_language_modeling import with_gaps
from regard.text.normalise import fold_white_space
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.text.vocabularies import MASKING

transformers = pytest.importorskip("transformers")

UNICODE = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30).filter(spells_nothing_special)
HANGUL = st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3)
KOREAN = st.text(HANGUL | st.sampled_from(" .ᄒ\u1161ᆫaB"), max_size=30)
FEW = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


def same_tokens(theirs: Any, ours: Tokenizer, case: str) -> None:
    """Raw text is read with single spaces; that of BERT comes in parts, between masks, so that its ends are kept."""
    before = {"bert": [ours.begin], "gpt": [ours.end]}.get(case, [])
    after = [] if case == "gpt" else [ours.end]

    @FEW
    @given(UNICODE | st.sampled_from(["The king", "나는 간다"]))
    def same(text: str) -> None:
        text = text.strip() if case == "bert" else text
        read = fold_white_space(text) if case in ("bert", "gpt") else text
        assert theirs(text).input_ids == [*before, *ours.encode(read), *after]

    same()
    assert (theirs.pad_token_id, theirs.unk_token_id) == (ours.pad, ours.unk)


SMALL: dict[str, Any] = {"layers": 1, "width": 16, "heads": 2, "feed_forward": 8, "max_positions": 40}
PHRASES: dict[str, Any] = {
    "task": "translation",
    "data": {"train": {"corpus": "phrases-en-fr", "size": 200}, "validation": {"split": 0.1}},
    "model": {"kind": "transformer", "preset": "tiny", "encoder_layers": 1, "decoder_layers": 1, "width": 16},
}
EXPORTS: dict[str, dict[str, Any]] = {
    "bert": {"task": "masked_language_modeling", "model": {"kind": "bert", **SMALL}},
    "gpt": {"task": "language_modeling", "model": {"kind": "gpt", "norm": "pre", **SMALL}},
    "joint": PHRASES | {"tokenizer": {"vocabulary": 200, "joint": True}},
    "separate": PHRASES | {"tokenizer": {"vocabulary": 200, "joint": False}},
    "characters": PHRASES | {"tokenizer": {"kind": "character", "joint": False}},
}


@pytest.mark.parametrize("case", EXPORTS)
def test_an_exported_tokenizer(tmp_path: Path, case: str) -> None:
    run = trained(tmp_path / "run", **EXPORTS[case])
    regard.export_run(run, to="huggingface", out=tmp_path / "theirs")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    ours = next(iter(run.tokenizers.values()))
    same_tokens(theirs, ours, case)
    assert (tmp_path / "theirs" / "target").exists() is (case in ("separate", "characters"))
    if (tmp_path / "theirs" / "target").exists():
        second = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs", subfolder="target")
        same_tokens(second, run.tokenizers["target"], case)
    if case == "bert":
        pair, first = theirs("The king", "A fox"), 2 + len(ours.encode("The king"))
        assert pair.token_type_ids == [0] * first + [1] * (len(pair.input_ids) - first)
    if case == "gpt":
        for text in (" The  fox\twent\r\nhome. ", "The\u00a0fox\u3000went\n\nhome.\n"):
            assert theirs(text, add_special_tokens=False).input_ids == ours.encode("The fox went home.")
        back = regard.import_run(tmp_path / "theirs", out=tmp_path / "back")
        regard.export_run(back, to="huggingface", out=tmp_path / "again")
        files = [tmp_path / folder / "tokenizer.json" for folder in ("theirs", "again")]
        written = [json.loads(file.read_text(encoding="utf-8"))["normalizer"] for file in files]
        assert written[0] == written[1]


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


def test_masks_are_predicted_as_here(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", **EXPORTS["bert"])
    regard.export_run(run, to="huggingface", out=tmp_path / "exported")
    text = "The fox [MASK] to the [MASK]."
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "exported").eval()
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")(text, return_tensors="pt")
    tokenizer, [prediction] = run.tokenizers["text"], regard.predict(run, [text])
    assert "▁the" in tokenizer.tokens(inputs.input_ids[0].tolist())
    masks_P = (inputs.input_ids[0] == tokenizer.mask).nonzero()[:, 0]
    with torch.no_grad():
        p_PV = theirs(**inputs).prediction_logits[0, masks_P].softmax(-1)
    for p_V, gap in zip(p_PV, prediction.gaps, strict=True):
        near(p_V[tokenizer.token_ids(gap.tokens)], torch.tensor(gap.probabilities))


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
