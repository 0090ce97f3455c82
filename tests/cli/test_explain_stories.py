"""`explain` of questions about stories: whose numbers the sentences have, one hop by hand, what may
be asked."""

import math
import operator
from pathlib import Path
from typing import Any

import pytest
import torch

import regard as api
from command_line import fail, succeed, write
from regard.views.explanation import Explanation, ViewOptions
from regard.views.worked_attention import WorkedAttention

TOLD = "Mary went to the kitchen.\nJohn walked to the garden.\n"
STORY = f"{TOLD}Where is Mary?"
BABI = (
    "1 Mary went to the kitchen.\n2 Where is Mary?\tkitchen\t1\n"
    "3 Mary walked to the office.\n4 Where is Mary?\toffice\t3\n"
)
MODEL = {"kind": "memory_network", "width": 8, "hops": 2, "sentences": 12, "restarts": 2}
RECIPE = {
    "task": "story_answering",
    "data": {"train": {"corpus": "stories-en", "about": "where", "size": 100}},
    "model": MODEL,
    "training": {"epochs": 2, "device": "cpu", "samples": 0},
}
LAST = "note: the last of 2 questions is explained (--question 1 to 2 chooses)\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    folder = tmp_path_factory.mktemp("stories") / "run"
    api.train(RECIPE, out=folder, quiet=True)
    return folder


@pytest.fixture
def told(tmp_path: Path) -> Path:
    return write(tmp_path / "told.txt", TOLD)


def test_sentences_are_numbered_as_the_user_numbers_them(run: Path, tmp_path: Path) -> None:
    """Of a long story the numbers go on from what is forgotten; of bAbI's lines, some of them
    questions, they are the lines' own."""
    long = write(
        tmp_path / "long.txt", "John walked to the garden.\n" * 40 + "Mary went to the kitchen.\n"
    )
    found = succeed("explain", run, "--story", long, "Where is Mary?", "--json").json
    assert found["numbers"] == [*range(30, 42)]
    text = succeed("explain", run, "--story", long, "Where is Mary?").out
    assert " 41  Mary went to the kitchen." in text
    assert "  1  " not in text
    assert all(f"sentence {number}" in text for number in found["looked"])
    babi = write(tmp_path / "babi.txt", BABI)
    found = succeed("explain", run, "--story", babi, "--json").json
    assert (found["numbers"], found["facts"]) == ([1, 3], [3])
    assert "3• Mary walked to the office." in succeed("explain", run, "--story", babi).out


def test_a_story_in_jsonl_is_explained(run: Path, tmp_path: Path) -> None:
    """With the numbers that its facts count by; the last object of the file, or another question
    about it."""
    one = (
        '{"story": ["Mary went to the kitchen.", "John walked to the garden."], "question": '
        '"Where is Mary?", %s}\n'
    )
    file = write(
        tmp_path / "q.jsonl", one % '"facts": [1]' + one % '"answer": "kitchen", "facts": [2]'
    )
    found = succeed("explain", run, "--story", file, "--json").json
    assert [found[name] for name in ("question", "numbers", "facts", "answer")] == [
        "Where is Mary?",
        [1, 2],
        [2],
        "kitchen",
    ]
    assert found["hops"] == succeed("explain", run, STORY.replace("\n", " "), "--json").json["hops"]
    other = succeed("explain", run, "--story", file, "Where is John?", "--json").json
    assert (other["question"], other["sentences"], other["facts"]) == (
        "Where is John?",
        found["sentences"],
        None,
    )
    broken = write(tmp_path / "broken.jsonl", one % '"facts": [3]')
    assert fail("explain", run, "--story", broken)[0].startswith(f"{broken}:1: the facts are [3]")


