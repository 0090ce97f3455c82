"""Real files as they lie there, where they are at hand: `../shared/data` from the root of the
project."""

from pathlib import Path
from typing import Any

import pytest

import regard
from command_line import refusal, succeed, write
from places import SHARED
from regard.config import write_yaml
from regard.data.raw import PIECE_CHARACTERS, RawText
from regard.data.readers import open_corpus
from regard.tasks.translation import Parallel
from regard.text.files import open_text
from task_cases import rows_of

DATA = SHARED
MODEL = {"kind": "bahdanau", "embedding": 8, "hidden": 8, "attention": 8}
TRAINING = {"steps": 2, "device": "cpu", "batch_tokens": 256, "decode": 2}

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data")


def recipe(folder: Path, data: dict[str, Any], **sections: Any) -> Path:
    tree = {"task": "translation", "data": data, "model": MODEL, "training": TRAINING, **sections}
    return write(folder / "recipe.yaml", write_yaml(tree))


def test_multi30k_is_read_as_it_lies_there(tmp_path: Path) -> None:
    folder, names = DATA / "multi30k", {"train": "val", "validation": "test_2016_flickr"}
    files = {
        part: {
            "source": str(folder / f"{name}.en.gz"),
            "target": str(folder / f"{name}.de.gz"),
        }
        for part, name in names.items()
    }
    path = recipe(tmp_path, files, tokenizer={"kind": "bpe", "vocabulary": 1000})
    found = succeed("check", path, "--json").json
    assert found["data"]["splits"]["train"]["read"] == 1014
    assert found["data"]["splits"]["validation"]["kept"] == 1000
    assert found["data"]["vocabulary"] == {"source": 1000, "target": 1000}
    assert found["data"]["splits"]["train"]["columns"]["source"]["unknown"] == 0
    assert "train.de.gz has 29,000 lines" in refusal(
        "check", path, "data.train.target=" + str(folder / "train.de.gz")
    )


def test_korean_chat_goes_from_csv_to_a_run(tmp_path: Path) -> None:
    file = str(DATA / "ko_chatbot" / "ChatbotData.csv.xz")
    rows = list(rows_of(open_corpus(Parallel(file=file, source="Q", target="A"), Path())))
    assert len(rows) == 11_823
    data = {"train": {"file": file, "source": "Q", "target": "A", "size": 400}}
    path = recipe(tmp_path, data, tokenizer={"kind": "character", "joint": False})
    succeed("train", path, "--out", tmp_path / "run", "--json")
    [found] = succeed(
        "predict", tmp_path / "run", rows[0].values[0], "--set", "search.max_length=9", "--json"
    ).jsons
    assert found["input"] == rows[0].values[0]
    few = write(tmp_path / "few.csv", "Q,A\n안녕,안녕하세요\n" + '"고마워, 정말",천만에요\n')
    assert succeed("evaluate", tmp_path / "run", "--file", few, "--json").json["sentences"] == 2


def test_tatoeba_is_read_by_column_number(tmp_path: Path) -> None:
    data = {
        "train": {
            "file": str(DATA / "tatoeba_en_fr" / "fra.tsv.xz"),
            "source": 0,
            "target": 1,
            "size": 500,
        }
    }
    found = succeed("check", recipe(tmp_path, data, tokenizer={"kind": "byte"}), "--json").json
    assert found["data"]["splits"]["train"]["read"] == 500
    assert found["data"]["vocabulary"]["source"] == 260


@pytest.mark.parametrize(
    ("name", "train"),
    [
        *(
            (f"multi30k-{model}", "{source: multi30k/val.en.gz, target: multi30k/val.de.gz}")
            for model in ("rnn", "bahdanau", "luong", "transformer")
        ),
        ("translation", "{source: ko_en/tatoeba.ko.xz, target: ko_en/tatoeba.en.xz, size: 800}"),
        ("chat", "{file: ko_chatbot/ChatbotData.csv.xz, source: Q, target: A, size: 800}"),
    ],
)
def test_a_recipe_that_ships_fits_the_data_it_is_for(
    name: str, train: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DATA)
    quick = ["tokenizer.vocabulary=1200", "training.batch_tokens=256", "training.device=cpu"]
    found = succeed("check", name, f"data.train={train}", *quick, "--json").json
    assert found["data"]["splits"]["train"]["kept"] > 700
    assert found["data"]["splits"]["validation"]["kept"] >= 16
    assert found["data"]["splits"]["test"]["kept"] >= 16
    assert found["training"]["steps"] > 0


def test_books_stay_whole_however_long_they_are() -> None:
    rows = [*rows_of(open_corpus(RawText(text="books_en/train.txt.xz"), DATA))]
    assert sum(not row.continues for row in rows) == 73
    assert (
        max(len(row.values[0]) for row in rows)
        < 100_000
        < 1_500_000
        < sum(row.continues for row in rows) * PIECE_CHARACTERS
    )


@pytest.mark.parametrize(("name", "tokens"), [("wikitext2-lstm", 245_569), ("wikitext2-gpt", None)])
def test_wikitext_is_counted_as_published(
    name: str, tokens: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small parts stand in for training, so that it is quick; counts of the test part do not
    depend on that."""
    monkeypatch.chdir(DATA)
    small = "{text: wikitext2/wiki.valid.tokens.xz, documents: all_lines}"
    quick = [
        f"data.train={small}",
        "model.preset=tiny",
        "training.batch_tokens=1024",
        "training.device=cpu",
    ]
    splits = succeed("check", name, *quick, "--json").json["data"]["splits"]
    assert [splits[split]["kept"] for split in ("train", "validation", "test")] == [
        3_760,
        3_760,
        4_358,
    ]
    if tokens is not None:
        assert splits["test"]["columns"]["text"]["tokens"] + splits["test"]["kept"] == tokens


def real_sentences(count: int) -> list[str]:
    """As many sentences each of English, German and Korean."""
    files = ["multi30k/train.en.gz", "multi30k/train.de.gz", "ko_en/tatoeba.ko.xz"]
    texts: list[str] = []
    for name in files:
        lines = open_text(str(DATA / name), Path()).lines()
        texts += [line.strip() for line, _ in zip(lines, range(count), strict=False)]
    return texts


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "electra"])
def test_tokens_of_real_sentences(tmp_path: Path, kind: str) -> None:
    """Byte BPE, unigram and WordPiece give the same ids as transformers for 10,000 sentences."""
    transformers = pytest.importorskip("transformers")
    from exchange_cases import save_encoder

    texts = real_sentences(3400)
    assert len(texts) >= 10_000
    save_encoder(tmp_path / "theirs", kind, texts=texts[::3])
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "theirs")
    ours = regard.import_run(tmp_path / "theirs", out=tmp_path / "run").tokenizers["text"]
    assert ours.size > 3000
    expected = theirs(texts).input_ids
    for text, ids, row in zip(texts, ours.encode_batch(texts), expected, strict=True):
        assert [ours.begin, *ids, ours.end] == row, text
