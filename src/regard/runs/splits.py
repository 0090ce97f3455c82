"""The examples that a run is measured on: one of its splits, or files of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from regard.data.config import Corpus, Split
from regard.data.corpora import Part
from regard.data.dataset import Dataset
from regard.data.prepare import prepare
from regard.data.readers import open_corpus
from regard.errors import ConfigError, DataError, Problem
from regard.runs.run import Run

SplitName = Literal["train", "validation", "test"]


def examples_of(run: Run, split: SplitName | None, files: Sequence[str] = ()) -> Dataset:
    """A split of the run (default: test, else validation), or the pairs in one file or in two parallel ones."""
    data, columns = run.recipe.data, run.task.columns
    if files:
        corpus = corpus_of(files, columns, type(data.train[0]))
        return _read(run, [corpus], "test", Path.cwd())
    if split is None:
        split = "validation" if data.test is None else "test"
    chosen: Split | list[Any] | None = getattr(data, split)
    if chosen is None:
        raise ConfigError("the run's recipe has no test set", where="data.test", hint="--split validation, or --file")
    if split != "train" and not isinstance(chosen, Split):
        return _read(run, chosen, split, run.folder)
    recipe = run.recipe
    prepared = prepare(data, recipe.tokenizer, base=run.folder, seed=recipe.training.seed, tokenizers=run.tokenizers)
    dataset = {"train": prepared.train, "validation": prepared.validation, "test": prepared.test}[split]
    assert dataset is not None
    return dataset


def corpus_of(files: Sequence[str], columns: Sequence[str], kind: type[Corpus]) -> Corpus:
    """What `--file` names: a file with a column each (by number, or by name in .jsonl), or one file a column."""
    if len(files) == len(columns):
        named_files: dict[str, Any] = dict(zip(columns, files, strict=True))
        return kind(**named_files)
    if len(files) != 1:
        hint = f"one with all columns, or {len(columns)}: {', '.join(columns)}"
        raise DataError(f"{len(files)} files are too many", where="--file", hint=hint)
    named = Path(files[0]).name.removesuffix(".gz").removesuffix(".xz").endswith(".jsonl")
    keys: dict[str, Any] = {name: name if named else number for number, name in enumerate(columns)}
    return kind(file=files[0], **keys)


def _read(run: Run, corpora: Sequence[Corpus], part: Part, base: Path) -> Dataset:
    """Corpora as they are: nothing is dropped from what is measured on, so an empty line is an error."""
    texts: dict[str, list[str]] = {name: [] for name in run.task.columns}
    places: list[str] = []
    empty: list[Problem] = []
    for corpus in corpora:
        reader = open_corpus(corpus, base, part)
        for line, values in reader:
            for name, value in zip(reader.columns, values, strict=True):
                texts[name].append(value)
                if not value.strip():
                    empty.append(Problem(reader.where(line, name), "the line is empty", "fill it, or drop the pair"))
            places.append(reader.where(line))
    if empty and run.recipe.data.bad_lines == "error":
        raise DataError(problems=empty[:20])
    if empty:
        kept = [row for row in range(len(places)) if all(column[row].strip() for column in texts.values())]
        texts = {name: [column[row] for row in kept] for name, column in texts.items()}
        places = [places[row] for row in kept]
    return Dataset.of(texts, run.tokenizers, lambda row: places[row])
