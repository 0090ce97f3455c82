"""What unknown tokens cost where language models with other vocabularies are compared: by hand, and a planted case."""

import json
import math
from pathlib import Path

import pytest

import regard as api
from command_line import succeed, write
from raw_cases import raw_recipe
from regard.data.corpora import generate
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.training.train import train
from task_cases import raw_tokens

TOKENIZERS = {
    "pieces": {"kind": "bpe", "vocabulary": 300},
    "words": {"kind": "word", "vocabulary": 2000},
    "few": {"kind": "word", "vocabulary": 20},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("unknown")
    data = {"train": {"corpus": "tales-en", "size": 150}, "validation": {"corpus": "tales-en", "size": 20}}
    model = {"kind": "lstm_lm", "embedding": 24, "hidden": 24, "layers": 1}
    for name, tokenizer in TOKENIZERS.items():
        tree = raw_recipe(model, data | {"max_length": 128}, tokenizer, steps=40, decode=0)
        train(tree, out=folder / name, quiet=True)
    return {name: folder / name for name in TOKENIZERS}


@pytest.mark.parametrize(("known", "texts", "unknown", "symbols"), [
    ("ab cde", ["ab cde", "xyz ab 한", ""], [0, 2, 0], [0, 3 + 1 + 3 + 1, 0]),  # 한 has three bytes
    ("ab cde", ["ab 한", "ab \u1112\u1161\u11ab"], [1, 1], [4, 4]),  # a syllable in pieces is the same one
    ("ab <unk>", ["ab <unk> ab"], [0], [0]),  # a text that says <unk> has no unknown token
])  # fmt: skip
def test_spelling_unknown_words_by_hand(known: str, texts: list[str], unknown: list[int], symbols: list[int]) -> None:
    config = TokenizerConfig(kind="word", vocabulary=20, split="spaces")
    text = raw_tokens(texts, Tokenizer.train(config, [" ".join([known] * 3)]))
    assert text.spelt_out[0].tolist() == unknown
    assert text.spelt_out[1].tolist() == pytest.approx([count * math.log(257) for count in symbols])
    assert text.unknown_share == sum(unknown) / sum(len(one.split()) for one in texts)


def test_evaluate_charges_words_and_characters_but_no_token(runs: dict[str, Path], tmp_path: Path) -> None:
    file = write(tmp_path / "text.txt", "The kind child\n\nZyxwv.\n")
    found = api.evaluate(runs["words"], files=[str(file)])
    unknown = (5 + 1) * math.log(257)  # Zyxwv
    nats = found["loss"] * found["tokens"] + unknown
    assert found["unknown"] == pytest.approx(1 / (found["tokens"] - 2))
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert found["word_perplexity"] == pytest.approx(math.exp(nats / (4 + 2)))
    assert found["bits_per_character"] == pytest.approx(nats / math.log(2) / 20)
    assert "unknown token costs" in found["note"]
    assert "unknown" in succeed("evaluate", runs["words"], "--file", file).out


def test_characters_are_counted_as_they_are_read(runs: dict[str, Path], tmp_path: Path) -> None:
    """Blanks that no model reads are none that it predicts."""
    texts = {"single": "The kind child went home.", "double": "The  kind\tchild   went home."}
    single, double = (
        api.evaluate(runs["pieces"], files=[str(write(tmp_path / f"{name}.txt", text))]) for name, text in texts.items()
    )
    assert double["bits_per_character"] == single["bits_per_character"]


def test_without_unknown_tokens_there_is_no_note(runs: dict[str, Path], tmp_path: Path) -> None:
    file = write(tmp_path / "text.txt", next(generate("tales-en", 1, 1, "train"))[0])
    found = api.evaluate(runs["words"], files=[str(file)])
    words = len(file.read_text(encoding="utf-8").split()) + 1
    assert found["unknown"] == 0
    assert "note" not in found
    assert found["word_perplexity"] == pytest.approx(math.exp(found["loss"] * found["tokens"] / words))


def test_a_vocabulary_of_twenty_words_does_not_win(runs: dict[str, Path], tmp_path: Path) -> None:
    """By the perplexity of its own tokens it is far ahead: half of them are <unk>, which is easy to predict."""
    alone = {name: api.evaluate(folder)["perplexity"] for name, folder in runs.items()}
    assert alone["few"] < min(alone["pieces"], alone["words"])
    page = tmp_path / "report.html"
    said = succeed("compare", *runs.values(), "--out", page).out
    found = json.loads(succeed("compare", *runs.values(), "--json").out)
    rows = {row["system"]: row for row in found["systems"]}
    evaluated = api.evaluate(runs["few"])
    for metric in ("word_perplexity", "bits_per_character", "unknown"):
        assert rows["few"][metric] == pytest.approx(evaluated[metric], rel=1e-5)
    assert rows["few"]["unknown"] > 0.3
    assert rows["pieces"]["unknown"] == 0
    for metric in ("word_perplexity", "bits_per_character"):
        assert rows["few"][metric] > max(rows["pieces"][metric], rows["words"][metric])
    for text in (said, found["note"], page.read_text(encoding="utf-8")):
        assert "an unknown token costs, besides" in text
