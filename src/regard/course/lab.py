"""Runs the experiment of a chapter and fills its text with the numbers: `run` returns a `Lesson`, a
result like those of the verbs."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from importlib import import_module
from itertools import chain
from pathlib import Path
from pydoc import locate
from typing import Any, cast

import yaml
from jinja2 import Environment, StrictUndefined, UndefinedError

from regard import __version__
from regard.api import Run, train
from regard.config import Tree
from regard.course import Chapter, find_chapter
from regard.course.findings import FINDINGS_FOLDER, Origin, Stored, packaged, store
from regard.course.seeds import SEEDS, Mean, Verdicts, gathered, run_seeds
from regard.course.seeds import Findings as Findings
from regard.data.batches import Batch, Padded
from regard.errors import RegardError
from regard.language import default_language
from regard.recipes.shipped import shipped_text
from regard.tasks.reading import padded
from regard.text.writing import write_file
from regard.views.labels import percent
from regard.views.report import Cell, Guess, Part, Prose, Report, Result, Section, Table

FIGURE_PLACE = re.compile(r"^!\[(.*)\]\((\S+)\)$", re.MULTILINE)
QUICK_SHARE = 0.1
"""The share of its steps that a training has in a quick run."""
QUICK_NOTICE = {
    "en": "A quick run: one seed, and trainings of a tenth of the steps. It shows what the page "
    "has; its numbers and conclusions are those of models that have hardly learned.",
    "ko": "빠른 실행입니다. 시드는 하나이고 스텝 수의 10분의 1만 학습했습니다. 페이지에 무엇이 "
    "있는지 보여 줄 뿐이며, 숫자와 결론은 거의 배우지 못한 모델의 것입니다.",
}
STORED_NOTICE = {
    "en": "Computed with regard {version} on {date}, with seeds {first} to {last}. Run it yourself: "
    "`regard course {number}`.",
    "ko": "regard {version}에서 {date}에 계산한 결과입니다(시드 {first}~{last}). 직접 실행하려면: "
    "`regard course {number}`.",
}
OUTDATED_NOTICE = {
    "en": "The experiment has changed since: its numbers may be different now.",
    "ko": "그 뒤로 실험이 바뀌었으므로 지금 계산하면 숫자가 다를 수 있습니다.",
}
COMMON_WORDS = {
    "en": dict[str, str](),
    "ko": {
        "claim": "주장",
        "here": "여기서는",
        "seeds": "시드",
        "holds": "성립함",
        "does not hold here": "성립하지 않음",
        "differs by seed": "시드에 따라 다름",
    },
}
"""Labels that every chapter has -> their translations."""
NOTEBOOK_INTRODUCTION = {
    "en": "Run all cells. The first cell of code is folded: it has the functions that "
    "`experiment`, below it, calls. "
    "Change either and run the cells again; runs that are trained already are not trained again. "
    "Numbers in the text "
    "are those that `regard course` found.",
    "ko": "셀을 모두 실행하십시오. 접혀 있는 첫 코드 셀에는 그 아래의 `experiment`가 부르는 "
    "함수들이 있습니다. "
    "어느 쪽이든 고쳐서 다시 실행해 볼 수 있고, 이미 학습한 모델은 다시 학습하지 않습니다. "
    "글 속의 숫자는 `regard course`를 실행했을 때의 값입니다.",
}
NOTEBOOK_LAB = """\
from pathlib import Path

from regard.course import find_chapter
from regard.course.lab import Lab, Lesson
from regard.course.seeds import gathered

