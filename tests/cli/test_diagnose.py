"""Whose fault an error is, on runs whose probabilities are written by hand, and against plain loops."""

from __future__ import annotations

import html
import math
import random
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regard
from command_line import fail, succeed, write
from planted import IMPOSSIBLE, Table, planted_run
from regard.errors import ConfigError, DataError
from regard.runs import Run
from regard.runs.settings import examples_of
from regard.tasks.summarization import Summarization
from regard.tasks.translation import Translation
from regard.views.advice import Behind, Sweep, Width, advice, resampled
from regard.views.diagnose import Diagnosis
from regard.views.page import page
from regard.views.report import Bars, Curves
from regard.views.search_errors import Tally, score_references, verdict_of, wilson

END = {"</s>": 1.0}
GARDEN: Table = {
    "<s>": {"a": 0.5, "b": 0.3, "c": 0.2},
    "a": {"d": 0.3, "e": 0.3, "f": 0.4},
    "b": {"g": 0.9, "</s>": 0.1},
    **dict.fromkeys("cdefg", END),
}
"""Greedy search takes `a` and ends with `af`, P = 0.2; the best is `bg`, P = 0.27, which begins less well."""


Planted = Callable[..., Run]


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    def make(table: Table = GARDEN, **search: Any) -> Run:
        return planted_run(tmp_path / "run", table, letters="abcdefg xyz", search={"length_penalty": 0.0} | search)

    return make


def pairs(folder: Path, *targets: str, sources: str = "xyz") -> list[str]:
    lines = (f"{sources[number % len(sources)]}\t{target}\n" for number, target in enumerate(targets))
    return [str(write(folder / "pairs.tsv", "".join(lines)))]


def counts(found: Diagnosis) -> tuple[int, int, int, int]:
    tally = found.tally
    return tally.sentences, tally.errors, tally.search_errors, tally.model_errors


# The planted cases


def test_a_crippled_search_shows_search_errors(planted: Planted, tmp_path: Path) -> None:
    found = regard.diagnose(planted(beam=1), files=pairs(tmp_path, *["bg"] * 40))
    assert counts(found) == (40, 40, 40, 0)
    assert found.raw_search_errors == 40
    [advice] = found.advice
    assert advice.startswith("100 % search errors: raise the beam to 2 (chrF 0.0 -> 100.0, ")
    assert found.beam_sweep is not None
    assert found.beam_sweep.enough.beam == 2
    assert [(width.beam, width.tally.search_errors) for width in found.beam_sweep.widths] == [
        (1, 40), (2, 0), (3, 0), (5, 0), (10, 0), (20, 0)
    ]  # fmt: skip
    mended = regard.diagnose(planted(beam=2), files=pairs(tmp_path, *["bg"] * 40), sweep=())
    assert counts(mended) == (40, 0, 0, 0)
    assert mended.advice == ("No output is worse than its reference: there is nothing to mend here.",)


def test_a_model_that_prefers_the_wrong_answer_shows_model_errors(planted: Planted, tmp_path: Path) -> None:
    found = regard.diagnose(planted(beam=5), files=pairs(tmp_path, *["ad"] * 23, *["bg"] * 2, *["ae"] * 12))
    assert counts(found) == (37, 35, 0, 35)
    assert found.advice[0] == (
        "100 % model errors: more data or a larger model. No beam, however wide, would prefer these references."
    )
    example = found.examples["model"][0].judged
    assert (example.output, example.scored.reference) == ("bg", "ad")
    assert example.scored.log_p == pytest.approx(math.log(0.15))
    assert example.written.score == pytest.approx(math.log(0.27))
    assert len(found.examples["model"]) == 20


def test_both_kinds_and_a_tie_by_hand(planted: Planted, tmp_path: Path) -> None:
    """Greedy search writes `af` with P = 0.2: below `bg`, above `ad`, and as probable as `c`."""
    found = regard.diagnose(planted(beam=1), files=pairs(tmp_path, "bg", "ad", "c", "af"), sweep=())
    assert [one.verdict for one in found.judged if one.error] == ["search", "model", "model"]
    assert counts(found) == (4, 3, 1, 2)
    assert found.tally.shares["search_errors"].interval == wilson(1, 3)


