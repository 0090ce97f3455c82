"""Language models: GPT, the LSTM, ELMo and BERT against plain loops; what each sees, carries on,
drops and computes.

The contract is in contract/test_models.py, other implementations are in
reference/test_against_transformers.py.
"""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import plain
from language_model_cases import (
    CASES,
    DROPOUTS,
    ELMO,
    FOLLOWS,
    LABELS,
    LSTM,
    MASK,
    PAIRS,
    PLACES,
    TEXTS,
    masked_batch,
    text_batch,
)
from model_cases import SOURCE_SIZE, WORDS, build, close, each_real, logits_of, randn, tokens_of
from regard.data.batches import MaskedBatch, Padded, spelled
from regard.engine.recurrence import contiguous_weights
from regard.errors import DecodeError
from regard.layers.recurrence import LSTMLayer
from regard.models.elmo import CharacterCNN, ELMoConfig
from regard.models.gpt import GPT, GPTConfig
from regard.models.headed import HeadConfig, Headed, TokenHead
from regard.models.lstm_lm import (
    LockedDropout,
    LSTMLanguageModel,
    LSTMLanguageModelConfig,
)
from regard.objectives.language_model import (
    BothDirections,
    CarriedNextToken,
    MaskedTokens,
    NextToken,
    SequenceAutoencoder,
    masked_sums,
)
from regard.text.spelling import CHARACTER_IDS, WORD_BEGINS, WORD_ENDS
from regard.text.vocabularies import BEGIN, END

# GPT


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_weights_begin_as_published(norm: str) -> None:
    torch.manual_seed(0)
    model = GPT(GPTConfig(preset="tiny", norm=norm), 500)  # type: ignore[arg-type]
    added = 0.02 / 2 if norm == "pre" else 0.02  # 2 layers with 2 sub-layers each: 1 / sqrt(4)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert torch.all(parameter == 1), name
        else:
            expected = added if name.endswith(("W_O.weight", "W_2.weight")) else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.05), name


def test_a_text_longer_than_the_positions_is_the_users_mistake() -> None:
    model = build(CASES["gpt"])
    assert model.longest == 20
    with pytest.raises(DecodeError, match="21 tokens, but the model learned 20 positions"):
        logits_of(model, text_batch([[BEGIN, *[5] * 20, END]]))
    logits_of(model, text_batch([[BEGIN, *[5] * 19, END]]))
    with torch.no_grad():
        _, state = model.step(
            torch.tensor([BEGIN]), model.begin(tokens_of([[BEGIN, *[5] * 18]]), 1, 5)
        )
        _, state = model.step(torch.tensor([5]), state)
        with pytest.raises(DecodeError, match="21 tokens, but the model learned 20 positions"):
            model.step(torch.tensor([5]), state)


def test_a_long_text_that_was_left_behind_limits_no_other() -> None:
    model = build(CASES["gpt"])
    with torch.no_grad():
        state = model.begin(tokens_of([[BEGIN, *[5] * 18], [BEGIN, 4]]), 1, 5).select(
            torch.tensor([[1]])
        )
        _, state = model.step(torch.tensor([BEGIN]), state)
        steps = []
        for token in (7, 8, 9):
            logits_RV, state = model.step(torch.tensor([token]), state)
            steps.append(logits_RV)
    close(torch.cat(steps), logits_of(model, text_batch([[BEGIN, 4, 7, 8, 9, END]]))[0, -3:])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="steps are captured on a GPU only")
@pytest.mark.parametrize("case", ["gpt", "gpt-pre"])
def test_captured_steps_are_the_steps(case: str) -> None:
    model = build(CASES[case].model_copy(update={"max_positions": 80})).cuda()
    prompts, tokens_TR = (
        [[BEGIN, 4, 5], [BEGIN]],
        torch.randint(4, SOURCE_SIZE, (50, 4), device="cuda"),
    )

    def run() -> torch.Tensor:
        state, logits = model.begin(tokens_of(prompts).to("cuda"), 2, 60), []
        for number, tokens_R in enumerate(tokens_TR):
            logits_RV, state = model.step(tokens_R, state)
            logits.append(logits_RV)
            if number == 20:
                state = state.select(torch.tensor([[1, 0], [3, 2]], device="cuda"))
        return torch.stack(logits)

    with torch.no_grad():
        eager = run()
    with torch.inference_mode():
        captured = run()
    close(captured, eager, 1e-9)


