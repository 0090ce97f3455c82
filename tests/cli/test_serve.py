"""`regard serve`: routes that answer as the functions do, what is refused, many clients at once,
and long verbs as jobs: cancelled, and their number."""

import asyncio
import base64
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import regard
from command_line import fail
from raw_cases import Runs
from regard.errors import RegardError

TestClient = pytest.importorskip("fastapi.testclient").TestClient


from fastapi import HTTPException  # noqa: E402

from regard.studio import jobs, long_verbs  # noqa: E402
from regard.studio.batching import Batcher, QueuedRequest  # noqa: E402
from regard.studio.runs import offered_inputs  # noqa: E402
from regard.studio.server import create_app  # noqa: E402
from regard.studio.settings import Settings  # noqa: E402

LOCAL = "http://127.0.0.1"
LETTERS = [f"{a} {b} {c}" for a in "abcd" for b in "abcd" for c in "abcd"]


@pytest.fixture(scope="module")
def loaded(tiny_run: Path) -> Any:
    return regard.load(tiny_run, device="cpu")


@pytest.fixture(scope="module")
def client(loaded: Any) -> Iterator[Any]:
    with TestClient(create_app({"tiny": loaded}, Settings(body=100_000)), base_url=LOCAL) as client:
        yield client


# The routes


def test_routes_answer_as_the_functions_do(client: Any, loaded: Any) -> None:
    for prefix in ("", "/runs/tiny"):
        for options in ({}, {"beam": 3, "nbest": 2, "length_penalty": 0.5}, {"prefix": "a"}):
            answer = client.post(
                f"{prefix}/predict", json={"inputs": ["a b", ["b c"], {"source": "c"}], **options}
            )
            expected = loaded.predict(["a b", "b c", "c"], **options)
            assert answer.json() == {"predictions": [one.to_json() for one in expected]}
        body = {"source": "a b", "target": "b a"}
        assert client.post(f"{prefix}/score", json=body).json() == loaded.score("a b", "b a")
        assert (
            client.post(f"{prefix}/explain", json={"input": "a b"}).json()
            == loaded.explain("a b").to_json()
        )
    sampled = {"inputs": ["a b"], "sample": True, "temperature": 2.0, "seed": 3}
    overrides = ["search.sample=true", "search.temperature=2.0", "search.seed=3"]
    [expected] = loaded.predict("a b", overrides=overrides)
    assert client.post("/predict", json=sampled).json()["predictions"] == [expected.to_json()]
    numbers = client.post("/explain", json={"input": "a b", "numbers": True, "layer": 1}).json()
    assert numbers == json.loads(json.dumps(loaded.explain("a b").worked().to_json()))
    steps = client.post("/steps", json={"input": "a b", "step": 2}).json()
    assert (steps["views"], steps["layers"], steps["heads"], steps["step"]) == (
        ["alignment"],
        1,
        1,
        2,
    )
    assert [one["name"] for one in steps["code"]][:2] == [
        "AdditiveAttention.query",
        "AdditiveAttention.keys",
    ]
    assert "self.W_a(s_BQD)" in steps["code"][0]["text"]
    hidden = client.post(
        "/steps", json={"input": "a b", "scores": [None, *steps["scores"][1:]]}
    ).json()
    assert hidden["weights"][0] == 0
    assert client.post("/steps", json={"input": "a b", "scores": [1.0]}).status_code == 422


def test_a_search_and_where_its_reference_fell(client: Any, loaded: Any) -> None:
    found = client.post(
        "/search", json={"input": "a b", "beam": 3, "normalisation": "none", "reference": "c d"}
    ).json()
    expected = loaded.predict(
        ["a b"], beam=3, nbest=3, overrides=["search.normalisation=none"], record=True
    ).record
    assert found["inputs"] == json.loads(json.dumps(expected.to_json()["inputs"]))
    assert (found["run"], found["reference"]["tokens"]) == ("tiny", ["c", "▁", "d", "</s>"])
    assert found["reference"]["outcome"]["kind"] == "fell"
    tree = found["report"]["sections"][0]["parts"][0]
    assert [one["marked"] for one in tree["branches"]].count(True) == found["reference"]["outcome"][
        "step"
    ]