def test_the_verdict_follows_the_objective_and_the_raw_one_stands_beside_it(planted: Planted, tmp_path: Path) -> None:
    """`c` has log P = log 0.2 over 2 tokens. `bg` has log 0.27 over 3; `af` log 0.2 over 3, as the search writes."""
    files = pairs(tmp_path, "c", "b")
    found = regard.diagnose(planted(beam=1), files=files, length_penalty=1.0, sweep=())
    short = found.judged[0]
    assert short.scored.objective == pytest.approx(math.log(0.2) / 2)
    assert short.written.objective == pytest.approx(math.log(0.2) / 3)
    found = regard.diagnose(planted({**GARDEN, "<s>": {"a": 0.5, "b": 0.28, "c": 0.22}}, beam=1), files=files, sweep=())
    assert (found.judged[0].verdict, found.judged[0].raw_verdict) == ("search", "search")
    normalised = regard.diagnose(
        planted({**GARDEN, "<s>": {"a": 0.5, "b": 0.28, "c": 0.22}}, beam=1), files=files, length_penalty=1.0, sweep=()
    )
    assert (normalised.judged[0].verdict, normalised.judged[0].raw_verdict) == ("model", "search")
    assert normalised.to_json()["raw"] == {"search_errors": 1, "model_errors": 1}
    assert normalised.advice[0].startswith("100 % model errors: more data or a larger model.")
    assert normalised.advice[1] == (
        "1 error is the model's only by the length normalisation, since the model gives the reference the higher log "
        "P: try a lower --length-penalty."
    )


@pytest.mark.parametrize(
    ("beam", "reference", "kind", "step", "rank", "slots", "token"),
    [
        (1, "bg", "fell", 1, 2, 1, "b"),
        (1, "c", "fell", 1, 3, 1, "c"),
        (2, "ad", "fell", 2, 3, 2, "d"),  # behind bg with 0.27 and af with 0.2
        (2, "ae", "fell", 2, 4, 2, "e"),  # as probable as ad, which comes first
        (3, "b", "fell", 2, 6, 3, "</s>"),  # bg 0.27; c, af 0.2; ad, ae 0.15; then b 0.03
        (5, "ad", "finished", 3, 3, 3, "</s>"),  # c, and the impossible empty output, have ended and keep their slots
    ],
)
def test_where_a_reference_fell_off_by_hand(
    planted: Planted, tmp_path: Path, beam: int, reference: str, kind: str, step: int, rank: int, slots: int, token: str
) -> None:
    found = regard.diagnose(planted(beam=beam), files=pairs(tmp_path, reference), sweep=())
    [example] = [*found.examples["search"], *found.examples["model"]]
    assert asdict(example.outcome) == {"kind": kind, "step": step, "rank": rank, "slots": slots}
    assert example.token == token


def test_a_reference_that_is_left_in_the_beam_when_nothing_can_win_any_more(planted: Planted, tmp_path: Path) -> None:
    table = {**GARDEN, "<s>": {"c": 0.6, "a": 0.4}}
    found = regard.diagnose(planted(table, beam=2), files=pairs(tmp_path, "af"), sweep=())
    assert asdict(found.examples["model"][0].outcome) == {"kind": "left", "step": 2, "rank": None, "slots": 0}


def test_ranks_count_repetitions_as_the_search_does(planted: Planted, tmp_path: Path) -> None:
    """A penalty of 2 makes the second `a` count as 0.5^2 = 0.25, behind `b` with 0.3."""
    table: Table = {"<s>": {"a": 1.0}, "a": {"a": 0.5, "b": 0.3, "</s>": 0.2}, "b": END}
    found = regard.diagnose(planted(table, beam=1, repetition_penalty=2.0), files=pairs(tmp_path, "aa"), sweep=())
    [example] = found.examples["model"]
    assert example.judged.output == "ab"
    assert example.judged.scored.objective == pytest.approx(2 * math.log(0.5) + math.log(0.2))
    assert asdict(example.outcome) == {"kind": "fell", "step": 2, "rank": 2, "slots": 1}


# References that the search may not write


def test_a_reference_with_an_unknown_token_is_out_of_reach(planted: Planted, tmp_path: Path) -> None:
    found = regard.diagnose(planted(beam=5), files=pairs(tmp_path, "한"), sweep=())
    assert found.unreachable == {"search": {}, "model": {"unknown token": 1}}
    assert asdict(found.examples["model"][0].outcome) == {"kind": "forbidden", "step": 1, "rank": None, "slots": 5}
    assert "because the reference holds unknown tokens" in found.advice[0]


