"""Chapter 7: vectors of words and their analogies; then a word with two meanings, in static and in
contextual vectors."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import islice, product
from random import Random
from typing import Any, cast

import numpy as np

from regard.api import Run, explain, features, load, nearest_words, vectors
from regard.config import Tree
from regard.course.lab import MODEL_TITLES, Findings, Lab, built_in, flat, text_recipe, training_of
from regard.course.seeds import Claim
from regard.data.corpora import AmbiguousSentence, Part, analogies, meanings
from regard.models.base import Contextual
from regard.views.report import Cell, Curves, Numbers, Series, Table

STATIC_MODELS: dict[str, tuple[str, Tree, float]] = {
    "cbow": ("CBOW", {"kind": "word2vec", "method": "cbow"}, 3e-2),
    "skip_gram": ("skip-gram", {"kind": "word2vec"}, 3e-2),
    "cbow_tree": (
        "CBOW, hierarchical softmax",
        {"kind": "word2vec", "method": "cbow", "loss": "hierarchical_softmax"},
        3e-2,
    ),
    "skip_gram_tree": (
        "skip-gram, hierarchical softmax",
        {"kind": "word2vec", "loss": "hierarchical_softmax"},
        3e-2,
    ),
    "fasttext": ("fastText", {"kind": "fasttext", "buckets": 5000}, 1e-1),
    "glove": ("GloVe", {"kind": "glove", "window": 5, "x_max": 10}, 5e-2),
}
"""Title, model and learning rate of each way to learn static vectors: the recipes facts-word2vec,
facts-fasttext-korean and facts-glove with one width and half the steps."""
SUBWORDS: dict[str, Tree] = {
    "en": {"shortest": 3, "longest": 6},
    "ko": {"shortest": 1, "longest": 4},
}
"""The lengths of fastText's n-grams: a Korean syllable is one character."""
SHOWN_WORDS = {
    "en": ["king", "Paris", "puppy", "sang"],
    "ko": ["왕", "파리", "강아지", "불렀다"],
}
SHOWN_ANALOGIES = {
    "en": ["king queen man", "France Paris Korea", "dog puppy cat"],
    "ko": ["왕 여왕 남자", "프랑스 파리 한국", "개 강아지 소"],
}
UNREAD_ENDINGS = {"en": "s", "ko": "까지도"}
"""An ending that no noun of the facts has."""
VERBS = "past"
"""The relation of the facts whose words are not nouns."""
WORD_BLOCK_SIZES: Tree = {"layers": 2, "width": 64, "heads": 4, "feed_forward": 128, "dropout": 0.0}
PRETRAINED_MODELS: dict[str, tuple[Tree, int, float]] = {
    "word2vec": ({"kind": "word2vec", "width": 64}, 200, 1e-2),
    "elmo": (
        {"kind": "elmo", "words": "tokens", "width": 32, "hidden": 64, "dropout": 0.0},
        300,
        5e-3,
    ),
    "gpt": ({"kind": "gpt", **WORD_BLOCK_SIZES, "norm": "post"}, 200, 2e-3),
    "bert": ({"kind": "bert", **WORD_BLOCK_SIZES, "next_sentence": False}, 800, 2e-3),
}
"""Model, steps and learning rate."""
HOMONYM_SENTENCES = {
    "ko": (
        "배",
        [f"민수는 어제 배를 {verb}." for verb in ("탔어요", "놓쳤어요", "깎았어요", "주물렀어요")],
    ),
    "en": ("bank", [f"Anna said the bank {verb} today." for verb in ("paid", "hired", "flooded")]),
}
HOMONYM_COUNTS: dict[Part, int] = {"train": 1500, "test": 500}
PRONOUN_COUNTS: dict[Part, int] = {"train": 600, "test": 200}
"""Numbers of sentences on which a probe is fitted and tested."""
NEIGHBOURS_SHOWN = 3


