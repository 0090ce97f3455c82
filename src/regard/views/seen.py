"""What was seen of a model while it read or wrote: its attentions, its mix of layers, what it held for likely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from regard.views.heatmap import Heatmap

CELLS = 24
"""Cells of a bar that is full."""

Kind = Literal["alignment", "encoder", "decoder"]


@dataclass(frozen=True, eq=False)
class Attention:
    """The weights of one attention: `weights[h, q, k]` is how much head h at `queries[q]` read of `keys[k]`."""

    name: str
    """Of the module inside the model."""
    kind: Kind
    layer: int
    """From 1."""
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    weights: npt.NDArray[np.float32]
    visible: npt.NDArray[np.bool_]
    """[Q, K], where it might look."""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "layer": self.layer,
            "queries": self.queries,
            "keys": self.keys,
            "weights": self.weights.tolist(),
            "visible": self.visible.astype(int).tolist(),
        }


@dataclass(frozen=True)
class Mix:
    """How a task mixes the layers that it reads (Peters et al. 2018, equation 1)."""

    names: tuple[str, ...]
    shares: tuple[float, ...]
    """s_j, which sum to 1."""
    gamma: float
    learned: bool

    @property
    def title(self) -> str:
        how = "" if self.learned else "; even, since no task has learned it"
        return f"gamma * sum_j s_j h_j with gamma {self.gamma:.3f}{how}"

    def to_json(self) -> dict[str, Any]:
        shares = dict(zip(self.names, self.shares, strict=True))
        return {"shares": shares, "gamma": self.gamma, "learned": self.learned}

    def heatmap(self) -> Heatmap:
        """Bars from left to right, made of cells: all heat maps can be drawn everywhere."""
        rows = tuple(f"{name} {share:.3f}" for name, share in zip(self.names, self.shares, strict=True))
        marks = tuple(f"{cell / CELLS:g}" if cell % (CELLS // 4) == 0 else "" for cell in range(CELLS))
        bars = np.clip(np.array(self.shares)[:, None] * CELLS - np.arange(CELLS), 0.0, 1.0).astype(np.float64)
        return Heatmap(rows, marks, bars, self.title)


@dataclass(frozen=True)
class Candidate:
    """A token that might have been written, and P(token | source, what was written before it)."""

    token: str
    probability: float


@dataclass(frozen=True)
class Step:
    """One token of the target, its probability, its rank from 1, and the five likeliest at its place."""

    token: str
    probability: float
    rank: int
    candidates: tuple[Candidate, ...]