def test_one_of_several_questions_is_chosen_and_which_is_said(run: Path, tmp_path: Path) -> None:
    babi = write(tmp_path / "babi.txt", BABI)
    last = succeed("explain", run, "--story", babi, "--json")
    assert (last.json["asked"], last.json["questions"], last.err) == (2, 2, LAST)
    first = succeed("explain", run, "--story", babi, "--question", 1, "--json")
    assert (first.json["numbers"], first.json["answer"], first.json["asked"], first.err) == (
        [1],
        "kitchen",
        1,
        "",
    )
    assert first.json["input"] == "\n".join(
        [*first.json["sentences"], first.json["question"]]
    )  # no later line, no answer
    chosen = succeed("explain", run, "--story", babi, "--question", 2, "--json")
    assert (chosen.json, chosen.err) == (last.json, "")
    text = "Mary went to the kitchen. Where is Mary? John left. Where is John?"
    assert "Where is Mary? " in succeed("explain", run, text, "--question", 1).out


def test_a_question_about_a_story_may_come_on_standard_input(
    run: Path, told: Path, tmp_path: Path
) -> None:
    """As for `predict`: where the file asks nothing itself, or where - says so."""
    asked = succeed("explain", run, "--story", told, "Where is John?", "--json").json
    piped = {"stdin": "Where is John?\n"}
    for arguments in ((), ("-",)):
        found = succeed("explain", run, "--story", told, *arguments, "--json", **piped)
        assert (found.json, found.err) == (asked, "")
    several = succeed(
        "explain", run, "--story", told, "--json", stdin="Where is Mary?\nWhere is John?\n"
    )
    assert (several.json["question"], several.err) == ("Where is John?", LAST)
    own = write(tmp_path / "own.txt", STORY)
    assert (
        succeed("explain", run, "--story", own, "--json", **piped).json["question"]
        == "Where is Mary?"
    )
    assert (
        succeed("explain", run, "--story", own, "-", "--json", **piped).json["question"]
        == "Where is John?"
    )
    first = succeed("explain", run, "--story", own, "-", "--question", 1, "--json", **piped)
    assert (first.json["question"], first.err) == ("Where is Mary?", "")
    [message] = fail("explain", run, "--story", told, stdin="Where is Xerxes?\n")
    assert message.startswith("standard input:1: the word 'Xerxes' is unknown")


