"""Captioning: an image in, a sentence about it out."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from regard.data.batch import Batch
from regard.data.config import Corpus, Data, Recipe
from regard.data.corpora import Part
from regard.data.dataset import Dataset
from regard.data.file_inputs import FileInput, is_table, table_rows
from regard.data.formats import Row, has_header
from regard.data.images import (
    LIMIT,
    CaptionedImages,
    Picture,
    captioned,
    image_input,
    images_checked_too,
    images_of,
    read_picture,
)
from regard.data.prepare import Prepared, prepare
from regard.data.report import Report
from regard.data.store import Integers
from regard.data.texts import Progress
from regard.errors import DataError, Problem
from regard.models import any_config, build_model
from regard.models.base import Generator
from regard.models.captioner import Captioner
from regard.objectives.cross_entropy import DoublyStochastic
from regard.search import SearchConfig
from regard.tasks.inputs import Unreadable
from regard.tasks.task import Done, ignore
from regard.tasks.text_to_text import TextToText
from regard.tasks.translation import EvaluationConfig
from regard.text.files import TextFile
from regard.text.normalise import comparable, natural
from regard.text.tokenizers import Tokenizers

PARTS: tuple[Part, ...] = ("train", "validation", "test")
References = str | Sequence[str]
"""What was said of an image, once or several times."""


class Captioned(Corpus):
    """Images and captions; an image may stand in several lines, with a caption each."""

    READ_AS: ClassVar[Mapping[str, str]] = {"image": "source", "caption": "target"}
    LISTS: ClassVar[frozenset[str]] = frozenset({"caption"})

    image: str | int | None = None
    """The name of the image's file, relative to the file it stands in: a column of `file`, or a file of its own."""
    caption: str | int | None = None
    """What is said of it: likewise. In .jsonl it may be a list of captions."""

    @model_validator(mode="after")
    def _of_images(self) -> Captioned:
        if self.corpus is not None and not self.corpus.startswith("shapes"):
            raise ValueError(f"the corpus {self.corpus!r} has no images: shapes and shapes-ko have")
        if self.prefix:
            raise ValueError("'prefix' is put before texts, and images are no texts")
        return self


