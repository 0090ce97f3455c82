"""ELECTRA: what the generator draws, what the discriminator is asked, and the loss of both."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regard
from language_model_cases import LABELS, MASK, PAIRS, PLACES, TRANSFORMER, masked_batch
from regard.data.epochs import RowSizes
from regard.engine.shapes import pack
from regard.errors import RegardError
from regard.models.base import count_parameters
from regard.models.bert import BERT, BERTConfig
from regard.objectives.replaced_tokens import (
    ReplacedTokens,
    detection_sums,
    drawn_tokens,
    with_replaced,
)

VOCABULARY = 13
SIZES = {**TRANSFORMER, "next_sentence": False, "replaced_head": True}


def electra(**changes: object) -> BERT:
    torch.manual_seed(3)
    config = BERTConfig.model_validate({**SIZES, "generator_size": 0.5, **changes})
    model = BERT(config, VOCABULARY).double()
    for parameter in model.parameters():  # N(0, 0.02) would leave all outputs about equal
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def with_certain_draws(model: BERT, token: int) -> BERT:
    """The generator then draws this token everywhere, whatever the random numbers."""
    assert model.generator is not None
    assert model.generator.output is not None
    model.generator.output.output.linear.bias.data[token] = 1000.0
    return model


def test_draws_follow_the_distribution_function() -> None:
    logits_PV = torch.tensor([[0.2, 0.5, 0.3]]).log().expand(5, 3)
    u_P = torch.tensor([0.1, 0.3, 0.69, 0.71, 1.0])
    assert drawn_tokens(logits_PV, u_P).tolist() == [0, 1, 1, 2, 2]


def test_a_draw_of_the_true_token_counts_as_original() -> None:
    batch = masked_batch()
    drawn_P = torch.tensor([8, 5, 10, 3, 9])  # the true ones are 8, 11, 10, 12, 9
    corrupted, replaced_BL = with_replaced(batch, drawn_P)
    assert [row.nonzero()[:, 0].tolist() for row in replaced_BL] == [[6], [], [1]]
    assert corrupted.text.ids_BL[0].tolist() == [4, 7, 8, 9, 5, 10, 5, 5]
    assert corrupted.text.ids_BL[2, :7].tolist() == [4, 3, 11, 5, 7, 9, 5]
    assert MASK not in corrupted.text.ids_BL


def test_the_loss_is_the_equation() -> None:
    """Token by token, with the sums of the paper's code: both parts are means."""
    model = with_certain_draws(electra(), token=7)
    objective = ReplacedTokens(model, weight=50.0).eval()
    found = objective(masked_batch())
    assert model.generator is not None
    masked_loss = 0.0
    detection = []
    for row in range(3):
        alone = masked_batch([row])
        hidden_LD = model.generator(alone).hidden_BTD[0]
        originals = list(PAIRS[row])
        for place, label in zip(PLACES[row], LABELS[row], strict=True):
            log_p_V = model.generator.readout(hidden_LD[place]).log_softmax(-1)
            masked_loss -= log_p_V[label].item()
            originals[place] = label
        corrupted = list(PAIRS[row])
        for place in PLACES[row]:
            corrupted[place] = 7
        text = replace(alone.text, ids_BL=torch.tensor([corrupted]))
        states_LD = model(replace(alone, text=text)).hidden_BTD[0]
        assert model.replaced is not None
        for state_D, token, original in zip(states_LD, corrupted, originals, strict=True):
            replaced = torch.sigmoid(model.replaced(state_D[None, None])[0, 0].float())
            p = replaced if token != original else 1 - replaced
            detection.append(-math.log(p.item()))
    masked = sum(map(len, PLACES))
    expected = masked_loss + 50 * masked * sum(detection) / len(detection)
    assert found[0].item() == pytest.approx(expected, rel=1e-5)
    assert found[1].item() == pytest.approx(masked_loss)


def test_padding_and_packing_change_no_loss() -> None:
    model = with_certain_draws(electra(), token=9)
    objective = ReplacedTokens(model).eval()
    batch = masked_batch()
    expected = objective(batch)
    torch.testing.assert_close(objective(masked_batch(extra=3, filler=2)), expected)
    sizes = RowSizes(first=128, second=128, longest=32, sentences=128, masked=128)
    torch.testing.assert_close(objective(pack(batch, sizes)), expected)


def test_no_gradient_flows_through_the_draws() -> None:
    """The generator's blocks learn from masked tokens alone, its embeddings from both losses."""
    gradients = []
    for weight in (0.0, 50.0):
        model = with_certain_draws(electra(), token=9)
        ReplacedTokens(model, weight=weight)(masked_batch())[0].backward()
        gradients.append({name: x.grad for name, x in model.named_parameters()})
    alone, both = gradients
    assert all(gradient is not None for gradient in both.values())
    own = [name for name in both if name.startswith("generator.blocks")]
    assert own
    for name in own:
        torch.testing.assert_close(alone[name], both[name])
    name = "embedding.tokens.weight"
    assert not torch.allclose(alone[name], both[name])


