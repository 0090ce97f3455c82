"""Rows in memory that a program gives to `train` and `check` -> overrides of the recipe's section
`data`, and the names that messages use for these rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.config import Tree
from regard.data.config import Split, Splits
from regard.data.records import corpus_for, is_rows, rows_of, splits_in, store_rows
from regard.errors import ConfigError, Problem, RegardError
from regard.recipes.loading import load_tree
from regard.recipes.overrides import as_override, named_settings
from regard.tasks import TASKS

SPLIT_OF_ARGUMENT = {"data": "train", "validation": "validation", "test": "test"}
"""The arguments for rows in memory, and the splits that they become."""


def overrides_with_rows(
    recipe: str | Path | Tree,
    overrides: Sequence[str],
    rows: Mapping[str, object],
    settings: Mapping[str, Any],
) -> list[str]:
    """Keywords, and rows in memory by their argument, as overrides of a recipe."""
    rows = {name: given for name, given in rows.items() if given is not None}
    if not rows and not settings:
        return []
    named = named_settings(load_tree(recipe, overrides)[0], settings)
    if not rows:
        return named
    rows = _rows_by_argument(rows)
    tree, _ = load_tree(recipe, [*overrides, *named])
    task = TASKS.get(str(tree.get("task")))
    if task is None:
        return named
    return [*named, *_data_overrides(tree.get("data") or {}, task.data, rows)]


def _rows_by_argument(rows: dict[str, object]) -> dict[str, object]:
    """The rows of each argument; a datasets.DatasetDict as `data` holds several of them."""
    if "data" not in rows:
        hint = "give the training rows as data="
        raise ConfigError("it needs the training rows beside it", where=next(iter(rows)), hint=hint)
    splits = splits_in(rows["data"])
    if not splits:
        return rows
    if "train" not in splits:
        raise ConfigError(f"there is no split 'train' (splits: {', '.join(splits)})", where="data")
    held = {
        argument: splits[split] for argument, split in SPLIT_OF_ARGUMENT.items() if split in splits
    }
    return {**held, **rows, "data": splits["train"]}


def _data_overrides(
    section: Tree, kind: type[Splits[Any]], rows: Mapping[str, object]
) -> Iterator[str]:
    """Rows in memory as overrides of the recipe's section `data`. Built-in corpora beside them are
    left out."""
    own = {split: _first_corpus(section.get(split)) for split in SPLIT_OF_ARGUMENT.values()}
    for argument, split in SPLIT_OF_ARGUMENT.items():
        if argument in rows:
            like = own[split] if own[split].keys() & {"file", "dataset"} else own["train"]
            corpus = corpus_for(rows[argument], argument, kind.corpus_class(), like)
            yield as_override(f"data.{split}", corpus)
        elif own[split].get("corpus"):
            default = kind.model_fields[split].default
            yield as_override(
                f"data.{split}", default.model_dump() if isinstance(default, Split) else None
            )


def _first_corpus(corpora: Any) -> Tree:
    """The first corpus of a split in a recipe's tree; empty if the split is a share of the training
    examples."""
    first = corpora[0] if isinstance(corpora, list) and corpora else corpora
    return first if isinstance(first, dict) and "split" not in first else {}


def files_of_split(rows_or_names: object, name: str) -> list[str]:
    """The files of a split: their names, or the one that rows in memory are stored in."""
    if rows_or_names is None:
        return []
    if is_rows(rows_or_names):
        return [str(store_rows(rows_of(rows_or_names, name), name))]
    if isinstance(rows_or_names, list | tuple):
        return [*map(str, rows_or_names)]
    return [str(rows_or_names)]


def are_file_names(value: object) -> bool:
    """Whether a value names files, as the command line gives them; rows in memory may be texts."""
    if isinstance(value, list | tuple):
        return all(isinstance(item, Path) for item in value)
    return isinstance(value, str | Path)


@contextmanager
def rows_named(overrides: Sequence[str]) -> Iterator[None]:
    """Say `data, row 17` in errors instead of the line of the file that the rows are kept in."""
    try:
        yield
    except RegardError as error:
        problems = with_rows_named(error.problems, overrides)
        if problems == [*error.problems]:
            raise
        raise type(error)(problems=problems) from None


def with_rows_named(problems: Iterable[Problem], overrides: Sequence[str]) -> list[Problem]:
    """The problems with rows in memory called by their number, not by the file that holds them."""
    named_files = [
        json.loads(match[1])
        for override in overrides
        if (match := re.search(r'"file": (".*?")', override))
    ]
    files = [file for file in named_files if Path(file).parent.name.startswith("rows-")]

    def named(text: str) -> str:
        for file in files:
            text = re.sub(rf"{re.escape(file)}:(\d+)", rf"{Path(file).stem}, row \1", text)
        return text

    return [
        replace(problem, where=named(problem.where), what=named(problem.what))
        for problem in problems
    ]
