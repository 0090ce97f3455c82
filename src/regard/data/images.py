"""Images -> arrays: read with Pillow and resized, or as the features that another network made of
them; cached.

What becomes of unusual files: transparency is laid on white, CMYK and palettes become RGB, 16 bits
become 8, a photograph is turned upright, an animation is its first frame. Refused are files that
are broken or cut off, floating-point pixels, images of one pixel's width or height, and images of
more pixels than a limit that can be raised.
"""

from __future__ import annotations

import base64
import io
import os
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from regard.config import Config
from regard.data import shapes
from regard.data.batches import Images
from regard.data.store import Array, ColumnWriter, Integers, TokenColumn, rebuilding, stored
from regard.errors import DataError, Problem, first_of, import_extra
from regard.text.access import is_inside
from regard.text.checksums import key_of, word_sums

# counts up when stored images change their form, so that no old cache is read as a new one
PICTURES_VERSION = 6
IMAGE_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
"""What is read, whatever a file is called. Others run programs (EPS) or unpack images within them
on opening (ICO)."""
DATA_URL = "data:image/"
"""What the name of an image begins with that is held in the name itself:
data:image/png;base64,iVBOR..."""


MAX_PIXELS = 200_000_000
"""Most pixels of all images that are sent in one request, or that one split of a sent recipe
names."""
MAX_SHOWN_PIXELS = 20_000_000
"""Most pixels of an image of a sent recipe that is shown as an example."""


class ImagesConfig(Config):
    """How images are read."""

    size: int = Field(64, ge=8, le=1024)
    """Pixels on each side of what the model sees. All of an image is squeezed into that square,
    since a caption may be about any part of it."""


@dataclass(frozen=True)
class Reading:
    """How a model reads an image: as pixels, or as features of a width."""

    images: ImagesConfig
    # regions that the model makes of the pixels, from top to bottom and from left to right
    rows: int
    columns: int
    feature_width: int | None = None  # of the features that are read instead, from .npy files

    def picture(self, shown: Array, columns: int = 1) -> Picture:
        """Pixels or features as one image; `columns` is for features."""
        if self.feature_width is None:
            size = self.images.size
            return Picture(shown.reshape(size, size, 3), self.rows * self.columns, self.columns)
        features = shown.reshape(-1, self.feature_width)
        return Picture(features, len(features), columns)


@dataclass(frozen=True, eq=False)
class Picture:
    """One image as a source; its length is the number of its regions."""

    shown: Array  # pixels [size, size, 3] as bytes, or features [S, D]
    regions: int
    columns: int  # regions that stand side by side

    def __len__(self) -> int:
        return self.regions

    def names(self) -> list[str]:
        """The row and the column of each region, "row,column", both from 1."""
        return [
            f"{place // self.columns + 1},{place % self.columns + 1}"
            for place in range(self.regions)
        ]


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
    checksums = [zlib.crc32(np.ascontiguousarray(picture.shown).data) for picture in pictures]
    columns_B = torch.tensor([picture.columns for picture in pictures])
    return Images(lengths_B, lengths_B, torch.from_numpy(shown), columns_B, torch.tensor(checksums))


def read_picture(
    name: str, folder: Path, reading: Reading, where: str, within: Path | None = None
) -> Picture:
    """What a file's name, relative to `folder`, or a scene of shapes stands for; `where` names it
    in messages.

    Only files in `within` may be read, if that is given.
    """
    if reading.feature_width is None and name.startswith(shapes.PREFIX):
        return reading.picture(shapes.draw(shapes.parse(name, where), reading.images.size))
    if reading.feature_width is None and name.lower().endswith(".npy"):
        hint = "model.encoder=features and model.feature_width=... read those"
        raise DataError(
            f"{name} is an array of features, and the model reads images", where=where, hint=hint
        )
    if reading.feature_width is None and name.startswith(DATA_URL):
        return reading.picture(read_image(HeldImage.of(name, where), reading.images, where))
    DataError.raise_if([missing_image(name, folder, where, within)])
    if reading.feature_width is None:
        return reading.picture(read_image(folder / name, reading.images, where))
    array = _features(folder / name, reading.feature_width, where)
    return reading.picture(array, array.shape[1] if array.ndim == 3 else 1)


def pixel_count(name: str, folder: Path, within: Path | None = None) -> int:
    """The pixels of an image by its header alone; 0 where it cannot be read, or is a scene or an
    array of features.

    Of files in `within` alone, if that is given.
    """
    if name.startswith(shapes.PREFIX) or not (
        name.startswith(DATA_URL) or is_inside(folder / name, within)
    ):
        return 0
    pillow = import_extra("PIL.Image", extra="images", where="images")
    try:
        with warnings.catch_warnings(action="ignore"):
            file = HeldImage.of(name, "") if name.startswith(DATA_URL) else folder / name
            with pillow.open(file, formats=IMAGE_FORMATS) as image:
                return int(image.width * image.height)
    except Exception:  # what is wrong with it is said when it is read
        return 0