def test_the_generator_shares_the_embeddings() -> None:
    model = electra(embedding_width=10)
    generator = model.generator
    assert generator is not None
    assert generator.output is not None
    assert generator.embedding.tokens is model.embedding.tokens
    assert generator.embedding.positions is model.embedding.positions
    assert generator.output.output.linear.weight is model.embedding.tokens.weight
    assert (generator.config.width, generator.config.heads, generator.config.feed_forward) == (
        8,
        2,
        12,
    )
    assert model.masked_model is generator
    assert generator.masked_model is generator
    model.prepare_for_head(keep_readout=False, by_token=False)
    assert not [name for name in model.state_dict() if name.startswith("generator")]


@pytest.mark.parametrize(
    ("preset", "millions"), [("electra_small", 13.5), ("electra_base", 108.9), ("base", 108.9)]
)
def test_the_sizes_are_those_of_the_published_weights(preset: str, millions: float) -> None:
    """google/electra-small-discriminator has 13.5 million weights below its head, base 108.9; BERT
    base has 109.5 with its pooler of 0.6."""
    config = BERTConfig.model_validate({"preset": preset})
    with torch.device("meta"):
        model = BERT(config, 30_522)
    model.prepare_for_head(keep_readout=False, by_token=False)
    assert count_parameters(model) / 1e6 == pytest.approx(millions, abs=0.05)


def test_sums_are_the_same_each_time() -> None:
    model = electra()
    batch = replace(masked_batch(), examples=(4, 5, 6))
    first = detection_sums(model, batch)
    assert first == detection_sums(model, batch)
    assert first["tokens"] == sum(map(len, PAIRS))


ROWS = ["a b c d e f g h i j k l"] * 40
MODEL = {"kind": "bert", "layers": 2, "width": 32, "heads": 2, "feed_forward": 64, "dropout": 0.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    """A discriminator that was trained on the alphabet, with a generator that draws at random."""
    folder = tmp_path_factory.mktemp("electra")
    (folder / "text.txt").write_text("\n".join(ROWS), encoding="utf-8")
    corpus = {"text": str(folder / "text.txt"), "documents": "lines"}
    tree = {
        "task": "masked_language_modeling",
        "data": {
            "train": corpus,
            "validation": corpus,
            "deduplicate": False,
            "max_length": 16,
            "masked_weight": 0.0,
            "mask_share": 1.0,
            "random_share": 0.0,
        },
        "tokenizer": {"kind": "word"},
        "model": {
            **MODEL,
            "max_positions": 16,
            "embedding_width": 16,
            "next_sentence": False,
            "replaced_head": True,
            "generator_size": 0.5,
        },
        "training": {
            "steps": 250,
            "batch_tokens": 256,
            "learning_rate": 5e-3,
            "warmup": 20,
            "best": "replaced_f1",
            "device": "cpu",
        },
    }
    regard.train(tree, out=folder / "run", quiet=True)
    return folder / "run"


def test_replaced_letters_of_the_alphabet_are_found(run: Path) -> None:
    metrics = regard.evaluate(run, split="validation")
    assert metrics["replaced_f1"] > 0.95
    assert metrics["replaced_accuracy"] > 0.98
    assert metrics["replaced_loss"] < 0.1


def test_gaps_are_filled_by_the_generator(run: Path) -> None:
    [filled] = regard.predict(run, ["a b [MASK] d"])
    assert len(filled.to_json()["masks"]) == 1


def test_a_classifier_starts_from_the_discriminator(run: Path, tmp_path: Path) -> None:
    labels = "".join(f"{'a b' if n % 2 else 'b a'} c d e\t{n % 2}\n" for n in range(40))
    (tmp_path / "labels.tsv").write_text(labels, encoding="utf-8")
    tree = {
        "task": "classification",
        "data": {
            "train": {"file": str(tmp_path / "labels.tsv"), "text": 0, "label": 1},
            "validation": {"file": str(tmp_path / "labels.tsv"), "text": 0, "label": 1},
            "deduplicate": False,
            "max_length": 16,
        },
        "training": {"init": str(run), "steps": 30, "learning_rate": 3e-3, "device": "cpu"},
    }
    tuned = regard.train(tree, out=tmp_path / "run", quiet=True)
    assert tuned.recipe.model.kind == "bert"
    assert regard.evaluate(tuned, split="validation")["accuracy"] == 1.0
    assert not [name for name in tuned.load_model().state_dict() if "generator" in name]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"model": {"generator_size": 0.5}}, "generator_size is for ELECTRA"),
        ({"training": {"best": "replaced_f1"}}, "training.best"),
        ({"data": {"blocks": "contiguous"}}, "data.blocks"),
    ],
)
def test_what_does_not_fit_is_refused(
    changes: dict[str, dict[str, object]], where: str, tmp_path: Path
) -> None:
    data = {
        "train": {"corpus": "errands", "size": 50},
        "validation": {"corpus": "errands", "size": 20},
    }
    tree = {
        "task": "masked_language_modeling",
        "data": {**data, "max_length": 32, **changes.get("data", {})},
        "model": {**MODEL, **changes.get("model", {})},
        "training": {"steps": 1, "device": "cpu", **changes.get("training", {})},
    }
    with pytest.raises(RegardError, match=where):
        regard.train(tree, out=tmp_path / "run", quiet=True)
