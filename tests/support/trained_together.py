"""Train the recipes of a JSON file in this process, one of several, in float64: `torchrun THIS FILE JOBS [fsdp]`."""

import json
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch
from accelerate.state import DistributedType, PartialState

from regard import cli
from regard.errors import RegardError
from regard.training.train import train


def main() -> None:
    recipes, *options = sys.argv[1:]
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    for name, job in json.loads(Path(recipes).read_text()).items():
        if "fsdp" in options:  # accelerate shards only on what it takes for GPUs
            PartialState(cpu=True)
            PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
        try:
            if limit := job.get("largest file", {}).get(os.environ["RANK"]):  # stands for a full disk
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            if "command" in job:
                sys.argv = ["regard", *job["command"]]
                with suppress(SystemExit):
                    cli.main()
                continue
            own = job.get("own", {}).get(os.environ["RANK"], [])
            train(job["recipe"], own, out=job["out"], resume=job.get("resume", False), quiet=True)
        except RegardError as error:
            if os.environ["RANK"] == "0":
                print(f"{name}: {error}")


main()
