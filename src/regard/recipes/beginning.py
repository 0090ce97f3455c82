"""What a recipe takes from the run that it begins with: the model and the tokenizer of `training.init`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.config import read_yaml
from regard.config.load import Tree
from regard.errors import ConfigError, Problem
from regard.tasks import TASKS
from regard.tasks.masked_language_modeling import MaskedLanguageModeling

FREE = frozenset(
    (
        "preset", "vectors", "images", "max_positions", "next_sentence", "masked_head", "objective", "tie",
        "doubly_stochastic", "longest_story", "time_noise", "linear_start", "restarts",
    )
)  # fmt: skip
"""Fields of models that may differ from those of the run whose weights are taken, as every dropout may: they say how it
learns, what is left out under a head, or what the shapes of the weights decide."""
_THEIR_MODEL = "leave the section model out, with model=null: it is then that run's"
_THEIR_TOKENIZER = (
    "leave the section tokenizer out, with tokenizer=null: it is then that run's, with which its weights were trained"
)


def with_init(tree: Tree, base: Path, said: Tree | None = None) -> Tree:
    """The sections `model` and `tokenizer` of a recipe, taken from the run that `training.init` names: for a task with
    a head or on raw text, and wherever the model is left out.

    What the recipe says beside that wins, and must fit the weights. A preset asks for sizes of its own. `said` is what
    a user says of a recipe that ships; what such a one on raw text says itself gives way to the run.
    """
    task, training = TASKS.get(str(tree.get("task"))), tree.get("training")
    init = training.get("init") if isinstance(training, dict) else None
    if task is None or not isinstance(init, str):
        return tree
    if "model" in tree and task.head is None and not task.reads_raw_text:
        return tree
    if not (base / init / "recipe.yaml").exists():
        if "model" in tree:  # what is wrong with the run is said when it is opened
            return tree
        hint = "a run folder is what 'regard train' or 'regard import' makes"
        raise ConfigError(f"{init} is not a run folder", where="training.init", hint=hint)
    model, tokenizer = tree.get("model", {}), tree.get("tokenizer", {})
    if not isinstance(model, dict) or not isinstance(tokenizer, dict):  # which is said when the recipe is checked
        return tree
    theirs = _sections_of(base, init)
    if task.reads_raw_text:
        model, tokenizer = (model, tokenizer) if said is None else _gives_way(model, said)
        return {**tree, **_of_pretraining(theirs, model, tokenizer, init, masked=task is MaskedLanguageModeling)}
    if "preset" not in model:
        model = _same_kind(theirs["model"], model, init)
    _refuse([*_other_tokenizer(theirs["tokenizer"], tokenizer, init)])
    return {**tree, "model": model, "tokenizer": {**theirs["tokenizer"], **tokenizer}}


def other_fields(theirs: Tree, given: Tree, init: str) -> Iterator[Problem]:
    """The fields of a model that do not fit the weights of a run."""
    for name, value in given.items():
        free = name in FREE or name.endswith("dropout") or name not in theirs
        if not free and str(value) != str(theirs[name]):
            what = f"{value} does not fit the weights of {init}"
            yield Problem(f"model.{name}", what, f"that run has {theirs[name]}")


def _sections_of(base: Path, init: str) -> dict[str, Tree]:
    """The model of a run, and its tokenizer, or one for each side."""
    theirs, files = read_yaml(base / init / "recipe.yaml"), Tree(file=f"{init}/tokenizer.json")
    sides = [path.name.split(".")[1] for path in sorted((base / init).glob("tokenizer.*.json"))]
    if sides:
        files = {"file": {side: f"{init}/tokenizer.{side}.json" for side in sides}, "joint": False}
    return {"model": theirs["model"], "tokenizer": {**theirs.get("tokenizer", {}), **files}}


def _gives_way(model: Tree, said: Tree) -> tuple[Tree, Tree]:
    """What is left of a recipe that ships: the kind of its model, and what the user says."""
    kind = {"kind": model["kind"]} if "kind" in model else {}
    return kind | (said.get("model") or {}), said.get("tokenizer") or {}


def _of_pretraining(theirs: dict[str, Tree], model: Tree, tokenizer: Tree, init: str, *, masked: bool) -> Tree:
    """The sections of a pre-training that goes on, or all that stands against it; a masked model gets the head that it
    may have come without."""
    whole = _same_kind(theirs["model"] | ({"masked_head": True} if masked else {}), model, init)
    problems = [*_other_preset(theirs["model"], model, init), *_other_tokenizer(theirs["tokenizer"], tokenizer, init)]
    if problems:  # with those that are else found only when the weights are taken
        problems += other_fields(theirs["model"], model, init)
    _refuse(problems)
    return {"model": whole, "tokenizer": {**theirs["tokenizer"], **tokenizer}}


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise ConfigError(problems=problems)


def _other_tokenizer(theirs: Tree, given: Tree, init: str) -> Iterator[Problem]:
    """The tokenizer of a run is taken as it is: what the recipe says of one must not be another.

    With a file of its own the recipe may say anything: what counts is then the file, and its tokens are compared.
    """
    for name, value in given.items():
        if "file" not in given and value != theirs.get(name, value):
            what = f"{init} has {theirs[name]}, this recipe asks for {value}"
            yield Problem(f"tokenizer.{name}", what, _THEIR_TOKENIZER)


def _other_preset(theirs: Tree, given: Tree, init: str) -> Iterator[Problem]:
    here, there = given.get("preset"), theirs.get("preset")
    if here is not None and here != there:
        yield Problem("model.preset", f"{init} has {there}, this recipe asks for {here}", _THEIR_MODEL)


def _same_kind(theirs: Tree, given: Tree, init: str) -> Tree:
    if given.get("kind", theirs["kind"]) != theirs["kind"]:
        what = f"{init} is a {theirs['kind']}, this recipe asks for {given['kind']}"
        raise ConfigError(what, where="model.kind", hint="leave the section model out: it is then that run's")
    return {**theirs, "vectors": None, **given}