ASKED = ("--story", "TOLD", "Where is Mary?")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--story", "TOLD"), "TOLD:2: the story has no question"),
        (("--story", "EMPTY"), "EMPTY:2: there is no question"),
        (("--story", "TOLD", "Where is Xerxes?"), "TOLD:2, input: the word 'Xerxes' is unknown"),
        (("--story", "-"), "--story: standard input is not read here (give a file; "),
        (
            ("--story", "-", "Where is John?"),
            "--story: standard input is not read here (give a file; ",
        ),
        (
            ("--story", "BABI", "--question", "0"),
            "--question: there is no question 0 (allowed: 1 to 2)",
        ),
        (
            ("--story", "BABI", "--question", "3"),
            "--question: there is no question 3 (allowed: 1 to 2)",
        ),
        (
            (*ASKED, "--question", "1"),
            "--question: it chooses one of the story's own questions (give it or INPUT, not",
        ),
        *(
            (
                (*ASKED, *option.split()),
                f"{option.split()[0]}: it does not change hops (it changes ",
            )
            for option in (
                "--head 1",
                "--rollout",
                "--words",
                "--padding 1",
                "--step 1",
                "--layer 1",
            )
        ),
        *(
            (
                (*ASKED, option, "2"),
                f"{option}: a run of the task story_answering does not write text (leave it out)",
            )
            for option in ("--target", "--beam")
        ),
        *(
            (
                (*ASKED, "--view", view),
                f"--view: the model 'memory_network' has no view '{view}' (allowed for it: hops)",
            )
            for view in ("encoder", "masks")
        ),
        ((*ASKED, "--numbers", "--layer", "7"), "--layer: there is no layer 7 (allowed: 1 to 2)"),
        ((*ASKED, "--numbers", "--head", "2"), "--head: there is no head 2 (allowed: 1)"),
    ],
)
def test_what_cannot_be_explained(
    run: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    for name, content in {"TOLD": TOLD, "EMPTY": "\n\n", "BABI": BABI}.items():
        path = str(write(tmp_path / name, content))
        arguments = tuple(path if argument == name else argument for argument in arguments)
        message = message.replace(name, path)
    assert fail("explain", run, *arguments)[0].startswith(message)


@torch.no_grad()
def likeliest(found: Explanation, worked: WorkedAttention) -> float:
    """The highest probability of an answer, softmax(W u), by the output of the last hop."""
    model: Any = found.model
    [next_D] = worked.after.values()
    return float(
        (model.tables[model.table_of("W", model.config.hops)][:, model.winner] @ next_D)
        .softmax(0)
        .max()
    )


@pytest.mark.parametrize("hop", [1, 2])
def test_the_numbers_of_a_hop_add_up_to_those_of_the_model(run: Path, hop: int) -> None:
    found = api.explain(run, STORY)
    assert found.story is not None
    worked = found.select(ViewOptions(layer=hop)).worked()
    (u,), (after,) = (
        [vector.tolist() for vector in of.values()] for of in (worked.query, worked.after)
    )
    m, c = (worked.vectors[name].tolist() for name in ("m_i", "c_i"))
    assert worked.keys == (
        "1 Mary went to the kitchen.",
        "2 John walked to the garden.",
        "(10 empty)",
    )
    assert m[2] == c[2] == [0.0] * 8
    scores = [*(sum(map(operator.mul, u, m_i)) for m_i in m[:2]), math.log(10)]
    assert worked.scores_K.tolist() == pytest.approx(scores, abs=1e-4)
    p = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
    assert worked.weights_K.tolist() == pytest.approx(p, abs=1e-4)
    assert worked.weights_K[:2].tolist() == pytest.approx(
        found.story.weights_NS[hop - 1].tolist(), abs=1e-5
    )
    o = [sum(p_i * c_i[k] for p_i, c_i in zip(p, c, strict=True)) for k in range(8)]
    assert worked.context_D.tolist() == pytest.approx(o, abs=1e-4)
    assert after == pytest.approx([*map(operator.add, u, o)], abs=1e-4)
    if hop == 1:
        [second] = found.worked().query.values()
        assert second.tolist() == pytest.approx(after, abs=1e-6)
    else:
        assert likeliest(found, worked) == pytest.approx(found.steps[0].probability, abs=1e-5)


@pytest.mark.parametrize(
    "variant", [{"tie": "layer_wise"}, {"temporal": False}, {"words": "bag", "hops": 3}], ids=str
)
def test_the_last_hop_of_every_variant_gives_the_probability(
    tmp_path: Path, variant: dict[str, Any]
) -> None:
    tree = RECIPE | {"model": MODEL | {"sentences": 2} | variant}
    found = api.explain(api.train(tree, out=tmp_path / "run", quiet=True), STORY)
    worked = found.worked()
    assert worked.keys[-1] == "2 John walked to the garden."  # the memory is full
    assert likeliest(found, worked) == pytest.approx(found.steps[0].probability, abs=1e-5)
    assert ("T_A" in worked.score) == variant.get("temporal", True)
    assert ("H u" in next(iter(worked.after))) == ("tie" in variant)


def test_a_hop_is_printed_in_numbers(run: Path) -> None:
    text = succeed("explain", run, STORY, "--numbers", "--layer", 1).out
    assert text.startswith("attention over the story, hop 1 of 2: Where is Mary?\n")
    assert "o = sum_i p_i c_i" in text
    assert "u^2 = u^1 + o" in text


def test_what_follows_from_changed_scores(run: Path) -> None:
    """The answer from u of the last hop by hand, also after a change in the first one."""
    found = api.explain(run, STORY)
    model = found.model
    for hop in (1, 2):
        chosen = found.select(ViewOptions(layer=hop))
        changed = chosen.worked([5.0, None, chosen.worked().scores_K.tolist()[-1]])
        assert changed.weights_K.tolist()[1] == 0
        [u_D] = changed.after.values()
        if hop == 2:
            with torch.inference_mode():
                p_V = (model.tables[model.table_of("W", 2)][:, model.winner] @ u_D).softmax(0)
            assert changed.outcome[0].probability == pytest.approx(float(p_V.max()), abs=1e-5)
        assert changed.outcome[0].probability != pytest.approx(found.steps[0].probability, abs=1e-6)
        same = chosen.worked(chosen.worked().scores_K.tolist())
        assert same.outcome[0].probability == pytest.approx(found.steps[0].probability, abs=1e-5)