# The LSTM

LSTM_CASES = [name for name in CASES if name.startswith("lstm_lm")]


def layer(**options: float) -> LSTMLayer:
    torch.manual_seed(0)
    return LSTMLayer(3, 5, **options).double()  # type: ignore[arg-type]


@pytest.mark.parametrize("projection", [None, 2])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_the_layer_in_plain_loops(projection: int | None, clip: float | None) -> None:
    lstm = layer(projection=projection, clip=clip)
    x_BLD, first_h_BD, first_c_BD = (
        3 * randn(2, 6, 3),
        randn(2, lstm.width),
        randn(2, 5).clamp(-0.1, 0.1),
    )
    h_BLD, (h_BD, c_BD) = lstm(x_BLD, (first_h_BD, first_c_BD))
    w = {name: parameter.tolist() for name, parameter in lstm.named_parameters()}
    cell = {
        "weight_ih": w["W_ih"],
        "weight_hh": w["W_hh"],
        "bias_ih": w["b_ih"],
        "bias_hh": w["b_hh"],
    }
    clipped = 0
    for b in range(2):
        h, c = first_h_BD[b].tolist(), first_c_BD[b].tolist()
        for t, x in enumerate(x_BLD[b].tolist()):
            h, c = plain.lstm_cell(cell, x, [h, c], clip or math.inf)
            h = plain.linear(h, w["W_hr"]) if projection else h
            clipped += sum(abs(memory) == clip for memory in c)
            assert h_BLD[b, t].tolist() == pytest.approx(h)
        assert h_BD[b].tolist() == pytest.approx(h)
        assert c_BD[b].tolist() == pytest.approx(c)
    assert (clipped > 10) == (clip is not None)


def test_each_of_unequal_texts_remembers_its_own_end() -> None:
    lstm, text = layer(), tokens_of(TEXTS, extra=2)
    x_BLD, h_BD, c_BD = randn(4, 10, 3), randn(4, 5), randn(4, 5)
    h_BLD, (last_h_BD, last_c_BD) = lstm.read(x_BLD, text, (h_BD, c_BD))
    for row, one in enumerate(TEXTS):
        alone, (h_1D, c_1D) = lstm(
            x_BLD[row : row + 1, : len(one)], (h_BD[row : row + 1], c_BD[row : row + 1])
        )
        close(h_BLD[row, : len(one)], alone[0])
        close(last_h_BD[row], h_1D[0])
        close(last_c_BD[row], c_1D[0])
        assert not h_BLD[row, len(one) :].any()


@pytest.mark.parametrize("projection", [None, 2])
def test_weights_side_by_side_are_the_weights(projection: int | None) -> None:
    """In one piece of memory, the matrices before the biases, and gradients go back to each."""
    lstm = layer(projection=projection)
    weights = [parameter for _, parameter in lstm.named_parameters()]
    together = contiguous_weights(weights)
    assert all(torch.equal(one, other) for one, other in zip(together, weights, strict=True))
    assert len({one.untyped_storage().data_ptr() for one in together}) == 1
    places = sorted((one.storage_offset(), one.dim(), one.numel()) for one in together)
    assert [dim for _, dim, _ in places] == sorted((one.dim() for one in weights), reverse=True)
    assert all(
        place + size == after for (place, _, size), (after, _, _) in itertools.pairwise(places)
    )
    sum(number * one.sum() for number, one in enumerate(together, 1)).backward()  # type: ignore[union-attr]
    assert [float(one.grad.mean()) for one in weights if one.grad is not None] == list(
        range(1, len(weights) + 1)
    )


@pytest.mark.parametrize("case", LSTM_CASES)
def test_carried_state_equals_one_long_pass(case: str) -> None:
    """Blocks of unequal width, each beginning with the last token of the block before, for two
    streams at once."""
    model = build(CASES[case])
    streams = torch.randint(
        4, SOURCE_SIZE, (2, 20), generator=torch.Generator().manual_seed(0)
    ).tolist()
    whole = model(text_batch(streams)).hidden_BTD
    objective, total = CarriedNextToken(model), torch.zeros(2, dtype=torch.float64)
    carry, parts = None, []
    for first, last in ((0, 6), (6, 7), (7, 19)):
        batch = text_batch([stream[first : last + 1] for stream in streams], carries=first > 0)
        parts.append(model(batch, carry).hidden_BTD)
        loss_2, carry = objective(batch, carry)
        total += loss_2.detach()
    close(torch.cat(parts, 1), whole)
    close(total, NextToken(model)(text_batch(streams)))
    forgotten = model(text_batch([stream[7:] for stream in streams])).hidden_BTD
    assert (forgotten - parts[2]).abs().max() > 1e-3, "the state matters"


