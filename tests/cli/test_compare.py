"""Several runs on the same sentences: who is better, by how much, and whether that is chance."""

import copy
import csv
import html
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

import regard
from command_line import succeed, write
from places import ROOT
from raw_cases import Runs
from regard.errors import RegardError
from regard.recipes.loading import load_recipe
from regard.runs import Run
from regard.runs.examples import examples_of
from regard.tasks.captioning import BLEU_1_TO_4
from regard.tasks.summarization import RougeConfig, rouge
from regard.tasks.translation import BLEU_4, EvaluationConfig, translation_scores
from regard.training.train import train
from regard.views import significance
from regard.views.compare import compare
from regard.views.comparison import Comparison, findings, verdict
from regard.views.labels import main_metric, metric_title, score_text
from regard.views.metric_sums import bleu_of, chrf_of, text_metrics
from regard.views.page import page
from regard.views.report import Curves, HeatMaps, Table
from regard.views.search_errors import length_buckets, lengths_of
from regard.views.significance import paired_tests_of_sums, paired_tests_of_texts
from regard.views.systems import differences, groups_of, names_of
from regard.views.terminal import print_report
from tiny import TINY

RUNS = {
    "seed-1": {},
    "seed-2": {"training.seed": 2},
    "plain": {
        "model": "{kind: rnn, preset: tiny, embedding: 16, hidden: 16}",
        "training.steps": 15,
    },
}
"""Folder -> what differs from the tiny recipe."""
WORDS = "the a cat dog sat ran on mat road red big house tree bird sang far"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    folder = tmp_path_factory.mktemp("compared")
    tree = copy.deepcopy(TINY)
    tree["data"] |= {
        "test": {"corpus": "reverse", "size": 30},
        "validation": {"corpus": "reverse", "size": 10},
    }
    for name, changes in RUNS.items():
        train(
            tree,
            [f"{key}={value}" for key, value in changes.items()],
            out=folder / name,
            quiet=True,
        )
    return {name: folder / name for name in RUNS}


def pairs_of(folder: Path) -> list[tuple[str, str]]:
    dataset = examples_of(Run.open(folder), None)
    return list(zip(dataset.texts["source"], dataset.texts["target"], strict=True))


@pytest.fixture(scope="module")
def pairs(folders: Mapping[str, Path]) -> list[tuple[str, str]]:
    """The sentences that are compared on."""
    return pairs_of(folders["plain"])


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> Path:
    """The outputs of a system that reads the sentences backwards, but for the first ten."""
    lines = [source if row < 10 else target for row, (source, target) in enumerate(pairs)]
    return write(
        tmp_path_factory.mktemp("other") / "outputs.txt", "".join(f"{line}\n" for line in lines)
    )


@pytest.fixture(scope="module")
def compared(folders: Mapping[str, Path], other: Path) -> Comparison:
    return compare(list(folders.values()), hypotheses={"다른": other})


def test_outputs_and_metrics(
    compared: Comparison, folders: Mapping[str, Path], pairs: list[tuple[str, str]]
) -> None:
    for row in compared.tables["systems"][:3]:
        evaluated = regard.evaluate(folders[row["system"]], split="test")
        assert {name: row[name] for name in compared.metrics} == {
            name: evaluated[name] for name in compared.metrics
        }
    predicted = regard.predict(folders["seed-1"], [source for source, _ in pairs])
    assert list(compared.systems[0].outputs) == [prediction.output for prediction in predicted]


def test_the_randomisation_is_sacrebleus(
    compared: Comparison, pairs: list[tuple[str, str]]
) -> None:
    """With other draws: the standard error of a share of 10,000 is at most 0.005.

    No swap of these 30 sentences gives the very difference observed, which sacreBLEU would not
    count.
    """
    named = [(system.name, list(system.outputs)) for system in compared.systems]
    references = [[target for _, target in pairs]]
    for metric, measure in {"bleu": BLEU(), "chrf": CHRF()}.items():
        ours = [row for row in compared.tables["significance"] if row["metric"] == metric]
        swapped = list(
            PairedTest(named, {metric: measure}, references, test_type="ar")()[1].values()
        )[1]
        assert [row["score"] for row in ours] == pytest.approx(
            [result.score for result in swapped], rel=1e-15
        )
        assert (ours[0]["difference"], ours[0]["p_bootstrap"], ours[0]["p_randomisation"]) == (
            0,
            None,
            None,
        )
        for row, result in zip(ours[1:], swapped[1:], strict=True):
            assert row["p_randomisation"] == pytest.approx(result.p_value, abs=0.02)


