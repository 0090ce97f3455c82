"""Recipes and rows that are sent by others: they read no file of this machine, and nothing without bounds."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from regard.config import written
from regard.recipes.recipe import recipe_for
from regard.tasks import TASKS
from regard.training.check import check

# Every field of every config that can hold a path

PATHS = {
    ("Corpus", "file"), ("Corpus", "dataset"), ("OneFile", "file"),
    ("Stories", "file"), ("TaggedText", "file"), ("QuestionedText", "file"),
    ("Parallel", "source"), ("Parallel", "target"), ("Summarized", "document"), ("Summarized", "summary"),
    ("Captioned", "image"), ("Captioned", "caption"), ("Labelled", "text"), ("Labelled", "label"),
    ("Labelled", "first"), ("Labelled", "second"), ("RawText", "text"),
    ("TokenizerConfig", "file"), ("TrainingConfig", "init"), ("Recipe", "within"),
    ("VectorsConfig", "source"), ("VectorsConfig", "target"), ("VectorsConfig", "text"),
}  # fmt: skip
"""Fields that name files or folders: each is tried below."""
NO_PATHS = {
    ("Corpus", "subset"), ("Corpus", "split"), ("Corpus", "prefix"),
    ("Choices", "text"), ("Choices", "choices"), ("Choices", "label"),  # columns of a file only
    ("Stories", "story"), ("Stories", "question"), ("Stories", "answer"), ("Stories", "facts"),
    ("TaggedText", "tokens"), ("TaggedText", "tags"),
    ("QuestionedText", "context"), ("QuestionedText", "question"), ("QuestionedText", "answers"),
    ("Splits", "encoding"), ("TrainingConfig", "best"), ("Recipe", "task"),
    ("ClassHeadConfig", "labels"), ("ClassHeadConfig", "class_weights"), ("ChoiceHeadConfig", "labels"),
    ("TagHeadConfig", "labels"), ("SearchConfig", "prefix"), ("SearchConfig", "banned"),
}  # fmt: skip
"""Fields that hold texts which are never used as paths."""


def kinds_in(annotation: Any) -> Iterator[type]:
    """The classes in a type, but not the values of a Literal."""
    if isinstance(annotation, type):
        yield annotation
    for argument in get_args(annotation):
        if isinstance(argument, type) or get_args(argument):
            yield from kinds_in(argument)


def owner_of(kind: type[BaseModel], field: str) -> str:
    """The name of the class that declares a field, the last one if several do."""
    return next(written(base).__name__ for base in kind.__mro__ if field in base.__dict__.get("__annotations__", {}))


def text_fields() -> set[tuple[str, str]]:
    """The fields of all configs of all tasks that can hold any text, by the class that declares them."""
    found, left = set[tuple[str, str]](), [recipe_for(task) for task in TASKS.values()]
    seen = set[type]()
    while left:
        kind = left.pop()
        if kind in seen:
            continue
        seen.add(kind)
        for name, field in kind.model_fields.items():
            kinds = {*kinds_in(field.annotation)}
            left += [below for below in kinds if issubclass(below, BaseModel)]
            if kinds & {str, Path, bytes, object} or field.annotation is Any:
                found.add((owner_of(kind, name), name))
    return found


def test_no_field_that_may_hold_a_path_is_forgotten() -> None:
    """A new field with a text is either tried here, or known to name no file."""
    assert text_fields() <= PATHS | NO_PATHS, "list it in PATHS or NO_PATHS"
    assert PATHS & NO_PATHS == set()


CASES: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    # the field that names a file: the task, the rest of the corpus, the files that name it
    "Parallel.source": ("translation", {"target": "good.txt"}, ("source",)),
    "Parallel.target": ("translation", {"source": "good.txt"}, ("target",)),
    "Corpus.file": ("translation", {"source": 0, "target": 1}, ("file",)),
    "Corpus.dataset": ("translation", {"source": "a", "target": "b"}, ("dataset",)),
    "Summarized.document": ("summarization", {"summary": "good.txt"}, ("document",)),
    "Summarized.summary": ("summarization", {"document": "good.txt"}, ("summary",)),
    "Captioned.image": ("captioning", {"caption": "good.txt"}, ("image",)),
    "Captioned.caption": ("captioning", {"image": "good.txt"}, ("caption",)),
    "Labelled.text": ("classification", {"label": "good.txt"}, ("text",)),
    "Labelled.label": ("classification", {"text": "good.txt"}, ("label",)),
    "Labelled.first": ("classification", {"second": "good.txt", "label": "good.txt"}, ("first",)),
    "Labelled.second": ("classification", {"first": "good.txt", "label": "good.txt"}, ("second",)),
    "RawText.text": ("language_modeling", {}, ("text",)),
    "TaggedText.file": ("tagging", {}, ("file",)),
    "Stories.file": ("story_answering", {}, ("file",)),
    "QuestionedText.file": ("question_answering", {}, ("file",)),
}
MODELS = {
    "translation": "rnn", "summarization": "rnn", "captioning": "captioner", "classification": "bilstm",
    "language_modeling": "lstm_lm", "tagging": "bilstm", "story_answering": "memory_network", "question_answering": "bert",
}  # fmt: skip
SECRET = "the secret words of another user"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what was sent, beside one that nobody may read; links lead from the one to the other."""
    root = tmp_path_factory.mktemp("machine")
    sent, private = root / "sent", root / "private"
    sent.mkdir()
    private.mkdir()
    for name in ("words.txt", "words.tsv", "words.conll", "words.json", "words.jsonl", "words.npy", "recipe.yaml"):
        (private / name).write_text(f"{SECRET}\t{SECRET}\n" * 20, encoding="utf-8")
    (sent / "good.txt").write_text("".join(f"a b {number}\n" for number in range(20)), encoding="utf-8")
    (sent / "link").symlink_to(private)
    for name in ("words.txt", "words.tsv", "words.conll", "words.json", "words.jsonl"):
        (sent / f"linked-{name}").symlink_to(private / name)
    return root


