"""Peters et al. 2018, "Deep contextualized word representations", arXiv:1802.05365: ELMo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Padded, Spelling, TextBatch
from regard.layers.embeddings import Embedding, Readout
from regard.layers.recurrence import LSTMLayer, reversal
from regard.models.base import Contextual, ModelConfig, Output, Presets, rate_of_recurrence
from regard.text.spelling import CHARACTER_IDS

PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))
"""Filters of the published model: width and number."""


class ELMoConfig(ModelConfig):
    """Forward and backward language model (Peters 2018)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"width": 64, "hidden": 128, "filters": 64, "highway": 1},
        "small": {"width": 128, "hidden": 512, "filters": 256, "highway": 1},
        "base": {"width": 512, "hidden": 4096, "filters": 2048, "highway": 2, "cell_clip": 3.0},
    }
    reads = "text"
    pretraining = "both_directions"
    equal_layers = True
    head_defaults: ClassVar[Mapping[str, Any]] = {"features": "mix", "freeze": "all", "bilstm": 128}

    kind: Literal["elmo"] = "elmo"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it. `base` is the paper's."""
    words: Literal["characters", "tokens"] = "characters"
    """Where word vectors come from: a convolution over the characters, so that words outside the
    vocabulary have their own vectors too (the paper); or an embedding for each word of the
    vocabulary."""
    characters: int = Field(16, ge=1)
    """Width of the character embeddings."""
    filters: int = Field(256, ge=64)
    """Filters of the convolution over characters, of widths 1 to 7, in the proportions of the
    published model."""
    longest_word: int = Field(50, ge=3)
    """The most characters of a word that are read: bytes of UTF-8, and two markers for its ends."""
    highway: int = Field(1, ge=0)
    """Highway layers above the convolution."""
    width: int = Field(128, ge=1)
    """Width of a word vector, and of the projected output of each layer in each direction."""
    hidden: int = Field(512, ge=1)
    """Memory cells of each layer in each direction."""
    layers: int = Field(2, ge=1)
    """Recurrent layers in each direction; all but the first have a residual connection."""
    cell_clip: float | None = Field(None, gt=0)
    """Clip memory cells to this absolute value, which needs a slow loop over time."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the input of each layer, and before the softmax."""

    @property
    def learning_rate(self) -> float:
        return rate_of_recurrence(self.hidden)

    @property
    def letters(self) -> int | None:
        return self.longest_word if self.words == "characters" else None


def distinct_words(
    characters_VC: Tensor, ids_BL: Tensor, spelling: Spelling | None
) -> tuple[Tensor, Tensor]:
    """The characters of the distinct words of a batch, and the number of the word at each
    position."""
    known = len(characters_VC)
    if spelling is not None:
        ids_BL = torch.where(spelling.numbers_BL > 0, known - 1 + spelling.numbers_BL, ids_BL)
    words_P, index_BL = torch.unique(
        ids_BL, return_inverse=True
    )  # sorted: words of the batch come last
    parts = [characters_VC[words_P[words_P < known]]]
    if spelling is not None:
        parts.append(spelling.characters_PC[words_P[words_P >= known] - known])
    width = max(part_PC.shape[1] for part_PC in parts)
    return torch.cat([F.pad(part_PC, (0, width - part_PC.shape[1])) for part_PC in parts]), index_BL


