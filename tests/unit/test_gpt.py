"""GPT: what its config says, where its cache keeps what, and texts in one row that see only themselves."""

import pytest
import torch

from language_model_cases import CASES, SIZE, TEXTS, build, text_batch
from model_cases import close, logits_of, tokens_of
from regard.errors import DecodeError
from regard.models.gpt import GPT, GPTConfig
from regard.text.vocabularies import BEGIN, END

both_norms = pytest.mark.parametrize("case", ["gpt", "gpt-pre"])


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


def test_the_last_layer_is_what_the_readout_reads() -> None:
    for case in ("gpt", "gpt-pre"):
        model, batch = build(CASES[case]), text_batch([TEXTS[0]])
        close(model.layers_of(batch)[-1][:, :-1], model(batch).hidden_BTD)


def test_looking_ahead_reads_what_is_to_be_predicted() -> None:
    """Another last token but one changes the states before it, which it does not where the future is hidden."""
    for look_ahead in (False, True):
        torch.manual_seed(0)
        model = GPT(GPTConfig(preset="tiny", look_ahead=look_ahead), SIZE).eval()
        states = [model(text_batch([[BEGIN, 5, 6, last, END]])).hidden_BTD[0, :3] for last in (7, 8)]
        assert torch.allclose(*states) is not look_ahead
        layers = [model.layers_of(text_batch([[BEGIN, 5, 6, last, END]]))[-1][0, :3] for last in (7, 8)]
        assert torch.allclose(*layers) is not look_ahead


def test_a_text_longer_than_the_positions_is_the_users_mistake() -> None:
    model = build(CASES["gpt"])
    assert model.longest == 20
    with pytest.raises(DecodeError, match="21 tokens, but the model learned 20 positions"):
        logits_of(model, text_batch([[BEGIN, *[5] * 20, END]]))
    logits_of(model, text_batch([[BEGIN, *[5] * 19, END]]))
    with torch.no_grad():
        _, state = model.step(torch.tensor([BEGIN]), model.begin(tokens_of([[BEGIN, *[5] * 18]]), 1, 5))
        _, state = model.step(torch.tensor([5]), state)
        with pytest.raises(DecodeError, match="21 tokens, but the model learned 20 positions"):
            model.step(torch.tensor([5]), state)


def test_a_long_text_that_was_left_behind_limits_no_other() -> None:
    model = build(CASES["gpt"])
    with torch.no_grad():
        state = model.begin(tokens_of([[BEGIN, *[5] * 18], [BEGIN, 4]]), 1, 5).select(torch.tensor([[1]]))
        _, state = model.step(torch.tensor([BEGIN]), state)
        steps = []
        for token in (7, 8, 9):
            logits_RV, state = model.step(torch.tensor([token]), state)
            steps.append(logits_RV)
    close(torch.cat(steps), logits_of(model, text_batch([[BEGIN, 4, 7, 8, 9, END]]))[0, -3:])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="steps are captured on a GPU only")
@both_norms
def test_captured_steps_are_the_steps(case: str) -> None:
    model = build(CASES[case].model_copy(update={"max_positions": 80})).cuda()
    prompts, tokens_TR = [[BEGIN, 4, 5], [BEGIN]], torch.randint(4, SIZE, (50, 4), device="cuda")

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
