"""The two seams between a model and the rest: batch -> output, and begin / step / select."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from pydantic import model_validator
from torch import Tensor, nn

from regard.config import Config
from regard.data.batch import Batch, Tokens
from regard.layers.embeddings import Embedding, Readout
from regard.text.vectors import VectorsConfig

Presets = Mapping[str, Mapping[str, Any]]
"""Values of fields under one name."""


class ModelConfig(Config):
    """What every model's config has: presets, which are defaults under one name."""

    PRESETS: ClassVar[Presets] = {}

    vectors: VectorsConfig | None = None
    """Word vectors from files that the embeddings begin with."""

    @model_validator(mode="before")
    @classmethod
    def _fill_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        preset = given.get("preset", cls.model_fields["preset"].default)
        return {**cls.PRESETS.get(str(preset), {}), **given}

    @property
    def letters(self) -> int | None:
        """Characters of a word outside the vocabulary that are read, its two ends included; None: it is `<unk>`."""
        return None

    def check_data(self, longest_source: int, longest_target: int = 0) -> None:
        """Refuse what this model cannot do with texts of at most so many tokens, `</s>` counted."""


@dataclass(frozen=True)
class Output:
    """What a forward pass gives; `readout(hidden)` turns it into logits where the objective wants them."""

    hidden_BTD: Tensor


class State(Protocol):
    """All that decoding remembers. Rows come in groups of W, one group a source: row r belongs to source r // W."""

    def select(self, rows_BW: Tensor) -> State:
        """The state of these rows, in this order.

        `rows_BW[b, w]` is the old row that the new row b * W + w goes on from. Each group's rows stem from one source.
        Groups keep their order: those that are not named are dropped with their source, so as many groups as before
        are the same ones. W may change.
        """
        ...


class Generator(nn.Module):
    """A model that writes: what training, search and scoring may ask of it."""

    alignment: ClassVar[str] = ""
    """The names of the attentions that look at the source, as a pattern; empty where there is none."""

    source_embedding: Embedding
    target_embedding: Embedding
    output: Readout
    """What `readout` runs."""

    @property
    def embeddings(self) -> dict[str, Embedding]:
        """Of the two sides; one and the same where they are tied."""
        return {"source": self.source_embedding, "target": self.target_embedding}

    def forward(self, batch: Batch) -> Output:
        """Teacher forcing: hidden states that predict `target[:, 1:]` from `source` and `target[:, :-1]`."""
        raise NotImplementedError

    def readout(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., D] -> logits [..., V]."""
        raise NotImplementedError

    def begin(self, source: Tokens, rows: int, max_length: int) -> Any:
        """Read the sources and make room for `rows` hypotheses of at most `max_length` tokens for each."""
        raise NotImplementedError

    def step(self, tokens_R: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Feed one token a row (`<s>` first); logits_RV of the next one. Consumes the state it is given."""
        raise NotImplementedError


def sources_of(rows_BW: Tensor, group: int) -> Tensor:
    """Which source each selected group stems from, given the old group size."""
    return rows_BW[:, 0] // group


def grouped(x_RD: Tensor, sources: int) -> Tensor:
    """Rows by source: [B * W, D] -> [B, W, D]."""
    return x_RD.view(sources, -1, x_RD.shape[-1])


def shifted(target: Tokens) -> Tensor:
    """The decoder's input under teacher forcing: every target token but the last."""
    return target.ids_BL[:, :-1]


def count_parameters(model: nn.Module) -> int:
    """Trainable parameters; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
