"""regard score"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from regard.commands.options import CheckpointOption, DeviceOption, JsonOption, RunArgument
from regard.commands.output import show
from regard.errors import DecodeError


def score(
    run: RunArgument,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="What the model reads; for a language model a text's beginning.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="What it would write, with the end; how the beginning goes on.")
    ],
    *,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="TARGET is exact tokens: a JSON list, or separated by spaces.")
    ] = False,
    checkpoint: CheckpointOption = "best",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """log P(target | source), whole and token by token.

    Of a language model it is log P of how a text goes on, given its beginning; between the two stands a space, which
    exact tokens do without.
    """
    from regard.runs.verbs import score as score_pair

    found = score_pair(run, source, _exact(target) if tokens else target, checkpoint=checkpoint, device=device)
    if as_json:
        show(found)
        return
    for token, log_p in zip(found["tokens"], found["token_scores"], strict=True):
        print(f"{log_p:10.4f}  {token}")
    print(f"{found['score']:10.4f}  log P of all {len(found['tokens'])} tokens")


def _exact(target: str) -> list[str]:
    if not target.lstrip().startswith("["):
        return target.split()
    try:
        tokens = json.loads(target)
    except ValueError:
        tokens = None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise DecodeError("not a JSON list of strings", where="--tokens", hint='for example ["▁a", "</s>"]')
    return tokens
