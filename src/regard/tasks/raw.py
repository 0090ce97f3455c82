"""What the tasks on raw text share: documents as tokens, what `--file` names, and the vectors of a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.data.batches import MaskedBatch, TextBatch, spelled
from regard.data.config import Recipe
from regard.data.corpora import Part
from regard.data.dataset import ColumnReport, Columns, Dataset, Histogram, Where
from regard.data.file_inputs import alike, has_columns, is_table, only_file, read_like, table_rows
from regard.data.formats import Key, has_header
from regard.data.framing import Framing
from regard.data.prepare import read
from regard.data.raw import RawText, RawTokens, encode_documents
from regard.data.readers import Reader
from regard.errors import ConfigError, DataError, DecodeError, InputError, Problem, first_of
from regard.models.base import Contextual, ModelConfig, Pooling, device_of, pool
from regard.objectives.language_model import Predicted
from regard.tasks.task import (
    LONGEST,
    EncodedInputs,
    Note,
    Prediction,
    Task,
    by_length,
    is_foreign,
    nothing_known,
    padded,
    problem_in,
    read_tokens,
)
from regard.text.files import FileInput, TextFile
from regard.text.normalise import Sentences, fold_white_space
from regard.text.tokenizers import Tokenizer, Tokenizers, train_tokenizers, unknown_in
from regard.text.vocabularies import SPECIAL

NAMED, SHOWN = 3, 20  # how many unknown words a note names, and how many characters of each it shows


class RawTextTask(Task):
    """A task on raw text: rows of the data are documents, or pieces of long ones."""

    columns = ("text",)
    reads_raw_text = True
    special: ClassVar[Sequence[str]] = SPECIAL  # the special tokens of a vocabulary that is trained

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
    def learn_tokenizers(cls, recipe: Recipe, train: Mapping[str, Sequence[str]], base: Path) -> Tokenizers:
        return train_tokenizers(recipe.tokenizer, {"text": train["text"]}, base, cls.special, fold_white_space)

    def encoding(self) -> list[Any]:
        return [self.sentences, self.recipe.model.letters is not None]

    def encode(self, texts: Mapping[str, Sequence[str]], where: Where) -> Columns:
        letters = self.recipe.model.letters
        return encode_documents(texts["text"], texts["part"], self.tokenizers["text"], self.sentences, letters)

    def column_reports(self, examples: Dataset) -> dict[str, ColumnReport]:
        """The tokens of whole documents, without their ends."""
        text, tokenizer = self.raw_tokens(examples), self.tokenizers["text"]
        tokens = int(text.lengths.sum(dtype=np.int64))
        unknown = int(text.frequencies()[tokenizer.unk])
        return {"text": ColumnReport(tokens, unknown / max(tokens, 1), Histogram.of(text.lengths))}

    def lengths(self, examples: Dataset) -> NDArray[np.int32]:
        return examples.columns["text"].lengths

    def frequencies(self, examples: Any) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = examples.frequencies()
        return counts

    def pieces(self, examples: Any, row: int) -> dict[str, list[str]]:
        pieces: dict[str, list[str]] = examples.pieces(row)
        return pieces

    def read_documents(self, corpora: Sequence[RawText], part: Part, base: Path) -> Dataset:
        """All documents of the corpora, to measure a run on."""
        documents = read(self, self.recipe, corpora, part, base)
        if not len(documents):
            raise DataError("there is no text", where="--file" if len(corpora) == 1 else "data")
        return documents

    def corpus_of(self, files: Sequence[str]) -> Any:
        """What `--file` names: a text file, a folder or a table, read as the recipe's own corpora are."""
        name, own = only_file(files, hint="give one, or a folder of them"), self.corpora
        file = TextFile(name, Path(name))
        tables = [corpus for corpus in own if corpus.file is not None or corpus.dataset is not None]
        if tables and is_table(file):
            return read_like((alike(file, tables) or tables)[0], file)
        like = next((corpus for corpus in own if corpus.corpus is None), RawText(text=name))
        return RawText(text=name, documents=like.documents)

    # Verbs

    def typed(self, row: Mapping[str, str], reader: Reader) -> str:
        """A few words, to be continued."""
        return " ".join(row["text"].split()[:5])

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
        return (FileInput(fold_white_space(row.values[0]), file.row(row.line), row.fault) for row in rows)

    def text_model(self, model: Any) -> Contextual | None:
        return model if isinstance(model, Contextual) else None

    def notes(self, encoded: EncodedInputs[list[int]], predictions: Sequence[Prediction]) -> list[Note]:
        return self.text_notes(encoded.inputs, encoded.readable())

    def plain_text(self, text: str) -> str:
        """The words of an input, with single spaces between them."""
        return self.tokenizers["text"].fold(text)

    def text_notes(
        self, inputs: Sequence[FileInput], rows: Sequence[Sequence[int]], written: Sequence[int] | None = None
    ) -> list[Note]:
        """Which texts have tokens outside the vocabulary, and which reach positions that the model has embeddings for,
        but did not see in training; `written` has the number of tokens that were then written after each.

        A model that reads letters knows every word. A run that began with another run's weights may have learned all
        positions there.
        """
        notes, tokenizer, model = list[Note](), self.tokenizers["text"], self.recipe.model
        if model.letters is None:
            [symbol] = tokenizer.tokens([tokenizer.unk])
            for (text, place, *_), row in zip(inputs, rows, strict=True):
                if count := row.count(tokenizer.unk):
                    tokens = "1 token that is" if count == 1 else f"{count:,} tokens that are"
                    words = _unknown_words(tokenizer, self.plain_text(text))
                    what = f"{place} has {tokens} not in the vocabulary ({words}): the model reads {symbol} there"
                    notes.append(Note("unknown", what))
        longest = self.recipe.data.max_length
        if longest < getattr(model, "max_positions", 0) and self.recipe.training.init is None:
            for (_, place, *_), row, more in zip(inputs, rows, written or [0] * len(rows), strict=True):
                if (length := len(row) + more) > longest:
                    what = f"{place} has {length:,} tokens with the special ones; the model was trained on at most"
                    what += f" {longest:,} (data.max_length), and never learned the positions after them"
                    notes.append(Note("length", what))
        return notes


