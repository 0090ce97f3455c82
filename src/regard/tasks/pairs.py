"""Pairs of a source and a text: encoding, model, written targets and their metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.batches import Batch, Padded
from regard.data.config import Corpus, Recipe
from regard.data.corpora import Part
from regard.data.dataset import Columns, Dataset, Encoding, Where
from regard.data.epochs import fixed_batches
from regard.data.example import Example
from regard.data.images import Picture
from regard.data.inputs import Inputs
from regard.data.prepare import Prepared, read_corpora
from regard.data.store import Integers
from regard.errors import DataError, Problem, RegardError
from regard.models import MODELS, any_config
from regard.models.base import Contextual, Generator, device_of
from regard.models.source_states import SourceStates
from regard.models.transformer import Transformer
from regard.objectives.cross_entropy import TokenCrossEntropy, perplexity
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.search.external import ExternalModel
from regard.search.hypotheses import Hypothesis
from regard.search.observers import Observer
from regard.search.rules import Constraints, Limits, SpecialTokens
from regard.search.scoring import as_hypotheses, token_scores
from regard.tasks.answers import Done, EncodedInputs, Note, Prediction, ignore
from regard.tasks.reading import (
    LONGEST,
    READ_TOKENS,
    by_length,
    encode_target,
    first_tokens,
    not_longer,
    padded,
)
from regard.tasks.sources import Sources, TextSources
from regard.tasks.task import Metrics, Network, Task, set_first_bias
from regard.tasks.views import TextVectors, Views
from regard.tasks.written import (
    Source,
    SourceBatch,
    WrittenTexts,
    decode_tokens,
    wording_of,
)
from regard.text.clean import signs_in
from regard.text.normalise import nfc
from regard.text.tokenizers import Tokenizers

References = Sequence[Sequence[str]]
"""The texts that each output may equal: one, or several."""
TextScores = Callable[[Sequence[str], References], dict[str, Any]]
"""Outputs and the references of each -> metrics."""
SOURCE_MODELS = any_config(lambda config: config.reads == "source")


class PairEncoding(Encoding):
    """Sources and targets, whose tokens are the columns."""

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers, sources: Sources) -> None:
        super().__init__(recipe, tokenizers)
        self.sources = sources
        self.first = {side: first_tokens(recipe, tokenizers, side) for side in tokenizers}
        """The tokens before each text, by side."""

    @property
    def text_sides(self) -> list[str]:
        """The sides that are texts, the source first; an image has no tokens."""
        return [side for side in ("source", "target") if side in self.tokenizers]

    def settings(self) -> list[Any]:
        first = [self.first] if any(self.first.values()) else []
        return [self.recipe.data.max_length, self.recipe.data.max_ratio, *first]

    def encode(self, texts: Mapping[str, Sequence[str]], where: Where) -> Columns:
        columns = super().encode(texts, where)
        begun = {
            side: [[*first, *ids] for ids in columns[side]]
            for side, first in self.first.items()
            if first
        }
        return {**columns, **begun}

    def dropped(self, columns: Columns) -> dict[str, NDArray[np.bool_]]:
        lengths = np.stack(
            [np.fromiter(map(len, rows), dtype=np.int64) for rows in columns.values()]
        )
        longest = lengths.max(axis=0)
        shortest = lengths.min(axis=0)
        most = (self.recipe.data.max_ratio or math.inf) * np.maximum(shortest, 1)
        too_long = longest > self.recipe.data.max_length
        return {"max_length": too_long, "max_ratio": ~too_long & (longest > most)}

    def sizes(self, examples: Dataset) -> list[NDArray[np.int32]]:
        """The positions of the source and of the target, without special tokens."""
        return [self.sources.lengths(examples), examples.columns["target"].lengths]

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        """The longer side and one more: a source is read with `</s>`, a target with `<s>` or
        `</s>`."""
        longest: NDArray[np.int32] = np.max(self.sizes(examples), axis=0)
        return longest + np.int32(1)

    def length_differences(self, examples: Dataset) -> NDArray[np.int32]:
        source, target = self.sizes(examples)
        return source - target

    def longest_example(self, examples: Dataset) -> int:
        """The one with the most positions on both sides."""
        return int(np.argmax(np.sum(self.sizes(examples), axis=0, dtype=np.int64)))

    def collate(self, examples: Dataset, rows: Integers, seed: int, epoch: int) -> Batch[Any]:
        """A source up to `</s>`, a target from `<s>` to `</s>`."""
        special = self.tokenizers["target"]
        ids_BL, lengths_B = examples.columns["target"].padded(
            rows, begin=special.begin, end=special.end, pad=special.pad
        )
        target = Padded.of(torch.from_numpy(ids_BL), torch.from_numpy(lengths_B))
        source = self.sources.collate(examples, rows)
        predicted = int(lengths_B.sum()) - len(rows)
        return Batch(source, target, examples=tuple(rows.tolist()), tokens=predicted)

    def pieces(self, examples: Dataset, row: int) -> dict[str, list[str]]:
        return self.sources.pieces(examples, row) | super().pieces(examples, row)

    def frequencies(self, examples: Dataset) -> NDArray[np.int64]:
        """How often each target token is to be written; `</s>` ends every example."""
        target = self.tokenizers["target"]
        counts = examples.columns["target"].counts(target.size)
        counts[target.end] += len(examples)
        return counts

    def fingerprints(self, train: Any, validation: Any) -> dict[str, int]:
        return super().fingerprints(train, validation) | self.sources.fingerprints(
            train, validation
        )


def refuse_long_pairs(examples: Dataset) -> None:
    """Refuse pairs so long that a line break is missing rather than a sentence long."""
    tokens = np.max([column.lengths for column in examples.columns.values()], axis=0)
    hint = f"at most {LONGEST:,}: split it"
    DataError.raise_if(
        Problem(examples.where(row), f"the pair has {tokens[row]:,} tokens", hint)
        for row in np.flatnonzero(tokens > LONGEST).tolist()
    )


# The model


class PairNetwork(Network):
    """A model that reads a source and writes a target."""

    def __init__(self, recipe: Recipe, encoding: PairEncoding) -> None:
        self.recipe = recipe
        self.encoding = encoding

    def build(self) -> Any:
        encoding = self.encoding
        sizes = [encoding.tokenizers[side].size for side in encoding.text_sides]
        return MODELS[self.recipe.model.kind].build(self.recipe.model, *sizes)

    def set_first_weights(self, model: Any, train: Dataset) -> None:
        set_first_bias(model, self.encoding, train)

    def check(self, data: Prepared[Dataset]) -> None:
        self.encoding.sources.check(data)


def token_loss(model: Generator, recipe: Recipe, weight: float = 0.0) -> TokenCrossEntropy:
    """The model under the cross-entropy of its targets, as the recipe says; `weight` is that of
    doubly stochastic attention."""
    training = recipe.training
    return TokenCrossEntropy(model, training.label_smoothing, training.teacher_forcing, weight)


# The targets


class TargetTexts(WrittenTexts):
    """A text for each source."""

    column = "target"

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers, sources: Sources) -> None:
        target = tokenizers["target"]
        special = SpecialTokens(target.begin, target.end, target.pad, target.unk, target.begin)
        super().__init__(target, recipe.search, special)
        self.recipe = recipe
        self.first = first_tokens(recipe, tokenizers, "target")
        self.sources = sources

    def encode_inputs(
        self, model: Generator, inputs: Sequence[Example], prefixes: Sequence[str] | None = None
    ) -> EncodedInputs[Source]:
        """The sources and the wording; a search whose limits leave no output is refused."""
        rows: list[Source | RegardError] = not_longer(
            self.sources.read(inputs), model.longest, inputs
        )
        wording = self.wording(self.config, len(inputs), prefixes)
        sources = {
            number: row for number, row in enumerate(rows) if not isinstance(row, RegardError)
        }
        Limits.of([*map(len, sources.values())], self.config, wording.of([*sources]))
        return EncodedInputs(inputs, rows, wording)

    def notes(
        self, encoded: EncodedInputs[Source], predictions: Sequence[Prediction]
    ) -> list[Note]:
        return self.sources.notes(encoded.inputs, encoded.readable())

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
        device = device_of(model)
        for rows in by_length(lengths, decode_tokens(config, device)):
            yield rows, self.sources.batch([sources[row] for row in rows]).to(device), config

    def source_tokens(self, source: Source) -> list[str]:
        return self.sources.tokens(source)

    def check(self, validation: Dataset) -> None:
        """Refuse a search that cannot decode the inputs of the validation."""
        inputs = decoded_inputs(self.sources.groups(validation), self.recipe.training.decode)
        lengths = [len(self.sources.of(validation, rows[0])) for rows in inputs]
        Limits.of(lengths, self.config, self.wording(self.config, len(lengths)))

    def wording(
        self, config: SearchConfig, inputs: int, prefixes: Sequence[str] | None = None
    ) -> Constraints:
        """The wording of the outputs: first the token of their language, if the model has many."""
        return wording_of(self.tokenizer, config, inputs, prefixes).after(self.first, inputs)

    def target_ids(self, target: str | Sequence[str]) -> list[int]:
        """Token ids of a target with its `</s>`, or of exact tokens as they are."""
        return encode_target(self.tokenizer, target, self.first)

    # Sources of examples, whatever the wording that a user asks for

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
            for row, hypotheses in model.search(texts, config, self.first):
                yield [row], [hypotheses]
            return
        wording = self.wording(config, len(sources))
        for rows, batch, _ in self.batches(model, sources, config, wording):
            outputs = search(
                model,
                batch,
                config,
                constraints=wording.of(rows),
                special=self.special,
                observer=watch(rows) if watch else None,
            )
            yield rows, outputs

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
        sources = [self.sources.of(examples, rows[0]) for rows in inputs]
        for rows, hypotheses in self.decode(model, sources, config):
            for row, nbest in zip(rows, hypotheses, strict=True):
                outputs[row] = self.tokenizer.decode(nbest[0].tokens)
            progress(len(rows))
        return outputs

    # Targets that are given

    def score_text(
        self, model: Generator, source: str, target: str | Sequence[str]
    ) -> tuple[list[int], list[float]]:
        given = self.sources.read_one(Example.of_text(source, "source"))
        ids = self.target_ids(target)
        written = ids[:-1] if ids[-1] == self.tokenizer.end else ids
        if isinstance(model, ExternalModel):
            assert not isinstance(given, Picture)
            [scores] = model.token_scores([given], [written])
        else:
            [scores] = token_scores(model, self.pairs(model, [given], [written]))
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
        begin, end = self.tokenizer.begin, self.tokenizer.end
        written = padded([[begin, *ids, end] for ids in targets], self.tokenizer.pad)
        return Batch(self.sources.batch(sources), written).to(device_of(model))


# Their metrics

SAMPLE_SEED = 1
"""Seed of the choice of inputs that a validation decodes."""


def decoded_inputs(inputs: Sequence[list[int]], count: int) -> list[list[int]]:
    """So many inputs, in their order; the same in every training, so that metrics can be compared.
    The first inputs might be the shortest ones: some files are sorted."""
    random_numbers = np.random.PCG64(SAMPLE_SEED).random_raw(len(inputs))
    chosen = np.argsort(random_numbers, kind="stable")[:count]
    return [inputs[number] for number in np.sort(chosen)]


class TextMetrics(Metrics):
    """Loss and perplexity of the targets, and what `text_scores` says about the outputs."""

    def __init__(
        self,
        encoding: PairEncoding,
        targets: TargetTexts,
        text_scores: TextScores,
        bleu_orders: Mapping[str, int] | None = None,
    ) -> None:
        """`bleu_orders` has the longest n-gram of each BLEU among the scores."""
        self.recipe = encoding.recipe
        self.encoding = encoding
        self.targets = targets
        self.text_scores = text_scores
        self.bleu_orders = bleu_orders or {}

    @property
    def shares_examples(self) -> bool:
        return self.targets.sources.are_alone

    def validate(self, model: Generator, examples: Dataset) -> dict[str, Any]:
        """Loss and perplexity on all examples; the other metrics on a sample of the inputs,
        decoded greedily."""
        training = self.recipe.training
        metrics: dict[str, Any] = loss_metrics(*self.summed_loss(model, examples))
        inputs = decoded_inputs(self.targets.sources.groups(examples), training.decode)
        if not inputs or not math.isfinite(metrics["loss"]):
            return metrics
        greedy = self.recipe.search.model_copy(update={"beam": 1, "nbest": 1, "sample": False})
        outputs = self.targets.outputs(model, examples, inputs, greedy, ignore)
        scores = self._scores_of(examples, inputs, outputs)
        metrics |= {
            name: value for name, value in scores.items() if not name.endswith("_signature")
        }
        metrics["samples"] = [
            {
                "source": examples.texts["source"][rows[0]],
                "output": output,
                "target": examples.texts["target"][rows[0]],
            }
            for rows, output in zip(inputs[: training.samples], outputs, strict=False)
        ]
        return metrics

    def results(
        self, model: Generator, examples: Dataset, progress: Done = ignore
    ) -> tuple[list[str], float, int]:
        """The outputs; cross-entropy and number of all tokens."""
        inputs = self.targets.sources.groups(examples)
        outputs = self.targets.outputs(model, examples, inputs, self.recipe.search, progress)
        return outputs, *self.summed_loss(model, examples)

    def combine(
        self, examples: Dataset, parts: Sequence[tuple[list[str], float, int]]
    ) -> dict[str, Any]:
        outputs, totals, tokens = zip(*parts, strict=True)
        sources = self.targets.sources
        scores = self._scores_of(
            examples, sources.groups(examples), [*chain.from_iterable(outputs)]
        )
        loss = loss_metrics(sum(totals), sum(tokens))
        counts = {**sources.counts(examples), "sentences": len(examples)}
        notes = [
            note
            for side in self.encoding.text_sides
            for note in signs_in(examples.texts[side]).notes(side)
        ]
        metrics = {**counts, **scores, **loss, "beam": self.recipe.search.beam}
        return metrics | ({"note": "; ".join(notes)} if notes else {})

    def _scores_of(
        self, examples: Dataset, inputs: Sequence[Sequence[int]], outputs: list[str]
    ) -> dict[str, Any]:
        references = [[examples.texts["target"][row] for row in rows] for rows in inputs]
        return self.text_scores(outputs, references)

    def summed_loss(self, model: Generator, examples: Dataset) -> tuple[float, int]:
        """The cross-entropy of all tokens, and how many there are."""
        if isinstance(model, ExternalModel):
            return self._external_loss(model, examples)
        objective = TokenCrossEntropy(model).eval()
        total = 0.0
        tokens = 0
        with torch.inference_mode():
            for rows in fixed_batches(examples, READ_TOKENS):
                batch = examples.batch(rows)
                total += float(objective(batch.to(device_of(model)))[1])
                tokens += batch.tokens
        return total, tokens

    def _external_loss(self, model: ExternalModel, examples: Dataset) -> tuple[float, int]:
        rows = range(len(examples))
        sources = [self.targets.sources.of(examples, row) for row in rows]
        texts = [source for source in sources if not isinstance(source, Picture)]
        targets = [examples.columns["target"][row].tolist() for row in rows]
        scores = [*chain.from_iterable(model.token_scores(texts, targets))]
        return -sum(scores), len(scores)


def comparable(text: str, lowercase: bool) -> str:
    """The form in which an output is compared with a reference."""
    return nfc(text).lower() if lowercase else nfc(text)


def loss_metrics(total: float, tokens: int) -> dict[str, float]:
    return {"loss": total / tokens, "perplexity": perplexity(total / tokens)}


# Tasks that read a text and write another


def text_pair_encoding(recipe: Recipe, tokenizers: Tokenizers) -> PairEncoding:
    """The encoding of a task whose sources are texts, too."""
    return PairEncoding(recipe, tokenizers, TextSources(recipe, tokenizers))


def set_text_pair_parts(
    task: Task, text_scores: TextScores, bleu_orders: Mapping[str, int] | None = None
) -> None:
    """Set all parts of a task that reads a text and writes another, measured by `text_scores`."""
    recipe = task.recipe
    encoding = text_pair_encoding(recipe, task.tokenizers)
    targets = TargetTexts(recipe, task.tokenizers, encoding.sources)
    metrics = TextMetrics(encoding, targets, text_scores, bleu_orders)
    task.inputs = Inputs(task.name, task.corpora, recipe.data.encoding, ("source",))
    task.encoding = encoding
    task.network = PairNetwork(recipe, encoding)
    task.answers = targets
    task.metrics = metrics
    task.views = pair_views(metrics, encoding)


def read_pairs(task: Task, corpora: Sequence[Corpus], part: Part, base: Path) -> Dataset:
    """Corpora as they are, to measure a run on; pairs that are far too long are refused."""
    examples = read_corpora(task.encoding, task.recipe, corpora, part, base)
    refuse_long_pairs(examples)
    return examples


def pair_views(metrics: TextMetrics, encoding: PairEncoding) -> Views:
    """The views of a task that reads texts."""
    vectors = TextVectors(
        encoding.tokenizers["source"],
        source_states,
        longest=encoding.recipe.data.max_length,
        source=first_tokens(encoding.recipe, encoding.tokenizers, "source"),
    )
    return Views(vectors=vectors, written=metrics.targets, text_metrics=metrics)


def source_states(model: Any) -> Contextual | None:
    """A Transformer's states of a source."""
    return SourceStates(model) if isinstance(model, Transformer) else None