def attacks(root: Path, suffix: str) -> Iterator[tuple[str, str]]:
    """Names of a private file, each with the same kind of name for a file that does not exist."""
    for name in (f"words{suffix}", "nothing-of-the-kind" + suffix):
        yield "absolute", f"{root}/private/{name}"
        yield "above", f"../private/{name}"
        yield "around", f"./x/../../private/{name}"
        yield "home", f"~/{name}"
        yield "link to a folder", f"link/{name}"
        yield "link to a file", f"linked-{name}"
        yield "address", f"file://{root}/private/{name}"
        yield "drive", f"C:\\private\\{name}"
        yield "pattern", f"../private/*{name[1:]}"
        yield "pattern in a link", f"link/*{name[1:]}"
        yield "absolute pattern", f"{root}/private/**/{name}"
    yield "folder above", ".."
    yield "folder of others", "../private"
    yield "linked folder", "link"
    yield "zero byte", "good.txt\0"
    yield "too long", "x" * 5000


opened: list[str] = []
watching: list[str] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if watching and event in ("open", "os.scandir", "os.listdir") and isinstance(arguments[0], str | bytes | os.PathLike):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if path.startswith(watching[0]):
            opened.append(path)


sys.addaudithook(_watch)


@pytest.fixture
def watched(machine: Path) -> Iterator[list[str]]:
    """What has been opened or listed in the private folder."""
    opened.clear()
    watching[:] = [str((machine / "private").resolve())]
    yield opened
    watching.clear()


def refused(machine: Path, tree: dict[str, Any]) -> str:
    """What is said of a recipe that may only read what was sent, in the JSON that a client gets."""
    (machine / "sent" / "recipe.yaml").write_text(json.dumps(tree), encoding="utf-8")  # JSON is YAML
    found = check(machine / "sent" / "recipe.yaml", quiet=True, within=machine / "sent")
    assert not found.ok
    said = json.dumps(found.to_json(), ensure_ascii=False)
    assert SECRET not in said
    return said


