"""Sections that a recipe takes from the run that it begins with, `training.init`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.config import Tree
from regard.errors import ConfigError, Problem
from regard.recipes.stored import read_stored
from regard.tasks import TASKS, Task

MAY_DIFFER_FROM_INIT = (
    "preset",
    "vectors",
    "images",
    "max_positions",
    "next_sentence",
    "masked_head",
    "replaced_head",
    "generator_size",
    "objective",
    "tie",
    "doubly_stochastic",
    "time_noise",
    "linear_start",
    "restarts",
)
"""Fields of models that may differ from those of the run whose weights are taken, as every dropout
may: they say how it learns, what is left out under a head, or what the shapes of the weights
decide."""


LANGUAGES = ("source_language", "target_language")
"""Fields of the section `data` that a model of many languages needs."""


def with_init(tree: Tree, base: Path, given: Tree | None = None) -> Tree:
    """The sections `model` and `tokenizer` of a recipe, taken from the run that `training.init`
    names: for a task with a head or on raw text, and wherever the model is left out.

    What the recipe itself says of them wins, and must fit the weights. A preset asks for sizes of
    its own. `given` are the overrides of a recipe that ships: on raw text only they win, not the
    values of that recipe.
    """
    task = TASKS.get(str(tree.get("task")))
    init = _init_of(tree)
    if task is None or init is None:
        return tree
    if "model" in tree and not task.start.completes_model:
        return tree
    if not (base / init / "recipe.yaml").exists():
        if "model" in tree:  # what is wrong with the run is reported when it is opened
            return tree
        hint = "a run folder is what 'regard train' or 'regard import' makes"
        raise ConfigError(f"{init} is not a run folder", where="training.init", hint=hint)
    model = tree.get("model", {})
    tokenizer = tree.get("tokenizer", {})
    # reported when the recipe is checked
    if not isinstance(model, dict) or not isinstance(tokenizer, dict):
        return tree
    if task.start.continues and given is not None:
        model = {name: kind for name, kind in model.items() if name == "kind"}
        model |= given.get("model") or {}
        tokenizer = given.get("tokenizer") or {}
    theirs = read_stored(base / init / "recipe.yaml")
    their_tokenizer = {**theirs.get("tokenizer", {}), **_tokenizer_files(base, init)}
    whole = _model_with_init(task, theirs["model"], model, init)
    problems = [*_other_tokenizer(their_tokenizer, tokenizer, init)]
    if task.start.continues:
        problems = [*_other_preset(theirs["model"], model, init), *problems]
        if problems:  # with those that are otherwise found only when the weights are taken
            problems += other_fields(theirs["model"], model, init)
    if problems:
        raise ConfigError(problems=problems)
    data = _languages(theirs.get("data", {}), tree.get("data"), task)
    return {**tree, **data, "model": whole, "tokenizer": {**their_tokenizer, **tokenizer}}


def _languages(theirs: Tree, data: object, task: type[Task]) -> Tree:
    """The section `data` with the languages of a run, where the recipe names none."""
    if not isinstance(data, dict):
        return {}
    names = [name for name in LANGUAGES if name in task.data.model_fields]
    return {"data": {**{name: theirs[name] for name in names if theirs.get(name)}, **data}}


def _init_of(tree: Tree) -> str | None:
    """The run that a recipe begins with, as it is written."""
    training = tree.get("training")
    init = training.get("init") if isinstance(training, dict) else None
    return init if isinstance(init, str) else None


def _tokenizer_files(base: Path, init: str) -> Tree:
    """Fields of the section `tokenizer` that name the files of a run."""
    files = sorted((base / init).glob("tokenizer.*.json"))
    sides = [path.name.split(".")[1] for path in files]
    if not sides:
        return {"file": f"{init}/tokenizer.json"}
    return {"file": {side: f"{init}/tokenizer.{side}.json" for side in sides}, "joint": False}


def _model_with_init(task: type[Task], theirs: Tree, model: Tree, init: str) -> Tree:
    """The section `model`: that of a run, with the fields that the recipe gives."""
    if not task.start.continues and "preset" in model:
        return model
    whole = {**theirs, **task.start.model, "vectors": None, **model}
    if whole["kind"] != theirs["kind"]:
        what = f"{init} is a {theirs['kind']}, this recipe asks for {model['kind']}"
        raise ConfigError(
            what, where="model.kind", hint="leave the section model out: it is then that run's"
        )
    return whole


def _other_tokenizer(theirs: Tree, given: Tree, init: str) -> Iterator[Problem]:
    """The fields of a tokenizer that are not those of a run.

    If the recipe names a file of its own, its tokens are compared when the weights are taken.
    """
    if "file" in given:
        return
    reason = "it is then that run's, with which its weights were trained"
    hint = f"leave the section tokenizer out, with tokenizer=null: {reason}"
    for name, value in given.items():
        if value != theirs.get(name, value):
            what = f"{init} has {theirs[name]}, this recipe asks for {value}"
            yield Problem(f"tokenizer.{name}", what, hint)


def _other_preset(theirs: Tree, given: Tree, init: str) -> Iterator[Problem]:
    here, there = given.get("preset"), theirs.get("preset")
    if here not in (None, there):
        what = f"{init} has {there}, this recipe asks for {here}"
        hint = "leave the section model out, with model=null: it is then that run's"
        yield Problem("model.preset", what, hint)


def other_fields(theirs: Tree, given: Tree, init: str) -> Iterator[Problem]:
    """The fields of a model that do not fit the weights of a run."""
    for name, value in given.items():
        free = name in MAY_DIFFER_FROM_INIT or name.endswith("dropout") or name not in theirs
        if not free and str(value) != str(theirs[name]):
            what = f"{value} does not fit the weights of {init}"
            yield Problem(f"model.{name}", what, f"that run has {theirs[name]}")