def _unknown_words(tokenizer: Tokenizer, text: str) -> str:
    """The first words with an unknown token, as they were typed."""
    words = list(dict.fromkeys(text.split(" ")))
    unknown = [word for word, ids in zip(words, tokenizer.encode_batch(words), strict=True) if tokenizer.unk in ids]
    shown = [repr(word if len(word) <= SHOWN else f"{word[:SHOWN]}...") for word in unknown]
    return ", ".join([*shown[:NAMED], *(["..."] if shown[NAMED:] else [])])


def spelling_options(config: ModelConfig, tokenizer: Tokenizer) -> dict[str, Tensor]:
    """The option of `Kind.build` that a model which reads characters needs: the spelling of the vocabulary."""
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
        more = "" if imported or recipe.training.init is not None else ", or raise model.max_positions"
        raise ConfigError(what, where="data.max_length", hint=f"at most {positions}{more}")


def token_losses(model: Any, predicted: Predicted) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each token [P] in double precision, and whether it is the likeliest of all."""
    rows = max(1, 2**24 // max(parameter.shape[0] for parameter in model.output.parameters()))
    losses, right = [], []
    for hidden_PD, labels_P in zip(*(torch.split(part, rows) for part in predicted), strict=True):
        logits_PV = model.readout(hidden_PD).float()
        losses.append(F.cross_entropy(logits_PV, labels_P, reduction="none").double())
        right.append(logits_PV.argmax(-1) == labels_P)
    return torch.cat(losses), torch.cat(right)


# Vectors of texts


@dataclass(frozen=True)
class Features:
    """The vectors of some texts: of their tokens, those of text i in the rows offsets[i] to offsets[i + 1], or of each
    text as a whole. A text that was skipped has no tokens, or a vector of NaN."""

    inputs: tuple[str, ...]
    vectors: NDArray[np.float32]  # [tokens, D], or [texts, D] where there is one vector a text
    tokens: tuple[str, ...] = ()
    offsets: tuple[int, ...] = ()
    notes: tuple[Note, ...] = ()  # what a user should know about the inputs
    skipped: tuple[Problem, ...] = ()  # why each text that was skipped cannot be read

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a .npz file of them holds."""
        arrays: dict[str, NDArray[Any]] = {"vectors": self.vectors, "inputs": np.array(self.inputs)}
        if self.offsets:
            arrays |= {"tokens": np.array(self.tokens), "offsets": np.array(self.offsets, dtype=np.int64)}
        return arrays