def test_what_is_there(client: Any, loaded: Any) -> None:
    assert client.get("/health").json() == {"status": "ok", "runs": ["tiny"]}
    [listed] = client.get("/runs").json()
    shown = client.get("/runs/tiny").json()
    recipe = json.loads(json.dumps(loaded.recipe.model_dump()))
    inputs = {
        "inputs": ["source"],
        "writes": "target",
        "attends": True,
        "answers": True,
        "explains": True,
        "converses": False,
        "languages_by_side": {},
        "examples": shown["examples"],
    }
    assert shown == {**listed, **inputs, "recipe": recipe}
    assert (listed["task"], listed["model"]) == ("translation", "bahdanau")
    assert listed["metrics"][0].keys() == {"step", "loss"}
    client.post("/predict", json={"inputs": [""]})
    metrics = client.get("/metrics").text
    assert re.search(
        r'^regard_requests_total{route="/predict",status="422"} [1-9]', metrics, re.MULTILINE
    )
    assert 'regard_queue_length{run="tiny"} 0\n' in metrics
    page = client.get("/")  # the address that is printed leads to the routes
    assert (page.status_code, page.url.path, "<script" in page.text) == (200, "/docs", False)
    text_of_page = " ".join(page.text.split())  # a browser folds the line breaks of docstrings
    for text in (
        "POST /runs/{name}/predict",
        "<td>beam<td>integer, at least 1, at most 64<td>null",
        "For one input.",
    ):
        assert text in text_of_page
    assert client.get("/openapi.json").json()["paths"].keys() >= {
        "/predict",
        "/runs/{name}/explain",
    }
    for answer in (page, client.get("/nowhere")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_a_body_that_does_not_come_is_given_up(loaded: Any) -> None:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/predict",
        "raw_path": b"/predict",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
    }
    sent, parts = (
        list[dict[str, Any]](),
        iter([{"type": "http.request", "body": b"{", "more_body": True}]),
    )

    async def receive() -> Any:
        return next(parts, None) or await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(create_app({"tiny": loaded}, Settings(timeout=0.05))(scope, receive, send))
    assert sent[0]["status"] == 408
    assert b"has not come whole in 0.05 seconds" in sent[1]["body"]


def streamed(client: Any, text: str, **options: Any) -> list[dict[str, Any]]:
    """The outputs so far, then the prediction."""
    answer = client.post("/predict", json={"inputs": [text], "stream": True, **options})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [event.split("\n") for event in answer.text.removesuffix("\n\n").split("\n\n")]
    kinds, data = zip(
        *((kind, json.loads(line.removeprefix("data: "))) for kind, line in events), strict=True
    )
    assert kinds == ("event: output",) * (len(kinds) - 1) + ("event: prediction",)
    return list(data)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"beam": 1},
        {"beam": 32, "nbest": 32, "length_penalty": 0.0},
        {"beam": 8, "nbest": 2},
        *(
            {"sample": True, "temperature": 3.0, "nbest": nbest, "seed": seed}
            for nbest in (1, 4)
            for seed in range(3)
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["tiny", "gpt"])
def test_the_last_output_that_is_streamed_is_the_prediction(
    loaded: Any, runs: Runs, name: str, options: Any
) -> None:
    run, text = (
        (loaded, "a b") if name == "tiny" else (regard.load(runs["gpt"], device="cpu"), "The child")
    )
    with TestClient(create_app({name: run}, Settings()), base_url=LOCAL) as client:
        *outputs, prediction = streamed(client, text, **options)
        [expected] = client.post("/predict", json={"inputs": [text], **options}).json()[
            "predictions"
        ]
    assert prediction == expected
    assert outputs[-1] == {"output": expected["output"]}
    assert 1 < len(outputs) <= max(len(one["tokens"]) for one in expected["nbest"])
    assert name != "gpt" or all(one["output"].startswith(text) for one in outputs)


def test_what_cannot_be_streamed_is_refused(client: Any) -> None:
    refused = client.post(
        "/predict", json={"inputs": [""], "stream": True}
    )  # known before the first event
    assert (refused.status_code, refused.json()["problems"][0]["what"]) == (
        422,
        "the text is empty",
    ), refused.text


