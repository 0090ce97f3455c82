"""Language modeling: raw text in, a model that predicts the next token and continues a text."""

from __future__ import annotations

import math
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from os.path import commonprefix
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batches import TextBatch
from regard.data.config import Recipe
from regard.data.corpora import Part
from regard.data.example import Example
from regard.data.prepare import Prepared
from regard.data.raw import (
    Pieces,
    RawData,
    RawInputs,
    RawText,
    RawTokens,
    Streams,
    contiguous_pieces,
    document_pieces,
)
from regard.data.readers import Reader
from regard.errors import ConfigError, DataError, DecodeError, InputError, RegardError
from regard.models import MODELS, any_config
from regard.models.base import LanguageModel, device_of
from regard.models.elmo import ELMo
from regard.models.fasttext import FastText
from regard.models.glove import GloVe
from regard.models.lstm_lm import LSTMLanguageModel
from regard.models.ngram_lm import NgramLanguageModel
from regard.models.word2vec import Word2Vec
from regard.objectives import language_model as objectives
from regard.objectives.cbow import ContinuousBagOfWords
from regard.objectives.cross_entropy import Objective, perplexity
from regard.objectives.glove import WeightedLeastSquares
from regard.objectives.skip_gram import SkipGram
from regard.objectives.word_windows import WindowLoss
from regard.search.config import SearchConfig
from regard.search.hypotheses import Hypothesis
from regard.search.rules import Constraints, SpecialTokens
from regard.search.scoring import token_scores
from regard.tasks.answers import Done, EncodedInputs, Note, readable
from regard.tasks.raw import (
    RawEncoding,
    TextNotes,
    check_max_length,
    contextual,
    learn_text_tokenizer,
    read_documents,
    spelling_options,
    token_losses,
)
from regard.tasks.reading import (
    READ_TOKENS,
    Ids,
    by_length,
    encode_each,
    encode_target,
    not_longer,
    padded,
)
from regard.tasks.task import Metrics, Network, Start, Task, set_first_bias, training_texts
from regard.tasks.views import TextVectors, Views
from regard.tasks.written import SourceBatch, WrittenTexts, decode_tokens, wording_of
from regard.text.normalise import fold_white_space
from regard.text.tokenizers import Tokenizer, Tokenizers
from regard.text.vocabularies import SPECIAL_NAMES

PROMPT_WORDS = 5
"""Words that a sample of a validation begins with."""
CONTINUATION_TOKENS = 20
"""The most tokens that are then written."""
UNKNOWN_NOTE = (
    "by word and by character, an unknown token costs, besides <unk>, the spelling of what it "
    "stands for: (n + 1) log 257 for n bytes"
)
"""How `RawTokens.spelt_out` counts unknown tokens (data/raw.py)."""
RECONSTRUCTION = "reconstruction_"
"""How the metrics of an autoencoder begin, which predicts a text given that text."""
BLOCKS = {"documents": document_pieces, "contiguous": contiguous_pieces, "stream": Streams}
"""How a text is cut into rows."""
WINDOW_LOSSES: dict[str, type[WindowLoss]] = {
    "skip_gram": SkipGram,
    "cbow": ContinuousBagOfWords,
}
Loss = objectives.TextLoss | WindowLoss | WeightedLeastSquares


class LanguageData(RawData):
    """The raw text of a language model."""

    blocks: Literal["documents", "contiguous", "stream"] = "documents"
    """The rows of a batch. `documents`: each row is a document, or a piece of one, without its
    neighbours. `contiguous`: each row is a piece of `max_length` tokens of all documents joined, so
    that short documents are read after those before them. `stream`: all documents joined and cut
    into one stream per row, each of which continues where the previous batch ended; only for
    lstm_lm, which carries its state over (truncated back-propagation)."""


