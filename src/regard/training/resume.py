"""The run folder of a training: a new one, or one with a checkpoint to continue from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from regard.data.config import TrainingConfig
from regard.data.prepare import Prepared
from regard.errors import CheckpointError, ConfigError, Problem
from regard.recipes.recipe import leaves
from regard.recipes.resolved import ResolvedRecipe
from regard.recipes.resuming import CHANGEABLE_ON_RESUME
from regard.runs import Run
from regard.runs.folder import can_start_in
from regard.runs.metrics_log import LOG_FILE, is_log


def run_to_resume(folder: Path, resume: bool, accept_recipe: bool = False) -> Run | None:
    """The run to resume; None for a new run, in a new folder or in one without a checkpoint."""
    begun = (
        folder.exists()
        and (folder / "environment.json").exists()
        and not (folder / "last").exists()
    )
    if begun and not is_log(folder / LOG_FILE):
        what = "this is not the log of a training, which would overwrite it"
        raise CheckpointError(
            what, where=str(folder / LOG_FILE), hint="move it elsewhere, or give another --out"
        )
    if not folder.exists() or (
        can_start_in(folder) and not (resume and (folder / "recipe.yaml").exists())
    ):
        return None
    if not folder.is_dir():
        raise CheckpointError(
            "there is a file of this name", where=str(folder), hint="give another --out"
        )
    if not resume:
        if all((folder / name).exists() for name in ("recipe.yaml", "environment.json")):
            what, hint = (
                "the run folder exists already",
                "--resume continues it; give another --out for a new run",
            )
        else:
            what, hint = (
                "the folder exists already, and contains files that are not of a run",
                "give another --out",
            )
        raise CheckpointError(what, where=str(folder), hint=hint)
    return Run.open(folder, accept_recipe)


def create_run(
    folder: Path,
    recipe: ResolvedRecipe,
    data: Prepared[Any],
    accelerator: Accelerator,
    threads: int | None,
) -> Run:
    if not accelerator.is_main_process:
        return Run(folder, checked=False)
    run_to_resume(folder, resume=False)  # another process may have created it since
    return Run.create(folder, recipe, data.tokenizers, chosen_threads=threads)


def refuse_other_recipe(run: Run, recipe: ResolvedRecipe) -> None:
    """A resumed training must have the same recipe, up to CHANGEABLE_ON_RESUME."""
    before, now = leaves(run.recipe.model_dump()), leaves(recipe.model_dump())
    paths = before.keys() | now.keys()
    if before["model.kind"] != now["model.kind"]:  # the other fields of the model then differ too
        paths = {"model.kind"}
    problems = [
        Problem(
            path,
            f"the run was started with {before.get(path)!r}, this recipe says {now.get(path)!r}",
        )
        for path in sorted(paths)
        if before.get(path) != now.get(path)
        and path.removeprefix("training.") not in CHANGEABLE_ON_RESUME
    ]
    if problems:
        refusal = Problem(
            str(run.folder), "cannot be resumed with another recipe", "give another --out"
        )
        raise ConfigError(problems=[*problems, refusal])


def refuse_changed_data(run: Run, before: Mapping[str, int], now: Mapping[str, int]) -> None:
    """A resumed training must have the same data, by the fingerprints of its parts."""
    for part, fingerprint in now.items():
        if before.get(part, fingerprint) != fingerprint:
            raise CheckpointError(
                f"the {part} data has changed since the run began",
                where=str(run.folder),
                hint="restore the data, or start a new run with another --out",
            )


def refuse_fewer_steps(config: TrainingConfig, done: int, steps: int) -> None:
    """A training cannot end before the step that it has reached; with a time limit it ends there."""
    if config.minutes is None and done > steps:
        raise ConfigError(
            f"the run has made {done:,} steps, more than {steps:,}",
            where="training.epochs" if config.steps is None else "training.steps",
            hint="use --checkpoint in other commands for an earlier checkpoint",
        )


def resumed_batches_per_step(stored: int, at_once: int, accelerator: Accelerator) -> int:
    """The batches of a step of the run, whatever the number of processes now, which must be able to
    share them evenly."""
    if stored % at_once == 0:
        return stored
    possible = [str(count) for count in range(1, stored + 1) if stored % count == 0]
    raise ConfigError(
        f"a step of the run has {stored} batches, which {accelerator.num_processes} processes "
        "cannot share evenly",
        where="--resume",
        hint=f"resume with {', '.join(possible)}",
    )
