"""Questions about stories: from bAbI's files, JSON Lines and the package's own corpus to
answers."""

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from command_line import fail, refusal, succeed, write
from places import SHARED
from regard.data.corpora import generate
from regard.data.example import Example
from regard.data.readers import open_corpus
from regard.data.stories import MAX_SENTENCES, Question, Stories, questions_in
from regard.errors import DataError
from regard.recipes.recipe import recipe_of
from regard.runs.checkpoints import load_weights
from regard.tasks.story_answering import StoryAnswering
from regard.views.attention import PredictedToken
from regard.views.report import Cell
from regard.views.story_attention import StoryAttention
from task_cases import rows_of

BABI = """\
1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary? \tbathroom\t1
4 Daniel went back to the hallway.
5 Where is Daniel? \thallway\t4
1 Sandra got the apple.
2 Sandra got the milk.
3 What is Sandra carrying?\tapple,milk\t1 2
"""
REAL = SHARED / "babi_en"
RECIPE: dict[str, Any] = {
    "task": "story_answering",
    "data": {
        "train": {"corpus": "stories-en", "about": "where", "size": 800},
        "test": {"corpus": "stories-en", "about": "where", "size": 300},
    },
    "model": {
        "kind": "memory_network",
        "hops": 2,
        "restarts": 2,
        "linear_start": 3,
        "sentences": 12,
    },
    "training": {"epochs": 20, "device": "cpu", "best": "error", "samples": 1},
}


def read(path: Path, **keys: str) -> list[tuple[str, ...]]:
    """The rows without the name of the task, which is that of the file."""
    return [
        row.values[:-1]
        for row in rows_of(open_corpus(Stories(file=path.name, **keys), path.parent))
    ]


def recipe_file(folder: Path, **changes: Any) -> Path:
    return write(folder / "recipe.yaml", json.dumps({**RECIPE, **changes}))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    """A run that has learned where people are, through the command line, in seconds."""
    folder = tmp_path_factory.mktemp("stories")
    succeed("train", recipe_file(folder), "--out", folder / "run", "--json")
    return folder / "run"


def test_babi_lines_by_hand(tmp_path: Path) -> None:
    rows = read(write(tmp_path / "qa.txt", BABI))
    opening = "Mary moved to the bathroom.\nJohn went to the hallway."
    assert rows == [
        (opening, opening, "Where is Mary?", "bathroom", "0", "2"),
        (
            opening,
            f"{opening}\nDaniel went back to the hallway.",
            "Where is Daniel?",
            "hallway",
            "2",
            "3",
        ),
        (
            *["Sandra got the apple.\nSandra got the milk."] * 2,
            "What is Sandra carrying?",
            "apple,milk",
            "0 1",
            "2",
        ),
    ]


def test_jsonl_stories(tmp_path: Path) -> None:
    lines = [
        {
            "story": ["Mary left.", "John came."],
            "question": "Who left?",
            "answer": "Mary",
            "facts": [1],
        },
        {"story": "Mary left. John came.", "question": "Who came?", "answer": "John"},
        {"story": "Mary left. John came.", "question": "How many?", "answer": 2},
    ]
    text = "Mary left.\nJohn came."
    path = write(tmp_path / "qa.jsonl", "\n".join(map(json.dumps, lines)))
    assert read(path) == [
        (text, text, "Who left?", "Mary", "0", "2"),
        (text, text, "Who came?", "John", "-", "2"),
        (text, text, "How many?", "2", "-", "2"),
    ]
    named = write(
        tmp_path / "named.jsonl", json.dumps({"t": "Mary left.", "q": "Who left?", "a": "Mary"})
    )
    assert read(named, story="t", question="q", answer="a")[0][3] == "Mary"


def test_files_of_a_pattern_are_tasks_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        write(tmp_path / f"qa{number}_some-facts_train.txt", BABI)
    reader = open_corpus(Stories(file="qa*_train.txt"), tmp_path)
    found = [(row.values[-1], reader.where(row.line)) for row in rows_of(reader)]
    tasks = ("qa1_some-facts", "qa2_some-facts", "qa10_some-facts")
    assert found == [(task, f"{task}_train.txt:{line}") for task in tasks for line in (3, 5, 8)]


