"""watch.json: what a model made of one text, `training.watch`, at some steps of its training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.text.writing import write_file

WATCH_FILE = "watch.json"


def read_watched(folder: Path) -> dict[str, Any]:
    """The text and its entries, by rising steps; none if the run watched no text."""
    try:
        watched: dict[str, Any] = json.loads((folder / WATCH_FILE).read_bytes())
        return {"text": str(watched["text"]), "entries": list(watched["entries"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {"text": "", "entries": []}


def add_watched(folder: Path, text: str, entry: dict[str, Any]) -> None:
    """Add what the model makes of the text after `entry["step"]` steps. Entries of later steps,
    which a resumed training makes again, are removed, and so are those of another text."""
    before = read_watched(folder)
    earlier = before["entries"] if before["text"] == text else []
    entries = [*(one for one in earlier if one["step"] < entry["step"]), entry]
    write_file(
        folder / WATCH_FILE,
        json.dumps({"text": text, "entries": entries}, ensure_ascii=False, separators=(",", ":")),
    )