lab = Lab(Path("{runs}"), seed={lesson.lab.seed}, share={lesson.lab.share}, full={full}, say=print)
chapter = find_chapter("{lesson.chapter.name}", "{lesson.language}")
found = gathered(CLAIMS, [experiment(own){alone} for own in lab.by_seed()])
lesson = Lesson(chapter, "{lesson.language}", lab, *found)
lesson.numbers
"""
GUESS_BLOCK = re.compile(r"^```guess\n(.*?)^```\n*", re.MULTILINE | re.DOTALL)
"""A question that the page asks before a figure, as YAML: the fields of a `Guess`, and the figure."""
WORDS_BLOCK = re.compile(r"^```words\n(.*?)^```$", re.MULTILINE | re.DOTALL)


# What several chapters train

BAHDANAU_MODEL: Tree = {
    "kind": "bahdanau",
    "bidirectional": True,
    "embedding": 32,
    "hidden": 64,
    "attention": 64,
}
SENTENCE_SIZES = {"embedding": 64, "hidden": 128}
"""Sizes for models that read sentences."""
ONE_VECTOR_MODEL: Tree = {
    "kind": "rnn",
    "cell": "gru",
    "embedding": 32,
    "hidden": 96,
    "context": "every_step",
}
"""An RNN without attention."""
TRANSFORMER_MODEL: Tree = {
    "kind": "transformer",
    "width": 96,
    "heads": 4,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "feed_forward": 192,
    "norm": "post",
}
"""A small Transformer with post-norm, as in the paper."""
PRETRAINING_TEXTS = {"reviews-en": 4000, "names-en": 3000, "portraits-en": 6000, "errands": 1500}
"""Corpora and their sizes: texts that all models read without labels, and are asked about later."""
BLOCK_SIZES = {
    "layers": 2,
    "width": 64,
    "heads": 4,
    "feed_forward": 128,
    "dropout": 0.0,
    "max_positions": 96,
}
LANGUAGE_MODELS: dict[str, Tree] = {
    "lstm_lm": {"kind": "lstm_lm", "embedding": 64, "hidden": 96, "layers": 1, "tie": False},
    "elmo": {
        "kind": "elmo",
        "words": "tokens",
        "width": 32,
        "hidden": 64,
        "layers": 2,
        "dropout": 0.0,
    },
    "gpt": {"kind": "gpt", **BLOCK_SIZES, "norm": "pre"},
    "bert": {"kind": "bert", **BLOCK_SIZES, "next_sentence": False},
}
MODEL_TITLES = {
    "word2vec": "word2vec",
    "lstm_lm": "LSTM",
    "elmo": "ELMo",
    "gpt": "GPT",
    "bert": "BERT",
}
"""How the texts of the course call each kind of model."""
PRETRAINING_STEPS = {"lstm_lm": 1500, "elmo": 640, "gpt": 1150, "bert": 1250}
"""Updates that take about 18 s on one core (17.7 to 18.6 s); the page shows the measured time."""
PRETRAINING_RATES = {"lstm_lm": 5e-3, "elmo": 5e-3, "gpt": 3e-3, "bert": 2e-3}
FROZEN_HEAD: Tree = {"freeze": "all"}

# An experiment


def silent(text: str) -> None:
    """Says nothing of what is trained."""


@dataclass(frozen=True)
class Lab:
    """The settings of an experiment with one seed, and the trainings it can run."""

    runs: Path
    """The folder of trained runs, which later chapters and repetitions reuse."""
    seed: int = 1
    share: float = 1.0
    """The share of its steps that each training has; 0: three steps."""
    full: Path | None = None
    """A folder with real data; None: the built-in corpora."""
    say: Callable[[str], None] = silent
    """Told what is trained. Processes call it, so it is a function of a module."""
    first: bool = True
    """Whether this is the first of the seeds, from which examples and worked numbers are shown."""

    @property
    def quick(self) -> bool:
        """Whether the trainings are shortened, with one seed."""
        return self.share < 1

    def by_seed(self) -> list[Lab]:
        """The lab of each seed: three, or one in a quick run."""
        others = range(0 if self.quick else SEEDS)[1:]
        return [
            self,
            *(replace(self, seed=self.seed + number, first=False) for number in others),
        ]

    def train(self, name: str, recipe: Tree, **training: Any) -> Run:
        """The run of this recipe: trained if there is none yet, resumed if it was interrupted."""
        tree = {**recipe, "training": {**recipe["training"], "seed": self.seed, **training}}
        if self.quick:
            tree = shortened(tree, self.share)
        key = hashlib.blake2b(
            json.dumps([__version__, tree], sort_keys=True).encode(), digest_size=4
        )
        folder = self.runs / f"{name}-{self.seed}-{key.hexdigest()}"
        if not folder.exists():
            self.say(f"training the run {folder.name}")
            partial = folder.with_suffix(".partial")
            train(tree, out=partial, resume=partial.exists(), quiet=True).folder.rename(folder)
        return Run.open(folder)

    def pairs(
        self,
        name: str,
        rows: Iterable[Sequence[str]],
        columns: Sequence[str] = ("source", "target"),
    ) -> Tree:
        """A corpus made of the chapter's own sources and targets, in a file beside the runs."""
        text = "".join("\t".join(row) + "\n" for row in rows)
        return {
            "file": self.file(f"{name}.tsv", text),
            **{column: number for number, column in enumerate(columns)},
        }

    def file(self, name: str, text: str) -> str:
        """The path of a file with this text beside the runs; its name tells the text."""
        stem, suffix = name.rsplit(".", 1)
        key = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
        file = self.runs / f"{stem}-{key}.{suffix}"
        if not file.exists():  # whole at once, since other seeds read it
            file.parent.mkdir(parents=True, exist_ok=True)
            write_file(file, text)
        return str(file.resolve())

    def examples(self, **found: Any) -> Findings:
        """Findings about one run or one sentence, which have no mean: the first seed's are shown."""
        return found if self.first else {}

    def few(self, count: int, least: int = 20) -> int:
        """A number of examples, fewer in a quick run."""
        return min(count, max(least, round(count * self.share)))

    # Pre-training and what follows it: chapters 8 and 9

    def texts(self, sizes: dict[str, int]) -> Tree:
        """Raw texts as the parts of a corpus."""
        train = [{"corpus": name, "size": self.few(size, 100)} for name, size in sizes.items()]
        return {
            "train": train,
            "validation": [{"corpus": name, "size": 60} for name in sizes],
            "max_length": 64,
        }

    def pretrain(
        self,
        name: str,
        data: Tree,
        model: Tree,
        steps: int | None = None,
        vocabulary: int = 1000,
        **training: Any,
    ) -> Run:
        """Pre-train a model on raw text, by default for as long as the others."""
        kind = str(model["kind"])
        training = training_of(
            steps or PRETRAINING_STEPS[kind], PRETRAINING_RATES[kind], **training
        ) | ({} if kind == "bert" else {"decode": 0})
        return self.train(
            name, text_recipe(model, data, {"kind": "word", "vocabulary": vocabulary}, training)
        )

    def pretrained(self, kinds: Iterable[str] = tuple(LANGUAGE_MODELS)) -> dict[str, Run]:
        """Models pre-trained on the built-in texts; chapter 9 reuses BERT."""
        data = self.texts(PRETRAINING_TEXTS)
        return {
            kind: self.pretrain(f"pretrained-{kind}", data, LANGUAGE_MODELS[kind]) for kind in kinds
        }

    def fine_tune(
        self,
        name: str,
        data: Tree,
        start: Run | Tree,
        task: str = "classification",
        steps: int = 100,
        head: Tree | None = None,
        rate: float | None = None,
    ) -> Run:
        """Train on few labels: from a pre-trained run, or from scratch with the given model and
        tokenizer."""
        is_plain = data["train"].get("scheme") == "plain"
        best = "accuracy" if task == "classification" or is_plain else "f1"
        rate = rate or (1e-2 if head == FROZEN_HEAD else 2e-3)
        training = training_of(steps, rate, warmup=20, batch_tokens=512, best=best)
        recipe = {"task": task, "data": data, "head": head or {}, "training": training}
        if isinstance(start, Run):
            training["init"] = str(start.folder.resolve())
        else:
            recipe |= {"tokenizer": {"kind": "word", "vocabulary": 1000}, **start}
        return self.train(name, recipe)

    def tagged_names(self, size: int) -> Tree:
        """This many sentences with tagged names; each seed has different ones."""
        data = built_in("names-en", size, test=500)
        return data | {"train": data["train"] | {"seed": 10 * self.seed + 2}}


