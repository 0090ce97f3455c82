"""`train`: from a recipe to a run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from regard.config import Tree
from regard.data.prepare import Prepared
from regard.data.store import verifying
from regard.engine import check_environment, plain
from regard.engine.machine import keep_memory
from regard.errors import CheckpointError, RegardError
from regard.models.base import count_parameters
from regard.recipes.loading import load_recipe, load_tree
from regard.recipes.recipe import leaves
from regard.recipes.resolved import ResolvedRecipe, with_training
from regard.recipes.resuming import with_defaults_of_run
from regard.recipes.switching import switched_model
from regard.recipes.training_length import replaced_length_notes
from regard.runs import Run
from regard.runs.folder import locked
from regard.runs.metrics_log import LOG_FILE, damage_of_log
from regard.tasks import TASKS, Task
from regard.training.accelerator import make_accelerator
from regard.training.compile_trial import settle_compile, tries_compile
from regard.training.display import Display
from regard.training.initial_weights import set_initial_weights
from regard.training.interrupts import Interrupted
from regard.training.loop import Trainer
from regard.training.notes import (
    budget_note,
    compile_notes,
    fitting_note,
    length_notes,
    longer_training_note,
    resume_notes,
    switch_notes,
)
from regard.training.out_of_memory import (
    explained_out_of_memory,
    fitting_after_failure,
    with_fitting_batches,
)
from regard.training.pace import Pace, measure_pace
from regard.training.plausibility import warnings_for
from regard.training.processes import naming_lost_processes, refuse_unlike
from regard.training.resolve import resolve, trains_plainly
from regard.training.resume import create_run, refuse_other_recipe, run_to_resume
from regard.training.size import refuse_too_large
from regard.training.threads import choose_threads, computing_with
from regard.training.time_limit import TimeLimit
from regard.training.watching import Look, Watch

FALLING_LOSS = 0.995
"""A last validation loss below this share of the lowest one before was still falling."""


def train(
    recipe: str | Path | Tree,
    overrides: Sequence[str] = (),
    *,
    out: str | Path,
    resume: bool = False,
    accept_recipe: bool = False,
    quiet: bool = False,
    look: Look | None = None,
) -> Run:
    """Train the model of a recipe into the run folder `out`; with `resume`, continue from its last
    checkpoint. `look` says what a model makes of `training.watch`.

    A run whose recipe.yaml was changed since is not resumed, unless `accept_recipe`.
    """
    started = time.monotonic()
    check_environment()
    folder = Path(out)
    given, base = load_recipe(recipe, overrides)
    TASKS[given.task].check_recipe(given)
    existing = run_to_resume(folder, resume, accept_recipe)
    last = existing.resumable() if existing else None
    if existing and last:
        existing.check_unchanged(last)
    if existing:
        given = with_defaults_of_run(given, load_tree(recipe, overrides)[0], existing.recipe)
    switch = None if existing else switched_model(recipe, overrides)
    accelerator = make_accelerator(given.training)
    shares = accelerator.num_processes if accelerator.is_fsdp2 else 1
    refuse_too_large(given, accelerator.device, shares=shares)
    display = Display(quiet=quiet or not accelerator.is_main_process)
    several = accelerator.num_processes > 1
    as_written = plain() if trains_plainly(given.training) else nullcontext()
    with naming_lost_processes(accelerator) if several else nullcontext(), display, as_written:
        if resume and not existing:
            display.say(f"{folder}: there is no run to resume, so a new one begins")
        display.say(*replaced_length_notes(recipe, overrides))
        first = accelerator.is_local_main_process
        with accelerator.local_main_process_first(), verifying() if first else nullcontext():
            tokenizers = existing.tokenizers if existing else None
            data = TASKS[given.task].prepare(given, base, tokenizers, display.doing)
        resolved = resolve(given, base, data, accelerator.device, existing)
        tries = not existing and tries_compile(given.training, resolved.training, accelerator)
        if tries:
            training = resolved.training.model_copy(update={"compile": False})
            resolved = with_training(resolved, training)
        else:
            display.say(*compile_notes(given.training, resolved.training, accelerator.device))
        task = TASKS[resolved.task](resolved, data.tokenizers)
        task.check(data)
        if existing:
            refuse_other_recipe(existing, resolved)
        _expect_same_training(accelerator, resolved, data, last)
        vocabularies = [data.tokenizers[name].size for name in task.vocabularies]
        refuse_too_large(resolved, accelerator.device, vocabularies, shares=shares)
        # the same initial weights in every process but different dropout
        with explained_out_of_memory(resolved):
            torch.manual_seed(resolved.training.seed)
            model: nn.Module = task.network.build()
            torch.manual_seed(resolved.training.seed + accelerator.process_index)
        if last is None:
            task.network.set_first_weights(model, data.train)
            display.say(*set_initial_weights(model, task, given, base))
        if switch:
            display.say(*switch_notes(switch, task))
        if existing is None and given.training.batch_tokens == "auto":
            before = resolved
            resolved = with_fitting_batches(resolved, task, data.train, model, accelerator)
            display.say(*fitting_note(before, resolved))
        threads = choose_threads(existing, resolved, task, data, model, accelerator)
        lock = locked(folder) if accelerator.is_main_process else nullcontext()
        measure = partial(fitting_after_failure, resolved, task, data.train, model, accelerator)
        with lock, explained_out_of_memory(resolved, measure), computing_with(threads):
            run = existing or create_run(folder, resolved, data, accelerator, threads)
            if accelerator.device.type == "cpu":
                keep_memory()
            pace = _pace_of(run, resolved, task, data, model, accelerator)
            text = resolved.training.watch
            watch = Watch(run, text, look) if text and look else None
            trainer = Trainer(run, resolved, task, data, model, accelerator, display, watch)
            _train(trainer, pace, started, tries=tries)
    return Run(folder) if accelerator.is_main_process else run


def _expect_same_training(
    accelerator: Accelerator, recipe: ResolvedRecipe, data: Prepared[Any], resumed: Path | None
) -> None:
    """Refuse processes that differ in recipe, data, tokenizer or checkpoint."""
    if accelerator.num_processes == 1:
        return
    facts: dict[str, Any] = {f"{name} data": number for name, number in data.fingerprints.items()}
    facts["tokenizer"] = data.tokenizers.fingerprint
    refuse_unlike(
        accelerator, leaves(recipe.model_dump()) | facts | {"--resume": resumed and resumed.name}
    )


def _pace_of(
    run: Run,
    recipe: ResolvedRecipe,
    task: Task,
    data: Prepared[Any],
    model: nn.Module,
    accelerator: Accelerator,
) -> Pace:
    """The measured pace if a time limit is to be planned by it; else 0."""
    minutes = recipe.training.minutes
    if minutes is not None and (run.resumable() is None or run.recipe.training.minutes != minutes):
        return measure_pace(recipe, task, data, model, accelerator, 60 * minutes)
    return Pace()


def _train(trainer: Trainer, pace: Pace, started: float, *, tries: bool) -> None:
    """Train a model into its run folder, from the last checkpoint on if there is one; `tries`
    whether torch.compile is worth its time."""
    run = trainer.run
    display = trainer.display
    training = trainer.recipe.training
    if tries:
        for sentence in settle_compile(trainer):
            display.say(sentence)
    resumed = trainer.restore()
    if training.minutes is not None:
        limit = TimeLimit(training, pace, started, trainer.progress)
        trainer.timetable.keep_time(limit, trainer.progress)
    _announce(trainer, resumed=resumed)
    # with the length of the warm-up
    if trainer.accelerator.is_main_process and run.recipe != trainer.recipe:
        run.store_recipe(trainer.recipe)
    with _noting_how_it_ended(trainer):
        trainer.train()
    _report_end(trainer)


def _announce(trainer: Trainer, *, resumed: bool) -> None:
    """Say what begins, and what the user should know of it."""
    recipe = trainer.recipe
    data = trainer.data
    display = trainer.display
    accelerator = trainer.accelerator
    done = trainer.progress.step
    steps = trainer.timetable.steps
    display.say(
        *warnings_for(recipe, trainer.task, data),
        *data.report.sentences(),
        *length_notes(recipe.training, steps),
        *budget_note(recipe.training, data.train),
    )
    if resumed:
        rate = trainer.rate_after(done, steps)
        display.say(*resume_notes(trainer.run.recipe.training, recipe.training, steps, rate))
        if damage := damage_of_log(trainer.run.folder / LOG_FILE):
            display.say(f"metrics.jsonl: {damage}; the training is not, and continues")
    device = f"{accelerator.device}{' (FSDP2)' if accelerator.is_fsdp2 else ''}"
    display.say(
        f"{'resuming' if resumed else 'training'} {recipe.model.kind}, "
        f"{count_parameters(trainer.model):,} parameters, "
        f"{len(data.train):,} examples, step {done:,} of {steps:,}, {device}, "
        f"{accelerator.num_processes} process{'es' if accelerator.num_processes > 1 else ''}"
    )
    if trainer.progress.stopped:
        display.say(
            f"it was stopped early: {trainer.stop_reason}; a larger training.patience continues it"
        )


@contextmanager
def _noting_how_it_ended(trainer: Trainer) -> Iterator[None]:
    """Say that an interrupted training is saved; note the process of an error, which others may
    not have."""
    try:
        yield
    except Interrupted:
        saved = f"interrupted and saved at step {trainer.progress.step:,}"
        trainer.display.say(f"{saved}; the same command with --resume continues it")
        raise
    except RegardError as error:
        error.add_note(f"in process {trainer.accelerator.process_index}")
        raise


def _report_end(trainer: Trainer) -> None:
    """Say that the training is done, and whether a longer one would learn more."""
    run = trainer.run
    losses = _validation_losses(run)
    still_falling = len(losses) > 1 and losses[-1] <= FALLING_LOSS * min(losses[:-1])
    if still_falling and not trainer.progress.stopped:
        steps = trainer.timetable.steps
        rate = trainer.rate_after(steps, 2 * steps)
        trainer.display.say(longer_training_note(trainer.recipe.training, steps, rate))
    trainer.display.say(f"done: {run.folder}")


def _validation_losses(run: Run) -> list[float]:
    """The losses in the log; none if its beginning is damaged, which does not fail a training that
    is complete."""
    try:
        return [line["loss"] for line in run.events() if line["event"] == "validation"]
    except CheckpointError:
        return []
