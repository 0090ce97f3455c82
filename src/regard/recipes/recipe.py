"""One YAML file, what was asked: task + data + tokenizer + model + training + search."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from regard.config import Config, Tree, apply_overrides, kinds_in, parse_yaml, read_yaml, validate
from regard.data.config import Corpus, Split, Splits
from regard.data.config import Recipe as BaseRecipe
from regard.errors import ConfigError, Problem, did_you_mean
from regard.models import MODELS, config_of
from regard.models.headed import HeadConfig
from regard.recipes.shipped import shipped, shipped_text
from regard.search.config import MOST, SearchConfig
from regard.tasks import TASKS, Task

D = TypeVar("D", bound=Splits[Any])
E = TypeVar("E", bound=Config)
M = TypeVar("M")
H = TypeVar("H", bound=HeadConfig)


class Recipe(BaseRecipe, Generic[D, E, M]):
    """What was asked, with every default filled in."""

    data: D
    """The examples."""
    model: M
    """The model: `kind`, `preset`, and any field that should differ from the preset."""
    search: SearchConfig = SearchConfig()
    """How it writes."""
    evaluation: E = Field(
        default={}, validate_default=True
    )  # the defaults of the task's own config
    """How it is measured."""

    def __reduce__(self) -> tuple[Any, ...]:
        """To other processes it goes as a tree: pickle does not find the class of a recipe by its
        name."""
        return recipe_of, (self.model_dump(),)

    @field_validator("model", mode="before")
    @classmethod
    def _a_model_for_the_task(cls, model: Any, others: ValidationInfo) -> Any:
        """Refuse a model of another task; a kind that does not exist is refused later, with the
        nearest name."""
        kind, task = model.get("kind") if isinstance(model, dict) else None, others.data.get("task")
        if (
            task is None
            or not isinstance(kind, str)
            or kind in (allowed := kinds_in(TASKS[task].models))
        ):
            return model
        if any(kind in kinds_in(other.models) for other in TASKS.values()):
            raise ValueError(
                f"{kind} is no model for the task {task} (allowed: {', '.join(sorted(allowed))})"
            )
        return model

    @field_validator("model")
    @classmethod
    def _fits_the_columns(cls, model: Any, others: ValidationInfo) -> Any:
        """One embedding for both sides needs one vocabulary, and one file of vectors; vectors are
        for a column.

        Two vocabularies may happen to have the same size, so that the model itself cannot tell. Two
        files of tokenizers may be two ways to cut text into the pieces of one vocabulary, as
        Marian's are.
        """
        tokenizer, files = (
            others.data.get("tokenizer"),
            model.vectors.files if model.vectors else {},
        )
        if getattr(model, "tie", None) == "all":
            if tokenizer and not tokenizer.joint and tokenizer.file is None:
                raise ValueError(
                    "tie: all needs one vocabulary for both sides (set tokenizer.joint=true, or "
                    "tie: target)"
                )
            if len(set(files.values())) > 1:
                raise ValueError(
                    "tie: all has one embedding for both sides: give it one file of vectors, "
                    "not two"
                )
        columns = TASKS[others.data["task"]].vocabularies if "task" in others.data else ()
        for side in files if columns else ():
            if side not in columns:
                raise ValueError(
                    f"vectors of the {side}: this task has only {' and '.join(columns)}"
                )
        return model

    @field_validator("training", mode="before")
    @classmethod
    def _rate_of_the_model(cls, training: Any, others: ValidationInfo) -> Any:
        """The learning rate that suits the model, unless the recipe gives one."""
        model = others.data.get("model")
        if not isinstance(training, dict) or "learning_rate" in training or model is None:
            return training
        factor = 0.1 if training.get("init") else 1.0
        rate = SGD_RATE if training.get("optimizer") == "sgd" else model.learning_rate
        return {**training, "learning_rate": float(f"{factor * rate:.2g}")}

    @field_validator("search")
    @classmethod
    def _coverage_needs_attention(
        cls, search: SearchConfig, others: ValidationInfo
    ) -> SearchConfig:
        model = others.data.get("model")
        if search.coverage_penalty and model and not model.alignment:
            known = {
                kind: config for kind, (config, _) in MODELS.items() if config.reads == "source"
            }
            attending = ", ".join(kind for kind, config in known.items() if config.alignment)
            raise ValueError(
                f"coverage_penalty needs attention over the source, and {model.kind} has none: "
                f"{attending} have"
            )
        return search


AnyRecipe = Recipe[Any, Any, Any]
SGD_RATE = 0.1
"""The learning rate for plain stochastic gradient descent, whatever the model, unless the recipe
gives one."""


class HeadedRecipe(Recipe[D, E, M], Generic[D, E, M, H]):
    """The same for a model under a head."""

    head: H = Field(default={}, validate_default=True)  # the defaults of the task's own config
    """What stands above the model, and how much of the model itself learns."""


def recipe_for(task: type[Task]) -> type[AnyRecipe]:
    """What a recipe of the task may say."""
    if task.head is not None:
        return HeadedRecipe[task.data, task.evaluation, task.models, task.head]  # type: ignore[name-defined]
    return Recipe[task.data, task.evaluation, task.models]  # type: ignore[name-defined]


def recipe_of(tree: Tree) -> AnyRecipe:
    """The typed recipe of a tree, or one ConfigError with every problem in it."""
    task = TASKS.get(str(tree.get("task")))
    if task is None:
        given = tree.get("task")
        what = "this key is required" if given is None else f"unknown task {given!r}"
        problems = [Problem("task", what, did_you_mean(str(given), TASKS))]
        same_for_all = {name: tree[name] for name in ("tokenizer", "training") if name in tree}
        others = {"task": "", "data": None, "model": None, "search": None, "evaluation": None}
        try:
            validate(BaseRecipe, others | same_for_all)
        except ConfigError as error:
            problems += error.problems
        raise ConfigError(problems=problems)
    tree = {**tree}
    for (
        name,
        values,
    ) in task.defaults.items():  # what suits the task better than the defaults of the sections
        section = tree.get(name, {})
        if isinstance(section, dict) and (
            name in tree or not Recipe.model_fields[name].is_required()
        ):
            tree[name] = {**values, **section}
    return validate(recipe_for(task), task.complete(tree))


def load_recipe(recipe: str | Path | Tree, overrides: Sequence[str] = ()) -> tuple[AnyRecipe, Path]:
    """A recipe from a file, a mapping, or the name of one that ships; and the folder its paths are
    relative to."""
    tree, base = load_tree(recipe, overrides)
    typed = recipe_of(tree)
    expect_training_data(typed)
    return typed, base


FORMER_DEFAULTS: Tree = {
    "training.schedule": "inverse_sqrt",
    "training.warmup": 0,
    "training.learning_rate": 1e-3,
    "model.norm": "post",
}
"""Defaults of earlier versions, for runs whose recipe does not have the field."""
REMOVED = (
    "data.reading",
    "model.images.max_pixels",
    "model.longest_story",
)  # fields of earlier versions


def read_stored(path: Path) -> Tree:
    """The recipe of a run folder, without the fields that no longer exist, within the limits of
    today, and with the former defaults where it lacks a field."""
    return as_stored(read_yaml(path))


def as_stored(tree: Tree) -> Tree:
    """A recipe that an earlier version may have written, without the fields that no longer exist,
    within the limits of today, and with the former defaults where it lacks a field."""
    for changed, former in FORMER_DEFAULTS.items():
        _fill_in(tree, changed, former)
    for removed in REMOVED:
        section: Any = tree
        *names, name = removed.split(".")
        for key in names:
            section = section.get(key) if isinstance(section, dict) else None
        if isinstance(section, dict):
            section.pop(name, None)
    if isinstance(search := tree.get("search"), dict):
        limited = {
            name: most for name, most in MOST.items() if isinstance(search.get(name), int | float)
        }
        search |= {name: min(search[name], most) for name, most in limited.items()}
    return tree


def _fill_in(tree: Tree, path: str, value: Any) -> None:
    """Give a field of a recipe this value, if the recipe has the section and lacks the field."""
    name, _, field = path.partition(".")
    section, task = tree.get(name), TASKS.get(str(tree.get("task")))
    if not isinstance(section, dict):
        return
    if name == "model" and field not in config_of(section.get("kind")).model_fields:
        return
    if path == "training.schedule" and task is not None and task.head is not None:
        value = "linear"
    section.setdefault(field, value)


def with_defaults_of_run(recipe: AnyRecipe, given: Tree, before: AnyRecipe) -> AnyRecipe:
    """The recipe to resume a run with: where it does not give a field whose default has changed,
    and the run has the former one, it has that too."""
    if recipe.model.kind != before.model.kind:
        return recipe
    tree, theirs, named = recipe.model_dump(), leaves(before.model_dump()), leaves(given)
    for path, former in FORMER_DEFAULTS.items():
        section, _, field = path.partition(".")
        if path not in named and theirs.get(path) == former:
            tree[section][field] = theirs[path]
    return recipe_of(tree)


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """A recipe's values by their config paths: `data.train.0.corpus`."""
    if not isinstance(tree, dict | list):
        return {path: tree}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    parts = (leaves(part, f"{path}.{name}" if path else str(name)) for name, part in items)
    return {key: value for part in parts for key, value in part.items()}


