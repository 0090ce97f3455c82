"""What is hidden from BERT, and which sentences it is asked about."""

import math
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
import tokenizers as library
import torch

from regard.data.corpora import generate
from regard.data.raw import RawTokens
from regard.data.segments import Draws, Masking, SentencePairs, SingleSegments, sentence_spans
from regard.errors import DataError
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.text.vocabularies import MASKING_NAMES
from task_cases import raw_tokens

TALES = [tale for (tale,) in generate("tales-en", 700, 1, "train")]
WORDPIECE = TokenizerConfig(kind="wordpiece", vocabulary=300)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(WORDPIECE, TALES, MASKING_NAMES)


@pytest.fixture(scope="module")
def text(tokenizer: Tokenizer) -> RawTokens:
    return raw_tokens(TALES, tokenizer, sentences="punctuation")


@pytest.fixture(scope="module")
def pairs(text: RawTokens, tokenizer: Tokenizer) -> SentencePairs:
    return SentencePairs(text, Masking(tokenizer), 64)


def within(found: int, count: int, share: float) -> None:
    """As a binomial share is in all but one of a million cases."""
    assert abs(found / count - share) < 5 * math.sqrt(share * (1 - share) / count)


def random_texts(tokenizer: Tokenizer, rows: int, length: int) -> np.ndarray:
    """[CLS] tokens [SEP] padding, of random tokens and lengths."""
    draws = np.random.default_rng(0)
    ids = np.full((rows, length), tokenizer.pad)
    for row in ids:
        size = draws.integers(3, length + 1)
        row[:size] = draws.integers(len(MASKING_NAMES), tokenizer.size, size)
        row[0], row[size - 1] = tokenizer.begin, tokenizer.end
    return ids


def test_the_vocabulary_has_berts_special_tokens(tokenizer: Tokenizer) -> None:
    special = [tokenizer.pad, tokenizer.unk, tokenizer.begin, tokenizer.end, tokenizer.mask]
    assert tokenizer.tokens(special) == list(MASKING_NAMES)  # type: ignore[arg-type]
    assert special == [0, 1, 2, 3, 4]
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.mask == tokenizer.mask
    assert not again.special & set(again.encode("[MASK] [CLS]")) - {again.unk}


@pytest.mark.parametrize(("hidden", "replaced"), [(0.8, 0.1), (0.5, 0.5), (0.0, 0.0)])
def test_what_becomes_of_tokens(
    text: RawTokens, tokenizer: Tokenizer, hidden: float, replaced: float
) -> None:
    """All tokens but the special ones are counted once, and as many of each kind as the shares
    say."""
    examples = SingleSegments(text, Masking(tokenizer, 0.15, "off", hidden, replaced), 64)
    counts = examples.outcomes(1000, 4096)
    total, chosen = sum(counts.values()), sum(counts.values()) - counts["not to predict"]
    assert total == text.lengths.sum()
    within(chosen, total, 0.15)
    assert counts["[MASK]"] / chosen == pytest.approx(hidden, abs=0.02)
    assert counts["another token"] / chosen == pytest.approx(replaced, abs=0.02)
    assert examples.outcomes(1, 512)["not to predict"] < 512


@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_shares_of_masking(tokenizer: Tokenizer, rate: float) -> None:
    """Over more than 100,000 tokens: how many are chosen, and what they become."""
    ids = random_texts(tokenizer, 4000, 60)
    masked_BL, places_P, labels_P = Masking(tokenizer, rate)(ids, Draws(1, 2, 3))
    special = np.isin(ids, sorted(tokenizer.special))
    count, chosen = int((~special).sum()), len(places_P)
    assert count > 100_000
    within(chosen, count, rate)
    assert not special.ravel()[places_P].any()
    assert np.array_equal(labels_P, ids.ravel()[places_P])
    shown = masked_BL.ravel()[places_P]
    within(int((shown == tokenizer.mask).sum()), chosen, 0.8)
    same = 0.1 + 0.1 / (
        tokenizer.size - len(MASKING_NAMES)
    )  # a random token may be the one that stood there
    within(int((shown == labels_P).sum()), chosen, same)
    others = shown[(shown != tokenizer.mask) & (shown != labels_P)]
    assert not np.isin(others, sorted(tokenizer.special)).any()
    assert len(set(others.tolist())) > 0.9 * (tokenizer.size - len(MASKING_NAMES))
    untouched = np.ones(ids.size, dtype=bool)
    untouched[places_P] = False
    assert np.array_equal(masked_BL.ravel()[untouched], ids.ravel()[untouched])


