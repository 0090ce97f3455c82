"""`explain`: where the model looked while it wrote. So far the alignment of source and target."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import torch

from regard.data.batch import Batch
from regard.errors import DecodeError
from regard.layers.attention import recording
from regard.models import MODELS
from regard.models.base import device_of
from regard.runs import Run
from regard.runs.verbs import device_named, opened, with_search
from regard.tasks.inputs import encode_inputs, encode_target, padded
from regard.views.alignment import Alignment


def explain(
    run: str | Path | Run,
    text: str,
    *,
    target: str | None = None,
    beam: int | None = None,
    checkpoint: str = "best",
    device: str = "auto",
) -> Alignment:
    """Attention over the source for each token of the target: the one given, or the one the model writes.

    A model with several such attentions shows their mean over layers and heads.
    """
    run = opened(run)
    model = run.load_model(checkpoint, device_named(device))
    if not model.alignment:
        *others, last = (kind for kind, known in MODELS.items() if known.alignment)
        raise DecodeError(
            f"the model {run.recipe.model.kind!r} has no attention to show",
            where=str(run.folder),
            hint=f"{', '.join(others)} and {last} have",
        )
    source, vocabulary = run.tokenizers["source"], run.tokenizers["target"]
    [source_ids] = encode_inputs(source, [text], ["input"])
    if target is None:
        search = with_search(run.recipe, beam, 1, None, []).search
        written = run.task.predict(model, run.tokenizers, [text], search)[0].nbest[0]
        target, target_ids = written.output, vocabulary.token_ids(written.tokens)
    else:
        target_ids = encode_target(vocabulary, target)
    batch = Batch(
        padded([[*source_ids, source.end]], source.pad), padded([[vocabulary.begin, *target_ids]], vocabulary.pad)
    )
    with torch.inference_mode(), recording() as recorded:
        model(batch.to(device_of(model)))
    looks = [weights for name, weights in recorded.by_name(model).items() if fnmatch(name, model.alignment)]
    weights_TS = torch.cat(looks, dim=1)[0].mean(0)
    return Alignment(
        source=tuple(source.pieces([*source_ids, source.end])),
        target=tuple(vocabulary.pieces(target_ids)),
        weights=weights_TS.float().cpu().numpy(),
        title=f"{text} → {target}",
    )
