"""The training loop: `Trainer.train`, and the steps it calls."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import asdict, replace
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, broadcast_object_list, gather_object
from torch import Tensor, nn

from regard.data.batches import AnyBatch
from regard.data.epochs import Position, Stream, row_sizes
from regard.data.prepare import Prepared
from regard.engine.graphs import CapturedLoss
from regard.engine.half_weights import HalfWeights
from regard.engine.prefetch import ahead
from regard.engine.products import forget_packed_weights
from regard.engine.shapes import pack, with_rounded_shapes
from regard.errors import CheckpointError, ConfigError, RegardError
from regard.objectives.cross_entropy import perplexity
from regard.objectives.language_model import carry_to
from regard.recipes.recipe import AnyRecipe
from regard.runs import Run
from regard.runs.run import (
    MetricsLog,
    average_weights,
    load_training,
    load_weights,
    put_weights,
    reading_state,
    save_checkpoint,
    step_name,
    stored_weights,
)
from regard.tasks import TASKS
from regard.training.optimiser import (
    Plateau,
    build_optimiser,
    move_average,
    schedule_factor,
    warmup_steps,
)
from regard.training.processes import (
    plan_parts,
    put_parts,
    recompute_blocks,
    restore_optimiser,
    whole,
)
from regard.training.progress import (
    Display,
    Progress,
    Ranked,
    Write,
    metrics_writer,
    random_state,
    restore_random_state,
    stop_requests,
    total_steps,
)
from regard.training.time_limit import TimeLimit, TimePlan

T = TypeVar("T")


class Interrupted(Exception):  # noqa: N818 (not an error)
    """The user pressed Ctrl-C, and the run has been saved."""


def compile_options(module: nn.Module) -> dict[str, Any] | None:
    """Those of torch's compiler. It computes the gradients of a norm's input and weights in one
    kernel, which has too few threads for norms of up to 512 numbers: 149 us on an H200, two kernels
    83."""
    widths = [
        norm.normalized_shape[-1] for norm in module.modules() if isinstance(norm, nn.LayerNorm)
    ]
    return {"triton.mix_order_reduction": False} if max(widths, default=0) <= 512 else None


class Trainer:
    """One training: model, optimiser, data, and the run folder."""

    def __init__(
        self,
        run: Run,
        recipe: AnyRecipe,
        data: Prepared[Any],
        model: nn.Module,
        accelerator: Accelerator,
        display: Display,
    ) -> None:
        self.run, self.recipe, self.data, self.accelerator, self.display = (
            run,
            recipe,
            data,
            accelerator,
            display,
        )
        self.processes: int = accelerator.num_processes
        self.is_main: bool = accelerator.is_main_process
        self.config = recipe.training
        self.task = TASKS[recipe.task](recipe, data.tokenizers)
        assert isinstance(self.config.batch_tokens, int)
        self.average = (
            copy.deepcopy(model).requires_grad_(False).to(accelerator.device)
            if self.config.ema
            else None
        )
        self.model = model.to(accelerator.device)
        self.used_model = (
            self.model if self.average is None else self.average
        )  # to validate and to use
        if self.config.checkpoint_activations:
            recompute_blocks(self.model)
        objective = self.task.objective(self.model)
        self.carries, self.is_cross_entropy = (
            bool(objective.carries),
            bool(objective.is_cross_entropy),
        )
        self.sharing = 1 if self.carries else self.processes
        """Batches that all processes take at once: one each, but of streams they share each
        batch."""
        if (
            self.carries
            and (streams := len(data.train.plan(self.config.batch_tokens, 0, 0)[0]))
            < 2 * self.processes
        ):
            what = f"the text is read as {streams} streams, too few for {self.processes} processes"
            raise ConfigError(
                what, where="training.batch_tokens", hint="raise it: each process needs two"
            )
        if self.average is not None and accelerator.is_fsdp2:
            raise ConfigError(
                "FSDP has no whole weights to average", where="training.ema", hint="set it to null"
            )
        self.carry: Any = None
        assert isinstance(self.config.fill, bool)
        has_kernel = self.config.compile or accelerator.mixed_precision != "no"
        packs = (
            self.config.fill
            and self.task.network.packs
            and accelerator.device.type == "cuda"
            and has_kernel
        )
        self.sizes = row_sizes(data.train, self.config.batch_tokens) if packs else None
        halves = HalfWeights.if_faster(objective, accelerator)
        self.halves = None if self.config.compile else halves
        if self.config.compile:
            from torch._functorch import config  # takes a second to import

            # else torch reuses nothing of a model with an autograd function of ours, though its
            # code is in the key
            config.autograd_cache_allow_custom_autograd_functions = True
            objective.compile(dynamic=self.sizes is None, options=compile_options(objective))
        if accelerator.distributed_type == DistributedType.FSDP:
            plan_parts(accelerator, objective, self.model)
        self.objective, self.optimiser = accelerator.prepare(
            objective, build_optimiser(self.model, self.config)
        )
        capturing = halves is not None and not accelerator.scaler  # one GPU, bf16
        self.rounds = capturing and not self.config.compile and recipe.model.loops
        captures = self.rounds or (capturing and self.sizes)
        self.captured = CapturedLoss(self.loss, self.model.parameters()) if captures else None
        self.plateau = Plateau(self.config)
        self.progress = Progress()
        self.limit: TimeLimit | None = None
        self.plans: list[dict[str, Any]] = []
        """Plans for the time limit that are not in the log yet."""
        self.pending: list[tuple[int, int, Tensor, list[AnyBatch]]] = []
        self.plan_steps(self.config.accumulate * self.sharing)

    def plan_steps(self, group: int) -> None:
        """Make steps of `group` batches, and validate and save accordingly."""
        self.group, self.accumulate = group, group // self.sharing
        batches = self.stream().epoch_batches(0)
        self.validate_every = self.config.validate_every or max(1, batches // group)
        if self.config.minutes is None:
            self.steps = total_steps(self.config.steps, self.config.epochs, batches, group)
        else:
            self.steps = self.progress.planned_steps
            self.validate_every = (
                self.config.validate_every or self.progress.planned_every or self.validate_every
            )
        self.checkpoint_every = self.config.checkpoint_every or self.validate_every
        # with a time limit, the first plan says how many steps
        if self.config.warmup == "auto" and self.steps:
            self.config = self.config.model_copy(
                update={"warmup": warmup_steps(self.config, self.steps)}
            )
            self.recipe = self.recipe.model_copy(update={"training": self.config})

    def keep_time(self, limit: TimeLimit) -> None:
        """Train within a time limit: by the plan that the run has already, or by a new one."""
        self.limit = limit
        if not self.progress.planned_steps:
            is_over = self.progress.step > 0 and limit.is_up()
            plan = TimePlan(0, self.validate_every) if is_over else limit.first_plan()
            self.follow(broadcast_object_list([plan])[0])  # the clocks of processes differ

    def follow(self, plan: TimePlan) -> None:
        """Make so many more steps."""
        self.progress.planned_steps = self.progress.step + plan.steps
        self.progress.planned_every = plan.validate_every
        self.plan_steps(self.group)
        self.plans.append(
            {
                "event": "plan",
                "step": self.progress.step,
                "steps": self.steps,
                "validate_every": self.validate_every,
            }
        )
        self.display.say(
            f"training.minutes={self.config.minutes:g}: {self.steps:,} steps, a validation every "
            f"{self.validate_every:,}"
        )

    def end_in_time(self) -> None:
        """Make this the last step if the time is up. All processes stop at the same step."""
        progress = self.progress
        if (
            self.limit is None
            or not self.over_processes(self.limit.is_up())
            or progress.step == self.steps
        ):
            return
        self.display.say(
            f"training.minutes={self.config.minutes:g} is up at step {progress.step:,} of "
            f"{self.steps:,}"
        )
        self.steps = progress.planned_steps = progress.step

    def replan(self) -> None:
        """Plan the rest anew, after a validation, if this machine is faster or slower than was
        planned."""
        if self.limit is None or self.progress.step >= self.steps:
            return
        plans = [self.limit.replanned(self.steps - self.progress.step, self.validate_every)]
        if (plan := broadcast_object_list(plans)[0]) is not None:
            self.follow(plan)

    def log_plans(self, write: Write) -> None:
        for line in self.plans:
            write(line)
        self.plans.clear()

    def stream(self) -> Stream:
        assert isinstance(self.config.batch_tokens, int)
        return Stream(
            self.data.train,
            self.config.batch_tokens,
            self.config.seed,
            self.progress.position,
            fill=bool(self.config.fill),
            rank=self.accelerator.process_index,
            world=self.processes,
            shared=self.carries and self.processes > 1,
        )

    def train(self) -> None:
        """Update until the last step; log, validate and save when due."""
        progress = self.progress
        log = (
            MetricsLog(self.run.folder / "metrics.jsonl", progress.log_length)
            if self.is_main
            else None
        )
        batches = ahead(
            self.stream(), 8, self.packed, lambda batch: batch.to(self.accelerator.device)
        )
        with (
            closing(batches),
            stop_requests() as stop,
            metrics_writer(self.run, progress.step, log) as write,
        ):
            self.log_plans(write)
            while progress.step < self.steps and not progress.stopped:
                started = time.perf_counter()
                self.update([next(batches) for _ in range(self.accumulate)])
                self.end_in_time()
                log_due = progress.step % self.config.log_every == 0 or progress.step == self.steps
                self.collect_losses(log_due or progress.step % 10 == 0)
                seconds = time.perf_counter() - started
                progress.seconds += seconds
                if self.limit is not None:
                    self.limit.add_step(seconds)
                if log_due and progress.tokens:
                    write(self.log_line())
                validated = progress.step % self.validate_every == 0 or progress.step == self.steps
                started = time.perf_counter()
                if validated:
                    write(self.validation_line())
                    self.replan()
                    self.log_plans(write)
                    forget_packed_weights()
                due = validated or progress.step % self.checkpoint_every == 0
                stopping = self.over_processes(len(stop)) > 0  # all processes stop at the same step
                if due or stopping:
                    self.save(log, due)
                if self.limit is not None and validated:
                    progress.validation_seconds = time.perf_counter() - started
                    self.limit.pace = replace(
                        self.limit.pace, validation=progress.validation_seconds
                    )
                if stopping and progress.step < self.steps:
                    raise Interrupted
            self.finish(write)

    def packed(self, batch: AnyBatch) -> AnyBatch:
        """In shapes that repeat, where steps are compiled or captured."""
        if self.sizes is not None:
            return pack(batch, self.sizes, tiled=bool(self.config.compile))
        return with_rounded_shapes(batch) if self.rounds else batch

    def update(self, batches: list[tuple[AnyBatch, Position]]) -> None:
        """One step. Loss = sum over its tokens * processes / tokens of all processes, whatever the
        accumulation.

        A step without any, as of masked LM on text that is all `<unk>`, changes no weight.
        """
        progress = self.progress
        factor = self.rate_after(progress.step, self.steps)
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.learning_rate * factor * group.get("rate", 1.0)
        tokens = self.over_processes(sum(batch.tokens for batch, _ in batches))
        self.objective.train()
        losses = self.in_memory(
            lambda: self.losses([batch for batch, _ in batches], self.processes / max(1, tokens))
        )
        norm = torch.zeros_like(losses[0][0])
        if tokens:
            norm = self.clip()
            self.optimiser.step()
        # gradients of filled batches are made anew; those of many shapes or batches are added up
        # where they are
        self.optimiser.zero_grad(
            set_to_none=self.captured is None or not (self.rounds or self.accumulate > 1)
        )
        progress.step += 1
        progress.position = batches[-1][1]
        if self.average is not None and self.config.ema:
            move_average(self.average, self.model, self.config.ema, progress.step)
        sums_3 = torch.stack([*torch.stack(losses).sum(0), norm])
        self.pending.append((progress.step, tokens, sums_3, [batch for batch, _ in batches]))

    def rate_after(self, done: int, steps: int) -> float:
        """The factor of the highest learning rate in the step after `done`, in a training of so
        many steps."""
        return schedule_factor(self.config, done + 1, steps) * self.plateau.scale

    def in_memory(self, work: Callable[[], T]) -> T:
        """What `work` computes. If it does not fit into memory, it is computed again without
        captured steps, whose memory is given back: from no gradients, since a capture or half a
        backward pass has left wrong ones. After a capture that failed, torch does not give memory
        back by itself."""
        try:
            return work()
        except torch.OutOfMemoryError:
            if self.captured is None:
                raise
        # not in the clause above: its error still refers to the tensors of `work`
        self.captured.full = True
        self.captured.graphs.clear()
        self.optimiser.zero_grad()
        torch.cuda.empty_cache()
        return work()

    def losses(self, batches: list[AnyBatch], factor: float) -> list[Tensor]:
        """The sums of `loss` for each batch of a step."""
        sums = []
        for number, batch in enumerate(batches, 1):
            with (
                nullcontext()
                if number == len(batches)
                else self.accelerator.no_sync(self.objective)
            ):
                sums.append((self.captured or self.loss)(batch, factor))
        return sums

    def loss(self, batch: AnyBatch, factor: float | Tensor) -> Tensor:
        """The objective's two sums; the gradient of the first, times `factor`, is added to the
        gradients."""
        half = (
            self.accelerator.autocast() if self.accelerator.is_fsdp2 else nullcontext()
        )  # else accelerate does it
        with self.halves.in_place() if self.halves else half:
            sums_2 = self.sums(batch)
        self.accelerator.backward(sums_2[0] * factor)
        return sums_2.detach()

    def sums(self, batch: AnyBatch) -> Tensor:
        """The objective's two sums; a recurrent state is passed on from batch to batch if the
        objective carries one."""
        if not self.carries:
            sums_2: Tensor = self.objective(batch.unnamed())
            return sums_2
        sums_2, self.carry = self.objective(batch.unnamed(), self.carry)
        return sums_2

    def clip(self) -> Tensor:
        """Clip the gradient norm to `training.clip`; a model may have its own way to do so. Returns
        the norm before."""
        limit = self.config.clip or math.inf
        own_clip = getattr(self.model, "clip_gradients", None)
        shared_limit = limit if own_clip is None else math.inf
        norm: Tensor = self.accelerator.clip_grad_norm_(self.objective.parameters(), shared_limit)
        if own_clip is not None:
            own_clip(limit)
        return whole(norm) if self.accelerator.is_fsdp2 else norm

    def over_processes(self, count: int) -> int:
        """The sum over all processes."""
        if self.processes == 1:
            return count
        return int(self.accelerator.reduce(torch.tensor(count, device=self.accelerator.device)))

    def collect_losses(self, now: bool = True) -> None:
        """Fetch pending losses from the device and add them up; stop at NaN or infinity, before it
        is saved.

        A gradient that is NaN breaks the weights, but only the next loss would show it, so it is
        checked too. With fp16 the scaler skips such a step.
        """
        if not self.pending or not (now or self.accelerator.device.type == "cpu"):
            return
        sums = self.accelerator.reduce(
            torch.stack([sums_3 for _, _, sums_3, _ in self.pending])
        ).tolist()
        for (step, tokens, _, batches), (smoothed, plain, norm) in zip(
            self.pending, sums, strict=True
        ):
            if not math.isfinite(smoothed):
                raise self.not_finite("loss", step, batches)
            if not (math.isfinite(norm) or self.accelerator.scaler):
                raise self.not_finite("gradient", step, batches)
            self.progress.loss_sum += smoothed
            self.progress.plain_sum += plain
            self.progress.tokens += tokens
        self.pending.clear()

    def not_finite(self, what: str, step: int, batches: list[AnyBatch]) -> RegardError:
        """The error for a loss or gradient that is NaN or infinite, with the examples of its
        batch."""
        examples = [example for batch in batches for example in batch.examples]
        places = [self.data.train.where(example) for example in examples[:3]] + (
            ["..."] if examples[3:] else []
        )
        named = (
            f", first in a batch of {len(examples)} examples: {', '.join(places)}"
            if examples
            else ""
        )
        last = self.run.pointer("last")
        kept = f"; the last checkpoint, {last.name}, is intact" if last else ""
        return RegardError(
            f"the {what} became NaN or infinite{named}",
            where=f"step {step}",
            hint="lower training.learning_rate, raise training.warmup or use precision bf16 or "
            f"fp32{kept}",
        )

    def log_line(self) -> dict[str, Any]:
        self.collect_losses()
        progress = self.progress
        seconds = max(progress.seconds, 1e-9)
        line = {
            "event": "train",
            "step": progress.step,
            "epoch": progress.position.epoch,
            "loss": progress.loss_sum / progress.tokens,
            **(
                {"perplexity": perplexity(progress.plain_sum / progress.tokens)}
                if self.is_cross_entropy
                else {}
            ),
            "learning_rate": max(group["lr"] for group in self.optimiser.param_groups),
            "unit": self.task.unit,
            "tokens": progress.tokens,
            "tokens_per_second": progress.tokens / seconds,
            "seconds_per_step": seconds / (progress.step - progress.logged_step),
        }
        progress.logged_step, progress.seconds = progress.step, 0.0
        progress.loss_sum, progress.plain_sum, progress.tokens = 0.0, 0.0, 0
        self.display.logged(line, self.steps)
        return line

    def validation_line(self) -> dict[str, Any]:
        self.collect_losses()
        progress = self.progress
        model = self.whole_model()
        metrics = [self.validate(model) if self.is_main else {}]
        line = {"event": "validation", "step": progress.step, **broadcast_object_list(metrics)[0]}
        if not math.isfinite(line["loss"]):
            raise self.not_finite("validation loss", progress.step, [])
        entry = Ranked(line[self.config.best], progress.step, line["loss"])
        before = progress.best[0] if progress.best else None
        self.plateau.add_validation(before is None or self.order(entry)[0] < self.order(before)[0])
        progress.waited = 0 if self.ranks(entry) else progress.waited + 1
        progress.stopped = self.out_of_patience()
        self.display.validated(line, self.comment(entry, before))
        if progress.stopped:
            self.display.say(f"stopped: {self.stop_reason}")
        return line

    def whole_model(self) -> nn.Module:
        """The model to use, for the first process: FSDP leaves only a part of it with each."""
        if not self.accelerator.is_fsdp2:
            return self.used_model
        weights = whole(stored_weights(self.model))
        if self.is_main:
            model: nn.Module = self.task.network.build().to(self.accelerator.device)
            put_weights(model, weights, self.run.folder)
            return model
        return self.model

    def validate(self, model: nn.Module) -> dict[str, Any]:
        """The task's metrics on the validation examples, with the model in evaluation mode."""
        training = model.training
        model.eval()
        try:
            return self.in_memory(lambda: self.task.metrics.validate(model, self.data.validation))
        finally:
            model.train(training)

    def comment(self, entry: Ranked, before: Ranked | None) -> str:
        """The comment on a checkpoint that is better than the best before; the loss decides between
        equals."""
        if before is not None and self.order(entry) >= self.order(before):
            return ""
        tied = before is not None and entry.value == before.value
        return f"as good in {self.config.best}, lower loss: best so far" if tied else "best so far"

    @property
    def stop_reason(self) -> str:
        """Why early stopping ended the training."""
        return f"{self.progress.waited} validations without a better {self.config.best}"

    def out_of_patience(self) -> bool:
        return self.config.patience is not None and self.progress.waited >= self.config.patience

    def order(self, entry: Ranked) -> tuple[float, float]:
        """The sort key of checkpoints, best first: the metric, then the loss; then the earlier one
        comes first."""
        return (
            -entry.value if self.config.best in self.task.higher_is_better else entry.value,
            entry.loss,
        )

    def ranks(self, entry: Ranked) -> bool:
        """Add a checkpoint to the best ones; whether it is the best of all."""
        self.progress.best = sorted([*self.progress.best, entry], key=self.order)[
            : self.config.keep_best
        ]
        return self.progress.best[0] == entry

    def save(self, log: MetricsLog | None, due: bool) -> None:
        """Save a checkpoint for an exact resume, then point to the best one and to this one, then
        delete old ones."""
        self.collect_losses()
        weights, optimiser = stored_weights(self.used_model), self.optimiser.state_dict()
        if self.accelerator.is_fsdp2:
            weights, optimiser = whole((weights, optimiser))
        carry, generators = self.whole_carry(), gather_object([random_state()])
        if log is None:
            return
        progress = self.progress
        progress.recent = [*progress.recent, *([progress.step] if due else [])][
            -self.config.average :
        ]
        progress.log_length = log.length()
        progress.spent = 0.0 if self.limit is None else self.limit.spent
        name = step_name(progress.step)
        save_checkpoint(
            self.run.checkpoints / name,
            weights,
            self.facts() | {"log": {"bytes": progress.log_length, "checksum": log.checksum}},
            training_weights=None if self.average is None else stored_weights(self.model),
            training={
                "optimiser": optimiser,
                "scaler": self.accelerator.scaler.state_dict() if self.accelerator.scaler else {},
                "random": generators,
                "plateau": self.plateau.state(),
                "fingerprints": self.data.fingerprints,
                "progress": asdict(progress),
                "carry": carry,
                "group": self.group,
            },
        )
        self.tidy()

    def whole_carry(self) -> Any:
        """The state of all streams, whichever process has them."""
        if not self.carries or self.processes == 1 or self.carry is None:
            return self.carry
        parts = gather_object([carry_to(self.carry, torch.device("cpu"))])
        return tuple(
            tuple(map(torch.cat, zip(*layer, strict=True))) for layer in zip(*parts, strict=True)
        )

    def tidy(self) -> None:
        """Point to the best checkpoint and to that of this step, and delete those that are no
        longer needed.

        The best is named first: what the last one knows of the best is never ahead of the file
        `best`.
        """
        progress = self.progress
        best = [entry.step for entry in progress.best]
        self.run.point("best", step_name(best[0] if best else progress.step))
        self.run.point("last", step_name(progress.step))
        self.run.remove_all_but(
            {step_name(step) for step in (progress.step, *best, *progress.recent)}
        )

    def facts(self) -> dict[str, Any]:
        best = [{"step": entry.step, self.config.best: entry.value} for entry in self.progress.best]
        return self.run.under(self.recipe).facts(self.progress.step, best)

    def finish(self, write: Write) -> None:
        """Average the last checkpoints if the recipe says so, and use the average if it validates
        better."""
        folders = [self.run.checkpoints / step_name(step) for step in self.progress.recent]
        if self.config.average == 1 or not folders or not self.is_main:
            return
        weights = average_weights(folders)
        averaged = self.task.network.build().to(self.accelerator.device)
        put_weights(averaged, weights, self.run.folder)
        line = {"event": "average", "step": self.progress.step, **self.validate(averaged)}
        before = self.progress.best[0] if self.progress.best else None
        comment = self.comment(
            Ranked(line[self.config.best], self.progress.step, line["loss"]), before
        )
        self.display.say(f"average of the last {len(folders)} checkpoints:")
        self.display.validated(line, comment)
        # After the validation, which may set buffers of the model
        save_checkpoint(self.run.checkpoints / "average", stored_weights(averaged), self.facts())
        if comment:  # it is the best
            self.run.point("best", "average")
        write(line)

    def restore(self) -> bool:
        """Continue from the last checkpoint; False if there is none."""
        folder = self.run.resumable()
        if folder is None:
            return False
        weights, training = load_training(folder)
        before = training.get("fingerprints", {})  # none in old runs
        for part, fingerprint in self.data.fingerprints.items():
            if before.get(part, fingerprint) != fingerprint:
                what = f"the {part} data has changed since the run began"
                hint = "restore the data, or start a new run with another --out"
                raise CheckpointError(what, where=str(self.run.folder), hint=hint)
        with reading_state(folder):
            self._take_state(training)
        if self.config.minutes is None and self.progress.step > self.steps:
            where = "training.epochs" if self.config.steps is None else "training.steps"
            what = f"the run has made {self.progress.step:,} steps, more than {self.steps:,}"
            raise ConfigError(
                what,
                where=where,
                hint="use --checkpoint in other commands for an earlier checkpoint",
            )
        put_parts(self.model, weights, folder)
        if self.average is not None:
            put_weights(self.average, load_weights(folder), folder)
        if self.is_main:
            self.tidy()
        return True

    def _take_state(self, training: dict[str, Any]) -> None:
        """Continue with what `save` stored besides the weights."""
        self.progress = Progress.of(training["progress"])
        if self.config.minutes is None or self.config.minutes != self.run.recipe.training.minutes:
            self.progress.planned_steps = 0  # the rest is planned anew
        if self.progress.position.index not in range(
            self.stream().epoch_batches(self.progress.position.epoch)
        ):
            raise ValueError("there is no such batch")
        if (group := int(training.get("group", self.group))) % self.sharing:
            what = (
                f"a step of the run has {group} batches, which {self.processes} processes "
                "cannot share evenly"
            )
            hint = (
                "resume with "
                f"{', '.join(str(count) for count in range(1, group + 1) if group % count == 0)}"
            )
            raise ConfigError(what, where="--resume", hint=hint)
        self.plan_steps(group)
        restore_optimiser(self.optimiser, training["optimiser"])
        if self.accelerator.scaler:
            self.accelerator.scaler.load_state_dict(training["scaler"])
        self.plateau.restore(training["plateau"])
        self.carry = carry_to(training.get("carry"), self.accelerator.device)
        if self.carry is not None and self.processes > 1:
            rows = self.stream().rows(self.progress.position.epoch)
            self.carry = tuple(tuple(state_BD[rows] for state_BD in layer) for layer in self.carry)
        self.progress.stopped = self.out_of_patience()
        restore_random_state(training["random"], self.accelerator.process_index)
