"""Searches on record: who looks on while the batches of a prediction are decoded, and what came of it as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regard.data.batch import Tokens
from regard.data.dataset import Encoded
from regard.data.images import Picture
from regard.search import SearchConfig
from regard.search.record import Recorder
from regard.search.rules import Constraints, rules_for
from regard.text.tokenizers import Tokenizer, Tokenizers


class Recorders:
    """A recorder for each batch of inputs; `target` spells what is written."""

    def __init__(self, target: Tokenizer, *, begin_id: int) -> None:
        self._target, self._begin_id = target, begin_id
        self._batches: list[tuple[list[int], Recorder, int]] = []

    def on(self, rows: list[int], source: Tokens, config: SearchConfig, wording: Constraints) -> Recorder:
        """The one who looks on while these rows are decoded."""
        target = self._target
        rules = rules_for(
            source,
            config,
            wording,
            begin_id=self._begin_id,
            end_id=target.end,
            pad_id=target.pad,
            unknown_id=target.unk,
        )
        recorder = Recorder(source, config, rules, target.end)
        self._batches.append((rows, recorder, config.nbest))
        return recorder

    def searches(self, source_of: Callable[[int], list[str]]) -> dict[int, dict[str, Any]]:
        """The search of each row, once all are decoded; `source_of` names the tokens that were read."""
        return {
            row: {"source": source_of(row), **record.to_json(self._target, nbest)}
            for rows, recorder, nbest in self._batches
            for row, record in zip(rows, recorder.records(), strict=True)
        }


def tokens_read(encoded: Encoded, tokenizers: Tokenizers) -> list[str]:
    """The tokens of a source, with `</s>`; the regions of an image as "row,column"."""
    if isinstance(encoded, Picture):
        return encoded.names()
    source = tokenizers["source"]
    return source.tokens([*encoded, source.end])
