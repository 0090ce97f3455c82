"""regard train"""

from __future__ import annotations

from typing import Annotated

import typer

from regard.commands.options import JsonOption, NewRunOption, OverridesArgument, RecipeArgument
from regard.commands.output import show


def train(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    *,
    out: NewRunOption,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with it where it was left.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train what a recipe describes into a run folder."""
    from accelerate import PartialState

    from regard.runs.checkpoints import load_facts
    from regard.training.loop import Interrupted
    from regard.training.train import train as train_recipe

    try:
        run = train_recipe(recipe, overrides or [], out=out, resume=resume, quiet=as_json)
    except Interrupted:
        raise typer.Exit(130) from None
    if as_json and PartialState().is_main_process:
        show({"run": str(out), **load_facts(run.checkpoint("best"))})
