"""The example runs of the package: they are small, they load, they answer, and they are only read."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import CheckpointError
from regard.runs.packaged import PACKAGED_RUNS, packaged_runs

LARGEST = 4_000_000
ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "translate-transformer": [
        (
            "강이 정말 넓었기 때문에 이 트럭은 그 강을 건너지 않았어요.",
            "This truck did not cross the river because it was really wide.",
        ),
        ("젊은 요리사 다섯 명은 우산을 잊어버렸어요.", "Five young cooks forgot an umbrella."),
    ],
    "translate-bahdanau": [
        (
            "강이 정말 넓었기 때문에 이 트럭은 그 강을 건너지 않았어요.",
            "This truck did not cross the river because it was really wide.",
        )
    ],
    "translate-rnn": [],
    "stories": [
        ("Mary went to the garden.\nJohn walked to the kitchen.\nWhere is John?", "kitchen"),
        ("민수가 우유를 챙겼다.\n서준이 침실로 향했다.\n서준은 어디에 있나요?", "침실"),
    ],
    "fill-masks": [],
    "reviews": [
        ("Although the ending was painful, the dialogue was rather gripping.", "positive"),
        ("In the end the story was rather silly.", "negative"),
        ("For once the plot was not shallow.", "positive"),
    ],
}
LEAST = {
    "translate-transformer": ("bleu", 90),
    "translate-bahdanau": ("bleu", 90),
    "translate-rnn": ("bleu", 25),
    "reviews": ("accuracy", 0.9),
    "stories": ("error", 0.02),
}
"""A metric of the test set: what each must reach, or for the error may not exceed."""


def test_the_examples_are_there_and_small() -> None:
    runs = packaged_runs()
    assert runs.keys() == ANSWERS.keys()
    files = [path for path in PACKAGED_RUNS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= LARGEST
    assert not [path for path in files if path.suffix == ".pt"], "the state of an optimiser"
    for folder in runs.values():
        assert (folder / "watch.json").exists()
        assert list(regard.Run(folder).events())


@pytest.mark.parametrize("name", ANSWERS)
def test_an_example_answers_by_its_name(name: str) -> None:
    run = regard.load(f"example:{name}")
    for given, expected in ANSWERS[name]:
        assert run.predict([given])[0].output == expected


def test_hidden_words_are_filled() -> None:
    [filled] = regard.predict("example:fill-masks", ["The brave boy swam at the [MASK] on Sunday."])
    [mask] = filled.to_json()["masks"]
    assert len(set(mask["words"][:5]) & PLACES) >= 3, "a place, since `at the` comes before it"


PLACES = {
    "park",
    "beach",
    "river",
    "school",
    "office",
    "kitchen",
    "market",
    "bank",
    "hotel",
    "garden",
}
PLACES |= {
    "church",
    "island",
    "library",
    "hospital",
    "station",
    "airport",
    "theater",
    "museum",
    "city",
}
PLACES |= {"village", "forest", "restaurant", "bakery", "classroom", "shop"}


@pytest.mark.parametrize("name", LEAST)
def test_an_example_is_good_on_sentences_that_it_has_not_seen(name: str) -> None:
    metric, bound = LEAST[name]
    metrics = regard.evaluate(f"example:{name}", predictions=False)
    assert metrics[metric] <= bound if metric == "error" else metrics[metric] >= bound


def test_an_unknown_example_is_refused() -> None:
    with pytest.raises(CheckpointError, match="example:storys: there is no such example run"):
        regard.Run("example:storys")


def test_nothing_is_written_into_the_package(tmp_path: Path, monkeypatch: Any) -> None:
    copied = shutil.copytree(packaged_runs()["reviews"], tmp_path / "packaged" / "reviews")
    monkeypatch.setattr("regard.inference.evaluation.PACKAGED_RUNS", copied.parent)
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    metrics = regard.evaluate(copied)
    regard.explain(copied, "The plot was never boring.")
    assert metrics["accuracy"] > 0.9
    assert "predictions" not in metrics
    after = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    assert before == after
