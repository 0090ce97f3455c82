"""Sheets of `regard show`: every number against a plain hand calculation, and the exercise with its
blanks."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import fail, succeed
from regard.errors import RegardError
from regard.views.page import page
from regard.views.render import write_result
from regard.views.report import Figure, Table
from regard.views.sheets import attention, beam, recurrent, sheet, sublayers
from regard.views.sheets.sheet import BLANK, Sheet, asks
from regard.views.show import EQUATIONS, show
from regard.views.terminal import as_text

SHEETS = [name for name in EQUATIONS if isinstance(show(name), Sheet)]


def numbers(name: str, *settings: str) -> dict[str, Any]:
    return show(name, settings).to_json()


def softmax(scores: Sequence[float]) -> list[float]:
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def product(x: Sequence[float], W: Sequence[Sequence[float]]) -> list[float]:
    """x W, for a vector x."""
    return [sum(x[i] * W[i][j] for i in range(len(x))) for j in range(len(W[0]))]


def dot(x: Sequence[float], y: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, atol=1e-5)


# The numbers


def test_self_attention_is_softmax_of_q_k_over_2_times_v() -> None:
    found = numbers("self-attention")
    x = sheet.WORD_VECTORS[:3]
    q, k, v = (
        [product(row, W) for row in x] for W in (attention.W_Q, attention.W_K, attention.W_V)
    )
    near(found["q"], q)
    near(found["k"], k)
    near(found["v"], v)
    scores = [[dot(one, other) for other in k] for one in q]
    near(found["scores"], scores)
    near(found["scaled"], [[score / 2 for score in row] for row in scores])
    weights = [softmax([score / 2 for score in row]) for row in scores]
    near(found["weights"], weights)
    near(found["output"], [product(row, v) for row in weights])


def test_the_kinds_of_attention_hide_only_the_future_of_the_decoder() -> None:
    found = numbers("attention-kinds")
    assert found["visible"] == {
        "encoder self-attention": [[1, 1, 1]] * 3,
        "masked decoder self-attention": [[1, 0, 0], [1, 1, 0], [1, 1, 1]],
        "encoder-decoder attention": [[1, 1, 1]] * 3,
    }
    queries, keys = attention.TARGET_VECTORS[:3], attention.SOURCE_VECTORS
    weights = [softmax([dot(q, k) / math.sqrt(2) for k in keys]) for q in queries]
    near(found["all steps"], weights)
    near(found["step by step"], weights)


def test_attention_steps_are_luongs_equations() -> None:
    found = numbers("attention-steps")
    h, s = recurrent.ENCODER_STATES[:3], recurrent.DECODER_STATE
    scores = [dot(s, state) for state in h]
    weights = softmax(scores)
    context = product(weights, h)
    attentional = [math.tanh(dot(row, [*context, *s])) for row in recurrent.W_C]
    logits = [dot(row, attentional) for row in recurrent.W_S]
    near(found["scores"], scores)
    near(found["weights"], weights)
    near(found["context"], context)
    near(found["attentional state"], attentional)
    near(found["logits"], logits)
    near(found["probabilities"], softmax(logits))


def test_annotations_are_the_states_of_two_plain_rnns() -> None:
    found = numbers("annotation", "we like red apples")
    x = recurrent.INPUTS[:4]

    def states(inputs: Sequence[float]) -> list[float]:
        h = 0.0
        return [h := math.tanh(value + h / 2) for value in inputs]

    forward, backward = states(x), states(x[::-1])[::-1]
    near(found["forward"], forward)
    near(found["backward"], backward)
    near(found["annotations"], [*zip(forward, backward, strict=True)])
    assert found["real shape"] == [1, 4, 256]


def test_layer_norm_uses_the_mean_and_the_variance_of_each_word() -> None:
    found = numbers("layer-norm")
    for place in range(3):
        y = [a + b for a, b in zip(sublayers.BEFORE[place], sublayers.ADDED[place], strict=True)]
        mean = sum(y) / 4
        variance = sum((value - mean) ** 2 for value in y) / 4
        normed = [(value - mean) / math.sqrt(variance + 1e-5) for value in y]
        learned = [
            gamma * value + beta
            for gamma, value, beta in zip(sublayers.GAMMA, normed, sublayers.BETA, strict=True)
        ]
        near(found["sums"][place], y)
        near(found["mean, variance, deviation"][place], [mean, variance, math.sqrt(variance)])
        near(found["normalised"][place], normed)
        near(found["with gamma and beta"][place], learned)


def test_the_feed_forward_layer_is_two_products_and_a_maximum() -> None:
    found = numbers("feed-forward")
    for place, x in enumerate(sublayers.INPUTS[:3]):
        before = [a + b for a, b in zip(product(x, sublayers.W_1), sublayers.B_1, strict=True)]
        inner = [max(0.0, value) for value in before]
        output = [a + b for a, b in zip(product(inner, sublayers.W_2), sublayers.B_2, strict=True)]
        near(found["before the activation"][place], before)
        near(found["inner"][place], inner)
        near(found["output"][place], output)
    assert found["shapes"] == [[1, 3, 512], [1, 3, 2048], [1, 3, 512]]
    assert found["parameters"] == 512 * 2048 + 2048 + 2048 * 512 + 512


def test_what_bert_reads() -> None:
    found = numbers("bert-input")
    expected = "[CLS] i am look ##ing for happiness [SEP] happiness is here [SEP]"
    assert found["tokens"] == expected.split()
    pair, single = found["inputs"]
    assert pair["ids"] == [2, 5, 6, 7, 8, 9, 10, 3, 10, 11, 12, 3]
    assert pair["segments"] == [0] * 8 + [1] * 4
    assert pair["mask"] == [1] * 12
    assert single == {
        "ids": [2, 5, 6, 7, 8, 9, 10, 3, 0, 0, 0, 0],
        "segments": [0] * 12,
        "mask": [1] * 8 + [0] * 4,
    }


def test_embeddings_are_rows_of_three_tables() -> None:
    found = numbers("embeddings")
    assert len(found["tokens"]) == 11
    token, segment, position = found["rows"]
    own = [a + b + c for a, b, c in zip(token, segment, position, strict=True)]
    near(found["sum"][3], own)
    mean = sum(own) / 4
    deviation = math.sqrt(sum((value - mean) ** 2 for value in own) / 4)
    near(found["output"][3], [(value - mean) / deviation for value in own])
    # the same token at another position, in another segment
    both = show("embeddings", ["my dog", "my dog", "position=4"]).to_json()
    again = show("embeddings", ["my dog", "my dog", "position=1"]).to_json()
    assert both["rows"][0] == again["rows"][0]
    assert both["rows"][1] != again["rows"][1]
    assert both["rows"][2] != again["rows"][2]


def test_masking_shows_each_outcome_and_counts_them() -> None:
    found = numbers("masking")
    assert [row[4] for row in found["examples"]] == ["[MASK]", "apple", "hairy"]
    assert all(row[:4] == ["[CLS]", "my", "dog", "is"] for row in found["examples"])
    assert found["tokens"] == 40_000
    assert found["chosen"] / 40_000 == pytest.approx(0.15, abs=0.01)
    shares = {name: count / found["chosen"] for name, count in found["counts"].items()}
    # a random word is the right one in a seventh of the cases
    assert shares["[MASK]"] == pytest.approx(0.8, abs=0.03)
    assert shares["another"] == pytest.approx(0.1 * 6 / 7, abs=0.02)
    assert shares["same"] == pytest.approx(0.1 + 0.1 / 7, abs=0.02)


@pytest.mark.parametrize("corpus", ["tales-en", "tales-ko"])
def test_next_sentences_follow_in_half_of_the_pairs(corpus: str) -> None:
    from regard.data.corpora import generate

    found = numbers("next-sentence", corpus)
    tales = [tale for (tale,) in generate(corpus, 200, 1, "train")]
    labels = [label for *_, label in found["pairs"]]
    assert labels.count("IsNext") == labels.count("NotNext") == 3
    for first, second, label in found["pairs"]:
        in_one = any(f"{first} {second}" in tale for tale in tales)
        assert in_one == (label == "IsNext")
    total = found["IsNext"] + found["NotNext"]
    assert found["IsNext"] / total == pytest.approx(0.5, abs=0.03)


def test_elmo_weighs_and_scales_the_layers() -> None:
    found = numbers("elmo")
    near(found["weights"], [0.2, 0.3, 0.5])
    first = [
        2 * (0.2 * 1 + 0.3 * 2 + 0.5 * 1),
        2 * (0.3 * 1 + 0.5 * 3),
        2 * (0.3 * 1 + 0.5 * 2),
        2 * 0.2,
    ]
    second = [2 * (0.2 - 0.5), 2 * (0.3 * 2 + 0.5), 2 * 0.3, 2 * (0.2 + 0.3 + 1)]
    near(found["vectors"], [first, second])
    cosine = dot(first, second) / math.sqrt(dot(first, first) * dot(second, second))
    near(found["cosine"], [1, cosine])


def test_special_tokens_shift_the_target_by_one() -> None:
    found = numbers("special-tokens")
    assert found["read"] == [
        ["<s>", "▁je", "▁suis", "▁étudiant"],
        ["<s>", "▁merci", "</s>", "<pad>"],
    ]
    assert found["predicted"] == [
        ["▁je", "▁suis", "▁étudiant", "</s>"],
        ["▁merci", "</s>", "<pad>", "<pad>"],
    ]


def test_path_lengths_and_costs() -> None:
    found = numbers("path-length", "length=9", "first=1", "second=8", "width=4", "heads=2")
    assert found["between"] == {"RNN": 7, "CNN": 4, "self-attention": 1}
    assert found["costs"] == {
        "RNN": [9 * 16, 9, 8, 36],
        "CNN": [5 * 9 * 16, 1, 4, 36],
        "self-attention": [81 * 4, 1, 1, 36 + 2 * 81],
    }


def test_the_path_of_a_cnn_is_that_of_torchs() -> None:
    """The gradient of the last word by the first one is 0 with one layer less."""
    import torch
    from torch import nn

    from regard.views.sheets.path_length import convolution_layers

    for distance in (3, 4, 5):
        layers = convolution_layers(distance, 5)
        for depth, reaches in ((layers, True), (layers - 1, False)):
            x = torch.ones(1, 1, distance + 1, requires_grad=True)
            y = x
            for _ in range(depth):
                convolution = nn.Conv1d(1, 1, 5, padding=2, bias=False)
                nn.init.ones_(convolution.weight)
                y = convolution(y)
            y[0, 0, -1].backward()
            assert x.grad is not None
            assert bool(x.grad[0, 0, 0] != 0) == reaches


def test_a_beam_of_two_finds_more_than_greedy_search() -> None:
    found = numbers("beam")
    assert found["output"] == "a dog barks"
    assert found["probability"] == pytest.approx(0.4 * 0.9 * 0.8 * 0.7)
    assert found["greedy"] == "the cat sleeps"
    assert found["greedy probability"] == pytest.approx(0.6 * 0.4 * 0.6 * 0.9)
    assert {step for step, *_ in found["candidates"]} == {1, 2, 3, 4}
    for _, before, word, p, total, _ in found["candidates"]:
        words = [*before.split(), word]
        chances = [beam.NEXT_WORDS[a][b] for a, b in pairwise(words)]
        assert p == pytest.approx(chances[-1], abs=1e-3)
        assert total == pytest.approx(math.prod(chances), abs=1e-3)


def test_every_kind_of_tokenizer_reads_one_sentence() -> None:
    from typing import get_args

    from regard.text.tokenizers import TokenizerConfig

    sentence = "The fox 여우."
    found = numbers("tokenizers", sentence)
    kinds = get_args(TokenizerConfig.model_fields["kind"].annotation)
    text = as_text(show("tokenizers", [sentence]).report(), 200)
    assert all(kind in text for kind in kinds), "one that is not installed is named in a note"
    assert found["character"]["tokens"] == [*sentence.replace(" ", "▁")]
    assert found["byte"]["count"] == len(sentence.encode())
    assert found["byte"]["unknown"] == 0
    assert found["byte"]["decoded"] == sentence
    for row in (found[kind] for kind in kinds if kind in found):
        assert row["count"] == len(row["tokens"])


# The exercise


@pytest.mark.parametrize("name", SHEETS)
def test_an_exercise_hides_what_its_solution_has(name: str) -> None:
    plain = show(name).report()
    exercise = show(name, exercise=True).report()
    solution = show(name, solution=True).report()
    count = sum(cell.asked for cell in _cells(plain.sections))
    assert count > 0, "there is something to compute"
    assert sum(cell.tone == "blank" for cell in _cells(exercise.sections)) == count
    assert sum(cell.tone == "answer" for cell in _cells(solution.sections)) == count
    assert BLANK not in as_text(solution)
    assert not any(isinstance(part, Figure) for one in exercise.sections for part in one.parts)
    both = show(name, exercise=True, solution=True).report()
    assert [section.heading for section in both.sections if section.new_page] == ["Solution"]
    assert sum(cell.tone == "blank" for cell in _cells(both.sections)) == count
    assert sum(cell.tone == "answer" for cell in _cells(both.sections)) == count


def _cells(sections: Any) -> list[Any]:
    parts = [part for section in sections for part in section.parts]
    tables = [part for part in parts if isinstance(part, Table)]
    return [cell for table in tables for row in table.cells for cell in row]


def test_an_exercise_is_a_page_and_a_picture(tmp_path: Path) -> None:
    out = tmp_path / "sheet.html"
    succeed("show", "self-attention", "나는 밥을 먹는다", "--exercise", "--solution", "--out", out)
    html = out.read_text(encoding="utf-8")
    assert html.count('class="new-page side-by-side"') == 1
    assert len(re.findall(r'<td class="number blank">', html)) == 12 + 27 + 12
    assert len(re.findall(r'<td class="number answer">', html)) == 12 + 27 + 12
    write_result(show("layer-norm", exercise=True), tmp_path / "sheet.png")
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_every_sheet_is_korean_where_its_reader_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGARD_LANG", "ko")
    for name in SHEETS:
        html = page(show(name).report())
        headings = re.findall(r"<h[12]>(.*?)</h[12]>", html)
        assert all(re.search("[가-힣]|ELMo", heading) for heading in headings), (name, headings)


def test_a_sheet_asks_only_in_tables() -> None:
    assert not any(asks(part) for part in show("beam").report().figures)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["self-attention", "word"], "1 words; a sheet is for 2 to 6"),
        (["attention-kinds", "a b", "c d", "e f"], "attention-kinds has no such setting"),
        (["embeddings", "position=11"], "there are 11 tokens, at positions 0 to 10"),
        (["bert-input", ""], "a sheet is for texts that are not empty"),
        (["masking", "word=cat"], "the sentence has no token 'cat'"),
        (["next-sentence", "corpus=tales"], "there are no tales 'tales'"),
        (["path-length", "first=8", "second=2"], "the first before the second"),
        (["path-length", "kernel=4"], "a kernel has an odd width"),
        (["beam", "size=9"], "beams of 1 to 4"),
        (["tokenizers", " "], "a sentence of 1 to 200 characters"),
        (["positions", "--exercise"], "positions has no exercise"),
    ],
)
def test_what_cannot_be_a_sheet(arguments: list[str], message: str) -> None:
    assert message in fail("show", *arguments)[0]


def test_a_sentence_with_an_equals_sign_is_named() -> None:
    assert numbers("tokenizers", "sentence=a = b")["sentence"] == "a = b"
    with pytest.raises(RegardError, match="has no such setting"):
        show("tokenizers", ["a=b"])
