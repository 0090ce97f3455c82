"""The base class of every config, and YAML + overrides -> typed config. Knows no component."""

from pydantic import BaseModel, ConfigDict

from regard.config.load import apply_overrides, kinds_in, parse_yaml, read_yaml, validate, write_yaml


class Config(BaseModel):
    """A strict, immutable set of fields.

    An unknown key is an error, a string is not a number, and nothing changes after validation. The docstring under a
    field is its help text in docs/recipes.md.
    """

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        protected_namespaces=(),
    )


__all__ = ["Config", "apply_overrides", "kinds_in", "parse_yaml", "read_yaml", "validate", "write_yaml"]
