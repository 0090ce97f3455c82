"""What is asked of the search."""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from regard.config import Config


class SearchConfig(Config):
    """How a trained model writes. All lengths count the tokens that are written, the final `</s>` included."""

    sample: bool = False
    """Draw the output at random from the model's distribution instead of looking for the best one."""
    beam: int = Field(5, ge=1)
    """How many hypotheses are followed side by side; 1 is greedy search, and sampling allows no other."""
    nbest: int = Field(1, ge=1)
    """How many outputs to give for each input, best first: at most `beam`, or any number of independent samples."""
    length_penalty: float = Field(1.0, ge=0, le=10)
    """alpha in the objective that ranks finished hypotheses, log P / length^alpha: 0 ranks by log P, 1 by its mean."""
    min_length: int = Field(0, ge=0)
    """Fewest tokens to write."""
    max_length: int | None = Field(None, ge=1)
    """Most tokens to write, whatever the length of the source."""
    max_length_ratio: float = Field(2.0, ge=0)
    """Most tokens to write for each token of the source; `max_length_offset` comes on top."""
    max_length_offset: int = Field(50, ge=0)
    """Tokens that may be written beyond `max_length_ratio` times the length of the source."""
    unknown: bool = False
    """Whether `<unk>` may be written. The score is the model's own log P either way."""
    temperature: float = Field(1.0, gt=0)
    """Sampling: logits are divided by this; below 1 is more careful, above 1 more daring."""
    top_k: int | None = Field(None, ge=1)
    """Sampling: draw among the k most probable tokens only."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sampling: draw among the fewest most probable tokens that hold this share of the probability, after `top_k`."""
    seed: int = Field(1, ge=0, lt=2**63)
    """Sampling: the same seed and source give the same samples, whatever else is in the batch."""

    @model_validator(mode="before")
    @classmethod
    def _beam_of_sampling(cls, tree: Any) -> Any:
        if isinstance(tree, dict) and tree.get("sample") is True:
            return {"beam": 1} | tree
        return tree

    @field_validator("beam")
    @classmethod
    def _samples_have_no_beam(cls, beam: int, others: ValidationInfo) -> int:
        if others.data.get("sample") and beam > 1:
            raise ValueError(f"samples are drawn one by one, without a beam of {beam}: set beam: 1, or sample: false")
        return beam

    @field_validator("nbest")
    @classmethod
    def _nbest_within_beam(cls, nbest: int, others: ValidationInfo) -> int:
        beam = others.data.get("beam", nbest)
        if others.data.get("sample") is False and nbest > beam:
            raise ValueError(f"a beam of {beam} cannot give the best {nbest}: at most beam, or raise beam to {nbest}")
        return nbest

    @field_validator("max_length")
    @classmethod
    def _room_for_min_length(cls, max_length: int | None, others: ValidationInfo) -> int | None:
        shortest = others.data.get("min_length", 0)
        if max_length is not None and max_length < shortest:
            raise ValueError(f"{max_length} is below min_length, {shortest}")
        return max_length

    @field_validator("temperature", "top_k", "top_p")
    @classmethod
    def _for_samples_only(cls, value: float | int | None, others: ValidationInfo) -> float | int | None:
        name = str(others.field_name)
        # The default may be written out: a run keeps its whole resolved recipe.
        if others.data.get("sample") is False and value != cls.model_fields[name].default:
            raise ValueError(f"only sampling uses {name}: set sample: true, or leave {name} out")
        return value
