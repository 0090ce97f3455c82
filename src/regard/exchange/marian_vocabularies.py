"""The tokenizers of a Marian model: a SentencePiece model for each side, and one vocabulary for both or one each.

A Pegasus model has one SentencePiece model, whose pieces stand after tokens that only its pre-training needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken

from regard.errors import DataError
from regard.exchange.folder import ModelFolder
from regard.exchange.vocabularies import fitted, ids_of, template_of, with_roles
from regard.text.sentencepiece import converted
from regard.text.tokenizers import Tokenizer, Tokenizers

END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"
OFFSET = 103
"""How far Pegasus's pieces are moved up, if tokenizer_config.json does not say: it has so many tokens of its own."""


def read_tokenizers(folder: ModelFolder, rows: tuple[int, int], begin: int, *, shared: bool) -> Tokenizers:
    """Of source and target, whose embeddings have so many rows; the decoder begins with the token `begin`."""
    if (folder.path / "source.spm").exists():
        first = _vocabulary(folder, "vocab.json")
        second = first if shared else _vocabulary(folder, "target_vocab.json")
        trees = [_tree(folder, "source.spm", first), _tree(folder, "target.spm", second)]
    elif (folder.path / "tokenizer.json").exists():
        separate = (folder.path / "target" / "tokenizer.json").exists()
        names = ["tokenizer.json", *(["target/tokenizer.json"] if separate else [])]
        trees = [folder.json(name) for name in names]
        for name, tree in zip(names, trees, strict=True):  # what is wrong with one is said here
            Tokenizer.from_json(json.dumps(tree), where=str(folder.path / name))
    elif (folder.path / "spiece.model").exists():
        trees = [_tree(folder, "spiece.model", _moved(folder))]
    else:
        hint = "expected: source.spm, target.spm and vocab.json, tokenizer.json, or spiece.model"
        raise DataError("there is no tokenizer in the folder", where=folder.name, hint=hint)
    spelt = {number: token for token, number in ids_of(trees[-1]).items()}
    trees[-1] = with_roles(trees[-1], {"<s>": spelt.get(begin, PAD)})
    if len(trees) == 1:
        return Tokenizers(dict.fromkeys(("source", "target"), fitted(trees[0], rows[1], folder)))
    if "<s>" not in ids_of(trees[0]):
        # Nothing is ever begun on this side, but every tokenizer of ours has a token for it.
        trees[0] = with_roles(trees[0], {"<s>": PAD})
    pairs = zip(("source", "target"), trees, rows, strict=True)
    return Tokenizers({side: fitted(tree, count, folder) for side, tree, count in pairs})


def _vocabulary(folder: ModelFolder, name: str) -> dict[str, int]:
    """Piece -> id, without holes."""
    path, found = folder.path / name, folder.json(name)
    if sorted(found.values()) != list(range(len(found))) or not {END, UNKNOWN, PAD} <= found.keys():
        hint = f"expected are pieces with the ids from 0 on, {END}, {UNKNOWN} and {PAD} among them"
        raise DataError("is no vocabulary of a Marian model", where=str(path), hint=hint)
    return found


def _moved(folder: ModelFolder) -> dict[str, int]:
    """Piece -> id in a Pegasus model: padding and the end, what stands for what pre-training hides, then the rest."""
    path, offset = folder.path / "spiece.model", folder.json("tokenizer_config.json").get("offset", OFFSET)
    if not isinstance(offset, int) or offset < 2:
        what = f"offset: {offset!r} is no number of tokens"
        raise DataError(what, where=str(folder.path / "tokenizer_config.json"))
    pieces = converted(path.read_bytes(), str(path)).get_vocab(with_added_tokens=False)
    names = [piece for piece in sorted(pieces, key=pieces.__getitem__) if piece not in (PAD, END)]
    hidden = ["<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, offset))]
    return {piece: number for number, piece in enumerate([PAD, END, *hidden, *names])}


def _tree(folder: ModelFolder, name: str, ids: Mapping[str, int]) -> dict[str, Any]:
    """The tokenizer.json of a side. Codes of languages, `>>fra<<`, are tokens as they are typed."""
    path = folder.path / name
    if not path.exists():
        raise DataError("there is no such file", where=str(path), hint="a Marian model has source.spm and target.spm")
    tokenizer = converted(path.read_bytes(), str(path), ids)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (END, UNKNOWN, PAD)])
    codes = [token for token in ids if token.startswith(">>") and token.endswith("<<")]
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in codes])
    tree: dict[str, Any] = json.loads(tokenizer.to_str())
    return tree | {"post_processor": template_of(("$A", END), ids)}
