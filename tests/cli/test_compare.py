"""Several runs on the same sentences: who is better, by how much, and whether that is chance."""

from __future__ import annotations

import copy
import csv
import html
import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY
from rich.cells import cell_len
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

import regard
from command_line import contents, fail, succeed, write
from places import ROOT
from regard.config import apply_overrides
from regard.errors import DataError
from regard.recipes.recipe import load_recipe
from regard.runs import Run
from regard.tasks.captioning import Captioning
from regard.tasks.summarization import RougeConfig, Summarization
from regard.tasks.translation import EvaluationConfig, Translation
from regard.training.train import train
from regard.views.compare import Comparison, compare
from regard.views.compare_report import findings, verdict
from regard.views.lengths import length_buckets, lengths_in, unit_of
from regard.views.metrics import main_metric, score_text, title
from regard.views.page import page
from regard.views.report import Curves, HeatMaps
from regard.views.significance import paired_tests_of_texts
from regard.views.systems import System, differences, groups_of, names_of
from regard.views.terminal import show

TEST = {"corpus": "reverse", "size": 30}
RUNS = {
    "seed-1": {},
    "seed-2": {"training.seed": 2},
    "plain": {"model": "{kind: rnn, preset: tiny, embedding: 16, hidden: 16}", "training.steps": 15},
}
"""Folder -> what differs from the tiny recipe."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("compared")
    tree = copy.deepcopy(TINY)
    tree["data"] |= {"test": TEST, "validation": {"corpus": "reverse", "size": 10}}
    for name, changes in RUNS.items():
        train(tree, [f"{key}={value}" for key, value in changes.items()], out=folder / name, quiet=True)
    return {name: folder / name for name in RUNS}


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, runs: Mapping[str, Path]) -> Path:
    """The outputs of a system that reads the sentences backwards, but for the first ten."""
    pairs = list(pairs_of(runs["plain"]))
    lines = [source if row < 10 else target for row, (source, target) in enumerate(pairs)]
    return write(tmp_path_factory.mktemp("other") / "outputs.txt", "".join(f"{line}\n" for line in lines))


def pairs_of(folder: Path) -> list[tuple[str, str]]:
    from regard.runs.settings import examples_of

    dataset = examples_of(Run.open(folder), "test")
    return list(zip(dataset.texts["source"], dataset.texts["target"], strict=True))


@pytest.fixture(scope="module")
def found(runs: Mapping[str, Path], other: Path) -> Comparison:
    return compare(list(runs.values()), hypotheses={"다른": other})


def page_of(found: Comparison) -> str:
    return page(found.report())


# ----------------------------------------------------------------------------------------------------------- metrics


def test_outputs_and_metrics_are_those_of_predict_and_evaluate(found: Comparison, runs: Mapping[str, Path]) -> None:
    for row in found.tables["systems"][:3]:
        measured = regard.evaluate(runs[row["system"]], split="test")
        assert {name: row[name] for name in found.metrics} == {name: measured[name] for name in found.metrics}
    sources = [source for source, _ in pairs_of(runs["seed-1"])]
    assert list(found.systems[0].outputs) == [one.output for one in regard.predict(runs["seed-1"], sources)]


def theirs_of(found: Comparison, pairs: list[tuple[str, str]], test: str) -> dict[str, list[Any]]:
    """sacreBLEU's own results, by our names for the metrics."""
    named = [(one.name, list(one.outputs)) for one in found.systems]
    references = [target for _, target in pairs]
    _, theirs = PairedTest(named, {"bleu": BLEU(), "chrf": CHRF()}, [references], test_type=test)()
    return {"bleu": theirs["BLEU"], "chrf": theirs["chrF2"]}


@pytest.fixture(scope="module")
def pairs(runs: Mapping[str, Path]) -> list[tuple[str, str]]:
    """The sentences that are compared on."""
    return pairs_of(runs["plain"])


