"""What the studio's page asks the server for: files, attention, runs that are loaded lazily,
trainings."""

import ast
import base64
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings

import regard
from command_line import fail, write
from regard.config import help_texts
from regard.data.config import TrainingConfig
from tiny import TINY

TestClient = pytest.importorskip("fastapi.testclient").TestClient

from regard.cli.serving import run_folders  # noqa: E402
from regard.runs.packaged import packaged_runs  # noqa: E402
from regard.studio.runs import MAX_RUNS_IN_MEMORY, Runs  # noqa: E402
from regard.studio.server import create_app  # noqa: E402
from regard.studio.settings import Settings  # noqa: E402
from regard.studio.trainings import Trainings  # noqa: E402
from regard.views.thumbnail import thumbnail  # noqa: E402

LOCAL = "http://127.0.0.1"
RECIPE = yaml.safe_dump(TINY)


@pytest.fixture
def root(tiny_run: Path, tmp_path: Path) -> Path:
    shutil.copytree(tiny_run, tmp_path / "runs" / "tiny")
    return tmp_path / "runs"


@pytest.fixture
def runs(root: Path) -> Runs:
    return Runs(Settings(), folders=lambda: run_folders(root), device="cpu")


@pytest.fixture
def client(root: Path, runs: Runs) -> Iterator[Any]:
    with TestClient(create_app(runs, Settings(), root=root), base_url=LOCAL) as client:
        yield client


def numbers(text: str, dtype: str) -> Any:
    return np.frombuffer(base64.b64decode(text), dtype=dtype)


def test_a_picture_is_that_of_show(client: Any) -> None:
    assert client.get("/show/softmax").json() == json.loads(
        json.dumps(regard.show("softmax").report().to_json())
    )
    drawing = client.get("/show/softmax/thumbnail").json()["svg"]
    assert drawing == thumbnail(regard.show("softmax").report())
    exercise = client.get("/show/beam/exercise", headers={"accept-language": "ko"}).json()["html"]
    assert '<html lang="ko">' in exercise
    assert "______" in exercise
    refused = client.get("/show/softmax/exercise")
    assert (refused.status_code, refused.json()["error"]) == (
        422,
        "--exercise, --solution: softmax has no exercise",
    )
    refused = client.get("/show/sofmax")
    assert refused.status_code == 422
    assert "did you mean 'softmax'" in refused.json()["error"]


def test_the_page_is_this_package(client: Any) -> None:
    page = client.get("/")
    assert page.headers["content-security-policy"].startswith(
        "default-src 'none'; script-src 'self'; style-src 'self'"
    )
    assert "unsafe" not in page.headers["content-security-policy"]
    assert client.get("/page/app.js").headers["content-type"].startswith("text/javascript")
    for path in (
        "/page/../server.py",
        "/page/%2e%2e/server.py",
        "/page//etc/passwd",
        "/page/views/none.js",
    ):
        assert client.get(path).status_code == 404


def test_only_this_page_may_ask(root: Path, runs: Runs, client: Any) -> None:
    asked = {"json": {"inputs": ["a b"]}, "headers": {"origin": "http://elsewhere.example"}}
    assert client.post("/runs/tiny/predict", **asked).status_code == 403
    asked["headers"] = {"origin": LOCAL}
    assert client.post("/runs/tiny/predict", **asked).status_code == 200
    with TestClient(
        create_app(runs, Settings(token="x" * 16), root=root), base_url="http://any"
    ) as others:
        assert (others.get("/").status_code, others.get("/page/app.js").status_code) == (200, 200)
        assert [others.get(path).status_code for path in ("/runs", "/trainings", "/recipes")] == [
            401,
            401,
            401,
        ]


