"""What the model and the search think of the references."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.data.dataset import Dataset
from regard.models.base import Generator
from regard.runs import Run
from regard.search import SearchConfig
from regard.search.hypotheses import Live
from regard.search.rules import Rules, rules_for
from regard.tasks.inputs import Encoded, by_length, padded, sources_of
from regard.tasks.text_to_text import wording_of
from regard.text.spelling import unknown_words
from regard.text.tokenizers import Tokenizer, Tokenizers
from regard.views.verdicts import UNKNOWN, Wanted

AT_ONCE = 2_048
"""Padded tokens of the references that are held against the rules together."""


def wanted_of(
    run: Run, model: Generator, dataset: Dataset, inputs: Sequence[Sequence[int]], config: SearchConfig
) -> list[Wanted]:
    """Inputs, each given by its examples, with the scores of the reference that the search would like best, if it is
    one that the vocabulary can write."""
    rows = [row for examples in inputs for row in examples]
    targets = [dataset.columns["target"][row].tolist() for row in rows]
    scored = run.task.hypotheses(model, [run.task.source(dataset, row) for row in rows], targets, config)
    hypotheses = dict(zip(rows, scored, strict=True))
    texts, target = dataset.texts["target"], run.tokenizers["target"]
    held = [row for row in rows if target.unk in hypotheses[row].tokens]
    unknown = {row for row in held if not config.unknown or _has_unknown(target, texts[row])}
    best = [max(examples, key=lambda row: (row not in unknown, hypotheses[row].objective)) for examples in inputs]
    sources = [run.task.source(dataset, row) for row in best]
    forbidden = why_forbidden(run.tokenizers, sources, [hypotheses[row].tokens for row in best], config)
    return [
        Wanted(
            dataset.where(row),
            dataset.texts["source"][row],
            texts[row],
            tuple(texts[one] for one in examples),
            source,
            hypotheses[row].tokens,
            hypotheses[row].score,
            hypotheses[row].objective,
            reason,
            row in unknown,
        )
        for row, examples, source, reason in zip(best, inputs, sources, forbidden, strict=True)
    ]


def _has_unknown(tokenizer: Tokenizer, text: str) -> bool:
    """Whether it stands for what the vocabulary lacks; a text that itself says `<unk>` may be written, if asked for."""
    [found] = unknown_words(tokenizer, [text])
    return bool(found)


def why_forbidden(
    tokenizers: Tokenizers, sources: Sequence[Encoded], targets: Sequence[Sequence[int]], config: SearchConfig
) -> list[str | None]:
    """The first rule of the search that keeps it from writing each target, which ends in `</s>`; None if none does."""
    wording = wording_of(tokenizers["target"], config, None, len(sources))
    target = tokenizers["target"]
    found: dict[int, str | None] = {}
    for rows in by_length([len(ids) for ids in targets], AT_ONCE):
        rules = rules_for(
            sources_of([sources[row] for row in rows], tokenizers),
            config,
            wording.of(rows),
            begin_id=target.begin,
            end_id=target.end,
            pad_id=target.pad,
            unknown_id=target.unk,
        )
        reasons_BT = _reasons(rules, padded([targets[row] for row in rows], target.pad).ids_BL, target.size)
        for row, reasons in zip(rows, reasons_BT.tolist(), strict=True):
            first = next(((token, one) for token, one in zip(targets[row], reasons, strict=False) if one), None)
            found[row] = first and (UNKNOWN if first[0] == target.unk else rules.names[first[1] - 1])
    return [found[row] for row in range(len(targets))]


def _reasons(rules: Rules, ids_BT: Tensor, vocabulary: int) -> Tensor:
    """What `Rules.reasons` says of each token where those before it are written: 0 where it may come."""
    sentences_B, total_B1 = torch.arange(len(ids_BT)), torch.zeros(len(ids_BT), 1)
    reasons = [
        rules.reasons(torch.zeros(len(ids_BT), 1, vocabulary), Live(sentences_B, ids_BT[:, None, :step], total_B1))
        .squeeze(1)
        .gather(1, ids_BT[:, step, None])
        for step in range(ids_BT.shape[1])
    ]
    return torch.cat(reasons, dim=1)
