"""The texts of a split, as they were read, in memory-mapped columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.data.corpora import Part
from regard.data.readers import Reader
from regard.data.store import Integers, TextColumn, parts

Readers = dict[Part, list[Reader]]


@dataclass(frozen=True, eq=False)
class Texts:
    """The texts of one split: some rows of all that was read from its files. Everything is mapped,
    nothing is held."""

    read: dict[str, TextColumn]
    corpora: Integers
    lines: Integers
    readers: list[Reader]
    # the number of the example that each row read belongs to: a long document is several rows
    owners: Integers
    rows: Integers

    @classmethod
    def open(
        cls, folder: Path, split: Part, readers: Readers, rows: Integers | None = None
    ) -> Texts:
        """A split of its own files, or of the training files where it is a share of them."""
        origin: Part = split if split in readers else "train"
        read = {
            name: TextColumn.open(folder, f"{origin}.{name}") for name in readers[origin][0].columns
        }
        corpora, lines, owners = np.load(folder / f"{origin}.places.npy", mmap_mode="r")
        rows = np.load(folder / f"{split}.rows.npy", mmap_mode="r") if rows is None else rows
        return cls(read, corpora, lines, readers[origin], owners, rows)

    @property
    def columns(self) -> dict[str, TextColumn]:
        columns = {name: column.select(self.rows) for name, column in self.read.items()}
        return (
            {**columns, "part": parts(self.owners[self.rows])}
            if self.readers[0].corpus.IN_PIECES
            else columns
        )

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, number: int) -> str:
        row = self.rows[number]
        return self.readers[int(self.corpora[row])].where(int(self.lines[row]))
