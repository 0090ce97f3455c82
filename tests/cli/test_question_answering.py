"""Questions about texts: from SQuAD's files over scores and windows to answers with their
places."""

import json
import lzma
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from command_line import fail, succeed, write
from labelled_cases import QUESTIONS, SMALL
from model_cases import with_weights_that_matter
from places import SHARED
from regard.data.dataset import Dataset
from regard.data.framing import labelled_batch
from regard.data.readers import open_corpus
from regard.data.squad import QuestionedText, answers_in
from regard.engine.packing import worth_packing
from regard.errors import DataError
from regard.models.headed import Headed
from regard.objectives.labels import SpanCrossEntropy
from regard.recipes.recipe import recipe_of
from regard.runs import Run
from regard.tasks.headed import token_logits
from regard.tasks.question_answering import (
    QuestionAnswering,
    best_threshold,
    exact_match,
    f1,
    normalised,
)
from regard.text.normalise import trimmed
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers
from regard.views.compare import compare
from task_cases import make_task, rows_of
from texts import TEXTS

REAL = SHARED
CONTEXT = "The Normans came to Sicily in 1060 😀 and took café Lim\u0301a."


def recipe_file(folder: Path, **changes: Any) -> Path:
    return write(folder / "recipe.yaml", json.dumps({**QUESTIONS, **changes}))


def asked(id: str, question: str, *answers: tuple[Any, str], **others: Any) -> dict[str, Any]:
    given = [{"text": text, "answer_start": start} for start, text in answers]
    return {"id": id, "question": question, "answers": given, **others}


def squad(*questions: dict[str, Any], context: str = CONTEXT) -> str:
    paragraphs = [{"context": context, "qas": questions}]
    return json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]})


def read(path: Path, **keys: str) -> list[tuple[str, ...]]:
    return [
        row.values
        for row in rows_of(open_corpus(QuestionedText(file=path.name, **keys), path.parent))
    ]


# Reading


def test_squad_by_hand(tmp_path: Path) -> None:
    where, none = (
        asked("a1", "Where?", (20, "Sicily"), (17, "to Sicily")),
        asked("a2", "Why?", is_impossible=True),
    )
    plausible = asked("a3", "Who?", (4, "Normans")) | {
        "is_impossible": True,
        "plausible_answers": [],
    }
    path = write(tmp_path / "dev.json", squad(where, none, plausible))
    assert read(path) == [
        (CONTEXT, "Where?", '[[20, "Sicily"], [17, "to Sicily"]]', "a1"),
        (CONTEXT, "Why?", "[]", "a2"),
        (CONTEXT, "Who?", "[]", "a3"),
    ]
    assert open_corpus(QuestionedText(file="dev.json"), tmp_path).where(2) == "dev.json: question 2"


def test_json_is_read_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.data.formats.MAX_LINE_BYTES", 1000, raising=False)
    file = write(tmp_path / "a.json", squad(asked("q1", "Where?")) + "\n" * 1000)
    with pytest.raises(
        DataError,
        match=r"^a\.json: the JSON has more than 1,000 characters \(convert it to \.jsonl",
    ):
        read(file)


def test_json_lines_with_answers_in_every_form(tmp_path: Path) -> None:
    forms: list[Any] = [
        [{"text": "Sicily", "answer_start": 20}],
        ["Sicily"],
        {"text": ["Sicily"], "answer_start": [20]},
        [],
    ]
    lines = [json.dumps({"context": CONTEXT, "q": "Where?", "answers": form}) for form in forms]
    rows = read(write(tmp_path / "a.jsonl", "\n".join(lines)), question="q")
    assert [answers_in(row[2]) for row in rows] == [((20, "Sicily"),)] * 3 + [()]


