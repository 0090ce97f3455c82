"""Sampling: draw each token from the model's distribution, made sharper or cut off as asked."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from regard.data.batch import Tokens
from regard.search.hypotheses import Choice, Finished, Live


class Sampling:
    """Continues each hypothesis by one drawn token; its score stays the model's own log P."""

    reorders = False

    def __init__(
        self, noise_BWT: Tensor, *, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
    ) -> None:
        self.rows = noise_BWT.shape[1]
        self._noise_BWT = noise_BWT
        self._temperature = temperature
        self._top_k = top_k
        self._top_p = top_p

    def start(self, total_BW: Tensor) -> Tensor:
        """All W samples set out from the empty hypothesis."""
        return total_BW

    def choose(self, log_p_BWV: Tensor, live: Live, finished: Finished) -> Choice:
        sorted_BWV, order_BWV = log_p_BWV.sort(dim=-1, descending=True, stable=True)
        p_BWV = truncated(sorted_BWV, self._temperature, self._top_k, self._top_p)
        noise_BW = self._noise_BWT[live.sentences_B, :, live.history_BWT.shape[-1]]
        rank_BW1 = draw(p_BWV, noise_BW)[..., None]
        total_BW = live.total_BW + sorted_BWV.gather(-1, rank_BW1)[..., 0]
        slots_BW = torch.arange(self.rows, device=total_BW.device).expand_as(total_BW)
        return Choice(slots_BW, order_BWV.gather(-1, rank_BW1)[..., 0], total_BW)

    def settled(self, total_BW: Tensor, sentences_B: Tensor, finished: Finished) -> Tensor:
        """Never: every sample is written to its end."""
        return torch.zeros_like(sentences_B, dtype=torch.bool)


def truncated(log_p_V: Tensor, temperature: float, top_k: int | None, top_p: float) -> Tensor:
    """The distribution to draw from, out of log probabilities [..., V] in falling order; 0 where it is cut off.

    Temperature first, then the k most probable, then the fewest of those that hold the share p of their probability
    (nucleus sampling, Holtzman et al. 2020, arXiv:1904.09751, section 3.1). The most probable token always stays.
    """
    logits_V = (log_p_V - log_p_V[..., :1]) / temperature
    if top_k is not None:
        logits_V[..., top_k:] = -torch.inf
    p_V = logits_V.softmax(-1)
    if top_p < 1:
        before_V = p_V.cumsum(-1) - p_V
        before_V[..., 0] = 0
        p_V = p_V.masked_fill(before_V >= top_p, 0)
    return p_V


def draw(p_V: Tensor, noise: Tensor) -> Tensor:
    """The place where the cumulated weights [..., V] pass each noise, uniform in [0, 1), times their sum.

    The weights fall, so those above 0 are a prefix; staying within it guards against sums that do not round evenly.
    """
    cumulated_V = p_V.cumsum(-1)
    passed = (cumulated_V <= noise[..., None] * cumulated_V[..., -1:]).sum(-1)
    possible = (p_V > 0).sum(-1)
    return torch.minimum(passed, possible - 1).clamp_(min=0)


def noise_of(source: Tokens, rows: int, limits: Sequence[int], seed: int) -> Tensor:
    """Uniform noise [B, W, T] in [0, 1) for each token of each sample.

    A sentence's noise follows from the seed and its own tokens, so neither its neighbours nor its place matter.
    """
    noise_BWT = torch.zeros(len(source), rows, max(limits))
    ids_BL, lengths = source.ids_BL.cpu().long(), source.host_lengths_B.tolist()
    for b, limit in enumerate(limits):
        digest = hashlib.blake2b(
            ids_BL[b, : lengths[b]].numpy().tobytes(), digest_size=8, salt=seed.to_bytes(16, "big")
        )
        generator = torch.Generator().manual_seed(int.from_bytes(digest.digest(), "big") >> 1)
        noise_BWT[b, :, :limit] = torch.rand(rows, limit, generator=generator)
    return noise_BWT.to(source.ids_BL.device)
