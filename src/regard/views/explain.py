"""`explain`: where a model looked while it wrote or read a text, and which other tokens it
considered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.batches import Batch, MaskedBatch, Padded, Ragged, Spelling
from regard.data.example import Example, without_faults
from regard.data.framing import Framed
from regard.data.images import Picture, images_of
from regard.data.inputs import Given
from regard.data.stories import questions_in
from regard.errors import DecodeError, refuse
from regard.layers.attention import recording
from regard.layers.embeddings import Positions
from regard.models.base import (
    Contextual,
    Generator,
    LanguageModel,
    MaskedModel,
    ModelConfig,
    device_of,
)
from regard.models.headed import LayerMix
from regard.models.memory_network import MemoryNetwork
from regard.recipes.search_options import SearchOptions, with_search
from regard.runs import Run
from regard.search.scoring import log_probabilities
from regard.tasks.answers import readable
from regard.tasks.masked_language_modeling import GAP, FilledGaps, texts_of_input
from regard.tasks.reading import encode_each_spelled, not_longer, words_not_known
from regard.tasks.story_answering import StoryAnswers
from regard.tasks.task import Task
from regard.tasks.written import Source
from regard.text.spelling import Token, ids_of
from regard.text.tokenizers import Tokenizer
from regard.text.vocabularies import MARK
from regard.views.attention import (
    ATTENTION_NAMES,
    Attention,
    AttentionKind,
    PredictedToken,
    TextPieces,
    module_calls,
)
from regard.views.explanation import Explanation, View, ViewOptions
from regard.views.occlusion import Occlusion
from regard.views.report import Numbers
from regard.views.story_attention import StoryAttention

MASK_PADDING = 3
"""Padding tokens added for the view of masks, which would otherwise have nothing to hide."""
SHOWN_POSITIONS = 50
"""Position encodings that are shown."""
CANDIDATES_PER_STEP = 5
"""Number of likeliest tokens kept per step."""


def explain(  # noqa: PLR0913  (one keyword per option, as in the command)
    run: str | Path | Run,
    text: Given | Iterable[Given],
    *,
    target: str | None = None,
    beam: int | None = None,
    view: View | None = None,
    padding: int | None = None,
    question: int | None = None,
    overrides: Sequence[str] = (),
    checkpoint: str | None = None,
    device: str | None = None,
    accept_recipe: bool = False,
) -> Explanation:
    """Every attention for each token of the target: the one given, or the one that beam search
    finds.

    A model of one text is explained on that text, and a language model on its continuation: the
    target, or, if a beam is given, what it writes. A question about a story is explained by its
    hops over the sentences. `view` is what a report shows first; "occlusion", the first of a
    classifier, is how much an answer depends on each word. `padding` adds so many `<pad>` to both
    texts, as a longer neighbour in a batch would. `question` is the number, from 1, of one of
    several about a story (default: the last), whose lines may be given one by one.
    """
    run = Run.open(run, accept_recipe)
    run = run.under(with_search(run.recipe, SearchOptions(overrides=tuple(overrides))))
    task = run.task
    config = run.recipe.model
    _check_options(task, target, beam, padding, question)
    given = without_faults(task.inputs.given(text))
    headed = task.network.has_head
    if not headed and config.pretraining == "surrounding":
        what = f"{config.kind} neither attends nor predicts a text"
        raise DecodeError(what, where=str(run.folder), hint="regard vectors shows its vectors")
    model: Any = run.load_model(checkpoint, device)  # its class follows from the task
    if task.views.stories is not None:
        return _explain_story(run, task.views.stories, model, given, question)
    if len(given) != 1:
        raise DecodeError(
            f"explain takes one text, but there are {len(given):,}", where="input", hint="give one"
        )
    padded = (MASK_PADDING if view == "masks" else 0) if padding is None else padding
    read = _read_text if task.views.targets is None else _read_pair
    explained = replace(given[0], place="input")
    reading = read(run, model, explained, target, beam, padded)
    hidden_BTD, attentions = record(model, reading)
    mix = _mix(model, config, headed=headed)
    occlusion = None
    alone = not attentions and mix is None
    opens = (
        view is None and padding is None and "probabilities" in reading.prediction
    )  # of a classifier
    if task.views.occlude_words is not None and (view == "occlusion" or alone or opens):
        try:
            occlusion = Occlusion(*task.views.occlude_words(model, explained))
        except DecodeError:  # as of too many words
            if view or alone:
                raise
    if occlusion is not None and not (occlusion.words or view or alone):
        occlusion = None  # its attention says more
    of_words = task.views.word_weights
    return replace(
        reading,
        unknown=words_not_known(config, run.tokenizers, _plain(given[0].text), target or ""),
        word_weights=None if of_words is None else of_words(model, explained),
        attentions=attentions,
        steps=() if headed else reading.follow(hidden_BTD),
        rollouts=roll_out(attentions, residual=getattr(config, "residual", True)),
        positions=positions_of(model),
        mix=mix,
        occlusion=occlusion,
        options=ViewOptions(view),
    )


def _plain(text: str) -> str:
    """An input without its gaps, which are not words."""
    return text.replace(GAP, " ")


def _check_options(
    task: Task, target: str | None, beam: int | None, padding: int | None, question: int | None
) -> None:
    if padding is not None and padding < 0:
        raise DecodeError(
            f"{padding} padding tokens are not possible", where="--padding", hint="0 or more"
        )
    if target is not None:
        refuse({"--beam": beam}, "with --target there is no search")
    if question is not None and task.views.stories is None:
        refuse(
            {"--question": question},
            f"a run of {task.recipe.task} reads no story",
            "runs of story_answering do",
        )
    if task.views.written is None or not task.recipe.model.generates:
        refuse(
            {"--target": target, "--beam": beam},
            f"a run of the task {task.recipe.task} does not write text",
        )


def _answered(probabilities: Mapping[str, float]) -> tuple[PredictedToken, ...]:
    """The answer among its alternatives, the likeliest first, as the only step."""
    (best, probability), *_ = probabilities.items()
    return (PredictedToken(best, probability, 1, tuple(probabilities.items())),)


@torch.inference_mode()
def _mix(model: Any, config: ModelConfig, *, headed: bool) -> dict[str, Any] | None:
    """The shares of the layers if the model mixes them. Those of a bare ELMo are even: only a task
    can learn them."""
    bare = not headed and config.pretraining == "both_directions"
    mix = LayerMix(model.depth + 1) if bare else model.mix if headed else None
    if mix is None:
        return None
    names = ("embeddings", *(f"layer {number}" for number in range(1, len(mix.s))))
    return {
        "shares": dict(zip(names, mix.weights_N.tolist(), strict=True)),
        "gamma": float(mix.gamma),
        "learned": headed,
    }


def _read_pair(
    run: Run, model: Generator, given: Example, target: str | None, beam: int | None, padding: int
) -> Explanation:
    """Read a source, and the target that was given or the best that the search finds."""
    vocabulary = run.tokenizers["target"]
    encoded = run.task.views.target_texts.sources.read_one(given)
    if target is None:
        searching = run.under(with_search(run.recipe, SearchOptions(beam, 1)))
        [predicted] = searching.task.views.target_texts.write(model, [given])
        best = predicted.nbest[0]
        output = best.output
        ids = vocabulary.token_ids(best.tokens)
    else:
        output = target
        ids = run.task.views.target_texts.target_ids(target)
    return pair_reading(run, model, encoded, ids, Texts(given.text, output), padding)


class Texts(NamedTuple):
    """An input and an output as people read them."""

    input: str
    output: str


def pair_reading(
    run: Run, model: Generator, encoded: Source, ids: Sequence[int], texts: Texts, padding: int = 0
) -> Explanation:
    """A source and the tokens of a target, ready to be recorded."""
    vocabulary = run.tokenizers["target"]
    picture = None
    source: Ragged
    if isinstance(encoded, Picture):  # each region is a word
        picture = encoded
        names = tuple(encoded.names())
        source = images_of([encoded])
        pieces = TextPieces(names, tuple(range(len(names))))
    else:
        source, pieces = padded_pieces(run.tokenizers["source"], encoded, padding)
    read, _ = padded_pieces(vocabulary, [vocabulary.begin, *ids], padding)
    written = [*ids, *[vocabulary.pad] * padding]
    batch = Batch(source, read).to(device_of(model))
    follow = partial(steps_of, model, vocabulary, range(len(ids)), ids)
    return Explanation(
        texts.input,
        texts.output,
        run.recipe.model.kind,
        model,
        batch,
        lambda: model(batch).hidden_BTD,
        follow,
        pieces,
        pieces_of(vocabulary, [vocabulary.begin, *written[:-1]]),
        pieces_of(vocabulary, written),
        picture=picture,
    )


def pieces_of(tokenizer: Tokenizer, ids: Sequence[int]) -> TextPieces:
    """The tokens `ids`. Special tokens, `<unk>` among them, are words of their own.

    A word begins with the mark `▁`, or, in vocabularies that write `##` before continuations,
    without `##`.
    """
    special = tokenizer.special
    pieces = tuple(tokenizer.pieces(ids))
    decoder = json.loads(tokenizer.to_json())["decoder"] or {}
    hashes = decoder.get("prefix") == "##"
    starts = []
    for position, piece in enumerate(pieces):
        begins = not piece.startswith("##") if hashes else piece.startswith(MARK)
        after_special = position == 0 or ids[position - 1] in special
        if begins or after_special or ids[position] in special:
            starts.append(position)
    return TextPieces(pieces, tuple(starts))


def padded_pieces(
    tokenizer: Tokenizer, tokens: Sequence[Token], padding: int
) -> tuple[Padded, TextPieces]:
    lengthened = [*tokens, *[tokenizer.pad] * padding]
    ids = ids_of(lengthened)
    spelling = Spelling.of_rows([lengthened])
    padded = Padded.of(torch.tensor([ids]), torch.tensor([len(tokens)]), spelling)
    return padded, pieces_of(tokenizer, ids)


def _read_text(
    run: Run, model: Any, given: Example, target: str | None, beam: int | None, padding: int
) -> Explanation:
    """Read a text. A model with a head answers, a masked model fills the gaps, a language model
    continues."""
    tokenizer = run.tokenizers["text"]
    config = run.recipe.model
    output = ""
    prediction = dict[str, Any]()
    places = list[int]()
    written = list[int]()
    views = run.task.views
    headed = run.task.network.has_head
    if headed:
        row, output, prediction = _read_headed(run, model, given)
    elif views.gaps is not None:
        row, output = _read_masked(run, views.gaps, model, given)
        if model.output is not None:
            places = [place for place, token in enumerate(row.ids) if token == tokenizer.mask]
    else:
        row = Framed(_continued(run, model, given, target, beam), [])
        places = [*range(len(row.tokens))]
        written = [*row.ids[1:], tokenizer.end]
    tokens, pieces = padded_pieces(tokenizer, row.tokens, padding)
    segments_BL = torch.zeros_like(tokens.ids_BL)
    none = torch.zeros(0, dtype=torch.long)
    segments_BL[0, : len(row.segments)] = torch.tensor(row.segments)
    batch = MaskedBatch(tokens, segments_BL, none, none).to(device_of(model))

    def forward() -> Tensor:
        states_BLD: Tensor
        # its readout reads the forward direction
        if not headed and config.pretraining == "both_directions":
            states_BLD = model(batch).hidden_BTD
        elif views.rewrites:
            read, _ = padded_pieces(
                tokenizer, [*row.tokens, tokenizer.end], padding
            )  # from which it then writes the text
            states_BLD = model.reconstruct(
                replace(batch, text=read.to(device_of(model)))
            ).hidden_BTD
        else:
            states_BLD = model.states(batch)
        return states_BLD

    def answer(_: Tensor) -> tuple[PredictedToken, ...]:
        """The answer of a classifier, which reads its input again."""
        [again] = run.task.predict(model, [given])
        return _answered(again.to_json()["probabilities"])

    follow = (
        answer
        if "probabilities" in prediction
        else partial(steps_of, model, tokenizer, places, written)
    )
    reading = Explanation(
        given.text, output, config.kind, model, batch, forward, follow, prediction=prediction
    )
    if config.segments:  # BERT, which reads in both directions
        return replace(reading, source=pieces)
    return replace(
        reading, inputs=pieces, target=pieces_of(tokenizer, written), whole=len(row.tokens) - 1
    )


def _read_headed(run: Run, model: Any, given: Example) -> tuple[Framed, str, dict[str, Any]]:
    """The row that the model reads for a task, and its answer; the first row if there are several
    (windows, choices)."""
    with module_calls(model, [""]) as calls:
        [predicted] = run.task.predict(model, [given])
    batch = calls[""][0].inputs[0]
    prediction = predicted.to_json()
    tokens = batch.text.row(0)
    answer = prediction["output"]
    others = {name: value for name, value in prediction.items() if name not in ("input", "output")}
    output = f"{answer:.4f}" if isinstance(answer, float) else str(answer)
    return Framed(tokens, batch.segments_BL[0, : len(tokens)].tolist()), output, others


def _read_masked(
    run: Run, gaps: FilledGaps, model: MaskedModel, given: Example
) -> tuple[Framed, str]:
    """[CLS] text [SEP], or two texts with a tab between them; the output has the gaps filled, or
    P(next)."""
    if not given.text.strip():
        raise DecodeError("there is no text", where="input")
    row = gaps.framed(model, given)
    readable(not_longer([row.ids], model.longest, [given]))
    asks_next = len(texts_of_input(given)) == 2 and model.next_sentence is not None
    if model.output is None or not (GAP in given.text or asks_next):
        return row, ""
    [filled] = gaps.predict_encoded(model, gaps.encode_inputs(model, [given]))
    return (
        row,
        filled.output if filled.next_sentence is None else f"P(next) = {filled.next_sentence:.4f}",
    )


def _continued(
    run: Run, model: LanguageModel, given: Example, target: str | None, beam: int | None
) -> list[Token]:
    """`</s>`, the text, and its continuation."""
    tokenizer = run.tokenizers["text"]
    longest = getattr(model, "longest", None)
    text = given.text if target is None else f"{given.text} {target}"
    if not text.strip():
        raise DecodeError("there is no text", where="input")
    folded = given.with_text(tokenizer.fold(text))
    [tokens] = readable(encode_each_spelled(tokenizer, [folded], model.config.letters))
    prompt = [tokenizer.end, *tokens]
    readable(not_longer([prompt], None if longest is None else longest - 1, [folded]))
    if beam is None:
        return prompt
    options = SearchOptions(beam, 1, overrides=("search.sample=false",))
    searching = run.under(with_search(run.recipe, options))
    continuations = searching.task.views.written
    assert continuations is not None
    best = continuations.write(model, [given.with_text(text)])[0].nbest[0]
    written = tokenizer.token_ids(best.tokens)
    return [*prompt, *(written[:-1] if written[-1:] == [tokenizer.end] else written)]


def _lines(given: Example) -> list[Example]:
    """Each line of a text by itself; a question that was given whole stays as it is."""
    text = given.columns.get("line")
    if not isinstance(text, str):
        return [given]
    return [Example({"line": line}, given.place) for line in text.split("\n")]


def _explain_story(
    run: Run,
    stories: StoryAnswers,
    model: MemoryNetwork,
    given: Sequence[Example],
    question: int | None,
) -> Explanation:
    """Answer a question about a story, and show where each hop of the model looked."""
    questions = questions_in([line for part in given for line in _lines(part)])
    number = len(questions) if question is None else question
    if not 1 <= number <= len(questions):
        raise DecodeError(
            f"there is no question {number}",
            where="--question",
            hint=f"allowed: 1 to {len(questions)}",
        )
    typed = questions[number - 1]
    [example] = stories.encode_inputs(model, [typed.example]).readable()
    examples = example.examples
    row = np.array([example.row])
    batch = stories.encoding.batch(examples, row).to(device_of(model))
    with torch.inference_mode():
        weights_NS = model(batch).p_NBIS[:, 0, model.winner].float().cpu().numpy()
    kept = int(examples.columns["sizes"].lengths[0])
    [answers] = stories.results(model, examples)
    story = StoryAttention(
        sentences=typed.story[-kept:],
        numbers=typed.numbers[-kept:],
        forgotten=len(typed.story) - kept,
        question=typed.question,
        asked=number,
        questions=len(questions),
        weights_NS=weights_NS,
        answer=typed.answer,
        facts=stories.encoding.kept_facts(examples, 0),
    )
    [best] = steps = _answered(answers)

    def follow(logits_BIV: Tensor) -> tuple[PredictedToken, ...]:
        p_V = logits_BIV[0, model.winner].float().softmax(-1)
        top = p_V.topk(len(answers))
        names = run.tokenizers["text"].tokens(top.indices.tolist())
        return _answered(dict(zip(names, top.values.tolist(), strict=True)))

    text = "\n".join([*typed.story, typed.question])
    return Explanation(
        text,
        best.token,
        run.recipe.model.kind,
        model,
        batch,
        lambda: model(batch).logits_BIV,
        follow,
        steps=steps,
        prediction={"probabilities": answers},
        story=story,
    )


# What is recorded of a model from outside: weights by `layers.attention.recording`, tokens by its
# readout


@torch.inference_mode()
def record(model: nn.Module, reading: Explanation) -> tuple[Tensor, dict[str, Attention]]:
    """Run the written-out equation of every attention for the first sentence of a batch: hidden
    states, attentions."""
    with recording() as recorded:
        hidden_BTD = reading.forward()
    source = reading.source
    inputs = reading.inputs
    target = reading.target
    visible = recorded.by_name(model, visible=True)
    attentions = dict[str, Attention]()
    for name, weights_BHQK in recorded.by_name(model).items():
        kind: AttentionKind = "decoder"
        queries = keys = inputs
        if fnmatch(name, getattr(model, "alignment", "")):
            kind = "alignment"
            queries = target
            keys = source
        elif name.startswith("encoder") or not inputs.texts:
            kind = "encoder"
            queries = source
            keys = source
        count = weights_BHQK.shape[2]  # a recurrent decoder takes no step for padding
        queries = TextPieces(
            queries.texts[:count], tuple(start for start in queries.starts if start < count)
        )
        number = re.search(r"\.(\d+)\.", name)
        layer = int(number[1]) + 1 if number else 1
        weights = weights_BHQK[0].float().cpu().numpy()
        attentions[name] = Attention(
            name, kind, layer, queries, keys, weights, visible[name][0, 0].cpu().numpy()
        )
    return hidden_BTD, attentions


def roll_out(
    attentions: Mapping[str, Attention], *, residual: bool = True
) -> dict[AttentionKind, list[Attention]]:
    """The share of each token in the states after each layer, by kind of attention; empty without
    self-attention.

    Abnar & Zuidema 2020, arXiv:2005.00928, section 3, for weights averaged over the heads, with
    A = 0.5 W_att + 0.5 I for the residual connection; a model without has A = W_att:
        R_l = A_l R_{l-1},  R_0 = I

    The paper has one stack, as BERT and GPT have. In a decoder over an encoder, self-attention
    mixes what the states hold, and attention over the source adds what the encoder's last states,
    or the regions of an image, hold; the shares of source and target tokens sum to 1 together.
    """
    layers = {
        kind: [layer for layer in attentions.values() if layer.kind == kind]
        for kind in ATTENTION_NAMES
    }
    encoder = layers["encoder"]
    decoder = layers["decoder"]
    cross = layers["alignment"]
    if not decoder and (cross or not encoder):
        return {}
    share = 0.5 if residual else 1.0
    rolled = dict[AttentionKind, list[Attention]]()

    def mix(attention: Attention, read: Numbers, before: Numbers) -> Numbers:
        mixed: Numbers = (
            share * (attention.weights.mean(0, dtype=np.float64) @ read) + (1 - share) * before
        )
        return mixed

    def keep(attention: Attention, shares: Numbers) -> None:
        rolled.setdefault(attention.kind, []).append(replace(attention, weights=shares[None]))

    of_encoder: Numbers = np.eye(len([*encoder, *cross][0].keys.texts) if encoder or cross else 0)
    for layer in encoder:
        of_encoder = mix(layer, of_encoder, of_encoder)
        keep(layer, of_encoder)
    of_target: Numbers = np.eye(len(decoder[0].keys.texts) if decoder else 0)
    of_source: Numbers = np.zeros((len(of_target), len(of_encoder)))
    for number, layer in enumerate(decoder):
        of_target = mix(layer, of_target, of_target)
        of_source = mix(layer, of_source, of_source)
        if cross:
            of_target = (1 - share) * of_target
            of_source = mix(cross[number], of_encoder, of_source)
            keep(cross[number], of_source)
        keep(layer, of_target)
    return rolled


@torch.inference_mode()
def positions_of(model: nn.Module) -> Numbers | None:
    """The encodings that the model adds to the embeddings at the first positions, [50, D]; None if
    it has none."""
    for module in model.modules():
        if isinstance(module, Positions) and module.kind != "none":
            count = (
                min(SHOWN_POSITIONS, module.longest)
                if module.kind == "learned"
                else SHOWN_POSITIONS
            )
            zeros_1LD = torch.zeros(1, count, module.width, device=device_of(model))
            encodings_LD: Numbers = module(zeros_1LD)[0].float().cpu().numpy()
            return encodings_LD
    return None


@torch.inference_mode()
def steps_of(
    model: Generator | Contextual,
    tokenizer: Tokenizer,
    places: Sequence[int],
    written: Sequence[int],
    hidden_BTD: Tensor,
) -> tuple[PredictedToken, ...]:
    """The model's probabilities of the `written` tokens, including those that the search may not
    write; if nothing was written, of the likeliest tokens that are not special."""
    if not places:
        return ()
    logits_PV = model.readout(hidden_BTD[0, [*places]])
    if not written:
        special = torch.tensor(sorted(tokenizer.special), device=logits_PV.device)
        written = logits_PV.index_fill(1, special, -torch.inf).argmax(-1).tolist()
    p_PV = log_probabilities(logits_PV).exp().cpu()
    p_P1 = p_PV.gather(1, torch.tensor(written)[:, None])
    ranks = ((p_PV > p_P1).sum(1) + 1).tolist()
    likeliest = p_PV.topk(min(CANDIDATES_PER_STEP, p_PV.shape[1]))
    columns = (
        tokenizer.pieces(written),
        p_P1[:, 0].tolist(),
        ranks,
        likeliest.indices,
        likeliest.values.tolist(),
    )
    steps = []
    for piece, p, rank, ids, probabilities in zip(*columns, strict=True):
        # Each alone: side by side, the bytes of alternatives would be read as one character.
        tokens = [tokenizer.pieces([token])[0] for token in ids.tolist()]
        steps.append(PredictedToken(piece, p, rank, tuple(zip(tokens, probabilities, strict=True))))
    return tuple(steps)
