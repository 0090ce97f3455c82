"""Texts that a user gives -> tokens, and batches of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from regard.data.batches import Padded, Spelling
from regard.data.config import Recipe
from regard.data.example import Example
from regard.engine.machine import token_budgets
from regard.errors import DecodeError, InputError, Problem, RegardError
from regard.models.base import ModelConfig, device_of
from regard.search.stopping import stop_if_given_up
from regard.tasks.answers import Note, readable
from regard.text.languages import language_token
from regard.text.spelling import Token, ids_of, unknown_in
from regard.text.tokenizers import Tokenizer, Tokenizers

READ_TOKENS = 8_192
"""Padded tokens that are read at once."""
CPU_READ_TOKENS = 1_024
"""Padded tokens that a model on a CPU reads at once for predictions: the fewer, the less padding and
the more in the CPU's caches."""
LONGEST = 2048
"""The longest input in tokens: beyond it a line break is missing rather than a sentence long."""
MAX_NAMED_WORDS = 3
"""Unknown words that a note names."""
MAX_WORD_CHARACTERS = 20
"""Characters of each that it shows."""
T = TypeVar("T", bound=Sequence[Token])
Ids = list[int] | RegardError
"""The tokens of an input, or why it cannot be read."""


IMAGE_NAME = re.compile(r"\S+\.(png|jpe?g|gif|bmp|webp|tiff?)", re.IGNORECASE)


def image_notes(inputs: Sequence[Example]) -> list[Note]:
    """Notes on inputs that are names of images, for a model that reads texts."""
    return [
        Note(
            "image",
            f"{given.place}: {given.text!r} is the name of an image, and this run reads it as a "
            "text",
        )
        for given in inputs
        if "." in given.text and IMAGE_NAME.fullmatch(given.text.strip())
    ]


# From texts to tokens


def encode_each(tokenizer: Tokenizer, inputs: Sequence[Example], limited: bool = True) -> list[Ids]:
    """Token ids of each text, or why it cannot be read: it may be too long if that is `limited`."""
    return _encode_readable(tokenizer, inputs, tokenizer.encode_batch, limited)


def encode_each_spelled(
    tokenizer: Tokenizer, inputs: Sequence[Example], letters: int | None
) -> list[list[Token] | RegardError]:
    """Tokens of each text, or why it cannot be read. Unknown words keep so many of their letters,
    for a model that reads them."""
    encode = partial(tokenizer.encode_spelled, letters=letters)
    return _encode_readable(tokenizer, inputs, encode, limited=True)


def _encode_readable(
    tokenizer: Tokenizer,
    inputs: Sequence[Example],
    encode: Callable[[Sequence[str]], list[T]],
    limited: bool,
) -> list[T | RegardError]:
    problems = [problem_in(given) for given in inputs]
    plain = ["" if problem else given.text for given, problem in zip(inputs, problems, strict=True)]
    encoded = encode(plain)
    for row, ids in enumerate(encoded):
        if problems[row] is None and is_foreign(tokenizer, ids):
            problems[row] = nothing_known(inputs[row].text, inputs[row].place)
        elif problems[row] is None and limited:
            problems[row] = _too_long(ids, inputs[row].place)
    return [
        InputError(problems=[problem]) if problem else ids
        for problem, ids in zip(problems, encoded, strict=True)
    ]


def first_tokens(recipe: Recipe, tokenizers: Tokenizers, column: str) -> list[int]:
    """The tokens before each text of a pair: that of its language, or those that the template of
    its tokenizer has."""
    language = recipe.data.language(column)
    tokenizer = tokenizers[column]
    if language is None:
        return tokenizer.first
    return [language_token(tokenizer, language, f"data.{column}_language")]


def encode_target(
    tokenizer: Tokenizer, target: str | Sequence[str], first: Sequence[int] = ()
) -> list[int]:
    """Token ids of a text with the tokens before it and its `</s>`, or of exact tokens as they
    are."""
    if isinstance(target, str):
        [text] = readable(
            encode_each(tokenizer, [Example.of_text(target, "target")], limited=False)
        )
        ids = [*first, *text, tokenizer.end]
    else:
        try:
            ids = tokenizer.token_ids(target)
        except DecodeError as error:
            hint = "tokens are spelt as 'predict --json' shows them"
            raise DecodeError(error.problems[0].what, where="target", hint=hint) from None
    if not ids:
        raise DecodeError(
            "there are no tokens", where="target", hint='give at least one, "</s>" for one'
        )
    if problem := _too_long(ids, "target"):
        raise DecodeError(problems=[problem])
    return ids


