"""A Transformer for CTranslate2: the same outputs, faster, and smaller with quantized weights.

The weights are put into the library's own description of a Transformer. Positions are written as a
table, so that the order of sines and cosines, which is another one there, does not matter. `write`
makes a folder of it for `export`; `int8_model` runs one from the cache, for `--precision int8`.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, cast

import torch

from regard.data.store import stored
from regard.errors import DecodeError, Problem, RegardError, did_you_mean, import_extra
from regard.exchange.folder import render, require_settings
from regard.exchange.renaming import prefixed, to_theirs
from regard.models.transformer import Transformer
from regard.runs.checkpoints import load_facts
from regard.runs.run import Run
from regard.search.config import SearchConfig
from regard.search.external import ExternalModel
from regard.search.hypotheses import Hypothesis
from regard.search.rules import Limits
from regard.tasks.reading import LONGEST, first_tokens
from regard.text.checksums import checksum, key_of
from regard.text.tokenizers import Tokenizer, Tokenizers

SUPPORTED_MODELS = (("translation", "transformer"), ("summarization", "transformer"))
"""The tasks and kinds of model that CTranslate2 can run."""
SUPPORTED_SETTINGS: dict[str, tuple[Any, ...]] = {
    "norm": ("post", "pre"),
    "scaled": (True,),
    "look_ahead": (False,),
    "residual": (True,),
}
"""The settings of a Transformer that CTranslate2 can run."""
SUBLAYER_WEIGHTS = {
    "self_attention.W_Q self_attention.W_KV self_attention.W_KV": " ".join(
        3 * ["self_attention.linear.0"]
    ),
    "self_attention.W_O": "self_attention.linear.1",
    "feed_forward.W_1": "ffn.linear_0",
    "feed_forward.W_2": "ffn.linear_1",
    "around_feed_forward.norm": "ffn.layer_norm",
}
LAYER_WEIGHTS = {
    "encoder": {**SUBLAYER_WEIGHTS, "around_attention.norm": "self_attention.layer_norm"},
    "decoder": {
        **SUBLAYER_WEIGHTS,
        "around_self.norm": "self_attention.layer_norm",
        "cross_attention.W_Q": "attention.linear.0",
        "cross_attention.W_KV": "attention.linear.1",
        "cross_attention.W_O": "attention.linear.2",
        "around_cross.norm": "attention.layer_norm",
    },
}
MODEL_WEIGHTS = {
    "source_embedding.weight": "encoder.embeddings.0.weight",
    "target_embedding.weight": "decoder.embeddings.weight",
}
EMBEDDING_NORMS = {
    "source_embedding_norm": "encoder.layernorm_embedding",
    "embedding_norm": "decoder.layernorm_embedding",
}
"""Our names of the weights of a layer and of the rest -> the paths in the library's description."""


def write(run: Run, quantize: str | None, checkpoint: str) -> Callable[[Path], None]:
    """A function that fills a folder with model.bin, the vocabularies and the tokenizers."""
    require_settings(run, "model", SUPPORTED_SETTINGS, tool="CTranslate2")
    specs = import_extra(
        "ctranslate2", extra="ctranslate2", where=str(run.folder), doing="exporting"
    ).specs
    types = specs.model_spec.ACCEPTED_MODEL_TYPES
    if quantize is not None and quantize not in types:
        raise RegardError(
            f"unknown type {quantize!r}", where="--quantize", hint=did_you_mean(quantize, types)
        )
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
            never=[target.tokens([token]) for token in _never_written(target)],
            source_first=run.tokenizers["source"].tokens(
                first_tokens(run.recipe, run.tokenizers, "source")
            ),
            target_first=target.tokens(first_tokens(run.recipe, run.tokenizers, "target")),
        )
        (folder / "README.md").write_text(readme, encoding="utf-8")

    return fill


