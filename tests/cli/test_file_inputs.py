"""`predict --file`: a table is read by the run's own columns, as `evaluate --file` reads it; a .txt
line by line."""

import csv
import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import regard
from command_line import fail, succeed, write, write_table
from raw_cases import FILES, Runs
from regard.config import write_yaml
from regard.errors import DecodeError
from regard.inference.inputs import MAX_CHARACTERS
from regard.text.tokenizers import Tokenizer
from regard.training.train import train

Rows = list[dict[str, str]]
TRAINING = {
    "steps": 3,
    "batch_tokens": 256,
    "device": "cpu",
    "learning_rate": 0.01,
    "schedule": "constant",
    "warmup": 0,
}
MODEL = {"kind": "bilstm", "preset": "tiny", "embedding": 8, "hidden": 8}


def rows_of(name: str) -> Rows:
    """The rows that a run was trained on, with their columns in another order."""
    return [dict(reversed(row.items())) for row in csv.DictReader(io.StringIO(FILES[name]))]


def trained(folder: Path, task: str, data: dict[str, Any], **others: Any) -> Path:
    tree = {
        "task": task,
        "data": data,
        "tokenizer": {"kind": "word"},
        "model": MODEL,
        "training": TRAINING,
    }
    train(write(folder / "recipe.yaml", write_yaml(tree | others)), out=folder / "run", quiet=True)
    return folder / "run"


def without(rows: Rows, *names: str) -> Rows:
    return [{name: text for name, text in row.items() if name not in names} for row in rows]


CASES = {
    "reviews": (rows_of("reviews.csv"), "label"),
    "regression": (rows_of("pairs.csv"), "score"),
    "choices": (rows_of("choices.csv"), "right"),
}


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("reviews", "new.csv.gz"),
        ("reviews", "new.jsonl"),
        ("reviews", "new.json"),
        ("reviews", "new.parquet"),
        ("regression", "new.csv"),
        ("regression", "new.jsonl"),
        ("choices", "new.csv"),
        ("choices", "new.parquet"),
    ],
)
def test_a_table_says_the_same_as_evaluate(
    runs: Runs, tmp_path: Path, task: str, name: str
) -> None:
    """Row by row and to the last digit, with the label and without it."""
    rows, label = CASES[task]
    told = tmp_path / "told.jsonl"
    succeed(
        "evaluate", runs[task], "--file", write_table(tmp_path / name, rows), "--predictions", told
    )
    expected = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
    for given in (rows, without(rows, label)):
        found = succeed(
            "predict", runs[task], "--file", write_table(tmp_path / name, given), "--json"
        ).jsons
        assert [one["output"] for one in found] == [one["output"] for one in expected]
        assert [one.get("probabilities") for one in found] == [
            one.get("probabilities") for one in expected
        ]
        assert len(
            succeed("predict", runs[task], "--file", tmp_path / name).out.splitlines()
        ) == len(rows)


LINES = "sentence\tlabel\nvery good\t1\n"


@pytest.mark.parametrize(
    ("run", "name", "content", "inputs"),
    [
        (
            "regression",
            "a.csv",
            "a,b\na cat,one\tcat\n",
            ["a cat\tone cat"],
        ),  # a tab within a text is a blank
        ("reviews", "a.txt", LINES, LINES.splitlines()),
        ("reviews", "a.tsv", LINES, ["very good"]),
        (
            "reviews",
            "a.csv",
            'sentence\n"{""sentence"": ""very good""}"\n',
            ['{"sentence": "very good"}'],
        ),
        (
            "bilstm-classifier",
            "a.csv",
            "stars,text\n5,The plot.\n",
            ["The plot."],
        ),  # the task's own names
    ],
)
def test_the_inputs_in_a_file(
    runs: Runs, tmp_path: Path, run: str, name: str, content: str, inputs: list[str]
) -> None:
    found = succeed("predict", runs[run], "--file", write(tmp_path / name, content), "--json").jsons
    assert [one["input"] for one in found] == inputs


