"""Search errors and model errors: did the search miss a reference that the model prefers, or does
the model prefer the output? If a rule of the search forbids the reference, the error is neither.
References are scored, outputs judged, and errors counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from regard.data.dataset import Dataset
from regard.models.base import Generator
from regard.runs import Run
from regard.search.config import SearchConfig
from regard.search.hypotheses import Hypothesis, Live
from regard.search.rules import Rules
from regard.tasks.answers import Done, ignore
from regard.tasks.pairs import TargetTexts
from regard.tasks.reading import by_length, padded
from regard.tasks.written import Source
from regard.text.normalise import nfc
from regard.views.labels import percent

Verdict = Literal["search", "model", "rule"]
ERROR_KINDS: dict[Verdict, str] = {
    "search": "search errors",
    "model": "model errors",
    "rule": "rule errors",
}

SCORE_TOLERANCE = 1e-5
"""Scores that differ by less than this share are equal: the same sum in another order differs by as
much."""
UNKNOWN_TOKEN = "unknown token"
"""A reference that the vocabulary cannot write."""
SAME_TOKENS = "same tokens"
"""An output that differs from the reference only in what the tokenizer does not keep."""
UNKNOWN_REFERENCE_NOTE = (
    "the reference is scored with <unk> for its unknown tokens, not as the text itself"
)
TOKENS_PER_BATCH = 2_048
"""Padded tokens of references that are checked against the rules in one batch."""
MAX_BUCKETS = 8
"""Maximum number of groups of sentences by length."""
OUTLIER_SHARE = 0.01
"""The share of sentences at either end that get no group of their own: they join the first and the
last one."""


@dataclass(frozen=True)
class ScoredReference:
    """A source and its reference, with the model's scores; of several references the best by the
    objective."""

    where: str
    source: str
    reference: str
    references: tuple[str, ...]
    source_ids: Source
    best: Hypothesis
    """The reference as if the search had written it, its `</s>` included."""
    forbidden: str | None
    """The rule that keeps the search from writing it, if any."""
    unknown: bool
    """Whether some tokens are unknown: the scores are those of `<unk>` in their place, not of the
    reference."""


@dataclass(frozen=True)
class JudgedOutput:
    """One sentence: its reference and its output."""

    scored: ScoredReference
    written: Hypothesis
    output: str
    chrf: float
    """Sentence chrF of the output against the references."""

    @property
    def exact(self) -> bool:
        """Whether the output is a reference, character by character."""
        return nfc(self.output) in map(nfc, self.scored.references)

    @property
    def error(self) -> bool:
        """Whether the output is worse than the reference."""
        return not self.exact and self.chrf < 100 - 1e-9

    @property
    def verdict(self) -> Verdict:
        """The verdict by the objective that the search maximised; `model` if the vocabulary cannot
        write the reference, `rule` if a rule of the search forbids it."""
        return self._verdict(self.scored.best.objective, self.written.objective)

    @property
    def raw_verdict(self) -> Verdict:
        """The verdict by log P alone."""
        return self._verdict(self.scored.best.score, self.written.score)

    def _verdict(self, reference: float, output: float) -> Verdict:
        if self.scored.forbidden and not self.scored.unknown:
            return "rule"
        return "model" if self.scored.unknown else verdict_of(reference, output)

    @property
    def unreachable(self) -> str | None:
        """Why no search could have given the reference; None if one could."""
        if self.scored.unknown:
            return UNKNOWN_TOKEN
        return (
            SAME_TOKENS if self.written.tokens == self.scored.best.tokens else self.scored.forbidden
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "where": self.scored.where,
            "source": self.scored.source,
            "reference": self.scored.reference,
            "references": list(self.scored.references),
            "output": self.output,
            "chrf": self.chrf,
            "exact_match": self.exact,
            "verdict": self.verdict,
            "raw_verdict": self.raw_verdict,
            "reference_log_p": self.scored.best.score,
            "output_log_p": self.written.score,
            "reference_objective": self.scored.best.objective,
            "output_objective": self.written.objective,
            "unreachable": self.unreachable,
            **({"note": UNKNOWN_REFERENCE_NOTE} if self.scored.unknown else {}),
        }


def verdict_of(reference: float, output: float) -> Verdict:
    """A reference that scores higher was missed by the search. One that scores the same is a model
    error."""
    return (
        "search"
        if reference > output and not math.isclose(reference, output, rel_tol=SCORE_TOLERANCE)
        else "model"
    )


def decode_best(
    run: Run,
    model: Generator,
    sources: Sequence[Source],
    config: SearchConfig,
    progress: Done = ignore,
) -> list[Hypothesis]:
    best: dict[int, Hypothesis] = {}
    for rows, nbest in run.task.views.target_texts.decode(model, sources, config):
        best.update((row, hypotheses[0]) for row, hypotheses in zip(rows, nbest, strict=True))
        progress(len(rows))
    return [best[row] for row in range(len(sources))]


def judge(
    run: Run, scored: Sequence[ScoredReference], written: Sequence[Hypothesis]
) -> list[JudgedOutput]:
    outputs = [run.tokenizers["target"].decode(hypothesis.tokens) for hypothesis in written]
    chrf = sentence_chrf(run, outputs, [sentence.references for sentence in scored])
    return [JudgedOutput(*columns) for columns in zip(scored, written, outputs, chrf, strict=True)]


def metrics_of(
    run: Run, outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, float]:
    """The task's metrics, without the signatures."""
    metrics = run.task.views.compared_texts.text_scores(outputs, references)
    return {name: value for name, value in metrics.items() if isinstance(value, float)}


