"""The verbs: each is one function here, one command in cli.py.

`check`, `train`, `explain`, `diagnose`, `compare`, `import_run`, `export_run`, `shipped_recipes` and `show` are
imported from where they are implemented; `predict`, `features`, `vectors`, `evaluate`, `score` and `load` are
implemented here.
"""

from __future__ import annotations

import copy
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from regard.data.dataset import Dataset
from regard.data.parallel import Engine, chosen_workers, in_order, over_cluster, processors
from regard.errors import CheckpointError, DecodeError, Problem, RegardError, did_you_mean, short
from regard.exchange.exchange import export_run, import_run
from regard.layers.attention import with_int8
from regard.models.base import Contextual, Pooling, device_of, keep_memory
from regard.recipes.recipe import load_recipe, refuse_search, with_search
from regard.recipes.shipped import shipped_recipes
from regard.runs.examples import SPLITS, examples_of, measured_on, noted
from regard.runs.run import Run, load_facts
from regard.tasks.baseline import strongest
from regard.tasks.task import Done, EncodedInputs, Given, Note, Prediction, Task, ignore, summed, without_faults
from regard.text.files import FileInput, GrowingFile, atomic_file, check_writable, key_of, open_text, write_file
from regard.training.check import check
from regard.training.train import train
from regard.views.compare import compare
from regard.views.diagnose import diagnose
from regard.views.explain import explain
from regard.views.labels import Metrics
from regard.views.render import write_result
from regard.views.search_record import SearchRecord
from regard.views.show import show
from regard.views.vectors import Features, WordVectors, text_vectors, word_vectors

__all__ = [
    "Loaded", "Predictions", "Run", "Skipped", "check", "compare", "diagnose", "evaluate", "explain", "export_run",
    "features", "import_run", "load", "load_recipe", "predict", "predict_file", "score", "shipped_recipes", "show",
    "train", "vectors",
]  # fmt: skip

Precision = Literal["fp32", "bf16", "fp16", "int8"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.float32}
CHUNK = 4_000
"""Inputs that are decoded before their outputs are handed on."""
FIRST_PIECE, PIECE = 100, 1_000
"""Inputs of a file of any length that one process is given at once, and that a crash may cost: at first few, so that
something is soon there."""
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

    def __init__(self, predictions: Iterable[Prediction], nbest: int, notes: Iterable[Note] = ()) -> None:
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
    overrides: Sequence[str] = (),
    checkpoint: str | None = None,
    device: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    each: Callable[[Predictions], None] | None = None,
) -> Predictions:
    """What the run's model predicts for each input, in their order.

    A text, a tuple of the texts that an input consists of, or a dict with the run's columns is one input; a list, a
    generator or another iterable has several. In a `file` there is one a line, or a row of a table with the run's
    columns. `story` is a file with the story that questions are about. Every output begins with `prefix`, or each with
    its own of `prefixes`, a list or a file of lines. `record` names a file for the whole search
    (docs/search-record.md), a new one unless `overwrite`; where it is True the result alone has it. Inputs that cannot
    be read are an InputError before any is decoded; with `skip_bad` a `Skipped` stands for each. `progress` gets how
    many of all are done, `each` gets every chunk of predictions, which the result then lacks.
    """
    run = Run.open(run)
    run = run.under(recipe := with_search(run.recipe, beam, nbest, length_penalty, overrides, prefix=prefix))
    given = _read_inputs(run.task, inputs, file, story, skip_bad=skip_bad)
    read: list[object] = [file, story, prefixes, *(item.text for item in given), *run.recipe_values]
    if isinstance(prefixes, Path):
        prefixes = _read_prefixes(run.task, prefixes, len(given), prefix)
    refuse_search(run.task, {"--prefixes": prefixes, "--record": record or None})
    if not isinstance(record, bool):
        check_writable(Path(record), "--record", read, overwrite=overwrite)
    model = run.load_model(checkpoint, device)
    if prefixes is not None:
        if len(prefixes) != len(given):
            raise DecodeError(f"there are {len(prefixes):,} prefixes for {len(given):,} inputs", where="prefixes")
        given = [item._replace(prefix=own) for item, own in zip(given, prefixes, strict=True)]
    encoded = run.task.encode_inputs(model, given)
    if not skip_bad:
        encoded.readable()
    result = Predictions([], recipe.search.nbest)
    searches: list[dict[str, Any]] = []
    for chunk in _chunks(run, model, given, encoded, record is not False, summed(progress, len(given))):
        searches += [
            {"input": prediction.input, **prediction.search} for prediction in chunk if prediction.search is not None
        ]
        (each or result.append_chunk)(chunk)
    if record is not False:
        result.record = SearchRecord(str(run.folder), recipe.search, searches)
        if not isinstance(record, bool):
            write_result(result.record, Path(record), option="--record")
    return result