def corrupted(words: Sequence[str], generator: np.random.Generator) -> str:
    """A text in which words are replaced or missing, which four of ten texts escape."""
    if generator.random() < 0.4:
        return " ".join(words)
    kept = [word for word in words if generator.random() > 0.05]
    return " ".join(
        str(generator.choice(WORDS.split())) if generator.random() < 0.3 else word for word in kept
    )


def test_equally_good_systems_differ_significantly_as_often_as_the_level_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """500 pairs of systems: sentences are drawn, and which of its two outputs is whose is drawn,
    too."""
    monkeypatch.setattr(
        significance, "TRIALS", 1
    )  # of the randomisation, which is not measured here
    generator = np.random.default_rng(1)
    texts = [
        [str(word) for word in generator.choice(WORDS.split(), generator.integers(3, 12))]
        for _ in range(600)
    ]
    outputs = [[corrupted(words, generator) for words in texts] for _ in range(2)]
    columns, metrics, below, end = list[Any](), dict[str, Any](), Counter[str](), 0
    for name, (statistics, value) in text_metrics(
        ["bleu", "chrf", "exact_match"], *scores_of(BLEU_4)
    ).items():
        columns.append([statistics(own, [[" ".join(words)] for words in texts]) for own in outputs])
        start, end = end, end + columns[-1][0].shape[-1]
        metrics[name] = lambda sums, value=value, start=start, end=end: value(sums[..., start:end])
    rows = np.concatenate(columns, axis=-1)
    for _ in range(500):
        drawn, first = generator.integers(0, len(texts), 200), generator.integers(0, 2, 200)
        tests = paired_tests_of_sums(
            metrics, {"one": rows[first, drawn], "other": rows[1 - first, drawn]}, "one"
        )
        below.update(
            row["metric"] for row in tests if row["system"] == "other" and row["p_bootstrap"] < 0.05
        )
    assert all(0.03 <= below[name] / 500 <= 0.07 for name in metrics), below


@pytest.mark.parametrize("order", [1, 4])
def test_bleu_and_chrf_of_sums_are_sacrebleus(order: int) -> None:
    """Also of texts too short for the longest n-grams, with none of them right, and of nothing."""
    cases = [
        (["the cat sat on a mat", "two dogs"], ["the cat sat on the mat", "two old dogs ran"]),
        (["a b c d e"], ["a x c y e z"]),
        (["a b c"], ["a b c"]),
        (["x y z w v"], ["a b"]),
        ([""], ["a"]),
        (["a"], [""]),
        (["고양이가 매트에 앉았다"], ["고양이가 매트 위에 앉았다"]),
    ]
    for outputs, references in cases:
        for measure, value in ((BLEU(max_ngram_order=order), bleu_of), (CHRF(), chrf_of)):
            rows = np.array(
                measure._extract_corpus_statistics(outputs, [references]), dtype=np.float64
            )
            score = measure.corpus_score(outputs, [references]).score
            assert value(rows.sum(0)) == pytest.approx(score, rel=1e-15, abs=0), (
                outputs,
                references,
            )
            assert (value(np.stack([rows.sum(0)] * 3)) == value(rows.sum(0))).all()


def scores_of(orders: dict[str, int]) -> tuple[Any, EvaluationConfig, dict[str, int]]:
    """What the metrics of translations are computed with."""
    config = EvaluationConfig()
    return partial(translation_scores, config=config, orders=orders), config, orders


