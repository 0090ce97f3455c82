"""What a training does not import or compute before its first step."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from regard.engine.optimisers import without_compiler

Tree = dict[str, Any]

TRAIN = """
import sys
from regard.training.train import train
train(sys.argv[1], out=sys.argv[2], quiet=True)
print(*(name for name in ("torch._dynamo", "torch.distributed.tensor", "sympy") if name in sys.modules))
"""


def test_a_training_that_is_not_compiled_imports_no_compiler(
    tiny_recipe: Tree, tmp_path: Path
) -> None:
    """They would take two to four seconds of every start."""
    tiny_recipe["training"] |= {"steps": 2, "device": "cpu"}
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tiny_recipe))
    command = [sys.executable, "-c", TRAIN, str(recipe), str(tmp_path / "run")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == ""
    assert (tmp_path / "run" / "last").is_file()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.Adam, {"fused": True}),
        (torch.optim.AdamW, {"fused": True, "weight_decay": 0.1}),
        (torch.optim.SGD, {"fused": True, "momentum": 0.9}),
    ],
)
def test_an_optimiser_without_compiler_makes_the_same_steps(
    kind: type[torch.optim.Optimizer], options: Tree
) -> None:
    light = without_compiler(kind)
    assert light is not kind
    assert issubclass(light, kind)
    results = []
    for make in (light, kind):
        weight = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
        optimiser = make([weight], lr=0.1, **options)  # type: ignore[call-arg]
        for step in range(4):
            (weight * torch.tensor([1.0, 2.0, 3.0]) * (step + 1)).square().sum().backward()
            optimiser.step()
            optimiser.zero_grad()
            if step == 1:
                state = optimiser.state_dict()
                optimiser = make([weight], lr=0.1, **options)  # type: ignore[call-arg]
                optimiser.load_state_dict(state)
        results.append(weight.detach())
    assert torch.equal(*results)
    assert not torch.equal(results[0], torch.tensor([1.0, -2.0, 3.0]))


def test_steps_of_an_optimiser_without_compiler_are_seen_by_hooks() -> None:
    """A step computes no gradients, and tools that watch optimisers see it."""
    weight = torch.nn.Parameter(torch.ones(2))
    optimiser = without_compiler(torch.optim.Adam)([weight], lr=0.1)
    seen: list[bool] = []
    optimiser.register_step_post_hook(lambda *_: seen.append(torch.is_grad_enabled()))
    weight.grad = torch.ones(2)
    optimiser.step()
    assert len(seen) == 1
    assert weight.requires_grad
    assert weight.grad_fn is None
