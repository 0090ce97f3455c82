"""The run folder: everything that training a recipe produced, self-contained and movable.

ARCHITECTURE.md ("Four seams") lists its files.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from torch import nn

from regard.config import read_yaml, write_yaml
from regard.engine import check_environment
from regard.errors import CheckpointError, ConfigError, did_you_mean
from regard.recipes.recipe import AnyRecipe, leaves
from regard.recipes.resolved import ResolvedRecipe, recipe_of_run
from regard.runs.checkpoints import (
    STEP_FOLDER,
    expect_checksums,
    load_facts,
    load_weights,
    remove_steps_but,
    step_name,
)
from regard.runs.devices import chosen_device
from regard.runs.folder import (
    FORMAT,
    environment_of,
    expect_run_folder,
    write_run_files,
)
from regard.runs.metrics_log import LOG_FILE, read_metrics
from regard.runs.packaged import folder_or_example
from regard.runs.trained_with import (
    differing_fields,
    other_tokenizer,
    refuse_other_model,
    refuse_other_settings,
)
from regard.runs.weights import put_weights
from regard.search.external import AnyModel
from regard.tasks import TASKS, Task
from regard.text.tokenizers import Tokenizers
from regard.text.writing import write_file


class Run:
    """A run folder that exists, checked to be one."""

    def __init__(self, folder: str | Path, *, checked: bool = True) -> None:
        """Open a folder; one that may be on the machine of another process only is not checked."""
        self.folder = folder_or_example(folder)
        self.accept_recipe = False
        """Whether recipe.yaml may differ from the recipe that a checkpoint was trained with."""
        self._task: Task | None = None
        if checked:
            self._check_folder()

    def _check_folder(self) -> None:
        """Refuse a folder that is not a run folder, or was made by a newer version."""
        expect_run_folder(self.folder)
        if self.environment.get("format", FORMAT) > FORMAT:
            newer = self.environment.get("regard")
            raise CheckpointError(
                f"the run was made by a newer regard, {newer}",
                where=str(self.folder),
                hint="upgrade",
            )

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.folder}: {self.recipe.task}, {self.recipe.model.kind}>"
        )

    @classmethod
    def create(
        cls,
        folder: Path,
        recipe: AnyRecipe,
        tokenizers: Tokenizers,
        origin: Mapping[str, Any] | None = None,
        chosen_threads: int | None = None,
    ) -> Run:
        """Make a new run folder, or fill a vacant one; `origin` says where an imported model comes
        from.

        `chosen_threads` is the number of threads that was found to be fastest, for a training that
        resumes this one.
        """
        files = {name: tokenizer.to_json() for name, tokenizer in tokenizers.files.items()}
        files["recipe.yaml"] = write_yaml(recipe.model_dump())
        write_run_files(folder, files, environment_of(files, origin, chosen_threads))
        return cls(folder)

    @classmethod
    def open(cls, folder: str | Path | Run, accept_recipe: bool = False) -> Run:
        """The run in a folder; one that is open already is returned."""
        run = folder if isinstance(folder, Run) else cls(folder)
        if accept_recipe and not run.accept_recipe:
            run = copy.copy(run)
            run.accept_recipe = True
        return run

    @cached_property
    def stored_recipe(self) -> ResolvedRecipe:
        """What recipe.yaml says."""
        path = str(self.folder / "recipe.yaml")
        try:
            return recipe_of_run(read_yaml(Path(path)))
        except ConfigError as error:
            problems = [
                problem
                if problem.where.startswith(path)
                else replace(problem, where=f"{path}: {problem.where}")
                for problem in error.problems
            ]
            raise CheckpointError(problems=problems) from None

    @cached_property
    def recipe(self) -> ResolvedRecipe:
        """What recipe.yaml says, or with `under` another recipe."""
        return self.stored_recipe

    @property
    def recipe_values(self) -> list[Any]:
        """All values in its recipe, the paths of the files that it reads among them."""
        return [*leaves(self.recipe.model_dump()).values()]

    @property
    def task(self) -> Task:
        """Its task, made once for each recipe."""
        if self._task is None:
            self._task = TASKS[self.recipe.task](self.recipe, self.tokenizers)
        return self._task

    @cached_property
    def tokenizers(self) -> Tokenizers:
        return Tokenizers.load(self.folder, TASKS[self.recipe.task].vocabularies)

    @cached_property
    def environment(self) -> dict[str, Any]:
        try:
            environment: dict[str, Any] = json.loads(
                (self.folder / "environment.json").read_text(encoding="utf-8")
            )
            _, _ = environment["regard"], environment.get("imported", {"from": None})["from"]
            if not isinstance(environment.get("format", FORMAT), int):
                raise TypeError("format is no number")
        except (OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
            raise CheckpointError(
                f"cannot be read: {error}", where=str(self.folder / "environment.json")
            ) from None
        return environment

    def store_recipe(self, recipe: AnyRecipe) -> None:
        write_file(self.folder / "recipe.yaml", write_yaml(recipe.model_dump()))

    def under(self, recipe: ResolvedRecipe) -> Self:
        """This run with another recipe; nothing is written."""
        if recipe is self.recipe:
            return self
        other = copy.copy(self)
        other.recipe = recipe
        other._task = None
        return other

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def events(self) -> Iterator[dict[str, Any]]:
        return read_metrics(self.folder / LOG_FILE)

    def pointer(self, name: str) -> Path | None:
        """The checkpoint that `best` or `last` names."""
        try:
            named = (self.folder / name).read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return None
        return self.checkpoints / named if named else None

    def point(self, name: str, checkpoint: str) -> None:
        """Let `best` or `last` name a checkpoint."""
        if self.pointer(name) != self.checkpoints / checkpoint:
            write_file(self.folder / name, checkpoint + "\n")

    def resumable(self) -> Path | None:
        """The checkpoint that training continues from: what `last` names, or the newest where that
        file is lost."""
        if self.pointer("last") is not None:
            return self.checkpoint("last")
        return max(
            (path.parent for path in self.checkpoints.glob("step-*/training.pt")), default=None
        )

    def checkpoint(self, name: str = "best") -> Path:
        """A checkpoint by `best`, `last`, its step or its folder's name."""
        if name == "best":
            self._check_best()
        folder = self.pointer(name) if name in ("best", "last") else self.checkpoints / name
        if name.isdecimal() and len(name) < 20:
            folder = self.checkpoints / step_name(int(name))
        if folder is None:
            what, hint = "the run has no checkpoint yet", "'regard train ... --resume' continues"
            if saved := max(self.checkpoints.glob("step-*"), default=None):
                what = f"the file {name!r}, which names a checkpoint, is missing"
                hint = (
                    "'regard train ... --resume' writes it again; --checkpoint "
                    f"{saved.name} uses the newest"
                )
            raise CheckpointError(what, where=str(self.folder), hint=hint)
        names = (
            [path.name for path in self.checkpoints.iterdir()] if self.checkpoints.is_dir() else []
        )
        if folder.name not in names:
            none = "the run has none: copy it back from elsewhere, or train anew with another --out"
            hint = did_you_mean(folder.name, names) if names else none
            raise CheckpointError("there is no such checkpoint", where=str(folder), hint=hint)
        return folder

    def _check_best(self) -> None:
        """Refuse a file `best` that does not name the checkpoint that the last one knows as the
        best.

        A checkpoint after the last one may be better: `best` is written before `last`.
        """
        named, last = self.pointer("best"), self.pointer("last")
        if (
            named is None
            or last is None
            or not (STEP_FOLDER.fullmatch(named.name) and STEP_FOLDER.fullmatch(last.name))
        ):
            return
        try:
            facts = load_facts(last)
            best = step_name(facts["best"][0]["step"] if facts["best"] else facts["step"])
        except (CheckpointError, KeyError, IndexError, TypeError):
            # whoever needs the last checkpoint reports it
            return
        if named.name != best and int(named.name[5:]) <= int(last.name[5:]):
            what = f"it names {named.name}, but the best checkpoint is {best}, as {last.name} says"
            hint = f"write {best} into it; or --checkpoint {named.name} uses the other one"
            raise CheckpointError(what, where=str(self.folder / "best"), hint=hint)

    def load_model(self, checkpoint: str | None = None, device: str | None = "cpu") -> nn.Module:
        """The run's model with trained weights, ready to use. Default: the best; the device `auto`,
        or None, is a GPU if there is one."""
        check_environment()
        place = chosen_device(device)
        folder = self.checkpoint("best" if checkpoint is None else checkpoint)
        self.check_unchanged(folder)
        model: nn.Module = self.task.network.build()
        put_weights(model, load_weights(folder), folder)
        return model.to(place).eval()

    def predictor(self, checkpoint: str | None = None, device: str | None = "cpu") -> AnyModel:
        """The model that predicts, evaluates and scores: that of torch, or one that another library
        runs."""
        return self.load_model(checkpoint, device)

    def facts(self, step: int, best: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What a checkpoint stores as JSON: its step, the best metrics so far, and what its weights
        mean."""
        recipe = self.recipe.model_dump(mode="json")
        return {
            "step": step,
            "best": best,
            "tokenizer": self.tokenizers.fingerprint,
            "recipe": recipe,
        }

    def check_unchanged(self, checkpoint: Path) -> None:
        """Refuse a recipe or a tokenizer that the checkpoint was not trained with.

        Even if the shapes fit, the weights would mean something else: every id another token, for
        example. With `accept_recipe` only the sections that say what the weights mean must be the
        same.
        """
        facts = load_facts(checkpoint)
        if self.environment.get("format", FORMAT) >= 2:
            expect_checksums(checkpoint, facts)
        recipe_file = self.folder / "recipe.yaml"
        differing = differing_fields(self.stored_recipe, facts.get("recipe", {}))
        refuse_other_model(differing, checkpoint, recipe_file)
        if not self.accept_recipe:
            refuse_other_settings(differing, checkpoint, recipe_file)
        if facts["tokenizer"] != self.tokenizers.fingerprint:
            raise other_tokenizer(self.tokenizers, self.folder)

    def remove_all_but(self, names: set[str]) -> None:
        """Remove checkpoints that are no longer needed; a user's copies stay."""
        remove_steps_but(names, self.checkpoints)
