"""A Transformer becomes a Marian model or, pre-norm, a Pegasus model: the same tokens, numbers and texts, and back."""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from command_line import fail, succeed
from exchange_cases import TEXTS, save_marian, save_pegasus
from export_cases import mask_of, near, printed_by_the_card, rows_of, same_tokens, trained
from regard.data.batch import Batch
from regard.runs.checkpoints import load_weights
from regard.tasks.inputs import padded

transformers = pytest.importorskip("transformers")

PHRASES = {"corpus": "phrases-en-fr", "size": 200}
DATES = {"corpus": "dates", "size": 200}
TRANSFORMERS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "marian": ("post", "all", PHRASES, {"joint": True}),
    "marian-untied-source": ("post", "target", PHRASES, {"joint": True}),
    "marian-two-vocabularies": ("post", "none", PHRASES, {"joint": False}),
    "pegasus": ("pre", "all", PHRASES, {"joint": True}),
    "pegasus-untied": ("pre", "none", PHRASES, {"joint": True}),
    "pegasus-larger-target": ("pre", "none", PHRASES, {"joint": False, "kind": "character"}),
    "pegasus-larger-source": ("pre", "target", DATES, {"joint": False, "kind": "character"}),
}
"""`norm`, `tie`, the data, the tokenizer."""


@pytest.mark.parametrize("case", TRANSFORMERS)
def test_transformer(tmp_path: Path, case: str) -> None:
    norm, tie, corpus, tokenizer = TRANSFORMERS[case]
    sizes = {"encoder_layers": 2, "decoder_layers": 3, "width": 18, "heads": 3, "feed_forward": 23}
    run = trained(
        tmp_path / "run",
        task="translation",
        data={"train": corpus, "validation": {"split": 0.1}},
        tokenizer={"vocabulary": 200, **tokenizer},
        model={"kind": "transformer", **sizes, "norm": norm, "tie": tie},
    )
    regard.export_run(run, to="huggingface", out=tmp_path / "theirs")
    theirs, facts = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs", output_loading_info=True)
    assert not any(facts.values()), "nothing is missing, and nothing is too many"
    assert type(theirs).__name__ == ("MarianMTModel" if norm == "post" else "PegasusForConditionalGeneration")
    source, target, ours = run.tokenizers["source"], run.tokenizers["target"], run.load_model()
    if case.startswith("pegasus-larger"):
        assert (source.size > target.size) is case.endswith("source")
    sources = [[*row, source.end] for row in rows_of(run, "source")]
    targets = [[target.begin, *row, target.end] for row in rows_of(run, "target")]
    batch = Batch(padded(sources, source.pad), padded(targets, target.pad))
    with torch.no_grad():
        logits_BTV = ours.readout(ours(batch).hidden_BTD)
        given = {"attention_mask": mask_of(sources), "decoder_input_ids": batch.target.ids_BL[:, :-1]}
        found = theirs(batch.source.ids_BL, **given).logits
    assert found[..., target.size :].eq(-torch.inf).all(), "tokens that only the source has are never written"
    for row, ids in enumerate(targets):
        near(logits_BTV[row, : len(ids) - 1], found[row, : len(ids) - 1, : target.size])
    same_tokens(tmp_path / "theirs", run, "source", [], [source.end])
    if not run.tokenizers.joint:
        same_tokens(tmp_path / "theirs" / "target", run, "target", [], [target.end])
    reader = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    written = theirs.generate(**reader("I see a dog.", return_tensors="pt"), num_beams=1, max_length=13)
    [one] = regard.predict(run, ["I see a dog."], beam=1, overrides=["search.max_length=12"])
    assert written[0, 1:].tolist() == target.token_ids(one.nbest[0].tokens)
    back = regard.import_run(tmp_path / "theirs", out=tmp_path / "back")
    assert (back.recipe.task, back.recipe.model) == ("translation", run.recipe.model)
    texts = ["I see a dog.", "a"]
    assert [one.to_json() for one in regard.predict(back, texts)] == [
        one.to_json() for one in regard.predict(run, texts)
    ]
    before, after = load_weights(run.checkpoint()), load_weights(back.checkpoint())
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


LIVELY: dict[str, Any] = {
    "marian": save_marian,
    "marian-two-vocabularies": partial(save_marian, shared=False),
    "pegasus": save_pegasus,
}