def test_what_is_carried_has_no_gradient_and_only_a_batch_that_carries_on_reads_it() -> None:
    model, batch = build(CASES["lstm_lm"]), text_batch([TEXTS[0]])
    objective = CarriedNextToken(model)
    first, carry = objective(batch)
    assert not any(part.requires_grad for layer_carry in carry for part in layer_carry)
    assert model(batch).carry[0][0].requires_grad, "the model itself does not cut it"
    close(objective(batch, carry)[0], first)
    assert (objective(replace(batch, carries=True), carry)[0] - first).abs().min() > 1e-3


def dropped(**rates: float) -> LSTMLanguageModel:
    return build(LSTMLanguageModelConfig(**{**LSTM, **rates})).train()  # type: ignore[no-any-return]


@pytest.mark.parametrize("rate", DROPOUTS)
def test_each_dropout_is_drawn_in_training_only(rate: str) -> None:
    model, batch = dropped(**{rate: 0.5}), text_batch()
    assert not torch.equal(model(batch).hidden_BTD, model(batch).hidden_BTD)
    model.eval()
    close(model(batch).hidden_BTD, dropped()(batch).hidden_BTD)


def test_whole_words_are_dropped_wherever_they_stand() -> None:
    model, ids_BL = dropped(word_dropout=0.5), torch.arange(SOURCE_SIZE).repeat(40, 2)
    x_BLD, vectors_VD = (
        model.embed(ids_BL),
        model.embedding.weight,
    )
    kept_BL = x_BLD.abs().amax(-1) > 0
    assert torch.equal(kept_BL, kept_BL[:1, :SOURCE_SIZE].repeat(40, 2)), (
        "all rows and places of a word alike"
    )
    assert 0 < int(kept_BL[0].sum()) < 2 * SOURCE_SIZE
    close(x_BLD[kept_BL], 2 * vectors_VD[ids_BL[kept_BL]])


def test_locked_dropout_is_one_mask_a_row() -> None:
    torch.manual_seed(0)
    x_BLD = LockedDropout(0.25)(torch.ones(300, 5, 20))
    assert torch.equal(x_BLD, x_BLD[:, :1].expand(-1, 5, -1))
    assert x_BLD.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert abs(float((x_BLD[:, 0] == 0).double().mean()) - 0.25) < 4 * (0.25 * 0.75 / 6000) ** 0.5


def test_dropped_weights_are_those_of_the_state_and_the_same_at_all_steps() -> None:
    """With one weight dropped or doubled by hand the result is one of those that training gives."""
    lstm = LSTMLayer(1, 1, weight_dropout=0.5).double().train()
    x_BLD = torch.randn(1, 6, 1, dtype=torch.float64)

    def with_factors(factors: tuple[float, ...]) -> Tensor:
        by_hand = LSTMLayer(1, 1).double()
        by_hand.load_state_dict(lstm.state_dict())
        with torch.no_grad():
            by_hand.W_hh.mul_(torch.tensor(factors, dtype=torch.float64)[:, None])
        return by_hand(x_BLD)[0].detach()

    possible = [
        with_factors(factors)
        for factors in torch.cartesian_prod(*[torch.tensor([0.0, 2.0])] * 4).tolist()
    ]
    found = set()
    for _ in range(60):
        actual = lstm(x_BLD)[0].detach()
        [number] = [
            number for number, one in enumerate(possible) if torch.allclose(one, actual, atol=1e-12)
        ]
        found.add(number)
    assert len(found) > 8


@pytest.mark.parametrize("case", LSTM_CASES)
def test_the_autoencoder_writes_from_what_it_has_read(case: str) -> None:
    model, batch = build(CASES[case]), text_batch(extra=2, filler=9)
    logits = model.readout(model.reconstruct(batch).hidden_BTD)
    total = 0.0
    for text, actual in zip(TEXTS, each_real(logits, TEXTS), strict=True):
        _, memory = model.read(tokens_of([text]))
        expected = model.readout(model.read(tokens_of([text]).inputs, memory)[0][-1])[0]
        close(actual, expected)
        total += plain.smoothed_loss(expected.tolist(), text[1:], 0.0)
    assert SequenceAutoencoder(model)(batch)[1].item() == pytest.approx(total)


