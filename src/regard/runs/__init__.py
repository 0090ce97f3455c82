"""Run folder, checkpoints, metrics log."""

from regard.runs.run import Run

__all__ = ["Run"]
