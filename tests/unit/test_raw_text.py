"""From raw text to what language models read: documents, sentences, tokens, pieces and streams."""

import bz2
import gzip
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.raw import (
    PIECE_CHARACTERS,
    RawData,
    RawText,
    RawTokens,
    Streams,
    contiguous_pieces,
    document_pieces,
)
from regard.data.readers import open_corpus
from regard.data.segments import Masking, SentencePairs
from regard.errors import DataError
from regard.recipes.recipe import recipe_of
from regard.tasks import TASKS
from regard.text.normalise import fold_white_space, split_sentences
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.text.vocabularies import MASKING_NAMES
from task_cases import prepare_raw, raw_tokens, read_raw, rows_of


def documents_in(folder: Path, **fields: Any) -> list[tuple[str, str]]:
    reader = open_corpus(RawText.model_validate(fields), folder)
    return [(reader.where(row.line), row.values[0]) for row in rows_of(reader)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "texts" / "below").mkdir(parents=True)
    (tmp_path / "texts" / "a.txt").write_text("one\n two \n\n\n  \nthree\n", encoding="utf-8")
    (tmp_path / "texts" / "empty.txt").write_text("")
    (tmp_path / "texts" / ".hidden").write_bytes(b"\xff")
    with gzip.open(tmp_path / "texts" / "below" / "b.txt.gz", "wt", encoding="utf-8") as file:
        file.write("넷\n\n다섯")
    rows = [{"text": "six\nseven"}, {"text": "eight"}]
    (tmp_path / "texts" / "c.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return tmp_path


def test_documents_of_a_folder_stand_in_the_order_of_its_files(folder: Path) -> None:
    documents = {
        "texts/a.txt:1": "one\ntwo",
        "texts/a.txt:6": "three",
        "texts/below/b.txt.gz:1": "넷",
        "texts/below/b.txt.gz:3": "다섯",
        "texts/c.jsonl:1": "six\nseven",
        "texts/c.jsonl:2": "eight",
    }
    assert documents_in(folder, text="texts") == [
        (str(Path(where)), text) for where, text in documents.items()
    ]
    lines = documents_in(folder, text="texts/a.txt", documents="lines")
    assert lines == [("texts/a.txt:1", "one"), ("texts/a.txt:2", "two"), ("texts/a.txt:6", "three")]
    every = documents_in(folder, text="texts/a.txt", documents="all_lines")
    assert every == [
        (f"texts/a.txt:{line}", text)
        for line, text in enumerate(["one", "two", "", "", "", "three"], 1)
    ]


@pytest.mark.parametrize(
    ("task", "kind"), [("language_modeling", "gpt"), ("masked_language_modeling", "bert")]
)
def test_bad_lines_that_are_left_out_are_noted(tmp_path: Path, task: str, kind: str) -> None:
    (tmp_path / "a.txt").write_text(f"One. Two.\n\n{'x' * 50}\n\nThree. Four.\n", encoding="utf-8")
    corpus = {"text": "a.txt"}
    data = {"train": corpus, "validation": corpus, "max_characters": 40, "bad_lines": "drop"}
    recipe = recipe_of(
        {
            "task": task,
            "data": data,
            "model": {"kind": kind, "preset": "tiny"},
            "training": {"steps": 1},
        }
    )
    prepared = TASKS[task].prepare(recipe, tmp_path)
    run = TASKS[task](prepared.recipe, prepared.tokenizers)
    assert (
        run.read([RawText(**corpus)], "test", tmp_path).left_out
        == "1 of 3 rows was left out, the first at a.txt:3"
    )


PUBLISHED = " \n = Robert <unk> = \n \n He had a guest @-@ star , \n"
"""As in wiki.test.tokens, the counts of which everyone reports: words, and one end for each line,
empty or not."""


def test_tokens_are_counted_as_published(tmp_path: Path) -> None:
    (tmp_path / "wiki.txt").write_text(PUBLISHED, encoding="utf-8")
    corpus = {"text": "wiki.txt", "documents": "all_lines"}
    data = RawData.model_validate({"train": corpus, "validation": corpus, "deduplicate": False})
    config = TokenizerConfig(kind="word", split="spaces", vocabulary=100)
    text = prepare_raw(data, config, tmp_path).splits["validation"]
    assert len(text.values) == (0 + 1) + (4 + 1) + (0 + 1) + (7 + 1)
    assert int((text.values == text.tokenizer.unk).sum()) == 1
    assert [*text.texts()] == ["", "= Robert <unk> =", "", "He had a guest @-@ star ,"]
    in_memory = read_raw(data, tmp_path, text.tokenizer, sentences="punctuation")
    assert in_memory.values.tolist() == text.values.tolist()


def test_contiguous_pieces_hold_the_whole_text_once(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(TokenizerConfig(kind="word"), ["a b c d e f g h"])
    text = raw_tokens(["a b c", "", "d e f g h"], tokenizer)
    pieces = contiguous_pieces(text, 5)
    a, b, c, d, e, f, g, h = tokenizer.encode("a b c d e f g h")
    end = tokenizer.end
    rows = [[end, a, b, c, end], [end, end, d, e, f], [f, g, h, end, tokenizer.pad]]
    batch = pieces.batch(np.arange(3))
    assert batch.text.ids_BL.tolist() == rows
    assert batch.tokens == len(text.values) == 11


LONG = "\n".join(f"Sentence {number} of a book. It goes on" for number in range(5000))
"""A document of more than two pieces, without a blank line."""


def test_a_long_document_is_read_in_pieces_and_stays_one(tmp_path: Path) -> None:
    assert len(LONG) > 2 * PIECE_CHARACTERS
    (tmp_path / "long.txt").write_text(f"{LONG}\n\nA short one.", encoding="utf-8")
    corpus = RawText(text="long.txt")
    rows = [*rows_of(open_corpus(corpus, tmp_path))]
    assert [row.continues for row in rows] == [False, True, True, False]
    assert max(len(row.values[0]) for row in rows) <= 1.05 * PIECE_CHARACTERS
    assert "".join(row.values[0] for row in rows[:3]) == LONG
    first = open_corpus(RawText(text="long.txt", size=1, prefix="<en> "), tmp_path)
    assert "".join(row.values[0] for row in rows_of(first)) == f"<en> {LONG}"


@pytest.mark.parametrize(
    ("kind", "sentences"),
    [
        ("word", None),
        ("word", "punctuation"),
        ("word", "lines"),
        ("character", None),
        ("byte", None),
    ],
)
def test_long_documents_end_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, sentences: Any
) -> None:
    """Five books and one of them again, read in pieces of three lines: tokens, places and splits by
    the book."""
    lines = [f"The end of line {number} came. It" for number in range(40)]
    books = ["\n".join(lines[start : start + 8]) for start in range(0, 40, 8)]
    (tmp_path / "books.txt").write_text("\n\n".join([*books, books[2]]), encoding="utf-8")
    data = RawData.model_validate(
        {"train": {"text": "books.txt"}, "validation": {"split": 0.4}, "max_length": 16}
    )
    config = TokenizerConfig(kind=kind)

    def prepared(piece: int) -> Any:
        monkeypatch.setattr("regard.data.raw.PIECE_CHARACTERS", piece)
        monkeypatch.setenv("REGARD_CACHE", str(tmp_path / f"cache-{piece}"))
        return prepare_raw(data, config, tmp_path, sentences=sentences)

    whole, cut = prepared(10_000), prepared(60)
    assert cut.report.sentences() == [
        "dropped 1 of 6 training documents: 1 seen before (first: books.txt:46)"
    ]
    assert (
        [len(text) for text in cut.splits.values()]
        == [len(text) for text in whole.splits.values()]
        == [3, 2]
    )
    assert sorted(one for text in cut.splits.values() for one in text.texts()) == sorted(books)
    for text in cut.splits.values():
        tokenizer, own = text.tokenizer, [*text.texts()]
        assert len(text.pieces) == 3 * len(text) == 3 * len(text.corpora)
        places = [f"books.txt:{9 * books.index(book) + 1}" for book in own]
        assert [text.place(row) for row in range(len(text))] == places
        tokens = [[*tokenizer.encode(fold_white_space(book)), tokenizer.end] for book in own]
        assert [text.values[start:stop].tolist() for start, stop in pairwise(text.bounds)] == tokens
    in_memory = read_raw(data, tmp_path, cut.tokenizers["text"], sentences=sentences)
    assert [*in_memory.texts()] == [*books, books[2]]


def test_a_dropped_piece_does_not_give_the_rest_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.data.raw.PIECE_CHARACTERS", 60)
    lines = [f"a line with a number, {number}, in it" for number in range(6)]
    text = "\n".join(["a document before", "", "x" * 300, *lines])
    (tmp_path / "t.txt").write_text(text, encoding="utf-8")
    data = RawData.model_validate(
        {"train": {"text": "t.txt"}, "validation": {"text": "t.txt"}, "max_characters": 200}
    )
    with pytest.raises(DataError, match=r"t\.txt:3: the line has 300 characters"):
        prepare_raw(data, TokenizerConfig(kind="word"), tmp_path)
    found = prepare_raw(
        data.model_copy(update={"bad_lines": "drop"}), TokenizerConfig(kind="word"), tmp_path
    )
    assert [*found.splits["train"].texts()] == ["a document before", "\n".join(lines)]
    assert [found.splits["train"].place(row) for row in range(2)] == ["t.txt:1", "t.txt:4"]


def test_the_pieces_of_a_document_are_no_strangers(tmp_path: Path) -> None:
    """One long book and nothing else: whatever its length, there is no other document for a
    negative."""
    (tmp_path / "book.txt").write_text(LONG, encoding="utf-8")
    (tmp_path / "other.txt").write_text(
        "One here. Two here.\n\nOne there. Two there.", encoding="utf-8"
    )
    data = RawData.model_validate(
        {"train": {"text": "book.txt"}, "validation": {"text": "other.txt"}}
    )
    config = TokenizerConfig(kind="wordpiece", vocabulary=200)
    found = prepare_raw(data, config, tmp_path, sentences="punctuation", special=MASKING_NAMES)
    text = found.splits["train"]
    assert len(text) == found.report.splits["train"].kept == 1
    assert len(text.sentences) > 5000
    with pytest.raises(DataError, match="there is 1 here, of 1 in all"):
        SentencePairs(text, Masking(text.tokenizer), 64)
    shared = RawData.model_validate({"train": {"text": "book.txt"}, "validation": {"split": 0.3}})
    with pytest.raises(DataError, match="no training document is left: 1 document was read"):
        prepare_raw(shared, config, tmp_path)


def test_every_run_of_white_space_is_fold_white_space() -> None:
    tokenizer = Tokenizer.train(TokenizerConfig(kind="word"), ["a b c d"])
    text = raw_tokens(["a\tb\u00a0c\r\nd", "a b c d"], tokenizer)
    assert text.values.tolist() == 2 * [*tokenizer.encode("a b c d"), tokenizer.end]
    lines = raw_tokens(["a\tb\n\nc  d\r\n"], tokenizer, sentences="lines")
    assert lines.sentences.tolist() == [0, 2, 5]


@pytest.mark.parametrize(
    ("name", "text", "corpus", "messages"),
    [
        (
            "t.jsonl",
            '{"text": null}\n{"text": "a"}\n{"text": ""}\n',
            {"text": "t.jsonl"},
            [
                f"t.jsonl:{line}: the column 'text' is empty (fill it, or data.bad_lines=drop "
                "drops such documents)"
                for line in (1, 3)
            ]
            + [
                "data.bad_lines: 2 of 3 documents cannot be used (auto drops up to 1% of them, "
                "data.bad_lines=drop any number)"
            ],
        ),
        (
            "t.csv",
            'id,body\n1,""\n2,a\n',
            {"file": "t.csv", "text": "body"},
            [
                "t.csv:2: the column 'body' is empty (fill it, or data.bad_lines=drop drops such "
                "documents)",
                "data.bad_lines: 1 of 2 documents cannot be used (auto drops up to 1% of them, "
                "data.bad_lines=drop any number)",
            ],
        ),
        (
            "t.tsv",
            "id\tdocument\n1\ta b\n",
            {"text": "t.tsv"},
            [
                "t.tsv:1: there is no column 'text' (the columns are id, document; rename one to "
                "text, or name it in the "
                "recipe: {file: t.tsv, text: COLUMN})"
            ],
        ),
        (
            "t.csv",
            ",id,Text ,\n1,2,a b,\n",
            {"file": "t.csv", "text": "text"},
            [
                "t.csv:1: there is no column 'text' (the columns are '', id, 'Text ', ''; did you "
                "mean 'Text '?)"
            ],
        ),
    ],
)
def test_bad_raw_tables(
    tmp_path: Path, name: str, text: str, corpus: dict[str, str], messages: list[str]
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    data = RawData.model_validate({"train": corpus, "validation": {"split": 0.2}})
    with pytest.raises(DataError) as raised:
        prepare_raw(data, TokenizerConfig(kind="word"), tmp_path)
    assert [str(problem) for problem in raised.value.problems] == messages


def test_all_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for name, content in {
        "a.txt": b"good\n",
        "b.tsv": b"id\n1\n",
        "c.zip": b"PK\x03\x04\xff\xfe",
    }.items():
        (tmp_path / "d" / name).write_bytes(content)
    with pytest.raises(DataError) as raised:
        documents_in(tmp_path, text="d")
    assert [problem.where for problem in raised.value.problems] == [
        f"{Path('d', 'b.tsv')}:1",
        f"{Path('d', 'c.zip')}:1",
    ]
    (tmp_path / "d" / "b.tsv").unlink()
    (tmp_path / "d" / "c.zip").rename(tmp_path / "d" / "README.md")
    [note] = RawText(text="d").findings(RawText(text="d").files(tmp_path))
    assert (
        note
        == "d: 2 files are read: 1 .txt, 1 .md (README.md); d/**/*.txt names the .txt files alone"
    )


def test_a_vocabulary_learns_no_white_space(tmp_path: Path) -> None:
    rows = [{"text": f"the\tfox\r\nwas\u00a0here {number}"} for number in range(9)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    data = RawData.model_validate({"train": {"text": "t.jsonl"}, "validation": {"split": 0.2}})
    for kind in ("word", "bpe", "wordpiece"):
        config = TokenizerConfig(kind=kind, vocabulary=60)
        tokenizer = prepare_raw(data, config, tmp_path).tokenizers["text"]
        assert tokenizer.pieces(tokenizer.encode("the fox was here"))[0].startswith("▁t")
        assert not any(
            sign in token
            for token in tokenizer.tokens(range(tokenizer.size))
            for sign in "\t\r\n\u00a0"
        )


@pytest.mark.parametrize(
    ("files", "name", "message"),
    [
        ({}, "none", r"none: there is no file in the folder \(put \.txt files into it\)"),
        (
            {".hidden": b"text\n", "empty.txt": b""},
            "none",
            "none: the files in the folder are all empty, or hidden",
        ),
        ({"empty.txt": b""}, "none/*.txt", "no file has such a name, or only empty ones"),
        ({}, "none/*.tex", r"none/\*\.tex: no file has such a name"),
        ({}, "nowhere.txt", "there is no such file"),
    ],
)
def test_bad_raw_text(tmp_path: Path, files: dict[str, bytes], name: str, message: str) -> None:
    (tmp_path / "none").mkdir()
    for file, content in files.items():
        (tmp_path / "none" / file).write_bytes(content)
    with pytest.raises(DataError, match=message):
        documents_in(tmp_path, text=name)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "this is a PNG image, not a text: byte 0x89"),
        (b"good\n\0\0", "this is a binary file, not a text: the line holds a zero byte"),
        (bz2.compress(b"a text"), "this is a .bz2 file, not a text"),
        (b"PK\x03\x04\xff", "this is a .zip archive, not a text"),
        (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", "this is a PDF, not a text"),
        (gzip.compress(b"a text", mtime=0), "this is a .gz file under another name, not a text"),
        (random.Random(1).randbytes(300).replace(b"\0", b""), "this is a binary file, not a text"),
        (
            "여우가 갔다.\n".encode("cp949"),
            "name its encoding with data.encoding=cp949; or save it as UTF-8",
        ),
        (
            "The café.\n".encode("latin1"),
            "name its encoding with data.encoding=latin1 (Western Europe), or another",
        ),
        ("The fox.\n".encode("utf-16"), "name its encoding with data.encoding=utf-16"),
    ],
)
def test_what_is_no_text_is_told_from_a_text_in_another_encoding(
    tmp_path: Path, data: bytes, said: str
) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("good\n")
    (tmp_path / "texts" / "b").write_bytes(data)
    with pytest.raises(DataError) as error:
        documents_in(tmp_path, text="texts")
    [problem] = error.value.problems
    assert said in f"{problem.what} ({problem.hint})"
    assert problem.where == str(
        Path("texts", "b:2" if data.startswith((b"good", b"%PDF")) else "b:1")
    )
    if "not a text" in said:
        assert problem.hint.startswith("take it out of what is read")
        assert problem.hint.endswith("plain or as .gz, .xz, .zst")


def test_a_pattern_chooses_among_files(tmp_path: Path) -> None:
    for name in ("a.txt", "deep/er/b.txt", "README.md", "empty.txt", ".hidden.txt"):
        (tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / name).write_text("" if name == "empty.txt" else name)
    assert [text for _, text in documents_in(tmp_path, text="texts/**/*.txt")] == [
        "a.txt",
        "deep/er/b.txt",
    ]
    assert [text for _, text in documents_in(tmp_path, text=str(tmp_path / "texts/*.md"))] == [
        "README.md"
    ]
    [(where, _)] = documents_in(tmp_path, text="texts/?.txt")
    assert where == str(Path("texts", "a.txt:1"))
    (tmp_path / "a*b.txt").write_text("a name of its own")
    assert [text for _, text in documents_in(tmp_path, text="a*b.txt")] == ["a name of its own"]


def test_what_is_read_of_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name in (
        *(f"{n}.txt" for n in range(12)),
        "README.md",
        "LICENSE",
        *(f"{n}.py" for n in range(5)),
    ):
        (tmp_path / "texts" / name).write_text(f"The text of {name}.")
    folder = (
        "texts: 19 files are read: 12 .txt, 5 .py (0.py, 1.py, 2.py, ...), 1 without a suffix "
        "(LICENSE), "
        "1 .md (README.md); texts/**/*.txt names the .txt files alone"
    )
    for text, said in (
        ("texts", folder),
        ("texts", folder),
        ("texts/*.txt", "texts/*.txt: 12 files are read: 12 .txt"),
    ):
        data = RawData.model_validate({"train": {"text": text}, "validation": {"split": 0.2}})
        assert prepare_raw(
            data, TokenizerConfig(kind="character"), tmp_path
        ).report.sentences() == [said]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "He came. She left! Why? Nobody knows.",
            ["He came.", "She left!", "Why?", "Nobody knows."],
        ),
        (
            "Dr. Kim met J. Smith at 3.14 p.m. in Seoul. Good.",
            ["Dr. Kim met J. Smith at 3.14 p.m. in Seoul.", "Good."],
        ),
        ('"Go!" she said. "Now?" He went...', ['"Go!" she said.', '"Now?"', "He went..."]),
        ("Wait... and see. (Really.) Yes", ["Wait... and see.", "(Really.)", "Yes"]),
        ("1. First point. 2. Second.", ["1. First point.", "2. Second."]),
        ("She and I. Then we left.", ["She and I.", "Then we left."]),
        (
            "why? dr. kim met j. smith at 3.14 p.m. now. ok",
            ["why?", "dr. kim met j. smith at 3.14 p.m. now.", "ok"],
        ),
        ("in my car, no. you said I may. fine", ["in my car, no. you said I may. fine"]),
        ("좋았다.그런데 별로였어요. 정말? 네!", ["좋았다.", "그런데 별로였어요.", "정말?", "네!"]),
        ("값은 3.5점이다. 서울.부산은 멀다.", ["값은 3.5점이다.", "서울.부산은 멀다."]),
        ("よかった。とても！", ["よかった。", "とても！"]),
        ("  ", []),
    ],
)
def test_sentences_by_hand(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@given(st.text(alphabet="aB. !?가다\n\"'1"))
def test_sentences_lose_nothing_but_white_space(text: str) -> None:
    found = split_sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence == sentence.strip() and sentence for sentence in found)


