"""Marian and Pegasus models write the same texts here and in `transformers`, greedily and with a beam.

That holds as far as outputs end by themselves; what differs otherwise is shown in test_against_marian_search.py.
"""

from __future__ import annotations

import ast
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import regard
from command_line import succeed
from exchange_cases import TEXTS, change, printed_by_the_card, save_marian, save_pegasus
from regard.runs import Run

transformers = pytest.importorskip("transformers")

FOLDERS: dict[str, Any] = {
    "marian": save_marian,
    "marian-two-vocabularies": partial(save_marian, shared=False),
    "pegasus": save_pegasus,
}


def imported(folder: Path, save: Any, end: float, overrides: list[str], **options: Any) -> Run:
    """A model with a bias that makes it end, and these options of generation; and what it is exported as again."""
    theirs = save(folder / "theirs")
    theirs.final_logits_bias[0, theirs.config.eos_token_id] = end
    theirs.generation_config.update(**options)
    theirs.save_pretrained(folder / "theirs")
    run = regard.import_run(folder / "theirs", out=folder / "run", overrides=overrides)
    regard.export_run(run, to="huggingface", out=folder / "again")
    return run


def written(run: Run, beam: int) -> list[list[int]]:
    """The same tokens from both."""
    folder = run.folder.parent / "again"
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS, return_tensors="pt", padding=True)
    generated = theirs.generate(**inputs, num_beams=beam).tolist()
    target = run.tokenizers["target"]
    ours = [target.token_ids(prediction.nbest[0].tokens) for prediction in regard.predict(run, TEXTS, beam=beam)]
    assert [ids[1 : 1 + len(best)] for ids, best in zip(generated, ours, strict=True)] == ours
    return ours


@pytest.mark.parametrize("save", FOLDERS.values(), ids=FOLDERS)
def test_greedy_and_beam_search_write_the_same(tmp_path: Path, save: Any) -> None:
    options = {"num_beams": 3, "length_penalty": 0.8, "no_repeat_ngram_size": 1}
    run = imported(tmp_path, save, 2.0, [], **options)
    search = run.recipe.search
    assert [search.beam, search.length_penalty, search.no_repeat_ngram] == [*options.values()]
    lengths = [len(ids) for beam in (1, 2, 3) for ids in written(run, beam)]
    assert 3 < max(lengths) < 50, "they end by themselves"
    [prediction] = regard.predict(run, ["A text of yours."])
    assert ast.literal_eval(printed_by_the_card(tmp_path / "again")) == [prediction.output]


def test_options_of_the_search_come_back_and_others_are_named(tmp_path: Path) -> None:
    """With a beam: their greedy search penalises repetition in logits, their beam search and ours in log P."""
    run = imported(tmp_path, save_marian, 4.0, ["search.banned=[zebra]"], min_new_tokens=6, repetition_penalty=1.3)
    assert (run.recipe.search.min_length, run.recipe.search.repetition_penalty) == (7, 1.3)
    assert min(map(len, written(run, 3))) == 7, "the shortest that is allowed"
    assert "`search.banned`" in (tmp_path / "again" / "README.md").read_text(encoding="utf-8")


def test_two_vocabularies_are_pointed_out(tmp_path: Path) -> None:
    """AutoTokenizer alone would decode outputs with the vocabulary of the source."""
    save_marian(tmp_path / "theirs", shared=False)
    regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    folder = tmp_path / "again"
    first, note = succeed("export", tmp_path / "run", "--to", "huggingface", "--out", folder).out.splitlines()
    assert first == f"exported: {folder}"
    assert note == (
        "source and target have a vocabulary each: decode outputs with "
        f"AutoTokenizer.from_pretrained('{folder}', subfolder='target'), as {folder / 'README.md'} shows"
    )
    result = succeed("export", tmp_path / "run", "--to", "huggingface", "--out", tmp_path / "more", "--json").json
    assert result["note"] == note.replace(str(folder), str(tmp_path / "more"))


@pytest.mark.parametrize("task", ["summarization", "translation"])
def test_the_task_of_a_pegasus_model(tmp_path: Path, task: str) -> None:
    """The published ones summarise; what was exported here keeps its task."""
    save_pegasus(tmp_path / "theirs")
    if task == "translation":
        change(tmp_path / "theirs" / "config.json", task_specific_params={"translation": {}})
    assert succeed("import", tmp_path / "theirs", "--out", tmp_path / "run", "--json").json["task"] == task
    regard.export_run(tmp_path / "run", to="huggingface", out=tmp_path / "again")
    assert regard.import_run(tmp_path / "again", out=tmp_path / "back").recipe.task == task
