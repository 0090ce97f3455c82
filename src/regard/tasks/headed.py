"""What all tasks share whose model is a base under a head: sections of a recipe, the model, what may be asked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from pydantic import BeforeValidator
from torch import Tensor, nn

from regard.data.config import Recipe
from regard.data.dataset import Dataset
from regard.data.framing import Framed, Framing, Long, labelled_batch
from regard.data.prepare import Prepared
from regard.errors import ConfigError, DecodeError, InputError, Problem
from regard.models import MODELS, any_config, config_of
from regard.models.base import Contextual, device_of
from regard.models.headed import HeadConfig, Headed, build_base
from regard.tasks.raw import check_max_length, spelling_options
from regard.tasks.task import (
    EncodedInputs,
    Note,
    Prediction,
    Task,
    Unreadable,
    by_length,
    is_foreign,
    nothing_known,
    read_tokens,
)
from regard.text.files import FileInput

FINE_TUNING: dict[str, Any] = {
    "optimizer": "adamw", "learning_rate": 5e-5, "betas": [0.9, 0.999], "weight_decay": 0.01,
}  # fmt: skip
"""How a pre-trained Transformer is fine-tuned, where the recipe does not say (Devlin et al. 2019, appendix A.3)."""
TRANSFORMERS = ("gpt", "bert")


def as_texts(value: Any) -> Any:
    """Labels as they stand in a table, where YAML takes `0` for a number; each stands once."""
    if isinstance(value, list):
        twice = [name for name, count in Counter(map(str, value)).items() if count > 1]
        if twice:
            raise ValueError(f"the label {twice[0]!r} is listed twice")
        return [str(label) if isinstance(label, int) else label for label in value]
    if isinstance(value, dict):
        return {str(label) if isinstance(label, int) else label: weight for label, weight in value.items()}
    return value


def section(tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A section of a recipe's tree that is not validated yet; empty where it is none."""
    part = tree.get(name)
    return part if isinstance(part, dict) else {}


Labels = Annotated[list[str] | None, BeforeValidator(as_texts)]
"""A head's classes in their order; None where the training data tells them."""


class Example(NamedTuple):
    """An input that was encoded as one row of a dataset."""

    examples: Dataset
    row: int


class ExampleTask(Task):
    """A task whose inputs are encoded as the examples of its data are."""

    def encode_inputs(
        self, model: Any, inputs: Sequence[FileInput], prefixes: Sequence[str] | None = None
    ) -> EncodedInputs[Example]:
        """Inputs with the same columns are encoded in one dataset."""
        rows: dict[int, Example | Unreadable] = {}
        alike: dict[tuple[str, ...], dict[int, Mapping[str, str]]] = defaultdict(dict)
        for number, (text, place, fault) in enumerate(inputs):
            try:
                if fault is not None:
                    raise InputError(problems=[fault])
                texts = self.input_columns(text, place)
                alike[tuple(texts)][number] = texts
            except DecodeError as error:
                rows[number] = Unreadable(error.problems)
        for names, by_number in alike.items():
            columns = {name: [texts[name] for texts in by_number.values()] for name in names}
            examples = Dataset.of(self, columns, [inputs[number].place for number in by_number].__getitem__)
            for row, number in enumerate(by_number):
                problems = self.encoded_problems(examples, row)
                rows[number] = Unreadable(tuple(problems)) if problems else Example(examples, row)
        return EncodedInputs(inputs, [rows[number] for number in range(len(inputs))])

    def input_columns(self, text: str, place: str) -> Mapping[str, str]:
        """An input as the texts of an example, by column; or a DecodeError."""
        raise NotImplementedError

    def encoded_problems(self, examples: Dataset, row: int) -> Sequence[Problem]:
        """Why an input that was encoded cannot be read after all."""
        return ()


def by_dataset(rows: Sequence[Example]) -> Iterator[tuple[list[int], Dataset]]:
    """The numbers of the inputs that were encoded in one dataset, and their examples."""
    groups = defaultdict[int, list[int]](list)
    for number, example in enumerate(rows):
        groups[id(example.examples)].append(number)
    for numbers in groups.values():
        examples, chosen = rows[numbers[0]].examples, [rows[number].row for number in numbers]
        yield numbers, examples if chosen == [*range(len(examples))] else examples.select(np.array(chosen))


class HeadedRecipe(Recipe):
    """A recipe with the section `head`."""

    head: Any


