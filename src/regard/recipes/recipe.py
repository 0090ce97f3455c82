"""One YAML file, what was asked: task + data + tokenizer + model + training + search."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import Field, ValidationInfo, field_validator

from regard.config import Config, apply_overrides, kinds_in, parse_yaml, read_yaml, validate
from regard.config.load import Tree
from regard.data.config import Corpus, Split, Splits
from regard.errors import ConfigError, did_you_mean
from regard.models import MODELS
from regard.models.headed import HeadConfig
from regard.recipes.beginning import with_init
from regard.recipes.shipped import shipped, shipped_text
from regard.recipes.training import TrainingConfig
from regard.search import SearchConfig
from regard.tasks import TASKS, Task
from regard.text.tokenizers import TokenizerConfig

D = TypeVar("D", bound=Splits[Any])
E = TypeVar("E", bound=Config)
M = TypeVar("M")
H = TypeVar("H", bound=HeadConfig)


class Recipe(Config, Generic[D, E, M]):
    """What was asked, with every default filled in."""

    task: str
    """What the run is for: a name in TASKS."""
    data: D
    """The examples."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """How text becomes tokens."""
    model: M
    """The model: `kind`, `preset`, and any field that should differ from the preset."""
    training: TrainingConfig
    """How it is trained."""
    search: SearchConfig = SearchConfig()
    """How it writes."""
    evaluation: E = Field(default={}, validate_default=True)  # the defaults of the task's own config
    """How it is measured."""

    @field_validator("model", mode="before")
    @classmethod
    def _a_model_for_the_task(cls, model: Any, others: ValidationInfo) -> Any:
        """A kind that nobody knows is refused by its spelling."""
        kind, task = model.get("kind") if isinstance(model, dict) else None, others.data.get("task")
        if task is None or not isinstance(kind, str) or kind in (allowed := kinds_in(TASKS[task].models)):
            return model
        if any(kind in kinds_in(other.models) for other in TASKS.values()):
            raise ValueError(f"{kind} is no model for the task {task} (allowed: {', '.join(sorted(allowed))})")
        return model

    @field_validator("model")
    @classmethod
    def _one_embedding_for_one_vocabulary(cls, model: Any, others: ValidationInfo) -> Any:
        """Two vocabularies may happen to have the same size, so that the model itself cannot tell.

        Two files may be two ways to cut text into the pieces of one vocabulary, as Marian's are.
        """
        tokenizer = others.data.get("tokenizer")
        if getattr(model, "tie", None) == "all" and tokenizer and not tokenizer.joint and tokenizer.file is None:
            raise ValueError("tie: all needs one vocabulary for both sides (set tokenizer.joint=true, or tie: target)")
        return model

    @field_validator("model")
    @classmethod
    def _one_file_for_one_embedding(cls, model: Any) -> Any:
        if getattr(model, "tie", None) == "all" and model.vectors and len(set(model.vectors.files.values())) > 1:
            raise ValueError("tie: all has one embedding for both sides: give it one file of vectors, not two")
        return model

    @field_validator("model")
    @classmethod
    def _vectors_of_its_columns(cls, model: Any, others: ValidationInfo) -> Any:
        columns = TASKS[others.data["task"]].columns if "task" in others.data else ()
        for side in model.vectors.files if model.vectors and columns else ():
            if side not in columns:
                raise ValueError(f"vectors of the {side}: this task has only {' and '.join(columns)}")
        return model

    @field_validator("search")
    @classmethod
    def _coverage_needs_attention(cls, search: SearchConfig, others: ValidationInfo) -> SearchConfig:
        model = others.data.get("model")
        if search.coverage_penalty and model and not model.alignment:
            known = {kind: config for kind, (config, _) in MODELS.items() if config.reads == "source"}
            attending = ", ".join(kind for kind, config in known.items() if config.alignment)
            raise ValueError(
                f"coverage_penalty needs attention over the source, and {model.kind} has none: {attending} have"
            )
        return search


AnyRecipe = Recipe[Any, Any, Any]


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
        raise ConfigError(what, where="task", hint=did_you_mean(str(given), TASKS))
    return validate(recipe_for(task), task.complete(_with_defaults(tree, task)))


def _with_defaults(tree: Tree, task: type[Task]) -> Tree:
    """What suits the task better than the defaults of the sections, where the recipe does not say."""
    own = {
        name: {**values, **section}
        for name, values in task.defaults.items()
        if isinstance(section := tree.get(name, {}), dict)
        and (name in tree or not Recipe.model_fields[name].is_required())
    }
    return {**tree, **own}


def load_recipe(recipe: str | Path | Tree, overrides: Sequence[str] = ()) -> tuple[AnyRecipe, Path]:
    """A recipe from a file, a mapping, or the name of one that ships; and the folder its paths are relative to."""
    tree, base = load_tree(recipe, overrides)
    found = recipe_of(tree)
    expect_training_data(found)
    return found, base


def expect_training_data(recipe: AnyRecipe) -> None:
    """Refuse a recipe that is not to be trained, as that of an imported run is."""
    if not recipe.data.train:
        raise ConfigError("there is nothing to train on", where="data.train", hint="name at least one corpus")


def load_tree(recipe: str | Path | Tree, overrides: Sequence[str] = ()) -> tuple[Tree, Path]:
    """The same before its values are checked; a section that is null is left out."""
    said = None
    if isinstance(recipe, dict):
        tree, base = recipe, Path.cwd()
    elif Path(recipe).is_dir() and str(recipe) not in shipped():  # `babi` may be the folder of the recipe's data
        raise ConfigError("this is a folder, not a recipe", where=str(recipe), hint="give a .yaml file")
    elif Path(recipe).is_file() or str(recipe) not in shipped():
        if not Path(recipe).exists():
            raise _missing(str(recipe))
        tree, base = read_yaml(Path(recipe)), Path(recipe).resolve().parent
    else:
        tree, base = parse_yaml(shipped_text(str(recipe)), where=str(recipe)), Path.cwd()
        said = apply_overrides({}, overrides)
    tree = apply_overrides(tree, overrides)
    named = {name: section for name, section in tree.items() if section is not None}
    return with_init(named, base, said), base


def _missing(recipe: str) -> ConfigError:
    """A name that is neither a file nor a recipe, with what may have been meant: one that ships, or a file nearby."""
    path = Path(recipe)
    near = get_close_matches(path.stem, shipped(), n=3, cutoff=0.7)
    if path.suffix or path.parent != Path():
        there = [str(path.with_name(file.name)) for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        what, near = "there is no such file", [*get_close_matches(recipe, there, n=1), *near]
    else:
        what = "there is no such recipe"
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "'regard recipes' lists those that ship"
    return ConfigError(what, where=recipe, hint=f"a recipe is a .yaml file, or one that ships; {hint}")


def with_absolute_paths(recipe: AnyRecipe, base: Path) -> AnyRecipe:
    """The same recipe wherever it is read from."""
    tree = recipe.model_dump()
    for part in ("train", "validation", "test"):
        corpora = getattr(recipe.data, part)
        if corpora is not None and not isinstance(corpora, Split):
            tree["data"][part] = [_absolute(corpus, base) for corpus in corpora]
    tree["tokenizer"]["file"] = _absolute_path(recipe.tokenizer.file, base)
    tree["training"]["init"] = _absolute_path(recipe.training.init, base)
    if recipe.model.vectors is not None:
        tree["model"]["vectors"] |= _absolute_path(recipe.model.vectors.files, base)
    return recipe_of(tree)


def _absolute(corpus: Corpus, base: Path) -> Tree:
    tree = corpus.model_dump()
    for name in _paths_in(corpus, base):
        tree[name] = _absolute_path(tree[name], base)
    return tree


def _paths_in(corpus: Corpus, base: Path) -> list[str]:
    """The fields that hold a path; a dataset's name is one if there is such a folder."""
    if corpus.dataset is not None:
        return ["dataset"] if (base / corpus.dataset).is_dir() else []
    return ["file"] if corpus.file else [] if corpus.corpus else list(corpus.columns)


def _absolute_path(path: Any, base: Path) -> Any:
    if isinstance(path, dict):
        return {side: _absolute_path(one, base) for side, one in path.items()}
    return None if path is None else str((base / path).absolute())
