"""The text of a proposed recipe."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from math import ceil
from pathlib import Path
from typing import Any

from regard.config import Tree, parse_yaml
from regard.recipes.proposals.plans import COMMENTS, PLANS, Plan
from regard.recipes.proposals.profile import DataProfile
from regard.recipes.proposals.settings import fitted_settings
from regard.recipes.shipped import shipped_text
from regard.tasks import TASKS

SECTION_ORDER = ("task", "data", "tokenizer", "model", "head", "training", "search", "evaluation")


OWN_FILE_COMMENTS = {
    "validation": "files of their own, to choose the best checkpoint",
    "test": "files of their own, for `regard evaluate`",
}
"""Comments on a split that is not a share of the training data."""


LENGTH_KEYS = ("steps", "epochs", "validate_every", "patience")
"""Keys of `training` that come first."""
LONGEST_ALIGNED = 48
"""Longer lines have their comments further to the right than the others."""


def recipe_text(profile: DataProfile, files: Sequence[str], folder: Path) -> str:
    """The YAML of a recipe, to be saved in `folder`, for one file or folder, or for two parallel
    files."""
    plan = PLANS[profile.task]
    settings = {
        **plan.changes,
        **data_settings(profile, folder),
        **fitted_settings(profile, plan),
        **profile.settings,
    }
    template = shipped_text(plan.recipe)
    tree = with_settings(parse_yaml(template, plan.recipe), settings)
    comments = comments_of(template)
    blocks = {path.partition(".")[0] for path in comments if "." in path}
    comments |= {path: COMMENTS[path] for path in settings if path in COMMENTS}
    comments |= profile_comments(profile)
    amount = f"{profile.examples:,} {TASKS[profile.task].data.UNIT}"
    title = (
        f"Proposed by `regard check` for {' and '.join(files)}: {amount}. Made from the "
        f"recipe `{plan.recipe}`."
    )
    lines = [("", note) for note in (title, *notes_above(profile, plan))]
    for section in (name for name in SECTION_ORDER if name in tree):
        lines += section_lines(section, tree[section], comments, is_block=section in blocks)
    return aligned(lines)


def with_settings(tree: Tree, settings: Mapping[str, Any]) -> Tree:
    """A recipe's tree with settings by their paths; None takes a key out."""
    for path, value in settings.items():
        section, _, key = path.rpartition(".")
        node = tree.setdefault(section, {}) if section else tree
        node[key] = deepcopy(value)
        if value is None:
            del node[key]
    return tree


def comments_of(template: str) -> dict[str, str]:
    """The comments of a recipe that ships, by path."""
    comments: dict[str, str] = {}
    section = ""
    for indent, key, comment in re.findall(r"^( *)(\w+):.*?\s# (.*)$", template, re.MULTILINE):
        if not indent:
            section = key
        comments[f"{section}.{key}" if indent else key] = comment
    return comments


def profile_comments(profile: DataProfile) -> dict[str, str]:
    """Comments on what is in the data, by path."""
    comments = {f"data.{part}": OWN_FILE_COMMENTS[part] for part in profile.held_out}
    if "evaluation" in profile.settings:
        comments["evaluation"] = "by the words that MeCab finds, as is usual for Japanese"
    if profile.sizes:
        comments["data.train"] = "; ".join(
            f"{size.script} script, {size.words:.1f} words" for size in profile.sizes
        )
    return comments


def section_lines(
    section: str, value: Any, comments: Mapping[str, str], *, is_block: bool
) -> list[tuple[str, str]]:
    """The lines of a section, each with its comment: one for each key, or a single line."""
    if not is_block:
        return [(f"{section}: {flow_style(value)}", comments[section])]

    def comes_later(item: tuple[str, Any]) -> bool:
        return section == "training" and item[0] not in LENGTH_KEYS

    items = sorted(value.items(), key=comes_later)
    return [
        (f"{section}:", comments[section]),
        *((f"  {key}: {flow_style(item)}", comments[f"{section}.{key}"]) for key, item in items),
    ]


def aligned(lines: Sequence[tuple[str, str]]) -> str:
    """Lines with their comments in one column, except behind long lines."""
    width = max(len(line) for line, _ in lines if len(line) <= LONGEST_ALIGNED) + 1
    return "".join(
        f"{line:{width}} # {comment}\n" if line else f"# {comment}\n" for line, comment in lines
    )


def data_settings(profile: DataProfile, folder: Path) -> dict[str, Any]:
    """The data line, and the splits: files of their own, or shares of about a thousand examples
    each."""
    split = {"split": round(min(0.1, max(0.005, 1000 / max(profile.examples, 1))), 3)}
    own = {part: relative_line(line, folder) for part, line in profile.held_out.items()}
    return {
        "data.train": relative_line(profile.data, folder),
        "data.validation": own.get("validation", split),
        "data.test": own.get("test", split),
        "data.split_seed": 1 if len(own) < 2 else None,
        "data.bad_lines": "drop",
    }


def relative_line(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A data line, with paths as seen from a folder, or absolute on another drive of Windows."""
    line = dict(data)
    for name, value in line.items():
        if isinstance(value, Path):
            line[name] = str(value.absolute())
            with suppress(ValueError):
                line[name] = Path(os.path.relpath(value, folder)).as_posix()
    return line


def notes_above(profile: DataProfile, plan: Plan) -> Iterator[str]:
    """The notes above the recipe."""
    if profile.task == "language_modeling":
        yield "It is for GPT; the recipes bert, elmo and lstm-lm train other models on such data."
        name = profile.data.get("text")
        if isinstance(name, Path) and name.is_file():
            yield (
                "If another text is parallel to it, line by line: regard check "
                f"{shlex.quote(str(name))} OTHER"
            )
        if profile.examples * profile.sizes[0].characters < plan.sizes[0].below:
            yield (
                "So little text can only be learned by heart, so the last checkpoint is "
                "kept; for more than that,"
            )
            yield "start from a pre-trained model: `regard import`, then training.init."
    elif "training.init" in plan.changes:
        changes = {
            **data_settings(profile, Path()),
            **profile.settings,
            "training.init": "runs/bert",
        }
        changes["training.epochs"] = max(3, ceil(1_500 / max(1, profile.examples)))
        overrides = [f"{path}={flow_style(value)}" for path, value in changes.items()]
        yield (
            "Better with few examples: fine-tune runs/bert, made by `regard import` or "
            "`regard train bert`:"
        )
        yield shlex.join(
            ["regard", "train", plan.recipe, *overrides, "--out", f"runs/{plan.recipe}"]
        )


def flow_style(value: Any) -> str:
    """A value in the flow style of YAML; a text is quoted unless it is a plain word that is read
    back as it is."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {flow_style(item)}' for name, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(flow_style, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    plain = re.fullmatch(r"[\w./-]+", value) and parse_yaml(f"x: {value}", "") == {"x": value}
    return value if plain else json.dumps(value, ensure_ascii=False)
