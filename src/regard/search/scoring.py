"""The scores of given targets: log P of each token, and what a search would rank them by."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from regard.data.batches import Batch, TextBatch, real_positions
from regard.layers.attention import recording
from regard.models.base import TOKENS_PER_READOUT, Generator
from regard.search.config import SearchConfig
from regard.search.hypotheses import Hypothesis, coverage, objective_of, source_attention


def log_probabilities(logits: Tensor) -> Tensor:
    """log softmax over the vocabulary, in float32 or higher whatever the precision of the model."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


@torch.inference_mode()
def token_scores(model: Generator, batch: Batch[Any] | TextBatch) -> list[list[float]]:
    """log P of each token of the targets (or texts) but the first, given those before it and the
    source, if any.

    The sum of a list is the score that the search reports for a hypothesis of the same tokens.
    """
    assert not model.training, "the model is in training mode, with dropout"
    target = batch.target if isinstance(batch, Batch) else batch.text
    targets_BT = target.ids_BL[:, 1:]
    real_BT = real_positions(target.lengths_B - 1, targets_BT.shape[1])
    parts = zip(
        *(
            torch.split(x[real_BT], TOKENS_PER_READOUT)
            for x in (model(batch).hidden_BTD, targets_BT)
        ),
        strict=True,
    )
    log_p_P = torch.cat(
        [
            log_probabilities(model.readout(hidden)).gather(-1, tokens[:, None])[:, 0]
            for hidden, tokens in parts
        ]
    ).cpu()
    return [
        tokens.tolist() for tokens in torch.split(log_p_P, (target.host_lengths_B - 1).tolist())
    ]


@torch.inference_mode()
def as_hypotheses(model: Generator, batch: Batch[Any], config: SearchConfig) -> list[Hypothesis]:
    """The given targets as hypotheses, with the score and ranking value that a search would give
    them."""
    covered_B = None
    theta = config.repetition_penalty
    with recording() if config.coverage_penalty > 0 else nullcontext() as recorded:
        scores = token_scores(model, batch)
    if recorded is not None:
        weights_BTS = source_attention(model, recorded)
        real_BT = real_positions(batch.target.lengths_B - 1, weights_BTS.shape[1])
        attended_B1S = torch.where(real_BT[..., None], weights_BTS, 0.0).sum(1, keepdim=True)
        covered_B = coverage(attended_B1S, batch.source.lengths_B)[:, 0].cpu()
    targets = [
        ids[1 : 1 + len(log_p)]
        for ids, log_p in zip(batch.target.ids_BL.tolist(), scores, strict=True)
    ]
    totals = [
        sum(
            theta * value if ids[place] in ids[:place] else value
            for place, value in enumerate(log_p)
        )
        for ids, log_p in zip(targets, scores, strict=True)
    ]
    lengths_B = batch.target.host_lengths_B - 1
    objectives = objective_of(
        config, torch.tensor(totals, dtype=torch.float64), lengths_B, covered_B
    ).tolist()
    return [
        Hypothesis(tuple(ids), sum(log_p), objective)
        for ids, log_p, objective in zip(targets, scores, objectives, strict=True)
    ]
