"""Chapter 4: from dot products of the words alone to projections, scaling and heads; what heads
look at and cost, and whether attention finds the word that a pronoun stands for.
"""

from __future__ import annotations

import json
from itertools import product
from random import Random
from typing import Any, cast

import numpy as np
import torch

from regard.api import Loaded, Run, evaluate, explain, load, predict
from regard.config import Tree
from regard.course.lab import (
    TRANSFORMER_MODEL,
    Findings,
    Lab,
    last_loss,
    reverse_recipe,
    reverse_transformer,
)
from regard.course.seeds import Claim
from regard.data.corpora import SYMBOLS, generate
from regard.layers.attention import MultiHeadAttention
from regard.views.attention import module_calls
from regard.views.report import HeatMap, HeatMaps, Table
from regard.views.show import dot_products

SELF_ATTENTION_MODEL: Tree = {
    "kind": "self_attention",
    "width": 64,
    "heads": 2,
    "decoder_layers": 1,
    "feed_forward": 128,
    "norm": "post",
}
ONE_HEAD_MODEL: Tree = TRANSFORMER_MODEL | {"width": 256, "heads": 1, "feed_forward": 256}
NEIGHBOUR_MODEL: Tree = {
    "kind": "bert",
    "layers": 1,
    "width": 64,
    "feed_forward": 128,
    "dropout": 0.0,
    "max_positions": 32,
    "next_sentence": False,
}
ATTENTION_MODULES = {
    "encoder": "encoder.0.self_attention",
    "decoder": "decoder.0.self_attention",
    "decoder to encoder": "decoder.0.cross_attention",
}

ANIMAL_NOUNS = {
    "animal": "l' animal",
    "cow": "la vache",
    "cat": "le chat",
    "mouse": "la souris",
    "dog": "le chien",
    "turtle": "la tortue",
    "horse": "le cheval",
    "crow": "la corneille",
}
PLACE_NOUNS = {
    "street": "la rue",
    "garden": "le jardin",
    "river": "la rivière",
    "bridge": "le pont",
    "road": "la route",
    "field": "le champ",
    "square": "la place",
    "path": "le chemin",
}
"""The n-th animal and the place -n (mod 8) are never together in training; they differ in
gender."""
ANIMAL_ADJECTIVES = {
    "tired": "fatigué",
    "hungry": "affamé",
    "hurt": "blessé",
    "scared": "effrayé",
    "lost": "égaré",
    "shy": "réservé",
}
PLACE_ADJECTIVES = {
    "wide": "étendu",
    "crowded": "bondé",
    "closed": "fermé",
    "flooded": "inondé",
    "noisy": "animé",
    "steep": "incliné",
}

"""Adjectives that fit only animals, and only places; masculine, to which the feminine adds an e."""
VERB_PARTICIPLES = {"cross": "traversé", "leave": "quitté", "like": "aimé"}
ADVERBS = {"too": "trop", "so": "si", "very": "très"}
ANIMAL_POSITION = 1
PLACE_POSITION = 6
PRONOUN_POSITION = 8
ADJECTIVE_POSITION = 11
"""Positions of words in the English sentence."""
GRAMMATICAL_PAIRS = {
    "article to noun": [(0, 1), (5, 6)],
    "verb to subject": [(4, 1)],
    "verb to object": [(4, 6)],
    "adjective to pronoun": [(ADJECTIVE_POSITION, PRONOUN_POSITION)],
}
"""Positions of a word and of the word that it belongs to."""
TRAINING_FORMATS = ["", ".2f", ".3f"]
"""Formats of the columns: the training, its exact match and its loss."""
WeightArray = np.ndarray[tuple[int, ...], np.dtype[np.floating]]


