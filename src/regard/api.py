"""The verbs: each is one function here, and one command in cli/.

`explain`, `diagnose`, `compare`, `import_run`, `export_run`, `shipped_recipes` and `show` are
imported from where they are implemented; `predict`, `features`, `vectors`, `evaluate`, `score` and
`load` are implemented here. `check` and `train` turn what a program gives (rows in memory, a dict
or keywords for overrides) into what their commands take.

Four classes hold what comes of a training:
    Run             a folder: its recipe, tokenizers and checkpoints, without a model in memory
    TrainedRun      a `Run` with the verbs as methods, which `train` returns; the first that needs
                    the model loads and keeps it
    LoadedModel     a model in memory, with its checkpoint, device and precision, without its run
    Loaded          a `TrainedRun` with a `LoadedModel`, which `load` returns: no verb loads again
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from regard.config import Tree
from regard.data.inputs import Given
from regard.data.parallel import Engine, chosen_workers
from regard.data.records import is_rows, rows_of, store_rows
from regard.errors import CheckpointError, ConfigError, DecodeError, RegardError, short
from regard.exchange.exchange import export_run, import_run
from regard.inference.evaluation import (
    baseline_metrics,
    evaluate_over_cluster,
    prediction_files,
)
from regard.inference.inputs import read_inputs, read_prefixes
from regard.inference.loaded_model import LoadedModel, Precision, load_model
from regard.inference.predictions import Predictions, Skipped, predict_chunks
from regard.inference.whole_file import (
    PieceOutput,
    Workers,
    output_settings,
    place_model,
    predict_whole_file,
)
from regard.models.base import Contextual, Pooling
from regard.recipes.loading import load_recipe
from regard.recipes.overrides import Overrides, as_list
from regard.recipes.rows_in_memory import (
    are_file_names,
    files_of_split,
    overrides_with_rows,
    rows_named,
    with_rows_named,
)
from regard.recipes.search_options import SearchOptions, with_search
from regard.recipes.shipped import shipped_recipes
from regard.runs.examples import UNKNOWN, examples_of, later_step, measured_on, noted
from regard.runs.run import Run
from regard.search.external import AnyModel, ExternalModel
from regard.tasks.answers import summed
from regard.tasks.classification import Classified
from regard.tasks.reading import words_not_known
from regard.tasks.views import TextVectors
from regard.text.files import check_readable
from regard.text.writing import GrowingFile, atomic_file, check_writable
from regard.training import check as checking
from regard.training import train as training
from regard.training.check import Check
from regard.training.display import Display
from regard.views.compare import compare
from regard.views.compare_sets import compare_sets
from regard.views.diagnose import diagnose
from regard.views.explain import explain
from regard.views.labels import Metrics
from regard.views.nearest_words import NearestWords
from regard.views.nearest_words import nearest_words as neighbours_of
from regard.views.render import write_result
from regard.views.search_record import SearchRecord
from regard.views.show import show
from regard.views.vectors import Features, text_vectors
from regard.views.watching import look
from regard.views.word_vectors import WordVectors, word_vectors

__all__ = [
    "Loaded",
    "Predictions",
    "Run",
    "Skipped",
    "TrainedRun",
    "check",
    "compare",
    "compare_sets",
    "diagnose",
    "evaluate",
    "explain",
    "export_run",
    "features",
    "import_run",
    "load",
    "load_recipe",
    "nearest_words",
    "predict",
    "predict_file",
    "predict_proba",
    "score",
    "shipped_recipes",
    "show",
    "train",
    "vectors",
]

RecipeSource = str | Path | Tree | Check
"""A file, the name of a recipe that ships, a dict, YAML text, or what `check` returned."""


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
    held_out = {"validation": validation, "test": test}
    try:
        recipe, further = _recipe_or_data(recipe)
        changes = [*further, *changes]
        if checking.is_data(recipe, changes):
            changes += [f"{name}={value}" for name, value in settings.items()]
            rows = {}
        else:
            rows = {name: value for name, value in held_out.items() if not are_file_names(value)}
            changes += overrides_with_rows(recipe, changes, {"data": data, **rows}, settings)
        files = {
            name: files_of_split(value, name)
            for name, value in held_out.items()
            if name not in rows
        }
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
    return replace(result, problems=tuple(with_rows_named(result.problems, changes)))


def _recipe_or_data(given: Any) -> tuple[str | Path | Tree, list[str]]:
    """The first argument of `check`: a recipe, or the name of a file with data and of further
    ones. Rows in memory become such a file."""
    if is_rows(given):
        return str(store_rows(rows_of(given, "data"), "data")), []
    if isinstance(given, list | tuple):
        first, *further = map(str, given)
        return first, further
    return _recipe_of(given), []


def _changes_in(other: str | Path | Sequence[str | Path] | Mapping[str, Any]) -> list[str]:
    """An argument of `check` after the first: a file, an override, several of them, or a dict of
    overrides."""
    if isinstance(other, Mapping):
        return as_list(other)
    return [str(other)] if isinstance(other, str | Path) else [str(one) for one in other]


def train(  # noqa: PLR0913  (one keyword per option, as in the command)
    recipe: RecipeSource,
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
    recipe = _recipe_of(recipe)
    changes = as_list(overrides)
    rows = {"data": data, "validation": validation, "test": test}
    changes += overrides_with_rows(recipe, changes, rows, settings)
    with rows_named(changes), _run_folder(recipe, out, resume=resume, quiet=quiet) as folder:
        run = training.train(
            recipe,
            changes,
            out=folder,
            resume=resume,
            accept_recipe=accept_recipe,
            quiet=quiet,
            look=look,
        )
    return TrainedRun(run.folder, checked=False)


def _recipe_of(recipe: RecipeSource) -> str | Path | Tree:
    """The recipe as the commands take it; a check that found problems raises them."""
    if not isinstance(recipe, Check):
        return recipe
    ConfigError.raise_if(recipe.problems)
    return recipe.recipe


@contextmanager
def _run_folder(
    recipe: str | Path | Tree, out: str | Path | None, *, resume: bool, quiet: bool
) -> Iterator[Path]:
    """The folder of the run: `out`, or a new one among the system's temporary files, whose name is
    then shown."""
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


def predict(  # noqa: PLR0913  (one keyword per option, as in the command)
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
    """Predict with the run's model: one prediction per input, in their order.

    A text, a tuple of the texts that an input consists of, or a dict with the run's columns is one
    input; a list, a generator or another iterable has several. A `file` has one input per line, or
    is a table with the run's columns. `story` is a file with the story that questions are
    about. Every output begins with `prefix`, or each with its own of `prefixes`, a list or a file
    of lines. `record` names a file for the whole search (docs/search-record.md), a new one unless
    `overwrite`; if it is True, only the result has it. Inputs that cannot be read are an
    InputError before any is decoded; with `skip_bad` each gives a `Skipped` instead. `progress` gets
    how many of all are done, `each` gets every chunk of predictions, which the result then lacks.
    With `accept_recipe`, as in all functions that open a run, its recipe.yaml may have been changed
    since the training.
    """
    run = Run.open(run, accept_recipe)
    options = SearchOptions(beam, nbest, length_penalty, prefix, tuple(as_list(overrides)))
    recipe = with_search(run.recipe, options)
    run = run.under(recipe)
    given = read_inputs(run.task, inputs, file, story, skip_bad=skip_bad)
    files_read = [file, story, prefixes, *(item.text for item in given), *run.recipe_values]
    if isinstance(prefixes, Path):
        prefixes = read_prefixes(run.task, prefixes, len(given), prefix)
    search_only = {"--prefixes": prefixes, "--record": record or None}
    run.task.check_search_options(search_only)
    if not isinstance(record, bool):
        check_writable(Path(record), "--record", files_read, overwrite=overwrite)
    model = run.predictor(checkpoint, device)
    if isinstance(model, ExternalModel):
        model.refuse(recipe.search, search_only)
    if prefixes is not None and len(prefixes) != len(given):
        raise DecodeError(
            f"there are {len(prefixes):,} prefixes for {len(given):,} inputs", where="prefixes"
        )
    predictions = Predictions([], recipe.search.nbest)
    searches: list[dict[str, Any]] = []
    for chunk in predict_chunks(
        run,
        model,
        given,
        prefixes=prefixes,
        skip_bad=skip_bad,
        record=record is not False,
        progress=summed(progress, len(given)),
    ):
        searches += chunk.searches
        (each or predictions.append_chunk)(chunk)
    if record is not False:
        predictions.record = SearchRecord(str(run.folder), recipe.search, searches)
        if not isinstance(record, bool):
            write_result(predictions.record, Path(record), option="--record")
    return predictions


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
    predictions = predict(run, inputs, checkpoint=checkpoint, device=device)
    probabilities = [
        [cast("Classified", prediction).probabilities[name] for name in classes]
        for prediction in predictions
    ]
    return np.array(probabilities).reshape(-1, len(classes))


def classes_of(run: Run) -> list[str]:
    """The names of the classes of a run of classification, in the order of its `predict_proba`."""
    classes: Sequence[str] | None = run.task.views.classes
    if classes is None:
        what = f"{run.recipe.task} has no probabilities of classes"
        raise DecodeError(
            what,
            where=str(run.folder),
            hint="runs of classification have; predict serves every task",
        )
    return list(classes)


def predict_file(  # noqa: PLR0913  (one keyword per option, as in the command)
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
    each: Callable[[PieceOutput], None] = lambda output: None,
) -> int:
    """Predict for every input of a file of any length, into the file `out`, in their order. Returns
    how many.

    `out` has JSON Lines if its name ends in .jsonl, or with `as_json`. Until it is complete it is
    called NAME.partial; after a crash, `resume` continues it, without an input twice or missing. It
    returns 0 if `out` is complete already. `workers` is the number of processes: auto is one per
    core for a file that takes longer than to start them; with GPUs one for each, or several that
    share it if the file is long. The engine `ray` computes on a Ray cluster: that at `address`, or
    one on this machine. An input that cannot be read is an InputError once
    all before it are written, or a `Skipped` with `skip_bad`. `each` gets what was written.
    """
    chosen = Workers(chosen_workers(workers, engine, address), engine, address)
    run = Run.open(run, accept_recipe)
    out = Path(out)
    check_readable(str(file))
    is_complete = resume and out.exists() and not Path(f"{out}.partial").exists()
    check_writable(out, "--out", [file, *run.recipe_values], overwrite=overwrite or is_complete)
    if is_complete and not overwrite:
        return 0
    options = SearchOptions(beam, nbest, length_penalty, prefix, tuple(as_list(overrides)))
    run = run.under(with_search(run.recipe, options))
    as_json = as_json or out.suffix == ".jsonl"
    about = output_settings(run, checkpoint, device, precision, as_json=as_json)
    inputs = run.task.inputs.gathered(run.task.inputs.in_file(file, skip_bad=skip_bad))
    chosen = chosen.on_gpus(file, device, precision)
    placed = place_model(run, checkpoint, device, precision, chosen)
    grown = GrowingFile(out, about, resume=resume, overwrite=overwrite)
    return predict_whole_file(
        placed, inputs, grown, chosen, skip_bad=skip_bad, as_json=as_json, each=each
    )


def features(  # noqa: PLR0913  (one keyword per option, as in the command)
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
    """The vectors that a pre-trained model has for the tokens of each input; with `pooling`, one
    vector for each input.

    With `normalize` each has length 1. Inputs that cannot be read are an InputError; with
    `skip_bad` they have no tokens, or a vector of NaN. `out` names a .npz file for the vectors, a
    new one unless `overwrite`: vectors, inputs, and for tokens also tokens and offsets.
    """
    run = Run.open(run, accept_recipe)
    given = read_inputs(run.task, inputs, file, skip_bad=skip_bad)
    if out is not None:
        check_writable(Path(out), "--features", [file, *run.recipe_values], overwrite=overwrite)
    reader, model = _text_model(run, checkpoint, device)
    vectors = text_vectors(
        reader,
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


def _text_model(
    run: Run, checkpoint: str | None, device: str | None
) -> tuple[TextVectors, Contextual]:
    """How texts are read, and the model that has vectors for them."""
    reader = run.task.views.vectors
    model = run.load_model(checkpoint, device)
    contextual = None if reader is None else reader.model_in(model)
    if reader is None or contextual is None:
        what = f"{run.recipe.model.kind} for {run.recipe.task} has no vectors of a single text"
        hint = (
            "language models, transformers that translate, and models with a head, as "
            "classifiers, have"
        )
        raise DecodeError(what, where=str(run.folder), hint=hint)
    return reader, contextual


def vectors(  # noqa: PLR0913  (one keyword per option, as in the command)
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
    given = read_inputs(run.task, inputs)
    more = read_inputs(run.task, others) if others else []
    if file:
        more += read_inputs(run.task, file=file)
    reader, model = _text_model(run, checkpoint, device)
    return word_vectors(reader, model, given, more, word, layer)


def nearest_words(
    run: str | Path | Run,
    words: str | Iterable[str] = (),
    *,
    analogies: str | Iterable[str] = (),
    analogy_list: str | Path | None = None,
    similarity: str | Path | None = None,
    checkpoint: str | None = None,
    device: str | None = None,
    accept_recipe: bool = False,
) -> NearestWords:
    """Single words: those of the vocabulary whose vectors are nearest, analogies, and a map.

    An analogy is a text of three words, "man king woman": what is to woman as king is to man?
    `analogy_list` is a file of analogies, or the name of a built-in corpus that has some
    (facts-en, facts-ko); `similarity` a file of pairs of words that people have judged.
    """
    run = Run.open(run, accept_recipe)
    reader, model = _text_model(run, checkpoint, device)
    return neighbours_of(
        reader,
        model,
        [words] if isinstance(words, str) else [*words],
        analogies=[analogies] if isinstance(analogies, str) else [*analogies],
        analogy_list=analogy_list,
        similarity=similarity,
    )


def score(
    run: str | Path | Run,
    source: Given,
    target: str | Iterable[str],
    *,
    overrides: Sequence[str] = (),
    checkpoint: str | None = None,
    device: str | None = None,
    accept_recipe: bool = False,
) -> dict[str, Any]:
    """log P(target | source), in total and token by token. A target given as a list is taken as
    exact tokens. `overrides` change the run's recipe, such as data.target_language=fr.

    For a language model the source is the beginning of a text, and the target its continuation.
    """
    run = Run.open(run, accept_recipe)
    run = run.under(with_search(run.recipe, SearchOptions(overrides=tuple(overrides))))
    written = run.task.views.written
    if written is None:
        what = f"score needs a run that writes texts, not one of {run.recipe.task}"
        raise CheckpointError(
            what, where=str(run.folder), hint="evaluate and predict serve every task"
        )
    model = run.predictor(checkpoint, device)
    [given] = read_inputs(run.task, [source])
    wanted = _text_or_tokens(target)
    ids, scores = written.score_text(model, given.text, wanted)
    read = wanted if isinstance(wanted, str) else ""
    unknown = words_not_known(run.recipe.model, run.tokenizers, given.text, read)
    return {
        "source": given.text,
        "target": written.tokenizer.decode(ids),
        "score": sum(scores),
        "tokens": written.tokenizer.tokens(ids),
        "token_scores": scores,
        **({"unknown": unknown} if unknown else {}),
    }


def _text_or_tokens(target: str | Iterable[str]) -> str | list[str]:
    """The target of `score`; what is neither a text nor a list of tokens is refused."""
    if isinstance(target, str):
        return target
    if isinstance(target, Iterable):
        tokens = [*target]
        if all(isinstance(token, str) for token in tokens):
            return tokens
    what = f"{short(repr(target))} is not a text"
    raise DecodeError(what, where="target", hint="give a text, or a list of tokens")


def evaluate(  # noqa: PLR0913  (one keyword per option, as in the command)
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

    If the task has an answer for each example, all are written to the file `predictions`, and the
    wrong ones to another file beside it. Default: in the run folder, predictions.jsonl or, on
    files or another split than `evaluate` chooses by itself, predictions.NAME.jsonl;
    predictions.NAME.file.jsonl if a file has a split's name. Files that were named and exist need
    `overwrite`; with `predictions=False` none is written and the result has the predictions. The
    engine `ray` shares the examples out to a Ray cluster: that at `address`, or one on this
    machine. With `baseline`, the result has the metrics of a linear model of scikit-learn, trained
    on the run's training rows, under that key.
    """
    chosen_workers("auto", engine, address)
    run = Run.open(run, accept_recipe)
    if engine == "ray" and not run.task.metrics.shares_examples:
        what = f"the examples of {run.recipe.task} cannot be shared out"
        raise DecodeError(what, where="--engine", hint="leave it out")
    names = [str(name) for name in ([files] if isinstance(files, str | Path) else files)]
    options = SearchOptions(beam, 1, length_penalty, overrides=tuple(as_list(overrides)))
    run = run.under(with_search(run.recipe, options))
    examples = examples_of(run, split, names)
    written = prediction_files(run, predictions, split, names)
    if written is not None:
        written.check([*names, *run.recipe_values], overwrite=overwrite)
    beside = baseline_metrics(run, examples) if baseline else {}
    done = summed(progress, len(examples))
    if engine == "ray":
        loaded = (
            run.loaded
            if isinstance(run, Loaded)
            else load_model(run, checkpoint or "best", "cpu", "fp32")
        )
        metrics = evaluate_over_cluster(run, loaded, device or "auto", examples, address, done)
    else:
        metrics = run.task.metrics.evaluate(run.predictor(checkpoint, device), examples, done)
    description = measured_on(run, split, names, examples)
    if checkpoint in (None, "best"):
        description = noted(description, later_step(run))
    if unknown := description.pop(UNKNOWN, None):
        description = noted(description, {"note": unknown})
    metrics = noted(description, noted(metrics, beside))
    return Metrics(metrics if written is None else written.write(metrics))


