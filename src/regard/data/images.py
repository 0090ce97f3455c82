"""Images -> arrays: read with Pillow and resized, or as the features that another network made of them; cached.

What becomes of unusual files: transparency is laid on white, CMYK and palettes become RGB, 16 bits become 8, a
photograph is turned upright, an animation is its first frame. Refused are files that are broken or cut off,
floating-point pixels, images of one pixel's width or height, and images of more pixels than a limit that can be raised.
"""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from regard.config import Config
from regard.data import shapes
from regard.data.batches import Images
from regard.data.config import Corpus
from regard.data.corpora import Part
from regard.data.dataset import NAMED, Dataset, Found
from regard.data.file_inputs import FileInput
from regard.data.formats import Row
from regard.data.prepare import key_of
from regard.data.readers import open_corpus
from regard.data.store import Array, ArrayWriter, ColumnWriter, Integers, open_array, stored
from regard.errors import DataError, Problem, first_of, import_extra
from regard.text.files import TextFile

FORMAT = 2
"""Counts up when stored images change their form, so that no old cache is read as a new one."""


LIMIT = "model.images.max_pixels"
"""Where the largest number of pixels is set."""


class ImagesConfig(Config):
    """How images are read."""

    size: int = Field(64, ge=8, le=1024)
    """Pixels on each side of what the model sees. All of an image is squeezed into that square, since a caption may be
    about any part of it."""
    max_pixels: int = Field(64_000_000, ge=1)
    """An image of more pixels is refused before it is unpacked: it may be a trap, or simply need scaling down."""


@dataclass(frozen=True)
class Reading:
    """What a model wants to know of an image: pixels, or features of a width."""

    images: ImagesConfig
    rows: int
    """Regions that the model makes of the pixels, from top to bottom and from left to right."""
    columns: int
    feature_width: int | None = None
    """Of the features that are read instead, from .npy files."""

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8 if self.feature_width is None else np.float32)


@dataclass(frozen=True, eq=False)
class Picture:
    """One image as a source; its length is the number of its regions."""

    shown: Array
    """Pixels [size, size, 3] as bytes, or features [S, D]."""
    regions: int
    columns: int
    """Regions that stand side by side."""

    def __len__(self) -> int:
        return self.regions

    def names(self) -> list[str]:
        """Of its regions, "row,column", both from 1."""
        return [f"{place // self.columns + 1},{place % self.columns + 1}" for place in range(self.regions)]


def images_of(pictures: Sequence[Picture]) -> Images:
    """Pictures as one batch; features of fewer regions are padded with zeros."""
    lengths_B = torch.tensor([picture.regions for picture in pictures])
    longest = int(lengths_B.max())
    if len({picture.shown.shape for picture in pictures}) == 1:
        shown = np.stack([picture.shown for picture in pictures])
    else:
        shown = np.zeros((len(pictures), longest, pictures[0].shown.shape[1]), dtype=np.float32)
        for row, picture in zip(shown, pictures, strict=True):
            row[: picture.regions] = picture.shown
    numbers = [zlib.crc32(np.ascontiguousarray(picture.shown).data) for picture in pictures]
    ids_BL = torch.tensor(numbers)[:, None].repeat(1, longest)
    columns_B = torch.tensor([picture.columns for picture in pictures])
    return Images(ids_BL, lengths_B, lengths_B, torch.from_numpy(shown), columns_B)


def read_picture(name: str, folder: Path, reading: Reading, where: str) -> Picture:
    """What a file's name, relative to `folder`, or a scene of shapes stands for; `where` names it in messages."""
    if reading.feature_width is not None:
        refuse_missing(name, folder, where)
        return _features(folder / name, reading.feature_width, where)
    if name.startswith(shapes.PREFIX):
        pixels = shapes.draw(shapes.parse(name, where), reading.images.size)
    elif name.lower().endswith(".npy"):
        hint = "model.encoder=features and model.feature_width=... read those"
        raise DataError(f"{name} is an array of features, and the model reads images", where=where, hint=hint)
    else:
        refuse_missing(name, folder, where)
        pixels = read_image(folder / name, reading.images, where)
    return Picture(pixels, reading.rows * reading.columns, reading.columns)


