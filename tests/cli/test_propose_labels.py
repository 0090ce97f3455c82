"""`regard check` recognises labelled texts, tagged words and questions; what it proposes trains as it is printed."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from command_line import Result, fail, succeed, write
from places import SHARED
from regard.config import parse_yaml
from regard.data.recognise import Recognised, recognise
from regard.data.recognise_labels import RecognisedLabels
from regard.recipes.propose import propose

DRAW = random.Random(2)
WORDS = ["the", "a", "film", "cat", "sees", "likes", "house", "tree", "big", "small", "red", "when", "then", "runs"]
TEXTS = [" ".join(DRAW.choices(WORDS, k=DRAW.randint(4, 8))) + f" {number}" for number in range(60)]
OTHERS = [*TEXTS[1:], TEXTS[0]]
CLASSES = [DRAW.choice(["good", "bad"]) for _ in TEXTS]
BITS = [DRAW.choice("01") for _ in TEXTS]
FLOATS = [f"{5 * DRAW.random():.2f}" for _ in TEXTS]

Rows = Sequence[Sequence[str]]


def table(names: Sequence[str] | None, *columns: Sequence[str], separator: str = "\t") -> str:
    rows: Rows = [*([names] if names else []), *zip(*columns, strict=True)]
    return "".join(separator.join(row) + "\n" for row in rows)


def lines(objects: Sequence[Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in objects)


def conll(tag: Callable[[str], str]) -> str:
    return "\n".join("".join(f"{word} {tag(word)}\n" for word in text.split()) for text in TEXTS)


QUESTIONS = [
    {"context": text, "qas": [{"id": str(n), "question": "What is it?",
                               "answers": [{"text": text.split()[1], "answer_start": text.index(" ") + 1}]}]}
    for n, text in enumerate(TEXTS)
]  # fmt: skip

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "reviews.csv": (
        table(["text", "label"], TEXTS, CLASSES, separator=","),
        "classification",
        {"text": "text", "label": "label"},
    ),
    "semicolons.csv": (
        table(["review", "verdict"], [f'"{one}, really"' for one in TEXTS], CLASSES, separator=";"),
        "classification",
        {"text": "review", "label": "verdict"},
    ),
    "nameless.tsv": (table(None, TEXTS, BITS), "classification", {"text": 0, "label": 1}),
    "files.tsv": (
        table(None, [f"pos/{n}_x.txt" for n in range(60)], BITS, TEXTS), "classification", {"text": 2, "label": 1},
    ),
    "pairs.tsv": (
        table(["index", "sentence1", "sentence2", "label"], [str(n) for n in range(60)], TEXTS, OTHERS, CLASSES),
        "classification",
        {"first": "sentence1", "second": "sentence2", "label": "label"},
    ),
    "glue.tsv": (
        table(["Quality", "#1 ID", "#1 String", "#2 String"], BITS, [f"{n}" for n in range(60)], TEXTS, OTHERS),
        "classification",
        {"first": "#1 String", "second": "#2 String", "label": "Quality"},
    ),
    "sts.tsv": (
        table(["genre", "score", "sentence1", "sentence2"], ["news", "forum"] * 30, FLOATS, TEXTS, OTHERS),
        "regression",
        {"first": "sentence1", "second": "sentence2", "label": "score"},
    ),
    "stars.csv": (
        table(["review", "rating"], TEXTS, FLOATS, separator=","),
        "regression",
        {"text": "review", "label": "rating"},
    ),
    "titled.tsv": (
        table(["title", "text", "category"], [one[:8] for one in TEXTS], TEXTS, CLASSES),
        "classification",
        {"text": "text", "label": "category"},
    ),
    "labels.jsonl": (
        lines([{"document": text, "label": int(bit)} for text, bit in zip(TEXTS, BITS, strict=True)]),
        "classification",
        {"text": "document", "label": "label"},
    ),
    "swag.csv": (
        table(["", "startphrase", "ending0", "ending1", "ending2", "label"], [str(n) for n in range(60)], TEXTS, OTHERS,
              OTHERS[::-1], TEXTS[::-1], [DRAW.choice("012") for _ in TEXTS], separator=","),
        "multiple_choice",
        {"text": "startphrase", "choices": ["ending0", "ending1", "ending2"], "label": "label"},
    ),
    "choices.jsonl": (
        lines([{"question": one, "choices": [two, one[::-1]], "answer": DRAW.choice("AB")}
               for one, two in zip(TEXTS, OTHERS, strict=True)]),
        "multiple_choice",
        {"text": "question", "choices": ["choices.0", "choices.1"], "label": "answer"},
    ),
    "names.conll": (conll(lambda word: "B-ANIMAL" if word == "cat" else "O"), "tagging", {"tokens": 0, "tags": -1}),
    "named.txt": (conll(lambda word: "I-X" if word == "cat" else "O"), "tagging", {"tokens": 0, "tags": -1}),
    "parts.conll": (
        conll(lambda word: "DET" if word in ("the", "a") else "X"),
        "tagging",
        {"tokens": 0, "tags": -1, "scheme": "plain"},
    ),
    "tags.jsonl": (
        lines([{"words": one.split(), "ner": ["O"] * len(one.split())} for one in TEXTS]),
        "tagging",
        {"tokens": "words", "tags": "ner"},
    ),
    "squad.json": (json.dumps({"data": [{"paragraphs": QUESTIONS}]}), "question_answering", {}),
    "squad.jsonl": (
        lines([{"context": one["context"], **one["qas"][0]} for one in QUESTIONS]),  # type: ignore[dict-item]
        "question_answering",
        {},
    ),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: str, *more: str) -> Result:
    program, *arguments = shlex.split(command)
    assert program == "regard"
    return succeed(*arguments, *more)


@pytest.mark.parametrize("name", CASES)
def test_the_task_and_its_columns_are_recognised(folder: Path, name: str) -> None:
    text, task, columns = CASES[name]
    write(folder / name, text)
    found = recognise([name], Path())
    assert isinstance(found, RecognisedLabels)
    assert (found.task, found.columns, found.examples) == (task, columns, 60)
    tree = parse_yaml(propose([name], Path()), "")
    assert tree["task"] == task
    assert tree["data"]["train"] == {"file": name, **columns}
    bare = [line for line in propose([name], Path()).splitlines() if "#" not in line]
    assert bare == [], "every line is commented"


@pytest.mark.parametrize(
    "name", ["reviews.csv", "semicolons.csv", "glue.tsv", "stars.csv", "swag.csv", "choices.jsonl", "parts.conll",
             "names.conll", "squad.json"],
)  # fmt: skip
def test_the_commands_that_are_printed_work(folder: Path, name: str) -> None:
    write(folder / name, CASES[name][0])
    said = succeed("check", name).err.splitlines()
    save, train = (line.removeprefix("next       ") for line in said if line.startswith("next "))
    stem = name.partition(".")[0]
    assert (save, train) == (f"regard check {name} --out {stem}.yaml", f"regard train {stem}.yaml --out runs/{stem}")
    saved = run(save, "--json").json
    assert saved["ok"]
    assert saved["commands"] == [train]
    run(train, *([] if name == "reviews.csv" else ["training.steps=2"]), "--json")
    assert succeed("evaluate", folder / "runs" / stem, "--json").json["split"] == "test"


def test_names_that_are_taken_are_not_proposed(folder: Path) -> None:
    write(folder / "my reviews.csv", CASES["reviews.csv"][0])
    write(folder / "my reviews.yaml", "mine")
    (folder / "runs" / "my reviews").mkdir(parents=True)
    assert succeed("check", "my reviews.csv", "--json").json["commands"] == [
        "regard check 'my reviews.csv' --out 'my reviews-2.yaml'",
        "regard train 'my reviews-2.yaml' --out 'runs/my reviews-2'",
    ]


def test_letters_of_choices_are_named_in_the_head(folder: Path) -> None:
    write(folder / "choices.jsonl", CASES["choices.jsonl"][0])
    assert parse_yaml(propose(["choices.jsonl"], Path()), "")["head"] == {"labels": ["A", "B"]}


def test_rare_labels_count_as_much_as_frequent_ones(folder: Path) -> None:
    write(folder / "rare.csv", table(["text", "label"], TEXTS, ["ham"] * 50 + ["spam"] * 10, separator=","))
    assert parse_yaml(propose(["rare.csv"], Path()), "")["training"]["best"] == "f1_macro"
    write(folder / "even.csv", CASES["reviews.csv"][0])
    assert parse_yaml(propose(["even.csv"], Path()), "")["training"]["best"] == "accuracy"


def test_a_file_that_is_sorted_by_label(folder: Path) -> None:
    texts = [f"{text} {turn}" for turn in range(80) for text in TEXTS]
    write(folder / "sorted.tsv", table(None, texts, ["0"] * 2400 + ["1"] * 2400))
    found = recognise(["sorted.tsv"], Path())
    assert isinstance(found, RecognisedLabels)
    assert found.about.startswith("2 labels: ")
    assert found.examples == 4800


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["Q", "A", "label"], [TEXTS, OTHERS, BITS]),
        (["question", "answer"], [TEXTS, OTHERS]),
        (["en", "fr", "domain"], [TEXTS, OTHERS, CLASSES]),
        (None, [TEXTS, OTHERS, CLASSES]),
    ],
)
def test_pairs_with_something_beside_them_are_still_pairs(
    folder: Path, names: list[str] | None, columns: list[list[str]]
) -> None:
    write(folder / "p.tsv", table(names, *columns))
    assert isinstance(recognise(["p.tsv"], Path()), Recognised)


def test_a_json_file_that_is_not_squad(folder: Path) -> None:
    write(folder / "a.json", '{"rows": []}')
    assert fail("check", "a.json")[0].startswith(
        "a.json: there is no list of objects under 'data' (expected is SQuAD's"
    )


# How often each label occurs


def test_check_counts_the_labels(folder: Path) -> None:
    write(folder / "train.tsv", table(["text", "label"], TEXTS, ["ham"] * 45 + ["spam"] * 15))
    write(folder / "dev.tsv", "text\tlabel\nnew one\tspam\nnew two\tspam\nnew three\tham\n")
    tree = """
