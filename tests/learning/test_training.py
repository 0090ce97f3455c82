"""The training loop, part by part against plain arithmetic, then as a whole through what a run
folder shows."""

import copy
import json
import math
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from places import GOLDEN
from regard.data.batches import AnyBatch, Batch
from regard.data.config import TrainingConfig
from regard.data.epochs import START
from regard.engine.graphs import CapturedLoss
from regard.errors import RegardError
from regard.models import MODELS as KINDS
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.recipes.loading import load_recipe
from regard.runs import Run
from regard.runs.checkpoints import load_facts, load_weights
from regard.runs.metrics_log import read_metrics
from regard.tasks import TASKS
from regard.training import compile_trial
from regard.training.accelerator import make_accelerator
from regard.training.compiling import compile_options
from regard.training.display import Display
from regard.training.loop import Trainer
from regard.training.notes import compile_notes, length_notes
from regard.training.optimiser import Plateau, build_optimiser, schedule_factor
from regard.training.progress import TrainingProgress
from regard.training.ranking import RankedCheckpoint
from regard.training.resolve import resolve
from regard.training.timetable import total_steps
from regard.training.train import train

Tree = dict[str, Any]


def with_training(recipe: Tree, **changes: Any) -> Tree:
    recipe = copy.deepcopy(recipe)
    recipe["training"] |= changes
    return recipe


def trained(recipe: Tree, folder: Path, **changes: Any) -> Run:
    return train(with_training(recipe, **changes), out=folder / "run", quiet=True)


def make_trainer(recipe: Tree, folder: Path, *, double: bool = False, **changes: Any) -> Trainer:
    """A training that has not begun, without dropout, so that its numbers can be worked out."""
    tree = with_training(recipe, **changes)
    tree["model"]["dropout"] = 0.0
    asked, base = load_recipe(tree)
    data = TASKS[asked.task].prepare(asked, base)
    resolved = resolve(asked, base, data, torch.device("cpu"))
    task = TASKS[asked.task](resolved, data.tokenizers)
    torch.manual_seed(1)
    sizes = [data.tokenizers[side].size for side in ("source", "target")]
    model = KINDS[resolved.model.kind].build(resolved.model, *sizes)
    accelerator = make_accelerator(resolved.training)
    run = Run.create(folder, resolved, data.tokenizers)
    return Trainer(
        run,
        resolved,
        task,
        data,
        model.double() if double else model,
        accelerator,
        Display(quiet=True),
    )


def batch(trainer: Trainer, *examples: int) -> Batch:
    return trainer.data.train.batch(np.array(examples))


def update(trainer: Trainer, *batches: Batch) -> None:
    trainer.update([(one, START) for one in batches])


def is_best(trainer: Trainer, checkpoint: RankedCheckpoint) -> bool:
    """Whether a further checkpoint is the best so far."""
    progress = trainer.progress
    progress.best = trainer.ranking.with_checkpoint(progress.best, checkpoint)
    return progress.best_checkpoint == checkpoint


def weights(trainer: Trainer) -> Tensor:
    return nn.utils.parameters_to_vector(trainer.model.parameters()).detach().clone()