def test_bad_rows_are_named_or_skipped(runs: Runs, tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.jsonl",
        '{"sentence": "good"}\n{"sentence": 3}\nnot JSON\n\n{"sentence": "bad"}\n',
    )
    messages = fail("predict", runs["reviews"], "--file", file)
    assert [message.partition(": ")[0] for message in messages[:2]] == [f"{file}:2", f"{file}:3"]
    found = succeed("predict", runs["reviews"], "--file", file, "--skip-bad", "--json").jsons
    assert [one["output"] is None for one in found] == [False, True, True, True, False]
    assert [one["problem"]["what"].partition(":")[0] for one in found[1:4]] == [
        "the column 'sentence' holds 3, not a string",
        "not valid JSON",
        "the text is empty",
    ]
    cells = write(
        tmp_path / "a.csv", b'sentence,label\ngood,1\na,b,c\n\xff,1\n"a "b" c",1\nbad,0\n'
    )
    found = succeed("predict", runs["reviews"], "--file", cells, "--skip-bad", "--json").jsons
    assert [one["output"] is None for one in found] == [False, True, True, True, False]
    assert [one["problem"]["where"] for one in found[1:4]] == [
        f"{cells}:{line}" for line in (3, 4, 5)
    ]
    assert found[3]["problem"]["what"] == "not valid CSV: ',' expected after '\"'"
    assert succeed("predict", runs["reviews"], "--file", cells, "--skip-bad").out.count("\n") == 5


def test_a_line_without_end_is_refused_before_it_is_tokenised(runs: Runs, tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.txt.gz", gzip.compress(b"good\n" + b"a" * (MAX_CHARACTERS + 1) + b"\nbad\n")
    )
    assert fail("predict", runs["reviews"], "--file", file)[0].startswith(
        f"{file}:2: it has 16,777,217 characters"
    )
    found = succeed("predict", runs["reviews"], "--file", file, "--skip-bad", "--json").jsons
    assert [one["output"] is None for one in found] == [False, True, False]
    streamed = fail("predict", runs["reviews"], "--file", file, "--out", tmp_path / "out.txt")
    assert streamed[0].startswith(f"{file}:2: it has 16,777,217 characters")


def test_sentences_to_tag(runs: Runs, tmp_path: Path) -> None:
    expected = succeed("predict", runs["tagging"], "Anna lives in Oslo", "It rains", "--json").jsons
    files = {
        "a.conll": "Anna NN B-PER\nlives VB O\nin IN O\nOslo NN B-LOC\n\n# text = It rains\nIt NN "
        "O\nrains VB O\n\n",
        "words.tsv": "Anna\nlives\nin\nOslo\n\nIt\nrains\n",
        "a.jsonl": '{"tokens": ["Anna", "lives", "in", "Oslo"]}\n{"text": "It rains"}\n',
        "a.json": '[{"tokens": ["Anna", "lives", "in", "Oslo"]}, {"text": "It rains"}]',
        "a.csv": "id,text\n1,Anna lives in Oslo\n2,It rains\n",
        "a.txt": "Anna lives in Oslo\nIt rains\n",
    }
    for name, content in files.items():
        file = write(tmp_path / name, content)
        assert succeed("predict", runs["tagging"], "--file", file, "--json").jsons == expected, name


def test_questions_to_answer(runs: Runs, tmp_path: Path) -> None:
    run = runs["questions"]
    asked = [
        ("Where does Ben live?", "Ben lives in New York."),
        ("Who sings?", "Mary sings.\tBen does not."),
    ]
    paragraphs = [{"context": c, "qas": [{"id": q, "question": q}]} for q, c in asked]
    objects = [{"question": q, "context": c, "id": n} for n, (q, c) in enumerate(asked)]
    expected = succeed(
        "predict", run, *(json.dumps({"question": q, "context": c}) for q, c in asked), "--json"
    ).jsons
    rows = io.StringIO()
    csv.writer(rows).writerows([("context", "question"), *((c, q) for q, c in asked)])
    files = {
        "a.json": json.dumps({"data": [{"paragraphs": paragraphs}]}, indent=1),
        "a.jsonl": "".join(json.dumps(one) + "\n" for one in objects),
        "array.json": json.dumps(objects),
        "a.csv": rows.getvalue(),
        "lines.tsv": "".join(f"{q}\t{c}\n" for q, c in asked),
        "header.tsv": f"context\tquestion\n{asked[0][1]}\t{asked[0][0]}\n",
    }
    for name, content in files.items():
        found = succeed("predict", run, "--file", write(tmp_path / name, content), "--json").jsons
        assert len(found) == (1 if name == "header.tsv" else 2)
        for one, wanted in zip(found, expected, strict=False):
            assert (one["output"], one["start"]) == (wanted["output"], wanted["start"]), name
            assert one["score"] == pytest.approx(wanted["score"], abs=1e-6)


