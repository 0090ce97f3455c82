"""A user's files -> a recipe for them: one that ships, with the data line and the sizes that suit
it filled in."""

from __future__ import annotations

import json
import os
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import escape
from importlib import resources
from importlib.util import find_spec
from itertools import chain, combinations, groupby, islice, permutations
from math import ceil, inf, log2
from pathlib import Path
from random import Random
from statistics import mean, quantiles
from typing import Any, NamedTuple, TypeVar

import numpy as np

from regard.config import parse_yaml
from regard.data.config import OBJECTS, TABLES, Corpus
from regard.data.conll import DOCUMENT, OUTSIDE, fields_of, is_chunk_tag, is_comment, shape_of
from regard.data.corpora import Part
from regard.data.formats import (
    RECORDS,
    Key,
    is_array,
    leaves_in,
    object_in,
    objects_of,
    plain_columns,
    read_parquet,
)
from regard.data.prepare import NANS
from regard.data.raw import RawText
from regard.data.readers import DatasetReader, Reader, is_saved
from regard.data.squad import QuestionedText, squad_rows
from regard.data.stories import NUMBERED
from regard.errors import DataError, did_you_mean
from regard.recipes.shipped import shipped_text
from regard.tasks import TASKS
from regard.text.files import EncodingError, TextFile, open_text
from regard.text.normalise import nfc
from regard.text.vocabularies import common_characters

R = TypeVar("R")
SAMPLE = 2000  # rows that are looked at
NAMES = {
    "source": (
        "source",
        "src",
        "input",
        "question",
        "q",
        "document",
        "article",
        "body",
        "content",
        "text",
        "dialogue",
    ),
    "target": ("target", "tgt", "output", "answer", "a"),
    "summary": ("summary", "highlights", "headline", "abstract", "title"),
    "text": (
        "text",
        "sentence",
        "review",
        "comment",
        "comments",
        "document",
        "content",
        "tweet",
        "message",
        "utterance",
        "startphrase",
        "question",
        "context",
        "premise",
        "stem",
    ),
    "class": (
        "label",
        "labels",
        "class",
        "category",
        "sentiment",
        "gold_label",
        "polarity",
        "intent",
        "topic",
        "emotion",
    ),
    "number": ("score", "rating", "stars", "similarity", "grade"),
}
"""What columns are often called, by what they hold."""
IMAGE = re.compile(r"(?!\w+://).*\.(png|jpe?g|gif|bmp|webp|tiff?|npy)", re.IGNORECASE)
"""The name of an image's file, or of its features; not a URL."""
SECTIONS = ("task", "data", "tokenizer", "model", "head", "training", "search", "evaluation")
IDEOGRAPHIC = ("Cjk", "Hiragana", "Katakana")  # scripts of thousands of characters
TOKENIZE = {"translation": "char", "captioning": "char", "summarization": "characters"}
"""`evaluation.tokenize` where words say little, as in Korean, Chinese and Japanese."""
ROLES = ("text", "first", "second", "label", "source", "target", "document", "summary")
"""What a user may choose a column of a table for."""
LABELLINGS = ("classification", "regression")
"""What a user may choose to do with labels that are whole numbers."""
PARTS: dict[Part, str] = {
    "train": "train|training|trn",
    # CoNLL-2003 has testa and testb
    "validation": "validation|valid|val|development|devel|dev|testa",
    "test": "test|testb|tst",
}
"""What names of files say that these are for, as a word of its own."""
OWN_FILES = {
    "validation": "files of their own, to choose the best checkpoint",
    "test": "files of their own, for `regard evaluate`",
}
"""Comments on a split that is not a share of the training data."""
LINEAR_ROWS = 2**18  # of the table of the linear model beside a network
VALIDATIONS = 10  # of a training that goes on to the end of its schedule
ENDS = ("steps", "epochs", "validate_every", "patience")  # keys of `training` that come first


class Sizes(NamedTuple):
    """What suits an amount of data."""

    below: float  # the amount: examples, or characters of raw text
    preset: str
    vocabulary: int
    epochs: int
    warmup: int
    patience: (
        int | None
    )  # validations; None trains to the end: the validation set is too small to choose by
    batch_tokens: int | None  # None leaves it to `auto`
    dropout: float | None = None


class Plan(NamedTuple):
    """How a recipe that ships is fitted to data."""

    recipe: str
    lengths: list[int]  # what data.max_length may be
    steps: int  # the fewest that are worth training for
    sizes: list[Sizes]
    changes: dict[str, Any]  # what else is to be different, by path; None takes a key out


_PLANS = resources.files("regard.recipes") / "proposals" / "plans.yaml"
_TREE = parse_yaml(_PLANS.read_text(encoding="utf-8"), "plans.yaml")
FILLED: dict[str, str] = _TREE.pop(
    "comments"
)  # on what is filled in, where those of the recipe that ships do not fit
PLANS = {
    task: Plan(**{**plan, "sizes": [Sizes(**size) for size in plan["sizes"]]})
    for task, plan in _TREE.items()
}


# The recipe


class Size(NamedTuple):
    """What texts look like."""

    script: str  # what most letters belong to: Latin, Hangul, Cjk, ...
    words: float  # words of a text, on average
    characters: int  # what 99 of 100 texts do not exceed; of raw text the average
    alphabet: int  # different characters, without rare ones

    @classmethod
    def of(cls, texts: Sequence[str]) -> Size:
        lengths = sorted(map(len, texts)) or [0]
        longest = quantiles(lengths, n=100)[-1] if len(lengths) > 1 else lengths[0]
        letters = (sign for text in texts[:300] for sign in nfc(text)[:300] if sign.isalpha())
        scripts = Counter(
            unicodedata.name(letter, "no").split()[0].split("-")[0] for letter in letters
        )
        script = scripts.most_common(1)[0][0].capitalize() if scripts else "no"
        alphabet = common_characters(Counter(chain.from_iterable(map(nfc, texts))))
        return cls(
            script, mean(len(text.split()) for text in texts or [""]), round(longest), len(alphabet)
        )


@dataclass(frozen=True)
class DataProfile:
    """What a recipe is proposed from."""

    task: str
    data: dict[str, Any]  # the line `data.train`: the file, as a Path, and its columns
    examples: int
    sizes: tuple[Size, ...] = ()  # of what is read and, last, of what is written
    settings: dict[str, Any] = field(
        default_factory=dict
    )  # what else the data decides, by its path in the recipe
    notes: tuple[str, ...] = ()  # what the user should know of the choice
    held_out: dict[Part, dict[str, Any]] = field(default_factory=dict)
    """The lines `data.validation` and `data.test`, if they have files of their own."""


