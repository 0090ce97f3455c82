"""`explain`: where the model looked while it wrote, and what else it might have written."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import torch

from regard.data.batch import Batch, Tokens
from regard.data.images import Picture, images_of
from regard.errors import DecodeError
from regard.models.base import Generator, device_of
from regard.runs import Run
from regard.runs.settings import device_named, opened, with_search
from regard.tasks.inputs import Encoded, Inputs, encode_target, readable, refuse
from regard.tasks.story_answering import StoryAnswering
from regard.tasks.text_to_text import TextToText
from regard.views.capture import Observed, observe
from regard.views.explain_parts import attention_of, positions_of, steps_of
from regard.views.explain_text import explain_text
from regard.views.explanation import Explanation
from regard.views.hops import Hops, explain_hops
from regard.views.seen import Attention, Kind
from regard.views.wishes import refuse_for_stories
from regard.views.words import word_starts


def explain(
    run: str | Path | Run,
    text: str,
    *,
    target: str | None = None,
    beam: int | None = None,
    padding: int = 0,
    occlusion: bool = False,
    question: int | None = None,
    places: Sequence[str] | None = None,
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    device: str = "auto",
) -> Explanation | Hops:
    """Every attention for each token of the target: the one given, or the one the model writes with a beam.

    A model of one text is explained on that text, and a language model on how it goes on: the target, or, where a beam
    is given, what it writes.
    `padding` puts so many `<pad>` behind both texts, as a longer neighbour in a batch would. `places` name the lines of
    a story in messages. `occlusion` works out what the answer of a classifier, tagger, ... loses without each word,
    also where there is attention to look at. `question` is the number, from 1, of one of several about a story; the
    last is meant without it.
    """
    if padding < 0:
        raise DecodeError(f"{padding} padding tokens cannot be", where="--padding", hint="0 or more")
    if target is not None and beam is not None:
        raise DecodeError("nothing is searched for where --target is given", where="--beam", hint="leave it out")
    run = opened(run)
    run = run.under(with_search(run.recipe, None, None, None, overrides))
    if isinstance(run.task, StoryAnswering):
        refuse_for_stories({"--target": target, "--beam": beam})
        return explain_hops(run, text, question=question, places=places, checkpoint=checkpoint, device=device)
    if question is not None:
        what = f"a run of {run.recipe.task} reads no story"
        raise DecodeError(what, where="--question", hint="runs of story_answering do")
    if not isinstance(run.task, TextToText):
        typed = run.task.typed_input(text, "input 1")
        refuse([typed.fault])
        return explain_text(
            run, typed.text, target=target, beam=beam, padding=padding, occlusion=occlusion, checkpoint=checkpoint,
            device=device,
        )  # fmt: skip
    model = run.load_model(checkpoint, device_named(device))
    vocabulary = run.tokenizers["target"]
    sources: list[Encoded] = readable(run.task.encode_sources([text], ["input"]))
    encoded = sources[0]
    output, target_ids = _written(run, model, text, target, beam)
    read, source_pieces, source_starts = _source(run, encoded, padding)
    batch = Batch(read, _tokens([vocabulary.begin, *target_ids], padding, vocabulary.pad)).to(device_of(model))
    written_ids = [*target_ids, *[vocabulary.pad] * padding]
    sides = {"target": written_ids, "inputs": [vocabulary.begin, *written_ids[:-1]]}
    observed = observe(model, batch)
    with torch.inference_mode():
        logits_TV = model.readout(observed.hidden_TD[: len(target_ids)])
    pieces = {"source": source_pieces, **{side: tuple(vocabulary.pieces(ids)) for side, ids in sides.items()}}
    return Explanation(
        input=text,
        output=output,
        model_kind=run.recipe.model.kind,
        source=pieces["source"],
        target=pieces["target"],
        attentions=_attentions(model, observed, pieces),
        steps=steps_of(logits_TV, vocabulary, target_ids),
        positions=positions_of(model),
        residual=getattr(run.recipe.model, "residual", True),
        starts={"source": source_starts, **{side: word_starts(vocabulary, ids) for side, ids in sides.items()}},
        model=model,
        batch=batch,
        read=lambda: model(batch).hidden_BTD,
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
    best = run.task.with_search(search).predict(model, Inputs.of([text]))[0].nbest[0]
    return best.output, vocabulary.token_ids(best.tokens)


def _tokens(ids: Sequence[int], padding: int, pad: int) -> Tokens:
    return Tokens.of(torch.tensor([[*ids, *[pad] * padding]]), torch.tensor([len(ids)]))


def _attentions(model: Generator, observed: Observed, pieces: dict[str, tuple[str, ...]]) -> dict[str, Attention]:
    found = {}
    for name in observed.weights_HQK:
        kind: Kind = "encoder" if name.startswith("encoder") else "decoder"
        looks = looked_at = "source" if kind == "encoder" else "inputs"
        if fnmatch(name, model.alignment):
            kind, looks, looked_at = "alignment", "target", "source"
        found[name] = attention_of(name, kind, observed, pieces[looks], pieces[looked_at])
    return found
