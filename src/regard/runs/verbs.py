"""What a finished run can do: predict, score, evaluate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.config import apply_overrides
from regard.errors import DecodeError
from regard.recipes.recipe import AnyRecipe, recipe_of
from regard.runs.run import Run
from regard.runs.splits import SplitName, examples_of
from regard.tasks.inputs import encode_inputs
from regard.tasks.translation import Prediction

CHUNK = 4_000
"""Inputs that are decoded before their outputs are handed on."""


def predict(
    run: str | Path | Run,
    inputs: Sequence[str],
    *,
    beam: int | None = None,
    nbest: int | None = None,
    length_penalty: float | None = None,
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    device: str = "auto",
) -> list[Prediction]:
    """What the run's model writes for each input, in their order."""
    run = opened(run)
    recipe = with_search(run.recipe, beam, nbest, length_penalty, overrides)
    return [one for chunk in predict_chunks(run, inputs, recipe, checkpoint=checkpoint, device=device) for one in chunk]


def predict_chunks(
    run: Run,
    inputs: Sequence[str],
    recipe: AnyRecipe,
    *,
    checkpoint: str = "best",
    device: str = "auto",
    places: Sequence[str] | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Iterator[list[Prediction]]:
    """The same a chunk at a time. All inputs are checked before the first is decoded."""
    places = places or [f"input {number}" for number in range(1, len(inputs) + 1)]
    encode_inputs(run.tokenizers["source"], inputs, places)
    model = run.load_model(checkpoint, device_named(device))
    for first in range(0, len(inputs), CHUNK):
        part = slice(first, first + CHUNK)
        yield run.task.predict(
            model, run.tokenizers, inputs[part], recipe.search, places=places[part], progress=progress
        )


def score(
    run: str | Path | Run,
    source: str,
    target: str | Sequence[str],
    *,
    checkpoint: str = "best",
    device: str = "auto",
) -> dict[str, Any]:
    """log P(target | source), whole and token by token. A target given as a list is taken as exact tokens."""
    run = opened(run)
    vocabulary = run.tokenizers["target"]
    [source_ids] = encode_inputs(run.tokenizers["source"], [source], ["source"])
    if isinstance(target, str):
        if not target.strip():
            raise DecodeError("the target is empty", where="target", hint="give at least one word")
        ids = [*vocabulary.encode(target), vocabulary.end]
    else:
        ids = vocabulary.token_ids(target)
    ended = bool(ids) and ids[-1] == vocabulary.end
    model = run.load_model(checkpoint, device_named(device))
    [scores] = run.task.score(model, run.tokenizers, [source_ids], [ids[:-1] if ended else ids])
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
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """The task's metrics on a split or on files."""
    run = opened(run)
    recipe = with_search(run.recipe, beam, 1, length_penalty, overrides)
    dataset = examples_of(run, split, files)
    model = run.load_model(checkpoint, device_named(device))
    encoded = [dataset.columns["source"][row].tolist() for row in range(len(dataset))]
    done = 0

    def moved(rows: int) -> None:
        nonlocal done
        done += rows
        progress(done, len(dataset))

    outputs = run.task.decode_texts(model, run.tokenizers, encoded, recipe.search, progress=moved)
    return {
        "sentences": len(dataset),
        **run.task.metrics(outputs, list(dataset.texts["target"]), recipe.evaluation),
        **run.task.loss(model, dataset),
        "beam": recipe.search.beam,
    }


def opened(run: str | Path | Run) -> Run:
    return run if isinstance(run, Run) else Run.open(run)


def with_search(
    recipe: AnyRecipe, beam: int | None, nbest: int | None, length_penalty: float | None, overrides: Sequence[str]
) -> AnyRecipe:
    """The run's recipe with the search asked for now. A beam is widened to hold the n best, unless it is given too."""
    given: dict[str, Any] = {"beam": beam, "nbest": nbest, "length_penalty": length_penalty}
    tree = apply_overrides(recipe.model_dump(), overrides)
    tree["search"] |= {name: value for name, value in given.items() if value is not None}
    if beam is None and nbest is not None and not tree["search"]["sample"]:
        tree["search"]["beam"] = max(nbest, recipe.search.beam)
    return recipe_of(tree)


def device_named(name: str) -> torch.device:
    """`auto` takes a GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError):
        raise DecodeError(
            f"there is no device {name!r} here", where="--device", hint="auto, cpu, cuda or mps"
        ) from None
    return device
