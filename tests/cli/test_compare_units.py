"""`compare` for language models, masked models and classifiers: sums by hand, tests against
enumeration and SciPy; what unknown tokens cost where vocabularies differ, by hand and in a planted
case."""

import html
import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard as api
from command_line import refusal, succeed, write
from raw_cases import Runs, raw_recipe
from regard.data.conll import Entity, tags_of
from regard.data.corpora import generate
from regard.errors import DataError
from regard.runs import Run
from regard.runs.examples import examples_of
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.training.train import train
from regard.views.metric_sums import correlation, counts_of, f1_of
from regard.views.significance import mcnemar, paired_tests_of_sums
from task_cases import raw_tokens

REVIEWS = "label\tother\ttext\n" + "".join(
    f"{w}\t{other}\tIt was {w}, number {n}.\n"
    for w, other in (("good", "bad"), ("bad", "good"))
    for n in range(16)
)


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> dict[str, Path]:
    """One that has learned, and one that has not."""
    folder = tmp_path_factory.mktemp("units")
    corpus = {"file": str(write(folder / "reviews.tsv", REVIEWS)), "text": "text", "label": "label"}
    for name, steps in (("taught", 60), ("fresh", 1)):
        data = {
            "data": {"train": corpus, "validation": corpus},
            "tokenizer": {"kind": "bpe", "vocabulary": 200},
        }
        training = {"steps": steps, "batch_tokens": 512, "device": "cpu", "learning_rate": 0.01}
        tree = {
            "task": "classification",
            **data,
            "model": {"kind": "cnn", "embedding": 16, "maps": 8},
        }
        train(tree | {"training": training}, out=folder / name, quiet=True)
    return {name: folder / name for name in ("taught", "fresh")}


def predictions_of(folder: Path) -> list[dict[str, Any]]:
    run = Run.open(folder)
    predictions: list[dict[str, Any]] = run.task.metrics.by_unit(
        run.load_model(), examples_of(run, None), lambda done: None
    )
    return predictions


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("gpt", ["word_perplexity", "bits_per_character"]),
        ("lstm", ["word_perplexity", "bits_per_character"]),
        ("elmo", ["word_perplexity", "bits_per_character"]),
        ("bert", ["masked_accuracy", "loss"]),
        ("taught", ["accuracy", "f1_macro"]),
    ],
)
def test_units_sum_to_the_metrics(
    runs: Runs, classifiers: dict[str, Path], name: str, metrics: list[str]
) -> None:
    run = classifiers.get(name) or runs[name]
    counts, evaluated = counts_of(predictions_of(run)), api.evaluate(run)
    assert list(counts.metrics) == metrics
    assert len(counts.rows) == (32 if name == "taught" else 12)
    for metric, value in counts.metrics.items():
        assert value(counts.rows.sum(0)) == pytest.approx(evaluated[metric], rel=1e-5)


def test_a_document_alone_costs_what_it_costs_among_others(runs: Runs, tmp_path: Path) -> None:
    for prediction in predictions_of(runs["gpt"])[::5]:
        alone = api.evaluate(
            runs["gpt"], files=[str(write(tmp_path / "one.txt", prediction["input"]))]
        )
        assert prediction["nats"] == pytest.approx(alone["loss"] * alone["tokens"], rel=1e-5)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_f1_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    from sklearn.metrics import f1_score

    true, predicted = zip(*pairs, strict=True)
    confusion = np.zeros((4, 4))
    np.add.at(confusion, (true, predicted), 1)
    assert f1_of(confusion) == pytest.approx(
        f1_score(true, predicted, average="macro", zero_division=0)
    )


@pytest.mark.parametrize(
    ("offset", "scale"), [(0.0, 1.0), (1e7, 1.0), (1e8, 1.0), (0.0, 1e-9), (0.0, 1e150)]
)
def test_correlation_is_that_of_scipy_also_far_from_zero_or_of_tiny_or_huge_labels(
    offset: float, scale: float
) -> None:
    from scipy.stats import pearsonr

    x, y = np.random.default_rng(1).normal(size=(2, 50))
    labels, outputs = offset + scale * x, offset + scale * (x + y)
    counts = counts_of([{"label": a, "output": b} for a, b in zip(labels, outputs, strict=True)])
    assert counts.metrics["pearson"](counts.rows.sum(0)) == pytest.approx(
        pearsonr(x, x + y).statistic, abs=1e-6
    )
    assert correlation(np.array([3.0, 3, 6, 3, 14, 6])) == 0, "all labels are alike"


