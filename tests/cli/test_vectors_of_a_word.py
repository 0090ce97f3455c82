"""`regard vectors`: the vectors of a word are those that `features` writes, and are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from command_line import fail, refusal, succeed, write
from labelled_cases import SIZES
from regard.config import write_yaml
from regard.runs import Run
from regard.tasks.reading import padded

Tree = dict[str, Any]
SENTENCES = ["안나는 배를 먹었어요.", "배는 크고, 폴은 배를 탔어요."]
LM: Tree = {
    "task": "language_modeling",
    "data": {"train": {"corpus": "meanings-ko", "size": 200}, "max_length": 32},
}
PHRASES: Tree = {
    "task": "translation",
    "tokenizer": {"kind": "character", "joint": True},
    "data": {"train": {"corpus": "phrases-en-ko", "size": 300}},
}
WORDS, PIECES = {"kind": "word"}, {"kind": "wordpiece", "vocabulary": 300}
ENCODER = {"width": 16, "heads": 2, "feed_forward": 32, "encoder_layers": 2, "decoder_layers": 1}
RUNS: dict[str, Tree] = {
    "word2vec": LM | {"tokenizer": WORDS, "model": {"kind": "word2vec", "width": 8}},
    "elmo": LM
    | {"tokenizer": WORDS, "model": {"kind": "elmo", "width": 8, "hidden": 8, "filters": 64}},
    "gpt": LM
    | {"tokenizer": {"kind": "bpe", "vocabulary": 300}, "model": {"kind": "gpt", **SIZES}},
    "bert": LM
    | {"task": "masked_language_modeling", "tokenizer": PIECES}
    | {"model": {"kind": "bert", **SIZES, "next_sentence": False}},
    "transformer": PHRASES | {"model": {"kind": "transformer", **ENCODER}},
    "bahdanau": PHRASES
    | {"model": {"kind": "bahdanau", "embedding": 8, "hidden": 8, "attention": 8}},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, tree in RUNS.items():
        data = {"validation": {"split": 0.1}} | tree["data"]
        recipe = tree | {
            "data": data,
            "training": {"steps": 1, "batch_tokens": 512, "device": "cpu"},
        }
        succeed(
            "train",
            write(folder / f"{name}.yaml", write_yaml(recipe)),
            "--out",
            folder / name,
            "--json",
        )
    return folder


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("name", ["elmo", "gpt", "bert"])
def test_cosines_are_those_of_the_features(runs: Path, name: str) -> None:
    """The pieces of 배 in 배를 have one mean; where a word is one token, 배를 and 배는 are other words."""
    found = regard.vectors(runs / name, SENTENCES, word="배")
    assert [(one.sentence, one.word) for one in found.occurrences] == [
        (1, "배를"),
        (2, "배는"),
        (2, "배를"),
    ]
    model, tokenizer = (
        Run.open(runs / name).load_model("best", "cpu"),
        Run.open(runs / name).tokenizers["text"],
    )
    layers = ["static", *(f"layer {number}" for number in range(model.depth + 1))]
    assert [*found.cosines] == (["static", *layers[2:]] if name == "elmo" else layers)
    whole = len(tokenizer.encode("배를")) == 1
    assert found.cosines["static"][0, 2] == pytest.approx(1.0)
    assert (abs(found.cosines["static"][0, 1] - 1) < 1e-5) == (not whole)
    for number in range(1, model.depth + 1):
        features = regard.features(runs / name, SENTENCES, layer=number)
        one, other = (features.offsets[row] for row in (0, 1))
        place = len(tokenizer.encode("안나는"))
        count = (
            1
            if whole
            else next(
                n for n, token in enumerate(features.tokens[one + place :], 1) if "배" in token
            )
        )
        vectors = (
            features.vectors[one + place : one + place + count],
            features.vectors[other : other + count],
        )
        expected = cosine(*(rows.mean(0) for rows in vectors))
        assert found.cosines[f"layer {number}"][0, 1] == pytest.approx(expected, abs=1e-5)


def test_the_encoder_of_a_transformer_has_vectors(runs: Path) -> None:
    """Those of the last block are the memory that its decoder reads; `</s>` is a part of a text as
    a whole."""
    run = Run.open(runs / "transformer")
    model, tokenizer = run.load_model("best", "cpu"), run.tokenizers["source"]
    with torch.inference_mode():
        ids = [*tokenizer.encode("How are you?"), tokenizer.end]
        calls = []
        handle = model.encoder_norm.register_forward_hook(
            lambda module, inputs, output: calls.append(output)
        )
        model.begin(padded([ids], tokenizer.pad), 1, 5)
        handle.remove()
    features = regard.features(run, ["How are you?"])
    states = calls[0][0].numpy()
    np.testing.assert_allclose(features.vectors, states[:-1], atol=1e-6)
    for pooling, vector in {"mean": states.mean(0), "first": states[0], "last": states[-1]}.items():
        pooled = regard.features(run, ["How are you?", "Hi"], pooling=pooling).vectors  # type: ignore[arg-type]
        np.testing.assert_allclose(pooled[0], vector, atol=1e-6)
    assert len(regard.vectors(run, ["How are you?"], word="are").neighbours["layer 2"][0]) == 2


LEFT_TO_RIGHT = (
    "a model that reads from left to right has the same first vector for every "
    "text (allowed: mean, last)"
)
LAYER_0 = (
    "in layer 0 the first vector is that of a special token, which has not read the text "
    "(choose mean, or another"
)


@pytest.mark.parametrize(
    ("name", "layer", "message"),
    [
        ("gpt", -1, LEFT_TO_RIGHT),
        (
            "word2vec",
            -1,
            "word2vec reads only a few tokens around each, so its first vector does not represent "
            "a text",
        ),
        ("elmo", 0, LAYER_0),
        ("bert", -3, LAYER_0),
        ("elmo", 1, None),
        ("bert", 1, None),
        ("transformer", 0, None),
    ],
)
def test_a_first_vector_that_tells_no_texts_apart_is_refused(
    runs: Path, name: str, layer: int, message: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "a.npz"
    given = [
        "predict",
        runs / name,
        *SENTENCES,
        "--features",
        file,
        "--pooling",
        "first",
        "--layer",
        layer,
    ]
    if message is not None:
        assert refusal(*given).startswith(f"--pooling: {message}")
    else:
        succeed(*given)
        first, second = np.load(file)["vectors"]
        assert np.abs(first - second).max() > 1e-6


def test_neighbours_are_the_nearest_words_of_all_texts(runs: Path, tmp_path: Path) -> None:
    """By brute force, where a word is one token."""
    more = write(tmp_path / "more.txt", "폴은 기차를 탔어요.\n")
    found = succeed(
        "vectors",
        runs / "elmo",
        *SENTENCES,
        "--word",
        "배",
        "--file",
        more,
        "--layer",
        "1",
        "--json",
    ).json
    assert (found["layer"], len(found["inputs"])) == ("layer 1", 3)
    features = regard.features(runs / "elmo", found["inputs"], layer=1)
    words = [
        (token.strip("▁"), vector)
        for token, vector in zip(features.tokens, features.vectors, strict=True)
    ]
    place = [word for word, _ in words].index("배를")
    others = [
        (word, cosine(words[place][1], vector))
        for n, (word, vector) in enumerate(words)
        if n != place
    ]
    nearest: dict[str, float] = {}
    for word, value in sorted((one for one in others if one[0].isalpha()), key=lambda one: -one[1]):
        nearest.setdefault(word, value)
    assert {
        one["word"]: one["cosine"] for one in found["neighbours"]["layer 1"][0]
    } == pytest.approx(dict([*nearest.items()][:5]), abs=1e-5)


def test_unknown_words_are_no_neighbours_and_are_told(runs: Path) -> None:
    """An unknown word would be nearest to every other one: all have the vector of <unk>."""
    texts = ["폴은 배를 탔어요.", "쀍쀏 배를 쀓쀍 탔어요."]
    found = regard.vectors(runs / "word2vec", texts, word="배")
    assert {name: cosines.tolist() for name, cosines in found.cosines.items()} == {
        "static": [[1, 1], [1, 1]]
    }
    words = {neighbour["word"] for nearest in found.neighbours["static"] for neighbour in nearest}
    assert words == {"배를", "폴은", "탔어요"}
    assert found.to_json()["notes"] == [
        "input 2 has 2 tokens that are not in the vocabulary ('쀍쀏', '쀓쀍'): the model reads "
        "<unk> there"
    ]
    assert (
        "note: input 2 has 2 tokens"
        in succeed("vectors", runs / "word2vec", *texts, "--word", "배").out
    )
    unknown = refusal("vectors", runs / "word2vec", texts[1], "--word", "쀍쀏")
    assert "input 1: '쀍쀏' is unknown to the tokenizer in '쀍쀏 배를 쀓쀍 탔어요.'" in unknown


def test_it_is_drawn_and_mistakes_are_one_sentence(runs: Path, tmp_path: Path) -> None:
    for number, count in ((1, 2), (2, 3), (3, 5)):
        out = tmp_path / f"{number}.html"
        succeed(
            "vectors", runs / "bert", *(["폴은 배를 탔어요."] * count), "--word", "배", "--out", out
        )
        assert "폴은 배를 탔어요." in out.read_text(encoding="utf-8")
    succeed("vectors", runs / "bert", *SENTENCES, "--word", "배", "--out", tmp_path / "word.svg")
    succeed(
        "vectors",
        runs / "word2vec",
        *SENTENCES[:1] * 2,
        "--word",
        "배",
        "--out",
        tmp_path / "static.svg",
    )
    for run, word, texts, message in (
        (
            "bert",
            "사과",
            SENTENCES[:1],
            "input 1: no word of '안나는 배를 먹었어요.' is '사과' or begins with it",
        ),
        ("bert", "를", SENTENCES[:1], "input 1: no word of"),
        ("bert", " ", SENTENCES, "--word: there is no word"),
        (
            "bahdanau",
            "How",
            ["How are you?"],
            "bahdanau for translation has no vectors of a single text",
        ),
    ):
        assert message in refusal("vectors", runs / run, *texts, "--word", word)
    assert (
        "there is no layer 7"
        in fail("vectors", runs / "bert", *SENTENCES, "--word", "배", "--layer", "7")[0]
    )
