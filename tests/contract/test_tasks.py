"""A task is composed of parts, not inherited."""

from abc import ABC
from typing import Any

import pytest

from regard.tasks import TASKS, Task
from regard.tasks.task import Metrics, Network
from regard.tasks.written import WrittenTexts
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers
from task_cases import DATA, make_task

PARTS = ("inputs", "encoding", "network", "answers", "metrics", "views")


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_two_levels_deep(name: str) -> None:
    assert TASKS[name].__bases__ == (Task,)
    assert Task.__bases__ == (ABC,)


@pytest.mark.parametrize("name", DATA)
def test_a_task_names_its_parts_and_they_are_no_deeper(name: str) -> None:
    tokenizer = Tokenizer.train(TokenizerConfig(kind="wordpiece", vocabulary=60), ["a b c"] * 3)
    sides = Tokenizers(dict.fromkeys(TASKS[name].vocabularies, tokenizer))
    kinds = {"language_modeling": "gpt", "masked_language_modeling": "bert", "translation": "rnn"}
    model = {"kind": kinds.get(name, "bilstm"), "preset": "tiny"}
    labels = {"classification": ["x", "y"], "tagging": ["B-X", "O"]}
    sections = {"head": {"labels": labels[name]}} if name in labels else {}
    task: Any = make_task(name, sides, model=model, **sections)
    for part in PARTS:
        assert levels(type(getattr(task, part))) <= 2, part
    assert isinstance(task.network, Network)
    assert isinstance(task.metrics, Metrics)
    assert (task.views.written is None) is (TASKS[name].writes is None)
    assert task.views.written is None or isinstance(task.answers, WrittenTexts)


def levels(part: type) -> int:
    """The classes of tasks/ and data/ from a part up."""
    return sum(cls.__module__.startswith("regard.") for cls in part.__mro__)