def test_a_story_of_ten_thousand_sentences_keeps_the_last(tmp_path: Path) -> None:
    told = [f"{number} Mary went to room{number}." for number in range(1, 10_001)]
    lines = [*told, "10001 Where is Mary?\troom10000\t10000 1"]
    [row] = read(write(tmp_path / "qa.txt", "\n".join(lines)))
    assert row[1].split("\n") == [
        f"Mary went to room{number}." for number in range(10_001 - MAX_SENTENCES, 10_001)
    ]
    assert row[4:] == (str(MAX_SENTENCES - 1), "10000")  # the fact that is forgotten is left out


BAD = {
    "Mary moved.\n2 Where is Mary?\tgarden\t1\n": "qa.txt:1: the line does not begin with a number",
    "1 Mary moved.\n3 Where is Mary?\tgarden\t1\n": "qa.txt:2: line number 3 follows 1",
    "1 Mary moved.\n2 John moved.\n1 Mary sat.\n2 "
    "Where?\thall\t1\n": "qa.txt:1: the story has no question",
    "1 Mary moved.\n2 Where?\thall\t1\n1 Mary sat.\n": "qa.txt:3: the story has no question",
    "1 Mary moved.\n2 Where is Mary?\tthe "
    "garden\t1\n": "qa.txt:2: the answer 'the garden' has 2 words",
    "1 Mary moved.\n2 Where is Mary?\t\t1\n": "qa.txt:2: the question has no answer",
    "1 Mary moved.\n2 Where is Mary？\n": "qa.txt:2: the question has no answer",
    "1 Where is Mary?\tgarden\t1\n": "qa.txt:1: there is no sentence before the question",
    "1 Mary moved.\n2 Where is "
    "Mary?\tgarden\t2\n": "qa.txt:2: the supporting fact '2' is not the number",
    "1 Mary moved.\n2 Where is "
    "Mary?\tgarden\tone\n": "qa.txt:2: the supporting fact 'one' is not the number",
    "1 Mary moved.\n2 Where?\tgarden\t1\tmore\n": "qa.txt:2: the question line has 4 fields",
    '{"story": ["Mary left."], "question": "Who?", "answer": "my '
    'aunt"}': "qa.jsonl:1: the answer 'my aunt' has 2",
    '{"story": [], "question": "Who?", "answer": "Mary"}': "qa.jsonl:1: the story is empty",
    '{"story": ["A.", " "], "question": "Who?", "answer": '
    '"B"}': "qa.jsonl:1: sentence 2 of the story is empty",
    '{"story": "Mary left.", "question": " ", "answer": '
    '"Mary"}': "qa.jsonl:1: the question is empty",
    '{"story": "Mary left.", "answer": "Mary"}': "qa.jsonl:1: there is no column 'question'",
    '{"story": "Mary left.", "question": "Who?", "answer": "Mary", "facts": '
    "[2]}": "qa.jsonl:1: the facts are [2]",
    '{"story": "Mary left.", "question": "Who?", "answer": "Mary", "facts": '
    "[true]}": "qa.jsonl:1: the facts are [tr",
    '{"story": 7, "question": "Who?", "answer": '
    '"Mary"}': "qa.jsonl:1: the column 'story' holds 7, not a string",
    '{"story": "A left.", "question": "Who?", "answer": ["A", '
    '"B"]}': "qa.jsonl:1: the column 'answer' holds "
    '["A", "B"], not a string (an answer is one word; several go with commas',
}


@pytest.mark.parametrize(("content", "expected"), BAD.items(), ids=BAD.values())
def test_malformed_stories_are_named_with_their_line(
    tmp_path: Path, content: str, expected: str
) -> None:
    with pytest.raises(DataError) as error:
        read(write(tmp_path / expected.partition(":")[0], content))
    assert str(error.value).startswith(expected)


