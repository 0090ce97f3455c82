"""What the training loop is asked to do."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from regard.config import Config


class TrainingConfig(Config):
    """The recipe's section `training`."""

    steps: int | None = Field(None, ge=1)
    """Updates to make."""
    epochs: int | None = Field(None, ge=1)
    """Passes over the training data; with `steps` given too, the earlier of the two ends the training."""
    batch_tokens: int | Literal["auto"] = "auto"
    """Largest batch: rows times the longest side, in tokens. `auto`: a hundredth of an epoch, from 1,024 to
    16,384 (4,096 on a CPU), or less where the memory holds less."""
    accumulate: int = Field(1, ge=1)
    """Batches a step: their gradients are added up as if they were one batch."""
    init: str | None = None
    """The folder of a run to begin with the best weights of: one of the same model and tokenizer, trained or imported.
    The sections `model` and `tokenizer` may be left out: they are then that run's, as in the recipes on raw text that
    ship, if nothing is said of them."""
    seed: int = Field(1, ge=0, lt=2**63)
    """Seed of the weights, the order of the data, the split and the dropout."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train; `auto` takes a GPU if there is one."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Numbers to compute with; `auto` is bf16 on a GPU that has it, else fp32."""
    compile: bool = False
    """Compile the model with torch.compile: a slow start, faster steps."""

    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """How gradients become updates."""
    learning_rate: float = Field(1e-3, gt=0)
    """The highest learning rate of the schedule."""
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field([0.9, 0.98], min_length=2, max_length=2)
    """Adam's decay rates."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """SGD's momentum."""
    weight_decay: float = Field(0.0, ge=0)
    """Pull of the weights towards zero."""
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant", "plateau"] = "inverse_sqrt"
    """How the learning rate falls after the warm-up; `plateau` halves it when the validation stops improving."""
    warmup: int = Field(0, ge=0)
    """Steps over which the learning rate rises to its highest."""
    plateau_factor: float = Field(0.5, gt=0, lt=1)
    """What `plateau` multiplies the learning rate by."""
    plateau_patience: int = Field(3, ge=0)
    """Validations without a better one that `plateau` waits for."""
    clip: float | None = Field(1.0, gt=0)
    """Largest norm of the gradient; null does not clip."""

    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Share of the probability that the loss spreads over the whole vocabulary."""
    teacher_forcing: float = Field(1.0, ge=0, le=1)
    """Share of the words the decoder reads that are the reference's; the others are its own (scheduled sampling)."""
    ema: float | None = Field(None, gt=0, lt=1)
    """Decay of an exponential average of the weights, which is then what is validated and used."""
    average: int = Field(1, ge=1)
    """Average the weights of the last so many checkpoints at the end; used if it validates better."""

    log_every: int = Field(50, ge=1)
    """Steps between two lines of the log."""
    validate_every: int | None = Field(None, ge=1)
    """Steps between two validations; default: once an epoch."""
    checkpoint_every: int | None = Field(None, ge=1)
    """Steps between two checkpoints; default: with each validation."""
    keep_best: int = Field(1, ge=1)
    """How many of the best checkpoints to keep."""
    best: str = "loss"
    """The validation metric that decides: loss, perplexity, or one of the task's. Of checkpoints that are equal in it
    the one with the lower loss is the best. The schedule `plateau` waits for the metric itself."""
    patience: int | None = Field(None, ge=1)
    """Stop after so many validations without a better one."""
    decode: int = Field(200, ge=0)
    """How many validation examples to decode for the task's metrics; 0 decodes none."""
    samples: int = Field(2, ge=0)
    """How many of them to show."""

    @field_validator("batch_tokens")
    @classmethod
    def _holds_a_token(cls, batch_tokens: int | str) -> int | str:
        if isinstance(batch_tokens, int) and batch_tokens < 1:
            raise ValueError(f"{batch_tokens} is too small (allowed: 1 and more, or auto)")
        return batch_tokens

    @model_validator(mode="after")
    def _has_an_end(self) -> TrainingConfig:
        if self.steps is None and self.epochs is None:
            raise ValueError("say when to stop: give steps, epochs, or both")
        return self
