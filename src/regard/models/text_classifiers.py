"""Models that are trained from scratch, to compare with pre-trained ones: a bidirectional LSTM and
a CNN over words.

Graves & Schmidhuber 2005, "Framewise phoneme classification with bidirectional LSTM"; with max
pooling as in Conneau et al. 2017, arXiv:1705.02364. Kim 2014, "Convolutional neural networks for
sentence classification", arXiv:1408.5882. Joulin et al. 2017, "Bag of tricks for efficient text
classification", arXiv:1607.01759.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Padded
from regard.layers.embeddings import Embedding
from regard.layers.recurrence import RecurrentEncoder
from regard.models.base import Contextual, ModelConfig, Presets, rate_of_recurrence, real_BL
from regard.models.elmo import CharacterCNN, ELMoConfig
from regard.models.ngrams import NGRAM_LENGTHS


class BiLSTMConfig(ModelConfig):
    """Bidirectional LSTM, from scratch."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"embedding": 64, "hidden": 64, "layers": 1},
        "small": {"embedding": 300, "hidden": 256, "layers": 1},
        "base": {"embedding": 300, "hidden": 512, "layers": 2},
    }
    reads = "text"
    head_defaults: ClassVar[Mapping[str, Any]] = {"dropout": 0.3}

    kind: Literal["bilstm"] = "bilstm"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it."""
    embedding: int = Field(300, ge=1)
    """Width of the token embeddings."""
    hidden: int = Field(256, ge=1)
    """Width of the state of each direction."""
    layers: int = Field(1, ge=1)
    """Recurrent layers."""
    characters: int = Field(0, ge=0)
    """Width of a second vector for each word, from a convolution over its characters, so that words
    outside the vocabulary are read too; for tokenizer.kind: word. 0 has none."""
    dropout: float = Field(0.3, ge=0, lt=1)
    """Dropout on the embeddings and between layers."""

    @property
    def learning_rate(self) -> float:
        return rate_of_recurrence(self.hidden)

    @property
    def letters(self) -> int | None:
        return LONGEST_WORD if self.characters else None


LONGEST_WORD = 50  # characters of a word that are read, with two for its ends


class BiLSTM(Contextual):
    """A bidirectional LSTM over the words of a text.

    h_t = [forward LSTM(h_{t-1}, x_t) ; backward LSTM(h_{t+1}, x_t)]        in each layer

    With `characters`, x_t = [embedding of word t ; convolution over its characters]      Ma & Hovy 2016,
    arXiv:1603.01354, sections 2.1 and 2.3; the convolution is ELMo's.
    """

    def __init__(
        self, config: BiLSTMConfig, vocabulary_size: int, characters_VC: Tensor | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.width = 2 * config.hidden
        self.depth = config.layers
        self.embedding = Embedding(vocabulary_size, config.embedding)
        self.characters = None
        if characters_VC is not None:
            sizes = ELMoConfig(
                filters=max(64, 2 * config.characters), highway=0, width=config.characters
            )
            self.characters = CharacterCNN(sizes, characters_VC)
        self.layers = nn.ModuleList(
            RecurrentEncoder("lstm", width, config.hidden)
            for width in [
                config.embedding + config.characters,
                *[2 * config.hidden] * (config.layers - 1),
            ]
        )
        self.dropout = nn.Dropout(config.dropout)

    def layers_of(self, batch: Any) -> list[Tensor]:
        layers: list[Tensor] = [self.embedding(batch.text.ids_BL)]
        if self.characters is not None:
            layers[0] = torch.cat(
                [layers[0], self.characters(batch.text.ids_BL, batch.text.spelling)], -1
            )
        for layer in self.layers:
            layers.append(layer(self.dropout(layers[-1]), batch.text)[0])
        return layers


class CNNConfig(ModelConfig):
    """Convolutions over words (Kim 2014), from scratch."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"embedding": 64, "maps": 32},
        "small": {"embedding": 128, "maps": 64},
        "base": {"embedding": 300, "maps": 100},
    }
    reads = "text"
    head_defaults: ClassVar[Mapping[str, Any]] = {"dropout": 0.5}
    local = True
    layers: ClassVar[int] = 1

    kind: Literal["cnn"] = "cnn"
    preset: Literal["tiny", "small", "base"] = "base"
    """A named set of sizes; any field given in the recipe overrides it. `base` is the paper's."""
    embedding: int = Field(300, ge=1)
    """Width of the token embeddings."""
    widths: list[int] = Field([3, 4, 5], min_length=1)
    """Filter widths in tokens."""
    maps: int = Field(100, ge=1)
    """Filters of each width."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the embeddings; the paper's 0.5 is before the last layer: head.dropout."""
    ngrams: int = Field(0, ge=0)
    """Rows of a table of n-gram vectors, which are summed in addition to the filters, as in
    fastText. N-grams have one to three tokens and share rows by their hash. 0 has no table."""

    @property
    def learning_rate(self) -> float:
        return 3e-3


