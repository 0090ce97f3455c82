"""One answer for a text, or for a few together: classes, numbers, choices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from regard.data.batches import LabelledBatch
from regard.data.config import Recipe
from regard.data.dataset import Columns, Dataset, Encoding, Where
from regard.data.epochs import fixed_batches
from regard.data.example import Example
from regard.data.framing import Arrangement, Framed, arranged, labelled_batch
from regard.data.labelled import LabelledInputs
from regard.data.prepare import Prepared
from regard.data.store import Integers
from regard.errors import ConfigError, DataError, InputError, Problem
from regard.models import config_of
from regard.models.base import HeadPooling, device_of, refused_pooling
from regard.models.headed import ApartHead, HeadConfig, Headed, TextHead
from regard.models.ngrams import Compared, LinearModel, Loss, NgramModel, WordSeparators
from regard.tasks.answers import Done, EncodedInputs, Note, Prediction, ignore
from regard.tasks.examples import EncodedExample, ExampleAnswers
from regard.tasks.headed import (
    FITTING_TOKENS,
    HeadedRecipe,
    Heads,
    framing_of,
    section,
    unknown_texts,
)
from regard.tasks.reading import problem_in_text, read_tokens
from regard.tasks.views import WordWeights
from regard.text.spelling import ids_of
from regard.text.tokenizers import Tokenizer, Tokenizers, train_tokenizers

Targets = NDArray[np.int64] | NDArray[np.float32]
Scores = NDArray[np.float32]


class TextHeadConfig(HeadConfig):
    """A head that has one answer for a text."""

    pooling: HeadPooling = "max"
    """One vector for a text: that of its first or last token, or the mean or the largest values
    over all. Default: first for bert (through the pooler that it was pre-trained with), last for
    lstm_lm and gpt, max for others."""
    linear: int = Field(0, ge=0)
    """Rows of the table of a linear model over n-grams of 1 to 3 tokens with TF-IDF weights, or
    over the difference, the product and the cosines of those of two texts that are read apart. It
    is fitted on the training data before the network is trained, and the answer is the mean of
    both, weighted as validates best. N-grams share rows by their hash. 0 has no linear model."""


def with_pooling(tree: dict[str, Any]) -> dict[str, Any]:
    """A recipe's tree with the pooling that suits its model, if it names none."""
    pooling = config_of(section(tree, "model").get("kind")).head_pooling
    pooling = "mean" if tree["head"].get("apart") else pooling
    return tree | {"head": {"pooling": pooling} | tree["head"]}


def learn_joint_tokenizer(
    recipe: Recipe, train: Mapping[str, Sequence[str]], base: Path
) -> Tokenizers:
    """One tokenizer for all columns of text."""
    texts = {name: column for name, column in train.items() if name != "label"}
    joint = recipe.tokenizer.model_copy(update={"joint": True})
    learned = train_tokenizers(joint, texts, base)
    return Tokenizers({"text": next(iter(learned.values()))})


def text_columns(recipe: HeadedRecipe) -> tuple[str, ...]:
    """The columns that are read, in their order."""
    if not recipe.data.train:
        return ("first", "second")
    texts: tuple[str, ...] = recipe.data.train[0].texts
    return texts


# Labels


class Labels(ABC):
    """The meaning of labels: classes, choices or numbers."""

    names: tuple[str, ...] = ()
    """The classes in their order; empty if labels are not classes."""

    @abstractmethod
    def numbers(self, labels: Sequence[str], where: Where) -> Targets:
        """The class or the number of each label, or one DataError that names the labels that are
        not allowed."""

    def class_names(self, count: int) -> Sequence[str]:
        """The names of so many classes."""
        return self.names


def refuse_labels(
    labels: Sequence[str], fault: Callable[[str], str], where: Where, hint: str = ""
) -> None:
    """One DataError with all labels of which `fault` says what is wrong, if there are any: each
    with its first place."""
    DataError.raise_if(
        Problem(where(labels.index(label)), f"the label {label!r} {what}", hint)
        for label in dict.fromkeys(labels)
        if (what := fault(label))
    )


# Encoding