def _chunks(
    run: Run, model: Any, given: Sequence[FileInput], encoded: EncodedInputs[Any], record: bool, progress: Done
) -> Iterator[Predictions]:
    """The predictions, a few thousand at once; what cannot be read is skipped."""
    bad = encoded.unreadable
    for first in range(0, max(1, len(given)), CHUNK):
        rows = range(first, min(first + CHUNK, len(given)))
        readable = encoded.take([row for row in rows if row not in bad])
        predictions: Sequence[Prediction] = ()
        if len(readable):
            predictions = run.task.predict_encoded(model, readable, record=record, progress=progress)
        progress(len(rows) - len(predictions))
        following = iter(predictions)
        chunk = [Skipped(given[row].text, bad[row]) if row in bad else next(following) for row in rows]
        yield Predictions(chunk, run.recipe.search.nbest, run.task.notes(readable, predictions))


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
        return device_of(self.run.load_model()).type == "cpu"

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
            chunk = self.run.predict(inputs if self.skip_bad else without_faults(inputs), skip_bad=self.skip_bad)
        except RegardError as error:
            return error
        content = "".join(f"{line}\n" for line in chunk.lines(as_json=self.as_json))
        return Answered(content.encode(errors="replace"), done, len(chunk), chunk.skipped, chunk.notes)


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
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    device: str = "auto",
    precision: Precision = "fp32",
    each: Callable[[Answered], None] = lambda answered: None,
) -> int:
    """Predict for every input of a file of any length, into the file `out`, in their order. Returns how many.

    `out` has JSON Lines if its name ends in .jsonl, or with `as_json`. Until it is complete it is called NAME.partial;
    after a crash, `resume` continues it, without an input twice or missing. It returns 0 if `out` is complete already.
    `workers` is the number of processes: auto is one a core, or one a GPU; more of them share the GPUs. The engine
    `ray` computes on a Ray cluster: that at `address`, or one on this machine. An input that cannot be read is an
    InputError after what stands before it was written, or a `Skipped` with `skip_bad`. `each` gets what was written.
    """
    most = chosen_workers(workers, engine, address)
    run, out = Run.open(run), Path(out)
    open_text(str(file), Path())
    complete = resume and out.exists() and not Path(f"{out}.partial").exists()
    check_writable(out, "--out", [file, *run.recipe_values], overwrite=overwrite or complete)
    if complete and not overwrite:
        return 0
    run = run.under(recipe := with_search(run.recipe, beam, nbest, length_penalty, overrides, prefix=prefix))
    as_json = as_json or out.suffix == ".jsonl"
    about = {
        "RUN": key_of(load_facts(run.checkpoint(checkpoint))),
        "search": recipe.search.model_dump(mode="json"), "evaluation": recipe.evaluation.model_dump(mode="json"),
        "--precision": precision, "--json": as_json, "inputs at once": PIECE,
    }  # fmt: skip
    inputs = run.task.gather(run.task.file_inputs(file, skip_bad=skip_bad))
    gpus = _gpus(device, precision)
    anywhere = engine == "ray" or (gpus and (most or gpus) > 1)
    loaded = load(run, checkpoint=checkpoint, device="cpu" if anywhere else device, precision=precision)
    work = _Answering(loaded, device, skip_bad, as_json)
    with closing(GrowingFile(out, about, resume=resume, overwrite=overwrite)) as grown:
        pieces = _pieces(inputs, grown)
        local = (most or gpus or processors()) if work.on_cpu else 1  # a single GPU has the model already
        answers = over_cluster(work, pieces, address, most) if engine == "ray" else in_order(work, pieces, local)
        for answered in answers:
            if isinstance(answered, RegardError):
                raise answered
            grown.append(answered.content, answered.done)
            each(answered)
        grown.complete()
    return grown.done.get("inputs", 0)


