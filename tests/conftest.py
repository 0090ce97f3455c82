"""What the tests share: a cache of their own, one thread, and one tiny trained run."""

import copy
import gc
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from places import GOLDEN
from regard.engine import ENVIRONMENT_VARIABLE
from tiny import TINY

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")
# in the background of a script; commands would inherit it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: needs chromium")
    config.addinivalue_line(
        "markers", "engine: tests the engine itself, so it runs with the engine on"
    )
    config.addinivalue_line("markers", "options(**): of the browser's context, such as its locale")


def pytest_collection_finish() -> None:
    """What is imported stays, so the garbage collector need not look at it again: half a million
    objects. Nor at each 700 new ones, since autograd's graphs make as many in a few steps: that
    took a twenty-fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 5, 5)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prepared data goes to a folder of this session, messages are English, and subprocesses
    inherit both."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("REGARD_LANG", "en")  # whatever the locale
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """The same sums in the same order on every machine, and no threads that fight over few
    cores."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _engine_on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of the engine itself also run in `REGARD_ENGINE=plain make test`."""
    if request.node.get_closest_marker("engine"):
        monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)


@pytest.fixture
def imported_translator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run that the recipe adapt-translator begins with, in the folder where commands run."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(GOLDEN / "run-format-2", tmp_path / "runs" / "translator"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def disk() -> Iterator[Callable[[int], None]]:
    """Limits the size of files, which stands in for a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def tiny_recipe() -> dict[str, Any]:
    """A copy of the tiny recipe, to change at will."""
    return copy.deepcopy(TINY)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    """The folder of a run that is trained once and only read; copy it before changing anything in
    it."""
    from regard.training.train import train

    folder = tmp_path_factory.mktemp("runs") / "tiny"
    train(copy.deepcopy(TINY), out=folder, quiet=True)
    return folder
