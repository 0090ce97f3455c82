"""How a language model goes on with a text: prompts in, texts out, through the same search as everything else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from regard.data.tokenizers import Tokenizer
from regard.errors import DecodeError, Problem, first_of
from regard.models.base import device_of
from regard.models.contextual import LanguageModel
from regard.search import Hypothesis, SearchConfig, search
from regard.tasks.inputs import by_length, encode_inputs, numbered, padded
from regard.tasks.text_to_text import DECODE_TOKENS, Output
from regard.tasks.wording import wording_of


def encode_prompts(
    model: LanguageModel, tokenizer: Tokenizer, texts: Sequence[str], places: Sequence[str]
) -> list[list[int]]:
    """The ids of each prompt, after the `</s>` that a text begins with; an empty one is a text of the model's own."""
    given = [number for number, text in enumerate(texts) if text.strip()]
    ids = encode_inputs(tokenizer, [texts[number] for number in given], [places[number] for number in given])
    encoded = dict(zip(given, ids, strict=True))
    prompts = [[tokenizer.end, *encoded.get(number, [])] for number in range(len(texts))]
    if model.longest is not None:
        refuse_longer(prompts, model.longest - 1, places)
    return prompts


def refuse_longer(rows: Sequence[Sequence[int]], longest: int, places: Sequence[str]) -> None:
    """Refuse texts that have more tokens than the model has positions for."""
    problems = [
        Problem(
            place, f"the text has {len(row):,} tokens with the special ones", f"the model reads at most {longest:,}"
        )
        for row, place in zip(rows, places, strict=True)
        if len(row) > longest
    ]
    if problems:
        raise DecodeError(problems=first_of(problems))


def continuations(
    model: LanguageModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    config: SearchConfig,
    *,
    prefixes: Sequence[str] | None = None,
    places: Sequence[str] | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> list[list[Output]]:
    """For each text the best ways to go on with it, each as the whole text; scores and tokens are of what is new."""
    places = places or numbered(texts)
    prompts = encode_prompts(model, tokenizer, texts, places)
    wording = wording_of(tokenizer, config, prefixes, len(texts))
    found: dict[int, list[Output]] = {}
    for rows, limited in _batches(model, prompts, config):
        hypotheses = search(
            model,
            padded([prompts[row] for row in rows], tokenizer.pad).to(device_of(model)),
            limited,
            wording=wording.of(rows),
            begin_id=tokenizer.end,
            end_id=tokenizer.end,
            pad_id=tokenizer.pad,
            unknown_id=tokenizer.unk,
        )
        for row, best in zip(rows, hypotheses, strict=True):
            found[row] = [_output(tokenizer, prompts[row], one) for one in best]
        progress(len(rows))
    return [found[row] for row in range(len(texts))]


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


def _output(tokenizer: Tokenizer, prompt: Sequence[int], hypothesis: Hypothesis) -> Output:
    text = tokenizer.decode([*prompt, *hypothesis.tokens])
    return Output(text, hypothesis.score, tuple(tokenizer.tokens(hypothesis.tokens)))
