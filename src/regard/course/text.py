"""Chapter 0: text before attention. Cleaning, tokens, bags of words, and n-grams beside an LSTM."""

from __future__ import annotations

from random import Random

import torch

from regard.api import Run, evaluate, predict
from regard.config import Tree
from regard.course.lab import LANGUAGE_MODELS, Findings, Lab, built_in, text_recipe, training_of
from regard.course.seeds import Claim
from regard.data.batches import Padded
from regard.data.corpora import generate
from regard.models.ngram_lm import NgramConfig, NgramLanguageModel
from regard.text.clean import Cleaning
from regard.text.normalise import nfc, split_sentences
from regard.views.report import Cell, Curves, Series, Table
from regard.views.show import show

UNCLEAN_TEXT = "Dr. Kim &amp; Ms. Lee didn 't come , but 1 @,@ 000 others did .  Why ?"
KOREAN_SENTENCE = "여우들은 도서관에서 책을 읽었어요."
TOPIC_CORPORA = ("tales-en", "portraits-en", "names-en", "reviews-en")
"""Texts whose kind is to be told."""
BAGS: dict[str, Tree] = {
    "one-hot": {"weights": "one_hot"},
    "counts": {"weights": "counts"},
    "TF-IDF": {},
    "TF-IDF without 30 stop words": {"stop_words": 30},
}
NGRAM_ORDERS = (1, 2, 3, 4)
TALE_COUNTS = (60, 400, 2500)
COUNTED_TEXTS = ["the fox slept", "the fox ate", "the bear slept"]

CLAIMS = {
    "topic": Claim("A bag of words tells the kind of a text.", lambda n: n["topic_tf_idf"] > 0.95),
    "order": Claim(
        "It cannot tell an opinion that depends on the order of words; an LSTM can.",
        lambda n: n["opinion_lstm"] > n["opinion_tf_idf"] + 0.15,
    ),
    "smoothing": Claim(
        "Kneser-Ney smoothing is better than adding k.",
        lambda n: n["kneser_ney"] < 0.9 * n["add_k"],
    ),
    "longer": Claim(
        "Three tokens are better than two, and a fourth gains nothing.",
        lambda n: n["trigram"] < 0.95 * n["bigram"] and n["fourgram"] > 0.97 * n["trigram"],
    ),
    "lstm": Claim(
        "An LSTM is better than the best n-gram.", lambda n: n["lstm_much"] < 0.95 * n["trigram"]
    ),
}
"""What this chapter claims, checked with the numbers of each seed."""


def _cleaned() -> Findings:
    """A text of other tools, cleaned, and its sentences."""
    plain = Cleaning(unescape=True, detokenise=True)(UNCLEAN_TEXT)
    rows = [["as it came", UNCLEAN_TEXT], ["cleaned", plain]]
    rows += [[f"sentence {n}", own] for n, own in enumerate(split_sentences(plain), 1)]
    return {"cleaned": Table(["step", "text"], rows)}


def _tokenized() -> Findings:
    """One sentence under every tokenizer."""
    [section] = show("tokenizers", [KOREAN_SENTENCE]).report().sections
    table = next(part for part in section.parts if isinstance(part, Table))
    counts = show("tokenizers", [KOREAN_SENTENCE]).to_json()
    return {
        "tokenizers": table,
        "characters": len(nfc(KOREAN_SENTENCE)),
        "words_unknown": counts["word"]["unknown"],
        "bytes_count": counts["byte"]["count"],
        "bpe_count": counts["bpe"]["count"],
    }


def _counted() -> Findings:
    """Bigrams of three short texts, counted and smoothed by the model itself."""
    words = ["</s>", *dict.fromkeys(word for text in COUNTED_TEXTS for word in text.split())]
    rows = [[0, *(words.index(word) for word in text.split()), 0] for text in COUNTED_TEXTS]
    ids_BL = torch.tensor(rows)
    text = Padded.of(ids_BL, torch.full((len(rows),), ids_BL.shape[1]), None)
    model = NgramLanguageModel(NgramConfig(order=2, smoothing="add_k"), len(words))
    model.count(iter([text]))
    with torch.no_grad():
        p_PV = model.readout(torch.arange(len(words))[:, None].double()).exp()
    table = [[Cell(word), *row] for word, row in zip(words, p_PV.tolist(), strict=True)]
    return {
        "bigrams": Table(["after", *words], table, formats=["", ".2f"]),
        "fox_after_the": float(p_PV[words.index("the"), words.index("fox")]),
    }


def _bag_recipe(data: Tree, changes: Tree, steps: int = 150) -> Tree:
    return {
        "task": "classification",
        "data": data,
        "tokenizer": {"kind": "word", "vocabulary": 4000},
        "model": {"kind": "bag_of_words", **changes},
        "training": training_of(steps, 3e-2, warmup=10, batch_tokens=2048),
    }


def _topic_data(lab: Lab) -> Tree:
    """The first sentence of each text, with the name of its corpus as the label."""
    parts = {}
    for part, count in (("train", 400), ("validation", 40), ("test", 150)):
        rows = [
            (split_sentences(texts[0])[0], name)
            for name in TOPIC_CORPORA
            for texts in generate(name, lab.few(count, 40), lab.seed, part)  # type: ignore[arg-type]
        ]
        rows = [*dict.fromkeys(rows)]
        Random(lab.seed).shuffle(rows)
        header = [("text", "label")]
        parts[part] = lab.pairs(f"kinds-{part}", [*header, *rows], ("text", "label")) | {
            "text": "text",
            "label": "label",
        }
    return parts


