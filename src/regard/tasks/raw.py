"""What the tasks on raw text share: corpora to measure a run on, what `--file` names, and how long a text may be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from regard.data.corpora import Part
from regard.data.documents import RawData, RawText, open_documents
from regard.data.raw import RawTokens
from regard.data.tokenizers import Tokenizer
from regard.errors import ConfigError, DataError
from regard.tasks.inputs import only_file


def read_documents(
    data: RawData,
    corpora: Sequence[RawText],
    part: Part,
    base: Path,
    tokenizer: Tokenizer,
    *,
    by_sentence: bool,
    letters: int | None = None,
) -> RawTokens:
    """All documents of the corpora, less empty ones that are not meant so."""
    texts: list[str] = []
    places: list[str] = []
    for corpus in corpora:
        reader = open_documents(corpus, base, part)
        for row in reader.rows() if data.bad_lines == "drop" else reader:
            if reader.may_be_empty or row.values[0].strip():
                texts.append(row.values[0])
                places.append(reader.where(row.line))
    if not texts:
        raise DataError("there is no text", where="--file" if len(corpora) == 1 else "data")
    return RawTokens.of(texts, tokenizer, lambda row: places[row], by_sentence=by_sentence, letters=letters)


def corpus_of_files(files: Sequence[str], own: Sequence[RawText]) -> RawText:
    """What `--file` names: a text file, a folder or a table, read as the recipe's own corpora are."""
    file = only_file(files, hint="give one, or a folder of them")
    columns = {Path(corpus.file).suffix: corpus.text for corpus in own if corpus.file is not None}
    if Path(file).suffix in columns:
        return RawText(file=file, text=columns[Path(file).suffix])
    like = next((corpus for corpus in own if corpus.corpus is None), RawText(text=file))
    return RawText(text=file, documents=like.documents)


def refuse_longer(length: int, positions: int | None) -> None:
    """Texts may not be longer than the positions that a model learns, where it learns any."""
    if positions is not None and length > positions:
        what = f"texts of {length} tokens are longer than the model's {positions} positions"
        raise ConfigError(what, where="data.max_length", hint=f"at most {positions}, or raise model.max_positions")
