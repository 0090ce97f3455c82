"""The memory network as a language model: its equations in plain loops, and that it learns to look
back."""

import math
from pathlib import Path
from random import Random

import pytest
import torch

from command_line import succeed, write
from language_model_cases import TEXTS, text_batch
from plain import add, dot, linear, lists_of, softmax
from regard.models.memory_lm import MemoryLanguageModel, MemoryLanguageModelConfig

MEMORY = 3


def plain_state(w: dict[str, list], text: list[int], hops: int) -> list[float]:
    """Sukhbaatar et al. 2015, sections 2 and 5: u^{K+1} after a text."""
    memories = text[-MEMORY:][::-1]  # the newest first
    m = [add(w["A.weight"][x], w["T_A_ND"][i]) for i, x in enumerate(memories)]
    c = [add(w["C.weight"][x], w["T_C_ND"][i]) for i, x in enumerate(memories)]
    u = [0.1] * len(w["H.weight"])
    for _ in range(hops):
        p = softmax([dot(u, m_i) for m_i in m])
        o = [math.fsum(p_i * c_i[d] for p_i, c_i in zip(p, c, strict=True)) for d in range(len(u))]
        u = add(linear(u, w["H.weight"]), o)
        u = [max(x, 0.0) if d < len(u) // 2 else x for d, x in enumerate(u)]
    return u


def test_the_equations_in_plain_loops() -> None:
    torch.manual_seed(1)
    config = MemoryLanguageModelConfig(width=5, hops=2, memory=MEMORY)
    model = MemoryLanguageModel(config, 13).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    weights = lists_of(model)
    hidden_BTD = model(text_batch(extra=2, filler=9)).hidden_BTD
    for own, text in zip(hidden_BTD.tolist(), TEXTS, strict=True):
        for t in range(len(text) - 1):
            assert own[t] == pytest.approx(plain_state(weights, text[: t + 1], 2))


def test_it_learns_to_look_back(tmp_path: Path) -> None:
    """The last word of a line is its first one, four words before: a bigram can only guess it, one of
    eight. All else is fixed but for the two words that are drawn."""
    random = Random(1)
    words = "abcdefgh"
    lines = [f"{random.choice(words)} x y {random.choice(words)}" for _ in range(600)]
    text = "".join(f"{line} {line[0]}\n" for line in lines)
    write(tmp_path / "text.txt", text)
    recipe = """
        task: language_modeling
        data: {train: {text: text.txt, documents: lines}, validation: {split: 0.1}, deduplicate: false}
        tokenizer: {kind: word}
        model: {kind: memory_lm, width: 32, hops: 2, memory: 10}
        training: {steps: 250, batch_tokens: 500, learning_rate: 1.0e-2, warmup: 10, validate_every: 250}
    """
    succeed("train", write(tmp_path / "r.yaml", recipe), "--out", tmp_path / "run", "--json")
    found = succeed("score", tmp_path / "run", "c x y d", "c", "--json").json
    assert found["token_scores"][0] > math.log(0.5)
    other = succeed("score", tmp_path / "run", "f x y d", "c", "--json").json
    assert other["token_scores"][0] < math.log(0.2)
    assert succeed("predict", tmp_path / "run", "e x y b", "--beam", "1").out == "e x y b e\n"
