"""Vocabularies: trained from text, or read from another tool's tokenizer.json or SentencePiece
model.

A trained vocabulary is a pipeline of the `tokenizers` library. Text is brought to NFC (composed
Korean syllables) and, if configured, to lower case. A space becomes the mark `▁`, and one mark is
put before the text, so that the pieces of a text, joined, are the text: `▁a` begins a word, `a`
continues one or follows punctuation. For a text with a `▁` of its own the two are swapped: such a
`▁` is stored as a space. Vocabularies of characters and of jamo have no mark before the text, a byte
vocabulary has no marks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from regard.errors import ConfigError, DataError
from regard.text.byte_tokens import BYTES
from regard.text.morphemes import CUT, cut_texts
from regard.text.unigram import train_unigram

JAMO = tuple(
    chr(code)
    for first, count in ((0x1100, 19), (0x1161, 21), (0x11A8, 27))
    for code in range(first, first + count)
)
"""The letters of Korean syllables: first consonants, vowels and last consonants."""
# ids of the special tokens in every vocabulary that is trained here
PAD, UNK, BEGIN, END = (0, 1, 2, 3)
SPECIAL_NAMES = ("<pad>", "<unk>", "<s>", "</s>")  # the special tokens, in the order of their ids
MASKING_NAMES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""The special tokens of BERT, in the same order, and the mask token."""
MARK = "▁"
PUNCTUATION = """.,;:?!…。．，、；：？！"“”"""
"""Signs that may follow a word of a story without belonging to it, in ASCII and in East Asian
width."""
# share of the text whose characters a small vocabulary must have (SentencePiece's default)
CHARACTER_COVERAGE = 0.9995

_ASIDE = "\u2000"
"""Placeholder while space and mark are swapped. NFC turns it into U+2002, so no composed text holds
it."""
# No word has more than 64 characters, so the time for one endless line is linear in its length.
# Letters and punctuation never share a word, so no piece of text is spelt like a special token.
_LETTERS_AND_DIGITS = rf"{MARK}?[\p{{L}}\p{{M}}]{{1,64}}|{MARK}?\p{{N}}{{1,64}}"
_SUBWORDS = rf"{_LETTERS_AND_DIGITS}|{MARK}?[^\s\p{{L}}\p{{M}}\p{{N}}{MARK}]{{1,64}}|[\s{MARK}]"
_WORDS = rf"{_LETTERS_AND_DIGITS}|{MARK}?[^\s{MARK}]|[\s{MARK}]"
_SPLITS = {
    "word": _WORDS,
    "morpheme": _WORDS,
    "spaces": rf"{MARK}?[^\s{MARK}]+|[\s{MARK}]",
}
"""The words of a vocabulary of words; subwords never cross the words of _SUBWORDS."""


def train_vocabulary(
    kind: str, size: int, lowercase: bool, texts: Iterable[str], special: Sequence[str]
) -> Tokenizer:
    """Learn at most `size` tokens (`byte`: always 256 and the special ones) from texts that can be
    iterated twice.

    `kind` is one of TokenizerConfig, or `spaces`: words split at spaces only, where `<unk>` is the
    unknown token. The special tokens come first: padding, unknown, begin, end, whatever their
    names.
    """
    unknown = special[UNK]
    room = size - len(special)
    pipeline = _pipeline(kind, lowercase, unknown)
    characters: Counter[str] = Counter()
    for text in texts:
        characters.update(pipeline.normalizer.normalize_str(text))
    if not characters:
        raise DataError("there is no text to train a tokenizer on")
    if kind == "byte":
        pipeline.model = models.BPE(_numbered(special, BYTES), [])
    elif kind in ("character", "jamo"):
        # all of them, unless they would fill more than half the vocabulary
        always = JAMO if kind == "jamo" and 2 * len(JAMO) <= room else ()
        ranked = [*always, *(one for one in _ranked(characters) if one not in always)]
        pipeline.model = models.BPE(_numbered(special, ranked[:room]), [], unk_token=unknown)
    elif kind in ("word", "spaces", "morpheme"):
        # The mark alone, which represents the second of two spaces, may be missing from the
        # training text.
        reserved = {MARK, MARK + unknown}
        read = cut_texts(texts) if kind == "morpheme" else texts
        words = [
            MARK,
            *(word for word in _ranked(_count_words(pipeline, read)) if word not in reserved),
        ]
        pipeline.model = models.WordLevel(_numbered(special, words[:room]), unk_token=unknown)
    elif kind == "unigram":
        alphabet = _alphabet(characters, size, len(special))
        scores = train_unigram(_count_words(pipeline, texts), frozenset(alphabet), room)
        pipeline.model = models.Unigram(
            [*((token, 0.0) for token in special), *scores.items()], UNK
        )
    else:
        alphabet = _alphabet(characters, size, len(special))
        # A pair of pieces must occur twice to become a token.
        options: dict[str, Any] = {
            "vocab_size": size,
            "special_tokens": list(special),
            "min_frequency": 2,
        }
        options |= {
            "initial_alphabet": alphabet,
            "limit_alphabet": len(alphabet),
            "show_progress": False,
        }
        if kind == "bpe":
            pipeline.model = models.BPE(unk_token=unknown)
            pipeline.train_from_iterator(texts, trainers.BpeTrainer(**options))
        else:
            # Without "##" a piece reads the same inside a word and at its start, and decoding has
            # nothing to strip.
            pipeline.model = models.WordPiece(unk_token=unknown, continuing_subword_prefix="")
            pipeline.train_from_iterator(
                texts, trainers.WordPieceTrainer(continuing_subword_prefix="", **options)
            )
    return with_special(pipeline, special)


