"""Translation: a text in, another text out. Also chat, spelling, dates: whatever has pairs of
texts.

`TextToText` is what all tasks share that read a source and write a text: encoding, search, scoring,
loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import Config
from regard.data.batches import Batch, Padded, Ragged
from regard.data.config import Corpus, TextPairs
from regard.data.corpora import Part
from regard.data.dataset import Columns, Dataset
from regard.data.epochs import fixed_batches
from regard.data.example import Example
from regard.data.images import Picture, images_of
from regard.data.prepare import Prepared, read
from regard.data.store import Integers
from regard.errors import DataError, DecodeError, Problem, RegardError, import_extra
from regard.models import MODELS, any_config
from regard.models.base import Contextual, Generator, device_of
from regard.models.source_states import SourceStates
from regard.models.transformer import Transformer
from regard.objectives.cross_entropy import TokenCrossEntropy, perplexity
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.search.external import ExternalModel
from regard.search.hypotheses import Hypothesis
from regard.search.observers import BestSoFar, Observer, Recorder, report_to
from regard.search.rules import BannedTexts, Constraints, Limits, SpecialTokens
from regard.search.scoring import as_hypotheses, token_scores
from regard.tasks.task import (
    LONGEST,
    READ_TOKENS,
    Done,
    EncodedInputs,
    Note,
    Prediction,
    Task,
    by_length,
    encode_each,
    encode_target,
    ignore,
    not_longer,
    padded,
    readable,
    unknown_notes,
)
from regard.text.clean import signs_in
from regard.text.normalise import nfc
from regard.text.tokenizers import Tokenizer

DECODE_TOKENS, GPU_DECODE_TOKENS = 4_096, 16_384
"""Padded source tokens times beam that are decoded at once. More of them do not fit into the caches
of a CPU, and it writes up to a third fewer tokens a second."""
LengthsOf = Literal[
    "source", "reference"
]  # which of the two texts of an example has the length that counts
Source = list[int] | Picture
"""A source as a model reads it: its tokens up to `</s>`, or for captioning an image with its
regions."""
References = Sequence[Sequence[str]]  # the texts that each output may equal: one, or several
SourceBatch = tuple[list[int], Ragged, SearchConfig]
"""Row numbers, their sources on the model's device, and the search for them."""


class Output(NamedTuple):
    """One text the model wrote, and log P of exactly these tokens."""

    output: str
    score: float
    tokens: list[str]


@dataclass(frozen=True)
class Written(Prediction):
    """One input and what the model writes for it."""

    nbest: tuple[Output, ...]

    @property
    def output(self) -> str:
        return self.nbest[0].output

    def to_json(self) -> dict[str, Any]:
        nbest = [output._asdict() for output in self.nbest]
        return {"input": self.input, **nbest[0], "nbest": nbest}

    def lines(self, nbest: int) -> Iterator[str]:
        if nbest == 1:
            yield self.output
        else:
            yield from (f"{output.score:.4f}\t{output.output}" for output in self.nbest)


