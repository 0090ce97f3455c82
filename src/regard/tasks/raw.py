"""What the tasks on raw text share: documents as tokens, what `--file` names, and how long a text may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.config import Config
from regard.data.config import Recipe
from regard.data.corpora import Part
from regard.data.dataset import Columns, Dataset
from regard.data.documents import RawText
from regard.data.file_inputs import FileInput, has_columns, is_table, table_rows
from regard.data.formats import Key, has_header
from regard.data.prepare import Prepared, prepare, read
from regard.data.raw import RawTokens, encode_documents
from regard.data.report import ColumnReport, Histogram
from regard.data.texts import Progress, Texts
from regard.errors import ConfigError, DataError
from regard.models.base import Contextual, ModelConfig
from regard.objectives.language_model import Predicted
from regard.tasks.inputs import EncodedInputs, Inputs, Note, only_file
from regard.tasks.task import NoSettings, Prediction, Task
from regard.text.files import TextFile
from regard.text.normalise import fold_white_space
from regard.text.sentences import Sentences
from regard.text.spelling import spelled
from regard.text.tokenizers import Tokenizer, Tokenizers, train_tokenizers
from regard.text.vocabularies import SPECIAL

LOGITS = 2**24
"""Logits that are in memory together."""
NAMED, SHOWN = 3, 20
"""How many unknown words a note names, and how many characters of each it shows."""


class RawTextTask(Task):
    """A task on raw text: rows of the data are documents, or pieces of long ones."""

    columns = ("text",)
    reads_raw_text = True
    evaluation: ClassVar[type[Config]] = NoSettings
    special: ClassVar[Sequence[str]] = SPECIAL
    """The special tokens of a vocabulary that is trained."""

    @property
    def sentences(self) -> Sentences | None:
        """How sentences are found, for a model that needs them."""
        return None

    def examples(self, text: RawTokens, part: str) -> Any:
        """What a model reads of a split."""
        raise NotImplementedError

    @classmethod
    def prepare(
        cls, recipe: Recipe, base: Path, tokenizers: Tokenizers | None = None, progress: Progress | None = None
    ) -> Prepared[Any]:
        documents = prepare(cls, recipe, base, tokenizers, progress)
        task = cls(recipe, documents.tokenizers)
        splits = {"train": documents.train, "validation": documents.validation, "test": documents.test}
        examples = {
            part: task.examples(task.raw_tokens(pieces), part) for part, pieces in splits.items() if pieces is not None
        }
        return Prepared(task, examples["train"], examples["validation"], examples.get("test"), documents.report)

    def raw_tokens(self, pieces: Dataset) -> RawTokens:
        return RawTokens(pieces, self.tokenizers["text"], getattr(self.recipe.model, "letters", None))

    @classmethod
    def learn_tokenizers(cls, recipe: Recipe, train: Texts, base: Path) -> Tokenizers:
        return train_tokenizers(recipe.tokenizer, {"text": _Lines(train.columns["text"])}, base, cls.special)

    def encoding(self) -> list[Any]:
        return [self.sentences, getattr(self.recipe.model, "letters", None) is not None]

    def encode(self, texts: Mapping[str, Sequence[str]], where: Callable[[int], str]) -> Columns:
        letters = getattr(self.recipe.model, "letters", None)
        return encode_documents(texts["text"], texts["part"], self.tokenizers["text"], self.sentences, letters)

    def column_reports(self, examples: Dataset) -> dict[str, ColumnReport]:
        """The tokens of whole documents, without their ends."""
        text, tokenizer = self.raw_tokens(examples), self.tokenizers["text"]
        tokens = int(text.lengths.sum(dtype=np.int64))
        unknown = int(text.frequencies()[tokenizer.unk])
        return {"text": ColumnReport(tokens, unknown / max(tokens, 1), Histogram.of(text.lengths))}

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        return examples.columns["text"].lengths

    def read_documents(self, corpora: Sequence[RawText], part: Part, base: Path) -> RawTokens:
        """All documents of the corpora, to measure a run on."""
        pieces = read(self, self.recipe, corpora, part, base)
        if not len(pieces):
            raise DataError("there is no text", where="--file" if len(corpora) == 1 else "data")
        return self.raw_tokens(pieces)

    def corpus_of(self, files: Sequence[str]) -> RawText:
        """What `--file` names: a text file, a folder or a table, read as the recipe's own corpora are."""
        file = only_file(files, hint="give one, or a folder of them")
        own: list[RawText] = self.corpora
        tables = [corpus for corpus in own if corpus.file is not None or corpus.dataset is not None]
        if tables and is_table(named := TextFile(file, Path(file))):
            suffix = named.suffixes[0]
            alike = [table for table in tables if table.file and TextFile(table.file, Path()).suffixes[0] == suffix]
            like = (alike or tables)[0]
            return RawText(file=file, text=like.text, header=like.header)
        like = next((corpus for corpus in own if corpus.corpus is None), RawText(text=file))
        return RawText(text=file, documents=like.documents)

    def inputs_in(self, file: TextFile) -> Iterator[FileInput] | None:
        """The texts of a table, each in one line: its column is that of the recipe's corpora, or `text`. None: a line
        is a text."""
        if not is_table(file):
            return None
        like = self.corpus_of([file.name])
        columns: dict[str, Key] = {"text": "text" if like.file is None or like.text is None else like.text}
        header = None if like.file is None else has_header(like)
        if not has_columns(file, columns) and has_columns(file, {"text": "text"}):
            columns, header = {"text": "text"}, None
        rows = table_rows(file, columns, header)
        return (FileInput(fold_white_space(row.values[0]), file.where(row.line), row.fault) for row in rows)

    def text_model(self, model: Any) -> Contextual | None:
        return model if isinstance(model, Contextual) else None

    def notes(self, encoded: EncodedInputs[list[int]], predictions: Sequence[Prediction]) -> list[Note]:
        rows = encoded.readable()
        lengths = [self.tokens_read(*pair) for pair in zip(rows, predictions, strict=True)]
        return [*self._unknown_notes(encoded.inputs, rows), *self._length_notes(encoded.inputs, lengths)]

    def text_notes(self, inputs: Inputs, rows: Sequence[Sequence[int]]) -> list[Note]:
        return [*self._unknown_notes(inputs, rows), *self._length_notes(inputs, [len(row) for row in rows])]

    def tokens_read(self, row: Sequence[int], prediction: Any) -> int:
        """How many tokens the model has read for a prediction, special ones included."""
        return len(row)

    def plain_text(self, text: str) -> str:
        """The words of an input, with single spaces between them."""
        return self.tokenizers["text"].fold(text)

    def _unknown_notes(self, inputs: Inputs, rows: Sequence[Sequence[int]]) -> list[Note]:
        """Which texts have tokens outside the vocabulary; a model that reads letters knows every word."""
        if getattr(self.recipe.model, "letters", None) is not None:
            return []
        tokenizer, notes = self.tokenizers["text"], []
        [symbol] = tokenizer.tokens([tokenizer.unk])
        for text, place, row in zip(inputs.texts, inputs.places, rows, strict=True):
            if count := row.count(tokenizer.unk):
                tokens = "1 token that is" if count == 1 else f"{count:,} tokens that are"
                words = _unknown_words(tokenizer, self.plain_text(text))
                what = f"{place} has {tokens} not in the vocabulary ({words}): the model reads {symbol} there"
                notes.append(Note("unknown", what))
        return notes

    def _length_notes(self, inputs: Inputs, lengths: Sequence[int]) -> list[Note]:
        """Which texts reach positions that the model has embeddings for, but did not see in training.

        A run that began with another run's weights may have learned them there: nothing is noted.
        """
        positions, longest = getattr(self.recipe.model, "max_positions", None), self.recipe.data.max_length
        if positions is None or longest >= positions or self.recipe.training.init is not None:
            return []
        return [
            Note(
                "length",
                f"{place} has {length:,} tokens with the special ones; the model was trained on at most {longest:,} "
                "(data.max_length), and never learned the positions after them",
            )
            for place, length in zip(inputs.places, lengths, strict=True)
            if length > longest
        ]


