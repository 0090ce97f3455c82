"""Tokenizers: exact both ways, safe against what is typed, the same in every process."""

import json
import math
import pickle
import subprocess
import sys
import time
import unicodedata
from itertools import combinations
from pathlib import Path

import pytest
import tokenizers as library
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors, trainers

from regard.errors import CheckpointError, ConfigError, DataError, DecodeError
from regard.text.morphemes import CUT, analyser, cut_places, with_cuts, without_cuts
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers, train_tokenizers
from regard.text.unigram import train_unigram
from regard.text.vocabularies import SPECIAL_NAMES
from texts import TOKENIZER_KINDS

KINDS = TOKENIZER_KINDS
OF_WORDS = ("word", "morpheme")
PIECES = ("bpe", "wordpiece", "unigram")
LETTERS = "ab<>s/pdunk!.,_'\"#09 \t\n▁가각한국어😀\u200dé\u0308e\u0301नमस्ते\ufe0f漢\u2002"
KOREAN = ["나는 학교에 갔다.", "너는 학교에 갔다.", "나는 집에 갔다.", "학교는 크다.", "집은 작다."]


def train(kind: str, texts: list[str], vocabulary: int = 400, lowercase: bool = False) -> Tokenizer:
    config = TokenizerConfig.model_validate(
        {"kind": kind, "vocabulary": vocabulary, "lowercase": lowercase}
    )
    return Tokenizer.train(config, texts)


def everything(kind: str) -> Tokenizer:
    """A tokenizer that knows all characters that texts over LETTERS are composed to, and some
    words."""
    words = [
        "ab",
        "bad",
        "pun",
        "sun",
        "가각",
        "한국어",
        "00",
        "90",
        "<s>",
        "<pad>",
        "</s>",
        "नमस्ते",
        "...",
    ]
    composed = [f"{a}{b}" for a in LETTERS for b in LETTERS] + ["u\u0308\u0301"]
    return train(kind, composed + [f"{a} {b}" for a, b in combinations(words, 2)], vocabulary=500)


EVERYTHING = {kind: everything(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in OF_WORDS])
@settings(max_examples=150)
@given(text=st.text(alphabet=LETTERS, max_size=40))
@example(text=" ")
@example(text="  ▁ ▁▁  a ")
@example(text="a\u0301 ▁\u0301")
@example(text="<s> </s><pad><unk>")
def test_decode_inverts_encode(kind: str, text: str) -> None:
    tokenizer = EVERYTHING[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)
    assert not set(ids) & {tokenizer.pad, tokenizer.unk, tokenizer.begin, tokenizer.end}


@settings(max_examples=150)
@given(data=st.data())
def test_decode_inverts_encode_of_known_words(data: st.DataObject) -> None:
    text = "".join(
        data.draw(
            st.lists(st.sampled_from([*"!.,_'\"# \t\n▁😀漢", " ab", " 한국어", " 00", " नमस्ते"]))
        )
    )
    tokenizer = train("word", [f"{text} ▁", "ab 한국어"] * 2)
    assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text)


TOKENISED = ["a@-@b <unk> , don 't", " = <unk> = ", "x<unk>y </s> <unk>"]


def spaced(texts: list[str], **fields: object) -> Tokenizer:
    config = TokenizerConfig.model_validate(
        {"kind": "word", "split": "spaces", "vocabulary": 400, **fields}
    )
    return Tokenizer.train(config, texts)


def test_words_between_spaces_by_hand() -> None:
    """Seven words, the mark for a second space, four special tokens; `<unk>` is the one that is
    there already."""
    tokenizer = spaced(TOKENISED)
    words = ["=", "'t", ",", "</s>", "a@-@b", "don", "x<unk>y"]
    assert tokenizer.tokens(range(tokenizer.size)) == [
        *SPECIAL_NAMES,
        "▁",
        *(f"▁{word}" for word in words),
    ]
    assert tokenizer.encode("a@-@b <unk> , new") == [9, tokenizer.unk, 7, tokenizer.unk]
    assert tokenizer.encode("</s>") == [8] != [tokenizer.end]
    assert tokenizer.decode([9, tokenizer.unk, 7, tokenizer.end]) == "a@-@b <unk> ,"