class WritingTask(Task):
    """A task whose outputs a search writes: a text for each source, or the continuation of a
    text."""

    writes: ClassVar[Literal["target", "text"]]
    searches = True

    def batches(
        self, model: Any, sources: Sequence[Any], config: SearchConfig, wording: Constraints
    ) -> Iterator[SourceBatch]:
        """Sources that are decoded together; limits that leave no output are refused before the
        first batch."""
        raise NotImplementedError

    def text_of(self, given: str, source: Any, hypothesis: Hypothesis) -> str:
        """The output that a hypothesis stands for."""
        return self.tokenizers[self.writes].decode(hypothesis.tokens)

    def source_tokens(self, source: Any) -> list[str]:
        """How the positions of a source are spelt."""
        raise NotImplementedError

    @property
    def special_tokens(self) -> SpecialTokens:
        """The tokens that a search must know; a text is continued after `</s>`."""
        own = self.tokenizers[self.writes]
        return SpecialTokens(
            own.begin if self.writes == "target" else own.end, own.end, own.pad, own.unk, own.begin
        )

    def predict_encoded(
        self,
        model: Any,
        encoded: EncodedInputs[Any],
        *,
        record: bool = False,
        progress: Done = ignore,
    ) -> list[Written]:
        tokenizer, special, sources = (
            self.tokenizers[self.writes],
            self.special_tokens,
            encoded.readable(),
        )
        predicted, report = dict[int, Written](), report_to.get()
        if isinstance(model, ExternalModel):
            for row, hypotheses in model.search(sources, self.recipe.search):
                predicted[row] = self._written(encoded.inputs[row].text, sources[row], hypotheses)
                progress(1)
            return [predicted[row] for row in range(len(sources))]
        for rows, batch, config in self.batches(
            model, sources, self.recipe.search, encoded.wording
        ):
            recorder = Recorder(batch, config, tokenizer, special.end) if record else None
            observer: Observer | None = recorder
            if report is not None:
                text_of = partial(self.text_of, encoded.inputs[rows[0]].text, sources[rows[0]])
                observer = BestSoFar(batch, config, special.end, text_of, report)
            wording = encoded.wording.of(rows)
            outputs = search(
                model, batch, config, constraints=wording, special=special, observer=observer
            )
            records = recorder.records() if recorder else [None] * len(rows)
            for row, hypotheses, recorded in zip(rows, outputs, records, strict=True):
                own = (
                    None
                    if recorded is None
                    else {"source": self.source_tokens(sources[row]), **recorded}
                )
                predicted[row] = self._written(
                    encoded.inputs[row].text, sources[row], hypotheses, own
                )
            progress(len(rows))
        return [predicted[row] for row in range(len(sources))]

    def _written(
        self,
        text: str,
        source: Any,
        hypotheses: Sequence[Hypothesis],
        record: dict[str, Any] | None = None,
    ) -> Written:
        """The prediction for an input, made from its hypotheses."""
        spell = self.tokenizers[self.writes].tokens
        nbest = (
            Output(self.text_of(text, source, one), one.score, spell(one.tokens))
            for one in hypotheses
        )
        return Written(text, tuple(nbest), search=record)


