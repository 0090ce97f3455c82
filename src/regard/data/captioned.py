"""Images and what is said of them, ready for batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data import shapes
from regard.data.config import Corpus
from regard.data.corpora import Part
from regard.data.dataset import Dataset
from regard.data.file_inputs import FileInput
from regard.data.images import Pictures, Reading, prepare_pictures, read_picture, refuse_missing
from regard.data.readers import open_corpus
from regard.data.report import NAMED, Found
from regard.data.rows import Row
from regard.data.store import Integers
from regard.errors import DataError, Problem, first_of
from regard.text.files import TextFile


@dataclass(frozen=True, eq=False)
class CaptionedImages(Dataset):
    """Captions as tokens, the names of their images as texts, and the images; several captions may share one."""

    pictures: Pictures
    numbers: Integers
    """The picture of each example."""
    dropped: Found
    """The examples that are left out since their images cannot be read."""

    @cached_property
    def regions(self) -> NDArray[np.int32]:
        """Of the image of each example."""
        regions: NDArray[np.int32] = self.pictures.regions[self.numbers].astype(np.int32)
        return regions


def captioned(
    dataset: Dataset,
    corpora: Sequence[Corpus],
    base: Path,
    reading: Reading,
    progress: Callable[[int], None] = lambda done: None,
    *,
    drop: bool = False,
) -> CaptionedImages:
    """Captions with the images that their sources name; each image is read once, in the order of its first caption.

    With `drop`, captions of images that cannot be read are left out.
    """
    folders = [folder_of(corpus, base) for corpus in corpora]
    named: dict[tuple[Path, str], tuple[int, str]] = {}
    numbers = np.empty(len(dataset), dtype=np.int64)
    for example, name in enumerate(dataset.texts["source"]):
        key = folders[int(dataset.corpora[example])], name
        numbers[example] = named.setdefault(key, (len(named), dataset.where(example)))[0]
    pictures = prepare_pictures({key: where for key, (_, where) in named.items()}, reading, progress, drop=drop)
    seen = np.isin(numbers, pictures.kept)
    rows, lost = np.flatnonzero(seen), np.flatnonzero(~seen)
    found = Found(len(lost), tuple(dataset.where(int(row)) for row in lost[:NAMED]))
    chosen = dataset.select(rows) if len(lost) else dataset
    own = {name: getattr(chosen, name) for name in Dataset.__dataclass_fields__}
    return CaptionedImages(
        **own, pictures=pictures, numbers=np.searchsorted(pictures.kept, numbers[rows]), dropped=found
    )


@contextmanager
def images_checked_too(named: Mapping[Part, Sequence[Corpus]], base: Path, reading: Reading) -> Iterator[None]:
    """Where captions are refused, also all that is wrong with their images: whoever mends the one wants to know the
    other."""
    try:
        yield
    except DataError as error:
        found = [problem for part, corpora in named.items() for problem in _unreadable(corpora, part, base, reading)]
        raise DataError(problems=first_of([*error.problems, *found])) from None


def _unreadable(corpora: Sequence[Corpus], part: Part, base: Path, reading: Reading) -> Iterator[Problem]:
    """What is wrong with the images that corpora name, each once."""
    seen: set[tuple[Path, str]] = set()
    for corpus in corpora:
        folder = folder_of(corpus, base)
        with suppress(DataError):  # a file that cannot be read, which is told already
            reader = open_corpus(corpus, base, part)
            for row in reader.rows():
                name = row.values[reader.columns.index("source")]
                if name.strip() and (folder, name) not in seen:
                    seen.add((folder, name))
                    yield from _problems_with(name, folder, reading, reader.where(row.line))


def _problems_with(name: str, folder: Path, reading: Reading, where: str) -> Sequence[Problem]:
    try:
        read_picture(name, folder, reading, where)
    except DataError as error:
        return error.problems
    return ()


def image_input(row: Row, file: TextFile, otherwise: Path | None = None) -> FileInput:
    """The image that a row names, as seen from where the command runs: its name is relative to the file, or to
    `otherwise` where there is no such image."""
    [name], folder, place = row.values, file.path.parent, file.where(row.line)
    if row.fault is not None or name.startswith(shapes.PREFIX):
        return FileInput(name, place, row.fault)
    if otherwise is not None and not os.path.isfile(folder / name):
        folder = otherwise
    try:
        refuse_missing(name, folder, place)
    except DataError as error:
        return FileInput(name, place, error.problems[0])
    return FileInput(str(folder / name), place)


def folder_of(corpus: Corpus, base: Path) -> Path:
    """What the names of images are relative to: the folder of the file that they stand in."""
    if corpus.corpus is not None or corpus.dataset is not None:
        return base
    return (base / str(corpus.file or next(iter(corpus.columns.values())))).parent
