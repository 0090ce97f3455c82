"""Masked language modeling: raw text in, a model that predicts masked tokens and whether a sentence
follows another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self
from zlib import crc32

import numpy as np
import torch
from pydantic import Field, model_validator

from regard.data.batches import MaskedBatch
from regard.data.config import Recipe, Split
from regard.data.corpora import Part
from regard.data.dataset import Dataset
from regard.data.epochs import fixed_batches
from regard.data.example import Example
from regard.data.framing import Framed, Framing
from regard.data.prepare import Prepared, Progress
from regard.data.raw import RawData, RawText
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
from regard.models.base import device_of
from regard.models.bert import BERT
from regard.objectives.cross_entropy import perplexity
from regard.objectives.language_model import MaskedTokens, masked_states, masked_sums
from regard.tasks.raw import RawTextTask, check_max_length, token_losses
from regard.tasks.task import (
    READ_TOKENS,
    Done,
    EncodedInputs,
    Ids,
    Prediction,
    by_length,
    ignore,
    not_longer,
    padded,
    problem_in,
)
from regard.text.normalise import Sentences, fold_white_space, split_sentences
from regard.text.tokenizers import Tokenizer, Tokenizers
from regard.text.vocabularies import MASKING_NAMES


class MaskedData(RawData):
    """The raw text of a masked language model, and what is hidden in it."""

    MORE: ClassVar[str] = (
        f"{RawData.MORE}; next-sentence prediction, where it is on, needs two in each split"
    )

    sentences: Sentences = "punctuation"
    """How next-sentence prediction finds sentences. `punctuation`: one ends with . ! ? or … before
    a blank and what is no small letter (in a document without capitals: anything), abbreviations
    aside; `lines`: every line is one, as in the files that BERT's authors read."""
    mask_rate: float = Field(0.15, gt=0, lt=1)
    """Share of the tokens that are to be predicted. Of these 80 % become [MASK], 10 % another
    token, 10 % stay."""
    mask_share: float = Field(0.8, ge=0, le=1)
    """Of the tokens to predict, the share that becomes [MASK]; others than the paper's are
    ablations."""
    random_share: float = Field(0.1, ge=0, le=1)
    """Of the tokens to predict, the share that becomes another token; what is left stays as it
    is."""
    masked_weight: float = Field(1.0, ge=0)
    """Weight of the masked-LM loss beside the next-sentence loss; 0 leaves only the latter: an
    ablation."""
    whole_words: Whole = "off"
    """What is hidden together: single tokens (`off`), all pieces of a word (`words`), or all that
    stands between two spaces (`eojeol`, for Korean). A vocabulary of others with ## before the
    pieces that go on with a word does not tell where spaces are: with it both hide a piece and the
    ## pieces after it, and punctuation stands apart."""

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.mask_share + self.random_share > 1:
            raise ValueError("mask_share and random_share must add up to at most 1")
        return self