class TextToText(WritingTask):
    """A source in, a text out; a task adds its columns and its metrics."""

    vocabularies: ClassVar[tuple[str, ...]] = ("source", "target")
    """What the model reads and writes; a task's corpus may have other words for them
    (`Corpus.READ_AS`)."""
    models: ClassVar[Any] = any_config(lambda config: config.reads == "source")
    lower_is_better = ("loss", "perplexity")
    writes = "target"
    input_columns = ("source",)
    shares_examples = True
    # which of the two texts has the length that quality is shown by
    lengths_of: ClassVar[LengthsOf] = "source"

    @classmethod
    def text_scores(
        cls, outputs: Sequence[str], references: References, config: Any
    ) -> dict[str, Any]:
        """How good outputs are, measured against the references of each; `config` is of the class
        `evaluation`."""
        raise NotImplementedError

    # Data

    def settings(self) -> list[Any]:
        return [self.recipe.data.max_length, self.recipe.data.max_ratio]

    def dropped(self, columns: Columns) -> dict[str, NDArray[np.bool_]]:
        lengths = np.stack(
            [np.fromiter(map(len, rows), dtype=np.int64) for rows in columns.values()]
        )
        longest, shortest = lengths.max(axis=0), lengths.min(axis=0)
        too_long = longest > self.recipe.data.max_length
        too_unequal = ~too_long & (
            longest > (self.recipe.data.max_ratio or math.inf) * np.maximum(shortest, 1)
        )
        return {"max_length": too_long, "max_ratio": too_unequal}

    def sizes(self, examples: Dataset) -> list[NDArray[np.int32]]:
        """The tokens of the source and of the target, without special ones."""
        return [column.lengths for column in examples.columns.values()]

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        """The longer column and one more: a source is read with `</s>`, a target with `<s>` or
        `</s>`."""
        longest: NDArray[np.int32] = np.max(self.sizes(examples), axis=0)
        return longest + np.int32(1)

    def length_differences(self, examples: Dataset) -> NDArray[np.int32]:
        source, target = self.sizes(examples)
        return source - target

    def longest_example(self, examples: Dataset) -> int:
        """The one with the most tokens in both columns."""
        return int(np.argmax(np.sum(self.sizes(examples), axis=0, dtype=np.int64)))

    def collate(self, examples: Dataset, rows: Integers, seed: int, epoch: int) -> Batch[Any]:
        """A source up to `</s>`, a target from `<s>` to `</s>`."""
        special = self.tokenizers["target"]
        ids_BL, lengths_B = examples.columns["target"].padded(
            rows, begin=special.begin, end=special.end, pad=special.pad
        )
        target = Padded.of(torch.from_numpy(ids_BL), torch.from_numpy(lengths_B))
        source, predicted = self.sources(examples, rows), int(lengths_B.sum()) - len(rows)
        return Batch(source, target, examples=tuple(rows.tolist()), tokens=predicted)

    def sources(self, examples: Dataset, rows: Integers) -> Ragged:
        special = self.tokenizers["source"]
        ids_BL, lengths_B = examples.columns["source"].padded(
            rows, begin=None, end=special.end, pad=special.pad
        )
        return Padded.of(torch.from_numpy(ids_BL), torch.from_numpy(lengths_B))

    def frequencies(self, examples: Dataset) -> NDArray[np.int64]:
        """How often each target token is to be written; `</s>` ends every example."""
        target = self.tokenizers["target"]
        counts = examples.columns["target"].counts(target.size)
        counts[target.end] += len(examples)
        return counts

    def read(self, corpora: Sequence[Corpus], part: Part, base: Path) -> Dataset:
        dataset = read(self, self.recipe, corpora, part, base)
        tokens = np.max([column.lengths for column in dataset.columns.values()], axis=0)
        hint = f"at most {LONGEST:,}: split it"
        DataError.raise_if(
            Problem(dataset.where(row), f"the pair has {tokens[row]:,} tokens", hint)
            for row in np.flatnonzero(tokens > LONGEST).tolist()
        )
        return dataset

    # Sources: captioning has images instead of tokens

    def source(self, examples: Dataset, row: int) -> Source:
        return [*examples.columns["source"][row].tolist(), self.tokenizers["source"].end]

    def encode_sources(self, inputs: Sequence[Example]) -> Sequence[Source | RegardError]:
        """The source that each input stands for, or why it cannot be read."""
        tokenizer = self.tokenizers["source"]
        encoded = encode_each(tokenizer, self.cleaned_inputs(inputs))
        return [ids if isinstance(ids, RegardError) else [*ids, tokenizer.end] for ids in encoded]

    def cleaned_inputs(self, inputs: Sequence[Example]) -> list[Example]:
        """The inputs with texts that are cleaned as those of the training were."""
        clean = self.recipe.data.cleaning("source")
        return [given.with_text(clean(given.text)) for given in inputs]

    def source_batch(self, sources: Sequence[Source]) -> Ragged:
        texts = [source for source in sources if not isinstance(source, Picture)]
        if texts:
            return padded(texts, self.tokenizers["source"].pad)
        return images_of([source for source in sources if isinstance(source, Picture)])

    def source_tokens(self, source: Source) -> list[str]:
        return (
            source.names()
            if isinstance(source, Picture)
            else self.tokenizers["source"].tokens(source)
        )

    def by_input(self, examples: Dataset) -> list[list[int]]:
        """The examples of each input: several where an input has several references."""
        return [[row] for row in range(len(examples))]

    # Training

    @property
    def packs(self) -> bool:
        return bool(self.recipe.model.packs) and self.recipe.training.teacher_forcing == 1

    def check(self, data: Prepared[Dataset]) -> None:
        read = (
            data.train,
            data.validation,
        )  # a validation that cannot be read would abort the training
        longest = [
            max(int(part.columns[name].lengths.max()) for part in read) + 1
            for name in ("source", "target")
        ]
        self.recipe.model.check_data(*longest)
        self.check_search(data.validation)

    def check_search(self, validation: Dataset) -> None:
        """Refuse a search that the validation cannot run: it would abort the training."""
        search, decoded = (
            self.recipe.search,
            self.by_input(validation)[: self.recipe.training.decode],
        )
        lengths = [len(self.source(validation, rows[0])) for rows in decoded]
        Limits.of(
            lengths, search, wording_of(self.tokenizers["target"], search, [None] * len(lengths))
        )

    def build(self) -> Any:
        sizes = [self.tokenizers[name].size for name in self.vocabularies]
        return MODELS[self.recipe.model.kind].build(self.recipe.model, *sizes)

    def objective(self, model: Generator) -> TokenCrossEntropy:
        return TokenCrossEntropy(
            model, self.recipe.training.label_smoothing, self.recipe.training.teacher_forcing
        )

    def validate(self, model: Generator, examples: Dataset) -> dict[str, Any]:
        """Loss and perplexity on all examples; the task's metrics on the first inputs, decoded
        greedily."""
        metrics: dict[str, Any] = loss_metrics(*self.summed_loss(model, examples))
        inputs = self.by_input(examples)[: self.recipe.training.decode]
        if not inputs or not math.isfinite(metrics["loss"]):
            return metrics
        greedy = self.recipe.search.model_copy(update={"beam": 1, "nbest": 1, "sample": False})
        outputs = self.outputs(model, examples, inputs, greedy, ignore)
        scores = self.scored(examples, inputs, outputs)
        metrics |= {
            name: value for name, value in scores.items() if not name.endswith("_signature")
        }
        metrics["samples"] = [
            {
                "source": examples.texts["source"][rows[0]],
                "output": output,
                "target": examples.texts["target"][rows[0]],
            }
            for rows, output in zip(inputs[: self.recipe.training.samples], outputs, strict=False)
        ]
        return metrics

    def results(
        self, model: Generator, examples: Dataset, progress: Done = ignore
    ) -> tuple[list[str], float, int]:
        """The outputs; cross-entropy and number of all tokens."""
        outputs = self.outputs(
            model, examples, self.by_input(examples), self.recipe.search, progress
        )
        return outputs, *self.summed_loss(model, examples)

    def combine(
        self, examples: Dataset, parts: Sequence[tuple[list[str], float, int]]
    ) -> dict[str, Any]:
        outputs, totals, tokens = zip(*parts, strict=True)
        scores = self.scored(examples, self.by_input(examples), [*chain.from_iterable(outputs)])
        loss = loss_metrics(sum(totals), sum(tokens))
        metrics = {"sentences": len(examples), **scores, **loss, "beam": self.recipe.search.beam}
        notes = [
            note
            for column in self.vocabularies
            for note in signs_in(examples.texts[column]).notes(column)
        ]
        return metrics | ({"note": "; ".join(notes)} if notes else {})

    def outputs(
        self,
        model: Generator,
        examples: Dataset,
        inputs: Sequence[Sequence[int]],
        config: SearchConfig,
        progress: Done,
    ) -> list[str]:
        """The best output for each input, given by its examples."""
        outputs = [""] * len(inputs)
        for rows, hypotheses in self.decode(
            model, [self.source(examples, rows[0]) for rows in inputs], config
        ):
            for row, best in zip(rows, hypotheses, strict=True):
                outputs[row] = self.tokenizers["target"].decode(best[0].tokens)
            progress(len(rows))
        return outputs

    def scored(
        self, examples: Dataset, inputs: Sequence[Sequence[int]], outputs: list[str]
    ) -> dict[str, Any]:
        references = [[examples.texts["target"][row] for row in rows] for rows in inputs]
        return self.text_scores(outputs, references, self.recipe.evaluation)

    def summed_loss(self, model: Generator, examples: Dataset) -> tuple[float, int]:
        """The cross-entropy of all tokens, and how many there are."""
        if isinstance(model, ExternalModel):
            sources, targets = (
                [examples.columns[name][row].tolist() for row in range(len(examples))]
                for name in ("source", "target")
            )
            end = self.tokenizers["source"].end
            scores = [
                *chain.from_iterable(model.token_scores([[*ids, end] for ids in sources], targets))
            ]
            return -sum(scores), len(scores)
        objective, total, tokens = TokenCrossEntropy(model).eval(), 0.0, 0
        with torch.inference_mode():
            for rows in fixed_batches(examples, READ_TOKENS):
                batch = examples.batch(rows)
                total += float(objective(batch.to(device_of(model)))[1])
                tokens += batch.tokens
        return total, tokens

    # Verbs

    def encode_inputs(
        self, model: Generator, inputs: Sequence[Example], prefixes: Sequence[str] | None = None
    ) -> EncodedInputs[Source]:
        """The sources and the wording; a search whose limits leave no output is refused."""
        rows: list[Source | RegardError] = not_longer(
            self.encode_sources(inputs), model.longest, inputs
        )
        wording = wording_of(
            self.tokenizers["target"], self.recipe.search, prefixes or [None] * len(inputs)
        )
        sources = {
            number: row for number, row in enumerate(rows) if not isinstance(row, RegardError)
        }
        Limits.of([*map(len, sources.values())], self.recipe.search, wording.of([*sources]))
        return EncodedInputs(inputs, rows, wording)

    def notes(
        self, encoded: EncodedInputs[Source], predictions: Sequence[Prediction]
    ) -> list[Note]:
        """Which inputs have words that the tokenizer does not know; images have none."""
        given = zip(self.cleaned_inputs(encoded.inputs), encoded.readable(), strict=True)
        texts = [(text, row) for text, row in given if not isinstance(row, Picture)]
        if not texts:
            return []
        return unknown_notes(
            self.tokenizers["source"], [text for text, _ in texts], [row for _, row in texts]
        )

    def decode(
        self,
        model: Generator,
        sources: Sequence[Source],
        config: SearchConfig,
        watch: Callable[[list[int]], Observer] | None = None,
    ) -> Iterator[tuple[list[int], list[list[Hypothesis]]]]:
        """Row numbers and their hypotheses, batch by batch; `watch` gives the observer of a
        batch."""
        if isinstance(model, ExternalModel):
            texts = [source for source in sources if not isinstance(source, Picture)]
            for row, hypotheses in model.search(texts, config):
                yield [row], [hypotheses]
            return
        wording, special = (
            wording_of(self.tokenizers["target"], config, [None] * len(sources)),
            self.special_tokens,
        )
        for rows, batch, _ in self.batches(model, sources, config, wording):
            observer = watch(rows) if watch else None
            yield (
                rows,
                search(
                    model,
                    batch,
                    config,
                    constraints=wording.of(rows),
                    special=special,
                    observer=observer,
                ),
            )

    def batches(
        self,
        model: Generator,
        sources: Sequence[Source],
        config: SearchConfig,
        wording: Constraints,
    ) -> Iterator[SourceBatch]:
        """Sources of about equal length together."""
        lengths = [len(source) for source in sources]
        Limits.of(lengths, config, wording)
        for rows in by_length(lengths, decode_tokens(config, device_of(model))):
            yield (
                rows,
                self.source_batch([sources[row] for row in rows]).to(device_of(model)),
                config,
            )

    def text_model(self, model: Any) -> Contextual | None:
        return SourceStates(model) if isinstance(model, Transformer) else None

    def score_text(
        self, model: Generator, source: str, target: str | Sequence[str]
    ) -> tuple[list[int], list[float]]:
        sources: list[Source] = readable(self.encode_sources([Example.of_text(source, "source")]))
        ids = encode_target(self.tokenizers["target"], target)
        written = ids[:-1] if ids[-1] == self.tokenizers["target"].end else ids
        if isinstance(model, ExternalModel):
            texts = [given for given in sources if not isinstance(given, Picture)]
            [scores] = model.token_scores(texts, [written])
        else:
            [scores] = token_scores(model, self.pairs(model, sources, [written]))
        return ids, scores[: len(ids)]

    def hypotheses(
        self,
        model: Generator,
        sources: Sequence[Source],
        targets: Sequence[Sequence[int]],
        config: SearchConfig,
    ) -> list[Hypothesis]:
        """The given targets as a search with this config would rank them: log P, and the objective
        it maximises."""
        hypotheses: dict[int, Hypothesis] = {}
        lengths = [max(len(s), len(t) + 1) for s, t in zip(sources, targets, strict=True)]
        for rows in by_length(lengths, READ_TOKENS):
            batch = self.pairs(
                model, [sources[row] for row in rows], [targets[row] for row in rows]
            )
            hypotheses.update(zip(rows, as_hypotheses(model, batch, config), strict=True))
        return [hypotheses[row] for row in range(len(sources))]

    def pairs(
        self, model: Generator, sources: Sequence[Source], targets: Sequence[Sequence[int]]
    ) -> Batch[Any]:
        """Sources and targets, these without special tokens, as one batch on the model's device."""
        special = self.tokenizers["target"]
        written = padded([[special.begin, *ids, special.end] for ids in targets], special.pad)
        return Batch(self.source_batch(sources), written).to(device_of(model))


