"""What all tasks share whose model is a base under a head (`HeadedTask`): sections of a recipe, the
model, what may be asked; and those with one answer for a text, or for a few together:
classification, regression, multiple choice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, product
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, Self, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field
from torch import Tensor

from regard.data.batches import LabelledBatch
from regard.data.config import Recipe
from regard.data.dataset import Columns, Dataset, Where
from regard.data.epochs import fixed_batches
from regard.data.example import Example
from regard.data.framing import Arrangement, Framed, Framing, Long, arranged, labelled_batch
from regard.data.labelled import LabelledInputs
from regard.data.prepare import Prepared
from regard.data.readers import Reader
from regard.data.store import Integers
from regard.errors import ConfigError, DataError, DecodeError, InputError, Problem, RegardError
from regard.models import MODELS, any_config, config_of
from regard.models.base import Contextual, HeadPooling, device_of, refused_pooling
from regard.models.headed import ApartHead, Head, HeadConfig, Headed, TextHead, build_base
from regard.models.ngrams import Compared, LinearModel, Loss, NgramModel, WordSeparators
from regard.tasks.raw import check_max_length, spelling_options
from regard.tasks.task import (
    Done,
    EncodedInputs,
    Note,
    Prediction,
    Task,
    by_length,
    ignore,
    is_foreign,
    nothing_known,
    problem_in_text,
    read_tokens,
)
from regard.text.tokenizers import Tokenizer, Tokenizers, train_tokenizers

FINE_TUNING: dict[str, Any] = {
    "optimizer": "adamw",
    "learning_rate": 5e-5,
    "betas": [0.9, 0.999],
    "weight_decay": 0.01,
    "schedule": "linear",
}
"""How a pre-trained Transformer is fine-tuned, where the recipe does not say (Devlin et al. 2019,
appendix A.3)."""
SHARES = [tenth / 10 for tenth in range(11)]
"""What the head's share of the output may be beside a linear model."""
FITTED_AT_ONCE = 16_384  # tokens whose n-grams are counted together


def as_texts(value: Any) -> Any:
    """Labels as they stand in a table, where YAML takes `0` for a number; each stands once."""
    if isinstance(value, list):
        twice = [name for name, count in Counter(map(str, value)).items() if count > 1]
        if twice:
            raise ValueError(f"the label {twice[0]!r} is listed twice")
        return [str(label) if isinstance(label, int) else label for label in value]
    if isinstance(value, dict):
        return {
            str(label) if isinstance(label, int) else label: weight
            for label, weight in value.items()
        }
    return value