CLAIMS = {
    "projections": Claim(
        "Projections help.",
        lambda n: n["plain_exact"] < n["projected_exact"] - 0.2,
    ),
    "plain_scaled": Claim(
        "Scaling alone, without projections, is not enough.",
        lambda n: n["plain_scaled_exact"] < n["projected_exact"] - 0.2,
    ),
    "viewpoints": Claim(
        "With two relations at once, several heads are better than one.",
        lambda n: min(n["relations_2"], n["relations_4"]) > n["relations_1"] + 0.05,
    ),
    "several": Claim(
        "With one relation at a time, several heads are better than one.",
        lambda n: n["heads_4_exact"] > n["heads_1_exact"] + 0.05,
    ),
    "grammar": Claim(
        "A head follows a grammatical relation clearly.",
        lambda n: n["grammar_gain"] > 20,
    ),
    "scaling": Claim(
        "Dividing by sqrt(d_k) helps wide keys.",
        lambda n: n["scaled_loss"] < n["unscaled_loss"] - 0.3,
    ),
    "mirror": Claim(
        "A head looks at the mirror.",
        lambda n: n["mirror"] > 0.3,
    ),
    "most_cheap": Claim(
        "Most heads cost little when they are taken out.",
        lambda n: n["cheap_heads"] >= 6,
    ),
    "one_dear": Claim(
        "At least one costs much.",
        lambda n: n["dearest"] < n["before"] - 0.05,
    ),
    "pronoun_right": Claim(
        "The model writes the right pronoun.",
        lambda n: n["pronoun_right"] > 0.9,
    ),
    "not_shown": Claim(
        "No head's attention shows which noun it is.",
        lambda n: n["follows"] < 0.7,
    ),
    "asks_others": Claim(
        "The decoder looks more at nouns and adjective than at the pronoun.",
        lambda n: n["from_it"] < n["from_nouns"] + n["from_adjective"],
    ),
}
"""What this chapter claims, checked with the numbers of each seed."""


def experiment(lab: Lab) -> Findings:
    whole = lab.train("reverse-transformer", reverse_transformer())
    heads = _heads(lab, whole) | _two_relations(lab) | _pruned(lab, whole)
    heads |= _pronoun_translation(lab)
    return _steps(lab) | _scaling(lab) | _matrices(whole) | heads


def _steps(lab: Lab) -> Findings:
    """Compare four encoders for one decoder: without parameters, with scaled scores, with projections,
    with heads."""
    rows = []
    numbers = Findings()
    for encoder in ("plain", "plain_scaled", "projected", "multi_head"):
        run = lab.train(
            f"reverse-{encoder}",
            reverse_recipe(SELF_ATTENTION_MODEL | {"encoder": encoder}, 300, 8e-3, warmup=60),
        )
        rows.append([encoder, float(evaluate(run)["exact_match"]), last_loss(run, "validation")])
        numbers |= {f"{encoder}_exact": rows[-1][1], f"{encoder}_loss": rows[-1][2]}
    return {
        "steps": Table(
            ["encoder", "exact match", "validation loss"], rows, formats=TRAINING_FORMATS
        ),
        **numbers,
    }


def _scaling(lab: Lab) -> Findings:
    """Compare scores with and without the division: of random vectors, then in a training with d_k
    = 256."""
    table, entropy, gradient = dot_products().parts
    rows = []
    numbers = Findings()
    for key, scores in {"scaled": "q . k / sqrt(d_k)", "unscaled": "q . k"}.items():
        run = lab.train(
            f"wide-{key}", reverse_recipe(ONE_HEAD_MODEL | {"scaled": key == "scaled"}, 150, 2e-3)
        )
        rows.append([scores, float(evaluate(run)["exact_match"]), last_loss(run, "validation")])
        numbers |= {f"{key}_exact": rows[-1][1], f"{key}_loss": rows[-1][2]}
    trained = Table(["scores", "exact match", "validation loss"], rows, formats=TRAINING_FORMATS)
    return {
        "variances": table,
        "entropies": entropy,
        "gradients": gradient,
        "trained": trained,
        **numbers,
    }


def _matrices(run: Run) -> Findings:
    """The scores of one head of the decoder: raw, scaled, masked, normalised."""
    explanation = explain(run, "a b c d e", target="e d c b a", device="cpu")
    model = run.load_model()
    name = ATTENTION_MODULES["decoder"]
    attention = cast(MultiHeadAttention, model.get_submodule(name))
    with torch.inference_mode(), module_calls(model, [f"{name}.W_Q"]) as calls:
        model(explanation.batch)
        [((x_1LD,), q_1LD)] = calls[f"{name}.W_Q"]
        k_1HLE, _ = attention.keys_values(x_1LD)
        width = k_1HLE.shape[-1]
        raw_LL = q_1LD[0, :, :width] @ k_1HLE[0, 0].T
    scaled_LL = raw_LL / width**0.5
    hidden_LL = torch.ones_like(raw_LL, dtype=torch.bool).triu(1)
    masked_LL = scaled_LL.masked_fill(hidden_LL, 0.0)  # drawn as 0; the model has -inf there
    weights_LL = scaled_LL.masked_fill(hidden_LL, -torch.inf).softmax(-1)
    labels = list(explanation.inputs.texts)
    stages = {
        "1. Q K^T": raw_LL,
        "2. divided by sqrt(d_k)": scaled_LL,
        "3. the future hidden": masked_LL,
        "4. softmax": weights_LL,
    }
    maps = [
        HeatMaps([HeatMap(labels, labels, x.double().numpy())], title=stage)
        for stage, x in stages.items()
    ]
    recorded = explanation.attentions[name].weights[0]
    return {
        "matrices": maps,
        "matrix_error": float(np.abs(weights_LL.double().numpy() - recorded).max()),
    }


