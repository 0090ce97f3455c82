"""The examples that every book shows are right: the output, and the alignment.

`REGARD_SLOW=1` trains every recipe with ten seeds, of which nine must be right.
"""

import os
import runpy
from pathlib import Path

import pytest

from places import ROOT

slow = pytest.mark.skipif(not os.environ.get("REGARD_SLOW"), reason="minutes: set REGARD_SLOW=1")
FLAGSHIP = runpy.run_path(str(ROOT / "benchmarks" / "flagship.py"))
train_one = FLAGSHIP["train_one"]


def test_how_are_you_looks_at_how_and_you(tmp_path: Path) -> None:
    found = train_one("how-are-you", 1, tmp_path)
    assert found.output == "잘 지내?"
    assert found.shares["잘"] > 0.6
    assert found.shares["지내"] > 0.6


@slow
@pytest.mark.parametrize("name", FLAGSHIP["RECIPES"])
def test_nine_of_ten_seeds_are_right(name: str, tmp_path: Path) -> None:
    found = [train_one(name, seed, tmp_path) for seed in range(1, 11)]
    assert sum(one.is_right(name, least=0.5) for one in found) >= 9, found
