"""Work on very many pieces, their order kept: in this process, in several (one a core or GPU), or
on a Ray cluster."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from importlib import import_module
from itertools import chain, islice
from multiprocessing import resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread, current_thread, main_thread
from types import FrameType, ModuleType
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from regard.errors import ConfigError, RegardError, did_you_mean, import_extra

P = TypeVar("P", contravariant=True)
R = TypeVar("R", covariant=True)
Engine = Literal["local", "ray"]
StartMethod = Literal["spawn", "forkserver"]
"""How a process begins: it imports what it needs, or is a copy of a process that has (`start_server`)."""
ENGINES = ("local", "ray")
REACHED = 5.0  # seconds in which a cluster must answer
# seconds in which each node of it must have loaded the work; a busy one needs 45 to import torch
LOADED = 120.0
WINDOW = 250
"""Pieces that a Ray data set has, so that a file of any length needs little memory. The models of
the next are loaded anew."""


class Work(Protocol[P, R]):
    """What is done with a piece. It is pickled to get into another process."""

    def start(self, number: int, workers: int) -> None:
        """Called once in each process, which is the `number`th of so many on the machine."""

    def __call__(self, piece: P) -> R: ...


def processors() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(
    work: Work[P, R],
    pieces: Iterable[P],
    workers: int,
    option: str = "--workers",
    method: StartMethod = "spawn",
) -> Iterator[R]:
    """What `work` makes of each piece, by so many processes of this machine, whose number the user
    gives with `option`; by this one if a single piece is all."""
    pieces = iter(pieces)
    first = list(islice(pieces, 2))
    if workers == 1 or len(first) < 2:
        work.start(0, 1)
        yield from map(work, chain(first, pieces))
        return
    if method == "forkserver":
        start_server(type(work).__module__)  # unless it runs
    context: Any = multiprocessing.get_context(method)
    waiting = deque[Future[R]]()
    numbers = context.SimpleQueue()
    before = set(multiprocessing.active_children())
    for number in range(workers):
        numbers.put(number)
    with TemporaryDirectory() as folder:
        # In a file: multiprocessing's pipe waits for ever if a process dies before it has read a
        # large work
        (file := Path(folder, "work")).write_bytes(pickle.dumps(work))
        with ProcessPoolExecutor(workers, context, _start, (file, numbers, workers)) as pool:
            try:
                for piece in chain(first, pieces):
                    with starting_processes():
                        waiting.append(pool.submit(_apply, piece))
                    if len(waiting) > 2 * workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            except BrokenProcessPool:
                hint = f"the system may have ended it for its memory: fewer {option} need less"
                raise RegardError("a worker process has died", where=option, hint=hint) from None
            finally:
                for process in set(multiprocessing.active_children()) - before:
                    process.terminate()  # nobody waits for what is left


def start_method() -> StartMethod:
    """How processes begin here. Only on Linux is it safe to copy one that has imported torch."""
    return "forkserver" if sys.platform == "linux" else "spawn"


def start_server(module: str) -> None:
    """Start a process that imports a module once, for all processes that `in_order` then starts by
    the method forkserver."""
    if start_method() == "forkserver":
        multiprocessing.set_forkserver_preload([module, "regard.data.served"])
        with starting_processes():
            import_module("multiprocessing.forkserver").ensure_running()


@contextmanager
def starting_processes() -> Iterator[None]:
    """Processes that are started here do not import the user's script, which might run again, and
    do not get Ctrl-C, which reaches all processes of a terminal, not even while they import: the
    first process ends them. It gets Ctrl-C when they have been started, since it knows them then."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        with _blocked_ctrl_c(), _later_ctrl_c():
            yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _blocked_ctrl_c() -> Iterator[None]:
    """For this thread, and for processes that it starts."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    # begun later, this process of Python's own would let Ctrl-C through again
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _later_ctrl_c() -> Iterator[None]:
    """Another thread, which does not block it, may take Ctrl-C for this one."""
    handler = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(handler):
        yield
        return
    missed = list[tuple[int, FrameType | None]]()
    signal.signal(signal.SIGINT, lambda number, frame: missed.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if missed:
        handler(*missed[0])


_work: Any = None  # the work of this process, if it is one of several


def _start(file: Path, numbers: Any, workers: int) -> None:
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Windows too
    Thread(target=_end_with_parent, daemon=True).start()
    _work = pickle.loads(file.read_bytes())
    _work.start(numbers.get(), workers)
    gc.freeze()  # the garbage collector then does not look through all that was imported


def _end_with_parent() -> None:
    """A first process that is killed cannot end the others; they would wait for pieces, and keep
    their memory."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)


def _apply(piece: Any) -> Any:
    return _work(piece)


# Ray


