"""The runs of a server: loaded ones, and folders that are loaded when they are first asked for."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from safetensors import SafetensorError, safe_open

from regard.api import Loaded, load
from regard.data.corpora import Part
from regard.data.readers import open_corpus
from regard.errors import CheckpointError, RegardError
from regard.runs.checkpoints import load_facts
from regard.runs.run import Run
from regard.studio.answers import error_json
from regard.studio.folder_names import with_folder_names
from regard.studio.served import ServedRun
from regard.studio.settings import Settings
from regard.text.languages import languages_of
from regard.views.diagrams import explains_nothing

MAX_OFFERED_INPUTS = 4
"""Inputs of the run's data that are offered."""
ROWS_BETWEEN_INPUTS = 7
"""Rows between two of them: those beside each other may be alike."""
CONVERSATION_COLUMNS = {"q", "a", "question", "answer", "prompt", "response", "질문", "답변"}
"""Names of columns, in lower case, by which data is a conversation."""
MAX_RUNS_IN_MEMORY = 6
"""Runs of a studio that are in memory at once."""


class Runs:
    """The runs of a server, by their names."""

    def __init__(
        self,
        settings: Settings,
        loaded: Mapping[str, Loaded] | None = None,
        folders: Callable[[], Mapping[str, Path]] = dict,
        examples: Mapping[str, Path] | None = None,
        device: str = "auto",
        accept_recipe: bool = False,
    ) -> None:
        self.settings = settings
        self.folders = folders
        self.examples = examples or {}
        """Runs of the package, into whose folders nothing is written."""
        self.options: dict[str, Any] = {"device": device, "accept_recipe": accept_recipe}
        """The options that a run is loaded with."""
        self.added: dict[str, Path] = {}
        """Runs whose training the page has started, wherever the others are."""
        self.served = {name: ServedRun(name, run, settings) for name, run in (loaded or {}).items()}
        """Runs in memory."""
        self.roots: list[Path] = []
        """Folders for new runs."""
        self._given = list(self.served)
        self._stamps: dict[str, int] = {}
        self._lock = threading.Lock()
        self._listing = threading.local()

    def own_folders(self) -> dict[str, Path]:
        """The user's runs: all but the examples of the package."""
        listed: dict[str, Path] | None = getattr(self._listing, "folders", None)
        if listed is not None:
            return listed
        started = {
            name: path for name, path in self.added.items() if (path / "recipe.yaml").exists()
        }
        return {**self.folders(), **started}

    @contextmanager
    def listed_once(self) -> Iterator[None]:
        """Within it this thread looks for folders only once: whatever tells of every run asks for
        each of them again and again."""
        self._listing.folders = self.own_folders()
        try:
            yield
        finally:
            del self._listing.folders

    def all_folders(self) -> dict[str, Path]:
        """The user's runs, then the examples that have no name of theirs."""
        own = self.own_folders()
        return {**own, **{name: self.examples[name] for name in self.examples if name not in own}}

    def is_example(self, name: str) -> bool:
        """Whether it is a run of the package, which is only read."""
        return name in self.examples and name not in self.own_folders()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._given, *self.all_folders()]))

    def named(self, name: str) -> ServedRun:
        """A run, loaded anew if it has another best checkpoint now."""
        folder = self.all_folders().get(self.known(name))
        with self._lock:
            if folder is None:
                return self.served[name]
            stamp = _changed(folder / "best")
            if self._stamps.get(name) != stamp:
                run = ServedRun(name, load(folder, **self.options), self.settings)
                self._let_go(name)
                self.served[name] = run
            self._stamps.pop(name, None)
            self._stamps[name] = stamp  # the last is the one that was used last
            for other in [*self._stamps][:-MAX_RUNS_IN_MEMORY]:
                self._let_go(other)
            return self.served[name]

    def known(self, name: str) -> str:
        """The name, if there is such a run."""
        if name not in self:
            raise HTTPException(
                404, f"there is no run of this name: GET /runs lists all {len([*self])}"
            )
        return name

    def folder_of(self, name: str) -> Path | None:
        """The folder of a run; None if there is none of this name."""
        return self.opened(name).folder if name in self else None

    def public(self, answer: Any) -> Any:
        """An answer that does not tell where the server keeps its runs."""
        loaded = [run.run.folder for run in self.served.values()]
        return with_folder_names(answer, self.roots, [*loaded, *self.all_folders().values()])

    def _let_go(self, name: str) -> None:
        self._stamps.pop(name, None)
        if (old := self.served.pop(name, None)) is not None:
            threading.Thread(target=old.queue.close, daemon=True).start()  # answers what it has

    def opened(self, name: str) -> Run:
        """A run whose model need not be loaded."""
        folder = self.all_folders().get(name)
        if folder is None:
            if name not in self.served:  # renamed or deleted since it was listed
                raise CheckpointError("there is no such run any more", where=name)
            return self.served[name].run
        return _run_in(folder, _changed(folder / "recipe.yaml"))

    def summary(self, name: str) -> dict[str, Any]:
        """A run in a list of runs; one that is damaged has its error, and does not hide others."""
        try:
            run = self.opened(name)
            facts: dict[str, Any] = {
                "name": name,
                "task": run.recipe.task,
                "model": run.recipe.model.kind,
                "example": self.is_example(name),
                "data": _data_names(run),
            }
            languages = [run.recipe.data.language(side) for side in ("source", "target")]
            if all(languages):
                facts["languages"] = " → ".join(map(str, languages))
            best = run.pointer("best")
            if best is None:
                return {**facts, "parameters": None, "metrics": []}
            with safe_open(best / "model.safetensors", "pt") as weights:
                names = list(weights.keys())  # safetensors' file cannot be iterated over
                parameters = sum(math.prod(weights.get_slice(name).get_shape()) for name in names)
            return {**facts, "parameters": parameters, "metrics": load_facts(best).get("best", [])}
        except (RegardError, OSError, SafetensorError) as error:
            if not isinstance(error, RegardError):
                error = CheckpointError(f"cannot be read: {error}", where="model.safetensors")
            return {"name": name, "error": self.public(error_json(error)["error"])}

    def list_runs(self) -> list[dict[str, Any]]:
        """The runs: name, task, model, parameters, best metrics."""
        with self.listed_once():
            return [self.summary(name) for name in self]

    def show_run(self, name: str) -> dict[str, Any]:
        """One run, with its recipe."""
        run = self.opened(self.known(name))
        # an autoencoder does not search
        views = run.task.views
        searches = run.recipe.model.generates and not views.rewrites
        writes = views.written.column if searches and views.written else None
        model = run.recipe.model
        attends = model.attends or bool(model.alignment)
        parts = {
            "inputs": run.task.inputs.names,
            "writes": writes,
            "attends": attends,
            "answers": searches or run.recipe.task != "language_modeling",
            "explains": not explains_nothing(run),
            "converses": _converses(run),
            "examples": offered_inputs(run),
            "languages_by_side": _languages(run),
        }
        recipe = self.public(run.recipe.model_dump(mode="json"))
        return {**self.summary(name), **parts, "recipe": recipe}