@pytest.mark.parametrize("failing", [2, 3], ids=["capture", "another shape"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_that_does_not_fit_beside_graphs_is_computed_without(
    tiny_recipe: Tree,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failing: int,
    accumulate: int,
) -> None:
    """The gradients are those of the step alone, whatever an interrupted backward pass has
    added."""
    for name, stub in {
        "graph_pool_handle": object,
        "CUDAGraph": Graph,
        "graph": lambda *_, **__: nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stub)
    trainer, plain = (
        make_trainer(tiny_recipe, tmp_path / name, accumulate=accumulate)
        for name in ("one", "other")
    )
    calls: list[float | Tensor] = []

    def loss(batch: AnyBatch, factor: float | Tensor) -> Tensor:
        calls.append(factor)
        sums_2 = trainer.gradients.loss(batch, factor)
        if len(calls) == failing:
            raise torch.OutOfMemoryError
        return sums_2

    trainer.gradients.captured = CapturedLoss(loss, trainer.model.parameters())
    shapes = [
        batch(trainer, 0, 1),
        batch(trainer, 0, 1),
        batch(trainer, 5, 2, 3),
        batch(trainer, 7),
    ]
    for first in range(0, 4, accumulate):
        for each in (trainer, plain):
            update(each, *shapes[first : first + accumulate])
    assert trainer.gradients.captured.full
    assert torch.equal(weights(trainer), weights(plain))


class Graph:
    """Stands for a graph that was captured while its values were computed."""

    def replay(self) -> None:
        pass


def lines(run: Run, event: str) -> list[Tree]:
    return [line for line in read_metrics(run.folder / "metrics.jsonl") if line["event"] == event]


def folders(run: Run) -> set[str]:
    return {path.name for path in run.checkpoints.iterdir()}


# One update


def test_micro_batches_of_unequal_size_equal_one_batch_of_all(
    tiny_recipe: Tree, tmp_path: Path
) -> None:
    apart, joined, naive = (
        make_trainer(
            tiny_recipe, tmp_path / name, double=True, optimizer="sgd", learning_rate=1.0, clip=None
        )
        for name in ("apart", "joined", "naive")
    )
    parts = [(0,), (1, 2, 3, 4, 5, 6, 7), (8, 9)]
    assert len({batch(apart, *part).tokens for part in parts}) == 3
    before = weights(apart)
    update(apart, *(batch(apart, *part) for part in parts))
    update(joined, batch(joined, *range(10)))
    torch.testing.assert_close(weights(apart), weights(joined), rtol=1e-12, atol=1e-14)
    assert apart.progress.loss_sum == 0.0  # losses are added up when they are settled
    apart.losses.collect(apart.progress)
    joined.losses.collect(joined.progress)
    assert apart.progress.loss_sum == pytest.approx(joined.progress.loss_sum, rel=1e-12)
    assert apart.progress.tokens == joined.progress.tokens

    # The mean of the batches' means, which is wrong, would be seen
    mean = torch.zeros_like(before)
    for part in parts:
        loss = naive.objective(batch(naive, *part))[0] / batch(naive, *part).tokens / len(parts)
        mean += nn.utils.parameters_to_vector(
            torch.autograd.grad(loss, list(naive.model.parameters()))
        )
    assert ((before - mean) - weights(joined)).abs().max() > 1e-3


def test_clipping_bounds_the_norm_and_keeps_the_direction(
    tiny_recipe: Tree, tmp_path: Path
) -> None:
    options: Tree = {"optimizer": "sgd", "momentum": 0.0, "learning_rate": 1.0, "double": True}
    free = make_trainer(tiny_recipe, tmp_path / "free", clip=None, **options)
    tight = make_trainer(tiny_recipe, tmp_path / "tight", clip=0.01, **options)
    loose = make_trainer(tiny_recipe, tmp_path / "loose", clip=1000.0, **options)
    before = weights(free)
    for trainer in (free, tight, loose):
        update(trainer, batch(trainer, *range(8)))
    step = weights(free) - before
    assert step.norm() > 0.1
    torch.testing.assert_close(
        weights(tight) - before, step * 0.01 / step.norm(), rtol=1e-4, atol=1e-9
    )
    torch.testing.assert_close(weights(loose), weights(free), rtol=0, atol=0)


def test_smoothing_and_teacher_forcing_are_descended_the_plain_loss_reported(
    tiny_recipe: Tree, tmp_path: Path
) -> None:
    """What they do to the loss stands in test_objectives.py."""
    trainer = make_trainer(
        tiny_recipe, tmp_path / "run", double=True, label_smoothing=0.3, teacher_forcing=0.0
    )
    one = batch(trainer, *range(5))
    own, forced, plain = (
        TokenCrossEntropy(trainer.model, smoothing, teacher_forcing=share).train()(one).tolist()
        for smoothing, share in ((0.3, 0.0), (0.3, 1.0), (0.0, 0.0))
    )
    assert len({round(loss, 3) for loss, _ in (own, forced, plain)}) == 3
    update(trainer, one)
    line = trainer.finish_log_line()
    assert line["loss"] == pytest.approx(own[0] / one.tokens, rel=1e-9)
    assert line["perplexity"] == pytest.approx(math.exp(own[1] / one.tokens), rel=1e-9)


def test_moving_average_equals_a_plain_loop(tiny_recipe: Tree, tmp_path: Path) -> None:
    """Weights that are shared move once."""
    tiny_recipe["model"]["tie"] = "all"
    trainer = make_trainer(tiny_recipe, tmp_path / "run", double=True, ema=0.5)
    average = weights(trainer)
    assert trainer.average is not None
    for step in range(1, 16):
        update(trainer, batch(trainer, step, step + 20))
        decay = min(0.5, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * weights(trainer)
    assert decay == 0.5  # both branches of the minimum were used
    found = nn.utils.parameters_to_vector(trainer.average.model.parameters())
    torch.testing.assert_close(found, average, rtol=1e-12, atol=1e-14)
    assert trainer.used_model is trainer.average.model
    assert (found - weights(trainer)).abs().max() > 1e-3


# Optimisers


def plain_optimiser(config: TrainingConfig, w: float, gradients: Sequence[float]) -> float:
    """The papers' update rules for one number."""
    m = v = velocity = 0.0
    rate, decay = config.learning_rate, config.weight_decay
    for t, g in enumerate(gradients, 1):
        if config.optimizer == "adamw":
            w -= rate * decay * w
        else:
            g += decay * w
        if config.optimizer == "sgd":
            velocity = g if t == 1 else config.momentum * velocity + g
            w -= rate * velocity
            continue
        beta_1, beta_2 = config.betas
        m, v = beta_1 * m + (1 - beta_1) * g, beta_2 * v + (1 - beta_2) * g * g
        w -= rate * (m / (1 - beta_1**t)) / (math.sqrt(v / (1 - beta_2**t)) + 1e-9)
    return w


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_optimisers_follow_the_papers(name: str, decay: float) -> None:
    config = TrainingConfig.model_validate(
        {
            "steps": 1,
            "optimizer": name,
            "learning_rate": 0.1,
            "weight_decay": decay,
            "betas": [0.8, 0.9],
        }
    )
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, 2.0)
    optimiser = build_optimiser(model, config)
    gradients = [0.5, -1.5, 0.25, 3.0]
    for gradient in gradients:
        model.weight.grad = torch.tensor([[gradient]], dtype=torch.double)
        optimiser.step()
    assert float(model.weight.detach()) == pytest.approx(
        plain_optimiser(config, 2.0, gradients), rel=1e-9
    )


@pytest.mark.parametrize("decay_biases", [False, True])
@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_weight_decay_leaves_out_biases_and_norms(name: str, decay_biases: bool) -> None:
    """Without gradients, only what decays moves: an embedding, a matrix; not a bias, nor the gain
    of a norm."""
    config = TrainingConfig(steps=1, optimizer=name, weight_decay=0.1, decay_biases=decay_biases)  # type: ignore[arg-type]
    model = nn.Sequential(nn.Embedding(3, 2), nn.LayerNorm(2), nn.Linear(2, 2), nn.LSTM(2, 2))
    for parameter in model.parameters():
        nn.init.ones_(parameter)
        parameter.grad = torch.zeros_like(parameter)
    build_optimiser(model, config).step()
    moved = {name for name, parameter in model.named_parameters() if (parameter != 1).any()}
    matrices = {"0.weight", "2.weight", "3.weight_ih_l0", "3.weight_hh_l0"}
    assert moved == ({*dict(model.named_parameters())} if decay_biases else matrices)


# Schedules


@pytest.mark.parametrize(
    ("schedule", "warmup", "steps", "expected"),
    [
        # Warm-up over 4 of 11 steps: 1/4, 2/4, 3/4, then the highest at step 4
        ("inverse_sqrt", 4, 11, {1: 0.25, 3: 0.75, 4: 1.0, 9: 2 / 3, 11: math.sqrt(4 / 11)}),
        ("linear", 4, 11, {1: 0.25, 4: 1.0, 6: 0.75, 8: 0.5, 11: 0.125}),
        (
            "cosine",
            4,
            11,
            {
                1: 0.25,
                4: 1.0,
                6: 0.5 + math.sqrt(2) / 4,
                8: 0.5,
                11: 0.5 + 0.5 * math.cos(math.pi * 7 / 8),
            },
        ),
        ("constant", 4, 11, {1: 0.25, 4: 1.0, 8: 1.0, 11: 1.0}),
        ("plateau", 4, 11, {1: 0.25, 4: 1.0, 8: 1.0, 11: 1.0}),
        ("linear", 0.4, 10, {1: 0.25, 4: 1.0, 11: 0.0}),  # a share: 4 of 10 steps
        ("linear", 0.1, 3, {1: 0.75, 3: 0.25}),  # of a training that is too short for it, none
        ("inverse_sqrt", 0, 7, {1: 1.0, 2: math.sqrt(0.5), 4: 0.5}),
        ("linear", 0, 7, {1: 7 / 8, 2: 0.75, 7: 1 / 8}),
        ("constant", 0, 7, {1: 1.0, 2: 1.0, 7: 1.0}),
    ],
)
def test_schedules_by_hand(
    schedule: str, warmup: float, steps: int, expected: dict[int, float]
) -> None:
    config = TrainingConfig.model_validate({"steps": steps, "schedule": schedule, "warmup": warmup})
    for step, factor in expected.items():
        assert schedule_factor(config, step, steps) == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("patience", [0, 1, 3])
def test_plateau_against_torch(patience: int) -> None:
    config = TrainingConfig(
        steps=1, schedule="plateau", plateau_factor=0.3, plateau_patience=patience
    )
    plateau, best = Plateau(config), math.inf
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    reference = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser, factor=0.3, patience=patience, threshold=0.0
    )
    for loss in [5, 4, 4.5, 4.5, 4.2, 3, 3, 3, 3, 3, 3, 2, 9, 9, 9, 9]:
        plateau.add_validation(loss < best)
        best = min(best, loss)
        reference.step(loss)
        assert plateau.scale == pytest.approx(optimiser.param_groups[0]["lr"])
    assert plateau.scale < 1.0


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        (
            {"steps": 8, "warmup": 4, "schedule": "linear", "learning_rate": 0.02, "decode": 0},
            [0.005, 0.01, 0.015, 0.02, 0.016, 0.012, 0.008, 0.004],
        ),
        # nothing is ever translated exactly, so each validation after the first is one more without
        # a better one
        (
            {
                "steps": 12,
                "schedule": "plateau",
                "plateau_patience": 1,
                "plateau_factor": 0.1,
                "learning_rate": 1e-6,
                "validate_every": 2,
                "best": "exact_match",
                "decode": 2,
            },
            [1e-6] * 6 + [1e-7] * 4 + [1e-8] * 2,
        ),
    ],
)
def test_learning_rate_in_use(
    tiny_recipe: Tree, tmp_path: Path, training: Tree, expected: list[float]
) -> None:
    run = trained(tiny_recipe, tmp_path, log_every=1, **training)
    assert [line["learning_rate"] for line in lines(run, "train")] == pytest.approx(expected)


