"""Tasks that put a head on a text model: what their recipes say, the model, and its metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import BeforeValidator
from torch import Tensor

from regard.config import Config
from regard.data.config import Recipe
from regard.data.dataset import Dataset
from regard.data.example import Example
from regard.data.framing import Framed, Framing, Long, labelled_batch
from regard.data.prepare import Prepared
from regard.errors import ConfigError
from regard.models import MODELS, any_config, config_of
from regard.models.base import Contextual, device_of
from regard.models.headed import Head, Headed, build_base
from regard.models.ngrams import LinearModel
from regard.tasks.answers import Done, EncodedInputs, Note, ignore
from regard.tasks.examples import EncodedExample, ExampleAnswers
from regard.tasks.raw import check_max_length, spelling_options
from regard.tasks.reading import (
    by_length,
    is_foreign,
    nothing_known,
    read_tokens,
    unknown_notes,
)
from regard.tasks.task import Metrics, Network, training_texts
from regard.tasks.views import TextVectors
from regard.text.tokenizers import Tokenizers

TOKEN_MODELS = any_config(
    lambda config: (config.reads == "text" or config.reads_texts) and config.represents == "tokens"
)
"""Models with a vector for each token."""
TEXT_MODELS = any_config(
    lambda config: (config.reads == "text" or config.reads_texts) and config.represents is not None
)
"""Models with a vector for a text."""
FINE_TUNING: dict[str, Any] = {
    "optimizer": "adamw",
    "learning_rate": 5e-5,
    "betas": [0.9, 0.999],
    "weight_decay": 0.01,
    "schedule": "linear",
}
"""How a pre-trained Transformer is fine-tuned, if the recipe does not say (Devlin et al. 2019,
appendix A.3)."""
SHARES = [tenth / 10 for tenth in range(11)]
"""The shares of the output that a head beside a linear model may have."""
SCALES = (0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.2)
"""The scales of an output with a linear model."""
FITTING_TOKENS = 16_384
"""Tokens whose n-grams are counted together."""
Line = dict[str, Any]
"""A line of the file of predictions."""
Fields = Callable[[Dataset, int], Sequence[tuple[str, list[int]]]]
"""The texts of an example, each with its tokens."""


# Recipes


def as_texts(value: Any) -> Any:
    """Labels as they stand in a table, where YAML takes `0` for a number; each only once."""
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
    """A section of a recipe's tree that is not validated yet; empty if it is not a section."""
    part = tree.get(name)
    return part if isinstance(part, dict) else {}


LabelNames = Annotated[list[str] | None, BeforeValidator(as_texts)]
"""A head's classes in their order; None: as the training data has them."""


def complete_headed(tree: dict[str, Any], data_config: type[Config]) -> dict[str, Any]:
    """A recipe's tree with what suits its model, for settings that it leaves out."""
    data = section(tree, "data")
    model = section(tree, "model")
    training = section(tree, "training")
    kind = model.get("kind")
    head = {**config_of(kind).head_defaults, **section(tree, "head")}
    positions = model.get("max_positions")
    longest = data_config.model_fields["max_length"].default
    if "data" in tree and isinstance(positions, int) and positions < longest:
        tree = tree | {"data": {"max_length": positions} | data}
    if training.get("init"):
        learns = config_of(kind).attends and head.get("freeze") != "all"
        defaults = FINE_TUNING if learns else {"learning_rate": 1e-3, "schedule": "linear"}
        training = defaults | training
    return tree | {"head": head} | ({"training": training} if "training" in tree else {})


def with_head(recipe: HeadedRecipe, **values: Any) -> Any:
    """A recipe with other values in its section `head`."""
    return recipe.model_copy(update={"head": recipe.head.model_copy(update=values)})


class HeadedRecipe(Recipe):
    """A recipe with the section `head`."""

    head: Any


def loss_options(recipe: HeadedRecipe) -> dict[str, float]:
    """The settings of a loss over classes."""
    return {"auxiliary": recipe.head.auxiliary, "consistency": recipe.head.consistency}


# Rows of tokens


def framing_of(recipe: HeadedRecipe, tokenizers: Tokenizers) -> Framing:
    """How texts become rows of tokens; a long text is read in windows unless the data says
    otherwise."""
    data = recipe.data
    model = recipe.model
    long: Long = getattr(data, "long", "windows")
    return Framing(
        tokenizers["text"],
        model.segments,
        data.max_length,
        long,
        data.stride,
        model.letters,
    )


@torch.inference_mode()
def token_logits(model: Headed, rows: Sequence[Framed], pad: int) -> Iterator[tuple[int, Tensor]]:
    """The number of each row, and what the head gives for each of its tokens, [L, Y]."""
    for numbers in by_length([len(row.tokens) for row in rows], read_tokens(model)):
        examples = [[rows[number]] for number in numbers]
        batch = labelled_batch(examples, torch.zeros(len(numbers)), pad)
        logits_BLY = model(batch.to(device_of(model))).float().cpu()
        for number, logits_LY in zip(numbers, logits_BLY, strict=True):
            yield number, logits_LY[: len(rows[number].tokens)]


