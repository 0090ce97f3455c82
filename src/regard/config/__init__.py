"""The base class of every config: a tree of keys and values -> a typed, strict, frozen config.

Knows no component. An error lists every problem of a tree.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from regard.config.problems import configs_in, kinds_in, problems_in
from regard.config.yaml_text import Tree, apply_overrides, parse_yaml, read_yaml, write_yaml
from regard.errors import ConfigError

__all__ = [
    "Config",
    "Tree",
    "apply_overrides",
    "configs_in",
    "help_texts",
    "kinds_in",
    "parse_yaml",
    "problems_in",
    "read_yaml",
    "validate",
    "write_yaml",
]

C = TypeVar("C", bound=BaseModel)
PARSING = Lock()  # two threads that parse together fail with a SystemError (Python 3.11)


class Config(BaseModel):
    """A strict, immutable set of fields.

    An unknown key is an error, a string is not a number, and nothing changes after validation. The
    docstring under a field is its help text in docs/recipes.md and in the studio's form.
    """

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=()
    )


def written(kind: type[BaseModel]) -> type[BaseModel]:
    """The class as written in the code: the docstring is that of Data, not of Data[Parallel]."""
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


def validate(kind: type[C], tree: Tree) -> C:
    """The typed config, or one ConfigError that lists every problem by its config path."""
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(
            problems=problems_in(error.errors(include_url=False), kind, tree)
        ) from None