task: classification
data:
  train: {file: train.tsv, text: text, label: label}
  validation: {file: dev.tsv, text: text, label: label}
model: {kind: bilstm, preset: tiny}
training: {steps: 2, device: cpu}
"""
    write(folder / "r.yaml", tree)
    counts = {"train": {"ham": 45, "spam": 15}, "validation": {"ham": 1, "spam": 2}}
    assert succeed("check", "r.yaml", "--json").json["data"]["labels"] == counts
    said = [line for line in succeed("check", "r.yaml").out.splitlines() if line.startswith("labels")]
    assert said == [
        "labels     train: ham 45 (75.0 %), spam 15 (25.0 %)",
        "labels     validation: spam 2 (66.7 %), ham 1 (33.3 %)",
    ]


def test_check_counts_tags_and_leaves_numbers_alone(folder: Path) -> None:
    for name in ("names.conll", "stars.csv"):
        write(folder / name, CASES[name][0])
    tags = succeed("check", "names.conll", "--json").json["data"]["labels"]
    cats = sum(text.split().count("cat") for text in TEXTS)
    assert sum(split["B-ANIMAL"] for split in tags.values()) == cats
    assert sum(sum(split.values()) for split in tags.values()) == sum(len(text.split()) for text in TEXTS)
    assert "labels" not in succeed("check", "stars.csv", "--json").json["data"]


# Real files


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
@pytest.mark.parametrize(
    ("name", "task", "columns"),
    [
        ("nsmc/ratings_test.tsv.xz", "classification", {"text": "document", "label": "label"}),
        ("glue/CoLA/dev.tsv.xz", "classification", {"text": 3, "label": 1}),
        ("glue/SST-2/dev.tsv.xz", "classification", {"text": "sentence", "label": "label"}),
        ("glue/RTE/dev.tsv.xz", "classification", {"first": "sentence1", "second": "sentence2", "label": "label"}),
        ("glue/STS-B/dev.tsv.xz", "regression", {"first": "sentence1", "second": "sentence2", "label": "score"}),
        ("kornlu/sts-dev.tsv.xz", "regression", {"first": "sentence1", "second": "sentence2", "label": "score"}),
        ("conll2003_en/eng.testa.xz", "tagging", {"tokens": 0, "tags": -1}),
        ("squad/dev-v1.1.rebuilt.json.xz", "question_answering", {}),
        ("ko_chatbot/ChatbotData.csv.xz", None, None),
        ("tatoeba_en_fr/fra.tsv.xz", None, None),
    ],
)
def test_real_files_are_recognised(name: str, task: str | None, columns: dict[str, Any] | None) -> None:
    found = recognise([name], SHARED)
    if task is None:
        assert isinstance(found, Recognised)
    else:
        assert isinstance(found, RecognisedLabels)
        assert (found.task, found.columns) == (task, columns)
