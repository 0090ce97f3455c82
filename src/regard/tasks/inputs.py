"""From what a user typed to what a model reads: checked, and batched by length with the order kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from regard.data.batch import Tokens
from regard.data.images import Picture, images_of
from regard.errors import DataError, DecodeError, Problem, first_of
from regard.text.spelling import Spelling, encode_spelled, unknown_in
from regard.text.tokenizers import Tokenizer, Tokenizers

Encoded = Sequence[int] | Picture
"""A source as a model reads it: its tokens without `</s>`, or an image."""
LONGEST = 2048
"""Longest input in tokens: beyond it a line break is missing rather than a sentence long."""


@dataclass(frozen=True)
class Inputs:
    """What is predicted for."""

    texts: Sequence[str]
    places: Sequence[str]
    """Where each stands, or what to call it."""
    prefixes: Sequence[str] | None = None
    """What each output is to begin with, instead of `search.prefix`."""

    @classmethod
    def of(cls, texts: Sequence[str]) -> Inputs:
        return cls(texts, numbered(texts))

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, rows: Sequence[int]) -> Inputs:
        prefixes = None if self.prefixes is None else [self.prefixes[row] for row in rows]
        return Inputs([self.texts[row] for row in rows], [self.places[row] for row in rows], prefixes)


def numbered(texts: Sequence[str]) -> list[str]:
    """What to call texts in messages where no file tells their places."""
    return [f"input {number}" for number in range(1, len(texts) + 1)]


def only_file(files: Sequence[str], hint: str = "give one") -> str:
    """The one file that `--file` names, for tasks that have all of an example in it."""
    if len(files) != 1:
        raise DataError(f"{len(files)} files are too many", where="--file", hint=hint)
    return files[0]


def encode_inputs(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    places: Sequence[str],
    longest: int | None = LONGEST,
    letters: int | None = None,
    *,
    unknown: bool = False,
) -> list[list[int]]:
    """Token ids of each text, or one DecodeError that names the texts that cannot be read.

    With `letters` unknown words keep so many of theirs, for a model that reads them. Texts in which nothing is known
    pass where there is an answer to the `unknown`, too, so long as they have a token.
    """
    unreadable = [problem_in_text(text, place) for text, place in zip(texts, places, strict=True)]
    readable = ["" if problem else text for text, problem in zip(texts, unreadable, strict=True)]
    encoded = encode_spelled(tokenizer, readable, letters)
    unread = [
        _problem_in_tokens(tokenizer, *one, longest, unknown=unknown)
        for one in zip(texts, encoded, places, strict=True)
    ]
    refuse([first or second for first, second in zip(unreadable, unread, strict=True)])
    return encoded


def encode_target(tokenizer: Tokenizer, target: str | Sequence[str]) -> list[int]:
    """Token ids of a text with its `</s>`, or of exact tokens as they are."""
    if isinstance(target, str):
        [text] = encode_inputs(tokenizer, [target], ["target"], longest=None)
        ids = [*text, tokenizer.end]
    else:
        try:
            ids = tokenizer.token_ids(target)
        except DecodeError as error:
            hint = "tokens are spelt as 'predict --json' shows them"
            raise DecodeError(error.problems[0].what, where="target", hint=hint) from None
    if not ids:
        raise DecodeError("there are no tokens", where="target", hint='give at least one, "</s>" for one')
    refuse([_too_long(ids, "target")])
    return ids


def refuse(found: Sequence[Problem | None]) -> None:
    """One error for all problems that were found."""
    problems = [problem for problem in found if problem]
    if problems:
        raise DecodeError(problems=first_of(problems))


def refuse_longer(rows: Sequence[Sequence[int]], longest: int, places: Sequence[str]) -> None:
    """Refuse texts that have more tokens than the model has positions for."""
    problems = [
        Problem(
            place, f"the text has {len(row):,} tokens with the special ones", f"the model reads at most {longest:,}"
        )
        for row, place in zip(rows, places, strict=True)
        if len(row) > longest
    ]
    if problems:
        raise DecodeError(problems=first_of(problems))


def problem_in_text(text: str, place: str) -> Problem | None:
    """Why a text cannot be read, whatever the vocabulary."""
    if not text.strip():
        return Problem(place, "the text is empty", "give at least one word")
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        return Problem(place, "the text is not valid UTF-8", "convert it, for example with iconv")
    return None


def _too_long(ids: Sequence[int], place: str) -> Problem | None:
    if len(ids) <= LONGEST:
        return None
    return Problem(place, f"the text has {len(ids):,} tokens", f"at most {LONGEST:,}: split it into sentences")


def _problem_in_tokens(
    tokenizer: Tokenizer, text: str, ids: list[int], place: str, longest: int | None, *, unknown: bool
) -> Problem | None:
    if not (ids and unknown) and is_foreign(tokenizer, ids):
        return nothing_known(text, place)
    return None if longest is None else _too_long(ids, place)


def is_foreign(tokenizer: Tokenizer, ids: Sequence[int]) -> bool:
    """Whether nothing of a text is known, not even the letters of its words."""
    return tokenizer.all_unknown(ids) and not any(unknown_in(ids))


def nothing_known(text: str, place: str) -> Problem:
    """What is said of such a text."""
    what = f"the tokenizer knows nothing in {text.strip()[:20]!r}"
    return Problem(place, what, "it was trained on other words or script")


def positions_of(source: Encoded) -> int:
    """The positions that a source takes up in a model: its tokens with `</s>`, or the regions of an image."""
    return len(source) if isinstance(source, Picture) else len(source) + 1


def sources_of(encoded: Sequence[Encoded], tokenizers: Tokenizers) -> Tokens:
    """Sources as one padded batch, texts with their `</s>`."""
    pictures = [one for one in encoded if isinstance(one, Picture)]
    if pictures:
        return images_of(pictures)
    source = tokenizers["source"]
    return padded([[*ids, source.end] for ids in encoded if not isinstance(ids, Picture)], source.pad)


def padded(rows: Sequence[Sequence[int]], pad: int) -> Tokens:
    """Rows of ids as one padded batch."""
    lengths_B = torch.tensor([len(row) for row in rows])
    ids_BL = torch.full((len(rows), int(lengths_B.max())), pad)
    for number, row in enumerate(rows):
        ids_BL[number, : len(row)] = torch.tensor(row)
    return Tokens.of(ids_BL, lengths_B, Spelling.of_rows(rows))


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Row numbers in batches of about equal length, longest first, at most `batch_tokens` padded tokens each."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