def test_something_is_always_chosen(tokenizer: Tokenizer) -> None:
    ids = np.array([[tokenizer.begin, 9, 8, tokenizer.end, tokenizer.pad]])
    found = {int(Masking(tokenizer, 1e-6)(ids, Draws(seed))[1][0]) for seed in range(30)}
    assert found == {1, 2}


@pytest.mark.parametrize(
    ("whole", "expected"), [("words", ["abcd", ",", "efgh", "."]), ("eojeol", ["abcd,", "efgh."])]
)
def test_whole_words_are_hidden_together(whole: str, expected: list[str]) -> None:
    """`abcd, efgh.`: two eojeols, or two words and two signs, however they are cut into pieces."""
    pieces = Tokenizer.train(
        TokenizerConfig(kind="wordpiece", vocabulary=24),
        ["abcd, efgh. d c b a h g f e"],
        MASKING_NAMES,
    )
    assert len(pieces.encode("abcd, efgh.")) > 4
    groups = hidden_together(pieces, "abcd, efgh.", whole)
    assert [group.replace("▁", "").replace(" ", "") for group in groups] == expected


def test_whole_words_of_bytes() -> None:
    """A letter of Korean or é has several bytes, which no word may be cut between."""
    bytewise = Tokenizer.train(TokenizerConfig(kind="byte", vocabulary=261), ["a"], MASKING_NAMES)
    groups = hidden_together(bytewise, "돼지는 café, 3", "words")
    words = [bytewise.decode(bytewise.token_ids(group.split(" "))) for group in groups]
    assert [word for word in words if word.strip()] == ["돼지는", "café", ",", "3"]


HASHES = [
    "co",
    "##vid",
    "##19",
    "x",
    "##86",
    "b",
    "##2",
    "##b",
    "don",
    "'",
    "t",
    "3",
    ".",
    "5",
    "새",
    "##로",
    "##운",
]


@pytest.mark.parametrize("whole", ["words", "eojeol"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("covid19 b2b", ["co ##vid ##19", "b ##2 ##b"]),
        ("x86.", ["x ##86", "."]),
        ("don't 3.5", ["don", "'", "t", "3", ".", "5"]),  # where the spaces were cannot be told
        ("새로운 새", ["새 ##로 ##운", "새"]),
    ],
)
def test_whole_words_of_a_vocabulary_that_marks_what_continues(
    whole: str, text: str, words: list[str]
) -> None:
    """All pieces with ## belong to the piece before them, digits after letters too, as in BERT's
    own code."""
    vocabulary = {token: row for row, token in enumerate([*MASKING_NAMES, *HASHES])}
    bert = library.Tokenizer(library.models.WordPiece(vocabulary, unk_token="[UNK]"))
    bert.pre_tokenizer, bert.decoder = (
        library.pre_tokenizers.BertPreTokenizer(),
        library.decoders.WordPiece(),
    )
    assert hidden_together(Tokenizer.from_json(bert.to_str()), text, whole) == words


def test_headings_do_not_make_a_vocabulary_of_continuing_pieces() -> None:
    text = "### today we went walking, ##### and ### back"
    tokenizer = Tokenizer.train(
        TokenizerConfig(kind="bpe", vocabulary=34), [text] * 20, MASKING_NAMES
    )
    assert any(token.startswith("##") for token in tokenizer.tokens(range(tokenizer.size)))
    assert len(tokenizer.encode("today back")) > 2
    found = hidden_together(tokenizer, "today back", "eojeol")
    assert [one.replace(" ", "") for one in found] == ["▁today", "▁back"]


def test_what_next_sentences_leave_out_is_noted(tokenizer: Tokenizer, pairs: SentencePairs) -> None:
    """Two documents of two sentences are read: of one long sentence in each, 64 - 3 tokens fit."""
    assert [*pairs.notes()] == []
    long = f"The cat was here. The dog{' the dog' * 99}."
    some = SentencePairs(
        raw_tokens(["The cat was here."] * 8 + [long] * 2, tokenizer, sentences="punctuation"),
        Masking(tokenizer),
        64,
    )
    beyond = sum(len(tokenizer.encode(long)) + 1 - 61 for _ in range(2))
    tokens = len(some.text.values)
    assert [*some.notes()] == [
        "8 of 10 training documents have one sentence and are left out: model.next_sentence=false "
        "reads them",
        f"{beyond:,} of {tokens:,} training tokens, in sentences too long for a pair, are left "
        "out: "
        "model.next_sentence=false reads them",
    ]
    assert some.documents == 2


