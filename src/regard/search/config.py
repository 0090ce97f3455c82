"""The recipe's section `search`."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from regard.config import Config

Normalisation = Literal["none", "mean", "wu", "reward"]  # how log P is normalised for length
SAMPLING_FIELDS = ("temperature", "top_k", "top_p")  # fields for sampling only
MAX_BEAM = 1000  # the largest beam
LARGEST_VALUES = {
    "coverage_penalty": 100,
    "repetition_penalty": 100,
    "max_length_ratio": 100,
    "max_length_offset": 100_000,
    "temperature": 100,
    "top_k": 1_000_000,
}
"""The largest values of fields that earlier versions did not limit."""


class SearchConfig(Config):
    """How a trained model writes. All lengths are in output tokens, the final `</s>` included."""

    sample: bool = False
    """Sample the output from the model's distribution instead of searching for the best one."""
    beam: int = Field(5, ge=1, le=MAX_BEAM)
    """Beam size: the number of hypotheses kept in each step; 1 is greedy search, and the only value
    for sampling. Memory and time grow with it, and beyond 10 or 20 outputs hardly change."""
    nbest: int = Field(1, ge=1, le=10_000)
    """Number of outputs for each input, best first: at most `beam`; with sampling, independent
    samples."""
    normalisation: Normalisation = "mean"
    """The value that ranks finished hypotheses. `none`: log P; `mean`: log P / length^alpha; `wu`:
    log P / ((5 + length) / 6)^alpha (Wu 2016); `reward`: log P + alpha for each token. alpha is
    `length_penalty`."""
    length_penalty: float = Field(1.0, ge=0, le=10)
    """alpha of the `normalisation`: 0 ranks by log P, larger values favour longer outputs; with
    `mean`, 1 is the mean log P per token. No effect with `normalisation: none`."""
    coverage_penalty: float = Field(0.0, ge=0, le=LARGEST_VALUES["coverage_penalty"])
    """beta of the coverage penalty (Wu 2016), which ranks an output lower if it left parts of the
    source unattended; 0.2 in the paper. Only for models with attention over the source, and slower.
    0 is off."""
    repetition_penalty: float = Field(1.0, ge=1, le=LARGEST_VALUES["repetition_penalty"])
    """Factor of the log P of a token that the output already contains, in every ranking and in
    sampling. 1 is off, 1.2 is usual (Keskar 2019). The score stays the model's log P."""
    no_repeat_ngram: int | None = Field(None, ge=1)
    """No sequence of this many tokens occurs twice in an output."""
    banned: list[str] = Field([])
    """Texts that no output contains, however it is split into tokens: `he` rules out `the` too, `책`
    also `책을`. Case matters, unless the tokenizer lowercases. A prompt or source may contain
    them."""
    prefix: str | None = None
    """The text that each output begins with, split into tokens as it is: it should end at the end
    of a word. Its log P is part of the score, and no other rule applies to it."""
    min_length: int = Field(0, ge=0, le=2048)
    """The fewest tokens of an output, also if the length of the source would allow fewer; at most
    as many as a source may have."""
    max_length: int | None = Field(None, ge=1)
    """The most tokens of an output, whatever the length of the source."""
    max_length_ratio: float = Field(2.0, ge=0, le=LARGEST_VALUES["max_length_ratio"])
    """The most output tokens per source token; `max_length_offset` is added."""
    max_length_offset: int = Field(50, ge=0, le=LARGEST_VALUES["max_length_offset"])
    """Output tokens allowed in addition to `max_length_ratio` times the length of the source."""
    min_length_ratio: float = Field(0.0, ge=0)
    """The fewest output tokens per source token, rounded up."""
    unknown: bool = False
    """Whether an output may contain `<unk>`. The score is the model's log P either way."""
    temperature: float = Field(1.0, gt=0, le=LARGEST_VALUES["temperature"])
    """Sampling: logits are divided by this; below 1 the distribution is sharper, above 1 flatter.
    Without sampling, leave out this field and the next two, or set them to null."""
    top_k: int | None = Field(None, ge=1, le=LARGEST_VALUES["top_k"])
    """Sampling: only among the k most probable tokens."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sampling: only among the smallest set of tokens with this share of the probability, after
    `top_k`."""
    seed: int = Field(1, ge=0, lt=2**63)
    """Sampling: the same seed and source give the same samples, whatever else is in the batch."""

    @model_validator(mode="before")
    @classmethod
    def _beam_of_sampling(cls, tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        tree = {
            name: value
            for name, value in tree.items()
            if value is not None or name not in SAMPLING_FIELDS
        }
        return {"beam": 1} | tree if tree.get("sample") is True else tree

    @field_validator(
        "beam", "nbest", "banned", "prefix", "max_length", "min_length_ratio", *SAMPLING_FIELDS
    )
    @classmethod
    def _fits_the_others(cls, value: object, others: ValidationInfo) -> object:
        """Checks a field against those before it, so that the message names the field."""
        name = str(others.field_name)
        data = others.data
        samples = data.get("sample")
        most = data.get("max_length_ratio", math.inf) + data.get("max_length_offset", 0)
        match name, value:
            case "beam", int(beam) if samples and beam > 1:
                problem = f"sampling has no beam, but beam is {beam}: set beam: 1, or sample: false"
            case "nbest", int(nbest) if samples is False and nbest > (
                beam := data.get("beam", nbest)
            ):
                problem = (
                    f"a beam of {beam} cannot give the best {nbest}: at most beam, or "
                    f"raise beam to {nbest}"
                )
            case "banned", list(texts) if not all(text.strip() for text in texts):
                problem = "an empty text cannot be banned: every output contains it"
            case "prefix", str(prefix) if not prefix.strip():
                problem = "the prefix is empty: give at least one word, or leave it out"
            case "max_length", int(length) if length < (shortest := data.get("min_length", 0)):
                problem = f"{length} is below min_length, {shortest}"
            case "min_length_ratio", float(ratio) if ratio > most:
                problem = (
                    f"{ratio:g} tokens per source token are more than max_length_ratio "
                    "and max_length_offset allow"
                )
            # The default is allowed: a run stores its whole resolved recipe.
            case _ if (
                name in SAMPLING_FIELDS
                and samples is False
                and value != cls.model_fields[name].default
            ):
                problem = f"only sampling uses {name}: set sample: true, or leave {name} out"
            case _:
                return value
        raise ValueError(problem)
