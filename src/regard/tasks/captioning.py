"""Captioning: an image in, a sentence about it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import model_validator

from regard.data.captioned import CaptionedImages, captioned, image_input, images_checked_too
from regard.data.config import Corpus, Data
from regard.data.corpora import Part
from regard.data.file_inputs import FileInput, is_table, table_rows
from regard.data.images import Picture, read_picture
from regard.data.prepare import Prepared, prepare
from regard.data.report import ColumnReport, Histogram, Report
from regard.data.rows import Row, has_header
from regard.errors import DataError, DecodeError, Problem, first_of
from regard.models import any_config, build_model
from regard.models.base import Generator
from regard.models.captioner import Captioner
from regard.objectives.cross_entropy import DoublyStochastic
from regard.tasks.classification import natural
from regard.tasks.pairs import read_pairs
from regard.tasks.task import Progress
from regard.tasks.text_to_text import TextToText
from regard.tasks.translation import EvaluationConfig, measured
from regard.text.files import TextFile
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
    columns = ("target",)
    """What has a tokenizer."""
    data = Data[Captioned]
    evaluation = EvaluationConfig
    model = any_config(lambda config: config.reads == "image")
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
        said = [[measured(one, config) for one in all_of] for all_of in all_said]
        written = [measured(one, config) for one in outputs]
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

    @classmethod
    def by_input(cls, examples: CaptionedImages) -> list[list[int]]:
        """The examples of each image, images in the order of their first."""
        rows: dict[int, list[int]] = {}
        for row, number in enumerate(examples.numbers.tolist()):
            rows.setdefault(number, []).append(row)
        return list(rows.values())

    @classmethod
    def prepare(
        cls, recipe: Any, base: Path, tokenizers: Tokenizers | None = None, progress: Progress | None = None
    ) -> Prepared[Any]:
        data, heard = recipe.data, progress or (lambda what, done: None)
        with images_checked_too(_named(data), base, recipe.model.reading):
            texts = prepare(
                data, recipe.tokenizer, base=base, seed=recipe.training.seed, tokenizers=tokenizers, progress=progress,
                columns=cls.columns,
            )  # fmt: skip
        found: dict[Part, CaptionedImages] = {}
        problems: list[Problem] = []
        for part in PARTS:
            if (dataset := getattr(texts, part)) is None:
                continue
            moved = partial(heard, f"reading images of {part}")
            corpora, drop = _named(data).get(part, data.train), data.bad_lines == "drop"
            try:
                found[part] = captioned(dataset, corpora, base, recipe.model.reading, moved, drop=drop)
            except DataError as error:
                problems += error.problems
        if problems:
            raise DataError(problems=sorted(problems, key=lambda one: (not one.where, natural(one.where))))
        train, validation, test = found["train"], found["validation"], found.get("test")
        report = _with_dropped(texts.report, found)
        return replace(texts, train=train, validation=validation, test=test, report=report)

    @classmethod
    def check(cls, recipe: Any, data: Prepared[Any]) -> None:
        """Any captioner can do with any images."""

    @classmethod
    def build(cls, recipe: Any, tokenizers: Tokenizers) -> Captioner:
        model: Captioner = build_model(recipe.model, tokenizers["target"].size)
        return model

    @classmethod
    def objective(cls, model: Generator, recipe: Any) -> DoublyStochastic:
        assert isinstance(model, Captioner)
        training = recipe.training
        return DoublyStochastic(
            model, training.label_smoothing, training.teacher_forcing, recipe.model.doubly_stochastic
        )

    @classmethod
    def read(
        cls, recipe: Any, corpora: Sequence[Corpus], part: Part, base: Path, tokenizers: Tokenizers
    ) -> CaptionedImages:
        with images_checked_too({part: corpora}, base, recipe.model.reading):
            texts = read_pairs(recipe.data, corpora, part, base, tokenizers)
        return captioned(texts, corpora, base, recipe.model.reading, drop=recipe.data.bad_lines == "drop")

    @classmethod
    def validate(cls, model: Generator, recipe: Any, data: Prepared[Any]) -> dict[str, Any]:
        """Loss and perplexity on all examples; the metrics on the first images, decoded greedily."""
        found: dict[str, Any] = dict(cls.loss(model, data.validation))
        firsts = cls.by_input(data.validation)[: recipe.training.decode]
        if not firsts or not np.isfinite(found["loss"]):
            return found
        greedy = recipe.search.model_copy(update={"beam": 1, "nbest": 1, "sample": False})
        outputs, references = cls._decoded(model, data.validation, firsts, data.tokenizers, greedy)
        metrics = cls.metrics(outputs, references, recipe.evaluation)
        found |= {name: value for name, value in metrics.items() if not name.endswith("_signature")}
        names = [data.validation.texts["source"][rows[0]] for rows in firsts]
        shown = zip(names, outputs, references, strict=True)
        found["samples"] = [
            {"source": name, "output": output, "target": said[0]}
            for _, (name, output, said) in zip(range(recipe.training.samples), shown, strict=False)
        ]
        return found

    @classmethod
    def evaluate(
        cls, model: Generator, recipe: Any, examples: Any, tokenizers: Tokenizers, progress: Callable[[int], None]
    ) -> dict[str, Any]:
        """The metrics on one output an image, loss and perplexity of all captions."""
        images = cls.by_input(examples)
        outputs, references = cls._decoded(model, examples, images, tokenizers, recipe.search, progress)
        return {
            "images": len(images),
            "sentences": len(examples),
            **cls.metrics(outputs, references, recipe.evaluation),
            **cls.loss(model, examples),
            "beam": recipe.search.beam,
        }

    @classmethod
    def _decoded(
        cls,
        model: Generator,
        examples: CaptionedImages,
        images: Sequence[Sequence[int]],
        tokenizers: Tokenizers,
        config: Any,
        progress: Callable[[int], None] = lambda done: None,
    ) -> tuple[list[str], list[list[str]]]:
        """What is written for each image, given by its examples, and all that was said of it."""
        sources = [examples.source(rows[0]) for rows in images]
        outputs = cls.decode_texts(model, tokenizers, sources, config, progress=progress)
        return outputs, [[examples.texts["target"][row] for row in rows] for rows in images]

    @classmethod
    def inputs_in(cls, recipe: Any, own: Sequence[Any], file: TextFile) -> Iterator[FileInput]:
        """The images that a table names, captioned or not, or a list with one a line."""
        if not is_table(file):
            rows = (Row(line, (name,)) for line, name in enumerate(file.lines(), 1))
            return (image_input(row, file, Path()) for row in rows)
        like: Any = cls.corpus_of([file.name], own)
        return (image_input(row, file) for row in table_rows(file, {"image": like.image}, has_header(like)))

    @classmethod
    def encode(
        cls, model: Generator, tokenizers: Tokenizers, texts: Sequence[str], places: Sequence[str]
    ) -> list[Picture]:
        """The images whose files are named, relative to where the command runs, or scenes of shapes."""
        assert isinstance(model, Captioner)
        found: list[Picture] = []
        problems: list[Problem] = []
        for name, place in zip(texts, places, strict=True):
            try:
                found.append(read_picture(name, Path(), model.config.reading, place))
            except DataError as error:
                problems += error.problems
        if problems:
            raise DecodeError(problems=first_of(problems))
        return found


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
            columns = {column: _tokens_in(split, column) for column in found[name].columns}
            found[name] = replace(found[name], kept=len(split), dropped=dropped, columns=columns)
    return replace(report, splits=found)


def _tokens_in(split: CaptionedImages, column: str) -> ColumnReport:
    tokenizer, tokens = split.tokenizers[column], split.columns[column]
    counts = tokens.counts(tokenizer.size)
    total = int(counts.sum())
    return ColumnReport(total, int(counts[tokenizer.unk]) / max(total, 1), Histogram.of(tokens.lengths))
