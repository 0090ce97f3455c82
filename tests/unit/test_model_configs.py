"""What a model's config accepts, fills in and refuses."""

from typing import get_args

import pytest
import torch

from model_cases import CASES
from regard.config import validate
from regard.errors import ConfigError
from regard.models import MODELS
from regard.models.base import ModelConfig, count_parameters
from regard.models.bert import BERTConfig
from regard.models.captioner import CaptionerConfig
from regard.models.gpt import GPTConfig
from regard.models.lstm_lm import LSTMLanguageModelConfig
from regard.models.luong import LuongConfig
from regard.models.transformer import TransformerConfig
from regard.recipes.recipe import load_recipe


def test_tying_both_sides_needs_one_vocabulary() -> None:
    with pytest.raises(ConfigError, match=r"model\.tie: 'all' needs one vocabulary.*13 and 11"):
        MODELS["rnn"].build(CASES["rnn-gru-reversed"], 13, 11)  # type: ignore[arg-type]


def test_presets_fill_in_and_given_fields_win() -> None:
    base = TransformerConfig(preset="base", heads=16)
    assert (base.width, base.heads, base.feed_forward, base.encoder_layers, base.dropout) == (512, 16, 2048, 6, 0.1)
    assert TransformerConfig(preset="big").dropout == 0.3
    assert TransformerConfig() == TransformerConfig(preset="small")
    assert TransformerConfig.model_validate(base.model_dump()) == base
    tree = {"task": "translation", "data": {"train": {"corpus": "copy"}}, "training": {"steps": 1}}
    asked = tree | {"model": {"kind": "transformer", "preset": "base", "heads": 16}}
    for overrides, width in (([], 512), (["model.preset=tiny"], 128)):
        model = load_recipe(asked, overrides)[0].model
        assert (model.width, model.heads) == (width, 16)


@pytest.mark.parametrize(("config", "sizes", "published"), [
    # table 3: 65 million parameters; 63 million of ours, and a bias a token
    (TransformerConfig(preset="base", tie="all"), (37000, 37000), 63_119_496),
    # 12 layers, 768, 12 heads, 3072, 512 positions: 117 million with the tied softmax
    (GPTConfig(preset="base"), (40478,), 116_534_784),
    # the published encoder with its pooler, and the two heads
    (BERTConfig(preset="base"), (30522,), 109_482_240 + 768 * 768 + 768 + 2 * 768 + 30522 + 2 * 768 + 2),
], ids=["transformer", "gpt", "bert"])  # fmt: skip
def test_base_has_the_published_size(config: ModelConfig, sizes: tuple[int, ...], published: int) -> None:
    with torch.device("meta"):
        model = MODELS[config.kind].build(config, *sizes)
    assert count_parameters(model) == published


@pytest.mark.parametrize("reach", ["local_m", "local_p"])
def test_a_window_that_holds_every_source_whole_is_refused(reach: str) -> None:
    """5 tokens: with 3 to each side the first does not see the last, with 4 it does."""
    LuongConfig(reach=reach, window=3).check_data(longest_source=5)  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"model\.window: 4 positions.*longest has 5 tokens \(at most 3, or model\.reach"
    ):
        LuongConfig(reach=reach, window=4).check_data(longest_source=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"longest has 2 tokens \(model\.reach=global\)"):
        LuongConfig(reach=reach, window=1).check_data(longest_source=2)  # type: ignore[arg-type]
    LuongConfig(reach="global", window=4).check_data(longest_source=5)


@pytest.mark.parametrize("kind", MODELS)
def test_every_preset_of_every_model_can_be_built(kind: str) -> None:
    config = MODELS[kind].config
    assert get_args(config.model_fields["kind"].annotation) == (kind,)
    assert list(config.PRESETS) == list(get_args(config.model_fields["preset"].annotation))
    vocabularies = [1000] * (2 if config.reads == "source" else 1)
    options = {"characters_VC": torch.zeros(1000, 50, dtype=torch.long)} if kind == "elmo" else {}
    sizes = []
    for preset in config.PRESETS:
        with torch.device("meta"):
            model = MODELS[kind].build(
                config.model_validate({"kind": kind, "preset": preset}), *vocabularies, **options
            )
        sizes.append(count_parameters(model))
    assert sizes == sorted(set(sizes)), "each is larger than the one before"


@pytest.mark.parametrize(("config", "given", "where", "what"), [
    (TransformerConfig, {"heads": 3, "width": 16}, "", "3 heads do not divide the width 16"),
    (BERTConfig, {"heads": 3, "width": 16}, "", "3 heads do not divide the width 16"),
    (TransformerConfig, {"width": -1}, "width", "greater than or equal to 1"),
    (TransformerConfig, {"preset": "huge"}, "preset", "'huge' is not allowed"),
    (TransformerConfig, {"preset": ["tiny"]}, "preset", "is not allowed"),
    (TransformerConfig, {"dropout": 1.0}, "dropout", "less than 1"),
    (TransformerConfig, {"hidden": 8}, "hidden", "unknown key 'hidden'"),
    (LuongConfig, {"score": "dot", "bidirectional": True}, "", "(allowed with it: general, concat;"),
    (LuongConfig, {"score": "scaled_dot", "bidirectional": True}, "", "score: scaled_dot multiplies states"),
    (LSTMLanguageModelConfig, {"hidden": 12, "embedding": 10, "layers": 1}, "", "hidden=10 or tie=false"),
    (CaptionerConfig, {"encoder": "features"}, "", "must be given together"),
    (CaptionerConfig, {"feature_width": 3}, "", "must be given together"),
    (CaptionerConfig, {"decoder": "transformer", "width": 10, "heads": 4}, "", "4 heads do not divide"),
])  # fmt: skip
def test_a_config_that_cannot_be(config: type[ModelConfig], given: dict[str, object], where: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(config, given)
    assert [problem.where for problem in caught.value.problems] == [where]
    assert what in caught.value.problems[0].what


def test_no_text_is_longer_than_the_positions_that_are_learned() -> None:
    TransformerConfig(positions="learned", max_positions=12).check_data(12, 12)
    TransformerConfig(positions="sinusoidal", max_positions=12).check_data(25, 13)
    for lengths in ((13, 5), (5, 13)):
        with pytest.raises(ConfigError, match=r"model.max_positions: the longest text takes up 13 positions"):
            TransformerConfig(positions="learned", max_positions=12).check_data(*lengths)
