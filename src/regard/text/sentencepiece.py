"""SentencePiece models, converted to the `tokenizers` library with the same ids.

Kudo & Richardson 2018, arXiv:1808.06226. A model file is a protocol buffer: pieces with scores, and the rules of
normalisation. A BPE model has no list of merges: any two neighbours whose union is a piece may merge, the piece with
the best score first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from regard.errors import DataError, import_extra
from regard.text.vocabularies import MARK

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
"""Types of pieces other than normal ones (ModelProto.SentencePiece.Type)."""
UNIGRAM, BPE, CHARACTERS = 1, 2, 4
"""Types of models that can be converted (TrainerSpec.ModelType); 3 is a model of whole words."""
NEVER = -1e5
"""The score of a piece of the other model: below that of any segmentation into the model's own pieces."""
UNSEEN = "\uf8ff"
"""A private-use character that replaces those that the model does not know."""


def converted(data: bytes, where: str, ids: Mapping[str, int] | None = None) -> Tokenizer:
    """The tokenizer in a SentencePiece model file; `where` names it in messages.

    `ids` is a vocabulary shared by two models, such as the two sides of a Marian model: the tokenizer then has all of
    its pieces, but splits text only into the model's own.
    """
    proto = _parsed(data, where)
    if proto.trainer_spec.model_type not in (UNIGRAM, BPE, CHARACTERS) or proto.trainer_spec.treat_whitespace_as_suffix:
        what = "a SentencePiece model of whole words, or with the space after a word, cannot be converted"
        raise DataError(what, where=where, hint="train one with --model_type=unigram, bpe or char")
    user_defined = [piece.piece for piece in proto.pieces if piece.type == USER_DEFINED]
    tokenizer = Tokenizer(_model(proto, user_defined, ids))
    steps = _normalizing(proto.normalizer_spec)
    tokenizer.normalizer = normalizers.Sequence(steps if ids is None else [*steps, _replace_unseen(proto)])
    if user_defined:  # they are never split, the longest first
        pattern = "|".join(re.escape(piece) for piece in sorted(user_defined, key=len, reverse=True))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = _decoder(proto.normalizer_spec)
    special = [piece.piece for piece in proto.pieces if piece.type in (CONTROL, UNKNOWN)]
    special = [piece for piece in special if ids is None or piece in ids]
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in special])
    return tokenizer


def _parsed(data: bytes, where: str) -> Any:
    import_extra("google.protobuf", extra="formats", where=where)
    proto = import_extra("sentencepiece.sentencepiece_model_pb2", extra="formats", where=where).ModelProto()
    expected = "expected is a .model file of SentencePiece"
    try:
        proto.ParseFromString(data)
    except Exception as error:  # DecodeError, of whichever implementation of protocol buffers is in use
        raise DataError(f"cannot be read as a SentencePiece model: {error}", where=where, hint=expected) from None
    if not any(piece.type == UNKNOWN for piece in proto.pieces):
        raise DataError("cannot be read as a SentencePiece model: no piece is <unk>", where=where, hint=expected)
    return proto


def _model(proto: Any, user_defined: Sequence[str], ids: Mapping[str, int] | None) -> models.Model:
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    if ids is not None:
        scores = dict(pieces)
        pieces = [(piece, scores.get(piece, NEVER)) for piece in sorted(ids, key=ids.__getitem__)]
    named = next(piece.piece for piece in proto.pieces if piece.type == UNKNOWN)
    unknown = [piece for piece, _ in pieces].index(named)
    fallback = proto.trainer_spec.byte_fallback
    if proto.trainer_spec.model_type == UNIGRAM:
        return models.Unigram(pieces, unk_id=unknown, byte_fallback=fallback)
    merges = _merges(proto) if proto.trainer_spec.model_type == BPE else []
    return models.BPE(
        {piece: number for number, (piece, _) in enumerate(pieces)},
        merges,
        unk_token=pieces[unknown][0],
        fuse_unk=True,
        byte_fallback=fallback,
        ignore_merges=bool(user_defined),  # a word that is a piece is not split
    )


def _merges(proto: Any) -> list[tuple[str, str]]:
    """All pairs of pieces whose concatenation is a piece, best score first."""
    normal = {piece.piece: piece.score for piece in proto.pieces if piece.type not in (UNKNOWN, CONTROL, USER_DEFINED)}
    merges = [
        (-score, len(piece), cut, (piece[:cut], piece[cut:]))
        for piece, score in normal.items()
        for cut in range(1, len(piece))
        if piece[:cut] in normal and piece[cut:] in normal
    ]
    return [pair for *_, pair in sorted(merges)]


def _replace_unseen(proto: Any) -> normalizers.Normalizer:
    """Replace characters that no piece of this model has, so that pieces of the other model do not match them."""
    known = sorted({character for piece in proto.pieces for character in piece.piece} | {MARK})
    signs = "".join(f"\\x{{{ord(character):x}}}" for character in known)
    return normalizers.Replace(Regex(f"[^{signs}]"), UNSEEN)


def _normalizing(spec: Any) -> list[normalizers.Normalizer]:
    """The model's table of characters, then its treatment of spaces."""
    steps: list[normalizers.Normalizer] = []
    if spec.precompiled_charsmap:
        # The library looks the table up by grapheme, so it would miss decomposed Korean: compose it first.
        steps += [normalizers.NFC(), normalizers.Precompiled(spec.precompiled_charsmap)]
    if spec.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex("^ | $"), "")]
    if spec.add_dummy_prefix:
        steps.append(normalizers.Prepend(" "))
    return [*steps, normalizers.Replace(" ", MARK)]


def _decoder(spec: Any) -> decoders.Decoder:
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if spec.add_dummy_prefix else steps)
