"""One studio over a few tiny runs, and a browser: Debian's chromium. Without it these tests are
skipped."""

import shutil
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.cli.serving import run_folders

uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("fastapi")
pytest.importorskip("PIL")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from regard.runs.packaged import packaged_runs  # noqa: E402
from regard.studio.runs import Runs  # noqa: E402
from regard.studio.server import create_app  # noqa: E402
from regard.studio.settings import Settings  # noqa: E402

SIZES = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 32}
PHRASES = {
    "kind": "transformer",
    "width": 32,
    "heads": 2,
    "feed_forward": 64,
    "encoder_layers": 2,
    "decoder_layers": 1,
}
RUNS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "phrases": (
        "translation",
        "phrases-en-ko",
        {"kind": "bpe", "vocabulary": 600, "joint": False},
        PHRASES,
    ),
    "reviews": ("classification", "reviews-ko", {"kind": "character"}, {"kind": "bert", **SIZES}),
    "names": (
        "tagging",
        "names-en",
        {"kind": "word", "vocabulary": 400},
        {"kind": "bilstm", "preset": "tiny"},
    ),
    "portraits": (
        "question_answering",
        "portraits-en",
        {"kind": "word", "vocabulary": 400},
        {"kind": "bert", **SIZES},
    ),
    "stories": (
        "story_answering",
        "stories-en",
        {},
        {"kind": "memory_network", "width": 8, "restarts": 1},
    ),
    "shapes": (
        "captioning",
        "shapes",
        {"kind": "word"},
        {"kind": "captioner", "width": 16, "images": {"size": 32}},
    ),
}
"""By name: task, corpus, tokenizer, model."""


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory, tiny_run: Path) -> Path:
    """The folder of the runs, each trained for a few steps."""
    folder = tmp_path_factory.mktemp("studio") / "runs"
    shutil.copytree(tiny_run, folder / "tiny")
    for name, parts in RUNS.items():
        train_briefly(folder / name, *parts)
    return folder


def train_briefly(
    out: Path, task: str, corpus: str, tokenizer: dict[str, Any], model: dict[str, Any]
) -> None:
    """A run that was trained for a few steps on a part of a built-in corpus."""
    parts = {part: {"corpus": corpus, "size": size} for part, size in (("train", 60), ("test", 12))}
    recipe = {
        "task": task,
        "data": {**parts, "validation": {"split": 0.1}},
        "model": model,
        "training": {
            "steps": 4,
            "batch_tokens": 512,
            "device": "cpu",
            "decode": 0,
            "samples": 0,
            "log_every": 1,
        },
        **({"tokenizer": tokenizer} if tokenizer else {}),
    }
    regard.train(recipe, out=out, quiet=True)


@pytest.fixture
def chat(root: Path) -> Iterator[str]:
    """A run whose data is a conversation."""
    model = {"kind": "bahdanau", "preset": "tiny"}
    train_briefly(root / "chat", "translation", "chat-ko", {"kind": "character"}, model)
    yield "chat"
    shutil.rmtree(root / "chat")


@pytest.fixture
def many(root: Path) -> Iterator[str]:
    """A model of many languages, imported from Korean to English."""
    pytest.importorskip("transformers")
    from exchange_cases import SAVERS

    SAVERS["m2m100"](root.parent / "m2m100")
    languages = {"source_language": "ko", "target_language": "en"}
    regard.import_run(root.parent / "m2m100", out=root / "many", **languages)
    yield "many"
    shutil.rmtree(root / "many")


@contextmanager
def serving(
    root: Path, settings: Settings, examples: Mapping[str, Path] | None = None
) -> Iterator[str]:
    """The address of a studio of the runs in a folder, and of examples."""
    runs = Runs(settings, folders=lambda: run_folders(root), examples=examples, device="cpu")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(runs, settings, root=root), log_config=None, log_level="warning"
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def studio(root: Path) -> Iterator[str]:
    with serving(root, Settings()) as address:
        yield address


@pytest.fixture
def empty_studio(tmp_path: Path) -> Iterator[str]:
    """One without runs, which needs a token."""
    with serving(tmp_path / "runs", Settings(token="열쇠" * 8)) as address:
        yield address


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One in an empty folder, with the examples of the package."""
    root = tmp_path_factory.mktemp("empty") / "runs"
    with serving(root, Settings(), packaged_runs()) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """For one file: while playwright runs, its event loop occupies the thread of the tests."""
    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("no chromium: the pages of the studio are not tested")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def violations(page: Any) -> list[tuple[str, str]]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa"]}).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found]


@pytest.fixture
def accessibility() -> Callable[[Any], list[tuple[str, str]]]:
    """What axe-core says of names and contrast on a page."""
    return violations


@pytest.fixture
def page(browser: Any, studio: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page of the studio: `page.open("#/look?run=tiny")` waits until the view is drawn,
    `page.violations()` is what axe-core says of names and contrast. Marked with
    `options(locale=..., color_scheme=...)` it is another one. What the console says, and a request
    to another host, fails the test."""
    marker = request.node.get_closest_marker("options")
    options = {"locale": "en-US", "color_scheme": "light"} | (marker.kwargs if marker else {})
    context = browser.new_context(base_url=studio, **options)
    page, faults = context.new_page(), list[str]()
    page.set_default_timeout(10_000)
    page.on(
        "console",
        lambda message: (
            faults.append(f"{message.text} {message.location['url']}")
            if message.type in ("error", "warning")
            else None
        ),
    )
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request",
        lambda one: (
            None if one.url.startswith((studio, "data:", "blob:")) else faults.append(one.url)
        ),
    )

    def open_view(address: str) -> None:
        page.goto(f"/{address}")
        page.wait_for_selector("main[aria-busy=false]")

    page.open, page.faults, page.violations = open_view, faults, lambda: violations(page)
    yield page
    context.close()
    assert faults == []