def test_runs_are_loaded_when_they_are_asked_for(
    root: Path, runs: Runs, client: Any, tmp_path: Path
) -> None:
    for number in range(MAX_RUNS_IN_MEMORY + 1):
        shutil.copytree(root / "tiny", root / f"run-{number}")
    (root / "broken").mkdir()
    (root / "broken" / "recipe.yaml").write_text("task: [")
    listed = {run["name"]: run for run in client.get("/runs").json()}
    assert runs.served == {}
    assert "it has no environment.json" in listed.pop("broken")["error"]
    model = regard.load(root / "tiny", device="cpu").load_model()
    assert {run["parameters"] for run in listed.values()} == {
        sum(one.numel() for one in model.parameters())
    }
    for number in range(MAX_RUNS_IN_MEMORY + 1):
        assert (
            client.post(f"/runs/run-{number}/predict", json={"inputs": ["a b"]}).status_code == 200
        )
    assert list(runs.served) == [f"run-{number}" for number in range(1, MAX_RUNS_IN_MEMORY + 1)]
    before = runs.served["run-1"]
    best = root / "run-1" / "best"
    best.write_text(best.read_text())  # as a training does that goes on
    assert client.post("/runs/run-1/predict", json={"inputs": ["a b"]}).status_code == 200
    assert runs.served["run-1"] is not before
    shutil.rmtree(root / "run-1")
    assert "run-1" not in [run["name"] for run in client.get("/trainings").json()]
    assert client.post("/runs/run-1/predict", json={"inputs": ["a b"]}).status_code == 404


def test_no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = Runs(Settings(), folders=lambda: run_folders(Path("runs")))
    with TestClient(create_app(runs, Settings(), root=Path("runs")), base_url=LOCAL) as client:
        assert (client.get("/runs").json(), client.get("/trainings").json()) == ([], [])