def test_a_question_that_cannot_be_read_leaves_the_others(runs: Runs, tmp_path: Path) -> None:
    run = runs["questions"]
    asked = {"id": "a", "question": "Where does Ben live?"}
    paragraphs = [{"context": "Ben lives in Bern.", "qas": [asked, {"id": "b"}]}, {"qas": [asked]}]
    file = write(tmp_path / "a.json", json.dumps({"data": [{"paragraphs": paragraphs}]}))
    messages = fail("predict", run, "--file", file)
    assert messages[0].endswith(
        "question 2 ('b'): there is no column 'question' (the columns are id)"
    )
    assert "question 3 ('a'): there is no column 'context' (the columns are qas)" in messages[1]
    assert not any("of a table" in message for message in messages)
    found = succeed("predict", run, "--file", file, "--skip-bad", "--json").jsons
    assert [one["output"] is None for one in found] == [False, True, True]


def test_sources_to_translate(tmp_path: Path) -> None:
    """By the names of the recipe's own table; of a run on parallel files the one named so."""
    rows = [
        {"id": str(number), "en": text, "ko": text.upper()}
        for number, text in enumerate(["a b", "b c", "c a"])
    ]
    write_table(tmp_path / "train.csv", rows)
    model = {"kind": "bahdanau", "embedding": 8, "hidden": 8, "attention": 8}
    columns = {"file": "train.csv", "source": "en", "target": "ko"}
    data = {"train": columns, "validation": columns, "deduplicate": False}
    run = trained(tmp_path, "translation", data, model=model)
    wanted = [
        one["input"]
        for one in succeed("predict", run, "--file", tmp_path / "train.csv", "--json").jsons
    ]
    assert wanted == ["a b", "b c", "c a"]
    for name in ("again.tsv", "again.jsonl", "again.json", "again.parquet"):
        alone = [{"en": row["en"], "note": "x"} for row in rows]
        found = succeed(
            "predict", run, "--file", write_table(tmp_path / name, alone), "--json"
        ).jsons
        assert [one["input"] for one in found] == wanted
    (tmp_path / "two").mkdir()
    for name in ("en", "ko"):
        write(tmp_path / "two" / name, "".join(row[name] + "\n" for row in rows))
    files = {"source": "en", "target": "ko"}
    run = trained(
        tmp_path / "two", "translation", {"train": files, "validation": files}, model=model
    )
    tables = {"csv": "target,source\nA B,a b\nB C,b c\n", "txt": "a b\nb c\n"}
    for suffix, content in tables.items():
        file = write(tmp_path / f"plain.{suffix}", content)
        assert [
            one["input"] for one in succeed("predict", run, "--file", file, "--json").jsons
        ] == ["a b", "b c"]
    file = write(tmp_path / "plain.tsv", "a b\tA B\nb c\tB C\n")
    for verb in ("predict", "evaluate"):
        message = f"{file}:1: there is no column 'source' (the columns are a b, A B)"
        assert fail(verb, run, "--file", file) == [message]


@pytest.mark.parametrize("task", CASES)
def test_objects_that_are_typed_are_rows(runs: Runs, tmp_path: Path, task: str) -> None:
    """On standard input and as arguments, with the label and other keys or without."""
    rows, label = CASES[task]
    objects = write_table(tmp_path / "a.jsonl", rows).read_bytes()
    expected = succeed("predict", runs[task], "--file", tmp_path / "a.jsonl", "--json").jsons
    assert succeed("predict", runs[task], "--json", stdin=objects).jsons == expected
    bare = [json.dumps(row, ensure_ascii=False, indent=1) for row in without(rows, label, "id")]
    assert succeed("predict", runs[task], *bare, "--json").jsons == expected
    assert [one.to_json() for one in regard.predict(runs[task], bare)] == expected
    assert [
        one.to_json() for one in regard.predict(runs[task], file=tmp_path / "a.jsonl")
    ] == expected
    shown = succeed("explain", runs[task], bare[0], "--view", "occlusion", "--json").json
    assert (
        shown
        == succeed(
            "explain", runs[task], expected[0]["input"], "--view", "occlusion", "--json"
        ).json
    )


