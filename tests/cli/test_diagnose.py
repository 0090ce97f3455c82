"""Whose fault an error is, on runs whose probabilities are written by hand, and against plain
loops."""

import html
import math
import random
import re
from collections.abc import Callable
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF

import regard
from command_line import succeed, write
from planted import IMPOSSIBLE, Table, planted_run
from regard.errors import ConfigError
from regard.runs import Run
from regard.runs.examples import examples_of
from regard.tasks.summarization import RougeConfig, rouge
from regard.tasks.translation import BLEU_4, EvaluationConfig, translation_scores
from regard.views.advice import advice
from regard.views.beam_sweep import BeamResult, Gap, Sweep
from regard.views.diagnose import Diagnosis, resampled
from regard.views.metric_sums import text_metrics
from regard.views.page import page
from regard.views.report import Bars, Curves
from regard.views.search_errors import Share, Tally, score_references, verdict_of

END = {"</s>": 1.0}
GARDEN: Table = {
    "<s>": {"a": 0.5, "b": 0.3, "c": 0.2},
    "a": {"d": 0.3, "e": 0.3, "f": 0.4},
    "b": {"g": 0.9, "</s>": 0.1},
    **dict.fromkeys("cdefg", END),
}
"""Greedy search takes `a` and ends with `af`, P = 0.2; the best is `bg`, P = 0.27, which begins
less well."""
UNKNOWN_FIRST: Table = {**GARDEN, "<s>": {"<unk>": 0.5, "a": 0.3, "b": 0.2}, "<unk>": END}
"""`<unk>` alone has P = 0.5, more than any output."""

REPEATS: Table = {"<s>": {"a": 1.0}, "a": {"a": 0.5, "b": 0.3, "</s>": 0.2}, "b": END}

Diagnosed = Callable[..., Diagnosis]


def plant(folder: Path, table: Table = GARDEN, **search: Any) -> Run:
    return planted_run(
        folder / "run", table, letters="abcdefg xyz", search={"length_penalty": 0.0} | search
    )


def pairs(folder: Path, *targets: str, sources: str = "xyz") -> list[str]:
    lines = (
        f"{sources[number % len(sources)]}\t{target}\n" for number, target in enumerate(targets)
    )
    return [str(write(folder / "pairs.tsv", "".join(["source\ttarget\n", *lines])))]


@pytest.fixture
def diagnosed(tmp_path: Path) -> Diagnosed:
    """The diagnosis of a planted run with these references."""

    def diagnose(
        *targets: str,
        table: Table = GARDEN,
        sweep: Any = (),
        penalty: float | None = None,
        **search: Any,
    ) -> Any:
        files = pairs(tmp_path, *targets)
        return regard.diagnose(
            plant(tmp_path, table, **search), files=files, sweep=sweep, length_penalty=penalty
        )

    return diagnose


def counts(diagnosis: Diagnosis) -> tuple[int, ...]:
    return tuple(diagnosis.tally.counts.values())


def test_a_crippled_search_shows_search_errors(diagnosed: Diagnosed) -> None:
    diagnosis = diagnosed(*["bg"] * 40, beam=1, sweep=(1, 2, 3, 5, 10, 20))
    assert counts(diagnosis) == (40, 40, 40, 0, 0)
    assert diagnosis.raw["search_errors"] == 40
    [sentence] = diagnosis.advice
    assert sentence.startswith("100 % search errors: raise the beam to 2 (chrF 0.0 -> 100.0, ")
    assert diagnosis.beam_sweep is not None
    assert diagnosis.beam_sweep.enough.beam == 2
    assert [(width.beam, width.tally.search_errors) for width in diagnosis.beam_sweep.widths] == [
        (1, 40),
        (2, 0),
        (3, 0),
        (5, 0),
        (10, 0),
        (20, 0),
    ]
    mended = diagnosed(*["bg"] * 40, beam=2)
    assert counts(mended) == (40, 0, 0, 0, 0)
    assert mended.advice == [
        "No output is worse than its reference: there are no errors to correct."
    ]


