"""A run becomes a folder that `transformers` loads: the same tokens, the same numbers, and back again without loss."""

from __future__ import annotations

import ast
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

import regard
from command_line import fail, succeed
from exchange_cases import save_bert, save_gpt2, save_marian, save_pegasus
from export_cases import mask_of, near, printed_by_the_card, rows_of, same_tokens, trained
from regard.data.batch import LabelledBatch, MaskedBatch, TextBatch
from regard.exchange.exchanged import Exported
from regard.exchange.vocabularies import tokenizer_files
from regard.runs.checkpoints import load_weights
from regard.tasks.filling import with_gaps
from regard.tasks.inputs import padded
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.text.vocabularies import MASKING

transformers = pytest.importorskip("transformers")

SIZES = {"layers": 2, "width": 16, "heads": 4, "feed_forward": 24, "max_positions": 40, "dropout": 0.1}


@pytest.mark.parametrize(("next_sentence", "name"), [(True, "BertForPreTraining"), (False, "BertForMaskedLM")])
def test_bert(tmp_path: Path, next_sentence: bool, name: str) -> None:
    model = {"kind": "bert", **SIZES, "next_sentence": next_sentence}
    run = trained(tmp_path / "run", task="masked_language_modeling", model=model)
    succeed("export", tmp_path / "run", "--to", "huggingface", "--out", tmp_path / "theirs")
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "theirs")
    tokenizer, ours = run.tokenizers["text"], run.load_model()
    rows = [[tokenizer.begin, *row, tokenizer.end, *row[:2], tokenizer.end] for row in rows_of(run)]
    text, nothing = padded(rows, tokenizer.pad), torch.zeros(0, dtype=torch.long)
    segments_BL = torch.zeros_like(text.ids_BL)
    segments_BL[0, 6:9] = 1
    with torch.no_grad():
        found = theirs(text.ids_BL, attention_mask=mask_of(rows), token_type_ids=segments_BL)
        hidden_BLD = ours(MaskedBatch(text, segments_BL, nothing, nothing)).hidden_BTD
        logits_BLV = found.prediction_logits if next_sentence else found.logits
        for row, ids in enumerate(rows):
            near(ours.readout(hidden_BLD)[row, : len(ids)], logits_BLV[row, : len(ids)])
        if next_sentence:
            near(ours.next_sentence(hidden_BLD), found.seq_relationship_logits)
    same_tokens(tmp_path / "theirs", run, "text", [tokenizer.begin], [tokenizer.end])
    [filled] = regard.predict(run, ["A [MASK] of yours."])
    assert printed_by_the_card(tmp_path / "theirs") == filled.gaps[0].words[0]
    pair = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")("The king", "A fox")
    first = 2 + len(tokenizer.encode("The king"))
    assert pair.token_type_ids == [0] * first + [1] * (len(pair.input_ids) - first)


HEADS: dict[str, tuple[dict[str, Any], str]] = {
    "classification": ({"train": {"corpus": "reviews-en", "size": 60}}, "AutoModelForSequenceClassification"),
    "tagging": ({"train": {"corpus": "names-en", "size": 60}}, "AutoModelForTokenClassification"),
    "question_answering": ({"train": {"corpus": "portraits-en", "size": 60}}, "AutoModelForQuestionAnswering"),
}


