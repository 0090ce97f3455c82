"""Whose fault an error is: the search's, if the model prefers the reference to what was written; else the model's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from regard.search import Hypothesis
from regard.tasks.inputs import Encoded
from regard.text.normalise import nfc

Verdict = Literal["search", "model"]
VERDICTS: tuple[Verdict, ...] = ("search", "model")

TIE = 1e-5
"""Scores that differ by less than this share are equal: the same sums in another order differ by as much."""
UNKNOWN = "unknown token"
"""A reference that the vocabulary cannot write."""
SPELT_OTHERWISE = "same tokens"
"""An output that differs from the reference only in what the tokenizer does not keep."""

UNKNOWN_NOTE = "the scores of the reference are of its tokens with <unk>, not of the text"


@dataclass(frozen=True)
class Wanted:
    """A source, its reference, and what the model thinks of that: of several references the best by the objective."""

    where: str
    source: str
    reference: str
    references: tuple[str, ...]
    """All that there are."""
    source_ids: Encoded
    tokens: tuple[int, ...]
    """Of the reference, its `</s>` included."""
    log_p: float
    objective: float
    """What the search maximises, for these tokens."""
    forbidden: str | None = None
    """The rule that keeps the search from writing them, if so."""
    unknown: bool = False
    """Whether some of them are unknown: the scores are those of `<unk>` in their place, not of the reference."""


@dataclass(frozen=True)
class Judged:
    """One sentence: what was wanted and what was written."""

    wanted: Wanted
    written: Hypothesis
    output: str
    chrf: float
    """Of the output against the references, this sentence alone."""

    @property
    def exact(self) -> bool:
        """Whether the output is a reference, sign by sign."""
        return nfc(self.output) in map(nfc, self.wanted.references)

    @property
    def error(self) -> bool:
        """Whether the output is worse than the reference."""
        return not self.exact and self.chrf < 100 - 1e-9

    @property
    def verdict(self) -> Verdict:
        """By the objective that the search maximised; the model's where its vocabulary cannot write the reference."""
        return "model" if self.wanted.unknown else verdict_of(self.wanted.objective, self.written.objective)

    @property
    def raw_verdict(self) -> Verdict:
        """The same by log P alone."""
        return "model" if self.wanted.unknown else verdict_of(self.wanted.log_p, self.written.score)

    @property
    def unreachable(self) -> str | None:
        """Why no search could have given the reference, if so."""
        if self.wanted.unknown:
            return UNKNOWN
        return SPELT_OTHERWISE if self.written.tokens == self.wanted.tokens else self.wanted.forbidden

    def to_json(self) -> dict[str, Any]:
        return {
            "where": self.wanted.where,
            "source": self.wanted.source,
            "reference": self.wanted.reference,
            "references": list(self.wanted.references),
            "output": self.output,
            "chrf": self.chrf,
            "exact_match": self.exact,
            "verdict": self.verdict,
            "raw_verdict": self.raw_verdict,
            "reference_log_p": self.wanted.log_p,
            "output_log_p": self.written.score,
            "reference_objective": self.wanted.objective,
            "output_objective": self.written.objective,
            "unreachable": self.unreachable,
            **({"note": UNKNOWN_NOTE} if self.wanted.unknown else {}),
        }


def verdict_of(reference: float, output: float) -> Verdict:
    """A reference that scores higher was missed by the search. One that scores the same was not: the model's fault."""
    return "search" if reference > output and not math.isclose(reference, output, rel_tol=TIE) else "model"


def sentence_chrf(outputs: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool) -> list[float]:
    """sacreBLEU's chrF of each output alone, from 0 to 100, against the closest of its references.

    Both sides in NFC, as in the metrics of a task.
    """
    from sacrebleu.metrics.chrf import CHRF

    chrf = CHRF(lowercase=lowercase)
    pairs = zip(outputs, references, strict=True)
    return [chrf.sentence_score(nfc(one), [*map(nfc, others)]).score for one, others in pairs]


def for_metrics(references: Sequence[Sequence[str]]) -> list[Any]:
    """The references of each sentence as a task's metrics take them: a text, or several where there are several."""
    return [all_of[0] if len(all_of) == 1 else all_of for all_of in references]