def test_a_model_that_prefers_the_wrong_answer_shows_model_errors(diagnosed: Diagnosed) -> None:
    diagnosis = diagnosed(*["ad"] * 23, *["bg"] * 2, *["ae"] * 12, beam=5, sweep=(1, 5))
    assert counts(diagnosis) == (37, 35, 0, 35, 0)
    assert diagnosis.advice[0] == (
        "100 % model errors: longer training, more data or a larger model. No beam, however wide, "
        "would prefer these "
        "references."
    )
    example, _ = diagnosis.examples["model"][0]
    assert (example.output, example.scored.reference) == ("bg", "ad")
    assert (example.scored.best.score, example.written.score) == pytest.approx(
        (math.log(0.15), math.log(0.27))
    )
    assert len(diagnosis.examples["model"]) == 20


def test_the_verdict_follows_the_objective_and_the_raw_one_stands_beside_it(
    diagnosed: Diagnosed,
) -> None:
    """`c` has log P = log 0.22 over 2 tokens; the search writes `af`, log 0.2 over 3."""
    table = {**GARDEN, "<s>": {"a": 0.5, "b": 0.28, "c": 0.22}}
    raw = diagnosed("c", "b", table=table, beam=1).judged[0]
    assert (raw.verdict, raw.raw_verdict) == ("search", "search")
    normalised = diagnosed("c", "b", table=table, beam=1, penalty=1.0)
    short = normalised.judged[0]
    assert (short.verdict, short.raw_verdict) == ("model", "search")
    objectives = (short.scored.best.objective, short.written.objective)
    assert objectives == pytest.approx((math.log(0.22) / 2, math.log(0.2) / 3))
    assert normalised.to_json()["raw"] == {"search_errors": 1, "model_errors": 1, "rule_errors": 0}
    assert normalised.advice[0].startswith(
        "100 % model errors: longer training, more data or a larger model."
    )
    assert normalised.advice[1] == (
        "1 error is the model's only by the length normalisation, since the model gives the "
        "reference the higher log "
        "P: try a lower --length-penalty."
    )


@pytest.mark.parametrize(
    ("search", "reference", "outcome", "token"),
    [
        ({"beam": 1}, "bg", ("fell", 1, 2, 1), "b"),
        ({"beam": 1}, "c", ("fell", 1, 3, 1), "c"),
        ({"beam": 2}, "ad", ("fell", 2, 3, 2), "d"),  # behind bg with 0.27 and af with 0.2
        ({"beam": 2}, "ae", ("fell", 2, 4, 2), "e"),  # as probable as ad, which comes first
        (
            {"beam": 3},
            "b",
            ("fell", 2, 6, 3),
            "</s>",
        ),  # bg 0.27; c, af 0.2; ad, ae 0.15; then b 0.03
        # c, and the impossible empty output, have ended and keep their slots
        ({"beam": 5}, "ad", ("finished", 3, 3, 3), "</s>"),
        ({"beam": 5}, "한", ("forbidden", 1, None, 5), "<unk>"),
        # a penalty of 2 makes the second a count as 0.5^2 = 0.25, behind b with 0.3
        ({"beam": 1, "repetition_penalty": 2.0, "table": REPEATS}, "aa", ("fell", 2, 2, 1), "a"),
        # nothing can win any more against c
        (
            {"beam": 2, "table": {**GARDEN, "<s>": {"c": 0.6, "a": 0.4}}},
            "af",
            ("left", 2, None, 0),
            "f",
        ),
    ],
)
def test_what_became_of_a_reference_by_hand(
    diagnosed: Diagnosed,
    search: dict[str, Any],
    reference: str,
    outcome: tuple[Any, ...],
    token: str,
) -> None:
    diagnosis = diagnosed(reference, **search)
    [(_, found)] = [*diagnosis.examples["search"], *diagnosis.examples["model"]]
    assert astuple(found) == (*outcome, token)


