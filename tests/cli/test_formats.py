"""Parquet, Hugging Face datasets, .zst and tags: read back what was written, and name what is
wrong."""

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from command_line import fail, succeed, write
from regard.config import write_yaml
from regard.data.config import Data, Split
from regard.data.formats import Row
from regard.data.labelled import Labelled
from regard.data.readers import open_corpus
from regard.errors import DataError, Problem
from regard.tasks.summarization import Summarized
from regard.tasks.translation import Parallel
from regard.text.files import TextFile
from task_cases import rows_of

datasets = pytest.importorskip("datasets")
arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
zstandard = pytest.importorskip("zstandard")

PAIRS = [
    ("a house", "집 한 채"),
    ("  two  spaces ", "größer\nline 2"),
    ("", "빈"),
    ("emoji 🙂", "배"),
]


def read(folder: Path, **fields: object) -> list[Row]:
    return list(rows_of(open_corpus(Parallel.model_validate(fields), folder)))


def problem_of(folder: Path, **fields: object) -> Problem:
    with pytest.raises(DataError) as caught:
        read(folder, **fields)
    (problem,) = caught.value.problems
    return problem


def rows(pairs: list[tuple[str, str]]) -> list[Row]:
    return [Row(line, pair) for line, pair in enumerate(pairs, 1)]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Pairs as flat columns, as a struct and as a dictionary, with a column of numbers, in row
    groups of 3."""
    english, korean = (list(side) for side in zip(*PAIRS, strict=True))
    columns = {
        "en": arrow.array(english),
        "id": arrow.array(range(len(PAIRS))),
        "ko": arrow.array(korean, arrow.large_string()),
        "translation": arrow.array([{"en": e, "ko": k} for e, k in PAIRS]),
        "category": arrow.array(korean).dictionary_encode(),
    }
    parquet.write_table(arrow.table(columns), tmp_path / "p.parquet", row_group_size=3)
    return tmp_path


@pytest.mark.parametrize(
    ("source", "target"),
    [("en", "ko"), (0, 2), ("translation.en", "translation.ko"), ("en", "category")],
)
def test_parquet_columns_by_name_number_and_path(
    table: Path, source: str | int, target: str | int
) -> None:
    assert read(table, file="p.parquet", source=source, target=target) == rows(PAIRS)
    assert read(table, file="p.parquet", source=source, target=target, size=2) == rows(PAIRS[:2])


def test_parquet_paths_in_a_process_that_has_read_nothing_else(table: Path) -> None:
    """Other libraries import parts of pyarrow that it does not import by itself."""
    code = (
        "from pathlib import Path; from regard.text.files import TextFile;"
        "from regard.data.formats import read_parquet;"
        "print([row.values[0] for row in read_parquet(TextFile('p', Path('p.parquet')), "
        "['translation.en'])])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=table, capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, str([english for english, _ in PAIRS])), (
        done.stderr
    )


def test_a_null_is_an_empty_text(tmp_path: Path) -> None:
    struct = arrow.array([{"ko": "가"}, None, {"ko": None}])
    parquet.write_table(arrow.table({"en": ["a", None, "c"], "t": struct}), tmp_path / "p.parquet")
    assert read(tmp_path, file="p.parquet", source="en", target="t.ko") == rows(
        [("a", "가"), ("", ""), ("c", "")]
    )


def test_memory_does_not_grow_with_a_parquet_file(tmp_path: Path) -> None:
    text = [f"some words in row {row} of a file" for row in range(200_000)]
    parquet.write_table(
        arrow.table({"a": text}), tmp_path / "p.parquet", compression="none", use_dictionary=False
    )
    del text
    tracemalloc.start()
    before = arrow.total_allocated_bytes()
    most, count = 0, 0
    for _ in open_corpus(Parallel(file="p.parquet", source="a", target="a"), tmp_path).rows():
        count += 1
        if count % 10_000 == 0:
            most = max(most, arrow.total_allocated_bytes() - before)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 200_000
    assert peak + most < 7_000_000 < (tmp_path / "p.parquet").stat().st_size


def test_what_is_wrong_with_a_parquet_file(table: Path) -> None:
    there = "the columns are en, id, ko, translation.en, translation.ko, category"
    for wrong in ("de", "translation", "translation.de", 9, -1):
        problem = problem_of(table, file="p.parquet", source="en", target=wrong)
        assert problem == Problem("p.parquet", f"there is no column {wrong!r}", there)
    problem = problem_of(table, file="p.parquet", source="en", target="id")
    assert problem == Problem("p.parquet", "the column 'id' holds int64, not text")
    problem = problem_of(table, source="p.parquet", target="p.parquet")
    assert problem.what == "a Parquet file holds all columns, it is not one of parallel files"
    (table / "p.parquet.gz").write_bytes(b"")
    assert (
        "compressed inside" in problem_of(table, file="p.parquet.gz", source="en", target="ko").what
    )
    whole = (table / "p.parquet").read_bytes()
    for content in (whole[:-20], b"", b"plain text\n", whole[:40] + bytes(200) + whole[240:]):
        (table / "broken.parquet").write_bytes(content)
        problem = problem_of(table, file="broken.parquet", source="en", target="ko")
        assert str(problem).startswith("broken.parquet: cannot be read as a Parquet file")
    parquet.write_table(arrow.table({"en": arrow.array([], arrow.string())}), table / "p.parquet")
    assert (
        problem_of(table, file="p.parquet", source="en", target="en").what == "the file has no rows"
    )


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A dataset with two splits as `save_to_disk` writes it, and one split alone."""
    pairs = [{"translation": {"en": source, "ko": target}, "id": 3} for source, target in PAIRS]
    train, test = datasets.Dataset.from_list(pairs), datasets.Dataset.from_list(pairs[:2])
    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(str(tmp_path / "both"))
    train.save_to_disk(str(tmp_path / "alone"))
    return tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of files, one a split."""
    (tmp_path / "files").mkdir()
    for split, pairs in (("train", PAIRS), ("test", PAIRS[:2])):
        lines = (
            json.dumps({"translation": {"en": source, "ko": target}}) + "\n"
            for source, target in pairs
        )
        write(tmp_path / "files" / f"{split}.jsonl", "".join(lines))
    return tmp_path


NESTED = {"source": "translation.en", "target": "translation.ko"}


def test_datasets_saved_to_disk_and_folders_of_files(saved: Path, folder: Path) -> None:
    """The split is the one that is named, or the part that is asked for, if there are several."""
    for name in ("both", "files"):
        assert read(saved, dataset=name, **NESTED) == rows(PAIRS)
        assert read(saved, dataset=name, split="test", **NESTED) == rows(PAIRS[:2])
        assert len(read(saved, dataset=name, size=1, **NESTED)) == 1
        reader = open_corpus(Parallel(dataset=name, **NESTED), saved, "test")
        assert list(reader.rows()) == rows(PAIRS[:2])
        assert reader.where(2) == f"{name}:2"
    assert list(
        open_corpus(Parallel(dataset="alone", **NESTED), saved, "validation").rows()
    ) == rows(PAIRS)


def test_a_stream_of_the_hub(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library takes a name for a folder of the working directory first, so one stands for a
    name on the Hub."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", copies := tmp_path / "copies")
    corpus = Parallel(dataset="files", stream=True, **NESTED)
    reader = open_corpus(corpus, tmp_path / "elsewhere", "test")
    assert reader.files == ()
    assert list(reader.rows()) == rows(PAIRS[:2])
    first = reader.fingerprint()
    assert (
        reader.fingerprint()
        == first
        != open_corpus(corpus, tmp_path / "elsewhere", "train").fingerprint()
    )
    write(folder / "files" / "test.jsonl", '{"translation": {"en": "x", "ko": "y"}}\n')
    assert reader.fingerprint() != first
    assert not list(copies.rglob("*.arrow"))
    monkeypatch.setattr(
        "huggingface_hub.constants.HF_HUB_OFFLINE", True
    )  # else it asks again for 23 s
    assert problem_of(folder, dataset="no/such", stream=True, **NESTED).what.startswith(
        "cannot be loaded as a dataset"
    )


def test_classes_of_a_dataset_have_their_names(tmp_path: Path) -> None:
    """-1 stands for a label that is missing."""
    kinds = {
        "text": datasets.Value("string"),
        "one": {"label": datasets.ClassLabel(names=["no", "yes"])},
    }
    columns = {"text": ["a", "b", "c"], "one": [{"label": number} for number in (1, 0, -1)]}
    datasets.Dataset.from_dict(columns, datasets.Features(kinds)).save_to_disk(
        str(tmp_path / "saved")
    )
    corpus = Labelled(dataset="saved", text="text", label="one.label")
    assert [row.values[1] for row in open_corpus(corpus, tmp_path).rows()] == ["yes", "no", ""]


def test_a_dataset_is_known_by_its_content(folder: Path) -> None:
    def print_of(**fields: Any) -> str:
        return open_corpus(Parallel(**(NESTED | fields)), folder).fingerprint()

    first = print_of(dataset="files")
    (folder / "files").rename(folder / "moved")
    assert print_of(dataset="moved") == first
    assert (
        print_of(dataset="moved", split="test")
        != first
        != print_of(dataset="moved", source="translation.ko")
    )
    write(
        folder / "moved" / "train.jsonl", json.dumps({"translation": {"en": "x", "ko": "y"}}) + "\n"
    )
    assert print_of(dataset="moved") != first


def test_what_is_wrong_with_a_dataset(saved: Path, folder: Path) -> None:
    for name in ("both", "files"):
        problem = problem_of(folder, dataset=name, source="translation.en", target="translation.de")
        columns = "translation.en, translation.ko" + (", id" if name == "both" else "")
        assert problem == Problem(
            f"{name}:1", "there is no column 'translation.de'", f"the columns are {columns}"
        )
        problem = problem_of(folder, dataset=name, split="trian", **NESTED)
        assert problem == Problem(name, "there is no split 'trian'", "did you mean 'train'?")
    (saved / "empty").mkdir()
    write(saved / "one.jsonl", "{}\n")
    write(folder / "files" / "train.jsonl", '{"translation": \n')
    for fields, message in (
        (
            {"dataset": "both", "source": "id", "target": "id"},
            "both:1: the column 'id' holds 3, not a string",
        ),
        (
            {"dataset": "alone", "split": "train"},
            "alone: there is no split 'train' (leave 'split' out)",
        ),
        ({"dataset": "./missing"}, "./missing: there is no such folder"),
        ({"dataset": "one.jsonl"}, "one.jsonl: is a file, not a dataset"),
        ({"dataset": "empty"}, "empty: cannot be loaded as a dataset"),
        ({"dataset": "files"}, "files: cannot be loaded as a dataset"),
    ):
        assert str(problem_of(saved, **NESTED | fields)).startswith(message)


def test_which_fields_go_together() -> None:
    tree: dict[str, Any] = {
        "train": {"dataset": "d", "source": "a", "target": "b"},
        "validation": {"split": 0.1},
    }
    assert Data[Parallel].model_validate(tree).validation == Split(split=0.1)
    named = {"dataset": "d", "split": "dev", "source": "a", "target": "b"}
    assert Data[Parallel].model_validate(tree | {"validation": named}).validation == [
        Parallel(**named)
    ]
    for fields, message in (
        (
            {"dataset": "d", "file": "f", "source": "a", "target": "b"},
            "give one of file and dataset, not both",
        ),
        (
            {"source": "a", "target": "b", "split": "train"},
            "'subset' and 'split' need 'dataset: ...' beside them",
        ),
        ({"source": "a", "target": "b", "stream": True}, "'stream' needs 'dataset: ...' beside it"),
        ({"dataset": "d", "source": 0, "target": 1}, "a column number needs 'file: ...' beside it"),
        ({"dataset": "d", "source": "a"}, "name the target"),
    ):
        with pytest.raises(ValueError, match=message):
            Parallel.model_validate(fields)


def test_zst_of_several_frames(tmp_path: Path) -> None:
    text = "".join(f"line {number * 7919}\t한국어\n" for number in range(20_000)).encode()
    half = len(text) // 2
    frames = (
        zstandard.compress(text[:half]) + zstandard.compress(b"") + zstandard.compress(text[half:])
    )
    (tmp_path / "a.tsv.zst").write_bytes(frames)
    file = TextFile("a.zst", tmp_path / "a.tsv.zst")
    assert "".join(file.lines(keep_ends=True)).encode() == text
    assert sum(1 for _ in file.lines()) == 20_000
    assert read(tmp_path, file="a.tsv.zst", source=0, target=1)[-1] == Row(
        20_000, ("line 158372081", "한국어")
    )


def test_a_prefix_stands_before_each_source_that_is_not_empty(tmp_path: Path) -> None:
    write(tmp_path / "p.tsv", "hello\t안녕\n\t빈\nbye\t잘 가\n")
    tagged = read(tmp_path, file="p.tsv", source=0, target=1, prefix="<2ko> ")
    assert [row.values for row in tagged] == [
        ("<2ko> hello", "안녕"),
        ("", "빈"),
        ("<2ko> bye", "잘 가"),
    ]
    generated = read(tmp_path, corpus="copy", size=2, prefix="copy: ")
    assert all(source == f"copy: {target}" for source, target in (row.values for row in generated))
    fields = {"file": "p.tsv", "source": 0, "target": 1}
    readers = [
        open_corpus(Parallel(**fields, prefix=prefix), tmp_path)
        for prefix in ("", "<2de> ", "<2ko> ")
    ]
    assert len({reader.fingerprint() for reader in readers}) == 3


def test_documents_and_summaries_are_read_as_source_and_target(tmp_path: Path) -> None:
    write(tmp_path / "p.csv", "article,title\nlong text,short\n")
    reader = open_corpus(Summarized(file="p.csv", document="article", summary="title"), tmp_path)
    assert reader.columns == ("source", "target")
    assert list(reader.rows()) == [Row(2, ("long text", "short"))]
    with pytest.raises(DataError, match=r"there is no column 2 \(summary\) in this row"):
        list(open_corpus(Summarized(file="p.csv", document=0, summary=2), tmp_path).rows())
    write(tmp_path / "a", "x\n")
    assert open_corpus(Summarized(document="a", summary="a"), tmp_path).where(1, "target") == "a:1"


def recipe_with(folder: Path, train: dict[str, Any], **others: Any) -> Path:
    tree = {
        "task": "translation",
        "data": {"train": train, "validation": {"split": 0.2}, "bad_lines": "drop"},
        "tokenizer": {"kind": "character"},
        "model": {"kind": "bahdanau", "embedding": 8, "hidden": 8, "attention": 8},
        "training": {"steps": 2, "device": "cpu", "batch_tokens": 256, "decode": 2},
    }
    return write(folder / "recipe.yaml", write_yaml(tree | others))


def test_from_anywhere(
    saved: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = "data.test={dataset: both, source: translation.en, target: translation.ko}"
    succeed(
        "train",
        recipe_with(saved, {"dataset": "both", **NESTED}),
        test,
        "--out",
        saved / "run",
        "--json",
    )
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert succeed("evaluate", saved / "run", "--split", "test", "--json").json["sentences"] == 2
    parquet.write_table(arrow.table({"translation": [{"en": "a", "ko": "b"}]}), "t.parquet")
    assert (
        succeed("evaluate", saved / "run", "--file", "t.parquet", "--json").json["sentences"] == 1
    )


def test_a_huge_cell_is_a_bad_row_like_others(tmp_path: Path) -> None:
    """The library's own limit of 131,072 characters would end the reading."""
    rows = [("en", "ko"), *((f"word {n}", f"낱말 {n}") for n in range(20))]
    rows[4] = ("x" * 140_000, "길다")
    write(tmp_path / "p.csv", "".join(f'"{en}",{ko}\n' for en, ko in rows))
    recipe = recipe_with(tmp_path, {"file": "p.csv", "source": "en", "target": "ko"})
    dropped = succeed("check", recipe, "--json").json["data"]["splits"]["train"]["dropped"]
    assert dropped["over_long_line"] == {"count": 1, "places": ["p.csv:5"]}
    assert (
        "p.csv:5: the line has 140,000 characters"
        in fail("check", recipe, "data.bad_lines=error")[0]
    )


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_bad_rows_are_dropped_and_counted_or_all_named(tmp_path: Path, suffix: str) -> None:
    examples: list[dict[str, Any]] = [{"en": f"word {n}", "ko": f"낱말 {n}"} for n in range(20)]
    examples[3]["en"] = examples[5]["ko"] = None
    if suffix == ".jsonl":
        del examples[0]["en"]
        examples[4]["ko"] = 4
        write(tmp_path / "p.jsonl", "".join(json.dumps(example) + "\n" for example in examples))
    else:
        parquet.write_table(arrow.Table.from_pylist(examples), tmp_path / "p.parquet")
    recipe = recipe_with(tmp_path, {"file": f"p{suffix}", "source": "en", "target": "ko"})
    found = succeed("check", recipe, "--json").json["data"]
    dropped = found["splits"]["train"]["dropped"]
    assert dropped["empty"] == {"count": 2, "places": [f"p{suffix}:4", f"p{suffix}:6"]}
    way = "fill it, or data.bad_lines=drop drops such pairs"
    messages = [
        f"p{suffix}:4: the source (column 'en') is empty ({way})",
        f"p{suffix}:6: the target (column 'ko') is empty ({way})",
    ]
    if suffix == ".jsonl":
        assert dropped["cells"] == {"count": 2, "places": ["p.jsonl:1", "p.jsonl:5"]}
        assert found["findings"] == [
            "dropped 4 of 20 training pairs: 2 with an empty side (first: p.jsonl:4), "
            "2 with cells missing, too many or no text (first: p.jsonl:1)"
        ]
        messages.insert(0, "p.jsonl:1: there is no column 'en' (the columns are ko)")
        messages.insert(2, "p.jsonl:5: the column 'ko' holds 4, not a string")
    assert fail("check", recipe, "data.bad_lines=error") == messages


@pytest.mark.parametrize(
    ("train", "library", "extra"),
    [
        ({"file": "p.parquet", "source": "en", "target": "ko"}, "pyarrow", "formats"),
        ({"source": "a.zst", "target": "a.zst"}, "zstandard", "formats"),
        ({"dataset": "both", **NESTED}, "datasets", "hf"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_its_extra(
    saved: Path,
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    train: dict[str, str],
    library: str,
    extra: str,
) -> None:
    (saved / "a.zst").write_bytes(zstandard.compress(b"a\n"))
    for name in [name for name in sys.modules if name.split(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    recipe = recipe_with(saved, train)
    name = train.get("file") or train.get("dataset") or "a.zst"
    sentence = f"{name}: reading it needs the library {library!r} (pip install 'regard[{extra}]')"
    assert fail("train", recipe, "--out", saved / "run") == fail("check", recipe) == [sentence]
