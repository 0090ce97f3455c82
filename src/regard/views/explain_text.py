"""`explain` for models of one text: language models, masked models, and what stands under a head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batch import MaskedBatch, TextBatch, Tokens
from regard.data.framing import Framed, Framing
from regard.errors import DecodeError
from regard.layers.layer_mix import LayerMix
from regard.models.base import device_of
from regard.models.bert import BERT
from regard.models.elmo import ELMo
from regard.models.headed import Headed
from regard.models.lstm_lm import LSTMLanguageModel
from regard.models.memory_lm import MemoryLanguageModel
from regard.runs import Run
from regard.runs.settings import device_named, with_search
from regard.tasks.inputs import Inputs, encode_inputs, refuse_longer
from regard.tasks.language_modeling import encode_prompts
from regard.tasks.masked_language_modeling import GAP, filled, with_gaps
from regard.text.normalise import fold_white_space
from regard.text.spelling import Spelling
from regard.text.tokenizers import Tokenizer
from regard.views.capture import Observed, watch, watching
from regard.views.explain_parts import attention_of, positions_of, steps_of
from regard.views.explanation import Explanation
from regard.views.leave_out import leave_one_out
from regard.views.past_words import watch_hops
from regard.views.seen import Kind, Mix, Step
from regard.views.words import word_starts

KINDS_OF_ONE_TEXT: dict[str, Kind] = {"bert": "encoder", "memory_lm": "memory"}
"""What a model's attention is; that of the others is a decoder's."""


@dataclass(frozen=True)
class Reading:
    """A text as a model reads it."""

    row: Framed
    output: str
    """What it makes of the text, where it makes something of it."""
    told: dict[str, Any]
    """The rest of what it says of the text."""


def explain_text(
    run: Run,
    text: str,
    *,
    target: str | None = None,
    beam: int | None = None,
    padding: int = 0,
    occlusion: bool = False,
    checkpoint: str = "best",
    device: str = "auto",
) -> Explanation:
    """Where each token of a text looks; what a language model expects next, or a masked one in the gaps.

    A language model reads the text, and, where a target or a beam is given, how it goes on. What stands under a head is
    asked what its answer loses without each word, where `occlusion` says so and where there is nothing else to see.
    """
    model, tokenizer = run.load_model(checkpoint, device_named(device)), run.tokenizers["text"]
    if isinstance(model, Headed | BERT | ELMo):
        _refuse_continuing(run, {"--target": target, "--beam": beam})
    reading = _read(run, model, text, target, beam)
    ids, length = [*reading.row.ids, *[tokenizer.pad] * padding], len(reading.row.ids)
    kind = KINDS_OF_ONE_TEXT.get(run.recipe.model.kind, "decoder")
    batch = _batch(ids, reading.row.segments, length, bert=kind == "encoder").to(device_of(model))
    observed = _watched(model, lambda: _states(model, batch))
    pieces, starts = tuple(tokenizer.pieces(ids)), word_starts(tokenizer, ids)
    steps = _steps(model, observed.hidden_TD, tokenizer, ids[:length])
    left_out = isinstance(model, Headed) and (occlusion or (not observed.weights_HQK and model.mix is None))
    return Explanation(
        input=text,
        output=reading.output,
        model_kind=run.recipe.model.kind,
        source=pieces if kind == "encoder" else (),
        target=() if kind == "encoder" else tuple(step.token for step in steps),
        attentions={name: attention_of(name, kind, observed, pieces, pieces) for name in observed.weights_HQK},
        steps=steps,
        positions=positions_of(model),
        residual=True,
        starts={"source": starts if kind == "encoder" else (), "inputs": starts, "target": _starts_of(steps, starts)},
        model=model,
        batch=batch,
        read=lambda: _states(model, batch),
        told=reading.told,
        mix=_mix(model),
        occlusion=leave_one_out(run, model, text) if left_out else None,
        looks=0 if kind == "encoder" else length - 1,
    )


def _refuse_continuing(run: Run, options: Mapping[str, object]) -> None:
    for option, value in options.items():
        if value is not None:
            raise DecodeError(f"a run of the task {run.task.name} writes nothing", where=option, hint="leave it out")


# ------------------------------------------------------------------------------------------------ what is read


def _read(run: Run, model: Any, text: str, target: str | None, beam: int | None) -> Reading:
    tokenizer = run.tokenizers["text"]
    if isinstance(model, Headed):
        return _under_a_head(run, model, text)
    if isinstance(model, BERT):
        return _with_gaps(model, tokenizer, text)
    return Reading(Framed(_going_on(run, model, text, target, beam), []), "", {})


def _under_a_head(run: Run, model: Headed, text: str) -> Reading:
    """What the task has the model read, the first row where it is several (windows, choices), and its answer."""
    with watching(model, lambda name, _: name == "") as calls:
        [predicted] = run.task.predict(model, Inputs([text], ["input"]))
    batch, told = calls[""][0].inputs[0], predicted.to_json()
    ids = batch.text.row(0)
    row = Framed(ids, batch.segments_BL[0, : len(ids)].tolist())
    answer = told["output"]
    output = f"{answer:.4f}" if isinstance(answer, float) else str(answer)
    return Reading(row, output, {name: told[name] for name in told if name not in ("input", "output")})


def _with_gaps(model: BERT, tokenizer: Tokenizer, text: str) -> Reading:
    """[CLS] text [SEP], or two texts with a tab between them; the output has its gaps filled."""
    first, second = (fold_white_space(part) for part in text.partition("\t")[::2])
    framing = Framing(tokenizer, segments=True, longest=model.longest)
    row = framing.frame(with_gaps(tokenizer, first), with_gaps(tokenizer, second) if second else None)
    refuse_longer([row.ids], model.longest, ["input"])
    if GAP not in text or model.output is None or second:
        return Reading(row, "", {})
    [found] = filled(model, tokenizer, [text], [row.ids], 1)
    return Reading(row, found.output, {})


def _going_on(run: Run, model: Any, text: str, target: str | None, beam: int | None) -> list[int]:
    """`</s>`, the text, and how it goes on."""
    tokenizer = run.tokenizers["text"]
    given = text if target is None else f"{text} {target}"
    if not given.strip():
        raise DecodeError("there is no text", where="input")
    if isinstance(model, ELMo):
        return [
            tokenizer.end,
            *encode_inputs(tokenizer, [fold_white_space(given)], ["input"], letters=model.letters)[0],
        ]
    [prompt] = encode_prompts(model, tokenizer, [given], ["input"])
    if beam is None or target is not None:
        return prompt
    search = with_search(run.recipe, beam, 1, None, ["search.sample=false"]).search
    best = run.task.with_search(search).predict(model, Inputs([text], ["input"]))[0].nbest[0]
    written = tokenizer.token_ids(best.tokens)
    return [*prompt, *(written[:-1] if written and written[-1] == tokenizer.end else written)]


def _batch(ids: Sequence[int], segments: Sequence[int], length: int, *, bert: bool) -> TextBatch | MaskedBatch:
    text = Tokens.of(torch.tensor([ids]), torch.tensor([length]), Spelling.of_rows([ids]))
    if not bert:
        return TextBatch(text)
    segments_BL, nothing = torch.zeros_like(text.ids_BL), torch.zeros(0, dtype=torch.long)
    segments_BL[0, : len(segments)] = torch.tensor(segments)
    return MaskedBatch(text, segments_BL, nothing, nothing)


# ----------------------------------------------------------------------------------------------- what is seen


def _watched(model: Any, read: Callable[[], Tensor]) -> Observed:
    return watch_hops(model, read) if isinstance(model, MemoryLanguageModel) else watch(model, read)


def _states(model: Any, batch: Any) -> Tensor:
    """The hidden states [1, L, D] that the model's readout or head reads."""
    if isinstance(model, ELMo):
        forward_BLD: Tensor = model(batch).hidden_BTD
        return forward_BLD
    if isinstance(model, LSTMLanguageModel) and model.config.objective == "autoencoder":
        _, remembered = model.read(batch.text)  # which it then writes from memory
        return model.read(batch.text, remembered)[0][-1]
    states: Tensor = model.states(batch)
    return states