def test_what_the_vocabulary_cannot_write_is_the_models_fault(
    diagnosed: Diagnosed, tmp_path: Path
) -> None:
    """`한` is `<unk>`, which is likelier than all that may be written: no search error for all
    that."""
    diagnosis = diagnosed(*["한"] * 40, table=UNKNOWN_FIRST, beam=5, sweep=(1, 5))
    sentence = diagnosis.judged[0]
    assert sentence.scored.best.score == pytest.approx(math.log(0.5))
    assert sentence.scored.best.score > sentence.written.score
    assert counts(diagnosis) == (40, 40, 0, 40, 0)
    assert diagnosis.raw["search_errors"] == 0
    assert diagnosis.unreachable == {"search": {}, "model": {"unknown token": 40}, "rule": {}}
    assert diagnosis.advice[0] == (
        "100 % model errors, 40 of them because the reference contains unknown tokens, which no "
        "search could write: use a larger vocabulary, or one of sub-words or bytes. No beam, "
        "however wide, would prefer these references."
    )
    assert not any(
        "Train longer" in sentence or "raise the beam" in sentence for sentence in diagnosis.advice
    )
    example = diagnosis.to_json()["examples"]["model_errors"][0]
    assert (
        example["note"]
        == "the reference is scored with <unk> for its unknown tokens, not as the text itself"
    )
    assert "is scored with &lt;unk&gt;" in page(diagnosis.report())
    run, files = plant(tmp_path, UNKNOWN_FIRST, beam=5), pairs(tmp_path, "한", "한", "bg", "ad")
    assert (
        "is scored with <unk>"
        in succeed("diagnose", run.folder, "--file", *files, "--no-sweep").out
    )
    other = write(tmp_path / "other.txt", "a\nb\nc\nd\n")
    row = regard.compare([run], files=files, hypotheses={"other": str(other)}).tables["errors"][0]
    assert (row["search_errors"], row["model_errors"]) == counts(
        regard.diagnose(run, files=files, sweep=())
    )[2:4]
    assert row["model_errors"] >= 2


def test_of_several_references_one_is_judged_by_that_can_be_written(tmp_path: Path) -> None:
    """Of `ad`, `한` and `bg` the second has the highest score, that of `<unk>`."""
    run = plant(tmp_path, UNKNOWN_FIRST, beam=1)
    dataset = examples_of(run, None, pairs(tmp_path, "ad", "한", "bg", sources="x"))
    [scored] = score_references(run, run.load_model(), dataset, [[0, 1, 2]])
    assert (scored.reference, scored.references, scored.unknown) == (
        "bg",
        ("ad", "한", "bg"),
        False,
    )


@pytest.mark.parametrize(
    ("rule", "output", "reason"),
    [
        ({"max_length": 2}, "c", "maximum length"),
        ({"min_length": 4}, None, "minimum length"),
        ({"banned": ["g"]}, "c", "banned"),
        ({"prefix": "a"}, "af", "prefix"),
    ],
)
def test_references_against_a_rule(
    diagnosed: Diagnosed, rule: dict[str, Any], output: str | None, reason: str
) -> None:
    """`bg` has the highest log P of all, so only the rule keeps the search from it."""
    diagnosis = diagnosed("bg", beam=5, sweep=(1, 5), **rule)
    assert counts(diagnosis) == (1, 1, 0, 0, 1)
    assert diagnosis.to_json()["raw"] == {"search_errors": 0, "model_errors": 0, "rule_errors": 1}
    [sentence] = diagnosis.advice
    assert sentence.startswith("In 100 % of the errors no search could give the reference: ")
    assert diagnosis.unreachable == {"search": {}, "model": {}, "rule": {reason: 1}}
    assert output is None or diagnosis.judged[0].output == output


