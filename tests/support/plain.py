"""The papers' equations once more, in plain loops over Python numbers: what the tensor code is held
against."""

import math
from collections.abc import Callable, Sequence
from typing import Any

Vector = Sequence[float]
Matrix = Sequence[Vector]
Weights = dict[str, Any]
"""A module's parameters as nested lists, by name."""


def lists_of(module: Any) -> Weights:
    return {name: tensor.tolist() for name, tensor in module.state_dict().items()}


def dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def add(*vectors: Vector) -> list[float]:
    return [math.fsum(column) for column in zip(*vectors, strict=True)]


def linear(x: Vector, weight: Matrix, bias: Vector | None = None) -> list[float]:
    """weight x + bias."""
    product = [dot(row, x) for row in weight]
    return product if bias is None else add(product, bias)


def softmax(scores: Vector) -> list[float]:
    powers = [math.exp(score) for score in scores]
    return [power / math.fsum(powers) for power in powers]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def average(weights: Vector, vectors: Matrix) -> list[float]:
    """sum_j weights_j vectors_j."""
    return [dot(weights, column) for column in zip(*vectors, strict=True)]


def attention(
    query: Vector, keys: Matrix, values: Matrix, sees: Callable[[int], bool], scaled: bool = True
) -> list[float]:
    """Vaswani 2017, equation 1, for one query that sees the keys `sees` says yes to."""
    seen = [j for j in range(len(keys)) if sees(j)]
    scale = math.sqrt(len(query)) if scaled else 1.0
    weights = softmax([dot(query, keys[j]) / scale for j in seen])
    return average(weights, [values[j] for j in seen])


def multi_head(
    w: Weights,
    heads: int,
    queries: Matrix,
    memory: Matrix,
    sees: Callable[[int, int], bool],
    scaled: bool = True,
) -> list[list[float]]:
    """Vaswani 2017, section 3.2.2: position i of `queries` sees position j of `memory` if `sees(i,
    j)`."""
    width = len(queries[0])
    size = width // heads
    keys = [linear(x, w["W_KV.weight"][:width], w["W_KV.bias"][:width]) for x in memory]
    values = [linear(x, w["W_KV.weight"][width:], w["W_KV.bias"][width:]) for x in memory]
    outputs = []
    for i, x in enumerate(queries):
        query = linear(x, w["W_Q.weight"], w["W_Q.bias"])
        joined: list[float] = []
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            head_keys, head_values = [key[part] for key in keys], [value[part] for value in values]
            joined += attention(
                query[part], head_keys, head_values, lambda j, i=i: sees(i, j), scaled
            )  # type: ignore[misc]
        outputs.append(linear(joined, w["W_O.weight"], w["W_O.bias"]))
    return outputs


def additive_score(w: Weights, s: Vector, h: Vector) -> float:
    """Bahdanau 2015, section A.1.2."""
    total = add(linear(s, w["W_a.weight"]), linear(h, w["U_a.weight"], w["U_a.bias"]))
    return dot(w["v_a.weight"][0], [math.tanh(x) for x in total])


def hidden_layer(w: Weights, s: Vector, h: Vector) -> list[float]:
    """W_b [s ; h] + b."""
    return linear([*s, *h], w["W_b.weight"], w["W_b.bias"])


SCORES: dict[str, Callable[[Weights, Vector, Vector], float]] = {
    "additive": additive_score,
    "concat": lambda w, s, h: dot(w["w.weight"][0], [math.tanh(x) for x in hidden_layer(w, s, h)]),
    "fully_connected": lambda w, s, h: dot(
        w["w.weight"][0], [max(0.0, x) for x in hidden_layer(w, s, h)]
    ),
    "dot": lambda w, s, h: dot(s, h),
    "scaled_dot": lambda w, s, h: dot(s, h) / math.sqrt(len(h)),
    "general": lambda w, s, h: dot(s, linear(h, w["W_a.weight"])),
}
"""Luong 2015, equation 8, and the others."""


def scored_attention(
    score: str, w: Weights, s: Vector, h: Matrix
) -> tuple[list[float], list[float]]:
    """The weights alpha_i and the context c_i of one query that sees all of h."""
    alpha = softmax([SCORES[score](w, s, h_j) for h_j in h])
    return alpha, average(alpha, h)