def _fill_spec(specs: Any, run: Run, checkpoint: str) -> Any:
    """The library's description of the model, with its weights and vocabularies."""
    config = run.recipe.model
    model = cast(Transformer, run.load_model(checkpoint))
    spec = specs.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=config.norm == "pre",
        activation=getattr(specs.common_spec.Activation, config.activation.upper()),
        layernorm_embedding=config.embedding_norm,
    )
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = config.scaled_embeddings
    table = dict(MODEL_WEIGHTS) | (EMBEDDING_NORMS if config.embedding_norm else {})
    table["output.linear" if config.readout_bias else "output.linear.weight"] = (
        "decoder.projection" if config.readout_bias else "decoder.projection.weight"
    )
    for side, layer in LAYER_WEIGHTS.items():
        for number in range(getattr(config, f"{side}_layers")):
            table |= prefixed(f"{side}.{number}.", f"{side}.layer.{number}.", layer)
        if config.norm == "pre":
            table[f"{side}_norm"] = f"{side}.layer_norm"
    for path, tensor in to_theirs(table, model.state_dict()).items():
        *parts, kind = path.split(".")
        layer_spec = reduce(
            lambda spec, part: spec[int(part)] if part.isdigit() else getattr(spec, part),
            parts,
            spec,
        )
        kind = {"weight": "gamma", "bias": "beta"}[kind] if hasattr(layer_spec, "gamma") else kind
        setattr(layer_spec, kind, tensor.numpy())
    length = _positions(config)
    sides = ((spec.encoder, model.source_positions), (spec.decoder, model.positions))
    for side_spec, positions in sides:
        table_LD = positions.table(model.source_embedding.weight, length)
        positions_LD = torch.zeros(length, config.width) if table_LD is None else table_LD.detach()
        side_spec.position_encodings.encodings = positions_LD.numpy()
    target = run.tokenizers["target"]
    spec.register_source_vocabulary(_tokens(run.tokenizers["source"]))
    spec.register_target_vocabulary(_tokens(target))
    begin, spec.config.eos_token, spec.config.unk_token = target.tokens(
        [target.begin, target.end, target.unk]
    )
    spec.config.bos_token = spec.config.decoder_start_token = begin
    spec.config.add_source_eos = True
    return spec


def _never_written(target: Tokenizer) -> list[int]:
    """The tokens that no output has; the end is one of them in no vocabulary, even if a decoder
    begins with it."""
    never = dict.fromkeys([target.pad, target.begin])
    return [token for token in never if token != target.end]


def _positions(config: Any) -> int:
    """The positions of the exported model: sinusoidal ones up to the longest input that is accepted
    here."""
    return int(
        config.max_positions
        if config.positions == "learned"
        else max(config.max_positions, LONGEST + 1)
    )


def _tokens(tokenizer: Tokenizer) -> list[str]:
    """The vocabulary by id. The library allows no token twice, so an unused id, which reads as
    unknown, is named."""
    names = tokenizer.tokens(range(tokenizer.size))
    unknown = {number for number, name in enumerate(names) if name == names[tokenizer.unk]} - {
        tokenizer.unk
    }
    return [f"<hole {number}>" if number in unknown else name for number, name in enumerate(names)]


# Running a model in 8 bits

INT8_FORMAT = 1
"""Raise this when the content of the cache changes."""
INT8_SEARCH_SETTINGS: dict[str, tuple[Any, ...]] = {
    "sample": (False,),
    "normalisation": ("mean", "none"),
    "coverage_penalty": (0,),
    "repetition_penalty": (1,),
    "banned": ([],),
    "prefix": (None,),
}
"""The values of search settings for which the library's search is equivalent to ours; other
settings may have any value."""
MAX_ROWS = 32
MAX_SOURCE_TOKENS = 1024
"""The maximum numbers of sentences and of padded source tokens in a batch."""
LENGTHS_PER_BATCH = 16
"""Sentences are decoded together if their lengths, divided by this, have the same whole part. The
library's products of attention round differently below and above a multiple of the width of a
vector register, and in 8 bits a difference in rounding grows: outputs would then depend on the
other sentences of a batch."""


