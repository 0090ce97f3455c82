"""What a task is: all that differs between runs besides the model; and the inputs that it predicts
for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.config import Config
from regard.data.batches import Padded, Spelling
from regard.data.config import Recipe
from regard.data.corpora import Part
from regard.data.dataset import Dataset, Encoding, Where
from regard.data.epochs import Examples
from regard.data.example import Example
from regard.data.inputs import Inputs
from regard.data.prepare import Prepared, Progress, prepare, read
from regard.data.readers import Reader
from regard.errors import (
    DecodeError,
    InputError,
    Problem,
    RegardError,
)
from regard.models.base import Contextual, device_of
from regard.search.config import SearchConfig
from regard.search.rules import Constraints
from regard.search.stopping import stop_if_given_up
from regard.text.spelling import Token, ids_of, unknown_in
from regard.text.tokenizers import Tokenizer, Tokenizers, train_tokenizers

Row = TypeVar("Row")
T = TypeVar("T", bound=Sequence[Token])
Done = Callable[[int], None]  # called with how many more inputs or examples are finished
READ_TOKENS = 8_192  # padded tokens that are read at once
CPU_READ_TOKENS = 1_024
"""Those that a model on a CPU reads for predictions: the fewer, the less padding and the more in
the CPU's caches."""
NAMED, SHOWN = (
    3,
    20,
)  # how many unknown words a note names, and how many characters of each it shows
# longest input in tokens: beyond it a line break is missing rather than a sentence long
LONGEST = 2048


def ignore(done: int) -> None:
    """Default: no progress is shown."""


def summed(progress: Callable[[int, int], None], total: int) -> Done:
    """Add up how many more are done, and report the sum out of `total`."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        progress(done, total)

    return add


Ids = list[int] | RegardError  # the tokens of an input, or why it cannot be read


@dataclass(frozen=True)
class EncodedInputs(Generic[Row]):
    """Inputs, and what the model reads of each, or why it cannot be read."""

    inputs: Sequence[Example]
    rows: Sequence[Row | RegardError]
    wording: Constraints = field(default_factory=Constraints)
    """What the outputs begin with and must not contain, for tasks that search."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def unreadable(self) -> dict[int, Problem]:
        """The first problem of each input that cannot be read, by its number."""
        return {
            number: row.problems[0]
            for number, row in enumerate(self.rows)
            if isinstance(row, RegardError)
        }

    def take(self, numbers: Sequence[int]) -> EncodedInputs[Row]:
        inputs, rows = (
            [self.inputs[number] for number in numbers],
            [self.rows[number] for number in numbers],
        )
        return EncodedInputs(inputs, rows, self.wording.of(numbers))

    def readable(self) -> list[Row]:
        return readable(self.rows)


def readable(rows: Sequence[Row | RegardError]) -> list[Row]:
    """All rows, or one InputError with the problems of those that cannot be read."""
    if problems := [
        problem for row in rows if isinstance(row, RegardError) for problem in row.problems
    ]:
        InputError.raise_if(problems)
    return [row for row in rows if not isinstance(row, RegardError)]


@dataclass(frozen=True)
class Prediction:
    """One input and what the model predicts for it."""

    input: str
    search: dict[str, Any] | None = field(
        default=None, kw_only=True
    )  # the record of the search, if one was asked for

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError

    def lines(self, nbest: int) -> Iterator[str]:
        """What the command line prints."""
        raise NotImplementedError


@dataclass(frozen=True)
class Note:
    """What a user should know about a prediction."""

    kind: Literal["unknown", "length", "image"]
    """Tokens that the model does not know, a text that is longer than what it was trained on or
    remembers, or the name of an image, which is read as a text."""
    text: str

    def __str__(self) -> str:
        return self.text


class NoSettings(Config):
    """The metrics of the task have no settings."""