def test_other_tasks(runs: Runs, tmp_path: Path) -> None:
    """Vectors of texts; stories; images as base64, never as a path."""
    pillow = pytest.importorskip("PIL.Image")
    loaded = {
        name: regard.load(runs[name], device="cpu") for name in ("stories", "bert", "captioner")
    }
    pillow.new("RGB", (20, 20), "red").save(tmp_path / "red.png")
    held = "data:image/png;base64," + base64.b64encode((tmp_path / "red.png").read_bytes()).decode()
    with TestClient(create_app(loaded, Settings()), base_url=LOCAL) as client:
        vectors = client.post(
            "/runs/bert/features", json={"inputs": ["the cat", "a dog"], "pooling": "mean"}
        ).json()
        assert (
            vectors["vectors"]
            == loaded["bert"].features(["the cat", "a dog"], pooling="mean").vectors.tolist()
        )
        image = client.get("/runs/captioner").json()["examples"][0]
        assert client.post("/runs/captioner/predict", json={"inputs": [image]}).status_code == 200
        words = {"inputs": ["the cat", "a cat"], "word": "cat", "others": ["the dog"]}
        expected = loaded["bert"].vectors(words["inputs"], word="cat", others=["the dog"]).to_json()
        assert client.post("/runs/bert/vectors", json=words).json() == json.loads(
            json.dumps(expected)
        )
        [found] = client.post("/runs/captioner/predict", json={"inputs": [held]}).json()[
            "predictions"
        ]
        [expected] = loaded["captioner"].predict(str(tmp_path / "red.png"))
        assert {**found, "input": ""} == {**expected.to_json(), "input": ""}
        assert client.post("/runs/captioner/explain", json={"input": held}).status_code == 200
        body = {"input": held, "beam": 2, "reference": "a red circle"}
        found = client.post("/runs/captioner/search", json=body).json()
        assert len(found["inputs"][0]["ranking"]) == 2
        assert found["reference"]["outcome"]["kind"] in ("fell", "finished", "left")
        for name, one, views in (
            ("captioner", held, ["alignment"]),
            ("bert", "the cat", ["encoder"]),
            ("stories", "Mary went to the garden. Where is Mary?", ["hops"]),
        ):
            found = client.post(f"/runs/{name}/steps", json={"input": one}).json()
            assert found["views"] == views
            assert sum(found["weights"]) == pytest.approx(1)
            assert found["code"][-1]["text"].startswith("def ")
        assert client.post("/runs/bert/search", json={"input": "the cat"}).status_code == 422
        for path in (str(tmp_path / "red.png"), {"image": str(tmp_path / "red.png")}):
            refused = client.post("/runs/captioner/predict", json={"inputs": [path]})
            assert refused.status_code == 422
            expected = 'input 1: an image is expected (as a text: "data:image/png;base64,...")'
            assert refused.json()["error"] == expected
        for content, message in (
            ("%%", "the image is not valid base64"),
            (
                base64.b64encode(b"no image").decode(),
                "the image cannot be read as an image: its format is unknown (open it",
            ),
        ):
            broken = client.post(
                "/runs/captioner/predict", json={"inputs": [f"data:image/png;base64,{content}"]}
            )
            assert message in broken.json()["error"]
        recipe = loaded["captioner"].recipe
        features = recipe.model.model_copy(update={"encoder": "features", "feature_width": 4})
        with pytest.raises(
            RegardError, match="x: it reads features of images, which a request cannot hold"
        ):
            create_app(
                {"x": loaded["captioner"].under(recipe.model_copy(update={"model": features}))},
                Settings(),
            )
        asked = {"story": "Mary went to the garden.", "question": "Where is Mary?"}
        for one in (asked, " ".join(asked.values())):
            found = client.post("/runs/stories/explain", json={"input": one}).json()
            assert found == json.loads(json.dumps(loaded["stories"].explain([one]).to_json()))
            assert found["sentences"] == ["Mary went to the garden."]
        assert (
            client.post("/runs/bert/score", json={"source": "a", "target": "b"}).status_code == 422
        )
        several = client.post("/predict", json={"inputs": ["a"]})
        assert (
            several.status_code,
            "those of a run are /runs/NAME/predict" in several.json()["error"],
        ) == (404, True)


@pytest.mark.parametrize(
    "name",
    ["translation", "gpt", "choices", "regression", "tagging", "questions", "stories", "bert"],
)
def test_examples_are_inputs_of_the_run(runs: Runs, name: str) -> None:
    run = regard.load(runs[name], device="cpu")
    examples = offered_inputs(run)
    assert examples
    given = [one.split("\t") if "\t" in one else one for one in examples]  # as the page does
    assert [one.input for one in run.predict(given)] == examples


# What is refused