NGRAM_WIDTH = 8  # of its vector


class CNN(Contextual):
    """Filters over a few neighbouring words.

    Kim 2014, equations 2 to 4, for a filter w over h words from word i on:
        c_i = relu(w . x_{i:i+h-1} + b)
        c^  = max_i c_i                                 over all i within the text: the head's `pooling: max`

    The vector of token i has c_i of every filter; it is zero, the smallest c_i, where the filter
    would extend beyond the end. A text shorter than a filter is padded with zeros.

    With `by_token` the head answers for each token: without a maximum over time, and with the
    filter centred on its token:
        c_i = relu(w . x_{i-(h-1)/2 : i+h/2} + b)       Collobert et al. 2011, section 3.2.1, the window approach
    Before the first and after the last token it reads zeros; the paper learns a padding vector.

    With `ngrams`, every vector ends with g, a bag of all K n-grams of the text, which any pooling
    keeps unchanged:
        g = sum_k a_k / sqrt(K)                         Joulin et al. 2017, figure 1 and section 2.2: hashed n-grams
    There it is the mean, and the whole model. The table a is zero at first: n-grams never seen in
    training add nothing.
    """

    config: CNNConfig

    def __init__(self, config: CNNConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.width = config.maps * len(config.widths)
        self.depth = 1
        self.embedding = Embedding(vocabulary_size, config.embedding)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.embedding, config.maps, h) for h in config.widths
        )
        self.dropout = nn.Dropout(config.dropout)
        self.ngrams = nn.Embedding(config.ngrams, NGRAM_WIDTH) if config.ngrams else None
        if self.ngrams is not None:
            nn.init.zeros_(self.ngrams.weight)
            self.width += NGRAM_WIDTH

    def layers_of(self, batch: Any) -> list[Tensor]:
        text = batch.text
        place_L = torch.arange(batch.text.ids_BL.shape[1], device=batch.text.ids_BL.device)
        x_BLD = self.dropout(self.embedding(text.ids_BL))
        x_BDL = (x_BLD * real_BL(text)[..., None]).transpose(1, 2)
        maps = []
        for convolution, h in zip(self.convolutions, self.config.widths, strict=True):
            before = (h - 1) // 2 if self.by_token else 0
            c_BDL = convolution(F.pad(x_BDL, (before, h - 1 - before))).relu()
            last_B1 = (text.lengths_B[:, None] - h).clamp(min=0)
            maps.append(c_BDL if self.by_token else c_BDL * (place_L <= last_B1)[:, None])
        if self.ngrams is not None:
            maps.append(bag_of(text, self.ngrams)[..., None].expand(-1, -1, len(place_L)))
        return [x_BLD, torch.cat(maps, dim=1).transpose(1, 2)]


def bag_of(text: Padded, table: nn.Embedding) -> Tensor:
    """The sum of the vectors of a text's n-grams over the root of their number: [B, D].

    The hash of an n-gram: key = (key * 1000003 + token) mod (2**31 - 1), from n on, then modulo the
    rows of the table.
    """
    place_L = torch.arange(text.ids_BL.shape[1], device=text.ids_BL.device)
    keys = []
    whole = []
    for n in NGRAM_LENGTHS:
        key_BL = torch.full_like(text.ids_BL, n)
        for offset in range(n):
            key_BL = (key_BL * 1_000_003 + F.pad(text.ids_BL, (0, offset))[:, offset:]) % (
                2**31 - 1
            )
        keys.append(key_BL % table.num_embeddings)
        whole.append(place_L <= text.lengths_B[:, None] - n)
    whole_BK = torch.cat(whole, dim=1)
    a_BKD: Tensor = table(torch.cat(keys, dim=1)) * whole_BK[..., None]
    return a_BKD.sum(1) / whole_BK.sum(1, keepdim=True).sqrt()
