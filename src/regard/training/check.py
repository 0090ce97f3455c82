"""`check`: everything that can be known before training, and all that is wrong at once."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import Parameter

from regard.config import parse_yaml, validate
from regard.config.load import Tree
from regard.data.batch import AnyBatch
from regard.data.batches import Stream
from regard.data.prepare import Prepared
from regard.data.texts import prepare_texts
from regard.errors import ConfigError, Problem, RegardError
from regard.models import Generator
from regard.models.base import count_parameters
from regard.recipes.propose import data_files, next_commands, proposal_for
from regard.recipes.recipe import AnyRecipe, expect_training_data, load_tree, recipe_of
from regard.tasks import TASKS, Task
from regard.training.display import Display
from regard.training.initial import initialise
from regard.training.memory import (
    BYTES_PER_PARAMETER,
    budget_note,
    memory_named,
    saved_by,
    sums_of,
    with_fitting_batches,
)
from regard.training.optimiser import build_optimiser
from regard.training.progress import total_steps
from regard.training.schedule import length_notes
from regard.training.train import check_metric, make_accelerator, resolve


@dataclass(frozen=True)
class Check:
    """What `check` found."""

    problems: tuple[Problem, ...] = ()
    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    proposal: str | None = None
    """The recipe that is proposed, where files of data were checked."""
    commands: tuple[str, ...] = ()
    """What to type next to use it."""

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        problems = [{"where": one.where, "what": one.what, "hint": one.hint} for one in self.problems]
        proposal = {} if self.proposal is None else {"proposal": self.proposal, "commands": list(self.commands)}
        return {
            "ok": self.ok, "problems": problems, "model": self.model, "data": self.data, "training": self.training,
            **proposal,
        }  # fmt: skip


def check(
    recipe: str | Path | Tree, overrides: Sequence[str] = (), *, out: str | Path | None = None, quiet: bool = False
) -> Check:
    """Validate config and data; count, sample and estimate. Trains nothing and makes no run.

    For a file of data instead of a recipe, or two parallel ones (the second stands among the overrides), a recipe is
    proposed, written to `out` if that is given, and then checked.
    """
    problems: list[Problem] = []
    found, proposal, commands = Check(), None, list[str]()
    with noted(problems):
        if files := data_files(recipe, overrides):
            proposal, base = proposal_for(files, overrides, out)
            commands = next_commands(files, out)
            tree = parse_yaml(proposal, where="the proposal")
        elif out is not None:
            raise ConfigError("only a recipe that is proposed for files of data is written", where="--out")
        else:
            tree, base = load_tree(recipe, overrides)
        found = _check_tree(tree, base, quiet)
    return replace(found, problems=(*problems, *found.problems), proposal=proposal, commands=tuple(commands))


def _check_tree(tree: Tree, base: Path, quiet: bool) -> Check:
    problems: list[Problem] = []
    with noted(problems):
        try:
            asked = recipe_of(tree)
        except ConfigError as error:
            problems += error.problems
            _read_data(tree, base)
            return Check(tuple(problems))
        expect_training_data(asked)
        with noted(problems):
            check_metric(asked)
        with noted(problems):
            make_accelerator(asked.training)
        data = _prepared(asked, base, quiet)
        if not problems:
            return _facts(asked, base, data)
    return Check(tuple(problems))


@contextmanager
def noted(problems: list[Problem]) -> Iterator[None]:
    """A user's mistake is written down, and the search for more goes on."""
    try:
        yield
    except RegardError as error:
        problems += error.problems


def _read_data(tree: Tree, base: Path) -> None:
    """Find the mistakes in the data of a recipe that has others elsewhere."""
    task = TASKS.get(str(tree.get("task")))
    if task is None:
        return
    try:
        data = validate(task.data, tree.get("data") or {})
    except ConfigError:  # said already
        return
    prepare_texts(data, base=base, seed=1, progress=lambda what, done: None)


def _prepared(recipe: AnyRecipe, base: Path, quiet: bool) -> Prepared[Any]:
    with Display(quiet=quiet) as display:
        return TASKS[recipe.task].prepare(recipe, base, progress=lambda what, done: display.doing(what, done))


