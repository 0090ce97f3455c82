"""GloVe's loss: weighted least squares on the logarithms of co-occurrences."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.data.batches import TextBatch
from regard.models.glove import GloVe, pairs_of
from regard.objectives.cross_entropy import Objective


class WeightedLeastSquares(Objective):
    """Pennington et al. 2014, equations 8 and 9, for all pairs of words with X_ij > 0:

        J = sum_ij f(X_ij) (w_i . w~_j + b_i + b~_j - log X_ij)^2
        f(x) = (x / x_max)^alpha  if x < x_max, else 1

    X_ij is a sum of 1 / d over the occurrences of the pair in the training texts. So an occurrence
    with the weight f(X_ij) / X_ij / d gives its share of J, and all batches of an epoch together give
    J. A pair that only the validation has does not count: f(0) = 0.
    """

    is_cross_entropy = False
    model: GloVe

    def __init__(self, model: GloVe) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: TextBatch) -> Tensor:
        config = self.model.config
        pairs = pairs_of(batch.text, config.window)
        X_P = self.model.output.cooccurrences(pairs)
        is_known_P = X_P > 0
        X_P = X_P.clamp(min=torch.finfo(X_P.dtype).tiny)
        f_P = (X_P / config.x_max).clamp(max=1) ** config.alpha
        weight_P = pairs.share_P * f_P / X_P * is_known_P
        errors_P = self.model.log_counts(pairs) - X_P.log()
        loss = (weight_P * errors_P**2).sum()
        return torch.stack([loss, loss.detach()])
