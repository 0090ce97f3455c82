"""What a model's config accepts, fills in and refuses."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from model_cases import CASES
from regard.config.load import validate
from regard.errors import ConfigError
from regard.models import MODELS, build_model
from regard.models.base import count_parameters
from regard.models.bert import BERTConfig
from regard.models.luong import LuongConfig
from regard.models.transformer import TransformerConfig


def test_tying_both_sides_needs_one_vocabulary() -> None:
    with pytest.raises(ConfigError, match=r"model\.tie: 'all' needs one vocabulary.*13 and 11"):
        build_model(CASES["rnn-gru-reversed"], 13, 11)  # type: ignore[arg-type]


def test_presets_fill_in_and_given_fields_win() -> None:
    base = TransformerConfig(preset="base", heads=16)
    assert (base.width, base.heads, base.feed_forward, base.encoder_layers, base.dropout) == (512, 16, 2048, 6, 0.1)
    assert TransformerConfig(preset="big").dropout == 0.3
    assert TransformerConfig() == TransformerConfig(preset="small")
    written = base.model_dump()
    assert TransformerConfig.model_validate(written) == base


def test_the_papers_base_has_the_papers_size() -> None:
    """65 million parameters, with one vocabulary of 37000 (table 3): 63 million of ours, and a bias a token."""
    with torch.device("meta"):
        model = build_model(TransformerConfig(preset="base", tie="all"), 37000, 37000)
    block = 4 * (512 * 512 + 512), 512 * 2048 + 2048 + 2048 * 512 + 512, 2 * 512
    encoder, decoder = block[0] + block[1] + 2 * block[2], 2 * block[0] + block[1] + 3 * block[2]
    assert count_parameters(model) == 37000 * 512 + 37000 + 6 * (encoder + decoder)


@pytest.mark.parametrize("score", ["dot", "scaled_dot"])
def test_a_product_of_unequal_widths_is_named_with_what_is_allowed(score: str) -> None:
    with pytest.raises(ConfigError, match=rf"score: {score} .* twice as wide.*allowed with it: general, concat"):
        validate(LuongConfig, {"score": score, "bidirectional": True})
    assert validate(LuongConfig, {"score": score}).score == score


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
            model = build_model(config.model_validate({"kind": kind, "preset": preset}), *vocabularies, **options)
        sizes.append(count_parameters(model))
    assert sizes == sorted(set(sizes)), "each is larger than the one before"


SIZES = {  # layers, width, heads, inner width: Devlin 2019, section 3; Turc 2019, table 1
    "tiny": (2, 128, 2, 512),
    "mini": (4, 256, 4, 1024),
    "small": (4, 512, 8, 2048),
    "medium": (8, 512, 8, 2048),
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
}


def test_the_presets_of_bert_have_the_published_sizes() -> None:
    configs = {preset: BERTConfig(preset=preset) for preset in SIZES}  # type: ignore[arg-type]
    found = {name: (one.layers, one.width, one.heads, one.feed_forward) for name, one in configs.items()}
    assert found == SIZES
    with pytest.raises(ConfigError, match="3 heads do not divide the width 16"):
        validate(BERTConfig, {"width": 16, "heads": 3})


@pytest.mark.parametrize(
    ("given", "where", "what"),
    [
        ({"heads": 3, "width": 16}, "", "3 heads do not divide the width 16"),
        ({"width": -1}, "width", "greater than or equal to 1"),
        ({"preset": "huge"}, "preset", "'huge' is not allowed"),
        ({"preset": ["tiny"]}, "preset", "is not allowed"),
        ({"dropout": 1.0}, "dropout", "less than 1"),
        ({"hidden": 8}, "hidden", "unknown key 'hidden'"),
    ],
)
def test_a_wrong_size_is_named(given: dict[str, object], where: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(TransformerConfig, given)
    assert [problem.where for problem in caught.value.problems] == [where]
    assert what in caught.value.problems[0].what


def test_no_text_is_longer_than_the_positions_that_are_learned() -> None:
    TransformerConfig(positions="learned", max_positions=12).check_data(12, 12)
    TransformerConfig(positions="sinusoidal", max_positions=12).check_data(25, 13)
    for lengths in ((13, 5), (5, 13)):
        with pytest.raises(ConfigError, match=r"model.max_positions: the longest text takes up 13 positions"):
            TransformerConfig(positions="learned", max_positions=12).check_data(*lengths)