def local_weights(energies: Vector, p: float, reach: int, *, gaussian: bool) -> list[float]:
    """Luong 2015, section 3.2: the softmax inside [p - D, p + D], around p by a Gaussian with sigma
    = D / 2."""
    inside = [s for s in range(len(energies)) if p - reach <= s <= p + reach]
    weights = [0.0] * len(energies)
    for s, weight in zip(inside, softmax([energies[s] for s in inside]), strict=True):
        weights[s] = (
            weight * math.exp(-((s - p) ** 2) / (2 * (reach / 2) ** 2)) if gaussian else weight
        )
    return weights


def position(pos: int, width: int) -> list[float]:
    """Vaswani 2017, section 3.5."""
    encoding = []
    for dimension in range(width):
        i, odd = divmod(dimension, 2)
        angle = pos / 10000 ** (2 * i / width)
        encoding.append(math.cos(angle) if odd else math.sin(angle))
    return encoding


def layer_norm(x: Vector, weight: Vector, bias: Vector, epsilon: float = 1e-5) -> list[float]:
    mean = math.fsum(x) / len(x)
    variance = math.fsum((value - mean) ** 2 for value in x) / len(x)
    return [
        (v - mean) / math.sqrt(variance + epsilon) * g + b
        for v, g, b in zip(x, weight, bias, strict=True)
    ]


def feed_forward(w: Weights, x: Vector) -> list[float]:
    """Vaswani 2017, equation 2."""
    inner = [max(0.0, value) for value in linear(x, w["W_1.weight"], w["W_1.bias"])]
    return linear(inner, w["W_2.weight"], w["W_2.bias"])


def _gates(
    w: Weights, x: Vector, h: Vector, count: int
) -> tuple[list[list[float]], list[list[float]]]:
    """What each gate of a recurrent cell gets from its input and from its state, in torch's order
    of gates."""
    from_input = linear(x, w["weight_ih"], w["bias_ih"])
    from_state = linear(h, w["weight_hh"], w["bias_hh"])
    size = len(from_input) // count
    parts = [slice(gate * size, (gate + 1) * size) for gate in range(count)]
    return [from_input[part] for part in parts], [from_state[part] for part in parts]


def plain_cell(w: Weights, x: Vector, carry: Matrix) -> list[list[float]]:
    """h' = tanh(W x + U h)."""
    (x_h,), (h_h,) = _gates(w, x, carry[0], 1)
    return [[math.tanh(value) for value in add(x_h, h_h)]]


def gru_cell(w: Weights, x: Vector, carry: Matrix) -> list[list[float]]:
    """Cho 2014: r and z gates; h' = z h + (1 - z) tanh(W x + r * (U h)), with the reset after U as
    cuDNN has it."""
    h = carry[0]
    (x_r, x_z, x_n), (h_r, h_z, h_n) = _gates(w, x, h, 3)
    new = []
    for d in range(len(h)):
        r, z = sigmoid(x_r[d] + h_r[d]), sigmoid(x_z[d] + h_z[d])
        new.append(z * h[d] + (1 - z) * math.tanh(x_n[d] + r * h_n[d]))
    return [new]


def lstm_cell(w: Weights, x: Vector, carry: Matrix, clip: float = math.inf) -> list[list[float]]:
    """Hochreiter & Schmidhuber 1997 with forget gate: c' = f c + i g, within [-clip, clip]; h' = o
    tanh(c')."""
    h, c = carry
    from_input, from_state = _gates(w, x, h, 4)
    new_h, new_c = [], []
    for d in range(len(c)):
        i, f, g, o = (a[d] + b[d] for a, b in zip(from_input, from_state, strict=True))
        new_c.append(max(-clip, min(clip, sigmoid(f) * c[d] + sigmoid(i) * math.tanh(g))))
        new_h.append(sigmoid(o) * math.tanh(new_c[-1]))
    return [new_h, new_c]


CELLS = {"rnn": plain_cell, "gru": gru_cell, "lstm": lstm_cell}


def maxout(x: Vector) -> list[float]:
    """The larger of each pair of neighbours (Bahdanau 2015, section A.2.2)."""
    return [max(x[2 * k], x[2 * k + 1]) for k in range(len(x) // 2)]


def smoothed_loss(logits: Matrix, labels: Sequence[int], epsilon: float) -> float:
    """Szegedy 2016, section 7, summed over positions."""
    total = 0.0
    for scores, label in zip(logits, labels, strict=True):
        for k, p in enumerate(softmax(scores)):
            wanted = (1 - epsilon) * (k == label) + epsilon / len(scores)
            total -= wanted * math.log(p)
    return total