class LabelEncoding(Encoding):
    """Texts with a label. All columns of text share the tokenizer `text`."""

    recipe: HeadedRecipe

    def __init__(
        self,
        recipe: HeadedRecipe,
        tokenizers: Tokenizers,
        labels: Labels,
        arrangement: Arrangement | None = None,
    ) -> None:
        """`arrangement` says how texts are read, if not the section `head` does."""
        super().__init__(recipe, tokenizers)
        self.labels = labels
        self.fixed_arrangement = arrangement
        self.framing = framing_of(recipe, tokenizers)

    def settings(self) -> list[Any]:
        return [list(self.labels.names)]

    def encode(self, texts: Mapping[str, Sequence[str]], where: Where) -> Columns:
        if "label" in texts:
            self.labels.numbers(texts["label"], where)
        return {
            name: self.tokenizers["text"].encode_batch(rows)
            for name, rows in texts.items()
            if name != "label"
        }

    def tokenizer_of(self, column: str) -> Tokenizer:
        return self.tokenizers["text"]

    def targets(self, examples: Dataset) -> Targets:
        return self.labels.numbers(list(examples.texts["label"]), examples.where)

    @cached_property
    def arrangement(self) -> Arrangement | None:
        """How the texts of an example make rows; None for an imported run, which reads one text or two
        as they come."""
        if self.fixed_arrangement is not None:
            return self.fixed_arrangement
        if self.recipe.data.train or self.recipe.head.both_orders:  # which needs two texts
            return self.arrange(len(text_columns(self.recipe)))
        return None

    def arrange(self, texts: int) -> Arrangement:
        """How one text or two make rows, according to the section `head`."""
        both_orders = self.recipe.head.both_orders
        apart = self.recipe.head.apart
        if both_orders and apart:
            what = "two texts that are read apart have no order"
            raise ConfigError(what, where="head.both_orders", hint="set it to false")
        if not (both_orders or apart):
            return "single" if texts == 1 else "pair"
        arrangement: Arrangement = "apart" if apart else "both_orders"
        if texts == 1:
            what = "there is only one text"
            raise ConfigError(what, where=f"head.{arrangement}", hint="set it to false")
        if apart and self.recipe.data.long == "windows":
            what = "a text that is compared has one vector"
            raise ConfigError(what, where="data.long", hint="allowed: head, tail, head_tail")
        return arrangement

    def arrangement_of(self, examples: Dataset) -> Arrangement:
        return self.arrangement or self.arrange(len(examples.columns))

    def rows(self, examples: Dataset, row: int) -> list[Framed]:
        """The rows of tokens that a model reads for an example."""
        texts = [
            self.framing.spelled(column[row].tolist(), examples.texts[name], row)
            for name, column in examples.columns.items()
        ]
        return arranged(texts, self.framing, self.arrangement_of(examples))

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        """All rows of an example together, each as long as its longest, since they are padded to
        it."""
        arrangement = self.arrangement_of(examples)
        sizes = list(
            zip(*(column.lengths.tolist() for column in examples.columns.values()), strict=True)
        )
        positions: dict[tuple[int, ...], int] = {}
        for texts in set(sizes):
            rows = arranged([range(size) for size in texts], self.framing, arrangement)
            positions[texts] = len(rows) * max(len(row.tokens) for row in rows)
        return np.array([positions[texts] for texts in sizes], dtype=np.int32)

    def collate(self, examples: Dataset, rows: Integers, seed: int, epoch: int) -> LabelledBatch:
        targets: Targets = np.zeros(len(rows), dtype=np.int64)
        if "label" in examples.texts:
            labels = [examples.texts["label"][int(row)] for row in rows]
            targets = self.labels.numbers(labels, lambda row: examples.where(int(rows[row])))
        numbers = tuple(rows.tolist())
        labels_B = torch.from_numpy(targets)
        if self.arrangement_of(examples) in ("single", "pair"):
            columns = list(examples.columns.values())
            batch = self.framing.batch(columns, rows, labels_B, numbers)
            if batch is not None:
                return batch
        framed = [self.rows(examples, int(row)) for row in rows]
        return labelled_batch(framed, labels_B, self.tokenizers["text"].pad, numbers)

    def label_counts(self, examples: Dataset) -> dict[str, int]:
        names = self.labels.names
        if not names:
            return {}
        classes = cast("NDArray[np.int64]", self.targets(examples))
        counts = np.bincount(classes, minlength=len(names))
        return dict(zip(names, counts.tolist(), strict=True))

    def pieces(self, examples: Dataset, row: int) -> dict[str, list[str]]:
        rows = self.rows(examples, row)
        named = {
            "text" if len(rows) == 1 else f"row {number}": row.ids
            for number, row in enumerate(rows, 1)
        }
        pieces = {name: self.tokenizers["text"].pieces(ids) for name, ids in named.items()}
        return {**pieces, "label": [examples.texts["label"][row]]}

    def fields_of(self, examples: Dataset, row: int) -> list[tuple[str, list[int]]]:
        """The texts of an example, each with its tokens."""
        return [
            (examples.texts[name][row], column[row].tolist())
            for name, column in examples.columns.items()
        ]


