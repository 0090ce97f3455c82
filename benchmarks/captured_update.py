"""Would clipping and the step of Adam as one CUDA graph make the steps of small models faster?

    python benchmarks/captured_update.py                  # one GPU: results beside torch's, and host seconds per update
    python benchmarks/captured_update.py --device cpu     # the same equation without a graph: only the results

Fine-tuning waits for the host: clipping, the optimiser's lists and `zero_grad` were 60 % of what its main thread was
seen to do (LOG.md, Training on a GPU). `CapturedUpdate` is a proposal that was written without a GPU at hand. If it is
as right and as fast there as hoped, it belongs into engine/graphs.py, and `Trainer.step` asks it first.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

MAX_GRAPHS = 16
"""Captured updates, each for gradients in other places of the memory."""
LIMIT = 1.0


class CapturedUpdate:
    """Clipping and the step of a fused Adam or AdamW as one CUDA graph.

        g <- g / max(1, |g| / limit)                Pascanu et al. 2013, arXiv:1211.5063

    The division is done by the kernel of the optimiser (`grad_scale`). A graph refers to the memory in which it found
    the gradients, and to the optimiser's state, so the first updates, which create both, are computed without one. A
    learning rate is read from the GPU's memory.
    """

    def __init__(
        self, weights: Sequence[nn.Parameter], optimiser: torch.optim.Adam, limit: float
    ) -> None:
        self.weights = weights
        self.optimiser = optimiser
        self.limit = limit
        self.graphs: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, Tensor] | None] = {}
        groups = optimiser.param_groups
        self.rates_G = torch.zeros(len(groups), device=weights[0].device)
        self.rates = [0.0] * len(groups)

    def __call__(self) -> Tensor:
        """Update the weights; the norm of their gradients before."""
        if not self.optimiser.state or self.weights[0].device.type != "cuda":
            self.graphs.clear()
            return self.update()
        places = tuple(0 if w.grad is None else w.grad.data_ptr() for w in self.weights)
        if places not in self.graphs:
            if len(self.graphs) < MAX_GRAPHS:
                self.graphs[places] = None
            return self.update()
        captured = self.graphs[places] = self.graphs[places] or self.capture()
        graph, norm = captured
        for number, group in enumerate(self.optimiser.param_groups):
            if self.rates[number] != group["lr"]:
                self.rates[number] = group["lr"]
                self.rates_G[number].fill_(group["lr"])
        graph.replay()
        return norm

    def capture(self) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """A graph of the update, which is not computed yet, and the norm that it writes."""
        groups = self.optimiser.param_groups
        rates = [group["lr"] for group in groups]
        graph = torch.cuda.CUDAGraph()
        try:
            for group, rate in zip(groups, self.rates_G, strict=True):
                group |= {"lr": rate, "capturable": True}
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                norm = self.update()
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group |= {"lr": rate, "capturable": False}
        return graph, norm

    def update(self) -> Tensor:
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if math.isfinite(self.limit):
            self.optimiser.grad_scale = (norm / self.limit).clamp(min=1.0)  # type: ignore[attr-defined]
        try:
            self.optimiser.step()
        finally:
            self.optimiser.grad_scale = None  # type: ignore[attr-defined]
        return norm


def bert_small() -> nn.Module:
    """As many weights, of the same shapes, as four layers of BERT `small`."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    return nn.Sequential(nn.Embedding(16_000, 512), nn.TransformerEncoder(layer, 4))


def optimiser_of(model: nn.Module) -> torch.optim.AdamW:
    """Matrices decay, vectors do not: two groups, as in a training."""
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    vectors = [weight for weight in model.parameters() if weight.dim() <= 1]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, 1e-3, weight_decay=0.1, fused=True)


def updates(model: nn.Module, captured: bool) -> Callable[[], Tensor]:
    weights = [*model.parameters()]
    optimiser = optimiser_of(model)
    captured_update = CapturedUpdate(weights, optimiser, LIMIT)
    steps = 0

    def plain() -> Tensor:
        norm = torch.nn.utils.clip_grad_norm_(weights, LIMIT)
        optimiser.step()
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