def _pieces(inputs: Iterable[FileInput], grown: GrowingFile) -> Iterator[Piece]:
    """The inputs that are left to predict for.

    Where the first ones, whose outputs are there already, are others than they were, nothing can be continued.
    """
    before, inputs = grown.done.get("inputs", 0), iter(inputs)
    digest = _digest(islice(inputs, before), 0)
    if digest != grown.done.get("digest", 0):
        what = f"its first {before:,} inputs have changed"
        raise DecodeError(what, where="--file", hint=f"put the file back, or --overwrite {grown.partial}")
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
    """The inputs as a program gives them, lines of a file or rows of a table; of a task that reads stories, its
    questions. Those that the task has gathered already stay as they are."""
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
            lines = [line._replace(place=f"{story_lines[-1].place}, {line.place}") for line in lines]
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
        what = f"{len(lines):,} prefix{'es'[: 2 * (len(lines) != 1)]} for {inputs:,} input{'s'[: inputs != 1]}"
        raise DecodeError(what, where=str(file), hint="one line for each input, empty where any beginning is allowed")
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
) -> Features:
    """The vectors that a pre-trained model has for the tokens of each input, or with `pooling` for each as a whole.

    With `normalize` each has length 1. Inputs that cannot be read are an InputError; with `skip_bad` they have no
    tokens, or a vector of NaN. `out` names a .npz file for the vectors, a new one unless `overwrite`: vectors, inputs,
    and for tokens also tokens and offsets.
    """
    run = Run.open(run)
    given = _read_inputs(run.task, inputs, file, skip_bad=skip_bad)
    if out is not None:
        check_writable(Path(out), "--features", [file, *run.recipe_values], overwrite=overwrite)
    model = _text_model(run, checkpoint, device)
    vectors = text_vectors(
        run.task, model, given, layer=layer, pooling=pooling, normalize=normalize, skip_bad=skip_bad, gaps=True
    )
    if out is not None:
        with atomic_file(Path(out)) as stream:
            np.savez(stream, **vectors.arrays())  # type: ignore[arg-type]
    return vectors


def _text_model(run: Run, checkpoint: str | None, device: str | None) -> Contextual:
    model: Contextual | None = run.task.text_model(run.load_model(checkpoint, device))
    if model is None:
        what = f"{run.recipe.model.kind} for {run.recipe.task} has no vectors of a single text"
        hint = "language models, transformers that translate, and models with a head, as classifiers, have"
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
) -> WordVectors:
    """One word in several texts: the cosines of its vectors in each layer, and the nearest words in one `layer`.

    Each text has the word, or a word that begins so, as 배 in 배를. Neighbours are words of the texts, of `others`, and
    of the lines of `file`.
    """
    run = Run.open(run)
    given = _read_inputs(run.task, inputs, None)
    more = [item for own in ((others, None), (None, file)) if any(own) for item in _read_inputs(run.task, *own)]
    return word_vectors(run.task, _text_model(run, checkpoint, device), given, more, word, layer)