# Features


def _features(path: Path, width: int, where: str) -> Picture:
    """An array [regions, width] or [rows, columns, width] of any network's."""
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):  # what numpy says here is how to load pickles, which is never wise
        what = f"{path.name} is no .npy file of numbers, and the model reads features of images"
        hint = "one array an image, as numpy.save writes it"
        raise DataError(what, where=where, hint=hint) from None
    if (
        not isinstance(array, np.ndarray)
        or array.ndim not in (2, 3)
        or 0 in array.shape
        or array.dtype.kind not in "fiu"
    ):
        held = f"{array.shape} of {array.dtype}" if isinstance(array, np.ndarray) else "several arrays"
        hint = "allowed: numbers as [regions, width] or [rows, columns, width]"
        raise DataError(f"{path.name} holds {held}", where=where, hint=hint)
    if array.shape[-1] != width:
        what = f"{path.name} is {array.shape[-1]:,} wide, model.feature_width says {width:,}"
        raise DataError(what, where=where, hint="all arrays must come from the same layer of the same network")
    with np.errstate(over="ignore"):  # what is too large for 32 bits becomes infinite, and is refused
        regions = array.reshape(-1, width).astype(np.float32)
    if not np.isfinite(regions).all():
        what = f"{path.name} holds values that are not finite as 32-bit numbers"
        raise DataError(what, where=where, hint="compute it anew")
    columns = array.shape[1] if array.ndim == 3 else 1
    return Picture(regions, len(regions), columns)


# Images


def read_image(path: Path, config: ImagesConfig, where: str) -> NDArray[np.uint8]:
    """The pixels of an image file, [size, size, 3]."""
    pillow, operations = (import_extra(f"PIL.{part}", extra="images", where=where) for part in ("Image", "ImageOps"))
    try:
        with _own_limit(pillow), pillow.open(path) as image:
            _refuse_size(path, image.size, config.max_pixels, where)
            image.draft("RGB", (config.size, config.size))
            upright = operations.exif_transpose(_eight_bits(image, path, pillow, where))
            square = _on_white(upright, pillow).resize((config.size, config.size), pillow.Resampling.BILINEAR)
            return np.array(square, dtype=np.uint8)
    except (DataError, MemoryError):
        raise
    except Exception as error:  # decoders of files that are broken raise anything
        hint = "open it in a viewer and save it anew, or take it out of the list"
        what = f"{path.name} cannot be read as an image: {_first_line(error)}"
        raise DataError(what, where=where, hint=hint) from None


@contextmanager
def _own_limit(pillow: Any) -> Iterator[None]:
    """Pillow's limit gives way to ours, which can be raised; opening an image unpacks nothing yet."""
    before, pillow.MAX_IMAGE_PIXELS = pillow.MAX_IMAGE_PIXELS, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        pillow.MAX_IMAGE_PIXELS = before


def refuse_missing(name: str, folder: Path, where: str) -> None:
    """An error where there is no file of this name in the folder."""
    if not name.strip():
        raise DataError("the name of the image is empty", where=where, hint="the name of a file is expected")
    path = folder / name
    if not os.path.isfile(path):  # also where a name is too long for a file's
        what = "is a folder" if os.path.isdir(path) else "does not exist"
        relative_to = "the folder that the command runs in" if folder == Path() else "the file that names them"
        raise DataError(f"the image {path} {what}", where=where, hint=f"paths are relative to {relative_to}")


def _refuse_size(path: Path, size: tuple[int, int], max_pixels: int, where: str) -> None:
    width, height = size
    if width * height > max_pixels:
        what = f"{path.name} has {width:,} x {height:,} pixels, more than the {max_pixels:,} that are allowed"
        raise DataError(what, where=where, hint=f"scale it down, or raise {LIMIT} in the recipe, for a run by --set")
    if min(size) < 2:
        what = f"{path.name} has {width} x {height} pixels: there is nothing to see"
        raise DataError(what, where=where, hint="at least 2 x 2")


