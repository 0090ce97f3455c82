"""The memory network as a language model: every one of the past words is a memory of its own.

Sukhbaatar et al. 2015, arXiv:1503.08895, section 5. For questions about stories see memory_network.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from regard.data.batch import TextBatch, Tokens
from regard.layers.embeddings import Embedding, Readout
from regard.models.base import ModelConfig, Output, Presets, sources_of
from regard.models.contextual import LanguageModel
from regard.text.vocabularies import PAD

SPREAD = 0.05
"""Standard deviation of the first weights."""
QUERY = 0.1
"""Every number of the first query: there is no question."""


class MemoryLanguageModelConfig(ModelConfig):
    """Memory network over past words (Sukhbaatar 2015)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"width": 64, "hops": 3, "words": 32},
        "base": {"width": 150, "hops": 7, "words": 200},
    }
    kind: Literal["memory_lm"] = "memory_lm"
    preset: Literal["tiny", "base"] = "base"
    """Sizes under one name; any field given beside it wins. `base` is the best of the paper."""
    width: int = Field(150, ge=1)
    """Width d of the embeddings."""
    hops: int = Field(7, ge=1)
    """How often the memory is looked at (K)."""
    words: int = Field(200, ge=1)
    """How many words the memory holds: the last ones. What came before them is forgotten."""


@dataclass(frozen=True)
class MemoryState:
    """The words that each row remembers; before the first step also the hidden state after each beginning."""

    recent_RM: Tensor
    """The newest word last; what is not filled yet stands in front."""
    filled_R: Tensor
    """How many words there are."""
    last_BD: Tensor | None
    sources: int

    def select(self, rows_BW: Tensor) -> MemoryState:
        rows_R, group = rows_BW.flatten(), len(self.filled_R) // self.sources
        last_BD = None if self.last_BD is None else self.last_BD.index_select(0, sources_of(rows_BW, group))
        return MemoryState(self.recent_RM[rows_R], self.filled_R[rows_R], last_BD, len(rows_BW))


class MemoryLanguageModel(LanguageModel):
    """
    Sukhbaatar et al. 2015, section 5, with equations 1 to 3 and layer-wise tying (section 2.2): at each position, over
    the words x_i of the past, i = 1 the newest, and hops k = 1 .. K,
        m_i     = A x_i + T_A(i)
        c_i     = C x_i + T_C(i)
        u^1     = (0.1, ..., 0.1)
        p_i     = softmax_i(u^k . m_i)
        u^{k+1} = f(H u^k + sum_i p_i c_i)          f: ReLU on half of the units, nothing on the others
        P(next) = softmax(W u^{K+1})
    """

    def __init__(self, config: MemoryLanguageModelConfig, vocabulary_size: int) -> None:
        super().__init__()
        self.config, self.width, self.depth = config, config.width, config.hops
        self.A, self.C = (Embedding(vocabulary_size, config.width) for _ in range(2))
        self.T_A, self.T_C = (nn.Embedding(config.words, config.width) for _ in range(2))
        self.H = nn.Linear(config.width, config.width, bias=False)
        self.output = Readout(config.width, vocabulary_size, None, bias=False)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=SPREAD)

    @property
    def embeddings(self) -> dict[str, Embedding]:
        return {"text": self.A}

    def forward(self, batch: TextBatch) -> Output:  # type: ignore[override]
        return Output(self._read(batch.text.ids_BL[:, :-1])[-1])

    def layers_of(self, batch: TextBatch) -> list[Tensor]:
        return [self.A(batch.text.ids_BL), *self._read(batch.text.ids_BL)]

    def readout(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.output(hidden)
        return logits

    def _read(self, ids_BL: Tensor) -> list[Tensor]:
        """u after each hop at each position, which remembers itself and what came before."""
        places_L = torch.arange(ids_BL.shape[1], device=ids_BL.device)
        return self._hops(ids_BL, (places_L[:, None] - places_L + 1)[None])

    def _hops(self, ids_BK: Tensor, ago_BQK: Tensor) -> list[Tensor]:
        """u after each hop, for queries to which word k was heard `ago` words ago: 1 the newest, 0 and less not yet.

        T_A and T_C hang on the query and the word, A and C on the word alone. So the parts are taken one by one
            u . m_i = u . A x_i + u . T_A(i)
        and no memory is ever written out.
        """
        a_BKD, c_BKD = self.A(ids_BK), self.C(ids_BK)
        heard_BQK = (ago_BQK >= 1) & (ago_BQK <= self.config.words)
        time_BQK = (ago_BQK.clamp(1, self.config.words) - 1).expand(len(ids_BK), -1, -1)
        u_BQD = a_BKD.new_full((len(ids_BK), time_BQK.shape[1], self.config.width), QUERY)
        states = []
        for _ in range(self.config.hops):
            scores_BQM = u_BQD @ self.T_A.weight.t()
            scores_BQK = u_BQD @ a_BKD.transpose(1, 2) + scores_BQM.gather(-1, time_BQK)
            p_BQK = scores_BQK.masked_fill(~heard_BQK, -torch.inf).softmax(-1)
            p_BQM = torch.zeros_like(scores_BQM).scatter_add(-1, time_BQK, p_BQK)
            u_BQD = half_relu(self.H(u_BQD) + p_BQK @ c_BKD + p_BQM @ self.T_C.weight)
            states.append(u_BQD)
        return states

    def _newest(self, recent_RM: Tensor, filled_R: Tensor) -> Tensor:
        """The last hop's u after the newest word of each row."""
        ago_M = torch.arange(recent_RM.shape[1], 0, -1, device=recent_RM.device)
        ago_RM = torch.where(ago_M <= filled_R[:, None], ago_M, 0)
        return self._hops(recent_RM, ago_RM[:, None])[-1][:, 0]

    def begin(self, source: Tokens, rows: int, max_length: int) -> MemoryState:
        from_end_M = torch.arange(self.config.words, 0, -1, device=source.ids_BL.device)
        place_BM = source.lengths_B[:, None] - from_end_M
        recent_BM = source.ids_BL.gather(1, place_BM.clamp(min=0)).masked_fill(place_BM < 0, PAD)
        filled_B = source.lengths_B.clamp(max=self.config.words)
        last_BD = self._newest(recent_BM, filled_B)
        return MemoryState(recent_BM.repeat_interleave(rows, 0), filled_B.repeat_interleave(rows), last_BD, len(source))

    def step(self, tokens_R: Tensor, state: MemoryState) -> tuple[Tensor, MemoryState]:
        if state.last_BD is not None:
            logits_RV = self.readout(state.last_BD).repeat_interleave(len(tokens_R) // state.sources, 0)
            return logits_RV, MemoryState(state.recent_RM, state.filled_R, None, state.sources)
        recent_RM = torch.cat([state.recent_RM[:, 1:], tokens_R[:, None]], dim=1)
        filled_R = (state.filled_R + 1).clamp(max=self.config.words)
        return self.readout(self._newest(recent_RM, filled_R)), MemoryState(recent_RM, filled_R, None, state.sources)


def half_relu(x: Tensor) -> Tensor:
    """ReLU on the second half of the last axis (section 5: "to aid training")."""
    linear, rectified = x.tensor_split(2, dim=-1)
    return torch.cat([linear, rectified.relu()], dim=-1)
