"""Files that are sent with a request, in a temporary folder that no message names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from pydantic import AfterValidator, Field

from regard.errors import RegardError
from regard.studio.requests import Body

FILE_NAME = re.compile(r"[\w][\w .()-]{0,99}")
"""Names of files that are sent: no folders, nothing hidden."""
MAX_NAME_BYTES = 200
"""Most bytes of a name that is sent, in UTF-8."""


def short_enough(name: str) -> str:
    """A name that a file system can hold, also with a few letters more: most take 255 bytes."""
    size = len(name.encode())
    if size > MAX_NAME_BYTES:
        raise ValueError(
            f"the name has {size} bytes in UTF-8, at most {MAX_NAME_BYTES} are allowed"
        )
    return name


def file_name(name: str) -> str:
    """A name that a file that is sent may have."""
    if not FILE_NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a name for a file that is sent: up to 100 letters, digits, spaces, "
            "and _ - . ( ), beginning with a letter, a digit or _"
        )
    return short_enough(name)


class SentFile(Body):
    name: Annotated[str, AfterValidator(file_name)] = Field(
        json_schema_extra={"pattern": f"^{FILE_NAME.pattern}$"}
    )
    text: str


@contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder. Errors name its files without it."""
    with TemporaryDirectory(prefix="regard-") as name:
        folder = Path(name).resolve()
        try:
            yield folder
        except RegardError as error:
            problems = [
                replace(
                    problem,
                    where=without_folder(folder, problem.where),
                    what=without_folder(folder, problem.what),
                )
                for problem in error.problems
            ]
            raise type(error)(problems=problems) from None


def without_folder(folder: Path, text: str) -> str:
    return re.sub(
        rf"(\.\./)*{re.escape(folder.name)}/", "", text.replace(f"{folder}/", "")
    ).replace(str(folder), "")
