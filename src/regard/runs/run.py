"""The run folder: everything that training a recipe produced, self-contained and movable.

ARCHITECTURE.md ("Four seams") lists its files.
"""

from __future__ import annotations

import copy
import errno
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard import __version__
from regard.config import Tree, read_yaml, write_yaml
from regard.errors import CheckpointError, ConfigError, DecodeError, RegardError, did_you_mean
from regard.recipes.recipe import AnyRecipe, leaves
from regard.recipes.resolved import ResolvedRecipe, recipe_of_run
from regard.recipes.resuming import CHANGEABLE_ON_RESUME
from regard.tasks import TASKS
from regard.text.checksums import checksums, has_checksum, key_of
from regard.text.files import why_unreadable
from regard.text.tokenizers import Tokenizers
from regard.text.writing import PARTIAL, remove_partial_files, write_file, write_folder, writing

FORMAT = 3
"""Version of the folder's layout; older ones stay readable. Since 3 the checksums of a checkpoint
name their hash."""
STEP, LEFT_STEP = re.compile(r"step-\d{8,}"), re.compile(r"\.step-\d{8,}\.(partial|old|removed)")
LEFT = re.compile(rf"\.lock|{PARTIAL.pattern}")  # what a killed process may leave in a folder
LOG = "metrics.jsonl"
LIBRARIES = ("torch", "tokenizers", "safetensors", "numpy", "accelerate", "sacrebleu")
FIXED_SECTIONS = (
    "task",
    "model",
    "head",
)  # the sections of a recipe that say what the weights mean
NAMED = 4  # fields that a message names
Weights = dict[str, Tensor]


