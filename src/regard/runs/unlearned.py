"""Positions that a run's model has a row for, but never learned: those beyond the texts that it was trained on."""

from __future__ import annotations

from collections.abc import Sequence

from regard.runs.run import Run
from regard.tasks import PRETRAINING


def unlearned(run: Run, texts: Sequence[str], places: Sequence[str]) -> list[str]:
    """A sentence for each text that reaches beyond what the run was trained on.

    A run that began with another's weights may have learned more positions there, so that nothing is said of it.
    """
    recipe = run.recipe
    positions = getattr(recipe.model, "max_positions", None)
    if not isinstance(run.task, PRETRAINING) or recipe.training.init is not None or positions is None:
        return []
    longest = recipe.data.max_length
    if longest >= positions:
        return []
    tokenizer = run.tokenizers["text"]
    lengths = [len(ids) + 2 for ids in tokenizer.encode_batch([tokenizer.fold(text) for text in texts])]
    return [
        f"{place} has {length:,} tokens with the special ones; the model was trained on at most {longest:,} "
        "(data.max_length), and never learned the positions after them"
        for place, length in zip(places, lengths, strict=True)
        if length > longest
    ]
