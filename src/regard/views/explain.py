"""`explain`: where the model looked while it wrote or read a text, and which other tokens it might have written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Batch, MaskedBatch, Spelling, TextBatch, Tokens
from regard.data.framing import Framed, Framing
from regard.data.images import Picture, images_of
from regard.data.stories import questions_in
from regard.errors import DecodeError
from regard.models.base import Generator, device_of
from regard.models.headed import LayerMix
from regard.runs import Run
from regard.runs.settings import device_named, opened, with_search
from regard.tasks.masked_language_modeling import GAP, encode_gaps, filled, with_gaps
from regard.tasks.task import Inputs, encode_each, encode_target, not_longer, readable
from regard.text.normalise import fold_white_space
from regard.text.tokenizers import Tokenizer
from regard.views.explanation import Explanation, Mix, Options, View
from regard.views.leave_one_out import leave_one_out
from regard.views.recording import (
    Attention,
    Candidate,
    Kind,
    Recorded,
    Step,
    attention_of,
    module_calls,
    positions_of,
    record,
    steps_of,
    word_starts,
)
from regard.views.story import Story

MASK_PADDING = 3
"""Padding tokens for a view of the masks, which otherwise would have nothing to hide."""


def explain(
    run: str | Path | Run,
    text: str,
    *,
    target: str | None = None,
    beam: int | None = None,
    view: View | None = None,
    padding: int | None = None,
    question: int | None = None,
    places: Sequence[str] | None = None,
    overrides: Sequence[str] = (),
    checkpoint: str = "best",
    device: str = "auto",
) -> Explanation:
    """Every attention for each token of the target: the one given, or the one that beam search finds.

    A model of one text is explained on that text, and a language model on its continuation: the target, or, where a
    beam is given, what it writes. A question about a story is explained by its hops over the sentences.
    `view` is what a report shows first; "occlusion" computes how much an answer depends on each word. `padding` adds
    so many `<pad>` to both texts, as a longer neighbour in a batch would. `question` is the number, from 1, of one of
    several about a story (default: the last), and `places` name the story's lines in messages.
    """
    if padding is not None and padding < 0:
        raise DecodeError(f"{padding} padding tokens are not possible", where="--padding", hint="0 or more")
    if target is not None and beam is not None:
        raise DecodeError("with --target there is no search", where="--beam", hint="leave it out")
    run = opened(run)
    run = run.under(with_search(run.recipe, None, None, None, overrides))
    request = _Request(
        run, text, target, beam, view, padding=(MASK_PADDING if view == "masks" else 0) if padding is None else padding,
        checkpoint=checkpoint, device=device_named(device),
    )  # fmt: skip
    if run.recipe.task == "story_answering":
        return _explain_story(request, question, places)
    if question is not None:
        what = f"a run of {run.recipe.task} reads no story"
        raise DecodeError(what, where="--question", hint="runs of story_answering do")
    return _explain_pair(request) if run.task.writes == "target" else _explain_text(request)


@dataclass(frozen=True)
class _Request:
    """What to explain."""

    run: Run
    text: str
    target: str | None
    beam: int | None
    view: View | None
    padding: int
    checkpoint: str
    device: torch.device

    def model(self) -> Any:
        return self.run.load_model(self.checkpoint, self.device)

    def refuse_writing(self) -> None:
        """Refuse the options of a run that writes, for one that does not."""
        for option, value in {"--target": self.target, "--beam": self.beam}.items():
            if value is not None:
                what = f"a run of the task {self.run.task.name} writes no text"
                raise DecodeError(what, where=option, hint="leave it out")


# ------------------------------------------------------------------------------------------------ source and target


def _explain_pair(request: _Request) -> Explanation:
    run, padding = request.run, request.padding
    model: Generator = request.model()
    vocabulary = run.tokenizers["target"]
    encoded = readable(run.task.encode_sources([request.text], ["input"]))[0]
    output, target_ids = _target(request, model)
    source, source_pieces, source_starts = _source(run, encoded, padding)
    batch = Batch(source, _tokens([vocabulary.begin, *target_ids], padding, vocabulary.pad)).to(device_of(model))
    written = [*target_ids, *[vocabulary.pad] * padding]
    sides = {"target": written, "inputs": [vocabulary.begin, *written[:-1]]}
    recorded = record(model, lambda: model(batch).hidden_BTD)
    with torch.inference_mode():
        logits_TV = model.readout(recorded.hidden_TD[: len(target_ids)])
    pieces = {"source": source_pieces, **{side: tuple(vocabulary.pieces(ids)) for side, ids in sides.items()}}
    return Explanation(
        input=request.text,
        output=output,
        model_kind=run.recipe.model.kind,
        attentions=_attentions(model, recorded, pieces),
        steps=steps_of(logits_TV, vocabulary, target_ids),
        model=model,
        batch=batch,
        forward=lambda: model(batch).hidden_BTD,
        source=pieces["source"],
        target=pieces["target"],
        starts={"source": source_starts, **{side: word_starts(vocabulary, ids) for side, ids in sides.items()}},
        positions=positions_of(model),
        residual=getattr(run.recipe.model, "residual", True),
        picture=encoded if isinstance(encoded, Picture) else None,
        options=Options(request.view),
    )


def _source(run: Run, encoded: Any, padding: int) -> tuple[Tokens, tuple[str, ...], tuple[int, ...]]:
    """The source as the model reads it, its tokens, and where words begin; each region of an image is a word."""
    if isinstance(encoded, Picture):
        names = tuple(encoded.names())
        return images_of([encoded]), names, tuple(range(len(names)))
    tokenizer = run.tokenizers["source"]
    ids = [*encoded, tokenizer.end]
    padded = [*ids, *[tokenizer.pad] * padding]
    return _tokens(ids, padding, tokenizer.pad), tuple(tokenizer.pieces(padded)), word_starts(tokenizer, padded)


def _target(request: _Request, model: Generator) -> tuple[str, list[int]]:
    """The target that was given, or the best that the search finds, with its tokens."""
    run = request.run
    vocabulary = run.tokenizers["target"]
    if request.target is not None:
        return request.target, encode_target(vocabulary, request.target)
    search = with_search(run.recipe, request.beam, 1, None, []).search
    best = run.task.with_search(search).predict(model, Inputs.of([request.text]))[0].nbest[0]
    return best.output, vocabulary.token_ids(best.tokens)


def _tokens(ids: Sequence[int], padding: int, pad: int) -> Tokens:
    return Tokens.of(torch.tensor([[*ids, *[pad] * padding]]), torch.tensor([len(ids)]))


def _attentions(model: Generator, recorded: Recorded, pieces: Mapping[str, tuple[str, ...]]) -> dict[str, Attention]:
    attentions = {}
    for name in recorded.weights_HQK:
        kind: Kind = "encoder" if name.startswith("encoder") else "decoder"
        queries = keys = pieces["source" if kind == "encoder" else "inputs"]
        if fnmatch(name, model.alignment):
            kind, queries, keys = "alignment", pieces["target"], pieces["source"]
        attentions[name] = attention_of(name, kind, recorded, queries, keys)
    return attentions


# ---------------------------------------------------------------------------------------------------------- one text


Reading = tuple[Framed, str, Mapping[str, Any]]
"""A text as a model reads it, the prediction for it where there is one, and the rest of the prediction."""


def _explain_text(request: _Request) -> Explanation:
    """Where each token of a text looks; the tokens that a language model expects next, or a masked one in the gaps."""
    run = request.run
    model, tokenizer, task = request.model(), run.tokenizers["text"], run.recipe.task
    headed = task not in ("language_modeling", "masked_language_modeling")
    if run.task.writes is None or run.recipe.model.kind == "elmo":
        request.refuse_writing()
    typed = run.task.typed_input(request.text, "input 1")
    if typed.fault is not None:
        raise DecodeError(problems=[typed.fault])
    text = typed.text
    if headed:
        row, output, prediction = _read_headed(run, model, text)
    elif run.task.writes is None:
        row, output, prediction = _read_masked(model, tokenizer, text)
    else:
        row, output, prediction = Framed(_read_on(request, model), []), "", {}
    ids, length = [*row.ids, *[tokenizer.pad] * request.padding], len(row.ids)
    kind: Kind = "encoder" if run.recipe.model.kind == "bert" else "decoder"
    batch = _text_batch(ids, row.segments, length, bert=kind == "encoder").to(device_of(model))
    recorded = record(model, lambda: _states(model, batch, headed=headed))
    pieces, starts = tuple(tokenizer.pieces(ids)), word_starts(tokenizer, ids)
    steps = () if headed else _expected(model, recorded.hidden_TD, tokenizer, ids[:length], masked=kind == "encoder")
    mix = _mix(model, run.recipe.model.kind, headed=headed)
    leaves_out = headed and (request.view == "occlusion" or (not recorded.weights_HQK and mix is None))
    return Explanation(
        input=text,
        output=output,
        model_kind=run.recipe.model.kind,
        attentions={name: attention_of(name, kind, recorded, pieces, pieces) for name in recorded.weights_HQK},
        steps=steps,
        model=model,
        batch=batch,
        forward=lambda: _states(model, batch, headed=headed),
        source=pieces if kind == "encoder" else (),
        target=() if kind == "encoder" else tuple(step.token for step in steps),
        starts={"source": starts if kind == "encoder" else (), "inputs": starts, "target": _starts_of(steps, starts)},
        whole=0 if kind == "encoder" else length - 1,
        positions=positions_of(model),
        prediction=prediction,
        mix=mix,
        occlusion=leave_one_out(run, model, text) if leaves_out else None,
        options=Options(request.view),
    )


def _read_headed(run: Run, model: Any, text: str) -> Reading:
    """What the model reads for a task, the first row where there are several (windows, choices), and its answer."""
    run.task.encode_inputs(model, Inputs([text], ["input"])).readable()
    with module_calls(model, [""]) as calls:
        [predicted] = run.task.predict(model, Inputs([text], ["input"]))
    batch, prediction = calls[""][0].inputs[0], predicted.to_json()
    ids = batch.text.row(0)
    row = Framed(ids, batch.segments_BL[0, : len(ids)].tolist())
    answer = prediction["output"]
    output = f"{answer:.4f}" if isinstance(answer, float) else str(answer)
    others = {name: value for name, value in prediction.items() if name not in ("input", "output")}
    return row, output, others


def _read_masked(model: Any, tokenizer: Tokenizer, text: str) -> Reading:
    """[CLS] text [SEP], or two texts with a tab between them; the output has the gaps filled."""
    first, second = (fold_white_space(part) for part in text.partition("\t")[::2])
    framing = Framing(tokenizer, segments=True, longest=model.longest)
    row = framing.frame(with_gaps(tokenizer, first), with_gaps(tokenizer, second) if second else None)
    readable(not_longer([row.ids], model.longest, ["input"]))
    if GAP not in text or model.output is None or second:
        return row, "", {}
    [best] = filled(model, tokenizer, [text], readable(encode_gaps(model, tokenizer, [text], ["input"])), 1)
    return row, best.output, {}


def _read_on(request: _Request, model: Any) -> list[int]:
    """`</s>`, the text, and its continuation."""
    run, tokenizer = request.run, request.run.tokenizers["text"]
    text = request.text if request.target is None else f"{request.text} {request.target}"
    if not text.strip():
        raise DecodeError("there is no text", where="input")
    if run.recipe.model.kind == "elmo":
        [words] = readable(encode_each(tokenizer, [fold_white_space(text)], ["input"], letters=model.letters))
        return [tokenizer.end, *words]
    prompt: list[int]
    [prompt] = readable(run.task.encode_prompts(model, [text], ["input"]))
    if request.beam is None:
        return prompt
    search = with_search(run.recipe, request.beam, 1, None, ["search.sample=false"]).search
    best = run.task.with_search(search).predict(model, Inputs([text], ["input"]))[0].nbest[0]
    written = tokenizer.token_ids(best.tokens)
    return [*prompt, *(written[:-1] if written[-1:] == [tokenizer.end] else written)]


def _text_batch(ids: Sequence[int], segments: Sequence[int], length: int, *, bert: bool) -> TextBatch | MaskedBatch:
    text = Tokens.of(torch.tensor([ids]), torch.tensor([length]), Spelling.of_rows([ids]))
    if not bert:
        return TextBatch(text)
    segments_BL, none = torch.zeros_like(text.ids_BL), torch.zeros(0, dtype=torch.long)
    segments_BL[0, : len(segments)] = torch.tensor(segments)
    return MaskedBatch(text, segments_BL, none, none)


def _states(model: Any, batch: Any, *, headed: bool) -> Tensor:
    """The hidden states [1, L, D] that the model's readout or head reads."""
    kind = None if headed else model.config.kind
    states_BLD: Tensor
    if kind == "elmo":  # its readout reads the forward direction
        states_BLD = model(batch).hidden_BTD
    elif kind == "lstm_lm" and model.config.objective == "autoencoder":
        _, memory = model.read(batch.text)  # from which it then writes the text
        states_BLD = model.read(batch.text, memory)[0][-1]
    else:
        states_BLD = model.states(batch)
    return states_BLD


