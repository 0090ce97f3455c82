"""The findings of a chapter as a file: written when its experiment has run, shipped with the package,
and read again to show the chapter at once.

A file has what each seed found, not the page: texts, claims and languages are those of today, and
only a change to the experiment itself makes it outdated. scripts/package_findings makes the files
of the package.
"""

from __future__ import annotations

import ast
import base64
import gzip
import hashlib
import inspect
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from pydoc import locate
from typing import Any

import numpy as np

from regard import __version__
from regard.course import Chapter, find_chapter
from regard.course.seeds import Findings, is_chosen_by_seed
from regard.text.writing import atomic_file
from regard.views.diagrams.diagram import (
    Block,
    Component,
    Diagram,
    Frame,
    Line,
    Moment,
    Picture,
    Tile,
    Word,
)
from regard.views.report import (
    Bars,
    Branch,
    Cell,
    Curves,
    HeatMap,
    HeatMaps,
    ImageMap,
    Part,
    Points,
    Prose,
    Series,
    Table,
    Text,
    Tree,
)

PACKAGED = Path(__file__).parent / "packaged"
"""The findings that come with the package."""
FINDINGS_FOLDER = "findings"
"""The folder below the trained runs in which an experiment leaves its findings."""
FORMAT = 1
"""Raised when files of an older form can no longer be read."""
DIGITS = 5
"""Digits of a number in a file."""
KIND = "is"
"""The key that names what an object of the JSON stands for."""
STORED_TYPES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Cell, Text, Prose, Table, Series, Curves, Bars, HeatMap, HeatMaps, ImageMap, Points),
        *(Branch, Tree, Diagram, Component, Block, Word, Line, Frame, Picture, Tile, Moment),
    )
}
"""The parts of a report, and what they are made of, by the names that files use."""


@dataclass(frozen=True)
class Origin:
    """Where and when findings were computed."""

    version: str
    date: str
    """The day, in ISO form."""
    seeds: tuple[int, ...]
    seconds: int
    """How long the experiment took, at most: it takes less if it finds its runs trained."""
    experiment: str
    """The fingerprint of the code of the experiment."""
    outdated: bool = False
    """Whether the experiment has changed since."""


@dataclass(frozen=True)
class Stored:
    """What a file has: the findings of each seed, and their origin."""

    by_seed: list[Findings]
    origin: Origin


def file_name(chapter: Chapter) -> str:
    return f"{chapter.number:02}-{chapter.name}.json.gz"


