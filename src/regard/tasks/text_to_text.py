"""What the tasks share that read one text and write another: prediction, scoring, loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from regard.config import Config
from regard.data.batch import Batch
from regard.data.batches import batch_of, fixed_batches
from regard.data.config import Data
from regard.data.dataset import Dataset
from regard.data.tokenizers import Tokenizers
from regard.models.base import Generator, device_of
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.search import Hypothesis, SearchConfig, Watch, Wording, as_hypotheses, score, search
from regard.search.limits import Limits
from regard.tasks.inputs import by_length, encode_inputs, padded
from regard.tasks.recorded import Recorders
from regard.tasks.wording import wording_of

DECODE_TOKENS = 16_384
"""Padded source tokens times beam that are decoded at once."""
SCORE_TOKENS = 8_192
"""Padded tokens that are scored at once."""


@dataclass(frozen=True)
class Prediction:
    """One input and what the model writes for it."""

    input: str
    nbest: tuple[Output, ...]
    search: dict[str, Any] | None = None
    """How they were found, where that was to be recorded."""

    @property
    def output(self) -> str:
        return self.nbest[0].output

    def to_json(self) -> dict[str, Any]:
        best = self.nbest[0].to_json()
        return {"input": self.input, **best, "nbest": [one.to_json() for one in self.nbest]}


@dataclass(frozen=True)
class Output:
    """One text the model wrote, and log P of exactly these tokens."""

    output: str
    score: float
    tokens: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"output": self.output, "score": self.score, "tokens": list(self.tokens)}


class TextToText:
    """What a run of such a task reads, trains, measures and writes; a task adds its columns and its metrics."""

    name: ClassVar[str]
    columns = ("source", "target")
    """What the model reads and writes; a task's corpus may have other words for them (`Corpus.READ_AS`)."""
    data: ClassVar[type[Data[Any]]]
    evaluation: ClassVar[type[Config]]
    higher_is_better: ClassVar[Mapping[str, bool]]

    @staticmethod
    def metrics(outputs: Sequence[str], references: Sequence[str], config: Any) -> dict[str, Any]:
        """How good outputs are, measured against references; `config` is of the class `evaluation`."""
        raise NotImplementedError

    @staticmethod
    def objective(model: Generator, *, label_smoothing: float, teacher_forcing: float) -> TokenCrossEntropy:
        return TokenCrossEntropy(model, label_smoothing, teacher_forcing)

    @staticmethod
    def predict(
        model: Generator,
        tokenizers: Tokenizers,
        texts: Sequence[str],
        config: SearchConfig,
        *,
        prefixes: Sequence[str] | None = None,
        record: bool = False,
        places: Sequence[str] | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[Prediction]:
        """A prediction for each text, in their order.

        `prefixes` says what each output begins with, instead of `config.prefix`; `record` keeps the whole search in
        `Prediction.search`; `places` name the texts in messages.
        """
        places = places or [f"input {number}" for number in range(1, len(texts) + 1)]
        encoded = encode_inputs(tokenizers["source"], texts, places)
        wording = wording_of(tokenizers["target"], config, prefixes, len(texts))
        recorders = Recorders(tokenizers, encoded, config, wording, device_of(model)) if record else None
        found: dict[int, list[Hypothesis]] = {}
        for rows, hypotheses in decode(model, tokenizers, encoded, config, wording=wording, watch=recorders or _nobody):
            found.update(zip(rows, hypotheses, strict=True))
            progress(len(rows))
        searches = recorders.searches() if recorders else {}
        return [
            Prediction(text, tuple(_output(tokenizers, one) for one in found[row]), searches.get(row))
            for row, text in enumerate(texts)
        ]

    @staticmethod
    def decode_texts(
        model: Generator,
        tokenizers: Tokenizers,
        encoded: Sequence[Sequence[int]],
        config: SearchConfig,
        *,
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[str]:
        """The best output for each encoded source, in their order."""
        outputs = [""] * len(encoded)
        for rows, hypotheses in decode(model, tokenizers, encoded, config):
            for row, best in zip(rows, hypotheses, strict=True):
                outputs[row] = tokenizers["target"].decode(best[0].tokens)
            progress(len(rows))
        return outputs

    @staticmethod
    def score(
        model: Generator, tokenizers: Tokenizers, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """log P of each target token, the final `</s>` included, given ids of sources and targets without specials."""
        scores: dict[int, list[float]] = {}
        for rows, batch in _pairs(model, tokenizers, sources, targets):
            scores.update(zip(rows, score(model, batch), strict=True))
        return [scores[row] for row in range(len(sources))]

    @staticmethod
    def hypotheses(
        model: Generator,
        tokenizers: Tokenizers,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        config: SearchConfig,
    ) -> list[Hypothesis]:
        """The given targets as a search with this config would judge them: log P, and the objective it maximises."""
        found: dict[int, Hypothesis] = {}
        for rows, batch in _pairs(model, tokenizers, sources, targets):
            found.update(zip(rows, as_hypotheses(model, batch, config), strict=True))
        return [found[row] for row in range(len(sources))]

    @staticmethod
    def loss(model: Generator, dataset: Dataset) -> dict[str, float]:
        """Cross-entropy a token and its exponential, over a whole dataset."""
        objective, total, tokens = TokenCrossEntropy(model).eval(), 0.0, 0
        with torch.inference_mode():
            for rows in fixed_batches(dataset, SCORE_TOKENS):
                batch = batch_of(dataset, rows)
                total += float(objective(batch.to(device_of(model)))[1])
                tokens += batch.tokens
        mean = total / tokens
        return {"loss": mean, "perplexity": math.exp(min(mean, 700.0))}


def _nobody(rows: list[int]) -> None:
    """Who looks on when nobody asks to."""


def decode(
    model: Generator,
    tokenizers: Tokenizers,
    encoded: Sequence[Sequence[int]],
    config: SearchConfig,
    *,
    wording: Wording | None = None,
    watch: Callable[[list[int]], Watch | None] = _nobody,
) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
    """Row numbers and their hypotheses, batch by batch; `watch` gives who looks on while these rows are decoded.

    `wording` is that of `config`, unless it is given. Limits that leave no output are found before the first batch.
    """
    source, target = tokenizers["source"], tokenizers["target"]
    wording = wording or wording_of(target, config, None, len(encoded))
    lengths = [len(ids) + 1 for ids in encoded]
    Limits.of(lengths, config, wording)
    rows_each = config.nbest if config.sample else config.beam
    for rows in by_length(lengths, max(1, DECODE_TOKENS // rows_each)):
        hypotheses = search(
            model,
            padded([[*encoded[row], source.end] for row in rows], source.pad).to(device_of(model)),
            config,
            wording=wording.of(rows),
            begin_id=target.begin,
            end_id=target.end,
            pad_id=target.pad,
            unknown_id=target.unk,
            watch=watch(rows),
        )
        yield rows, hypotheses


def _pairs(
    model: Generator, tokenizers: Tokenizers, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Iterator[tuple[list[int], Batch]]:
    """Row numbers and their pairs, on the model's device, batch by batch; the ids come without special tokens."""
    source, target = tokenizers["source"], tokenizers["target"]
    lengths = [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]
    for rows in by_length(lengths, SCORE_TOKENS):
        batch = Batch(
            padded([[*sources[row], source.end] for row in rows], source.pad),
            padded([[target.begin, *targets[row], target.end] for row in rows], target.pad),
        )
        yield rows, batch.to(device_of(model))


def _output(tokenizers: Tokenizers, hypothesis: Hypothesis) -> Output:
    target = tokenizers["target"]
    return Output(target.decode(hypothesis.tokens), hypothesis.score, tuple(target.tokens(hypothesis.tokens)))
