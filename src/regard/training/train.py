"""`train`: from a recipe to a run."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from traceback import clear_frames
from typing import Any, cast

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn

from regard.config import Tree
from regard.data.batches import Examples, auto_batch_tokens
from regard.data.config import TrainingConfig
from regard.data.prepare import Prepared
from regard.data.store import verifying
from regard.engine.machine import keep_memory
from regard.errors import CheckpointError, ConfigError, Problem, RegardError, did_you_mean
from regard.layers.embeddings import Embedding
from regard.models.base import ModelConfig, count_parameters
from regard.models.headed import Headed, weights_for
from regard.recipes.recipe import (
    CHANGEABLE_ON_RESUME,
    AnyRecipe,
    Switch,
    leaves,
    load_recipe,
    load_tree,
    other_fields,
    recipe_of,
    switched_model,
    with_absolute_paths,
    with_defaults_of_run,
)
from regard.runs import Run
from regard.runs.run import (
    LOG,
    can_start_in,
    damage_of_log,
    is_log,
    load_weights,
    locked,
    stored_weights,
)
from regard.tasks import TASKS, Task
from regard.text.files import TextFile, open_text
from regard.text.tokenizers import Tokenizers
from regard.text.vectors import read_vectors
from regard.training.loop import Interrupted, Trainer
from regard.training.memory import fitting_batch_tokens
from regard.training.optimiser import length_notes, longer_training_note, resume_notes
from regard.training.pace import Pace, TimeLimit, fastest_threads, measure_pace, threads_are_chosen
from regard.training.plausibility import warnings_for
from regard.training.processes import all_joined, naming_lost_processes, refuse_unlike
from regard.training.progress import Display
from regard.training.size import refuse_too_large


def train(
    recipe: str | Path | Tree,
    overrides: Sequence[str] = (),
    *,
    out: str | Path,
    resume: bool = False,
    accept_recipe: bool = False,
    quiet: bool = False,
) -> Run:
    """Train the model of a recipe into the run folder `out`; with `resume`, continue from its last
    checkpoint.

    A run whose recipe.yaml was changed since is not resumed, unless `accept_recipe`.
    """
    started = time.monotonic()
    folder = Path(out)
    given, base = load_recipe(recipe, overrides)
    check_metric(given)
    existing = _existing(folder, resume, accept_recipe)
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
    with naming_lost_processes(accelerator) if several else nullcontext(), display:
        if resume and not existing:
            display.say(f"{folder}: there is no run to resume, so a new one begins")
        first = accelerator.is_local_main_process
        with accelerator.local_main_process_first(), verifying() if first else nullcontext():
            tokenizers = existing.tokenizers if existing else None
            data = TASKS[given.task].prepare(given, base, tokenizers, display.doing)
        resolved = resolve(given, base, data, accelerator.device, existing)
        display.say(*compile_notes(given.training, resolved.training, accelerator.device))
        if existing:
            _refuse_other_recipe(existing, resolved)
        task = TASKS[resolved.task](resolved, data.tokenizers)
        if several:
            facts: dict[str, Any] = {
                f"{name} data": number for name, number in data.fingerprints.items()
            }
            facts["tokenizer"] = data.tokenizers.fingerprint
            refuse_unlike(
                accelerator,
                leaves(resolved.model_dump()) | facts | {"--resume": last and last.name},
            )
        vocabularies = [data.tokenizers[name].size for name in task.columns]
        refuse_too_large(resolved, accelerator.device, vocabularies, shares=shares)
        with explained_out_of_memory(
            resolved
        ):  # the same initial weights in every process but different dropout
            torch.manual_seed(resolved.training.seed)
            model: nn.Module = task.model()
            torch.manual_seed(resolved.training.seed + accelerator.process_index)
        if last is None:
            task.first_weights(model, data.train)
            display.say(*initialise(model, task, given, base))
        if switch:
            display.say(*switch_notes(switch, task))
        if existing is None and given.training.batch_tokens == "auto":
            before, resolved = (
                resolved,
                with_fitting_batches(resolved, data.train, model, accelerator),
            )
            if resolved != before:
                display.say(
                    f"batch_tokens: {resolved.training.batch_tokens:,}, the most that fits into "
                    "memory"
                )
        threads = choose_threads(existing, resolved, data, model, accelerator)
        lock = locked(folder) if accelerator.is_main_process else nullcontext()
        measure = partial(_fitting_afterwards, resolved, data.train, model, accelerator)
        with lock, explained_out_of_memory(resolved, measure), computing_with(threads):
            run = existing or _create(folder, resolved, data, accelerator, threads)
            _train(run, resolved, data, model, accelerator, display, started)
    return Run(folder) if accelerator.is_main_process else run


def _train(
    run: Run,
    recipe: AnyRecipe,
    data: Prepared[Any],
    model: nn.Module,
    accelerator: Accelerator,
    display: Display,
    started: float,
) -> None:
    if accelerator.device.type == "cpu":
        keep_memory()
    minutes, pace = recipe.training.minutes, Pace(0.0, 0.0)
    if minutes is not None and (run.resumable() is None or run.recipe.training.minutes != minutes):
        pace = measure_pace(recipe, data, model, accelerator, 60 * minutes)
    trainer = Trainer(run, recipe, data, model, accelerator, display)
    resumed, done = trainer.restore(), trainer.progress.step
    if minutes is not None:
        trainer.keep_time(TimeLimit(recipe.training, pace, started, trainer.progress))
    recipe = trainer.recipe  # with the length of its warm-up
    display.say(
        *warnings_for(recipe, data),
        *data.report.sentences(),
        *length_notes(recipe.training, trainer.steps),
    )
    display.say(*budget_note(recipe.training, data.train))
    if resumed:
        rate = trainer.rate_after(done, trainer.steps)
        display.say(*resume_notes(run.recipe.training, recipe.training, trainer.steps, rate))
        if damage := damage_of_log(run.folder / "metrics.jsonl"):
            display.say(f"metrics.jsonl: {damage}; the training is not, and continues")
    if accelerator.is_main_process and run.recipe != recipe:
        run.store_recipe(recipe)
    device = f"{accelerator.device}{' (FSDP2)' if accelerator.is_fsdp2 else ''}"
    display.say(
        f"{'resuming' if resumed else 'training'} {recipe.model.kind}, {count_parameters(model):,} "
        "parameters, "
        f"{len(data.train):,} examples, step {done:,} of {trainer.steps:,}, {device}, "
        f"{accelerator.num_processes} process{'es' if accelerator.num_processes > 1 else ''}"
    )
    if trainer.progress.stopped:
        display.say(
            f"it was stopped early: {trainer.stop_reason}; a larger training.patience continues it"
        )
    try:
        trainer.train()
    except Interrupted:
        saved = f"interrupted and saved at step {trainer.progress.step:,}"
        display.say(f"{saved}; the same command with --resume continues it")
        raise
    except RegardError as error:
        error.add_note(
            f"in process {accelerator.process_index}"
        )  # other processes may not have this error
        raise
    losses = [line["loss"] for line in run.events() if line["event"] == "validation"]
    if not trainer.progress.stopped and len(losses) > 1 and losses[-1] <= 0.995 * min(losses[:-1]):
        rate = trainer.rate_after(trainer.steps, 2 * trainer.steps)
        display.say(longer_training_note(recipe.training, trainer.steps, rate))
    display.say(f"done: {run.folder}")


def make_accelerator(config: TrainingConfig) -> Accelerator:
    """accelerate's handle on the device, the precision and the other processes."""
    _refuse_other_ways()
    wanted, cuda, mps = config.device, torch.cuda.is_available(), torch.backends.mps.is_available()
    there = [
        name
        for name, is_there in {"auto": True, "cpu": True, "cuda": cuda, "mps": mps}.items()
        if is_there
    ]
    if wanted not in there:
        hint = f"allowed: {', '.join(there)}"
        raise ConfigError(
            f"there is no {wanted} on this machine", where="training.device", hint=hint
        )
    on_gpu = wanted == "cuda" or (wanted == "auto" and cuda)
    precision = mixed_precision(config, on_gpu=on_gpu)
    if precision == "fp16" and not on_gpu:
        raise ConfigError(
            "fp16 needs a CUDA GPU",
            where="training.precision",
            hint="allowed here: auto, fp32, bf16",
        )
    if on_gpu:
        torch.set_float32_matmul_precision("high")
        torch.backends.cuda.enable_cudnn_sdp(
            False
        )  # it compiles for every shape, and batches have many
    # An earlier training in this process may have used another precision or device
    AcceleratorState._reset_state(reset_partial_state=not torch.distributed.is_initialized())
    on_cpu = wanted == "cpu" or not (cuda or mps)
    with all_joined() if os.environ.get("WORLD_SIZE", "1") != "1" else nullcontext():
        return Accelerator(mixed_precision="no" if precision == "fp32" else precision, cpu=on_cpu)