def sentence_chrf(
    run: Run, outputs: Sequence[str], references: Sequence[Sequence[str]]
) -> list[float]:
    """sacreBLEU's chrF of each output alone, from 0 to 100, against the closest of its references,
    all in NFC."""
    from sacrebleu.metrics.chrf import CHRF

    chrf = CHRF(lowercase=getattr(run.recipe.evaluation, "lowercase", False))
    pairs = zip(outputs, references, strict=True)
    return [chrf.sentence_score(nfc(output), [*map(nfc, texts)]).score for output, texts in pairs]


def score_references(
    run: Run, model: Generator, dataset: Dataset, inputs: Sequence[Sequence[int]]
) -> list[ScoredReference]:
    """Inputs, each given by its examples, with the scores of the reference that has the best
    objective; references that the vocabulary can write come first."""
    config = run.recipe.search
    texts = dataset.texts["target"]
    target = run.tokenizers["target"]
    rows = [row for examples in inputs for row in examples]
    targets = [dataset.columns["target"][row].tolist() for row in rows]
    written = run.task.views.target_texts
    sources = [written.sources.of(dataset, row) for row in rows]
    scored = written.hypotheses(model, sources, targets, config)
    hypotheses = dict(zip(rows, scored, strict=True))
    with_unknown = [row for row in rows if target.unk in hypotheses[row].tokens]
    # A text that itself says `<unk>` may be written, if the search may write it.
    unknown = {
        row for row in with_unknown if not config.unknown or any(target.unknown_words([texts[row]]))
    }
    best = [
        max(examples, key=lambda row: (row not in unknown, hypotheses[row].objective))
        for examples in inputs
    ]
    sources = [written.sources.of(dataset, row) for row in best]
    forbidden = why_forbidden(written, sources, [hypotheses[row].tokens for row in best], config)
    return [
        ScoredReference(
            dataset.where(row),
            dataset.texts["source"][row],
            texts[row],
            tuple(texts[example] for example in examples),
            source,
            hypotheses[row],
            reason,
            row in unknown,
        )
        for row, examples, source, reason in zip(best, inputs, sources, forbidden, strict=True)
    ]


def why_forbidden(
    written: TargetTexts,
    sources: Sequence[Source],
    targets: Sequence[Sequence[int]],
    config: SearchConfig,
) -> list[str | None]:
    """The first rule of the search that forbids each target, which ends in `</s>`; None if none
    does."""
    target = written.tokenizer
    wording = written.wording(config, len(sources))
    reasons_of: dict[int, str | None] = {}
    for rows in by_length([len(ids) for ids in targets], TOKENS_PER_BATCH):
        batch = written.sources.batch([sources[row] for row in rows])
        rules = Rules(batch, config, wording.of(rows), written.special)
        ids_BT = padded([targets[row] for row in rows], target.pad).ids_BL
        like_B1V = torch.zeros(len(rows), 1, target.size)
        for step in range(ids_BT.shape[1]):
            live = Live(torch.arange(len(rows)), ids_BT[:, None, :step], torch.zeros(len(rows), 1))
            reasons_B = rules.reasons(like_B1V, live)[:, 0].gather(1, ids_BT[:, step, None])[:, 0]
            for row, reason in zip(rows, reasons_B.tolist(), strict=True):
                if reason and step < len(targets[row]) and row not in reasons_of:
                    reasons_of[row] = (
                        UNKNOWN_TOKEN
                        if targets[row][step] == target.unk
                        else rules.names[reason - 1]
                    )
    return [reasons_of.get(row) for row in range(len(targets))]


