"""A recipe's sections `data` and `training`: where examples come from, which are kept, how a model
learns from them."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, cast, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from regard.config import Config
from regard.data.corpora import Part, generate
from regard.errors import DataError, did_you_mean
from regard.text.clean import Cleaning, Detokenise
from regard.text.files import COMPRESSIONS, EXCEL_HINT, TextFile, files_below
from regard.text.tokenizers import TokenizerConfig

BuiltIn = Literal[
    "dates",
    "copy",
    "reverse",
    "sort",
    "greetings-en-ko",
    "greetings-fr-en",
    "phrases-en-ko",
    "phrases-en-fr",
    "phrases-ko-en",
    "phrases-fr-en",
    "chat-ko",
    "conversations-en",
    "conversations-ko",
    "headlines",
    "shapes",
    "shapes-ko",
]
"""The built-in corpora of pairs (data/corpora.py)."""
OBJECTS = (".jsonl", ".json")  # suffixes of files of JSON objects: one a line, or an array of them
ENCODINGS = (
    "utf-8",
    "utf-16",
    "cp949",
    "euc-kr",
    "latin1",
    "cp1252",
    "shift_jis",
    "gb18030",
    "big5",
)  # and others
NOT_OF_FILES = ("idna", "punycode", "unicode-escape", "raw-unicode-escape")
"""Python's codecs for names of hosts and for source code, in which a file with several lines cannot
be written."""
TABLES = (".tsv", ".csv", *OBJECTS, ".parquet")  # suffixes of files that hold all columns
BadLines = Literal["auto", "error", "drop"]
TOLERATED = 0.01
"""The largest share of examples that cannot be used which `bad_lines: auto` drops."""


class Corpus(Config):
    """One source of examples; a task's subclass adds the columns it reads as fields of their own.

    Without `file`, `dataset` and `corpus` each column names a file of its own, parallel line by
    line, or a folder of such files.
    """

    READ_AS: ClassVar[Mapping[str, str]] = {}
    """What the model calls a column, where the task has a better word for it."""
    NUMBERS: ClassVar[frozenset[str]] = frozenset()
    """The columns that may hold numbers where a file tells them from text, as .jsonl and .parquet
    do."""
    IN_PIECES: ClassVar[bool] = False
    """Whether an example may be several rows, as a long document is: the column `part` then says
    where it ends."""
    LISTS: ClassVar[frozenset[str]] = frozenset()
    """The columns that may hold a list of texts in .jsonl, which stands for as many rows."""
    ROW: ClassVar[tuple[str, ...]] = ()
    """The columns of a row in their order, where they are not those that the corpus names."""

    NOT_COLUMNS: ClassVar[frozenset[str]] = frozenset()
    """The fields of a task's corpus that are not columns."""

    file: str | None = None
    """One file that holds all columns: .tsv, .csv, .jsonl or .json (an array of objects), plain or
    as .gz, .xz or .zst, or .parquet. In all but the first two `translation.en` is the field `en` of
    the column `translation`."""
    header: bool | None = None
    """Whether the first line of a .tsv or .csv names the columns. Default: yes when a column is
    asked for by name."""
    dataset: str | None = None
    """A dataset of the Hugging Face library: a folder that `save_to_disk` wrote, a folder of data
    files, or a name on the Hub. The columns are named; `translation.en` is the field `en` of the
    column `translation`."""
    subset: str | None = None
    """Which of the dataset's subsets (configurations), if it has several."""
    split: str | None = None
    """Which of the dataset's splits. Default: train, validation or test, as the corpus is used."""
    stream: bool = False
    """Whether a dataset of the Hub is read as it comes, without a copy of it on the disk. The
    prepared texts are kept as always."""
    corpus: BuiltIn | None = None
    """A built-in corpus: dates as people write them -> ISO; letters to copy, reverse or sort; a
    hundred sentences, English -> Korean or French -> English; English sentences -> Korean or
    French, and the other way round; what one says in Korean -> an answer; short reports ->
    headlines; pictures of two shapes -> captions, English or Korean."""
    min_words: int | None = Field(None, ge=3, le=60)
    """Of the corpora `phrases-...`: the fewest words of an English text. Default: 3."""
    max_words: int | None = Field(None, ge=3, le=60)
    """Of the corpora `phrases-...`: the most words of an English text. Default: 12, or min_words if
    that is more. Sentences have up to 12 words; beyond that, a text is several sentences in a
    row."""
    size: int | None = Field(None, ge=1)
    """How many examples to read at the most, drawn from all by `seed`. A built-in corpus must have
    as many."""
    seed: int = Field(1, ge=0)
    """Another seed draws other rows of files or a dataset, if `size` is given. Of a built-in
    corpus: it gives other dates, letters and shapes, and shuffles the other corpora."""
    weight: float = Field(1.0, gt=0)
    """How often an epoch shows this corpus: 2 shows each example twice, 0.5 every second one, drawn
    anew each epoch."""

    prefix: str = ""
    """A text put before each source: a tag such as `"<2ko> "` tells a model of several languages or
    tasks what to write. `regard predict` and files given to `regard evaluate` are taken as they
    are: type the tag there."""

    @classmethod
    def column_fields(cls) -> list[str]:
        """The fields that name columns."""
        others = (*Corpus.model_fields, *cls.NOT_COLUMNS)
        return [name for name in cls.model_fields if name not in others]

    # What a task's subclass may override

    @property
    def columns(self) -> dict[str, str | int | None]:
        """The task's columns: name -> a file (parallel files), or a column's name or number."""
        return {
            name: getattr(self, name)
            for name in type(self).model_fields
            if name not in Corpus.model_fields
        }

    def named(self) -> Self:
        """This corpus with the task's names for the columns of a table."""
        return self.model_copy(update={name: name for name in self.columns})

    @property
    def inputs(self) -> int:
        """How many columns, from the first on, a model reads; the others it is to find."""
        return 1

    @property
    def may_be_empty(self) -> bool:
        """Whether a row without text is meant so, and no mistake."""
        return False

    def identity(self, source: str, base: Path) -> str:
        """The key that tells a source from others."""
        return source

    def files(self, base: Path, within: Path | None = None) -> tuple[TextFile, ...]:
        """The file with all columns, or a file for each column, or none; of folders, the first file
        of each column, then the second of each. Names are relative to `base`; only files in
        `within` may be read, if that is given."""
        if self.corpus is not None or self.dataset is not None:
            return ()
        names = self.columns.values() if self.file is None else [self.file]
        files = tuple(TextFile(str(name), base / str(name), within=within) for name in names)
        if self.file is not None or not all(file.is_folder for file in files):
            return files
        folders = [files_below(file, empty=True) for file in files]
        if len(set(map(len, folders))) > 1:
            counts = (
                f"{len(below):,} in {file.name}" for file, below in zip(files, folders, strict=True)
            )
            what = f"files: {', '.join(counts)}"
            raise DataError(
                what,
                where=files[0].name,
                hint="parallel folders need as many, in the same order by name",
            )
        return tuple(chain.from_iterable(zip(*folders, strict=True)))

    def format(self, file: TextFile) -> str:
        """How one file with all columns is read: a key of FORMATS (data/readers.py), or a
        DataError."""
        suffix, compression = file.suffixes
        if suffix not in TABLES:
            what = f"one file with all columns cannot be a {suffix or 'file without a suffix'}"
            hint = (
                f"allowed: {', '.join(TABLES)}, text plain or as {', '.join(COMPRESSIONS)}; "
                "parallel files are named by column, without 'file'"
            )
            if suffix in (".xlsx", ".xls"):
                hint = EXCEL_HINT
            raise DataError(what, where=file.name, hint=hint)
        if suffix == ".parquet" and compression:
            what = f"a Parquet file is compressed inside, not as {compression}"
            raise DataError(what, where=file.name, hint="unpack it")
        return suffix

    def settings(self) -> dict[str, Any]:
        """The settings that decide the rows, besides the content of the files. Names of files do not
        matter."""
        named = set() if self.file is not None or self.dataset is not None else set(self.columns)
        return self.model_dump(mode="json", exclude={"weight", "file", "dataset", "stream", *named})

    def place(self, file: TextFile, line: int) -> str:
        """The name of a row of a file in messages."""
        return file.row(line)

    def built_in(self, part: Part) -> Iterator[tuple[str, ...]]:
        assert self.corpus is not None
        return generate(self.corpus, self.size, self.seed, part, self.words)

    def findings(self, files: Sequence[TextFile]) -> list[str]:
        """Notes for the user on the files that are read."""
        return []

    @property
    def listed(self) -> str | None:
        """The list of .jsonl of which the columns are all items, if they are of one."""
        return None

    @property
    def words(self) -> range:
        """How many words an English text of the phrases may have."""
        least = self.min_words or 3
        return range(least, (self.max_words or max(12, least)) + 1)

    @model_validator(mode="after")
    def _consistent(self) -> Corpus:
        named = [name for name in ("file", "dataset", "corpus") if getattr(self, name) is not None]
        if len(named) > 1:
            raise ValueError(f"give one of {' and '.join(named)}, not both")
        self._expect_options_of_files()
        self._expect_options_of_phrases()
        if self.corpus is None:
            self._expect_columns()
        elif any(value is not None for value in self.columns.values()):
            raise ValueError("a built-in corpus takes no file and no columns")
        return self

    def _expect_options_of_files(self) -> None:
        if self.dataset is None and (self.subset is not None or self.split is not None):
            raise ValueError("'subset' and 'split' need 'dataset: ...' beside them")
        if self.dataset is None and self.stream:
            raise ValueError(
                "'stream' needs 'dataset: ...' beside it; files are always read as they come"
            )
        if self.header is not None and not re.search(
            r"\.[tc]sv(\.\w+)?$", self.file or "", re.IGNORECASE
        ):
            raise ValueError("'header' needs 'file: ...' beside it, a .tsv or .csv")

    def _expect_options_of_phrases(self) -> None:
        if self.min_words is None and self.max_words is None:
            return
        if self.corpus is None or not self.corpus.startswith("phrases-"):
            raise ValueError(
                "'min_words' and 'max_words' need 'corpus: phrases-en-ko' or 'phrases-en-fr' "
                "beside them"
            )
        if not self.words:
            raise ValueError(
                f"min_words {self.words.start} is more than max_words {self.max_words}"
            )

    def _expect_columns(self) -> None:
        """Refuse a corpus that is not built in, if it does not say where all of its columns are."""
        if self.seed != type(self).model_fields["seed"].default and self.size is None:
            raise ValueError("'seed' needs 'size: ...' beside it, or 'corpus: ...', a built-in one")
        missing = [name for name, value in self.columns.items() if value is None]
        if missing:
            names = " and ".join(missing)
            raise ValueError(
                f"name the {names}: a file each, or 'file' with the columns in it, or 'corpus'"
            )
        if self.file is None and any(isinstance(value, int) for value in self.columns.values()):
            raise ValueError("a column number needs 'file: ...' beside it")


