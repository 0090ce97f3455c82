"""Heat maps in Unicode blocks."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator

import numpy as np
from rich.cells import cell_len

from regard.views.heatmap import Heatmap
from regard.views.labels import clean, clusters, number, pad, shorten

SHADES = " ·░▒▓█"
"""From the lower end of the scale to the upper one."""


def to_terminal(heatmap: Heatmap, width: int | None = None) -> str:
    """The picture in Unicode blocks, at most `width` columns wide (default: the terminal's).

    A cell is two columns wide, which makes it about square and leaves room for a Hangul syllable above it; the labels
    of columns run downwards. What is too wide goes on in further panels.
    """
    width = width or shutil.get_terminal_size().columns
    longest = max(cell_len(row) for row in heatmap.rows)
    margin = min(longest, max(2, width // 3))
    fitting = max(1, (width - margin - 2) // 2)
    panels = math.ceil(len(heatmap.columns) / fitting)
    step = math.ceil(len(heatmap.columns) / panels)
    lines = [shorten(clean(heatmap.title), width)] if heatmap.title else []
    for start in range(0, len(heatmap.columns), step):
        lines += [*_panel(heatmap, slice(start, start + step), margin), ""]
    low = number(-heatmap.peak) if heatmap.signed else "0"
    lines.append(shorten(f"{low} {SHADES} {number(heatmap.peak)}", width))
    return "\n".join(lines) + "\n"


def _panel(heatmap: Heatmap, columns: slice, margin: int) -> Iterator[str]:
    tops = [clusters(shorten(column, 12)) for column in heatmap.columns[columns]]
    height = max(len(top) for top in tops)
    tops = [[" "] * (height - len(top)) + top for top in tops]
    for line in zip(*tops, strict=True):
        yield " " * (margin + 1) + "".join(pad(cluster, 2) for cluster in line) + " "
    shades = np.array([2 * shade for shade in SHADES])[
        np.rint(heatmap.shares[:, columns] * (len(SHADES) - 1)).astype(int)
    ]
    for row, cells in zip(heatmap.rows, shades, strict=True):
        name = shorten(row, margin)
        yield f"{' ' * (margin - cell_len(name))}{name}│{''.join(cells)}│"