@pytest.mark.parametrize("task", CASES)
def test_each_text_is_encoded_once(runs: Runs, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [json.dumps(row, ensure_ascii=False) for row in CASES[task][0]]
    run = regard.Run.open(runs[task])
    inputs = [run.task.inputs.typed(text, "") for text in texts]
    encoded: list[str] = []
    encode_batch = Tokenizer.encode_batch

    def counted(self: Tokenizer, rows: Sequence[str]) -> list[list[int]]:
        encoded.extend(rows)
        return encode_batch(self, rows)

    monkeypatch.setattr(Tokenizer, "encode_batch", counted)
    regard.predict(run, inputs)
    assert sorted("\t".join(encoded).split("\t")) == sorted(
        "\t".join(one.text for one in inputs).split("\t")
    )


def test_a_null_is_a_missing_input(runs: Runs, tmp_path: Path) -> None:
    """However it is given; with its answer it is a bad row, as one with an empty text is."""
    said = "the column 'sentence' holds null, not a string"
    typed = '{"sentence": null}'
    assert fail("predict", runs["reviews"], typed, '{"sentence": "good"}') == [f"input 1: {said}"]
    write(tmp_path / "null.jsonl", f"{typed}\n")
    [problem, _] = fail("predict", runs["reviews"], "--file", tmp_path / "null.jsonl")
    assert problem.endswith(f"null.jsonl:1: {said}")
    rows = [
        json.dumps({"sentence": text, "label": label})
        for text, label in [("good", "yes"), ("bad", "no"), (None, "no"), ("", "no")]
    ]
    write(tmp_path / "rows.jsonl", "\n".join(rows))
    assert [
        message.rpartition("rows.jsonl:")[2]
        for message in fail("evaluate", runs["reviews"], "--file", tmp_path / "rows.jsonl")
    ] == [
        f"{line}: the text (column 'sentence') is empty (fill it, or drop the row)"
        for line in (3, 4)
    ]


def test_other_objects_are_texts(runs: Runs) -> None:
    """A classifier may well be asked about them."""
    texts = [
        '{"review": "very good"}',
        '{"sentence": 3}',
        "{sentence",
        '["sentence"]',
        '{"sentence": "\\ud800"}',
    ]
    assert [
        one["input"] for one in succeed("predict", runs["reviews"], *texts, "--json").jsons
    ] == texts


def test_objects_without_the_columns_are_skipped_where_several_are_read(runs: Runs) -> None:
    """Neither a pair nor a choice can be found in them."""
    objects = b'{"a": "x"}\n{"a": "one cat", "b": "a cat"}\n'
    found = succeed("predict", runs["regression"], "--skip-bad", "--json", stdin=objects).jsons
    assert [one["output"] is None for one in found] == [True, False]
    assert found[0]["problem"]["where"] == "standard input:1"
    with pytest.raises(DecodeError, match="there is no column 'b'"):
        regard.predict(runs["regression"], '{"a": "x"}')


def test_all_choices_of_a_list_are_read(tmp_path: Path) -> None:
    """Also those beyond the ones that the run was trained on, as where they are typed with tabs."""
    rows = [
        {"q": "a cat", "c": ["sleeps", "flies"], "y": 1},
        {"q": "a bird", "c": ["barks", "sings"], "y": 2},
    ]
    write(tmp_path / "train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    corpus = {"file": "train.jsonl", "text": "q", "choices": ["c.0", "c.1"], "label": "y"}
    run = trained(
        tmp_path,
        "multiple_choice",
        {"train": corpus, "validation": corpus},
        head={"labels": ["1", "2"]},
    )
    expected = succeed("predict", run, "a cat\tsleeps\tflies\tsings", "--json").json
    assert sorted(expected["probabilities"]) == [
        "1",
        "2",
        "3",
    ]  # from 1 on, so the third choice is not called 2
    assert sum(expected["probabilities"].values()) == pytest.approx(1)
    row = json.dumps({"q": "a cat", "c": ["sleeps", "flies", "sings"], "y": 1})
    assert succeed("predict", run, row, "--json").json == expected
    file = write(tmp_path / "a.jsonl", f'{row}\n{{"q": "a cat", "c": "sleeps"}}\n')
    found = succeed("predict", run, "--file", file, "--skip-bad", "--json").jsons
    assert (found[0], found[1]["problem"]["what"]) == (expected, "there is no column 'c.0'")
    assert (
        "there are 3 items in 'c', of which 2 would be read"
        in fail("evaluate", run, "--file", file)[0]
    )


def test_files_are_encoded_as_the_recipe_or_the_command_says(runs: Runs, tmp_path: Path) -> None:
    content = "글,답\n" + "참 좋다,예\n정말 싫다,아니오\n" * 4
    files = {
        name: write(tmp_path / f"{name}.csv", content.encode(name)) for name in ("cp949", "utf-8")
    }
    corpus = {"file": "cp949.csv", "text": "글", "label": "답"}
    run = trained(
        tmp_path, "classification", {"train": corpus, "validation": corpus, "encoding": "ms949"}
    )
    typed = succeed("predict", run, *["참 좋다", "정말 싫다"] * 4).out
    for encoding, options in {"cp949": [], "utf-8": ["--set", "data.encoding=utf-8"]}.items():
        given = ["--file", files[encoding], *options]
        assert succeed("predict", run, *given).out == typed
        succeed("predict", run, *given, "--out", tmp_path / f"{encoding}.out")
        assert (tmp_path / f"{encoding}.out").read_text(encoding="utf-8") == typed
        assert succeed("evaluate", run, *given, "--json").json["examples"] == 8
    for options in ([], ["--skip-bad"]):
        [message] = fail("predict", run, "--file", files["utf-8"], *options)
        assert (
            "is not CP949 (name its encoding with data.encoding=utf-8; or save it as UTF-8)"
            in message
        )
    assert succeed("evaluate", run, "--json").json["examples"] == 8
    others = {
        "stories": ["--story", "1 Mary went to the garden.\n2 Where is Mary?\n"],
        "bert": ["--file", "a text\n"],
    }
    vectors = ["--features", tmp_path / "v.npz", "--overwrite"]
    for name, (option, text) in others.items():
        more, outputs = vectors if name == "bert" else [], []
        for encoding in ("utf-8", "utf-16"):
            file = write(tmp_path / "other.txt", text.encode(encoding))
            outputs.append(
                succeed(
                    "predict", runs[name], option, file, *more, "--set", f"data.encoding={encoding}"
                )
            )
        assert outputs[0] == outputs[1]


def test_nothing_known_is_predicted_with_a_note(runs: Runs) -> None:
    """One rule for labels, numbers, choices, tags and answers: evaluate reads such texts, too."""
    typed = {
        "reviews": "ㅋㅋ 한글",
        "regression": "a cat\tㅋㅋ 한글",
        "choices": "a cat\tㅋㅋ 한글\tsleeps",
        "tagging": "ㅋㅋ 한글",
        "questions": "Who sings?\tㅋㅋ 한글",
    }
    for name, text in typed.items():
        found = succeed("predict", runs[name], text, text, "--json")
        assert len(found.jsons) == 2
        note = "note: input 1: every token of 'ㅋㅋ 한글' is unknown to the tokenizer"
        assert found.err.splitlines() == [
            f"{note} (it was trained on other words or script), and so for 1 more"
        ]
        notes = regard.predict(runs[name], [tuple(text.split("\t"))] * 2).notes
        assert [(note.kind, str(note).split(":")[0]) for note in notes] == [
            ("unknown", f"input {n}") for n in (1, 2)
        ]
        if name == "tagging":
            assert [(word["start"], word["end"]) for word in found.jsons[0]["words"]] == [
                (0, 2),
                (3, 5),
            ]
    assert succeed("predict", runs["reviews"], "very good").err == ""
    # a tab in a single text is none between two
    assert succeed("predict", runs["reviews"], "very good\tㅋㅋ").err == (
        "note: input 1 has 1 token that is not in the vocabulary ('ㅋㅋ'): the model reads <unk> "
        "there\n"
    )