def score(
    run: str | Path | Run,
    source: Given,
    target: str | Iterable[str],
    *,
    checkpoint: str | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """log P(target | source), whole and token by token. A target given as a list is taken as exact tokens.

    For a language model the source is the beginning of a text, and the target its continuation.
    """
    run = Run.open(run)
    if run.task.writes is None:
        what = f"score needs a run that writes texts, not one of {run.recipe.task}"
        raise CheckpointError(what, where=str(run.folder), hint="evaluate and predict serve every task")
    model, vocabulary = run.load_model(checkpoint, device), run.tokenizers[run.task.writes]
    [given] = _read_inputs(run.task, [source], None)
    tokens = target if isinstance(target, str) or not isinstance(target, Iterable) else [*target]
    is_list = isinstance(tokens, list) and all(isinstance(token, str) for token in tokens)
    if not (isinstance(tokens, str) or is_list):
        raise DecodeError(f"{short(repr(target))} is no text", where="target", hint="give a text, or a list of tokens")
    ids, scores = run.task.score_text(model, given.text, tokens)
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
    overrides: Sequence[str] = (),
    checkpoint: str | None = None,
    device: str | None = None,
    predictions: str | Path | Literal[False] | None = None,
    overwrite: bool = False,
    engine: Engine = "local",
    address: str | None = None,
    baseline: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Metrics:
    """The task's metrics on a split or on files, and which of them it was.

    Where the task has an answer for each example, all are written to the file `predictions`, and the wrong ones to
    another file beside it. Default: in the run folder, predictions.jsonl or, on files or another split than `evaluate`
    chooses by itself, predictions.NAME.jsonl; predictions.NAME.file.jsonl where a file has a split's name. Files that
    were named and exist need `overwrite`; where it is False, none is written and the result has the predictions. The
    engine `ray` shares the examples out to a Ray cluster: that at `address`, or one on this machine. With `baseline`,
    the result has the metrics of a linear model of scikit-learn, trained on the run's training rows, under that key.
    """
    chosen_workers("auto", engine, address)
    run = Run.open(run)
    if engine == "ray" and not run.task.shares_examples:
        what = f"the examples of {run.recipe.task} cannot be shared out"
        raise DecodeError(what, where="--engine", hint="leave it out")
    named = [str(name) for name in ([files] if isinstance(files, str | Path) else files)]
    usual = (None, "validation" if run.recipe.data.test is None else "test")
    name = Path(named[0]).name.partition(".")[0] if named else split
    name = "" if not named and split in usual else f".{name}.file" if named and name in SPLITS else f".{name}"
    run = run.under(with_search(run.recipe, beam, 1, length_penalty, overrides))
    examples = examples_of(run, split, named)
    file = Path(predictions or run.folder / f"predictions{name}.jsonl")
    for path in (file, _errors_beside(file)) if predictions is not False else ():
        check_writable(path, "--predictions", [*named, *run.recipe_values], overwrite=overwrite or predictions is None)
    beside = _baseline(run, examples) if baseline else {}
    done = summed(progress, len(examples))
    if engine == "ray":
        loaded = run if isinstance(run, Loaded) else load(run, checkpoint=checkpoint or "best", device="cpu")
        pieces = (examples.apart(range(len(examples))[row : row + SHARE]) for row in range(0, len(examples), SHARE))
        parts = []
        for count, part in over_cluster(_Measuring(loaded, device or "auto"), pieces, address, None):
            parts.append(part)
            done(count)
        metrics = run.task.evaluated(examples, parts)
    else:
        metrics = run.task.evaluate(run.load_model(checkpoint, device), examples, done)
    metrics = noted(metrics, beside)
    metrics = noted(measured_on(run, split, named, examples), metrics)
    if predictions is not False:
        metrics = with_predictions_written(metrics, file, named=predictions is not None)
    return Metrics(metrics)


def _baseline(run: Run, examples: Any) -> dict[str, Any]:
    """The metrics of the strongest linear model on the same examples, or a note that there is none for the task."""
    if not run.recipe.data.train:
        what = "the run was imported, so there are no training rows for a baseline"
        raise DecodeError(what, where="--baseline", hint="leave it out")
    task = run.task
    measured = strongest(task, task.baselines(examples_of(run, "train"), examples), examples)
    return {"baseline": measured} if measured else {"note": f"there is no classical baseline for {task.name}"}


@dataclass(frozen=True)
class _Measuring(_Placed):
    def __call__(self, piece: Dataset) -> tuple[int, Any]:
        return len(piece), self.run.task.computed(self.run.load_model(), piece, ignore)


def _errors_beside(file: Path) -> Path:
    return file.with_name("errors.jsonl" if file.stem == "predictions" else f"{file.stem}.errors.jsonl")


def with_predictions_written(metrics: dict[str, Any], file: Path, *, named: bool) -> dict[str, Any]:
    """The metrics with the names of two files of JSON lines instead of the `predictions` (and `errors`) among them.

    Errors are the predictions that are not `right`, unless the task has chosen them itself. `named` says whether the
    user has named the file, which is refused for a task without predictions.
    """
    if "predictions" not in metrics:
        if named:
            hint = "'regard predict RUN --file IN --out OUT' writes texts"
            raise DecodeError("this task has no answer for each example", where="--predictions", hint=hint)
        return metrics
    others = {name: value for name, value in metrics.items() if name not in ("predictions", "errors")}
    wrong = metrics["errors"] if "errors" in metrics else [line for line in metrics["predictions"] if not line["right"]]
    errors = _errors_beside(file)
    try:
        for path, lines in ((file, metrics["predictions"]), (errors, wrong)):
            write_file(path, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines))
    except CheckpointError:
        if named:
            raise
        note = f"{file.parent} cannot be written to: --predictions FILE writes the predictions elsewhere"
        return noted(others, {"note": note})
    return others | {"predictions": str(file), "errors": str(errors)}


