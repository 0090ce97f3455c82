"""What tasks share that read a source and write a text: encoding, search, scoring, loss."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batch import Batch, Tokens
from regard.data.batches import fixed_batches
from regard.data.config import Corpus
from regard.data.corpora import Part
from regard.data.dataset import Columns, Dataset
from regard.data.file_inputs import FileInput, corpus_of, is_table, table_rows
from regard.data.formats import has_header, keys_of
from regard.data.images import Picture
from regard.data.prepare import Prepared, read
from regard.data.store import Integers
from regard.errors import DataError, DecodeError, Problem, first_of
from regard.models import any_config, build_model
from regard.models.base import Generator, device_of
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.search import BannedTexts, Constraints, Hypothesis, Observer, SearchConfig, as_hypotheses, score, search
from regard.search.record import Recorder
from regard.search.rules import Limits, rules_for
from regard.tasks.inputs import (
    LONGEST,
    Encoded,
    EncodedInputs,
    Inputs,
    Unreadable,
    by_length,
    encode_each,
    encode_target,
    padded,
    positions_of,
    readable,
    sources_of,
)
from regard.tasks.metrics import perplexity
from regard.tasks.task import Done, Task, ignore
from regard.text.files import TextFile
from regard.text.tokenizers import Tokenizer, Tokenizers

DECODE_TOKENS = 16_384
"""Padded source tokens times beam that are decoded at once."""
SCORE_TOKENS = 8_192
"""Padded tokens that are scored at once."""
LengthsOf = Literal["source", "reference"]
"""Which of the two texts of an example has the length that counts."""


def no_watch(rows: list[int]) -> None:
    """Default: no observer."""


@dataclass(frozen=True)
class Prediction:
    """One input and what the model writes for it."""

    input: str
    nbest: tuple[Output, ...]
    search: dict[str, Any] | None = None
    """The record of the search, if one was asked for."""

    @property
    def output(self) -> str:
        return self.nbest[0].output

    def to_json(self) -> dict[str, Any]:
        best = self.nbest[0].to_json()
        return {"input": self.input, **best, "nbest": [output.to_json() for output in self.nbest]}

    def lines(self, nbest: int) -> Iterator[str]:
        """The output, or all of them with their log P where several were asked for."""
        if nbest == 1:
            yield self.output
        else:
            yield from (f"{output.score:.4f}\t{output.output}" for output in self.nbest)


@dataclass(frozen=True)
class Output:
    """One text the model wrote, and log P of exactly these tokens."""

    output: str
    score: float
    tokens: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"output": self.output, "score": self.score, "tokens": list(self.tokens)}


class TextToText(Task):
    """A source in, a text out; a task adds its columns and its metrics."""

    columns: ClassVar[tuple[str, ...]] = ("source", "target")
    """What the model reads and writes; a task's corpus may have other words for them (`Corpus.READ_AS`)."""
    models: ClassVar[Any] = any_config(lambda config: config.reads == "source")
    writes = "target"
    has_references = True
    lengths_of: ClassVar[LengthsOf] = "source"
    """Which of the two texts has the length that quality is shown by."""

    @staticmethod
    def metrics(outputs: Sequence[str], references: Sequence[str], config: Any) -> dict[str, Any]:
        """How good outputs are, measured against references; `config` is of the class `evaluation`."""
        raise NotImplementedError

    # Data

    def encoding(self) -> list[Any]:
        return [self.recipe.data.max_length, self.recipe.data.max_ratio]

    def dropped(self, columns: Columns) -> dict[str, NDArray[np.bool_]]:
        """Pairs that are too long or too unequal."""
        lengths = np.stack([np.fromiter(map(len, rows), dtype=np.int64) for rows in columns.values()])
        longest, shortest = lengths.max(axis=0), lengths.min(axis=0)
        too_long = longest > self.recipe.data.max_length
        too_unequal = np.zeros_like(too_long)
        if self.recipe.data.max_ratio is not None:
            too_unequal = ~too_long & (longest > self.recipe.data.max_ratio * np.maximum(shortest, 1))
        return {"max_length": too_long, "max_ratio": too_unequal}

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        """The longer column and one more: a source is read with `</s>`, a target with `<s>` or `</s>`."""
        longest: NDArray[np.int32] = np.max([column.lengths for column in examples.columns.values()], axis=0)
        return longest + np.int32(1)

    def slants(self, examples: Dataset) -> NDArray[np.int32]:
        first, *_, last = (column.lengths for column in examples.columns.values())
        return first - last

    def collate(self, examples: Dataset, rows: Integers, seed: int, epoch: int) -> Batch:
        """A source up to `</s>`, a target from `<s>` to `</s>`."""
        source, target = self.tokenizers["source"], self.tokens(examples, "target", rows)
        ids_BL, lengths_B = examples.columns["source"].padded(rows, begin=None, end=source.end, pad=source.pad)
        read = Tokens.of(torch.from_numpy(ids_BL), torch.from_numpy(lengths_B))
        return Batch(read, target, tuple(rows.tolist()), int(target.lengths_B.sum()) - len(rows))

    def tokens(self, examples: Dataset, column: str, rows: Integers) -> Tokens:
        """A column of some examples from `<s>` to `</s>`, padded."""
        special = self.tokenizers[column]
        ids_BL, lengths_B = examples.columns[column].padded(rows, begin=special.begin, end=special.end, pad=special.pad)
        return Tokens.of(torch.from_numpy(ids_BL), torch.from_numpy(lengths_B))

    def frequencies(self, examples: Dataset) -> NDArray[np.int64]:
        """How often each target token is to be written; `</s>` ends every example."""
        target = self.tokenizers["target"]
        counts = examples.columns["target"].counts(target.size)
        counts[target.end] += len(examples)
        return counts

    def longest_example(self, examples: Dataset) -> int:
        """The one with the most tokens in all its columns."""
        lengths = [column.lengths for column in examples.columns.values()]
        return int(np.argmax(np.sum(lengths, axis=0, dtype=np.int64)))

    def fingerprint(self, examples: Dataset) -> int:
        checksum = 0
        for column in examples.columns.values():
            checksum = zlib.crc32(column.lengths.tobytes(), checksum)
        return checksum

    def source(self, examples: Dataset, row: int) -> Encoded:
        """What a model reads of an example: the tokens of its source, without `</s>`."""
        ids: list[int] = examples.columns["source"][row].tolist()
        return ids

    def by_input(self, examples: Dataset) -> list[list[int]]:
        """The examples of each input: several where an input has several references."""
        return [[row] for row in range(len(examples))]

    def read(self, corpora: Sequence[Corpus], part: Part, base: Path) -> Dataset:
        dataset = read(self, self.recipe, corpora, part, base)
        tokens = np.max([column.lengths for column in dataset.columns.values()], axis=0)
        hint = f"at most {LONGEST:,}: split it"
        too_long = [
            Problem(dataset.where(row), f"the pair has {tokens[row]:,} tokens", hint)
            for row in np.flatnonzero(tokens > LONGEST).tolist()
        ]
        if too_long:
            raise DataError(problems=first_of(too_long))
        return dataset

    def corpus_of(self, files: Sequence[str]) -> Corpus:
        return corpus_of(files, self.corpora)

    # Training

    def check(self, data: Prepared[Dataset]) -> None:
        source, target = (int(data.train.columns[name].lengths.max()) + 1 for name in ("source", "target"))
        self.recipe.model.check_data(source, target)

    def model(self) -> Generator:
        sizes = self.tokenizers["source"].size, self.tokenizers["target"].size
        model: Generator = build_model(self.recipe.model, *sizes)
        return model

    def objective(self, model: Generator) -> TokenCrossEntropy:
        return TokenCrossEntropy(model, self.recipe.training.label_smoothing, self.recipe.training.teacher_forcing)

    def validate(self, model: Generator, examples: Dataset) -> dict[str, Any]:
        """Loss and perplexity on all examples; the task's metrics on the first inputs, decoded greedily."""
        metrics: dict[str, Any] = dict(self.loss(model, examples))
        inputs = self.by_input(examples)[: self.recipe.training.decode]
        if not inputs or not math.isfinite(metrics["loss"]):
            return metrics
        greedy = self.recipe.search.model_copy(update={"beam": 1, "nbest": 1, "sample": False})
        outputs, references = self.outputs(model, examples, inputs, greedy)
        scores = self.metrics(outputs, references, self.recipe.evaluation)
        metrics |= {name: value for name, value in scores.items() if not name.endswith("_signature")}
        metrics["samples"] = [
            {"source": examples.texts["source"][rows[0]], "output": output, "target": examples.texts["target"][rows[0]]}
            for rows, output in zip(inputs[: self.recipe.training.samples], outputs, strict=False)
        ]
        return metrics

    # Verbs

    def evaluate(self, model: Generator, examples: Dataset, progress: Done) -> dict[str, Any]:
        """The task's metrics on decoded texts, loss and perplexity."""
        inputs = self.by_input(examples)
        outputs, references = self.outputs(model, examples, inputs, self.recipe.search, progress)
        return {
            "sentences": len(examples),
            **self.metrics(outputs, references, self.recipe.evaluation),
            **self.loss(model, examples),
            "beam": self.recipe.search.beam,
        }

    def outputs(
        self,
        model: Generator,
        examples: Dataset,
        inputs: Sequence[Sequence[int]],
        config: SearchConfig,
        progress: Done = ignore,
    ) -> tuple[list[str], list[Any]]:
        """The best output for each input, given by its examples; and its reference."""
        sources = [self.source(examples, rows[0]) for rows in inputs]
        outputs = self.decode_texts(model, sources, config, progress)
        return outputs, [examples.texts["target"][rows[0]] for rows in inputs]

    def loss(self, model: Generator, examples: Dataset) -> dict[str, float]:
        """Cross-entropy a token and its exponential, over all examples."""
        objective, total, tokens = TokenCrossEntropy(model).eval(), 0.0, 0
        with torch.inference_mode():
            for rows in fixed_batches(examples, SCORE_TOKENS):
                batch = examples.batch(rows)
                total += float(objective(batch.to(device_of(model)))[1])
                tokens += batch.tokens
        mean = total / tokens
        return {"loss": mean, "perplexity": perplexity(mean)}

    def encode_sources(self, texts: Sequence[str], places: Sequence[str]) -> Sequence[Encoded | Unreadable]:
        """What the model reads for each input, or one DecodeError that names the inputs that cannot be read."""
        return encode_each(self.tokenizers["source"], texts, places)

    def inputs_in(self, file: TextFile) -> Iterator[FileInput] | None:
        """The sources of a table; every other file has one a line."""
        if not is_table(file):
            return None
        like = self.corpus_of([file.name])
        rows = table_rows(file, {"source": keys_of(like)["source"]}, has_header(like))
        return (FileInput(row.values[0], file.where(row.line), row.fault) for row in rows)

    def encode_inputs(self, model: Generator, inputs: Inputs) -> EncodedInputs[Encoded]:
        """The sources and the wording; a search whose limits leave no output is refused."""
        rows = self.encode_sources(inputs.texts, inputs.places)
        wording = wording_of(self.tokenizers["target"], self.recipe.search, inputs.prefixes, len(inputs))
        sources = {number: row for number, row in enumerate(rows) if not isinstance(row, Unreadable)}
        Limits.of([positions_of(source) for source in sources.values()], self.recipe.search, wording.of([*sources]))
        return EncodedInputs(inputs, rows, wording)

    def predict_encoded(
        self, model: Generator, encoded: EncodedInputs[Encoded], *, record: bool = False, progress: Done = ignore
    ) -> list[Prediction]:
        config, target = self.recipe.search, self.tokenizers["target"]
        sources, wording = encoded.readable(), encoded.wording
        recorders = Recorders(target, begin_id=target.begin)

        def recorded(rows: list[int]) -> Observer:
            return recorders.on(rows, self._sources(model, sources, rows), config, wording.of(rows))

        hypotheses = dict[int, list[Hypothesis]]()
        watch = recorded if record else no_watch
        for rows, best in self.decode(model, sources, config, wording=wording, watch=watch):
            hypotheses.update(zip(rows, best, strict=True))
            progress(len(rows))
        searches = recorders.searches(lambda row: tokens_read(sources[row], self.tokenizers))
        return [
            Prediction(text, tuple(self._output(hypothesis) for hypothesis in hypotheses[row]), searches.get(row))
            for row, text in enumerate(encoded.inputs.texts)
        ]

    def decode_texts(
        self, model: Generator, encoded: Sequence[Encoded], config: SearchConfig, progress: Done = ignore
    ) -> list[str]:
        """The best output for each encoded source, in their order."""
        outputs = [""] * len(encoded)
        for rows, hypotheses in self.decode(model, encoded, config):
            for row, best in zip(rows, hypotheses, strict=True):
                outputs[row] = self.tokenizers["target"].decode(best[0].tokens)
            progress(len(rows))
        return outputs

    def decode(
        self,
        model: Generator,
        encoded: Sequence[Encoded],
        config: SearchConfig,
        *,
        wording: Constraints | None = None,
        watch: Callable[[list[int]], Observer | None] = no_watch,
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        """Row numbers and their hypotheses, batch by batch; `watch` gives the observer of a batch's search.

        `wording` is that of `config`, unless it is given. Limits that leave no output are found before the first batch.
        """
        target = self.tokenizers["target"]
        wording = wording or wording_of(target, config, None, len(encoded))
        lengths = [positions_of(source) for source in encoded]
        Limits.of(lengths, config, wording)
        rows_each = config.nbest if config.sample else config.beam
        for rows in by_length(lengths, max(1, DECODE_TOKENS // rows_each)):
            hypotheses = search(
                model,
                self._sources(model, encoded, rows),
                config,
                constraints=wording.of(rows),
                begin_id=target.begin,
                end_id=target.end,
                pad_id=target.pad,
                unknown_id=target.unk,
                observer=watch(rows),
            )
            yield rows, hypotheses

    def score(
        self, model: Generator, sources: Sequence[Encoded], targets: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """log P of each target token, the final `</s>` included; ids come without special tokens."""
        scores: dict[int, list[float]] = {}
        for rows, batch in self._pairs(model, sources, targets):
            scores.update(zip(rows, score(model, batch), strict=True))
        return [scores[row] for row in range(len(sources))]

    def score_text(self, model: Generator, source: str, target: str | Sequence[str]) -> tuple[list[int], list[float]]:
        sources: list[Encoded] = readable(self.encode_sources([source], ["source"]))
        ids = encode_target(self.tokenizers["target"], target)
        written = ids[:-1] if ids[-1] == self.tokenizers["target"].end else ids
        [scores] = self.score(model, sources, [written])
        return ids, scores[: len(ids)]

    def hypotheses(
        self, model: Generator, sources: Sequence[Encoded], targets: Sequence[Sequence[int]], config: SearchConfig
    ) -> list[Hypothesis]:
        """The given targets as a search with this config would rank them: log P, and the objective it maximises."""
        hypotheses: dict[int, Hypothesis] = {}
        for rows, batch in self._pairs(model, sources, targets):
            hypotheses.update(zip(rows, as_hypotheses(model, batch, config), strict=True))
        return [hypotheses[row] for row in range(len(sources))]

    def _sources(self, model: Generator, encoded: Sequence[Encoded], rows: Sequence[int]) -> Tokens:
        return sources_of([encoded[row] for row in rows], self.tokenizers).to(device_of(model))

    def _pairs(
        self, model: Generator, sources: Sequence[Encoded], targets: Sequence[Sequence[int]]
    ) -> Iterator[tuple[list[int], Batch]]:
        """Row numbers and their pairs, on the model's device, batch by batch."""
        target = self.tokenizers["target"]
        lengths = [max(positions_of(s), len(t) + 1) for s, t in zip(sources, targets, strict=True)]
        for rows in by_length(lengths, SCORE_TOKENS):
            written = padded([[target.begin, *targets[row], target.end] for row in rows], target.pad)
            yield rows, Batch(self._sources(model, sources, rows), written.to(device_of(model)))

    def _output(self, hypothesis: Hypothesis) -> Output:
        target = self.tokenizers["target"]
        return Output(target.decode(hypothesis.tokens), hypothesis.score, tuple(target.tokens(hypothesis.tokens)))


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


def wording_of(tokenizer: Tokenizer, config: SearchConfig, prefixes: Sequence[str] | None, count: int) -> Constraints:
    """The wording of `count` outputs. `prefixes` has one for each, empty for none; else `config.prefix` is for all."""
    if prefixes is None and config.prefix is None and not config.banned:
        return Constraints()
    where = ["search.prefix"]
    if prefixes is not None:
        where = [f"prefix {number}" for number in range(1, len(prefixes) + 1)]
        if len(prefixes) != count:
            raise DecodeError(f"there are {len(prefixes):,} prefixes for {count:,} inputs", where="prefixes")
    banned = [tokenizer.normalised(text) for text in config.banned]
    texts = [config.prefix or ""] if prefixes is None else prefixes
    encoded = [ids if text.strip() else [] for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True)]
    problems = [_problem(tokenizer, *one, banned) for one in zip(texts, encoded, where, strict=True)]
    if found := [problem for problem in problems if problem]:
        raise DecodeError(problems=first_of(found))
    return Constraints(encoded * count if prefixes is None else encoded, ban_of(tokenizer, config))


def _problem(tokenizer: Tokenizer, text: str, ids: Sequence[int], where: str, banned: Sequence[str]) -> Problem | None:
    if tokenizer.unk in ids:
        return Problem(
            where, f"the tokenizer cannot write {text!r}", "its vocabulary lacks a part of it: use other words"
        )
    if text.strip() and tokenizer.all_unknown(ids):
        return Problem(where, f"there is no token for {text!r}", "use other words")
    written = tokenizer.decode(ids)
    if any(one and one in written for one in banned):
        return Problem(where, f"{text!r} holds a text that search.banned rules out", "change one of the two")
    return None


def ban_of(tokenizer: Tokenizer, config: SearchConfig) -> BannedTexts | None:
    """The texts of `config.banned`, as outputs spell them, worked out for a vocabulary; None where there is none."""
    spelt = [one.encode() for text in config.banned if (one := tokenizer.normalised(text))]
    if not spelt:
        return None
    never = {tokenizer.pad, tokenizer.begin, tokenizer.end} | (set() if config.unknown else {tokenizer.unk})
    pieces = {token: piece for token, piece in enumerate(tokenizer.token_bytes()) if token not in never}
    return BannedTexts(spelt, pieces)
