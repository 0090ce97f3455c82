"""The record of a search: it must tell the whole story, and tell it as plain loops would."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import succeed, write
from model_cases import tokens_of
from places import ROOT
from regard import load, predict
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.search.hypotheses import Hypothesis
from regard.search.observers import Recorder
from regard.search.rules import Constraints
from regard.text.vocabularies import END
from regard.views.search_record import Outcome, Reference, follow_reference, ranking, search_tree
from toy_models import Toy, ban_tokens, table_toy

A, B, C = 4, 5, 6

BEYOND, NOT_DRAWN, SETTLED = "rank beyond the open slots", "not drawn", "cannot win any more"


class Letters:
    """Spells the tokens of the toys."""

    def tokens(self, ids: Sequence[int]) -> list[str]:
        return ["_?<>ABCDEFGH"[token] for token in ids]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.tokens(ids))


def recorded(
    model: Toy, sources: list[list[int]], config: SearchConfig, wording: Constraints | None = None
) -> tuple[list[list[Hypothesis]], list[dict[str, Any]]]:
    source, wording = tokens_of(sources), wording or Constraints()
    recorder = Recorder(source, config, Letters(), END)
    found = search(model, source, config, constraints=wording, observer=recorder)
    return found, recorder.records()


def short(candidates: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (one["parent"], one["token"], one["rank"], one["fate"], one["why"], one["id"])
        for one in candidates
    ]


def test_a_search_by_hand() -> None:
    """Beam 2: A 0.5 and </s> 0.3 are taken, B 0.2 is not; A goes on alone, in the one slot that is
    left."""
    model = table_toy(
        7, {A: 0.5, END: 0.3, B: 0.2}, (A, {B: 0.6, END: 0.4}), (B, {END: 0.9, A: 0.1})
    )
    [found], [record] = recorded(
        model, [[A, END]], SearchConfig(beam=2, nbest=2, normalisation="none")
    )
    assert [step["open"] for step in record["steps"]] == [2, 1, 1]
    assert [short(step["candidates"]) for step in record["steps"]] == [
        [
            (0, "A", 1, "kept", None, 1),
            (0, ">", 2, "finished", None, 2),
            (0, "B", 3, "pruned", BEYOND, None),
        ],
        [(1, "B", 1, "kept", None, 3), (1, ">", 2, "pruned", BEYOND, None)],
        [(3, ">", 1, "finished", None, 4), (3, "A", 2, "pruned", BEYOND, None)],
    ]
    best = record["steps"][2]["candidates"][0]
    assert best["log_p"] == pytest.approx(math.log(0.9))
    assert best["total"] == best["ranked_by"] == pytest.approx(math.log(0.27))
    assert [(one["id"], one["output"], one["given"]) for one in record["ranking"]] == [
        (2, ">", True),
        (4, "AB>", True),
    ]
    assert [one["score"] for one in record["ranking"]] == [one.score for one in found]


def test_what_the_rules_forbade_stands_where_it_would_have_stood() -> None:
    model = table_toy(7, {A: 0.4, B: 0.3, END: 0.2, C: 0.1})
    config = SearchConfig(beam=1, no_repeat_ngram=2, min_length=3, max_length=6)
    constraints = Constraints(prefixes=[(A,)], banned=ban_tokens([(A, B)]))
    _, [record] = recorded(model, [[A, END]], config, constraints)
    first, second, third = (short(step["candidates"]) for step in record["steps"][:3])
    assert first == [(0, "A", 1, "kept", None, 1), (0, "B", None, "ruled out", "prefix", None)]
    assert second == [
        (1, "A", 1, "kept", None, 2),
        (1, "B", None, "ruled out", "banned", None),
        (1, "C", 2, "pruned", BEYOND, None),
    ]
    assert third[0] == (2, "A", None, "ruled out", "repeated n-gram", None)
    [shortest] = recorded(model, [[A, END]], SearchConfig(beam=3, min_length=3, max_length=6))[1]
    assert (0, ">", None, "ruled out", "minimum length", None) in short(
        shortest["steps"][0]["candidates"]
    )
    last = short(shortest["steps"][5]["candidates"])
    assert {one[4] for one in last if one[3] == "ruled out"} == {"maximum length"}


def test_what_could_not_win_any_more_and_what_was_not_drawn() -> None:
    model = table_toy(6, {END: 0.9, A: 0.06, B: 0.04})
    _, [record] = recorded(model, [[A, END]], SearchConfig(beam=3, normalisation="none"))
    [step] = record["steps"]
    assert [one["why"] for one in step["candidates"]] == [None, SETTLED, SETTLED]
    found, [record] = recorded(
        Toy(9, seed=5), [[A, END]], SearchConfig(sample=True, nbest=3, max_length=6, seed=2)
    )
    reasons = {
        one["why"]
        for step in record["steps"]
        for one in step["candidates"]
        if one["fate"] == "pruned"
    }
    assert NOT_DRAWN in reasons
    assert BEYOND not in reasons
    assert [one["score"] for one in record["ranking"]] == [one.score for one in found[0]]


def followed(record: dict[str, Any], tolerance: float = 1e-9) -> dict[int, tuple[str, float]]:
    """Tokens and log P of each hypothesis, put together from its steps."""
    known = {0: ("", 0.0)}
    for step in record["steps"]:
        for one in step["candidates"]:
            text, total = known[one["parent"]]
            assert one["total"] == pytest.approx(total + one["log_p"], abs=tolerance)
            if one["id"] is not None:
                known[one["id"]] = (text + one["token"], one["total"])
    return known


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1_000),
    beam=st.integers(1, 4),
    theta=st.sampled_from([1.0, 1.5]),
    ngram=st.sampled_from([None, 1, 2]),
    normalisation=st.sampled_from(["none", "mean", "wu", "reward"]),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
)
def test_records(
    seed: int, beam: int, theta: float, ngram: int | None, normalisation: Any, lengths: list[int]
) -> None:
    config = SearchConfig(
        beam=beam,
        normalisation=normalisation,
        repetition_penalty=theta,
        no_repeat_ngram=ngram,
        max_length=6,
    )
    sources = [[A + n % 4 for n in range(length)] + [END] for length in lengths]
    found, records = recorded(Toy(9, seed), sources, config)
    assert found == search(Toy(9, seed), tokens_of(sources), config), (
        "looking on must not change the search"
    )
    for [best], record in zip(found, records, strict=True):
        known = followed(record)
        for one in record["ranking"]:
            text, total = known[one["id"]]
            assert text == one["output"] == "".join(one["tokens"])
            assert total == pytest.approx(one["score"], abs=1e-9)
        objectives = [one["objective"] for one in record["ranking"]]
        assert objectives == sorted(objectives, reverse=True)
        assert record["ranking"][0]["objective"] == pytest.approx(best.objective, abs=1e-12)
        for step in record["steps"]:
            candidates = step["candidates"]
            taken = [one for one in candidates if one["id"] is not None]
            allowed = [one for one in candidates if one["fate"] != "ruled out"]
            assert [one["rank"] for one in allowed] == list(range(1, len(allowed) + 1))
            assert taken == allowed[: len(taken)]
            assert len(taken) == min(step["open"], len(allowed))
            assert len(allowed) <= 2 * beam


def test_the_file_holds_what_was_asked_and_given_under_the_documented_keys(
    tiny_run: Path, tmp_path: Path
) -> None:
    arguments = (
        "--beam",
        3,
        "--nbest",
        2,
        "--record",
        tmp_path / "search.json",
        "--json",
        "--set",
        "search.max_length=9",
        "--set",
        "search.repetition_penalty=1.2",
    )
    predictions = succeed("predict", tiny_run, "a b c", "d e", *arguments).jsons
    record = json.loads((tmp_path / "search.json").read_text(encoding="utf-8"))
    assert record["search"]["beam"] == 3
    for own, text, prediction in zip(record["inputs"], ("a b c", "d e"), predictions, strict=True):
        assert (own["input"], own["source"][-1], own["longest"]) == (text, "</s>", 9)
        given_out = [best for best in own["ranking"] if best["given"]]
        given_out = [
            {name: best[name] for name in ("output", "score", "tokens")} for best in given_out
        ]
        assert given_out == prediction["nbest"]
        known = followed(own, tolerance=1e-5)
        assert all(
            known[best["id"]][1] == pytest.approx(best["score"], abs=1e-5)
            for best in own["ranking"]
        )
    documented = (ROOT / "docs" / "search-record.md").read_text(encoding="utf-8")
    first = record["inputs"][0]
    parts = (
        record,
        first,
        first["steps"][0],
        first["steps"][0]["candidates"][0],
        first["ranking"][0],
    )
    for key in {key for part in parts for key in part}:
        assert f"| `{key}` |" in documented
    for word in (
        BEYOND,
        NOT_DRAWN,
        SETTLED,
        "kept",
        "finished",
        "pruned",
        "ruled out",
        "repeated n-gram",
        "banned",
    ):
        assert word in documented


def test_the_tree_of_a_search_by_hand() -> None:
    """The search of `test_a_search_by_hand`: its branches, where they are drawn, and the way of a
    reference."""
    model = table_toy(
        7, {A: 0.5, END: 0.3, B: 0.2}, (A, {B: 0.6, END: 0.4}), (B, {END: 0.9, A: 0.1})
    )
    _, [record] = recorded(model, [[A, END]], SearchConfig(beam=2, nbest=2, normalisation="none"))
    tree = search_tree(record)
    assert [(one.parent, one.depth, one.label, one.value, one.tone) for one in tree.branches] == [
        (None, 1, "A", "-0.69", ""),
        (None, 1, ">", "-1.20", "good"),
        (None, 1, "B", "-1.61", "muted"),
        (0, 2, "B", "-1.20", ""),
        (0, 2, ">", "-1.61", "muted"),
        (3, 3, ">", "-1.31", ""),
        (3, 3, "A", "-3.51", "muted"),
    ]
    assert tree.rows == [1.25, 3.0, 4.0, 0.5, 2.0, 0.0, 1.0]
    _, [other] = recorded(model, [[A, END]], SearchConfig(beam=2, nbest=2, normalisation="mean"))
    assert search_tree(other).rows == [0.0, 3.0, 4.0, 0.0, 2.0, 0.0, 1.0], (
        "AB>, the best output, in one line"
    )
    assert tree.branches[2].note == f"log P -1.609, in all -1.609, rank 3; pruned: {BEYOND}"
    for tokens, marked in (("B>", {2}), ("AB>", {0, 3, 5}), ("ABA>", {0, 3, 6}), ("AA>", {0, 7})):
        reference = Reference(
            list(tokens), [-1.0] * len(tokens), -1.0, -1.0, Outcome("fell", 2, 9, 1)
        )
        branches = search_tree(record, reference).branches
        assert {place for place, one in enumerate(branches) if one.marked} == {
            n - (n == 7 and 2) for n in marked
        }
    assert (branches[5].label, branches[5].value, branches[5].parent) == ("A", "-2.00", 0)
    table = [[cell.text for cell in row] for row in ranking(record).cells]
    assert table == [
        ["1", "1", "-1.204", "-1.204", "1", ">"],
        ["2", "2", "-1.309", "-1.309", "3", "AB>"],
    ]


def test_a_record_as_a_page_a_picture_and_in_the_terminal(tiny_run: Path, tmp_path: Path) -> None:
    arguments = (
        "predict",
        tiny_run,
        "a b <b>",
        "--beam",
        2,
        "--set",
        "search.max_length=4",
        "--record",
    )
    assert "├── " in (out := succeed(*arguments, "-").out)
    assert " ✓" in out
    assert "rank by log P" in out
    succeed(*arguments, tmp_path / "tree.html")
    page = (tmp_path / "tree.html").read_text(encoding="utf-8")
    assert 'data-kind="tree"' in page
    assert "<b>" not in page.partition("<style>")[0]
    pytest.importorskip("matplotlib")
    succeed(*arguments, tmp_path / "tree.svg")
    assert (tmp_path / "tree.svg").read_text(encoding="utf-8").count("<text") > 8
    [own] = found = predict(tiny_run, ["a b"], record=True)
    assert found.record is not None
    assert found.record.inputs[0]["ranking"][0]["output"] == own.output


def test_where_a_reference_leaves_the_beam(tiny_run: Path) -> None:
    """What the search gives is finished; a reference that it does not give fell at the step that
    the record shows."""
    run = load(tiny_run, ["search.beam=2", "search.max_length=8"], device="cpu")
    [best] = found = run.predict(["a b"], record=True)
    model, [record] = run.load_model(), found.record.inputs
    won = follow_reference(run, model, "a b", best.output)
    assert (won.outcome.kind, won.score) == (
        "finished",
        pytest.approx(best.to_json()["score"], abs=1e-5),
    )
    lost = follow_reference(run, model, "a b", "e d")
    assert lost.outcome.kind == "fell"
    assert sum(lost.token_scores) == pytest.approx(lost.score, abs=1e-5)
    marked = [one for one in search_tree(record, lost).branches if one.marked]
    assert (len(marked), marked[-1].tone, marked[-1].depth) == (
        lost.outcome.step,
        "muted",
        lost.outcome.step,
    )


def test_prefixes_of_the_command_line(tiny_run: Path, tmp_path: Path) -> None:
    for prediction in succeed(
        "predict", tiny_run, "a b c", "d e", "--prefix", "c a", "--json"
    ).jsons:
        assert prediction["output"].startswith("c a")
    file = write(tmp_path / "prefixes.txt", "b\n\n")
    options = ("--set", "search.max_length=12", "--json")
    plain = succeed("predict", tiny_run, "a b c", "d e", *options).jsons
    found = succeed("predict", tiny_run, "a b c", "d e", "--prefixes", file, *options).jsons
    assert found[0]["output"].startswith("b")
    assert found[1] == plain[1]
    [own] = predict(tiny_run, ["d e"], prefixes=["a b"])
    assert own.output.startswith("a b")