@settings(max_examples=100)
@given(words=st.lists(st.sampled_from(["a@-@b", "<unk>", ",", "", "</s>", "x<unk>y", "가", "▁"])))
def test_tokenised_text_comes_back_with_its_unknown_words(words: list[str]) -> None:
    text = " ".join(words)
    tokenizer = spaced([*TOKENISED, "가 ▁"])
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert Tokenizer.from_json(tokenizer.to_json()).decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
def test_text_is_composed_and_lowered(kind: str) -> None:
    """J with caron has no composed capital, but a composed small letter. NFC, not NFKC: full width
    stays."""
    tokenizer = train(kind, ["J\u030c Ab É ab", "J\u030c Ab É ab"], lowercase=True)
    assert tokenizer.decode(tokenizer.encode("J\u030c AB E\u0301")) == "\u01f0 ab é"
    tokenizer, decomposed = train(kind, [*KOREAN, "Ａ A"]), unicodedata.normalize("NFD", KOREAN[0])
    assert decomposed != KOREAN[0]
    assert tokenizer.encode(decomposed) == tokenizer.encode(KOREAN[0])
    assert tokenizer.encode("Ａ") != tokenizer.encode("A")


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids_and_size(kind: str) -> None:
    tokenizer = train(kind, KOREAN, vocabulary=60)
    assert (tokenizer.pad, tokenizer.unk, tokenizer.begin, tokenizer.end) == (0, 1, 2, 3)
    assert tokenizer.tokens([0, 1, 2, 3]) == list(SPECIAL_NAMES)
    assert tokenizer.size == 260 if kind == "byte" else tokenizer.size <= 60
    assert tokenizer.decode([2, *tokenizer.encode("나는 학교에"), 1, 3, 0, 0]) == "나는 학교에"
    assert (tokenizer.decode([]), tokenizer.encode("")) == ("", [])


@pytest.mark.parametrize("kind", KINDS)
def test_typed_special_tokens_are_text(kind: str) -> None:
    """Even in a vocabulary that was trained on text full of them, and after a round through the
    file and pickle."""
    trained = train(kind, ["<s> a </s> <pad> <unk>", "a<s><pad>"] * 50)
    for tokenizer in (
        trained,
        Tokenizer.from_json(trained.to_json()),
        pickle.loads(pickle.dumps(trained)),
    ):
        ids = tokenizer.encode("<s> a </s><pad> <unk>")
        assert not set(ids) & {0, 1, 2, 3}
        assert tokenizer.decode(ids) == "<s> a </s><pad> <unk>"
        assert tokenizer.encode_batch(["<s>", "</s>"]) == [
            tokenizer.encode("<s>"),
            tokenizer.encode("</s>"),
        ]


def test_bpe_merges_by_hand() -> None:
    """Sennrich et al. 2016, arXiv:1508.07909, figure 1, with the mark at the start of a word
    instead of its end.

    Counts: low 5, lower 2, newest 6, widest 3. Pairs: es 9, st 9 (after es: est 9), then lo 7, low
    7 (or ▁lo, ▁low), so the first four merges build `est` and `▁low`.
    """
    texts = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    alphabet = len(set("▁lowernwstid"))
    tokenizer = train("bpe", texts, vocabulary=4 + alphabet + 2)
    assert tokenizer.size == 4 + alphabet + 2
    assert tokenizer.pieces(tokenizer.encode("widest")) == ["▁", "w", "i", "d", "est"]
    merged = train("bpe", texts, vocabulary=4 + alphabet + 5)
    assert merged.pieces(merged.encode("low lowest")) == ["▁low", "▁low", "est"]
    assert merged.pieces(merged.encode("slow"))[0] == "▁"
    wordpiece = train("wordpiece", texts, vocabulary=60)
    assert wordpiece.pieces(wordpiece.encode("lowest low")) == ["▁low", "est", "▁low"], (
        "the longest piece first"
    )