def _unknown_words(tokenizer: Tokenizer, text: str) -> str:
    """The first words with an unknown token, as they were typed."""
    words = list(dict.fromkeys(text.split(" ")))
    unknown = [word for word, ids in zip(words, tokenizer.encode_batch(words), strict=True) if tokenizer.unk in ids]
    shown = [repr(word if len(word) <= SHOWN else f"{word[:SHOWN]}...") for word in unknown]
    return ", ".join([*shown[:NAMED], *(["..."] if shown[NAMED:] else [])])


class _Lines:
    """Documents to train a tokenizer on, each as one line."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> str:
        return fold_white_space(self._texts[index])


def spelling_options(config: ModelConfig, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """The option of `build_model` that a model which reads characters needs: the spelling of the vocabulary."""
    if config.letters is None:
        return {}
    return {"characters_VC": spelled(tokenizer.pieces(range(tokenizer.size)), config.letters)}


def check_max_length(length: int, positions: int | None, init: str | None) -> None:
    """Texts may not be longer than the positions that a model learns, where it learns any.

    A model that begins with the weights of the run `init` has as many as that one.
    """
    if positions is not None and length > positions:
        what = f"texts of {length} tokens are longer than the model's {positions} positions"
        more = "" if init is not None else ", or raise model.max_positions"
        raise ConfigError(what, where="data.max_length", hint=f"at most {positions}{more}")


def token_losses(model: Any, predicted: Predicted) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each token [P] in double precision, and whether it is the likeliest of all."""
    rows = max(1, LOGITS // max(parameter.shape[0] for parameter in model.output.parameters()))
    losses, right = [], []
    for hidden_PD, labels_P in zip(*(torch.split(part, rows) for part in predicted), strict=True):
        logits_PV = model.readout(hidden_PD).float()
        losses.append(F.cross_entropy(logits_PV, labels_P, reduction="none").double())
        right.append(logits_PV.argmax(-1) == labels_P)
    return torch.cat(losses), torch.cat(right)
