"""Static vectors: how a file of them becomes rows of an embedding, and how word2vec learns them."""

import gzip
import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from command_line import fail, refusal, succeed, write
from language_model_cases import TEXTS, text_batch
from plain import dot, sigmoid
from regard.config import write_yaml
from regard.errors import ConfigError, DataError
from regard.models.word2vec import Word2Vec, Word2VecConfig
from regard.objectives.skip_gram import SkipGram
from regard.recipes.loading import load_recipe
from regard.runs import Run
from regard.runs.checkpoints import load_weights
from regard.text.files import TextFile
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.text.vectors import read_vectors
from regard.training.train import train

Tree = dict[str, Any]
TEXT = "Paris is (big) and 서울 is big"
ANIMALS = "".join(
    f"{a} {verb} the {b}\n"
    for a in ("dog", "cat", "cow")
    for verb in ("sees", "eats")
    for b in "xyzuvw"
)


def word_tokenizer(text: str = TEXT, **options: Any) -> Tokenizer:
    return Tokenizer.train(TokenizerConfig.model_validate({"kind": "word"} | options), [text])


def found(
    text: str | bytes, tokenizer: Tokenizer, folder: Path, width: int = 2, name: str = "words.vec"
) -> Tree:
    """Token -> vector."""
    file = TextFile(name, write(folder / name, text))
    tokens, vectors = read_vectors(file, tokenizer, width, "the width")
    return dict(zip(tokenizer.tokens(tokens.tolist()), vectors.tolist(), strict=True))


# Reading


BROKEN = "the line is not a word and 2 numbers:"
GLOVE = "Paris 1 2\nbig 3 4\nnobody -1 1e3\n서울 -5.5 6e-1\n"


@pytest.mark.parametrize(
    "text",
    [
        GLOVE,
        f"4 2\n{GLOVE}",
        f"4 2\n{GLOVE}".replace("\n", " \n"),
        GLOVE.replace("\n", "\r\n"),
        GLOVE.rstrip(),
    ],
)
def test_each_layout_gives_the_same_vectors(text: str, tmp_path: Path) -> None:
    """GloVe; with fastText's header; with word2vec's space at the end of a line; of Windows;
    without a last newline."""
    expected = {
        "▁Paris": [1, 2],
        "big": [3, 4],
        "▁big": [3, 4],
        "▁서울": pytest.approx([-5.5, 0.6]),
    }
    assert found(text, word_tokenizer(), tmp_path) == expected
    assert (
        found(gzip.compress(text.encode()), word_tokenizer(), tmp_path, name="glove.txt.gz")
        == expected
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\u1109\u1165\u110b\u116e\u11af 7 8", {"▁서울": [7, 8]}),  # decomposed Korean
        (
            "is 1 2\nbig  3 4\n",
            {"▁is": [1, 2], "▁big": [3, 4], "big": [3, 4]},
        ),  # two spaces behind a word
        (
            "is 1 2\n. . . 3 4\nbig name@domain.com 5 6\n",
            {"▁is": [1, 2]},
        ),  # words with spaces, as in GloVe
    ],
)
def test_unusual_words(text: str, expected: Tree, tmp_path: Path) -> None:
    assert found(text, word_tokenizer(), tmp_path) == expected


