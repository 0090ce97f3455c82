"""The LSTM language model, for pre-training and fine-tuning.

Dai & Le 2015, "Semi-supervised sequence learning", arXiv:1511.01432. The regularisation is that of
Merity et al. 2017, "Regularizing and optimizing LSTM language models", arXiv:1708.02182 (AWD-LSTM).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Padded, TextBatch
from regard.layers.embeddings import Embedding, Readout
from regard.layers.recurrence import LayerCarry, LSTMLayer
from regard.models.base import (
    LanguageModel,
    ModelConfig,
    Output,
    Presets,
    RecurrentState,
    last_of,
    rate_of_recurrence,
)

LayerCarries = tuple[LayerCarry, ...]  # the recurrent state of all layers, the first layer first


class LSTMLanguageModelConfig(ModelConfig):
    """LSTM language model (Dai & Le 2015)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"embedding": 64, "hidden": 128, "layers": 2},
        "small": {"embedding": 256, "hidden": 512, "layers": 2},
        "base": {
            "embedding": 400,
            "hidden": 1150,
            "layers": 3,
            "word_dropout": 0.1,
            "input_dropout": 0.65,
            "hidden_dropout": 0.3,
            "output_dropout": 0.4,
            "weight_dropout": 0.5,
        },
    }
    reads = "text"
    generates = True
    pretraining = "next_token"
    causal = True
    head_pooling = "last"

    kind: Literal["lstm_lm"] = "lstm_lm"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it. `base` is AWD-LSTM on
    WikiText-2."""
    embedding: int = Field(256, ge=1)
    """Width of the token embeddings."""
    hidden: int = Field(512, ge=1)
    """Width of the recurrent state; with `tie` the last layer has the width `embedding`."""
    layers: int = Field(2, ge=1)
    """Recurrent layers."""
    word_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the vocabulary whose embeddings are dropped, at all their positions in the batch."""
    input_dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the embeddings, the same at all steps."""
    hidden_dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout between layers, the same at all steps."""
    output_dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout before the readout, the same at all steps."""
    weight_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the recurrent weights, the same at all steps (DropConnect)."""
    tie: bool = True
    """Whether the readout is the transposed embedding."""
    objective: Literal["next_token", "autoencoder"] = "next_token"
    """The objective of pre-training: the next token, or to read a text and then reproduce it (the
    sequence autoencoder)."""

    @property
    def learning_rate(self) -> float:
        return rate_of_recurrence(self.hidden)

    @model_validator(mode="after")
    def _one_tied_layer_fits(self) -> LSTMLanguageModelConfig:
        if self.tie and self.layers == 1 and self.hidden != self.embedding:
            hint = f"set hidden={self.embedding} or tie=false"
            raise ValueError(
                f"a single layer with a tied readout must be as wide as the embedding: {hint}"
            )
        return self


class LockedDropout(nn.Module):
    """Dropout with one mask per row for all steps (Gal & Ghahramani 2016, arXiv:1512.05287)."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x_BLD: Tensor) -> Tensor:
        if not (self.training and self.rate):
            return x_BLD
        return x_BLD * F.dropout(x_BLD.new_ones(x_BLD.shape[0], 1, x_BLD.shape[2]), self.rate)


@dataclass(frozen=True)
class CarriedOutput(Output):
    """Hidden states, and the recurrent state after the last token."""

    carry: LayerCarries


class LSTMLanguageModel(LanguageModel):
    """An LSTM that predicts each token from those before it.

    Dai & Le 2015, section 2; Merity et al. 2017, sections 2 and 4:
        h_t = LSTM(h_{t-1}, x_t)                   in each layer; the state may be carried from batch to batch
        p(x_{t+1} | x_1 ... x_t) = softmax(W h_t + b)
    """

    config: LSTMLanguageModelConfig

    def __init__(self, config: LSTMLanguageModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(vocabulary_size, config.embedding)
        width = config.embedding if config.tie else config.hidden
        self.width = width
        self.depth = config.layers
        outputs = [*[config.hidden] * (config.layers - 1), width]
        inputs = [config.embedding, *outputs[:-1]]
        self.layers = nn.ModuleList(
            LSTMLayer(before, after, weight_dropout=config.weight_dropout)
            for before, after in zip(inputs, outputs, strict=True)
        )
        self.input_dropout = LockedDropout(config.input_dropout)
        self.hidden_dropout = LockedDropout(config.hidden_dropout)
        self.output_dropout = LockedDropout(config.output_dropout)
        self.output = Readout(width, vocabulary_size, self.embedding if config.tie else None)

    def embed(self, ids_BL: Tensor) -> Tensor:
        """Token embeddings; dropout drops whole words of the vocabulary (Merity et al. 2017,
        section 4.3)."""
        x_BLD: Tensor = self.embedding(ids_BL)
        if self.training and self.config.word_dropout:
            kept_V1 = F.dropout(
                x_BLD.new_ones(self.embedding.num_embeddings, 1), self.config.word_dropout
            )
            x_BLD = x_BLD * kept_V1[ids_BL]
        return self.input_dropout(x_BLD)

    def read(
        self, text: Padded, carry: LayerCarries | None = None
    ) -> tuple[list[Tensor], LayerCarries]:
        """The states of all layers, embeddings first, and the recurrent state after each text's
        last token."""
        equal_lengths = bool((text.host_lengths_B == text.ids_BL.shape[1]).all())
        outputs = [self.embed(text.ids_BL)]
        carries = []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, LSTMLayer)
            read_BLD = outputs[-1] if number == 0 else self.hidden_dropout(outputs[-1])
            before = None if carry is None else carry[number]
            h_BLD, after = (
                layer(read_BLD, before) if equal_lengths else layer.read(read_BLD, text, before)
            )
            outputs.append(h_BLD)
            carries.append(after)
        return outputs, tuple(carries)

    def forward(self, batch: TextBatch, carry: LayerCarries | None = None) -> CarriedOutput:
        """Start from the recurrent state `carry`, or from zeros."""
        outputs, after = self.read(batch.text.inputs, carry)
        return CarriedOutput(self.output_dropout(outputs[-1]), after)

    def reconstruct(self, batch: TextBatch) -> CarriedOutput:
        """Read the whole text, then predict it from the final state with the same weights: the
        sequence autoencoder."""
        _, carry = self.read(batch.text)
        return self.forward(batch, carry)

    def layers_of(self, batch: TextBatch) -> list[Tensor]:
        return self.read(batch.text)[0]

    def begin(self, source: Padded, rows: int, max_length: int) -> RecurrentState[Tensor]:
        """The carry is h and c of each layer; the memory, before the first step, the hidden state
        after each prompt."""
        outputs, carry = self.read(source)
        repeated = tuple(part_BD.repeat_interleave(rows, 0) for layer in carry for part_BD in layer)
        return RecurrentState(repeated, last_of(outputs[-1], source))

    def step(
        self, tokens_R: Tensor, state: RecurrentState[Any]
    ) -> tuple[Tensor, RecurrentState[None]]:
        if state.memory is not None:
            logits_RV = self.readout(state.memory).repeat_interleave(
                len(tokens_R) // len(state.memory), 0
            )
            return logits_RV, RecurrentState(state.carry, None)
        ones = torch.ones(len(tokens_R), dtype=torch.long)
        before = tuple(zip(state.carry[::2], state.carry[1::2], strict=True))
        outputs, carry = self.read(Padded(ones, ones, tokens_R[:, None]), before)
        return self.readout(outputs[-1][:, 0]), RecurrentState(
            tuple(part for layer in carry for part in layer), None
        )
