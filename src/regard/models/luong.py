"""Luong et al. 2015, "Effective approaches to attention-based neural machine translation",
arXiv:1508.04025."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.data.batches import Batch, Padded
from regard.errors import ConfigError
from regard.layers.embeddings import Readout, Tie
from regard.layers.linear import Linear
from regard.layers.recurrence import (
    Carry,
    FedCells,
    as_carry,
    as_torch,
    recurrent_layers,
    word_gates,
)
from regard.layers.scores import (
    ConcatAttention,
    DotAttention,
    Focus,
    GeneralAttention,
    Memory,
    ScoredAttention,
)
from regard.models.base import Output, Presets, RecurrentConfig, RecurrentGenerator, RecurrentState


class LuongConfig(RecurrentConfig):
    """RNN that attends to the source after its recurrent step (Luong 2015)."""

    PRESETS: ClassVar[Presets] = {
        "tiny": {"embedding": 128, "hidden": 128, "attention": 128, "layers": 1},
        "small": {"embedding": 512, "hidden": 512, "attention": 512, "layers": 1},
        "base": {"embedding": 1000, "hidden": 1000, "attention": 1000, "layers": 4},
    }
    alignment = "attention"

    kind: Literal["luong"] = "luong"
    preset: Literal["tiny", "small", "base"] = "small"
    """A named set of sizes; any field given in the recipe overrides it. `base` is the paper's."""
    embedding: int = Field(512, ge=1)
    """Width of the token embeddings, and of the attentional state that the readout reads: tanh
    keeps its values small, so a width far below `hidden` learns badly."""
    layers: int = Field(1, ge=1)
    """Recurrent layers on each side."""
    bidirectional: bool = False
    """Whether the encoder also reads from right to left."""
    score: Literal["dot", "general", "concat", "scaled_dot"] = "general"
    """How a decoder state h_t is scored against an encoder state h_s: h_t . h_s, h_t . W_a h_s, v_a
    . tanh(W_a [h_t ; h_s]), or h_t . h_s / sqrt(width). `dot` and `scaled_dot` need an encoder that
    reads in one direction."""
    attention: int = Field(512, ge=1)
    """Width of the attention's hidden layer, with `score: concat`."""
    reach: Literal["global", "local_m", "local_p"] = "global"
    """Which part of the source is attended to: all of it, a window that moves along with the target
    (local-m), or a window around a position that the model predicts, with smaller weights towards
    its edges (local-p)."""
    window: int = Field(10, ge=1)
    """D: the positions on each side of its centre that a local window includes."""
    input_feeding: bool = True
    """Whether the decoder also reads the attentional state of the step before. Without it the
    decoder's states do not depend on the attention, and training computes all steps in one call."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on embeddings, between layers and before the readout."""
    tie: Tie = "none"
    """Shared embeddings: of target and readout, or of both sides and the readout (one
    vocabulary)."""

    @property
    def loops(self) -> bool:
        return self.input_feeding

    @model_validator(mode="after")
    def _products_of_equal_width(self) -> LuongConfig:
        if self.bidirectional and self.score in ("dot", "scaled_dot"):
            raise ValueError(
                f"score: {self.score} multiplies states of equal width, but a bidirectional "
                "encoder's are twice "
                "as wide as the decoder's (allowed with it: general, concat; or set bidirectional: "
                "false)"
            )
        return self

    def check_data(self, longest_source: int, longest_target: int = 0) -> None:
        """A window that always covers the whole source is not local: this must be a mistake."""
        if self.reach == "global" or self.window < longest_source - 1:
            return
        raise ConfigError(
            f"{self.window} positions on each side cover every source: the longest has "
            f"{longest_source} tokens",
            where="model.window",
            hint=f"at most {longest_source - 2}, or model.reach=global"
            if longest_source > 2
            else "model.reach=global",
        )


