"""The end-to-end memory network: a question hops through the sentences of a story to its answer.

Sukhbaatar et al. 2015, arXiv:1503.08895.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.data.batch import StoryBatch
from regard.models.base import ModelConfig
from regard.text.vocabularies import PAD

SPREAD = 0.1
"""Standard deviation of all first weights (section 4.2)."""


class MemoryNetworkConfig(ModelConfig):
    """The recipe's section `model` for `kind: memory_network`."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {"single": {"width": 20}, "joint": {"width": 50}}

    kind: Literal["memory_network"]
    """The model: memory_network."""
    preset: Literal["single", "joint"] = "single"
    """The paper's sizes: `single` for one task (width 20), `joint` for many tasks at once (width 50)."""
    vectors: None = None
    """This model begins without word vectors."""
    width: int = Field(20, ge=1)
    """Width d of the embeddings."""
    hops: int = Field(3, ge=1, le=6)
    """How often the memory is looked at (K)."""
    tie: Literal["adjacent", "layer_wise"] = "adjacent"
    """What the hops share. `adjacent`: A of a hop is C of the one before, B is the first A, W the last C; `layer_wise`:
    all hops have the same A and C, as a recurrent network has, and H between them."""
    words: Literal["bag", "position"] = "position"
    """How words make a sentence: their sum, or a sum weighted by where they stand (position encoding)."""
    temporal: bool = True
    """Whether a memory tells how long ago its sentence was (T_A and T_C)."""
    sentences: int = Field(50, ge=1, le=1000)
    """How many sentences the memory holds: the last ones of a story. What came before them is forgotten, and memories
    that a short story leaves empty may be looked at too."""
    longest_story: int = Field(1000, ge=1)
    """Most sentences of a story that a question may be asked about, though only the last `sentences` are remembered: a
    longer one is taken for a mistake. It may be raised for a trained run, too."""
    time_noise: float = Field(0.1, ge=0, le=1)
    """Empty memories that training puts between the sentences, as a share of these: so that T_A and T_C learn times
    that stories of the training data do not have."""
    linear_start: int = Field(0, ge=0)
    """Epochs at the beginning in which the hops have no softmax (linear start)."""
    restarts: int = Field(1, ge=1, le=100)
    """Trainings side by side, each from first weights of its own; validation chooses among them."""


@dataclass(frozen=True)
class Answered:
    """What the model makes of questions; I counts the restarts."""

    logits_BIV: Tensor
    """One score for each word that might be the answer."""
    p_NBIS: Tensor
    """How much each hop looked at each sentence; what is missing to 1, it looked at empty memories."""


