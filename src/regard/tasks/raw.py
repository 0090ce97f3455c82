"""Raw text: its encoding, and what the models that are pre-trained on it share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import spelled
from regard.data.config import Recipe
from regard.data.corpora import Part
from regard.data.dataset import ColumnReport, Columns, Dataset, Encoding, Histogram, Where
from regard.data.epochs import Examples
from regard.data.example import Example
from regard.data.prepare import read_corpora
from regard.data.raw import RawText, RawTokens, encode_documents
from regard.errors import ConfigError, DataError
from regard.models.base import Contextual, ModelConfig
from regard.objectives.language_model import Predicted
from regard.tasks.answers import Note
from regard.tasks.reading import unknown_notes
from regard.text.normalise import Sentences, fold_white_space
from regard.text.tokenizers import Tokenizer, Tokenizers, train_tokenizers

Cut = Callable[[RawTokens, str], Examples]
"""The documents of a split and its name -> what a model reads of them."""


def learn_text_tokenizer(
    recipe: Recipe, train: Mapping[str, Sequence[str]], base: Path, special: Sequence[str]
) -> Tokenizers:
    """A tokenizer of documents; `special` are the special tokens of a vocabulary that is trained."""
    texts = {"text": train["text"]}
    return train_tokenizers(recipe.tokenizer, texts, base, special, fold_white_space)


class RawEncoding(Encoding):
    """Documents, or pieces of long ones, whose tokens are cut into what a model reads."""

    def __init__(
        self,
        recipe: Recipe,
        tokenizers: Tokenizers,
        cut: Cut,
        sentences: Sentences | None = None,
        counts: Callable[[Any], dict[str, int]] | None = None,
        side: str = "text",
    ) -> None:
        """`sentences` says how sentences are found, for a model that needs them; `counts` gives
        what `check` counts of the examples; `side` names the tokenizer."""
        super().__init__(recipe, tokenizers)
        self.tokenizer = tokenizers[side]
        self.cut = cut
        self.sentences = sentences
        self.counts = counts

    def tokenizer_of(self, column: str) -> Tokenizer | None:
        return self.tokenizer if column == "text" else None

    def settings(self) -> list[Any]:
        return [self.sentences, self.recipe.model.letters is not None]

    def encode(self, texts: Mapping[str, Sequence[str]], where: Where) -> Columns:
        return encode_documents(
            texts["text"],
            texts["part"],
            self.tokenizer,
            self.sentences,
            self.recipe.model.letters,
        )

    def column_reports(self, examples: Dataset) -> dict[str, ColumnReport]:
        """The tokens of whole documents, without their ends."""
        text = self.raw_tokens(examples)
        tokens = int(text.lengths.sum(dtype=np.int64))
        unknown = int(text.frequencies()[self.tokenizer.unk])
        return {"text": ColumnReport(tokens, unknown / max(tokens, 1), Histogram.of(text.lengths))}

    def raw_tokens(self, rows: Dataset) -> RawTokens:
        """The documents of some rows, as tokens."""
        return RawTokens(rows, self.tokenizer, self.recipe.model.letters)

    def examples(self, rows: Dataset, part: str) -> Examples:
        return self.cut(self.raw_tokens(rows), part)

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        return examples.columns["text"].lengths

    def fingerprint(self, examples: Any) -> int:
        return super().fingerprint(examples.text.pieces)

    def frequencies(self, examples: Any) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = examples.frequencies()
        return counts

    def label_counts(self, examples: Any) -> dict[str, int]:
        return {} if self.counts is None else self.counts(examples)

    def pieces(self, examples: Any, row: int) -> dict[str, list[str]]:
        pieces: dict[str, list[str]] = examples.pieces(row)
        return pieces


def read_documents(
    encoding: RawEncoding, corpora: Sequence[RawText], part: Part, base: Path
) -> Dataset:
    """Corpora as they are, to measure a run on."""
    documents = read_corpora(encoding, encoding.recipe, corpora, part, base)
    if not len(documents):
        raise DataError("there is no text", where="--file" if len(corpora) == 1 else "data")
    return documents


class TextNotes:
    """What a user should know about texts that a pre-trained model reads."""

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer, gap: str = "") -> None:
        """`gap` may stand in a text in the place of a word."""
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.gap = gap

    def __call__(
        self,
        inputs: Sequence[Example],
        rows: Sequence[Sequence[int]],
        written: Sequence[int] | None = None,
    ) -> list[Note]:
        """Notes on texts, whose tokens are `rows`; `written` is the number of tokens that were then
        written after each."""
        notes = self.unknown(inputs, rows)
        for given, row, more in zip(inputs, rows, written or [0] * len(rows), strict=True):
            notes += self.too_long(given.place, len(row) + more)
        return notes

    def unknown(self, inputs: Sequence[Example], rows: Sequence[Sequence[int]]) -> list[Note]:
        """Which texts have tokens outside the vocabulary. A model that reads letters knows every
        word."""
        if self.recipe.model.letters is not None:
            return []
        texts = [given.with_text(self.plain_text(given.text)) for given in inputs]
        return unknown_notes(self.tokenizer, texts, rows)

    def plain_text(self, text: str) -> str:
        """The words of an input, with single spaces between them."""
        return self.tokenizer.fold(text.replace(self.gap, " ") if self.gap else text)

    def too_long(self, place: str, length: int) -> list[Note]:
        """Whether a text reaches positions that the model has embeddings for, but did not see in
        training. A run that began with another run's weights may have learned all positions
        there."""
        recipe = self.recipe
        longest = recipe.data.max_length
        positions = getattr(recipe.model, "max_positions", 0)
        if length <= longest or longest >= positions or recipe.training.init is not None:
            return []
        what = (
            f"{place} has {length:,} tokens with the special ones; the model was trained on at most "
            f"{longest:,} (data.max_length), and never learned the positions after them"
        )
        return [Note("length", what)]


def contextual(model: Any) -> Contextual | None:
    """A model that has vectors for tokens in their context."""
    has_vectors = isinstance(model, Contextual) and model.config.represents == "tokens"
    return model if has_vectors else None


def spelling_options(config: ModelConfig, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """The option of `Kind.build` that a model which reads characters needs: the spelling of the
    vocabulary."""
    if config.letters is None:
        return {}
    return {"characters_VC": spelled(tokenizer.pieces(range(tokenizer.size)), config.letters)}


def check_max_length(recipe: Recipe, *, imported: bool = False) -> None:
    """Texts may not be longer than the positions that a model learns, if it learns any.

    A model that was imported, or begins with the weights of another run, has as many as that one.
    """
    length = recipe.data.max_length
    positions = getattr(recipe.model, "max_positions", None)
    if positions is not None and length > positions:
        what = f"texts of {length} tokens are longer than the model's {positions} positions"
        more = (
            "" if imported or recipe.training.init is not None else ", or raise model.max_positions"
        )
        raise ConfigError(what, where="data.max_length", hint=f"at most {positions}{more}")


def token_losses(model: Any, predicted: Predicted) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each token [P] in double precision, and whether it is the likeliest of
    all."""
    rows = max(1, 2**24 // model.readout(predicted[0][:1]).shape[-1])
    losses = []
    right = []
    for hidden_PD, labels_P in zip(*(torch.split(part, rows) for part in predicted), strict=True):
        logits_PV = model.readout(hidden_PD).float()
        losses.append(F.cross_entropy(logits_PV, labels_P, reduction="none").double())
        right.append(logits_PV.argmax(-1) == labels_P)
    return torch.cat(losses), torch.cat(right)
