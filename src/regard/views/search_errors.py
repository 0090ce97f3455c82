"""Search errors and model errors: did the search miss a reference that the model prefers, or does the model prefer
what was written? References are scored, outputs judged, errors counted, and references followed through the search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from regard.data.dataset import Dataset
from regard.models.base import Generator
from regard.runs import Run
from regard.search import Hypothesis, SearchConfig
from regard.search.hypotheses import NEVER, Choice, Live, penalise_repetition
from regard.search.rules import Rules, rules_for
from regard.tasks.task import by_length, padded
from regard.tasks.text_to_text import Source, TextToText, special_ids, wording_of
from regard.text.normalise import nfc
from regard.views.lengths import LengthBucket, length_buckets

Verdict = Literal["search", "model"]
VERDICTS: tuple[Verdict, ...] = ("search", "model")

TIE = 1e-5
"""Scores that differ by less than this share are equal: the same sums in another order differ by as much."""
UNKNOWN = "unknown token"
"""A reference that the vocabulary cannot write."""
SAME_TOKENS = "same tokens"
"""An output that differs from the reference only in what the tokenizer does not keep."""
UNKNOWN_NOTE = "the scores of the reference are of its tokens with <unk>, not of the text"
AT_ONCE = 2_048
"""Padded tokens of references that are checked against the rules together."""


# ----------------------------------------------------------------------------------------------------- one sentence


@dataclass(frozen=True)
class Scored:
    """A source and its reference, with the model's scores; of several references the best by the objective."""

    where: str
    source: str
    reference: str
    references: tuple[str, ...]
    """All that there are."""
    source_ids: Source
    tokens: tuple[int, ...]
    """Of the reference, its `</s>` included."""
    log_p: float
    objective: float
    """What the search maximises, for these tokens."""
    forbidden: str | None = None
    """The rule that keeps the search from writing them, if any."""
    unknown: bool = False
    """Whether some of them are unknown: the scores are those of `<unk>` in their place, not of the reference."""


@dataclass(frozen=True)
class Judged:
    """One sentence: its reference and what was written."""

    scored: Scored
    written: Hypothesis
    output: str
    chrf: float
    """Of the output against the references, this sentence alone."""

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
        """By the objective that the search maximised; `model` where its vocabulary cannot write the reference."""
        return "model" if self.scored.unknown else verdict_of(self.scored.objective, self.written.objective)

    @property
    def raw_verdict(self) -> Verdict:
        """The same by log P alone."""
        return "model" if self.scored.unknown else verdict_of(self.scored.log_p, self.written.score)

    @property
    def unreachable(self) -> str | None:
        """Why no search could have given the reference, if so."""
        if self.scored.unknown:
            return UNKNOWN
        return SAME_TOKENS if self.written.tokens == self.scored.tokens else self.scored.forbidden

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
            "reference_log_p": self.scored.log_p,
            "output_log_p": self.written.score,
            "reference_objective": self.scored.objective,
            "output_objective": self.written.objective,
            "unreachable": self.unreachable,
            **({"note": UNKNOWN_NOTE} if self.scored.unknown else {}),
        }


def decode_best(
    run: Run, model: Generator, sources: Sequence[Source], config: SearchConfig, moved: Callable[[int], None]
) -> list[Hypothesis]:
    """The best hypothesis for each source; `moved` is told how many more are done."""
    best: dict[int, Hypothesis] = {}
    for rows, nbest in run.task.decode(model, sources, config):
        best.update((row, hypotheses[0]) for row, hypotheses in zip(rows, nbest, strict=True))
        moved(len(rows))
    return [best[row] for row in range(len(sources))]


def judge(run: Run, scored: Sequence[Scored], written: Sequence[Hypothesis], *, lowercase: bool) -> list[Judged]:
    outputs = [run.tokenizers["target"].decode(hypothesis.tokens) for hypothesis in written]
    chrf = sentence_chrf(outputs, [sentence.references for sentence in scored], lowercase=lowercase)
    return [Judged(*columns) for columns in zip(scored, written, outputs, chrf, strict=True)]


def verdict_of(reference: float, output: float) -> Verdict:
    """A reference that scores higher was missed by the search. One that scores the same is a model error."""
    return "search" if reference > output and not math.isclose(reference, output, rel_tol=TIE) else "model"