UNKNOWN_FIRST: Table = {**GARDEN, "<s>": {"<unk>": 0.5, "a": 0.3, "b": 0.2}, "<unk>": END}
"""`<unk>` alone has P = 0.5, more than any output."""


def test_what_the_vocabulary_cannot_write_is_the_models_fault(planted: Planted, tmp_path: Path) -> None:
    """`한` is `<unk>`, which is likelier than all that may be written: no search error for all that."""
    found = regard.diagnose(planted(UNKNOWN_FIRST, beam=5), files=pairs(tmp_path, *["한"] * 40))
    one = found.judged[0]
    assert one.scored.log_p == pytest.approx(math.log(0.5))
    assert one.scored.log_p > one.written.score
    assert counts(found) == (40, 40, 0, 40)
    assert found.raw_search_errors == 0
    assert found.unreachable == {"search": {}, "model": {"unknown token": 40}}
    assert found.advice == (
        "100 % model errors, 40 of them because the reference holds unknown tokens, which no search could write: use a "
        "larger vocabulary, or one of sub-words or bytes. No beam, however wide, would prefer these references.",
        *found.advice[1:],
    )
    assert not any("Train longer" in sentence or "raise the beam" in sentence for sentence in found.advice)
    example = found.to_json()["examples"]["model_errors"][0]
    assert example["note"] == "the scores of the reference are of its tokens with <unk>, not of the text"
    assert "its tokens with &lt;unk&gt;" in page(found.report())
    out = succeed("diagnose", planted(UNKNOWN_FIRST, beam=5).folder, "--file", *pairs(tmp_path, "한"), "--no-sweep").out
    assert "of its tokens with <unk>" in out


def test_compare_counts_them_as_the_models_too(planted: Planted, tmp_path: Path) -> None:
    run = planted(UNKNOWN_FIRST, beam=5)
    files, other = pairs(tmp_path, "한", "한", "bg", "ad"), write(tmp_path / "other.txt", "a\nb\nc\nd\n")
    row = regard.compare([run], files=files, hypotheses={"other": str(other)}).tables["errors"][0]
    assert (row["search_errors"], row["model_errors"]) == counts(regard.diagnose(run, files=files, sweep=()))[2:]
    assert row["model_errors"] >= 2


def test_a_rule_before_the_unknown_token_makes_no_search_error_of_it(planted: Planted, tmp_path: Path) -> None:
    """What first keeps the search from `g한` is the ban; but without it the search could not write it either."""
    found = regard.diagnose(planted(UNKNOWN_FIRST, beam=5, banned=["g"]), files=pairs(tmp_path, "g한"), sweep=())
    assert found.judged[0].scored.forbidden == "banned"
    assert found.unreachable == {"search": {}, "model": {"unknown token": 1}}


def test_of_several_references_one_is_judged_by_that_can_be_written(planted: Planted, tmp_path: Path) -> None:
    """Of `ad`, `한` and `bg` the second has the highest score, that of `<unk>`."""
    run = planted(UNKNOWN_FIRST, beam=1)
    dataset = examples_of(run, None, pairs(tmp_path, "ad", "한", "bg", sources="x"))
    [scored] = score_references(run, run.load_model(), dataset, [[0, 1, 2]], run.recipe.search)
    assert (scored.reference, scored.references, scored.unknown) == ("bg", ("ad", "한", "bg"), False)


@pytest.mark.parametrize(
    ("rule", "reference", "output", "reason"),
    [
        ({"max_length": 2}, "bg", "c", "maximum length"),
        ({"min_length": 4}, "bg", None, "minimum length"),
        ({"banned": ["g"]}, "bg", "c", "banned"),
        ({"prefix": "a"}, "bg", "af", "prefix"),
    ],
)
def test_a_reference_against_a_rule_is_the_searchs_fault_and_named(
    planted: Planted, tmp_path: Path, rule: dict[str, Any], reference: str, output: str | None, reason: str
) -> None:
    """`bg` has the highest log P of all, so only the rule keeps the search from it."""
    found = regard.diagnose(planted(beam=5, **rule), files=pairs(tmp_path, reference), sweep=())
    assert counts(found) == (1, 1, 1, 0)
    assert found.unreachable == {"search": {reason: 1}, "model": {}}
    assert output is None or found.judged[0].output == output


