"""`explain`: where the model looked while it wrote, and what else it might have written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import torch
from torch import Tensor

from regard.data.batch import Batch, Tokens
from regard.data.dataset import Encoded
from regard.data.images import Picture, images_of
from regard.data.tokenizers import Tokenizer
from regard.errors import DecodeError
from regard.layers.positions import Positions
from regard.models.base import Generator, device_of
from regard.runs import Run
from regard.runs.verbs import device_named, opened, opened_pairs, with_search
from regard.search.scoring import log_probabilities
from regard.tasks.inputs import encode_target
from regard.tasks.story_answering import StoryAnswering
from regard.views.capture import Observed, observe
from regard.views.explanation import Attention, Candidate, Explanation, Kind, Step
from regard.views.heatmap import Numbers
from regard.views.hops import Hops, explain_hops
from regard.views.words import word_starts

CANDIDATES = 5
"""How many of the likeliest tokens are kept at each step."""
POSITIONS = 50
"""How many places are drawn of the position encodings."""


def explain(
    run: str | Path | Run,
    text: str,
    *,
    target: str | None = None,
    beam: int | None = None,
    padding: int = 0,
    checkpoint: str = "best",
    device: str = "auto",
) -> Explanation | Hops:
    """Every attention for each token of the target: the one given, or the one the model writes with a beam.

    `padding` puts so many `<pad>` behind both texts, as a longer neighbour in a batch would.
    """
    if padding < 0:
        raise DecodeError(f"{padding} padding tokens cannot be", where="--padding", hint="0 or more")
    run = opened(run)
    if run.task is StoryAnswering:
        return explain_hops(run, text, checkpoint=checkpoint, device=device)
    run = opened_pairs(run, "explain")
    model = run.load_model(checkpoint, device_named(device))
    vocabulary = run.tokenizers["target"]
    [encoded] = run.task.encode(model, run.tokenizers, [text], ["input"])
    output, target_ids = _written(run, model, text, target, beam)
    read, source_pieces, source_starts = _source(run, encoded, padding)
    batch = Batch(read, _tokens([vocabulary.begin, *target_ids], padding, vocabulary.pad)).to(device_of(model))
    written_ids = [*target_ids, *[vocabulary.pad] * padding]
    sides = {"target": written_ids, "inputs": [vocabulary.begin, *written_ids[:-1]]}
    observed = observe(model, batch)
    pieces = {"source": source_pieces, **{side: tuple(vocabulary.pieces(ids)) for side, ids in sides.items()}}
    return Explanation(
        input=text,
        output=output,
        model_kind=run.recipe.model.kind,
        source=pieces["source"],
        target=pieces["target"],
        attentions=_attentions(model, observed, pieces),
        steps=_steps(model, observed.hidden_TD, vocabulary, target_ids),
        positions=_positions(model),
        residual=getattr(run.recipe.model, "residual", True),
        starts={"source": source_starts, **{side: word_starts(vocabulary, ids) for side, ids in sides.items()}},
        model=model,
        batch=batch,
        picture=encoded if isinstance(encoded, Picture) else None,
    )


def _source(run: Run, encoded: Encoded, padding: int) -> tuple[Tokens, tuple[str, ...], tuple[int, ...]]:
    """The source as the model reads it, its pieces, and where words begin among them; regions are words."""
    if isinstance(encoded, Picture):
        names = tuple(encoded.names())
        return images_of([encoded]), names, tuple(range(len(names)))
    tokenizer = run.tokenizers["source"]
    ids = [*encoded, tokenizer.end]
    shown = [*ids, *[tokenizer.pad] * padding]
    return _tokens(ids, padding, tokenizer.pad), tuple(tokenizer.pieces(shown)), word_starts(tokenizer, shown)


def _written(run: Run, model: Generator, text: str, target: str | None, beam: int | None) -> tuple[str, list[int]]:
    """The target that was given, or the best that the search finds, with its tokens."""
    vocabulary = run.tokenizers["target"]
    if target is not None:
        return target, encode_target(vocabulary, target)
    search = with_search(run.recipe, beam, 1, None, []).search
    best = run.task.predict(model, run.tokenizers, [text], search)[0].nbest[0]
    return best.output, vocabulary.token_ids(best.tokens)


def _tokens(ids: Sequence[int], padding: int, pad: int) -> Tokens:
    return Tokens.of(torch.tensor([[*ids, *[pad] * padding]]), torch.tensor([len(ids)]))


def _attentions(model: Generator, observed: Observed, pieces: dict[str, tuple[str, ...]]) -> dict[str, Attention]:
    found = {}
    for name, weights_HQK in observed.weights_HQK.items():
        kind: Kind = "encoder" if name.startswith("encoder") else "decoder"
        looks = looked_at = "source" if kind == "encoder" else "inputs"
        if fnmatch(name, model.alignment):
            kind, looks, looked_at = "alignment", "target", "source"
        number = re.search(r"\.(\d+)\.", name)
        found[name] = Attention(
            name,
            kind,
            layer=int(number[1]) + 1 if number else 1,
            queries=pieces[looks][: weights_HQK.shape[1]],  # a recurrent decoder takes no step for padding
            keys=pieces[looked_at],
            weights=weights_HQK.float().cpu().numpy(),
            visible=observed.visible_QK[name].cpu().numpy(),
        )
    return found


@torch.inference_mode()
def _steps(model: Generator, hidden_TD: Tensor, vocabulary: Tokenizer, target_ids: Sequence[int]) -> tuple[Step, ...]:
    """The model's own probabilities: what the search may not write is among them."""
    p_TV = log_probabilities(model.readout(hidden_TD[: len(target_ids)])).exp().cpu()
    written_T1 = torch.tensor(target_ids)[:, None]
    p_T1 = p_TV.gather(1, written_T1)
    ranks = ((p_TV > p_T1).sum(1) + 1).tolist()
    likeliest = p_TV.topk(min(CANDIDATES, p_TV.shape[1]))
    candidates = zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
    pieces = vocabulary.pieces(target_ids)
    return tuple(
        Step(piece, p, rank, tuple(map(Candidate, _pieces_alone(vocabulary, ids), probabilities)))
        for piece, p, rank, (ids, probabilities) in zip(pieces, p_T1[:, 0].tolist(), ranks, candidates, strict=True)
    )


def _pieces_alone(vocabulary: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Each token on its own: side by side the bytes of alternatives would be read as one character."""
    return [vocabulary.pieces([token])[0] for token in ids]


@torch.inference_mode()
def _positions(model: Generator) -> Numbers | None:
    """What the model adds to the tokens at the first places."""
    for module in model.modules():
        if isinstance(module, Positions) and module.kind != "none":
            places = min(POSITIONS, module.longest) if module.kind == "learned" else POSITIONS
            nothing_1LD = torch.zeros(1, places, module.width, device=device_of(model))
            encoding_LD: Numbers = module(nothing_1LD)[0].float().cpu().numpy()
            return encoding_LD
    return None