class LanguageModeling(Task):
    """Raw text, measured by perplexity and bits per character."""

    name = "language_modeling"
    data = LanguageData
    models = any_config(
        lambda config: config.pretraining in ("next_token", "both_directions", "surrounding")
    )
    vocabularies = ("text",)
    lower_is_better = (
        "loss",
        "perplexity",
        "word_perplexity",
        "bits_per_character",
        "reconstruction_perplexity",
        "reconstruction_word_perplexity",
        "reconstruction_bits_per_character",
    )
    writes = "continuations"
    has_flat_batches = True
    start = Start(completes_model=True, continues=True)
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"training": {"label_smoothing": 0.0}}

    learn_tokenizers = staticmethod(partial(learn_text_tokenizer, special=SPECIAL_NAMES))
    encoding: RawEncoding

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        tokenizer = tokenizers["text"]
        notes = TextNotes(recipe, tokenizer)
        continuations = Continuations(recipe, tokenizer, notes)
        vectors = TextVectors(tokenizer, contextual, folds=bool(recipe.data.train), notes=notes)
        self.inputs = RawInputs(self.name, self.corpora, recipe.data.encoding, ("text",))
        self.encoding = self.make_encoding(recipe, tokenizers)
        self.network = TextNetwork(recipe, self.encoding)
        self.answers = continuations
        self.metrics = LanguageMetrics(recipe, self.objective, continuations)
        self.views = Views(
            vectors=vectors,
            written=continuations,
            rewrites=is_autoencoder(recipe),
            unit="documents",
        )

    @classmethod
    def make_encoding(cls, recipe: Recipe, tokenizers: Tokenizers) -> RawEncoding:
        return RawEncoding(recipe, tokenizers, partial(cut_blocks, recipe))

    def objective(self, model: Any) -> Loss:
        smoothing = self.recipe.training.label_smoothing
        if isinstance(model, GloVe):
            return WeightedLeastSquares(model)
        if isinstance(model, (Word2Vec, FastText)):
            return WINDOW_LOSSES[model.config.method](model)
        if isinstance(model, NgramLanguageModel):
            return objectives.LeavingOneOut(model)
        if isinstance(model, ELMo):
            return objectives.BothDirections(model, smoothing)
        if isinstance(model, LSTMLanguageModel):
            if is_autoencoder(self.recipe):
                return objectives.SequenceAutoencoder(model, smoothing)
            if self.recipe.data.blocks == "stream":
                return objectives.CarriedNextToken(model, smoothing)
        return objectives.NextToken(model, smoothing)

    def read(self, corpora: Sequence[RawText], part: Part, base: Path) -> Pieces:
        documents = read_documents(self.encoding, corpora, part, base)
        return cut_blocks(self.recipe, self.encoding.raw_tokens(documents), part)

    def input_line(self, row: Mapping[str, str], reader: Reader) -> str:
        """A few words, to be continued."""
        return " ".join(row["text"].split()[:PROMPT_WORDS])


def cut_blocks(recipe: Recipe, text: RawTokens, part: str) -> Pieces:
    """The rows of a split."""
    return BLOCKS[recipe.data.blocks](text, recipe.data.max_length)


def is_autoencoder(recipe: Recipe) -> bool:
    """Whether the model writes the text that it has read, instead of continuing it."""
    return getattr(recipe.model, "objective", None) == "autoencoder"


class TextNetwork(Network):
    """A model that is pre-trained on raw text."""

    def __init__(self, recipe: Recipe, encoding: RawEncoding) -> None:
        self.recipe = recipe
        self.encoding = encoding

    def build(self) -> Any:
        config = self.recipe.model
        tokenizer = self.encoding.tokenizers["text"]
        options = spelling_options(config, tokenizer)
        return MODELS[config.kind].build(config, tokenizer.size, **options)

    def set_first_weights(self, model: Any, train: Pieces) -> None:
        set_first_bias(model, self.encoding, train)
        model.count(training_texts(train))

    def check(self, data: Prepared[Pieces]) -> None:
        check_max_length(self.recipe)
        if self.recipe.data.blocks == "stream":
            self.check_stream()
        self.check_best()

    def check_stream(self) -> None:
        """Refuse to carry a state from batch to batch if the model has none, or corpora repeat."""
        model = self.recipe.model
        if model.kind != "lstm_lm" or model.objective != "next_token":
            what = (
                "only an lstm_lm that learns the next token carries its state from batch to batch"
            )
            hint = "set it to documents or contiguous"
            raise ConfigError(what, where="data.blocks", hint=hint)
        if any(corpus.weight != 1 for corpus in self.recipe.data.train):
            what = "a stream shows every corpus once"
            raise ConfigError(what, where="data.train", hint="leave weight out")

    def check_best(self) -> None:
        """Refuse a metric that the model's objective does not have."""
        best = self.recipe.training.best
        has_only_loss = self.recipe.model.pretraining == "surrounding"
        reconstructs = best.startswith(RECONSTRUCTION)
        if best != "loss" and (has_only_loss or reconstructs != is_autoencoder(self.recipe)):
            what = f"a model with this objective has no {best}"
            raise ConfigError(what, where="training.best", hint="choose loss")


