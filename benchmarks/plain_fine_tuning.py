"""The peer of benchmarks/fine_tuning.py: the usual loop around `transformers`, as its examples
write it.

AdamW, linear warm-up and decay, batches of so many examples: drawn at random and padded to the
longest of each, or the same with neighbours of like length. On a GPU bf16 by autocast.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
import statistics
import string
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fine_tuning import JOBS, WARM_UP_UPDATES, Job, squad_train
from torch import Tensor
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

Features = dict[str, list[int] | int | float]
PADDING_VALUES = {"input_ids": 0, "token_type_ids": 0, "attention_mask": 0, "labels": -100}
INPUTS = ("input_ids", "token_type_ids", "attention_mask")
SORTED_CHUNK = 50
"""Number of batches in a chunk that is sorted by length."""
WARM_UP = 0.1
WEIGHT_DECAY = 0.01


MAX_LENGTH = 256
WINDOW = 384
OVERLAP = 128
LONGEST_ANSWER = 30


@dataclass(frozen=True)
class Peer:
    """The data of the loop, the number of labels, and the measure of its model."""

    rows: list[Features]
    labels: int
    score: Callable[[Any, str], float]


def batches(
    rows: Sequence[Features], size: int, *, by_length: bool, draw: random.Random
) -> list[list[Features]]:
    """One epoch in random order; `by_length` sorts within chunks and shuffles the resulting
    batches."""
    order = list(range(len(rows)))
    draw.shuffle(order)
    if not by_length:
        return [
            [rows[row] for row in order[start : start + size]]
            for start in range(0, len(order), size)
        ]
    found: list[list[Features]] = []
    for start in range(0, len(order), SORTED_CHUNK * size):
        chunk = sorted(
            order[start : start + SORTED_CHUNK * size], key=lambda row: len(rows[row]["input_ids"])
        )
        found += [
            [rows[row] for row in chunk[first : first + size]]
            for first in range(0, len(chunk), size)
        ]
    draw.shuffle(found)
    return found


def collated(batch: Sequence[Features], device: str) -> dict[str, Tensor]:
    """Rows padded to the longest."""
    longest = max(len(row["input_ids"]) for row in batch)
    tensors = {}
    for name, first in batch[0].items():
        if isinstance(first, list):
            values = [
                [*row[name], *[PADDING_VALUES[name]] * (longest - len(row[name]))] for row in batch
            ]
        else:
            values = [row[name] for row in batch]
        tensors[name] = torch.tensor(values).to(device, non_blocking=True)
    return tensors


def model_for(kind: str, folder: str, labels: int) -> Any:
    """The pre-trained weights in single precision, with a new head."""
    kinds = {
        "tagging": AutoModelForTokenClassification,
        "question_answering": AutoModelForQuestionAnswering,
    }
    head = {} if kind == "question_answering" else {"num_labels": labels}
    return kinds.get(kind, AutoModelForSequenceClassification).from_pretrained(
        folder, dtype=torch.float32, **head
    )


def train(
    model: Any,
    rows: Sequence[Features],
    *,
    epochs: int,
    size: int,
    rate: float,
    seed: int,
    device: str,
    by_length: bool = False,
) -> float:
    """The usual loop; returns its seconds, with the first updates counted as long as the others."""
    model.to(device).train()
    draw = random.Random(seed)
    steps = epochs * -(-len(rows) // size)
    optimiser = torch.optim.AdamW(model.parameters(), rate, weight_decay=WEIGHT_DECAY)
    warm_up = WARM_UP * steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda step: min((step + 1) / warm_up, max(0.0, (steps - step) / (steps - warm_up))),
    )
    started = time.perf_counter()
    before = 0
    done = 0
    for _ in range(epochs):
        for batch in batches(rows, size, by_length=by_length, draw=draw):
            if done == WARM_UP_UPDATES:
                started = now(device)
                before = done
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = model(**collated(batch, device)).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            optimiser.zero_grad()
            done += 1
    model.eval()
    return (now(device) - started) * steps / (steps - before)


def now(device: str) -> float:
    """The time after all work on the device is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


@torch.no_grad()
def predicted(
    model: Any, rows: Sequence[Features], device: str, take: Callable[[Any, int], Any]
) -> list[Any]:
    """`take` applied to the output of each row, in the order of the rows."""
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]["input_ids"]))
    found: list[Any] = [None] * len(rows)
    for start in range(0, len(order), 128):
        some = order[start : start + 128]
        inputs = [
            {name: value for name, value in rows[row].items() if name in INPUTS} for row in some
        ]
        output = model(**collated(inputs, device))
        for place, row in enumerate(some):
            found[row] = take(output, place)
    return found


def texts_of(folder: Path, part: dict[str, Any]) -> tuple[list[tuple[str, ...]], list[str]]:
    """The texts and the label of each line of a table with a header."""
    lines = lzma.decompress((folder / part["file"]).read_bytes()).decode().splitlines()
    header = lines[0].split("\t")
    columns = [header.index(part[name]) for name in ("text", "first", "second") if name in part]
    label = header.index(part["label"])
    cells = [line.split("\t") for line in lines[1:]][: part.get("size")]
    return [tuple(row[column] for column in columns) for row in cells], [
        row[label] for row in cells
    ]


