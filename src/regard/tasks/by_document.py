"""How well each document is predicted, one by one: what models are compared by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.data.raw import Pieces
from regard.data.segments import Segments
from regard.models.base import device_of
from regard.models.bert import BERT
from regard.objectives.language_model import Predicted, TextLoss, masked_states, predicted_by

AT_ONCE = 8_192
"""Padded tokens that are read at once."""
LOGITS = 2**24
"""Logits that stand in memory together."""
Sums = NDArray[np.float64]
Progress = Callable[[int], None]


@torch.inference_mode()
def document_losses(objective: TextLoss, examples: Pieces, progress: Progress = lambda done: None) -> Sums:
    """The summed cross-entropy of each document's tokens, its end included, in nats: [documents].

    Where a model reads in both directions, the mean of the two.
    """
    found = np.zeros(len(examples.text))
    for rows, predicted in predicted_by(objective, examples, AT_ONCE):
        losses_P = torch.stack([token_losses(objective.model, one)[0] for one in predicted]).mean(0)
        places = np.concatenate([np.arange(examples.starts[row], examples.stops[row]) for row in rows])
        np.add.at(found, examples.text.document_at(places), losses_P.cpu().numpy())
        progress(len(rows))
    return found


@torch.inference_mode()
def document_masks(model: BERT, examples: Segments, progress: Progress = lambda done: None) -> Sums:
    """Of each document: the summed cross-entropy of its masked tokens, how many were found, how many there are."""
    found, shown = np.zeros((len(examples.text), 3)), examples.shown(0, 0)
    for rows in examples.measured(AT_ONCE):
        batch = examples.batch(rows).to(device_of(model))
        losses_P, right_P = token_losses(model, (masked_states(model(batch).hidden_BTD, batch), batch.labels_P))
        owners = rows[(batch.places_P // batch.text.ids_BL.shape[1]).cpu().numpy()]
        counted = np.stack([losses_P.cpu().numpy(), right_P.cpu().numpy(), np.ones(len(owners))], axis=1)
        np.add.at(found, examples.text.document_at(shown.a_starts[owners]), counted)
        progress(len(rows))
    return found


def token_losses(model: Any, predicted: Predicted) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each token [P] in double precision, and whether it is the likeliest of all."""
    losses, right = [], []
    for hidden_PD, labels_P in zip(*(torch.split(one, _rows(model)) for one in predicted), strict=True):
        logits_PV = model.readout(hidden_PD).float()
        losses.append(F.cross_entropy(logits_PV, labels_P, reduction="none").double())
        right.append(logits_PV.argmax(-1) == labels_P)
    return torch.cat(losses), torch.cat(right)


def _rows(model: Any) -> int:
    vocabulary: int = max(parameter.shape[0] for parameter in model.output.parameters())
    return max(1, LOGITS // vocabulary)
