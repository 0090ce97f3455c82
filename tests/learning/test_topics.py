"""Every topic of the list has a command that works, a chapter, picture and code that exist, and is
found by its words; the map is made from the same list.

The commands run on models that are trained for two steps. `REGARD_SLOW=1` also trains what the
commands train and writes the chapters.
"""

import os
import re
import runpy
import shlex
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from command_line import complaint, fail, succeed, write
from places import ROOT
from regard.course import LANGUAGES, chapters
from regard.course.lab import FIGURE_PLACE
from regard.course.topics import Topic, example_files, find_topics, topics, training_commands
from regard.recipes.loading import load_tree
from regard.studio.settings import Settings
from regard.views.show import EQUATIONS

slow = pytest.mark.skipif(not os.environ.get("REGARD_SLOW"), reason="minutes: set REGARD_SLOW=1")
MAP = runpy.run_path(str(ROOT / "scripts" / "document_map"))
COMMANDS = sorted({topic.run for topic in topics()})
SLOW_VERBS = ("course", "train", "check")
"""Verbs that take seconds. test_course.py runs every chapter for a few steps."""
NOT_RUN = ("serve", "studio", "import")
"""Verbs that do not end, or need a network."""
FEW_STEPS = [
    "training.steps=2",
    "training.epochs=null",
    "training.minutes=null",
    "training.decode=2",
]
FEW_ROWS = 40


def has_size(corpus: object) -> bool:
    return isinstance(corpus, dict) and "size" in corpus


