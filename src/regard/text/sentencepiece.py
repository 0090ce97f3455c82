"""Convert a SentencePiece model file into a tokenizer of the `tokenizers` library.

Kudo & Richardson 2018, arXiv:1808.06226. A model file is a protocol buffer: pieces with scores, and
rules of normalisation. A BPE model has no list of merges: any two neighbours whose concatenation is
a piece may merge, the piece with the best score first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)

from regard.errors import DataError, import_extra
from regard.text.vocabularies import MARK, with_special

_UNKNOWN = 2
_CONTROL = 3
_USER_DEFINED = 4
"""Types of pieces other than normal ones (ModelProto.SentencePiece.Type)."""
_UNIGRAM = 1
_BPE = 2
_CHARACTERS = 4
"""Types of models that can be converted (TrainerSpec.ModelType); 3 is a model of whole words."""
_NEVER = -1e5
"""Score of a piece of the other model: lower than any segmentation into the model's own pieces."""
_UNSEEN = "\uf8ff"
"""A private-use character that replaces the characters that the model does not know."""


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
    # Replace characters that no piece of this model has, or pieces of the other would match them.
    # Marian looks an unknown character up by itself, but a run of them as one piece.
    if ids is not None:
        known = {character for piece in proto.pieces for character in piece.piece} | {MARK}
        alone = known | {piece for piece in ids if len(piece) == 1}
        runs = f"[^{_signs(known)}]{{2,}}|[^{_signs(alone)}]"
        steps.append(normalizers.Replace(Regex(runs), _UNSEEN))
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
    return with_special(tokenizer, [piece for piece in special if ids is None or piece in ids])


def _signs(characters: Iterable[str]) -> str:
    """Characters as they stand inside the brackets of a regular expression."""
    return "".join(f"\\x{{{ord(character):x}}}" for character in sorted(characters))


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