def recipe_text(profile: DataProfile, files: Sequence[str], folder: Path) -> str:
    """The YAML of a recipe, to be saved in `folder`, for one file or folder, or for two parallel
    files."""
    plan = PLANS[profile.task]
    settings = {
        **plan.changes,
        **_data(profile, folder),
        **_fitted(profile, plan),
        **profile.settings,
    }
    template = shipped_text(plan.recipe)
    tree, comments, section = parse_yaml(template, plan.recipe), dict[str, str](), ""
    for indent, key, comment in re.findall(r"^( *)(\w+):.*?\s# (.*)$", template, re.MULTILINE):
        section = section if indent else key
        comments[f"{section}.{key}" if indent else key] = comment
    blocks = {path.partition(".")[0] for path in comments if "." in path}
    for path, value in settings.items():
        section, _, key = path.rpartition(".")
        node = tree.setdefault(section, {}) if section else tree
        node[key] = deepcopy(value)
        if value is None:
            del node[key]
    comments |= {path: FILLED[path] for path in settings if path in FILLED}
    comments |= {f"data.{part}": OWN_FILES[part] for part in profile.held_out}
    if "evaluation" in profile.settings:
        comments["evaluation"] = "by the words that MeCab finds, as is usual for Japanese"
    if profile.sizes:
        comments["data.train"] = "; ".join(
            f"{size.script} script, {size.words:.1f} words" for size in profile.sizes
        )
    amount = f"{profile.examples:,} {TASKS[profile.task].data.UNIT}"
    title = (
        f"Proposed by `regard check` for {' and '.join(files)}: {amount}. Made from the "
        f"recipe `{plan.recipe}`."
    )
    lines = [("", note) for note in (title, *_notes(profile, plan))]
    for section in (name for name in SECTIONS if name in tree):
        if section in blocks:
            lines.append((f"{section}:", comments[section]))
            items = sorted(
                tree[section].items(),
                key=lambda item: section == "training" and item[0] not in ENDS,
            )
            lines += [
                (f"  {key}: {_flow(value)}", comments[f"{section}.{key}"]) for key, value in items
            ]
        else:
            lines.append((f"{section}: {_flow(tree[section])}", comments[section]))
    width = max(len(line) for line, _ in lines if len(line) <= 48) + 1
    return "".join(
        f"{line:{width}} # {comment}\n" if line else f"# {comment}\n" for line, comment in lines
    )


def _data(profile: DataProfile, folder: Path) -> dict[str, Any]:
    """The data line, and the splits: files of their own, or shares of about a thousand examples
    each."""
    split = {"split": round(min(0.1, max(0.005, 1000 / max(profile.examples, 1))), 3)}
    own = {part: _line(line, folder) for part, line in profile.held_out.items()}
    return {
        "data.train": _line(profile.data, folder),
        "data.validation": own.get("validation", split),
        "data.test": own.get("test", split),
        "data.split_seed": 1 if len(own) < 2 else None,
        "data.bad_lines": "drop",
    }


