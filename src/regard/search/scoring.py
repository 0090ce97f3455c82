"""log P of a given target, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from regard.data.batch import Batch, TextBatch, Tokens
from regard.layers.attention import Recording, recording
from regard.models.base import Generator
from regard.models.contextual import LanguageModel
from regard.search.config import SearchConfig
from regard.search.hypotheses import Hypothesis
from regard.search.looking import looks_at_source, must_look
from regard.search.objective import Objective, coverage

ROWS_AT_ONCE = 1024
"""Target tokens that go through the readout together: logits take vocabulary times as much memory as hidden states."""


def log_probabilities(logits: Tensor) -> Tensor:
    """log softmax over the vocabulary, in float32 at the least whatever precision the model runs in."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


@torch.inference_mode()
def score(model: Generator, batch: Batch) -> list[list[float]]:
    """log P of each target token after `<s>`, given the source and the target before it; one list a sentence.

    The sum of a list is the score that the search reports for a hypothesis of the same tokens.
    """
    assert not model.training, "scoring a model in training mode would score its dropout"
    return _after_the_first(model, model(batch).hidden_BTD, batch.target)


@torch.inference_mode()
def score_texts(model: LanguageModel, text: Tokens) -> list[list[float]]:
    """The same of each token of a text but its first, given those before it."""
    assert not model.training, "scoring a model in training mode would score its dropout"
    return _after_the_first(model, model(TextBatch(text)).hidden_BTD, text)


def _after_the_first(model: Generator, hidden_BTD: Tensor, target: Tokens) -> list[list[float]]:
    lengths_B, targets_BT = target.lengths_B - 1, target.ids_BL[:, 1:]
    real_BT = torch.arange(targets_BT.shape[1], device=lengths_B.device) < lengths_B[:, None]
    hidden_PD, targets_P = hidden_BTD[real_BT], targets_BT[real_BT]
    chunks = zip(torch.split(hidden_PD, ROWS_AT_ONCE), torch.split(targets_P, ROWS_AT_ONCE), strict=True)
    log_p_P = torch.cat([_log_p_of(targets, model.readout(hidden)) for hidden, targets in chunks]).cpu()
    return [tokens.tolist() for tokens in torch.split(log_p_P, (target.host_lengths_B - 1).tolist())]


@torch.inference_mode()
def as_hypotheses(model: Generator, batch: Batch, config: SearchConfig) -> list[Hypothesis]:
    """The given targets as hypotheses, with the score and the objective that a search would give them."""
    looks = config.coverage_penalty > 0
    if looks:
        must_look(model)
    with recording() if looks else nullcontext() as recorded:
        scores = score(model, batch)
    targets = [ids[1 : 1 + len(log_p)] for ids, log_p in zip(batch.target.ids_BL.tolist(), scores, strict=True)]
    totals = [_ranked_by(ids, log_p, config.repetition_penalty) for ids, log_p in zip(targets, scores, strict=True)]
    lengths_B = batch.target.host_lengths_B - 1
    cover_B = None if recorded is None else _coverage(model, batch, recorded)
    objectives = Objective.of(config)(torch.tensor(totals, dtype=torch.float64), lengths_B, cover_B).tolist()
    return [
        Hypothesis(tuple(ids), sum(log_p), objective)
        for ids, log_p, objective in zip(targets, scores, objectives, strict=True)
    ]


def _ranked_by(ids: Sequence[int], log_p: Sequence[float], theta: float) -> float:
    """log P of these tokens, where a token that came before counts theta times."""
    repeated = (token in ids[:place] for place, token in enumerate(ids))
    return sum(theta * one if again else one for again, one in zip(repeated, log_p, strict=True))


def _coverage(model: Generator, batch: Batch, recorded: Recording) -> Tensor:
    """What the attention of the real target positions left out of each source."""
    weights_BTS = looks_at_source(model, recorded)
    lengths_B = batch.target.lengths_B - 1
    real_BT1 = (torch.arange(weights_BTS.shape[1], device=lengths_B.device) < lengths_B[:, None])[..., None]
    attended_B1S = torch.where(real_BT1, weights_BTS, 0.0).sum(1, keepdim=True)
    return coverage(attended_B1S, batch.source.lengths_B)[:, 0].cpu()


def _log_p_of(tokens_P: Tensor, logits_PV: Tensor) -> Tensor:
    return log_probabilities(logits_PV).gather(-1, tokens_P[:, None])[:, 0]