class MonotonicWindow(nn.Module):
    """A window around the source position with the same number as the target position.

    Luong et al. 2015, section 3.2, local-m:
        p_t = t                       window [p_t - D, p_t + D]

    A target may be longer than its source: then the window stays at the end, with the last source
    position in it.
    """

    def __init__(self, reach: int) -> None:
        super().__init__()
        self.D = reach

    def forward(self, h_BQD: Tensor, t_Q: Tensor, memory: Memory) -> Focus:
        p_BQ = torch.minimum(t_Q, memory.lengths_B[:, None] - 1 + self.D)
        return Focus(offsets_from(p_BQ, memory).abs() <= self.D)


class PredictiveWindow(nn.Module):
    """A window around a source position that is predicted from the decoder state.

    Luong et al. 2015, section 3.2, local-p, equations 9 and 10, with source positions s = 0, ..., S
    - 1:
        p_t    = S sigmoid(v_p . tanh(W_p h_t))                                window [p_t - D, p_t + D]
        a_t(s) = align(h_t, h_s) exp(-(s - p_t)^2 / (2 sigma^2))               sigma = D / 2

    So the weights of a query sum to less than 1.
    """

    def __init__(self, width: int, reach: int) -> None:
        super().__init__()
        self.D = reach
        self.W_p = Linear(width, width, bias=False)
        self.v_p = Linear(width, 1, bias=False)

    def forward(self, h_BQD: Tensor, t_Q: Tensor, memory: Memory) -> Focus:
        place_BQ = self.v_p(torch.tanh(self.W_p(h_BQD))).squeeze(-1)
        # In half precision neighbouring positions of a long source would have the same number.
        place_BQ = place_BQ.to(torch.promote_types(place_BQ.dtype, torch.float32))
        distance_BQS = offsets_from(memory.lengths_B[:, None] * torch.sigmoid(place_BQ), memory)
        sigma = self.D / 2
        return Focus(distance_BQS.abs() <= self.D, torch.exp(-(distance_BQS**2) / (2 * sigma**2)))


def offsets_from(p_BQ: Tensor, memory: Memory) -> Tensor:
    """s - p_t for every source position s."""
    s_S = torch.arange(memory.h_BSD.shape[1], device=p_BQ.device)
    return s_S - p_BQ[:, :, None]


SCORES: dict[str, Callable[[LuongConfig, int], ScoredAttention]] = {
    "dot": lambda config, width: DotAttention(),
    "scaled_dot": lambda config, width: DotAttention(scaled=True),
    "general": lambda config, width: GeneralAttention(config.hidden, width),
    "concat": lambda config, width: ConcatAttention(config.hidden, width, config.attention),
}
"""`model.score` -> attention over encoder states of this width."""
WINDOWS: dict[str, Callable[[LuongConfig], nn.Module | None]] = {
    "global": lambda config: None,
    "local_m": lambda config: MonotonicWindow(config.window),
    "local_p": lambda config: PredictiveWindow(config.hidden, config.window),
}
"""`model.reach` -> the window on the source."""


@dataclass(frozen=True)
class LuongState(RecurrentState[Memory]):
    """A recurrent state with the last attentional state per row and the number of tokens so far."""

    fed_RD: Tensor
    written: int = 0

    def select(self, rows_BW: Tensor) -> LuongState:
        return replace(
            super().select(rows_BW), fed_RD=self.fed_RD.index_select(0, rows_BW.flatten())
        )