TEXTS = ["a b c d e.", "f g.", "h i j k l m n o p q r s t.", "u."]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TokenizerConfig(kind="word"), [" ".join(TEXTS)])


@pytest.fixture(scope="module")
def text(tokenizer: Tokenizer) -> RawTokens:
    return raw_tokens(TEXTS, tokenizer, lambda number: f"text:{number}")


def test_raw_tokens_are_documents_and_their_ends(text: RawTokens, tokenizer: Tokenizer) -> None:
    expected = [[*tokenizer.encode(document), tokenizer.end] for document in TEXTS]
    assert text.values.tolist() == [token for document in expected for token in document]
    assert np.diff(text.bounds).tolist() == [len(document) for document in expected]
    assert text.frequencies()[tokenizer.end] == len(TEXTS)
    assert text.document_at(np.array([0, 6, 7, len(text.values) - 1])).tolist() == [0, 0, 1, 3]


@pytest.mark.parametrize("max_length", [8, 9, 40])
def test_pieces_predict_every_token_once_from_the_one_before(
    text: RawTokens, max_length: int
) -> None:
    pieces, end = document_pieces(text, max_length), text.tokenizer.end
    batch = pieces.batch(np.arange(len(pieces)))
    rows = [
        row[:length]
        for row, length in zip(
            batch.text.ids_BL.tolist(), batch.text.lengths_B.tolist(), strict=True
        )
    ]
    assert [token for row in rows for token in row[1:]] == text.values.tolist()
    assert batch.tokens == len(text.values)
    assert max(map(len, rows)) <= max_length
    assert [row[0] for row in rows] == [end, *(row[-1] for row in rows[:-1])]
    assert (
        batch.text.ids_BL[:, 1:].eq(text.tokenizer.pad).sum()
        == batch.text.ids_BL[:, 1:].numel() - batch.tokens
    )
    assert [pieces.where(number) for number in (0, len(pieces) - 1)] == ["text:0", "text:3"]


