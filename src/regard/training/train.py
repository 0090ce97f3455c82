"""`train`: from a recipe to a run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import nn

from regard.config.load import Tree
from regard.data.batches import auto_batch_tokens
from regard.data.prepare import Prepared
from regard.errors import CheckpointError, ConfigError, Problem, RegardError, did_you_mean
from regard.models.base import count_parameters
from regard.recipes.recipe import AnyRecipe, load_recipe, recipe_of, with_absolute_paths
from regard.recipes.training import TrainingConfig
from regard.runs import Run
from regard.runs.run import is_vacant, locked
from regard.tasks import TASKS, Task
from regard.training.display import Display
from regard.training.initial import initialise
from regard.training.loop import Interrupted, Trainer
from regard.training.memory import budget_note, explained_out_of_memory, fitting_afterwards, with_fitting_batches
from regard.training.optimiser import length_notes, resume_notes

CHANGEABLE = frozenset(
    f"training.{name}"
    for name in (
        "steps", "epochs", "device", "compile", "log_every", "validate_every", "checkpoint_every",
        "keep_best", "patience", "decode", "samples", "average",
    )
)  # fmt: skip
"""Fields that may change when a training is resumed; any other change would make it another training."""


def train(
    recipe: str | Path | Tree,
    overrides: Sequence[str] = (),
    *,
    out: str | Path,
    resume: bool = False,
    quiet: bool = False,
) -> Run:
    """Train the model of a recipe into the run folder `out`; with `resume`, continue from its last checkpoint."""
    folder = Path(out)
    given, base = load_recipe(recipe, overrides)
    check_metric(given)
    existing = _existing(folder, resume)
    accelerator = make_accelerator(given.training)
    with Display(quiet=quiet or not accelerator.is_main_process) as display:
        with accelerator.main_process_first():
            tokenizers = existing.tokenizers if existing else None
            data = TASKS[given.task].prepare(given, base, tokenizers, lambda what, done: display.doing(what, done))
        resolved = resolve(given, base, data, accelerator.device, existing)
        if existing:
            _refuse_other_recipe(existing, resolved)
        task = TASKS[resolved.task](resolved, data.tokenizers)
        model = _build(task, resolved, accelerator)
        if existing is None or existing.resumable() is None:
            task.first_weights(model, data.train)
            for sentence in initialise(model, task, given, base):
                display.say(sentence)
        if existing is None and given.training.batch_tokens == "auto":
            before, resolved = resolved, with_fitting_batches(resolved, data.train, model, accelerator)
            if resolved != before:
                display.say(f"batch_tokens: {resolved.training.batch_tokens:,}, the most that fits into memory")
        run = existing or _create(folder, resolved, data, accelerator)
        lock = locked(folder) if accelerator.is_main_process else nullcontext()
        measure = partial(fitting_afterwards, resolved, data.train, model, accelerator)
        with lock, explained_out_of_memory(resolved, measure):
            _train(run, resolved, data, model, accelerator, display)
    return run


def _build(task: Task, recipe: AnyRecipe, accelerator: Accelerator) -> nn.Module:
    """The model, with the same initial weights in every process but different dropout."""
    with explained_out_of_memory(recipe):
        torch.manual_seed(recipe.training.seed)
        model: nn.Module = task.model()
        torch.manual_seed(recipe.training.seed + accelerator.process_index)
    return model


def _train(
    run: Run, recipe: AnyRecipe, data: Prepared[Any], model: nn.Module, accelerator: Accelerator, display: Display
) -> None:
    trainer = Trainer(run, recipe, data, model, accelerator, display)
    notes = [*length_notes(recipe.training, trainer.steps), *budget_note(recipe.training, data.train)]
    for sentence in [*data.report.sentences(), *notes]:
        display.say(sentence)
    before, resumed = run.recipe.training, trainer.restore()
    if resumed:
        _refuse_fewer_steps(recipe.training, trainer)
        for sentence in resume_notes(before, recipe.training, trainer.progress.step, trainer.steps):
            display.say(sentence)
    if accelerator.is_main_process and run.recipe != recipe:
        run.change_recipe(recipe)
    display.say(
        f"{'resuming' if resumed else 'training'} {recipe.model.kind}, {count_parameters(model):,} parameters, "
        f"{len(data.train):,} examples, step {trainer.progress.step:,} of {trainer.steps:,}, {accelerator.device}, "
        f"{accelerator.num_processes} process{'es' if accelerator.num_processes > 1 else ''}"
    )
    if trainer.progress.stopped:
        display.say(f"it was stopped early: {trainer.stop_reason}; a larger training.patience continues it")
    try:
        trainer.train()
    except Interrupted:
        step = trainer.progress.step
        display.say(f"interrupted and saved at step {step:,}; the same command with --resume continues it")
        raise
    except RegardError as error:
        error.add_note(f"in process {accelerator.process_index}")  # other processes may not have this error
        raise
    display.say(f"done: {run.folder}")


def _refuse_fewer_steps(config: TrainingConfig, trainer: Trainer) -> None:
    done = trainer.progress.step
    if done > trainer.steps:
        where = "training.epochs" if config.steps is None else "training.steps"
        what = f"the run has made {done:,} steps, more than {trainer.steps:,}"
        raise ConfigError(what, where=where, hint="use --checkpoint in other commands for an earlier checkpoint")


def make_accelerator(config: TrainingConfig) -> Accelerator:
    """accelerate's handle on the device, the precision and the other processes."""
    wanted, cuda = config.device, torch.cuda.is_available()
    mps = torch.backends.mps.is_available()
    if (wanted == "cuda" and not cuda) or (wanted == "mps" and not mps):
        there = ["cpu", *(["cuda"] if cuda else []), *(["mps"] if mps else [])]
        raise ConfigError(
            f"there is no {wanted} on this machine", where="training.device", hint=f"allowed: auto, {', '.join(there)}"
        )
    on_gpu = wanted == "cuda" or (wanted == "auto" and cuda)
    precision: str = config.precision
    if precision == "auto":
        precision = "bf16" if on_gpu and torch.cuda.is_bf16_supported() else "fp32"
    if precision == "fp16" and not on_gpu:
        raise ConfigError("fp16 needs a CUDA GPU", where="training.precision", hint="allowed here: auto, fp32, bf16")
    if on_gpu:
        torch.set_float32_matmul_precision("high")
        torch.backends.cuda.enable_cudnn_sdp(False)  # it compiles for every shape, and batches have many
    # An earlier training in this process may have used another precision or device
    AcceleratorState._reset_state(reset_partial_state=not torch.distributed.is_initialized())
    on_cpu = wanted == "cpu" or not (cuda or mps)
    return Accelerator(mixed_precision="no" if precision == "fp32" else precision, cpu=on_cpu)


