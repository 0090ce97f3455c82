"""torch's optimisers without torch's compiler, whose import takes one to three seconds.

torch wraps some methods of an optimiser to hide them from its compiler, and the wrappers import the
compiler when they are called first, though nothing is compiled. Code that is compiled never calls
these methods.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

import torch
from torch.optim import Optimizer

HIDDEN_METHODS = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
"""Methods of every optimiser that torch hides."""

Kind = TypeVar("Kind", bound=type[Optimizer])


def without_compiler(kind: Kind) -> Kind:
    """The same optimiser, which imports no compiler.

    A wrapper looks for the hidden form of its method as an attribute of that method, and finds the
    method itself there.
    """
    for name in HIDDEN_METHODS:
        method = getattr(getattr(Optimizer, name), "__wrapped__", None)
        if method is not None:
            method.__dict__.setdefault("__dynamo_disable", method)
    step: Any = torch.no_grad()(inspect.unwrap(kind.step))
    light: Any = type(kind.__name__, (kind,), {"step": step, "__module__": __name__})
    return light  # type: ignore[no-any-return]