@pytest.mark.parametrize("task", HEADS)
def test_bert_under_the_head_of_a_task(tmp_path: Path, task: str) -> None:
    data, loader = HEADS[task]
    model = {"kind": "bert", **SIZES, "max_positions": 64}
    data = (
        data | {"validation": {"split": 0.2}, "max_length": 48} | ({"max_question": 20} if "question" in task else {})
    )
    run = trained(
        tmp_path / "run", task=task, data=data, model=model, tokenizer={"vocabulary": 200, "kind": "wordpiece"}
    )
    succeed("export", tmp_path / "run", "--to", "huggingface", "--out", tmp_path / "theirs")
    theirs, ours, tokenizer = (
        getattr(transformers, loader).from_pretrained(tmp_path / "theirs"),
        run.load_model(),
        run.tokenizers["text"],
    )
    rows = [[tokenizer.begin, *row, tokenizer.end] for row in rows_of(run)]
    text, owners_B = padded(rows, tokenizer.pad), torch.arange(3)
    segments_BL = torch.zeros_like(text.ids_BL)
    segments_BL[2, 4:] = 1
    with torch.no_grad():
        logits = ours(LabelledBatch(text, segments_BL, owners_B, owners_B))
        found = theirs(text.ids_BL, attention_mask=mask_of(rows), token_type_ids=segments_BL)
    if task == "classification":
        near(logits, found.logits)
    else:
        spans = task == "question_answering"
        expected = torch.stack([found.start_logits, found.end_logits], -1) if spans else found.logits
        for row, ids in enumerate(rows):
            near(logits[row, : len(ids)], expected[row, : len(ids)])
    if task != "question_answering":
        assert tuple(theirs.config.id2label[number] for number in range(len(run.task.labels))) == run.task.labels
    said = printed_by_the_card(tmp_path / "theirs")
    assert said
    if task == "classification":
        [predicted] = regard.predict(run, ["A text of yours."])
        assert ast.literal_eval(said) == pytest.approx(predicted.to_json()["probabilities"], abs=1e-5)
    elif task == "tagging":
        [predicted] = regard.predict(run, ["A text of yours , in words ."])
        assert ast.literal_eval(said) == [(word["text"], word["tag"]) for word in predicted.to_json()["words"]]
    back = regard.import_run(tmp_path / "theirs", out=tmp_path / "back")
    assert back.recipe.task == task
    before, after = load_weights(run.checkpoint()), load_weights(back.checkpoint())
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_gpt(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", task="language_modeling", model={"kind": "gpt", **SIZES, "norm": "pre"})
    regard.export_run(run, to="huggingface", out=tmp_path / "theirs")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "theirs")
    assert type(theirs).__name__ == "GPT2LMHeadModel"
    tokenizer, ours = run.tokenizers["text"], run.load_model()
    rows = [[tokenizer.end, *row] for row in rows_of(run)]
    with torch.no_grad():
        logits_BTV = ours.readout(ours(TextBatch(padded([[*row, 0] for row in rows], tokenizer.pad))).hidden_BTD)
        found = theirs(padded(rows, tokenizer.pad).ids_BL, attention_mask=mask_of(rows)).logits
    for row, ids in enumerate(rows):
        near(logits_BTV[row, : len(ids)], found[row, : len(ids)])
    same_tokens(tmp_path / "theirs", run, "text", [tokenizer.end], [])
    options = ["search.sample=false", "search.max_length=21"]  # the end is counted here
    [predicted] = regard.predict(run, ["A text"], beam=1, overrides=options)
    assert printed_by_the_card(tmp_path / "theirs") == predicted.to_json()["output"]


FOLDERS: dict[str, Any] = {
    "bert": save_bert,
    "bert-without-heads": partial(save_bert, architecture="BertModel"),
    "bert-regression": partial(save_bert, architecture="BertForSequenceClassification", id2label={0: "score"}),
    "bert-choices": partial(save_bert, architecture="BertForMultipleChoice"),
    "bert-tags": partial(save_bert, architecture="BertForTokenClassification", id2label={0: "O", 1: "B-A", 2: "I-A"}),
    "gpt2": save_gpt2,
    "marian": save_marian,
    "marian-separate": partial(save_marian, shared=False),
    "pegasus": save_pegasus,
    "pegasus-untied": partial(save_pegasus, tie_word_embeddings=False),
}