class _Actor:
    """Has the work of one process of a cluster: one model, on a GPU if the cluster has any."""

    def __init__(self, reference: Any) -> None:
        import ray

        self._work = ray.get(reference)
        self._work.start(0, 1)

    def __call__(self, table: Any) -> dict[str, Any]:
        import numpy as np

        [piece] = table["piece"].to_pylist()
        result = np.empty(1, dtype=object)
        result[0] = pickle.dumps(self._work(pickle.loads(piece)))
        return {"result": result}


def over_cluster(
    work: Work[P, R], pieces: Iterable[P], address: str | None, workers: int | None
) -> Iterator[R]:
    """The same by Ray Data, on every CPU or GPU of the cluster. What a lost node has not delivered,
    others compute."""
    with connected(address, "--engine ray") as ray:
        data = import_extra("ray.data", extra="ray", where="--engine ray", doing="to use")
        logging.getLogger("ray.data").setLevel("ERROR")
        settings = data.DataContext.get_current()
        settings.execution_options.preserve_order = True
        settings.enable_progress_bars = False
        gpus = int(ray.cluster_resources().get("GPU", 0))
        most = workers or gpus or int(ray.cluster_resources().get("CPU", 1))
        needed: dict[str, Any] = {"num_gpus": 1} if gpus else {"num_cpus": 1}  # of each process
        reference = ray.put(work)
        pieces = iter(pieces)
        _refuse_broken(ray, reference)
        while window := [{"piece": pickle.dumps(piece)} for piece in islice(pieces, WINDOW)]:
            pool = data.ActorPoolStrategy(min_size=1, max_size=min(most, len(window)))
            answers = data.from_items(window, override_num_blocks=len(window)).map_batches(
                _Actor,
                fn_constructor_args=(reference,),
                batch_size=1,
                batch_format="pyarrow",
                compute=pool,
                **needed,
            )
            try:
                for row in answers.iter_rows():
                    yield pickle.loads(row["result"])
            except ray.exceptions.RayError as error:
                what = f"Ray has stopped: {str(error).strip().splitlines()[-1]}"
                hint = "every node needs the same regard; what was written is kept"
                raise RegardError(what, where="--engine ray", hint=hint) from None


def _refuse_broken(ray: Any, reference: object) -> None:
    """Refuse a cluster with a node that cannot load the work: Ray Data would start its actors there
    anew for ever."""
    strategies = import_extra(
        "ray.util.scheduling_strategies", extra="ray", where="--engine ray", doing="to use"
    )

    # in here, it is pickled as code: also a node without regard can run it
    def load(work: object) -> None:
        pass

    tasks = {}
    for node in (node for node in ray.nodes() if node["Alive"]):
        there = strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = (
            ray.remote(load)
            .options(num_cpus=0, max_retries=0, scheduling_strategy=there)
            .remote(reference)
        )
        tasks[task] = f"node {node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
    ray.wait(list(tasks), num_returns=len(tasks), timeout=LOADED)
    for task, node in tasks.items():
        try:
            ray.get(task, timeout=0)
        except ray.exceptions.GetTimeoutError:
            what = f"has not loaded the model in {LOADED:.0f} seconds"
            raise RegardError(
                what, where=node, hint="does Python start there? 'ray status' says more"
            ) from None
        except ray.exceptions.RayError as error:
            what = f"cannot load the model: {str(error).strip().splitlines()[-1]}"
            raise RegardError(
                what, where=node, hint="install the same regard on every node"
            ) from None


@contextmanager
def connected(address: str | None, where: str) -> Iterator[Any]:
    """Ray, connected to the cluster at an address; to a new one on this machine, which ends
    afterwards, where there is none. A connection that is there already is used."""
    ray = import_extra("ray", extra="ray", where=where, doing="to use")
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        if address is not None and address not in ("auto", "local"):  # Ray would try for ever
            there = urlsplit(address if "://" in address else f"//{address}")
            socket.create_connection((there.hostname, there.port or 6379), timeout=REACHED).close()
        ray.init(
            address,
            log_to_driver=False,
            logging_level="error",
            include_dashboard=None if address else False,
        )
    except (OSError, RuntimeError, ValueError) as error:  # a ConnectionError is an OSError
        what = f"no Ray cluster can be reached: {str(error).splitlines()[0]}"
        hint = (
            "'ray start --head' on one machine prints the address; --address auto finds a "
            "cluster on this one"
        )
        raise RegardError(what, where=f"--address {address}", hint=hint) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def chosen_workers(workers: int | str, engine: str, address: str | None) -> int | None:
    """`--workers` as a number, None for auto. What does not go together with the engine is
    refused."""
    if engine not in ENGINES:
        raise ConfigError(
            f"there is no engine {engine!r}", where="--engine", hint=did_you_mean(engine, ENGINES)
        )
    if address is not None and engine != "ray":
        raise ConfigError("needs --engine ray", where="--address")
    if workers != "auto" and not (str(workers).isdecimal() and int(workers) > 0):
        raise ConfigError(
            f"{workers!r} is not a number of processes",
            where="--workers",
            hint="auto, or 1 and more",
        )
    return None if workers == "auto" else int(workers)
