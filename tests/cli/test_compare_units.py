"""`compare` for language models, masked models and classifiers: sums by hand, tests against enumeration and SciPy."""

from __future__ import annotations

import copy
import csv
import html
import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, chi2, pearsonr
from sklearn.metrics import f1_score

import regard as api
from command_line import fail, succeed, write
from regard.runs import Run
from regard.runs.settings import examples_of
from regard.tasks.by_document import document_losses, document_masks
from regard.training.train import train
from regard.views.significance import McNemar, paired_tests_of_sums
from regard.views.unit_systems import correlation, f1_of, labelled_counts, language_counts

Tree = dict[str, Any]
BASE: Tree = {
    "task": "language_modeling",
    "data": {
        "train": {"corpus": "tales-en", "size": 80}, "validation": {"corpus": "tales-en", "size": 8}, "max_length": 24,
    },
    "tokenizer": {"kind": "bpe", "vocabulary": 200},
    "training": {"steps": 12, "batch_tokens": 512, "device": "cpu", "learning_rate": 0.01, "decode": 0},
}  # fmt: skip
SIZES: Tree = {"width": 16, "heads": 2, "feed_forward": 32, "layers": 1, "max_positions": 64}
MODELS: dict[str, Tree] = {
    "gpt": {"kind": "gpt", **SIZES},
    "lstm": {"kind": "lstm_lm", "embedding": 16, "hidden": 16, "layers": 2},
    "elmo": {"kind": "elmo", "width": 16, "hidden": 16, "filters": 64, "layers": 1},
    "bert": {"kind": "bert", **SIZES},
    "bert-2": {"kind": "bert", **SIZES, "layers": 2},
}
REVIEWS = "label\ttext\n" + "".join(
    f"{word}\tIt was {word}, number {n}.\n" for word in ("good", "bad") for n in range(16)
)


def recipe(name: str) -> Tree:
    tree = copy.deepcopy(BASE) | {"model": MODELS[name]}
    if name == "lstm":
        tree["data"]["blocks"], tree["tokenizer"]["vocabulary"] = "stream", 150
    if name.startswith("bert"):
        tree["task"], tree["tokenizer"]["kind"] = "masked_language_modeling", "wordpiece"
    return tree


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("units")
    for name in MODELS:
        train(recipe(name), out=folder / name, quiet=True)
    write(folder / "reviews.tsv", REVIEWS)
    corpus = {"file": str(folder / "reviews.tsv"), "text": "text", "label": "label"}
    for name, steps in (("taught", 60), ("fresh", 1)):
        tree = copy.deepcopy(BASE) | {"task": "classification", "model": {"kind": "cnn", "embedding": 16, "maps": 8}}
        tree["data"] = {"train": corpus, "validation": corpus, "max_length": 24}
        tree["training"] |= {"steps": steps, "learning_rate": 0.01}
        train(tree, out=folder / name, quiet=True)
    return {name: folder / name for name in (*MODELS, "taught", "fresh")}


# ----------------------------------------------------------------------------------------------------- what is counted


@pytest.mark.parametrize("name", ["gpt", "lstm", "elmo"])
def test_documents_sum_to_what_evaluate_says(runs: dict[str, Path], name: str) -> None:
    run = Run.open(runs[name])
    examples, model = examples_of(run, None), run.load_model()
    losses = document_losses(run.task.objective(model).eval(), examples)
    assert losses.shape == (8,)
    assert losses.min() > 0
    evaluated = api.evaluate(run)
    assert losses.sum() == pytest.approx(evaluated["loss"] * evaluated["tokens"], rel=1e-5)
    counts = language_counts(tuple(examples.text.texts()), losses)
    sums = counts.rows.sum(0)
    for metric in ("word_perplexity", "bits_per_character"):
        assert counts.metrics[metric](sums) == pytest.approx(evaluated[metric], rel=1e-5)


