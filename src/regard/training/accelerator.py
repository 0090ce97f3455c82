"""The device of a training, its precision, and the processes that train together."""

from __future__ import annotations

import os
from contextlib import nullcontext

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from regard.data.config import TrainingConfig
from regard.errors import ConfigError
from regard.training.precision import mixed_precision
from regard.training.processes import all_joined


def make_accelerator(config: TrainingConfig) -> Accelerator:
    """accelerate's handle on the device, the precision and the other processes."""
    _refuse_other_ways()
    wanted = config.device
    cuda = torch.cuda.is_available()
    mps = torch.backends.mps.is_available()
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
