"""`check`: all problems of a recipe and its data at once, and sizes, memory and time before
training."""

from __future__ import annotations

import itertools
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from regard.config import Tree, parse_yaml, validate
from regard.data.batches import AnyBatch
from regard.data.config import TABLES
from regard.data.corpora import Part
from regard.data.epochs import Stream
from regard.data.prepare import Prepared, prepare_texts
from regard.data.readers import is_saved
from regard.engine import check_environment
from regard.errors import ConfigError, Problem, RegardError
from regard.language import shown, shown_comments
from regard.models.base import count_parameters
from regard.recipes.loading import expect_training_data, load_tree
from regard.recipes.paths import with_absolute_paths
from regard.recipes.proposals.parts import parts_of
from regard.recipes.proposals.raw_text import text_files_in
from regard.recipes.proposals.recipe_text import recipe_text
from regard.recipes.proposals.recognise import recognise
from regard.recipes.proposals.roles import COLUMN_ROLES
from regard.recipes.reading import Proposal
from regard.recipes.recipe import AnyRecipe, recipe_of
from regard.recipes.resolved import ResolvedRecipe
from regard.recipes.shipped import shipped
from regard.recipes.switching import Switch, switched_model
from regard.recipes.training_length import replaced_length_notes
from regard.tasks import TASKS, Task
from regard.text.files import TextFile
from regard.text.writing import write_file
from regard.training import memory
from regard.training.accelerator import make_accelerator
from regard.training.display import Display, duration_range
from regard.training.initial_weights import set_initial_weights
from regard.training.notes import budget_note, length_notes, switch_notes
from regard.training.optimiser import build_optimiser
from regard.training.out_of_memory import explained_out_of_memory, with_fitting_batches
from regard.training.pace import Pace
from regard.training.plausibility import warnings_for
from regard.training.resolve import resolve
from regard.training.size import refuse_too_large
from regard.training.time_limit import plan_for
from regard.training.timetable import total_steps

MAX_SHOWN_LABELS = 12
"""Labels that are shown with their counts, the most frequent first."""
MAX_SHOWN_TOKENS = 100
"""Tokens of a sample that are shown."""
MAX_MEASURED_BATCHES = 6
"""Batches at most that the time of a training is estimated from: by the fastest and the slowest of
them."""
SECONDS_OF_MEASURING = 1.0
"""Seconds after which no further batch is measured."""


