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

from regard.data.batch import PAD, StoryBatch
from regard.models.base import ModelConfig

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
    """How many sentences the memory holds: the last ones of a story. What came before them is forgotten."""
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
    """How much each hop looked at each sentence."""


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
    """

    winner: Tensor
    """The restart that validation chose: the one that answers."""

    def __init__(self, config: MemoryNetworkConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        size_ID = (config.restarts, config.width)
        hops = range(1, config.hops + 1)
        # The tables of all A and C: one that two hops share is there, and is looked up, once
        self.remembering = sorted({self._name(letter, hop) for hop in hops for letter in "AC"})
        names = {self._name(letter, config.hops) for letter in "BW"}.union(self.remembering)
        self.tables = nn.ParameterDict({name: _drawn(vocabulary_size, *size_ID) for name in sorted(names)})
        timed = self.remembering if config.temporal else []
        self.times = nn.ParameterDict({name: _drawn(config.sentences, *size_ID) for name in timed})
        self.H_DID = _drawn(config.width, *size_ID) if config.tie == "layer_wise" else None
        self.register_buffer("winner", torch.tensor(0))

    def _name(self, letter: str, hop: int) -> str:
        """Which table stands for the paper's letter: under tying, one table has several letters."""
        if self.config.tie == "layer_wise":
            return letter
        last = {"A": hop - 1, "B": 0, "C": hop, "W": self.config.hops}[letter]
        return f"C{last}" if last else "A1"

    def forward(self, batch: StoryBatch) -> Answered:
        visible_B1S = (batch.times_BS > 0)[:, None]
        u_BID = self._sentence(batch.question_BL, self._name("B", 1))
        weights = []
        memories = {name: self._memory(batch, name) for name in self.remembering}
        for hop in range(1, self.config.hops + 1):
            m_BSID, c_BSID = memories[self._name("A", hop)], memories[self._name("C", hop)]
            scores_BIS = torch.einsum("bid,bsid->bis", u_BID, m_BSID)
            if batch.linear:
                p_BIS = scores_BIS.masked_fill(~visible_B1S, 0.0)
            else:
                p_BIS = scores_BIS.masked_fill(~visible_B1S, -torch.inf).softmax(-1)
            o_BID = torch.einsum("bis,bsid->bid", p_BIS, c_BSID)
            u_BID = o_BID + (u_BID if self.H_DID is None else torch.einsum("eid,bid->bie", self.H_DID, u_BID))
            weights.append(p_BIS)
        W_VID = self.tables[self._name("W", self.config.hops)]
        return Answered(torch.einsum("bid,vid->biv", u_BID, W_VID), torch.stack(weights))

    @torch.no_grad()
    def clip_gradients(self, limit: float) -> None:
        """Shorten the gradient of each restart to `limit` by itself: none is held back by another's."""
        gradients = [parameter.grad for parameter in self.parameters() if parameter.grad is not None]
        norm_I = torch.stack([gradient.square().sum((0, 2)) for gradient in gradients]).sum(0).sqrt()
        scale_I = (limit / norm_I.clamp(min=1e-12)).clamp(max=1)
        for gradient in gradients:
            gradient.mul_(scale_I[:, None])

    def _memory(self, batch: StoryBatch, name: str) -> Tensor:
        """m or c: what each sentence says, and when."""
        said_BSID = self._sentence(batch.story_BSL, name)
        if not self.config.temporal:
            return said_BSID
        T_SID = self.times[name]
        place_BS = batch.times_BS.clamp(1, self.config.sentences) - 1
        return said_BSID + F.embedding(place_BS, T_SID.flatten(1)).view_as(said_BSID)

    def _sentence(self, ids: Tensor, name: str) -> Tensor:
        """The words of sentences [..., L] as one vector each, [..., I, D]; padding is the null word, which is zero."""
        table_VID = self.tables[name]
        words = F.embedding(ids, table_VID.flatten(1)).view(*ids.shape, *table_VID.shape[1:])
        weights = (ids != PAD)[..., None]
        if self.config.words == "position":
            weights = position_weights(ids, self.config.width)
        return (words * weights[..., None, :].to(words.dtype)).sum(-3)


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
