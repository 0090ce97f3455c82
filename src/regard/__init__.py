"""regard: your data -> a trained, measured, explained attention model.

Each verb is one function and one command: `regard.train(...)` is `regard train ...`.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.exchange.exchange import export_run as export_run
    from regard.exchange.exchange import import_run as import_run
    from regard.recipes.recipe import load_recipe as load_recipe
    from regard.runs import Run as Run
    from regard.runs.verbs import evaluate as evaluate
    from regard.runs.verbs import features as features
    from regard.runs.verbs import predict as predict
    from regard.runs.verbs import score as score
    from regard.training.check import check as check
    from regard.training.train import train as train
    from regard.views.compare import compare as compare
    from regard.views.diagnose import diagnose as diagnose
    from regard.views.explain import explain as explain

__version__ = "0.1.0"

_WHERE = {
    "Run": "regard.runs",
    "check": "regard.training.check",
    "compare": "regard.views.compare",
    "diagnose": "regard.views.diagnose",
    "evaluate": "regard.runs.verbs",
    "explain": "regard.views.explain",
    "export_run": "regard.exchange.exchange",
    "features": "regard.runs.verbs",
    "import_run": "regard.exchange.exchange",
    "load_recipe": "regard.recipes.recipe",
    "predict": "regard.runs.verbs",
    "score": "regard.runs.verbs",
    "train": "regard.training.train",
}
__all__ = sorted(_WHERE)


def wait_quietly() -> None:
    """Before torch is imported: let its threads spin only briefly where they wait for each other, then sleep.

    Threads that go on spinning keep a busy machine's processors from those they wait for: dozens of times slower there.
    Threads that never spin cost a third of the speed on a machine that is free.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")


def __getattr__(name: str) -> Any:
    """Import a verb when it is first used: torch takes seconds, `regard --help` must not."""
    if name not in _WHERE:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    wait_quietly()
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
