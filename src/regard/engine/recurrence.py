"""Recurrent layers without padding, and loops over time that drop the sentences which have
ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from regard.data.batches import Padded, real_places, real_positions
from regard.engine.packing import unpack
from regard.engine.shapes import Rounded

Carry = tuple[Tensor, ...]
"""The recurrent state of all layers, each [N, B, D]: (h,) of a plain RNN or GRU, (h, c) of an
LSTM."""
LayerCarry = tuple[Tensor, Tensor]
"""The state of one LSTM layer: its output h [B, D] and its memory c [B, hidden]."""
CellStep = Callable[[Tensor, Tensor, Carry], Carry]
"""Wx + b, Uh + b and the state -> the next state: `cell_step` in layers/recurrence.py."""
TorchRecurrentLayers = nn.RNN | nn.GRU | nn.LSTM


def join_directions(last: Carry, directions: int) -> Carry:
    """The directions of each layer side by side: [N * directions, B, D] -> [N, B, directions *
    D]."""
    return tuple(
        torch.cat([state[direction::directions] for direction in range(directions)], dim=-1)
        for state in last
    )


def in_step_precision(weight: Tensor) -> Tensor:
    """A weight in autocast's precision: cast once for all steps of a loop over time."""
    device = weight.device.type
    return (
        weight.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else weight
    )


# Encoders: torch's layers, or a loop over cells


def pack_by_time(x_BSD: Tensor, source: Padded) -> tuple[PackedSequence, Tensor]:
    """All first tokens, all second tokens, ..., longest sentences first, as torch's recurrent
    layers expect them.

    Also the index of each packed token in the flattened [B, S], for `unpack`. This is one
    gather; torch's own packing copies time step by time step.
    """
    sentences_P, places_P = real_places(source.lengths_B, source.host_lengths_B)
    sorted_B = source.lengths_B.argsort(descending=True, stable=True)
    rank_B = sorted_B.argsort()
    by_time_P = (places_P * len(source) + rank_B[sentences_P]).argsort()
    index_P = (sentences_P * source.ids_BL.shape[1] + places_P)[by_time_P]
    longest = int(source.host_lengths_B.max())
    batch_sizes = (source.host_lengths_B > torch.arange(longest)[:, None]).sum(-1)
    data_PD = x_BSD.flatten(0, 1).index_select(0, index_P)
    return PackedSequence(data_PD, batch_sizes, sorted_B, rank_B), index_P


def read_packed(
    rnn: TorchRecurrentLayers, x_BSD: Tensor, source: Padded, step: CellStep
) -> tuple[Tensor, Carry]:
    """torch's layers on packed sentences."""
    packed, index_P = pack_by_time(x_BSD, source)
    outputs, last = rnn(packed)
    # Under bf16 autocast torch runs recurrent layers in fp16. Convert once here, not in every
    # attention step.
    states_PD = in_step_precision(outputs.data)
    h_BSD = unpack(states_PD, index_P, *x_BSD.shape[:2])
    carry = (last,) if isinstance(last, Tensor) else last
    return h_BSD, join_directions(carry, 2 if rnn.bidirectional else 1)


