"""A recipe as it is written: a file, a text, a mapping, or the name of one that ships."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from regard.config import Tree, parse_yaml, read_yaml
from regard.errors import ConfigError
from regard.recipes.shipped import shipped, shipped_text
from regard.recipes.stored import read_stored


class Proposal(str):
    """The YAML of a proposed recipe."""

    folder = Path()
    """The folder that the paths in it are relative to."""


def written_tree(
    recipe: str | Path | Tree, overrides: Sequence[str] = ()
) -> tuple[Tree, Path, bool]:
    """A recipe as it is written, the folder its paths are relative to, and whether it is one that
    ships."""
    if isinstance(recipe, dict):
        return recipe, Path.cwd(), False
    if isinstance(recipe, str) and "\n" in recipe:
        base = (recipe.folder if isinstance(recipe, Proposal) else Path()).absolute()
        return parse_yaml(recipe, where="the recipe"), base, False
    # `babi` may be the folder of the recipe's data
    if Path(recipe).is_dir() and str(recipe) not in shipped():
        raise ConfigError(
            "this is a folder, not a recipe", where=str(recipe), hint="give a .yaml file"
        )
    if Path(recipe).is_file() or str(recipe) not in shipped():
        if not Path(recipe).exists():
            raise _missing(str(recipe))
        if Path(recipe).suffix.lower() not in ("", ".yaml", ".yml", ".json"):
            further = [other for other in overrides if "=" not in other]
            command = shlex.join(["regard", "check", str(recipe), *further, "--out", "mine.yaml"])
            hint = f"'{command}' proposes a recipe for data"
            raise ConfigError(
                "this is not a recipe, which is a .yaml file", where=str(recipe), hint=hint
            )
        base = Path(recipe).resolve().parent
        tree = (read_stored if (base / "environment.json").exists() else read_yaml)(Path(recipe))
        return tree, base, False
    return parse_yaml(shipped_text(str(recipe)), where=str(recipe)), Path.cwd(), True


def _missing(recipe: str) -> ConfigError:
    """A name that is neither a file nor a recipe that ships."""
    is_path = Path(recipe).suffix or Path(recipe).parent != Path()
    near = [] if is_path else get_close_matches(recipe, shipped(), n=1, cutoff=0.7)
    what = "there is no such file" if is_path else "there is no such recipe"
    hint = f"did you mean {near[0]!r}?" if near else "'regard recipes' lists those that ship"
    return ConfigError(
        what, where=recipe, hint=f"a recipe is a .yaml file, or one that ships; {hint}"
    )
