"""Prediction for a file of any length: piece by piece, by several processes or a cluster, into a
file that can be continued after a crash."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from regard.data.example import Example, without_faults
from regard.data.parallel import (
    Engine,
    in_order,
    over_cluster,
    processors,
    start_method,
    start_server,
)
from regard.engine.machine import collecting_new_objects
from regard.errors import DecodeError, Problem, RegardError
from regard.inference.inputs import mark_long_inputs
from regard.inference.loaded_model import PlacedModel, Precision, load_model, usable_gpus
from regard.inference.predictions import Predictions, predict_chunks
from regard.inference.sharing import may_share, processes_per_gpu
from regard.runs.checkpoints import load_facts
from regard.runs.run import Run
from regard.tasks.answers import Note
from regard.text.checksums import key_of
from regard.text.writing import GrowingFile

INPUTS_PER_PIECE = 1_000
"""Inputs that one process is given at once, and that a crash may cost."""
INPUTS_PER_GPU_PIECE = 8_000
"""The same for a process with a GPU, which needs large batches of similar lengths."""
INPUTS_IN_FIRST_PIECE = 100
"""Fewer, so that there is some output soon."""
SECONDS_ALONE = 3.0
"""Seconds after which further processes are started."""
SECONDS_BEFORE_SERVER = 0.5
"""Seconds after which another process begins to import torch for those that may be started."""

Piece = tuple[list[Example], dict[str, int]]
"""Inputs, and how many there are up to them, with a checksum of all these."""


@dataclass(frozen=True)
class PieceOutput:
    """The output for a piece of a file, and what a user should know about it."""

    content: bytes
    done: dict[str, int]
    inputs: int
    skipped: list[Problem]
    notes: list[Note]


@dataclass(frozen=True)
class Workers:
    """Who predicts: so many processes of this machine (None: one per core or GPU), or a cluster."""

    count: int | None
    engine: Engine
    address: str | None

    def on_gpus(self, file: str | Path, device: str, precision: Precision) -> Workers:
        """With several processes for each GPU, if their number is open and the file is long."""
        gpus = usable_gpus(device, precision)
        if self.count is None and gpus and may_share(Path(file), device, "auto", self.engine):
            return replace(self, count=gpus * processes_per_gpu())
        return self


@dataclass(frozen=True)
class PiecePredictor(PlacedModel):
    """Predicts for one piece of a file."""

    skip_bad: bool
    as_json: bool

    def __call__(self, piece: Piece) -> PieceOutput | RegardError:
        """An error is returned: not every engine hands on what is raised."""
        inputs, done = piece
        try:
            return self._output(mark_long_inputs(inputs), done)
        except RegardError as error:
            return error

    def _output(self, inputs: list[Example], done: dict[str, int]) -> PieceOutput:
        if not self.skip_bad:
            inputs = without_faults(inputs)
        predictions = Predictions([], self.run.recipe.search.nbest)
        for chunk in predict_chunks(self.run, self.loaded.model, inputs, skip_bad=self.skip_bad):
            predictions.append_chunk(chunk)
        content = "".join(f"{line}\n" for line in predictions.lines(as_json=self.as_json))
        return PieceOutput(
            content.encode(errors="replace"),
            done,
            len(predictions),
            predictions.skipped,
            predictions.notes,
        )


def place_model(
    run: Run, checkpoint: str, device: str, precision: Precision, workers: Workers
) -> PlacedModel:
    """Load the model on the device, or on the CPU if each process moves it to a GPU of its own."""
    gpus = usable_gpus(device, precision)
    several_gpus = gpus > 0 and (workers.count or gpus) > 1
    first_device = "cpu" if workers.engine == "ray" or several_gpus else device
    return PlacedModel(run, load_model(run, checkpoint, first_device, precision), device)


def predict_whole_file(
    placed: PlacedModel,
    inputs: Iterable[Example],
    grown: GrowingFile,
    workers: Workers,
    *,
    skip_bad: bool,
    as_json: bool,
    each: Callable[[PieceOutput], None],
) -> int:
    """Predict for every input that the file lacks yet, in their order. Returns how many it has."""
    predictor = PiecePredictor(
        placed.run, placed.loaded, placed.device, skip_bad=skip_bad, as_json=as_json
    )
    pieces = pieces_left(inputs, grown, inputs_per_piece(placed.device, placed.loaded.precision))
    with closing(grown), collecting_new_objects():
        with closing(_written(_outputs(predictor, pieces, workers), grown)) as outputs:
            for output in outputs:
                each(output)
        grown.complete()
    return grown.done.get("inputs", 0)


def inputs_per_piece(device: str, precision: Precision) -> int:
    return INPUTS_PER_GPU_PIECE if usable_gpus(device, precision) else INPUTS_PER_PIECE


def _written(
    outputs: Iterator[PieceOutput | RegardError], grown: GrowingFile
) -> Generator[PieceOutput, None, None]:
    """The outputs, each of which a thread writes to the disk while the next one is computed."""
    with ThreadPoolExecutor(1, "regard-writer") as writer:
        before: Future[None] | None = None
        for output in outputs:
            if before is not None:
                before.result()
            if isinstance(output, RegardError):
                raise output
            before = writer.submit(grown.append, output.content, output.done)
            yield output
        if before is not None:
            before.result()


def _outputs(
    predictor: PiecePredictor, pieces: Iterator[Piece], workers: Workers
) -> Iterator[PieceOutput | RegardError]:
    if workers.engine == "ray":
        return over_cluster(predictor, pieces, workers.address, workers.count)
    if not predictor.loaded.on_cpu:  # a single GPU, which has the model already
        return in_order(predictor, pieces, 1)
    gpus = usable_gpus(predictor.device, predictor.loaded.precision)
    if count := workers.count or gpus:
        return in_order(predictor, pieces, count, method=start_method())
    return in_as_many_as_pay(predictor, pieces, processors())


def in_as_many_as_pay(
    predictor: PiecePredictor, pieces: Iterator[Piece], count: int
) -> Iterator[PieceOutput | RegardError]:
    """The outputs, by this process for some seconds, and by `count` of them if there are pieces left
    then: a short file does not wait for processes that start.

    Each process computes with as many threads, so that the outputs do not depend on its pace.
    """
    method = start_method()
    with limited_threads(max(1, processors() // count)):
        started = time.perf_counter()
        has_server = method == "spawn" or count == 1
        for piece in pieces:
            yield predictor(piece)
            seconds = time.perf_counter() - started
            if seconds > SECONDS_ALONE:
                break
            if seconds > SECONDS_BEFORE_SERVER and not has_server:
                start_server(__name__)
                has_server = True
        yield from in_order(predictor, pieces, count, method=method)


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Inside this context torch computes with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def output_settings(
    run: Run, checkpoint: str, device: str, precision: Precision, *, as_json: bool
) -> dict[str, Any]:
    """All that the outputs depend on besides the inputs: a file is continued only with the same."""
    return {
        "RUN": key_of(load_facts(run.checkpoint(checkpoint))),
        "search": run.recipe.search.model_dump(mode="json"),
        "evaluation": run.recipe.evaluation.model_dump(mode="json"),
        "--precision": precision,
        "--json": as_json,
        "inputs at once": inputs_per_piece(device, precision),
    }


def pieces_left(inputs: Iterable[Example], grown: GrowingFile, size: int) -> Iterator[Piece]:
    """The inputs that are left to predict for.

    The file cannot be continued if the inputs whose outputs it has differ from what they were.
    """
    count = grown.done.get("inputs", 0)
    inputs = iter(inputs)
    digest = _digest(islice(inputs, count), 0)
    if digest != grown.done.get("digest", 0):
        what = f"its first {count:,} inputs have changed"
        raise DecodeError(
            what, where="--file", hint=f"put the file back, or --overwrite {grown.partial}"
        )
    while piece := list(islice(inputs, min(size, count + INPUTS_IN_FIRST_PIECE))):
        count += len(piece)
        digest = _digest(piece, digest)
        yield piece, {"inputs": count, "digest": digest}


def _digest(inputs: Iterable[Example], digest: int) -> int:
    inputs = iter(inputs)
    while texts := [item.text for item in islice(inputs, INPUTS_PER_PIECE)]:
        lines = "".join(f"{text}\n" for text in texts)
        digest = zlib.crc32(lines.encode(errors="surrogateescape"), digest)
    return digest