def int8_model(run: Run, checkpoint: str) -> CTranslate2Model:
    """A checkpoint of a run with 8-bit weights. The converted model is kept in the cache."""
    task = run.recipe.task
    kind = run.recipe.model.kind
    if (task, kind) not in SUPPORTED_MODELS:
        what = f"int8 is computed by CTranslate2, which cannot run {kind} for {task}"
        names = " and ".join(f"{other} for {task}" for task, other in SUPPORTED_MODELS)
        raise DecodeError(what, where="precision", hint=f"it can run {names}; give fp32, or bf16")
    require_settings(run, "model", SUPPORTED_SETTINGS, tool="CTranslate2")
    library = import_extra(
        "ctranslate2", extra="ctranslate2", where="precision", doing="to compute int8"
    )
    folder = run.checkpoint(checkpoint)
    run.check_unchanged(folder)
    facts = load_facts(folder)
    # old checkpoints have no checksums
    weights = facts.get("files") or checksum(folder / "model.safetensors")
    key = key_of([INT8_FORMAT, library.__version__, facts, weights])
    files = stored(f"ctranslate-{key}", write(run, "int8", checkpoint))
    return CTranslate2Model(files, run.tokenizers, _positions(run.recipe.model))


@dataclass(frozen=True)
class SourceBatch:
    """Sources that are decoded together, and the limits of their outputs, `</s>` included."""

    rows: list[int]
    shortest: int
    longest: int