def expect_training_data(recipe: AnyRecipe) -> None:
    """Refuse a recipe that is not to be trained, as that of an imported run is."""
    if not recipe.data.train:
        raise ConfigError(
            "there is nothing to train on", where="data.train", hint="name at least one corpus"
        )


class Proposal(str):
    """The YAML of a proposed recipe."""

    folder = Path()
    """What the paths in it are relative to."""


def load_tree(recipe: str | Path | Tree, overrides: Sequence[str] = ()) -> tuple[Tree, Path]:
    """The same before its values are checked; a section that is null is left out.

    Where overrides ask for another kind of model than the recipe's, what both kinds have is kept
    (`switch_model`).
    """
    tree, base, ships = _stored_tree(recipe, overrides)
    given = apply_overrides({}, overrides) if ships else None
    tree, _ = switch_model(tree, apply_overrides(tree, overrides), overrides)
    sections = {name: section for name, section in tree.items() if section is not None}
    return with_init(sections, base, given), base


def _stored_tree(
    recipe: str | Path | Tree, overrides: Sequence[str] = ()
) -> tuple[Tree, Path, bool]:
    """A recipe as it is written, the folder its paths are relative to, and whether it is one that
    ships."""
    if isinstance(recipe, dict):
        return recipe, Path.cwd(), False
    if isinstance(recipe, str) and "\n" in recipe:
        base = (recipe.folder if isinstance(recipe, Proposal) else Path()).absolute()
        return parse_yaml(recipe, where="the recipe"), base, False
    # `babi` may be the folder of the recipe's data
    if Path(recipe).is_dir() and str(recipe) not in shipped():
        raise ConfigError(
            "this is a folder, not a recipe", where=str(recipe), hint="give a .yaml file"
        )
    if Path(recipe).is_file() or str(recipe) not in shipped():
        if not Path(recipe).exists():
            raise _missing(str(recipe))
        if Path(recipe).suffix.lower() not in ("", ".yaml", ".yml", ".json"):
            further = [other for other in overrides if "=" not in other]
            command = shlex.join(["regard", "check", str(recipe), *further, "--out", "mine.yaml"])
            hint = f"'{command}' proposes a recipe for data"
            raise ConfigError(
                "this is not a recipe, which is a .yaml file", where=str(recipe), hint=hint
            )
        base = Path(recipe).resolve().parent
        tree = (read_stored if (base / "environment.json").exists() else read_yaml)(Path(recipe))
        return tree, base, False
    return parse_yaml(shipped_text(str(recipe)), where=str(recipe)), Path.cwd(), True


