"""log P of a given target, token by token."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.data.batch import Batch
from regard.models.base import Generator

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
    lengths_B = batch.target.lengths_B - 1
    hidden_BTD = model(batch).hidden_BTD
    targets_BT = batch.target.ids_BL[:, 1:]
    real_BT = torch.arange(targets_BT.shape[1], device=lengths_B.device) < lengths_B[:, None]
    hidden_PD, targets_P = hidden_BTD[real_BT], targets_BT[real_BT]
    chunks = zip(torch.split(hidden_PD, ROWS_AT_ONCE), torch.split(targets_P, ROWS_AT_ONCE), strict=True)
    log_p_P = torch.cat([_log_p_of(targets, model.readout(hidden)) for hidden, targets in chunks]).cpu()
    return [tokens.tolist() for tokens in torch.split(log_p_P, (batch.target.host_lengths_B - 1).tolist())]


def _log_p_of(tokens_P: Tensor, logits_PV: Tensor) -> Tensor:
    return log_probabilities(logits_PV).gather(-1, tokens_P[:, None])[:, 0]
