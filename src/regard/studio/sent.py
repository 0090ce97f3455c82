"""Recipes and data that are sent to the server: how large they may be, and which run they may begin
with.

Everything here is known from the recipe and the files themselves, before anything is built or read.
Which files a sent recipe may read is decided where they are opened: the recipe's `within` is the
folder of the request.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from regard.config import Tree, apply_overrides, parse_yaml
from regard.data.config import OBJECTS
from regard.data.corpora import SIZES
from regard.data.formats import SEPARATORS
from regard.data.parallel import processors
from regard.errors import ConfigError, DataError, Problem, RegardError
from regard.models import MODELS
from regard.recipes.loading import load_recipe
from regard.recipes.recipe import AnyRecipe, leaves

MAX_VALUES: dict[str, int] = {
    "data.max_length": 4_096,
    "data.workers": processors(),
    "tokenizer.vocabulary": 200_000,
    "head.bilstm": 4_096,
    "head.linear": 1_048_576,
    "model.ngrams": 1_048_576,
    "training.steps": 1_000_000,
    "training.epochs": 1_000,
    "training.minutes": 1_440,
    "training.batch_tokens": 65_536,
    "training.accumulate": 1_000,
    "training.decode": 10_000,
    "training.samples": 100,
    "training.keep_best": 20,
    "training.average": 20,
    "search.beam": 64,
    "search.nbest": 64,
    "search.max_length": 10_000,
    "search.max_length_ratio": 10,
    "search.max_length_offset": 2_000,
    "evaluation.longest_answer": 1_000,
}
"""The largest values of a sent recipe, by their config paths."""
DEPTH_FIELDS = ("layers", "encoder_layers", "decoder_layers", "highway")
"""Fields of models that count parts of the model, each of which takes time to build."""
MAX_DEPTH = 100
"""The largest value of these fields."""
MAX_MODEL_NUMBER = 65_536
"""The largest value of every other number of the section `model`."""
MAX_ITEMS = 100
"""Most items of a list in the section `model`, and of `search.banned`."""
MAX_PARAMETERS = 400_000_000
UNCOUNTED_PARAMETERS = 2**63
"""The number of parameters of a model with a tensor whose size cannot be counted."""
MAX_CORPORA = 32
"""Most corpora of a recipe."""
MAX_GENERATED_EXAMPLES = 1_000_000
"""Most examples that the built-in corpora of a recipe have together."""
MAX_CORPUS_WEIGHT = 20
"""The largest weight of a corpus."""
MAX_PREPARED_PIXELS = 1_000_000_000
"""Most pixels of all images at the size that the model reads, in which they are kept on the
disk."""
MAX_SENT_ROWS = 500_000
"""Most lines or objects of all files that are sent."""
MAX_SENT_COLUMNS = 1_000
"""Most columns of a table that is sent."""


def refuse_large_files(files: Mapping[str, str]) -> None:
    """Refuse files, by their names, with too many rows or columns."""
    rows = 0
    for name, text in files.items():
        is_objects = PurePosixPath(name.lower()).suffix in OBJECTS
        rows += max(text.count("\n"), text.count("{") if is_objects else 0)
        if (columns := _table_width(name, text)) > MAX_SENT_COLUMNS:
            raise DataError(
                f"the table has {columns:,} columns",
                where=name,
                hint=f"at most {MAX_SENT_COLUMNS:,} are sent",
            )
    if rows > MAX_SENT_ROWS:
        raise DataError(
            f"the files have {rows:,} rows",
            where="files",
            hint=f"at most {MAX_SENT_ROWS:,} are sent",
        )


def _table_width(name: str, text: str) -> int:
    """About how many columns the first row of a table has; 0 for another file."""
    suffix = PurePosixPath(name.lower()).suffix
    first = text.partition("\n")[0]
    if suffix in OBJECTS:
        return text[: text.find("}")].count('":')
    if suffix == ".tsv":
        return first.count("\t") + 1
    return max(map(partial(_cell_count, first), SEPARATORS)) if suffix == ".csv" else 0


def _cell_count(line: str, separator: str) -> int:
    """The cells of a line of a .csv; without quotes that matter where it is not valid with this
    separator."""
    try:
        return len(next(csv.reader([line], delimiter=separator), []))
    except csv.Error:
        return line.count(separator) + 1


def begins_with(recipe: str, folder_of: Callable[[str], Path | None]) -> list[str]:
    """The override for a recipe that begins with a run, which it calls by its name or by any path
    that ends in it.

    `folder_of` gives the folder of one of the server's runs; no text of the request is used as a
    path.
    """
    training = parse_yaml(recipe, where="recipe").get("training")
    init = training.get("init") if isinstance(training, dict) else None
    if init is None:
        return []
    name = re.split(r"[/\\]", str(init))[-1]
    if (folder := folder_of(name)) is None:
        raise ConfigError(
            f"there is no run {name!r}", where="training.init", hint="train or import it first"
        )
    return [f"training.init={json.dumps(str(folder.resolve()), ensure_ascii=False)}"]


def refuse_large(recipe: str, overrides: Sequence[str], files: Mapping[str, str]) -> None:
    """Refuse a recipe that asks for more than one that is sent may have; its other mistakes are
    found elsewhere."""
    refuse_large_files(files)
    tree = apply_overrides(parse_yaml(recipe, where="recipe"), overrides)
    ConfigError.raise_if([*_large_numbers(tree), *_many_examples(tree)])
    try:
        typed, _ = load_recipe(tree)
    except RegardError:
        return
    if (count := _parameters(typed, _vocabulary(typed, files))) > MAX_PARAMETERS:
        ConfigError.raise_if([_too_large(count)])
    if (
        typed.model.reads == "image"
        and (pixels := _prepared_pixels(tree, typed, files)) > MAX_PREPARED_PIXELS
    ):
        what = f"its images would have {pixels:,} pixels as the model reads them"
        raise ConfigError(
            what, where="model.images.size", hint=f"at most {MAX_PREPARED_PIXELS:,} in all"
        )


def _large_numbers(tree: Tree) -> Iterator[Problem]:
    for path, value in leaves(tree).items():
        limit = _limit(re.sub(r"\.\d+(?=\.|$)", "", path))
        if limit is not None and isinstance(value, int | float) and value > limit:
            yield Problem(
                path, f"{value:,} is too large for a recipe that is sent", f"at most {limit:,}"
            )
    model = tree.get("model")
    lists = (
        {f"model.{name}": value for name, value in model.items()} if isinstance(model, dict) else {}
    )
    if isinstance(search := tree.get("search"), dict):
        lists["search.banned"] = search.get("banned")
    for path, value in lists.items():
        if isinstance(value, list) and len(value) > MAX_ITEMS:
            yield Problem(path, f"{len(value):,} items are too many", f"at most {MAX_ITEMS:,}")


def _limit(path: str) -> int | None:
    section, _, name = path.partition(".")
    if section == "model" and path not in MAX_VALUES:
        return MAX_DEPTH if name in DEPTH_FIELDS else MAX_MODEL_NUMBER
    if section == "data" and name.endswith((".size", ".weight")):
        return MAX_GENERATED_EXAMPLES if name.endswith(".size") else MAX_CORPUS_WEIGHT
    return MAX_VALUES.get(path)


def _many_examples(tree: Tree) -> Iterator[Problem]:
    """Too many corpora, or too many examples in those that are generated."""
    corpora = _corpora(tree)
    if len(corpora) > MAX_CORPORA:
        yield Problem("data", f"{len(corpora):,} corpora are too many", f"at most {MAX_CORPORA:,}")
    examples = _generated(corpora)
    if examples > MAX_GENERATED_EXAMPLES:
        what = (
            f"its built-in corpora have {examples:,} examples, too many for a recipe that is sent"
        )
        yield Problem("data", what, f"at most {MAX_GENERATED_EXAMPLES:,} in all")


def _corpora(tree: Tree) -> list[Tree]:
    data = tree.get("data")
    parts = [data.get(part) for part in SIZES] if isinstance(data, dict) else []
    listed = [corpus for part in parts for corpus in (part if isinstance(part, list) else [part])]
    return [corpus for corpus in listed if isinstance(corpus, dict) and corpus.keys() != {"split"}]


def _generated(corpora: Sequence[Tree]) -> int:
    """The examples of the built-in corpora among these."""
    sizes = [corpus.get("size") or SIZES["train"] for corpus in corpora if "corpus" in corpus]
    return sum(size for size in sizes if isinstance(size, int))


def _prepared_pixels(tree: Tree, recipe: AnyRecipe, files: Mapping[str, str]) -> int:
    side: int = recipe.model.images.size
    return (
        _generated(_corpora(tree)) + sum(text.count("\n") + 1 for text in files.values())
    ) * side**2


def _vocabulary(recipe: AnyRecipe, files: Mapping[str, str]) -> int:
    """The largest vocabulary that the recipe can have: that of its files, or what it asks for."""
    named = recipe.tokenizer.file
    names = [*named.values()] if isinstance(named, dict) else [] if named is None else [named]
    return max(
        [
            recipe.tokenizer.vocabulary,
            *(_vocabulary_of(files[name]) for name in names if name in files),
        ]
    )


def _vocabulary_of(text: str) -> int:
    """The tokens of a tokenizer.json; 0 if it is not one."""
    with suppress(ValueError, RecursionError, KeyError, TypeError):
        return len(json.loads(text)["model"]["vocab"])
    return 0


def _parameters(recipe: AnyRecipe, vocabulary: int) -> int:
    """The numbers that the model holds, weights and tables, counted without memory for them."""
    config = recipe.model
    options: dict[str, Any] = {}
    try:
        with torch.device("meta"):
            if config.letters is not None:
                options["characters_VC"] = torch.zeros(vocabulary, config.letters, dtype=torch.long)
            model = MODELS[config.kind].build(
                config, *[vocabulary] * (2 if config.reads == "source" else 1), **options
            )
    except RuntimeError:  # a tensor whose size cannot even be counted
        return UNCOUNTED_PARAMETERS
    return sum(tensor.numel() for tensor in (*model.parameters(), *model.buffers()))


def _too_large(count: int) -> Problem:
    what = f"it would have {count:,} parameters, too many for a recipe that is sent"
    if count >= UNCOUNTED_PARAMETERS:
        what = "it would have more parameters than can be counted"
    return Problem("model", what, f"at most {MAX_PARAMETERS:,}")