@torch.inference_mode()
def _expected(
    model: Any, hidden_LD: Tensor, tokenizer: Tokenizer, ids: Sequence[int], *, masked: bool
) -> tuple[Step, ...]:
    """The tokens that were expected: at each next position, the end included; by a masked model, in each gap."""
    if not masked:
        return steps_of(model.readout(hidden_LD), tokenizer, [*ids[1:], tokenizer.end])
    gaps = [position for position, token in enumerate(ids) if token == tokenizer.mask]
    if not gaps or model.output is None:
        return ()
    logits_PV = model.readout(hidden_LD[gaps])
    special = torch.tensor(sorted(tokenizer.special), device=logits_PV.device)
    return steps_of(logits_PV, tokenizer, logits_PV.index_fill(1, special, -torch.inf).argmax(-1).tolist())


def _starts_of(steps: Sequence[Step], starts: Sequence[int]) -> tuple[int, ...]:
    """Where the predicted words begin: one position before they are read; the end is a word of its own."""
    return tuple(sorted({0, *(start - 1 for start in starts if start > 0), len(steps) - 1})) if steps else ()


@torch.inference_mode()
def _mix(model: Any, kind: str, *, headed: bool) -> Mix | None:
    """The shares of the layers, where they are mixed; those of a bare ELMo are even: only a task can learn them."""
    mix = model.mix if headed else LayerMix(model.config.layers + 1) if kind == "elmo" else None
    if mix is None:
        return None
    names = ("embeddings", *(f"layer {number}" for number in range(1, len(mix.s))))
    return Mix(names, tuple(mix.weights_N.tolist()), float(mix.gamma), learned=headed)


