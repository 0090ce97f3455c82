"""Hidden states -> what a task asks: one answer for a text, or one for each token."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.batch import Tokens
from regard.models.contextual import last_of, real_BL

Pooling = Literal["first", "last", "mean", "max"]
"""One vector for a text: that of its first or last token, or the mean or the largest values over all."""


class TextHead(nn.Module):
    """An answer for each row of a batch, [B, Y], from one vector.

    c = pool(h)                                   the first token for BERT, the last for GPT, the largest for a CNN
    c = tanh(W_p c + b_p)                         with a pooler, which BERT has from its pre-training
    logits = W dropout(c) + b                     Devlin et al. 2019, arXiv:1810.04805, section 4.1
    """

    def __init__(self, width: int, outputs: int, *, pooling: Pooling, pooler: bool, dropout: float) -> None:
        super().__init__()
        self.pooling: Pooling = pooling
        self.pooler = nn.Linear(width, width) if pooler else None
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, outputs)
        _begin_small(self)

    def forward(self, h_BLD: Tensor, batch: Any) -> Tensor:
        c_BD = pool(h_BLD, batch.text, self.pooling)
        if self.pooler is not None:
            c_BD = torch.tanh(self.pooler(c_BD))
        logits_BY: Tensor = self.linear(self.dropout(c_BD))
        return logits_BY


class ApartHead(nn.Module):
    """An answer for two texts that were read apart, [X, Y], from their vectors u and v; their rows stand in turns.

    Reimers & Gurevych 2019, arXiv:1908.10084, section 3:
        logits = W dropout([u; v; |u - v|]) + b             of classes
        number = w cos(u, v) + b                            of how alike they are
    """

    def __init__(self, width: int, outputs: int, *, pooling: Pooling, dropout: float, number: bool) -> None:
        super().__init__()
        self.pooling: Pooling = pooling
        self.number = number
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(1 if number else 3 * width, outputs)
        _begin_small(self)

    def forward(self, h_BLD: Tensor, batch: Any) -> Tensor:
        c_BD = pool(h_BLD, batch.text, self.pooling)
        u_XD, v_XD = c_BD.view(-1, 2, c_BD.shape[-1]).unbind(1)
        if self.number:
            alike_XY: Tensor = self.linear(F.cosine_similarity(u_XD, v_XD)[:, None])
            return alike_XY
        logits_XY: Tensor = self.linear(self.dropout(torch.cat([u_XD, v_XD, (u_XD - v_XD).abs()], dim=1)))
        return logits_XY


class TokenHead(nn.Module):
    """An answer for each token: logits = W dropout(h) + b, [B, L, Y]."""

    def __init__(self, width: int, outputs: int, *, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, outputs)
        _begin_small(self)

    def forward(self, h_BLD: Tensor, batch: Any) -> Tensor:
        logits_BLY: Tensor = self.linear(self.dropout(h_BLD))
        return logits_BLY


class AskedHead(nn.Module):
    """The same for the tokens of a text and a question before it, where no token has read both.

    Chen et al. 2017, arXiv:1704.00051, section 3.2, with the question's vector as Kim 2014 makes that of a sentence:
        q = max_i h_i                                  over the question
        logits = (W q + w) . dropout(h)                of every token; with w also what it says by itself
    """

    def __init__(self, width: int, outputs: int, *, dropout: float) -> None:
        super().__init__()
        self.outputs = outputs
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, outputs * width)
        _begin_small(self)

    def forward(self, h_BLD: Tensor, batch: Any) -> Tensor:
        asked_BL1 = (real_BL(batch.text) & (batch.segments_BL == 0))[..., None]
        q_BD = h_BLD.masked_fill(~asked_BL1, -torch.inf).amax(1)
        w_BYD = self.linear(q_BD).view(len(q_BD), self.outputs, -1)
        return torch.einsum("bld,byd->bly", self.dropout(h_BLD), w_BYD)


def _begin_small(head: nn.Module) -> None:
    """N(0, 0.02), as BERT's and GPT's own weights began."""
    for module in head.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)


def pool(h_BLD: Tensor, text: Tokens, pooling: Pooling) -> Tensor:
    """[B, L, D] -> [B, D]; padding is left out."""
    if pooling == "first":
        return h_BLD[:, 0]
    if pooling == "last":
        return last_of(h_BLD, text)
    real_BL1 = real_BL(text)[..., None]
    if pooling == "mean":
        return (h_BLD * real_BL1).sum(1) / text.lengths_B[:, None]
    return h_BLD.masked_fill(~real_BL1, -torch.inf).amax(1)