MANY = """\
1 Mary went to the kitchen.
2 Where is Mary?\tkitchen\t1
3 Where is Mary?\tthe kitchen\t1
4 Where is Mary?
5 John went to the garden.
6 Where is John?\tgarden\t9
7 Where is John?\tgarden\t5
1 Mary went to the garden.
1 Mary went to the office.
3 John went to the garden.
4 Where is John?\tgarden\t3
5 Where is Mary?\toffice\t1
1 John went to the hallway.
2 Where is John?\thallway\t1
Mary sat.
1 Sandra went to the hallway.
2 Where is Sandra?\thallway\t1
"""
"""Four questions that can be read (lines 2, 7, 14 and 17), five that cannot, and two faults without
a question."""
WRONG = [
    "3: the answer 'the",
    "4: the question has no answer",
    "6: the supporting fact '9'",
    "8: the story has no q",
    "10: line number 3 follows 1",
    "15: the line does not begin",
]


def test_all_that_is_wrong_with_stories_is_told_at_once(tmp_path: Path, run: Path) -> None:
    """A line that cannot be read is told once, however many questions come after it; `evaluate`
    says the same."""
    many = write(tmp_path / "many.txt", MANY)
    recipe = recipe_file(tmp_path, data={"train": {"file": "many.txt"}, "bad_lines": "error"})
    for messages, name in (
        (fail("check", recipe), "many.txt"),
        (fail("evaluate", run, "--file", many), str(many)),
    ):
        assert len(messages) == len(WRONG)
        for message, expected in zip(messages, WRONG, strict=True):
            assert message.startswith(f"{name}:{expected}")
    lines = [
        {"story": "Mary left.", "question": "Who?", "answer": answer}
        for answer in ("my aunt", "Mary", "a b")
    ]
    write(tmp_path / "many.jsonl", "\n".join([*map(json.dumps, lines), "nonsense"]))
    messages = fail(
        "check", recipe_file(tmp_path, data={"train": {"file": "many.jsonl"}, "bad_lines": "error"})
    )
    assert [message.partition(": ")[0] for message in messages] == [
        f"many.jsonl:{line}" for line in (1, 3, 4)
    ]


def test_bad_questions_are_dropped_and_counted_where_that_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "many.txt", MANY)
    told = [
        {"story": [one], "question": "Who sat?", "answer": "Mary"} for one in ("", " ", "Mary sat.")
    ]
    write(tmp_path / "many.jsonl", "\n".join(map(json.dumps, told)))
    data = {
        "train": {"file": "many.txt"},
        "validation": {"file": "many.jsonl"},
        "bad_lines": "drop",
    }
    found = succeed("check", recipe_file(tmp_path, data=data), "--json").json["data"]
    assert [(split["read"], split["kept"]) for split in found["splits"].values()] == [
        (11, 4),
        (3, 1),
    ]
    assert found["findings"] == [
        "dropped 7 of 11 training questions: 7 that cannot be read (first: many.txt:3)",
        "dropped 2 of 3 validation questions: 2 that cannot be read (first: many.jsonl:1)",
    ]


@pytest.mark.parametrize(
    ("train", "expected"),
    [
        ({"file": "qa.csv"}, "stories cannot be read from a .csv"),
        ({"file": "no*.txt"}, "no file has a name of this pattern"),
        ({"file": "qa.txt"}, "there is no such file"),
        ({}, "name the stories"),
        ({"file": "qa.txt", "about": "where"}, "'about' needs"),
        ({"corpus": "stories-en", "prefix": "x"}, "stories have no 'prefix'"),
        (RECIPE["data"]["train"], "tokenizer.kind: answers are words"),
    ],
)
def test_bad_recipes_are_refused(tmp_path: Path, train: dict[str, Any], expected: str) -> None:
    write(tmp_path / "qa.csv", "a,b\n")
    tokenizer = {"tokenizer": {"kind": "bpe"}} if expected.startswith("tokenizer") else {}
    recipe = recipe_file(tmp_path, data={"train": train}, **tokenizer)
    assert expected in fail("train", recipe, "--out", tmp_path / "run")[0]


def prepared(folder: Path, model: dict[str, Any], **data: Any) -> Any:
    tree = {**RECIPE, "data": data, "model": {"kind": "memory_network", **model}}
    return StoryAnswering.prepare(recipe_of(tree), folder)


