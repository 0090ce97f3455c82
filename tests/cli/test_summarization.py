"""ROUGE against numbers worked by hand, a plain table and another implementation; the task through
the command line."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import fail, succeed, write
from regard.config import write_yaml
from regard.tasks.summarization import (
    RougeConfig,
    common_subsequence,
    rouge,
    rouge_l,
    rouge_n,
    tokens_of,
)


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        # All 6 words of the reference stand among the 7; of its 5 pairs all but 'was under' stand
        # among the 6
        (
            "the cat was found under the bed",
            "the cat was under the bed",
            [12 / 13, 8 / 11, 12 / 13],
        ),
        # Lin 2004, section 3.1: one has the order of the reference in 3 words of 4, one in 2, with
        # as many pairs
        ("police kill the gunman", "police killed the gunman", [3 / 4, 1 / 3, 3 / 4]),
        ("the gunman kill police", "police killed the gunman", [3 / 4, 1 / 3, 2 / 4]),
        (
            "the the the the",
            "the cat",
            [1 / 3, 0, 1 / 3],
        ),  # a word counts as often as both sides have it
        *(
            (output, reference, [0, 0, 0])
            for output, reference in (("", "a"), ("a", ""), ("", ""), ("a", "b"))
        ),
    ],
)
def test_rouge_by_hand(output: str, reference: str, expected: list[float]) -> None:
    texts = output.split(), reference.split()
    assert [rouge_n(*texts, 1), rouge_n(*texts, 2), rouge_l(*texts)] == pytest.approx(expected)


@given(
    first=st.lists(st.sampled_from("abc"), max_size=12),
    second=st.lists(st.sampled_from("abc"), max_size=80),
)
def test_the_longest_common_subsequence_is_that_of_the_table(
    first: list[str], second: list[str]
) -> None:
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if one == other else max(table[i][j + 1], table[i + 1][j])
            )
    assert common_subsequence(first, second) == table[-1][-1] == common_subsequence(second, first)


def test_words_and_characters() -> None:
    assert tokens_of("Don't stop_it, U.S. 3.5%!", "words", True) == [
        "don",
        "t",
        "stop",
        "it",
        "u",
        "s",
        "3",
        "5",
    ]
    assert tokens_of("Straße", "words", False) == ["Straße"]
    assert tokens_of("사과를 먹었다.", "words", True) == ["사과를", "먹었다"]
    assert tokens_of("사과를 먹었다.", "characters", True) == list("사과를먹었다")
    assert tokens_of("हिन्दी भाषा", "words", True) == ["हिन्दी", "भाषा"]


def test_characters_see_a_word_behind_another_particle() -> None:
    """사과를 and 사과가 are no common word, but two of three characters. Case counts only if asked
    for."""
    cases = [
        rouge(["The CAT"], [["the cat"]], RougeConfig(lowercase=lower)) for lower in (True, False)
    ]
    assert [found["rougeL"] for found in cases] == [100, 0]
    by_words = rouge(["사과를"], [["사과가"]], RougeConfig())
    by_characters = rouge(["사과를"], [["사과가"]], RougeConfig(tokenize="characters"))
    assert by_words["rouge1"] == 0
    assert by_characters["rouge1"] == by_characters["rougeL"] == pytest.approx(100 * 2 / 3)
    assert by_characters["rouge2"] == pytest.approx(100 * 1 / 2)
    assert by_characters["rouge_signature"] == "nrefs:1|case:lower|tok:characters|stem:no|f1:mean"


def test_against_rouge_score() -> None:
    scorer_of = pytest.importorskip("rouge_score.rouge_scorer")
    scorer = scorer_of.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=False)
    draw = random.Random(1)
    said = "the a cat dog Police killed, gunman's on-site under 3.5 bed was found in u.s. it _ was"
    pairs = [
        tuple(" ".join(draw.choices(said.split(), k=draw.randint(1, 15))) for _ in "or")
        for _ in range(200)
    ]
    found = rouge([pair[0] for pair in pairs], [[pair[1]] for pair in pairs], RougeConfig())
    theirs = [scorer.score(reference, output) for output, reference in pairs]
    for name in ("rouge1", "rouge2", "rougeL"):
        assert found[name] == pytest.approx(
            100 * sum(one[name].fmeasure for one in theirs) / len(pairs)
        )


@pytest.fixture
def recipe(tmp_path: Path, tiny_recipe: dict[str, Any]) -> Path:
    """Documents whose summary is their first word."""
    draw = random.Random(1)
    documents = [" ".join(draw.choices("abcdefgh", k=6)) for _ in range(200)]
    write(
        tmp_path / "news.csv", "text,title\n" + "".join(f"{text},{text[0]}\n" for text in documents)
    )
    tiny_recipe |= {
        "task": "summarization",
        "data": {
            "train": {"file": "news.csv", "document": "text", "summary": "title"},
            "validation": {"split": 0.1},
        },
        "evaluation": {"tokenize": "words"},
    }
    tiny_recipe["training"] |= {"best": "rougeL"}
    return write(tmp_path / "recipe.yaml", write_yaml(tiny_recipe))


def test_a_summarizer_is_trained_evaluated_and_used(recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trained = succeed("train", recipe, "training.steps=150", "--out", run, "--json").json
    assert trained["best"][0]["rougeL"] > 80
    found = succeed("evaluate", run, "--json").json
    assert {"rouge1", "rouge2", "rougeL", "perplexity", "rouge_signature"} <= found.keys()
    assert "bleu" not in found
    assert found["rouge1"] == found["rougeL"] > 80
    assert found["rouge2"] == 0, "a summary of one word has no pairs"
    write(tmp_path / "d", "a b c d e f\n")
    write(tmp_path / "s", "a\n")
    write(tmp_path / "t.jsonl", '{"text": "a b c d e f", "title": "a"}\n')
    parallel = succeed(
        "evaluate", run, "--file", tmp_path / "d", "--file", tmp_path / "s", "--json"
    ).json
    table = succeed("evaluate", run, "--file", tmp_path / "t.jsonl", "--json").json
    assert [len(found.pop("files")) for found in (parallel, table)] == [2, 1]
    assert table == parallel
    assert len(succeed("predict", run, "c b a d e f").out.split()) == 1
    from_table = succeed("predict", run, "--file", recipe.parent / "news.csv", "--json").jsons
    assert len(from_table) == 200  # by the run's own column names
    assert len(succeed("predict", run, "--file", tmp_path / "t.jsonl", "--json").jsons) == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.train={source: a, target: b}", "data.train.source: unknown key 'source'"),
        ("evaluation.tokenize=13a", "evaluation.tokenize: '13a' is not allowed"),
        ("training.best=bleu", "training.best: unknown metric 'bleu'"),
        ("data.train={document: a}", "data.train: name the summary: a file each"),
    ],
)
def test_columns_and_metrics_of_another_task_are_refused(
    recipe: Path, override: str, message: str
) -> None:
    assert fail("check", recipe, override)[0].startswith(message)


def test_the_recipe_that_ships_fits_its_corpus() -> None:
    """Learning it takes minutes; here: reports are longer than headlines, and few words are
    unknown."""
    found = succeed(
        "check", "headlines", "data.train.size=3000", "training.device=cpu", "--json"
    ).json
    assert found["ok"]
    test = found["data"]["splits"]["test"]["columns"]
    assert test["source"]["lengths"]["mean"] > 3 * test["target"]["lengths"]["mean"]
    assert max(test["source"]["unknown"], test["target"]["unknown"]) < 0.02
