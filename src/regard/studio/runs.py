"""The runs of a server: loaded ones, and folders that are loaded when they are first asked for; and
trainings that the page starts, stops and resumes. Each is a process of the command line, its run
folder the only channel. Recipes and data that are sent are written under the runs' root; names of
runs are checked, and never paths."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby, islice
from pathlib import Path
from typing import Annotated, Any, Literal

import psutil
from fastapi import FastAPI, HTTPException
from filelock import FileLock, Timeout
from pydantic import AfterValidator, Field
from safetensors import SafetensorError, safe_open

from regard.api import Loaded, load
from regard.config import help_texts, parse_yaml
from regard.data.corpora import Part
from regard.data.readers import open_corpus
from regard.errors import CheckpointError, ConfigError, Problem, RegardError
from regard.language import shown, shown_comments
from regard.recipes.recipe import recipe_of
from regard.recipes.shipped import shipped, shipped_recipes, shipped_text
from regard.runs.run import Run, load_facts
from regard.studio.jobs import SentFile, short_enough
from regard.studio.sent import begins_with, refuse_large
from regard.studio.served import Body, Served, Settings, told

EXAMPLES, APART = 4, 7
"""Inputs that are offered, and how many rows apart: those beside each other may be alike."""
KEPT = 6
"""Runs of a studio that are in memory at once."""
NAME = r"[^\W_][\w.-]{0,63}"
"""A name of a new run: letters of any language, digits, and after the first also . _ -"""
SENT = ".sent"
"""The folder under the root with what was sent for each training, and what it printed."""
LOG, RECORD = ".log", ".process"
"""What a training printed, and which process it is, beside what was sent: no file that is sent has
such a name."""
CLOCK = 2.0
"""Seconds by which the time that a process was started may be told differently, once the clock was
set."""
AT_ONCE, POINTS, FEW, FRESH = 2, 400, 40, 600.0
"""Trainings at once; most points of a curve, and of a small one; seconds since the last event of a
training that may still go on elsewhere."""
STOPPED = (130, -15)
"""Exit codes of a training that was stopped and can be resumed."""
FORM = [
    "training.steps",
    "training.epochs",
    "training.batch_tokens",
    "training.learning_rate",
    "training.patience",
    "training.seed",
    "training.precision",
    "model.preset",
    "model.dropout",
    "tokenizer.vocabulary",
    "data.max_length",
    "search.beam",
]
"""The settings that the form offers, as far as the recipe has them."""


class Runs:
    def __init__(
        self,
        settings: Settings,
        loaded: Mapping[str, Loaded] | None = None,
        folders: Callable[[], Mapping[str, Path]] = dict,
        device: str = "auto",
        accept_recipe: bool = False,
    ) -> None:
        self.settings, self.folders = settings, folders
        self.options: dict[str, Any] = {"device": device, "accept_recipe": accept_recipe}
        """With which a run is loaded."""
        self.added: dict[str, Path] = {}
        """Those whose training the page has started, wherever the others are."""
        self.served = {name: Served(name, run, settings) for name, run in (loaded or {}).items()}
        """Those in memory."""
        self._given = list(self.served)
        self._stamps: dict[str, int] = {}
        self._lock = threading.Lock()

    def all_folders(self) -> dict[str, Path]:
        started = {
            name: path for name, path in self.added.items() if (path / "recipe.yaml").exists()
        }
        return {**self.folders(), **started}

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._given, *self.all_folders()]))

    def named(self, name: str) -> Served:
        """A run, loaded anew where its best checkpoint is another since."""
        folder = self.all_folders().get(self.known(name))
        with self._lock:
            if folder is None:
                return self.served[name]
            stamp = _changed(folder / "best")
            if self._stamps.get(name) != stamp:
                run = Served(name, load(folder, **self.options), self.settings)
                self._let_go(name)
                self.served[name] = run
            self._stamps.pop(name, None)
            self._stamps[name] = stamp  # the last is the one that was used last
            for other in [*self._stamps][:-KEPT]:
                self._let_go(other)
            return self.served[name]

    def known(self, name: str) -> str:
        if name not in self:
            raise HTTPException(
                404, f"there is no run of this name: GET /runs lists all {len([*self])}"
            )
        return name

    def folder_of(self, name: str) -> Path | None:
        """The folder of a run; None where there is none of this name."""
        return self.opened(name).folder if name in self else None

    def _let_go(self, name: str) -> None:
        self._stamps.pop(name, None)
        if (old := self.served.pop(name, None)) is not None:
            threading.Thread(target=old.queue.close, daemon=True).start()  # answers what it has

    def opened(self, name: str) -> Run:
        """A run whose model need not be loaded."""
        folder = self.all_folders().get(name)
        if folder is None:
            return self.served[name].run
        return _opened(folder, _changed(folder / "recipe.yaml"))

    def summary(self, name: str) -> dict[str, Any]:
        try:
            run = self.opened(name)
            facts = {"name": name, "task": run.recipe.task, "model": run.recipe.model.kind}
            if (best := run.pointer("best")) is None:
                return {**facts, "parameters": None, "metrics": []}
            with safe_open(best / "model.safetensors", "pt") as weights:
                names = list(weights.keys())  # safetensors' file cannot be iterated over
                parameters = sum(math.prod(weights.get_slice(name).get_shape()) for name in names)
            return {**facts, "parameters": parameters, "metrics": load_facts(best).get("best", [])}
        except (
            RegardError,
            OSError,
            SafetensorError,
        ) as error:  # one damaged run does not hide the others
            if not isinstance(error, RegardError):
                error = CheckpointError(f"cannot be read: {error}", where="model.safetensors")
            return {"name": name, "error": told(error)["error"]}

    def list_runs(self) -> list[dict[str, Any]]:
        """The runs: name, task, model, parameters, best metrics."""
        return [self.summary(name) for name in self]

    def show_run(self, name: str) -> dict[str, Any]:
        """One run, with its recipe."""
        run = self.opened(self.known(name))
        searches = run.recipe.model.generates and not getattr(
            run.task, "rewrites", False
        )  # an autoencoder does not
        writes = run.task.writes if searches else None
        model = run.recipe.model
        attends = model.attends or bool(model.alignment)
        parts = {
            "inputs": run.task.input_parts,
            "writes": writes,
            "attends": attends,
            "examples": examples_of(run),
        }
        return {**self.summary(name), **parts, "recipe": run.recipe.model_dump()}


def _changed(path: Path) -> int:
    """When; 0 if it is not there."""
    return path.stat().st_mtime_ns if path.exists() else 0


@lru_cache  # reading a recipe takes 20 ms, and pages list all runs again and again
def _opened(folder: Path, changed: int) -> Run:
    return Run.open(folder)


def examples_of(run: Run) -> list[str]:
    """A few inputs of the run's data, or if that is not on this machine, those that the last
    validation shows."""
    parts: list[Part] = ["test", "validation", "train"]
    for part in parts:
        corpora = getattr(run.recipe.data, part)
        if isinstance(corpora, list) and corpora:
            with suppress(RegardError, OSError):
                first = (
                    {} if corpora[0].corpus else {"size": None}
                )  # the first rows, without drawing
                corpus = corpora[0].model_copy(update=first)
                within = run.recipe.readable_folder(run.folder)
                reader = open_corpus(corpus, run.folder, part, run.recipe.data.encoding, within)
                rows = islice(
                    (row.values for row in reader.rows() if row.fault is None),
                    0,
                    EXAMPLES * APART,
                    APART,
                )
                return [
                    run.task.typed(dict(zip(reader.columns, row, strict=True)), reader)
                    for row in rows
                ]
    events = [event for event in run.events() if event.get("samples")]
    return (
        [sample["source"] for sample in events[-1]["samples"] if "source" in sample]
        if events
        else []
    )


# Trainings


class RecipeBody(Body):
    recipe: str = Field(max_length=100_000)


class TrainBody(RecipeBody):
    name: Annotated[str, AfterValidator(short_enough)] = Field(pattern=f"^{NAME}$")
    settings: dict[str, str | int | float | None] = Field({}, max_length=len(FORM))
    """Of the form, by their paths."""
    files: list[SentFile] = Field([], max_length=8)


@dataclass(eq=False)
class Trainings:
    """The processes, by the names of their runs. Those of an earlier studio that still run are
    found again."""

    root: Path
    runs: Runs
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    found: dict[str, psutil.Process] = field(default_factory=dict)
    """Processes that an earlier studio started, which was killed or ended before they did."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while a training is started: requests are answered in many threads."""
    _stopping: set[int] = field(default_factory=set)
    """Processes that were asked to end. A second signal would end them before they have saved a
    checkpoint."""

    def __post_init__(self) -> None:
        for path in [self.root / SENT, *(self.root / SENT).rglob("*")]:
            if path.exists() and not path.is_symlink():
                path.chmod(0o700 if path.is_dir() else 0o600)  # as earlier versions did not
        for path in (self.root / SENT).glob(f"*/{RECORD}"):
            if (known := _still_training(path)) is not None:
                self.found[path.parent.name], self.runs.added[path.parent.name] = known

    def add_routes(self, api: FastAPI) -> None:
        api.get("/trainings")(self.list_trainings)
        api.get("/trainings/{name}")(self.show_training)
        api.post("/trainings", status_code=201)(self.start_training)
        api.post("/trainings/{name}/stop")(self.stop_training)
        api.post("/trainings/{name}/resume")(self.resume_training)
        api.get("/recipes")(list_recipes)
        api.get("/recipes/{name}")(show_recipe)
        api.post("/form")(show_form)

    def start_training(self, body: TrainBody) -> dict[str, Any]:
        """Train a new run."""
        with self._lock:
            return self._start(body)

    def _start(self, body: TrainBody) -> dict[str, Any]:
        if (self.root / body.name).exists() or body.name in self.runs or self.alive(body.name):
            raise ConfigError(
                f"there is a run {body.name!r} already", where="name", hint="give another name"
            )
        if unknown := body.settings.keys() - set(FORM):
            hint = f"allowed: {', '.join(FORM)}"
            raise ConfigError(f"{min(unknown)!r} is not in the form", where="settings", hint=hint)
        within = (self.root / SENT / body.name).resolve()
        overrides = [
            f"{path}={json.dumps(value, ensure_ascii=False)}"
            for path, value in body.settings.items()
        ]
        overrides += begins_with(body.recipe, self.runs.folder_of)
        overrides.append(f"within={json.dumps(str(within), ensure_ascii=False)}")
        refuse_large(body.recipe, overrides, {file.name: file.text for file in body.files})
        recipe_of(parse_yaml(body.recipe, where="recipe"))  # what is wrong there is said at once
        self._refuse_more()
        folder = self._sent(body.name, empty=True)
        try:
            for file in body.files:
                _write_private(folder / file.name, file.text)
            _write_private(folder / "recipe.yaml", body.recipe)
            return self._train(body.name, folder / "recipe.yaml", self.root / body.name, overrides)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def resume_training(self, name: str) -> dict[str, Any]:
        """Continue a training from its last checkpoint."""
        with self._lock:
            run = self.runs.opened(self.runs.known(name)).folder
            if self.state(name) == "training":
                raise HTTPException(409, "this run is being trained")
            self._refuse_more()
            return self._train(name, run / "recipe.yaml", run, ["--resume"])

    def stop_training(self, name: str) -> dict[str, Any]:
        """Stop a training, which saves a checkpoint."""
        if not self.alive(name):
            raise HTTPException(409, "the studio is not training this run")
        self._stop(name)
        return {"name": name}

    def _stop(self, name: str) -> None:
        process = self.processes.get(name) or self.found[name]
        if process.pid not in self._stopping:
            self._stopping.add(process.pid)
            with suppress(psutil.NoSuchProcess):
                process.terminate()

    def stop_all(self) -> None:
        """Ask all to save a checkpoint and end."""
        for name in self._training():
            self._stop(name)

    def close(self) -> None:
        """Stop all, and wait until each has saved a checkpoint."""
        self.stop_all()
        for process in [*self.processes.values(), *self.found.values()]:
            process.wait()

    def alive(self, name: str) -> bool:
        """Whether a process of this studio, or of an earlier one, trains the run."""
        if name in self.processes:
            return self.processes[name].poll() is None
        return name in self.found and _is_running(self.found[name])

    def _training(self) -> list[str]:
        return [name for name in dict.fromkeys([*self.processes, *self.found]) if self.alive(name)]

    def _refuse_more(self) -> None:
        if len(names := self._training()) >= AT_ONCE:
            what = (
                f"{' and '.join(map(repr, names))} are being trained, the most at once: "
                "wait for one, or stop it"
            )
            raise HTTPException(503, what, {"Retry-After": "60"})

    def _train(self, name: str, recipe: Path, run: Path, options: Sequence[str]) -> dict[str, Any]:
        run = run.absolute()
        command = [
            sys.executable,
            "-m",
            "regard",
            "train",
            str(recipe),
            *options,
            "--out",
            str(run),
        ]
        folder = self._sent(name)
        (folder / LOG).unlink(missing_ok=True)
        with open(folder / LOG, "wb", opener=_privately) as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"REGARD_LANG": "en"},
                start_new_session=True,  # Ctrl-C is for the studio, which then stops its trainings
            )
        self.processes[name], self.runs.added[name] = process, run
        self.found.pop(name, None)
        with suppress(psutil.NoSuchProcess):  # it has failed already
            started = psutil.Process(process.pid).create_time()
            _write_private(
                folder / RECORD,
                json.dumps({"pid": process.pid, "started": started, "run": str(run)}),
            )
        return {"name": name}

    def _sent(self, name: str, *, empty: bool = False) -> Path:
        """The folder of what was sent for a training, which only its owner may read; `empty`
        removes what is there."""
        folder = self.root / SENT / name
        if empty:
            folder.unlink() if folder.is_file() else shutil.rmtree(folder, ignore_errors=True)
        self.root.mkdir(parents=True, exist_ok=True)
        for path in (self.root / SENT, folder):
            path.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _log(self, name: str) -> Path:
        return self.root / SENT / name / LOG

    # How far each is

    def list_trainings(self) -> list[dict[str, Any]]:
        """Every run, also one that has no folder yet, with a small curve."""
        listed = list[dict[str, Any]]()
        for name in dict.fromkeys([*self.runs, *self.processes, *self._training()]):
            try:
                summary = self.runs.summary(name) if name in self.runs else {"name": name}
                listed.append({**summary, **self.progress(name, FEW)})
            except (RegardError, OSError) as error:
                listed.append({"name": name, "error": told(error)["error"]})
        return listed

    def show_training(self, name: str) -> dict[str, Any]:
        """How far the training of a run is."""
        return self.progress(
            name if name in self.processes or self.alive(name) else self.runs.known(name)
        )

    def state(self, name: str) -> Literal["training", "failed", "stopped", "finished"]:
        if self.alive(name):
            return "training"
        code = self.processes[name].returncode if name in self.processes else 0
        if code:
            return "stopped" if code in STOPPED else "failed"
        run = self.runs.opened(name)
        return (
            "training"
            if _trained_elsewhere(run.folder)
            else "finished"
            if run.pointer("best")
            else "stopped"
        )

    def progress(self, name: str, points: int = POINTS) -> dict[str, Any]:
        """The state, the curves so far, and the last samples; where it failed, why."""
        facts: dict[str, Any] = {
            "name": name,
            "state": self.state(name),
            "ours": self.alive(name),
            "step": 0,
        }
        if facts["state"] == "failed":
            lines = self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()
            ours = [line.removeprefix("regard: ") for line in lines if line.startswith("regard: ")]
            facts["message"] = "\n".join(map(_told, ours or lines[-1:]))
        if name not in self.runs:  # it has no folder yet
            return facts
        run = self.runs.opened(name)
        events = [*run.events()]
        training, step = run.recipe.training, events[-1]["step"] if events else 0
        if (
            facts["state"] == "finished"
            and training.patience is None
            and training.steps
            and step < training.steps
        ):
            facts["state"] = "stopped"
        by_kind = {
            kind: [event for event in events if event["event"] == kind]
            for kind in ("train", "validation")
        }
        return {
            **facts,
            "step": step,
            "steps": training.steps,
            "date": (run.folder / "recipe.yaml").stat().st_mtime,
            "curves": {kind: _thinned(lines, points) for kind, lines in by_kind.items()},
            "samples": next(
                (event["samples"] for event in reversed(events) if event.get("samples")), []
            ),
        }