class Split(Config):
    """A part of the training examples, set aside."""

    split: float = Field(gt=0, lt=1)
    """The share of the training examples; drawn by source text, so that no source stands on both
    sides."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_files(cls, tree: Any) -> Any:
        if isinstance(tree, dict) and {
            "file",
            "corpus",
            "dataset",
            "source",
            "target",
            "text",
        } & set(tree):
            raise ValueError(
                "a share of the training examples has no files of its own: give split or files, "
                "not both"
            )
        return tree


C = TypeVar("C", bound=Corpus)


def as_list(value: Any) -> Any:
    """One corpus is a list of one."""
    if isinstance(value, float):
        raise ValueError(f"a share of the training examples is written as {{split: {value}}}")
    return [value] if isinstance(value, (dict, Corpus)) else value


def _some(corpora: list[C]) -> list[C]:
    if not corpora:
        raise ValueError("the list is empty: name at least one corpus, or leave the key out")
    return corpora


def _held_out_kind(value: Any) -> str:
    share = isinstance(value, dict) and "split" in value and "dataset" not in value
    return "[split]" if share or isinstance(value, Split) else "[corpora]"


HeldOut = Annotated[
    Annotated[Split, Tag("[split]")]
    | Annotated[list[C], BeforeValidator(as_list), AfterValidator(_some), Tag("[corpora]")],
    Discriminator(_held_out_kind),
]
"""Corpora of its own, or a share of the training examples."""


class Splits(Config, Generic[C]):
    """The examples of a run, whatever they are, and which of them are kept."""

    UNIT: ClassVar[str] = "pairs"
    """What messages call the examples."""
    MORE: ClassVar[str] = ""
    """What to do where none is left."""

    train: Annotated[list[C], BeforeValidator(as_list)]
    """One corpus, or a list of them that are mixed by weight. An imported run has none."""
    validation: HeldOut[C] = Split(split=0.02)
    """Examples to choose the best checkpoint with."""
    test: HeldOut[C] | None = None
    """Examples to measure with at the end."""
    split_seed: int | None = Field(None, ge=0, lt=2**63)
    """Seed of what `split` sets aside; by default training.seed. Runs to be compared need the same
    split."""
    deduplicate: bool = True
    """Drop training examples that stand twice. Where corpora share some, the one with the highest
    weight keeps them."""
    max_characters: int = Field(20_000, ge=1)
    """A line longer than this is taken for a broken file."""
    bad_lines: BadLines = "auto"
    """What to do with empty lines, lines over max_characters, rows of a table whose cells are
    missing, too many or no text, and images that cannot be read. `drop`: drop and count them.
    `error`: stop and name them. `auto`: drop and count them if they are at most 1 % of a split's
    examples, else stop and name them."""
    encoding: str = "utf-8"
    """How text files are encoded, by Python's names: `cp949` is what Excel and Notepad save on
    Korean Windows. It holds for all files above, and for those given to `regard predict` and
    `regard evaluate`."""
    workers: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"
    """Processes that tokenise, and threads that prepare batches while the model computes. `auto`:
    one process per core for a split of 100,000 examples or more, and one thread, or more if the
    model has to wait for batches. 0: a single process, and each batch is prepared when it is
    needed. The result is the same."""

    @classmethod
    def corpus_class(cls) -> type[C]:
        """The class of its corpora."""
        [corpus] = get_args(cls.model_fields["train"].annotation)
        return cast("type[C]", corpus)

    @field_validator("encoding")
    @classmethod
    def _known(cls, encoding: str) -> str:
        with suppress(LookupError, ValueError):
            encoding.encode(encoding)  # refuses what is no encoding of texts
            name = codecs.lookup(encoding).name
            if name not in NOT_OF_FILES:
                return name
        hint = did_you_mean(encoding.lower(), ENCODINGS)
        raise ValueError(f"Python has no text encoding {encoding!r} ({hint})")

    def cleaning(self, column: str) -> Cleaning:
        """How the texts of a column are cleaned, before anything else."""
        return Cleaning()

    def language(self, column: str) -> str | None:
        """The language of a column, for a model that reads its token before each text."""
        return None

    @property
    def cleaned(self) -> list[Any] | None:
        """The settings of `cleaning`, for data whose texts are searched for signs of it; None for
        other data."""
        return None

    @property
    def by_label(self) -> bool:
        """Whether a share that is set aside has every label in its proportion."""
        return False

    def drops(self, bad: int, of: int) -> bool:
        """Whether so many examples of all that cannot be used are dropped, rather than an error."""
        return (
            bad == 0
            or self.bad_lines == "drop"
            or (self.bad_lines == "auto" and bad <= TOLERATED * of)
        )

    @property
    def corpora(self) -> list[C]:
        parts = (
            part for part in (self.train, self.validation, self.test) if isinstance(part, list)
        )
        return [corpus for part in parts for corpus in part]

    @property
    def limits(self) -> dict[str, int | float]:
        """The limits that examples are dropped by, by the reason's name in the report."""
        return {"over_long_line": self.max_characters}


