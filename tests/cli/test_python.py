"""What a Python program can give and get: rows in memory, overrides as values, probabilities,
results that show themselves."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from command_line import succeed, write
from regard.errors import ConfigError, DataError, DecodeError
from regard.recipes.overrides import path_of

LABELS = {"good": "yes", "fine": "yes", "bad": "no", "poor": "no"}
ROWS = [
    {"text": f"a {word} film {number}", "label": label}
    for number in range(20)
    for word, label in LABELS.items()
]
CNN: dict[str, Any] = {
    "task": "classification",
    "data": {"train": {"corpus": "reviews-en"}, "validation": {"corpus": "reviews-en"}},
    "tokenizer": {"kind": "character"},
    "model": {"kind": "cnn", "preset": "tiny"},
    "training": {"steps": 4, "device": "cpu", "log_every": 2},
}
"""A recipe for a built-in corpus, whose splits must not be mixed with rows of a program."""


def as_pandas(rows: list[dict[str, Any]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(rows)


def as_dataset(rows: list[dict[str, Any]]) -> Any:
    """With labels as numbers that have names."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    )
    return datasets.Dataset.from_list(rows, features=features)


def as_columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize(
    "given", [list, as_pandas, as_dataset, as_columns, iter], ids=lambda way: way.__name__
)
def test_rows_in_memory_train_like_a_file(given: Callable[[Any], Any], tmp_path: Path) -> None:
    """The same weights as from a file with the same rows, whatever the table is."""
    lines = "".join(f"{row['text']}\t{row['label']}\n" for row in ROWS)
    file = {
        "file": str(write(tmp_path / "rows.tsv", f"text\tlabel\n{lines}")),
        "text": "text",
        "label": "label",
    }
    from_file = regard.train(CNN | {"data": {"train": file}}, out=tmp_path / "file", quiet=True)
    run = regard.train(CNN, data=given(ROWS), out=tmp_path / "rows", quiet=True)
    assert np.array_equal(
        run.predict_proba(["a good film"]), from_file.predict_proba(["a good film"])
    )
    assert run.evaluate()["examples"] == 8
    resumed = regard.train(
        CNN, data=given(ROWS), out=tmp_path / "rows", resume=True, quiet=True, steps=6
    )
    assert resumed.checkpoint("last").name == "step-00000006"
    assert succeed("evaluate", tmp_path / "rows", "--json").json["split"] == "validation"


def test_columns_have_the_names_of_the_recipe(tmp_path: Path) -> None:
    table = [{"review": row["text"], "stars": row["label"], "date": object()} for row in ROWS]
    names = {"data.train.text": "review", "data.train.label": "stars"}
    run = regard.train(
        CNN,
        names,
        data=table[:60],
        validation=table[60:],
        test=table[70:],
        out=tmp_path / "run",
        quiet=True,
    )
    corpora = [run.recipe.data.train, run.recipe.data.validation, run.recipe.data.test]
    assert [(corpus.text, corpus.label, corpus.corpus) for [corpus] in corpora] == [
        ("review", "stars", None)
    ] * 3
    assert run.evaluate()["examples"] == 10
    with pytest.raises(
        DataError, match=r"data: there is no column 'text' \(the columns are review, stars, date"
    ):
        regard.train(CNN, data=table, out=tmp_path / "none")


def test_splits_of_a_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    whole = datasets.DatasetDict(train=as_dataset(ROWS[:60]), test=as_dataset(ROWS[60:]))
    run = regard.train(CNN, data=whole, out=tmp_path / "run", quiet=True)
    assert (run.evaluate()["examples"], run.classes_) == (20, ["no", "yes"])
    assert run.recipe.data.validation.split == 0.1
    with pytest.raises(ConfigError, match="data: there is no split 'train'"):
        regard.train(CNN, data=datasets.DatasetDict(other=whole["test"]), out=tmp_path / "none")