def _told(line: str) -> str:
    """A problem that the command has printed, in the language of the page."""
    parts = re.fullmatch(r"(\S.*?): (.+?)(?: \((.+)\))?", line)
    return str(Problem(parts[1], shown(parts[2]), shown(parts[3] or ""))) if parts else shown(line)


def _thinned(events: Sequence[dict[str, Any]], points: int) -> dict[str, list[float | None]]:
    """The numbers of at most so many events, the last among them, as columns."""
    kept = events[:: -max(1, -(-len(events) // points))][::-1]
    names = [
        name for name, value in (kept[-1] if kept else {}).items() if isinstance(value, int | float)
    ]
    return {name: [event.get(name) for event in kept] for name in names}


def _privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _write_private(path: Path, text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=_privately) as file:
        file.write(text)


def _still_training(record: Path) -> tuple[psutil.Process, Path] | None:
    """The process that a studio noted when it started a training, and its run, if it is that
    process that runs: its number may be another's by now."""
    try:
        noted = json.loads(record.read_bytes())
        process, run = psutil.Process(int(noted["pid"])), Path(noted["run"])
        same = abs(process.create_time() - float(noted["started"])) < CLOCK
        if same and process.cmdline()[-1] == str(run) and _is_running(process):
            return process, run
    except (OSError, ValueError, KeyError, TypeError, IndexError, psutil.Error):
        pass
    return None


def _is_running(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _trained_elsewhere(folder: Path) -> bool:
    """Whether another process holds the lock of a run. It is tried only where the run has changed
    lately."""
    log = folder / "metrics.jsonl"
    changed = max(path.stat().st_mtime for path in (log, folder / "recipe.yaml") if path.exists())
    if time.time() - changed > FRESH or not (folder / ".lock").exists():
        return False
    try:
        with FileLock(folder / ".lock", blocking=False):
            return False
    except (Timeout, OSError, NotImplementedError):
        return True


def list_recipes() -> dict[str, str]:
    """The recipes that ship."""
    return {name: shown(summary) for name, summary in shipped_recipes().items()}


def show_recipe(name: str) -> dict[str, str]:
    """The text of one."""
    if name not in shipped():
        raise HTTPException(404, "no recipe of this name ships: GET /recipes lists all")
    return {"name": name, "recipe": shown_comments(shipped_text(name))}


def show_form(body: RecipeBody) -> list[dict[str, Any]]:
    """The settings of a recipe that the form offers."""
    complete, fields = recipe_of(parse_yaml(body.recipe, where="recipe")), list[dict[str, Any]]()
    for section, paths in groupby(FORM, key=lambda path: path.partition(".")[0]):
        config = getattr(complete, section)
        schemas, texts = type(config).model_json_schema()["properties"], help_texts(type(config))
        for path in paths:
            if (name := path.partition(".")[2]) in schemas:
                schema = {**schemas[name], "description": shown(" ".join(texts[name].split()))}
                fields.append({"path": path, "value": getattr(config, name), "schema": schema})
    return fields
