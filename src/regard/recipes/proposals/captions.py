"""Tables of images and their captions."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from regard.recipes.proposals.columns import Table, is_label, last_name
from regard.recipes.proposals.profile import DataProfile, TextStatistics, japanese_settings

CAPTION_COLUMNS = ("caption", "captions", "description", "sentences")


def captions_in(table: Table) -> DataProfile | None:
    """A column of images and one of captions, by its name, or the only other one with text unless
    there is a label."""
    images = table.of_kind("image")
    others = [key for key in table.columns if key not in images[:1]]
    captions = [key for key in others if last_name(key) in CAPTION_COLUMNS] or others
    if len(captions) > 1 and not any(map(is_label, others)):
        captions = [key for key in others if table.kinds[key] == "text"]
    if not images or len(captions) != 1:
        return None
    cells = table.columns[captions[0]]
    texts = [text for cell in cells for text in (cell if isinstance(cell, list) else [cell])]
    size, settings = TextStatistics.of(texts), japanese_settings(texts)
    array = next((name for name in table.columns[images[0]] if name.lower().endswith(".npy")), None)
    with suppress(OSError, ValueError, EOFError, IndexError):  # which the reader reports
        if array is not None:
            width = int(np.load(table.data["file"].parent / array, mmap_mode="r").shape[-1])
            settings |= {
                "model.images": None,
                "model.encoder": "features",
                "model.feature_width": width,
            }
    line = {**table.data, "image": images[0], "caption": captions[0]}
    return DataProfile("captioning", line, table.rows, (size,), settings)
