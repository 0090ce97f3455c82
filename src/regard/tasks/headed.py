"""What all tasks share whose model is a base under a head: sections of a recipe, the model, what may be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from torch import nn

from regard.config import Config
from regard.data.framing import Framing, Long
from regard.errors import ConfigError
from regard.models import MODELS, any_config, config_of
from regard.models.base import Contextual
from regard.models.headed import HeadConfig, Headed, build_base
from regard.search import SearchConfig
from regard.tasks.inputs import Inputs
from regard.tasks.raw import check_max_length, spelling_options
from regard.tasks.task import Prediction, Task
from regard.text.tokenizers import Tokenizer, Tokenizers

FINE_TUNING: dict[str, Any] = {
    "optimizer": "adamw", "learning_rate": 5e-5, "betas": [0.9, 0.999], "weight_decay": 0.01,
}  # fmt: skip
"""How a pre-trained Transformer is fine-tuned, where the recipe does not say (Devlin et al. 2019, appendix A.3)."""
TRANSFORMERS = ("gpt", "bert")


class NothingToChoose(Config):
    """There is nothing to choose: the metrics need no settings."""


class HeadedTask(Task):
    """A task whose model is a base, pre-trained or fresh, under a head of its own.

    A subclass names `data` (with `max_length`, `stride`, perhaps `long`) and `head`, and says what head there is.
    """

    searches = False
    columns = ("text",)
    evaluation: ClassVar[type[Config]] = NothingToChoose
    model = any_config(lambda config: config.reads == "text")
    head: ClassVar[type[HeadConfig]] = HeadConfig
    """The recipe's section `head`."""
    by_token: ClassVar[bool] = False
    """Whether the head has an answer for each token, instead of one for the text."""
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {"training": {"label_smoothing": 0.0}}

    @classmethod
    def filled(cls, tree: dict[str, Any]) -> dict[str, Any]:
        """A recipe's tree with what suits its model, where it does not say."""
        data, model, head, training = (_section(tree, name) for name in ("data", "model", "head", "training"))
        head = {**config_of(model.get("kind")).head_defaults, **head}
        positions, longest = model.get("max_positions"), cls.data.model_fields["max_length"].default
        if "data" in tree and isinstance(positions, int) and positions < longest:
            tree = tree | {"data": {"max_length": positions} | data}
        if training.get("init") and model.get("kind") in TRANSFORMERS and head.get("freeze") != "all":
            training = FINE_TUNING | training
        training = {"schedule": "linear"} | training
        return tree | {"head": head} | ({"training": training} if "training" in tree else {})

    @classmethod
    def make_head(cls, width: int, recipe: Any) -> nn.Module:
        """The head for vectors of this width, fresh."""
        raise NotImplementedError

    @classmethod
    def labels_of(cls, recipe: Any) -> tuple[str, ...]:
        """What the head's classes are called."""
        return ()

    @classmethod
    def build(cls, recipe: Any, tokenizers: Tokenizers) -> Headed:
        tokenizer = tokenizers["text"]
        base = cls.base(recipe, tokenizer)
        model = Headed(base, recipe.head, lambda width: cls.make_head(width, recipe))
        model.framing, model.labels = cls.framing(recipe, tokenizer), cls.labels_of(recipe)
        return model

    @classmethod
    def base(cls, recipe: Any, tokenizer: Tokenizer) -> Contextual:
        """The model under the head, fresh."""
        keep_readout, options = recipe.head.auxiliary > 0, spelling_options(recipe.model, tokenizer)
        return build_base(recipe.model, tokenizer.size, keep_readout=keep_readout, by_token=cls.by_token, **options)

    @classmethod
    def framing(cls, recipe: Any, tokenizer: Tokenizer) -> Framing:
        """How texts become rows of tokens; data that does not say what is read of a long one is read in windows."""
        data, model = recipe.data, recipe.model
        long: Long = getattr(data, "long", "windows")
        return Framing(tokenizer, model.kind == "bert", data.max_length, long, data.stride, model.letters)

    @classmethod
    def check(cls, recipe: Any, data: Any) -> None:
        check_max_length(recipe.data.max_length, getattr(recipe.model, "max_positions", None), recipe.training.init)
        freeze, kind = recipe.head.freeze, recipe.model.kind
        layers = 1 if kind == "cnn" else recipe.model.layers
        if freeze != "all" and freeze > layers:
            raise ConfigError(f"the model has {layers} layers", where="head.freeze", hint=f"0 to {layers}, or all")
        if recipe.head.auxiliary > 0:
            _check_auxiliary(recipe)

    @classmethod
    def check_inputs(cls, model: Any, tokenizers: Tokenizers, inputs: Inputs, config: SearchConfig) -> None:
        cls.check_texts(model, inputs.texts, inputs.places)

    @classmethod
    def check_texts(cls, model: Any, texts: Sequence[str], places: Sequence[str]) -> None:
        """Refuse inputs that the model cannot read."""
        raise NotImplementedError

    @classmethod
    def predict(
        cls,
        model: Any,
        tokenizers: Tokenizers,
        inputs: Inputs,
        config: SearchConfig,
        *,
        record: bool = False,
        progress: Callable[[int], None] = lambda done: None,
    ) -> Sequence[Prediction]:
        return cls.answers(model, inputs.texts, inputs.places, config.nbest, progress)

    @classmethod
    def answers(
        cls, model: Any, texts: Sequence[str], places: Sequence[str], nbest: int, progress: Callable[[int], None]
    ) -> Sequence[Prediction]:
        """A prediction for each text, or a DecodeError that names those that cannot be read."""
        raise NotImplementedError


def _section(tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = tree.get(name)
    return section if isinstance(section, dict) else {}


def _check_auxiliary(recipe: Any) -> None:
    """The language model's loss is that of the states which the head reads."""
    head = recipe.head
    if not recipe.model.causal:
        what = f"{recipe.model.kind} is no language model that reads from left to right"
        causal = [kind for kind, model in MODELS.items() if model.config.causal]
        raise ConfigError(what, where="head.auxiliary", hint=f"set it to 0, or take {' or '.join(causal)}")
    if head.freeze == "all" or head.features != "last" or head.bilstm is not None:
        what = "the language model's loss needs a head right above a last layer that learns"
        raise ConfigError(what, where="head.auxiliary", hint="features: last, bilstm: null, and freeze below all")