def labelled(job: Job, folder: Path, tokenizer: Any) -> Peer:
    """Examples with classes or numbers."""
    (texts, labels), (test_texts, test_labels) = (
        texts_of(folder, part) for part in (job.train, job.test)
    )
    names = sorted(set(labels))
    number = float if job.task == "regression" else names.index

    def encoded(rows: list[tuple[str, ...]], labels: list[str]) -> list[Features]:
        found = tokenizer(
            *map(list, zip(*rows, strict=True)), truncation=True, max_length=MAX_LENGTH
        )
        kept = [name for name in PADDING_VALUES if name in found]
        return [
            {**{name: found[name][row] for name in kept}, "labels": number(label)}
            for row, label in enumerate(labels)
        ]

    def score(model: Any, device: str) -> float:
        rows = encoded(test_texts, test_labels)
        truth = [row["labels"] for row in rows]
        if job.task == "regression":
            found = predicted(
                model, rows, device, lambda output, place: float(output.logits[place, 0])
            )
            return float(np.corrcoef(found, truth)[0, 1])
        found = predicted(
            model, rows, device, lambda output, place: int(output.logits[place].argmax())
        )
        return float(np.mean(np.array(found) == np.array(truth)))

    return Peer(encoded(texts, labels), 1 if job.task == "regression" else len(names), score)


def sentences_of(folder: Path, part: dict[str, Any]) -> list[tuple[list[str], list[str]]]:
    """Words and entity tags of each sentence, IOB1 turned into IOB2."""
    text = lzma.decompress((folder / part["file"]).read_bytes()).decode()
    found = []
    for block in text.split("\n\n"):
        rows = [
            line.split()
            for line in block.splitlines()
            if line.strip() and not line.startswith("-DOCSTART-")
        ]
        if rows:
            found.append(([row[0] for row in rows], as_iob2([row[-1] for row in rows])))
    return found[: part.get("size")]


def as_iob2(tags: list[str]) -> list[str]:
    """I-X after O or after another type begins an entity."""
    before = "O"
    found = []
    for tag in tags:
        begins = tag.startswith("I-") and before[2:] != tag[2:]
        found.append(f"B-{tag[2:]}" if begins else tag)
        before = tag
    return found


def tagged(job: Job, folder: Path, tokenizer: Any) -> Peer:
    """Examples with a tag on the first piece of each word."""
    train, test = (sentences_of(folder, part) for part in (job.train, job.test))
    names = sorted({tag for _, tags in train for tag in tags})

    def encoded(sentences: list[tuple[list[str], list[str]]]) -> list[Features]:
        found = tokenizer(
            [words for words, _ in sentences],
            is_split_into_words=True,
            truncation=True,
            max_length=MAX_LENGTH,
        )
        rows = []
        for row, (_, tags) in enumerate(sentences):
            before = None
            labels = []
            for word in found.word_ids(row):
                labels.append(-100 if word is None or word == before else names.index(tags[word]))
                before = word
            kept = {name: found[name][row] for name in PADDING_VALUES if name in found}
            rows.append({**kept, "labels": labels})
        return rows

    def score(model: Any, device: str) -> float:
        rows = encoded(test)
        found = predicted(
            model, rows, device, lambda output, place: output.logits[place].argmax(-1).tolist()
        )
        guessed = [
            [names[guess] for guess, label in zip(one, row["labels"], strict=False) if label >= 0]
            for one, row in zip(found, rows, strict=True)
        ]
        cut = [
            [*tags, *["O"] * (len(truth) - len(tags))]
            for tags, (_, truth) in zip(guessed, test, strict=True)
        ]
        return entity_f1([truth for _, truth in test], cut)

    return Peer(encoded(train), len(names), score)


def entity_f1(truth: list[list[str]], found: list[list[str]]) -> float:
    """F1 of whole entities, as conlleval counts them."""

    def entities(tags: list[str]) -> set[tuple[str, int, int]]:
        spans = set()
        start = None
        for place, tag in enumerate([*tags, "O"]):
            if start is not None and not (tag.startswith("I-") and tag[2:] == tags[start][2:]):
                spans.add((tags[start][2:], start, place))
                start = None
            if tag != "O" and start is None:
                start = place
        return spans

    pairs = [(entities(one), entities(other)) for one, other in zip(truth, found, strict=True)]
    right = sum(len(one & other) for one, other in pairs)
    return 2 * right / (sum(len(one) for one, _ in pairs) + sum(len(other) for _, other in pairs))