def test_a_document_alone_costs_what_it_costs_among_others(runs: dict[str, Path], tmp_path: Path) -> None:
    run = Run.open(runs["gpt"])
    examples = examples_of(run, None)
    losses = document_losses(run.task.objective(run.load_model()).eval(), examples)
    for number in (0, 5):
        write(tmp_path / "one.txt", [*examples.text.texts()][number])
        alone = api.evaluate(run, files=[str(tmp_path / "one.txt")])
        assert losses[number] == pytest.approx(alone["loss"] * alone["tokens"], rel=1e-5)


def test_masked_tokens_sum_to_what_evaluate_says(runs: dict[str, Path]) -> None:
    run = Run.open(runs["bert"])
    loss, found, masked = document_masks(run.load_model(), examples_of(run, None)).sum(0)
    evaluated = api.evaluate(run)
    assert loss / masked == pytest.approx(evaluated["loss"], rel=1e-5)
    assert found / masked == pytest.approx(evaluated["masked_accuracy"])


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_f1_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    true, found = zip(*pairs, strict=True)
    confusion = np.zeros((4, 4))
    np.add.at(confusion, (true, found), 1)
    assert f1_of(confusion) == pytest.approx(f1_score(true, found, average="macro", zero_division=0))


def test_correlation_is_that_of_scipy() -> None:
    x, y = np.random.default_rng(1).normal(size=(2, 40))
    rows = np.stack([np.ones(40), x, y, x**2, y**2, x * y], axis=1)
    assert correlation(rows.sum(0)) == pytest.approx(pearsonr(x, y).statistic)
    assert correlation(np.array([3.0, 3, 6, 3, 14, 6])) == 0


def test_what_is_counted_of_labels_answers_and_numbers() -> None:
    labels = labelled_counts(
        [
            {"input": "a", "label": "x", "output": "x", "right": True},
            {"input": "b", "label": "x", "output": "y", "right": False},
        ]
    )
    assert labels.metrics["accuracy"](labels.rows.sum(0)) == 0.5
    assert labels.metrics["f1_macro"](labels.rows.sum(0)) == pytest.approx(1 / 3)  # 2/3 of x, 0 of y
    answers = labelled_counts(
        [
            {"input": "q", "output": "z", "right": True, "f1": 1.0},
            {"input": "r", "output": "", "right": False, "f1": 0.5},
        ]
    )
    assert {name: float(of(answers.rows.sum(0))) for name, of in answers.metrics.items()} == {
        "f1": 0.75,
        "exact_match": 0.5,
    }
    tags = labelled_counts(
        [
            {"input": "a b", "output": "", "right": False, "tags": ["B-X", "O"], "expected_tags": ["B-X", "B-Y"]},
            {"input": "c", "output": "", "right": True, "tags": ["O"], "expected_tags": ["O"]},
        ]
    )
    assert tags.metrics["f1"](tags.rows.sum(0)) == pytest.approx(2 / 3)  # precision 1, recall 1/2
    assert tags.metrics["accuracy"](tags.rows.sum(0)) == pytest.approx(2 / 3)
    assert tags.right is not None
    assert tags.right.tolist() == [0, 1]
    numbers = labelled_counts([{"input": "t", "label": n, "output": 2.0 * n + 1, "error": 0.0} for n in range(4)])
    assert numbers.metrics["pearson"](numbers.rows.sum(0)) == pytest.approx(1)


# ----------------------------------------------------------------------------------------------------------- the tests


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_that_of_scipy(b: int, c: int) -> None:
    found = McNemar(b, c)
    if b + c:
        assert found.p_exact == pytest.approx(binomtest(b, b + c).pvalue)
        assert found.chi_square == pytest.approx(max(0, abs(b - c) - 1) ** 2 / (b + c))
    assert found.p_chi_square == pytest.approx(chi2.sf(found.chi_square, 1))


def test_mcnemar_by_hand() -> None:
    """2 (C(8, 0) + C(8, 1)) / 2^8, and (|1 - 7| - 1)^2 / 8."""
    assert McNemar(1, 7).p_exact == 18 / 256
    assert McNemar(1, 7).chi_square == 25 / 8
    assert McNemar(0, 0).p_exact == McNemar(0, 0).p_chi_square == 1


def share(sums: Any) -> Any:
    return sums[..., 0] / sums[..., 1]