# ELMo

FROZEN_MIX = HeadConfig(features="mix", freeze="all")
ELMO_CASES = [name for name in CASES if name.startswith("elmo")]
every_elmo = pytest.mark.parametrize("case", ELMO_CASES)


def test_words_are_spelled_in_bytes_between_two_ends() -> None:
    table = spelled(["a", "나", "abcdef"], 6)
    b, e = WORD_BEGINS, WORD_ENDS
    assert table.tolist() == [
        [b, 98, e, 0, 0, 0],
        [b, 1 + 0xEB, 1 + 0x82, 1 + 0x98, e, 0],
        [b, 98, 99, 100, 101, e],
    ]


@given(st.lists(st.text(max_size=8), min_size=1, max_size=6, unique=True))
def test_every_text_can_be_spelled_and_no_two_alike(words: list[str]) -> None:
    table = spelled(words, 50)
    assert int(table.max()) < CHARACTER_IDS
    assert len({tuple(row) for row in table.tolist()}) == len(words)


def plain_highway(w: plain.Weights, y: list[float]) -> list[float]:
    """t * relu(W_H y + b_H) + (1 - t) * y, number by number."""
    gates = [plain.sigmoid(x) for x in plain.linear(y, w["W_T.weight"], w["W_T.bias"])]
    through = [max(0.0, x) for x in plain.linear(y, w["W_H.weight"], w["W_H.bias"])]
    return [t * x + (1 - t) * y_d for t, x, y_d in zip(gates, through, y, strict=True)]


def test_words_from_characters_in_plain_loops() -> None:
    """Words shorter than a filter among them: <s> with its ends has 5 characters, "a" has 3, the
    widest filter 7."""
    torch.manual_seed(0)
    cnn = CharacterCNN(
        ELMoConfig(characters=3, filters=64, highway=2, width=7), spelled(WORDS, 12)
    ).double()
    highways = [
        {name: weight.tolist() for name, weight in layer.named_parameters()}
        for layer in cnn.highway
    ]
    assert highways[0]["W_T.bias"] == [-2.0] * 64, "at first nearly all passes"
    vectors = cnn.embedding.weight.tolist()
    assert vectors[0] == [0.0] * 3
    actual = cnn(torch.arange(SOURCE_SIZE)[None])[0]
    for word, row in enumerate(cnn.characters_VC.tolist()):
        letters = [vectors[character] for character in row if character]
        y = []
        for convolution in cnn.convolutions:
            width = convolution.kernel_size[0]
            H, b = convolution.weight.tolist(), convolution.bias.tolist()  # type: ignore[union-attr]
            filled = letters + [[0.0] * 3] * max(0, width - len(letters))
            for k in range(len(H)):
                f = [
                    b[k]
                    + sum(H[k][e][j] * filled[i + j][e] for j in range(width) for e in range(3))
                    for i in range(len(filled) - width + 1)
                ]
                y.append(max(0.0, *f))
        for weights in highways:
            y = plain_highway(weights, y)
        expected = plain.linear(y, cnn.projection.weight.tolist(), cnn.projection.bias.tolist())
        assert actual[word].tolist() == pytest.approx(expected), WORDS[word]


def test_the_spelling_travels_with_the_model_but_not_with_its_weights() -> None:
    model = build(CASES["elmo"])
    assert not any("characters_VC" in name for name in model.state_dict())
    assert (
        dict(model.named_buffers())["embedding.characters_VC"].tolist()
        == spelled(WORDS, 12).tolist()
    )


@every_elmo
def test_forward_sees_nothing_to_the_right_and_backward_nothing_to_the_left(case: str) -> None:
    model, text = build(CASES[case]), [BEGIN, 4, 5, 6, 7, 8, END]
    before = model(text_batch([text]))
    for changed in range(1, len(text) - 1):
        after = model(text_batch([[*text[:changed], 12, *text[changed + 1 :]]]))
        moved_forward_L = (after.hidden_BTD - before.hidden_BTD)[0].abs().amax(-1)
        moved_backward_L = (after.backward_BLD - before.backward_BLD)[0].abs().amax(-1)
        assert moved_forward_L[:changed].max() < 1e-13
        assert moved_forward_L[changed:].min() > 1e-10
        assert moved_backward_L[changed + 1 :].max() < 1e-13
        assert moved_backward_L[: changed + 1].min() > 1e-10


