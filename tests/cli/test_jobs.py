"""Long verbs over HTTP: jobs that answer as the functions do, what is refused, cancelling, and their number."""

import json
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import regard
from raw_cases import Runs

TestClient = pytest.importorskip("fastapi.testclient").TestClient

from regard.studio import jobs  # noqa: E402
from regard.studio.served import Settings  # noqa: E402
from regard.studio.server import app  # noqa: E402


@pytest.fixture(scope="module")
def loaded(tiny_run: Path, runs: Runs) -> dict[str, Any]:
    folders = {"tiny": tiny_run, "labelled": runs["bilstm-classifier"]}
    return {name: regard.load(folder, device="cpu") for name, folder in folders.items()}


@pytest.fixture(scope="module")
def client(loaded: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = shutil.copytree(loaded["tiny"].folder, tmp_path_factory.mktemp("jobs") / "other")
    other = {"other": regard.load(folder, ["search.beam=1"], device="cpu")}
    with TestClient(app(loaded | other, Settings(body=100_000)), base_url="http://127.0.0.1") as client:
        yield client


def done(client: Any, route: str, **body: Any) -> dict[str, Any]:
    """The status of a job once it is finished."""
    answer = client.post(route, json=body)
    assert answer.status_code == 202, answer.text
    with client.stream("GET", f"/jobs/{answer.json()['id']}/events") as stream:
        events = [line for line in stream.iter_lines() if line]
    status: dict[str, Any] = client.get(f"/jobs/{answer.json()['id']}").json()
    assert events[-2:] == [f"event: {status['state']}", f"data: {json.dumps(status, ensure_ascii=False)}"]
    return status


def same(tree: Any) -> Any:
    """What may be compared: without times, and without the names of files."""
    if isinstance(tree, dict):
        kept = {key: value for key, value in tree.items() if not re.search("seconds|^(advice|run|files)$", key)}
        return {key: same(value) for key, value in kept.items() if not str(value).endswith(".jsonl")}
    return [same(value) for value in tree] if isinstance(tree, list) else tree


def test_evaluate_answers_as_the_function_does(client: Any, loaded: dict[str, Any], tmp_path: Path) -> None:
    found = done(client, "/runs/tiny/evaluate", split="validation", beam=1)
    assert (found["state"], found["verb"], found["runs"]) == ("done", "evaluate", ["tiny"])
    expected = regard.evaluate(loaded["tiny"].folder, split="validation", beam=1, device="cpu")
    assert same(found["result"]) == same(json.loads(json.dumps(expected)))
    before = {path: path.stat().st_mtime_ns for path in loaded["labelled"].folder.rglob("*")}
    found = done(client, "/runs/labelled/evaluate")
    assert before == {path: path.stat().st_mtime_ns for path in loaded["labelled"].folder.rglob("*")}
    expected = regard.evaluate(loaded["labelled"].folder, device="cpu", predictions=tmp_path / "p.jsonl")
    assert same(found["result"]) == same(json.loads(json.dumps(expected)))
    assert found["predictions"] == [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]


def test_rows_of_a_request(client: Any, loaded: dict[str, Any], tmp_path: Path) -> None:
    rows = [{"source": "a b", "target": "b a"}, {"source": "c", "target": "c"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = done(client, "/runs/tiny/evaluate", rows=rows)
    expected = regard.evaluate(loaded["tiny"].folder, files=tmp_path / "rows.jsonl", device="cpu")
    assert same(found["result"]) == same(json.loads(json.dumps(expected)))
    refused = done(client, "/runs/tiny/evaluate", rows=[{"source": "a", "text": "</script>"}])
    assert refused["state"] == "failed"
    assert refused["error"].startswith("rows.jsonl")
    assert "target" in refused["error"]
    assert "/tmp" not in json.dumps(refused)


def test_diagnose_and_compare_answer_as_the_functions_do(client: Any, loaded: dict[str, Any]) -> None:
    found = done(client, "/runs/tiny/diagnose", limit=5, sweep=[1])
    expected = regard.diagnose(loaded["tiny"].folder, limit=5, sweep=[1], device="cpu")
    assert same(found["result"]) == same(json.loads(json.dumps(expected.to_json())))
    assert [one["output"] for one in found["sentences"]] == [one.output for one in expected.judged]
    [counts, *_] = found["report"]["sections"]
    assert (counts["heading"], counts["parts"][0]["rows"][0][1]) == (
        "Search errors and model errors", {"text": "5", "tone": ""},
    )  # fmt: skip
    found = done(client, "/compare", runs=["tiny", "other"])
    assert {row["system"] for row in found["result"]["systems"]} == {"tiny", "other"}
    assert found["result"]["metrics"][0] in found["result"]["systems"][0]
    refused = done(client, "/compare", runs=["tiny", "labelled"])
    assert (refused["state"], "compare runs of one task" in refused["error"]) == ("failed", True)
    refused = done(client, "/runs/labelled/diagnose")
    assert (refused["state"], "does not have" in refused["error"]) == ("failed", True)


def test_check(client: Any) -> None:
    recipe = "task: translation\ndata: {train: {corpus: reverse, size: 50}}\ntokenizer: {kind: character}\n"
    recipe += "model: {kind: rnn, preset: tiny}\ntraining: {steps: 3, batch_tokens: 128, device: cpu}\n"
    found = done(client, "/check", recipe=recipe)
    assert (found["state"], found["result"]["ok"], found["result"]["model"]["kind"]) == ("done", True, "rnn")
    rows = "".join(f"{text},{label}\n" for text, label in [("good film", "yes"), ("bad film", "no")] * 20)
    found = done(client, "/check", files=[{"name": "films.csv", "text": "text,label\n" + rows}])
    assert re.search(r"file: .?films\.csv", found["result"]["proposal"])
    assert "/tmp" not in json.dumps(found)
    wrong = done(client, "/check", recipe="task: translation\nmodle: {}\n")
    assert wrong["result"]["ok"] is False
    assert "modle" in [problem["where"] for problem in wrong["result"]["problems"]]
    for value in ("/etc/passwd", "../x", "~/x", r"..\x"):
        refused = done(client, "/check", recipe=recipe.replace("corpus: reverse", f"file: '{value}'"))
        assert (refused["state"], "is not read from a request" in refused["error"]) == ("failed", True)
    refused = done(client, "/check", recipe=recipe.replace("corpus: reverse", "dataset: imdb"))
    assert "is not read from a request" in refused["error"]


def test_jobs_are_cancelled_and_bounded(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    held, started = threading.Event(), threading.Event()

    def held_check(body: Any, progress: Any) -> dict[str, Any]:
        started.set()
        held.wait(60)
        progress("reading", 1, 2)
        return {"result": body.recipe}

    monkeypatch.setattr(jobs, "checked", held_check)
    first = client.post("/check", json={"recipe": "first"}).json()["id"]
    started.wait(60)
    waiting = [client.post("/check", json={"recipe": str(n)}).json()["id"] for n in range(jobs.WAITING)]
    full = client.post("/check", json={"recipe": "more"})
    assert (full.status_code, full.headers["retry-after"]) == (503, "10")
    for job in (first, *waiting[1:]):
        assert client.delete(f"/jobs/{job}").status_code == 200
    held.set()
    end = time.monotonic() + 60
    while client.get(f"/jobs/{waiting[-1]}").json()["state"] != "cancelled":
        assert time.monotonic() < end
    states = [client.get(f"/jobs/{job}").json()["state"] for job in (first, *waiting)]
    assert states == ["cancelled", "done", *["cancelled"] * (len(waiting) - 1)]
    monkeypatch.setattr(jobs, "SECONDS", -1.0)
    assert done(client, "/check", recipe="late")["error"] == "it was stopped after -1 seconds"
    assert client.get("/jobs/none").status_code == client.delete("/jobs/%2e%2e").status_code == 404
