"""regard train"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from regard.commands.options import JsonOption, NewRunOption, OverridesArgument, RecipeArgument
from regard.commands.output import show
from regard.errors import RegardError

PATIENCE = 20.0
"""Seconds that other processes give the first one to say what is wrong: once one ends, a launcher kills the others."""
NOTHING = "nothing was trained yet, so nothing is lost: the same command begins anew"


def train(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    *,
    out: NewRunOption,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with it where it was left.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train what a recipe describes into a run folder."""
    try:
        _train(recipe, overrides or [], out, resume, as_json)
    except KeyboardInterrupt:  # before the first step, or for the second time
        if _rank() == 0:
            saved = "what was saved before is whole, and the same command with --resume goes on from it"
            print(f"interrupted; {saved if (out / 'last').exists() else NOTHING}", file=sys.stderr)
        raise typer.Exit(130) from None
    except RegardError as error:
        if _rank() and not getattr(error, "__notes__", None):  # the first process says the same
            time.sleep(PATIENCE)
            raise typer.Exit(2) from None
        raise


def _train(recipe: str, overrides: list[str], out: Path, resume: bool, as_json: bool) -> None:
    from accelerate import PartialState

    from regard.runs.checkpoints import load_facts
    from regard.training.loop import Interrupted
    from regard.training.train import train as train_recipe

    try:
        run = train_recipe(recipe, overrides, out=out, resume=resume, quiet=as_json)
    except Interrupted:
        raise typer.Exit(130) from None
    if as_json and PartialState().is_main_process:
        show({"run": str(out), **load_facts(run.checkpoint("best"))})


def _rank() -> int:
    """Which of several processes this is, as torchrun and accelerate number them."""
    return int(os.environ.get("RANK", "0"))
