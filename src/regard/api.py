"""The verbs: each is one function here, and one command in cli/.

`explain`, `diagnose`, `compare`, `import_run`, `export_run`, `shipped_recipes` and `show` are
imported from where they are implemented; `predict`, `features`, `vectors`, `evaluate`, `score` and
`load` are implemented here. `check` and `train` turn what a program gives (rows in memory, a dict
or keywords for overrides) into what their commands take.
"""

from __future__ import annotations

import copy
import json
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray

from regard.config import Tree
from regard.data.config import Split, Splits
from regard.data.dataset import Dataset
from regard.data.parallel import Engine, chosen_workers, in_order, over_cluster, processors
from regard.data.records import corpus_for, corpus_kind, is_rows, rows_of, splits_in, store_rows
from regard.engine.machine import keep_memory
from regard.errors import (
    CheckpointError,
    ConfigError,
    DecodeError,
    Problem,
    RegardError,
    did_you_mean,
    short,
)
from regard.exchange.ctranslate2 import int8_model
from regard.exchange.exchange import export_run, import_run
from regard.models.base import Contextual, Pooling, device_of
from regard.recipes.overrides import Overrides, as_list, as_override, named_settings
from regard.recipes.recipe import load_recipe, load_tree
from regard.recipes.search_options import SearchOptions, refuse_search, with_search
from regard.recipes.shipped import shipped_recipes
from regard.runs.examples import SPLITS, examples_of, later_step, measured_on, noted
from regard.runs.run import Run, chosen_device, load_facts
from regard.search.external import ExternalModel
from regard.tasks import TASKS
from regard.tasks.baseline import strongest
from regard.tasks.classification import Classification, Classified
from regard.tasks.task import (
    Done,
    EncodedInputs,
    Given,
    Note,
    Prediction,
    Task,
    ignore,
    image_notes,
    summed,
    without_faults,
)
from regard.text.checksums import key_of
from regard.text.files import FileInput, open_text
from regard.text.writing import GrowingFile, atomic_file, check_writable, write_file
from regard.training import check as checking
from regard.training import train as training
from regard.training.check import Check
from regard.training.display import Display
from regard.views.compare import compare
from regard.views.diagnose import diagnose
from regard.views.explain import explain
from regard.views.labels import Metrics
from regard.views.render import write_result
from regard.views.search_record import SearchRecord
from regard.views.show import show
from regard.views.vectors import Features, WordVectors, text_vectors, word_vectors

__all__ = [
    "Loaded",
    "Predictions",
    "Run",
    "Skipped",
    "TrainedRun",
    "check",
    "compare",
    "diagnose",
    "evaluate",
    "explain",
    "export_run",
    "features",
    "import_run",
    "load",
    "load_recipe",
    "predict",
    "predict_file",
    "predict_proba",
    "score",
    "shipped_recipes",
    "show",
    "train",
    "vectors",
]

Precision = Literal["fp32", "bf16", "fp16", "int8"]
DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.float32,
}
CHUNK = 4_000
"""Inputs that are decoded before their outputs are handed on."""
FIRST_PIECE, PIECE = 100, 1_000
"""Inputs of a file of any length that one process is given at once, and that a crash may cost: at
first few, so that something is soon there."""
CHARACTERS = 1 << 24
"""Longest input: a tokenizer needs some 50 bytes of memory for each character."""
SHARE = 250
"""Examples of an evaluation that a node of a cluster is given at once."""


@dataclass(frozen=True)
class Skipped(Prediction):
    """Stands among the predictions for an input that cannot be read."""

    problem: Problem

    def to_json(self) -> dict[str, Any]:
        return {"input": self.input, "output": None, "problem": asdict(self.problem)}

    def lines(self, nbest: int) -> Iterator[str]:
        """An empty line, so that outputs keep the line numbers of their inputs."""
        yield ""


class Predictions(list[Prediction]):
    """Predictions in the order of the inputs, and what a user should know about them."""

    def __init__(
        self, predictions: Iterable[Prediction], nbest: int, notes: Iterable[Note] = ()
    ) -> None:
        super().__init__(predictions)
        self.nbest = nbest
        """Outputs for each input, as the search was set."""
        self.notes = list(notes)
        self.record: SearchRecord | None = None
        """The whole search, if that was asked for."""

    def lines(self, *, as_json: bool) -> Iterator[str]:
        """One object of JSON for each, or the lines that people read, each output in one."""
        for prediction in self:
            if as_json:
                yield json.dumps(prediction.to_json(), ensure_ascii=False)
            else:
                yield from (" ".join(line.splitlines()) for line in prediction.lines(self.nbest))

    def append_chunk(self, chunk: Predictions) -> None:
        self += chunk
        self.notes += chunk.notes

    @property
    def skipped(self) -> list[Problem]:
        """Why each input that was skipped cannot be read."""
        return [prediction.problem for prediction in self if isinstance(prediction, Skipped)]


Recipe = str | Path | Tree | Check
"""A file, the name of a recipe that ships, a dict, YAML text, or what `check` returned."""
SPLIT_NAMES = {"data": "train", "validation": "validation", "test": "test"}
"""The arguments for rows in memory, and the splits that they become."""


