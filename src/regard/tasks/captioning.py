"""Captioning: an image in, a sentence about it out."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from regard.data import images, shapes
from regard.data.batches import Images, Ragged
from regard.data.config import Corpus, Data, Recipe
from regard.data.corpora import Part
from regard.data.dataset import NAMED, Dataset, Finding, SplitReport
from regard.data.example import Example
from regard.data.formats import table_rows
from regard.data.images import Picture, Pictures, Reading
from regard.data.inputs import Inputs, is_table
from regard.data.prepare import Prepared, Progress, prepare, read_corpora
from regard.data.readers import Reader
from regard.data.store import Integers
from regard.errors import DataError, Problem, RegardError
from regard.models import any_config
from regard.models.base import Generator
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.search.stopping import stop_if_given_up
from regard.tasks.answers import Done, ignore
from regard.tasks.pairs import (
    PairEncoding,
    PairNetwork,
    TargetTexts,
    TextMetrics,
    refuse_long_pairs,
    token_loss,
)
from regard.tasks.sources import Sources
from regard.tasks.task import Task
from regard.tasks.translation import EvaluationConfig, check_tokenisation, translation_scores
from regard.tasks.views import Views
from regard.tasks.written import Source
from regard.text.files import TextFile
from regard.text.normalise import natural
from regard.text.tokenizers import Tokenizers

BLEU_1_TO_4 = {"bleu1": 1, "bleu2": 2, "bleu3": 3, "bleu": 4}


class Captioned(Corpus):
    """Images and captions. An image may be in several lines, each with one caption."""

    READ_AS: ClassVar[Mapping[str, str]] = {"image": "source", "caption": "target"}
    LISTS: ClassVar[frozenset[str]] = frozenset({"caption"})

    image: str | int | None = None
    """The name of the image's file, relative to the file it stands in: a column of `file`, or a
    file of its own."""
    caption: str | int | None = None
    """The caption: a column of `file`, or a file of its own. In .jsonl and .json it may be a list
    of captions."""

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


class Captioning(Task):
    """Images and captions, measured by BLEU-1 to BLEU-4, chrF and exact match, against all captions
    of an image."""

    name = "captioning"
    data = Data[Captioned]
    evaluation = EvaluationConfig
    models = any_config(lambda config: config.reads == "image")
    vocabularies = ("target",)
    lower_is_better = ("loss", "perplexity")
    higher_is_better = (*BLEU_1_TO_4, "chrf", "exact_match")
    writes = "targets"
    has_flat_batches = True

    metrics: TextMetrics

    def __init__(self, recipe: Recipe, tokenizers: Tokenizers) -> None:
        super().__init__(recipe, tokenizers)
        encoding = self.make_encoding(recipe, tokenizers)
        targets = TargetTexts(recipe, tokenizers, encoding.sources)
        scores = partial(translation_scores, config=recipe.evaluation, orders=BLEU_1_TO_4)
        self.inputs = ImageInputs(self.name, self.corpora, recipe.data.encoding, ("image",))
        self.encoding = encoding
        self.network = PairNetwork(recipe, encoding)
        self.answers = targets
        self.metrics = TextMetrics(encoding, targets, scores, BLEU_1_TO_4)
        self.views = Views(written=targets, text_metrics=self.metrics)

    @classmethod
    def make_encoding(cls, recipe: Recipe, tokenizers: Tokenizers) -> PairEncoding:
        return PairEncoding(recipe, tokenizers, ImageSources(recipe.model.reading))

    def objective(self, model: Generator) -> TokenCrossEntropy:
        return token_loss(model, self.recipe, self.recipe.model.doubly_stochastic)

    @classmethod
    def check_recipe(cls, recipe: Recipe) -> None:
        super().check_recipe(recipe)
        check_tokenisation(recipe.evaluation)

    @classmethod
    def prepare(
        cls,
        recipe: Recipe,
        base: Path,
        tokenizers: Tokenizers | None = None,
        progress: Progress | None = None,
    ) -> Prepared[CaptionedImages]:
        """The captions through the pipeline of all tasks, then the images that they name."""
        captions = prepare(cls, recipe, base, tokenizers, progress)
        return with_images(captions, base, progress or (lambda what, done: None))

    def check(self, data: Prepared[Any]) -> None:
        """Also refuse a file in `training.watch` that the recipe may not read."""
        super().check(data)
        watched, within = self.recipe.training.watch, self.recipe.readable_folder(Path())
        if watched is not None and within is not None:
            reading = self.recipe.model.reading
            images.read_picture(watched, Path(), reading, "training.watch", within)

    def read(self, corpora: Sequence[Corpus], part: Part, base: Path) -> CaptionedImages:
        recipe = self.recipe
        captions = read_corpora(self.encoding, recipe, corpora, part, base)
        refuse_long_pairs(captions)
        within = recipe.readable_folder(base)
        return pair_with_pictures(
            captions, corpora, base, recipe.model.reading, recipe.data.drops, within=within
        )

    def input_line(self, row: Mapping[str, str], reader: Reader) -> str:
        """An image of the size that the model reads, as a `data:` URL."""
        folder = folder_of(reader.corpus, reader.base)
        place = reader.corpus.corpus or ""
        name = row["source"]
        if reader.within is not None:
            pixels = images.pixel_count(name, folder, reader.within)
            too_many = pixels > images.MAX_SHOWN_PIXELS
            DataError.raise_if([images.too_many_pixels(place)] if too_many else [])
        reading = self.recipe.model.reading
        return images.as_url(images.read_picture(name, folder, reading, place, reader.within))


class ImageSources(Sources):
    """Images, whose positions are their regions."""

    lengths_of = "reference"
    are_alone = False

    def __init__(self, reading: Reading) -> None:
        self.reading = reading

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        """The regions without one, as if the image had a `</s>`."""
        captioned = _images(examples)
        regions: NDArray[np.int32] = captioned.pictures.regions[captioned.numbers].astype(np.int32)
        return regions - np.int32(1)

    def collate(self, examples: Dataset, rows: Integers) -> Images:
        return images.images_of([self.of(examples, int(row)) for row in rows])

    def of(self, examples: Dataset, row: int) -> Picture:
        captioned = _images(examples)
        return captioned.pictures[int(captioned.numbers[row])]

    def groups(self, examples: Dataset) -> list[list[int]]:
        """The examples of each image, images in the order of their first."""
        rows: dict[int, list[int]] = {}
        for row, number in enumerate(_images(examples).numbers.tolist()):
            rows.setdefault(number, []).append(row)
        return list(rows.values())

    def counts(self, examples: Dataset) -> dict[str, int]:
        return {"images": len(self.groups(examples))}

    def pieces(self, examples: Dataset, row: int) -> dict[str, list[str]]:
        return {"image": [examples.texts["source"][row]]}

    def fingerprints(self, train: CaptionedImages, validation: CaptionedImages) -> dict[str, int]:
        """A checksum of what the images show, which runs of older versions do not have."""
        shown = train.pictures.checksum + validation.pictures.checksum
        return {"image": zlib.crc32(shown.encode())}

    def check(self, data: Prepared[Any]) -> None:
        """Any captioner can read any images."""

    def read(self, inputs: Sequence[Example]) -> list[Source | RegardError]:
        """The images whose files are named, relative to where the command runs, or scenes of
        shapes."""
        pictures: list[Source | RegardError] = []
        for given in inputs:
            stop_if_given_up()
            try:
                DataError.raise_if([given.fault])
                picture = images.read_picture(given.text, Path(), self.reading, given.place)
                pictures.append(picture)
            except DataError as error:
                pictures.append(error)
        return pictures

    def batch(self, sources: Sequence[Source]) -> Ragged:
        return images.images_of([_picture(source) for source in sources])

    def tokens(self, source: Source) -> list[str]:
        return _picture(source).names()


def _images(examples: Dataset) -> CaptionedImages:
    assert isinstance(examples, CaptionedImages)
    return examples


def _picture(source: Source) -> Picture:
    assert isinstance(source, Picture)
    return source


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


def with_images(
    captions: Prepared[Dataset], base: Path, progress: Progress
) -> Prepared[CaptionedImages]:
    """Prepared captions with the images that they name."""
    recipe = captions.recipe
    data = recipe.data
    within = recipe.readable_folder(base)
    splits: dict[Part, CaptionedImages] = {}
    reports = dict(captions.report.splits)
    problems = list[Problem]()
    for part in ("train", "validation", "test"):
        dataset = getattr(captions, part)
        if dataset is None:
            continue
        section = getattr(data, part)
        corpora = section if isinstance(section, list) else data.train
        moved = partial(progress, f"reading images of {part}")
        try:
            split = pair_with_pictures(
                dataset, corpora, base, recipe.model.reading, data.drops, moved, within
            )
        except DataError as error:
            problems += error.problems
            continue
        splits[part] = split
        reports[part] = _report_with(reports[part], split)
    if problems:
        problems.sort(key=lambda problem: (not problem.where, natural(problem.where)))
        raise DataError(problems=problems)
    return Prepared(
        recipe,
        captions.encoding,
        splits["train"],
        splits["validation"],
        splits.get("test"),
        replace(captions.report, splits=reports),
    )


def _report_with(report: SplitReport, split: CaptionedImages) -> SplitReport:
    """The report of a split, less the examples whose images cannot be read."""
    if not split.dropped.count:
        return report
    dropped = report.dropped | {"image": split.dropped}
    columns = split.encoding.column_reports(split)
    return replace(report, kept=len(split), dropped=dropped, columns=columns)


def pair_with_pictures(
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
    numbers = dict[tuple[Path, str], int]()
    places = list[str]()
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
    rows = np.flatnonzero(readable)
    lost = np.flatnonzero(~readable)
    dropped = Finding(len(lost), tuple(dataset.where(int(row)) for row in lost[:NAMED]))
    chosen = dataset.select(rows) if len(lost) else dataset
    fields = {name: getattr(chosen, name) for name in Dataset.__dataclass_fields__}
    picture_numbers = np.searchsorted(pictures.kept, of_examples[rows])
    return CaptionedImages(**fields, pictures=pictures, numbers=picture_numbers, dropped=dropped)


def folder_of(corpus: Corpus, base: Path) -> Path:
    """The folder that the names of images are relative to: that of the file with the names."""
    if corpus.corpus is not None or corpus.dataset is not None:
        return base
    return (base / str(corpus.file or next(iter(corpus.columns.values())))).parent