class Run:
    """A run folder that exists, checked to be one."""

    def __init__(self, folder: str | Path, *, checked: bool = True) -> None:
        """Open a folder; one that may be on the machine of another process only is not checked."""
        self.folder = Path(folder)
        self.accept_recipe = False
        """Whether recipe.yaml may differ from the recipe that a checkpoint was trained with."""
        self._task: Any = None
        if checked:
            self._check_folder()

    def _check_folder(self) -> None:
        """Refuse a folder that is not a run folder, or was made by a newer version."""
        folder = self.folder
        if not folder.is_dir():
            what = (
                "is a file, not a run folder" if folder.is_file() else "there is no such run folder"
            )
            raise CheckpointError(
                what, where=str(folder), hint="make one with 'regard train RECIPE --out RUN'"
            )
        for name in ("recipe.yaml", "environment.json"):
            if not (folder / name).exists():
                hint = "a run folder is what 'regard train RECIPE --out RUN' makes"
                if (folder / "config.json").exists():
                    imports = f"'regard import {folder} --out RUN' makes a run of it"
                    hint = f"it looks like a model of transformers: {imports}"
                raise CheckpointError(
                    f"not a run folder: it has no {name}", where=str(folder), hint=hint
                )
        if self.environment.get("format", FORMAT) > FORMAT:
            newer = self.environment.get("regard")
            raise CheckpointError(
                f"the run was made by a newer regard, {newer}", where=str(folder), hint="upgrade"
            )

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.folder}: {self.recipe.task}, {self.recipe.model.kind}>"
        )

    @classmethod
    def create(
        cls,
        folder: Path,
        recipe: AnyRecipe,
        tokenizers: Tokenizers,
        origin: Mapping[str, Any] | None = None,
        chosen_threads: int | None = None,
    ) -> Run:
        """Make a new run folder, or fill a vacant one; `origin` says where an imported model comes
        from.

        `chosen_threads` is the number of threads that was found to be fastest, for a training that
        resumes this one.
        """
        files = {name: tokenizer.to_json() for name, tokenizer in tokenizers.files.items()}
        files["recipe.yaml"] = write_yaml(recipe.model_dump())  # the last file makes it a run
        environment = {
            "format": FORMAT,
            "regard": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in LIBRARIES},
            "platform": f"{sys.platform} {platform.machine()}",
            "processors": os.cpu_count(),
            "threads": torch.get_num_threads(),
            **({} if chosen_threads is None else {"chosen_threads": chosen_threads}),
            "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            **({} if origin is None else {"imported": dict(origin)}),
            "files": {
                name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()
            },
        }
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        assert can_start_in(folder)
        for path in _own_files(folder) or ():
            path.unlink()
        for name, text in {"environment.json": json.dumps(environment, indent=1), **files}.items():
            write_file(folder / name, text)
        return cls(folder)

    @classmethod
    def open(cls, folder: str | Path | Run, accept_recipe: bool = False) -> Run:
        """The run in a folder; one that is open already is returned."""
        run = folder if isinstance(folder, Run) else cls(folder)
        if accept_recipe and not run.accept_recipe:
            run = copy.copy(run)
            run.accept_recipe = True
        return run

    @cached_property
    def stored_recipe(self) -> ResolvedRecipe:
        """What recipe.yaml says."""
        path = str(self.folder / "recipe.yaml")
        try:
            return recipe_of_run(read_yaml(Path(path)))
        except ConfigError as error:
            problems = [
                problem
                if problem.where.startswith(path)
                else replace(problem, where=f"{path}: {problem.where}")
                for problem in error.problems
            ]
            raise CheckpointError(problems=problems) from None

    @cached_property
    def recipe(self) -> ResolvedRecipe:
        """What recipe.yaml says, or with `under` another recipe."""
        return self.stored_recipe

    @property
    def recipe_values(self) -> list[Any]:
        """All values in its recipe, the paths of the files that it reads among them."""
        return [*leaves(self.recipe.model_dump()).values()]

    @property
    def task(self) -> Any:
        """Its `Task`, with what the verbs need of it that not every task has; made once for each
        recipe."""
        if self._task is None:
            self._task = TASKS[self.recipe.task](self.recipe, self.tokenizers)
        return self._task

    @cached_property
    def tokenizers(self) -> Tokenizers:
        return Tokenizers.load(self.folder, TASKS[self.recipe.task].vocabularies)

    @cached_property
    def environment(self) -> dict[str, Any]:
        try:
            environment: dict[str, Any] = json.loads(
                (self.folder / "environment.json").read_text(encoding="utf-8")
            )
            _, _ = environment["regard"], environment.get("imported", {"from": None})["from"]
            if not isinstance(environment.get("format", FORMAT), int):
                raise TypeError("format is no number")
        except (OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
            raise CheckpointError(
                f"cannot be read: {error}", where=str(self.folder / "environment.json")
            ) from None
        return environment

    def store_recipe(self, recipe: AnyRecipe) -> None:
        write_file(self.folder / "recipe.yaml", write_yaml(recipe.model_dump()))

    def under(self, recipe: ResolvedRecipe) -> Self:
        """This run with another recipe; nothing is written."""
        if recipe is self.recipe:
            return self
        other = copy.copy(self)
        other.recipe = recipe
        other._task = None
        return other

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def events(self) -> Iterator[dict[str, Any]]:
        return read_metrics(self.folder / "metrics.jsonl")

    def pointer(self, name: str) -> Path | None:
        """The checkpoint that `best` or `last` names."""
        try:
            named = (self.folder / name).read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return None
        return self.checkpoints / named if named else None

    def point(self, name: str, checkpoint: str) -> None:
        """Let `best` or `last` name a checkpoint."""
        if self.pointer(name) != self.checkpoints / checkpoint:
            write_file(self.folder / name, checkpoint + "\n")

    def resumable(self) -> Path | None:
        """The checkpoint that training continues from: what `last` names, or the newest where that
        file is lost."""
        if self.pointer("last") is not None:
            return self.checkpoint("last")
        return max(
            (path.parent for path in self.checkpoints.glob("step-*/training.pt")), default=None
        )

    def checkpoint(self, name: str = "best") -> Path:
        """A checkpoint by `best`, `last`, its step or its folder's name."""
        if name == "best":
            self._check_best()
        folder = self.pointer(name) if name in ("best", "last") else self.checkpoints / name
        if name.isdecimal() and len(name) < 20:
            folder = self.checkpoints / step_name(int(name))
        if folder is None:
            what, hint = "the run has no checkpoint yet", "'regard train ... --resume' continues"
            if saved := max(self.checkpoints.glob("step-*"), default=None):
                what = f"the file {name!r}, which names a checkpoint, is missing"
                hint = (
                    "'regard train ... --resume' writes it again; --checkpoint "
                    f"{saved.name} uses the newest"
                )
            raise CheckpointError(what, where=str(self.folder), hint=hint)
        names = (
            [path.name for path in self.checkpoints.iterdir()] if self.checkpoints.is_dir() else []
        )
        if folder.name not in names:
            none = "the run has none: copy it back from elsewhere, or train anew with another --out"
            hint = did_you_mean(folder.name, names) if names else none
            raise CheckpointError("there is no such checkpoint", where=str(folder), hint=hint)
        return folder

    def _check_best(self) -> None:
        """Refuse a file `best` that does not name the checkpoint that the last one knows as the
        best.

        A checkpoint after the last one may be better: `best` is written before `last`.
        """
        named, last = self.pointer("best"), self.pointer("last")
        if (
            named is None
            or last is None
            or not (STEP.fullmatch(named.name) and STEP.fullmatch(last.name))
        ):
            return
        try:
            facts = load_facts(last)
            best = step_name(facts["best"][0]["step"] if facts["best"] else facts["step"])
        except (CheckpointError, KeyError, IndexError, TypeError):
            # whoever needs the last checkpoint reports it
            return
        if named.name != best and int(named.name[5:]) <= int(last.name[5:]):
            what = f"it names {named.name}, but the best checkpoint is {best}, as {last.name} says"
            hint = f"write {best} into it; or --checkpoint {named.name} uses the other one"
            raise CheckpointError(what, where=str(self.folder / "best"), hint=hint)

    def load_model(self, checkpoint: str | None = None, device: str | None = "cpu") -> Any:
        """The run's model with trained weights, ready to use. Default: the best; the device `auto`,
        or None, is a GPU if there is one."""
        place = chosen_device(device)
        folder = self.checkpoint("best" if checkpoint is None else checkpoint)
        self.check_unchanged(folder)
        model = self.task.network.build()
        put_weights(model, load_weights(folder), folder)
        return model.to(place).eval()

    def predictor(self, checkpoint: str | None = None, device: str | None = "cpu") -> Any:
        """What predicts, evaluates and scores: the model, or one that another library runs
        (`ExternalModel`)."""
        return self.load_model(checkpoint, device)

    def facts(self, step: int, best: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What a checkpoint stores as JSON: its step, the best metrics so far, and what its weights
        mean."""
        recipe = self.recipe.model_dump(mode="json")
        return {
            "step": step,
            "best": best,
            "tokenizer": self.tokenizers.fingerprint,
            "recipe": recipe,
        }

    def check_unchanged(self, checkpoint: Path) -> None:
        """Refuse a recipe or a tokenizer that the checkpoint was not trained with: even where the
        shapes fit, the weights would mean something else, as every id another token. With
        `accept_recipe` the sections of the recipe that do not say what the weights mean may
        differ."""
        facts = load_facts(checkpoint)
        if "files" not in facts and self.environment.get("format", FORMAT) >= 2:
            what = (
                "it has no checksums, which every checkpoint of this run has: it is of another run"
            )
            raise _damaged(checkpoint / "checkpoint.json", what)
        differing = self._differing(facts.get("recipe", {}))
        file = str(self.folder / "recipe.yaml")
        for name, (here, there) in differing.items():
            if name.partition(".")[0] in FIXED_SECTIONS:
                what = f"{name} is {here!r}, but {checkpoint.name} was trained with {there!r}"
                raise CheckpointError(what, where=file, hint="put it back")
        if differing and not self.accept_recipe:
            named = [
                f"{name} is {here!r}, not {there!r}" for name, (here, there) in differing.items()
            ]
            more = [f"and {len(named) - NAMED:,} more"] if len(named) > NAMED else []
            what = (
                f"{checkpoint.name} was trained with another recipe: "
                f"{'; '.join([*named[:NAMED], *more])}"
            )
            hint = (
                "put it back; or --accept-recipe uses it as it is now, in Python accept_recipe=True"
            )
            raise CheckpointError(what, where=file, hint=hint)
        if facts["tokenizer"] != self.tokenizers.fingerprint:
            own = [path.name for path in _own_files(self.folder) or ()]
            names = [name for name in self.tokenizers.files if name not in own] or [
                *self.tokenizers.files
            ]
            raise CheckpointError(
                "the tokenizer is not the one this run was trained with",
                where=", ".join(str(self.folder / name) for name in names),
                hint="put the run's own tokenizer back; another one gives every token another "
                "meaning",
            )

    def _differing(self, trained: Tree) -> dict[str, tuple[Any, Any]]:
        """The fields of recipe.yaml that differ from the recipe that a checkpoint was trained with,
        with both values.

        What a resumed training may change is left out, and paths: the data of a run may move.
        """
        here = leaves(self.stored_recipe.model_dump(mode="json"))
        there = leaves(trained)
        if not there or here == there:  # old checkpoints have none
            return {}
        try:
            there = leaves(recipe_of_run(copy.deepcopy(trained)).model_dump(mode="json"))
        except ConfigError:  # of a version with other fields
            here = {name: here[name] for name in here.keys() & there.keys()}
            there = {name: there[name] for name in here}
        changed = [
            name
            for name in dict.fromkeys([*here, *there])
            if here.get(name, ...) != there.get(name, ...)
        ]
        return {
            name: (here.get(name), there.get(name))
            for name in changed
            if name.removeprefix("training.") not in CHANGEABLE_ON_RESUME
            and not _is_moved(name, here.get(name), there.get(name))
        }

    def remove_all_but(self, names: set[str]) -> None:
        """Remove checkpoints that are no longer needed, and what a killed process left; a user's
        copies stay.

        A checkpoint is renamed first, so that an interrupted removal leaves nothing that looks like
        one.
        """
        for path in self.checkpoints.iterdir():
            if STEP.fullmatch(path.name) and path.name not in names:
                path = path.rename(path.with_name(f".{path.name}.removed"))
            if LEFT_STEP.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)


def _is_moved(name: str, here: object, there: object) -> bool:
    """Whether a field of a recipe is the path of a file, which may be elsewhere now. A run stores
    absolute ones."""
    names_files = name.startswith(("data.", "tokenizer.file", "model.vectors.", "training.init"))
    return names_files and isinstance(here, str) and isinstance(there, str) and os.path.isabs(there)


def can_start_in(folder: Path) -> bool:
    """Whether training may start in a folder: it is empty, or holds only what a run has before its
    first checkpoint."""
    if not folder.is_dir() or (folder / "last").exists():
        return False
    names = {path.name for path in folder.iterdir() if not LEFT.fullmatch(path.name)}
    if not names or (own := _own_files(folder)) is None:
        return not names
    checkpoints = folder / "checkpoints"
    if checkpoints.is_dir() and not all(
        path.name.startswith(".") for path in checkpoints.iterdir()
    ):
        return False
    return names <= {
        "environment.json",
        "metrics.jsonl",
        "tensorboard",
        "checkpoints",
        *(path.name for path in own),
    }


def _own_files(folder: Path) -> list[Path] | None:
    """What `Run.create` wrote into a folder and nobody changed since, by the hashes in
    environment.json; None where that file is not of a run."""
    try:
        environment = json.loads((folder / "environment.json").read_bytes())
        _, hashes = environment["regard"], environment["files"]
        files = [path for path in folder.iterdir() if path.name in hashes]
        return [
            path
            for path in files
            if hashlib.sha256(path.read_bytes()).hexdigest() == hashes[path.name]
        ]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def remove_partial_runs(target: Path) -> None:
    """Remove what a killed import left beside its target: folders that hold a run and that no
    process has locked."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.{'[0-9a-f]' * 32}.partial"):
        if _own_files(left) is not None:
            with suppress(CheckpointError), locked(left):
                shutil.rmtree(left, ignore_errors=True)


def chosen_device(name: str | None) -> torch.device:
    """The device of this name; `auto`, or None, takes a GPU if there is one."""
    name = name or "auto"
    devices = [*(["mps"] if torch.backends.mps.is_available() else []), "cpu"]
    if torch.cuda.is_available():
        devices = [
            "cuda",
            *(f"cuda:{number}" for number in range(torch.cuda.device_count())),
            *devices,
        ]
    if name not in ("auto", *devices):
        hint = f"allowed: auto, {', '.join(devices)}"
        raise DecodeError(f"there is no device {name!r} here", where="--device", hint=hint)
    return torch.device(devices[0] if name == "auto" else name)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run folder, so that one process at a time trains it; the folder is made
    where it is missing, and removed again if it did not become a run. The system releases it when
    the process ends, however it ends. On a file system without locks nothing is held."""
    created = not folder.exists()
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", blocking=False)
    try:
        try:
            lock.acquire()
        except Timeout:
            created = False
            what, hint = (
                "another process is training this run",
                "wait until it ends, or give another --out",
            )
            raise CheckpointError(what, where=str(folder), hint=hint) from None
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in (
                errno.ENOLCK,
                errno.ENOSYS,
                errno.EOPNOTSUPP,
            ):
                with writing(folder / ".lock"):
                    raise
        remove_partial_files(folder)
        yield
    finally:
        if created and not (folder / "recipe.yaml").exists():  # as on a full disk: it is no run yet
            own = _own_files(folder)
            with suppress(OSError):
                for path in (
                    *([] if own is None else [*own, folder / "environment.json"]),
                    folder / ".lock",
                ):
                    path.unlink(missing_ok=True)
                folder.rmdir()
        lock.release()


# Checkpoints


def step_name(step: int) -> str:
    return f"step-{step:08d}"


def save_checkpoint(
    folder: Path,
    weights: Weights,
    facts: dict[str, Any],
    *,
    training_weights: Weights | None = None,
    training: dict[str, Any] | None = None,
) -> None:
    """Write a checkpoint; a full disk leaves the earlier ones as they were.

    `facts` are its step, metrics and fingerprints, as JSON. `training` is what resuming needs
    besides the weights; None in a checkpoint that cannot be resumed.
    """

    def fill(partial: Path) -> None:
        save_weights(partial / "model.safetensors", weights)
        if training_weights is not None:
            save_weights(partial / "training.safetensors", training_weights)
        if training is not None:
            with _as_os_error(), (partial / "training.pt").open("wb") as file:
                torch.save(training, file)
        known = {**facts, "files": checksums(partial)}
        known["checksum"] = key_of(known)
        (partial / "checkpoint.json").write_text(json.dumps(known, indent=1), encoding="utf-8")

    write_folder(folder, fill, replace=True)


def save_weights(
    path: Path, weights: Mapping[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file, with the permissions of its folder; the library would let only the
    owner read it."""
    with _as_os_error():
        save_file(
            {name: tensor.detach().contiguous() for name, tensor in weights.items()}, path, metadata
        )
    path.chmod(path.parent.stat().st_mode & 0o666)


@contextmanager
def _as_os_error() -> Iterator[None]:
    """safetensors and torch raise errors of their own for a full disk; torch's follows that of
    Python's file."""
    try:
        yield
    except (SafetensorError, RuntimeError) as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        known = re.search(r"I/O error: (.*) \(os error \d+\)", str(error))
        raise OSError(known[1] if known else str(error).splitlines()[0]) from None


def load_weights(folder: Path, name: str = "model.safetensors") -> Weights:
    path = folder / name
    if reason := why_unreadable(path):
        raise _damaged(path, reason)
    try:
        _verify(path)
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise _damaged(path, f"the file is damaged: {error}") from None


def load_facts(folder: Path) -> dict[str, Any]:
    """Step, metrics and fingerprints of a checkpoint."""
    path = folder / "checkpoint.json"
    try:
        return _read_facts(path)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise _damaged(path, f"the file is missing or damaged: {error}") from None


def _read_facts(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(path.read_bytes())
    stored = facts.pop("checksum", None)  # old checkpoints have none
    step = facts.get("step", 0)
    types = isinstance(step, int) and isinstance(facts.get("files", {}), dict)
    if "tokenizer" not in facts or not types or stored not in (None, key_of(facts)):
        raise ValueError("it is not as it was written")
    if STEP.fullmatch(path.parent.name) and path.parent.name != step_name(step):
        raise ValueError(f"it is of another checkpoint, {step_name(step)}")
    return facts


def _verify(path: Path) -> None:
    """Refuse a file of a checkpoint that is not as it was written; old checkpoints have no
    checksums."""
    files = load_facts(path.parent).get("files", {})
    if path.name in files and not has_checksum(path, files[path.name]):
        others = [path.with_name(name) for name in files if name != path.name]
        if others and not any(
            other.exists() and has_checksum(other, files[other.name]) for other in others
        ):
            what = "it is of another checkpoint: no file beside it has the checksum that it gives"
            raise _damaged(path.with_name("checkpoint.json"), what)
        raise _damaged(path, "the file is damaged: it is not as it was written")


def load_training(folder: Path) -> tuple[Weights, dict[str, Any]]:
    """The weights to continue from, and everything else that resuming needs; a thread verifies what
    is read."""
    own = "training.safetensors"
    has_own = (folder / own).exists() or own in load_facts(folder).get("files", {})
    with ThreadPoolExecutor(1) as pool, reading_state(folder) as path:
        weights = pool.submit(load_weights, folder, own if has_own else "model.safetensors")
        verified = pool.submit(_verify, path)
        try:
            training: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        finally:
            verified.result()
        return weights.result(), training


@contextmanager
def reading_state(folder: Path) -> Iterator[Path]:
    """Turn what is raised while the state of a training is read or taken over into a message about
    its file."""
    path = folder / "training.pt"
    if reason := why_unreadable(path):
        raise _damaged(path, f"training cannot be resumed from this checkpoint: {reason}")
    try:
        yield path
    except (RegardError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception:
        # torch raises a dozen kinds for damaged files, with messages about its own parts
        raise _damaged(
            path, "the file is damaged: it cannot be read as the state of a training"
        ) from None


def data_fingerprints(folder: Path) -> dict[str, int]:
    """The fingerprints of the data of a checkpoint; none in old runs, and where training.pt is
    missing."""
    try:  # memory-mapped: the state of the optimiser, most of the file, is not read
        training: dict[str, dict[str, int]] = torch.load(
            folder / "training.pt", "cpu", weights_only=True, mmap=True
        )
        return training.get("fingerprints", {})
    except Exception:  # as in load_training, which reports it when a training is resumed
        return {}


def _is_whole(folder: Path) -> bool:
    try:
        files = _read_facts(folder / "checkpoint.json").get("files", {})
        return all(has_checksum(folder / name, value) for name, value in files.items())
    except (OSError, ValueError, TypeError, AttributeError):
        return False


def _damaged(path: Path, what: str) -> CheckpointError:
    """The error for a file of a checkpoint, with what to do about it."""
    others = [*filter(_is_whole, sorted(path.parent.parent.glob("step-*")))]
    names = [other.name for other in others if other != path.parent]
    hint = "copy the checkpoint back from elsewhere, or train anew with another --out"
    if names:
        hint = (
            f"other checkpoints here: {', '.join(names[-3:])}; --checkpoint uses one; to --resume "
            "from it, write "
            "its name into the run's file `last`"
        )
    return CheckpointError(what, where=str(path), hint=hint)


def average_weights(folders: Sequence[Path]) -> Weights:
    """The mean of the weights of several checkpoints, summed in double precision."""
    total: Weights = {}
    for folder in folders:
        weights = load_weights(folder)
        for name, tensor in weights.items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(folders)).to(weights[name].dtype) for name, tensor in total.items()}


def put_weights(model: torch.nn.Module, weights: Weights, where: Path) -> None:
    check_weights(model, weights, where)
    model.load_state_dict(weights, strict=False)


def check_weights(model: torch.nn.Module, weights: Weights, where: Path) -> None:
    """Name a weight that does not fit the recipe. Tied weights are stored once."""
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    wrong = {name for name in weights if name in shapes and shapes[name] != weights[name].shape}
    if wrong := wrong | (set(stored_weights(model)) ^ set(weights)):
        raise CheckpointError(
            f"its weights do not fit the run's recipe, {min(wrong)} for one", where=str(where)
        )


def stored_weights(model: torch.nn.Module) -> Weights:
    """The state of a model with each shared tensor once, under its first name."""
    kept: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    return {
        name: tensor for name, tensor in state.items() if kept.setdefault(id(tensor), name) == name
    }


# The log


class MetricsLog:
    """metrics.jsonl, to append to. After a resume no event is there twice and none is missing."""

    def __init__(self, path: Path, length: int = 0) -> None:
        """Continue after the first `length` bytes, those at the last checkpoint: later lines are
        written again."""
        self._path = path
        with writing(path):
            self._file = path.open("ab+")
            self._file.truncate(
                min(length, path.stat().st_size)
            )  # a longer file would be filled up with zeros
            self._file.seek(0)
            self.checksum = zlib.crc32(self._file.read())

    def write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        with writing(self._path):
            self._file.write(data)
            self._file.flush()
        self.checksum = zlib.crc32(data, self.checksum)

    def length(self) -> int:
        """Bytes so far, synced to the disk."""
        with writing(self._path):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        # every line was flushed, and one that could not be has raised an error
        with suppress(OSError):
            self._file.close()


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; a last line that a killed process left incomplete is skipped. An error
    where lines are not as they were written."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                try:
                    event: dict[str, Any] = json.loads(line)
                    numbers = [
                        event["step"],
                        event["seconds_per_step"] if event["event"] == "train" else 0,
                    ]
                    if not all(isinstance(value, int | float) for value in numbers):
                        raise ValueError
                except (ValueError, TypeError, KeyError, RecursionError):
                    what, hint = "the line is damaged: it is no event of a training", "remove it"
                    raise CheckpointError(what, where=f"{path}:{number}", hint=hint) from None
                yield event
    if damage := damage_of_log(path):
        hint = (
            "copy the file back from elsewhere, or remove it: only what it tells of the "
            "training is lost"
        )
        raise CheckpointError(damage, where=str(path), hint=hint)


def is_log(path: Path) -> bool:
    """Whether a file is a log of a training as `MetricsLog` writes it, perhaps with an incomplete
    last line; or there is none."""
    begin = b'{"event": '
    try:
        with path.open("rb") as file:
            return all(line.startswith(begin) or begin.startswith(line) for line in file)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def damage_of_log(path: Path) -> str:
    """How a log differs from what it was at the last checkpoint; empty where it does not, or where
    nothing is known."""
    try:
        checkpoint = (
            path.parent / "checkpoints" / (path.parent / "last").read_text(encoding="utf-8").strip()
        )
        known = _read_facts(checkpoint / "checkpoint.json")["log"]
        with path.open("rb") as file:
            written = file.read(known["bytes"])
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return ""
    if len(written) < known["bytes"]:
        return "the file is damaged: its end is missing"
    return (
        ""
        if zlib.crc32(written) == known["checksum"]
        else "the file is damaged: it is not as it was written"
    )
