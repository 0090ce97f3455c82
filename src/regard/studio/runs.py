"""The runs of a server: loaded ones, and folders that are loaded when they are first asked for."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from regard.api import Loaded, load
from regard.data.corpora import Part
from regard.data.readers import open_corpus
from regard.errors import RegardError
from regard.runs.run import Run, load_facts, read_metrics
from regard.studio.served import Served, Settings

EXAMPLES, APART = 4, 7
"""Inputs that are offered, and how many rows apart: those beside each other may be alike."""
KEPT = 6
"""Runs of a studio that are in memory at once."""


class Runs:
    """The runs by their names: those that are loaded, and folders, which are loaded when they are first asked for."""

    def __init__(
        self,
        settings: Settings,
        loaded: Mapping[str, Loaded] | None = None,
        folders: Callable[[], Mapping[str, Path]] = dict,
        device: str = "auto",
    ) -> None:
        self.settings, self.folders, self.device = settings, folders, device
        self.added: dict[str, Path] = {}
        """Those whose training the page has started, wherever the others are."""
        self.served = {name: Served(name, run, settings) for name, run in (loaded or {}).items()}
        """Those in memory."""
        self._given = list(self.served)
        self._stamps: dict[str, int] = {}
        self._opened: dict[str, tuple[Run, int]] = {}
        """With the times of their recipes: reading one takes 20 ms, and pages list all runs again and again."""
        self._lock = threading.Lock()

    def all_folders(self) -> dict[str, Path]:
        started = {name: path for name, path in self.added.items() if (path / "recipe.yaml").exists()}
        return {**self.folders(), **started}

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._given, *self.all_folders()]))

    def __getitem__(self, name: str) -> Served:
        """A run, loaded anew where its best checkpoint is another since."""
        folder = self.all_folders().get(name)
        with self._lock:
            if folder is None:
                return self.served[name]
            best = folder / "best"
            stamp = best.stat().st_mtime_ns if best.exists() else 0
            if self._stamps.get(name) != stamp:
                run = Served(name, load(folder, device=self.device), self.settings)
                self._let_go(name)
                self.served[name] = run
            self._stamps.pop(name, None)
            self._stamps[name] = stamp  # the last is the one that was used last
            for other in [*self._stamps][:-KEPT]:
                self._let_go(other)
            return self.served[name]

    def _let_go(self, name: str) -> None:
        self._stamps.pop(name, None)
        if (old := self.served.pop(name, None)) is not None:
            threading.Thread(target=old.queue.close, daemon=True).start()  # answers what it has

    def opened(self, name: str) -> Run:
        """A run whose model need not be loaded."""
        folder = self.all_folders().get(name)
        if folder is None:
            return self.served[name].run
        recipe = folder / "recipe.yaml"
        stamp = recipe.stat().st_mtime_ns if recipe.exists() else 0
        if self._opened.get(name, (None, -1))[1] != stamp:
            self._opened[name] = Run.open(folder), stamp
        return self._opened[name][0]

    def summary(self, name: str) -> dict[str, Any]:
        try:
            run = self.opened(name)
            facts = {"name": name, "task": run.recipe.task, "model": run.recipe.model.kind}
            if (best := run.pointer("best")) is None:
                return {**facts, "parameters": None, "metrics": []}
            with safe_open(best / "model.safetensors", "pt") as weights:
                parameters = sum(math.prod(weights.get_slice(key).get_shape()) for key in weights.keys())  # noqa: SIM118
            return {**facts, "parameters": parameters, "metrics": load_facts(best).get("best", [])}
        except (RegardError, OSError, SafetensorError) as error:  # one damaged run does not hide the others
            return {"name": name, "error": str(error)}

    def details(self, name: str) -> dict[str, Any]:
        """What inputs consist of, a few of them, and the recipe."""
        run = self.opened(name)
        parts = {"inputs": run.task.input_parts, "writes": run.task.writes, "examples": examples_of(run)}
        return {**self.summary(name), **parts, "recipe": run.recipe.model_dump()}


def examples_of(run: Run) -> list[str]:
    """A few inputs of the run's data, or if that is not on this machine, those that the last validation shows."""
    parts: list[Part] = ["test", "validation", "train"]
    for part in parts:
        corpora = getattr(run.recipe.data, part)
        if isinstance(corpora, list) and corpora:
            with suppress(RegardError, OSError):
                reader = open_corpus(corpora[0], run.folder, part, reading=1)
                rows = islice((row.values for row in reader.rows() if row.fault is None), 0, EXAMPLES * APART, APART)
                return [run.task.typed(dict(zip(reader.columns, row, strict=True)), reader) for row in rows]
    events = [event for event in read_metrics(run.folder / "metrics.jsonl") if event.get("samples")]
    return [sample["source"] for sample in events[-1]["samples"] if "source" in sample] if events else []