def test_no_repeated_ngram_forbids_a_reference(planted: Planted, tmp_path: Path) -> None:
    table: Table = {"<s>": {"a": 1.0}, "a": {"a": 0.6, "</s>": 0.4}}
    found = regard.diagnose(planted(table, beam=3, no_repeat_ngram=1), files=pairs(tmp_path, "aa", "a"), sweep=())
    assert [one.scored.forbidden for one in found.judged] == ["repeated n-gram", None]


def test_what_the_tokenizer_does_not_keep_is_no_search_error(tmp_path: Path, tiny_recipe: dict[str, Any]) -> None:
    """A lower-casing vocabulary writes `BG` as `bg`: the very tokens of the reference, spelt otherwise."""
    run = planted_run(tmp_path / "run", GARDEN, letters="abcdefgxyz", search={"beam": 2}, lowercase=True)
    files = pairs(tmp_path, "BG")
    found = regard.diagnose(run, files=files, length_penalty=0.0, sweep=())
    assert counts(found) == (1, 1, 0, 1)
    assert found.unreachable == {"search": {}, "model": {"same tokens": 1}}
    relaxed = regard.diagnose(
        run, files=files, length_penalty=0.0, overrides=["evaluation.lowercase=true"], sweep=()
    ).to_json()
    assert (relaxed["errors"], relaxed["not_exact"]) == (0, 1)


# Against plain loops


def draw_table(seed: int) -> Table:
    """Random probabilities over `a` to `d`, in which each letter may only be followed by later ones."""
    draw, table = random.Random(seed), {}
    for place, before in enumerate(["<s>", *"abcd"]):
        after = [*"abcd"[place:], *(["</s>"] if before != "<s>" else [])]
        weights = [draw.uniform(0.02, 1) ** 2 for _ in after]
        table[before] = {token: weight / sum(weights) for token, weight in zip(after, weights, strict=True)}
    return table


def outputs_of(table: Table) -> dict[str, float]:
    """Every output with its log P."""
    found: dict[str, float] = {}
    begun = [("", "<s>", 0.0)]
    while begun:
        written, before, total = begun.pop()
        for token, p in table[before].items():
            if token == "</s>":
                found[written] = total + math.log(p)
            else:
                begun.append((written + token, token, total + math.log(p)))
    return found


def plain_fall(table: Table, reference: str, beam: int) -> tuple[int, int] | None:
    """Step and rank at which a reference falls off, with DESIGN.md's semantics as loops; None if it does not."""
    wanted = [*reference, "</s>"]
    live: list[tuple[tuple[str, ...], float]] = [((), 0.0)]
    finished = 0
    for step in range(1, len(wanted) + 1):
        candidates = []
        for row, (written, total) in enumerate(live):
            followers = table[written[-1] if written else "<s>"]
            for place, token in enumerate(["</s>", *"abcd"]):
                log_p = math.log(followers[token]) if token in followers else IMPOSSIBLE
                candidates.append((-total - log_p, row, place, (*written, token)))
        ranked = sorted(candidates)
        rank = 1 + [written for *_, written in ranked].index(tuple(wanted[:step]))
        if rank > beam - finished:
            return step, rank
        taken = [(written, -minus) for minus, _, _, written in ranked[: beam - finished]]
        finished += sum(written[-1] == "</s>" for written, _ in taken)
        live = [(written, total) for written, total in taken if written[-1] != "</s>"]
    return None


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), beam=st.integers(1, 3), alpha=st.sampled_from([0.0, 1.0]))
def test_verdicts_and_falls_against_plain_loops(
    tmp_path_factory: pytest.TempPathFactory, seed: int, beam: int, alpha: float
) -> None:
    """Every output that the table allows is the reference once."""
    folder, table = tmp_path_factory.mktemp("random"), draw_table(seed)
    everything = outputs_of(table)
    run = planted_run(folder / "run", table, letters="abcdx", search={"beam": beam, "length_penalty": alpha})
    found = regard.diagnose(run, files=pairs(folder, *everything, sources="x"), sweep=())
    objective = {text: log_p / (len(text) + 1) ** alpha for text, log_p in everything.items()}
    for one in found.judged:
        wanted, output = one.scored.reference, one.output
        assert one.scored.log_p == pytest.approx(everything[wanted], abs=1e-4)
        assert one.scored.objective == pytest.approx(objective[wanted], abs=1e-4)
        assert one.written.objective == pytest.approx(objective[output], abs=1e-4)
        assert one.error == (wanted != output)
        if abs(objective[wanted] - objective[output]) > 1e-4:
            assert one.verdict == ("search" if objective[wanted] > objective[output] else "model")
    for example in [*found.examples["search"], *found.examples["model"]]:
        fell = plain_fall(table, example.judged.scored.reference, beam)
        if example.outcome.kind == "fell":
            assert (example.outcome.step, example.outcome.rank) == fell
        else:  # the search may be over before the reference falls
            assert fell is None or example.outcome.kind == "left"


