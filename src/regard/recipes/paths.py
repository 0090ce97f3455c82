"""The paths in a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.data.config import Corpus, Split
from regard.recipes.recipe import AnyRecipe


def with_absolute_paths(recipe: AnyRecipe, base: Path) -> AnyRecipe:
    """A recipe that means the same wherever it is read from; its paths were relative to `base`."""

    def absolute(path: Any) -> Any:
        if isinstance(path, dict):
            return {side: absolute(file) for side, file in path.items()}
        return None if path is None else str((base / path).absolute())

    def with_paths(corpus: Corpus) -> Corpus:
        paths = {name: absolute(getattr(corpus, name)) for name in _path_fields(corpus, base)}
        return corpus.model_copy(update=paths)

    splits = {
        part: [with_paths(corpus) for corpus in corpora]
        for part in ("train", "validation", "test")
        if (corpora := getattr(recipe.data, part)) is not None and not isinstance(corpora, Split)
    }
    sections = {
        "data": recipe.data.model_copy(update=splits),
        "tokenizer": recipe.tokenizer.model_copy(update={"file": absolute(recipe.tokenizer.file)}),
        "training": recipe.training.model_copy(update={"init": absolute(recipe.training.init)}),
        "within": absolute(recipe.within),
    }
    vectors = recipe.model.vectors
    if vectors is not None:
        vectors = vectors.model_copy(update=absolute(vectors.files))
        sections["model"] = recipe.model.model_copy(update={"vectors": vectors})
    return recipe.model_copy(update=sections)


def _path_fields(corpus: Corpus, base: Path) -> list[str]:
    """The fields of a corpus that hold paths: its file, or one file per column."""
    if corpus.dataset is not None:  # a name on the Hub, or a folder
        return ["dataset"] if (base / corpus.dataset).is_dir() else []
    if corpus.file:
        return ["file"]
    return [] if corpus.corpus else list(corpus.columns)
