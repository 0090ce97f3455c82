"""The tokenizer of a model's folder -> a tokenizer of a run, with the same ids; and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from regard.errors import DataError
from regard.exchange.exchanged import Exported
from regard.exchange.folder import ModelFolder
from regard.text.tokenizers import Tokenizer as OurTokenizer
from regard.text.vocabularies import MARK, MASKING, SPECIAL

SPARE = 1024
"""Most rows of an embedding beyond the vocabulary: sizes are rounded up for the sake of speed, never by more."""
KINDS = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram", "WordLevel": "word"}
"""A model of the `tokenizers` library -> `tokenizer.kind`."""
LONGEST = ("max_position_embeddings", "n_positions")
"""What a config calls the number of its positions."""


def read_tokenizer(folder: ModelFolder, rows: int, *, begin: str, end: str) -> OurTokenizer:
    """The tokenizer of a model whose embedding has so many rows; `transformers` has two names for what begins and ends
    a text, `cls` and `sep`, or `bos` and `eos`.
    """
    if (folder.path / "tokenizer.json").exists():
        tree = folder.json("tokenizer.json")
    elif (folder.path / "vocab.txt").exists():
        tree = _wordpiece(folder)
    elif (folder.path / "merges.txt").exists():
        tree = json.loads(_byte_level(folder).to_str())
    else:
        hint = "expected: tokenizer.json, vocab.txt, or vocab.json with merges.txt"
        raise DataError("there is no tokenizer in the folder", where=folder.name, hint=hint)
    tree = _as_configured(tree, folder)
    return fitted(with_roles(tree, _roles(tree, folder, ("pad", "unk", begin, end))), rows, folder)


def kind_of(tokenizer: OurTokenizer) -> str:
    """What a recipe calls this kind of tokenizer."""
    return KINDS.get(json.loads(tokenizer.to_json())["model"]["type"], "bpe")


def _wordpiece(folder: ModelFolder) -> dict[str, Any]:
    """BERT's tokenizer, from its list of pieces."""
    path, settings = folder.path / "vocab.txt", folder.json("tokenizer_config.json")
    try:
        pieces = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise DataError("is not UTF-8", where=str(path)) from None
    vocabulary = {piece.rstrip("\r"): number for number, piece in enumerate(pieces)}
    for name in ("[UNK]", "[CLS]", "[SEP]"):
        if name not in vocabulary:
            raise DataError(f"there is no {name} among the pieces, as BERT has", where=str(path))
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=settings.get("do_lower_case", True),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = [name for name in MASKING if name in vocabulary]
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    tree: dict[str, Any] = json.loads(tokenizer.to_str())
    return tree | {"post_processor": template_of(("[CLS]", "$A", "[SEP]", "$B", "[SEP]"), vocabulary)}


def _byte_level(folder: ModelFolder) -> Tokenizer:
    """GPT-2's tokenizer, from its pieces and its merges."""
    try:
        model = models.BPE.from_file(str(folder.path / "vocab.json"), str(folder.path / "merges.txt"))
    except Exception as error:  # the library raises bare Exception for all that can be wrong with a file
        raise DataError(f"cannot be read as a vocabulary: {error}", where=str(folder.path / "merges.txt")) from None
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    if tokenizer.token_to_id("<|endoftext|>") is not None:
        tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=False)])
    return tokenizer


def _as_configured(tree: dict[str, Any], folder: ModelFolder) -> dict[str, Any]:
    """What tokenizer_config.json says about case wins, as it does in `transformers`."""
    lowercase = folder.json("tokenizer_config.json").get("do_lower_case")
    normalizer = tree.get("normalizer") or {}
    if isinstance(lowercase, bool) and normalizer.get("type") == "BertNormalizer":
        return tree | {"normalizer": normalizer | {"lowercase": lowercase}}
    return tree


def _roles(tree: dict[str, Any], folder: ModelFolder, parts: tuple[str, ...]) -> dict[str, str]:
    """Which of its tokens stand for our special ones, where their names do not tell; `parts` is what they are called.

    What the folder says wins. A vocabulary that has only an end, as GPT-2's, lets it stand for all: its text is never
    unknown, and padding is never looked at.
    """
    said = folder.json("tokenizer_config.json") | folder.json("special_tokens_map.json")
    plain, ids = OurTokenizer.from_json(json.dumps(tree), where=folder.name), ids_of(tree)
    found = plain.tokens([plain.pad, plain.unk, plain.begin, plain.end])
    values = [said.get(f"{part}_token") for part in parts]
    stated = [value.get("content") if isinstance(value, dict) else value for value in values]
    wanted = [str(name) if name in ids else own for own, name in zip(found, stated, strict=True)]
    wanted = [name if name in ids else wanted[-1] for name in wanted]
    return {own: name for own, name, before in zip(SPECIAL, wanted, found, strict=True) if name != before}


def with_roles(tree: dict[str, Any], roles: Mapping[str, str]) -> dict[str, Any]:
    """The same tokenizer with a template that says which token stands for each of these special ones of ours."""
    ids, before = ids_of(tree), tree.get("post_processor")
    if not roles:
        return tree
    named = {own: {"id": own, "ids": [ids[token]], "tokens": [token]} for own, token in sorted(roles.items())}
    if before and before["type"] == "TemplateProcessing":
        return tree | {"post_processor": before | {"special_tokens": before["special_tokens"] | named}}
    template = template_of(("$A",), {}) | {"special_tokens": named}
    return tree | {"post_processor": {"type": "Sequence", "processors": [before, template]} if before else template}


