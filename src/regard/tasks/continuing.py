"""How a language model goes on with a text: prompts in, texts out, through the same search as everything else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from os.path import commonprefix

from regard.data.raw import as_read
from regard.errors import DecodeError
from regard.models.base import LanguageModel, device_of
from regard.search import Hypothesis, SearchConfig, score_texts, search
from regard.tasks.inputs import Inputs, by_length, encode_inputs, encode_target, padded, refuse_longer
from regard.tasks.recorded import Recorders
from regard.tasks.text_to_text import DECODE_TOKENS, Output, Prediction
from regard.tasks.wording import wording_of
from regard.text.tokenizers import Tokenizer


def encode_prompts(
    model: LanguageModel, tokenizer: Tokenizer, texts: Sequence[str], places: Sequence[str]
) -> list[list[int]]:
    """The ids of each prompt, after the `</s>` that a text begins with; an empty one is a text of the model's own."""
    given = [number for number, text in enumerate(texts) if text.strip()]
    read = [as_read(tokenizer, texts[number]) for number in given]
    ids = encode_inputs(tokenizer, read, [places[number] for number in given])
    encoded = dict(zip(given, ids, strict=True))
    prompts = [[tokenizer.end, *encoded.get(number, [])] for number in range(len(texts))]
    if model.longest is not None:
        refuse_longer(prompts, model.longest - 1, places)
    return prompts


def continuations(
    model: LanguageModel,
    tokenizer: Tokenizer,
    inputs: Inputs,
    config: SearchConfig,
    *,
    record: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Prediction]:
    """For each text the best ways to go on with it, each as the whole text: as it was typed, and what was written.

    Scores and tokens are of what is new.
    """
    prompts = encode_prompts(model, tokenizer, inputs.texts, inputs.places)
    wording = replace(wording_of(tokenizer, config, inputs.prefixes, len(inputs)), contexts=prompts)
    recorders, found = Recorders(tokenizer, begin_id=tokenizer.end), dict[int, list[Output]]()
    for rows, limited in _batches(model, prompts, config):
        source = padded([prompts[row] for row in rows], tokenizer.pad).to(device_of(model))
        hypotheses = search(
            model,
            source,
            limited,
            constraints=wording.of(rows),
            begin_id=tokenizer.end,
            end_id=tokenizer.end,
            pad_id=tokenizer.pad,
            unknown_id=tokenizer.unk,
            observer=recorders.on(rows, source, limited, wording.of(rows)) if record else None,
        )
        for row, best in zip(rows, hypotheses, strict=True):
            found[row] = [_output(tokenizer, inputs.texts[row], prompts[row], one) for one in best]
        progress(len(rows))
    searches = recorders.searches(lambda row: tokenizer.tokens(prompts[row]))
    return [Prediction(text, tuple(found[row]), searches.get(row)) for row, text in enumerate(inputs.texts)]


def score_continuation(
    model: LanguageModel, tokenizer: Tokenizer, prompt: str, continuation: str | Sequence[str]
) -> tuple[list[int], list[float]]:
    """The tokens with which a text goes on, and log P of each. Two texts have a space between them."""
    prompt = as_read(tokenizer, prompt).rstrip()
    continuation = as_read(tokenizer, continuation).strip() if isinstance(continuation, str) else continuation
    [before] = encode_prompts(model, tokenizer, [prompt], ["source"])
    after = encode_target(tokenizer, continuation)
    if isinstance(continuation, str) and prompt:
        whole = [tokenizer.end, *encode_target(tokenizer, f"{prompt} {continuation}")]
        if whole[: len(before)] != before:
            what = f"{prompt[-20:]!r} is cut into other tokens where the text goes on"
            raise DecodeError(what, where="source", hint="end it where a word ends, or give exact tokens with --tokens")
        after = whole[len(before) :]
    if model.longest is not None:
        refuse_longer([[*before, *after]], model.longest, ["target"])
    [scores] = score_texts(model, padded([[*before, *after]], tokenizer.pad).to(device_of(model)))
    return after, scores[-len(after) :]


def _batches(
    model: LanguageModel, prompts: Sequence[Sequence[int]], config: SearchConfig
) -> Iterator[tuple[list[int], SearchConfig]]:
    """Rows to decode together, and the search with the most tokens that the model's positions leave for them.

    Where positions are limited only prompts of one length go together, so that no neighbour changes that limit.
    """
    room = max(1, DECODE_TOKENS // (config.nbest if config.sample else config.beam))
    if model.longest is None:
        yield from ((rows, config) for rows in by_length([len(prompt) for prompt in prompts], room))
        return
    groups: dict[int, list[int]] = defaultdict(list)
    for row, prompt in enumerate(prompts):
        groups[len(prompt)].append(row)
    for length, members in groups.items():
        most = min(config.max_length or model.longest, model.longest - length)
        if config.min_length > most:
            what = f"a prompt of {length} tokens leaves room for {most} of the model's {model.longest} positions"
            raise DecodeError(what, where="search.min_length", hint=f"at most {most}")
        limited = config.model_copy(update={"max_length": most})
        for rows in by_length([length] * len(members), room):
            yield [members[row] for row in rows], limited


def _output(tokenizer: Tokenizer, typed: str, prompt: Sequence[int], hypothesis: Hypothesis) -> Output:
    whole = tokenizer.decode([*prompt, *hypothesis.tokens])
    # Whether a piece goes on with the last word or begins a new one shows only behind the prompt
    known = commonprefix([whole, tokenizer.decode(prompt)])  # noqa: RUF071  # no paths
    text = joined(typed, whole[len(known) :])
    return Output(text, hypothesis.score, tuple(tokenizer.tokens(hypothesis.tokens)))


def joined(typed: str, written: str) -> str:
    """A text as it was typed and how it goes on. The blank between two words may stand in either, but only once."""
    return typed + (written.lstrip(" ") if typed[-1:].isspace() else written)