def test_scores_and_the_bootstrap_are_those_of_sacrebleu(found: Comparison, pairs: list[tuple[str, str]]) -> None:
    for metric, theirs in theirs_of(found, pairs, "bs").items():
        ours = [row for row in found.tables["significance"] if row["metric"] == metric]
        assert [row["score"] for row in ours] == [one.score for one in theirs]
        assert [row["p_bootstrap"] for row in ours] == [one.p_value for one in theirs]
        assert [row["interval"] for row in ours] == [one.ci for one in theirs]
        assert (ours[0]["difference"], ours[0]["p_bootstrap"], ours[0]["p_randomisation"]) == (0, None, None)


def test_randomisation_is_that_of_sacrebleu_where_no_swap_gives_the_very_difference(
    found: Comparison, pairs: list[tuple[str, str]]
) -> None:
    """Other draws of 30 sentences, so up to their noise: the standard error of a share of 10,000 is at most 0.005."""
    for metric, theirs in theirs_of(found, pairs, "ar").items():
        ours = [row for row in found.tables["significance"] if row["metric"] == metric]
        for row, other in zip(ours[1:], theirs[1:], strict=True):
            assert row["p_randomisation"] == pytest.approx(other.p_value, abs=0.02)


def every_swap(good: list[str], bad: list[str], references: list[str], score: Any) -> float:
    """The p-value of the randomisation test, with each of the ways to swap instead of 10,000 drawn ones."""
    observed = abs(score(good, references) - score(bad, references))
    as_large = [
        abs(score(one, references) - score(other, references)) >= observed - 1e-9
        for swaps in product((False, True), repeat=len(references))
        for one, other in [zip(*((b, g) if swap else (g, b) for g, b, swap in zip(good, bad, swaps, strict=True)),
                               strict=True)]
    ]  # fmt: skip
    return sum(as_large) / len(as_large)


def hits(outputs: Any, references: list[str]) -> float:
    return sum(map(str.__eq__, outputs, references)) / len(references)


def bleu(outputs: Any, references: list[str]) -> float:
    return float(BLEU().corpus_score(list(outputs), [references]).score)


def chrf(outputs: Any, references: list[str]) -> float:
    return float(CHRF().corpus_score(list(outputs), [references]).score)


@pytest.mark.parametrize(("metric", "score"), [("exact_match", hits), ("bleu", bleu), ("chrf", chrf)])
def test_randomisation_against_all_swaps_there_are(metric: str, score: Any) -> None:
    references = ["the cat sat on a mat", "two dogs ran far off", "it is late by now", "no one was there",
                  "she reads a long book", "he went home at noon", "we all saw the sea"]  # fmt: skip
    good = [*references[:6], "we all"]
    bad = [*references[:2], "it was late", "there was no one", "she a book", "he went home at noon", "the sea"]
    outputs = {"bad": bad, "good": good}
    [_, tested] = paired_tests_of_texts(
        outputs, [[one] for one in references], Translation, EvaluationConfig(), [metric]
    )
    expected = every_swap(good, bad, references, score)
    assert 0.01 < expected < 0.5
    assert tested.p_randomisation == pytest.approx(expected, abs=0.02)
    assert tested.difference == pytest.approx(score(good, references) - score(bad, references))


@pytest.mark.parametrize("sentences", [1, 2, 5])
def test_a_handful_of_sentences_is_never_significant(sentences: int) -> None:
    """All outputs of one system are right and all of the other wrong: the least p-value there is, 2 / 2^n."""
    references = ["the cat sat on a mat", "two dogs ran far off", "it is late by now", "no", "she reads"][:sentences]
    outputs = {"bad": ["x y z w"] * sentences, "good": references}
    metrics = ["exact_match", "bleu", "chrf"]
    found = paired_tests_of_texts(outputs, [[one] for one in references], Translation, EvaluationConfig(), metrics)
    for tested in found:
        assert not tested.significant
        if tested.system == "good":
            assert tested.p_randomisation == pytest.approx(2 / 2**sentences, abs=0.02)


