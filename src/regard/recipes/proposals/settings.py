"""The settings that suit the amount and the kind of data.

The figures were chosen with benchmarks/proposals.py; benchmarks/LOG.md has the trials.
"""

from __future__ import annotations

from math import ceil, inf, log2
from typing import Any

from regard.recipes.proposals.plans import Plan, SettingsByAmount, training_length
from regard.recipes.proposals.profile import DataProfile

IDEOGRAPHIC = ("Cjk", "Hiragana", "Katakana")
"""Scripts of thousands of characters."""
IDEOGRAPHIC_VOCABULARY = 16_000
"""The fewest tokens for such a script: a smaller vocabulary would have hardly more than its
characters."""
UNIT_OF_METRICS = {"translation": "char", "captioning": "char", "summarization": "characters"}
"""`evaluation.tokenize` where words say little, as in Korean, Chinese and Japanese."""
FEW_QUESTIONS = 5_000
"""The recipe for stories suits bAbI's 10,000 questions; below this the settings are those for its
1,000."""
MOST_WORDS_BY_CHARACTER = 100
"""Longer texts have words enough that recur."""
PAIR_EPOCHS = 8
PAIR_PATIENCE = 3
"""Networks that compare two texts overfit within a few epochs."""
FEWEST_SYLLABLE_EPOCHS = 10
"""Half the epochs of a plan are enough for texts that are read by character, but not fewer than
these."""
CHARACTERS_PER_TOKEN = 8
CHARACTERS_PER_SYLLABLE_TOKEN = 3
"""A long text's characters are divided by this to estimate the tokens of the average text: texts
as long as the longest 1 % are few."""
RAW_CHARACTERS_PER_TOKEN = 3
"""Characters of raw text for each sub-word, in the estimate of an epoch."""
ROWS_OF_LONGEST = 4
"""A batch holds so many of the longest texts, so that its gradient is not that of a single one."""
ROWS_OF_AVERAGE = 16
"""A batch for one label per text holds so many average texts: each gives only one label to learn
from."""
AUTO_BATCH = 4_096
"""What `training.batch_tokens: auto` is at most on a CPU, for the estimate of an epoch."""
LINEAR_TABLE_ROWS = 2**18
"""Rows of the table of the linear model beside a network: n-grams hardly ever share one."""
NGRAM_ROWS = 2**17
"""Rows of the table of n-grams beside the filters: enough for those of some ten thousand short
texts."""
PIXELS_PER_REGION = 8
"""The image encoder makes one region of so many pixels in each direction."""
ENOUGH_TO_VALIDATE = 5_000
"""From so many examples the part set aside is large enough to choose a checkpoint by."""
VALIDATIONS_TO_THE_END = 10
"""Validations of a training that goes on to the end of its schedule."""