@dataclass(frozen=True, repr=False)
class Check:
    """The result of `check`. In Python and in notebooks it displays as the command prints it."""

    problems: tuple[Problem, ...] = ()
    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    proposal: Proposal | None = None  # the proposed recipe, if data files were checked
    commands: tuple[str, ...] = ()  # the next commands to use it
    recipe: Tree = field(default_factory=dict)
    """The recipe with all defaults and absolute paths, as `train` takes it; empty if there are
    problems."""

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        missing = ("recipe", *(("proposal", "commands") if self.proposal is None else ()))
        tree = {
            "ok": self.ok,
            **{name: value for name, value in asdict(self).items() if name not in missing},
        }
        tree["training"].pop("seconds_range", None)  # it is for people
        return tree

    def __repr__(self) -> str:
        if not self.ok:
            return shown("\n".join(map(str, self.problems)))
        proposed = [] if self.proposal is None else [shown_comments(self.proposal)]
        return "\n".join([*proposed, *map(shown, self.sentences())])

    def sentences(self) -> Iterator[str]:
        """The same as lines of text, if there are no problems."""
        model, data, training = self.model, self.data, self.training
        counts = {name: f"{count:,}" for name, count in model["parts"].items()}
        tied = {
            name: f"{counts.get(name, 0)} and what {owner} has"
            for name, owner in model.get("tied", {}).items()
        }
        parts = ", ".join(f"{name} {count}" for name, count in (counts | tied).items())
        yield f"model      {model['kind']}, {model['parameters']:,} parameters ({parts})"
        for split, facts in data["splits"].items():
            tokens = ", ".join(
                f"{name} {column['tokens']:,} tokens ({100 * column['unknown']:.2f} % unknown)"
                for name, column in facts["columns"].items()
            )
            yield f"{split:10} {facts['kept']:,} of {facts['read']:,} {data['unit']}; {tokens}"
        yield f"vocabulary {', '.join(f'{name} {size:,}' for name, size in data['vocabulary'].items())}"
        for split, counts in data.get("labels", {}).items():
            ranked, total = (
                sorted(counts.items(), key=lambda item: -item[1]),
                max(1, sum(counts.values())),
            )
            named = [
                f"{label} {count:,} ({100 * count / total:.1f} %)"
                for label, count in ranked[:MAX_SHOWN_LABELS]
            ]
            more = (
                [f"and {len(ranked) - MAX_SHOWN_LABELS:,} more"]
                if len(ranked) > MAX_SHOWN_LABELS
                else []
            )
            yield f"labels     {split}: {', '.join([*named, *more])}"
        for finding in data["findings"]:
            warning = finding.removeprefix("warning: ")
            yield (
                f"note       {shown(finding)}"
                if warning == finding
                else f"warning    {shown(warning)}"
            )
        for name, column in data["splits"]["train"]["columns"].items():
            lengths = column["lengths"]
            yield (
                f"\n{name} lengths in tokens (mean {lengths['mean']:.1f}, longest "
                f"{lengths['longest']})"
            )
            width, longest_bar = lengths["width"], max(lengths["counts"])
            for number, count in enumerate(lengths["counts"]):
                bar = "█" * round(40 * count / longest_bar) or ("▏" if count else "")
                yield f"  {number * width:5}-{(number + 1) * width - 1:<5} {bar} {count:,}"
        yield "\nsamples"
        for sample in data["samples"]:
            yield f"  {sample['where']}"
            for name, pieces in (column for column in sample.items() if column[0] != "where"):
                more = ["…"] if len(pieces) > MAX_SHOWN_TOKENS else []
                yield f"    {name:7} {' '.join([*pieces[:MAX_SHOWN_TOKENS], *more])}"
        yield f"\nbatches    {_batches(training)}"
        yield f"memory     about {training['memory_bytes'] / 2**30:.2f} GiB on {training['device']}"
        yield (
            f"time       about {duration_range(*training['seconds_range'])} for "
            f"{training['steps']:,} steps, "
            f"{training['seconds_per_step']:.3f} s each as measured here"
        )


def _batches(training: dict[str, Any]) -> str:
    """Batches per epoch, their largest size, and the shape of the first one."""
    shapes = {
        name: shape for name, shape in training["sample_batch"].items() if isinstance(shape, list)
    }
    padded = ", ".join(f"{name} padded to {longest}" for name, (_, longest) in shapes.items())
    rows, _ = next(iter(shapes.values()))
    budget = training["batch_tokens"]
    single = ", or one example" if any(longest > budget for _, longest in shapes.values()) else ""
    return (
        f"{training['batches_per_epoch']:,} an epoch of at most {budget:,} tokens{single}; "
        f"the first: {rows} example{'s' if rows > 1 else ''}, {padded}"
    )


