"""What the documents say of the code is what the code says; the commands, recipes and programs they
show work."""

import io
import re
import runpy
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import yaml
from pydantic import Field

from command_line import complaint, succeed, write
from places import ROOT
from regard.config import Config
from regard.language import catalogue
from regard.models import MODELS
from regard.recipes.loading import load_recipe
from regard.recipes.shipped import shipped, shipped_text
from regard.tasks import TASKS
from regard.tasks.question_answering import Answered
from regard.text.normalise import Span

READMES = ["README.md", "README.ko.md"]
"""A translation may lag behind until a release: scripts/untranslated compares them."""
DOCUMENTS = [
    *READMES,
    *(f"docs/{path.name}" for path in sorted(ROOT.glob("docs/*.md"))),
    "benchmarks/README.md",
    "CONTRIBUTING.md",
]
ALL_DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("", "docs", "benchmarks")
    for path in (ROOT / folder).glob("*.md")
)
INDEXES = ["docs/README.md", "docs/README.ko.md"]
PAGES = [
    name
    for name in ALL_DOCUMENTS
    if name not in (*READMES, *INDEXES, "ARCHITECTURE.md", "CHANGELOG.md")
]
"""The documents that need a table of contents."""
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "document_recipes"))
SHELL = ("", "sh", "bash", "shell", "console", "powershell")


def blocks(text: str, *languages: str) -> Iterator[str]:
    """The code blocks in one of the languages."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if language in languages:
            yield block


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of every call of `regard`, in a pipe or after an environment variable too."""
    for block in blocks(text, *SHELL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ ").replace("\\", "/"), comments=True)
            for number, word in enumerate(words):
                before = words[number - 1] if number else "|"
                if word.rpartition("/")[2] == "regard" and (
                    before == "|" or "=" in before or before == "&&"
                ):
                    rest = words[number + 1 :]
                    ends = [
                        place
                        for place, one in enumerate(rest)
                        if one in ("|", ">", "<", "&&", ";", "2>")
                    ]
                    yield rest[: min(ends, default=len(rest))]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_in_a_document_exists(name: str) -> None:
    complaints = {
        " ".join(arguments): complaint(arguments) for arguments in commands(text_of(name))
    }
    assert {command: what for command, what in complaints.items() if what} == {}


def test_the_readme_shows_the_verbs() -> None:
    verbs = {arguments[0] for arguments in commands(text_of("README.md"))}
    assert {"check", "train", "predict", "evaluate", "explain", "recipes"} <= verbs


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_script_has_the_options_shown_and_every_recipe_is_valid(name: str) -> None:
    for script, rest in re.findall(
        r"(benchmarks/\w+\.py|scripts/\w+)((?: [^`\n#|]+)?)", text_of(name)
    ):
        known = "pytest" if script == "scripts/check" else text_of(script)
        assert [
            option for option in re.findall(r"(?<= )--[\w-]+", rest) if option not in known
        ] == [], script
    for block in blocks(text_of(name), "yaml"):
        load_recipe(yaml.safe_load(block))


COLUMNS = "text,label\n" + "".join(
    f"{word} film {number},{word}\n" for number in range(60) for word in ("good", "bad")
)


def test_the_commands_for_own_data_do_what_the_readme_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "reviews.csv", COLUMNS)
    section = text_of("README.md").partition("## Your own data")[2].partition("## ")[0]
    first = next(blocks(section, "sh"))
    for arguments in commands(f"```sh\n{first}```"):
        fewer = ["training.epochs=null", "training.steps=5"] if arguments[0] == "train" else []
        succeed(*arguments[:2], *fewer, *arguments[2:])
    assert (tmp_path / "runs" / "mine" / "best").exists()


@pytest.mark.parametrize("name", ["docs/python.md", "docs/python.ko.md"])
def test_the_python_that_is_shown_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    shown = list(blocks(text_of(name), "python"))
    sizes = ", ".join(f'"data.{part}.size=20"' for part in ("train", "validation", "test"))
    program = "\n".join(shown).replace('"training.epochs=2"', f'"training.epochs=1", {sizes}')
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(program, name, "exec"), {})
    assert str(tmp_path / "regard-sentiment-") in out.getvalue()
    assert "unknown key 'hiden' (did you mean 'hidden'?)" in out.getvalue()


