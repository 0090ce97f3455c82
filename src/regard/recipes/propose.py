"""A user's files -> a recipe for them, every line commented."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import escape
from itertools import chain, count
from math import inf
from pathlib import Path
from typing import Any

from regard.config import parse_yaml
from regard.data.columns import CROWDED
from regard.data.formats import FORMATS
from regard.data.huggingface import is_saved
from regard.data.recognise import Recognised, recognise
from regard.data.recognise_images import RecognisedCaptions
from regard.data.recognise_labels import RecognisedLabels
from regard.data.recognise_stories import RecognisedStories
from regard.data.recognise_text import RecognisedText, text_below
from regard.errors import ConfigError
from regard.recipes.propose_captions import captioned_lines
from regard.recipes.propose_labels import labelled_lines
from regard.recipes.propose_pace import Sizes, suiting
from regard.recipes.propose_stories import story_lines
from regard.recipes.propose_text import text_lines
from regard.recipes.shipped import shipped
from regard.text.files import TextFile

RECIPE_SUFFIXES = (".yaml", ".yml")
LENGTHS = (50, 100, 200, 400, 800, 1600)


@dataclass(frozen=True)
class PairSizes(Sizes):
    """What suits a number of pairs."""

    dropout: float
    batch_tokens: int


STEPS = 800
"""The fewest to plan; some hundred pairs take about so many."""
SIZES = (
    PairSizes(500, "tiny", 1_000, 100, 100, 20, 0.2, 256),
    PairSizes(5_000, "tiny", 1_000, 150, 100, 20, 0.2, 1_024),
    PairSizes(50_000, "tiny", 4_000, 40, 400, 5, 0.3, 2_048),
    PairSizes(1_000_000, "small", 8_000, 30, 1_000, 5, 0.2, 4_096),
    PairSizes(inf, "base", 32_000, 10, 4_000, 5, 0.1, 16_384),
)


def data_files(recipe: Any, others: Sequence[str]) -> list[str]:
    """The files of data among the arguments of `check`; none where its first argument is a recipe."""
    if not isinstance(recipe, (str, Path)):
        return []
    path, further = Path(recipe), [other for other in others if "=" not in other]
    if str(recipe) not in shipped() and (is_saved(path) or text_below(path)):
        return [str(recipe), *further]
    table = TextFile(str(recipe), path).suffixes[0] in FORMATS
    is_recipe = path.suffix.lower() in RECIPE_SUFFIXES or (not path.suffix and not further)
    if is_recipe or not (table or path.is_file()):
        return []
    return [str(recipe), *further]


def proposal_for(files: Sequence[str], others: Sequence[str], out: str | Path | None) -> tuple[str, Path]:
    """The recipe for the files, written to `out` if that is given, and the folder that its paths are relative to."""
    for override in others:
        if "=" in override:
            hint = "save it with --out, then change it there, or give the override to 'regard train'"
            raise ConfigError("a proposal takes no overrides", where=override, hint=hint)
    path = None if out is None else Path(out)
    if path is not None and path.exists():
        raise ConfigError("the file exists already", where=str(path), hint="give another --out")
    folder = Path() if path is None else path.parent
    text = propose(files, folder)
    if path is not None:
        path.write_text(text, encoding="utf-8")
    return text, folder.absolute()


def next_commands(files: Sequence[str], out: str | Path | None) -> list[str]:
    """What to type next: save the recipe, unless that is done, and train what it describes."""
    name = Path(files[0]).name.partition(".")[0] or "mine"
    saved = Path(out) if out is not None else _free(Path(f"{name}.yaml"))
    save = [] if out is not None else [shlex.join(["regard", "check", *files, "--out", saved.as_posix()])]
    run = _free(Path("runs", name)).as_posix()
    return [*save, shlex.join(["regard", "train", saved.as_posix(), "--out", run])]


def _free(path: Path) -> Path:
    """The path, or one with a number where that is taken."""
    numbered = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(one for one in chain([path], numbered) if not one.exists())


def propose(files: Sequence[str], folder: Path) -> str:
    """The YAML of a recipe for one file or folder, or for two parallel files; it is to lie in `folder`."""
    found = recognise(files, Path())
    if isinstance(found, RecognisedLabels):
        corpus = {_kind(found.file): _relative(found.file, folder), **found.columns}
        lines = list(labelled_lines(found, _scalar(corpus)))
    elif isinstance(found, RecognisedCaptions):
        corpus = {"file": _relative(found.file, folder), **found.columns}
        lines = list(captioned_lines(found, _scalar(corpus)))
    elif isinstance(found, RecognisedStories):
        pattern = escape(_relative(found.file, folder))  # a file of stories may be named by a pattern
        lines = list(story_lines(found, _scalar({"file": pattern})))
    elif isinstance(found, RecognisedText):
        corpus, typed = (_raw_text(found, relative) for relative in (folder, Path()))
        lines = list(text_lines(found, _scalar(corpus), _scalar(typed)))
    else:
        sizes = suiting(SIZES, found.pairs)
        lines = [
            *_task(found, folder), *_data(found), *_tokenizer(found, sizes), *_model(sizes), *_training(found, sizes),
        ]  # fmt: skip
    width = max(len(line) for line, _ in lines if len(line) <= 48) + 1
    return "".join(f"{line:{width}} # {comment}\n" if line else f"# {comment}\n" for line, comment in lines)


def _raw_text(found: RecognisedText, folder: Path) -> dict[str, Any]:
    name = _relative(found.name, folder)
    if found.column is not None:
        return {_kind(found.name): name, "text": found.column}
    return {"text": name} | ({"documents": "lines"} if found.documents == "lines" else {})


Lines = Iterator[tuple[str, str]]
"""Lines of YAML, each with its comment; an empty line has only the comment."""


def _task(found: Recognised, folder: Path) -> Lines:
    names = ("document", "summary") if found.summaries else ("source", "target")
    sides = (found.source, found.target)
    named = " and ".join(str(side.key) for side in sides) if found.file is None else found.file
    yield "", f"Proposed by `regard check` for {named}: {found.pairs:,} pairs."
    if found.summaries:
        yield "task: summarization", "read the document, write the summary"
    else:
        yield "task: translation", "pairs of texts: read the source, write the target"
    keys = {
        name: side.key if found.file is not None else _relative(str(side.key), folder)
        for name, side in zip(names, sides, strict=True)
    }
    corpus: dict[str, Any] = keys if found.file is None else {_kind(found.file): _relative(found.file, folder), **keys}
    if found.header and not any(isinstance(key, str) for key in keys.values()):
        corpus["header"] = True
    about = "; ".join(
        f"{name}: {side.script} script, {side.words:.1f} words" for name, side in zip(names, sides, strict=True)
    )
    yield "data:", "paths are relative to this file"
    yield f"  train: {_scalar(corpus)}", about


def _data(found: Recognised) -> Lines:
    share = round(min(0.1, max(0.005, 1000 / max(found.pairs, 1))), 3)
    longest = max(found.source.characters, found.target.characters)
    yield f"  validation: {{split: {share}}}", "set aside to choose the best checkpoint with"
    yield f"  test: {{split: {share}}}", "set aside for `regard evaluate`"
    yield f"  max_length: {_max_length(found)}", f"tokens; 99 of 100 texts have at most {longest:,} characters"
    yield "  bad_lines: drop", "drop empty and endless lines, and count them; `error` stops and names them"


def _tokenizer(found: Recognised, sizes: PairSizes) -> Lines:
    scripts = {found.source.script, found.target.script}
    vocabulary = max(sizes.vocabulary, 16_000) if scripts.intersection(CROWDED) else sizes.vocabulary
    yield "tokenizer:", "trained on your text when the training starts"
    yield "  kind: bpe", "pieces of words"
    yield f"  vocabulary: {vocabulary}", "1,000 for a few thousand pairs, 4,000 for some 10,000, 32,000 for millions"
    yield "  joint: true", "one vocabulary for both sides"


def _model(sizes: PairSizes) -> Lines:
    yield "model:", "see README for the others"
    yield "  kind: transformer", "the others of README have other fields: leave norm out for them"
    yield f"  preset: {sizes.preset}", "tiny below 50,000 pairs, base from a million on"
    yield "  norm: pre", "steadier than the paper's post-norm where nothing is tuned"
    yield f"  dropout: {sizes.dropout}", "0.3 for little data, 0.1 for millions of pairs"
    yield "  tie: all", "one matrix for both embeddings and the readout"


def _training(found: Recognised, sizes: PairSizes) -> Lines:
    batch_tokens = max(sizes.batch_tokens, 4 * _max_length(found))
    tokens = found.pairs * max(max(side.words, side.characters / 8) for side in (found.source, found.target))
    plan = sizes.pace(tokens, batch_tokens, steps=STEPS)
    yield "training:", "Ctrl-C saves, `--resume` goes on"
    yield from plan.lines()
    yield f"  batch_tokens: {batch_tokens}", "rows times the longest side; `auto` finds what fits"
    yield "  learning_rate: 1.0e-3", "the highest"
    yield "  schedule: inverse_sqrt", "falls with the square root of the steps"
    yield f"  warmup: {plan.warmup}", "steps of rise: at most a tenth of all"
    yield "search: {beam: 5, length_penalty: 1.0}", "five hypotheses, ranked by log P a token"
    if found.target.by_character:
        tokenize = "characters" if found.summaries else "char"
        yield f"evaluation: {{tokenize: {tokenize}}}", f"by character, which suits {found.target.script}"


def _max_length(found: Recognised) -> int:
    """A round number of tokens that holds nearly all texts: a piece has two characters or more on average."""
    longest = max(found.source.characters, found.target.characters)
    return next((length for length in LENGTHS if longest <= 2 * length), LENGTHS[-1])


def _kind(path: str) -> str:
    """What a recipe calls what holds all columns."""
    return "dataset" if Path(path).is_dir() else "file"


def _relative(path: str, folder: Path) -> str:
    """The path as seen from a folder; on another drive of Windows there is no such thing."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        return str(Path(path).absolute())


def _scalar(value: Any) -> str:
    """A value in the flow style of YAML; a text is quoted unless it is a plain word that is read back as it is."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {_scalar(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, str) and not (re.fullmatch(r"[\w./-]+", text) and parse_yaml(f"x: {text}", "") == {"x": text}):
        return json.dumps(text, ensure_ascii=False)
    return text
