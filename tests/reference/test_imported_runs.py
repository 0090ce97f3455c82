"""An imported run is a run like any other: it reads tables, is measured, explained and trained further; and a run that
is exported and imported again answers as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from command_line import fail, succeed, write
from exchange_cases import TEXTS, answers, save_bert, save_marian, there_and_back, trained
from regard.runs import Run

transformers = pytest.importorskip("transformers")

CHOICES: list[dict[str, Any]] = [
    {"text": "The animal did not", "choices": ["cross the street", "tired", "because"], "label": 0},
    {"text": "it was too", "choices": ["street", "tired", "2024"], "label": 1},
]
PAIRS = [("the animal", "an animal"), ("the street", "it was tired"), ("the dog", "a dog")]
YES_NO = {0: "no", 1: "yes"}


def imported(folder: Path, architecture: str, **changes: Any) -> tuple[Any, Run]:
    theirs = save_bert(folder / "theirs", architecture, **changes)
    return theirs, regard.import_run(folder / "theirs", out=folder / "run")


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def measured(run: Run, *files: Path, told: Path | None = None) -> dict[str, Any]:
    options = [option for file in files for option in ("--file", file)]
    result: dict[str, Any] = succeed(
        "evaluate", run.folder, *options, *(["--predictions", told] if told else []), "--json"
    ).json
    return result


def test_a_classifier(tmp_path: Path) -> None:
    labels = ["bad", "good", "ugly"]
    theirs, run = imported(tmp_path, "BertForSequenceClassification", id2label=dict(enumerate(labels)))
    tokenizer = transformers.BertTokenizerFast.from_pretrained(tmp_path / "theirs")
    with torch.no_grad():
        expected = theirs(**tokenizer(TEXTS[0], return_tensors="pt")).logits.softmax(-1)[0].tolist()
    result = succeed("predict", run.folder, TEXTS[0], "--json").json
    assert result["probabilities"] == pytest.approx(dict(zip(labels, expected, strict=True)), abs=1e-5)
    assert measured(run, write(tmp_path / "a.tsv", f"{TEXTS[0]}\tgood\nthe street\tbad\n"))["examples"] == 2


# Multiple choice


def test_choices(tmp_path: Path) -> None:
    theirs, run = imported(tmp_path, "BertForMultipleChoice")
    tokenizer = transformers.BertTokenizerFast.from_pretrained(tmp_path / "theirs")
    file = lines(tmp_path / "a.jsonl", CHOICES)
    results = succeed("predict", run.folder, "--file", file, "--json").jsons
    for row, result in zip(CHOICES, results, strict=True):
        inputs = tokenizer([row["text"]] * 3, row["choices"], return_tensors="pt", padding=True)
        with torch.no_grad():
            p = theirs(**{name: tensor[None] for name, tensor in inputs.items()}).logits.softmax(-1)[0].tolist()
        assert result["probabilities"] == pytest.approx({str(n): value for n, value in enumerate(p)}, abs=1e-5)
        assert result["choice"] == row["choices"][int(result["output"])]
        [typed] = answers(run, "\t".join([row["text"], *row["choices"]]))
        assert typed["probabilities"] == pytest.approx(result["probabilities"])
    right = [result["output"] == str(row["label"]) for row, result in zip(CHOICES, results, strict=True)]
    assert measured(run, file)["accuracy"] == sum(right) / 2
    assert "street" in succeed("explain", run.folder, "it was too\tthe street\tso tired", "--view", "occlusion").out
    for text, choice in (("text", "choice"), ("startphrase", "ending")):  # other tables, with other names
        header = ["id", text, *(f"{choice}{number}" for number in range(3)), "label"]
        rows = [[str(n), row["text"], *row["choices"], str(row["label"])] for n, row in enumerate(CHOICES)]
        table = write(tmp_path / "a.csv", "".join(",".join(line) + "\n" for line in [header, *rows]))
        for verb in ("evaluate", "predict"):
            one, other = (succeed(verb, run.folder, "--file", path, "--json").jsons for path in (file, table))
            assert [result | {"files": 0} for result in one] == [result | {"files": 0} for result in other]


def test_rows_with_other_choices(tmp_path: Path) -> None:
    """Each row may have its own number of choices in predict; where that cannot be measured, it is refused."""
    _, run = imported(tmp_path, "BertForMultipleChoice")
    rows = [{"text": "it was too", "choices": ["street", "tired", "2024"][:count], "label": 0} for count in (2, 3, 1)]
    file = lines(tmp_path / "a.jsonl", rows[:2])
    results = succeed("predict", run.folder, "--file", file, "--json").jsons
    assert results == answers(run, *("\t".join(["it was too", *row["choices"]]) for row in rows[:2]))  # type: ignore[misc]
    assert [len(result["probabilities"]) for result in results] == [2, 3]
    [message] = fail("evaluate", run.folder, "--file", file)
    assert message == f"{file}:2: there are 3 items in 'choices', of which 2 would be read (all rows have as many)"
    assert "there is no column 'choice0'" in fail("predict", run.folder, json.dumps(rows[2]))[0]


@pytest.mark.parametrize(
    ("architecture", "content", "missing", "wanted"),
    [
        ("BertForMultipleChoice", "question,a,b,label\nq,x,y,0\n", "text", "text, choice0, choice1 and so on, or in"),
        ("BertForMultipleChoice", "text,a,b,label\nq,x,y,0\n", "choice0", ".jsonl a list of two choices or more"),
        ("BertForMultipleChoice", "text,choice1,choice2,label\nq,x,y,0\n", "choice0", "text, choice0, choice1"),
        ("BertForMultipleChoice", "text,choice0,label\nq,x,0\n", "choice1", "text, choice0, choice1"),
        ("BertForSequenceClassification", "sentence1,sentence2,gold\nthe animal,an animal,yes\n", "text",
         "text, or first and second; what is to be found is called label)"),
    ],
)  # fmt: skip
def test_other_columns(tmp_path: Path, architecture: str, content: str, missing: str, wanted: str) -> None:
    _, run = imported(tmp_path, architecture, id2label=YES_NO)
    file = write(tmp_path / "a.csv", content)
    names = content.splitlines()[0].replace(",", ", ")
    for verb in ("evaluate", "predict"):
        [message] = fail(verb, run.folder, "--file", file)
        assert message.startswith(f"{file}:1: there is no column '{missing}' (the columns are {names}; wanted are ")
        assert wanted in message
    if architecture == "BertForMultipleChoice":
        message = fail("evaluate", run.folder, "--file", file, "--file", file)[0]
        assert message.startswith("--file: 2 files are too many")


# Pairs


def test_pairs_and_single_texts(tmp_path: Path) -> None:
    """A tab within a text of a table makes no pair; a typed one does."""
    _, run = imported(tmp_path, "BertForSequenceClassification", id2label=YES_NO)
    row, told = {"text": "the animal\tdid not cross", "label": "no"}, tmp_path / "told.jsonl"
    file = lines(tmp_path / "a.jsonl", [row])
    measured(run, file, told=told)
    expected = pytest.approx(json.loads(told.read_text(encoding="utf-8"))["probabilities"], abs=1e-6)
    for how in (["--file", file], [json.dumps(row)]):
        assert succeed("predict", run.folder, *how, "--json").json["probabilities"] == expected
    assert answers(run, row["text"])[0]["probabilities"] != expected
    for text in ("", " "):
        assert fail("predict", run.folder, json.dumps({"text": text}))[0].startswith("input 1: the text is empty")
    pair = write(tmp_path / "b.jsonl", '{"first": "the animal", "second": "a dog", "gold": "no"}\n')
    [message] = fail("evaluate", run.folder, "--file", pair)
    assert message.startswith(f"{pair}:1: there is no column 'label' (the columns are first, second, gold; wanted are ")
    parts = {"first": "the animal", "second": "a dog", "label": "no"}
    assert measured(run, *(write(tmp_path / name, text + "\n") for name, text in parts.items()))["examples"] == 1


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_regressor_of_pairs(tmp_path: Path, suffix: str) -> None:
    _, run = imported(tmp_path, "BertForSequenceClassification", id2label={0: "score"})
    rows = [{"first": one, "second": other, "label": float(n)} for n, (one, other) in enumerate(PAIRS)]
    file, told = lines(tmp_path / "a.jsonl", rows), tmp_path / "told.jsonl"
    if suffix == "csv":
        table = "".join(f"{row['first']},{row['second']},{row['label']}\n" for row in rows)
        file = write(tmp_path / "a.csv", "first,second,label\n" + table)
    assert measured(run, file, told=told)["examples"] == 3
    numbers = [json.loads(line)["output"] for line in told.read_text(encoding="utf-8").splitlines()]
    assert numbers == pytest.approx([one["output"] for one in answers(run, *map("\t".join, PAIRS))], abs=1e-6)
    assert numbers == [one["output"] for one in succeed("predict", run.folder, "--file", file, "--json").jsons]
    assert measured(run, write(tmp_path / "b.csv", "label,text\n1,the animal\n2,the street\n"))["examples"] == 2


# Tags


def test_a_tagger_of_parts_of_speech(tmp_path: Path) -> None:
    """Its labels show that tags mark no entities."""
    _, run = imported(tmp_path, "BertForTokenClassification", id2label={0: "NOUN", 1: "VERB", 2: "O"})
    file = write(tmp_path / "a.conll", "the O\nanimal NOUN\ncross VERB\n\nstreet NOUN\n")
    for one in (run, there_and_back(run, tmp_path)):
        result = measured(one, file)
        assert (result["sentences"], "f1" in result) == (2, False)
    [message] = fail("evaluate", run.folder, "--file", write(tmp_path / "b.conll", "Anna B-PER\nleft O\n"))
    assert "the tag 'B-PER' of 'Anna' does not stand in the training sentences" in message
    assert message.endswith("(there are NOUN, O, VERB)")


def test_a_tagger_of_another_scheme(tmp_path: Path) -> None:
    labels = ["O", "B-LOC", "I-LOC", "E-LOC", "S-LOC"]
    _, run = imported(tmp_path, "BertForTokenClassification", id2label=dict(enumerate(labels)))
    file, told = write(tmp_path / "a.conll", "New B-LOC\nYork I-LOC\nCity I-LOC\nin O\nMay B-LOC\n"), tmp_path / "told"
    measured(run, file, told=told)
    expected = json.loads(told.read_text(encoding="utf-8"))["expected_tags"]
    assert expected == ["B-LOC", "I-LOC", "E-LOC", "O", "S-LOC"], "the same entities, in the model's scheme"


# There and back

MODEL = {"kind": "bert", "layers": 1, "width": 16, "heads": 2, "feed_forward": 24, "max_positions": 64}
MODEL |= {"next_sentence": False}
LONG = "Where does Ben live?\t" + "Anna lives in Bern. " * 20 + "Ben lives in New York."


def labelled(file: Path, **columns: Any) -> dict[str, Any]:
    rows = "".join(f"{first},{second},x,{label}\n" for (first, second), label in zip(PAIRS, "ABA", strict=True))
    corpus = {"file": str(write(file, "t,a,b,l\n" + rows)), "label": "l", **columns}
    return {"train": corpus, "validation": corpus}


@pytest.mark.parametrize("task", ["question_answering", "multiple_choice", "classification", "tagging"])
def test_a_run_that_comes_back_answers_as_before(tmp_path: Path, task: str) -> None:
    """Settings that `transformers` does not have come back, too: windows, thresholds, orders, kinds of words."""
    sections, texts = {
        "question_answering": (
            {
                "data": {
                    "train": {"corpus": "portraits-en", "size": 60}, "max_length": 32, "stride": 8, "max_question": 12,
                },
                "evaluation": {"threshold": 0.25, "longest_answer": 5, "script": "korquad"},
            },
            [LONG, "Who sings?\tBen lives in New York."],
        ),
        "multiple_choice": (
            {"data": labelled(tmp_path / "a.csv", text="t", choices=["a", "b"]), "head": {"labels": ["A", "B"]}},
            ["the dog\ta dog\tx"],
        ),
        "classification": (
            {"data": labelled(tmp_path / "a.csv", first="t", second="a"), "head": {"both_orders": True}},
            ["the dog\ta street", "a street\tthe dog"],
        ),
        "tagging": (
            {"data": {"train": {"corpus": "names-ko", "size": 40}, "words": "characters"}},
            ["민수는 서울에 산다."],
        ),
    }[task]  # fmt: skip
    run = trained(tmp_path / "run", task=task, model=MODEL, **sections)
    back = there_and_back(run, tmp_path)
    expected = answers(run, *texts)
    assert answers(back, *texts) == expected
    if task == "question_answering":
        assert (back.recipe.head, back.recipe.evaluation) == (run.recipe.head, run.recipe.evaluation)
        assert run.recipe.head.no_answer is True
        assert all(answer["no_answer"] is not None for answer in expected)
    if task == "classification":
        assert expected[0]["probabilities"] == pytest.approx(expected[1]["probabilities"], abs=1e-6)


# Models of others


@pytest.mark.parametrize(("datasets", "no_answer"), [("- rajpurkar/squad_v2", True), ("- squad", False), (None, None)])
def test_the_card_shows_whether_questions_may_have_no_answer(
    tmp_path: Path, datasets: str | None, no_answer: bool | None
) -> None:
    save_bert(tmp_path / "theirs", "BertForQuestionAnswering")
    if datasets is not None:
        write(tmp_path / "theirs" / "README.md", f"---\nlanguage: en\ndatasets:\n{datasets}\n---\n\n# A model\n")
    printed = succeed("import", tmp_path / "theirs", "--out", tmp_path / "run").out
    assert ("import it with --set head.no_answer=true" in printed) is (no_answer is None)
    [answer] = answers(Run.open(tmp_path / "run"), f"Who was tired?\t{TEXTS[0]}")
    assert (answer["no_answer"] is not None) is bool(no_answer)


def test_what_the_folder_leaves_open_is_set(tmp_path: Path) -> None:
    save_bert(tmp_path / "theirs", "BertForQuestionAnswering")
    options = [
        f"--set={option}" for option in ("head.no_answer=true", "evaluation.threshold=-1000", "data.max_length=16")
    ]
    assert "note" not in succeed("import", tmp_path / "theirs", "--out", tmp_path / "run", *options, "--json").json
    assert answers(Run.open(tmp_path / "run"), f"Who was tired?\t{TEXTS[0]}")[0]["output"] == ""


def test_a_translator(tmp_path: Path) -> None:
    """It is scored, explained, diagnosed, and trained further: `training.init` alone gives model and tokenizer."""
    save_marian(tmp_path / "marian")
    run = regard.import_run(tmp_path / "marian", out=tmp_path / "run").folder
    pairs = write(tmp_path / "two.tsv", "The dog\t나는\nThe fox\t학교에\n")
    scored = regard.score(run, "The dog", "나는")
    assert scored["score"] == pytest.approx(sum(scored["token_scores"]))
    assert regard.explain(run, "The dog", target="나는").to_json()["target"] == ("▁나는", "</s>")
    assert succeed("diagnose", run, "--file", pairs, "--no-sweep", "--json").json["sentences"] == 2
    file = write(tmp_path / "pairs.tsv", "\n".join(f"The quick dog {n}\t나는 학교에 {n}" for n in range(30)))
    recipe = {
        "task": "translation",
        "data": {"train": {"file": str(file), "source": 0, "target": 1}, "validation": {"split": 0.2}},
        "training": {
            "init": str(run), "steps": 20, "decode": 0, "device": "cpu", "learning_rate": 0.01, "schedule": "constant",
        },
    }  # fmt: skip
    tuned = regard.train(recipe, out=tmp_path / "tuned", quiet=True)
    before, after = (regard.evaluate(one, files=[str(file)])["loss"] for one in (run, tuned))
    assert after < before - 1
    assert tuned.tokenizers.fingerprint == Run.open(run).tokenizers.fingerprint
