"""The end-to-end memory network as a language model: several hops of attention over the last words.

Sukhbaatar et al. 2015, arXiv:1503.08895, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.data.batches import Padded, TextBatch
from regard.layers.embeddings import Embedding, Readout
from regard.models.base import LanguageModel, ModelConfig, Output, Presets, real_BL

FIRST_QUERY = 0.1
"""Every number of u^1: there is no question."""
FIRST_DEVIATION = 0.05
"""Standard deviation of the weights before training."""


class MemoryLanguageModelConfig(ModelConfig):
    """End-to-end memory network over the last words (Sukhbaatar 2015, section 5)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"width": 64, "hops": 3, "memory": 50},
        "small": {"width": 150, "hops": 6, "memory": 100},
        "base": {"width": 500, "hops": 7, "memory": 100},
    }
    reads = "text"
    represents = None
    generates = True
    pretraining = "next_token"
    causal = True
    local = True
    layers: ClassVar[int] = 0

    kind: Literal["memory_lm"] = "memory_lm"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it. `small` is the paper's for Penn
    Treebank, `base` that for Text8."""
    vectors: None = None
    """This model does not use word vectors."""
    width: int = Field(150, ge=1)
    """Width d of the embeddings, and of the state u."""
    hops: int = Field(6, ge=1)
    """Hops of attention over the memory (K)."""
    memory: int = Field(100, ge=1)
    """Size of the memory: the last so many tokens, each a memory of its own."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the state before the softmax."""

    @property
    def learning_rate(self) -> float:
        return 5e-3


@dataclass(frozen=True)
class MemoryState:
    """The last tokens of each row, [R, N]; -1 before the beginning of the text."""

    tokens_RN: Tensor
    is_new: bool
    """Whether there was no step yet."""

    def select(self, rows_BW: Tensor) -> MemoryState:
        return replace(self, tokens_RN=self.tokens_RN.index_select(0, rows_BW.flatten()))


class MemoryLanguageModel(LanguageModel):
    """The next word from the last N words x_1 ... x_N, each of which is a memory.

    Sukhbaatar et al. 2015, sections 2 and 5, with hops k = 1 .. K, all with the same weights
    (layer-wise), and T counting from the newest word:

        m_i     = A x_i + T_A(i)
        c_i     = C x_i + T_C(i)
        u^1     = (0.1, ..., 0.1)                        there is no question
        p_i     = softmax_i(u^k . m_i)                   (1)
        o^k     = sum_i p_i c_i                          (2)
        u^{k+1} = r(H u^k + o^k)                         r: ReLU in the first half of the numbers
        a       = softmax(W u^{K+1})                     (3)
    """

    config: MemoryLanguageModelConfig

    def __init__(self, config: MemoryLanguageModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.width = config.width
        self.depth = 0
        self.A = Embedding(vocabulary_size, config.width)
        self.C = Embedding(vocabulary_size, config.width)
        self.T_A_ND = nn.Parameter(torch.empty(config.memory, config.width))
        self.T_C_ND = nn.Parameter(torch.empty(config.memory, config.width))
        self.H = nn.Linear(config.width, config.width, bias=False)
        for weight in (self.A.weight, self.C.weight, self.T_A_ND, self.T_C_ND, self.H.weight):
            nn.init.normal_(weight, std=FIRST_DEVIATION)
        self.dropout = nn.Dropout(config.dropout)
        self.output = Readout(config.width, vocabulary_size, None)

    def forward(self, batch: TextBatch) -> Output:
        inputs = batch.text.inputs
        u_BLD, _ = self.read(inputs.ids_BL, real_BL(inputs), inputs.ids_BL.shape[1])
        return Output(u_BLD)

    def read(self, ids_BL: Tensor, is_real_BL: Tensor, queries: int) -> tuple[Tensor, list[Tensor]]:
        """u^{K+1} after each of the last `queries` words of each text, [B, Q, D], and the p of each
        hop, [B, Q, L]."""
        size = ids_BL.shape[1]
        place_L = torch.arange(size, device=ids_BL.device)
        distance_QL = place_L[size - queries :, None] - place_L
        is_memory_QL = (distance_QL >= 0) & (distance_QL < self.config.memory)
        visible_BQL = is_memory_QL & (is_real_BL[:, None] | (distance_QL == 0))
        distance_BQL = distance_QL.clamp(0, self.config.memory - 1).expand(len(ids_BL), -1, -1)
        A_BLD, C_BLD = self.A(ids_BL), self.C(ids_BL)
        u_BQD = A_BLD.new_full((len(ids_BL), queries, self.width), FIRST_QUERY)
        looks = []
        for _ in range(self.config.hops):
            # u . m_i and sum_i p_i c_i, without a tensor of every memory of every position
            times_BQL = (u_BQD @ self.T_A_ND.T).gather(2, distance_BQL)
            scores_BQL = u_BQD @ A_BLD.mT + times_BQL
            p_BQL = scores_BQL.masked_fill(~visible_BQL, -torch.inf).softmax(-1)
            p_BQN = p_BQL.new_zeros(*p_BQL.shape[:2], self.config.memory)
            p_BQN = p_BQN.scatter_add(2, distance_BQL, p_BQL)
            o_BQD = p_BQL @ C_BLD + p_BQN @ self.T_C_ND
            u_BQD = half_linear(self.H(u_BQD) + o_BQD)
            looks.append(p_BQL)
        return self.dropout(u_BQD), looks

    def layers_of(self, batch: Any) -> list[Tensor]:
        text = batch.text
        u_BLD, _ = self.read(text.ids_BL, real_BL(text), text.ids_BL.shape[1])
        return [u_BLD]

    def begin(self, source: Padded, rows: int, max_length: int) -> MemoryState:
        """Keep the last words of each text."""
        size = self.config.memory
        tokens_BL = source.ids_BL.masked_fill(~real_BL(source), -1)
        filler_BN = tokens_BL.new_full((len(source), size), -1)
        tokens_BL = torch.cat([filler_BN, tokens_BL], 1)
        places_BN = source.lengths_B[:, None] + torch.arange(size, device=tokens_BL.device)
        return MemoryState(tokens_BL.gather(1, places_BN).repeat_interleave(rows, 0), True)

    def step(self, tokens_R: Tensor, state: MemoryState) -> tuple[Tensor, MemoryState]:
        tokens_RN = state.tokens_RN
        if not state.is_new:
            tokens_RN = torch.cat([tokens_RN[:, 1:], tokens_R[:, None]], 1)
        u_R1D, _ = self.read(tokens_RN.clamp(min=0), tokens_RN >= 0, 1)
        return self.readout(u_R1D[:, 0]), MemoryState(tokens_RN, False)


def half_linear(u: Tensor) -> Tensor:
    """ReLU in the first half of the numbers, as section 5 has it; the others stay linear."""
    half = u.shape[-1] // 2
    return torch.cat([u[..., :half].relu(), u[..., half:]], -1)
