"""What every verb settles first: the run, its recipe with the search asked for now, the device, the progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.config import apply_overrides
from regard.errors import CheckpointError, ConfigError, DecodeError
from regard.recipes.recipe import AnyRecipe, recipe_of
from regard.runs.run import Run
from regard.search.config import SAMPLING, WIDEST
from regard.tasks import TASKS
from regard.tasks.task import Task

CHANGEABLE = ("search", "evaluation")
"""The sections of a trained run's recipe that may be changed."""
Progress = Callable[[str, int, int], None]
"""Called with what is done now, how much of it is done, and how much there is."""


def summed(progress: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    """Add up how many more are done, and report the sum out of `total`."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    return add


def opened(run: str | Path | Run) -> Run:
    return run if isinstance(run, Run) else Run.open(run)


def opened_pairs(run: str | Path | Run, verb: str) -> Run:
    """A run whose task writes texts that can be compared with references, as the verb needs it."""
    run = opened(run)
    if not run.task.has_references:
        what = f"{verb} compares outputs with references, which a run of {run.recipe.task} does not have"
        raise CheckpointError(what, where=str(run.folder), hint="evaluate and predict serve every task")
    return run


def with_search(
    recipe: AnyRecipe,
    beam: int | None,
    nbest: int | None,
    length_penalty: float | None,
    overrides: Sequence[str],
    *,
    prefix: str | None = None,
) -> AnyRecipe:
    """The run's recipe with the search asked for now.

    A beam given here turns sampling into a beam search. The recipe's own beam is widened to hold the n best, and left
    out for samples.
    """
    paths = {override.partition("=")[0] for override in overrides}
    searched = {path: path for path in sorted(paths) if path.startswith("search.") and path != "search.nbest"}
    refuse_search(TASKS[recipe.task], {"--beam": beam, "--length-penalty": length_penalty, **searched})
    _refuse_trained(recipe, overrides)
    tree = apply_overrides(recipe.model_dump(), overrides)
    options: dict[str, Any] = {"beam": beam, "nbest": nbest, "length_penalty": length_penalty, "prefix": prefix}
    search = tree["search"]
    if isinstance(search, dict):
        if recipe.search.sample:
            _leave_sampling(search, paths, beam)
        if search.get("beam") == recipe.search.beam:
            search["beam"] = 1 if search.get("sample") is True else max(nbest or 1, recipe.search.beam)
            if beam is None and search["beam"] > WIDEST:
                raise ConfigError(f"should be less than or equal to {WIDEST}, not {nbest}", where="--nbest")
        search |= {name: value for name, value in options.items() if value is not None}
        if length_penalty is not None and search.get("normalisation") == "none":
            hint = "leave it out, or --set search.normalisation=mean"
            raise ConfigError("search.normalisation: none has no length penalty", where="--length-penalty", hint=hint)
    return recipe_of(tree)


def refuse_search(task: Task | type[Task], options: Mapping[str, object]) -> None:
    """Refuse options of a search for a task that has none."""
    for option, value in options.items():
        if value is not None and not task.searches:
            what = f"{task.name} does not decode, so {option} has no effect"
            raise DecodeError(what, where=option, hint="leave it out")


def _refuse_trained(recipe: AnyRecipe, overrides: Sequence[str]) -> None:
    """Refuse changes to what training has fixed."""
    changeable = [*CHANGEABLE, *TASKS[recipe.task].changeable]
    for override in overrides:
        path = override.partition("=")[0]
        section = path.partition(".")[0]
        if section in type(recipe).model_fields and not {section, path}.intersection(changeable):
            what, hint = f"{section} cannot be changed in a trained run", f"allowed: {', '.join(changeable)}"
            raise ConfigError(what, where=override, hint=hint)


def _leave_sampling(search: dict[str, Any], paths: set[str], beam: int | None) -> None:
    """For a run that samples: a beam, or `search.sample=false`, drops the settings of sampling that are not named."""
    given = [name for name in SAMPLING if f"search.{name}" in paths]
    if "search.sample" not in paths and not given and (beam is not None or "search.beam" in paths):
        search["sample"] = False
    if search.get("sample") is False:
        for name in SAMPLING:
            if name not in given:
                search.pop(name, None)


def device_named(name: str) -> torch.device:
    """`auto` takes a GPU if there is one."""
    devices = ["cpu"]
    if torch.backends.mps.is_available():
        devices.insert(0, "mps")
    if torch.cuda.is_available():
        devices[:0] = ["cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if name not in ("auto", *devices):
        raise DecodeError(
            f"there is no device {name!r} here", where="--device", hint=f"allowed: auto, {', '.join(devices)}"
        )
    return torch.device(devices[0] if name == "auto" else name)