def test_more_than_one_reference_is_measured_as_sacrebleu_does() -> None:
    references = [["a red car", "the car is red"], ["a dog"], ["no", "none", "not one"]]
    outputs = {"one": ["a red dog", "a dog", "zero"], "other": ["the car is red", "dog", "none"]}
    found = paired_tests_of_texts(outputs, references, Captioning, EvaluationConfig(), ["bleu1", "chrf", "exact_match"])
    streams = [["a red car", "a dog", "no"], ["the car is red", None, "none"], [None, None, "not one"]]
    for one, other in (found[:2], found[2:4]):
        metric = {"bleu1": BLEU(max_ngram_order=1), "chrf": CHRF()}[one.metric]
        theirs = [metric.corpus_score(written, streams).score for written in outputs.values()]  # type: ignore[attr-defined]
        assert [one.score, other.score] == pytest.approx(theirs)
    assert [one.score for one in found[4:]] == pytest.approx([1 / 3, 2 / 3])


def test_a_system_is_never_significantly_different_from_itself(runs: Mapping[str, Path]) -> None:
    twice = compare([runs["plain"], runs["plain"]])
    assert len(twice.groups) == 2  # the same seed twice is no second seed
    assert twice.tables["differ_most"] == []
    assert twice.tables["recipes"] == []
    again = [row for row in twice.tables["significance"] if row["system"] != twice.baseline]
    assert [(row["difference"], row["p_bootstrap"], row["p_randomisation"]) for row in again] == [(0, 1, 1)] * 3
    assert not any(row["significant"] for row in again)
    assert all("the same as" in sentence for sentence in findings(twice))
    assert "The recipes are the same." in page_of(twice)


def test_a_clear_difference_is_significant_and_so_said(found: Comparison) -> None:
    row = next(row for row in found.tables["significance"] if (row["metric"], row["system"]) == ("exact_match", "다른"))
    assert row["significant"]
    assert row["difference"] > 0.3
    assert any(sentence.startswith("다른: BLEU") and "significant" in sentence for sentence in findings(found))


def test_the_baseline_can_be_chosen(runs: Mapping[str, Path]) -> None:
    chosen = compare([runs["seed-1"], runs["plain"]], baseline="plain")
    assert [one.name for one in chosen.systems] == ["seed-1", "plain"]
    rows = {(row["metric"], row["system"]): row for row in chosen.tables["significance"]}
    assert rows["chrf", "plain"]["p_bootstrap"] is None
    assert rows["chrf", "seed-1"]["difference"] == pytest.approx(
        rows["chrf", "seed-1"]["score"] - rows["chrf", "plain"]["score"]
    )


# ------------------------------------------------------------------------------------------------- groups and recipes


def test_runs_that_differ_only_in_the_seed_are_one_group_with_mean_and_spread(found: Comparison) -> None:
    assert dict(found.groups) == {"seed (2 seeds)": ("seed-1", "seed-2"), "plain": ("plain",), "다른": ("다른",)}
    first, second = (row["chrf"] for row in found.tables["systems"][:2])
    group, single = found.tables["groups"][:2]
    assert group["runs"] == 2
    assert group["chrf"] == pytest.approx((first + second) / 2)
    assert group["chrf_deviation"] == pytest.approx(abs(first - second) / 2**0.5)
    assert (group["chrf_lowest"], group["chrf_highest"]) == (min(first, second), max(first, second))
    assert single["chrf_deviation"] is None
    assert f"{group['chrf']:.2f} ± {group['chrf_deviation']:.2f}" in page_of(found)


def test_another_setting_beside_the_seed_makes_another_group() -> None:
    def system(name: str, *overrides: str) -> System:
        recipe, _ = load_recipe(apply_overrides(TINY, overrides))
        return System(name, (), recipe=recipe)

    systems = [
        system("a_seed1"), system("a_seed2", "training.seed=2"), system("b", "training.seed=3", "search.beam=4"),
        system("a_seed1_again"), system("a_seed3", "training.seed=3"),
    ]  # fmt: skip
    seeds = ("a_seed1", "a_seed2", "a_seed3")
    assert groups_of(systems) == {"a (3 seeds)": seeds, "b": ("b",), "a_seed1_again": ("a_seed1_again",)}


