"""Training text -> a vocabulary of each kind, as a pipeline of the `tokenizers` library.

Text is brought to NFC (composed Korean syllables; nothing is folded away) and, when asked, to lower case. A space
becomes the mark `▁` and one mark is put before the text, so that the pieces of a text, written one after the other, are
the text: `▁a` begins a word, `a` goes on with one or follows a sign. To keep that exact for a text that has a `▁` of
its own, the two change places: such a `▁` is stored as a space. A character vocabulary has no mark in front, a byte
vocabulary none at all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from regard.errors import ConfigError, DataError
from regard.text.unigram import train_unigram

PAD, UNK, BEGIN, END = 0, 1, 2, 3
"""Ids of the special tokens in every vocabulary that is trained here."""
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
"""The special tokens, in the order of their ids."""
MASKING = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""The same under the names that BERT gives them, and what stands for a masked token."""
MARK = "▁"
CONTINUED = "‿"
"""Shown for a token that holds only the rest of a character."""
COVERAGE = 0.9995
"""The part of the text whose characters a crowded vocabulary must have (SentencePiece's default)."""

_ASIDE = "\u2000"
"""Where one sign waits while two change places. NFC turns it into U+2002, so no text that comes here holds it."""
# No word has more than 64 signs, so that one endless line costs time in proportion to its length. Letters and other
# signs never share a word, so that no piece of text is spelt like a special token.
_LETTERS_AND_DIGITS = rf"{MARK}?[\p{{L}}\p{{M}}]{{1,64}}|{MARK}?\p{{N}}{{1,64}}"
_WORDS = rf"{_LETTERS_AND_DIGITS}|{MARK}?[^\s\p{{L}}\p{{M}}\p{{N}}{MARK}]{{1,64}}|[\s{MARK}]"
_WORDS_AND_SIGNS = rf"{_LETTERS_AND_DIGITS}|{MARK}?[^\s{MARK}]|[\s{MARK}]"
_BETWEEN_SPACES = rf"{MARK}?[^\s{MARK}]+|[\s{MARK}]"


def train_vocabulary(
    kind: str,
    size: int,
    lowercase: bool,
    texts: Iterable[str],
    special: Sequence[str] = SPECIAL,
    *,
    at_spaces: bool = False,
) -> Tokenizer:
    """Learn at most `size` tokens (for `byte` always 256 and the special ones) from texts that can be read twice.

    The special tokens come first: what pads, what is unknown, what begins and what ends, whatever their names. With
    `at_spaces` a word is all that stands between two spaces, and one that is spelt `<unk>` is the unknown token.
    """
    if at_spaces:
        pipeline = _spaced_pipeline(lowercase, special[UNK])
    else:
        pipeline = _byte_pipeline(lowercase) if kind == "byte" else _marked_pipeline(kind, lowercase)
    characters = _count_characters(pipeline, texts)
    if kind == "byte":
        pipeline.model = models.BPE(_vocabulary(special, BYTES), [])
    elif kind == "character":
        kept = _ranked(characters)[: size - len(special)]
        pipeline.model = models.BPE(_vocabulary(special, kept), [], unk_token=special[UNK])
    elif kind == "word":
        # The mark alone, which stands for the second of two spaces, may well not be in the training text.
        apart = {MARK, MARK + special[UNK]}
        words = [MARK, *(word for word in _ranked(_count_words(pipeline, texts)) if word not in apart)]
        kept = words[: size - len(special)]
        pipeline.model = models.WordLevel(_vocabulary(special, kept), unk_token=special[UNK])
    else:
        _learn_pieces(pipeline, kind, size, _alphabet(characters, size, len(special)), texts, special)
    pipeline.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return pipeline


def _learn_pieces(
    pipeline: Tokenizer, kind: str, size: int, alphabet: list[str], texts: Iterable[str], special: Sequence[str]
) -> None:
    """Pieces of words. A pair of pieces that stands only once is not worth a token."""
    if kind == "unigram":
        scores = train_unigram(_count_words(pipeline, texts), frozenset(alphabet), size - len(special))
        pipeline.model = models.Unigram([*((token, 0.0) for token in special), *scores.items()], UNK)
        return
    common: dict[str, Any] = {"vocab_size": size, "special_tokens": list(special), "min_frequency": 2}
    common |= {"initial_alphabet": alphabet, "limit_alphabet": len(alphabet), "show_progress": False}
    if kind == "bpe":
        pipeline.model = models.BPE(unk_token=special[UNK])
        pipeline.train_from_iterator(texts, trainers.BpeTrainer(**common))
    else:
        # Without "##" a piece reads the same inside a word and at its start, and nothing has to be stripped to decode.
        pipeline.model = models.WordPiece(unk_token=special[UNK], continuing_subword_prefix="")
        pipeline.train_from_iterator(texts, trainers.WordPieceTrainer(continuing_subword_prefix="", **common))


