"""The run folder of a training: a new one, or one with a checkpoint to continue from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accelerate import Accelerator

from regard.data.prepare import Prepared
from regard.errors import CheckpointError, ConfigError, Problem
from regard.recipes.recipe import (
    CHANGEABLE_ON_RESUME,
    AnyRecipe,
    leaves,
)
from regard.runs import Run
from regard.runs.run import (
    LOG,
    can_start_in,
    is_log,
)


def run_to_resume(folder: Path, resume: bool, accept_recipe: bool = False) -> Run | None:
    """The run to resume; None for a new run, in a new folder or in one without a checkpoint."""
    begun = (
        folder.exists()
        and (folder / "environment.json").exists()
        and not (folder / "last").exists()
    )
    if begun and not is_log(folder / LOG):
        what = "this is not the log of a training, which would overwrite it"
        raise CheckpointError(
            what, where=str(folder / LOG), hint="move it elsewhere, or give another --out"
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
    recipe: AnyRecipe,
    data: Prepared[Any],
    accelerator: Accelerator,
    threads: int | None,
) -> Run:
    if not accelerator.is_main_process:
        return Run(folder, checked=False)
    run_to_resume(folder, resume=False)  # another process may have created it since
    return Run.create(folder, recipe, data.tokenizers, chosen_threads=threads)


def refuse_other_recipe(run: Run, recipe: AnyRecipe) -> None:
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