@pytest.mark.parametrize(
    ("predictions", "scores", "right"),
    [
        (  # the F1 of x is 2/3, that of y 0
            [
                {"label": "x", "output": "x", "right": True},
                {"label": "x", "output": "y", "right": False},
            ],
            {"accuracy": 0.5, "f1_macro": 1 / 3},
            [1, 0],
        ),
        (
            [{"output": "z", "right": True, "f1": 1.0}, {"output": "", "right": False, "f1": 0.5}],
            {"f1": 0.75, "exact_match": 0.5},
            [1, 0],
        ),
        (  # precision 1, recall 1/2
            [
                {
                    "output": "",
                    "right": False,
                    "tags": ["B-X", "O"],
                    "expected_tags": ["B-X", "B-Y"],
                },
                {"output": "", "right": True, "tags": ["O"], "expected_tags": ["O"]},
            ],
            {"f1": 2 / 3, "accuracy": 2 / 3},
            [0, 1],
        ),
        (
            [{"label": n, "output": 2.0 * n + 1, "error": 0.0} for n in range(4)],
            {"pearson": 1.0},
            None,
        ),
    ],
)
def test_what_is_counted(
    predictions: list[dict[str, Any]], scores: dict[str, float], right: list[int] | None
) -> None:
    counts = counts_of([{"input": "text", **prediction} for prediction in predictions])
    found = {name: float(value(counts.rows.sum(0))) for name, value in counts.metrics.items()}
    assert list(found) == list(scores)
    assert found == pytest.approx(scores)
    assert (None if counts.right is None else counts.right.tolist()) == right


def test_a_huge_perplexity_is_written_shortly() -> None:
    """Of a word and the end of its document: e^(20 / 2) and e^(40 / 2)."""
    counts = counts_of([{"input": "one", "nats": 20.0}, {"input": "two", "nats": 40.0}])
    assert counts.outputs == ["perplexity 22,026.5", "perplexity 4.85e+08"]


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_that_of_scipy(b: int, c: int) -> None:
    from scipy.stats import binomtest, chi2

    test = mcnemar(b, c)
    if b + c:
        assert test["p_exact"] == pytest.approx(binomtest(b, b + c).pvalue)
        assert test["chi_square"] == pytest.approx(max(0, abs(b - c) - 1) ** 2 / (b + c))
    else:
        assert test["p_exact"] == 1
    assert test["p_chi_square"] == pytest.approx(chi2.sf(test["chi_square"], 1))


def paired(one: Any, other: Any) -> dict[str, Any]:
    """The mean of the second column's values against that of the first."""
    rows = {
        name: np.stack([values, np.ones(len(values))], axis=1)
        for name, values in (("one", one), ("other", other))
    }
    return paired_tests_of_sums({"mean": lambda sums: sums[..., 0] / sums[..., 1]}, rows, "one")[1]


def test_randomisation_against_all_swaps_there_are() -> None:
    generator = np.random.default_rng(3)
    one, other = generator.normal(size=10), generator.normal(size=10) + 0.6
    moved = other - one
    swaps = [
        abs(np.mean(moved * signs)) >= abs(moved.mean()) - 1e-12
        for signs in product((1, -1), repeat=10)
    ]
    test = paired(one, other)
    assert test["difference"] == pytest.approx(moved.mean())
    assert test["p_randomisation"] == pytest.approx(np.mean(swaps), abs=0.015)


def test_bootstrap_against_the_normal_distribution() -> None:
    """With many units the difference of two means is normal, and so its p-value and its interval
    are known."""
    generator = np.random.default_rng(5)
    one = generator.normal(size=800)
    moved = generator.normal(0.06, 1, size=800)
    test = paired(one, one + moved)
    z = abs(moved.mean()) / (moved.std() / math.sqrt(800))
    assert test["p_bootstrap"] == pytest.approx(math.erfc(z / math.sqrt(2)), abs=0.03)
    assert test["interval"] == pytest.approx(1.96 * (one + moved).std() / math.sqrt(800), rel=0.08)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (
            np.arange(9.0),
            np.arange(9.0),
            {"difference": 0, "p_bootstrap": 1, "p_randomisation": 1},
        ),  # equal systems
        # Every resample of one document is that document, so that any difference would look
        # certain.
        ([1.0], [9.0], {"p_bootstrap": None, "p_randomisation": 1}),
        # The baseline's score and the difference would lose the digits of a score far from it.
        ([1e17] * 3, [0.25] * 3, {"score": 0.25}),
    ],
)
def test_equal_single_and_far_apart_units(one: Any, other: Any, expected: dict[str, Any]) -> None:
    test = paired(one, other)
    assert {name: test[name] for name in expected} == expected
    assert not test["significant"]


