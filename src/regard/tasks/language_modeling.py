"""Language modeling: raw text in, a model that predicts the next token and continues a text."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from os.path import commonprefix
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import TextBatch
from regard.data.corpora import Part
from regard.data.dataset import Dataset
from regard.data.example import Example
from regard.data.prepare import Prepared
from regard.data.raw import Pieces, RawData, RawText, Streams, contiguous_pieces, document_pieces
from regard.errors import ConfigError, DataError, DecodeError, InputError, RegardError
from regard.models import MODELS, any_config
from regard.models.base import LanguageModel, device_of
from regard.models.elmo import ELMo
from regard.models.lstm_lm import LSTMLanguageModel
from regard.models.word2vec import Word2Vec
from regard.objectives import language_model as objectives
from regard.objectives.cross_entropy import perplexity
from regard.search.config import SearchConfig
from regard.search.hypotheses import Hypothesis
from regard.search.rules import Constraints
from regard.search.scoring import token_scores
from regard.tasks.raw import RawTextTask, check_max_length, spelling_options, token_losses
from regard.tasks.task import (
    READ_TOKENS,
    Done,
    EncodedInputs,
    Ids,
    Note,
    by_length,
    encode_each,
    encode_target,
    not_longer,
    padded,
    readable,
)
from regard.tasks.translation import SourceBatch, WritingTask, decode_tokens, wording_of
from regard.text.normalise import fold_white_space

PROMPT, CONTINUATION = (
    5,
    20,
)  # words that a sample begins with, and the most tokens that are then written
UNKNOWN_NOTE = (
    "by word and by character, an unknown token costs, besides <unk>, the spelling of what it "
    "stands for: (n + 1) "
    "log 257 for n bytes"
)
"""What `RawTokens.spelt_out` counts (data/raw.py)."""
# how the metrics of an autoencoder begin, which predicts a text given that text
RECONSTRUCTION = "reconstruction_"
BLOCKS = {"documents": document_pieces, "contiguous": contiguous_pieces, "stream": Streams}
"""What cuts a text into rows."""


class LanguageData(RawData):
    """The raw text of a language model."""

    blocks: Literal["documents", "contiguous", "stream"] = "documents"
    """What a row of a batch is. `documents`: a document, or a piece of one, which sees nothing of
    its neighbours. `contiguous`: a piece of `max_length` tokens of all documents one after the
    other, so that short ones are read with what stands before them. `stream`: all documents one
    after the other, cut into as many streams as a batch has rows, in which each batch goes on where
    the one before ended; only for lstm_lm, which carries its state over (truncated
    back-propagation)."""


class LanguageModeling(WritingTask, RawTextTask):
    """Raw text, measured by perplexity and bits per character."""

    name = "language_modeling"
    writes = "text"
    data = LanguageData
    models = any_config(
        lambda config: config.pretraining in ("next_token", "both_directions", "surrounding")
    )
    lower_is_better = (
        "loss",
        "perplexity",
        "word_perplexity",
        "bits_per_character",
        "reconstruction_perplexity",
        "reconstruction_word_perplexity",
        "reconstruction_bits_per_character",
    )
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"training": {"label_smoothing": 0.0}}

    # Data

    def examples(self, rows: Dataset, part: str) -> Pieces:
        return BLOCKS[self.recipe.data.blocks](self.raw_tokens(rows), self.recipe.data.max_length)

    def read(self, corpora: Sequence[RawText], part: Part, base: Path) -> Pieces:
        return self.examples(self.read_documents(corpora, part, base), part)

    # Training

    def check(self, data: Prepared[Pieces]) -> None:
        model, config = self.recipe.model, self.recipe.data
        check_max_length(self.recipe)
        if config.blocks == "stream":
            if model.kind != "lstm_lm" or model.objective != "next_token":
                what = (
                    "only an lstm_lm that learns the next token carries its state from "
                    "batch to batch"
                )
                raise ConfigError(
                    what, where="data.blocks", hint="set it to documents or contiguous"
                )
            if any(corpus.weight != 1 for corpus in config.train):
                raise ConfigError(
                    "a stream shows every corpus once", where="data.train", hint="leave weight out"
                )
        best = self.recipe.training.best
        if best != "loss" and (
            model.pretraining == "surrounding" or best.startswith(RECONSTRUCTION) != self.rewrites
        ):
            raise ConfigError(
                f"a model with this objective has no {best}",
                where="training.best",
                hint="choose loss",
            )

    def build(self) -> Any:
        tokenizer = self.tokenizers["text"]
        return MODELS[self.recipe.model.kind].build(
            self.recipe.model, tokenizer.size, **spelling_options(self.recipe.model, tokenizer)
        )

    @property
    def rewrites(self) -> bool:
        """Whether the model writes the text that it has read, instead of continuing it."""
        return getattr(self.recipe.model, "objective", None) == "autoencoder"

    def objective(self, model: Any) -> objectives.TextLoss | objectives.SkipGram:
        smoothing = self.recipe.training.label_smoothing
        if isinstance(model, Word2Vec):
            return objectives.SkipGram(model)
        if isinstance(model, ELMo):
            return objectives.BothDirections(model, smoothing)
        if isinstance(model, LSTMLanguageModel):
            if self.rewrites:
                return objectives.SequenceAutoencoder(model, smoothing)
            if self.recipe.data.blocks == "stream":
                return objectives.CarriedNextToken(model, smoothing)
        return objectives.NextToken(model, smoothing)

    def validate(self, model: Any, examples: Pieces) -> dict[str, Any]:
        """The loss, and how the model continues the first words of a few documents."""
        metrics: dict[str, Any] = self.loss(model, examples)
        writes = isinstance(model, LanguageModel) and not self.rewrites
        if writes and self.recipe.training.decode and math.isfinite(metrics["loss"]):
            documents = filter(None, (text.split() for text in examples.text.texts()))
            split = [*islice(documents, self.recipe.training.samples)]
            prompts = [" ".join(words[:PROMPT]) for words in split]
            greedy = self.with_search(SearchConfig(beam=1, max_length=CONTINUATION))
            encoded = greedy.encode_inputs(model, self.inputs.typed_lines(prompts))
            numbers = [
                number
                for number, row in enumerate(encoded.rows)
                if not isinstance(row, RegardError)
            ]
            encoded, split = encoded.take(numbers), [split[number] for number in numbers]
            metrics["samples"] = [
                {
                    "source": sample.input,
                    "output": sample.output,
                    "target": " ".join(words[: PROMPT + CONTINUATION]),
                }
                for words, sample in zip(split, greedy.predict_encoded(model, encoded), strict=True)
            ]
        return metrics

    @torch.inference_mode()
    def loss(self, model: Any, examples: Pieces) -> dict[str, Any]:
        """Cross-entropy a token, and what it means a token, a word and a character; of both
        directions where two are.

        A word is what stands between spaces, and the end of a document counts as one. An unknown
        token costs what the model makes of `<unk>`, and of words and characters also the spelling
        of what it stands for. So models with other vocabularies can be compared. An autoencoder
        writes what it has read: what it is measured by has names of its own. The loss of word2vec
        is no cross-entropy, so it is all that there is.
        """
        objective, text, sums, tokens = (
            self.objective(model).eval(),
            examples.text,
            list[Tensor](),
            0,
        )
        if isinstance(objective, objectives.SkipGram):
            batches = [
                examples.batch(rows).to(device_of(model)) for rows in examples.measured(READ_TOKENS)
            ]
            total = float(sum(objective(batch)[1] for batch in batches))
            return {"loss": total / sum(batch.tokens for batch in batches)}
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
            "loss": loss,
            "perplexity": perplexity(loss),
            "word_perplexity": perplexity(nats / words),
            "bits_per_character": nats / math.log(2) / max(1, characters),
        }
        if self.rewrites:
            return {
                name if name == "loss" else f"{RECONSTRUCTION}{name}": value
                for name, value in metrics.items()
            }
        if len(by_direction) == 2:
            names = "forward_perplexity", "backward_perplexity"
            metrics |= dict(zip(names, map(perplexity, by_direction), strict=True))
        return metrics

    # Verbs

    def evaluate(self, model: Any, examples: Pieces, progress: Done) -> dict[str, Any]:
        text = examples.text
        counts = {"documents": len(text), "tokens": len(text.values), "unknown": text.unknown_share}
        metrics = self.loss(model, examples)
        progress(len(examples))
        return counts | metrics | ({"note": UNKNOWN_NOTE} if text.unknown_share else {})

    @torch.inference_mode()
    def by_unit(self, model: Any, examples: Pieces, progress: Done) -> list[dict[str, Any]]:
        """The cross-entropy of each document, its end and the spelling of unknown tokens included,
        in nats.

        Where a model reads in both directions, the mean of the two.
        """
        text, nats, objective = (
            examples.text,
            np.zeros(len(examples.text)),
            self.objective(model).eval(),
        )
        if isinstance(objective, objectives.SkipGram):
            what = "word2vec has no probability of a text"
            raise DataError(what, where="compare", hint="compare what is fine-tuned from it")
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

    def refuse_to_continue(self, model: Any, verb: str) -> None:
        """Refuse a verb that writes, for a model that does not continue texts."""
        if not isinstance(model, LanguageModel) or self.rewrites:
            what = (
                "this model does not continue texts: only gpt and lstm_lm that learn the "
                "next token do"
            )
            raise DecodeError(
                what, where=verb, hint="predict --features and vectors give its vectors"
            )

    def score_text(
        self, model: Any, source: str, target: str | Sequence[str]
    ) -> tuple[list[int], list[float]]:
        """The source is the beginning of a text, the target its continuation. Two texts have a
        space between them."""
        self.refuse_to_continue(model, "score")
        tokenizer = self.tokenizers["text"]
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
        rows = readable(
            not_longer([[*before, *after]], model.longest, [Example.of_text("", "target")])
        )
        [scores] = token_scores(model, TextBatch(padded(rows, tokenizer.pad)).to(device_of(model)))
        return after, scores[-len(after) :]

    def encode_inputs(
        self, model: Any, inputs: Sequence[Example], prefixes: Sequence[str] | None = None
    ) -> EncodedInputs[list[int]]:
        """The prompts and the wording; a prompt must leave room for the shortest output that the
        search allows."""
        self.refuse_to_continue(model, "predict")
        rows = self.encode_prompts(model, inputs)
        wording = wording_of(
            self.tokenizers["text"], self.recipe.search, prefixes or [None] * len(inputs)
        )
        for number, row in enumerate(rows):
            if model.longest is None or isinstance(row, RegardError):
                continue
            least = max(
                self.recipe.search.min_length,
                *(len(prefix) + 1 for prefix in wording.of([number]).prefixes),
                1,
            )
            if least > (room := model.longest - len(row)):
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
        tokenizer = self.tokenizers["text"]
        rows = [row for row, given in enumerate(inputs) if given.text.strip() or given.fault]
        folded = [inputs[row].with_text(tokenizer.fold(inputs[row].text)) for row in rows]
        prompts: list[Ids] = [[tokenizer.end] for _ in inputs]
        for row, ids in zip(rows, encode_each(tokenizer, folded), strict=True):
            prompts[row] = ids if isinstance(ids, RegardError) else [tokenizer.end, *ids]
        return not_longer(prompts, None if model.longest is None else model.longest - 1, inputs)

    def source_tokens(self, source: list[int]) -> list[str]:
        return self.tokenizers["text"].tokens(source)

    def batches(
        self,
        model: LanguageModel,
        sources: Sequence[list[int]],
        config: SearchConfig,
        wording: Constraints,
    ) -> Iterator[SourceBatch]:
        """Rows to decode together, and the search with the most tokens that the model's positions
        leave for them.

        Where positions are limited only prompts of one length go together, so that no neighbour
        changes that limit.
        """
        groups = defaultdict[int, list[int]](list)
        for row, prompt in enumerate(sources):
            groups[0 if model.longest is None else len(prompt)].append(row)
        for length, members in groups.items():
            limited = config
            if model.longest is not None:
                most = min(config.max_length or model.longest, model.longest - length)
                limited = config.model_copy(update={"max_length": most})
            for numbers in by_length(
                [len(sources[row]) for row in members], decode_tokens(config, device_of(model))
            ):
                rows = [members[number] for number in numbers]
                source = padded([sources[row] for row in rows], self.tokenizers["text"].pad)
                yield rows, source.to(device_of(model)), limited

    def notes(self, encoded: EncodedInputs[list[int]], predictions: Sequence[Any]) -> list[Note]:
        """A model reads the prompt, what it writes, and the final `</s>`."""
        [end] = self.tokenizers["text"].tokens([self.tokenizers["text"].end])
        written = [
            sum(token != end for token in prediction.nbest[0].tokens) + 1
            for prediction in predictions
        ]
        return self.text_notes(encoded.inputs, encoded.readable(), written)

    def text_of(self, given: str, source: list[int], hypothesis: Hypothesis) -> str:
        """A text as it was typed, and its continuation; the blank between two words may stand in
        either, but once."""
        tokenizer = self.tokenizers["text"]
        whole = tokenizer.decode([*source, *hypothesis.tokens])
        # Whether a piece continues the last word or begins a new one shows only after the prompt
        known = commonprefix([whole, tokenizer.decode(source)])  # noqa: RUF071 (not paths)
        written = whole[len(known) :]
        return given + (written.lstrip(" ") if given[-1:].isspace() else written)