def paired(
    outputs: dict[str, list[str]], references: list[list[str]], *metrics: str
) -> list[dict[str, Any]]:
    """The tests of texts, with the first system as the baseline."""
    orders = BLEU_1_TO_4 if max(map(len, references)) > 1 else BLEU_4
    measures = text_metrics(metrics, *scores_of(orders))
    return paired_tests_of_texts(outputs, references, measures, next(iter(outputs)))


@pytest.mark.parametrize("sentences", [1, 2, 5])
def test_a_handful_of_sentences_is_never_significant(sentences: int) -> None:
    """All outputs of one system are right and all of the other wrong: the least p-value there is, 2
    / 2^n."""
    references = [
        "the cat sat on a mat",
        "two dogs ran far off",
        "it is late by now",
        "no",
        "she reads",
    ][:sentences]
    outputs = {"bad": ["x y z w"] * sentences, "good": references}
    for row in paired(outputs, [[text] for text in references], "exact_match", "bleu", "chrf"):
        assert not row["significant"]
        if row["system"] == "good":
            assert row["p_randomisation"] == pytest.approx(2 / 2**sentences, abs=0.02)


def test_more_than_one_reference_is_measured_as_sacrebleu_does() -> None:
    references = [["a red car", "the car is red"], ["a dog"], ["no", "none", "not one"]]
    outputs = {"one": ["a red dog", "a dog", "zero"], "other": ["the car is red", "dog", "none"]}
    rows = paired(outputs, references, "bleu1", "chrf", "exact_match")
    streams: Any = [
        ["a red car", "a dog", "no"],
        ["the car is red", None, "none"],
        [None, None, "not one"],
    ]
    theirs = [
        measure.corpus_score(written, streams).score
        for measure in (BLEU(max_ngram_order=1), CHRF())
        for written in outputs.values()
    ]
    assert [row["score"] for row in rows] == pytest.approx([*theirs, 1 / 3, 2 / 3])


def test_a_system_is_never_significantly_different_from_itself(folders: Mapping[str, Path]) -> None:
    twice = compare([folders["plain"], folders["plain"]])
    assert len(twice.groups) == 2  # the same seed twice is no second seed
    assert (twice.tables["differ_most"], twice.tables["recipes"]) == ([], [])
    again = [row for row in twice.tables["significance"] if row["system"] != twice.baseline]
    columns = ("difference", "p_bootstrap", "p_randomisation", "significant")
    assert [tuple(row[name] for name in columns) for row in again] == [(0, 1, 1, False)] * 3
    assert all("the same as" in sentence for sentence in findings(twice))
    assert "The recipes are the same." in page(twice.report())


def test_runs_that_differ_only_in_the_seed_are_one_group_with_mean_and_spread(
    compared: Comparison,
) -> None:
    assert dict(compared.groups) == {
        "seed (2 seeds)": ["seed-1", "seed-2"],
        "plain": ["plain"],
        "다른": ["다른"],
    }
    first, second = (row["chrf"] for row in compared.tables["systems"][:2])
    group, single = compared.tables["groups"][:2]
    assert group["runs"] == 2
    assert group["chrf"] == pytest.approx((first + second) / 2)
    assert group["chrf_deviation"] == pytest.approx(abs(first - second) / 2**0.5)
    assert (group["chrf_lowest"], group["chrf_highest"]) == (min(first, second), max(first, second))
    assert single["chrf_deviation"] is None


def test_another_setting_beside_the_seed_makes_another_group() -> None:
    overrides = {
        "a_seed1": [],
        "a_seed2": ["training.seed=2"],
        "b": ["training.seed=3", "search.beam=4"],
        "a_seed1_again": [],
        "a_seed3": ["training.seed=3"],
    }
    recipes = {
        name: load_recipe(copy.deepcopy(TINY), changes)[0] for name, changes in overrides.items()
    }
    groups = {
        "a (3 seeds)": ["a_seed1", "a_seed2", "a_seed3"],
        "b": ["b"],
        "a_seed1_again": ["a_seed1_again"],
    }
    assert groups_of(recipes | {"file": None}) == groups | {"file": ["file"]}


