"""An imported run is a run like any other: it reads tables, is measured, explained and trained
further; and a run that is exported and imported again answers as before."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import regard
from command_line import fail, succeed, write
from exchange_cases import TEXTS, TRAINING, answers, save_bert, save_marian, there_and_back
from regard.runs import Run
from regard.runs.folder import locked

transformers = pytest.importorskip("transformers")

CHOICES: list[dict[str, Any]] = [
    {"text": "The animal did not", "choices": ["cross the street", "tired", "because"], "label": 0},
    {"text": "it was too", "choices": ["street", "tired", "2024"], "label": 1},
]
PAIRS = [("the animal", "an animal"), ("the street", "it was tired"), ("the dog", "a dog")]
YES_NO = {0: "no", 1: "yes"}


def imported(folder: Path, architecture: str, **changes: Any) -> Run:
    save_bert(folder / "theirs", architecture, **changes)
    return regard.import_run(folder / "theirs", out=folder / "run")


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def measured(run: Run, *files: Path, predictions: Path | None = None) -> dict[str, Any]:
    options = [option for file in files for option in ("--file", file)]
    options += ["--predictions", predictions] if predictions else []
    result: dict[str, Any] = succeed("evaluate", run.folder, *options, "--json").json
    return result


@pytest.fixture(scope="module")
def chooser(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return imported(tmp_path_factory.mktemp("chooser"), "BertForMultipleChoice")


def test_choices(chooser: Run, tmp_path: Path) -> None:
    """A list in .jsonl, and columns of other tables, are read alike."""
    file = lines(tmp_path / "a.jsonl", CHOICES)
    results = succeed("predict", chooser.folder, "--file", file, "--json").jsons
    for row, result in zip(CHOICES, results, strict=True):
        assert result["choice"] == row["choices"][int(result["output"])]
        [typed] = answers(chooser, "\t".join([row["text"], *row["choices"]]))
        assert typed["probabilities"] == pytest.approx(result["probabilities"])
    right = [
        result["output"] == str(row["label"]) for row, result in zip(CHOICES, results, strict=True)
    ]
    assert measured(chooser, file)["accuracy"] == sum(right) / 2
    assert (
        "street"
        in succeed(
            "explain", chooser.folder, "it was too\tthe street\tso tired", "--view", "occlusion"
        ).out
    )
    header = ["id", "text", *(f"choice{number}" for number in range(3)), "label"]
    rows = [
        [str(n), row["text"], *row["choices"], str(row["label"])] for n, row in enumerate(CHOICES)
    ]
    table = write(tmp_path / "a.csv", "".join(",".join(line) + "\n" for line in [header, *rows]))
    assert succeed("predict", chooser.folder, "--file", table, "--json").jsons == results
    assert measured(chooser, table) | {"files": 0} == measured(chooser, file) | {"files": 0}


def test_rows_with_other_choices(chooser: Run, tmp_path: Path) -> None:
    """Each row may have its own number of choices in predict; where that cannot be measured, it is
    refused."""
    rows = [
        {"text": "it was too", "choices": ["street", "tired", "2024"][:count], "label": 0}
        for count in (2, 3, 1)
    ]
    file = lines(tmp_path / "a.jsonl", rows[:2])
    results = succeed("predict", chooser.folder, "--file", file, "--json").jsons
    assert [len(result["probabilities"]) for result in results] == [2, 3]
    [message] = fail("evaluate", chooser.folder, "--file", file)
    assert (
        message
        == f"{file}:2: there are 3 items in 'choices', of which 2 would be read (all rows have as "
        "many)"
    )
    assert (
        "there is no column 'choices.1'" in fail("predict", chooser.folder, json.dumps(rows[2]))[0]
    )


@pytest.mark.parametrize(
    ("architecture", "content", "missing"),
    [
        ("BertForMultipleChoice", "question,a,b,label\nq,x,y,0\n", "text"),
        ("BertForMultipleChoice", "text,choice1,choice2,label\nq,x,y,0\n", "choice0"),
        ("BertForMultipleChoice", "text,choice0,label\nq,x,0\n", "choice1"),
        (
            "BertForSequenceClassification",
            "sentence1,sentence2,gold\nthe animal,an animal,yes\n",
            "text",
        ),
    ],
)
def test_other_columns(tmp_path: Path, architecture: str, content: str, missing: str) -> None:
    run = imported(tmp_path, architecture, id2label=YES_NO)
    file = write(tmp_path / "a.csv", content)
    names = content.splitlines()[0].replace(",", ", ")
    for verb in ("evaluate", "predict"):
        [message] = fail(verb, run.folder, "--file", file)
        assert message == f"{file}:1: there is no column '{missing}' (the columns are {names})"
    if architecture == "BertForMultipleChoice":
        message = fail("evaluate", run.folder, "--file", file, "--file", file)[0]
        assert message.startswith("--file: 2 files are too many")


def test_pairs_and_single_texts(tmp_path: Path) -> None:
    """A tab within a text of a table makes no pair; a typed one does."""
    run = imported(tmp_path, "BertForSequenceClassification", id2label=YES_NO)
    row, written = {"text": "the animal\tdid not cross", "label": "no"}, tmp_path / "written.jsonl"
    file = lines(tmp_path / "a.jsonl", [row])
    measured(run, file, predictions=written)
    expected = pytest.approx(
        json.loads(written.read_text(encoding="utf-8"))["probabilities"], abs=1e-6
    )
    for how in (["--file", file], [json.dumps(row)]):
        assert succeed("predict", run.folder, *how, "--json").json["probabilities"] == expected
    assert answers(run, row["text"])[0]["probabilities"] != expected
    for text in ("", " "):
        assert fail("predict", run.folder, json.dumps({"text": text}))[0].startswith(
            "input 1: the text is empty"
        )
    pair = write(tmp_path / "b.jsonl", '{"first": "the animal", "second": "a dog", "gold": "no"}\n')
    [message] = fail("evaluate", run.folder, "--file", pair)
    assert message.startswith(
        f"{pair}:1: there is no column 'label' (the columns are first, second, gold"
    )
    parts = {"first": "the animal", "second": "a dog", "label": "no"}
    assert (
        measured(run, *(write(tmp_path / name, text + "\n") for name, text in parts.items()))[
            "examples"
        ]
        == 1
    )


def test_a_regressor_of_pairs(tmp_path: Path) -> None:
    run = imported(tmp_path, "BertForSequenceClassification", id2label={0: "score"})
    rows = [
        {"first": first, "second": second, "label": float(n)}
        for n, (first, second) in enumerate(PAIRS)
    ]
    table = "first,second,label\n" + "".join(
        f"{row['first']},{row['second']},{row['label']}\n" for row in rows
    )
    expected = [answer["output"] for answer in answers(run, *map("\t".join, PAIRS))]
    for file in (lines(tmp_path / "a.jsonl", rows), write(tmp_path / "a.csv", table)):
        assert measured(run, file)["examples"] == 3
        results = succeed("predict", run.folder, "--file", file, "--json").jsons
        assert [result["output"] for result in results] == pytest.approx(expected, abs=1e-6)
    assert (
        measured(run, write(tmp_path / "b.csv", "label,text\n1,the animal\n2,the street\n"))[
            "examples"
        ]
        == 2
    )


def test_a_tagger_of_parts_of_speech(tmp_path: Path) -> None:
    """Its labels show that tags mark no entities."""
    run = imported(tmp_path, "BertForTokenClassification", id2label={0: "NOUN", 1: "VERB", 2: "O"})
    file = write(tmp_path / "a.conll", "the O\nanimal NOUN\ncross VERB\n\nstreet NOUN\n")
    for one in (run, there_and_back(run, tmp_path)):
        result = measured(one, file)
        assert (result["sentences"], "f1" in result) == (2, False)
    [message] = fail(
        "evaluate", run.folder, "--file", write(tmp_path / "b.conll", "Anna B-PER\nleft O\n")
    )
    assert "the tag 'B-PER' of 'Anna' is not in the training sentences" in message
    assert message.endswith("(there are NOUN, O, VERB)")


def test_a_tagger_of_another_scheme(tmp_path: Path) -> None:
    labels = ["O", "B-LOC", "I-LOC", "E-LOC", "S-LOC"]
    run = imported(tmp_path, "BertForTokenClassification", id2label=dict(enumerate(labels)))
    file = write(tmp_path / "a.conll", "New B-LOC\nYork I-LOC\nCity I-LOC\nin O\nMay B-LOC\n")
    measured(run, file, predictions=(written := tmp_path / "written"))
    expected = json.loads(written.read_text(encoding="utf-8"))["expected_tags"]
    assert expected == ["B-LOC", "I-LOC", "E-LOC", "O", "S-LOC"], (
        "the same entities, in the model's scheme"
    )


@pytest.mark.parametrize(
    ("datasets", "no_answer"), [("- rajpurkar/squad_v2", True), ("- squad", False), (None, None)]
)
def test_the_card_says_if_answers_may_lack(
    tmp_path: Path, datasets: str | None, no_answer: bool | None
) -> None:
    save_bert(tmp_path / "theirs", "BertForQuestionAnswering")
    if datasets is not None:
        write(
            tmp_path / "theirs" / "README.md",
            f"---\nlanguage: en\ndatasets:\n{datasets}\n---\n\n# A model\n",
        )
    printed = succeed("import", tmp_path / "theirs", "--out", tmp_path / "run").out
    assert ("import it with --set head.no_answer=true" in printed) is (no_answer is None)
    [answer] = answers(Run.open(tmp_path / "run"), f"Who was tired?\t{TEXTS[0]}")
    assert (answer["no_answer"] is not None) is bool(no_answer)


def test_what_the_folder_leaves_open_is_set(tmp_path: Path) -> None:
    save_bert(tmp_path / "theirs", "BertForQuestionAnswering")
    settings = "head.no_answer=true", "evaluation.threshold=-1000", "data.max_length=16"
    options = [f"--set={setting}" for setting in settings]
    assert (
        "note"
        not in succeed(
            "import", tmp_path / "theirs", "--out", tmp_path / "run", *options, "--json"
        ).json
    )
    assert answers(Run.open(tmp_path / "run"), f"Who was tired?\t{TEXTS[0]}")[0]["output"] == ""


def test_a_translator(tmp_path: Path) -> None:
    """It is scored, explained, diagnosed, and trained further: `training.init` alone gives model
    and tokenizer."""
    save_marian(tmp_path / "marian")
    run = regard.import_run(tmp_path / "marian", out=tmp_path / "run").folder
    pairs = write(tmp_path / "two.tsv", "source\ttarget\nThe dog\t나는\nThe fox\t학교에\n")
    scored = regard.score(run, "The dog", "나는")
    assert scored["score"] == pytest.approx(sum(scored["token_scores"]))
    assert regard.explain(run, "The dog", target="나는").to_json()["target"] == ["▁나는", "</s>"]
    assert succeed("diagnose", run, "--file", pairs, "--no-sweep", "--json").json["sentences"] == 2
    rows = (f"The quick dog {n}\t나는 학교에 {n}\n" for n in range(30))
    file = write(tmp_path / "pairs.tsv", "".join(["source\ttarget\n", *rows]))
    data = {
        "train": {"file": str(file), "source": "source", "target": "target"},
        "validation": {"split": 0.2},
    }
    training = TRAINING | {"init": str(run), "steps": 20, "learning_rate": 0.01}
    recipe = {"task": "translation", "data": data, "training": training}
    tuned = regard.train(recipe, out=tmp_path / "tuned", quiet=True)
    before, after = (regard.evaluate(one, files=[str(file)])["loss"] for one in (run, tuned))
    assert after < before - 1
    assert tuned.tokenizers.fingerprint == Run.open(run).tokenizers.fingerprint


def test_what_a_killed_import_left_goes_with_the_next_one(tmp_path: Path) -> None:
    save_bert(tmp_path / "theirs", "BertForMaskedLM")
    regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    names = [f".run.{digit * 32}.partial" for digit in "012"]
    for name in (names[0], names[1], ".run.mine.partial"):
        shutil.copytree(tmp_path / "run", tmp_path / name)
    (tmp_path / names[2]).mkdir()
    write(tmp_path / names[2] / "recipe.yaml", "mine")
    shutil.rmtree(tmp_path / "run")
    with locked(tmp_path / names[1]):
        regard.import_run(tmp_path / "theirs", out=tmp_path / "run")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"theirs", "run", names[1], names[2], ".run.mine.partial"}, (
        "one is locked, two may be the user's"
    )
