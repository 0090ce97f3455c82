"""Files of any length: streamed, in order, by several processes, resumable; over a Ray cluster that
loses a node."""

import errno
import gzip
import importlib
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from command_line import fail, succeed, write
from regard import api, studio
from regard.data.parallel import (
    StartMethod,
    in_order,
    over_cluster,
    start_method,
    start_server,
    starting_processes,
)
from regard.errors import CheckpointError, DecodeError, RegardError
from regard.inference import evaluation, sharing, whole_file
from regard.inference.sharing import LONG_FILE_BYTES
from regard.inference.whole_file import PieceOutput, PiecePredictor, Workers, place_model
from regard.recipes.search_options import SearchOptions, with_search
from regard.runs import Run
from regard.tasks.question_answering import Answered, Span
from regard.text.writing import GrowingFile
from shared_work import Broken, Dying

SHORT = ["search.max_length=4"]
OWN_MODULES = os.pathsep.join(filter(None, sys.path))
HAS_SERVER = pytest.mark.skipif(start_method() == "spawn", reason="only on Linux")


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 230 lines, of which no two are alike."""
    chosen = random.Random(1)
    lines = (" ".join(chosen.choices("abcdefg", k=chosen.randint(4, 9))) for _ in range(1_000))
    content = "".join(f"{line}\n" for line in [*dict.fromkeys(lines)][:230])
    return write(tmp_path_factory.mktemp("big") / "big.txt", content)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_file, "INPUTS_PER_PIECE", 20)


def test_an_output_with_line_breaks_is_one_line() -> None:
    """So that line n of the outputs belongs to input n."""
    answer = Answered(
        "q",
        "John\nSmith lives",
        ((Span(0, 10), -0.1),),
        none=False,
        no_answer=None,
        log_p_none=-5.0,
    )
    assert [*api.Predictions([answer], 1).lines(as_json=False)] == ["John Smith"]


class StopError(Exception):
    """Ends a prediction where it is."""


def stopping(pieces: int) -> Any:
    """An `each` that lets so many pieces pass."""
    left = [pieces]

    def each(output: PieceOutput) -> None:
        left[0] -= 1
        if not left[0]:
            raise StopError

    return each


def written(run: Path, big: Path, out: Path, **options: Any) -> list[dict[str, Any]]:
    regard.predict_file(run, big, out, overrides=SHORT, **options)
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_processes_keep_the_order(tiny_run: Path, big: Path, tmp_path: Path) -> None:
    """And the outputs are those of `predict`, but for rounding: other lines are computed together.
    The script that asks for them is not run again by its workers, though nothing in it is guarded
    by `if __name__ == "__main__"`."""
    expected = [one.to_json() for one in regard.predict(tiny_run, file=big, overrides=SHORT)]
    alone, two = written(tiny_run, big, tmp_path / "alone.jsonl", workers=1), tmp_path / "two.jsonl"
    assert [(one["input"], one["output"]) for one in alone] == [
        (one["input"], one["output"]) for one in expected
    ]
    script = write(
        tmp_path / "script.py",
        f"""
import logging, regard
from regard.inference import whole_file
logging.getLogger(__name__)
whole_file.INPUTS_PER_PIECE = 20
print("once")
print(regard.predict_file({str(tiny_run)!r}, {str(big)!r}, {str(two)!r}, overrides={SHORT}, workers=2))
""",
    )
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=600)
    assert (printed.stdout, printed.returncode) == (f"once\n{len(expected)}\n", 0), printed.stderr
    assert [json.loads(line) for line in two.read_text().splitlines()] == alone
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "alone.jsonl",
        "script.py",
        "two.jsonl",
    ]


def test_processes_are_started_only_for_a_file_that_takes_longer(
    tiny_run: Path, big: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting them takes seconds. Whether they are started changes no output."""
    monkeypatch.setattr(whole_file, "processors", lambda: 2)
    threads = torch.get_num_threads()
    children: list[int] = []

    def each(output: PieceOutput) -> None:
        children.append(len(multiprocessing.active_children()))

    outputs = []
    for name, seconds in (("alone", 1000.0), ("helped", 0.0)):
        monkeypatch.setattr(whole_file, "SECONDS_ALONE", seconds)
        outputs.append(written(tiny_run, big, tmp_path / f"{name}.jsonl", each=each))
        assert (max(children) > min(children)) == (name == "helped")
    assert outputs[0] == outputs[1]
    assert torch.get_num_threads() == threads


