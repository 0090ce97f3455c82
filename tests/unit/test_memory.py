"""The batch that fits: the line through two measurements, and what measuring leaves untouched."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from regard.data.prepare import Prepared
from regard.errors import ConfigError
from regard.models import MODELS as KINDS
from regard.models.base import Generator, count_parameters
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.recipes.loading import load_recipe
from regard.recipes.recipe import AnyRecipe
from regard.runs import Run
from regard.tasks import TASKS, Task
from regard.training.accelerator import make_accelerator
from regard.training.memory import (
    fitting_batch_tokens,
    largest_batch,
    largest_measured,
    saved_by,
    step_bytes,
)
from regard.training.out_of_memory import explained_out_of_memory
from regard.training.resolve import resolve
from regard.training.train import train

Tree = dict[str, Any]
MODELS: dict[str, Tree] = {
    "bahdanau": {
        "kind": "bahdanau",
        "embedding": 16,
        "hidden": 16,
        "attention": 16,
        "dropout": 0.1,
    },
    "transformer": {
        "kind": "transformer",
        "preset": "tiny",
        "width": 32,
        "feed_forward": 64,
        "tie": "all",
    },
}


# The line

SMALL, LARGE = (100, 1500), (300, 2500)
"""1,000 bytes in any case and 5 a token."""


@pytest.mark.parametrize(
    ("available", "limit", "longest", "expected"),
    [
        (92_134, 16_384, 100, 16_384),  # 16,384 tokens need 82,920 bytes, nine tenths of 92,134
        (92_133, 16_384, 100, 16_128),
        (10_000, 16_384, 100, 1536),  # 9,000 hold (9,000 - 1,000) / 5 = 1,600 tokens: 6 times 256
        (10_000, 1000, 100, 1000),
        (2500, 16_384, 100, 250),  # below 256
        (
            10_000,
            16_384,
            1600,
            1536,
        ),  # the longest example is a batch of its own: 1,600 tokens fit, 1,601 do not
        (10_000, 16_384, 1601, 0),
        (10_000, 1024, 1600, 1024),
        (10_000, 1024, 1601, 0),
        (1000, 16_384, 1, 0),
    ],
)
def test_the_largest_batch_that_leaves_a_tenth(
    available: int, limit: int, longest: int, expected: int
) -> None:
    assert largest_batch(SMALL, LARGE, available, limit=limit, longest=longest) == expected


def test_noise_of_an_allocator_is_no_falling_line() -> None:
    assert largest_batch(SMALL, (300, 1400), 2000, limit=4096, longest=10) == 4096


@pytest.mark.parametrize(
    ("available", "expected", "more"),
    [
        (1_000_000, 16_384, False),
        (92_134, 16_384, False),
        (80_000, 16_384, True),
        (60_000, 12_544, True),
        (20_000, 3584, True),
        (9000, 1280, True),
        (2000, 0, False),
    ],
)
def test_large_batches_that_need_less_than_small_ones_foretell(
    available: int, expected: int, more: bool
) -> None:
    """5 bytes a token up to 2,000 tokens, 4 from there on: as with a loss that computes large
    batches in parts.

    54,000 bytes hold 2,000 + (54,000 - 11,000) / 4 = 12,750 tokens, 49 times 256; the first line
    alone says 10,600.
    """
    tried = []

    def measure(rows: int) -> int:
        tried.append(1000 + 5 * min(10 * rows, 2000) + 4 * max(0, 10 * rows - 2000))
        return tried[-1]

    found = largest_measured(
        measure, rows=10, length=10, available=available, limit=16_384, longest=300
    )
    assert found == expected
    assert (len(tried) > 2) is more
    assert len(tried) < 6
    assert max(tried[2:], default=0) <= 0.9 * available  # nothing is tried that would not fit


# What is measured


def task_of(recipe: AnyRecipe, data: Prepared) -> Task:
    return TASKS[recipe.task](recipe, data.tokenizers)


def prepared(tree: Tree, *, model: str = "bahdanau") -> tuple[AnyRecipe, Prepared, Generator]:
    tree["model"] = MODELS[model]
    asked, base = load_recipe(tree)
    data = TASKS[asked.task].prepare(asked, base)
    recipe = resolve(asked, base, data, torch.device("cpu"))
    torch.manual_seed(1)
    sizes = [data.tokenizers[column].size for column in ("source", "target")]
    return recipe, data, KINDS[recipe.model.kind].build(recipe.model, *sizes)


def test_saved_bytes_by_hand() -> None:
    """tanh keeps its output, a product both factors; the weights and a tensor that is kept twice do
    not count again."""
    layer = nn.Linear(3, 5, bias=False)
    x_BD = torch.randn(7, 3)
    output, kept = saved_by(layer, lambda: (torch.tanh(layer(x_BD)) ** 2).sum())
    assert kept == 4 * (7 * 3 + 7 * 5)
    output.backward()
    assert layer.weight.grad is not None


def line(recipe: AnyRecipe, data: Prepared, model: Generator) -> tuple[float, float]:
    """Bytes in any case, and for a token, by one and two of the longest example."""
    example = data.train.longest_example()
    length, accelerator = int(data.train.lengths[example]), make_accelerator(recipe.training)
    one, two = (
        step_bytes(
            recipe,
            task_of(recipe, data),
            data.train.batch(np.full(rows, example)),
            model,
            accelerator,
        )
        for rows in (1, 2)
    )
    return 2 * one - two, (two - one) / length


@pytest.mark.parametrize("model", MODELS)
def test_the_line_predicts_what_larger_batches_keep(tiny_recipe: Tree, model: str) -> None:
    recipe, data, built = prepared(tiny_recipe, model=model)
    fixed, per_token = line(recipe, data, built)
    assert fixed == pytest.approx(16 * count_parameters(built), rel=0.05)
    example = data.train.longest_example()
    objective = TokenCrossEntropy(built, smoothing=0.1).train()
    for rows in (5, 40):
        kept = saved_by(
            built, partial(objective, data.train.batch(np.full(rows, example)).unnamed())
        )[1]
        needed = fixed + per_token * rows * int(data.train.lengths[example])
        assert needed == pytest.approx(16 * count_parameters(built) + kept, rel=0.02)


def test_measuring_changes_neither_weights_nor_draws(tiny_recipe: Tree) -> None:
    recipe, data, model = prepared(tiny_recipe)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state, training = torch.get_rng_state(), model.training
    fitting_batch_tokens(
        recipe, task_of(recipe, data), data.train, model, make_accelerator(recipe.training)
    )
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.training is training


def test_little_memory_lowers_the_batch_and_less_refuses(tiny_recipe: Tree) -> None:
    tiny_recipe["training"]["batch_tokens"] = 8192
    recipe, data, model = prepared(tiny_recipe)
    fitting = partial(
        fitting_batch_tokens,
        recipe,
        task_of(recipe, data),
        data.train,
        model,
        make_accelerator(recipe.training),
    )
    fixed, per_token = line(recipe, data, model)
    for tokens in (256, 1024, 4096):
        assert fitting(int((fixed + per_token * tokens) / 0.9) + 2) == tokens
    assert (fitting(int(fixed + per_token * 8192)), fitting(int(fixed)), fitting()) == (
        7168,
        0,
        8192,
    )


# In a training


def test_auto_is_the_same_training_as_its_number(tiny_recipe: Tree, tmp_path: Path) -> None:
    tiny_recipe["data"]["train"]["size"] = 20_000
    tiny_recipe["training"] |= {
        "steps": 4,
        "validate_every": 2,
        "batch_tokens": "auto",
        "decode": 0,
    }
    auto = train(tiny_recipe, out=tmp_path / "auto", quiet=True)
    chosen = Run.open(auto.folder).recipe.training.batch_tokens
    assert chosen not in (1024, 16_384)  # it does depend on the data
    given = train(
        tiny_recipe, [f"training.batch_tokens={chosen}"], out=tmp_path / "given", quiet=True
    )
    saved = [run.checkpoint("last") / "model.safetensors" for run in (auto, given)]
    assert saved[0].read_bytes() == saved[1].read_bytes()
    assert (auto.folder / "recipe.yaml").read_bytes() == (given.folder / "recipe.yaml").read_bytes()


def test_a_resumed_run_keeps_the_number_it_began_with(tiny_recipe: Tree, tmp_path: Path) -> None:
    """Whatever memory there is by then."""
    tiny_recipe["training"] |= {"steps": 2, "validate_every": 1, "batch_tokens": 512, "decode": 0}
    train(tiny_recipe, out=tmp_path / "run", quiet=True)
    longer = ["training.batch_tokens=auto", "training.steps=3"]
    run = train(tiny_recipe, longer, out=tmp_path / "run", resume=True, quiet=True)
    assert Run.open(run.folder).recipe.training.batch_tokens == 512


@pytest.mark.parametrize(
    ("fitting", "said"),
    [
        (96, "96 fits, and with training.accumulate=6 makes the same steps"),  # ceil(2 * 256 / 96)
        (0, "(128 with training.accumulate=4 makes the same steps"),
        (
            256,
            "(128 with training.accumulate=4 makes the same steps",
        ),  # it should have fitted, and did not
    ],
)
def test_out_of_memory_names_the_batch_that_fits(
    tiny_recipe: Tree, fitting: int, said: str
) -> None:
    tiny_recipe["training"] |= {"accumulate": 2}
    recipe, _ = load_recipe(tiny_recipe)
    with (
        pytest.raises(
            ConfigError, match=r"^training\.batch_tokens: out of memory with batches of 256"
        ) as caught,
        explained_out_of_memory(recipe, lambda: fitting),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
    assert said in str(caught.value)


def test_measuring_after_a_failure_starts_from_free_memory(tiny_recipe: Tree) -> None:
    """What the failed step held is let go first, and running out of memory again is no other
    error."""
    recipe, _ = load_recipe(tiny_recipe)
    freed: list[bool] = []

    class Held:
        def __del__(self) -> None:
            freed.append(True)

    def step() -> None:
        held = Held()
        raise MemoryError(held.__class__.__name__)

    def measure() -> int:
        assert freed == [True]
        raise torch.OutOfMemoryError("out of memory, too")

    with (
        pytest.raises(ConfigError, match=r"128 with training\.accumulate=2"),
        explained_out_of_memory(recipe, measure),
    ):
        step()


def test_other_errors_pass(tiny_recipe: Tree) -> None:
    recipe, _ = load_recipe(tiny_recipe)
    with pytest.raises(RuntimeError, match="shapes"), explained_out_of_memory(recipe):
        raise RuntimeError("shapes do not fit")


def test_a_real_failure_is_measured(tiny_recipe: Tree, tmp_path: Path) -> None:
    """Batches of more than 100 tokens fail, as they would on a small device: the message still gets
    to measure."""
    seen: list[int] = []

    def run_out(module: nn.Module, values: Any, output: Any) -> None:
        if isinstance(module, nn.GRU) and values:
            rows = values[0].data.shape[0]
            seen.append(rows)
            if rows > 100:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    handle = nn.modules.module.register_module_forward_hook(run_out)
    try:
        # this machine would hold them all
        with pytest.raises(ConfigError, match=r"128 with training\.accumulate=2"):
            train(tiny_recipe, out=tmp_path / "run", quiet=True)
    finally:
        handle.remove()
    failed = max(seen)
    after = seen[seen.index(failed) + 1 :]
    assert failed > 100
    assert max(after) == 2 * min(after) <= 100  # one and two of the longest example