def _bags(lab: Lab) -> Findings:
    """Bags of words on the kind of a text and on opinions, and an LSTM on opinions."""
    tasks = {"kind of text": _topic_data(lab), "opinion": built_in("reviews-en", 2000, test=400)}
    found: dict[str, list[float]] = {}
    for name, changes in BAGS.items():
        found[name] = [
            evaluate(lab.train(f"bag-{place}", _bag_recipe(data, changes)))["accuracy"]
            for place, data in enumerate(tasks.values())
        ]
    lstm = _bag_recipe(tasks["opinion"], {}) | {
        "model": {"kind": "bilstm", "preset": "tiny"},
        "training": training_of(350, 5e-3, batch_tokens=1024),
    }
    opinion = evaluate(lab.train("opinion-lstm", lstm))["accuracy"]
    rows = [[name, *(Cell(value, ".2f") for value in values)] for name, values in found.items()]
    rows.append(["bidirectional LSTM", "", Cell(opinion, ".2f")])
    return {
        "bags": Table(["model", *tasks], rows),
        "topic_tf_idf": found["TF-IDF"][0],
        "opinion_tf_idf": found["TF-IDF"][1],
        "opinion_lstm": opinion,
        "opinion_stop": found["TF-IDF without 30 stop words"][1],
        "topic_stop": found["TF-IDF without 30 stop words"][0],
    }


def _tales(lab: Lab, model: Tree, count: int, steps: int, **training: float) -> Run:
    data = built_in("tales-en", count, 60, test=150)
    data["train"] = data["train"] | {"seed": lab.seed}
    settings = training_of(steps, batch_tokens=2048, decode=0, **training)  # type: ignore[arg-type]
    recipe = text_recipe(model, data, {"kind": "word", "vocabulary": 1000}, settings)
    return lab.train(f"tales-{model['kind']}-{count}", recipe)


def _perplexity(run: Run) -> float:
    """Per word, so that vocabularies of different sizes can be compared."""
    return float(evaluate(run)["word_perplexity"])


def _language_models(lab: Lab) -> Findings:
    """Perplexities of n-grams by order, smoothing and number of texts, beside an LSTM's."""

    def ngram(count: int, **changes: object) -> Run:
        model: Tree = {"kind": "ngram", **changes}
        return _tales(lab, model, count, 40, rate=0.1, warmup=0)

    most = TALE_COUNTS[-1]
    by_order = [_perplexity(ngram(most, order=order)) for order in NGRAM_ORDERS]
    by_smoothing = {
        name: _perplexity(ngram(most, smoothing=name)) for name in ("add_k", "interpolation")
    }
    best = [_perplexity(ngram(count)) for count in TALE_COUNTS]
    runs = [
        _tales(lab, LANGUAGE_MODELS["lstm_lm"], count, steps, rate=5e-3)
        for count, steps in zip(TALE_COUNTS, (120, 300, 500), strict=True)
    ]
    lstm = [*map(_perplexity, runs)]
    names = {"add_k": "add k", "interpolation": "interpolation"}
    smoothing = [[names[name], value] for name, value in by_smoothing.items()]
    smoothing.append(["Kneser-Ney", by_order[NGRAM_ORDERS.index(3)]])
    counts = [float(count) for count in TALE_COUNTS]
    sample = ("search.sample=true", f"search.seed={lab.seed}", "search.max_length=30")
    written = [
        [name, predict(run, ["The fox"], overrides=sample)[0].to_json()["output"]]
        for name, run in (
            ("unigrams", ngram(most, order=1)),
            ("bigrams", ngram(most, order=2)),
            ("trigrams", ngram(most, order=3)),
            ("LSTM", runs[-1]),
        )
    ]
    return {
        "orders": Table(
            ["tokens of an n-gram", "perplexity per word"],
            [*zip(NGRAM_ORDERS, by_order, strict=True)],
            formats=["", ".1f"],
        ),
        "smoothings": Table(["smoothing", "perplexity per word"], smoothing, formats=["", ".1f"]),
        "sizes": Curves(
            [Series("trigrams, Kneser-Ney", counts, best), Series("LSTM", counts, lstm)],
            "texts",
            "perplexity per word",
            from_zero=True,
        ),
        "size_table": Table(
            ["texts", "trigrams, Kneser-Ney", "LSTM"],
            [*zip(TALE_COUNTS, best, lstm, strict=True)],
            formats=["", ".1f"],
        ),
        "kneser_ney": by_order[2],
        "bigram": by_order[1],
        "trigram": by_order[2],
        "fourgram": by_order[3],
        "add_k": by_smoothing["add_k"],
        "ngram_little": best[0],
        "lstm_little": lstm[0],
        "lstm_much": lstm[-1],
        **lab.examples(written=Table(["model", "a text that it writes"], written)),
    }


def experiment(lab: Lab) -> Findings:
    """Clean and split a text, show it under every tokenizer, classify bags of words, and compare
    n-grams with an LSTM."""
    by_hand = lab.examples(**_cleaned(), **_tokenized(), **_counted())
    return by_hand | _bags(lab) | _language_models(lab)
