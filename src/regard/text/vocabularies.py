"""Vocabularies: trained from text, or read from another tool's tokenizer.json or SentencePiece
model.

A trained vocabulary is a pipeline of the `tokenizers` library. Text is brought to NFC (composed
Korean syllables) and, if configured, to lower case. A space becomes the mark `▁`, and one mark is
put before the text, so that the pieces of a text, joined, are the text: `▁a` begins a word, `a`
continues one or follows punctuation. For a text with a `▁` of its own the two are swapped: such a
`▁` is stored as a space. A character vocabulary has no mark before the text, a byte vocabulary has
no marks.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
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

from regard.errors import ConfigError, DataError, import_extra

# ids of the special tokens in every vocabulary that is trained here
PAD, UNK, BEGIN, END = (0, 1, 2, 3)
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # the special tokens, in the order of their ids
MASKING = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""The special tokens of BERT, in the same order, and the mask token."""
MARK = "▁"
CONTINUED = "‿"  # shown for a token that holds only the last bytes of a character
PUNCTUATION = """.,;:?!…。．，、；：？！"“”"""
"""What may end a word of a story and is no part of it, in ASCII and in East Asian width."""
# share of the text whose characters a small vocabulary must have (SentencePiece's default)
COVERAGE = 0.9995

_ASIDE = "\u2000"
"""Placeholder while space and mark are swapped. NFC turns it into U+2002, so no composed text holds
it."""
# No word has more than 64 characters, so the time for one endless line is linear in its length.
# Letters and punctuation never share a word, so no piece of text is spelt like a special token.
_LETTERS_AND_DIGITS = rf"{MARK}?[\p{{L}}\p{{M}}]{{1,64}}|{MARK}?\p{{N}}{{1,64}}"
_SUBWORDS = rf"{_LETTERS_AND_DIGITS}|{MARK}?[^\s\p{{L}}\p{{M}}\p{{N}}{MARK}]{{1,64}}|[\s{MARK}]"
_SPLITS = {
    "word": rf"{_LETTERS_AND_DIGITS}|{MARK}?[^\s{MARK}]|[\s{MARK}]",
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
    elif kind == "character":
        pipeline.model = models.BPE(
            _numbered(special, _ranked(characters)[:room]), [], unk_token=unknown
        )
    elif kind in ("word", "spaces"):
        # The mark alone, which stands for the second of two spaces, may be missing from the
        # training text.
        reserved = {MARK, MARK + unknown}
        words = [
            MARK,
            *(word for word in _ranked(_count_words(pipeline, texts)) if word not in reserved),
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
    return _with_special(pipeline, special)


def train_story_words(texts: Iterable[str], size: int, lowercase: bool) -> Tokenizer:
    """The words of stories, questions and answers, without marks. Punctuation at the end of a word
    is dropped; a comma between two words without a space stays."""
    pipeline = Tokenizer(models.WordLevel(_numbered(SPECIAL, ()), SPECIAL[UNK]))
    case = [normalizers.Lowercase()] if lowercase else []
    punctuation = normalizers.Replace(Regex(rf"[{PUNCTUATION}]+(\s|$)"), " ")
    pipeline.normalizer = normalizers.Sequence([normalizers.NFC(), *case, punctuation])
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    counts: Counter[str] = Counter()
    for text, times in Counter(texts).items():  # stories share most of their sentences
        for word in _split(pipeline, text):
            counts[word] += times
    words = _ranked(counts)[: size - len(SPECIAL)]
    pipeline.model = models.WordLevel(
        _numbered(SPECIAL, (word for word in words if word not in SPECIAL)), SPECIAL[UNK]
    )
    return _with_special(pipeline, SPECIAL)


def _with_special(pipeline: Tokenizer, special: Sequence[str]) -> Tokenizer:
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
    prepend, strip = (
        ([], [])
        if kind == "character"
        else ([normalizers.Prepend(MARK)], [decoders.Strip(MARK, 1, 0)])
    )
    steps = [normalizers.NFC(), *case, *_swap_mark_and_space(normalizers.Replace), *prepend]
    pipeline.normalizer = normalizers.Sequence(steps)
    if kind != "character":
        pipeline.pre_tokenizer = pre_tokenizers.Split(
            Regex(_SPLITS.get(kind, _SUBWORDS)), "isolated"
        )
    pipeline.decoder = decoders.Sequence(
        [decoders.Fuse(), *strip, *_swap_mark_and_space(decoders.Replace)]
    )
    if kind == "spaces":  # an unknown word is decoded as the text `<unk>`
        named = decoders.Replace(Regex(f"^{re.escape(unknown)}$"), MARK + unknown)
        pipeline.decoder = decoders.Sequence([named, pipeline.decoder])
    return pipeline


def _swap_mark_and_space(replace: Any) -> list[Any]:
    """The same three steps also swap them back."""
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
    """The most frequent characters, as many as COVERAGE needs."""
    ranked = _ranked(characters)
    needed = COVERAGE * characters.total()
    covered = accumulate((characters[character] for character in ranked), initial=0)
    return [
        character for character, before in zip(ranked, covered, strict=False) if before < needed
    ]


def _alphabet(characters: Counter[str], size: int, special: int) -> list[str]:
    """All characters; or, if those would fill more than half the vocabulary, the ones that COVERAGE
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


# --------------------------------------------------------------------------------------------------------- unigram
# The library's own trainer iterates over a hash map that is seeded anew in each process, so two runs over one text end
# in different scores; SentencePiece's scores depend on its number of threads. Here segmentation is the library's, the
# rest is integers and sorted lists: the same text always gives the same pieces.

LONGEST_PIECE = 16
MOST_WORDS = 200_000
"""The vocabulary is estimated on this many words, the most frequent ones, to bound time and
memory."""
SEEDS = 10  # candidates at the start, for each piece of the vocabulary
KEPT = 0.75  # share of the pieces that a round of pruning keeps, as in SentencePiece

Scores = dict[str, float]


def train_unigram(words: Mapping[str, int], alphabet: frozenset[str], size: int) -> Scores:
    """At most `size` pieces with their log probabilities, likeliest first; each letter of the
    alphabet is one of them.

    Kudo 2018, arXiv:1804.10959, section 3.2: start from the frequent substrings; alternate between
    estimating p(x) by EM and dropping the pieces whose loss lowers the likelihood of the text
    least. EM counts only the best segmentation x*:
        p(x)    = count(x) / sum_y count(y)
        loss(x) = count(x) (log p(x) - log p(the best way to write x with other pieces))
    """
    counted = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    known = {word: count for word, count in counted[:MOST_WORDS] if alphabet.issuperset(word)}
    scores = _seeds(known, alphabet, SEEDS * size)
    while True:
        counts = _count_pieces(known, scores)
        counts = _count_pieces(known, _estimate(counts, alphabet))
        scores = _estimate(counts, alphabet)
        if len(scores) <= size:
            return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))
        scores = _prune(counts, scores, alphabet, max(size, int(KEPT * len(scores))))


def _seeds(words: Mapping[str, int], alphabet: frozenset[str], most: int) -> Scores:
    """The alphabet, and the substrings that occur more than once, those that cover most text
    first."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 1, min(len(word), start + LONGEST_PIECE) + 1):
                counts[word[start:end]] += count
    longer = [piece for piece, count in counts.items() if count > 1 and len(piece) > 1]
    longer.sort(key=lambda piece: (-counts[piece] * len(piece), piece))
    return _estimate(
        {piece: counts[piece] for piece in [*sorted(alphabet), *longer[:most]]}, alphabet
    )


def _count_pieces(words: Mapping[str, int], scores: Scores) -> dict[str, int]:
    """How often each piece occurs in the best segmentations of the words."""
    pieces = list(scores)
    model = Tokenizer(models.Unigram(list(scores.items()), unk_id=None))
    rows = [encoding.ids for encoding in model.encode_batch_fast(list(words))]
    weights = np.repeat(list(words.values()), [len(row) for row in rows])
    # Sums of integers below 2^53 are exact in any order.
    times = np.bincount(
        np.fromiter(chain.from_iterable(rows), np.int64), weights, len(pieces)
    ).astype(np.int64)
    return dict(zip(pieces, times.tolist(), strict=True))


def _estimate(counts: Mapping[str, int], alphabet: frozenset[str]) -> Scores:
    """Log probabilities. Unused pieces are dropped; an unused letter counts one half."""
    used = {piece: max(count, 0.5) for piece, count in counts.items() if count or piece in alphabet}
    total = sum(used.values())
    return {piece: round(math.log(count / total), 6) for piece, count in used.items()}


def _prune(
    counts: Mapping[str, int], scores: Scores, alphabet: frozenset[str], size: int
) -> Scores:
    """The alphabet, and of the other pieces those with the largest loss."""
    longer = [piece for piece in scores if piece not in alphabet]
    loss = {
        piece: counts[piece] * (scores[piece] - _score_without(piece, scores)) for piece in longer
    }
    kept = sorted(loss, key=lambda piece: (-loss[piece], piece))[: max(0, size - len(alphabet))]
    return {piece: scores[piece] for piece in [*sorted(alphabet), *kept]}


def _score_without(piece: str, scores: Scores) -> float:
    """The log probability of the best way to write a piece with others (Viterbi)."""
    best = [0.0] + [-math.inf] * len(piece)
    for end in range(1, len(piece) + 1):
        for start in range(end):
            if end - start < len(piece) and (score := scores.get(piece[start:end])) is not None:
                best[end] = max(best[end], best[start] + score)
    return best[-1]


# ----------------------------------------------------------------------------------------------------------- bytes


_PLAIN, _OTHERS = (
    {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)},
    iter(range(0x100, 0x200)),
)
BYTES = [chr(byte if byte in _PLAIN else next(_OTHERS)) for byte in range(256)]
"""The character that stands for each byte in a byte vocabulary: GPT-2's table, as in the library.
Printable Latin-1 stands for itself; the other bytes take the characters from U+0100 on, in
order."""
_BYTE_OF = {character: byte for byte, character in enumerate(BYTES)}


def bytes_of(token: str) -> bytes:
    return b"".join(
        bytes([_BYTE_OF[sign]]) if sign in _BYTE_OF else sign.encode() for sign in token
    )


def characters_of_bytes(tokens: Sequence[str], special: Sequence[bool]) -> list[str]:
    """The characters that begin in each token of a byte vocabulary."""
    pieces = [
        token if is_special else "" for token, is_special in zip(tokens, special, strict=True)
    ]
    owners: list[int] = []
    data = bytearray()
    for position, token in enumerate(tokens):
        if not special[position]:
            token_bytes = bytes_of(token)
            data += token_bytes
            owners += [position] * len(token_bytes)
    start = 0
    # a byte that is not UTF-8 becomes one half surrogate
    for character in data.decode("utf-8", "surrogateescape"):
        pieces[owners[start]] += "\ufffd" if "\ud800" <= character <= "\udfff" else character
        start += len(character.encode("utf-8", "surrogateescape"))
    return [piece or CONTINUED for piece in pieces]


# --------------------------------------------------------------------------------------------------- SentencePiece
# Kudo & Richardson 2018, arXiv:1808.06226. A model file is a protocol buffer: pieces with scores, and the rules of
# normalisation. A BPE model has no list of merges: any two neighbours whose union is a piece may merge, the piece with
# the best score first.

# types of pieces other than normal ones (ModelProto.SentencePiece.Type)
_UNKNOWN, _CONTROL, _USER_DEFINED = (2, 3, 4)
_UNIGRAM, _BPE, _CHARACTERS = 1, 2, 4
"""Types of models that can be converted (TrainerSpec.ModelType); 3 is a model of whole words."""
# the score of a piece of the other model: below that of any segmentation into the model's own
# pieces
_NEVER = -1e5
_UNSEEN = "\uf8ff"  # a private-use character that replaces those that the model does not know


def convert_sentencepiece(
    data: bytes, where: str, ids: Mapping[str, int] | None = None
) -> Tokenizer:
    """The tokenizer in a SentencePiece model file, with the same ids; `where` names it in messages.

    `ids` is a vocabulary shared by two models, such as the two sides of a Marian model: the
    tokenizer then has all of its pieces, but splits text only into the model's own.
    """
    proto = _sentencepiece_proto(data, where)
    user_defined = [piece.piece for piece in proto.pieces if piece.type == _USER_DEFINED]
    tokenizer = Tokenizer(_sentencepiece_model(proto, user_defined, ids))
    spec = proto.normalizer_spec
    steps = list[normalizers.Normalizer]()
    if spec.precompiled_charsmap:
        # The library looks the table up by grapheme, so it would miss decomposed Korean: compose it
        # first.
        steps += [normalizers.NFC(), normalizers.Precompiled(spec.precompiled_charsmap)]
    if spec.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex("^ | $"), "")]
    steps += [normalizers.Prepend(" ")] if spec.add_dummy_prefix else []
    steps.append(normalizers.Replace(" ", MARK))
    # replace characters that no piece of this model has, or pieces of the other would match them
    if ids is not None:
        known = sorted({character for piece in proto.pieces for character in piece.piece} | {MARK})
        signs = "".join(f"\\x{{{ord(character):x}}}" for character in known)
        steps.append(normalizers.Replace(Regex(f"[^{signs}]"), _UNSEEN))
    tokenizer.normalizer = normalizers.Sequence(steps)
    splits = list[pre_tokenizers.PreTokenizer]()
    trainer = proto.trainer_spec
    if trainer.byte_fallback and trainer.model_type == _UNIGRAM:
        # text that is spelt like the piece of a byte, <0x41>, is not that byte: it is split after
        # its first sign
        splits.append(pre_tokenizers.Split(Regex("<(?=0x[0-9A-F]{2}>)"), "merged_with_previous"))
    if user_defined:  # they are never split, the longest first
        pattern = "|".join(
            re.escape(piece) for piece in sorted(user_defined, key=len, reverse=True)
        )
        splits.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
    if splits:
        tokenizer.pre_tokenizer = splits[0] if len(splits) == 1 else pre_tokenizers.Sequence(splits)
    strip = [decoders.Strip(" ", 1, 0)] if spec.add_dummy_prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    special = [piece.piece for piece in proto.pieces if piece.type in (_CONTROL, _UNKNOWN)]
    return _with_special(tokenizer, [piece for piece in special if ids is None or piece in ids])


