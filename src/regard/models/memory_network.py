"""The end-to-end memory network: answers a question by several hops of attention over the sentences
of a story.

Sukhbaatar et al. 2015, arXiv:1503.08895.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.data.batches import StoryBatch
from regard.layers.attention import record
from regard.models.base import ModelConfig, Presets
from regard.text.vocabularies import PAD


class MemoryNetworkConfig(ModelConfig):
    """End-to-end memory network (Sukhbaatar 2015)."""

    PRESETS: ClassVar[Presets] = {"single": {"width": 20}, "joint": {"width": 50}}
    reads = "story"
    attends = True

    kind: Literal["memory_network"]
    """The model: memory_network."""
    preset: Literal["single", "joint"] = "single"
    """The paper's sizes: `single` for one task (width 20), `joint` for many tasks together (width
    50)."""
    vectors: None = None
    """This model does not use word vectors."""
    width: int = Field(20, ge=1)
    """Width d of the embeddings."""
    hops: int = Field(3, ge=1, le=6)
    """Hops of attention over the memory (K)."""
    tie: Literal["adjacent", "layer_wise"] = "adjacent"
    """Weights that the hops share. `adjacent`: A of a hop is C of the hop before, B is the first A,
    W the last C; `layer_wise`: all hops have the same A and C, as in a recurrent network, and H
    between them."""
    words: Literal["bag", "position"] = "position"
    """How word vectors make a sentence vector: their sum, or a sum weighted by position (position
    encoding)."""
    temporal: bool = True
    """Whether a memory encodes how many sentences ago it was (T_A and T_C)."""
    sentences: int = Field(50, ge=1, le=1000)
    """Size of the memory: the last so many sentences of a story; earlier ones are dropped. The
    memories that a short story leaves empty can get attention too."""
    time_noise: float = Field(0.1, ge=0, le=1)
    """Empty memories that training inserts between the sentences, as a share of the sentences: so
    T_A and T_C learn distances that the training stories do not have."""
    linear_start: int = Field(0, ge=0)
    """Epochs at the beginning without the softmax in the hops (linear start)."""
    restarts: int = Field(1, ge=1, le=100)
    """Models that are trained in parallel from different initial weights; validation chooses the
    best."""


@dataclass(frozen=True)
class MemoryOutput:
    """The answers to a batch of questions; I is the axis of restarts."""

    logits_BIV: Tensor  # one score for each word of the vocabulary
    # the attention weight of each sentence in each hop; if a row sums to less than 1, the rest went
    # to empty memories
    p_NBIS: Tensor


class MemoryNetwork(nn.Module):
    """Several hops of attention over the sentences of a story, then an answer of one word.

    Sukhbaatar et al. 2015, sections 2 and 4.1, with hops k = 1 .. K:

        m_i     = sum_j l_j * A^k x_ij + T_A^k(i)        the sentences as keys
        c_i     = sum_j l_j * C^k x_ij + T_C^k(i)        the sentences as values
        u^1     = sum_j l_j * B q_j                      the question
        p_i     = softmax_i(u^k . m_i)                   (1); with linear start u^k . m_i itself
        o^k     = sum_i p_i c_i                          (2)
        u^{k+1} = u^k + o^k   adjacent                   (4)
                = H u^k + o^k   layer-wise
        a       = softmax(W u^{K+1})                     (3)

        l_kj = 2 ((1 - j/J) - (k/d)(1 - 2j/J))           position encoding; 1 for a bag of words

    T counts from the newest sentence. Adjacent tying: A^{k+1} = C^k, B = A^1, W^T = C^K. The middle
    axis I of every parameter is that of the restarts, which are computed in parallel and do not
    affect each other.

    The softmax runs over the whole memory, as in the authors' code: m_i and c_i of empty memories
    are zero, so a hop can attend to nothing. Without this, yes/no questions are hardly learned
    (benchmarks/README.md).
    """

    winner: Tensor  # the restart that validation chose, whose answers are used

    def __init__(self, config: MemoryNetworkConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        size_ID = (config.restarts, config.width)
        hops = range(1, config.hops + 1)
        # The tables of all A and C; one that two hops share is stored and computed once
        self.memory_tables = sorted({self.table_of(letter, hop) for hop in hops for letter in "AC"})
        names = {self.table_of(letter, config.hops) for letter in "BW"}.union(self.memory_tables)
        self.tables = nn.ParameterDict(
            {name: _parameter(vocabulary_size, *size_ID) for name in sorted(names)}
        )
        timed = self.memory_tables if config.temporal else []
        self.times = nn.ParameterDict(
            {name: _parameter(config.sentences, *size_ID) for name in timed}
        )
        self.H_DID = _parameter(config.width, *size_ID) if config.tie == "layer_wise" else None
        self.register_buffer("winner", torch.tensor(0))

    def table_of(self, letter: str, hop: int) -> str:
        """The name of the table with the paper's letter; with tied weights one table has several
        letters."""
        if self.config.tie == "layer_wise":
            return letter
        last = {"A": hop - 1, "B": 0, "C": hop, "W": self.config.hops}[letter]
        return f"C{last}" if last else "A1"

    def forward(self, batch: StoryBatch) -> MemoryOutput:
        present_B1S = (batch.times_BS > 0)[:, None]
        # The distinct sentences and questions of the batch: most sentences occur in many stories
        longest = max(batch.story_BSL.shape[2], batch.question_BL.shape[1])
        texts = batch.story_BSL.flatten(0, 1), batch.question_BL
        rows = torch.cat([F.pad(ids, (0, longest - ids.shape[-1])) for ids in texts])
        words_UL, numbers = torch.unique(rows, dim=0, return_inverse=True)
        story_P, question_B = numbers.split([batch.times_BS.numel(), len(batch.question_BL)])
        story_BS = story_P.view_as(batch.times_BS)
        u_BID = self.sentence_vectors(words_UL, self.table_of("B", 1))[question_B]
        weights = []
        memories = {
            name: self.memory(words_UL, story_BS, batch.times_BS, name)
            for name in self.memory_tables
        }
        for hop in range(1, self.config.hops + 1):
            m_BSID = memories[self.table_of("A", hop)]
            c_BSID = memories[self.table_of("C", hop)]
            scores_BIS = torch.einsum("bid,bsid->bis", u_BID, m_BSID)
            p_BIS = self._weights(scores_BIS, present_B1S, linear=batch.linear)
            # recorded with a hop as a query and a restart as a head
            p_BIS = record(self, p_BIS[:, :, None], present_B1S)[:, :, 0]
            o_BID = torch.einsum("bis,bsid->bid", p_BIS, c_BSID)
            u_BID = o_BID + (
                u_BID if self.H_DID is None else torch.einsum("eid,bid->bie", self.H_DID, u_BID)
            )
            weights.append(p_BIS)
        W_VID = self.tables[self.table_of("W", self.config.hops)]
        return MemoryOutput(torch.einsum("bid,vid->biv", u_BID, W_VID), torch.stack(weights))

    def _weights(self, scores_BIS: Tensor, present_B1S: Tensor, *, linear: bool) -> Tensor:
        """Softmax over the sentences and the empty memories, whose scores are zero; or the scores,
        if `linear`."""
        if linear:
            return scores_BIS.masked_fill(~present_B1S, 0.0)
        empty_B11 = (self.config.sentences - present_B1S.sum(-1, keepdim=True)).clamp(min=0)
        log_empty_BI1 = empty_B11.to(scores_BIS.dtype).log().expand(*scores_BIS.shape[:2], 1)
        scores_BIS = scores_BIS.masked_fill(~present_B1S, -torch.inf)
        return torch.cat([scores_BIS, log_empty_BI1], -1).softmax(-1)[..., :-1]

    @torch.no_grad()
    def clip_gradients(self, limit: float) -> None:
        """Clip the gradient norm of each restart to `limit`, independently of the other
        restarts."""
        gradients = [
            parameter.grad for parameter in self.parameters() if parameter.grad is not None
        ]
        norm_I = (
            torch.stack([gradient.square().sum((0, 2)) for gradient in gradients]).sum(0).sqrt()
        )
        scale_I = (limit / norm_I.clamp(min=1e-12)).clamp(max=1)
        for gradient in gradients:
            gradient.mul_(scale_I[:, None])

    def memory(self, words_UL: Tensor, story_BS: Tensor, times_BS: Tensor, name: str) -> Tensor:
        """m or c: the sentence vectors, plus their times."""
        vectors_UID = self.sentence_vectors(words_UL, name)
        vectors_BSID = F.embedding(story_BS, vectors_UID.flatten(1)).view(
            *story_BS.shape, *vectors_UID.shape[1:]
        )
        if not self.config.temporal:
            return vectors_BSID
        T_SID = self.times[name]
        place_BS = times_BS.clamp(1, self.config.sentences) - 1
        return vectors_BSID + F.embedding(place_BS, T_SID.flatten(1)).view_as(vectors_BSID)

    def sentence_vectors(self, words_UL: Tensor, name: str) -> Tensor:
        """One vector per sentence; padding is the null word, which is zero."""
        table_VID = self.tables[name]
        words_ULID = F.embedding(words_UL, table_VID.flatten(1)).view(
            *words_UL.shape, *table_VID.shape[1:]
        )
        weights_ULD = (words_UL != PAD)[..., None]
        if self.config.words == "position":
            weights_ULD = position_weights(words_UL, self.config.width)
        return (words_ULID * weights_ULD[:, :, None].to(words_ULID.dtype)).sum(1)


def position_weights(ids: Tensor, width: int) -> Tensor:
    """l_kj of each word j of sentences [..., L], for each of the d = `width` coordinates k: [...,
    L, D]; 0 on padding.

    J is the number of words of the sentence. These are the weights of Sukhbaatar et al. 2015,
    section 4.1, times two: their mean is then 1, as in a bag of words. Without the factor word
    order is hardly learned (benchmarks/babi.py).
    """
    real = ids != PAD
    j_L = torch.arange(1, ids.shape[-1] + 1, device=ids.device)
    share = (j_L / real.sum(-1, keepdim=True).clamp(min=1))[..., None]
    k_D = torch.arange(1, width + 1, device=ids.device) / width
    return 2 * ((1 - share) - k_D * (1 - 2 * share)) * real[..., None]


def _parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) * 0.1)  # N(0, 0.1) (section 4.2)
