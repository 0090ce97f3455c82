"""Whether a folder holds a model of transformers: asked before torch is loaded, so that a mistake is told at once."""

from __future__ import annotations

from pathlib import Path

from regard.errors import DataError


def refuse_without_config(folder: Path, source: str) -> None:
    """A folder, given as `source`, must have a config.json; one that stands a folder below is named."""
    if (folder / "config.json").exists():
        return
    below = sorted(folder.glob("*/config.json"))
    hint = "expected is a folder as save_pretrained of transformers writes it"
    if below:
        hint = f"there is one below: give {' or '.join(str(found.parent) for found in below[:3])}"
    raise DataError("there is no config.json in the folder", where=source, hint=hint)
