"""The strict, frozen config base; YAML and overrides -> typed config. Knows no component."""

from regard.config.base import Config
from regard.config.load import apply_overrides, kinds_in, parse_yaml, read_yaml, validate, write_yaml

__all__ = ["Config", "apply_overrides", "kinds_in", "parse_yaml", "read_yaml", "validate", "write_yaml"]