class Loaded(Run):
    """A run whose model stays loaded. Its methods are the functions of this module, the run being this one."""

    def __init__(self, run: Run, checkpoint: str, device: str, precision: Precision) -> None:
        if precision not in DTYPES:
            hint = did_you_mean(precision, DTYPES)
            raise DecodeError(f"there is no precision {precision!r}", where="precision", hint=hint)
        self._model = run.load_model(checkpoint, device).to(DTYPES[precision])
        if precision == "int8":
            if device_of(self._model).type != "cpu":
                raise DecodeError("int8 is for the CPU", where="precision", hint="give device='cpu', or bf16")
            try:
                self._model = with_int8(self._model)
            except (AttributeError, RuntimeError):
                raise DecodeError("this build of torch has no 8 bits", where="precision", hint="give fp32") from None
        self._of = {"checkpoint": checkpoint, "device": device}
        self.precision = precision
        vars(self).update(vars(run))

    def move_to(self, device: str) -> None:
        self._model = self._model.to(device)

    def load_model(self, checkpoint: str | None = None, device: str | None = None) -> Any:
        """The model; another checkpoint or device than what it was loaded with is refused."""
        for option, value in {"checkpoint": checkpoint, "device": device}.items():
            if value not in (None, self._of[option]):
                what, hint = f"the model is loaded with {self._of[option]!r}", f"regard.load(RUN, {option}={value!r})"
                raise DecodeError(what, where=option, hint=hint)
        return self._model

    def copy(self) -> Loaded:
        """The same with a model of its own, for another thread."""
        other = copy.copy(self)
        other._model = copy.deepcopy(self._model)
        return other

    predict, features, vectors, score, evaluate, explain = predict, features, vectors, score, evaluate, explain


def load(
    run: str | Path | Run,
    overrides: Sequence[str] = (),
    *,
    checkpoint: str = "best",
    device: str = "auto",
    precision: Precision = "fp32",
) -> Loaded:
    """The run with its model loaded once, for many calls of its methods `predict`, `score`, `explain`, `evaluate`,
    `features` and `vectors`; `overrides` are changes of its recipe that hold for all of them."""
    run = Run.open(run)
    return Loaded(run.under(with_search(run.recipe, None, None, None, overrides)), checkpoint, device, precision)