def section(tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A section of a recipe's tree that is not validated yet; empty where it is none."""
    part = tree.get(name)
    return part if isinstance(part, dict) else {}


Labels = Annotated[list[str] | None, BeforeValidator(as_texts)]
"""A head's classes in their order; None where the training data tells them."""
Line = dict[str, Any]  # of the file of predictions


class EncodedExample(NamedTuple):
    """An input that was encoded as one row of a dataset."""

    examples: Dataset
    row: int


class ExampleTask(Task):
    """A task whose inputs are encoded as the examples of its data are, and answered one by one."""

    def encode_inputs(
        self, model: Any, inputs: Sequence[Example], prefixes: Sequence[str] | None = None
    ) -> EncodedInputs[EncodedExample]:
        """Inputs with the same columns are encoded in one dataset."""
        rows: dict[int, EncodedExample | RegardError] = {}
        alike: dict[tuple[str, ...], dict[int, Mapping[str, str]]] = defaultdict(dict)
        for number, given in enumerate(inputs):
            try:
                InputError.raise_if([given.fault])
                texts = self.encoded_texts(given)
                alike[tuple(texts)][number] = texts
            except DecodeError as error:
                rows[number] = error
        for names, by_number in alike.items():
            columns = {name: [texts[name] for texts in by_number.values()] for name in names}
            examples = Dataset.of(
                self, columns, [inputs[number].place for number in by_number].__getitem__
            )
            for row, number in enumerate(by_number):
                problems = self.encoded_problems(examples, row)
                rows[number] = (
                    InputError(problems=problems) if problems else EncodedExample(examples, row)
                )
        return EncodedInputs(inputs, [rows[number] for number in range(len(inputs))])

    def encoded_texts(self, given: Example) -> Mapping[str, str]:
        """The texts to encode of an input, by the columns of the dataset; or a DecodeError."""
        raise NotImplementedError

    def encoded_problems(self, examples: Dataset, row: int) -> Sequence[Problem]:
        """Why an input that was encoded cannot be read after all."""
        return ()

    def predict_encoded(
        self,
        model: Any,
        encoded: EncodedInputs[EncodedExample],
        *,
        record: bool = False,
        progress: Done = ignore,
    ) -> list[Prediction]:
        """Inputs that were encoded in one dataset are batched together."""
        rows, predictions = encoded.readable(), dict[int, Prediction]()
        groups = defaultdict[int, list[int]](list)
        for number, example in enumerate(rows):
            groups[id(example.examples)].append(number)
        for numbers in groups.values():
            examples, chosen = rows[numbers[0]].examples, [rows[number].row for number in numbers]
            if chosen != [*range(len(examples))]:
                examples = examples.select(np.array(chosen))
            results = self.results(model, examples, progress)
            for row, (number, result) in enumerate(zip(numbers, results, strict=True)):
                given = encoded.inputs[number]
                predictions[number] = self.prediction(given, examples, row, result)
        return [predictions[number] for number in range(len(rows))]

    def prediction(self, given: Example, examples: Dataset, row: int, result: Any) -> Prediction:
        """The answer to an input, which was encoded as this example, by what `results` has for
        it."""
        raise NotImplementedError


class HeadedRecipe(Recipe):
    head: Any


class HeadedTask(ExampleTask):
    """A task whose model is a base, pre-trained or fresh, under a head of its own.

    A subclass names `data` (with `max_length`, `stride`, perhaps `long`) and `head`, and says what
    head there is.
    """

    vocabularies = ("text",)
    models = any_config(lambda config: config.reads == "text")
    recipe: HeadedRecipe
    head: ClassVar[type[HeadConfig]] = HeadConfig  # the recipe's section `head`
    # whether the loss is over classes, which training.label_smoothing is for
    smooths: ClassVar[bool] = True
    scales: ClassVar[Sequence[float]] = (
        0.2,
        0.3,
        0.45,
        0.7,
        1.0,
        1.5,
        2.2,
    )  # of the output with a linear model
    # whether the head has an answer for each token, instead of one for the text
    by_token: ClassVar[bool] = False
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"training": {"label_smoothing": 0.0}}

    @classmethod
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """A recipe's tree with what suits its model, where it does not say."""
        data, model, head, training = (
            section(tree, name) for name in ("data", "model", "head", "training")
        )
        head = {**config_of(model.get("kind")).head_defaults, **head}
        positions, longest = model.get("max_positions"), cls.data.model_fields["max_length"].default
        if "data" in tree and isinstance(positions, int) and positions < longest:
            tree = tree | {"data": {"max_length": positions} | data}
        if (
            training.get("init")
            and model.get("kind") in ("gpt", "bert")
            and head.get("freeze") != "all"
        ):
            training = FINE_TUNING | training
        elif training.get("init"):
            training = {"learning_rate": 1e-3, "schedule": "linear"} | training
        return tree | {"head": head} | ({"training": training} if "training" in tree else {})

    def make_head(self, width: int) -> Head:
        """The head for vectors of this width, fresh."""
        raise NotImplementedError

    def scores(self, examples: Dataset, results: Sequence[Any]) -> dict[str, Any]:
        """The mean loss and all metrics."""
        raise NotImplementedError

    def line(self, examples: Dataset, row: int, result: Any) -> Line:
        """What the file of predictions says of an example besides its place."""
        raise NotImplementedError

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the head's classes, in their order."""
        return tuple(getattr(self.recipe.head, "labels", None) or ())

    def build(self) -> Headed:
        config, head, tokenizer = self.recipe.model, self.recipe.head, self.tokenizers["text"]
        options = {"keep_readout": head.auxiliary > 0, **spelling_options(config, tokenizer)}
        base = build_base(config, tokenizer.size, by_token=self.by_token, **options)
        return Headed(base, head, self.make_head, self.make_linear())

    @property
    def rounds(self) -> bool:
        """Of attention models; recurrent layers and the loss of a language model count the words."""
        head = self.recipe.head
        return bool(self.recipe.model.packs) and head.bilstm is None and not head.auxiliary

    @property
    def longest_row(self) -> int:
        return self.framing.longest

    def make_linear(self) -> LinearModel | None:
        """The linear model beside the head, not fitted yet; None if the recipe has none."""
        return None

    @cached_property
    def framing(self) -> Framing:
        """How texts become rows of tokens; a long text is read in windows unless the data says
        otherwise."""
        data, model = self.recipe.data, self.recipe.model
        long: Long = getattr(data, "long", "windows")
        return Framing(
            self.tokenizers["text"],
            model.kind == "bert",
            data.max_length,
            long,
            data.stride,
            model.letters,
        )

    @torch.inference_mode()
    def token_logits(self, model: Headed, rows: Sequence[Framed]) -> Iterator[tuple[int, Tensor]]:
        """The number of each row, and what the head gives for each of its tokens, [L, Y]."""
        for numbers in by_length([len(row.tokens) for row in rows], read_tokens(model)):
            examples = [[rows[number]] for number in numbers]
            batch = labelled_batch(examples, torch.zeros(len(numbers)), self.framing.tokenizer.pad)
            logits_BLY = model(batch.to(device_of(model))).float().cpu()
            for number, logits_LY in zip(numbers, logits_BLY, strict=True):
                yield number, logits_LY[: len(rows[number].tokens)]

    def validate(self, model: Headed, examples: Dataset) -> dict[str, Any]:
        if model.linear is not None:
            self.choose_share(model, examples)
        metrics = self.scores(examples, self.results(model, examples))
        return {
            name: metrics[name]
            for name in (*self.lower_is_better, *self.higher_is_better)
            if name in metrics
        }

    def choose_share(self, model: Headed, examples: Dataset) -> None:
        """Set the head's share of the output, of SHARES, and the scale, of `scales`, to those with
        the lowest loss."""
        outputs = []
        model.scale.fill_(1)
        for share in (0.0, 1.0):
            model.share.fill_(share)
            outputs.append(np.stack(self.results(model, examples)))
        losses = {}
        for share, scale in product(SHARES, self.scales):
            mixed = scale * ((1 - share) * outputs[0] + share * outputs[1])
            losses[share, scale] = self.scores(examples, [*mixed])["loss"]
        share, scale = min(losses, key=losses.__getitem__)
        model.share.fill_(share)
        model.scale.fill_(scale)

    def combine(self, examples: Dataset, parts: Sequence[Sequence[Any]]) -> dict[str, Any]:
        results = [*chain.from_iterable(parts)]
        lines = [
            {"where": examples.where(row), **self.line(examples, row, own)}
            for row, own in enumerate(results)
        ]
        return {
            self.data.UNIT: len(examples),
            **self.scores(examples, results),
            "predictions": lines,
        }

    def text_model(self, model: Headed) -> Contextual:
        return model.base

    def fields_of(self, examples: Dataset, row: int) -> list[tuple[str, list[int]]]:
        """The texts of an example, each with its tokens."""
        names = [name for name in examples.columns if self.tokenizer_of(name) is not None]
        return [(examples.texts[name][row], examples.columns[name][row].tolist()) for name in names]

    def notes(
        self, encoded: EncodedInputs[EncodedExample], predictions: Sequence[Prediction]
    ) -> list[Note]:
        """There is a prediction for every text; a note says in which of them every token is
        unknown."""
        tokenizer = self.framing.tokenizer
        return [
            Note("unknown", str(nothing_known(text, given.place)))
            for row, given in zip(encoded.readable(), encoded.inputs, strict=True)
            for text, ids in self.fields_of(*row)
            if tokenizer.all_unknown(ids)
            and is_foreign(tokenizer, self.framing.spelled(ids, [text], 0))
        ]

    def with_head(self, **values: Any) -> Self:
        head = self.recipe.head.model_copy(update=values)
        return type(self)(self.recipe.model_copy(update={"head": head}), self.tokenizers)

    def check(self, data: Prepared[Any]) -> None:
        check_max_length(self.recipe)
        head, model = self.recipe.head, self.recipe.model
        if self.recipe.training.label_smoothing and not self.smooths:
            what = f"the loss of {self.name} has no classes to smooth"
            raise ConfigError(what, where="training.label_smoothing", hint="leave it at 0")
        layers = model.layers
        if head.freeze != "all" and head.freeze > layers:
            raise ConfigError(
                f"the model has {layers} layers", where="head.freeze", hint=f"0 to {layers}, or all"
            )
        # the language model's loss is that of the states which the head reads
        if head.auxiliary > 0 and not model.causal:
            what = f"{model.kind} is no language model that reads from left to right"
            causal = [kind for kind, model in MODELS.items() if model.config.causal]
            raise ConfigError(
                what, where="head.auxiliary", hint=f"set it to 0, or take {' or '.join(causal)}"
            )
        if head.auxiliary > 0 and (
            head.freeze == "all" or head.features != "last" or head.bilstm is not None
        ):
            what = "the language model's loss needs a head right above a last layer that learns"
            raise ConfigError(
                what,
                where="head.auxiliary",
                hint="features: last, bilstm: null, and freeze below all",
            )


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