def _heads(lab: Lab, whole: Run) -> Findings:
    """Show where each head of the encoder and decoder looks, averaged over unseen sequences, and
    how accuracy changes with the number of heads."""
    looked: dict[tuple[str, int], list[list[float]]] = {}
    for source, target in generate("reverse", lab.few(60), 7, "test"):
        explanation = explain(whole, source, target=target)
        for place, name in ATTENTION_MODULES.items():
            for head, weights in enumerate(explanation.attentions[name].weights):
                looked.setdefault((place, head), []).append(_attention_shares(weights))
    columns = ["attention", "head", "first", "one before", "itself", "one after", "end", "mirror"]
    rows = [
        [place, head + 1, *np.mean(shares, axis=0).tolist()]
        for (place, head), shares in looked.items()
    ]
    for row in rows:
        if row[0] == "decoder":
            row[-1] = "–"  # reversing is between source and output: the decoder has no mirror
    exact = dict[int, float]()
    for heads in (1, 4, 8):
        same = heads == TRANSFORMER_MODEL["heads"]
        recipe = reverse_transformer({"heads": heads})
        run = whole if same else lab.train(f"reverse-{heads}-heads", recipe)
        exact[heads] = float(evaluate(run)["exact_match"])
    return lab.examples(looked=Table(columns, rows, formats=[".2f"])) | {
        "several": Table(["heads", "exact match"], [*exact.items()], formats=[".2f"]),
        "mirror": max(row[-1] for row in rows if row[0] == "decoder to encoder"),
        **{f"heads_{heads}_exact": share for heads, share in exact.items()},
    }


def _two_relations(lab: Lab) -> Findings:
    """One layer that has to tag each letter with the letter before it and the one after: two relations
    at once. The same width with one, two and four heads."""
    random = Random(1)

    def tagged() -> str:
        letters = [random.choice(SYMBOLS[:6]) for _ in range(random.randrange(6, 13))]
        around = ["-", *letters, "-"]
        tags = [before + after for before, after in zip(around, around[2:], strict=False)]
        return json.dumps({"tokens": letters, "tags": tags})

    data = dict[str, Any]()
    for part, size in (("train", 4000), ("validation", 100), ("test", 200)):
        file = lab.file(f"neighbours-{part}.jsonl", "".join(f"{tagged()}\n" for _ in range(size)))
        data[part] = {"file": file, "scheme": "plain"}
    rows = []
    numbers = Findings()
    for heads in (1, 2, 4):
        model = NEIGHBOUR_MODEL | {"heads": heads}
        run = lab.fine_tune(
            f"neighbours-{heads}-heads", data, {"model": model}, "tagging", steps=500, rate=3e-3
        )
        right = float(evaluate(run, overwrite=True)["accuracy"])
        rows.append([heads, right])
        numbers[f"relations_{heads}"] = right
    return {"relations": Table(["heads", "right tags"], rows, formats=[".2f"]), **numbers}


def _attention_shares(weights: WeightArray) -> list[float]:
    """The share of attention at places that have a name; for the mirror, the last row looks at the
    first column. The first column of a decoder is the begin token, and its last one the last letter
    that it reads."""
    rows, columns = weights.shape

    def mean(shift: int) -> float:
        return float(np.diagonal(weights, shift).sum() / rows)

    letters = columns - 1
    mirrored = [weights[row, letters - 1 - row] for row in range(min(rows, letters))]
    first, end = (float(weights[:, column].mean()) for column in (0, -1))
    return [first, mean(-1), mean(0), mean(1), end, float(np.mean(mirrored))]