def test_an_interrupted_file_is_continued(tiny_run: Path, big: Path, tmp_path: Path) -> None:
    """No line twice, none missing, whatever the crash left behind the last whole piece."""
    whole, out = written(tiny_run, big, tmp_path / "whole.jsonl", workers=1), tmp_path / "out.jsonl"
    with pytest.raises(StopError):
        written(tiny_run, big, out, workers=1, each=stopping(3))
    partial = tmp_path / "out.jsonl.partial"
    assert not out.exists()
    assert len(partial.read_text().splitlines()) == 60
    with partial.open("a") as stream:
        stream.write('{"input": "a b", "outp')  # torn
    with pytest.raises(
        DecodeError,
        match=r"out.jsonl.partial: the output of an interrupted command exists \(--resume",
    ):
        written(tiny_run, big, out, workers=1)
    assert written(tiny_run, big, out, workers=1, resume=True) == whole
    assert not partial.exists()


def test_resuming_a_complete_file_does_nothing(tiny_run: Path, big: Path, tmp_path: Path) -> None:
    out, command = (
        tmp_path / "out.txt",
        ["predict", tiny_run, "--file", big, "--set", SHORT[0], "--workers", 1],
    )
    succeed(*command, "--out", out)
    before = out.read_bytes()
    assert (
        succeed(*command, "--out", out, "--resume").out
        == f"{out} is complete: nothing is left to do\n"
    )
    assert regard.predict_file(tiny_run, big, out, resume=True) == 0
    assert out.read_bytes() == before
    assert fail(*command, "--out", big, "--resume") == [
        f"{big}: this file is read here (give another --out)"
    ]
    write(tmp_path / "out.txt.partial", "of another command")
    assert "the file exists already" in fail(*command, "--out", out, "--resume")[0]