def train_story_words(texts: Iterable[str], size: int, lowercase: bool) -> Tokenizer:
    """The words of stories, questions and answers, without marks. Punctuation at the end of a word
    is dropped; a comma between two words without a space stays."""
    pipeline = Tokenizer(models.WordLevel(_numbered(SPECIAL_NAMES, ()), SPECIAL_NAMES[UNK]))
    case = [normalizers.Lowercase()] if lowercase else []
    punctuation = normalizers.Replace(Regex(rf"[{PUNCTUATION}]+(\s|$)"), " ")
    pipeline.normalizer = normalizers.Sequence([normalizers.NFC(), *case, punctuation])
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    counts: Counter[str] = Counter()
    for text, times in Counter(texts).items():  # stories share most of their sentences
        for word in _split(pipeline, text):
            counts[word] += times
    words = _ranked(counts)[: size - len(SPECIAL_NAMES)]
    pipeline.model = models.WordLevel(
        _numbered(SPECIAL_NAMES, (word for word in words if word not in SPECIAL_NAMES)),
        SPECIAL_NAMES[UNK],
    )
    return with_special(pipeline, SPECIAL_NAMES)


def with_special(pipeline: Tokenizer, special: Sequence[str]) -> Tokenizer:
    pipeline.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special]
    )
    return pipeline


def _pipeline(kind: str, lowercase: bool, unknown: str) -> Tokenizer:
    """Normaliser, splitter and decoder; the model follows."""
    pipeline = Tokenizer(models.BPE())
    # NFC again: there is a composed small j with caron, but no capital one.
    case = [normalizers.Lowercase(), normalizers.NFC()] if lowercase else []
    if kind == "byte":
        pipeline.normalizer = normalizers.Sequence([normalizers.NFC(), *case])
        pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        pipeline.decoder = decoders.ByteLevel()
        return pipeline
    by_character = kind in ("character", "jamo")
    letters = [normalizers.NFD()] if kind == "jamo" else []
    prepend, strip = (
        ([], []) if by_character else ([normalizers.Prepend(MARK)], [decoders.Strip(MARK, 1, 0)])
    )
    swap = _swap_mark_and_space(normalizers.Replace)
    steps = [normalizers.NFC(), *case, *letters, *swap, *prepend]
    pipeline.normalizer = normalizers.Sequence(steps)
    if not by_character:
        words = pre_tokenizers.Split(Regex(_SPLITS.get(kind, _SUBWORDS)), "isolated")
        cuts = pre_tokenizers.Split(CUT, "removed")
        pipeline.pre_tokenizer = (
            pre_tokenizers.Sequence([cuts, words]) if kind == "morpheme" else words
        )
    pipeline.decoder = decoders.Sequence(
        [decoders.Fuse(), *strip, *_swap_mark_and_space(decoders.Replace)]
    )
    if kind == "spaces":  # an unknown word is decoded as the text `<unk>`
        named = decoders.Replace(Regex(f"^{re.escape(unknown)}$"), MARK + unknown)
        pipeline.decoder = decoders.Sequence([named, pipeline.decoder])
    return pipeline


def _swap_mark_and_space(replace: Any) -> list[Any]:
    """Applied again, the three steps swap them back."""
    return [replace(MARK, _ASIDE), replace(" ", MARK), replace(_ASIDE, " ")]


def _numbered(special: Iterable[str], tokens: Iterable[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate([*special, *tokens])}


def _count_words(pipeline: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    words: Counter[str] = Counter()
    for text in texts:
        words.update(_split(pipeline, text))
    return words


def _split(pipeline: Tokenizer, text: str) -> list[str]:
    return [
        word
        for word, _ in pipeline.pre_tokenizer.pre_tokenize_str(
            pipeline.normalizer.normalize_str(text)
        )
    ]


def _ranked(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda token: (-counts[token], token))


def common_characters(characters: Counter[str]) -> list[str]:
    """The most frequent characters, as many as CHARACTER_COVERAGE needs."""
    ranked = _ranked(characters)
    needed = CHARACTER_COVERAGE * characters.total()
    covered = accumulate((characters[character] for character in ranked), initial=0)
    return [
        character for character, before in zip(ranked, covered, strict=False) if before < needed
    ]


def _alphabet(characters: Counter[str], size: int, special: int) -> list[str]:
    """All characters; or, if those would fill more than half the vocabulary, the ones that CHARACTER_COVERAGE
    needs."""
    ranked = _ranked(characters) if len(characters) <= size // 2 else common_characters(characters)
    least = len(ranked) + special
    if least > size:
        what = (
            f"the text has {len(ranked)} characters that are not rare, {size} tokens cannot "
            "hold them"
        )
        hint = f"at least {least}, better twice that, or kind: byte"
        raise ConfigError(what, where="tokenizer.vocabulary", hint=hint)
    return ranked
