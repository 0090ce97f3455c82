"""A user's files -> a recipe for them: one that ships, with the data line and the sizes that suit it filled in."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import chain, count
from math import ceil, inf
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import parse_yaml
from regard.config.load import Tree
from regard.data.config import TABLES
from regard.data.readers import is_saved
from regard.errors import ConfigError
from regard.recipes.recognise import DataProfile, recognise, text_files_in
from regard.recipes.shipped import shipped, shipped_text
from regard.tasks import TASKS
from regard.text.files import TextFile

SECTIONS = ("task", "data", "tokenizer", "model", "head", "training", "search", "evaluation")
IDEOGRAPHIC = ("Cjk", "Hiragana", "Katakana")
"""Scripts of thousands of characters."""
TOKENIZE = {"translation": "char", "captioning": "char", "summarization": "characters"}
"""`evaluation.tokenize` where words say little, as in Korean, Chinese and Japanese."""
RAW_TEXT = {"bert": 1_000, "elmo": 400, "lstm-lm": 400}
"""The recipes that ship for raw text beside gpt, and the fewest steps: BERT learns from a seventh of the tokens."""
ENDS = ("steps", "epochs", "validate_every", "patience")
"""Keys of `training` that stand first."""


class Sizes(NamedTuple):
    """What suits so much data."""

    below: float
    """Examples, or characters of raw text, from which on the next sizes do."""
    preset: str
    vocabulary: int
    epochs: int
    warmup: int
    patience: int | None
    """Validations; None trains to the end, where a validation set is too small to choose a checkpoint by."""
    batch_tokens: int | None
    """None leaves it to `auto`."""
    dropout: float | None = None


class Plan(NamedTuple):
    """How a recipe that ships is fitted to data."""

    recipe: str
    lengths: tuple[int, ...]
    """What data.max_length may be."""
    steps: int
    """The fewest that are worth training for."""
    sizes: tuple[Sizes, ...]
    changes: dict[str, Any]
    """What else is to be different, by path; None takes a key out."""


PAIRS = Plan(
    "translation", (50, 100, 200, 400, 800, 1600), 800,
    (
        Sizes(500, "tiny", 1_000, 100, 100, 20, 256, 0.2),
        Sizes(5_000, "tiny", 1_000, 150, 100, 20, 1_024, 0.2),
        Sizes(50_000, "tiny", 4_000, 40, 400, 5, 2_048, 0.3),
        Sizes(1_000_000, "small", 8_000, 30, 1_000, 5, 4_096, 0.2),
        Sizes(inf, "base", 32_000, 10, 4_000, 5, 16_384, 0.1),
    ),
    {"data.max_ratio": None},
)  # fmt: skip
LABELS = Plan(
    "classification", (32, 64, 128, 256, 512), 200,
    (
        Sizes(1_000, "tiny", 2_000, 60, 0, 10, 256),
        Sizes(5_000, "tiny", 2_000, 20, 0, 5, 512),
        Sizes(50_000, "tiny", 8_000, 10, 0, 3, 1_024),
        Sizes(inf, "small", 16_000, 5, 0, 2, 4_096),
    ),
    {
        "tokenizer": {"kind": "bpe"}, "model": {"kind": "bilstm"}, "head": None,
        "training.init": None, "training.learning_rate": 0.002,
    },
)  # fmt: skip
"""The recipes that ship fine-tune a run that the user may not have: what is proposed trains from scratch."""
CAPTIONS = Plan(
    "captions", (), 400,
    (
        Sizes(2_000, "tiny", 1_000, 60, 50, 10, 1_024),
        Sizes(20_000, "tiny", 4_000, 40, 200, 5, 2_048),
        Sizes(inf, "small", 8_000, 20, 400, 3, 8_192),
    ),
    {},
)  # fmt: skip
TEXT = Plan(
    "gpt", (64, 128, 256, 512), 400,
    (
        Sizes(2e4, "tiny", 1_000, 60, 40, None, 256, 0.2),
        Sizes(2e5, "tiny", 1_000, 60, 40, 3, 1_024, 0.2),
        Sizes(2e6, "tiny", 2_000, 40, 100, 3, 2_048, 0.2),
        Sizes(5e7, "small", 8_000, 20, 1_000, 3, 8_192, 0.1),
        Sizes(inf, "small", 16_000, 10, 2_000, 3, None, 0.1),
    ),
    {"training.learning_rate": 0.001},
)  # fmt: skip
PLANS = {
    "translation": PAIRS,
    "summarization": PAIRS._replace(changes={**PAIRS.changes, "task": "summarization"}),
    "classification": LABELS,
    "regression": LABELS._replace(recipe="regression"),
    "multiple_choice": LABELS._replace(recipe="multiple-choice"),
    "tagging": LABELS._replace(recipe="tagging", lengths=(128,)),
    "question_answering": LABELS._replace(recipe="question-answering", lengths=(384,)),
    "captioning": CAPTIONS,
    "story_answering": Plan("stories", (), 0, (), {"data": {}}),
    "language_modeling": TEXT,
}
FILLED = {
    "task": "read the document, write the summary",
    "data": "paths are relative to this file",
    "data.validation": "a share set aside to choose the best checkpoint; or files of their own, as for train",
    "data.test": "a share set aside for `regard evaluate`",
    "data.bad_lines": "drop and count what cannot be read; `error` stops and names it",
    "tokenizer": "sub-words, trained on your text",
    "model": "trained from scratch",
    "model.preset": "tiny for little data, then small, base",
    "model.images": "pixels on each side",
    "model.encoder": "images come as features from another network",
    "model.feature_width": "of each region, as in your arrays",
    "head": "what the label calls the choices",
    "training.steps": "updates, at most",
    "training.epochs": "passes over the data, at most",
    "training.validate_every": "steps",
    "training.patience": "stop after so many validations without a better one",
    "training.batch_tokens": "rows times the longest; `auto` finds what fits",
    "training.learning_rate": "the highest",
    "training.warmup": "steps: at most a tenth of all",
    "training.best": "the metric that chooses the checkpoint",
    "evaluation": "by character, which suits the script",
}
"""Comments on what is filled in, where those of the recipe that ships do not fit."""


# What `check` does with files of data


def data_files(recipe: str | Path | Tree, others: Sequence[str]) -> list[str]:
    """The files of data among the arguments of `check`; none where its first argument is a recipe."""
    if isinstance(recipe, dict):
        return []
    path, further = Path(recipe), [other for other in others if "=" not in other]
    if str(recipe) in shipped() or not (is_saved(path) or text_files_in(path)):
        is_table = TextFile(str(recipe), path).suffixes[0] in TABLES
        is_recipe = path.suffix.lower() in (".yaml", ".yml") or (not path.suffix and not further)
        if is_recipe or not (is_table or path.is_file()):
            return []
    return [str(recipe), *further]


def proposal_for(files: Sequence[str], others: Sequence[str], out: str | Path | None) -> tuple[str, Path]:
    """The recipe for the files, written to `out` if that is given, and the folder that its paths are relative to."""
    for override in others:
        if "=" in override:
            hint = "save it with --out, then change it there, or give the override to 'regard train'"
            raise ConfigError("a proposal takes no overrides", where=override, hint=hint)
    if out is not None and Path(out).exists():
        raise ConfigError("the file exists already", where=str(out), hint="give another --out")
    folder = Path() if out is None else Path(out).parent
    text = propose(files, folder)
    if out is not None:
        Path(out).write_text(text, encoding="utf-8")
    return text, folder.absolute()


def next_commands(files: Sequence[str], out: str | Path | None) -> list[str]:
    """What to type next: save the recipe, unless that is done, and train."""
    name = Path(files[0]).name.partition(".")[0] or "mine"
    saved = Path(out) if out is not None else _unused(Path(f"{name}.yaml"))
    save = [] if out is not None else [shlex.join(["regard", "check", *files, "--out", saved.as_posix()])]
    return [*save, shlex.join(["regard", "train", saved.as_posix(), "--out", _unused(Path("runs", name)).as_posix()])]


def _unused(path: Path) -> Path:
    """The path, or one with a number where that exists."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(free for free in chain([path], numbered) if not free.exists())


