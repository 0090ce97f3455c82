"""What the verbs begin with: a run, its recipe with the search asked for, device, progress, and the examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.config import apply_overrides
from regard.data.config import Corpus, Split
from regard.data.file_inputs import header_of
from regard.errors import CheckpointError, ConfigError, DataError, DecodeError, did_you_mean
from regard.recipes.recipe import AnyRecipe, recipe_of
from regard.runs.run import Run, data_fingerprint
from regard.search.config import SAMPLING, WIDEST
from regard.tasks import TASKS
from regard.tasks.task import Task
from regard.text.files import TextFile

CHANGEABLE = ("search", "evaluation")
"""The sections of a trained run's recipe that may be changed."""
SPLITS = ("train", "validation", "test")
Progress = Callable[[str, int, int], None]
"""Called with what is done now, how much of it is done, and how much there is."""


def summed(progress: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    """Add up how many more are done, and report the sum out of `total`."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    return add


def opened(run: str | Path | Run) -> Run:
    return run if isinstance(run, Run) else Run.open(run)


def opened_pairs(run: str | Path | Run, verb: str) -> Run:
    """A run whose task writes texts that can be compared with references, as the verb needs it."""
    run = opened(run)
    if run.task.writes != "target":
        what = f"{verb} compares outputs with references, which a run of {run.recipe.task} does not have"
        raise CheckpointError(what, where=str(run.folder), hint="evaluate and predict serve every task")
    return run


def device_named(name: str) -> torch.device:
    """`auto` takes a GPU if there is one."""
    devices = [*(["mps"] if torch.backends.mps.is_available() else []), "cpu"]
    if torch.cuda.is_available():
        devices = ["cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count())), *devices]
    if name not in ("auto", *devices):
        hint = f"allowed: auto, {', '.join(devices)}"
        raise DecodeError(f"there is no device {name!r} here", where="--device", hint=hint)
    return torch.device(devices[0] if name == "auto" else name)


# The search


def with_search(
    recipe: AnyRecipe,
    beam: int | None,
    nbest: int | None,
    length_penalty: float | None,
    overrides: Sequence[str],
    *,
    prefix: str | None = None,
) -> AnyRecipe:
    """The run's recipe with the search asked for now.

    A beam given here turns sampling into a beam search. The recipe's own beam is widened to hold the n best, and left
    out for samples.
    """
    paths = {override.partition("=")[0] for override in overrides}
    searched = {path: path for path in sorted(paths) if path.startswith("search.") and path != "search.nbest"}
    refuse_search(TASKS[recipe.task], {"--beam": beam, "--length-penalty": length_penalty, **searched})
    _refuse_trained(recipe, overrides)
    tree = apply_overrides(recipe.model_dump(), overrides)
    search = tree["search"]
    if not isinstance(search, dict):
        return recipe_of(tree)
    if recipe.search.sample:
        _leave_sampling(search, paths, beam)
    if search.get("beam") == recipe.search.beam:
        search["beam"] = 1 if search.get("sample") is True else max(nbest or 1, recipe.search.beam)
        if beam is None and search["beam"] > WIDEST:
            raise ConfigError(f"should be less than or equal to {WIDEST}, not {nbest}", where="--nbest")
    options = {"beam": beam, "nbest": nbest, "length_penalty": length_penalty, "prefix": prefix}
    search |= {name: value for name, value in options.items() if value is not None}
    if length_penalty is not None and search.get("normalisation") == "none":
        hint = "leave it out, or --set search.normalisation=mean"
        raise ConfigError("search.normalisation: none has no length penalty", where="--length-penalty", hint=hint)
    return recipe_of(tree)


def refuse_search(task: Task | type[Task], options: Mapping[str, object]) -> None:
    """Refuse options of a search for a task that has none."""
    for option, value in options.items():
        if value is not None and task.writes is None:
            what = f"{task.name} does not decode, so {option} has no effect"
            raise DecodeError(what, where=option, hint="leave it out")


def _refuse_trained(recipe: AnyRecipe, overrides: Sequence[str]) -> None:
    """Refuse changes to what training has fixed."""
    changeable = [*CHANGEABLE, *TASKS[recipe.task].changeable]
    for override in overrides:
        path = override.partition("=")[0]
        section = path.partition(".")[0]
        if section in type(recipe).model_fields and not {section, path}.intersection(changeable):
            what, hint = f"{section} cannot be changed in a trained run", f"allowed: {', '.join(changeable)}"
            raise ConfigError(what, where=override, hint=hint)


def _leave_sampling(search: dict[str, Any], paths: set[str], beam: int | None) -> None:
    """For a run that samples: a beam, or `search.sample=false`, drops the settings of sampling that are not named."""
    given = [name for name in SAMPLING if f"search.{name}" in paths]
    if "search.sample" not in paths and not given and (beam is not None or "search.beam" in paths):
        search["sample"] = False
    if search.get("sample") is False:
        for name in SAMPLING:
            if name not in given:
                search.pop(name, None)


# The examples that a run is measured on


def examples_of(run: Run, split: str | None, files: Sequence[str] = ()) -> Any:
    """A `Dataset` of the run's task: a split of the run (default: test, else validation), or what is in the files."""
    data, task = run.recipe.data, run.task
    if split is not None and split not in SPLITS:
        raise DataError(f"unknown split {split!r}", where="--split", hint=did_you_mean(split, SPLITS))
    if files:
        if split is not None:
            raise DataError("give a split or files, not both", where="--file")
        if "-" in files:
            hint = "give a file, whose suffix says what it is"
            raise DataError("standard input is not read here", where="--file", hint=hint)
        return _read_files(task, task.corpus_of(files))
    if not data.train:
        raise DataError("the run was imported and has no data of its own", where="--split", hint="give --file")
    if split is None:
        split = "validation" if data.test is None else "test"
    chosen: Split | list[Corpus] | None = getattr(data, split)
    if chosen is None:
        raise ConfigError("the run's recipe has no test set", where="data.test", hint="--split validation, or --file")
    if split != "train" and not isinstance(chosen, Split):
        return task.read(chosen, split, run.folder)
    prepared = task.prepare(run.recipe, run.folder, run.tokenizers)
    saved = max(run.checkpoints.glob("step-*"), default=None)
    trained_on = data_fingerprint(saved) if isinstance(chosen, Split) and saved is not None else None
    if trained_on not in (None, task.fingerprint(prepared.train)):  # None: old runs did not store it
        what = (
            f"the data has changed since the run was trained: the share of it that is for {split} would be another "
            "one, with examples that were trained on"
        )
        raise DataError(what, where=f"data.{split}", hint="put the old files back, or give --file")
    return getattr(prepared, split)


def _read_files(task: Any, corpus: Corpus) -> Any:
    """The examples in a user's file. If a column is missing there, the message has all names that are wanted."""
    try:
        return task.read([corpus], "test", Path.cwd())
    except DataError as error:
        wanted = ", ".join(key for key in corpus.columns.values() if isinstance(key, str))
        problems = [
            replace(problem, hint=f"{problem.hint}; wanted are {wanted}: rename them")
            if wanted and problem.what.startswith("there is no column") else problem
            for problem in error.problems
        ]  # fmt: skip
        raise DataError(problems=problems) from None


def measured_on(run: Run, split: str | None, files: Sequence[str] = ()) -> dict[str, Any]:
    """What `examples_of` takes, to stand before the metrics; and why, where it is not the test set that is expected."""
    if files:
        corpus = run.task.corpus_of(files)
        return {"files": list(files), **({"note": _columns_read(corpus)} if corpus.header else {})}
    if split is None and run.recipe.data.test is None:
        return {"split": "validation", "note": "the run's recipe has no test set"}
    return {"split": split or "test"}


def _columns_read(corpus: Corpus) -> str:
    """Which column of a file is read as what, where its first line has names for them."""
    names = header_of(TextFile(str(corpus.file), Path(str(corpus.file))))
    by_number = {name: names[key] for name, key in corpus.columns.items() if isinstance(key, int) and key < len(names)}
    read = ", ".join(f"the {name} is {column!r}" for name, column in by_number.items())
    return f"the first line of {corpus.file} names its columns" + (f": {read}" if read else "")


def noted(measured: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What was measured on, with the metrics; where both have a note, the two of them."""
    notes = [part["note"] for part in (measured, metrics) if "note" in part]
    return {**measured, **metrics, **({"note": "; ".join(notes)} if notes else {})}


def measured_text(measured: Mapping[str, Any]) -> str:
    """The same in words: `the validation set (the run's recipe has no test set)`, or the names of the files."""
    what = " and ".join(measured["files"]) if "files" in measured else f"the {measured['split']} set"
    return what + (f" ({measured['note']})" if "note" in measured else "")
