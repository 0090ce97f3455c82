"""Trainings that the page starts, stops and resumes.

Each is a process of the command line, its run folder the only channel. Recipes and data that are
sent are written under the runs' root; names of runs are checked, and never paths.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import psutil
from fastapi import FastAPI, HTTPException
from filelock import FileLock, Timeout
from pydantic import AfterValidator, Field

from regard.config import parse_yaml
from regard.errors import ConfigError, Problem, RegardError
from regard.language import shown
from regard.recipes.recipe import recipe_of
from regard.runs.watched import read_watched
from regard.studio.answers import error_json
from regard.studio.folder_names import SENT_FOLDER
from regard.studio.recipe_form import (
    FORM_FIELDS,
    RecipeBody,
    list_recipes,
    setting_overrides,
    show_form,
    show_recipe,
)
from regard.studio.runs import Runs
from regard.studio.sent import begins_with, refuse_large
from regard.studio.sent_files import SentFile, short_enough
from regard.training.display import SHOWN_PACES, duration_range

RUN_NAME = r"[^\W_][\w.-]{0,63}"
"""A name of a new run: letters of any language, digits, and after the first also . _ -"""
PRINTED_FILE = ".log"
"""The file with what a training printed. No file that is sent has such a name."""
PROCESS_FILE = ".process"
"""The file that says which process a training is."""
CLOCK_ERROR_SECONDS = 2.0
"""Seconds by which the time that a process was started may be reported differently, once the clock was
set."""
MAX_TRAININGS = 2
"""Trainings at once."""
CURVE_POINTS = 400
"""Most points of a curve."""
SMALL_CURVE_POINTS = 40
"""Most points of a curve in the list of all trainings."""
RECENT_SECONDS = 600.0
"""Seconds since the last event of a training that may still go on elsewhere."""
STOPPED_CODES = (130, -15)
"""Exit codes of a training that was stopped and can be resumed."""


def run_name(name: str) -> str:
    """A name that a new run may have."""
    if not re.fullmatch(RUN_NAME, name):
        raise ValueError(
            f"{name!r} is not a name for a run: up to 64 letters, digits, and _ - ., beginning "
            "with a letter or a digit"
        )
    return short_enough(name)


class TrainBody(RecipeBody):
    name: Annotated[str, AfterValidator(run_name)] = Field(
        json_schema_extra={"pattern": f"^{RUN_NAME}$"}
    )
    settings: dict[str, str | int | float | None] = Field({}, max_length=len(FORM_FIELDS))
    """The settings of the form, by their paths."""
    files: list[SentFile] = Field([], max_length=8)


@dataclass(eq=False)
class Trainings:
    """The processes, by the names of their runs. Those of an earlier studio that still run are
    found again."""

    root: Path
    runs: Runs
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    earlier: dict[str, psutil.Process] = field(default_factory=dict)
    """Processes that an earlier studio started, which was killed or ended before they did."""
    _lock: threading.RLock = field(default_factory=threading.RLock)
    """Held while a training is started: requests are answered in many threads."""
    _stopping: set[int] = field(default_factory=set)
    """Processes that were asked to end. A second signal would end them before they have saved a
    checkpoint."""

    def __post_init__(self) -> None:
        for path in [self.root / SENT_FOLDER, *(self.root / SENT_FOLDER).rglob("*")]:
            if path.exists() and not path.is_symlink():
                path.chmod(0o700 if path.is_dir() else 0o600)  # as earlier versions did not
        for path in (self.root / SENT_FOLDER).glob(f"*/{PROCESS_FILE}"):
            if (known := _still_training(path)) is not None:
                name = path.parent.name
                self.earlier[name], self.runs.added[name] = known

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
        self._refuse_name(body.name)
        within = (self.root / SENT_FOLDER).resolve() / body.name
        overrides = setting_overrides(body.settings)
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

    def _refuse_name(self, name: str) -> None:
        """Refuse the name of a run that is there already."""
        taken = name in self.runs and not self.runs.is_example(name)
        if (self.root / name).exists() or taken or self.alive(name):
            raise ConfigError(
                f"there is a run {name!r} already", where="name", hint="give another name"
            )

    def resume_training(self, name: str) -> dict[str, Any]:
        """Continue a training from its last checkpoint."""
        with self._lock:
            if self.runs.is_example(self.runs.known(name)):
                raise HTTPException(409, "an example of the package is not trained further")
            run = self.runs.opened(name).folder
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
        process = self.processes.get(name) or self.earlier[name]
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
        for process in [*self.processes.values(), *self.earlier.values()]:
            process.wait()

    def alive(self, name: str) -> bool:
        """Whether a process of this studio, or of an earlier one, trains the run."""
        if name in self.processes:
            return self.processes[name].poll() is None
        return name in self.earlier and _is_running(self.earlier[name])

    def _training(self) -> list[str]:
        return [
            name for name in dict.fromkeys([*self.processes, *self.earlier]) if self.alive(name)
        ]

    def _refuse_more(self) -> None:
        names = self._training()
        if len(names) >= MAX_TRAININGS:
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
        (folder / PRINTED_FILE).unlink(missing_ok=True)
        with open(folder / PRINTED_FILE, "wb", opener=_privately) as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"REGARD_LANG": "en"},
                start_new_session=True,  # Ctrl-C is for the studio, which then stops its trainings
            )
        self.processes[name] = process
        self.runs.added[name] = run
        self.earlier.pop(name, None)
        with suppress(psutil.NoSuchProcess):  # it has failed already
            started = psutil.Process(process.pid).create_time()
            _write_private(
                folder / PROCESS_FILE,
                json.dumps({"pid": process.pid, "started": started, "run": str(run)}),
            )
        return {"name": name}

    def _sent(self, name: str, *, empty: bool = False) -> Path:
        """The folder of what was sent for a training, which only its owner may read; `empty`
        removes what is there."""
        folder = self.root / SENT_FOLDER / name
        if empty:
            is_one_file = folder.is_symlink() or folder.is_file()
            folder.unlink() if is_one_file else shutil.rmtree(folder, ignore_errors=True)
        self.root.mkdir(parents=True, exist_ok=True)
        for path in (self.root / SENT_FOLDER, folder):
            path.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _log(self, name: str) -> Path:
        return self.root / SENT_FOLDER / name / PRINTED_FILE

    # How far each is

    def list_trainings(self) -> list[dict[str, Any]]:
        """Every run, also one that has no folder yet, with a small curve."""
        with self.runs.listed_once():
            names = dict.fromkeys([*self.runs, *self.processes, *self._training()])
            return [self._listed(name) for name in names]

    def _listed(self, name: str) -> dict[str, Any]:
        """A run in the list; one that cannot be read has its error."""
        try:
            summary = self.runs.summary(name) if name in self.runs else {"name": name}
            return {**summary, **self.progress(name, SMALL_CURVE_POINTS)}
        except (RegardError, OSError) as error:
            return {"name": name, "error": self.runs.public(error_json(error)["error"])}

    def show_training(self, name: str) -> dict[str, Any]:
        """How far the training of a run is."""
        known = name if name in self.processes or self.alive(name) else self.runs.known(name)
        progress = self.progress(known)
        if name in self.runs:
            progress["watched"] = read_watched(self.runs.opened(name).folder)
        return progress

    def state(self, name: str) -> Literal["training", "failed", "stopped", "finished"]:
        if self.alive(name):
            return "training"
        code = self.processes[name].returncode if name in self.processes else 0
        if code:
            return "stopped" if code in STOPPED_CODES else "failed"
        run = self.runs.opened(name)
        if _trained_elsewhere(run.folder):
            return "training"
        return "finished" if run.pointer("best") else "stopped"

    def progress(self, name: str, points: int = CURVE_POINTS) -> dict[str, Any]:
        """The state, the curves so far, and the last samples; if it failed, why."""
        facts: dict[str, Any] = {
            "name": name,
            "state": self.state(name),
            "ours": self.alive(name),
            "step": 0,
        }
        if facts["state"] == "failed":
            facts["message"] = self._failure(name)
        if name not in self.runs:  # it has no folder yet
            return facts
        run = self.runs.opened(name)
        events = [*run.events()]
        training = run.recipe.training
        step = events[-1]["step"] if events else 0
        steps = training.steps if training.patience is None else None
        if facts["state"] == "finished" and steps and step < steps:
            facts["state"] = "stopped"
        by_kind = {
            kind: [event for event in events if event["event"] == kind]
            for kind in ("train", "validation")
        }
        return {
            **facts,
            "step": step,
            "steps": training.steps,
            "left": _time_left(by_kind["train"], steps) if facts["state"] == "training" else None,
            "date": (run.folder / "recipe.yaml").stat().st_mtime,
            "curves": {kind: _thinned(lines, points) for kind, lines in by_kind.items()},
            "samples": next(
                (event["samples"] for event in reversed(events) if event.get("samples")), []
            ),
        }

    def _failure(self, name: str) -> str:
        """The problems that the command has printed, in the language of the page."""
        lines = self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()
        own = [line.removeprefix("regard: ") for line in lines if line.startswith("regard: ")]
        printed = self.runs.public(own or lines[-1:])
        return "\n".join(map(_printed_line_shown, printed))


def _printed_line_shown(line: str) -> str:
    """A problem that the command has printed, in the language of the page."""
    parts = re.fullmatch(r"(\S.*?): (.+?)(?: \((.+)\))?", line)
    return str(Problem(parts[1], shown(parts[2]), shown(parts[3] or ""))) if parts else shown(line)


def _time_left(lines: Sequence[dict[str, Any]], steps: int | None) -> str | None:
    """The time that is left, as the terminal estimates it; None where the end is not known."""
    if not lines or steps is None:
        return None
    paces = [line["seconds_per_step"] for line in lines[-SHOWN_PACES:]]
    left = steps - lines[-1]["step"]
    return shown(f"about {duration_range(left * min(paces), left * max(paces))} left")


def _thinned(events: Sequence[dict[str, Any]], points: int) -> dict[str, list[float | None]]:
    """The numbers of at most so many events, the last among them, as columns."""
    shown_events = events[:: -max(1, -(-len(events) // points))][::-1]
    names = [
        name
        for name, value in (shown_events[-1] if shown_events else {}).items()
        if isinstance(value, int | float)
    ]
    return {name: [event.get(name) for event in shown_events] for name in names}


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
        process = psutil.Process(int(noted["pid"]))
        run = Path(noted["run"])
        same = abs(process.create_time() - float(noted["started"])) < CLOCK_ERROR_SECONDS
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
    if time.time() - changed > RECENT_SECONDS or not (folder / ".lock").exists():
        return False
    try:
        with FileLock(folder / ".lock", blocking=False):
            return False
    except (Timeout, OSError, NotImplementedError):
        return True