# The recipe


def propose(files: Sequence[str], folder: Path) -> str:
    """The YAML of a recipe, to be saved in `folder`, for one file or folder, or for two parallel files."""
    profile = recognise(files)
    plan = PLANS[profile.task]
    settings = {**plan.changes, **_data(profile, folder), **_fitted(profile, plan), **profile.settings}
    template = shipped_text(plan.recipe)
    tree, comments = parse_yaml(template, plan.recipe), _comments(template)
    blocks = {path.partition(".")[0] for path in comments if "." in path}
    for path, value in settings.items():
        section, _, key = path.rpartition(".")
        node = tree.setdefault(section, {}) if section else tree
        node[key] = deepcopy(value)
        if value is None:
            del node[key]
    comments |= {path: FILLED[path] for path in settings if path in FILLED}
    notes = [f"{size.script} script, {size.words:.1f} words" for size in profile.sizes]
    notes += [f"column {key} may be the label, too" for key in profile.others]
    comments["data.train"] = "; ".join(notes) or comments["data.train"]
    amount = f"{profile.examples:,} {TASKS[profile.task].data.UNIT}"
    title = f"Proposed by `regard check` for {' and '.join(files)}: {amount}. Made from the recipe `{plan.recipe}`."
    lines = [("", note) for note in (title, *_notes(profile, plan))]
    for section in (name for name in SECTIONS if name in tree):
        if section in blocks:
            lines.append((f"{section}:", comments[section]))
            items = sorted(tree[section].items(), key=lambda item: section == "training" and item[0] not in ENDS)
            lines += [(f"  {key}: {_flow(value)}", comments[f"{section}.{key}"]) for key, value in items]
        else:
            lines.append((f"{section}: {_flow(tree[section])}", comments[section]))
    width = max(len(line) for line, _ in lines if len(line) <= 48) + 1
    return "".join(f"{line:{width}} # {comment}\n" if line else f"# {comment}\n" for line, comment in lines)


