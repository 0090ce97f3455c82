"""How much data there is -> what sizes suit it, how long to train, how slowly to begin and how often to look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TypeVar

SHORT = 20
"""Steps of an epoch, below which validations come by steps instead."""
TRAINING_SHARE = 0.8
"""Of the data, less what is set aside."""


@dataclass(frozen=True)
class Pace:
    """What the section `training` is to say."""

    steps: int
    """All of them; an estimate from below where epochs are given."""
    epochs: int | None
    """Passes over the data, where one is long enough to end in a validation."""
    validate_every: int
    warmup: int
    patience: int | None

    def lines(self) -> Iterator[tuple[str, str]]:
        """When the training ends."""
        if self.epochs is not None:
            yield f"  epochs: {self.epochs}", "passes over the data, at the most"
        else:
            yield f"  steps: {self.steps}", "updates, at the most; there is too little data to count by epochs"
            yield f"  validate_every: {self.validate_every}", "steps" if self.patience else "steps: only at the end"
        if self.patience is not None:
            yield f"  patience: {self.patience}", "stop after so many validations without a better one"


@dataclass(frozen=True)
class Sizes:
    """What suits so much data."""

    below: float
    """The amount from which on the next ones do."""
    preset: str
    vocabulary: int
    epochs: int
    warmup: int
    patience: int | None
    """Validations; None is for data of which nothing that is set aside could choose a checkpoint."""

    def pace(self, size: float, batch: int, *, steps: int) -> Pace:
        """The epochs, or as many more as make `steps`; a warm-up of at most a tenth of them.

        `size` is all the data and `batch` a batch of it, in tokens. Patience lasts for twice the warm-up at the least;
        without it there is one validation, at the end.
        """
        an_epoch = max(1, int(TRAINING_SHARE * size / batch))
        steps = max(steps, self.epochs * an_epoch)
        warmup = min(self.warmup, steps // 10)
        validate_every = steps if self.patience is None else max(an_epoch, SHORT)
        return Pace(
            steps=steps,
            epochs=None if an_epoch < SHORT or self.patience is None else ceil(steps / an_epoch),
            validate_every=validate_every,
            warmup=warmup,
            patience=None if self.patience is None else max(self.patience, ceil(2 * warmup / validate_every)),
        )


S = TypeVar("S", bound=Sizes)


def suiting(choices: Sequence[S], amount: float) -> S:
    """The first whose limit the data is below."""
    return next(sizes for sizes in choices if amount < sizes.below)
