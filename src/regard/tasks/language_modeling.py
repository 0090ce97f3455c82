"""Language modeling: raw text in, a model that knows what comes next; it goes on with what it is given."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from os.path import commonprefix
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from regard.data.corpora import Part
from regard.data.documents import RawData, RawText
from regard.data.prepare import Prepared
from regard.data.raw import Pieces, RawTokens, Streams, contiguous_pieces, document_pieces
from regard.errors import ConfigError, DecodeError
from regard.models import any_config, build_model
from regard.models.base import LanguageModel, device_of
from regard.models.elmo import ELMo
from regard.models.lstm_lm import LSTMLanguageModel
from regard.objectives.language_model import (
    BothDirections,
    CarriedNextToken,
    NextToken,
    SequenceAutoencoder,
    TextLoss,
    predicted_by,
)
from regard.search import Hypothesis, SearchConfig, score_texts, search
from regard.tasks.inputs import (
    EncodedInputs,
    Inputs,
    Unreadable,
    by_length,
    encode_each,
    encode_target,
    not_longer,
    padded,
    refuse_longer,
)
from regard.tasks.metrics import perplexity
from regard.tasks.raw import RawTextTask, check_max_length, spelling_options, token_losses
from regard.tasks.task import Done, ignore
from regard.tasks.text_to_text import DECODE_TOKENS, Output, Prediction, Recorders, wording_of
from regard.text.normalise import fold_white_space
from regard.text.tokenizers import Tokenizer

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


class LanguageModeling(RawTextTask):
    """Raw text, measured by perplexity and bits per character."""

    name = "language_modeling"
    writes = "text"
    data = LanguageData
    models = any_config(lambda config: config.pretraining in ("next_token", "both_directions"))
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

    def examples(self, text: RawTokens, part: str) -> Pieces:
        return BLOCKS[self.recipe.data.blocks](text, self.recipe.data.max_length)

    def check(self, data: Prepared[Pieces]) -> None:
        model, config = self.recipe.model, self.recipe.data
        check_max_length(config.max_length, getattr(model, "max_positions", None), self.recipe.training.init)
        if config.blocks == "stream":
            if model.kind != "lstm_lm" or model.objective != "next_token":
                what = "only an lstm_lm that learns the next token carries its state from batch to batch"
                raise ConfigError(what, where="data.blocks", hint="set it to documents or contiguous")
            if any(corpus.weight != 1 for corpus in config.train):
                raise ConfigError("a stream shows every corpus once", where="data.train", hint="leave weight out")
        best = self.recipe.training.best
        if best != "loss" and best.startswith(RECONSTRUCTION) != self.rewrites:
            raise ConfigError(f"a model with this objective has no {best}", where="training.best", hint="choose loss")
        if self.recipe.training.teacher_forcing < 1:
            what = "a language model reads the text itself"
            raise ConfigError(what, where="training.teacher_forcing", hint="leave it at 1")

    def model(self) -> Any:
        tokenizer = self.tokenizers["text"]
        return build_model(self.recipe.model, tokenizer.size, **spelling_options(self.recipe.model, tokenizer))

    def objective(self, model: Any) -> TextLoss:
        smoothing = self.recipe.training.label_smoothing
        if isinstance(model, ELMo):
            return BothDirections(model, smoothing)
        if isinstance(model, LSTMLanguageModel):
            if self.rewrites:
                return SequenceAutoencoder(model, smoothing)
            if self.recipe.data.blocks == "stream":
                return CarriedNextToken(model, smoothing)
        return NextToken(model, smoothing)

    def validate(self, model: Any, examples: Pieces) -> dict[str, Any]:
        found: dict[str, Any] = self.loss(model, examples)
        writes = isinstance(model, LanguageModel) and not self.rewrites
        if writes and self.recipe.training.decode and math.isfinite(found["loss"]):
            found["samples"] = list(self._samples(model, examples))
        return found

    @property
    def rewrites(self) -> bool:
        """Whether the model writes the text that it has read, instead of going on with it."""
        return getattr(self.recipe.model, "objective", None) == "autoencoder"

    def _samples(self, model: Any, examples: Pieces) -> Iterator[dict[str, str]]:
        """How the model goes on with the first words of a few documents."""
        text = examples.text
        split = [*islice(filter(None, (one.split() for one in text.texts)), self.recipe.training.samples)]
        prompts = [" ".join(words[:PROMPT]) for words in split]
        greedy = SearchConfig(beam=1, max_length=CONTINUATION)
        found = continuations(model, text.tokenizer, encoded_prompts(model, text.tokenizer, Inputs.of(prompts)), greedy)
        for words, prompt, prediction in zip(split, prompts, found, strict=True):
            rest = " ".join(words[PROMPT : PROMPT + CONTINUATION])
            yield {"source": prompt, "output": prediction.output, "target": f"{prompt} {rest}"}

    def loss(self, model: Any, examples: Pieces) -> dict[str, Any]:
        """Cross-entropy a token, and what it means a token, a word and a character; of both directions where two are.

        A word is what stands between spaces, and the end of a document counts as one. An unknown token costs what the
        model makes of `<unk>`, and of words and characters also the spelling of what it stands for. So models with
        other vocabularies can be compared. An autoencoder writes what it has read: what it is measured by has names of
        its own.
        """
        totals, tokens = measured(self.objective(model).eval(), examples)
        by_direction = [total / tokens for total in totals]
        loss, texts = sum(by_direction) / len(by_direction), examples.text.texts
        words = sum(len(text.split()) for text in texts) + len(texts)
        nats = loss * tokens + float(examples.text.spelt_out.nats.sum())
        found = {
            "loss": loss,
            "perplexity": perplexity(loss),
            "word_perplexity": perplexity(nats / words),
            "bits_per_character": nats / math.log(2) / max(1, sum(len(fold_white_space(text)) for text in texts)),
        }
        if self.rewrites:
            return {name if name == "loss" else f"{RECONSTRUCTION}{name}": value for name, value in found.items()}
        if len(by_direction) == 2:
            found |= {"forward_perplexity": perplexity(by_direction[0])}
            found |= {"backward_perplexity": perplexity(by_direction[1])}
        return found

    def read(self, corpora: Sequence[RawText], part: Part, base: Path) -> Pieces:
        return self.examples(self.read_documents(corpora, part, base), part)

    def evaluate(self, model: Any, examples: Pieces, progress: Done) -> dict[str, Any]:
        text = examples.text
        unknown = text.unknown_share
        found: dict[str, Any] = {"documents": len(text), "tokens": len(text.values), "unknown": unknown}
        found |= self.loss(model, examples) | ({"note": UNKNOWN_NOTE} if unknown else {})
        progress(len(examples))
        return found

    @torch.inference_mode()
    def by_unit(self, model: Any, examples: Pieces, progress: Done) -> list[dict[str, Any]]:
        """The cross-entropy of each document, its end and the spelling of unknown tokens included, in nats.

        Where a model reads in both directions, the mean of the two.
        """
        text, nats = examples.text, np.zeros(len(examples.text))
        for rows, predicted in predicted_by(self.objective(model).eval(), examples, SCORE_TOKENS):
            losses_P = torch.stack([token_losses(model, direction)[0] for direction in predicted]).mean(0)
            places = np.concatenate([np.arange(examples.starts[row], examples.stops[row]) for row in rows])
            np.add.at(nats, text.document_at(places), losses_P.cpu().numpy())
            progress(len(rows))
        nats += text.spelt_out.nats
        return [{"input": document, "nats": cost} for document, cost in zip(text.texts, nats.tolist(), strict=True)]

    def _refuse_to_go_on(self, model: Any, verb: str) -> None:
        if not isinstance(model, LanguageModel) or self.rewrites:
            what = "this model does not go on with a text: it reads in both directions, or writes what it has read"
            raise DecodeError(what, where=verb, hint="predict --features gives its vectors")

    def score_text(self, model: Any, source: str, target: str | Sequence[str]) -> tuple[list[int], list[float]]:
        """The source is the beginning of a text, the target how it goes on."""
        self._refuse_to_go_on(model, "score")
        return score_continuation(model, self.tokenizers["text"], source, target)

    def encode_inputs(self, model: Any, inputs: Inputs) -> EncodedInputs[list[int]]:
        self._refuse_to_go_on(model, "predict")
        encoded, tokenizer = encoded_prompts(model, self.tokenizers["text"], inputs), self.tokenizers["text"]
        wording = wording_of(tokenizer, self.recipe.search, inputs.prefixes, len(inputs))
        return replace(encoded, wording=wording)

    def predict_encoded(
        self, model: Any, encoded: EncodedInputs[list[int]], *, record: bool = False, progress: Done = ignore
    ) -> list[Prediction]:
        """The texts as the model continues them; the score is log P of what it adds."""
        return continuations(
            model, self.tokenizers["text"], encoded, self.recipe.search, record=record, progress=progress
        )

    def tokens_read(self, row: Sequence[int], prediction: Any) -> int:
        """A prompt with its `</s>`, what was written, and the final `</s>`."""
        [end] = self.tokenizers["text"].tokens([self.tokenizers["text"].end])
        written = [token for token in prediction.nbest[0].tokens if token != end]
        return len(row) + len(written) + 1


@torch.inference_mode()
def measured(objective: TextLoss, examples: Pieces) -> tuple[list[float], int]:
    """The summed cross-entropy of all tokens in each direction that the model reads in, and how many they are."""
    sums: list[Tensor] = []
    tokens = 0
    for _, predicted in predicted_by(objective, examples, SCORE_TOKENS):
        sums.append(torch.stack([objective.total(*one)[1] for one in predicted]))
        tokens += len(predicted[0][1])
    return torch.stack(sums).cpu().double().sum(0).tolist(), tokens


def encode_prompts(
    model: LanguageModel, tokenizer: Tokenizer, texts: Sequence[str], places: Sequence[str]
) -> list[list[int]]:
    """The ids of each prompt, or one error that names those that cannot be read."""
    return encoded_prompts(model, tokenizer, Inputs(texts, places)).readable()


def encoded_prompts(model: LanguageModel, tokenizer: Tokenizer, inputs: Inputs) -> EncodedInputs[list[int]]:
    """The ids of each prompt, after the `</s>` that a text begins with; after an empty one the model begins itself."""
    given = [number for number, text in enumerate(inputs.texts) if text.strip()]
    texts = [tokenizer.fold(inputs.texts[number]) for number in given]
    ids = dict(zip(given, encode_each(tokenizer, texts, [inputs.places[row] for row in given]), strict=True))
    rows = (ids.get(number, []) for number in range(len(inputs)))
    prompts = [row if isinstance(row, Unreadable) else [tokenizer.end, *row] for row in rows]
    longest = None if model.longest is None else model.longest - 1
    return EncodedInputs(inputs, not_longer(prompts, longest, inputs.places))


def continuations(
    model: LanguageModel,
    tokenizer: Tokenizer,
    encoded: EncodedInputs[list[int]],
    config: SearchConfig,
    *,
    record: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Prediction]:
    """The best continuations of each text, each as the whole text: as it was typed, and what was written.

    Scores and tokens are of what is new.
    """
    texts, prompts = encoded.inputs.texts, encoded.readable()
    wording = replace(encoded.wording, contexts=prompts)
    recorders, found = Recorders(tokenizer, begin_id=tokenizer.end), dict[int, list[Output]]()
    for rows, limited in _batches(model, prompts, config):
        source = padded([prompts[row] for row in rows], tokenizer.pad).to(device_of(model))
        hypotheses = search(
            model,
            source,
            limited,
            constraints=wording.of(rows),
            begin_id=tokenizer.end,
            end_id=tokenizer.end,
            pad_id=tokenizer.pad,
            unknown_id=tokenizer.unk,
            observer=recorders.on(rows, source, limited, wording.of(rows)) if record else None,
        )
        for row, best in zip(rows, hypotheses, strict=True):
            found[row] = [_output(tokenizer, texts[row], prompts[row], one) for one in best]
        progress(len(rows))
    searches = recorders.searches(lambda row: tokenizer.tokens(prompts[row]))
    return [Prediction(text, tuple(found[row]), searches.get(row)) for row, text in enumerate(texts)]


def score_continuation(
    model: LanguageModel, tokenizer: Tokenizer, prompt: str, continuation: str | Sequence[str]
) -> tuple[list[int], list[float]]:
    """The tokens with which a text goes on, and log P of each. Two texts have a space between them."""
    prompt = tokenizer.fold(prompt).rstrip()
    continuation = tokenizer.fold(continuation).strip() if isinstance(continuation, str) else continuation
    [before] = encode_prompts(model, tokenizer, [prompt], ["source"])
    after = encode_target(tokenizer, continuation)
    if isinstance(continuation, str) and prompt:
        whole = [tokenizer.end, *encode_target(tokenizer, f"{prompt} {continuation}")]
        if whole[: len(before)] != before:
            what = f"{prompt[-20:]!r} is cut into other tokens where the text goes on"
            raise DecodeError(what, where="source", hint="end it where a word ends, or give exact tokens with --tokens")
        after = whole[len(before) :]
    if model.longest is not None:
        refuse_longer([[*before, *after]], model.longest, ["target"])
    [scores] = score_texts(model, padded([[*before, *after]], tokenizer.pad).to(device_of(model)))
    return after, scores[-len(after) :]


def _batches(
    model: LanguageModel, prompts: Sequence[Sequence[int]], config: SearchConfig
) -> Iterator[tuple[list[int], SearchConfig]]:
    """Rows to decode together, and the search with the most tokens that the model's positions leave for them.

    Where positions are limited only prompts of one length go together, so that no neighbour changes that limit.
    """
    room = max(1, DECODE_TOKENS // (config.nbest if config.sample else config.beam))
    if model.longest is None:
        yield from ((rows, config) for rows in by_length([len(prompt) for prompt in prompts], room))
        return
    groups: dict[int, list[int]] = defaultdict(list)
    for row, prompt in enumerate(prompts):
        groups[len(prompt)].append(row)
    for length, members in groups.items():
        most = min(config.max_length or model.longest, model.longest - length)
        if config.min_length > most:
            what = f"a prompt of {length} tokens leaves room for {most} of the model's {model.longest} positions"
            raise DecodeError(what, where="search.min_length", hint=f"at most {most}")
        limited = config.model_copy(update={"max_length": most})
        for rows in by_length([length] * len(members), room):
            yield [members[row] for row in rows], limited


def _output(tokenizer: Tokenizer, typed: str, prompt: Sequence[int], hypothesis: Hypothesis) -> Output:
    whole = tokenizer.decode([*prompt, *hypothesis.tokens])
    # Whether a piece goes on with the last word or begins a new one shows only behind the prompt
    known = commonprefix([whole, tokenizer.decode(prompt)])  # noqa: RUF071  # no paths
    text = joined(typed, whole[len(known) :])
    return Output(text, hypothesis.score, tuple(tokenizer.tokens(hypothesis.tokens)))


def joined(typed: str, written: str) -> str:
    """A text as it was typed and how it goes on. The blank between two words may stand in either, but only once."""
    return typed + (written.lstrip(" ") if typed[-1:].isspace() else written)
