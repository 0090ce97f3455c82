"""regard check"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.commands.options import JsonOption
from regard.commands.output import complain, show

if TYPE_CHECKING:
    from regard.training.check import Check


def check(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A .yaml file, a recipe that ships, or data.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to it, or a second, parallel file.")
    ] = None,
    *,
    out: Annotated[Path | None, typer.Option("--out", help="Write the recipe that is proposed for data.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Validate a recipe and its data: all problems at once, sizes, samples, memory and time.

    For a file of data, two parallel ones or a folder of texts, a recipe is proposed, and checked in the same way.
    """
    from regard.training.check import check as check_recipe

    found = check_recipe(recipe, overrides or [], out=out, quiet=as_json)
    if as_json:
        show(found.to_json())
    else:
        _print(found, out)
    if not found.ok:
        raise typer.Exit(2)


def _print(found: Check, out: Path | None) -> None:
    """Standard output has what was found, or the recipe alone where one is proposed, so that `>` saves it."""
    from regard.training.display import check_sentences

    if found.proposal is not None:
        print(found.proposal if out is None else f"written: {out}", end="\n" if out else "", flush=True)
    complain(found.problems)
    if found.ok:
        stream = sys.stdout if found.proposal is None else sys.stderr
        lines = [*check_sentences(found.to_json()), *(f"next       {command}" for command in found.commands)]
        print("\n".join(lines), file=stream)
