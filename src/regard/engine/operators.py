"""torch's operators that are written in Python, without torch's compiler, whose import takes one to
four seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

COMPILER = "torch._dynamo"
HIDDEN_FORM = "__dynamo_disable"
"""The attribute of a function in which torch keeps the form of it that is hidden from the compiler."""


def without_compiler(operator: Any) -> None:
    """Do not import the compiler to call an operator, unless something else has imported it.

    torch wraps the operator's function to hide it from the compiler, and the wrapper imports the
    compiler when it is called first. Until that is imported, nothing is compiled.
    """
    for wrapper in getattr(operator, "_backend_fns", {}).values():
        function = getattr(wrapper, "__wrapped__", None)
        if function is not None and COMPILER not in sys.modules:
            function.__dict__.setdefault(HIDDEN_FORM, _until_imported(function, wrapper))


def _until_imported(function: Callable[..., Any], wrapper: Callable[..., Any]) -> Any:
    """The function itself until the compiler is imported, then what the wrapper makes of it."""

    def call(*arguments: Any, **options: Any) -> Any:
        if COMPILER not in sys.modules:
            return function(*arguments, **options)
        function.__dict__.pop(HIDDEN_FORM, None)
        return wrapper(*arguments, **options)

    return call