def test_rules_that_forbid_other_references(diagnosed: Diagnosed) -> None:
    """What first keeps the search from `g한` is the ban; but without it the search could not write
    it either."""
    repeated = diagnosed("aa", "a", table=REPEATS, beam=3, no_repeat_ngram=1)
    assert [sentence.scored.forbidden for sentence in repeated.judged] == ["repeated n-gram", None]
    banned = diagnosed("g한", table=UNKNOWN_FIRST, beam=5, banned=["g"])
    assert banned.judged[0].scored.forbidden == "banned"
    assert banned.unreachable == {"search": {}, "model": {"unknown token": 1}, "rule": {}}


def test_what_the_tokenizer_does_not_keep_is_no_search_error(tmp_path: Path) -> None:
    """A lower-casing vocabulary writes `BG` as `bg`: the very tokens of the reference, spelt
    otherwise."""
    run = planted_run(
        tmp_path / "run", GARDEN, letters="abcdefgxyz", search={"beam": 2}, lowercase=True
    )
    files = pairs(tmp_path, "BG")
    diagnosis = regard.diagnose(run, files=files, length_penalty=0.0, sweep=())
    assert counts(diagnosis) == (1, 1, 0, 1, 0)
    assert diagnosis.unreachable == {"search": {}, "model": {"same tokens": 1}, "rule": {}}
    overrides = ["evaluation.lowercase=true"]
    relaxed = regard.diagnose(
        run, files=files, length_penalty=0.0, overrides=overrides, sweep=()
    ).to_json()
    assert (relaxed["errors"], relaxed["not_exact"]) == (0, 1)


def draw_table(seed: int) -> Table:
    """Random probabilities over `a` to `d`, in which each letter may only be followed by later
    ones."""
    draw, table = random.Random(seed), {}
    for place, before in enumerate(["<s>", *"abcd"]):
        after = [*"abcd"[place:], *(["</s>"] if before != "<s>" else [])]
        weights = [draw.uniform(0.02, 1) ** 2 for _ in after]
        table[before] = {
            token: weight / sum(weights) for token, weight in zip(after, weights, strict=True)
        }
    return table


def outputs_of(
    table: Table, written: str = "", before: str = "<s>", total: float = 0.0
) -> dict[str, float]:
    """Every output with its log P."""
    outputs: dict[str, float] = {}
    for token, p in table[before].items():
        log_p = total + math.log(p)
        outputs |= (
            {written: log_p}
            if token == "</s>"
            else outputs_of(table, written + token, token, log_p)
        )
    return outputs


def plain_fall(table: Table, reference: str, beam: int) -> tuple[int, int] | None:
    """Step and rank at which a reference falls off, with DESIGN.md's semantics as loops; None if it
    does not."""
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


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), beam=st.integers(1, 3), alpha=st.sampled_from([0.0, 1.0]))
def test_verdicts_by_plain_loops(
    tmp_path_factory: pytest.TempPathFactory, seed: int, beam: int, alpha: float
) -> None:
    """Every output that the table allows is the reference once."""
    folder, table = tmp_path_factory.mktemp("random"), draw_table(seed)
    everything = outputs_of(table)
    run = planted_run(
        folder / "run", table, letters="abcdx", search={"beam": beam, "length_penalty": alpha}
    )
    diagnosis = regard.diagnose(run, files=pairs(folder, *everything, sources="x"), sweep=())
    objective = {text: log_p / (len(text) + 1) ** alpha for text, log_p in everything.items()}
    for sentence in diagnosis.judged:
        wanted, output = sentence.scored.reference, sentence.output
        assert sentence.scored.best.score == pytest.approx(everything[wanted], abs=1e-4)
        assert sentence.scored.best.objective == pytest.approx(objective[wanted], abs=1e-4)
        assert sentence.written.objective == pytest.approx(objective[output], abs=1e-4)
        assert sentence.error == (wanted != output)
        if abs(objective[wanted] - objective[output]) > 1e-4:
            assert sentence.verdict == (
                "search" if objective[wanted] > objective[output] else "model"
            )
    for judged, outcome in [*diagnosis.examples["search"], *diagnosis.examples["model"]]:
        fell = plain_fall(table, judged.scored.reference, beam)
        if outcome.kind == "fell":
            assert (outcome.step, outcome.rank) == fell
        else:  # the search may be over before the reference falls
            assert fell is None or outcome.kind == "left"