def _refuse_other_ways() -> None:
    """Refuse what accelerate's config file can choose but is not supported here. The file has FSDP
    1 by default."""
    ways = ("FSDP", "DEEPSPEED", "MEGATRON_LM")
    chosen = {way for way in ways if os.environ.get(f"ACCELERATE_USE_{way}", "").lower() == "true"}
    if chosen - {"FSDP"} or (chosen and os.environ.get("FSDP_VERSION") != "2"):
        hint = "distributed_type: MULTI_GPU, or FSDP with fsdp_version: 2 in its fsdp_config"
        raise ConfigError(
            "only DDP and FSDP2 are supported", where="accelerate's config file", hint=hint
        )


def mixed_precision(config: TrainingConfig, *, on_gpu: bool) -> str:
    """`training.precision` with `auto` replaced."""
    if config.precision != "auto":
        return config.precision
    return "bf16" if on_gpu and torch.cuda.is_bf16_supported() else "fp32"


def resolve(
    recipe: AnyRecipe,
    base: Path,
    data: Prepared[Any],
    device: torch.device,
    existing: Run | None = None,
) -> AnyRecipe:
    """The recipe with the values that depend on the data or on the run to resume, and with absolute
    paths."""
    (task := TASKS[recipe.task](recipe, data.tokenizers)).check(data)
    tree = with_absolute_paths(data.task.recipe, base).model_dump()
    if recipe.training.batch_tokens == "auto":
        default = auto_batch_tokens(data.train, on_cpu=device.type == "cpu")
        tree["training"]["batch_tokens"] = (
            existing.recipe.training.batch_tokens if existing else default
        )
    if (
        recipe.training.warmup == "auto" and existing
    ):  # a resumed training is not warmed up for longer
        tree["training"]["warmup"] = existing.recipe.training.warmup
    training, on_gpu = tree["training"], device.type == "cuda"
    packs = on_gpu and task.packs and mixed_precision(recipe.training, on_gpu=True) != "fp32"
    for name, automatic in (
        ("fill", packs),
        ("compile", packs and _pays_to_compile(training, data.train)),
    ):
        if training[name] == "auto":  # old runs have neither
            training[name] = (
                getattr(existing.recipe.training, name) is True if existing else automatic
            )
    return recipe_of(tree)


