"""One YAML file, what was asked: task + data + tokenizer + model + training + search."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import Field, ValidationInfo, field_validator

from regard.config import Config, Tree, kinds_in, validate
from regard.data.config import Recipe as BaseRecipe
from regard.data.config import Splits, TrainingConfig
from regard.errors import ConfigError, Problem, did_you_mean
from regard.models import MODELS
from regard.models.headed import HeadConfig
from regard.search.config import SearchConfig
from regard.tasks import TASKS, Task

D = TypeVar("D", bound=Splits[Any])
E = TypeVar("E", bound=Config)
M = TypeVar("M")
T_co = TypeVar("T_co", bound=TrainingConfig, covariant=True)
H = TypeVar("H", bound=HeadConfig)


class Recipe(BaseRecipe, Generic[D, E, M, T_co]):
    """What was asked, with every default filled in."""

    data: D
    """The examples."""
    model: M
    """The model: `kind`, `preset`, and any field that should differ from the preset."""
    training: T_co
    """How it is trained."""
    search: SearchConfig = SearchConfig()
    """How it writes."""
    evaluation: E = Field(
        default={}, validate_default=True
    )  # the defaults of the task's own config
    """How it is measured."""

    def __reduce__(self) -> tuple[Any, ...]:
        """To other processes it goes as a tree: pickle does not find the class of a recipe by its
        name."""
        return _recipe_with, (self.model_dump(), type(self.training))

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
                kind: known.config
                for kind, known in MODELS.items()
                if known.config.reads == "source"
            }
            attending = ", ".join(kind for kind, config in known.items() if config.alignment)
            raise ValueError(
                f"coverage_penalty needs attention over the source, and {model.kind} has none: "
                f"{attending} have"
            )
        return search


AnyRecipe = Recipe[Any, Any, Any, TrainingConfig]
SGD_RATE = 0.1
"""The learning rate for plain stochastic gradient descent, whatever the model, unless the recipe
gives one."""


class HeadedRecipe(Recipe[D, E, M, T_co], Generic[D, E, M, T_co, H]):
    """A recipe for a model under a head."""

    head: H = Field(default={}, validate_default=True)  # the defaults of the task's own config
    """What stands above the model, and how much of the model itself learns."""


def recipe_for(task: type[Task]) -> type[AnyRecipe]:
    """What a recipe of the task may say."""
    if task.head is not None:
        return HeadedRecipe[task.data, task.evaluation, task.models, TrainingConfig, task.head]  # type: ignore[name-defined]
    return Recipe[task.data, task.evaluation, task.models, TrainingConfig]  # type: ignore[name-defined]


def _recipe_with(tree: Tree, training: type[TrainingConfig]) -> AnyRecipe:
    """A recipe as it was before it was sent to this process."""
    recipe = recipe_of(tree)
    return recipe.model_copy(update={"training": training.model_validate(dict(recipe.training))})


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


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """A recipe's values by their config paths: `data.train.0.corpus`."""
    if not isinstance(tree, dict | list):
        return {path: tree}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    parts = (leaves(part, f"{path}.{name}" if path else str(name)) for name, part in items)
    return {key: value for part in parts for key, value in part.items()}
