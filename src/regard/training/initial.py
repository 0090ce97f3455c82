"""Initial weights that are not random: word frequencies, word vectors, and the weights of another run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from regard.errors import ConfigError, Problem
from regard.layers.embeddings import Embedding
from regard.models.base import ModelConfig
from regard.models.headed import Headed, weights_for
from regard.recipes.beginning import other_fields
from regard.recipes.recipe import AnyRecipe
from regard.runs import Run
from regard.runs.checkpoints import load_weights
from regard.runs.run import put_weights, stored_weights
from regard.tasks import Task
from regard.text.files import TextFile, open_text
from regard.text.tokenizers import Tokenizers
from regard.text.vectors import read_vectors

NAMED = 3
"""How many mismatching weights a message names."""
HEADS = {"masked_head": "output.", "next_sentence": "next_sentence."}
"""Heads that a pre-trained model may lack: config field -> prefix of the weight names."""


def initialise(model: nn.Module, task: Task, recipe: AnyRecipe, base: Path) -> Iterator[str]:
    """Set the initial weights that the recipe names, with a note on each; paths are relative to `base`.

    With `training.init` word vectors are not read: that run has trained embeddings.
    """
    vectors, init = recipe.model.vectors, recipe.training.init
    if init is not None:
        yield _take_weights(model, task, recipe, base)
    if vectors is not None and init is not None:
        yield f"vectors: model.vectors is not read, the weights of {init} include embeddings"
    elif vectors is not None:
        setting = "model.embedding" if hasattr(recipe.model, "embedding") else "model.width"
        for side, file in vectors.files.items():
            yield _take_vectors(model, side, open_text(file, base), setting, task.tokenizers)


@torch.no_grad()
def _take_vectors(model: nn.Module, side: str, file: TextFile, setting: str, tokenizers: Tokenizers) -> str:
    embeddings = cast("dict[str, Embedding]", model.embeddings)
    if side not in embeddings:
        raise ConfigError("this model has no word embeddings", where="model.vectors", hint="leave it out")
    weight_VD = embeddings[side].weight
    vectors = read_vectors(file, tokenizers[side], weight_VD.shape[1], setting)
    weight_VD[torch.from_numpy(vectors.tokens)] = torch.from_numpy(vectors.values)
    return f"vectors: {len(vectors.tokens):,} of {len(weight_VD):,} {side} tokens found"


def _take_weights(model: nn.Module, task: Task, recipe: AnyRecipe, base: Path) -> str:
    name = str(recipe.training.init)
    run = Run.open(base / name)
    checkpoint = run.checkpoint("best")
    run.check_tokenizer(checkpoint)
    problems = [*_other_tokenizers(run, name, task.tokenizers), *_other_model(name, run.recipe.model, recipe.model)]
    if problems:
        raise ConfigError(problems=problems)
    weights = load_weights(checkpoint)
    if task.head is not None:
        fresh = _take_base(cast("Headed", model), run, task, weights)
    else:
        weights, fresh = _with_heads(model, weights, run.recipe.model, recipe.model)
        _refuse_other_shapes(name, weights, stored_weights(model))
        put_weights(model, weights, checkpoint)
    return f"weights: those of {name}, {checkpoint.name}" + (f"; new: {', '.join(fresh)}" if fresh else "")


def _with_heads(
    model: nn.Module, weights: dict[str, Tensor], theirs: ModelConfig, ours: ModelConfig
) -> tuple[dict[str, Tensor], list[str]]:
    """The weights of a run, with new ones for heads that only this recipe has and without heads that it lacks; and the
    names of the new heads."""
    heads = [(prefix, getattr(ours, field, False), getattr(theirs, field, False)) for field, prefix in HEADS.items()]
    new = tuple(prefix for prefix, here, there in heads if here and not there)
    gone = tuple(prefix for prefix, here, there in heads if there and not here)
    fresh = {name: tensor.detach() for name, tensor in stored_weights(model).items() if name.startswith(new)}
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith(gone)}
    return fresh | kept, [prefix.removesuffix(".") for prefix in new]


def _take_base(model: Headed, run: Run, task: Task, weights: dict[str, Tensor]) -> list[str]:
    """Copy the weights of a run that a model with a head can use; the names of the modules that stay new.

    The last layer of the head is copied only if it has the same meaning: the same task and labels.
    """
    ours, theirs = stored_weights(model), weights_for(model, weights)
    same_labels = getattr(run.task, "labels", ()) == getattr(task, "labels", ())
    if run.recipe.task != task.name or not same_labels:
        theirs = {key: tensor for key, tensor in theirs.items() if not key.startswith("head.linear.")}
    _refuse_other_shapes(str(task.recipe.training.init), theirs, {key: ours[key] for key in theirs if key in ours})
    model.load_state_dict(theirs, strict=False)
    return list(dict.fromkeys(key.rpartition(".")[0] for key in ours if key not in theirs))


def _other_tokenizers(run: Run, name: str, tokenizers: Tokenizers) -> Iterator[Problem]:
    """Each id must mean the same token in both runs."""
    theirs = {side: tokenizer.fingerprint for side, tokenizer in run.tokenizers.items()}
    if theirs == {side: tokenizer.fingerprint for side, tokenizer in tokenizers.items()}:
        return
    files = ", ".join(f"{side}: {name}/tokenizer.{side}.json" for side in theirs)
    reuse = f"{name}/tokenizer.json" if run.tokenizers.joint else f"{{{files}}}, tokenizer.joint: false"
    what = f"{name} has another tokenizer, so its embeddings are those of other tokens"
    yield Problem("training.init", what, f"use that one: tokenizer.file: {reuse}")


def _other_model(name: str, theirs: ModelConfig, ours: ModelConfig) -> Iterator[Problem]:
    """Fields that differ, even if the shapes of the weights match: the number of heads, for example."""
    there, here = theirs.model_dump(), ours.model_dump()
    if there["kind"] != here["kind"]:
        what = f"{name} is a {there['kind']}, this recipe asks for {here['kind']}"
        yield Problem("training.init", what, "leave the section model out, to use that run's model")
        return
    yield from other_fields(there, here, name)


def _refuse_other_shapes(name: str, theirs: dict[str, Tensor], ours: dict[str, Tensor]) -> None:
    there, here = ({key: " x ".join(map(str, tensor.shape)) for key, tensor in side.items()} for side in (theirs, ours))
    differing = [key for key in dict.fromkeys([*here, *there]) if there.get(key) != here.get(key)]
    if not differing:
        return
    named = [f"{key} is {there.get(key, 'missing')} there, {here.get(key, 'missing')} here" for key in differing]
    more = [f"and {len(differing) - NAMED:,} more"] if len(differing) > NAMED else []
    raise ConfigError(
        f"the weights of {name} do not fit this recipe's model: {'; '.join([*named[:NAMED], *more])}",
        where="training.init",
        hint=f"the section model of {name}/recipe.yaml is the one that fits",
    )