class Data(Splits[C]):
    """The examples of a run."""

    max_length: int = Field(200, ge=1)
    """Longest side of a training example, in tokens; longer ones are dropped and counted."""
    max_ratio: float | None = Field(None, gt=1)
    """Largest ratio of the longer to the shorter side in tokens; pairs beyond it are dropped and
    counted."""

    @property
    def limits(self) -> dict[str, int | float]:
        ratio = {} if self.max_ratio is None else {"max_ratio": self.max_ratio}
        return {**super().limits, "max_length": self.max_length, **ratio}


class TextPairs(Data[C]):
    """The examples of a run."""

    unescape: bool = False
    """Read HTML entities as the characters that they stand for: `&apos;` is `'`. For all texts of
    training, evaluation and prediction."""
    detokenise: Detokenise | dict[Literal["source", "target"], Detokenise] = False
    """Put signs and endings back to their words in text that a tokeniser such as Moses' has split:
    `it 's 5 @-@ 6 .` becomes `it's 5-6.`. `fr` leaves the space before `? ! : ; %` and in « » that
    French has. One value for both sides, or one each, as {source: true, target: fr}. For all texts
    of training, evaluation and prediction."""
    source_language: str | None = None
    """The language of the sources, for a model of many languages such as M2M-100 or NLLB: a code
    such as `ko`, or its token, such as `__ko__` or `kor_Hang`. The token comes before every
    source."""
    target_language: str | None = None
    """The language to write: its token is the first that the decoder writes."""

    def language(self, column: str) -> str | None:
        return {"source": self.source_language, "target": self.target_language}.get(column)

    def cleaning(self, column: str) -> Cleaning:
        chosen: Any = self.detokenise
        if isinstance(chosen, dict):
            chosen = chosen.get(column, False)
        return Cleaning(self.unescape, chosen)

    @property
    def cleaned(self) -> list[Any]:
        return [self.unescape, self.detokenise]


