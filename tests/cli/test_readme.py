"""The commands, recipes and programs that the documents show are ones that work."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from command_line import succeed, write
from places import ROOT
from regard.cli import app
from regard.recipes.recipe import load_recipe, load_tree
from regard.recipes.shipped import shipped

READMES = ["README.md", "README.ko.md"]
DOCUMENTS = [*READMES, *(f"docs/{path.name}" for path in sorted(ROOT.glob("docs/*.md"))), "benchmarks/README.md",
             "CONTRIBUTING.md"]  # fmt: skip
SHELL = ("", "sh", "bash", "shell", "console", "powershell")
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


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
                if word.rpartition("/")[2] == "regard" and (before == "|" or "=" in before or before == "&&"):
                    rest = words[number + 1 :]
                    ends = [place for place, one in enumerate(rest) if one in ("|", ">", "<", "&&", ";", "2>")]
                    yield rest[: min(ends, default=len(rest))]


def complaint(arguments: list[str]) -> str | None:
    """Why a call could not be one of ours."""
    if arguments in ([], ["--help"], ["-h"]):
        return None
    verb, *rest = arguments
    if verb not in COMMANDS:
        return f"there is no verb {verb!r}"
    if {"--help", "-h"} & set(rest):
        return None
    try:
        context = COMMANDS[verb].make_context(verb, list(rest))
    except Exception as error:
        return str(error) or type(error).__name__
    values = context.params
    if verb in ("check", "train"):
        recipe = values["recipe"]
        is_data = verb == "check" and Path(recipe).suffix not in ("", ".yaml")
        if not recipe.endswith(".yaml") and recipe not in shipped() and not is_data:
            return f"no recipe {recipe!r} ships"
        if recipe in shipped():
            load_tree(recipe, values["overrides"] or [])
    if verb == "recipes" and values["name"] is not None and values["name"] not in shipped():
        return f"no recipe {values['name']!r} ships"
    return None


def readme(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_in_a_document_exists(name: str) -> None:
    complaints = {" ".join(arguments): complaint(arguments) for arguments in commands(readme(name))}
    assert {command: what for command, what in complaints.items() if what} == {}


def test_the_readmes_show_the_same_verbs_in_the_same_order() -> None:
    """And as many sections."""
    texts = [readme(name) for name in READMES]
    english, korean = ([arguments[0] for arguments in commands(text)] for text in texts)
    assert english == korean
    assert {"check", "train", "predict", "evaluate", "score", "explain", "recipes"} <= {*english}
    assert len({len(re.findall("^## ", text, re.MULTILINE)) for text in texts}) == 1


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_script_has_the_options_shown_and_every_recipe_is_valid(name: str) -> None:
    for script, rest in re.findall(r"(benchmarks/\w+\.py|scripts/\w+)((?: [^`\n#|]+)?)", readme(name)):
        known = "pytest" if script == "scripts/check" else readme(script)
        assert [option for option in re.findall(r"(?<= )--[\w-]+", rest) if option not in known] == [], script
    for block in blocks(readme(name), "yaml"):
        load_recipe(yaml.safe_load(block))


COLUMNS = "text,label\n" + "".join(f"{word} film {number},{word}\n" for number in range(60) for word in ("good", "bad"))


def test_the_commands_for_own_data_do_what_the_readme_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "reviews.csv", COLUMNS)
    section = readme("README.md").partition("## Your own data")[2].partition("## ")[0]
    first = next(blocks(section, "sh"))
    for arguments in commands(f"```sh\n{first}```"):
        fewer = ["training.epochs=null", "training.steps=5"] if arguments[0] == "train" else []
        succeed(*arguments[:2], *fewer, *arguments[2:])
    assert (tmp_path / "runs" / "mine" / "best").exists()


def test_the_python_that_is_shown_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = list(blocks(readme("docs/python.md"), "python"))
    sizes = ", ".join(f'"data.{part}.size=20"' for part in ("train", "validation", "test"))
    program = "\n".join(shown).replace('"training.epochs=2"', f'"training.epochs=1", {sizes}')
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(program, "docs/python.md", "exec"), {})
    assert "unknown key 'hiden' (did you mean 'hidden'?)" in out.getvalue()


def test_a_wrong_command_would_be_found() -> None:
    text = "```sh\n$ cat x | regard predict runs/a --beam 3 > out  # as text\nregard trian dates --out x\n```\n"
    text += "```yaml\nregard: no\n```\n```\nregard train daets \\\n  --out x\nA=1 regard check dates a=1\n```"
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