COMPILED_POSITIONS = 10**8
"""Tokens to train on, with filler, from which `training.compile: auto` compiles. That takes a
minute; a Transformer base on an H200 then needs 0.9 s less for a million than captured steps."""


COMPILED_MINUTES = 20
"""The same for a training with a time limit."""


def compile_notes(
    given: TrainingConfig, resolved: TrainingConfig, device: torch.device
) -> Iterator[str]:
    """What became of `training.compile` on a GPU, and why."""
    if resolved.compile:
        yield (
            "compiling the model: the first step may take a minute (training.compile=false "
            "starts at once)"
        )
    elif given.compile == "auto" and resolved.fill and device.type == "cuda":
        too_short = f"a training of under {COMPILED_POSITIONS:,} tokens ends sooner without"
        why = too_short if shutil.which("cc") else "that needs a C compiler, cc"
        yield f"the model is not compiled: {why} (training.compile=true compiles it)"


def _pays_to_compile(training: Tree, train: Examples) -> bool:
    """Whether so much is to be computed on the GPU that compiled code wins back the time that
    compiling takes."""
    of_epoch, of_step = (
        int(train.lengths.sum(dtype=np.int64)),
        training["batch_tokens"] * training["accumulate"],
    )
    if training["minutes"] is not None:
        return training["minutes"] >= COMPILED_MINUTES and shutil.which("cc") is not None
    by_epochs = math.inf if training["epochs"] is None else training["epochs"] * of_epoch
    by_steps = math.inf if training["steps"] is None else training["steps"] * of_step
    return min(by_epochs, by_steps) >= COMPILED_POSITIONS and shutil.which("cc") is not None