class TextLabelling(HeadedTask):
    """A task with one answer for each example. All columns of text share the tokenizer `text`."""

    unit = "examples"
    shares_examples = True
    outputs: ClassVar[int | None] = 1  # numbers that the head gives for a row; None: one a class

    @classmethod
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        tree = super().complete(tree)
        pooling = config_of(section(tree, "model").get("kind")).head_pooling
        pooling = "mean" if tree["head"].get("apart") else pooling
        return tree | {"head": {"pooling": pooling} | tree["head"]}

    def numbers(self, labels: Sequence[str], where: Where) -> Targets:
        """What each label stands for, or one DataError that names the labels that are not
        allowed."""
        raise NotImplementedError

    # Data

    @classmethod
    def learn_tokenizers(
        cls, recipe: Recipe, train: Mapping[str, Sequence[str]], base: Path
    ) -> Tokenizers:
        texts = {name: column for name, column in train.items() if name != "label"}
        learned = train_tokenizers(recipe.tokenizer.model_copy(update={"joint": True}), texts, base)
        return Tokenizers({"text": next(iter(learned.values()))})

    def encode(self, texts: Mapping[str, Sequence[str]], where: Where) -> Columns:
        if "label" in texts:
            self.numbers(texts["label"], where)
        return {
            name: self.tokenizers["text"].encode_batch(rows)
            for name, rows in texts.items()
            if name != "label"
        }

    def settings(self) -> list[Any]:
        return [list(self.labels)]

    def tokenizer_of(self, column: str) -> Tokenizer:
        return self.tokenizers["text"]

    def targets(self, examples: Dataset) -> Targets:
        return self.numbers(list(examples.texts["label"]), examples.where)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that are read, in their order."""
        texts: tuple[str, ...] = (
            self.recipe.data.train[0].texts if self.recipe.data.train else ("first", "second")
        )
        return texts

    @cached_property
    def arrangement(self) -> Arrangement | None:
        """What makes the rows of an example; None for an imported run, which reads one text or two
        as they come."""
        if self.recipe.data.train or self.recipe.head.both_orders:  # which needs two texts
            return self.arrange(len(self.text_columns))
        return None

    def arrange(self, texts: int) -> Arrangement:
        """What makes the rows of an example of one text or two, as the section `head` says."""
        both_orders, apart = self.recipe.head.both_orders, self.recipe.head.apart
        if both_orders and apart:
            what = "two texts that are read apart have no order"
            raise ConfigError(what, where="head.both_orders", hint="set it to false")
        if not (both_orders or apart):
            return "single" if texts == 1 else "pair"
        arrangement: Arrangement = "apart" if apart else "both_orders"
        if texts == 1:
            raise ConfigError(
                "there is only one text", where=f"head.{arrangement}", hint="set it to false"
            )
        if apart and self.recipe.data.long == "windows":
            what = "a text that is compared has one vector"
            raise ConfigError(what, where="data.long", hint="allowed: head, tail, head_tail")
        return arrangement

    def arrangement_of(self, examples: Dataset) -> Arrangement:
        return self.arrangement or self.arrange(len(examples.columns))

    def rows(self, examples: Dataset, row: int) -> list[Framed]:
        """What a model reads of an example."""
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
            targets = self.numbers(labels, lambda row: examples.where(int(rows[row])))
        numbers = tuple(rows.tolist())
        if self.arrangement_of(examples) in ("single", "pair"):
            columns = list(examples.columns.values())
            batch = self.framing.batch(columns, rows, torch.from_numpy(targets), numbers)
            if batch is not None:
                return batch
        read = [self.rows(examples, int(row)) for row in rows]
        return labelled_batch(read, torch.from_numpy(targets), self.tokenizers["text"].pad, numbers)

    def label_counts(self, examples: Dataset) -> dict[str, int]:
        if not self.labels:
            return {}
        counts = np.bincount(
            cast("NDArray[np.int64]", self.targets(examples)), minlength=len(self.labels)
        )
        return dict(zip(self.labels, counts.tolist(), strict=True))

    def pieces(self, examples: Dataset, row: int) -> dict[str, list[str]]:
        rows = self.rows(examples, row)
        named = {
            "text" if len(rows) == 1 else f"row {number}": row.ids
            for number, row in enumerate(rows, 1)
        }
        pieces = {name: self.tokenizers["text"].pieces(ids) for name, ids in named.items()}
        return {**pieces, "label": [examples.texts["label"][row]]}

    # Training

    def check(self, data: Prepared[Dataset]) -> None:
        self.arrangement_of(data.train)  # refuses what `head` cannot do with the texts
        head, model = self.recipe.head, self.recipe.model
        if head.bilstm is None and (what := refused_pooling(model, head.pooling)):
            allowed = [name for name in get_args(HeadPooling) if not refused_pooling(model, name)]
            raise ConfigError(what, where="head.pooling", hint=f"allowed: {', '.join(allowed)}")
        if head.linear and self.arrangement not in ("single", "apart"):
            what = "the linear model reads one text, or two of them apart"
            raise ConfigError(
                what, where="head.linear", hint="set it to 0, or of two texts head.apart to true"
            )
        super().check(data)

    def make_linear(self) -> NgramModel | None:
        head, tokenizer = self.recipe.head, self.tokenizers["text"]
        if not head.linear:
            return None
        space = tokenizer.encode("a a")[1:-1] if self.recipe.tokenizer.kind == "character" else []
        words = (
            WordSeparators(space[0], tokenizer.special - {tokenizer.unk})
            if len(space) == 1
            else None
        )
        compared: Compared | None = None
        if getattr(head, "apart", False):
            compared = "classes" if self.outputs is None else "similarity"
        return NgramModel(head.linear, self.outputs or len(self.labels), words, compared)

    def set_first_weights(self, model: Headed, train: Dataset) -> None:
        """Fit the linear model, if the recipe has one."""
        if model.linear is not None:
            batches = [
                self.collate(train, rows, 0, 0) for rows in fixed_batches(train, FITTED_AT_ONCE)
            ]
            targets_B = torch.cat(
                [batch.labels.repeat_interleave(batch.owners_B.bincount()) for batch in batches]
            )
            if model.linear.compared is not None:
                targets_B = torch.cat([batch.labels for batch in batches])
            model.linear.fit(batches, targets_B, *self.linear_loss)

    @property
    def linear_loss(self) -> tuple[Loss, float]:
        """The loss of the linear model's outputs, summed, and the strength of its
        regularisation."""
        raise NotImplementedError

    def make_head(self, width: int) -> TextHead | ApartHead:
        head, kind = self.recipe.head, self.recipe.model.kind
        pooler, outputs = (
            kind == "bert" and head.pooling == "first",
            self.outputs or len(self.labels),
        )
        if getattr(head, "apart", False):
            number = self.outputs is not None
            return ApartHead(
                width, outputs, pooling=head.pooling, dropout=head.dropout, number=number
            )
        choices = self.arrangement == "choices"
        return TextHead(
            width,
            outputs,
            pooling=head.pooling,
            pooler=pooler,
            dropout=head.dropout,
            choices=choices,
        )

    @torch.inference_mode()
    def results(self, model: Headed, examples: Dataset, progress: Done = ignore) -> list[Scores]:
        scores: dict[int, Scores] = {}
        for rows in fixed_batches(examples, read_tokens(model)):
            batch = self.collate(examples, rows, 0, 0).to(device_of(model))
            scores_XY = model(batch).float().cpu().numpy()
            scores |= dict(zip(rows.tolist(), scores_XY, strict=True))
            progress(len(rows))
        return [scores[row] for row in range(len(examples))]

    # Verbs

    def input_of(self, examples: Dataset, row: int) -> str:
        """The texts of an example as they may be typed."""
        return "\t".join(examples.texts[name][row] for name in examples.columns)

    @cached_property
    def inputs(self) -> LabelledInputs:
        """Of an imported run the second text may be missing."""
        names = ("text",) if self.arrangement == "single" else ("first", "second")
        return LabelledInputs(
            self.name,
            self.corpora,
            self.recipe.data.encoding,
            names,
            arrangement=self.arrangement,
            imported=not self.recipe.data.train,
        )

    def typed(self, row: Mapping[str, str], reader: Reader) -> str:
        return "\t".join(row[name] for name in self.text_columns)

    def encoded_texts(self, given: Example) -> dict[str, str]:
        wrong = self.inputs.wrong_number(given)
        problems = [problem_in_text(text, given.place) for text in given.texts]
        InputError.raise_if([wrong] if wrong else problems)
        return {f"text {number}": text for number, text in enumerate(given.texts)}


def refuse_labels(
    labels: Sequence[str], bad: Callable[[str], str], where: Where, hint: str = ""
) -> None:
    """One DataError with all labels of which `bad` says what is wrong, if there are any: each where
    it first stands."""
    DataError.raise_if(
        Problem(where(labels.index(label)), f"the label {label!r} {what}", hint)
        for label in dict.fromkeys(labels)
        if (what := bad(label))
    )