def verb(command: str) -> str:
    return command.split()[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the small files that the commands read; the current one."""
    folder = tmp_path_factory.mktemp("topics")
    for name, text in example_files().items():
        write(folder / name, text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@pytest.fixture(scope="module")
def trained(place: Path) -> Callable[[str], None]:
    """Trains the run with this name for two steps, once."""

    def train(name: str) -> None:
        arguments = shlex.split(training_commands()[name])
        data = load_tree(arguments[1])[0]["data"]
        sizes = {part: corpus["size"] for part, corpus in data.items() if has_size(corpus)}
        fewer = [f"data.{part}.size={min(size, FEW_ROWS)}" for part, size in sizes.items()]
        at = arguments.index("--out")
        succeed(*arguments[:at], *fewer, *FEW_STEPS, *arguments[at:])

    return cache(train)


def test_the_list_is_whole() -> None:
    assert len(topics()) > 220
    for language in LANGUAGES:
        first = [topic.name(language) for topic in topics()]
        assert len(first) == len({*first}), "each topic has a name of its own"
        assert all(topic.means[language].endswith((".", "?")) for topic in topics())
    assert all(re.search("[가-힣]", topic.means["ko"]) for topic in topics())
    assert [topic for topic in topics() if re.search("[가-힣]", topic.means["en"])] == []


@pytest.mark.parametrize("topic", topics(), ids=lambda topic: topic.name("en"))
def test_a_topic_has_code_a_chapter_and_a_picture(topic: Topic) -> None:
    module, _, name = topic.code.rpartition(".")
    try:
        import_module(topic.code)
    except ModuleNotFoundError:
        owner = module.rpartition(".")
        parent = (
            getattr(import_module(owner[0]), owner[2])
            if owner[2][:1].isupper()
            else import_module(module)
        )
        assert hasattr(parent, name), topic.code
    for language in LANGUAGES:
        texts = {chapter.number: chapter.text for chapter in chapters(language)}
        assert topic.chapter is None or topic.chapter in texts
        where, _, figure = (topic.picture or "").partition(":")
        if where == "show":
            assert figure in EQUATIONS
        elif topic.picture:
            assert where == str(topic.chapter)
            assert figure in [name for _, name in FIGURE_PLACE.findall(texts[int(where)])]


@pytest.mark.parametrize("command", [*COMMANDS, *training_commands().values()])
def test_a_command_of_the_list_exists(command: str) -> None:
    assert complaint(shlex.split(command)) is None


@pytest.mark.parametrize(
    "command", [one for one in COMMANDS if verb(one) not in (*SLOW_VERBS, *NOT_RUN)]
)
def test_a_command_of_the_list_works(command: str, trained: Callable[[str], None]) -> None:
    for run in re.findall(r"runs/([\w-]+)", command):
        trained(run)
    again = ["--overwrite"] if re.search("--features|attention.html", command) else []
    result = succeed(*shlex.split(command), *again)
    assert result.out or result.err


@slow
@pytest.mark.parametrize("command", [one for one in COMMANDS if verb(one) in SLOW_VERBS])
def test_a_slow_command_of_the_list_works(command: str, trained: Callable[[str], None]) -> None:
    arguments = shlex.split(command)
    if verb(command) == "train":
        succeed(*arguments[:2], *FEW_STEPS, *arguments[2:])
    elif verb(command) == "course":
        succeed(*arguments, "--quick")
    else:
        succeed(*arguments)


def test_every_name_finds_its_topic() -> None:
    lost = [
        (topic.name("en"), name)
        for topic in topics()
        for name in topic.all_names
        for written in (name, name.upper(), name.replace(" ", ""))
        if topic not in find_topics(written)
    ]
    assert lost == []


@pytest.mark.parametrize(
    ("word", "english"),
    [
        ("변압기", "Transformer"),
        ("정서 분류", "sentiment analysis"),
        ("정렬", "alignment"),
        ("주석", "bidirectional RNN"),
        ("annotation", "bidirectional RNN"),
        ("주의", "attention"),
        ("SELF ATTENTION", "self-attention"),
        ("gamma", "ELMo's mix of layers"),
        ("window local", "local attention"),
    ],
)
def test_words_of_textbooks_find_topics(word: str, english: str) -> None:
    assert english in [topic.name("en") for topic in find_topics(word)]


def test_the_command_finds_and_suggests(monkeypatch: pytest.MonkeyPatch) -> None:
    korean = succeed("course", "변압기", "--lang", "ko").out
    assert korean.startswith("트랜스포머 (변압기,")
    assert "regard course 5" in korean
    assert "related: Bahdanau attention" in succeed("course", "attention").out
    repetition = succeed("course", "repetition penalty").out.splitlines()
    assert "    first: regard train tales-gpt --out runs/tales-gpt" in repetition
    [topic] = succeed("course", "softmax", "--json").json
    assert topic["command"] == "regard show softmax scores=3,1,0"
    assert fail("course", "atention")[0].startswith(
        "WORD: there is no topic 'atention' (did you mean 'attention'"
    )
    assert fail("course", "qzx") == ["WORD: there is no topic 'qzx' (`regard course` lists them)"]
    assert "--quick" in fail("course", "attention", "--quick")[0]
    assert "there is no 'fr'" in fail("course", "attention", "--lang", "fr")[0]
    listed = succeed("course").out
    assert "alignment, attention map" in listed
    assert listed.startswith("0  ")
    assert "alignment" in succeed("course", "--json").json[2]["topics"]


def test_the_studio_finds_topics(tmp_path: Path) -> None:
    client_of = pytest.importorskip("fastapi.testclient").TestClient
    server = import_module("regard.studio.server").create_app({}, Settings(), root=tmp_path)
    with client_of(server, base_url="http://127.0.0.1") as client:
        [found] = client.get("/topics", params={"query": "변압기"}).json()
        assert found["names"]["en"][0] == "Transformer"
        assert len(client.get("/topics").json()) == len(topics())
        refused = client.get("/topics", params={"query": "atention"})
        assert refused.status_code == 422
        assert "did you mean 'attention'" in refused.text


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_map_is_made_from_the_list(language: str) -> None:
    written = (ROOT / "docs" / MAP["FILES"][language]).read_text(encoding="utf-8")
    assert written == MAP["document"](language), "run scripts/document_map"