def check(
    recipe: str | Path | Tree,
    overrides: Sequence[str] = (),
    *,
    validation: str | Path | Sequence[str | Path] = (),
    test: str | Path | Sequence[str | Path] = (),
    out: str | Path | None = None,
    quiet: bool = False,
    within: str | Path | None = None,
) -> Check:
    """Validate config and data; count, sample and estimate. It trains nothing and creates no run.

    For a data file instead of a recipe, or two parallel files (the second is among the overrides),
    a recipe is proposed and checked, and written to `out` if that is given and nothing is wrong.
    Files for `validation` and `test` are as many as those for training; among the overrides they
    are known by their names: train.tsv dev.tsv test.tsv. `within` is the recipe's own, also for one
    that is proposed.
    """
    problems: list[Problem] = []
    result, proposal, commands, files, notes = (
        Check(),
        None,
        tuple[str, ...](),
        list[str](),
        tuple[str, ...](),
    )
    with _collected(problems):
        check_environment()
        if files := _data_files(recipe, overrides):
            proposal, base, commands, notes = _proposal_for(
                files, overrides, out, {"validation": _names(validation), "test": _names(test)}
            )
            tree = parse_yaml(proposal, where="the proposal")
        elif given := [
            f"--{name}"
            for name, value in (("out", out), ("validation", validation), ("test", test))
            if value
        ]:
            raise ConfigError(
                "it is only for a recipe that is proposed for data files", where=given[0]
            )
        else:
            tree, base = load_tree(recipe, overrides)
            notes = tuple(replaced_length_notes(recipe, overrides))
        if within is not None:
            tree = tree | {"within": str(Path(within).absolute())}
        switch = None if files else switched_model(recipe, overrides)
        result = _check_tree(tree, base, quiet, problems, switch)
        if not problems:
            result.data["findings"].extend(notes)
    if proposal is not None and (reason := _mostly_dropped(result)):
        problems.append(
            Problem(
                files[0],
                reason,
                "are these the columns? 'regard recipes' has a recipe for each task",
            )
        )
        proposal, commands = None, ()
    elif proposal is not None and out is not None and not problems:
        write_file(Path(out), shown_comments(proposal))
    whole = {} if problems else result.recipe
    return replace(
        result, problems=tuple(problems), proposal=proposal, commands=commands, recipe=whole
    )


def is_data(recipe: str | Path | Tree, others: Sequence[str] = ()) -> bool:
    """Whether `check` would propose a recipe, since its arguments name data."""
    return bool(_data_files(recipe, others))


def _data_files(recipe: str | Path | Tree, others: Sequence[str]) -> list[str]:
    """The files of data among the arguments of `check`; none where its first argument is a
    recipe."""
    if isinstance(recipe, dict):
        return []
    path, further = Path(recipe), [other for other in others if "=" not in other]
    if str(recipe) in shipped() or not (is_saved(path) or text_files_in(path)):
        is_table = TextFile(str(recipe), path).suffixes[0] in TABLES
        is_recipe = path.suffix.lower() in (".yaml", ".yml") or (
            not path.suffix and not further and _has_keys(path)
        )
        if is_recipe or not (is_table or path.is_file()):
            return []
    return [str(recipe), *further]


def _names(files: str | Path | Sequence[str | Path]) -> list[str]:
    """The names of files, of which one may be given without a list."""
    return [str(files)] if isinstance(files, str | Path) else [*map(str, files)]


def _has_keys(path: Path) -> bool:
    """Whether a file without a suffix may be a recipe: its first line that is not a comment begins
    as YAML or JSON."""
    if not path.is_file():
        return True
    with suppress(RegardError):
        lines = (
            line
            for line in TextFile(str(path), path).lines()
            if line.strip() and not line.startswith("#")
        )
        return re.match(r"\s*(---|\{|[\"']?\w+[\"']?\s*:)", next(lines, "task:")) is not None
    return False


def _proposal_for(
    files: Sequence[str],
    others: Sequence[str],
    out: str | Path | None,
    own: Mapping[Part, Sequence[str]],
) -> tuple[Proposal, Path, tuple[str, ...], tuple[str, ...]]:
    """The recipe for the files, to be written to `out` if that is given; the folder that its paths
    are relative to; what to type next: save the recipe, unless that is done, and train; and notes.
    `own` has the files that are named for validation and test."""
    chosen, parts = [other for other in others if "=" in other], parts_of(files)
    is_table = TextFile(files[0], Path()).suffixes[0] in TABLES or is_saved(Path(files[0]))
    for override in chosen:
        role = override.partition("=")[0]
        if role not in (*COLUMN_ROLES, "task") or not is_table:
            names = ", ".join(f"{name}=" for name in (*COLUMN_ROLES, "task"))
            hint = (
                "save it with --out, then change it; only what chooses the columns of a "
                f"table goes here: {names}"
            )
            raise ConfigError("a proposal takes no overrides", where=override, hint=hint)
    for part, named in own.items():
        if named and part in parts:
            what = f"{' and '.join(parts[part])} is for {part} by its name"
            raise ConfigError(what, where=f"--{part}", hint="name each file once")
        if named:
            parts[part] = [*named]
    if out is not None and Path(out).exists():
        raise ConfigError("the file exists already", where=str(out), hint="give another --out")
    folder = Path() if out is None else Path(out).parent
    train = parts.pop("train")
    profile = recognise(train, dict(override.split("=", 1) for override in chosen), parts)
    text = Proposal(recipe_text(profile, train, folder))
    text.folder = folder.absolute()
    name = Path(train[0]).name.partition(".")[0] or "mine"
    commands = []
    if out is None:
        out = _unused(Path(f"{name}.yaml"))
        options = [
            text for part, names in own.items() for name in names for text in (f"--{part}", name)
        ]
        commands.append(
            shlex.join(["regard", "check", *files, *chosen, *options, "--out", out.as_posix()])
        )
    run = _unused(Path("runs", Path(out).stem))
    commands.append(shlex.join(["regard", "train", Path(out).as_posix(), "--out", run.as_posix()]))
    return text, text.folder, tuple(commands), profile.notes