class Continuations(WrittenTexts):
    """The continuation of a text."""

    column = "text"

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, text_notes: TextNotes) -> None:
        """A text is continued after the `</s>` that it begins with."""
        end = tokenizer.end
        special = SpecialTokens(end, end, tokenizer.pad, tokenizer.unk, tokenizer.begin)
        super().__init__(tokenizer, recipe.search, special)
        self.recipe = recipe
        self.text_notes = text_notes

    def under(self, search: SearchConfig) -> Continuations:
        """Continuations that another search writes."""
        recipe = self.recipe.model_copy(update={"search": search})
        return Continuations(recipe, self.tokenizer, self.text_notes)

    def check(self, validation: Any) -> None:
        """A validation continues documents with a search of its own."""

    def refuse_to_continue(self, model: Any, verb: str) -> None:
        """Refuse a verb that writes, for a model that does not continue texts."""
        if not isinstance(model, LanguageModel) or is_autoencoder(self.recipe):
            what = (
                "this model does not continue texts: only gpt and lstm_lm that learn the next "
                "token do"
            )
            hint = "predict --features and vectors give its vectors"
            raise DecodeError(what, where=verb, hint=hint)

    def encode_inputs(
        self, model: Any, inputs: Sequence[Example], prefixes: Sequence[str] | None = None
    ) -> EncodedInputs[list[int]]:
        """The prompts and the wording; a prompt must leave room for the shortest output that the
        search allows."""
        self.refuse_to_continue(model, "predict")
        rows = self.encode_prompts(model, inputs)
        wording = wording_of(self.tokenizer, self.config, len(inputs), prefixes)
        for number, row in enumerate(rows):
            if model.longest is None or isinstance(row, RegardError):
                continue
            prefix_sizes = [len(prefix) + 1 for prefix in wording.of([number]).prefixes]
            least = max(self.config.min_length, *prefix_sizes, 1)
            room = model.longest - len(row)
            if least > room:
                what = (
                    f"a prompt of {len(row)} tokens leaves room for {room} of the model's "
                    f"{model.longest} positions"
                )
                hint = f"search.min_length or the prefix needs {least}"
                rows[number] = InputError(what, where=inputs[number].place, hint=hint)
        contexts = [[] if isinstance(row, RegardError) else row for row in rows]
        return EncodedInputs(inputs, rows, replace(wording, contexts=contexts))

    def encode_prompts(self, model: LanguageModel, inputs: Sequence[Example]) -> list[Ids]:
        """The ids of each prompt, after the `</s>` that a text begins with; that alone for an empty
        one."""
        tokenizer = self.tokenizer
        rows = [row for row, given in enumerate(inputs) if given.text.strip() or given.fault]
        folded = [inputs[row].with_text(tokenizer.fold(inputs[row].text)) for row in rows]
        prompts: list[Ids] = [[tokenizer.end] for _ in inputs]
        for row, ids in zip(rows, encode_each(tokenizer, folded), strict=True):
            prompts[row] = ids if isinstance(ids, RegardError) else [tokenizer.end, *ids]
        return not_longer(prompts, None if model.longest is None else model.longest - 1, inputs)

    def notes(self, encoded: EncodedInputs[list[int]], predictions: Sequence[Any]) -> list[Note]:
        """A model reads the prompt, what it writes, and the final `</s>`."""
        [end] = self.tokenizer.tokens([self.tokenizer.end])
        written = [
            sum(token != end for token in prediction.nbest[0].tokens) + 1
            for prediction in predictions
        ]
        return self.text_notes(encoded.inputs, encoded.readable(), written)

    def source_tokens(self, source: list[int]) -> list[str]:
        return self.tokenizer.tokens(source)

    def text_of(self, given: str, source: list[int], hypothesis: Hypothesis) -> str:
        """A text as it was typed, and its continuation; the blank between two words may stand in
        either, but once.

        With a vocabulary of jamo, a final consonant completes the last syllable that was typed: 가
        and ᆨ are 각.
        """
        tokenizer = self.tokenizer
        whole = tokenizer.decode([*source, *hypothesis.tokens])
        read = tokenizer.decode(source)
        # Whether a piece continues the last word or begins a new one shows only after the prompt
        prompt = commonprefix([whole, read])  # noqa: RUF071 (not paths)
        written = whole[len(prompt) :]
        completed = read[len(prompt) :]
        if completed and unicodedata.normalize("NFD", written).startswith(
            unicodedata.normalize("NFD", completed)
        ):
            given = given.removesuffix(completed)
        return given + (written.lstrip(" ") if given[-1:].isspace() else written)

    def batches(
        self,
        model: LanguageModel,
        sources: Sequence[list[int]],
        config: SearchConfig,
        wording: Constraints,
    ) -> Iterator[SourceBatch]:
        """Rows to decode together, and the search with the most tokens that the model's positions
        leave for them.

        If positions are limited, only prompts of one length go together, so that no neighbour
        changes that limit.
        """
        device = device_of(model)
        groups = defaultdict[int, list[int]](list)
        for row, prompt in enumerate(sources):
            groups[0 if model.longest is None else len(prompt)].append(row)
        for length, members in groups.items():
            limited = config
            if model.longest is not None:
                most = min(config.max_length or model.longest, model.longest - length)
                limited = config.model_copy(update={"max_length": most})
            lengths = [len(sources[row]) for row in members]
            for numbers in by_length(lengths, decode_tokens(config, device)):
                rows = [members[number] for number in numbers]
                source = padded([sources[row] for row in rows], self.tokenizer.pad)
                yield rows, source.to(device), limited

    def score_text(
        self, model: Any, source: str, target: str | Sequence[str]
    ) -> tuple[list[int], list[float]]:
        """The source is the beginning of a text, the target its continuation. Two texts have a
        space between them."""
        self.refuse_to_continue(model, "score")
        tokenizer = self.tokenizer
        prompt = tokenizer.fold(source).rstrip()
        target = tokenizer.fold(target).strip() if isinstance(target, str) else target
        [before] = readable(self.encode_prompts(model, [Example.of_text(prompt, "source")]))
        after = encode_target(tokenizer, target)
        if isinstance(target, str) and prompt:
            whole = [tokenizer.end, *encode_target(tokenizer, f"{prompt} {target}")]
            if whole[: len(before)] != before:
                what = f"{prompt[-20:]!r} is split into other tokens if the text continues"
                hint = "end it where a word ends, or give exact tokens with --tokens"
                raise DecodeError(what, where="source", hint=hint)
            after = whole[len(before) :]
        place = Example.of_text("", "target")
        rows = readable(not_longer([[*before, *after]], model.longest, [place]))
        [scores] = token_scores(model, TextBatch(padded(rows, tokenizer.pad)).to(device_of(model)))
        return after, scores[-len(after) :]