# Which checkpoints, how long


@pytest.mark.parametrize(
    ("metric", "values", "improved", "kept"),
    [
        ("loss", [3.0, 2.0, 2.5, 2.0, 1.0], [True, True, False, False, True], [5, 2]),
        ("perplexity", [9.0, 8.0, 8.5], [True, True, False], [2, 3]),
        ("bleu", [10.0, 12.0, 11.0, 12.0, 30.0], [True, True, False, False, True], [5, 2]),
        ("exact_match", [0.0, 0.0, 0.5, 0.25], [True, False, True, False], [3, 4]),
    ],
)
def test_better_is_lower_or_higher_as_the_metric_says(
    tiny_recipe: Tree,
    tmp_path: Path,
    metric: str,
    values: list[float],
    improved: list[bool],
    kept: list[Any],
) -> None:
    trainer = make_trainer(tiny_recipe, tmp_path / "run", best=metric, keep_best=2)
    assert [
        is_best(trainer, RankedCheckpoint(value, step, loss=1.0))
        for step, value in enumerate(values, 1)
    ] == improved
    assert [entry.step for entry in trainer.progress.best] == kept


def test_the_lower_loss_wins_a_tie(tiny_recipe: Tree, tmp_path: Path) -> None:
    trainer = make_trainer(tiny_recipe, tmp_path / "run", best="exact_match", keep_best=3)
    entries = [
        RankedCheckpoint(0.5, 1, 2.0),
        RankedCheckpoint(1.0, 2, 0.4),
        RankedCheckpoint(1.0, 3, 0.3),
        RankedCheckpoint(1.0, 4, 0.3),
        RankedCheckpoint(0.5, 5, 0.1),
    ]
    assert [is_best(trainer, entry) for entry in entries] == [True, True, True, False, False]
    assert [entry.step for entry in trainer.progress.best] == [3, 4, 2]
    older = TrainingProgress.of(
        asdict(trainer.progress) | {"best": [(1.0, 2)]}
    )  # as earlier versions kept it
    trainer.progress = older
    assert not is_best(trainer, RankedCheckpoint(1.0, 6, 0.01)), (
        "of theirs, whose loss is not known, the earlier one stays"
    )