@pytest.mark.parametrize(
    "options",
    [{"normalisation": "none"}, {"normalisation": "mean"}, {"normalisation": "wu", "length_penalty": 0.6},
     {"normalisation": "reward", "length_penalty": 0.7}, {"repetition_penalty": 1.5}, {"min_length": 3}],
)  # fmt: skip
def test_a_beam_as_wide_as_the_space_leaves_no_search_error(tmp_path: Path, options: dict[str, Any]) -> None:
    """Whatever the objective: the reference's is computed as the search computes its own."""
    table = draw_table(7)
    table["a"], table["b"] = {"b": 0.5, "</s>": 0.5}, {"a": 0.4, "c": 0.3, "</s>": 0.3}
    texts = ["ab", "abab", "bab", "b", "c", "d", "abc", "abcd", "cd"]
    run = planted_run(tmp_path / "run", table, letters="abcdx", search={"beam": 400, "max_length": 6} | options)
    found = regard.diagnose(run, files=pairs(tmp_path, *texts, sources="x"), sweep=())
    reachable = [one for one in found.judged if one.error and not one.unreachable]
    assert len(reachable) >= 3
    assert {one.verdict for one in reachable} == {"model"}


@pytest.mark.parametrize(
    "overrides", [["search.coverage_penalty=0.5"], ["search.normalisation=wu", "search.repetition_penalty=1.3"]]
)
def test_a_reference_is_scored_as_the_search_scores_it(tiny_run: Path, tmp_path: Path, overrides: list[str]) -> None:
    """The model's own outputs as references: what the search said of them, the diagnosis says again."""
    sources = ["abc", "hello", "re verse", "stone", "one two"]
    outputs = [one.output for one in regard.predict(tiny_run, sources, overrides=overrides)]
    file = write(
        tmp_path / "own.tsv", "".join(f"{pair[0]}\t{pair[1]}\n" for pair in zip(sources, outputs, strict=True))
    )
    found = regard.diagnose(tiny_run, files=[str(file)], overrides=overrides, sweep=())
    own = [one for one in found.judged if one.scored.tokens == one.written.tokens]
    assert len(own) >= 3
    for one in own:
        assert one.scored.objective == pytest.approx(one.written.objective, rel=1e-4)
        assert one.scored.log_p == pytest.approx(one.written.score, rel=1e-4)


# Shares, lengths, beams


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_against_published_intervals(count: int, of: int, low: float, high: float) -> None:
    """Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3."""
    assert wilson(count, of) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
    assert wilson(of - count, of) == (pytest.approx(1 - high, abs=5e-5), pytest.approx(1 - low, abs=5e-5))


def test_nothing_is_known_of_a_share_of_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_equal_scores_are_the_models_fault() -> None:
    assert verdict_of(-1.0, -1.0) == "model"
    assert verdict_of(-1.0, -1.000001) == "model"
    assert verdict_of(-1.0, -1.001) == "search"
    assert verdict_of(-1.001, -1.0) == "model"


def test_errors_by_source_length_by_hand(planted: Planted, tmp_path: Path) -> None:
    """Greedy search writes `af`. Sources of 1 letter: `bg` twice and `af`; of 3 letters: `ad` and `bg`."""
    lines = ["x\tbg", "xyz\tad", "y\tbg", "z\taf", "xyy\tbg"]
    file = write(tmp_path / "pairs.tsv", "\n".join(lines))
    found = regard.diagnose(planted(beam=1), files=[str(file)], sweep=())
    assert found.unit == "characters"
    (_, short), (_, long) = found.by_length
    assert [(bucket.shortest, bucket.longest) for bucket, _ in found.by_length] == [(1, 1), (3, 3)]
    assert (short.sentences, short.errors, short.search_errors, short.model_errors) == (3, 2, 2, 0)
    assert (long.sentences, long.errors, long.search_errors, long.model_errors) == (2, 2, 1, 1)
    assert short.chrf == pytest.approx(100 / 3)


