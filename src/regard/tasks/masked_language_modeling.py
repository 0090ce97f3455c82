"""Masked language modeling: raw text in, a model that predicts masked tokens and whether a sentence
follows another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self
from zlib import crc32

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from regard.data.batches import MaskedBatch
from regard.data.config import Recipe, Split
from regard.data.corpora import Part
from regard.data.epochs import fixed_batches
from regard.data.example import Example
from regard.data.framing import Framed, Framing
from regard.data.prepare import Prepared, Progress, prepare
from regard.data.raw import RawData, RawInputs, RawText, RawTokens
from regard.data.readers import Reader
from regard.data.segments import (
    MORE_DOCUMENTS,
    Masking,
    Segments,
    SentencePairs,
    SingleSegments,
    Whole,
)
from regard.errors import ConfigError, DataError, InputError, Problem
from regard.models import MODELS, any_config
from regard.models.base import MaskedModel, device_of
from regard.models.bert import BERT
from regard.objectives.cross_entropy import perplexity
from regard.objectives.language_model import MaskedTokens, masked_states, masked_sums
from regard.objectives.replaced_tokens import ReplacedTokens, detection_sums
from regard.tasks.answers import Done, EncodedInputs, Note, Prediction, ignore
from regard.tasks.raw import (
    RawEncoding,
    TextNotes,
    check_max_length,
    contextual,
    learn_text_tokenizer,
    read_documents,
    token_losses,
)
from regard.tasks.reading import (
    READ_TOKENS,
    Ids,
    by_length,
    not_longer,
    padded,
    problem_in,
)
from regard.tasks.task import Metrics, Network, Start, Task, set_first_bias
from regard.tasks.views import TextVectors, Views
from regard.text.normalise import Sentences, fold_white_space, split_sentences
from regard.text.tokenizers import Tokenizer, Tokenizers
from regard.text.vocabularies import MASKING_NAMES

GAP = "[MASK]"
"""How a gap is typed, whatever the vocabulary calls it."""
CANDIDATES = 5
"""The words that are offered for a gap, if the user does not ask for a number."""
MAX_JOINED_DOCUMENTS = 4
"""Documents in a joined row from which there is a warning: with more of them, the loss stayed on its
first plateau in our measurements (docs/what-pretraining-buys.md)."""


class MaskedData(RawData):
    """The raw text of a masked language model, and how tokens are masked."""

    MORE: ClassVar[str] = (
        f"{RawData.MORE}; next-sentence prediction, where it is on, needs two in each split"
    )

    sentences: Sentences = "punctuation"
    """How next-sentence prediction finds sentences. `punctuation`: a sentence ends with . ! ? or …,
    followed by a space and not by a lower-case letter (by anything in a document without capitals),
    except after abbreviations; `lines`: every line is a sentence, as in the files of BERT's
    authors."""
    mask_rate: float = Field(0.15, gt=0, lt=1)
    """Share of the tokens that are predicted. 80 % of them become [MASK], 10 % another token, and
    10 % stay."""
    mask_share: float = Field(0.8, ge=0, le=1)
    """Share of the predicted tokens that become [MASK]; values other than the paper's are
    ablations."""
    random_share: float = Field(0.1, ge=0, le=1)
    """Share of the predicted tokens that become another token; the rest stay as they are."""
    masked_weight: float = Field(1.0, ge=0)
    """Weight of the masked-LM loss beside the next-sentence loss, or beside the discriminator's; 0
    leaves only the latter: an ablation."""
    replaced_weight: float = Field(50.0, ge=0)
    """Weight of the discriminator's loss beside the generator's, with `model.generator_size`:
    lambda in ELECTRA's paper."""
    blocks: Literal["documents", "contiguous"] = "documents"
    """What an example is without next-sentence prediction. `documents`: a document, or a piece of a
    long one; `contiguous`: `max_length` tokens of all documents joined, which may begin in one
    document and end in the next (RoBERTa's full sentences)."""
    whole_words: Whole = "off"
    """The tokens that are masked together: single tokens (`off`), all pieces of a word (`words`),
    or everything between two spaces (`eojeol`, for Korean). An imported vocabulary with ## before
    the continuation of a word does not tell where spaces are: with it both mask a piece and the ##
    pieces after it, without punctuation."""

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.mask_share + self.random_share > 1:
            raise ValueError("mask_share and random_share must add up to at most 1")
        return self


