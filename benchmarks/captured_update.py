"""How much faster are clipping, the step of Adam and `zero_grad` as one CUDA graph (`CapturedUpdate`)?

python benchmarks/captured_update.py                  # one GPU: results beside torch's, and host seconds per update
python benchmarks/captured_update.py --device cpu     # the same equation without a graph: only the results
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.engine.graphs import CapturedUpdate
from regard.engine.optimisers import without_compiler

LIMIT = 1.0


def bert_small() -> nn.Module:
    """As many weights, of the same shapes, as four layers of BERT `small`."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    return nn.Sequential(nn.Embedding(16_000, 512), nn.TransformerEncoder(layer, 4))


def optimiser_of(model: nn.Module) -> torch.optim.AdamW:
    """Matrices decay, vectors do not: two groups, as in a training."""
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    vectors = [weight for weight in model.parameters() if weight.dim() <= 1]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return without_compiler(torch.optim.AdamW)(groups, 1e-3, weight_decay=0.1, fused=True)


def updates(model: nn.Module, captured: bool) -> Callable[[], Tensor]:
    weights = [*model.parameters()]
    optimiser = optimiser_of(model)
    captured_update = CapturedUpdate(weights, optimiser, LIMIT)
    steps = 0

    def plain() -> Tensor:
        norm = torch.nn.utils.clip_grad_norm_(weights, LIMIT)
        optimiser.step()
        optimiser.zero_grad(set_to_none=False)
        return norm

    def update() -> Tensor:
        nonlocal steps
        steps += 1
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 / steps
        return (captured_update if captured else plain)()

    return update


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    torch.manual_seed(1)
    models = {False: bert_small().to(options.device)}
    models[True] = copy.deepcopy(models[False])
    update = {captured: updates(model, captured) for captured, model in models.items()}
    gradients = [
        [torch.randn_like(weight) * scale for weight in models[False].parameters()]
        for scale in (1.0, 1e-6)
    ]
    for model in models.values():
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight)
    for step in range(8):  # clipped and not clipped in turn
        norms = []
        for captured, model in models.items():
            for weight, gradient in zip(model.parameters(), gradients[step % 2], strict=True):
                assert weight.grad is not None
                weight.grad.copy_(gradient)
            norms.append(float(update[captured]()))
        assert math.isclose(*norms, rel_tol=1e-5), norms
        for one, other in zip(models[False].parameters(), models[True].parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    print("the weights and norms are those of clip_grad_norm_ and AdamW")
    if options.device == "cpu":
        return
    for captured in (False, True, False, True):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(options.steps):
            update[captured]()
        host = time.perf_counter() - started
        torch.cuda.synchronize()
        whole = time.perf_counter() - started
        name = "captured" if captured else "as it is"
        print(
            f"{name}: host {1e6 * host / options.steps:.0f} us, in all {1e6 * whole / options.steps:.0f} us"
        )


if __name__ == "__main__":
    main()
