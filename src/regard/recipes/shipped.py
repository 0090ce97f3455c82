"""The recipes that ship with the package."""

from __future__ import annotations

from importlib.resources import files

from regard.errors import ConfigError, did_you_mean


def shipped() -> list[str]:
    """Their names."""
    entries = (entry.name for entry in files("regard.recipes").iterdir())
    return sorted(name.removesuffix(".yaml") for name in entries if name.endswith(".yaml"))


def shipped_text(name: str) -> str:
    """The YAML of one."""
    if name not in shipped():
        raise ConfigError(f"no recipe of the name {name!r} ships", where="recipes", hint=did_you_mean(name, shipped()))
    return (files("regard.recipes") / f"{name}.yaml").read_text(encoding="utf-8")


def summary(name: str) -> str:
    """Its first line, a comment that says what it is."""
    return shipped_text(name).splitlines()[0].removeprefix("#").strip()
