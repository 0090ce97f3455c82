"""Tasks: everything that differs between runs besides the model, composed of parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from regard.config import Config
from regard.data.batches import Padded
from regard.data.config import Recipe
from regard.data.corpora import Part
from regard.data.dataset import Encoding, Where
from regard.data.epochs import Examples, fixed_batches
from regard.data.example import Example
from regard.data.inputs import Inputs
from regard.data.prepare import Prepared, Progress, prepare, read_corpora
from regard.data.readers import Reader
from regard.errors import ConfigError, DecodeError, did_you_mean
from regard.tasks.answers import Answers, Done, Prediction, ignore
from regard.tasks.views import Views
from regard.text.tokenizers import Tokenizers, train_tokenizers

COUNTED_TOKENS = 16_384
"""Tokens of the training texts that are counted together."""


class NoSettings(Config):
    """The metrics of the task have no settings."""


@dataclass(frozen=True)
class Start:
    """What a recipe takes from the run that `training.init` names."""

    completes_model: bool = False
    """Whether that run has what the recipe's section `model` leaves out; else only a recipe without
    that section takes the run's."""
    continues: bool = False
    """Whether the training continues that of the run, with its sizes and its tokenizer."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the model that differ from those of the run."""


class Network(ABC):
    """The model of a task."""

    has_head: ClassVar[bool] = False
    """Whether the model answers by a head of its own, instead of by its vocabulary."""
    recipe: Recipe

    @property
    def rounds(self) -> bool:
        """Whether its model computes padding like words, so that the kernels of a step depend on
        the shapes of a batch alone."""
        return bool(self.recipe.model.loops)

    @property
    def longest_row(self) -> int | None:
        """The most positions that its model reads at once; None if there is no limit."""
        return None

    @abstractmethod
    def build(self) -> Any:
        """The model that the recipe describes, with fresh weights from torch's generator."""

    @abstractmethod
    def set_first_weights(self, model: Any, train: Any) -> None:
        """Set weights that depend on the training data, before the first step."""

    @abstractmethod
    def check(self, data: Prepared[Any]) -> None:
        """Refuse a recipe whose model cannot be trained on the data."""


def set_first_bias(model: Any, encoding: Encoding, train: Any) -> None:
    """Start the bias of a model's readout from how often each token is a target."""
    if getattr(model, "output", None) is not None:
        model.output.initialise_bias(torch.from_numpy(encoding.frequencies(train)))


def training_texts(train: Any) -> Iterator[Padded]:
    """The texts of all training examples, many at a time."""
    for rows in fixed_batches(train, COUNTED_TOKENS):
        yield train.batch(rows).text


class Metrics(ABC):
    """Predictions and references -> numbers."""

    @property
    def shares_examples(self) -> bool:
        """Whether several processes may each compute `results` for some of the examples."""
        return False

    @abstractmethod
    def validate(self, model: Any, examples: Any) -> dict[str, Any]:
        """Metrics on validation examples, `loss` among them, and a few `samples`; the model is in
        eval mode."""

    def evaluate(self, model: Any, examples: Any, progress: Done) -> dict[str, Any]:
        """All metrics on some examples."""
        return self.combine(examples, [self.results(model, examples, progress)])

    def results(self, model: Any, examples: Any, progress: Done = ignore) -> Any:
        """What the model answers for some examples, as values that a process can send to another."""
        raise NotImplementedError

    def combine(self, examples: Any, parts: Sequence[Any]) -> dict[str, Any]:
        """All metrics on some examples, from their `results`, part by part."""
        raise NotImplementedError

    def by_unit(self, model: Any, examples: Any, progress: Done) -> list[dict[str, Any]] | None:
        """How well each document or example is predicted, for `compare`; None if that cannot be
        said."""
        return self.evaluate(model, examples, progress).get("predictions")

    def baselines(self, train: Any, examples: Any) -> Iterator[tuple[str, Any]]:
        """Linear models of scikit-learn that learn from `train`: the name of each, and its
        `results` for the examples. Nothing if there is no such model for the task."""
        return iter(())

    def scores(self, examples: Any, results: Any) -> dict[str, Any]:
        """The metrics that `baselines` are compared by."""
        raise NotImplementedError