def questions_of(folder: Path, part: dict[str, Any]) -> list[dict[str, Any]]:
    path = folder / part["file"]
    raw = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    questions = [
        {"context": paragraph["context"], **question}
        for article in json.loads(raw)["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    return questions[: part.get("size")]


def windows_of(questions: list[dict[str, Any]], tokenizer: Any) -> Any:
    return tokenizer(
        [one["question"].strip() for one in questions],
        [one["context"] for one in questions],
        truncation="only_second",
        max_length=WINDOW,
        stride=OVERLAP,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )


def answered(job: Job, folder: Path, tokenizer: Any) -> Peer:
    """Windows of the context, with start and end of the answer in each; 0, 0 if it is not there."""
    train, test = (questions_of(folder, part) for part in (job.train, job.test))

    def row_of(found: Any, row: int) -> Features:
        return {name: found[name][row] for name in PADDING_VALUES if name in found}

    def trained() -> list[Features]:
        found = windows_of(train, tokenizer)
        rows = []
        for row, example in enumerate(found["overflow_to_sample_mapping"]):
            answer = train[example]["answers"][0]
            first = answer["answer_start"]
            last = answer["answer_start"] + len(answer["text"])
            inside = [
                place
                for place, ((start, end), part) in enumerate(
                    zip(found["offset_mapping"][row], found.sequence_ids(row), strict=True)
                )
                if part == 1 and start < last and end > first
            ]
            whole = inside and found["offset_mapping"][row][inside[0]][0] <= first
            whole = whole and found["offset_mapping"][row][inside[-1]][1] >= last
            start, end = (inside[0], inside[-1]) if whole else (0, 0)
            rows.append({**row_of(found, row), "start_positions": start, "end_positions": end})
        return rows

    def score(model: Any, device: str) -> float:
        found = windows_of(test, tokenizer)
        rows = [row_of(found, row) for row in range(len(found["input_ids"]))]
        logits = predicted(
            model,
            rows,
            device,
            lambda output, place: (
                output.start_logits[place].float().cpu(),
                output.end_logits[place].float().cpu(),
            ),
        )
        best: dict[int, tuple[float, str]] = {}
        for row, example in enumerate(found["overflow_to_sample_mapping"]):
            value, first, last = best_span(*logits[row], found.sequence_ids(row))
            if example not in best or value > best[example][0]:
                offsets = found["offset_mapping"][row]
                best[example] = (
                    value,
                    test[example]["context"][offsets[first][0] : offsets[last][1]],
                )
        truths = [[answer["text"] for answer in one["answers"]] for one in test]
        return statistics.mean(
            max(token_f1(best[row][1], one) for one in truth) for row, truth in enumerate(truths)
        )

    return Peer(trained(), 2, score)


def best_span(start_L: Tensor, end_L: Tensor, parts: list[int | None]) -> tuple[float, int, int]:
    """The most probable span of at most LONGEST_ANSWER tokens in the context."""
    length = len(parts)
    inside = torch.tensor([part == 1 for part in parts])
    scores_LL = start_L[:length, None] + end_L[None, :length]
    allowed_LL = (
        torch.ones(length, length).triu().tril(LONGEST_ANSWER - 1).bool()
        & inside[:, None]
        & inside[None]
    )
    value, place = scores_LL.masked_fill(~allowed_LL, -torch.inf).flatten().max(0)
    return float(value), int(place) // length, int(place) % length


def token_f1(found: str, truth: str) -> float:
    """F1 as the official script computes it, with its normalisation."""

    def words(text: str) -> list[str]:
        text = "".join(sign for sign in text.lower() if sign not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", text).split()

    one = Counter(words(found))
    other = Counter(words(truth))
    common = sum((one & other).values())
    if not one or not other:
        return float(one == other)
    return 2 * common / (sum(one.values()) + sum(other.values()))


KINDS = {
    "classification": labelled,
    "regression": labelled,
    "tagging": tagged,
    "question_answering": answered,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("folder", "task", "weights", "device"):
        parser.add_argument(name)
    parser.add_argument("seed", type=int)
    parser.add_argument("epochs", type=int)
    parser.add_argument("--by-length", action="store_true")
    parser.add_argument("--rows", type=int)
    asked = parser.parse_args()
    job = JOBS[asked.task]
    device = asked.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as work:
        folder = Path(asked.folder).absolute()
        if job.task == "question_answering":
            squad_train(folder, Path(work))
            job = replace(job, train={"file": str(Path(work) / "train.json")})
        job = replace(
            job, train=job.train | {"size": asked.rows}, test=job.test | {"size": asked.rows}
        )
        peer = KINDS[job.task](job, folder, AutoTokenizer.from_pretrained(asked.weights))
        torch.manual_seed(asked.seed)
        model = model_for(job.task, asked.weights, peer.labels)
        seconds = train(
            model,
            peer.rows,
            epochs=asked.epochs,
            size=job.examples,
            rate=job.rate,
            seed=asked.seed,
            device=device,
            by_length=asked.by_length,
        )
        score = peer.score(model, device) if asked.epochs > 1 else None
    print(json.dumps({"score": score, "seconds": seconds, "rows": len(peer.rows)}))


if __name__ == "__main__":
    main()
