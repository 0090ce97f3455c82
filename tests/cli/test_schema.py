"""Whatever the OpenAPI schema allows, and what it forbids, is answered without a failure of the server."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import regard

schemathesis = pytest.importorskip("schemathesis")
TestClient = pytest.importorskip("fastapi.testclient").TestClient

from regard.studio.served import Settings  # noqa: E402
from regard.studio.server import app  # noqa: E402

QUICK = settings(
    max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=[*HealthCheck]
)


HIDDEN = {"/", "/page/{name:path}", "/openapi.json"}
"""Routes that the schema does not have: files of the page, and itself."""


@pytest.fixture(scope="module")
def client(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Of a studio, which has all routes."""
    run = regard.load(tiny_run, device="cpu")
    served = app({"tiny": run, "other": run}, Settings(timeout=20), root=tmp_path_factory.mktemp("root"))
    with TestClient(served, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def test_no_request_makes_the_server_fail(client: Any) -> None:
    """Nor the jobs that some requests start."""
    tree = client.get("/openapi.json").json()
    assert {route.path for route in client.app.routes} - set(tree["paths"]) == HIDDEN
    schema, jobs, statuses = schemathesis.openapi.from_dict(tree), set[str](), set[int]()

    def answered(case: Any) -> None:
        path = case.path
        if not path.endswith("/resume"):  # which would train it
            path = path.replace("{name}", "tiny")  # with another name it would end there
        for name, value in (case.path_parameters or {}).items():
            path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        body = None if isinstance(case.body, schemathesis.core.NotSet) else json.dumps(case.body, default=str).encode()
        headers = {"content-type": "application/json"}
        answer = client.request(case.method, path, content=body, params=case.query or None, headers=headers)
        statuses.add(answer.status_code)
        assert answer.status_code < 500 or answer.status_code == 503, (path, body, answer.text)
        if answer.status_code == 202:
            jobs.add(answer.json()["id"])
            client.delete(f"/jobs/{answer.json()['id']}")

    for operation in (result.ok() for result in schema.get_all_operations()):
        modes = [*schemathesis.GenerationMode] if operation.body else [schemathesis.GenerationMode.POSITIVE]
        for mode in modes:
            QUICK(given(operation.as_strategy(generation_mode=mode))(answered))()
    assert statuses >= {200, 202, 404, 422}
    end = time.monotonic() + 60
    for job in jobs:
        while (status := client.get(f"/jobs/{job}")).json().get("state") in ("waiting", "running"):
            assert time.monotonic() < end
        assert "the server failed" not in status.text
