"""Imports point one way, in the order of the data; and what is quick to start imports nothing that
is slow."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard

ORDER = [
    "config",
    "text",
    "data",
    "engine",
    "layers",
    "models",
    "objectives",
    "search",
    "tasks",
    "recipes",
    "runs",
    "exchange",
    "training",
    "views",
    "inference",
    "api",
    "course",
    "studio",
    "cli",
]
"""A folder imports only folders above it (DESIGN: the folders in the order of the data); `api` is
api.py, the verbs, which the server's routes and the command line call."""

PACKAGE = Path(regard.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[str]:
    """The modules that a file imports, wherever in it, as full names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name their module in full"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def folder_of(module: str) -> str | None:
    """`regard.data.batches.Batch` -> `data`; None for what is not ours and for what all may
    import."""
    first, *parts = module.split(".")
    if first != "regard" or parts[:1] in (["errors"], ["language"], ["__version__"]):
        return None
    return parts[0] if parts else "api"  # `import regard` gives the verbs


def violations(file: str, text: str) -> list[str]:
    own = file.split("/")[0]
    found = filter(None, map(folder_of, imports(ast.parse(text))))
    return [below for below in found if below not in ORDER or ORDER.index(below) > ORDER.index(own)]


def test_every_folder_has_its_place() -> None:
    assert {file.split("/")[0] for file in FILES if "/" in file} <= set(ORDER)
    names = "__init__ __main__ api errors language"
    assert [file for file in FILES if "/" not in file] == [f"{name}.py" for name in names.split()]


@pytest.mark.parametrize("file", [file for file in FILES if "/" in file])
def test_a_file_imports_only_what_stands_above_it(file: str) -> None:
    assert violations(file, (PACKAGE / file).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", ["errors.py", "language.py"])
def test_what_all_may_import_imports_nothing_of_ours(file: str) -> None:
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    assert [module for module in imports(tree) if module.startswith("regard")] == []


def test_a_wrong_import_would_be_found() -> None:
    wrong = (
        "def late():\n    from regard.search import score\nimport "
        "regard.data.batches\nfrom regard import errors"
    )
    assert violations("models/rnn.py", wrong) == ["search"]
    assert violations("tasks/translation.py", wrong) == []
    assert sorted(violations("config/__init__.py", wrong)) == ["data", "search"]


LIGHT = {"torch", "numpy", "pydantic", "yaml"}
HEAVY = {
    "sympy",
    "torch._dynamo",
    "torch.distributed.tensor",
    "matplotlib",
    "transformers",
    "sacrebleu",
    "ray",
    "PIL",
}


@pytest.mark.parametrize(
    ("module", "later"),
    [
        ("regard", LIGHT),
        ("regard.cli", LIGHT),
        ("regard.errors", LIGHT),
        ("regard.recipes.shipped", LIGHT),
        ("regard.api", HEAVY),
    ],
)
def test_what_must_start_quickly_imports_the_rest_later(module: str, later: set[str]) -> None:
    """Torch takes seconds; what only some commands need would cost all of them another second or
    more."""
    program = f"import sys, {module}; print(*sorted({later} & set(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == []


def test_verbs_are_imported_when_they_are_asked_for() -> None:
    assert set(regard.__all__) == {
        "RegardError",
        "Run",
        "check",
        "compare",
        "compare_sets",
        "diagnose",
        "evaluate",
        "explain",
        "export_run",
        "features",
        "import_run",
        "load",
        "load_recipe",
        "nearest_words",
        "predict",
        "predict_file",
        "predict_proba",
        "score",
        "shipped_recipes",
        "show",
        "train",
        "vectors",
    }
    assert all(callable(getattr(regard, name)) for name in regard.__all__)
    assert set(regard.__all__) <= set(dir(regard))
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        regard.tarin  # noqa: B018


def test_every_module_of_the_tests_has_a_name_of_its_own() -> None:
    """pytest imports them by that name alone, so of two it would refuse the second."""
    names = Counter(path.name for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [name for name, files in names.items() if files > 1] == []
