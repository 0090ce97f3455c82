"""`training.watch`: what the model makes of one text, at about 20 steps of the training."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from regard.errors import ConfigError, RegardError
from regard.models.base import device_of
from regard.runs.run import Run
from regard.runs.watched import add_watched

WATCHES = 20
"""How often the text is looked at after the first step."""
Look = Callable[[Run, nn.Module, str], dict[str, Any]]
"""What a model makes of a text, as JSON: `look` in views/watching.py."""


class Watch:
    """Looks at the text of `training.watch`, and stores what it sees in the run folder."""

    def __init__(self, run: Run, text: str, look: Look) -> None:
        self.run = run
        self.text = text
        self._look = look

    @staticmethod
    def is_due(step: int, steps: int) -> bool:
        """Whether the text is looked at after this step: before the first one, after the last one,
        and between them more often at the beginning, when most changes."""
        nearest = round(WATCHES * math.sqrt(step / max(1, steps)))
        return step in (0, steps) or step == math.ceil(steps * (nearest / WATCHES) ** 2)

    def look_at(self, model: nn.Module, step: int) -> None:
        """Store what the model makes of the text. The training continues as if nobody had looked:
        random numbers are put back, and so is the mode of the model."""
        training = model.training
        device = device_of(model)
        own = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=own), torch.no_grad():
            model.eval()
            try:
                seen = self._seen(model, step)
            finally:
                model.train(training)
        add_watched(self.run.folder, self.text, {"step": step, **seen})

    def _seen(self, model: nn.Module, step: int) -> dict[str, Any]:
        try:
            return self._look(self.run, model, self.text)
        except RegardError as error:
            if step:  # as of an output that is too long to explain: the next one may be shorter
                return {"problem": str(error)}
            raise ConfigError(str(error), where="training.watch") from None
