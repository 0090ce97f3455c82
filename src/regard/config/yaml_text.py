"""YAML text -> a tree of keys and values, and back; `key=value` overrides of a tree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from regard.errors import ConfigError

Tree = dict[str, Any]
MAX_YAML_CHARACTERS = 1 << 20
MAX_YAML_LEVELS = 50
MAX_YAML_VALUES = 100_000
MAX_NUMBER_DIGITS = 100
"""The most that a YAML text may have; levels and values are counted with every alias expanded."""
TOO_DEEP = f"more than {MAX_YAML_LEVELS} levels"


class _Loader(yaml.SafeLoader):
    """Scalars of YAML 1.2: `1e-4` is a number, `no` and `on` are strings (`no` is a language too).
    Keys are unique."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = str(key_node.value)
            if key in seen:
                problem = f"the key {key!r} occurs twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def fetch_flow_collection_start(self, kind: type[yaml.Token]) -> None:
        """PyYAML looks at every open bracket for every token: a megabyte of brackets would take
        hours."""
        if self.flow_level > MAX_YAML_LEVELS:
            raise yaml.scanner.ScannerError(None, None, TOO_DEEP, self.get_mark())
        super().fetch_flow_collection_start(kind)

    def get_single_node(self) -> yaml.Node | None:
        root = super().get_single_node()
        left = [(root, 1)] if root else []
        values = 0
        while left:
            node, level = left.pop()
            values += 1
            if level > MAX_YAML_LEVELS or values > MAX_YAML_VALUES:
                problem = (
                    TOO_DEEP if level > MAX_YAML_LEVELS else f"more than {MAX_YAML_VALUES:,} values"
                )
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            if isinstance(node, yaml.CollectionNode):
                below = chain(*node.value) if isinstance(node, yaml.MappingNode) else node.value
                left += [(child, level + 1) for child in below]
        return root

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except Exception:  # PyYAML lets pass what int, float and others raise
            problem = f"{str(node.value)!r} cannot be read as {node.tag.rpartition(':')[2]}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def construct_int(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > MAX_NUMBER_DIGITS:
            raise ValueError("Python cannot print a number of thousands of digits")
        return int(node.value, {"0o": 8, "0x": 16}.get(node.value[:2], 10))


class _Dumper(yaml.SafeDumper):
    """Quotes every string that YAML 1.1 or 1.2 would read as something else: other tools read our
    files too."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        # without quotes these signs would be read as spaces
        style = '"' if any(sign in text for sign in "\x85\u2028\u2029") else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


_SCALARS = {
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.[0-9]+(?:[eE][-+]?[0-9]+)?)",
        "-+.0123456789",
    ),
}
"""Scalars that are not strings (YAML 1.2.2, section 10.3.2): pattern, and possible first
characters."""

_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag.endswith((":null", ":merge"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _name, (_pattern, _first) in _SCALARS.items():
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
            f"tag:yaml.org,2002:{_name}", re.compile(rf"^(?:{_pattern})$"), list(_first)
        )
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_int)
_Dumper.add_representer(str, _Dumper.represent_text)


def read_yaml(path: Path) -> Tree:
    try:
        if path.exists() and not path.is_file():
            raise ConfigError("is not a regular file", where=str(path), hint="give a .yaml file")
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_YAML_CHARACTERS + 1)
    except FileNotFoundError:
        raise ConfigError("there is no such recipe", where=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigError(f"cannot be read as a recipe: {reason}", where=str(path)) from None
    return parse_yaml(text, where=str(path))


def parse_yaml(text: str, where: str) -> Tree:
    """The mapping in a YAML text; `where` names it in messages."""
    try:
        tree = _copy(_load(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{mark.line + 1}" if mark else where
        parts = (getattr(error, "context", None), getattr(error, "problem", None))
        reason = ", ".join(filter(None, parts)) or str(error).splitlines()[0]
        raise ConfigError(f"not valid YAML: {reason}", where=place) from None
    if not isinstance(tree, dict):
        hint = "for example 'task: translation'"
        raise ConfigError("a recipe is a mapping of keys to values", where=where, hint=hint)
    return tree


# PyYAML takes about 10 ms for a recipe, and a command reads that of its run several times
@lru_cache(maxsize=32)
def _load(text: str) -> object:
    """The value of a YAML text. Whatever the parser raises becomes a YAMLError."""
    if len(text) > MAX_YAML_CHARACTERS:
        raise yaml.YAMLError(f"more than {MAX_YAML_CHARACTERS:,} characters")
    try:
        return yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise yaml.YAMLError(TOO_DEEP) from None
    except (ValueError, OverflowError) as error:  # an escape such as "\\UFFFFFFFF"
        raise yaml.YAMLError(str(error)) from None


def write_yaml(tree: Tree) -> str:
    """A tree as YAML text, which `parse_yaml` reads back unchanged."""
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def apply_overrides(tree: Tree, overrides: Sequence[str]) -> Tree:
    """A copy of the tree with each `path.to.key=value` set; values are YAML."""
    tree = _copy(tree)
    for override in [overrides] if isinstance(overrides, str) else overrides:
        path, equals, text = override.partition("=")
        if not equals or not path:
            raise ConfigError(
                "an override is key=value", where=override, hint="for example training.steps=500"
            )
        try:
            value = _copy(_load(text))
        except yaml.YAMLError:
            raise ConfigError(f"the value {text!r} is not valid YAML", where=path) from None
        if path.count(".") >= MAX_YAML_LEVELS:
            raise ConfigError(f"the key has {TOO_DEEP}", where=path)
        _put(tree, path.split("."), value, path)
    return tree


def _copy(node: Any) -> Any:
    """A copy without shared parts: in YAML `*alias` is the same object as `&alias`."""
    if isinstance(node, dict):
        return {key: _copy(value) for key, value in node.items()}
    return [_copy(value) for value in node] if isinstance(node, list) else node


def _put(tree: Tree, keys: list[str], value: Any, path: str) -> None:
    node: Any = tree
    for number, name in enumerate(keys, 1):
        if not isinstance(node, (dict, list)):
            raise ConfigError(
                f"{keys[number - 2]!r} is a single value without keys of its own", where=path
            )
        key: Any = _index(node, name, path) if isinstance(node, list) else name
        if number == len(keys):
            node[key] = value
        elif isinstance(node, dict) and node.get(key) is None:
            node[key] = {}
        node = node[key]


def _index(items: list[Any], key: str, path: str) -> int:
    if key.isdecimal() and len(key) <= MAX_NUMBER_DIGITS and int(key) < len(items):
        return int(key)
    hint = f"allowed: 0 to {len(items) - 1}" if items else "the list is empty"
    if items and not key.isdecimal():
        before, _, after = f".{path}".partition(f".{key}")
        hint += f", for example {before[1:]}.0.{key}{after}"
    raise ConfigError(f"{key!r} is not a valid list index", where=path, hint=hint)