def _unused(path: Path) -> Path:
    """The path, or one with a number where that exists."""
    numbered = (
        path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(2)
    )
    return next(free for free in itertools.chain([path], numbered) if not free.exists())


def _mostly_dropped(result: Check) -> str:
    """Why a proposal is of no use, if most examples would be dropped."""
    facts = result.data.get("splits", {}).get("train", {})
    count = sum(finding["count"] for finding in facts.get("dropped", {}).values())
    if 5 * count <= 4 * facts.get("read", 0):
        return ""
    dropped = next(sentence for sentence in result.data["findings"] if "dropped" in sentence)
    return f"nothing is proposed: it would have {dropped}"


@contextmanager
def _collected(problems: list[Problem]) -> Iterator[None]:
    """Add the problems of a RegardError to the list instead of raising it."""
    try:
        yield
    except RegardError as error:
        problems += error.problems


def _check_tree(
    tree: Tree, base: Path, quiet: bool, problems: list[Problem], switch: Switch | None
) -> Check:
    """The facts of a valid recipe. Problems are added to the list; the last one may be raised."""
    try:
        recipe = recipe_of(tree)
    except ConfigError as error:
        problems += error.problems
        task = TASKS.get(str(tree.get("task")))
        with suppress(ConfigError):  # what is wrong in the section `data` is among them
            if task is not None:
                data_config = validate(task.data, tree.get("data") or {})
                with _collected(problems):
                    within = _folder_of(tree, base)
                    prepare_texts(
                        data_config,
                        base=base,
                        seed=1,
                        progress=lambda what, done: None,
                        within=within,
                    )
        return Check()
    expect_training_data(recipe)
    with _collected(problems):
        TASKS[recipe.task].check_recipe(recipe)
    with _collected(problems):
        accelerator = make_accelerator(recipe.training)
        refuse_too_large(recipe, accelerator.device)
    if any(problem.where == "model" for problem in problems):
        return Check()  # the data of a model that cannot be built may take minutes to prepare
    with Display(quiet=quiet) as display:
        data = TASKS[recipe.task].prepare(recipe, base, progress=display.doing)
    return Check() if problems else _facts(recipe, base, data, switch)


def _folder_of(tree: Tree, base: Path) -> Path | None:
    """`within` of a recipe that is not valid; one that is not a text allows the folder of the
    recipe."""
    within = tree.get("within")
    return (
        None if within is None else (base / within if isinstance(within, str) else base).resolve()
    )


def _facts(recipe: AnyRecipe, base: Path, data: Prepared[Any], switch: Switch | None) -> Check:
    accelerator = make_accelerator(recipe.training)
    resolved = resolve(recipe, base, data, accelerator.device)
    task = TASKS[resolved.task](resolved, data.tokenizers)
    task.check(data)
    refuse_too_large(
        resolved,
        accelerator.device,
        [data.tokenizers[name].size for name in task.vocabularies],
    )
    with explained_out_of_memory(resolved):
        model = task.network.build()
        notes = list(switch_notes(switch, task)) if switch else []
        notes += set_initial_weights(model, task, recipe, base)
        if recipe.training.batch_tokens == "auto":
            resolved = with_fitting_batches(resolved, task, data.train, model, accelerator)
        training = _estimate(resolved, task, data, model, accelerator.device)
    notes += [
        *length_notes(resolved.training, training["steps"]),
        *budget_note(resolved.training, data.train),
    ]
    whole = with_absolute_paths(recipe, base).model_dump()
    facts = _data_facts(data, notes, warnings_for(recipe, task, data))
    return Check((), _model_facts(resolved, model), facts, training, recipe=whole)


