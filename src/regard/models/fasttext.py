"""Bojanowski et al. 2017, "Enriching word vectors with subword information", arXiv:1607.04606:
fastText."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batches import Spelling, TextBatch
from regard.layers.embeddings import Embedding
from regard.models.base import Contextual, Output, Presets
from regard.models.elmo import distinct_words
from regard.models.word2vec import WindowConfig, output_vectors
from regard.text.spelling import WORD_BEGINS, WORD_ENDS
from regard.text.vocabularies import MARK

FNV_OFFSET = 2166136261
FNV_PRIME = 16777619
FNV_MODULUS = 2**32
BYTES_PER_CHARACTER = 4  # at most, in UTF-8
WORDS_AT_A_TIME = 1024
"""Words whose n-grams are found together: the tables in between are much larger than the result."""


class FastTextConfig(WindowConfig):
    """Static word vectors from the n-grams of a word's characters (Bojanowski 2017)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"width": 64, "buckets": 5_000},
        "small": {"width": 100, "buckets": 20_000},
        "base": {"width": 300, "buckets": 2_000_000},
    }

    kind: Literal["fasttext"] = "fasttext"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it. `base` is the paper's."""
    shortest: int = Field(3, ge=1)
    """Characters of the shortest n-grams. 1 suits Korean, where a syllable is a character."""
    longest: int = Field(6, ge=1)
    """Characters of the longest n-grams."""
    buckets: int = Field(20_000, ge=1)
    """Vectors of n-grams. N-grams with the same hash share one."""
    longest_word: int = Field(64, ge=3)
    """Bytes of UTF-8 of a word that are read, including two markers for its ends."""

    @property
    def letters(self) -> int | None:
        return self.longest_word

    @model_validator(mode="after")
    def _shortest_first(self) -> Self:
        if self.shortest > self.longest:
            raise ValueError(
                f"the shortest n-grams have {self.shortest} characters, the longest {self.longest}"
            )
        return self


def subword_hashes(characters_PC: Tensor, shortest: int, longest: int) -> Tensor:
    """The hashes of the n-grams of characters of each word, [P, G]; -1 where there is none.

    A word stands between < and >, and an n-gram is hashed by its bytes, from 2166136261 on (FNV-1a,
    32 bits, as in the paper, section 3.2):
        key = ((key xor byte) * 16777619) mod 2^32
    A marker alone is not an n-gram.
    """
    bytes_PC = without_mark(characters_PC) - 1
    is_word_PC = bytes_PC >= 0
    bytes_PC = torch.where(bytes_PC == WORD_BEGINS - 1, ord("<"), bytes_PC)
    bytes_PC = torch.where(bytes_PC == WORD_ENDS - 1, ord(">"), bytes_PC)
    starts_PC = is_word_PC & (bytes_PC & 0xC0 != 0x80)  # not inside of a character
    size = bytes_PC.shape[1]
    steps = longest * BYTES_PER_CHARACTER
    bytes_PC = F.pad(bytes_PC, (0, steps))
    ends_PC = F.pad(~is_word_PC | starts_PC, (0, steps + 1), value=True)  # before this byte
    starts_in_PC = F.pad(starts_PC, (0, steps))
    inside_PC = F.pad(is_word_PC, (0, steps))
    key_PC = torch.full_like(bytes_PC[:, :size], FNV_OFFSET)
    count_PC = torch.zeros_like(key_PC)
    found = []
    for step in range(steps):
        window = slice(step, step + size)
        key_PC = ((key_PC ^ bytes_PC[:, window]) * FNV_PRIME) % FNV_MODULUS
        count_PC = count_PC + starts_in_PC[:, window]
        is_gram_PC = (
            starts_PC
            & inside_PC[:, window]
            & ends_PC[:, step + 1 : step + 1 + size]
            & (count_PC >= shortest)
            & (count_PC <= longest)
        )
        if step == 0:  # not < or > alone
            is_gram_PC = is_gram_PC & (bytes_PC[:, :size] != ord("<"))
            is_gram_PC = is_gram_PC & (bytes_PC[:, :size] != ord(">"))
        found.append(torch.where(is_gram_PC, key_PC, -1))
    keys_PG = torch.cat(found, 1).sort(1, descending=True).values
    return keys_PG[:, : max(1, int((keys_PG >= 0).sum(1).max()))] if len(keys_PG) else keys_PG