def resolve(
    recipe: AnyRecipe, base: Path, data: Prepared[Any], device: torch.device, existing: Run | None = None
) -> AnyRecipe:
    """The recipe with the values that depend on the data or on the run to resume, and with absolute paths."""
    TASKS[recipe.task](recipe, data.tokenizers).check(data)
    tree = with_absolute_paths(data.task.recipe, base).model_dump()
    if recipe.training.batch_tokens == "auto":
        default = auto_batch_tokens(data.train, on_cpu=device.type == "cpu")
        tree["training"]["batch_tokens"] = existing.recipe.training.batch_tokens if existing else default
    return recipe_of(tree)


def check_metric(recipe: AnyRecipe) -> None:
    """`training.best` must be a metric that the task's validation computes."""
    metrics = TASKS[recipe.task].higher_is_better
    name = recipe.training.best
    if name not in metrics:
        raise ConfigError(f"unknown metric {name!r}", where="training.best", hint=did_you_mean(name, metrics))
    if recipe.training.decode == 0 and name in TASKS[recipe.task].decoded:
        raise ConfigError(f"{name} needs decoded examples", where="training.decode", hint="set it above 0")


def _existing(folder: Path, resume: bool) -> Run | None:
    """The run to resume; None for a new run, in a new folder or in one without a checkpoint."""
    if not folder.exists() or (is_vacant(folder) and not (resume and (folder / "recipe.yaml").exists())):
        return None
    if not folder.is_dir():
        raise CheckpointError("there is a file of this name", where=str(folder), hint="give another --out")
    if not resume:
        if (folder / "recipe.yaml").exists():
            what, hint = "the run folder exists already", "--resume continues it; give another --out for a new run"
        else:
            what, hint = "the folder exists already, and contains files that are not of a run", "give another --out"
        raise CheckpointError(what, where=str(folder), hint=hint)
    return Run.open(folder)


def _create(folder: Path, recipe: AnyRecipe, data: Prepared[Any], accelerator: Accelerator) -> Run:
    if accelerator.is_main_process:
        _existing(folder, resume=False)  # another process may have created it since
        if folder.exists():
            with locked(folder):  # or may be training in it, before its first checkpoint
                pass
        Run.create(folder, recipe, data.tokenizers)
    accelerator.wait_for_everyone()
    return Run(folder)


def _refuse_other_recipe(run: Run, recipe: AnyRecipe) -> None:
    """A resumed training must have the same recipe, up to CHANGEABLE."""
    before, now = dict(_leaves(run.recipe.model_dump())), dict(_leaves(recipe.model_dump()))
    problems = [
        Problem(path, f"the run was started with {before.get(path)!r}, this recipe says {now.get(path)!r}")
        for path in sorted(before.keys() | now.keys())
        if before.get(path) != now.get(path) and path not in CHANGEABLE
    ]
    if problems:
        raise ConfigError(
            problems=[
                *problems,
                Problem(str(run.folder), "cannot be resumed with another recipe", "give another --out"),
            ]
        )


def _leaves(node: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(node, dict):
        return [leaf for key, value in node.items() for leaf in _leaves(value, f"{path}.{key}" if path else str(key))]
    if isinstance(node, list) and any(isinstance(value, dict) for value in node):
        return [leaf for number, value in enumerate(node) for leaf in _leaves(value, f"{path}.{number}")]
    return [(path, node)]
