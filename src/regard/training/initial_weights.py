"""Initial weights that a recipe names: word vectors, and the weights of another run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from regard.data.config import Recipe
from regard.errors import CheckpointError, ConfigError, Problem
from regard.layers.embeddings import Embedding
from regard.models.base import ModelConfig
from regard.models.headed import Headed, weights_for
from regard.recipes.initial_run import other_fields
from regard.recipes.recipe import AnyRecipe
from regard.runs import Run
from regard.runs.checkpoints import load_weights
from regard.runs.weights import stored_weights
from regard.tasks import Task
from regard.text.files import TextFile, open_text
from regard.text.tokenizers import Tokenizers
from regard.text.vectors import read_vectors

MAX_NAMED_WEIGHTS = 3
"""Mismatching weights that a message names."""


OPTIONAL_HEADS = {
    "masked_head": "output.",
    "next_sentence": "next_sentence.",
    "replaced_head": "replaced.",
    "generator_size": "generator.",
}
"""Heads that a pre-trained model may lack: config field -> prefix of the weight names."""


def set_initial_weights(
    model: nn.Module, task: Task, recipe: AnyRecipe, base: Path
) -> Iterator[str]:
    """Set the initial weights that the recipe names, with a note on each; paths are relative to
    `base`.

    With `training.init` word vectors are not read: that run has trained embeddings.
    """
    vectors, init = recipe.model.vectors, recipe.training.init
    if init is not None:
        yield _take_weights(model, task, recipe, base)
    if vectors is not None and init is not None:
        yield f"vectors: model.vectors is not read, the weights of {init} include embeddings"
    elif vectors is not None:
        setting = "model.embedding" if hasattr(recipe.model, "embedding") else "model.width"
        within = recipe.readable_folder(base)
        for side, name in vectors.files.items():
            yield _take_vectors(
                model, side, open_text(name, base, within=within), setting, task.tokenizers
            )


@torch.no_grad()
def _take_vectors(
    model: nn.Module, side: str, file: TextFile, setting: str, tokenizers: Tokenizers
) -> str:
    embeddings = cast("dict[str, Embedding]", model.embeddings)
    if side not in embeddings:
        raise ConfigError(
            "this model has no word embeddings", where="model.vectors", hint="leave it out"
        )
    weight_VD = embeddings[side].weight
    tokens, vectors = read_vectors(file, tokenizers[side], weight_VD.shape[1], setting)
    weight_VD[torch.from_numpy(tokens)] = torch.from_numpy(vectors)
    return f"vectors: {len(tokens):,} of {len(weight_VD):,} {side} tokens found"


def _labels_of(recipe: Recipe) -> list[str] | None:
    """The classes of a head; None if it has none."""
    return getattr(getattr(recipe, "head", None), "labels", None)


def _take_weights(model: nn.Module, task: Task, recipe: AnyRecipe, base: Path) -> str:
    name = str(recipe.training.init)
    try:
        run = Run.open(base / name, accept_recipe=True)  # only its model and tokenizer matter here
    except CheckpointError as error:
        [problem] = error.problems
        hint = f"{problem.hint}; training.init=null trains without one"
        raise ConfigError(f"{name}: {problem.what}", where="training.init", hint=hint) from None
    checkpoint = run.checkpoint("best")
    run.check_unchanged(checkpoint)
    problems = [
        *_other_tokenizers(run, name, task.tokenizers),
        *_other_model(name, run.recipe.model, recipe.model),
    ]
    if problems:
        raise ConfigError(problems=problems)
    ours, theirs = stored_weights(model), load_weights(checkpoint)
    if task.network.has_head:
        theirs = weights_for(cast("Headed", model), theirs)
        same_task = run.recipe.task == recipe.task
        if not same_task or _labels_of(run.recipe) != _labels_of(task.recipe):
            theirs = _without(theirs, {"head.linear."})  # which has another meaning
        fresh = list(dict.fromkeys(key.rpartition(".")[0] for key in ours if key not in theirs))
        ours = {key: ours[key] for key in theirs if key in ours}
    else:
        here, there = (
            {prefix for field, prefix in OPTIONAL_HEADS.items() if getattr(config, field, False)}
            for config in (recipe.model, run.recipe.model)
        )
        ours, theirs = _without(ours, here - there), _without(theirs, there - here)
        fresh = [
            prefix.removesuffix(".") for prefix in OPTIONAL_HEADS.values() if prefix in here - there
        ]
    _refuse_other_shapes(name, theirs, ours)
    model.load_state_dict(theirs, strict=False)
    return f"weights: those of {name}, {checkpoint.name}" + (
        f"; new: {', '.join(fresh)}" if fresh else ""
    )


def _without(weights: dict[str, Tensor], prefixes: Iterable[str]) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in weights.items() if not key.startswith(tuple(prefixes))}


def _other_tokenizers(run: Run, name: str, tokenizers: Tokenizers) -> Iterator[Problem]:
    """Each id must mean the same token in both runs."""
    theirs, ours = (
        {side: tokenizer.fingerprint for side, tokenizer in both.items()}
        for both in (run.tokenizers, tokenizers)
    )
    # a run with one tokenizer for source and target can begin one that reads single texts
    are_one = len({*theirs.values(), *ours.values()}) == 1
    if theirs == ours or are_one:
        return
    files = ", ".join(f"{side}: {name}/tokenizer.{side}.json" for side in theirs)
    reuse = (
        f"{name}/tokenizer.json" if run.tokenizers.joint else f"{{{files}}}, tokenizer.joint: false"
    )
    what = f"{name} has another tokenizer, so its embeddings are those of other tokens"
    yield Problem("training.init", what, f"use that one: tokenizer.file: {reuse}")


def _other_model(name: str, theirs: ModelConfig, ours: ModelConfig) -> Iterator[Problem]:
    """Fields that differ, even if the shapes of the weights match: the number of heads, for
    example."""
    there, here = theirs.model_dump(), ours.model_dump()
    if there["kind"] != here["kind"]:
        what = f"{name} is a {there['kind']}, this recipe asks for {here['kind']}"
        yield Problem("training.init", what, "leave the section model out, to use that run's model")
        return
    yield from other_fields(there, here, name)


def _refuse_other_shapes(name: str, theirs: dict[str, Tensor], ours: dict[str, Tensor]) -> None:
    there, here = (
        {key: " x ".join(map(str, tensor.shape)) for key, tensor in side.items()}
        for side in (theirs, ours)
    )
    differing = [key for key in dict.fromkeys([*here, *there]) if there.get(key) != here.get(key)]
    named = [
        f"{key} is {there.get(key, 'missing')} there, {here.get(key, 'missing')} here"
        for key in differing
    ]
    more = (
        [f"and {len(differing) - MAX_NAMED_WEIGHTS:,} more"]
        if len(differing) > MAX_NAMED_WEIGHTS
        else []
    )
    if differing:
        what = (
            f"the weights of {name} do not fit this recipe's model: "
            f"{'; '.join([*named[:MAX_NAMED_WEIGHTS], *more])}"
        )
        hint = f"the section model of {name}/recipe.yaml is the one that fits"
        raise ConfigError(what, where="training.init", hint=hint)