def test_randomisation_against_all_swaps_there_are() -> None:
    generator = np.random.default_rng(3)
    one, other = (np.stack([generator.normal(size=10) + shift, np.ones(10)], axis=1) for shift in (0.0, 0.6))
    moved = (other - one)[:, 0]
    found = abs(moved.mean())
    swaps = [abs(np.mean(moved * signs)) >= found - 1e-12 for signs in product((1, -1), repeat=10)]
    test = paired_tests_of_sums({"mean": share}, {"one": one, "other": other}, "one")[1]
    assert test.difference == pytest.approx(moved.mean())
    assert test.p_randomisation == pytest.approx(np.mean(swaps), abs=0.015)


def test_bootstrap_against_the_normal_distribution() -> None:
    """With many units the difference of two means is normal, and so its p-value and its interval are known."""
    generator = np.random.default_rng(5)
    one = np.stack([generator.normal(size=800), np.ones(800)], axis=1)
    other = one + np.stack([generator.normal(0.06, 1, size=800), np.zeros(800)], axis=1)
    test = paired_tests_of_sums({"mean": share}, {"one": one, "other": other}, "one")[1]
    moved = (other - one)[:, 0]
    z = abs(moved.mean()) / (moved.std() / math.sqrt(800))
    assert test.p_bootstrap == pytest.approx(math.erfc(z / math.sqrt(2)), abs=0.03)
    assert test.interval == pytest.approx(1.96 * other[:, 0].std() / math.sqrt(800), rel=0.08)


def test_equal_systems_are_never_different() -> None:
    rows = np.stack([np.arange(9.0), np.ones(9)], axis=1)
    test = paired_tests_of_sums({"mean": share}, {"one": rows, "two": rows.copy()}, "one")[1]
    assert (test.difference, test.p_bootstrap, test.p_randomisation, test.significant) == (0, 1, 1, False)


def test_nothing_can_be_drawn_of_one_unit() -> None:
    """Every resample of one document is that document, so that any difference would look certain."""
    test = paired_tests_of_sums({"mean": share}, {"one": np.array([[1.0, 1.0]]), "two": np.array([[9.0, 1.0]])}, "one")[
        1
    ]
    assert (test.p_bootstrap, test.p_randomisation, test.significant) == (None, 1, False)


def test_a_score_is_that_of_its_system_however_far_from_the_baseline() -> None:
    """The baseline's score and the difference would lose its digits."""
    rows = {"one": np.array([[1e17, 1.0]] * 3), "two": np.array([[0.25, 1.0]] * 3)}
    assert paired_tests_of_sums({"mean": share}, rows, "one")[1].score == 0.25


def test_one_document_is_compared_in_words(runs: dict[str, Path], tmp_path: Path) -> None:
    file, page = write(tmp_path / "one.txt", "The old man slept in the garden.\n"), tmp_path / "report.html"
    out = succeed("compare", runs["gpt"], runs["lstm"], "--file", file, "--out", page).out
    assert out.startswith("Language modeling, 1 document of ")
    assert "which may be chance (p unknown by bootstrap, 1.000 by randomisation)" in " ".join(out.split())
    assert "1 document of" in page.read_text(encoding="utf-8")


# --------------------------------------------------------------------------------------------------------- the command


def test_language_models_with_other_tokenizers_are_compared(runs: dict[str, Path], tmp_path: Path) -> None:
    page, tables = tmp_path / "report.html", tmp_path / "tables"
    out = succeed("compare", runs["gpt"], runs["lstm"], "--out", page, "--csv", tables).out
    assert "8 documents" in out
    assert "perplexity a word" in out
    found = succeed("compare", runs["gpt"], runs["lstm"], "--json").json
    assert found["metrics"] == ["word_perplexity", "bits_per_character"]
    assert found["documents"] == 8
    for row in found["systems"]:
        assert row["word_perplexity"] == pytest.approx(api.evaluate(runs[row["system"]])["word_perplexity"], rel=1e-5)
    assert len(found["differ_most"]) == 16
    written = page.read_text(encoding="utf-8")
    assert "bits a character" in written
    assert "tokenizer.vocabulary" in written
    assert "<script src" not in written
    assert "Losses are per token" in written
    assert "greedy search" not in written, "nothing is written to be measured"
    rows = list(csv.DictReader((tables / "significance.csv").read_text(encoding="utf-8-sig").splitlines()))
    assert [(row["metric"], row["system"]) for row in rows][:2] == [
        ("word_perplexity", "gpt"),
        ("word_perplexity", "lstm"),
    ]


