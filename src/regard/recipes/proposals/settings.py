"""The settings that suit the amount and the kind of data."""

from __future__ import annotations

from math import ceil, inf, log2
from typing import Any

from regard.recipes.proposals.plans import Plan, training_length
from regard.recipes.proposals.profile import DataProfile

IDEOGRAPHIC = ("Cjk", "Hiragana", "Katakana")  # scripts of thousands of characters


UNIT_OF_METRICS = {"translation": "char", "captioning": "char", "summarization": "characters"}
"""`evaluation.tokenize` where words say little, as in Korean, Chinese and Japanese."""


LINEAR_TABLE_ROWS = 2**18  # of the table of the linear model beside a network


VALIDATIONS_TO_THE_END = 10  # of a training that goes on to the end of its schedule


def fitted_settings(profile: DataProfile, plan: Plan) -> dict[str, Any]:
    """What the amount of data decides, by path; None takes a key out of the recipe that ships."""
    if not plan.sizes:  # the recipe for stories is for some thousand questions
        few = {"model.linear_start": 20, "model.restarts": 10, "training.epochs": 120}
        return few if profile.examples < 5_000 else {}
    is_text = profile.task == "language_modeling"
    amount = profile.examples * (profile.sizes[0].characters if is_text else 1)
    sizes = next(sizes for sizes in plan.sizes if amount < sizes.below)
    longest = max((size.characters for size in profile.sizes), default=0)
    by_character = reads_characters(profile)
    syllables = by_character and "text" in profile.data
    if syllables:  # the end of the schedule is what generalises best
        half = (sizes.batch_tokens or 0) // 2
        sizes = sizes._replace(epochs=max(10, sizes.epochs // 2), batch_tokens=half, patience=None)
    elif "first" in profile.data:  # networks that compare two texts overfit within a few epochs
        sizes = sizes._replace(epochs=min(sizes.epochs, 8), patience=3)
    fitting = (length for length in plan.lengths if longest <= (1 if by_character else 2) * length)
    length = next(fitting, plan.lengths[-1] if plan.lengths else 0)
    each = 3 if syllables else 8  # characters of the longest texts for a token of the average one
    tokens = min(
        max((max(size.words, size.characters / each) for size in profile.sizes), default=inf),
        length or inf,
    )
    scripts = [size.script for size in profile.sizes]
    vocabulary = (
        sizes.vocabulary if {*scripts}.isdisjoint(IDEOGRAPHIC) else max(sizes.vocabulary, 16_000)
    )
    alphabet = sum(size.alphabet for size in profile.sizes)
    # a tokenizer would be refused, or have hardly more than characters
    if 5 * alphabet > 4 * vocabulary:
        vocabulary = 1_000 * ceil(alphabet / 500)
    settings: dict[str, Any] = {
        "data.max_length": length or None,
        "tokenizer.vocabulary": vocabulary,
        "model.preset": sizes.preset,
    }
    if sizes.dropout is not None:
        settings["model.dropout"] = sizes.dropout
    if profile.task in UNIT_OF_METRICS and scripts[-1] in ("Hangul", *IDEOGRAPHIC):
        settings["evaluation"] = {"tokenize": UNIT_OF_METRICS[profile.task]}
    batch = sizes.batch_tokens
    if profile.task == "captioning":
        pixels = 64 if sizes.preset == "tiny" else 128
        settings["model.images"] = {"size": pixels}
        tokens = max(tokens, 1 if "model.feature_width" in profile.settings else (pixels // 8) ** 2)
    elif batch and not is_text:
        batch = max(batch, 4 * length * len(profile.data.get("choices", "1")))
    if profile.task in ("classification", "regression"):
        batch = max(batch or 0, 2 ** ceil(log2(16 * tokens)))
        if by_character:
            settings |= {
                "tokenizer.kind": "character",
                "tokenizer.vocabulary": None,
                "model.widths": [1, 2, 3, 4],
            }
            settings["head.linear"] = LINEAR_TABLE_ROWS
        if "first" in profile.data:
            is_class = profile.task == "classification"
            settings |= {"head.apart": True, "head.pooling": "max" if is_class else "mean"}
            settings |= {"training.best": "loss"} if is_class else {}
        elif syllables:
            settings |= {
                "model.ngrams": 2**17,
                "training.betas": [0.9, 0.999],
                "training.label_smoothing": 0.1,
            }
        elif profile.sizes[0].words > 100:
            # of long texts the words alone say enough, and are learned fast
            settings |= {"model.widths": [1], "model.dropout": 0.5, "head.pooling": "mean"}
            settings |= {
                "tokenizer.vocabulary": 16_000,
                "training.learning_rate": 0.003,
                "training.best": "loss",
            }
    if profile.task == "tagging":
        settings |= {"head.crf": True, "head.linear": LINEAR_TABLE_ROWS}
    training = training_length(
        sizes, amount / 3 if is_text else amount * tokens, batch or 4_096, plan.steps
    )
    if syllables and profile.examples >= 5_000:  # enough to choose by
        training["validate_every"] = ceil(training["steps"] / VALIDATIONS_TO_THE_END)
    training["batch_tokens"] = batch or "auto"
    return settings | {f"training.{key}": value for key, value in training.items()}


def reads_characters(profile: DataProfile) -> bool:
    """Whether characters say more than sub-words: where two texts are compared, and in a short
    Korean text, whose words have many endings and spellings, each of them rare."""
    if "first" in profile.data:
        return profile.task == "regression" or profile.sizes[0].words <= 100
    return (
        profile.task == "classification"
        and profile.sizes[0].script == "Hangul"
        and profile.sizes[0].words <= 100
    )