CLAIMS = {
    "analogies": Claim(
        "CBOW and skip-gram learn vectors by which most analogies are right.",
        lambda n: (
            min(
                n[f"{language}_{key}"] for language in ("en", "ko") for key in ("cbow", "skip_gram")
            )
            > 0.8
        ),
    ),
    "tree": Claim(
        "Hierarchical softmax learns as good ones as negative sampling.",
        lambda n: all(
            n[f"{language}_{key}_tree"] > n[f"{language}_{key}"] - 0.1
            for language in ("en", "ko")
            for key in ("cbow", "skip_gram")
        ),
    ),
    "subwords": Claim(
        "fastText knows forms that it has never read.",
        lambda n: min(n["en_unread"], n["ko_unread"]) > 0.8,
    ),
    "glove": Claim(
        "GloVe, which fits counts, has the fewest analogies of so small a text.",
        lambda n: all(
            n[f"{language}_glove"] < n[f"{language}_{key}"]
            for language in ("en", "ko")
            for key in STATIC_MODELS
            if key != "glove"
        ),
    ),
    "static": Claim(
        "Static vectors do not tell the meanings apart.",
        lambda n: max(n["ko_word2vec_before"], n["en_word2vec_before"]) < 0.65,
    ),
    "gpt_before": Claim(
        "GPT tells the meaning that was decided before the word.",
        lambda n: min(n["ko_gpt_before"], n["en_gpt_before"]) > 0.85,
    ),
    "gpt_after": Claim(
        "It does not tell the one that is decided after it.",
        lambda n: max(n["ko_gpt_after"], n["en_gpt_after"]) < 0.65,
    ),
    "elmo": Claim(
        "ELMo tells it: it reads both sides.",
        lambda n: min(n["ko_elmo_after"], n["en_elmo_after"]) > 0.75,
    ),
    "bert": Claim(
        "BERT tells it, too.",
        lambda n: min(n["ko_bert_before"], n["ko_bert_after"], n["en_bert_after"]) > 0.85,
    ),
    "apart": Claim(
        "In BERT, 배 is nearer to 배 of the same meaning.",
        lambda n: 1 - n["ko_other"] > 1.5 * (1 - n["ko_same"]),
    ),
    "mixes": Claim(
        "A task that needs context gives the words alone less weight.",
        lambda n: n["meaning_static"] < n["word_static"],
    ),
}
"""What this chapter claims, checked with the numbers of each seed."""


def _static_vectors(lab: Lab, language: str) -> Findings:
    """Learn vectors of words in six ways from the same facts, in which it is known which analogies
    are right."""
    corpus = f"facts-{language}"
    rows = []
    numbers = Findings()
    runs = dict[str, Run]()
    for key, (title, model, rate) in STATIC_MODELS.items():
        sizes = {"width": 32} | (SUBWORDS[language] if key == "fasttext" else {})
        recipe = text_recipe(
            model | sizes,
            built_in(corpus, 4000, 200),
            {"kind": "word", "vocabulary": 2000},
            training_of(200, rate, warmup=10, batch_tokens=2048, decode=0),
        )
        runs[key] = lab.train(f"{corpus}-{key.replace('_', '-')}", recipe)
        scores = nearest_words(runs[key], analogy_list=corpus).scores
        shares = {score.section: score.right / max(1, score.total) for score in scores}
        rows.append([title, *shares.values()])
        numbers[f"{language}_{key}"] = shares["all"]
    table = Table(["learned by", *shares], rows, formats=[".2f"])
    seen = nearest_words(runs["cbow"], SHOWN_WORDS[language], analogies=SHOWN_ANALOGIES[language])
    nearest, answers = (
        section.parts[0] for section in seen.report().sections if section.heading != "Map"
    )
    unread = _unread_forms(lab, language, runs["fasttext"])
    shown = lab.examples(
        **{f"{language}_near": nearest, f"{language}_answers": answers, f"{language}_map": seen.map}
    )
    return numbers | {f"{language}_analogies": table} | shown | unread