REFUSED: list[tuple[str, Any, int, str]] = [
    (
        "/predict",
        b"{",
        422,
        "body: not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2",
    ),
    ("/predict", b"\xff", 400, "the body is not JSON in UTF-8"),
    ("/predict", {"inputs": "a b"}, 422, "body.inputs: should be a valid list, not 'a b'"),
    ("/predict", {"inputs": [1]}, 422, "body.inputs.0: should be a valid string, not 1"),
    ("/predict", {"inputs": []}, 422, "at least 1 item"),
    ("/predict", {"inputs": ["a"] * 257}, 422, "at most 256 items"),
    (
        "/predict",
        {"inputs": ["a"], "beam": "3"},
        422,
        "body.beam: should be a valid integer, not '3'",
    ),
    ("/predict", {"inputs": ["a"], "beam": 1000}, 422, "less than or equal to 64"),
    (
        "/predict",
        {"inputs": ["a"], "file": "/etc/passwd"},
        422,
        "body.file: unknown key 'file' (allowed: beam, ",
    ),
    ("/predict", {"inputs": ["a b", ""]}, 422, "input 2: the text is empty"),
    (
        "/predict",
        {"inputs": ["a" * 20_001]},
        422,
        "input 1: it has 20,001 characters (at most 20,000)",
    ),
    ("/predict", {"inputs": [["a", "b" * 20_001]]}, 422, "input 1: it has 20,002 characters"),
    (
        "/predict",
        {"inputs": ["a"], "nbest": 3, "beam": 2},
        422,
        "a beam of 2 cannot give the best 3",
    ),
    ("/predict", {"inputs": ["a", "b"], "stream": True}, 422, "one input is streamed, not 2"),
    ("/predict", {"inputs": ["a" * 100_001]}, 413, "larger than 100,000 bytes"),
    ("/score", {"source": "a"}, 422, "body.target: this key is required"),
    ("/score", [], 422, "body: should be a mapping of keys to values, not []"),
    ("/explain", {"input": "a " * 2_001}, 422, "at most 4,000"),
    ("/explain", {"input": "a b", "head": 99}, 422, "99"),
    (
        "/explain",
        {"input": "a b", "target": "b", "beam": 2},
        422,
        "beam: with --target there is no search",
    ),
    ("/predict", b'{"inputs": ["\\ud800"], "skip_bad": true}', 422, "half of a surrogate pair"),
    ("/predict", b'{"inputs": ["a"], "length_penalty": NaN}', 422, "length_penalty"),
    ("/explain", {"input": "a b", "view": "../x"}, 422, "body.view"),
    ("/search", {"input": "a", "beam": 17}, 422, "less than or equal to 16"),
    ("/search", {"input": "a", "normalisation": "../x"}, 422, "body.normalisation"),
    ("/search", {"input": "a", "reference": "</>"}, 422, "unknown to the tokenizer"),
    ("/steps", {"input": "a b", "scores": ["x"]}, 422, "body.scores.0"),
    ("/steps", {"input": "a b", "step": 99}, 422, "there is no step 99"),
    ("/features", {"inputs": ["a"]}, 422, "has no vectors of a single text"),
    ("/vectors", {"inputs": ["a"], "word": "a"}, 422, "has no vectors of a single text"),
    ("/vectors", {"inputs": ["a"]}, 422, "body.word: this key is required"),
    ("/runs/none/predict", {"inputs": ["a"]}, 404, "there is no run of this name"),
    ("/runs/..%2Ftiny/predict", {"inputs": ["a"]}, 404, "there is no such route"),
    ("/runs/tiny/evaluate", {"split": "all"}, 422, "body.split"),
    ("/runs/tiny/evaluate", {"files": ["/etc/passwd"]}, 422, "body.files: unknown key 'files'"),
    ("/runs/tiny/evaluate", b"{", 422, "not valid JSON"),
    ("/compare", b"\xff", 400, "the body is not JSON in UTF-8"),
    ("/check", b'{"recipe": "\\ud800"}', 422, "half of a surrogate pair"),
    ("/runs/tiny/evaluate", {"rows": []}, 422, "at least 1 item"),
    (
        "/runs/tiny/evaluate",
        {"rows": ["a"]},
        422,
        "body.rows.0: should be a mapping of keys to values, not 'a'",
    ),
    (
        "/runs/tiny/evaluate",
        {"rows": [{"source": "a" * 100_001}]},
        413,
        "larger than 100,000 bytes",
    ),
    ("/runs/%2e%2e/evaluate", {}, 404, ""),
    ("/runs/tiny/diagnose", {"limit": 0}, 422, "greater than or equal to 1"),
    ("/runs/tiny/diagnose", {"sweep": [1000]}, 422, "a beam is 1 to 64 wide"),
    ("/compare", {"runs": ["tiny"]}, 422, "at least 2 items"),
    ("/compare", {"runs": ["tiny", "../tiny"]}, 404, "there is no run of this name"),
    ("/check", {"files": [{"name": "../x.csv", "text": ""}]}, 422, "body.files.0.name"),
    ("/check", {"files": [{"name": ".x", "text": ""}]}, 422, "body.files.0.name"),
    (
        "/check",
        {"files": [{"name": "가" * 67, "text": ""}]},
        422,
        "the name has 201 bytes in UTF-8, at most 200 are",
    ),
    ("/check", {"recipe": 1}, 422, "valid string"),
    ("/health", {}, 405, "this route answers GET only"),
]