# ------------------------------------------------------------------------------------------------------------ stories


def _explain_story(request: _Request, question: int | None, places: Sequence[str] | None) -> Explanation:
    """A question about a story, answered, and where each hop of the model looked; `places` name its lines."""
    request.refuse_writing()
    run, lines = request.run, request.text.split("\n")
    asked = questions_in(list(zip(lines, places or ["input"] * len(lines), strict=True)))
    number = len(asked) if question is None else question
    if not 1 <= number <= len(asked):
        raise DecodeError(f"there is no question {number}", where="--question", hint=f"allowed: 1 to {len(asked)}")
    typed = asked[number - 1]
    model = request.model()
    run.task.encode_inputs(model, Inputs([typed.text], [typed.place])).readable()
    examples = run.task.example_of(typed)
    first = np.zeros(1, dtype=np.int64)
    batch = run.task.batch(examples, first).to(device_of(model))
    with torch.inference_mode():
        p_NBIS = model(batch).p_NBIS
    kept, [answers] = int(examples.columns["sizes"].lengths[0]), run.task.likeliest_answers(model, examples, first)
    story = Story(
        question=typed.question,
        sentences=typed.story[-kept:],
        forgotten=len(typed.story) - kept,
        weights_NS=p_NBIS[:, 0, model.winner].float().cpu().numpy(),
        answer=typed.answer,
        facts=run.task.kept_facts(examples, 0),
        numbers=typed.numbers[-kept:],
        asked=number,
        questions=len(asked),
    )
    best, *_ = candidates = tuple(map(Candidate, answers.keys(), answers.values()))
    return Explanation(
        input=request.text,
        output=best.token,
        model_kind=run.recipe.model.kind,
        attentions=story.attentions(),
        steps=(Step(best.token, best.probability, 1, candidates),),
        model=model,
        batch=batch,
        forward=lambda: model(batch).logits_BIV,
        prediction={"probabilities": answers},
        story=story,
        options=Options(request.view),
    )
