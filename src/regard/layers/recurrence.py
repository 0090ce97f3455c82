"""Recurrent layers over padded sentences."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from regard.data.batch import Tokens
from regard.layers.linear import Linear, linear
from regard.layers.packing import Packing, put_back

Cell = Literal["rnn", "gru", "lstm"]
Carry = tuple[Tensor, ...]
"""What a recurrent layer remembers, each [N, B, D]: (h,) of a plain RNN or GRU, (h, c) of an LSTM."""

LAYERS: dict[Cell, type[nn.RNN | nn.GRU | nn.LSTM]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CELLS: dict[Cell, type[nn.RNNCell | nn.GRUCell | nn.LSTMCell]] = {
    "rnn": nn.RNNCell,
    "gru": nn.GRUCell,
    "lstm": nn.LSTMCell,
}


def as_carry(state: Tensor | Carry) -> Carry:
    """Torch's state of any cell as a tuple."""
    return (state,) if isinstance(state, Tensor) else tuple(state)


def as_torch(carry: Carry) -> Tensor | Carry:
    """A tuple as torch wants it: the bare tensor where there is only one."""
    return carry[0] if len(carry) == 1 else carry


class RecurrentEncoder(nn.Module):
    """Read a sentence left to right, and right to left too if asked.

    Cho et al. 2014, arXiv:1406.1078; Sutskever et al. 2014, arXiv:1409.3215; both directions as in Bahdanau et al.
    2015, arXiv:1409.0473, section 3.2:
        h_j = [forward h_j ; backward h_j]
    """

    def __init__(
        self, cell: Cell, input_width: int, hidden: int, layers: int, *, bidirectional: bool, dropout: float
    ) -> None:
        super().__init__()
        self.directions = 2 if bidirectional else 1
        between = dropout if layers > 1 else 0.0
        self.rnn = LAYERS[cell](
            input_width, hidden, layers, batch_first=True, bidirectional=bidirectional, dropout=between
        )

    def forward(self, x_BSD: Tensor, source: Tokens) -> tuple[Tensor, Carry]:
        """All states h_BSD (zero on padding) and the last one of each layer, both directions side by side."""
        packed, rows_P = packed_by_time(x_BSD, source)
        outputs, last = self.rnn(packed)
        # Under bf16 autocast torch runs recurrent layers in fp16; left so, every look at h would convert it anew.
        kind, states_PD = x_BSD.device.type, outputs.data
        if torch.is_autocast_enabled(kind):
            states_PD = states_PD.to(torch.get_autocast_dtype(kind))
        h_BSD = put_back(states_PD, rows_P, *x_BSD.shape[:2])
        return h_BSD, tuple(self._side_by_side(state) for state in as_carry(last))

    def _side_by_side(self, state: Tensor) -> Tensor:
        """[N * directions, B, D] -> [N, B, directions * D]."""
        return torch.cat([state[direction :: self.directions] for direction in range(self.directions)], dim=-1)


def packed_by_time(x_BSD: Tensor, source: Tokens) -> tuple[PackedSequence, Tensor]:
    """All first tokens, all second ones, ..., longest sentences first, as torch's recurrent layers want them.

    With the places of the tokens among the padded ones, to go back by. One gather; torch's own packing copies each
    time step by itself.
    """
    packing, host_B = Packing.of(source), source.host_lengths_B
    sorted_B = source.lengths_B.argsort(descending=True, stable=True)
    rank_B = sorted_B.argsort()
    by_time_P = (packing.places_P * len(source) + rank_B[packing.sentences_P]).argsort()
    rows_P = packing.rows_P[by_time_P]
    rows_of_each_step = (host_B > torch.arange(packing.longest)[:, None]).sum(-1)
    data_PD = x_BSD.flatten(0, 1).index_select(0, rows_P)
    return PackedSequence(data_PD, rows_of_each_step, sorted_B, rank_B), rows_P


