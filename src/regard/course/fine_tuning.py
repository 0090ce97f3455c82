"""Chapter 9: four kinds of task on one pre-trained run, what attention explains, and filters that
are too short."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
import yaml
from numpy.typing import NDArray

from regard.api import Run, evaluate, explain, load, predict
from regard.config import Tree
from regard.course.lab import LANGUAGE_MODELS, Findings, Lab, built_in
from regard.course.seeds import Claim
from regard.data.corpora import as_object, generate
from regard.recipes.shipped import shipped_text
from regard.tasks.regression import spearman
from regard.views.labels import metric_title
from regard.views.report import Bars, Curves, Series, Table

WEIGHED_SENTENCE = "In the end the photography was never tedious, even if the music was dull."
OPINION_COUNTS = (20, 40)
CNN_MODEL: Tree = {"kind": "cnn", "preset": "tiny"}


CLAIMS = {
    "tags": Claim(
        "Tags gain from pre-training.",
        lambda n: n["tags_tuned"] > n["tags_scratch"] + 0.05,
    ),
    "questions": Claim(
        "Questions gain.",
        lambda n: n["questions_tuned"] > n["questions_scratch"] + 0.05,
    ),
    "reviews": Claim(
        "Reviews gain.",
        lambda n: n["single_tuned"] > n["single_scratch"] + 0.03,
    ),
    "pairs": Claim(
        "Pairs gain.",
        lambda n: n["pair_tuned"] > n["pair_scratch"] + 0.03,
    ),
    "sentiment": Claim(
        "Korean sentiment gains, where diaries tell which words are alike.",
        lambda n: n["sentiment_tuned"] > n["sentiment_scratch"] + 0.1,
    ),
    "not_needed": Claim(
        "Attention ranks the words otherwise than leaving them out.",
        lambda n: n["correlation"] < 0.7,
    ),
    "short_filters": Claim(
        "Short filters guess when the names are far apart.",
        lambda n: n["short_near"] > 0.9 and n["short_far"] < 0.7,
    ),
    "reaches": Claim(
        "Attention reaches any distance.",
        lambda n: n["attention_far"] > 0.9,
    ),
}
"""What this chapter claims, checked with the numbers of each seed."""


def experiment(lab: Lab) -> Findings:
    """Fine-tune one BERT of chapter 8 four times, then weigh the words of a sentence in two ways,
    then test word order."""
    bert = lab.pretrained(["bert"])["bert"]
    tasks, single = _tasks(lab, bert)
    return tasks | _sentiment(lab) | _explained(lab, single) | _event_order(lab)


def _tasks(lab: Lab, bert: Run) -> tuple[Findings, Run]:
    """Train each task from the pre-trained run and from scratch, and show one line of its file;
    returns the run for single texts too."""
    text, question, answer = next(generate("portraits-en", 1, 1, "train"))
    pair = {"question": question, "text": text, "answered": "yes" if answer else "no"}
    settings: dict[str, tuple[str, Tree, str, object, str]] = {
        "single text": (
            "classification",
            built_in("reviews-en", 4000, test=500),
            "accuracy",
            _line("reviews-en"),
            "{file: own.jsonl, text: text, label: label}",
        ),
        "pair of texts": (
            "classification",
            _question_files(lab, 3000),
            "accuracy",
            pair,
            "{file: own.jsonl, first: question, second: text, label: answered}",
        ),
        "tags": ("tagging", lab.tagged_names(30), "f1", _line("names-en"), "{file: own.jsonl}"),
        "questions": (
            "question_answering",
            built_in("portraits-en", 1000, test=500),
            "f1",
            _line("portraits-en"),
            "{file: own.jsonl}",
        ),
    }
    rows = []
    files = []
    numbers = Findings()
    runs = dict[str, Run]()
    for name, (task, data, metric, line, corpus) in settings.items():
        word = name.split()[0]
        steps, rate = (1200, 5e-4) if task == "classification" else (300, None)
        runs[name] = lab.fine_tune(word, data, bert, task, steps, rate=rate)
        scratch = lab.fine_tune(
            f"{word}-scratch", data, {"model": LANGUAGE_MODELS["bert"]}, task, steps, rate=rate
        )
        scores = [float(evaluate(run, overwrite=True)[metric]) for run in (scratch, runs[name])]
        numbers |= {f"{word}_scratch": scores[0], f"{word}_tuned": scores[1]}
        rows.append([name, task, data["train"].get("size", 3000), metric_title(metric), *scores])
        files.append([name, corpus, json.dumps(line)])
    columns = ["task", "recipe's task", "labels", "measured by", "from scratch", "fine-tuned"]
    tables = {
        "tasks": Table(columns, rows, formats=[".3f"]),
        "files": Table(["task", "data.train", "a line of own.jsonl"], files),
    }
    return numbers | tables, runs["single text"]


def _sentiment(lab: Lab) -> Findings:
    """Korean sentiment from a few labels, before and after BERT has read diaries without labels: the
    recipes diaries-bert-korean and opinions-korean."""
    texts, labels = (
        yaml.safe_load(shipped_text(name)) for name in ("diaries-bert-korean", "opinions-korean")
    )
    bert = lab.train("diaries", texts)
    rows = []
    numbers = Findings()
    for size in OPINION_COUNTS:
        own = {"corpus": "opinions-ko", "size": size, "seed": lab.seed}
        scratch = labels | {"data": labels["data"] | {"train": own}}
        tuned = {name: part for name, part in scratch.items() if name not in ("model", "tokenizer")}
        tuned["training"] = scratch["training"] | {"init": str(bert.folder.resolve())}
        scores = [
            float(evaluate(lab.train(f"opinions-{name}", recipe), overwrite=True)["accuracy"])
            for name, recipe in (("scratch", scratch), ("tuned", tuned))
        ]
        rows.append([size, *scores])
    numbers["sentiment_scratch"], numbers["sentiment_tuned"] = rows[-1][1:]
    columns = ["labels", "from scratch", "fine-tuned"]
    return {"sentiment": Table(columns, rows, formats=["", ".3f"]), **numbers}


def _question_files(lab: Lab, size: int) -> Tree:
    """Write files of questions, texts and whether the text has the answer, like those of a user."""
    files = {}
    for part, count in (("train", size), ("validation", 60), ("test", 500)):
        rows = generate("portraits-en", count, 1, cast(Any, part))
        asked = [(question, text, "yes" if answer else "no") for text, question, answer in rows]
        files[part] = lab.pairs(f"pairs-{part}", asked, ("first", "second", "label"))
    return files


def _line(name: str) -> object:
    return as_object(name, next(generate(name, 1, 1, "train")))


def _explained(lab: Lab, run: Run) -> Findings:
    """Compare the attention of [CLS] to each word with how much the label's probability falls
    without the word."""
    loaded = load(run)
    agree = []
    same = []
    by_chance = []
    reviews = list(generate("reviews-en", lab.few(60), 1, "test"))
    for text, *_ in reviews:
        _, attended, falls = _weights(loaded, text)
        if falls.max() <= 0:
            continue  # no word matters, so none can be named
        needed = falls == falls.max()  # several words may be needed alike
        agree.append(spearman(attended, falls))
        same.append(needed[attended.argmax()])
        by_chance.append(needed.mean())
    words, attended, falls = _weights(loaded, WEIGHED_SENTENCE)
    rows = [*zip(words, attended.tolist(), falls.tolist(), strict=True)]
    columns = ["word", "attention of [CLS]", "fall without it"]
    shown = lab.examples(
        explained=Table(columns, rows, formats=[".3f"]),
        attended=Bars(words, {"attention": attended.tolist()}, "attention of [CLS]"),
        fallen=Bars(words, {"fall": falls.tolist()}, "fall of the probability without the word"),
        sentence=WEIGHED_SENTENCE,
        most_attended=words[int(attended.argmax())],
        most_fallen=", ".join(words[n] for n in np.flatnonzero(falls == falls.max())),
    )
    return shown | {
        "correlation": float(np.mean(agree)) if agree else 0.0,
        "same_word": float(np.mean(same)) if same else 0.0,
        "same_word_by_chance": float(np.mean(by_chance)) if by_chance else 0.0,
        "reviews": len(reviews),
        "reviews_with_needed_word": len(same),
    }


def _weights(run: Run, text: str) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """The words, the attention of [CLS] to them (mean of layers and heads), and the falls; a word
    is a token here."""
    explanation = explain(run, text, view="occlusion")
    assert explanation.occlusion is not None
    falls = (
        np.asarray(explanation.occlusion.falls_WA, dtype=float)[:, 0].round(3) + 0.0
    )  # no negative zero
    words = list(explanation.occlusion.words)
    shares = np.mean(
        [attention.weights.mean(0)[0] for attention in explanation.of_kind("encoder")], axis=0
    )
    return words, np.asarray(shares[1 : 1 + len(words)], dtype=float), falls


def _event_order(lab: Lab) -> Findings:
    """Ask filters and attention which of two people acts first, further and further apart."""
    data = built_in("order", 6000, test=600)
    models = {
        "short": CNN_MODEL,
        "long": CNN_MODEL | {"widths": [3, 4, 5, 20]},
        "attention": LANGUAGE_MODELS["bert"],
    }
    names = {
        "short": "CNN, filters of 3 to 5",
        "long": "CNN, filters of 3 to 20",
        "attention": "BERT",
    }
    rows = list(generate("order", lab.few(600), 1, "test"))
    between = np.array([_between(text) for text, _ in rows])
    series = []
    table = []
    numbers = Findings()
    for word, model in models.items():
        run = lab.fine_tune("order", data, {"model": model}, steps=900)
        predictions = predict(run, [text for text, _ in rows])
        right = np.array(
            [
                label == own.to_json()["output"]
                for (_, label), own in zip(rows, predictions, strict=True)
            ]
        )
        shares = [float(right[between == count].mean()) for count in range(4)]
        series.append(Series(names[word], [0.0, 1.0, 2.0, 3.0], shares))
        table.append([names[word], *shares])
        numbers |= {f"{word}_near": shares[0], f"{word}_far": shares[3]}
    ticks = [(float(count), str(count)) for count in range(4)]
    columns = ["model", "next to each other", "1 between", "2 between", "3 between"]
    return numbers | {
        "order": Curves(series, "events between the two", "accuracy", x_ticks=ticks),
        "distances": Table(columns, table, formats=[".2f"]),
    }


def _between(text: str) -> int:
    """The number of events between the two people."""
    first, second = sorted(text.index(name) for name in ("Anna", "Ben"))
    return text[first:second].count("then") - 1