def test_only_the_differences_of_recipes_are_listed(compared: Comparison) -> None:
    overrides = ["search.beam=7", "tokenizer.kind=word", "training.seed=2", "data.train.0.size=200"]
    one, _ = load_recipe(TINY)
    two, _ = load_recipe(
        {**TINY, "data": {**TINY["data"], "train": [TINY["data"]["train"]]}}, overrides
    )
    assert differences({"one": one, "two": two}) == [
        {"key": "data.train.0.size", "one": 300, "two": 200},
        {"key": "tokenizer.kind", "one": "character", "two": "word"},
        {"key": "training.seed", "one": 1, "two": 2},
        {"key": "search.beam", "one": 2, "two": 7},
    ]
    assert differences({"one": one, "same": one}) == []
    rows = {row["key"]: row for row in compared.tables["recipes"]}
    assert rows["model.kind"] == {
        "key": "model.kind",
        "seed-1": "bahdanau",
        "seed-2": "bahdanau",
        "plain": "rnn",
    }
    assert rows["model.attention"]["plain"] is None  # a setting that this model does not have
    assert (rows["training.steps"]["seed-1"], rows["training.steps"]["plain"]) == (20, 15)
    assert "data.max_length" not in rows


def test_names_of_runs(tmp_path: Path) -> None:
    for name in ("a/x", "b/x", "b/y"):
        (tmp_path / name).mkdir(parents=True)
        write(tmp_path / name / "environment.json", '{"regard": "0.1.0"}')
        write(tmp_path / name / "recipe.yaml", "")
    runs = [Run(tmp_path / name) for name in ("a/x", "b/x", "b/y", "b/y")]
    x, y = tmp_path / "b/x", tmp_path / "b/y"
    assert names_of(runs) == [str(tmp_path / "a/x"), str(x), f"{y} (3)", f"{y} (4)"]
    assert names_of(runs[1:3]) == ["x", "y"]


def test_the_recipes_of_attention_and_length_differ_only_in_the_model_and_its_rate() -> None:
    recipes = {
        path.stem: load_recipe(path)[0]
        for path in (ROOT / "docs" / "attention-and-length").glob("*.yaml")
    }
    assert set(recipes) == {"rnn", "bahdanau", "luong", "transformer"}
    keys = [row["key"] for row in differences(recipes)]
    assert [key for key in keys if not key.startswith("model.")] == ["training.learning_rate"]
    recurrent = {name: recipe for name, recipe in recipes.items() if name != "transformer"}
    assert {row["key"] for row in differences(recurrent) if None not in row.values()} == {
        "model.kind"
    }
    assert recipes["rnn"].data.test[0].words == range(5, 61)


def test_buckets_and_lengths_by_hand() -> None:
    """Of round ends, except that the few very long sentences join the last; in characters where
    there are no words."""
    buckets = length_buckets([5, 10, 11, 20, 21, 35, 58, 60])
    assert [(bucket.name, bucket.rows) for bucket in buckets] == [
        ("1–10", [0, 1]),
        ("11–20", [2, 3]),
        ("21–30", [4]),
        ("31–40", [5]),
        ("51–60", [6, 7]),
    ]
    assert buckets[0].mean == 7.5
    buckets = length_buckets([*(1 + n % 8 for n in range(400)), 300])
    assert [bucket.name for bucket in buckets] == [*"1234567", "8–300"]
    assert sum(len(bucket.rows) for bucket in buckets) == 401
    assert lengths_of(["20240305", "a b"]) == ("characters", [8, 3])
    assert lengths_of(["나는 학교에 갔다", "네"]) == ("words", [3, 1])