def _sentencepiece_proto(data: bytes, where: str) -> Any:
    """The content of a model file, or a DataError if it cannot be converted."""
    import_extra("google.protobuf", extra="formats", where=where)
    proto = import_extra(
        "sentencepiece.sentencepiece_model_pb2", extra="formats", where=where
    ).ModelProto()
    expected = "expected is a .model file of SentencePiece"
    try:
        proto.ParseFromString(data)
    except (
        Exception
    ) as error:  # DecodeError, of whichever implementation of protocol buffers is in use
        raise DataError(
            f"cannot be read as a SentencePiece model: {error}", where=where, hint=expected
        ) from None
    if not any(piece.type == _UNKNOWN for piece in proto.pieces):
        raise DataError(
            "cannot be read as a SentencePiece model: no piece is <unk>", where=where, hint=expected
        )
    trainer = proto.trainer_spec
    if (
        trainer.model_type not in (_UNIGRAM, _BPE, _CHARACTERS)
        or trainer.treat_whitespace_as_suffix
    ):
        what = (
            "a SentencePiece model of whole words, or with the space after a word, cannot "
            "be converted"
        )
        raise DataError(what, where=where, hint="train one with --model_type=unigram, bpe or char")
    return proto


def _sentencepiece_model(
    proto: Any, user_defined: Sequence[str], ids: Mapping[str, int] | None
) -> models.Model:
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    if ids is not None:
        scores = dict(pieces)
        pieces = [(piece, scores.get(piece, _NEVER)) for piece in sorted(ids, key=ids.__getitem__)]
    named = next(piece.piece for piece in proto.pieces if piece.type == _UNKNOWN)
    numbers = {piece: number for number, (piece, _) in enumerate(pieces)}
    fallback = proto.trainer_spec.byte_fallback
    if proto.trainer_spec.model_type == _UNIGRAM:
        return models.Unigram(
            pieces, unk_id=[piece for piece, _ in pieces].index(named), byte_fallback=fallback
        )
    merges = _sentencepiece_merges(proto) if proto.trainer_spec.model_type == _BPE else []
    # ignore_merges: a word that is a piece is not split
    return models.BPE(
        numbers,
        merges,
        unk_token=named,
        fuse_unk=True,
        byte_fallback=fallback,
        ignore_merges=bool(user_defined),
    )


def _sentencepiece_merges(proto: Any) -> list[tuple[str, str]]:
    """All pairs of pieces whose concatenation is a piece, best score first."""
    other = (_UNKNOWN, _CONTROL, _USER_DEFINED)
    normal = {piece.piece: piece.score for piece in proto.pieces if piece.type not in other}
    merges = [
        (-score, len(piece), cut, (piece[:cut], piece[cut:]))
        for piece, score in normal.items()
        for cut in range(1, len(piece))
        if piece[:cut] in normal and piece[cut:] in normal
    ]
    return [pair for *_, pair in sorted(merges)]
