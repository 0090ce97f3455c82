"""A matrix with labels, and the colours of its cells."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.floating]

BLUES = ("ffffff", "d0e4fe", "a5c8f6", "7eace9", "5b90d6", "3c75bf", "215ba3", "074284", "002a62")
"""One hue at nine lightnesses, L* = 100, 89.75, ... 18."""
ORANGES = ("ffffff", "ffddc5", "fdbb8a", "f1994f", "d87820", "b85b00", "934100", "6d2b00", "481900")
"""The same lightnesses in the opposite hue, for what is below zero."""


@dataclass(frozen=True, eq=False)
class Heatmap:
    """`values[r, c]` belongs to `rows[r]` and `columns[c]`; an empty label leaves its place blank."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Numbers
    title: str = ""
    label_width: int = 18
    """Columns of a terminal that a label may take up; longer ones are cut."""
    bars: bool = False
    """Whether the rows are bars, made of cells, and the columns the marks of their scale."""

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.shape != (len(self.rows), len(self.columns)) or not values.size:
            raise ValueError(f"values {values.shape} for {len(self.rows)} rows and {len(self.columns)} columns")
        if not np.isfinite(values).all():
            raise ValueError("the values of a heat map are finite numbers")
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    @property
    def peak(self) -> float:
        """The largest value, whatever its sign, which gets the darkest shade; 1 where all are 0."""
        return float(np.abs(self.values).max()) or 1.0

    @property
    def signed(self) -> bool:
        """Whether there are values below 0: white then stands in the middle of the scale."""
        return bool((self.values < 0).any())

    @property
    def shares(self) -> Numbers:
        """Where each value stands between the two ends of the scale, from 0 to 1."""
        shares: Numbers = self.values / self.peak
        return (shares + 1) / 2 if self.signed else shares


def colours(shares: Numbers, *, signed: bool = False) -> npt.NDArray[np.uint8]:
    """Red, green and blue, [..., 3]. White for 0, dark blue for 1, even steps of lightness (CIE L*) between: the scale
    survives a grey printer. With `signed`, dark orange for 0, white for a half, dark blue for 1."""
    names = (*ORANGES[:0:-1], *BLUES) if signed else BLUES
    stops = np.array([list(bytes.fromhex(name)) for name in names], dtype=np.float64)
    places = np.linspace(0, 1, len(stops))
    channels = [np.interp(shares, places, channel) for channel in stops.T]
    pixels: npt.NDArray[np.uint8] = np.rint(np.stack(channels, axis=-1)).astype(np.uint8)
    return pixels


def colour(share: float, *, signed: bool = False) -> str:
    """The colour of one share, as HTML and SVG write it."""
    return "#" + bytes(colours(np.array(share), signed=signed)).hex()


def png_of_cells(heatmap: Heatmap) -> bytes:
    """One pixel a cell, as a PNG file: for pictures of so many cells that a rectangle each would not load."""
    return png_of_pixels(colours(heatmap.shares, signed=heatmap.signed))


def png_of_pixels(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Red, green and blue, [height, width, 3], as a PNG file."""
    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    chunks = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