@pytest.mark.parametrize(
    "options",
    [
        {"normalisation": "none"},
        {"normalisation": "mean"},
        {"normalisation": "wu", "length_penalty": 0.6},
        {"normalisation": "reward", "length_penalty": 0.7},
        {"repetition_penalty": 1.5},
        {"min_length": 3},
    ],
)
def test_a_beam_as_wide_as_the_space_leaves_no_search_error(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """Whatever the objective: the reference's is computed as the search computes its own."""
    table = draw_table(7)
    table["a"], table["b"] = {"b": 0.5, "</s>": 0.5}, {"a": 0.4, "c": 0.3, "</s>": 0.3}
    texts = ["ab", "abab", "bab", "b", "c", "d", "abc", "abcd", "cd"]
    run = planted_run(
        tmp_path / "run", table, letters="abcdx", search={"beam": 400, "max_length": 6} | options
    )
    diagnosis = regard.diagnose(run, files=pairs(tmp_path, *texts, sources="x"), sweep=())
    reachable = [error for error in diagnosis.errors if not error.unreachable]
    assert len(reachable) >= 3
    assert {error.verdict for error in reachable} == {"model"}


@pytest.mark.parametrize(
    "overrides",
    [["search.coverage_penalty=0.5"], ["search.normalisation=wu", "search.repetition_penalty=1.3"]],
)
def test_a_reference_is_scored_as_the_search_scores_it(
    tiny_run: Path, tmp_path: Path, overrides: list[str]
) -> None:
    """The model's own outputs as references: the diagnosis gives them the scores of the search."""
    sources = ["abc", "hello", "re verse", "stone", "one two"]
    predicted = regard.predict(tiny_run, sources, overrides=overrides)
    lines = [f"{prediction.input}\t{prediction.output}\n" for prediction in predicted]
    file = write(tmp_path / "own.tsv", "".join(["source\ttarget\n", *lines]))
    diagnosis = regard.diagnose(tiny_run, files=[str(file)], overrides=overrides, sweep=())
    own = [
        sentence
        for sentence in diagnosis.judged
        if sentence.scored.best.tokens == sentence.written.tokens
    ]
    assert len(own) >= 3
    for sentence in own:
        scores = (sentence.written.objective, sentence.written.score)
        assert (sentence.scored.best.objective, sentence.scored.best.score) == pytest.approx(
            scores, rel=1e-4
        )


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (0, 0, 0, 1),
    ],
)
def test_wilson_against_published_intervals(count: int, of: int, low: float, high: float) -> None:
    """Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method
    3."""
    assert Share.of(count, of)[1:] == pytest.approx((low, high), abs=5e-5)
    assert Share.of(of - count, of)[1:] == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_equal_scores_are_the_models_fault() -> None:
    outputs = (-1.0, -1.000001, -1.001, -0.999)
    assert [verdict_of(-1.0, output) for output in outputs] == ["model", "model", "search", "model"]


def test_errors_by_source_length_by_hand(tmp_path: Path) -> None:
    """Greedy search writes `af`. Sources of 1 letter: `bg` twice and `af`; of 3 letters: `ad` and
    `bg`."""
    file = write(tmp_path / "pairs.tsv", "source\ttarget\nx\tbg\nxyz\tad\ny\tbg\nz\taf\nxyy\tbg")
    unit, by_length = regard.diagnose(
        plant(tmp_path, beam=1), files=[str(file)], sweep=()
    ).by_length
    rows = [
        (bucket.shortest, bucket.longest, *tally.counts.values()) for bucket, tally in by_length
    ]
    assert (unit, rows) == ("characters", [(1, 1, 3, 2, 2, 0, 0), (3, 3, 2, 2, 1, 1, 0)])
    assert by_length[0][1].chrf == pytest.approx(100 / 3)