def test_batches_hold_the_story_as_it_stands(tmp_path: Path) -> None:
    write(tmp_path / "qa.txt", BABI)
    data = prepared(
        tmp_path, {"sentences": 2}, train={"file": "qa.txt"}, validation={"file": "qa.txt"}
    )
    batch = data.encoding.batch(data.validation, np.array([1, 2]))
    tokenizer = data.tokenizers["text"]
    told = [
        [" ".join(tokenizer.tokens([t for t in row if t])) for row in story]
        for story in batch.story_BSL.tolist()
    ]
    went, got = (
        ["john went to the hallway", "daniel went back to the hallway"],
        ["sandra got the apple", "sandra got the milk"],
    )
    assert told == [went, got]
    assert batch.times_BS.tolist() == [[2, 1], [2, 1]]
    assert tokenizer.tokens(batch.answers_B.tolist()) == ["hallway", "apple,milk"]
    assert [data.encoding.kept_facts(data.validation, row) for row in range(3)] == [
        (0,),
        (1,),
        (0, 1),
    ]
    assert data.train.where(0) == "qa.txt:3"


def test_a_share_for_validation_is_drawn_by_whole_stories(tmp_path: Path) -> None:
    data = prepared(
        tmp_path,
        {"sentences": 50},
        train={"corpus": "stories-en", "size": 400},
        validation={"split": 0.2},
    )
    rows = generate("stories-en", 400, 1, "train")
    opening = {(story, question): opening for opening, story, question, *_ in rows}
    train, held = (
        {opening[pair] for pair in zip(side.texts["story"], side.texts["question"], strict=True)}
        for side in (data.train, data.validation)
    )
    assert not train & held
    assert (
        len(data.train) + len(data.validation)
        == 400 - data.report.splits["train"].dropped["duplicate"].count
    )
    assert 0.1 < len(data.validation) / 400 < 0.3


def test_noise_and_linear_start_are_for_training_only(tmp_path: Path) -> None:
    model = {"sentences": 50, "time_noise": 0.1, "linear_start": 2}
    data = prepared(
        tmp_path, model, train={"corpus": "stories-en", "size": 100}, validation={"split": 0.2}
    )
    rows = np.arange(16)
    first, again, other = (data.train.batch(rows, 1, epoch) for epoch in (0, 0, 1))
    assert first.times_BS.tolist() == again.times_BS.tolist() != other.times_BS.tolist()
    assert [data.train.batch(rows, 1, epoch).linear for epoch in (0, 1, 2)] == [True, True, False]
    held = data.encoding.batch(data.validation, np.arange(4))
    assert not held.linear
    assert held.times_BS.max(1).values.tolist() == (held.times_BS > 0).sum(1).tolist()


def typed(*lines: str) -> list[Question]:
    return questions_in(
        [Example({"line": line}, f"line {number}") for number, line in enumerate(lines, 1)]
    )


def test_typed_stories_and_questions() -> None:
    [one] = typed("Mary went to the garden. John left. Where is Mary?")
    assert (one.story, one.question) == (
        ("Mary went to the garden.", "John left."),
        "Where is Mary?",
    )
    first, second = typed("Mary sat.", "Who sat?", "John sat too.", "Who sat too?")
    assert second.story == ("Mary sat.", "John sat too.")
    assert typed("Mary sat.", "Who sat?", "", "John sat.", "Who sat?")[1].story == ("John sat.",)
    whole = typed("Mary sat.\nWho sat?", "John sat.\nWho sat?")
    assert [one.story for one in whole] == [("Mary sat.",), ("John sat.",)]
    [korean] = typed("민수가 부엌으로 갔다. 민수는 어디에 있나요?")
    assert (korean.story, korean.question) == (("민수가 부엌으로 갔다.",), "민수는 어디에 있나요?")
    numbered = typed(*BABI.splitlines())
    expected = [("bathroom", (0,)), ("hallway", (2,)), ("apple,milk", (0, 1))]
    assert [(one.answer, one.facts) for one in numbered] == expected
    for one in (first, korean, *numbered):  # one text says it all
        again = typed(*one.text.split("\n"))[-1]
        assert dataclasses.replace(again, place="", numbers=()) == dataclasses.replace(
            one, place="", numbers=()
        )
    assert typed("3 apples fell.", "What fell?")[0].story == ("3 apples fell.",)
    [known] = typed("Mary slept. John left. Who left?\tJohn\t2")
    assert (known.story, known.answer, known.facts) == (("Mary slept.", "John left."), "John", (1,))