@pytest.mark.engine  # dropout decides which steps are best
def test_best_checkpoints_are_kept_and_pointed_to(tiny_recipe: Tree, tmp_path: Path) -> None:
    """A learning rate far too high makes the validation loss go up and down."""
    run = trained(
        tiny_recipe, tmp_path, steps=24, validate_every=3, keep_best=2, learning_rate=0.5, decode=0
    )
    validations = lines(run, "validation")
    assert [line["step"] for line in validations] == list(range(3, 25, 3))
    first, second = sorted(validations, key=lambda line: line["loss"])[:2]
    assert first["step"] != 24
    assert folders(run) == {f"step-{step:08d}" for step in (first["step"], second["step"], 24)}
    assert (run.folder / "best").read_text() == f"step-{first['step']:08d}\n"
    assert (run.folder / "last").read_text() == "step-00000024\n"
    ranked = [{"step": line["step"], "loss": line["loss"]} for line in (first, second)]
    assert load_facts(run.checkpoint("last"))["best"] == ranked


@pytest.mark.parametrize(
    ("metric", "rate", "last"),
    [
        ("exact_match", 1e-6, 20),
        ("exact_match", 1.0, None),
        ("loss", 1.0, None),
    ],
)
def test_early_stopping(
    tiny_recipe: Tree, tmp_path: Path, metric: str, rate: float, last: int | None
) -> None:
    """Two validations without a better one end it, and not where a metric that stays at 0 has a
    loss that falls."""
    training: Tree = {"steps": 20, "validate_every": 2, "patience": 2, "decode": 2, "seed": 2}
    run = trained(tiny_recipe, tmp_path, best=metric, learning_rate=rate, **training)
    sign = 1 if metric == "loss" else -1
    values = [(sign * line[metric], line["loss"]) for line in lines(run, "validation")]
    ends = (
        count for count in range(3, len(values)) if min(values[: count - 2]) == min(values[:count])
    )
    expected = next(ends, len(values))
    assert len(values) == expected
    assert last is None or lines(run, "validation")[-1]["step"] == last
    assert last is not None or lines(run, "validation")[-1]["step"] < 20