class Bridge(nn.Module):
    """From the encoder's last state to the decoder's first: s_0 = tanh(W_s h_last), one W_s for each part of the state.

    Bahdanau et al. 2015, arXiv:1409.0473, section A.2.2.
    """

    def __init__(self, cell: Cell, encoder_width: int, decoder_width: int) -> None:
        super().__init__()
        parts = 2 if cell == "lstm" else 1
        self.W_s = nn.ModuleList(Linear(encoder_width, decoder_width) for _ in range(parts))

    def forward(self, carry: Carry) -> Carry:
        return tuple(torch.tanh(W_s(part)) for W_s, part in zip(self.W_s, carry, strict=True))


def words_read(cell: nn.RNNCellBase, y_BTD: Tensor) -> Tensor:
    """What the gates of a cell get from every word, of an input [y ; fed] that is only known in part.

        W_ih [y ; fed] = W_y y + W_fed fed

    Words are known beforehand: W_y y + b of all steps is one product, and only the second term needs a loop over time.
    """
    return F.linear(y_BTD, cell.weight_ih[:, : y_BTD.shape[-1]], cell.bias_ih)


def fed_step(kind: Cell, cell: nn.RNNCellBase, words_RG: Tensor, fed_RD: Tensor, carry: Carry) -> Carry:
    """One step of such a cell, given W_y y + b."""
    read_RG = words_RG + linear(fed_RD, cell.weight_ih[:, -fed_RD.shape[-1] :])
    kept_RG = linear(carry[0], cell.weight_hh, cell.bias_hh)
    return through_gates(kind, read_RG, kept_RG, carry)


class FedCells(nn.Module):
    """Recurrent layers of which the first reads a word and what came of the step before."""

    def __init__(
        self, cell: Cell, word_width: int, fed_width: int, hidden: int, layers: int, *, dropout: float
    ) -> None:
        super().__init__()
        self.kind = cell
        self.first = CELLS[cell](word_width + fed_width, hidden)
        self.rest = nn.ModuleList(CELLS[cell](hidden, hidden) for _ in range(layers - 1))
        self.dropout = nn.Dropout(dropout)

    def words(self, y_BTD: Tensor) -> Tensor:
        return words_read(self.first, y_BTD)

    def forward(self, words_RG: Tensor, fed_RD: Tensor, carries: list[Carry]) -> list[Carry]:
        """One step of all layers; each layer's carry is [R, D]."""
        new = [fed_step(self.kind, self.first, words_RG, fed_RD, carries[0])]
        for cell, carry in zip(self.rest, carries[1:], strict=True):
            new.append(as_carry(cell(self.dropout(new[-1][0]), as_torch(carry))))
        return new


def through_gates(cell: Cell, read_RG: Tensor, kept_RG: Tensor, carry: Carry) -> Carry:
    """A cell's new state from what its gates get from the input, W x, and from the state, U h, in torch's order.

    On a GPU torch has one kernel for all of an LSTM's.

    rnn     h' = tanh(Wx + Uh)
    gru     h' = z h + (1 - z) n        n = tanh(Wx_n + r Uh_n)      r, z = sigmoid(Wx + Uh)
    lstm    h' = o tanh(c')             c' = f c + i g               i, f, o = sigmoid(Wx + Uh), g = tanh(Wx + Uh)
    """
    if cell == "rnn":
        return (torch.tanh(read_RG + kept_RG),)
    if cell == "gru":
        (r_x, z_x, n_x), (r_h, z_h, n_h) = read_RG.chunk(3, -1), kept_RG.chunk(3, -1)
        z = torch.sigmoid(z_x + z_h)
        n = torch.tanh(n_x + torch.sigmoid(r_x + r_h) * n_h)
        return (n + z * (carry[0] - n),)
    if read_RG.device.type == "cuda":
        return tuple(torch.ops.aten._thnn_fused_lstm_cell(read_RG, kept_RG, carry[1])[:2])
    i, f, g, o = (read_RG + kept_RG).chunk(4, -1)
    c = torch.sigmoid(f) * carry[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c