def check(
    recipe: Any,
    *others: str | Path | Sequence[str | Path] | Mapping[str, Any],
    data: object = None,
    validation: object = None,
    test: object = None,
    overrides: Overrides = (),
    out: str | Path | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Check:
    """Validate a recipe and its data; count, sample and estimate. It trains nothing and creates no
    run.

    `recipe` is a file, the name of a recipe that ships, a dict, or YAML text; `overrides` are
    changes of it, a list or a dict, and keywords are changes of single fields: `steps=300`. Rows in
    memory may be given as for `train`.

    Instead of a recipe it may be data, for which a recipe is proposed: a file, several files (as
    several arguments or as a list), a folder of texts, or rows in memory (a table of pandas, a
    datasets.Dataset, a list of dicts). Keywords then name columns: `text="review"`, and
    `validation` and `test` may be files too. The proposal is written to `out` if that is given and
    nothing is wrong.
    """
    changes = [change for other in others for change in _changes_in(other)] + as_list(overrides)
    try:
        if is_rows(recipe):
            recipe = str(store_rows(rows_of(recipe, "data"), "data"))
        elif isinstance(recipe, list | tuple):
            recipe, *further = map(str, recipe)
            changes = [*further, *changes]
        recipe = _recipe_of(recipe)
        held_out = {"validation": validation, "test": test}
        if checking.is_data(recipe, changes):
            changes += [f"{name}={value}" for name, value in settings.items()]
            files = {name: _files_of(value, name) for name, value in held_out.items()}
        else:
            files = {
                name: _files_of(value, name)
                for name, value in held_out.items()
                if _are_names(value)
            }
            rows = {name: value for name, value in held_out.items() if not _are_names(value)}
            changes += _changes(recipe, changes, {"data": data, **rows}, settings)
    except RegardError as error:
        return Check(tuple(error.problems))
    result = checking.check(
        recipe,
        changes,
        validation=files.get("validation", []),
        test=files.get("test", []),
        out=out,
        quiet=quiet,
    )
    return replace(result, problems=tuple(_with_rows_named(result.problems, changes)))


def _files_of(held_out: object, name: str) -> list[str]:
    """The files of a split: their names, or the one that rows in memory are stored in."""
    if held_out is None:
        return []
    if is_rows(held_out):
        return [str(store_rows(rows_of(held_out, name), name))]
    return [*map(str, held_out)] if isinstance(held_out, list | tuple) else [str(held_out)]


def _are_names(value: object) -> bool:
    """Whether a value names files, as the command line gives them; rows in memory may be texts."""
    return isinstance(value, str | Path) or (
        isinstance(value, list | tuple) and all(isinstance(one, Path) for one in value)
    )


def _changes_in(other: str | Path | Sequence[str | Path] | Mapping[str, Any]) -> list[str]:
    """An argument of `check` after the first: a file, an override, several of them, or a dict of
    overrides."""
    if isinstance(other, Mapping):
        return as_list(other)
    return [str(other)] if isinstance(other, str | Path) else [str(one) for one in other]


def train(
    recipe: Recipe,
    overrides: Overrides = (),
    *,
    data: object = None,
    validation: object = None,
    test: object = None,
    out: str | Path | None = None,
    resume: bool = False,
    accept_recipe: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> TrainedRun:
    """Train the model of a recipe into the run folder `out`; with `resume`, continue from its last
    checkpoint.

    `recipe` is a file, the name of a recipe that ships, a dict, YAML text, or what `check`
    returned. `overrides` are changes of it: `["training.steps=300"]` or `{"training.steps": 300}`;
    keywords are changes too, by the name of a field that only one section has: `steps=300`.

    `data`, `validation` and `test` are rows in memory, instead of the files that the recipe names:
    a table of pandas or polars, a datasets.Dataset, a dict of columns, or a list of dicts; as
    `data` also a datasets.DatasetDict with these splits. Columns are those that the recipe names,
    or have the task's names. The rows are kept in the cache (REGARD_CACHE), where `resume` and
    `evaluate` find them again.

    A run whose recipe.yaml was changed since is not resumed, unless `accept_recipe`. Without `out`
    the run is made in the system's folder for temporary files; its `folder` says where.
    """
    recipe, changes = _recipe_of(recipe), as_list(overrides)
    rows = {"data": data, "validation": validation, "test": test}
    changes += _changes(recipe, changes, rows, settings)
    with _named_rows(changes), _run_folder(recipe, out, resume=resume, quiet=quiet) as folder:
        run = training.train(
            recipe, changes, out=folder, resume=resume, accept_recipe=accept_recipe, quiet=quiet
        )
    return TrainedRun(run.folder, checked=False)


def _recipe_of(recipe: Recipe) -> str | Path | Tree:
    """What the commands take for a recipe."""
    if not isinstance(recipe, Check):
        return recipe
    ConfigError.raise_if(recipe.problems)
    return recipe.recipe


def _changes(
    recipe: str | Path | Tree,
    changes: Sequence[str],
    rows: Mapping[str, object],
    settings: Mapping[str, Any],
) -> list[str]:
    """Keywords, and rows in memory, as overrides."""
    rows = {name: given for name, given in rows.items() if given is not None}
    if not rows and not settings:
        return []
    named = named_settings(load_tree(recipe, changes)[0], settings)
    if not rows:
        return named
    if "data" not in rows:
        hint = "give the training rows as data="
        raise ConfigError("it needs the training rows beside it", where=next(iter(rows)), hint=hint)
    if splits := splits_in(rows["data"]):
        names = {split: argument for argument, split in SPLIT_NAMES.items()}
        if "train" not in splits:
            raise ConfigError(
                f"there is no split 'train' (splits: {', '.join(splits)})", where="data"
            )
        rows = {
            **{names[split]: part for split, part in splits.items() if split in names},
            **rows,
            "data": splits["train"],
        }
    tree, _ = load_tree(recipe, [*changes, *named])
    task = TASKS.get(str(tree.get("task")))
    return (
        named if task is None else [*named, *_data_changes(tree.get("data") or {}, task.data, rows)]
    )


def _data_changes(
    section: Tree, kind: type[Splits[Any]], rows: Mapping[str, object]
) -> Iterator[str]:
    """Rows in memory as overrides of the recipe's section `data`. Built-in corpora beside them are
    left out."""
    own = {split: _first_corpus(section.get(split)) for split in SPLIT_NAMES.values()}
    for argument, split in SPLIT_NAMES.items():
        if argument in rows:
            like = own[split] if own[split].keys() & {"file", "dataset"} else own["train"]
            corpus = corpus_for(rows[argument], argument, corpus_kind(kind), like)
            yield as_override(f"data.{split}", corpus)
        elif own[split].get("corpus"):
            default = kind.model_fields[split].default
            yield as_override(
                f"data.{split}", default.model_dump() if isinstance(default, Split) else None
            )


def _first_corpus(corpora: Any) -> Tree:
    """The first corpus of a split in a recipe's tree; empty if the split is a share of the training
    examples."""
    first = corpora[0] if isinstance(corpora, list) and corpora else corpora
    return first if isinstance(first, dict) and "split" not in first else {}


@contextmanager
def _named_rows(changes: Sequence[str]) -> Iterator[None]:
    """Say `data, row 17` in errors instead of the line of the file that the rows are kept in."""
    try:
        yield
    except RegardError as error:
        problems = _with_rows_named(error.problems, changes)
        if problems == [*error.problems]:
            raise
        raise type(error)(problems=problems) from None


def _with_rows_named(problems: Iterable[Problem], changes: Sequence[str]) -> list[Problem]:
    """The problems with rows in memory called by their number, not by the file that holds them."""
    named_files = [
        json.loads(match[1])
        for change in changes
        if (match := re.search(r'"file": (".*?")', change))
    ]
    files = [file for file in named_files if Path(file).parent.name.startswith("rows-")]

    def named(text: str) -> str:
        for file in files:
            text = re.sub(rf"{re.escape(file)}:(\d+)", rf"{Path(file).stem}, row \1", text)
        return text

    return [replace(one, where=named(one.where), what=named(one.what)) for one in problems]


@contextmanager
def _run_folder(
    recipe: str | Path | Tree, out: str | Path | None, *, resume: bool, quiet: bool
) -> Iterator[Path]:
    """The folder of the run: `out`, or a new one among the system's temporary files, which is then
    shown."""
    if out is not None:
        yield Path(out)
        return
    if resume:
        raise ConfigError(
            "a training is resumed in the folder of its run", where="out", hint="give out="
        )
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigError("several processes need the same folder", where="out", hint="give out=")
    is_name = isinstance(recipe, str | Path) and "\n" not in str(recipe)
    name = Path(str(recipe)).stem if is_name else "run"
    folder = Path(tempfile.mkdtemp(prefix=f"regard-{name}-"))
    Display(quiet=quiet).say(f"the run is in {folder}, a temporary folder; out= names another")
    try:
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()  # nothing was trained


def predict(
    run: str | Path | Run,
    inputs: Given | Iterable[Given] | None = None,
    *,
    file: str | Path | None = None,
    story: str | Path | None = None,
    beam: int | None = None,
    nbest: int | None = None,
    length_penalty: float | None = None,
    prefix: str | None = None,
    prefixes: Sequence[str] | Path | None = None,
    record: str | Path | bool = False,
    overwrite: bool = False,
    skip_bad: bool = False,
    overrides: Overrides = (),
    checkpoint: str | None = None,
    device: str | None = None,
    accept_recipe: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    each: Callable[[Predictions], None] | None = None,
) -> Predictions:
    """What the run's model predicts for each input, in their order.

    A text, a tuple of the texts that an input consists of, or a dict with the run's columns is one
    input; a list, a generator or another iterable has several. In a `file` there is one a line, or
    a row of a table with the run's columns. `story` is a file with the story that questions are
    about. Every output begins with `prefix`, or each with its own of `prefixes`, a list or a file
    of lines. `record` names a file for the whole search (docs/search-record.md), a new one unless
    `overwrite`; where it is True the result alone has it. Inputs that cannot be read are an
    InputError before any is decoded; with `skip_bad` a `Skipped` stands for each. `progress` gets
    how many of all are done, `each` gets every chunk of predictions, which the result then lacks.
    With `accept_recipe`, as in all functions that open a run, its recipe.yaml may have been changed
    since the training.
    """
    run = Run.open(run, accept_recipe)
    options = SearchOptions(beam, nbest, length_penalty, prefix, tuple(as_list(overrides)))
    recipe = with_search(run.recipe, options)
    run = run.under(recipe)
    given = _read_inputs(run.task, inputs, file, story, skip_bad=skip_bad)
    read: list[object] = [file, story, prefixes, *(item.text for item in given), *run.recipe_values]
    if isinstance(prefixes, Path):
        prefixes = _read_prefixes(run.task, prefixes, len(given), prefix)
    refuse_search(run.task, {"--prefixes": prefixes, "--record": record or None})
    if not isinstance(record, bool):
        check_writable(Path(record), "--record", read, overwrite=overwrite)
    model = run.predictor(checkpoint, device)
    if isinstance(model, ExternalModel):
        model.refuse(recipe.search, {"--prefixes": prefixes, "--record": record or None})
    if prefixes is not None:
        if len(prefixes) != len(given):
            raise DecodeError(
                f"there are {len(prefixes):,} prefixes for {len(given):,} inputs", where="prefixes"
            )
        given = [item._replace(prefix=own) for item, own in zip(given, prefixes, strict=True)]
    encoded = run.task.answers.encode_inputs(model, given)
    if not skip_bad:
        encoded.readable()
    result = Predictions([], recipe.search.nbest)
    searches: list[dict[str, Any]] = []
    for chunk in _chunks(
        run, model, given, encoded, record is not False, summed(progress, len(given))
    ):
        searches += [
            {"input": prediction.input, **prediction.search}
            for prediction in chunk
            if prediction.search is not None
        ]
        (each or result.append_chunk)(chunk)
    if record is not False:
        result.record = SearchRecord(str(run.folder), recipe.search, searches)
        if not isinstance(record, bool):
            write_result(result.record, Path(record), option="--record")
    return result


def predict_proba(
    run: str | Path | Run,
    inputs: Given | Iterable[Given],
    *,
    checkpoint: str | None = None,
    device: str | None = None,
) -> NDArray[np.float64]:
    """The probability of each class for each input, [inputs, classes], for a run of classification.

    The columns are in the order of the run's `classes_`, as in scikit-learn.
    """
    run = Run.open(run)
    classes = classes_of(run)
    found = [
        cast("Classified", one)
        for one in predict(run, inputs, checkpoint=checkpoint, device=device)
    ]
    return np.array([[one.probabilities[name] for name in classes] for one in found]).reshape(
        -1, len(classes)
    )


def classes_of(run: Run) -> list[str]:
    """The names of the classes of a run of classification, in the order of its `predict_proba`."""
    if not isinstance(run.task, Classification):
        what = f"{run.recipe.task} has no probabilities of classes"
        raise DecodeError(
            what,
            where=str(run.folder),
            hint="runs of classification have; predict serves every task",
        )
    return list(run.task.labels)


def _chunks(
    run: Run,
    model: Any,
    given: Sequence[FileInput],
    encoded: EncodedInputs[Any],
    record: bool,
    progress: Done,
) -> Iterator[Predictions]:
    """The predictions, a few thousand at once; what cannot be read is skipped."""
    bad = encoded.unreadable
    for first in range(0, max(1, len(given)), CHUNK):
        rows = range(first, min(first + CHUNK, len(given)))
        readable = encoded.take([row for row in rows if row not in bad])
        predictions: Sequence[Prediction] = ()
        if len(readable):
            predictions = run.task.answers.predict_encoded(
                model, readable, record=record, progress=progress
            )
        progress(len(rows) - len(predictions))
        following = iter(predictions)
        chunk = [
            Skipped(given[row].text, bad[row]) if row in bad else next(following) for row in rows
        ]
        notes = run.task.answers.notes(readable, predictions)
        if run.recipe.model.reads != "image":
            notes = [*image_notes(readable.inputs), *notes]
        yield Predictions(chunk, run.recipe.search.nbest, notes)


# Files of any length

Piece = tuple[list[FileInput], dict[str, int]]
"""Inputs, and how many there are up to them, with a checksum of all these."""


@dataclass(frozen=True)
class Answered:
    """What is to be written for a piece of a file, and what a user should know about it."""

    content: bytes
    done: dict[str, int]
    inputs: int
    skipped: list[Problem]
    notes: list[Note]


@dataclass(frozen=True)
class _Placed:
    """A model in one of the processes that share work: on a core, or on a GPU of its own."""

    run: Loaded
    device: str

    @property
    def on_cpu(self) -> bool:
        return self.run.precision == "int8" or device_of(self.run.load_model()).type == "cpu"

    def start(self, number: int, workers: int) -> None:
        if workers > 1:
            torch.set_num_threads(max(1, processors() // workers))
            keep_memory()
        if (gpus := _gpus(self.device, self.run.precision)) and self.on_cpu:
            self.run.move_to(f"cuda:{number % gpus}")


def _gpus(device: str, precision: Precision) -> int:
    """How many GPUs of this machine may be used."""
    return torch.cuda.device_count() if device in ("auto", "cuda") and precision != "int8" else 0


@dataclass(frozen=True)
class _Answering(_Placed):
    skip_bad: bool
    as_json: bool

    def __call__(self, piece: Piece) -> Answered | RegardError:
        """An error is returned: not every engine hands on what is raised."""
        inputs, done = piece
        try:
            chunk = self.run.predict(
                inputs if self.skip_bad else without_faults(inputs), skip_bad=self.skip_bad
            )
        except RegardError as error:
            return error
        content = "".join(f"{line}\n" for line in chunk.lines(as_json=self.as_json))
        return Answered(
            content.encode(errors="replace"), done, len(chunk), chunk.skipped, chunk.notes
        )


def predict_file(
    run: str | Path | Run,
    file: str | Path,
    out: str | Path,
    *,
    as_json: bool = False,
    resume: bool = False,
    overwrite: bool = False,
    workers: int | str = "auto",
    engine: Engine = "local",
    address: str | None = None,
    beam: int | None = None,
    nbest: int | None = None,
    length_penalty: float | None = None,
    prefix: str | None = None,
    skip_bad: bool = False,
    overrides: Overrides = (),
    checkpoint: str = "best",
    device: str = "auto",
    precision: Precision = "fp32",
    accept_recipe: bool = False,
    each: Callable[[Answered], None] = lambda answered: None,
) -> int:
    """Predict for every input of a file of any length, into the file `out`, in their order. Returns
    how many.

    `out` has JSON Lines if its name ends in .jsonl, or with `as_json`. Until it is complete it is
    called NAME.partial; after a crash, `resume` continues it, without an input twice or missing. It
    returns 0 if `out` is complete already. `workers` is the number of processes: auto is one a
    core, or one a GPU; more of them share the GPUs. The engine `ray` computes on a Ray cluster:
    that at `address`, or one on this machine. An input that cannot be read is an InputError after
    what stands before it was written, or a `Skipped` with `skip_bad`. `each` gets what was written.
    """
    most = chosen_workers(workers, engine, address)
    run, out = Run.open(run, accept_recipe), Path(out)
    open_text(str(file), Path())
    complete = resume and out.exists() and not Path(f"{out}.partial").exists()
    check_writable(out, "--out", [file, *run.recipe_values], overwrite=overwrite or complete)
    if complete and not overwrite:
        return 0
    options = SearchOptions(beam, nbest, length_penalty, prefix, tuple(as_list(overrides)))
    recipe = with_search(run.recipe, options)
    run = run.under(recipe)
    as_json = as_json or out.suffix == ".jsonl"
    about = {
        "RUN": key_of(load_facts(run.checkpoint(checkpoint))),
        "search": recipe.search.model_dump(mode="json"),
        "evaluation": recipe.evaluation.model_dump(mode="json"),
        "--precision": precision,
        "--json": as_json,
        "inputs at once": PIECE,
    }
    inputs = run.task.gather(run.task.file_inputs(file, skip_bad=skip_bad))
    gpus = _gpus(device, precision)
    anywhere = engine == "ray" or (gpus and (most or gpus) > 1)
    loaded = load(
        run, checkpoint=checkpoint, device="cpu" if anywhere else device, precision=precision
    )
    work = _Answering(loaded, device, skip_bad, as_json)
    with closing(GrowingFile(out, about, resume=resume, overwrite=overwrite)) as grown:
        pieces = _pieces(inputs, grown)
        local = (
            (most or gpus or processors()) if work.on_cpu else 1
        )  # a single GPU has the model already
        answers = (
            over_cluster(work, pieces, address, most)
            if engine == "ray"
            else in_order(work, pieces, local)
        )
        for answered in answers:
            if isinstance(answered, RegardError):
                raise answered
            grown.append(answered.content, answered.done)
            each(answered)
        grown.complete()
    return grown.done.get("inputs", 0)


def _pieces(inputs: Iterable[FileInput], grown: GrowingFile) -> Iterator[Piece]:
    """The inputs that are left to predict for.

    Where the first ones, whose outputs are there already, are others than they were, nothing can be
    continued.
    """
    before, inputs = grown.done.get("inputs", 0), iter(inputs)
    digest = _digest(islice(inputs, before), 0)
    if digest != grown.done.get("digest", 0):
        what = f"its first {before:,} inputs have changed"
        raise DecodeError(
            what, where="--file", hint=f"put the file back, or --overwrite {grown.partial}"
        )
    while piece := list(islice(inputs, min(PIECE, before + FIRST_PIECE))):
        before += len(piece)
        digest = _digest(piece, digest)
        yield piece, {"inputs": before, "digest": digest}


def _digest(inputs: Iterable[FileInput], digest: int) -> int:
    for item in inputs:
        digest = zlib.crc32(f"{item.text}\n".encode(errors="surrogateescape"), digest)
    return digest


def _read_inputs(
    task: Task,
    inputs: Given | Iterable[Given] | None,
    file: str | Path | None,
    story: str | Path | None = None,
    *,
    skip_bad: bool = False,
) -> list[FileInput]:
    """The inputs as a program gives them, lines of a file or rows of a table; of a task that reads
    stories, its questions. Those that the task has gathered already stay as they are."""
    lines = [] if inputs is None else task.given_inputs(inputs)
    if lines and file is not None:
        raise DecodeError("give texts or --file, not both", where="--file")
    if inputs is None and file is None and story is None:
        raise DecodeError("there is no input", where="inputs", hint="give texts, or a file")
    given = lines
    if not isinstance(inputs, list) or not all(isinstance(item, FileInput) for item in inputs):
        story_lines = [] if story is None else task.read_story(story, skip_bad=skip_bad)
        if file is not None:
            lines = list(task.file_inputs(file, skip_bad=skip_bad))
        elif story_lines:  # a problem of a question about a story may be in either
            lines = [
                line._replace(place=f"{story_lines[-1].place}, {line.place}") for line in lines
            ]
        given = list(task.gather(lines, story_lines))
    for number, item in enumerate(given):
        if (count := len(item.text)) > CHARACTERS:
            fault = Problem(item.place, f"it has {count:,} characters", f"at most {CHARACTERS:,}")
            given[number] = item._replace(text="", fault=fault)
    return given if skip_bad else without_faults(given)


def _read_prefixes(task: Task, file: Path, inputs: int, prefix: str | None) -> list[str]:
    """The lines of a file of prefixes, as many as there are inputs."""
    if prefix is not None:
        raise DecodeError("give --prefix or --prefixes, not both", where="--prefixes")
    lines = list(task.open_file(file).lines())
    if len(lines) != inputs:
        what = (
            f"{len(lines):,} prefix{'es'[: 2 * (len(lines) != 1)]} for {inputs:,} "
            f"input{'s'[: inputs != 1]}"
        )
        raise DecodeError(
            what,
            where=str(file),
            hint="one line for each input, empty where any beginning is allowed",
        )
    return lines


def features(
    run: str | Path | Run,
    inputs: Given | Iterable[Given] | None = None,
    *,
    file: str | Path | None = None,
    layer: int = -1,
    pooling: Pooling | None = None,
    normalize: bool = False,
    out: str | Path | None = None,
    overwrite: bool = False,
    skip_bad: bool = False,
    checkpoint: str | None = None,
    device: str | None = None,
    accept_recipe: bool = False,
) -> Features:
    """The vectors that a pre-trained model has for the tokens of each input, or with `pooling` for
    each as a whole.

    With `normalize` each has length 1. Inputs that cannot be read are an InputError; with
    `skip_bad` they have no tokens, or a vector of NaN. `out` names a .npz file for the vectors, a
    new one unless `overwrite`: vectors, inputs, and for tokens also tokens and offsets.
    """
    run = Run.open(run, accept_recipe)
    given = _read_inputs(run.task, inputs, file, skip_bad=skip_bad)
    if out is not None:
        check_writable(Path(out), "--features", [file, *run.recipe_values], overwrite=overwrite)
    model = _text_model(run, checkpoint, device)
    vectors = text_vectors(
        run.task,
        model,
        given,
        layer=layer,
        pooling=pooling,
        normalize=normalize,
        skip_bad=skip_bad,
        gaps=True,
    )
    if out is not None:
        with atomic_file(Path(out)) as stream:
            np.savez(stream, **vectors.arrays())  # type: ignore[arg-type]
    return vectors


def _text_model(run: Run, checkpoint: str | None, device: str | None) -> Contextual:
    model: Contextual | None = run.task.views.text_model(run.load_model(checkpoint, device))
    if model is None:
        what = f"{run.recipe.model.kind} for {run.recipe.task} has no vectors of a single text"
        hint = (
            "language models, transformers that translate, and models with a head, as "
            "classifiers, have"
        )
        raise DecodeError(what, where=str(run.folder), hint=hint)
    return model


def vectors(
    run: str | Path | Run,
    inputs: Given | Iterable[Given],
    *,
    word: str,
    others: Given | Iterable[Given] | None = None,
    file: str | Path | None = None,
    layer: int = -1,
    checkpoint: str | None = None,
    device: str | None = None,
    accept_recipe: bool = False,
) -> WordVectors:
    """One word in several texts: the cosines of its vectors in each layer, and the nearest words in
    one `layer`.

    Each text has the word, or a word that begins so, as 배 in 배를. Neighbours are words of the texts,
    of `others`, and of the lines of `file`.
    """
    run = Run.open(run, accept_recipe)
    given = _read_inputs(run.task, inputs, None)
    more = [
        item
        for own in ((others, None), (None, file))
        if any(own)
        for item in _read_inputs(run.task, *own)
    ]
    return word_vectors(run.task, _text_model(run, checkpoint, device), given, more, word, layer)


def score(
    run: str | Path | Run,
    source: Given,
    target: str | Iterable[str],
    *,
    checkpoint: str | None = None,
    device: str | None = None,
    accept_recipe: bool = False,
) -> dict[str, Any]:
    """log P(target | source), whole and token by token. A target given as a list is taken as exact
    tokens.

    For a language model the source is the beginning of a text, and the target its continuation.
    """
    run = Run.open(run, accept_recipe)
    if run.task.writes is None:
        what = f"score needs a run that writes texts, not one of {run.recipe.task}"
        raise CheckpointError(
            what, where=str(run.folder), hint="evaluate and predict serve every task"
        )
    model, vocabulary = run.predictor(checkpoint, device), run.tokenizers[run.task.writes]
    [given] = _read_inputs(run.task, [source], None)
    tokens = target if isinstance(target, str) or not isinstance(target, Iterable) else [*target]
    is_list = isinstance(tokens, list) and all(isinstance(token, str) for token in tokens)
    if not (isinstance(tokens, str) or is_list):
        raise DecodeError(
            f"{short(repr(target))} is no text",
            where="target",
            hint="give a text, or a list of tokens",
        )
    ids, scores = run.task.views.score_text(model, given.text, tokens)
    return {
        "source": given.text,
        "target": vocabulary.decode(ids),
        "score": sum(scores),
        "tokens": vocabulary.tokens(ids),
        "token_scores": scores,
    }


def evaluate(
    run: str | Path | Run,
    *,
    split: str | None = None,
    files: str | Path | Iterable[str | Path] = (),
    beam: int | None = None,
    length_penalty: float | None = None,
    overrides: Overrides = (),
    checkpoint: str | None = None,
    device: str | None = None,
    predictions: str | Path | Literal[False] | None = None,
    overwrite: bool = False,
    engine: Engine = "local",
    address: str | None = None,
    accept_recipe: bool = False,
    baseline: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Metrics:
    """The task's metrics on a split or on files, and which of them it was.

    Where the task has an answer for each example, all are written to the file `predictions`, and
    the wrong ones to another file beside it. Default: in the run folder, predictions.jsonl or, on
    files or another split than `evaluate` chooses by itself, predictions.NAME.jsonl;
    predictions.NAME.file.jsonl where a file has a split's name. Files that were named and exist
    need `overwrite`; where it is False, none is written and the result has the predictions. The
    engine `ray` shares the examples out to a Ray cluster: that at `address`, or one on this
    machine. With `baseline`, the result has the metrics of a linear model of scikit-learn, trained
    on the run's training rows, under that key.
    """
    chosen_workers("auto", engine, address)
    run = Run.open(run, accept_recipe)
    if engine == "ray" and not run.task.metrics.shares_examples:
        what = f"the examples of {run.recipe.task} cannot be shared out"
        raise DecodeError(what, where="--engine", hint="leave it out")
    named = [str(name) for name in ([files] if isinstance(files, str | Path) else files)]
    usual = (None, "validation" if run.recipe.data.test is None else "test")
    name = Path(named[0]).name.partition(".")[0] if named else split
    name = (
        ""
        if not named and split in usual
        else f".{name}.file"
        if named and name in SPLITS
        else f".{name}"
    )
    options = SearchOptions(beam, 1, length_penalty, overrides=tuple(as_list(overrides)))
    run = run.under(with_search(run.recipe, options))
    examples = examples_of(run, split, named)
    file = Path(predictions or run.folder / f"predictions{name}.jsonl")
    for path in (file, _errors_beside(file)) if predictions is not False else ():
        check_writable(
            path,
            "--predictions",
            [*named, *run.recipe_values],
            overwrite=overwrite or predictions is None,
        )
    beside = _baseline(run, examples) if baseline else {}
    done = summed(progress, len(examples))
    if engine == "ray":
        loaded = (
            run
            if isinstance(run, Loaded)
            else load(run, checkpoint=checkpoint or "best", device="cpu")
        )
        pieces = (
            examples.apart(range(len(examples))[row : row + SHARE])
            for row in range(0, len(examples), SHARE)
        )
        parts = []
        for count, part in over_cluster(
            _Measuring(loaded, device or "auto"), pieces, address, None
        ):
            parts.append(part)
            done(count)
        metrics = run.task.metrics.combine(examples, parts)
    else:
        metrics = run.task.metrics.evaluate(run.predictor(checkpoint, device), examples, done)
    measured = measured_on(run, split, named, examples)
    if checkpoint in (None, "best"):
        measured = noted(measured, later_step(run))
    metrics = noted(measured, noted(metrics, beside))
    if predictions is not False:
        metrics = with_predictions_written(metrics, file, named=predictions is not None)
    return Metrics(metrics)


def _baseline(run: Run, examples: Any) -> dict[str, Any]:
    """The metrics of the strongest linear model on the same examples, or a note that there is none
    for the task."""
    if not run.recipe.data.train:
        what = "the run was imported, so there are no training rows for a baseline"
        raise DecodeError(what, where="--baseline", hint="leave it out")
    task = run.task
    measured = strongest(
        task.metrics, task.metrics.baselines(examples_of(run, "train"), examples), examples
    )
    return (
        {"baseline": measured}
        if measured
        else {"note": f"there is no classical baseline for {run.recipe.task}"}
    )


@dataclass(frozen=True)
class _Measuring(_Placed):
    def __call__(self, piece: Dataset) -> tuple[int, Any]:
        return len(piece), self.run.task.metrics.results(self.run.predictor(), piece, ignore)


def _errors_beside(file: Path) -> Path:
    return file.with_name(
        "errors.jsonl" if file.stem == "predictions" else f"{file.stem}.errors.jsonl"
    )


def with_predictions_written(metrics: dict[str, Any], file: Path, *, named: bool) -> dict[str, Any]:
    """The metrics with the names of two files of JSON lines instead of the `predictions` (and
    `errors`) among them.

    Errors are the predictions that are not `right`, unless the task has chosen them itself. `named`
    says whether the user has named the file, which is refused for a task without predictions.
    """
    if "predictions" not in metrics:
        if named:
            hint = "'regard predict RUN --file IN --out OUT' writes texts"
            raise DecodeError(
                "this task has no answer for each example", where="--predictions", hint=hint
            )
        return metrics
    others = {
        name: value for name, value in metrics.items() if name not in ("predictions", "errors")
    }
    wrong = (
        metrics["errors"]
        if "errors" in metrics
        else [line for line in metrics["predictions"] if not line["right"]]
    )
    errors = _errors_beside(file)
    try:
        for path, lines in ((file, metrics["predictions"]), (errors, wrong)):
            write_file(path, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))
    except CheckpointError:
        if named:
            raise
        note = (
            f"{file.parent} cannot be written to: --predictions FILE writes the predictions "
            "elsewhere"
        )
        return noted(others, {"note": note})
    return others | {"predictions": str(file), "errors": str(errors)}


class TrainedRun(Run):
    """A run with the verbs as methods, as `train` returns it. The model is loaded by the first of
    them, and kept."""

    def load_model(self, checkpoint: str | None = None, device: str | None = "cpu") -> Any:
        chosen = self.checkpoint(checkpoint or "best"), device or "auto"
        kept: dict[tuple[Path, str], Any] = vars(self).setdefault("_kept", {})
        if chosen not in kept:
            kept.clear()
            kept[chosen] = super().load_model(chosen[0].name, chosen[1])
        return kept[chosen]

    @property
    def classes_(self) -> list[str]:
        """The names of the classes, in the order of the columns of `predict_proba`."""
        return classes_of(self)

    predict, predict_proba, features, vectors, score = (
        predict,
        predict_proba,
        features,
        vectors,
        score,
    )
    evaluate, explain = evaluate, explain


class Loaded(TrainedRun):
    """A run whose model stays loaded. Its methods are the functions of this module, the run being
    this one."""

    precision: Precision

    def __init__(self, run: Run, checkpoint: str, device: str, precision: Precision) -> None:
        if precision not in DTYPES:
            hint = did_you_mean(precision, DTYPES)
            raise DecodeError(f"there is no precision {precision!r}", where="precision", hint=hint)
        self._model: Any
        if precision != "int8":
            self._model = Run.load_model(run, checkpoint, device).to(DTYPES[precision])
        elif not (isinstance(run, Loaded) and run.precision == "int8"):
            if chosen_device(device).type != "cpu":
                raise DecodeError(
                    "int8 is for the CPU", where="precision", hint="give device='cpu', or bf16"
                )
            self._model = int8_model(run, checkpoint)
        self._of = {"checkpoint": checkpoint, "device": device}
        self.precision = precision
        vars(self).update({name: value for name, value in vars(run).items() if name != "_kept"})

    def move_to(self, device: str) -> None:
        self._model = self._model.to(device)

    def load_model(self, checkpoint: str | None = None, device: str | None = None) -> Any:
        """The model; another checkpoint or device than what it was loaded with is refused."""
        if self.precision == "int8":
            what = "int8, which CTranslate2 computes, can only predict, evaluate and score"
            raise DecodeError(what, where="precision", hint="load the run with fp32")
        return self.predictor(checkpoint, device)

    def predictor(self, checkpoint: str | None = None, device: str | None = None) -> Any:
        """The model, or with int8 that of CTranslate2; another checkpoint or device than at first
        is refused."""
        for option, value in {"checkpoint": checkpoint, "device": device}.items():
            if value not in (None, self._of[option]):
                what, hint = (
                    f"the model is loaded with {self._of[option]!r}",
                    f"regard.load(RUN, {option}={value!r})",
                )
                raise DecodeError(what, where=option, hint=hint)
        return self._model

    def copy(self) -> Loaded:
        """The same with a model of its own, for another thread."""
        other = copy.copy(self)
        other._model = copy.deepcopy(self._model)
        return other


def load(
    run: str | Path | Run,
    overrides: Overrides = (),
    *,
    checkpoint: str = "best",
    device: str = "auto",
    precision: Precision = "fp32",
    accept_recipe: bool = False,
) -> Loaded:
    """The run with its model loaded once, for many calls of its methods `predict`, `predict_proba`,
    `score`, `explain`, `evaluate`, `features` and `vectors`; `overrides` are changes of its recipe
    that hold for all of them."""
    run = Run.open(run, accept_recipe)
    options = SearchOptions(overrides=tuple(as_list(overrides)))
    run = run.under(with_search(run.recipe, options))
    return Loaded(run, checkpoint, device, precision)
