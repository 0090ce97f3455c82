"""The commands `check` and `train`."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

import regard
from regard.cli import console
from regard.cli.options import AcceptRecipeOption, JsonOption, NewRunOption, OverridesArgument
from regard.errors import Problem, RegardError
from regard.language import shown_comments

if TYPE_CHECKING:
    from regard.training.check import Check

FIRST_REPORT_SECONDS = 20.0
"""Seconds that other processes give the first one to report an error: once one ends, a launcher
kills the others."""


def check(
    recipe: Annotated[
        str, Argument(metavar="RECIPE", help="A .yaml file, a recipe that ships, or data.")
    ],
    overrides: Annotated[
        list[str],
        Argument(
            metavar="[KEY=VALUE]...",
            help="Changes; or more files: a parallel one, those for validation and test; or "
            "text=COLUMN label=COLUMN.",
            default_factory=list,
            show_default=False,
        ),
    ],
    validation: Annotated[
        list[str],
        Option(
            help="Data to choose the best checkpoint with; twice for parallel files.",
            default_factory=list,
            show_default=False,
        ),
    ],
    test: Annotated[
        list[str],
        Option(
            help="Data to measure with at the end; twice for parallel files.",
            default_factory=list,
            show_default=False,
        ),
    ],
    out: Annotated[Path | None, Option(help="Write the proposed recipe to this file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Validate a recipe and its data: all problems at once, sizes, samples, memory and time.

    If data is given instead (a file, two parallel files or a folder of texts), a recipe is proposed
    and checked. Files whose names say train, dev and test are taken for these.
    """
    result = regard.check(
        recipe,
        overrides,
        validation=[*map(Path, validation)],
        test=[*map(Path, test)],
        out=out,
        quiet=as_json,
    )
    if as_json:
        console.show_json(result.to_json())
    else:
        _show_check(result, out)
    if not result.ok:
        raise typer.Exit(2)


def _show_check(result: Check, out: Path | None) -> None:
    """Print a check for people. If a recipe was proposed, standard output has the recipe alone, so
    that `>` saves it."""
    if result.proposal is not None and out is None:
        console.say(shown_comments(result.proposal).rstrip("\n"))
    elif result.proposal is not None and result.ok:
        console.say(f"written: {out}")
    console.complain(result.problems)
    if result.ok:
        lines = [*result.sentences(), *(f"next       {command}" for command in result.commands)]
        console.say("\n".join(lines), sys.stdout if result.proposal is None else sys.stderr)


def train(
    recipe: Annotated[
        str, Argument(metavar="RECIPE", help="A .yaml file, or a recipe that ships.")
    ],
    overrides: OverridesArgument,
    out: NewRunOption,
    resume: Annotated[
        bool, Option("--resume", help="Continue a training that was interrupted.")
    ] = False,
    accept_recipe: AcceptRecipeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train the model of a recipe into a run folder."""
    is_first_process = os.environ.get("RANK", "0") == "0"  # as torchrun and accelerate number them
    try:
        _train_and_report(
            recipe, overrides, out, resume=resume, accept_recipe=accept_recipe, as_json=as_json
        )
    except KeyboardInterrupt:  # before the first step, or for the second time
        if is_first_process:
            console.say(f"interrupted; {_what_is_kept(out)}", sys.stderr)
        raise typer.Exit(130) from None
    except RegardError as error:
        if is_first_process or getattr(error, "__notes__", None):
            raise
        # By then the first process has reported the same error and ended all; or it has none.
        time.sleep(FIRST_REPORT_SECONDS)
        where = f"process {os.environ['RANK']} ({platform.node()})"
        raise RegardError(
            problems=[Problem(where, "has an error of its own"), *error.problems]
        ) from None


def _what_is_kept(run: Path) -> str:
    if (run / "last").exists():
        return (
            "the checkpoints are complete, and the same command with --resume continues "
            "from the last"
        )
    return "nothing was trained yet, so nothing is lost: the same command starts again"


def _train_and_report(
    recipe: str,
    overrides: list[str],
    out: Path,
    *,
    resume: bool,
    accept_recipe: bool,
    as_json: bool,
) -> None:
    from accelerate import PartialState

    from regard.runs.checkpoints import load_facts
    from regard.training.interrupts import Interrupted

    try:
        run = regard.train(
            recipe, overrides, out=out, resume=resume, accept_recipe=accept_recipe, quiet=as_json
        )
    except Interrupted:
        raise typer.Exit(130) from None
    if as_json and PartialState().is_main_process:
        facts = load_facts(run.checkpoint("best"))
        console.show_json(
            {"run": str(out), **{name: facts.get(name) for name in ("step", "best", "tokenizer")}}
        )