def not_longer(rows: Sequence[Any], longest: int | None, inputs: Sequence[Example]) -> list[Any]:
    """Rows of tokens; those with more tokens than the model has positions are unreadable."""
    checked = list(rows)
    for number, row in enumerate(rows):
        if longest is not None and not isinstance(row, RegardError) and len(row) > longest:
            what = f"the text has {len(row):,} tokens with the special ones"
            hint = f"the model reads at most {longest:,}"
            checked[number] = InputError(what, where=inputs[number].place, hint=hint)
    return checked


def problem_in(given: Example) -> Problem | None:
    """Why an input cannot be read, whatever the vocabulary."""
    return given.fault or problem_in_text(given.text, given.place)


def problem_in_text(text: str, place: str) -> Problem | None:
    if not text.strip():
        return Problem(place, "the text is empty", "give at least one word")
    if not is_unicode(text):
        hint = "save it as UTF-8, or name a file's encoding with data.encoding"
        return Problem(place, "the text has bytes that are not valid in its encoding", hint)
    return None


def is_unicode(text: str) -> bool:
    """Whether a text can be written, which half a surrogate pair cannot: it stands for a byte that
    could not be decoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_long(ids: Sequence[Token], place: str) -> Problem | None:
    if len(ids) <= LONGEST:
        return None
    return Problem(
        place, f"the text has {len(ids):,} tokens", f"at most {LONGEST:,}: split it into sentences"
    )


def is_foreign(tokenizer: Tokenizer, tokens: Sequence[Token]) -> bool:
    """Whether nothing of a text is known, not even the letters of its words."""
    return tokenizer.all_unknown(ids_of(tokens)) and not any(unknown_in(tokens))


def nothing_known(text: str, place: str) -> Problem:
    what = f"every token of {text.strip()[:20]!r} is unknown to the tokenizer"
    return Problem(place, what, "it was trained on other words or script")


def unknown_notes(
    tokenizer: Tokenizer, inputs: Sequence[Example], rows: Sequence[Sequence[int]]
) -> list[Note]:
    """A note for each text with tokens outside the vocabulary; `rows` are the tokens of the
    texts."""
    [symbol] = tokenizer.tokens([tokenizer.unk])
    notes = []
    for given, row in zip(inputs, rows, strict=True):
        if count := row.count(tokenizer.unk):
            tokens = "1 token that is" if count == 1 else f"{count:,} tokens that are"
            words = unknown_words(tokenizer, given.text)
            what = (
                f"{given.place} has {tokens} not in the vocabulary ({named_words(words)}): the model "
                f"reads {symbol} there"
            )
            notes.append(Note("unknown", what, given.place, words))
    return notes


def unknown_words(tokenizer: Tokenizer, text: str) -> tuple[str, ...]:
    """The words with an unknown token, as they were typed, each once."""
    words = [*dict.fromkeys(text.split())]
    rows = tokenizer.encode_batch(words)
    return tuple(word for word, ids in zip(words, rows, strict=True) if tokenizer.unk in ids)


def words_not_known(
    config: ModelConfig, tokenizers: Mapping[str, Tokenizer], source: str, target: str = ""
) -> list[str]:
    """The unknown words of a source and a target, or of a text and its continuation. A model that
    reads letters knows every word, and an image has none."""
    if config.letters is not None:
        return []
    texts = [(target, tokenizers.get("text") or tokenizers.get("target"))]
    if config.reads != "image":
        texts = [(source, tokenizers.get("text") or tokenizers.get("source")), *texts]
    return [*dict.fromkeys(word for text, own in texts if own for word in unknown_words(own, text))]


def named_words(unknown: Sequence[str]) -> str:
    """The first of these unknown words, shortened."""
    limit = MAX_WORD_CHARACTERS
    shown = [repr(word if len(word) <= limit else f"{word[:limit]}...") for word in unknown]
    return ", ".join([*shown[:MAX_NAMED_WORDS], *(["..."] if shown[MAX_NAMED_WORDS:] else [])])


def padded(rows: Sequence[Sequence[Token]], pad: int) -> Padded:
    lengths_B = np.array([len(row) for row in rows])
    ids_BL = np.full((len(rows), lengths_B.max()), pad)
    is_real = np.arange(ids_BL.shape[1]) < lengths_B[:, None]
    ids_BL[is_real] = [*chain.from_iterable(map(ids_of, rows))]
    spelling = Spelling.of_rows(rows)
    return Padded.of(torch.from_numpy(ids_BL), torch.from_numpy(lengths_B), spelling)


def read_tokens(model: nn.Module) -> int:
    """Padded tokens that a model with a head reads at once."""
    device = device_of(model)
    return CPU_READ_TOKENS if device.type == "cpu" else READ_TOKENS * token_budgets(device)


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Row numbers in batches of about equal length, longest first, at most `batch_tokens` padded
    tokens each.

    No further batch comes when the work has been given up.
    """
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_tokens:
            stop_if_given_up()
            yield batch
            batch = []
        batch.append(number)
    if batch:
        stop_if_given_up()
        yield batch
