"""The columns of a user's table -> images and what is said of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.columns import Column, Columns, column_of, is_text, last_name
from regard.data.recognise_labels import CLASSES, NUMBERS
from regard.data.rows import Key, leaves_in
from regard.text.files import TextFile

IMAGE = re.compile(r"(?!\w+://).*\.(png|jpe?g|gif|bmp|webp|tiff?|npy)", re.IGNORECASE)
"""The name of an image's file, or of its features; an address on the web is none."""
CAPTIONS = ("caption", "captions", "description", "sentences")
"""What the captions are often called."""


@dataclass(frozen=True)
class RecognisedCaptions:
    """Images with captions."""

    file: str
    columns: dict[str, Key]
    """The image and the caption, as a recipe names them beside the file."""
    lines: int
    caption: Column
    feature_width: int | None
    """Of the first array, where arrays are named for images."""


def captions_in(
    file: TextFile, objects: Sequence[Mapping[str, Any]], columns: Columns, lines: int
) -> RecognisedCaptions | None:
    """Images and captions, if a column of a table names images; `objects` has the lines of a .jsonl."""
    image = next((key for key, values in columns.items() if are_images(values)), None)
    caption = None if image is None else _caption(image, columns)
    if image is None or caption is None:
        return None
    found = [dict(leaves_in(example)).get(str(caption)) for example in objects] or columns[caption]
    texts = [text for one in found for text in (one if isinstance(one, list) else [one]) if isinstance(text, str)]
    keys = {"image": image, "caption": caption}
    width = _feature_width(columns[image], file.path.parent)
    return RecognisedCaptions(file.name, keys, lines, column_of(caption, texts or [""]), width)


def are_images(values: Sequence[str]) -> bool:
    """Whether nearly all values name images."""
    return sum(IMAGE.fullmatch(value.strip()) is not None for value in values) > 0.9 * len(values)


def names_images(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool | None:
    """Whether the first record has a name for the column of images; None where there is no such column."""
    for place, name in enumerate(first):
        if are_images([row[place] for row in rows if len(row) > place]):
            return not are_images([name])
    return None


def _feature_width(names: Sequence[str], folder: Path) -> int | None:
    """How wide the first array is that can be read; what is wrong with others is said when all are."""
    for name in names:
        with suppress(OSError, ValueError, EOFError, IndexError):
            if name.lower().endswith(".npy"):
                return int(np.load(folder / name, mmap_mode="r").shape[-1])
    return None


def _caption(image: Key, columns: Columns) -> Key | None:
    """The column of captions: by its name, or the only other one with text, unless a label is what is to be found."""
    others = [key for key, values in columns.items() if key != image and any(map(str.isalpha, "".join(values)))]
    named = next((key for key in columns if key != image and last_name(key) in CAPTIONS), None)
    if named is not None or len(others) == 1 == len(columns) - 1:
        return named if named is not None else others[0]
    texts = [key for key in others if is_text(columns[key])]
    labelled = any(last_name(key) in (*CLASSES, *NUMBERS) for key in columns)
    return texts[0] if len(texts) == 1 and not labelled else None
