"""What a finished run can do: predict, score, evaluate."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import apply_overrides
from regard.data.images import LIMIT
from regard.errors import CheckpointError, ConfigError, DecodeError, Problem
from regard.models.base import Contextual, Pooling
from regard.models.headed import Headed
from regard.recipes.recipe import AnyRecipe, recipe_of
from regard.runs.file_inputs import typed_rows
from regard.runs.predictions import with_predictions_written
from regard.runs.progress import summed
from regard.runs.run import Run
from regard.runs.skipped import Skipped, unreadable
from regard.runs.splits import SplitName, examples_of, measured_on, noted
from regard.search.config import SAMPLING, WIDEST
from regard.tasks import TASKS
from regard.tasks.features import Features
from regard.tasks.features import features as vectors_of
from regard.tasks.inputs import Inputs, numbered, refuse
from regard.tasks.task import Prediction, Task
from regard.tasks.text_to_text import TextToText
from regard.text.files import atomic_file, check_writable, write_file

CHUNK = 4_000
"""Inputs that are decoded before their outputs are handed on."""
CHANGEABLE = ("search", "evaluation")
"""The sections of a trained run's recipe that may be asked for otherwise."""
LIMITS = {"captioning": (LIMIT,), "story_answering": ("model.longest_story",)}
"""What may be asked for otherwise besides: how much a task reads at most."""


def predict(
    run: str | Path | Run,
    inputs: str | Sequence[str],
    *,
    beam: int | None = None,
    nbest: int | None = None,
    length_penalty: float | None = None,
    prefix: str | None = None,
    prefixes: Sequence[str] | None = None,
    record: str | Path | None = None,
    skip_bad: bool = False,
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    device: str = "auto",
) -> list[Prediction]:
    """What the run's model writes for each input, in their order; a single text is one input.

    Every output begins with `prefix`, or each with its own of `prefixes`. `record` names a file for the whole search
    (docs/search-record.md). With `skip_bad` a `Skipped` stands for each input that cannot be read, else the first such
    inputs are a DecodeError.
    """
    if isinstance(inputs, str):  # which is a sequence of texts, too, but never meant so
        inputs = [inputs]
    run = opened(run)
    recipe = with_search(run.recipe, beam, nbest, length_penalty, overrides, prefix=prefix)
    places = numbered(inputs)
    rows = typed_rows(run, inputs, places)
    inputs, places = run.task.gather([row.text for row in rows], places)
    chunks = predict_chunks(
        run, inputs, recipe, prefixes=prefixes, record=record, skip_bad=skip_bad, checkpoint=checkpoint, device=device,
        places=places, faults={row.place: row.fault for row in rows if row.fault is not None},
    )  # fmt: skip
    return [one for chunk in chunks for one in chunk]