def test_a_wrong_command_would_be_found() -> None:
    text = (
        "```sh\n$ cat x | regard predict runs/a --beam 3 > out  # as text\nregard trian "
        "dates --out x\n```\n"
    )
    text += (
        "```yaml\nregard: no\n```\n```\nregard train daets \\\n  --out x\nA=1 regard check "
        "dates a=1\n```"
    )
    found = list(commands(text))
    assert found == [
        ["predict", "runs/a", "--beam", "3"],
        ["trian", "dates", "--out", "x"],
        ["train", "daets", "--out", "x"],
        ["check", "dates", "a=1"],
    ]
    complaints = [complaint(arguments) for arguments in found]
    assert complaints == [None, "there is no verb 'trian'", "no recipe 'daets' ships", None]
    assert complaint(["predict", "runs/a", "--bem", "3"]) is not None
    assert complaint(["train", "dates"]) is not None


class Inner(Config):
    """One thing
    in two lines."""

    share: float = Field(0.5, gt=0, le=1)
    """A part | of it."""


class Outer(Config):
    """The whole."""

    inner: Inner | list[Inner] | None = None
    """Several, or one."""
    again: Inner = Inner(share=0.25)
    """Another."""
    count: int = Field(ge=2, lt=2**63)
    """How many."""


def test_the_document_of_recipes_is_what_the_configs_say() -> None:
    for language, name in SCRIPT["FILES"].items():
        written = text_of(f"docs/{name}")
        assert written == SCRIPT["document"](language), "run scripts/document_recipes"
    entries = catalogue(("fields",))[0]
    assert [
        english for english, korean in entries.items() if SCRIPT["one_line"](korean) not in written
    ] == []


def test_fields_by_hand() -> None:
    fields = Inner.model_fields | Outer.model_fields
    found = {
        name: (SCRIPT["type_of"](field), SCRIPT["default_of"](field))
        for name, field in fields.items()
    }
    assert found == {
        "share": ("number, above 0, at most 1", "`0.5`"),
        "inner": ("mapping, list of mappings or `null`", "`null`"),
        "again": ("mapping", "`{share: 0.25}`"),
        "count": ("whole number, 2 or more", "required"),
    }
    assert SCRIPT["one_line"](Inner.__doc__) == "One thing in two lines."
    assert SCRIPT["one_line"](SCRIPT["help_texts"](Inner)["share"]) == "A part \\| of it."


@pytest.mark.parametrize("name", READMES)
def test_a_readme_is_short_and_lists_every_model(name: str) -> None:
    assert len(text_of(name).split()) <= 2250
    files = dict(re.findall(r"^\| \[`(\w+)`\]\(src/(\S+)\.py\) \|", text_of(name), re.MULTILINE))
    assert {*files} <= {*MODELS}
    assert sorted(files) == sorted(MODELS) or name != "README.md"
    for kind, file in files.items():
        assert file.replace("/", ".") == MODELS[kind].config.__module__