def test_it_learns_where_people_are(run: Path) -> None:
    found = succeed("evaluate", run, "--json").json
    assert found["questions"] == 300
    assert found["error"] <= 0.05  # guessing: about 0.83
    assert found["facts_found"] >= 0.9
    assert found["tasks"] == {"stories-en:where": found["error"]}
    train = succeed("evaluate", run, "--split", "train", "--json").json["error"]
    assert train <= 0.05, "measured without the noise and the linear start"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    # the best restart answers
    for line in (line for line in lines if line["event"] == "validation"):
        assert line["error"] == line["errors"][line["restart"] - 1] == min(line["errors"])


def test_predict_from_arguments_files_and_standard_input(run: Path, tmp_path: Path) -> None:
    text = "Mary went to the kitchen. John walked to the garden. Where is Mary?"
    [found] = succeed("predict", run, text, "--json").jsons
    assert (found["output"], found["sentences"], found["remembered"]) == ("kitchen", 2, 2)
    assert found["probabilities"]["kitchen"] > 0.5
    assert list(found["probabilities"].values()) == sorted(
        found["probabilities"].values(), reverse=True
    )
    told = write(tmp_path / "story.txt", "Mary went to the kitchen.\nJohn walked to the garden.\n")
    assert (
        succeed("predict", run, "--story", told, "Where is Mary?", "Where is John?").out
        == "kitchen\ngarden\n"
    )
    assert [one.output for one in regard.predict(run, "Where is John?", story=told)] == ["garden"]  # type: ignore[attr-defined]
    piped = "Where is John?\nWhere is Mary?\n"
    assert succeed("predict", run, "--story", told, stdin=piped).out == "garden\nkitchen\n", (
        "on standard input"
    )
    [message, _] = fail("predict", run, "--story", told, stdin="Where is John?\nWhere is Xerxes?\n")
    assert message.startswith("standard input:2: the word 'Xerxes' is unknown")
    lines = (
        "Mary went to the kitchen.\nWhere is Mary?\nMary walked to the office.\nWhere is Mary?\n"
    )
    told = write(tmp_path / "own.txt", f"{lines}John went to the garden.\n")
    assert succeed("predict", run, "--story", told).out == "kitchen\noffice\n", (
        "its own questions, where none is asked"
    )
    assert succeed("predict", run, "--story", told, stdin=piped).out == "kitchen\noffice\n", (
        "nor is one waited for"
    )
    assert succeed("predict", run, "--story", told, "Where is John?").out == "garden\n", (
        "else what is asked alone"
    )
    assert refusal("predict", run, "--story", told, "Mary sat.").startswith(
        f"{told}:5, input 1: there is no question"
    )
    assert succeed("predict", run, stdin=lines).out == "kitchen\noffice\n"
    assert (
        succeed("predict", run, "--file", write(tmp_path / "typed.txt", lines)).out
        == "kitchen\noffice\n"
    )
    likeliest = succeed("predict", run, "--nbest", 3, text).out.splitlines()
    assert likeliest[0].endswith("\tkitchen")
    assert len(likeliest) == 3


def test_a_long_story_is_forgotten_but_for_its_end_and_that_is_said(run: Path) -> None:
    long = " ".join(["Mary went to the kitchen."] + ["John walked to the garden."] * 99)
    [found] = succeed("predict", run, f"{long} Where is John?", "--json").jsons
    assert (found["output"], found["sentences"], found["remembered"]) == ("garden", 100, 12)
    result = succeed("predict", run, f"{long} Where is John?")
    assert (result.out, result.err) == (
        "garden\n",
        "note: the memory holds the last 12 of the story's 100 sentences\n",
    )
    assert succeed("predict", run, "John walked to the garden. Where is John?").err == ""
    assert (
        "88 earlier sentences are forgotten"
        in succeed("explain", run, f"{long} Where is John?").out
    )