def shortened(recipe: Tree, share: float) -> Tree:
    """A recipe with this share of its steps and fewer examples; with three steps if the share is 0."""
    training = dict(recipe["training"])
    for name in ("steps", "warmup", "validate_every", "epochs"):
        if name in training:
            training[name] = max(1, round(share * training[name]))
    sizes = {"train": max(400, round(20_000 * share))}
    if share == 0:
        training |= {"steps": 3, "warmup": 1, "validate_every": 3, "batch_tokens": 256}
    data = {
        part: {**corpus, "size": min(corpus["size"], sizes.get(part, max(20, round(1000 * share))))}
        if isinstance(corpus, dict) and "size" in corpus
        else corpus
        for part, corpus in recipe["data"].items()
    }
    return {**recipe, "training": training, "data": data}


def built_in(
    corpus: str, train: int, validation: int = 100, test: int | None = None, **options: int
) -> Tree:
    """A built-in corpus with these numbers of examples for its parts."""
    sizes = {"train": train, "validation": validation, "test": test}
    return {
        part: {"corpus": corpus, "size": size, **options}
        for part, size in sizes.items()
        if size is not None
    }


def training_of(
    steps: int, rate: float, warmup: int = 50, batch_tokens: int = 1024, **others: float | str
) -> Tree:
    """A short training, validated once at its end."""
    return {
        "steps": steps,
        "learning_rate": rate,
        "warmup": warmup,
        "schedule": "linear",
        "batch_tokens": batch_tokens,
        "validate_every": steps,
        **others,
    }


