"""Recipes and rows that are sent by others: they read no file of this machine, and nothing without
bounds."""

from __future__ import annotations

import asyncio
import base64
import inspect
import io
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

import regard
from raw_cases import Runs
from regard.config import written
from regard.recipes.recipe import recipe_for, recipe_of
from regard.runs.run import Run
from regard.search.stopping import StoppedError, stoppable
from regard.tasks import TASKS
from regard.training.check import check

TestClient = pytest.importorskip("fastapi.testclient").TestClient

from regard.studio import sent, verbs  # noqa: E402
from regard.studio.batching import Batcher, QueuedRequest  # noqa: E402
from regard.studio.checker import Checker  # noqa: E402
from regard.studio.runs import offered_inputs  # noqa: E402
from regard.studio.server import create_app  # noqa: E402
from regard.studio.settings import Settings  # noqa: E402

LOCAL = "http://127.0.0.1"

# Every field of every config that can hold a path

PATHS = {
    ("Corpus", "file"),
    ("Corpus", "dataset"),
    ("Stories", "file"),
    ("TaggedText", "file"),
    ("QuestionedText", "file"),
    ("Parallel", "source"),
    ("Parallel", "target"),
    ("Summarized", "document"),
    ("Summarized", "summary"),
    ("Captioned", "image"),
    ("Captioned", "caption"),
    ("Labelled", "text"),
    ("Labelled", "label"),
    ("Labelled", "first"),
    ("Labelled", "second"),
    ("RawText", "text"),
    ("TokenizerConfig", "file"),
    ("TrainingConfig", "init"),
    ("TrainingConfig", "watch"),
    ("Recipe", "within"),
    ("VectorsConfig", "source"),
    ("VectorsConfig", "target"),
    ("VectorsConfig", "text"),
}
"""Fields that name files or folders: each is tried below."""
NO_PATHS = {
    ("Corpus", "subset"),
    ("Corpus", "split"),
    ("Corpus", "prefix"),
    ("Choices", "text"),
    ("Choices", "choices"),
    ("Choices", "label"),  # columns of a file only
    ("Stories", "story"),
    ("Stories", "question"),
    ("Stories", "answer"),
    ("Stories", "facts"),
    ("TaggedText", "tokens"),
    ("TaggedText", "tags"),
    ("TextPairs", "source_language"),
    ("TextPairs", "target_language"),
    ("QuestionedText", "context"),
    ("QuestionedText", "question"),
    ("QuestionedText", "answers"),
    ("Splits", "encoding"),
    ("TrainingConfig", "best"),
    ("Recipe", "task"),
    ("ClassHeadConfig", "labels"),
    ("ClassHeadConfig", "class_weights"),
    ("ChoiceHeadConfig", "labels"),
    ("TagHeadConfig", "labels"),
    ("SearchConfig", "prefix"),
    ("SearchConfig", "banned"),
}
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
    return next(
        written(base).__name__ for base in kind.__mro__ if field in inspect.get_annotations(base)
    )


