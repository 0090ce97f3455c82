"""Peters et al. 2018, "Deep contextualized word representations", arXiv:1802.05365: two language models in one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.data.batch import TextBatch, Tokens
from regard.layers.characters import CharacterCNN
from regard.layers.embeddings import Embedding, Readout
from regard.layers.lstm import LSTMLayer
from regard.models.base import ModelConfig, Output, Presets
from regard.models.contextual import Contextual

FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
"""Width and number of the published model's filters."""


class ELMoConfig(ModelConfig):
    """Forward and backward language model (Peters 2018)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"width": 64, "hidden": 128, "filters": 64, "highway": 1},
        "small": {"width": 128, "hidden": 512, "filters": 256, "highway": 1},
        "base": {"width": 512, "hidden": 4096, "filters": 2048, "highway": 2, "cell_clip": 3.0},
    }
    kind: Literal["elmo"] = "elmo"
    preset: Literal["tiny", "small", "base"] = "small"
    """Sizes under one name; any field given beside it wins. `base` is the paper's."""
    words: Literal["characters", "tokens"] = "characters"
    """Where a word's vector comes from: a convolution over its characters, so that words outside the vocabulary have
    vectors of their own, too (the paper); or a table with a vector for each word of the vocabulary."""
    characters: int = Field(16, ge=1)
    """Width of a character's vector."""
    filters: int = Field(256, ge=64)
    """Filters of the convolution over characters, of widths 1 to 7, in the shares of the published model."""
    longest_word: int = Field(50, ge=3)
    """Characters of a word that are read, in bytes of UTF-8 and with the two that mark its ends."""
    highway: int = Field(1, ge=0)
    """Highway layers above the convolution."""
    width: int = Field(128, ge=1)
    """Width of a word's vector and of what each direction's layers hand on: the projection."""
    hidden: int = Field(512, ge=1)
    """Memory cells of each layer in each direction."""
    layers: int = Field(2, ge=1)
    """Recurrent layers in each direction; all but the first add their input to their output."""
    cell_clip: float | None = Field(None, gt=0)
    """Hold memory cells within this bound, at the cost of a loop over time."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on what each layer reads, and before the softmax."""

    @property
    def letters(self) -> int | None:
        return self.longest_word if self.words == "characters" else None


@dataclass(frozen=True)
class BothOutput(Output):
    """Hidden states at every position: of the forward direction, which predict the next token, as `hidden_BTD`, and of
    the backward direction, which predict the token before."""

    backward_BLD: Tensor


class ELMo(Contextual):
    """
    Peters et al. 2018, sections 3.1 and 3.2:
        p(t_1 ... t_N) = prod_k p(t_k | t_1 ... t_{k-1}; x, forward LSTM, s)        x and s, the words' vectors and
        p(t_1 ... t_N) = prod_k p(t_k | t_{k+1} ... t_N; x, backward LSTM, s)       the softmax, are shared
        R_k = {x_k, [forward h_kj ; backward h_kj] | j = 1 ... L}                   layer 0 is [x_k ; x_k]
    """

    def __init__(self, config: ELMoConfig, vocabulary_size: int, characters_VC: Tensor | None = None) -> None:
        """`characters_VC` spells every token of the vocabulary (layers/characters.py), for `words: characters`."""
        super().__init__()
        self.config, self.width, self.depth, self.letters = config, 2 * config.width, config.layers, config.letters
        self.embedding = _word_vectors(config, vocabulary_size, characters_VC)
        self.forward_layers, self.backward_layers = (
            nn.ModuleList(
                LSTMLayer(config.width, config.hidden, projection=config.width, clip=config.cell_clip)
                for _ in range(config.layers)
            )
            for _ in range(2)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.output = Readout(config.width, vocabulary_size, None)

    @property
    def embeddings(self) -> dict[str, Embedding]:
        """Those that word vectors may fill: none where words are made of characters."""
        return {"text": self.embedding} if isinstance(self.embedding, Embedding) else {}

    def forward(self, batch: TextBatch) -> BothOutput:
        _, forward, backward = self._read(batch.text)
        return BothOutput(self.dropout(forward[-1]), self.dropout(backward[-1]))

    def _read(self, text: Tokens) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The words' vectors and each layer's states, of either direction and in the order of the text."""
        x_BLD, order_BL = self._words(text), reversal(text)
        forward = self._through(self.forward_layers, x_BLD)
        backward = self._through(self.backward_layers, reordered(x_BLD, order_BL))
        return x_BLD, forward, [reordered(h_BLD, order_BL) for h_BLD in backward]

    def _words(self, text: Tokens) -> Tensor:
        """A vector for each word by itself."""
        spelt = isinstance(self.embedding, CharacterCNN)
        x_BLD: Tensor = self.embedding(text.ids_BL, text.spelling) if spelt else self.embedding(text.ids_BL)
        return x_BLD

    def _through(self, layers: nn.ModuleList, x_BLD: Tensor) -> list[Tensor]:
        """Padding stands on the right: no state of a word has read it."""
        outputs: list[Tensor] = []
        for layer in layers:
            h_BLD, _ = layer(self.dropout(x_BLD))
            x_BLD = h_BLD + x_BLD if outputs else h_BLD
            outputs.append(x_BLD)
        return outputs

    def readout(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.output(hidden)
        return logits

    def layers_of(self, batch: TextBatch) -> list[Tensor]:
        x_BLD, forward, backward = self._read(batch.text)
        return [torch.cat(pair, dim=-1) for pair in zip([x_BLD, *forward], [x_BLD, *backward], strict=True)]


def _word_vectors(config: ELMoConfig, vocabulary_size: int, characters_VC: Tensor | None) -> CharacterCNN | Embedding:
    if config.words == "tokens":
        return Embedding(vocabulary_size, config.width)
    assert characters_VC is not None, "words are made of characters, but none are given"
    assert len(characters_VC) == vocabulary_size
    filters = [(size, max(1, count * config.filters // 2048)) for size, count in FILTERS]
    return CharacterCNN(
        characters_VC,
        embedding=config.characters,
        filters=filters,
        highway=config.highway,
        width=config.width,
    )


def reversal(text: Tokens) -> Tensor:
    """Where to find the token that stands at each place of a text read backwards; padding stays where it is."""
    place_L = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device)
    backwards_BL = text.lengths_B[:, None] - 1 - place_L
    return torch.where(backwards_BL >= 0, backwards_BL, place_L)


def reordered(x_BLD: Tensor, order_BL: Tensor) -> Tensor:
    """Tokens in another order; a reversal undoes itself."""
    return x_BLD.gather(1, order_BL[..., None].expand_as(x_BLD))