def text_recipe(model: Tree, data: Tree, tokenizer: Tree, training: Tree) -> Tree:
    """The recipe of a model that reads raw text."""
    task = "masked_language_modeling" if model["kind"] == "bert" else "language_modeling"
    return {
        "task": task,
        "data": data,
        "tokenizer": tokenizer,
        "model": model,
        "training": training,
    }


def reverse_recipe(
    model: Tree, steps: int, rate: float, *, warmup: int = 50, corpus: str = "reverse"
) -> Tree:
    """The recipe for writing letters backwards, or for another built-in corpus: about ten seconds
    for 300 steps on one core."""
    return {
        "task": "translation",
        "data": built_in(corpus, 8000, test=300),
        "tokenizer": {"kind": "word"},
        "model": {"dropout": 0.0, **model},
        "training": training_of(steps, rate, warmup, label_smoothing=0.0, decode=0),
        "search": {"beam": 1},
    }


def reverse_transformer(changes: Tree | None = None, corpus: str = "reverse") -> Tree:
    """The Transformer of chapters 4 and 5, which writes letters backwards."""
    return reverse_recipe(TRANSFORMER_MODEL | (changes or {}), 450, 4e-3, warmup=60, corpus=corpus)


def phrases_recipe(language: str, model: Tree, rate: float = 5e-3) -> Tree:
    """The recipe for translating English sentences of at most seven words: about half a minute."""
    data = built_in(f"phrases-en-{language}", 1500, test=100, max_words=7)
    tokenizer = {"kind": "bpe", "vocabulary": 2000, "joint": False}
    return reverse_recipe(model, 450, rate) | {"data": data, "tokenizer": tokenizer}


def source_tokens(run: Run, texts: Sequence[str]) -> Padded:
    """Texts as the encoder of a translation run reads them."""
    tokenizer = run.tokenizers["source"]
    return padded([[*tokenizer.encode(text), tokenizer.end] for text in texts], tokenizer.pad)


def pair_batch(run: Run, sources: Sequence[str], targets: Sequence[str]) -> Batch:
    """Texts and their translations, as a translation run reads them in training."""
    tokenizer = run.tokenizers["target"]
    read = [[tokenizer.begin, *tokenizer.encode(text), tokenizer.end] for text in targets]
    return Batch(source_tokens(run, sources), padded(read, tokenizer.pad))


def last_loss(run: Run, event: str) -> float:
    """The last loss of the log, of the event `train` or `validation`."""
    return [float(line["loss"]) for line in run.events() if line["event"] == event][-1]


def shipped_on(name: str, folder: Path) -> Tree:
    """A recipe that ships, with the files of its data in a folder: for `--full`."""
    tree = yaml.safe_load(shipped_text(name))
    for part, files in tree["data"].items():
        if isinstance(files, dict):
            tree["data"][part] = {
                side: str(folder.resolve() / path) for side, path in files.items()
            }
    return cast(Tree, tree)


