"""The LSTM language model, to be pre-trained and then fine-tuned.

Dai & Le 2015, "Semi-supervised sequence learning", arXiv:1511.01432. What keeps it from learning by heart is Merity et
al. 2017, "Regularizing and optimizing LSTM language models", arXiv:1708.02182 (AWD-LSTM).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batch import TextBatch, Tokens
from regard.layers.embeddings import Embedding, Readout
from regard.layers.locked_dropout import LockedDropout
from regard.layers.lstm import LayerCarry, LSTMLayer
from regard.models.base import ModelConfig, Output, Presets, sources_of
from regard.models.contextual import LanguageModel, last_of

Carry = tuple[LayerCarry, ...]
"""What the layers remember of each row, the first layer first."""


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
    kind: Literal["lstm_lm"] = "lstm_lm"
    preset: Literal["tiny", "small", "base"] = "small"
    """Sizes under one name; any field given beside it wins. `base` is AWD-LSTM on WikiText-2."""
    embedding: int = Field(256, ge=1)
    """Width of a token's vector."""
    hidden: int = Field(512, ge=1)
    """Width of the recurrent state; with `tie` that of the last layer is `embedding`."""
    layers: int = Field(2, ge=1)
    """Recurrent layers."""
    word_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the vocabulary whose vectors are dropped, wherever in the batch the words stand."""
    input_dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the embeddings, the same at all steps."""
    hidden_dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout between layers, the same at all steps."""
    output_dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout before the readout, the same at all steps."""
    weight_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the weights that lead from one state to the next, the same at all steps (DropConnect)."""
    tie: bool = True
    """Whether the readout is the transposed embedding."""
    objective: Literal["next_token", "autoencoder"] = "next_token"
    """What it learns: the next token, or to read a text and then write it from memory (the sequence autoencoder)."""

    @model_validator(mode="after")
    def _one_tied_layer_fits(self) -> LSTMLanguageModelConfig:
        if self.tie and self.layers == 1 and self.hidden != self.embedding:
            fits = f"hidden={self.embedding} or tie=false"
            raise ValueError(f"a single layer before a tied readout is as wide as the embedding: {fits}")
        return self


@dataclass(frozen=True)
class CarriedOutput(Output):
    """Hidden states, and what is remembered after the last token that was read."""

    carry: Carry


@dataclass(frozen=True)
class LSTMState:
    """What is remembered of each row; before the first step also the hidden state after each beginning."""

    carry: Carry
    last_BD: Tensor | None
    sources: int

    def select(self, rows_BW: Tensor) -> LSTMState:
        rows_R, group = rows_BW.flatten(), len(self.carry[0][0]) // self.sources
        carry = tuple((h_RD.index_select(0, rows_R), c_RD.index_select(0, rows_R)) for h_RD, c_RD in self.carry)
        last_BD = None if self.last_BD is None else self.last_BD.index_select(0, sources_of(rows_BW, group))
        return LSTMState(carry, last_BD, len(rows_BW))


class LSTMLanguageModel(LanguageModel):
    """
    Dai & Le 2015, section 2; Merity et al. 2017, sections 2 and 4:
        h_t = LSTM(h_{t-1}, x_t)                   layer upon layer; the state goes on from batch to batch
        p(x_{t+1} | x_1 ... x_t) = softmax(W h_t + b)
    """

    def __init__(self, config: LSTMLanguageModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(vocabulary_size, config.embedding)
        width = config.embedding if config.tie else config.hidden
        self.width, self.depth = width, config.layers
        outputs = [*[config.hidden] * (config.layers - 1), width]
        inputs = [config.embedding, *outputs[:-1]]
        self.layers = nn.ModuleList(
            LSTMLayer(read, wide, weight_dropout=config.weight_dropout)
            for read, wide in zip(inputs, outputs, strict=True)
        )
        self.input_dropout = LockedDropout(config.input_dropout)
        self.hidden_dropout = LockedDropout(config.hidden_dropout)
        self.output_dropout = LockedDropout(config.output_dropout)
        self.output = Readout(width, vocabulary_size, self.embedding if config.tie else None)

    @property
    def embeddings(self) -> dict[str, Embedding]:
        return {"text": self.embedding}

    def embed(self, ids_BL: Tensor) -> Tensor:
        """The words' vectors; whole words are dropped (Merity et al. 2017, section 4.3)."""
        x_BLD: Tensor = self.embedding(ids_BL)
        if self.training and self.config.word_dropout:
            kept_V1 = F.dropout(x_BLD.new_ones(self.embedding.num_embeddings, 1), self.config.word_dropout)
            x_BLD = x_BLD * kept_V1[ids_BL]
        return cast(Tensor, self.input_dropout(x_BLD))

    def read(self, text: Tokens, carry: Carry | None = None) -> tuple[list[Tensor], Carry]:
        """The states of all layers, embeddings first, and what is remembered after each text's last token."""
        even = bool((text.host_lengths_B == text.ids_BL.shape[1]).all())
        outputs, carries = [self.embed(text.ids_BL)], []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, LSTMLayer)
            read_BLD = outputs[-1] if number == 0 else self.hidden_dropout(outputs[-1])
            before = None if carry is None else carry[number]
            h_BLD, after = layer(read_BLD, before) if even else layer.read(read_BLD, text, before)
            outputs.append(h_BLD)
            carries.append(after)
        return outputs, tuple(carries)

    def forward(self, batch: TextBatch, carry: Carry | None = None) -> CarriedOutput:  # type: ignore[override]
        """Go on from `carry`, or from nothing."""
        outputs, after = self.read(without_last(batch.text), carry)
        return CarriedOutput(self.output_dropout(outputs[-1]), after)

    def rewrite(self, batch: TextBatch) -> CarriedOutput:
        """Read the whole text, then write it from memory with the same weights: the sequence autoencoder."""
        _, remembered = self.read(batch.text)
        return self.forward(batch, remembered)

    def readout(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.output(hidden)
        return logits

    def layers_of(self, batch: TextBatch) -> list[Tensor]:
        return self.read(batch.text)[0]

    def begin(self, source: Tokens, rows: int, max_length: int) -> LSTMState:
        outputs, carry = self.read(source)
        repeated = tuple((h_BD.repeat_interleave(rows, 0), c_BD.repeat_interleave(rows, 0)) for h_BD, c_BD in carry)
        return LSTMState(repeated, last_of(outputs[-1], source), len(source))

    def step(self, tokens_R: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        if state.last_BD is not None:
            logits_BV = self.readout(state.last_BD)
            logits_RV = logits_BV.repeat_interleave(len(tokens_R) // state.sources, 0)
            return logits_RV, LSTMState(state.carry, None, state.sources)
        ones = torch.ones(len(tokens_R), dtype=torch.long)
        outputs, carry = self.read(Tokens(tokens_R[:, None], ones, ones), state.carry)
        return self.readout(outputs[-1][:, 0]), LSTMState(carry, None, state.sources)


def without_last(text: Tokens) -> Tokens:
    """What is read to predict a text: all of it but the last token of each."""
    return Tokens(text.ids_BL[:, :-1], text.lengths_B - 1, text.host_lengths_B - 1)