def _pruned(lab: Lab, whole: Run) -> Findings:
    """Exact match after taking out one head at a time, by setting its columns of W^O to 0."""
    run = load(whole)
    before = float(run.evaluate()["exact_match"])
    heads = range(TRANSFORMER_MODEL["heads"])
    costs = {
        place: [before - _without_head(run, name, head) for head in heads]
        for place, name in ATTENTION_MODULES.items()
    }
    rows = [[place, *(before - cost for cost in of_place)] for place, of_place in costs.items()]
    every = [cost for of_place in costs.values() for cost in of_place]
    pruned = Table(["without", *(f"head {head + 1}" for head in heads)], rows, formats=[".2f"])
    return lab.examples(pruned=pruned) | {
        "before": before,
        "cheap_heads": sum(cost < 0.1 for cost in every),
        "all_heads": len(every),
        "dearest": before - max(every),
        "dearest_place": max(costs, key=lambda place: max(costs[place])),
    }


def _without_head(run: Loaded, name: str, head: int) -> float:
    attention: Any = run.load_model().get_submodule(name)
    weight = attention.W_O.weight.data
    width = attention.W_O.weight.shape[1] // attention.heads
    kept = weight.clone()
    weight[:, head * width : (head + 1) * width] = 0
    exact = float(run.evaluate()["exact_match"])
    weight.copy_(kept)
    return exact


def _sentence(animal: str, verb: str, place: str, adverb: str, adjective: str) -> tuple[str, str]:
    """ "The animal did not cross the street because it was too tired", and the same in French."""
    feminine = (
        {**ANIMAL_NOUNS, **PLACE_NOUNS}[animal if adjective in ANIMAL_ADJECTIVES else place]
    ).startswith("la ")
    what = {**ANIMAL_ADJECTIVES, **PLACE_ADJECTIVES}[adjective] + "e" * feminine
    return (
        f"the {animal} did not {verb} the {place} because it was {adverb} {adjective}",
        f"{ANIMAL_NOUNS[animal]} n' a pas {VERB_PARTICIPLES[verb]} {PLACE_NOUNS[place]} parce qu' "
        f"{'elle' if feminine else 'il'} était "
        f"{ADVERBS[adverb]} {what}",
    )


def _pronoun_translation(lab: Lab) -> Findings:
    """Translate English to French, where `it` is il or elle. Pairs of unseen sentences differ in
    the adjective alone."""
    numbers_of = {
        word: number for words in (ANIMAL_NOUNS, PLACE_NOUNS) for number, word in enumerate(words)
    }
    rows = [
        _sentence(*words)
        for words in product(
            ANIMAL_NOUNS,
            VERB_PARTICIPLES,
            PLACE_NOUNS,
            ADVERBS,
            [*ANIMAL_ADJECTIVES, *PLACE_ADJECTIVES],
        )
        if (numbers_of[words[0]] + numbers_of[words[2]]) % 8
    ]
    Random(1).shuffle(rows)
    recipe = reverse_recipe(TRANSFORMER_MODEL | {"encoder_layers": 2}, 300, 3e-3, warmup=60)
    recipe["data"] = {
        "train": lab.pairs("pronouns", rows[100:]),
        "validation": lab.pairs("pronouns-seen", rows[:100]),
    }
    run = lab.train("pronouns", recipe)
    unseen = [(animal, [*PLACE_NOUNS][-number % 8]) for number, animal in enumerate(ANIMAL_NOUNS)]
    tests = [
        _sentence(animal, "cross", place, "too", adjective)
        for adjectives in zip(ANIMAL_ADJECTIVES, PLACE_ADJECTIVES, strict=True)
        for animal, place in unseen
        for adjective in adjectives
    ][: 2 * lab.few(48)]
    outputs = [
        prediction.to_json()["output"]
        for prediction in predict(run, [source for source, _ in tests], beam=1)
    ]
    right = [
        ("elle" in output.split()) == ("elle" in target.split())
        for output, (_, target) in zip(outputs, tests, strict=True)
    ]
    heads = [
        f"layer {layer + 1}, head {head + 1}"
        for layer in range(2)
        for head in range(TRANSFORMER_MODEL["heads"])
    ]
    found = [_looks(run, *test) for test in tests]
    weights_NHLL = np.array([look for look, _ in found])
    looks = weights_NHLL[:, :, PRONOUN_POSITION].reshape(-1, 2, len(heads), len(found[0][1]))
    # of a pair, an adjective, a head and a word of the source
    more = looks[..., ANIMAL_POSITION] > looks[..., PLACE_POSITION]
    followed = more[:, 0] & ~more[:, 1]
    # one half of the pairs chooses the head, the other, with other animals, measures it
    best = int(followed[::2].mean(0).argmax())
    follows = followed[1::2].mean(0)
    means = looks.mean(0)
    table = [
        [
            name,
            *(
                float(means[kind, n, place])
                for kind in (0, 1)
                for place in (ANIMAL_POSITION, PLACE_POSITION)
            ),
            float(follows[n]),
        ]
        for n, name in enumerate(heads)
    ]
    maps = [
        HeatMaps(
            [HeatMap(heads, [*tests[kind][0].split(), "⏎"], looks[0, kind])], title=tests[kind][0]
        )
        for kind in (0, 1)
    ]
    columns = [
        "head",
        "tired: animal",
        "tired: place",
        "wide: animal",
        "wide: place",
        "pairs that it follows",
    ]
    sources = np.mean([written for _, written in found], axis=0)
    grammar, gain = _grammar(weights_NHLL, heads)
    shown = lab.examples(pronouns=Table(columns, table, formats=[".2f"]), it=maps, grammar=grammar)
    return shown | {
        "grammar_gain": 100 * gain,
        "it_tired": outputs[0],
        "it_wide": outputs[1],
        "pronoun_right": float(np.mean(right)),
        "pairs": len(looks),
        "measured_pairs": len(followed[1::2]),
        "first_layer_follows": float(follows[: TRANSFORMER_MODEL["heads"]].max()),
        "follows": float(follows[best]),
        "follower": heads[best],
        "from_it": float(sources[PRONOUN_POSITION]),
        "from_nouns": float(sources[[ANIMAL_POSITION, PLACE_POSITION]].sum()),
        "from_adjective": float(sources[ADJECTIVE_POSITION]),
    }