def template_of(around: Sequence[str], ids: Mapping[str, int]) -> dict[str, Any]:
    """What stands around a text `$A`, and around a second one, `$B`, as in [CLS] $A [SEP] $B [SEP]."""
    pair = list(around) if "$B" in around else [*around, "$B"]
    second = pair.index("$B")
    pieces = [
        {"Sequence": {"id": name[1], "type_id": int(place >= second)}}
        if name in ("$A", "$B")
        else {"SpecialToken": {"id": name, "type_id": int(place >= second)}}
        for place, name in enumerate(pair)
    ]
    special = sorted(set(pair) - {"$A", "$B"})
    return {
        "type": "TemplateProcessing",
        "single": pieces[:second],
        "pair": pieces,
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in special},
    }


def ids_of(tree: Mapping[str, Any]) -> dict[str, int]:
    """The whole vocabulary of a tokenizer.json."""
    pieces = tree["model"]["vocab"]
    own = pieces if isinstance(pieces, dict) else {piece: number for number, (piece, _) in enumerate(pieces)}
    return {token["content"]: token["id"] for token in tree["added_tokens"]} | own


def fitted(tree: dict[str, Any], rows: int, folder: ModelFolder) -> OurTokenizer:
    """The tokenizer with a name for every row of the embedding; refused where it belongs to another one."""
    tokenizer = OurTokenizer.from_json(json.dumps(tree, ensure_ascii=False), where=folder.name)
    if not tokenizer.size <= rows <= tokenizer.size + SPARE:
        what = f"the tokenizer has {tokenizer.size:,} tokens, but the embedding {rows:,} rows"
        raise DataError(what, where=folder.name, hint="the two must come from the same model")
    if tokenizer.size == rows:
        return tokenizer
    added = Tokenizer.from_str(tokenizer.to_json())
    spare = [f"<spare {number}>" for number in range(tokenizer.size, rows)]
    added.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in spare])
    return OurTokenizer.from_json(added.to_str(), where=folder.name)


def _with_gaps(tree: dict[str, Any], tokenizer: OurTokenizer) -> dict[str, Any]:
    """A vocabulary of ours that reads [MASK] in a text as `tasks/filling.py` does, without a mark around it.

    The library cuts a text at such a token and treats each part as a text of its own. So the token takes the space
    before it, and the mark before a text is put there by two steps that know whether a part is the first: one puts a
    space (in place of all others stand marks by then), the next turns it into a mark. A text's own `▁` stays aside,
    which is unknown, too; a vocabulary that knows it is left as it is.
    """
    if tokenizer.mask is None or (tree.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer":
        return tree
    tokens = [token | {"lstrip": token["lstrip"] or token["id"] == tokenizer.mask} for token in tree["added_tokens"]]
    tree, steps = tree | {"added_tokens": tokens}, (tree.get("normalizer") or {}).get("normalizers", [])
    ours = [step["type"] for step in steps[-2:]] == ["Replace", "Prepend"]
    if not ours or any(" " in token for token in ids_of(tree)):
        return tree
    marks = [
        {"type": "Metaspace", "replacement": sign, "prepend_scheme": where, "split": False}
        for sign, where in ((" ", "first"), (MARK, "never"))
    ]
    return tree | {
        "normalizer": {"type": "Sequence", "normalizers": steps[:-2]},  # without the way back from aside
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*marks, tree["pre_tokenizer"]]},
    }


def _with_one_blank(tree: dict[str, Any], tokenizer: OurTokenizer) -> dict[str, Any]:
    """A vocabulary that reads white space as `data/raw.py` has it read: one blank for a run of it.

    Where gaps are filled a text comes in the parts between them, whose ends are none of the text's.
    """
    if tokenizer.keeps_white_space or tokenizer.encode(" a \n a\t") == tokenizer.encode("a a"):
        return tree
    white = "".join(sign for sign in map(chr, range(0x3001)) if sign.isspace())
    patterns = {f"[{white}]+": " "} if tokenizer.mask is not None else {f"[{white}]+": " ", "^ | $": ""}
    folding = [{"type": "Replace", "pattern": {"Regex": wide}, "content": to} for wide, to in patterns.items()]
    before = tree.get("normalizer") or {"type": "Sequence", "normalizers": []}
    steps = before["normalizers"] if before["type"] == "Sequence" else [before]
    return tree | {"normalizer": {"type": "Sequence", "normalizers": [*folding, *steps]}}


def tokenizer_files(tokenizer: OurTokenizer, exported: Exported, *, raw: bool) -> dict[str, str]:
    """What AutoTokenizer reads, by name of the file; it gives the same ids. `raw` text is read with single blanks."""
    tree = _with_gaps(json.loads(tokenizer.to_json()), tokenizer)
    if raw:
        tree = _with_one_blank(tree, tokenizer)
    if not tree.get("post_processor"):
        tree["post_processor"] = template_of(exported.around, ids_of(tree))
    pad, unk, begin, end = tokenizer.tokens([tokenizer.pad, tokenizer.unk, tokenizer.begin, tokenizer.end])
    named: dict[str, Any] = {"pad_token": pad, "unk_token": unk, "bos_token": begin, "eos_token": end}
    inputs = ["input_ids", "attention_mask"]
    if "$B" in exported.around:
        named = {"pad_token": pad, "unk_token": unk, "cls_token": begin, "sep_token": end}
        inputs.append("token_type_ids")
    if tokenizer.mask is not None:
        mask = next(token for token in tree["added_tokens"] if token["id"] == tokenizer.mask)
        named["mask_token"] = {"__type": "AddedToken", **{key: mask[key] for key in mask if key != "id"}}
    longest = next(exported.config[name] for name in LONGEST if name in exported.config)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": longest, **named}
    settings |= {"model_input_names": inputs, "clean_up_tokenization_spaces": False}
    return {
        "tokenizer.json": json.dumps(tree, ensure_ascii=False),
        "tokenizer_config.json": json.dumps(settings, ensure_ascii=False, indent=1),
    }
