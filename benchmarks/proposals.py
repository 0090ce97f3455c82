"""The recipes that `regard check FILE` proposes beside the strongest linear model of scikit-learn,
on labelled sets.

python benchmarks/proposals.py DATA FOLDER [SET ...]         DATA holds nsmc/, imdb/, glue/ ...; runs are kept in FOLDER
python benchmarks/proposals.py DATA FOLDER hate:2            with another seed

For each set the first rows of its training file are written to FOLDER/SET/train.tsv, and a recipe
is proposed for it and trained. Both sides learn from the rows that the recipe leaves for training
and are measured on another file, by `regard.evaluate(run, baseline=True)`: the baselines are those
of src/regard/tasks/baseline.py, of which the best on the test rows is printed.
"""

import csv
import json
import lzma
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

import regard

# training file and its rows, test file and its rows, columns of the texts, that of the label, a
# header?
DATA_SETS = {
    "nsmc": ("nsmc/ratings_train.tsv", 20_000, "nsmc/ratings_test.tsv", 10_000, [1], 2, True),
    "nsmc_large": ("nsmc/ratings_train.tsv", 50_000, "nsmc/ratings_test.tsv", 10_000, [1], 2, True),
    "imdb": ("imdb/train.tsv", 10_000, "imdb/test.tsv", 5_000, [2], 1, False),
    "sst2": ("glue/SST-2/train.tsv", 20_000, "glue/SST-2/dev.tsv", 872, [0], 1, True),
    "sst2_sentences": (
        "glue/SST2_sentences/train.tsv",
        6_920,
        "glue/SST2_sentences/test.tsv",
        1_821,
        [0],
        1,
        False,
    ),
    "cola": ("glue/CoLA/train.tsv", 8_551, "glue/CoLA/dev.tsv", 1_043, [3], 1, False),
    "hate": ("ko_hate_speech/train.tsv", 7_896, "ko_hate_speech/dev.tsv", 471, [0], 3, True),
    "gender_bias": ("ko_hate_speech/train.tsv", 7_896, "ko_hate_speech/dev.tsv", 471, [0], 1, True),
    "chatbot": ("ko_chatbot/ChatbotData.csv", 9_823, "", 2_000, [0], 2, True),
    "mrpc": (
        "glue/MRPC/train.tsv",
        3_667,
        "glue/MRPC/msr_paraphrase_test.txt",
        1_725,
        [3, 4],
        0,
        True,
    ),
    "rte": ("glue/RTE/train.tsv", 2_490, "glue/RTE/dev.tsv", 277, [1, 2], 3, True),
    "kornli": ("kornlu/xnli.test.ko.tsv", 5_010, "kornlu/xnli.dev.ko.tsv", 2_490, [0, 1], 2, True),
    "stsb": ("glue/STS-B/train.tsv", 5_749, "glue/STS-B/dev.tsv", 1_500, [7, 8], 9, True),
    "korsts": ("kornlu/sts-train.tsv", 5_749, "kornlu/sts-test.tsv", 1_379, [5, 6], 4, True),
    "korsts_classes": (
        "kornlu/sts-train.tsv",
        5_749,
        "kornlu/sts-test.tsv",
        1_379,
        [5, 6],
        4,
        True,
    ),
}
CONLL_FILES = {"conll": ("conll2003_en/eng.train", 4_000, "conll2003_en/eng.testb", 3_453)}
"""Files of tagged sentences, and how many of them."""
SHOWN_METRICS = ("accuracy", "f1_macro", "pearson", "spearman", "f1")
Rows = list[list[str]]


def opened(file: Path) -> Iterator[str]:
    with lzma.open(f"{file}.xz", "rt", encoding="utf-8", newline="") as lines:
        yield from lines


def rows_of(name: str, data: Path) -> tuple[Rows, Rows]:
    """The rows of a set, text or texts and label: those to learn from and those to measure with."""
    file, size, other, other_size, texts, label, header = DATA_SETS[name]

    def read(file: str) -> Rows:
        lines = opened(data / file)
        split = (
            csv.reader(lines)
            if file.endswith(".csv")
            else (line.rstrip("\n").split("\t") for line in lines)
        )
        cells = [*split][header:]
        rows = [
            [row[column].strip() for column in (*texts, label)]
            for row in cells
            if len(row) > max(*texts, label)
        ]
        if name.endswith("_classes"):  # whether two sentences mean the same
            rows = [[*row[:-1], "same" if float(row[-1]) >= 3 else "other"] for row in rows]
        return [row for row in rows if all(map(str.strip, row))]

    train = read(file)
    if not other:  # rows of such files are sorted
        np.random.default_rng(1).shuffle(train)
    return train[:size], read(other)[:other_size] if other else train[size : size + other_size]


def write_rows(name: str, data: Path, folder: Path) -> tuple[Path, Path]:
    """The files of a set with text and label."""
    parts = dict(zip(("train.tsv", "test.tsv"), rows_of(name, data), strict=True))
    for file, rows in parts.items():
        head = ["text", "label"] if len(rows[0]) == 2 else ["sentence1", "sentence2", "label"]
        lines = ["\t".join(cell.replace("\t", " ") for cell in row) for row in (head, *rows)]
        (folder / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "train.tsv", folder / "test.tsv"


def write_sentences(name: str, data: Path, folder: Path) -> tuple[Path, Path]:
    """The files of a set of tagged sentences."""
    train, train_size, test, test_size = CONLL_FILES[name]
    for file, part, size in ((train, "train.conll", train_size), (test, "test.conll", test_size)):
        text = "".join(line for line in opened(data / file) if not line.startswith("-DOCSTART-"))
        sentences = islice(filter(None, map(str.strip, text.split("\n\n"))), size)
        (folder / part).write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    return folder / "train.conll", folder / "test.conll"


def main(data: Path, out: Path, *names: str) -> None:
    for given in names or (*DATA_SETS, *CONLL_FILES):
        name, _, seed = given.partition(":")
        folder = out / given.replace(":", "-")
        folder.mkdir(parents=True, exist_ok=True)
        write = write_sentences if name in CONLL_FILES else write_rows
        train, test = write(name, data, folder)
        recipe = folder / "recipe.yaml"
        run = folder / "run"
        start = time.perf_counter()
        if not run.exists():
            regard.check(str(train), out=recipe)
            regard.train(recipe, [f"training.seed={seed or 1}"], out=run, quiet=True)
        minutes = (time.perf_counter() - start) / 60
        measured = regard.evaluate(run, files=[str(test)], baseline=True)
        row: dict[str, object] = {
            "set": given,
            "model": measured["baseline"]["model"],
            "minutes": round(minutes, 1),
        }
        for metric in filter(measured["baseline"].__contains__, SHOWN_METRICS):
            row[metric] = [
                round(measured[metric], 4),
                round(measured["baseline"][metric], 4),
            ]  # ours, the baseline's
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