def _marked_pipeline(kind: str, lowercase: bool) -> Tokenizer:
    """Normaliser, splitter and decoder of all kinds but `byte`."""
    pipeline = Tokenizer(models.BPE())
    prepend, strip = [normalizers.Prepend(MARK)], [decoders.Strip(MARK, 1, 0)]
    if kind == "character":
        prepend, strip = [], []
    else:
        words = _WORDS_AND_SIGNS if kind == "word" else _WORDS
        pipeline.pre_tokenizer = pre_tokenizers.Split(Regex(words), "isolated")
    pipeline.normalizer = normalizers.Sequence([*_case(lowercase), *_change_places(normalizers.Replace), *prepend])
    pipeline.decoder = decoders.Sequence([decoders.Fuse(), *strip, *_change_places(decoders.Replace)])
    return pipeline


def _spaced_pipeline(lowercase: bool, unknown: str) -> Tokenizer:
    """The same for words between spaces, where an unknown word is written as the text itself would write it."""
    pipeline = _marked_pipeline("word", lowercase)
    pipeline.pre_tokenizer = pre_tokenizers.Split(Regex(_BETWEEN_SPACES), "isolated")
    named = decoders.Replace(Regex(f"^{re.escape(unknown)}$"), MARK + unknown)
    pipeline.decoder = decoders.Sequence([named, pipeline.decoder])
    return pipeline


def _byte_pipeline(lowercase: bool) -> Tokenizer:
    pipeline = Tokenizer(models.BPE())
    pipeline.normalizer = normalizers.Sequence(_case(lowercase))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pipeline.decoder = decoders.ByteLevel()
    return pipeline


def _case(lowercase: bool) -> list[normalizers.Normalizer]:
    # Lower case can make a pair of signs composable that was not: there is a small j with caron, but no capital one.
    return [normalizers.NFC(), normalizers.Lowercase(), normalizers.NFC()] if lowercase else [normalizers.NFC()]


def _change_places(replace: Any) -> list[Any]:
    """Space and mark change places; the same three steps lead there and back."""
    return [replace(MARK, _ASIDE), replace(" ", MARK), replace(_ASIDE, " ")]


def _vocabulary(special: Iterable[str], tokens: Iterable[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate([*special, *tokens])}


def _count_characters(pipeline: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    characters: Counter[str] = Counter()
    for text in texts:
        characters.update(pipeline.normalizer.normalize_str(text))
    if not characters:
        raise DataError("there is no text to train a tokenizer on")
    return characters


def _count_words(pipeline: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    words: Counter[str] = Counter()
    for text in texts:
        split = pipeline.pre_tokenizer.pre_tokenize_str(pipeline.normalizer.normalize_str(text))
        words.update(word for word, _ in split)
    return words


def _ranked(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda token: (-counts[token], token))


def _alphabet(characters: Counter[str], size: int, special: int) -> list[str]:
    """All characters, or those that COVERAGE of the text needs where all would take more than half the vocabulary."""
    ranked = _ranked(characters)
    if len(ranked) > size // 2:
        needed, total, covered = 0, characters.total(), 0
        while covered < COVERAGE * total:
            covered += characters[ranked[needed]]
            needed += 1
        ranked = ranked[:needed]
    least = len(ranked) + special
    if least > size:
        what = f"the text has {len(ranked)} characters that are not rare, {size} tokens cannot hold them"
        raise ConfigError(
            what, where="tokenizer.vocabulary", hint=f"at least {least}, better twice that, or kind: byte"
        )
    return ranked


def _bytes() -> list[str]:
    """The sign that stands for each byte in a byte vocabulary: GPT-2's table, as the library has it.

    Printable Latin-1 stands for itself; the others take the signs from U+0100 on, in order.
    """
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


BYTES = _bytes()
_BYTE_OF = {sign: byte for byte, sign in enumerate(BYTES)}


def bytes_of(token: str) -> bytes:
    """What a token of a byte vocabulary stands for."""
    return b"".join(bytes([_BYTE_OF[sign]]) if sign in _BYTE_OF else sign.encode() for sign in token)


def characters_of_bytes(tokens: Sequence[str], special: Sequence[bool]) -> list[str]:
    """The characters that begin in each token of a byte vocabulary."""
    pieces = [token if apart else "" for token, apart in zip(tokens, special, strict=True)]
    owners: list[int] = []
    data = bytearray()
    for position, token in enumerate(tokens):
        if not special[position]:
            held = bytes_of(token)
            data += held
            owners += [position] * len(held)
    start = 0
    for character in data.decode("utf-8", "surrogateescape"):  # a byte that is not UTF-8 becomes one half surrogate
        pieces[owners[start]] += "\ufffd" if "\ud800" <= character <= "\udfff" else character
        start += len(character.encode("utf-8", "surrogateescape"))
    return [piece or CONTINUED for piece in pieces]