def too_many_pixels(where: str) -> Problem:
    return Problem(
        where,
        "the images have too many pixels in all",
        f"at most {MAX_PIXELS:,}: send smaller ones, or fewer",
    )


def as_url(picture: Picture) -> str:
    """The pixels of an image as a `data:` URL, as `read_picture` reads it."""
    pillow = import_extra("PIL.Image", extra="images", where="images", doing="writing")
    pillow.fromarray(picture.shown).save(content := io.BytesIO(), "PNG")
    return f"{DATA_URL}png;base64,{base64.b64encode(content.getvalue()).decode()}"


def missing_image(
    name: str, folder: Path, where: str, within: Path | None = None
) -> Problem | None:
    """Why there is no file of this name in the folder; None if there is one."""
    if not name.strip():
        return Problem(where, "the name of the image is empty", "the name of a file is expected")
    path = folder / name
    if within is not None and not (is_inside(path, within) and os.path.isfile(path)):
        what = f"there is no image {name!r} among the files that may be read"
        return Problem(
            where, what, f"allowed: {DATA_URL}..., {shapes.PREFIX}... and files that are sent along"
        )
    # not Path.is_file, which raises an error where a name is too long for a file's
    if os.path.isfile(path):
        return None
    what = "is a folder" if os.path.isdir(path) else "does not exist"
    relative_to = (
        "the folder that the command runs in" if folder == Path() else "the file that names them"
    )
    return Problem(where, f"the image {path} {what}", f"paths are relative to {relative_to}")


def _features(path: Path, width: int, where: str) -> NDArray[np.float32]:
    """An array [regions, width] or [rows, columns, width] of any network's."""
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        # numpy's message would advise to load pickles, which is never safe
        what = f"{path.name} is not a .npy file of numbers, and the model reads features of images"
        raise DataError(
            what, where=where, hint="one array an image, as numpy.save writes it"
        ) from None
    is_array = isinstance(array, np.ndarray)  # a .npz file has several
    if (
        not is_array
        or array.ndim not in (2, 3)
        or 0 in array.shape
        or array.dtype.kind not in "fiu"
    ):
        content = f"{array.shape} of {array.dtype}" if is_array else "several arrays"
        hint = "allowed: numbers as [regions, width] or [rows, columns, width]"
        raise DataError(f"{path.name} holds {content}", where=where, hint=hint)
    if array.shape[-1] != width:
        what = f"{path.name} is {array.shape[-1]:,} wide, model.feature_width says {width:,}"
        raise DataError(
            what, where=where, hint="all arrays must come from the same layer of the same network"
        )
    # what is too large for 32 bits becomes infinite, and is refused
    with np.errstate(over="ignore"):
        features: NDArray[np.float32] = array.astype(np.float32)
    if not np.isfinite(features).all():
        what = f"{path.name} holds values that are not finite as 32-bit numbers"
        raise DataError(what, where=where, hint="compute it anew")
    return features


class HeldImage(io.BytesIO):
    """An image in memory, to be read as a file is."""

    name = "the image"

    def __repr__(self) -> str:  # Pillow names it in its errors
        return self.name

    @classmethod
    def of(cls, url: str, where: str) -> HeldImage:
        """From a `data:` URL in base64."""
        head, _, content = url.partition(",")
        try:
            if not head.endswith(";base64"):
                raise ValueError
            return cls(base64.b64decode(content, validate=True))
        except ValueError:
            raise DataError(
                "the image is not valid base64", where=where, hint="data:image/png;base64,..."
            ) from None