def _line(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A data line, with paths as seen from a folder, or absolute on another drive of Windows."""
    line = dict(data)
    for name, value in line.items():
        if isinstance(value, Path):
            line[name] = str(value.absolute())
            with suppress(ValueError):
                line[name] = Path(os.path.relpath(value, folder)).as_posix()
    return line


def _fitted(profile: DataProfile, plan: Plan) -> dict[str, Any]:
    """What the amount of data decides, by path; None takes a key out of the recipe that ships."""
    if not plan.sizes:  # the recipe for stories is for some thousand questions
        few = {"model.linear_start": 20, "model.restarts": 10, "training.epochs": 120}
        return few if profile.examples < 5_000 else {}
    is_text = profile.task == "language_modeling"
    amount = profile.examples * (profile.sizes[0].characters if is_text else 1)
    sizes = next(sizes for sizes in plan.sizes if amount < sizes.below)
    longest = max((size.characters for size in profile.sizes), default=0)
    by_character = _by_character(profile)
    syllables = by_character and "text" in profile.data
    if syllables:  # the end of the schedule is what generalises best
        half = (sizes.batch_tokens or 0) // 2
        sizes = sizes._replace(epochs=max(10, sizes.epochs // 2), batch_tokens=half, patience=None)
    elif "first" in profile.data:  # networks that compare two texts overfit within a few epochs
        sizes = sizes._replace(epochs=min(sizes.epochs, 8), patience=3)
    fitting = (length for length in plan.lengths if longest <= (1 if by_character else 2) * length)
    length = next(fitting, plan.lengths[-1] if plan.lengths else 0)
    each = 3 if syllables else 8  # characters of the longest texts for a token of the average one
    tokens = min(
        max((max(size.words, size.characters / each) for size in profile.sizes), default=inf),
        length or inf,
    )
    scripts = [size.script for size in profile.sizes]
    vocabulary = (
        sizes.vocabulary if {*scripts}.isdisjoint(IDEOGRAPHIC) else max(sizes.vocabulary, 16_000)
    )
    alphabet = sum(size.alphabet for size in profile.sizes)
    # a tokenizer would be refused, or have hardly more than characters
    if 5 * alphabet > 4 * vocabulary:
        vocabulary = 1_000 * ceil(alphabet / 500)
    settings: dict[str, Any] = {
        "data.max_length": length or None,
        "tokenizer.vocabulary": vocabulary,
        "model.preset": sizes.preset,
    }
    if sizes.dropout is not None:
        settings["model.dropout"] = sizes.dropout
    if profile.task in TOKENIZE and scripts[-1] in ("Hangul", *IDEOGRAPHIC):
        settings["evaluation"] = {"tokenize": TOKENIZE[profile.task]}
    batch = sizes.batch_tokens
    if profile.task == "captioning":
        pixels = 64 if sizes.preset == "tiny" else 128
        settings["model.images"] = {"size": pixels}
        tokens = max(tokens, 1 if "model.feature_width" in profile.settings else (pixels // 8) ** 2)
    elif batch and not is_text:
        batch = max(batch, 4 * length * len(profile.data.get("choices", "1")))
    if profile.task in ("classification", "regression"):
        batch = max(batch or 0, 2 ** ceil(log2(16 * tokens)))
        if by_character:
            settings |= {
                "tokenizer.kind": "character",
                "tokenizer.vocabulary": None,
                "model.widths": [1, 2, 3, 4],
            }
            settings["head.linear"] = LINEAR_ROWS
        if "first" in profile.data:
            is_class = profile.task == "classification"
            settings |= {"head.apart": True, "head.pooling": "max" if is_class else "mean"}
            settings |= {"training.best": "loss"} if is_class else {}
        elif syllables:
            settings |= {
                "model.ngrams": 2**17,
                "training.betas": [0.9, 0.999],
                "training.label_smoothing": 0.1,
            }
        elif profile.sizes[0].words > 100:
            # of long texts the words alone say enough, and are learned fast
            settings |= {"model.widths": [1], "model.dropout": 0.5, "head.pooling": "mean"}
            settings |= {
                "tokenizer.vocabulary": 16_000,
                "training.learning_rate": 0.003,
                "training.best": "loss",
            }
    if profile.task == "tagging":
        settings |= {"head.crf": True, "head.linear": LINEAR_ROWS}
    training = pace(sizes, amount / 3 if is_text else amount * tokens, batch or 4_096, plan.steps)
    if syllables and profile.examples >= 5_000:  # enough to choose by
        training["validate_every"] = ceil(training["steps"] / VALIDATIONS)
    training["batch_tokens"] = batch or "auto"
    return settings | {f"training.{key}": value for key, value in training.items()}


def _by_character(profile: DataProfile) -> bool:
    """Whether characters say more than sub-words: where two texts are compared, and in a short
    Korean text, whose words have many endings and spellings, each of them rare."""
    if "first" in profile.data:
        return profile.task == "regression" or profile.sizes[0].words <= 100
    return (
        profile.task == "classification"
        and profile.sizes[0].script == "Hangul"
        and profile.sizes[0].words <= 100
    )


def pace(sizes: Sizes, tokens: float, batch: int, least: int) -> dict[str, Any]:
    """How long to train: in epochs, or in steps where an epoch has fewer than 20, too few to
    validate after each.

    `tokens` is the size of the data, four fifths of it for training, `batch` that of a batch,
    `least` the fewest steps. The warm-up is a tenth of all steps at most, and the patience lasts
    twice as long.
    """
    epoch = max(1, int(0.8 * tokens / batch))
    steps = max(least, sizes.epochs * epoch)
    warmup = min(sizes.warmup, steps // 10)
    by_steps = epoch < 20 or sizes.patience is None
    every = steps if sizes.patience is None else max(epoch, 20)
    return {
        "steps": steps if by_steps else None,
        "epochs": None if by_steps else ceil(steps / epoch),
        "validate_every": every if by_steps else None,
        "patience": None
        if sizes.patience is None
        else max(sizes.patience, ceil(2 * warmup / every)),
        "warmup": warmup,
    }


def _notes(profile: DataProfile, plan: Plan) -> Iterator[str]:
    """What stands above the recipe."""
    if profile.task == "language_modeling":
        yield "It is for GPT; the recipes bert, elmo and lstm-lm train other models on such data."
        name = profile.data.get("text")
        if isinstance(name, Path) and name.is_file():
            yield (
                "If another text is parallel to it, line by line: regard check "
                f"{shlex.quote(str(name))} OTHER"
            )
        if profile.examples * profile.sizes[0].characters < plan.sizes[0].below:
            yield (
                "So little text can only be learned by heart, so the last checkpoint is "
                "kept; for more than that,"
            )
            yield "start from a pre-trained model: `regard import`, then training.init."
    elif "training.init" in plan.changes:
        changes = {**_data(profile, Path()), **profile.settings, "training.init": "runs/bert"}
        changes["training.epochs"] = max(3, ceil(1_500 / max(1, profile.examples)))
        overrides = [f"{path}={_flow(value)}" for path, value in changes.items()]
        yield (
            "Better with few examples: fine-tune runs/bert, made by `regard import` or "
            "`regard train bert`:"
        )
        yield shlex.join(
            ["regard", "train", plan.recipe, *overrides, "--out", f"runs/{plan.recipe}"]
        )


def _flow(value: Any) -> str:
    """A value in the flow style of YAML; a text is quoted unless it is a plain word that is read
    back as it is."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_flow(item)}' for name, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    plain = re.fullmatch(r"[\w./-]+", value) and parse_yaml(f"x: {value}", "") == {"x": value}
    return value if plain else json.dumps(value, ensure_ascii=False)


# What is in the files


def parts_of(names: Sequence[str]) -> dict[Part, list[str]]:
    """Files by what they are for, if all their names say so and they are as many for each; else all
    are for training.

    Parallel files of a part get the order of those for training: train.en train.ko dev.ko dev.en.
    """
    words = {
        part: re.compile(rf"(?<![^\W\d_])({words})(?![^\W\d_])", re.IGNORECASE)
        for part, words in PARTS.items()
    }
    parts: dict[Part, list[str]] = {}
    for name in names:
        path = Path(name)
        of = next(
            (
                part
                for text in (path.name, path.parent.name)
                for part in words
                if words[part].search(text)
            ),
            None,
        )
        if of is not None:
            parts.setdefault(of, []).append(name)
    train = parts.get("train", [])
    if (
        len(parts) < 2
        or sum(map(len, parts.values())) < len(names)
        or {*map(len, parts.values())} != {len(train)}
    ):
        return {"train": [*names]}
    rest = {part: {words[part].sub("", name): name for name in parts[part]} for part in parts}
    in_order: dict[Part, list[str]] = {"train": train}
    for part in (part for part in PARTS if part in parts and part != "train"):
        alike = rest[part].keys() == rest["train"].keys()
        in_order[part] = [rest[part][key] for key in rest["train"]] if alike else parts[part]
    return in_order


def recognise(
    names: Sequence[str],
    roles: Mapping[str, str] | None = None,
    held_out: Mapping[Part, Sequence[str]] | None = None,
) -> DataProfile:
    """What is in files, in UTF-8 or an encoding that can be told.

    `roles` has columns of a table by some ROLES, and under `task` one of LABELLINGS. `held_out` has
    the files for validation and test: as many as for training each, and of the same kind.
    """
    profile = _recognised_in_its_encoding(names, roles)
    lines = {
        part: _held_out(profile, names, files) for part, files in (held_out or {}).items() if files
    }
    return replace(profile, held_out=lines)


def _held_out(profile: DataProfile, names: Sequence[str], files: Sequence[str]) -> dict[str, Any]:
    """The data line for files that are like those for training."""
    if len(files) != len(names) or "dataset" in profile.data:
        what = f"files for training: {len(names)}, for this part: {len(files)}"
        raise DataError(
            what,
            where=files[0],
            hint="validation and test need as many as training, of the same kind",
        )
    folders = [text_files_in(Path(name)) for name in files]
    encoding = profile.settings.get("data.encoding", "utf-8")
    opened = [
        open_text(name, Path(), encoding)
        for name, folder in zip(files, folders, strict=True)
        if not folder
    ]
    own = [
        Path(escape(name) if profile.task == "story_answering" else folder or name)
        for name, folder in zip(files, folders, strict=True)
    ]
    paths = [key for key, value in profile.data.items() if isinstance(value, Path)]
    if opened and profile.task != "tagging" and TextFile(names[0], Path()).suffixes[0] in RECORDS:
        _refuse_other_header(open_text(names[0], Path(), encoding), opened[0])
    return {**profile.data, **dict(zip(paths, own, strict=True))}


def _refuse_other_header(train: TextFile, other: TextFile) -> None:
    """Refuse two tables of which only one has a header: a row with names would be read as an
    example."""
    named = {
        file.name: isinstance(next(iter(_table(file).columns), 0), str) for file in (train, other)
    }
    if len({*named.values()}) > 1:
        has, has_not = sorted(named, key=lambda name: not named[name])
        what = f"{has} has a header with the names of its columns, {has_not} has none"
        raise DataError(what, where=other.name, hint="give both a header, or neither")


def _recognised_in_its_encoding(
    names: Sequence[str], roles: Mapping[str, str] | None
) -> DataProfile:
    try:
        return _recognised(names, "utf-8", roles or {})
    except EncodingError as error:
        if not (encoding := error.encoding):
            raise
    for name, other in permutations(names, 2):
        if _is_utf8_only(open_text(other, Path()), encoding):
            hint = f"save {name} as UTF-8: data.encoding holds for both"
            raise DataError(f"this is {encoding}, and {other} is UTF-8", where=name, hint=hint)
    profile = _recognised(names, encoding, roles or {})
    return replace(profile, settings={"data.encoding": encoding, **profile.settings})


def _is_utf8_only(file: TextFile, encoding: str) -> bool:
    """Whether a file is UTF-8, and not the same in another encoding, as plain ASCII may be."""
    try:
        return sum(line.encode().decode(encoding, "replace") != line for line in file.lines()) > 0
    except DataError:
        return False


def _recognised(names: Sequence[str], encoding: str, roles: Mapping[str, str]) -> DataProfile:
    """What is in one file, in two parallel files, or in a folder: a saved dataset, or texts."""
    if len(names) == 1 and is_saved(Path(names[0])):
        examples, rows = _sample(
            DatasetReader(Corpus(dataset=names[0]), Path(), "train").examples()
        )
        table = _Table({"dataset": Path(names[0])}, _columns_of(examples), rows)
        return _chosen(table, roles) if roles else _texts(table)
    if len(names) == 1 and (pattern := text_files_in(Path(names[0]))):
        return _raw_text(pattern, encoding)
    files = [open_text(name, Path(), encoding) for name in names]
    if len(files) > 2 or (len(files) == 2 and any(file.suffixes[0] in TABLES for file in files)):
        hint = (
            f"one file with all columns ({', '.join(TABLES)}), or two text files, parallel line by "
            "line; "
            "--validation FILE and --test FILE name others, as do names with train, dev and test"
        )
        raise DataError(
            f"{len(files)} files cannot be read together", where=files[1].name, hint=hint
        )
    if len(files) == 2:
        pairs, rows = _sample(zip(*(file.lines() for file in files), strict=False))
        return _pairs({}, rows, [*map(Path, names)], [*zip(*pairs, strict=True)])
    [file] = files
    if roles:
        Corpus.model_construct().format(file)
        return _chosen(_table(file), roles)
    first = (
        next(objects_of(file))[1] if file.suffixes[0] == ".json" and not is_array(file) else "{}"
    )
    if "data" in object_in(first, file.name):  # SQuAD's
        questions = sum(1 for _ in squad_rows(file, QuestionedText(file=file.name)))
        return DataProfile("question_answering", {"file": Path(file.name)}, questions)
    lines = (
        [*islice(filter(str.strip, file.lines()), SAMPLE)] if file.suffixes[0] != ".parquet" else []
    )
    numbered = bool(lines) and all(map(NUMBERED.fullmatch, lines)) and int(lines[0].split()[0]) == 1
    if (
        numbered
        and file.suffixes[0] == ".txt"
        and (questions := sum("\t" in line for line in file.lines()))
    ):
        data = {
            "file": Path(escape(file.name))
        }  # a recipe may name several files of stories by a pattern
        return DataProfile("story_answering", data, questions)
    if tagged := _tagged_words(file):
        return tagged
    if file.suffixes[0] in TABLES:
        table = _table(file)
        objects = _objects(table) if file.suffixes[0] in OBJECTS else None
        return objects or _captions(table) or _texts(table)
    if 2 * sum("\t" in line for line in lines) <= len(lines):
        return _raw_text(file.name, encoding)
    hint = (
        f"a table ({', '.join(TABLES)}), CoNLL columns, SQuAD's .json, bAbI's numbered lines, "
        f"two parallel texts: {file.name} OTHER, or raw text: regard check gpt "
        f"data.train.text={file.name}"
    )
    raise DataError("the format is unclear: most lines have tabs", where=file.name, hint=hint)


def _sample(records: Iterable[R]) -> tuple[list[R], int]:
    """The first records and some of all others, since many files are sorted by label or length; and
    their number."""
    rows, number, random = list[R](), 0, Random(0)
    for number, record in enumerate(records, 1):
        if number <= SAMPLE:
            rows.append(record)
        elif (place := random.randrange(20, number)) < SAMPLE:  # the first ones tell a header
            rows[place] = record
    return rows, number


# Tables

NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


@dataclass(frozen=True)
class _Table:
    """A sample of the rows of a table."""

    data: dict[str, Any]  # the file or the dataset, as a recipe names it
    columns: Mapping[Key, Sequence[Any]]  # texts and, of a .jsonl or a dataset, also lists
    rows: int  # of the whole table
    chosen: Mapping[str, Key] = field(
        default_factory=dict
    )  # their own names of columns that are named by their roles

    @cached_property
    def kinds(self) -> dict[Key, str]:
        kinds = {key: _kind(key, values) for key, values in self.columns.items()}
        own = self.chosen.get("label")
        if (
            own is not None
            and _is_named(own, "number")
            and _kind(own, self.columns["label"]) == "number"
        ):
            kinds["label"] = "number"
        return kinds

    def of_kind(self, *kinds: str) -> list[Key]:
        return [key for key, kind in self.kinds.items() if kind in kinds]

    @cached_property
    def sentences(self) -> list[Key]:
        """The columns of text. Single words beside sentences are rather names."""
        words = {
            key: mean(len(text.split()) for text in self.columns[key])
            for key in self.of_kind("text")
        }
        return [key for key in words if words[key] >= 1.5 or max(words.values()) < 3]

    def text(self, *others: Key) -> Key | None:
        """The column of text that is none of the others: the one that is named so, else the
        longest."""
        keys = [key for key in self.sentences if key not in others]
        lengths = {key: mean(map(len, self.columns[key])) for key in keys}
        return min(keys, key=lambda key: (not _is_named(key, "text"), -lengths[key]), default=None)


def _kind(key: Key, values: Sequence[Any]) -> str:
    """Of a column: list, image, number (with a fraction, or named so), class (few short words or
    whole numbers), text or other."""
    if any(isinstance(value, list) for value in values):
        return "list"
    filled = [value.strip() for value in values if value.strip() and value not in NANS]
    distinct = {*filled}
    if filled and _are_images(values):
        return "image"
    # a named label may often be missing
    if len(distinct) > 1 and (_is_label(key) or len(filled) >= 0.9 * len(values)):
        numbers = [value for value in filled if NUMBER.fullmatch(value)]
        numeric = len(numbers) >= 0.95 * len(filled)  # the others are for `check` to name
        if numeric and (_is_named(key, "number") or any(float(value) % 1 for value in numbers)):
            return "number"
        few = len(distinct) <= (len(filled) / 2 if _is_label(key) else min(50, len(filled) / 4))
        if (
            few
            and max(map(len, distinct)) <= 40
            and mean(len(value.split()) for value in distinct) <= 3
        ):
            return "class"
    texts = [
        value
        for value in filled
        if any(map(str.isalpha, value)) and not re.match("https?://", value)
    ]
    repeated = len(values) > 50 and len(distinct) <= 10
    return "text" if len(texts) > len(values) / 2 and not repeated else "other"


def _last_name(key: Key) -> str:
    """The last part of a nested name, in lower case."""
    return str(key).rpartition(".")[2].lower()


def _is_named(key: Key, *roles: str) -> bool:
    """Whether a column's name says that it holds one of these."""
    return any(_last_name(key) in NAMES[role] for role in roles)


def _are_images(values: Sequence[str]) -> bool:
    """Whether nearly all values name images."""
    return sum(IMAGE.fullmatch(value.strip()) is not None for value in values) > 0.9 * len(values)


def _is_label(key: Key) -> bool:
    return _is_named(key, "class", "number")


def _table(file: TextFile) -> _Table:
    Corpus.model_construct().format(file)
    columns: Mapping[Key, Sequence[Any]] = {}
    number = 0
    if file.suffixes[0] == ".parquet":
        if names := plain_columns(file):
            rows, number = _sample(
                row.values for row in read_parquet(file, names, frozenset(names))
            )
            columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    elif file.suffixes[0] in OBJECTS:
        lines, number = _sample(objects_of(file))
        columns = _columns_of(
            object_in(text, file.row(line)) for line, text in sorted(lines) if str(text).strip()
        )
    else:
        records, number = _sample(
            fields for _, fields in RECORDS[file.suffixes[0]](file, Corpus.model_construct())
        )
        width = Counter(map(len, records)).most_common(1)[0][0]
        below = [record for record in records[1:] if len(record) == width]
        header = _is_header(records[0], below) or _names_labels(records[0], below)
        keys: Sequence[Key] = records[0] if header else range(width)
        if header and not records[1:]:
            raise DataError("there is a header, but no row below it", where=file.name)
        cells = [record[: len(keys)] for record in records[header:] if len(record) >= len(keys)]
        columns, number = (
            {key: values for key, *values in zip(keys, *cells, strict=True)},
            number - header,
        )
    return _Table({"file": Path(file.name)}, columns, number)


def _is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first record names the columns: by distinct single words, where one is a known
    name, or where two columns below hold texts of several words. pandas leaves the first name
    empty.

    A file sorted by length begins with single words, too: then the next rows are like the first.
    """
    if len(set(first)) < len(first) or not all(first[1:]):
        return False
    for place, name in enumerate(first):
        if _are_images([row[place] for row in rows if len(row) > place]):
            return not _are_images([name])
    if not _are_words(first) or any(len(name) > 1 and _is_named(name, *NAMES) for name in first):
        return _are_words(first)  # a single letter, as in Q and A, may also be a word
    if not rows or mean(_are_words(row) for row in rows[:19]) > 0.5:
        return False
    columns = list(zip(*rows, strict=True))
    return sum(mean(" " in cell.strip() for cell in cells) > 0.5 for cells in columns) >= 2


def _are_words(row: Sequence[str]) -> bool:
    return all(re.fullmatch(r"[^\W\d]([\w.-]*\w)?", cell) for cell in row if cell)


def _names_labels(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first record has names: no numbers, and one above a column of labels that is none
    of them."""
    if (
        not rows
        or len(rows[0]) != len(first)
        or any(NUMBER.fullmatch(name) or len(name) > 30 for name in first)
    ):
        return False
    columns = zip(first, *rows, strict=True)
    return any(
        _kind(0, values) in ("class", "number") and name not in values for name, *values in columns
    )


def _columns_of(examples: Iterable[Mapping[str, Any]]) -> dict[Key, list[Any]]:
    """The columns of objects; numbers become texts, and what is neither text nor list an empty
    text."""
    rows = [dict(leaves_in(example)) for example in examples]
    return {
        path: [_cell(row.get(path)) for row in rows]
        for path in dict.fromkeys(chain.from_iterable(rows))
    }


def _cell(value: Any) -> Any:
    return (
        value
        if isinstance(value, str | list)
        else json.dumps(value)
        if isinstance(value, int | float)
        else ""
    )


def _chosen(table: _Table, roles: Mapping[str, str]) -> DataProfile:
    """What is in a table where the user chose columns: these get the names of their roles, and have
    no rivals."""
    where, task = str(next(iter(table.data.values()))), roles.get("task")
    named = _columns_for(
        {role: column for role, column in roles.items() if role != "task"}, table, where
    )
    kinds = [] if {*named} & {"text", "first"} else ["text", "list"]
    kinds += (
        []
        if {*named} & {"label", "source", "target", "document", "summary"}
        else ["class", "number"]
    )
    others = [key for key in table.of_kind(*kinds) if key not in (*named, *named.values())]
    columns = {role: table.columns[key] for role, key in named.items()} | {
        key: table.columns[key] for key in others
    }
    table, profile = replace(table, columns=columns, chosen=named), None
    written, read = (
        ("summary", "document") if {*named} & {"summary", "document"} else ("target", "source")
    )
    source, target = (
        role if role in named else next(iter(others), role) for role in (read, written)
    )
    if task is not None or {*named} & {"text", "first", "label"}:
        _refuse_as_label(table, where, task)
        profile = (task is None and _choices(table)) or _labels(table, task)
    elif {source, target} <= {*table.of_kind("text", "class", "number", "other")}:
        profile = _pairs(
            table.data, table.rows, [source, target], [columns[source], columns[target]]
        )
    labelled = [role for role in named if role in ("text", "first", "second", "label")]
    if profile is None or any(profile.data.get(role) != role for role in labelled):
        hint = "write them into a recipe: 'regard recipes' has one for each task"
        raise DataError(
            "these columns are neither a text and its label nor a pair of texts",
            where=where,
            hint=hint,
        )
    line = {
        name: named.get(key, key) if isinstance(key, str) else key
        for name, key in profile.data.items()
    }
    return replace(profile, data=line)


def _columns_for(roles: Mapping[str, str], table: _Table, where: str) -> dict[str, Key]:
    """The columns that the user chose, in the order of ROLES; one with a name may also be given by
    its number."""
    keys = {str(key): key for key in table.columns}
    keys = dict(zip(map(str, range(len(keys))), table.columns, strict=True)) | keys
    if missing := [column for column in roles.values() if column not in keys]:
        hint = did_you_mean(missing[0], map(str, table.columns))
        raise DataError(f"there is no column {missing[0]!r}", where=where, hint=hint)
    named = {role: keys[roles[role]] for role in ROLES if role in roles}
    for one, other in combinations(named, 2):
        if named[one] == named[other]:
            raise DataError(
                f"{one} and {other} are the same column",
                where=where,
                hint="give each one of its own",
            )
    for one, other in (("first", "second"), ("second", "first")):
        if one in named and other not in named:
            raise DataError(
                f"{one}= needs {other}= beside it",
                where=where,
                hint="two texts of a row that are compared",
            )
    return named


def _refuse_as_label(table: _Table, where: str, task: str | None) -> None:
    """Refuse a column that the user chose for the label, if no label of the task can be in it."""
    if task not in (None, *LABELLINGS):
        hint = f"allowed: {', '.join(LABELLINGS)}; 'regard recipes' has a recipe for each task"
        raise DataError(f"task={task} cannot be chosen here", where=where, hint=hint)
    if "label" not in table.chosen:
        return
    own, values = table.chosen["label"], table.columns["label"]
    count = len({*map(str, values)})
    if count < 2:
        raise _one_value(own, values, where)
    if table.kinds["label"] not in ("class", "number"):
        what = (
            f"column {str(own)!r} is not a label: it has {count:,} different values in "
            f"{len(values):,} rows"
        )
        raise DataError(
            what,
            where=where,
            hint="a label is one of a few short words, or a number with a fraction",
        )


def _one_value(key: Key, values: Sequence[Any], where: str) -> DataError:
    what = (
        f"column {str(key)!r} has one value only, {str(values[0])!r}, in all {len(values):,} rows"
    )
    hint = (
        "a label needs two at least; label=COLUMN chooses another column, source= and "
        "target= two texts"
    )
    return DataError(what, where=where, hint=hint)


# Texts with choices, with labels, alone, or in pairs

CHOICE = re.compile(
    r"((ending|choice|option|answer|candidate|sol|alternative)s?[ ._-]?)?(\d|[a-e])"
)
CHOICE_LABELS = ("0123456789", "123456789", "ABCDEFGHI", "abcdefghi")
COMPARED = (
    ("premise", "hypothesis"),
    ("first", "second"),
    ("question", "passage"),
    ("question", "sentence"),
)


def _texts(table: _Table) -> DataProfile:
    if choices := _choices(table):
        return choices
    texts = table.of_kind("text")
    sources = [key for key in texts if _is_named(key, "source")]
    targets = [
        key for key in texts if _is_named(key, "target", "summary") and key not in sources[:1]
    ]
    are_pairs = sources and any(_is_named(key, "target") for key in targets)
    if not are_pairs and (labels := _labels(table)):
        return labels
    _refuse_one_label(table, are_pairs=bool(are_pairs))
    if len(texts) == len(table.columns) == 1:
        [values] = table.columns.values()
        return _documents(
            {**table.data, "text": texts[0]}, table.rows, mean(map(len, values)), values
        )
    # then these are the two, whatever is in them
    if len(table.columns) == 2 and not table.of_kind("list"):
        texts = [*table.columns]
    if len(texts) < 2:
        seen = f"only column {texts[0]} looks like text" if texts else "no column looks like text"
        what = f"two columns of text are needed, or a text and its label, but {seen}"
        hint = f"the columns are {', '.join(map(str, table.columns))}"
        raise DataError(what, where=str(next(iter(table.data.values()))), hint=hint)
    source = [*sources, *(key for key in texts if key not in targets[:1])][0]
    target = [*targets, *(key for key in texts if key != source)][0]
    return _pairs(
        table.data, table.rows, [source, target], [table.columns[source], table.columns[target]]
    )


def _refuse_one_label(table: _Table, *, are_pairs: bool) -> None:
    """Refuse a table whose column of labels, or the second of its two columns, has one value only:
    it would be taken for a pair of texts."""
    same = [
        key
        for key, values in table.columns.items()
        if len(values) > 1 and len({*map(str, values)}) == 1
    ]
    named = [key for key in same if _is_named(key, "class", "number") and not are_pairs]
    if key := [*named, *(same if len(table.columns) == 2 else ())][:1]:
        raise _one_value(key[0], table.columns[key[0]], str(next(iter(table.data.values()))))


def _pairs(
    data: dict[str, Any], rows: int, keys: Sequence[Any], texts: Sequence[Sequence[str]]
) -> DataProfile:
    """A summary is known by the name of its column, or because it is far shorter; other pairs are
    translations."""
    source, target = map(Size.of, texts)
    task, names = "translation", ("source", "target")
    settings = _japanese(texts[1])
    named = not isinstance(keys[1], Path) and _is_named(keys[1], "summary")
    if named or source.words > max(25, 4 * target.words):
        task, names, settings = "summarization", ("document", "summary"), {}
    return DataProfile(
        task, {**data, **dict(zip(names, keys, strict=True))}, rows, (source, target), settings
    )


def _japanese(texts: Sequence[str]) -> dict[str, Any]:
    """BLEU on the words that MeCab finds, for Japanese texts if it is installed."""
    with_kana = sum(re.search("[\u3041-\u30ff]", text) is not None for text in texts)
    is_japanese = with_kana > len(texts) / 2 and find_spec("MeCab") is not None
    return {"evaluation": {"tokenize": "ja-mecab"}} if is_japanese else {}


def _choices(table: _Table) -> DataProfile | None:
    """A text, its choices in columns that are named and numbered so or in a list, and which of them
    is right."""
    columns: dict[Key, Sequence[Any]] = {**table.columns}
    choices = [key for key in table.of_kind("text") if CHOICE.fullmatch(str(key).lower())]
    for key in table.of_kind("list"):
        if len({*map(len, columns[key])}) == 1 and len(columns[key][0]) > 1:
            by_place = enumerate(zip(*columns[key], strict=True))
            items: dict[Key, Sequence[Any]] = {
                f"{key}.{place}": [*map(_cell, row)] for place, row in by_place
            }
            if all(_kind(item, values) == "text" for item, values in items.items()):
                columns, choices = columns | items, [*items]
    labels = {  # how a column numbers or letters the choices
        key: next(
            (way for way in CHOICE_LABELS if {*map(str, values)} <= {*way[: len(choices)]}), ""
        )
        for key, values in table.columns.items()
    }
    named = sorted(
        filter(labels.get, labels),
        key=lambda key: not _is_label(key) and _last_name(key) != "answer",
    )
    text = table.text(*choices)
    if len(choices) < 2 or text is None or not named:
        return None
    line = {**table.data, "text": text, "choices": choices, "label": named[0]}
    rows = zip(columns[text], *map(columns.__getitem__, choices), strict=True)
    size = Size.of([f"{first} {max(others, key=len)}" for first, *others in rows])
    way = labels[named[0]]
    head = {} if way == CHOICE_LABELS[0] else {"head.labels": [*way[: len(choices)]]}
    return DataProfile("multiple_choice", line, table.rows, (size,), head)


def _labels(table: _Table, task: str | None = None) -> DataProfile | None:
    """A text or two with a class or a number; the likeliest label by its name, then classes, then
    the fewest.

    Without a name for it, a label beside two texts is rather a remark on a pair. The user may have
    chosen the `task`.
    """
    labels = table.of_kind("class", "number")
    labels.sort(key=lambda key: (not _is_label(key), table.kinds[key], len({*table.columns[key]})))
    text = table.text()
    if not labels or text is None:
        return None
    label, inputs = labels[0], {"text": text}
    for first, second in combinations(table.sentences, 2):
        names = (_last_name(first), _last_name(second))
        stems = {re.sub(r"\d+|(?<=[_ -])[ab]$", "", name) for name in names}
        if names in COMPARED or (isinstance(first, str) and len(stems) == 1):
            inputs = {"first": first, "second": second}
            break
    if "text" in inputs and len(table.sentences) > 1 and not _is_label(label) and task is None:
        return None
    line = {**table.data, **inputs, "label": label}
    texts = [*map(" ".join, zip(*(table.columns[key] for key in inputs.values()), strict=True))]
    size = Size.of(texts)
    others = [str(key) for key in labels[1:] if _is_label(key) == _is_label(label)]
    note = (
        f"column {label} is taken for the label; others that may be: {', '.join(others)} "
        "(label=COLUMN)"
    )
    notes: tuple[str, ...] = (note,) if others else ()
    if task is None and (other_task := _other_labelling(table, label)):
        notes += (other_task,)
    if (table.kinds[label] == "number" and task is None) or task == "regression":
        return DataProfile("regression", line, table.rows, (size,), notes=notes)
    counts = Counter(
        value for value in table.columns[label] if value.strip() and value not in NANS
    ).values()
    settings: dict[str, Any] = (
        {"training.best": "f1_macro"} if max(counts) > 3 * min(counts) else {}
    )  # rare ones count
    # held-out texts are like the others: only the loss shows overfitting
    if table.rows >= 5_000 and _overlap(texts):
        settings = {"training.best": "loss", "model.dropout": 0.5, "tokenizer.vocabulary": 16_000}
    return DataProfile("classification", line, table.rows, (size,), settings, notes)


def _other_labelling(table: _Table, label: Key) -> str:
    """A note on numbers that are a few whole ones, such as stars: they may also be meant as
    classes."""
    values = {
        value.strip() for value in table.columns[label] if value.strip() and value not in NANS
    }
    if (
        table.kinds[label] != "number"
        or len(values) > 11
        or not all(value.isdecimal() for value in values)
    ):
        return ""
    own = table.chosen.get(str(label), label)
    return (
        f"column {own} has {len(values)} different whole numbers, which are predicted as numbers "
        "(regression); "
        "task=classification predicts them as classes"
    )


def _overlap(texts: Sequence[str]) -> bool:
    """Whether texts are often parts of others, as the phrases of one sentence are: one in 20 of a
    sample."""
    whole = "\n".join(texts)
    return 20 * sum(whole.count(text) > 1 for text in texts if " " in text) > len(texts)


# Images, tagged words, questions, stories

CAPTION_NAMES = ("caption", "captions", "description", "sentences")
TAGS = ("tags", "ner_tags", "ner", "pos_tags", "labels")
CONLL = (".conll", ".conllu", ".iob", ".iob2", ".bio", ".bioes")


def _captions(table: _Table) -> DataProfile | None:
    """A column of images and one of captions, by its name, or the only other one with text unless
    there is a label."""
    images = table.of_kind("image")
    others = [key for key in table.columns if key not in images[:1]]
    captions = [key for key in others if _last_name(key) in CAPTION_NAMES] or others
    if len(captions) > 1 and not any(map(_is_label, others)):
        captions = [key for key in others if table.kinds[key] == "text"]
    if not images or len(captions) != 1:
        return None
    cells = table.columns[captions[0]]
    texts = [text for cell in cells for text in (cell if isinstance(cell, list) else [cell])]
    size, settings = Size.of(texts), _japanese(texts)
    array = next((name for name in table.columns[images[0]] if name.lower().endswith(".npy")), None)
    with suppress(OSError, ValueError, EOFError, IndexError):  # which the reader reports
        if array is not None:
            width = int(np.load(table.data["file"].parent / array, mmap_mode="r").shape[-1])
            settings |= {
                "model.images": None,
                "model.encoder": "features",
                "model.feature_width": width,
            }
    line = {**table.data, "image": images[0], "caption": captions[0]}
    return DataProfile("captioning", line, table.rows, (size,), settings)


def _tagged_words(file: TextFile) -> DataProfile | None:
    """CoNLL's columns: a word a line, then its tag as the last one, empty lines between sentences;
    CoNLL-U has parts of speech in its fourth."""
    named = file.suffixes[0] in CONLL
    if file.suffixes[0] in (*OBJECTS, ".parquet"):
        return None
    shape = shape_of(file.lines())

    def is_word(line: str) -> bool:
        return bool(line.strip()) and not line.startswith(DOCUMENT) and not is_comment(line, shape)

    rows = [fields_of(line) for line in islice(filter(is_word, file.lines()), SAMPLE)]
    width, count = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
    if width < 2 or count < 0.98 * len(rows):  # the others are for `check` to name
        return None
    rows = [fields for fields in rows if len(fields) == width]
    data: dict[str, Any] = {"file": Path(file.name), "tokens": 0, "tags": -1}
    if width == 10 and file.suffixes[0] == ".conllu":
        data |= {"tokens": 1, "tags": 3}
    words, tags = ([fields[data[name]] for fields in rows] for name in ("tokens", "tags"))
    are_tags = all(map(is_chunk_tag, tags)) and {*tags} != {OUTSIDE}
    if {*map(len, words)} == {1} and file.suffixes[0] not in TABLES[1:]:  # syllables
        are_tags = 1 < len({*tags}) <= min(100, len(tags) / 4)
    if not (named or are_tags):
        return None
    lengths = [
        len([*group]) for is_sentence, group in groupby(file.lines(), is_word) if is_sentence
    ]
    return _tagging(data, len(lengths), mean(lengths), words, tags) if len(lengths) > 1 else None


def _objects(table: _Table) -> DataProfile | None:
    """JSON Lines with stories, with answers to questions, or with a list of words and a list of
    their tags."""
    if {"story", "question", "answer"} <= {*table.columns}:
        return DataProfile(
            "story_answering", {"file": Path(escape(str(table.data["file"])))}, table.rows
        )
    lists = table.of_kind("list")
    if {"context", "question"} <= {*table.columns} and any(
        str(key).split(".")[0] == "answers" for key in lists
    ):
        return DataProfile("question_answering", table.data, table.rows)
    for tokens, tags in permutations(lists, 2):
        lengths, others = ([*map(len, table.columns[key])] for key in (tokens, tags))
        words, marks = ([*chain.from_iterable(table.columns[key])] for key in (tokens, tags))
        are_tags = _last_name(tags) in TAGS or all(is_chunk_tag(str(mark)) for mark in marks)
        if lengths == others and are_tags and {*map(type, (*words, *marks))} == {str}:
            data = {**table.data, "tokens": tokens, "tags": tags}
            return _tagging(data, table.rows, mean(lengths), words, marks)
    return None


def _tagging(
    data: dict[str, Any], rows: int, length: float, words: Sequence[str], tags: Sequence[str]
) -> DataProfile:
    settings: dict[str, Any] = {}
    if not all(map(is_chunk_tag, tags)):  # tags that mark no entities
        data, settings = {**data, "scheme": "plain"}, {"training.best": "accuracy"}
    if mean(map(len, words)) == 1:
        settings["data.words"] = (
            "characters_and_blanks" if any(map(str.isspace, words)) else "characters"
        )
    return DataProfile("tagging", data, rows, (Size.of(words)._replace(words=length),), settings)


# Raw text


def text_files_in(folder: Path) -> str | None:
    """What names the .txt files of a folder, plain or compressed; None for a folder without, or one
    of recipes."""
    if not folder.is_dir() or any(path.suffix in (".yaml", ".yml") for path in folder.iterdir()):
        return None
    kinds: set[str] = set()
    with suppress(DataError):
        kinds = {"".join(file.suffixes) for file in RawText(text=str(folder)).files(Path())}
    texts = sorted(kind for kind in kinds if kind.startswith(".txt"))
    if not texts:
        return None
    return str(folder) if len(kinds) == 1 else f"{folder.as_posix()}/**/*{texts[0]}"


def _raw_text(name: str, encoding: str) -> DataProfile:
    """The documents of a text file, a folder or a pattern: blocks between blank lines, or lines if
    those are few."""
    sample, blocks, lines, characters = list[str](), 0, 0, 0
    reader = Reader(RawText(text=name), Path(), "train", encoding=encoding)
    content = chain.from_iterable(chain(file.lines(), [""]) for file in reader.files)
    for filled, group in groupby(content, lambda line: bool(line.strip())):
        blocks += filled
        for line in group:
            lines, characters = lines + filled, characters + len(line)
            sample += [line] * (len(sample) < SAMPLE)
    if blocks < 5 and lines > blocks:
        data = {"text": Path(name), "documents": "lines"}
        return _documents(data, lines, characters / lines, [*filter(str.strip, sample)])
    texts = [
        " ".join(group)
        for filled, group in groupby(sample, lambda line: bool(line.strip()))
        if filled
    ]
    return _documents({"text": Path(name)}, blocks, characters / max(1, blocks), texts)


def _documents(
    data: dict[str, Any], rows: int, characters: float, texts: Sequence[str]
) -> DataProfile:
    size = Size.of(texts)._replace(characters=round(characters))
    return DataProfile("language_modeling", data, rows, (size,))
