"""The examples that a run is measured on: a split of its own data, or files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, cast

from regard.data.config import Corpus, Split
from regard.data.corpora import Part
from regard.data.dataset import Dataset
from regard.data.epochs import Examples
from regard.errors import CheckpointError, ConfigError, DataError, did_you_mean
from regard.runs.checkpoints import STEP_FOLDER, data_fingerprints
from regard.runs.run import Run
from regard.tasks.reading import named_words, unknown_words
from regard.text.access import is_inside

SPLITS = ("train", "validation", "test")
UNKNOWN = "unknown"
"""The key of the unknown words in a description of the examples."""
MAX_ROWS_READ = 20
"""Inputs whose unknown words are looked for, to name some of them."""
ReportProgress = Callable[[str, int, int], None]
"""Called with what is done now, how much of it is done, and how much there is."""


def examples_of(run: Run, split: str | None, files: Sequence[str] = ()) -> Any:
    """The examples to measure a run on: what is in the files, or a split of the run; by default the
    test set, else the validation set."""
    if split is not None and split not in SPLITS:
        raise DataError(
            f"unknown split {split!r}", where="--split", hint=did_you_mean(split, SPLITS)
        )
    if files:
        if split is not None:
            raise DataError("give a split or files, not both", where="--file")
        return _examples_in(run, files)
    data = run.recipe.data
    if not data.train:
        raise DataError(
            "the run was imported and has no data of its own", where="--split", hint="give --file"
        )
    if split is None:
        split = "validation" if data.test is None else "test"
    chosen: Split | list[Corpus] | None = getattr(data, split)
    if chosen is None:
        raise ConfigError(
            "the run's recipe has no test set",
            where="data.test",
            hint="--split validation, or --file",
        )
    if split != "train" and not isinstance(chosen, Split):
        return run.task.read(chosen, cast(Part, split), run.folder)
    return _prepared_split(run, split, is_share=isinstance(chosen, Split))


def _examples_in(run: Run, files: Sequence[str]) -> Any:
    """The examples in a user's files."""
    if "-" in files:
        hint = "give a file, whose suffix says what it is"
        raise DataError("standard input is not read here", where="--file", hint=hint)
    task = run.task
    readable = run.recipe.readable_folder(run.folder)
    if not all(is_inside(Path(file), readable) for file in files):
        # a user's own file may name any image
        task = run.under(run.recipe.model_copy(update={"within": None})).task
    return task.read([task.inputs.corpus_of(files)], "test", Path.cwd())


def _prepared_split(run: Run, split: str, *, is_share: bool) -> Any:
    """A split as it was prepared for the training; a share of the training data must be the one
    that was set aside then."""
    prepared = run.task.prepare(run.recipe, run.folder, run.tokenizers)
    saved = max(run.checkpoints.glob("step-*"), default=None)
    if saved is not None:  # a changed tokenizer changes the fingerprint, too
        run.check_unchanged(saved)
    before = data_fingerprints(saved) if is_share and saved is not None else {}
    now = prepared.fingerprints
    if before.get("image", now.get("image")) != now.get("image"):
        what = "images have changed since the run was trained"
        raise DataError(what, where=f"data.{split}", hint="put the old files back, or give --file")
    if before.get("training", now["training"]) != now["training"]:
        what = (
            f"the data has changed since the run was trained: the share of it that is for {split} "
            "would be another "
            "one, with examples that were trained on"
        )
        raise DataError(what, where=f"data.{split}", hint="put the old files back, or give --file")
    return getattr(prepared, split)


def measured_on(
    run: Run, split: str | None, files: Sequence[str], examples: Examples
) -> dict[str, Any]:
    """What `examples_of` takes, to stand before the metrics; with a note where it is not the test
    set that is expected, and on what was left out of the examples; and the unknown words of files."""
    named: dict[str, Any] = {"files": list(files)} if files else {"split": split or "test"}
    if not files and split is None and run.recipe.data.test is None:
        named = {"split": "validation", "note": "the run's recipe has no test set"}
    if files and isinstance(examples, Dataset) and (unknown := unknown_words_of(run, examples)):
        named[UNKNOWN] = unknown
    return noted(named, {"note": examples.left_out} if examples.left_out else {})


def unknown_words_of(run: Run, examples: Dataset) -> str:
    """Which words of the inputs the vocabulary does not have; empty if there are none. A model that
    reads letters knows every word."""
    if run.recipe.model.letters is not None:
        return ""
    found = dict[str, None]()
    rows = set[int]()
    for name in run.task.inputs.names:
        key = name if name in run.tokenizers else "text"
        if name not in examples.texts or key not in run.tokenizers or key not in examples.columns:
            continue
        tokenizer = run.tokenizers[key]
        own = examples.columns[key].rows_with(tokenizer.unk).tolist()
        rows |= {*own}
        for row in islice(dict.fromkeys(own), MAX_ROWS_READ):
            found |= dict.fromkeys(unknown_words(tokenizer, examples.texts[name][row]))
    if not found:
        return ""
    return (
        f"Inputs with words that are not in the vocabulary: {len(rows):,} of {len(examples):,} "
        f"({named_words([*found])})"
    )


def later_step(run: Run) -> dict[str, Any]:
    """A note where a later checkpoint than the best one was saved and not validated, as after an
    interrupt."""
    best, last = (run.pointer(name) for name in ("best", "last"))
    if (
        best is None
        or last is None
        or not all(STEP_FOLDER.fullmatch(path.name) for path in (best, last))
    ):
        return {}
    used, saved = (int(path.name.removeprefix("step-")) for path in (best, last))
    with suppress(CheckpointError):  # a damaged log does not concern the weights
        if saved > used and not any(
            event["event"] == "validation" and event["step"] == saved for event in run.events()
        ):
            what = (
                f"the best checkpoint, step {used:,}, is measured; step {saved:,} was saved later "
                "and not validated: "
                "--checkpoint last measures it"
            )
            return {"note": what}
    return {}


def noted(measured: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """A description of the examples with the metrics; if both have a note, with both notes."""
    notes = [part["note"] for part in (measured, metrics) if "note" in part]
    return {**measured, **metrics, **({"note": "; ".join(notes)} if notes else {})}


def unknown_note(measured: Mapping[str, Any]) -> list[str]:
    """What a description says of unknown words, if anything."""
    return [measured[UNKNOWN]] if UNKNOWN in measured else []


def measured_text(measured: Mapping[str, Any]) -> str:
    """The same in words: `the validation set (the run's recipe has no test set)`, or the names of
    the files."""
    what = (
        " and ".join(measured["files"]) if "files" in measured else f"the {measured['split']} set"
    )
    return what + (f" ({measured['note']})" if "note" in measured else "")
