"""The recipes that `regard check FILE` proposes beside TF-IDF with logistic regression, on labelled sets.

python benchmarks/proposals.py DATA FOLDER [SET ...]         DATA holds nsmc/, imdb/, glue/ ...; runs are kept in FOLDER
python benchmarks/proposals.py DATA FOLDER hate:2            with another seed

For each set the first rows of its training file are written to FOLDER/SET/train.tsv. Both sides get this file and are
measured on another one. Ours sets a part of it aside to stop by, and another to measure with; TF-IDF learns from all of
it. It reads words (scikit-learn's defaults, one and two words), then one to three characters within words; of two
texts, both after each other.
"""

import csv
import json
import lzma
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

import regard

SETS = {  # training file and its rows, test file and its rows, columns of the texts, that of the label, a header?
    "nsmc": ("nsmc/ratings_train.tsv", 20_000, "nsmc/ratings_test.tsv", 10_000, [1], 2, True),
    "imdb": ("imdb/train.tsv", 10_000, "imdb/test.tsv", 5_000, [2], 1, False),
    "sst2": ("glue/SST-2/train.tsv", 20_000, "glue/SST-2/dev.tsv", 872, [0], 1, True),
    "sst2_sentences": ("glue/SST2_sentences/train.tsv", 6_920, "glue/SST2_sentences/test.tsv", 1_821, [0], 1, False),
    "cola": ("glue/CoLA/train.tsv", 8_551, "glue/CoLA/dev.tsv", 1_043, [3], 1, False),
    "hate": ("ko_hate_speech/train.tsv", 7_896, "ko_hate_speech/dev.tsv", 471, [0], 3, True),
    "gender_bias": ("ko_hate_speech/train.tsv", 7_896, "ko_hate_speech/dev.tsv", 471, [0], 1, True),
    "chatbot": ("ko_chatbot/ChatbotData.csv", 9_823, "", 2_000, [0], 2, True),
    "mrpc": ("glue/MRPC/train.tsv", 3_667, "glue/MRPC/msr_paraphrase_test.txt", 1_725, [3, 4], 0, True),
    "rte": ("glue/RTE/train.tsv", 2_490, "glue/RTE/dev.tsv", 277, [1, 2], 3, True),
    "kornli": ("kornlu/xnli.test.ko.tsv", 5_010, "kornlu/xnli.dev.ko.tsv", 2_490, [0, 1], 2, True),
    "stsb": ("glue/STS-B/train.tsv", 5_749, "glue/STS-B/dev.tsv", 1_500, [7, 8], 9, True),
    "korsts": ("kornlu/sts-train.tsv", 5_749, "kornlu/sts-test.tsv", 1_379, [5, 6], 4, True),
}
NUMBERS = ("stsb", "korsts")
"""Sets whose labels are numbers: Pearson's correlation beside ridge regression."""
READ = {"words": {"ngram_range": (1, 2)}, "characters": {"analyzer": "char_wb", "ngram_range": (1, 3)}}
"""What TF-IDF counts."""
Rows = list[list[str]]


def rows_of(name: str, data: Path) -> tuple[Rows, Rows]:
    """The rows of a set, text or texts and label: those to learn from and those to measure with."""
    file, size, other, other_size, texts, label, header = SETS[name]

    def read(name: str) -> Rows:
        with lzma.open(data / f"{name}.xz", "rt", encoding="utf-8", newline="") as opened:
            lines = (line.rstrip("\n").split("\t") for line in opened)
            cells = [*(csv.reader(opened) if name.endswith(".csv") else lines)][header:]
        rows = [[row[column].strip() for column in (*texts, label)] for row in cells if len(row) > max(*texts, label)]
        return [row for row in rows if all(map(str.strip, row))]

    train = read(file)
    if not other:  # rows of such files are sorted
        np.random.default_rng(1).shuffle(train)
    return train[:size], read(other)[:other_size] if other else train[size : size + other_size]


def linear(name: str, train: Rows, test: Rows, read: str) -> float:
    """TF-IDF with logistic regression: the accuracy; with ridge regression for numbers: Pearson's correlation."""
    vectorizer = TfidfVectorizer(**READ[read])
    train_XF = vectorizer.fit_transform(" ".join(row[:-1]) for row in train)
    test_XF = vectorizer.transform(" ".join(row[:-1]) for row in test)
    known, wanted = ([row[-1] for row in rows] for rows in (train, test))
    if name in NUMBERS:
        found = Ridge().fit(train_XF, [*map(float, known)]).predict(test_XF)
        return float(np.corrcoef(found, [*map(float, wanted)])[0, 1])
    return float(np.mean(LogisticRegression(max_iter=1000).fit(train_XF, known).predict(test_XF) == wanted))


def proposed(name: str, folder: Path, seed: str = "1") -> float:
    """What the proposed recipe reaches on the test rows."""
    recipe, run = folder / "recipe.yaml", folder / "run"
    if not run.exists():
        regard.check(str(folder / "train.tsv"), out=recipe)
        regard.train(recipe, [f"training.seed={seed}"], out=run, quiet=True)
    scores = regard.evaluate(run, files=[str(folder / "test.tsv")])
    return scores["pearson" if name in NUMBERS else "accuracy"]


def main(data: Path, out: Path, *names: str) -> None:
    for given in names or SETS:
        name, _, seed = given.partition(":")
        train, test = rows_of(name, data)
        folder = out / given.replace(":", "-")
        folder.mkdir(parents=True, exist_ok=True)
        head = ["text", "label"] if len(train[0]) == 2 else ["sentence1", "sentence2", "label"]
        for file, rows in (("train.tsv", train), ("test.tsv", test)):
            lines = ["\t".join(cell.replace("\t", " ") for cell in row) for row in (head, *rows)]
            (folder / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
        start = time.perf_counter()
        bars = {f"tfidf_{read}": linear(name, train, test, read) for read in READ}
        middle = time.perf_counter()
        ours = proposed(name, folder, seed or "1")
        seconds = [round(middle - start, 1), round(time.perf_counter() - middle, 1)]
        print(json.dumps({"set": given, "rows": len(train), **bars, "ours": ours, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