def sentence_chrf(outputs: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool) -> list[float]:
    """sacreBLEU's chrF of each output alone, from 0 to 100, against the closest of its references, all in NFC."""
    from sacrebleu.metrics.chrf import CHRF

    chrf = CHRF(lowercase=lowercase)
    pairs = zip(outputs, references, strict=True)
    return [chrf.sentence_score(nfc(output), [*map(nfc, texts)]).score for output, texts in pairs]


# ------------------------------------------------------------------------------------------------------- references


def score_references(
    run: Run, model: Generator, dataset: Dataset, inputs: Sequence[Sequence[int]], config: SearchConfig
) -> list[Scored]:
    """Inputs, each given by its examples, with the scores of the reference that has the best objective; references
    that the vocabulary can write come first."""
    rows = [row for examples in inputs for row in examples]
    targets = [dataset.columns["target"][row].tolist() for row in rows]
    scored = run.task.hypotheses(model, [run.task.source(dataset, row) for row in rows], targets, config)
    hypotheses = dict(zip(rows, scored, strict=True))
    texts, target = dataset.texts["target"], run.tokenizers["target"]
    with_unknown = [row for row in rows if target.unk in hypotheses[row].tokens]
    # A text that itself says `<unk>` may be written, if the search may write it.
    unknown = {row for row in with_unknown if not config.unknown or any(target.unknown_words([texts[row]]))}
    best = [max(examples, key=lambda row: (row not in unknown, hypotheses[row].objective)) for examples in inputs]
    sources = [run.task.source(dataset, row) for row in best]
    forbidden = why_forbidden(run.task, sources, [hypotheses[row].tokens for row in best], config)
    columns = zip(best, inputs, sources, forbidden, strict=True)
    return [
        Scored(
            dataset.where(row), dataset.texts["source"][row], texts[row], tuple(texts[example] for example in examples),
            source, hypotheses[row].tokens, hypotheses[row].score, hypotheses[row].objective, reason, row in unknown,
        )
        for row, examples, source, reason in columns
    ]  # fmt: skip


def why_forbidden(
    task: TextToText, sources: Sequence[Source], targets: Sequence[Sequence[int]], config: SearchConfig
) -> list[str | None]:
    """The first rule of the search that forbids each target, which ends in `</s>`; None if none does."""
    target = task.tokenizers["target"]
    wording = wording_of(target, config, None, len(sources))
    reasons_of: dict[int, str | None] = {}
    for rows in by_length([len(ids) for ids in targets], AT_ONCE):
        batch = task.source_batch([sources[row] for row in rows])
        rules = rules_for(batch, config, wording.of(rows), **special_ids(target, target.begin))
        reasons_BT = _reasons(rules, padded([targets[row] for row in rows], target.pad).ids_BL, target.size)
        for row, reasons in zip(rows, reasons_BT.tolist(), strict=True):
            pairs = zip(targets[row], reasons, strict=False)
            first = next(((token, reason) for token, reason in pairs if reason), None)
            reasons_of[row] = first and (UNKNOWN if first[0] == target.unk else rules.names[first[1] - 1])
    return [reasons_of[row] for row in range(len(targets))]


def _reasons(rules: Rules, ids_BT: Tensor, vocabulary: int) -> Tensor:
    """`Rules.reasons` of each token where those before it are written: 0 where it is allowed."""
    sentences_B, total_B1 = torch.arange(len(ids_BT)), torch.zeros(len(ids_BT), 1)
    reasons = [
        rules.reasons(torch.zeros(len(ids_BT), 1, vocabulary), Live(sentences_B, ids_BT[:, None, :step], total_B1))
        .squeeze(1)
        .gather(1, ids_BT[:, step, None])
        for step in range(ids_BT.shape[1])
    ]
    return torch.cat(reasons, dim=1)


@dataclass(frozen=True)
class Outcome:
    """What became of a reference in the search.

    `fell`: at this step it ranked behind the open slots; `forbidden`: at this step its token may not be written;
    `finished`: it was written to its end, and another one won; `left`: it was still in the beam when the search was
    over, with no chance to win.
    """

    kind: Literal["fell", "forbidden", "finished", "left"]
    step: int
    """From 1: the number of the token in the reference, `</s>` included."""
    rank: int | None = None
    """Its rank among all candidates of the step, from 1; None where it may not be written."""
    slots: int = 0
    """How many candidates the step took."""