def sweep_of(draws: dict[int, list[float]], tally: Tally, beam: int = 1) -> Sweep:
    """Widths with what the metric was for all sentences, the first value, and for draws; seconds
    are the width."""
    widths = [
        BeamResult(width, float(width), {"chrf": own[0]}, np.array(own), tally)
        for width, own in draws.items()
    ]
    return Sweep("chrf", widths, beam)


NONE = Tally(20, 0, 0, 0, 0, 0.0)


@pytest.mark.parametrize(
    ("draws", "best", "enough"),
    [
        # Beam 2 is surely 5 points behind, beam 3 a twentieth of a point, beam 5 the best.
        ({1: [10, 20, 30], 2: [25, 35, 45], 3: [29.95, 39.95, 49.95], 5: [30, 40, 50]}, 5, 3),
        (
            {1: [40, 50, 0, 50, 0], 2: [45, 0, 50, 51, 50]},
            2,
            1,
        ),  # a difference within the noise does not pay
        ({1: [10, 10], 2: [20, 20], 3: [20, 20]}, 2, 2),  # among equals the narrowest is best
    ],
)
def test_the_point_where_wider_no_longer_pays(
    draws: dict[int, list[float]], best: int, enough: int
) -> None:
    sweep = sweep_of(draws, NONE)
    assert (sweep.best.beam, sweep.enough.beam) == (best, enough)
    assert [row["beam"] for row in sweep.to_json() if row["enough"]] == [enough]
    if best == 5:
        assert sweep.behind(sweep.widths[0]) == Gap(20.0, 20.0, 20.0)


TO_5 = "raise the beam to 5 (chrF 10.0 -> 11.0, 5.0 times the time)."
NO_BEAM = (
    "model errors: longer training, more data or a larger model. No beam, however wide, "
    "would prefer these references;"
)
TRAIN = (
    ", but no beam up to 5 writes better by more than 0.1 points of chrF: the references leave "
    "the beam too early. Train longer, so that the model rates their beginnings higher."
)
CHANCE = (
    ": a beam of 5 writes better (chrF 10.0 -> 11.0, 5.0 times the time), but with 40 sentences "
    "that may be chance. "
    "Measure more of them, or try that beam."
)


@pytest.mark.parametrize(
    ("search_errors", "wider", "expected"),
    [
        (
            40,
            [11.0, 10.5, 11.5],
            f"100 % search errors: {TO_5}",
        ),  # better by more than 0.1 points, and surely so
        (40, [11.0, 8.0, 13.0], f"100 % search errors{CHANCE}"),
        (40, [10.05, 10.02, 10.06], f"100 % search errors{TRAIN}"),
        (40, [9.0, 8.0, 9.5], f"100 % search errors{TRAIN}"),
        # A wider beam is for the others only where there are others.
        (5, [11.0, 10.5, 11.5], f"88 % {NO_BEAM} for the others {TO_5}"),
        (0, [11.0, 10.5, 11.5], f"100 % {NO_BEAM} for outputs that come closer to them {TO_5}"),
    ],
)
def test_advice_by_what_a_wider_beam_gives(
    search_errors: int, wider: list[float], expected: str
) -> None:
    tally = Tally(40, 40, search_errors, 40 - search_errors, 0, 0.0)
    assert next(advice(tally, (), 1, sweep_of({1: [10.0] * 3, 5: wider}, tally))) == expected


