"""The command line, run in this process: what a shell would see of it, without the seconds that a
new Python takes."""

import csv
import functools
import gzip
import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from regard import cli
from regard.language import default_language
from regard.recipes.loading import load_tree
from regard.recipes.shipped import shipped


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def jsons(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@functools.cache
def built(app: typer.Typer, language: str) -> Any:
    """typer's commands and options, which take longer to make than many a command to run."""
    return get_command(app)


def regard(*arguments: object, stdin: bytes | str = b"") -> Result:
    """`regard ARGUMENTS < stdin`. An exception that a shell would show as a traceback is raised."""
    out, err = io.StringIO(), io.StringIO()
    given = stdin.encode() if isinstance(stdin, str) else stdin
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("typer.main.get_command", lambda app: built(app, default_language()))
        patch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="ascii"))
        with pytest.raises(SystemExit) as ended:
            cli.main()
    code = ended.value.code
    return Result(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())


def succeed(*arguments: object, stdin: bytes | str = b"") -> Result:
    """The same, for a command that must work."""
    result = regard(*arguments, stdin=stdin)
    assert result.code == 0, result.err
    return result


def fail(*arguments: object, stdin: bytes | str = b"") -> list[str]:
    """The messages of a command that must refuse: exit code 2, nothing printed as a result, no
    traceback."""
    result = regard(*arguments, stdin=stdin)
    assert result.code == 2, result.out + result.err
    assert result.out == ""
    assert "Traceback" not in result.err
    lines = result.err.splitlines()
    assert all(line.startswith("regard: ") for line in lines), result.err
    return [line.removeprefix("regard: ") for line in lines]


def refusal(*arguments: object, stdin: bytes | str = b"") -> str:
    """The one message of a command that must refuse."""
    [message] = fail(*arguments, stdin=stdin)
    return message


def write(path: Path, content: str | bytes) -> Path:
    """A file with exactly these bytes."""
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_table(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    """Rows in the format of the suffix."""
    if path.suffix == ".parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(rows), path)
        return path
    content = io.StringIO()
    if ".jsonl" in path.suffixes:
        content.writelines(f"{json.dumps(row)}\n" for row in rows)
    elif ".json" in path.suffixes:
        content.write(json.dumps(rows, indent=1))
    elif ".tsv" in path.suffixes:
        content.write(
            "\n".join(
                "\t".join(cells) for cells in [rows[0].keys(), *(row.values() for row in rows)]
            )
        )
    else:
        writer = csv.DictWriter(content, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    text = content.getvalue().encode()
    return write(path, gzip.compress(text) if path.suffix == ".gz" else text)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, to see that none has changed."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def complaint(arguments: list[str]) -> str | None:
    """Why a call could not be one of ours."""
    if arguments in ([], ["--help"], ["-h"]):
        return None
    verbs = built(cli.app, default_language()).commands
    verb, *rest = arguments
    if verb not in verbs:
        return f"there is no verb {verb!r}"
    if {"--help", "-h"} & set(rest):
        return None
    try:
        context = verbs[verb].make_context(verb, list(rest))
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
