"""Masks and white space in a text, vocabularies of another size. That ids are the same: test_exchange.py."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import regard
from command_line import fail, succeed
from exchange_cases import TEXTS, save_bert, save_gpt2, wordpiece
from regard.exchange.folder import Exported
from regard.exchange.tokenizers import tokenizer_files
from regard.tasks.masked_language_modeling import with_gaps
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.text.vocabularies import MASKING

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tokenizer, Any]]:
    """A vocabulary of ours of every kind, and the same as AutoTokenizer reads it."""
    pairs = {}
    texts = ["The fox ate the hen. A fox (big) went home, 여우가 갔다!"] * 4
    exported = Exported("BertForMaskedLM", {"max_position_embeddings": 64}, {}, None, raw_text=True)
    for kind in ("word", "wordpiece", "bpe", "unigram", "character", "byte"):
        config = TokenizerConfig(kind=kind, vocabulary=90, lowercase=kind == "bpe")  # type: ignore[arg-type]
        own, folder = Tokenizer.train(config, texts, MASKING), tmp_path_factory.mktemp(kind)
        for name, text in tokenizer_files(own, exported, 512).items():
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