def test_quality_by_length_is_the_metric_of_those_sentences(
    compared: Comparison, pairs: list[tuple[str, str]]
) -> None:
    assert compared.to_json()["length_unit"] == "words"
    assert (
        sum(row["sentences"] for row in compared.tables["lengths"] if row["system"] == "다른") == 30
    )
    outputs_of = {system.name: system.outputs for system in compared.systems}
    for row in compared.tables["lengths"]:
        chosen = [
            n
            for n, (source, _) in enumerate(pairs)
            if row["from"] <= len(source.split()) <= row["to"]
        ]
        outputs, references = (
            [outputs_of[row["system"]][n] for n in chosen],
            [pairs[n][1] for n in chosen],
        )
        assert row["sentences"] == len(chosen)
        assert row["mean_length"] == pytest.approx(
            sum(len(pairs[n][0].split()) for n in chosen) / len(chosen)
        )
        assert row["chrf"] == CHRF().corpus_score(outputs, [references]).score
        assert row["exact_match"] == sum(map(str.__eq__, outputs, references)) / len(chosen)
    section = next(
        one for one in compared.report().sections if one.heading == "Quality by source length"
    )
    curves = [part for part in section.parts if isinstance(part, Curves)]
    assert [curve.y_label for curve in curves] == ["BLEU", "chrF", "exact match"]
    for curve in curves:  # every group is one line, and the two seeds have a band
        assert [series.name for series in curve.series] == list(compared.groups)
        assert [series.low is not None for series in curve.series] == [True, False, False]


def test_curves_and_training_times_are_those_of_the_log(
    compared: Comparison, folders: Mapping[str, Path]
) -> None:
    lines = [
        json.loads(line) for line in (folders["seed-1"] / "metrics.jsonl").read_text().splitlines()
    ]
    curve = [row for row in compared.tables["curves"] if row["system"] == "seed-1"]
    assert [(row["step"], row["loss"], row["chrf"]) for row in curve] == [
        (line["step"], line["loss"], line["chrf"])
        for line in lines
        if line["event"] == "validation"
    ]
    seconds = sum(
        line["seconds_per_step"] * 5 for line in lines if line["event"] == "train"
    )  # a line every five steps
    row = compared.tables["systems"][0]
    assert (row["training_steps"], row["training_seconds"]) == (20, pytest.approx(seconds))
    assert row["parameters"] == sum(
        one.numel() for one in Run.open(folders["seed-1"]).load_model().parameters()
    )
    assert row["sentences_per_second"] == pytest.approx(30 / row["decoding_seconds"])
    assert compared.tables["systems"][3]["training_steps"] is None


def test_sentences_that_differ_most_come_first(
    compared: Comparison, pairs: list[tuple[str, str]]
) -> None:
    rows, gaps = compared.tables["differ_most"], []
    for first in range(0, len(rows), 4):
        same = rows[first : first + 4]
        assert {row["source"] for row in same} == {pairs[same[0]["sentence"] - 1][0]}
        scores = [CHRF().sentence_score(row["output"], [row["reference"]]).score for row in same]
        assert [row["sentence_chrf"] for row in same] == scores
        gaps.append(max(scores) - min(scores))
    assert len(gaps) == 20
    assert gaps == sorted(gaps, reverse=True)


def test_attention_is_shown_for_models_that_have_it(compared: Comparison) -> None:
    shown = {row["sentence"] - 1 for row in compared.tables["examples"]}
    assert len(shown) == 3
    assert [set(system.alignments) for system in compared.systems] == [shown, shown, set(), set()]
    row, seed = min(shown), compared.systems[0]
    written = (
        "".join(seed.alignments[row].rows).replace("⏎", "").replace("␣", " ").replace("▁", " ")
    )
    assert written.strip() == seed.outputs[row]
    assert sum(isinstance(figure, HeatMaps) for figure in compared.report().figures) == 6


