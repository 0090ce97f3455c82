"""What a tokenizer.json says: which tokens are special, and how it treats a text. Nothing here reads a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer

from regard.text.vocabularies import SPECIAL

_ALIASES = (
    ("<pad>", "[PAD]", "<PAD>", "<|pad|>", "<|padding|>"),
    ("<unk>", "[UNK]", "<UNK>", "<|unk|>"),
    ("<s>", "[CLS]", "<bos>", "[BOS]", "<BOS>", "<|begin_of_text|>", "<|startoftext|>"),
    ("</s>", "[SEP]", "<eos>", "[EOS]", "<EOS>", "<|end_of_text|>", "<|endoftext|>"),
)
"""What pad, unk, begin and end are called in the vocabularies of others."""


def special_names(tokenizer: Tokenizer, tree: Mapping[str, Any]) -> list[str]:
    """What pad, unk, begin and end are called in this vocabulary; our own names for those that it lacks.

    A vocabulary may say in its template that one token stands for another: GPT-2's end is its begin, too.
    """
    names = [next((n for n in aliases if tokenizer.token_to_id(n) is not None), aliases[0]) for aliases in _ALIASES]
    model = tree["model"]
    unknown = model.get("unk_token")
    if isinstance(model.get("unk_id"), int):
        unknown = model["vocab"][model["unk_id"]][0]
    if unknown and unknown not in names:
        names[1] = unknown
    stand_ins = _stand_ins(tree.get("post_processor") or {})
    return [stand_ins.get(own, name) for own, name in zip(SPECIAL, names, strict=True)]


def _stand_ins(processor: Mapping[str, Any]) -> dict[str, str]:
    """Names that a template uses -> the tokens that it puts there."""
    entries = [one.get("special_tokens") or {} for one in processor.get("processors", [processor])]
    return {name: token["tokens"][0] for one in entries for name, token in one.items() if token["tokens"]}


def complete(tokenizer: Tokenizer, tree: Mapping[str, Any]) -> bool:
    """Add the special tokens that are missing, and forget cutting and padding; whether anything had to be changed."""
    changed = tokenizer.truncation is not None or tokenizer.padding is not None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    missing = [name for name in dict.fromkeys(special_names(tokenizer, tree)) if name not in special]
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in missing])
    return changed or bool(missing)


def continuing(tree: dict[str, Any]) -> dict[str, Any]:
    """The same pipeline for a text that goes on after another one: no mark is put before it."""
    for step in _steps(tree["normalizer"]):
        if "normalizers" in step:
            step["normalizers"] = [one for one in step["normalizers"] if one["type"] != "Prepend"]
    for step in _steps(tree["pre_tokenizer"]):
        if step["type"] == "Metaspace":
            step["prepend_scheme"] = "never"
    return tree


def _steps(part: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """A part of a pipeline, and the parts that it is a sequence of."""
    if part is not None:
        yield part
        for one in part.get("normalizers") or part.get("pretokenizers") or ():
            yield from _steps(one)
