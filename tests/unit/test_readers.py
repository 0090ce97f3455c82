"""Every format reads back what was written, and every broken file is named with its line."""

import csv
import encodings
import gzip
import io
import json
import lzma
import pkgutil
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from command_line import fail
from places import SHARED
from regard.data.config import Corpus, Splits
from regard.data.formats import Row, is_quoted
from regard.data.labelled import Labelled
from regard.data.readers import open_corpus
from regard.errors import DataError, Problem
from regard.text.files import open_text
from task_cases import rows_of


class Pairs(Corpus):
    source: str | int | None = None
    target: str | int | None = None


PAIRS = [
    ("a house", "ein Haus"),
    ("  two  spaces ", "größer"),
    ("한국어 문장", "x\u2028y\x85z\x0cw\x0bv\x1cu"),
    ("", " "),
]
COMPRESSIONS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def put(folder: Path, name: str, text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(COMPRESSIONS.get(Path(name).suffix, bytes)(data))
    return name


def read(folder: Path, **fields: object) -> list[Row]:
    return list(rows_of(open_corpus(Pairs.model_validate(fields), folder)))


def problem_of(folder: Path, **fields: object) -> Problem:
    with pytest.raises(DataError) as caught:
        read(folder, **fields)
    (problem,) = caught.value.problems
    return problem


def numbered(pairs: list[tuple[str, str]], first: int = 1) -> list[Row]:
    return [Row(line, pair) for line, pair in enumerate(pairs, first)]


def as_csv(rows: list[tuple[str, str]]) -> str:
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows(rows)
    return stream.getvalue()


# Round trips

QUOTED = [('a "word"', "b"), ("line 1\nline 2", "c"), ("with\ta tab", "d"), ("plain", "e")]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize(
    ("rows", "quoting"),
    [
        *(([row, ("plain", "e")], csv.QUOTE_MINIMAL) for row in QUOTED[:3]),
        (QUOTED, csv.QUOTE_ALL),
        ([("one", "two"), ("three", "four")], csv.QUOTE_ALL),
        ([("one", "two"), ("3", "4")], csv.QUOTE_NONNUMERIC),
    ],
)
def test_a_tsv_with_quoted_cells_is_read_as_it_was_written(
    tmp_path: Path, compression: str, rows: list[tuple[str, str]], quoting: Literal[0, 1, 2]
) -> None:
    """As pandas and Excel write it; columns are found by name and by number, and a note says so."""
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter="\t", quoting=quoting).writerows([("en", "de"), *rows])
    name = put(tmp_path, f"p.tsv{compression}", stream.getvalue())
    for keys in ({"source": "en", "target": "de"}, {"source": 0, "target": 1, "header": True}):
        reader = open_corpus(Pairs.model_validate({"file": name, **keys}), tmp_path)
        assert [row.values for row in reader.rows()] == rows
        assert (
            reader.files[0]
            .notes[0]
            .startswith(f"{name}: cells in double quotes are read as in a .csv")
        )


@pytest.mark.parametrize(
    "lines",
    [
        ['"a" said he', "b\tc"],
        ['say "a"\tb'],
        ['"stray\tb', 'stray"\tc'],
        ['"both"\tb', "c\td"],
        ['""\tb', "c\td"],
        ['"a ""b"""\tc', 'd "e"\tf'],
        ['"a ""b"""\tc', "d\te\tf"],
        ['"never\tclosed'],
    ],
)
def test_quotes_in_texts_of_a_tsv_are_part_of_them(tmp_path: Path, lines: list[str]) -> None:
    """Also where some cells could be taken for quoted ones."""
    put(tmp_path, "p.tsv", "".join(f"{line}\n" for line in lines))
    assert not is_quoted(open_text("p.tsv", tmp_path))
    if all(line.count("\t") == 1 for line in lines):
        rows = read(tmp_path, file="p.tsv", source=0, target=1)
        assert [row.values for row in rows] == [tuple(line.split("\t")) for line in lines]


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
def test_of_real_tables_those_with_quoted_cells_are_told() -> None:
    """GLUE, IMDb, NSMC and Tatoeba have quotes in their texts; the Korean comments were written by
    pandas."""
    tables = sorted(SHARED.rglob("*.tsv.xz"))
    quoted = {
        str(path.relative_to(SHARED)) for path in tables if is_quoted(open_text(str(path), Path()))
    }
    assert quoted == {"ko_hate_speech/dev.tsv.xz", "ko_hate_speech/train.tsv.xz"}


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_key_that_occurs_twice_is_refused(tmp_path: Path, name: str) -> None:
    good, bad = '{"source": "a", "target": "b"}', '{"source": "a", "target": {"x": 1, "x": [2]}}'
    put(tmp_path, name, f"[{good}, {bad}]" if name == "a.json" else f"{good}\n{bad}\n")
    problem = problem_of(tmp_path, file=name, source="source", target="target")
    assert problem.where == (name if name == "a.json" else "a.jsonl:2")
    assert problem.what == "the key 'x' occurs twice in an object: 1 and [2]"


