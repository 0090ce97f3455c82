"""One answer for a text, or for a few texts together: what classification, regression and multiple choice share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.batches import fixed_batches
from regard.data.config import Corpus
from regard.data.corpora import Part
from regard.data.dataset import Dataset
from regard.data.file_inputs import FileInput, is_table, table_rows
from regard.data.labelled import open_labelled
from regard.data.labelled_examples import Arrangement, LabelledExamples, Labels
from regard.data.prepare import Prepared, prepare
from regard.data.rows import Key, has_header, keys_of
from regard.errors import DataError, Problem, first_of
from regard.models import config_of
from regard.models.base import HeadPooling, device_of
from regard.models.headed import ApartHead, HeadConfig, Headed, TextHead
from regard.tasks.headed import HeadedTask
from regard.tasks.inputs import problem_in_text, refuse
from regard.tasks.named_columns import labelled_in, labelled_of
from regard.tasks.pairs import corpus_of as corpus_in_file
from regard.tasks.pairs import header_in, read_texts, suffix_of
from regard.tasks.task import Prediction, Progress
from regard.text.files import TextFile
from regard.text.tokenizers import Tokenizers

SCORE_TOKENS = 8_192
"""Padded tokens that are read at once."""
Scores = NDArray[np.float32]


class TextHeadConfig(HeadConfig):
    """A head that has one answer for a text."""

    pooling: HeadPooling = "max"
    """One vector for a text: that of its first or last token, or the mean or the largest values over all. Default:
    first for bert (through the pooler that it was pre-trained with), last for lstm_lm and gpt, max for others."""


class TextLabelling(HeadedTask):
    """A task with one answer for each example."""

    unit = "examples"
    outputs: ClassVar[int | None] = 1
    """Numbers that the head gives for a row; None: one a class."""

    @classmethod
    def filled(cls, tree: dict[str, Any]) -> dict[str, Any]:
        tree = super().filled(tree)
        kind = tree["model"].get("kind") if isinstance(tree.get("model"), dict) else None
        pooling = "mean" if tree["head"].get("apart") else config_of(kind).head_pooling
        return tree | {"head": {"pooling": pooling} | tree["head"]}

    @classmethod
    def arrangement(cls, recipe: Any, columns: Sequence[str]) -> Arrangement:
        """What makes the rows of an example with these columns of text."""
        raise NotImplementedError

    @classmethod
    def text_columns(cls, recipe: Any) -> tuple[str, ...]:
        """The columns that are read, in their order."""
        texts: tuple[str, ...] = recipe.data.train[0].texts if recipe.data.train else ("first", "second")
        return texts

    @classmethod
    def build(cls, recipe: Any, tokenizers: Tokenizers) -> Headed:
        model = super().build(recipe, tokenizers)
        model.arrangement = cls.arranged(recipe)
        return model

    @classmethod
    def arranged(cls, recipe: Any) -> Arrangement | None:
        """The same for a run; None where it is imported, has no data and reads one text or two, as they are typed."""
        if recipe.data.train or getattr(recipe.head, "both_orders", False):  # which needs two texts
            return cls.arrangement(recipe, cls.text_columns(recipe))
        return None

    @classmethod
    def names_in(cls, recipe: Any, train: Dataset) -> tuple[str, ...]:
        """What the classes are called, in their order; nothing where there are none."""
        raise NotImplementedError

    @classmethod
    def numbers(cls, dataset: Dataset, names: Sequence[str]) -> Labels:
        """What each label stands for, or one DataError that names the labels that cannot be."""
        raise NotImplementedError

    @classmethod
    def scores(cls, model: Headed, batch: Any) -> Tensor:
        """What the head says of each example, [X, Y]."""
        raise NotImplementedError

    @classmethod
    def make_head(cls, width: int, recipe: Any) -> TextHead | ApartHead:
        head, kind = recipe.head, recipe.model.kind
        pooler, outputs = kind == "bert" and head.pooling == "first", cls.outputs or len(cls.labels_of(recipe))
        if getattr(head, "apart", False):
            number = cls.outputs is not None
            return ApartHead(width, outputs, pooling=head.pooling, dropout=head.dropout, number=number)
        return TextHead(width, outputs, pooling=head.pooling, pooler=pooler, dropout=head.dropout)

    @classmethod
    def prepare(
        cls, recipe: Any, base: Path, tokenizers: Tokenizers | None = None, progress: Progress | None = None
    ) -> Prepared[LabelledExamples]:
        columns = cls.text_columns(recipe)
        found = prepare(
            recipe.data,
            recipe.tokenizer.model_copy(update={"joint": True}),
            base=base,
            seed=recipe.training.seed,
            tokenizers=None if tokenizers is None else Tokenizers(dict.fromkeys(columns, tokenizers["text"])),
            progress=progress,
            columns=columns,
        )
        names = cls.names_in(recipe, found.train)
        parts = {"train": found.train, "validation": found.validation, "test": found.test}
        splits = {name: cls.examples(part, recipe, names, columns) for name, part in parts.items() if part is not None}
        text = Tokenizers({"text": found.tokenizers[columns[0]]})
        return Prepared(splits["train"], splits["validation"], splits.get("test"), text, found.report)

    @classmethod
    def examples(
        cls, dataset: Dataset, recipe: Any, names: tuple[str, ...], columns: Sequence[str]
    ) -> LabelledExamples:
        """A dataset with the `columns` of text as tokens, in their order, ready for batches."""
        return LabelledExamples(
            replace(dataset, columns={name: dataset.columns[name] for name in columns}),
            cls.framing(recipe, dataset.tokenizers[columns[0]]),
            cls.arrangement(recipe, columns),
            cls.numbers(dataset, names),
            names,
        )

    @classmethod
    def read(
        cls, recipe: Any, corpora: Sequence[Corpus], part: Part, base: Path, tokenizers: Tokenizers
    ) -> LabelledExamples:
        columns: Sequence[str] = corpora[0].texts  # type: ignore[attr-defined]
        readers = [open_labelled(corpus, base, part) for corpus in corpora]
        dataset = read_texts(recipe.data, readers, Tokenizers(dict.fromkeys(columns, tokenizers["text"])))
        return cls.examples(dataset, recipe, cls.labels_of(recipe), columns)

    @classmethod
    def inputs_in(cls, recipe: Any, own: Sequence[Any], file: TextFile) -> Iterator[FileInput] | None:
        """The texts of a table, less the label, with tabs between those of a row; a .txt has one input a line."""
        if not is_table(file):
            return None
        columns, header = cls.table_columns(recipe, file, own)
        alone = bool(recipe.data.train) and len(columns) == 1  # of an imported run a tab would make a pair
        return (
            FileInput(row.values[0] if alone else with_tabs(row.values), file.where(row.line), row.fault)
            for row in table_rows(file, columns, header)
        )

    @classmethod
    def table_columns(cls, recipe: Any, file: TextFile, own: Sequence[Any]) -> tuple[dict[str, Key], bool | None]:
        """The columns of text in a table, and whether it has a header: as in one of the recipe's, else by the names
        that the task has for them."""
        if recipe.data.train and not _tables(own):
            return {name: name for name in own[0].texts}, None
        like = cls.corpus_of([file.name], own) if recipe.data.train else cls.named_table(file)
        return {name: key for name, key in keys_of(like).items() if name != "label"}, has_header(like)

    @classmethod
    def named_table(cls, file: TextFile) -> Corpus:
        """A table for a run without data of its own: by the names that the task has for its columns."""
        return labelled_in(file)

    @classmethod
    def named_files(cls, files: Sequence[str]) -> Corpus:
        """The same for what `--file` names."""
        return labelled_of(files)

    @classmethod
    def corpus_of(cls, files: Sequence[str], own: Sequence[Corpus]) -> Corpus:
        """What `--file` names, with the columns of a table of the recipe's, one of the same format if there is one.

        Where there is no table: the text and the label by number, or in .jsonl by these names.
        """
        if not any(one.model_fields_set for one in own):  # an imported run has no corpora
            return cls.named_files(files)
        tables = _tables(own)
        if len(files) != 1 or not tables:
            return corpus_in_file(files, own)
        suffix = suffix_of(files[0])
        like = next((one for one in tables if one.file is not None and suffix_of(one.file) == suffix), tables[0])
        others = {"dataset": None, "subset": None, "split": None, "size": None, "prefix": ""}
        return like.model_copy(update={"file": files[0], "header": header_in(files[0], like), **others})

    @classmethod
    def check_texts(cls, model: Headed, texts: Sequence[str], places: Sequence[str]) -> None:
        cls.fields(model, texts, places)

    @classmethod
    def fields(cls, model: Headed, texts: Sequence[str], places: Sequence[str]) -> list[list[str]]:
        """The texts of each input, which stand between tabs where there are several; refused if they cannot be read."""
        found = [[text] if model.arrangement == "single" else text.split("\t") for text in texts]
        placed = list(zip(found, places, strict=True))
        refuse([cls.wrong_number(model, fields, place) for fields, place in placed])
        refuse([problem_in_text(one, place) for fields, place in placed for one in fields])
        return found

    @classmethod
    def wrong_number(cls, model: Headed, fields: Sequence[str], place: str) -> Problem | None:
        """Where there are too few or too many texts in an input."""
        if model.arrangement == "single" or len(fields) == 2 or (model.arrangement is None and len(fields) == 1):
            return None
        return Problem(place, f"two texts are expected, not {len(fields)}", "put a tab between first and second")

    @classmethod
    def answers(
        cls, model: Headed, texts: Sequence[str], places: Sequence[str], nbest: int, progress: Callable[[int], None]
    ) -> list[Prediction]:
        scores = cls.typed_scores(model, texts, places, progress)
        return [cls.prediction(model, *one) for one in zip(texts, scores, strict=True)]

    @classmethod
    def prediction(cls, model: Headed, text: str, scores_Y: Scores) -> Prediction:
        """The answer that the head's scores are for a text."""
        raise NotImplementedError

    @classmethod
    def typed_scores(
        cls, model: Headed, texts: Sequence[str], places: Sequence[str], progress: Callable[[int], None]
    ) -> list[Scores]:
        """What the head says of each input; those of as many texts go together."""
        fields = cls.fields(model, texts, places)
        found: dict[int, Scores] = {}
        for count in sorted({len(one) for one in fields}):
            rows = [row for row, one in enumerate(fields) if len(one) == count]
            columns = {f"text {number}": [fields[row][number] for row in rows] for number in range(count)}
            tokenizers = dict.fromkeys(columns, model.framing.tokenizer)
            dataset = Dataset.of(columns, tokenizers, lambda row, rows=rows: places[rows[row]])  # type: ignore[misc]
            arrangement: Arrangement = model.arrangement or ("single" if count == 1 else "pair")
            examples = LabelledExamples(dataset, model.framing, arrangement, np.zeros(len(rows), dtype=np.int64))
            found |= dict(zip(rows, scores_of(cls, model, examples, progress), strict=True))
        return [found[row] for row in range(len(texts))]