class Task(Encoding):
    """What a run is for: its columns, its models, its objective, its metrics, its predictions.

    `task = TASKS[recipe.task](recipe, tokenizers)` is made once. The class attributes say what a
    recipe of the task may contain, so they are known before there is a recipe.
    """

    name: ClassVar[str]
    recipe: Any
    vocabularies: ClassVar[tuple[str, ...]]
    """The names of its tokenizers."""
    data: ClassVar[type[Any]]  # the recipe's section `data`
    evaluation: ClassVar[type[Config]] = NoSettings  # the recipe's section `evaluation`
    models: ClassVar[Any]  # the configs of the models that it trains: a union told apart by `kind`
    lower_is_better: ClassVar[tuple[str, ...]] = ("loss",)
    higher_is_better: ClassVar[tuple[str, ...]] = ()  # the metrics of a validation
    # what the loss is a mean over; `tokens` in the training log counts them
    unit: ClassVar[str] = "tokens"
    writes: ClassVar[Literal["target", "text"] | None] = None
    """The column whose tokenizer spells the outputs of a search: `target`, a text for each source,
    compared with references by all metrics but `loss` and `perplexity`; or `text`, a continuation.
    None: there is no search."""
    searches: ClassVar[bool] = False
    """Whether a search writes the outputs."""
    # the recipe's section `head`; None where the model has none
    head: ClassVar[type[Config] | None] = None
    reads_raw_text: ClassVar[bool] = False  # whether the data is raw text, for pre-training
    init_model: ClassVar[Mapping[str, Any]] = {}
    """Fields of the model that differ from those of the run that `training.init` names."""
    # whether inputs are questions about a story that the lines before them tell
    reads_stories: ClassVar[bool] = False
    shares_examples: ClassVar[bool] = False
    """Whether several processes may each evaluate some of the examples (`results`)."""
    input_columns: ClassVar[tuple[str, ...]] = ("text",)
    """The columns of an input, in the order in which they are typed. Of `choices` there are
    several."""
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values of a recipe's sections that suit the task better than the sections' own defaults."""

    @classmethod
    def complete(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """A recipe's tree with defaults that depend on other values in it; called before the recipe
        is validated."""
        return tree

    def with_search(self, search: SearchConfig) -> Self:
        return type(self)(self.recipe.model_copy(update={"search": search}), self.tokenizers)

    # The parts; a task that is not composed yet is all of them itself

    @property
    def encoding(self) -> Any:
        return self

    @property
    def network(self) -> Any:
        return self

    @property
    def answers(self) -> Any:
        return self

    @property
    def metrics(self) -> Any:
        return self

    @property
    def views(self) -> Any:
        return self

    @classmethod
    def make_encoding(cls, recipe: Recipe, tokenizers: Tokenizers) -> Encoding:
        """The part that the data pipeline uses."""
        return cls(recipe, tokenizers)

    @classmethod
    def settle(cls, recipe: Recipe, train: Mapping[str, Sequence[str]], where: Where) -> Recipe:
        """The recipe with what only the training data can tell, such as the labels."""
        settled: Recipe = cls(recipe, Tokenizers({})).settled(train, where).recipe
        return settled

    def settled(self, train: Mapping[str, Sequence[str]], where: Where) -> Self:
        return self

    # Data: see also Encoding (data/dataset.py)

    @classmethod
    def learn_tokenizers(
        cls, recipe: Recipe, train: Mapping[str, Sequence[str]], base: Path
    ) -> Tokenizers:
        """The tokenizers, trained on the training texts or read from files."""
        texts = {name: train[name] for name in cls.vocabularies}
        return train_tokenizers(recipe.tokenizer, texts, base)

    @classmethod
    def check_evaluation(cls, config: Any) -> None:
        """Refuse an evaluation that needs a library which is not installed."""

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
        return read(self, self.recipe, corpora, part, base)

    # Training

    def frequencies(self, examples: Dataset) -> NDArray[np.int64]:
        """How often each token or class is a target."""
        raise NotImplementedError

    @property
    def packs(self) -> bool:
        """Whether its batches can be packed into rows of fixed size (`AnyBatch.packed`)."""
        return False

    @property
    def rounds(self) -> bool:
        """Whether its model computes padding like words, so that the kernels of a step depend on
        the shapes of a batch alone."""
        return bool(self.recipe.model.loops)

    @property
    def longest_row(self) -> int | None:
        """The most positions that its model reads at once; None if there is no limit."""
        return None

    def check(self, data: Prepared[Any]) -> None:
        """Refuse a recipe whose model cannot be trained on the data."""

    def build(self) -> Any:
        """The model that the recipe describes, with fresh weights from torch's generator."""
        raise NotImplementedError

    def set_first_weights(self, model: Any, train: Dataset) -> None:
        """Start the model's own readout from how often each token is a target; called before the
        first step."""
        if getattr(model, "output", None) is not None:
            model.output.initialise_bias(torch.from_numpy(self.frequencies(train)))

    def objective(self, model: Any) -> nn.Module:
        """The model under its loss: batch -> [2], the loss to minimise and the loss to report, both
        summed.

        Where a state is carried from batch to batch: batch and state -> ([2], state).
        """
        raise NotImplementedError

    def validate(self, model: Any, examples: Any) -> dict[str, Any]:
        """Metrics on validation examples, `loss` among them, and a few `samples`; the model is in
        eval mode."""
        raise NotImplementedError

    # Verbs

    @property
    def corpora(self) -> list[Any]:
        """The recipe's corpora; for an imported run, one with the task's columns and nothing in
        them."""
        data = self.recipe.data
        [kind] = get_args(type(data).model_fields["train"].annotation)
        return data.corpora or [kind.model_construct()]

    @cached_property
    def inputs(self) -> Inputs:
        """How what a user gives becomes examples."""
        return Inputs(self.name, self.corpora, self.recipe.data.encoding, self.input_columns)

    def evaluate(self, model: Any, examples: Any, progress: Done) -> dict[str, Any]:
        return self.combine(examples, [self.results(model, examples, progress)])

    def results(self, model: Any, examples: Any, progress: Done = ignore) -> Any:
        """What the model makes of some examples, as values that another process can hand over."""
        raise NotImplementedError

    def combine(self, examples: Any, parts: Sequence[Any]) -> dict[str, Any]:
        """All metrics on some examples, by what `results` has for them, part by part."""
        raise NotImplementedError

    def baselines(self, train: Any, examples: Any) -> Iterator[tuple[str, Any]]:
        """Linear models of scikit-learn that learn from `train`: the name of each, and what it has
        for the examples, as `results` returns it. None if there is no such model for the task."""
        return iter(())

    def by_unit(self, model: Any, examples: Any, progress: Done) -> list[dict[str, Any]] | None:
        """How well each document or example is predicted, for `compare`; None where the task cannot
        say."""
        return self.evaluate(model, examples, progress).get("predictions")

    def typed(self, row: Mapping[str, str], reader: Reader) -> str:
        """A row of the data as an input that a user could type: its texts with tabs between
        them."""
        return "\t".join(row[name] for name in self.inputs.names)

    def text_model(self, model: Any) -> Contextual | None:
        """The model that has vectors for the tokens of a single text; None where there is none."""
        return None

    def text_notes(self, inputs: Sequence[Example], rows: Sequence[Sequence[int]]) -> list[Note]:
        """What a user should know about texts whose vectors were asked for; `rows` are their
        tokens."""
        return []

    def score_text(
        self, model: Any, source: str, target: str | Sequence[str]
    ) -> tuple[list[int], list[float]]:
        """The tokens of a target, `</s>` last where it is a text, and log P of each; for tasks that
        write."""
        raise NotImplementedError

    def encode_inputs(
        self, model: Any, inputs: Sequence[Example], prefixes: Sequence[str] | None = None
    ) -> EncodedInputs[Any]:
        """What the model reads of each input, or why it cannot be read. Of a task that writes,
        each output can have a prefix of its own."""
        raise NotImplementedError

    def predict_encoded(
        self,
        model: Any,
        encoded: EncodedInputs[Any],
        *,
        record: bool = False,
        progress: Done = ignore,
    ) -> Sequence[Prediction]:
        """A prediction for each input, in their order; `record` keeps the whole search."""
        raise NotImplementedError

    def predict(
        self,
        model: Any,
        inputs: Sequence[Example],
        *,
        record: bool = False,
        progress: Done = ignore,
    ) -> Sequence[Prediction]:
        """The same for inputs that are not encoded yet; one error names all that cannot be read."""
        return self.predict_encoded(
            model, self.encode_inputs(model, inputs), record=record, progress=progress
        )

    def notes(self, encoded: EncodedInputs[Any], predictions: Sequence[Prediction]) -> list[Note]:
        """What a user should know about these predictions."""
        return []


