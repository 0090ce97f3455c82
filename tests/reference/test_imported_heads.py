"""What is exported and imported again answers as before, and an imported run reads tables like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from command_line import fail, succeed, write
from exchange_cases import TEXTS, save_bert
from export_cases import trained
from regard.runs import Run

transformers = pytest.importorskip("transformers")

MODEL = {
    "kind": "bert", "layers": 1, "width": 16, "heads": 2, "feed_forward": 24, "max_positions": 64,
    "next_sentence": False,
}  # fmt: skip
CHOICES = [
    {"text": "The animal did not", "choices": ["cross the street", "tired", "because"], "label": 0},
    {"text": "it was too", "choices": ["street", "tired", "2024"], "label": 1},
]
PAIRS = [("the animal", "an animal"), ("the street", "it was tired"), ("the dog", "a dog")]


def imported(folder: Path, architecture: str, **changes: Any) -> tuple[Any, Run]:
    theirs = save_bert(folder / "theirs", architecture, **changes)
    return theirs, regard.import_run(folder / "theirs", out=folder / "run")


def there_and_back(run: Run, folder: Path) -> Run:
    regard.export_run(run, to="huggingface", out=folder / "exported")
    return regard.import_run(folder / "exported", out=folder / "back")


def answers(run: Run, *texts: str) -> list[dict[str, Any]]:
    return [one.to_json() for one in regard.predict(run, texts)]


# Multiple choice


def test_an_imported_model_chooses(tmp_path: Path) -> None:
    theirs, run = imported(tmp_path, "BertForMultipleChoice")
    tokenizer = transformers.BertTokenizerFast.from_pretrained(tmp_path / "theirs")
    file = write(tmp_path / "a.jsonl", "".join(json.dumps(one) + "\n" for one in CHOICES))
    found = succeed("predict", run.folder, "--file", file, "--json").jsons
    for one, said in zip(CHOICES, found, strict=True):
        texts, choices = [one["text"]] * 3, list(one["choices"])  # type: ignore[call-overload]
        read = tokenizer(texts, choices, return_tensors="pt", padding=True)
        with torch.no_grad():
            p = theirs(**{name: tensor[None] for name, tensor in read.items()}).logits.softmax(-1)[0].tolist()
        assert said["probabilities"] == pytest.approx({str(number): value for number, value in enumerate(p)}, abs=1e-5)
        assert said["choice"] == one["choices"][int(said["output"])]  # type: ignore[index]
        typed = succeed("predict", run.folder, "\t".join([*texts[:1], *choices]), "--json").json
        assert typed["probabilities"] == pytest.approx(said["probabilities"])
    measured = succeed("evaluate", run.folder, "--file", file, "--json").json
    right = [said["output"] == str(one["label"]) for one, said in zip(CHOICES, found, strict=True)]
    assert measured["accuracy"] == sum(right) / 2
    assert "street" in succeed("explain", run.folder, "it was too\tthe street\tso tired", "--view", "occlusion").out


@pytest.mark.parametrize("names", [("text", "choice"), ("startphrase", "ending")])
def test_choices_in_other_tables(tmp_path: Path, names: tuple[str, str]) -> None:
    _, run = imported(tmp_path, "BertForMultipleChoice")
    objects = write(tmp_path / "a.jsonl", "".join(json.dumps(one) + "\n" for one in CHOICES))
    text, choice = names
    rows = [[str(number), one["text"], *one["choices"], str(one["label"])] for number, one in enumerate(CHOICES)]  # type: ignore[misc]
    lines = [["id", text, *(f"{choice}{number}" for number in range(3)), "label"], *rows]
    table = write(tmp_path / "a.csv", "".join(",".join(line) + "\n" for line in lines))
    for verb in ("evaluate", "predict"):
        one, other = (succeed(verb, run.folder, "--file", file, "--json").jsons for file in (objects, table))
        assert [found | {"files": 0} for found in one] == [found | {"files": 0} for found in other]


def test_other_columns_than_those_of_choices_are_refused(tmp_path: Path) -> None:
    _, run = imported(tmp_path, "BertForMultipleChoice")
    for content, missing in (
        ("question,a,b,label\nq,x,y,0\n", "text"),
        ("text,a,b,label\nq,x,y,0\n", "choice0"),
        ("text,choice1,choice2,label\nq,x,y,0\n", "choice0"),
        ("text,choice0,label\nq,x,0\n", "choice1"),
    ):
        file = write(tmp_path / "a.csv", content)
        names = content.splitlines()[0].replace(",", ", ")
        for verb in ("evaluate", "predict"):
            [message] = fail(verb, run.folder, "--file", file)
            assert message.startswith(f"{file}:1: there is no column '{missing}' (the columns are {names}; wanted are ")
            assert "text, choice0, choice1 and so on, or in .jsonl a list of two choices or more" in message
    assert fail("evaluate", run.folder, "--file", file, "--file", file)[0].startswith("--file: 2 files are too many")


def test_every_row_has_its_own_number_of_choices(tmp_path: Path) -> None:
    """All of them are chosen from; where that cannot be measured, none is left out silently."""
    _, run = imported(tmp_path, "BertForMultipleChoice")
    rows = [{"text": "it was too", "choices": ["street", "tired", "2024"][:count], "label": 0} for count in (2, 3, 1)]
    file = write(tmp_path / "a.jsonl", "".join(json.dumps(one) + "\n" for one in rows[:2]))
    found = succeed("predict", run.folder, "--file", file, "--json").jsons
    assert found == answers(run, *("\t".join(["it was too", *one["choices"]]) for one in rows[:2]))  # type: ignore[misc]
    assert [len(one["probabilities"]) for one in found] == [2, 3]
    [message] = fail("evaluate", run.folder, "--file", file)
    assert message == f"{file}:2: there are 3 items in 'choices', of which 2 would be read (all rows have as many)"
    assert "there is no column 'choice0'" in fail("predict", run.folder, json.dumps(rows[2]))[0]


# Pairs


def test_a_tab_within_a_text_makes_no_pair(tmp_path: Path) -> None:
    _, run = imported(tmp_path, "BertForSequenceClassification", id2label={0: "no", 1: "yes"})
    row = {"text": "the animal\tdid not cross", "label": "no"}
    file, told = write(tmp_path / "a.jsonl", json.dumps(row) + "\n"), tmp_path / "told.jsonl"
    succeed("evaluate", run.folder, "--file", file, "--predictions", told)
    expected = json.loads(told.read_text(encoding="utf-8"))["probabilities"]
    found = [succeed("predict", run.folder, *how, "--json").json for how in (["--file", file], [json.dumps(row)])]
    assert [one["probabilities"] for one in found] == [pytest.approx(expected, abs=1e-6)] * 2
    assert answers(run, row["text"])[0]["probabilities"] != pytest.approx(expected, abs=1e-6), "typed it is a pair"


def test_an_object_with_an_empty_text_is_refused(tmp_path: Path) -> None:
    _, run = imported(tmp_path, "BertForSequenceClassification", id2label={0: "no", 1: "yes"})
    for text in ("", " "):
        assert fail("predict", run.folder, json.dumps({"text": text}))[0].startswith("input 1: the text is empty")


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_an_imported_regressor_is_measured_on_pairs(tmp_path: Path, suffix: str) -> None:
    _, run = imported(tmp_path, "BertForSequenceClassification", id2label={0: "score"})
    rows = [{"first": one, "second": other, "label": float(place)} for place, (one, other) in enumerate(PAIRS)]
    table = "first,second,label\n" + "".join(f"{row['first']},{row['second']},{row['label']}\n" for row in rows)
    objects = "".join(json.dumps(row) + "\n" for row in rows)
    file = write(tmp_path / f"a.{suffix}", table if suffix == "csv" else objects)
    told = tmp_path / "told.jsonl"
    assert succeed("evaluate", run.folder, "--file", file, "--predictions", told, "--json").json["examples"] == 3
    found = [json.loads(line)["output"] for line in told.read_text(encoding="utf-8").splitlines()]
    expected = [one["output"] for one in answers(run, *map("\t".join, PAIRS))]
    assert found == pytest.approx(expected, abs=1e-6)
    assert found == [one["output"] for one in succeed("predict", run.folder, "--file", file, "--json").jsons]
    single = write(tmp_path / "b.csv", "label,text\n1,the animal\n2,the street\n")
    assert succeed("evaluate", run.folder, "--file", single, "--json").json["examples"] == 2


def test_other_columns_than_those_of_labels_are_refused(tmp_path: Path) -> None:
    _, run = imported(tmp_path, "BertForSequenceClassification", id2label={0: "no", 1: "yes", 2: "?"})
    file = write(tmp_path / "a.csv", "sentence1,sentence2,gold\nthe animal,an animal,yes\nthe street,a dog,no\n")
    wanted = "wanted are text, or first and second; what is to be found is called label"
    for verb in ("evaluate", "predict"):
        [message] = fail(verb, run.folder, "--file", file)
        expected = f"{file}:1: there is no column 'text' (the columns are sentence1, sentence2, gold; {wanted})"
        assert message == expected
    pair = write(tmp_path / "b.jsonl", '{"first": "the animal", "second": "a dog", "gold": "no"}\n')
    [message] = fail("evaluate", run.folder, "--file", pair)
    assert message.startswith(f"{pair}:1: there is no column 'label' (the columns are first, second, gold; wanted are ")
    for name, lines in (("first", "the animal"), ("second", "a dog"), ("label", "no")):
        write(tmp_path / name, lines + "\n")
    files = [argument for name in ("first", "second", "label") for argument in ("--file", tmp_path / name)]
    assert succeed("evaluate", run.folder, *files, "--json").json["examples"] == 1


# Tags


def test_an_imported_tagger_of_parts_of_speech_is_measured(tmp_path: Path) -> None:
    """Its labels say that tags mark no entities: no corpus of its own does."""
    _, run = imported(tmp_path, "BertForTokenClassification", id2label={0: "NOUN", 1: "VERB", 2: "O"})
    file = write(tmp_path / "a.conll", "the O\nanimal NOUN\ncross VERB\n\nstreet NOUN\n")
    for one in (run, there_and_back(run, tmp_path)):
        found = succeed("evaluate", one.folder, "--file", file, "--json").json
        assert (found["sentences"], "f1" in found) == (2, False)
    entities = write(tmp_path / "b.conll", "Anna B-PER\nleft O\n")
    [message] = fail("evaluate", run.folder, "--file", entities)
    what = "the tag 'B-PER' of 'Anna' does not stand in the training sentences or head.labels"
    assert message.endswith(f"b.conll:1: {what} (there are NOUN, O, VERB)")


def test_an_imported_tagger_of_another_scheme_is_measured(tmp_path: Path) -> None:
    labels = ["O", "B-LOC", "I-LOC", "E-LOC", "S-LOC"]
    _, run = imported(tmp_path, "BertForTokenClassification", id2label=dict(enumerate(labels)))
    file = write(tmp_path / "a.conll", "New B-LOC\nYork I-LOC\nCity I-LOC\nin O\nMay B-LOC\n")
    told = tmp_path / "told.jsonl"
    succeed("evaluate", run.folder, "--file", file, "--predictions", told)
    expected = json.loads(told.read_text(encoding="utf-8"))["expected_tags"]
    assert expected == ["B-LOC", "I-LOC", "E-LOC", "O", "S-LOC"], "the same entities, as the model writes them"


# There and back


def test_silence_comes_back(tmp_path: Path) -> None:
    """And all else that answers hang on: how long a text is read at once, the threshold, the longest answer."""
    data = {"train": {"corpus": "portraits-en", "size": 60}, "max_length": 32, "stride": 8, "max_question": 12}
    evaluation = {"threshold": 0.25, "longest_answer": 5, "script": "korquad"}
    run = trained(tmp_path / "run", task="question_answering", data=data, model=MODEL, evaluation=evaluation)
    assert run.recipe.head.no_answer is True
    back = there_and_back(run, tmp_path)
    assert (back.recipe.head, back.recipe.evaluation) == (run.recipe.head, run.recipe.evaluation)
    long = "Where does Ben live?\t" + "Anna lives in Bern. " * 20 + "Ben lives in New York."
    expected = answers(run, long, "Who sings?\tBen lives in New York.")
    assert all(one["no_answer"] is not None for one in expected)
    assert answers(back, long, "Who sings?\tBen lives in New York.") == expected


def test_choices_and_orders_come_back(tmp_path: Path) -> None:
    rows = "".join(f"{first},{second},x,{label}\n" for (first, second), label in zip(PAIRS, "ABA", strict=True))
    corpus = {"file": str(write(tmp_path / "a.csv", "t,a,b,l\n" + rows))}
    corpus |= {"label": "l"}
    choices: Any = corpus | {"text": "t", "choices": ["a", "b"]}
    data = {"train": choices, "validation": choices}
    head = {"labels": ["A", "B"]}
    run = trained(tmp_path / "run", task="multiple_choice", data=data, model=MODEL, head=head)
    assert answers(there_and_back(run, tmp_path), "the dog\ta dog\tx") == answers(run, "the dog\ta dog\tx")
    corpus |= {"first": "t", "second": "a"}
    pairs = {"train": corpus, "validation": corpus}
    (tmp_path / "2").mkdir()
    run = trained(tmp_path / "2/run", task="classification", data=pairs, model=MODEL, head={"both_orders": True})
    back = there_and_back(run, tmp_path / "2")
    assert answers(back, "the dog\ta street") == answers(run, "the dog\ta street")
    swapped, same = answers(back, "the dog\ta street", "a street\tthe dog")
    assert swapped["probabilities"] == pytest.approx(same["probabilities"], abs=1e-6)


def test_words_come_back(tmp_path: Path) -> None:
    data = {"train": {"corpus": "names-ko", "size": 40}, "words": "characters"}
    run = trained(tmp_path / "run", task="tagging", data=data, model=MODEL)
    back = there_and_back(run, tmp_path)
    assert answers(back, "민수는 서울에 산다.") == answers(run, "민수는 서울에 산다.")


# Models of others


@pytest.mark.parametrize(("datasets", "silent"), [("- rajpurkar/squad_v2", True), ("- squad", False), (None, None)])
def test_whether_a_model_may_be_silent_its_card_tells(
    tmp_path: Path, datasets: str | None, silent: bool | None
) -> None:
    save_bert(tmp_path / "theirs", "BertForQuestionAnswering")
    if datasets is not None:
        write(tmp_path / "theirs" / "README.md", f"---\nlanguage: en\ndatasets:\n{datasets}\n---\n\n# A model\n")
    found = succeed("import", tmp_path / "theirs", "--out", tmp_path / "run").out
    assert ("--set head.no_answer=true says so" in found) is (silent is None)
    [said] = answers(Run.open(tmp_path / "run"), f"Who was tired?\t{TEXTS[0]}")
    assert (said["no_answer"] is not None) is bool(silent)


def test_what_the_folder_leaves_open_the_user_says(tmp_path: Path) -> None:
    save_bert(tmp_path / "theirs", "BertForQuestionAnswering")
    options = ["--set", "head.no_answer=true", "--set", "evaluation.threshold=-1000"]
    found = succeed("import", tmp_path / "theirs", "--out", tmp_path / "run", *options, "--json").json
    assert "note" not in found
    [said] = answers(Run.open(tmp_path / "run"), f"Who was tired?\t{TEXTS[0]}")
    assert said["output"] == ""
    for option in ("model.layers=2", "task=tagging", "data.train=a.jsonl", "training.steps=3"):
        [message] = fail("import", tmp_path / "theirs", "--out", tmp_path / "other", "--set", option)
        assert message.startswith(f"{option}: is what the folder of the model says (allowed: data, head, search, ")
    assert "head" in fail("import", tmp_path / "theirs", "--out", tmp_path / "other", "--set", "head.no_anwser=true")[0]
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("head.labels=[a,b]", "head.labels: the classes cannot be renamed (they are the model's own"),
        ("head.labels=[a,b,c]", "head.labels: the classes cannot be renamed (they are the model's own"),
        ("head.labels=[a,a]", "head.labels: the label 'a' stands twice"),
        ("data.max_length=9999", "data.max_length: texts of 9999 tokens are longer than the model's"),
        ("data", "data: an override is key=value (for example head.no_answer=true)"),
        ("data={train: a}", "data={train: a}: a section is not set as a whole (name one of its keys: data.KEY=VALUE)"),
        ("head=null", "head=null: a section is not set as a whole (name one of its keys: head.KEY=VALUE)"),
    ],
)
def test_what_does_not_fit_the_weights_is_refused(tmp_path: Path, option: str, message: str) -> None:
    save_bert(tmp_path / "theirs", "BertForSequenceClassification", id2label={0: "no", 1: "yes"})
    [found] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run", "--set", option)
    assert found.startswith(message)
    assert not (tmp_path / "run").exists()
    same = ["--set", "head.labels=[no,yes]", "--set", "data.max_length=16"]
    assert succeed("import", tmp_path / "theirs", "--out", tmp_path / "run", *same)


def test_a_field_of_ours_that_is_not_ours(tmp_path: Path) -> None:
    save_bert(tmp_path / "theirs", "BertForQuestionAnswering", regard="yes")
    [message] = fail("import", tmp_path / "theirs", "--out", tmp_path / "run")
    assert "config.json: regard: is not what 'regard export' writes there (leave it out)" in message
