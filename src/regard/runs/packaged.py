"""The example runs that come with the package: small models that were trained by
scripts/train_examples.

They are used like any run, by the name `example:NAME`. Nothing is written into their folders.
"""

from __future__ import annotations

from pathlib import Path

from regard.errors import CheckpointError, did_you_mean

PACKAGED_RUNS = Path(__file__).parent / "packaged"
EXAMPLE = "example:"
"""What stands before the name of an example where a run folder is expected."""


def packaged_runs() -> dict[str, Path]:
    """The folders of the example runs, by their names."""
    return {path.parent.name: path.parent for path in sorted(PACKAGED_RUNS.glob("*/recipe.yaml"))}


def folder_or_example(folder: str | Path) -> Path:
    """A run folder, or with `example:NAME` that of an example run."""
    name = str(folder)
    if not name.startswith(EXAMPLE) or Path(name).exists():
        return Path(folder)
    runs = packaged_runs()
    if (chosen := name.removeprefix(EXAMPLE)) not in runs:
        hint = did_you_mean(chosen, [*runs])
        raise CheckpointError("there is no such example run", where=name, hint=hint)
    return runs[chosen]