def predict_chunks(
    run: Run,
    inputs: Sequence[str],
    recipe: AnyRecipe,
    *,
    prefixes: Sequence[str] | None = None,
    record: str | Path | None = None,
    skip_bad: bool = False,
    checkpoint: str = "best",
    device: str = "auto",
    places: Sequence[str] | None = None,
    faults: Mapping[str, Problem] | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Iterator[list[Prediction]]:
    """The same a chunk at a time. All inputs are checked before the first is decoded; a record comes last.

    `faults` says by place what is wrong with inputs that could not even be read.
    """
    _refuse_search(run.task, {"--prefix": recipe.search.prefix, "--prefixes": prefixes, "--record": record})
    if record is not None:
        check_writable(Path(record), "--record")
    run = run.under(recipe)
    model = run.load_model(checkpoint, device_named(device))
    asked = Inputs(inputs, places or numbered(inputs), prefixes)

    def check(part: Inputs) -> None:
        run.task.check_inputs(model, part)

    unread = {row: fault for row, place in enumerate(asked.places) if (fault := (faults or {}).get(place))}
    bad = unreadable(check, asked) | unread if skip_bad else {}
    if not skip_bad:
        refuse(list(unread.values()))
        check(asked)
    searches: list[dict[str, Any]] = []
    for first in range(0, len(inputs), CHUNK):
        rows = range(first, min(first + CHUNK, len(inputs)))
        kept = asked.take([row for row in rows if row not in bad])
        found: Sequence[Prediction] = ()
        if kept.texts:
            found = run.task.predict(model, kept, record=record is not None, progress=progress)
        progress(len(rows) - len(found))
        predicted = iter(found)
        chunk = [Skipped(inputs[row], bad[row]) if row in bad else next(predicted) for row in rows]
        searches += [{"input": one.input, **one.search} for one in chunk if one.search is not None]
        yield chunk
    if record is not None:
        recorded = {"run": str(run.folder), "search": recipe.search.model_dump(), "inputs": searches}
        write_file(Path(record), json.dumps(recorded, ensure_ascii=False, allow_nan=False, indent=1) + "\n")


def _refuse_search(task: Task | type[Task], asked: dict[str, Any]) -> None:
    """Refuse options of a search for a task that has none."""
    for option in (option for option, value in asked.items() if value is not None and not task.searches):
        what = f"a run of the task {task.name} searches for nothing"
        raise DecodeError(what, where=option, hint="leave it out")


def features(
    run: str | Path | Run,
    inputs: Sequence[str],
    *,
    layer: int = -1,
    pooling: Pooling | None = None,
    out: str | Path | None = None,
    checkpoint: str = "best",
    device: str = "auto",
    places: Sequence[str] | None = None,
) -> Features:
    """The vectors that a pre-trained model has for the tokens of each input, or with `pooling` for each as a whole.

    `out` names a .npz file for them: vectors, inputs, and for tokens also tokens and offsets.
    """
    run = opened(run)
    if out is not None:
        check_writable(Path(out), "--features")
    model = run.load_model(checkpoint, device_named(device))
    model = model.base if isinstance(model, Headed) else model
    if not isinstance(model, Contextual):
        what = f"the task {run.recipe.task} has no vectors of a single text"
        raise DecodeError(what, where=str(run.folder), hint="runs of (masked_)language_modeling have")
    found = vectors_of(model, run.tokenizers["text"], inputs, layer=layer, pooling=pooling, places=places)
    if out is not None:
        with atomic_file(Path(out)) as file:
            np.savez(file, **found.arrays())  # type: ignore[arg-type]
    return found


def score(
    run: str | Path | Run,
    source: str,
    target: str | Sequence[str],
    *,
    checkpoint: str = "best",
    device: str = "auto",
) -> dict[str, Any]:
    """log P(target | source), whole and token by token. A target given as a list is taken as exact tokens.

    To a language model the source is the beginning of a text, and the target how it goes on.
    """
    run = opened(run)
    if run.task.writes is None:
        what = f"score needs a run that writes texts, not one of {run.recipe.task}"
        raise CheckpointError(what, where=str(run.folder), hint="evaluate and predict serve every task")
    model, vocabulary = run.load_model(checkpoint, device_named(device)), run.tokenizers[run.task.writes]
    ids, scores = run.task.score_text(model, source, target)
    return {
        "source": source,
        "target": vocabulary.decode(ids),
        "score": sum(scores),
        "tokens": vocabulary.tokens(ids),
        "token_scores": scores,
    }


def evaluate(
    run: str | Path | Run,
    *,
    split: SplitName | None = None,
    files: Sequence[str] = (),
    beam: int | None = None,
    length_penalty: float | None = None,
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    device: str = "auto",
    predictions: str | Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """The task's metrics on a split or on files, and which of them it was.

    Where the task has an answer for each example, they are written to the file `predictions`, or predictions.jsonl in
    the run folder, and the wrong ones beside it (runs/predictions.py).
    """
    run = opened(run)
    file = run.folder / "predictions.jsonl" if predictions is None else Path(predictions)
    check_writable(file, "--predictions")
    recipe = with_search(run.recipe, beam, 1, length_penalty, overrides)
    run = run.under(recipe)
    dataset = examples_of(run, split, files)
    model = run.load_model(checkpoint, device_named(device))
    moved = summed(progress, len(dataset))
    found: dict[str, Any] = run.task.evaluate(model, dataset, moved)
    measured = noted(measured_on(run, split, files), found)
    return with_predictions_written(measured, file, asked=predictions is not None)


def opened(run: str | Path | Run) -> Run:
    return run if isinstance(run, Run) else Run.open(run)


def opened_pairs(run: str | Path | Run, verb: str) -> Run:
    """A run whose task has something to write for each input, as the verb needs it."""
    run = opened(run)
    if not isinstance(run.task, TextToText):
        what = f"{verb} holds what is written against references, which a run of {run.recipe.task} does not have"
        raise CheckpointError(what, where=str(run.folder), hint="evaluate and predict serve every task")
    return run


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

    A beam that is asked for turns sampling into a beam search. One that is not is widened to hold the n best, and left
    out for samples.
    """
    paths = {override.partition("=")[0] for override in overrides}
    searched = {path: path for path in sorted(paths) if path.startswith("search.") and path != "search.nbest"}
    _refuse_search(TASKS[recipe.task], {"--beam": beam, "--length-penalty": length_penalty, **searched})
    _refuse_settled(recipe, overrides)
    tree = apply_overrides(recipe.model_dump(), overrides)
    asked: dict[str, Any] = {"beam": beam, "nbest": nbest, "length_penalty": length_penalty, "prefix": prefix}
    search = tree["search"]
    if isinstance(search, dict):
        if recipe.search.sample:
            _leave_sampling(search, paths, beam)
        if search.get("beam") == recipe.search.beam:
            search["beam"] = 1 if search.get("sample") is True else max(nbest or 1, recipe.search.beam)
            if beam is None and search["beam"] > WIDEST:
                raise ConfigError(f"should be less than or equal to {WIDEST}, not {nbest}", where="--nbest")
        search |= {name: value for name, value in asked.items() if value is not None}
        if length_penalty is not None and search.get("normalisation") == "none":
            hint = "leave it out, or --set search.normalisation=mean"
            raise ConfigError("search.normalisation: none has no length penalty", where="--length-penalty", hint=hint)
    return recipe_of(tree)


def _refuse_settled(recipe: AnyRecipe, overrides: Sequence[str]) -> None:
    """Refuse changes to what a training has settled."""
    changeable = [*CHANGEABLE, *LIMITS.get(recipe.task, ())]
    for override in overrides:
        path = override.partition("=")[0]
        section = path.partition(".")[0]
        if section in type(recipe).model_fields and not {section, path}.intersection(changeable):
            what, hint = f"{section} is settled in a trained run", f"allowed: {', '.join(changeable)}"
            raise ConfigError(what, where=override, hint=hint)


def _leave_sampling(search: dict[str, Any], paths: set[str], beam: int | None) -> None:
    """Where a run that samples is asked for a beam, or not to sample: without what only samples have, unless named."""
    given = [name for name in SAMPLING if f"search.{name}" in paths]
    if "search.sample" not in paths and not given and (beam is not None or "search.beam" in paths):
        search["sample"] = False
    if search.get("sample") is False:
        for name in SAMPLING:
            if name not in given:
                search.pop(name, None)


def device_named(name: str) -> torch.device:
    """`auto` takes a GPU if there is one."""
    there = ["cpu"]
    if torch.backends.mps.is_available():
        there.insert(0, "mps")
    if torch.cuda.is_available():
        there[:0] = ["cuda", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    if name not in ("auto", *there):
        raise DecodeError(
            f"there is no device {name!r} here", where="--device", hint=f"allowed: auto, {', '.join(there)}"
        )
    return torch.device(there[0] if name == "auto" else name)
