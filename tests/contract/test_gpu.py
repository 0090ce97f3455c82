"""What only a GPU can show: captured steps, packed sentences, half precision, memory that is full."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from model_cases import CASES, CAUSAL_CASES, build, tokens_of
from regard.errors import ConfigError
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.text.vocabularies import END
from regard.training.train import train

Tree = dict[str, Any]

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def losses(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["event"] == "train"]


def changed(recipe: Tree, model: Tree, **training: Any) -> Tree:
    recipe["model"] = model
    recipe["training"] |= {"device": "cuda", "log_every": 1, **training}
    return recipe


TRANSFORMER = {"kind": "transformer", "preset": "tiny", "width": 32, "heads": 2, "dropout": 0.1}


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("case", CAUSAL_CASES)
def test_a_search_finds_the_same_as_on_a_cpu(case: str, beam: int) -> None:
    """Sentences end at all lengths, since each may be so many times as long as its source."""
    draw, model = random.Random(0), build(CASES[case]).double()
    source = tokens_of([[*(draw.randrange(4, 11) for _ in range(draw.randrange(1, 9))), END] for _ in range(24)])
    config = SearchConfig(beam=beam, nbest=beam, max_length_ratio=2.0, max_length_offset=2, min_length_ratio=1.0)
    expected = search(model, source, config)
    found = search(model.cuda(), source.to("cuda"), config)
    lengths = {len(hypotheses[0].tokens) for hypotheses in expected}
    assert len(lengths) > 3
    for one, other in zip(found, expected, strict=True):
        scores = {hypothesis.tokens: hypothesis.score for hypothesis in other}  # equal ones may change places
        assert {hypothesis.tokens: hypothesis.score for hypothesis in one} == pytest.approx(scores)


@pytest.mark.parametrize("model", [TRANSFORMER, None], ids=["transformer", "bahdanau"])
def test_bf16_learns_what_fp32_learns(tiny_recipe: Tree, tmp_path: Path, model: Tree | None) -> None:
    model = model or tiny_recipe["model"]
    for precision in ("bf16", "fp32"):
        train(changed(tiny_recipe, model, precision=precision, steps=60), out=tmp_path / precision, quiet=True)
    half, full = losses(tmp_path / "bf16"), losses(tmp_path / "fp32")
    assert half[0] == pytest.approx(full[0], rel=0.02)
    assert half[-1] == pytest.approx(full[-1], rel=0.1)
    assert full[-1] < 0.9 * full[0]


def test_fp16_goes_on_with_its_scaler_where_it_was_left(tiny_recipe: Tree, tmp_path: Path) -> None:
    recipe = changed(tiny_recipe, TRANSFORMER, precision="fp16", steps=20, checkpoint_every=10)
    train(recipe, out=tmp_path / "whole", quiet=True)
    train(recipe, ["training.steps=10"], out=tmp_path / "parts", quiet=True)
    train(recipe, out=tmp_path / "parts", resume=True, quiet=True)
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), rel=0.02)


def test_too_large_a_batch_names_one_that_fits_and_auto_finds_it(tiny_recipe: Tree, tmp_path: Path) -> None:
    tiny_recipe["data"]["train"]["size"] = 30_000
    model = TRANSFORMER | {"width": 512, "heads": 8, "feed_forward": 2048}
    limit = 2 * 2**30 / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(limit)
    try:
        with pytest.raises(ConfigError, match="out of memory with batches of 200,000 tokens") as error:
            train(changed(tiny_recipe, model, batch_tokens=200_000, steps=3), out=tmp_path / "large", quiet=True)
        hint = str(error.value)
        assert " fits, and" in hint
        fits = int(hint.split("(")[1].split(" fits")[0])
        train(changed(tiny_recipe, model, batch_tokens=fits, steps=3), out=tmp_path / "named", quiet=True)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert len(losses(tmp_path / "named")) == 3
