"""regard recipes"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.commands.options import JsonOption
from regard.commands.output import show
from regard.errors import RegardError


def recipes(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this one.")] = None,
    *,
    out: Annotated[Path | None, typer.Option("--out", help="Copy it to a file of yours.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the recipes that ship, show one, or copy one to start from."""
    from regard.recipes.shipped import shipped, shipped_text
    from regard.text.files import write_file

    if name is None:
        if out is not None:
            raise RegardError("name the recipe to copy", where="--out", hint=f"allowed: {', '.join(shipped())}")
        _show_list(as_json)
        return
    text = shipped_text(name)
    if out is not None:
        if out.exists():
            raise RegardError("the file exists already", where=str(out), hint="give another --out")
        write_file(out, text)
    if as_json:
        show({"name": name, "recipe": text})
    else:
        print(f"copied: {out}" if out else text.rstrip("\n"))


def _show_list(as_json: bool) -> None:
    from regard.recipes.shipped import shipped, summary

    listed = {one: summary(one) for one in shipped()}
    if as_json:
        show(listed)
        return
    width = max(map(len, listed))
    for one, what in listed.items():
        print(f"{one:{width}}  {what}")
