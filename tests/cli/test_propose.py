"""`regard check FILE` recognises what is in a file and proposes a recipe that passes `regard check`
and trains."""

import csv
import gzip
import importlib.util
import io
import json
import random
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from command_line import fail, regard, succeed, write
from places import SHARED
from regard.config import parse_yaml
from regard.data.corpora import generate
from regard.data.labelled import Labelled
from regard.data.readers import open_corpus
from regard.recipes.loading import load_recipe
from regard.recipes.proposals.parts import parts_of
from regard.recipes.proposals.plans import PLANS, SettingsByAmount, training_length
from regard.recipes.proposals.recipe_text import recipe_text
from regard.recipes.proposals.recognise import recognise
from regard.tasks import TASKS
from regard.tasks.translation import EvaluationConfig, translation_scores
from regard.training.check import check
from task_cases import rows_of

DRAW = random.Random(1)
ENGLISH = [
    "the",
    "a",
    "dog",
    "cat",
    "sees",
    "likes",
    "house",
    "tree",
    "big",
    "small",
    "red",
    "when",
    "then",
    "runs",
]
KOREAN = [
    "개가",
    "고양이를",
    "집에서",
    "나무",
    "큰",
    "작은",
    "빨간",
    "그래서",
    "달린다",
    "본다",
    "좋아한다",
]
COUNT = 60
EN = [f"{' '.join(DRAW.choices(ENGLISH, k=6))} {number}" for number in range(COUNT)]
KO = [f"{' '.join(DRAW.choices(KOREAN, k=5))} {number}" for number in range(COUNT)]
OTHER = [*EN[1:], EN[0]]
WORDS = [text.split() for text in EN]
IDS = [str(number) for number in range(COUNT)]
CLASSES = [DRAW.choice(["good", "bad"]) for _ in EN]
BITS = [DRAW.choice("01") for _ in EN]
FLOATS = [f"{5 * DRAW.random():.2f}" for _ in EN]
TALES = [tale for (tale,) in generate("tales-en", 2 * COUNT, 1, "train")]
IMAGES = [f"images/{number}.png" for number in range(COUNT)]
ARRAYS = [f"images/{number}.npy" for number in range(COUNT)]


def table(names: Sequence[str] | None, *columns: Iterable[str], separator: str = "\t") -> str:
    stream = io.StringIO()
    quoting = csv.QUOTE_MINIMAL if separator != "\t" else csv.QUOTE_NONE
    rows = [*([names] if names else []), *zip(*columns, strict=True)]
    csv.writer(
        stream, delimiter=separator, quoting=quoting, quotechar='"', lineterminator="\n"
    ).writerows(rows)
    return stream.getvalue()


def lines(**columns: Iterable[Any]) -> str:
    rows = zip(*columns.values(), strict=True)
    return "".join(f"{json.dumps(dict(zip(columns, row, strict=True)))}\n" for row in rows)


def array(**columns: Iterable[Any]) -> str:
    return f"[{','.join(lines(**columns).splitlines())}]"


def conll(tag: Callable[[str], str], sentences: Sequence[Sequence[str]] = WORDS) -> str:
    return "\n".join("".join(f"{word} {tag(word)}\n" for word in words) for words in sentences)


def parquet(**columns: list[Any]) -> bytes:
    arrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    stream = io.BytesIO()
    writer.write_table(arrow.table(columns), stream)
    return stream.getvalue()


STORY = ["Mary is in the kitchen.", "John is in the garden."]
WHERE = [("Where is Mary?", "kitchen"), ("Where is John?", "garden")] * 30
STORIES = [[f"It is day {number}.", *STORY] for number in range(COUNT)]
BABI = "".join(
    "".join(
        f"{number} {line}\n" for number, line in enumerate([*story, f"{question}\t{answer}\t2"], 1)
    )
    for story, (question, answer) in zip(STORIES, WHERE, strict=True)
)
ANSWERS = [[{"text": text.split()[1], "answer_start": text.index(" ") + 1}] for text in EN]
SQUAD = [
    {"context": text, "qas": [{"id": number, "question": "What?", "answers": answers}]}
    for text, number, answers in zip(EN, IDS, ANSWERS, strict=True)
]
CONLLU = "\n".join(
    "# text\n" + "".join(f"1\t{word}\tx\t{word[0].upper()}\t_\t_\t_\t_\t_\t_\n" for word in words)
    for words in WORDS
)
CATS = [["B-CAT" if word == "cat" else "O" for word in words] for words in WORDS]
LETTERS = [DRAW.choice("ABCD") for _ in EN]


class Case(NamedTuple):
    """What a file holds, and what is proposed for it: the task, the columns, and some settings by
    their paths."""

    content: str | bytes | Callable[[], bytes]
    task: str
    columns: dict[str, Any]
    settings: Mapping[str, Any] = MappingProxyType({})
    trains: bool = False


