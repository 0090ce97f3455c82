"""Which files may be opened for a recipe that somebody else wrote: only those inside one folder."""

from __future__ import annotations

from pathlib import Path

from regard.errors import Problem


def is_inside(path: Path, within: Path | None) -> bool:
    """Whether a path, with its links followed, lies in the folder `within`, a resolved path; always
    true if there is none."""
    if within is None:
        return True
    try:
        return path.resolve().is_relative_to(within)
    # a name that is too long, a zero byte in it, links that lead in a circle
    except (OSError, ValueError, RuntimeError):
        return False


def outside(name: str) -> Problem:
    """The message for a file outside the folder that may be read, and for one that is missing in
    it.

    The words do not depend on whether a file exists, so that they do not reveal it.
    """
    what = "there is no file of this name among those that may be read"
    return Problem(
        name, what, "a recipe that is sent may name built-in corpora and files that are sent along"
    )