def _eight_bits(image: Any, path: Path, pillow: Any, where: str) -> Any:
    """The first frame with 8 bits a channel; Pillow itself would cut off 16 bits at 255."""
    image.load()
    if image.mode == "F" or (image.mode == "I" and not 0 <= image.getextrema()[0] <= image.getextrema()[1] < 2**16):
        kind = "floating-point" if image.mode == "F" else "32-bit"
        raise DataError(f"{path.name} has {kind} pixels", where=where, hint="save it with 8 or 16 bits a channel")
    if image.mode.startswith("I"):
        return pillow.fromarray((np.asarray(image).astype(np.uint32) // 257).astype(np.uint8))
    return image


def _on_white(image: Any, pillow: Any) -> Any:
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = pillow.new("RGBA", image.size, (255, 255, 255, 255))
        image = pillow.alpha_composite(white, image)
    return image.convert("RGB")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# The cache


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures in memory-mapped arrays, one after the other."""

    values: Array
    offsets: Integers
    columns: Integers
    reading: Reading
    kept: Integers
    """Which of the pictures that were asked for these are: all, or those that could be read."""

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, number: int) -> Picture:
        values, reading = self.values[self.offsets[number] : self.offsets[number + 1]], self.reading
        if reading.feature_width is not None:
            shown = values.reshape(-1, reading.feature_width)
            return Picture(shown, len(shown), int(self.columns[number]))
        size = reading.images.size
        return Picture(values.reshape(size, size, 3), reading.rows * reading.columns, reading.columns)

    @property
    def regions(self) -> Integers:
        """Of each picture."""
        if self.reading.feature_width is None:
            return np.full(len(self), self.reading.rows * self.reading.columns)
        return np.diff(self.offsets) // self.reading.feature_width


def prepare_pictures(
    named: Mapping[tuple[Path, str], str],
    reading: Reading,
    progress: Callable[[int], None] = lambda done: None,
    *,
    drop: bool = False,
) -> Pictures:
    """The pictures of (folder, name) in their order, from the cache where no file has changed since.

    `named` says where each is asked for, which messages name. Whether a file has changed is told by its size and time.
    Those that cannot be read are refused, or left out with `drop` as long as others are left.
    """

    def build(folder: Path) -> None:
        problems: list[Problem] = []
        with (
            closing(ColumnWriter(folder, "shown", reading.dtype)) as shown,
            closing(ArrayWriter(folder / "columns", np.int32)) as columns,
            closing(ArrayWriter(folder / "kept", np.int64)) as kept,
        ):
            for number, ((parent, name), where) in enumerate(named.items()):
                try:
                    picture = read_picture(name, parent, reading, where)
                except DataError as error:
                    problems += error.problems
                    continue
                shown.extend(picture.shown.reshape(-1), [picture.shown.size])
                columns.extend([picture.columns])
                kept.extend([number])
                progress(number + 1)
        if problems and not (drop and len(problems) < len(named)):
            raise DataError(problems=first_of(problems))

    settings = [FORMAT, reading.images.size, reading.feature_width, reading.images.max_pixels if drop else None]
    folder = stored(f"images-{key_of([settings, [_stamp(*one) for one in named]])}", build)
    values, offsets = open_array(folder / "shown.values", reading.dtype), open_array(folder / "shown.offsets", np.int64)
    columns, kept = open_array(folder / "columns", np.int32), open_array(folder / "kept", np.int64)
    return Pictures(values, offsets, columns, reading, kept)


def _stamp(folder: Path, name: str) -> list[str | int]:
    """What tells a file from another one, and from itself once it has changed; a scene is its own stamp."""
    try:
        found = (folder / name).stat()
    except (OSError, ValueError):
        return [name]
    return [str((folder / name).absolute()), found.st_size, found.st_mtime_ns]


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
