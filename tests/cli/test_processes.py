"""Training by several processes: the same weights as by one, one format of checkpoints, and one
message if one dies."""

import copy
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from accelerate import Accelerator
from torch import nn

import regard
from raw_cases import BERT, GPT, LSTM, raw_recipe
from regard.errors import RegardError
from regard.runs.checkpoints import load_weights
from regard.runs.metrics_log import read_metrics
from regard.runs.run import Run
from regard.training.memory import saved_by
from regard.training.processes import all_joined, naming_lost_processes, recompute_blocks
from regard.training.train import train
from tiny import TINY

Tree = dict[str, Any]
MANY = 4 if os.environ.get("REGARD_SLOW") else 2
"""Processes that train together."""
SCRIPT = Path(__file__).parents[1] / "support" / "trained_together.py"
TRANSFORMER: Tree = {
    "kind": "transformer",
    "width": 16,
    "heads": 2,
    "feed_forward": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
}
STILL: Tree = {f"{part}_dropout": 0.0 for part in ("word", "weight", "input", "hidden", "output")}
RECIPES: dict[str, Tree] = {
    "transformer": TINY | {"model": TRANSFORMER | {"dropout": 0.0}},
    "bahdanau": TINY | {"model": TINY["model"] | {"dropout": 0.0}},
    "bert": raw_recipe(BERT | {"dropout": 0.0}),
    "gpt": raw_recipe(GPT | {"dropout": 0.0}),
    "lstm": raw_recipe(LSTM | STILL, {"blocks": "stream"}),
}
DRAWING = TINY | {"model": TINY["model"] | {"dropout": 0.3}}
FSDP = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: "no"
num_machines: 1
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_cpu_ram_efficient_loading: false
"""


def recipe(name: str, processes: int, steps: int = 10) -> Tree:
    """Steps of four batches, whoever computes them; of streams every process has its rows of each
    of two batches."""
    tree = copy.deepcopy((RECIPES | {"drawing": DRAWING})[name])
    accumulate = 2 if name == "lstm" else 4 // processes
    recomputed = {"checkpoint_activations": processes == MANY and name == "transformer"}
    others = recomputed | {
        "log_every": 1,
        "validate_every": steps,
        "decode": 0,
        "samples": 0,
        "device": "cpu",
    }
    tree["training"] |= {"steps": steps, "accumulate": accumulate, **others}
    return tree


def launch(processes: int, folder: Path, jobs: Tree) -> str:
    """Do the jobs with so many processes and return what they print; "full" ends them."""
    surroundings = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    (file := folder / "jobs.json").write_text(json.dumps(jobs))
    (config := folder / "fsdp.yaml").write_text(f"{FSDP}num_processes: {processes}\n")
    launcher = [
        "accelerate.commands.launch",
        "--config_file",
        str(config),
        "--main_process_port",
        "0",
    ]
    command = [sys.executable, "-m", *launcher, str(SCRIPT), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=surroundings)
    assert done.returncode == ("full" in jobs), done.stderr
    assert "has ended" not in done.stderr
    return done.stdout


def train_alone(*jobs: Tree) -> None:
    """Do the jobs in this process, in float64 as well."""
    torch.set_default_dtype(torch.float64)
    try:
        for job in jobs:
            if "copy of" in job:
                shutil.copytree(job["copy of"], job["out"])
            train(job["recipe"], out=job["out"], resume=job.get("resume", False), quiet=True)
    finally:
        torch.set_default_dtype(torch.float32)


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_weights(Run(run).checkpoint("last"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    """Runs by one process, NAME1, by MANY, and by MANY with FSDP2, NAME0; and resumed ones."""
    folder = tmp_path_factory.mktemp("processes")

    def new(name: str, processes: int, steps: int = 10) -> Tree:
        sharded = {} if processes else {"fsdp": True}
        return {
            "recipe": recipe(name, processes or MANY, steps),
            "out": str(folder / f"{name}{processes}"),
            **sharded,
        }

    def half(name: str, processes: int) -> Tree:
        return new(name, processes, 5) | {"out": str(folder / f"{name}{processes}-half")}

    def resumed(name: str, before: int, processes: int) -> Tree:
        tree = new(name, processes) | {"recipe": recipe(name, before or MANY), "resume": True}
        return tree | {
            "copy of": half(name, before)["out"],
            "out": str(folder / f"{name}{before}-by-{processes}"),
        }

    one = recipe("bahdanau", 1, 2)
    one["training"]["accumulate"] = 1
    single = {"recipe": one, "out": str(folder / "single")}
    train_alone(*(new(name, 1) for name in RECIPES), half("gpt", 1), single)
    (file := folder / "recipe.yaml").write_text(json.dumps(recipe("bahdanau", MANY, 2)))
    full = new("gpt", MANY) | {"out": str(folder / "full"), "largest file": {"0": 20_000}}
    full["recipe"]["training"]["checkpoint_every"] = 5
    (bf16 := new("gpt", 0, 3) | {"out": str(folder / "bf16")})["recipe"]["training"][
        "precision"
    ] = "bf16"
    jobs = {
        **{name: new(name, MANY) for name in RECIPES},
        **{f"half {name}": half(name, MANY) for name in ("gpt", "lstm")},
        "resumed": resumed("gpt", 1, MANY),
        "drawing": new("drawing", MANY),
        "half drawing": half("drawing", MANY),
        "resumed drawing": resumed("drawing", MANY, MANY),
        "sharded": new("gpt", 0),
        "half sharded": half("gpt", 0),
        "resumed sharded": resumed("gpt", MANY, 0),
        "bf16": bf16,
        "unlike": {
            "recipe": recipe("gpt", MANY),
            "out": str(folder / "unlike"),
            "own": {"1": ["data.train.size=50"]},
        },
        "uneven": single | {"resume": True},
        "apart": (
            apart := new("bahdanau", MANY, 2) | {"out": str(folder / "apart"), "apart": True}
        ),
        "again": apart | {"resume": True},
        "command": {"command": ["train", str(file), "--out", str(folder / "command"), "--json"]},
        "full": full,
    }
    (folder / "printed").write_text(launch(MANY, folder, jobs))
    train_alone(resumed("gpt", MANY, 1), resumed("gpt", 0, 1), resumed("lstm", MANY, 1))
    return folder


@pytest.mark.parametrize("name", RECIPES)
def test_processes_train_what_one_trains(folder: Path, name: str) -> None:
    """Each step's loss is the sum over the tokens of all, times their number, over all tokens:
    after DDP's mean, the same. So is what is logged."""
    expected = weights(folder / f"{name}1")
    for processes in (MANY, *([0] if name == "gpt" else [])):
        torch.testing.assert_close(
            weights(folder / f"{name}{processes}"), expected, rtol=0, atol=1e-10
        )
        logs = [
            list(read_metrics(folder / f"{name}{count}" / "metrics.jsonl"))
            for count in (1, processes)
        ]
        for key in ("event", "step", "tokens", "epoch"):
            assert [line.get(key) for line in logs[0]] == [line.get(key) for line in logs[1]]
        losses = [[line["loss"] for line in log if line["event"] != "timing"] for log in logs]
        assert losses[0] == pytest.approx(losses[1], rel=1e-9)


