"""`training.watch`: what is stored of one text while a model is trained."""

import json
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import ConfigError
from regard.runs.watched import add_watched, read_watched
from regard.training.watching import Watch


def recipe(**changes: Any) -> dict[str, Any]:
    return {
        "task": "translation",
        "data": {"train": {"corpus": "greetings-en-ko"}, "validation": {"split": 0.1}},
        "tokenizer": {"kind": "word", "joint": False},
        "model": {"kind": "bahdanau", "embedding": 8, "hidden": 8, "attention": 8},
        "training": {
            "steps": 12,
            "batch_tokens": 128,
            "device": "cpu",
            "log_every": 1,
            "decode": 0,
            **changes,
        },
    }


def losses(run: regard.Run) -> list[float]:
    return [event["loss"] for event in run.events() if event["event"] != "timing"]


def test_a_text_is_watched_and_the_training_is_the_same(tmp_path: Path) -> None:
    plain = regard.train(recipe(), out=tmp_path / "plain", quiet=True)
    watched = regard.train(recipe(watch="How are you?"), out=tmp_path / "watched", quiet=True)
    assert losses(plain) == losses(watched)
    stored = read_watched(watched.folder)
    steps = [entry["step"] for entry in stored["entries"]]
    assert stored["text"] == "How are you?"
    assert (steps[0], steps[-1]) == (0, 12)
    last = stored["entries"][-1]
    assert last.get("output", "") == watched.predict(["How are you?"])[0].output
    explained = watched.explain("How are you?").to_json()
    assert [one["probability"] for one in last["tokens"]] == pytest.approx(
        [one["probability"] for one in explained["steps"]], abs=6e-4
    )
    for row in last["map"]["values"]:
        assert sum(row) == pytest.approx(1, abs=0.01)
    assert stored["entries"][0] != {**last, "step": 0}, "nothing was learned"


def test_a_text_that_cannot_be_read_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"training\.watch: .*unknown to the tokenizer"):
        regard.train(recipe(watch="zzz yyy"), out=tmp_path / "run", quiet=True)
    corrected = recipe(watch="How are you?", steps=2)
    regard.train(corrected, out=tmp_path / "run", resume=True, quiet=True)


def test_a_classifier_is_watched_by_its_probabilities(tmp_path: Path) -> None:
    tree = recipe(watch="The plot was never boring.")
    tree |= {"task": "classification", "model": {"kind": "bilstm", "preset": "tiny"}}
    tree["data"] = {"train": {"corpus": "reviews-en", "size": 60}, "validation": {"split": 0.1}}
    tree["tokenizer"] = {"kind": "word"}
    run = regard.train(tree, out=tmp_path / "run", quiet=True)
    last = read_watched(run.folder)["entries"][-1]
    assert sum(last["probabilities"].values()) == pytest.approx(1, abs=2e-3)
    assert [word for word, _ in last["importance"]] == [
        "The",
        "plot",
        "was",
        "never",
        "boring",
        ".",
    ]
    assert "tokens" not in last


@pytest.mark.parametrize("steps", [1, 7, 20, 700, 12345])
def test_about_twenty_steps_are_watched(steps: int) -> None:
    due = [step for step in range(steps + 1) if Watch.is_due(step, steps)]
    assert (due[0], due[-1]) == (0, steps)
    assert len(due) <= 21
    assert len(due) == 21 or steps < 400, "each of the 20 has a step of its own"


def test_a_resumed_training_replaces_later_entries(tmp_path: Path) -> None:
    for step in (0, 5, 10):
        add_watched(tmp_path, "a", {"step": step, "output": "before"})
    add_watched(tmp_path, "a", {"step": 5, "output": "again"})
    assert [(one["step"], one["output"]) for one in read_watched(tmp_path)["entries"]] == [
        (0, "before"),
        (5, "again"),
    ]
    add_watched(tmp_path, "another", {"step": 7})
    assert read_watched(tmp_path) == {"text": "another", "entries": [{"step": 7}]}
    (tmp_path / "watch.json").write_text(json.dumps([1]))
    assert read_watched(tmp_path)["entries"] == []