def told_of_john(sentences: int) -> str:
    lines = [f"{number} John walked to the garden." for number in range(1, sentences + 1)]
    return "\n".join([*lines, f"{sentences + 1} Where is John?\tgarden\t{sentences}\n"])


def test_stories_longer_than_the_memory_are_counted(run: Path, tmp_path: Path) -> None:
    told = write(tmp_path / "told.txt", told_of_john(12) + told_of_john(13) + told_of_john(10_000))
    rest = (
        "are about stories longer than the memory, which reads only their last 12 "
        f"sentences (first: {told}:27)"
    )
    data = {"train": {"file": str(told)}, "validation": {"corpus": "stories-en", "size": 5}}
    assert (
        f"2 of 3 training questions {rest}"
        in succeed("check", recipe_file(tmp_path, data=data)).out
    )
    assert (
        succeed("evaluate", run, "--file", told, "--json").json["memory"]
        == f"2 of 3 questions {rest}"
    )
    short = write(tmp_path / "short.txt", told_of_john(12))
    assert "memory" not in succeed("evaluate", run, "--file", short, "--json").json


def test_signs_of_full_width_are_no_part_of_a_word(run: Path) -> None:
    plain = "John went to the garden. Mary went to the kitchen. Where is Mary?"
    texts = [
        f"John went to the garden{first} Mary{second} went to the kitchen. Where is Mary{asked}"
        for first, second, asked in ("。，？", "！、？", "。；?", ".：？", "。．？")
    ]
    expected, *found = succeed("predict", run, "--json", stdin="\n\n".join([plain, *texts])).jsons
    for one in found:
        assert one["probabilities"] == expected["probabilities"]
        assert one["sentences"] == expected["sentences"] == 2


def test_objects_are_questions_as_in_training(run: Path, tmp_path: Path) -> None:
    """Each with a story of its own, whatever its sentences look like; an answer is not needed."""
    mary = {
        "story": ["Mary went to the kitchen.", "John walked to the garden."],
        "question": "Where is Mary?",
    }
    john = {
        "story": "Mary went to the kitchen. John walked to the garden.",
        "question": "Where is John",
    }
    content = f"{json.dumps(mary | {'answer': 'kitchen', 'facts': [1]})}\n\n{json.dumps(john | {'answer': None})}\n"
    path = write(tmp_path / "q.jsonl", content)
    assert succeed("predict", run, "--file", path).out == "kitchen\ngarden\n"
    assert succeed("predict", run, stdin=content).out == "kitchen\ngarden\n"
    assert succeed("predict", run, json.dumps(mary)).out == "kitchen\n"
    assert succeed("predict", run, "--story", path, "Where is Mary?").out == "kitchen\n", (
        "asked about the last story"
    )
    found = succeed("predict", run, "--file", path, "--json").jsons
    asked = [(json.loads(one["input"])["question"], one["sentences"]) for one in found]
    assert asked == [("Where is Mary?", 2), ("Where is John", 2)]
    story = ["Mary went to the garden. John left.", "1 John went to the kitchen."]
    [one] = typed(
        json.dumps({"story": story, "question": "Where is Mary?", "answer": "garden", "facts": [2]})
    )
    assert (one.story, one.answer, one.facts) == (tuple(story), "garden", (1,))
    assert typed(one.text) == [dataclasses.replace(one, place="line 1")]


