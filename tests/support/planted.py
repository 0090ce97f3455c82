"""A run whose model follows a hand-written table: P(next token | token before), the same for every
source.

A plain RNN without memory does it: one-hot embeddings pass through saturated tanhs, and the readout
holds log P.
"""

import shutil
from pathlib import Path
from typing import Any

import torch

from regard.models.base import Generator
from regard.recipes.recipe import recipe_of
from regard.runs import Run
from regard.runs.checkpoints import save_checkpoint
from regard.runs.weights import stored_weights
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers

IMPOSSIBLE = -1e4
Table = dict[str, dict[str, float]]
"""What may follow each character, with its probability; `<s>` and `</s>` are tokens, too."""


def planted_run(
    folder: Path, table: Table, *, letters: str, search: dict[str, Any], lowercase: bool = False
) -> Run:
    """A run folder like any other, over the characters `letters`. What the table leaves out never
    follows."""
    settings = TokenizerConfig(kind="character", lowercase=lowercase)
    tokenizer = Tokenizer.train(settings, [letters])
    data = {"train": {"corpus": "reverse", "size": 10}, "validation": {"split": 0.5}}
    tree = {
        "data": data,
        "tokenizer": settings.model_dump(),
        "search": search,
        "training": {"steps": 1},
    }
    size = tokenizer.size
    model = {"kind": "rnn", "cell": "rnn", "embedding": size, "hidden": size, "dropout": 0.0}
    recipe = recipe_of(tree | {"task": "translation", "model": model})
    shutil.rmtree(folder, ignore_errors=True)  # an earlier one of the same test
    run = Run.create(folder, recipe, Tokenizers({"source": tokenizer, "target": tokenizer}))
    planted = run.task.network.build()
    plant(planted, log_p_of(table, tokenizer))
    facts = {"step": 1, "metrics": {}, "tokenizer": run.tokenizers.fingerprint}
    save_checkpoint(run.checkpoints / "step-00000001", stored_weights(planted), facts)
    run.point("best", "step-00000001")
    return run


def log_p_of(table: Table, tokenizer: Tokenizer) -> torch.Tensor:
    log_p_VV = torch.full((tokenizer.size, tokenizer.size), IMPOSSIBLE)
    for before, row in table.items():
        for after, p in row.items():
            log_p_VV[tuple(tokenizer.token_ids([before, after]))] = torch.tensor(p).log()
    return log_p_VV


@torch.no_grad()
def plant(model: Generator, log_p_VV: torch.Tensor) -> None:
    """s_t = tanh(30 e(y_t)) = e(y_t), the one-hot vector; logits = s_t log_p."""
    for parameter in model.parameters():
        parameter.zero_()
    weights = dict(model.named_parameters())
    saturating = 30 * torch.eye(len(log_p_VV))
    weights["target_embedding.weight"].copy_(torch.eye(len(log_p_VV)))
    weights["decoder.weight_ih_l0"].copy_(saturating)
    weights["V.weight"].copy_(saturating)
    weights["output.linear.weight"].copy_(log_p_VV.T)