@pytest.mark.parametrize(("rate", "used"), [(0.003, False), (0.4, True)])
def test_average_of_the_last_checkpoints(
    tiny_recipe: Tree, tmp_path: Path, rate: float, used: bool
) -> None:
    """Early in training an average lags behind; where the weights jump about it is better."""
    run = trained(
        tiny_recipe,
        tmp_path,
        steps=25,
        validate_every=5,
        average=3,
        learning_rate=rate,
        decode=0,
        seed=2,
    )
    parts = [load_weights(run.checkpoint(str(step))) for step in (15, 20, 25)]
    averaged = load_weights(run.checkpoint("average"))
    assert averaged.keys() == parts[0].keys()
    for name, tensor in averaged.items():
        mean = (parts[0][name].double() + parts[1][name].double() + parts[2][name].double()) / 3
        torch.testing.assert_close(tensor, mean.float(), rtol=0, atol=0)
    [line] = lines(run, "average")
    assert (line["loss"] < min(one["loss"] for one in lines(run, "validation"))) is used
    assert (
        (run.folder / "best").read_text() == "average\n"
        if used
        else run.checkpoint("best").name.startswith("step-")
    )
    assert (run.folder / "last").read_text() == "step-00000025\n"


def test_an_average_that_is_only_as_good_is_not_used(tiny_recipe: Tree, tmp_path: Path) -> None:
    run = trained(
        tiny_recipe, tmp_path, steps=4, validate_every=2, average=2, best="exact_match", decode=2
    )
    measured = [*lines(run, "validation"), *lines(run, "average")]
    assert [line["exact_match"] for line in measured] == [0.0] * 3
    assert measured[1]["loss"] < measured[2]["loss"] < measured[0]["loss"]
    assert (run.folder / "best").read_text() == "step-00000004\n"