@pytest.mark.parametrize(
    ("task", "model", "rows"),
    [
        (
            "translation",
            {"kind": "rnn", "preset": "tiny"},
            [{"source": f"a {n}", "target": f"b {n}"} for n in range(80)],
        ),
        (
            "tagging",
            {"kind": "cnn"},
            [{"tokens": ["Anna", f"w{n}"], "tags": ["B-PER", "O"]} for n in range(40)],
        ),
        (
            "question_answering",
            {"kind": "bilstm"},
            [
                {"context": f"Ben is {n}.", "question": "Who?", "answers": ["Ben"]}
                for n in range(40)
            ],
        ),
        (
            "language_modeling",
            {"kind": "lstm_lm", "preset": "tiny"},
            [f"one sentence, number {n}" for n in range(60)],
        ),
    ],
)
def test_rows_of_every_task(
    task: str, model: dict[str, Any], rows: list[Any], tmp_path: Path
) -> None:
    recipe = {
        "task": task,
        "data": {},
        "model": model,
        "training": {"steps": 1, "device": "cpu", "decode": 0},
    }
    recipe["tokenizer"] = {"kind": "character"}
    run = regard.train(recipe, data=rows, out=tmp_path / "run", quiet=True)
    assert run.checkpoint("last").name == "step-00000001"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"text": "a", "label": "b"}, {"text": 5, "label": "c"}],
            "data, row 2: the column 'text' holds 5, not a string",
        ),
        (
            [{"text": "a", "label": "b"}, {"text": None, "label": "c"}],
            "data, row 2: the text is empty",
        ),
        (
            [{"text": "a", "label": "b"}, {"text": float("nan"), "label": "c"}],
            "data, row 2: the text is empty",
        ),
        ([{"text": "a", "label": {1, 2}}], "data, row 1: the column 'label' holds a set: {1, 2}"),
        ([("a", "b")], "data, row 1: ('a', 'b') is not a row"),
        ([], "data: there are no rows"),
        (7, "data: 7 is not a table"),
        (
            {"text": ["a"], "label": ["b", "c"]},
            "data: the columns have different lengths: text 1, label 2",
        ),
    ],
)
def test_rows_that_cannot_be_read(rows: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as told:
        regard.train(CNN, data=rows, out=tmp_path / "run", quiet=True)
    assert str(told.value).startswith(message)
    assert str(regard.check(CNN, data=rows, quiet=True).problems[0]).startswith(message)
    assert not (tmp_path / "run").exists()


def test_overrides_as_a_list_a_dict_and_keywords() -> None:
    ways: list[Any] = [
        regard.check(CNN, ["training.steps=7", "data.validation={split: 0.5}"], quiet=True),
        regard.check(
            CNN, {"training.steps": np.int64(7), "data.validation": {"split": 0.5}}, quiet=True
        ),
        regard.check(CNN, quiet=True, steps=7, validation={"split": 0.5}, overrides=[]),
        regard.check(
            CNN,
            quiet=True,
            **{"training.steps": 7, "data.validation.split": 0.5, "data.validation.corpus": None},
        ),
    ]
    assert [way.training.get("steps") for way in ways[:2]] == [7, 7]
    assert ways[0].recipe == ways[1].recipe
    assert not ways[2].ok  # validation= is for rows


def test_a_keyword_is_the_field_that_only_one_section_has() -> None:
    assert path_of("steps", CNN) == "training.steps"
    assert path_of("vocabulary", CNN) == "tokenizer.vocabulary"
    assert path_of("widths", CNN) == "model.widths"
    assert path_of("model", CNN) == "model"
    assert path_of("search.beam", CNN) == "search.beam"
    with pytest.raises(
        ConfigError, match=r"seed: several sections have it: training\.seed, search\.seed"
    ):
        path_of("seed", CNN)
    with pytest.raises(
        ConfigError, match="stepz: there is no setting 'stepz' \\(did you mean 'steps'"
    ):
        path_of("stepz", CNN)
    with pytest.raises(ConfigError, match="hidden: there is no setting 'hidden'"):
        path_of("hidden", CNN)  # a CNN has none, a BiLSTM has
    assert str(regard.check(CNN, quiet=True, dropouts=0.1).problems[0]).startswith(
        "dropouts: there is no setting"
    )


def test_a_run_without_out_is_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    run = regard.train(CNN, data=ROWS, steps=1)
    assert (run.folder.parent, run.folder.name[:11]) == (tmp_path, "regard-run-")
    assert f"the run is in {run.folder}" in capsys.readouterr().err
    assert run.predict("a good film")[0].output in run.classes_  # type: ignore[attr-defined]
    with pytest.raises(ConfigError):
        regard.train(CNN, data=ROWS, steps=0)
    with pytest.raises(ConfigError, match="out: a training is resumed in the folder of its run"):
        regard.train(CNN, resume=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="out: several processes need the same folder"):
        regard.train(CNN, data=ROWS)
    assert [*tmp_path.glob("regard-*")] == [run.folder]


def test_check_proposes_what_train_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    write(tmp_path / "a.en", "".join(f"line {number} of it\n" for number in range(60)))
    write(tmp_path / "a.ko", "".join(f"그것의 {number}번째 줄\n" for number in range(60)))
    several, as_list = (
        regard.check("a.en", "a.ko", quiet=True),
        regard.check(["a.en", Path("a.ko")], quiet=True),
    )
    assert several.proposal is not None
    assert several.proposal == as_list.proposal
    assert several.recipe["data"]["train"][0]["source"] == str(tmp_path / "a.en")
    saved = regard.check("a.en", "a.ko", out="recipes/mine.yaml", quiet=True)
    recipes = [several, saved.proposal, "recipes/mine.yaml"]
    trained = [
        regard.train(recipe, quiet=True, out=f"runs/{n}", steps=1)
        for n, recipe in enumerate(recipes)
    ]
    assert (
        len({run.checkpoint("last").joinpath("model.safetensors").read_bytes() for run in trained})
        == 1
    )


def test_rows_and_their_columns_get_a_proposal() -> None:
    table = [
        {"review": row["text"], "stars": row["label"], "score": n / 7} for n, row in enumerate(ROWS)
    ]
    found = regard.check(as_pandas(table), quiet=True, text="review", label="stars")
    assert found.ok, found
    [corpus] = found.recipe["data"]["train"]
    assert (found.recipe["task"], corpus["text"], corpus["label"]) == (
        "classification",
        "review",
        "stars",
    )


def test_what_check_shows_in_python() -> None:
    found = regard.check(CNN, data=ROWS, quiet=True)
    assert repr(found) == "\n".join(found.sentences())
    assert "recipe" not in found.to_json()
    wrong = regard.check(CNN, {"model.widthz": 1}, quiet=True)
    assert repr(wrong) == "model.widthz: unknown key 'widthz' (did you mean 'widths'?)"
    assert wrong.recipe == {}
    with pytest.raises(ConfigError, match="unknown key 'widthz'"):
        regard.train(wrong)


def test_probabilities_are_those_of_predict(tiny_run: Path, tmp_path: Path) -> None:
    run = regard.train(CNN, data=ROWS, out=tmp_path / "run", quiet=True)
    texts = ["a good film", "bad", "a poor film 3"]
    found, loaded = run.predict_proba(texts), regard.load(tmp_path / "run")
    assert np.array_equal(found, loaded.predict_proba(texts))
    assert np.array_equal(found, regard.predict_proba(tmp_path / "run", texts))
    assert (found.shape, run.classes_, loaded.classes_) == ((3, 2), ["no", "yes"], ["no", "yes"])
    for row, prediction in zip(found, run.predict(texts), strict=True):
        assert dict(zip(run.classes_, row, strict=True)) == prediction.probabilities  # type: ignore[attr-defined]
    assert run.load_model() is run.load_model()  # it stays loaded
    assert {
        str(one.dtype) for one in regard.load(run, precision="bf16").load_model().parameters()
    } == {"torch.bfloat16"}
    assert {str(one.dtype) for one in run.load_model().parameters()} == {"torch.float32"}
    with pytest.raises(DecodeError, match="translation has no probabilities of classes"):
        regard.predict_proba(tiny_run, "a b")