class MaskedLanguageModeling(RawTextTask):
    """Raw text, measured by the shares of masked tokens and of next sentences that are
    predicted."""

    name = "masked_language_modeling"
    unit = "masked tokens"
    data = MaskedData
    input_columns = (
        "first",
        "second",
    )  # `explain` shows two texts as they are read in pre-training
    models = any_config(lambda config: config.pretraining == "masked")
    init_model: ClassVar[Mapping[str, Any]] = {
        "masked_head": True
    }  # which an imported model may have come without
    lower_is_better = ("loss", "perplexity", "next_sentence_loss")
    higher_is_better = ("masked_accuracy", "next_sentence_accuracy")
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "training": {"label_smoothing": 0.0},
        "tokenizer": {"kind": "wordpiece"},
    }

    special = MASKING_NAMES

    # Data

    @property
    def sentences(self) -> Sentences | None:
        sentences: Sentences = self.recipe.data.sentences
        return sentences if self.recipe.model.next_sentence else None

    @classmethod
    def prepare(
        cls,
        recipe: Recipe,
        base: Path,
        tokenizers: Tokenizers | None = None,
        progress: Progress | None = None,
    ) -> Prepared[Segments]:
        prepared = super().prepare(recipe, base, tokenizers, progress)
        return prepared.with_notes([*prepared.train.notes()])

    def examples(self, rows: Dataset, part: str) -> Segments:
        data = self.recipe.data
        if not self.recipe.model.next_sentence:
            return self.single_segments(rows)
        split, hint = getattr(data, part, None), MORE_DOCUMENTS
        if isinstance(split, Split):
            hint = (
                f"raise data.{part}.split, which is {split.split:g}, or give data.{part} a "
                "text of its own"
            )
        return SentencePairs(
            self.raw_tokens(rows),
            self.masking,
            data.max_length,
            f"data.{part}",
            hint,
            data.sentences,
        )

    def single_segments(self, rows: Dataset) -> SingleSegments:
        return SingleSegments(self.raw_tokens(rows), self.masking, self.recipe.data.max_length)

    @property
    def masking(self) -> Masking:
        if self.tokenizers["text"].mask is None:
            hint = (
                "add one to the file, or leave tokenizer.file out to train a vocabulary that has it"
            )
            place = f"{self.recipe.tokenizer.file or 'tokenizer'}"
            raise DataError("the vocabulary has no [MASK] token", where=place, hint=hint)
        data = self.recipe.data
        return Masking(
            self.tokenizers["text"],
            data.mask_rate,
            data.whole_words,
            data.mask_share,
            data.random_share,
        )

    def label_counts(self, examples: Segments) -> dict[str, int]:  # type: ignore[override]  # they have masks already
        """What is masked in a hundred batches, and how."""
        return examples.outcomes(100, READ_TOKENS)

    def read(self, corpora: Sequence[RawText], part: Part, base: Path) -> Segments:
        rows = self.read_documents(corpora, part, base)
        try:
            return self.examples(rows, part)
        except DataError:
            # too few documents for next-sentence prediction: masked tokens can still be measured
            return self.single_segments(rows)

    # Training

    def check(self, data: Prepared[Segments]) -> None:
        check_max_length(self.recipe)
        if not self.recipe.model.masked_head:
            what = "a model without its masked-LM head cannot learn to predict masked tokens"
            raise ConfigError(what, where="model.masked_head", hint="leave it at true")
        if (
            self.recipe.training.best.startswith("next_sentence")
            and not self.recipe.model.next_sentence
        ):
            raise ConfigError(
                "model.next_sentence is off", where="training.best", hint="choose another metric"
            )
        for part, examples in (("train", data.train), ("validation", data.validation)):
            if not any(
                examples.batch(rows).tokens for rows in fixed_batches(examples, READ_TOKENS)
            ):
                raise _nothing_masked(f"data.{part}")

    def build(self) -> Any:
        return MODELS[self.recipe.model.kind].build(self.recipe.model, self.tokenizers["text"].size)

    def objective(self, model: BERT) -> MaskedTokens:
        objective = MaskedTokens(model, self.recipe.training.label_smoothing)
        objective.weight = self.recipe.data.masked_weight
        return objective

    def loss(self, model: BERT, examples: Segments, progress: Done) -> dict[str, Any]:
        """Means over all examples; the same tokens are hidden whenever they are measured."""
        sums: dict[str, float] = defaultdict(float)
        for rows in fixed_batches(examples, READ_TOKENS):
            for name, value in masked_sums(
                model, examples.batch(rows).to(device_of(model))
            ).items():
                sums[name] += value
            progress(len(rows))
        if not sums["masked"]:
            raise _nothing_masked(examples.where(0))
        loss, pairs = sums["loss"] / sums["masked"], sums["pairs"]
        metrics = {
            "loss": loss,
            "perplexity": perplexity(loss),
            "masked_accuracy": sums["correct"] / sums["masked"],
        }
        if pairs:
            metrics["next_sentence_loss"] = sums["next_loss"] / pairs
            metrics["next_sentence_accuracy"] = sums["next_correct"] / pairs
        return metrics

    def validate(self, model: BERT, examples: Segments) -> dict[str, Any]:
        return self.loss(model, examples, ignore)

    # Verbs

    def evaluate(self, model: BERT, examples: Segments, progress: Done) -> dict[str, Any]:
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
    def by_unit(self, model: BERT, examples: Segments, progress: Done) -> list[dict[str, Any]]:
        """Of each document how many tokens are masked and how many of them predicted, and their
        cross-entropy.

        `hidden` is a checksum of which tokens are masked, and what is shown in their place: it
        differs where runs are measured on other tokens.
        """
        if model.output is None:
            what = "a model was imported without the head that predicts masked tokens"
            raise DataError(what, where="compare", hint="compare what is fine-tuned from it")
        sums, hidden = np.zeros((len(examples.text), 3)), [0] * len(examples.text)
        starts, tokenizer = examples.shown(0, 0).a_starts, self.tokenizers["text"]
        spelt = tokenizer.tokens(range(tokenizer.size))
        for rows in fixed_batches(examples, READ_TOKENS):
            batch = examples.batch(rows).to(device_of(model))
            losses_P, right_P = token_losses(
                model, (masked_states(model(batch).hidden_BTD, batch), batch.labels_P)
            )
            rows_P = rows[(batch.places_P // batch.text.ids_BL.shape[1]).cpu().numpy()]
            owners_P = examples.text.document_at(starts[rows_P])
            np.add.at(
                sums,
                owners_P,
                np.stack([losses_P.cpu(), right_P.cpu(), np.ones(len(owners_P))], axis=1),
            )
            columns = (
                owners_P,
                batch.places_P,
                batch.text.ids_BL.flatten()[batch.places_P],
                batch.labels_P,
            )
            for owner, place, shown, label in zip(
                *(column.tolist() for column in columns), strict=True
            ):
                hidden[owner] = crc32(
                    f"{place} {spelt[shown]} {spelt[label]}".encode(), hidden[owner]
                )
            progress(len(rows))
        names = "input", "loss", "correct", "masked", "hidden"
        documents = zip(examples.text.texts(), *sums.T.tolist(), hidden, strict=True)
        return [dict(zip(names, document, strict=True)) for document in documents]

    def typed(self, row: Mapping[str, str], reader: Reader) -> str:
        """A sentence with a gap, and the one after it."""
        first, *others = split_sentences(row["text"][:2000])
        words = first.split()
        words[len(words) // 2] = GAP
        return "\t".join([" ".join(words), *others[: bool(self.recipe.model.next_sentence)]])

    def encode_inputs(
        self, model: BERT, inputs: Sequence[Example], prefixes: Sequence[str] | None = None
    ) -> EncodedInputs[list[int]]:
        """The row of each text, or of two with a tab between them, with the mask token in its
        gaps."""
        rows = list[Ids]()
        for given in inputs:
            problem = problem_in(given) or self.inputs.wrong_number(given)
            asks_next = len(texts_in(given)) == 2
            if (
                given.fault is None
                and GAP not in given.text
                and not (asks_next and model.next_sentence is not None)
            ):
                problem = Problem(
                    given.place,
                    f"there is no {GAP} in the text",
                    f"write {GAP} where a word is to be found",
                )
            rows.append(
                self.framed(model, given).ids if problem is None else InputError(problems=[problem])
            )
        return EncodedInputs(inputs, not_longer(rows, model.longest, inputs))

    def framed(self, model: BERT, given: Example) -> Framed:
        """What the model reads of a text, or of two."""
        tokenizer = self.tokenizers["text"]
        framing = Framing(tokenizer, segments=True, longest=model.longest)
        return framing.frame(*(with_gaps(tokenizer, part) for part in texts_in(given)))

    @torch.inference_mode()
    def predict_encoded(
        self,
        model: BERT,
        encoded: EncodedInputs[list[int]],
        *,
        record: bool = False,
        progress: Done = ignore,
    ) -> list[Filled]:
        """Each text with every [MASK] filled, and the `search.nbest` most probable tokens for each;
        of two texts also the probability that the second follows the first.

        Every gap by itself: the tokens are the most probable ones given the text with all its gaps.
        What is no word is not offered, such as the mark of a word's beginning alone; it keeps its
        probability, so those of the others need not sum to 1.
        """
        tokenizer, rows, nbest = (
            self.tokenizers["text"],
            encoded.readable(),
            self.recipe.search.nbest,
        )
        pieces = enumerate(tokenizer.pieces(range(tokenizer.size)))
        blank = {
            token
            for token, piece in pieces
            if len(piece) <= 2 and not _written(tokenizer, token).strip()
        }
        not_offered = sorted(tokenizer.special | blank)
        offered = min(nbest if nbest > 1 else 5, tokenizer.size - len(not_offered))
        predictions: dict[int, Filled] = {}
        for numbers in by_length([len(row) for row in rows], READ_TOKENS):
            text = padded([rows[number] for number in numbers], tokenizer.pad)
            segments = [self.framed(model, encoded.inputs[number]).segments for number in numbers]
            places_P = text.ids_BL.flatten().eq(torch.tensor(tokenizer.mask)).nonzero()[:, 0]
            batch = MaskedBatch(
                text, padded(segments, 0).ids_BL, places_P, torch.zeros_like(places_P)
            )
            batch = batch.to(device_of(model))
            hidden_BLD = model(batch).hidden_BTD
            next_B = (
                None
                if model.next_sentence is None
                else model.next_sentence(hidden_BLD).float().softmax(-1)[:, 0]
            )
            log_p_PV = model.readout(masked_states(hidden_BLD, batch)).float().log_softmax(-1)
            log_p_PV[:, not_offered] = -torch.inf
            values_PK, tokens_PK = log_p_PV.exp().topk(offered)
            gaps = iter(zip(values_PK.tolist(), tokens_PK.tolist(), strict=True))
            for place, number in enumerate(numbers):
                given = encoded.inputs[number]
                own = [next(gaps) for token in rows[number] if token == tokenizer.mask]
                follows = (
                    None if next_B is None or len(texts_in(given)) == 1 else float(next_B[place])
                )
                predictions[number] = replace(
                    _filled(tokenizer, given.text, own), next_sentence=follows
                )
            progress(len(numbers))
        return [predictions[number] for number in range(len(rows))]

    def plain_text(self, text: str) -> str:
        return super().plain_text(text.replace(GAP, " "))


def _nothing_masked(where: str) -> DataError:
    what = "none of its tokens can be masked: all are special or unknown to the tokenizer"
    return DataError(what, where=where, hint="give other text, or a tokenizer that knows its words")


GAP = "[MASK]"  # how a gap is typed, whatever the vocabulary calls it


@dataclass(frozen=True)
class Gap:
    """What may stand in one gap, most probable first."""

    tokens: tuple[str, ...]  # as the vocabulary spells them
    words: tuple[str, ...]  # as they stand in a text
    probabilities: tuple[float, ...]
    outputs: tuple[str, ...]  # the text with each of them, and the likeliest in the other gaps

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens": list(self.tokens),
            "words": list(self.words),
            "probabilities": list(self.probabilities),
        }


@dataclass(frozen=True)
class Filled(Prediction):
    """A text, and what the model puts into its gaps."""

    output: str  # the text as it was typed, with a word in each gap
    gaps: tuple[Gap, ...]
    # of two texts: the probability that the second follows the first
    next_sentence: float | None = None

    def to_json(self) -> dict[str, Any]:
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


def texts_in(given: Example) -> list[str]:
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
    """A token as it is written after another one, with the space between the two where it begins a
    word."""
    return tokenizer.decode([token, token]).removeprefix(tokenizer.decode([token]))


def put_in(text: str, words: Sequence[str]) -> str:
    """The text as it was typed with a word in each gap: no space comes to those that are there, but
    between words."""
    before, *others = text.split(GAP)
    for word, after in zip(words, others, strict=True):
        before += (word if before[-1:].isalnum() else word.strip()) + after
    return before