def test_a_question_that_stands_twice_is_dropped_whatever_its_id(tmp_path: Path) -> None:
    again = [
        asked("q1", "Where?", (20, "Sicily")),
        asked("q2", "Where?", (20, "Sicily")),
        asked("q3", "Why?"),
    ]
    write(tmp_path / "a.json", squad(*again))
    recipe = recipe_file(
        tmp_path, data={"train": {"file": "a.json"}, "validation": {"file": "a.json"}}
    )
    train = succeed("check", recipe, "--json").json["data"]["splits"]["train"]
    assert (train["kept"], train["dropped"]["duplicate"]) == (
        2,
        {"count": 1, "places": ["a.json: question 2"]},
    )


CUT = CONTEXT.index("Lim")
BAD = {
    squad(
        asked("q1", "?", (3, "Sicily"))
    ): "the answer 'Sicily' is not at 3 of its context (it is at",
    squad(asked("q1", "?", (3, "Malta"))): "the answer 'Malta' is not in its context",
    squad(asked("q1", "?", (-1, "Sicily"))): "the answer 'Sicily' is not at -1 of its context",
    squad(
        asked("q1", "?", (38, "and"))
    ): "the answer 'and' is not at 38 of its context (the offset",
    squad(
        asked("q1", "?", (CUT, "Lim"))
    ): f"the answer 'Lim' at {CUT} starts or ends inside a character",
    squad(asked("q1", "?", (0, " "))): "an answer is empty",
    squad(asked("q1", "?", ("20", "Sicily"))): 'the start of the answer is "20"',
    squad({"id": "q1", "question": "?"}): "there is no column 'answers'",
    squad({**asked("q1", "?"), "answers": 3}): "the answers are 3",
    squad(
        {**asked("q1", "?"), "answers": {"text": ["x"], "answer_start": []}}
    ): "there are 1 answers, and the starts",
    squad(asked("q1", "\ud83d")): "the column 'question' holds half of a surrogate pair",
    "[1]": "a.json: object 1: 1 is not an object",
    "{": "a.json:1: not valid JSON",
    '{"data": []}': "a.json: there is no question",
    '{"data": [{"title": "x"}]}': "a.json: data[0]: there is no list of objects under 'paragraphs'",
    '{"data": [{"paragraphs": [{"qas": '
    "[]}]}]}": "a.json: data[0]: paragraphs[0]: there is no column 'context'",
}


@pytest.mark.parametrize(("content", "expected"), BAD.items(), ids=BAD.values())
def test_bad_files_are_named_with_place_and_question(
    tmp_path: Path, content: str, expected: str
) -> None:
    with pytest.raises(DataError) as error:
        read(write(tmp_path / "a.json", content))
    place = "" if expected.startswith("a.json") else "a.json: question 1 ('q1'): "
    assert str(error.value).startswith(f"{place}{expected}")


def test_every_bad_question_is_told(tmp_path: Path) -> None:
    good, bad = (
        asked("q1", "Where?", (20, "Sicily")),
        [asked(f"q{n}", "Where?", (3, "Malta")) for n in (2, 3)],
    )
    tree = json.loads(squad(good, *bad, {"answers": []}))
    file = write(tmp_path / "a.json", json.dumps(tree, indent=1))
    recipe = recipe_file(tmp_path, data={"train": {"file": "a.json"}, "bad_lines": "error"})
    messages = fail("check", recipe)
    assert [": ".join(message.split(": ")[:2]) for message in messages] == [
        "a.json: question 2 ('q2')",
        "a.json: question 3 ('q3')",
        "a.json: question 4",
    ]
    lines = [{"context": "x", "question": "y", "answers": one} for one in (["x"], ["z"], "x")]
    write(file.with_name("b.jsonl"), "".join(json.dumps(one) + "\n" for one in lines) + "[]\n")
    messages = fail(
        "check", recipe_file(tmp_path, data={"train": {"file": "b.jsonl"}, "bad_lines": "error"})
    )
    assert [message.partition(": ")[0] for message in messages] == [
        "b.jsonl:2",
        "b.jsonl:3",
        "b.jsonl:4",
    ]


