"""A linear-chain conditional random field: the tags of a sentence are chosen together."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class CRF(nn.Module):
    """Scores for each pair of neighbouring tags, in addition to the score of each single tag.

    Lafferty et al. 2001; Lample et al. 2016, arXiv:1603.01360, section 2.2, with P the scores of a
    network, b and e those of the first and the last tag:
        s(X, y)      = b_{y_1} + sum_i P_{i, y_i} + sum_i A_{y_i, y_{i+1}} + e_{y_n}
        log p(y | X) = s(X, y) - log sum_y' exp s(X, y')
        y*           = argmax_y' s(X, y')
    """

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.A = nn.Parameter(torch.zeros(tags, tags))
        self.b_Y = nn.Parameter(torch.zeros(tags))
        self.e_Y = nn.Parameter(torch.zeros(tags))

    def log_likelihood(self, P_BLY: Tensor, tags_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """log p(y | X) of each sentence, [B]. Values beyond the lengths are ignored."""
        rows_B = torch.arange(len(P_BLY), device=P_BLY.device)
        real_BL = torch.arange(P_BLY.shape[1], device=P_BLY.device) < lengths_B[:, None]
        tags_BL = tags_BL.masked_fill(~real_BL, 0)
        emitted_BL = P_BLY.gather(2, tags_BL[..., None])[..., 0] * real_BL
        moved_BL = self.A[tags_BL[:, :-1], tags_BL[:, 1:]] * real_BL[:, 1:]
        ends_B = self.b_Y[tags_BL[:, 0]] + self.e_Y[tags_BL[rows_B, lengths_B - 1]]
        return emitted_BL.sum(1) + moved_BL.sum(1) + ends_B - self.log_partition(P_BLY, real_BL)

    def log_partition(self, P_BLY: Tensor, real_BL: Tensor) -> Tensor:
        """log sum_y' exp s(X, y') of each sentence, [B], by the forward algorithm."""
        alpha_BY = self.b_Y + P_BLY[:, 0]
        for P_BY, real_B in zip(P_BLY.unbind(1)[1:], real_BL.unbind(1)[1:], strict=True):
            next_BY = (alpha_BY[:, :, None] + self.A).logsumexp(1) + P_BY
            alpha_BY = torch.where(real_B[:, None], next_BY, alpha_BY)
        return (alpha_BY + self.e_Y).logsumexp(1)

    def log_marginals(self, P_LY: Tensor) -> Tensor:
        """log p(y_i = y | X) of each tag of one sentence, [L, Y], by the forward-backward
        algorithm."""
        alphas: list[Tensor] = [self.b_Y + P_LY[0]]
        betas: list[Tensor] = [self.e_Y]
        for P_Y in P_LY[1:]:
            alphas.append((alphas[-1][:, None] + self.A).logsumexp(0) + P_Y)
        for P_Y in P_LY[1:].flip(0):
            betas.append((self.A + P_Y + betas[-1]).logsumexp(1))
        return (torch.stack(alphas) + torch.stack(betas[::-1])).log_softmax(-1)

    def best(self, P_LY: Tensor) -> list[int]:
        """y*, the best tags of one sentence together, by the Viterbi algorithm."""
        score_Y = self.b_Y + P_LY[0]
        sources: list[list[int]] = []  # the best tag before each tag, from the second word on
        for P_Y in P_LY[1:]:
            score_Y, from_Y = (score_Y[:, None] + self.A).max(0)
            score_Y = score_Y + P_Y
            sources.append(from_Y.tolist())
        tags = [int((score_Y + self.e_Y).argmax())]
        for before in reversed(sources):
            tags.append(before[tags[-1]])
        return tags[::-1]
