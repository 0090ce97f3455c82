"""An alignment: for each piece written, where in the source the model looked.

The picture of Bahdanau et al. 2015, arXiv:1409.0473, figure 3: the source along the top, the target down the side, one
cell a pair, darker where the weight alpha_ij is larger. Shades run from 0 to the picture's largest weight, and the
legend gives that number, so that the flat attention of many averaged heads still shows where it points.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.views.heatmap import Heatmap, Numbers
from regard.views.labels import FONTS, label
from regard.views.old_terminal import to_terminal
from regard.views.svg import to_svg, write_svg

__all__ = ["FONTS", "Alignment", "to_svg", "to_terminal", "write_svg"]


class Alignment(Heatmap):
    """Where a model looked: `weights[t, s]` is how much of `source[s]` it read when it wrote `target[t]`.

    Also of a text with itself: `target` then are the positions that look, `source` those that are looked at.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]

    def __init__(self, source: Sequence[str], target: Sequence[str], weights: Numbers, title: str = "") -> None:
        _check(source, target, np.asarray(weights))
        object.__setattr__(self, "source", tuple(source))
        object.__setattr__(self, "target", tuple(target))
        super().__init__(tuple(map(label, target)), tuple(map(label, source)), weights, title)

    @property
    def weights(self) -> Numbers:
        """[T, S]; no weight is negative and no row sums to more than 1. Luong's local-p has rows that sum to less."""
        return self.values


def _check(source: Sequence[str], target: Sequence[str], weights: Numbers) -> None:
    if not source or not target:
        raise ValueError("an alignment needs at least one source and one target piece")
    if weights.shape != (len(target), len(source)):
        raise ValueError(f"weights {weights.shape} for {len(target)} target, {len(source)} source pieces")
    if not (weights >= 0).all():
        raise ValueError("attention weights are numbers of 0 or more")
    sums = weights.astype(np.float64).sum(axis=1)
    if sums.max() > 1 + 1e-3:
        row = int(np.argmax(sums))
        raise ValueError(f"a row of weights sums to at most 1, but {row} ({target[row]!r}) to {sums[row]:.4f}")
