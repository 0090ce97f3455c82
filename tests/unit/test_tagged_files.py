"""Files of tagged words with mistakes: all of them are told at once, each with its line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import fail, regard, succeed, write
from regard.config import write_yaml
from regard.data.conll import TaggedText
from regard.data.readers import open_corpus
from regard.tasks.tagging import TaggedInput, TaggedWord
from regard.text.normalise import Span

MODEL = {"kind": "bilstm", "preset": "tiny", "embedding": 8, "hidden": 8}
TRAINING = {"steps": 2, "batch_tokens": 256, "device": "cpu"}
SOUND = "Anna B-PER\nleft O\n\nBen B-PER\nleft O\n\nMary B-PER\nleft O\n\n"


def recipe(folder: Path, **data: Any) -> Path:
    tree = {"task": "tagging", "data": data, "tokenizer": {"kind": "word"}, "model": MODEL, "training": TRAINING}
    return write(folder / "recipe.yaml", write_yaml(tree))


def places(messages: list[str]) -> list[str]:
    return [message.partition(": ")[0] for message in messages]


def test_every_uneven_line_and_every_bad_tag_is_told(tmp_path: Path) -> None:
    write(tmp_path / "a.conll", f"{SOUND}in X O\nOslo B-LOC\non\n\nIn B_LOC\nOslo B_LOC\n\nBen X\n")
    messages = fail("check", recipe(tmp_path, train={"file": "a.conll"}))
    assert places(messages) == ["a.conll:10", "a.conll:12", "a.conll:14", "a.conll:17"]
    assert messages[0].startswith("a.conll:10: there are 3 columns, where the lines before have 2")
    assert messages[1].startswith("a.conll:12: there is one column, where")
    assert messages[2].startswith("a.conll:14: the tag 'B_LOC' is of no scheme"), "the first of a sentence"


def test_every_bad_object_is_told(tmp_path: Path) -> None:
    lines = [
        {"tokens": ["Anna", "left"], "tags": ["B-PER", "O"]}, {"tokens": ["a", "b"], "tags": ["O"]}, [1, 2],
        {"tokens": "a b", "tags": ["O"]}, {"words": ["a"], "tags": ["O"]}, {"tokens": ["a"], "tags": ["NN"]},
    ]  # fmt: skip
    write(tmp_path / "a.jsonl", "".join(json.dumps(line) + "\n" for line in lines) + "{no\n")
    messages = fail("check", recipe(tmp_path, train={"file": "a.jsonl"}))
    assert places(messages) == [f"a.jsonl:{line}" for line in range(2, 8)]
    assert messages[1] == "a.jsonl:3: [1, 2] is not an object (one object a line is expected, with 'tokens', 'tags')"


def test_a_wrong_column_or_scheme_is_told_once(tmp_path: Path) -> None:
    """Not line by line: one setting is to blame. Other mistakes beside it are told, too."""
    objects = "".join(json.dumps({"tokens": ["Anna", word], "ner": ["B-PER", "O"]}) + "\n" for word in "abcdefgh" * 4)
    write(tmp_path / "a.jsonl", objects)
    [message] = fail("check", recipe(tmp_path, train={"file": "a.jsonl"}))
    assert message == "a.jsonl:1: there is no column 'tags' (the columns are tokens, ner)"
    write(tmp_path / "a.conll", "It O\n\n" + "Anna I-PER\nleft O\n\n" * 30 + "Ben\n")
    wrong = {"file": "a.conll", "scheme": "iob2"}
    messages = fail("check", recipe(tmp_path, train=wrong))
    said = "'I-PER' cannot stand at the beginning of a sentence in the scheme iob2, and so in 29 more lines (scheme: "
    assert messages[0].startswith(f"a.conll:3: {said}")
    assert places(messages) == ["a.conll:3", "a.conll:93"]
    write(tmp_path / "b.conll", "Anna NNP O\n\nleft VB O\n" * 30)
    [message] = fail("check", recipe(tmp_path, train={"file": "b.conll", "tags": 1}))
    assert message.startswith("b.conll:1: the tag 'NNP' is of no scheme"), "no sentence is sound"


def test_sentences_with_faults_can_be_dropped(tmp_path: Path) -> None:
    write(tmp_path / "a.conll", f"{SOUND}in X O\nOslo B-LOC\n")
    report = succeed("check", recipe(tmp_path, train={"file": "a.conll"}, bad_lines="drop")).out
    assert "a.conll:10" in report


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write(tmp_path / "train.conll", SOUND)
    succeed(
        "train",
        recipe(tmp_path, train={"file": "train.conll"}, validation={"file": "train.conll"}),
        "--out",
        tmp_path / "run",
    )
    return tmp_path / "run"


def test_a_file_to_measure_and_one_to_tag(run: Path, tmp_path: Path) -> None:
    bad = write(tmp_path / "b.conll", f"{SOUND}in X O\n\nOslo\n")
    assert places(fail("evaluate", run, "--file", bad)) == [f"{bad}:10", f"{bad}:12"]
    assert places(fail("predict", run, "--file", bad))[:2] == [f"{bad}:10", f"{bad}:12"]
    found = succeed("predict", run, "--file", bad, "--skip-bad", "--json").jsons
    assert [one["output"] is None for one in found] == [False, False, False, True, True]
    write(tmp_path / "d.conll", "It O\n\n" + "left X\n\n" * 30)
    [message] = fail("evaluate", run, "--file", tmp_path / "d.conll")
    assert "the tag 'X' is of no scheme, and so in 29 more lines (" in message
    unknown = write(tmp_path / "c.conll", "Oslo B-LOC\nin O\nMay B-DATE\n\nBern B-LOC\n")
    messages = fail("evaluate", run, "--file", unknown)
    assert places(messages) == [f"{unknown}:1"] * 2, "each unknown tag at the sentence where it first stands"
    assert [message.split("' of ")[1].split(" does")[0] for message in messages] == ["'Oslo'", "'May'"]


def test_one_tag_is_nothing_to_learn(tmp_path: Path) -> None:
    write(tmp_path / "a.conll", "Anna NNP O\nleft VB O\n\nBen NNP O\nleft VB O\n")
    [message] = fail("check", recipe(tmp_path, train={"file": "a.conll"}))
    assert message.startswith("data.train: every tag is 'O' (two tags at the least: is it the right column?")
    plain = {"file": "a.conll", "tags": 2, "scheme": "plain"}
    assert "every tag is 'O'" in fail("check", recipe(tmp_path, train=plain))[0]
    assert regard("check", recipe(tmp_path, train=plain | {"tags": 1})).code == 0


@pytest.mark.parametrize("name", ["a.parquet", "a.json"])
def test_a_file_that_holds_no_tagged_words(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, b"PAR1\0\xff")
    [message] = fail("check", recipe(tmp_path, train={"file": name}))
    suffix = Path(name).suffix
    assert message.startswith(f"{name}: tagged sentences cannot be read from a {suffix} (CoNLL's columns, a word and")


def test_other_spaces_are_part_of_a_word(tmp_path: Path) -> None:
    """Columns stand between tabs or blanks: a no-break or an ideographic space is neither."""
    write(tmp_path / "a.conll", "New\u00a0York  X B-LOC\n東\u3000京 X B-LOC \n \u00a0 \nBern\u2009 X B-LOC\n")
    rows = [
        [json.loads(value) for value in row.values] for row in open_corpus(TaggedText(file="a.conll"), tmp_path).rows()
    ]
    assert rows == [[["New\u00a0York", "東\u3000京"], ["B-LOC"] * 2], [["Bern\u2009"], ["B-LOC"]]]


def test_whole_numbers_are_tags_like_others(tmp_path: Path) -> None:
    """As the Hugging Face datasets have them."""
    write(tmp_path / "a.jsonl", '{"tokens": ["Anna", "left"], "ner_tags": [7, 0]}\n' * 2)
    corpus = {"file": "a.jsonl", "tags": "ner_tags"}
    [row, _] = open_corpus(TaggedText(**corpus, scheme="plain"), tmp_path)  # type: ignore[arg-type]
    assert json.loads(row.values[1]) == ["7", "0"]
    messages = fail("check", recipe(tmp_path, train=corpus))
    assert messages[0].startswith("a.jsonl:1: the tag '7' is of no scheme (expected is O, B-PER")
    assert "scheme: plain" in messages[0]


def test_entities_are_slices_of_the_text() -> None:
    text, tags = "Anna Kim lives in Oslo.", ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]
    spans = [Span(0, 4), Span(5, 8), Span(9, 14), Span(15, 17), Span(18, 22), Span(22, 23)]
    words = tuple(TaggedWord(span, tag, 0.5) for span, tag in zip(spans, tags, strict=True))
    found = TaggedInput(text, words, finds_entities=True)
    assert [(one.type, one.text, one.probability) for one in found.entities] == [
        ("PER", "Anna Kim", 0.25), ("LOC", "Oslo", 0.5),
    ]  # fmt: skip
    assert all(text[one.start : one.end] == one.text for one in found.entities)
    assert [entity["start"] for entity in found.to_json()["entities"]] == [0, 18]
    assert TaggedInput(text, words, finds_entities=False).entities == []