def unknown_texts(
    encoded: EncodedInputs[EncodedExample], fields_of: Fields, framing: Framing
) -> list[Note]:
    """There is a prediction for every input; a note says which words of it are unknown, or that a
    whole text of it is. A model that reads letters knows every word."""
    tokenizer = framing.tokenizer
    notes = list[Note]()
    unknown: dict[int, frozenset[int]] = {}
    for row, given in zip(encoded.readable(), encoded.inputs, strict=True):
        if id(row.examples) not in unknown:
            unknown[id(row.examples)] = row.examples.rows_with(tokenizer.unk)
        if row.row in unknown[id(row.examples)]:
            notes += _unknown_in(fields_of(*row), given.place, framing)
    return notes


def _unknown_in(
    fields: Sequence[tuple[str, list[int]]], place: str, framing: Framing
) -> list[Note]:
    """A note on the unknown words of an input's texts, if there are any."""
    tokenizer = framing.tokenizer
    texts = [(text, ids) for text, ids in fields if tokenizer.unk in ids]
    foreign = [
        text
        for text, ids in texts
        if tokenizer.all_unknown(ids) and is_foreign(tokenizer, framing.spelled(ids, [text], 0))
    ]
    read = [(text, ids) for text, ids in texts if framing.letters is None or text in foreign]
    whole = Example.of_text(" ".join(text for text, _ in read), place)
    notes = unknown_notes(tokenizer, [whole], [list(chain(*(ids for _, ids in read)))])
    if foreign:
        what = str(nothing_known(foreign[0], place))
        notes = [replace(note, text=what) for note in notes]
    return notes


def head_vectors(recipe: HeadedRecipe, tokenizers: Tokenizers) -> TextVectors | None:
    """The vectors of the model under a head, which has read texts of `data.max_length`."""
    if recipe.model.represents != "tokens":
        return None
    return TextVectors(tokenizers["text"], base_of, longest=recipe.data.max_length)


def base_of(model: Headed) -> Contextual:
    return model.base


# The model


class Heads(ABC):
    """The head of a task, and what it asks of the rest of the recipe."""

    by_token: ClassVar[bool] = False
    """Whether it has an answer for each token, instead of one for the text."""
    smooths: bool = True
    """Whether the loss is over classes, which training.label_smoothing is for."""

    @abstractmethod
    def make(self, width: int) -> Head:
        """The head for vectors of this width, fresh."""

    def make_linear(self) -> LinearModel | None:
        """The linear model beside the head, not fitted yet; None if the recipe has none."""
        return None

    @abstractmethod
    def set_first_weights(self, model: Headed, train: Dataset) -> None:
        """Set weights that depend on the training data: fit the linear model, if there is one."""

    @abstractmethod
    def check(self, data: Prepared[Dataset]) -> None:
        """Refuse a section `head` that does not suit the model or the data."""


class HeadedNetwork(Network):
    """A base, pre-trained or fresh, under a head of its own."""

    has_head = True
    recipe: HeadedRecipe

    def __init__(self, recipe: HeadedRecipe, tokenizers: Tokenizers, heads: Heads) -> None:
        self.recipe = recipe
        self.tokenizers = tokenizers
        self.heads = heads

    @property
    def rounds(self) -> bool:
        """Attention models round; recurrent layers, CRFs and the loss of a language model count the
        words."""
        head = self.recipe.head
        counts_words = head.bilstm is not None or head.auxiliary or getattr(head, "crf", False)
        return bool(self.recipe.model.packs) and not counts_words

    @property
    def longest_row(self) -> int:
        longest: int = self.recipe.data.max_length
        return min(longest, getattr(self.recipe.model, "max_positions", longest))

    def build(self) -> Headed:
        config = self.recipe.model
        head = self.recipe.head
        tokenizer = self.tokenizers["text"]
        options = {"keep_readout": head.auxiliary > 0, **spelling_options(config, tokenizer)}
        base = build_base(config, tokenizer.size, by_token=self.heads.by_token, **options)
        return Headed(base, head, self.heads.make, self.heads.make_linear())

    def set_first_weights(self, model: Headed, train: Dataset) -> None:
        model.base.count(training_texts(train))
        self.heads.set_first_weights(model, train)

    def check(self, data: Prepared[Dataset]) -> None:
        self.heads.check(data)
        check_max_length(self.recipe)
        recipe = self.recipe
        if recipe.training.label_smoothing and not self.heads.smooths:
            what = f"the loss of {recipe.task} has no classes to smooth"
            raise ConfigError(what, where="training.label_smoothing", hint="leave it at 0")
        layers = recipe.model.layers
        if recipe.head.freeze != "all" and recipe.head.freeze > layers:
            what = f"the model has {layers} layers"
            raise ConfigError(what, where="head.freeze", hint=f"0 to {layers}, or all")
        if recipe.head.auxiliary > 0:
            self.check_auxiliary()
        if recipe.head.consistency > 0:
            self.check_consistency()

    def check_auxiliary(self) -> None:
        """The language model's loss is that of the states which the head reads."""
        head = self.recipe.head
        model = self.recipe.model
        if not model.causal:
            what = f"{model.kind} is no language model that reads from left to right"
            causal = [kind for kind, other in MODELS.items() if other.config.causal]
            hint = f"set it to 0, or take {' or '.join(causal)}"
            raise ConfigError(what, where="head.auxiliary", hint=hint)
        if head.freeze == "all" or head.features != "last" or head.bilstm is not None:
            what = "the language model's loss needs a head right above a last layer that learns"
            hint = "features: last, bilstm: null, and freeze below all"
            raise ConfigError(what, where="head.auxiliary", hint=hint)

    def check_consistency(self) -> None:
        """R-Drop compares the probabilities of classes."""
        task = self.recipe.task
        what = None
        if not self.heads.smooths:
            what = f"the loss of {task} has no classes whose probabilities could be compared"
        elif getattr(self.recipe.head, "crf", False):
            what = "a CRF has no probabilities for single tags that could be compared"
        if what is not None:
            raise ConfigError(what, where="head.consistency", hint="leave it at 0")


