"""Words outside the vocabulary keep their letters on the way to a model that reads letters:
ELMo."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from command_line import succeed
from language_model_cases import CASES
from model_cases import WORDS, build, close
from raw_cases import ELMO, raw_recipe
from regard.api import features
from regard.data.batches import Padded, TextBatch
from regard.data.corpora import generate
from regard.data.dataset import Dataset
from regard.data.raw import RawData, document_pieces
from regard.objectives.language_model import BothDirections
from regard.runs import Run
from regard.tasks.reading import padded
from regard.text.normalise import nfc
from regard.text.spelling import Token, UnknownWord, ids_of, letters_of, unknown_in
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers
from regard.text.vocabularies import END, UNK
from regard.training.train import train
from regard.views.explain import explain
from task_cases import make_task, prepare_raw, raw_tokens
from texts import TOKENIZER_KINDS

KNOWN = "the fox ate a hen . and ( ran"
TEXTS = ["the zebra ate a hen .", "the fox saw 여우 (zebra) .", "a fox ran ."]


def tokenizer(kind: Any = "word", text: str = KNOWN, **more: Any) -> Tokenizer:
    return Tokenizer.train(TokenizerConfig(kind=kind, vocabulary=60, **more), [text])


def spelt(ids: Sequence[Token], own: Tokenizer) -> list[str]:
    """What a model can know of each token: its spelling, whoever has it."""
    return [
        token.word if isinstance(token, UnknownWord) else own.pieces([token])[0] for token in ids
    ]


def words_of(text: Padded, own: Tokenizer) -> list[list[str]]:
    return [spelt(text.row(row), own) for row in range(len(text))]


# From a text to tokens


@given(st.text("ab é가́ㄱ1.,(▁\t<>unkA", max_size=20), st.booleans())
def test_an_unknown_word_is_spelt_as_a_vocabulary_that_has_it_would(
    text: str, lowercase: bool
) -> None:
    small, whole = (tokenizer(text=one, lowercase=lowercase) for one in ("a", f"a {text}"))
    [tokens] = small.encode_spelled([text], 50)
    ids = small.encode(text)
    assert ids_of(tokens) == ids
    assert spelt(tokens, small) == whole.pieces(whole.encode(text))
    assert [isinstance(token, UnknownWord) for token in tokens] == [one == UNK for one in ids]


@pytest.mark.parametrize("kind", [kind for kind in TOKENIZER_KINDS if kind != "byte"])
def test_every_vocabulary_says_what_it_does_not_know(kind: str) -> None:
    own = tokenizer(kind)
    [tokens] = own.encode_spelled(["the 여zoo"], 50)
    ids = own.encode("the 여zoo")
    assert ids_of(tokens) == ids
    unknown = [token.word for token in tokens if isinstance(token, UnknownWord)]
    expected = {
        "unigram": ["여z"],
        "bpe": ["여", "z"],
        "character": ["여", "z"],
        "jamo": ["여", "여", "z"],
        "morpheme": ["▁여", "zoo"],
    }.get(kind, ["▁여zoo"])
    assert [nfc(word) for word in unknown if word != "o"] == expected
    assert own.encode_spelled(["the 여zoo"], None) == [ids]


def test_a_text_that_says_unk_itself_says_no_more() -> None:
    own = tokenizer(split="spaces")
    [tokens] = own.encode_spelled(["the <unk> saw <unk>s"], 50)
    assert ids_of(tokens)[1:] == [UNK, UNK, UNK]
    assert [getattr(token, "word", None) for token in tokens] == [None, None, "▁saw", "▁<unk>s"]


# From tokens to a batch


def test_a_batch_carries_the_letters_of_its_unknown_words_once() -> None:
    own = tokenizer()
    rows = own.encode_spelled(TEXTS, 8)
    text = padded(rows, own.pad)
    assert text.spelling is not None
    assert text.spelling.numbers_BL.tolist() == [
        [0, 1, *[0] * 6],
        [0, 0, 2, 3, 0, 4, 5, 0],
        [0] * 8,
    ]
    expected = [letters_of(word, 8) for word in ("▁zebra", "▁saw", "▁여우", "zebra", ")")]
    assert [tuple(filter(None, row)) for row in text.spelling.characters_PC.tolist()] == expected
    assert len(expected[0]) == 8, "a long word ends early"
    read = [text.row(row) for row in range(3)]
    assert [*map(ids_of, read)] == [*map(ids_of, rows)]
    letters = [
        [[word.letters for _, word in unknown_in(row)] for row in some] for some in (read, rows)
    ]
    assert letters[0] == letters[1]
    assert padded(rows[2:], own.pad).spelling is None


def test_a_split_on_disk_and_one_in_memory_carry_the_same(tmp_path: Path) -> None:
    texts = [*(" ".join([KNOWN] * count) for count in range(1, 7)), *TEXTS]
    (tmp_path / "t.txt").write_text("\n\n".join(texts), encoding="utf-8")
    data = RawData.model_validate({"train": {"text": "t.txt"}, "validation": {"split": 0.3}})
    config = TokenizerConfig(kind="word", vocabulary=13)
    found, again, plain = (
        prepare_raw(data, config, tmp_path, letters=letters) for letters in (50, 50, None)
    )
    seen = set()
    for name, split in found.splits.items():
        assert np.array_equal(split.values, plain.splits[name].values)
        assert "unknown" not in plain.splits[name].pieces.columns
        memory = raw_tokens([*split.texts()], split.tokenizer, letters=50)
        for length in (4, 64):
            pieces = [document_pieces(text, length) for text in (split, again.splits[name], memory)]
            batches = [one.batch(np.arange(len(one))) for one in pieces]
            rows = [words_of(batch.text, split.tokenizer) for batch in batches]
            assert rows[0] == rows[1] == rows[2]
            assert batches[0].text.ids_BL.equal(batches[2].text.ids_BL)
            seen |= {word for row in rows[0] for word in row}
    assert {"▁zebra", "zebra", "▁여우", "▁saw"} <= seen
    assert "<unk>" not in seen


def task_of(name: str, longest: int, head: dict[str, Any] | None = None, **data: Any) -> Any:
    """A task with an ELMo, which reads letters."""
    model = {"kind": "elmo", "preset": "tiny"}
    sections = {"data": {"max_length": longest, **data}, "model": model, "head": head or {}}
    return make_task(name, Tokenizers({"text": tokenizer()}), **sections)


SECOND = ["▁the", "▁fox", "▁saw", "▁여우", "▁(", "zebra", ")", "▁."]
"""The second text, as it is read."""


def test_texts_that_are_cut_windowed_and_paired_keep_their_words() -> None:
    own = tokenizer()

    def rows(columns: dict[str, list[str]], longest: int, **data: Any) -> list[list[str]]:
        corpus = {"file": "a.tsv", **{name: name for name in columns}, "label": "label"}
        task = task_of("classification", longest, train=corpus, **data)
        return words_of(Dataset.of(task.encoding, columns, str).batch(np.array([1])).text, own)

    assert rows({"text": TEXTS}, 8, long="head_tail") == [["</s>", "▁the", *SECOND[3:], "</s>"]]
    windows = [["</s>", *SECOND[:6], "</s>"], ["</s>", *SECOND[4:], "</s>"]]
    assert rows({"text": TEXTS}, 8, long="windows", stride=4) == windows
    pair = {"first": TEXTS, "second": ["", "a yak", ""]}
    assert rows(pair, 20) == [["</s>", *SECOND, "<s>", "▁a", "▁yak", "</s>"]]


def test_tagged_words_and_questions_keep_them_too() -> None:
    own = tokenizer()
    words = ["the", "zebra", "saw", "여우", ".", "saw", "saw", "saw"]
    tagging = task_of("tagging", 8, head={"labels": ["O", "B-X", "I-X"]})
    columns = {"tokens": [json.dumps(words, ensure_ascii=False)], "tags": [json.dumps(["O"] * 8)]}
    tagged = Dataset.of(tagging.encoding, columns, str)
    marked = [f"▁{word}" for word in words]
    rows = [["</s>", *marked[:6], "</s>"], ["</s>", *marked[3:], "</s>"]]
    assert words_of(tagged.batch(np.array([0])).text, own) == rows
    encoded = tagging.encoding.words(tagged, 0)
    unknown_words = [
        [token.word for token in word if isinstance(token, UnknownWord)] for word in encoded
    ]
    assert unknown_words[:5] == [[], ["▁zebra"], ["▁saw"], ["▁여우"], []]
    answering = task_of("question_answering", 20, max_question=8, head={"no_answer": True})
    asked = Dataset.of(
        answering.encoding,
        {"context": [TEXTS[1]], "question": ["who saw a yak ?"], "answers": ["[]"]},
        str,
    )
    question = ["▁who", "▁saw", "▁a", "▁yak", "▁?"]
    assert words_of(asked.batch(np.array([0])).text, own) == [
        ["</s>", *question, "<s>", *SECOND, "</s>"]
    ]


# In the model


def batch_of(*rows: Sequence[Token]) -> TextBatch:
    return TextBatch(padded(rows, 0), tokens=sum(map(len, rows)) - len(rows))


def unknown(word: str) -> UnknownWord:
    return UnknownWord(UNK, word, letters_of(word, 12))


def test_a_word_has_the_same_vector_inside_and_outside_the_vocabulary() -> None:
    model = build(CASES["elmo"])
    known = list(range(4, len(WORDS)))
    inside, outside = batch_of(known), batch_of([unknown(WORDS[number]) for number in known])
    for one, other in zip(model.layers_of(inside), model.layers_of(outside), strict=True):
        close(one, other)


def test_two_unknown_words_differ_and_neighbours_do_not_matter() -> None:
    model, rows = (
        build(CASES["elmo"]),
        [[END, 4, unknown("zebra"), 5], [END, 4, unknown("여우"), 5], [END, 4, UNK, 5]],
    )
    together = model.layers_of(
        batch_of(*rows, [END, unknown("extraordinarily"), 6, 7, 8, unknown("zebra"), END])
    )
    for number, row in enumerate(rows):
        for one, other in zip(model.layers_of(batch_of(row)), together, strict=True):
            close(one[0], other[number, : len(row)])
    assert len({round(float(one), 6) for one in together[0][:3, 2].detach().abs().sum(-1)}) == 3
    tokens = build(CASES["elmo-tokens"]).layers_of(batch_of(*rows))
    assert all(layer[0].equal(layer[1]) and layer[0].equal(layer[2]) for layer in tokens), (
        "a table has no letters"
    )


def test_what_is_to_be_predicted_is_still_unk() -> None:
    """The loss of both directions, each read out and summed by hand; an unknown word counts as
    <unk>."""
    model, rows = build(CASES["elmo"]), [[END, 4, unknown("zebra"), 5, END], [END, 6, 7, END]]
    batch = batch_of(*rows)
    output, expected = model(batch), 0.0
    for number, tokens in enumerate(rows):
        row = ids_of(tokens)
        for place in range(len(row) - 1):
            forward = model.readout(output.hidden_BTD[number, place]).detach().log_softmax(-1)
            backward = (
                model.readout(output.backward_BLD[number, place + 1]).detach().log_softmax(-1)
            )
            expected -= float(forward[row[place + 1]] + backward[row[place]]) / 2
    loss = BothDirections(model, 0.0)(batch)[0]
    plain = BothDirections(model, 0.0)(batch_of(*map(ids_of, rows)))[0]
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-9)
    assert abs(float(loss.detach() - plain.detach())) > 1e-3


def test_letters_learn_from_unknown_words() -> None:
    model = build(CASES["elmo"]).train()
    BothDirections(model, 0.0)(batch_of([END, unknown("zzz"), END]))[0].backward()
    slopes = model.embedding.embedding.weight.grad.abs().sum(-1)
    assert float(slopes[1 + ord("z")]) > 0
    assert float(slopes[1 + ord("x")]) == 0


# Through the verbs

RECIPE = raw_recipe(ELMO, tokenizer={"kind": "word", "vocabulary": 40}, steps=6)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    folder = tmp_path_factory.mktemp("elmo") / "run"
    train(RECIPE, out=folder, quiet=True)
    return folder


def test_features_of_words_that_were_never_seen(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "vectors.npz"
    succeed(
        "predict",
        run,
        "The qwertyfox ate.",
        "The zebra ate.",
        "여우",
        "--features",
        file,
        "--layer",
        "0",
    )
    found = np.load(file)
    assert found["tokens"].tolist() == [
        "▁The",
        "▁qwertyfox",
        "▁ate",
        ".",
        "▁The",
        "▁zebra",
        "▁ate",
        ".",
        "▁여우",
    ]
    vectors = found["vectors"]
    np.testing.assert_allclose(vectors[[0, 2, 3]], vectors[[4, 6, 7]], atol=1e-6)
    assert np.abs(vectors[1] - vectors[5]).max() > 1e-3
    assert np.abs(vectors[8] - vectors[1]).max() > 1e-3


def test_a_classifier_on_frozen_features_tells_unknown_words_apart(
    run: Path, tmp_path: Path
) -> None:
    corpora = {
        part: {"corpus": "reviews-en", "size": size}
        for part, size in (("train", 40), ("validation", 10))
    }
    training = RECIPE["training"] | {"init": str(run)}
    tree = {"task": "classification", "data": {**corpora, "max_length": 40}, "training": training}
    train(tree, out=tmp_path / "run", quiet=True)
    texts = ["A qwertyfox film.", "A zebra film.", "A <unk> film."]
    together = succeed("predict", tmp_path / "run", *texts, "--json").jsons
    shares = [one["probabilities"]["positive"] for one in together]
    assert len(set(shares)) == 3
    read = explain(Run.open(tmp_path / "run"), texts[0]).batch.text
    words = [["</s>", "▁A", "▁qwertyfox", "▁film", ".", "</s>"]]
    assert words_of(read, Run.open(run).tokenizers["text"]) == words
    for text, share in zip(texts, shares, strict=True):
        alone = succeed("predict", tmp_path / "run", text, "--json").json["probabilities"][
            "positive"
        ]
        assert alone == pytest.approx(share, abs=1e-6)


def test_explain_reads_what_predict_reads(run: Path) -> None:
    found = Run.open(run)
    explained = explain(found, "The 여우 ate.", padding=2)
    assert words_of(explained.batch.text, found.tokenizers["text"]) == [
        ["</s>", "▁The", "▁여우", "▁ate", "."]
    ]
    vectors = features(found, ["The 여우 ate."], layer=0).vectors
    with torch.inference_mode():
        np.testing.assert_allclose(
            explained.model.layers_of(explained.batch)[0][0, 1:5], vectors, atol=1e-6
        )


def test_a_model_of_tokens_knows_no_other_words(tmp_path: Path) -> None:
    train(RECIPE | {"model": ELMO | {"words": "tokens"}}, out=tmp_path / "run", quiet=True)
    file = tmp_path / "vectors.npz"
    succeed("predict", tmp_path / "run", "The qwertyfox ate.", "The zebra ate.", "--features", file)
    found = np.load(file)
    assert found["tokens"].tolist()[1] == "<unk>"
    np.testing.assert_array_equal(found["vectors"][:4], found["vectors"][4:])
    told = succeed("predict", tmp_path / "run", "여우", "--features", file, "--overwrite").err
    assert "every token of '여우' is unknown to the tokenizer" in told
    assert np.load(file)["tokens"].tolist() == ["<unk>"]


# Named by every verb


def small_run(folder: Path, task: str, corpus: str, kind: str) -> Path:
    sizes = (("train", 60), ("validation", 10))
    tree = {
        "task": task,
        "data": {part: {"corpus": corpus, "size": size} for part, size in sizes},
        "tokenizer": {"kind": "word"},
        "model": {"kind": kind},
        "training": {"steps": 2, "device": "cpu"},
    }
    train(tree, out=folder, quiet=True)
    return folder


def test_a_classifier_names_unknown_words(tmp_path: Path) -> None:
    reader = small_run(tmp_path / "run", "classification", "reviews-en", "bag_of_words")
    [(known, _)] = generate("reviews-en", 1, 1, "train")
    typed = f"{known} qwertyfox"
    told = succeed("predict", reader, typed).err
    assert "has 1 token that is not in the vocabulary ('qwertyfox')" in told
    answers = succeed("predict", reader, typed, known, "--json").jsons
    assert [answer.get("unknown") for answer in answers] == [["qwertyfox"], None]
    assert succeed("explain", reader, typed, "--json").json["unknown"] == ["qwertyfox"]
    assert "'qwertyfox'" in succeed("explain", reader, typed).err


def test_a_language_model_names_unknown_words(tmp_path: Path) -> None:
    writer = small_run(tmp_path / "run", "language_modeling", "tales-en", "ngram")
    [(known,)] = generate("tales-en", 1, 1, "train")
    first, *words = known.split()
    scored = succeed("score", writer, f"{first} zebra", " ".join([*words, "yaks."])).err
    assert "'zebra', 'yaks.'" in scored
    as_json = succeed("score", writer, f"{first} zebra", " ".join(words), "--json").json
    assert as_json["unknown"] == ["zebra"]
    assert succeed("predict", writer, f"{first} zebra", "--json").json["unknown"] == ["zebra"]
    assert succeed("explain", writer, f"{first} zebra", "--json").json["unknown"] == ["zebra"]