class MemoryNetwork(nn.Module):
    """Sections 2 and 4.1 of the paper, with hops k = 1 .. K:

        m_i     = sum_j l_j * A^k x_ij + T_A^k(i)        the sentences as they are addressed
        c_i     = sum_j l_j * C^k x_ij + T_C^k(i)        the sentences as they are read
        u^1     = sum_j l_j * B q_j                      the question
        p_i     = softmax_i(u^k . m_i)                   (1); with linear start u^k . m_i itself
        o^k     = sum_i p_i c_i                          (2)
        u^{k+1} = u^k + o^k   adjacent                   (4)
                = H u^k + o^k   layer-wise
        a       = softmax(W u^{K+1})                     (3)

        l_kj = 2 ((1 - j/J) - (k/d)(1 - 2j/J))           position encoding; 1 for a bag of words

    T counts from the newest sentence. Adjacent tying: A^{k+1} = C^k, B = A^1, W^T = C^K. The middle axis I of
    every parameter counts restarts, which are computed side by side and never meet.

    The softmax runs over the whole memory, as in the authors' program: where a story does not fill it, m_i and c_i are
    zero, so that a hop may look at nothing. Without this choice questions of yes or no are hardly learned
    (benchmarks/README.md).
    """

    winner: Tensor
    """The restart that validation chose: the one that answers."""

    def __init__(self, config: MemoryNetworkConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        size_ID = (config.restarts, config.width)
        hops = range(1, config.hops + 1)
        # The tables of all A and C: one that two hops share is there, and is looked up, once
        self.remembering = sorted({self.table_of(letter, hop) for hop in hops for letter in "AC"})
        names = {self.table_of(letter, config.hops) for letter in "BW"}.union(self.remembering)
        self.tables = nn.ParameterDict({name: _drawn(vocabulary_size, *size_ID) for name in sorted(names)})
        timed = self.remembering if config.temporal else []
        self.times = nn.ParameterDict({name: _drawn(config.sentences, *size_ID) for name in timed})
        self.H_DID = _drawn(config.width, *size_ID) if config.tie == "layer_wise" else None
        self.register_buffer("winner", torch.tensor(0))

    def table_of(self, letter: str, hop: int) -> str:
        """Which table stands for the paper's letter: under tying, one table has several letters."""
        if self.config.tie == "layer_wise":
            return letter
        last = {"A": hop - 1, "B": 0, "C": hop, "W": self.config.hops}[letter]
        return f"C{last}" if last else "A1"

    def forward(self, batch: StoryBatch) -> Answered:
        told_B1S = (batch.times_BS > 0)[:, None]
        words_UL, story_BS, question_B = _distinct(batch)
        u_BID = self._said(words_UL, self.table_of("B", 1))[question_B]
        weights = []
        memories = {name: self._memory(words_UL, story_BS, batch.times_BS, name) for name in self.remembering}
        for hop in range(1, self.config.hops + 1):
            m_BSID, c_BSID = memories[self.table_of("A", hop)], memories[self.table_of("C", hop)]
            scores_BIS = torch.einsum("bid,bsid->bis", u_BID, m_BSID)
            p_BIS = scores_BIS.masked_fill(~told_B1S, 0.0) if batch.linear else self._looks(scores_BIS, told_B1S)
            o_BID = torch.einsum("bis,bsid->bid", p_BIS, c_BSID)
            u_BID = o_BID + (u_BID if self.H_DID is None else torch.einsum("eid,bid->bie", self.H_DID, u_BID))
            weights.append(p_BIS)
        W_VID = self.tables[self.table_of("W", self.config.hops)]
        return Answered(torch.einsum("bid,vid->biv", u_BID, W_VID), torch.stack(weights))

    def _looks(self, scores_BIS: Tensor, told_B1S: Tensor) -> Tensor:
        """Softmax over the sentences and the memories that are left empty, whose scores are zero."""
        empty_B11 = (self.config.sentences - told_B1S.sum(-1, keepdim=True)).clamp(min=0)
        nothing_BI1 = empty_B11.to(scores_BIS.dtype).log().expand(*scores_BIS.shape[:2], 1)
        scores_BIS = scores_BIS.masked_fill(~told_B1S, -torch.inf)
        return torch.cat([scores_BIS, nothing_BI1], -1).softmax(-1)[..., :-1]

    @torch.no_grad()
    def clip_gradients(self, limit: float) -> None:
        """Shorten the gradient of each restart to `limit` by itself: none is held back by another's."""
        gradients = [parameter.grad for parameter in self.parameters() if parameter.grad is not None]
        norm_I = torch.stack([gradient.square().sum((0, 2)) for gradient in gradients]).sum(0).sqrt()
        scale_I = (limit / norm_I.clamp(min=1e-12)).clamp(max=1)
        for gradient in gradients:
            gradient.mul_(scale_I[:, None])

    def _memory(self, words_UL: Tensor, story_BS: Tensor, times_BS: Tensor, name: str) -> Tensor:
        """m or c: what each sentence says, and when."""
        said_UID = self._said(words_UL, name)
        said_BSID = F.embedding(story_BS, said_UID.flatten(1)).view(*story_BS.shape, *said_UID.shape[1:])
        if not self.config.temporal:
            return said_BSID
        T_SID = self.times[name]
        place_BS = times_BS.clamp(1, self.config.sentences) - 1
        return said_BSID + F.embedding(place_BS, T_SID.flatten(1)).view_as(said_BSID)

    def _said(self, words_UL: Tensor, name: str) -> Tensor:
        """The words of sentences as one vector each; padding is the null word, which is zero."""
        table_VID = self.tables[name]
        words_ULID = F.embedding(words_UL, table_VID.flatten(1)).view(*words_UL.shape, *table_VID.shape[1:])
        weights_ULD = (words_UL != PAD)[..., None]
        if self.config.words == "position":
            weights_ULD = position_weights(words_UL, self.config.width)
        return (words_ULID * weights_ULD[:, :, None].to(words_ULID.dtype)).sum(1)


def _distinct(batch: StoryBatch) -> tuple[Tensor, Tensor, Tensor]:
    """The sentences and questions of a batch, each once, and which of them stands where: most stand in many stories."""
    longest = max(batch.story_BSL.shape[2], batch.question_BL.shape[1])
    story_BSL, question_BL = (F.pad(ids, (0, longest - ids.shape[-1])) for ids in (batch.story_BSL, batch.question_BL))
    rows = torch.cat([story_BSL.flatten(0, 1), question_BL])
    words_UL, numbers = torch.unique(rows, dim=0, return_inverse=True)
    return words_UL, numbers[: -len(question_BL)].view(batch.times_BS.shape), numbers[-len(question_BL) :]


def position_weights(ids: Tensor, width: int) -> Tensor:
    """l_kj of each word j of sentences [..., L], for each of the d = `width` coordinates k: [..., L, D]; 0 on padding.

    J counts the words of the sentence itself. Sukhbaatar et al. 2015, section 4.1, twice: so the weights are 1 in the
    mean, as in a bag of words. As printed, half of it, they hardly learn from the order of words (benchmarks/babi.py).
    """
    real = ids != PAD
    j_L = torch.arange(1, ids.shape[-1] + 1, device=ids.device)
    share = (j_L / real.sum(-1, keepdim=True).clamp(min=1))[..., None]
    k_D = torch.arange(1, width + 1, device=ids.device) / width
    return 2 * ((1 - share) - k_D * (1 - 2 * share)) * real[..., None]


def _drawn(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape) * SPREAD)
