"""A Transformer for CTranslate2: the same outputs, faster, and smaller with quantized weights.

The weights are put into the library's own description of a Transformer. Positions are written as a table, so that the
order of sines and cosines, which is another one there, does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import RegardError, did_you_mean, import_extra
from regard.exchange.folder import require_settings
from regard.layers.attention import MultiHeadAttention
from regard.models.transformer import Sublayer, Transformer
from regard.runs.run import Run
from regard.tasks.task import LONGEST
from regard.text.tokenizers import Tokenizer

QUANTIZATIONS = (
    "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32",
)  # fmt: skip
"""What CTranslate2 calls the types of quantized weights."""
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "norm": ("post", "pre"),
    "scaled": (True,),
    "look_ahead": (False,),
    "residual": (True,),
}
"""The settings of a Transformer that it can run."""


def write(run: Run, quantize: str | None, checkpoint: str) -> Callable[[Path], None]:
    """What fills a folder with model.bin, the vocabularies and the tokenizers."""
    if quantize is not None and quantize not in QUANTIZATIONS:
        raise RegardError(f"unknown type {quantize!r}", where="--quantize", hint=did_you_mean(quantize, QUANTIZATIONS))
    require_settings(run.recipe.model, SUPPORTED, path="model", tool="CTranslate2", where=run.folder)
    specs = import_extra("ctranslate2", extra="ctranslate2", where=str(run.folder), doing="exporting").specs
    spec = _filled(specs, run.load_model(checkpoint), run)
    spec.validate()
    spec.optimize(quantization=quantize)

    def fill(folder: Path) -> None:
        spec.save(str(folder))
        run.tokenizers.save(folder)
        (folder / "README.md").write_text(_readme(run), encoding="utf-8")

    return fill


@torch.no_grad()
def _filled(specs: Any, model: Transformer, run: Run) -> Any:
    """The library's description of the model, with its weights."""
    config = model.config
    activation = getattr(specs.common_spec.Activation, config.activation.upper())
    spec = specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=config.norm == "pre",
        activation=activation,
    )
    spec.encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _array(model.target_embedding.weight)
    _linear(spec.decoder.projection, model.output.linear.weight, model.output.linear.bias)
    for half in (spec.encoder, spec.decoder):
        half.position_encodings.encodings = _array(_positions(model))
    for layer, block in zip(spec.encoder.layer, model.encoder, strict=True):
        _attention(layer.self_attention, block.self_attention, block.around_attention, fused=True)  # type: ignore[arg-type]
        _feed_forward(layer.ffn, block)
    for layer, block in zip(spec.decoder.layer, model.decoder, strict=True):
        _attention(layer.self_attention, block.self_attention, block.around_self, fused=True)  # type: ignore[arg-type]
        _attention(layer.attention, block.cross_attention, block.around_cross, fused=False)  # type: ignore[arg-type]
        _feed_forward(layer.ffn, block)
    if config.norm == "pre":
        _norm(spec.encoder.layer_norm, model.encoder_norm)
        _norm(spec.decoder.layer_norm, model.decoder_norm)
    _vocabularies(spec, run)
    return spec


def _positions(model: Transformer) -> Tensor:
    """What is added at each position; sinusoidal ones are written up to the longest input that is accepted here."""
    config, weight_VD = model.config, model.source_embedding.weight
    length = config.max_positions if config.positions == "learned" else max(config.max_positions, LONGEST + 1)
    table_LD = model.positions.table(weight_VD, length)
    return weight_VD.new_zeros(length, config.width) if table_LD is None else table_LD


def _attention(spec: Any, attention: MultiHeadAttention, around: Sublayer, *, fused: bool) -> None:
    """Self-attention has one projection for queries, keys and values; cross-attention has one for the queries."""
    W_Q, W_KV = attention.W_Q, attention.W_KV
    if fused:
        _linear(spec.linear[0], torch.cat([W_Q.weight, W_KV.weight]), torch.cat([W_Q.bias, W_KV.bias]))
    else:
        _linear(spec.linear[0], W_Q.weight, W_Q.bias)
        _linear(spec.linear[1], W_KV.weight, W_KV.bias)
    _linear(spec.linear[-1], attention.W_O.weight, attention.W_O.bias)
    _norm(spec.layer_norm, around.norm)


def _feed_forward(spec: Any, block: Any) -> None:
    _linear(spec.linear_0, block.feed_forward.W_1.weight, block.feed_forward.W_1.bias)
    _linear(spec.linear_1, block.feed_forward.W_2.weight, block.feed_forward.W_2.bias)
    _norm(spec.layer_norm, block.around_feed_forward.norm)


def _linear(spec: Any, weight: Tensor, bias: Tensor) -> None:
    spec.weight, spec.bias = _array(weight), _array(bias)


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> Any:
    return tensor.detach().float().contiguous().numpy()


def _vocabularies(spec: Any, run: Run) -> None:
    source, target = run.tokenizers["source"], run.tokenizers["target"]
    spec.register_source_vocabulary(_tokens(source))
    spec.register_target_vocabulary(_tokens(target))
    begin, end, unknown = target.tokens([target.begin, target.end, target.unk])
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = begin, end, unknown
    spec.config.decoder_start_token = begin
    spec.config.add_source_eos = True


def _tokens(tokenizer: Tokenizer) -> list[str]:
    """The vocabulary by id. The library allows no token twice, so an unused id, which reads as unknown, is named."""
    names, unknown = tokenizer.tokens(range(tokenizer.size)), tokenizer.unk
    unused = [name == names[unknown] and number != unknown for number, name in enumerate(names)]
    return [f"<hole {number}>" if unused[number] else name for number, name in enumerate(names)]


def _readme(run: Run) -> str:
    names = list(run.tokenizers.files)
    search, vocabulary = run.recipe.search, run.tokenizers["target"]
    never = vocabulary.tokens([vocabulary.pad, vocabulary.begin])
    return f"""# {run.folder.resolve().name}, for CTranslate2

```python
import ctranslate2, tokenizers

source, target = tokenizers.Tokenizer.from_file("{names[0]}"), tokenizers.Tokenizer.from_file("{names[-1]}")
tokens = source.encode("A text.", add_special_tokens=False).tokens
results = ctranslate2.Translator(".").translate_batch(
    [tokens], beam_size={search.beam}, length_penalty={search.length_penalty}, disable_unk=True,
    suppress_sequences={[[name] for name in dict.fromkeys(never)]},
)
print(target.decode([target.token_to_id(token) for token in results[0].hypotheses[0]]))
```
"""