@torch.inference_mode()
def _steps(model: Any, hidden_LD: Tensor, tokenizer: Tokenizer, ids: Sequence[int]) -> tuple[Step, ...]:
    """What was expected: by a language model in each next place, the end included; by a masked one in each gap."""
    if isinstance(model, Headed):
        return ()
    if not isinstance(model, BERT):
        return steps_of(model.readout(hidden_LD), tokenizer, [*ids[1:], tokenizer.end])
    gaps = [place for place, token in enumerate(ids) if token == tokenizer.mask]
    if not gaps or model.output is None:
        return ()
    logits_PV = model.readout(hidden_LD[gaps])
    special = torch.tensor(sorted(tokenizer.special), device=logits_PV.device)
    return steps_of(logits_PV, tokenizer, logits_PV.index_fill(1, special, -torch.inf).argmax(-1).tolist())


def _starts_of(steps: Sequence[Step], starts: Sequence[int]) -> tuple[int, ...]:
    """Words of what is predicted, which stands one place before where it is read; its end is a word of its own."""
    return tuple(sorted({0, *(start - 1 for start in starts if start > 0), len(steps) - 1})) if steps else ()


def _mix(model: nn.Module) -> Mix | None:
    """The shares of the layers, where they are mixed; a bare ELMo's are even, since only a task can learn them."""
    if isinstance(model, Headed) and model.mix is not None:
        return _mix_of(model.mix, learned=True)
    if isinstance(model, ELMo):
        return _mix_of(LayerMix(model.config.layers + 1), learned=False)
    return None


@torch.inference_mode()
def _mix_of(mix: LayerMix, *, learned: bool) -> Mix:
    names = ("embeddings", *(f"layer {number}" for number in range(1, len(mix.s))))
    return Mix(names, tuple(mix.weights_N.tolist()), float(mix.gamma), learned)
