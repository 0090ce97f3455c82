"""What `explain` finds: weights, masks, probabilities, positions, words, rollouts; against numbers
worked by hand."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import regard as api
from command_line import fail, succeed
from model_cases import CASES, batch_of, build
from regard.layers.attention import recording
from regard.layers.embeddings import sinusoidal_positions
from regard.runs import Run
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.views.attention import Attention, AttentionKind, TextPieces, merge_pieces
from regard.views.explain import pieces_of, roll_out
from regard.views.explanation import Explanation, ViewOptions
from regard.views.report import HeatMap
from tiny import TINY

MODELS: dict[str, dict[str, Any]] = {
    "rnn": {"kind": "rnn", "embedding": 8, "hidden": 8},
    "bahdanau": {"kind": "bahdanau", "embedding": 8, "hidden": 8, "attention": 8},
    "luong": {"kind": "luong", "embedding": 8, "hidden": 8, "reach": "local_p", "window": 2},
    "self_attention": {
        "kind": "self_attention",
        "width": 8,
        "heads": 2,
        "decoder_layers": 1,
        "encoder": "plain",
    },
    "transformer": {
        "kind": "transformer",
        "width": 16,
        "heads": 2,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "feed_forward": 16,
    },
}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> dict[str, Path]:
    """One run a model, hardly trained: what is tested holds for any weights."""
    folder = tmp_path_factory.mktemp("explained")
    for name, model in MODELS.items():
        training = TINY["training"] | {"steps": 2, "validate_every": 2, "decode": 0}
        api.train(TINY | {"model": model, "training": training}, out=folder / name, quiet=True)
    return {name: folder / name for name in MODELS}


@pytest.fixture(scope="session")
def transformer(runs: dict[str, Path]) -> Explanation:
    return api.explain(runs["transformer"], "a b c", target="c b")


def maps(explanation: Explanation, *options: Any, **others: Any) -> list[HeatMap]:
    return explanation.select(ViewOptions(*options, **others)).heat_maps()


def test_a_window_is_a_mask() -> None:
    """Of other attentions see contract/test_models.py."""
    model = build(CASES["luong-local-m-plain"])
    with torch.inference_mode(), recording() as recorded:
        model(batch_of())
    for t, row in enumerate(recorded.by_name(model, visible=True)["attention"][0, 0].tolist()):
        assert row == [abs(s - t) <= 1 and s < 5 for s in range(7)]


def test_every_attention_by_layer_and_head_is_kept_once(transformer: Explanation) -> None:
    """Weights of 512 tokens in 12 layers are 151 MB: neither what a call computed nor the map of a
    head is a copy."""
    with torch.inference_mode(), recording() as recorded:
        transformer.model(transformer.batch)
    by_name = recorded.by_name(transformer.model)
    computed = [weights_BHQK.data_ptr() for _, weights_BHQK, _ in recorded.calls]
    assert [weights.data_ptr() for weights in by_name.values()] == computed
    [heat_map] = maps(transformer, "encoder", 2, 1)
    assert np.shares_memory(heat_map.values, transformer.of_kind("encoder")[1].weights)
    assert list(transformer.attentions) == list(by_name)
    for name, attention in transformer.attentions.items():
        assert attention.weights.tolist() == by_name[name][0].tolist()
    kinds = [(one.kind, one.layer, one.weights.shape[0]) for one in transformer.attentions.values()]
    assert kinds == [
        ("encoder", 1, 2),
        ("encoder", 2, 2),
        ("decoder", 1, 2),
        ("alignment", 1, 2),
        ("decoder", 2, 2),
        ("alignment", 2, 2),
    ]
    first = transformer.of_kind("decoder")[0]
    assert first.queries.texts == first.keys.texts == ("<s>", "c", "▁", "b")
    assert (
        transformer.of_kind("alignment")[0].queries.texts
        == ("c", "▁", "b", "</s>")
        == transformer.target.texts
    )


def test_all_numbers_are_printed_and_written_and_many_come_with_a_note(
    runs: dict[str, Path], transformer: Explanation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, command = (
        tmp_path / "all.json",
        ("explain", runs["transformer"], "a b c", "--target", "c b", "--json"),
    )
    printed = succeed(*command, "--out", path).json
    assert (
        json.loads(path.read_text(encoding="utf-8"))
        == printed
        == json.loads(json.dumps(transformer.to_json()))
    )
    monkeypatch.setattr(
        "regard.cli.explaining.LARGE_JSON_BYTES",
        10 * sum(one.weights.size for one in transformer.attentions.values()) - 1,
    )
    assert "MB of JSON: --layer and --head choose one attention" in succeed(*command).err
    assert not succeed(*command, "--layer", "1", "--head", "1").err


@pytest.mark.parametrize("name", list(MODELS))
def test_the_five_likeliest_tokens_are_those_of_the_softmax(
    runs: dict[str, Path], name: str
) -> None:
    found = api.explain(runs[name], "a b c", target="b a")
    vocabulary = Run.open(runs[name]).tokenizers["target"]
    with torch.inference_mode():
        logits_TV = found.model.readout(found.model(found.batch).hidden_BTD[0]).double()
    written = found.batch.target.ids_BL[0, 1:].tolist()
    for logits_V, step, token in zip(logits_TV, found.steps, written, strict=True):
        p_V = logits_V.exp() / logits_V.exp().sum()
        ranked = sorted(range(len(p_V)), key=lambda v: -float(p_V[v]))
        tokens, probabilities = zip(*step.candidates, strict=True)
        assert list(tokens) == vocabulary.pieces(ranked[:5])
        assert probabilities == pytest.approx(p_V[ranked[:5]].tolist(), abs=1e-5)
        assert (step.probability, step.rank) == (
            pytest.approx(float(p_V[token]), abs=1e-5),
            ranked.index(token) + 1,
        )


def test_the_target_is_the_one_the_beam_finds(runs: dict[str, Path]) -> None:
    for beam in (1, 4):
        [prediction] = api.predict(runs["bahdanau"], ["a b c"], beam=beam)
        found = api.explain(runs["bahdanau"], "a b c", beam=beam)
        assert found.output == prediction.output
        total = sum(np.log(step.probability) for step in found.steps)
        assert total == pytest.approx(prediction.nbest[0].score, abs=1e-4)


def test_padding_changes_nothing_but_the_empty_columns(runs: dict[str, Path]) -> None:
    for name in [*MODELS][1:]:
        plain, padded = (
            api.explain(runs[name], "a b", target="b a", padding=padding) for padding in (0, 3)
        )
        rows, columns = plain.weights.shape
        assert padded.source.texts == (*plain.source.texts, *["<pad>"] * 3)
        assert padded.weights[:rows, :columns] == pytest.approx(plain.weights, abs=1e-6)
        assert not padded.weights[:rows, columns:].any()
        for step, other in zip(plain.steps, padded.steps, strict=True):
            assert dict(step.candidates) == pytest.approx(dict(other.candidates), abs=1e-6)


def test_positions_are_those_of_the_paper(transformer: Explanation) -> None:
    [picture] = maps(transformer, "positions")
    assert picture.values == pytest.approx(sinusoidal_positions(50, 16).numpy())
    assert [row for row in picture.rows if row] == ["0", "10", "20", "30", "40"]


def test_masks_are_drawn_once_for_all_layers(runs: dict[str, Path]) -> None:
    found = api.explain(runs["transformer"], "a b c", target="c b", padding=2)
    encoder, decoder, cross = maps(found, "masks")
    assert encoder.values.tolist() == [[1.0] * 6 + [0.0] * 2] * 8
    assert decoder.values.tolist() == [
        [float(k <= q and k < 4) for k in range(6)] for q in range(6)
    ]
    assert cross.values.tolist() == [[1.0] * 6 + [0.0] * 2] * 6


def layers(kind: AttentionKind, matrices: Any) -> dict[str, Attention]:
    """Attentions with one head and these weights [Q, K], first layer first."""
    found = {}
    for number, weights in enumerate(np.array(matrices), 1):
        queries, keys = (TextPieces(("a",) * size, tuple(range(size))) for size in weights.shape)
        name, visible = f"{kind}.{number}", np.ones(weights.shape, dtype=bool)
        found[name] = Attention(name, kind, number, queries, keys, weights[None], visible)
    return found


def rolled(encoder: Any, own: Any, cross: Any, **options: bool) -> dict[AttentionKind, list[Any]]:
    attentions = layers("encoder", encoder) | layers("decoder", own) | layers("alignment", cross)
    return {
        kind: [one.weights[0] for one in found]
        for kind, found in roll_out(attentions, **options).items()
    }


def test_a_rollout_by_hand() -> None:
    """Two layers over two words: A_1 = (I + W_1) / 2 = [[.75, .25], [0, 1]], A_2 = [[.5, .5], [.5,
    .5]]."""
    found = rolled([[[0.5, 0.5], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]], [[[1.0]]], [[[1.0, 0.0]]])
    assert found["encoder"][0].tolist() == [[0.75, 0.25], [0.0, 1.0]]
    assert found["encoder"][1].tolist() == [[0.375, 0.625], [0.375, 0.625]]
    assert (found["decoder"][0].tolist(), found["alignment"][0].tolist()) == (
        [[0.5]],
        [[0.1875, 0.3125]],
    )
    # Regions of an image, which no layers mix: half of each state is what it was, half what it
    # looked at.
    cross = np.array([[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]])
    found = rolled([], [[[1.0, 0.0], [0.4, 0.6]]], [cross])
    assert found["alignment"][0] == pytest.approx(0.5 * cross)
    assert found["decoder"][0] == pytest.approx(np.array([[0.5, 0.0], [0.1, 0.4]]))
    assert "encoder" not in found


def test_without_residual_connections_a_rollout_is_the_product_of_the_weights() -> None:
    draw = np.random.default_rng(0)
    encoder, own, cross = (
        draw.dirichlet(np.ones(n), size=(2, m)) for m, n in ((4, 4), (3, 3), (3, 4))
    )
    found = rolled(encoder, own, cross, residual=False)
    assert found["encoder"][1] == pytest.approx(encoder[1] @ encoder[0])
    assert found["alignment"][1] == pytest.approx(cross[1] @ encoder[1] @ encoder[0])
    assert not found["decoder"][1].any()


@settings(max_examples=30)
@given(
    seed=st.integers(0, 99),
    depth=st.integers(1, 4),
    source=st.integers(1, 6),
    target=st.integers(1, 6),
)
def test_what_is_rolled_out_is_shared_out_whole(
    seed: int, depth: int, source: int, target: int
) -> None:
    draw = np.random.default_rng(seed)
    encoder = draw.dirichlet(np.ones(source), size=(depth, source))
    own = np.stack(
        [
            np.tril(one) / np.tril(one).sum(1, keepdims=True)
            for one in draw.random((depth, target, target))
        ]
    )
    found = rolled(encoder, own, draw.dirichlet(np.ones(source), size=(depth, target)))
    for of_source, of_target in zip(found["alignment"], found["decoder"], strict=True):
        assert of_source.sum(1) + of_target.sum(1) == pytest.approx(np.ones(target))
        assert not np.triu(of_target, 1).any(), "no state holds a word that comes after it"
    assert all(one.sum(1) == pytest.approx(np.ones(source)) for one in found["encoder"])


def test_words_by_hand() -> None:
    """Pieces a|b c|d look at x y|z: sums over x | y z, means over the pieces of each word that
    looks."""
    weights = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.0, 1.0, 0.0], [0.5, 0.25, 0.25]])
    assert merge_pieces(weights, [0, 1, 3], [0, 1]) == pytest.approx(
        np.array([[0.2, 0.8], [0.3, 0.7], [0.5, 0.5]])
    )


@pytest.mark.parametrize("kind", ["character", "bpe", "wordpiece"])
def test_words_begin_at_their_mark_and_special_tokens_stand_alone(kind: Any) -> None:
    tokenizer = Tokenizer.train(TokenizerConfig(kind=kind, vocabulary=40), ["나는 학교에 간다 ab"])
    ids = [
        tokenizer.begin,
        *tokenizer.encode("나는 학교에"),
        tokenizer.unk,
        *tokenizer.encode("ab"),
        tokenizer.end,
    ]
    begin, unknown, end = tokenizer.pieces([tokenizer.begin, tokenizer.unk, tokenizer.end])
    pieces = pieces_of(tokenizer, ids)
    assert len(pieces.texts) > 6
    assert pieces.words().texts == (begin, "나는", "학교에", unknown, "ab", end)
    assert pieces.words().words() == pieces.words()


def test_an_explanation_in_words_is_merged_from_its_pieces(transformer: Explanation) -> None:
    """So is its rollout: products of merged weights would be others, since the pieces of a word do
    not look alike."""
    words = transformer.select(ViewOptions(words=True))
    assert (words.source.texts, words.target.texts) == (("a", "b", "c", "</s>"), ("c", "b", "</s>"))
    assert words.weights == pytest.approx(
        merge_pieces(transformer.weights, [0, 1, 3], [0, 1, 3, 5]), abs=1e-6
    )
    for attention in words.attentions.values():
        assert attention.weights.sum(-1) == pytest.approx(
            np.ones(attention.weights.shape[:2]), abs=1e-5
        )
    for kind, tokens in transformer.rollouts.items():
        for layer, one in enumerate(tokens, 1):
            [picture] = maps(words, kind, layer, rollout=True)
            assert picture.values == pytest.approx(
                merge_pieces(one.weights[0], one.queries.starts, one.keys.starts)
            )
            assert picture.values.shape == (len(picture.rows), len(picture.columns))
    products = roll_out(words.attentions)["encoder"][-1].weights
    assert abs(products - words.rollouts["encoder"][-1].weights).max() > 1e-4


def test_a_model_without_attention_shows_its_probabilities(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    note, page = (
        "The model 'rnn' has no attention to draw; these are its probabilities.",
        tmp_path / "rnn.html",
    )
    given = ("explain", runs["rnn"], "a b", "--target", "b a")
    assert succeed(*given, "--out", page).out.splitlines() == [note, f"drawn: {page}"]
    out = succeed(*given).out.splitlines()
    assert out[0] == note
    assert [line.split()[1] for line in out if line.split()[5:]][-5:] == [
        "written",
        "b",
        "␣",
        "a",
        "⏎",
    ]
    assert note.partition("has")[2] in page.read_text(encoding="utf-8")


HAS = "alignment, encoder, decoder, probabilities, heads, masks, positions"
MAPS = "alignment, encoder, decoder"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--view", "mask"],
            f"--view: the model 'transformer' has no view 'mask' (allowed for it: {HAS})",
        ),
        (
            ["--question", "1"],
            "--question: a run of translation reads no story (runs of story_answering do)",
        ),
        (["--layer", "3"], "--layer: there is no layer 3 (allowed: 1 to 2, mean, all)"),
        (["--head", "0"], "--head: there is no head 0 (allowed: 1 to 2, mean, all)"),
        (["--layer", "first"], "--layer: there is no layer first (allowed: 1 to 2, mean, all)"),
        (
            ["--rollout", "--head", "1"],
            "--head: a rollout uses the mean of the heads (leave it out)",
        ),
        (["--padding", "-1"], "--padding: -1 padding tokens are not possible (0 or more)"),
        (["--numbers", "--head", "3"], "--head: there is no head 3 (allowed: 1 to 2)"),
        (["--numbers", "--layer", "all"], "--layer: there is no layer all (allowed: 1 to 2)"),
        (["--numbers", "--step", "0"], "--step: there is no step 0 (allowed: 1 to 2)"),
        (["--step", "1"], "--step: it does not change alignment (it changes heads, --numbers)"),
        (
            ["--view", "masks", "--head", "1"],
            f"--head: it does not change masks (it changes {MAPS}, --numbers)",
        ),
        (
            ["--view", "positions", "--padding", "2"],
            f"--padding: it does not change positions (it changes {MAPS}, heads, masks, --numbers)",
        ),
        (
            ["--numbers", "--rollout"],
            f"--rollout: it does not change --numbers (it changes {MAPS})",
        ),
        (["--beam", "2"], "--beam: with --target there is no search (leave it out)"),
    ],
)
def test_options_that_cannot_be(runs: dict[str, Path], options: list[str], message: str) -> None:
    assert fail("explain", runs["transformer"], "a", "--target", "b", *options) == [message]