class Task(ABC):
    """What a run is for.

    `task = TASKS[recipe.task](recipe, tokenizers)` is made once. The class attributes are the facts
    that are known before there is a recipe; the constructor of a task names its parts.
    """

    # Facts

    name: ClassVar[str]
    data: ClassVar[type[Any]]
    """The recipe's section `data`."""
    head: ClassVar[type[Config] | None] = None
    """The recipe's section `head`; None if the model has no head."""
    evaluation: ClassVar[type[Config]] = NoSettings
    """The recipe's section `evaluation`."""
    models: ClassVar[Any]
    """The configs of the models that it trains: a union told apart by `kind`."""
    vocabularies: ClassVar[tuple[str, ...]]
    """The names of its tokenizers."""
    lower_is_better: ClassVar[tuple[str, ...]] = ("loss",)
    """Metrics of a validation, like `higher_is_better`."""
    higher_is_better: ClassVar[tuple[str, ...]] = ()
    unit: ClassVar[str] = "tokens"
    """What the loss is a mean over; `tokens` in the training log counts them."""
    writes: ClassVar[Literal["targets", "continuations"] | None] = None
    """What a search writes: a target for each source, compared with references by all metrics but
    `loss` and `perplexity`; or the continuation of a text. None: there is no search."""
    has_flat_batches: ClassVar[bool] = False
    """Whether a batch is only texts, token by token, so that padding can be left out of it."""
    start: ClassVar[Start] = Start()
    """How a training begins with the weights of another run."""
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values of a recipe's sections that suit the task better than the sections' own defaults."""

    # Parts

    inputs: Inputs
    """What a user gives -> examples."""
    encoding: Encoding
    """Examples -> numbers -> batches."""
    network: Network
    """The model."""
    answers: Answers
    """Inputs -> predictions."""
    metrics: Metrics
    """Predictions and references -> numbers."""
    views: Views
    """What may be asked about a prediction."""

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers) -> None:
        self.recipe = recipe
        self.tokenizers = tokenizers

    @abstractmethod
    def objective(self, model: Any) -> nn.Module:
        """The model under its loss: batch -> [2], the loss to minimise and the loss to report, both
        summed.

        If a state is carried from batch to batch: batch and state -> ([2], state).
        """

    # Recipe

    @classmethod
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """A recipe's tree with defaults that depend on other values in it; called before the recipe
        is validated."""
        return tree

    @classmethod
    def check_recipe(cls, recipe: Recipe) -> None:
        """Refuse settings of training and evaluation that the task does not have, before the data
        is read."""
        metrics = (*cls.lower_is_better, *cls.higher_is_better)
        best = recipe.training.best
        if best not in metrics:
            raise ConfigError(
                f"unknown metric {best!r}", where="training.best", hint=did_you_mean(best, metrics)
            )
        if cls.writes == "targets":
            _check_decoding(recipe, cls.higher_is_better)
        elif recipe.training.teacher_forcing < 1:
            what = f"a model for {recipe.task} never reads its own words"
            raise ConfigError(what, where="training.teacher_forcing", hint="leave it at 1")

    @classmethod
    def packs(cls, recipe: Recipe) -> bool:
        """Whether batches can be packed into rows of one size (`engine/shapes.py`)."""
        return bool(
            cls.has_flat_batches and recipe.model.packs and recipe.training.teacher_forcing == 1
        )

    @classmethod
    def check_search_options(cls, options: Mapping[str, object]) -> None:
        """Refuse options of a search, those that are not None, if there is no search."""
        for option, value in options.items():
            if value is not None and cls.writes is None:
                what = f"{cls.name} does not decode, so {option} has no effect"
                raise DecodeError(what, where=option, hint="leave it out")

    # Data: what the pipeline asks before there is a task (`Preparation` in data/dataset.py)

    @classmethod
    def learn_tokenizers(
        cls, recipe: Recipe, train: Mapping[str, Sequence[str]], base: Path
    ) -> Tokenizers:
        """The tokenizers, trained on the training texts or read from files."""
        texts = {name: train[name] for name in cls.vocabularies}
        return train_tokenizers(recipe.tokenizer, texts, base)

    @classmethod
    def settle(cls, recipe: Recipe, train: Mapping[str, Sequence[str]], where: Where) -> Recipe:
        """The recipe with what only the training data can tell, such as the labels."""
        return recipe

    @classmethod
    @abstractmethod
    def make_encoding(cls, recipe: Recipe, tokenizers: Tokenizers) -> Encoding:
        """The encoding of a task with this recipe."""

    @classmethod
    def prepare(
        cls,
        recipe: Recipe,
        base: Path,
        tokenizers: Tokenizers | None = None,
        progress: Progress | None = None,
    ) -> Prepared[Any]:
        """The examples of every split (data/prepare.py)."""
        return prepare(cls, recipe, base, tokenizers, progress)

    def read(self, corpora: Sequence[Any], part: Part, base: Path) -> Examples:
        """Corpora as they are, to measure a run on."""
        return read_corpora(self.encoding, self.recipe, corpora, part, base)

    def check(self, data: Prepared[Any]) -> None:
        """Refuse a recipe that cannot be trained or validated on the data."""
        self.network.check(data)
        self.answers.check(data.validation)

    def data_warnings(self, data: Prepared[Any]) -> Iterator[str]:
        """What looks wrong about the training data."""
        return iter(())

    # Inputs

    @property
    def corpora(self) -> list[Any]:
        """The recipe's corpora; for an imported run, one with the task's columns and nothing in
        them."""
        data = self.recipe.data
        return data.corpora or [data.corpus_class().model_construct()]

    def input_line(self, row: Mapping[str, str], reader: Reader) -> str:
        """A row of the data as an input that a user could type: its texts with tabs between
        them."""
        return "\t".join(row[name] for name in self.inputs.names)

    def predict(
        self,
        model: Any,
        inputs: Sequence[Example],
        *,
        record: bool = False,
        progress: Done = ignore,
    ) -> Sequence[Prediction]:
        """A prediction for each input; one error names all that cannot be read."""
        encoded = self.answers.encode_inputs(model, inputs)
        return self.answers.predict_encoded(model, encoded, record=record, progress=progress)


def _check_decoding(recipe: Recipe, higher_is_better: Sequence[str]) -> None:
    """Refuse to choose checkpoints by the quality of texts that are never decoded."""
    best = recipe.training.best
    if recipe.training.decode == 0 and best in higher_is_better:
        raise ConfigError(
            f"{best} needs decoded examples", where="training.decode", hint="set it above 0"
        )