@pytest.mark.parametrize(
    ("name", "before", "processes"),
    [
        ("gpt", 1, MANY),
        ("gpt", MANY, 1),
        ("gpt", MANY, 0),
        ("gpt", 0, 1),
        ("lstm", MANY, 1),
    ],
)
def test_a_checkpoint_is_continued_by_any_number(
    folder: Path, name: str, before: int, processes: int
) -> None:
    """0 stands for FSDP2. Position, optimiser and the state of streams go on as if nothing had
    changed."""
    found = weights(folder / f"{name}{before}-by-{processes}")
    torch.testing.assert_close(found, weights(folder / f"{name}1"), rtol=0, atol=1e-10)


def test_each_process_goes_on_with_its_own_dropout(folder: Path) -> None:
    found, expected = (
        weights(folder / f"drawing{MANY}-by-{MANY}"),
        weights(folder / f"drawing{MANY}"),
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_predict_reads_what_was_sharded(folder: Path) -> None:
    outputs = [
        regard.predict(folder / f"gpt{name}", "the cat", device="cpu")[0].to_json()
        for name in (0, 1)
    ]
    assert outputs[0]["output"] == outputs[1]["output"]
    assert outputs[0]["score"] == pytest.approx(outputs[1]["score"])


def test_sharded_losses_are_summed_in_full_precision(folder: Path) -> None:
    lines = [
        line for line in read_metrics(folder / "bf16" / "metrics.jsonl") if line["event"] == "train"
    ]
    sums = [line["loss"] * line["tokens"] for line in lines]
    assert sums != pytest.approx([torch.tensor(one).bfloat16().item() for one in sums], rel=1e-6)


def test_what_several_processes_print(folder: Path) -> None:
    printed = (folder / "printed").read_text()
    assert re.search(r"\ntraining data: process 0 has \d+, process 1 \(.*\) \d+\n", printed)
    assert re.search(r"data.train.0.size: process 0 has 150, process 1 \(.*\) 50\n", printed)
    assert re.search(r"full: .*step-00000005: cannot be written: File too large", printed)
    assert not list((folder / "full" / "checkpoints").iterdir())
    assert (
        "all processes must train the same (give all of them the same recipe and the same files)"
        in printed
    )
    what = (
        f"a step of the run has 1 batches, which {MANY} processes cannot share evenly "
        "(resume with 1)"
    )
    assert f"uneven: --resume: {what}" in printed
    assert re.search(
        r"again: --resume: process 0 has 'step-00000002', process 1 \(.*\) None\n", printed
    )
    assert [path.name for path in folder.glob("apart*")] == ["apart0"]
    [answer] = [
        line for line in printed.splitlines() if line.startswith("{")
    ]  # the leading process speaks for all
    assert json.loads(answer)["step"] == 2


def test_a_process_that_dies_is_named(tmp_path: Path) -> None:
    """The others stop soon, one message says which it was, and --resume goes on. One of the four
    waits for another than the dead one, and so is the last to notice."""
    tree, run = recipe("bahdanau", 4), tmp_path / "run"
    tree["training"] |= {"steps": 100_000, "checkpoint_every": 5, "validate_every": 100_000}
    file = tmp_path / "recipe.yaml"
    file.write_text(json.dumps(tree))
    command = [
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "4",
        "-m",
        "regard",
        "train",
        str(file),
    ]
    surroundings = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with subprocess.Popen(
        [sys.executable, "-m", *command, "--out", str(run)],
        stderr=subprocess.PIPE,
        text=True,
        env=surroundings,
    ) as launcher:
        while not (run / "last").exists():
            assert launcher.poll() is None
            time.sleep(0.05)
        os.kill(process_of(launcher.pid, 2), signal.SIGKILL)
        killed = time.monotonic()
        _, errors = launcher.communicate(timeout=60)
    assert time.monotonic() - killed < 45  # torchrun itself ends after 30 s whom it cannot stop
    assert errors.count("has ended, and with it the training") == 1
    assert "regard: process 2: has ended" in errors
    assert "RuntimeError" not in errors
    done = int((run / "last").read_text().removeprefix("step-"))
    train(file, [f"training.steps={done + 5}"], out=run, resume=True, quiet=True)
    assert (run / "last").read_text() == f"step-{done + 5:08d}\n"


@pytest.mark.parametrize(
    ("number", "timeout", "message"),
    [
        (
            "1",
            "1",
            r"process 1 \(.*\): process 0 cannot be reached at 127.0.0.1:\d+ \(has it started",
        ),
        (
            "0",
            "1",
            r"process 0 \(.*\): process 1, 2 of 3 has not come in 1 seconds \(its own message",
        ),
        ("0", "soon", "REGARD_JOIN_TIMEOUT: 'soon' is not a number of seconds"),
    ],
)
def test_who_does_not_come_is_named(
    monkeypatch: pytest.MonkeyPatch, number: str, timeout: str, message: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    given = {"RANK": number, "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in (given | {"REGARD_JOIN_TIMEOUT": timeout}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RegardError, match=message), all_joined():
        pass


@pytest.mark.parametrize(
    "chosen",
    [{"FSDP_VERSION": "1", "ACCELERATE_USE_FSDP": "true"}, {"ACCELERATE_USE_DEEPSPEED": "true"}],
)
def test_other_ways_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chosen: dict[str, str]
) -> None:
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        RegardError, match=r"accelerate's config file: only DDP and FSDP2 are supported \(.*: 2"
    ):
        train(TINY, out=tmp_path / "run", quiet=True)


def test_no_thread_is_left_in_the_store() -> None:
    """Python would abort, "terminate called without an active exception", though the training is
    done."""
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    before = set(threading.enumerate())
    try:
        with naming_lost_processes(cast(Accelerator, SimpleNamespace(process_index=0))):
            pass
        assert set(threading.enumerate()) == before
    finally:
        torch.distributed.destroy_process_group()


def process_of(launcher: int, rank: int) -> int:
    """The process of this rank that a launcher has started."""
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return int(child)
    raise AssertionError("there is none")


def test_recomputed_blocks_keep_what_enters_them() -> None:
    """The same gradients from less: of 2 x 8 numbers each, what enters two blocks and what is
    squared; else what their tanh gives, too."""
    kept, gradients = list[int](), list[Any]()
    for recompute in (False, True):
        torch.manual_seed(1)
        model = Stack()
        if recompute:
            recompute_blocks(model)
        loss, size = saved_by(model, lambda model=model: model(torch.ones(2, 8)).square().sum())
        loss.backward()
        kept.append(size)
        gradients.append([weight.grad for weight in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])
    assert kept == [4 * 16 * 5, 4 * 16 * 3]


class HalfBlock(nn.Sequential):
    """Two layers."""


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            HalfBlock(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)) for _ in range(2)
        )

    def forward(self, x_BD: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x_BD = block(x_BD)
        return x_BD
