"""One layer of an LSTM whose weights may be dropped, whose state may be projected, and whose memory may be clipped."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batch import Tokens
from regard.layers.packing import put_back
from regard.layers.recurrence import packed_by_time

LayerCarry = tuple[Tensor, Tensor]
"""What one layer remembers of each row: its output h [B, D] and its memory c [B, hidden]."""


class LSTMLayer(nn.Module):
    """Hochreiter & Schmidhuber 1997 with a forget gate; torch's order of gates.

        i, f, o = sigmoid(W_ih x_t + W_hh h_{t-1} + b)        g = tanh(W_ih x_t + W_hh h_{t-1} + b)
        c_t = f c_{t-1} + i g
        h_t = o tanh(c_t)

    With a projection, Sak et al. 2014, arXiv:1402.1128: h_t = W_hr (o tanh(c_t)), a smaller state.
    With a clip, c_t is held within [-clip, clip]: a loop over time, since no fused kernel does it.
    With weight dropout, Merity et al. 2017, arXiv:1708.02182, section 2: elements of W_hh are dropped, the same ones at
    all steps of a batch.
    """

    def __init__(
        self,
        input_width: int,
        hidden: int,
        *,
        projection: int | None = None,
        clip: float | None = None,
        weight_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.hidden, self.width = hidden, projection or hidden
        self.clip, self.weight_dropout = clip, weight_dropout
        self.W_ih = nn.Parameter(torch.empty(4 * hidden, input_width))
        self.W_hh = nn.Parameter(torch.empty(4 * hidden, self.width))
        self.b_ih = nn.Parameter(torch.empty(4 * hidden))
        self.b_hh = nn.Parameter(torch.empty(4 * hidden))
        self.W_hr = nn.Parameter(torch.empty(self.width, hidden)) if projection else None
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)

    def _nothing(self, x_BLD: Tensor) -> LayerCarry:
        """What the layer remembers before it has read anything."""
        rows = x_BLD.shape[0]
        return x_BLD.new_zeros(rows, self.width), x_BLD.new_zeros(rows, self.hidden)

    def forward(self, x_BLD: Tensor, carry: LayerCarry | None = None) -> tuple[Tensor, LayerCarry]:
        """The outputs h_BLD, and what is remembered after the last position."""
        h_BD, c_BD = carry or self._nothing(x_BLD)
        weights = self._weights()
        # A CPU has no fused kernel for projections either, and torch says so in a warning.
        if self.clip is not None or (self.W_hr is not None and x_BLD.device.type == "cpu"):
            return _step_by_step(x_BLD, (h_BD, c_BD), weights, self.clip)
        h_BLD, h_1BD, c_1BD = torch.lstm(
            x_BLD, (h_BD[None], c_BD[None]), weights, True, 1, 0.0, self.training, False, True
        )
        return h_BLD, (h_1BD[0], c_1BD[0])

    def read(self, x_BLD: Tensor, text: Tokens, carry: LayerCarry | None = None) -> tuple[Tensor, LayerCarry]:
        """The same for texts of unequal length: outputs are zero on padding, and each row remembers its own end."""
        assert self.clip is None
        h_BD, c_BD = carry or self._nothing(x_BLD)
        packed, rows_P = packed_by_time(x_BLD, text)
        order_B, rank_B = packed.sorted_indices, packed.unsorted_indices
        assert order_B is not None
        assert rank_B is not None
        first = (h_BD[order_B][None], c_BD[order_B][None])
        h_PD, h_1BD, c_1BD = torch.lstm(
            packed.data, packed.batch_sizes, first, self._weights(), True, 1, 0.0, self.training, False
        )
        return put_back(h_PD, rows_P, *x_BLD.shape[:2]), (h_1BD[0][rank_B], c_1BD[0][rank_B])

    def _weights(self) -> list[Tensor]:
        W_hh = F.dropout(self.W_hh, self.weight_dropout, self.training) if self.weight_dropout else self.W_hh
        weights = [self.W_ih, W_hh, self.b_ih, self.b_hh, *([] if self.W_hr is None else [self.W_hr])]
        return side_by_side(weights) if self.W_ih.device.type == "cuda" else weights


def side_by_side(weights: list[Tensor]) -> list[Tensor]:
    """The same weights in one piece of memory, matrices first, as cuDNN wants them: else it warns, and copies them."""
    order = sorted(range(len(weights)), key=lambda number: -weights[number].dim())
    flat = torch.cat([weights[number].flatten() for number in order])
    parts = dict(zip(order, torch.split(flat, [weights[number].numel() for number in order]), strict=True))
    return [parts[number].view_as(weight) for number, weight in enumerate(weights)]


def _step_by_step(
    x_BLD: Tensor, carry: LayerCarry, weights: list[Tensor], clip: float | None
) -> tuple[Tensor, LayerCarry]:
    """The equations as they stand."""
    W_ih, W_hh, b_ih, b_hh, *projections = weights
    h_BD, c_BD = carry
    outputs = []
    for read_BG in F.linear(x_BLD, W_ih, b_ih).unbind(1):
        i, f, g, o = (read_BG + F.linear(h_BD, W_hh, b_hh)).chunk(4, -1)
        c_BD = torch.sigmoid(f) * c_BD + torch.sigmoid(i) * torch.tanh(g)
        if clip is not None:
            c_BD = c_BD.clamp(-clip, clip)
        h_BD = torch.sigmoid(o) * torch.tanh(c_BD)
        for W_hr in projections:
            h_BD = F.linear(h_BD, W_hr)
        outputs.append(h_BD)
    return torch.stack(outputs, dim=1), (h_BD, c_BD)
