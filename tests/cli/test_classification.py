"""Classification, regression and multiple choice through the command line: what they learn, keep
and refuse."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard as api
from command_line import fail, succeed, write
from raw_cases import Runs
from regard.config import write_yaml
from regard.data.framing import labelled_batch
from regard.errors import CheckpointError
from regard.inference.evaluation import PredictionFiles
from regard.language import korean
from regard.runs import Run
from regard.runs.examples import examples_of
from regard.tasks import TASKS

Tree = dict[str, Any]
TRAINING: Tree = {
    "steps": 2,
    "batch_tokens": 256,
    "device": "cpu",
    "learning_rate": 0.01,
    "schedule": "constant",
    "warmup": 0,
    "log_every": 1,
}
MODEL: Tree = {"kind": "bilstm", "preset": "tiny", "embedding": 16, "hidden": 16}
TABLE = "sentence\tlabel\nvery good\t1\nreally bad\t0\nso good\t1\nquite bad\t0\n"


class Project:
    """A recipe in a folder, and its data."""

    def __init__(
        self, folder: Path, task: str = "classification", train: Tree | None = None, **others: Any
    ) -> None:
        self.folder = folder
        corpus = train or {"file": "train.tsv", "text": "sentence", "label": "label"}
        tree: Tree = {
            "task": task,
            "data": {"train": corpus, "validation": corpus},
            "tokenizer": {"kind": "word"},
            "model": MODEL,
            "training": TRAINING,
        }
        self.recipe = write(folder / "recipe.yaml", write_yaml(tree | others))

    def train(self, *overrides: str) -> Path:
        succeed("train", self.recipe, *overrides, "--out", self.folder / "run")
        return self.folder / "run"

    def refused(self, *overrides: str) -> str:
        [message] = fail("train", self.recipe, *overrides, "--out", self.folder / "run")
        assert not (self.folder / "run").exists()
        return message


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write(tmp_path / "train.tsv", TABLE)
    return Project(tmp_path)


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    """A run on TABLE, only read."""
    folder = tmp_path_factory.mktemp("table")
    write(folder / "train.tsv", TABLE)
    return Project(folder).train()


@pytest.fixture(scope="module")
def sentiment(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    """The recipe that ships, cut short."""
    run = tmp_path_factory.mktemp("sentiment") / "run"
    succeed(
        "train",
        "sentiment",
        "training.epochs=2",
        "training.log_every=500",
        "training.device=cpu",
        "--out",
        run,
    )
    return run


def test_reviews_are_told_apart(sentiment: Path, tmp_path: Path) -> None:
    found = succeed("evaluate", sentiment, "--json").json
    assert found["accuracy"] == found["f1_micro"] >= 0.95
    assert found["matthews"] >= 0.9
    assert found["examples"] == 500 == sum(sum(row.values()) for row in found["confusion"].values())
    vectors = api.features(
        sentiment, ["The plot was superb."], pooling="mean", out=tmp_path / "a.npz"
    ).vectors
    assert vectors.shape == (1, 128), "of the model below the head"


def test_predictions_and_errors_are_written(sentiment: Path, tmp_path: Path) -> None:
    found = succeed("evaluate", sentiment, "--predictions", tmp_path / "mine.jsonl", "--json").json
    assert found["predictions"] == str(tmp_path / "mine.jsonl")
    told = [
        json.loads(line)
        for line in (tmp_path / "mine.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    wrong = [
        json.loads(line)
        for line in (tmp_path / "mine.errors.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert len(told) == 500
    assert wrong == [one for one in told if one["output"] != one["label"]]
    assert len(wrong) == round(500 * (1 - found["accuracy"]))
    assert told[2]["where"] == "corpus reviews-en:3"
    assert all(
        max(one["probabilities"], key=one["probabilities"].get) == one["output"] for one in told
    )
    assert api.evaluate(sentiment)["predictions"] == str(sentiment / "predictions.jsonl")
    assert (sentiment / "errors.jsonl").exists()
    kept = (sentiment / "predictions.jsonl").read_bytes()
    table = write(tmp_path / "new.csv", "text,label\nThe plot was superb.,positive\n")
    split = write(tmp_path / "validation.csv", table.read_bytes())
    for options, name in (
        ({"files": [str(table)]}, "new"),
        ({"split": "validation"}, "validation"),
        ({"files": [str(split)]}, "validation.file"),
    ):
        assert api.evaluate(sentiment, **options)["predictions"] == str(
            sentiment / f"predictions.{name}.jsonl"
        )
    assert (sentiment / "predictions.jsonl").read_bytes() == kept


def test_labels_from_arguments_files_and_standard_input(
    sentiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["The plot was superb.", "The music was not moving."]
    expected = succeed("predict", sentiment, *texts, "--json").jsons
    assert [one["output"] for one in expected] == ["positive", "negative"]
    assert all(sum(one["probabilities"].values()) == pytest.approx(1) for one in expected)
    assert [one["input"] for one in expected] == texts
    lines = "".join(f"{text}\n" for text in texts)
    assert succeed("predict", sentiment, "--json", stdin=lines).jsons == expected
    assert (
        succeed("predict", sentiment, "--file", write(tmp_path / "a.txt", lines), "--json").jsons
        == expected
    )
    p = expected[0]["probabilities"]
    assert succeed("predict", sentiment, texts[0]).out == f"positive\t{p['positive']:.4f}\n"
    both = succeed("predict", sentiment, texts[0], "--nbest", 2).out
    assert both == f"positive\t{p['positive']:.4f}\nnegative\t{p['negative']:.4f}\n"
    assert succeed("predict", sentiment, "☃☃☃", "--json").json["output"] in ("positive", "negative")
    monkeypatch.chdir(tmp_path)
    assert succeed("predict", sentiment, "a.txt").err.splitlines() == [
        "note: a.txt is read as a text, but is the name of a file, too: --file a.txt reads that",
        "note: input 1 has 2 tokens that are not in the vocabulary ('a.txt'): the model reads <unk> "
        "there",
    ]


def test_two_texts_are_compared(tmp_path: Path) -> None:
    """Whether two words are the same, from number and order alone; both columns matter."""
    words = "abcd"
    rows = [f"{a}\t{b}\t{'same' if a == b else 'other'}" for a in words for b in words]
    write(tmp_path / "train.tsv", "\n".join(rows) + "\n")
    corpus = {"file": "train.tsv", "first": 0, "second": 1, "label": 2}
    project = Project(tmp_path, train=corpus, head={"class_weights": "balanced"})
    run = project.train(
        "training.steps=150", "training.validate_every=150", "data.deduplicate=false"
    )
    assert Run.open(run).recipe.head.class_weights == {"other": pytest.approx(16 / 24), "same": 2.0}
    assert succeed("evaluate", run, "--json").json["accuracy"] == 1.0
    answers = succeed("predict", run, "a\ta", "a\tb", "--json").jsons
    assert [one["output"] for one in answers] == ["same", "other"]


def test_how_far_off_numbers_are(runs: Runs) -> None:
    """2.0 for 2.5, 2.5 for 0.5, 4.0 for 4: errors of 0.5, 2 and 0, with squares of 0.25, 4 and
    0."""
    run = Run.open(runs["regression"])
    metrics = run.task.metrics.scores(
        examples_of(run, "validation"), np.array([[2.0], [2.5], [4.0]])
    )
    assert {name: metrics[name] for name in ("loss", "mae", "rmse")} == pytest.approx(
        {"loss": 17 / 12, "mae": 5 / 6, "rmse": (17 / 12) ** 0.5}
    )


def test_numbers_are_learned(tmp_path: Path) -> None:
    """How many of five letters are a."""
    texts = [list(f"{number:05b}") for number in range(32)]
    rows = [
        json.dumps({"text": " ".join("ba"[int(one)] for one in text), "n": text.count("1") / 2})
        for text in texts
    ]
    write(tmp_path / "train.jsonl", "\n".join(rows) + "\n")
    project = Project(tmp_path, "regression", {"file": "train.jsonl", "text": "text", "label": "n"})
    run = project.train(
        "training.steps=120",
        "training.validate_every=40",
        "head.dropout=0",
        "head.pooling=mean",
        "training.best=mae",
    )
    errors = {
        event["step"]: event["mae"]
        for event in Run.open(run).events()
        if event["event"] == "validation"
    }
    assert (run / "best").read_text(
        encoding="utf-8"
    ).strip() == f"step-{min(errors, key=errors.__getitem__):08d}"
    found = succeed("evaluate", run, "--json").json
    assert found["pearson"] > 0.99
    assert found["spearman"] > 0.95
    assert len((run / "errors.jsonl").read_text(encoding="utf-8").splitlines()) == 4
    [told] = succeed("predict", run, "a a a a b", "--json").jsons
    assert told["output"] == pytest.approx(2, abs=0.3)
    assert succeed("predict", run, "a a a a b").out == f"{told['output']:.4f}\n"


def test_a_number_begins_with_the_mean(tmp_path: Path) -> None:
    write(tmp_path / "train.tsv", "sentence\tlabel\na\t10\nb\t20\nc\t60\n")
    run = Project(tmp_path, "regression").train("training.learning_rate=1e-9")
    assert succeed("predict", run, "a", "--json").json["output"] == pytest.approx(30, abs=0.1)


def test_both_orders_give_the_same_number(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", "first,second,score\na b,c,1.5\nc,a,0.5\nb,b a,0.25\n")
    corpus = {"file": "train.csv", "first": "first", "second": "second", "label": "score"}
    gpt = {"kind": "gpt", "width": 16, "heads": 2, "feed_forward": 32, "layers": 1}
    run = Project(tmp_path, "regression", corpus, model=gpt).train("head.auxiliary=0.5")
    assert Run.open(run).recipe.head.both_orders
    one, other = succeed("predict", run, "a b\tc", "c\ta b", "--json").jsons
    assert one["output"] == pytest.approx(other["output"], abs=1e-6)


def test_the_right_choice_is_learned(tmp_path: Path) -> None:
    """The choice that is the same word as the text, as letters and as a list in JSON."""
    words = "abcd"
    rows = [
        {"q": a, "options": [a, b] if number % 2 else [b, a], "answer": "A" if number % 2 else "B"}
        for number, (a, b) in enumerate((a, b) for a in words for b in words if a != b)
    ]
    write(tmp_path / "train.jsonl", "\n".join(map(json.dumps, rows)) + "\n")
    corpus = {
        "file": "train.jsonl",
        "text": "q",
        "choices": ["options.0", "options.1"],
        "label": "answer",
    }
    project = Project(
        tmp_path, "multiple_choice", corpus, head={"labels": ["A", "B"], "dropout": 0.0}
    )
    run = project.train("training.steps=150", "training.validate_every=150")
    assert succeed("evaluate", run, "--json").json["accuracy"] == 1.0
    two, three = succeed("predict", run, "a\tb\ta", "c\tc\tb\td", "--json").jsons
    assert (two["output"], two["choice"]) == ("B", "a")
    assert (three["output"], three["choice"]) == ("A", "c")
    assert sorted(three["probabilities"]) == ["2", "A", "B"]
    write(tmp_path / "train.jsonl", json.dumps(rows[0] | {"answer": "C"}) + "\n")
    hint = "the choices are A, B; head.labels names them otherwise"
    message = f"train.jsonl:1: the label 'C' is not one of the choices ({hint})"
    assert fail("check", project.recipe) == [message]


TWO_FILES = {"text": "texts.txt", "label": "labels.txt"}
ODD = ["01", "9", "10", "no"]
"""Numbers as numbers and as text, a zero in front, a word that YAML 1.1 takes for false."""
OBJECTS = [
    {"sentence": one, "label": label}
    for one, label in zip("acde", (10, 9, "no", "01"), strict=True)
]


@pytest.mark.parametrize(
    ("files", "corpus", "head", "labels"),
    [
        ({"a.csv": 'sentence,label\n"a, b",10\nc,9\nd,no\ne,01\n'}, {}, {}, ODD),
        (
            {"a.tsv": 'sentence\tlabel\nsaid " a\t10\n"\t9\nd "\tno\ne\t01\n'},
            {},
            {},
            ODD,
        ),  # as GLUE: quotes are signs
        ({"a.jsonl": "".join(json.dumps(one) + "\n" for one in OBJECTS)}, {}, {}, ODD),
        (
            {"a.tsv": "sentence\tlabel\ngood\t pos\nbad\t neg\nso bad\t neg\n"},
            {},
            {},
            [" neg", " pos"],
        ),
        ({"a.tsv": TABLE}, {}, {"labels": [1, 0, 2]}, ["1", "0", "2"]),  # given in their order
        (
            {"texts.txt": "very good\nreally bad\n", "labels.txt": "1\n0\n"},
            TWO_FILES,
            {},
            ["0", "1"],
        ),
        ({"a.parquet": ""}, {}, {}, ["0", "2"]),
    ],
)
def test_labels_are_kept(
    files: dict[str, str], corpus: Tree, head: Tree, labels: list[str], tmp_path: Path
) -> None:
    for name, content in files.items():
        write(tmp_path / name, content)
    if "a.parquet" in files:
        parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        table = arrow.table({"sentence": ["a", "b", "c"], "label": [2, 0, 2]})
        parquet.write_table(table, tmp_path / "a.parquet")
    train = corpus or {"file": next(iter(files)), "text": "sentence", "label": "label"}
    recipe, base = api.load_recipe(Project(tmp_path, train=train, head=head).recipe)
    prepared = TASKS["classification"].prepare(recipe, base)
    task: Any = TASKS["classification"](prepared.recipe, prepared.tokenizers)
    assert list(task.views.classes) == labels
    assert task.network.build().head.linear.weight.shape[0] == len(labels)


def test_windows_are_averaged(project: Project) -> None:
    run = project.train("data.max_length=8", "data.long=windows", "data.stride=3")
    opened = Run.open(run)
    model, task, text = (
        opened.load_model(),
        opened.task,
        "very good really bad so good quite bad very very",
    )
    rows = task.encoding.framing.rows(task.encoding.framing.tokenizer.encode(text))
    assert [len(row.ids) for row in rows] == [8, 8, 6]
    with torch.inference_mode():
        alone = [model(labelled_batch([[row]], torch.zeros(1), 0)) for row in rows]
    [(examples, _)] = task.answers.encode_inputs(model, task.inputs.typed_lines([text])).readable()
    [found] = task.answers.results(model, examples)
    assert found.tolist() == pytest.approx(torch.stack(alone).mean(0)[0].tolist(), abs=1e-6)
    assert succeed("evaluate", run, "--json").json["examples"] == 4


def test_a_label_that_the_training_data_has_not(project: Project, short_run: Path) -> None:
    """It is named once, where it first stands."""
    file = write(project.folder / "dev.tsv", TABLE + "a\t2\nb\t2\nc\t3\nd\t2\n")
    dev = "data.validation={file: dev.tsv, text: sentence, label: label}"
    for messages in (
        fail("check", project.recipe, dev),
        fail("evaluate", short_run, "--file", file),
    ):
        assert [message.rpartition("/")[2] for message in messages] == [
            f"dev.tsv:{line}: the label '{label}' is not in the training data (the training data "
            "has 0, 1)"
            for line, label in ((6, 2), (8, 3))
        ]


ALIKE = "sentence\tlabel\ngood\tpos\nbad\tneg\nso bad\tneg\nfine\t{}\nso good\tpos\n"
SWAPPED = "sentence\tverdict\n" + "".join(
    f"{word} film number {number}\t{word == 'good'}\n"
    for number in range(30)
    for word in ("good", "bad")
)
SPLIT = "data.validation={split: 0.5}"


def columns(text: str, label: str) -> list[str]:
    return [
        f"data.{part}={{file: train.tsv, text: {text}, label: {label}}}"
        for part in ("train", "validation")
    ]


@pytest.mark.parametrize(
    ("table", "overrides", "message"),
    [
        (
            TABLE,
            ["head.labels=[0]"],
            "train.tsv:2: the label '1' is not one of head.labels (head.labels has 0; leave",
        ),
        (
            ALIKE.format(" pos"),
            [],
            "train.tsv:5: the labels 'pos' and ' pos' differ only in white space (write them",
        ),
        (
            ALIKE.format("pos\u00a0"),
            [],
            "train.tsv:5: the labels 'pos' and 'pos\\xa0' differ only in white space",
        ),
        (
            ALIKE.format("é") + "x\te\u0301\n",
            [],
            "train.tsv:7: the labels 'é' and 'e\u0301' differ only in their",
        ),
        (
            TABLE + "no label here\n",
            [],
            "train.tsv:6: there is no column 'label' in this row",
        ),
        (
            TABLE + "an empty one\t\n",
            [SPLIT],
            "train.tsv:6: the label is empty (fill it, or data.bad_lines=drop drops",
        ),
        (TABLE + "\nthe last one\t1\n", [SPLIT], "train.tsv:6: the line is empty"),
        (
            TABLE.replace("label", "verdict") + "x\t\n",
            [SPLIT, "data.train.label=verdict"],
            "train.tsv:6: the label (column 'verdict') is empty",
        ),
        (TABLE, [SPLIT, "data.train.label=lable"], "train.tsv:1: there is no column 'lable'"),
        (
            SWAPPED,
            columns("verdict", "sentence"),
            "data.train.label: sentence: 60 different labels in 60 examples, such as 'good film "
            "number 0' (are the "
            "columns swapped? text: sentence, label: verdict)",
        ),
        (
            SWAPPED,
            columns("sentence", "sentence"),
            "data.train.label: sentence: 60 different labels in 60 examples, such as 'good film "
            "number 0' (is it the "
            "right column?",
        ),
        (
            TABLE + "fine\t0.5\n",
            [],
            "train.tsv:6: the label '0.5' is a number with a fraction, not a class (task: "
            "regression learns numbers;",
        ),
        *(
            (
                f"{TABLE}fine\t{label}\n",
                ["task=regression"],
                f"train.tsv:6: the label '{label}' is not a number",
            )
            for label in ("four", "inf")
        ),
        (
            "sentence\tlabel\na\t1\nb\t1\n",
            [],
            "data.train: every label is '1' (two labels at the least)",
        ),
        (TABLE, ["data.train={file: train.tsv, text: sentence}"], "data.train: name the label: "),
        (
            TABLE,
            ["data.train={file: a.tsv, text: a, first: b, second: c, label: d}"],
            "data.train: give 'text', or 'first' and",
        ),
        (
            TABLE,
            ["data.train={file: train.tsv, first: a, second: b, label: c}"],
            "data: all corpora have one text, or",
        ),
    ],
)
def test_bad_labels_and_recipes_are_refused(
    project: Project, table: str, overrides: list[str], message: str
) -> None:
    write(project.folder / "train.tsv", table)
    assert project.refused("data.bad_lines=error", *overrides).startswith(message)


@pytest.mark.parametrize(("rate", "said"), [(0.01, True), (1e-9, False)])
def test_train_says_where_the_loss_was_still_falling(
    project: Project, rate: float, said: bool
) -> None:
    options = ("training.steps=6", "training.validate_every=3", f"training.learning_rate={rate}")
    told = succeed("train", project.recipe, *options, "--out", project.folder / "run").err
    advice = (
        "the validation loss was still falling: --resume with training.steps=12 trains "
        "twice as long"
    )
    assert (advice in told) == said


def labelled(counts: dict[str, int], **same: str) -> str:
    """A table with so many texts of each label; `same` gives some of them a second label."""
    rows = [
        f"text {label} {number}\t{label}"
        for label, count in counts.items()
        for number in range(count)
    ]
    return (
        "\n".join(["sentence\tlabel", *rows, *(f"{text}\t{label}" for label, text in same.items())])
        + "\n"
    )


@pytest.mark.parametrize("seed", range(3))
def test_each_split_has_its_share_of_every_label(project: Project, seed: int) -> None:
    """Drawn from all examples at once, about one seed in three would have another number of `b` or
    lose `c`."""
    write(
        project.folder / "train.tsv",
        labelled({"a": 880, "b": 100, "c": 20, "d": 1, "e": 2}, f="text e 0"),
    )
    shares = ("data.validation={split: 0.1}", "data.test={split: 0.2}", f"training.seed={seed}")
    data = succeed("check", project.recipe, *shares, "--json").json["data"]
    counts = data["labels"]
    for label, size in (("a", 880), ("b", 100), ("c", 20)):
        assert abs(counts["validation"][label] - 0.1 * size) <= 1
        assert abs(counts["test"][label] - 0.2 * size) <= 1
    assert all(counts["train"][label] for label in "abcdef")
    rare = {
        label: counts["train"][label]
        for label in "def"
        if not counts["validation"][label] * counts["test"][label]
    }
    twice, said = data["findings"]
    assert (
        twice == "1 text has several labels in the training data (first: train.tsv:1003 and "
        "train.tsv:1005)"
    )
    assert said.startswith("too rare to be in every part: the label 'd' (1: train.tsv:1002)")
    assert re.sub(r"\((\d+): [^)]*\)", r"(\1)", said).endswith(
        ", ".join(f"{label!r} ({count})" for label, count in rare.items())
    )


def test_labels_as_pandas_writes_them(project: Project) -> None:
    """1.0 is 1 where all labels are numbers, and nan is a label that is missing."""
    labels = ["1.0", "0.0", "nan", "1", "", "0"]
    rows = "".join(f"{number} a\t{label}\n" for number, label in enumerate(labels))
    write(project.folder / "train.tsv", f"sentence\tlabel\n{rows}")
    messages = fail("check", project.recipe)
    assert [message.partition(" (")[0] for message in messages[:2]] == [
        "train.tsv:4: the label is missing: nan",
        "train.tsv:6: the label is empty",
    ]
    run = project.train("data.bad_lines=drop")
    assert Run.open(run).recipe.head.labels == ["0", "1"]
    found = succeed("evaluate", run, "--json").json
    told = [
        json.loads(line)
        for line in Path(found["predictions"]).read_text(encoding="utf-8").splitlines()
    ]
    assert [one["label"] for one in told] == ["1", "0", "1", "0"]
    assert found["accuracy"] == sum(one["right"] for one in told) / 4
    write(project.folder / "train.tsv", "sentence\tlabel\na\t1.0\nb\tgood\n")
    assert "the label '1.0' is a number with a fraction" in fail("check", project.recipe)[0]


def test_a_text_with_two_labels_is_in_one_split(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"text {number}" for number in range(200)]
    table = "sentence\tlabel\n" + "".join(
        f"{text}\t{label}\n" for text in texts for label in ("yes", "no")
    )
    write(project.folder / "train.tsv", table)
    shares = ("data.validation={split: 0.25}", "data.test={split: 0.25}")
    counts = succeed("check", project.recipe, *shares, "--json").json["data"]["labels"]
    sizes = {"train": 100, "validation": 50, "test": 50}
    assert counts == {part: {"no": size, "yes": size} for part, size in sizes.items()}
    monkeypatch.setenv("REGARD_LANG", "ko")
    assert (
        "\n참고       학습 데이터의 텍스트 100개에 레이블이"
        in succeed("check", project.recipe, *shares).out
    )


def test_bad_rows_are_dropped_and_counted_where_the_recipe_says_so(project: Project) -> None:
    write(
        project.folder / "train.tsv",
        f"{TABLE}too short\ntoo\tlong\t1\nno label\t\nso bad\t0\n{'a ' * 10_001}\t1\n",
    )
    drop = ("data.bad_lines=drop", "data.validation={split: 0.2}")
    facts = succeed("check", project.recipe, *drop, "--json").json["data"]
    assert facts["splits"]["train"]["dropped"]["cells"] == {
        "count": 2,
        "places": ["train.tsv:6", "train.tsv:7"],
    }
    assert facts["splits"]["train"]["dropped"]["empty"] == {"count": 1, "places": ["train.tsv:8"]}
    assert facts["splits"]["train"]["dropped"]["over_long_line"] == {
        "count": 1,
        "places": ["train.tsv:10"],
    }
    assert sum(sum(counts.values()) for counts in facts["labels"].values()) == 5
    assert "2 with cells missing, too many or no text (first: train.tsv:6)" in facts["findings"][-1]
    run = project.train(*drop)
    whole = project.folder / "train.tsv"
    found = succeed("evaluate", run, "--file", whole, "--json").json
    assert found["examples"] == 5
    note = found["note"].partition("; ")[0]  # unknown words are named behind it
    assert note.endswith(f"4 of 9 rows were left out, the first at {whole}:6")
    assert korean(note).endswith(f"9행 중 4행을 제외했습니다 (첫째: {whole}:6)")
    assert "4 of 9 rows" in " ".join(succeed("evaluate", run, "--file", whole).out.split())


def test_evaluate_says_which_rows_it_left_out_and_predict_leaves_out_none(
    short_run: Path, tmp_path: Path
) -> None:
    """By default up to one row in a hundred may be bad."""
    rows = [f"so good {number}\t{number % 2}" for number in range(99)]
    file = tmp_path / "many.tsv"
    write(file, "sentence\tlabel\n" + "\n".join([*rows, "no label\t"]) + "\n")
    found = succeed("evaluate", short_run, "--file", file, "--json").json
    assert found["examples"] == 99
    assert f"1 of 100 rows was left out, the first at {file}:101" in found["note"]
    assert len(succeed("predict", short_run, "--file", file).out.splitlines()) == 100
    write(file, "sentence\tlabel\n" + "\n".join([*rows, "no label\t", "no label, too\t"]) + "\n")
    messages = fail("evaluate", short_run, "--file", file)
    assert [message.partition(": ")[0] for message in messages] == [f"{file}:101", f"{file}:102"]


def test_a_file_is_read_as_the_recipes_own_are(short_run: Path, tmp_path: Path) -> None:
    """Also where each column has a file of its own."""
    files = {
        "a.csv": 'label,sentence\n1,"very, very good"\n0,bad\n',
        "a.jsonl": '{"sentence": "good", "label": 1}\n{"sentence": "bad", "label": 0}\n',
        "texts.txt": "very good\nreally bad\n",
        "labels.txt": "1\n0\n",
        "bad.csv": "text,label\na,1\n",
    }
    table, lines, texts, labels, bad = (
        write(tmp_path / name, content) for name, content in files.items()
    )
    for given in ([table], [lines], [texts, labels]):
        named = [option for file in given for option in ("--file", file)]
        assert succeed("evaluate", short_run, *named, "--json").json["examples"] == 2
    message = f"{bad}:1: there is no column 'sentence' (the columns are text, label)"
    assert fail("evaluate", short_run, "--file", bad) == [message]


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    """The metrics are what was asked for, but what was said of each example is lost."""
    found = {
        "accuracy": 1.0,
        "note": "the run's recipe has no test set",
        "predictions": [{"right": True}],
    }
    file = write(tmp_path / "a file", "") / "predictions.jsonl"
    measured = PredictionFiles(file, is_named=False).write(found)
    assert measured == {
        "accuracy": 1.0,
        "note": f"the run's recipe has no test set; {file.parent} cannot be written to: "
        "--predictions FILE writes the "
        "predictions elsewhere",
    }
    with pytest.raises(CheckpointError):
        PredictionFiles(file, is_named=True).write(found)