# Scores


def test_scores_by_hand() -> None:
    assert normalised("The  Cat's pyjamas!", "squad") == "cats pyjamas"
    assert exact_match("the Cat", ["a dog", "cat."]) == 1
    assert f1("the big cat", ["cat sat"]) == pytest.approx(2 * 1 / (2 + 2))
    assert f1("no no yes", ["no"]) == pytest.approx(2 * 1 / (3 + 1))
    assert (exact_match("", []), f1("", []), exact_match("cat", []), f1("", ["cat"])) == (
        1,
        1,
        0,
        0,
    )
    assert normalised("《삼국지》(소설)", "korquad") == "삼국지 소설"
    assert f1("김민수가", ["김민수"], "korquad") == pytest.approx(2 * 3 / (4 + 3))
    assert f1("김민수가", ["김민수"]) == 0


@pytest.mark.skipif(not REAL.is_dir(), reason="needs ../shared/data")
def test_published_predictions_have_their_published_scores() -> None:
    file = "dev-v1.1.rebuilt.json.xz"
    questions = [
        row.values for row in rows_of(open_corpus(QuestionedText(file=file), REAL / "squad"))
    ]
    assert len(questions) == 10_570
    for model, *expected in (
        ("BERT", 86.20624408703878, 92.19557978351129),
        ("Logistic_Regression_Baseline", 40.14191106906339, 50.98153647324482),
    ):
        outputs = json.loads(
            lzma.decompress((REAL / "squad" / f"predictions_v1.1_{model}.json.xz").read_bytes())
        )
        pairs = [
            (outputs.get(id, ""), [text for _, text in answers_in(answers)])
            for _, _, answers, id in questions
        ]
        scores = [100 * np.mean([metric(*pair) for pair in pairs]) for metric in (exact_match, f1)]
        assert scores == pytest.approx(expected, abs=1e-9)


