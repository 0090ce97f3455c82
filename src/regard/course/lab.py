"""Runs the experiment of a chapter and sets its text: `run` -> `Lesson`, a result as those of other verbs."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path
from pydoc import locate
from typing import Any, TypeVar, cast

import yaml
from jinja2 import Environment, StrictUndefined

from regard import __version__
from regard.api import Run, train
from regard.config.load import Tree
from regard.course import Chapter, find_chapter
from regard.errors import RegardError
from regard.language import default_language
from regard.recipes.shipped import shipped_text
from regard.runs.run import read_metrics
from regard.views.labels import percent
from regard.views.report import Cell, Part, Prose, Report, Section, Table

T = TypeVar("T")
Number = float | int | str | bool
PLACED = re.compile(r"^!\[(.*)\]\((\S+)\)$", re.MULTILINE)
QUICK = {
    "en": "A quick run: hardly trained, so its numbers mean nothing.",
    "ko": "빠른 실행입니다. 거의 학습하지 않았으므로 숫자에는 의미가 없습니다.",
}
WORDS = re.compile(r"^```words\n(.*?)^```$", re.MULTILINE | re.DOTALL)


Found = tuple[dict[str, Part | list[Part]], dict[str, Number]]
"""What a part of an experiment found: some of the parts and numbers of its `Findings`."""


@dataclass(frozen=True)
class Findings:
    """What an experiment found: figures and tables by name, and the numbers that the text tells and tests check."""

    parts: Mapping[str, Part | Sequence[Part]]
    numbers: Mapping[str, Number]


@dataclass(frozen=True)
class Lab:
    """What an experiment works with."""

    runs: Path
    """The folder of trained runs, which later chapters and repetitions use again."""
    seed: int = 1
    quick: bool = False
    """Whether to train only a few steps: the numbers then mean nothing."""
    full: Path | None = None
    """A folder with real data; None: the built-in corpora."""
    say: Callable[[str], None] = lambda text: None

    def train(self, name: str, recipe: Tree, **training: Any) -> Run:
        """The run of this recipe, trained where there is none yet; one that was interrupted is resumed."""
        tree = {**recipe, "training": {**recipe["training"], "seed": self.seed, **training}}
        if self.quick:
            tree["training"] |= {"steps": 3, "warmup": 1, "validate_every": 3, "batch_tokens": 256}
            tree["data"] = {part: {**corpus, "size": 400 if part == "train" else 20} if "size" in corpus else corpus
                            for part, corpus in tree["data"].items()}  # fmt: skip
        key = hashlib.blake2b(json.dumps([__version__, tree], sort_keys=True).encode(), digest_size=4)
        folder = self.runs / f"{name}-{self.seed}-{key.hexdigest()}"
        if not folder.exists():
            self.say(f"training {folder.name}")
            partial = folder.with_suffix(".partial")
            train(tree, out=partial, resume=partial.exists(), quiet=True).folder.rename(folder)
        return Run.open(folder)

    def few(self, count: int) -> int:
        """A number of examples, fewer in a quick run."""
        return min(count, 20) if self.quick else count


def reverse_recipe(model: Tree, steps: int, rate: float, *, warmup: int = 50, corpus: str = "reverse") -> Tree:
    """Letters to be written backwards, or another built-in corpus: about ten seconds for 300 steps on one core."""
    sizes = {"train": 8000, "validation": 100, "test": 300}
    return {
        "task": "translation",
        "data": {part: {"corpus": corpus, "size": size} for part, size in sizes.items()},
        "tokenizer": {"kind": "word"},
        "model": {"dropout": 0.0, **model},
        "training": {
            "steps": steps, "learning_rate": rate, "warmup": warmup, "schedule": "linear", "batch_tokens": 1024,
            "label_smoothing": 0.0, "decode": 0, "validate_every": steps,
        },
        "search": {"beam": 1},
    }  # fmt: skip


def last_loss(run: Run, event: str) -> float:
    """The last loss of the log, of the event `train` or `validation`."""
    return [float(line["loss"]) for line in read_metrics(run.folder / "metrics.jsonl") if line["event"] == event][-1]


def shipped_on(name: str, folder: Path) -> Tree:
    """A recipe that ships, with the files of its data in a folder: for `--full`."""
    tree = yaml.safe_load(shipped_text(name))
    for part, files in tree["data"].items():
        if isinstance(files, dict):
            tree["data"][part] = {side: str(folder.resolve() / path) for side, path in files.items()}
    return cast(Tree, tree)


@dataclass(frozen=True)
class Lesson:
    """A chapter with its findings."""

    chapter: Chapter
    language: str
    lab: Lab
    findings: Findings

    def to_json(self) -> dict[str, Any]:
        made_with = {"seed": self.lab.seed, "quick": self.lab.quick, "full": str(self.lab.full or "") or None}
        numbers = {"numbers": dict(self.findings.numbers)}
        return {"chapter": self.chapter.number, "title": self.chapter.title} | made_with | numbers

    def report(self) -> Report:
        """The text with the numbers and figures in their places; the terminal shows only what to look at."""
        template = template_environment().from_string(WORDS.sub("", self.chapter.text))
        numbers = {name: translated(value, self.words) for name, value in self.findings.numbers.items()}
        text = template.render(numbers, full=self.lab.full)
        head, *bodies = re.split(r"^## ", text.partition("\n")[2], flags=re.MULTILINE)
        opening, *looks = re.split(r"^[-*] ", head, flags=re.MULTILINE)
        sections = [
            Section(heading.strip(), list(self._parts(body)), in_terminal=0)
            for heading, _, body in (body.partition("\n") for body in bodies)
        ]
        conclusions = [QUICK[self.language]] * self.lab.quick + [" ".join(look.split()) for look in looks]
        return Report(self.chapter.title, sections, " ".join(opening.split()), conclusions, self.language)

    def _parts(self, body: str) -> Iterator[Part]:
        told, *questions = re.split(r"^### ", body, flags=re.MULTILINE)
        texts = PLACED.split(told)  # text, caption, name, text, ...
        for place, text in enumerate(texts):
            if place % 3 == 0 and text.strip():
                yield Prose(text.strip())
            elif place % 3 == 2:
                yield from self._placed(texts[place - 1], text)
        for question, _, answer in (question.partition("\n") for question in questions):
            yield Prose(answer.strip(), title=question.strip())

    def _placed(self, caption: str, name: str) -> Iterator[Part]:
        """What stands in the place of a name; of several parts, the first has the caption."""
        if name.startswith("code:"):
            function: Any = locate(name.removeprefix("code:"))
            source = f"```python\n{inspect.getsource(function)}```"
            yield Prose(source, title=f"{caption}: {name.removeprefix('code:')}")
            return
        found = translated(self.findings.parts[name], self.words)
        first, *others = [found] if isinstance(found, Part) else found
        yield with_title(first, caption) if caption else first
        yield from others

    @property
    def words(self) -> dict[str, str]:
        """What the labels of figures are called in the language of the text."""
        found = WORDS.search(self.chapter.text)
        return dict(yaml.safe_load(found[1])) if found else {}


def template_environment() -> Environment:
    """Jinja2 as the texts use it: numbers are written as in tables, and `|percent` is for shares."""
    environment = Environment(undefined=StrictUndefined, finalize=_shown, keep_trailing_newline=True)
    environment.filters["percent"] = percent
    return environment


def _shown(value: object) -> object:
    return Cell(value).text if isinstance(value, float | int) and not isinstance(value, bool) else value


def flat(report: Report) -> list[Part]:
    """The parts of a report without its sections, whose headings become the titles of their first tables."""
    parts: list[Part] = []
    for section in report.sections:
        place = next((n for n, part in enumerate(section.parts) if isinstance(part, Table)), None)
        parts += [with_title(part, section.heading) if n == place else part for n, part in enumerate(section.parts)]
    return parts


def with_title(part: Part, title: str) -> Part:
    return replace(part, title=title)  # type: ignore[type-var]


def translated(value: T, words: Mapping[str, str]) -> T:
    """A part of a report with every text that `words` has replaced."""
    found: Any = value
    if isinstance(value, str):
        found = words.get(value, value)
    elif is_dataclass(value) and not isinstance(value, type):
        found = replace(value, **{one.name: translated(getattr(value, one.name), words) for one in fields(value)})
    elif isinstance(value, Mapping):
        found = {translated(key, words): translated(part, words) for key, part in value.items()}
    elif isinstance(value, list | tuple):
        found = type(value)(translated(part, words) for part in value)
    return cast(T, found)


def run(
    chapter: int | str,
    *,
    runs: str | Path = "course/runs",
    language: str | None = None,
    seed: int = 1,
    quick: bool = False,
    full: str | Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Lesson:
    """Run a chapter's experiment: `.report()` is its page. Trained runs are kept in the folder `runs`.

    `quick` trains a few steps only, to see that all works. `full` is a folder with real data.
    """
    found = find_chapter(str(chapter), language)
    if full is not None and not Path(full).is_dir():
        raise RegardError("there is no such folder", where=f"--full {full}", hint="a folder that holds multi30k")
    experiment = import_module(f"regard.course.{found.name}").experiment
    lab = Lab(Path(runs), seed, quick, None if full is None else Path(full), say)
    return Lesson(found, language or default_language(), lab, experiment(lab))
