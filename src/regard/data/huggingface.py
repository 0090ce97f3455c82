"""Datasets of the Hugging Face library -> rows of text: from a folder, or by name from the Hub."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from regard.data.rows import Key, Row, text_of, value_in
from regard.errors import DataError, did_you_mean, import_extra

BATCH = 1000


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote a folder."""
    # False also for a name that is too long for a file's
    return os.path.isfile(folder / "state.json") or os.path.isfile(folder / "dataset_dict.json")


@dataclass(frozen=True)
class HubDataset:
    """One split of a dataset: of a folder that `save_to_disk` wrote, a folder of data files, or a name on the Hub."""

    name: str
    """As the user wrote it."""
    base: Path
    """What the name of a folder is relative to."""
    subset: str | None
    split: str | None
    """The split that was asked for."""
    part: str
    """The split to take if none was asked for and there are several."""

    @property
    def folder(self) -> Path | None:
        path = self.base / self.name
        if path.is_dir():
            return path
        if path.exists():
            raise DataError("is a file, not a dataset", where=self.name, hint="name it as 'file: ...'")
        if self.name.startswith((".", "/", "~")) or self.name.count("/") > 1 or "\\" in self.name:
            raise DataError("there is no such folder", where=self.name, hint=f"looked in {self.base.absolute()}")
        return None

    def check(self) -> None:
        """Refuse what can be refused without reading: a name that cannot be one, a library that is not installed."""
        _ = self.folder
        import_extra("datasets", extra="hf", where=self.name)

    def where(self, row: int) -> str:
        return f"{self.name}:{row}"

    def rows(self, keys: list[Key], numeric: frozenset[Key] = frozenset()) -> Iterator[Row]:
        """The texts of the columns; `translation.en` is the field `en` of `translation`, a null is an empty text.

        Those of the `numeric` ones may be numbers.
        """
        examples = self.examples()
        first = next(examples, None)
        if first is None:
            raise DataError("the split has no rows", where=self.name)
        for row, example in enumerate(chain([first], examples), 1):
            yield Row(row, tuple([_text(example, key, self.where(row), key in numeric) for key in keys]))

    def digest(self) -> str:
        """A hash of the bytes that the rows are read from."""
        folder = self.folder
        if folder is None:
            files = [Path(file["filename"]) for file in self._load().cache_files]
        else:
            files = sorted(path for path in folder.rglob("*") if path.is_file())
        digest = hashlib.blake2b(digest_size=16)
        for path in files:
            with path.open("rb") as stream:
                digest.update(str(path.relative_to(folder) if folder else path.name).encode())
                digest.update(hashlib.file_digest(stream, "blake2b").digest())
        return digest.hexdigest()

    def examples(self) -> Iterator[Mapping[str, Any]]:
        """The rows as they are, with all columns."""
        dataset = self._load()
        try:
            for batch in dataset.iter(BATCH):
                yield from (dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True))
        except Exception as error:  # the library raises what its readers of files raise
            raise self._unreadable(error) from None

    def _load(self) -> Any:
        """The split, not read yet."""
        datasets = import_extra("datasets", extra="hf", where=self.name)
        folder = self.folder
        try:
            if folder is None:
                return datasets.load_dataset(self.name, self.subset, split=self.split or self.part)
            if is_saved(folder):
                loaded = datasets.load_from_disk(str(folder))
            else:
                loaded = datasets.load_dataset(str(folder), self.subset, streaming=True)  # no copy in its cache
        except Exception as error:  # no connection, no such name, no such subset, a broken file: one class each
            raise self._unreadable(error) from None
        return self._chosen(loaded)

    def _chosen(self, loaded: Any) -> Any:
        splits = loaded if isinstance(loaded, Mapping) else {}
        if not splits and self.split is None:
            return loaded
        wanted = self.split or (self.part if len(splits) > 1 else next(iter(splits)))
        if wanted not in splits:
            hint = did_you_mean(wanted, splits) if splits else "leave 'split' out"
            raise DataError(f"there is no split {wanted!r}", where=self.name, hint=hint)
        return splits[wanted]

    def _unreadable(self, error: Exception) -> DataError:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        hint = "a folder, or a name on the Hugging Face Hub, which needs a connection the first time"
        return DataError(f"cannot be loaded as a dataset: {reason}", where=self.name, hint=hint)


def _text(example: Mapping[str, Any], key: Key, where: str, number: bool) -> str:
    value = value_in(example, key, where)
    return "" if value is None else text_of(value, key, where, number=number)
