"""Sheets of BERT's two tasks of pre-training: masked words, and whether a sentence follows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.corpora import generate
from regard.data.segments import Draws, Masking, SentencePairs
from regard.errors import RegardError, did_you_mean
from regard.recipes.recipe import recipe_of
from regard.tasks import TASKS
from regard.tasks.raw import RawEncoding, read_documents
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers
from regard.text.vocabularies import MASKING_NAMES
from regard.views.report import Cell, Section, Table, muted
from regard.views.sheets.bert import framing_of, small_vocabulary
from regard.views.sheets.sheet import Sheet

OTHER_WORDS = ("apple", "tree", "red")
"""Words of the vocabulary that the sentence lacks: a masked word may become one of them."""
RATE = 0.15
COPIES = 10_000
EXAMPLE_TOKENS = 1000
"""Tokens of the text in the exercise on shares."""
PAIR_CORPORA = ("tales-en", "tales-ko")
TALES = 200
SHOWN_PAIRS = 6
PAIR_LENGTH = 40
"""The most tokens of a pair, special tokens included."""
EPOCHS = 20


def masking(sentence: str = "my dog is hairy", word: str = "") -> Sheet:
    """Masked words: 15 % are chosen, and become [MASK], another word or stay with 80, 10 and
    10 %."""
    tokenizer = small_vocabulary(sentence, " ".join(OTHER_WORDS))
    framing = framing_of(tokenizer, sentence)
    ids = framing.frame(tokenizer.encode(sentence)).ids
    words = tokenizer.tokens(ids)[1:-1]
    chosen = word or words[-1]
    if chosen not in words:
        raise RegardError(f"the sentence has no token {chosen!r}", where="word")
    place = 1 + words.index(chosen)
    mask = Masking(tokenizer, RATE)
    copies_BL = np.tile(np.array(ids), (COPIES, 1))
    masked_BL, places_P, labels_P = mask(copies_BL, Draws(1))
    shown_P = masked_BL.ravel()[places_P]
    is_mask_P = shown_P == mask.mask
    is_same_P = shown_P == labels_P
    counts = [
        int(is_mask_P.sum()),
        int((~is_mask_P & ~is_same_P).sum()),
        int(is_same_P.sum()),
    ]
    total = len(places_P)
    examples = _examples(masked_BL, places_P, ids, place, tokenizer)
    shares = (mask.hidden, mask.replaced, 1 - mask.hidden - mask.replaced)
    ways = ("[MASK]", "another word", "the same word")
    rows = [
        [
            Cell(way, ours=True),
            " ".join(examples[number]),
            Cell(share, ".0%", asked=True),
            Cell(round(EXAMPLE_TOKENS * RATE * share), asked=True),
        ]
        for number, (way, share) in enumerate(zip(ways, shares, strict=True))
    ]
    counted = [
        [Cell(way, ours=True), count, Cell(count / total, ".1%", asked=True)]
        for way, count in zip(ways, counts, strict=True)
    ]
    read = COPIES * len(words)
    plain = int((~mask.is_special_V).sum())
    steps = [
        Section(
            "15 % of the tokens are chosen; a chosen token becomes one of three",
            [
                Table(
                    ["a chosen token becomes", chosen, "share", "of 1,000 tokens"],
                    rows,
                    title=f"The label is always the token itself: {chosen}",
                    in_picture=True,
                ),
                muted(
                    "Why not always [MASK]: fine-tuning never shows it. Since any token may be "
                    "wrong, the model has to understand every one."
                ),
            ],
        ),
        Section(
            "Counted",
            [
                Table(
                    ["a chosen token becomes", "count", "share"],
                    counted,
                    title=f"{COPIES:,} copies, {read:,} tokens, {total:,} chosen: {100 * total / read:.1f} %",
                    in_picture=True,
                ),
                muted(
                    f"Another word is drawn from all {plain:,} words of this small vocabulary, the "
                    f"right one included: in 1 of {plain:,} cases nothing changes."
                ),
            ],
        ),
    ]
    numbers = {
        "examples": examples,
        "tokens": read,
        "chosen": total,
        "counts": dict(zip(("[MASK]", "another", "same"), counts, strict=True)),
    }
    opening = "Which words are hidden is drawn anew each time a sentence is read."
    return Sheet("Masked words", opening, steps, numbers)


def _examples(
    masked_BL: NDArray[np.int64],
    places_P: NDArray[np.int64],
    ids: Sequence[int],
    place: int,
    tokenizer: Tokenizer,
) -> list[list[str]]:
    """The first copy in which only the token at `place` was chosen, for each of the outcomes; of
    replaced ones preferably the first of OTHER_WORDS."""
    length = len(ids)
    per_row = np.bincount(places_P // length, minlength=len(masked_BL))
    rows = places_P[(places_P % length == place)] // length
    alone = rows[per_row[rows] == 1]
    shown = masked_BL[alone, place]
    first = tokenizer.encode(OTHER_WORDS[0])[0]
    is_other = (shown != tokenizer.mask) & (shown != ids[place])
    preferred = (shown == first) | (ids[place] == first)
    wanted = (shown == tokenizer.mask, is_other & preferred, shown == ids[place])
    return [tokenizer.tokens(masked_BL[alone[np.argmax(found)]].tolist()) for found in wanted]


def next_sentence(corpus: str = "tales-en") -> Sheet:
    """Next-sentence prediction: pairs of sentences, IsNext or NotNext, and that each is half of
    them."""
    if corpus not in PAIR_CORPORA:
        hint = did_you_mean(corpus, PAIR_CORPORA)
        raise RegardError(f"there are no tales {corpus!r}", where="corpus", hint=hint)
    pairs = tale_pairs(corpus)
    text = pairs.text
    examples = []
    shown = pairs.shown(1, 0)
    assert shown.follows is not None
    for row in _some_of_both(shown.follows):
        first, second = (
            text.tokenizer.decode(text.values[starts[row] : stops[row]].tolist())
            for starts, stops in (
                (shown.a_starts, shown.a_stops),
                (shown.b_starts, shown.b_stops),
            )
        )
        label = "IsNext" if shown.follows[row] else "NotNext"
        examples.append((first.strip(), second.strip(), label))
    counts = []
    for epoch in range(EPOCHS):
        follows = pairs.draw(1, epoch).follows
        assert follows is not None
        counts.append((len(follows), int(follows.sum())))
    total, following = np.sum(counts, axis=0).tolist()
    counted = [
        ["IsNext", following, Cell(following / total, ".1%")],
        ["NotNext", total - following, Cell(1 - following / total, ".1%")],
    ]
    steps = [
        Section(
            "Does B follow A?",
            [
                Table(
                    ["A", "B", "label"],
                    [[first, second, Cell(label, asked=True)] for first, second, label in examples],
                    in_picture=True,
                ),
                muted(
                    "BERT answers from the vector of [CLS] in [CLS] A [SEP] B [SEP]. B of a NotNext "
                    "pair comes from another tale and is about as long, so its length gives nothing "
                    "away."
                ),
            ],
        ),
        Section(
            "Counted",
            [
                Table(
                    ["label", "sentence pairs", "share"],
                    counted,
                    title=f"{EPOCHS} epochs over {len(text):,} tales: each pair is drawn anew",
                    in_picture=True,
                )
            ],
        ),
    ]
    numbers = {
        "pairs": [[*example] for example in examples],
        "IsNext": following,
        "NotNext": total - following,
    }
    opening = "In half of the pairs B is the sentence after A, in the other half it is not."
    return Sheet("Next-sentence prediction", opening, steps, numbers)


def tale_pairs(corpus: str) -> SentencePairs:
    """The pairs of sentences that a BERT is pre-trained on, from tales of the package."""
    tree = {
        "task": "masked_language_modeling",
        "data": {
            "train": {"corpus": corpus, "size": TALES},
            "max_length": PAIR_LENGTH,
        },
        "model": {"kind": "bert", "preset": "tiny"},
        "training": {"steps": 1},
    }
    task = TASKS["masked_language_modeling"]
    recipe = recipe_of(tree)
    tales = [tale for (tale,) in generate(corpus, TALES, 1, "train")]
    vocabulary = TokenizerConfig(kind="wordpiece", vocabulary=2000)
    tokenizer = Tokenizer.train(vocabulary, tales, MASKING_NAMES)
    encoding = task.make_encoding(recipe, Tokenizers({"text": tokenizer}))
    assert isinstance(encoding, RawEncoding)
    documents = read_documents(encoding, recipe.data.train, "train", Path())
    pairs = encoding.examples(documents, "train")
    assert isinstance(pairs, SentencePairs)
    return pairs


def _some_of_both(follows: NDArray[np.bool_]) -> list[int]:
    """The first pairs of which half follow, in the order of the text."""
    half = SHOWN_PAIRS // 2
    return sorted(
        [*np.flatnonzero(follows)[:half].tolist(), *np.flatnonzero(~follows)[:half].tolist()]
    )