def _languages(run: Run) -> dict[str, dict[str, Any]]:
    """The language of each side of a model of many, and those that can be chosen instead."""
    own = {side: run.recipe.data.language(side) for side in ("source", "target")}
    if not all(own.values()):
        return {}
    return {
        side: {
            "own": language,
            "offered": [name.strip("_") for name in languages_of(run.tokenizers[side])],
        }
        for side, language in own.items()
    }


def _data_names(run: Run) -> str:
    """What the run was trained on: the names of corpora, and of files without their folders."""
    corpora = getattr(run.recipe.data, "train", None)
    if not isinstance(corpora, list):
        return ""
    names = list[str]()
    for corpus in corpora:
        paths = [column for column in corpus.columns.values() if isinstance(column, str)]
        names.append(corpus.corpus or corpus.dataset or Path(corpus.file or [*paths, ""][0]).name)
    return ", ".join(dict.fromkeys(filter(None, names)))


def _converses(run: Run) -> bool:
    """Whether the run's data is a conversation: what its columns are called says so, or its corpus."""
    corpora = getattr(run.recipe.data, "train", None)
    if run.task.views.targets is None or not isinstance(corpora, list):
        return False
    columns = {
        str(getattr(corpus, name, "")).lower()
        for corpus in corpora
        for name in ("source", "target")
    }
    named = any((corpus.corpus or "").startswith("chat") for corpus in corpora)
    return named or bool(columns & CONVERSATION_COLUMNS)


def _changed(path: Path) -> int:
    """The time when a file was last changed, in nanoseconds; 0 if it is not there."""
    return path.stat().st_mtime_ns if path.exists() else 0


@lru_cache(maxsize=4096)  # a recipe takes 20 ms, and pages list all runs again and again
def _run_in(folder: Path, changed: int) -> Run:
    return Run.open(folder)


def offered_inputs(run: Run) -> list[str]:
    """A few inputs of the run's data, or if that is not on this machine, those that the last
    validation shows."""
    parts: list[Part] = ["test", "validation", "train"]
    for part in parts:
        corpora = getattr(run.recipe.data, part)
        if isinstance(corpora, list) and corpora:
            with suppress(RegardError, OSError):
                return _first_inputs(run, part, corpora[0])
    samples = [event["samples"] for event in run.events() if event.get("samples")]
    if not samples:
        return []
    return [sample["source"] for sample in samples[-1] if "source" in sample]


def _first_inputs(run: Run, part: Part, corpus: Any) -> list[str]:
    """Inputs of a corpus, some rows apart. A corpus that is read is not sampled first."""
    if not corpus.corpus:
        corpus = corpus.model_copy(update={"size": None})
    within = run.recipe.readable_folder(run.folder)
    reader = open_corpus(corpus, run.folder, part, run.recipe.data.encoding, within)
    readable = (row.values for row in reader.rows() if row.fault is None)
    rows = islice(readable, 0, MAX_OFFERED_INPUTS * ROWS_BETWEEN_INPUTS, ROWS_BETWEEN_INPUTS)
    return [
        run.task.input_line(dict(zip(reader.columns, row, strict=True)), reader) for row in rows
    ]
