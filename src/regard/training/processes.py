"""Several processes that train together: what they must agree on, which of them has ended, and
tensors of which each has a part (FSDP2)."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint

from regard.data.config import TrainingConfig
from regard.data.epochs import Examples
from regard.errors import ConfigError, Problem, RegardError
from regard.recipes.resolved import ResolvedTraining
from regard.runs.weights import Weights, check_weights

LOST_CONNECTION = re.compile(
    r"closed by peer|reset by peer|Broken pipe|Connection refused|Timed out|timeout|NCCL|Gloo", re.I
)
"""What torch says where another process does not answer."""
FAILED_KEY = "regard/failed"
"""Key of the store: the process that has printed its own error."""
ASKED_KEY = "regard/asked"
"""Key of the store: whether all processes shall report."""
T = TypeVar("T")
SECONDS_TO_REPORT = 3.0
"""Seconds in which the processes that are left report."""


@contextmanager
def all_joined() -> Iterator[None]:
    """Refuse to train where the first process cannot be reached or another does not come: torch
    would wait for half an hour. Each reports in the store of the first process, or of its launcher;
    inside, that store stays."""
    number, count, host, port = (
        os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    )
    if torch.distributed.is_initialized() or not (number and count and host and port):
        yield
        return
    here, seconds = f"process {number} ({socket.gethostname()})", _patience()
    own = number == "0" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    if not own and not _within(seconds, lambda: _answers(host, int(port))):
        hint = (
            "has it started, on that machine (--main_process_ip), and does no firewall "
            "stand between?"
        )
        unreachable = RegardError(
            f"process 0 cannot be reached at {host}:{port}", where=here, hint=hint
        )
        unreachable.add_note(f"in process {number}")
        raise unreachable
    try:
        kind = torch.distributed.TCPStore  # type: ignore[attr-defined]
        store = kind(host, int(port), is_master=own, wait_for_workers=False, multi_tenant=True)
    except RuntimeError as error:
        hint = "MASTER_ADDR must be the machine of process 0, and MASTER_PORT free there"
        raise RegardError(f"cannot use {host}:{port}", where=here, hint=hint) from error
    store.set(f"regard/joined/{number}", "")
    everyone = [f"regard/joined/{process}" for process in range(int(count))]
    if not _within(seconds, lambda: store.check(everyone)):
        missing = ", ".join(
            str(process) for process, key in enumerate(everyone) if not store.check([key])
        )
        what = f"process {missing} of {count} has not come in {seconds:g} seconds"
        hint = (
            "its own message, on its machine, may say why; REGARD_JOIN_TIMEOUT gives it "
            "more seconds"
        )
        raise RegardError(what, where=here, hint=hint)
    yield


def _within(seconds: float, done: Callable[[], bool]) -> bool:
    last = time.monotonic() + seconds
    while not done():
        if time.monotonic() > last:
            return False
        time.sleep(0.2)
    return True


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


def _patience() -> float:
    """Seconds in which all processes must have come: REGARD_JOIN_TIMEOUT."""
    given = os.environ.get("REGARD_JOIN_TIMEOUT") or "300"
    if not re.fullmatch(r"\d{1,6}", given):
        raise ConfigError(f"{given!r} is not a number of seconds", where="REGARD_JOIN_TIMEOUT")
    return float(given)


def refuse_unlike(accelerator: Accelerator, facts: Mapping[str, Any]) -> None:
    """Refuse to train if a process has another recipe or other data than the first."""
    everyone = gather_object([(socket.gethostname(), dict(facts))])
    _, first = everyone[0]
    for number, (host, other) in enumerate(everyone):
        unlike = sorted(
            name for name in first.keys() | other.keys() if first.get(name) != other.get(name)
        )
        problems = [
            Problem(
                name,
                f"process 0 has {first.get(name)!r}, process {number} ({host}) {other.get(name)!r}",
            )
            for name in unlike[:3]
        ]
        if unlike:
            what, hint = (
                "all processes must train the same",
                "give all of them the same recipe and the same files",
            )
            raise ConfigError(problems=[*problems, Problem("", what, hint)])


@contextmanager
def naming_lost_processes(accelerator: Accelerator) -> Iterator[None]:
    """Turn what torch raises where another process has died into one message, which says which,
    unless that one has told its own error."""
    ended = Event()
    reporter = Thread(target=_report, args=(accelerator.process_index, ended), daemon=True)
    try:
        reporter.start()
        yield
    except RegardError:
        with suppress(RuntimeError):  # the machine that has the store may be gone
            _store().set(
                FAILED_KEY, f"process {accelerator.process_index} ({socket.gethostname()})"
            )
        raise
    except RuntimeError as error:
        if not LOST_CONNECTION.search(str(error)):
            raise
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends those that are left
        try:
            where = _lost(accelerator)
        except RuntimeError:  # the machine that has the store is gone
            where = "process 0"
        hint = (
            "it may have run out of memory; the same command with --resume continues from "
            "the last checkpoint"
        )
        if "(" in where:
            hint = "its own message, on that machine, says why"
        lost = RegardError("has ended, and with it the training", where=where, hint=hint)
        lost.add_note(f"in process {accelerator.process_index}")
        raise lost from None
    finally:
        ended.set()
        reporter.join(
            SECONDS_TO_REPORT
        )  # Python aborts if it ends while a thread is inside the store


def _store() -> Any:
    return torch.distributed.distributed_c10d._get_default_store()


def _report(number: int, ended: Event) -> None:
    """Say that this process is there as soon as one asks: it may itself wait for another, and know
    nothing yet."""
    store = _store()
    with suppress(RuntimeError):  # the machine that has the store may be gone
        while not ended.wait(SECONDS_TO_REPORT / 6):
            if store.check([ASKED_KEY]):
                store.set(f"regard/alive/{number}", "")
                break


def _lost(accelerator: Accelerator) -> str:
    """Which processes have ended; of all that are left the first returns, and none where a message
    was seen already."""
    store, number = _store(), accelerator.process_index
    store.set(ASKED_KEY, "")
    time.sleep(SECONDS_TO_REPORT)
    everyone = range(accelerator.num_processes)
    alive = [
        process
        for process in everyone
        if process == number or store.check([f"regard/alive/{process}"])
    ]
    reported = store.get(FAILED_KEY).decode() if store.check([FAILED_KEY]) else ""
    if number != min(alive) or reported.endswith(f"({socket.gethostname()})"):
        os._exit(2)
    return (
        reported
        or f"process {', '.join(str(process) for process in everyone if process not in alive)}"
    )


# Blocks


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks of a Transformer, one above the other; other models have none."""
    lists = (module for module in model.modules() if isinstance(module, nn.ModuleList))
    return [block for layers in lists for block in layers if type(block).__name__.endswith("Block")]


