"""`evaluate --baseline`, and the linear model beside a network."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import regard
from command_line import refusal, succeed, write
from regard.errors import ConfigError
from regard.runs import Run
from regard.tasks import baseline

Tree = dict[str, Any]
RANDOM = np.random.default_rng(0)
LETTERS = np.array([*"abcdefghij"])


def text() -> str:
    return " ".join("".join(RANDOM.choice(LETTERS, 4)) for _ in range(4))


def recipe(folder: Path, task: str, rows: list[tuple[str, ...]], **sections: Tree) -> Tree:
    names = ["text", "label"] if len(rows[0]) == 2 else ["first", "second", "label"]
    file = write(folder / "t.tsv", "".join("\t".join(row) + "\n" for row in (names, *rows)))
    return {
        "task": task,
        "data": {
            "train": {"file": str(file), **{name: name for name in names}},
            "validation": {"split": 0.1},
            "test": {"split": 0.2},
            "long": "head",
        },
        "tokenizer": {"kind": "character"},
        "model": {"kind": "cnn", "preset": "tiny", "widths": [1, 2]},
        "training": {
            "steps": 2,
            "validate_every": 2,
            "batch_tokens": 256,
            "device": "cpu",
            "learning_rate": 0.0001,
        },
        **sections,
    }


TEXTS = [text() for _ in range(200)]
CLASSES = [
    (f"{one} {word}", word[1:]) for one in TEXTS for word in RANDOM.choice(["xyes", "yno"], 1)
]
PAIRS = [(one, one if RANDOM.random() < 0.5 else text()) for one in TEXTS]
SIMILAR = [(one, other, "same" if one == other else "other") for one, other in PAIRS]
NUMBERS = [(one, other, f"{5 if one == other else RANDOM.random():.2f}") for one, other in PAIRS]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("classes")
    return regard.train(recipe(folder, "classification", CLASSES), out=folder / "run", quiet=True)


def test_the_baseline_stands_beside_the_result(run: Run) -> None:
    shown = succeed("evaluate", run.folder, "--baseline").out
    assert "metric" in shown
    assert "baseline" in shown
    assert "logistic regression" in shown
    found = succeed("evaluate", run.folder, "--baseline", "--json").json
    assert found["baseline"]["accuracy"] > found["accuracy"] + 0.1, (
        "two steps teach a network nothing"
    )
    assert [*found["baseline"]] == ["model", "accuracy", "f1_macro", "f1_micro", "matthews"]
    assert regard.evaluate(run, baseline=True)["baseline"] == found["baseline"]
    assert "baseline" not in succeed("evaluate", run.folder, "--json").json


def test_the_baseline_is_what_scikit_learn_finds_on_the_same_rows(run: Run) -> None:
    data = run.task.prepare(run.recipe, run.folder, run.tokenizers)
    train, test = (
        ([*part.texts["text"]], [*part.texts["label"]]) for part in (data.train, data.test)
    )
    accuracies = []
    for counted in baseline.NGRAM_OPTIONS.values():
        vectorizer = TfidfVectorizer(**counted)
        model = LogisticRegression(C=5, max_iter=1000).fit(
            vectorizer.fit_transform(train[0]), train[1]
        )
        accuracies.append(
            np.mean(model.predict(vectorizer.transform(test[0])) == np.array(test[1]))
        )
    assert regard.evaluate(run, baseline=True)["baseline"]["accuracy"] == pytest.approx(
        max(accuracies)
    )


def test_two_texts_are_compared_by_difference_product_and_cosine() -> None:
    first, second = ["ab cd", "ef gh"], ["ab xy", "ef gh"]
    train_XF, _ = baseline.text_features("characters", [first, second], [first, second])
    vectorizer = TfidfVectorizer(**baseline.NGRAM_OPTIONS["characters"]).fit([*first, *second])
    u, v = (vectorizer.transform(texts).toarray() for texts in (first, second))
    expected = np.hstack([abs(u - v), u * v, (u * v).sum(1, keepdims=True)])
    assert sparse.issparse(train_XF)
    assert np.allclose(train_XF.toarray(), expected)
    assert expected[1, -1] == pytest.approx(1)
    assert expected[0, -1] < 0.8


def test_the_windows_of_a_word() -> None:
    [first, _] = baseline.word_windows(["Kim", "runs"])
    assert {
        "word Kim",
        "0 kim",
        "1 runs",
        "-1 ",
        "ends im",
        "begins k",
        "shape:0:Xx",
        "0 kim runs",
    } <= {*first}
    assert baseline.shape("Apollo-11") == "Xx-d"
    assert not any(
        feature.startswith(("begins", "ends"))
        for feature in next(iter(baseline.word_windows(["가"])))
    )


def test_what_there_is_no_baseline_for(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "dates"
    sizes = [
        "data.train.size=50",
        "data.validation.size=10",
        "data.test.size=10",
        "training.steps=1",
    ]
    regard.train("dates", [*sizes, "training.device=cpu"], out=out, quiet=True)
    found = succeed("evaluate", out, "--baseline", "--json").json
    assert "baseline" not in found
    assert found["note"] == "there is no classical baseline for translation"
    monkeypatch.setitem(sys.modules, "sklearn.feature_extraction.text", None)
    assert "pip install 'regard[baseline]'" in refusal("evaluate", run.folder, "--baseline")


@pytest.mark.parametrize(
    ("task", "rows", "head"),
    [
        ("classification", CLASSES, {"linear": 4096}),
        ("classification", SIMILAR, {"linear": 4096, "apart": True}),
        ("regression", NUMBERS, {"linear": 4096, "apart": True}),
    ],
)
def test_a_linear_model_beside_a_network(
    tmp_path: Path, task: str, rows: list[tuple[str, ...]], head: Tree
) -> None:
    made = recipe(tmp_path, task, rows, head=head)
    trained = regard.train(made, out=tmp_path / "run", quiet=True)
    found = regard.evaluate(trained, baseline=True)
    metric = "accuracy" if task == "classification" else "pearson"
    assert found[metric] > 0.8, "two steps teach a network nothing"
    assert found[metric] > found["baseline"][metric] - 0.1
    assert float(trained.load_model().share) < 0.5
    texts = rows[0][:-1]
    alone, beside = (
        regard.predict(trained, [texts])[0],
        regard.predict(trained, [texts, *(row[:-1] for row in rows[:9])])[0],
    )
    assert alone.output == pytest.approx(beside.output, abs=1e-5), (
        "longer texts beside it make no difference"
    )


def test_texts_one_after_the_other_have_no_linear_model(tmp_path: Path) -> None:
    made = recipe(tmp_path, "classification", SIMILAR, head={"linear": 16})
    with pytest.raises(ConfigError, match="the linear model reads one text, or two of them apart"):
        regard.train(made, out=tmp_path / "run", quiet=True)
