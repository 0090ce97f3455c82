"""Chapter 3: greedy and beam search, length normalisation, search errors and model errors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch

from regard.api import Run, compare, diagnose, predict
from regard.course.lab import (
    ONE_VECTOR_MODEL,
    TRANSFORMER_MODEL,
    Findings,
    Lab,
    captions_recipe,
    reverse_recipe,
)
from regard.course.seeds import Claim
from regard.data.batches import Padded
from regard.models import MODELS
from regard.models.transformer import TransformerConfig
from regard.views.beam_sweep import BeamResult
from regard.views.diagnose import Diagnosis
from regard.views.report import Curves, Series, Table
from regard.views.search_record import ranking, search_tree

LENGTH_PENALTIES = (0.0, 0.5, 1.0, 1.5)
COMPARED_BEAMS = (1, 2, 3, 5, 10, 20)


CLAIMS = {
    "short": Claim(
        "Raw log P makes outputs short.",
        lambda n: n["raw_ratio"] < n["mean_ratio"] - 0.1,
    ),
    "short_worse": Claim(
        "It also makes them worse.",
        lambda n: n["raw_bleu"] < n["mean_bleu"],
    ),
    "beam_helps": Claim(
        "A beam of 3 is better than greedy search.",
        lambda n: n["beam_3_bleu"] > n["greedy_bleu"] + 1,
    ),
    "significant": Claim(
        "Greedy search is significantly behind the best width.",
        lambda n: bool(n["beam_helps"]),
    ),
    "few_suffice": Claim(
        "A beam of 3 to 10 suffices: 20 adds less than a point.",
        lambda n: n["widest_bleu"] < max(n["beam_3_bleu"], n["beam_10_bleu"]) + 1,
    ),
    "memory": Claim(
        "The memory of the search grows with the width of the beam.",
        lambda n: n["memory_growth"] > 0.4 * n["widest_beam"],
    ),
    "wider_finds": Claim(
        "A wider beam removes most search errors.",
        lambda n: n["wider_search_errors"] < n["search_errors"] / 3,
    ),
    "training_more": Claim(
        "Longer training gains more than a wider beam.",
        lambda n: (
            n["late_bleu"] - n["greedy_bleu"] > n["wider_bleu"] - n["greedy_bleu"]
            and n["late_p"] < 0.01
        ),
    ),
}
"""What this chapter claims, checked with the numbers of each seed."""


def experiment(lab: Lab) -> Findings:
    """Train one model that is stopped early, and therefore unsure, and the same one three times as
    long."""
    if lab.full:
        recipe = captions_recipe(lab.full)
        early = lab.train("multi30k-early", recipe, steps=250, warmup=100, validate_every=250)
        late = lab.train("multi30k-late", recipe)
    else:
        early = lab.train("reverse-early", reverse_recipe(ONE_VECTOR_MODEL, 150, 6e-3))
        late = lab.train("reverse-late", reverse_recipe(ONE_VECTOR_MODEL, 450, 6e-3))
    lab.say("searching with beams of 1 to 20 and four length penalties")
    limit = lab.few(300)
    greedy = diagnose(early, beam=1, limit=limit, sweep=COMPARED_BEAMS)
    tried = {
        (b, a): diagnose(early, beam=b, length_penalty=a, limit=limit, sweep=())
        for b in (3, 10)
        for a in LENGTH_PENALTIES
    }
    example = _search_trees(early, greedy, tried[3, 1.0]) if lab.first else {}
    errors = _error_shares(greedy, early, late, limit)
    found = example | _lengths(tried) | _beams(greedy) | _beam_memory(early) | errors
    return {"underflow": _underflow()} | found


def _underflow() -> Table:
    """The number of factors after which a product of probabilities is 0."""
    rows = []
    for p in (0.5, 0.1, 0.01):
        counts = []
        for dtype in (torch.float16, torch.float32, torch.float64):
            product = torch.ones((), dtype=dtype)
            count = 0
            while product > 0:
                product = product * p
                count = count + 1
            counts.append(count)
        rows.append([p, *counts, 100 * float(torch.tensor(p).log())])
    columns = ["p of each token", "float16", "float32", "float64", "log P of 100 tokens"]
    return Table(columns, rows, title="Tokens after which the product is 0", formats=["g", ".1f"])


def _search_trees(run: Run, greedy: Diagnosis, beam: Diagnosis) -> Findings:
    """Show the search for the shortest sentence that greedy search gets wrong and a beam of 3
    right, or for the first sentence if there is none."""
    pairs = list(zip(greedy.judged, beam.judged, strict=True))
    mended = [(wrong, right) for wrong, right in pairs if right.exact and not wrong.exact] or pairs
    wrong, right = min(mended, key=lambda pair: len(pair[0].scored.source.split()))
    with TemporaryDirectory() as folder:
        record = Path(folder) / "search.json"
        predict(run, [wrong.scored.source], beam=3, record=record)
        search = json.loads(record.read_text(encoding="utf-8"))["inputs"][0]
    return {
        "tree": search_tree(search),
        "ranking": ranking(search),
        "source": wrong.scored.source,
        "greedy_output": wrong.output,
        "beam_output": right.output,
        "greedy_log_p": wrong.written.score,
        "beam_log_p": right.written.score,
    }


def _ratio(diagnosis: Diagnosis) -> float:
    """Words of the outputs over words of the references."""
    written = sum(len(sentence.output.split()) for sentence in diagnosis.judged)
    return written / sum(len(sentence.scored.reference.split()) for sentence in diagnosis.judged)


def _lengths(tried: dict[tuple[int, float], Diagnosis]) -> Findings:
    ratio = {key: _ratio(diagnosis) for key, diagnosis in tried.items()}
    bleu = {key: diagnosis.metrics["bleu"] for key, diagnosis in tried.items()}
    rows = [[a, ratio[3, a], bleu[3, a], ratio[10, a], bleu[10, a]] for a in LENGTH_PENALTIES]
    columns = ["alpha", *(f"{what}, beam {b}" for b in (3, 10) for what in ("length", "BLEU"))]

    def curves(table: dict[tuple[int, float], float], name: str) -> Curves:
        return Curves(
            [
                Series(f"beam {b}", LENGTH_PENALTIES, [table[b, a] for a in LENGTH_PENALTIES])
                for b in (3, 10)
            ],
            "alpha",
            name,
        )

    return {
        "length": curves(ratio, "length of outputs / length of references"),
        "length_bleu": curves(bleu, "BLEU"),
        "lengths": Table(columns, rows, formats=["g", ".3f", ".1f", ".3f", ".1f"]),
        "raw_ratio": ratio[10, 0.0],
        "mean_ratio": ratio[10, 1.0],
        "raw_bleu": bleu[10, 0.0],
        "mean_bleu": bleu[10, 1.0],
        "raw_drop_3": bleu[3, 1.0] - bleu[3, 0.0],
        "raw_drop_10": bleu[10, 1.0] - bleu[10, 0.0],
    }


def _beams(greedy: Diagnosis) -> Findings:
    assert greedy.beam_sweep is not None
    sweep = greedy.beam_sweep
    widths = greedy.beam_sweep.widths
    places = [float(place) for place in range(len(widths))]
    ticks = [(place, str(width.beam)) for place, width in zip(places, widths, strict=True)]
    bleu = [width.metrics["bleu"] for width in widths]
    rows = [
        [
            width.beam,
            width.metrics["bleu"],
            width.tally.search_errors,
            width.tally.model_errors,
            width.seconds / widths[0].seconds,
        ]
        for width in widths
    ]
    by_beam = {width.beam: width.metrics["bleu"] for width in widths}
    columns = ["beam", "BLEU", "search errors", "model errors", "time, greedy = 1"]
    return {
        "beams": Curves([Series("BLEU", places, bleu)], "beam", "BLEU", x_ticks=ticks),
        "beam_table": Table(columns, rows, formats=[".1f"]),
        "greedy_bleu": bleu[0],
        "beam_3_bleu": by_beam[3],
        "beam_10_bleu": by_beam[10],
        "widest_bleu": bleu[-1],
        "enough": sweep.enough.beam,
        "sentences": greedy.tally.sentences,
        "beam_helps": sweep.behind(sweep.now).matters,
        "widest_search_errors": widths[-1].tally.search_errors,
    }


def _beam_memory(run: Run) -> Findings:
    """Bytes that the search keeps for one sentence, by the width of the beam: for the model of this
    chapter and for a Transformer of like size, when 32 tokens have been written."""
    tokens = 32
    transformer = MODELS["transformer"].build(TransformerConfig(**TRANSFORMER_MODEL), 20, 20)
    source = Padded.of(torch.full((1, tokens), 5), torch.tensor([tokens]))
    rows = []
    own = list[list[int]]()
    for beam in COMPARED_BEAMS:
        sizes = []
        for model in cast(Sequence[Any], (run.load_model(), transformer)):
            with torch.inference_mode():
                state = model.eval().begin(source, beam, tokens)
                for _ in range(tokens):
                    _, state = model.step(torch.full((beam,), 5), state)
            sizes.append(bytes_of(state, of=model))
        own.append(sizes)
        rows.append([beam, *(size / 1000 for size in sizes)])
    columns = ["beam", "this model, kB", "Transformer, kB"]
    ratio = [last / first for first, last in zip(own[0], own[-1], strict=True)]
    return {
        "beam_memory": Table(columns, rows, formats=["", ".1f"]),
        "memory_growth": ratio[1],
        "widest_beam": COMPARED_BEAMS[-1],
    }


def bytes_of(state: object, of: torch.nn.Module | None = None) -> int:
    """The bytes of all tensors in a state, each counted once, without those of the model that it is
    of: a state may point to its table of positions."""
    own = {part.untyped_storage().data_ptr() for part in (of.buffers() if of else ())}
    found = dict[int, int]()
    waiting = [state]
    while waiting:
        part = waiting.pop()
        if isinstance(part, torch.Tensor):
            storage = part.untyped_storage()
            if storage.data_ptr() not in own:
                found[storage.data_ptr()] = storage.nbytes()
        elif isinstance(part, list | tuple):
            waiting += part
        elif isinstance(part, dict):
            waiting += part.values()
        elif hasattr(part, "__dict__") and not isinstance(part, torch.nn.Module):
            waiting += vars(part).values()
    return sum(found.values())


def _error_shares(greedy: Diagnosis, early: Run, late: Run, limit: int) -> Findings:
    """The shares of errors at beam 1, and both remedies: a wider beam, and a longer training. Every
    BLEU is measured on the same sentences, the first `limit`; the test compares both runs on the
    whole split."""
    assert greedy.beam_sweep is not None
    wider = next(width for width in greedy.beam_sweep.widths if width.beam == 5)
    both = compare([early, late], beam=1).to_json()
    significant = {row["system"]: row for row in both["significance"] if row["metric"] == "bleu"}
    trained = significant[late.folder.name]
    late_greedy, longer = (diagnose(late, beam=b, limit=limit, sweep=()) for b in (1, 5))
    tried: dict[str, Diagnosis | BeamResult] = {
        "early, greedy": greedy,
        "early, beam 5": wider,
        "late, greedy": late_greedy,
        "late, beam 5": longer,
    }
    rows = [
        [
            name,
            own.tally.errors,
            own.tally.search_errors,
            own.tally.model_errors,
            own.metrics["bleu"],
        ]
        for name, own in tried.items()
    ]
    columns = ["run and search", "errors", "search errors", "model errors", "BLEU"]
    shares = greedy.tally.shares
    return {
        "error_table": Table(columns, rows, formats=[".1f"]),
        "errors": greedy.tally.errors,
        "search_errors": greedy.tally.search_errors,
        "model_errors": greedy.tally.model_errors,
        "search_share": shares["search_errors"].share,
        "model_share": shares["model_errors"].share,
        "wider_bleu": wider.metrics["bleu"],
        "wider_search_errors": wider.tally.search_errors,
        "wider_model_errors": wider.tally.model_errors,
        "late_bleu": late_greedy.metrics["bleu"],
        "late_beam_bleu": longer.metrics["bleu"],
        "late_p": trained["p_randomisation"],
    }