@pytest.mark.parametrize("save", FOLDERS.values(), ids=FOLDERS)
def test_import_export_import(tmp_path: Path, save: Any) -> None:
    theirs = save(tmp_path / "theirs")
    first = regard.import_run(tmp_path / "theirs", out=tmp_path / "first")
    regard.export_run(first, to="huggingface", out=tmp_path / "again")
    second = regard.import_run(tmp_path / "again", out=tmp_path / "second")
    assert second.recipe == first.recipe
    ours, back = load_weights(first.checkpoint()), load_weights(second.checkpoint())
    assert ours.keys() == back.keys()
    assert all(torch.equal(tensor, back[name]) for name, tensor in ours.items())
    for column, tokenizer in first.tokenizers.items():
        other = second.tokenizers[column]
        assert other.to_json() == tokenizer.to_json()
        assert (other.pad, other.unk, other.begin, other.end) == (
            tokenizer.pad,
            tokenizer.unk,
            tokenizer.begin,
            tokenizer.end,
        )
    loaded, before = type(theirs).from_pretrained(tmp_path / "again").state_dict(), theirs.state_dict()
    if not getattr(theirs.config, "tie_word_embeddings", True):
        del before["model.shared.weight"]  # which an untied Pegasus has, but never reads
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in before.items())
    if first.recipe.task == "regression":
        [predicted] = regard.predict(first, ["A text of yours."])
        assert float(printed_by_the_card(tmp_path / "again")) == pytest.approx(predicted.to_json()["output"], abs=1e-5)
    elif first.recipe.model.kind != "transformer":  # of these the texts are compared in test_export_transformer.py
        assert printed_by_the_card(tmp_path / "again")


def test_a_run_of_ours_comes_back(tmp_path: Path) -> None:
    """It predicts what it did before."""
    run = trained(tmp_path / "run", task="masked_language_modeling", model={"kind": "bert", **SIZES})
    regard.export_run(run, to="huggingface", out=tmp_path / "theirs")
    back = regard.import_run(tmp_path / "theirs", out=tmp_path / "back")
    texts = ["The [MASK] went home.", "[MASK]"]
    assert [one.to_json() for one in regard.predict(back, texts)] == [
        one.to_json() for one in regard.predict(run, texts)
    ]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tokenizer, Any]]:
    """A vocabulary of ours of every kind, and the same as AutoTokenizer reads it."""
    found = {}
    texts = ["The fox ate the hen. A fox (big) went home, 여우가 갔다!"] * 4
    exported = Exported("BertForMaskedLM", {"max_position_embeddings": 64}, {}, ("[CLS]", "$A", "[SEP]", "$B", "[SEP]"))
    for kind in ("word", "wordpiece", "bpe", "unigram", "character", "byte"):
        config = TokenizerConfig(kind=kind, vocabulary=90, lowercase=kind == "bpe")  # type: ignore[arg-type]
        own, folder = Tokenizer.train(config, texts, MASKING), tmp_path_factory.mktemp(kind)
        for name, text in tokenizer_files(own, exported, raw=True).items():
            (folder / name).write_text(text, encoding="utf-8")
        found[kind] = own, transformers.AutoTokenizer.from_pretrained(folder)
    return found


PARTS = ["[MASK]", " ", "  ", "fox", "The", "ing", ".", "(", "여우가", "\u1112\u1161", "▁", "\t", "1"]


@given(st.lists(st.sampled_from(PARTS), max_size=9).map(lambda parts: "".join(parts).strip()))
@example("The fox ate the [MASK].")
@example("[MASK] fox[MASK][MASK]ing  [MASK]")
def test_a_gap_is_read_by_transformers_as_here(kinds: dict[str, tuple[Tokenizer, Any]], text: str) -> None:
    """Also by a run that comes back, and with one blank for all white space."""
    for kind, (own, theirs) in kinds.items():
        expected = with_gaps(own, re.sub(r"\s+", " ", text))
        assert theirs(text)["input_ids"] == [own.begin, *expected, own.end], kind
        assert with_gaps(Tokenizer.from_json(theirs.backend_tokenizer.to_str()), text) == expected, kind


