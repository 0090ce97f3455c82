"""Train the recipes of a JSON file in this process, one of several, in float64: `accelerate launch
... THIS FILE`."""

import json
import os
import resource
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import torch
from accelerate.state import AcceleratorState, DistributedType, PartialState

from regard import cli
from regard.errors import RegardError
from regard.training.train import train


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    for name, job in json.loads(Path(sys.argv[1]).read_text()).items():
        os.environ["ACCELERATE_USE_FSDP"] = str("fsdp" in job)
        state = PartialState(cpu=True)  # accelerate shards only on what it takes for GPUs
        kind = DistributedType.MULTI_GPU if "fsdp" in job else DistributedType.MULTI_CPU
        PartialState._shared_state["distributed_type"] = kind
        if "copy of" in job and state.is_main_process:
            shutil.copytree(job["copy of"], job["out"])
        torch.distributed.barrier()
        try:
            # stands for a full disk
            if limit := job.get("largest file", {}).get(os.environ["RANK"]):
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            if "command" in job:
                sys.argv = ["regard", *job["command"]]
                with suppress(SystemExit):
                    cli.main()
                continue
            own = job.get("own", {}).get(os.environ["RANK"], [])
            out = (
                job["out"] + os.environ["RANK"] if "apart" in job else job["out"]
            )  # machines that share no disk
            train(job["recipe"], own, out=out, resume=job.get("resume", False), quiet=True)
            assert (AcceleratorState().distributed_type == DistributedType.FSDP) == ("fsdp" in job)
        except RegardError as error:
            if os.environ["RANK"] == "0":
                print(f"{name}: {error}")


main()
