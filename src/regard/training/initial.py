"""The weights that a training begins with, where they are not drawn at random: word frequencies, vectors, a run's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.dataset import Examples
from regard.data.files import open_text
from regard.data.labelled_examples import LabelledExamples
from regard.data.tokenizers import Tokenizers
from regard.data.vectors import read_vectors
from regard.errors import ConfigError
from regard.models import Generator
from regard.models.headed import Headed, weights_for
from regard.recipes.recipe import AnyRecipe
from regard.runs import Run
from regard.runs.checkpoints import load_weights
from regard.runs.run import put_weights, stored_weights

NAMED = 3
"""How many weights that differ a message names."""


@torch.no_grad()
def expect_frequencies(model: Any, train: Examples) -> None:
    """Let the readout begin with how often each token is to be written, where the model has one of its own.

    A head that gives a number begins with the mean of the numbers, so that it need not learn that first.
    """
    if isinstance(train, LabelledExamples) and train.labels.dtype.kind == "f":
        model.head.linear.bias.fill_(float(train.labels.mean()))
    if getattr(model, "output", None) is not None:
        model.output.expect(torch.from_numpy(train.frequencies()))


def initialise(model: Generator, recipe: AnyRecipe, base: Path, tokenizers: Tokenizers) -> Iterator[str]:
    """Give a fresh model the weights that the recipe asks for, and say which; paths are relative to `base`.

    With `training.init` the vectors are not read: that run's embeddings have learned from theirs.
    """
    if recipe.training.init is not None:
        yield _take_weights(model, recipe, base, tokenizers)
    elif recipe.model.vectors is not None:
        for side, file in recipe.model.vectors.files.items():
            yield _take_vectors(model, side, file, base, tokenizers)


@torch.no_grad()
def _take_vectors(model: Generator, side: str, file: str, base: Path, tokenizers: Tokenizers) -> str:
    if side not in model.embeddings:
        raise ConfigError("this model makes its words' vectors itself", where="model.vectors", hint="leave it out")
    weight_VD = model.embeddings[side].weight
    vectors = read_vectors(open_text(file, base), tokenizers[side], weight_VD.shape[1])
    weight_VD[torch.from_numpy(vectors.tokens)] = torch.from_numpy(vectors.values)
    return f"vectors: {len(vectors.tokens):,} of {len(weight_VD):,} {side} tokens found"


def _take_weights(model: Generator | Headed, recipe: AnyRecipe, base: Path, tokenizers: Tokenizers) -> str:
    name = str(recipe.training.init)
    run = Run.open(base / name)
    checkpoint = run.checkpoint("best")
    run.check_tokenizer(checkpoint)
    _refuse_other_tokenizers(run, name, tokenizers)
    weights = load_weights(checkpoint)
    if isinstance(model, Headed):
        fresh = _take_base(model, run, recipe, weights)
        return f"weights: those of {name}, {checkpoint.name}" + (f"; new: {', '.join(fresh)}" if fresh else "")
    _refuse_other_shapes(name, weights, stored_weights(model))
    put_weights(model, weights, checkpoint)
    return f"weights: those of {name}, {checkpoint.name}"


def _take_base(model: Headed, run: Run, recipe: AnyRecipe, weights: dict[str, Tensor]) -> list[str]:
    """Give a model under a head what there is for it in a run's weights; the names of those that stay fresh.

    The last layer of a head is taken over only where it means the same: one task, the same labels.
    """
    if run.recipe.model.kind != recipe.model.kind:
        what = f"{recipe.training.init} is a {run.recipe.model.kind}, this recipe asks for {recipe.model.kind}"
        raise ConfigError(what, where="training.init", hint="leave the section model out: it is then that run's")
    ours, theirs = stored_weights(model), weights_for(model, weights)
    labels = getattr(getattr(run.recipe, "head", None), "labels", None)
    if run.recipe.task != recipe.task or tuple(labels or ()) != model.labels:
        theirs = {key: tensor for key, tensor in theirs.items() if not key.startswith("head.linear.")}
    _refuse_other_shapes(str(recipe.training.init), theirs, {key: ours[key] for key in theirs if key in ours})
    model.load_state_dict(theirs, strict=False)
    return list(dict.fromkeys(key.rpartition(".")[0] for key in ours if key not in theirs))


def _refuse_other_tokenizers(run: Run, name: str, tokenizers: Tokenizers) -> None:
    """The same id must mean the same token; whether two sides share one object does not matter."""
    theirs = {side: tokenizer.fingerprint for side, tokenizer in run.tokenizers.items()}
    if theirs == {side: tokenizer.fingerprint for side, tokenizer in tokenizers.items()}:
        return
    files = ", ".join(f"{side}: {name}/tokenizer.{side}.json" for side in theirs)
    reuse = f"{name}/tokenizer.json" if run.tokenizers.joint else f"{{{files}}}, tokenizer.joint: false"
    raise ConfigError(
        f"{name} has another tokenizer, with which every token means another",
        where="training.init",
        hint=f"use that one: tokenizer.file: {reuse}",
    )


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