def check_metric(recipe: AnyRecipe) -> None:
    """`training.best` must be a metric that the task's validation computes."""
    task, name = TASKS[recipe.task], recipe.training.best
    metrics = (*task.lower_is_better, *task.higher_is_better)
    if name not in metrics:
        raise ConfigError(
            f"unknown metric {name!r}", where="training.best", hint=did_you_mean(name, metrics)
        )
    task.check_evaluation(recipe.evaluation)
    needs_decoding = task.writes == "target" and name in task.higher_is_better
    if recipe.training.decode == 0 and needs_decoding:
        raise ConfigError(
            f"{name} needs decoded examples", where="training.decode", hint="set it above 0"
        )
    if recipe.training.teacher_forcing < 1 and task.writes != "target":
        what = f"a model for {recipe.task} never reads its own words"
        raise ConfigError(what, where="training.teacher_forcing", hint="leave it at 1")


def switch_notes(switch: Switch, task: Task) -> Iterator[str]:
    """The sizes of both models where overrides ask for another kind than the recipe's, and what it
    does not have."""
    kind, other, sizes = switch.kind, switch.other.model.kind, []
    with suppress(ConfigError):  # the other model may not fit these vocabularies
        for one in (task, TASKS[task.name](switch.other, task.tokenizers)):
            with torch.device("meta"):  # no memory, and no numbers from the random generator
                sizes.append(count_parameters(one.model()))
        yield f"model.kind={kind}: {sizes[0]:,} parameters; the recipe's {other} has {sizes[1]:,}"
    if switch.dropped:
        yield (
            f"model.kind={kind}: left out, since {kind} does not have them: "
            f"{', '.join(switch.dropped)}"
        )


def _existing(folder: Path, resume: bool, accept_recipe: bool = False) -> Run | None:
    """The run to resume; None for a new run, in a new folder or in one without a checkpoint."""
    begun = (
        folder.exists()
        and (folder / "environment.json").exists()
        and not (folder / "last").exists()
    )
    if begun and not is_log(folder / LOG):
        what = "this is not the log of a training, which would overwrite it"
        raise CheckpointError(
            what, where=str(folder / LOG), hint="move it elsewhere, or give another --out"
        )
    if not folder.exists() or (
        can_start_in(folder) and not (resume and (folder / "recipe.yaml").exists())
    ):
        return None
    if not folder.is_dir():
        raise CheckpointError(
            "there is a file of this name", where=str(folder), hint="give another --out"
        )
    if not resume:
        if all((folder / name).exists() for name in ("recipe.yaml", "environment.json")):
            what, hint = (
                "the run folder exists already",
                "--resume continues it; give another --out for a new run",
            )
        else:
            what, hint = (
                "the folder exists already, and contains files that are not of a run",
                "give another --out",
            )
        raise CheckpointError(what, where=str(folder), hint=hint)
    return Run.open(folder, accept_recipe)