IMAGE_NAME = re.compile(r"\S+\.(png|jpe?g|gif|bmp|webp|tiff?)", re.IGNORECASE)


def image_notes(inputs: Sequence[Example]) -> list[Note]:
    """Notes on inputs that are names of images, for a model that reads texts."""
    return [
        Note(
            "image",
            f"{given.place}: {given.text!r} is the name of an image, and this run reads it as a "
            "text",
        )
        for given in inputs
        if IMAGE_NAME.fullmatch(given.text.strip())
    ]


# From texts to tokens


def encode_each(
    tokenizer: Tokenizer,
    inputs: Sequence[Example],
    limited: bool = True,
) -> list[Ids]:
    """Token ids of each text, or why it cannot be read: it may be too long if that is `limited`."""
    return _encode_readable(tokenizer, inputs, tokenizer.encode_batch, limited)


def encode_each_spelled(
    tokenizer: Tokenizer, inputs: Sequence[Example], letters: int | None
) -> list[list[Token] | RegardError]:
    """Tokens of each text, or why it cannot be read. Unknown words keep so many of their letters,
    for a model that reads them."""
    encode = partial(tokenizer.encode_spelled, letters=letters)
    return _encode_readable(tokenizer, inputs, encode, limited=True)


def _encode_readable(
    tokenizer: Tokenizer,
    inputs: Sequence[Example],
    encode: Callable[[Sequence[str]], list[T]],
    limited: bool,
) -> list[T | RegardError]:
    problems = [problem_in(given) for given in inputs]
    plain = ["" if problem else given.text for given, problem in zip(inputs, problems, strict=True)]
    encoded = encode(plain)
    for row, ids in enumerate(encoded):
        if problems[row] is None and is_foreign(tokenizer, ids):
            problems[row] = nothing_known(inputs[row].text, inputs[row].place)
        elif problems[row] is None and limited:
            problems[row] = _too_long(ids, inputs[row].place)
    return [
        InputError(problems=[problem]) if problem else ids
        for problem, ids in zip(problems, encoded, strict=True)
    ]