class TrainedRun(Run):
    """A run with the verbs as methods, as `train` returns it. The first of them loads the model,
    which is kept."""

    def __init__(self, folder: str | Path, *, checked: bool = True) -> None:
        super().__init__(folder, checked=checked)
        self._kept_models: dict[tuple[Path, str], nn.Module] = {}
        """At most one, by its checkpoint and device; also for this run under other recipes."""

    def load_model(self, checkpoint: str | None = None, device: str | None = "cpu") -> nn.Module:
        folder = self.checkpoint(checkpoint or "best")
        device = device or "auto"
        if (folder, device) not in self._kept_models:
            self._kept_models.clear()
            self._kept_models[folder, device] = super().load_model(folder.name, device)
        return self._kept_models[folder, device]

    @property
    def classes_(self) -> list[str]:
        """The names of the classes, in the order of the columns of `predict_proba`."""
        return classes_of(self)

    predict = predict
    predict_proba = predict_proba
    features = features
    vectors = vectors
    score = score
    evaluate = evaluate
    explain = explain


class Loaded(TrainedRun):
    """A run whose model stays loaded. Its methods are the functions of this module, with this run
    as the first argument."""

    def __init__(self, run: Run, loaded: LoadedModel) -> None:
        super().__init__(run.folder, checked=False)
        self.accept_recipe = run.accept_recipe
        self.stored_recipe = run.stored_recipe
        self.recipe = run.recipe
        self.tokenizers = run.tokenizers
        self._task = run.task
        self.loaded = loaded

    def load_model(self, checkpoint: str | None = None, device: str | None = None) -> nn.Module:
        """The model; another checkpoint or device than what it was loaded with is refused."""
        model = self.loaded.model
        if isinstance(model, ExternalModel):
            what = "int8, which CTranslate2 computes, can only predict, evaluate and score"
            raise DecodeError(what, where="precision", hint="load the run with fp32")
        self.loaded.check(checkpoint, device)
        return model

    def predictor(self, checkpoint: str | None = None, device: str | None = None) -> AnyModel:
        """The model, or with int8 that of CTranslate2; another checkpoint or device than at first
        is refused."""
        self.loaded.check(checkpoint, device)
        return self.loaded.model

    def copy(self) -> Loaded:
        """This run with a model of its own, for another thread."""
        other = copy.copy(self)
        other.loaded = self.loaded.copy()
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
    return Loaded(run, load_model(run, checkpoint, device, precision))