class Parallel(Corpus):
    """Pairs of texts."""

    source: str | int | None = None
    """What is read: a file of its own, a folder of such files, or the column's name or number in
    `file`."""
    target: str | int | None = None
    """What is to be written: likewise."""


class EvaluationConfig(Config):
    """How outputs are measured against references."""

    lowercase: bool = False
    """Whether BLEU, chrF and exact match take upper and lower case for the same."""
    tokenize: Literal["13a", "intl", "char", "zh", "ja-mecab", "none"] = "13a"
    """sacreBLEU's tokenisation. `char` suits Korean. `ja-mecab` is usual for Japanese, and needs
    `pip install 'regard[japanese]'`."""


class Translation(TextToText):
    """Pairs of texts, measured by BLEU, chrF and exact match."""

    name = "translation"
    data = TextPairs[Parallel]
    evaluation = EvaluationConfig
    higher_is_better: ClassVar[tuple[str, ...]] = ("bleu", "chrf", "exact_match")

    orders: ClassVar[Mapping[str, int]] = {"bleu": 4}  # the longest n-gram of each BLEU

    @classmethod
    def check_evaluation(cls, config: EvaluationConfig) -> None:
        if config.tokenize == "ja-mecab":
            import_extra(
                "MeCab", extra="japanese", where="evaluation.tokenize", doing="measuring with"
            )

    @classmethod
    def text_scores(
        cls, outputs: Sequence[str], references: References, config: EvaluationConfig
    ) -> dict[str, Any]:
        """sacreBLEU's BLEU and chrF with their signatures, and the share of outputs that equal a
        reference exactly."""
        cls.check_evaluation(config)
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        outputs = [comparable(text, config.lowercase) for text in outputs]
        allowed = [[comparable(text, config.lowercase) for text in texts] for texts in references]
        streams: list[Any] = [list(stream) for stream in zip_longest(*allowed)]
        chrf = CHRF(lowercase=config.lowercase)
        bleu = {
            name: BLEU(lowercase=config.lowercase, tokenize=config.tokenize, max_ngram_order=order)
            for name, order in cls.orders.items()
        }
        return {
            **{name: metric.corpus_score(outputs, streams).score for name, metric in bleu.items()},
            "chrf": chrf.corpus_score(outputs, streams).score,
            "exact_match": sum(
                output in texts for output, texts in zip(outputs, allowed, strict=True)
            )
            / len(outputs),
            "bleu_signature": str(bleu["bleu"].get_signature()),
            "chrf_signature": str(chrf.get_signature()),
        }