def test_only_the_differences_of_recipes_are_listed() -> None:
    overrides = ["search.beam=7", "tokenizer.kind=word", "training.seed=2", "data.train.0.size=200"]
    one, _ = load_recipe(TINY)
    listed = {**TINY, "data": {**TINY["data"], "train": [TINY["data"]["train"]]}}
    two, _ = load_recipe(listed, overrides)
    assert differences({"one": one, "two": two}) == [
        {"key": "data.train.0.size", "one": 300, "two": 200},
        {"key": "tokenizer.kind", "one": "character", "two": "word"},
        {"key": "training.seed", "one": 1, "two": 2},
        {"key": "search.beam", "one": 2, "two": 7},
    ]
    assert differences({"one": one, "same": one}) == []


def test_settings_of_other_models_are_listed_beside_none(found: Comparison) -> None:
    rows = {row["key"]: row for row in found.tables["recipes"]}
    assert rows["model.kind"] == {"key": "model.kind", "seed-1": "bahdanau", "seed-2": "bahdanau", "plain": "rnn"}
    assert rows["model.attention"]["plain"] is None
    assert (rows["training.steps"]["seed-1"], rows["training.steps"]["plain"]) == (20, 15)
    assert "data.max_length" not in rows


def test_names_of_runs(tmp_path: Path) -> None:
    runs = [Run(tmp_path / name) for name in ("a/x", "b/x", "b/y", "b/y")]
    x, y = tmp_path / "b/x", tmp_path / "b/y"
    assert names_of(runs) == [str(tmp_path / "a/x"), str(x), f"{y} (3)", f"{y} (4)"]
    assert names_of(runs[1:3]) == ["x", "y"]


# -------------------------------------------------------------------------------------------------------- by length


def test_buckets_by_hand() -> None:
    buckets = length_buckets([5, 10, 11, 20, 21, 35, 58, 60])
    assert [(one.shortest, one.longest, one.rows) for one in buckets] == [
        (1, 10, (0, 1)), (11, 20, (2, 3)), (21, 30, (4,)), (31, 40, (5,)), (51, 60, (6, 7)),
    ]  # fmt: skip
    assert buckets[0].mean == 7.5
    assert buckets[0].name == "1–10"


def test_a_few_very_long_sentences_join_the_last_bucket() -> None:
    lengths = [*(1 + n % 8 for n in range(400)), 300]
    buckets = length_buckets(lengths)
    assert [(one.shortest, one.longest) for one in buckets] == [*((n, n) for n in range(1, 8)), (8, 300)]
    assert sum(len(one.rows) for one in buckets) == 401


def test_lengths_are_counted_in_characters_where_there_are_no_words() -> None:
    assert unit_of(["20240305", "a b"]) == "characters"
    assert unit_of(["a b c", "d"]) == "words"
    assert lengths_in("words", ["나는 학교에 갔다", "네"]) == [3, 1]
    assert lengths_in("characters", ["나는", "네"]) == [2, 1]


def test_quality_by_length_is_the_metric_of_those_sentences_alone(
    found: Comparison, pairs: list[tuple[str, str]]
) -> None:
    rows = found.tables["lengths"]
    assert found.to_json()["length_unit"] == "words"
    assert sum(row["sentences"] for row in rows if row["system"] == "다른") == 30
    for row in rows:
        system = next(one for one in found.systems if one.name == row["system"])
        chosen = [n for n, (source, _) in enumerate(pairs) if row["from"] <= len(source.split()) <= row["to"]]
        outputs, references = [system.outputs[n] for n in chosen], [pairs[n][1] for n in chosen]
        assert row["sentences"] == len(chosen)
        assert row["mean_length"] == pytest.approx(sum(len(pairs[n][0].split()) for n in chosen) / len(chosen))
        assert row["chrf"] == CHRF().corpus_score(outputs, [references]).score
        assert row["exact_match"] == sum(map(str.__eq__, outputs, references)) / len(chosen)


def test_every_group_is_one_line_of_the_figures(found: Comparison) -> None:
    section = next(one for one in found.report().sections if one.heading == "Quality by source length")
    curves = [part for part in section.parts if isinstance(part, Curves)]
    assert [one.y_label for one in curves] == ["BLEU", "chrF", "exact match"]
    for one in curves:
        assert [series.name for series in one.series] == list(found.groups)
        assert [series.low is not None for series in one.series] == [True, False, False]  # the two seeds


# ------------------------------------------------------------------------------------------------- the other sections