def test_white_space_is_read_by_transformers_as_here(tmp_path: Path) -> None:
    model = {"kind": "gpt", **SIZES, "norm": "pre"}
    run = trained(tmp_path / "run", task="language_modeling", model=model)
    regard.export_run(run, to="huggingface", out=tmp_path / "theirs")
    theirs, own = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs"), run.tokenizers["text"]
    expected = own.encode("The fox went home.")
    for text in ("The fox went home.", " The  fox\twent\r\nhome. ", "The\u00a0fox\u3000went\n\nhome.\n"):
        assert theirs(text, add_special_tokens=False)["input_ids"] == expected
    back = regard.import_run(tmp_path / "theirs", out=tmp_path / "back")
    regard.export_run(back, to="huggingface", out=tmp_path / "again")
    written = [(tmp_path / folder / "tokenizer.json").read_text(encoding="utf-8") for folder in ("theirs", "again")]
    assert json.loads(written[0])["normalizer"] == json.loads(written[1])["normalizer"]


def test_a_gap_is_filled_by_transformers_as_here(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", task="masked_language_modeling", model={"kind": "bert", **SIZES})
    regard.export_run(run, to="huggingface", out=tmp_path / "theirs")
    text = "The fox [MASK] to the [MASK]."
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "theirs").eval()
    read = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")(text, return_tensors="pt")
    tokenizer, [found] = run.tokenizers["text"], regard.predict(run, [text])
    assert "▁the" in tokenizer.tokens(read.input_ids[0].tolist())
    gaps_P = (read.input_ids[0] == tokenizer.mask).nonzero()[:, 0]
    with torch.no_grad():
        p_PV = theirs(**read).prediction_logits[0, gaps_P].softmax(-1)
    for p_V, gap in zip(p_PV, found.gaps, strict=True):
        near(p_V[tokenizer.token_ids(gap.tokens)], torch.tensor(gap.probabilities))


def test_the_model_card(tmp_path: Path) -> None:
    tales = tmp_path / "secret-place" / "tales.txt"
    tales.parent.mkdir()
    tales.write_text("\n\n".join(f"The king went home. He saw {number} foxes. They ran." for number in range(40)))
    data = {"train": {"text": str(tales)}, "validation": {"split": 0.1}, "max_length": 32}
    run = trained(
        tmp_path / "my-run", task="language_modeling", data=data, model={"kind": "gpt", **SIZES, "norm": "pre"}
    )
    regard.export_run(run, to="huggingface", out=tmp_path / "theirs")
    card = (tmp_path / "theirs" / "README.md").read_text(encoding="utf-8")
    _, front, rest = card.split("---\n", 2)
    assert yaml.safe_load(front)["pipeline_tag"] == "text-generation"
    assert rest.startswith("\n# my-run\n")
    assert "tales.txt" in rest
    assert "secret-place" not in rest, "where the data lay is nobody's business"
    assert "after 3 steps" in rest
    assert "| perplexity | " in rest
    recipe = yaml.safe_load(rest.split("## Recipe\n\n```yaml\n")[1].removesuffix("```\n"))
    assert recipe["training"]["steps"] == 3


def test_what_cannot_be_exported_is_named(tmp_path: Path, tiny_run: Path) -> None:
    out = tmp_path / "out"
    [message] = fail("export", tiny_run, "--to", "huggingface", "--out", out)
    assert "bahdanau for translation cannot be written as a model of transformers (what can be exported: " in message
    [message] = fail("export", tiny_run, "--to", "ctranslate2", "--out", out)
    assert "CTranslate2 does not run a bahdanau for translation (a transformer for translation or" in message
    [message] = fail("export", tiny_run, "--to", "huggingfac", "--out", out)
    assert message == "--to: unknown tool 'huggingfac' (did you mean 'huggingface'?)"
    [message] = fail("export", tiny_run, "--to", "huggingface", "--out", out, "--quantize", "int8")
    assert message == "--quantize: weights are rounded for ctranslate2 only (leave it out)"
    [message] = fail("export", tiny_run, "--to", "huggingface", "--out", tmp_path)
    assert "the folder exists already (give another --out)" in message
    trained(tmp_path / "gpt", task="language_modeling", model={"kind": "gpt", **SIZES})
    [message] = fail("export", tmp_path / "gpt", "--to", "huggingface", "--out", out)
    assert (
        message == f"{tmp_path / 'gpt'}: a gpt with norm: post is no GPT-2 (one with model.norm: pre can be exported)"
    )
    assert not out.exists()
