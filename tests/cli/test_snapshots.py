"""`--json` of every verb on tiny runs, a few for each task, as it was recorded: a refactoring must
not change it.

tests/golden/snapshots has a file a case: each command, to which `--json` is added, with what it
answered. To add one, give it the value null there. `REGARD_SNAPSHOTS=write pytest
tests/cli/test_snapshots.py` records all answers anew.

Structure, counts, tokens and labels must be equal, other numbers to a thousandth. Sentences for
people (WORDED) need only be there, times and versions (VOLATILE) too. Long lists are recorded as a
summary: see `summarised`.
"""

import csv
import hashlib
import io
import json
import math
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import regard, write

Tree = dict[str, Any]
FOLDER = Path(__file__).parents[1] / "golden" / "snapshots"
VOLATILE = re.compile(r"seconds|per_second|_bytes|signature|version|device|^k_j$|^scores$")
"""The bias of keys changes no attention, so its gradient is rounding, which Adam makes as large as
any other."""
NUMBER = re.compile(r"-?\d[\d,]*\.\d+")
WORDED = {
    "advice",
    "findings",
    "hint",
    "message",
    "note",
    "notes",
    "problems",
    "reason",
    "title",
    "warnings",
    "what",
    "why",
}

TRAINING: Tree = {
    "steps": 40,
    "batch_tokens": 256,
    "seed": 1,
    "device": "cpu",
    "learning_rate": 0.01,
    "schedule": "constant",
    "warmup": 0,
    "validate_every": 20,
    "samples": 1,
    "decode": 4,
}
SLOW: Tree = {
    "learning_rate": 0.002
}  # else such a model amplifies how the kernels of a machine round
SIZES: Tree = {"width": 16, "heads": 2, "feed_forward": 32, "layers": 2, "dropout": 0.1}
BILSTM: Tree = {"kind": "bilstm", "embedding": 8, "hidden": 8}


def corpus(name: str, size: int, held_out: int = 12, **others: Any) -> Tree:
    """A built-in corpus for all three parts."""
    parts = {"train": size, "validation": held_out, "test": held_out}
    return {part: {"corpus": name, "size": count, **others} for part, count in parts.items()}


def recipe(
    task: str,
    data: Tree,
    tokenizer: Tree,
    model: Tree,
    *,
    training: Tree | None = None,
    **others: Any,
) -> Tree:
    parts = {"task": task, "data": data, "tokenizer": tokenizer, "model": model}
    return parts | {"training": TRAINING | (training or {})} | others


