"""`explain --numbers` for the models whose scores have other terms than a product: each term by plain loops, and
their sum is the score that the model uses."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import regard as api
from regard.views.explanation import Explanation, ViewOptions
from regard.views.worked_attention import WorkedAttention

SIZES = {"layers": 2, "width": 12, "heads": 2, "feed_forward": 16, "max_positions": 40}
MODELS: dict[str, dict[str, Any]] = {
    "mpnet": {"kind": "mpnet", **SIZES, "buckets": 8},
    "deberta": {"kind": "deberta", **SIZES, "buckets": 4},
    "modernbert": {"kind": "modernbert", **SIZES, "window": 4, "global_every": 2, "width": 16},
}
TEXT = "The king saw [MASK] fox in the old house ."


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> dict[str, Explanation]:
    folder = tmp_path_factory.mktemp("encoders")
    found = {}
    for name, model in MODELS.items():
        recipe = {
            "task": "masked_language_modeling",
            "data": {
                "train": {"corpus": "tales-en", "size": 40},
                "validation": {"split": 0.1},
                "max_length": 32,
            },
            "tokenizer": {"vocabulary": 300},
            "model": model,
            "training": {"steps": 2, "device": "cpu", "batch_tokens": 256},
        }
        found[name] = api.explain(api.train(recipe, out=folder / name, quiet=True), TEXT)
    return found


def worked(found: Explanation, layer: int) -> WorkedAttention:
    return found.select(ViewOptions(None, layer=layer, head=2, step=3)).worked()


def dot(one: torch.Tensor, other: torch.Tensor) -> float:
    return sum(a * b for a, b in zip(one.tolist(), other.tolist(), strict=True))


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_the_weights_are_those_of_the_model(
    explained: dict[str, Explanation], name: str, layer: int
) -> None:
    found = explained[name]
    shown = worked(found, layer)
    attention = found.attentions[f"blocks.{layer - 1}.self_attention"]
    assert shown.weights_K.tolist() == pytest.approx(attention.weights[1, 2].tolist(), abs=1e-5)
    hidden = [math.isinf(score) for score in shown.scores_K.tolist()]
    assert hidden == [not sees for sees in attention.visible[2].tolist()]
    assert any(hidden) == (name == "modernbert" and layer == 2), "only its local layers hide keys"


def test_three_terms_of_deberta(explained: dict[str, Explanation]) -> None:
    """Content to content, content to position, position to content: equation 4 with plain loops."""
    found = explained["deberta"]
    shown = worked(found, 1)
    content, to_position, to_content = [*shown.vectors.values()][1:-1]
    block = found.model.blocks[0].self_attention
    q_E = [*shown.query.values()][-1]
    k_KE = shown.vectors["k_j"]
    relative = found.model.relative(len(k_KE))
    r_ZD = relative.vectors_ZD
    k_ZE = block.keys_values(r_ZD[None])[0][0, 1]
    q_ZE = block.queries(r_ZD[None])[0, 1]
    divisor = math.sqrt(3 * len(q_E))
    for j in range(len(k_KE)):
        distance = 2 - j  # of the query, which is the third token
        bucket = (
            distance
            if abs(distance) <= 2
            else math.copysign(
                math.ceil(math.log(abs(distance) / 2) / math.log(39 / 2) * 1) + 2, distance
            )
        )
        row = min(max(int(bucket) + 4, 0), 7)
        assert float(content[j]) == pytest.approx(dot(q_E, k_KE[j]) / divisor, abs=1e-5)
        assert float(to_position[j]) == pytest.approx(dot(q_E, k_ZE[row]) / divisor, abs=1e-5)
        assert float(to_content[j]) == pytest.approx(dot(q_ZE[row], k_KE[j]) / divisor, abs=1e-5)
        total = float(content[j] + to_position[j] + to_content[j])
        assert float(shown.scores_K[j]) == pytest.approx(total, abs=1e-5)
    assert (
        shown.score
        == "e_j = q . k_j / sqrt(18) + q . k_delta / sqrt(18) + q_delta . k_j / sqrt(18)"
    )


def test_the_bias_of_mpnet(explained: dict[str, Explanation]) -> None:
    """Distances 0 and 1 have a bucket each with 8 buckets; keys before and after have their own."""
    found = explained["mpnet"]
    shown = worked(found, 2)
    product, bias = [*shown.vectors.values()][1:-1]
    b = found.model.relative.b.weight.detach()
    q_E = [*shown.query.values()][-1]
    buckets = {1: 1, 2: 0, 3: 5}  # key -> bucket, for the query at 2
    for j, bucket in buckets.items():
        assert float(bias[j]) == pytest.approx(float(b[bucket, 1]), abs=1e-6)
    for j, k_E in enumerate(shown.vectors["k_j"]):
        assert float(product[j]) == pytest.approx(dot(q_E, k_E) / math.sqrt(6), abs=1e-5)


def test_scores_of_modernbert_depend_on_the_distance_alone(
    explained: dict[str, Explanation], tmp_path: Path
) -> None:
    """R_i q . R_j k is q . R_(j - i) k: one rotation by plain loops, with base 160,000 in a global layer."""
    shown = worked(explained["modernbert"], 1)
    q_E = [*shown.query.values()][-1].tolist()
    half = len(q_E) // 2
    for j, k in enumerate(shown.vectors["k_j"].tolist()):
        total = 0.0
        for i in range(half):
            angle = (j - 2) * 160_000.0 ** (-2 * i / len(q_E))
            turned = (
                k[i] * math.cos(angle) - k[i + half] * math.sin(angle),
                k[i + half] * math.cos(angle) + k[i] * math.sin(angle),
            )
            total += q_E[i] * turned[0] + q_E[i + half] * turned[1]
        expected = total / math.sqrt(len(q_E))
        assert float(shown.scores_K[j]) == pytest.approx(expected, abs=1e-5)
