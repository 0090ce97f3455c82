"""`regard check` recognises a user's files and proposes a recipe that holds for them."""

from __future__ import annotations

import csv
import gzip
import json
import math
import random
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from command_line import fail, succeed, write
from regard.config import parse_yaml
from regard.data.recognise import Recognised, recognise
from regard.data.tales import generate
from regard.errors import DataError
from regard.recipes.propose import propose
from regard.recipes.propose_pace import Sizes
from regard.recipes.recipe import recipe_of
from regard.training.check import check

DRAW = random.Random(1)
ENGLISH = ["the", "a", "dog", "cat", "sees", "likes", "house", "tree", "big", "small", "red", "when", "then", "runs"]
KOREAN = ["개가", "고양이를", "집에서", "나무", "큰", "작은", "빨간", "그래서", "달린다", "본다", "좋아한다"]
PAIRS = [(" ".join(DRAW.choices(ENGLISH, k=6)), " ".join(DRAW.choices(KOREAN, k=5))) for _ in range(80)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tsv(rows: list[tuple[str, ...]]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


def found_in(text: str, name: str = "pairs.tsv") -> Recognised:
    write(Path(name), text)
    return recognise([name], Path())


def keys(found: Recognised) -> tuple[Any, Any]:
    return found.source.key, found.target.key


# What is in a file


def test_columns_without_a_header(folder: Path) -> None:
    found = found_in(tsv([(str(n), *pair, "https://a.b/c d") for n, pair in enumerate(PAIRS)]))
    assert (keys(found), found.header, found.pairs) == ((1, 2), False, 80)
    assert (found.source.script, found.target.script) == ("Latin", "Hangul")
    assert (found.source.words, found.target.words) == (6, 5)


@pytest.mark.parametrize("names", [("english", "korean"), ("en", "ko"), ("source", "target"), ("Q", "A")])
def test_a_header_is_told_from_a_row(folder: Path, names: tuple[str, str]) -> None:
    found = found_in(tsv([names, *PAIRS]))
    assert (keys(found), found.header, found.pairs) == (names, True, 80)


def test_a_row_of_single_words_is_no_header_above_single_words(folder: Path) -> None:
    found = found_in(tsv([("dog", "개"), ("cat", "고양이"), ("tree", "나무")]))
    assert (keys(found), found.header, found.pairs) == ((0, 1), False, 3)


def test_a_header_above_a_file_that_is_sorted_by_length(folder: Path) -> None:
    """Its first rows are single words as names are, but sentences end in a sign."""
    rows = [("Go.", "가!"), ("Run!", "뛰어!"), ("Who?", "누구?"), *PAIRS]
    assert not found_in(tsv(rows)).header
    found = found_in(tsv([("english", "korean"), *rows]))
    assert (keys(found), found.header, found.pairs) == (("english", "korean"), True, 83)
    assert not found_in(tsv([("Stop.", "그만."), *PAIRS])).header


def test_names_decide_which_side_is_which(folder: Path) -> None:
    rows = [("answer", "id", "question"), *((korean, "x1", english) for english, korean in PAIRS)]
    assert keys(found_in(tsv(rows))) == ("question", "answer")


def test_labels_are_no_text(folder: Path) -> None:
    with open("chat.csv", "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("A", "kind", "Q"), *((k, "greeting", f"{e}, {e}\n") for e, k in PAIRS)])
    found = recognise(["chat.csv"], Path())
    assert (keys(found), found.pairs) == (("Q", "A"), 80), "a line break in quotes makes no row"


def test_jsonl_and_nested_columns(folder: Path) -> None:
    lines = [{"id": n, "translation": {"en": e, "ko": k}, "kind": "x"} for n, (e, k) in enumerate(PAIRS)]
    found = found_in("".join(json.dumps(line) + "\n" for line in lines), "p.jsonl")
    assert (keys(found), found.pairs) == (("translation.en", "translation.ko"), 80)


def test_parquet(folder: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    english, korean = (list(side) for side in zip(*PAIRS, strict=True))
    parquet.write_table(arrow.table({"n": range(80), "en": english, "ko": korean}), "p.parquet")
    found = recognise(["p.parquet"], Path())
    assert (keys(found), found.pairs) == (("en", "ko"), 80)


def test_parallel_files(folder: Path) -> None:
    Path("t.en.gz").write_bytes(gzip.compress("".join(f"{e}\n" for e, _ in PAIRS).encode()))
    write(Path("t.ko"), "".join(f"{k}\n" for _, k in PAIRS))
    found = recognise(["t.en.gz", "t.ko"], Path())
    assert (found.file, keys(found), found.pairs) == (None, ("t.en.gz", "t.ko"), 80)


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl", "parquet", "parallel"])
def test_lengths_are_those_of_the_whole_file_however_it_is_sorted(folder: Path, kind: str) -> None:
    """9,000 pairs of 1 to 9 words, shortest first, as Tatoeba's come: 5 words on average, 1.5 in the first 2,000."""
    sides = [[" ".join([word] * (1 + row // 1000)) for row in range(9000)] for word in ("dog", "고양이")]
    rows = list(zip(*sides, strict=True))
    names = [f"p.{kind}"]
    if kind == "parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"en": sides[0], "ko": sides[1]}), "p.parquet")
    elif kind == "parallel":
        names = ["t.en", "t.ko"]
        for name, texts in zip(names, sides, strict=True):
            write(Path(name), "".join(f"{text}\n" for text in texts))
    elif kind == "jsonl":
        write(Path("p.jsonl"), "".join(json.dumps({"en": en, "ko": ko}) + "\n" for en, ko in rows))
    else:
        write(Path(names[0]), "".join(("\t" if kind == "tsv" else ",").join(row) + "\n" for row in rows))
    found = recognise(names, Path())
    assert isinstance(found, Recognised)
    assert found.pairs == 9000
    assert [found.source.words, found.target.words] == pytest.approx([5, 5], abs=0.2)
    assert (found.source.characters, found.target.characters) == (35, 35)


def test_summaries_by_name_or_by_length(folder: Path) -> None:
    assert not found_in(tsv(PAIRS)).summaries
    assert found_in(tsv([("text", "headline"), *PAIRS])).summaries
    assert found_in(tsv([(" ".join([e] * 8), k) for e, k in PAIRS])).summaries


# Images and stories


def with_images(folder: Path, count: int = 12) -> list[tuple[str, str]]:
    (folder / "images").mkdir()
    for number in range(count):
        Image.new("RGB", (9, 9), (20 * number, 100, 200)).save(folder / "images" / f"{number}.png")
    return [(f"images/{number}.png", PAIRS[number][0]) for number in range(count)]


def said(rows: list[tuple[str, str]], key: str = "caption", *, several: bool = False) -> str:
    captions = ([caption, f"{caption} again"] if several else caption for _, caption in rows)
    found = ({"id": 3, "image": image, key: caption} for (image, _), caption in zip(rows, captions, strict=True))
    return "".join(f"{json.dumps(one)}\n" for one in found)


NAMED = {"image": "image", "caption": "caption"}
CAPTIONS = {
    "plain.tsv": (tsv, {"image": 0, "caption": 1}),
    "turned.tsv": (lambda rows: tsv([(caption, image) for image, caption in rows]), {"image": 1, "caption": 0}),
    "header.tsv": (lambda rows: tsv([("filename", "remark"), *rows]), {"image": "filename", "caption": "remark"}),
    "same.tsv": (
        lambda rows: tsv([("a.png", "first"), *((image, "the same") for image, _ in rows)]), {"image": 0, "caption": 1},
    ),
    "header.csv": (lambda rows: "image,caption\n" + "".join(f"{one},{two}\n" for one, two in rows), NAMED),
    "numbered.tsv": (
        lambda rows: tsv([(image, str(n), caption) for n, (image, caption) in enumerate(rows)]),
        {"image": 0, "caption": 2},
    ),
    "one.jsonl": (said, NAMED),
    "two.jsonl": (lambda rows: said(rows, several=True), NAMED),
    "key.jsonl": (lambda rows: said(rows, "captions", several=True), {"image": "image", "caption": "captions"}),
}  # fmt: skip


@pytest.mark.parametrize("name", CAPTIONS)
def test_images_and_captions(folder: Path, name: str) -> None:
    text, columns = CAPTIONS[name]
    write(folder / name, text(with_images(folder)))
    proposed = propose([name], Path())
    tree = parse_yaml(proposed, "proposal")
    assert (tree["task"], tree["data"]["train"]) == ("captioning", {"file": name, **columns})
    assert [line for line in proposed.splitlines() if "#" not in line] == [], "every line is commented"


def test_features_and_captions(folder: Path) -> None:
    for number in range(12):
        np.save(folder / f"{number}.npy", np.full((3, 4, 24), number / 12))
    write(folder / "features.tsv", tsv([(f"{number}.npy", PAIRS[number][0]) for number in range(12)]))
    found = succeed("check", "features.tsv", "--json").json
    assert found["ok"], found
    assert parse_yaml(found["proposal"], "")["model"]["feature_width"] == 24
    assert found["training"]["sample_batch"]["source"][1] == 12


def test_a_labelled_text_with_an_image_beside_it_is_no_caption(folder: Path) -> None:
    rows = [(f"{n}.png", english, "good" if n % 2 else "bad") for n, (english, _) in enumerate(PAIRS)]
    write(folder / "reviews.tsv", tsv([("photo", "text", "label"), *rows]))
    assert parse_yaml(propose(["reviews.tsv"], Path()), "")["task"] == "classification"


def asked() -> list[dict[str, Any]]:
    story = [f"{name} is in the {place}." for name, place in (("Mary", "kitchen"), ("John", "garden"))]
    return [
        {"story": ([f"It is day {n}.", *story]), "question": f"Where is {name}?", "answer": place}
        for n in range(10)
        for name, place in (("Mary", "kitchen"), ("John", "garden"))
    ]


def babi() -> str:
    lines = []
    for one in asked():
        told = [*one["story"], f"{one['question']}\t{one['answer']}\t2"]
        lines += [f"{number} {text}\n" for number, text in enumerate(told, 1)]
    return "".join(lines)


STORIES = {
    "list.jsonl": lambda: "".join(f"{json.dumps(one)}\n" for one in asked()),
    "text.jsonl": lambda: "".join(f"{json.dumps({**one, 'story': ' '.join(one['story'])})}\n" for one in asked()),
    "qa[1]_train.txt": babi,
}


@pytest.mark.parametrize("name", STORIES)
def test_stories_and_questions(folder: Path, name: str) -> None:
    write(folder / name, STORIES[name]())
    proposed = propose([name], Path())
    assert proposed.startswith(f"# Proposed by `regard check` for {name}: 20 questions about stories.\n")
    assert parse_yaml(proposed, "proposal")["task"] == "story_answering"
    assert [line for line in proposed.splitlines() if "#" not in line] == [], "every line is commented"


@pytest.mark.parametrize("name", ["two.jsonl", "plain.tsv", "list.jsonl", "qa[1]_train.txt"])
def test_what_is_proposed_for_images_and_stories_trains(folder: Path, name: str) -> None:
    write(folder / name, STORIES[name]() if name in STORIES else CAPTIONS[name][0](with_images(folder)))
    (folder / "recipes").mkdir()
    found = succeed("check", name, "--out", "recipes/mine.yaml", "--json").json
    assert found["ok"], found
    examples = {"two.jsonl": 24, "plain.tsv": 12}.get(name, 20)
    assert sum(split["kept"] for split in found["data"]["splits"].values()) == examples
    succeed("train", "recipes/mine.yaml", "training.steps=2", "--out", "run", "--json")
    assert succeed("evaluate", "run", "--json").json["split"] == "test"


TALES = list(generate("tales-en", 60, 1, "train"))
TEXTS = {
    "tales.txt": ("\n\n".join(TALES), {"text": "tales.txt"}),
    "tales.txt.gz": (gzip.compress("\n\n".join(TALES).encode()), {"text": "tales.txt.gz"}),
    "my lines.txt": ("\n".join(TALES), {"text": "my lines.txt", "documents": "lines"}),
    "tales.jsonl": ("\n".join(json.dumps({"body": tale}) for tale in TALES), {"file": "tales.jsonl", "text": "body"}),
    "d/a/tales.txt": ("\n\n".join(TALES), {"text": "d"}),
}


@pytest.mark.parametrize("name", TEXTS)
def test_raw_text(folder: Path, name: str) -> None:
    """A GPT is proposed, which trains, and for the other models the very command, which holds."""
    text, corpus = TEXTS[name]
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    write(folder / name, text)
    found = succeed("check", corpus["text"] if name.startswith("d/") else name, "--out", "mine.yaml", "--json").json
    assert sum(split["kept"] for split in found["data"]["splits"].values()) == 60
    tree = parse_yaml(found["proposal"], "proposal")
    assert tree["data"]["train"] == corpus
    assert [line for line in found["proposal"].splitlines() if "#" not in line] == [], "every line is commented"
    commands = [line for line in found["proposal"].splitlines() if line.startswith("# regard train")]
    assert [shlex.split(line)[3] for line in commands] == ["bert", "elmo", "lstm-lm"]
    for line in commands:
        assert succeed("check", *shlex.split(line)[3:-2], "training.batch_tokens=256", "--json").json["ok"]
    succeed("train", "mine.yaml", "training.steps=2", "--out", "run", "--json")


FEW_ROWS = "\n\n".join(TALES[:10])


def notes(found: dict[str, Any]) -> list[str]:
    return [note for note in found["data"]["findings"] if "warmup" in note or "ends at step" in note]


def test_ten_documents_get_commands_that_hold_and_suit_them(folder: Path) -> None:
    write(folder / "few.txt", FEW_ROWS)
    found = succeed("check", "few.txt", "--json").json
    assert notes(found) == []
    training = parse_yaml(found["proposal"], "")["training"]
    assert training["steps"] >= 10 * training["warmup"]
    assert training["validate_every"] == training["steps"], "what is set aside is too little to choose by"
    commands = [shlex.split(line)[3:-2] for line in found["proposal"].splitlines() if line.startswith("# regard train")]
    assert "model.next_sentence=false" in commands[0], "one document is set aside, and two are needed"
    for command in commands:
        checked = succeed("check", *command, "--json").json
        assert (checked["ok"], notes(checked)) == (True, [])
        assert 10 * float(dict(one.split("=", 1) for one in command[1:])["training.warmup"]) <= 1000
        assert 400 <= checked["training"]["steps"] <= 1000, "not the 100,000 of the recipe that ships"


def test_next_sentences_are_asked_where_enough_documents_have_two(folder: Path) -> None:
    write(folder / "many.txt", "\n\n".join(TALES))
    assert "next_sentence" not in propose(["many.txt"], Path())
    write(folder / "short.txt", "\n\n".join(tale.split(".")[0] + "." for tale in TALES))
    assert "model.next_sentence=false" in propose(["short.txt"], Path())


@given(
    size=st.floats(1, 1e9), batch=st.integers(64, 20_000), epochs=st.integers(1, 200), warmup=st.integers(0, 5_000),
    patience=st.integers(1, 20), steps=st.integers(100, 2_000),
)  # fmt: skip
def test_a_warm_up_is_a_tenth_at_most_and_patience_outlasts_it(
    size: float, batch: int, epochs: int, warmup: int, patience: int, steps: int
) -> None:
    sizes = Sizes(math.inf, "tiny", 1_000, epochs, warmup, patience)
    plan = sizes.pace(size, batch, steps=steps)
    assert plan.steps >= steps
    assert 10 * plan.warmup <= plan.steps
    assert plan.patience is not None
    assert plan.patience * plan.validate_every >= 2 * plan.warmup
    assert plan.epochs is None or plan.epochs >= epochs


def test_forty_pairs(folder: Path) -> None:
    write(folder / "pairs.tsv", tsv(PAIRS[:40]))
    found = succeed("check", "pairs.tsv", "--json").json
    assert notes(found) == []
    training = parse_yaml(found["proposal"], "")["training"]
    assert (training["steps"], training["warmup"], training["validate_every"]) == (800, 80, 20)


def test_sixty_labelled_rows_are_learned(folder: Path) -> None:
    """As proposed: who reads on learns what is good. A tie in accuracy is told as one, a table with its axes."""
    good, bad = ("fine", "clever", "warm"), ("dull", "silly", "cold")
    rows = [
        (
            f"{DRAW.choice(ENGLISH)} {DRAW.choice(ENGLISH)} was {DRAW.choice(bad if n % 2 else good)}",
            "no" if n % 2 else "yes",
        )
        for n in range(60)
    ]
    write(folder / "rows.tsv", tsv([("text", "label"), *rows]))
    succeed("check", "rows.tsv", "--out", "mine.yaml")
    log = succeed("train", "mine.yaml", "--out", "run").err
    said = re.findall(r"validation at step .*? accuracy ([\d.]+) .*?(?:\(([^)]*)\))?$", log, re.MULTILINE)
    best = -1.0
    for value, standing in said:
        assert (standing == "best so far") == (float(value) > best)
        assert standing in ("", "best so far", "as good in accuracy, lower loss: best so far")
        best = max(best, float(value))
    assert best == 1.0
    assert (
        "the true label stands on the left; the counts are of what the model said:\nconfusion"
        in succeed("evaluate", "run").out
    )


def test_raw_text_among_other_files(folder: Path) -> None:
    (folder / "d").mkdir()
    for name in ("d/a.txt", "d/README.md", "d/b.py"):
        write(folder / name, "one\n\ntwo\n")
    assert parse_yaml(propose(["d"], Path()), "")["data"]["train"]["text"] == "d/**/*.txt"
    write(folder / "d" / "recipe.yaml", "task: translation\n")
    assert fail("check", "d") == ["d: this is a folder, not a recipe (give a .yaml file)"]


# The recipe


def test_every_line_is_commented_and_every_key_is_one(folder: Path) -> None:
    write(folder / "pairs.tsv", tsv(PAIRS))
    text = propose(["pairs.tsv"], Path())
    assert text.startswith("# Proposed by `regard check` for pairs.tsv: 80 pairs.\n")
    assert [line for line in text.splitlines() if re.match(r"\s*[\w-]+:", line) and " # " not in line] == []
    tree = parse_yaml(text, "proposal")
    recipe = recipe_of(tree)
    assert tree["data"]["train"] == {"file": "pairs.tsv", "source": 0, "target": 1}
    assert (recipe.model.preset, recipe.tokenizer.vocabulary, recipe.evaluation.tokenize) == ("tiny", 1000, "char")


def test_the_size_decides_about_model_vocabulary_and_batch(folder: Path) -> None:
    write(folder / "large.tsv", tsv([(english, english) for english, _ in PAIRS * 750]))
    tree = parse_yaml(propose(["large.tsv"], Path()), "proposal")
    assert (tree["model"]["preset"], tree["tokenizer"]["vocabulary"]) == ("small", 8000)
    assert tree["training"]["batch_tokens"] == 4096
    assert tree["data"]["validation"] == {"split": 0.017}
    assert "evaluation" not in tree


def test_documents_get_summarization_and_room(folder: Path) -> None:
    write(folder / "news.csv", "article,title\n" + "".join(f"{' '.join([e] * 30)},{k}\n" for e, k in PAIRS))
    tree = parse_yaml(propose(["news.csv"], Path()), "proposal")
    assert tree["task"] == "summarization"
    assert tree["data"]["train"] == {"file": "news.csv", "document": "article", "summary": "title"}
    assert tree["data"]["max_length"] * 2 >= max(len(" ".join([e] * 30)) for e, _ in PAIRS[:1])
    assert tree["training"]["batch_tokens"] >= 4 * tree["data"]["max_length"]
    assert tree["evaluation"] == {"tokenize": "characters"}


@pytest.mark.parametrize("name", ["my pairs.tsv", "no.tsv", "1e5.tsv", "a, {b}: c#.tsv", "null.tsv", "한국어.tsv"])
def test_any_file_name_is_read_back(folder: Path, name: str) -> None:
    write(folder / name, tsv([("yes", "null"), *PAIRS]) if name == "no.tsv" else tsv(PAIRS))
    tree = parse_yaml(propose([name], Path()), "proposal")
    assert tree["data"]["train"]["file"] == name


# The command


def test_check_prints_a_recipe_that_can_be_saved_as_it_is(folder: Path) -> None:
    write(folder / "pairs.tsv", tsv(PAIRS))
    result = succeed("check", "pairs.tsv")
    assert result.out == propose(["pairs.tsv"], Path())
    assert "64 of 80 pairs" in result.err
    write(folder / "saved.yaml", result.out)
    assert succeed("check", "saved.yaml", "--json").json["ok"]
    found = succeed("check", "pairs.tsv", "--json").json
    assert found["ok"]
    assert found["proposal"] == result.out
    assert found["data"]["splits"]["train"]["kept"] == 64


def test_check_writes_the_recipe_with_paths_that_hold_there(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "recipes").mkdir()
    for column, name in enumerate(("t.en", "t.ko")):
        write(folder / "data" / name, "".join(f"{pair[column]}\n" for pair in PAIRS))
    result = succeed("check", "data/t.en", "data/t.ko", "--out", "recipes/mine.yaml")
    assert result.out == "written: recipes/mine.yaml\n"
    tree = parse_yaml(Path("recipes/mine.yaml").read_text(encoding="utf-8"), "")
    assert tree["data"]["train"] == {"source": "../data/t.en", "target": "../data/t.ko"}
    assert succeed("check", "recipes/mine.yaml", "--json").json["ok"]
    before = Path("recipes/mine.yaml").read_bytes()
    [message] = fail("check", "data/t.en", "data/t.ko", "--out", "recipes/mine.yaml")
    assert message == "recipes/mine.yaml: the file exists already (give another --out)"
    assert Path("recipes/mine.yaml").read_bytes() == before


def test_python_gives_the_proposal_too(folder: Path) -> None:
    write(folder / "pairs.tsv", tsv(PAIRS))
    assert check("pairs.tsv", quiet=True).proposal == propose(["pairs.tsv"], Path())


def test_a_proposal_with_problems_in_the_data_is_still_shown(folder: Path) -> None:
    write(folder / "a.en", "".join(f"{e}\n" for e, _ in PAIRS))
    write(folder / "a.ko", "".join(f"{k}\n" for _, k in PAIRS[:-1]))
    found = check("a.en", ["a.ko"], quiet=True)
    assert [problem.what for problem in found.problems] == ["a.en has 80 lines, a.ko has 79"]
    assert found.proposal is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.tsv"], "missing.tsv: there is no such file"),
        (["pairs.txt"], "pairs.txt: what is in this file cannot be told from it alone: there are tabs in its lines (a"),
        (
            ["one.tsv"],
            "one.tsv: two columns of text are needed, but only column 0 looks like text (the col",
        ),
        (["empty.tsv"], "empty.tsv: the file is empty"),
        (["pairs.tsv", "pairs.tsv"], "pairs.tsv: 2 files cannot be read together (one file with all columns"),
        (["pairs.tsv", "training.steps=5"], "training.steps=5: a proposal takes no overrides (save it with --out"),
        (["dates", "--out", "x.yaml"], "--out: it is only for a recipe that is proposed for data files"),
        (["broken.jsonl"], "broken.jsonl:1: not valid JSON"),
    ],
)
def test_what_cannot_be_proposed_for(folder: Path, arguments: list[str], message: str) -> None:
    write(folder / "pairs.tsv", tsv(PAIRS))
    write(folder / "pairs.txt", tsv(PAIRS))
    write(folder / "one.tsv", tsv([(e, "17", "0.5") for e, _ in PAIRS]))
    write(folder / "empty.tsv", "")
    write(folder / "broken.jsonl", "{\n")
    [found] = fail("check", *arguments)
    assert found.startswith(message)
    assert not Path("x.yaml").exists()


def test_three_files_are_too_many(folder: Path) -> None:
    for name in "abc":
        write(folder / name, "x\n")
    with pytest.raises(DataError, match="3 files cannot be read together"):
        recognise(["a", "b", "c"], Path())


def test_a_table_of_two_columns_needs_no_letters(folder: Path) -> None:
    write(folder / "numbers.tsv", tsv([(english, str(number)) for number, (english, _) in enumerate(PAIRS)]))
    tree = parse_yaml(propose(["numbers.tsv"], Path()), "proposal")
    assert tree["data"]["train"] == {"file": "numbers.tsv", "source": 0, "target": 1}


def test_a_first_pair_of_one_word_each_with_its_stop_is_no_header(tmp_path: Path) -> None:
    """As Tatoeba's files begin, which are sorted by length."""
    pairs = [("Go.", "가."), ("Hi.", "안녕."), *((f"I see {n} dogs.", f"개 {n}마리가 보여요.") for n in range(40))]
    write(tmp_path / "kor.tsv", "".join(f"{english}\t{korean}\n" for english, korean in pairs))
    found = recognise(["kor.tsv"], tmp_path)
    assert isinstance(found, Recognised)
    assert (found.header, found.pairs) == (False, 42)
