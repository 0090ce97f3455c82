"""Sections that a recipe takes from the run that it begins with, `training.init`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.config import Tree
from regard.errors import ConfigError, Problem
from regard.recipes.stored import read_stored
from regard.tasks import TASKS

MAY_DIFFER_FROM_INIT = (
    "preset",
    "vectors",
    "images",
    "max_positions",
    "next_sentence",
    "masked_head",
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


def with_init(tree: Tree, base: Path, given: Tree | None = None) -> Tree:
    """The sections `model` and `tokenizer` of a recipe, taken from the run that `training.init`
    names: for a task with a head or on raw text, and wherever the model is left out.

    What the recipe has beside that wins, and must fit the weights. A preset asks for sizes of its
    own. `given` are the overrides of a recipe that ships: on raw text only they win, not the values
    of that recipe.
    """
    task, training = TASKS.get(str(tree.get("task"))), tree.get("training")
    init = training.get("init") if isinstance(training, dict) else None
    if task is None or not isinstance(init, str):
        return tree
    if "model" in tree and task.head is None and not task.reads_raw_text:
        return tree
    if not (base / init / "recipe.yaml").exists():
        if "model" in tree:  # what is wrong with the run is reported when it is opened
            return tree
        hint = "a run folder is what 'regard train' or 'regard import' makes"
        raise ConfigError(f"{init} is not a run folder", where="training.init", hint=hint)
    model, tokenizer = tree.get("model", {}), tree.get("tokenizer", {})
    # reported when the recipe is checked
    if not isinstance(model, dict) or not isinstance(tokenizer, dict):
        return tree
    if task.reads_raw_text and given is not None:
        model = {name: kind for name, kind in model.items() if name == "kind"} | (
            given.get("model") or {}
        )
        tokenizer = given.get("tokenizer") or {}
    theirs, files = read_stored(base / init / "recipe.yaml"), Tree(file=f"{init}/tokenizer.json")
    if sides := [
        path.name.split(".")[1] for path in sorted((base / init).glob("tokenizer.*.json"))
    ]:
        files = {"file": {side: f"{init}/tokenizer.{side}.json" for side in sides}, "joint": False}
    their_model, their_tokenizer = theirs["model"], {**theirs.get("tokenizer", {}), **files}
    whole = {**their_model, **task.init_model, "vectors": None, **model}
    if not task.reads_raw_text and "preset" in model:
        whole = model
    elif whole["kind"] != their_model["kind"]:
        what = f"{init} is a {their_model['kind']}, this recipe asks for {model['kind']}"
        raise ConfigError(
            what, where="model.kind", hint="leave the section model out: it is then that run's"
        )
    reason = "it is then that run's, with which its weights were trained"
    hint = f"leave the section tokenizer out, with tokenizer=null: {reason}"
    # where the recipe names a file of its own, its tokens are compared when the weights are taken
    problems = [
        Problem(
            f"tokenizer.{name}",
            f"{init} has {their_tokenizer[name]}, this recipe asks for {value}",
            hint,
        )
        for name, value in tokenizer.items()
        if "file" not in tokenizer and value != their_tokenizer.get(name, value)
    ]
    if task.reads_raw_text:
        here, there = model.get("preset"), their_model.get("preset")
        if here not in (None, there):
            what, hint = (
                f"{init} has {there}, this recipe asks for {here}",
                "leave the section model out",
            )
            problems.insert(
                0, Problem("model.preset", what, f"{hint}, with model=null: it is then that run's")
            )
        if problems:  # with those that are otherwise found only when the weights are taken
            problems += other_fields(their_model, model, init)
    if problems:
        raise ConfigError(problems=problems)
    return {**tree, "model": whole, "tokenizer": {**their_tokenizer, **tokenizer}}


def other_fields(theirs: Tree, given: Tree, init: str) -> Iterator[Problem]:
    """The fields of a model that do not fit the weights of a run."""
    for name, value in given.items():
        free = name in MAY_DIFFER_FROM_INIT or name.endswith("dropout") or name not in theirs
        if not free and str(value) != str(theirs[name]):
            what = f"{value} does not fit the weights of {init}"
            yield Problem(f"model.{name}", what, f"that run has {theirs[name]}")