def _unread_forms(lab: Lab, language: str, run: Run) -> Findings:
    """Ask fastText for the nearest word of nouns with an ending that it has not read: is it the noun,
    or another form of it?"""
    ending = UNREAD_ENDINGS[language]
    nouns = sorted(
        {
            noun
            for analogy in analogies(f"facts-{language}")
            for noun in analogy[1:]
            if analogy.relation != VERBS and not noun.endswith(ending)
        }
    )
    asked = [noun + ending for noun in nouns]
    found = [near[0].word for near in nearest_words(run, asked).neighbours]

    def noun_in(word: str) -> str:
        return max((noun for noun in nouns if word.startswith(noun)), key=len, default="")

    rows = [[form, word] for form, word in zip(asked, found, strict=True)]
    right = [noun_in(word) == noun for noun, word in zip(nouns, found, strict=True)]
    table = Table(["form", "nearest word by fastText"], rows[:: len(rows) // 8])
    return lab.examples(**{f"{language}_forms": table}) | {
        f"{language}_unread": float(np.mean(right)),
        f"{language}_unread_asked": len(nouns),
    }


def _run(lab: Lab, language: str, name: str) -> Run:
    model, steps, rate = PRETRAINED_MODELS[name]
    corpus = f"meanings-{language}"
    training = training_of(steps, rate, warmup=30, batch_tokens=2048, decode=0)
    recipe = text_recipe(model, built_in(corpus, 8000, 200), {"kind": "word"}, training)
    return lab.train(f"{corpus}-{name}", recipe)


@cache
def _marked(language: str, part: Part, kind: str, count: int) -> list[AmbiguousSentence]:
    """Sentences of one kind; those of the test were not seen in training."""
    every = meanings(f"meanings-{language}", Random(f"{part} {kind}"), part)
    return list(islice((mark for mark in every if mark.kind == kind), count))


def _word(mark: AmbiguousSentence) -> str:
    return mark.text.split(" ")[mark.position].strip(".")


def _at(run: Run, marks: Sequence[AmbiguousSentence], layer: int) -> Numbers:
    """The vector of the marked word of each sentence."""
    found = features(run, [mark.text for mark in marks], layer=layer)
    rows = []
    for number, mark in enumerate(marks):
        places = range(found.offsets[number], found.offsets[number + 1])
        rows.append(
            [place for place in places if found.tokens[place].startswith("▁")][mark.position]
        )
    return found.vectors[rows]


def _probe(known: Numbers, labels: Sequence[str], asked: Numbers) -> list[str]:
    """The class of each vector by a linear classifier, fitted by least squares with a penalty."""
    classes = sorted({*labels})
    mean = known.mean(0)
    deviation = known.std(0) + 1e-3
    x, y = (np.c_[(part - mean) / deviation, np.ones(len(part))] for part in (known, asked))
    targets = np.eye(len(classes))[[classes.index(label) for label in labels]]
    weights = np.linalg.solve(x.T @ x + 10 * np.eye(x.shape[1]), x.T @ targets)
    return [classes[best] for best in (y @ weights).argmax(1)]


def _probed(run: Run, language: str, layer: int, lab: Lab) -> dict[str, float]:
    """How often a probe finds the meaning of a homonym, and how often that of the nearest word with
    one meaning is it.

    Each homonym has a probe of its own. `before` and `after`: where the word stands that tells the
    meaning.
    """
    known, asked = (
        _marked(language, part, "homonym", lab.few(n, 60)) for part, n in HOMONYM_COUNTS.items()
    )
    nouns = _marked(language, "train", "noun", lab.few(500))
    at_known, at_asked, at_nouns = (_at(run, marks, layer) for marks in (known, asked, nouns))
    cosine = _unit(at_asked) @ _unit(at_nouns).T
    right: dict[str, list[bool]] = {"before": [], "after": [], "nearest": []}
    for word in sorted({_word(mark) for mark in asked}):
        of_known, of_asked = (
            [n for n, mark in enumerate(part) if _word(mark) == word] for part in (known, asked)
        )
        said = _probe(at_known[of_known], [known[n].meaning for n in of_known], at_asked[of_asked])
        for n, meaning in zip(of_asked, said, strict=True):
            mark = asked[n]
            right["before" if mark.decided_by < mark.position else "after"].append(
                meaning == mark.meaning
            )
            right["nearest"].append(nouns[int(cosine[n].argmax())].meaning == mark.meaning)
    return {name: float(np.mean(values)) for name, values in right.items()}


def _unit(rows: Numbers) -> Numbers:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _meaning_probes(lab: Lab, language: str, runs: dict[str, Run]) -> Findings:
    """Probe each layer of each model."""
    rows = []
    lines = []
    numbers = Findings()
    for name, run in runs.items():
        depth = cast(Contextual, run.load_model()).depth
        by_layer = [_probed(run, language, layer, lab) for layer in range(depth + 1)]
        for layer, found in enumerate(by_layer):
            rows.append([MODEL_TITLES[name], layer, *found.values()])
        for side in ("before", "after") if depth else ():
            lines.append(
                Series(
                    f"{MODEL_TITLES[name]}, {side}",
                    [*range(depth + 1)],
                    [found[side] for found in by_layer],
                )
            )
        numbers |= {f"{language}_{name}_{key}": value for key, value in by_layer[-1].items()}
    table = Table(
        ["model", "layer", "told before", "told after", "nearest word"], rows, formats=[".2f"]
    )
    curves = Curves(
        lines, "layer", "share of right meanings", x_ticks=[(n, str(n)) for n in range(3)]
    )
    return {f"{language}_probes": table, f"{language}_curves": curves, **numbers}


def _homonym_vectors(lab: Lab, language: str, runs: dict[str, Run]) -> Findings:
    """Show one word in a few sentences, as `regard vectors` does, with the nearest words that have
    one meaning; and over many sentences, the cosines of equal and of other meanings."""
    word, texts = HOMONYM_SENTENCES[language]
    shown = vectors(runs["bert"], texts, word=word)
    nouns = _marked(language, "train", "noun", lab.few(500))
    places = [
        next(n for n, own in enumerate(text.split(" ")) if own.startswith(word)) for text in texts
    ]
    asked = [
        AmbiguousSentence(text, "homonym", place, 0, "")
        for text, place in zip(texts, places, strict=True)
    ]
    near = {}
    for name in ("word2vec", "bert"):
        cosine = _unit(_at(runs[name], asked, -1)) @ _unit(_at(runs[name], nouns, -1)).T
        words = (
            [*dict.fromkeys(_word(nouns[n]) for n in order)][:NEIGHBOURS_SHOWN]
            for order in np.argsort(-cosine)
        )
        near[name] = [", ".join(row) for row in words]
    rows = [*zip(texts, *near.values(), strict=True)]
    marks = _marked(language, "test", "homonym", lab.few(400, 60))
    marks = [mark for mark in marks if _word(mark).startswith(word)]
    unit = _unit(_at(runs["bert"], marks, -1))
    same = np.array([[mark.meaning == other.meaning for other in marks] for mark in marks])
    cosine = unit @ unit.T
    pairs = ~np.eye(len(marks), dtype=bool)
    examples = {
        f"{language}_cosines": flat(shown.report())[1],
        f"{language}_neighbours": Table(
            ["sentence", "nearest by word2vec", "nearest by BERT"], rows
        ),
    }
    return lab.examples(**examples) | {
        f"{language}_same": float(cosine[same & pairs].mean()),
        f"{language}_other": float(cosine[~same].mean()),
    }


def _layer_mix(lab: Lab, elmo: Run) -> Findings:
    """Show ELMo's weights of its layers, learned by two tasks on the frozen model: what a homonym
    means, and which word it is."""
    rows = []
    numbers = Findings()
    for task in ("meaning", "word"):
        lines = []
        for mark in _marked("ko", "train", "homonym", 1500):
            words = mark.text.strip(".").split(" ")
            tags = ["none"] * len(words)
            tags[mark.position] = mark.meaning if task == "meaning" else _word(mark)
            lines.append(json.dumps({"tokens": words, "tags": tags}, ensure_ascii=False) + "\n")
        file = lab.file(f"{task}.jsonl", "".join(lines))
        pretrained = str(elmo.folder.resolve())
        recipe: Tree = {
            "task": "tagging",
            "data": {
                "train": {"file": file, "scheme": "plain"},
                "validation": {"split": 0.1},
            },
            "tokenizer": {"file": f"{pretrained}/tokenizer.json"},
            "head": {"features": "mix", "freeze": "all", "bilstm": None},
            "training": {
                "init": pretrained,
                "steps": 300,
                "learning_rate": 1e-2,
                "warmup": 0,
                "validate_every": 300,
            },
        }
        model: Any = lab.train(f"elmo-{task}", recipe).load_model()
        weights = model.mix.weights_N.tolist()
        rows.append([task, *weights])
        numbers[f"{task}_static"] = weights[0]
    marks = _marked("ko", "test", "homonym", 100)
    lengths = [float(np.linalg.norm(_at(elmo, marks, layer), axis=1).mean()) for layer in range(3)]
    rows.append(["mean length of the vectors", *(Cell(length, ".1f") for length in lengths)])
    return {
        "mix": Table(["task", "words alone", "layer 1", "layer 2"], rows, formats=[".2f"]),
        **numbers,
    }


def _pronoun_probes(lab: Lab, language: str, runs: dict[str, Run]) -> Findings:
    """Find which of the two nouns before a pronoun it refers to: by BERT's attention, and by a
    probe of its vector."""
    bert = runs["bert"]
    loaded = load(runs["bert"])
    known, marks = (
        _marked(language, part, "pronoun", lab.few(n, 40)) for part, n in PRONOUN_COUNTS.items()
    )
    nouns = defaultdict[int, set[int]](set)  # the places of both nouns, by that of the pronoun
    for mark in (*known, *marks):
        nouns[mark.position].add(mark.decided_by)
    followed = list[list[bool]]()
    for mark in marks:
        read = [
            attention.between_words().weights
            for attention in explain(loaded, mark.text).attentions.values()
        ]
        own = mark.decided_by + 1  # after [CLS]
        other = sum(nouns[mark.position]) - mark.decided_by + 1
        followed.append(
            [row[own] > row[other] for heads in read for row in heads[:, mark.position + 1]]
        )
    shares = np.array(followed)
    right, labels = (
        ["first" if mark.decided_by == min(nouns[mark.position]) else "second" for mark in part]
        for part in (marks, known)
    )
    said = _probe(_at(bert, known, -1), labels, _at(bert, marks, -1))
    best = int(shares[::2].mean(0).argmax())  # chosen on one half, measured on the other
    measured = {
        "always the first noun": right.count("first") / len(right),
        "mean of all heads": float(shares.mean()),
        "best head": float(shares[1::2, best].mean()),
        "probe of the last layer": float(np.mean(np.array(said) == right)),
    }
    table = Table(["by", "share of right nouns"], [*measured.items()], formats=[".2f"])
    keys = (f"{language}_{key}" for key in ("first", "heads", "head", "probe"))
    return {f"{language}_pronouns": table, **dict(zip(keys, measured.values(), strict=True))}


def experiment(lab: Lab) -> Findings:
    """Learn static vectors in six ways; then train four models per language: what their vectors know
    of a homonym and of a pronoun, and from which layer."""
    found = _static_vectors(lab, "en") | _static_vectors(lab, "ko")
    runs = {
        language: {name: _run(lab, language, name) for name in PRETRAINED_MODELS}
        for language in HOMONYM_SENTENCES
    }
    found |= _layer_mix(lab, runs["ko"]["elmo"])
    for part, own in product((_meaning_probes, _homonym_vectors, _pronoun_probes), runs.items()):
        found |= part(lab, *own)
    return found