def without_mark(characters_PC: Tensor) -> Tensor:
    """The characters of words without `▁`, the mark of the space before a word."""
    mark = [1 + byte for byte in MARK.encode()]
    size = len(mark)
    if characters_PC.shape[1] <= size:
        return characters_PC
    begins_P = (characters_PC[:, 1 : 1 + size] == characters_PC.new_tensor(mark)).all(1)
    shifted_PC = torch.cat(
        [characters_PC[:, :1], F.pad(characters_PC[:, 1 + size :], (0, size))], 1
    )
    return torch.where(begins_P[:, None], shifted_PC, characters_PC)


class SubwordEmbedding(nn.Module):
    """The vector of a word: the mean of its own vector and of those of its n-grams.

    Bojanowski et al. 2017, section 3.2, with G_w the n-grams of w and w itself:
        s(w, c) = sum_{g in G_w} z_g . v_c
    The published code divides the sum by |G_w|, and so does this. A word outside the vocabulary has
    its n-grams alone.
    """

    rows_VG: Tensor

    def __init__(self, config: FastTextConfig, characters_VC: Tensor) -> None:
        super().__init__()
        self.config = config
        self.words = Embedding(len(characters_VC), config.width)
        self.grams = nn.Parameter(torch.zeros(1 + config.buckets, config.width))  # row 0: none
        self.register_buffer("rows_VG", self.rows(characters_VC), persistent=False)

    def rows(self, characters_PC: Tensor) -> Tensor:
        """The rows of `grams` of each word, [P, G]; 0 where there is none."""
        config = self.config
        if characters_PC.is_meta:  # a model without weights, whose parameters are counted
            return characters_PC[:, :1]
        parts = [
            subword_hashes(part_PC, config.shortest, config.longest)
            for part_PC in torch.split(characters_PC, WORDS_AT_A_TIME)
        ]
        size = max((part_PG.shape[1] for part_PG in parts), default=0)
        keys_PG = torch.cat(
            [F.pad(part_PG, (0, size - part_PG.shape[1]), value=-1) for part_PG in parts]
        )
        return torch.where(keys_PG >= 0, 1 + keys_PG % config.buckets, 0)

    def forward(self, ids_BL: Tensor, spelling: Spelling | None = None) -> Tensor:
        """[B, L] -> [B, L, D]. Each distinct word is computed once."""
        is_known_BL = torch.ones_like(ids_BL, dtype=torch.bool)
        if spelling is not None:
            is_known_BL = spelling.numbers_BL == 0
            spelling = replace(spelling, characters_PC=self.rows(spelling.characters_PC))
        rows_PG, index_BL = distinct_words(self.rows_VG, ids_BL, spelling)
        sum_PD = F.embedding_bag(rows_PG, self.grams, mode="sum", padding_idx=0)
        own_BLD = self.words(ids_BL) * is_known_BL[..., None]
        count_BL = (rows_PG > 0).sum(1)[index_BL] + is_known_BL
        return (own_BLD + sum_PD[index_BL]) / count_BL.clamp(min=1)[..., None]


class FastText(Contextual):
    """word2vec whose word vectors are made of the vectors of n-grams: words that are spelt alike are
    near each other, and every word has a vector."""

    config: FastTextConfig

    def __init__(self, config: FastTextConfig, vocabulary_size: int, characters_VC: Tensor) -> None:
        """`characters_VC` spells every token of the vocabulary (text/spelling.py)."""
        super().__init__()
        self.config = config
        self.width = config.width
        self.depth = 0
        self.embedding = SubwordEmbedding(config, characters_VC)
        self.output = output_vectors(config, vocabulary_size)

    def forward(self, batch: TextBatch) -> Output:
        return Output(self.states(batch))

    def layers_of(self, batch: Any) -> list[Tensor]:
        return [self.embedding(batch.text.ids_BL, batch.text.spelling)]
