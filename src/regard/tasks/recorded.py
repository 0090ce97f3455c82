"""Searches on record: who looks on while the batches of a prediction are decoded, and what came of it as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from regard.data.dataset import Encoded
from regard.data.images import Picture
from regard.data.tokenizers import Tokenizers
from regard.search import SearchConfig
from regard.search.limits import Wording
from regard.search.record import Recorder
from regard.search.rules import rules_for
from regard.tasks.inputs import sources_of


class Recorders:
    """A recorder for each batch of encoded inputs."""

    def __init__(
        self,
        tokenizers: Tokenizers,
        encoded: Sequence[Encoded],
        config: SearchConfig,
        wording: Wording,
        device: torch.device,
    ) -> None:
        self._tokenizers, self._config, self._wording, self._device = tokenizers, config, wording, device
        self._sources = encoded
        self._batches: list[tuple[list[int], Recorder]] = []

    def __call__(self, rows: list[int]) -> Recorder:
        """The one who looks on while these rows are decoded."""
        target = self._tokenizers["target"]
        tokens = sources_of([self._sources[row] for row in rows], self._tokenizers).to(self._device)
        rules = rules_for(
            tokens,
            self._config,
            self._wording.of(rows),
            begin_id=target.begin,
            end_id=target.end,
            pad_id=target.pad,
            unknown_id=target.unk,
        )
        recorder = Recorder(tokens, self._config, rules, target.end)
        self._batches.append((rows, recorder))
        return recorder

    def searches(self) -> dict[int, dict[str, Any]]:
        """The search of each row, once all are decoded."""
        target = self._tokenizers["target"]
        return {
            row: {"source": self._named(self._sources[row]), **record.to_json(target, self._config.nbest)}
            for rows, recorder in self._batches
            for row, record in zip(rows, recorder.records(), strict=True)
        }

    def _named(self, encoded: Encoded) -> list[str]:
        """The tokens of a source, with `</s>`; the regions of an image as "row,column"."""
        if isinstance(encoded, Picture):
            return encoded.names()
        source = self._tokenizers["source"]
        return source.tokens([*encoded, source.end])