class Highway(nn.Module):
    """A layer with a gate that lets part of its input through unchanged.

    Srivastava et al. 2015, arXiv:1505.00387, equation 3; Kim et al. 2016, arXiv:1508.06615,
    equation 8:
        t = sigmoid(W_T y + b_T)
        z = t * relu(W_H y + b_H) + (1 - t) * y
    b_T begins at -2, so that at first nearly everything passes.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.W_H = nn.Linear(width, width)
        self.W_T = nn.Linear(width, width)
        nn.init.constant_(self.W_T.bias, -2.0)

    def forward(self, y: Tensor) -> Tensor:
        t = torch.sigmoid(self.W_T(y))
        return t * torch.relu(self.W_H(y)) + (1 - t) * y


class CharacterCNN(nn.Module):
    """Word vectors from characters. Kim et al. 2016, arXiv:1508.06615, section 2.2, with ReLU as in
    Peters et al. 2018:

        f^k[i] = relu(<C^k[*, i : i + w - 1], H> + b)          the filter H of width w at character i of word k
        y^k    = max_i f^k[i]                                  one number per filter, concatenated

    then highway layers and a projection. A word shorter than a filter is padded with zeros;
    otherwise no filter extends beyond the end of a word.

    The spelling of vocabulary words is in a buffer of this layer, that of other words in the batch.
    """

    characters_VC: Tensor

    def __init__(self, config: ELMoConfig, characters_VC: Tensor) -> None:
        super().__init__()
        self.register_buffer("characters_VC", characters_VC, persistent=False)
        self.embedding = nn.Embedding(CHARACTER_IDS, config.characters, padding_idx=0)
        filters = [
            (size, max(1, count * config.filters // 2048)) for size, count in PUBLISHED_FILTERS
        ]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.characters, count, size) for size, count in filters
        )
        total = sum(count for _, count in filters)
        self.highway = nn.ModuleList(Highway(total) for _ in range(config.highway))
        self.projection = nn.Linear(total, config.width)

    def forward(self, ids_BL: Tensor, spelling: Spelling | None = None) -> Tensor:
        """[B, L] -> [B, L, D]. Each distinct word is computed once."""
        characters_PC, index_BL = distinct_words(self.characters_VC, ids_BL, spelling)
        return self.words(characters_PC)[index_BL]

    def words(self, characters_PC: Tensor) -> Tensor:
        """Characters [P, C] of words -> vectors [P, D]."""
        filters = cast("list[nn.Conv1d]", list(self.convolutions))
        widest = max(convolution.kernel_size[0] for convolution in filters)
        characters_PC = F.pad(characters_PC, (0, max(0, widest - characters_PC.shape[1])))
        lengths_P1 = (characters_PC > 0).sum(1, keepdim=True)
        C_PEC = self.embedding(characters_PC).transpose(1, 2)
        maxima = []
        for convolution in filters:
            f_PDC = convolution(C_PEC)
            last_P1 = (lengths_P1 - convolution.kernel_size[0]).clamp(
                min=0
            )  # the last position within the word
            beyond_PC = torch.arange(f_PDC.shape[2], device=f_PDC.device) > last_P1
            maxima.append(f_PDC.masked_fill(beyond_PC[:, None], -torch.inf).amax(2).relu())
        y_PD = torch.cat(maxima, dim=1)
        for highway in self.highway:
            y_PD = highway(y_PD)
        return self.projection(y_PD)


@dataclass(frozen=True)
class BothOutput(Output):
    """Hidden states of the forward direction, which predict the next token, as `hidden_BTD`, and of
    the backward direction, which predict the token before."""

    backward_BLD: Tensor


class ELMo(Contextual):
    """A forward and a backward language model over the same word vectors.

    Peters et al. 2018, sections 3.1 and 3.2:
        p(t_1 ... t_N) = prod_k p(t_k | t_1 ... t_{k-1}; x, forward LSTM, s)        x and s, the word vectors and
        p(t_1 ... t_N) = prod_k p(t_k | t_{k+1} ... t_N; x, backward LSTM, s)       the softmax, are shared
        R_k = {x_k, [forward h_kj ; backward h_kj] | j = 1 ... L}                   layer 0 is [x_k ; x_k]
    """

    config: ELMoConfig

    def __init__(
        self, config: ELMoConfig, vocabulary_size: int, characters_VC: Tensor | None = None
    ) -> None:
        """`characters_VC` spells every token of the vocabulary (text/spelling.py), for `words:
        characters`."""
        super().__init__()
        self.config = config
        self.width = 2 * config.width
        self.depth = config.layers
        if config.words == "tokens":
            self.embedding: CharacterCNN | Embedding = Embedding(vocabulary_size, config.width)
        else:
            assert characters_VC is not None, "the spelling of the vocabulary is missing"
            assert len(characters_VC) == vocabulary_size
            self.embedding = CharacterCNN(config, characters_VC)
        self.forward_layers, self.backward_layers = (
            nn.ModuleList(
                LSTMLayer(
                    config.width, config.hidden, projection=config.width, clip=config.cell_clip
                )
                for _ in range(config.layers)
            )
            for _ in range(2)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.output = Readout(config.width, vocabulary_size, None)

    def forward(self, batch: TextBatch) -> BothOutput:
        _, forward, backward = self._read(batch.text)
        return BothOutput(self.dropout(forward[-1]), self.dropout(backward[-1]))

    def _read(self, text: Padded) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The word vectors, and the states of each layer in each direction, in the order of the
        text."""
        spelling = (text.spelling,) if isinstance(self.embedding, CharacterCNN) else ()
        x_BLD = self.embedding(text.ids_BL, *spelling)
        order_BLD = reversal(text)[..., None].expand_as(x_BLD)  # it is its own inverse
        forward = self._through(self.forward_layers, x_BLD)
        backward = self._through(self.backward_layers, x_BLD.gather(1, order_BLD))
        return x_BLD, forward, [h_BLD.gather(1, order_BLD) for h_BLD in backward]

    def _through(self, layers: nn.ModuleList, x_BLD: Tensor) -> list[Tensor]:
        """The outputs of all layers. Padding is on the right, so it does not reach the state of any
        word."""
        outputs: list[Tensor] = []
        for layer in layers:
            h_BLD, _ = layer(self.dropout(x_BLD))
            x_BLD = h_BLD + x_BLD if outputs else h_BLD
            outputs.append(x_BLD)
        return outputs

    def layers_of(self, batch: TextBatch) -> list[Tensor]:
        x_BLD, forward, backward = self._read(batch.text)
        return [
            torch.cat(pair, dim=-1)
            for pair in zip([x_BLD, *forward], [x_BLD, *backward], strict=True)
        ]