def captions_recipe(folder: Path) -> Tree:
    """`multi30k-transformer` with a shorter training: about a minute on a large GPU."""
    recipe = shipped_on("multi30k-transformer", folder)
    return recipe | {
        "training": recipe["training"] | {"steps": 1500, "warmup": 400, "validate_every": 1500}
    }


@dataclass(frozen=True, repr=False)
class Lesson(Result):
    """The result of a chapter: its text with the findings."""

    chapter: Chapter
    language: str
    lab: Lab
    found: Findings
    verdicts: Verdicts
    origin: Origin | None = None
    """Where the findings were computed; None: just now."""

    @property
    def note(self) -> str:
        """Where and when the numbers were computed, if not just now."""
        if self.origin is None:
            return ""
        seeds = {"first": self.origin.seeds[0], "last": self.origin.seeds[-1]}
        facts = {**vars(self.origin), **seeds, "number": self.chapter.number}
        outdated = [OUTDATED_NOTICE[self.language]] * self.origin.outdated
        return " ".join([STORED_NOTICE[self.language].format(**facts), *outdated])

    @property
    def numbers(self) -> dict[str, float | int | str | bool]:
        return {
            name: value
            for name, value in self.found.items()
            if isinstance(value, float | int | str)
        }

    def to_json(self) -> dict[str, Any]:
        made_with = {
            "seeds": [lab.seed for lab in self.lab.by_seed()],
            "quick": self.lab.quick,
            "full": str(self.lab.full or "") or None,
        }
        chapter = {"chapter": self.chapter.number, "title": self.chapter.title}
        by_seed = {
            name: value.by_seed for name, value in self.numbers.items() if isinstance(value, Mean)
        }
        held = {key: verdict.held for key, verdict in self.verdicts.items()}
        return {
            **chapter,
            **made_with,
            "numbers": self.numbers,
            "by_seed": by_seed,
            "claims_hold_with": held,
        }

    @cached_property
    def text(self) -> str:
        """The text, filled with the numbers."""
        template = template_environment().from_string(WORDS_BLOCK.sub("", self.chapter.text))
        numbers = {name: translated(value, self.words) for name, value in self.numbers.items()}
        verdict = {key: replace(own, language=self.language) for key, own in self.verdicts.items()}
        text = template.render(numbers, full=self.lab.full, verdict=verdict)
        return re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", text)

    def report(self) -> Report:
        """The text, filled with the numbers and figures; the terminal shows only the figures."""
        told = GUESS_BLOCK.sub("", self.text).partition("\n")[2]
        head, *bodies = re.split(r"^## ", told, flags=re.MULTILINE)
        opening, *looks = re.split(r"^[-*] ", head, flags=re.MULTILINE)
        sections = [
            Section(heading.strip(), list(self._parts(body)), in_terminal=0)
            for heading, _, body in (body.partition("\n") for body in bodies)
        ]
        opening, *looks = (
            re.sub("[ \n]+", " ", text).strip() for text in (opening, *looks)
        )  # not no-break spaces
        return Report(
            self.chapter.title,
            sections,
            opening,
            [*[QUICK_NOTICE[self.language]] * self.lab.quick, *looks],
            self.note,
            self.language,
        )

    def _parts(self, body: str) -> Iterator[Part]:
        for piece in text_parts(body):
            if isinstance(piece, Prose):
                yield piece
                continue
            if piece[1] in self.guesses:
                yield self.guesses[piece[1]]
            yield from self._placed(*piece)

    def _placed(self, caption: str, name: str) -> Iterator[Part]:
        """The parts for the place of a name; the first of several has the caption."""
        parts = translated(self.found[name], self.words)
        first, *others = [parts] if isinstance(parts, Part) else parts
        yield with_title(first, caption) if caption else first
        yield from others

    @cached_property
    def guesses(self) -> dict[str, Guess]:
        """The questions to guess at, by the figure that they stand before."""
        blocks = [yaml.safe_load(block) for block in GUESS_BLOCK.findall(self.text)]
        return {block.pop("figure"): Guess(**block) for block in blocks}

    def figure(self, name: str) -> Report:
        """A figure or table of the chapter with its caption: for notebooks."""
        captions = {name: caption for caption, name in FIGURE_PLACE.findall(self.text)}
        return Report(
            "", [Section("", [*self._placed(captions[name], name)])], language=self.language
        )

    def notebook(self, folder: Path) -> str:
        """The chapter as a Jupyter notebook in a folder: text, the experiment's code, and a cell
        for each figure."""
        module = import_module(f"regard.course.{self.chapter.name}")
        experiment = inspect.getsource(module.experiment)
        runs = os.path.relpath(self.lab.runs, folder)
        full = self.lab.full and str(self.lab.full.resolve())
        found = NOTEBOOK_LAB.format(
            runs=Path(runs).as_posix(),
            full=full and f"Path({full!r})",
            lesson=self,
            alone=" | experiment_alone(own)" if hasattr(module, "experiment_alone") else "",
        )
        told = GUESS_BLOCK.sub("", self.text)
        head, *bodies = re.split(r"^(?=## )", told, flags=re.MULTILINE)
        cells = [
            _notebook_cell(
                "\n\n".join(
                    [
                        head,
                        *[QUICK_NOTICE[self.language]] * self.lab.quick,
                        *filter(None, [self.note]),
                        NOTEBOOK_INTRODUCTION[self.language],
                    ]
                )
            ),
            _notebook_cell(
                inspect.getsource(module).replace(experiment, ""), code=True, hidden=True
            ),
            *(_notebook_cell(code, code=True) for code in (experiment, found)),
        ]
        for piece in chain.from_iterable(map(text_parts, bodies)):
            if not isinstance(piece, Prose):
                cells.append(_notebook_cell(f"lesson.figure({piece[1]!r})", code=True))
            elif piece.title:
                cells.append(
                    _notebook_cell(
                        f"<details><summary>{piece.title}</summary>\n\n{piece.text}\n\n</details>"
                    )
                )
            else:
                cells.append(_notebook_cell(piece.text))
        kernel = {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
        }
        numbered = [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)]
        whole = {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": numbered}
        return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"

    @property
    def words(self) -> dict[str, str]:
        """The labels of figures -> their translations into the language of the text."""
        found = WORDS_BLOCK.search(self.chapter.text)
        return COMMON_WORDS[self.language] | (yaml.safe_load(found[1]) if found else {})


def text_parts(body: str) -> Iterator[Prose | tuple[str, str]]:
    """Texts, folded code and questions, and (caption, name) of each figure, in their order."""
    told, *questions = re.split(r"^### ", body, flags=re.MULTILINE)
    texts = FIGURE_PLACE.split(told)  # text, caption, name, text, ...
    for place, text in enumerate(texts):
        if place % 3 == 0 and text.strip():
            yield Prose(text.strip())
        elif place % 3 == 2 and text.startswith("code:"):
            name = text.removeprefix("code:")
            function: Any = locate(name)
            yield Prose(
                f"```python\n{inspect.getsource(function)}```", title=f"{texts[place - 1]}: {name}"
            )
        elif place % 3 == 2:
            yield texts[place - 1], text
    for question, _, answer in (question.partition("\n") for question in questions):
        yield Prose(answer.strip(), title=question.strip())


def _notebook_cell(source: str, *, code: bool = False, hidden: bool = False) -> dict[str, Any]:
    """A cell of a notebook. JupyterLab shows a hidden one as a line that opens it."""
    metadata = {"jupyter": {"source_hidden": True}} if hidden else {}
    cell = {
        "cell_type": "code" if code else "markdown",
        "metadata": metadata,
        "source": source.strip(),
    }
    return cell | ({"execution_count": None, "outputs": []} if code else {})


def template_environment() -> Environment:
    """The Jinja2 environment of the texts. Numbers are written as in tables, with their range if
    they differ by seed: `|percent` is for shares, `|fixed(1)` for a number of decimals."""
    environment = Environment(
        undefined=StrictUndefined, finalize=_shown, keep_trailing_newline=True
    )
    environment.filters["percent"] = lambda share: _spread(share, _percent, " %")
    environment.filters["fixed"] = lambda value, decimals: _spread(
        value, lambda number: f"{number:.{decimals}f}"
    )
    return environment


def _spread(value: float, written: Callable[[float], str], unit: str = "") -> str:
    return value.text(written, unit) if isinstance(value, Mean) else written(value)


def _percent(share: float) -> str:
    return percent(float(f"{share:.2f}"))  # rounded as in tables


def _shown(value: object) -> object:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return _spread(value, lambda number: Cell(number).text)
    return value


def flat(report: Report) -> list[Part]:
    """The parts of a report without its sections. The heading of a section becomes the title of its
    first table, which moves before the texts so that they do not end up under the heading
    before."""
    parts: list[Part] = []
    for section in report.sections:
        first, *others = sorted(section.parts, key=lambda part: not isinstance(part, Table))
        parts += [
            with_title(first, section.heading) if isinstance(first, Table) else first,
            *others,
        ]
    return parts


def with_title(part: Part, title: str) -> Part:
    return replace(part, title=title)  # type: ignore[type-var]


def translated(value: object, words: Mapping[str, str]) -> Any:
    """A part of a report, with every text replaced by its translation in `words`, if there is
    one."""
    if isinstance(value, str):
        return words.get(value, value)
    if is_dataclass(value) and not isinstance(value, type):
        texts = {
            field.name: translated(getattr(value, field.name), words) for field in fields(value)
        }
        return replace(value, **texts)
    if isinstance(value, Mapping):
        return {translated(key, words): translated(part, words) for key, part in value.items()}
    return (
        type(value)(translated(part, words) for part in value)
        if isinstance(value, list | tuple)
        else value
    )


def run(
    chapter: int | str,
    *,
    runs: str | Path = "course/runs",
    language: str | None = None,
    seed: int = 1,
    quick: bool = False,
    full: str | Path | None = None,
    say: Callable[[str], None] = silent,
) -> Lesson:
    """Run a chapter's experiment with three seeds, each in a process of its own; `.report()` of the
    result is its page. Trained runs are kept in the folder `runs`, what each seed found in
    `runs/findings`.

    `seed` is the first of the seeds. `quick` trains a tenth of the steps with one seed, to see what
    the page has. `full` is a folder with real data.
    """
    wanted = find_chapter(str(chapter), language)
    if full is not None and not Path(full).is_dir():
        raise RegardError(
            "there is no such folder", where=f"--full {full}", hint="a folder that holds multi30k"
        )
    share = QUICK_SHARE if quick else 1.0
    lab = Lab(Path(runs), seed, share, None if full is None else Path(full), say)
    started = time.perf_counter()
    found = run_seeds(wanted.name, lab.by_seed())
    if not quick and full is None:
        seeds = [own.seed for own in lab.by_seed()]
        store(lab.runs / FINDINGS_FOLDER, wanted, found, seeds, time.perf_counter() - started)
    claims = import_module(f"regard.course.{wanted.name}").CLAIMS
    return Lesson(wanted, language or default_language(), lab, *gathered(claims, found))


def stored_lesson(chapter: Chapter, language: str, stored: Stored) -> Lesson:
    """A chapter with findings that were computed before."""
    claims = import_module(f"regard.course.{chapter.name}").CLAIMS
    lab = Lab(Path("course/runs"), stored.origin.seeds[0])
    return Lesson(chapter, language, lab, *gathered(claims, stored.by_seed), stored.origin)


def packaged_lesson(chapter: Chapter, language: str) -> Lesson | None:
    """A chapter with the findings that come with the package; None if there are none, or if its
    text or its claims ask for something that they do not have."""
    stored = packaged(chapter.name)
    if stored is None:
        return None
    return fitting_lesson(chapter, language, stored)


def fitting_lesson(chapter: Chapter, language: str, stored: Stored) -> Lesson | None:
    """A chapter with stored findings; None if they lack what its text or its claims ask for."""
    try:
        lesson = stored_lesson(chapter, language, stored)
        figures = {name for _, name in FIGURE_PLACE.findall(lesson.text) if ":" not in name}
    except (KeyError, UndefinedError):
        return None
    return lesson if figures <= {*lesson.found} else None