class Captioning(TextToText):
    """Images and captions, measured by BLEU-1 to BLEU-4, chrF and exact match, against all captions of an image."""

    name = "captioning"
    changeable = (LIMIT,)
    columns = ("target",)
    """What has a tokenizer."""
    data = Data[Captioned]
    evaluation = EvaluationConfig
    models = any_config(lambda config: config.reads == "image")
    lengths_of = "reference"
    higher_is_better: ClassVar[Mapping[str, bool]] = {
        "loss": False,
        "perplexity": False,
        "bleu1": True,
        "bleu2": True,
        "bleu3": True,
        "bleu": True,
        "chrf": True,
        "exact_match": True,
    }
    decoded = frozenset(("bleu1", "bleu2", "bleu3", "bleu", "chrf", "exact_match"))

    @staticmethod
    def metrics(outputs: Sequence[str], references: Sequence[References], config: EvaluationConfig) -> dict[str, Any]:
        """sacreBLEU's BLEU of 1 to 4 words (`bleu` has all four) and chrF; how many outputs are a reference."""
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF

        all_said = [[one] if isinstance(one, str) else one for one in references]
        said = [[comparable(one, config.lowercase) for one in all_of] for all_of in all_said]
        written = [comparable(one, config.lowercase) for one in outputs]
        streams: list[Any] = [list(stream) for stream in zip_longest(*said)]
        bleu = {
            order: BLEU(lowercase=config.lowercase, tokenize=config.tokenize, max_ngram_order=order)
            for order in range(1, 5)
        }
        chrf = CHRF(lowercase=config.lowercase)
        scores = {order: metric.corpus_score(written, streams).score for order, metric in bleu.items()}
        return {
            **{f"bleu{order}" if order < 4 else "bleu": score for order, score in scores.items()},
            "chrf": chrf.corpus_score(written, streams).score,
            "exact_match": sum(one in all_of for one, all_of in zip(written, said, strict=True)) / len(written),
            "bleu_signature": str(bleu[4].get_signature()),
            "chrf_signature": str(chrf.get_signature()),
        }

    def by_input(self, examples: Dataset) -> list[list[int]]:
        """The examples of each image, images in the order of their first."""
        rows: dict[int, list[int]] = {}
        for row, number in enumerate(_images(examples).numbers.tolist()):
            rows.setdefault(number, []).append(row)
        return list(rows.values())

    @classmethod
    def prepare(
        cls, recipe: Recipe, base: Path, tokenizers: Tokenizers | None = None, progress: Progress | None = None
    ) -> Prepared[CaptionedImages]:
        """The captions through the pipeline of all tasks, then the images that they name."""
        data, report_progress = recipe.data, progress or (lambda what, done: None)
        with images_checked_too(_named(data), base, recipe.model.reading):
            captions = prepare(cls, recipe, base, tokenizers, progress)
        splits: dict[Part, CaptionedImages] = {}
        problems: list[Problem] = []
        for part in PARTS:
            if (dataset := getattr(captions, part)) is None:
                continue
            moved = partial(report_progress, f"reading images of {part}")
            corpora, drop = _named(data).get(part, data.train), data.bad_lines == "drop"
            try:
                splits[part] = captioned(dataset, corpora, base, recipe.model.reading, moved, drop=drop)
            except DataError as error:
                problems += error.problems
        if problems:
            raise DataError(problems=sorted(problems, key=lambda problem: (not problem.where, natural(problem.where))))
        report = _with_dropped(captions.report, splits)
        return Prepared(captions.task, splits["train"], splits["validation"], splits.get("test"), report)

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        """The regions of the image, or the caption with its `</s>` if that is longer."""
        captions = examples.columns["target"].lengths + np.int32(1)
        lengths: NDArray[np.int32] = np.maximum(_images(examples).regions, captions)
        return lengths

    def slants(self, examples: Dataset) -> NDArray[np.int32]:
        return _images(examples).regions - examples.columns["target"].lengths

    def collate(self, examples: Dataset, rows: Integers, seed: int, epoch: int) -> Batch:
        """The images, and their captions from `<s>` to `</s>`."""
        source = images_of([self.source(examples, int(row)) for row in rows])
        target = self.tokens(examples, "target", rows)
        return Batch(source, target, tuple(rows.tolist()), int(target.lengths_B.sum()) - len(rows))

    def pieces(self, examples: Dataset, row: int) -> dict[str, list[str]]:
        return {"image": [examples.texts["source"][row]], **super().pieces(examples, row)}

    def longest_example(self, examples: Dataset) -> int:
        return int(np.argmax(_images(examples).regions.astype(np.int64) + examples.columns["target"].lengths))

    def fingerprint(self, examples: Dataset) -> int:
        """Of the captions' lengths, and of which image each is about."""
        return zlib.crc32(_images(examples).numbers.astype(np.int64).tobytes(), super().fingerprint(examples))

    def source(self, examples: Dataset, row: int) -> Picture:
        return _images(examples).pictures[int(_images(examples).numbers[row])]

    def check(self, data: Prepared[Any]) -> None:
        """Any captioner can read any images."""

    def model(self) -> Captioner:
        model: Captioner = build_model(self.recipe.model, self.tokenizers["target"].size)
        return model

    def objective(self, model: Generator) -> DoublyStochastic:
        assert isinstance(model, Captioner)
        training = self.recipe.training
        return DoublyStochastic(
            model, training.label_smoothing, training.teacher_forcing, self.recipe.model.doubly_stochastic
        )

    def read(self, corpora: Sequence[Corpus], part: Part, base: Path) -> CaptionedImages:
        reading, drop = self.recipe.model.reading, self.recipe.data.bad_lines == "drop"
        with images_checked_too({part: corpora}, base, reading):
            captions = super().read(corpora, part, base)
        return captioned(captions, corpora, base, reading, drop=drop)

    def evaluate(self, model: Generator, examples: Dataset, progress: Done) -> dict[str, Any]:
        """The metrics on one output an image, loss and perplexity of all captions."""
        return {"images": len(self.by_input(examples)), **super().evaluate(model, examples, progress)}

    def outputs(
        self,
        model: Generator,
        examples: Dataset,
        inputs: Sequence[Sequence[int]],
        config: SearchConfig,
        progress: Done = ignore,
    ) -> tuple[list[str], list[list[str]]]:
        """The best output for each image, and all its captions."""
        outputs, _ = super().outputs(model, examples, inputs, config, progress)
        return outputs, [[examples.texts["target"][row] for row in rows] for rows in inputs]

    def inputs_in(self, file: TextFile) -> Iterator[FileInput]:
        """The images that a table names, captioned or not, or a list with one a line."""
        if not is_table(file):
            rows = (Row(line, (name,)) for line, name in enumerate(file.lines(), 1))
            return (image_input(row, file, Path()) for row in rows)
        like: Any = self.corpus_of([file.name])
        return (image_input(row, file) for row in table_rows(file, {"image": like.image}, has_header(like)))

    def encode_sources(self, texts: Sequence[str], places: Sequence[str]) -> list[Picture | Unreadable]:
        """The images whose files are named, relative to where the command runs, or scenes of shapes."""
        pictures: list[Picture | Unreadable] = []
        for name, place in zip(texts, places, strict=True):
            try:
                pictures.append(read_picture(name, Path(), self.recipe.model.reading, place))
            except DataError as error:
                pictures.append(Unreadable(error.problems))
        return pictures


def _images(examples: Dataset) -> CaptionedImages:
    assert isinstance(examples, CaptionedImages)
    return examples


def _named(data: Any) -> dict[Part, list[Captioned]]:
    """The corpora of the splits that have some of their own."""
    parts = {part: getattr(data, part) for part in PARTS}
    return {part: corpora for part, corpora in parts.items() if isinstance(corpora, list)}


def _with_dropped(report: Report, splits: Mapping[Part, CaptionedImages]) -> Report:
    """With the examples that were left out for their images."""
    found = dict(report.splits)
    for name, split in splits.items():
        if split.dropped.count:
            dropped = found[name].dropped | {"image": split.dropped}
            columns = split.task.column_reports(split)
            found[name] = replace(found[name], kept=len(split), dropped=dropped, columns=columns)
    return replace(report, splits=found)