@pytest.mark.parametrize(("route", "body", "status", "message"), REFUSED)
def test_what_is_refused(client: Any, route: str, body: Any, status: int, message: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = client.post(route, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert message in answer.json()["error"]
    assert not re.search("Traceback|Input should|Field required|Extra inputs", answer.text)


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (
            b'{"inputs": [1], "baem": 2}',
            "application/json",
            "body.inputs.0: 문자열이어야 하는데 1입니다",
        ),
        (
            b'{"inputs":\n x}',
            "application/json",
            "body: 올바른 JSON이 아닙니다: 값이 있어야 합니다 (2행 2열)",
        ),
        (b"\xff", "application/json", "본문이 UTF-8로 된 JSON이 아니거나 너무 깊이 중첩되었습니다"),
        (b"{}", "", "body: Content-Type: application/json으로 JSON을 보내십시오"),
    ],
)
def test_a_body_is_refused_in_the_language_of_the_request(
    client: Any, content: bytes, kind: str, said: str
) -> None:
    headers = {"accept-language": "ko", "content-type": kind}
    answer = client.post("/predict", content=content, headers=headers).json()
    assert answer["error"] == said
    if b"baem" in content:
        last = answer["problems"][-1]
        assert (last["where"], last["hint"]) == ("body.baem", "'beam'을(를) 쓰려고 했습니까?")


def test_another_method_is_refused(client: Any) -> None:
    answer = client.get("/predict")
    assert (answer.status_code, answer.json()) == (405, {"error": "this route answers POST only"})
    korean = client.get("/predict", headers={"accept-language": "ko"}).json()
    assert korean == {"error": "이 경로는 POST에만 답합니다"}


def test_any_bytes_are_refused_in_a_sentence(client: Any) -> None:
    form = client.post(
        "/predict", content=b"a=1", headers={"content-type": "application/x-www-form-urlencoded"}
    )
    assert form.status_code == 422
    assert form.json()["error"].endswith("send JSON, with Content-Type: application/json")
    for depth in (1, 100, 400, 900, 990, 10_000, 49_000):
        for content in (b"[" * depth + b"]" * depth, b'{"inputs":' * depth + b"1" + b"}" * depth):
            answer = client.post(
                "/predict", content=content[:100_000], headers={"content-type": "application/json"}
            )
            assert answer.status_code in (400, 422)
            assert {"error"} <= set(answer.json()) <= {"error", "problems"}


def test_html_stays_text(client: Any) -> None:
    text = "a <script>alert(1)</script> b"
    answer = client.post("/predict", json={"inputs": [text, "</pre>"], "skip_bad": True})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["predictions"][0]["input"] == text


