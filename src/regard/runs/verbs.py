"""What a finished run can do: predict, score, evaluate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import apply_overrides
from regard.data.images import LIMIT
from regard.errors import CheckpointError, ConfigError, DecodeError
from regard.models.contextual import Contextual, Pooling
from regard.models.headed import Headed
from regard.recipes.recipe import AnyRecipe, recipe_of
from regard.runs.files import write_bytes
from regard.runs.predictions import with_predictions_written
from regard.runs.progress import summed
from regard.runs.records import check_writable, write_record
from regard.runs.run import Run
from regard.runs.splits import SplitName, examples_of
from regard.tasks.features import Features
from regard.tasks.features import features as vectors_of
from regard.tasks.inputs import encode_target, numbered
from regard.tasks.task import Prediction
from regard.tasks.text_to_text import TextToText

CHUNK = 4_000
"""Inputs that are decoded before their outputs are handed on."""
CHANGEABLE = ("search", "evaluation")
"""The sections of a trained run's recipe that may be asked for otherwise."""


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
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    device: str = "auto",
) -> list[Prediction]:
    """What the run's model writes for each input, in their order; a single text is one input.

    Every output begins with `prefix`, or each with its own of `prefixes`. `record` names a file for the whole search
    (docs/search-record.md).
    """
    if isinstance(inputs, str):  # which is a sequence of texts, too, but never meant so
        inputs = [inputs]
    run = opened(run)
    recipe = with_search(run.recipe, beam, nbest, length_penalty, overrides, prefix=prefix)
    places = numbered(inputs)
    inputs, places = run.task.gather(inputs, places)
    chunks = predict_chunks(
        run, inputs, recipe, prefixes=prefixes, record=record, checkpoint=checkpoint, device=device, places=places
    )
    return [one for chunk in chunks for one in chunk]


def predict_chunks(
    run: Run,
    inputs: Sequence[str],
    recipe: AnyRecipe,
    *,
    prefixes: Sequence[str] | None = None,
    record: str | Path | None = None,
    checkpoint: str = "best",
    device: str = "auto",
    places: Sequence[str] | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Iterator[list[Prediction]]:
    """The same a chunk at a time. All inputs are checked before the first is decoded; a record comes last."""
    places = places or numbered(inputs)
    asked = {"--prefix": recipe.search.prefix, "--prefixes": prefixes, "--record": record}
    for option in (option for option, value in asked.items() if value and not run.task.searches):
        what = f"a run of the task {run.task.name} searches for nothing"
        raise DecodeError(what, where=option, hint="leave it out")
    if record is not None:
        check_writable(Path(record))
    model = run.under(recipe).load_model(checkpoint, device_named(device))
    run.task.adjust(model, recipe)
    run.task.check_inputs(model, run.tokenizers, inputs, recipe.search, prefixes=prefixes, places=places)
    searches: list[dict[str, Any]] = []
    for first in range(0, len(inputs), CHUNK):
        part = slice(first, first + CHUNK)
        chunk = run.task.predict(
            model,
            run.tokenizers,
            inputs[part],
            recipe.search,
            prefixes=None if prefixes is None else prefixes[part],
            record=record is not None,
            places=places[part],
            progress=progress,
        )
        searches += [{"input": one.input, **one.search} for one in chunk if one.search is not None]
        yield chunk
    if record is not None:
        config = recipe.search.model_dump()
        write_record(Path(record), {"run": str(run.folder), "search": config, "inputs": searches})


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
        write_bytes(Path(out), lambda file: np.savez(file, **found.arrays()))  # type: ignore[arg-type]
    return found


def score(
    run: str | Path | Run,
    source: str,
    target: str | Sequence[str],
    *,
    checkpoint: str = "best",
    device: str = "auto",
) -> dict[str, Any]:
    """log P(target | source), whole and token by token. A target given as a list is taken as exact tokens."""
    run = opened_pairs(run, "score")
    model = run.load_model(checkpoint, device_named(device))
    vocabulary = run.tokenizers["target"]
    [source_ids] = run.task.encode(model, run.tokenizers, [source], ["source"])
    ids = encode_target(vocabulary, target)
    [scores] = run.task.score(model, run.tokenizers, [source_ids], [ids[:-1] if ids[-1] == vocabulary.end else ids])
    scores = scores[: len(ids)]
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
    """The task's metrics on a split or on files.

    Where the task has an answer for each example, they are written to the file `predictions`, or predictions.jsonl in
    the run folder, and the wrong ones beside it (runs/predictions.py).
    """
    run = opened(run)
    file = run.folder / "predictions.jsonl" if predictions is None else Path(predictions)
    check_writable(file, "--predictions")
    recipe = with_search(run.recipe, beam, 1, length_penalty, overrides)
    dataset = examples_of(run.under(recipe), split, files)
    model = run.load_model(checkpoint, device_named(device))
    moved = summed(progress, len(dataset))
    found: dict[str, Any] = run.task.evaluate(model, recipe, dataset, run.tokenizers, moved)
    return with_predictions_written(found, file, asked=predictions is not None)


def opened(run: str | Path | Run) -> Run:
    return run if isinstance(run, Run) else Run.open(run)


def opened_pairs(run: str | Path | Run, verb: str) -> Run:
    """A run whose task reads one text and writes another, as the verb needs it."""
    run = opened(run)
    if not issubclass(run.task, TextToText):
        what = f"{verb} needs a run that reads one text and writes another, not one of {run.recipe.task}"
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

    A beam that is not asked for is widened to hold the n best, and left out for samples.
    """
    for override in overrides:
        path = override.partition("=")[0]
        section, changeable = path.partition(".")[0], [*CHANGEABLE, *([LIMIT] if recipe.task == "captioning" else [])]
        if section in type(recipe).model_fields and not {section, path}.intersection(changeable):
            what, hint = f"{section} is settled in a trained run", f"allowed: {', '.join(changeable)}"
            raise ConfigError(what, where=override, hint=hint)
    tree = apply_overrides(recipe.model_dump(), overrides)
    asked: dict[str, Any] = {"beam": beam, "nbest": nbest, "length_penalty": length_penalty, "prefix": prefix}
    search = tree["search"]
    if isinstance(search, dict):
        if search.get("beam") == recipe.search.beam:
            search["beam"] = 1 if search.get("sample") is True else max(nbest or 1, recipe.search.beam)
        search |= {name: value for name, value in asked.items() if value is not None}
    return recipe_of(tree)


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