def test_validation_and_checkpoints_each_have_their_own_pace(
    tiny_recipe: Tree, tmp_path: Path
) -> None:
    paces: Tree = {"validate_every": 5, "checkpoint_every": 4, "log_every": 6}
    run = trained(tiny_recipe, tmp_path, steps=17, average=99, decode=0, **paces)
    assert [line["step"] for line in lines(run, "train")] == [6, 12, 17]
    assert [line["step"] for line in lines(run, "validation")] == [5, 10, 15, 17]
    assert folders(run) == {f"step-{step:08d}" for step in (4, 5, 8, 10, 12, 15, 16, 17)} | {
        "average"
    }


@pytest.mark.parametrize(
    ("steps", "epochs", "batches", "group", "expected"),
    [
        (100, None, 7, 1, 100),
        (None, 3, 7, 1, 21),
        (None, 3, 7, 2, 11),
        (10, 3, 7, 1, 10),
        (100, 3, 7, 1, 21),
    ],
)
def test_steps_or_epochs_first(
    steps: int | None, epochs: int | None, batches: int, group: int, expected: int
) -> None:
    assert total_steps(steps, epochs, batches, group) == expected


def test_epochs_show_each_example_once(tiny_recipe: Tree, tmp_path: Path) -> None:
    recipe = with_training(
        tiny_recipe, steps=None, epochs=2, log_every=1, decode=0, validate_every=None
    )
    run = train(recipe, out=tmp_path / "run", quiet=True)
    data = TASKS[run.recipe.task].prepare(run.recipe, tmp_path)
    tokens = sum(line["tokens"] for line in lines(run, "train"))
    assert tokens == 2 * int((data.train.columns["target"].lengths + 1).sum())
    last = lines(run, "train")[-1]
    assert [line["step"] for line in lines(run, "validation")] == [last["step"] // 2, last["step"]]
    assert [line["epoch"] for line in lines(run, "train")] == sorted(
        line["epoch"] for line in lines(run, "train")
    )


# What a run shows of its training


def test_lines_of_the_log(tiny_run: Path) -> None:
    run = Run.open(tiny_run)
    every = list(read_metrics(tiny_run / "metrics.jsonl"))
    assert [(line["event"], line["step"]) for line in every] == [
        ("train", 5),
        ("train", 10),
        ("timing", 10),
        ("validation", 10),
        ("train", 15),
        ("train", 20),
        ("timing", 20),
        ("validation", 20),
    ]
    for line in lines(run, "train"):
        assert set(line) == {
            "event",
            "step",
            "epoch",
            "loss",
            "perplexity",
            "learning_rate",
            "unit",
            "tokens",
            "tokens_per_second",
            "seconds_per_step",
        }
    for line in lines(run, "validation"):
        assert set(line) == {
            "event",
            "step",
            "loss",
            "perplexity",
            "bleu",
            "chrf",
            "exact_match",
            "samples",
        }
        assert line["perplexity"] == pytest.approx(math.exp(line["loss"]))
        [sample] = line["samples"]
        assert sample["target"] == sample["source"][::-1]
    assert lines(run, "train")[-1]["loss"] < lines(run, "train")[0]["loss"] - 0.3


def test_validation_loss_is_that_of_the_saved_weights(tiny_run: Path) -> None:
    run = Run.open(tiny_run)
    data = TASKS[run.recipe.task].prepare(run.recipe, tiny_run)
    total, tokens = run.task.metrics.summed_loss(run.load_model("last"), data.validation)
    assert total / tokens == pytest.approx(lines(run, "validation")[-1]["loss"], rel=1e-6)


def test_tensorboard_gets_the_same_numbers(tiny_run: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(tiny_run / "tensorboard")).Reload()
    for event, name in [("train", "loss"), ("train", "learning_rate"), ("validation", "bleu")]:
        expected = [(line["step"], line[name]) for line in lines(Run.open(tiny_run), event)]
        found = [(scalar.step, scalar.value) for scalar in events.Scalars(f"{event}/{name}")]
        assert [step for step, _ in found] == [step for step, _ in expected]
        assert [value for _, value in found] == pytest.approx(
            [value for _, value in expected], rel=1e-6
        )


def test_same_seed_same_run_and_another_seed_another(
    tiny_recipe: Tree, tiny_run: Path, tmp_path: Path
) -> None:
    again = train(tiny_recipe, out=tmp_path / "again", quiet=True)
    other = train(with_training(tiny_recipe, seed=2), out=tmp_path / "other", quiet=True)
    saved = [
        run.checkpoint("last") / "model.safetensors" for run in (Run.open(tiny_run), again, other)
    ]
    assert saved[0].read_bytes() == saved[1].read_bytes()
    assert saved[0].read_bytes() != saved[2].read_bytes()


def test_bf16_on_a_cpu_learns(tiny_recipe: Tree, tiny_run: Path, tmp_path: Path) -> None:
    run = trained(tiny_recipe, tmp_path, precision="bf16")
    losses = [line["loss"] for line in lines(run, "train")]
    single = [line["loss"] for line in lines(Run.open(tiny_run), "train")]
    assert losses[-1] < losses[0] - 0.3
    assert losses != single
    assert losses == pytest.approx(single, rel=0.05)
    assert all(
        tensor.dtype == torch.float32 for tensor in load_weights(run.checkpoint("last")).values()
    )


# What goes wrong


def test_a_loss_that_is_not_a_number_stops_with_the_batch_named(
    tiny_recipe: Tree, tmp_path: Path
) -> None:
    recipe = with_training(tiny_recipe, learning_rate=1e30, checkpoint_every=1, validate_every=50)
    with pytest.raises(
        RegardError, match=r"step 2: the loss became NaN.*corpus reverse:\d+.*step-00000001"
    ):
        train(recipe, out=tmp_path / "run", quiet=True)
    run = Run.open(tmp_path / "run")
    assert folders(run) == {"step-00000001"}
    run.load_model("last")


def test_a_gradient_that_is_not_a_number_reaches_no_checkpoint(
    tiny_recipe: Tree, tmp_path: Path
) -> None:
    """Its loss still is one: without a look at the gradient the spoilt weights would be saved."""
    trainer = make_trainer(
        tiny_recipe, tmp_path / "run", steps=3, checkpoint_every=1, validate_every=1, decode=0
    )
    trainer.train()
    assert folders(trainer.run) == {"step-00000003"}
    trainer.timetable.steps = 4
    next(trainer.model.parameters()).register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(
        RegardError, match=r"step 4: the gradient became NaN or infinite.*step-00000003, is intact"
    ):
        trainer.train()
    assert folders(trainer.run) == {"step-00000003"}
    assert all(
        tensor.isfinite().all() for tensor in load_weights(trainer.run.checkpoint("last")).values()
    )


def test_weights_that_validate_to_no_number_are_not_saved(
    tiny_recipe: Tree, tmp_path: Path
) -> None:
    recipe = with_training(tiny_recipe, learning_rate=1e30, validate_every=1)
    with pytest.raises(RegardError, match="step 1: the validation loss became NaN or infinite"):
        train(recipe, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("given", "resolved", "device", "said"),
    [
        ("auto", True, "cuda", "compiling the model"),
        (True, True, "cpu", "compiling the model"),
        (
            "auto",
            False,
            "cuda",
            "the model is not compiled: a training of under 100,000,000 tokens ends sooner without",
        ),
        (False, False, "cuda", None),
        ("auto", False, "cpu", None),
    ],
)
def test_what_compile_became_is_noted(
    given: Any, resolved: bool, device: str, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    asked = TrainingConfig(steps=1, compile=given)
    chosen = TrainingConfig(steps=1, compile=resolved, fill=device == "cuda")
    notes = [*compile_notes(asked, chosen, torch.device(device))]
    assert [note[: len(said or "")] for note in notes] == [said] * (said is not None)


@pytest.mark.parametrize("ways", ["too short", "clearly too short", "faster", "slower"])
def test_finding_out_whether_to_compile_leaves_no_trace(
    ways: str, tiny_recipe: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision is in the recipe, and the weights after a step are those of a training without a
    trial. The compiler does nothing here, and a clock decides."""
    trainers = [make_trainer(tiny_recipe, tmp_path / name, accumulate=2) for name in ("a", "b")]
    untried, tried = trainers
    compile_module = nn.Module.compile
    monkeypatch.setattr(
        nn.Module, "compile", lambda module, **_: compile_module(module, backend="eager")
    )
    if not ways.endswith("too short"):
        monkeypatch.setattr(compile_trial, "MIN_SECONDS", 0.0)
    # the clock is read before and after the steps of each way
    readings = {
        "too short": [0, 30],
        "clearly too short": [0, 0.001],  # which is not long enough to be sure of anything else
        "faster": [0, 2, 2, 3],
        "slower": [0, 1, 1, 3],
    }
    clock = iter(readings[ways])
    random_state = torch.get_rng_state()
    with monkeypatch.context() as patch:
        patch.setattr(compile_trial, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
        *_, said = compile_trial.settle_compile(tried)
    is_compiled = ways == "faster"
    assert said.startswith("the model is compiled" if is_compiled else "the model is not compiled")
    assert tried.recipe.training.compile == is_compiled
    assert (tried.objective._compiled_call_impl is not None) == is_compiled
    assert torch.equal(torch.get_rng_state(), random_state)
    assert not tried.optimiser.state
    for trainer in trainers:
        with closing(trainer.batches()) as batches:
            trainer.update([next(batches) for _ in range(2)])
    # the compiler rounds in other places
    rounding = {"rtol": 1e-3, "atol": 1e-4} if is_compiled else {"rtol": 0.0, "atol": 0.0}
    torch.testing.assert_close(tried.model.state_dict(), untried.model.state_dict(), **rounding)


def test_gradients_of_narrow_norms_are_compiled_into_two_kernels() -> None:
    """For wide ones torch's one kernel is faster; a model without norms has none to compile."""
    narrow, wide = nn.Sequential(nn.Linear(4, 512), nn.LayerNorm(512)), nn.LayerNorm(768)
    assert compile_options(narrow) == {"triton.mix_order_reduction": False}
    assert compile_options(nn.Sequential(narrow, wide)) is None


def test_a_warmup_that_takes_most_of_the_training_is_noted_and_an_early_end() -> None:
    assert [*length_notes(TrainingConfig(steps=100, warmup=50), 100)] == []
    assert [*length_notes(TrainingConfig(steps=100, warmup=0.5), 100)] == []
    [note] = length_notes(TrainingConfig(steps=100, warmup=51), 100)
    assert note.startswith("training.warmup=51 is more than half of the 100 steps")
    assert note.endswith("10 would be a tenth")
    [note] = length_notes(TrainingConfig(steps=20, epochs=3, warmup=2), 12)
    assert note == "training.epochs=3 ends at step 12, before training.steps=20"


# A refactor must not move a number

LOSSES = GOLDEN / "losses.json"
MODELS: dict[str, Tree] = {
    "rnn": {"kind": "rnn", "preset": "tiny", "embedding": 16, "hidden": 16},
    "bahdanau": {
        "kind": "bahdanau",
        "preset": "tiny",
        "embedding": 16,
        "hidden": 16,
        "attention": 16,
    },
    "luong": {
        "kind": "luong",
        "preset": "tiny",
        "embedding": 16,
        "hidden": 16,
        "reach": "local_p",
        "window": 3,
    },
    "self_attention": {
        "kind": "self_attention",
        "preset": "tiny",
        "encoder": "projected",
        "width": 16,
        "heads": 2,
        "feed_forward": 32,
        "decoder_layers": 1,
        "norm": "post",
    },
    "transformer": {
        "kind": "transformer",
        "preset": "tiny",
        "width": 16,
        "heads": 2,
        "feed_forward": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "norm": "post",
    },
}


@pytest.mark.parametrize("kind", MODELS)
def test_golden_losses(tiny_recipe: Tree, tmp_path: Path, kind: str) -> None:
    """Frozen from our own seed: proves only that nothing has changed. Kernels of other machines
    round otherwise."""
    recipe = with_training(tiny_recipe, log_every=1, validate_every=20, decode=0)
    recipe["model"] = MODELS[kind] | {"dropout": 0.0}
    found = [
        line["loss"] for line in lines(train(recipe, out=tmp_path / "run", quiet=True), "train")
    ]
    assert found == pytest.approx(json.loads(LOSSES.read_text())[kind], rel=1e-3)