class TrainingConfig(Config):
    """The recipe's section `training`."""

    steps: int | None = Field(None, ge=1)
    """Updates to make."""
    epochs: int | None = Field(None, ge=1)
    """Passes over the training data; with `steps` given too, the earlier of the two ends the
    training."""
    minutes: float | None = Field(None, gt=0)
    """Minutes that the training may take, instead of `steps` and `epochs`: the steps are planned
    for the pace of this machine, validations included, so that the schedule ends with the time. The
    run keeps their number."""
    batch_tokens: int | Literal["auto"] = "auto"
    """Largest batch: rows times the longest side, in tokens. `auto`: a hundredth of an epoch, from
    1,024 to 16,384 (4,096 on a CPU), or less where the memory holds less."""
    accumulate: int = Field(1, ge=1)
    """Batches a step: their gradients are added up as if they were one batch."""
    init: str | None = None
    """The folder of a run to begin with the best weights of: one of the same model and tokenizer,
    trained or imported. The sections `model` and `tokenizer` may be left out: they are then that
    run's, as in the recipes on raw text that ship, if nothing is said of them."""
    seed: int = Field(1, ge=0, lt=2**63)
    """Seed of the weights, the order of the data and the dropout, and of the split without
    data.split_seed."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train; `auto` takes a GPU if there is one."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Floating-point precision; `auto` is bf16 on a GPU that has it, else fp32."""
    compile: Literal["auto", True, False] = "auto"
    """Compile the model with torch.compile: a slow start, faster steps. `auto`: on a GPU, if the
    training takes two minutes or more and steps that are timed both ways are faster."""
    engine: Literal["auto", "plain"] = "auto"
    """`plain` trains with every equation as written, without the optimisations of `regard/engine`:
    only slower, and the first thing to try if a result looks wrong."""
    fill: Literal["auto", True, False] = "auto"
    """Fill all batches to the same number of tokens, with sentences of any length, instead of
    putting sentences of similar length into padded batches. `auto`: on a GPU, if the model computes
    on packed sentences."""

    checkpoint_activations: bool = False
    """Keep only what enters each block of a Transformer, and compute the rest anew in the backward
    pass: less memory, about a third more time."""

    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """How gradients become updates."""
    learning_rate: float = Field(1e-3, gt=0)
    """The highest learning rate of the schedule. Default: what suits the model, see the table of
    models; with `training.init` a tenth of that, and 5e-5 for a head on GPT or BERT."""
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field(
        [0.9, 0.98], min_length=2, max_length=2
    )
    """Adam's decay rates."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """SGD's momentum."""
    weight_decay: float = Field(0.0, ge=0)
    """Pull of the weights towards zero."""
    decay_biases: bool = False
    """Whether `weight_decay` also pulls biases and the gains of norms; BERT's and GPT's authors
    leave them out."""
    schedule: Literal["wsd", "linear", "cosine", "inverse_sqrt", "constant", "plateau"] = "wsd"
    """How the learning rate falls after the warm-up. `wsd` (warm-up, stable, decay): not before the
    last fifth of the steps, then linearly to zero; `linear` and `cosine`: to zero from the start;
    `inverse_sqrt`: as 1 / sqrt(step), whatever the number of steps; `plateau`: it is halved when
    the validation stops improving."""
    warmup: Literal["auto"] | Annotated[int, Field(ge=0)] | Annotated[float, Field(gt=0, lt=1)] = (
        "auto"
    )
    """Steps over which the learning rate rises to its highest; below 1, a share of all steps.
    `auto`: a tenth of all steps, at most 4,000. The run's recipe has their number, which a resumed
    training with more steps keeps."""
    plateau_factor: float = Field(0.5, gt=0, lt=1)
    """What `plateau` multiplies the learning rate by."""
    plateau_patience: int = Field(3, ge=0)
    """Validations without a better one that `plateau` waits for."""
    clip: float | None = Field(1.0, gt=0)
    """Largest norm of the gradient; null does not clip."""

    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Share of the probability that the loss spreads over the whole vocabulary."""
    teacher_forcing: float = Field(1.0, ge=0, le=1)
    """Share of the words the decoder reads that are the reference's; the others are its own
    (scheduled sampling)."""
    ema: float | None = Field(None, gt=0, lt=1)
    """Decay of an exponential average of the weights, which is then what is validated and used."""
    average: int = Field(1, ge=1)
    """Average the weights of the last so many checkpoints at the end; used if it validates
    better."""

    log_every: int | None = Field(None, ge=1)
    """Steps between two lines of the log; default: 50, or a fiftieth of the steps if that is
    less."""
    validate_every: int | None = Field(None, ge=1)
    """Steps between two validations; default: once an epoch. Validations that would take more than
    a tenth of the training, and half a minute in all, then become rarer: one every two, four, ...
    epochs, but at least four. Not with `patience` and `schedule: plateau`, which count them."""
    checkpoint_every: int | None = Field(None, ge=1)
    """Steps between two checkpoints, besides those of validations; default: once an epoch, or as
    often as `validate_every` says."""
    keep_best: int = Field(1, ge=1)
    """How many of the best checkpoints to keep."""
    best: str = "loss"
    """The validation metric that decides: loss, perplexity, or one of the task's. Of checkpoints
    that are equal in it the one with the lower loss is the best. The schedule `plateau` waits for
    the metric itself."""
    patience: int | None = Field(None, ge=1)
    """Stop after so many validations without a better one."""
    decode: int = Field(200, ge=0)
    """How many validation examples to decode for the task's metrics: a random sample, the same in
    every training; 0 decodes none."""
    samples: int = Field(2, ge=0)
    """How many of them to show."""
    watch: str | None = Field(None, min_length=1, max_length=500)
    """A text to look at during the training: about 20 times its output, probabilities and attention
    are stored in watch.json, and the studio shows how they change."""

    @field_validator("batch_tokens")
    @classmethod
    def _holds_a_token(cls, batch_tokens: int | str) -> int | str:
        if isinstance(batch_tokens, int) and batch_tokens < 1:
            raise ValueError(f"{batch_tokens} is too small (allowed: 1 and more, or auto)")
        return batch_tokens

    @model_validator(mode="after")
    def _has_an_end(self) -> TrainingConfig:
        if self.minutes is not None and (self.steps is not None or self.epochs is not None):
            raise ValueError(
                "minutes plans the number of steps: leave out steps and epochs beside it"
            )
        if self.steps is None and self.epochs is None and self.minutes is None:
            raise ValueError("say when to stop: give steps, epochs, or both; or minutes")
        return self


class Recipe(Config):
    """The sections of a recipe that data and tasks read (recipes/recipe.py has all of them); a task
    knows the types of its own sections."""

    task: str
    """What the run is for: a name in TASKS."""
    data: Any
    tokenizer: TokenizerConfig = TokenizerConfig()
    """How text becomes tokens."""
    model: Any
    training: TrainingConfig
    """How it is trained."""
    search: Any
    evaluation: Any
    within: str | None = None
    """The only folder from which data, tokenizers and word vectors may be read, including files
    that a table names, such as images. Any other file is refused as if it were missing, and so is
    every dataset of the Hugging Face library. For recipes written by others: the studio and the
    server set it to the folder of what was sent."""

    def readable_folder(self, base: Path) -> Path | None:
        """`within`, a path relative to `base`, with its links followed; None where every file may
        be read."""
        return None if self.within is None else (base / self.within).resolve()