def sweep_of(*columns: tuple[int, list[float]]) -> Sweep:
    """Widths with what the metric was for the first draw and for further ones."""
    none = Tally(1, 0, 0, 0, 0.0)
    return Sweep("chrf", tuple(Width(beam, 1.0, {"chrf": found[0]}, np.array(found), none) for beam, found in columns))


def test_the_point_where_wider_no_longer_pays() -> None:
    """Beam 2 is surely 5 points behind, beam 3 a twentieth of a point, beam 5 the best."""
    sweep = sweep_of((1, [10, 20, 30]), (2, [25, 35, 45]), (3, [29.95, 39.95, 49.95]), (5, [30, 40, 50]))
    assert sweep.best.beam == 5
    assert sweep.enough.beam == 3
    assert [row["enough"] for row in sweep.to_json()] == [False, False, True, False]
    assert sweep.behind(sweep.widths[0]) == Behind(20.0, 20.0, 20.0)


def test_a_difference_within_the_noise_does_not_pay() -> None:
    sweep = sweep_of((1, [40, 50, 0, 50, 0]), (2, [45, 0, 50, 51, 50]))
    assert sweep.best.beam == 2
    assert sweep.enough.beam == 1


def advised(found: float, wider: list[float], *, sentences: int = 40) -> str:
    """The first advice to one who has search errors alone, with a beam of 1 and a sweep of one wider beam."""
    tally = Tally(sentences, sentences, sentences, 0, 0.0)
    drawn = {1: [found] * len(wider), 5: wider}
    widths = (Width(beam, 1.0, {"chrf": one[0]}, np.array(one), tally) for beam, one in drawn.items())
    return next(advice(tally, (), 1, Sweep("chrf", tuple(widths))))


def test_no_beam_writes_better_only_where_none_does_in_the_sweep() -> None:
    """Better by more than 0.1 points, and surely so; better but perhaps by chance; not better."""
    assert advised(10.0, [11.0, 10.5, 11.5]).startswith("100 % search errors: raise the beam to 5 (chrF 10.0 -> 11.0")
    assert advised(10.0, [11.0, 8.0, 13.0]) == (
        "100 % search errors: a beam of 5 writes better (chrF 10.0 -> 11.0, 1.0 times the time), but with 40 sentences "
        "that may be chance. Measure more of them, or try that beam."
    )
    for wider in ([10.05, 10.02, 10.06], [9.0, 8.0, 9.5]):
        assert "no beam up to 5 writes better by more than 0.1 points of chrF" in advised(10.0, wider)


@pytest.mark.parametrize(
    ("search_errors", "what_for"), [(5, "for the others"), (0, "for outputs that come closer to them")]
)
def test_a_wider_beam_is_for_others_only_where_there_are_others(search_errors: int, what_for: str) -> None:
    tally = Tally(40, 40, search_errors, 40 - search_errors, 0.0)
    drawn = {1: [10.0, 10.0, 10.0], 5: [11.0, 10.5, 11.5]}
    widths = (Width(beam, 1.0, {"chrf": one[0]}, np.array(one), tally) for beam, one in drawn.items())
    said = next(advice(tally, (), 1, Sweep("chrf", tuple(widths))))
    assert said.endswith(
        f"would prefer these references; {what_for} raise the beam to 5 (chrF 10.0 -> 11.0, 1.0 times the time)."
    )


def test_few_sentences_prove_no_narrow_beam() -> None:
    """Beam 1 is two points behind, which may be chance: that is said, and not that it is as good."""
    none = Tally(20, 0, 0, 0, 0.0)
    drawn = {1: [40.0, 50.0, 30.0], 5: [42.0, 40.0, 50.0]}
    widths = (Width(beam, float(beam), {"chrf": one[0]}, np.array(one), none) for beam, one in drawn.items())
    [_, width] = advice(none, (), 5, Sweep("chrf", tuple(widths)))
    assert width == (
        "20 sentences cannot show that a beam of 5 writes better than one of 1, which takes 20 % of the time (chrF "
        "42.00 and 40.00)."
    )


def test_among_equals_the_narrowest_is_best() -> None:
    assert sweep_of((1, [10, 10]), (2, [20, 20]), (3, [20, 20])).best.beam == 2


