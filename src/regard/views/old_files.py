"""Pictures and pages on disk: whole, or what was there before."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard.errors import RegardError


def write_json(tree: dict[str, Any], path: Path) -> None:
    """One object, as text that people can read."""
    write_picture(path, (json.dumps(tree, ensure_ascii=False) + "\n").encode())


def write_picture(path: Path, content: bytes) -> None:
    """Write aside, sync and rename. A picture that is there already is replaced: people redraw."""
    aside = path.parent / f".{path.name}.{os.getpid()}.tmp"
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except OSError as error:
        raise RegardError(f"the picture cannot be written: {error.strerror}", where=str(path)) from None
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