def test_curves_and_training_times_are_those_of_the_log(found: Comparison, runs: Mapping[str, Path]) -> None:
    lines = [json.loads(line) for line in (runs["seed-1"] / "metrics.jsonl").read_text().splitlines()]
    validations = [line for line in lines if line["event"] == "validation"]
    curve = [row for row in found.tables["curves"] if row["system"] == "seed-1"]
    assert [(row["step"], row["loss"], row["chrf"]) for row in curve] == [
        (line["step"], line["loss"], line["chrf"]) for line in validations
    ]
    steps = [line for line in lines if line["event"] == "train"]
    seconds = sum(line["seconds_per_step"] * 5 for line in steps)  # a line every five steps
    row = found.tables["systems"][0]
    assert (row["training_steps"], row["training_seconds"]) == (20, pytest.approx(seconds))
    assert row["parameters"] == sum(one.numel() for one in Run.open(runs["seed-1"]).load_model().parameters())
    assert row["sentences_per_second"] == pytest.approx(30 / row["decoding_seconds"])
    assert found.tables["systems"][3]["training_steps"] is None


def test_errors_are_those_of_diagnose(found: Comparison, runs: Mapping[str, Path]) -> None:
    assert [row["system"] for row in found.tables["errors"]] == list(RUNS)
    for row in found.tables["errors"]:
        diagnosis = regard.diagnose(runs[row["system"]], split="test", sweep=()).to_json()
        names = ("sentences", "errors", "search_errors", "model_errors")
        assert {name: row[name] for name in names} == {name: diagnosis[name] for name in names}


def test_sentences_that_differ_most_come_first(found: Comparison, pairs: list[tuple[str, str]]) -> None:
    rows = found.tables["differ_most"]
    gaps = []
    for first in range(0, len(rows), 4):
        same = rows[first : first + 4]
        assert len({row["sentence"] for row in same}) == 1
        gaps.append(max(row["sentence_chrf"] for row in same) - min(row["sentence_chrf"] for row in same))
        number = same[0]["sentence"] - 1
        assert same[0]["source"] == pairs[number][0]
        expected = CHRF().sentence_score(same[0]["output"], [same[0]["reference"]]).score
        assert same[0]["sentence_chrf"] == expected
    assert len(gaps) == 20
    assert gaps == sorted(gaps, reverse=True)


def test_attention_is_shown_for_models_that_have_it(found: Comparison) -> None:
    seeds, plain, other = found.systems[:2], found.systems[2], found.systems[3]
    shown = {row["sentence"] - 1 for row in found.tables["examples"]}
    assert len(shown) == 3
    assert all(set(one.alignments) == shown for one in seeds)
    assert not plain.alignments
    assert not other.alignments
    row = min(shown)
    written = "".join(seeds[0].alignments[row].rows).replace("⏎", "").replace("␣", " ").replace("▁", " ")
    assert written.strip() == seeds[0].outputs[row]
    assert sum(isinstance(figure, HeatMaps) for figure in found.report().figures) == 6
    assert "There is no attention to show of plain." in page_of(found)


# ------------------------------------------------------------------------------------------------- page, JSON and CSV


def as_text(value: Any) -> str:
    return "" if value is None else str(value)