TINY = {
    "model.preset": "tiny",
    "training.steps": 800,
    "training.warmup": 80,
    "training.validate_every": 20,
}
SCRATCH = {"model.kind": "cnn", "tokenizer.vocabulary": 8000, "training.best": "accuracy"}
PAIR = {"first": "sentence1", "second": "sentence2"}
NAMED = {"image": "image", "caption": "caption"}
CASES: dict[str, Case] = {
    # pairs of texts
    "pairs.tsv": Case(
        table(None, EN, KO),
        "translation",
        {"source": 0, "target": 1},
        {**TINY, "tokenizer.vocabulary": 1000, "evaluation.tokenize": "char"},
        trains=True,
    ),
    "my pairs, {a}: b#.tsv": Case(table(None, EN, KO), "translation", {"source": 0, "target": 1}),
    "null.tsv": Case(
        table(None, IDS, EN, KO, ["https://a.b/c d"] * COUNT),
        "translation",
        {"source": 1, "target": 2},
    ),
    "named.tsv": Case(
        table(["english", "korean"], EN, KO),
        "translation",
        {"source": "english", "target": "korean"},
    ),
    "turned.tsv": Case(
        table(["answer", "id", "question"], KO, IDS, EN),
        "translation",
        {"source": "question", "target": "answer"},
    ),
    "chat.csv": Case(
        table(
            ["A", "kind", "Q"],
            KO,
            ["greeting"] * COUNT,
            [f"{text},\n{text}" for text in EN],
            separator=",",
        ),
        "translation",
        {"source": "Q", "target": "A"},
    ),
    "beside.tsv": Case(
        table(["Q", "A", "label"], EN, KO, BITS), "translation", {"source": "Q", "target": "A"}
    ),
    "domain.tsv": Case(table(None, EN, KO, CLASSES), "translation", {"source": 0, "target": 1}),
    "numbers.tsv": Case(table(None, EN, IDS), "translation", {"source": 0, "target": 1}),
    "chinese.tsv": Case(
        table(None, [f"我爱你 {number}" for number in IDS], EN),
        "translation",
        {"source": 0, "target": 1},
        {"tokenizer.vocabulary": 16000},
    ),
    "nested.jsonl": Case(
        lines(id=IDS, translation=[{"en": en, "ko": ko} for en, ko in zip(EN, KO, strict=True)]),
        "translation",
        {"source": "translation.en", "target": "translation.ko"},
    ),
    "pairs.parquet": Case(
        lambda: parquet(n=[*range(COUNT)], en=EN, ko=KO),
        "translation",
        {"source": "en", "target": "ko"},
    ),
    "news.csv": Case(
        table(["article", "title"], [" ".join([text] * 30) for text in EN], KO, separator=","),
        "summarization",
        {"document": "article", "summary": "title"},
        {
            "data.max_length": 800,
            "training.batch_tokens": 3200,
            "evaluation.tokenize": "characters",
        },
    ),
    "long.tsv": Case(
        table(None, [" ".join([text] * 8) for text in EN], KO),
        "summarization",
        {"document": 0, "summary": 1},
    ),
    # labels
    "reviews.csv": Case(
        table(["text", "label"], EN, CLASSES, separator=","),
        "classification",
        {"text": "text", "label": "label"},
        {**SCRATCH, "training.steps": 800},
        trains=True,
    ),
    "rare.csv": Case(
        table(["text", "label"], EN, ["ham"] * 50 + ["spam"] * 10, separator=","),
        "classification",
        {"text": "text", "label": "label"},
        {"training.best": "f1_macro"},
    ),
    "semicolons.csv": Case(
        table(["review text", "verdict"], EN, CLASSES, separator=";"),
        "classification",
        {"text": "review text", "label": "verdict"},
    ),
    "nameless.tsv": Case(table(None, EN, BITS), "classification", {"text": 0, "label": 1}),
    "files.tsv": Case(
        table(None, [f"pos/{n}_x.txt" for n in IDS], BITS, EN),
        "classification",
        {"text": 2, "label": 1},
    ),
    "photo.tsv": Case(
        table(["photo", "text", "label"], IMAGES, EN, CLASSES),
        "classification",
        {"text": "text", "label": "label"},
    ),
    "titled.tsv": Case(
        table(["title", "text", "category"], [text[:8] for text in EN], EN, CLASSES),
        "classification",
        {"text": "text", "label": "category"},
    ),
    "labels.jsonl": Case(
        lines(document=EN, label=map(int, BITS)),
        "classification",
        {"text": "document", "label": "label"},
    ),
    "compared.tsv": Case(
        table(["index", "sentence1", "sentence2", "label"], IDS, EN, OTHER, CLASSES),
        "classification",
        {**PAIR, "label": "label"},
    ),
    "glue.tsv": Case(
        table(["Quality", "#1 ID", "#1 String", "#2 String"], BITS, IDS, EN, OTHER),
        "classification",
        {"first": "#1 String", "second": "#2 String", "label": "Quality"},
    ),
    "sts.tsv": Case(
        table(
            ["genre", "score", "sentence1", "sentence2"], ["news", "forum"] * 30, FLOATS, EN, OTHER
        ),
        "regression",
        {**PAIR, "label": "score"},
        {"training.best": "pearson", "tokenizer.kind": "character"},
        trains=True,
    ),
    "stars.csv": Case(
        table(["review", "rating"], EN, FLOATS, separator=","),
        "regression",
        {"text": "review", "label": "rating"},
    ),
    "nested.json": Case(
        json.dumps(
            [
                {"doc": {"text": text}, "labels": {"real-label": label}}
                for text, label in zip(EN, CLASSES, strict=True)
            ]
        ),
        "classification",
        {"text": "doc.text", "label": "labels.real-label"},
    ),
    # choices
    "swag.csv": Case(
        table(
            ["", "startphrase", "ending0", "ending1", "ending2", "label"],
            IDS,
            EN,
            OTHER,
            OTHER[::-1],
            EN[::-1],
            ["0", "1", "2"] * 20,
            separator=",",
        ),
        "multiple_choice",
        {"text": "startphrase", "choices": ["ending0", "ending1", "ending2"], "label": "label"},
    ),
    "letters.csv": Case(
        table(
            ["question", "A", "B", "C", "D", "answer"],
            EN,
            OTHER,
            OTHER[::-1],
            EN[::-1],
            KO,
            LETTERS,
            separator=",",
        ),
        "multiple_choice",
        {"text": "question", "choices": [*"ABCD"], "label": "answer"},
        {"head.labels": [*"ABCD"]},
    ),
    "choices.jsonl": Case(
        lines(
            question=EN, choices=[*map(list, zip(EN, OTHER, strict=True))], answer=["A", "B"] * 30
        ),
        "multiple_choice",
        {"text": "question", "choices": ["choices.0", "choices.1"], "label": "answer"},
        {"head.labels": ["A", "B"]},
        trains=True,
    ),
    # words, questions, stories
    "names.conll": Case(
        conll(lambda word: "B-ANIMAL" if word == "cat" else "O"),
        "tagging",
        {"tokens": 0, "tags": -1},
        {"training.best": "f1"},
        trains=True,
    ),
    "names.txt": Case(
        conll(lambda word: "I-X" if word == "cat" else "O"), "tagging", {"tokens": 0, "tags": -1}
    ),
    "parts.conll": Case(
        conll(lambda word: "DET" if word in ("the", "a") else "X"),
        "tagging",
        {"tokens": 0, "tags": -1, "scheme": "plain"},
        {"training.best": "accuracy"},
    ),
    "parts.conllu": Case(CONLLU, "tagging", {"tokens": 1, "tags": 3, "scheme": "plain"}),
    "letters.bio": Case(
        conll(lambda sign: "B-X" if sign in "ab" else "O", [*map("".join, WORDS)]),
        "tagging",
        {"tokens": 0, "tags": -1},
        {"data.words": "characters"},
    ),
    "tags.jsonl": Case(lines(words=WORDS, ner=CATS), "tagging", {"tokens": "words", "tags": "ner"}),
    "squad.json": Case(
        json.dumps({"data": [{"paragraphs": SQUAD}]}),
        "question_answering",
        {},
        {"training.batch_tokens": 1536},
        trains=True,
    ),
    "array.json": Case(
        array(context=EN, question=["What?"] * COUNT, answers=ANSWERS), "question_answering", {}
    ),
    "tags.json": Case(array(words=WORDS, ner=CATS), "tagging", {"tokens": "words", "tags": "ner"}),
    "stories.json": Case(
        array(story=STORIES, question=[q for q, _ in WHERE], answer=[a for _, a in WHERE]),
        "story_answering",
        {},
    ),
    "squad.jsonl": Case(
        lines(context=EN, question=["What?"] * COUNT, answers=ANSWERS), "question_answering", {}
    ),
    "lists.jsonl": Case(
        lines(story=STORIES, question=[q for q, _ in WHERE], answer=[a for _, a in WHERE]),
        "story_answering",
        {},
        {"model.restarts": 10},
    ),
    "stories.jsonl": Case(
        lines(
            story=map(" ".join, STORIES),
            question=[q for q, _ in WHERE],
            answer=[a for _, a in WHERE],
        ),
        "story_answering",
        {},
    ),
    "qa[1]_train.txt": Case(BABI, "story_answering", {"file": "qa[[]1]_train.txt"}, trains=True),
    # images
    "plain.tsv": Case(
        table(None, IMAGES, EN), "captioning", {"image": 0, "caption": 1}, {"model.images.size": 64}
    ),
    "reversed.tsv": Case(table(None, EN, IMAGES), "captioning", {"image": 1, "caption": 0}),
    "same.tsv": Case(
        table(None, IMAGES, ["first", *["the same"] * 59]), "captioning", {"image": 0, "caption": 1}
    ),
    "remarks.tsv": Case(
        table(["filename", "remark"], IMAGES, EN),
        "captioning",
        {"image": "filename", "caption": "remark"},
    ),
    "counted.csv": Case(
        table(None, IMAGES, IDS, EN, separator=","), "captioning", {"image": 0, "caption": 2}
    ),
    "captions.jsonl": Case(
        lines(id=IDS, image=IMAGES, captions=[*map(list, zip(EN, OTHER, strict=True))]),
        "captioning",
        {"image": "image", "caption": "captions"},
        trains=True,
    ),
    "korean.jsonl": Case(
        lines(image=IMAGES, caption=KO), "captioning", NAMED, {"evaluation.tokenize": "char"}
    ),
    "features.tsv": Case(
        table(None, ARRAYS, EN),
        "captioning",
        {"image": 0, "caption": 1},
        {"model.feature_width": 24, "model.images": None},
    ),
    # raw text
    "tales.txt": Case(
        "\n\n".join(TALES[:COUNT]),
        "language_modeling",
        {"text": "tales.txt"},
        {"model.kind": "gpt", "data.max_length": 128},
        trains=True,
    ),
    "tales.txt.gz": Case(
        gzip.compress("\n\n".join(TALES[:COUNT]).encode()),
        "language_modeling",
        {"text": "tales.txt.gz"},
    ),
    "my lines.txt": Case(
        "\n".join(TALES[:COUNT]),
        "language_modeling",
        {"text": "my lines.txt", "documents": "lines"},
    ),
    "tales.jsonl": Case(
        lines(body=TALES[:COUNT]), "language_modeling", {"file": "tales.jsonl", "text": "body"}
    ),
    "folder/a/tales.txt": Case("\n\n".join(TALES[:COUNT]), "language_modeling", {"text": "folder"}),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(name: str, content: str | bytes | Callable[[], bytes]) -> str:
    """The file, and the images that it names; what is given to `check`."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    write(Path(name), content() if callable(content) else content)
    Path("images").mkdir(exist_ok=True)
    for number, (image, array) in enumerate(zip(IMAGES, ARRAYS, strict=True)):
        if image.encode() in Path(name).read_bytes():
            Image.new("RGB", (9, 9), (4 * number, 100, 200)).save(image)
        if array.encode() in Path(name).read_bytes():
            np.save(array, np.full((3, 4, 24), number / COUNT))
    return name.split("/")[0]


def setting(tree: Any, path: str) -> Any:
    for key in path.split("."):
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def propose(files: Sequence[str], folder: Path) -> str:
    return recipe_text(recognise(files), files, folder)


def tree_for(*files: str) -> dict[str, Any]:
    return parse_yaml(propose(files, Path()), "proposal")


@pytest.mark.parametrize("name", CASES)
def test_what_is_proposed_fits_passes_the_check_and_trains(folder: Path, name: str) -> None:
    """Those that are trained pass the whole check first, the others what it says of the recipe and
    the data."""
    case, given_name = CASES[name], put(name, CASES[name].content)
    proposal = propose([given_name], Path())
    write(Path("mine.yaml"), proposal)
    recipe, base = load_recipe("mine.yaml")
    report = TASKS[recipe.task].prepare(recipe, base).report
    assert sum(split.kept for split in report.splits.values()) == COUNT * (
        1 + (name == "captions.jsonl")
    )
    tree = parse_yaml(proposal, "proposal")
    line = case.columns if case.task == "language_modeling" else {"file": name, **case.columns}
    assert (tree["task"], tree["data"]["train"]) == (case.task, line)
    assert {path: setting(tree, path) for path in case.settings} == case.settings
    assert [text for text in proposal.splitlines() if "#" not in text] == [], (
        "every line is commented"
    )
    assert proposal.startswith(f"# Proposed by `regard check` for {given_name}: {COUNT} ")
    if case.trains:
        Path("mine.yaml").unlink()
        found = succeed("check", given_name, "--out", "mine.yaml", "--json").json
        assert (found["ok"], found["commands"]) == (
            True,
            ["regard train mine.yaml --out runs/mine"],
        )
        assert found["proposal"] == proposal
        assert [
            note for note in found["data"]["findings"] if "warmup" in note or "ends at step" in note
        ] == []
        length = "training.epochs=1" if case.task == "story_answering" else "training.steps=2"
        succeed("train", "mine.yaml", length, "--out", "run", "--json")
        assert succeed("evaluate", "run", "--json").json["split"] == "test"


@pytest.mark.parametrize(
    "name",
    [
        "pairs.tsv",
        "chat.csv",
        "nested.jsonl",
        "nested.json",
        "reviews.csv",
        "names.conll",
        "squad.json",
        "stories.jsonl",
        "qa[1]_train.txt",
        "tales.txt",
        "folder/a/tales.txt",
    ],
)
@pytest.mark.parametrize("encoding", ["cp949", "utf-16"])
def test_what_windows_saves_is_proposed_and_read_as_in_utf8(
    folder: Path, name: str, encoding: str
) -> None:
    content = CASES[name].content
    assert isinstance(content, str)
    content, trees, reports = content.replace("the", "그것이"), [], []
    for saved in ("utf-8", encoding):
        given_name = put(name, content.encode(saved))
        trees.append(tree_for(given_name))
        recipe, base = load_recipe(trees[-1])
        reports.append(TASKS[recipe.task].prepare(recipe, base).report.to_json())
    trees[0]["data"]["encoding"] = encoding
    assert trees[0] == trees[1]
    assert reports[0] == reports[1]


def test_only_korean_is_recognised(folder: Path) -> None:
    """`Ärger` alone would be a Hangul syllable and letters in cp949."""
    put(
        "german.csv",
        table(["text", "label"], ["Ärger", "nach der Überfahrt"], ["a", "b"]).encode("latin1"),
    )
    assert "data.encoding=latin1 (Western Europe), or another" in fail("check", "german.csv")[0]
    put("late.txt", b"a\n" * 3_000 + "가나다\n".encode("cp949"))
    assert tree_for("late.txt")["data"]["encoding"] == "cp949"


@pytest.mark.parametrize(
    ("encoding", "other"),
    [
        ("cp949", "한국어"),
        ("cp949", "Zoé"),
        ("cp949", "20° and ’"),
        ("utf-16", "Zoé"),
        ("utf-16", "Zoe"),
    ],
)
def test_two_files_in_two_encodings_are_refused(folder: Path, encoding: str, other: str) -> None:
    put("k.txt", "가나다\n마바사\n".encode(encoding))
    put("u.txt", f"plain\n{other}\n")
    hint = "save k.txt as UTF-8: data.encoding holds for both"
    for names in permutations(["k.txt", "u.txt"]):
        assert fail("check", *names) == [f"k.txt: this is {encoding}, and u.txt is UTF-8 ({hint})"]
    put("u.txt", "plain\ntext\n".encode(encoding))
    assert recognise(["u.txt", "k.txt"]).settings["data.encoding"] == encoding


ODD = {"a": EN, "b": OTHER, "mood": CLASSES, "label": BITS, "n": FLOATS}


@pytest.mark.parametrize(
    ("roles", "task", "line"),
    [
        ([], "classification", {"text": "a", "label": "label"}),
        (["label=mood"], "classification", {"text": "a", "label": "mood"}),
        (["label=n"], "regression", {"text": "a", "label": "n"}),
        (["text=b"], "classification", {"text": "b", "label": "label"}),
        (["text=b", "label=mood"], "classification", {"text": "b", "label": "mood"}),
        (["target=a"], "translation", {"source": "b", "target": "a"}),
        (["source=b", "target=mood"], "translation", {"source": "b", "target": "mood"}),
    ],
)
@pytest.mark.parametrize("name", ["odd.csv", "odd.jsonl"])
def test_columns_are_chosen(
    folder: Path, name: str, roles: list[str], task: str, line: dict[str, str]
) -> None:
    put(name, lines(**ODD) if name.endswith("l") else table([*ODD], *ODD.values(), separator=","))
    found = succeed("check", name, *roles, "--json").json
    tree = parse_yaml(found["proposal"], "proposal")
    assert (tree["task"], tree["data"]["train"]) == (task, {"file": name, **line})
    assert found["commands"][0] == shlex.join(
        ["regard", "check", name, *roles, "--out", "odd.yaml"]
    )


@pytest.mark.parametrize("score", ["높음", "N/A", "nan", ""])
def test_scores_of_which_some_are_no_numbers_are_scores(folder: Path, score: str) -> None:
    scores = [*FLOATS[:30], score, *FLOATS[31:]]
    name = put(
        "sts.tsv", table(["genre", "sentence1", "sentence2", "score"], CLASSES, EN, OTHER, scores)
    )
    found = recognise([name])
    assert (found.task, found.data["first"], found.data["label"]) == (
        "regression",
        "sentence1",
        "score",
    )
    if score in ("높음", "N/A"):
        [problem] = check(name, quiet=True).problems
        assert str(problem).startswith(f"sts.tsv:32: the label {score!r} is not a number")


def test_columns_without_names_are_chosen_by_number(folder: Path) -> None:
    tree = recognise([put("bare.tsv", table(None, EN, CLASSES, BITS))], {"label": "2"})
    assert tree.data == {"file": Path("bare.tsv"), "text": 0, "label": 2}


def test_parallel_files_and_paths_that_hold_where_the_recipe_is_saved(folder: Path) -> None:
    for name in ("data", "recipes"):
        (folder / name).mkdir()
    write(folder / "data/t.en.gz", gzip.compress("".join(f"{text}\n" for text in EN).encode()))
    write(folder / "data/t.ko", "".join(f"{text}\n" for text in KO))
    files = ("check", "data/t.en.gz", "data/t.ko", "--out", "recipes/mine.yaml")
    whole = Path("data/t.ko").read_text()
    write(Path("data/t.ko"), whole[: whole.rindex("\n", 0, -1) + 1])
    assert (
        "this line has no counterpart in the other file" in fail(*files)[0]
    )  # and nothing is written
    write(Path("data/t.ko"), whole)
    assert succeed(*files).out == "written: recipes/mine.yaml\n"
    tree = parse_yaml(Path("recipes/mine.yaml").read_text(encoding="utf-8"), "")
    assert tree["data"]["train"] == {"source": "../data/t.en.gz", "target": "../data/t.ko"}
    assert succeed("check", "recipes/mine.yaml", "--json").json["ok"]
    assert fail(*files) == ["recipes/mine.yaml: the file exists already (give another --out)"]
    write(folder / "data/t.ko", "".join(f"{text}\n" for text in KO[1:]))
    found = check("data/t.en.gz", ["data/t.ko"], quiet=True)
    assert [problem.what for problem in found.problems] == [
        "data/t.en.gz has 60 lines, data/t.ko has 59"
    ]
    assert found.proposal is not None, "it is shown although the data has problems"


@pytest.mark.parametrize(
    ("columns", "task", "line"),
    [
        (
            {"translation": [{"en": en, "ko": ko} for en, ko in zip(EN, KO, strict=True)]},
            "translation",
            {"source": "translation.en", "target": "translation.ko"},
        ),
        (
            {"text": EN, "label": [*map(int, BITS)]},
            "classification",
            {"text": "text", "label": "label"},
        ),
        (
            {
                "question": EN,
                "options": [*map(list, zip(EN, OTHER, strict=True))],
                "label": [0, 1] * 30,
            },
            "multiple_choice",
            {"text": "question", "choices": ["options.0", "options.1"], "label": "label"},
        ),
    ],
)
def test_saved_datasets(
    folder: Path, columns: dict[str, list[Any]], task: str, line: dict[str, Any]
) -> None:
    """One with splits is read by that of the training."""
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict(columns)
    both = datasets.DatasetDict({"train": dataset, "test": dataset.select([0])})
    saved = dataset if task == "classification" else both
    saved.save_to_disk("saved")
    Path("recipes").mkdir()
    found = succeed("check", "saved", "--out", "recipes/mine.yaml", "--json").json
    tree = parse_yaml(found["proposal"], "")
    assert (tree["task"], tree["data"]["train"]) == (task, {"dataset": "../saved", **line})
    assert sum(split["kept"] for split in found["data"]["splits"].values()) == COUNT


SORTED = [("Go.", "가!"), ("Run!", "뛰어!"), ("Who?", "누구?"), *zip(EN, KO, strict=True)]


@pytest.mark.parametrize(
    ("rows", "header"),
    [
        ([("en", "ko"), *SORTED], True),
        ([("source", "target"), *SORTED], True),
        ([("Q", "A"), *SORTED], True),
        (SORTED, False),
        ([("Stop.", "그만."), *SORTED], False),
        ([("dog", "개"), ("cat", "고양이"), ("tree", "나무")], False),
        ([("a", "하나"), ("the", "그"), ("dog", "개")], False),
    ],
)
def test_a_header_is_told_from_a_row_in_a_sorted_file(
    folder: Path, rows: list[tuple[str, str]], header: bool
) -> None:
    write(Path("pairs.tsv"), "".join("\t".join(row) + "\n" for row in rows))
    found = recognise(["pairs.tsv"])
    keys = rows[0] if header else (0, 1)
    assert (found.data["source"], found.data["target"], found.examples) == (
        *keys,
        len(rows) - header,
    )


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet", "parallel"])
def test_a_file_is_sampled_as_a_whole_however_it_is_sorted(folder: Path, kind: str) -> None:
    """9,000 pairs of 1 to 9 words, shortest first: 5 words on average, 1.5 in the first 2,000."""
    en, ko = (
        [" ".join([word] * (1 + row // 1000)) for row in range(9000)] for word in ("dog", "고양이")
    )
    contents = {
        "tsv": lambda: table(None, en, ko),
        "csv": lambda: table(None, en, ko, separator=","),
        "jsonl": lambda: lines(en=en, ko=ko),
        "parquet": lambda: parquet(en=en, ko=ko),
        "parallel": lambda: "".join(f"{text}\n" for text in en),
    }
    write(Path(f"p.{kind}"), contents[kind]())
    write(Path("p.ko"), "".join(f"{text}\n" for text in ko))
    found = recognise([f"p.{kind}", "p.ko"] if kind == "parallel" else [f"p.{kind}"])
    assert (found.examples, [size.script for size in found.sizes]) == (9000, ["Latin", "Hangul"])
    assert [size.words for size in found.sizes] == pytest.approx([5, 5], abs=0.2)
    assert [size.characters for size in found.sizes] == [35, 35]
    texts = [f"{text} {row}" for row, text in enumerate(en)]
    write(Path("labels.tsv"), table(None, texts, ["0"] * 4500 + ["1"] * 4500))
    assert recognise(["labels.tsv"]).task == "classification"


def test_texts_that_are_parts_of_others_are_stopped_by_their_loss(folder: Path) -> None:
    """The part set aside shares their words, so its accuracy goes on rising while the model
    overfits."""
    sentences = [" ".join(f"w{7 * row + place}" for place in range(8)) for row in range(3000)]
    phrases = [text for whole in sentences for text in (whole, " ".join(whole.split()[2:6]))]
    for name, texts, best in (
        ("phrases.tsv", phrases, "loss"),
        ("whole.tsv", sentences * 1, "accuracy"),
    ):
        write(
            Path(name), table(["text", "label"], texts, [str(row % 2) for row in range(len(texts))])
        )
        assert tree_for(name)["training"]["best"] == best


def test_sizes_follow_the_amount_of_data(folder: Path) -> None:
    write(Path("large.tsv"), table(None, EN * 1000, EN * 1000))
    tree = tree_for("large.tsv")
    assert (tree["model"]["preset"], tree["tokenizer"]["vocabulary"]) == ("small", 8000)
    assert (tree["training"]["batch_tokens"], tree["training"]["epochs"]) == (4096, 30)
    assert tree["data"]["validation"] == {"split": 0.017}
    assert "evaluation" not in tree


def test_a_vocabulary_holds_the_syllables_of_korean_text(folder: Path) -> None:
    """Little text, which has a vocabulary of 1,000 in other scripts, may have more syllables than
    that."""
    syllables = [chr(0xAC00 + 7 * number) for number in range(1_500)]
    chosen = random.Random(1)
    write(
        Path("comments.txt"),
        "\n".join("".join(chosen.choices(syllables, k=20)) for _ in range(2_500)),
    )
    write(Path("mine.yaml"), propose(["comments.txt"], Path()))
    recipe, base = load_recipe("mine.yaml")
    assert recipe.tokenizer.vocabulary == 3_000
    assert TASKS[recipe.task].prepare(recipe, base).tokenizers["text"].size > len(syllables)


@pytest.mark.parametrize("sizes", [sizes for plan in PLANS.values() for sizes in plan.sizes])
@settings(max_examples=40)
@given(tokens=st.floats(1, 1e9), batch=st.integers(64, 20_000), least=st.integers(100, 2_000))
def test_a_warm_up_is_a_tenth_and_patience_outlasts_it(
    sizes: SettingsByAmount, tokens: float, batch: int, least: int
) -> None:
    plan = training_length(sizes, tokens, batch, least)
    steps = plan["steps"] or plan["epochs"] * int(0.8 * tokens / batch)
    assert steps >= least
    assert 10 * (plan["warmup"]) <= steps
    assert plan["epochs"] is None or plan["epochs"] >= sizes.epochs
    if plan["patience"] and plan["steps"]:
        assert plan["patience"] * plan["validate_every"] >= 2 * (plan["warmup"])


def test_a_long_document_is_shown_in_part_and_may_be_most_of_the_text(folder: Path) -> None:
    """One of a few documents is set aside, whatever its length: with this seed the long one."""
    put("books.txt", "\n\n".join([" ".join(EN * 10), *TALES[:7]]))
    write(Path("mine.yaml"), propose(["books.txt"], Path()))
    found = check("mine.yaml", ["data.split_seed=5"], quiet=True)
    assert any(" …" in line for line in found.sentences())
    [note] = [note for note in found.data["findings"] if "of the tokens" in note]
    assert re.match(r"test is 1 of 8 documents, but \d\d % of the tokens: ", note)


@pytest.mark.parametrize(("count", "patience"), [(10, None), (2 * COUNT, 4)])
def test_so_little_text_that_none_can_be_set_aside_to_choose_by(
    folder: Path, count: int, patience: int | None
) -> None:
    write(Path("tales.txt"), "\n\n".join(TALES[:count]))
    assert tree_for("tales.txt")["training"].get("patience") == patience


def test_the_commands_that_fine_tune_hold(folder: Path) -> None:
    sizes = [f"data.{part}.size=60" for part in ("train", "validation", "test")]
    succeed(
        "train",
        "tales-bert",
        *sizes,
        "model.preset=tiny",
        "training.steps=1",
        "--out",
        "runs/bert",
        "--json",
    )
    for name in ("reviews.csv", "sts.tsv", "choices.jsonl", "parts.conll", "squad.json"):
        proposal = propose([put(name, CASES[name].content)], Path())
        [command] = [
            shlex.split(line)[3:]
            for line in proposal.splitlines()
            if line.startswith("# regard train")
        ]
        assert succeed("check", *command[:-2], "--json").json["ok"], name


def test_check_prints_the_recipe_alone_and_what_to_type_next(folder: Path) -> None:
    name = put("my reviews.csv", CASES["reviews.csv"].content)
    result = succeed("check", name)
    assert result.out == propose([name], Path()) == check(name, quiet=True).proposal
    assert "48 of 60 examples" in result.err
    commands = [
        line.removeprefix("next       ")
        for line in result.err.splitlines()
        if line.startswith("next ")
    ]
    assert commands == [
        "regard check 'my reviews.csv' --out 'my reviews.yaml'",
        "regard train 'my reviews.yaml' --out 'runs/my reviews'",
    ]
    for command, override in zip(commands, ([], ["training.steps=2"]), strict=True):
        succeed(*shlex.split(command)[1:], *override)
    assert succeed("check", name, "--json").json["commands"] == [
        "regard check 'my reviews.csv' --out 'my reviews-2.yaml'",
        "regard train 'my reviews-2.yaml' --out 'runs/my reviews-2'",
    ]


def test_sixty_labelled_rows_are_learned(folder: Path) -> None:
    """With the recipe as it is proposed. The log tells a tie in accuracy from a better one."""
    words = [("fine", "clever", "warm"), ("dull", "silly", "cold")]
    texts = [
        f"{DRAW.choice(ENGLISH)} {DRAW.choice(ENGLISH)} was {DRAW.choice(words[n % 2])}"
        for n in range(60)
    ]
    write(Path("rows.tsv"), table(["text", "label"], texts, ["yes", "no"] * 30))
    succeed("check", "rows.tsv", "--out", "mine.yaml")
    log = succeed("train", "mine.yaml", "--out", "run").err
    best = -1.0
    for value, note in re.findall(
        r"validation at step .*? accuracy ([\d.]+) .*?(?:\(([^)]*)\))?$", log, re.MULTILINE
    ):
        assert (note == "best so far") == (float(value) > best)
        assert note in ("", "best so far", "as good in accuracy, lower loss: best so far")
        best = max(best, float(value))
    assert best == 1.0
    assert "rows are true labels, columns are predicted labels" in succeed("evaluate", "run").out


def test_the_texts_of_a_folder_with_other_files(folder: Path) -> None:
    put("mixed/a.txt", "one\n\ntwo\n")
    put("mixed/b.py", "one\n")
    assert tree_for("mixed")["data"]["train"]["text"] == "mixed/**/*.txt"


def test_check_counts_labels_and_tags_but_not_numbers(folder: Path) -> None:
    write(Path("train.tsv"), table(["text", "label"], EN, ["ham"] * 45 + ["spam"] * 15))
    write(Path("dev.tsv"), "text\tlabel\nnew one\tspam\nnew two\tspam\nnew three\tham\n")
    columns = "text: text, label: label"
    write(
        Path("r.yaml"),
        f"""
task: classification
data: {{train: {{file: train.tsv, {columns}}}, validation: {{file: dev.tsv, {columns}}}}}
model: {{kind: bilstm, preset: tiny}}
training: {{steps: 2, device: cpu}}
""",
    )
    counts = {"train": {"ham": 45, "spam": 15}, "validation": {"ham": 1, "spam": 2}}
    assert succeed("check", "r.yaml", "--json").json["data"]["labels"] == counts
    assert [
        line for line in succeed("check", "r.yaml").out.splitlines() if line.startswith("labels")
    ] == [
        "labels     train: ham 45 (75.0 %), spam 15 (25.0 %)",
        "labels     validation: spam 2 (66.7 %), ham 1 (33.3 %)",
    ]
    tags = succeed("check", put("names.conll", CASES["names.conll"].content), "--json").json[
        "data"
    ]["labels"]
    assert sum(split["B-ANIMAL"] for split in tags.values()) == sum(
        text.split().count("cat") for text in EN
    )
    assert sum(sum(split.values()) for split in tags.values()) == sum(
        len(text.split()) for text in EN
    )
    assert (
        "labels"
        not in succeed("check", put("stars.csv", CASES["stars.csv"].content), "--json").json["data"]
    )


def test_check_names_the_other_columns_that_may_be_the_label(folder: Path) -> None:
    """Nothing but the user tells which of several classes is meant."""
    bias, hate = (["no", "yes"] * 30, ["none", "some", "much"] * 20)
    write(Path("comments.tsv"), table(["comments", "bias", "hate"], EN, bias, hate))
    note = "column bias is taken for the label; others that may be: hate (label=COLUMN)"
    assert note in succeed("check", "comments.tsv", "--json").json["data"]["findings"]
    write(Path("named.tsv"), table(["comments", "bias", "label"], EN, bias, hate))
    assert not recognise(["named.tsv"]).notes


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/data")
@pytest.mark.parametrize(
    ("name", "rows", "task", "columns"),
    [
        (
            "nsmc/ratings_test.tsv.xz",
            50_000,
            "classification",
            {"text": "document", "label": "label"},
        ),
        (
            "glue/MRPC/dev.tsv.xz",
            408,
            "classification",
            {"first": "#1 String", "second": "#2 String", "label": "Quality"},
        ),
        ("glue/CoLA/dev.tsv.xz", 1043, "classification", {"text": 3, "label": 1}),
        ("glue/SST-2/dev.tsv.xz", 872, "classification", {"text": "sentence", "label": "label"}),
        ("glue/RTE/dev.tsv.xz", 277, "classification", {**PAIR, "label": "label"}),
        ("glue/STS-B/dev.tsv.xz", 1500, "regression", {**PAIR, "label": "score"}),
        ("kornlu/sts-dev.tsv.xz", 1500, "regression", {**PAIR, "label": "score"}),
        ("conll2003_en/eng.testa.xz", 3250, "tagging", {"tokens": 0, "tags": -1}),
        ("squad/dev-v1.1.rebuilt.json.xz", 10_570, "question_answering", {}),
        ("babi_en/qa1_single-supporting-fact_test.txt.xz", 1000, "story_answering", {}),
        ("ko_chatbot/ChatbotData.csv.xz", 11_823, "translation", {"source": "Q", "target": "A"}),
        ("tatoeba_en_fr/fra.tsv.xz", 142_787, "translation", {"source": 0, "target": 1}),
    ],
)
def test_real_files_are_recognised(
    name: str, rows: int, task: str, columns: dict[str, Any]
) -> None:
    found = recognise([str(SHARED / name)])
    assert (found.task, found.examples, found.data) == (
        task,
        rows,
        {"file": SHARED / name, **columns},
    )
    if name.startswith("glue"):  # .tsv without quoting
        assert sum(1 for _ in rows_of(open_corpus(Labelled(file=name, **columns), SHARED))) == rows


KLUE = "## klue-ner-v1_train_{0}_nsmc\t<서울:LC>에 {0}\n" + "".join(
    f"{one}\t{tag}\n" for one, tag in zip("서울에 가", ("B-LC", "I-LC", "O", "O", "O"), strict=True)
)
KLUE_HEADER = (
    "## 토큰, 레이블 구분자 : \\t\n## 토큰 구분자 : \\n\n## 주석 : ##\n## 컬럼명 : CHAR\tNE_TAG\n"
)
SPEECH = "나\tNP\n는\tJX\n가\tVV\n{}\tEF\n"


@pytest.mark.parametrize(
    ("name", "sentence"), [("klue.tsv", KLUE), ("syllables.txt", SPEECH), ("speech.tsv", SPEECH)]
)
def test_a_syllable_and_its_tag_a_line_are_tagging(folder: Path, name: str, sentence: str) -> None:
    put(name, "\n".join(sentence.format("다" if number % 2 else "자") for number in range(40)))
    tree = tree_for(name)
    words = "characters_and_blanks" if " \t" in sentence else "characters"
    assert (tree["task"], tree["data"]["words"]) == ("tagging", words)


@pytest.mark.parametrize(
    "name", ["klue.tsv", "klue.conll", "klue.txt", "klue.csv", "klue.ner", "klue"]
)
def test_comments_as_those_of_klue_hide_no_columns_whatever_the_suffix(
    folder: Path, name: str
) -> None:
    """Its header has comments with tabs and without. A few bad lines are for `check` to name."""
    sentences = [KLUE.format("다" if number % 2 else "자") + "#\tO\n" for number in range(40)]
    put(name, KLUE_HEADER + "\n".join(sentences))
    tree = parse_yaml(check(name, quiet=True).proposal or "", "proposal")
    assert (tree["task"], tree["data"]["train"]) == (
        "tagging",
        {"file": name, "tokens": 0, "tags": -1},
    )
    assert tree["data"]["words"] == "characters_and_blanks"
    put(name, KLUE_HEADER + "\n".join([*sentences, "가\n", *sentences]))
    assert recognise([name]).task == "tagging"


def test_columns_are_followed_or_refused(folder: Path) -> None:
    """Also by number where they have names; never another column than that which was asked for."""
    put("bare.csv", table(None, EN, CLASSES, separator=","))
    put("named.csv", table(["text", "label"], EN, CLASSES, separator=","))
    [message] = fail("check", "bare.csv", "text=1", "label=0")
    assert message.startswith(
        "bare.csv: column '0' is not a label: it has 60 different values in 60 rows"
    )
    assert recognise(["named.csv"], {"text": "0", "label": "1"}).data["label"] == "label"
    put("pairs.csv", table(["a", "b", "c"], EN, OTHER, CLASSES, separator=","))
    found = recognise(["pairs.csv"], {"second": "a", "first": "b"})
    assert (found.data["first"], found.data["second"], found.data["label"]) == ("b", "a", "c")
    found = recognise(["pairs.csv"], {"document": "a", "summary": "b"})
    assert (found.task, found.data["document"], found.data["summary"]) == (
        "summarization",
        "a",
        "b",
    )
    [message] = fail("check", "pairs.csv", "first=a")
    assert (
        message
        == "pairs.csv: first= needs second= beside it (two texts of a row that are compared)"
    )
    names = "text=, first=, second=, label=, source=, target=, document=, summary=, task="
    for file, override in (("pairs.csv", "txt=a"), ("words.conll", "text=0")):
        put("words.conll", CASES["names.conll"].content)
        [message] = fail("check", file, override)
        assert message.startswith(
            f"{override}: a proposal takes no overrides (save it with --out, then"
        )
        assert names in message


def test_stars_are_numbers_or_classes_as_one_says(folder: Path) -> None:
    put(
        "stars.csv",
        table(["review", "stars"], EN, [str(1 + row % 5) for row in range(COUNT)], separator=","),
    )
    found = recognise(["stars.csv"])
    [note] = found.notes
    assert note.startswith(
        "column stars has 5 different whole numbers, which are predicted as numbers (regression); "
    )
    assert found.task == recognise(["stars.csv"], {"label": "stars"}).task == "regression"
    chosen = succeed("check", "stars.csv", "task=classification", "--json").json
    assert parse_yaml(chosen["proposal"], "")["task"] == "classification"
    assert set(chosen["data"]["labels"]["train"]) == set("12345")
    assert chosen["data"]["findings"] == []
    put("bits.csv", table(["text", "label"], EN, BITS, separator=","))
    assert recognise(["bits.csv"]).task == "classification"
    assert recognise(["bits.csv"], {"task": "regression"}).task == "regression"
    assert (
        "task=tagging cannot be chosen here (allowed: classification, regression"
        in fail("check", "bits.csv", "task=tagging")[0]
    )


@pytest.mark.parametrize(
    ("names", "roles"),
    [
        (["text", "label"], []),
        (None, []),
        (["text", "label"], ["label=label"]),
        (["Q", "id", "label"], []),
    ],
)
def test_one_label_alone_is_refused(
    folder: Path, names: list[str] | None, roles: list[str]
) -> None:
    columns = [EN, *([IDS] if names and len(names) > 2 else []), ["good"] * COUNT]
    put("one.csv", table(names, *columns, separator=","))
    [message] = fail("check", "one.csv", *roles)
    column = "label" if names else "1"
    assert message.startswith(
        f"one.csv: column '{column}' has one value only, 'good', in all 60 rows (a label needs two"
    )


def test_rare_labels_that_look_like_mistakes_are_noted_with_their_lines(folder: Path) -> None:
    genres = [("drama", "comedy")[row % 2] for row in range(COUNT)]
    genres[10], genres[20], genres[30] = "drama,comedy3", "comdey", "western"
    put("plots.tsv", table(["plot", "genre"], EN, genres))
    findings = succeed("check", "plots.tsv", "--json").json["data"]["findings"]
    assert (
        "the label 'drama,comedy3' may be a mistake for 'drama': it stands at plots.tsv:12 (1 in "
        "all)" in findings
    )
    assert (
        "the label 'comdey' may be a mistake for 'comedy': it stands at plots.tsv:22 (1 in all)"
        in findings
    )
    assert not any("'western' may be" in note for note in findings)
    [rare] = [
        note for note in findings if note.startswith("too rare to be in every part: the label ")
    ]
    assert "'western' (1: plots.tsv:32)" in rare


PARTS = {"train": COUNT, "dev": 10, "test": 12}


def test_files_for_training_validation_and_test_are_known_by_their_names(folder: Path) -> None:
    for part, count in PARTS.items():
        rows = [f"{part} {text}" for text in EN[:count]]
        put(f"{part}.csv", table(["text", "label"], rows, CLASSES[:count], separator=","))
        put(f"my_{part}.en", "".join(f"{row}\n" for row in rows))
        put(f"my_{part}.ko", "".join(f"{part} {text}\n" for text in KO[:count]))
    found = succeed("check", "test.csv", "train.csv", "dev.csv", "--out", "a.yaml", "--json").json
    data = parse_yaml(found["proposal"], "")["data"]
    columns = {"text": "text", "label": "label"}
    assert [data[part] for part in ("train", "validation", "test")] == [
        {"file": f"{part}.csv", **columns} for part in PARTS
    ]
    assert [split["read"] for split in found["data"]["splits"].values()] == [*PARTS.values()]
    command = ["check", "train.csv", "--validation", "dev.csv", "--test", "test.csv"]
    named = succeed(*command, "--json").json
    assert parse_yaml(named["proposal"], "")["data"] == data
    assert named["commands"][0] == shlex.join(["regard", *command, "--out", "train.yaml"])
    half = parse_yaml(check("train.csv", ["dev.csv"], quiet=True).proposal or "", "")["data"]
    assert (half["validation"], half["test"]) == (data["validation"], {"split": 0.1})
    parallel = succeed(
        "check", "my_train.en", "my_train.ko", "my_dev.ko", "my_dev.en", "--json"
    ).json["proposal"]
    assert parse_yaml(parallel, "")["data"]["validation"] == {
        "source": "my_dev.en",
        "target": "my_dev.ko",
    }


def test_files_that_do_not_go_together_are_refused(folder: Path) -> None:
    put("train.csv", table(["text", "label"], EN, CLASSES, separator=","))
    put("dev.csv", table(None, EN, CLASSES, separator=","))
    [message] = fail("check", "train.csv", "dev.csv")
    assert message.startswith(
        "dev.csv: train.csv has a header with the names of its columns, dev.csv has none"
    )
    [message] = fail("check", "train.csv", "--validation", "dev.csv", "--validation", "train.csv")
    assert message.startswith("dev.csv: files for training: 1, for this part: 2 (")
    [message] = fail("check", "train.csv", "dev.csv", "--validation", "dev.csv")
    assert message == "--validation: dev.csv is for validation by its name (name each file once)"
    put("other.csv", CASES["reviews.csv"].content)
    [message] = fail("check", "train.csv", "other.csv")
    assert (
        "--validation FILE and --test FILE name others, as do names with train, dev and test"
        in message
    )
    write(Path("r.yaml"), "task: classification\n")
    assert fail("check", "r.yaml", "--test", "dev.csv")[0].startswith(
        "--test: it is only for a recipe that is proposed"
    )


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (["a/train.en", "a/train.ko"], {"train": ["a/train.en", "a/train.ko"]}),
        (["test.en", "test.ko"], {"train": ["test.en", "test.ko"]}),
        (
            ["eng.train", "eng.testa", "eng.testb"],
            {"train": ["eng.train"], "validation": ["eng.testa"], "test": ["eng.testb"]},
        ),
        (["train/a.tsv", "valid/a.tsv"], {"train": ["train/a.tsv"], "validation": ["valid/a.tsv"]}),
        (
            ["ratings_train.txt.xz", "ratings_test.txt.xz"],
            {"train": ["ratings_train.txt.xz"], "test": ["ratings_test.txt.xz"]},
        ),
        (["train.en", "train.ko", "dev.en"], {"train": ["train.en", "train.ko", "dev.en"]}),
        (["trainer.tsv", "tested.tsv"], {"train": ["trainer.tsv", "tested.tsv"]}),
    ],
)
def test_what_names_of_files_say(names: list[str], parts: dict[str, list[str]]) -> None:
    assert parts_of(names) == parts


def test_train_with_data_advises_the_check_of_all_of_it(folder: Path) -> None:
    put("a.en", "".join(f"{text}\n" for text in EN))
    put("a b.ko", "".join(f"{text}\n" for text in KO))
    [message] = fail("train", "a.en", "a b.ko", "--out", "run")
    command = re.search("\\('(regard .*)' proposes", message)
    assert command is not None
    succeed(*shlex.split(command[1])[1:])
    assert parse_yaml(Path("mine.yaml").read_text(encoding="utf-8"), "")["task"] == "translation"


def test_few_documents_of_many_lines_are_noted(folder: Path) -> None:
    blocks = ["".join(f"{text}\n" for text in EN[start : start + 20]) for start in (0, 20, 40)]
    put("lines.txt", "\n".join(blocks))
    write(
        Path("r.yaml"),
        """
task: language_modeling
data: {train: {text: lines.txt}, validation: {text: lines.txt}}
tokenizer: {kind: word}
model: {kind: gpt, preset: tiny}
training: {steps: 2, device: cpu}
""",
    )
    note = "lines.txt: only a blank line ends a document, so 60 lines are 3 of them; "
    findings = succeed("check", "r.yaml", "--json").json["data"]["findings"]
    assert [finding.startswith(note) for finding in findings].count(True) == 1
    lines = [f"data.{part}.documents=lines" for part in ("train", "validation")]
    assert not any(
        note in finding
        for finding in succeed("check", "r.yaml", *lines, "--json").json["data"]["findings"]
    )


def test_japanese_is_measured_by_mecab_where_it_is_installed(folder: Path) -> None:
    put("ja.tsv", table(None, EN, [f"私は犬が{number}番目に好きです。" for number in IDS]))
    offered = importlib.util.find_spec("MeCab") is not None
    assert tree_for("ja.tsv")["evaluation"]["tokenize"] == ("ja-mecab" if offered else "char")
    write(Path("r.yaml"), propose(["ja.tsv"], Path()))
    if not offered:
        messages = fail("check", "r.yaml", "evaluation.tokenize=ja-mecab")
        needs = "measuring with it needs the library 'MeCab' (pip install 'regard[japanese]')"
        assert messages == [f"evaluation.tokenize: {needs}"]
        return
    found = translation_scores(
        ["私は犬が好きです。"], [["私は猫が好きです。"]], EvaluationConfig(tokenize="ja-mecab")
    )
    assert "tok:ja-mecab" in found["bleu_signature"]
    assert 40 < found["bleu"] < 60


def test_nothing_is_proposed_where_most_rows_would_be_dropped(folder: Path) -> None:
    """Here because the rows are alike: whatever they are, they are no pairs to learn from."""
    put(
        "few.tsv",
        "".join(f"한 문장 {number % 4}\ta sentence {number % 4}\n" for number in range(200)),
    )
    [message] = fail("check", "few.tsv", "--out", "mine.yaml")
    assert message.startswith(
        "few.tsv: nothing is proposed: it would have dropped 196 of 200 training pairs: 196 seen"
    )
    assert not Path("mine.yaml").exists()


def test_why_no_row_can_be_read(folder: Path) -> None:
    asked = {"context": "Ben.", "qas": [{"question": "Who?", "answer": "Ben"}]}
    put("quiz.json", json.dumps({"data": [{"paragraphs": [asked]}]}))
    count, reason = check("quiz.json", quiet=True).problems
    assert count.what.startswith("no training question is left: dropped 1 of 1 training questions")
    assert (reason.where, reason.what) == ("quiz.json: question 1", "there is no column 'answers'")


@pytest.mark.parametrize("missing", ["", "nan"])
def test_a_label_that_is_often_missing_is_one(folder: Path, missing: str) -> None:
    labels = ("좋음", "나쁨", missing, missing)
    put(
        "part.csv",
        "text,label\n"
        + "".join(f"한 문장 {number},{labels[number % 4]}\n" for number in range(80)),
    )
    done = succeed("check", "part.csv")
    assert "\ntask: classification " in done.out
    assert "dropped 40 of 80 training examples: 40 empty" in done.out + done.err


def test_a_share_of_rows_that_were_dropped_says_so(folder: Path) -> None:
    rows = [f"{'아주 긴 글 ' * 20_000}{number},{number % 2}" for number in range(20)] + [
        "하나,0",
        "둘 셋,1",
        "넷,0",
    ]
    put("long.csv", "text,label\n" + "\n".join(rows) + "\n")
    result = regard("check", "long.csv")
    assert result.code == 2
    assert (
        "example is left: dropped 20 of 23 training examples: 20 over data.max_characters"
        in result.err
    )


def test_what_is_proposed_for_labels_suits_the_texts(folder: Path) -> None:
    """As measured in benchmarks/README.md: n-grams of short texts, of characters in Korean and then
    also in a bag, words of long ones, pairs each read by itself."""
    long, labels = "word " * 200, ("good", "bad")
    rows = [
        (f"text {number} {long}", f"other {number}", labels[number % 2]) for number in range(60)
    ]
    put("long.tsv", "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, _, label in rows))
    put(
        "pairs.tsv", "premise\thypothesis\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows)
    )
    single, pairs = tree_for("long.tsv"), tree_for("pairs.tsv")
    assert (single["model"]["widths"], single["head"]) == ([1], {"pooling": "mean"})
    assert (pairs["model"]["widths"], pairs["head"]) == (
        [1, 2, 3],
        {"apart": True, "pooling": "max"},
    )
    assert (single["training"]["patience"], pairs["training"]["patience"]) == (10, 3)
    put("korean.tsv", table(["text", "label"], KO, CLASSES))
    put(
        "korean pairs.tsv",
        table(["sentence1", "sentence2", "label"], KO, [*KO[1:], KO[0]], CLASSES),
    )
    put(
        "korean long.tsv", table(["text", "label"], [" ".join([text] * 30) for text in KO], CLASSES)
    )
    korean, *others = map(tree_for, ("korean.tsv", "korean pairs.tsv", "korean long.tsv"))
    assert korean["tokenizer"] == {"kind": "character", "lowercase": True}
    assert (korean["model"]["ngrams"], korean["model"]["widths"]) == (131_072, [1, 2, 3, 4])
    assert korean["head"] == {"linear": 2**18}
    training = korean["training"]
    assert (training["label_smoothing"], training["validate_every"]) == (0.1, training["steps"])
    assert training["betas"] == [0.9, 0.999]
    assert "patience" not in training
    assert [tree["tokenizer"]["kind"] for tree in others] == ["character", "bpe"]
    assert others[0]["head"] == {"linear": 2**18, "apart": True, "pooling": "max"}
    put(
        "many.tsv",
        table(
            ["text", "label"],
            [f"{text} {place}" for place in range(100) for text in KO],
            CLASSES * 100,
        ),
    )
    assert (
        tree_for("many.tsv")["training"]["validate_every"]
        == tree_for("many.tsv")["training"]["steps"] / 10
    )
    tagging = tree_for(put("names.conll", CASES["names.conll"].content))
    assert (tagging["tokenizer"]["kind"], tagging["head"]) == (
        "word",
        {"crf": True, "linear": 2**18},
    )


def test_a_proposal_names_its_schedule_and_warm_up(folder: Path) -> None:
    """Whatever the defaults of recipes are."""
    for name in (
        "reviews.csv",
        "sts.tsv",
        "choices.jsonl",
        "names.conll",
        "tales.txt",
        "pairs.tsv",
    ):
        assert {"schedule", "warmup"} <= {*tree_for(put(name, CASES[name].content))["training"]}
