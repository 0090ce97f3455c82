"""The base class of every config; YAML and `key=value` overrides -> a typed config. Knows no
component.

An error lists every problem at once.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, pairwise
from json import JSONDecodeError
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from regard.errors import ConfigError, Problem, did_you_mean, short

Tree = dict[str, Any]
C = TypeVar("C", bound=BaseModel)
MAPPINGS = ("model_type", "model_attributes_type", "dict_type")
"""pydantic's types of error for what should be a mapping."""
MAX_YAML_CHARACTERS = 1 << 20
MAX_YAML_LEVELS = 50
MAX_YAML_VALUES = 100_000
MAX_NUMBER_DIGITS = 100
"""The most that a YAML text may have; levels and values are counted with every alias expanded."""
TOO_DEEP = f"more than {MAX_YAML_LEVELS} levels"
PARSING = Lock()  # two threads that parse at once fail with a SystemError (Python 3.11)


class Config(BaseModel):
    """A strict, immutable set of fields.

    An unknown key is an error, a string is not a number, and nothing changes after validation. The
    docstring under a field is its help text in docs/recipes.md and in the studio's form.
    """

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=()
    )


def written(kind: type[BaseModel]) -> type[BaseModel]:
    """The class as it stands in the code: Data, of which Data[Parallel] is made, has the
    docstring."""
    return kind.__pydantic_generic_metadata__["origin"] or kind


@cache
def help_texts(kind: type[Config]) -> Mapping[str, str]:
    """The docstring under each field; pydantic would read them whenever regard is imported, which
    takes a second."""
    texts = {}
    with PARSING:
        for base in reversed(kind.__mro__[: kind.__mro__.index(Config)]):
            [definition] = ast.parse(textwrap.dedent(inspect.getsource(written(base)))).body
            assert isinstance(definition, ast.ClassDef)
            for field, text in pairwise(definition.body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    texts[ast.unparse(field.target)] = ast.literal_eval(text.value)
    return texts


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
        style = (
            '"' if any(sign in text for sign in "\x85\u2028\u2029") else None
        )  # otherwise these are read as spaces
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


@lru_cache(
    maxsize=32
)  # PyYAML takes some 10 ms for a recipe, and a command reads that of its run several times
def _load(text: str) -> object:
    """What a YAML text stands for. Whatever the parser raises becomes a YAMLError."""
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
    """Without what is shared within it: `*alias` of YAML is the very object of `&alias`."""
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


def validate(kind: type[C], tree: Tree) -> C:
    """The typed config, or one ConfigError that lists every problem by its config path."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(
            problems=problems_in(error.errors(include_url=False), kind, tree)
        ) from None


def problems_in(errors: Sequence[ErrorDetails], kind: type[BaseModel], tree: Tree) -> list[Problem]:
    """What pydantic found wrong in a tree that should be of a kind, in plain words."""
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
    context = error.get("ctx", {})
    given = error["input"]
    shown = short(repr(error["input"]))
    expected = (
        str(context.get("expected", "")).replace("True", "'true'").replace("False", "'false'")
    )
    literals = re.findall(r"'([^']*)'", expected) or [expected]
    is_literal = error["type"] in ("literal_error", "enum")
    is_mapping = error["type"] in MAPPINGS
    if given is None and error["type"] not in ("missing", "value_error", "extra_forbidden"):
        hint = str(error["msg"]).removeprefix("Input ")
        if is_literal:
            hint = f"allowed: {', '.join(sorted(literals))}"
        return "may not be null", "should be a mapping of keys to values" if is_mapping else hint
    if is_literal:
        return f"{shown} is not allowed", did_you_mean(str(given), literals)
    if is_mapping:
        return f"should be a mapping of keys to values, not {shown}", ""
    match error["type"]:
        case "extra_forbidden":
            key = str(keys[-1])
            configs = _configs_at(kind, keys[:-1], tree)
            allowed = {name for config in configs for name in config.model_fields}
            below = {
                name: configs_in(field.annotation) for name, field in kind.model_fields.items()
            }
            sections = [
                name
                for name, configs in below.items()
                if any(key in one.model_fields for one in configs)
            ]
            if len(keys) == 1 and sections:
                return f"unknown key {key!r}", f"did you mean {f'{sections[0]}.{key}'!r}?"
            spaced = given is None and ":" in key
            return (
                f"unknown key {key!r}",
                "write a space after the colon" if spaced else did_you_mean(key, allowed),
            )
        case "missing":
            tags = {tag for config in _configs_at(kind, keys, tree) for tag in _tags(config)}
            return "this key is required", f"kind: {', '.join(sorted(tags))}" if tags else ""
        case "union_tag_invalid" if context["tag"] != "None":
            allowed = set(re.findall(r"'([^']*)'", context["expected_tags"]))
            discriminator = context["discriminator"].strip("'")
            return f"unknown {discriminator} {context['tag']!r}", did_you_mean(
                str(context["tag"]), allowed
            )
        case "union_tag_not_found" | "union_tag_invalid":
            tags = {tag for config in _configs_at(kind, keys, tree) for tag in _tags(config)}
            return f"the key {context['discriminator']} is required", did_you_mean("", tags)
        case "value_error":
            return str(context["error"]), ""
        case "json_invalid":
            return (
                "not valid JSON: "
                f"{JSONDecodeError(context['error'], tree['body'], error['loc'][-1])}",
                "",
            )
        case "too_short" | "too_long":
            return "should have" + error["msg"].partition("should have")[2].replace(
                " after validation", ""
            ), ""
        case "bool_type":
            return f"should be true or false, not {shown}", ""
        case "int_type" if isinstance(given, float) and given.is_integer():
            return f"should be a whole number, not {shown}", f"write {int(given)}"
    message = error["msg"][:1].lower() + error["msg"][1:]
    return f"{message.replace('input should', 'should')}, not {shown}", ""


def _configs_at(kind: type[BaseModel], keys: list[Any], tree: Any) -> set[type[BaseModel]]:
    """The configs that may stand under a config path: those of the tree's `kind`, where it names a
    valid one."""
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
