"""The example runs that come with the package: small models that were trained by scripts/train_examples.

They are used like any run, and nothing is written into their folders.
"""

from __future__ import annotations

from pathlib import Path

PACKAGED_RUNS = Path(__file__).parent / "packaged"


def packaged_runs() -> dict[str, Path]:
    """The folders of the example runs, by their names."""
    return {path.parent.name: path.parent for path in sorted(PACKAGED_RUNS.glob("*/recipe.yaml"))}