def comparable(text: str, lowercase: bool) -> str:
    """The form in which an output is compared with a reference."""
    return nfc(text).lower() if lowercase else nfc(text)


def loss_metrics(total: float, tokens: int) -> dict[str, float]:
    return {"loss": total / tokens, "perplexity": perplexity(total / tokens)}


# Search: also for language models, which write the continuation of a text


def decode_tokens(config: SearchConfig, device: torch.device) -> int:
    """Padded source tokens that are decoded at once."""
    rows = config.nbest if config.sample else config.beam
    if device.type == "cpu":
        return max(1, DECODE_TOKENS // max(2, rows))  # greedy search too: half the padding
    return max(1, GPU_DECODE_TOKENS // rows)


def wording_of(
    tokenizer: Tokenizer, config: SearchConfig, prefixes: Sequence[str | None]
) -> Constraints:
    """The wording of outputs. Each has its own of the `prefixes`, empty for none; or they are None,
    and `config.prefix` is for all."""
    own = [prefix for prefix in prefixes if prefix is not None]
    if not own and config.prefix is None and not config.banned:
        return Constraints()
    texts, ban = own or [config.prefix or ""], ban_of(tokenizer, config)
    encoded = [
        ids if text.strip() else []
        for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True)
    ]
    banned = [*filter(None, map(tokenizer.normalised, config.banned))]
    problems = []
    for number, (text, ids) in enumerate(zip(texts, encoded, strict=True), 1):
        where = f"prefix {number}" if own else "search.prefix"
        if tokenizer.unk in ids:
            hint = "its vocabulary lacks a part of it: use other words"
            problems.append(Problem(where, f"the tokenizer cannot write {text!r}", hint))
        elif text.strip() and tokenizer.all_unknown(ids):
            problems.append(Problem(where, f"there is no token for {text!r}", "use other words"))
        elif any(unwanted in tokenizer.decode(ids) for unwanted in banned):
            what = f"{text!r} holds a text that search.banned rules out"
            problems.append(Problem(where, what, "change one of the two"))
    DecodeError.raise_if(problems)
    return Constraints(encoded if own else encoded * len(prefixes), ban)


def ban_of(tokenizer: Tokenizer, config: SearchConfig) -> BannedTexts | None:
    """The texts of `config.banned`, as outputs spell them, worked out for a vocabulary; None where
    there is none."""
    spelt = [text.encode() for text in map(tokenizer.normalised, config.banned) if text]
    if not spelt:
        return None
    never = {tokenizer.pad, tokenizer.begin, tokenizer.end} | (
        set() if config.unknown else {tokenizer.unk}
    )
    pieces = {
        token: piece for token, piece in enumerate(tokenizer.token_bytes()) if token not in never
    }
    return BannedTexts(spelt, pieces)
