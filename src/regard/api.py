"""The verbs: each is one function here, one command in cli.py.

`check`, `train`, `explain`, `diagnose`, `compare`, `import_run`, `export_run` and `shipped_recipes` are imported from
where they are implemented; `predict`, `features`, `evaluate` and `score` are implemented here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.file_inputs import FileInput
from regard.errors import CheckpointError, DecodeError, InputError, Problem, first_of
from regard.exchange.exchange import export_run, import_run
from regard.models.base import Pooling
from regard.recipes.recipe import leaves, load_recipe, refuse_search, with_search
from regard.recipes.shipped import shipped_recipes
from regard.runs.examples import examples_of, measured_on, noted
from regard.runs.run import Run
from regard.tasks.raw import Features
from regard.tasks.raw import features as vectors_of
from regard.tasks.task import Inputs, Note, Prediction, Task, numbered, summed
from regard.text.files import atomic_file, check_writable, open_text, write_file
from regard.training.check import check
from regard.training.train import train
from regard.views.compare import compare
from regard.views.diagnose import diagnose
from regard.views.explain import explain

__all__ = [
    "Predictions", "Run", "Skipped", "check", "compare", "diagnose", "evaluate", "explain", "export_run", "features",
    "import_run", "load_recipe", "predict", "score", "shipped_recipes", "train",
]  # fmt: skip

CHUNK = 4_000
"""Inputs that are decoded before their outputs are handed on."""


@dataclass(frozen=True)
class Skipped:
    """Stands among the predictions for an input that cannot be read."""

    input: str
    problem: Problem
    search: None = None

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

    def append_chunk(self, chunk: Predictions) -> None:
        self += chunk
        self.notes += chunk.notes

    @property
    def skipped(self) -> list[Problem]:
        """Why each input that was skipped cannot be read."""
        return [prediction.problem for prediction in self if isinstance(prediction, Skipped)]


def predict(
    run: str | Path | Run,
    inputs: str | Sequence[str] | None = None,
    *,
    file: str | Path | None = None,
    story: str | Path | None = None,
    beam: int | None = None,
    nbest: int | None = None,
    length_penalty: float | None = None,
    prefix: str | None = None,
    prefixes: Sequence[str] | Path | None = None,
    record: str | Path | None = None,
    overwrite: bool = False,
    skip_bad: bool = False,
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    device: str = "auto",
    places: Sequence[str] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    each: Callable[[Predictions], None] | None = None,
) -> Predictions:
    """What the run's model predicts for each input, in their order; a single text is one input.

    Inputs are texts, or in a `file`: one a line, or a row of a table with the run's columns. `story` is a file with the
    story that questions are about. Every output begins with `prefix`, or each with its own of `prefixes`, a list or a
    file of lines. `record` names a file for the whole search (docs/search-record.md), a new one unless `overwrite`.
    Inputs that cannot be read are an InputError before any is decoded; with `skip_bad` a `Skipped` stands for each.
    `places` name inputs in messages, `progress` gets how many of all are done, `each` gets every chunk of predictions,
    which the result then lacks.
    """
    run = Run.open(run)
    given = _read_inputs(run.task, inputs, places, file, story, skip_bad=skip_bad)
    read: list[object] = [file, story, prefixes, *(one.text for one in given)]
    if isinstance(prefixes, Path):
        prefixes = _read_prefixes(prefixes, len(given), prefix)
    recipe = with_search(run.recipe, beam, nbest, length_penalty, overrides, prefix=prefix)
    refuse_search(run.task, {"--prefix": recipe.search.prefix, "--prefixes": prefixes, "--record": record})
    if record is not None:
        check_writable(Path(record), "--record", read, overwrite=overwrite)
    run = run.under(recipe)
    model = run.load_model(checkpoint, device)
    encoded = run.task.encode_inputs(model, _texts(given, prefixes))
    if not skip_bad:
        encoded.readable()
    bad = encoded.unreadable | {row: one.fault for row, one in enumerate(given) if one.fault is not None}
    done, result, searches = summed(progress, len(given)), Predictions([], recipe.search.nbest), list[dict[str, Any]]()
    for first in range(0, max(1, len(given)), CHUNK):
        rows = range(first, min(first + CHUNK, len(given)))
        readable = encoded.take([row for row in rows if row not in bad])
        predictions: Sequence[Prediction] = ()
        if len(readable):
            predictions = run.task.predict_encoded(model, readable, record=record is not None, progress=done)
        done(len(rows) - len(predictions))
        searches += [{"input": one.input, **one.search} for one in predictions if one.search is not None]
        following = iter(predictions)
        chunk = [Skipped(given[row].text, bad[row]) if row in bad else next(following) for row in rows]
        (each or result.append_chunk)(Predictions(chunk, result.nbest, run.task.notes(readable, predictions)))
    if record is not None:
        _write_record(Path(record), run, searches)
    return result


def _write_record(path: Path, run: Run, searches: Sequence[object]) -> None:
    content = {"run": str(run.folder), "search": run.recipe.search.model_dump(), "inputs": searches}
    write_file(path, json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1) + "\n")


def _read_inputs(
    task: Task,
    inputs: str | Sequence[str] | None,
    places: Sequence[str] | None,
    file: str | Path | None,
    story: str | Path | None,
    *,
    skip_bad: bool,
) -> list[FileInput]:
    """The inputs as texts, lines of a file or rows of a table; of a task that reads stories, its questions."""
    texts = [inputs] if isinstance(inputs, str) else inputs
    if texts and file is not None:
        raise DecodeError("give texts or --file, not both", where="--file")
    if texts is None and file is None and story is None:
        raise DecodeError("there is no input", where="inputs", hint="give texts, or a file")
    told = [] if story is None else task.read_story(story, skip_bad=skip_bad)
    if file is not None:
        lines = task.file_inputs(file, skip_bad=skip_bad)
    else:
        texts = texts or []
        if places is None:  # a problem of a question about a story may be in either
            places = [f"{told[-1].place}, {place}" if told else place for place in numbered(texts)]
        lines = [task.typed_input(text, place) for text, place in zip(texts, places, strict=True)]
    given = task.gather(lines, told)
    if not skip_bad and (faults := [one.fault for one in given if one.fault is not None]):
        raise InputError(problems=first_of(faults))
    return given


def _texts(given: Sequence[FileInput], prefixes: Sequence[str] | None = None) -> Inputs:
    return Inputs([one.text for one in given], [one.place for one in given], prefixes)


def _read_prefixes(file: Path, inputs: int, prefix: str | None) -> list[str]:
    """The lines of a file of prefixes, as many as there are inputs."""
    if prefix is not None:
        raise DecodeError("give --prefix or --prefixes, not both", where="--prefixes")
    lines = list(open_text(str(file), Path()).lines())
    if len(lines) != inputs:
        what = f"{len(lines):,} prefix{'es'[: 2 * (len(lines) != 1)]} for {inputs:,} input{'s'[: inputs != 1]}"
        raise DecodeError(what, where=str(file), hint="one line for each input, empty where any beginning is allowed")
    return lines


def features(
    run: str | Path | Run,
    inputs: str | Sequence[str] | None = None,
    *,
    file: str | Path | None = None,
    layer: int = -1,
    pooling: Pooling | None = None,
    normalize: bool = False,
    out: str | Path | None = None,
    overwrite: bool = False,
    skip_bad: bool = False,
    checkpoint: str = "best",
    device: str = "auto",
    places: Sequence[str] | None = None,
) -> Features:
    """The vectors that a pre-trained model has for the tokens of each input, or with `pooling` for each as a whole.

    With `normalize` each has length 1.
    Inputs that cannot be read are an InputError; with `skip_bad` they have no tokens, or a vector of NaN. `out` names a
    .npz file for the vectors, a new one unless `overwrite`: vectors, inputs, and for tokens also tokens and offsets.
    """
    run = Run.open(run)
    given = _read_inputs(run.task, inputs, places, file, None, skip_bad=skip_bad)
    if out is not None:
        check_writable(Path(out), "--features", [file], overwrite=overwrite)
    model = run.task.text_model(run.load_model(checkpoint, device))
    if model is None:
        what = f"the task {run.recipe.task} has no vectors of a single text"
        raise DecodeError(what, where=str(run.folder), hint="runs of (masked_)language_modeling have")
    faults = {row: one.fault for row, one in enumerate(given) if one.fault is not None} if skip_bad else None
    vectors = vectors_of(
        run.task, model, _texts(given), layer=layer, pooling=pooling, normalize=normalize, faults=faults
    )
    if out is not None:
        with atomic_file(Path(out)) as stream:
            np.savez(stream, **vectors.arrays())  # type: ignore[arg-type]
    return vectors


def score(
    run: str | Path | Run,
    source: str,
    target: str | Sequence[str],
    *,
    checkpoint: str = "best",
    device: str = "auto",
) -> dict[str, Any]:
    """log P(target | source), whole and token by token. A target given as a list is taken as exact tokens.

    For a language model the source is the beginning of a text, and the target its continuation.
    """
    run = Run.open(run)
    if run.task.writes is None:
        what = f"score needs a run that writes texts, not one of {run.recipe.task}"
        raise CheckpointError(what, where=str(run.folder), hint="evaluate and predict serve every task")
    model, vocabulary = run.load_model(checkpoint, device), run.tokenizers[run.task.writes]
    ids, scores = run.task.score_text(model, source, target)
    return {
        "source": source,
        "target": vocabulary.decode(ids),
        "score": sum(scores),
        "tokens": vocabulary.tokens(ids),
        "token_scores": scores,
    }


def evaluate(
    run: str | Path | Run,
    *,
    split: str | None = None,
    files: Sequence[str] = (),
    beam: int | None = None,
    length_penalty: float | None = None,
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    device: str = "auto",
    predictions: str | Path | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """The task's metrics on a split or on files, and which of them it was.

    Where the task has an answer for each example, all are written to the file `predictions`, and the wrong ones to
    another file beside it. Default: in the run folder, predictions.jsonl or, on files or another split than `evaluate`
    chooses by itself, predictions.NAME.jsonl. Files that were named and exist need `overwrite`.
    """
    run = Run.open(run)
    usual = (None, "validation" if run.recipe.data.test is None else "test")
    name = f".{Path(files[0]).name.partition('.')[0]}" if files else "" if split in usual else f".{split}"
    file = run.folder / f"predictions{name}.jsonl" if predictions is None else Path(predictions)
    read = [*files, *leaves(run.recipe.model_dump()).values()]
    for path in (file, _errors_beside(file)):
        check_writable(path, "--predictions", read, overwrite=overwrite or predictions is None)
    run = run.under(with_search(run.recipe, beam, 1, length_penalty, overrides))
    examples = examples_of(run, split, files)
    model = run.load_model(checkpoint, device)
    metrics = run.task.evaluate(model, examples, summed(progress, len(examples)))
    measured = noted(measured_on(run, split, files), metrics)
    return with_predictions_written(measured, file, named=predictions is not None)


def _errors_beside(file: Path) -> Path:
    return file.with_name("errors.jsonl" if file.stem == "predictions" else f"{file.stem}.errors.jsonl")


def with_predictions_written(metrics: dict[str, Any], file: Path, *, named: bool) -> dict[str, Any]:
    """The metrics with the names of two files of JSON lines instead of the `predictions` (and `errors`) among them.

    Errors are the predictions that are not `right`, unless the task has chosen them itself. `named` says whether the
    user has named the file, which is refused for a task without predictions.
    """
    if "predictions" not in metrics:
        if named:
            what = "this task has no answer for each example to write"
            raise DecodeError(what, where="--predictions", hint="leave it out")
        return metrics
    others = {name: value for name, value in metrics.items() if name not in ("predictions", "errors")}
    wrong = metrics["errors"] if "errors" in metrics else [one for one in metrics["predictions"] if not one["right"]]
    errors = _errors_beside(file)
    try:
        for path, objects in ((file, metrics["predictions"]), (errors, wrong)):
            write_file(path, "".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in objects))
    except CheckpointError:
        if named:
            raise
        note = f"{file.parent} cannot be written to: --predictions FILE writes the predictions elsewhere"
        return noted(others, {"note": note})
    return others | {"predictions": str(file), "errors": str(errors)}