def test_draws_spread_as_the_mean_of_a_sample_does() -> None:
    """Of 900 summaries 300 are right: the standard error of ROUGE is 100 sqrt(1/3 x 2/3 / 900)."""
    config = Summarization.evaluation()
    drawn = resampled(["a"] * 300 + ["b"] * 600, [["a"]] * 900, Summarization, config)
    assert drawn.mean() == pytest.approx(100 / 3, abs=0.2)
    assert drawn.std() == pytest.approx(100 * math.sqrt(2 / 9 / 900), rel=0.1)


def test_draws_are_of_sacrebleus_metric_and_the_same_for_all() -> None:
    from sacrebleu.metrics.chrf import CHRF

    texts, config = ["a cat", "two dogs ran", "no", "it is late"], Translation.evaluation()
    outputs = ["a cat", "two cats run", "yes", "it was late"]
    rows = np.random.default_rng(1).integers(0, 4, 4)
    by_hand = CHRF().corpus_score([outputs[row] for row in rows], [[texts[row] for row in rows]]).score
    drawn = resampled(outputs, [[one] for one in texts], Translation, config)
    assert drawn[0] == pytest.approx(by_hand)
    assert (drawn == resampled(outputs, [[one] for one in texts], Translation, config)).all()


# The command line


KEYS = {
    "sentences", "errors", "search_errors", "model_errors", "shares", "raw", "unreachable", "by_length", "beam_sweep",
    "compared_by", "enough_beam", "examples", "advice", "beam", "search", "bleu", "chrf", "exact_match", "not_exact",
    "seconds",
}  # fmt: skip


def test_json_has_the_keys_that_scripts_rely_on(tiny_run: Path) -> None:
    found = succeed("diagnose", tiny_run, "--json", "--beam", 3).json
    assert set(found) >= KEYS
    assert found["sentences"] == 15
    assert found["errors"] == found["search_errors"] + found["model_errors"]
    assert found["errors"] == sum(bucket["errors"] for bucket in found["by_length"])
    assert [row["beam"] for row in found["beam_sweep"]] == [1, 2, 3, 5, 10, 20]
    assert set(found["examples"]) == {"search_errors", "model_errors"}
    assert len(found["examples"]["model_errors"]) == min(20, found["model_errors"])
    evaluated = succeed("evaluate", tiny_run, "--json", "--beam", 3).json
    assert {name: found[name] for name in ("bleu", "chrf", "exact_match")} == pytest.approx(
        {name: evaluated[name] for name in ("bleu", "chrf", "exact_match")}
    )


def test_it_says_what_it_was_measured_on(tiny_run: Path, tmp_path: Path) -> None:
    """A run without a test set is measured by its validation set, and that is not passed over in silence."""
    quick = ("--no-sweep", "--limit", 2)
    found = succeed("diagnose", tiny_run, *quick, "--json").json
    assert (found["split"], found["note"]) == ("validation", "the run's recipe has no test set")
    out, expected = tmp_path / "page.html", "2 sentences of the validation set (the run's recipe has no test set)"
    assert expected in succeed("diagnose", tiny_run, *quick, "--out", out).out
    assert expected in html.unescape(out.read_text(encoding="utf-8"))
    asked = succeed("diagnose", tiny_run, *quick, "--split", "validation", "--json").json
    assert (asked["split"], "note" in asked) == ("validation", False)
    [file] = pairs(tmp_path, "ab", "bc", sources="ab")
    found = succeed("diagnose", tiny_run, *quick, "--file", file, "--json").json
    assert (found["files"], "split" in found) == ([file], False)


def test_scores_are_those_of_the_other_commands(tiny_run: Path, tmp_path: Path) -> None:
    found = succeed("diagnose", tiny_run, "--json", "--no-sweep", "--limit", 4).json
    assert found["beam_sweep"] == []
    assert found["sentences"] == 4
    for one in [*found["examples"]["search_errors"], *found["examples"]["model_errors"]]:
        score = succeed("score", tiny_run, one["source"], one["reference"], "--json").json["score"]
        [predicted] = succeed("predict", tiny_run, one["source"], "--json").jsons
        assert one["reference_log_p"] == pytest.approx(score, rel=1e-4)
        assert one["output"] == predicted["output"]
        assert one["output_log_p"] == pytest.approx(predicted["score"], rel=1e-4)


