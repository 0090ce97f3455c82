"""`show`: pictures and worked examples that need no training, computed by the code that models
run. The pictures are here, the worked examples in sheets/."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from regard.data.config import TrainingConfig
from regard.errors import Problem, RegardError, did_you_mean
from regard.language import default_language, shown
from regard.layers.attention import Visible
from regard.layers.embeddings import sinusoidal_positions
from regard.objectives.cross_entropy import smoothed_loss
from regard.training.optimiser import schedule_factor
from regard.views.page import rendered
from regard.views.report import (
    Bars,
    Curves,
    HeatMap,
    HeatMaps,
    Part,
    Report,
    Result,
    Section,
    Series,
    Table,
    in_language,
    muted,
)
from regard.views.sheets.attention import attention_kinds, self_attention
from regard.views.sheets.beam import beam
from regard.views.sheets.bert import bert_input, embeddings
from regard.views.sheets.elmo import elmo
from regard.views.sheets.path_length import path_length
from regard.views.sheets.pretraining import masking, next_sentence
from regard.views.sheets.recurrent import annotation, attention_steps
from regard.views.sheets.sheet import Sheet, heat_map
from regard.views.sheets.special_tokens import special_tokens
from regard.views.sheets.sublayers import feed_forward, layer_norm
from regard.views.sheets.tokenizer_kinds import tokenizers
from regard.views.thumbnail import thumbnail

TEMPERATURES = (0.25, 0.5, 1.0, 2.0, 4.0)
KEY_WIDTHS = (4, 16, 64, 256, 1024)
MAY_BE_ZERO = ("padding", "warmup", "seed", "position")
"""Settings that may be 0."""
END_TOKEN_NOTE = (
    "Why </s> cannot see itself in a padded decoder: it is the last token to predict and nothing "
    "follows it, so no loss reads its row, and as a key it is hidden together with the padding."
)
RANDOM_QUERIES = 2000
KEYS_PER_QUERY = 10
"""Random queries, and the keys that each is compared with."""


@dataclass(frozen=True, repr=False)
class EquationView(Result):
    """A picture: its figures and tables, what to look at, and the numbers."""

    title: str
    parts: Sequence[Part]
    note: str
    numbers: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, **self.numbers}

    def report(self) -> Report:
        return Report(self.title, [Section("", [*self.parts, muted(self.note)])])


def positions(length: int = 50, width: int = 128) -> EquationView:
    """Position encodings: the matrix, some of its columns as curves, and what a shift does."""
    if width < 2:
        raise RegardError("a wave has two dimensions, a sine and a cosine", where="width")
    waves = sinusoidal_positions(length, width).double().numpy()
    labels = [str(place) if place % 5 == 0 else "" for place in range(length)]
    columns = [str(column) if column % 16 == 0 else "" for column in range(width)]
    shown = sorted({0, 1, width // 4, width // 2, width - 2} & {*range(width)})
    norms = np.linalg.norm(waves, axis=1)
    likeness = waves @ waves.T / np.outer(norms, norms)
    starts = sorted({0, length // 4, length // 2})
    shifts = [
        Series(f"from position {start}", [*range(length - start)], [*likeness[start, start:]])
        for start in starts
    ]
    by_shift = [
        [shift, *(float(likeness[start, start + shift]) for start in starts)]
        for shift in (0, 1, 2, 5, 10)
        if shift < length - starts[-1]
    ]
    parts: list[Part] = [
        heat_map(f"PE(pos, i): {length} positions, {width} dimensions", labels, columns, waves),
        Curves(
            [Series(f"i = {column}", [*range(length)], [*waves[:, column]]) for column in shown],
            "position",
            "value",
            "Some columns: each dimension is a wave, and later ones are longer",
        ),
        Curves(
            shifts,
            "shift k",
            "cosine of PE(pos) and PE(pos + k)",
            "Similarity of two positions, by their distance",
        ),
        Table(
            ["shift k", *(series.name for series in shifts)],
            by_shift,
            title="The same cosines as numbers",
        ),
    ]
    spread = max(np.ptp(np.diagonal(likeness, shift)) for shift in range(length))
    note = (
        "The cosine of two encodings depends on their distance alone, not on where they are."
        if width % 2 == 0
        else "With an odd width the last sine lacks its cosine, so the cosine of two encodings also "
        "depends a little on where they are."
    )
    numbers = {
        "positions": waves.round(4).tolist(),
        "largest difference between equal distances": float(spread),
    }
    return EquationView("Sinusoidal positions", parts, note, numbers)


def masks(source: int = 5, target: int = 6, padding: int = 2) -> EquationView:
    """Who may look at whom: padding, look-ahead, and both at once."""
    cpu = torch.device("cpu")

    words = [str(place + 1) for place in range(source)]
    texts = [*words, *["<pad>"] * padding]
    # A decoder reads <s> and all words but the last; </s> is only in the rows of shorter sentences.
    written = ["<s>", *(str(place + 1) for place in range(target - 1))]
    row = [*written, *["</s>", *["<pad>"] * (padding - 1)][:padding]]

    def seen(title: str, visible: Visible, queries: list[str], keys: list[str]) -> HeatMap:
        matrix_QK = visible.matrix_BQK(len(queries), len(keys), cpu)[0]
        return HeatMap(queries, keys, matrix_QK.double().numpy(), title)

    short = Visible(torch.tensor([source]))
    padded = Visible(torch.tensor([target]), causal=True)
    maps = [
        seen("encoder: padding is hidden", short, texts, texts),
        seen("decoder: the future is hidden", Visible(None, causal=True), written, written),
        seen("decoder in a batch: both are hidden", padded, row, row),
        seen("decoder to encoder: the source's padding is hidden", short, row, texts),
    ]
    parts: list[Part] = [HeatMaps([one], title=one.title) for one in maps]
    if padding:
        parts.append(muted(END_TOKEN_NOTE))
    note = "Rows are the words that look, columns the words that are looked at; a filled cell means allowed."
    return EquationView(
        "Masks",
        parts,
        note,
        {one.title: one.values.astype(int).tolist() for one in maps},
    )


def softmax(scores: str = "2,1,0,-1") -> EquationView:
    """Softmax of the same scores at several temperatures."""
    try:
        values = torch.tensor([float(score) for score in scores.split(",")], dtype=torch.float64)
        if not values.isfinite().all():
            raise ValueError
    except ValueError:
        raise RegardError(
            f"{scores!r} are not finite numbers", where="scores", hint="as in scores=2,1,0.5,-1"
        ) from None
    shares = {t: torch.softmax(values / t, 0) for t in TEMPERATURES}
    names = [f"score {value:g}" for value in values.tolist()]
    entropies = [_entropy(share) for share in shares.values()]
    rows = [
        [f"T = {t:g}", *(round(p, 4) for p in share.tolist()), round(entropy, 3)]
        for (t, share), entropy in zip(shares.items(), entropies, strict=True)
    ]
    by_score = {
        name: [float(share[n]) for share in shares.values()] for n, name in enumerate(names)
    }
    parts = [
        Bars(
            [f"T = {t:g}" for t in shares],
            by_score,
            "share",
            "softmax(score / T): a bar for each temperature",
        ),
        Table(["temperature", *names, "entropy"], rows),
    ]
    note = "A low temperature gives nearly all to the largest score, a high one shares evenly."
    return EquationView(
        "Softmax and temperature",
        parts,
        note,
        {f"{t:g}": share.tolist() for t, share in shares.items()},
    )


def _entropy(shares: Tensor) -> float:
    """Entropy in nats, the mean over the leading axes."""
    return float(torch.special.entr(shares).sum(-1).mean())


def dot_products(seed: int = 1) -> EquationView:
    """Why scores are divided by sqrt(d_k): variance, entropy of the softmax and its gradient by
    width."""
    generator = torch.Generator().manual_seed(seed)
    columns: dict[str, list[float]] = {
        name: []
        for name in (
            "variance of q . k",
            "variance of q . k / sqrt(d_k)",
            "entropy",
            "entropy, scaled",
            "gradient",
            "gradient, scaled",
        )
    }
    for width in KEY_WIDTHS:
        q_RE, k_RKE = (
            torch.randn(RANDOM_QUERIES, *more, width, generator=generator, dtype=torch.float64)
            for more in ((), (KEYS_PER_QUERY,))
        )
        raw_RK = torch.einsum("re,rke->rk", q_RE, k_RKE)
        scaled_RK = raw_RK / math.sqrt(width)
        p = raw_RK.softmax(-1)
        scaled = scaled_RK.softmax(-1)
        # d p_i / d score_i = p_i (1 - p_i): what is left of a gradient that goes through the
        # softmax
        through, through_scaled = (float((share * (1 - share)).mean()) for share in (p, scaled))
        variances = float(raw_RK.var()), float(scaled_RK.var())
        measured = [*variances, _entropy(p), _entropy(scaled), through, through_scaled]
        for column, value in zip(columns.values(), measured, strict=True):
            column.append(value)
    x = [math.log2(width) for width in KEY_WIDTHS]
    ticks = [(math.log2(width), str(width)) for width in KEY_WIDTHS]
    draw = partial(Curves, x_label="d_k", from_zero=True, x_ticks=ticks)

    def pair(name: str) -> list[Series]:
        lines = {"q . k": name, "q . k / sqrt(d_k)": f"{name}, scaled"}
        return [Series(title, x, columns[key]) for title, key in lines.items()]

    most = f"at most log {KEYS_PER_QUERY} = {math.log(KEYS_PER_QUERY):.2f}"
    parts: list[Part] = [
        Table(
            ["d_k", *columns],
            [*zip(KEY_WIDTHS, *columns.values(), strict=True)],
            title=f"{RANDOM_QUERIES:,} random queries, {KEYS_PER_QUERY} random keys each, all entries from N(0, 1)",
        ),
        draw(pair("entropy"), y_label="entropy in nats", title=f"Entropy of the softmax, {most}"),
        draw(
            pair("gradient"),
            y_label="mean p (1 - p)",
            title="The share of a gradient that passes the softmax",
        ),
    ]
    note = (
        "The variance of q . k is d_k. Undivided, the softmax of wide keys is nearly "
        "one-hot and passes no gradient."
    )
    return EquationView("Variance of dot products", parts, note, {"d_k": KEY_WIDTHS, **columns})


def label_smoothing(epsilon: float = 0.1, classes: int = 10) -> EquationView:
    """The target that label smoothing trains towards, and the loss of an overconfident model."""
    if not 0 <= epsilon < 1 or classes < 2:
        raise RegardError(
            "epsilon is from 0 to below 1, and classes at least 2", where="label-smoothing"
        )
    right = 1 - epsilon + epsilon / classes
    best = math.log(right / (epsilon / classes)) if epsilon else math.inf
    longest = 12 if best == math.inf else max(12, math.ceil(1.5 * best))
    gaps = [gap / 2 for gap in range(2 * longest + 1)]
    logits = torch.zeros(len(gaps), classes, dtype=torch.float64)
    logits[:, 0] = torch.tensor(gaps)
    label = torch.zeros(1, dtype=torch.long)
    losses = {
        e: [float(smoothed_loss(row[None].log_softmax(-1), label, e)[0]) for row in logits]
        for e in (0.0, epsilon)
    }
    rows = [
        [gap, float(logits[n].softmax(-1)[0]), losses[0.0][n], losses[epsilon][n]]
        for n, gap in enumerate(gaps)
        if n % 4 == 0
    ]
    parts = [
        Bars(
            ["right class", "each other class"],
            {"target": [right, epsilon / classes]},
            "probability",
            f"The target with epsilon = {epsilon:g} and {classes} classes",
            span=1.0,
        ),
        Curves(
            [Series(f"epsilon = {e:g}", gaps, values) for e, values in losses.items()],
            "logit of the right class above the others",
            "loss",
            "The loss as the model becomes more certain",
            from_zero=True,
        ),
        Table(
            ["logit above the others", "p of the right class", "plain loss", "smoothed loss"], rows
        ),
    ]
    note = (
        "The plain loss rewards certainty without end; the smoothed one is lowest at a gap of "
        f"log(p / q) = {best:.2f}, p and q being the two probabilities of the target."
        if epsilon
        else "Without smoothing the loss rewards certainty without end: no gap is the best."
    )
    numbers = {
        "target": [right] + [epsilon / classes] * (classes - 1),
        "best gap": best if epsilon else None,
        "gaps": gaps,
        "losses": [*losses.values()],
    }
    return EquationView("Label smoothing", parts, note, numbers)


def schedules(steps: int = 4000, warmup: int = 400) -> EquationView:
    """The learning rate over time: warm-up, then one of the five ways down."""
    names = [
        name
        for name in get_args(TrainingConfig.model_fields["schedule"].annotation)
        if name != "plateau"
    ]
    places = sorted({*range(1, steps + 1, max(1, steps // 100)), min(max(1, warmup), steps), steps})
    lines = {}
    for name in names:
        config = TrainingConfig(steps=steps, schedule=name, warmup=warmup)
        lines[name] = [schedule_factor(config, step, steps) for step in places]
    shown = [place for place in range(len(places)) if place % (len(places) // 8 or 1) == 0]
    parts = [
        Curves(
            [Series(name, places, values) for name, values in lines.items()],
            "step",
            "factor of the learning rate",
            "Learning rate, as a factor of training.learning_rate",
            from_zero=True,
        ),
        Table(
            ["step", *lines],
            [[places[place], *(values[place] for values in lines.values())] for place in shown],
        ),
    ]
    note = (
        "The paper's schedule is inverse_sqrt: it rises for warmup steps, then falls with 1 "
        "/ sqrt(step)."
    )
    return EquationView("Learning-rate schedules", parts, note, {"steps": places, **lines})


EQUATIONS: dict[str, Callable[..., EquationView | Sheet]] = {
    "positions": positions,
    "masks": masks,
    "softmax": softmax,
    "dot-products": dot_products,
    "label-smoothing": label_smoothing,
    "schedules": schedules,
    "tokenizers": tokenizers,
    "special-tokens": special_tokens,
    "annotation": annotation,
    "attention-steps": attention_steps,
    "self-attention": self_attention,
    "attention-kinds": attention_kinds,
    "layer-norm": layer_norm,
    "feed-forward": feed_forward,
    "path-length": path_length,
    "beam": beam,
    "elmo": elmo,
    "bert-input": bert_input,
    "embeddings": embeddings,
    "masking": masking,
    "next-sentence": next_sentence,
}
_SETTING = re.compile(r"(\w+)=(.*)", re.DOTALL)


def show(
    name: str, settings: Sequence[str] = (), *, exercise: bool = False, solution: bool = False
) -> EquationView | Sheet:
    """The picture or the worked example `name`. `settings` are texts, such as the sentence to work
    on, and settings as in `length=20`.

    A worked example can be an exercise, with blanks; with `solution` the blanks are filled in, and
    with both the solution follows the exercise.
    """
    if name not in EQUATIONS:
        raise RegardError(
            f"there is no picture {name!r}", where="NAME", hint=did_you_mean(name, EQUATIONS)
        )
    view = EQUATIONS[name](**_settings_of(name, settings))
    if not (exercise or solution):
        return view
    if not isinstance(view, Sheet):
        raise RegardError(f"{name} has no exercise", where="--exercise, --solution")
    return replace(view, exercise=exercise, solution=solution)


def summaries() -> dict[str, str]:
    """What each picture and worked example is about, by its name."""
    return {name: " ".join(str(view.__doc__).split()) for name, view in EQUATIONS.items()}


def list_page() -> str:
    """All pictures and worked examples as a page, each with a small drawing of it."""
    sheets = []
    for name, summary in summaries().items():
        report = in_language(show(name).report())
        about = {"name": name, "title": report.title, "summary": shown(summary)}
        sheets.append(about | {"drawing": thumbnail(report)})
    title = shown("By hand, without training")
    return rendered("sheets.html", title=title, sheets=sheets, language=default_language())


def _settings_of(name: str, given: Sequence[str]) -> dict[str, Any]:
    """The values of `given`; a text without a name is the first setting that is a text, the next
    one the second."""
    defaults = {
        key: parameter.default
        for key, parameter in inspect.signature(EQUATIONS[name]).parameters.items()
    }
    texts = iter([key for key, value in defaults.items() if isinstance(value, str)])
    settings = dict[str, Any]()
    problems = list[Problem]()
    for text in given:
        named = _SETTING.fullmatch(text)
        key, value = named.groups() if named else (next(texts, text), text)
        if key not in defaults:
            problems.append(
                Problem(text, f"{name} has no such setting", did_you_mean(key, defaults))
            )
            continue
        try:
            settings[key] = _value(key, value, defaults[key])
        except ValueError:
            problems.append(
                Problem(text, "not a number that can be shown", f"as in {key}={defaults[key]}")
            )
    if problems:
        raise RegardError(problems=problems)
    return settings


def _value(key: str, text: str, default: Any) -> Any:
    """The text as a value of the type of the default."""
    value = type(default)(text)
    if isinstance(value, int) and not (0 if key in MAY_BE_ZERO else 1) <= value <= 10_000:
        raise ValueError
    return value