def read_image(path: Path | HeldImage, config: ImagesConfig, where: str) -> NDArray[np.uint8]:
    """The pixels of an image file, [size, size, 3]."""
    pillow, operations = (
        import_extra(f"PIL.{part}", extra="images", where=where) for part in ("Image", "ImageOps")
    )
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            warnings.catch_warnings(
                action="error", category=pillow.DecompressionBombWarning
            ),  # of very many pixels
            pillow.open(path, formats=IMAGE_FORMATS) as image,
        ):
            if min(image.size) < 2:
                what = (
                    f"{path.name} has {image.width} x {image.height} pixels: there is "
                    "nothing to see"
                )
                raise DataError(what, where=where, hint="at least 2 x 2")
            image.draft("RGB", (config.size, config.size))
            image.load()
            wide = image.mode == "I" and not all(0 <= value < 2**16 for value in image.getextrema())
            if image.mode == "F" or wide:
                what = f"{path.name} has {'32-bit' if wide else 'floating-point'} pixels"
                raise DataError(what, where=where, hint="save it with 8 or 16 bits a channel")
            if image.mode.startswith("I"):  # Pillow itself would cut off 16 bits at 255
                image = pillow.fromarray(
                    (np.asarray(image).astype(np.uint32) // 257).astype(np.uint8)
                )
            upright = operations.exif_transpose(image)
            if upright.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in upright.info:
                upright = upright.convert("RGBA")
                white = pillow.new("RGBA", upright.size, (255, 255, 255, 255))
                upright = pillow.alpha_composite(white, upright)
            square = upright.convert("RGB").resize(
                (config.size, config.size), pillow.Resampling.BILINEAR
            )
            return np.array(square, dtype=np.uint8)
    except (DataError, MemoryError):
        raise
    except Exception as error:  # decoders of files that are broken raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if isinstance(error, pillow.UnidentifiedImageError):
            reason = "its format is unknown"
        formats = f"{', '.join(IMAGE_FORMATS[:-1])} or {IMAGE_FORMATS[-1]}"
        hint = f"open it in a viewer and save it as {formats}, or take it out of the list"
        raise DataError(
            f"{path.name} cannot be read as an image: {reason}", where=where, hint=hint
        ) from None


# The cache


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures in memory-mapped arrays, one after the other."""

    shown: TokenColumn  # the numbers of each
    columns: Integers  # regions that stand side by side in the features of each
    # which of the pictures that were asked for these are: all, or those that could be read
    kept: Integers
    reading: Reading
    # of `shown`, by `word_sums`: a resumed run compares it with the one that it began with
    checksum: str

    def __len__(self) -> int:
        return len(self.columns)

    def __getitem__(self, number: int) -> Picture:
        return self.reading.picture(self.shown[number], int(self.columns[number]))

    @property
    def regions(self) -> Integers:
        if self.reading.feature_width is None:
            return np.full(len(self), self.reading.rows * self.reading.columns)
        return self.shown.lengths // self.reading.feature_width


@rebuilding
def prepare_pictures(
    named: Mapping[tuple[Path, str], str],
    reading: Reading,
    progress: Callable[[int], None],
    *,
    drops: Callable[[int, int], bool],
    within: Path | None = None,
) -> Pictures:
    """The pictures of (folder, name) in their order, from the cache where no file has changed
    since.

    `named` says where each is asked for, which messages name. A file has changed if its size or
    time has. Those that cannot be read are left out if others are left and `drops` allows to drop
    so many of all; else they are refused.
    """
    dtype = np.dtype(np.uint8 if reading.feature_width is None else np.float32)

    def build(folder: Path) -> None:
        problems = list[Problem]()
        columns = list[int]()
        kept = list[int]()
        pixels = 0
        with closing(ColumnWriter(folder, "shown", dtype)) as shown:
            for number, ((parent, name), where) in enumerate(named.items()):
                if within is not None:
                    pixels += pixel_count(name, parent, within)
                    DataError.raise_if([too_many_pixels(where)] if pixels > MAX_PIXELS else [])
                try:
                    picture = read_picture(name, parent, reading, where, within)
                except DataError as error:
                    problems += error.problems
                    continue
                shown.extend(picture.shown.reshape(-1), [picture.shown.size])
                columns.append(picture.columns)
                kept.append(number)
                progress(number + 1)
        if problems and not (drops(len(problems), len(named)) and len(problems) < len(named)):
            raise DataError(problems=first_of(problems))
        np.save(folder / "columns.npy", np.array([columns, kept], dtype=np.int64))
        (folder / "shown.sums").write_text(word_sums(folder / "shown.values"), encoding="ascii")

    allowed = [drops(bad, len(named)) for bad in (1, len(named))]
    key: list[Any] = [PICTURES_VERSION, reading.images.size, reading.feature_width, allowed]
    for parent, name in named:
        path = (parent / name).absolute()
        try:
            if not is_inside(path, within):
                raise ValueError
            file = path.stat()
            key.append([str(path), file.st_size, file.st_mtime_ns])
        except (OSError, ValueError):  # a scene, or a file that is missing or may not be read
            key.append([name])
    folder = stored(f"images-{key_of(key)}", build)
    columns, kept = np.load(folder / "columns.npy")
    checksum = (folder / "shown.sums").read_text(encoding="ascii")
    return Pictures(TokenColumn.open(folder, "shown", dtype), columns, kept, reading, checksum)