def test_language_models_with_other_tokenizers_are_compared(runs: Runs, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    tree = succeed("compare", runs["gpt"], runs["words"], "--json", "--out", page).json
    assert (tree["metrics"], tree["documents"]) == (["word_perplexity", "bits_per_character"], 12)
    assert len(tree["differ_most"]) == 24
    written = page.read_text(encoding="utf-8")
    wanted = (
        "12 documents",
        "perplexity per word",
        "bits per character",
        "tokenizer.vocabulary",
        "Losses are per token",
    )
    assert [text for text in wanted if text not in written] == []
    assert "greedy search" not in written, "nothing is written to be measured"
    file = write(tmp_path / "one.txt", "The old man slept in the garden.\n")
    out = succeed("compare", runs["gpt"], runs["words"], "--file", file).out
    assert out.startswith("Language modeling, 1 document of ")
    assert "which may be chance (p unknown by bootstrap, 1.000 by randomisation)" in " ".join(
        out.split()
    )


def test_classifiers_are_compared_by_mcnemar_and_bootstrap(
    classifiers: dict[str, Path], tmp_path: Path
) -> None:
    page, pair = tmp_path / "report.html", (classifiers["fresh"], classifiers["taught"])
    assert "McNemar p" in succeed("compare", *pair, "--out", page).out
    written = html.unescape(page.read_text(encoding="utf-8"))
    assert "Right and wrong" in written
    assert "of the validation set (the run's recipe has no test set)" in written
    assert "per token" not in written
    tree = succeed("compare", *pair, "--json").json
    assert (tree["split"], tree["note"]) == ("validation", "the run's recipe has no test set")
    fresh, taught = tree["systems"]
    assert (taught["accuracy"], taught["f1_macro"]) == (1, 1)
    wrong = round(32 * (1 - fresh["accuracy"]))
    [test] = tree["mcnemar"]
    assert (test["only_baseline_right"], test["only_system_right"]) == (0, wrong)
    assert test["p_exact"] == pytest.approx(2 / 2**wrong)
    assert [row["significant"] for row in tree["significance"] if row["metric"] == "accuracy"] == [
        False,
        True,
    ]


def test_other_examples_are_refused_but_for_a_file(runs: Runs, tmp_path: Path) -> None:
    two = [runs["gpt"], runs["gpt-pre"]]
    message = (
        f"its examples differ from those of {two[0]} (give the texts to compare on with --file;"
    )
    assert message in refusal("compare", *two)
    same = write(tmp_path / "same.jsonl", '{"text": "The fox ran."}\n{"text": "It rained."}\n')
    assert api.compare(two, files=[str(same)]).to_json()["documents"] == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"mask_share": 0.0, "random_share": 0.0},
            "other tokens are hidden from it than from {}, or are shown to it in ",
        ),
        (
            {"mask_rate": 0.4},
            "compare runs with the same tokenizer, data.max_length, data.mask_rate,",
        ),
    ],
)
def test_masked_models_with_other_hidden_tokens_are_refused(
    runs: Runs, changes: dict[str, Any], message: str
) -> None:
    run = Run.open(runs["bert"])
    data = run.recipe.data.model_copy(update=changes)
    with pytest.raises(DataError) as refused:
        api.compare([run, run.under(run.recipe.model_copy(update={"data": data}))])
    assert message.format(run.folder) in str(refused.value)


def test_classifiers_with_other_expected_answers_are_refused(classifiers: dict[str, Path]) -> None:
    run = Run.open(classifiers["taught"])
    corpora = [
        corpus.model_copy(update={"label": "other"}) for corpus in run.recipe.data.validation
    ]
    data = run.recipe.data.model_copy(update={"validation": corpora})
    with pytest.raises(DataError, match="its expected answers differ from those of"):
        api.compare([run, run.under(run.recipe.model_copy(update={"data": data}))])


def test_tags_of_two_schemes_are_compared_in_one() -> None:
    """Three of four tags are right in IOB2, and no entity; as BIOES writes them, two would be."""
    entities = {"expected_tags": [Entity("X", 0, 3)], "tags": [Entity("X", 0, 2)]}
    for scheme in ("iob2", "bioes"):
        tags = {name: tags_of(own, 4, scheme) for name, own in entities.items()}  # type: ignore[arg-type]
        assert counts_of([{"output": "", "right": False, **tags}]).rows.tolist() == [
            [4, 3, 1, 1, 0]
        ]


