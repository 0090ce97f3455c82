"""What passes between a run and a folder of `transformers`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from regard.text.tokenizers import Tokenizers


@dataclass(frozen=True)
class Imported:
    """What a folder holds, in our words."""

    task: str
    model: dict[str, Any]
    """The section `model` of a recipe."""
    weights: dict[str, Tensor]
    tokenizers: Tokenizers
    sections: dict[str, Any] = field(default_factory=dict)
    """Other sections of a recipe, as far as the folder tells."""


@dataclass(frozen=True)
class Exported:
    """What a run holds, in the words of `transformers`."""

    architecture: str
    config: dict[str, Any]
    """config.json."""
    weights: dict[str, Tensor]
    around: tuple[str, ...]
    """What the tokenizer puts around a text, where it does not say so itself; `$A` is the text, `$B` a second one."""
    generation: dict[str, Any] = field(default_factory=dict)
    """generation_config.json, of a model that writes."""