# Another kind of model than the recipe's

KEPT_FIELDS = ("preset", "dropout", "tie")
"""Fields that a new kind of model takes over even if the whole section is replaced: they say how
large the model is and how it is regularised, and not what it is."""


@dataclass(frozen=True)
class Switch:
    """Another kind of model than that of the recipe as it is written, as overrides ask for."""

    kind: str
    other: AnyRecipe
    """The recipe with its own model and all overrides outside the section `model`."""
    dropped: tuple[str, ...]
    """Fields of that model which the new kind does not have, or not with this value."""


def switch_model(
    before: Tree, after: Tree, overrides: Sequence[str]
) -> tuple[Tree, tuple[str, ...]]:
    """`after`, the tree with overrides, with a section `model` that suits its kind, and the fields
    left out.

    With `model.kind=X` all fields are kept that X has too; with `model={kind: X}` only KEPT_FIELDS.
    """
    theirs, ours = before.get("model"), after.get("model")
    if not isinstance(theirs, dict) or not isinstance(ours, dict):
        return after, ()
    kind, config = ours.get("kind"), config_of(ours.get("kind"))
    if kind not in MODELS or theirs.get("kind") not in MODELS or kind == theirs["kind"]:
        return after, ()
    given = apply_overrides(
        {}, [one for one in _listed(overrides) if one.partition("=")[0].split(".")[0] == "model"]
    )
    replaced = any(one.partition("=")[0] == "model" for one in _listed(overrides))
    named = given["model"]
    others = {
        name: value for name, value in theirs.items() if name not in named and value is not None
    }
    kept = {
        name: value
        for name, value in others.items()
        if name in config.model_fields and (name in KEPT_FIELDS or not replaced)
    }
    unlike = {name for name in others if name not in config.model_fields}
    try:
        config.model_validate({**named, **kept})
    except ValidationError as error:
        unlike |= {str(one["loc"][0]) for one in error.errors() if one["loc"]} & kept.keys()
    model = {**{name: value for name, value in kept.items() if name not in unlike}, **named}
    return {**after, "model": model}, tuple(
        f"{name}: {others[name]}" for name in others if name in unlike
    )


