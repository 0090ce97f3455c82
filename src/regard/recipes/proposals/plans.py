"""How the recipes that ship are fitted to an amount of data: plans.yaml, with types."""

from __future__ import annotations

from importlib import resources
from math import ceil
from typing import Any, NamedTuple

from regard.config import parse_yaml


class SettingsByAmount(NamedTuple):
    """The settings that suit an amount of data."""

    below: float
    """The amount: examples, or characters of raw text."""
    preset: str
    vocabulary: int
    epochs: int
    warmup: int
    patience: int | None
    """In validations; None trains to the end, if the validation set is too small to choose by."""
    batch_tokens: int | None
    """None leaves it to `auto`."""
    dropout: float | None = None


class Plan(NamedTuple):
    """How a recipe that ships is fitted to data."""

    recipe: str
    lengths: list[int]
    """Possible values of data.max_length."""
    steps: int
    """The fewest steps worth training for."""
    sizes: list[SettingsByAmount]
    """For growing amounts of data."""
    changes: dict[str, Any]
    """Further changes, by path; None takes a key out."""


PLANS_FILE = resources.files("regard.recipes") / "proposals" / "plans.yaml"
_TREE = parse_yaml(PLANS_FILE.read_text(encoding="utf-8"), "plans.yaml")
COMMENTS: dict[str, str] = _TREE.pop("comments")
"""Comments on settings that are filled in, where those of the recipe that ships do not fit."""
PLANS = {
    task: Plan(**{**plan, "sizes": [SettingsByAmount(**size) for size in plan["sizes"]]})
    for task, plan in _TREE.items()
}


def training_length(
    sizes: SettingsByAmount, tokens: float, batch: int, least: int
) -> dict[str, Any]:
    """How long to train: in epochs, or in steps where an epoch has fewer than 20, too few to
    validate after each.

    `tokens` is the size of the data, four fifths of it for training, `batch` that of a batch,
    `least` the fewest steps. The warm-up is a tenth of all steps at most, and the patience lasts
    twice as long.
    """
    epoch = max(1, int(0.8 * tokens / batch))
    steps = max(least, sizes.epochs * epoch)
    warmup = min(sizes.warmup, steps // 10)
    by_steps = epoch < 20 or sizes.patience is None
    every = steps if sizes.patience is None else max(epoch, 20)
    return {
        "steps": steps if by_steps else None,
        "epochs": None if by_steps else ceil(steps / epoch),
        "validate_every": every if by_steps else None,
        "patience": None
        if sizes.patience is None
        else max(sizes.patience, ceil(2 * warmup / every)),
        "warmup": warmup,
    }