@pytest.mark.parametrize("batch_tokens", [1, 8, 14, 21, 1000])
def test_streams_go_on_where_the_batch_before_ended(text: RawTokens, batch_tokens: int) -> None:
    streams = Streams(text, 8)
    batches = [streams.batch(rows) for rows in streams.plan(batch_tokens, seed=1, epoch=0)]
    assert [batch.carries for batch in batches] == [False, *[True] * (len(batches) - 1)]
    rows: dict[int, list[int]] = {}
    for number, batch in enumerate(batches):
        for row, (ids, length) in enumerate(
            zip(batch.text.ids_BL, batch.text.lengths_B, strict=True)
        ):
            if number:
                assert ids[0] == rows[row][-1]
            rows.setdefault(row, []).extend(ids[1 : int(length)].tolist())
    assert [token for row in sorted(rows) for token in rows[row]] == text.values.tolist()
    assert sum(batch.tokens for batch in batches) == len(text.values)
    assert len(rows) <= max(1, batch_tokens // 7)


def test_a_document_that_stands_in_both_splits_is_told(folder: Path) -> None:
    data = RawData.model_validate(
        {"train": {"text": "texts"}, "validation": {"text": "texts/a.txt"}}
    )
    found = prepare_raw(data, TokenizerConfig(kind="character"), folder)
    [said] = found.report.sentences()[1:]
    first = Path("texts", "a.txt:1")
    assert said == f"2 of 2 validation documents also occur in the training data (first: {first})"


def test_sentences_are_kept_apart_where_they_are_asked_for(tokenizer: Tokenizer) -> None:
    text = raw_tokens(["A b. C d! E", "F g."], tokenizer, sentences="punctuation")
    assert text.documents.tolist() == [0, 3, 4]
    sizes = [len(tokenizer.encode(sentence)) for sentence in ("A b.", "C d!", "E", "F g.")]
    assert np.diff(text.sentences).tolist() == [sizes[0], sizes[1], sizes[2] + 1, sizes[3] + 1]