def store(
    folder: Path,
    chapter: Chapter,
    by_seed: Sequence[Findings],
    seeds: Sequence[int],
    seconds: float,
) -> Path:
    """Write the findings of a chapter into a folder."""
    path = folder / file_name(chapter)
    if path.is_file():  # whose runs may have been used again
        seconds = max(seconds, read(path).origin.seconds)
    told = {
        "format": FORMAT,
        "chapter": chapter.name,
        "version": __version__,
        "date": time.strftime("%Y-%m-%d"),
        "seeds": [*seeds],
        "seconds": round(seconds),
        "experiment": fingerprint(chapter.name),
        "by_seed": [
            _written(by_seed[0]),
            *(_written(without_examples(own)) for own in by_seed[1:]),
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(_packed(told))
    return path


def read(path: Path) -> Stored:
    """The findings in a file."""
    told = json.loads(gzip.decompress(path.read_bytes()))
    origin = Origin(
        told["version"],
        told["date"],
        tuple(told["seeds"]),
        told["seconds"],
        told["experiment"],
        outdated=told["experiment"] != fingerprint(told["chapter"]),
    )
    return Stored([_read(own) for own in told["by_seed"]], origin)


def with_fingerprint(file: bytes, experiment: str) -> bytes:
    """The bytes of a file whose findings are also those of this experiment."""
    return _packed(json.loads(gzip.decompress(file)) | {"experiment": experiment})


def _packed(told: dict[str, Any]) -> bytes:
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    return gzip.compress(text.encode(), mtime=0)  # the same findings are the same bytes


@cache
def packaged(name: str) -> Stored | None:
    """The findings of a chapter that come with the package, if there are any."""
    path = PACKAGED / file_name(find_chapter(name, "en"))
    return read(path) if path.is_file() else None


def without_examples(found: Findings) -> Findings:
    """The findings of a seed after the first without figures, of which only the first seed's are
    shown; tables and curves become means, and heat maps that are chosen by seed stay."""
    return {
        name: value
        for name, value in found.items()
        if not isinstance(value, Part)
        or isinstance(value, Table | Curves)
        or is_chosen_by_seed(value)
    }


# Values as JSON


def _written(value: Any) -> Any:
    """A value as JSON: what JSON does not have becomes an object with the name of its kind."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else {KIND: repr(value)}
    if isinstance(value, np.generic):
        return _written(value.item())
    if isinstance(value, np.ndarray):
        return _written_array(value)
    if isinstance(value, list):
        return [_written(part) for part in value]
    if isinstance(value, tuple):
        return {KIND: "tuple", "parts": [_written(part) for part in value]}
    if isinstance(value, Mapping):
        return {KIND: "mapping", "items": [[_written(k), _written(v)] for k, v in value.items()]}
    if STORED_TYPES.get(type(value).__name__) is type(value):
        return {KIND: type(value).__name__} | _written_fields(value)
    if callable(value) or isinstance(value, property):
        return {KIND: "code", "name": _name_of(value)}
    raise TypeError(f"findings cannot have a {type(value).__name__}")


def _written_fields(value: Any) -> dict[str, Any]:
    """The fields that differ from their defaults."""
    own = {field.name: (getattr(value, field.name), field.default) for field in fields(value)}
    return {
        name: _written(given)
        for name, (given, default) in own.items()
        if default is MISSING or isinstance(given, np.ndarray) or given != default
    }


def _written_array(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Numbers as a list, with few digits; bytes of a picture as text."""
    told = {KIND: "array", "type": str(array.dtype), "shape": [*array.shape]}
    if array.dtype == np.uint8:
        return told | {"bytes": base64.b64encode(array.tobytes()).decode()}
    numbers = array.ravel().tolist()
    return told | {"numbers": [float(f"{one:.4g}") if one % 1 else int(one) for one in numbers]}


def _name_of(function: Any) -> str:
    plain = inspect.unwrap(getattr(function, "fget", None) or function)
    return f"{plain.__module__}.{plain.__qualname__}"


def _read(told: Any) -> Any:
    """The value of `_written`."""
    if isinstance(told, list):
        return [_read(part) for part in told]
    if not isinstance(told, dict):
        return told
    own = dict(told)
    kind = own.pop(KIND)
    if kind == "tuple":
        return tuple(_read(part) for part in own["parts"])
    if kind == "mapping":
        return {_read(key): _read(part) for key, part in own["items"]}
    if kind == "array":
        return _read_array(own)
    if kind == "code":
        return locate(own["name"])
    if kind in STORED_TYPES:
        return STORED_TYPES[kind](**{name: _read(part) for name, part in own.items()})
    return float(kind)


def _read_array(told: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    kind = np.dtype(told["type"])
    is_bytes = "bytes" in told
    raw = np.frombuffer(base64.b64decode(told["bytes"]), kind) if is_bytes else told["numbers"]
    return np.array(raw, kind).reshape(told["shape"])


# Whether the experiment is the same


def fingerprint(name: str) -> str:
    """A key of the code of a chapter's experiment: its module, and whatever of lab.py that uses.
    Comments, docstrings and imports are left out, and so are claims, which are checked anew."""
    tree = _module_of(name)
    told = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom)]
    own = [node for node in told if "CLAIMS" not in _names_of(node)]
    shared = _shared_definitions()
    used = dict[str, ast.stmt]()
    waiting = [*own]
    while waiting:
        reached = _mentioned(waiting.pop()) & ({*shared} - {*used})
        used |= {key: shared[key] for key in reached}
        waiting += [shared[key] for key in reached]
    code = [*own, *(used[key] for key in sorted(used))]
    return hashlib.blake2b("\n".join(map(ast.unparse, code)).encode(), digest_size=6).hexdigest()


def _module_of(name: str) -> ast.Module:
    """The code of a module of the course, without docstrings."""
    tree = ast.parse(inspect.getsource(import_module(f"regard.course.{name}")))
    for part in ast.walk(tree):
        if isinstance(body := getattr(part, "body", None), list):
            part.body = [one for one in body if not _is_text(one)] or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


@cache
def _shared_definitions() -> dict[str, ast.stmt]:
    """The functions and constants of lab.py, and the methods of `Lab`, by name."""
    nodes = list[ast.stmt]()
    for node in _module_of("lab").body:
        if not isinstance(node, ast.ClassDef):
            nodes.append(node)
        elif node.name == "Lab":
            nodes += node.body
    return {name: node for node in nodes for name in _names_of(node)}


def _names_of(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _mentioned(node: ast.stmt) -> set[str]:
    """The names and attributes that a statement uses."""
    return {
        part.id if isinstance(part, ast.Name) else part.attr
        for part in ast.walk(node)
        if isinstance(part, ast.Name | ast.Attribute)
    }


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