def test_the_first_pieces_are_small(
    tiny_run: Path, big: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done is soon kept, and where a piece begins depends on nothing but what stands before
    it."""
    sizes: list[int] = []
    monkeypatch.setattr(whole_file, "INPUTS_IN_FIRST_PIECE", 5)
    regard.predict_file(
        tiny_run,
        big,
        tmp_path / "out.txt",
        overrides=SHORT,
        workers=1,
        each=lambda done: sizes.append(done.inputs),
    )
    assert sizes == [5, 10, *[20] * 10, 15]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows has no signal masks")
def test_ctrl_c_does_not_reach_processes_that_are_being_started() -> None:
    blocked = [
        sys.executable,
        "-c",
        "import signal; print(signal.SIGINT in signal.pthread_sigmask(0, []))",
    ]
    with starting_processes():
        assert subprocess.check_output(blocked, text=True) == "True\n"
    assert subprocess.check_output(blocked, text=True) == "False\n"


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows has no signal masks")
def test_ctrl_c_waits_until_processes_have_been_started() -> None:
    """Also where another thread takes it, which does not block it: a process whose start is
    interrupted would be known to nobody."""
    go = threading.Event()
    started = list[bool]()

    def interrupt() -> None:
        go.wait()
        signal.raise_signal(signal.SIGINT)

    def start() -> None:
        with starting_processes():
            go.set()
            thread.join()
            started.append(True)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        start()
    assert started


def test_a_killed_command_is_continued(tiny_run: Path, big: Path, tmp_path: Path) -> None:
    out, longer = tmp_path / "out.txt", write(tmp_path / "longer.txt", big.read_text() * 20)
    command = [
        sys.executable,
        "-m",
        "regard",
        "predict",
        str(tiny_run),
        "--file",
        str(longer),
        "--out",
        str(out),
    ]
    process = subprocess.Popen([*command, "--workers", "1", "--set", *SHORT])
    while not (tmp_path / "out.txt.partial.json").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    whole_file.INPUTS_PER_PIECE = 1_000  # as the command's
    regard.predict_file(tiny_run, longer, out, overrides=SHORT, resume=True, workers=1)
    expected = [
        line for one in regard.predict(tiny_run, file=big, overrides=SHORT) for line in one.lines(1)
    ]
    assert out.read_text().splitlines() == expected * 20


@pytest.mark.parametrize("mended", [True, False])
def test_a_bad_line_ends_it_with_all_before_kept(
    tiny_run: Path, big: Path, tmp_path: Path, mended: bool
) -> None:
    """It may be mended or skipped afterwards."""
    lines, out = big.read_text().splitlines(), tmp_path / "out.jsonl"
    bad = write(
        tmp_path / "bad.txt", "".join(f"{line}\n" for line in [*lines[:50], "", *lines[50:]])
    )
    command = ["predict", tiny_run, "--file", bad, "--out", out, "--set", SHORT[0], "--workers", 1]
    assert fail(*command) == [
        f"{bad}:51: the text is empty (give at least one word)",
        "--skip-bad leaves such lines out, with an empty output for each",
        f"{out}.partial: 40 outputs were written by now (--resume continues it)",
    ]
    if mended:
        write(bad, big.read_text())
    resumed = succeed(*command, "--resume", *([] if mended else ["--skip-bad"]))
    assert ("skipped 1 of 191 inputs" in resumed.err) == (not mended)
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row for row, one in enumerate(found) if one["output"] is None] == (
        [] if mended else [50]
    )
    whole = written(tiny_run, big, tmp_path / "whole.jsonl", workers=1)
    texts = [
        [(one["input"], one["output"]) for one in of if one["output"] is not None]
        for of in (found, whole)
    ]
    assert texts[0] == texts[1]


def test_a_compressed_file_that_is_cut_off_is_continued(
    tiny_run: Path, big: Path, tmp_path: Path
) -> None:
    """It is unpacked in blocks, of which the first is whole."""
    large, out = write(tmp_path / "large.txt", 4 * big.read_bytes()), tmp_path / "out.jsonl"
    whole = gzip.compress(large.read_bytes(), compresslevel=0)
    cut = write(tmp_path / "cut.txt.gz", whole[:-200])
    command = ["predict", tiny_run, "--file", cut, "--out", out, "--set", SHORT[0], "--workers", 1]
    [broken, kept] = fail(*command)
    assert re.match(
        rf"{cut}:\d+: the .gz file is broken here: .* \(it may be cut off: copy or", broken
    )
    assert re.fullmatch(
        rf"{out}.partial: [1-9]\d+ outputs were written by now \(--resume continues it\)", kept
    )
    write(cut, whole)
    succeed(*command, "--resume")
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert found == written(tiny_run, large, tmp_path / "whole.jsonl", workers=1)
    [message] = fail(
        "predict", tiny_run, "--file", write(cut, whole[:20]), "--out", tmp_path / "none.txt"
    )
    assert message.startswith(f"{cut}:1: the .gz file is broken here")


def test_only_the_same_is_continued(tiny_run: Path, big: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with pytest.raises(StopError):
        written(tiny_run, big, out, workers=1, each=stopping(2))
    before = (tmp_path / "out.jsonl.partial").read_bytes()
    for section, override in {
        "search": "search.beam=3",
        "evaluation": "evaluation.tokenize=char",
    }.items():
        refused = rf"out.jsonl.partial: it was begun with other values of {section} \(give the same"
        with pytest.raises(DecodeError, match=refused):
            regard.predict_file(tiny_run, big, out, overrides=[*SHORT, override], resume=True)
    other = write(tmp_path / "other.txt", "g g g\n" + big.read_text())
    with pytest.raises(DecodeError, match="--file: its first 40 inputs have changed"):
        written(tiny_run, other, out, workers=1, resume=True)
    assert (tmp_path / "out.jsonl.partial").read_bytes() == before


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = GrowingFile(tmp_path / "out", {})
    file.append(b"one\n", {"inputs": 1})
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            CheckpointError, match=r"out: cannot be written: No space left .*resume"
        ):
            file.append(b"two\n", {"inputs": 2})
    with pytest.raises(DecodeError, match="another process is writing it"):
        GrowingFile(tmp_path / "out", {}, resume=True)
    file.close()
    resumed = GrowingFile(tmp_path / "out", {}, resume=True)
    assert resumed.done == {"inputs": 1}
    resumed.append(b"2\n", {"inputs": 2})
    resumed.complete()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"out": b"one\n2\n"}


@pytest.mark.parametrize(
    ("starts", "option", "method"),
    [
        (False, "--workers", "spawn"),
        (True, "data.workers", "spawn"),
        pytest.param(True, "--workers", "forkserver", marks=HAS_SERVER),
    ],
)
def test_a_worker_that_dies_is_reported(starts: bool, option: str, method: StartMethod) -> None:
    """Also where it dies before it has read a work that is larger than a pipe."""
    hint = f"the system may have ended it for its memory: fewer {option} need less"
    with pytest.raises(RegardError) as caught:
        list(in_order(Dying() if starts else Broken(), range(9), 2, option, method))
    assert str(caught.value) == f"{option}: a worker process has died ({hint})"


def with_own_modules() -> dict[str, str]:
    """The environment of a process that imports tests/support, too."""
    return os.environ | {"PYTHONPATH": OWN_MODULES}


@HAS_SERVER
def test_a_server_has_imported_what_its_processes_need() -> None:
    """And it runs no code of the user's script."""
    code = (
        "start_server('zipapp')\n"
        "for found in in_order(Importing(), range(3), 2, method='forkserver'): print(*found)"
    )
    imports = (
        "from regard.data.parallel import in_order, start_server\n"
        "from shared_work import Importing\nprint('script')"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{imports}\n{code}"],
        capture_output=True,
        text=True,
        env=with_own_modules(),
        check=True,
    )
    assert done.stdout.splitlines() == ["script", "0 True", "1 True", "2 True"]


@HAS_SERVER
def test_other_processes_of_the_server_hear_ctrl_c(tmp_path: Path) -> None:
    """A program has one server, which its own processes may be made of, too."""
    code = (
        "import multiprocessing, signal\n"
        "from regard.data.parallel import start_server\n"
        "from shared_work import write_whether_ctrl_c_is_heard\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "start_server('zipapp')\n"
        f"values = ({str(tmp_path / 'heard')!r},)\n"
        "context = multiprocessing.get_context('forkserver')\n"
        "process = context.Process(target=write_whether_ctrl_c_is_heard, args=values)\n"
        "process.start()\nprocess.join()"
    )
    subprocess.run([sys.executable, "-c", code], env=with_own_modules(), check=True)
    assert (tmp_path / "heard").read_text() == "True"


@HAS_SERVER
def test_processes_of_a_server_predict_what_one_process_predicts(tiny_run: Path, big: Path) -> None:
    run = Run.open(tiny_run).under(with_search(Run.open(tiny_run).recipe, SearchOptions(beam=1)))
    placed = place_model(run, "best", "cpu", "fp32", Workers(2, "local", None))
    predictor = PiecePredictor(run, placed.loaded, "cpu", skip_bad=False, as_json=True)
    inputs = list(run.task.inputs.in_file(big))
    pieces = [(inputs[first : first + 50], {"inputs": first}) for first in range(0, 230, 50)]
    start_server("regard.inference.whole_file")
    shared = list(in_order(predictor, pieces, 2, method="forkserver"))
    assert shared == [predictor(piece) for piece in pieces]


@pytest.mark.parametrize(
    ("workers", "device", "size", "compressed", "shares"),
    [
        ("auto", "auto", LONG_FILE_BYTES, False, True),
        ("auto", "cuda", LONG_FILE_BYTES - 1, False, False),
        ("auto", "auto", LONG_FILE_BYTES // 2, True, True),
        ("auto", "cpu", LONG_FILE_BYTES, False, False),
        ("1", "auto", LONG_FILE_BYTES, False, False),
        ("2", "auto", 1, False, True),
    ],
)
def test_processes_share_a_gpu_for_a_long_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: str,
    device: str,
    size: int,
    compressed: bool,
    shares: bool,
) -> None:
    """The driver stands in for a GPU with memory for two processes."""
    file = tmp_path / ("inputs.gz" if compressed else "inputs.txt")
    file.write_bytes(bytes(size))
    assert not sharing.may_share(file, device, workers, "ray")
    monkeypatch.setattr(sharing, "DRIVER", tmp_path)
    monkeypatch.setattr(sharing, "smallest_memory", lambda: 2 * sharing.MEMORY_PER_PROCESS)
    monkeypatch.setattr(sharing, "processors", lambda: 16)
    assert sharing.processes_per_gpu() == 2
    assert sharing.may_share(file, device, workers, "local") == shares
    monkeypatch.setattr(sharing, "processors", lambda: 2)
    assert sharing.processes_per_gpu() == 1


@pytest.mark.parametrize("before", [False, True])
def test_the_garbage_collector_leaves_out_what_exists_already(before: bool) -> None:
    """And looks at it again afterwards, unless it was left out before. What is made meanwhile is
    collected."""
    code = (
        "import gc\n"
        "from regard.engine.machine import collecting_new_objects\n"
        f"if {before}: gc.freeze()\n"
        "with collecting_new_objects():\n"
        "    frozen = gc.get_freeze_count()\n"
        "    cycle = []\n"
        "    cycle.append(cycle)\n"
        "    del cycle\n"
        "    print(frozen > 1000, gc.collect() > 0)\n"
        "print(gc.get_freeze_count() > 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", str(before)]


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=HAS_SERVER)])
def test_workers_end_with_a_process_that_is_killed(method: StartMethod) -> None:
    """Its output ends once nobody can write to it any more."""
    code = (
        f"for pid in in_order(Numbered(), itertools.count(), 2, method={method!r}): "
        "print(pid, flush=True)"
    )
    imports = (
        "import itertools; from regard.data.parallel import in_order; from shared_work "
        "import Numbered"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", f"{imports}\n{code}"], stdout=subprocess.PIPE, env=with_own_modules()
    )
    assert process.stdout is not None
    assert int(process.stdout.readline()) != process.pid
    process.kill()
    process.communicate(timeout=30)