def _tables(corpora: Sequence[Corpus]) -> list[Corpus]:
    return [corpus for corpus in corpora if corpus.file is not None or corpus.dataset is not None]


def with_tabs(texts: Sequence[str]) -> str:
    """Texts as they are typed, so that a tab within one becomes a blank."""
    return "\t".join(text.replace("\t", " ") for text in texts)


@torch.inference_mode()
def scores_of(
    task: type[TextLabelling],
    model: Headed,
    examples: LabelledExamples,
    progress: Callable[[int], None] = lambda done: None,
) -> Scores:
    """What the head says of all examples, in their order: [X, Y]."""
    found: dict[int, Scores] = {}
    for rows in fixed_batches(examples, SCORE_TOKENS):
        scores_XY = task.scores(model, examples.batch(rows).to(device_of(model))).float().cpu().numpy()
        found |= dict(zip(rows.tolist(), scores_XY, strict=True))
        progress(len(rows))
    return np.stack([found[row] for row in range(len(examples))])


def class_numbers(dataset: Dataset, names: Sequence[str], what: str, hint: str) -> NDArray[np.int64]:
    """The number of each label among `names`, or one DataError: `what` is said of those that are not there."""
    known = {name: number for number, name in enumerate(names)}
    labels = list(dataset.texts["label"])
    refuse_labels(
        [
            Problem(dataset.where(row), f"the label {label!r} {what}", hint)
            for row, label in enumerate(labels)
            if label not in known
        ]
    )
    return np.array([known[label] for label in labels], dtype=np.int64)


def refuse_labels(problems: Sequence[Problem]) -> None:
    """One DataError with all of them, if there are any."""
    if problems:
        raise DataError(problems=first_of(problems))
