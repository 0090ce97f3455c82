"""Processes that share a GPU to predict for a long file: one alone spends most of its time on texts,
while the GPU waits.

Nothing here imports torch, and CUDA is not started: the processes start it themselves.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

from regard.data.parallel import Engine, processors, start_server
from regard.text.files import COMPRESSIONS

DRIVER = Path("/dev/nvidiactl")
"""Exists if there is a GPU of Nvidia, on Linux."""
LONG_FILE_BYTES = 3_000_000
"""Files of this size are predicted for by several processes: one would take longer than they need to
start."""
COMPRESSION = 4
"""How many times as long a compressed file is about."""
MOST_PER_GPU = 6
"""More processes wait for the one that reads and writes."""
CORES_PER_PROCESS = 2
MEMORY_PER_PROCESS = 16 * 2**30
"""Bytes of a GPU's memory for each process that shares it."""


def may_share(file: Path, device: str, workers: str | int, engine: Engine) -> bool:
    """Whether processes will share a GPU to predict for a file."""
    return (
        engine == "local"
        and device in ("auto", "cuda")
        and str(workers) != "1"
        and DRIVER.exists()
        and (str(workers) != "auto" or (is_long(file) and processes_per_gpu() > 1))
    )


def prepare_processes(file: Path, device: str, workers: str | int, engine: Engine) -> None:
    """If processes will share a GPU: begin to import what they need, in another process, while this
    one imports what it needs itself."""
    if may_share(file, device, workers, engine):
        start_server("regard.inference.whole_file")


def is_long(file: Path) -> bool:
    try:
        size = file.stat().st_size
    except OSError:  # which is refused later, in a sentence
        return False
    return size * (COMPRESSION if file.suffix in COMPRESSIONS else 1) >= LONG_FILE_BYTES


def processes_per_gpu() -> int:
    """How many processes share each GPU."""
    cores = processors() // CORES_PER_PROCESS
    memory = smallest_memory() // MEMORY_PER_PROCESS
    return max(1, min(MOST_PER_GPU, cores, memory))


def smallest_memory() -> int:
    """The memory of the smallest GPU in bytes, as the driver says; 0 if it does not say."""
    try:
        driver = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return 0
    if driver.nvmlInit_v2():
        return 0
    count = ctypes.c_uint()
    driver.nvmlDeviceGetCount_v2(ctypes.byref(count))
    sizes = []
    for number in range(count.value):
        gpu = ctypes.c_void_p()
        memory = (ctypes.c_ulonglong * 3)()  # in all, free, used
        if not driver.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(gpu)):
            driver.nvmlDeviceGetMemoryInfo(gpu, ctypes.byref(memory))
            sizes.append(memory[0])
    driver.nvmlShutdown()
    return min(sizes, default=0)