def test_unigram_finds_the_likeliest_segmentation() -> None:
    """Against all segmentations of a word, with the scores in the file."""
    tokenizer = train("unigram", ["abab abc", "bcab ab", "abcabc cab"] * 3, vocabulary=14)
    scores = dict(json.loads(tokenizer.to_json())["model"]["vocab"])
    for word in ("▁abcab", "▁cabab", "▁bbbca"):
        cuts = [c for n in range(len(word)) for c in combinations(range(1, len(word)), n)]
        ways = [
            [word[a:b] for a, b in zip((0, *cut), (*cut, len(word)), strict=True)] for cut in cuts
        ]
        likeliest = max(
            sum(scores[p] for p in way) for way in ways if all(p in scores for p in way)
        )
        found = tokenizer.tokens(tokenizer.encode(word[1:]))
        assert sum(scores[piece] for piece in found) == pytest.approx(likeliest)


def test_unigram_scores_by_hand() -> None:
    """`ab` stands four times, `c` once: no room for more than the letters and one piece, and that
    is `ab`."""
    scores = train_unigram({"ab": 4, "c": 1}, frozenset("abc"), 4)
    assert list(scores) == ["ab", "c", "a", "b"]
    assert scores["ab"] - scores["c"] == pytest.approx(math.log(4), abs=1e-5)
    assert sum(math.exp(score) for score in scores.values()) == pytest.approx(1, abs=1e-4)


SCRIPT = """
import random, sys
from regard.text.tokenizers import Tokenizer, TokenizerConfig
letters = random.Random(1)
texts = ["".join(letters.choices("abcdefg   가나다.", k=30)) for _ in range(300)]
for kind in sys.argv[1:]:
    print(Tokenizer.train(TokenizerConfig(kind=kind, vocabulary=120), texts).to_json())
"""


def test_training_is_the_same_in_every_process() -> None:
    kinds = [kind for kind in KINDS if kind != "byte"]
    command = [sys.executable, "-c", SCRIPT, *kinds]
    env = {"PYTHONPATH": ":".join(sys.path), "PYTHONIOENCODING": "utf-8"}
    first, second = (
        subprocess.run(
            command, env=env | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    )
    assert len(first.splitlines()) == len(kinds)
    assert first == second


def test_bytes_are_never_unknown_and_broken_ones_do_not_raise() -> None:
    tokenizer = EVERYTHING["byte"]
    assert tokenizer.encode("한a") == [4 + byte for byte in "한a".encode()]
    for text in ("Ωλ 𝄞", "".join(chr(code) for code in range(0x300))):
        assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text)
    assert tokenizer.decode([4 + byte for byte in b"a\xed\x95b\xff"]) == "a\ufffdb\ufffd"


def test_pieces_are_readable() -> None:
    korean = train("bpe", KOREAN * 3)
    assert korean.pieces(korean.encode("나는 학교에")) == ["▁나는", "▁학교에"]
    words = train("word", KOREAN)
    assert words.pieces([2, *words.encode("학교는  작다."), 3]) == [
        "<s>",
        "▁학교는",
        "▁",
        "▁작다",
        ".",
        "</s>",
    ]
    characters = train("character", ["가 나\n"])
    assert characters.pieces(characters.encode("나 가\n")) == ["나", "▁", "가", "\\n"]
    byte = EVERYTHING["byte"]
    assert byte.pieces([*byte.encode("한 a"), 3, 4 + 0xFF]) == [
        "한",
        "‿",
        "‿",
        "▁",
        "a",
        "</s>",
        "\ufffd",
    ]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte"])
def test_a_script_never_seen_is_unknown(kind: str) -> None:
    tokenizer = train(kind, KOREAN)
    assert all(tokenizer.all_unknown(tokenizer.encode(text)) for text in ("Привет", "мир мир"))
    assert not any(
        tokenizer.all_unknown(tokenizer.encode(text)) for text in ("мир 학교에 мир", "나는")
    )
    if kind in ("character", "bpe"):
        assert tokenizer.encode("мир").count(1) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_long_words_are_not_lost_and_time_grows_with_length_not_with_its_square(kind: str) -> None:
    tokenizer = EVERYTHING[kind]
    started = time.perf_counter()
    for text in ("a" * 100_000, "국" * 100_000, " " * 100_000, "#" * 100_000, "ab " * 33_333):
        ids = tokenizer.encode(text)
        assert kind in OF_WORDS or tokenizer.decode(ids) == text
    assert time.perf_counter() - started < 20, "squared it would be minutes"