def _facts(asked: AnyRecipe, base: Path, data: Prepared[Any]) -> Check:
    accelerator = make_accelerator(asked.training)
    recipe = resolve(asked, base, data, accelerator.device)
    with memory_named(recipe):
        task = TASKS[recipe.task](recipe, data.tokenizers)
        model = task.model()
        begun = list(initialise(model, task, asked, base))
        if asked.training.batch_tokens == "auto":
            recipe = with_fitting_batches(recipe, data.train, model, accelerator)
        training = _estimate(recipe, task, data, model, accelerator.device)
    notes = [*begun, *length_notes(recipe.training, training["steps"]), *budget_note(recipe.training, data.train)]
    return Check((), _model_facts(recipe, model), _data_facts(data, notes), training)


def _model_facts(recipe: AnyRecipe, model: Generator) -> dict[str, Any]:
    """Parameters by part; those that several parts share are the first one's, so that the parts add up to the whole."""
    owners: dict[Parameter, str] = {}
    parts: dict[str, int] = {}
    tied: dict[str, str] = {}
    for name, part in model.named_children():
        for parameter in (one for one in part.parameters() if one.requires_grad):
            owner = owners.setdefault(parameter, name)
            parts[owner] = parts.get(owner, 0) + (parameter.numel() if owner == name else 0)
            tied |= {} if owner == name else {name: owner}
    facts = {"kind": recipe.model.kind, "parameters": count_parameters(model), "parts": parts}
    return facts | ({"tied": tied} if tied else {})


def _data_facts(data: Prepared[Any], notes: list[str]) -> dict[str, Any]:
    vocabularies = {column: tokenizer.size for column, tokenizer in data.tokenizers.items()}
    return {
        **data.report.to_json(),
        "vocabulary": vocabularies,
        **_label_counts(data),
        "findings": [*data.report.sentences(), *notes],
        "samples": samples(data),
    }


def _label_counts(data: Prepared[Any]) -> dict[str, Any]:
    """How often each label occurs in each split, for tasks that have labels."""
    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    counts = {name: part.label_counts() for name, part in parts.items() if part is not None}
    return {"labels": counts} if counts["train"] else {}


def samples(data: Prepared[Any], count: int = 3) -> list[dict[str, Any]]:
    """The first examples as the model will read them: token by token."""
    return [{"where": data.train.where(row), **data.train.pieces(row)} for row in range(min(count, len(data.train)))]


def _estimate(
    recipe: AnyRecipe, task: Task, data: Prepared[Any], model: Generator, device: torch.device
) -> dict[str, Any]:
    """Steps, memory and time, from the first batch, which is really computed here."""
    config = recipe.training
    assert isinstance(config.batch_tokens, int)
    stream = Stream(data.train, config.batch_tokens, config.seed)
    batches = stream.epoch_batches(0)
    steps = total_steps(config.steps, config.epochs, batches, config.accumulate)
    batch = next(iter(stream))[0]
    seconds, activations = _measured_step(recipe, task, model.to(device), batch.to(device))
    return {
        "device": str(device),
        "batch_tokens": config.batch_tokens,
        "batches_per_epoch": batches,
        "steps": steps,
        "sample_batch": batch.shapes() | {"target_tokens": batch.tokens},
        "memory_bytes": count_parameters(model) * BYTES_PER_PARAMETER[config.optimizer] + activations,
        "seconds_per_step": seconds * config.accumulate,
        "seconds": seconds * config.accumulate * steps,
    }


def _measured_step(recipe: AnyRecipe, task: Task, model: Generator, batch: AnyBatch) -> tuple[float, int]:
    """Seconds of one update (the second of two), and the bytes that its forward pass keeps for the backward pass."""
    config = recipe.training
    objective = task.objective(model)
    optimiser = build_optimiser(model, config)
    seconds, kept = 0.0, 0
    for _ in range(2):
        started = time.perf_counter()
        loss, kept = saved_by(model, lambda: sums_of(objective(batch))[0] / batch.tokens)
        torch.autograd.backward(loss)
        optimiser.step()
        optimiser.zero_grad()
        loss.item()
        seconds = time.perf_counter() - started
    return seconds, kept