def test_objects_are_read_by_the_keys_of_the_recipe(tmp_path: Path) -> None:
    lines = [
        {"t": f"{who} went to the {where}.", "q": f"Where is {who}?", "a": where}
        for who in ("Mary", "John")
        for where in ("kitchen", "garden")
    ]
    path = write(tmp_path / "own.jsonl", "\n".join(map(json.dumps, lines)))
    named = {"file": "own.jsonl", "story": "t", "question": "q", "answer": "a"}
    short = {"epochs": 1, "device": "cpu", "samples": 0}
    recipe = recipe_file(tmp_path, data={"train": named, "validation": named}, training=short)
    succeed("train", recipe, "--out", tmp_path / "run", "--json")
    found = succeed("predict", tmp_path / "run", "--file", path, "--json").jsons
    assert [json.loads(one["input"])["story"] for one in found] == [[line["t"]] for line in lines]
    assert succeed("predict", tmp_path / "run", "--story", path, "--json").jsons == found
    assert succeed("explain", tmp_path / "run", "--story", path, "--json").json["sentences"] == [
        lines[-1]["t"]
    ]
    other = write(
        tmp_path / "other.jsonl", '{"story": "Mary went.", "question": "Where is Mary?"}\n'
    )
    for verb, option in (("predict", "--file"), ("predict", "--story"), ("explain", "--story")):
        assert fail(verb, tmp_path / "run", option, other)[0].startswith(
            f"{other}:1: there is no column 't'"
        )


def test_what_cannot_be_answered_is_skipped_where_that_is_asked_for(
    run: Path, tmp_path: Path
) -> None:
    """A story without a question, a question without a story, a broken object: each in its
    place."""
    lines = (
        "Mary went to the kitchen.\nWhere is Mary?\n\nJohn sat.\n\nWhere is John?\n\nJohn "
        "went to the garden.\n"
    )
    text = write(tmp_path / "some.txt", f"{lines}Where is John?\n")
    messages = fail("predict", run, "--file", text)
    assert messages[0].startswith(f"{text}:4: the story has no question")
    assert messages[1].startswith(f"{text}:6: there is no story before the question")
    assert "--skip-bad" in messages[2]
    for given in ({"stdin": text.read_text()}, {}):
        found = succeed("predict", run, "--skip-bad", *([] if given else ["--file", text]), **given)
        assert found.out == "kitchen\n\n\ngarden\n"
        assert "skipped 2 of 4 inputs" in found.err
    good = '{"story": "Mary went to the kitchen.", "question": "Where is Mary?"}'
    bad = [
        "nonsense",
        '{"story": "Mary sat."}',
        '{"story": ["Mary sat.", ""], "question": "Who sat?"}',
        "more",
    ]
    objects = write(tmp_path / "some.jsonl", "\n".join([good, *bad, good]))
    messages = fail("predict", run, "--file", objects)
    assert [message.partition(": ")[0] for message in messages[:-1]] == [
        f"{objects}:{line}" for line in (2, 3, 4, 5)
    ]
    assert (
        succeed("predict", run, "--file", objects, "--skip-bad").out == "kitchen\n\n\n\n\nkitchen\n"
    )
    latin = (
        b"Mary went to the caf\xe9.\nWhere is Mary?\n\nJohn went to the garden.\nWhere is John?\n"
    )
    broken = write(tmp_path / "latin.txt", latin)
    assert succeed("predict", run, "--file", broken, "--skip-bad").out == "\ngarden\n"


def test_explain_shows_every_hop_and_judges_it_by_the_facts(run: Path, tmp_path: Path) -> None:
    story = (
        "1 Mary went to the kitchen.\n2 John walked to the garden.\n3 Where is Mary?\tkitchen\t1\n"
    )
    told = write(tmp_path / "story.txt", story)
    found = succeed("explain", run, "--story", told, "--json").json
    assert np.array(found["hops"]).shape == (2, 2)
    np.testing.assert_allclose(np.sum(found["hops"], axis=1) + found["nothing"], 1, rtol=2e-4)
    assert (found["output"], found["facts"], found["facts_found"]) == ("kitchen", [1], 1.0)
    assert 1 in found["looked"]
    text = succeed("explain", run, "--story", told).out
    assert "it agrees with the supporting facts (1)" in text or "in part" in text
    assert "1• Mary went to the kitchen." in text
    for suffix, inside in (
        (".svg", "hop 2"),
        (".html", "The likeliest answers"),
        (".json", '"facts"'),
    ):
        out = tmp_path / f"hops{suffix}"
        succeed("explain", run, "--story", told, "--out", out)
        assert inside in out.read_text(encoding="utf-8")
    wrong = write(tmp_path / "wrong.txt", story.replace("\t1\n", "\t2\n"))
    assert (
        "does not agree with the supporting facts (2)"
        in succeed("explain", run, "--story", wrong).out
    )
    assert "not known" in succeed("explain", run, "Mary went to the kitchen. Where is Mary?").out