class LanguageMetrics(Metrics):
    """Cross-entropy per token, word and character."""

    def __init__(
        self, recipe: Recipe, objective: Callable[[Any], Loss], continuations: Continuations
    ) -> None:
        self.recipe = recipe
        self.objective = objective
        self.continuations = continuations
        self.rewrites = is_autoencoder(recipe)

    def validate(self, model: Any, examples: Pieces) -> dict[str, Any]:
        """The loss, and how the model continues the first words of a few documents."""
        metrics: dict[str, Any] = self.loss(model, examples)
        writes = isinstance(model, LanguageModel) and not self.rewrites
        if writes and self.recipe.training.decode and math.isfinite(metrics["loss"]):
            metrics["samples"] = self.samples(model, examples)
        return metrics

    def samples(self, model: LanguageModel, examples: Pieces) -> list[dict[str, str]]:
        """The first documents that a prompt can be read of, as the model continues them."""
        documents = filter(None, (text.split() for text in examples.text.texts()))
        split = [*islice(documents, self.recipe.training.samples)]
        prompts = [
            Example.of_text(" ".join(words[:PROMPT_WORDS]), f"input {number}")
            for number, words in enumerate(split, 1)
        ]
        greedy = self.continuations.under(SearchConfig(beam=1, max_length=CONTINUATION_TOKENS))
        encoded = greedy.encode_inputs(model, prompts)
        readable_numbers = [
            number for number, row in enumerate(encoded.rows) if not isinstance(row, RegardError)
        ]
        written = greedy.predict_encoded(model, encoded.take(readable_numbers))
        return [
            {
                "source": sample.input,
                "output": sample.output,
                "target": " ".join(split[number][: PROMPT_WORDS + CONTINUATION_TOKENS]),
            }
            for number, sample in zip(readable_numbers, written, strict=True)
        ]

    @torch.inference_mode()
    def loss(self, model: Any, examples: Pieces) -> dict[str, Any]:
        """Cross-entropy per token, and what it means per word and character; if there are two
        directions, of both.

        A word is what stands between spaces, and the end of a document counts as one. An unknown
        token costs what the model makes of `<unk>`, and of words and characters also the spelling
        of what it stands for. So models with other vocabularies can be compared. An autoencoder
        writes what it has read: what it is measured by has names of its own. The loss of word2vec
        is not a cross-entropy, so it is the only metric.
        """
        objective = self.objective(model).eval()
        if not isinstance(objective, objectives.TextLoss):
            return {"loss": _loss_of_vectors(model, objective, examples)}
        text = examples.text
        sums = list[Tensor]()
        tokens = 0
        for _, predicted in objectives.predicted_by(objective, examples, READ_TOKENS):
            sums.append(torch.stack([objective.total(*direction)[1] for direction in predicted]))
            tokens += len(predicted[0][1])
        by_direction = [
            total / tokens for total in torch.stack(sums).cpu().double().sum(0).tolist()
        ]
        loss = sum(by_direction) / len(by_direction)
        words = sum(len(document.split()) for document in text.texts()) + len(text)
        characters = sum(len(fold_white_space(document)) for document in text.texts())
        nats = loss * tokens + float(text.spelt_out[1].sum())
        metrics = {
            "perplexity": perplexity(loss),
            "word_perplexity": perplexity(nats / words),
            "bits_per_character": nats / math.log(2) / max(1, characters),
        }
        if self.rewrites:
            metrics = {f"{RECONSTRUCTION}{name}": value for name, value in metrics.items()}
        elif len(by_direction) == 2:
            names = "forward_perplexity", "backward_perplexity"
            metrics |= dict(zip(names, map(perplexity, by_direction), strict=True))
        return {"loss": loss, **metrics}

    def evaluate(self, model: Any, examples: Pieces, progress: Done) -> dict[str, Any]:
        text = examples.text
        counts = {"documents": len(text), "tokens": len(text.values), "unknown": text.unknown_share}
        metrics = self.loss(model, examples)
        progress(len(examples))
        return counts | metrics | ({"note": UNKNOWN_NOTE} if text.unknown_share else {})

    @torch.inference_mode()
    def by_unit(self, model: Any, examples: Pieces, progress: Done) -> list[dict[str, Any]]:
        """The cross-entropy of each document, its end and the spelling of unknown tokens included,
        in nats; of a model that reads in both directions, the mean of the two."""
        objective = self.objective(model).eval()
        if not isinstance(objective, objectives.TextLoss):
            what = f"{self.recipe.model.kind} has no probability of a text"
            raise DataError(what, where="compare", hint="compare what is fine-tuned from it")
        text = examples.text
        nats = np.zeros(len(text))
        for rows, predicted in objectives.predicted_by(objective, examples, READ_TOKENS):
            losses_P = torch.stack(
                [token_losses(model, direction)[0] for direction in predicted]
            ).mean(0)
            places = np.concatenate(
                [np.arange(examples.starts[row], examples.stops[row]) for row in rows]
            )
            np.add.at(nats, text.document_at(places), losses_P.cpu().numpy())
            progress(len(rows))
        nats += text.spelt_out[1]
        return [
            {"input": document, "nats": cost}
            for document, cost in zip(text.texts(), nats.tolist(), strict=True)
        ]


def _loss_of_vectors(model: nn.Module, objective: Objective, examples: Pieces) -> float:
    """The mean loss of a model that has vectors of words and nothing else, per token."""
    batches = [examples.batch(rows).to(device_of(model)) for rows in examples.measured(READ_TOKENS)]
    total = float(sum(objective(batch)[1] for batch in batches))
    return total / sum(batch.tokens for batch in batches)
