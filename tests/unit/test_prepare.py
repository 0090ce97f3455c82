"""From files to datasets: what is kept, what is dropped and said, what is cached."""

import os
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import task_cases
from regard.data.config import Data
from regard.data.dataset import Histogram
from regard.data.prepare import Prepared
from regard.data.store import MANIFEST, VERIFIED
from regard.errors import DataError
from regard.recipes.recipe import recipe_of
from regard.tasks import TASKS
from regard.tasks.translation import Parallel
from regard.text.tokenizers import TokenizerConfig, train_tokenizers
from task_cases import prepare_pairs

CHARACTER = TokenizerConfig(kind="character", vocabulary=200)
pytestmark = pytest.mark.usefixtures("cache")


def write(base: Path, name: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Two parallel files, and the corpus that names them."""
    for column, suffix in enumerate(("en", "de")):
        (base / f"{name}.{suffix}").write_text(
            "".join(f"{pair[column]}\n" for pair in pairs), encoding="utf-8"
        )
    return {"source": f"{name}.en", "target": f"{name}.de"}


def numbered(size: int, first: int = 0) -> list[tuple[str, str]]:
    return [(f"source {i}", f"ziel {i}") for i in range(first, first + size)]


def prepared(
    base: Path, config: TokenizerConfig = CHARACTER, options: Any = None, **data: Any
) -> Prepared:
    """From the keys of `data`; pairs are written to files that have the name of their part."""
    parts = {
        part: data[part]
        for part in ("train", "validation", "test")
        if isinstance(data.get(part), list)
    }
    data |= {
        part: write(base, part, pairs)
        for part, pairs in parts.items()
        if isinstance(pairs[0], tuple)
    }
    return prepare_pairs(Data[Parallel].model_validate(data), config, base, **(options or {}))


def problems(base: Path, **data: Any) -> list[str]:
    with pytest.raises(DataError) as caught:
        prepared(base, **data)
    return [str(problem) for problem in caught.value.problems]


def sources(dataset: Any) -> list[str]:
    return list(dataset.texts["source"])


def places(dataset: Any) -> list[str]:
    return [dataset.where(row) for row in range(len(dataset))]


class TestTexts:
    def test_tokens_texts_and_places_belong_together(self, tmp_path: Path) -> None:
        train = [("ab", "가"), ("ab", "가"), ("xxxxxxx", "y"), ("bc", "나다")]
        found = prepared(tmp_path, train=train, validation=[("b", "가")], max_length=6)
        assert sources(found.train) == ["ab", "bc"]
        assert list(found.train.texts["target"]) == ["가", "나다"]
        assert places(found.train) == ["train.en:1", "train.en:4"]
        for column in ("source", "target"):
            tokenizer = found.tokenizers[column]
            decoded = [tokenizer.decode(found.train.columns[column][i].tolist()) for i in range(2)]
            assert decoded == list(found.train.texts[column])
        assert found.train.lengths.tolist() == [3, 3]
        assert found.test is None

    def test_rows_that_a_stray_quote_may_have_joined_are_noted(self, tmp_path: Path) -> None:
        (tmp_path / "p.csv").write_text('en,de\na,x\n"b,y\nc,z\nd",w\ne,v\n', encoding="utf-8")
        train = {"file": "p.csv", "source": "en", "target": "de"}
        [note] = prepared(tmp_path, train=train, validation=[("b", "x")]).report.notes
        assert note.startswith(
            "p.csv:3: this record spans several lines, each of which could be a record (1 such)"
        )

    def test_several_corpora_keep_their_weights_and_places(self, tmp_path: Path) -> None:
        (tmp_path / "more.tsv").write_text("a\tb\nc\td\n")
        train = [
            {**write(tmp_path, "train", numbered(3)), "weight": 0.5},
            {"file": "more.tsv", "source": 0, "target": 1, "weight": 2.0},
            {"corpus": "reverse", "size": 2},
        ]
        found = prepared(tmp_path, train=train, validation={"corpus": "reverse", "size": 20})
        assert found.train.weights == (0.5, 2.0, 1.0)
        assert found.train.corpora.tolist() == [0, 0, 0, 1, 1, 2, 2]
        rows = ["train.en:1", "train.en:2", "train.en:3", "more.tsv:1", "more.tsv:2"]
        assert places(found.train) == [*rows, "corpus reverse:1", "corpus reverse:2"]
        assert (len(found.validation), found.report.splits["validation"].leaks.count) == (20, 0)

    def test_duplicates_are_pairs_not_sources(self, tmp_path: Path) -> None:
        pairs = [
            ("a", "b"),
            ("a", "c"),
            ("a", "b"),
            ("b", "a"),
            ("a b", "c"),
            ("a", "b c"),
            ("a", "b"),
        ]
        found = prepared(tmp_path, train=pairs, validation=[("v", "v")])
        assert places(found.train) == [f"train.en:{i}" for i in (1, 2, 4, 5, 6)]
        duplicates = found.report.splits["train"].dropped["duplicate"]
        assert (duplicates.count, duplicates.places) == (2, ("train.en:3", "train.en:7"))
        assert (
            len(prepared(tmp_path, train=pairs, validation=[("v", "v")], deduplicate=False).train)
            == 7
        )

    @pytest.mark.parametrize(
        ("weights", "kept"), [((1, 1), [5, 1]), ((1, 5), [3, 3]), ((5, 1), [5, 1])]
    )
    def test_of_equal_pairs_that_of_the_highest_weight_is_kept(
        self, tmp_path: Path, weights: tuple[float, float], kept: list[int]
    ) -> None:
        files = [write(tmp_path, "all", numbered(5)), write(tmp_path, "good", numbered(3, first=3))]
        train = [{**file, "weight": weight} for file, weight in zip(files, weights, strict=True)]
        found = prepared(tmp_path, train=train, validation=[("v", "v")]).train
        assert np.bincount(found.corpora).tolist() == kept


BAD = [("a", "b"), ("", "b"), ("a", "  \t"), ("x" * 30, "b"), ("fine", "fein")]


LIMIT = "auto drops up to 1% of them, data.bad_lines=drop any number"


class TestBadLines:
    def test_all_of_them_are_named_at_once(self, tmp_path: Path) -> None:
        drop = "data.bad_lines=drop drops such pairs"
        assert problems(
            tmp_path, train=BAD, validation=[("a", "b"), ("\u3000", "b")], max_characters=20
        ) == [
            f"train.en:2: the line is empty (fill it, or {drop})",
            f"train.de:3: the line is empty (fill it, or {drop})",
            "train.en:4: the line has 30 characters, data.max_characters allows 20 "
            f"(split it, raise the limit, or {drop})",
            f"validation.en:2: the line is empty (fill it, or {drop})",
            f"data.bad_lines: 3 of 5 pairs cannot be used ({LIMIT})",
            f"data.bad_lines: 1 of 2 pairs cannot be used ({LIMIT})",
        ]
        missing = {
            part: {"source": f"{part}.1", "target": f"{part}.2"} for part in ("train", "validation")
        }
        found = [problem.partition(":")[0] for problem in problems(tmp_path, **missing)]
        assert found == ["train.1", "train.2", "validation.1", "validation.2"]

    @pytest.mark.parametrize(("bad", "kept"), [(1, 99), (2, None)])
    def test_up_to_one_in_a_hundred_is_dropped_with_a_note(
        self, tmp_path: Path, bad: int, kept: int | None
    ) -> None:
        """By default, and in each part by itself."""
        train = [*numbered(100 - bad), *[("", "b")] * bad]
        if kept is None:
            *named, limit = problems(tmp_path, train=train, validation=numbered(5, first=200))
            assert [problem.partition(": ")[0] for problem in named] == [
                "train.en:99",
                "train.en:100",
            ]
            assert limit == f"data.bad_lines: 2 of 100 pairs cannot be used ({LIMIT})"
            return
        found = prepared(tmp_path, train=train, validation=numbered(5, first=200))
        assert found.report.splits["train"].kept == kept
        note = "dropped 1 of 100 training pairs: 1 with an empty side (first: train.en:100)"
        assert note in found.report.sentences()
        assert (
            len(
                problems(
                    tmp_path, train=train, validation=numbered(5, first=200), bad_lines="error"
                )
            )
            == 1
        )
        assert (
            len(
                problems(
                    tmp_path, train=numbered(100), validation=[("", "b"), *numbered(5, first=200)]
                )
            )
            == 2
        )

    def test_zero_bytes_are_named(self, tmp_path: Path) -> None:
        first, _ = problems(tmp_path, train=[*numbered(5), ("a\0b", "c")], validation=[("a", "b")])
        assert first.startswith(
            "train.en:6: the source contains a zero byte (NUL) (take it out; if every second byte"
        )

    def test_dropped_when_asked_for(self, tmp_path: Path) -> None:
        found = prepared(
            tmp_path,
            train=BAD,
            validation=[("a", "b"), ("", "")],
            max_characters=20,
            bad_lines="drop",
        )
        assert sources(found.train) == ["a", "fine"]
        assert places(found.train) == ["train.en:1", "train.en:5"]
        dropped = found.report.splits["train"].dropped
        assert (dropped["empty"].count, dropped["empty"].places) == (
            2,
            ("train.en:2", "train.de:3"),
        )
        assert (dropped["over_long_line"].count, dropped["over_long_line"].places) == (
            1,
            ("train.en:4",),
        )
        assert found.report.sentences()[:2] == [
            "dropped 3 of 5 training pairs: 2 with an empty side (first: train.en:2), "
            "1 over data.max_characters=20 (first: train.en:4)",
            "dropped 1 of 2 validation pairs: 1 with an empty side (first: validation.en:2)",
        ]

    def test_a_large_limit_is_written_out(self, tmp_path: Path) -> None:
        train = [*numbered(5), ("a" * 1_048_577, "b")]
        found = prepared(tmp_path, train=train, max_characters=1_048_576, bad_lines="drop")
        assert "1 over data.max_characters=1048576 (first" in found.report.sentences()[0]


class TestSplit:
    def test_no_source_stands_on_two_sides(self, tmp_path: Path) -> None:
        pairs = [(f"source {i % 400}", f"ziel {i}") for i in range(1000)]
        found = prepared(tmp_path, train=pairs, validation={"split": 0.1}, test={"split": 0.2})
        parts = [set(sources(part)) for part in (found.train, found.validation, found.test)]
        assert [len(part) for part in parts] == [280, 40, 80]
        assert len(set.union(*parts)) == 400
        assert (
            len(prepared(tmp_path, train=numbered(100), validation={"split": 0.07}).validation) == 7
        )  # not 7.000...1
        train = found.report.splits["train"]
        assert (train.read, train.set_aside) == (1000, len(found.validation) + len(found.test))
        assert train.kept == len(found.train) == 1000 - train.set_aside

    def test_the_seed_decides_and_a_source_stays_on_its_side_when_others_come_and_go(
        self, tmp_path: Path
    ) -> None:
        def validation(pairs: list[tuple[str, str]], seed: int = 1, **data: Any) -> list[str]:
            data |= {"train": pairs, "validation": {"split": 0.1}}
            return sources(prepared(tmp_path, options={"seed": seed}, **data).validation)

        first = validation(numbered(300))
        assert first == validation(numbered(300)) == validation(numbered(300), seed=2, split_seed=1)
        assert len({*first} & {*validation(numbered(300), seed=2)}) < 15
        assert len({*first} & {*validation(numbered(310)[::-1])}) >= 25
        few = prepared(tmp_path, train=numbered(5))
        assert (len(few.train), len(few.validation)) == (4, 1)

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (
                {"train": [("a", "b"), ("a", "c"), ("a", "b")], "validation": {"split": 0.02}},
                "data.train: no training pair is left: dropped 1 of 3 training pairs: 1 seen "
                "before "
                "(first: train.en:3); 2 were set aside for validation and test (those that are "
                "alike are set aside "
                "together, and there are too few different ones)",
            ),
            (
                {"train": numbered(3), "validation": numbered(1), "max_length": 2},
                "data.train: no training pair is left: dropped 3 of 3 training pairs: 3 longer "
                "than "
                "data.max_length=2 tokens (first: train.en:1)",
            ),
            (
                {"train": numbered(3), "validation": [(" ", "b")], "bad_lines": "drop"},
                "data.validation: no validation pair is left: dropped 1 of 1 validation pairs: 1 "
                "with an empty side "
                "(first: validation.en:1)",
            ),
        ],
    )
    def test_nothing_is_left(self, tmp_path: Path, data: dict[str, Any], message: str) -> None:
        assert problems(tmp_path, **data) == [message]


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: unicodedata.normalize("NFD", text),  # as file systems and PDFs write them
        lambda text: f" {text}".replace(" ", "  "),
        lambda text: text.replace(" ", "\u00a0") + " ",
    ],
)
def test_texts_that_tokenizers_read_alike_are_one(
    tmp_path: Path, changed: Callable[[str], str]
) -> None:
    """Also to a split, which goes by the way in which the first of them is written."""
    pairs = [
        ("배가 고프다", "a"),
        ("사과를 먹는다", "b"),
        ("café au lait", "c"),
        ("학교 는 é", "d"),
    ]
    others = [(changed(source), target) for source, target in pairs]
    assert all(source != other for (source, _), (other, _) in zip(pairs, others, strict=True))
    found = prepared(tmp_path, train=pairs, validation=others)
    assert found.report.splits["validation"].leaks.count == 4
    corpora = [write(tmp_path, "first", pairs), write(tmp_path, "second", others)]
    found = prepared(tmp_path, train=corpora, validation=[("new", "e")])
    assert found.report.splits["train"].dropped["duplicate"].count == 4
    share = {"validation": {"split": 0.5}}
    assert sources(prepared(tmp_path, train=corpora, **share).train) == sources(
        prepared(tmp_path, train=pairs, **share).train
    )


def test_leaks_are_counted_and_placed(tmp_path: Path) -> None:
    validation = [("new", "neu"), ("source 2", "anders"), ("source 0", "ziel 0")]
    test = [("source 20", "ziel 20"), ("new", "anders"), ("source 1", "ziel 1")]
    found = prepared(tmp_path, train=numbered(9), validation=validation, test=test)
    leaks = found.report.splits["validation"].leaks
    assert (leaks.count, leaks.places) == (2, ("validation.en:2", "validation.en:3"))
    assert found.report.sentences() == [
        "the sources of 2 of 3 validation pairs also occur in the training data (first: "
        "validation.en:2)",
        "the sources of 2 of 3 test pairs also occur in the training or validation data (first: "
        "test.en:2)",
    ]


class TestTokens:
    def test_length_and_ratio_filter_training_only(self, tmp_path: Path) -> None:
        pairs = [
            ("aaaa", "aaaa"),
            ("a" * 11, "aaaaaaaaaa"),
            ("a" * 10, "aaa"),
            ("aaa", "a" * 9),
            ("aa", "a" * 11),
        ]
        found = prepared(tmp_path, train=pairs, validation=pairs, max_length=10, max_ratio=3.0)
        assert places(found.train) == ["train.en:1", "train.en:4"]
        assert len(found.validation) == 5
        assert found.report.sentences()[0] == (
            "dropped 3 of 5 training pairs: 2 longer than data.max_length=10 tokens (first: "
            "train.en:2), "
            "1 more unequal than data.max_ratio=3 (first: train.en:3)"
        )

    def test_tokens_unknowns_and_lengths_are_counted(self, tmp_path: Path) -> None:
        pairs = {
            "train": [("ab", "a"), ("abab", "b")],
            "validation": [("abzz", "a"), ("aaaa", "z")],
        }
        found = prepared(tmp_path, **pairs)
        report = found.report.splits["validation"].columns
        assert (report["source"].tokens, report["source"].unknown) == (8, 2 / 8)
        assert (report["target"].tokens, report["target"].unknown) == (2, 1 / 2)
        assert report["source"].lengths == Histogram(
            width=1, counts=(0, 0, 0, 0, 2), mean=4.0, longest=4
        )
        assert found.report.splits["train"].columns["source"].lengths.counts == (0, 0, 1, 0, 1)
        assert found.train.columns["source"][1].dtype == np.uint16

    def test_given_tokenizers_are_used(self, tmp_path: Path) -> None:
        own = train_tokenizers(
            TokenizerConfig(kind="byte"), {"source": ["a"], "target": ["a"]}, tmp_path
        )
        found = prepared(tmp_path, options={"tokenizers": own}, train=numbered(9))
        assert found.tokenizers is own
        assert found.train.columns["source"][0].tolist() == own["source"].encode(
            found.train.texts["source"][0]
        )

    def test_the_histogram_has_at_most_twenty_round_bins(self) -> None:
        histogram = Histogram.of(np.array([0, 3, 399, 150], dtype=np.int32))
        assert (histogram.width, len(histogram.counts), histogram.longest, histogram.mean) == (
            20,
            20,
            399,
            138.0,
        )
        assert {bin: count for bin, count in enumerate(histogram.counts) if count} == {
            0: 2,
            7: 1,
            19: 1,
        }


class TestCache:
    def test_a_second_call_does_nothing_again(self, tmp_path: Path, cache: Path) -> None:
        def folders() -> dict[Path, tuple[int, ...]]:
            files = (
                path
                for path in cache.rglob("*")
                if path.is_file() and path.name not in (MANIFEST, VERIFIED)
            )
            return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}

        steps: list[str] = []
        count = {"progress": lambda step, count: steps.append(f"{step} {count}")}
        first = prepared(tmp_path, options=count, train=numbered(50) + numbered(2))
        expected = [
            "reading train 52",
            "training the tokenizer 0",
            "tokenising train 49",
            "tokenising validation 1",
        ]
        assert steps == expected
        before = folders()
        again = prepared(tmp_path, options=count, train=numbered(50) + numbered(2))
        assert steps == expected
        assert folders() == before
        assert again.report == first.report
        assert again.tokenizers.fingerprint == first.tokenizers.fingerprint
        assert sources(again.train) == sources(first.train)

    def test_other_content_or_settings_are_prepared_anew(self, tmp_path: Path, cache: Path) -> None:
        """Each of these has as many stored texts, tokenizers and encoded texts as there are
        different ones so far."""
        train = write(tmp_path, "train", numbered(50))
        byte = TokenizerConfig(kind="byte")
        for arguments, expected in (
            ({"train": train}, (1, 1, 1)),
            ({"train": train | {"weight": 2.0}}, (1, 1, 1)),
            ({"train": train, "max_length": 50}, (1, 1, 2)),
            ({"train": train, "config": byte}, (1, 2, 3)),
            ({"train": train, "options": {"seed": 2}}, (2, 3, 4)),
            ({"train": numbered(50, first=1)}, (3, 4, 5)),
        ):
            found = prepared(tmp_path, **arguments)
            kinds = [path.name.split("-")[0] for path in cache.iterdir()]
            assert (
                tuple(kinds.count(kind) for kind in ("texts", "tokenizers", "encoded")) == expected
            )
        assert "source 50" in sources(found.train) + sources(found.validation)


SCRIPT = """
import sys
from pathlib import Path
import torch
from regard.data.config import Data
from regard.tasks.translation import Parallel
from regard.text.tokenizers import TokenizerConfig
from task_cases import prepare_pairs

def anonymous() -> int:
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))