def text_of(examples: Dataset, row: int) -> str:
    """The texts of an example as they may be typed."""
    return "\t".join(examples.texts[name][row] for name in examples.columns)


# The model


class LabelHeads(Heads):
    """A head with one answer for a text, and the linear model beside it."""

    def __init__(
        self,
        encoding: LabelEncoding,
        outputs: int,
        linear_loss: tuple[Loss, float],
        *,
        are_classes: bool,
        smooths: bool = True,
        start: Callable[[Headed, Dataset], None] | None = None,
    ) -> None:
        """`outputs` are the numbers that the head gives for a row, `are_classes` says whether each
        stands for a class; `linear_loss` is the loss of the linear model's outputs, summed, and the
        strength of its regularisation; `start` sets the head's own first weights."""
        self.recipe = encoding.recipe
        self.encoding = encoding
        self.outputs = outputs
        self.linear_loss = linear_loss
        self.are_classes = are_classes
        self.smooths = smooths
        self.start = start

    @property
    def apart(self) -> bool:
        return getattr(self.recipe.head, "apart", False)

    def make(self, width: int) -> TextHead | ApartHead:
        head = self.recipe.head
        if self.apart:
            number = not self.are_classes
            return ApartHead(
                width, self.outputs, pooling=head.pooling, dropout=head.dropout, number=number
            )
        return TextHead(
            width,
            self.outputs,
            pooling=head.pooling,
            pooler=self.recipe.model.head_layer(width, head.pooling),
            dropout=head.dropout,
            choices=self.encoding.arrangement == "choices",
        )

    def make_linear(self) -> NgramModel | None:
        rows = self.recipe.head.linear
        tokenizer = self.encoding.tokenizers["text"]
        if not rows:
            return None
        by_character = self.recipe.tokenizer.kind in ("character", "jamo")
        space = tokenizer.encode("a a")[1:-1] if by_character else []
        words = (
            WordSeparators(space[0], tokenizer.special - {tokenizer.unk})
            if len(space) == 1
            else None
        )
        compared: Compared | None = None
        if self.apart:
            compared = "classes" if self.are_classes else "similarity"
        return NgramModel(rows, self.outputs, words, compared)

    def set_first_weights(self, model: Headed, train: Dataset) -> None:
        if model.linear is not None:
            self.fit_linear(model.linear, train)
        if self.start is not None:
            self.start(model, train)

    def fit_linear(self, linear: LinearModel, train: Dataset) -> None:
        """Fit the linear model on the training data."""
        batches = [
            self.encoding.collate(train, rows, 0, 0)
            for rows in fixed_batches(train, FITTING_TOKENS)
        ]
        targets = [batch.labels for batch in batches]
        if linear.compared is None:  # each row of an example is fitted alone
            targets = [
                batch.labels.repeat_interleave(batch.owners_B.bincount()) for batch in batches
            ]
        linear.fit(batches, torch.cat(targets), *self.linear_loss)

    def check(self, data: Prepared[Dataset]) -> None:
        self.encoding.arrangement_of(data.train)  # refuses what `head` cannot do with the texts
        head = self.recipe.head
        model = self.recipe.model
        if head.bilstm is None and (what := refused_pooling(model, head.pooling)):
            allowed = [name for name in get_args(HeadPooling) if not refused_pooling(model, name)]
            raise ConfigError(what, where="head.pooling", hint=f"allowed: {', '.join(allowed)}")
        if head.bilstm is not None and model.represents == "texts":
            what = f"{model.kind} has no vectors of tokens"
            raise ConfigError(what, where="head.bilstm", hint="leave it out")
        if head.linear and self.encoding.arrangement not in ("single", "apart"):
            what = "the linear model reads one text, or two of them apart"
            hint = "set it to 0, or of two texts head.apart to true"
            raise ConfigError(what, where="head.linear", hint=hint)
        if self.encoding.arrangement == "choices" and self.recipe.data.long == "windows":
            what = "a choice is read with its text at once"
            raise ConfigError(what, where="data.long", hint="allowed: head, tail, head_tail")