class Luong(RecurrentGenerator):
    """An RNN decoder that attends to the source after each step.

    Luong et al. 2015, section 3, equations 5 and 6; input feeding is section 3.3:
        h_t  = f(h_{t-1}, y_{t-1} [, h~_{t-1}])
        c_t  = sum_s a_t(s) h_s                           the attention's query is h_t
        h~_t = tanh(W_c [c_t ; h_t])
        p(y_t | y_<t, x) = softmax(W_s h~_t)

    The paper copies the encoder's last state into the decoder; a bridge here also works with two
    directions.
    """

    config: LuongConfig

    def __init__(self, config: LuongConfig, source_size: int, target_size: int) -> None:
        super().__init__(config, source_size, target_size)
        memory_width = self.encoder.width
        decoder = FedCells if config.input_feeding else recurrent_layers
        self.decoder = decoder(
            config.cell, config.embedding, config.hidden, config.layers, config.dropout
        )
        self.attention = SCORES[config.score](config, memory_width)
        self.window = WINDOWS[config.reach](config)
        self.W_c = Linear(memory_width + config.hidden, config.embedding, bias=False)
        self.output = Readout.of(config.embedding, self.target_embedding, config.tie)

    def begin(self, source: Padded, rows: int, max_length: int) -> LuongState:
        h_BSD, last = self.encoder(self.dropout(self.source_embedding(source.ids_BL)), source)
        carry = tuple(part.repeat_interleave(rows, dim=1) for part in self.bridge(last))
        fed_RD = h_BSD.new_zeros(len(source) * rows, self.config.embedding)
        return LuongState(carry, self.attention.memory(h_BSD, source.lengths_B), fed_RD)

    def attentional(self, h_RTD: Tensor, memory: Memory, first: int) -> Tensor:
        """h~_t = tanh(W_c [c_t ; h_t]) of the steps from `first` on (equation 5).

        All rows of a source are queries to the same memory.
        """
        sources = len(memory)
        rows, steps = h_RTD.shape[:2]
        h_BQD = h_RTD.reshape(sources, -1, h_RTD.shape[-1])
        t_Q = torch.arange(first, first + steps, device=h_RTD.device).repeat(rows // sources)
        focus = None if self.window is None else self.window(h_BQD, t_Q, memory)
        c_BQD = self.attention(h_BQD, memory, focus)
        return torch.tanh(self.W_c(torch.cat([c_BQD, h_BQD], dim=-1))).view(rows, steps, -1)

    def decode(self, tokens_RT: Tensor, state: LuongState) -> tuple[Tensor, LuongState]:
        """The attentional states of the next steps, of all rows together."""
        y_RTD = self.dropout(self.target_embedding(tokens_RT))
        if isinstance(self.decoder, FedCells):
            attentional_RTD, carry = self.feed(self.decoder, y_RTD, state)
        else:
            h_RTD, last = self.decoder(y_RTD, as_torch(state.carry))
            attentional_RTD = self.attentional(h_RTD, state.memory, state.written)
            carry = as_carry(last)
        written = state.written + tokens_RT.shape[1]
        return self.dropout(attentional_RTD), LuongState(
            carry, state.memory, attentional_RTD[:, -1], written
        )

    def feed(self, decoder: FedCells, y_RTD: Tensor, state: LuongState) -> tuple[Tensor, Carry]:
        """With input feeding each step needs the attentional state before it: only this needs a
        loop over time. As written, for each t:

            h_t  = decoder([E y_{t-1} ; h~_{t-1}], h_{t-1})
            h~_t = attentional(h_t)

        Here the first layer's products with all words (`word_gates`) are computed before the loop;
        nothing else differs.
        """
        carries = list(zip(*(part.unbind(0) for part in state.carry), strict=True))
        fed_RD = state.fed_RD
        attentional_states = []
        first = decoder.first_step()
        for t, words_RG in enumerate(word_gates(decoder.first, y_RTD).unbind(1), state.written):
            carries = decoder(first(words_RG, fed_RD, carries[0]), carries)
            fed_RD = self.attentional(carries[-1][0][:, None], state.memory, t)[:, 0]
            attentional_states.append(fed_RD)
        carry = tuple(torch.stack(part) for part in zip(*carries, strict=True))
        return torch.stack(attentional_states, 1), carry

    def forward(self, batch: Batch) -> Output:
        state = self.begin(batch.source, rows=1, max_length=0)
        hidden_BTD, _ = self.decode(batch.target.inputs.ids_BL, state)
        return Output(hidden_BTD)

    def step(self, tokens_R: Tensor, state: LuongState) -> tuple[Tensor, LuongState]:
        hidden_R1D, state = self.decode(tokens_R[:, None], state)
        return self.readout(hidden_R1D[:, 0]), state