def switched_model(recipe: str | Path | Tree, overrides: Sequence[str]) -> Switch | None:
    """The switch that overrides ask for, if there is one and the recipe is valid with its own
    model."""
    before, base, _ = _stored_tree(recipe)
    after = apply_overrides(before, overrides)
    theirs, ours = before.get("model"), after.get("model")
    if (
        not isinstance(theirs, dict)
        or not isinstance(ours, dict)
        or theirs.get("kind") == ours.get("kind")
    ):
        return None
    dropped = switch_model(before, after, overrides)[1]
    own = {
        name: section for name, section in {**after, "model": theirs}.items() if section is not None
    }
    try:
        return Switch(str(ours.get("kind")), recipe_of(with_init(own, base)), dropped)
    except ConfigError:
        return None


def _listed(overrides: Sequence[str]) -> Sequence[str]:
    return [overrides] if isinstance(overrides, str) else overrides


def _missing(recipe: str) -> ConfigError:
    """A name that is neither a file nor a recipe that ships."""
    is_path = Path(recipe).suffix or Path(recipe).parent != Path()
    near = [] if is_path else get_close_matches(recipe, shipped(), n=1, cutoff=0.7)
    what = "there is no such file" if is_path else "there is no such recipe"
    hint = f"did you mean {near[0]!r}?" if near else "'regard recipes' lists those that ship"
    return ConfigError(
        what, where=recipe, hint=f"a recipe is a .yaml file, or one that ships; {hint}"
    )


def with_absolute_paths(recipe: AnyRecipe, base: Path) -> AnyRecipe:
    """The same recipe wherever it is read from."""

    def absolute(path: Any) -> Any:
        if isinstance(path, dict):
            return {side: absolute(file) for side, file in path.items()}
        return None if path is None else str((base / path).absolute())

    def with_paths(corpus: Corpus) -> Tree:
        tree = corpus.model_dump()
        fields = ["file"] if corpus.file else [] if corpus.corpus else list(corpus.columns)
        if corpus.dataset is not None:  # a name on the Hub, or a folder
            fields = ["dataset"] if (base / corpus.dataset).is_dir() else []
        return tree | {name: absolute(tree[name]) for name in fields}

    tree = recipe.model_dump()
    for part in ("train", "validation", "test"):
        corpora = getattr(recipe.data, part)
        if corpora is not None and not isinstance(corpora, Split):
            tree["data"][part] = [with_paths(corpus) for corpus in corpora]
    tree["tokenizer"]["file"] = absolute(recipe.tokenizer.file)
    tree["training"]["init"] = absolute(recipe.training.init)
    tree["within"] = absolute(recipe.within)
    if recipe.model.vectors is not None:
        tree["model"]["vectors"] |= absolute(recipe.model.vectors.files)
    return recipe_of(tree)


# What a verb changes in the recipe of a trained run

CHANGEABLE_ON_RESUME = (
    "steps",
    "epochs",
    "minutes",
    "device",
    "compile",
    "log_every",
    "validate_every",
    "checkpoint_every",
    "keep_best",
    "patience",
    "decode",
    "samples",
    "average",
    "checkpoint_activations",
    "data.workers",
    "data.bad_lines",
)
"""Fields, of `training` unless named, that a resumed training may change; any other would make it
another training. The fingerprint of the data tells whether another data.bad_lines leaves other
examples."""
# What a recipe takes from the run that it begins with, `training.init`: the model and the tokenizer

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