def hidden_together(tokenizer: Tokenizer, text: str, whole: str) -> list[str]:
    """The tokens that are always hidden together, as one text each."""
    ids = tokenizer.encode(text)
    masking = Masking(tokenizer, 0.5, whole)  # type: ignore[arg-type]
    row = np.array([[tokenizer.begin, *ids, tokenizer.end]])
    drawn = [set((masking(row, Draws(seed))[1] - 1).tolist()) for seed in range(200)]
    together = [
        set.intersection(*(chosen for chosen in drawn if place in chosen))
        for place in range(len(ids))
    ]
    groups = sorted({tuple(sorted(group)) for group in together})
    return [" ".join(tokenizer.tokens([ids[place] for place in group])) for group in groups]


def test_whole_word_masking_keeps_its_share(tokenizer: Tokenizer, text: RawTokens) -> None:
    examples = SingleSegments(text, Masking(tokenizer, 0.15, "words"), 64)
    open_tokens = chosen = 0
    for epoch in range(8):
        for rows in examples.plan(4096, 1, epoch):
            batch = examples.batch(rows, 1, epoch)
            chosen += batch.tokens
            open_tokens += int(batch.text.lengths_B.sum()) - 2 * len(rows)
    assert open_tokens > 100_000
    assert (
        0.14 < chosen / open_tokens < 0.16
    )  # words differ in length, so that the spread is more than binomial


def test_the_same_text_is_masked_otherwise_in_another_epoch(
    text: RawTokens, tokenizer: Tokenizer
) -> None:
    """Of two draws of 15 % about 15 % agree; and all of them within an epoch, also when it is taken
    up again."""
    first, again = (SingleSegments(text, Masking(tokenizer), 64) for _ in range(2))
    rows = np.arange(200)
    masked = [set(first.batch(rows, 1, epoch).places_P.tolist()) for epoch in range(3)]
    assert set(again.batch(rows, 1, 2).places_P.tolist()) == masked[2]
    assert torch.equal(again.batch(rows, 1, 2).text.ids_BL, first.batch(rows, 1, 2).text.ids_BL)
    assert set(first.batch(rows, 2, 2).places_P.tolist()) != masked[2]
    for one, other in ((0, 1), (1, 2)):
        assert torch.equal(
            first.batch(rows, 1, one).text.lengths_B, first.batch(rows, 1, other).text.lengths_B
        )
        within(len(masked[one] & masked[other]), len(masked[one]), 0.15)


def test_single_segments_by_hand(text: RawTokens, tokenizer: Tokenizer) -> None:
    examples = SingleSegments(text, Masking(tokenizer), 16)
    found = []
    for example in range(len(examples)):
        batch = examples.batch(np.array([example]))
        ids = batch.text.ids_BL.flatten()
        ids[batch.places_P] = batch.labels_P
        assert (int(ids[0]), int(ids[-1])) == (tokenizer.begin, tokenizer.end)
        assert len(ids) <= 16
        assert not batch.segments_BL.any()
        assert batch.follows_B is None
        found += ids[1:-1].tolist()
    assert found == [token for token in text.values.tolist() if token != tokenizer.end]


Segments = list[tuple[list[int], list[int], int]]


@pytest.fixture(scope="module")
def epochs(pairs: SentencePairs) -> list[Segments]:
    return [segments_of(pairs, epoch) for epoch in range(4)]


def segments_of(pairs: SentencePairs, epoch: int) -> Segments:
    """Every example of an epoch with its masks undone: A, B and whether B is said to follow."""
    found, plan = [], pairs.plan(2048, 1, epoch)
    assert sorted(row for rows in plan for row in rows.tolist()) == list(range(len(pairs)))
    for rows in plan:
        batch = pairs.batch(rows, 1, epoch)
        assert batch.text.ids_BL.numel() <= 2048
        assert batch.text.ids_BL.shape[1] <= 64
        ids = batch.text.ids_BL.clone()
        ids.view(-1)[batch.places_P] = batch.labels_P
        assert batch.follows_B is not None
        columns = (ids, batch.segments_BL, batch.text.lengths_B, batch.follows_B)
        for row, segments, length, follows in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            second = segments.index(1)
            assert segments == [0] * second + [1] * (length - second) + [0] * (len(row) - length)
            special = pairs.text.tokenizer
            assert (row[0], row[second - 1], row[length - 1]) == (
                special.begin,
                special.end,
                special.end,
            )
            found.append((row[1 : second - 1], row[second : length - 1], follows))
    return found


