"""Denoising: what noise makes of a text, and that a model learns to restore it."""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from labelled_cases import labelled_batch_of
from regard.data.corpora import generate
from regard.data.noise import Noise, NoisyTexts, poisson
from regard.data.segments import Draws
from regard.errors import RegardError
from regard.models.text_transformer import TextTransformer
from regard.models.transformer import TransformerConfig
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.text.vocabularies import MASKING_NAMES
from task_cases import raw_tokens

MASK = 99
SENTENCES = [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
TOKENS = [*range(1, 10)]


def noise(**shares: float) -> Noise:
    none = {"permutation": 0.0, "infilling": 0.0}
    return Noise(MASK, **{**none, **shares})


def test_without_noise_a_text_stays_as_it_is() -> None:
    assert noise()(SENTENCES, Draws(1)) == TOKENS


def test_sentences_are_shuffled_whole() -> None:
    found = {tuple(noise(permutation=1.0)(SENTENCES, Draws(seed))) for seed in range(60)}
    assert len(found) == 6
    for tokens in found:
        text = f" {' '.join(map(str, tokens))} "
        assert all(f" {' '.join(map(str, one))} " in text for one in SENTENCES)


def test_rotation_keeps_the_circle() -> None:
    found = {tuple(noise(rotation=1.0)(SENTENCES, Draws(seed))) for seed in range(200)}
    assert found == {(*TOKENS[start:], *TOKENS[:start]) for start in range(9)}


def test_deletion_and_masking_have_their_shares() -> None:
    long = [[*range(1, 2001)]]
    deleted = noise(deletion=0.3)(long, Draws(2))
    assert deleted == sorted(deleted)
    assert MASK not in deleted[:10]
    assert len(deleted) == pytest.approx(1400, abs=70)
    masked = noise(masking=0.3)(long, Draws(2))
    assert len(masked) == 2000
    assert sum(token == MASK for token in masked) == pytest.approx(600, abs=70)


def test_a_mask_stands_for_a_span() -> None:
    """30 % of the tokens are gone, in spans of three on average; one mask stands for each."""
    long = [[*range(100, 3100)]]
    filled = noise(infilling=0.3)(long, Draws(3))
    kept = [token for token in filled if token != MASK]
    masks = len(filled) - len(kept)
    assert kept == sorted(set(kept))
    assert len(kept) == pytest.approx(2100, abs=1)
    assert masks == pytest.approx(300, abs=45)
    assert len(filled) < 3000


def test_poisson_is_the_inverse_of_its_distribution() -> None:
    """P(0) = e^-3 = 0.0498, P(at most 1) = 4 e^-3 = 0.199, P(at most 2) = 8.5 e^-3 = 0.423."""
    found = [poisson(3.0, u) for u in (0.0, 0.049, 0.051, 0.198, 0.2, 0.42, 0.43)]
    assert found == [0, 0, 1, 1, 2, 2, 3]
    drawn = [poisson(3.0, float(u)) for u in Draws(5)(20_000)]
    assert np.mean(drawn) == pytest.approx(3, abs=0.06)
    assert np.var(drawn) == pytest.approx(3, abs=0.15)


@pytest.fixture(scope="module")
def texts() -> NoisyTexts:
    tales = [tale for (tale,) in islice(generate("tales-en", 60, 1, "train"), 60)]
    config = TokenizerConfig(kind="wordpiece", vocabulary=300)
    tokenizer = Tokenizer.train(config, tales, MASKING_NAMES)
    assert tokenizer.mask is not None
    text = raw_tokens(tales, tokenizer, sentences="punctuation")
    return NoisyTexts(text, Noise(tokenizer.mask), 40)


def test_noise_depends_on_seed_epoch_and_example_alone(texts: NoisyTexts) -> None:
    first = texts.batch(np.array([3, 5]), seed=1, epoch=2)
    again = texts.batch(np.array([5, 9, 3]), seed=1, epoch=2)
    assert first.source.row(0) == again.source.row(2)
    assert first.source.row(1) == again.source.row(0)
    assert texts.source(3, 1, 2) != texts.source(3, 1, 3)
    assert texts.source(3, 1, 2) != texts.source(3, 2, 2)


def test_a_batch_is_a_pair_as_for_translation(texts: NoisyTexts) -> None:
    tokenizer = texts.text.tokenizer
    batch = texts.batch(np.array([0, 1]))
    target = batch.target.row(0)
    assert (target[0], target[-1]) == (tokenizer.begin, tokenizer.end)
    assert target[1:-1] == texts.target(0)
    assert batch.source.row(0) == [*texts.source(0), tokenizer.end]
    assert batch.tokens == len(texts.target(0)) + len(texts.target(1)) + 2
    longest = max(batch.source.ids_BL.shape[1], batch.target.ids_BL.shape[1] - 1)
    assert longest <= texts.lengths[[0, 1]].max()


def test_documents_become_pieces_that_fit(texts: NoisyTexts) -> None:
    assert texts.lengths.max() <= 40
    assert sum(len(texts.target(example)) for example in range(len(texts))) == int(
        texts.text.lengths.sum()
    )


def test_both_sides_of_a_transformer_read_a_text() -> None:
    """The last state is that of a decoder that is given the text as source and as target."""
    torch.manual_seed(0)
    config = TransformerConfig(
        encoder_layers=1, decoder_layers=2, width=16, heads=2, feed_forward=8, dropout=0.0
    )
    model = TextTransformer(config, 12).double().eval()
    batch = labelled_batch_of([[2, 4, 5, 6, 3], [2, 7, 3]], [0, 1])
    states_BLD = model.states(batch)
    state = model.begin(batch.text, rows=1, max_length=6)
    for place in range(3):
        tokens_R = batch.text.ids_BL[:, place]
        logits_RV, state = model.step(tokens_R, state)
        torch.testing.assert_close(logits_RV, model.readout(states_BLD[:, place]))
    assert len(model.layers_of(batch)) == 3
    depths = {model.depth_of(name) for name, _ in model.named_parameters()}
    assert depths == {0, 1, 2, 3}


WORDS = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
LINES = [" ".join([*WORDS[start:], *WORDS[:start]]) + "." for start in range(10)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    """A small model that knows ten rotations of a text."""
    folder = tmp_path_factory.mktemp("bart")
    (folder / "text.txt").write_text("\n".join(LINES * 20), encoding="utf-8")
    corpus = {"text": str(folder / "text.txt"), "documents": "lines"}
    tree: dict[str, Any] = {
        "task": "denoising",
        "data": {"train": corpus, "validation": corpus, "deduplicate": False, "max_length": 16},
        "tokenizer": {"kind": "word"},
        "model": {
            "kind": "transformer",
            "encoder_layers": 1,
            "decoder_layers": 1,
            "width": 32,
            "heads": 2,
            "feed_forward": 64,
            "dropout": 0.0,
            "tie": "all",
        },
        "training": {
            "steps": 200,
            "batch_tokens": 512,
            "learning_rate": 5e-3,
            "warmup": 10,
            "device": "cpu",
        },
        "search": {"beam": 1},
    }
    regard.train(tree, out=folder / "run", quiet=True)
    return folder / "run"


def test_a_model_restores_what_it_knows(run: Path) -> None:
    assert regard.evaluate(run, split="validation")["perplexity"] < 1.3
    [restored] = regard.predict(run, ["c d [MASK] h i j a b."])
    assert restored.to_json()["output"] == "c d e f g h i j a b."


def test_its_weights_begin_other_tasks(run: Path, tmp_path: Path) -> None:
    """A classifier reads the text on both sides, and a translator takes the model as it is."""
    rows = "".join(f"{line}\t{line.split()[0] in 'abcde'}\n" for line in LINES)
    (tmp_path / "labels.tsv").write_text(rows, encoding="utf-8")
    file = {"file": str(tmp_path / "labels.tsv"), "text": 0, "label": 1}
    common = {"init": str(run), "steps": 40, "learning_rate": 5e-3, "device": "cpu"}
    classifier = {
        "task": "classification",
        "data": {"train": file, "validation": file, "max_length": 16},
        "training": common,
    }
    tuned = regard.train(classifier, out=tmp_path / "classifier", quiet=True)
    assert regard.evaluate(tuned, split="validation")["accuracy"] == 1.0
    pairs = {**file, "source": 0, "target": 0}
    summaries = {
        "task": "translation",
        "data": {
            "train": {key: pairs[key] for key in ("file", "source", "target")},
            "validation": {key: pairs[key] for key in ("file", "source", "target")},
        },
        "training": {**common, "steps": 60, "decode": 0},
    }
    copied = regard.train(summaries, out=tmp_path / "copier", quiet=True)
    assert regard.evaluate(copied, split="validation")["perplexity"] < 1.5


def test_no_noise_at_all_is_refused(tmp_path: Path) -> None:
    tree = {
        "task": "denoising",
        "data": {"train": {"corpus": "errands", "size": 20}, "infilling": 0, "permutation": 0},
        "model": {"kind": "transformer", "preset": "tiny"},
        "training": {"steps": 1},
    }
    with pytest.raises(RegardError, match="all noise is 0"):
        regard.train(tree, out=tmp_path / "run", quiet=True)
