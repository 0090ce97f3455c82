"""The Dockerfile installs nothing that is not pinned by a hash. (No image is built here.)"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
LOCKED = (ROOT / "requirements.lock").read_text(encoding="utf-8")
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def entries(text: str) -> dict[str, set[str]]:
    """`name==version` -> its hashes."""
    parts = re.split(
        r"\n(?=[^\s#])", "\n" + "\n".join(line for line in text.splitlines() if line[:1] != "#")
    )
    return {part.split()[0]: set(HASH.findall(part)) for part in parts if part.strip()}


def test_the_base_image_has_a_digest() -> None:
    assert re.findall(r"^FROM .*", DOCKERFILE, re.MULTILINE) == ["FROM ${BASE}"]
    assert re.search(r"^ARG BASE=python:3\.12-slim@sha256:[0-9a-f]{64}$", DOCKERFILE, re.MULTILINE)


def test_what_is_installed_has_a_hash() -> None:
    commands = re.findall(r"pip install ([^&\n]+)", DOCKERFILE)
    assert len(commands) == 3
    for command in commands:
        assert "--no-deps" in command
        assert (
            "--require-hashes --only-binary :all:" in command
            or "--no-index --no-build-isolation" in command
        )
    files = re.findall(r"--requirement (\S+)", DOCKERFILE)
    assert files == ["requirements.torch.lock", "requirements.serve.lock"]
    for name in files:
        assert all(entries((ROOT / name).read_text(encoding="utf-8")).values()), (
            f"{name} has an entry without a hash"
        )
    torch = entries((ROOT / "requirements.torch.lock").read_text(encoding="utf-8"))
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert [name.removesuffix("+cpu") for name in torch] == [
        line for line in constraints if line.startswith("torch==")
    ]


def test_the_image_has_the_versions_and_hashes_of_the_lock_file() -> None:
    serving, locked = (
        entries((ROOT / "requirements.serve.lock").read_text(encoding="utf-8")),
        entries(LOCKED),
    )
    assert {name: locked[name] for name in serving} == serving
    assert {name.partition("==")[0] for name in serving} >= {
        "uvicorn",
        "fastapi",
        "pillow",
        "numpy",
        "setuptools",
    }


def test_the_lock_file_of_the_image_is_up_to_date() -> None:
    pytest.importorskip("fastapi")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "lock_serving", "--check"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_copied_is_not_ignored() -> None:
    copied = {
        name
        for line in re.findall(r"^COPY (.*) \S+$", DOCKERFILE, re.MULTILINE)
        for name in line.split()
    }
    allowed = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)
