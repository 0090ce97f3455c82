"""What the documents say of the code is what the code says."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import Field, TypeAdapter

from places import ROOT
from regard.config import Config
from regard.models import MODELS
from regard.recipes.recipe import load_recipe
from regard.recipes.shipped import shipped, shipped_text
from regard.tasks import TASKS
from regard.tasks.question_answering import Answered
from regard.text.normalise import Span

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "document_recipes"))
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix() for folder in ("", "docs", "benchmarks") for path in (ROOT / folder).glob("*.md")
)
PAGES = [
    name
    for name in DOCUMENTS
    if name not in ("README.md", "README.ko.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs/README.md")
]
"""The documents that need a table of contents."""


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
    written = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert written == SCRIPT["document"](), "run scripts/document_recipes"


def test_fields_by_hand() -> None:
    fields = Inner.model_fields | Outer.model_fields
    found = {name: (SCRIPT["type_of"](field), SCRIPT["default_of"](field)) for name, field in fields.items()}
    assert found == {
        "share": ("number, above 0, at most 1", "`0.5`"),
        "inner": ("mapping, list of mappings or `null`", "`null`"),
        "again": ("mapping", "`{share: 0.25}`"),
        "count": ("whole number, 2 or more", "required"),
    }
    assert SCRIPT["one_line"](Inner.__doc__) == "One thing in two lines."
    assert SCRIPT["one_line"](str(fields["share"].description)) == "A part \\| of it."


def test_every_config_in_a_recipe_is_found_with_its_path() -> None:
    assert list(SCRIPT["configs_below"](Outer, "")) == [
        ("", Outer), ("inner", Inner), ("inner", Inner), ("again", Inner),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["README.md", "README.ko.md"])
def test_every_model_is_in_the_table(name: str) -> None:
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    kinds = {kind for task in TASKS.values() for kind in kinds_in(TypeAdapter(task.models).json_schema())}
    assert set(listed) == kinds >= set(MODELS)
    assert len(listed) == len(kinds)


def kinds_in(schema: Any) -> Iterator[str]:
    """The values of every field `kind` that has only one, which models tell themselves apart by."""
    for part in [schema, *schema.get("$defs", {}).values()]:
        kind = part.get("properties", {}).get("kind", {})
        if "const" in kind and "preset" in part["properties"] and kind["const"] != "memory_lm":  # which is to go
            yield kind["const"]


def test_the_lines_of_data_are_those_of_their_recipes() -> None:
    text = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| `(\{.*?\})`[^|]*\| `([\w-]+)`", text, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\| .*\{", text, re.MULTILINE)) >= 12
    for line, recipe in rows:
        task = yaml.safe_load(shipped_text(recipe))["task"]
        TASKS[task].data.model_validate({"train": yaml.safe_load(line)})


@pytest.mark.parametrize("name", shipped())
def test_every_line_of_a_recipe_is_commented_and_layers_are_counted_right(name: str) -> None:
    text = shipped_text(name)
    assert text.startswith("# "), "the first line says what the recipe is for: `regard recipes` shows it"
    bare = [line for line in text.splitlines() if re.match(r"\s*[\w-]+:", line) and " # " not in line]
    assert bare == [], "every line has a comment"
    said = re.search(
        r"^(?:model:|  preset:).*#.*?\b(one|two|three|four|six|\d+) (?:decoder )?layers?\b", text, re.MULTILINE
    )
    if said is None or "(" in said[0].partition("#")[2]:  # some list the sizes that there are
        return
    model = load_recipe(name)[0].model
    numbers = {"one": 1, "two": 2, "three": 3, "four": 4, "six": 6}
    layers = {getattr(model, field) for field in ("layers", "decoder_layers") if hasattr(model, field)}
    assert layers == {numbers.get(said[1]) or int(said[1])}


def test_every_task_says_what_it_predicts() -> None:
    text = (ROOT / "docs" / "predictions.md").read_text(encoding="utf-8")
    listed = [task for cell in re.findall(r"^\| ([a-z_, ]+) \|", text, re.MULTILINE) for task in cell.split(", ")]
    assert sorted(listed) == sorted({*TASKS, "task"})
    said = Answered("q", "a b", ((Span(0, 1), -0.5), (Span(2, 3), -1.0)), False, -1.5, -2.0).to_json()
    row = next(line for line in text.splitlines() if line.startswith("| question_answering"))
    assert {"`" + name + "`" for name in said} - set(re.findall(r"`\w+`", row)) == {"`input`", "`output`"}


def anchor(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def headings(name: str) -> list[str]:
    """The headings of a document's sections, code blocks aside."""
    text = re.sub(r"^```.*?^```", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^##+ (.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_leads_somewhere(name: str) -> None:
    document = ROOT / name
    links = re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8"))
    for target, _, section in (link.partition("#") for link in links if not link.startswith("https://")):
        path = (document.parent / target).resolve() if target else document
        assert path.exists(), target
        assert not section or section in map(anchor, headings(path.relative_to(ROOT).as_posix())), (target, section)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_begins_with_its_table_of_contents(name: str) -> None:
    opening = (ROOT / name).read_text(encoding="utf-8").partition("\n## ")[0]
    listed = re.findall(r"^ *- \[.*\]\(#([^)]+)\)$", opening, re.MULTILINE)
    assert listed == [anchor(heading) for heading in headings(name)]


@pytest.mark.parametrize("name", ["README.md", "README.ko.md"])
def test_a_readme_is_short(name: str) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").split()) <= 1500


def test_every_page_is_in_the_index() -> None:
    linked = re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name != "README.md")