def test_tokens_lead_back_to_their_ids() -> None:
    tokenizer = EVERYTHING["bpe"]
    ids = [2, *tokenizer.encode("ab ▁ 한국어"), 3]
    assert tokenizer.token_ids(tokenizer.tokens(ids)) == ids
    with pytest.raises(DecodeError, match="'nope' is not a token"):
        tokenizer.token_ids(["nope"])
    with pytest.raises(DecodeError, match="surrogate"):
        tokenizer.encode("a\ud800")


def test_a_foreign_bert_tokenizer() -> None:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "wor", "##ld", "[", "]", "cls"]
    made = library.Tokenizer(
        models.WordPiece({name: number for number, name in enumerate(names)}, unk_token="[UNK]")
    )
    made.normalizer = library.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = library.decoders.WordPiece()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.add_special_tokens(names[:4])
    tokenizer = Tokenizer.from_json(made.to_str())
    assert (tokenizer.pad, tokenizer.unk, tokenizer.begin, tokenizer.end, tokenizer.size) == (
        0,
        1,
        2,
        3,
        10,
    )
    assert tokenizer.encode("Hello world hello") == [4, 5, 6, 4], "no [CLS]"
    assert tokenizer.encode("[CLS]") == [7, 9, 8]
    assert tokenizer.decode([2, 4, 5, 6, 3]) == "hello world"


def test_a_foreign_byte_level_tokenizer_with_one_special_token() -> None:
    made = library.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library.decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"special_tokens": ["<|endoftext|>"], "initial_alphabet": alphabet, "vocab_size": 300}
    made.train_from_iterator(
        ["the cat, the hat"] * 9, trainers.BpeTrainer(**options, show_progress=False)
    )
    size = made.get_vocab_size()
    made.enable_truncation(2)
    made.enable_padding(length=9)
    tokenizer = Tokenizer.from_json(made.to_str())
    assert tokenizer.end == made.token_to_id("<|endoftext|>")
    assert sorted((tokenizer.pad, tokenizer.unk, tokenizer.begin)) == [size, size + 1, size + 2]
    assert tokenizer.size == size + 3
    text = "the cat <|endoftext|><s> 한"
    ids = tokenizer.encode(text)
    assert tokenizer.decode([tokenizer.begin, *ids, tokenizer.end]) == text
    assert not set(ids) & {tokenizer.end, tokenizer.begin}
    assert tokenizer.pieces(ids)[:2] == ["the", "▁cat"]
    assert tokenizer.pieces(ids)[-3:] == ["한", "‿", "‿"]
    assert Tokenizer.from_json(tokenizer.to_json()).to_json() == tokenizer.to_json()