def test_errors_are_told_task_by_task(run: Path, tmp_path: Path) -> None:
    question = "1 Mary went to the {}.\n2 Where is Mary?\t{}\t1\n"
    write(tmp_path / "qa1_right_test.txt", question.format("kitchen", "kitchen"))
    write(tmp_path / "qa2_wrong_test.txt", question.format("garden", "kitchen"))
    write(tmp_path / "qa10_unheard_test.txt", question.format("kitchen", "castle"))
    found = succeed("evaluate", run, "--file", f"{tmp_path}/qa*_test.txt", "--json").json
    assert found["tasks"] == {"qa1_right": 0.0, "qa2_wrong": 1.0, "qa10_unheard": 1.0}
    assert found["error"] == pytest.approx(2 / 3)
    wrong, right = (question.format(place, "kitchen") for place in ("garden", "kitchen"))
    found = succeed(
        "evaluate",
        run,
        "--file",
        write(tmp_path / "qa3_shares_test.txt", 2 * wrong + 8 * right),
        "--json",
    )
    assert found.json["error"] == found.json["tasks"]["qa3_shares"] == 0.2
    assert "0.2," in found.out, "and not what float32 makes of it"
    assert re.search(
        r"qa2_wrong +1\.0000", succeed("evaluate", run, "--file", f"{tmp_path}/qa*_test.txt").out
    )


def test_averaged_weights_are_those_of_the_restart_that_validates_best(tmp_path: Path) -> None:
    short = {"epochs": 3, "average": 3, "device": "cpu", "samples": 0, "best": "error"}
    recipe = recipe_file(
        tmp_path, training=short, data={"train": {"corpus": "stories-en", "size": 200}}
    )
    succeed("train", recipe, "--out", tmp_path / "run", "model.restarts=4", "--json")
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    [averaged] = [line for line in lines if line["event"] == "average"]
    assert (
        int(load_weights(tmp_path / "run" / "checkpoints" / "average")["winner"])
        == averaged["restart"] - 1
    )
    assert averaged["error"] == min(averaged["errors"])
    measured = succeed(
        "evaluate", tmp_path / "run", "--split", "validation", "--checkpoint", "average", "--json"
    ).json
    assert measured["error"] == pytest.approx(averaged["error"])


def test_a_hop_that_looked_at_nothing_says_so() -> None:
    weights = np.array([[0.2, 0.1], [0.1, 0.8]], dtype=np.float32)
    story = StoryAttention(
        ("Mary sat.", "John left."), (1, 2), 0, "Who sat?", 1, 1, weights, None, (1,)
    )
    assert story.conclusion() == (
        "hop 1 looked most at nothing (0.700), then at sentence 1; hop 2 looked most at "
        "sentence 2: "
        "it agrees with the supporting facts (2)."
    )
    table, maps = (
        story.report("Who sat? Mary", PredictedToken("Mary", 1.0, 1, ())).sections[0].parts
    )
    np.testing.assert_allclose(maps.maps[0].values.sum(0), 1, rtol=1e-6)
    assert [row[0] for row in table.rows] == [
        "  1  Mary sat.",
        "  2• John left.",
        Cell("     (nothing)", ours=True),
    ]
    assert table.rows[1] == ["  2• John left.", "0.100 ·", "0.800 ▓"]


@pytest.mark.skipif(not REAL.is_dir(), reason="the bAbI tasks are not here")
def test_real_tasks_are_read_whole() -> None:
    for part in ("train", "test"):
        reader = open_corpus(Stories(file=f"{REAL}/qa*_{part}.txt.xz"), Path())
        tasks = Counter(row.values[-1] for row in rows_of(reader))
        assert [*tasks.values()] == [1000] * 20
        assert [*tasks][::19] == ["qa1_single-supporting-fact", "qa20_agents-motivations"]
