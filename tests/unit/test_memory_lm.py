"""The memory network over past words against the paper's equations in plain loops, and through the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from command_line import succeed, write
from language_model_cases import build, next_logits, text_batch
from model_cases import close
from regard.models.memory_lm import MemoryLanguageModel, MemoryLanguageModelConfig, half_relu

TEXT = [2, 4, 5, 6, 7, 4, 12, 9, 3]


def model_of(**fields: int) -> MemoryLanguageModel:
    model = build(MemoryLanguageModelConfig(**fields))
    assert isinstance(model, MemoryLanguageModel)
    return model


def plain_logits(model: MemoryLanguageModel, past: list[int]) -> list[float]:
    """Section 5 of the paper, for the word after `past`."""
    d, told = model.config.width, past[::-1][: model.config.words]
    A, C, T_A, T_C = (table.weight.tolist() for table in (model.A, model.C, model.T_A, model.T_C))
    H, W = model.H.weight.tolist(), model.output.linear.weight.tolist()
    m = [[A[word][k] + T_A[i][k] for k in range(d)] for i, word in enumerate(told)]
    c = [[C[word][k] + T_C[i][k] for k in range(d)] for i, word in enumerate(told)]
    u = [0.1] * d
    for _ in range(model.config.hops):
        scores = [sum(u[k] * one[k] for k in range(d)) for one in m]
        total = sum(math.exp(score) for score in scores)
        p = [math.exp(score) / total for score in scores]
        o = [sum(p[i] * c[i][k] for i in range(len(told))) for k in range(d)]
        u = [sum(H[e][k] * u[k] for k in range(d)) + o[e] for e in range(d)]
        u = [x if k < (d + 1) // 2 else max(x, 0.0) for k, x in enumerate(u)]
    return [sum(row[k] * u[k] for k in range(d)) for row in W]


@pytest.mark.parametrize("fields", [{"width": 6, "hops": 3, "words": 20}, {"width": 5, "hops": 2, "words": 3}], ids=str)
def test_equations_in_plain_loops(fields: dict[str, int]) -> None:
    model = model_of(**fields)
    logits_TV = next_logits(model, text_batch([TEXT]))[0]
    for place in range(1, len(TEXT)):
        expected = torch.tensor(plain_logits(model, TEXT[:place]), dtype=torch.float64)
        close(logits_TV[place - 1], expected)


def test_the_hops_share_their_weights() -> None:
    """Layer-wise tying: more hops, the same tables."""
    shapes = [{name: p.shape for name, p in model_of(width=6, hops=hops).named_parameters()} for hops in (1, 5)]
    assert shapes[0] == shapes[1]
    assert set(shapes[0]) == {"A.weight", "C.weight", "T_A.weight", "T_C.weight", "H.weight", "output.linear.weight"}


def test_what_the_memory_does_not_hold_is_forgotten() -> None:
    model, other = model_of(width=6, hops=2, words=3), [2, 8, 8, *TEXT[3:]]
    logits, changed = (next_logits(model, text_batch([text]))[0] for text in (TEXT, other))
    close(logits[5:], changed[5:], 1e-13)
    assert (logits[:5] - changed[:5]).abs().amax(-1)[1:].min() > 1e-9


@pytest.mark.parametrize("words", [3, 20])
def test_writing_goes_on_from_a_full_memory(words: int) -> None:
    model = model_of(width=6, hops=2, words=words)
    text = text_batch([TEXT[:5]]).text
    logits_RV, state = model.step(torch.tensor([0]), model.begin(text, 1, 10))
    found = [logits_RV]
    for word in TEXT[5:]:
        logits_RV, state = model.step(torch.tensor([word]), state)
        found.append(logits_RV)
    for place, logits_RV in enumerate(found, 5):
        close(logits_RV[0], torch.tensor(plain_logits(model, TEXT[:place]), dtype=torch.float64))


def test_half_of_the_units_are_rectified() -> None:
    assert half_relu(torch.tensor([-1.0, 2.0, -3.0, -4.0, 5.0])).tolist() == [-1.0, 2.0, -3.0, 0.0, 5.0]


def test_it_learns_to_look_back_through_the_command_line(tmp_path: Path) -> None:
    """Each text says a word, three others and the word again: only who looks four words back knows it."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randint(0, 20, (700, 4), generator=generator).tolist()
    texts = [" ".join("abcdefghijklmnopqrst"[word] for word in [*row, row[0]]) for row in drawn]
    write(tmp_path / "train.jsonl", "\n".join(json.dumps({"text": text}) for text in texts))
    recipe = {
        "task": "language_modeling",
        "data": {"train": {"file": "train.jsonl", "text": "text"}, "validation": {"split": 0.2}},
        "tokenizer": {"kind": "word"},
        "model": {"kind": "memory_lm", "width": 32, "hops": 2, "words": 8},
        "training": {
            "steps": 500,
            "batch_tokens": 256,
            "validate_every": 250,
            "decode": 0,
            "learning_rate": 0.01,
            "schedule": "cosine",
        },
    }
    run = tmp_path / "run"
    succeed("train", write(tmp_path / "recipe.yaml", json.dumps(recipe)), "--out", run, "--json")
    found = succeed("evaluate", run, "--json", "--split", "validation").json
    guess = math.exp(4 * math.log(20) / 6)  # four free words, then the first again and the end, which are certain
    assert found["perplexity"] < 1.25 * guess < 20**0.9
    written = succeed("predict", run, "d h l c", "--json", "--beam", "1").json
    assert written["output"] == "d h l c d"