def test_a_foreign_unigram_tokenizer_whose_special_tokens_are_plain_pieces() -> None:
    """As T5's: `</s>` has the score 0, better than any piece, and would win the segmentation."""
    pieces = [
        ("<pad>", 0.0),
        ("</s>", 0.0),
        ("[?]", 0.0),
        ("▁", -2.0),
        ("a", -3.0),
        ("<", -5.0),
        ("/", -5.0),
    ]
    made = library.Tokenizer(models.Unigram(pieces, unk_id=2))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = library.decoders.Metaspace()
    tokenizer = Tokenizer.from_json(made.to_str())
    assert (tokenizer.pad, tokenizer.unk, tokenizer.begin, tokenizer.end) == (0, 2, len(pieces), 1)
    assert tokenizer.encode("a a</s>") == [3, 4, 3, 4, tokenizer.unk]
    assert tokenizer.decode(tokenizer.encode("a a")) == "a a"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *(
            (text, "cannot be used as a tokenizer")
            for text in (b"", b"{}", b"[]", b"{broken", b'{"model": {"type": "M"}}')
        ),
        (b"\xff\xfe\x00", "cannot be read as a tokenizer"),
        (None, "there is no such tokenizer file"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_named(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "broken.json").write_bytes(content)
    with pytest.raises(DataError, match=rf"broken\.json: {message}"):
        Tokenizer.load(tmp_path / "broken.json")
    with pytest.raises(DataError, match="cannot be read as a tokenizer"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_cannot_be_trained_on(kind: str) -> None:
    for texts in ([], [""], ["", ""]):
        with pytest.raises(DataError, match="no text to train a tokenizer on"):
            train(kind, texts)
    with pytest.raises(DataError, match="surrogate"):
        train(kind, ["a\ud800"])


@pytest.mark.parametrize("kind", PIECES)
def test_a_vocabulary_smaller_than_the_alphabet(kind: str) -> None:
    texts = ["abcdefghijklmnopqrstuvwxyz"]
    with pytest.raises(ConfigError, match=r"tokenizer\.vocabulary: .*27 characters.*at least 31"):
        train(kind, texts, vocabulary=30)
    assert train(kind, texts, vocabulary=31).encode("xyz").count(1) == 0


@pytest.mark.parametrize("kind", PIECES)
def test_rare_characters_go_when_the_vocabulary_is_crowded(kind: str) -> None:
    """20 ideographs that stand once in 100,000 characters: less than 0.05 %."""
    texts = ["ab ab ab ab ab"] * 7000 + [chr(0x4E00 + number) for number in range(20)]
    crowded, roomy = train(kind, texts, vocabulary=20), train(kind, texts, vocabulary=100)
    assert crowded.size <= 20
    assert crowded.encode("ab ab").count(1) == 0
    assert crowded.all_unknown(crowded.encode("一"))
    assert roomy.decode(roomy.encode("一 ab")) == "一 ab"


def test_the_most_frequent_characters_and_words_are_kept() -> None:
    characters = train("character", ["aaabbc"], vocabulary=6)
    assert characters.tokens(range(4, characters.size)) == ["a", "b"]
    words = train("word", ["x y x z y x"], vocabulary=7)
    assert words.tokens(range(4, words.size)) == ["▁", "▁x", "▁y"]


def test_a_sample_is_taken_evenly(tmp_path: Path) -> None:
    lines = [chr(0xAC00 + number) for number in range(10)]
    trained = train_tokenizers(
        TokenizerConfig(kind="character", sample=4), {"text": lines}, tmp_path
    )["text"]
    assert trained.tokens(range(4, trained.size)) == [lines[number] for number in (0, 2, 5, 7)]


SIDES = {"source": ["hello world", "hello there"], "target": ["안녕 세상", "안녕 거기"]}


def test_joint_and_separate(tmp_path: Path) -> None:
    joint = train_tokenizers(TokenizerConfig(kind="word"), SIDES, tmp_path)
    assert joint.joint
    assert joint["source"] is joint["target"]
    assert 1 not in joint["source"].encode("hello 안녕")
    separate = train_tokenizers(TokenizerConfig(kind="word", joint=False), SIDES, tmp_path)
    assert not separate.joint
    assert separate["source"].all_unknown(separate["source"].encode("안녕"))
    assert separate["target"].all_unknown(separate["target"].encode("hello"))
    assert len({joint.fingerprint, separate.fingerprint}) == 2


@pytest.mark.parametrize(
    ("joint", "files"),
    [(True, ["tokenizer.json"]), (False, ["tokenizer.source.json", "tokenizer.target.json"])],
)
def test_tokenizers_of_a_run(tmp_path: Path, joint: bool, files: list[str]) -> None:
    trained = train_tokenizers(TokenizerConfig(kind="bpe", joint=joint), SIDES, tmp_path)
    trained.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    loaded = Tokenizers.load(tmp_path)
    assert list(loaded) == ["source", "target"]
    assert (loaded.joint, loaded.fingerprint) == (joint, trained.fingerprint)
    pretty = json.dumps(json.loads(trained["source"].to_json()), indent=2)
    assert Tokenizer.from_json(pretty).fingerprint == loaded["source"].fingerprint
    (tmp_path / files[-1]).write_text('{"cut of')
    with pytest.raises(CheckpointError, match=files[-1]):
        Tokenizers.load(tmp_path)
    (tmp_path / files[-1]).unlink()
    with pytest.raises(CheckpointError, match=f"{files[-1]}: there is no such tokenizer file"):
        Tokenizers.load(tmp_path)


def test_existing_files_are_used(tmp_path: Path) -> None:
    for side, name in (("source", "a.json"), ("target", "b.json")):
        (tmp_path / name).write_text(train("word", SIDES[side]).to_json(), encoding="utf-8")

    def read(file: str | dict[str, str]) -> Tokenizers:
        return train_tokenizers(
            TokenizerConfig(file=file, joint=isinstance(file, str)), SIDES, tmp_path
        )

    one, two = read("a.json"), read({"source": "a.json", "target": "b.json"})
    assert (one.joint, two.joint) == (True, False)
    assert one["target"].all_unknown(one["target"].encode("안녕"))
    assert two["target"].pieces(two["target"].encode("안녕")) == ["▁안녕"]
    with pytest.raises(
        ConfigError, match=r"tokenizer\.file: unknown column 'sorce' \(did you mean 'source'"
    ):
        read({"sorce": "a.json", "target": "b.json"})
    with pytest.raises(
        ConfigError, match=r"tokenizer\.file: there is no tokenizer for the column 'target'"
    ):
        read({"source": "a.json"})


# Morphemes and jamo


def test_morphemes_by_hand() -> None:
    """갔어요 is 가 + 았 + 어요: no cut within 갔. English is left to the rules for words."""
    pytest.importorskip("kiwipiepy")
    tokenizer = train("morpheme", ["나는 학교에 갔어요. The foxes slept."])
    text = "나는 학교에 갔어요. The foxes slept."
    ids = tokenizer.encode(text)
    pieces = ["▁나", "는", "▁학교", "에", "▁갔", "어요", ".", "▁The", "▁foxes", "▁slept", "."]
    assert tokenizer.pieces(ids) == pieces
    assert tokenizer.decode(ids) == text
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.encode(text) == ids
    for typed in (text, unicodedata.normalize("NFD", text)):
        [(_, spans)] = again.token_spans([typed])
        words = [unicodedata.normalize("NFC", typed[slice(*span)]) for span in spans]
        assert words == [piece.lstrip("▁") for piece in tokenizer.pieces(ids)]


def test_words_are_cut_between_morphemes_and_not_within() -> None:
    """By hand: 나|는 학교|에 and the spans of kiwipiepy, two of which share a syllable."""
    text = "나는 학교에 갔다 3점ab."
    spans = [(0, 1), (1, 2), (3, 5), (5, 6), (7, 8), (7, 8), (8, 9), (10, 11), (11, 12), (12, 13)]
    spans += [(13, 14), (14, 15)]
    places = cut_places(text, spans)
    assert with_cuts(text, places).split(CUT) == ["나", "는 학교", "에 갔", "다 3", "점", "ab."]
    assert cut_places("가나다", [(0, 2), (1, 3)]) == []
    for offset in range(len(text) + 1):
        marked = len(with_cuts(text[:offset], [place for place in places if place < offset]))
        assert without_cuts(marked, places) == offset


def test_without_kiwipiepy_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "kiwipiepy", None)
    analyser.cache_clear()
    with pytest.raises(DataError, match=r"tokenizer\.kind: morpheme: .*regard\[korean\]"):
        train("morpheme", KOREAN)


def test_jamo_by_hand() -> None:
    tokenizer = train("jamo", ["학교 ab"])
    ids = tokenizer.encode("갔어 ㅋa")
    assert tokenizer.pieces(ids) == ["ㄱ", "ㅏ", "ㅆ", "ㅇ", "ㅓ", "▁", "<unk>", "a"]
    assert tokenizer.decode(ids) == "갔어 a"
    [(_, spans)] = tokenizer.token_spans(["갔어 ㅋa"])
    assert [tuple(span) for span in spans][:5] == [(0, 1)] * 3 + [(1, 2)] * 2
    assert len({tokenizer.encode(letter)[0] for letter in "각낙"}) == 2
    first, *_, last = tokenizer.encode("각")
    assert first != last, "a first and a last consonant are two tokens"


@given(st.text("가각힣뷁쑥ㅋㅏ é▁", max_size=12))
def test_every_syllable_has_jamo(text: str) -> None:
    tokenizer = train("jamo", ["ㅋㅏ é▁ a"])
    assert tokenizer.unk not in tokenizer.encode(text)
    assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text)