def read_by_cells(
    rnn: TorchRecurrentLayers, x_BSD: Tensor, source: Padded, step: CellStep
) -> tuple[Tensor, Carry]:
    """Read cell by cell. Unlike the kernels for packed sentences, the kernels depend only on the
    shape, so a CUDA graph can replay them."""
    real_BS1 = real_positions(source.lengths_B, x_BSD.shape[1])[..., None]
    end_B11 = (source.lengths_B - 1)[:, None, None]
    last: list[Carry] = []
    for layer in range(rnn.num_layers):
        read_BSD = F.dropout(x_BSD, rnn.dropout, rnn.training) if layer else x_BSD
        states: list[Tensor] = []
        carries: list[Carry] = []
        for direction in range(2 if rnn.bidirectional else 1):
            names = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
            W, b, U, c = (
                getattr(rnn, f"{name}_l{layer}{'_reverse' * direction}") for name in names
            )
            inputs = F.linear(read_BSD, W, b).unbind(1)
            steps: list[Carry] = []
            carry: Carry = (torch.zeros_like(inputs[0][:, : U.shape[1]]),) * (
                2 if isinstance(rnn, nn.LSTM) else 1
            )
            for place in range(len(inputs))[:: -1 if direction else 1]:
                carry = step(inputs[place], F.linear(carry[0], U, c), carry)
                if direction:  # zero before the sentence begins, at its end
                    carry = tuple(part * real_BS1[:, place] for part in carry)
                steps.append(carry)
            parts_BSD = [
                torch.stack(parts[:: -1 if direction else 1], 1)
                for parts in zip(*steps, strict=True)
            ]
            if not direction:
                carry = tuple(part_BSD.take_along_dim(end_B11, 1)[:, 0] for part_BSD in parts_BSD)
            states.append(parts_BSD[0] if direction else parts_BSD[0] * real_BS1)
            carries.append(carry)
        x_BSD = torch.cat(states, dim=-1)
        last.append(tuple(torch.cat(parts, dim=-1) for parts in zip(*carries, strict=True)))
    return x_BSD, tuple(torch.stack(parts) for parts in zip(*last, strict=True))


RECURRENT_ENCODERS: list[tuple[Callable[[Padded], bool], Callable[..., tuple[Tensor, Carry]]]] = [
    (lambda source: isinstance(source, Rounded), read_by_cells),
    (lambda source: True, read_packed),
]


# One LSTM cell, and one LSTM layer with extras


def fused_lstm_cell(input_RG: Tensor, state_RG: Tensor, c: Tensor) -> Carry:
    """One kernel for the whole cell."""
    h_RD, c_RD, _ = torch.ops.aten._thnn_fused_lstm_cell(input_RG, state_RG, c)
    return h_RD, c_RD


LSTM_CELLS: list[tuple[Callable[[Tensor], bool], Callable[[Tensor, Tensor, Tensor], Carry]]] = [
    (lambda input_RG: input_RG.device.type == "cuda", fused_lstm_cell),
]


def has_lstm_kernel(x_BLD: Tensor, clip: float | None, W_hr: Tensor | None) -> bool:
    """No kernel clips; on a CPU none projects either, and torch warns about it."""
    return clip is None and (W_hr is None or x_BLD.device.type != "cpu")


def read_lstm(
    x_BLD: Tensor, carry: LayerCarry, weights: list[Tensor], training: bool
) -> tuple[Tensor, LayerCarry]:
    """torch's LSTM over texts of one length."""
    before = carry[0][None], carry[1][None]
    weights = as_one_block(weights)
    h_BLD, h_1BD, c_1BD = torch.lstm(x_BLD, before, weights, True, 1, 0.0, training, False, True)
    return h_BLD, (h_1BD[0], c_1BD[0])


LSTM_LAYERS: list[tuple[Callable[..., bool], Callable[..., tuple[Tensor, LayerCarry]]]] = [
    (has_lstm_kernel, read_lstm),
]


def read_texts(
    x_BLD: Tensor, text: Padded, carry: LayerCarry, weights: list[Tensor], training: bool
) -> tuple[Tensor, LayerCarry]:
    """torch's LSTM over texts of different lengths."""
    packed, index_P = pack_by_time(x_BLD, text)
    order_B, rank_B = packed.sorted_indices, packed.unsorted_indices
    assert order_B is not None
    assert rank_B is not None
    before = carry[0][order_B][None], carry[1][order_B][None]
    weights = as_one_block(weights)
    h_PD, h_1BD, c_1BD = torch.lstm(
        packed.data, packed.batch_sizes, before, weights, True, 1, 0.0, training, False
    )
    return unpack(h_PD, index_P, *x_BLD.shape[:2]), (h_1BD[0][rank_B], c_1BD[0][rank_B])


def as_one_block(weights: list[Tensor]) -> list[Tensor]:
    """Weights as cuDNN needs them, on a GPU."""
    return contiguous_weights(weights) if weights[0].device.type == "cuda" else weights


