"""The base class of every config, and YAML + overrides -> typed config. Knows no component."""

import ast
import inspect
import textwrap
from itertools import pairwise
from threading import Lock

from pydantic import BaseModel, ConfigDict

from regard.config.load import apply_overrides, kinds_in, parse_yaml, read_yaml, validate, write_yaml

PARSING = Lock()
"""Two threads that parse at once fail with a SystemError (Python 3.11)."""


class Config(BaseModel):
    """A strict, immutable set of fields.

    An unknown key is an error, a string is not a number, and nothing changes after validation. The docstring under a
    field is its help text in docs/recipes.md and in the studio's form.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


def written(kind: type[BaseModel]) -> type[BaseModel]:
    """The class as it stands in the code: Data, of which Data[Parallel] is made, has the docstring."""
    return kind.__pydantic_generic_metadata__["origin"] or kind


def help_texts(kind: type[Config]) -> dict[str, str]:
    """The docstring under each field; pydantic would read them whenever regard is imported, which takes a second."""
    texts = {}
    with PARSING:
        for one in reversed(kind.__mro__[: kind.__mro__.index(Config)]):
            [definition] = ast.parse(textwrap.dedent(inspect.getsource(written(one)))).body
            assert isinstance(definition, ast.ClassDef)
            for field, text in pairwise(definition.body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    texts[ast.unparse(field.target)] = ast.literal_eval(text.value)
    return texts


__all__ = [
    "Config", "apply_overrides", "help_texts", "kinds_in", "parse_yaml", "read_yaml", "validate", "write_yaml",
    "written",
]  # fmt: skip