class Share(NamedTuple):
    """A share with its 95 % interval."""

    share: float
    low: float
    high: float

    @classmethod
    def of(cls, count: int, total: int) -> Share:
        """Wilson 1927, "Probable Inference, the Law of Succession, and Statistical Inference", with
        p = count / n:

        (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)
        """
        if total == 0:
            return cls(0.0, 0.0, 1.0)
        p = count / total
        z2_n = 1.959964**2 / total
        middle = p + z2_n / 2
        half = math.sqrt(z2_n * p * (1 - p) + (z2_n / 2) ** 2)
        low, high = (middle - half) / (1 + z2_n), (middle + half) / (1 + z2_n)
        return cls(p, 0.0 if count == 0 else low, 1.0 if count == total else high)


@dataclass(frozen=True)
class Tally:
    """The errors among some sentences."""

    sentences: int
    errors: int
    search_errors: int
    model_errors: int
    rule_errors: int
    chrf: float
    """The mean over the sentences."""

    @classmethod
    def of(cls, judged: Sequence[JudgedOutput]) -> Tally:
        verdicts = [sentence.verdict for sentence in judged if sentence.error]
        mean = sum(sentence.chrf for sentence in judged) / len(judged)
        search, model, rule = map(verdicts.count, ERROR_KINDS)
        return cls(len(judged), len(verdicts), search, model, rule, mean)

    @property
    def counts(self) -> dict[str, int]:
        return {name: value for name, value in vars(self).items() if name != "chrf"}

    @property
    def shares(self) -> dict[str, Share]:
        """The share of errors among the sentences, and of each kind among the errors."""
        kinds = {
            f"{kind}_errors": Share.of(self.counts[f"{kind}_errors"], self.errors)
            for kind in ERROR_KINDS
        }
        return {"errors": Share.of(self.errors, self.sentences), **kinds}

    @property
    def row(self) -> dict[str, float]:
        _, low, high = self.shares["search_errors"]
        return {**self.counts, "search_errors_low": low, "search_errors_high": high}

    @property
    def share_texts(self) -> dict[str, str]:
        """The shares with their intervals, as texts; without errors, kinds of errors have no
        share."""
        return {
            name: f"{percent(share)} ({100 * low:.0f}–{100 * high:.0f})"
            if self.errors or name == "errors"
            else "–"
            for name, (share, low, high) in self.shares.items()
        }

    def to_json(self) -> dict[str, Any]:
        shares = {name: share._asdict() for name, share in self.shares.items()}
        return {**self.counts, "shares": shares, "sentence_chrf": self.chrf}


class Bucket(NamedTuple):
    """The sentences of `shortest` to `longest` words or characters."""

    shortest: int
    longest: int
    rows: Sequence[int]
    mean: float
    """The mean of their lengths."""

    @property
    def name(self) -> str:
        return (
            str(self.shortest)
            if self.shortest == self.longest
            else f"{self.shortest}–{self.longest}"
        )


def lengths_of(texts: Sequence[str]) -> tuple[Literal["words", "characters"], list[int]]:
    """Lengths in words, or in characters if the texts are mostly single words: dates, spellings,
    scripts without spaces."""
    words = [len(text.split()) for text in texts]
    return (
        ("words", words) if np.mean(words) >= 2 else ("characters", [len(text) for text in texts])
    )


def length_buckets(lengths: Sequence[int]) -> list[Bucket]:
    """1 to 10, 11 to 20, ... : of the widths 1, 2, 5, 10, 20, ... the narrowest that needs no more
    than MAX_BUCKETS.

    Ends are round, except where sentences beyond them have joined.
    """
    low, high = (
        int(np.quantile(lengths, share, method="nearest"))
        for share in (OUTLIER_SHARE, 1 - OUTLIER_SHARE)
    )
    widths = (factor * 10**power for power in count() for factor in (1, 2, 5))
    width = next(
        width for width in widths if (high - 1) // width - (low - 1) // width < MAX_BUCKETS
    )
    rows: dict[int, list[int]] = {}
    for row, length in enumerate(lengths):
        rows.setdefault((min(max(length, low), high) - 1) // width, []).append(row)
    buckets = []
    for number in sorted(rows):
        own = [lengths[row] for row in rows[number]]
        shortest = min(number * width + 1, *own)
        longest = max((number + 1) * width, *own)
        buckets.append(Bucket(shortest, longest, rows[number], float(np.mean(own))))
    return buckets