@every_elmo
def test_the_backward_direction_is_a_forward_one_over_the_text_read_backwards(case: str) -> None:
    model, batch = build(CASES[case]), text_batch(extra=2, filler=9)
    backward = each_real(model(batch).backward_BLD, TEXTS, without=0)
    model.forward_layers, model.backward_layers = model.backward_layers, model.forward_layers
    for text, expected in zip(TEXTS, backward, strict=True):
        close(model(text_batch([text[::-1]])).hidden_BTD[0].flip(0), expected)


@every_elmo
def test_the_joint_loss_in_plain_loops(case: str) -> None:
    model, batch = build(CASES[case]), text_batch(extra=2, filler=7)
    output = model(batch)
    forward = backward = 0.0
    for row, text in enumerate(TEXTS):
        last = len(text) - 1
        forward += plain.smoothed_loss(
            model.readout(output.hidden_BTD[row, :last]).tolist(), text[1:], 0.0
        )
        backward += plain.smoothed_loss(
            model.readout(output.backward_BLD[row, 1 : last + 1]).tolist(), text[:-1], 0.0
        )
    objective = BothDirections(model)
    directions, _ = objective.predicted(batch)
    assert [objective.total(*predicted)[1].item() for predicted in directions] == pytest.approx(
        [forward, backward]
    )
    assert objective(batch).tolist() == pytest.approx([(forward + backward) / 2] * 2)


@every_elmo
def test_all_layers_but_the_first_add_what_they_read(case: str) -> None:
    model, batch = build(CASES[case]), text_batch([TEXTS[0]])
    layers = model.layers_of(batch)
    width = CASES[case].width  # type: ignore[attr-defined]
    close(layers[0], torch.cat([model.embedding(batch.text.ids_BL)] * 2, -1))
    read_BLD = layers[0][..., :width]
    for number, layer in enumerate(model.forward_layers):
        out_BLD = layer(read_BLD)[0]
        read_BLD = out_BLD + read_BLD if number else out_BLD
        close(layers[number + 1][..., :width], read_BLD)


@pytest.mark.parametrize("case", [*ELMO_CASES, "gpt", "gpt-pre"])
def test_the_mix_of_a_models_layers_is_the_equation(case: str) -> None:
    model, batch = build(CASES[case]), text_batch(extra=1)
    layers = model.layers_of(batch)
    headed = Headed(model, FROZEN_MIX, lambda width: TokenHead(width, 2, dropout=0.0)).double()
    assert headed.mix is not None
    with torch.no_grad():
        headed.mix.s.normal_()
        headed.mix.gamma.fill_(0.7)
    weights = plain.softmax(headed.mix.s.tolist())
    out_BLD = headed.states(batch)
    for row, text in enumerate(TEXTS):
        for place in range(len(text)):
            vectors = [layer[row, place].tolist() for layer in layers]
            expected = [0.7 * value for value in plain.average(weights, vectors)]
            assert out_BLD[row, place].tolist() == pytest.approx(expected)


def test_a_frozen_base_has_no_dropout_and_nothing_to_learn() -> None:
    """That of the base not a bit changes in a training, and the mix does, stands in
    test_fine_tuning.py."""
    base = build(ELMoConfig(**{**ELMO, "dropout": 0.5}), dtype=torch.float32)
    model = Headed(base, FROZEN_MIX, lambda width: TokenHead(width, 2, dropout=0.0)).train()
    assert not base.training
    model(text_batch()).square().sum().backward()
    learned = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert learned == {"mix.s", "mix.gamma", "head.linear.weight", "head.linear.bias"}
    assert not any(parameter.requires_grad for parameter in base.parameters())


# BERT


def planted(batch: MaskedBatch, row: int, place: int, token: int) -> MaskedBatch:
    ids_BL = batch.text.ids_BL.clone()
    ids_BL[row, place] = token
    return replace(batch, text=Padded.of(ids_BL, batch.text.lengths_B))


def test_a_masked_position_sees_all_of_its_text_and_not_its_answer() -> None:
    model, batch = build(CASES["bert"]), masked_batch()
    before = logits_of(model, batch)
    place = PLACES[0][0]
    assert batch.text.ids_BL[0, place] == MASK
    for other in range(len(PAIRS[0])):
        after = logits_of(model, planted(batch, 0, other, 12))
        assert (after[0, place] - before[0, place]).abs().max() > 1e-6, (
            f"position {other} is not seen"
        )
        close(after[1:], before[1:], 1e-13)
    answered = replace(batch, labels_P=torch.tensor([9, 9, 9, 9, 9]))
    assert torch.equal(logits_of(model, answered), before), "the model reads no labels"


