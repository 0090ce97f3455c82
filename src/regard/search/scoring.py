"""log P of a given target, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from regard.data.batch import Batch, TextBatch, Tokens
from regard.layers.attention import Recording, recording
from regard.models.base import Generator, LanguageModel
from regard.search.config import SearchConfig
from regard.search.hypotheses import Hypothesis
from regard.search.ranking import Ranking, coverage, require_source_attention, source_attention

ROWS_AT_ONCE = 1024
"""Target tokens that the readout computes together: logits need far more memory than hidden states."""


def log_probabilities(logits: Tensor) -> Tensor:
    """log softmax over the vocabulary, in float32 or higher whatever the precision of the model."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


@torch.inference_mode()
def score(model: Generator, batch: Batch) -> list[list[float]]:
    """log P of each target token after `<s>`, given the source and the target before it; one list per sentence.

    The sum of a list is the score that the search reports for a hypothesis of the same tokens.
    """
    assert not model.training, "the model is in training mode, with dropout"
    return _token_scores(model, model(batch).hidden_BTD, batch.target)


@torch.inference_mode()
def score_texts(model: LanguageModel, text: Tokens) -> list[list[float]]:
    """log P of each token of a text but its first, given the tokens before it."""
    assert not model.training, "the model is in training mode, with dropout"
    return _token_scores(model, model(TextBatch(text)).hidden_BTD, text)


def _token_scores(model: Generator, hidden_BTD: Tensor, target: Tokens) -> list[list[float]]:
    lengths_B, targets_BT = target.lengths_B - 1, target.ids_BL[:, 1:]
    real_BT = torch.arange(targets_BT.shape[1], device=lengths_B.device) < lengths_B[:, None]
    hidden_PD, targets_P = hidden_BTD[real_BT], targets_BT[real_BT]
    chunks = zip(torch.split(hidden_PD, ROWS_AT_ONCE), torch.split(targets_P, ROWS_AT_ONCE), strict=True)
    log_p_P = torch.cat([_log_p_of(targets, model.readout(hidden)) for hidden, targets in chunks]).cpu()
    return [tokens.tolist() for tokens in torch.split(log_p_P, (target.host_lengths_B - 1).tolist())]


def _log_p_of(tokens_P: Tensor, logits_PV: Tensor) -> Tensor:
    return log_probabilities(logits_PV).gather(-1, tokens_P[:, None])[:, 0]


@torch.inference_mode()
def as_hypotheses(model: Generator, batch: Batch, config: SearchConfig) -> list[Hypothesis]:
    """The given targets as hypotheses, with the score and ranking value that a search would give them."""
    covers = config.coverage_penalty > 0
    if covers:
        require_source_attention(model)
    with recording() if covers else nullcontext() as recorded:
        scores = score(model, batch)
    targets = [ids[1 : 1 + len(log_p)] for ids, log_p in zip(batch.target.ids_BL.tolist(), scores, strict=True)]
    theta = config.repetition_penalty
    totals = [_penalised_total(ids, log_p, theta) for ids, log_p in zip(targets, scores, strict=True)]
    lengths_B = batch.target.host_lengths_B - 1
    covered_B = None if recorded is None else _coverage(model, batch, recorded)
    objectives = Ranking.of(config)(torch.tensor(totals, dtype=torch.float64), lengths_B, covered_B).tolist()
    return [
        Hypothesis(tuple(ids), sum(log_p), objective)
        for ids, log_p, objective in zip(targets, scores, objectives, strict=True)
    ]


def _penalised_total(ids: Sequence[int], log_p: Sequence[float], theta: float) -> float:
    """log P of the tokens; that of a repeated token counts theta times."""
    repeated = (token in ids[:place] for place, token in enumerate(ids))
    return sum(theta * value if again else value for again, value in zip(repeated, log_p, strict=True))


def _coverage(model: Generator, batch: Batch, recorded: Recording) -> Tensor:
    """The coverage of each source by the attention of the real target positions, [B]."""
    weights_BTS = source_attention(model, recorded)
    lengths_B = batch.target.lengths_B - 1
    real_BT1 = (torch.arange(weights_BTS.shape[1], device=lengths_B.device) < lengths_B[:, None])[..., None]
    attended_B1S = torch.where(real_BT1, weights_BTS, 0.0).sum(1, keepdim=True)
    return coverage(attended_B1S, batch.source.lengths_B)[:, 0].cpu()