def contiguous_weights(weights: list[Tensor]) -> list[Tensor]:
    """Copies of the weights in one block of memory, matrices first. cuDNN needs this layout;
    otherwise it warns and copies them itself."""
    order = sorted(range(len(weights)), key=lambda number: -weights[number].dim())
    flat = torch.cat([weights[number].flatten() for number in order])
    parts = dict(
        zip(order, torch.split(flat, [weights[number].numel() for number in order]), strict=True)
    )
    return [parts[number].view_as(weight) for number, weight in enumerate(weights)]


# Loops over time


@dataclass(frozen=True)
class TimeSegment:
    """Some steps of a loop over time, and the rows that have not ended before them."""

    steps: slice
    rows_R: Tensor  # the rows' indices in the batch
    kept_R: Tensor  # their indices among the rows of the segment before
    places_P: Tensor  # the indices of the outputs in the flattened [B, T], row by row


def time_segments(lengths_B: Tensor, width: int, device: torch.device) -> Iterator[TimeSegment]:
    """The loop over sentences of these lengths, padded to `width`, without computing much padding.

    A new segment begins whenever a quarter of the rows has ended; those rows are dropped. The
    lengths are on the host, to avoid a GPU sync.
    """
    longest = int(lengths_B.max())
    first = 0
    if int(lengths_B.min()) == longest == width:
        all_R = torch.arange(len(lengths_B), device=device)
        yield TimeSegment(
            slice(0, longest), all_R, all_R, torch.arange(len(lengths_B) * width, device=device)
        )
        return
    rows_R = kept_R = torch.arange(len(lengths_B))
    while first < longest:
        ends_R = lengths_B[rows_R]
        last = int(ends_R.sort(descending=True).values[3 * len(rows_R) // 4])
        places_P = (rows_R[:, None] * width + torch.arange(first, last)).flatten()
        indices = rows_R, kept_R, places_P
        if device.type == "cuda":
            indices = rows_R.pin_memory(), kept_R.pin_memory(), places_P.pin_memory()
        yield TimeSegment(
            slice(first, last), *(index.to(device, non_blocking=True) for index in indices)
        )
        kept_R = (ends_R > last).nonzero()[:, 0]
        rows_R = rows_R[kept_R]
        first = last


class SelectableRows(Protocol):
    """The encoder states that a decoder attends to, which rows can be selected from: `Memory` in
    layers/scores.py."""

    def __getitem__(self, rows_R: Tensor) -> Self: ...


def loop_over_segments(
    steps: Callable[[Any], Callable[[Tensor, Carry], tuple[Carry, Tensor]]],
    words_BTG: Tensor,
    carry: Carry,
    memory: SelectableRows,
    lengths_B: Tensor,
) -> tuple[Tensor, Tensor]:
    """`unroll` without sentences that have ended; their states and contexts are zero."""
    states = []
    contexts = []
    places = []
    segments = [*time_segments(lengths_B, words_BTG.shape[1], words_BTG.device)]
    # not a slice for each segment: its gradient would be as large as all words
    ends = [segment.steps.stop for segment in segments]
    words = words_BTG.tensor_split(ends, dim=1)
    for segment, words_BSG in zip(segments, words, strict=False):
        carry = tuple(part.index_select(0, segment.kept_R) for part in carry)
        memory = memory[segment.kept_R]
        step = steps(memory)
        segment_states = []
        segment_contexts = []
        for words_RG in words_BSG.index_select(0, segment.rows_R).unbind(1):
            carry, context_RD = step(words_RG, carry)
            segment_states.append(carry[0])
            segment_contexts.append(context_RD)
        states.append(torch.stack(segment_states, 1).flatten(0, 1))
        contexts.append(torch.stack(segment_contexts, 1).flatten(0, 1))
        places.append(segment.places_P)
    places_P = torch.cat(places)
    sentences, width = words_BTG.shape[:2]
    return (
        unpack(torch.cat(states), places_P, sentences, width),
        unpack(torch.cat(contexts), places_P, sentences, width),
    )


def lengths_differ(lengths_B: Tensor) -> bool:
    return int(lengths_B.min()) < int(lengths_B.max())


DECODER_LOOPS: list[tuple[Callable[[Tensor], bool], Callable[..., tuple[Tensor, Tensor]]]] = [
    (lengths_differ, loop_over_segments),
]