def table(*rows: tuple[object, ...]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


DATES = {
    "data": corpus("dates", 300),
    "tokenizer": {"kind": "character"},
    "training": {"steps": 80, "batch_tokens": 1024},
    "search": {"beam": 2, "max_length": 20},
}
TALES = {
    "data": corpus("tales-en", 60) | {"max_length": 40},
    "tokenizer": {"kind": "bpe", "vocabulary": 200},
}
KOREAN_TALES = corpus("tales-ko", 60) | {"max_length": 40}
WORDS = {"kind": "word", "vocabulary": 400}
PIECES = {"kind": "wordpiece", "vocabulary": 400}
BERT, GPT = {"kind": "bert", **SIZES}, {"kind": "gpt", **SIZES, "norm": "post"}
SIMILAR = [
    (f"{number} {one}", f"{number} {other}", score)
    for number in ("한", "two", "세", "four")
    for one, other, score in [
        ("고양이", "고양이가 잔다", 4.5),
        ("dogs run", "개가 달린다", 3.5),
        ("red car", "물고기", 0.5),
        ("새", "새", 5),
    ]
]
CHOICES = [
    (
        f"{who} is {place}.",
        *(("she cooks", "it flies") if label == 0 else ("it barks", "he swims")),
        label,
    )
    for who in ("Anna", "John", "미나", "Tom")
    for place, label in (("in the kitchen", 0), ("부엌에", 0), ("at the lake", 1), ("호수에", 1))
]
QUARTERS = {"validation": {"split": 0.25}, "test": {"split": 0.25}}
NAMES = corpus("names-en", 120) | {"words": "punctuation"}
PORTRAITS = corpus("portraits-en", 120) | {"max_length": 96}
STORY = "Mary went to the kitchen.\nJohn walked to the garden.\nMary moved to the office.\n"

RUNS: dict[str, dict[str, Tree]] = {
    "translation": {
        "bahdanau": recipe(
            "translation",
            **DATES,
            model={"kind": "bahdanau", "embedding": 32, "hidden": 32, "attention": 16},
        ),
        "transformer": recipe(
            "translation",
            **DATES | {"training": {"steps": 20, "batch_tokens": 1024, **SLOW}},
            model={
                "kind": "transformer",
                "width": 32,
                "heads": 2,
                "feed_forward": 64,
                "encoder_layers": 2,
                "decoder_layers": 1,
                "norm": "post",
            },
        ),
        "luong": recipe(
            "translation",
            corpus("phrases-en-ko", 100, 6),
            {"kind": "bpe", "vocabulary": 600, "joint": False},
            {"kind": "luong", "embedding": 16, "hidden": 16, "layers": 1, "dropout": 0.1},
            training={"steps": 4, "validate_every": 4, "decode": 0},
        ),
    },
    "summarization": {
        "run": recipe(
            "summarization",
            corpus("headlines", 120, 8),
            WORDS,
            {"kind": "bahdanau", "embedding": 16, "hidden": 16, "attention": 16},
            search=DATES["search"],
            evaluation={"tokenize": "words"},
        ),
    },
    "captioning": {
        "run": recipe(
            "captioning",
            corpus("shapes", 40, 8),
            {"kind": "word"},
            {
                "kind": "captioner",
                "preset": "tiny",
                "images": {"size": 32},
                "channels": [4, 8],
                "width": 16,
            },
            training={"steps": 12, "validate_every": 12, "batch_tokens": 1024},
            search=DATES["search"],
        ),
    },
    "language_modeling": {
        "gpt": recipe("language_modeling", model=GPT, **TALES),
        "lstm_lm": recipe(
            "language_modeling", model={"kind": "lstm_lm", "embedding": 16, "hidden": 16}, **TALES
        ),
        "elmo": recipe(
            "language_modeling",
            TALES["data"],
            WORDS,
            {"kind": "elmo", "width": 16, "hidden": 16, "filters": 64, "layers": 2},
            training={"steps": 10},
        ),
        "korean": recipe(
            "language_modeling",
            KOREAN_TALES,
            {"kind": "byte", "vocabulary": 300},
            GPT | {"norm": "pre"},
            training={"steps": 10},
            search={"sample": True, "beam": 1, "max_length": 20, "seed": 3},
        ),
    },
    "masked_language_modeling": {
        "bert": recipe("masked_language_modeling", KOREAN_TALES, PIECES, BERT),
        "other": recipe(
            "masked_language_modeling",
            KOREAN_TALES | {"whole_words": "eojeol"},
            PIECES,
            BERT,
            training={"seed": 2},
        ),
        "tuned": {
            "task": "classification",
            "data": corpus("reviews-ko", 60),
            "model": {"kind": "bert"},
            "training": TRAINING | {"init": "bert", "steps": 10, "validate_every": 10},
        },
    },
    "story_answering": {
        name: {
            "task": "story_answering",
            "data": corpus(f"stories-{language}", 100, about="where"),
            "model": {
                "kind": "memory_network",
                "width": 8,
                "hops": 2,
                "sentences": 12,
                "restarts": 2,
            },
            "training": {"epochs": epochs, "seed": 1, "device": "cpu", "samples": 0},
        }
        for name, language, epochs in (("run", "en", 8), ("other", "en", 2), ("korean", "ko", 4))
    },
    "classification": {
        "bilstm": recipe(
            "classification", corpus("reviews-ko", 120), {"kind": "bpe", "vocabulary": 400}, BILSTM
        ),
        "cnn": recipe(
            "classification",
            corpus("reviews-ko", 120),
            {"kind": "character"},
            {"kind": "cnn", "embedding": 8, "maps": 8},
        ),
        "gpt": recipe(
            "classification", corpus("reviews-en", 60), WORDS, GPT, training={"steps": 10}
        ),
    },
    "regression": {
        name: recipe(
            "regression",
            {"train": {"file": "pairs.csv", "first": 0, "second": 1, "label": 2}, **QUARTERS},
            {"kind": "character"},
            model,
            training=training,
        )
        for name, model, training in (("bilstm", BILSTM, {}), ("bert", BERT, SLOW))
    },
    "multiple_choice": {
        name: recipe(
            "multiple_choice",
            {
                "train": {"file": "choices.csv", "text": 0, "choices": [1, 2], "label": 3},
                **QUARTERS,
            },
            {"kind": "character"},
            model,
        )
        for name, model in (("bilstm", BILSTM), ("bert", BERT))
    },
    "tagging": {
        "bilstm": recipe("tagging", NAMES, WORDS, BILSTM, training={"learning_rate": 0.05}),
        "bert": recipe("tagging", NAMES, PIECES, BERT),
        "korean": recipe(
            "tagging",
            corpus("names-ko", 120) | {"words": "characters"},
            {"kind": "character"},
            BILSTM,
            training={"learning_rate": 0.05},
        ),
    },
    "question_answering": {
        "bert": recipe("question_answering", PORTRAITS, WORDS, BERT),
        "bilstm": recipe("question_answering", PORTRAITS, WORDS, BILSTM),
        "korean": recipe(
            "question_answering",
            corpus("portraits-ko", 60) | {"max_length": 96},
            {"kind": "character"},
            BERT,
            training={"steps": 10},
            evaluation={"script": "korquad"},
        ),
    },
}
"""By task: the recipes in the folder where the commands are run."""
FILES = {
    "translation": {
        "dates.txt": "5 March 2021\n\n2021년 3월 5일\n",
        "pairs.tsv": "source\ttarget\n5 March 2021\t2021-03-05\n2020년 1월 2일\t2020-01-02\n",
    },
    "story_answering": {"story.txt": STORY, "asked.txt": STORY + "Where is Mary?\n"},
    "classification": {
        "texts.txt": "재미있다.\n\n지루했다.\n",
        "labelled.csv": table(
            ("text", "label"), ("재미있는 영화", "긍정"), ("지루한 영화", "부정")
        ),
    },
    "regression": {"pairs.csv": table(*SIMILAR)},
    "multiple_choice": {"choices.csv": table(*CHOICES)},
}
"""Other files there."""


def numbers_in(value: Any) -> Iterator[float]:
    """All numbers within a JSON value, but for volatile ones."""
    if isinstance(value, dict):
        value = [part for key, part in value.items() if not VOLATILE.search(key)]
    if isinstance(value, list):
        for part in value:
            yield from numbers_in(part)
    elif isinstance(value, int | float):
        yield float(value)


def rounded(number: float) -> float:
    return float(f"{number:.5g}")


def summarised(values: list[Any]) -> Tree:
    """A long list: shape or length, what numbers are in it (mean, and mean weighted by place), a
    hash of its texts."""
    numbers = np.array([number for number in numbers_in(values) if math.isfinite(number)])
    summary: Tree = {"length": len(values), "numbers": len(numbers)}
    if len(numbers):
        places = np.linspace(0.0, 1.0, len(numbers))
        summary |= {"mean": rounded(numbers.mean()), "weighted": rounded((numbers * places).mean())}
    try:
        summary["shape"] = list(np.array(values, dtype=float).shape)
    except (TypeError, ValueError):
        summary["first"] = [digest(value) for value in values[:3]]
    else:
        summary["first"] = [rounded(number) for number in numbers[:4]]
    if all(isinstance(value, str) for value in values):
        summary["hash"] = hashlib.sha256("\n".join(values).encode()).hexdigest()[:12]
    return summary


def digest(value: Any, key: str = "") -> Any:
    """What is recorded of a JSON value."""
    if VOLATILE.search(key) or (key in WORDED and value):
        return f"<{type(value).__name__}>"
    if isinstance(value, dict):
        # Keys with spaces are sentences for people: only their place counts.
        names = [f"#{place}" if " " in name else name for place, name in enumerate(value)]
        return {
            name: digest(part, part_key)
            for name, (part_key, part) in zip(names, value.items(), strict=True)
        }
    if isinstance(value, list):
        most_numbers = 40 if any(isinstance(part, dict) for part in value) else 8
        long = len(value) > 40 or sum(1 for _ in numbers_in(value)) > most_numbers
        return summarised(value) if long else [digest(part) for part in value]
    if isinstance(value, float):
        return rounded(value) if math.isfinite(value) else str(value)
    return value


def differences(expected: Any, found: Any, place: str = "") -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(expected.keys() | found.keys()):
            missing = "<no such key>"
            yield from differences(
                expected.get(key, missing), found.get(key, missing), f"{place}.{key}"
            )
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, pair in enumerate(zip(expected, found, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif isinstance(expected, float) and isinstance(found, float):
        if not math.isclose(expected, found, rel_tol=1e-3, abs_tol=1e-4):
            yield f"{place}: {expected} -> {found}"
    elif isinstance(expected, str) and isinstance(found, str) and NUMBER.search(expected):
        worded = NUMBER.sub("#", expected) == NUMBER.sub("#", found)
        if not worded or not np.allclose(numbers_of(expected), numbers_of(found), rtol=1e-3):
            yield f"{place}: {expected!r} -> {found!r}"
    elif expected != found or type(expected) is not type(found):
        yield f"{place}: {expected!r} -> {found!r}"


def numbers_of(text: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(text)]


def answer(command: str) -> Tree:
    """What a command ends with and prints; for one that writes JSON to a file, that too."""
    words = shlex.split(command)
    result = regard(*words, "--json")
    if result.code != 0:
        assert "Traceback" not in result.err
        return {
            "code": result.code,
            "out": result.out,
            "complains": result.err.startswith("regard: "),
        }
    if words == ["recipes"]:  # what each is about is worded
        return {"code": 0, "out": sorted(result.json)}
    recorded: Tree = {"code": 0, "out": [digest(line) for line in result.jsons]}
    for word in words:
        if word.endswith((".json", ".jsonl")):
            text = Path(word).read_text(encoding="utf-8")
            lines = [text] if word.endswith(".json") else text.splitlines()
            recorded[word] = digest([json.loads(line) for line in lines])
    return recorded


def draw(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name, place, colour in (("blue", 2, (0, 0, 255)), ("red", 14, (255, 0, 0))):
        picture = image.new("RGB", (32, 32), (255, 255, 255))
        picture.paste(colour, (place, place, place + 10, place + 10))
        picture.save(folder / f"{name}.png")


@pytest.mark.engine  # which draws dropout in its own order
@pytest.mark.parametrize("name", RUNS)
def test_no_verb_answers_differently(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "captioning":
        draw(tmp_path)
    if name == "masked_language_modeling":
        pytest.importorskip("transformers")
    recipes = {
        f"{run}.yaml": json.dumps(tree, ensure_ascii=False) for run, tree in RUNS[name].items()
    }
    for file_name, text in (recipes | FILES.get(name, {})).items():
        write(tmp_path / file_name, text)
    file = FOLDER / f"{name}.json"
    found = {command: answer(command) for command in json.loads(file.read_text(encoding="utf-8"))}
    if os.environ.get("REGARD_SNAPSHOTS") == "write":
        lines = [
            f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(found[key], ensure_ascii=False)}"
            for key in found
        ]
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    changed = list(
        differences(json.loads(file.read_text(encoding="utf-8")), json.loads(json.dumps(found)))
    )
    assert not changed, f"{len(changed)} changes, recorded -> now:\n" + "\n".join(changed[:40])