@pytest.mark.parametrize("save", LIVELY.values(), ids=LIVELY)
def test_greedy_and_beam_search_write_the_same(tmp_path: Path, save: Any) -> None:
    """As far as outputs end by themselves; what differs otherwise is shown in test_against_marian_search.py."""
    theirs = save(tmp_path / "theirs")
    theirs.final_logits_bias[0, theirs.config.eos_token_id] = 2.0
    said = {"num_beams": 3, "length_penalty": 0.8, "no_repeat_ngram_size": 1}
    theirs.generation_config.update(**said)
    theirs.save_pretrained(tmp_path / "theirs")
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    search = run.recipe.search
    assert [search.beam, search.length_penalty, search.no_repeat_ngram] == [*said.values()]
    regard.export_run(run, to="huggingface", out=tmp_path / "again")
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again")
    reader, target = transformers.AutoTokenizer.from_pretrained(tmp_path / "again"), run.tokenizers["target"]
    lengths = []
    for beam in (1, 2, 3):
        written = again.generate(**reader(TEXTS, return_tensors="pt", padding=True), num_beams=beam).tolist()
        found = [target.token_ids(one.nbest[0].tokens) for one in regard.predict(run, TEXTS, beam=beam)]
        assert [ids[1 : 1 + len(best)] for ids, best in zip(written, found, strict=True)] == found
        lengths += [len(best) for best in found]
    assert 3 < max(lengths) < 50, "they end by themselves"
    [one] = regard.predict(run, ["A text of yours."])
    assert ast.literal_eval(printed_by_the_card(tmp_path / "again")) == [one.output]


def test_two_vocabularies_are_pointed_out(tmp_path: Path) -> None:
    """AutoTokenizer alone would decode what is written as words of the source."""
    save_marian(tmp_path / "theirs", shared=False)
    regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    folder = tmp_path / "again"
    first, note = succeed("export", tmp_path / "run", "--to", "huggingface", "--out", folder).out.splitlines()
    assert first == f"exported: {folder}"
    assert note == (
        "source and target have a vocabulary each: what the model writes is decoded by "
        f"AutoTokenizer.from_pretrained('{folder}', subfolder='target'), as {folder / 'README.md'} shows"
    )
    told = succeed("export", tmp_path / "run", "--to", "huggingface", "--out", tmp_path / "more", "--json").json
    assert told["note"] == note.replace(str(folder), str(tmp_path / "more"))
    assert 'target = AutoTokenizer.from_pretrained(FOLDER, subfolder="target")' in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("changes", "what", "hint"),
    [
        ({"norm": "none"}, "norm: none", "one with model.norm: post or pre can be exported"),
        ({"positions": "learned"}, "positions: learned", "one with model.positions: sinusoidal can be exported"),
        ({"scaled": False}, "scaled: false", "one with model.scaled: true can be exported"),
        ({"width": 9, "heads": 3}, "width: 9", "one whose model.width is even can be exported"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_is_neither_is_named(tmp_path: Path, changes: dict[str, Any], what: str, hint: str) -> None:
    model = {"kind": "transformer", "preset": "tiny", "encoder_layers": 1, "decoder_layers": 1, "width": 8, "heads": 2}
    data = {"train": {"corpus": "copy", "size": 50}, "validation": {"split": 0.1}}
    run = trained(tmp_path / "run", task="translation", data=data, model=model | changes)
    [message] = fail("export", run.folder, "--to", "huggingface", "--out", tmp_path / "out")
    assert message == f"{run.folder}: transformers has no model like a transformer with {what} ({hint})"
    assert not (tmp_path / "out").exists()


def test_rules_of_the_search_go_there_and_back_and_the_others_are_told(tmp_path: Path) -> None:
    """With a beam: their greedy search lays the repetition penalty on logits, their beam search and ours on log P."""
    theirs = save_marian(tmp_path / "theirs")
    theirs.final_logits_bias[0, theirs.config.eos_token_id] = 4.0
    theirs.generation_config.update(min_new_tokens=6, repetition_penalty=1.3)
    theirs.save_pretrained(tmp_path / "theirs")
    run = regard.import_run(tmp_path / "theirs", out=tmp_path / "run", overrides=["search.banned=[zebra]"])
    assert (run.recipe.search.min_length, run.recipe.search.repetition_penalty) == (7, 1.3)
    regard.export_run(run, to="huggingface", out=tmp_path / "again")
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again")
    reader, target = transformers.AutoTokenizer.from_pretrained(tmp_path / "again"), run.tokenizers["target"]
    written = again.generate(**reader(TEXTS, return_tensors="pt", padding=True), num_beams=3).tolist()
    found = [target.token_ids(one.nbest[0].tokens) for one in regard.predict(run, TEXTS, beam=3)]
    assert [ids[1 : 1 + len(best)] for ids, best in zip(written, found, strict=True)] == found
    assert min(map(len, found)) == 7, "the shortest that is allowed"
    assert "`search.banned`" in (tmp_path / "again" / "README.md").read_text(encoding="utf-8")
