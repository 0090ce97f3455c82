"""What a task is: all that differs between runs but the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from regard.config import Config
from regard.data.config import Corpus
from regard.data.corpora import Part
from regard.data.dataset import Examples
from regard.data.file_inputs import FileInput
from regard.data.prepare import Prepared
from regard.objectives.cross_entropy import Objective
from regard.search import SearchConfig
from regard.tasks.inputs import Inputs
from regard.text.files import TextFile
from regard.text.tokenizers import Tokenizers

Progress = Callable[[str, int], None]


class Prediction(Protocol):
    """One input and what the model makes of it."""

    @property
    def search(self) -> dict[str, Any] | None:
        """How it was found, where that was to be recorded."""
        ...

    @property
    def input(self) -> str: ...
    def to_json(self) -> dict[str, Any]: ...
    def lines(self, nbest: int) -> Iterator[str]:
        """What the command line prints."""
        ...


class Task:
    """What a run is for: its columns, its models, its objective, its metrics, its predictions."""

    name: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    """What the model reads and writes, each with a tokenizer."""
    data: ClassVar[type[Any]]
    evaluation: ClassVar[type[Config]]
    higher_is_better: ClassVar[Mapping[str, bool]]
    """The metrics of a validation, and which way each is good."""
    decoded: ClassVar[frozenset[str]] = frozenset()
    """Those that need decoded examples."""
    model: ClassVar[Any]
    """The configs of the models that it trains: a union told apart by `kind`."""
    unit: ClassVar[str] = "tokens"
    """What the loss is a mean over; `tokens` in the log of a training counts them."""
    writes: ClassVar[str | None] = None
    """The column whose tokenizer spells what it writes; None where it writes no text of its own."""
    searches: ClassVar[bool] = True
    """Whether its predictions come from a search, which can be given a beginning and be recorded."""
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values of a recipe's sections that suit the task better than those of the sections themselves."""

    @classmethod
    def filled(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """A recipe's tree with values that hang on others in it, where it does not give them."""
        return tree

    @classmethod
    def settled(cls, tree: dict[str, Any], data: Prepared[Any]) -> dict[str, Any]:
        """The tree of a checked recipe with what only the data can tell: it is what the run keeps."""
        return tree

    @classmethod
    def prepare(
        cls, recipe: Any, base: Path, tokenizers: Tokenizers | None = None, progress: Progress | None = None
    ) -> Prepared[Any]:
        """Read, check, split and tokenise the data, or open what an earlier call prepared from the same content.

        File names are relative to `base`; `tokenizers` are used as they are, else they are trained.
        """
        raise NotImplementedError

    @classmethod
    def check(cls, recipe: Any, data: Prepared[Any]) -> None:
        """Refuse a recipe whose model cannot do with the data what the task asks of it."""

    @classmethod
    def build(cls, recipe: Any, tokenizers: Tokenizers) -> Any:
        """The model that a recipe describes, with fresh weights from torch's generator."""
        raise NotImplementedError

    @classmethod
    def objective(cls, model: Any, recipe: Any) -> Objective:
        """The model under what it is trained on: batch -> [2], the loss to descend and the one to report, both summed.

        Where a state is carried from batch to batch: batch and state -> ([2], state).
        """
        raise NotImplementedError

    @classmethod
    def validate(cls, model: Any, recipe: Any, data: Prepared[Any]) -> dict[str, Any]:
        """The metrics on the validation examples, `loss` among them, and a few `samples`; the model is in eval mode."""
        raise NotImplementedError

    @classmethod
    def read(cls, recipe: Any, corpora: Sequence[Any], part: Part, base: Path, tokenizers: Tokenizers) -> Examples:
        """Corpora as they are, to measure a run on."""
        raise NotImplementedError

    @classmethod
    def corpus_of(cls, files: Sequence[str], own: Sequence[Any]) -> Corpus:
        """What `--file` names, read as the recipe's own corpora are."""
        raise NotImplementedError

    @classmethod
    def evaluate(
        cls, model: Any, recipe: Any, examples: Any, tokenizers: Tokenizers, progress: Callable[[int], None]
    ) -> dict[str, Any]:
        """All metrics on some examples; `progress` hears of how many more are done."""
        raise NotImplementedError

    @classmethod
    def inputs_in(cls, recipe: Any, own: Sequence[Any], file: TextFile) -> Iterator[FileInput] | None:
        """The inputs in a file to predict for, where they are more than its lines: by the columns of the recipe's own
        corpora. None: a line is an input."""
        return None

    @classmethod
    def gather(cls, texts: Sequence[str], places: Sequence[str]) -> tuple[list[str], list[str]]:
        """What was typed, line by line -> the inputs to predict for, and where each stands: here, every line is one."""
        return list(texts), list(places)

    @classmethod
    def adjust(cls, model: Any, recipe: Any) -> None:
        """Let a model that was loaded know of the settings, other than the search's, that are asked for now."""

    @classmethod
    def score_text(
        cls, model: Any, tokenizers: Tokenizers, source: str, target: str | Sequence[str]
    ) -> tuple[list[int], list[float]]:
        """The tokens of a target, `</s>` last where it is a text, and log P of each; for tasks that write."""
        raise NotImplementedError

    @classmethod
    def check_inputs(cls, model: Any, tokenizers: Tokenizers, inputs: Inputs, config: SearchConfig) -> None:
        """Refuse what cannot be predicted, before the first of many inputs is."""
        raise NotImplementedError

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
    ) -> Sequence[Prediction]:
        """A prediction for each text, in their order."""
        raise NotImplementedError
