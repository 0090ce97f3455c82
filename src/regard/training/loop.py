"""The training loop, and everything it is made of."""

from __future__ import annotations

import copy
import math
import time
from contextlib import closing, nullcontext
from dataclasses import asdict
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import Tensor

from regard.data.batch import AnyBatch, TextBatch
from regard.data.batches import Position, Stream, ahead
from regard.data.prepare import Prepared
from regard.errors import CheckpointError, ConfigError, RegardError
from regard.models import Generator
from regard.objectives.language_model import CarriedNextToken, first_rows, moved
from regard.recipes.recipe import AnyRecipe
from regard.runs import Run
from regard.runs.checkpoints import (
    Checkpoint,
    average_weights,
    load_training,
    load_weights,
    save_checkpoint,
    step_name,
)
from regard.runs.run import MetricsLog, put_weights, stored_weights
from regard.tasks import TASKS
from regard.tasks.metrics import perplexity
from regard.training.display import Display
from regard.training.half_weights import HalfWeights
from regard.training.optimiser import build_optimiser, move_average
from regard.training.progress import Progress, Ranked, random_state, restore_random_state, total_steps
from regard.training.schedule import Plateau, schedule_factor
from regard.training.tracking import asked_to_stop, tracker
from regard.training.validation import validate

AHEAD = 8
"""Batches that are prepared while the device works."""
SETTLE_EVERY = 10
"""Steps after which losses are fetched from a GPU; on a CPU they are there at once."""


class Interrupted(Exception):  # noqa: N818 (it is no error)
    """The user pressed Ctrl-C; the run was saved first."""


