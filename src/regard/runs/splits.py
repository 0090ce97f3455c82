"""The examples that a run is measured on: one of its splits, or files of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from regard.data.config import Corpus, Split
from regard.data.corpora import Part
from regard.data.dataset import Dataset
from regard.data.files import TextFile
from regard.data.prepare import prepare
from regard.data.readers import Reader, open_corpus
from regard.data.rows import Row
from regard.errors import ConfigError, DataError, Problem, did_you_mean, first_of
from regard.runs.run import Run
from regard.tasks.inputs import LONGEST

SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")


def examples_of(run: Run, split: SplitName | None, files: Sequence[str] = ()) -> Dataset:
    """A split of the run (default: test, else validation), or the pairs in one file or in two parallel ones."""
    data = run.recipe.data
    if split is not None and split not in SPLITS:
        raise DataError(f"unknown split {split!r}", where="--split", hint=did_you_mean(str(split), SPLITS))
    if files:
        if split is not None:
            raise DataError("give a split or files, not both", where="--file")
        own = [corpus for name in SPLITS if isinstance(part := getattr(data, name), list) for corpus in part]
        return _read(run, [corpus_of(files, own)], "test", Path.cwd())
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


def corpus_of(files: Sequence[str], own: Sequence[Corpus]) -> Corpus:
    """What `--file` names: one file a column, or one with all columns.

    Those are found as in the recipe's own file of the same format, if there is one; else by number, in .jsonl by name.
    """
    kind, columns = type(own[0]), list(own[0].columns)
    if len(files) == len(columns):
        named_files: dict[str, Any] = dict(zip(columns, files, strict=True))
        return kind(**named_files)
    if len(files) != 1:
        hint = f"one with all columns, or {len(columns)}: {', '.join(columns)}"
        raise DataError(f"{len(files)} files are too many", where="--file", hint=hint)
    suffix = _suffix(files[0])
    for corpus in own:
        if corpus.file is not None and _suffix(corpus.file) == suffix:
            return kind(file=files[0], header=corpus.header, **corpus.columns)  # type: ignore[arg-type]
    keys: dict[str, Any] = {name: name if suffix == ".jsonl" else number for number, name in enumerate(columns)}
    return kind(file=files[0], **keys)


def _suffix(file: str) -> str:
    return TextFile(file, Path(file)).suffixes[0]


def _read(run: Run, corpora: Sequence[Corpus], part: Part, base: Path) -> Dataset:
    """Corpora as they are, less the bad lines where the recipe drops those."""
    data = run.recipe.data
    texts: dict[str, list[str]] = {name: [] for name in run.task.columns}
    places: list[str] = []
    problems: list[Problem] = []
    for corpus in corpora:
        reader = open_corpus(corpus, base, part)
        for row in reader:
            if bad := _problems_in(reader, row, data.max_characters):
                problems += bad
                continue
            for name, value in zip(reader.columns, row.values, strict=True):
                texts[name].append(value)
            places.append(reader.where(row.line))
    if problems and (data.bad_lines == "error" or not places):
        raise DataError(problems=first_of(problems))
    dataset = Dataset.of(texts, run.tokenizers, lambda row: places[row])
    too_long = [
        Problem(places[row], f"the pair has {dataset.lengths[row] - 1:,} tokens", f"at most {LONGEST:,}: split it")
        for row in np.flatnonzero(dataset.lengths > LONGEST + 1)
    ]
    if too_long:
        raise DataError(problems=first_of(too_long))
    return dataset


def _problems_in(reader: Reader, row: Row, max_characters: int) -> list[Problem]:
    problems = []
    for name, value in zip(reader.columns, row.values, strict=True):
        if not value.strip():
            problems.append(Problem(reader.where(row.line, name), "the line is empty", "fill it, or drop the pair"))
        elif len(value) > max_characters:
            what = f"the line has {len(value):,} characters, data.max_characters allows {max_characters:,}"
            problems.append(Problem(reader.where(row.line, name), what, "split it, or drop the pair"))
    return problems
