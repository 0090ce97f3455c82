"""The recipes that ship with the package."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from regard.errors import ConfigError, RegardError, did_you_mean
from regard.language import shown_comments


def shipped_recipes(name: str | None = None, *, out: str | Path | None = None) -> dict[str, str]:
    """The names of the recipes that ship and a summary of each; or the YAML of one, under its name.

    `out` is a new file to copy that one to.
    """
    if name is None:
        if out is not None:
            raise RegardError(
                "name the recipe to copy", where="--out", hint=f"allowed: {', '.join(shipped())}"
            )
        first_lines = {recipe: shipped_text(recipe).splitlines()[0] for recipe in shipped()}
        return {
            recipe: comment.removeprefix("#").strip() for recipe, comment in first_lines.items()
        }
    text = shipped_text(name)
    if out is not None:
        if Path(out).exists():
            raise RegardError("the file exists already", where=str(out), hint="give another --out")
        from regard.text.writing import write_file  # slow to import

        write_file(Path(out), shown_comments(text))
    return {name: text}


def shipped() -> list[str]:
    entries = (entry.name for entry in files("regard.recipes").iterdir())
    return sorted(name.removesuffix(".yaml") for name in entries if name.endswith(".yaml"))


def shipped_text(name: str) -> str:
    if name not in shipped():
        raise ConfigError(
            f"no recipe of the name {name!r} ships",
            where="recipes",
            hint=did_you_mean(name, shipped()),
        )
    return (files("regard.recipes") / f"{name}.yaml").read_text(encoding="utf-8")
