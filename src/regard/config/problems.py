"""The errors of a config in plain words: where, what is wrong and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from json import JSONDecodeError
from typing import Any, Protocol, get_args, runtime_checkable

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from regard.config.yaml_text import Tree
from regard.errors import Problem, did_you_mean, short

MAPPINGS = ("model_type", "model_attributes_type", "dict_type")
"""pydantic's types of error for a value that should be a mapping."""
LITERALS = ("literal_error", "enum")
"""pydantic's types of error for a value that should be one of several words."""
QUOTE = "'"
NEARLY_A_SETTING = 0.7
"""Similarity from which an unknown key is a setting that is misspelt, rather than the column of
another task: `target` is like `dataset` by 0.62."""


def problems_in(errors: Sequence[ErrorDetails], kind: type[BaseModel], tree: Tree) -> list[Problem]:
    """pydantic's errors for a tree that should be of a kind, in plain words."""
    problems: dict[tuple[str, str], Problem] = {}
    for error in errors:
        keys = _keys_in(tree, error["loc"], missing=error["type"] == "missing")
        where = ".".join(map(str, keys))
        what, hint = _message(dict(error), keys, kind, tree)
        problems.setdefault((where, what), Problem(where, what, hint))
    return [*problems.values()]


def _keys_in(tree: Any, loc: tuple[int | str, ...], missing: bool) -> list[int | str]:
    """The location without the union tags that pydantic inserts between keys; the last key may be a
    missing one."""
    keys: list[int | str] = []
    node = tree
    for position, part in enumerate(loc):
        if isinstance(node, dict) and part in node:  # noqa: SIM114 (the types differ)
            node = node[part]
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
        elif not (missing and position == len(loc) - 1):
            continue
        keys.append(part)
    return keys


def _message(
    error: dict[str, Any], keys: list[int | str], kind: type[BaseModel], tree: Any
) -> tuple[str, str]:
    """One of pydantic's errors in plain words: what is wrong, and what is allowed."""
    name = str(error["type"])
    is_null = error["input"] is None
    if is_null and name not in ("missing", "value_error", "extra_forbidden"):
        return "may not be null", _hint_for_null(error)
    if name in LITERALS:
        return f"{_shown(error)} is not allowed", did_you_mean(
            str(error["input"]), _literals(error)
        )
    if name in MAPPINGS:
        return f"should be a mapping of keys to values, not {_shown(error)}", ""
    match name:
        case "extra_forbidden":
            return _unknown_key(error, keys, kind, tree)
        case "missing":
            tags = _tags_at(kind, keys, tree)
            return "this key is required", f"kind: {', '.join(sorted(tags))}" if tags else ""
        case "union_tag_not_found" | "union_tag_invalid":
            return _wrong_kind(error, _tags_at(kind, keys, tree))
        case "value_error":
            return str(error["ctx"]["error"]), ""
        case "json_invalid":
            decoding = JSONDecodeError(error["ctx"]["error"], tree["body"], error["loc"][-1])
            return f"not valid JSON: {decoding}", ""
    return _wrong_value(error)


def _shown(error: dict[str, Any]) -> str:
    return short(repr(error["input"]))


def _literals(error: dict[str, Any]) -> list[str]:
    """The values that pydantic expected, from its message."""
    expected = str(error.get("ctx", {}).get("expected", ""))
    expected = expected.replace("True", "'true'").replace("False", "'false'")
    return re.findall(r"'([^']*)'", expected) or [expected]


def _hint_for_null(error: dict[str, Any]) -> str:
    if error["type"] in MAPPINGS:
        return "should be a mapping of keys to values"
    if error["type"] in LITERALS:
        return f"allowed: {', '.join(sorted(_literals(error)))}"
    return str(error["msg"]).removeprefix("Input ")


@runtime_checkable
class NamesColumns(Protocol):
    """A config whose fields name columns of the data, such as `Corpus` in data/config.py."""

    def column_fields(self) -> list[str]: ...


def _unknown_key(
    error: dict[str, Any], keys: list[int | str], kind: type[BaseModel], tree: Any
) -> tuple[str, str]:
    key = str(keys[-1])
    what = f"unknown key {key!r}"
    if len(keys) == 1:
        for section, field in kind.model_fields.items():
            if any(key in below.model_fields for below in configs_in(field.annotation)):
                return what, f"did you mean {f'{section}.{key}'!r}?"
    if error["input"] is None and ":" in key:
        return what, "write a space after the colon"
    configs: Iterable[Any] = _configs_at(kind, keys[:-1], tree)
    names = {name for config in configs for name in config.model_fields}
    columns = [
        name
        for config in configs
        if isinstance(config, NamesColumns)
        for name in config.column_fields()
    ]
    if columns and not get_close_matches(key, names, cutoff=NEARLY_A_SETTING):
        return what, f"the task's columns are {', '.join(columns)}"
    return what, did_you_mean(key, names)


def _wrong_kind(error: dict[str, Any], tags: set[str]) -> tuple[str, str]:
    """The `kind` of a union of configs is missing or unknown."""
    context = error["ctx"]
    if error["type"] == "union_tag_invalid" and context["tag"] != "None":
        allowed = set(re.findall(r"'([^']*)'", context["expected_tags"]))
        what = f"unknown {context['discriminator'].strip(QUOTE)} {context['tag']!r}"
        return what, did_you_mean(str(context["tag"]), allowed)
    return f"the key {context['discriminator']} is required", did_you_mean("", tags)


def _wrong_value(error: dict[str, Any]) -> tuple[str, str]:
    given = error["input"]
    message = str(error["msg"])
    match error["type"]:
        case "too_short" | "too_long":
            size = message.partition("should have")[2].replace(" after validation", "")
            return "should have" + size, ""
        case "bool_type":
            return f"should be true or false, not {_shown(error)}", ""
        case "int_type" if isinstance(given, float) and given.is_integer():
            return f"should be a whole number, not {_shown(error)}", f"write {int(given)}"
    message = message[:1].lower() + message[1:]
    return f"{message.replace('input should', 'should')}, not {_shown(error)}", ""


def _tags_at(kind: type[BaseModel], keys: list[Any], tree: Any) -> set[str]:
    """The values of `kind` allowed under a config path."""
    return {tag for config in _configs_at(kind, keys, tree) for tag in _tags(config)}


def _configs_at(kind: type[BaseModel], keys: list[Any], tree: Any) -> set[type[BaseModel]]:
    """The configs allowed under a config path: those of the tree's `kind` if it names a valid one."""
    configs = {kind}
    for key in keys:
        if isinstance(key, str):
            fields = [config.model_fields[key] for config in configs if key in config.model_fields]
            configs = {below for field in fields for below in configs_in(field.annotation)}
            tree = tree.get(key) if isinstance(tree, dict) else None
        else:
            tree = tree[key] if isinstance(tree, list) else None
        tag = tree.get("kind") if isinstance(tree, dict) else None
        of_tag = {
            config
            for config in configs
            if "kind" not in config.model_fields or tag in _tags(config)
        }
        configs = configs if tag is None else of_tag or configs
    return configs


def configs_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """The configs that a field of this type may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for argument in get_args(annotation):
            yield from configs_in(argument)


def _tags(config: type[BaseModel]) -> tuple[str, ...]:
    return get_args(config.model_fields["kind"].annotation) if "kind" in config.model_fields else ()


def kinds_in(annotation: Any) -> set[str]:
    """The values of `kind` allowed in a config of this type, which may be a union."""
    return {tag for config in configs_in(annotation) for tag in _tags(config)}