def test_the_lines_of_data_are_those_of_their_recipes() -> None:
    text = text_of("docs/data.md")
    rows = re.findall(r"^\| [^|]+ \| `(\{.*?\})`[^|]*\| `([\w-]+)`", text, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| .*\{", text, re.MULTILINE)) >= 12
    for line, recipe in rows:
        task = yaml.safe_load(shipped_text(recipe))["task"]
        TASKS[task].data.model_validate({"train": yaml.safe_load(line)})


@pytest.mark.parametrize("name", shipped())
def test_every_line_of_a_recipe_is_commented_and_layers_are_counted_right(name: str) -> None:
    text = shipped_text(name)
    assert text.startswith("# "), (
        "the first line says what the recipe is for: `regard recipes` shows it"
    )
    bare = [
        line for line in text.splitlines() if re.match(r"\s*[\w-]+:", line) and " # " not in line
    ]
    assert bare == [], "every line has a comment"
    said = re.search(
        r"^(?:model:|  preset:).*#.*?\b(one|two|three|four|six|\d+) (?:decoder )?layers?\b",
        text,
        re.MULTILINE,
    )
    if said is None or "(" in said[0].partition("#")[2]:  # some list the sizes that there are
        return
    model = load_recipe(name)[0].model
    numbers = {"one": 1, "two": 2, "three": 3, "four": 4, "six": 6}
    layers = getattr(model, "decoder_layers" if hasattr(model, "decoder_layers") else "layers")
    assert layers == (numbers.get(said[1]) or int(said[1]))


def test_every_task_says_what_it_predicts() -> None:
    text = text_of("docs/predictions.md")
    listed = [
        task
        for cell in re.findall(r"^\| ([a-z_, ]+) \|", text, re.MULTILINE)
        for task in cell.split(", ")
    ]
    assert sorted(listed) == sorted({*TASKS, "task"})
    said = Answered(
        "q", "a b", ((Span(0, 1), -0.5), (Span(2, 3), -1.0)), False, -1.5, -2.0
    ).to_json()
    row = next(line for line in text.splitlines() if line.startswith("| question_answering"))
    assert {"`" + name + "`" for name in said} - set(re.findall(r"`\w+`", row)) == {
        "`input`",
        "`output`",
    }


def anchor(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def headings(name: str) -> list[str]:
    """The headings of a document's sections, code blocks aside."""
    text = re.sub(r"^```.*?^```", "", text_of(name), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^##+ (.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("name", ALL_DOCUMENTS)
def test_every_link_leads_somewhere(name: str) -> None:
    document = ROOT / name
    links = re.findall(r"\]\(([^)\s]+)\)", text_of(name))
    for target, _, section in (
        link.partition("#") for link in links if not link.startswith("https://")
    ):
        path = (document.parent / target).resolve() if target else document
        assert path.exists(), target
        assert not section or section in map(anchor, headings(path.relative_to(ROOT).as_posix())), (
            target,
            section,
        )


@pytest.mark.parametrize("name", PAGES)
def test_a_page_begins_with_its_table_of_contents(name: str) -> None:
    listed = re.findall(
        r"^ *- \[.*\]\(#([^)]+)\)$", text_of(name).partition("\n## ")[0], re.MULTILINE
    )
    assert listed == [anchor(heading) for heading in headings(name)]


def test_every_page_is_in_the_index() -> None:
    linked = re.findall(r"\]\(([\w.-]+\.md)\)", text_of("docs/README.md"))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    english = {name for name in pages if not name.endswith(".ko.md")}
    assert {*linked} - {"README.ko.md"} == english - {"README.md"}


def test_the_lock_has_the_hashes_of_the_pinned_versions() -> None:
    pins = {line.lower().replace("_", "-") for line in text_of("constraints.txt").split()}
    locked = re.findall(
        r"^(\S+==\S+) \\\n    --hash=sha256:[0-9a-f]{64}",
        text_of("requirements.lock"),
        re.MULTILINE,
    )
    assert {pin for pin in pins if not pin.startswith("torch==")} == set(locked)


def test_the_lock_of_the_demo_has_what_regard_needs_without_extras() -> None:
    pytest.importorskip("packaging")
    locking = runpy.run_path(str(ROOT / "scripts" / "lock"))
    assert text_of("requirements.core.lock") == locking["core"](text_of("requirements.lock")), (
        "run scripts/lock"
    )
    names = {*locking["entries"](text_of("requirements.core.lock"))}
    assert {"typer", "numpy", "pydantic-core", "huggingface-hub"} <= names
    assert not {"ray", "playwright", "schemathesis", "matplotlib", "torch"} & names


def test_the_site_leaves_results_out_of_chapters_that_were_not_run_and_mends_links() -> None:
    pytest.importorskip("mkdocs")
    site = runpy.run_path(str(ROOT / "scripts" / "document_site"))
    for language in ("en", "ko"):
        for chapter in site["chapters"](language):
            text = site["without_results"](chapter, language)
            assert text.startswith(f"# {chapter.title}\n")
            assert not re.search(r"\{\{|\{%|^!\[|```words|^## .*\n\n## ", text, re.MULTILINE), (
                chapter.name
            )
    links = (
        "[a](../ARCHITECTURE.md#errors) [b](data.md) [c](../src/x.py) [d](https://x.y) "
        "![e](images/f.png)"
    )
    assert site["with_links"](links, "docs/data.md", "data.md") == (
        "[a](architecture.md#errors) [b](data.md) c [d](https://x.y) ![e](images/f.png)"
    )
    assert (
        site["with_links"]("[a](docs/data.md)", "ARCHITECTURE.md", "architecture.md")
        == "[a](data.md)"
    )


def test_the_reference_shows_the_defaults_of_tasks_and_the_size_of_each_preset() -> None:
    """A task's own default stands beside that of the section; one that the code replaces can no
    longer be forgotten."""
    lines = text_of("docs/recipes.md").splitlines()
    [smoothing] = [line for line in lines if line.startswith("| `label_smoothing` |")]
    others = (
        "language_modeling, masked_language_modeling, denoising, story_answering, classification, "
        "regression"
    )
    assert f"| `0.1`; `0.0` for {others}" in smoothing
    [rate] = [line for line in lines if line.startswith("| `learning_rate` |")]
    assert "| by model; `0.32` for story_answering |" in rate
    presets = [(kind, preset) for kind, (config, *_) in MODELS.items() for preset in config.PRESETS]
    rows = [line.split(" | ") for line in lines if re.match(r"\| `\w+` \| `\w+` \|", line)]
    assert [(row[0].strip("|` "), row[1].strip("` ")) for row in rows[-len(presets) :]] == presets
    assert "| `gpt` | `base` | 12 | 768 | 91,591,680 | 0.00017 |" in lines
