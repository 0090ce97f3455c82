"""Every kind of tokenizer on Korean: reviews and their labels, and translation into English.

    python benchmarks/korean_tokenizers.py FOLDER [--kinds morpheme bpe ...]

FOLDER holds the folders `nsmc` and `ko_en`. Samples and trainings are small, so that all of it ends in
minutes on two cores: compare the rows with each other. A tokenizer is learned from the training
sample; tokens, unknown ones and round trips are those of the test sample.
"""

from __future__ import annotations

import argparse
import json
import lzma
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import regard
from regard.text.normalise import nfc
from regard.text.tokenizers import Tokenizer, TokenizerConfig

KINDS = get_args(TokenizerConfig.model_fields["kind"].annotation)
REVIEWS = 6_000
TEST_REVIEWS = 1_000
TEST_PAIRS = 300
CLASSIFIERS: dict[str, tuple[dict[str, Any], int]] = {
    "bag of words": ({"kind": "bag_of_words"}, 150),
    "CNN": ({"kind": "cnn", "preset": "tiny"}, 150),
}
TRANSLATOR = {
    "kind": "transformer",
    "width": 128,
    "heads": 4,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "feed_forward": 256,
}
VOCABULARY = 8_000


def lines(file: Path) -> Iterator[str]:
    with lzma.open(file, "rt", encoding="utf-8") as stream:
        yield from (line.rstrip("\n") for line in stream)


def reviews(file: Path, count: int) -> list[dict[str, str]]:
    """The first reviews that are not empty."""
    header, *rows = (line.split("\t") for line in islice(lines(file), 2 * count))
    named = [dict(zip(header, row, strict=True)) for row in rows]
    kept = [row for row in named if row["document"].strip()][:count]
    return [{"text": row["document"], "label": row["label"]} for row in kept]


def pairs(folder: Path) -> list[dict[str, str]]:
    both = zip(lines(folder / "tatoeba.ko.xz"), lines(folder / "tatoeba.en.xz"), strict=True)
    return [{"source": source, "target": target} for source, target in both]


def measured(kind: str, train: Sequence[str], test: Sequence[str]) -> list[str]:
    """Tokens per text and per character, unknown tokens, and texts that come back."""
    tokenizer = Tokenizer.train(TokenizerConfig(kind=kind, vocabulary=VOCABULARY), train)
    rows = tokenizer.encode_batch(test)
    tokens = sum(map(len, rows))
    unknown = sum(row.count(tokenizer.unk) for row in rows)
    back = sum(tokenizer.decode(row) == nfc(text) for row, text in zip(rows, test, strict=True))
    return [
        f"{tokenizer.size:,}",
        f"{tokens / len(test):.1f}",
        f"{unknown / tokens:.1%}",
        f"{back / len(test):.0%}",
    ]


def table(file: Path, rows: Sequence[dict[str, str]]) -> dict[str, str]:
    """A corpus in a file, with the names of its columns."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    file.write_text(text, encoding="utf-8")
    return {"file": str(file), **{name: name for name in rows[0]}}


def classify(kind: str, train: Any, test: Any, model: Any, steps: int, work: Path) -> str:
    recipe = {
        "task": "classification",
        "data": {"train": train, "validation": {"split": 0.05}, "test": test},
        "tokenizer": {"kind": kind, "vocabulary": VOCABULARY},
        "model": model,
        "training": {"steps": steps, "batch_tokens": 4096, "validate_every": steps, "seed": 1},
    }
    return f"{regard.evaluate(regard.train(recipe, out=work, quiet=True))['accuracy']:.3f}"


def translate(kind: str, rows: Sequence[Any], steps: int, work: Path) -> str:
    recipe = {
        "task": "translation",
        "data": {
            "train": table(work.with_suffix(".train.jsonl"), rows[TEST_PAIRS:]),
            "validation": {"split": 0.03},
            "test": table(work.with_suffix(".test.jsonl"), rows[:TEST_PAIRS]),
        },
        "tokenizer": {"kind": kind, "vocabulary": VOCABULARY // 2, "joint": False},
        "model": TRANSLATOR,
        "training": {
            "steps": steps,
            "batch_tokens": 2048,
            "warmup": 100,
            "validate_every": steps,
            "decode": 0,
        },
        "search": {"beam": 1, "max_length": 200},
    }
    return f"{regard.evaluate(regard.train(recipe, out=work, quiet=True))['chrf']:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--steps", type=int, default=300, help="of the translation")
    given = parser.parse_args()
    train = reviews(given.folder / "nsmc" / "ratings_train.tsv.xz", REVIEWS)
    test = reviews(given.folder / "nsmc" / "ratings_test.tsv.xz", TEST_REVIEWS)
    both = pairs(given.folder / "ko_en")
    columns = "tokenizer | vocabulary | tokens per review | unknown | texts that come back | "
    columns += " | ".join(f"accuracy, {name}" for name in CLASSIFIERS)
    print(f"| {columns} | chrF, Korean to English | seconds |\n|{'---|' * (7 + len(CLASSIFIERS))}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in given.kinds:
            started = time.perf_counter()
            work = Path(folder) / kind
            texts = [[row["text"] for row in part] for part in (train, test)]
            row = [kind, *measured(kind, *texts)]
            work.mkdir()
            corpora = [
                table(work / f"{part}.jsonl", rows)
                for part, rows in (("train", train), ("test", test))
            ]
            for name, (model, steps) in CLASSIFIERS.items():
                row.append(classify(kind, *corpora, model, steps, work / name))
            row.append(translate(kind, both, given.steps, work / "translation"))
            print(f"| {' | '.join(row)} | {time.perf_counter() - started:.0f} |", flush=True)


if __name__ == "__main__":
    main()
