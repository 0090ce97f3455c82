"""Replaced-token detection: ELECTRA's generator and discriminator, trained together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import MaskedBatch
from regard.engine.shapes import PackedMaskedBatch
from regard.models.base import TOKENS_PER_READOUT
from regard.models.bert import BERT
from regard.objectives.cross_entropy import Objective
from regard.objectives.language_model import MaskedTokens, masked_states

Masked = TypeVar("Masked", bound=MaskedBatch | PackedMaskedBatch)


class ReplacedTokens(Objective):
    """A generator fills masked tokens, and the discriminator tells for every token whether it was
    replaced.

    Clark et al. 2020, arXiv:2003.10555, section 2; x has length n, and m are its masked places:
        x_masked  = REPLACE(x, m, [MASK])
        x^_i      ~ p_G(x_i | x_masked)  for i in m           drawn from the generator's distribution
        x_corrupt = REPLACE(x, m, x^)
        L_MLM(x, theta_G)  = E(sum_{i in m} -log p_G(x_i | x_masked))
        L_Disc(x, theta_D) = E(sum_{t=1}^n -1(x_corrupt_t = x_t) log D(x_corrupt, t)
                                           -1(x_corrupt_t != x_t) log(1 - D(x_corrupt, t)))
        min L_MLM + lambda L_Disc                             lambda = 50
    D is the probability that a token is original. Our logits are those of `replaced`, so D = 1 -
    sigmoid(logit). A draw that is the true token counts as original. No gradient flows through the
    draws.

    As in the paper's code, both are means, over the P masked and the N real tokens. The loss of a
    batch is divided by P, so it is
        loss = sum_P masked + lambda (P / N) sum_N detection
    The plain loss is that of the generator alone, so that its exponential is a perplexity.
    """

    def __init__(self, model: BERT, smoothing: float = 0.0, weight: float = 50.0) -> None:
        """`weight` is lambda."""
        super().__init__()
        self.model = model
        self.weight = weight
        # of the generator's loss; with 0 it stays as it is, and its draws are random tokens
        self.masked_weight = 1.0
        self.masked_tokens = MaskedTokens(model.masked_model, smoothing)

    def forward(self, batch: MaskedBatch | PackedMaskedBatch) -> Tensor:
        generator = self.model.masked_model
        states_PD = masked_states(generator(batch).hidden_BTD, batch)
        masked_2 = self.masked_tokens.total(states_PD, batch.labels_P)
        with torch.no_grad():
            u_P = torch.rand(len(states_PD), device=states_PD.device)
            drawn_P = drawn_tokens(generator.readout(states_PD), u_P)
        corrupted, replaced_BL = with_replaced(batch, drawn_P)
        losses_BL = detection_losses(self.model, corrupted, replaced_BL)
        real_BL = batch.text.is_real
        masked = (batch.labels_P >= 0).sum()
        detection = (losses_BL * real_BL).sum() * masked / real_BL.sum()
        total = self.masked_weight * masked_2[0] + self.weight * detection
        return torch.stack([total, masked_2[1]])


def drawn_tokens(logits_PV: Tensor, u_P: Tensor) -> Tensor:
    """A token for each place, drawn from softmax(logits) by the inverse of its distribution
    function: `u_P` are numbers from 0 to 1."""
    cumulated_PV = logits_PV.float().softmax(-1).cumsum(-1)
    below_P = (cumulated_PV < u_P[:, None]).sum(-1)
    # the sum of a row may be a little less than 1
    return below_P.clamp(max=logits_PV.shape[1] - 1)


def with_replaced(batch: Masked, drawn_P: Tensor) -> tuple[Masked, Tensor]:
    """The batch with drawn tokens at its masked places, and which of all tokens differ from the
    original, in the layout of the batch."""
    read = batch.text.ids
    shown_P = read.flatten().index_select(0, batch.places_P)
    # the places of filler stay as they are
    labelled_P = batch.labels_P >= 0
    original = _put(read, batch.places_P, torch.where(labelled_P, batch.labels_P, shown_P))
    corrupted = _put(read, batch.places_P, torch.where(labelled_P, drawn_P, shown_P))
    text: Any = batch.text.with_ids(corrupted)
    return replace(batch, text=text), corrupted != original


def _put(ids: Tensor, places_P: Tensor, tokens_P: Tensor) -> Tensor:
    return ids.flatten().scatter(0, places_P, tokens_P).view_as(ids)


def detection_losses(
    model: BERT, corrupted: MaskedBatch | PackedMaskedBatch, replaced_BL: Tensor
) -> Tensor:
    """The loss of each token, also on padding."""
    logits_BL = replaced_logits(model, corrupted)
    targets_BL = replaced_BL.to(logits_BL.dtype)
    return F.binary_cross_entropy_with_logits(logits_BL, targets_BL, reduction="none")


def replaced_logits(model: BERT, batch: MaskedBatch | PackedMaskedBatch) -> Tensor:
    """Above 0 if a token was more likely replaced than not; in the layout of the batch."""
    assert model.replaced is not None
    logits_BL: Tensor = model.replaced(model(batch).hidden_BTD)
    return logits_BL.float()


@torch.inference_mode()
def detection_sums(model: BERT, batch: MaskedBatch) -> dict[str, float]:
    """Sums over the real tokens of a batch: the loss of the discriminator, and how many tokens were
    replaced, found, wrongly named, and classified correctly. The draws depend on the batch alone."""
    generator = model.masked_model
    states_PD = masked_states(generator(batch).hidden_BTD, batch)
    random = torch.Generator().manual_seed(batch.examples[0] if batch.examples else 0)
    u_P = torch.rand(len(states_PD), generator=random).to(states_PD.device)
    drawn_P = torch.cat(
        [
            drawn_tokens(generator.readout(states), u)
            for states, u in zip(
                *(torch.split(x, TOKENS_PER_READOUT) for x in (states_PD, u_P)), strict=True
            )
        ]
    )
    corrupted, replaced_BL = with_replaced(batch, drawn_P)
    logits_BL = replaced_logits(model, corrupted)
    losses_BL = F.binary_cross_entropy_with_logits(logits_BL, replaced_BL.float(), reduction="none")
    real_BL = batch.text.is_real
    named_BL = logits_BL > 0
    return {
        "detection_loss": float((losses_BL * real_BL).sum()),
        "tokens": int(real_BL.sum()),
        "replaced": int((replaced_BL & real_BL).sum()),
        "named": int((named_BL & real_BL).sum()),
        "found": int((named_BL & replaced_BL & real_BL).sum()),
        "detected": int(((named_BL == replaced_BL) & real_BL).sum()),
    }
