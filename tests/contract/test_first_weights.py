"""What a training begins with: the readout knows how often each word is to be written."""

from __future__ import annotations

import math

import pytest
import torch

from model_cases import CASES, build
from regard.data.dataset import Dataset
from regard.layers.embeddings import Readout
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers
from task_cases import make_task


def test_the_bias_is_the_log_of_the_smoothed_frequencies() -> None:
    readout = Readout(2, 4, None)
    readout.initialise_bias(torch.tensor([0, 1, 3, 0]))
    torch.testing.assert_close(readout.linear.bias.detach(), torch.tensor([1 / 8, 2 / 8, 4 / 8, 1 / 8]).log())


def test_target_tokens_are_counted_with_the_end_of_each_example() -> None:
    tokenizer = Tokenizer.train(TokenizerConfig(kind="character"), ["ab"])
    texts = {"source": ["a", "b"], "target": ["aab", "a"]}
    task = make_task("translation", Tokenizers({"source": tokenizer, "target": tokenizer}))
    dataset = Dataset.of(task, texts, str)
    model = build(CASES["luong-fed"])
    model.output = Readout(2, tokenizer.size, None)
    task.first_weights(model, dataset)
    [a], [b] = tokenizer.encode("a"), tokenizer.encode("b")
    smoothed = 4 + 2 + 3 + (tokenizer.size - 3)  # three a, one b, two </s>, one more for each token
    bias = model.output.linear.bias.tolist()
    found = {token: math.exp(bias[token]) for token in (a, b, tokenizer.end, tokenizer.pad)}
    expected = {a: 4 / smoothed, b: 2 / smoothed, tokenizer.end: 3 / smoothed, tokenizer.pad: 1 / smoothed}
    assert found == pytest.approx(expected)