class CTranslate2Model(ExternalModel):
    """A Transformer in 8 bits on the CPU, with one scale for each row of a weight and for each
    token's activations.

    Its search differs from ours in one point: an output that ends does not take a place of the
    beam. It starts when it is first used, with as many workers as torch has threads then, so that
    each process of several starts its own.
    """

    def __init__(self, folder: Path, tokenizers: Tokenizers, longest: int) -> None:
        self.longest = self._positions = longest
        self._folder = folder
        self._tokenizers = tokenizers
        self._contents: dict[str, bytes] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state for another process, with the content of the files, which its machine may
        lack."""
        contents = self._contents or {
            path.name: path.read_bytes() for path in self._folder.iterdir()
        }
        state = {
            "longest": self.longest,
            "_positions": self._positions,
            "_folder": self._folder,
            "_tokenizers": self._tokenizers,
        }
        return state | {"_contents": contents}

    def __deepcopy__(self, memo: object) -> CTranslate2Model:
        """No copy: several threads may share one translator."""
        return self

    @cached_property
    def _workers(self) -> int:
        return torch.get_num_threads()

    @cached_property
    def _translator(self) -> Any:
        library = import_extra(
            "ctranslate2", extra="ctranslate2", where="precision", doing="to compute int8"
        )
        threads = self._workers
        translator = library.Translator(
            str(self._folder),
            device="cpu",
            compute_type="int8",
            inter_threads=threads,
            intra_threads=1,
            files=self._contents,
        )
        # the library sets the number of this process to its intra_threads
        torch.set_num_threads(threads)
        return translator

    @cached_property
    def _source_names(self) -> list[str]:
        return _tokens(self._tokenizers["source"])

    @cached_property
    def _target_names(self) -> list[str]:
        return _tokens(self._tokenizers["target"])

    @cached_property
    def _target_ids(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self._target_names)}

    def refuse(self, config: SearchConfig, options: Mapping[str, object] | None = None) -> None:
        problems = []
        for name, allowed in INT8_SEARCH_SETTINGS.items():
            if getattr(config, name) not in allowed:
                values = " or ".join(json.dumps(value).strip('"') for value in allowed)
                what = f"with int8, which CTranslate2 computes, it must be {values}"
                problems.append(Problem(f"search.{name}", what, "or use --precision fp32"))
        for name, value in (options or {}).items():
            if value is not None:
                what = "CTranslate2, which computes int8, does not have this option"
                problems.append(Problem(name, what, "leave it out, or use --precision fp32"))
        DecodeError.raise_if(problems)

    def search(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, first: Sequence[int] = ()
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The hypotheses of each source. An output that reaches its length limit has no `</s>`.

        The library has one limit for a whole batch. So sources with similar limits are decoded
        together under one that none exceeds, and those whose output is longer than their own limit
        allows are decoded again under it.
        """
        self.refuse(config)
        most = min(config.max_length or self._positions, self._positions)
        limits = Limits.of(
            [len(source) for source in sources], config.model_copy(update={"max_length": most})
        )
        prefix = [self._target_names[token] for token in first]
        batches = deque(self._batches(sources, limits, most))
        started = deque[tuple[SourceBatch, list[Any]]]()
        while batches or started:
            while batches and len(started) <= 2 * self._workers:
                batch = batches.popleft()
                own = [sources[row] for row in batch.rows]
                started.append((batch, self._start(batch, own, config, prefix)))
            batch, results = started.popleft()
            for row, result in zip(batch.rows, results, strict=True):
                hypotheses = self._hypotheses(result.result(), config)
                if max(self._length(one) for one in hypotheses) > limits.longest[row]:
                    batches.append(SourceBatch([row], limits.shortest[row], limits.longest[row]))
                else:
                    yield row, hypotheses

    def _batches(
        self, sources: Sequence[Sequence[int]], limits: Limits, most: int
    ) -> list[SourceBatch]:
        """The sources in batches for all workers, the longest first."""
        alike = defaultdict[tuple[int, int, int], list[int]](list)
        for row in sorted(range(len(sources)), key=lambda row: -len(sources[row])):
            longest = min(
                1 << (limits.longest[row] - 1).bit_length(), max(most, limits.longest[row])
            )
            alike[len(sources[row]) // LENGTHS_PER_BATCH, limits.shortest[row], longest].append(row)
        share = -(-len(sources) // self._workers)
        batches = []
        for (_, shortest, longest), rows in alike.items():
            size = max(1, min(MAX_ROWS, share, MAX_SOURCE_TOKENS // len(sources[rows[0]])))
            batches += [
                SourceBatch(rows[first : first + size], shortest, longest)
                for first in range(0, len(rows), size)
            ]
        return batches

    def _start(
        self,
        batch: SourceBatch,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        prefix: list[str],
    ) -> list[Any]:
        """Start to decode a batch in another thread; returns a future for each source."""
        target = self._tokenizers["target"]
        started: list[Any] = self._translator.translate_batch(
            [self._spelt(source) for source in sources],
            target_prefix=[prefix] * len(sources) if prefix else None,
            beam_size=config.beam,
            num_hypotheses=config.nbest,
            length_penalty=0.0 if config.normalisation == "none" else config.length_penalty,
            no_repeat_ngram_size=config.no_repeat_ngram or 0,
            disable_unk=not config.unknown,
            suppress_sequences=[[self._target_names[token]] for token in _never_written(target)],
            max_input_length=0,
            max_decoding_length=max(1, batch.longest - 1),
            min_decoding_length=batch.shortest - 1,
            return_scores=True,
            return_end_token=True,
            asynchronous=True,
        )
        return started

    def _spelt(self, source: Sequence[int]) -> list[str]:
        """The tokens of a source without its `</s>`, which the library adds."""
        return [self._source_names[token] for token in source[:-1]]

    def _hypotheses(self, result: Any, config: SearchConfig) -> list[Hypothesis]:
        """The outputs, best first, with log P, which the library gives divided by length^alpha."""
        alpha = 0.0 if config.normalisation == "none" else config.length_penalty
        outputs = [tuple(self._target_ids[name] for name in names) for names in result.hypotheses]
        return [
            Hypothesis(tokens, score * max(1, len(tokens)) ** alpha, score)
            for tokens, score in zip(outputs, result.scores, strict=True)
        ]

    def _length(self, hypothesis: Hypothesis) -> int:
        """The number of tokens of an output with its `</s>`, even if that was not written."""
        tokens = hypothesis.tokens
        return len(tokens) + (tokens[-1:] != (self._tokenizers["target"].end,))

    def token_scores(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> Iterator[list[float]]:
        names = self._target_names
        scored = self._translator.score_batch(
            [self._spelt(source) for source in sources],
            [[names[token] for token in target] for target in targets],
            max_batch_size=MAX_ROWS,
            max_input_length=0,
            asynchronous=True,
        )
        return (list(one.result().log_probs) for one in scored)