def _model_facts(recipe: AnyRecipe, model: nn.Module) -> dict[str, Any]:
    """Parameters by part; shared ones count for the first part, so that the parts add up to the
    total."""
    owners: dict[Parameter, str] = {}
    parts: dict[str, int] = {}
    tied: dict[str, str] = {}
    for name, part in model.named_children():
        for parameter in (weight for weight in part.parameters() if weight.requires_grad):
            owner = owners.setdefault(parameter, name)
            parts[owner] = parts.get(owner, 0) + (parameter.numel() if owner == name else 0)
            tied |= {} if owner == name else {name: owner}
    facts = {"kind": recipe.model.kind, "parameters": count_parameters(model), "parts": parts}
    return facts | ({"tied": tied} if tied else {})


def _data_facts(data: Prepared[Any], notes: list[str], warnings: list[str]) -> dict[str, Any]:
    """Counts, findings and the first examples, token by token as the model reads them."""
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    labels = {
        name: data.encoding.label_counts(split)
        for name, split in splits.items()
        if split is not None
    }
    return {
        **data.report.to_json(),
        "vocabulary": {column: tokenizer.size for column, tokenizer in data.tokenizers.items()},
        **({"labels": labels} if labels["train"] else {}),
        "findings": [*warnings, *data.report.sentences(), *notes],
        "samples": [
            {"where": data.train.where(row), **data.encoding.pieces(data.train, row)}
            for row in range(len(data.train))[:3]
        ],
    }


def _loss_per_token(objective: nn.Module, batch: AnyBatch) -> Tensor:
    return memory.sums_of(objective(batch))[0] / batch.tokens


def _estimate(
    recipe: ResolvedRecipe, task: Task, data: Prepared[Any], model: nn.Module, device: torch.device
) -> dict[str, Any]:
    """Steps, memory and time, measured with the first batches; without validations."""
    config = recipe.training
    stream = Stream(data.train, config.batch_tokens, config.seed)
    batches = stream.epoch_batches(0)
    measured = [batch.to(device) for batch, _ in islice(stream, MAX_MEASURED_BATCHES)]
    objective, optimiser = task.objective(model.to(device)), build_optimiser(model, config)
    paces, activations = list[float](), 0
    for batch in (measured[0], *measured):  # the first update allocates memory: it does not count
        started = time.perf_counter()
        loss, saved = memory.saved_by(model, partial(_loss_per_token, objective, batch))
        torch.autograd.backward(loss)
        optimiser.step()
        optimiser.zero_grad()
        loss.item()
        paces.append((time.perf_counter() - started) * config.accumulate)
        activations = activations or saved
        if sum(paces[1:]) > SECONDS_OF_MEASURING:
            break
    paces, batch = paces[1:], measured[0]
    pace = sum(paces) / len(paces)
    if config.minutes is None:
        steps = total_steps(config.steps, config.epochs, batches, config.accumulate)
    else:
        steps = plan_for(60 * config.minutes, Pace(pace, 0.0), config.validate_every).steps
    return {
        "device": str(device),
        "batch_tokens": config.batch_tokens,
        "batches_per_epoch": batches,
        "steps": steps,
        "sample_batch": batch.shapes() | {"target_tokens": batch.tokens},
        "memory_bytes": count_parameters(model) * memory.BYTES_PER_PARAMETER[config.optimizer]
        + activations,
        "seconds_per_step": pace,
        "seconds": pace * steps,
        "seconds_range": (min(paces) * steps, max(paces) * steps),
    }