def features(
    task: Task,
    model: Contextual,
    inputs: Sequence[FileInput],
    *,
    layer: int = -1,
    pooling: Pooling | None = None,
    normalize: bool = False,
    skip_bad: bool = False,
) -> Features:
    """A vector for each token of each text, or with `pooling` one for each text, from one of the model's layers; with
    `normalize` each of length 1.

    Layer 0 is the embeddings, -1 the last one. Special tokens are read around a text, but have no vectors here: BERT
    reads [CLS] before it, a language model the `</s>` of the text before. A long text is cut. One that cannot be read
    is an InputError; with `skip_bad` it is skipped.
    """
    texts, problems = tuple(given.text for given in inputs), [problem_in(given) for given in inputs]
    read, skipped = [row for row, problem in enumerate(problems) if problem is None], [*filter(None, problems)]
    if not read or (skipped and not skip_bad):
        raise InputError(problems=first_of(skipped) or [Problem("--features", "there is no text")])
    inputs, tokenizer = [inputs[row] for row in read], task.tokenizers[task.columns[0]]
    folds = task.reads_raw_text and bool(task.recipe.data.train)  # as its training did
    folded = [tokenizer.fold(text) if folds else text for text, *_ in inputs]
    encoded = [ids or [tokenizer.unk] for ids in tokenizer.encode_batch(folded, model.config.letters)]
    longest = getattr(model, "longest", None) or LONGEST
    longest = longest if task.reads_raw_text else task.recipe.data.max_length  # what a head has read
    framing = Framing(tokenizer, model.config.segments, longest)
    notes, encoded = _features_notes(task, inputs, encoded, framing), [ids[: framing.room] for ids in encoded]
    states = _states(model, [framing.frame(ids).ids for ids in encoded], tokenizer.pad, layer, pooling)
    if pooling is None:
        states = [rows[framing.before(1) :][: len(ids)] for rows, ids in zip(states, encoded, strict=True)]
    vectors = np.concatenate(states) if pooling is None else np.stack(states)
    if normalize:
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    if pooling is not None:
        of_all = np.full((len(texts), vectors.shape[1]), np.nan, dtype=np.float32)
        of_all[read] = vectors
        return Features(texts, of_all, notes=notes, skipped=tuple(skipped))
    sizes = np.zeros(len(texts), dtype=np.int64)
    sizes[read] = [len(ids) for ids in encoded]
    tokens: list[str] = []
    for ids in encoded:
        spelt = tokenizer.tokens(ids)
        for place, token in unknown_in(ids):  # a word that a model of characters has read all the same
            spelt[place] = token.word
        tokens += spelt
    return Features(texts, vectors, tuple(tokens), (0, *np.cumsum(sizes).tolist()), notes, tuple(skipped))


def _features_notes(
    task: Task, inputs: Sequence[FileInput], encoded: Sequence[Sequence[int]], framing: Framing
) -> tuple[Note, ...]:
    """Which texts are cut, and which have nothing that is known; then what the task says of the others."""
    notes, others = list[Note](), list[int]()
    for number, ((text, place, *_), ids) in enumerate(zip(inputs, encoded, strict=True)):
        if len(ids) > framing.room:
            length = len(ids) + framing.special(1)
            what = f"{place} has {length:,} tokens with the special ones: the model reads the first {framing.longest:,}"
            notes.append(Note("length", what))
        elif is_foreign(framing.tokenizer, ids):
            notes.append(Note("unknown", str(nothing_known(text, place))))
        else:
            others.append(number)
    rows = [framing.frame(encoded[number]).ids for number in others]
    return (*notes, *task.text_notes([inputs[number] for number in others], rows))


@torch.inference_mode()
def _states(
    model: Contextual, rows: Sequence[list[int]], pad: int, layer: int, pooling: Pooling | None
) -> list[NDArray[np.float32]]:
    """Of each row the vectors of its tokens and of padding after them, or with `pooling` one vector."""
    states = dict[int, NDArray[np.float32]]()
    for numbers in by_length([len(row) for row in rows], read_tokens(model)):
        text = padded([rows[number] for number in numbers], pad).to(device_of(model))
        batch: TextBatch | MaskedBatch = TextBatch(text)
        if model.config.segments:
            nothing = text.ids_BL.new_empty(0)
            batch = MaskedBatch(text, torch.zeros_like(text.ids_BL), nothing, nothing)
        layers = model.layers_of(batch)
        if not -len(layers) <= layer < len(layers):
            raise DecodeError(f"there is no layer {layer}", where="--layer", hint=f"0 to {len(layers) - 1}, or -1")
        found = layers[layer] if pooling is None else pool(layers[layer], text, pooling)
        states |= dict(zip(numbers, found.float().cpu().numpy(), strict=True))
    return [states[number] for number in range(len(rows))]