class MaskedLanguageModeling(Task):
    """Raw text, measured by the shares of masked tokens and of next sentences that are
    predicted."""

    name = "masked_language_modeling"
    data = MaskedData
    models = any_config(lambda config: config.pretraining == "masked")
    vocabularies = ("text",)
    lower_is_better = ("loss", "perplexity", "next_sentence_loss", "replaced_loss")
    higher_is_better = (
        "masked_accuracy",
        "next_sentence_accuracy",
        "replaced_accuracy",
        "replaced_f1",
    )
    unit = "masked tokens"
    has_flat_batches = True
    start = Start(
        completes_model=True,
        continues=True,
        model={"masked_head": True},  # which an imported model may have come without
    )
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "training": {"label_smoothing": 0.0},
        "tokenizer": {"kind": "wordpiece"},
    }

    learn_tokenizers = staticmethod(partial(learn_text_tokenizer, special=MASKING_NAMES))
    encoding: RawEncoding

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        tokenizer = tokenizers["text"]
        notes = TextNotes(recipe, tokenizer, gap=GAP)
        vectors = TextVectors(
            tokenizer,
            contextual,
            folds=bool(recipe.data.train),
            encode_gaps=partial(encode_gaps, tokenizer),
            notes=notes,
        )
        columns = ("first", "second")  # `explain` shows two texts as pre-training reads them
        self.inputs = RawInputs(self.name, self.corpora, recipe.data.encoding, columns)
        self.encoding = self.make_encoding(recipe, tokenizers)
        self.network = MaskedNetwork(recipe, self.encoding)
        self.answers = FilledGaps(recipe, tokenizer, self.inputs, notes)
        self.metrics = MaskedMetrics(recipe, tokenizer)
        self.views = Views(vectors=vectors, gaps=self.answers, unit="documents")

    @classmethod
    def make_encoding(cls, recipe: Recipe, tokenizers: Tokenizers) -> RawEncoding:
        sentences = recipe.data.sentences if recipe.model.next_sentence else None
        cut = partial(cut_segments, recipe)
        return RawEncoding(recipe, tokenizers, cut, sentences, masked_counts)

    def objective(self, model: MaskedModel) -> MaskedTokens | ReplacedTokens:
        smoothing = self.recipe.training.label_smoothing
        data = self.recipe.data
        if isinstance(model, BERT) and model.generator is not None:
            detection = ReplacedTokens(model, smoothing, data.replaced_weight)
            detection.masked_weight = data.masked_weight
            return detection
        objective = MaskedTokens(model, smoothing)
        objective.weight = data.masked_weight
        return objective

    @classmethod
    def prepare(
        cls,
        recipe: Recipe,
        base: Path,
        tokenizers: Tokenizers | None = None,
        progress: Progress | None = None,
    ) -> Prepared[Segments]:
        prepared: Prepared[Any] = prepare(cls, recipe, base, tokenizers, progress)
        return prepared.with_notes([*prepared.train.notes()])

    def read(self, corpora: Sequence[RawText], part: Part, base: Path) -> Segments:
        documents = read_documents(self.encoding, corpora, part, base)
        text = self.encoding.raw_tokens(documents)
        try:
            return cut_segments(self.recipe, text, part)
        except DataError:
            # too few documents for next-sentence prediction: masked tokens can still be measured
            return single_segments(self.recipe, text)

    def data_warnings(self, data: Prepared[Any]) -> Iterator[str]:
        """Joined rows of many short documents: nearly all tokens that a masked one sees belong to
        other documents."""
        length = self.recipe.data.max_length
        text = data.train.text
        tokens = len(text.values) / max(1, len(text))
        if self.recipe.data.blocks == "contiguous" and length > MAX_JOINED_DOCUMENTS * tokens:
            yield (
                f"data.blocks=contiguous joins about {length / tokens:.0f} documents of {tokens:.0f} "
                f"tokens in a row of data.max_length={length}, which are little help to each other, and "
                "the loss may stay where the frequencies of the tokens take it: lower data.max_length "
                f"to about {max(8, round(2 * tokens))}, or set data.blocks=documents"
            )

    def input_line(self, row: Mapping[str, str], reader: Reader) -> str:
        """A sentence with a gap, and the one after it."""
        first, *others = split_sentences(row["text"][:2000])
        words = first.split()
        words[len(words) // 2] = GAP
        return "\t".join([" ".join(words), *others[: bool(self.recipe.model.next_sentence)]])


# Documents -> segments


def masked_counts(examples: Segments) -> dict[str, int]:
    """How many tokens are masked in a hundred batches, and how."""
    return examples.outcomes(100, READ_TOKENS)


def cut_segments(recipe: Recipe, text: RawTokens, part: str) -> Segments:
    """The segments of a split: pairs for next-sentence prediction, else documents."""
    data = recipe.data
    if not recipe.model.next_sentence:
        return single_segments(recipe, text)
    split = getattr(data, part, None)
    hint = MORE_DOCUMENTS
    if isinstance(split, Split):
        hint = (
            f"raise data.{part}.split, which is {split.split:g}, or give data.{part} a text of "
            "its own"
        )
    masking = masking_of(recipe, text.tokenizer)
    return SentencePairs(text, masking, data.max_length, f"data.{part}", hint, data.sentences)


def single_segments(recipe: Recipe, text: RawTokens) -> SingleSegments:
    data = recipe.data
    masking = masking_of(recipe, text.tokenizer)
    return SingleSegments(text, masking, data.max_length, joined=data.blocks == "contiguous")


def masking_of(recipe: Recipe, tokenizer: Tokenizer) -> Masking:
    """How tokens are masked; a DataError if the vocabulary cannot mask any."""
    if tokenizer.mask is None:
        hint = "add one to the file, or leave tokenizer.file out to train a vocabulary that has it"
        place = f"{recipe.tokenizer.file or 'tokenizer'}"
        raise DataError("the vocabulary has no [MASK] token", where=place, hint=hint)
    data = recipe.data
    return Masking(tokenizer, data.mask_rate, data.whole_words, data.mask_share, data.random_share)


def _nothing_masked(where: str) -> DataError:
    what = "none of its tokens can be masked: all are special or unknown to the tokenizer"
    return DataError(what, where=where, hint="give other text, or a tokenizer that knows its words")


# The parts


class MaskedNetwork(Network):
    """BERT with its head for masked tokens."""

    def __init__(self, recipe: Recipe, encoding: RawEncoding) -> None:
        self.recipe = recipe
        self.encoding = encoding

    def build(self) -> Any:
        config = self.recipe.model
        return MODELS[config.kind].build(config, self.encoding.tokenizers["text"].size)

    def set_first_weights(self, model: Any, train: Segments) -> None:
        set_first_bias(model.masked_model, self.encoding, train)

    def check(self, data: Prepared[Segments]) -> None:
        model = self.recipe.model
        best = self.recipe.training.best
        check_max_length(self.recipe)
        if not model.masked_head:
            what = "a model without its masked-LM head cannot learn to predict masked tokens"
            raise ConfigError(what, where="model.masked_head", hint="leave it at true")
        if best.startswith("next_sentence") and not model.next_sentence:
            what = "model.next_sentence is off"
            raise ConfigError(what, where="training.best", hint="choose another metric")
        if best.startswith("replaced") and not getattr(model, "generator_size", None):
            what = "only a model with a generator tells replaced tokens"
            hint = "choose another metric, or set model.generator_size"
            raise ConfigError(what, where="training.best", hint=hint)
        if self.recipe.data.blocks != "documents" and model.next_sentence:
            what = "next-sentence prediction reads pairs of segments of one document"
            hint = "leave it at documents, or set model.next_sentence=false"
            raise ConfigError(what, where="data.blocks", hint=hint)
        for part, examples in (("train", data.train), ("validation", data.validation)):
            batches = fixed_batches(examples, READ_TOKENS)
            if not any(examples.batch(rows).tokens for rows in batches):
                raise _nothing_masked(f"data.{part}")


class MaskedMetrics(Metrics):
    """How well masked tokens and next sentences are predicted."""

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer

    def validate(self, model: MaskedModel, examples: Segments) -> dict[str, Any]:
        return self.loss(model, examples, ignore)

    def loss(self, model: MaskedModel, examples: Segments, progress: Done) -> dict[str, Any]:
        """Means over all examples; the same tokens are hidden whenever they are measured."""
        sums: dict[str, float] = defaultdict(float)
        for rows in fixed_batches(examples, READ_TOKENS):
            batch = examples.batch(rows).to(device_of(model))
            for name, value in masked_sums(model.masked_model, batch).items():
                sums[name] += value
            if isinstance(model, BERT) and model.generator is not None:
                for name, value in detection_sums(model, batch).items():
                    sums[name] += value
            progress(len(rows))
        if not sums["masked"]:
            raise _nothing_masked(examples.where(0))
        loss = sums["loss"] / sums["masked"]
        pairs = sums["pairs"]
        metrics = {
            "loss": loss,
            "perplexity": perplexity(loss),
            "masked_accuracy": sums["correct"] / sums["masked"],
        }
        if pairs:
            metrics["next_sentence_loss"] = sums["next_loss"] / pairs
            metrics["next_sentence_accuracy"] = sums["next_correct"] / pairs
        if tokens := sums["tokens"]:
            metrics["replaced_loss"] = sums["detection_loss"] / tokens
            metrics["replaced_accuracy"] = sums["detected"] / tokens
            metrics["replaced_f1"] = 2 * sums["found"] / max(1, sums["named"] + sums["replaced"])
        return metrics

    def evaluate(self, model: MaskedModel, examples: Segments, progress: Done) -> dict[str, Any]:
        metrics = {
            "documents": examples.documents,
            "examples": len(examples),
            **self.loss(model, examples, progress),
        }
        if self.recipe.model.next_sentence and "next_sentence_loss" not in metrics:
            metrics["note"] = (
                "masked tokens alone were measured: next sentences need two documents of two "
                "sentences or more"
            )
        return metrics

    @torch.inference_mode()
    def by_unit(
        self, model: MaskedModel, examples: Segments, progress: Done
    ) -> list[dict[str, Any]]:
        """For each document how many tokens are masked and how many of them predicted, and their
        cross-entropy.

        `hidden` is a checksum of which tokens are masked, and what is shown in their place: it
        differs if runs are measured on other tokens.
        """
        model = model.masked_model
        if model.output is None:
            what = "a model was imported without the head that predicts masked tokens"
            raise DataError(what, where="compare", hint="compare what is fine-tuned from it")
        sums = np.zeros((len(examples.text), 3))
        hidden = [0] * len(examples.text)
        starts = examples.shown(0, 0).a_starts
        spelt = self.tokenizer.tokens(range(self.tokenizer.size))
        for rows in fixed_batches(examples, READ_TOKENS):
            batch = examples.batch(rows).to(device_of(model))
            states_PD = masked_states(model(batch).hidden_BTD, batch)
            losses_P, right_P = token_losses(model, (states_PD, batch.labels_P))
            rows_P = rows[(batch.places_P // batch.text.ids_BL.shape[1]).cpu().numpy()]
            owners_P = examples.text.document_at(starts[rows_P])
            counts_P3 = np.stack([losses_P.cpu(), right_P.cpu(), np.ones(len(owners_P))], axis=1)
            np.add.at(sums, owners_P, counts_P3)
            shown_P = batch.text.ids_BL.flatten()[batch.places_P]
            columns = (owners_P, batch.places_P, shown_P, batch.labels_P)
            for owner, place, shown, label in zip(
                *(column.tolist() for column in columns), strict=True
            ):
                token = f"{place} {spelt[shown]} {spelt[label]}"
                hidden[owner] = crc32(token.encode(), hidden[owner])
            progress(len(rows))
        names = "input", "loss", "correct", "masked", "hidden"
        documents = zip(examples.text.texts(), *sums.T.tolist(), hidden, strict=True)
        return [dict(zip(names, document, strict=True)) for document in documents]


class FilledGaps:
    """Texts with every [MASK] filled."""

    def __init__(
        self, recipe: Recipe, tokenizer: Tokenizer, inputs: RawInputs, text_notes: TextNotes
    ) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.inputs = inputs
        self.text_notes = text_notes

    def check(self, validation: Any) -> None:
        """Every validation can be answered."""

    def notes(
        self, encoded: EncodedInputs[list[int]], predictions: Sequence[Prediction]
    ) -> list[Note]:
        return self.text_notes(encoded.inputs, encoded.readable())

    def encode_inputs(
        self, model: MaskedModel, inputs: Sequence[Example], prefixes: Sequence[str] | None = None
    ) -> EncodedInputs[list[int]]:
        """The row of each text, or of two, with the mask token in its gaps."""
        rows = list[Ids]()
        for given in inputs:
            problem = self._problem_in(model, given)
            rows.append(
                self.framed(model, given).ids if problem is None else InputError(problems=[problem])
            )
        return EncodedInputs(inputs, not_longer(rows, model.longest, inputs))

    def _problem_in(self, model: MaskedModel, given: Example) -> Problem | None:
        """Why a text cannot be filled."""
        if wrong := self.inputs.wrong_number(given):
            return wrong
        asks_next = len(texts_of_input(given)) == 2 and model.next_sentence is not None
        if given.fault is None and GAP not in given.text and not asks_next:
            what = f"there is no {GAP} in the text"
            return Problem(given.place, what, f"write {GAP} where a word is to be found")
        return problem_in(given)

    def framed(self, model: MaskedModel, given: Example) -> Framed:
        """The row of tokens that the model reads for a text, or for two."""
        framing = Framing(self.tokenizer, segments=True, longest=model.longest)
        return framing.frame(*(with_gaps(self.tokenizer, part) for part in texts_of_input(given)))

    @torch.inference_mode()
    def predict_encoded(
        self,
        model: MaskedModel,
        encoded: EncodedInputs[list[int]],
        *,
        record: bool = False,
        progress: Done = ignore,
    ) -> list[Filled]:
        """Each text with every [MASK] filled, and the `search.nbest` most probable tokens for each;
        of two texts also the probability that the second follows the first.

        Every gap by itself: the tokens are the most probable ones given the text with all its gaps.
        Tokens that are not words, such as the mark of a word's beginning alone, are not offered;
        they keep their probability, so those of the others need not sum to 1.
        """
        model = model.masked_model
        tokenizer = self.tokenizer
        rows = encoded.readable()
        not_offered = self._not_offered()
        nbest = self.recipe.search.nbest
        offered = min(nbest if nbest > 1 else CANDIDATES, tokenizer.size - len(not_offered))
        predictions: dict[int, Filled] = {}
        for numbers in by_length([len(row) for row in rows], READ_TOKENS):
            inputs = [encoded.inputs[number] for number in numbers]
            batch = self._batch(model, inputs, [rows[number] for number in numbers])
            hidden_BLD = model(batch).hidden_BTD
            next_B = _next_sentence(model, hidden_BLD)
            log_p_PV = model.readout(masked_states(hidden_BLD, batch)).float().log_softmax(-1)
            log_p_PV[:, not_offered] = -torch.inf
            values_PK, tokens_PK = log_p_PV.exp().topk(offered)
            gaps = iter(zip(values_PK.tolist(), tokens_PK.tolist(), strict=True))
            for place, (number, given) in enumerate(zip(numbers, inputs, strict=True)):
                filling = [next(gaps) for token in rows[number] if token == tokenizer.mask]
                follows = None
                if next_B is not None and len(texts_of_input(given)) > 1:
                    follows = float(next_B[place])
                filled = _filled(tokenizer, given.text, filling)
                predictions[number] = replace(filled, next_sentence=follows)
            progress(len(numbers))
        return [predictions[number] for number in range(len(rows))]

    def _not_offered(self) -> list[int]:
        """The tokens that are not words."""
        tokenizer = self.tokenizer
        pieces = enumerate(tokenizer.pieces(range(tokenizer.size)))
        blank = {
            token
            for token, piece in pieces
            if len(piece) <= 2 and not _written(tokenizer, token).strip()
        }
        return sorted(tokenizer.special | blank)

    def _batch(
        self, model: MaskedModel, inputs: Sequence[Example], rows: Sequence[Sequence[int]]
    ) -> MaskedBatch:
        text = padded(rows, self.tokenizer.pad)
        segments_BL = padded([self.framed(model, given).segments for given in inputs], 0).ids_BL
        places_P = text.ids_BL.flatten().eq(torch.tensor(self.tokenizer.mask)).nonzero()[:, 0]
        batch = MaskedBatch(text, segments_BL, places_P, torch.zeros_like(places_P))
        return batch.to(device_of(model))


def _next_sentence(model: MaskedModel, hidden_BLD: Tensor) -> Tensor | None:
    """The probability that the second text follows the first; None for a model without that
    head."""
    if model.next_sentence is None:
        return None
    p_B2: Tensor = model.next_sentence(hidden_BLD).float().softmax(-1)
    return p_B2[:, 0]


def encode_gaps(tokenizer: Tokenizer, text: str) -> list[int] | None:
    """The tokens of a text with gaps; None if it has none, or the vocabulary has no mask."""
    if tokenizer.mask is None or GAP not in text:
        return None
    return with_gaps(tokenizer, text)


@dataclass(frozen=True)
class Gap:
    """The candidates for one gap, most probable first."""

    tokens: tuple[str, ...]
    """As the vocabulary spells them."""
    words: tuple[str, ...]
    """As they stand in a text."""
    probabilities: tuple[float, ...]
    outputs: tuple[str, ...]
    """The text with each of them, and the likeliest in the other gaps."""

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens": list(self.tokens),
            "words": list(self.words),
            "probabilities": list(self.probabilities),
        }


@dataclass(frozen=True)
class Filled(Prediction):
    """A text, and what the model puts into its gaps."""

    output: str
    """The text as it was typed, with a word in each gap."""
    gaps: tuple[Gap, ...]
    # of two texts: the probability that the second follows the first
    next_sentence: float | None = None

    def content(self) -> dict[str, Any]:
        tree = {
            "input": self.input,
            "output": self.output,
            "masks": [gap.to_json() for gap in self.gaps],
        }
        return tree if self.next_sentence is None else tree | {"next_sentence": self.next_sentence}

    def lines(self, nbest: int) -> Iterator[str]:
        """The filled text with the probability of each word; or, where several were asked for, a
        line for each candidate of each gap: the number of the gap, the probability, the word and
        the text with it. Two texts have P(next) after them."""
        if nbest == 1 or self.next_sentence is not None:
            follows = [] if self.next_sentence is None else [f"P(next) {self.next_sentence:.4f}"]
            words = [f"{gap.words[0]} {gap.probabilities[0]:.4f}" for gap in self.gaps]
            yield "\t".join([self.output, *words, *follows])
        if nbest == 1:
            return
        for number, gap in enumerate(self.gaps, 1):
            candidates = zip(gap.probabilities, gap.words, gap.outputs, strict=True)
            yield from (
                f"{number}\t{p:.4f}\t{word}\t{output}" for p, word, output in [*candidates][:nbest]
            )


def texts_of_input(given: Example) -> list[str]:
    """One text, or two."""
    return [fold_white_space(text) for text in given.texts if text.strip()]


def with_gaps(tokenizer: Tokenizer, text: str) -> list[int]:
    """The tokens of a text around its gaps. A gap takes the space before it, as the tokens that
    were hidden did."""
    assert tokenizer.mask is not None
    *parts, last = text.split(GAP)
    ids: list[int] = []
    for number, part in enumerate([*(part.rstrip() for part in parts), last]):
        ids += [tokenizer.mask] if number else []
        if part:
            ids += (tokenizer.continued if number else tokenizer).encode(part)
    return ids


def _filled(
    tokenizer: Tokenizer, text: str, gaps: Sequence[tuple[list[float], list[int]]]
) -> Filled:
    written = [[_written(tokenizer, token) for token in tokens] for _, tokens in gaps]
    best = [words[0] for words in written]
    candidates = tuple(
        Gap(
            tuple(tokenizer.pieces(tokens)),
            tuple(word.strip() for word in words),
            tuple(values),
            tuple(put_in(text, [*best[:number], word, *best[number + 1 :]]) for word in words),
        )
        for number, ((values, tokens), words) in enumerate(zip(gaps, written, strict=True))
    )
    return Filled(text, put_in(text, best), candidates)


def _written(tokenizer: Tokenizer, token: int) -> str:
    """A token as it is written after another one, with the space between the two if it begins a
    word."""
    return tokenizer.decode([token, token]).removeprefix(tokenizer.decode([token]))


def put_in(text: str, words: Sequence[str]) -> str:
    """The text as it was typed with a word in each gap: no space comes to those that are there, but
    between words."""
    before, *others = text.split(GAP)
    for word, after in zip(words, others, strict=True):
        before += (word if before[-1:].isalnum() else word.strip()) + after
    return before