def test_the_terminal_says_it_in_words(planted: Planted, tmp_path: Path) -> None:
    run = planted(beam=1)
    files = [option for file in pairs(tmp_path, *["bg"] * 9, "ad") for option in ("--file", file)]
    out = succeed("diagnose", run.folder, *files).out
    assert re.search(r"search errors +9 +90 % \(60–98\)", out)
    assert re.search(r"model errors +1 +10 % \(2–40\)", out)
    assert "the reference fell off the beam at step 1, 'b': rank 2 for 1 open slot\n" in out
    assert "90 % search errors: raise the beam to 2" in out


def test_the_page_is_whole_and_needs_nothing_else(planted: Planted, tmp_path: Path) -> None:
    run, out = planted(beam=1), tmp_path / "report.html"
    files = [option for file in pairs(tmp_path, "bg", "ad", "<b>한국어</b> & mehr") for option in ("--file", file)]
    assert succeed("diagnose", run.folder, *files, "--out", out).out.endswith(f"written: {out}\n")
    written = out.read_text(encoding="utf-8")
    assert written.endswith("</html>\n")
    assert "&lt;b&gt;한국어&lt;/b&gt; &amp; mehr" in written
    assert "<b>" not in written
    assert "fell off the beam at step 1" in written


def test_a_page_without_errors_or_other_beams(planted: Planted, tmp_path: Path) -> None:
    found = regard.diagnose(planted(beam=2), files=pairs(tmp_path, "bg"), sweep=())
    assert [type(figure) for figure in found.report().figures] == [Bars]
    swept = regard.diagnose(planted(beam=2), files=pairs(tmp_path, "bg"))
    assert [type(figure) for figure in swept.report().figures] == [Bars, Curves, Curves]
    written = page(found.report())
    assert "there is nothing to mend here" in written
    assert "The worst" not in written


def test_progress_reaches_its_end_for_every_beam(planted: Planted, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    regard.diagnose(
        planted(beam=2), files=pairs(tmp_path, *["bg"] * 5), sweep=[1, 4], progress=lambda *one: told.append(one)
    )
    assert [one for one in told if one[1] == 5] == [("beam 1", 5, 5), ("beam 2", 5, 5), ("beam 4", 5, 5)]


# What users can get wrong


def test_bad_options(tiny_run: Path, tmp_path: Path) -> None:
    assert fail("diagnose", tiny_run, "--split", "tset") == ["--split: unknown split 'tset' (did you mean 'test'?)"]
    [message] = fail("diagnose", tiny_run, "--split", "test")
    assert message.startswith("data.test: the run's recipe has no test set")
    [message] = fail("diagnose", tiny_run, "--beam", 0)
    assert message.startswith("search.beam: ")
    assert fail("diagnose", tiny_run, "--limit", 0) == ["--limit: 0 sentences are none to diagnose (1 or more)"]
    [message] = fail("diagnose", tiny_run, "--out", tmp_path / "report.pdf")
    assert message == f"{tmp_path / 'report.pdf'}: cannot write a .pdf (allowed: .html)"
    [message] = fail("diagnose", tiny_run, "--out", tmp_path / "nowhere" / "report.html")
    assert f"there is no folder {tmp_path / 'nowhere'}" in message
    [message] = fail("diagnose", tiny_run, "--set", "search.sample=true")
    assert message == "search.sample: samples are not searched for (--set search.sample=false)"
    [message] = fail("diagnose", tiny_run, "--device", "tpu")
    assert message.startswith("--device: there is no device 'tpu' here")


def test_files_of_another_line_count(tiny_run: Path, tmp_path: Path) -> None:
    source, target = write(tmp_path / "a.txt", "ab\ncd\n"), write(tmp_path / "b.txt", "ba\n")
    [message] = fail("diagnose", tiny_run, "--file", source, "--file", target)
    assert "a.txt" in message
    assert "b.txt" in message


def test_mistakes_in_python_are_errors_of_ours(tiny_run: Path) -> None:
    with pytest.raises(ConfigError, match=r"search\.beam"):
        regard.diagnose(tiny_run, beam=0)
    with pytest.raises(ConfigError, match=r"search\.beam"):
        regard.diagnose(tiny_run, sweep=[0, 1])
    with pytest.raises(DataError, match="--limit"):
        regard.diagnose(tiny_run, limit=-1)