def test_csv_holds_what_json_holds(found: Comparison, tmp_path: Path) -> None:
    found.write_csv(tmp_path / "new" / "tables")
    tree = found.to_json()
    files = sorted(path.stem for path in (tmp_path / "new" / "tables").iterdir())
    assert files == sorted(found.tables)
    for name in files:
        text = (tmp_path / "new" / "tables" / f"{name}.csv").read_text(encoding="utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text)))
        assert rows == [{key: as_text(row.get(key)) for key in rows[0]} for row in tree[name]]
    assert json.loads(json.dumps(tree, ensure_ascii=False))["sentences"] == 30


def test_the_page_holds_everything(found: Comparison) -> None:
    written = html.unescape(page_of(found))
    for heading in (
        "Quality", "Quality by source length", "Learning curves", "Speed and size", "Search and model errors",
        "Recipes: only the differences", "The same sentences, with attention", "Where they differ most",
        "How it was measured",
    ):  # fmt: skip
        assert f"<h2>{heading}</h2>" in written
    assert "nrefs:1|case:mixed" in written
    assert "greedy search on the first of them (training.decode)" in written
    assert "or where the reference holds unknown tokens" in written
    assert all(row["output"] in written for row in found.tables["differ_most"])


def test_scores_as_they_are_written() -> None:
    assert score_text("bleu", 12.345) == "12.35"
    assert score_text("exact_match", 0.12345) == "0.123"
    signed = [score_text("bleu", value, sign="+") for value in (1.0, -1.0, -0.001, 0.0)]
    assert signed == ["+1.00", "-1.00", "+0.00", "+0.00"]
    assert score_text("word_perplexity", 481_545.554) == "481,545.55"
    assert score_text("word_perplexity", 11_365_857_359_978_770.0) == "1.14e+16"


def test_a_difference_that_rounds_away_makes_no_headline(found: Comparison) -> None:
    """Thousands of sentences can tell differences apart that nobody would."""
    tiny = {"metric": "bleu", "system": "plain", "score": 0.004, "difference": -0.003, "significant": True}
    p_values = {"p_bootstrap": 0.0001, "p_randomisation": 0.0001}
    rows = [row for row in found.tables["significance"] if row["system"] != "plain"]
    rounded = replace(found, tables={**found.tables, "significance": [*rows, tiny | p_values]})
    assert "plain: BLEU 0.00, the same as seed-1 in the digits shown." in findings(rounded)
    assert verdict(rounded, tiny) == "no visible difference"
    assert verdict(rounded, tiny | {"difference": -0.3}) == "worse"


def test_seeds_are_one_system_in_the_terminal_too(found: Comparison, capsys: pytest.CaptureFixture[str]) -> None:
    show(found.report())
    shown = capsys.readouterr().out
    group = found.tables["groups"][0]
    assert "seed-2" not in shown
    for metric in found.metrics:
        assert f"{score_text(metric, group[metric])} ± {score_text(metric, group[f'{metric}_deviation'])}" in shown
    first, *others = findings(found)
    assert first == f"seed (2 seeds): BLEU {group['bleu']:.2f} ± {group['bleu_deviation']:.2f}."
    assert [sentence.partition(":")[0] for sentence in others] == ["plain", "다른"]
    assert "another seed" in page_of(found)


def test_seeds_against_a_baseline_of_another_kind(runs: Mapping[str, Path]) -> None:
    chosen = compare(list(runs.values()), baseline="plain")
    group, single = chosen.tables["groups"]
    [sentence] = findings(chosen)
    alone = sum(row["significant"] for row in chosen.tables["significance"]
                if row["metric"] == "bleu" and row["system"] != "plain")  # fmt: skip
    difference = group["bleu"] - single["bleu"]
    assert sentence == (
        f"seed (2 seeds): BLEU {group['bleu']:.2f} ± {group['bleu_deviation']:.2f}, {abs(difference):.2f} "
        f"{'above' if difference > 0 else 'below'} plain; {alone} of 2 seeds differ significantly from plain."
    )


LONG_NAMES = [f"a-system-with-a-long-name-{number}" for number in (1, 2)]


@pytest.fixture(scope="module")
def named_long(runs: Mapping[str, Path], other: Path) -> Comparison:
    return compare([runs["plain"]], hypotheses=dict.fromkeys(LONG_NAMES, other))


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_a_narrow_terminal_cuts_neither_names_nor_numbers(
    named_long: Comparison, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    show(named_long.report())
    lines = capsys.readouterr().out.splitlines()
    table = lines[2 : next(n for n, line in enumerate(lines) if line.startswith("*"))]
    assert max(map(cell_len, table)) <= columns
    assert not any("…" in line for line in table)
    begun = "".join(line.split()[0] for line in table if line[:2] == "  " and line[2:3].strip())
    assert all(name in begun for name in LONG_NAMES), table
    left_out = [line for line in lines if line.startswith("too wide for this terminal: ")]
    assert bool(left_out) == (columns < 80)
    assert "BLEU" in table[1]


def test_what_is_measured_first_is_not_what_matters_most() -> None:
    assert main_metric(["bleu1", "bleu2", "bleu3", "bleu", "chrf"]) == "bleu"
    assert main_metric(["rouge1", "rouge2"]) == "rouge1"
    assert [title(metric) for metric in ("bleu1", "bleu3", "bleu")] == ["BLEU-1", "BLEU-3", "BLEU"]


def test_the_command(runs: Mapping[str, Path], other: Path, tmp_path: Path) -> None:
    arguments = [runs["seed-1"], runs["plain"], "--hypotheses", f"다른={other}", "--device", "cpu"]
    out, tables = tmp_path / "report.html", tmp_path / "tables"
    result = succeed("compare", *arguments, "--out", out, "--csv", tables)
    assert "다른" in result.out
    assert "30 sentences of the test set, baseline seed-1.\n" in result.out
    assert "30 sentences of the test set, baseline seed-1." in out.read_text(encoding="utf-8")
    assert f"written: {out}\nwritten: {tables}\n" in result.out
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    tree = succeed("compare", *arguments[1:], "--json", "--beam", 1, "--baseline", "다른").json
    assert (tree["baseline"], tree["split"]) == ("다른", "test")
    assert [row["beam"] for row in tree["systems"]] == [1, None]


def test_files_are_compared_on_when_they_are_given(runs: Mapping[str, Path], tmp_path: Path) -> None:
    pairs = write(tmp_path / "pairs.tsv", "a b c\tc b a\nd e\te d\n")
    tree = succeed("compare", runs["seed-1"], runs["plain"], "--file", pairs, "--json").json
    assert (tree["sentences"], tree["files"], "split" in tree) == (2, [str(pairs)], False)
    assert {row["reference"] for row in tree["examples"]} == {"c b a", "e d"}


def test_a_run_without_a_test_set_is_compared_on_its_validation_set_and_says_so(tiny_run: Path, tmp_path: Path) -> None:
    outputs = write(tmp_path / "o.txt", "a\n" * 15)
    arguments = (tiny_run, "--hypotheses", f"o={outputs}", "--beam", 1)
    tree = succeed("compare", *arguments, "--json").json
    assert (tree["split"], tree["note"]) == ("validation", "the run's recipe has no test set")
    said = "15 sentences of the validation set (the run's recipe has no test set), baseline"
    assert said in succeed("compare", *arguments).out


# --------------------------------------------------------------------------------------------------------- other tasks


@pytest.fixture(scope="module")
def summarizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = copy.deepcopy(TINY) | {"task": "summarization", "tokenizer": {"kind": "word", "vocabulary": 200}}
    tree["data"] = {"train": {"corpus": "headlines", "size": 100}, "test": {"corpus": "headlines", "size": 8}}
    tree["training"] |= {"steps": 2, "validate_every": 2, "decode": 2}
    tree["search"] = {"beam": 1, "max_length": 8}
    folder = tmp_path_factory.mktemp("summarizer") / "run"
    train(tree, out=folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def sampler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model, whose search samples: that is not what is wrong with comparing it to a translator."""
    tree = {
        "task": "language_modeling",
        "data": {"train": {"corpus": "tales-en", "size": 20}, "validation": {"split": 0.2}},
        "tokenizer": {"kind": "character"},
        "model": {"kind": "lstm_lm", "embedding": 8, "hidden": 8, "layers": 1},
        "training": {"steps": 1, "validate_every": 1, "device": "cpu", "samples": 0},
        "search": {"sample": True, "beam": 1},
    }
    folder = tmp_path_factory.mktemp("sampler") / "run"
    train(tree, out=folder, quiet=True)
    return folder


def test_summaries_are_compared_by_rouge(summarizer: Path, tmp_path: Path) -> None:
    references = [target for _, target in pairs_of(summarizer)]
    perfect = write(tmp_path / "perfect.txt", "".join(f"{line}\n" for line in references))
    found = compare([summarizer], hypotheses={"perfect": perfect})
    assert found.metrics == ("rouge1", "rouge2", "rougeL")
    assert [row["rougeL"] for row in found.tables["systems"]][1] == 100
    for row in found.tables["significance"]:
        outputs = next(one.outputs for one in found.systems if one.name == row["system"])
        assert row["score"] == pytest.approx(Summarization.metrics(outputs, references, RougeConfig())[row["metric"]])
    assert "ROUGE-L" in page_of(found)


def test_runs_of_different_tasks_are_refused(
    summarizer: Path, runs: Mapping[str, Path], sampler: Path, tmp_path: Path
) -> None:
    [message] = fail("compare", runs["plain"], sampler)
    assert message.startswith(f"{sampler}: the run's task is language_modeling, that of {runs['plain']} is translation")
    [message] = fail("compare", runs["plain"], summarizer)
    assert message == (
        f"{summarizer}: the run's task is summarization, that of {runs['plain']} is translation"
        " (compare runs of one task)"
    )


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(("lines", "shown"), [(29, "29"), (31, "31")])
def test_outputs_with_another_line_count_are_refused(
    runs: Mapping[str, Path], tmp_path: Path, lines: int, shown: str
) -> None:
    file = write(tmp_path / "short.txt", "a b\n" * lines)
    before = contents(tmp_path)
    [message] = fail("compare", runs["plain"], "--hypotheses", f"x={file}", "--out", tmp_path / "report.html")
    assert message == f"{file}: {shown} lines for 30 inputs (one output a line, in the order of the inputs)"
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plain"], r"compare: there is nothing to compare \(give two runs, or a run and --hypotheses\)"),
        (["plain", "seed-1", "--baseline", "plian"], r"--baseline: there is no system 'plian' \(did you mean .*"),
        (["plain", "--hypotheses", "file.txt"], r"--hypotheses: 'file.txt' names no system \(NAME=FILE, .*"),
        (["plain", "--hypotheses", "x=no.txt"], r"no.txt: .*"),
        (["plain", "--hypotheses", "plain=no.txt"], r"--hypotheses: the name 'plain' is a run's \(give another name\)"),
        (["plain", "--hypotheses", "x=a", "--hypotheses", "x=b"], r"--hypotheses: the name 'x' is given twice .*"),
        (["plain", "seed-1", "--out", "report.pdf"], r"report.pdf: cannot write a .pdf \(allowed: .html\)"),
        (["plain", "seed-1", "--split", "tset"], r"--split: unknown split 'tset' \(did you mean 'test'\?\)"),
        (["plain", "seed-1", "--beam", "0"], r"search.beam: .*"),
        (["plain", "seed-1", "--set", "search.sample=true"], r"search.sample: samples cannot be compared .*"),
        (["plain", "missing"], r".*missing: there is no such run folder .*"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(runs: Mapping[str, Path], arguments: list[str], message: str) -> None:
    names = {**runs, "missing": runs["plain"].parent / "missing"}
    given = [names[one] if one in names and number < 2 else one for number, one in enumerate(arguments)]
    [found] = fail("compare", *given)
    assert re.fullmatch(message, found), found


def test_tables_do_not_take_the_place_of_a_file(runs: Mapping[str, Path], tmp_path: Path) -> None:
    file = write(tmp_path / "tables", "mine")
    [message] = fail("compare", runs["plain"], runs["seed-1"], "--csv", file)
    assert message == f"{file}: this is a file, not a folder (give another --csv)"


def test_runs_with_other_test_sentences_are_refused(runs: Mapping[str, Path], tiny_run: Path) -> None:
    with pytest.raises(DataError, match=r"its examples are not those of .*--file"):
        compare([runs["plain"], tiny_run])


# ---------------------------------------------------------------------------------------------- the documented example

EXAMPLE = ROOT / "docs" / "attention-and-length"


def test_the_recipes_of_attention_and_length_differ_only_in_the_model_and_its_rate() -> None:
    recipes = {path.stem: load_recipe(path)[0] for path in EXAMPLE.glob("*.yaml")}
    assert set(recipes) == {"rnn", "bahdanau", "luong", "transformer"}
    keys = [row["key"] for row in differences(recipes)]
    assert [key for key in keys if not key.startswith("model.")] == ["training.learning_rate"]
    recurrent = {name: recipe for name, recipe in recipes.items() if name != "transformer"}
    shared = {row["key"] for row in differences(recurrent) if None not in row.values()}
    assert shared == {"model.kind"}
    assert recipes["rnn"].data.test[0].words == range(5, 61)
