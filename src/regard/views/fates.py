"""Where a reference fell off the beam: its beginning is followed through the search, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from regard.search.hypotheses import NEVER, Choice, Live
from regard.search.ranking import penalise_repetition


@dataclass(frozen=True)
class Fate:
    """What became of a reference in the search.

    `fell`: at this step it ranked behind the open slots; `forbidden`: at this step its token may not be written;
    `finished`: it was written to its end, and another one won; `left`: it was still in the beam when the search was
    over, with no chance to win.
    """

    kind: Literal["fell", "forbidden", "finished", "left"]
    step: int
    """Counted from 1: the number of the token in the reference, `</s>` included."""
    rank: int | None = None
    """Its place among all candidates of the step, from 1; none where it may not be written."""
    slots: int = 0
    """How many candidates the step took."""

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "step": self.step, "rank": self.rank, "slots": self.slots}


class ReferenceWatch:
    """Looks on while a batch is searched and finds the fate of each sentence's reference."""

    def __init__(self, references: Sequence[Sequence[int]], device: torch.device | str, theta: float = 1.0) -> None:
        """`references` end in `</s>`; `theta` is the search's repetition penalty."""
        self._theta = theta
        self._lengths = [len(ids) for ids in references]
        longest = max(self._lengths)
        rows = [[*ids, *[-1] * (longest - len(ids))] for ids in references]
        self._reference_BT = torch.tensor(rows, device=device)
        self._settled: dict[int, Fate] = {}
        self._reached = [0] * len(references)

    @property
    def fates(self) -> list[Fate]:
        """Of each sentence, once the search is over."""
        return [self._settled.get(b, Fate("left", reached)) for b, reached in enumerate(self._reached)]

    def step(self, log_p_BWV: Tensor, allowed_BWV: Tensor, live: Live, choice: Choice) -> None:
        written = live.history_BWT.shape[-1]
        if written >= self._reference_BT.shape[1]:
            return
        reference_BT = self._reference_BT[live.sentences_B, : written + 1]
        follows_BW = (live.history_BWT == reference_BT[:, None, :written]).all(-1) & (live.total_BW > NEVER)
        slot_B, token_B = follows_BW.int().argmax(-1), reference_BT[:, written]
        ranks_BWV = penalise_repetition(log_p_BWV.clone(), live.history_BWT, self._theta) + live.total_BW[..., None]
        candidates_BM = ranks_BWV.masked_fill(~allowed_BWV, NEVER).flatten(1)
        place_B1 = (slot_B * log_p_BWV.shape[-1] + token_B.clamp(min=0))[:, None]
        allowed_B = allowed_BWV.flatten(1).gather(1, place_B1)[:, 0]
        taken_BW = choice.total_BW > NEVER
        kept_B = (taken_BW & (choice.parents_BW == slot_B[:, None]) & (choice.tokens_BW == token_B[:, None])).any(-1)
        columns = (
            live.sentences_B,
            follows_BW.any(-1),
            kept_B,
            allowed_B,
            _ranks(candidates_BM, place_B1),
            taken_BW.sum(-1),
        )
        for row in zip(*(column.tolist() for column in columns), strict=True):
            self._note(written + 1, *row)

    def _note(self, step: int, sentence: int, followed: bool, kept: bool, allowed: bool, rank: int, slots: int) -> None:
        if not followed or sentence in self._settled or step > self._lengths[sentence]:
            return
        self._reached[sentence] = step
        if not allowed:
            self._settled[sentence] = Fate("forbidden", step, None, slots)
        elif not kept:
            self._settled[sentence] = Fate("fell", step, rank, slots)
        elif step == self._lengths[sentence]:
            self._settled[sentence] = Fate("finished", step, rank, slots)


def _ranks(candidates_BM: Tensor, place_B1: Tensor) -> Tensor:
    """The rank of the candidate at each place, from 1; among equals the first comes first."""
    total_B1 = candidates_BM.gather(1, place_B1)
    before_BM = torch.arange(candidates_BM.shape[1], device=place_B1.device) < place_B1
    return 1 + ((candidates_BM > total_B1) | ((candidates_BM == total_B1) & before_BM)).sum(-1)
