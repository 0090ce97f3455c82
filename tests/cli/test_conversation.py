"""`regard chat --turns`: what was said before is read with each line, as in training."""

from pathlib import Path

import pytest

import regard
from command_line import fail, succeed, write
from regard.data.corpora import generate, joined_turns
from regard.inference.conversation import Conversation


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    """A model of two kinds of exchanges: the second answer repeats a word of the first turn."""
    folder = tmp_path_factory.mktemp("conversation")
    names = ("Anna", "Ben", "Carol", "David", "Emma", "Frank")
    rows = ["source\ttarget"]
    for name in names:
        rows += [f"i am {name}\thello {name}", f"hi | hello | i am {name}\thello {name}"]
        rows += [f"i am {name} | hello {name} | hi\thello"]
        rows += [f"i am {name} | hello {name} | who am i\tyou are {name}"]
        rows += [f"i am {name} | hello {name} | hi | hello | who am i\tyou are {name}"]
    rows += ["hi\thello", "who am i\ti do not know", "hi | hello | who am i\ti do not know"]
    write(folder / "pairs.tsv", "\n".join(rows) + "\n")
    recipe = """
        task: translation
        data:
          train: {file: pairs.tsv, source: source, target: target}
          validation: {file: pairs.tsv, source: source, target: target}
          max_length: 24
        tokenizer: {kind: word, joint: true}
        model: {kind: bahdanau, embedding: 32, hidden: 32, attention: 32, dropout: 0.0}
        training: {steps: 120, batch_tokens: 1000, learning_rate: 2.0e-2, warmup: 5, validate_every: 120}
        search: {beam: 1}
    """
    succeed("train", write(folder / "recipe.yaml", recipe), "--out", folder / "run", "--json")
    return folder / "run"


def test_an_answer_knows_what_was_said(run: Path) -> None:
    lines = "i am Emma\nhi\nwho am i\n\nwho am i\n"
    told = succeed("chat", run, "--turns", "2", stdin=lines).out.splitlines()
    assert [line.removeprefix("run: ") for line in told] == [
        "hello Emma",
        "hello",
        "you are Emma",
        "i do not know",  # after the empty line, nothing was said
    ]


def test_without_turns_each_line_is_alone(run: Path) -> None:
    told = succeed("chat", run, stdin="i am Emma\nwho am i\n").out.splitlines()
    assert told[-1].endswith("i do not know")


def test_the_oldest_turns_are_left_out(run: Path) -> None:
    """More than `turns` exchanges, and those for which data.max_length has no room."""
    conversation = Conversation(regard.load(run), turns=2)
    conversation.exchanges += [("a", "b"), ("c", "d"), ("e", "f")]
    assert conversation.source("  who   am i ") == "c | d | e | f | who am i"
    conversation.exchanges[1] = ("hi " * 20, "hello")
    assert conversation.source("who am i") == "e | f | who am i"
    conversation.forget()
    assert conversation.source("who am i") == "who am i"


def test_a_run_without_sources_has_no_turns(tmp_path: Path) -> None:
    recipe = """
        task: language_modeling
        data: {train: {corpus: tales-en, size: 20}, validation: {corpus: tales-en, size: 5}}
        model: {kind: lstm_lm, embedding: 8, hidden: 8, layers: 1}
        training: {steps: 1}
    """
    succeed("train", write(tmp_path / "r.yaml", recipe), "--out", tmp_path / "run", "--json")
    [message] = fail("chat", tmp_path / "run", "--turns", "2", stdin="a\n")
    assert message.startswith("--turns: a run of language_modeling does not answer")


@pytest.mark.parametrize("name", ["conversations-en", "conversations-ko"])
def test_the_last_turn_alone_does_not_tell_the_answer(name: str) -> None:
    """Of the questions for a fact about half can be answered, from a turn before."""
    rows = list(generate(name, 600, 1, "train"))
    answers: dict[str, set[str]] = {}
    for source, target in rows:
        answers.setdefault(source.split(" | ")[-1], set()).add(target)
    assert len([asked for asked, told in answers.items() if len(told) > 5]) == 6
    for source, target in rows:
        assert "{" not in source + target
        assert len(source.split(" | ")) % 2 == 1
    assert joined_turns([("a", "b")], "c") == "a | b | c"
