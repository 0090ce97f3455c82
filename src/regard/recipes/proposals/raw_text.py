"""Raw text: documents in a file or a folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from regard.data.raw import RawText
from regard.data.readers import Reader
from regard.errors import DataError
from regard.recipes.proposals.columns import SAMPLED_ROWS
from regard.recipes.proposals.profile import DataProfile, TextStatistics


def text_files_in(folder: Path) -> str | None:
    """A name or pattern for the .txt files of a folder, plain or compressed; None for a folder without, or one
    of recipes."""
    if not folder.is_dir() or any(path.suffix in (".yaml", ".yml") for path in folder.iterdir()):
        return None
    kinds: set[str] = set()
    with suppress(DataError):
        kinds = {"".join(file.suffixes) for file in RawText(text=str(folder)).files(Path())}
    texts = sorted(kind for kind in kinds if kind.startswith(".txt"))
    if not texts:
        return None
    return str(folder) if len(kinds) == 1 else f"{folder.as_posix()}/**/*{texts[0]}"


def raw_text(name: str, encoding: str) -> DataProfile:
    """The documents of a text file, a folder or a pattern: blocks between blank lines, or lines if
    those are few."""
    sample, blocks, lines, characters = list[str](), 0, 0, 0
    reader = Reader(RawText(text=name), Path(), "train", encoding=encoding)
    content = chain.from_iterable(chain(file.lines(), [""]) for file in reader.files)
    for filled, group in groupby(content, lambda line: bool(line.strip())):
        blocks += filled
        for line in group:
            lines, characters = lines + filled, characters + len(line)
            sample += [line] * (len(sample) < SAMPLED_ROWS)
    if blocks < 5 and lines > blocks:
        data = {"text": Path(name), "documents": "lines"}
        return documents_in(data, lines, characters / lines, [*filter(str.strip, sample)])
    texts = [
        " ".join(group)
        for filled, group in groupby(sample, lambda line: bool(line.strip()))
        if filled
    ]
    return documents_in({"text": Path(name)}, blocks, characters / max(1, blocks), texts)


def documents_in(
    data: dict[str, Any], rows: int, characters: float, texts: Sequence[str]
) -> DataProfile:
    size = TextStatistics.of(texts)._replace(characters=round(characters))
    return DataProfile("language_modeling", data, rows, (size,))
