"""The base of every config: strict, frozen, and documented field by field."""

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """A strict, immutable set of fields.

    An unknown key is an error, a string is not a number, and nothing changes after validation. The docstring under a
    field is its help text and its schema description.
    """

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )
