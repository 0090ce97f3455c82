"""Where the model looks in the source while it writes, for the coverage penalty."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any

import torch
from torch import Tensor

from regard.errors import DecodeError
from regard.layers.attention import Recording, recording
from regard.models.base import Generator


def must_look(model: Generator) -> None:
    """Refuse a model that has no attention over the source."""
    if not model.alignment:
        what = f"the model {type(model).__name__} has no attention over the source, so nothing to cover it with"
        hint = "leave it at 0, or take a model with attention"
        raise DecodeError(what, where="search.coverage_penalty", hint=hint)


def step_looking(model: Generator, tokens_BW: Tensor, state: Any) -> tuple[Tensor, Any, Tensor]:
    """A step of the model, and the weights [B, W, S] with which each hypothesis looked at its source."""
    with recording() as recorded:
        logits_RV, state = model.step(tokens_BW.flatten(), state)
    # A model may have the W hypotheses of a source as so many queries, or each one in a row of its own.
    return logits_RV, state, looks_at_source(model, recorded).reshape(*tokens_BW.shape, -1)


def looks_at_source(model: Generator, recorded: Recording) -> Tensor:
    """The weights [B, Q, S] of the attentions over the source, their mean over layers and heads."""
    looks = [weights for name, weights in recorded.by_name(model).items() if fnmatch(name, model.alignment)]
    return torch.cat(looks, dim=1).mean(1)