class ReferenceWatch:
    """Observer of the search of a batch that finds the outcome of each sentence's reference."""

    def __init__(self, references: Sequence[Sequence[int]], device: torch.device | str, theta: float = 1.0) -> None:
        """`references` end in `</s>`; `theta` is the search's repetition penalty."""
        self._theta = theta
        self._lengths = [len(ids) for ids in references]
        longest = max(self._lengths)
        rows = [[*ids, *[-1] * (longest - len(ids))] for ids in references]
        self._reference_BT = torch.tensor(rows, device=device)
        self._decided: dict[int, Outcome] = {}
        self._reached = [0] * len(references)

    @property
    def outcomes(self) -> list[Outcome]:
        """Of each sentence, once the search is over."""
        return [self._decided.get(b, Outcome("left", reached)) for b, reached in enumerate(self._reached)]

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
        ranks_B, slots_B = _ranks(candidates_BM, place_B1), taken_BW.sum(-1)
        columns = (live.sentences_B, follows_BW.any(-1), kept_B, allowed_B, ranks_B, slots_B)
        for row in zip(*(column.tolist() for column in columns), strict=True):
            self._note(written + 1, *row)

    def _note(self, step: int, sentence: int, followed: bool, kept: bool, allowed: bool, rank: int, slots: int) -> None:
        if not followed or sentence in self._decided or step > self._lengths[sentence]:
            return
        self._reached[sentence] = step
        if not allowed:
            self._decided[sentence] = Outcome("forbidden", step, None, slots)
        elif not kept:
            self._decided[sentence] = Outcome("fell", step, rank, slots)
        elif step == self._lengths[sentence]:
            self._decided[sentence] = Outcome("finished", step, rank, slots)


def _ranks(candidates_BM: Tensor, place_B1: Tensor) -> Tensor:
    """The rank of the candidate at each place, from 1; among equals the first comes first."""
    total_B1 = candidates_BM.gather(1, place_B1)
    before_BM = torch.arange(candidates_BM.shape[1], device=place_B1.device) < place_B1
    return 1 + ((candidates_BM > total_B1) | ((candidates_BM == total_B1) & before_BM)).sum(-1)


# ----------------------------------------------------------------------------------------------------------- counts


@dataclass(frozen=True)
class Share:
    """`count` of `of`, with its 95 % interval."""

    count: int
    of: int

    @property
    def share(self) -> float:
        return self.count / self.of if self.of else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.count, self.of)

    def to_json(self) -> dict[str, float]:
        low, high = self.interval
        return {"share": self.share, "low": low, "high": high}


def wilson(count: int, of: int, z: float = 1.959964) -> tuple[float, float]:
    """The confidence interval of a share; z is the normal quantile, here for 95 %.

    Wilson 1927, "Probable Inference, the Law of Succession, and Statistical Inference", with p = count / n:
        (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)
    """
    if of == 0:
        return 0.0, 1.0
    p, z2_n = count / of, z * z / of
    middle, half = p + z2_n / 2, math.sqrt(z2_n * p * (1 - p) + (z2_n / 2) ** 2)
    low, high = (middle - half) / (1 + z2_n), (middle + half) / (1 + z2_n)
    return (0.0 if count == 0 else low), (1.0 if count == of else high)


@dataclass(frozen=True)
class Tally:
    """The errors among some sentences."""

    sentences: int
    errors: int
    search_errors: int
    model_errors: int
    chrf: float
    """The mean over the sentences."""

    @classmethod
    def of(cls, judged: Sequence[Judged]) -> Tally:
        verdicts = [sentence.verdict for sentence in judged if sentence.error]
        mean = sum(sentence.chrf for sentence in judged) / len(judged)
        return cls(len(judged), len(verdicts), verdicts.count("search"), verdicts.count("model"), mean)

    @property
    def shares(self) -> dict[str, Share]:
        """Of errors among the sentences, and of each kind among the errors."""
        return {
            "errors": Share(self.errors, self.sentences),
            "search_errors": Share(self.search_errors, self.errors),
            "model_errors": Share(self.model_errors, self.errors),
        }

    @property
    def counts(self) -> dict[str, int]:
        return {
            "sentences": self.sentences,
            "errors": self.errors,
            "search_errors": self.search_errors,
            "model_errors": self.model_errors,
        }

    def to_json(self) -> dict[str, Any]:
        shares = {name: share.to_json() for name, share in self.shares.items()}
        return {**self.counts, "shares": shares, "sentence_chrf": self.chrf}


def tally_by_length(judged: Sequence[Judged], lengths: Sequence[int]) -> tuple[tuple[LengthBucket, Tally], ...]:
    """The errors by these lengths, shortest first."""
    return tuple((bucket, Tally.of([judged[row] for row in bucket.rows])) for bucket in length_buckets(lengths))
