"""Templates: the special tokens around one text or two, as a tokenizer.json defines them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import tokenizers
from tokenizers import models


class Slot(NamedTuple):
    """A place in a row: a special token, or where `token` is None the next text; and the segment of
    either."""

    token: int | None
    segment: int


Templates = tuple[tuple[Slot, ...], tuple[Slot, ...]]  # the row of one text, and that of two


def steps_of(step: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """A step of a pipeline, and the steps that it is a sequence of."""
    if step is not None:
        yield step
        for part in (
            step.get("normalizers") or step.get("pretokenizers") or step.get("processors") or ()
        ):
            yield from steps_of(part)


def templates_in(tree: Mapping[str, Any]) -> Templates | None:
    """The tokens that a tokenizer.json puts around one text and around two, as the library does it;
    None if it puts none."""
    probe: dict[str, Any] = json.loads(
        tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).to_str()
    )
    for step in steps_of(tree.get("post_processor")):
        if step["type"] != "Sequence":
            reader = tokenizers.Tokenizer.from_str(json.dumps(probe | {"post_processor": step}))
            single, pair = (
                tuple(
                    Slot(token if special else None, min(segment, 1))
                    for token, special, segment in zip(
                        row.ids, row.special_tokens_mask, row.type_ids, strict=True
                    )
                )
                for row in (reader.encode("a"), reader.encode("a", "a"))
            )
            if len(pair) > 2:
                return single, pair
    return None


def bert_templates(begin: int, end: int, *, roberta: bool = False) -> Templates:
    """[CLS] A [SEP], and [CLS] A [SEP] B [SEP]; RoBERTa's has two tokens between the texts."""
    single = Slot(begin, 0), Slot(None, 0), Slot(end, 0)
    return single, (*single, *[Slot(end, 0)] * roberta, Slot(None, 1), Slot(end, 1))
