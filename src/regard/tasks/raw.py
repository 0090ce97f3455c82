"""What the tasks on raw text share: corpora to measure a run on, what `--file` names, and how long a text may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from regard.data.corpora import Part
from regard.data.documents import RawData, RawText, open_documents
from regard.data.file_inputs import FileInput, has_columns, is_table, table_rows
from regard.data.raw import RawTokens, one_blank
from regard.data.rows import Key, has_header
from regard.errors import ConfigError, DataError
from regard.models.base import ModelConfig
from regard.tasks.inputs import only_file
from regard.text.files import TextFile
from regard.text.sentences import Sentences
from regard.text.spelling import spelled
from regard.text.tokenizers import Tokenizer


def read_documents(
    data: RawData,
    corpora: Sequence[RawText],
    part: Part,
    base: Path,
    tokenizer: Tokenizer,
    *,
    sentences: Sentences | None = None,
    letters: int | None = None,
) -> RawTokens:
    """All documents of the corpora, less empty ones that are not meant so."""
    texts: list[str] = []
    places: list[str] = []
    firsts: list[int] = []
    for corpus in corpora:
        reader = open_documents(corpus, base, part)
        for row in reader.rows() if data.bad_lines == "drop" else reader:
            if reader.may_be_empty or row.values[0].strip():
                if not row.continues:
                    firsts.append(len(texts))
                    places.append(reader.where(row.line))
                texts.append(row.values[0])
    if not texts:
        raise DataError("there is no text", where="--file" if len(corpora) == 1 else "data")
    bounds = np.array([*firsts, len(texts)])
    return RawTokens.of(texts, tokenizer, places.__getitem__, sentences=sentences, letters=letters, firsts=bounds)


def corpus_of_files(files: Sequence[str], own: Sequence[RawText]) -> RawText:
    """What `--file` names: a text file, a folder or a table, read as the recipe's own corpora are."""
    file = only_file(files, hint="give one, or a folder of them")
    tables = [corpus for corpus in own if corpus.file is not None or corpus.dataset is not None]
    if tables and is_table(named := TextFile(file, Path(file))):
        alike = [one for one in tables if one.file and TextFile(one.file, Path()).suffixes[0] == named.suffixes[0]]
        like = (alike or tables)[0]
        return RawText(file=file, text=like.text, header=like.header)
    like = next((corpus for corpus in own if corpus.corpus is None), RawText(text=file))
    return RawText(text=file, documents=like.documents)


def texts_in(own: Sequence[RawText], file: TextFile) -> Iterator[FileInput] | None:
    """The texts of a table, each in one line: its column is that of the recipe's own corpora, or `text`. None: a line
    is a text."""
    if not is_table(file):
        return None
    like = corpus_of_files([file.name], own)
    columns: dict[str, Key] = {"text": "text" if like.file is None or like.text is None else like.text}
    header = None if like.file is None else has_header(like)
    if not has_columns(file, columns) and has_columns(file, {"text": "text"}):
        columns, header = {"text": "text"}, None
    rows = table_rows(file, columns, header)
    return (FileInput(one_blank(row.values[0]), file.where(row.line), row.fault) for row in rows)


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
