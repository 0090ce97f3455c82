"""word2vec: its loss in plain loops, what is drawn in training, and that words of one class become neighbours."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from command_line import refusal, succeed, write
from language_model_cases import TEXTS, text_batch
from plain import dot, sigmoid
from regard.models.word2vec import Word2Vec, Word2VecConfig
from regard.objectives.language_model import SkipGram
from regard.runs import Run

COUNTS = torch.tensor([0.0, 1, 0, 4, 16, 3, 2, 2, 5, 1, 7, 1, 2], dtype=torch.float64)
SMALL = {"width": 3, "window": 2, "negatives": 2}


def model_of(**fields: float) -> Word2Vec:
    torch.manual_seed(0)
    model = Word2Vec(Word2VecConfig(**SMALL | fields), len(COUNTS)).double()
    model.output.initialise_bias(COUNTS)
    torch.nn.init.normal_(model.output.weight)
    return model


def test_the_loss_in_plain_loops() -> None:
    model = model_of()
    v, u = model.embedding.weight.tolist(), model.output.weight.tolist()
    powers = [count**0.75 for count in COUNTS.tolist()]
    noise = [power / sum(powers) for power in powers]
    expected = 0.0
    for text in TEXTS:
        for t, word in enumerate(text):
            for j in (-2, -1, 1, 2):
                if 0 <= t + j < len(text):
                    expected -= math.log(sigmoid(dot(u[text[t + j]], v[word])))
                    for _ in range(2):
                        terms = [math.log(sigmoid(-dot(u_w, v[word]))) for u_w in u]
                        expected -= sum(p * term for p, term in zip(noise, terms, strict=True))
    loss_2 = SkipGram(model).eval()(text_batch(extra=2, filler=9))
    assert loss_2.tolist() == pytest.approx([expected] * 2)


def test_the_mean_over_draws_is_the_expectation() -> None:
    """With a window of 1 and no word skipped only the negatives are drawn."""
    objective = SkipGram(model_of(window=1, subsampling=1e9))
    drawn = torch.stack([objective.train()(text_batch())[1] for _ in range(400)])
    expected = objective.eval()(text_batch())[1]
    assert abs(drawn.mean() - expected) < 4 * drawn.std() / 20
    assert drawn.std() > 0


def test_frequent_words_are_skipped() -> None:
    """Equation 5: sqrt(t / f). Word 4 has 16 of 44: sqrt(0.01 * 44 / 16) = 0.1658."""
    kept = model_of().output.kept_V(0.01)
    assert kept[[4, 1]].tolist() == pytest.approx([math.sqrt(0.44 / 16), math.sqrt(0.44)])
    assert model_of().output.kept_V(1.0).tolist() == [1.0] * len(COUNTS)


CLASSES = ("dog cat fox tiger lion", "Paris London Seoul Busan", "father mother grandfather grandmother")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    folder = tmp_path_factory.mktemp("word2vec")
    recipe = """
        task: language_modeling
        data: {train: {corpus: tales-en, size: 3000}, validation: {corpus: tales-en, size: 50}}
        tokenizer: {kind: word, vocabulary: 1000}
        model: {kind: word2vec, width: 32}
        training: {steps: 150, batch_tokens: 4096, learning_rate: 2.0e-2, warmup: 10, schedule: linear}
    """
    succeed("train", write(folder / "recipe.yaml", recipe), "--out", folder / "run", "--json")
    return folder / "run"


def test_words_of_one_class_become_neighbours(run: Path) -> None:
    model, tokenizer = Run.open(run).load_model("best", "cpu"), Run.open(run).tokenizers["text"]
    words = " ".join(CLASSES).split()
    vectors = torch.nn.functional.normalize(model.embedding.weight[[tokenizer.encode(word)[0] for word in words]])
    nearest = (vectors @ vectors.T).fill_diagonal_(-1).argmax(1).tolist()
    class_of = {word: number for number, names in enumerate(CLASSES) for word in names.split()}
    right = sum(class_of[word] == class_of[words[other]] for word, other in zip(words, nearest, strict=True))
    assert right >= len(words) - 2, [(word, words[other]) for word, other in zip(words, nearest, strict=True)]


def test_its_vectors_begin_another_model_and_serve_a_head(run: Path, tmp_path: Path) -> None:
    succeed("export", run, "--to", "word2vec", "--out", tmp_path / "vectors")
    lines = (tmp_path / "vectors" / "text.vec").read_text(encoding="utf-8").splitlines()
    assert lines[0].split()[1] == "32"
    [paris] = [line for line in lines if line.startswith("Paris ")]
    weights, tokenizer = Run.open(run).load_model("best", "cpu").embedding.weight, Run.open(run).tokenizers["text"]
    assert [*map(float, paris.split()[1:])] == pytest.approx(weights[tokenizer.encode("Paris")[0]].tolist())
    recipe = f"""
        task: language_modeling
        data: {{train: {{corpus: tales-en, size: 50}}, validation: {{corpus: tales-en, size: 10}}}}
        tokenizer: {{file: {run / "tokenizer.json"}}}
        model: {{kind: lstm_lm, embedding: 32, hidden: 32, layers: 1, vectors: {{text: vectors/text.vec}}}}
        training: {{steps: 1, batch_tokens: 256}}
    """
    told = succeed("train", write(tmp_path / "lstm.yaml", recipe), "--out", tmp_path / "lstm").err
    assert f"vectors: {len(lines) - 1:,} of {tokenizer.size:,} text tokens found" in told
    reviews = f"""
        task: classification
        data: {{train: {{corpus: reviews-en, size: 100}}, validation: {{corpus: reviews-en, size: 20}}}}
        tokenizer: {{file: {run / "tokenizer.json"}}}
        training: {{init: {run}, steps: 2}}
    """
    succeed("train", write(tmp_path / "reviews.yaml", reviews), "--out", tmp_path / "reviews", "--json")


def test_what_it_cannot_do_is_said_in_one_sentence(run: Path) -> None:
    for verb, message in (
        (["predict", run, "a dog"], "predict: this model does not continue texts"),
        (["explain", run, "a dog"], "word2vec neither attends nor predicts a text"),
        (["compare", run, run], "compare: word2vec has no probability of a text"),
    ):
        assert message in refusal(*verb)
    assert set(succeed("evaluate", run, "--split", "validation", "--json").json) >= {"loss", "documents"}
