"""Chapter 5: the purpose of each part of the Transformer, shown by leaving it out; its masks, its
norm, its time."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.api import Run, evaluate
from regard.config import Tree
from regard.course.lab import (
    TRANSFORMER_MODEL,
    Findings,
    Lab,
    captions_recipe,
    last_loss,
    pair_batch,
    phrases_recipe,
    reverse_recipe,
    reverse_transformer,
    source_tokens,
)
from regard.course.seeds import Claim
from regard.data.batches import Batch, Padded
from regard.data.corpora import SYMBOLS, generate
from regard.errors import RegardError
from regard.layers.attention import Visible, recording
from regard.models import MODELS
from regard.models.rnn import RNNConfig
from regard.models.transformer import TransformerConfig
from regard.objectives.cross_entropy import TokenCrossEntropy
from regard.runs.examples import examples_of
from regard.tasks.reading import padded
from regard.training.threads import computing_with
from regard.views.report import Branch, Curves, HeatMap, HeatMaps, Series, Table
from regard.views.report import Tree as Drawn
from regard.views.show import positions

NARROW_MODEL = TRANSFORMER_MODEL | {"width": 48, "feed_forward": 96, "norm": "pre"}
COMPARED_DEPTHS = (2, 6, 12)
BLOCK_VARIANTS: dict[str, Tree] = {
    "whole, norm first": {},
    "whole, norm last": {"norm": "post"},
    "without residual": {"residual": False},
    "without norm": {"norm": "none"},
}
TIMED_LENGTHS = (8, 32, 128, 512)
NORM_STEPS = 250
"""Updates of the models whose norms are compared."""
SHOWN_DIMENSIONS = 6
"""Number of dimensions of a word for which LayerNorm is worked out."""


CLAIMS = {
    "needs_positions": Claim(
        "Without positions letters cannot be reversed.",
        lambda n: n["reverse_none"] < 0.3 < 0.8 < n["reverse_sinusoidal"],
    ),
    "sorts": Claim(
        "They can still be sorted.",
        lambda n: n["sort_none"] > n["reverse_none"] + 0.4,
    ),
    "translates": Claim(
        "Translation loses less.",
        lambda n: 5 < n["translation_sinusoidal"] - n["translation_none"] < 40,
    ),
    "cheats": Claim(
        "Without the look-ahead mask the loss falls and nothing useful is written.",
        lambda n: n["look_ahead_loss"] < 0.05 and n["look_ahead_bleu"] < n["masked_bleu"] - 50,
    ),
    "residual": Claim(
        "Twelve layers need residual connections.",
        lambda n: n["deep_without_residual"] > n["deep_whole"] + 0.5,
    ),
    "norm": Claim(
        "Twelve layers need LayerNorm.",
        lambda n: n["diverged"] or n["deep_without_norm"] > n["deep_whole"] + 0.3,
    ),
    "norm_trained": Claim(
        "Trained with LayerNorm the model is better than with BatchNorm.",
        lambda n: n["layer_norm_loss"] < n["batch_norm_loss"] - 0.05,
    ),
    "slower_cpu": Claim(
        "An LSTM is slower than a Transformer for long sentences, on this CPU.",
        lambda n: n["long_ratio_cpu"] > 1.1,
    ),
    "layer_norm": Claim(
        "LayerNorm does not mix the sentences of a batch; BatchNorm does.",
        lambda n: n["layer_norm_change"] < 1e-6 < 0.1 < n["batch_norm_change"],
    ),
}
"""What this chapter claims, checked with the numbers of each seed."""


def experiment(lab: Lab) -> Findings:
    whole = lab.train("reverse-transformer", reverse_transformer())
    found = _without_positions(lab, whole) | _without_mask(lab, whole) | _depth(lab)
    found |= _normed() | _norms_trained(lab)
    if lab.first:
        matrix, waves, shifts, _ = positions().parts
        found |= {"positions": matrix, "waves": waves, "shifts": shifts}
        found |= _masks(whole) | _stages(whole) | _forward(whole)
    return found


def _masks(run: Run) -> Findings:
    """Show who may look at whom in a batch of test sentences of unequal lengths, as the model
    computes it."""
    test = examples_of(run, "test")
    model: Any = run.load_model()
    parts = Findings()
    by_length = np.argsort(test.lengths, kind="stable")
    batch = test.batch(by_length[[0, len(by_length) // 4, len(by_length) // 2]])
    with recording() as recorded, torch.inference_mode():
        model(batch)
    visible = recorded.by_name(model, visible=True)
    read, written = (
        [run.tokenizers[side].pieces(row) for row in ids_BL.tolist()]
        for side, ids_BL in (
            ("source", batch.source.ids_BL),
            ("target", batch.target.inputs.ids_BL),
        )
    )
    for name, attention, looking, seen in (
        ("encoder", "encoder.0.self_attention", read, read),
        ("decoder", "decoder.0.self_attention", written, written),
        ("cross", "decoder.0.cross_attention", written, read),
    ):
        maps_BQK = visible[attention][:, 0].double().numpy()
        parts[f"masks_{name}"] = [
            HeatMaps([HeatMap(*mask)]) for mask in zip(looking, seen, maps_BQK, strict=True)
        ]
    return parts


def _stages(run: Run) -> Findings:
    """Show the output of every part of the model for "a b c d", with shape, mean and deviation, and
    which part reads which."""
    model: Any = run.load_model()
    rows = list[list[Any]]()
    made = dict[Any, str]()

    def keep(name: str, module: nn.Module, out: object) -> None:
        if isinstance(out, Tensor):
            shape = " x ".join(map(str, out.shape[1:]))
            rows.append([name, type(module).__name__, shape, out.mean().item(), out.std().item()])
            # embeddings, positions, output; of blocks, their sub-layers
            if name.count(".") in (0, 2):
                made[out.grad_fn] = name

    handles = [
        module.register_forward_hook(lambda module, _, out, name=name: keep(name, module, out))
        for name, module in model.named_modules()
        if name and not isinstance(module, nn.Dropout | nn.Identity | nn.ModuleList)
    ]
    model.readout(model(pair_batch(run, ["a b c d"], ["a b c d"])).hidden_BTD)
    for handle in handles:
        handle.remove()
    encoded = next(node for node in reversed(made) if made[node].startswith("encoder"))
    return {
        "stages": Table(
            ["part", "class", "shape", "mean", "deviation"], rows, folded=True, formats=[".2f"]
        ),
        "diagram": [_data_flow(node, made, encoded) for node in (encoded, [*made][-1])],
    }


def _data_flow(last: Any, made: Mapping[Any, str], encoded: Any) -> Drawn:
    """A tree of what each part reads, from the last one back to the embeddings, by autograd's graph.

    A part that several others read is followed once, and muted where it is read again; the encoder
    has a drawing of its own.
    """

    def read_by(node: Any) -> Iterator[Any]:
        for before, _ in node.next_functions:
            if before in made:
                yield before
            elif before is not None:
                yield from read_by(before)

    branches = list[Branch]()
    waiting = list[tuple[Any, int | None, int]]([(last, None, 1)])
    seen = set[Any]()
    while waiting:
        node, parent, depth = waiting.pop()
        own = re.sub("^.*[.]|source_|target_", "", made[node])
        label = "encoder" if node is encoded else "sum, norm" if own.startswith("around") else own
        branches.append(Branch(parent, depth, label, tone="muted" if node in seen else ""))
        if node not in seen and (node is not encoded or parent is None):
            seen.add(node)
            waiting += [
                (before, len(branches) - 1, depth + 1) for before in dict.fromkeys(read_by(node))
            ]
    return Drawn(branches)


def _forward(run: Run) -> Findings:
    """The encoder's first block for "a b c d", computed here from its weights, a matrix for each
    stage."""
    text = "a b c d"
    model: Any = run.load_model()
    source = source_tokens(run, [text])
    block = model.encoder[0]
    attention = block.self_attention
    width = TRANSFORMER_MODEL["width"]
    labels = [*text.split(), "⏎"]
    vocabulary = run.tokenizers["source"].tokens(range(model.source_embedding.num_embeddings))
    with torch.inference_mode():
        one_hot = nn.functional.one_hot(source.ids_BL[0], len(vocabulary)).float()
        e = one_hot @ model.source_embedding.weight
        pe = model.positions.table_LD(one_hot, len(labels))
        x = e * math.sqrt(width) + pe
        k_1HLE, v_1HLE = attention.keys_values(x[None])
        head = k_1HLE.shape[-1]
        q_HLE = attention.W_Q(x).view(len(labels), -1, head).transpose(0, 1)
        scores = q_HLE @ k_1HLE[0].mT / math.sqrt(head)
        context = (scores.softmax(-1) @ v_1HLE[0]).transpose(0, 1).flatten(1)
        attended = attention.W_O(context)
        summed = x + attended
        normed = block.around_attention.norm(summed)
        inside = block.feed_forward.W_1(normed).relu()
        fed = block.feed_forward.W_2(inside)
        out = block.around_feed_forward.norm(normed + fed)
        whole_1LD = model.encode(model.embed_source(source), Visible(source.lengths_B))
    stages: dict[str, Tensor] = {
        "one-hot": one_hot,
        "E = one-hot x table": e,
        "PE": pe,
        "x = E sqrt(d) + PE": x,
        "Q, head 1": q_HLE[0],
        "K, head 1": k_1HLE[0, 0],
        "V, head 1": v_1HLE[0, 0],
        "Q K^T / sqrt(d_k), head 1": scores[0],
        "softmax, head 1": scores[0].softmax(-1),
        "Concat(heads)": context,
        "Concat(heads) W^O": attended,
        "x + attention": summed,
        "LayerNorm": normed,
        "max(0, x W_1 + b_1)": inside,
        "W_2 and b_2": fed,
        "x + feed-forward": normed + fed,
        "LayerNorm, the output": out,
    }
    across = {len(vocabulary): vocabulary, len(labels): labels}
    maps = []
    for number, (name, matrix) in enumerate(stages.items(), 1):
        columns = across.get(matrix.shape[1]) or [
            str(n) if n % 16 == 0 else "" for n in range(matrix.shape[1])
        ]
        title = f"{number}. {name}: {len(matrix)} x {matrix.shape[1]}"
        maps.append(HeatMap(labels, columns, matrix.double().numpy(), title, (title,)))
    return {
        "forward": HeatMaps(maps, ["stage"]),
        "layer_norm": _layer_norm(block.around_attention.norm, summed[0]),
        "forward_error": float((out - whole_1LD[0]).abs().max()),
    }


def _layer_norm(norm: nn.LayerNorm, x_D: Tensor) -> Table:
    """Show the first dimensions of one word: x -> (x - mean) / deviation * gain + bias."""
    mean = float(x_D.mean())
    deviation = float((x_D.var(correction=0) + norm.eps).sqrt())
    rows = []
    for place in range(SHOWN_DIMENSIONS):
        x = x_D[place].item()
        gain = norm.weight[place].item()
        bias = norm.bias[place].item()
        even = (x - mean) / deviation
        rows.append([place, x, mean, deviation, even, gain, bias, even * gain + bias])
    columns = [
        "dimension",
        "x",
        "mean",
        "deviation",
        "(x - mean) / deviation",
        "gain",
        "bias",
        "LayerNorm(x)",
    ]
    return Table(columns, rows, formats=[".3f"])


def _without_positions(lab: Lab, whole: Run) -> Findings:
    """Train without positions on tasks for which the order of the source matters, and for which it
    does not."""
    numbers = Findings()
    corpora = ("reverse", "copy", "sort")
    kinds = ("sinusoidal", "none")
    for corpus, kind in product(corpora, kinds):
        recipe = reverse_transformer({"positions": kind}, corpus)
        same = corpus == "reverse" and kind == "sinusoidal"
        run = whole if same else lab.train(f"{corpus}-positions-{kind}", recipe)
        numbers[f"{corpus}_{kind}"] = float(evaluate(run)["exact_match"])
    for kind in kinds:
        name = f"phrases-positions-{kind}"
        recipe = phrases_recipe("fr", TRANSFORMER_MODEL | {"positions": kind}, 3e-3)
        if lab.full:
            name = "multi30k-late"
            recipe = captions_recipe(lab.full)
            if kind == "none":
                name = "multi30k-no-positions"
                recipe["model"] = recipe["model"] | {"positions": "none"}
        numbers[f"translation_{kind}"] = float(evaluate(lab.train(name, recipe))["chrf"])
    rows = {
        task: [task, *(numbers[f"{task}_{kind}"] for kind in kinds)]
        for task in (*corpora, "translation")
    }
    columns = ["with positions", "without"]
    return numbers | {
        "order": Table(["task", *columns], [rows[corpus] for corpus in corpora], formats=[".2f"]),
        "translation": Table(["chrF", *columns], [rows["translation"]], formats=[".1f"]),
    }


def _without_mask(lab: Lab, whole: Run) -> Findings:
    """Train with and without the mask: the loss, and the output."""
    if lab.full:
        recipe = captions_recipe(lab.full)
        whole = lab.train("multi30k-late", recipe)
    else:
        recipe = reverse_transformer()
    cheat = lab.train("look-ahead", recipe | {"model": recipe["model"] | {"look_ahead": True}})
    rows = []
    numbers = Findings()
    for name, title, run in (("masked", "with the mask", whole), ("look_ahead", "without", cheat)):
        loss = last_loss(run, "train")
        metrics = evaluate(run)
        numbers |= {
            f"{name}_loss": loss,
            f"{name}_exact": metrics["exact_match"],
            f"{name}_bleu": metrics["bleu"],
        }
        rows.append([title, loss, metrics["exact_match"], metrics["bleu"]])
    columns = ["look-ahead mask", "training loss", "exact match", "BLEU"]
    return {"look_ahead": Table(columns, rows, formats=["", ".3f", ".2f", ".1f"]), **numbers}


def _depth(lab: Lab) -> Findings:
    """Measure the validation loss of encoders of several depths after the same short training; nan
    if it diverged."""
    losses: dict[str, list[float]] = {name: [] for name in BLOCK_VARIANTS}
    depths = COMPARED_DEPTHS[:1] if lab.quick else COMPARED_DEPTHS
    for depth in depths:
        for name, changes in BLOCK_VARIANTS.items():
            recipe = reverse_recipe(
                NARROW_MODEL | {"encoder_layers": depth} | changes, 200, 3e-3, warmup=60
            )
            try:
                run = lab.train(
                    f"depth-{depth}-{name.replace(', ', '-').replace(' ', '-')}", recipe
                )
                losses[name].append(last_loss(run, "validation"))
            except RegardError as error:
                if "NaN or infinite" not in str(error):
                    raise
                losses[name].append(math.nan)
    x = [float(depth) for depth in depths]
    ticks = [(float(depth), str(depth)) for depth in depths]
    lines = [Series(name, x, values) for name, values in losses.items()]
    curves = Curves(
        lines, "encoder layers", "validation loss after 200 steps", from_zero=True, x_ticks=ticks
    )
    rows = [
        [name, *("∞" if math.isnan(loss) else loss for loss in values)]
        for name, values in losses.items()
    ]
    without_norm = losses["without norm"]
    return {
        "depth": curves,
        "depth_table": Table(["encoder layers", *map(str, depths)], rows, formats=[".2f"]),
        "deep_whole": losses["whole, norm first"][-1],
        "deep_post": losses["whole, norm last"][-1],
        "deep_without_residual": losses["without residual"][-1],
        "diverged": math.isnan(without_norm[-1]),
        "deep_without_norm": 0.0 if math.isnan(without_norm[-1]) else without_norm[-1],
        "shallow_without_norm": without_norm[0],
        "shallow_whole": losses["whole, norm first"][0],
        "chance": math.log(11),
    }


def _normed() -> Findings:
    """Show how much the normalised states of one sentence change with the sentences beside it:
    BatchNorm and LayerNorm."""
    torch.manual_seed(1)
    width = 32
    own = 4
    mine_LD = torch.randn(own, width)
    layer = nn.LayerNorm(width).requires_grad_(False)
    shares = (0.0, 0.25, 0.5, 0.75)
    changed: dict[str, list[float]] = {"BatchNorm": [], "LayerNorm": []}
    alone = {"BatchNorm": _batch_norm(mine_LD[None])[0], "LayerNorm": layer(mine_LD)}
    for share in shares:  # seven longer sentences; of my row and theirs, this share is padding
        length = round(own / (1 - share))
        batch_BLD = torch.zeros(8, length, width)
        batch_BLD[1:] = 2 * torch.randn(7, length, width) + 1
        batch_BLD[0, :own] = mine_LD
        for name, normed in (
            ("BatchNorm", _batch_norm(batch_BLD)[0, :own]),
            ("LayerNorm", layer(batch_BLD)[0, :own]),
        ):
            changed[name].append(float((normed - alone[name]).abs().mean()))
    rows = [*zip([f"{share:.0%}" for share in shares], *changed.values(), strict=True)]
    return {
        "norms": Table(["padding in its row", *changed], rows, formats=[".3f"]),
        "batch_norm_change": max(changed["BatchNorm"]),
        "layer_norm_change": max(changed["LayerNorm"]),
    }


class BatchNormOfTokens(nn.BatchNorm1d):
    """Batch normalisation in the place of a LayerNorm: over sentences and positions, padding
    included."""

    def forward(self, x_BLD: Tensor) -> Tensor:
        return super().forward(x_BLD.transpose(1, 2)).transpose(1, 2)


def _norms_trained(lab: Lab) -> Findings:
    """Train one small Transformer with LayerNorm, with BatchNorm in its places, and without norms, on
    the same batches; the loss of unseen sequences in batches of 64, and one at a time."""
    pairs = list(generate("reverse", lab.few(6400, 640), lab.seed, "train"))
    tests = list(generate("reverse", 192, lab.seed, "test"))
    steps = max(3, round(NORM_STEPS * lab.share))
    rows = []
    numbers = Findings()
    for name, norm in (("LayerNorm", "post"), ("BatchNorm", "post"), ("none", "none")):
        torch.manual_seed(lab.seed)
        config = TransformerConfig(**TRANSFORMER_MODEL | {"norm": norm, "dropout": 0.0})
        model: Any = MODELS[config.kind].build(config, len(SYMBOLS) + 4, len(SYMBOLS) + 4)
        if name == "BatchNorm":
            _replace_norms(model)
        objective = TokenCrossEntropy(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        random = Random(lab.seed)
        for _ in range(steps):
            optimizer.zero_grad()
            batch = _letters(random.sample(pairs, 64))
            (objective(batch)[0] / _predicted(batch)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        model.eval()
        together = _mean_loss(objective, [tests[at : at + 64] for at in range(0, 192, 64)])
        alone = _mean_loss(objective, [[pair] for pair in tests])
        model.train()  # BatchNorm then uses the statistics of the batch, as in training
        own_batch = _mean_loss(objective, [tests[at : at + 64] for at in range(0, 192, 64)])
        rows.append([name, own_batch, together, alone])
        key = name.lower().replace("norm", "_norm")
        numbers |= {f"{key}_as_trained": own_batch, f"{key}_loss": together}
    columns = ["norm", "statistics of the batch", "as it is used", "one at a time"]
    return {"norms_trained": Table(columns, rows, formats=["", ".2f"]), **numbers}


def _replace_norms(module: nn.Module) -> None:
    for name, part in module.named_children():
        if isinstance(part, nn.LayerNorm):
            setattr(module, name, BatchNormOfTokens(part.normalized_shape[0]))
        else:
            _replace_norms(part)


def _letters(pairs: Sequence[tuple[str, ...]]) -> Batch:
    """Letters as numbers from 4 on; 1 begins a text and 2 ends it."""
    sources, targets = zip(*pairs, strict=True)
    read = [[*(SYMBOLS.index(letter) + 4 for letter in text.split()), 2] for text in sources]
    written = [[1, *(SYMBOLS.index(letter) + 4 for letter in text.split()), 2] for text in targets]
    return Batch(padded(read, 0), padded(written, 0))


def _mean_loss(objective: TokenCrossEntropy, batches: Sequence[Sequence[tuple[str, ...]]]) -> float:
    """The mean loss of a token."""
    with torch.no_grad():
        read = [_letters(pairs) for pairs in batches]
        total = sum(float(objective(batch)[1]) for batch in read)
    return total / sum(map(_predicted, read))


def _predicted(batch: Batch) -> int:
    """The number of tokens that are predicted: all of the target but the first."""
    return int((batch.target.lengths_B - 1).sum())


def _batch_norm(x_BLD: Tensor) -> Tensor:
    """Batch normalisation over sentences and positions, padding included, like nn.BatchNorm1d in
    training."""
    normed_BDL: Tensor = nn.BatchNorm1d(x_BLD.shape[-1])(x_BLD.transpose(1, 2))
    return normed_BDL.transpose(1, 2).detach()


def experiment_alone(lab: Lab) -> Findings:
    """Measure the seconds of a training step of an LSTM and of a Transformer of similar size, for
    16 sentences of each length."""
    configs = {
        "LSTM": RNNConfig(cell="lstm", embedding=128, hidden=128, layers=2),
        "Transformer": TransformerConfig(
            width=128, heads=4, encoder_layers=2, decoder_layers=2, feed_forward=256
        ),
    }
    lengths = TIMED_LENGTHS[:2] if lab.quick else TIMED_LENGTHS
    devices = ["cpu", *(["cuda"] if lab.full and torch.cuda.is_available() else [])]
    series = []
    rows = []
    numbers = Findings(cuda="cuda" in devices)
    for device in devices:
        taken = {
            name: [
                _step_seconds(MODELS[config.kind].build(config, 100, 100).to(device), length)
                for length in lengths
            ]
            for name, config in configs.items()
        }
        ratios = [taken["LSTM"][n] / taken["Transformer"][n] for n in range(len(lengths))]
        x = [math.log2(length) for length in lengths]
        series += [
            Series(f"{name}, {device}", x, [1000 * s for s in values])
            for name, values in taken.items()
        ]
        rows += [
            [device, length, *(1000 * taken[name][n] for name in configs), ratios[n]]
            for n, length in enumerate(lengths)
        ]
        numbers |= {
            f"short_ratio_{device}": ratios[0],
            f"long_ratio_{device}": ratios[-1],
            f"crossover_{device}": crossover(lengths, ratios),
        }
    curves = Curves(
        series,
        "length in tokens",
        "milliseconds of a step",
        from_zero=True,
        x_ticks=[(math.log2(length), str(length)) for length in lengths],
    )
    columns = ["device", "length", "LSTM, ms", "Transformer, ms", "LSTM / Transformer"]
    return {
        "times": curves,
        "times_table": Table(columns, rows, formats=["", "", ".1f", ".1f", ".2f"]),
        **numbers,
    }


def crossover(lengths: Sequence[int], ratios: Sequence[float]) -> int:
    """The length at which a ratio passes 1, by a straight line over the logarithm of the length; 0 if
    it does not."""
    for n in range(1, len(lengths)):
        before, after = ratios[n - 1] - 1, ratios[n] - 1
        if before * after < 0:
            low, high = math.log(lengths[n - 1]), math.log(lengths[n])
            return round(math.exp(low + (high - low) * before / (before - after)))
    return 0


@computing_with(None)
def _step_seconds(model: nn.Module, length: int) -> float:
    """The least time of five forward and backward passes, computed as in training: the one that
    other programs disturbed least."""
    device = next(model.parameters()).device
    side = Padded.of(torch.randint(4, 100, (16, length)), torch.full((16,), length)).to(device)
    objective = TokenCrossEntropy(model)  # type: ignore[arg-type]
    batch = Batch(side, side)
    seconds = []
    for _ in range(6):
        started = time.perf_counter()
        objective(batch)[0].backward()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])