def test_advice_where_beams_find_what_is_as_wrong() -> None:
    """The widest beam leaves 10 of 40 search errors, and its outputs are no better."""
    tally = Tally(40, 40, 40, 0, 0, 0.0)
    now, widest = sweep_of({1: [10.0] * 3, 5: [10.0] * 3}, tally).widths
    sweep = Sweep("chrf", [now, replace(widest, tally=Tally(40, 40, 10, 30, 0, 0.0))], 1)
    assert next(advice(tally, (), 1, sweep)) == (
        "100 % search errors, but no beam up to 5 writes better by more than 0.1 points of chrF, "
        "and the outputs that the model prefers to the references are just as wrong: longer "
        "training, more data or a larger model."
    )


BETTER, UNSURE, WORSE = [42.0, 41.0, 43.0], [41.0, 42.0, 42.5], [38.0, 37.0, 39.0]
"""Beam 5 may be as good as 1 by chance; 10 and 20 are behind in every draw."""
WRITES_WORSE = (
    "writes worse than one of 1: it finds what the model prefers, and that is "
    "wrong. Look at the length "
)


@pytest.mark.parametrize(
    ("draws", "beam", "expected"),
    [
        # Beam 1 is two points behind, which may be chance: that is the advice, and not that it is
        # as good.
        (
            {1: [40.0, 50.0, 30.0], 5: [42.0, 40.0, 50.0]},
            5,
            [
                "20 sentences cannot show that a beam of 5 writes better than one of 1, which "
                "takes 20 % of the time "
                "(chrF 42.00 and 40.00)."
            ],
        ),
        (
            {1: BETTER, 5: [40.0, 39.0, 41.0]},
            5,
            [
                "A beam of 5 writes worse than one of 1, which takes 20 % of the time (chrF 40.00 "
                "and 42.00).",
                f"A beam of 5 {WRITES_WORSE}normalisation.",
            ],
        ),
        (
            {1: BETTER, 5: UNSURE, 10: WORSE, 20: WORSE},
            1,
            [f"A beam of 10 or more {WRITES_WORSE}normalisation."],
        ),
        ({1: BETTER, 5: UNSURE, 20: WORSE}, 1, [f"A beam of 20 {WRITES_WORSE}normalisation."]),
    ],
)
def test_advice_on_other_beams(
    draws: dict[int, list[float]], beam: int, expected: list[str]
) -> None:
    [_, *found] = advice(NONE, (), beam, sweep_of(draws, NONE, beam))
    assert found == expected


def test_draws_are_of_sacrebleus_metric_or_the_mean_of_sentences_and_the_same_for_all() -> None:
    texts, outputs = (
        ["a cat", "two dogs ran", "no", "it is late"],
        ["a cat", "two cats run", "yes", "it was late"],
    )
    rows = np.random.default_rng(1).integers(0, 4, 4)
    by_hand = (
        CHRF().corpus_score([outputs[row] for row in rows], [[texts[row] for row in rows]]).score
    )
    config = EvaluationConfig()
    scores = partial(translation_scores, config=config)
    [measure] = text_metrics(["chrf"], scores, config, BLEU_4).values()
    drawn, again = (resampled(outputs, [[text] for text in texts], measure) for _ in range(2))
    assert drawn[0] == pytest.approx(by_hand)
    assert (drawn == again).all()
    # Of 900 summaries 300 are right: the standard error of ROUGE is 100 sqrt(1/3 x 2/3 / 900).
    config_of_rouge = RougeConfig()
    scores = partial(rouge, config=config_of_rouge)
    [measure] = text_metrics(["rouge1"], scores, config_of_rouge, {}).values()
    drawn = resampled(["a"] * 300 + ["b"] * 600, [["a"]] * 900, measure)
    assert drawn.std() == pytest.approx(100 * math.sqrt(2 / 9 / 900), rel=0.1)