peak = start = anonymous()

def progress(step: str, count: int) -> None:
    global peak
    peak = max(peak, anonymous())

files = {"source": "train.en", "target": "train.de"}
config = TokenizerConfig(kind="word", sample=1000)
data = Data[Parallel].model_validate({"train": files, "workers": 1})
found = prepare_pairs(data, config, Path(sys.argv[1]), progress=progress)
print(len(found.train), len(found.validation), peak - start)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads Linux's account of memory"
)
def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    write(
        tmp_path,
        "train",
        [(f"the source of example {i}", f"{i} is the target") for i in range(150_000)],
    )
    path = os.pathsep.join(
        [str(Path(task_cases.__file__).parent), os.environ.get("PYTHONPATH", "")]
    )
    command, env = [sys.executable, "-c", SCRIPT, str(tmp_path)], {**os.environ, "PYTHONPATH": path}
    printed = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    train, validation, kilobytes = map(int, printed.split())
    assert (train, validation) == (147_000, 3_000)
    assert kilobytes < 45 * 1024, (
        "the texts alone are 25 MB as Python strings, the tokens 33 MB as lists"
    )


@pytest.mark.parametrize(
    ("task", "file", "corpus", "before", "after"),
    [
        (
            "classification",
            "a.tsv",
            {"text": 0, "label": 1},
            "a b\tx\nc d\ty\n",
            "a b\ty\nc d\tx\n",
        ),
        ("tagging", "a.conll", {}, "a O\nb B-X\n", "a B-X\nb O\n"),
        (
            "question_answering",
            "a.jsonl",
            {},
            '{"context": "a b", "question": "?", "answers": ["a"]}',
            '{"context": "a b", "question": "?", "answers": ["b"]}',
        ),
        ("language_modeling", "a.txt", None, "a b c\n\nd", "c b a\n\nd"),
    ],
)
def test_fingerprints_tell_content_of_the_same_size_apart(
    tmp_path: Path, task: str, file: str, corpus: dict[str, Any] | None, before: str, after: str
) -> None:
    named = {"text": file} if corpus is None else {"file": file, **corpus}
    kind = "lstm_lm" if corpus is None else "bilstm"
    tree = {"task": task, "data": {"train": named, "validation": named}, "model": {"kind": kind}}
    found = []
    for text in (before, after, before):
        (tmp_path / file).write_text(text)
        found.append(
            TASKS[task]
            .prepare(recipe_of({**tree, "training": {"steps": 1}}), tmp_path)
            .fingerprints
        )
    assert found[0] == found[2]
    assert all(found[0][part] != found[1][part] for part in ("training", "validation"))


