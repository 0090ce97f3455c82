"""The examples that a run is measured on: one of its splits, or files of the user's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from regard.data.config import Corpus, Split
from regard.data.file_inputs import header_of
from regard.errors import ColumnError, ConfigError, DataError, did_you_mean
from regard.runs.checkpoints import data_fingerprint
from regard.runs.run import Run
from regard.text.files import TextFile

SplitName = Literal["train", "validation", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")


def examples_of(run: Run, split: SplitName | None, files: Sequence[str] = ()) -> Any:
    """A split of the run (default: test, else validation), or what stands in the files.

    They are of the kind that the run's task has: a `Dataset` of pairs where it reads one text and writes another.
    """
    data, task = run.recipe.data, run.task
    if split is not None and split not in SPLITS:
        raise DataError(f"unknown split {split!r}", where="--split", hint=did_you_mean(str(split), SPLITS))
    if files:
        if split is not None:
            raise DataError("give a split or files, not both", where="--file")
        if "-" in files:
            hint = "give a file, whose suffix says what it is"
            raise DataError("standard input is not read here", where="--file", hint=hint)
        corpus = task.corpus_of(files)
        with _wanted_named(corpus):
            return task.read([corpus], "test", Path.cwd())
    if not data.train:
        raise DataError("the run was imported and has no data of its own", where="--split", hint="give --file")
    if split is None:
        split = "validation" if data.test is None else "test"
    chosen: Split | list[Any] | None = getattr(data, split)
    if chosen is None:
        raise ConfigError("the run's recipe has no test set", where="data.test", hint="--split validation, or --file")
    if split != "train" and not isinstance(chosen, Split):
        return task.read(chosen, split, run.folder)
    prepared = task.prepare(run.recipe, run.folder, run.tokenizers)
    if isinstance(chosen, Split):
        _refuse_changed(run, split, prepared.train.fingerprint())
    dataset = {"train": prepared.train, "validation": prepared.validation, "test": prepared.test}[split]
    assert dataset is not None
    return dataset


@contextmanager
def _wanted_named(corpus: Corpus) -> Iterator[None]:
    """Where a column is not in a file of the user's, all names that are wanted: no recipe of theirs says them."""
    try:
        yield
    except ColumnError as error:
        wanted = ", ".join(key for key in corpus.columns.values() if isinstance(key, str))
        if not wanted:
            raise
        named = [replace(one, hint=f"{one.hint}; wanted are {wanted}: rename them") for one in error.problems]
        raise DataError(problems=named) from None


def _refuse_changed(run: Run, split: SplitName, data: int | str) -> None:
    """Refuse a share of data that is not what the run was trained on. Old runs may not know."""
    saved = max(run.checkpoints.glob("step-*"), default=None)
    if saved is not None and data_fingerprint(saved) not in (None, data):
        what = (
            f"the data has changed since the run was trained: the share of it that is for {split} would be another "
            "one, with examples that were trained on"
        )
        raise DataError(what, where=f"data.{split}", hint="put the old files back, or give --file")


def measured_on(run: Run, split: SplitName | None, files: Sequence[str] = ()) -> dict[str, Any]:
    """What `examples_of` takes, to stand before the metrics; and why, where it is not the test set that is expected."""
    if files:
        corpus = run.task.corpus_of(files)
        return {"files": list(files), **({"note": _named(corpus)} if corpus.header else {})}
    if split is None and run.recipe.data.test is None:
        return {"split": "validation", "note": "the run's recipe has no test set"}
    return {"split": split or "test"}


def _named(corpus: Corpus) -> str:
    """Which column of a file is read as what, where its first line has names for them."""
    names = header_of(TextFile(str(corpus.file), Path(str(corpus.file))))
    by_number = {name: names[key] for name, key in corpus.columns.items() if isinstance(key, int) and key < len(names)}
    read = ", ".join(f"the {name} is {column!r}" for name, column in by_number.items())
    return f"the first line of {corpus.file} names its columns" + (f": {read}" if read else "")


def noted(measured: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """What was measured on and what was found; where both have a note, the two of them."""
    notes = [one["note"] for one in (measured, found) if "note" in one]
    return {**measured, **found, **({"note": "; ".join(notes)} if notes else {})}


def measured_text(found: Mapping[str, Any]) -> str:
    """The same in words: `the validation set (the run's recipe has no test set)`, or the names of the files."""
    what = " and ".join(found["files"]) if "files" in found else f"the {found['split']} set"
    return what + (f" ({found['note']})" if "note" in found else "")