def _comments(text: str) -> dict[str, str]:
    """The comments of a recipe, by the paths of the keys that they stand beside."""
    comments, section = dict[str, str](), ""
    for indent, key, comment in re.findall(r"^( *)(\w+):.*?\s# (.*)$", text, re.MULTILINE):
        section = section if indent else key
        comments[f"{section}.{key}" if indent else key] = comment
    return comments


def _data(profile: DataProfile, folder: Path) -> dict[str, Any]:
    """The data line, and about a thousand examples set aside for validation, as many for test."""
    line = {name: _relative(value, folder) for name, value in profile.data.items()}
    share = {"split": round(min(0.1, max(0.005, 1000 / max(profile.examples, 1))), 3)}
    return {"data.train": line, "data.validation": share, "data.test": share, "data.bad_lines": "drop"}


def _fitted(profile: DataProfile, plan: Plan) -> dict[str, Any]:
    """What the amount of data decides, by path; None takes a key out of the recipe that ships."""
    if not plan.sizes:  # the recipe for stories is for some thousand questions
        few = {"model.linear_start": 20, "model.restarts": 10, "training.epochs": 120}
        return few if profile.examples < 5_000 else {}
    is_text = profile.task == "language_modeling"
    amount = profile.examples * (profile.sizes[0].characters if is_text else 1)
    sizes = next(sizes for sizes in plan.sizes if amount < sizes.below)
    longest = max((size.characters for size in profile.sizes), default=0)
    length = next((length for length in plan.lengths if longest <= 2 * length), plan.lengths[-1] if plan.lengths else 0)
    tokens = min(max((max(size.words, size.characters / 8) for size in profile.sizes), default=inf), length or inf)
    scripts = [size.script for size in profile.sizes]
    ideographic = not {*scripts}.isdisjoint(IDEOGRAPHIC)
    settings: dict[str, Any] = {
        "data.max_length": length or None,
        "tokenizer.vocabulary": max(sizes.vocabulary, 16_000) if ideographic else sizes.vocabulary,
        "model.preset": sizes.preset,
    }
    if sizes.dropout is not None:
        settings["model.dropout"] = sizes.dropout
    if profile.task in TOKENIZE and scripts[-1] in ("Hangul", *IDEOGRAPHIC):
        settings["evaluation"] = {"tokenize": TOKENIZE[profile.task]}
    batch = sizes.batch_tokens
    if profile.task == "captioning":
        pixels = 64 if sizes.preset == "tiny" else 128
        settings["model.images"] = {"size": pixels, "max_pixels": 64_000_000}
        tokens = max(tokens, 1 if "model.feature_width" in profile.settings else (pixels // 8) ** 2)
    elif batch and not is_text:
        batch = max(batch, 4 * length * len(profile.data.get("choices", "1")))
    training = pace(sizes, amount / 3 if is_text else amount * tokens, batch or 4_096, plan.steps)
    training["batch_tokens"] = batch or "auto"
    return settings | {f"training.{key}": value for key, value in training.items()}


def pace(sizes: Sizes, tokens: float, batch: int, least: int) -> dict[str, Any]:
    """How long to train: in epochs, or in steps where an epoch has fewer than 20, too few to validate after each.

    `tokens` is the size of the data, four fifths of it for training, `batch` that of a batch, `least` the fewest steps.
    The warm-up is a tenth of all steps at most, and the patience lasts twice as long.
    """
    epoch = max(1, int(0.8 * tokens / batch))
    steps = max(least, sizes.epochs * epoch)
    warmup = min(sizes.warmup, steps // 10)
    by_steps = epoch < 20 or sizes.patience is None
    every = steps if sizes.patience is None else max(epoch, 20)
    return {
        "steps": steps if by_steps else None,
        "epochs": None if by_steps else ceil(steps / epoch),
        "validate_every": every if by_steps else None,
        "patience": None if sizes.patience is None else max(sizes.patience, ceil(2 * warmup / every)),
        "warmup": warmup or None,
    }


# Notes above it


def _notes(profile: DataProfile, plan: Plan) -> Iterator[str]:
    if profile.task == "language_modeling":
        yield "It is for GPT. What to type for the other models of raw text:"
        yield from (_other_model(profile, name, plan) for name in RAW_TEXT)
        name = profile.data.get("text")
        if isinstance(name, Path) and name.is_file():
            yield f"If another text is parallel to it, line by line: regard check {shlex.quote(str(name))} OTHER"
        if profile.examples * profile.sizes[0].characters < plan.sizes[0].below:
            yield "So little text can only be learned by heart, so the last checkpoint is kept; for more than that,"
            yield "start from a pre-trained model: `regard import`, then training.init."
    elif "training.init" in plan.changes:
        fine_tuning = {"training.init": "runs/bert", "training.epochs": max(3, ceil(1_500 / max(1, profile.examples)))}
        yield "Better with few examples: fine-tune runs/bert, made by `regard import` or `regard train bert`:"
        yield _command(plan.recipe, profile, {**profile.settings, **fine_tuning})


def _other_model(profile: DataProfile, name: str, plan: Plan) -> str:
    """The command for another recipe that ships, with the changes that the amount of text asks for."""
    share = _data(profile, Path())["data.validation"]["split"]
    changes: dict[str, Any] = {}
    # a negative needs another document of two sentences in the same split; four, since splits are random
    if profile.data.get("documents") == "lines" or profile.examples * profile.several_sentences * share < 4:
        changes |= {"model.next_sentence": False} if name == "bert" else {}
    whole_words = name != "bert" and profile.sizes[0].script not in ("Hangul", *IDEOGRAPHIC)
    if not whole_words and name != "bert":
        changes["tokenizer.kind"] = "bpe"  # whole words of Korean are too many
    tree = parse_yaml(shipped_text(name), name)
    for path, value in _fitted(profile, plan._replace(steps=RAW_TEXT[name])).items():
        section, _, key = path.partition(".")
        known = key in tree[section] or (value is not None and key in ("steps", "epochs", "validate_every"))
        if known and section != "data" and not (whole_words and section == "tokenizer"):
            changes[path] = value
    return _command(name, profile, changes)


def _command(recipe: str, profile: DataProfile, changes: dict[str, Any]) -> str:
    data = {path: value for path, value in _data(profile, Path()).items() if path != "data.bad_lines"}
    overrides = [f"{path}={_flow(value)}" for path, value in {**data, **changes}.items()]
    return shlex.join(["regard", "train", recipe, *overrides, "--out", f"runs/{recipe}"])


# YAML


def _relative(value: Any, folder: Path) -> Any:
    """A path as seen from a folder, or absolute on another drive of Windows; what is no path as it is."""
    try:
        return Path(os.path.relpath(value, folder)).as_posix() if isinstance(value, Path) else value
    except ValueError:
        return str(value.absolute())


def _flow(value: Any) -> str:
    """A value in the flow style of YAML; a text is quoted unless it is a plain word that is read back as it is."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_flow(item)}' for name, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    plain = re.fullmatch(r"[\w./-]+", value) and parse_yaml(f"x: {value}", "") == {"x": value}
    return value if plain else json.dumps(value, ensure_ascii=False)
