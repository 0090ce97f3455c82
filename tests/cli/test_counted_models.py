"""Models that count: bags of words and n-grams, through the commands."""

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import fail, succeed, write

REVIEWS: dict[str, Any] = {
    "task": "classification",
    "tokenizer": {"kind": "word"},
    "model": {"kind": "bag_of_words"},
    "training": {"steps": 60, "batch_tokens": 512, "validate_every": 60, "device": "cpu"},
}
TALES: dict[str, Any] = {
    "task": "language_modeling",
    "data": {
        "train": {"corpus": "tales-en", "size": 400},
        "validation": {"corpus": "tales-en", "size": 20},
        "test": {"corpus": "tales-en", "size": 40},
    },
    "tokenizer": {"kind": "word"},
    "model": {"kind": "ngram"},
    "training": {"steps": 20, "batch_tokens": 2048, "validate_every": 10, "device": "cpu"},
}


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    folder = tmp_path_factory.mktemp("bag")
    words = {"good": ("superb", "lovely", "fine"), "bad": ("dull", "awful", "poor")}
    data = {}
    for place, part in enumerate(("train", "validation", "test")):
        rows = [
            f"the film number {number} was {words[label][number // 3 % 3]}\t{label}\n"
            for number in range(place, 180, 3)
            for label in words
        ]
        file = write(folder / f"{part}.tsv", "text\tlabel\n" + "".join(rows))
        data[part] = {"file": str(file), "text": "text", "label": "label"}
    recipe = write(folder / "r.yaml", json.dumps({**REVIEWS, "data": data}))
    succeed("train", recipe, "--out", folder / "run")
    return folder / "run"


def test_a_bag_of_words_is_trained_measured_and_explained(bag: Path) -> None:
    assert succeed("evaluate", bag, "--json").json["accuracy"] == 1
    [found] = succeed("predict", bag, "a lovely film", "--json").jsons
    assert found["output"] == "good"
    explained = succeed("explain", bag, "the lovely film was long", "--json").json
    weights = explained["word_weights"]
    best = max(zip(weights["words"], weights["weights"], strict=True), key=lambda pair: pair[1][1])
    assert weights["classes"] == ["bad", "good"]
    assert best[0] == "▁lovely"
    assert "▁the" not in weights["words"], "it stands in every text"
    logits = [
        sum(x * row[y] for x, row in zip(weights["x"], weights["weights"], strict=True))
        + weights["bias"][y]
        for y in (0, 1)
    ]
    p = 1 / (1 + 2.718281828 ** (logits[0] - logits[1]))
    assert explained["probabilities"]["good"] == pytest.approx(p, abs=1e-3)
    assert "Weights of the words" in succeed("explain", bag, "a lovely film").out


def test_what_a_bag_of_words_cannot_do(bag: Path) -> None:
    assert "has no vectors of a single text" in str(fail("vectors", bag, "film", "--word", "film"))
    recipe = bag / "recipe.yaml"
    for override, sentence in (
        ("head.pooling=max", "has one vector for a text"),
        ("head.bilstm=8", "has no vectors of tokens"),
    ):
        assert sentence in str(fail("check", recipe, override))


@pytest.fixture(scope="module")
def ngrams(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    folder = tmp_path_factory.mktemp("ngrams")
    recipe = write(folder / "r.yaml", json.dumps(TALES))
    for name in ("kneser_ney", "add_k"):
        succeed("train", recipe, f"model.smoothing={name}", "--out", folder / name)
    return folder


def test_n_grams_are_trained_measured_and_compared(ngrams: Path) -> None:
    """Kneser-Ney is better than add-k, and certainly so."""
    runs = [ngrams / "kneser_ney", ngrams / "add_k"]
    better, worse = (succeed("evaluate", run, "--json").json["perplexity"] for run in runs)
    assert better < 0.9 * worse
    assert better < 20, "of 300 words"
    assert "a significant difference" in succeed("compare", *runs).out


def test_n_grams_write_and_resume(ngrams: Path) -> None:
    run = ngrams / "kneser_ney"
    sample = ["--set", "search.sample=true", "--set", "search.seed=3"]
    first, again = (succeed("predict", run, "The fox", *sample, "--json").json for _ in range(2))
    assert first["output"] == again["output"] != "The fox"
    greedy = succeed("predict", run, "The fox", "--beam", "1", "--json").json
    assert greedy["output"].startswith("The fox")
    written = succeed("explain", run, "The fox was", "--json").json
    assert [step["token"] for step in written["steps"]][:2] == ["▁The", "▁fox"]
    succeed("train", run / "recipe.yaml", "training.steps=30", "--out", run, "--resume")
    assert (run / "last").read_text().strip() == "step-00000030"
