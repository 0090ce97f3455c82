"""`explain` of questions about stories: whose numbers the sentences have, one hop by hand, what may be asked."""

from __future__ import annotations

import math
import operator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard as api
from command_line import fail, succeed, write
from regard.models.memory_network import MemoryNetwork
from regard.views.explanation import Explanation, Options
from regard.views.steps import Worked

STORY = "Mary went to the kitchen.\nJohn walked to the garden.\nWhere is Mary?"
MODEL = {"kind": "memory_network", "width": 8, "hops": 2, "sentences": 12, "restarts": 2}
RECIPE = {
    "task": "story_answering",
    "data": {"train": {"corpus": "stories-en", "about": "where", "size": 100}},
    "model": MODEL,
    "training": {"epochs": 2, "device": "cpu", "samples": 0},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    folder = tmp_path_factory.mktemp("stories") / "run"
    api.train(RECIPE, out=folder, quiet=True)
    return folder


def test_sentences_are_numbered_as_the_user_numbers_them(run: Path, tmp_path: Path) -> None:
    """Of a long story the numbers go on from what is forgotten; of bAbI's lines, some of them questions, they are the
    lines' own."""
    told = write(tmp_path / "long.txt", "John walked to the garden.\n" * 40 + "Mary went to the kitchen.\n")
    found = succeed("explain", run, "--story", told, "Where is Mary?", "--json").json
    assert found["numbers"] == [*range(30, 42)]
    text = succeed("explain", run, "--story", told, "Where is Mary?").out
    assert " 41  Mary went to the kitchen." in text
    assert "  1  " not in text
    assert all(f"sentence {number}" in text for number in found["looked"])
    assert all(30 <= number <= 41 for number in found["looked"])
    lines = ["1 Mary went to the kitchen.", "2 Where is Mary?\tkitchen\t1", "3 Mary walked to the office.",
             "4 Where is Mary?\toffice\t3"]  # fmt: skip
    babi = write(tmp_path / "babi.txt", "\n".join(lines))
    found = succeed("explain", run, "--story", babi, "--json").json
    assert (found["numbers"], found["facts"]) == ([1, 3], [3])
    assert "3• Mary walked to the office." in succeed("explain", run, "--story", babi).out


def test_a_story_without_a_question_is_named_with_its_line(run: Path, tmp_path: Path) -> None:
    told = write(tmp_path / "told.txt", "Mary went to the kitchen.\nJohn walked to the garden.\n")
    for verb in ("predict", "explain"):
        assert fail(verb, run, "--story", told)[0].startswith(f"{told}:2: the story has no question")
    [message] = fail("explain", run, "--story", told, "Where is Xerxes?")
    assert message.startswith(f"{told}:2, input: the word 'Xerxes' is unknown")
    empty = write(tmp_path / "empty.txt", "\n\n")
    assert "there is no question" in fail("explain", run, "--story", empty)[0]


def test_a_story_in_jsonl_is_explained(run: Path, tmp_path: Path) -> None:
    """With the numbers that its facts count by; the last object of the file, or another question about it."""
    one = '{"story": ["Mary went to the kitchen.", "John walked to the garden."], "question": "Where is Mary?", %s}\n'
    told = write(tmp_path / "q.jsonl", one % '"facts": [1]' + one % '"answer": "kitchen", "facts": [2]')
    found = succeed("explain", run, "--story", told, "--json").json
    assert (found["question"], found["numbers"], found["facts"]) == ("Where is Mary?", [1, 2], [2])
    assert found["answer"] == "kitchen"
    assert found["hops"] == succeed("explain", run, STORY.replace("\n", " "), "--json").json["hops"]
    asked = succeed("explain", run, "--story", told, "Where is John?", "--json").json
    assert (asked["question"], asked["sentences"], asked["facts"]) == ("Where is John?", found["sentences"], None)
    broken = write(tmp_path / "broken.jsonl", one % '"facts": [3]')
    assert fail("explain", run, "--story", broken)[0].startswith(f"{broken}:1: the facts are [3]")


def test_one_of_several_questions_is_chosen_and_which_is_said(run: Path, tmp_path: Path) -> None:
    lines = ["1 Mary went to the kitchen.", "2 Where is Mary?\tkitchen\t1", "3 Mary walked to the office.",
             "4 Where is Mary?\toffice\t3"]  # fmt: skip
    babi = write(tmp_path / "babi.txt", "\n".join(lines))
    last = succeed("explain", run, "--story", babi, "--json")
    assert last.err == "note: the last of 2 questions is explained (--question 1 to 2 chooses)\n"
    assert (last.json["asked"], last.json["questions"]) == (2, 2)
    first = succeed("explain", run, "--story", babi, "--question", 1, "--json")
    assert (first.json["numbers"], first.json["answer"], first.json["asked"], first.err) == ([1], "kitchen", 1, "")
    chosen = succeed("explain", run, "--story", babi, "--question", 2, "--json")
    assert (chosen.json, chosen.err) == (last.json, "")
    asked = succeed("explain", run, "--story", babi, "Where is Mary?", "--json")
    assert (asked.json["sentences"], asked.err) == (last.json["sentences"], "")
    typed = succeed(
        "explain", run, "Mary went to the kitchen. Where is Mary? John left. Where is John?", "--question", 1
    )
    assert "Where is Mary? " in typed.out
    wrong = "--question: there is no question {} (allowed: 1 to 2)"
    assert [fail("explain", run, "--story", babi, "--question", n) for n in (0, 3)] == [
        [wrong.format(n)] for n in (0, 3)
    ]
    [message] = fail("explain", run, "--story", babi, "Where is Mary?", "--question", 1)
    assert message == "--question: it chooses one of the story's own questions (give it or INPUT, not both)"


def test_a_question_about_a_story_may_come_on_standard_input(run: Path, tmp_path: Path) -> None:
    """As for `predict`: where the file asks nothing itself, or where - says so."""
    told = write(tmp_path / "told.txt", "Mary went to the kitchen.\nJohn walked to the garden.\n")
    asked = succeed("explain", run, "--story", told, "Where is John?", "--json").json
    for arguments in ((), ("-",)):
        found = succeed("explain", run, "--story", told, *arguments, "--json", stdin="Where is John?\n")
        assert (found.json, found.err) == (asked, "")
    several = succeed("explain", run, "--story", told, "--json", stdin="Where is Mary?\nWhere is John?\n")
    assert several.json["question"] == "Where is John?"
    assert several.err == "note: the last of 2 questions is explained (--question 1 to 2 chooses)\n"
    own = write(tmp_path / "own.txt", STORY)
    piped = {"stdin": "Where is John?\n"}
    assert succeed("explain", run, "--story", own, "--json", **piped).json["question"] == "Where is Mary?"
    assert succeed("explain", run, "--story", own, "-", "--json", **piped).json["question"] == "Where is John?"
    first = succeed("explain", run, "--story", own, "-", "--question", 1, "--json", **piped)
    assert (first.json["question"], first.err) == ("Where is Mary?", "")
    [message] = fail("explain", run, "--story", told, stdin="Where is Xerxes?\n")
    assert message.startswith("standard input:1: the word 'Xerxes' is unknown")
    for arguments in (("-",), ("-", "Where is John?")):
        for verb in ("predict", "explain"):
            [message] = fail(verb, run, "--story", *arguments)
            assert message.startswith("--story: standard input is not read here (give a file; ")


def test_an_unknown_word_is_told_once_a_question(run: Path) -> None:
    [bill, again, way_out] = fail("predict", run, stdin="Bill went to the office.\nWhere is Bill?\nWhere is Mary?\n")
    assert bill.startswith("standard input:2: the word 'Bill' is unknown")
    assert again.startswith("standard input:3: the word 'Bill' is unknown")
    assert way_out.startswith("nothing was written")


def test_other_runs_are_asked_no_question(tiny_run: Path) -> None:
    [message] = fail("explain", tiny_run, "a b", "--question", 1)
    assert message == "--question: a run of translation reads no story (runs of story_answering do)"


def plain_hop(model: Any, batch: Any, sentences: int, hop: int) -> dict[str, Any]:
    """Hops 1 to `hop` of the paper's equations for the first question, in loops over words and sentences."""
    config, winner = model.config, int(model.winner)

    def said(ids: list[int], table: str) -> list[float]:
        words = [word for word in ids if word != 0]
        found = []
        for k in range(1, config.width + 1):
            weights = [2 * ((1 - j / len(words)) - k / config.width * (1 - 2 * j / len(words)))
                       for j in range(1, len(words) + 1)]  # fmt: skip
            vectors = [float(model.tables[table][word, winner, k - 1]) for word in words]
            found.append(sum(map(operator.mul, weights, vectors)))
        return found

    u = said(batch.question_BL[0].tolist(), "A1")
    for number in range(1, hop + 1):
        memories: dict[str, list[list[float]]] = {"m": [], "c": []}
        for letter, table in (("m", "A1" if number == 1 else f"C{number - 1}"), ("c", f"C{number}")):
            for place in range(sentences):
                time = model.times[table][sentences - place - 1, winner].tolist()
                memories[letter].append([*map(operator.add, said(batch.story_BSL[0, place].tolist(), table), time)])
        scores = [sum(map(operator.mul, u, m)) for m in memories["m"]]
        total = sum(map(math.exp, scores)) + config.sentences - sentences
        p = [math.exp(score) / total for score in scores]
        o = [sum(p[i] * memories["c"][i][k] for i in range(sentences)) for k in range(config.width)]
        found = {"u": u, **memories, "scores": scores, "p": p, "o": o, "next": [*map(operator.add, u, o)]}
        u = found["next"]
    return found


@torch.no_grad()
def likeliest(found: Explanation, worked: Worked, table: str) -> float:
    """The highest probability of an answer, softmax(W u), by the output of the last hop."""
    model: Any = found.model
    return float((model.tables[table][:, model.winner] @ [*worked.after.values()][-1]).softmax(0).max())


@pytest.mark.parametrize("hop", [1, 2])
@torch.no_grad()
def test_one_hop_worked_out_by_hand(run: Path, hop: int) -> None:
    found = api.explain(run, STORY)
    assert found.story is not None
    worked = found.select(Options(layer=hop)).worked()
    by_hand = plain_hop(found.model, found.batch, 2, hop)
    assert next(iter(worked.query.values())).tolist() == pytest.approx(by_hand["u"], abs=1e-4)
    assert worked.keys == ("1 Mary went to the kitchen.", "2 John walked to the garden.", "(10 empty)")
    for letter in "mc":
        np.testing.assert_allclose(worked.vectors[f"{letter}_i"][:2], by_hand[letter], atol=1e-4)
        assert not worked.vectors[f"{letter}_i"][2].any()
    assert worked.scores_K.tolist() == pytest.approx([*by_hand["scores"], math.log(10)], abs=1e-3)
    assert worked.weights_K.tolist() == pytest.approx([*by_hand["p"], 1 - sum(by_hand["p"])], abs=1e-4)
    assert worked.weights_K[:2].tolist() == pytest.approx(found.story.weights_NS[hop - 1].tolist(), abs=1e-5)
    assert worked.context_D.tolist() == pytest.approx(by_hand["o"], abs=1e-4)
    assert [*worked.after.values()][-1].tolist() == pytest.approx(by_hand["next"], abs=1e-4)
    if hop == 2:
        assert likeliest(found, worked, "C2") == pytest.approx(found.steps[0].probability, abs=1e-5)


def test_layer_wise_hops_without_times_are_worked_out_too(tmp_path: Path) -> None:
    """What the last hop makes of the question gives the answer's probability, in every variant of the model."""
    for number, variant in enumerate(({"tie": "layer_wise"}, {"temporal": False}, {"words": "bag", "hops": 3})):
        tree = RECIPE | {"model": MODEL | {"sentences": 2} | variant}
        api.train(tree, out=tmp_path / str(number), quiet=True)
        found = api.explain(tmp_path / str(number), STORY)
        worked, model = found.worked(), found.model
        assert isinstance(model, MemoryNetwork)
        assert worked.keys[-1] == "2 John walked to the garden."  # the memory is full
        table = model.table_of("W", model.config.hops)
        assert likeliest(found, worked, table) == pytest.approx(found.steps[0].probability, abs=1e-5)
        assert ("T_A" in worked.score) == model.config.temporal
        assert [*worked.after][-1].count("H u") == (model.config.tie == "layer_wise")


def test_explain_of_a_story_prints_numbers_and_refuses_what_means_nothing(run: Path, tmp_path: Path) -> None:
    told = write(tmp_path / "story.txt", "Mary went to the kitchen.\nJohn walked to the garden.\n")
    given = ("explain", run, "--story", told, "Where is Mary?")
    text = succeed(*given, "--numbers", "--layer", 1).out
    assert text.startswith("attention over the story, hop 1 of 2: Where is Mary?\n")
    assert "o = sum_i p_i c_i" in text
    assert "u^2 = u^1 + o" in text
    assert succeed(*given, "--numbers").out.startswith("attention over the story, hop 2 of 2")
    shown = succeed(*given, "--numbers", "--layer", 1, "--json").json
    assert shown["weights"][:2] == pytest.approx(succeed(*given, "--view", "hops", "--json").json["hops"][0], abs=1e-5)
    for option in ("--head 1", "--rollout", "--words", "--step 1", "--padding 1", "--layer 1"):
        [message] = fail(*given, *option.split())
        hint = ", or give --numbers" if option in ("--step 1", "--layer 1") else ""
        assert message == f"{option.split()[0]}: it does not change the view 'hops' (leave it out{hint})"
    for option in ("--target garden", "--beam 2"):
        [message] = fail(*given, *option.split())
        assert message == f"{option.split()[0]}: a run of the task story_answering writes no text (leave it out)"
    for view, name in (("encoder", "self-attention of the encoder"), ("masks", "attention, so no masks")):
        message = f"--view: the model 'memory_network' has no {name} (allowed for it: hops)"
        assert fail(*given, "--view", view) == [message]
    assert fail(*given, "--numbers", "--layer", 7) == ["--layer: there is no hop 7 (allowed: 1 to 2)"]
    [message] = fail(*given, "--out", tmp_path / "no" / "x.svg")
    assert message == f"{tmp_path}/no/x.svg: there is no folder {tmp_path}/no (give another --out)"
