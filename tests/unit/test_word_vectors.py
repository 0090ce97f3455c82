"""Static word vectors: each loss in plain loops, the subwords and the tree by hand, and what is shown
of the vectors of single words."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from command_line import fail, succeed, write
from language_model_cases import TEXTS, text_batch
from plain import dot, sigmoid
from regard.data.batches import Spelling, spelled
from regard.data.corpora import analogies, generate
from regard.layers.huffman import HuffmanTree, huffman_codes
from regard.models.fasttext import FastText, FastTextConfig, subword_hashes
from regard.models.glove import GloVe, GloVeConfig
from regard.models.word2vec import Word2Vec, Word2VecConfig
from regard.objectives.cbow import ContinuousBagOfWords
from regard.objectives.glove import WeightedLeastSquares
from regard.objectives.skip_gram import SkipGram
from regard.text.spelling import letters_of
from regard.views.nearest_words import plane, read_similarity

COUNTS = torch.tensor([0.0, 1, 0, 4, 16, 3, 2, 2, 5, 1, 7, 1, 2], dtype=torch.float64)
SMALL = {"width": 3, "window": 2, "negatives": 2}
WORDS = [f"word{token}" for token in range(len(COUNTS))]


def word2vec_of(**fields: Any) -> Word2Vec:
    torch.manual_seed(0)
    model = Word2Vec(Word2VecConfig(**SMALL | fields), len(COUNTS)).double()
    model.output.initialise_bias(COUNTS)
    torch.nn.init.normal_(model.output.weight)
    return model


def near(text: list[int], t: int, window: int = 2) -> list[int]:
    """The words around place t."""
    places = range(max(0, t - window), min(len(text), t + window + 1))
    return [text[place] for place in places if place != t]


def negative_sampling(h: list[float], word: int, u: list[list[float]]) -> float:
    powers = [count**0.75 for count in COUNTS.tolist()]
    loss = -math.log(sigmoid(dot(u[word], h)))
    for u_n, power in zip(u, powers, strict=True):
        loss -= 2 * power / sum(powers) * math.log(sigmoid(-dot(u_n, h)))
    return loss


def hierarchical_softmax(h: list[float], word: int, nodes: list[list[float]]) -> float:
    path = huffman_codes(COUNTS.tolist())[word]
    return -sum(math.log(sigmoid(sign * dot(nodes[node], h))) for node, sign in path)


LOSSES = {
    "negative_sampling": negative_sampling,
    "hierarchical_softmax": hierarchical_softmax,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_cbow_in_plain_loops(loss: str) -> None:
    """Mikolov et al. 2013, arXiv:1301.3781, section 3.1: the mean of the neighbours predicts the
    word."""
    model = word2vec_of(method="cbow", loss=loss)
    v, output = model.embedding.weight.tolist(), model.output.weight.tolist()
    expected = 0.0
    for text in TEXTS:
        for t, word in enumerate(text):
            if around := near(text, t):
                rows = [v[other] for other in around]
                h = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
                expected += LOSSES[loss](h, word, output)
    loss_2 = ContinuousBagOfWords(model).eval()(text_batch(extra=2, filler=9))
    assert loss_2.tolist() == pytest.approx([expected] * 2)


def test_skip_gram_with_a_tree_in_plain_loops() -> None:
    model = word2vec_of(loss="hierarchical_softmax")
    v, nodes = model.embedding.weight.tolist(), model.output.weight.tolist()
    expected = sum(
        hierarchical_softmax(v[word], other, nodes)
        for text in TEXTS
        for t, word in enumerate(text)
        for other in near(text, t)
    )
    loss_2 = SkipGram(model).eval()(text_batch(extra=2, filler=9))
    assert loss_2.tolist() == pytest.approx([expected] * 2)
    trained_2 = SkipGram(word2vec_of(loss="hierarchical_softmax", window=1, subsampling=1e9))
    assert trained_2.train()(text_batch()).tolist() == trained_2.eval()(text_batch()).tolist()


def test_a_huffman_tree_by_hand() -> None:
    """Counts 5, 2, 1, 1: the two rarest meet at node 0, that one (2) and the word with 2 at node 1,
    that one (4) and the word with 5 at node 2, the root."""
    assert huffman_codes([5, 2, 1, 1]) == [
        [(2, -1)],
        [(2, 1), (1, 1)],
        [(2, 1), (1, -1), (0, 1)],
        [(2, 1), (1, -1), (0, -1)],
    ]


def test_the_tree_is_a_distribution() -> None:
    tree = word2vec_of(loss="hierarchical_softmax").output
    assert isinstance(tree, HuffmanTree)
    h_D = torch.randn(3, dtype=torch.float64)
    log_p_V = tree(h_D)
    assert log_p_V.exp().sum().item() == pytest.approx(1)
    alone_V = tree.log_p(h_D.expand(13, -1), torch.arange(13))
    assert torch.allclose(alone_V, log_p_V)
    lengths = [len(path) for path in huffman_codes(COUNTS.tolist())]
    mean = sum(n * count for n, count in zip(lengths, COUNTS.tolist(), strict=True)) / 44
    shares = [count / 44 for count in COUNTS.tolist() if count]
    entropy = -sum(share * math.log2(share) for share in shares)
    assert entropy <= mean < entropy + 1  # of an optimal code


# GloVe


def glove_of(**fields: Any) -> GloVe:
    torch.manual_seed(0)
    config = GloVeConfig(**{"width": 3, "window": 2, "x_max": 2.0} | fields)
    model = GloVe(config, len(COUNTS)).double()
    torch.nn.init.normal_(model.output.b_V)
    torch.nn.init.normal_(model.output.b_tilde_V)
    model.count([text_batch().text])
    return model


def test_glove_in_plain_loops() -> None:
    """Pennington et al. 2014, equations 8 and 9; the batches of an epoch together are J."""
    model = glove_of()
    X: dict[tuple[int, int], float] = {}
    for text in TEXTS:
        for i, word in enumerate(text):
            for j, other in enumerate(text):
                if 0 < abs(i - j) <= 2:
                    X[word, other] = X.get((word, other), 0.0) + 1 / abs(i - j)
    w, w_tilde = (
        model.embedding.words.weight.tolist(),
        model.embedding.neighbours.weight.tolist(),
    )
    b, b_tilde = model.output.b_V.tolist(), model.output.b_tilde_V.tolist()
    expected = 0.0
    for (i, j), x in X.items():
        f = (x / 2) ** 0.75 if x < 2 else 1.0
        expected += f * (dot(w[i], w_tilde[j]) + b[i] + b_tilde[j] - math.log(x)) ** 2
    objective = WeightedLeastSquares(model)
    assert objective(text_batch(extra=2, filler=9)).tolist() == pytest.approx([expected] * 2)
    apart = sum(objective(text_batch([text]))[0].item() for text in TEXTS)
    assert apart == pytest.approx(expected)


def test_a_pair_that_was_not_counted_has_no_loss() -> None:
    model = glove_of()
    assert WeightedLeastSquares(model)(text_batch([[0, 2]]))[0].item() == 0
    objective = WeightedLeastSquares(glove_of())
    loss_2 = objective(text_batch([[0, 2], *TEXTS]))
    loss_2[0].backward()
    assert torch.isfinite(objective.model.embedding.words.weight.grad).all()


# fastText


def fnv(gram: str) -> int:
    key = 2166136261
    for byte in gram.encode():
        key = (key ^ byte) * 16777619 % 2**32
    return key


@pytest.mark.parametrize(
    ("word", "sizes", "grams"),
    [
        ("where", (3, 3), ["<wh", "whe", "her", "ere", "re>"]),  # the paper's example
        ("at", (3, 6), ["<at", "at>", "<at>"]),
        ("여왕은", (1, 2), ["여", "왕", "은", "<여", "여왕", "왕은", "은>"]),
        ("▁né", (2, 3), ["<n", "né", "é>", "<né", "né>"]),
    ],
)
def test_subwords_by_hand(word: str, sizes: tuple[int, int], grams: list[str]) -> None:
    characters_PC = spelled([word, "unrelated"], 64)
    keys = [key for key in subword_hashes(characters_PC, *sizes)[0].tolist() if key >= 0]
    assert sorted(keys) == sorted(map(fnv, grams))


def fasttext_of() -> FastText:
    torch.manual_seed(0)
    config = FastTextConfig(**SMALL, shortest=3, longest=4, buckets=50)
    model = FastText(config, len(WORDS), spelled(WORDS, 64)).double()
    torch.nn.init.normal_(model.embedding.grams)
    return model


def test_a_vector_is_the_mean_of_the_word_and_its_subwords() -> None:
    """Bojanowski et al. 2017, section 3.2; a word outside the vocabulary has subwords alone."""
    model = fasttext_of()
    own, z = model.embedding.words.weight.tolist(), model.embedding.grams.tolist()

    def grams(word: str) -> list[list[float]]:
        spelt = f"<{word}>"
        sizes = [spelt[i : i + n] for n in (3, 4) for i in range(len(spelt) - n + 1)]
        return [z[1 + fnv(gram) % 50] for gram in sizes]

    letters = letters_of("swords", 64)
    spelling = Spelling.of([(0, 2)], [letters], (1, 3))
    found = model.embedding(torch.tensor([[4, 11, 3]]), spelling)[0].tolist()
    rows = [[own[4], *grams("word4")], [own[11], *grams("word11")], grams("swords")]
    for vector, parts in zip(found, rows, strict=True):
        mean = [sum(column) / len(parts) for column in zip(*parts, strict=True)]
        assert vector == pytest.approx(mean)


# What the models learn

MODELS = {
    "cbow": ("{kind: word2vec, width: 32, method: cbow}", 5e-2, 0.8),
    "tree": ("{kind: word2vec, width: 32, loss: hierarchical_softmax}", 5e-2, 0.8),
    "glove": ("{kind: glove, width: 64, window: 5, x_max: 10}", 5e-2, 0.2),
    "fasttext": ("{kind: fasttext, width: 32, buckets: 2000}", 1e-1, 0.5),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("words")
    for name, (model, rate, _) in MODELS.items():
        recipe = f"""
            task: language_modeling
            data: {{train: {{corpus: facts-en, size: 2000}}, validation: {{corpus: facts-en, size: 20}}}}
            tokenizer: {{kind: word, vocabulary: 1000}}
            model: {model}
            training: {{steps: 100, batch_tokens: 2048, learning_rate: {rate}, warmup: 5, schedule: linear}}
        """
        file = write(folder / f"{name}.yaml", recipe)
        succeed("train", file, "--out", folder / name, "--json")
    return {name: folder / name for name in MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_analogies_are_learned(runs: dict[str, Path], name: str) -> None:
    """What a vector says by chance is right in 0.3 % of 300 words."""
    scores = regard.nearest_words(runs[name], analogy_list="facts-en").scores
    assert scores[-1].section == "all"
    assert scores[-1].total == len(analogies("facts-en")) == 280
    assert scores[-1].right / 280 > MODELS[name][2]


def test_king_is_near_queen_and_the_picture_has_both(runs: dict[str, Path], tmp_path: Path) -> None:
    found = succeed("vectors", runs["cbow"], "king", "--analogy", "king queen man", "--json").json
    assert "queen" in [near["word"] for near in found["words"][0]["nearest"]]
    assert found["analogies"][0]["answers"][0]["word"] == "woman"
    assert {"king", "queen", "man", "woman"} <= {point["word"] for point in found["map"]}
    picture = tmp_path / "map.svg"
    succeed("vectors", runs["cbow"], "king", "Paris", "--out", picture)
    assert "queen" in picture.read_text(encoding="utf-8")
    page = tmp_path / "map.html"
    succeed("vectors", runs["cbow"], "king", "Paris", "--out", page)
    assert 'data-kind="points"' in page.read_text(encoding="utf-8")
    told = succeed("vectors", runs["cbow"], "king", "Paris").out
    assert "·king" in told
    assert "·Paris" in told


def test_a_word_that_was_never_read_has_a_vector_by_its_subwords(runs: dict[str, Path]) -> None:
    """ "kittens" does not occur in the facts."""
    [near] = regard.nearest_words(runs["fasttext"], "kittens").neighbours
    assert "kitten" in {one.word for one in near}
    first, second = fail("vectors", runs["cbow"], "kings", "queens", "king")
    assert "'kings' is not in the vocabulary" in first
    assert "'queens' is not in the vocabulary" in second


def test_the_vectors_of_subwords_are_exported(runs: dict[str, Path], tmp_path: Path) -> None:
    """Those of whole words, which other tools and `model.vectors` read."""
    for name in ("fasttext", "glove"):
        succeed("export", runs[name], "--to", "word2vec", "--out", tmp_path / name)
        lines = (tmp_path / name / "text.vec").read_text(encoding="utf-8").splitlines()
        [king] = [line for line in lines if line.startswith("king ")]
        [queen] = [line for line in lines if line.startswith("queen ")]
        a, b = (np.array([*map(float, line.split()[1:])]) for line in (king, queen))
        cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        found = regard.nearest_words(runs[name], ["king", "queen"]).cosines[0, 1]
        assert cosine == pytest.approx(found, abs=1e-4)


# Lists of analogies and of judgements


def test_lists_of_words_are_scored(runs: dict[str, Path], tmp_path: Path) -> None:
    lines = ": first\nking queen man woman\nking queen man Paris\n: second\nking queen dog dodo\n"
    file = write(tmp_path / "questions.txt", lines)
    scores = succeed("vectors", runs["cbow"], "--analogies", file, "--json").json["analogy_scores"]
    assert [(one["section"], one["right"], one["total"], one["skipped"]) for one in scores] == [
        ("first", 1, 2, 0),
        ("second", 0, 0, 1),
        ("all", 1, 2, 1),
    ]
    judged = "Word 1,Word 2,Human\nking,queen,9.1\nking,Paris,1.5\nking,dodo,2\nkitten,cat,8\n"
    file = write(tmp_path / "similar.csv", judged)
    found = succeed("vectors", runs["cbow"], "--similarity", file, "--json").json["similarity"]
    assert (found["pairs"], found["skipped"]) == (3, 1)
    assert found["spearman"] >= 0.5
    tabs = write(
        tmp_path / "simlex.txt", "word1\tword2\tPOS\tSimLex999\nold\tnew\tA\t1.58\na\tb\tA\t2\n"
    )
    assert read_similarity(tabs)[0] == ("old", "new", 1.58)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "there is no word"),
        (["--analogy", "king queen"], "'king queen' has 2 words"),
        (["--analogies", "nowhere.txt"], "nowhere.txt"),
        (["--analogies", "facts-de"], "there are no analogies of 'facts-de'"),
        (["king", "--layer", "0"], "--layer: it is for the sentences of a --word"),
        (["a king", "--word", "king", "--analogy", "a b c"], "--analogy: it is for single words"),
        (["--word", "king"], "TEXT: there is no sentence"),
    ],
)
def test_bad_questions_are_refused(runs: dict[str, Path], arguments: list[str], said: str) -> None:
    assert said in fail("vectors", runs["cbow"], *arguments)[0]


def test_bad_lists_are_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    three = write(tmp_path / "three.txt", "king queen man\n")
    assert "three.txt:1: the line has 3 words" in fail(
        "vectors", runs["cbow"], "--analogies", three
    )[0].removeprefix(f"{tmp_path}/")
    words = write(tmp_path / "words.txt", "king queen 3\nking queen\n")
    [message] = fail("vectors", runs["cbow"], "--similarity", words)
    assert "words.txt:2: the line has no judgement" in message


def test_a_model_without_word_vectors_is_named(tmp_path: Path) -> None:
    recipe = """
        task: language_modeling
        data: {train: {corpus: tales-en, size: 30}, validation: {corpus: tales-en, size: 5}}
        tokenizer: {kind: word}
        model: {kind: ngram}
        training: {steps: 1}
    """
    succeed("train", write(tmp_path / "r.yaml", recipe), "--out", tmp_path / "run", "--json")
    assert "ngram" in fail("vectors", tmp_path / "run", "king")[0]


def test_the_plane_by_hand() -> None:
    """Points on a line in three dimensions: one direction has all of the variance."""
    points = plane(np.array([[0, 0, 0], [1, 2, 2], [3, 6, 6]], dtype=np.float32))
    assert points[:, 0] == pytest.approx([-4, -1, 5])
    assert points[:, 1] == pytest.approx([0, 0, 0], abs=1e-6)


@pytest.mark.parametrize("name", ["facts-en", "facts-ko"])
def test_facts_are_about_one_word_of_an_analogy(name: str) -> None:
    sides = {one.a for one in analogies(name)} | {one.b for one in analogies(name)}
    texts = [text for (text,) in generate(name, 400, 1, "train")]
    for text in texts:
        sentences = text.removesuffix(".").split(". ")
        assert len({*sentences}) == len(sentences) in (2, 3, 4)
        assert "{" not in text
        assert "/" not in text
    assert len(sides) == 80 if name == "facts-en" else len(sides) == 76