def recipe(task: str, part: str, corpus: dict[str, Any], **sections: Any) -> dict[str, Any]:
    data = {"train": {"corpus": "reverse", "size": 20}, part: corpus} if task == "translation" else {"train": corpus}
    return {
        "task": task, "data": data | {part: corpus}, "model": {"kind": MODELS[task], "preset": "tiny"},
        "training": {"steps": 1, "device": "cpu"}, **sections,
    }  # fmt: skip


@pytest.mark.parametrize("field", CASES)
def test_data_outside_is_not_read(machine: Path, watched: list[str], field: str) -> None:
    """Files that exist and files that do not are refused in the same words, and none is opened."""
    task, others, names = CASES[field]
    suffix = {"tagging": ".conll", "story_answering": ".txt", "question_answering": ".json"}.get(task, ".txt")
    suffix = ".tsv" if field == "Corpus.file" else suffix
    said: dict[str, set[str]] = {}
    for kind, name in attacks(machine, suffix):
        part = ("train", "validation", "test")[len(kind) % 3]
        text = refused(machine, recipe(task, part, {**others, **dict.fromkeys(names, name)}))
        for hidden in (json.dumps(name)[1:-1], name, "nothing-of-the-kind", "words", "othing-of-the-kind", "ords"):
            text = text.replace(hidden, "")
        said.setdefault(kind, set()).add(text)
    assert watched == []
    assert {kind: len(texts) for kind, texts in said.items() if len(texts) > 1} == {}


@pytest.mark.parametrize("section", ["tokenizer", "tokenizers", "source", "target", "text"])
def test_tokenizers_and_vectors_outside_are_not_read(machine: Path, watched: list[str], section: str) -> None:
    said: dict[str, set[str]] = {}
    for kind, name in attacks(machine, ".json"):
        tree: dict[str, Any] = recipe("translation", "train", {"corpus": "reverse", "size": 20})
        if section == "text":
            tree = recipe("language_modeling", "train", {"corpus": "tales-en"})
        match section:
            case "tokenizer":
                tree["tokenizer"] = {"file": name}
            case "tokenizers":
                tree["tokenizer"] = {"file": {"source": name, "target": name}, "joint": False}
            case side:
                tree["model"] |= {"vectors": {side: name}}
        text = refused(machine, tree)
        for hidden in (json.dumps(name)[1:-1], "nothing-of-the-kind", "words", "othing-of-the-kind", "ords"):
            text = text.replace(hidden, "")
        said.setdefault(kind, set()).add(text)
    assert watched == []
    assert {kind: len(texts) for kind, texts in said.items() if len(texts) > 1} == {}


def test_images_that_tables_name_are_not_read(machine: Path, watched: list[str]) -> None:
    said: dict[str, set[str]] = {}
    for encoder in ("cnn", "features"):
        for kind, name in attacks(machine, ".npy" if encoder == "features" else ".txt"):
            row = {"image": name, "caption": "a circle"}
            (machine / "sent" / "images.jsonl").write_text(f"{json.dumps(row)}\n" * 9, encoding="utf-8")
            columns = {"file": "images.jsonl", "image": "image", "caption": "caption"}
            tree = recipe("captioning", "train", columns)
            tree["model"] |= {"encoder": "features", "feature_width": 8} if encoder == "features" else {}
            text = refused(machine, tree)
            for hidden in (json.dumps(json.dumps(name))[2:-2], json.dumps(name)[1:-1], name, "nothing-of-the-kind", "words"):
                text = text.replace(hidden, "")
            said.setdefault(f"{encoder} {kind}", set()).add(text)
    assert watched == []
    assert {kind: len(texts) for kind, texts in said.items() if len(texts) > 1} == {}


def test_what_is_sent_along_is_read(machine: Path) -> None:
    """Files inside the folder are read as always, and patterns where no link leads out of it."""
    (machine / "sent" / "link").unlink()
    for name in ("good.txt", "./good.txt", "good*"):
        tree = recipe("language_modeling", "train", {"text": name, "documents": "lines"}, tokenizer={"kind": "character"})
        (machine / "sent" / "recipe.yaml").write_text(json.dumps(tree), encoding="utf-8")
        found = check(machine / "sent" / "recipe.yaml", quiet=True, within=machine / "sent")
        assert found.ok, found.problems