class Trainer:
    """One training: model, optimiser, data, and the folder it is written to."""

    def __init__(
        self,
        run: Run,
        recipe: AnyRecipe,
        data: Prepared[Any],
        model: Generator,
        accelerator: Accelerator,
        display: Display,
    ) -> None:
        self.run, self.recipe, self.data, self.accelerator, self.display = run, recipe, data, accelerator, display
        self.config = recipe.training
        self.task = TASKS[recipe.task](recipe, data.tokenizers)
        assert isinstance(self.config.batch_tokens, int)
        self.average = copy.deepcopy(model).requires_grad_(False).to(accelerator.device) if self.config.ema else None
        self.model = model.to(accelerator.device)
        objective = self.task.objective(self.model)
        self.carries = isinstance(objective, CarriedNextToken)
        if self.carries and accelerator.num_processes > 1:
            what = "streams are read in one process, this training has several"
            raise ConfigError(what, where="data.blocks", hint="set it to documents, or train in one process")
        self.carry: Any = None
        self.halves = None if self.config.compile else HalfWeights.where_they_pay(objective, accelerator)
        if self.config.compile:
            objective.compile(dynamic=True)
        self.objective, self.optimiser = accelerator.prepare(objective, build_optimiser(self.model, self.config))
        self.plateau = Plateau(self.config)
        self.progress = Progress()
        self.unsettled: list[tuple[int, int, Tensor, list[AnyBatch]]] = []
        self.group = self.config.accumulate * accelerator.num_processes
        batches = self.stream().epoch_batches(0)
        self.steps = total_steps(self.config.steps, self.config.epochs, batches, self.group)
        self.validate_every = self.config.validate_every or max(1, batches // self.group)
        self.checkpoint_every = self.config.checkpoint_every or self.validate_every

    def stream(self) -> Stream:
        accelerator = self.accelerator
        assert isinstance(self.config.batch_tokens, int)
        return Stream(
            self.data.train,
            self.config.batch_tokens,
            self.config.seed,
            self.progress.position,
            rank=accelerator.process_index,
            world=accelerator.num_processes,
        )

    def train(self) -> None:
        """Update until the end; log, validate and save on the way."""
        progress = self.progress
        log = MetricsLog(self.run.folder / "metrics.jsonl", progress.log_length) if self.leads else None
        batches = ahead(self.stream(), AHEAD, move=lambda batch: batch.to(self.accelerator.device))
        with closing(batches), asked_to_stop() as stop, tracker(self.run, self.progress.step, log) as write:
            while progress.step < self.steps and not progress.stopped:
                started = time.perf_counter()
                self.update([next(batches) for _ in range(self.config.accumulate)])
                self.settle(progress.step % SETTLE_EVERY == 0)
                progress.seconds += time.perf_counter() - started
                if progress.step % self.config.log_every == 0 or progress.step == self.steps:
                    write(self.log_line())
                validated = progress.step % self.validate_every == 0 or progress.step == self.steps
                if validated:
                    write(self.validation_line())
                due = validated or progress.step % self.checkpoint_every == 0
                stopping = self.over_processes(len(stop)) > 0  # in one process, then all stop at the same step
                if due or stopping:
                    self.save(log, due)
                if stopping and progress.step < self.steps:
                    raise Interrupted
            self.finish(write)

    def update(self, batches: list[tuple[AnyBatch, Position]]) -> None:
        """One step: loss = sum over its tokens * processes / tokens of all processes, whatever the accumulation."""
        progress, accelerator = self.progress, self.accelerator
        factor = schedule_factor(self.config, progress.step + 1, self.steps) * self.plateau.scale
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.learning_rate * factor * group.get("rate", 1.0)
        tokens = self.over_processes(sum(batch.tokens for batch, _ in batches))
        losses = []
        self.objective.train()
        for number, (batch, _) in enumerate(batches, 1):
            with nullcontext() if number == len(batches) else accelerator.no_sync(self.objective):
                with self.halves.in_place() if self.halves else nullcontext():
                    loss_2 = self.sums(batch)
                accelerator.backward(loss_2[0] * (accelerator.num_processes / tokens))
            losses.append(loss_2.detach())
        norm = self.clip()
        self.optimiser.step()
        self.optimiser.zero_grad()
        progress.step += 1
        progress.position = batches[-1][1]
        if self.average is not None and self.config.ema:
            move_average(self.average, self.model, self.config.ema, progress.step)
        sums_3 = torch.stack([*torch.stack(losses).sum(0), norm])
        self.unsettled.append((progress.step, tokens, sums_3, [batch for batch, _ in batches]))

    def sums(self, batch: AnyBatch) -> Tensor:
        """The objective's two sums; where the text goes on from the batch before, so does the model's state."""
        if not self.carries:
            sums_2: Tensor = self.objective(batch.unnamed())
            return sums_2
        assert isinstance(batch, TextBatch)
        carry = first_rows(self.carry, len(batch.text)) if batch.carries else None
        sums_2, self.carry = self.objective(batch.unnamed(), carry)
        return sums_2

    def clip(self) -> Any:
        """Shorten the gradient where it is longer than `training.clip`; a model may do so part by part."""
        limit = self.config.clip or math.inf
        by_parts = getattr(self.model, "clip_gradients", None)
        norm = self.accelerator.clip_grad_norm_(self.model.parameters(), limit if by_parts is None else math.inf)
        if by_parts is not None:
            by_parts(limit)
        return norm

    def over_processes(self, count: int) -> int:
        if self.accelerator.num_processes == 1:
            return count
        return int(self.accelerator.reduce(torch.tensor(count, device=self.accelerator.device)))

    def settle(self, now: bool = True) -> None:
        """Fetch losses that are due and add them up; one that is not a number stops before it reaches a checkpoint.

        Nor does a gradient that is not: it spoils the weights, though only the next loss would show it. With fp16 the
        scaler passes over such a step.
        """
        if not self.unsettled or not (now or self.accelerator.device.type == "cpu"):
            return
        sums = self.accelerator.reduce(torch.stack([sums_3 for _, _, sums_3, _ in self.unsettled])).tolist()
        for (step, tokens, _, batches), (smoothed, plain, norm) in zip(self.unsettled, sums, strict=True):
            if not math.isfinite(smoothed):
                raise self.not_a_number("loss", step, batches)
            if not (math.isfinite(norm) or self.accelerator.scaler):
                raise self.not_a_number("gradient", step, batches)
            self.progress.loss_sum += smoothed
            self.progress.plain_sum += plain
            self.progress.tokens += tokens
        self.unsettled.clear()

    def not_a_number(self, what: str, step: int, batches: list[AnyBatch]) -> RegardError:
        examples = [example for batch in batches for example in batch.examples]
        places = ", ".join([*(self.data.train.where(one) for one in examples[:3]), *(["..."] if examples[3:] else [])])
        named = f", first in a batch of {len(examples)} examples: {places}" if examples else ""
        last = self.run.pointer("last")
        kept = f"; the last checkpoint, {last.name}, is whole" if last else ""
        return RegardError(
            f"the {what} is not a number any more{named}",
            where=f"step {step}",
            hint=f"lower training.learning_rate, raise training.warmup or use precision bf16 or fp32{kept}",
        )

    @property
    def leads(self) -> bool:
        return bool(self.accelerator.is_main_process)

    @property
    def usable(self) -> Generator:
        """The model to validate and to use: the average, where there is one."""
        return self.model if self.average is None else self.average

    def log_line(self) -> dict[str, Any]:
        self.settle()
        progress = self.progress
        seconds = max(progress.seconds, 1e-9)
        line = {
            "event": "train",
            "step": progress.step,
            "epoch": progress.position.epoch,
            "loss": progress.loss_sum / progress.tokens,
            "perplexity": perplexity(progress.plain_sum / progress.tokens),
            "learning_rate": max(group["lr"] for group in self.optimiser.param_groups),
            "unit": self.task.unit,
            "tokens": progress.tokens,
            "tokens_per_second": progress.tokens / seconds,
            "seconds_per_step": seconds / (progress.step - progress.logged_step),
        }
        progress.logged_step, progress.seconds = progress.step, 0.0
        progress.loss_sum, progress.plain_sum, progress.tokens = 0.0, 0.0, 0
        self.display.logged(line, self.steps, self.task.unit)
        return line

    def validation_line(self) -> dict[str, Any]:
        self.settle()
        progress = self.progress
        found = [validate(self.task, self.usable, self.data.validation) if self.leads else {}]
        line = {"event": "validation", "step": progress.step, **broadcast_object_list(found)[0]}
        if not math.isfinite(line["loss"]):
            raise self.not_a_number("validation loss", progress.step, [])
        entry = Ranked(line[self.config.best], progress.step, line["loss"])
        tied = bool(progress.best) and entry.value == progress.best[0].value
        self.plateau.heard(not progress.best or self.cost(entry.value) < self.cost(progress.best[0].value))
        best = self.ranks(entry)
        progress.waited = 0 if best else progress.waited + 1
        progress.stopped = self.out_of_patience()
        self.display.validated(line, self.standing(best, tied))
        if progress.stopped:
            self.display.say(f"stopped: {self.reason}")
        return line

    def standing(self, best: bool, tied: bool) -> str:
        """What to say of a checkpoint that is the best; the loss decides between equals."""
        if not best:
            return ""
        return f"as good in {self.config.best}, lower loss: best so far" if tied else "best so far"

    def cost(self, value: float) -> float:
        """The metric that decides, as something to make small."""
        return -value if self.task.higher_is_better[self.config.best] else value

    @property
    def reason(self) -> str:
        """Why a training stopped by itself."""
        return f"{self.progress.waited} validations without a better {self.config.best}"

    def out_of_patience(self) -> bool:
        return self.config.patience is not None and self.progress.waited >= self.config.patience

    def order(self, entry: Ranked) -> tuple[float, float]:
        """What sorts checkpoints, best first: the metric, and among equals the loss; then the earlier one is first."""
        return self.cost(entry.value), entry.loss

    def ranks(self, entry: Ranked) -> bool:
        """Enter a checkpoint among the best; whether it is the best of all."""
        ranked = sorted([*self.progress.best, entry], key=self.order)
        self.progress.best = ranked[: self.config.keep_best]
        return ranked[0] == entry

    def save(self, log: MetricsLog | None, due: bool) -> None:
        """A checkpoint that training can go on from bit by bit, then the pointers to it, then a tidy folder."""
        self.settle()
        if log is None:
            return
        progress = self.progress
        progress.recent = [*progress.recent, *([progress.step] if due else [])][-self.config.average :]
        progress.log_length = log.length()
        name = step_name(progress.step)
        own = stored_weights(self.model)
        checkpoint = Checkpoint(
            weights=stored_weights(self.usable),
            training_weights=None if self.average is None else own,
            training={
                "optimiser": self.optimiser.state_dict(),
                "scaler": self.accelerator.scaler.state_dict() if self.accelerator.scaler else {},
                "random": random_state(),
                "plateau": self.plateau.state(),
                "data": self.data.train.fingerprint(),
                "progress": asdict(progress),
                "carry": self.carry,
            },
            facts=self.facts(progress.step),
        )
        save_checkpoint(self.run.checkpoints / name, checkpoint)
        self.run.point("last", name)
        self.tidy()

    def tidy(self) -> None:
        """Point to the best checkpoint and drop those that are no longer needed."""
        progress = self.progress
        best = [entry.step for entry in progress.best]
        self.run.point("best", step_name(best[0] if best else progress.step))
        self.run.remove_all_but({step_name(step) for step in (progress.step, *best, *progress.recent)})

    def facts(self, step: int) -> dict[str, Any]:
        best = [{"step": entry.step, self.config.best: entry.value} for entry in self.progress.best]
        return {"step": step, "best": best, "tokenizer": self.data.tokenizers.fingerprint}

    def finish(self, write: Any) -> None:
        """Average the last checkpoints where the recipe asks for it, and use the average if it validates better."""
        folders = [self.run.checkpoints / step_name(step) for step in self.progress.recent]
        if self.config.average == 1 or not folders or not self.leads:
            return
        weights = average_weights(folders)
        averaged = self.run.build().to(self.accelerator.device)
        put_weights(averaged, weights, self.run.folder)
        line = {"event": "average", "step": self.progress.step, **validate(self.task, averaged, self.data.validation)}
        best = self.progress.best
        entry = Ranked(line[self.config.best], self.progress.step, line["loss"])
        better = not best or self.order(entry) < self.order(best[0])
        self.display.say(f"average of the last {len(folders)} checkpoints:")
        self.display.validated(line, self.standing(better, bool(best) and entry.value == best[0].value))
        kept = Checkpoint(stored_weights(averaged), self.facts(self.progress.step))  # with what validation chose
        save_checkpoint(self.run.checkpoints / "average", kept)
        if better:
            self.run.point("best", "average")
        write(line)

    def restore(self) -> bool:
        """Go on from the last checkpoint, if there is one."""
        folder = self.run.resumable()
        if folder is None:
            return False
        self.run.check_tokenizer(folder)
        weights, training = load_training(folder)
        data = self.data.train.fingerprint()
        if training.get("data", data) != data:
            hint = "put it back as it was, or start anew with another --out"
            raise CheckpointError(
                "the training data has changed since the run began", where=str(self.run.folder), hint=hint
            )
        put_weights(self.model, weights, folder)
        if self.average is not None:
            put_weights(self.average, load_weights(folder), folder)
        self.optimiser.load_state_dict(training["optimiser"])
        if self.accelerator.scaler:
            self.accelerator.scaler.load_state_dict(training["scaler"])
        self.plateau.restore(training["plateau"])
        self.progress = Progress.of(training["progress"])
        self.carry = moved(training.get("carry"), self.accelerator.device)
        self.progress.stopped = self.out_of_patience()
        restore_random_state(training["random"], self.accelerator.process_index)
        if self.leads:
            if self.run.pointer("last") is None:
                self.run.point("last", folder.name)
            self.tidy()
        return True