def test_a_huge_perplexity_is_written_shortly() -> None:
    """Of a word and the end of its document: e^(20 / 2) and e^(40 / 2)."""
    assert language_counts(("one", "two"), np.array([20.0, 40.0])).outputs == (
        "perplexity 22,026.5",
        "perplexity 4.85e+08",
    )


def test_lower_is_better_for_perplexity(runs: dict[str, Path]) -> None:
    found = api.compare([runs["gpt"], runs["lstm"]])
    assert found.higher_is_better == {"word_perplexity": False, "bits_per_character": False}


def test_masked_models_are_compared_by_what_they_find(runs: dict[str, Path]) -> None:
    found = succeed("compare", runs["bert"], runs["bert-2"], "--baseline", "bert-2", "--json").json
    assert (found["baseline"], found["metrics"]) == ("bert-2", ["masked_accuracy", "loss"])
    for row in found["systems"]:
        assert row["masked_accuracy"] == pytest.approx(api.evaluate(runs[row["system"]])["masked_accuracy"])


def test_classifiers_are_compared_by_mcnemar_and_bootstrap(runs: dict[str, Path], tmp_path: Path) -> None:
    result = succeed("compare", runs["fresh"], runs["taught"], "--out", tmp_path / "report.html")
    assert "McNemar p" in result.out
    written = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Right and wrong" in written
    assert "per token" not in written
    said = "of the validation set (the run's recipe has no test set)"
    assert said in result.out
    assert said in html.unescape((tmp_path / "report.html").read_text(encoding="utf-8"))
    found = succeed("compare", runs["fresh"], runs["taught"], "--json").json
    assert (found["split"], found["note"]) == ("validation", "the run's recipe has no test set")
    scores = {row["system"]: row for row in found["systems"]}
    assert scores["taught"]["accuracy"] == 1
    assert scores["taught"]["f1_macro"] == 1
    for name in ("fresh", "taught"):
        evaluated = api.evaluate(runs[name])
        assert scores[name]["f1_macro"] == pytest.approx(evaluated["f1_macro"])
    wrong = round(32 * (1 - scores["fresh"]["accuracy"]))
    [test] = found["mcnemar"]
    assert (test["only_baseline_right"], test["only_system_right"]) == (0, wrong)
    assert test["p_exact"] == pytest.approx(2 / 2**wrong)
    significant = {(row["system"], row["metric"]): row["significant"] for row in found["significance"]}
    assert significant["taught", "accuracy"]


def test_what_cannot_be_compared_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    [message] = fail("compare", runs["gpt"], runs["bert"])
    assert "the run's task is masked_language_modeling" in message
    [message] = fail("compare", runs["gpt"], runs["lstm"], "--beam", "2")
    assert message.startswith("--beam: runs of the task language_modeling are compared by what they predict")
    [message] = fail("compare", runs["gpt"], "--hypotheses", f"other={write(tmp_path / 'o.txt', 'a')}")
    assert message.startswith("--hypotheses: runs of the task language_modeling")
    tree = recipe("gpt")
    tree["data"]["validation"] = {"corpus": "tales-en", "size": 5}
    train(tree, out=tmp_path / "other", quiet=True)
    [message] = fail("compare", runs["gpt"], tmp_path / "other")
    assert "its examples are not those of" in message
    assert "--file" in message
    write(tmp_path / "same.jsonl", "\n".join(json.dumps({"text": text}) for text in ("The fox ran.", "It rained.")))
    found = api.compare([runs["gpt"], tmp_path / "other"], files=[str(tmp_path / "same.jsonl")])
    assert found.to_json()["documents"] == 2
