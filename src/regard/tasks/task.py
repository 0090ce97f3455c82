"""What a task is: all that differs between runs besides the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.config import Config
from regard.data.batch import AnyBatch
from regard.data.config import Recipe
from regard.data.corpora import Part
from regard.data.dataset import Columns, Dataset, Examples
from regard.data.file_inputs import FileInput
from regard.data.prepare import Prepared, prepare, read, token_report
from regard.data.report import ColumnReport
from regard.data.store import Integers
from regard.data.texts import Progress, Texts
from regard.models.base import Contextual
from regard.search import SearchConfig
from regard.tasks.inputs import EncodedInputs, Inputs, Note
from regard.text.files import TextFile
from regard.text.tokenizers import Tokenizer, Tokenizers, train_tokenizers

Done = Callable[[int], None]
"""Called with how many more inputs or examples are finished."""


def ignore(done: int) -> None:
    """Default: no progress is shown."""


class Prediction(Protocol):
    """One input and what the model predicts for it."""

    @property
    def search(self) -> dict[str, Any] | None:
        """The record of the search, if one was asked for."""
        ...

    @property
    def input(self) -> str: ...
    def to_json(self) -> dict[str, Any]: ...
    def lines(self, nbest: int) -> Iterator[str]:
        """What the command line prints."""
        ...


class NoSettings(Config):
    """There is nothing to choose: the metrics need no settings."""


class Task:
    """What a run is for: its columns, its models, its objective, its metrics, its predictions.

    `task = TASKS[recipe.task](recipe, tokenizers)` is made once. The class attributes say what a recipe of the task may
    contain, so they are known before there is a recipe.
    """

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    """The columns that have a tokenizer."""
    data: ClassVar[type[Any]]
    """The recipe's section `data`."""
    evaluation: ClassVar[type[Config]]
    """The recipe's section `evaluation`."""
    models: ClassVar[Any]
    """The configs of the models that it trains: a union told apart by `kind`."""
    higher_is_better: ClassVar[Mapping[str, bool]]
    """The metrics of a validation, and whether more is better."""
    decoded: ClassVar[frozenset[str]] = frozenset()
    """The metrics that need decoded examples."""
    unit: ClassVar[str] = "tokens"
    """What the loss is a mean over; `tokens` in the training log counts them."""
    writes: ClassVar[str | None] = None
    """The column whose tokenizer spells the outputs; None where outputs are no texts."""
    searches: ClassVar[bool] = True
    """Whether predictions come from a search, so that a beam, a prefix and a record make sense."""
    has_references: ClassVar[bool] = False
    """Whether it writes a text for each source, which is compared with references."""
    head: ClassVar[type[Config] | None] = None
    """The recipe's section `head`; None where the model has none."""
    reads_raw_text: ClassVar[bool] = False
    """Whether the data is raw text, for pre-training."""
    reads_stories: ClassVar[bool] = False
    """Whether inputs are questions about a story that the lines before them tell."""
    changeable: ClassVar[tuple[str, ...]] = ()
    """Settings of a trained run that may be changed besides `search` and `evaluation`: how much is read at most."""
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values of a recipe's sections that suit the task better than the sections' own defaults."""

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers) -> None:
        self.recipe, self.tokenizers = recipe, tokenizers

    @classmethod
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """A recipe's tree with defaults that depend on other values in it; called before the recipe is validated."""
        return tree

    def with_search(self, search: SearchConfig) -> Self:
        """The same task with other settings of the search."""
        return type(self)(self.recipe.model_copy(update={"search": search}), self.tokenizers)

    # Data: the pipeline of data/prepare.py calls these

    @classmethod
    def prepare(
        cls, recipe: Recipe, base: Path, tokenizers: Tokenizers | None = None, progress: Progress | None = None
    ) -> Prepared[Any]:
        """The examples of every split (data/prepare.py)."""
        return prepare(cls, recipe, base, tokenizers, progress)

    def read(self, corpora: Sequence[Any], part: Part, base: Path) -> Examples:
        """Corpora as they are, to measure a run on."""
        return read(self, self.recipe, corpora, part, base)

    @classmethod
    def learn_tokenizers(cls, recipe: Recipe, train: Texts, base: Path) -> Tokenizers:
        """The tokenizers of the columns, trained on the training texts or read from files."""
        return train_tokenizers(recipe.tokenizer, {name: train.columns[name] for name in cls.columns}, base)

    def settled(self, train: Mapping[str, Sequence[str]], where: Callable[[int], str]) -> Self:
        """The task with what only the training texts can tell, such as the labels, in its recipe."""
        return self

    def encoding(self) -> list[Any]:
        """What decides the encoded columns besides texts and tokenizers, as plain values."""
        return []

    def encode(self, texts: Mapping[str, Sequence[str]], where: Callable[[int], str]) -> Columns:
        """Rows of texts by column -> rows of numbers by column; `where` names a row in messages."""
        return {name: tokenizer.encode_batch(texts[name]) for name, tokenizer in self.tokenizers.items()}

    def tokenizer_of(self, column: str) -> Tokenizer | None:
        """The tokenizer of an encoded column; None where the column does not hold tokens."""
        return self.tokenizers.get(column)

    def dropped(self, columns: Columns) -> Mapping[str, NDArray[np.bool_]]:
        """Training examples that are left out, by reason; no row has two reasons."""
        return {}

    def column_reports(self, examples: Dataset) -> dict[str, ColumnReport]:
        """What `check` reports of the columns of tokens."""
        return {
            name: token_report(column, tokenizer)
            for name, column in examples.columns.items()
            if (tokenizer := self.tokenizer_of(name)) is not None
        }

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        """The most positions that each example takes up in a model."""
        raise NotImplementedError

    def slants(self, examples: Dataset) -> NDArray[np.int32] | None:
        """How much longer the first of two columns is than the second, where there are two."""
        return None

    def collate(self, examples: Dataset, rows: Integers, seed: int, epoch: int) -> AnyBatch:
        """These examples as tensors; random choices depend on the seed and the epoch alone."""
        raise NotImplementedError

    def frequencies(self, examples: Dataset) -> NDArray[np.int64]:
        """How often each token or class is a target."""
        raise NotImplementedError

    def pieces(self, examples: Dataset, row: int) -> dict[str, list[str]]:
        """An example token by token, as a model reads it."""
        return {
            name: tokenizer.pieces(column[row].tolist())
            for name, column in examples.columns.items()
            if (tokenizer := self.tokenizer_of(name)) is not None
        }

    def label_counts(self, examples: Dataset) -> dict[str, int]:
        """How often each label occurs, for tasks with labels."""
        return {}

    def longest_example(self, examples: Dataset) -> int:
        """The example that needs the most memory."""
        return int(np.argmax(examples.lengths))

    def fingerprint(self, examples: Dataset) -> int:
        """A checksum of what the order of the batches depends on: the data of a resumed run must have the same."""
        raise NotImplementedError

    # Training

    def check(self, data: Prepared[Any]) -> None:
        """Refuse a recipe whose model cannot be trained on the data."""

    def model(self) -> Any:
        """The model that the recipe describes, with fresh weights from torch's generator."""
        raise NotImplementedError

    def first_weights(self, model: Any, train: Examples) -> None:
        """Start the model's own readout from how often each token is a target; called before the first step."""
        if getattr(model, "output", None) is not None:
            model.output.initialise_bias(torch.from_numpy(train.frequencies()))

    def objective(self, model: Any) -> nn.Module:
        """The model under its loss: batch -> [2], the loss to minimise and the loss to report, both summed.

        Where a state is carried from batch to batch: batch and state -> ([2], state).
        """
        raise NotImplementedError

    def validate(self, model: Any, examples: Any) -> dict[str, Any]:
        """Metrics on validation examples, `loss` among them, and a few `samples`; the model is in eval mode."""
        raise NotImplementedError

    # Verbs

    @property
    def corpora(self) -> list[Any]:
        """The recipe's corpora; for an imported run, one with the task's columns and nothing in them."""
        data = self.recipe.data
        [kind] = get_args(type(data).model_fields["train"].annotation)
        parts = (getattr(data, name) for name in ("train", "validation", "test"))
        named = [corpus for part in parts if isinstance(part, list) for corpus in part]
        return named or [kind.model_construct()]

    def corpus_of(self, files: Sequence[str]) -> Any:
        """What `--file` names, as a corpus read like the recipe's own."""
        raise NotImplementedError

    def evaluate(self, model: Any, examples: Any, progress: Done) -> dict[str, Any]:
        """All metrics on some examples."""
        raise NotImplementedError

    def by_unit(self, model: Any, examples: Any, progress: Done) -> list[dict[str, Any]] | None:
        """How well each document or example is predicted, for `compare`; None where the task cannot say."""
        predictions: list[dict[str, Any]] | None = self.evaluate(model, examples, progress).get("predictions")
        return predictions

    def inputs_in(self, file: TextFile) -> Iterator[FileInput] | None:
        """The inputs in a file to predict for, by the columns of the recipe's corpora. None: every line is an input."""
        return None

    def typed_input(self, text: str, place: str) -> FileInput:
        """A typed text as an input; a task with tables may read a JSON object as one of their rows."""
        return FileInput(text, place)

    def gather(self, lines: Sequence[FileInput], story: Sequence[FileInput] = ()) -> list[FileInput]:
        """Lines -> inputs; here every line is an input. `story` is what questions among the lines are about."""
        return list(lines)

    def text_model(self, model: Any) -> Contextual | None:
        """The model that has vectors for the tokens of a single text; None where there is none."""
        return None

    def text_notes(self, inputs: Inputs, rows: Sequence[Sequence[int]]) -> list[Note]:
        """What a user should know about texts whose vectors were asked for; `rows` are their tokens."""
        return []

    def score_text(self, model: Any, source: str, target: str | Sequence[str]) -> tuple[list[int], list[float]]:
        """The tokens of a target, `</s>` last where it is a text, and log P of each; for tasks that write."""
        raise NotImplementedError

    def encode_inputs(self, model: Any, inputs: Inputs) -> EncodedInputs[Any]:
        """What the model reads of each input, or why it cannot be read."""
        raise NotImplementedError

    def predict_encoded(
        self, model: Any, encoded: EncodedInputs[Any], *, record: bool = False, progress: Done = ignore
    ) -> Sequence[Prediction]:
        """A prediction for each input, in their order; `record` keeps the whole search."""
        raise NotImplementedError

    def predict(
        self, model: Any, inputs: Inputs, *, record: bool = False, progress: Done = ignore
    ) -> Sequence[Prediction]:
        """The same for inputs that are not encoded yet; one error names all that cannot be read."""
        return self.predict_encoded(model, self.encode_inputs(model, inputs), record=record, progress=progress)

    def notes(self, encoded: EncodedInputs[Any], predictions: Sequence[Prediction]) -> list[Note]:
        """What a user should know about these predictions."""
        return []