class HeadedTask(ExampleTask):
    """A task whose model is a base, pre-trained or fresh, under a head of its own.

    A subclass names `data` (with `max_length`, `stride`, perhaps `long`) and `head`, and says what head there is.
    """

    columns = ("text",)
    models = any_config(lambda config: config.reads == "text")
    recipe: HeadedRecipe
    head: ClassVar[type[HeadConfig]] = HeadConfig
    """The recipe's section `head`."""
    by_token: ClassVar[bool] = False
    """Whether the head has an answer for each token, instead of one for the text."""
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"training": {"label_smoothing": 0.0}}

    @classmethod
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """A recipe's tree with what suits its model, where it does not say."""
        data, model, head, training = (section(tree, name) for name in ("data", "model", "head", "training"))
        head = {**config_of(model.get("kind")).head_defaults, **head}
        positions, longest = model.get("max_positions"), cls.data.model_fields["max_length"].default
        if "data" in tree and isinstance(positions, int) and positions < longest:
            tree = tree | {"data": {"max_length": positions} | data}
        if training.get("init") and model.get("kind") in TRANSFORMERS and head.get("freeze") != "all":
            training = FINE_TUNING | training
        training = {"schedule": "linear"} | training
        return tree | {"head": head} | ({"training": training} if "training" in tree else {})

    def make_head(self, width: int) -> nn.Module:
        """The head for vectors of this width, fresh."""
        raise NotImplementedError

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the head's classes, in their order."""
        return tuple(getattr(self.recipe.head, "labels", None) or ())

    def model(self) -> Headed:
        return Headed(self.base(), self.recipe.head, self.make_head)

    def base(self) -> Contextual:
        """The model under the head, fresh."""
        config, tokenizer = self.recipe.model, self.tokenizers["text"]
        keep_readout, options = self.recipe.head.auxiliary > 0, spelling_options(config, tokenizer)
        return build_base(config, tokenizer.size, keep_readout=keep_readout, by_token=self.by_token, **options)

    @cached_property
    def framing(self) -> Framing:
        """How texts become rows of tokens; a long text is read in windows unless the data says otherwise."""
        data, model = self.recipe.data, self.recipe.model
        long: Long = getattr(data, "long", "windows")
        return Framing(self.tokenizers["text"], model.kind == "bert", data.max_length, long, data.stride, model.letters)

    @torch.inference_mode()
    def token_logits(self, model: Headed, rows: Sequence[Framed]) -> Iterator[tuple[int, Tensor]]:
        """The number of each row, and what the head gives for each of its tokens, [L, Y]."""
        for numbers in by_length([len(row.ids) for row in rows], read_tokens(model)):
            examples = [[rows[number]] for number in numbers]
            batch = labelled_batch(examples, torch.zeros(len(numbers)), self.framing.tokenizer.pad)
            logits_BLY = model(batch.to(device_of(model))).float().cpu()
            for number, logits_LY in zip(numbers, logits_BLY, strict=True):
                yield number, logits_LY[: len(rows[number].ids)]

    def text_model(self, model: Headed) -> Contextual:
        return model.base

    def fields_of(self, examples: Dataset, row: int) -> list[tuple[str, list[int]]]:
        """The texts of an example, each with its tokens."""
        names = [name for name in examples.columns if self.tokenizer_of(name) is not None]
        return [(examples.texts[name][row], examples.columns[name][row].tolist()) for name in names]

    def notes(self, encoded: EncodedInputs[Example], predictions: Sequence[Prediction]) -> list[Note]:
        """There is a prediction for every text; a note says in which of them every token is unknown."""
        tokenizer = self.framing.tokenizer
        return [
            Note("unknown", str(nothing_known(text, place)))
            for row, (_, place, _) in zip(encoded.readable(), encoded.inputs, strict=True)
            for text, ids in self.fields_of(*row)
            if tokenizer.all_unknown(ids) and is_foreign(tokenizer, self.framing.spelled(ids, [text], 0))
        ]

    def with_head(self, **values: Any) -> Self:
        """The task with these values in the recipe's section `head`."""
        head = self.recipe.head.model_copy(update=values)
        return type(self)(self.recipe.model_copy(update={"head": head}), self.tokenizers)

    def check(self, data: Prepared[Any]) -> None:
        check_max_length(self.recipe)
        head, model = self.recipe.head, self.recipe.model
        layers = model.layers
        if head.freeze != "all" and head.freeze > layers:
            raise ConfigError(f"the model has {layers} layers", where="head.freeze", hint=f"0 to {layers}, or all")
        # the language model's loss is that of the states which the head reads
        if head.auxiliary > 0 and not model.causal:
            what = f"{model.kind} is no language model that reads from left to right"
            causal = [kind for kind, model in MODELS.items() if model.config.causal]
            raise ConfigError(what, where="head.auxiliary", hint=f"set it to 0, or take {' or '.join(causal)}")
        if head.auxiliary > 0 and (head.freeze == "all" or head.features != "last" or head.bilstm is not None):
            what = "the language model's loss needs a head right above a last layer that learns"
            raise ConfigError(what, where="head.auxiliary", hint="features: last, bilstm: null, and freeze below all")
