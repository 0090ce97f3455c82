"""ELMo: words from characters in plain loops, two directions that do not see what they predict, the mix of layers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import plain
from language_model_cases import CASES, ELMO, SIZE, TEXTS, WORDS, build, text_batch
from model_cases import close, each_real
from regard.data.batches import spelled
from regard.models.elmo import CharacterCNN, ELMoConfig
from regard.models.headed import HeadConfig, Headed, TokenHead
from regard.objectives.language_model import BothDirections
from regard.text.tokenizers import CHARACTERS, WORD_BEGINS, WORD_ENDS
from regard.text.vocabularies import BEGIN, END

FROZEN_MIX = HeadConfig(features="mix", freeze="all")
ELMO_CASES = [name for name in CASES if name.startswith("elmo")]
every_case = pytest.mark.parametrize("case", ELMO_CASES)

# Characters


def test_words_are_spelled_in_bytes_between_two_ends() -> None:
    table = spelled(["a", "나", "abcdef"], 6)
    b, e = WORD_BEGINS, WORD_ENDS
    assert table.tolist() == [[b, 98, e, 0, 0, 0], [b, 1 + 0xEB, 1 + 0x82, 1 + 0x98, e, 0], [b, 98, 99, 100, 101, e]]


@given(st.lists(st.text(max_size=8), min_size=1, max_size=6, unique=True))
def test_every_text_can_be_spelled_and_no_two_alike(words: list[str]) -> None:
    table = spelled(words, 50)
    assert int(table.max()) < CHARACTERS
    assert len({tuple(row) for row in table.tolist()}) == len(words)


def character_cnn(highway: int = 0) -> CharacterCNN:
    torch.manual_seed(0)
    config = ELMoConfig(characters=3, filters=64, highway=highway, width=7)
    return CharacterCNN(config, spelled(WORDS, 12)).double()


def plain_highway(w: plain.Weights, y: list[float]) -> list[float]:
    """t * relu(W_H y + b_H) + (1 - t) * y, number by number."""
    gates = [plain.sigmoid(x) for x in plain.linear(y, w["W_T.weight"], w["W_T.bias"])]
    through = [max(0.0, x) for x in plain.linear(y, w["W_H.weight"], w["W_H.bias"])]
    return [t * x + (1 - t) * y_d for t, x, y_d in zip(gates, through, y, strict=True)]


def test_words_from_characters_in_plain_loops() -> None:
    """Words shorter than a filter among them: <s> with its ends has 5 characters, "a" has 3, the widest filter 7."""
    cnn = character_cnn(highway=2)
    highways = [{name: weight.tolist() for name, weight in layer.named_parameters()} for layer in cnn.highway]
    assert highways[0]["W_T.bias"] == [-2.0] * 64, "at first nearly all passes"
    vectors = cnn.embedding.weight.tolist()
    assert vectors[0] == [0.0] * 3
    actual = cnn(torch.arange(SIZE)[None])[0]
    for word, row in enumerate(cnn.characters_VC.tolist()):
        letters = [vectors[character] for character in row if character]
        y = []
        for convolution in cnn.convolutions:
            width = convolution.kernel_size[0]
            H, b = convolution.weight.tolist(), convolution.bias.tolist()  # type: ignore[union-attr]
            filled = letters + [[0.0] * 3] * max(0, width - len(letters))
            for k in range(len(H)):
                f = [
                    b[k] + sum(H[k][e][j] * filled[i + j][e] for j in range(width) for e in range(3))
                    for i in range(len(filled) - width + 1)
                ]
                y.append(max(0.0, *f))
        for weights in highways:
            y = plain_highway(weights, y)
        expected = plain.linear(y, cnn.projection.weight.tolist(), cnn.projection.bias.tolist())
        assert actual[word].tolist() == pytest.approx(expected), WORDS[word]


def test_a_word_does_not_depend_on_how_long_the_others_are() -> None:
    cnn = character_cnn(highway=1)
    wide_PC = torch.nn.functional.pad(cnn.characters_VC, (0, 9))
    close(cnn.words(wide_PC), cnn.words(cnn.characters_VC))
    short_PC = cnn.characters_VC[4:5, :3]
    close(cnn.words(short_PC), cnn.words(cnn.characters_VC)[4:5])


def test_the_spelling_travels_with_the_model_but_not_with_its_weights() -> None:
    model = build(CASES["elmo"])
    assert not any("characters_VC" in name for name in model.state_dict())
    assert dict(model.named_buffers())["embedding.characters_VC"].tolist() == spelled(WORDS, 12).tolist()


# Two directions


@every_case
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


@every_case
def test_the_backward_direction_is_a_forward_one_over_the_text_read_backwards(case: str) -> None:
    model, batch = build(CASES[case]), text_batch(extra=2, filler=9)
    backward = each_real(model(batch).backward_BLD, TEXTS, without=0)
    model.forward_layers, model.backward_layers = model.backward_layers, model.forward_layers
    for text, expected in zip(TEXTS, backward, strict=True):
        close(model(text_batch([text[::-1]])).hidden_BTD[0].flip(0), expected)


@every_case
def test_the_joint_loss_in_plain_loops(case: str) -> None:
    model, batch = build(CASES[case]), text_batch(extra=2, filler=7)
    output = model(batch)
    forward = backward = 0.0
    for row, text in enumerate(TEXTS):
        last = len(text) - 1
        forward += plain.smoothed_loss(model.readout(output.hidden_BTD[row, :last]).tolist(), text[1:], 0.0)
        backward += plain.smoothed_loss(model.readout(output.backward_BLD[row, 1 : last + 1]).tolist(), text[:-1], 0.0)
    objective = BothDirections(model)
    directions, _ = objective.predicted(batch)
    assert [float(objective.total(*predicted)[1]) for predicted in directions] == pytest.approx([forward, backward])
    assert objective(batch).tolist() == pytest.approx([(forward + backward) / 2] * 2)


@every_case
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


# The mix of layers


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
    """That of the base not a bit changes in a training, and the mix does, stands in test_fine_tuning.py."""
    base = build(ELMoConfig(**{**ELMO, "dropout": 0.5}), dtype=torch.float32)
    model = Headed(base, FROZEN_MIX, lambda width: TokenHead(width, 2, dropout=0.0)).train()
    assert not base.training
    model(text_batch()).square().sum().backward()
    learned = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert learned == {"mix.s", "mix.gamma", "head.linear.weight", "head.linear.bias"}
    assert not any(parameter.requires_grad for parameter in base.parameters())
