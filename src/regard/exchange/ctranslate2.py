"""A Transformer for CTranslate2: the same outputs, faster, and smaller with quantized weights.

The weights are put into the library's own description of a Transformer. Positions are written as a table, so that the
order of sines and cosines, which is another one there, does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import torch

from regard.errors import RegardError, did_you_mean, import_extra
from regard.exchange.folder import render, require_settings
from regard.exchange.renaming import prefixed, to_theirs
from regard.runs.run import Run
from regard.tasks.task import LONGEST
from regard.text.tokenizers import Tokenizer

SUPPORTED: dict[str, tuple[Any, ...]] = {
    "norm": ("post", "pre"),
    "scaled": (True,),
    "look_ahead": (False,),
    "residual": (True,),
}
"""The settings of a Transformer that it can run."""
SUBLAYERS = {
    "self_attention.W_Q self_attention.W_KV self_attention.W_KV": " ".join(3 * ["self_attention.linear.0"]),
    "self_attention.W_O": "self_attention.linear.1",
    "feed_forward.W_1": "ffn.linear_0",
    "feed_forward.W_2": "ffn.linear_1",
    "around_feed_forward.norm": "ffn.layer_norm",
}
LAYERS = {
    "encoder": {**SUBLAYERS, "around_attention.norm": "self_attention.layer_norm"},
    "decoder": {
        **SUBLAYERS,
        "around_self.norm": "self_attention.layer_norm",
        "cross_attention.W_Q": "attention.linear.0",
        "cross_attention.W_KV": "attention.linear.1",
        "cross_attention.W_O": "attention.linear.2",
        "around_cross.norm": "attention.layer_norm",
    },
}
MODEL = {
    "source_embedding.weight": "encoder.embeddings.0.weight",
    "target_embedding.weight": "decoder.embeddings.weight",
    "output.linear": "decoder.projection",
}
"""Our names of the weights of a layer and of the rest -> the paths in the library's description."""


def write(run: Run, quantize: str | None, checkpoint: str) -> Callable[[Path], None]:
    """What fills a folder with model.bin, the vocabularies and the tokenizers."""
    require_settings(run, "model", SUPPORTED, tool="CTranslate2")
    specs = import_extra("ctranslate2", extra="ctranslate2", where=str(run.folder), doing="exporting").specs
    types = specs.model_spec.ACCEPTED_MODEL_TYPES
    if quantize is not None and quantize not in types:
        raise RegardError(f"unknown type {quantize!r}", where="--quantize", hint=did_you_mean(quantize, types))
    spec = _fill_spec(specs, run, checkpoint)
    spec.validate()
    spec.optimize(quantization=quantize)
    target = run.tokenizers["target"]

    def fill(folder: Path) -> None:
        spec.save(str(folder))
        run.tokenizers.save(folder)
        readme = render(
            "ctranslate2.md",
            name=run.folder.resolve().name,
            files=list(run.tokenizers.files),
            search=run.recipe.search,
            never=[[name] for name in dict.fromkeys(target.tokens([target.pad, target.begin]))],
        )
        (folder / "README.md").write_text(readme, encoding="utf-8")

    return fill


def _fill_spec(specs: Any, run: Run, checkpoint: str) -> Any:
    """The library's description of the model, with its weights and vocabularies."""
    config, model = run.recipe.model, run.load_model(checkpoint)
    spec = specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=config.norm == "pre",
        activation=getattr(specs.common_spec.Activation, config.activation.upper()),
    )
    table = dict(MODEL)
    for side, layer in LAYERS.items():
        for number in range(getattr(config, f"{side}_layers")):
            table |= prefixed(f"{side}.{number}.", f"{side}.layer.{number}.", layer)
        if config.norm == "pre":
            table[f"{side}_norm"] = f"{side}.layer_norm"
    for path, tensor in to_theirs(table, model.state_dict()).items():
        *parts, kind = path.split(".")
        layer_spec = reduce(lambda spec, part: spec[int(part)] if part.isdigit() else getattr(spec, part), parts, spec)
        kind = {"weight": "gamma", "bias": "beta"}[kind] if hasattr(layer_spec, "gamma") else kind
        setattr(layer_spec, kind, tensor.numpy())
    # sinusoidal positions are written up to the longest input that is accepted here
    length = config.max_positions if config.positions == "learned" else max(config.max_positions, LONGEST + 1)
    table_LD = model.positions.table(model.source_embedding.weight, length)
    positions_LD = torch.zeros(length, config.width) if table_LD is None else table_LD.detach()
    spec.encoder.position_encodings.encodings = spec.decoder.position_encodings.encodings = positions_LD.numpy()
    target = run.tokenizers["target"]
    spec.register_source_vocabulary(_tokens(run.tokenizers["source"]))
    spec.register_target_vocabulary(_tokens(target))
    begin, spec.config.eos_token, spec.config.unk_token = target.tokens([target.begin, target.end, target.unk])
    spec.config.bos_token = spec.config.decoder_start_token = begin
    spec.config.add_source_eos = True
    return spec


def _tokens(tokenizer: Tokenizer) -> list[str]:
    """The vocabulary by id. The library allows no token twice, so an unused id, which reads as unknown, is named."""
    names = tokenizer.tokens(range(tokenizer.size))
    unknown = {number for number, name in enumerate(names) if name == names[tokenizer.unk]} - {tokenizer.unk}
    return [f"<hole {number}>" if number in unknown else name for number, name in enumerate(names)]