def test_pieces_of_other_kinds_are_found_too(tmp_path: Path) -> None:
    bpe = Tokenizer.train(
        TokenizerConfig(kind="bpe", vocabulary=60), ["water waters watering water"] * 5
    )
    assert found("water 1 2\nzzz 3 4\n", bpe, tmp_path)["▁water"] == [1, 2]
    byte = Tokenizer.train(TokenizerConfig(kind="byte"), ["a"])
    assert found("a 1 2\n0 3 4\n", byte, tmp_path) == {"a": [1, 2], "A": [1, 2], "0": [3, 4]}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["paris"], 0),
        (["paris", "Paris"], 1),
        (["Paris", "paris"], 0),
        (["Paris", "Paris"], 0),
        (["paris", "Paris", "▁Paris"], 2),
        (["▁Paris", "Paris", "paris"], 0),
        (["Paris", "▁Paris", "▁Paris"], 1),
        (["PARIS", "paris", "Pari"], 1),
    ],
)
def test_the_nearest_spelling_wins_wherever_it_stands(
    words: list[str], expected: int, tmp_path: Path
) -> None:
    """The vocabulary's own before the bare word before its lower case, and the first of two equal
    ones."""
    text = "".join(f"{word} {number} 1\n" for number, word in enumerate(words))
    assert found(text, word_tokenizer("Paris"), tmp_path) == {"▁Paris": [expected, 1]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "is 1 2\nbig 3\n",
            "words.vec:2: the line is not a word and 2 numbers: 'big 3' (with a space between each "
            "two; "
            "the width is how many numbers the model needs)",
        ),
        ("is 1 2\nbig 3 4 5\n", f"words.vec:2: {BROKEN} 'big 3 4 5'"),
        ("2 2\nis 1 2\nbig 3 x4\n", f"words.vec:3: {BROKEN} 'big 3 x4'"),
        ("is 1 2\nbig 3 nan\n", f"words.vec:2: {BROKEN} 'big 3 nan'"),
        (
            "3 2\nis 1 2\nbig 3 4\n",
            "words.vec:3: the header promises 3 vectors, here they end after 2 (is it cut off?",
        ),
        ("is 1 2\n\nbig 3 4\n", f"words.vec:2: {BROKEN} ''"),
        ("is\n", f"words.vec:1: {BROKEN} 'is'"),
        ("is 1 2 3\n", f"words.vec:1: {BROKEN} 'is 1 2 3'"),
        (
            "1 300\nis 1 2\n",
            "words.vec:1: the vectors have 300 numbers, the embeddings of the model 2",
        ),
        (
            "qui 1 2\nquoi 3 4\n</s> 1 1\n",
            "words.vec: none of its vectors is of a token in the vocabulary",
        ),
        ("", "words.vec: the file is empty"),
    ],
)
def test_what_is_broken_is_named_by_its_line(text: str | bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        found(text, word_tokenizer(), tmp_path)
    assert str(caught.value).startswith(said)


def test_all_that_is_broken_is_named_at_once(tmp_path: Path) -> None:
    text = b"is 1 2\nnobody 3\nbig 3 x4\nbig 3 4\nParis inf 2\nb\xe9 3 4\nwho 1\n"
    with pytest.raises(DataError) as caught:
        found(text, word_tokenizer(), tmp_path)
    assert [(problem.where, problem.what) for problem in caught.value.problems] == [
        ("words.vec:2", f"{BROKEN} 'nobody 3'"),
        ("words.vec:3", f"{BROKEN} 'big 3 x4'"),
        ("words.vec:5", f"{BROKEN} 'Paris inf 2'"),
        ("words.vec:6", "byte 0xe9 at position 2 of the line is not UTF-8"),
    ]
    with pytest.raises(DataError) as caught:
        found("is 1 2\n" + "nobody 3\n" * 1025, word_tokenizer(), tmp_path)
    assert len(caught.value.problems) == 21
    assert str(caught.value.problems[-1]) == "and 1,005 more such lines"
    with pytest.raises(
        DataError, match=r"words\.bin: binary vectors are not read \(export them as text"
    ):
        found(b"1 2\nis \x00\x00", word_tokenizer(), tmp_path, name="words.bin")


# In a training


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a corpus, vectors for some of its words, and a recipe that names them."""
    write(tmp_path / "train.s", ANIMALS * 2)
    write(tmp_path / "train.t", ANIMALS.upper() * 2)
    write(tmp_path / "in.vec", "3 4\ndog 1 2 3 4\ncat 5 6 7 8\ntree 9 9 9 9\n")
    write(tmp_path / "out.vec", "DOG 0.5 0.25 0.125 1\n")
    tree: Tree = {
        "task": "translation",
        "data": {"train": {"source": "train.s", "target": "train.t"}, "deduplicate": False},
        "tokenizer": {"kind": "word", "joint": False},
        "model": {
            "kind": "bahdanau",
            "embedding": 4,
            "hidden": 8,
            "attention": 8,
            "vectors": {"source": "in.vec"},
        },
        "training": {
            "steps": 6,
            "device": "cpu",
            "batch_tokens": 64,
            "validate_every": 3,
            "decode": 0,
            "ema": 0.9,
            "average": 2,
            "weight_decay": 0.1,
        },
    }
    write(tmp_path / "recipe.yaml", write_yaml(tree))
    return tmp_path


def source_embedding(run: Run, checkpoint: str = "last") -> torch.Tensor:
    return load_weights(run.checkpoint(checkpoint))["source_embedding.weight"]


def digest(weights: torch.Tensor) -> str:
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()


def rows(run: Run, weights: torch.Tensor, *words: str) -> list[list[float]]:
    return [weights[number].tolist() for number in run.tokenizers["source"].token_ids(words)]


def test_frozen_vectors_stay_bit_by_bit_through_training_and_resume(project: Path) -> None:
    recipe, frozen = project / "recipe.yaml", "model.vectors.freeze=true"
    run = train(recipe, [frozen, "training.steps=3"], out=project / "run", quiet=True)
    first = source_embedding(run)
    assert rows(run, first, "▁dog", "▁cat") == [[1, 2, 3, 4], [5, 6, 7, 8]]
    (project / "in.vec").unlink()  # a resumed run has its weights
    train(recipe, [frozen], out=project / "run", resume=True, quiet=True)
    assert {digest(source_embedding(run, name)) for name in ("3", "6", "average")} == {
        digest(first)
    }
    other = load_weights(run.checkpoint("3"))["target_embedding.weight"]
    assert digest(other) != digest(load_weights(run.checkpoint("6"))["target_embedding.weight"])


def test_free_vectors_are_where_learning_begins(project: Path) -> None:
    """Rows without a vector begin as they would without the file; all rows move."""
    slow = [
        "training.learning_rate=1e-9",
        "training.steps=1",
        "training.ema=null",
        "training.average=1",
    ]
    run = train(project / "recipe.yaml", slow, out=project / "slow", quiet=True)
    plain = train(
        project / "recipe.yaml", [*slow, "model.vectors=null"], out=project / "plain", quiet=True
    )
    here, there = source_embedding(run), source_embedding(plain)
    assert rows(run, here, "▁dog", "▁cat") == [
        pytest.approx([1, 2, 3, 4]),
        pytest.approx([5, 6, 7, 8]),
    ]
    differing = (here - there).abs().amax(dim=1) > 1e-6
    assert differing.sum() == 2
    moved = train(project / "recipe.yaml", out=project / "fast", quiet=True)
    assert (
        np.abs(np.subtract(rows(moved, source_embedding(moved), "▁dog"), [1, 2, 3, 4])).max() > 1e-3
    )


def test_what_was_found_is_reported_and_the_run_names_the_file_for_good(project: Path) -> None:
    both = ["model.vectors.target=out.vec"]
    printed = succeed(
        "train", project / "recipe.yaml", *both, "training.steps=1", "--out", project / "run"
    ).err
    run = Run.open(project / "run")
    sizes = [run.tokenizers[side].size for side in ("source", "target")]
    assert (
        f"vectors: 2 of {sizes[0]} source tokens found\nvectors: 1 of {sizes[1]} target tokens "
        "found\n" in printed
    )
    vectors = run.recipe.model.vectors
    assert vectors.files == {"source": str(project / "in.vec"), "target": str(project / "out.vec")}
    check = ["check", project / "recipe.yaml", *both, "--json"]
    free, frozen = (
        succeed(*check, f"model.vectors.freeze={one}").json for one in ("false", "true")
    )
    assert free["data"]["findings"][-1] == f"vectors: 1 of {sizes[1]} target tokens found"
    size = sum(
        load_weights(run.checkpoint("last"))[f"{side}_embedding.weight"].numel()
        for side in vectors.files
    )
    assert free["model"]["parameters"] - frozen["model"]["parameters"] == size, (
        "frozen ones are not trained"
    )


def test_tied_embeddings_take_one_file(project: Path) -> None:
    """Of both sides and the readout, wherever it is named; two files are refused."""
    tied = ["tokenizer.joint=true", "model.tie=all", "model.vectors={target: in.vec, freeze: true}"]
    run = train(project / "recipe.yaml", tied, out=project / "run", quiet=True)
    model = run.load_model("last")
    assert (
        model.source_embedding.weight is model.target_embedding.weight is model.output.linear.weight
    )  # type: ignore[union-attr]
    assert rows(run, model.source_embedding.weight, "▁dog") == [[1, 2, 3, 4]]
    with pytest.raises(
        ConfigError, match="tie: all has one embedding for both sides: give it one file"
    ):
        load_recipe(project / "recipe.yaml", [*tied[:2], "model.vectors.target=out.vec"])
    load_recipe(project / "recipe.yaml", [*tied[:2], "model.vectors.target=in.vec"])


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["model.embedding=8"],
            "in.vec:1: the vectors have 4 numbers, the embeddings of the model 8 (set "
            "model.embedding to 4, ",
        ),
        (
            ["model={kind: transformer, preset: tiny, vectors: {source: in.vec}}"],
            "in.vec:1: the vectors have 4 numbers, the embeddings of the model 128 (set "
            "model.width to 4, ",
        ),
        (["model.vectors.source=on.vec"], "on.vec: there is no such file (looked in "),
        (
            ["model.vectors={freeze: true}"],
            "model.vectors: name a file of vectors for the source, the target, or both",
        ),
    ],
)
def test_a_mistake_leaves_no_run(project: Path, overrides: list[str], said: str) -> None:
    [message] = fail("train", project / "recipe.yaml", *overrides, "--out", project / "run")
    assert message.startswith(said)
    assert fail("check", project / "recipe.yaml", *overrides) == [message]
    assert not (project / "run").exists()


def test_the_weights_of_a_run_come_before_vectors_and_that_is_said(project: Path) -> None:
    recipe, one_step = (
        project / "recipe.yaml",
        ["training.steps=1", "training.ema=null", "training.average=1"],
    )
    train(recipe, ["model.vectors=null", *one_step], out=project / "before", quiet=True)
    both = [*one_step, "training.init=before", "model.vectors.source=on.vec"]
    note = "vectors: model.vectors is not read, the weights of before include embeddings"
    assert note in succeed("check", recipe, *both, "--json").json["data"]["findings"]
    assert note in succeed("train", recipe, *both, "--out", project / "run").err


# word2vec: its loss in plain loops, what is drawn in training, and that words of one class become
# neighbours

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


def test_a_batch_without_a_pair_has_no_loss() -> None:
    """Equation 5 may skip every word."""
    loss_2 = SkipGram(model_of(subsampling=1e-30)).train()(text_batch())
    assert loss_2.tolist() == [0, 0]
    loss_2[0].backward()


def test_frequent_words_are_skipped() -> None:
    """Equation 5: sqrt(t / f). Word 4 has 16 of 44: sqrt(0.01 * 44 / 16) = 0.1658."""
    kept = model_of().output.kept_V(0.01)
    assert kept[[4, 1]].tolist() == pytest.approx([math.sqrt(0.44 / 16), math.sqrt(0.44)])
    assert model_of().output.kept_V(1.0).tolist() == [1.0] * len(COUNTS)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    folder = tmp_path_factory.mktemp("word2vec")
    recipe = """
        task: language_modeling
        data: {train: {corpus: tales-en, size: 1500}, validation: {corpus: tales-en, size: 50}}
        tokenizer: {kind: word, vocabulary: 1000}
        model: {kind: word2vec, width: 32}
        training: {steps: 100, batch_tokens: 2048, learning_rate: 4.0e-2, warmup: 10, schedule: linear}
    """
    succeed("train", write(folder / "recipe.yaml", recipe), "--out", folder / "run", "--json")
    return folder / "run"


def test_words_of_one_class_become_neighbours(run: Path) -> None:
    model, tokenizer = Run.open(run).load_model("best", "cpu"), Run.open(run).tokenizers["text"]
    classes = (
        "dog cat fox tiger lion",
        "Paris London Seoul Busan",
        "father mother grandfather grandmother",
    )
    class_of = {word: names for names in classes for word in names.split()}
    vectors = torch.nn.functional.normalize(
        model.embedding.weight[[tokenizer.encode(word)[0] for word in class_of]]
    )
    nearest = [
        [*class_of][row] for row in (vectors @ vectors.T).fill_diagonal_(-1).argmax(1).tolist()
    ]
    wrong = [
        pair
        for pair in zip(class_of, nearest, strict=True)
        if class_of[pair[0]] != class_of[pair[1]]
    ]
    assert len(wrong) <= 2, wrong


def test_its_vectors_begin_another_model_and_serve_a_head(run: Path, tmp_path: Path) -> None:
    succeed("export", run, "--to", "word2vec", "--out", tmp_path / "vectors")
    lines = (tmp_path / "vectors" / "text.vec").read_text(encoding="utf-8").splitlines()
    assert lines[0].split()[1] == "32"
    [paris] = [line for line in lines if line.startswith("Paris ")]
    weights, tokenizer = (
        Run.open(run).load_model("best", "cpu").embedding.weight,
        Run.open(run).tokenizers["text"],
    )
    assert [*map(float, paris.split()[1:])] == pytest.approx(
        weights[tokenizer.encode("Paris")[0]].tolist()
    )
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
    succeed(
        "train", write(tmp_path / "reviews.yaml", reviews), "--out", tmp_path / "reviews", "--json"
    )


def test_what_it_cannot_do_is_said_in_one_sentence(run: Path) -> None:
    assert "predict: this model does not continue texts" in refusal("predict", run, "a dog")
    assert "word2vec neither attends nor predicts a text" in refusal("explain", run, "a dog")
    assert "compare: word2vec has no probability of a text" in refusal("compare", run, run)
    assert set(succeed("evaluate", run, "--split", "validation", "--json").json) >= {
        "loss",
        "documents",
    }
