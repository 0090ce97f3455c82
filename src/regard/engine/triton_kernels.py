"""Kernels for a GPU, in Triton, which torch has where there is a GPU. Each reads its largest input
once.

They serve the cross-entropy over a vocabulary (losses.py), the scores of an additive attention
(additive.py), the attention of a search step to the tokens before it (attention.py) and dropout
(dropout.py). The equations are in objectives/cross_entropy.py, layers/scores.py and
layers/attention.py.
"""

# mypy: disable-error-code="import-not-found, no-untyped-def, untyped-decorator"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# How much a kernel computes together
LOGITS_PER_BLOCK = 8192
POSITIONS_PER_BLOCK = 16
CACHED_PER_BLOCK = 32
RANDOM_CALLS_PER_BLOCK = 1024


# Cross-entropy


@triton.jit
def _loss(
    logits,
    labels,
    plain,
    uniform,
    epsilon,
    vocabulary: tl.constexpr,
    gradient: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    logits += row * vocabulary
    largest = -float("inf")
    total = 0.0
    summed = 0.0
    for start in range(0, vocabulary, BLOCK):
        k = start + tl.arange(0, BLOCK)
        x = tl.load(logits + k, mask=k < vocabulary, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(largest, tl.max(x, 0))
        total = total * tl.exp(largest - larger) + tl.sum(tl.exp(x - larger), 0)
        summed += tl.sum(tl.where(k < vocabulary, x, 0.0), 0)
        largest = larger
    label = tl.load(labels + row)
    norm = largest + tl.log(total)
    at_label = tl.load(logits + tl.maximum(label, 0)).to(tl.float32)
    tl.store(plain + row, tl.where(label >= 0, norm - at_label, 0.0))
    tl.store(uniform + row, tl.where(label >= 0, norm - summed / vocabulary, 0.0))
    if gradient:  # the row is still in the GPU's cache
        tl.debug_barrier()  # all threads have read the logit of the label
        for start in range(0, vocabulary, BLOCK):
            k = start + tl.arange(0, BLOCK)
            p = tl.exp(tl.load(logits + k, mask=k < vocabulary, other=0.0).to(tl.float32) - norm)
            d = p - epsilon / vocabulary - tl.where(k == label, 1 - epsilon, 0.0)
            d = tl.where(label >= 0, d, 0.0)
            tl.store(logits + k, d.to(logits.dtype.element_ty), mask=k < vocabulary)


def loss(logits_PV: Tensor, labels_P: Tensor, epsilon: float, *, gradient: bool) -> Tensor:
    """The smoothed and the plain loss, summed, [2]. With `gradient`, the logits become that of the
    smoothed loss."""
    positions, vocabulary = logits_PV.shape
    # Apart: Triton compiles anew for tensors whose addresses are not multiples of 16
    plain_P, uniform_P = (torch.empty(positions, device=logits_PV.device) for _ in range(2))
    if positions:
        tensors = logits_PV, labels_P, plain_P, uniform_P
        _loss[(positions,)](*tensors, epsilon, vocabulary, gradient, LOGITS_PER_BLOCK, num_warps=8)
    plain = plain_P.sum()
    return torch.stack([(1 - epsilon) * plain + epsilon * uniform_P.sum(), plain])


# Scores of an additive attention: e_s = sum_a v_a f(q_a + keys_sa), f being tanh or ReLU


@triton.jit
def _activated(q, keys, v, s, a, length, width: tl.constexpr, rectified: tl.constexpr):
    """f(q + keys) of some positions, and its derivative times v."""
    there = (s < length)[:, None] & (a < width)[None]
    x = tl.load(keys + s[:, None] * width + a[None], mask=there, other=0.0).to(tl.float32) + q[None]
    if rectified:
        return tl.maximum(x, 0.0), tl.where(x > 0, v[None], 0.0), there
    f = 2 * tl.sigmoid(2 * x) - 1
    return f, v[None] * (1 - f * f), there


@triton.jit(do_not_specialize=["length"])
def _scores(  # noqa: PLR0913 (a kernel takes pointers and sizes one by one)
    q,
    keys,
    v,
    e,
    length,
    width: tl.constexpr,
    rectified: tl.constexpr,
    A: tl.constexpr,
    S: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    a = tl.arange(0, A)
    q_A = tl.load(q + row * width + a, mask=a < width, other=0.0).to(tl.float32)
    v_A = tl.load(v + a, mask=a < width, other=0.0).to(tl.float32)
    for start in range(0, length, S):
        s = start + tl.arange(0, S)
        f, _, _ = _activated(q_A, keys + row * length * width, v_A, s, a, length, width, rectified)
        tl.store(e + row * length + s, tl.sum(f * v_A[None], 1), mask=s < length)


@triton.jit(do_not_specialize=["length"])
def _scores_gradient(  # noqa: PLR0913 (a kernel takes pointers and sizes one by one)
    q,
    keys,
    v,
    de,
    dq,
    dkeys,
    dv,
    length,
    width: tl.constexpr,
    rectified: tl.constexpr,
    A: tl.constexpr,
    S: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    a = tl.arange(0, A)
    q_A = tl.load(q + row * width + a, mask=a < width, other=0.0).to(tl.float32)
    v_A = tl.load(v + a, mask=a < width, other=0.0).to(tl.float32)
    dq_A = tl.zeros([A], tl.float32)
    dv_A = tl.load(dv + row * width + a, mask=a < width, other=0.0)
    for start in range(0, length, S):
        s = start + tl.arange(0, S)
        f, slope, there = _activated(
            q_A, keys + row * length * width, v_A, s, a, length, width, rectified
        )
        de_S1 = tl.load(de + row * length + s, mask=s < length, other=0.0).to(tl.float32)[:, None]
        place = dkeys + row * length * width + s[:, None] * width + a[None]
        tl.store(
            place,
            (tl.load(place, mask=there, other=0.0) + de_S1 * slope).to(dkeys.dtype.element_ty),
            mask=there,
        )
        dq_A += tl.sum(de_S1 * slope, 0)
        dv_A += tl.sum(de_S1 * f, 0)
    tl.store(dq + row * width + a, dq_A.to(dq.dtype.element_ty), mask=a < width)
    tl.store(dv + row * width + a, dv_A, mask=a < width)


def scores(q_BA: Tensor, keys_BSA: Tensor, v_A: Tensor, rectified: bool) -> Tensor:
    """e_BS."""
    rows, length, width = keys_BSA.shape
    e_BS = torch.empty(rows, length, device=q_BA.device)
    block = triton.next_power_of_2(width)
    _scores[(rows,)](
        q_BA, keys_BSA, v_A, e_BS, length, width, rectified, block, POSITIONS_PER_BLOCK
    )
    return e_BS


def scores_gradient(
    de_BS: Tensor,
    q_BA: Tensor,
    keys_BSA: Tensor,
    v_A: Tensor,
    dkeys_BSA: Tensor,
    dv_BA: Tensor,
    rectified: bool,
) -> Tensor:
    """d loss / d q; that of the keys and of v, for each row, is added to `dkeys_BSA` and
    `dv_BA`."""
    rows, length, width = keys_BSA.shape
    dq_BA = torch.empty_like(q_BA)
    block = triton.next_power_of_2(width)
    tensors = q_BA, keys_BSA, v_A, de_BS, dq_BA, dkeys_BSA, dv_BA
    _scores_gradient[(rows,)](*tensors, length, width, rectified, block, POSITIONS_PER_BLOCK)
    return dq_BA


# Attention to cached keys and values, of which position m of row r is in row rows[m, r] of the
# cache


@triton.jit
def _cached(  # noqa: PLR0913 (a kernel takes pointers and sizes one by one)
    q,
    k,
    v,
    rows,
    lengths,
    out,
    heads,
    count,
    by_position,
    by_row,
    by_head,
    scale: tl.constexpr,
    width: tl.constexpr,
    E: tl.constexpr,
    K: tl.constexpr,
    exact: tl.constexpr,
):
    own = tl.program_id(0)
    e = tl.arange(0, E)
    row = own // heads
    head = own % heads
    own = own.to(tl.int64) * width + e
    q_E = tl.load(q + own, mask=e < width, other=0.0).to(exact) * scale
    length = tl.load(lengths)
    sum_E = tl.zeros([E], exact)
    largest = tl.full([], -float("inf"), exact)
    total = tl.full([], 0.0, exact)
    for start in range(0, length, K):
        m = start + tl.arange(0, K)
        rows_K = tl.load(rows + m * count + row, mask=m < length, other=0).to(tl.int64)
        place = (m.to(tl.int64) * by_position + rows_K * by_row + head * by_head)[:, None] + e[None]
        there = (m < length)[:, None] & (e < width)[None]
        scores_K = tl.sum(tl.load(k + place, mask=there, other=0.0).to(exact) * q_E[None], 1)
        scores_K = tl.where(m < length, scores_K, -float("inf"))
        larger = tl.maximum(largest, tl.max(scores_K, 0))
        p_K = tl.exp(scores_K - larger)
        before = tl.exp(largest - larger)
        total = total * before + tl.sum(p_K, 0)
        sum_E = sum_E * before + tl.sum(
            tl.load(v + place, mask=there, other=0.0).to(exact) * p_K[:, None], 0
        )
        largest = larger
    tl.store(out + own, (sum_E / total).to(out.dtype.element_ty), mask=e < width)


def attend_to_cache(
    q_RH1E: Tensor, k_RHKE: Tensor, v_RHKE: Tensor, rows_KR: Tensor, length_1: Tensor, scale: float
) -> Tensor:
    """softmax(q k^T scale) v over the first `length_1` positions, [R, H, 1, E]."""
    rows, heads, _, width = q_RH1E.shape
    exact = tl.float64 if q_RH1E.dtype == torch.float64 else tl.float32
    q_RH1E = q_RH1E.contiguous()
    out_RH1E = torch.empty_like(q_RH1E)
    by_row, by_head, by_position, _ = k_RHKE.stride()
    _cached[(rows * heads,)](
        q_RH1E,
        k_RHKE,
        v_RHKE,
        rows_KR,
        length_1,
        out_RH1E,
        heads,
        rows,
        by_position,
        by_row,
        by_head,
        scale,
        width,
        triton.next_power_of_2(width),
        CACHED_PER_BLOCK,
        exact,
        num_warps=2,
    )
    return out_RH1E


# Dropout


@triton.jit
def _kept(seed, out, calls, limit: tl.constexpr, BLOCK: tl.constexpr):
    """Each call of the generator gives eight numbers of 16 bits; what is below the limit is
    dropped."""
    call = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    eight = tl.zeros([BLOCK], tl.int64)
    words = tl.randint4x(tl.load(seed), call, n_rounds=7)
    for number in tl.static_range(4):
        low, high = words[number] & 0xFFFF, (words[number] >> 16) & 0xFFFF
        eight |= (low >= limit).to(tl.int64) << (16 * number)
        eight |= (high >= limit).to(tl.int64) << (16 * number + 8)
    tl.store(out.to(tl.pointer_type(tl.int64)) + call, eight, mask=call < calls)


def kept(like: Tensor, limit: int) -> Tensor:
    """1 with probability 1 - limit / 65536, else 0; [..., D], uint8.

    Philox with 7 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", table
    2).
    """
    calls = -(-like.numel() // 8)
    out = like.new_empty(8 * calls, dtype=torch.uint8)
    seed_1 = torch.randint(2**31, (1,), device=like.device)
    _kept[(triton.cdiv(calls, RANDOM_CALLS_PER_BLOCK),)](
        seed_1, out, calls, limit, RANDOM_CALLS_PER_BLOCK
    )
    return out[: like.numel()].view(like.shape)
