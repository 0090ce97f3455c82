"""Small generators whose distributions are known, and whose states do not forgive being handled
wrongly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.data.batches import Batch, Padded
from regard.models.base import Generator, Output
from regard.search.rules import BannedTexts


class ToyState:
    """Source features once a source, hidden states once a row. A state that was consumed or
    overfilled raises."""

    def __init__(self, model: Toy, source_BD: Tensor, hidden_RD: Tensor, room: int) -> None:
        self.model, self.source_BD, self.hidden_RD, self.room = model, source_BD, hidden_RD, room
        self.consumed = False

    def consume(self) -> None:
        assert not self.consumed, "this state was consumed before"
        self.consumed = True

    def select(self, rows_BW: Tensor) -> ToyState:
        self.consume()
        self.model.selects += 1
        sources_BW = rows_BW // (len(self.hidden_RD) // len(self.source_BD))
        assert (sources_BW == sources_BW[:, :1]).all(), "a group mixes rows of several sources"
        return ToyState(
            self.model,
            self.source_BD[sources_BW[:, 0]],
            self.hidden_RD[rows_BW.flatten()],
            self.room,
        )


class Toy(Generator):
    """h_t = tanh(A h_{t-1} + E[y_t] + x), logits = R h_t with random A, E, R; x sums the source by
    token and place.

    Everything written and the whole source decide the next token, so a hypothesis continued from
    another one's state, or from another source's, shows in its score.
    """

    alignment = ""

    def __init__(
        self, vocabulary: int, seed: int = 0, width: int = 6, sharpness: float = 1.0
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
        self.A, self.E = draw(width, width), draw(vocabulary, width)
        self.X, self.places, self.R = (
            draw(vocabulary, width),
            draw(50, width),
            sharpness * draw(vocabulary, width),
        )
        self.rows: list[int] = []
        self.selects = 0
        self.eval()

    def read(self, source: Padded) -> Tensor:
        length = source.ids_BL.shape[1]
        real_BL = torch.arange(length) < source.lengths_B[:, None]
        return (self.X[source.ids_BL] * self.places[:length] * real_BL[..., None]).sum(1)

    def advance(self, hidden_RD: Tensor, tokens_R: Tensor, source_RD: Tensor) -> Tensor:
        return torch.tanh(hidden_RD @ self.A + self.E[tokens_R] + source_RD)

    def readout(self, hidden: Tensor) -> Tensor:
        return hidden @ self.R.T

    def forward(self, batch: Batch) -> Output:
        source_BD = self.read(batch.source)
        hidden_BD, all_hidden = torch.zeros_like(source_BD), []
        for tokens_B in batch.target.ids_BL[:, :-1].T:
            hidden_BD = self.advance(hidden_BD, tokens_B, source_BD)
            all_hidden.append(hidden_BD)
        return Output(torch.stack(all_hidden, dim=1))

    def begin(self, source: Padded, rows: int, max_length: int) -> ToyState:
        source_BD = self.read(source)
        hidden_RD = torch.zeros_like(source_BD).repeat_interleave(rows, dim=0)
        return ToyState(self, source_BD, hidden_RD, room=max_length)

    def step(self, tokens_R: Tensor, state: ToyState) -> tuple[Tensor, ToyState]:
        state.consume()
        assert state.room > 0, "more steps than begin was told of"
        self.rows.append(len(tokens_R))
        source_RD = state.source_BD.repeat_interleave(len(tokens_R) // len(state.source_BD), dim=0)
        hidden_RD = self.advance(state.hidden_RD, tokens_R, source_RD)
        return self.readout(hidden_RD), ToyState(self, state.source_BD, hidden_RD, state.room - 1)


class TableToy(Toy):
    """The token before decides alone: P(next | token) stands in a table, the same for every
    source."""

    def __init__(self, log_p_VV: Tensor) -> None:
        super().__init__(len(log_p_VV), width=1)
        self.log_p_VV = log_p_VV.double()

    def advance(self, hidden_RD: Tensor, tokens_R: Tensor, source_RD: Tensor) -> Tensor:
        return tokens_R[:, None].double()

    def readout(self, hidden: Tensor) -> Tensor:
        return self.log_p_VV[hidden[..., 0].long()]


def table_toy(
    vocabulary: int, first: dict[int, float], *later: tuple[int, dict[int, float]]
) -> TableToy:
    """A TableToy from hand-written probabilities: after any token `first`, unless `later` says
    otherwise for it."""
    p_VV = torch.zeros(vocabulary, vocabulary, dtype=torch.float64)
    for token, p in first.items():
        p_VV[:, token] = p
    for before, row in later:
        p_VV[before] = torch.tensor(
            [row.get(token, 0.0) for token in range(vocabulary)], dtype=torch.float64
        )
    return TableToy(p_VV.log())


def ban_tokens(sequences: Sequence[Sequence[int]]) -> BannedTexts:
    """Ban sequences of tokens: each token is a symbol."""
    return BannedTexts(sequences, {token: (token,) for tokens in sequences for token in tokens})
