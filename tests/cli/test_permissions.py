"""What may not be read or written is said in one sentence, with the file and the system's reason."""

import ctypes
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from command_line import fail, succeed, write

if sys.platform != "linux":
    pytest.skip("another user is made in the way of Linux", allow_module_level=True)

NOBODY = 65534
RECIPE = "task: translation\ndata: {train: {source: a.s, target: a.t}}\nmodel: {kind: rnn}\ntraining: {steps: 1}\n"


@contextmanager
def as_nobody() -> Iterator[None]:
    """Files are opened as a user who owns none; the superuser could open all."""
    set_user = ctypes.CDLL(None).setfsuid
    before = set_user(NOBODY)
    try:
        yield
    finally:
        set_user(before)


@pytest.fixture(scope="module")
def folder(tiny_run: Path) -> Iterator[Path]:
    """A folder that all may enter, which that of the tests is not, with a run, a recipe and its data."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(tiny_run, folder / "run")
        write(folder / "a.s", "".join(f"{one} {other}\n" for one in "abcdefg" for other in "abcdefg"))
        write(folder / "a.t", "x y\n" * 49)
        write(folder / "pairs.tsv", "a b\tb a\n" * 3)
        write(folder / "recipe.yaml", RECIPE)
        (folder / "new").mkdir()
        for command in ("check recipe.yaml", "predict run a", "explain run a", "compare run run --file pairs.tsv"):
            succeed(*(folder / word if (folder / word).exists() else word for word in command.split()))  # imports all
        yield folder


@pytest.mark.parametrize(("closed", "command", "named"), [
    ("recipe.yaml", "check {}/recipe.yaml", "{}/recipe.yaml"),
    ("a.s", "check {}/recipe.yaml", "a.s"),
    ("a.s", "predict {}/run --file {}/a.s", "{}/a.s"),
    ("run/recipe.yaml", "predict {}/run a", "{}/run/recipe.yaml"),
    ("run/environment.json", "predict {}/run a", "{}/run/environment.json"),
    ("run/tokenizer.json", "predict {}/run a", "{}/run/tokenizer.json"),
    ("run/best", "predict {}/run a", "{}/run/best"),
    ("run/metrics.jsonl", "compare {}/run {}/run --file {}/pairs.tsv", "{}/run/metrics.jsonl"),
    ("run/checkpoints", "predict {}/run a", "{}/run/checkpoints"),
    ("run/checkpoints/*/model.safetensors", "predict {}/run a", "{}/run/checkpoints/step-00000020/model.safetensors"),
    ("run", "predict {}/run a", "{}/run/recipe.yaml"),
    ("new", "train {}/recipe.yaml --out {}/new/run", "{}/new/run"),
    ("new", "predict {}/run a --record {}/new/out.json", "{}/new/out.json"),
    ("new", "explain {}/run a --out {}/new/out.svg", "{}/new/out.svg"),
])  # fmt: skip
def test_no_permission(folder: Path, closed: str, command: str, named: str) -> None:
    [path] = folder.glob(closed)
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        with as_nobody():
            [message] = fail(*command.replace("{}", str(folder)).split())
    finally:
        path.chmod(mode)
    assert re.match(rf"{re.escape(named.replace('{}', str(folder)))}: .*Permission denied", message)
