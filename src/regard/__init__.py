"""regard: your data -> a trained, measured, explained attention model.

Each verb is one function and one command: `regard.train(...)` is `regard train ...`.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.api import (  # isort: skip
        Run,
        check,
        compare,
        compare_sets,
        diagnose,
        evaluate,
        explain,
        export_run,
        features,
        import_run,
        load,
        load_recipe,
        nearest_words,
        predict,
        predict_file,
        predict_proba,
        score,
        shipped_recipes,
        show,
        train,
        vectors,
    )

__version__ = "0.1.0"

__all__ = [  # see __getattr__
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
]


def wait_quietly() -> None:
    """Before torch is imported: let its threads spin only briefly where they wait for each other,
    then sleep.

    Threads that go on spinning keep a busy machine's processors from those they wait for: dozens of
    times slower there. Threads that never spin cost a third of the speed on a machine that is free.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")


def __getattr__(name: str) -> Any:
    """Import the verbs when one is first used: torch takes seconds, `regard --help` must not."""
    if name not in __all__:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    wait_quietly()
    return getattr(import_module("regard.api"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