def _grammar(weights_NHLL: WeightArray, heads: list[str]) -> tuple[Table, float]:
    """The head that looks most from a word to one that it belongs to, beside two controls: how much
    it looks as far from other words, and from other words to the same one; and the most by which it
    exceeds both. Half of the pairs of sentences chooses the head, the other half measures it."""
    in_first_half_N = np.arange(len(weights_NHLL)) // 2 % 2 == 0
    chosen_from_HLL = weights_NHLL[in_first_half_N].mean(0)
    weights_HLL = weights_NHLL[~in_first_half_N].mean(0)
    rows = []
    gains = []
    for name, pairs in GRAMMATICAL_PAIRS.items():
        line_HN = np.diagonal(
            weights_HLL, pairs[0][1] - pairs[0][0], 1, 2
        )  # all pairs of words as far apart
        shares_HP = np.array([weights_HLL[:, q, k] for q, k in pairs]).T
        columns_HP = np.array([weights_HLL[:, :, k].sum(1) for _, k in pairs]).T
        shares_H = shares_HP.mean(1)
        as_far_H = (line_HN.sum(1) - shares_HP.sum(1)) / (line_HN.shape[1] - len(pairs))
        from_others_H = (columns_HP - shares_HP).mean(1) / (len(weights_HLL[0]) - 1)
        best = int(np.array([chosen_from_HLL[:, q, k] for q, k in pairs]).mean(0).argmax())
        share, *controls = (float(of_H[best]) for of_H in (shares_H, as_far_H, from_others_H))
        rows.append([name, heads[best], share, *controls])
        gains.append(share - max(controls))
    columns = ["relation", "head", "attention", "as far from other words", "there from other words"]
    return Table(columns, rows, formats=[".2f"]), max(gains)


def _looks(run: Run, source: str, target: str) -> tuple[WeightArray, list[float]]:
    """Show where words look in every head of the encoder, and where the decoder looks when it
    writes il or elle."""
    explanation = explain(run, source, target=target)
    attentions = [
        explanation.attentions[f"encoder.{layer}.self_attention"].weights for layer in range(2)
    ]
    tokens = explanation.attentions[ATTENTION_MODULES["decoder to encoder"]].queries.texts
    step = next(n for n, token in enumerate(tokens) if token in ("▁il", "▁elle"))
    return np.concatenate(attentions), explanation.weights[step].tolist()