def test_counts_metrics_and_scores_are_those_of_the_other_commands(tiny_run: Path) -> None:
    """What keys JSON has is in the snapshots."""
    tree = succeed("diagnose", tiny_run, "--json", "--beam", 3).json
    assert tree["sentences"] == 15
    assert tree["errors"] == tree["search_errors"] + tree["model_errors"]
    assert tree["errors"] == sum(bucket["errors"] for bucket in tree["by_length"])
    assert [row["beam"] for row in tree["beam_sweep"]] == [1, 2, 3, 5, 10, 20]
    assert len(tree["examples"]["model_errors"]) == min(20, tree["model_errors"])
    evaluated = succeed("evaluate", tiny_run, "--json", "--beam", 3).json
    for name in ("bleu", "chrf", "exact_match"):
        assert tree[name] == pytest.approx(evaluated[name])
    for example in [*tree["examples"]["search_errors"][:2], *tree["examples"]["model_errors"][:2]]:
        score = succeed("score", tiny_run, example["source"], example["reference"], "--json").json[
            "score"
        ]
        [predicted] = succeed("predict", tiny_run, example["source"], "--beam", 3, "--json").jsons
        assert example["reference_log_p"] == pytest.approx(score, rel=1e-4)
        assert example["output"] == predicted["output"]
        assert example["output_log_p"] == pytest.approx(predicted["score"], rel=1e-4)


def test_it_says_what_it_was_measured_on(tiny_run: Path, tmp_path: Path) -> None:
    """A run without a test set is measured by its validation set, and that is not passed over in
    silence."""
    out, expected = (
        tmp_path / "page.html",
        "2 sentences of the validation set (the run's recipe has no test set)",
    )
    assert expected in succeed("diagnose", tiny_run, "--no-sweep", "--limit", 2, "--out", out).out
    assert expected in html.unescape(out.read_text(encoding="utf-8"))
    [file] = pairs(tmp_path, "ab", "bc", sources="ab")
    for option, value, kept in (("--split", "validation", "validation"), ("--file", file, [file])):
        tree = succeed(
            "diagnose", tiny_run, "--no-sweep", "--limit", 2, option, value, "--json"
        ).json
        assert {name: tree[name] for name in ("split", "files", "note") if name in tree} == {
            "files" if option == "--file" else "split": kept
        }


def test_the_terminal_and_the_page_say_it_in_words(tmp_path: Path) -> None:
    run, out = plant(tmp_path, beam=1), tmp_path / "report.html"
    [file] = pairs(tmp_path, *["bg"] * 8, "ad", "<b>한국어</b> & mehr")
    printed = succeed("diagnose", run.folder, "--file", file, "--out", out).out
    assert printed.endswith(f"written: {out}\n")
    assert re.search(r"search errors +8 +80 % \(49–94\)", printed)
    assert re.search(r"model errors +2 +20 % \(6–51\)", printed)
    assert "the reference fell off the beam at step 1, 'b': rank 2 for 1 open slot\n" in printed
    assert "80 % search errors: raise the beam to 2" in printed
    written = out.read_text(encoding="utf-8")
    assert written.endswith("</html>\n")
    assert "&lt;b&gt;한국어&lt;/b&gt; &amp; mehr" in written
    assert "<b>" not in written
    assert "fell off the beam at step 1" in written


def test_a_page_without_errors_or_other_beams(tmp_path: Path) -> None:
    run, files, calls = (
        plant(tmp_path, beam=2),
        pairs(tmp_path, *["bg"] * 5),
        list[tuple[str, int, int]](),
    )
    report = regard.diagnose(run, files=files, sweep=()).report()
    assert [type(figure) for figure in report.figures] == [Bars]
    written = page(report)
    assert "there are no errors to correct" in written
    assert "The worst" not in written
    swept = regard.diagnose(
        run, files=files, sweep=[1, 4], progress=lambda *call: calls.append(call)
    )
    assert [type(figure) for figure in swept.report().figures] == [Bars, Curves, Curves]
    with pytest.raises(ConfigError, match=r"search\.beam"):
        regard.diagnose(run, files=files, sweep=[0, 1])
    assert [call for call in calls if call[1] == 5] == [
        ("beam 1", 5, 5),
        ("beam 2", 5, 5),
        ("beam 4", 5, 5),
    ]
