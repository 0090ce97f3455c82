"""Language modeling: raw text in, a model that knows what comes next; it goes on with what it is given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from regard.config import Config
from regard.data.blocks import Pieces, Streams, contiguous_pieces, document_pieces
from regard.data.corpora import Part
from regard.data.documents import RawData, RawText
from regard.data.file_inputs import FileInput
from regard.data.prepare import Prepared
from regard.data.raw import RawTokens, one_blank, prepare_raw
from regard.errors import ConfigError, DecodeError
from regard.models import any_config, build_model
from regard.models.base import LanguageModel
from regard.models.elmo import ELMo
from regard.models.lstm_lm import LSTMLanguageModel, LSTMLanguageModelConfig
from regard.objectives.language_model import (
    BothDirections,
    CarriedNextToken,
    NextToken,
    SequenceAutoencoder,
    TextLoss,
    predicted_by,
)
from regard.search import SearchConfig
from regard.tasks.continuing import continuations, encode_prompts, score_continuation
from regard.tasks.inputs import Inputs
from regard.tasks.metrics import perplexity
from regard.tasks.raw import check_max_length, corpus_of_files, read_documents, spelling_options, texts_in
from regard.tasks.task import Progress, Task
from regard.tasks.text_to_text import Prediction
from regard.text.files import TextFile
from regard.text.tokenizers import Tokenizers

SCORE_TOKENS = 8_192
"""Padded tokens that are measured at once."""
PROMPT, CONTINUATION = 5, 20
"""Words that a sample begins with, and the most tokens that are then written."""


UNKNOWN_NOTE = (
    "by word and by character, an unknown token costs, besides <unk>, the spelling of what it stands for: (n + 1) "
    "log 257 for n bytes"
)
"""What data/unknown.py counts."""
RECONSTRUCTION = "reconstruction_"
"""How the metrics of an autoencoder begin, which predicts a text given that text."""
BLOCKS = {"documents": document_pieces, "contiguous": contiguous_pieces, "stream": Streams}
"""What cuts a text into rows."""


class LanguageData(RawData):
    """The raw text of a language model."""

    blocks: Literal["documents", "contiguous", "stream"] = "documents"
    """What a row of a batch is. `documents`: a document, or a piece of one, which sees nothing of its neighbours.
    `contiguous`: a piece of `max_length` tokens of all documents one after the other, so that short ones are read with
    what stands before them.
    `stream`: all documents one after the other, cut into as many streams as a batch has rows, in which each batch goes
    on where the one before ended; only for lstm_lm, which carries its state over (truncated back-propagation)."""


class NoEvaluation(Config):
    """There is nothing to choose: perplexity needs no settings."""


class LanguageModeling(Task):
    """Raw text, measured by perplexity and bits per character."""

    name = "language_modeling"
    columns = ("text",)
    writes = "text"
    data = LanguageData
    evaluation = NoEvaluation
    model = any_config(lambda config: config.pretraining in ("next_token", "both_directions"))
    higher_is_better: ClassVar[Mapping[str, bool]] = {
        "loss": False,
        "perplexity": False,
        "word_perplexity": False,
        "bits_per_character": False,
        "reconstruction_perplexity": False,
        "reconstruction_word_perplexity": False,
        "reconstruction_bits_per_character": False,
    }
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"training": {"label_smoothing": 0.0}}

    @classmethod
    def prepare(
        cls, recipe: Any, base: Path, tokenizers: Tokenizers | None = None, progress: Progress | None = None
    ) -> Prepared[Pieces]:
        found = prepare_raw(
            recipe.data,
            recipe.tokenizer,
            base=base,
            seed=recipe.training.seed,
            tokenizers=tokenizers,
            progress=progress,
            letters=recipe.model.letters,
        )
        splits = {name: cls._examples(text, recipe.data) for name, text in found.splits.items()}
        return Prepared(splits["train"], splits["validation"], splits.get("test"), found.tokenizers, found.report)

    @classmethod
    def _examples(cls, text: RawTokens, data: LanguageData) -> Pieces:
        return BLOCKS[data.blocks](text, data.max_length)

    @classmethod
    def check(cls, recipe: Any, data: Prepared[Pieces]) -> None:
        model, config = recipe.model, recipe.data
        check_max_length(config.max_length, getattr(model, "max_positions", None), recipe.training.init)
        if config.blocks == "stream":
            if model.kind != "lstm_lm" or model.objective != "next_token":
                what = "only an lstm_lm that learns the next token carries its state from batch to batch"
                raise ConfigError(what, where="data.blocks", hint="set it to documents or contiguous")
            if any(corpus.weight != 1 for corpus in config.train):
                raise ConfigError("a stream shows every corpus once", where="data.train", hint="leave weight out")
        best = recipe.training.best
        if best != "loss" and best.startswith(RECONSTRUCTION) != cls.rewrites(model):
            raise ConfigError(f"a model with this objective has no {best}", where="training.best", hint="choose loss")
        if recipe.training.teacher_forcing < 1:
            what = "a language model reads the text itself"
            raise ConfigError(what, where="training.teacher_forcing", hint="leave it at 1")

    @classmethod
    def build(cls, recipe: Any, tokenizers: Tokenizers) -> Any:
        tokenizer = tokenizers["text"]
        return build_model(recipe.model, tokenizer.size, **spelling_options(recipe.model, tokenizer))

    @classmethod
    def objective(cls, model: Any, recipe: Any) -> TextLoss:
        smoothing = recipe.training.label_smoothing
        if isinstance(model, ELMo):
            return BothDirections(model, smoothing)
        if isinstance(model, LSTMLanguageModel):
            if cls.rewrites(recipe.model):
                return SequenceAutoencoder(model, smoothing)
            if recipe.data.blocks == "stream":
                return CarriedNextToken(model, smoothing)
        return NextToken(model, smoothing)

    @classmethod
    def validate(cls, model: Any, recipe: Any, data: Prepared[Pieces]) -> dict[str, Any]:
        found: dict[str, Any] = cls.loss(model, data.validation, recipe)
        writes = isinstance(model, LanguageModel) and not cls.rewrites(recipe.model)
        if writes and recipe.training.decode and math.isfinite(found["loss"]):
            found["samples"] = list(cls._samples(model, recipe, data))
        return found

    @classmethod
    def rewrites(cls, config: Any) -> bool:
        """Whether a model writes the text that it has read, instead of going on with it."""
        return isinstance(config, LSTMLanguageModelConfig) and config.objective == "autoencoder"

    @classmethod
    def _samples(cls, model: Any, recipe: Any, data: Prepared[Pieces]) -> Iterator[dict[str, str]]:
        """How the model goes on with the first words of a few documents."""
        text = data.validation.text
        split = [*islice(filter(None, (one.split() for one in text.texts)), recipe.training.samples)]
        prompts = [" ".join(words[:PROMPT]) for words in split]
        greedy = SearchConfig(beam=1, max_length=CONTINUATION)
        found = continuations(model, text.tokenizer, Inputs.of(prompts), greedy)
        for words, prompt, prediction in zip(split, prompts, found, strict=True):
            rest = " ".join(words[PROMPT : PROMPT + CONTINUATION])
            yield {"source": prompt, "output": prediction.output, "target": f"{prompt} {rest}"}

    @classmethod
    def loss(cls, model: Any, examples: Pieces, recipe: Any) -> dict[str, Any]:
        """Cross-entropy a token, and what it means a token, a word and a character; of both directions where two are.

        A word is what stands between spaces, and the end of a document counts as one. An unknown token costs what the
        model makes of `<unk>`, and of words and characters also the spelling of what it stands for. So models with
        other vocabularies can be compared. An autoencoder writes what it has read: what it is measured by has names of
        its own.
        """
        totals, tokens = measured(cls.objective(model, recipe).eval(), examples)
        by_direction = [total / tokens for total in totals]
        loss, texts = sum(by_direction) / len(by_direction), examples.text.texts
        words = sum(len(text.split()) for text in texts) + len(texts)
        nats = loss * tokens + float(examples.text.spelt_out.nats.sum())
        found = {
            "loss": loss,
            "perplexity": perplexity(loss),
            "word_perplexity": perplexity(nats / words),
            "bits_per_character": nats / math.log(2) / max(1, sum(len(one_blank(text)) for text in texts)),
        }
        if cls.rewrites(recipe.model):
            return {name if name == "loss" else f"{RECONSTRUCTION}{name}": value for name, value in found.items()}
        if len(by_direction) == 2:
            found |= {"forward_perplexity": perplexity(by_direction[0])}
            found |= {"backward_perplexity": perplexity(by_direction[1])}
        return found

    @classmethod
    def read(cls, recipe: Any, corpora: Sequence[RawText], part: Part, base: Path, tokenizers: Tokenizers) -> Pieces:
        letters = recipe.model.letters
        text = read_documents(recipe.data, corpora, part, base, tokenizers["text"], letters=letters)
        return cls._examples(text, recipe.data)

    @classmethod
    def corpus_of(cls, files: Sequence[str], own: Sequence[RawText]) -> RawText:
        return corpus_of_files(files, own)

    @classmethod
    def inputs_in(cls, recipe: Any, own: Sequence[Any], file: TextFile) -> Iterator[FileInput] | None:
        return texts_in(own, file)

    @classmethod
    def evaluate(
        cls, model: Any, recipe: Any, examples: Pieces, tokenizers: Tokenizers, progress: Callable[[int], None]
    ) -> dict[str, Any]:
        text = examples.text
        unknown = text.unknown_share
        found: dict[str, Any] = {"documents": len(text), "tokens": len(text.values), "unknown": unknown}
        found |= cls.loss(model, examples, recipe) | ({"note": UNKNOWN_NOTE} if unknown else {})
        progress(len(examples))
        return found

    @classmethod
    def _refuse_to_go_on(cls, model: Any, verb: str) -> None:
        if not isinstance(model, LanguageModel) or cls.rewrites(model.config):
            what = "this model does not go on with a text: it reads in both directions, or writes what it has read"
            raise DecodeError(what, where=verb, hint="predict --features gives its vectors")

    @classmethod
    def score_text(
        cls, model: Any, tokenizers: Tokenizers, source: str, target: str | Sequence[str]
    ) -> tuple[list[int], list[float]]:
        """The source is the beginning of a text, the target how it goes on."""
        cls._refuse_to_go_on(model, "score")
        return score_continuation(model, tokenizers["text"], source, target)

    @classmethod
    def check_inputs(cls, model: Any, tokenizers: Tokenizers, inputs: Inputs, config: SearchConfig) -> None:
        cls._refuse_to_go_on(model, "predict")
        encode_prompts(model, tokenizers["text"], inputs.texts, inputs.places)

    @classmethod
    def predict(
        cls,
        model: Any,
        tokenizers: Tokenizers,
        inputs: Inputs,
        config: SearchConfig,
        *,
        record: bool = False,
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[Prediction]:
        """The texts as the model goes on with them; the score is log P of what it adds."""
        return continuations(model, tokenizers["text"], inputs, config, record=record, progress=progress)


@torch.inference_mode()
def measured(objective: TextLoss, examples: Pieces) -> tuple[list[float], int]:
    """The summed cross-entropy of all tokens in each direction that the model reads in, and how many they are."""
    sums: list[Tensor] = []
    tokens = 0
    for _, predicted in predicted_by(objective, examples, SCORE_TOKENS):
        sums.append(torch.stack([objective.total(*one)[1] for one in predicted]))
        tokens += len(predicted[0][1])
    return torch.stack(sums).cpu().double().sum(0).tolist(), tokens