def test_several_processes_write_the_same_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where a row cannot be encoded, its place is named as by one process."""
    monkeypatch.setattr("regard.data.store.ROWS_PER_CHUNK", 64)  # so that there are several chunks
    (tmp_path / "good.tsv").write_text(
        "".join(f"a word{number}\t{number % 3}\n" for number in range(200))
    )
    bad = (f"a word{number}\t{'x' if number == 99 else 1}\n" for number in range(130))
    (tmp_path / "bad.tsv").write_text("".join(bad))
    found, errors = list[Prepared[Any]](), list[str]()
    for workers in (1, 2):
        monkeypatch.setenv("REGARD_CACHE", str(tmp_path / f"cache{workers}"))
        for file in ("good", "bad"):
            corpus = {"file": f"{file}.tsv", "text": 0, "label": 1}
            tree = {
                "task": "regression",
                "data": {"train": corpus, "validation": {"split": 0.02}, "workers": workers},
            }
            recipe = recipe_of(tree | {"model": {"kind": "bilstm"}, "training": {"steps": 1}})
            try:
                found.append(TASKS["regression"].prepare(recipe, tmp_path))
            except DataError as error:
                errors.append(str(error))
    for name, column in found[0].train.columns.items():
        assert column.values.tobytes() == found[1].train.columns[name].values.tobytes()
        assert column.offsets.tolist() == found[1].train.columns[name].offsets.tolist()
    assert found[0].report == found[1].report
    assert errors[0].startswith("bad.tsv:100: ")
    assert errors[1] == errors[0]