def fitted_settings(profile: DataProfile, plan: Plan) -> dict[str, Any]:
    """The settings that the data decides, by path; None takes a key out of the recipe that ships."""
    if not plan.sizes:
        return story_settings(profile)
    amount = amount_of(profile)
    sizes = sizes_for(profile, plan, amount)
    length = maximal_length(profile, plan)
    tokens = tokens_per_text(profile, length)
    settings: dict[str, Any] = {
        "data.max_length": length or None,
        "tokenizer.vocabulary": vocabulary_for(profile, sizes),
        "model.preset": sizes.preset,
    }
    if sizes.dropout is not None:
        settings["model.dropout"] = sizes.dropout
    script = profile.sizes[-1].script if profile.sizes else ""
    if profile.task in UNIT_OF_METRICS and script in ("Hangul", *IDEOGRAPHIC):
        settings["evaluation"] = {"tokenize": UNIT_OF_METRICS[profile.task]}
    if profile.task == "captioning":
        pixels = 64 if sizes.preset == "tiny" else 128
        settings["model.images"] = {"size": pixels}
        has_features = "model.feature_width" in profile.settings
        tokens = max(tokens, 1 if has_features else (pixels // PIXELS_PER_REGION) ** 2)
    if profile.task in ("classification", "regression"):
        settings |= label_settings(profile)
    if profile.task == "tagging":
        # the tags of a sentence depend on each other, and windows of words say much of them
        settings |= {"head.crf": True, "head.linear": LINEAR_TABLE_ROWS}
    batch = batch_for(profile, sizes, length, tokens)
    training = training_settings(profile, sizes, tokens, batch, plan.steps)
    return settings | {f"training.{key}": value for key, value in training.items()}


def story_settings(profile: DataProfile) -> dict[str, Any]:
    """On few questions restarts of a memory network differ much, so the best of ten is kept, and the
    error still falls after a hundred epochs (benchmarks/LOG.md, "bAbI")."""
    if profile.examples >= FEW_QUESTIONS:
        return {}
    return {"model.linear_start": 20, "model.restarts": 10, "training.epochs": 120}


def amount_of(profile: DataProfile) -> int:
    """The amount that a plan goes by: examples, or characters of raw text."""
    if profile.task == "language_modeling":
        return profile.examples * profile.sizes[0].characters
    return profile.examples


def reads_characters(profile: DataProfile) -> bool:
    """Whether characters say more than sub-words: where two texts are compared, and in a short
    Korean text, whose words have many endings and spellings, each of them rare."""
    if "first" in profile.data:
        return profile.task == "regression" or profile.sizes[0].words <= MOST_WORDS_BY_CHARACTER
    return (
        profile.task == "classification"
        and profile.sizes[0].script == "Hangul"
        and profile.sizes[0].words <= MOST_WORDS_BY_CHARACTER
    )


def reads_syllables(profile: DataProfile) -> bool:
    """Whether single texts, not pairs, are read by character."""
    return reads_characters(profile) and "text" in profile.data


def sizes_for(profile: DataProfile, plan: Plan, amount: int) -> SettingsByAmount:
    """The plan's settings for an amount of data, changed for pairs and for texts that are read by
    character.

    The latter are trained to the end of the schedule, which generalises best: accuracy on the part
    set aside is too noisy to choose a checkpoint by.
    """
    sizes = next(sizes for sizes in plan.sizes if amount < sizes.below)
    if reads_syllables(profile):
        epochs = max(FEWEST_SYLLABLE_EPOCHS, sizes.epochs // 2)
        half = (sizes.batch_tokens or 0) // 2
        return sizes._replace(epochs=epochs, batch_tokens=half, patience=None)
    if "first" in profile.data:
        return sizes._replace(epochs=min(sizes.epochs, PAIR_EPOCHS), patience=PAIR_PATIENCE)
    return sizes


def maximal_length(profile: DataProfile, plan: Plan) -> int:
    """`data.max_length`: the smallest of the plan that holds nearly all texts, if a token has two
    characters, or one. 0 if the plan has none."""
    longest = max((size.characters for size in profile.sizes), default=0)
    characters = 1 if reads_characters(profile) else 2
    fitting = (length for length in plan.lengths if longest <= characters * length)
    return next(fitting, plan.lengths[-1] if plan.lengths else 0)


def tokens_per_text(profile: DataProfile, length: int) -> float:
    """An estimate of the tokens of an average text, which are at most `length`."""
    syllables = reads_syllables(profile)
    characters = CHARACTERS_PER_SYLLABLE_TOKEN if syllables else CHARACTERS_PER_TOKEN
    estimates = (max(size.words, size.characters / characters) for size in profile.sizes)
    return min(max(estimates, default=inf), length or inf)


def vocabulary_for(profile: DataProfile, sizes: SettingsByAmount) -> int:
    """The plan's vocabulary, or more for many characters.

    If they fill four fifths of it, a tokenizer would be refused, or have hardly more than
    characters: then it is twice their number, in thousands.
    """
    vocabulary = sizes.vocabulary
    if not {size.script for size in profile.sizes}.isdisjoint(IDEOGRAPHIC):
        vocabulary = max(vocabulary, IDEOGRAPHIC_VOCABULARY)
    alphabet = sum(size.alphabet for size in profile.sizes)
    if 5 * alphabet > 4 * vocabulary:
        return 1_000 * ceil(alphabet / 500)
    return vocabulary


def label_settings(profile: DataProfile) -> dict[str, Any]:
    """The model for a text or two with a label: see benchmarks/README.md, "Proposals"."""
    settings: dict[str, Any] = {}
    if reads_characters(profile):
        settings |= {
            "tokenizer.kind": "character",
            "tokenizer.vocabulary": None,
            # as many characters as a short word has
            "model.widths": [1, 2, 3, 4],
            "head.linear": LINEAR_TABLE_ROWS,
        }
    if "first" in profile.data:
        is_class = profile.task == "classification"
        settings |= {"head.apart": True, "head.pooling": "max" if is_class else "mean"}
        if is_class:
            settings["training.best"] = "loss"
    elif reads_syllables(profile):
        settings |= {
            "model.ngrams": NGRAM_ROWS,
            # with the default of 0.98 the table of rare n-grams hardly learns
            "training.betas": [0.9, 0.999],
            # short texts are often labelled at odds with each other
            "training.label_smoothing": 0.1,
        }
    elif profile.sizes[0].words > MOST_WORDS_BY_CHARACTER:
        # in long texts the words alone say enough, and are learned fast
        settings |= {
            "model.widths": [1],
            "model.dropout": 0.5,
            "head.pooling": "mean",
            "tokenizer.vocabulary": 16_000,
            "training.learning_rate": 0.003,
            "training.best": "loss",
        }
    return settings


def batch_for(
    profile: DataProfile, sizes: SettingsByAmount, length: int, tokens: float
) -> int | None:
    """`training.batch_tokens`: the plan's, or as much as some texts need; None leaves it to
    `auto`."""
    batch = sizes.batch_tokens
    has_lengths = profile.task not in ("captioning", "language_modeling")
    if batch and has_lengths:
        texts = len(profile.data.get("choices", ["text"]))
        batch = max(batch, ROWS_OF_LONGEST * length * texts)
    if profile.task in ("classification", "regression"):
        batch = max(batch or 0, 2 ** ceil(log2(ROWS_OF_AVERAGE * tokens)))
    return batch


def training_settings(
    profile: DataProfile, sizes: SettingsByAmount, tokens: float, batch: int | None, least: int
) -> dict[str, Any]:
    """The section `training`: how long, and in which batches."""
    amount = amount_of(profile)
    is_raw = profile.task == "language_modeling"
    total = amount / RAW_CHARACTERS_PER_TOKEN if is_raw else amount * tokens
    training = training_length(sizes, total, batch or AUTO_BATCH, least)
    if reads_syllables(profile) and profile.examples >= ENOUGH_TO_VALIDATE:
        training["validate_every"] = ceil(training["steps"] / VALIDATIONS_TO_THE_END)
    training["batch_tokens"] = batch or "auto"
    return training