def test_logits_are_made_for_masked_positions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = build(CASES["bert"]), []
    readout = model.readout
    monkeypatch.setattr(
        model, "readout", lambda hidden: seen.append(hidden.shape) or readout(hidden)
    )
    MaskedTokens(model)(masked_batch())[0].backward()
    assert seen == [(5, 16)]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_two_losses_weigh_by_their_means(smoothing: float) -> None:
    model, batch = build(CASES["bert"]), masked_batch(extra=1, filler=9)
    hidden_BLD = model(batch).hidden_BTD
    next_logits = model.next_sentence(hidden_BLD).tolist()
    next_mean = plain.smoothed_loss(next_logits, [1 - follows for follows in FOLLOWS], 0.0) / 3
    masked, labels = (
        model.readout(hidden_BLD.flatten(0, 1)[batch.places_P]).tolist(),
        batch.labels_P.tolist(),
    )
    smoothed, plainly = (
        plain.smoothed_loss(masked, labels, epsilon) for epsilon in (smoothing, 0.0)
    )
    objective = MaskedTokens(model, smoothing).train()
    found = (objective(batch) / batch.tokens).tolist()
    assert found == pytest.approx([smoothed / 5 + next_mean, plainly / 5])
    objective.weight = 0.0
    assert (objective(batch) / batch.tokens).tolist() == pytest.approx([next_mean, plainly / 5])
    objective.weight = 1.0
    unasked = objective(replace(batch, follows_B=None))
    assert (unasked / batch.tokens).tolist() == pytest.approx([smoothed / 5, plainly / 5])


def test_the_first_token_alone_tells_whether_a_sentence_follows() -> None:
    model = build(CASES["bert"])
    hidden_BLD = randn(2, 5, 16)
    w = {name: parameter.tolist() for name, parameter in model.next_sentence.named_parameters()}
    pooled = [
        math.tanh(x)
        for x in plain.linear(hidden_BLD[0, 0].tolist(), w["pooler.weight"], w["pooler.bias"])
    ]
    assert model.next_sentence.pool(hidden_BLD)[0].tolist() == pytest.approx(pooled)
    expected = plain.linear(pooled, w["output.weight"], w["output.bias"])
    assert model.next_sentence(hidden_BLD)[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("case", ["bert", "bert-masked-only"])
def test_sums_by_hand(case: str) -> None:
    model, batch = build(CASES[case]), masked_batch()
    sums = masked_sums(model, batch)
    logits_BLV = logits_of(model, batch)
    asked = [
        (row, place, label)
        for row in range(3)
        for place, label in zip(PLACES[row], LABELS[row], strict=True)
    ]
    correct = sum(int(logits_BLV[row, place].argmax()) == label for row, place, label in asked)
    assert (sums["masked"], sums["correct"]) == (5, correct)
    assert sums["loss"] == pytest.approx(MaskedTokens(model)(batch)[1].item())
    if case == "bert":
        logits = model.next_sentence(model(batch).hidden_BTD).tolist()
        told = sum(
            (scores[0] > scores[1]) == bool(follows)
            for scores, follows in zip(logits, FOLLOWS, strict=True)
        )
        assert (sums["pairs"], sums["next_correct"]) == (3, told)
        assert sums["next_loss"] == pytest.approx(
            plain.smoothed_loss(logits, [1 - one for one in FOLLOWS], 0.0)
        )
    else:
        assert (sums["pairs"], sums["next_correct"], sums["next_loss"]) == (0, 0, 0.0)


def test_a_batch_goes_where_it_is_sent() -> None:
    batch = replace(masked_batch(), examples=(4, 5, 6))
    there = batch.to("meta")
    assert {
        there.text.ids_BL.device.type,
        there.segments_BL.device.type,
        there.places_P.device.type,
    } == {"meta"}
    assert there.follows_B is not None
    assert (there.follows_B.device.type, there.text.host_lengths_B.device.type) == ("meta", "cpu")
    assert (there.examples, there.tokens) == ((4, 5, 6), 5)
    assert (batch.unnamed().examples, batch.unnamed().tokens) == ((), 0)