# Its metrics


class Measure(ABC):
    """The answers of a head for some examples -> numbers."""

    @abstractmethod
    def scores(self, examples: Dataset, results: Sequence[Any]) -> dict[str, Any]:
        """The mean loss and all metrics."""

    @abstractmethod
    def line(self, examples: Dataset, row: int, result: Any) -> Line:
        """The line of the file of predictions for an example, without its place."""

    def summary(self, lines: list[Line]) -> dict[str, Any]:
        """Further metrics from all lines together."""
        return {}

    def baselines(self, train: Dataset, examples: Dataset) -> Iterator[tuple[str, Any]]:
        """Linear models of scikit-learn that learn from `train`: the name of each, and its results
        for the examples."""
        return iter(())


class HeadedMetrics(Metrics):
    """The metrics of a `Measure`, for the answers of a head."""

    shares_examples = True

    def __init__(
        self,
        recipe: HeadedRecipe,
        answers: ExampleAnswers[Any],
        measure: Measure,
        names: Sequence[str],
        scales: Sequence[float] | None = None,
    ) -> None:
        """`names` are the metrics of a validation; `scales` those of the output, among which the
        first validation of a linear model chooses; None: it chooses nothing."""
        self.recipe = recipe
        self.answers = answers
        self.measure = measure
        self.names = names
        self.scales = scales

    def validate(self, model: Headed, examples: Dataset) -> dict[str, Any]:
        if model.linear is not None and self.scales is not None:
            self.choose_share(model, examples, self.scales)
        metrics = self.scores(examples, self.results(model, examples))
        return {name: metrics[name] for name in self.names if name in metrics}

    def choose_share(self, model: Headed, examples: Dataset, scales: Sequence[float]) -> None:
        """Set the head's share of the output, and the scale, to those with the lowest loss."""
        outputs = []
        model.scale.fill_(1)
        for share in (0.0, 1.0):
            model.share.fill_(share)
            outputs.append(np.stack(self.results(model, examples)))
        losses = {}
        for share, scale in product(SHARES, scales):
            mixed = scale * ((1 - share) * outputs[0] + share * outputs[1])
            losses[share, scale] = self.scores(examples, [*mixed])["loss"]
        share, scale = min(losses, key=losses.__getitem__)
        model.share.fill_(share)
        model.scale.fill_(scale)

    def results(self, model: Headed, examples: Dataset, progress: Done = ignore) -> list[Any]:
        return [*self.answers.results(model, examples, progress)]

    def scores(self, examples: Dataset, results: Sequence[Any]) -> dict[str, Any]:
        return self.measure.scores(examples, results)

    def combine(self, examples: Dataset, parts: Sequence[Sequence[Any]]) -> dict[str, Any]:
        results = [*chain.from_iterable(parts)]
        lines = [
            {"where": examples.where(row), **self.measure.line(examples, row, own)}
            for row, own in enumerate(results)
        ]
        return {
            self.recipe.data.UNIT: len(examples),
            **self.scores(examples, results),
            "predictions": lines,
            **self.measure.summary(lines),
        }

    def baselines(self, train: Dataset, examples: Dataset) -> Iterator[tuple[str, Any]]:
        return self.measure.baselines(train, examples)