TOKENIZERS = {
    "pieces": {"kind": "bpe", "vocabulary": 300},
    "words": {"kind": "word", "vocabulary": 2000},
    "few": {"kind": "word", "vocabulary": 20},
}


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("unknown")
    data = {
        "train": {"corpus": "tales-en", "size": 150},
        "validation": {"corpus": "tales-en", "size": 20},
    }
    model = {"kind": "lstm_lm", "embedding": 24, "hidden": 24, "layers": 1}
    for name, tokenizer in TOKENIZERS.items():
        tree = raw_recipe(model, data | {"max_length": 128}, tokenizer, steps=40, decode=0)
        train(tree, out=folder / name, quiet=True)
    return {name: folder / name for name in TOKENIZERS}


@pytest.mark.parametrize(
    ("known", "texts", "unknown", "symbols"),
    [
        (
            "ab cde",
            ["ab cde", "xyz ab 한", ""],
            [0, 2, 0],
            [0, 3 + 1 + 3 + 1, 0],
        ),  # 한 has three bytes
        (
            "ab cde",
            ["ab 한", "ab \u1112\u1161\u11ab"],
            [1, 1],
            [4, 4],
        ),  # a syllable in pieces is the same one
        ("ab <unk>", ["ab <unk> ab"], [0], [0]),  # a text that says <unk> has no unknown token
    ],
)
def test_spelling_unknown_words_by_hand(
    known: str, texts: list[str], unknown: list[int], symbols: list[int]
) -> None:
    config = TokenizerConfig(kind="word", vocabulary=20, split="spaces")
    text = raw_tokens(texts, Tokenizer.train(config, [" ".join([known] * 3)]))
    assert text.spelt_out[0].tolist() == unknown
    assert text.spelt_out[1].tolist() == pytest.approx([count * math.log(257) for count in symbols])
    assert text.unknown_share == sum(unknown) / sum(len(one.split()) for one in texts)


def test_evaluate_charges_words_and_characters_but_no_token(
    vocabularies: dict[str, Path], tmp_path: Path
) -> None:
    file = write(tmp_path / "text.txt", "The kind child\n\nZyxwv.\n")
    found = api.evaluate(vocabularies["words"], files=[str(file)])
    unknown = (5 + 1) * math.log(257)  # Zyxwv
    nats = found["loss"] * found["tokens"] + unknown
    assert found["unknown"] == pytest.approx(1 / (found["tokens"] - 2))
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert found["word_perplexity"] == pytest.approx(math.exp(nats / (4 + 2)))
    assert found["bits_per_character"] == pytest.approx(nats / math.log(2) / 20)
    assert "unknown token costs" in found["note"]
    assert "unknown" in succeed("evaluate", vocabularies["words"], "--file", file).out


def test_without_unknown_tokens_there_is_no_note(
    vocabularies: dict[str, Path], tmp_path: Path
) -> None:
    """Characters are counted as they are read: blanks that no model reads are none that it
    predicts."""
    texts = ("The kind child went home.", "The  kind\tchild   went home.")
    files = [str(write(tmp_path / f"{number}.txt", text)) for number, text in enumerate(texts)]
    single, double = (
        api.evaluate(vocabularies["pieces"], files=[file])["bits_per_character"] for file in files
    )
    assert double == single
    file = write(tmp_path / "text.txt", next(generate("tales-en", 1, 1, "train"))[0])
    found = api.evaluate(vocabularies["words"], files=[str(file)])
    words = len(file.read_text(encoding="utf-8").split()) + 1
    assert found["unknown"] == 0
    assert "note" not in found
    assert found["word_perplexity"] == pytest.approx(
        math.exp(found["loss"] * found["tokens"] / words)
    )


def test_a_vocabulary_of_twenty_words_does_not_win(
    vocabularies: dict[str, Path], tmp_path: Path
) -> None:
    """By the perplexity of its own tokens it is far ahead: half of them are <unk>, which is easy to
    predict."""
    alone = {name: api.evaluate(folder)["perplexity"] for name, folder in vocabularies.items()}
    assert alone["few"] < min(alone["pieces"], alone["words"])
    page = tmp_path / "report.html"
    said = succeed("compare", *vocabularies.values(), "--out", page).out
    found = json.loads(succeed("compare", *vocabularies.values(), "--json").out)
    rows = {row["system"]: row for row in found["systems"]}
    evaluated = api.evaluate(vocabularies["few"])
    for metric in ("word_perplexity", "bits_per_character", "unknown"):
        assert rows["few"][metric] == pytest.approx(evaluated[metric], rel=1e-5)
    assert rows["few"]["unknown"] > 0.3
    assert rows["pieces"]["unknown"] == 0
    for metric in ("word_perplexity", "bits_per_character"):
        assert rows["few"][metric] > max(rows["pieces"][metric], rows["words"][metric])
    for text in (said, found["note"], page.read_text(encoding="utf-8")):
        assert "an unknown token costs, besides" in text