@given(
    st.lists(
        st.tuples(st.integers(-5, 5), st.sampled_from([0.0, 0.5, 1.0]), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_best_threshold_against_all_thresholds(rows: list[tuple[int, float, bool]]) -> None:
    """Answer where no_answer <= threshold; a question without an answer has 1 for silence, else its
    score."""
    no_answer, scores, unanswered = zip(
        *((n, 0.0 if none else s, none) for n, s, none in rows), strict=True
    )

    def mean(threshold: float) -> float:
        triples = zip(no_answer, scores, unanswered, strict=True)
        return sum(s if n <= threshold else float(none) for n, s, none in triples) / len(rows)

    threshold, best = best_threshold(no_answer, scores, unanswered)
    assert best == pytest.approx(max(mean(one) for one in (*no_answer, -9)))
    assert mean(threshold) == pytest.approx(best)


# Answers and tokens


def task_of(
    tokenizer: Tokenizer,
    kind: str = "bert",
    evaluation: Any = None,
    search: Any = None,
    **data: int,
) -> Any:
    data = {"max_length": 40, "stride": 7, "max_question": 9} | data
    sections = {
        "model": {"kind": kind, **SMALL[kind]},
        "head": {"no_answer": True},
        "evaluation": evaluation or {},
        "search": search or {},
    }
    return make_task("question_answering", Tokenizers({"text": tokenizer}), data=data, **sections)


def model_of(task: Any) -> Headed:
    """With random weights that say something."""
    torch.manual_seed(0)
    return with_weights_that_matter(task.network.build())


def examples_of(
    task: Any,
    contexts: list[str],
    questions: list[str],
    answers: list[str] | None = None,
) -> Dataset:
    columns = {
        "context": contexts,
        "question": questions,
        "answers": answers or ["[]"] * len(contexts),
    }
    return Dataset.of(task.encoding, columns, str)


def span_of(examples: Dataset, row: int, first: int, last: int) -> tuple[int, int]:
    """The characters from one token of a context to another."""
    return int(examples.columns["starts"][row][first]), int(examples.columns["ends"][row][last])


@given(text=TEXTS, ends=st.tuples(st.integers(0, 30), st.integers(1, 10)))
def test_the_tokens_of_an_answer_cover_it_and_no_more_than_its_characters(
    text: str, ends: tuple[int, int]
) -> None:
    tokenizer = Tokenizer.train(TokenizerConfig(kind="byte"), ["a"])
    task = task_of(tokenizer)
    answered = text[ends[0] : sum(ends)]
    examples = examples_of(task, [text], ["?"], [json.dumps([[ends[0], answered]])])
    spans = [span for span in tokenizer.token_spans([text])[0][1] if span.start < span.end]
    answer = trimmed(text, ends[0], ends[0] + len(answered))
    found, inside = (
        task.encoding.answer_tokens(examples, 0),
        [s for s in spans if s.start < answer.end and s.end > answer.start],
    )
    if found is None:
        assert not inside
    else:
        assert span_of(examples, 0, *found) == (inside[0].start, inside[-1].end)


@pytest.fixture(scope="module")
def characters() -> Tokenizer:
    return Tokenizer.train(
        TokenizerConfig(kind="character", vocabulary=500),
        ["Anna lives in Oslo. 민수는 서울에 산다. \u1100\u1161e\u0301?"],
    )


@pytest.mark.parametrize(
    ("kind", "stride"), [("bert", 7), ("gpt", 7), ("lstm_lm", 7), ("cnn", 7), ("bert", 28)]
)
def test_answers_are_joined_over_windows_as_in_a_plain_loop(
    characters: Tokenizer, kind: str, stride: int
) -> None:
    """That there is no answer stands at the first token, or at the last where a model has read all
    only there. What a window holds whole can be given, also where windows share only three
    tokens."""
    task = task_of(characters, kind, {"longest_answer": 4}, stride=stride)
    context = "Anna lives in Oslo.  민수는 서울에 산다. Anna is in Oslo."
    [(_, found, read)] = task.answers.answers_to(
        model_of(task), examples_of(task, [context], ["Where?"]), 5
    )
    windows, logits = zip(*read, strict=True)
    assert len(windows) > 1
    expected: dict[tuple[int, int], float] = {}
    for i in range(len(context)):
        for j in range(i, i + 4):
            holding = [number for number, w in enumerate(windows) if w.start <= i and j < w.stop]
            if holding and not (context[i].isspace() or context[j].isspace()):
                number = max(
                    holding, key=lambda n: min(i - windows[n].start, windows[n].stop - 1 - i)
                )
                window, (first_L, last_L) = windows[number], logits[number]
                shift = window.first - window.start
                expected[i, j] = float(first_L[i + shift]) + float(last_L[j + shift])
    none = -1 if kind in ("gpt", "lstm_lm") else 0
    null = min(float(one[0, none] + one[1, none]) for one in logits)
    log_z = math.log(sum(map(math.exp, [*expected.values(), null])))
    best = sorted(expected, key=lambda pair: -expected[pair])[:5]
    assert [(i, j) for i, j, _ in found.answers] == best
    by_span = {span: task.answers.answer_probability(found, read, span) for span in expected}
    assert by_span == pytest.approx(
        {span: math.exp(score - log_z) for span, score in expected.items()}, rel=1e-4
    )
    assert [p for _, _, p in found.answers] == pytest.approx(
        [expected[pair] - log_z for pair in best], abs=1e-4
    )
    assert found.log_odds == pytest.approx(null - expected[best[0]], abs=1e-4)
    assert found.log_p_none == pytest.approx(null - log_z, abs=1e-4)


def test_an_answer_of_the_longest_length_is_in_a_window_of_a_model_with_few_positions(
    characters: Tokenizer,
) -> None:
    model = {"kind": "bert", **SMALL["bert"], "max_positions": 128}
    task = make_task("question_answering", Tokenizers({"text": characters}), model=model)
    context = "Anna lives in Oslo. " * 30
    windows = task.encoding.windows(examples_of(task, [context], ["Where?"]), 0)
    longest = task.recipe.evaluation.longest_answer
    for first in range(len(context) - longest):
        assert any(window.start <= first and first + longest <= window.stop for window in windows)


@pytest.mark.engine
@pytest.mark.parametrize("kind", SMALL)
def test_every_model_answers_the_same_alone_and_among_others(
    characters: Tokenizer, kind: str
) -> None:
    tree = {**QUESTIONS, "model": {"kind": kind, "preset": "tiny"}, "head": {"no_answer": True}}
    search = {"nbest": 2, "beam": 2}
    tokenizers = Tokenizers({"text": characters})
    task: Any = QuestionAnswering(recipe_of({**tree, "search": search}), tokenizers)
    model = model_of(task).double()  # in single precision ELMo with such weights is chaotic
    typed = [
        "Where?\tAnna lives in Oslo.",
        "Anna?\t민수는 서울에 산다. Anna lives in Oslo.",
        "Oslo\tAnna.",
    ]
    questions, contexts = map(list, zip(*(one.split("\t") for one in typed), strict=True))
    examples = examples_of(task, contexts, questions)
    rows = [[task.encoding.windows(examples, row)[0].row] for row in range(3)]
    assert worth_packing(labelled_batch(rows, torch.zeros(3), 0).text)
    together = [one.to_json() for one in task.predict(model, task.inputs.typed_lines(typed))]
    assert len({one["score"] for one in together}) == 3
    for text, among in zip(typed, together, strict=True):
        alone = task.predict(model, task.inputs.typed_lines([text]))[0].to_json()
        assert alone["output"] == among["output"]
        assert [alone["score"], alone["no_answer"]] == pytest.approx(
            [among["score"], among["no_answer"]], abs=1e-4
        )


def test_no_row_is_longer_than_max_length_and_lengths_are_those_of_the_rows(
    characters: Tokenizer,
) -> None:
    task = task_of(characters, max_length=16, stride=3, max_question=64)
    contexts = ["Anna lives in Oslo. " * 3, "Anna", "Oslo."]
    examples = examples_of(task, contexts, ["Where does Anna live? " * 5, "a", "?"])
    for row, expected in enumerate(examples.lengths.tolist()):
        sizes = [len(window.row.ids) for window in task.encoding.windows(examples, row)]
        assert max(sizes) <= 16
        assert sum(sizes) == expected
        covered = {
            token
            for window in task.encoding.windows(examples, row)
            for token in range(window.start, window.stop)
        }
        assert covered == set(range(len(contexts[row])))


@pytest.mark.parametrize("kind", ["bert", "gpt", "cnn"])
def test_labels_stand_at_the_answer_in_every_window_that_holds_it(
    characters: Tokenizer, kind: str
) -> None:
    task = task_of(characters, kind, max_length=30)
    model = model_of(task)
    context = "Anna lives in Oslo.  민수는 서울에 산다. Anna is in Oslo."
    start = context.index("서울")
    examples = examples_of(
        task, [context] * 2, ["Where?"] * 2, [json.dumps([[start, "서울"]]), "[]"]
    )
    batch = examples.batch(np.array([0, 1]))
    windows = task.encoding.windows(examples, 0)
    assert batch.tokens == len(batch.labels) == 2 * len(windows)
    held = 0
    for ids_L, (first, last), owner, length in zip(
        batch.text.ids_BL.tolist(),
        batch.labels.tolist(),
        batch.owners_B,
        batch.text.lengths_B.tolist(),
        strict=True,
    ):
        none = length - 1 if kind == "gpt" else 0
        if owner == 0 and first != none:
            held += 1
            assert characters.tokens(ids_L[first : last + 1]) == ["서", "울"]
        else:
            assert (first, last) == (none, none)
    assert 0 < held < len(windows)
    loss = SpanCrossEntropy(model)(batch)[0].detach()
    expected = 0.0
    by_row = dict(
        token_logits(
            model,
            [window.row for window in (*windows, *task.encoding.windows(examples, 1))],
            characters.pad,
        )
    )
    logits = [by_row[number].T.numpy() for number in range(len(by_row))]
    for logits_2L, (first, last) in zip(logits, batch.labels.tolist(), strict=True):
        for one_L, place in zip(logits_2L.astype(float), (first, last), strict=True):
            expected += (math.log(sum(map(math.exp, one_L))) - one_L[place]) / 2
    assert float(loss) == pytest.approx(expected, rel=1e-5)


@pytest.fixture(scope="module")
def lower_bytes() -> Tokenizer:
    return Tokenizer.train(TokenizerConfig(kind="byte", lowercase=True), ["a"])


@pytest.fixture(scope="module", params=SMALL)
def talkative(request: pytest.FixtureRequest, lower_bytes: Tokenizer) -> tuple[Any, Headed]:
    """It always has an answer."""
    search = {"nbest": 3, "beam": 3}
    evaluation = {"threshold": 1e9}
    task = task_of(lower_bytes, request.param, evaluation, search, max_length=24, stride=3)
    return task, model_of(task)


@settings(max_examples=40)
@given(
    context=TEXTS.filter(lambda text: text.strip()),
    question=TEXTS.filter(lambda text: text.strip()),
)
def test_answers_are_slices_as_typed(
    talkative: tuple[Any, Headed], context: str, question: str
) -> None:
    task, model = talkative
    [found] = task.predict(model, task.inputs.given({"question": question, "context": context}))
    told = found.to_json()
    edges = {0, *(one.end() for one in regex.finditer(r"\X", context))}
    for answer in [told, *told.get("nbest", [])]:
        assert answer["output"] == context[answer["start"] : answer["end"]]
        assert {answer["start"], answer["end"]} <= edges
        seen = regex.findall(r"\X", answer["output"])
        assert seen[0].strip()
        assert seen[-1].strip()


# Through the command line


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    folder = tmp_path_factory.mktemp("questions")
    succeed("train", recipe_file(folder), "--out", folder / "run", "--json")
    return folder / "run"


def test_it_learns_to_answer(run: Path) -> None:
    found = succeed("evaluate", run, "--json").json
    assert found["questions"] == 200
    assert found["f1"] >= found["exact_match"] > 0.8
    assert found["answerable_f1"] > 0.8
    assert found["unanswerable_right"] > 0.6
    assert found["best_f1"] >= found["f1"]
    lines = [json.loads(line) for line in (run / "predictions.jsonl").read_text().splitlines()]
    wrong = [json.loads(line) for line in (run / "errors.jsonl").read_text().splitlines()]
    assert len(lines) == 200
    assert len(wrong) == sum(one["exact_match"] == 0 for one in lines)
    assert np.mean([one["f1"] for one in lines]) == pytest.approx(found["f1"])
    assert Run.open(run).recipe.head.no_answer is True
    best = succeed(
        "evaluate", run, "--set", f"evaluation.threshold={found['best_threshold']}", "--json"
    ).json
    assert best["f1"] == pytest.approx(found["best_f1"])


def test_all_runs_are_compared_by_the_script_of_the_first(run: Path) -> None:
    first = Run.open(run)
    korquad = first.recipe.evaluation.model_copy(update={"script": "korquad"})
    one, other = compare(
        [first, first.under(first.recipe.model_copy(update={"evaluation": korquad}))]
    ).scores.values()
    assert one == other


def test_predictions_come_with_their_places(run: Path, tmp_path: Path) -> None:
    context = "Ben lives in New York. Ben was born in 1990. Ben has a dog."
    typed = [
        f"Where does Ben live?\t{context}",
        json.dumps({"question": "When was Ben born?", "context": context}),
    ]
    first, second = succeed("predict", run, *typed, "--json").jsons
    assert set(first) == {"input", "output", "start", "end", "score", "no_answer"}
    assert (first["input"], first["output"], first["start"], first["end"]) == (
        typed[0],
        "New York",
        13,
        21,
    )
    assert (second["output"], second["start"]) == ("1990", context.index("1990"))
    assert first["score"] <= 0
    assert succeed("predict", run, typed[0]).out == "New York\n"
    silent = ["--set", "evaluation.threshold=-1e9"]
    assert succeed("predict", run, typed[0], *silent).out == "(no answer)\n"
    [none] = succeed("predict", run, typed[0], *silent, "--json").jsons
    assert (none["output"], none["start"], none["end"]) == ("", None, None)
    several = succeed("predict", run, typed[0], "--nbest", "3").out.splitlines()
    assert several[0].endswith("\tNew York")
    assert len(several) == 4
    file = write(
        tmp_path / "dev.json",
        squad(asked("1", "Where does Ben live?", (13, "New York")), context=context),
    )
    assert succeed("evaluate", run, "--file", file, "--json").json["exact_match"] == 1
    assert (
        succeed("predict", run, typed[0], "--nbest", "3", "--json").jsons[0]["nbest"][0]["output"]
        == "New York"
    )


def test_bad_recipes_are_refused(tmp_path: Path) -> None:
    def message(**changes: Any) -> str:
        return fail("train", recipe_file(tmp_path, **changes), "--out", tmp_path / "run")[0]

    kinds = (
        "bert, bilstm, cnn, deberta, elmo, fasttext, glove, gpt, lstm_lm, modernbert, mpnet, "
        "transformer, word2vec"
    )
    allowed = f"(allowed: {kinds})"
    assert (
        message(model={"kind": "rnn"})
        == f"model: rnn is no model for the task question_answering {allowed}"
    )
    assert "name the questions" in message(data={"train": {}})
    write(tmp_path / "a.csv", "x")
    assert "a.csv: questions cannot be read from a .csv" in message(
        data={"train": {"file": "a.csv"}}
    )
    assert "data.max_length" in message(data={**QUESTIONS["data"], "max_length": 9999})
    smoothed = message(training=QUESTIONS["training"] | {"label_smoothing": 0.1})
    assert (
        smoothed
        == "training.label_smoothing: the loss of question_answering has no classes to smooth "
        "(leave it at 0)"
    )
    assert (
        message(head={"consistency": 4})
        == "head.consistency: the loss of question_answering has no classes whose probabilities "
        "could be compared (leave it at 0)"
    )
    write(
        tmp_path / "a.jsonl", '{"context": "Anna left.", "question": "Who?", "answers": ["Ben"]}\n'
    )
    assert message(data={"train": {"file": "a.jsonl"}}).startswith(
        "a.jsonl:1: the answer 'Ben' is not in its"
    )


@pytest.mark.skipif(not REAL.is_dir(), reason="needs ../shared/data")
def test_korquad_answers_have_their_tokens() -> None:
    """Every answer is covered by its tokens, and with syllables as tokens by no more than it."""
    questions = read(REAL / "korquad" / "KorQuAD_v1.0_dev.json.xz")
    assert len(questions) == 5774
    some = questions[::60]
    tokenizer = Tokenizer.train(
        TokenizerConfig(kind="character", vocabulary=4000), [context for context, *_ in some]
    )
    task = task_of(tokenizer)
    contexts, asked_about, answers, _ = map(list, zip(*some, strict=True))
    examples = examples_of(task, contexts, asked_about, answers)
    for row, context in enumerate(contexts):
        [(_, text)] = answers_in(answers[row])
        tokens = task.encoding.answer_tokens(examples, row)
        assert tokens is not None
        assert context[slice(*span_of(examples, row, *tokens))] == text.strip()
