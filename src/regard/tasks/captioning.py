"""Captioning: an image in, a sentence about it out."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from regard.data import images, shapes
from regard.data.batches import Images
from regard.data.config import Corpus, Data, Recipe
from regard.data.corpora import Part
from regard.data.dataset import NAMED, Dataset, Finding
from regard.data.example import Example
from regard.data.formats import table_rows
from regard.data.images import Picture, Pictures, Reading
from regard.data.inputs import Inputs, is_table
from regard.data.prepare import Prepared, Progress, prepare
from regard.data.readers import Reader
from regard.data.store import Integers
from regard.errors import DataError, Problem, RegardError
from regard.models import any_config
from regard.models.base import Generator
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.search.stopping import stop_if_given_up
from regard.tasks.task import Done, ignore
from regard.tasks.translation import Translation
from regard.text.files import TextFile
from regard.text.normalise import natural
from regard.text.tokenizers import Tokenizers


class Captioned(Corpus):
    """Images and captions; an image may stand in several lines, with a caption each."""

    READ_AS: ClassVar[Mapping[str, str]] = {"image": "source", "caption": "target"}
    LISTS: ClassVar[frozenset[str]] = frozenset({"caption"})

    image: str | int | None = None
    """The name of the image's file, relative to the file it stands in: a column of `file`, or a
    file of its own."""
    caption: str | int | None = None
    """What is said of it: likewise. In .jsonl and .json it may be a list of captions."""

    def identity(self, source: str, base: Path) -> str:
        """The whole path of an image: others may have its name in other folders."""
        return (
            source
            if source.startswith(shapes.PREFIX)
            else os.path.abspath(folder_of(self, base) / source)
        )

    @model_validator(mode="after")
    def _of_images(self) -> Captioned:
        if self.corpus is not None and not self.corpus.startswith("shapes"):
            raise ValueError(f"the corpus {self.corpus!r} has no images: shapes and shapes-ko have")
        if self.prefix:
            raise ValueError("'prefix' is put before texts, and images are no texts")
        return self


@dataclass(frozen=True, eq=False)
class CaptionedImages(Dataset):
    """Captions as tokens, the names of their images as texts, and the images; several captions may
    share one."""

    pictures: Pictures
    numbers: Integers
    """The picture of each example."""
    dropped: Finding
    """The examples that are left out since their images cannot be read."""


class Captioning(Translation):
    """Images and captions, measured by BLEU-1 to BLEU-4, chrF and exact match, against all captions
    of an image."""

    name = "captioning"
    shares_examples = False
    vocabularies = ("target",)  # what has a tokenizer
    input_columns = ("image",)
    data = Data[Captioned]
    models = any_config(lambda config: config.reads == "image")
    lengths_of = "reference"
    orders: ClassVar[Mapping[str, int]] = {"bleu1": 1, "bleu2": 2, "bleu3": 3, "bleu": 4}
    higher_is_better = (*orders, "chrf", "exact_match")

    # Data

    @classmethod
    def prepare(
        cls,
        recipe: Recipe,
        base: Path,
        tokenizers: Tokenizers | None = None,
        progress: Progress | None = None,
    ) -> Prepared[CaptionedImages]:
        """The captions through the pipeline of all tasks, then the images that they name."""
        data, reading, report_progress = (
            recipe.data,
            recipe.model.reading,
            progress or (lambda what, done: None),
        )
        parts: dict[Part, Any] = {
            "train": data.train,
            "validation": data.validation,
            "test": data.test,
        }
        own = {part: corpora for part, corpora in parts.items() if isinstance(corpora, list)}
        captions, within = (
            prepare(cls, recipe, base, tokenizers, progress),
            recipe.readable_folder(base),
        )
        splits: dict[Part, CaptionedImages] = {}
        reports, problems = dict(captions.report.splits), list[Problem]()
        for part in parts:
            if (dataset := getattr(captions, part)) is None:
                continue
            moved = partial(report_progress, f"reading images of {part}")
            corpora = own.get(part, data.train)
            try:
                split = captioned(
                    dataset, corpora, base, reading, data.drops, progress=moved, within=within
                )
                splits[part] = split
            except DataError as error:
                problems += error.problems
                continue
            if split.dropped.count:
                dropped, columns = (
                    reports[part].dropped | {"image": split.dropped},
                    split.encoding.column_reports(split),
                )
                reports[part] = replace(
                    reports[part], kept=len(split), dropped=dropped, columns=columns
                )
        if problems:
            raise DataError(
                problems=sorted(
                    problems, key=lambda problem: (not problem.where, natural(problem.where))
                )
            )
        report = replace(captions.report, splits=reports)
        return Prepared(
            captions.recipe,
            captions.encoding,
            splits["train"],
            splits["validation"],
            splits.get("test"),
            report,
        )

    def read(self, corpora: Sequence[Corpus], part: Part, base: Path) -> CaptionedImages:
        recipe = self.recipe
        examples = super().read(corpora, part, base)
        within = recipe.readable_folder(base)
        return captioned(
            examples, corpora, base, recipe.model.reading, recipe.data.drops, within=within
        )

    def sizes(self, examples: Dataset) -> list[NDArray[np.int32]]:
        """The regions of the image without one, as if it had a `</s>`; and the tokens of the
        caption."""
        captioned = _images(examples)
        regions: NDArray[np.int32] = captioned.pictures.regions[captioned.numbers].astype(np.int32)
        return [regions - np.int32(1), examples.columns["target"].lengths]

    def pieces(self, examples: Dataset, row: int) -> dict[str, list[str]]:
        return {"image": [examples.texts["source"][row]], **super().pieces(examples, row)}

    def fingerprints(self, train: CaptionedImages, validation: CaptionedImages) -> dict[str, int]:
        """What the images show has a checksum of its own, which runs of older versions do not
        have."""
        shown = zlib.crc32((train.pictures.checksum + validation.pictures.checksum).encode())
        return {**super().fingerprints(train, validation), "image": shown}

    # Sources

    def sources(self, examples: Dataset, rows: Integers) -> Images:
        return images.images_of([self.source(examples, int(row)) for row in rows])

    def source(self, examples: Dataset, row: int) -> Picture:
        return _images(examples).pictures[int(_images(examples).numbers[row])]

    def encode_sources(self, inputs: Sequence[Example]) -> list[Picture | RegardError]:
        """The images whose files are named, relative to where the command runs, or scenes of
        shapes."""
        pictures: list[Picture | RegardError] = []
        reading = self.recipe.model.reading
        for given in inputs:
            stop_if_given_up()
            try:
                DataError.raise_if([given.fault])
                pictures.append(images.read_picture(given.text, Path(), reading, given.place))
            except DataError as error:
                pictures.append(error)
        return pictures

    def by_input(self, examples: Dataset) -> list[list[int]]:
        """The examples of each image, images in the order of their first."""
        rows: dict[int, list[int]] = {}
        for row, number in enumerate(_images(examples).numbers.tolist()):
            rows.setdefault(number, []).append(row)
        return list(rows.values())

    # Training and verbs

    def check(self, data: Prepared[Any]) -> None:
        self.check_search(data.validation)  # any captioner can read any images

    def objective(self, model: Generator) -> TokenCrossEntropy:
        training, weight = self.recipe.training, self.recipe.model.doubly_stochastic
        return TokenCrossEntropy(model, training.label_smoothing, training.teacher_forcing, weight)

    def combine(
        self, examples: Dataset, parts: Sequence[tuple[list[str], float, int]]
    ) -> dict[str, Any]:
        """The metrics on one output an image, loss and perplexity of all captions."""
        return {"images": len(self.by_input(examples)), **super().combine(examples, parts)}

    def typed(self, row: Mapping[str, str], reader: Reader) -> str:
        """An image of the size that the model reads, as a `data:` URL."""
        folder = folder_of(reader.corpus, reader.base)
        place = reader.corpus.corpus or ""
        name, reading = row["source"], self.recipe.model.reading
        if reader.within is not None:
            pixels = images.pixel_count(name, folder, reader.within)
            DataError.raise_if(
                [images.too_many_pixels(place)] if pixels > images.MAX_SHOWN_PIXELS else []
            )
        return images.as_url(images.read_picture(name, folder, reading, place, reader.within))

    @cached_property
    def inputs(self) -> ImageInputs:
        encoding = self.recipe.data.encoding
        return ImageInputs(self.name, self.corpora, encoding, self.input_columns)


@dataclass(frozen=True)
class ImageInputs(Inputs):
    """The names of images. In a file they are relative to the file."""

    def rows(self, file: TextFile) -> Iterator[Example]:
        """The images that a table names, captioned or not, or a list with one per line."""
        if not is_table(file):
            return self.lines(file)
        rows = table_rows(file, self.table(file), answered=False)
        return (self.of_name(row.values[0], file, file.row(row.line), row.fault) for row in rows)

    def lines(self, file: TextFile) -> Iterator[Example]:
        """An image that is not beside the list is looked for where the command runs."""
        for line, name in enumerate(file.lines(), 1):
            is_beside = os.path.isfile(file.path.parent / name)
            folder = file.path.parent if is_beside else Path()
            yield self.of_name(name, file, file.where(line), folder=folder)

    def of_name(
        self,
        name: str,
        file: TextFile,
        place: str,
        fault: Problem | None = None,
        folder: Path | None = None,
    ) -> Example:
        """The image that a row of a file names, as seen from where the command runs; its name is
        relative to `folder`, by default that of the file."""
        if fault is not None or name.startswith(shapes.PREFIX):
            return self.of_texts([name], place, fault)
        folder = file.path.parent if folder is None else folder
        missing = images.missing_image(name, folder, place)
        return self.of_texts([name if missing else str(folder / name)], place, missing)


def _images(examples: Dataset) -> CaptionedImages:
    assert isinstance(examples, CaptionedImages)
    return examples


def captioned(
    dataset: Dataset,
    corpora: Sequence[Corpus],
    base: Path,
    reading: Reading,
    drops: Callable[[int, int], bool],
    progress: Done = ignore,
    within: Path | None = None,
) -> CaptionedImages:
    """Captions with the images that their sources name; each image is read once, in the order of
    its first caption.

    Captions of images that cannot be read are left out if `drops` allows to drop so many images of
    all. Only files in `within` are read, if that is given.
    """
    folders = [folder_of(corpus, base) for corpus in corpora]
    numbers, places = dict[tuple[Path, str], int](), list[str]()
    of_examples = np.empty(len(dataset), dtype=np.int64)
    for example, name in enumerate(dataset.texts["source"]):
        key = folders[int(dataset.corpora[example])], name
        if key not in numbers:
            numbers[key] = len(numbers)
            places.append(dataset.where(example))
        of_examples[example] = numbers[key]
    where = dict(zip(numbers, places, strict=True))
    pictures = images.prepare_pictures(where, reading, progress, drops=drops, within=within)
    readable = np.isin(of_examples, pictures.kept)
    rows, lost = np.flatnonzero(readable), np.flatnonzero(~readable)
    dropped = Finding(len(lost), tuple(dataset.where(int(row)) for row in lost[:NAMED]))
    chosen = dataset.select(rows) if len(lost) else dataset
    own = {name: getattr(chosen, name) for name in Dataset.__dataclass_fields__}
    kept = np.searchsorted(pictures.kept, of_examples[rows])
    return CaptionedImages(**own, pictures=pictures, numbers=kept, dropped=dropped)


def folder_of(corpus: Corpus, base: Path) -> Path:
    """What the names of images are relative to: the folder of the file that they stand in."""
    if corpus.corpus is not None or corpus.dataset is not None:
        return base
    return (base / str(corpus.file or next(iter(corpus.columns.values())))).parent
