"""Chapter 8: what pre-training buys, what it predicts, and which parts of it count."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch

from regard.api import Run, evaluate, predict
from regard.config import Tree
from regard.course.lab import (
    FROZEN_HEAD,
    LANGUAGE_MODELS,
    MODEL_TITLES,
    PRETRAINING_TEXTS,
    Findings,
    Lab,
    last_loss,
    text_recipe,
    training_of,
)
from regard.course.seeds import Claim
from regard.data.example import Example
from regard.data.segments import OUTCOMES, Segments
from regard.runs.examples import examples_of
from regard.tasks.masked_language_modeling import FilledGaps
from regard.views.compare import training_length
from regard.views.report import Curves, HeatMap, HeatMaps, Series, Table

PAIRED_TEXTS = {"errands": 3000}
"""Texts of two sentences, of which the second depends on the first: for next-sentence
prediction."""
FROM_SCRATCH = "BERT from scratch"
PROBE_SENTENCES = 1000
"""Number of sentences for the probe."""
LABEL_COUNTS = (10, 30, 100)
FULL_LABEL_COUNTS = (100, 1000, 10_000)
MASKING_SHARES = {"80 / 10 / 10": (0.8, 0.1), "100 / 0 / 0": (1.0, 0.0), "0 / 0 / 100": (0.0, 0.0)}
"""Shares of the tokens to predict that become [MASK] and that become another token; the rest
stay."""
FULL_STEPS = {"lstm_lm": 2700, "elmo": 800, "gpt": 1900, "bert": 1750}
"""About 35 s each on one H200, batches of 16,384 tokens (docs/what-pretraining-buys.md)."""
FULL_MODELS: dict[str, Tree] = {
    "lstm_lm": {"kind": "lstm_lm", "embedding": 512, "hidden": 1024, "layers": 2},
    "elmo": {"kind": "elmo", "width": 256, "hidden": 1024, "layers": 2, "filters": 512},
    "gpt": {"kind": "gpt", "preset": "small", "layers": 4, "norm": "pre"},
    "bert": {"kind": "bert", "preset": "small", "next_sentence": False},
}
FULL_RATES = {"lstm_lm": 2e-3, "elmo": 2e-3, "gpt": 7e-4, "bert": 7e-4}


CLAIMS = {
    "few_gain": Claim(
        "With few labels, pre-training gains much.",
        lambda n: max(n["elmo_few"], n["gpt_few"]) > n["scratch_few"] + 0.03,
    ),
    "catches_up": Claim(
        "With more labels, training from scratch catches up.",
        lambda n: n["scratch_many"] > n["scratch_few"],
    ),
    "both_sides": Claim(
        "For names, reading both sides is better than one.",
        lambda n: max(n["gpt_tuned"], n["lstm_lm_tuned"]) < n["elmo_tuned"] - 0.01,
    ),
    "bert_ahead": Claim(
        "Fine-tuned, BERT is ahead of GPT.",
        lambda n: n["bert_tuned"] > n["gpt_tuned"] + 0.005,
    ),
    "counts": Claim(
        "15 % of the tokens are predicted, 80 % of these as [MASK].",
        lambda n: abs(n["chosen_share"] - 0.15) < 0.01 and abs(n["mask_share"] - 0.8) < 0.02,
    ),
    "copied": Claim(
        "Tokens that are not masked are copied.",
        lambda n: n["all_kept_loss"] < 0.1 < 1 < n["paper_loss"],
    ),
    "next_alone": Claim(
        "Next sentences alone teach hardly any words.",
        lambda n: n["next_masked"] < n["both_masked"] - 0.2,
    ),
    "milk": Claim(
        "The store sells milk: the sentence that follows is found.",
        lambda n: n["store_milk"] > n["store_monkeys"],
    ),
    "sees_itself": Claim(
        "A language model that sees the word copies it.",
        lambda n: n["seen_loss"] < 0.1 < n["hidden_loss"],
    ),
}
"""What this chapter claims, checked with the numbers of each seed."""


def tag(
    lab: Lab,
    name: str,
    size: int,
    start: Run | Tree,
    head: Tree | None = None,
    steps: int = 100,
) -> float:
    """F1 of names learned from this many sentences."""
    run = lab.fine_tune(name, lab.tagged_names(size), start, "tagging", steps, head)
    return float(evaluate(run, overwrite=True)["f1"])


def experiment(lab: Lab) -> Findings:
    """Run all parts: each trains the models it needs and returns figures and numbers."""
    runs = lab.pretrained()
    found = _few_labels(lab, runs) | _directions(lab, runs) | _masking(lab, runs)
    return found | _objectives(lab) | _without_mask(lab, runs["gpt"])


def _few_labels(lab: Lab, runs: dict[str, Run]) -> Findings:
    """Pre-train for equal times, then learn from a few labels, from those runs and from scratch."""
    models = LANGUAGE_MODELS
    labels = LABEL_COUNTS
    if lab.full:
        models = FULL_MODELS
        labels = FULL_LABEL_COUNTS
        folder = lab.full.resolve() / "nsmc"
        runs = _full_runs(lab, folder)

    def learned(start: Run | Tree, size: int) -> float:
        if not lab.full:
            return tag(
                lab,
                f"{size}-labels",
                size,
                start,
                steps=300 if isinstance(start, dict) else 100,
            )
        steps = 200 if size < 10_000 else 600
        run = lab.fine_tune(
            f"{size}-labels", _nsmc(lab, folder, size), start, steps=steps, rate=2e-4
        )
        return float(evaluate(run, overwrite=True)["accuracy"])

    starts: dict[str, Run | Tree] = {MODEL_TITLES[kind]: run for kind, run in runs.items()}
    own = {"tokenizer": {"file": str((runs["bert"].folder / "tokenizer.json").resolve())}}
    starts[FROM_SCRATCH] = {"model": models["bert"], **own}
    means = {name: [learned(start, size) for size in labels] for name, start in starts.items()}
    rows: list[list[Any]] = []
    for kind, run in runs.items():
        steps, spent = training_length(run.events())
        rows.append(
            [
                MODEL_TITLES[kind],
                steps,
                spent,
                last_loss(run, "validation"),
                *means[MODEL_TITLES[kind]],
            ]
        )
    rows.append([FROM_SCRATCH, None, None, None, *means[FROM_SCRATCH]])
    ticks = [(float(place), f"{size:,}") for place, size in enumerate(labels)]
    series = [Series(name, [place for place, _ in ticks], own) for name, own in means.items()]
    columns = ["model", "updates", "seconds", "own loss", *(f"{size:,} labels" for size in labels)]
    found: Findings = {
        "labels": Curves(series, "labels", "accuracy" if lab.full else "F1", x_ticks=ticks),
        "equal_time": Table(columns, rows, formats=["", "", ".0f", ".2f", ".3f"]),
        "probed": PROBE_SENTENCES,
    }
    named = {
        "": labels,
        "scratch_": means[FROM_SCRATCH],
        **{f"{kind}_": means[MODEL_TITLES[kind]] for kind in runs},
    }
    for start_of_name, values in named.items():
        found |= {
            f"{start_of_name}{word}": x
            for word, x in zip(("few", "middle", "many"), values, strict=True)
        }
    return found


def _full_runs(lab: Lab, folder: Path) -> dict[str, Run]:
    """Train the four models on 250,000 unlabelled film reviews, with one vocabulary."""
    text = {
        "text": str(folder / "unlabelled.txt.xz"),
        "documents": "lines",
        **({"size": 300} if lab.quick else {}),
    }
    data = {"train": text, "validation": {"split": 0.02}, "max_length": 128}
    runs = dict[str, Run]()
    for kind in ("bert", "gpt", "elmo", "lstm_lm"):
        vocabulary: Tree = {"kind": "wordpiece", "vocabulary": 16_000}
        if runs:
            vocabulary = {"file": str((runs["bert"].folder / "tokenizer.json").resolve())}
        training = training_of(FULL_STEPS[kind], FULL_RATES[kind], 300, 16_384, optimizer="adamw")
        runs[kind] = lab.train(
            f"nsmc-{kind}", text_recipe(FULL_MODELS[kind], data, vocabulary, training)
        )
    return {kind: runs[kind] for kind in LANGUAGE_MODELS}


def _nsmc(lab: Lab, folder: Path, size: int) -> Tree:
    columns = {"text": "document", "label": "label"}
    train = {
        "file": str(folder / "ratings_train.tsv.xz"),
        "size": size,
        "seed": 10 * lab.seed,
        **columns,
    }
    test = {"file": str(folder / "ratings_test.tsv.xz"), "size": 5000, **columns}
    return {
        "train": train,
        "validation": {"split": 0.1},
        "test": test,
        "max_length": 128,
        "bad_lines": "drop",
    }


def _directions(lab: Lab, runs: dict[str, Run]) -> Findings:
    """Find names by the context on their left and right: a linear probe on frozen features, and all
    weights trained."""
    looks = {
        "lstm_lm": "one direction",
        "gpt": "one direction",
        "elmo": "two, shallow",
        "bert": "two, deep",
    }
    rows = []
    numbers = Findings()
    for kind, look in looks.items():
        frozen = tag(
            lab,
            "probe",
            PROBE_SENTENCES,
            runs[kind],
            head=FROZEN_HEAD | ({"features": "mix"} if kind == "elmo" else {}),
        )
        tuned = tag(lab, "tagger", PROBE_SENTENCES, runs[kind], head={"freeze": 0})
        numbers |= {f"{kind}_frozen": frozen, f"{kind}_tuned": tuned}
        rows.append([MODEL_TITLES[kind], look, frozen, tuned])
    return {
        "directions": Table(["model", "looks in", "frozen", "fine-tuned"], rows, formats=[".3f"]),
        **numbers,
    }


def _masking(lab: Lab, runs: dict[str, Run]) -> Findings:
    """Count what becomes of the tokens to predict, and compare three ways."""
    rows = []
    numbers = Findings()
    for name, (hidden, replaced) in MASKING_SHARES.items():
        data = lab.texts(PRETRAINING_TEXTS) | {"mask_share": hidden, "random_share": replaced}
        run = (
            runs["bert"]
            if hidden == 0.8
            else lab.pretrain("masking", data, LANGUAGE_MODELS["bert"])
        )
        frozen, tuned = (
            tag(lab, "after-masking", LABEL_COUNTS[1], run, head=head)
            for head in (FROZEN_HEAD, None)
        )
        loss = last_loss(run, "validation")
        word = {0.8: "paper", 1.0: "all_masked", 0.0: "all_kept"}[hidden]
        rows.append([name, loss, frozen, tuned])
        numbers |= {f"{word}_loss": loss, f"{word}_frozen": frozen, f"{word}_tuned": tuned}
    examples = cast(Segments, examples_of(runs["bert"], "train", []))
    counts = examples.outcomes(1000, 4096)
    every = sum(counts.values())
    chosen = sum(counts.values()) - counts[OUTCOMES[0]]
    shares = [
        [name, counts[name], counts[name] / every, counts[name] / chosen] for name in OUTCOMES[1:]
    ]
    read = [[name, " ".join(pieces)] for name, pieces in examples.pieces(1).items()]
    columns = ["[MASK] / another / unchanged, %", "own loss", "frozen", "fine-tuned"]
    shown = lab.examples(sample=Table(["", "tokens"], read))
    return (
        shown
        | numbers
        | {
            "chosen_share": chosen / every,
            "mask_share": counts["[MASK]"] / chosen,
            "maskings": Table(columns, rows, formats=[".3f"]),
            "counts": Table(
                ["token to predict", "tokens", "of all", "of those to predict"],
                shares,
                formats=[".1%"],
            ),
        }
    )


def _objectives(lab: Lab) -> Findings:
    """Compare predicting masked tokens, next sentences, or both; and show the examples of the
    paper."""
    data = lab.texts(PAIRED_TEXTS)
    size = dict[str, Any](steps=1600)
    if lab.full:
        size = dict[str, Any](steps=3000, vocabulary=20_000, batch_tokens=8192)
        file = {
            "text": str(lab.full.resolve() / "wikitext2" / "wiki.train.tokens.xz"),
            "documents": "lines",
        }
        data = {"train": [*data["train"], file], "validation": {"split": 0.02}, "max_length": 64}
    both = {**LANGUAGE_MODELS["bert"], "next_sentence": True}
    ways = {
        "both": (both, data),
        "masked tokens alone": (LANGUAGE_MODELS["bert"], data),
        "next sentences alone": (both, data | {"masked_weight": 0.0}),
    }
    rows = []
    numbers = Findings()
    runs = dict[str, Run]()
    for name, (model, texts) in ways.items():
        best: dict[str, Any] = {"best": "next_sentence_loss"} if "masked_weight" in texts else {}
        run = runs[name] = lab.pretrain("objective", texts, model, **size, **best)
        log = [line for line in run.events() if line["event"] == "validation"][-1]
        word = {"both": "both", "masked tokens alone": "masked", "next sentences alone": "next"}[
            name
        ]
        follows = log.get("next_sentence_accuracy")
        numbers |= {f"{word}_masked": log["masked_accuracy"], f"{word}_next": follows or 0.0}
        rows.append([name, log["masked_accuracy"], follows])
    columns = ["learned from", "masked tokens", "next sentences"]
    return {"objectives": Table(columns, rows, formats=[".3f"]), **_paper(runs["both"]), **numbers}


def _paper(run: Run) -> Findings:
    """Ask the examples of the paper of a model that knows the words, and show the three embeddings
    of a pair."""
    first = "the man went to the store."
    seconds = ("he bought a gallon of milk.", "he fed the monkeys.", "it barks at the postman.")
    followed = predict(run, [(first, second) for second in seconds])
    rows = [
        [first, second, float(prediction.to_json()["next_sentence"])]
        for second, prediction in zip(seconds, followed, strict=True)
    ]
    gaps = []
    for texts in (
        ("my dog is [MASK].",),
        ("my [MASK] is hairy.", "it barks at the postman."),
        ("the man went to the [MASK].", "he bought a gallon of milk."),
    ):
        [filled] = predict(run, [texts])
        mask = filled.to_json()["masks"][0]
        words = [
            f"{word} {p:.2f}"
            for word, p in zip(mask["words"][:3], mask["probabilities"][:3], strict=True)
        ]
        gaps.append([" ".join(texts), "  ".join(words)])
    model: Any = run.load_model()
    gap_answers = cast(FilledGaps, run.task.views.gaps)
    row = gap_answers.framed(model, Example({"first": first, "second": seconds[0]}, "input"))
    ids = torch.tensor(row.ids)
    segments = torch.tensor(row.segments)
    embedding = model.embedding
    with torch.inference_mode():
        tables = {
            "token": embedding.tokens(ids),
            "segment": embedding.segments(segments),
            "position": embedding.positions.learned(torch.arange(len(ids))),
        }
    tokens = run.tokenizers["text"].pieces(row.ids)
    tables["sum"] = torch.stack([*tables.values()]).sum(0)
    columns = [str(place) for place in range(16)]
    return {
        "next": Table(["first", "second", "P(next)"], rows, formats=[".3f"]),
        "gaps": Table(["text", "most probable"], gaps),
        "embeddings": [
            HeatMaps([HeatMap(tokens, columns, table[:, :16].numpy(), name)], title=name)
            for name, table in tables.items()
        ],
        "store_milk": rows[0][2],
        "store_monkeys": rows[1][2],
        "dog_is": gaps[0][1].split()[0],
    }


def _without_mask(lab: Lab, masked: Run) -> Findings:
    """Train a language model whose tokens see what they are to predict."""
    model = LANGUAGE_MODELS["gpt"] | {"look_ahead": True}
    sees = lab.pretrain("gpt-look-ahead", lab.texts(PRETRAINING_TEXTS), model)
    rows = []
    numbers = Findings()
    for name, run in (("hidden", masked), ("seen", sees)):
        loss = last_loss(run, "train")
        f1 = tag(lab, "after-gpt", LABEL_COUNTS[1], run)
        [written] = predict(run, ["The pacing was"], beam=1, overrides=["search.max_length=12"])
        numbers |= {f"{name}_loss": loss, f"{name}_f1": f1}
        rows.append([name, loss, f1, written.to_json()["output"]])
    columns = ["the next token is", "training loss", "F1, fine-tuned", "The pacing was ..."]
    return {"look_ahead": Table(columns, rows, formats=[".3f"]), **numbers}