def test_a_port_that_is_taken(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        message = (
            f"--port: nothing can listen on port {port}: Address already in use (0 takes "
            "a free one)"
        )
        assert fail("studio", root, "--no-browser", "--port", port) == [message]


def test_attention_is_that_of_explain(client: Any, root: Path) -> None:
    explanation = regard.load(root / "tiny", device="cpu").explain("a b c", target="c b a")
    body = {"input": "a b c", "target": "c b a", "heads": True}
    answer = client.post("/runs/tiny/attention", json=body).json()
    weights = numbers(answer["map"]["values"], "<f4").reshape(
        len(answer["map"]["rows"]), len(answer["map"]["columns"])
    )
    np.testing.assert_allclose(weights, explanation.weights, atol=1e-6)
    assert (answer["view"], answer["layers"], answer["heads"], answer["output"]) == (
        "alignment",
        1,
        1,
        "c b a",
    )
    small = numbers(answer["small"]["codes"], "u1").reshape(answer["small"]["rows"], -1)
    np.testing.assert_array_equal(small, np.rint(255 * np.sqrt(weights / weights.max())))
    seen = client.post("/runs/tiny/attention", json={"input": "a b", "view": "masks"}).json()["map"]
    assert set(numbers(seen["values"], "<f4")) == {0.0, 1.0}


NO_TRAINING: list[tuple[Any, str]] = [
    ({"name": "../x"}, "body.name: '../x' is not a name for a run: up to 64 letters"),
    ({"name": ".x"}, "body.name"),
    ({"name": "a/b"}, "body.name"),
    ({"name": "tiny"}, "there is a run 'tiny' already"),
    ({"recipe": RECIPE + "within: []"}, "within"),
    (
        {"settings": {"training.steps": 10**9}},
        "training.steps: 1,000,000,000 is too large for a recipe that is sent",
    ),
    ({"recipe": "training: {init: ../../secret}"}, "there is no run 'secret'"),
    ({"settings": {"data.train": "x"}}, "'data.train' is not in the form"),
    (
        {"files": [{"name": "../x.csv", "text": ""}]},
        "body.files.0.name: '../x.csv' is not a name for a file that is sent: up to 100 letters",
    ),
    ({"files": [{"name": ".ssh", "text": ""}]}, "body.files.0.name"),
    (
        {"files": [{"name": "가" * 100, "text": ""}]},
        "the name has 300 bytes in UTF-8, at most 200 are allowed",
    ),
    ({"name": "𝄞𝄞" * 32}, "body.name"),
    ({"name": "𠀀𠀀" * 32}, "the name has 256 bytes in UTF-8"),
]
"""What a training does not start with."""
MALFORMED: list[tuple[str, str, Any, int, str]] = [
    ("POST", "/runs/tiny/attention", b"{", 422, "body: not valid JSON: Expecting"),
    ("POST", "/runs/tiny/attention", {"input": 1}, 422, "valid string"),
    ("POST", "/runs/tiny/attention", {"input": "a", "layer": []}, 422, "body.layer"),
    ("POST", "/runs/tiny/attention", {"input": "a " * 2_001}, 422, "at most 4,000"),
    (
        "POST",
        "/runs/tiny/attention",
        {"input": "a b", "layer": 7},
        422,
        "no layer 7 (allowed: 1, mean, all)",
    ),
    ("POST", "/runs/%2e%2e/attention", {"input": "a"}, 404, ""),
    ("POST", "/runs/..%2Ftiny/steps", {"input": "a"}, 404, ""),
    ("GET", "/runs/%2e%2e%2Ftiny", b"", 404, ""),
    ("GET", "/show/..%2Fserver", b"", 404, ""),
    ("GET", "/show/<script>", b"", 422, "there is no picture '<script>'"),
    ("GET", "/recipes/..%2F..%2Fsetup", b"", 404, ""),
    ("GET", "/recipes/<b>", b"", 404, "no recipe of this name ships"),
    ("GET", "/trainings/%2e%2e", b"", 404, ""),
    ("POST", "/trainings/none/stop", b"", 409, "not training this run"),
    ("POST", "/trainings/..%2Ftiny/resume", b"", 404, ""),
    ("POST", "/trainings", b"[", 422, "body: not valid JSON: Expecting"),
    ("POST", "/trainings", b'{"name": "\\ud800", "recipe": ""}', 422, "half of a surrogate pair"),
    ("POST", "/trainings", {"name": "<b>x</b>", "recipe": RECIPE}, 422, "body.name"),
    (
        "POST",
        "/trainings",
        {"name": "x", "recipe": RECIPE, "settings": {"training.steps": []}},
        422,
        "body.settings",
    ),
    ("POST", "/trainings", {"name": "x", "recipe": "task: <script>"}, 422, "<script>"),
    (
        "POST",
        "/trainings",
        {"name": "x", "recipe": "x" * 8_000_001},
        413,
        "larger than 8,000,000 bytes",
    ),
    *(
        ("POST", "/trainings", {"name": "new", "recipe": RECIPE, **body}, 422, message)
        for body, message in NO_TRAINING
    ),
    (
        "POST",
        "/runs/tiny/predict",
        b'{"inputs": ["a"], "beam": 2, "inputs": ["b"]}',
        422,
        'the key \'inputs\' occurs twice in an object: ["a"] and ["b"] (only one of its',
    ),
    ("POST", "/trainings", b'{"settings": {"a": 1, "a": 1}}', 422, "the key 'a' occurs twice"),
    ("POST", "/form", {"recipe": "x" * 100_001}, 422, "at most 100000 characters"),
    ("POST", "/form", {"recipe": ["task"]}, 422, "valid string"),
    ("POST", "/form", {"recipe": "[" * 5_000}, 422, "recipe"),
]


@pytest.mark.parametrize(("method", "route", "body", "status", "message"), MALFORMED)
def test_routes_refuse(
    client: Any, root: Path, method: str, route: str, body: Any, status: int, message: str
) -> None:
    before, content = sorted(root.rglob("*")), body if isinstance(body, bytes) else json.dumps(body)
    answer = client.request(
        method, route, content=content, headers={"content-type": "application/json"}
    )
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    assert message in answer.json()["error"]
    assert sorted(root.rglob("*")) == before


def test_a_request_has_its_language(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that of jobs, which end in another thread, and whatever the server's own is."""
    monkeypatch.setenv("REGARD_LANG", "ko")
    job = client.post("/runs/tiny/diagnose", json={"limit": 2, "split": "train"}).json()["id"]
    while (client.get(f"/jobs/{job}").json())["state"] in ("waiting", "running"):
        time.sleep(0.01)
    for language, heading, title, mistake in (
        ("ko-KR,ko;q=0.9", "탐색 오류와 모델 오류", "소프트맥스와 온도", "텍스트가 비어 있습니다"),
        ("en-US", "Search errors and model errors", "Softmax and temperature", "the text is empty"),
    ):
        headers = {"accept-language": language}
        assert (
            client.get(f"/jobs/{job}", headers=headers).json()["report"]["sections"][0]["heading"]
            == heading
        )
        assert client.get("/show/softmax", headers=headers).json()["title"] == title
        refused = client.post("/runs/tiny/predict", json={"inputs": [""]}, headers=headers)
        assert mistake in refused.json()["error"]
    korean = {"accept-language": "ko"}
    twice = {"content": b'{"inputs": ["a"], "inputs": ["b"]}', "headers": korean}
    twice["headers"] |= {"content-type": "application/json"}
    refused = client.post("/runs/tiny/predict", **twice).json()["error"]
    assert refused.startswith("한 객체에 키 'inputs'이(가) 두 번 나옵니다")
    assert "하나의 이름을 바꾸거나 지우십시오" in refused
    assert (
        client.get("/recipes", headers=korean)
        .json()["dates"]["about"]
        .startswith("영어, 한국어, 독일어")
    )
    assert "# 입력: 원문" in client.get("/recipes/dates", headers=korean).json()["recipe"]
    steps = client.post("/form", json={"recipe": RECIPE}, headers=korean).json()[0]
    assert steps["schema"]["description"] == "갱신 횟수."


def test_the_form_is_the_schema(client: Any) -> None:
    fields = {
        field["path"]: field for field in client.post("/form", json={"recipe": RECIPE}).json()
    }
    assert (fields["training.steps"]["value"], fields["model.dropout"]["value"]) == (20, 0.1)
    described = " ".join(fields["training.learning_rate"]["schema"]["description"].split())
    assert described == " ".join(help_texts(TrainingConfig)["learning_rate"].split())
    assert client.post("/form", json={"recipe": "task: translatoin"}).status_code == 422
    assert client.get("/recipes").json().keys() == regard.shipped_recipes().keys()
    recipes = [
        client.get(f"/recipes/{name}").json()["recipe"] for name in client.get("/recipes").json()
    ]
    one_a_task = {yaml.safe_load(recipe)["task"]: recipe for recipe in recipes}
    assert len(one_a_task) >= 11
    for task, recipe in one_a_task.items():
        first, *_ = [
            field["path"] for field in client.post("/form", json={"recipe": recipe}).json()
        ]
        by_epochs = "epochs" in yaml.safe_load(recipe)["training"]
        assert first == ("training.epochs" if by_epochs else "training.steps"), task


def test_recipes_say_their_task_and_whether_they_need_files(client: Any) -> None:
    recipes = client.get("/recipes").json()
    assert recipes["dates"] | {"about": ""} == {
        "about": "",
        "task": "translation",
        "model": "bahdanau",
        "needs_files": False,
    }
    assert recipes["translation"]["needs_files"]


def test_the_form_has_only_what_applies(client: Any) -> None:
    fields = {one["path"] for one in client.post("/form", json={"recipe": RECIPE}).json()}
    assert "training.steps" in fields
    assert not {"training.epochs", "tokenizer.vocabulary"} & fields  # 20 steps of characters


def test_a_check_counts_the_settings_of_the_form(client: Any) -> None:
    body = {"recipe": RECIPE, "settings": {"training.steps": 7}}
    assert checked(client, body)["result"]["training"]["steps"] == 7
    body["settings"] = {"training.init": "x"}
    assert client.post("/check", json=body).status_code == 422


def test_a_check_says_what_the_columns_are(client: Any) -> None:
    rows = "".join(f"{a}{b}\t{b}{a}\n" for a in "abcdefgh" for b in "ijklmnop")
    found = checked(client, {"files": [{"name": "p.tsv", "text": rows}]})
    assert found["columns"] == {"file": "p.tsv", "source": 0, "target": 1}


def checked(client: Any, body: dict[str, Any]) -> dict[str, Any]:
    job = client.post("/check", json=body).json()["id"]
    for _ in range(600):
        status: dict[str, Any] = client.get(f"/jobs/{job}").json()
        if status["state"] not in ("waiting", "running"):
            break
        time.sleep(0.1)
    assert status["state"] == "done", status
    return status


def test_examples_are_listed_beside_no_runs_and_only_read(root: Path) -> None:
    folder = packaged_runs()["reviews"]
    runs = Runs(
        Settings(),
        folders=lambda: run_folders(root),
        examples={"reviews": folder, "tiny": folder},
        device="cpu",
    )
    with TestClient(create_app(runs, Settings(), root=root), base_url=LOCAL) as client:
        listed = {run["name"]: run for run in client.get("/runs").json()}
        assert {name: run["example"] for name, run in listed.items()} == {
            "tiny": False,  # a run of the user's own comes before an example of its name
            "reviews": True,
        }
        answer = client.post("/runs/reviews/predict", json={"inputs": ["The plot was superb."]})
        assert answer.json()["predictions"][0]["output"] == "positive"
        assert client.post("/trainings/reviews/resume", json={}).status_code == 409
        assert client.get("/trainings/reviews").json()["watched"]["entries"][0]["step"] == 0


def test_a_training_that_fails_says_why(client: Any, root: Path) -> None:
    """One that goes well is tests/browser/test_trainings.py."""
    data = {"train": {"file": "쌍.tsv", "source": 0, "target": 1}, "validation": {"split": 0.1}}
    recipe = yaml.safe_dump({**TINY, "data": data}, allow_unicode=True)
    body = {"name": "쌍", "recipe": recipe, "files": [{"name": "쌍.tsv", "text": "a\tb\nc\n"}]}
    assert client.post("/trainings", json=body).status_code == 201
    assert client.post("/trainings", json=body).status_code == 422
    for _ in range(600):
        if (progress := client.get("/trainings/쌍").json())["state"] == "failed":
            break
        time.sleep(0.1)
    assert progress["message"].startswith("쌍.tsv:2: ")
    korean = client.get("/trainings/쌍", headers={"accept-language": "ko"}).json()["message"]
    assert korean.startswith("쌍.tsv:2: ")
    assert korean != progress["message"]
    assert [run["name"] for run in client.get("/trainings").json()] == ["tiny", "쌍"]
    assert client.post("/trainings/쌍/stop").status_code == 409
    sent = root / ".sent"
    modes = {
        path.relative_to(sent).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in sent.rglob("*")
    }
    files = {"쌍/recipe.yaml": 0o600, "쌍/쌍.tsv": 0o600, "쌍/.log": 0o600, "쌍/.process": 0o600}
    assert modes | {".": stat.S_IMODE(sent.stat().st_mode)} == {".": 0o700, "쌍": 0o700, **files}
    (sent / "쌍" / "old.tsv").write_text("")  # of another training of this name, which also failed
    (sent / "쌍.log").write_text("")  # of a version that kept logs beside the folders
    again = {"name": "쌍", "recipe": recipe, "files": []}
    for name in ("쌍", "쌍.log"):
        assert client.post("/trainings", json={**again, "name": name}).status_code == 201
    for name in ("쌍", "쌍.log"):
        while client.get(f"/trainings/{name}").json()["state"] == "training":
            time.sleep(0.1)
        assert "쌍.tsv" in client.get(f"/trainings/{name}").json()["message"]
    assert not (sent / "쌍" / "old.tsv").exists()


LONG = yaml.safe_dump(
    {**TINY, "training": {**TINY["training"], "steps": 1_000_000, "validate_every": 1_000_000}}
)


def test_six_trainings_at_once_start_two(client: Any, root: Path) -> None:
    bodies = [{"name": f"run{number}", "recipe": LONG, "files": []} for number in range(5)]
    bodies.append(bodies[0])
    with ThreadPoolExecutor(6) as pool:
        answers = [*pool.map(lambda body: client.post("/trainings", json=body), bodies)]
    started = {answer.json()["name"] for answer in answers if answer.status_code == 201}
    assert len(started) == 2
    refused = [answer for answer in answers if answer.status_code != 201]
    assert {answer.status_code for answer in refused} <= {503, 422}
    assert [answer.status_code for answer in answers].count(201) == 2
    for answer in (answer for answer in refused if answer.status_code == 503):
        assert all(
            repr(name) in answer.json()["error"]
            for name in started
            if "and" in answer.json()["error"]
        )
    assert {path.name for path in (root / ".sent").iterdir()} == started, (
        "what was sent with the others is gone"
    )


def test_a_training_is_stopped_by_a_studio_that_did_not_start_it(
    root: Path, tmp_path: Path
) -> None:
    """The first one is killed; the process that trains goes on."""
    httpx = pytest.importorskip("httpx2")
    command = [
        sys.executable,
        "-m",
        "regard",
        "studio",
        str(root),
        "--no-browser",
        "--port",
        "0",
    ]
    studio = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert studio.stdout is not None
    try:
        address = studio.stdout.readline().split()[-1]
        body = {"name": "long", "recipe": LONG, "files": []}
        assert httpx.post(f"{address}/trainings", json=body, timeout=60).status_code == 201
        while not (root / "long" / "metrics.jsonl").exists():
            assert httpx.get(f"{address}/trainings/long", timeout=60).json()["state"] == "training"
    finally:
        studio.kill()
        studio.communicate()
    record = root / ".sent" / "long" / ".process"
    for name, changes in {
        "past": {"started": 1.0},
        "other": {"run": "/other"},
        "gone": {"pid": 2**22},
    }.items():
        (root / ".sent" / name).mkdir()
        (root / ".sent" / name / ".process").write_text(
            json.dumps(json.loads(record.read_text()) | changes)
        )
    runs = Runs(Settings(), folders=lambda: run_folders(root), device="cpu")
    with TestClient(create_app(runs, Settings(), root=root), base_url=LOCAL) as client:
        progress = client.get("/trainings/long").json()
        assert (progress["state"], progress["ours"]) == ("training", True)
        for name in ("past", "other", "gone"):
            assert client.post(f"/trainings/{name}/stop").status_code == 409
        for _ in range(2):  # a second signal would end it before it has saved
            assert client.post("/trainings/long/stop").status_code in (200, 409)
        while (progress := client.get("/trainings/long").json())["state"] == "training":
            time.sleep(0.05)
        assert progress["state"] == "stopped"
    assert (root / "long" / "last").exists()


QUICK = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[*HealthCheck],
)
HIDDEN = {"/", "/page/{name:path}", "/openapi.json"}
"""Routes that the schema does not have: files of the page, and itself."""


@pytest.fixture
def every_route(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    # Python 3.11 raises a SystemError if two threads parse at once: the server's, and Hypothesis's
    parse = ast.parse
    parsing = threading.RLock()

    def parse_alone(*arguments: Any, **options: Any) -> Any:
        with parsing:
            return parse(*arguments, **options)

    monkeypatch.setattr(ast, "parse", parse_alone)
    run = regard.load(tiny_run, device="cpu")
    served = create_app({"tiny": run, "other": run}, Settings(timeout=20), root=tmp_path)
    with TestClient(served, base_url=LOCAL, raise_server_exceptions=False) as client:
        yield client


def test_no_request_makes_the_server_fail(every_route: Any) -> None:
    """Whatever the OpenAPI schema allows, and what it forbids; nor do the jobs that some requests
    start fail."""
    schemathesis, client = pytest.importorskip("schemathesis"), every_route
    tree = client.get("/openapi.json").json()
    assert {route.path for route in client.app.routes} - set(tree["paths"]) == HIDDEN
    schema, jobs, statuses = schemathesis.openapi.from_dict(tree), set[str](), set[int]()

    def answered(case: Any) -> None:
        path = case.path
        if not path.endswith("/resume"):  # which would train it
            path = path.replace("{name}", "tiny")  # with another name it would end there
        if (case.method, path) == ("POST", "/course/{number}"):  # which would compute a chapter
            path = "/course/999"
        for name, value in (case.path_parameters or {}).items():
            path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        body = (
            None
            if isinstance(case.body, schemathesis.core.NotSet)
            else json.dumps(case.body, default=str).encode()
        )
        headers = {"content-type": "application/json"}
        answer = client.request(
            case.method, path, content=body, params=case.query or None, headers=headers
        )
        statuses.add(answer.status_code)
        assert answer.status_code < 500 or answer.status_code == 503, (path, body, answer.text)
        if answer.status_code == 202:
            jobs.add(answer.json()["id"])
            client.delete(f"/jobs/{answer.json()['id']}")

    for operation in (result.ok() for result in schema.get_all_operations()):
        modes = (
            [*schemathesis.GenerationMode]
            if operation.body
            else [schemathesis.GenerationMode.POSITIVE]
        )
        for mode in modes:
            QUICK(given(operation.as_strategy(generation_mode=mode))(answered))()
    assert statuses >= {200, 202, 404, 422}
    end = time.monotonic() + 60
    for job in jobs:
        while (status := client.get(f"/jobs/{job}")).json().get("state") in ("waiting", "running"):
            assert time.monotonic() < end
        assert "the server failed" not in status.text


DAMAGES: dict[str, tuple[str, str | None]] = {
    "recipe": ("recipe.yaml", "task: ["),
    "changed": ("recipe.yaml", yaml.safe_dump({"task": "translation"})),
    "environment": ("environment.json", "{"),
    "format": ("environment.json", '{"format": 99}'),
    "missing": ("environment.json", None),
    "tokenizer": ("tokenizer.json", "{}"),
    "log": ("metrics.jsonl", "{\n{\n"),
    "best": ("best", "step-none"),
    "last": ("last", "step-none"),
    "weights": ("checkpoints/*/model.safetensors", "weights"),
    "no-weights": ("checkpoints/*/model.safetensors", None),
    "facts": ("checkpoints/*/checkpoint.json", "{}"),
    "state": ("checkpoints/*/training.pt", "state"),
}
"""Runs by what is wrong with them: the file, and what it has instead; None if it is gone."""
ANY_BODY: dict[str, dict[str, Any]] = {
    "predict": {"inputs": ["a b"]},
    "score": {"source": "a b", "target": "b a"},
    "features": {"inputs": ["a b"]},
    "vectors": {"inputs": ["a b"], "word": "a"},
    "evaluate": {"rows": [{"source": "a b"}]},
    "diagnose": {"split": "test"},
    "stop": {},
    "resume": {},
}
"""What is sent to a route of a run; to every other verb, one input."""


def finished(client: Any, answer: Any) -> str:
    """What became of a job or a training that was started."""
    started = answer.json()
    route = f"/jobs/{started['id']}" if "id" in started else f"/trainings/{started['name']}"
    while (status := client.get(route).json())["state"] in ("waiting", "running", "training"):
        time.sleep(0.05)
    if "id" in started:
        client.get(f"{route}/events")
    return str(status.get("message") or status.get("error") or status.get("result"))


def damage_runs(root: Path) -> None:
    """A copy of the run `tiny` for each damage."""
    for name, (file, text) in DAMAGES.items():
        shutil.copytree(root / "tiny", root / name)
        for path in (root / name).glob(file):
            path.unlink() if text is None else path.write_text(text)


def statuses_of_damaged_runs(client: Any) -> set[int]:
    """The status codes of every route of every damaged run; jobs and trainings have finished."""
    paths = [
        (method, route.path)
        for route in client.app.routes
        if "{name}" in route.path and not route.path.startswith(("/page/", "/recipes/"))
        for method in route.methods
    ]
    assert len(paths) > 12
    statuses = set[int]()
    for name in DAMAGES:
        for method, path in paths:
            verb = path.rpartition("/")[2]
            if verb == "resume" and name != "state":
                continue  # each starts a process
            body = None if method == "GET" else ANY_BODY.get(verb, {"input": "a b"})
            answer = client.request(method, path.replace("{name}", name), json=body)
            statuses.add(answer.status_code)
            if answer.status_code in (200, 202) and verb in ("evaluate", "diagnose", "resume"):
                finished(client, answer)
    return statuses


def test_no_answer_tells_where_the_server_keeps_its_runs(
    client: Any, runs: Runs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every route of every damaged run, the jobs and trainings that fail, also in their recipes."""
    hidden = {str(root), str(root.resolve())}
    told = list[str]()
    request = client.request

    def recorded(method: str, url: str, **options: Any) -> Any:
        answer = request(method, url, **options)
        told.extend(f"{method} {url}: {answer.text}" for path in hidden if path in answer.text)
        return answer

    monkeypatch.setattr(client, "request", recorded)

    damage_runs(root)
    assert statuses_of_damaged_runs(client) >= {200, 202, 409, 422}
    for route in ("/runs", "/trainings", "/health", "/metrics", "/openapi.json", "/docs"):
        client.get(route)
    finished(client, client.post("/compare", json={"runs": ["tiny", "log"], "split": "test"}))
    bpe = {**TINY, "tokenizer": {"kind": "bpe", "vocabulary": 60}}
    others = {"begun": ("tiny", bpe), "broken": ("weights", TINY)}
    for name, (init, tree) in others.items():
        recipe = yaml.safe_dump({**tree, "training": {**TINY["training"], "init": init}})
        for answer in (
            client.post("/check", json={"recipe": recipe}),
            client.post("/trainings", json={"name": name, "recipe": recipe}),
        ):
            assert f"{init}" in finished(client, answer), "the run is called by its name"
    within = yaml.safe_load((root / "tiny" / "recipe.yaml").read_text())
    within |= {"within": str(root / ".sent" / "tiny")}
    within["data"]["train"] = [{"source": f"{root}/.sent/tiny/a.en", "target": "/b.de"}]
    (root / "tiny" / "recipe.yaml").write_text(yaml.safe_dump(within))
    recipe = client.get("/runs/tiny").json()["recipe"]
    assert told == []
    assert (
        recipe["data"]["train"][0] | {"source": "a.en", "target": "/b.de"}
        == recipe["data"]["train"][0]
    )


def test_an_empty_folder_is_one_for_runs_to_come(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "regard",
        "studio",
        "--port",
        "0",
        "--no-browser",
        str(tmp_path),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert f"studio of {len(packaged_runs())} runs" in server.stdout.readline()
        server.terminate()
    [told] = fail("studio", tmp_path / "nothing", "--no-browser")
    assert "nothing" in told


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM")
def test_a_signal_that_comes_while_it_starts_ends_it(tmp_path: Path) -> None:
    """The page is opened before the server runs; this browser sends the signal."""
    browser = write(tmp_path / "browser", "#!/bin/sh\nkill -TERM $PPID\n")
    browser.chmod(0o755)
    (tmp_path / "runs").mkdir()
    told = subprocess.run(
        [sys.executable, "-m", "regard", "studio", "--port", "0", str(tmp_path / "runs")],
        env={**os.environ, "BROWSER": f"{browser} %s"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "studio of" in told.stdout


def test_a_list_of_all_runs_looks_for_folders_once(tiny_run: Path, tmp_path: Path) -> None:
    """Once per run, 400 runs took 23 seconds."""
    looked = list[int]()

    def folders() -> dict[str, Path]:
        looked.append(1)
        return {f"run-{n}": tiny_run for n in range(5)}

    runs = Runs(Settings(), folders=folders, device="cpu")
    trainings = Trainings(tmp_path / "runs", runs)
    assert len(trainings.list_trainings()) == 5
    assert len(looked) == 1
    assert len(runs.list_runs()) == 5
    assert len(looked) == 2
    assert "run-3" in runs
    assert len(looked) == 3, "a single question is answered by the folder as it is"
