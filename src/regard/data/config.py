"""Where examples come from and which of them are kept."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from regard.config import Config

CORPORA = ("dates", "copy", "reverse", "sort")
"""The corpora that the package generates (data/corpora.py)."""


class Corpus(Config):
    """One source of examples; a task's subclass adds the columns it reads as fields of their own.

    Without `file` and `corpus` each column names a file of its own, parallel line by line.
    """

    file: str | None = None
    """One file that holds all columns: .tsv, .csv or .jsonl, plain or as .gz or .xz."""
    header: bool | None = None
    """Whether the first line of a .tsv or .csv names the columns. Default: yes when a column is asked for by name."""
    corpus: Literal["dates", "copy", "reverse", "sort"] | None = None
    """A corpus that the package generates."""
    size: int | None = Field(None, ge=1)
    """How many examples to generate (a built-in corpus), or how many to read at the most (a file)."""
    seed: int = Field(1, ge=0)
    """Seed of a built-in corpus."""
    weight: float = Field(1.0, gt=0)
    """How often an epoch shows this corpus: 2 shows each example twice, 0.5 every second one, drawn anew each epoch."""

    @property
    def columns(self) -> dict[str, str | int | None]:
        """The task's columns: name -> a file (parallel files), or a column's name or number."""
        return {name: getattr(self, name) for name in type(self).model_fields if name not in Corpus.model_fields}

    @model_validator(mode="after")
    def _one_kind(self) -> Corpus:
        missing = [name for name, value in self.columns.items() if value is None]
        if self.corpus is not None:
            if self.file is not None or len(missing) < len(self.columns):
                raise ValueError("a built-in corpus takes no file and no columns")
        elif missing:
            raise ValueError(
                f"name the {' and '.join(missing)}: a file each, or 'file' with the columns in it, or 'corpus'"
            )
        elif self.file is None and any(isinstance(value, int) for value in self.columns.values()):
            raise ValueError("a column number needs 'file: ...' beside it")
        return self


class Split(Config):
    """A part of the training examples, set aside."""

    split: float = Field(gt=0, lt=1)
    """The share of the training examples; drawn by source text, so that no source stands on both sides."""


C = TypeVar("C", bound=Corpus)


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, (dict, Corpus)) else value


def _held_out_kind(value: Any) -> str:
    return "split" if isinstance(value, Split) or (isinstance(value, dict) and "split" in value) else "corpora"


HeldOut = Annotated[
    Annotated[Split, Tag("split")] | Annotated[list[C], BeforeValidator(_as_list), Tag("corpora")],
    Discriminator(_held_out_kind),
]
"""Corpora of its own, or a share of the training examples."""


class Data(Config, Generic[C]):
    """The examples of a run."""

    train: Annotated[list[C], BeforeValidator(_as_list), Field(min_length=1)]
    """One corpus, or a list of them that are mixed by weight."""
    validation: HeldOut[C] = Split(split=0.02)
    """Examples to choose the best checkpoint with."""
    test: HeldOut[C] | None = None
    """Examples to measure with at the end."""
    max_length: int = Field(200, ge=1)
    """Longest side of a training example, in tokens; longer ones are dropped and counted."""
    max_ratio: float | None = Field(None, gt=1)
    """Largest ratio of the longer to the shorter side in tokens; pairs beyond it are dropped and counted."""
    deduplicate: bool = True
    """Drop training examples that stand twice."""
    max_characters: int = Field(20_000, ge=1)
    """A line longer than this is taken for a broken file."""
    bad_lines: Literal["error", "drop"] = "error"
    """What to do with empty lines and lines over max_characters: stop and name them, or drop and count them."""
