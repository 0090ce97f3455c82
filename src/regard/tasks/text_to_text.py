"""What the tasks share that read one text and write another: prediction, scoring, loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from regard.data.batch import Batch
from regard.data.batches import fixed_batches
from regard.data.config import Corpus
from regard.data.corpora import Part
from regard.data.dataset import Dataset, Encoded
from regard.data.file_inputs import FileInput, is_table, table_rows
from regard.data.prepare import Prepared, prepare
from regard.data.rows import has_header, keys_of
from regard.models import any_config, build_model
from regard.models.base import Generator, device_of
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.search import Constraints, Hypothesis, Observer, SearchConfig, as_hypotheses, score, search
from regard.search.rules import Limits
from regard.tasks.inputs import (
    Inputs,
    by_length,
    encode_inputs,
    encode_target,
    padded,
    positions_of,
    sources_of,
)
from regard.tasks.metrics import perplexity
from regard.tasks.pairs import corpus_of, read_pairs
from regard.tasks.recorded import Recorders, tokens_read
from regard.tasks.task import Progress, Task
from regard.tasks.wording import wording_of
from regard.text.files import TextFile
from regard.text.tokenizers import Tokenizers

DECODE_TOKENS = 16_384
"""Padded source tokens times beam that are decoded at once."""
SCORE_TOKENS = 8_192
"""Padded tokens that are scored at once."""
LengthsOf = Literal["source", "reference"]
"""Which of the two texts of an example has the length that counts."""


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

    def lines(self, nbest: int) -> Iterator[str]:
        """The output, or all of them with their log P where several were asked for."""
        if nbest == 1:
            yield self.output
        else:
            yield from (f"{one.score:.4f}\t{one.output}" for one in self.nbest)


@dataclass(frozen=True)
class Output:
    """One text the model wrote, and log P of exactly these tokens."""

    output: str
    score: float
    tokens: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"output": self.output, "score": self.score, "tokens": list(self.tokens)}


class TextToText(Task):
    """What a run of such a task reads, trains, measures and writes; a task adds its columns and its metrics."""

    columns: ClassVar[tuple[str, ...]] = ("source", "target")
    """What the model reads and writes; a task's corpus may have other words for them (`Corpus.READ_AS`)."""
    model: ClassVar[Any] = any_config(lambda config: config.reads == "source")
    writes = "target"
    lengths_of: ClassVar[LengthsOf] = "source"
    """What makes an example a long one, where quality is shown by length."""

    @staticmethod
    def metrics(outputs: Sequence[str], references: Sequence[str], config: Any) -> dict[str, Any]:
        """How good outputs are, measured against references; `config` is of the class `evaluation`."""
        raise NotImplementedError

    @classmethod
    def by_input(cls, examples: Any) -> list[list[int]]:
        """The examples of each input: several where a task takes them for one input with several references."""
        return [[row] for row in range(len(examples))]

    @classmethod
    def prepare(
        cls, recipe: Any, base: Path, tokenizers: Tokenizers | None = None, progress: Progress | None = None
    ) -> Prepared[Dataset]:
        seed = recipe.training.seed
        return prepare(recipe.data, recipe.tokenizer, base=base, seed=seed, tokenizers=tokenizers, progress=progress)

    @classmethod
    def check(cls, recipe: Any, data: Prepared[Dataset]) -> None:
        source, target = (int(data.train.columns[name].lengths.max()) + 1 for name in ("source", "target"))
        recipe.model.check_data(source, target)

    @classmethod
    def build(cls, recipe: Any, tokenizers: Tokenizers) -> Generator:
        model: Generator = build_model(recipe.model, tokenizers["source"].size, tokenizers["target"].size)
        return model

    @classmethod
    def objective(cls, model: Generator, recipe: Any) -> TokenCrossEntropy:
        return TokenCrossEntropy(model, recipe.training.label_smoothing, recipe.training.teacher_forcing)

    @classmethod
    def read(cls, recipe: Any, corpora: Sequence[Corpus], part: Part, base: Path, tokenizers: Tokenizers) -> Dataset:
        return read_pairs(recipe.data, corpora, part, base, tokenizers)

    @classmethod
    def corpus_of(cls, files: Sequence[str], own: Sequence[Corpus]) -> Corpus:
        return corpus_of(files, own)

    @classmethod
    def validate(cls, model: Generator, recipe: Any, data: Prepared[Dataset]) -> dict[str, Any]:
        """Loss and perplexity on all examples; the task's metrics on the first of them, decoded greedily."""
        found: dict[str, Any] = dict(cls.loss(model, data.validation))
        count = min(recipe.training.decode, len(data.validation))
        if not count or not math.isfinite(found["loss"]):
            return found
        texts = {name: list(column[:count]) for name, column in data.validation.texts.items()}
        greedy = recipe.search.model_copy(update={"beam": 1, "nbest": 1, "sample": False})
        encoded = [data.validation.source(row) for row in range(count)]
        outputs = cls.decode_texts(model, data.tokenizers, encoded, greedy)
        metrics = cls.metrics(outputs, texts["target"], recipe.evaluation)
        found |= {name: value for name, value in metrics.items() if not name.endswith("_signature")}
        shown = zip(texts["source"], outputs, texts["target"], strict=True)
        found["samples"] = [
            {"source": source, "output": output, "target": target}
            for _, (source, output, target) in zip(range(recipe.training.samples), shown, strict=False)
        ]
        return found

    @classmethod
    def evaluate(
        cls, model: Generator, recipe: Any, examples: Dataset, tokenizers: Tokenizers, progress: Callable[[int], None]
    ) -> dict[str, Any]:
        """The task's metrics on decoded texts, loss and perplexity."""
        encoded = [examples.source(row) for row in range(len(examples))]
        outputs = cls.decode_texts(model, tokenizers, encoded, recipe.search, progress=progress)
        return {
            "sentences": len(examples),
            **cls.metrics(outputs, list(examples.texts["target"]), recipe.evaluation),
            **cls.loss(model, examples),
            "beam": recipe.search.beam,
        }

    @classmethod
    def encode(
        cls, model: Generator, tokenizers: Tokenizers, texts: Sequence[str], places: Sequence[str]
    ) -> Sequence[Encoded]:
        """What the model reads for each input that a user gave, or one DecodeError that names those it cannot read."""
        return encode_inputs(tokenizers["source"], texts, places)

    @classmethod
    def inputs_in(cls, recipe: Any, own: Sequence[Any], file: TextFile) -> Iterator[FileInput] | None:
        """The sources of a table; every other file has one a line."""
        if not is_table(file):
            return None
        like = cls.corpus_of([file.name], own)
        rows = table_rows(file, {"source": keys_of(like)["source"]}, has_header(like))
        return (FileInput(row.values[0], file.where(row.line), row.fault) for row in rows)

    @classmethod
    def check_inputs(cls, model: Generator, tokenizers: Tokenizers, inputs: Inputs, config: SearchConfig) -> None:
        encoded = cls.encode(model, tokenizers, inputs.texts, inputs.places)
        wording = wording_of(tokenizers["target"], config, inputs.prefixes, len(inputs))
        Limits.of([positions_of(one) for one in encoded], config, wording)

    @classmethod
    def predict(
        cls,
        model: Generator,
        tokenizers: Tokenizers,
        inputs: Inputs,
        config: SearchConfig,
        *,
        record: bool = False,
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[Prediction]:
        """A prediction for each text, in their order; `record` keeps the whole search in `Prediction.search`."""
        encoded = cls.encode(model, tokenizers, inputs.texts, inputs.places)
        wording = wording_of(tokenizers["target"], config, inputs.prefixes, len(inputs))
        recorders = Recorders(tokenizers["target"], begin_id=tokenizers["target"].begin)

        def recorded(rows: list[int]) -> Observer:
            source = sources_of([encoded[row] for row in rows], tokenizers).to(device_of(model))
            return recorders.on(rows, source, config, wording.of(rows))

        watch, found = recorded if record else _nobody, dict[int, list[Hypothesis]]()
        for rows, hypotheses in decode(model, tokenizers, encoded, config, wording=wording, watch=watch):
            found.update(zip(rows, hypotheses, strict=True))
            progress(len(rows))
        searches = recorders.searches(lambda row: tokens_read(encoded[row], tokenizers))
        return [
            Prediction(text, tuple(_output(tokenizers, one) for one in found[row]), searches.get(row))
            for row, text in enumerate(inputs.texts)
        ]

    @staticmethod
    def decode_texts(
        model: Generator,
        tokenizers: Tokenizers,
        encoded: Sequence[Encoded],
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
        model: Generator, tokenizers: Tokenizers, sources: Sequence[Encoded], targets: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """log P of each target token, the final `</s>` included, given ids of sources and targets without specials."""
        scores: dict[int, list[float]] = {}
        for rows, batch in _pairs(model, tokenizers, sources, targets):
            scores.update(zip(rows, score(model, batch), strict=True))
        return [scores[row] for row in range(len(sources))]

    @classmethod
    def score_text(
        cls, model: Generator, tokenizers: Tokenizers, source: str, target: str | Sequence[str]
    ) -> tuple[list[int], list[float]]:
        [encoded] = cls.encode(model, tokenizers, [source], ["source"])
        ids = encode_target(tokenizers["target"], target)
        written = ids[:-1] if ids[-1] == tokenizers["target"].end else ids
        [scores] = cls.score(model, tokenizers, [encoded], [written])
        return ids, scores[: len(ids)]

    @staticmethod
    def hypotheses(
        model: Generator,
        tokenizers: Tokenizers,
        sources: Sequence[Encoded],
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
                batch = dataset.batch(rows)
                total += float(objective(batch.to(device_of(model)))[1])
                tokens += batch.tokens
        mean = total / tokens
        return {"loss": mean, "perplexity": perplexity(mean)}


def _nobody(rows: list[int]) -> None:
    """Who looks on when nobody asks to."""


def decode(
    model: Generator,
    tokenizers: Tokenizers,
    encoded: Sequence[Encoded],
    config: SearchConfig,
    *,
    wording: Constraints | None = None,
    watch: Callable[[list[int]], Observer | None] = _nobody,
) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
    """Row numbers and their hypotheses, batch by batch; `watch` gives who looks on while these rows are decoded.

    `wording` is that of `config`, unless it is given. Limits that leave no output are found before the first batch.
    """
    target = tokenizers["target"]
    wording = wording or wording_of(target, config, None, len(encoded))
    lengths = [positions_of(one) for one in encoded]
    Limits.of(lengths, config, wording)
    rows_each = config.nbest if config.sample else config.beam
    for rows in by_length(lengths, max(1, DECODE_TOKENS // rows_each)):
        hypotheses = search(
            model,
            sources_of([encoded[row] for row in rows], tokenizers).to(device_of(model)),
            config,
            constraints=wording.of(rows),
            begin_id=target.begin,
            end_id=target.end,
            pad_id=target.pad,
            unknown_id=target.unk,
            observer=watch(rows),
        )
        yield rows, hypotheses


def _pairs(
    model: Generator, tokenizers: Tokenizers, sources: Sequence[Encoded], targets: Sequence[Sequence[int]]
) -> Iterator[tuple[list[int], Batch]]:
    """Row numbers and their pairs, on the model's device, batch by batch; the ids come without special tokens."""
    target = tokenizers["target"]
    lengths = [max(positions_of(s), len(t) + 1) for s, t in zip(sources, targets, strict=True)]
    for rows in by_length(lengths, SCORE_TOKENS):
        batch = Batch(
            sources_of([sources[row] for row in rows], tokenizers),
            padded([[target.begin, *targets[row], target.end] for row in rows], target.pad),
        )
        yield rows, batch.to(device_of(model))


def _output(tokenizers: Tokenizers, hypothesis: Hypothesis) -> Output:
    target = tokenizers["target"]
    return Output(target.decode(hypothesis.tokens), hypothesis.score, tuple(target.tokens(hypothesis.tokens)))