def _create(
    folder: Path,
    recipe: AnyRecipe,
    data: Prepared[Any],
    accelerator: Accelerator,
    threads: int | None,
) -> Run:
    if not accelerator.is_main_process:
        return Run.unchecked(folder)
    _existing(folder, resume=False)  # another process may have created it since
    return Run.create(folder, recipe, data.tokenizers, chosen_threads=threads)


def choose_threads(
    existing: Run | None,
    recipe: AnyRecipe,
    data: Prepared[Any],
    model: nn.Module,
    accelerator: Accelerator,
) -> int | None:
    """The number of threads for a training on a CPU: for a new run the fastest, later the one that
    it began with.

    None leaves it as it is: on other devices, with several processes, and where the user has set
    it.
    """
    if accelerator.device.type != "cpu" or accelerator.num_processes > 1 or threads_are_chosen():
        return None
    if existing is not None:
        chosen = existing.environment.get("chosen_threads")
        return chosen if isinstance(chosen, int) and chosen > 0 else None
    return fastest_threads(recipe, data, model, accelerator)


@contextmanager
def computing_with(threads: int | None) -> Iterator[None]:
    """Let torch compute with so many threads; None leaves their number as it is."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads or before)
        yield
    finally:
        torch.set_num_threads(before)


def _refuse_other_recipe(run: Run, recipe: AnyRecipe) -> None:
    """A resumed training must have the same recipe, up to CHANGEABLE_ON_RESUME."""
    before, now = leaves(run.recipe.model_dump()), leaves(recipe.model_dump())
    paths = before.keys() | now.keys()
    if before["model.kind"] != now["model.kind"]:  # the other fields of the model then differ too
        paths = {"model.kind"}
    problems = [
        Problem(
            path,
            f"the run was started with {before.get(path)!r}, this recipe says {now.get(path)!r}",
        )
        for path in sorted(paths)
        if before.get(path) != now.get(path)
        and path.removeprefix("training.") not in CHANGEABLE_ON_RESUME
    ]
    if problems:
        refusal = Problem(
            str(run.folder), "cannot be resumed with another recipe", "give another --out"
        )
        raise ConfigError(problems=[*problems, refusal])


# Memory


def with_fitting_batches(
    recipe: AnyRecipe, train: Examples, model: nn.Module, accelerator: Accelerator
) -> AnyRecipe:
    """The recipe with `batch_tokens` lowered to what fits into the memory of every process."""
    with explained_out_of_memory(recipe):
        fitting = fitting_batch_tokens(recipe, train, model, accelerator)
    tokens = int(accelerator.gather(torch.tensor([fitting], device=accelerator.device)).min())
    if tokens == 0:
        what = (
            f"not even the longest example, of {int(train.lengths.max()):,} tokens, fits "
            "into memory"
        )
        hint = "use a smaller model, or lower data.max_length"
        raise ConfigError(what, where="training.batch_tokens", hint=hint)
    tree = recipe.model_dump()
    tree["training"]["batch_tokens"] = tokens
    return recipe_of(tree)


@contextmanager
def explained_out_of_memory(
    recipe: AnyRecipe, fitting: Callable[[], int] = lambda: 0
) -> Iterator[None]:
    """Turn an out-of-memory error into a ConfigError with a `batch_tokens` that fits, from
    `fitting` if it succeeds.

    Otherwise half the batch is suggested, with twice the accumulation.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _out_of_memory(error):
            raise
        clear_frames(error.__traceback__)  # they still refer to large tensors
        config = recipe.training
        assert isinstance(config.batch_tokens, int)
        try:
            fits = fitting()
        except (RuntimeError, MemoryError) as again:
            if not _out_of_memory(again):
                raise
            fits = 0
        tokens = fits if 0 < fits < config.batch_tokens else max(1, config.batch_tokens // 2)
        accumulate = math.ceil(config.accumulate * config.batch_tokens / tokens)
        what = f"out of memory with batches of {config.batch_tokens:,} tokens"
        hint = (
            f"{tokens}{' fits, and' if tokens == fits else ''} with "
            f"training.accumulate={accumulate} makes the same "
            "steps, or use a smaller model"
        )
        raise ConfigError(what, where="training.batch_tokens", hint=hint) from None


def _out_of_memory(error: Exception) -> bool:
    """torch has an error class for GPU memory only. An illegal memory access is not meant."""
    text = str(error).lower()
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or any(
        phrase in text for phrase in ("out of memory", "not enough memory", "can't allocate memory")
    )


def _fitting_afterwards(
    recipe: AnyRecipe, train: Examples, model: nn.Module, accelerator: Accelerator
) -> int:
    """The `batch_tokens` that would have fitted, measured after the training's memory is
    released."""
    model.zero_grad(set_to_none=True)
    model.to("cpu")
    accelerator.free_memory()
    return fitting_batch_tokens(recipe, train, model, accelerator)


def budget_note(config: TrainingConfig, train: Examples) -> Iterator[str]:
    """A note if examples are longer than `training.batch_tokens`."""
    assert isinstance(config.batch_tokens, int)
    if longer := int(np.count_nonzero(train.lengths > config.batch_tokens)):
        yield (
            f"{longer:,} of {len(train):,} training examples are longer than training.batch_tokens="
            f"{config.batch_tokens} (the longest: {int(train.lengths.max()):,} tokens): each of "
            "them is a batch of its "
            "own"
        )


# Initial weights: word vectors, and the weights of another run

NAMED = 3  # how many mismatching weights a message names
HEADS = {"masked_head": "output.", "next_sentence": "next_sentence."}
"""Heads that a pre-trained model may lack: config field -> prefix of the weight names."""


def initialise(model: nn.Module, task: Task, recipe: AnyRecipe, base: Path) -> Iterator[str]:
    """Set the initial weights that the recipe names, with a note on each; paths are relative to
    `base`.

    With `training.init` word vectors are not read: that run has trained embeddings.
    """
    vectors, init = recipe.model.vectors, recipe.training.init
    if init is not None:
        yield _take_weights(model, task, recipe, base)
    if vectors is not None and init is not None:
        yield f"vectors: model.vectors is not read, the weights of {init} include embeddings"
    elif vectors is not None:
        setting = "model.embedding" if hasattr(recipe.model, "embedding") else "model.width"
        within = recipe.readable_folder(base)
        for side, name in vectors.files.items():
            yield _take_vectors(
                model, side, open_text(name, base, within=within), setting, task.tokenizers
            )


@torch.no_grad()
def _take_vectors(
    model: nn.Module, side: str, file: TextFile, setting: str, tokenizers: Tokenizers
) -> str:
    embeddings = cast("dict[str, Embedding]", model.embeddings)
    if side not in embeddings:
        raise ConfigError(
            "this model has no word embeddings", where="model.vectors", hint="leave it out"
        )
    weight_VD = embeddings[side].weight
    tokens, vectors = read_vectors(file, tokenizers[side], weight_VD.shape[1], setting)
    weight_VD[torch.from_numpy(tokens)] = torch.from_numpy(vectors)
    return f"vectors: {len(tokens):,} of {len(weight_VD):,} {side} tokens found"


def _take_weights(model: nn.Module, task: Task, recipe: AnyRecipe, base: Path) -> str:
    name = str(recipe.training.init)
    try:
        run = Run.open(base / name, accept_recipe=True)  # only its model and tokenizer matter here
    except CheckpointError as error:
        [problem] = error.problems
        hint = f"{problem.hint}; training.init=null trains without one"
        raise ConfigError(f"{name}: {problem.what}", where="training.init", hint=hint) from None
    checkpoint = run.checkpoint("best")
    run.check_unchanged(checkpoint)
    problems = [
        *_other_tokenizers(run, name, task.tokenizers),
        *_other_model(name, run.recipe.model, recipe.model),
    ]
    if problems:
        raise ConfigError(problems=problems)
    ours, theirs = stored_weights(model), load_weights(checkpoint)
    if task.head is not None:
        theirs = weights_for(cast("Headed", model), theirs)
        if run.recipe.task != task.name or getattr(run.task, "labels", ()) != getattr(
            task, "labels", ()
        ):
            theirs = _without(theirs, {"head.linear."})  # which has another meaning
        fresh = list(dict.fromkeys(key.rpartition(".")[0] for key in ours if key not in theirs))
        ours = {key: ours[key] for key in theirs if key in ours}
    else:
        here, there = (
            {prefix for field, prefix in HEADS.items() if getattr(config, field, False)}
            for config in (recipe.model, run.recipe.model)
        )
        ours, theirs = _without(ours, here - there), _without(theirs, there - here)
        fresh = [prefix.removesuffix(".") for prefix in HEADS.values() if prefix in here - there]
    _refuse_other_shapes(name, theirs, ours)
    model.load_state_dict(theirs, strict=False)
    return f"weights: those of {name}, {checkpoint.name}" + (
        f"; new: {', '.join(fresh)}" if fresh else ""
    )


def _without(weights: dict[str, Tensor], prefixes: Iterable[str]) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in weights.items() if not key.startswith(tuple(prefixes))}