def encode_target(tokenizer: Tokenizer, target: str | Sequence[str]) -> list[int]:
    """Token ids of a text with its `</s>`, or of exact tokens as they are."""
    if isinstance(target, str):
        [text] = readable(
            encode_each(tokenizer, [Example.of_text(target, "target")], limited=False)
        )
        ids = [*text, tokenizer.end]
    else:
        try:
            ids = tokenizer.token_ids(target)
        except DecodeError as error:
            hint = "tokens are spelt as 'predict --json' shows them"
            raise DecodeError(error.problems[0].what, where="target", hint=hint) from None
    if not ids:
        raise DecodeError(
            "there are no tokens", where="target", hint='give at least one, "</s>" for one'
        )
    if problem := _too_long(ids, "target"):
        raise DecodeError(problems=[problem])
    return ids


def not_longer(rows: Sequence[Any], longest: int | None, inputs: Sequence[Example]) -> list[Any]:
    """Rows of tokens; those with more tokens than the model has positions are unreadable."""
    checked = list(rows)
    for number, row in enumerate(rows):
        if longest is not None and not isinstance(row, RegardError) and len(row) > longest:
            what = f"the text has {len(row):,} tokens with the special ones"
            hint = f"the model reads at most {longest:,}"
            checked[number] = InputError(what, where=inputs[number].place, hint=hint)
    return checked