def test_csv_holds_what_json_holds(compared: Comparison, tmp_path: Path) -> None:
    folder, tree = (
        tmp_path / "new" / "tables",
        json.loads(json.dumps(compared.to_json(), ensure_ascii=False)),
    )
    compared.write_csv(folder)
    assert sorted(path.stem for path in folder.iterdir()) == sorted(compared.tables)
    for name in compared.tables:
        rows = list(
            csv.DictReader(io.StringIO((folder / f"{name}.csv").read_text(encoding="utf-8-sig")))
        )
        texts = [
            {key: "" if row.get(key) is None else str(row[key]) for key in rows[0]}
            for row in tree[name]
        ]
        assert rows == texts
    assert (
        (folder / "systems.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    )  # or Excel garbles Korean
    assert tree["sentences"] == 30
    with pytest.raises(
        RegardError,
        match=r"systems.csv: the file exists already \(give another --csv, or --overwrite",
    ):
        compared.write_csv(folder)
    compared.write_csv(folder, overwrite=True)


def test_the_page_holds_everything(compared: Comparison) -> None:
    written = html.unescape(page(compared.report()))
    for heading in (
        "Quality",
        "Quality by source length",
        "Learning curves",
        "Speed and size",
        "Search and model errors",
        "Recipes: only the differences",
        "The same sentences, with attention",
        "Where they differ most",
        "How it was measured",
    ):
        assert f"<h2>{heading}</h2>" in written
    group = compared.tables["groups"][0]
    for text in (
        f"{group['chrf']:.2f} ± {group['chrf_deviation']:.2f}",
        "There is no attention to show for plain.",
        "nrefs:1|case:mixed",
        "greedy search on a sample of them (training.decode)",
        "another seed",
        "or if the reference contains unknown tokens",
        *(row["output"] for row in compared.tables["differ_most"]),
    ):
        assert text in written


def test_metrics_and_scores_as_they_are_written() -> None:
    assert score_text("bleu", 12.345) == "12.35"
    assert score_text("exact_match", 0.12345) == "0.123"
    signed = [score_text("bleu", value, sign="+") for value in (1.0, -1.0, -0.001, 0.0)]
    assert signed == ["+1.00", "-1.00", "+0.00", "+0.00"]
    assert score_text("word_perplexity", 481_545.554) == "481,545.55"
    assert score_text("word_perplexity", 11_365_857_359_978_770.0) == "1.14e+16"
    assert main_metric(["bleu1", "bleu2", "bleu3", "bleu", "chrf"]) == "bleu"  # not the first
    assert main_metric(["rouge1", "rouge2"]) == "rouge1"
    assert [metric_title(metric) for metric in ("bleu1", "bleu3", "bleu")] == [
        "BLEU-1",
        "BLEU-3",
        "BLEU",
    ]


def test_a_difference_is_reported_where_it_is_significant_and_visible(compared: Comparison) -> None:
    rows = compared.tables["significance"]
    row = next(row for row in rows if (row["metric"], row["system"]) == ("exact_match", "다른"))
    assert row["significant"]
    assert row["difference"] > 0.3
    assert any(
        text.startswith("다른: BLEU") and "a significant difference" in text
        for text in findings(compared)
    )
    # Thousands of sentences can tell differences apart that nobody would.
    tiny = {
        "metric": "bleu",
        "system": "plain",
        "score": 0.004,
        "difference": -0.003,
        "significant": True,
    }
    others = [row for row in rows if row["system"] != "plain"]
    tables = {
        **compared.tables,
        "significance": [*others, tiny | {"p_bootstrap": 1e-4, "p_randomisation": 1e-4}],
    }
    rounded = replace(compared, tables=tables)
    assert "plain: BLEU 0.00, the same as seed-1 in the digits shown." in findings(rounded)
    assert verdict(rounded, tiny) == "no visible difference"
    assert verdict(rounded, tiny | {"difference": -0.3}) == "worse"


def test_a_group_has_a_star_where_every_seed_differs(compared: Comparison) -> None:
    better = [
        row
        | {"significant": row["system"] == "seed-1" or row["metric"] == "chrf", "difference": 9.0}
        for row in compared.tables["significance"]
    ]
    tested = replace(compared, tables={**compared.tables, "significance": better}, baseline="plain")
    table = tested.report().sections[0].parts[0]
    assert isinstance(table, Table)
    starred = {
        name
        for name, cell in zip(table.columns, table.cells[0], strict=True)
        if cell.text.endswith("*")
    }
    assert starred == {"chrF"}  # by BLEU and exact match only one of the seeds differs
    assert table.notes[0] == "* differs significantly from plain; in a group, every seed does"


def test_printed_seeds(
    compared: Comparison,
    folders: Mapping[str, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    print_report(compared.report())
    shown, group = capsys.readouterr().out, compared.tables["groups"][0]
    assert "seed-2" not in shown
    for metric in compared.metrics:
        assert (
            f"{score_text(metric, group[metric])} ± "
            f"{score_text(metric, group[f'{metric}_deviation'])}" in shown
        )
    score = f"seed (2 seeds): BLEU {group['bleu']:.2f} ± {group['bleu_deviation']:.2f}"
    first, *others = findings(compared)
    assert first == f"{score}."
    assert [sentence.partition(":")[0] for sentence in others] == ["plain", "다른"]
    chosen = compare(list(folders.values()), baseline="plain")
    rows = {row["system"]: row for row in chosen.tables["significance"] if row["metric"] == "bleu"}
    assert rows["plain"]["p_bootstrap"] is None
    assert rows["seed-1"]["difference"] == pytest.approx(
        rows["seed-1"]["score"] - rows["plain"]["score"]
    )
    difference = group["bleu"] - rows["plain"]["score"]
    better, worse = (
        sum(row["significant"] and row["difference"] * sign > 0 for row in rows.values())
        for sign in (1, -1)
    )
    change = f"{abs(difference):.2f} {'above' if difference > 0 else 'below'} plain"
    seeds = f"of 2 seeds {better} are significantly better than plain, {worse} worse"
    assert findings(chosen) == [f"{score}, {change}; {seeds}."]
    monkeypatch.setenv("REGARD_LANG", "ko")
    print_report(compared.report())
    print_report(chosen.report())
    shown = capsys.readouterr().out
    assert "seed (시드 2개)" in shown
    assert "seeds" not in shown


def test_the_command(
    folders: Mapping[str, Path], other: Path, tiny_run: Path, tmp_path: Path
) -> None:
    arguments = [
        folders["seed-1"],
        folders["plain"],
        "--hypotheses",
        f"다른={other}",
        "--device",
        "cpu",
    ]
    out, tables = tmp_path / "report.html", tmp_path / "tables"
    result = succeed("compare", *arguments, "--out", out, "--csv", tables)
    assert "다른" in result.out
    for text in (result.out, out.read_text(encoding="utf-8")):
        assert "30 sentences of the test set, baseline seed-1." in text
    assert result.out.endswith(f"written: {out}\nwritten: {tables}\n")
    tree = succeed("compare", *arguments[1:], "--json", "--beam", 1, "--baseline", "다른").json
    assert (tree["baseline"], tree["split"]) == ("다른", "test")
    assert [row["beam"] for row in tree["systems"]] == [1, None]
    file = write(tmp_path / "pairs.tsv", "source\ttarget\na b c\tc b a\nd e\te d\n")
    tree = succeed("compare", folders["seed-1"], folders["plain"], "--file", file, "--json").json
    assert (tree["sentences"], tree["files"], "split" in tree) == (2, [str(file)], False)
    assert {row["reference"] for row in tree["examples"]} == {"c b a", "e d"}
    lines = write(tmp_path / "o.txt", "a\n" * 15)
    printed = succeed("compare", tiny_run, "--hypotheses", f"o={lines}", "--beam", 1).out
    assert (
        "15 sentences of the validation set (the run's recipe has no test set), baseline" in printed
    )


def test_summaries_are_compared_by_rouge(runs: Runs, tmp_path: Path) -> None:
    references = [target for _, target in pairs_of(runs["summarization"])]
    perfect = write(tmp_path / "perfect.txt", "".join(f"{line}\n" for line in references))
    compared = compare([runs["summarization"]], hypotheses={"perfect": perfect})
    assert [*compared.metrics] == ["rouge1", "rouge2", "rougeL"]
    assert compared.tables["systems"][1]["rougeL"] == 100
    outputs = {system.name: system.outputs for system in compared.systems}
    for row in compared.tables["significance"]:
        scores = rouge(outputs[row["system"]], [[text] for text in references], RougeConfig())
        assert row["score"] == pytest.approx(scores[row["metric"]])
    assert "ROUGE-L" in page(compared.report())