# Answers


def labelled_inputs(task: str, encoding: LabelEncoding, corpora: Sequence[Any]) -> LabelledInputs:
    """One text or two; of an imported run the second may be missing."""
    data = encoding.recipe.data
    names = ("text",) if encoding.arrangement == "single" else ("first", "second")
    return LabelledInputs(
        task,
        corpora,
        data.encoding,
        names,
        arrangement=encoding.arrangement,
        imported=not data.train,
    )


@torch.inference_mode()
def word_weights(
    encoding: LabelEncoding, answers: LabelAnswers, model: Headed, given: Example
) -> WordWeights:
    """The words of the first row of an example, and their weights in the head."""
    [encoded] = answers.encode_inputs(model, [given]).readable()
    batch = encoding.collate(encoded.examples, np.array([encoded.row]), 0, 0)
    x_V = model.base.states(batch.to(device_of(model)))[0, 0].double().cpu()
    tokens = [token for token in dict.fromkeys(ids_of(batch.text.row(0))) if x_V[token] != 0]
    linear = model.head.linear
    weights_WY = linear.weight[:, tokens].T.double().cpu().numpy()
    return WordWeights(
        tuple(encoding.tokenizers["text"].pieces(tokens)),
        x_V[tokens].numpy(),
        tuple(encoding.labels.class_names(weights_WY.shape[1])),
        weights_WY,
        linear.bias.double().cpu().numpy(),
    )


class LabelAnswers(ExampleAnswers[LabelEncoding]):
    """The outputs of the head for each example; `predict` makes a prediction of those of one, which
    may first be changed for many at once by `finish`."""

    def __init__(
        self,
        encoding: LabelEncoding,
        inputs: LabelledInputs,
        predict: Callable[[Example, Scores], Prediction],
        finish: Callable[[Scores], Scores] | None = None,
    ) -> None:
        super().__init__(encoding)
        self.inputs = inputs
        self.predict = predict
        self.finish = finish

    def encoded_texts(self, given: Example) -> dict[str, str]:
        wrong = self.inputs.wrong_number(given)
        texts = given.texts
        problems = [wrong] if wrong else [problem_in_text(text, given.place) for text in texts]
        if any(problems):
            InputError.raise_if(problems)
        return {f"text {number}": text for number, text in enumerate(texts)}

    @torch.inference_mode()
    def results(self, model: Headed, examples: Dataset, progress: Done = ignore) -> list[Scores]:
        scores: dict[int, Scores] = {}
        for rows in fixed_batches(examples, read_tokens(model)):
            batch = self.encoding.collate(examples, rows, 0, 0).to(device_of(model))
            scores_XY = model(batch).float().cpu().numpy()
            scores |= dict(zip(rows.tolist(), scores_XY, strict=True))
            progress(len(rows))
        return [scores[row] for row in range(len(examples))]

    def finished(self, results: Iterable[Scores]) -> Iterable[Scores]:
        return results if self.finish is None else self.finish(np.stack([*results]))

    def prediction(self, given: Example, examples: Dataset, row: int, result: Scores) -> Prediction:
        return self.predict(given, result)

    def notes(
        self, encoded: EncodedInputs[EncodedExample], predictions: Sequence[Prediction]
    ) -> list[Note]:
        return unknown_texts(encoded, self.encoding.fields_of, self.encoding.framing)