def problem_in(given: Example) -> Problem | None:
    """Why an input cannot be read, whatever the vocabulary."""
    return given.fault or problem_in_text(given.text, given.place)


def problem_in_text(text: str, place: str) -> Problem | None:
    if not text.strip():
        return Problem(place, "the text is empty", "give at least one word")
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        hint = "save it as UTF-8, or name a file's encoding with data.encoding"
        return Problem(place, "the text has bytes that are not valid in its encoding", hint)
    return None


def _too_long(ids: Sequence[Token], place: str) -> Problem | None:
    if len(ids) <= LONGEST:
        return None
    return Problem(
        place, f"the text has {len(ids):,} tokens", f"at most {LONGEST:,}: split it into sentences"
    )


def is_foreign(tokenizer: Tokenizer, tokens: Sequence[Token]) -> bool:
    """Whether nothing of a text is known, not even the letters of its words."""
    return tokenizer.all_unknown(ids_of(tokens)) and not any(unknown_in(tokens))


def nothing_known(text: str, place: str) -> Problem:
    what = f"every token of {text.strip()[:20]!r} is unknown to the tokenizer"
    return Problem(place, what, "it was trained on other words or script")


def unknown_notes(
    tokenizer: Tokenizer, inputs: Sequence[Example], rows: Sequence[Sequence[int]]
) -> list[Note]:
    """A note for each text with tokens outside the vocabulary; `rows` are the tokens of the
    texts."""
    [symbol] = tokenizer.tokens([tokenizer.unk])
    notes = []
    for given, row in zip(inputs, rows, strict=True):
        if count := row.count(tokenizer.unk):
            tokens = "1 token that is" if count == 1 else f"{count:,} tokens that are"
            words = _unknown_words(tokenizer, given.text)
            what = (
                f"{given.place} has {tokens} not in the vocabulary ({words}): the model "
                f"reads {symbol} there"
            )
            notes.append(Note("unknown", what))
    return notes


def _unknown_words(tokenizer: Tokenizer, text: str) -> str:
    """The first words with an unknown token, as they were typed."""
    words = list(dict.fromkeys(text.split(" ")))
    unknown = [
        word
        for word, ids in zip(words, tokenizer.encode_batch(words), strict=True)
        if tokenizer.unk in ids
    ]
    shown = [repr(word if len(word) <= SHOWN else f"{word[:SHOWN]}...") for word in unknown]
    return ", ".join([*shown[:NAMED], *(["..."] if shown[NAMED:] else [])])


def padded(rows: Sequence[Sequence[Token]], pad: int) -> Padded:
    lengths_B = torch.tensor([len(row) for row in rows])
    ids_BL = torch.full((len(rows), int(lengths_B.max())), pad)
    for number, row in enumerate(rows):
        ids_BL[number, : len(row)] = torch.tensor(ids_of(row))
    return Padded.of(ids_BL, lengths_B, Spelling.of_rows(rows))


def read_tokens(model: nn.Module) -> int:
    return CPU_READ_TOKENS if device_of(model).type == "cpu" else READ_TOKENS


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Row numbers in batches of about equal length, longest first, at most `batch_tokens` padded
    tokens each.

    No further batch comes when the work has been given up.
    """
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            stop_if_given_up()
            yield batch
            batch = []
        batch.append(number)
    if batch:
        stop_if_given_up()
        yield batch