def recompute_blocks(model: nn.Module) -> None:
    """Keep only what enters each block: the backward pass computes the rest anew (Chen et al. 2016,
    arXiv:1604.06174).

    It costs a forward pass, a third of the time, and saves most of the memory that activations
    take.
    """
    for block in blocks_of(model):
        forward = block.forward

        def recomputed(*inputs: Any, forward: Any = forward, **named: Any) -> Any:
            if not torch.is_grad_enabled():
                return forward(*inputs, **named)
            return checkpoint(forward, *inputs, use_reentrant=False, **named)

        block.forward = recomputed


# Batches and counts


def batches_at_once(
    train: Examples, config: ResolvedTraining, accelerator: Accelerator, *, carries: bool
) -> int:
    """Batches that all processes take together: one each, but if a state is carried from batch to
    batch they share each batch."""
    processes: int = accelerator.num_processes
    if not carries:
        return processes
    streams = len(train.plan(config.batch_tokens, 0, 0)[0])
    if streams < 2 * processes:
        raise ConfigError(
            f"the text is read as {streams} streams, too few for {processes} processes",
            where="training.batch_tokens",
            hint="raise it: each process needs two",
        )
    return 1


def refuse_average_of_parts(config: TrainingConfig, accelerator: Accelerator) -> None:
    if config.ema is not None and accelerator.is_fsdp2:
        raise ConfigError(
            "FSDP has no whole weights to average", where="training.ema", hint="set it to null"
        )


def sum_over_processes(accelerator: Accelerator, count: int) -> int:
    """The sum of a count over all processes; all of them must call it."""
    if accelerator.num_processes == 1:
        return count
    return int(accelerator.reduce(torch.tensor(count, device=accelerator.device)))


# Tensors of which each process has a part: `DTensor`, known by its methods, since the import takes
# a second


def plan_parts(accelerator: Accelerator, objective: nn.Module, model: nn.Module) -> None:
    """FSDP gathers a block at once. In half precision it gathers the weights, but sums gradients
    and losses in full: accelerate would round these too."""
    vars(objective)["_no_split_modules"] = sorted(
        {type(block).__name__ for block in blocks_of(model) or [model]}
    )
    if not accelerator.is_fsdp2 or accelerator.mixed_precision == "no":
        return
    from torch.distributed.fsdp import MixedPrecisionPolicy

    plugin = accelerator.state.fsdp_plugin
    half = plugin.mixed_precision_policy.param_dtype
    plugin.mixed_precision_policy = MixedPrecisionPolicy(
        param_dtype=half, reduce_dtype=torch.float32
    )


def whole(tree: T) -> T:
    """A tree of values with whole tensors, in every process; all processes must call it."""
    gathered: T = tree_map_only(
        Tensor, lambda part: part.full_tensor() if hasattr(part, "full_tensor") else part, tree
    )
    return gathered


def part_like(tensor: Tensor, like: Any) -> Tensor:
    """This process's part of a whole tensor, if it has only a part of the other."""
    if not hasattr(like, "placements") or tensor.shape != like.shape:
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(
        tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None
    )


def put_parts(model: nn.Module, weights: Weights, where: Path) -> None:
    """Load weights that fit, whole ones, into a model that may be in parts."""
    check_weights(model, weights, where)
    state = model.state_dict()
    model.load_state_dict(
        {name: part_like(tensor, state[name]) for name, tensor in weights.items()}, strict=False
    )


def restore_optimiser(optimiser: torch.optim.Optimizer, stored: dict[str, Any]) -> None:
    """Continue with a state of whole tensors."""
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    state = {
        number: {
            name: part_like(value, weights[number]) if isinstance(value, Tensor) else value
            for name, value in values.items()
        }
        for number, values in stored["state"].items()
    }
    optimiser.load_state_dict(stored | {"state": state})