def test_half_of_the_second_segments_follow(pairs: SentencePairs, epochs: list[Segments]) -> None:
    """50 / 50 over several epochs; the true ones go on, and no other one is what would have come
    next."""
    documents = [pairs.text.values[a : b - 1].tolist() for a, b in pairwise(pairs.text.bounds)]
    joined = [",".join(map(str, document)) + "," for document in documents]
    count = true = 0
    for epoch, segments in enumerate(epochs):
        shown = pairs.shown(1, epoch)
        for first, second, follows in segments:
            together = ",".join(map(str, [*first, *second])) + ","
            stands = any(together in document for document in joined)
            assert stands == bool(follows)
            count, true = count + 1, true + follows
        owners = [pairs.text.document_at(places) for places in (shown.a_starts, shown.b_starts)]
        assert np.array_equal(owners[0] == owners[1], shown.follows)
    assert count > 4000
    within(true, count, 0.5)
    first, second = (pairs.shown(1, epoch) for epoch in (0, 1))
    assert np.mean(first.a_stops != second.a_stops) > 0.2, "another epoch cuts elsewhere"
    assert np.mean(first.follows != second.follows) > 0.4


def test_what_follows_is_made_of_the_same_parts_as_what_does_not(
    pairs: SentencePairs, epochs: list[Segments]
) -> None:
    """Neither the length of the second segment nor whether it is cut off tells the answer."""
    stop = pairs.text.tokenizer.encode("x.")[-1]
    facts: dict[int, list[tuple[int, int, bool, bool]]] = {0: [], 1: []}
    for first, second, follows in chain.from_iterable(epochs):
        facts[follows].append(
            (len(second), len(first) + len(second), second[-1] == stop, first[-1] == stop)
        )
    for false, true in zip(zip(*facts[0], strict=True), zip(*facts[1], strict=True), strict=True):
        spread = np.std([*false, *true]) * math.sqrt(1 / len(false) + 1 / len(true))
        assert abs(np.mean(false) - np.mean(true)) <= 4 * spread
    assert np.mean([ended for _, _, ended, _ in facts[0]]) > 0.98


def test_sentence_spans_by_hand(tokenizer: Tokenizer) -> None:
    """Sentences of 3, 3, 3, 3 and 3 tokens with room for 6, then a document of one sentence, then
    of two."""
    text = raw_tokens(["x. " * 5, "x.", "x. x."], tokenizer, sentences="punctuation")
    text.sentences, text.documents = (
        np.array([0, 3, 6, 9, 12, 15, 18, 21, 24]),
        np.array([0, 5, 6, 8]),
    )
    firsts, lasts, owners = sentence_spans(text, 6)
    assert list(zip(firsts, lasts, owners, strict=True)) == [(0, 2, 0), (2, 5, 0), (6, 8, 2)]


@pytest.mark.parametrize(
    "texts", [["One here. Two here. Three."], ["One.", "Two.", "Three."], ["One. Two.", "Three."]]
)
def test_a_negative_needs_another_document(tokenizer: Tokenizer, texts: list[str]) -> None:
    with pytest.raises(DataError, match="two documents of two sentences"):
        SentencePairs(raw_tokens(texts, tokenizer, sentences="punctuation"), Masking(tokenizer), 64)


@pytest.mark.parametrize(
    ("wrong", "right", "texts", "said"),
    [
        (
            "punctuation",
            "lines",
            ["one here\ntwo here", "three\nfour"],
            "sentences are found by . ! and ?, data.sentences=lines takes every line for one",
        ),
        (
            "lines",
            "punctuation",
            ["One. Two.", "Three. Four."],
            "every line is a sentence, data.sentences=punctuation finds them by . ! and ?",
        ),
    ],
)
def test_where_no_sentences_are_found_it_is_said_how_they_are(
    tokenizer: Tokenizer, wrong: Any, right: Any, texts: list[str], said: str
) -> None:
    with pytest.raises(DataError, match="there are none here, of 2 in all") as raised:
        SentencePairs(
            raw_tokens(texts, tokenizer, sentences=wrong), Masking(tokenizer), 64, sentences=wrong
        )
    assert said in raised.value.problems[0].hint
    SentencePairs(raw_tokens(texts, tokenizer, sentences=right), Masking(tokenizer), 64)


def test_the_same_words_in_another_document_truly_follow(tokenizer: Tokenizer) -> None:
    """Every document goes on with the same sentence, so none is a wrong one."""
    texts = [f"{word} came. The dog was big." for word in ("Anna", "Paul", "Marie")]
    pairs = SentencePairs(
        raw_tokens(texts, tokenizer, sentences="punctuation"), Masking(tokenizer), 64
    )
    assert all(pairs.shown(seed, 0).follows.all() for seed in range(10))
