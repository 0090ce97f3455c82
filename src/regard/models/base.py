"""The two seams between a model and the rest: batch -> output, and begin / step / select."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from regard.data.batch import Batch, Tokens


@dataclass(frozen=True)
class Output:
    """What a forward pass gives; `readout(hidden)` turns it into logits where the objective wants them."""

    hidden_BTD: Tensor


class State(Protocol):
    """All that decoding remembers. Rows come in groups of W, one group a source: row r belongs to source r // W."""

    def select(self, rows_BW: Tensor) -> State:
        """The state of these rows, in this order.

        `rows_BW[b, w]` is the old row that the new row b * W + w goes on from. Each group's rows stem from one source;
        groups that are not named are dropped with their source, and W may change.
        """
        ...


class Generator(nn.Module):
    """A model that writes: what training, search and scoring may ask of it."""

    def forward(self, batch: Batch) -> Output:
        """Teacher forcing: hidden states that predict `target[:, 1:]` from `source` and `target[:, :-1]`."""
        raise NotImplementedError

    def readout(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., D] -> logits [..., V]."""
        raise NotImplementedError

    def begin(self, source: Tokens, rows: int, max_length: int) -> State:
        """Read the sources and make room for `rows` hypotheses of at most `max_length` tokens for each."""
        raise NotImplementedError

    def step(self, tokens_R: Tensor, state: State) -> tuple[Tensor, State]:
        """Feed one token a row (`<s>` first); logits_RV of the next one. Consumes the state it is given."""
        raise NotImplementedError
