"""A SentencePiece model becomes a tokenizer.json with the same ids, and what is no such model is
named."""

import random
import sys
from pathlib import Path
from typing import Any

import pytest

from command_line import fail, succeed, write
from regard.config import write_yaml
from regard.errors import DataError
from regard.text.tokenizers import Tokenizer

sentencepiece = pytest.importorskip("sentencepiece")

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "나는 학교에 갑니다.",
    "한국어 문장을 나누는 방법은 여러 가지가 있다.",
    "The animal did not cross the street, because it was too tired!",
    "사과를 먹고 배를 탔다.",
    "길이가 다른 문장들이 섞여 있습니다: 123, 4567 and 2024-03-05",
]
WORDS = " ".join(SENTENCES).split()
ODD = [
    "  two  spaces ",
    " lead",
    "ﬁne Ⅳ ＡＢＣ",
    "한국",
    "漢字☃☃ x",
    "a\tb",
    "wide\u3000space",
    "a",
    "",
    " ",
]
ODD += ["a <0x41>b<0xEA><0x41"]  # spelt like bytes
TAGGED = ["<2ko> hello", "hello <2ko>there <2ko>", "<2ko>"]
MODELS: dict[str, dict[str, Any]] = {
    "unigram": {"model_type": "unigram", "vocab_size": 115},
    "bpe": {"model_type": "bpe", "vocab_size": 200},
    "char": {"model_type": "char", "vocab_size": 100, "hard_vocab_limit": False},
    "unigram-bytes": {
        "model_type": "unigram",
        "vocab_size": 365,
        "byte_fallback": True,
        "character_coverage": 0.98,
    },
    "bpe-bytes": {
        "model_type": "bpe",
        "vocab_size": 450,
        "byte_fallback": True,
        "character_coverage": 0.98,
    },
    "unigram-tags": {
        "model_type": "unigram",
        "vocab_size": 115,
        "user_defined_symbols": ["<2ko>", "<2"],
    },
    "bpe-tags": {"model_type": "bpe", "vocab_size": 200, "user_defined_symbols": ["<2ko>", "<2"]},
    "bpe-plain": {
        "model_type": "bpe",
        "vocab_size": 200,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
    },
    "unigram-bare": {
        "model_type": "unigram",
        "vocab_size": 115,
        "add_dummy_prefix": False,
        "pad_id": 3,
    },
}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each kind of model, trained on the words of the sentences in random order."""
    folder = tmp_path_factory.mktemp("sentencepiece")
    draw = random.Random(1)
    lines = [*SENTENCES * 3, *(" ".join(draw.choices(WORDS, k=8)) for _ in range(400))]
    write(folder / "text", "\n".join(lines))
    for name, options in MODELS.items():
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"), model_prefix=str(folder / name), minloglevel=2, **options
        )
    return {name: folder / f"{name}.model" for name in MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_ids_are_those_of_sentencepiece(models: dict[str, Path], name: str) -> None:
    theirs, ours = (
        sentencepiece.SentencePieceProcessor(model_file=str(models[name])),
        Tokenizer.load(models[name]),
    )
    saved = Tokenizer.from_json(ours.to_json())
    draw = random.Random(2)
    shuffled = ["".join(draw.choices(" ".join(WORDS) + "漢é  <2ko>", k=40)) for _ in range(300)]
    written, first = ours.token_bytes(), "" if name == "unigram-bare" else " "
    for text in [*SENTENCES, *ODD, *TAGGED, *shuffled]:
        ids = ours.encode(text)
        assert ids == theirs.encode(text), text
        assert saved.encode(text) == ids
        # the bytes of tokens make the text, also of a sign that has no piece
        if text not in shuffled:
            assert b"".join(written[token] for token in ids).decode().removeprefix(
                first
            ) == ours.decode(ids)
    assert ours.tokens(ours.encode(SENTENCES[1])) == theirs.encode(SENTENCES[1], out_type=str)
    if name in ("unigram", "bpe", "bpe-bytes"):
        assert [ours.decode(ours.encode(text)) for text in SENTENCES] == SENTENCES


def test_special_tokens_keep_their_ids_and_missing_ones_follow(models: dict[str, Path]) -> None:
    plain, padded = Tokenizer.load(models["unigram"]), Tokenizer.load(models["unigram-bare"])
    assert (plain.unk, plain.begin, plain.end, plain.pad, plain.size) == (0, 1, 2, 115, 116)
    assert (padded.pad, padded.size) == (3, 115)
    assert set(plain.encode("<s> </s>")).isdisjoint({plain.begin, plain.end})


def test_runs_keep_the_tokenizer_as_json(
    models: dict[str, Path], tmp_path: Path, tiny_recipe: dict[str, Any]
) -> None:
    (tmp_path / "own.model").write_bytes(models["unigram"].read_bytes())
    tiny_recipe |= {"tokenizer": {"file": "own.model"}}
    tiny_recipe["training"]["steps"] = 2
    succeed(
        "train",
        write(tmp_path / "r.yaml", write_yaml(tiny_recipe)),
        "--out",
        tmp_path / "run",
        "--json",
    )
    (tmp_path / "own.model").unlink()
    saved = Tokenizer.load(tmp_path / "run" / "tokenizer.json")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(models["unigram"]))
    assert [saved.encode(text) for text in SENTENCES] == theirs.encode(SENTENCES)
    assert succeed("predict", tmp_path / "run", "the dog", "--json").json["input"] == "the dog"


@pytest.mark.parametrize("content", [b"", b"not a model\n", b"\x0a\xff\xff\xff", bytes(50), "cut"])
def test_unreadable(
    tmp_path: Path, tiny_recipe: dict[str, Any], models: dict[str, Path], content: bytes | str
) -> None:
    whole = models["unigram"].read_bytes()
    write(tmp_path / "broken.model", whole[:1500] if content == "cut" else content)
    tiny_recipe |= {"tokenizer": {"file": "broken.model"}}
    [message] = fail("check", write(tmp_path / "r.yaml", write_yaml(tiny_recipe)))
    assert message.startswith(
        f"{tmp_path / 'broken.model'}: cannot be read as a SentencePiece model"
    )


def test_a_model_of_whole_words_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "text", "\n".join(SENTENCES))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"),
        model_prefix=str(tmp_path / "w"),
        model_type="word",
        vocab_size=20,
        minloglevel=2,
    )
    with pytest.raises(DataError, match=r"w\.model: a SentencePiece model of whole words"):
        Tokenizer.load(tmp_path / "w.model")
    with pytest.raises(DataError, match=r"none\.model: there is no such tokenizer file"):
        Tokenizer.load(tmp_path / "none.model")


def test_without_the_library(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "sentencepiece"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(
        DataError, match=r"needs the library 'sentencepiece' \(pip install 'regard\[formats\]'\)"
    ):
        Tokenizer.load(models["unigram"])