def _other_tokenizers(run: Run, name: str, tokenizers: Tokenizers) -> Iterator[Problem]:
    """Each id must mean the same token in both runs."""
    theirs = {side: tokenizer.fingerprint for side, tokenizer in run.tokenizers.items()}
    if theirs == {side: tokenizer.fingerprint for side, tokenizer in tokenizers.items()}:
        return
    files = ", ".join(f"{side}: {name}/tokenizer.{side}.json" for side in theirs)
    reuse = (
        f"{name}/tokenizer.json" if run.tokenizers.joint else f"{{{files}}}, tokenizer.joint: false"
    )
    what = f"{name} has another tokenizer, so its embeddings are those of other tokens"
    yield Problem("training.init", what, f"use that one: tokenizer.file: {reuse}")


def _other_model(name: str, theirs: ModelConfig, ours: ModelConfig) -> Iterator[Problem]:
    """Fields that differ, even if the shapes of the weights match: the number of heads, for
    example."""
    there, here = theirs.model_dump(), ours.model_dump()
    if there["kind"] != here["kind"]:
        what = f"{name} is a {there['kind']}, this recipe asks for {here['kind']}"
        yield Problem("training.init", what, "leave the section model out, to use that run's model")
        return
    yield from other_fields(there, here, name)


def _refuse_other_shapes(name: str, theirs: dict[str, Tensor], ours: dict[str, Tensor]) -> None:
    there, here = (
        {key: " x ".join(map(str, tensor.shape)) for key, tensor in side.items()}
        for side in (theirs, ours)
    )
    differing = [key for key in dict.fromkeys([*here, *there]) if there.get(key) != here.get(key)]
    named = [
        f"{key} is {there.get(key, 'missing')} there, {here.get(key, 'missing')} here"
        for key in differing
    ]
    more = [f"and {len(differing) - NAMED:,} more"] if len(differing) > NAMED else []
    if differing:
        what = (
            f"the weights of {name} do not fit this recipe's model: "
            f"{'; '.join([*named[:NAMED], *more])}"
        )
        hint = f"the section model of {name}/recipe.yaml is the one that fits"
        raise ConfigError(what, where="training.init", hint=hint)
