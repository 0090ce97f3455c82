"""Sheet of path lengths: how many steps lie between two words in an RNN, a CNN and self-attention,
and what a layer costs."""

from __future__ import annotations

import math

from regard.errors import RegardError
from regard.views.report import Cell, Curves, Section, Series, Table, muted
from regard.views.sheets.sheet import Sheet

SHOWN_LENGTHS = (5, 10, 20, 40, 80, 160)


def recurrent_steps(distance: int) -> int:
    """An RNN carries a word from state to state."""
    return distance


def convolution_layers(distance: int, kernel: int) -> int:
    """Each layer of a CNN sees (kernel - 1) / 2 words further on each side."""
    return math.ceil(distance / (kernel // 2))


def costs(length: int, width: int, kernel: int, heads: int) -> dict[str, tuple[int, int, int, int]]:
    """For each kind of layer: multiplications, steps that wait for each other, the longest path,
    and numbers kept for the backward pass.

    Vaswani et al. 2017, arXiv:1706.03762, table 1, with the constant 1; the path of a CNN without
    dilation. Kept are the states, and the attention weights of each head.
    """
    longest = length - 1
    return {
        "RNN": (length * width**2, length, recurrent_steps(longest), length * width),
        "CNN": (
            kernel * length * width**2,
            1,
            convolution_layers(longest, kernel),
            length * width,
        ),
        "self-attention": (length**2 * width, 1, 1, length * width + heads * length**2),
    }


def path_length(
    length: int = 10,
    first: int = 2,
    second: int = 8,
    width: int = 512,
    kernel: int = 5,
    heads: int = 8,
) -> Sheet:
    """Path length: the steps between two words in an RNN, a CNN and self-attention; operations and
    memory."""
    if not first < second <= length:
        raise RegardError(
            f"the words are at positions from 1 to {length}, the first before the second",
            where="first, second",
        )
    if kernel < 3 or kernel % 2 == 0:
        raise RegardError("a kernel has an odd width of at least 3", where="kernel")
    distance = second - first
    between = {
        "RNN": (recurrent_steps(distance), "second - first"),
        "CNN": (
            convolution_layers(distance, kernel),
            f"(second - first) / {kernel // 2}, rounded up",
        ),
        "self-attention": (1, "every word sees every word"),
    }
    table = costs(length, width, kernel, heads)
    formulas = {
        "RNN": ("n d^2", "n", "n - 1", "n d"),
        "CNN": ("k n d^2", "1", "(n - 1) / ((k - 1) / 2)", "n d"),
        "self-attention": ("n^2 d", "1", "1", "n d + h n^2"),
    }
    columns = ["kind of layer", "multiplications", "steps in a row", "longest path", "numbers kept"]
    lines = {name: [costs(n, width, kernel, heads)[name] for n in SHOWN_LENGTHS] for name in table}
    steps = [
        Section(
            f"From word {first} to word {second} of {length}",
            [
                Table(
                    ["kind of layer", "steps between", "how"],
                    [
                        [Cell(name, ours=True), Cell(steps, asked=True), Cell(how, ours=True)]
                        for name, (steps, how) in between.items()
                    ],
                    in_picture=True,
                ),
                muted(
                    "A word that is far away has to survive every step of an RNN, and its gradient "
                    "has to survive the way back."
                ),
            ],
        ),
        Section(
            f"The cost of a layer: n = {length} words, d = {width}, k = {kernel}, h = {heads}",
            [
                Table(
                    columns,
                    [[Cell(name, ours=True), *texts] for name, texts in formulas.items()],
                    title="Formulas",
                    in_picture=True,
                ),
                Table(
                    columns,
                    [
                        [Cell(name, ours=True), *(Cell(value, asked=True) for value in values)]
                        for name, values in table.items()
                    ],
                    title="The same as numbers",
                    in_picture=True,
                ),
            ],
        ),
        Section(
            "Longer sentences",
            [
                Curves(
                    [
                        Series(name, SHOWN_LENGTHS, [row[2] for row in rows])
                        for name, rows in lines.items()
                    ],
                    "words",
                    "longest path",
                    "The longest path between two words",
                    from_zero=True,
                ),
                Curves(
                    [
                        Series(name, SHOWN_LENGTHS, [row[0] / 1e6 for row in rows])
                        for name, rows in lines.items()
                    ],
                    "words",
                    "million multiplications",
                    "Multiplications of a layer",
                    from_zero=True,
                ),
                muted(
                    f"Self-attention needs fewer multiplications than an RNN as long as a sentence "
                    f"has fewer words than d = {width}."
                ),
            ],
        ),
    ]
    numbers = {
        "between": {name: steps for name, (steps, _) in between.items()},
        "costs": {name: list(values) for name, values in table.items()},
    }
    opening = "Words that belong together may stand far apart. How many steps connect them?"
    return Sheet("The path between two words", opening, steps, numbers)