def text_fields() -> set[tuple[str, str]]:
    """The fields of all configs of all tasks that can hold any text, by the class that declares
    them."""
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
    assert text_fields() == PATHS | NO_PATHS, "list it in PATHS or NO_PATHS"
    assert not PATHS & NO_PATHS
    assert {f"{owner}.{name}" for owner, name in PATHS} == {*CASES, *ELSEWHERE}


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
ELSEWHERE = {
    "TokenizerConfig.file",
    "VectorsConfig.source",
    "VectorsConfig.target",
    "VectorsConfig.text",
    "TrainingConfig.init",
    "TrainingConfig.watch",
    "Recipe.within",
}
"""Fields of PATHS that tests of their own try."""
MODELS = {
    "translation": "rnn",
    "summarization": "rnn",
    "captioning": "captioner",
    "classification": "bilstm",
    "language_modeling": "lstm_lm",
    "tagging": "bilstm",
    "story_answering": "memory_network",
    "question_answering": "bert",
}
SECRET = "the secret words of another user"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what was sent, beside one that nobody may read; links lead from the one to the
    other."""
    root = tmp_path_factory.mktemp("machine")
    sent, private = root / "sent", root / "private"
    sent.mkdir()
    private.mkdir()
    for name in (
        "words.txt",
        "words.tsv",
        "words.conll",
        "words.json",
        "words.jsonl",
        "words.npy",
        "recipe.yaml",
    ):
        (private / name).write_text(f"{SECRET}\t{SECRET}\n" * 20, encoding="utf-8")
    (sent / "good.txt").write_text(
        "".join(f"a b {number}\n" for number in range(20)), encoding="utf-8"
    )
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
    if (
        watching
        and event in ("open", "os.scandir", "os.listdir")
        and isinstance(arguments[0], str | bytes | os.PathLike)
    ):
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
    (machine / "sent" / "recipe.yaml").write_text(
        json.dumps(tree), encoding="utf-8"
    )  # JSON is YAML
    found = check(machine / "sent" / "recipe.yaml", quiet=True, within=machine / "sent")
    assert not found.ok
    said = json.dumps(found.to_json(), ensure_ascii=False)
    assert SECRET not in said
    return said


def recipe(task: str, part: str, corpus: dict[str, Any], **sections: Any) -> dict[str, Any]:
    data = (
        {"train": {"corpus": "reverse", "size": 20}, part: corpus}
        if task == "translation"
        else {"train": corpus}
    )
    return {
        "task": task,
        "data": data | {part: corpus},
        "model": {"kind": MODELS[task], "preset": "tiny"},
        "training": {"steps": 1, "device": "cpu"},
        **sections,
    }


@pytest.mark.parametrize("field", CASES)
def test_data_outside_is_not_read(machine: Path, watched: list[str], field: str) -> None:
    """Files that exist and files that do not are refused in the same words, and none is opened."""
    task, others, names = CASES[field]
    suffix = {"tagging": ".conll", "story_answering": ".txt", "question_answering": ".json"}.get(
        task, ".txt"
    )
    suffix = ".tsv" if field == "Corpus.file" else suffix
    said: dict[str, set[str]] = {}
    for kind, name in attacks(machine, suffix):
        part = ("train", "validation", "test")[len(kind) % 3]
        text = refused(machine, recipe(task, part, {**others, **dict.fromkeys(names, name)}))
        for hidden in (
            json.dumps(name)[1:-1],
            name,
            "nothing-of-the-kind",
            "words",
            "othing-of-the-kind",
            "ords",
        ):
            text = text.replace(hidden, "")
        said.setdefault(kind, set()).add(text)
    assert watched == []
    assert {kind: len(texts) for kind, texts in said.items() if len(texts) > 1} == {}


@pytest.mark.parametrize("section", ["tokenizer", "tokenizers", "source", "target", "text"])
def test_tokenizers_and_vectors_outside_are_not_read(
    machine: Path, watched: list[str], section: str
) -> None:
    said: dict[str, set[str]] = {}
    for kind, name in attacks(machine, ".json"):
        tree: dict[str, Any] = recipe("translation", "train", {"corpus": "reverse", "size": 20})
        if section == "text":
            tree = recipe("language_modeling", "train", {"corpus": "reviews-en", "size": 20})
        match section:
            case "tokenizer":
                tree["tokenizer"] = {"file": name}
            case "tokenizers":
                tree["tokenizer"] = {"file": {"source": name, "target": name}, "joint": False}
            case side:
                tree["model"] |= {"vectors": {side: name}}
        text = refused(machine, tree)
        for hidden in (
            json.dumps(name)[1:-1],
            "nothing-of-the-kind",
            "words",
            "othing-of-the-kind",
            "ords",
        ):
            text = text.replace(hidden, "")
        said.setdefault(kind, set()).add(text)
    assert watched == []
    assert {kind: len(texts) for kind, texts in said.items() if len(texts) > 1} == {}


def test_images_that_tables_name_are_not_read(machine: Path, watched: list[str]) -> None:
    said: dict[str, set[str]] = {}
    for encoder in ("cnn", "features"):
        for kind, name in attacks(machine, ".npy" if encoder == "features" else ".txt"):
            row = {"image": name, "caption": "a circle"}
            (machine / "sent" / "images.jsonl").write_text(
                f"{json.dumps(row)}\n" * 9, encoding="utf-8"
            )
            columns = {"file": "images.jsonl", "image": "image", "caption": "caption"}
            tree = recipe("captioning", "train", columns)
            tree["model"] |= (
                {"encoder": "features", "feature_width": 8} if encoder == "features" else {}
            )
            text = refused(machine, tree)
            for hidden in (
                json.dumps(json.dumps(name))[2:-2],
                json.dumps(name)[1:-1],
                name,
                "nothing-of-the-kind",
                "words",
            ):
                text = text.replace(hidden, "")
            said.setdefault(f"{encoder} {kind}", set()).add(text)
    assert watched == []
    assert {kind: len(texts) for kind, texts in said.items() if len(texts) > 1} == {}


def test_an_image_that_is_watched_is_not_read(machine: Path, watched: list[str]) -> None:
    """Whatever the name, it is refused in the same words; a scene of shapes is no file."""
    said: dict[str, set[str]] = {}
    for kind, name in attacks(machine, ".txt"):
        if len(name) > 500:
            continue  # longer than the field may be
        tree = recipe("captioning", "train", {"corpus": "shapes", "size": 20})
        tree["training"] |= {"watch": name}
        text = refused(machine, tree)
        assert '"where": "training.watch", "what": "there is no image' in text
        for hidden in (json.dumps(repr(name))[1:-1], json.dumps(name)[1:-1], name):
            text = text.replace(hidden, "")
        said.setdefault(kind, set()).add(text)
    assert watched == []
    assert {kind: len(texts) for kind, texts in said.items() if len(texts) > 1} == {}
    tree["training"] |= {"watch": "shapes: small red circle 20 32, large blue square 68 40"}
    (machine / "sent" / "recipe.yaml").write_text(json.dumps(tree), encoding="utf-8")
    found = check(machine / "sent" / "recipe.yaml", quiet=True, within=machine / "sent")
    assert found.ok, found.problems


def test_what_is_sent_along_is_read(machine: Path) -> None:
    """Files inside the folder are read as always, and patterns where no link leads out of it."""
    (machine / "sent" / "link").unlink()
    for name in ("./good.txt", "good*"):
        tree = recipe(
            "language_modeling",
            "train",
            {"text": name, "documents": "lines"},
            tokenizer={"kind": "character"},
        )
        (machine / "sent" / "recipe.yaml").write_text(json.dumps(tree), encoding="utf-8")
        found = check(machine / "sent" / "recipe.yaml", quiet=True, within=machine / "sent")
        assert found.ok, found.problems


# Over HTTP


def picture(side: int, mode: str = "RGB") -> str:
    image = pytest.importorskip("PIL.Image")
    image.new(mode, (side, side)).save(content := io.BytesIO(), "PNG")
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"


@pytest.fixture(scope="module")
def client(tiny_run: Path, runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    loaded = {
        "tiny": regard.load(tiny_run, device="cpu"),
        "captioner": regard.load(runs["captioner"], device="cpu"),
    }
    root = tmp_path_factory.mktemp("studio")
    with TestClient(create_app(loaded, Settings(), root=root), base_url=LOCAL) as client:
        client.root = root
        yield client


def finished(client: Any, job: str) -> dict[str, Any]:
    while (status := client.get(f"/jobs/{job}").json())["state"] in ("waiting", "running"):
        time.sleep(0.01)
    return dict(status)


def test_rows_name_no_image_of_the_machine(client: Any, tmp_path: Path) -> None:
    """Only images in the row itself are read; existing and missing files are refused in the same
    words."""
    picture_file = tmp_path / "there.png"
    picture_file.write_bytes(base64.b64decode(picture(8).partition(",")[2]))
    said = set()
    for verb in ("evaluate", "diagnose"):
        for name in (
            str(picture_file),
            f"{tmp_path}/missing.png",
            "/etc/shadow",
            "../x.png",
            "rows.jsonl",
        ):
            rows = [{"image": name, "caption": "a red circle"}]
            status = finished(
                client, client.post(f"/runs/captioner/{verb}", json={"rows": rows}).json()["id"]
            )
            assert status["state"] == "failed"
            said.add(status["error"].replace(name, ""))
    [refused] = {text for text in said if "no image" in text}
    assert refused.startswith("rows.jsonl:1: there is no image")
    rows = [{"image": picture(8), "caption": "a red circle"}]
    assert (
        finished(client, client.post("/runs/captioner/evaluate", json={"rows": rows}).json()["id"])[
            "state"
        ]
        == "done"
    )


def test_a_sent_table_names_no_image_of_the_machine(client: Any, tmp_path: Path) -> None:
    """A training refuses existing and missing files in the same words, and writes through no link
    that lies where its files go."""
    (tmp_path / "red.png").write_bytes(base64.b64decode(picture(8).partition(",")[2]))
    (tmp_path / "elsewhere").mkdir()
    (client.root / ".sent").mkdir(mode=0o700, exist_ok=True)
    (client.root / ".sent" / "red").symlink_to(tmp_path / "elsewhere")
    columns = {"file": "t.jsonl", "image": "image", "caption": "caption"}
    tree = {
        "task": "captioning",
        "data": {"train": columns, "validation": {"split": 0.2}},
        "model": {"kind": "captioner", "preset": "tiny"},
        "training": {"steps": 1},
    }
    said = set()
    for name in ("red", "missing"):
        rows = [{"image": picture(8 + size), "caption": f"a {size}"} for size in range(12)]
        rows += [{"image": f"{tmp_path}/{name}.png", "caption": f"b {size}"} for size in range(3)]
        table = {"name": "t.jsonl", "text": "".join(f"{json.dumps(row)}\n" for row in rows)}
        body = {"name": name, "recipe": json.dumps(tree), "files": [table]}
        assert client.post("/trainings", json=body).status_code == 201
        while (status := client.get(f"/trainings/{name}").json())["state"] == "training":
            time.sleep(0.05)
        assert status["state"] == "failed"
        said.add(status["message"].replace(f"{name}.png", ""))
    [refused] = said
    assert refused.startswith("t.jsonl:13: there is no image")
    assert [*(tmp_path / "elsewhere").iterdir()] == []


def test_a_run_of_sent_data_stays_confined(runs: Runs, tmp_path: Path) -> None:
    """Rows that its training did not draw, or dropped, may name any file; the run's examples do not
    show it."""
    sent_folder = tmp_path / "sent"
    sent_folder.mkdir()
    (tmp_path / "stolen.png").write_bytes(base64.b64decode(picture(8).partition(",")[2]))
    row = json.dumps({"image": str(tmp_path / "stolen.png"), "caption": "a red circle"})
    (sent_folder / "t.jsonl").write_text(f"{row}\n" * 40, encoding="utf-8")
    folder = shutil.copytree(runs["captioner"], tmp_path / "run")
    tree = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    tree["data"]["train"] = [
        {"file": str(sent_folder / "t.jsonl"), "image": "image", "caption": "caption", "size": 1}
    ]
    tree["data"] |= {"validation": {"split": 0.1}, "test": None}
    for within, shown in ((str(sent_folder), False), (None, True)):
        run = Run.open(folder).under(recipe_of(tree | {"within": within}))
        assert any(example.startswith("data:") for example in offered_inputs(run)) is shown


def test_the_owner_of_a_run_may_evaluate_any_file(runs: Runs, tmp_path: Path) -> None:
    """`within` is about the data of the recipe, not about a file that is named to a verb."""
    (tmp_path / "red.png").write_bytes(base64.b64decode(picture(8).partition(",")[2]))
    (tmp_path / "own.jsonl").write_text(
        json.dumps({"image": "red.png", "caption": "a red circle"}) + "\n"
    )
    run = Run.open(runs["captioner"])
    run = run.under(recipe_of(run.recipe.model_dump() | {"within": str(tmp_path / "sent")}))
    assert (
        regard.evaluate(run, files=tmp_path / "own.jsonl", device="cpu", predictions=False)[
            "images"
        ]
        == 1
    )


RECIPE = """task: translation
data: {train: {corpus: reverse, size: 50}}
tokenizer: {kind: character}
model: {kind: transformer, preset: tiny}
training: {steps: 3, batch_tokens: 128, device: cpu}
"""
TOO_LARGE = [
    ("size: 50", "size: 1000000000", "data.train.size: 1,000,000,000 is too large"),
    (
        "{corpus: reverse, size: 50}",
        str([{"corpus": "dates", "size": 400_000}] * 3),
        "have 1,200,000 examples",
    ),
    (
        "{corpus: reverse, size: 50}",
        str([{"corpus": "dates", "size": 5}] * 40),
        "40 corpora are too many",
    ),
    ("size: 50", "size: 50, weight: 1e9", "data.train.weight"),
    ("data: {", "data: {workers: 4000, ", "data.workers: 4,000 is too large"),
    ("steps: 3", "steps: 30000000", "training.steps: 30,000,000 is too large"),
    ("batch_tokens: 128", "batch_tokens: 1000000000", "training.batch_tokens"),
    (
        "preset: tiny",
        "preset: tiny, encoder_layers: 1000000",
        "model.encoder_layers: 1,000,000 is too large",
    ),
    ("preset: tiny", "preset: tiny, width: 10000000", "model.width: 10,000,000 is too large"),
    (
        "preset: tiny",
        "preset: big, decoder_layers: 60",
        "parameters, too many for a recipe that is sent",
    ),
    ("kind: character", "kind: bpe, vocabulary: 1000000000", "tokenizer.vocabulary"),
    ("training:", "search: {beam: 1000}\ntraining:", "search.beam: 1,000 is too large"),
]


@pytest.mark.parametrize(("old", "new", "said"), TOO_LARGE)
def test_a_recipe_that_is_too_large_is_refused_at_once(
    client: Any, old: str, new: str, said: str
) -> None:
    text = RECIPE.replace(old, new)
    assert text != RECIPE
    for route, name in (("/check", {}), ("/trainings", {"name": "large"})):
        answer = client.post(route, json={"recipe": text, **name})
        assert answer.status_code == 422
        assert said in answer.json()["error"]
        assert "at most" in answer.json()["error"]
    assert not [*client.root.rglob("large*")]


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("columns", [("text", "label"), ("first", "second", "label")])
def test_what_is_proposed_for_data_may_be_sent(
    client: Any, language: str, columns: tuple[str, ...]
) -> None:
    """The studio trains the recipe that it has proposed itself."""
    words = {
        "en": ("The film was {} today", "good", "bad"),
        "ko": ("그 영화는 {}", "재미있었어요", "지루했어요"),
    }
    text, *labels = words[language]
    lines = [
        [*[f"{text.format(label)} {n}"] * (len(columns) - 1), label]
        for n in range(40)
        for label in labels
    ]
    table = "".join(",".join(row) + "\n" for row in [[*columns], *lines])
    body = {"files": [{"name": "data.csv", "text": table}]}
    status = finished(client, client.post("/check", json=body).json()["id"])
    proposed = status["result"]["proposal"]
    assert [*sent._large_numbers(yaml.safe_load(proposed))] == []


def test_what_a_check_notices_is_told_in_the_language_of_the_reader(client: Any) -> None:
    rows = [f"문장 {n},{label}" for n in range(30) for label in ("좋음", "나쁨")]
    table = "\n".join(["text,label", *rows, rows[0]])
    body = {"files": [{"name": "data.csv", "text": table}]}
    job = client.post("/check", json=body).json()["id"]
    finished(client, job)
    korean = client.get(f"/jobs/{job}", headers={"accept-language": "ko"}).json()
    assert any("제외했습니다" in note for note in korean["notes"])
    assert "# 시험용" in korean["proposal"] or "# 입력" in korean["proposal"]
    assert korean["mistakes"] == []
    english = client.get(f"/jobs/{job}", headers={"accept-language": "en"}).json()
    assert any(note.startswith("dropped 1 of 61") for note in english["notes"])


def test_images_that_would_fill_the_disk_are_refused(client: Any) -> None:
    model = "model: {kind: captioner, images: {size: 1024}}"
    text = (
        "task: captioning\ndata: {train: {corpus: shapes, size: "
        f"5000}}}}\n{model}\ntraining: {{steps: 1}}\n"
    )
    answer = client.post("/check", json={"recipe": text})
    assert (answer.status_code, "at most 1,000,000,000 in all" in answer.json()["error"]) == (
        422,
        True,
    )


def test_files_that_are_too_large_are_refused_at_once(client: Any) -> None:
    for name, text, said in (
        ("t.csv", ",".join(f"c{n}" for n in range(2_000)) + "\n1\n", "2,000 columns"),
        ("t.csv", ";".join("c" * 900 for n in range(1_001)) + "\n1\n", "1,001 columns"),
        ("t.tsv", "\t".join("abc" for n in range(2_000)), "2,000 columns"),
        (
            "t.jsonl",
            json.dumps({f"c{n}": "x" for n in range(2_000)}).replace('": ', '":'),
            "2,000 columns",
        ),
        ("t.txt", "a\n" * 600_000, "600,000 rows"),
        ("t.json", "[" + ",".join(["{}"] * 600_000) + "]", "600,000 rows"),
        ("x.yaml", RECIPE, "this is not a file of data"),
        ("x", RECIPE, "this is not a file of data"),
    ):
        answer = client.post("/check", json={"files": [{"name": name, "text": text}]})
        assert (answer.status_code, said in answer.json()["error"]) == (422, True), answer.text


def numbers() -> dict[str, tuple[float | None, Any]]:
    """Every number of a recipe by its path, with its largest value if its config limits it."""
    found, left = (
        dict[str, tuple[float | None, Any]](),
        [("", recipe_for(task)) for task in TASKS.values()],
    )
    while left:
        path, kind = left.pop()
        for name, field in kind.model_fields.items():
            own, kinds = f"{path}.{name}".lstrip("."), {*kinds_in(field.annotation)}
            left += [(own, below) for below in kinds if issubclass(below, BaseModel)]
            if kinds & {int, float} and bool not in kinds:
                highest = [
                    getattr(limit, "le", getattr(limit, "lt", None)) for limit in field.metadata
                ]
                found[own] = next((most for most in highest if most is not None), None), kinds
    return found


HARMLESS = {
    "data.max_characters",
    "data.max_question",
    "data.max_ratio",
    "data.stride",
    "data.masked_weight",
    "data.replaced_weight",
    "evaluation.threshold",
    "head.auxiliary",
    "head.class_weights",
    "head.consistency",
    "head.freeze",
    "search.min_length_ratio",
    "search.no_repeat_ngram",
    "tokenizer.sample",
    "training.batch_tokens",
    "training.betas",
    "training.checkpoint_every",
    "training.clip",
    "training.learning_rate",
    "training.log_every",
    "training.patience",
    "training.plateau_patience",
    "training.validate_every",
    "training.warmup",
    "training.weight_decay",
}
"""Numbers without a limit of their own that cost nothing however large they are."""
COLUMN = re.compile(r"data\.(train|validation|test)\.\w+")


def test_every_number_of_a_sent_recipe_is_limited() -> None:
    """A new number is limited by its config or by `sent.MAX_VALUES`, or known to cost nothing."""
    for path, (highest, _) in numbers().items():
        limited = highest is not None or sent._limit(path) is not None
        is_column = COLUMN.fullmatch(path) and not path.endswith((".size", ".weight"))
        assert limited or is_column or path in HARMLESS, path


def test_images_of_too_many_pixels_are_refused(client: Any) -> None:
    large = [picture(8_200 + n, "1") for n in range(3)]
    assert sum(map(len, large)) < 50_000
    answer = client.post("/runs/captioner/predict", json={"inputs": large})
    assert (answer.status_code, "at most 200,000,000" in answer.json()["error"]) == (422, True)
    large = [
        large[0].replace("image/png", "image/../../../x"),
        *large[1:],
    ]  # what is held is no path, whatever it says
    rows = [{"image": image, "caption": f"a circle {n}"} for n, image in enumerate(large)]
    status = finished(
        client, client.post("/runs/captioner/evaluate", json={"rows": rows}).json()["id"]
    )
    assert (status["state"], "too many pixels in all" in status["error"]) == ("failed", True)


# Work that nobody waits for


def test_a_search_that_may_write_too_much_is_refused(client: Any) -> None:
    answer = client.post("/runs/tiny/predict", json={"inputs": ["a b c d " * 250] * 8, "beam": 64})
    assert (answer.status_code, "at most 500,000" in answer.json()["error"]) == (422, True)
    assert (
        client.post("/runs/tiny/predict", json={"inputs": ["a b"] * 256, "beam": 5}).status_code
        == 200
    )
    rows = [{"source": "a b c d " * 60, "target": "a"}] * 2_000
    for route, body in (("evaluate", {"beam": 64}), ("diagnose", {"sweep": [64]})):
        answer = client.post(f"/runs/tiny/{route}", json={"rows": rows, **body})
        assert (answer.status_code, "at most 50,000,000" in answer.json()["error"]) == (422, True)


def test_an_answer_of_too_many_numbers_is_refused(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.post("/runs/tiny/explain", json={"input": "a b"}).status_code == 200
    monkeypatch.setattr(verbs, "MAX_ANSWER_NUMBERS", 10)
    answer = client.post("/runs/tiny/explain", json={"input": "a b", "target": "b a"})
    assert (answer.status_code, answer.json()["error"]) == (
        422,
        "input: the answer would have 16 numbers (at most 10: shorter or fewer texts)",
    )


def test_a_search_stops_when_it_is_given_up(client: Any, tiny_run: Path) -> None:
    """Before the next step, not at the end of the batch."""
    run, steps = regard.load(tiny_run, device="cpu"), list[int]()

    def given_up() -> bool:
        steps.append(1)
        return len(steps) > 3

    whole = ["search.min_length=40"]
    with stoppable(lambda: bool(steps.append(1))):
        run.predict(["a b c"], overrides=whole)
    assert len(steps) > 40
    steps.clear()
    with stoppable(given_up), pytest.raises(StoppedError):
        run.predict(["a b c"], overrides=whole)
    assert len(steps) == 4


def test_what_others_wait_for_goes_on_without_what_is_given_up() -> None:
    """Of a batch whose larger part is given up, the rest is computed again; with the smaller part,
    nothing changes."""
    computing, computed = threading.Event(), list[list[str]]()

    def compute(inputs: list[str]) -> list[str]:
        from regard.search.stopping import stop_if_given_up

        computed.append(inputs)
        computing.set()
        while "long" in inputs:
            stop_if_given_up()
        return inputs

    batcher = Batcher(window=0.2, max_inputs=4, max_waiting=8)
    long, short = (
        QueuedRequest(["long"], compute, "kind", length=900),
        QueuedRequest(["short"], compute, "kind", length=9),
    )
    batcher.submit(long)
    answer = batcher.submit(short)
    computing.wait(60)
    long.give_up()
    assert answer.result(60) == ["short"]
    assert computed == [["long", "short"], ["short"]]
    waiting = QueuedRequest(["long"], compute, "kind")
    waiting.give_up()
    batcher.submit(waiting)
    batcher.close()
    assert len(computed) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_is_noticed(tiny_run: Path, stream: bool) -> None:
    """Its job is given up long before the window in which it waits for others is over."""
    server = create_app({"tiny": regard.load(tiny_run, device="cpu")}, Settings(window=30.0))
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/predict",
        "raw_path": b"/predict",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
    }
    body = json.dumps({"inputs": ["a b"], "stream": stream}).encode()
    received = iter([{"type": "http.request", "body": body}, {"type": "http.disconnect"}])
    answered = list[Any]()

    async def receive() -> Any:
        return next(received)

    async def send(message: Any) -> None:
        answered.append(message)

    started = time.monotonic()
    asyncio.run(server(scope, receive, send))
    assert answered[0]["status"] == 499
    assert time.monotonic() - started < 25


def test_a_check_ends_when_nobody_waits(tmp_path: Path, cache: Path) -> None:
    """Whatever it computes, its process is ended at once."""
    checker, processes = Checker(), list[Any]()
    (tmp_path / "recipe.yaml").write_text(
        RECIPE.replace("size: 50", "size: 2000000"), encoding="utf-8"
    )

    def wanted() -> None:
        if [*cache.glob("texts-*.partial")]:  # it generates two million sentences
            processes.append(checker._process)
            raise StoppedError

    with pytest.raises(StoppedError):
        checker.check(str(tmp_path / "recipe.yaml"), [], tmp_path, None, wanted)
    assert processes[0].returncode == -signal.SIGKILL
    assert checker._process is None


def test_a_recipe_begins_only_with_runs_of_the_server(
    client: Any, tiny_run: Path, tmp_path: Path
) -> None:
    """The name leads to the folder; nothing that is sent is used as a path, and `within` of a
    recipe has no effect."""
    for route, name in (("/check", {}), ("/trainings", {"name": "begun"})):
        for init in (
            "..",
            "../../etc",
            "/etc/passwd",
            str(tmp_path),
            "~",
            "x\\y",
            "file:///etc",
            "tiny/..",
        ):
            text = RECIPE.replace("steps: 3", f"steps: 3, init: {json.dumps(init)}")
            answer = client.post(route, json={"recipe": text, **name})
            assert (answer.status_code, "there is no run" in answer.json()["error"]) == (422, True)
    text = f"within: /\n{RECIPE}".replace(
        "corpus: reverse, size: 50", f"source: {tiny_run}/best, target: /etc/hostname"
    )
    status = finished(client, client.post("/check", json={"recipe": text}).json()["id"])
    assert {problem["what"] for problem in status["result"]["problems"]} == {
        "there is no file of this name among those that may be read"
    }
    tree = yaml.safe_load((tiny_run / "recipe.yaml").read_text(encoding="utf-8"))
    sections = {
        "data": {"train": {"corpus": "reverse", "size": 50}},
        "training": {"steps": 2, "init": "runs/tiny"},
    }
    text = json.dumps({name: tree[name] for name in ("task", "model")} | sections)
    status = finished(client, client.post("/check", json={"recipe": text}).json()["id"])
    assert {problem["where"] for problem in status["result"]["problems"]} <= {"training.init"}