# Ray


NOWHERE = "no Ray cluster can be reached: .* \\('ray start --head'"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", f"--address 127.0.0.1:1: {NOWHERE}"),
        ("no.such.host:6379", f"--address no.such.host:6379: {NOWHERE}"),
        (None, r"--engine ray: to use it needs the library 'ray' \(pip install 'regard\[ray\]'\)"),
    ],
)
def test_where_there_is_no_cluster(
    address: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if address is None:
        monkeypatch.setitem(sys.modules, "ray", None)
    else:
        pytest.importorskip("ray")
    with pytest.raises(RegardError, match=message):
        list(over_cluster(Dying(), [1], address, None))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one core each, on this machine."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80_000_000}
    with pytest.MonkeyPatch.context() as patch:  # what the nodes import
        patch.setenv("PYTHONPATH", OWN_MODULES)
        timing = {"initial_delay_ms": 0, "period_ms": 500, "failure_threshold": 2}
        noticed = {f"health_check_{name}": value for name, value in timing.items()}
        kept = {
            "idle_worker_killing_time_threshold_ms": 60_000
        }  # processes with torch, for the next test
        unused = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
        head = small | unused | {"_system_config": noticed | kept}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        cluster.other = cluster.add_node(**small)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def test_a_cluster_evaluates(tiny_run: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "EXAMPLES_PER_PIECE", 4)
    here, there = (
        regard.evaluate(tiny_run, overrides=SHORT, engine=engine) for engine in ("local", "ray")
    )
    assert {"bleu", "chrf", "loss", "split"} <= here.keys() == there.keys()
    for name, value in here.items():
        assert there[name] == (
            pytest.approx(value, rel=1e-5) if isinstance(value, float) else value
        )


def test_a_cluster_serves(tiny_run: Path, cluster: Any) -> None:
    """The same routes and answers as `regard serve`."""
    serve, httpx = pytest.importorskip("ray.serve"), pytest.importorskip("httpx2")
    with pytest.raises(CheckpointError, match="nowhere: there is no such run folder"):
        studio.deployment("nowhere")
    with pytest.raises(RegardError, match="a token of 5 characters can be guessed"):
        studio.deployment(tiny_run, token="short")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    serve.start(http_options={"port": int(address.rpartition(":")[2])})
    serve.run(studio.deployment(tiny_run, device="cpu").bind(), name="tiny")
    try:
        found = httpx.post(f"{address}/predict", json={"inputs": ["a b c", "b c"]}, timeout=60)
        assert found.json()["predictions"] == [
            one.to_json() for one in regard.predict(tiny_run, ["a b c", "b c"])
        ]
        refused = httpx.post(f"{address}/predict", json={"inputs": [""]}, timeout=60)
        assert refused.status_code == 422
        assert refused.json()["error"] == "input 1: the text is empty (give at least one word)"
    finally:
        serve.shutdown()


def test_a_node_that_cannot_load_work_is_named(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray alone would start it anew for ever."""
    write(tmp_path / "only_here.py", "class Work:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    work, begun = importlib.import_module("only_here").Work(), time.monotonic()
    with pytest.raises(
        RegardError,
        match=r"node .*: cannot load the model: .*No module named 'only_here'.* \(install",
    ):
        list(over_cluster(work, [1], None, None))
    assert time.monotonic() - begun < 60


def test_a_lost_node_costs_nothing(tiny_run: Path, big: Path, tmp_path: Path, cluster: Any) -> None:
    """What it had is computed by the other: no line is missing or there twice, and all are in their
    order."""
    ray, longer = pytest.importorskip("ray"), write(tmp_path / "longer.txt", big.read_text() * 2)
    expected = written(tiny_run, longer, tmp_path / "here.jsonl", workers=1)
    pieces, by_both = 0, 0

    def each(output: PieceOutput) -> None:
        nonlocal pieces, by_both
        pieces += 1
        by_both += not ray.available_resources().get("CPU")
        if by_both == 3 and cluster.other:
            cluster.remove_node(cluster.other, allow_graceful=False)
            cluster.other, cluster.lost_after = None, pieces

    assert written(tiny_run, longer, tmp_path / "there.jsonl", engine="ray", each=each) == expected
    assert cluster.lost_after < pieces - 5
