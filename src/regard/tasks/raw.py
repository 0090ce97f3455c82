"""What the tasks on raw text share: documents as tokens, and what `--file` names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import spelled
from regard.data.config import Recipe
from regard.data.corpora import Part
from regard.data.dataset import ColumnReport, Columns, Dataset, Histogram, Where
from regard.data.example import Example
from regard.data.prepare import read
from regard.data.raw import RawInputs, RawText, RawTokens, encode_documents
from regard.data.readers import Reader
from regard.errors import ConfigError, DataError
from regard.models.base import Contextual, ModelConfig
from regard.objectives.language_model import Predicted
from regard.tasks.task import EncodedInputs, Note, Prediction, Task, unknown_notes
from regard.text.normalise import Sentences, fold_white_space
from regard.text.tokenizers import Tokenizer, Tokenizers, train_tokenizers
from regard.text.vocabularies import SPECIAL_NAMES


class RawTextTask(Task):
    """A task on raw text: rows of the data are documents, or pieces of long ones."""

    vocabularies = ("text",)
    reads_raw_text = True
    special: ClassVar[Sequence[str]] = (
        SPECIAL_NAMES  # the special tokens of a vocabulary that is trained
    )

    # Data

    @property
    def sentences(self) -> Sentences | None:
        """How sentences are found, for a model that needs them."""
        return None

    @property
    def packs(self) -> bool:
        return bool(self.recipe.model.packs)

    def raw_tokens(self, pieces: Dataset) -> RawTokens:
        return RawTokens(pieces, self.tokenizers["text"], self.recipe.model.letters)

    @classmethod
    def learn_tokenizers(
        cls, recipe: Recipe, train: Mapping[str, Sequence[str]], base: Path
    ) -> Tokenizers:
        return train_tokenizers(
            recipe.tokenizer, {"text": train["text"]}, base, cls.special, fold_white_space
        )

    def settings(self) -> list[Any]:
        return [self.sentences, self.recipe.model.letters is not None]

    def encode(self, texts: Mapping[str, Sequence[str]], where: Where) -> Columns:
        letters = self.recipe.model.letters
        return encode_documents(
            texts["text"], texts["part"], self.tokenizers["text"], self.sentences, letters
        )

    def column_reports(self, examples: Dataset) -> dict[str, ColumnReport]:
        """The tokens of whole documents, without their ends."""
        text, tokenizer = self.raw_tokens(examples), self.tokenizers["text"]
        tokens = int(text.lengths.sum(dtype=np.int64))
        unknown = int(text.frequencies()[tokenizer.unk])
        return {"text": ColumnReport(tokens, unknown / max(tokens, 1), Histogram.of(text.lengths))}

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        return examples.columns["text"].lengths

    def fingerprint(self, examples: Any) -> int:
        return super().fingerprint(examples.text.pieces)

    def frequencies(self, examples: Any) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = examples.frequencies()
        return counts

    def pieces(self, examples: Any, row: int) -> dict[str, list[str]]:
        pieces: dict[str, list[str]] = examples.pieces(row)
        return pieces

    def read_documents(self, corpora: Sequence[RawText], part: Part, base: Path) -> Dataset:
        documents = read(self, self.recipe, corpora, part, base)
        if not len(documents):
            raise DataError("there is no text", where="--file" if len(corpora) == 1 else "data")
        return documents

    @cached_property
    def inputs(self) -> RawInputs:
        return RawInputs(self.name, self.corpora, self.recipe.data.encoding, self.input_columns)

    # Verbs

    def typed(self, row: Mapping[str, str], reader: Reader) -> str:
        """A few words, to be continued."""
        return " ".join(row["text"].split()[:5])

    def text_model(self, model: Any) -> Contextual | None:
        return model if isinstance(model, Contextual) else None

    def notes(
        self, encoded: EncodedInputs[list[int]], predictions: Sequence[Prediction]
    ) -> list[Note]:
        return self.text_notes(encoded.inputs, encoded.readable())

    def plain_text(self, text: str) -> str:
        """The words of an input, with single spaces between them."""
        return self.tokenizers["text"].fold(text)

    def text_notes(
        self,
        inputs: Sequence[Example],
        rows: Sequence[Sequence[int]],
        written: Sequence[int] | None = None,
    ) -> list[Note]:
        """Which texts have tokens outside the vocabulary, and which reach positions that the model
        has embeddings for, but did not see in training; `written` has the number of tokens that
        were then written after each.

        A model that reads letters knows every word. A run that began with another run's weights may
        have learned all positions there.
        """
        notes, model = list[Note](), self.recipe.model
        if model.letters is None:
            texts = [given.with_text(self.plain_text(given.text)) for given in inputs]
            notes += unknown_notes(self.tokenizers["text"], texts, rows)
        longest = self.recipe.data.max_length
        if longest < getattr(model, "max_positions", 0) and self.recipe.training.init is None:
            for given, row, more in zip(inputs, rows, written or [0] * len(rows), strict=True):
                if (length := len(row) + more) > longest:
                    what = (
                        f"{given.place} has {length:,} tokens with the special ones; the model "
                        "was trained on at most"
                    )
                    what += (
                        f" {longest:,} (data.max_length), and never learned the positions "
                        "after them"
                    )
                    notes.append(Note("length", what))
        return notes


def spelling_options(config: ModelConfig, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """The option of `Kind.build` that a model which reads characters needs: the spelling of the
    vocabulary."""
    if config.letters is None:
        return {}
    return {"characters_VC": spelled(tokenizer.pieces(range(tokenizer.size)), config.letters)}


def check_max_length(recipe: Recipe, *, imported: bool = False) -> None:
    """Texts may not be longer than the positions that a model learns, where it learns any.

    A model that was imported, or begins with the weights of another run, has as many as that one.
    """
    length, positions = recipe.data.max_length, getattr(recipe.model, "max_positions", None)
    if positions is not None and length > positions:
        what = f"texts of {length} tokens are longer than the model's {positions} positions"
        more = (
            "" if imported or recipe.training.init is not None else ", or raise model.max_positions"
        )
        raise ConfigError(what, where="data.max_length", hint=f"at most {positions}{more}")


def token_losses(model: Any, predicted: Predicted) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each token [P] in double precision, and whether it is the likeliest of
    all."""
    rows = max(1, 2**24 // max(parameter.shape[0] for parameter in model.output.parameters()))
    losses, right = [], []
    for hidden_PD, labels_P in zip(*(torch.split(part, rows) for part in predicted), strict=True):
        logits_PV = model.readout(hidden_PD).float()
        losses.append(F.cross_entropy(logits_PV, labels_P, reduction="none").double())
        right.append(logits_PV.argmax(-1) == labels_P)
    return torch.cat(losses), torch.cat(right)
