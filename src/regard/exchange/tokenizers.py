"""Converts the tokenizer of a model folder into one of a run with the same ids, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from tokenizers import AddedToken, BertWordPieceTokenizer, ByteLevelBPETokenizer, Tokenizer

from regard.errors import DataError
from regard.exchange.folder import Exported, ModelFolder
from regard.text.sentencepiece import convert_sentencepiece
from regard.text.templates import Slot, Templates, bert_templates, steps_of, templates_in
from regard.text.tokenizers import Tokenizer as OurTokenizer
from regard.text.vocabularies import MARK, SPECIAL_NAMES

TokenizerTree = dict[str, Any]  # a tokenizer.json file
# texts that a tokenizer must be able to read
TRIED_TEXTS = [sign * 50 + end for sign in "a1 .가" for end in ("", "!", "b")]
TOKENIZERS_WITHOUT_SEGMENTS = ("Roberta", "XLMRoberta", "DistilBert", "MPNet")
"""Tokenizers of `transformers` that give no segments, unless tokenizer_config.json says
otherwise."""
# the embedding may have up to this many rows more than the vocabulary: sizes are rounded up for
# speed
MAX_SPARE_ROWS = 1024


def read_tokenizer(
    folder: ModelFolder, rows: int, *, begin: str, end: str, segments: bool = True
) -> OurTokenizer:
    """The tokenizer of a model whose embedding has `rows` rows. `begin` and `end` are what
    `transformers` calls the tokens that begin and end a text: `cls` and `sep`, or `bos` and `eos`.
    `segments`: whether the model tells two texts apart by them.

    The folder's settings say which tokens are special; otherwise their names do. In a vocabulary
    that has only an end token, as GPT-2's, it stands for all: no text is unknown, and padding is
    never attended to.
    """
    settings = folder.json("tokenizer_config.json") | folder.json("special_tokens_map.json")
    tree = folder.json("tokenizer.json") or read_vocabulary(folder, settings)
    lowercase = settings.get("do_lower_case")
    normalizer = tree.get("normalizer")
    if (
        isinstance(lowercase, bool)
        and isinstance(normalizer, dict)
        and normalizer.get("type") == "BertNormalizer"
    ):
        # as transformers does
        tree = tree | {"normalizer": normalizer | {"lowercase": lowercase}}
    decoder = tree.get("decoder")
    if (
        begin == "bos"
        and decoder
        and '"Prepend"' in json.dumps(normalizer)
        and '"Strip"' not in json.dumps(decoder)
    ):
        # which `_decoding_apart` took out
        strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        tree = tree | {"decoder": {"type": "Sequence", "decoders": [decoder, strip]}}
    plain = OurTokenizer.from_json(json.dumps(tree), where=folder.name)
    ids = ids_of(tree)
    by_name = plain.tokens([plain.pad, plain.unk, plain.begin, plain.end])
    stated = [_content(settings.get(f"{role}_token")) for role in ("pad", "unk", begin, end)]
    for role, name in zip(("pad", "unk", begin, end), stated, strict=True):
        if not isinstance(name, str | None):
            where = f"{folder.path / 'tokenizer_config.json'}: {role}_token"
            raise DataError("is not the text of a token", where=where)
    tokens = [str(name) if name in ids else own for own, name in zip(by_name, stated, strict=True)]
    tokens = [name if name in ids else tokens[-1] for name in tokens]
    roles = {
        own: name
        for own, name, before in zip(SPECIAL_NAMES, tokens, by_name, strict=True)
        if name != before
    }
    templates = written = templates_in(tree)
    if begin == "cls" and tokens[-1] in ids:
        roberta = "Roberta" in str(settings.get("tokenizer_class"))
        default = bert_templates(ids[tokens[2]], ids[tokens[3]], roberta=roberta)
        templates = _with_their_segments(written or default, settings, segments)
    if not settings.get("split_special_tokens"):
        around = {slot.token for template in templates or () for slot in template}
        tree = _read_in_texts(tree, {plain.mask, *map(ids.get, tokens), *around})
    tokenizer = fit_rows(
        with_template(tree, templates, roles) if roles or templates != written else tree,
        rows,
        folder,
    )
    stated_rows = folder.config.get("vocab_size", rows)
    if stated_rows != rows:
        what = f"vocab_size is {stated_rows}, but the embedding has {rows:,} rows"
        hint = "does one of the two belong to another model?"
        raise DataError(what, where=folder.config_path, hint=hint)
    return tokenizer


def _content(token: Any) -> Any:
    """The text of a token in tokenizer_config.json, where it may be an object."""
    return token.get("content") if isinstance(token, dict) else token


def _read_in_texts(tree: TokenizerTree, special: Set[int | None]) -> TokenizerTree:
    """A tokenizer with no other special tokens: `Tokenizer` reads a special token in a text as
    plain text, but [E1] before an entity as a token."""
    added = tree.get("added_tokens", ())
    tokens = [token | {"special": token["special"] and token["id"] in special} for token in added]
    return tree | {"added_tokens": tokens}


def _with_their_segments(
    templates: Templates, settings: Mapping[str, Any], segments: bool
) -> Templates:
    """Templates without segments if the model has none or `transformers` gives it none."""
    kind = str(settings.get("tokenizer_class"))
    inputs = settings.get("model_input_names")
    typed = (
        "token_type_ids" in inputs
        if isinstance(inputs, list)
        else not kind.startswith(TOKENIZERS_WITHOUT_SEGMENTS)
    )
    single, pair = (
        tuple(Slot(token, segment * (typed and segments)) for token, segment in template)
        for template in templates
    )
    return single, pair


def _read_sentencepiece(folder: ModelFolder) -> TokenizerTree | None:
    """DeBERTa's tokenizer from spm.model, or XLM-R's from sentencepiece.bpe.model; None if there is
    neither.

    XLM-R numbers the pieces after the first three anew: four tokens come before them, and <mask>
    after them.
    """
    deberta, xlm = (folder.path / name for name in ("spm.model", "sentencepiece.bpe.model"))
    if deberta.exists():
        tokenizer = convert_sentencepiece(deberta.read_bytes(), str(deberta))
    elif xlm.exists() and folder.config.get("model_type") == "xlm-roberta":
        own = convert_sentencepiece(xlm.read_bytes(), str(xlm)).get_vocab(with_added_tokens=False)
        pieces = sorted(own, key=own.__getitem__)[3:]
        names = ["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>"]
        ids = {name: number for number, name in enumerate(names)}
        tokenizer = convert_sentencepiece(xlm.read_bytes(), str(xlm), ids)
    else:
        return None
    mask = "[MASK]" if deberta.exists() else "<mask>"
    tokenizer.add_special_tokens([AddedToken(mask, lstrip=True, special=True, normalized=False)])
    tree: TokenizerTree = json.loads(tokenizer.to_str())
    return tree


def read_vocabulary(folder: ModelFolder, settings: Mapping[str, Any]) -> TokenizerTree:
    """BERT's tokenizer from vocab.txt, GPT-2's from vocab.json and merges.txt, or one of
    SentencePiece."""
    if tree := _read_sentencepiece(folder):
        return tree
    pieces, vocabulary, merges = (
        folder.path / name for name in ("vocab.txt", "vocab.json", "merges.txt")
    )
    if not pieces.exists() and not merges.exists():
        hint = "expected: tokenizer.json, vocab.txt, vocab.json with merges.txt, or spm.model"
        raise DataError("there is no tokenizer in the folder", where=folder.name, hint=hint)
    added = folder.json("added_tokens.json")
    try:
        if pieces.exists():
            tokenizer = BertWordPieceTokenizer.from_file(
                str(pieces),
                lowercase=settings.get("do_lower_case", True),
                strip_accents=settings.get("strip_accents"),
                handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
            )
        else:
            tokenizer = ByteLevelBPETokenizer.from_file(str(vocabulary), str(merges))
            names = (
                AddedToken("<|endoftext|>", special=True, normalized=False),
                AddedToken("<mask>", lstrip=True, special=True, normalized=False),
            )
            tokenizer.add_special_tokens(
                [name for name in names if tokenizer.token_to_id(name.content) is not None]
            )
        tokenizer.add_special_tokens([*sorted(added, key=added.__getitem__)])
        listed = [_content(token) for token in settings.get("additional_special_tokens") or ()]
        tokenizer.add_special_tokens(
            [name for name in listed if tokenizer.token_to_id(name) is not None]
        )
    except (
        Exception
    ) as error:  # the library raises bare Exception for everything that can be wrong with a file
        raise DataError(
            f"cannot be read as a vocabulary: {error}", where=str(folder.path)
        ) from None
    read: TokenizerTree = json.loads(tokenizer.to_str())
    return read


def with_template(
    tree: TokenizerTree, templates: Templates | str | None = None, roles: Mapping[str, str] = {}
) -> TokenizerTree:
    """The tokenizer with a single template, which also says which token has the role of each of our
    special tokens.

    The template is the previous one, unless `templates` are given, as in "$A </s>"; a second text
    then comes last.
    """
    ids = ids_of(tree)
    steps = [step for step in steps_of(tree.get("post_processor")) if step["type"] != "Sequence"]
    if isinstance(templates, str):
        single = tuple(
            Slot(None if piece == "$A" else ids[piece], 0) for piece in templates.split()
        )
        templates = single, (*single, Slot(None, 1))
    single, pair = (
        templates or templates_in(tree) or ((Slot(None, 0),), (Slot(None, 0), Slot(None, 1)))
    )
    names = {number: name for name, number in ids.items()}
    taken = {own for own, name in roles.items() if own != name}
    # a role that another token has, as `</s>` that of `<s>` in BART
    called = {number: f"{name} itself" if name in taken else name for number, name in names.items()}
    used = {called[token]: token for token, _ in (*single, *pair) if token is not None}
    used |= {own: ids[name] for own, name in roles.items()}
    special = {
        own: {"id": own, "ids": [token], "tokens": [names[token]]}
        for own, token in sorted(used.items())
    }
    kept = [step for step in steps if step["type"] == "ByteLevel"]
    template: TokenizerTree = {
        "type": "TemplateProcessing",
        "single": _pieces(single, called),
        "pair": _pieces(pair, called),
        "special_tokens": {
            name: token for step in steps for name, token in step.get("special_tokens", {}).items()
        }
        | special,
    }
    return tree | {
        "post_processor": {"type": "Sequence", "processors": [*kept, template]}
        if kept
        else template
    }


def _pieces(template: Sequence[Slot], names: Mapping[int, str]) -> list[TokenizerTree]:
    texts = iter("AB")
    return [
        {"Sequence": {"id": next(texts), "type_id": segment}}
        if token is None
        else {"SpecialToken": {"id": names[token], "type_id": segment}}
        for token, segment in template
    ]


def ids_of(tree: TokenizerTree) -> dict[str, int]:
    """The whole vocabulary."""
    pieces = tree["model"]["vocab"]
    own = (
        pieces
        if isinstance(pieces, dict)
        else {piece: number for number, (piece, _) in enumerate(pieces)}
    )
    return {token["content"]: token["id"] for token in tree.get("added_tokens", ())} | own


def fit_rows(tree: TokenizerTree, rows: int, folder: ModelFolder) -> OurTokenizer:
    """The tokenizer with a token for every row of the embedding; one of another model is
    refused."""
    tokenizer = OurTokenizer.from_json(json.dumps(tree, ensure_ascii=False), where=folder.name)
    if not tokenizer.size <= rows <= tokenizer.size + MAX_SPARE_ROWS:
        what = f"the tokenizer has {tokenizer.size:,} tokens, but the embedding {rows:,} rows"
        raise DataError(what, where=folder.name, hint="the two must come from the same model")
    try:
        for text in TRIED_TEXTS:
            tokenizer.encode(text)
    except (
        BaseException
    ) as error:  # a panic in Rust, as of a regular expression that backtracks, is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise DataError(f"the tokenizer fails on some texts: {error}", where=folder.name) from None
    if tokenizer.size == rows:
        return tokenizer
    filled = Tokenizer.from_str(tokenizer.to_json())
    spare = [f"<spare {number}>" for number in range(tokenizer.size, rows)]
    filled.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in spare])
    return OurTokenizer.from_json(filled.to_str(), where=folder.name)


def tokenizer_files(tokenizer: OurTokenizer, exported: Exported, longest: int) -> dict[str, str]:
    """The files that AutoTokenizer reads, by name. It gives the same ids, and cuts texts at
    `longest` if asked to."""
    tree = _with_masks(json.loads(tokenizer.to_json()), tokenizer)
    if exported.raw_text:
        tree = _with_single_spaces(tree, tokenizer)
    if exported.continues and tree.get("decoder"):
        tree = tree | {"decoder": _decoding_apart(tree["decoder"])}
    pair = exported.template is None
    if exported.source_token:
        [end] = tokenizer.tokens([tokenizer.end])
        tree = with_template(tree, f"{exported.source_token} $A {end}")
    if pair and templates_in(tree) != tokenizer.templates:
        tree = with_template(tree, tokenizer.templates)
    elif not tree.get("post_processor"):
        tree = with_template(tree, exported.template)
    names = ("pad", "unk", "cls", "sep") if pair else ("pad", "unk", "bos", "eos")
    begin = next(iter(tokenizer.first), tokenizer.begin)
    tokens = tokenizer.tokens([tokenizer.pad, tokenizer.unk, begin, tokenizer.end])
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        **{f"{name}_token": token for name, token in zip(names, tokens, strict=True)},
        "model_input_names": [
            "input_ids",
            "attention_mask",
            *(["token_type_ids"] if pair and exported.segments else []),
        ],
        "clean_up_tokenization_spaces": False,
        # else </s> in a text is plain text, as here
        "split_special_tokens": not exported.reads_masks,
    }
    if tokenizer.mask is not None:
        mask = next(token for token in tree["added_tokens"] if token["id"] == tokenizer.mask)
        settings["mask_token"] = {
            "__type": "AddedToken",
            **{key: mask[key] for key in mask if key != "id"},
        }
    return {
        "tokenizer.json": json.dumps(tree, ensure_ascii=False),
        "tokenizer_config.json": json.dumps(settings, ensure_ascii=False, indent=1),
    }


def _with_masks(tree: TokenizerTree, tokenizer: OurTokenizer) -> TokenizerTree:
    """A tokenizer that reads [MASK] in a text as `predict` does: no space mark is put before or
    after it.

    The library splits a text at such a token and treats each part as a text of its own. So [MASK]
    takes the space before it, and two Metaspace steps, which know whether a part is the first one,
    put the mark before a text: one prepends a space (all others are marks by then), the next turns
    it into a mark. A `▁` in the text itself becomes unknown, as it does here; a vocabulary that has
    a space in a token is left as it is.
    """
    if (
        tokenizer.mask is None
        or (tree.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
    ):
        return tree
    tokens = [
        token | {"lstrip": token["lstrip"] or token["id"] == tokenizer.mask}
        for token in tree["added_tokens"]
    ]
    tree = tree | {"added_tokens": tokens}
    steps = (tree.get("normalizer") or {}).get("normalizers", [])
    ours = [step["type"] for step in steps[-2:]] == ["Replace", "Prepend"]
    if not ours or any(" " in token for token in ids_of(tree)):
        return tree
    marks = [
        {"type": "Metaspace", "replacement": sign, "prepend_scheme": scheme, "split": False}
        for sign, scheme in ((" ", "first"), (MARK, "never"))
    ]
    return tree | {
        "normalizer": {"type": "Sequence", "normalizers": steps[:-2]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*marks, tree["pre_tokenizer"]]},
    }


def _decoding_apart(decoder: TokenizerTree) -> TokenizerTree:
    """A decoder that keeps the space before the first word: `pipeline` decodes apart what comes
    after a prompt."""
    steps = [
        _decoding_apart(step) for step in decoder.get("decoders", ()) if step["type"] != "Strip"
    ]
    return decoder | {"decoders": steps} if steps else decoder


def _with_single_spaces(tree: TokenizerTree, tokenizer: OurTokenizer) -> TokenizerTree:
    """A tokenizer that reads a run of white space as one space, as raw text is read here.

    With [MASK] a text comes in parts, whose ends are not those of the text: spaces there are kept.
    """
    if tokenizer.keeps_white_space or tokenizer.encode(" a \n a\t") == tokenizer.encode("a a"):
        return tree
    white = "".join(sign for sign in map(chr, range(0x3001)) if sign.isspace())
    patterns = (
        {f"[{white}]+": " "} if tokenizer.mask is not None else {f"[{white}]+": " ", "^ | $": ""}
    )
    folding = [
        {"type": "Replace", "pattern": {"Regex": wide}, "content": to}
        for wide, to in patterns.items()
    ]
    before = tree.get("normalizer") or {"type": "Sequence", "normalizers": []}
    steps = before["normalizers"] if before["type"] == "Sequence" else [before]
    return tree | {"normalizer": {"type": "Sequence", "normalizers": [*folding, *steps]}}