def test_a_failure_of_ours_tells_nothing(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with TestClient(
        create_app({"tiny": loaded}, Settings()), base_url=LOCAL, raise_server_exceptions=False
    ) as client:
        monkeypatch.setattr(loaded.task.views.written, "score_text", None)
        answer = client.post("/score", json={"source": "a", "target": "b"})
        assert (answer.status_code, answer.json()) == (
            500,
            {"error": "the server failed; its log says why"},
        )
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_who_may_ask(loaded: Any) -> None:
    with pytest.raises(
        RegardError, match=r"--host: whoever reaches 0.0.0.0 could use the runs \(give --token"
    ):
        Settings(host="0.0.0.0")
    token = "sehr-geheim-und-ü"
    with TestClient(
        create_app({"tiny": loaded}, Settings(host="0.0.0.0", token=token)), base_url="http://any"
    ) as client:
        for header, status in (
            (f"Bearer {token}", 200),
            (f"Bearer {token[:-1]}", 401),
            (token, 401),
            ("", 401),
        ):
            assert (
                client.get("/runs", headers={"authorization": header.encode()}).status_code
                == status
            )
        assert client.get("/health").json() == {"status": "ok"}, "the names of runs need the token"
        named = client.get("/health", headers={"authorization": f"Bearer {token}".encode()}).json()
        assert named == {"status": "ok", "runs": ["tiny"]}
        assert client.get("/runs").json() == {"error": "a token is needed"}
    with TestClient(
        create_app({"tiny": loaded}, Settings()), base_url="http://elsewhere.example"
    ) as client:
        assert client.get("/runs").status_code == 403


def test_a_short_token_is_refused(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "--token or REGARD_TOKEN: a token of {} can be guessed (give at least 16: 'openssl "
        "rand -hex 32' makes one)"
    )
    assert fail("serve", tiny_run, "--token", "x") == [said.format("1 character")]
    monkeypatch.setenv("REGARD_TOKEN", "x" * 15)
    assert fail("studio", tiny_run, "--no-browser") == [said.format("15 characters")]
    Settings(token="x" * 16)


# The queue


def test_two_hundred_clients_get_their_own_answers(loaded: Any) -> None:
    """Also with other options, and beside inputs that cannot be read."""
    settings = Settings(window=0.05)
    requests = [
        {"inputs": ["a b", ""]}
        if n % 10 == 9
        else {"inputs": LETTERS[n % 60 : n % 60 + 1 + n % 3], "beam": 1 + n % 2}
        for n in range(200)
    ]
    with (
        TestClient(create_app({"tiny": loaded}, settings), base_url=LOCAL) as client,
        ThreadPoolExecutor(200) as pool,
    ):
        answers = list(pool.map(lambda body: client.post("/predict", json=body), requests))
        metrics = client.get("/metrics").text
    alone = {
        beam: dict(zip(LETTERS, loaded.predict(LETTERS, beam=beam), strict=True)) for beam in (1, 2)
    }
    for number, (body, answer) in enumerate(zip(requests, answers, strict=True)):
        if number % 10 == 9:
            assert (answer.status_code, answer.json()["problems"][0]["where"]) == (422, "input 2")
        else:
            found = [(one["input"], one["output"]) for one in answer.json()["predictions"]]
            assert found == [(text, alone[body["beam"]][text].output) for text in body["inputs"]]
    [batches] = re.findall(r'regard_batches_total{run="tiny"} (\d+)', metrics)
    assert int(batches) < 160


def test_a_batch_has_one_kind_and_about_one_length() -> None:
    held, computed = threading.Event(), list[list[Any]]()

    def compute(inputs: list[Any]) -> list[Any]:
        held.wait(60)
        computed.append(inputs)
        return [one * 2 for one in inputs]

    batcher = Batcher(window=0, max_inputs=3, max_waiting=8)
    first = batcher.submit(QueuedRequest([0], compute))
    while len(batcher):  # until the thread has taken it
        pass
    given = [("a", 10), ("b", 30), ("a", 29), ("a", 90), ("a", 11), ("a", 12)]
    futures = [batcher.submit(QueuedRequest([n], compute, kind, length=n)) for kind, n in given]
    assert batcher.submit(QueuedRequest([5], compute)).cancel()
    with pytest.raises(HTTPException, match="the queue is full"):
        batcher.submit(QueuedRequest([1, 2], compute))
    held.set()
    batcher.close()  # finishes what is queued
    assert computed == [[0], [10, 11, 12], [30], [29, 90]]
    assert [future.result() for future in (first, *futures)] == [[0], *([2 * n] for _, n in given)]
    with pytest.raises(HTTPException, match="the queue is full"):
        batcher.submit(QueuedRequest([1], compute))


def test_one_at_fault_fails_alone() -> None:
    def compute(inputs: list[Any]) -> list[Any]:
        return [1 / one for one in inputs]

    batcher = Batcher(window=0.2, max_inputs=8, max_waiting=8)
    good, bad, other = (batcher.submit(QueuedRequest([n], compute, "kind")) for n in (1, 0, 2))
    assert (good.result(60), other.result(60)) == ([1], [0.5])
    with pytest.raises(ZeroDivisionError):
        bad.result(60)
    batcher.close()


def test_a_full_queue_and_a_late_answer(loaded: Any) -> None:
    with TestClient(create_app({"tiny": loaded}, Settings(queue=2)), base_url=LOCAL) as client:
        answer = client.post("/predict", json={"inputs": ["a", "b", "a b"]})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    with TestClient(
        create_app({"tiny": loaded}, Settings(timeout=0.5, window=1.5)), base_url=LOCAL
    ) as client:
        answer = client.post("/predict", json={"inputs": ["a"]})
        assert (answer.status_code, answer.json()) == (
            504,
            {"error": "there is no answer after 0.5 seconds"},
        )


# The command


def test_a_killed_server_loses_no_answered_request_and_an_ended_one_none(
    tiny_run: Path, loaded: Any
) -> None:
    """Two servers behind a balancer that asks the other one where a connection breaks
    (docs/serving.md).

    SIGTERM ends a server when it has answered what it has.
    """
    httpx = pytest.importorskip("httpx2")
    short = ["search.max_length=6"]
    options = ["--port", "0", "--window", "300", "--set", *short]
    command = [sys.executable, "-m", "regard", "serve", str(tiny_run), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    servers = [subprocess.Popen(command, **pipes) for _ in range(2)]
    answered, lock = [0, 0], threading.Lock()
    try:
        lines = [server.stdout.readline() for server in servers]
        addresses = [
            re.fullmatch(r"serving tiny on (http://127.0.0.1:\d+)\n", line)[1] for line in lines
        ]
        assert httpx.get(f"{addresses[1]}/health", timeout=60).json()["status"] == "ok"

        def ask(number: int) -> str:
            for place in (number % 2, 1 - number % 2):
                try:
                    answer = httpx.post(
                        f"{addresses[place]}/predict",
                        json={"inputs": [LETTERS[number]]},
                        timeout=60,
                    )
                except httpx.TransportError:
                    continue
                with lock:
                    answered[place] += 1
                    if sum(answered) == 20:
                        servers[0].kill()  # with requests in its queue
                return str(answer.json()["predictions"][0]["output"])
            raise AssertionError("no server answers")

        with ThreadPoolExecutor(16) as pool:
            outputs = list(pool.map(ask, range(len(LETTERS))))
            assert servers[0].wait(60) == -signal.SIGKILL
            last = pool.submit(
                httpx.post, f"{addresses[1]}/predict", json={"inputs": ["a b"]}, timeout=60
            )
            while (
                'queue_length{run="tiny"} 1'
                not in httpx.get(f"{addresses[1]}/metrics", timeout=60).text
            ):
                assert not last.done()
            servers[1].send_signal(signal.SIGTERM)
            assert last.result().json()["predictions"][0]["input"] == "a b"
        assert (*servers[1].communicate(timeout=60), servers[1].returncode) == ("", "", 0)
    finally:
        for server in servers:
            server.kill()
            server.communicate()
    assert answered[0] > 0
    assert sum(answered) == len(LETTERS)
    assert outputs == [one.output for one in loaded.predict(LETTERS, overrides=short)]


def test_a_library_that_is_not_installed(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    message = "regard serve: serving it needs the library 'fastapi' (pip install 'regard[studio]')"
    assert fail("serve", tiny_run) == [message]


# Long verbs as jobs


@pytest.fixture(scope="module")
def two_loaded(tiny_run: Path, runs: Runs) -> dict[str, Any]:
    folders = {"tiny": tiny_run, "labelled": runs["bilstm-classifier"]}
    return {name: regard.load(folder, device="cpu") for name, folder in folders.items()}


@pytest.fixture(scope="module")
def job_client(
    two_loaded: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    folder = shutil.copytree(two_loaded["tiny"].folder, tmp_path_factory.mktemp("jobs") / "other")
    other = {"other": regard.load(folder, ["search.beam=1"], device="cpu")}
    with TestClient(
        create_app(two_loaded | other, Settings(body=100_000)), base_url=LOCAL
    ) as job_client:
        yield job_client


def done(job_client: Any, route: str, **body: Any) -> dict[str, Any]:
    """The status of a job once it is finished."""
    answer = job_client.post(route, json=body)
    assert answer.status_code == 202, answer.text
    with job_client.stream("GET", f"/jobs/{answer.json()['id']}/events") as stream:
        events = [line for line in stream.iter_lines() if line]
    status: dict[str, Any] = job_client.get(f"/jobs/{answer.json()['id']}").json()
    assert events[-2:] == [
        f"event: {status['state']}",
        f"data: {json.dumps(status, ensure_ascii=False)}",
    ]
    return status


def same(tree: Any) -> Any:
    """What may be compared: without times, and without the names of files."""
    if isinstance(tree, dict):
        kept = {
            key: value
            for key, value in tree.items()
            if not re.search("seconds|^(advice|run|files)$", key)
        }
        return {
            key: same(value) for key, value in kept.items() if not str(value).endswith(".jsonl")
        }
    return [same(value) for value in tree] if isinstance(tree, list) else tree


def test_evaluate_answers_as_the_function_does(
    job_client: Any, two_loaded: dict[str, Any], tmp_path: Path
) -> None:
    found = done(job_client, "/runs/tiny/evaluate", split="validation", beam=1)
    assert (found["state"], found["verb"], found["runs"]) == ("done", "evaluate", ["tiny"])
    expected = regard.evaluate(two_loaded["tiny"].folder, split="validation", beam=1, device="cpu")
    assert same(found["result"]) == same(json.loads(json.dumps(expected)))
    before = {path: path.stat().st_mtime_ns for path in two_loaded["labelled"].folder.rglob("*")}
    found = done(job_client, "/runs/labelled/evaluate")
    assert before == {
        path: path.stat().st_mtime_ns for path in two_loaded["labelled"].folder.rglob("*")
    }
    expected = regard.evaluate(
        two_loaded["labelled"].folder, device="cpu", predictions=tmp_path / "p.jsonl"
    )
    assert same(found["result"]) == same(json.loads(json.dumps(expected)))
    assert found["predictions"] == [
        json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()
    ]


def test_rows_of_a_request(job_client: Any, two_loaded: dict[str, Any], tmp_path: Path) -> None:
    rows = [{"source": "a b", "target": "b a"}, {"source": "c", "target": "c"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = done(job_client, "/runs/tiny/evaluate", rows=rows)
    expected = regard.evaluate(
        two_loaded["tiny"].folder, files=tmp_path / "rows.jsonl", device="cpu"
    )
    assert same(found["result"]) == same(json.loads(json.dumps(expected)))
    refused = done(job_client, "/runs/tiny/evaluate", rows=[{"source": "a", "text": "</script>"}])
    assert refused["state"] == "failed"
    assert refused["error"].startswith("rows.jsonl")
    assert "target" in refused["error"]
    assert "/tmp" not in json.dumps(refused)


def test_diagnose_and_compare_answer_as_the_functions_do(
    job_client: Any, two_loaded: dict[str, Any]
) -> None:
    found = done(job_client, "/runs/tiny/diagnose", limit=5, sweep=[1])
    expected = regard.diagnose(two_loaded["tiny"].folder, limit=5, sweep=[1], device="cpu")
    assert same(found["result"]) == same(json.loads(json.dumps(expected.to_json())))
    assert [one["output"] for one in found["sentences"]] == [one.output for one in expected.judged]
    [counts, *_] = found["report"]["sections"]
    assert (counts["heading"], counts["parts"][0]["rows"][0][1]) == (
        "Search errors and model errors",
        {"text": "5", "tone": ""},
    )
    found = done(job_client, "/compare", runs=["tiny", "other"])
    assert {row["system"] for row in found["result"]["systems"]} == {"tiny", "other"}
    assert found["result"]["metrics"][0] in found["result"]["systems"][0]
    refused = done(job_client, "/compare", runs=["tiny", "labelled"])
    assert (refused["state"], "compare runs of one task" in refused["error"]) == ("failed", True)
    refused = done(job_client, "/runs/labelled/diagnose")
    assert (refused["state"], "does not have" in refused["error"]) == ("failed", True)


def test_check(job_client: Any) -> None:
    recipe = (
        "task: translation\ndata: {train: {corpus: reverse, size: 50}}\ntokenizer: {kind: "
        "character}\n"
    )
    recipe += (
        "model: {kind: rnn, preset: tiny}\ntraining: {steps: 3, batch_tokens: 128, device: cpu}\n"
    )
    found = done(job_client, "/check", recipe=recipe)
    assert (found["state"], found["result"]["ok"], found["result"]["model"]["kind"]) == (
        "done",
        True,
        "rnn",
    )
    rows = "".join(
        f"{text},{label}\n" for text, label in [("good film", "yes"), ("bad film", "no")] * 20
    )
    found = done(job_client, "/check", files=[{"name": "films.csv", "text": "text,label\n" + rows}])
    assert re.search(r"file: .?films\.csv", found["result"]["proposal"])
    assert "/tmp" not in json.dumps(found)
    wrong = done(job_client, "/check", recipe="task: translation\nmodle: {}\n")
    assert wrong["result"]["ok"] is False
    assert "modle" in [problem["where"] for problem in wrong["result"]["problems"]]
    for value in ("/etc/passwd", "../x", "~/x", r"..\x"):
        refused = done(
            job_client,
            "/check",
            recipe=recipe.replace("corpus: reverse", f"source: '{value}', target: x"),
        )
        what = {problem["what"] for problem in refused["result"]["problems"]}
        assert what == {"there is no file of this name among those that may be read"}
    dataset = recipe.replace("corpus: reverse", "dataset: imdb, source: a, target: b")
    refused = done(job_client, "/check", recipe=dataset)
    assert "among those that may be read" in refused["result"]["problems"][0]["what"]
    assert "/tmp" not in json.dumps(refused)


def test_jobs_are_cancelled_and_bounded(job_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    held, started = threading.Event(), threading.Event()

    def held_check(body: Any, overrides: Any, checker: Any, progress: Any) -> dict[str, Any]:
        started.set()
        held.wait(60)
        progress("reading", 1, 2)
        return {"result": body.recipe}

    monkeypatch.setattr(long_verbs, "_check", held_check)
    first = job_client.post("/check", json={"recipe": "task: first"}).json()["id"]
    started.wait(60)
    waiting = [
        job_client.post("/check", json={"recipe": f"task: {n}"}).json()["id"]
        for n in range(jobs.MAX_WAITING_JOBS)
    ]
    full = job_client.post("/check", json={"recipe": "task: more"})
    assert (full.status_code, full.headers["retry-after"]) == (503, "10")
    for job in (first, *waiting[1:]):
        assert job_client.delete(f"/jobs/{job}").status_code == 200
    held.set()
    end = time.monotonic() + 60
    while job_client.get(f"/jobs/{waiting[-1]}").json()["state"] != "cancelled":
        assert time.monotonic() < end
    states = [job_client.get(f"/jobs/{job}").json()["state"] for job in (first, *waiting)]
    assert states == ["cancelled", "done", *["cancelled"] * (len(waiting) - 1)]
    monkeypatch.setattr(long_verbs, "CHECK_SECONDS", -1.0)
    assert (
        done(job_client, "/check", recipe="task: late")["error"]
        == "it was stopped after -1 seconds"
    )
    assert (
        job_client.get("/jobs/none").status_code
        == job_client.delete("/jobs/%2e%2e").status_code
        == 404
    )