def test_two_columns_of_one_name_in_parquet_are_refused(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = [arrow.array(["a", "b"])] * 3
    parquet.write_table(arrow.table(columns, names=["en", "de", "de"]), tmp_path / "p.parquet")
    problem = problem_of(tmp_path, file="p.parquet", source="en", target="de")
    assert (problem.where, problem.what) == ("p.parquet", "two columns are named 'de'")
    [message] = fail("check", tmp_path / "p.parquet")
    assert "two columns are named 'de' (the columns are en, de, de)" in message


@pytest.mark.parametrize(
    "encoding", ["punycode", "idna", "unicode_escape", "raw_unicode_escape", "base64", "undefined"]
)
def test_codecs_that_are_not_for_files_are_refused(encoding: str) -> None:
    train = {"file": "a.tsv", "source": 0, "target": 1}
    with pytest.raises(ValueError, match=f"Python has no text encoding '{encoding}'"):
        Splits[Pairs].model_validate({"train": train, "encoding": encoding})


def test_every_other_encoding_of_python_reads_lines_back(tmp_path: Path) -> None:
    """Also those in which a line feed is another byte, or a line depends on the lines before it."""
    names = {module.name for module in pkgutil.iter_modules(encodings.__path__)}
    pairs, read_back = [("a b", "c+d"), ("e\\u0041", "f")], set()
    for name in sorted(names):
        try:
            data = Splits[Pairs].model_validate(
                {"train": {"file": "p.tsv", "source": 0, "target": 1}, "encoding": name}
            )
        except ValueError:
            continue
        signs = "가나" if data.encoding in ("cp949", "iso2022_kr", "utf-7") else ""
        rows = [(source + signs, target) for source, target in pairs]
        put(
            tmp_path,
            "p.tsv",
            "".join(f"{source}\t{target}\n" for source, target in rows).encode(data.encoding),
        )
        read_rows = open_corpus(data.train[0], tmp_path, encoding=data.encoding).rows()
        assert [row.values for row in read_rows] == rows, name
        read_back.add(data.encoding)
    assert {"utf-8", "utf-16", "cp949", "iso2022_kr", "cp037"} <= read_back


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last_end", [True, False])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_what_was_written_is_read(
    tmp_path: Path, compression: str, end: str, last_end: bool, mark: str
) -> None:
    """Parallel files; .tsv, which has no quoting; .csv, whose cells may hold line breaks; .jsonl,
    ASCII or not."""
    lines = PAIRS[:3]
    for name, column in (("train.en", 0), ("train.de", 1)):
        put(
            tmp_path,
            name + compression,
            mark + end.join(pair[column] for pair in lines) + end * last_end,
        )
    assert read(
        tmp_path, source=f"train.en{compression}", target=f"train.de{compression}"
    ) == numbered(lines)

    pairs = [*PAIRS, ('"half a quote', 'say "no"')]
    text = end.join(f"{target}\tignored\t{source}" for source, target in pairs)
    put(tmp_path, f"p.tsv{compression}", mark + text + end * last_end)
    assert read(tmp_path, file=f"p.tsv{compression}", source=2, target=0) == numbered(pairs)

    objects = (json.dumps({"de": b, "id": 3, "en": a}, ensure_ascii=last_end) for a, b in pairs)
    put(tmp_path, f"p.jsonl{compression}", mark + end.join(objects) + end * last_end)
    assert read(tmp_path, file=f"p.jsonl{compression}", source="en", target="de") == numbered(pairs)

    for indent in (None, 1):
        text = json.dumps(
            [{"de": b, "x": {"en": a}} for a, b in pairs], ensure_ascii=last_end, indent=indent
        )
        put(tmp_path, f"p.json{compression}", mark + text.replace("\n", end) + end * last_end)
        assert read(tmp_path, file=f"p.json{compression}", source="x.en", target="de") == numbered(
            pairs
        )

    pairs = [("one, two", 'say "no"'), ("line 1\nline 2\r\nline 3", "b"), *PAIRS]
    put(tmp_path, f"p.csv{compression}", mark + as_csv([("en", "de"), *pairs]))
    rows = read(tmp_path, file=f"p.csv{compression}", source="en", target="de")
    assert [row.values for row in rows] == pairs
    assert [row.line for row in rows] == [2, 3, 6, 7, 8, 9]  # the second example takes lines 3 to 5


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("encoding", ["cp949", "utf-16", "utf-16-be", "utf-8-sig"])
def test_other_encodings(tmp_path: Path, encoding: str, compression: str) -> None:
    """In UTF-16 the bytes of these signs have a line feed among them."""
    signs = "" if encoding == "cp949" else " Ċ ऊ \u0a0a"
    pairs = [("한국어 문장", f"똠방각하{signs}"), (f"{signs}둘째", "b")]
    for name, text in {
        "en": "".join(f"{source}\r\n" for source, _ in pairs),
        "de": "\n".join(target for _, target in pairs),
        "p.tsv": "".join(f"{source}\t{target}\n" for source, target in pairs),
        "p.csv": as_csv(pairs),
        "p.json": json.dumps([{"0": a, "1": b} for a, b in pairs], ensure_ascii=False),
    }.items():
        put(tmp_path, f"{name}{compression}", text.encode(encoding))
    tables: list[dict[str, object]] = [
        {"source": f"en{compression}", "target": f"de{compression}"},
        *({"file": f"p{kind}{compression}", "source": 0, "target": 1} for kind in (".tsv", ".csv")),
        {"file": f"p.json{compression}", "source": "0", "target": "1"},
    ]
    for fields in tables:
        reader, plain = (
            open_corpus(Pairs.model_validate(fields), tmp_path, encoding=e)
            for e in (encoding, "utf-8")
        )
        assert list(reader.rows()) == numbered(pairs)
        assert reader.fingerprint() != plain.fingerprint()


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\t"), max_size=12)
PAIR_LISTS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8).filter(
    lambda pairs: pairs[0][0][:1] != "\ufeff"
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(pairs=PAIR_LISTS, end=st.sampled_from(["\n", "\r\n"]))
def test_any_text_reads_back(tmp_path: Path, pairs: list[tuple[str, str]], end: str) -> None:
    pairs = [(source, target.removeprefix("\ufeff")) for source, target in pairs]
    put(tmp_path, "a", "".join(source + end for source, _ in pairs))
    put(tmp_path, "b", "".join(target + end for _, target in pairs))
    assert read(tmp_path, source="a", target="b") == numbered(pairs)
    put(tmp_path, "p.tsv", "".join(f"{source}\t{target}{end}" for source, target in pairs))
    assert read(tmp_path, file="p.tsv", source=0, target=1) == numbered(pairs)
    put(tmp_path, "p.csv", as_csv(pairs))
    assert read(tmp_path, file="p.csv", source=0, target=1) == numbered(pairs)


def test_header_is_found_by_the_kind_of_columns(tmp_path: Path) -> None:
    put(tmp_path, "p.tsv", "en\tde\na\tb\n")
    named, both = [Row(2, ("a", "b"))], [Row(1, ("en", "de")), Row(2, ("a", "b"))]
    assert read(tmp_path, file="p.tsv", source="en", target="de") == named
    assert read(tmp_path, file="p.tsv", source="en", target=1) == named
    assert read(tmp_path, file="p.tsv", source=0, target=1) == both
    assert read(tmp_path, file="p.tsv", source=0, target=1, header=True) == named


def test_suffixes_in_any_case(tmp_path: Path) -> None:
    (tmp_path / "P.TSV.GZ").write_bytes(gzip.compress(b"a\tb\n"))
    assert read(tmp_path, file="P.TSV.GZ", source=0, target=1) == [Row(1, ("a", "b"))]


def test_empty_lines_and_long_lines_are_passed_on(tmp_path: Path) -> None:
    long = "x" * 100_000
    put(tmp_path, "a", f"{long}\n\n   \n")
    put(tmp_path, "p.tsv", f"{long}\tb\n\n   \n\t\n")
    put(tmp_path, "p.csv", f"{long},b\n\n   \n,\n")
    put(tmp_path, "p.jsonl", json.dumps({"s": long, "t": "b"}) + "\n\n   \n")
    empty = [Row(2, ("", "")), Row(3, ("", "")), Row(4, ("", ""))]
    assert read(tmp_path, source="a", target="a") == numbered(
        [(long, long), ("", ""), ("   ", "   ")]
    )
    assert read(tmp_path, file="p.tsv", source=0, target=1) == [Row(1, (long, "b")), *empty]
    assert read(tmp_path, file="p.csv", source=0, target=1) == [Row(1, (long, "b")), *empty]
    assert read(tmp_path, file="p.jsonl", source="s", target="t") == [
        Row(1, (long, "b")),
        *empty[:2],
    ]


def test_size_draws_rows_by_seed(tmp_path: Path) -> None:
    """In their order."""
    put(tmp_path, "a", "".join(f"{number}\n" for number in range(200)))
    drawn = [
        [row.line for row in read(tmp_path, source="a", target="a", size=50, seed=seed)]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] == sorted(set(drawn[0])) != drawn[2]
    assert [len(lines) for lines in drawn] == [50, 50, 50]
    assert sum(line > 100 for line in drawn[0]) == pytest.approx(25, abs=12)
    assert len(read(tmp_path, source="a", target="a", size=900)) == 200


# Names and fingerprints


def test_where_names_the_file_of_the_column(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("data/train.en", "data/train.de", "p.tsv"):
        put(tmp_path, name, "a\n")
    parallel = open_corpus(Pairs(source="data/train.en", target="data/train.de"), tmp_path)
    assert parallel.columns == ("source", "target")
    assert parallel.where(17) == parallel.where(17, "source") == "data/train.en:17"
    assert parallel.where(17, "target") == "data/train.de:17"
    assert (
        open_corpus(Pairs(file="p.tsv", source=0, target=1), tmp_path).where(17, "target")
        == "p.tsv:17"
    )
    assert open_corpus(Pairs(corpus="dates"), tmp_path).where(17, "target") == "corpus dates:17"


def test_folders_of_parallel_files(tmp_path: Path) -> None:
    """The first file of each by its name, then the second; a message names the very file."""
    for name, text in {
        "en/01.gz": "c\n",
        "en/00.gz": "a\nb\n",
        "de/00": "A\nB\n",
        "de/01": "C\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        put(tmp_path, name, text)
    reader = open_corpus(Pairs(source="en", target="de"), tmp_path)
    rows = list(reader.rows())
    assert [row.values for row in rows] == [("a", "A"), ("b", "B"), ("c", "C")]
    assert [reader.where(row.line, "target") for row in rows] == ["de/00:1", "de/00:2", "de/01:1"]
    put(tmp_path, "de/00", "A\n")
    with pytest.raises(
        DataError, match=r"en/00.gz:2: en/00.gz has 2 lines, de/00 has 1 \(parallel files need"
    ):
        list(reader.rows())
    put(tmp_path, "de/02", "")
    with pytest.raises(
        DataError, match=r"en: files: 2 in en, 3 in de \(parallel folders need as many"
    ):
        open_corpus(Pairs(source="en", target="de"), tmp_path)


def test_fingerprint_changes_with_what_is_read_and_only_with_it(tmp_path: Path) -> None:
    for name in ("a", "same", "p.tsv", "q.tsv"):
        put(tmp_path, name, "en\tde\n1\t2\n")
    put(tmp_path, "b", "en\tde\n1\t3\n")

    def print_of(part: str = "train", **fields: object) -> str:
        return open_corpus(Pairs.model_validate(fields), tmp_path, part).fingerprint()  # type: ignore[arg-type]

    files, table = {"source": "a", "target": "b"}, {"file": "p.tsv", "source": 0, "target": 1}
    built_in = {"corpus": "copy"}
    corpora = [
        files,
        {"source": "b", "target": "a"},
        files | {"size": 1},
        table,
        table | {"size": 1},
        table | {"header": True},
        table | {"target": 0},
        built_in,
        {"corpus": "sort"},
        built_in | {"seed": 2},
        built_in | {"size": 5},
    ]
    different = [*(print_of(**fields) for fields in corpora), print_of("test", **built_in)]
    assert len(set(different)) == len(different)
    assert (
        print_of(source="same", target="b", weight=2.0) == different[0] == print_of("test", **files)
    )
    assert print_of(**table | {"file": "q.tsv"}) == different[3]
    put(tmp_path, "a", "en\tde\n1\t4\n")
    assert print_of(**files) != different[0]


# Bad input

LATIN1 = "data.encoding=latin1 (Western Europe), or another"
UTF8 = "byte 0xe9 at position 4 of the line is not UTF-8"
KINDS = "allowed: .tsv, .csv, .jsonl"
TABLES = {"p.tsv": "\t", "p.csv": ","}


@pytest.mark.parametrize(
    ("files", "fields", "where", "what", "hint"),
    [
        ({}, {"source": "a", "target": "."}, ".", "is a folder, not a file", "name a file in it"),
        (
            {"b": "1\n2\n3"},
            {},
            "a:4",
            "a has 5 lines, b has 3",
            "parallel files need the same number of lines",
        ),
        ({"b": "1\n2\n3\n"}, {"source": "b", "target": "a"}, "a:4", "a has 5 lines, b has 3", ""),
        *(
            (
                {f"b{end}": b"fine\ncaf\xe9\n"},
                {"source": f"b{end}", "target": f"b{end}"},
                f"b{end}:2",
                UTF8,
                LATIN1,
            )
            for end in COMPRESSIONS
        ),
        (
            {"p.csv": b"fine,x\ncaf\xe9,x\n"},
            {"file": "p.csv"},
            "p.csv:2",
            UTF8,
            "or save it as UTF-8",
        ),
        (
            {"p.csv": "fine,x\n한글,x\n".encode("cp949")},
            {"file": "p.csv"},
            "p.csv:2",
            "byte 0xc7 at position 1",
            "name its encoding with data.encoding=cp949; or save it as UTF-8",
        ),
        (
            {"p.csv": "한글,x\n".encode("cp949") + b"caf\xe9,x\n"},
            {"file": "p.csv"},
            "p.csv:1",
            "byte 0xc7",
            LATIN1,
        ),
        (
            {"b": "한국어\n".encode("utf-16")},
            {"source": "b"},
            "b:1",
            "byte 0xff at position 1",
            "utf-16",
        ),
        (
            {"b.gz": ""},
            {"target": "b.gz"},
            "b.gz",
            "the file is empty",
            "one example a line is expected",
        ),
        *(
            ({f"p{kind}": ""}, {"file": f"p{kind}"}, f"p{kind}", "the file is empty", "")
            for kind in (".tsv", ".csv.xz", ".jsonl")
        ),
        *(
            ({name: "a\tb\n"}, {"file": name}, name, "one file with all columns cannot", KINDS)
            for name in ("p.txt", "p", "p.txt.gz")
        ),
        *(
            (
                {"p.json": text},
                {"file": "p.json", "source": "en", "target": "de"},
                where,
                what,
                hint,
            )
            for text, where, what, hint in [
                (
                    "en,de",
                    "p.json:1",
                    "not valid JSON: Expecting value",
                    "expected is an array of objects",
                ),
                ("[]", "p.json", "there are no JSON objects in it", "SQuAD"),
                ("[[1]]", "p.json: object 1", "[1] is not an object", ""),
                (
                    '[\n{"en": oops}]',
                    "p.json:2",
                    "not valid JSON: Expecting value: line 2 column 8",
                    "expected is",
                ),
                (
                    '{"en": "a", "de": "b"}\n{"en": ',
                    "p.json:2",
                    "not valid JSON: Expecting value",
                    "",
                ),
                (
                    '[{"en": "a", "de": "b"}',
                    "p.json:1",
                    "not valid JSON: Expecting ',' delimiter",
                    "",
                ),
                ('[{"en": "a", "de": "b"}]\n[{}]', "p.json:2", "not valid JSON: Extra data", ""),
                ('[{"en": "a", "de": "b"}, 3]', "p.json: object 2", "3 is not an object", ""),
                (
                    '{"en": "a", "de": "b"}{"en": "a"}',
                    "p.json: object 2",
                    "there is no column 'de'",
                    "the columns are en",
                ),
            ]
        ),
        (
            {"p.tsv": "en\ten\na\tb\n"},
            {"file": "p.tsv", "source": "en"},
            "p.tsv:1",
            "two columns are named 'en'",
            "",
        ),
        *(
            (
                {"p.csv": f'"two\nlines",b\n{broken}'},
                {"file": "p.csv"},
                "p.csv:3",
                "not valid CSV",
                "",
            )
            for broken in ('"never closed,b\nc,d\n', '"a"b,c\n', "a\rb,c\n")
        ),
        (
            {"p.csv": "en,de\ra,b\rc,d\r"},
            {"file": "p.csv", "source": "en", "target": "de"},
            "p.csv:1",
            "not valid CSV: lines end in CR alone, as on old Macs",
            r"tr '\r' '\n'",
        ),
        (
            {"p.jsonl": '{"en": "a", "de": "b"}\n'},
            {"file": "p.jsonl"},
            "p.jsonl:1",
            "there is no column 0",
            "the columns are en, de",
        ),
        *(
            (
                {"p.jsonl": '{"en": "a", "de": "b"}\n' + line},
                {"file": "p.jsonl", "source": "en", "target": "de"},
                "p.jsonl:2",
                what,
                "",
            )
            for line, what in [
                ('{"en": "a" "b"}', "not valid JSON: Expecting ',' delimiter at position 12"),
                ("[" * 100_000, "not valid JSON"),
                ('["a", "b"]', '["a", "b"] is not an object'),
                ('{"en": "a", "fr": "b"}', "there is no column 'de'"),
                ('{"en": "a", "de": 3}', "the column 'de' holds 3, not a string"),
                ('{"en": "a", "de": "\\ud83d"}', "the column 'de' holds half of a surrogate pair"),
            ]
        ),
    ],
)
def test_a_broken_file_is_named_with_its_line(
    tmp_path: Path,
    files: dict[str, str | bytes],
    fields: dict[str, object],
    where: str,
    what: str,
    hint: str,
) -> None:
    put(tmp_path, "a", "1\n2\n3\n4\n5")
    for name, content in files.items():
        put(tmp_path, name, content)
    parallel = {"source": "a", "target": "b" if "b" in files else "a"}
    problem = problem_of(
        tmp_path, **({"source": 0, "target": 1} if "file" in fields else parallel) | fields
    )
    assert problem.where == where
    assert problem.what.startswith(what)
    assert hint in problem.hint


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("lines", "fields", "line", "what", "hint"),
    [
        (["en,de"], {}, "", "there is a header, but no row below it", ""),
        (["en,de", "", ""], {}, "", "there is a header, but no row below it", ""),
        (
            ["en,de", "a,b"],
            {"target": "fr"},
            ":1",
            "there is no column 'fr'",
            "the columns are en, de",
        ),
        (
            ["en,de", "a,b"],
            {"source": 0, "target": 2},
            ":1",
            "there is no column 2 (target) in this row",
            "it has 2, numbered from 0: en | de",
        ),
        (
            ["en,de", "a,b"],
            {"source": 5, "target": 7},
            ":1",
            "there is no column 5 (source) and no column 7 (target) in this row",
            "",
        ),
        (
            ["source,target", "a,b", "c"],
            {"source": "source", "target": "target"},
            ":3",
            "there is no column 'target' in this row",
            "it has 1, numbered from 0: c",
        ),
        (["en,de", "a,b"], {"source": 0, "target": -1}, ":1", "there is no column -1", ""),
        (["en,de", "a,b"], {"header": False}, ":1", "a column named 'en' needs a header", ""),
        (["en,de", "a,b", "c"], {}, ":3", "there is no column 'de' (target) in this row", ""),
        (
            ["en,de", "a,b", "c,d,e"],
            {},
            ":3",
            "this row has 3 cells, the first line 2: c | d | e",
            "in a .csv a text with a comma needs double quotes",
        ),
        (
            ["a,b", "c,d,e"],
            {"source": 0, "target": 1},
            ":2",
            "this row has 3 cells, the first line 2: c | d | e",
            "",
        ),
        (
            ["a,b,c", "d,e"],
            {"source": 0, "target": 1},
            ":2",
            "this row has 2 cells, the first line 3: d | e",
            "",
        ),
    ],
)
def test_a_table_without_what_is_asked_for(
    tmp_path: Path,
    name: str,
    lines: list[str],
    fields: dict[str, object],
    line: str,
    what: str,
    hint: str,
) -> None:
    put(tmp_path, name, "".join(f"{text}\n" for text in lines).replace(",", TABLES[name]))
    problem = problem_of(tmp_path, **{"file": name, "source": "en", "target": "de"} | fields)
    assert (problem.where, problem.what) == (f"{name}{line}", what)
    assert hint in problem.hint


def test_missing_files_are_all_named_with_their_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        open_corpus(Pairs(source="train.en", target="nothing/like.it"), tmp_path)
    folders = {"train.en": tmp_path, "nothing/like.it": tmp_path / "nothing"}
    problems = [
        Problem(name, "there is no such file", f"looked in {folder}")
        for name, folder in folders.items()
    ]
    assert list(caught.value.problems) == problems


@pytest.mark.parametrize(
    ("separator", "quote", "cells"),
    [
        *(
            (separator, quote, [("yes, sir, no", "ja, Herr"), ("oh, no", "nein")])
            for separator in ";\t|"
            for quote in ("", '"')
        ),
        (",", "", [("a; b", "c; d"), ("e;f", "g;h")]),  # semicolons in a text are no separators
    ],
)
def test_what_spreadsheets_write_for_commas_is_recognised(
    tmp_path: Path, separator: str, quote: str, cells: list[tuple[str, str]]
) -> None:
    lines = [
        separator.join(f"{quote}{cell}{quote}" for cell in row) + "\n"
        for row in [("en", "de"), *cells]
    ]
    put(tmp_path, "p.csv", "".join(lines))
    for columns in ({"source": "en", "target": "de"}, {"source": 0, "target": 1, "header": True}):
        assert [row.values for row in read(tmp_path, file="p.csv", **columns)] == cells
    put(tmp_path, "q.csv", "".join(lines[1:]))
    assert [row.values for row in read(tmp_path, file="q.csv", source=0, target=1)] == cells
    if separator == ",":
        problem = problem_of(tmp_path, file="p.csv", source="en", target="fr")
        assert problem == Problem("p.csv:1", "there is no column 'fr'", "the columns are en, de")


QUOTED = 'text,label\na,x\n"b,y\nc,x\nd",y\ne,y\n'
QUOTED_NOTE = (
    "p.csv:3: this record spans several lines, each of which could be a record (1 "
    "such): is there a stray double quote?"
)


@pytest.mark.parametrize(
    ("text", "labelled", "notes"),
    [
        (QUOTED, True, [QUOTED_NOTE]),
        (QUOTED, False, [QUOTED_NOTE]),
        (QUOTED + '"two\nlines",x\n', True, [QUOTED_NOTE]),
        (QUOTED + '"two\nlines",x\n', False, []),
        ('text,label\n"b, and\nc",x\nd,x\n', True, []),
    ],
)
def test_records_that_a_stray_quote_may_have_joined(
    tmp_path: Path, text: str, labelled: bool, notes: list[str]
) -> None:
    """Lines of a labelled record end in known labels; without labels all records of several lines
    must look so."""
    put(tmp_path, "p.csv", text)
    own: Corpus = Pairs(file="p.csv", source="text", target="label")
    own = Labelled(file="p.csv", text="text", label="label") if labelled else own
    reader = open_corpus(own, tmp_path)
    list(reader.rows())
    assert reader.files[0].notes == notes


def test_a_csv_whose_first_line_is_empty_has_no_columns(tmp_path: Path) -> None:
    put(tmp_path, "p.csv", "\n" + QUOTED)
    with pytest.raises(DataError, match="there is no column 'text'"):
        list(open_corpus(Labelled(file="p.csv", text="text", label="label"), tmp_path).rows())


@pytest.mark.parametrize("name", TABLES)
def test_empty_lines_and_cells_at_the_end(tmp_path: Path, name: str) -> None:
    """Spreadsheets leave them there; an empty line in the midst of others is a row that lacks its
    texts."""
    lines = ["en,de", "a,b", "", "c,d,", "", " ", ""]
    put(tmp_path, name, "".join(f"{line}\n" for line in lines).replace(",", TABLES[name]))
    rows = read(tmp_path, file=name, source="en", target="de")
    assert [(row.line, row.values) for row in rows] == [
        (2, ("a", "b")),
        (3, ("", "")),
        (4, ("c", "d")),
    ]


def test_columns_of_jsonl_within_others_and_nulls(tmp_path: Path) -> None:
    """A name with a dot may be a column's own; a null is an empty text."""
    lines = (
        '{"a.b": "a", "t": {"d.e": "b"}}',
        '{"a.b": null, "t": {"d.e": null}}',
        '{"a.b": "c", "t": null}',
    )
    put(tmp_path, "p.jsonl", "\n".join(lines))
    assert read(tmp_path, file="p.jsonl", source="a.b", target="t.d.e") == numbered(
        [("a", "b"), ("", ""), ("c", "")]
    )
    assert (
        problem_of(tmp_path, file="p.jsonl", source="a.b", target="t.fr").hint
        == "the columns are a.b, t.d.e"
    )


@pytest.mark.parametrize(
    ("name", "text", "target"),
    [
        ("p.tsv", "\n" + "a\tb\n" * 30, 2),
        ("p.csv", "a,b\n" * 30 + "c\n\n", 2),
        ("p.jsonl", '{"en": "a", "de": "b"}\n' * 30, "fr"),
        ("p.jsonl", '{"en": "a", "fr": 1}\n' * 30, "fr"),
    ],
)
def test_what_no_row_has_is_one_mistake(
    tmp_path: Path, name: str, text: str, target: str | int
) -> None:
    """It is the recipe's, so that the rows are not named, nor dropped, one by one."""
    put(tmp_path, name, text)
    problem = problem_of(
        tmp_path, file=name, source="en" if name == "p.jsonl" else 0, target=target
    )
    assert problem.where == f"{name}:{2 if name == 'p.tsv' else 1}"
    assert f"column {target!r}" in problem.what


@pytest.mark.parametrize("compression", [".gz", ".xz", ".zst"])
def test_broken_archives(tmp_path: Path, compression: str) -> None:
    compress = COMPRESSIONS.get(compression)
    compress = (
        compress or pytest.importorskip("zstandard").ZstdCompressor(write_checksum=True).compress
    )
    data = compress("".join(f"line {number * 7919}\n" for number in range(5000)).encode())
    damaged = data[:-12] + b"\x00" * 12  # the checksum
    for name, content in (
        ("cut", data[: len(data) // 2]),
        ("damaged", damaged),
        ("none", b"plain text\n"),
    ):
        (tmp_path / f"{name}{compression}").write_bytes(content)
        problem = problem_of(tmp_path, source=f"{name}{compression}", target=f"{name}{compression}")
        assert problem.where.startswith(f"{name}{compression}:")
        assert problem.what.startswith(f"the {compression} file is broken here")
    assert problem.where == f"none{compression}:1"
