"""The training loop: `Trainer.train`. Each of the named steps is decided in a file of its own."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, broadcast_object_list, gather_object
from torch import Tensor, nn

from regard.data.batches import AnyBatch
from regard.data.epochs import Position, Stream
from regard.data.prepare import Prepared
from regard.engine.graphs import CapturedUpdate
from regard.engine.machine import collecting_new_objects
from regard.engine.prefetch import ahead
from regard.engine.products import forget_packed_weights
from regard.objectives.cross_entropy import perplexity
from regard.recipes.resolved import ResolvedRecipe, with_training
from regard.runs import Run
from regard.runs.checkpoints import (
    load_training,
    load_weights,
    reading_state,
    save_checkpoint,
    step_name,
)
from regard.runs.metrics_log import MetricsLog
from regard.runs.weights import put_weights, stored_weights
from regard.tasks import Task
from regard.training.averaging import MovingAverage, model_of_mean_weights
from regard.training.batch_shapes import batch_shapes
from regard.training.compiling import compile_objective
from regard.training.display import Display
from regard.training.gradients import Gradients, captures_steps
from regard.training.interrupts import Interrupted, stop_requests
from regard.training.log import Event, Write, metrics_writer
from regard.training.optimiser import (
    Plateau,
    build_optimiser,
    clip_gradients,
    schedule_factor,
    updates_directly,
)
from regard.training.precision import forward_context
from regard.training.processes import (
    batches_at_once,
    plan_parts,
    put_parts,
    recompute_blocks,
    refuse_average_of_parts,
    restore_optimiser,
    sum_over_processes,
    whole,
)
from regard.training.progress import TrainingProgress
from regard.training.random_state import random_state, restore_random_state
from regard.training.ranking import RankedCheckpoint, Ranking
from regard.training.resume import (
    refuse_changed_data,
    refuse_fewer_steps,
    resumed_batches_per_step,
)
from regard.training.step_losses import StepLoss, StepLosses
from regard.training.timetable import Timetable
from regard.training.validation import validate, whole_model
from regard.training.watching import Watch

BATCHES_AHEAD = 8
"""Batches that are prepared while the model computes."""


class Trainer:
    """One training: model, optimiser, data, and the run folder."""

    def __init__(
        self,
        run: Run,
        recipe: ResolvedRecipe,
        task: Task,
        data: Prepared[Any],
        model: nn.Module,
        accelerator: Accelerator,
        display: Display,
        watch: Watch | None = None,
    ) -> None:
        config = recipe.training
        self.run = run
        self.resolved = recipe
        self.data = data
        self.accelerator = accelerator
        self.display = display
        self.watch = watch
        self.task = task
        self.progress = TrainingProgress()
        self.plateau = Plateau(config)
        self.losses = StepLosses(accelerator, data.train, run)
        self.ranking = Ranking(
            config.best, config.best in self.task.higher_is_better, config.keep_best
        )
        refuse_average_of_parts(config, accelerator)
        self.average = (
            None if config.ema is None else MovingAverage(model, config.ema, accelerator.device)
        )
        self.model = model.to(accelerator.device)
        if config.checkpoint_activations:
            recompute_blocks(self.model)
        objective = self.task.objective(self.model)
        self.carries = bool(objective.carries)
        self.is_cross_entropy = bool(objective.is_cross_entropy)
        self.batches_at_once = batches_at_once(
            data.train, config, accelerator, carries=self.carries
        )
        self._prepare(objective)
        self.timetable = Timetable(
            config,
            epoch_batches=self.stream().epoch_batches(0),
            batches_per_step=config.accumulate * self.batches_at_once,
            accelerator=accelerator,
            display=display,
        )

    def _prepare(self, objective: nn.Module) -> None:
        """Choose precision, shapes, compilation, distribution and captured steps, in this order."""
        config = self.resolved.training
        accelerator = self.accelerator
        captures = captures_steps(accelerator)
        forward = forward_context(objective, accelerator, compiled=config.compile)
        self.shapes = batch_shapes(
            self.resolved, self.task, self.data.train, accelerator, captures=captures
        )
        if config.compile:
            compile_objective(objective, dynamic=self.shapes.packed is None)
        if accelerator.distributed_type == DistributedType.FSDP:
            plan_parts(accelerator, objective, self.model)
        optimiser = build_optimiser(self.model, config)
        if updates_directly(accelerator):
            # objective and model are on the device: to find out if parts of them are elsewhere,
            # accelerate would import torch's distributed tensors, which takes a second
            self.objective = accelerator.prepare(
                objective.to(accelerator.device), device_placement=[False]
            )
            self.optimiser = optimiser
        else:
            self.objective, self.optimiser = accelerator.prepare(objective, optimiser)
        self.weights = [*self.objective.parameters()]
        self.gradients = Gradients(
            self.objective, self.optimiser, accelerator, forward, carries=self.carries
        )
        if captures and self.shapes.repeat:
            self.gradients.capture(self.model.parameters())
        self.captured_update: CapturedUpdate | None = None
        if self.gradients.captured and CapturedUpdate.applies(optimiser, self.model):
            self.captured_update = CapturedUpdate(self.weights, optimiser, config.clip)

    def use_compiled(self, *, compiled: bool) -> None:
        """Compile the objective after all, or no longer; before the first step."""
        self.resolved = with_training(
            self.resolved, self.resolved.training.model_copy(update={"compile": compiled})
        )
        self.timetable.config = self.timetable.config.model_copy(update={"compile": compiled})
        if compiled:
            compile_objective(self.objective, dynamic=self.shapes.packed is None)
        else:
            self.objective._compiled_call_impl = None
        forward = forward_context(self.objective, self.accelerator, compiled=compiled)
        self.gradients.compute_with(forward, self.model.parameters())

    @property
    def is_main(self) -> bool:
        return bool(self.accelerator.is_main_process)

    @property
    def recipe(self) -> ResolvedRecipe:
        """The recipe, with the length of the warm-up."""
        return self.resolved.model_copy(update={"training": self.timetable.config})

    @property
    def used_model(self) -> nn.Module:
        """The model to validate and to use."""
        return self.model if self.average is None else self.average.model

    # The loop

    def train(self) -> None:
        """Update until the last step; log, validate and save when due."""
        progress = self.progress
        timetable = self.timetable
        log = self._open_log()
        with (
            collecting_new_objects(),
            closing(self.batches()) as batches,
            stop_requests() as stop,
            metrics_writer(self.run, progress.step, log) as write,
        ):
            timetable.log_plans(write)
            self.look_at_watched()
            while progress.step < timetable.steps and not progress.stopped:
                self.timed_update(batches)
                self.look_at_watched()
                if timetable.is_logged(progress.step) and progress.tokens:
                    write(self.finish_log_line())
                started = time.perf_counter()
                saved = timetable.is_saved(progress.step)
                validated = timetable.is_validated(progress.step)
                if validated:
                    line, seconds = self.validate_and_decide()
                    write(self.timing(seconds))
                    write(line)
                    timetable.replan(progress, seconds)
                    timetable.log_plans(write)
                    forget_packed_weights()
                # all processes stop at the same step
                stopping = sum_over_processes(self.accelerator, len(stop)) > 0
                if saved or stopping:
                    self.save(log, regular=saved)
                if validated:
                    timetable.add_validation(time.perf_counter() - started, progress)
                if stopping and progress.step < timetable.steps:
                    raise Interrupted
            self.finish(write)

    def timed_update(self, batches: Generator[tuple[AnyBatch, Position], None, None]) -> None:
        """One update with the next batches, and its time."""
        progress = self.progress
        started = time.perf_counter()
        self.update([next(batches) for _ in range(self.accumulate)])
        self.timetable.end_if_time_is_up(progress)
        self.losses.collect_if_due(progress, is_logged=self.timetable.is_logged(progress.step))
        seconds = time.perf_counter() - started
        progress.seconds += seconds
        self.timetable.add_step(seconds)

    def update(self, batches: Sequence[tuple[AnyBatch, Position]]) -> None:
        """Forward and backward passes, clipping, and the optimiser's step.

        Loss = sum over the tokens of the step * processes / tokens of all processes, whatever the
        accumulation. A step without any tokens, as of masked LM on text that is all `<unk>`,
        changes no weight.
        """
        progress = self.progress
        own = [batch for batch, _ in batches]
        self.set_learning_rate()
        tokens, sums_3 = self.step(own)
        progress.step += 1
        progress.position = batches[-1][1]
        if self.average is not None:
            self.average.move(self.model, progress.step)
        self.losses.add(StepLoss(progress.step, tokens, sums_3, own))

    def step(self, batches: Sequence[AnyBatch]) -> tuple[int, Tensor]:
        """Change the weights: the tokens of the step over all processes, and its loss, its plain
        loss and the norm of its gradient, [3]."""
        tokens = sum_over_processes(self.accelerator, sum(batch.tokens for batch in batches))
        if not self.objective.training:
            self.objective.train()
        sums_2 = self.gradients.add(batches, self.accelerator.num_processes / max(1, tokens))
        # batches that fill one shape get new gradients; those of many shapes, or several per step,
        # are added up where they are
        keep_memory = self.shapes.rounded or self.accumulate > 1
        if tokens and keep_memory and self.captured_update is not None:
            norm = self.captured_update()
            return tokens, torch.stack([*sums_2, norm])
        norm = torch.zeros_like(sums_2[0])
        if tokens:
            clip = self.resolved.training.clip
            norm = clip_gradients(self.weights, self.model, clip, self.accelerator)
            self.optimiser.step()
        self.gradients.clear(keep_memory=keep_memory)
        return tokens, torch.stack([*sums_2, norm])

    # Batches

    @property
    def accumulate(self) -> int:
        """Batches of a step that this process takes."""
        return self.timetable.batches_per_step // self.batches_at_once

    def stream(self) -> Stream:
        """The batches of this process from the current position on."""
        config = self.resolved.training
        processes = self.accelerator.num_processes
        return Stream(
            self.data.train,
            config.batch_tokens,
            config.seed,
            self.progress.position,
            fill=config.fill,
            rank=self.accelerator.process_index,
            world=processes,
            shared=self.carries and processes > 1,
        )

    def batches(self) -> Generator[tuple[AnyBatch, Position], None, None]:
        """The stream on the device, prepared ahead."""
        device = self.accelerator.device
        workers = self.resolved.data.workers
        return ahead(
            self.stream().jobs(),
            BATCHES_AHEAD,
            self.shapes.of,
            lambda batch: batch.to(device),
            workers=None if workers == "auto" else workers,
        )

    # The learning rate

    def set_learning_rate(self) -> None:
        factor = self.rate_after(self.progress.step, self.timetable.steps)
        for group in self.optimiser.param_groups:
            group["lr"] = self.resolved.training.learning_rate * factor * group.get("rate", 1.0)

    def rate_after(self, done: int, steps: int) -> float:
        """The factor of the highest learning rate in the step after `done`, in a training of so
        many steps."""
        return schedule_factor(self.timetable.config, done + 1, steps) * self.plateau.scale

    # The log

    def _open_log(self) -> MetricsLog | None:
        if not self.is_main:
            return None
        return MetricsLog(self.run.folder / "metrics.jsonl", self.progress.log_length)

    def finish_log_line(self) -> Event:
        """The line of the log on the steps since the line before. The sums of the next line begin at
        0."""
        progress = self.progress
        self.losses.collect(progress)
        seconds = max(progress.seconds, 1e-9)
        line: Event = {
            "event": "train",
            "step": progress.step,
            "epoch": progress.position.epoch,
            "loss": progress.loss_sum / progress.tokens,
        }
        if self.is_cross_entropy:
            line["perplexity"] = perplexity(progress.plain_sum / progress.tokens)
        line |= {
            "learning_rate": max(group["lr"] for group in self.optimiser.param_groups),
            "unit": self.task.unit,
            "tokens": progress.tokens,
            "tokens_per_second": progress.tokens / seconds,
            "seconds_per_step": seconds / (progress.step - progress.logged_step),
        }
        progress.begin_line()
        self.display.logged(
            line, self.timetable.steps, self.timetable.validation_seconds_left(progress.step)
        )
        return line

    # Validation

    def validate_and_decide(self) -> tuple[Event, float]:
        """Validate, rank the checkpoint that will be saved, and decide whether to stop early; the
        line of the log on it, and the seconds that it took."""
        progress = self.progress
        self.losses.collect(progress)
        started = time.perf_counter()
        line: Event = {"event": "validation", "step": progress.step, **self._metrics()}
        seconds = time.perf_counter() - started
        if not math.isfinite(line["loss"]):
            raise self.losses.divergence("validation loss", progress.step)
        before = progress.best_checkpoint
        checkpoint = self._ranked(line)
        self.plateau.add_validation(self.ranking.improves_metric(checkpoint, before))
        progress.best = self.ranking.with_checkpoint(progress.best, checkpoint)
        progress.waited = 0 if progress.best_checkpoint == checkpoint else progress.waited + 1
        progress.stopped = self.out_of_patience()
        self.display.validated(line, self.ranking.comment(checkpoint, before), seconds)
        if progress.stopped:
            self.display.say(f"stopped: {self.stop_reason}")
        return line, seconds

    def timing(self, seconds: float) -> Event:
        """The line of the log on the time of a validation; the validation's own has only
        metrics."""
        return {"event": "timing", "step": self.progress.step, "validation_seconds": seconds}

    def _metrics(self) -> dict[str, Any]:
        """The metrics of a validation, computed by the first process."""
        model = whole_model(self.used_model, self.task, self.accelerator, self.run.folder)
        metrics = [self._validate(model) if self.is_main else {}]
        computed: dict[str, Any] = broadcast_object_list(metrics)[0]
        return computed

    def _validate(self, model: nn.Module) -> dict[str, Any]:
        self.display.doing("validating", self.progress.step, self.timetable.steps)
        return self.gradients.in_memory(lambda: validate(model, self.task, self.data.validation))

    def look_at_watched(self) -> None:
        """Store what the model makes of `training.watch`, if that is due."""
        step = self.progress.step
        watch = self.watch
        if watch is None or not watch.is_due(step, self.timetable.steps):
            return
        model = whole_model(self.used_model, self.task, self.accelerator, self.run.folder)
        if self.is_main:
            self.gradients.in_memory(lambda: watch.look_at(model, step))
        forget_packed_weights()

    def _ranked(self, line: Event) -> RankedCheckpoint:
        return RankedCheckpoint(line[self.ranking.metric], self.progress.step, line["loss"])

    @property
    def stop_reason(self) -> str:
        """Why early stopping ended the training."""
        return f"{self.progress.waited} validations without a better {self.ranking.metric}"

    def out_of_patience(self) -> bool:
        patience = self.resolved.training.patience
        return patience is not None and self.progress.waited >= patience

    def finish(self, write: Write) -> None:
        """Average the last checkpoints if the recipe says so, and use the average if it validates
        better."""
        progress = self.progress
        folders = [self.run.checkpoints / step_name(step) for step in progress.recent]
        if self.resolved.training.average == 1 or not folders or not self.is_main:
            return
        model = model_of_mean_weights(self.task, folders, self.accelerator.device, self.run.folder)
        started = time.perf_counter()
        line: Event = {"event": "average", "step": progress.step, **self._validate(model)}
        seconds = time.perf_counter() - started
        before = progress.best_checkpoint
        comment = self.ranking.comment(self._ranked(line), before)
        self.display.say(f"average of the last {len(folders)} checkpoints:")
        self.display.validated(line, comment, seconds)
        # after the validation, which may set buffers of the model
        save_checkpoint(self.run.checkpoints / "average", stored_weights(model), self.facts())
        if self.ranking.improves(self._ranked(line), before):
            self.run.point("best", "average")
        write(line)

    # Checkpoints

    def save(self, log: MetricsLog | None, *, regular: bool) -> None:
        """Save a checkpoint for an exact resume, then point to the best one and to this one, then
        delete old ones. `regular` ones count among those that are averaged at the end."""
        progress = self.progress
        self.losses.collect(progress)
        weights = stored_weights(self.used_model)
        state = self._state()
        if self.accelerator.is_fsdp2:
            weights, state["optimiser"] = whole((weights, state["optimiser"]))
        if log is None:
            return
        if regular:
            progress.recent.append(progress.step)
        progress.recent = progress.recent[-self.resolved.training.average :]
        progress.log_length = log.length()
        progress.spent = self.timetable.spent
        save_checkpoint(
            self.run.checkpoints / step_name(progress.step),
            weights,
            self.facts() | {"log": {"bytes": progress.log_length, "checksum": log.checksum}},
            training_weights=None if self.average is None else stored_weights(self.model),
            training=state | {"progress": asdict(progress)},
        )
        self.tidy()

    def _state(self) -> dict[str, Any]:
        """All that an exact resume needs besides weights and progress. All processes must call
        it."""
        scaler = self.accelerator.scaler
        return {
            "optimiser": self.optimiser.state_dict(),
            "scaler": scaler.state_dict() if scaler else {},
            "random": gather_object([random_state()]),
            "plateau": self.plateau.state(),
            "fingerprints": self.data.fingerprints,
            "carry": self.gradients.whole_carry(),
            "group": self.timetable.batches_per_step,
        }

    def facts(self) -> dict[str, Any]:
        """What a checkpoint of this step stores as JSON, with the best checkpoints so far."""
        best = [
            {"step": checkpoint.step, self.ranking.metric: checkpoint.value}
            for checkpoint in self.progress.best
        ]
        return self.run.under(self.recipe).facts(self.progress.step, best)

    def tidy(self) -> None:
        """Point to the best checkpoint and to that of this step, and delete those that are no
        longer needed.

        The best is named first: what the last one knows of the best is never ahead of the file
        `best`.
        """
        progress = self.progress
        best = [checkpoint.step for checkpoint in progress.best]
        self.run.point("best", step_name(best[0] if best else progress.step))
        self.run.point("last", step_name(progress.step))
        needed = {progress.step, *best, *progress.recent}
        self.run.remove_all_but({step_name(step) for step in needed})

    def restore(self) -> bool:
        """Continue from the last checkpoint; False if there is none."""
        folder = self.run.resumable()
        if folder is None:
            return False
        weights, state = load_training(folder)
        # old runs have no fingerprints
        refuse_changed_data(self.run, state.get("fingerprints", {}), self.data.fingerprints)
        with reading_state(folder):
            self._take_state(state)
        refuse_fewer_steps(self.resolved.training, self.progress.step, self.timetable.steps)
        put_parts(self.model, weights, folder)
        if self.average is not None:
            put_weights(self.average.model, load_weights(folder), folder)
        if self.is_main:
            self.tidy()
        return True

    def _take_state(self, state: dict[str, Any]) -> None:
        """Continue with what `save` stored besides the weights."""
        minutes = self.resolved.training.minutes
        self.progress = TrainingProgress.of(state["progress"])
        if minutes is None or minutes != self.run.recipe.training.minutes:
            self.progress.planned_steps = 0  # the rest is planned anew
        if minutes != self.run.recipe.training.minutes:
            self.progress.planned_every = 0
        stream = self.stream()
        position = self.progress.position
        if position.index not in range(stream.epoch_batches(position.epoch)):
            raise ValueError("there is no such batch")
        stored = int(state.get("group", self.timetable.batches_per_step))
        batches = resumed_batches_per_step(stored, self.batches_at_once, self.accelerator)
        self.timetable.plan(batches, self.progress)
        self.timetable.measured.add_validation(self.progress.validation_seconds)
        restore_optimiser(self.optimiser, state["optimiser"])
        if self.accelerator.scaler:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        self.plateau.restore(state["plateau"])
        own_rows = stream.rows(position.epoch) if stream.shared else None
        self.gradients.restore_carry(state.get("carry"), own_rows)
        self.progress.stopped = self.out_of_patience()
        restore_random_state(state["random"], self.accelerator.process_index)
