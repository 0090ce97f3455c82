"""Libraries that only some users need, imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from regard.errors import DataError


def needed(module: str, *, extra: str, where: str, doing: str = "reading") -> Any:
    """The module, or one sentence that says how to install it; `where` names what needs it."""
    try:
        return import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        what, hint = f"{doing} it needs the library {library!r}", f"pip install 'regard[{extra}]'"
        raise DataError(what, where=where, hint=hint) from None
