"""`explain --numbers`: every number recomputed by plain loops, and the context equal to the model's
own; and what a page offers, what it opens with, and how large long texts make it."""

import base64
import json
import math
import re
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from rich.console import Console

import regard as api
from command_line import fail, succeed
from regard.errors import DecodeError
from regard.views.attention import ATTENTION_NAMES, module_calls
from regard.views.explanation import Explanation, View, ViewOptions
from regard.views.page import page
from regard.views.picture import draw
from regard.views.report import HeatMaps, Table
from regard.views.terminal import print_report
from regard.views.worked_attention import WorkedAttention
from tiny import TINY

BAHDANAU = {"kind": "bahdanau", "embedding": 8, "hidden": 8, "attention": 6}
LUONG = {"kind": "luong", "embedding": 8, "hidden": 8, "attention": 6}
TRANSFORMER = {
    "kind": "transformer",
    "width": 8,
    "heads": 2,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "norm": "post",
}
SELF = {"kind": "self_attention", "width": 8, "heads": 2, "decoder_layers": 1, "norm": "post"}
MODELS: dict[str, dict[str, Any]] = {
    "additive": BAHDANAU,
    "concat": BAHDANAU | {"score": "concat", "cell": "lstm"},
    "fully_connected": BAHDANAU | {"score": "fully_connected"},
    "dot": LUONG | {"score": "dot"},
    "general": LUONG | {"score": "general", "input_feeding": False},
    "scaled_dot": LUONG | {"score": "scaled_dot", "input_feeding": False},
    "local_p": LUONG | {"reach": "local_p", "window": 2},
    "transformer": TRANSFORMER,
    "pre_norm": TRANSFORMER | {"norm": "pre"},
    "no_residual": TRANSFORMER | {"residual": False, "scaled": False, "norm": "none"},
    "plain": SELF | {"encoder": "plain"},
    "projected": SELF | {"encoder": "projected"},
}


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> dict[str, Explanation]:
    folder, found = tmp_path_factory.mktemp("numbers"), {}
    for name, model in MODELS.items():
        training = TINY["training"] | {"steps": 1, "validate_every": 1, "decode": 0}
        run = api.train(
            TINY | {"model": model, "training": training}, out=folder / name, quiet=True
        )
        found[name] = api.explain(run, "a b c", target="c b")
    return found


def work_out(found: Explanation, view: View | None = None, **options: Any) -> WorkedAttention:
    return found.select(ViewOptions(view, **options)).worked()


def text_of(worked: WorkedAttention) -> str:
    console = Console(highlight=False, soft_wrap=True, width=200)
    with console.capture() as captured:
        print_report(worked.report(), console)
    return captured.get()


def dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def score_by_hand(name: str, found: Explanation, worked: WorkedAttention, j: int) -> float:
    """e_j from the query, the key and the layer between them, as they are shown."""
    query = [*worked.query.values()][-1].tolist()
    key, *hidden = (vectors_KD[j].tolist() for vectors_KD in worked.vectors.values())
    hidden = hidden[:-1]  # the values are last; of a dot product they are the keys
    if not hidden:
        scaled = "sqrt" in worked.score and "k_j" in worked.vectors
        return dot(query, key) / math.sqrt(len(key) if scaled else 1)
    activation = (lambda x: max(0.0, x)) if name == "fully_connected" else math.tanh
    assert [activation(q + k) for q, k in zip(query, key, strict=True)] == pytest.approx(
        hidden[0], abs=1e-5
    )
    attention = found.model.get_submodule("attention")
    v = next(getattr(attention, letter) for letter in ("v_a", "w") if hasattr(attention, letter))
    return dot(v.weight[0].tolist(), hidden[0])


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("step", [1, 3])
def test_the_numbers_by_hand(explained: dict[str, Explanation], name: str, step: int) -> None:
    found = explained[name]
    worked = work_out(found, step=step)
    scores = worked.scores_K.tolist()
    seen = [j for j, score in enumerate(scores) if score != -math.inf]
    assert [score_by_hand(name, found, worked, j) for j in seen] == pytest.approx(
        [scores[j] for j in seen], abs=1e-5
    )
    if name != "local_p":
        total = sum(math.exp(scores[j]) for j in seen)
        assert worked.weights_K.tolist() == pytest.approx(
            [math.exp(score) / total for score in scores], abs=1e-6
        )
    recorded = found.of_kind("alignment")[-1].weights[0, step - 1]
    assert worked.weights_K.tolist() == pytest.approx(recorded.tolist(), abs=1e-6)
    *_, values = (vectors_KD.tolist() for vectors_KD in worked.vectors.values())
    context = [
        dot(worked.weights_K.tolist(), [row[d] for row in values]) for d in range(len(values[0]))
    ]
    assert worked.context_D.tolist() == pytest.approx(context, abs=1e-6)


@pytest.mark.parametrize("name", ["additive", "concat", "dot", "general", "local_p"])
def test_the_context_is_the_one_that_the_recurrent_model_reads(
    explained: dict[str, Explanation], name: str
) -> None:
    found = explained[name]
    reader = "UVC_o" if found.model_kind == "bahdanau" else "W_c"
    with torch.inference_mode(), module_calls(found.model, [reader]) as calls:
        hidden_TD = found.model(found.batch).hidden_BTD[0]
    read_TD = torch.cat(
        [call.inputs[0].reshape(-1, call.inputs[0].shape[-1]) for call in calls[reader]]
    )
    for step, (read_D, hidden_D) in enumerate(zip(read_TD, hidden_TD, strict=True), 1):
        worked = work_out(found, step=step)
        width = len(worked.context_D)
        context = read_D[-width:] if reader == "UVC_o" else read_D[:width]
        assert worked.context_D.tolist() == pytest.approx(context.tolist(), abs=1e-6)
        # The last line is what the readout turns into the likeliest tokens.
        assert [*worked.after.values()][-1].tolist() == pytest.approx(hidden_D.tolist(), abs=1e-6)


@pytest.mark.parametrize("name", ["transformer", "pre_norm", "no_residual", "plain", "projected"])
@pytest.mark.parametrize("view", ["alignment", "encoder", "decoder"])
def test_what_a_transformer_does_with_the_context(
    explained: dict[str, Explanation], name: str, view: Any
) -> None:
    """All heads are joined, x is added, and the result is what the next sublayer reads."""
    found = explained[name]
    attention, block = found.of_kind(view)[0], found.of_kind(view)[0].name.rpartition(".")[0]
    heads = [
        work_out(found, view, layer=1, head=h, step=2) for h in range(1, len(attention.weights) + 1)
    ]
    joined_D = torch.cat([worked.context_D for worked in heads])
    module = found.model.get_submodule(attention.name)
    with torch.inference_mode():
        out_D = module.W_O(joined_D) if hasattr(module, "W_O") else joined_D
    (x_D, *_), (that_D, total_D, *_) = heads[0].query.values(), heads[0].after.values()
    assert that_D.tolist() == pytest.approx(out_D.tolist(), abs=1e-6)
    assert total_D.tolist() == (that_D if name == "no_residual" else x_D + that_D).tolist()
    reads = "cross_attention" if view == "decoder" else "feed_forward"
    if found.model_kind == "self_attention" and view == "encoder":
        return  # nothing stands between this attention and the decoder
    with torch.inference_mode(), module_calls(found.model, [f"{block}.{reads}"]) as calls:
        found.model(found.batch)
    next_D, after_D = calls[f"{block}.{reads}"][0].inputs[0][0, 1], [*heads[0].after.values()][-1]
    if name == "pre_norm":
        assert [*heads[0].query] == [
            "x, the state so far",
            "LayerNorm(x), what looks",
            "q = LayerNorm(x) W_Q, head 1",
        ]
        sublayer = found.model.get_submodule(
            f"{block}.around_{'cross' if view == 'decoder' else 'feed_forward'}"
        )
        with torch.inference_mode():
            after_D = sublayer.norm(after_D)
    assert next_D.tolist() == pytest.approx(after_D.tolist(), abs=1e-5)


# Changed scores


@pytest.mark.parametrize("name", list(MODELS))
def test_scores_that_are_not_changed_change_nothing(
    explained: dict[str, Explanation], name: str
) -> None:
    found = explained[name].select(ViewOptions(step=2))
    worked = found.worked()
    again = found.worked(
        [score if math.isfinite(score) else None for score in worked.scores_K.tolist()]
    )
    for one, other in zip([*worked.after.values()], [*again.after.values()], strict=True):
        assert one.tolist() == pytest.approx(other.tolist(), abs=1e-6)
    assert [one.probability for one in again.outcome] == pytest.approx(
        [one.probability for one in found.steps]
    )
    assert worked.outcome == found.steps


@pytest.mark.parametrize("name", ["additive", "concat", "dot", "general", "local_p"])
def test_what_follows_from_changed_scores_in_a_recurrent_model(
    explained: dict[str, Explanation], name: str
) -> None:
    """Tokens before the step stay as they were; at the step the readout reads the last line; `h~`
    by hand."""
    found = explained[name].select(ViewOptions(step=2))
    before = found.worked()
    scores = [None, *before.scores_K.tolist()[1:-1], 3.0]
    scores = [None if score is None or not math.isfinite(score) else score for score in scores]
    changed = found.worked(scores)
    assert changed.weights_K[0] == 0
    if name != "local_p":
        assert float(changed.weights_K.sum()) == pytest.approx(1)
    assert changed.outcome[0] == before.outcome[0]
    [*_, last_D] = changed.after.values()
    with torch.inference_mode():
        p_V = found.model.readout(last_D).softmax(-1)
    assert changed.outcome[1].candidates[0][1] == pytest.approx(float(p_V.max()), abs=1e-5)
    assert last_D.tolist() != pytest.approx([*before.after.values()][-1].tolist(), abs=1e-6)
    if found.model_kind == "luong":
        with torch.inference_mode(), module_calls(found.model, ["W_c"]) as calls:
            found.model(found.batch)
        read_TD = torch.cat(
            [call.inputs[0].reshape(-1, call.inputs[0].shape[-1]) for call in calls["W_c"]]
        )
        width = len(changed.context_D)
        with torch.inference_mode():
            by_hand = torch.tanh(
                found.model.W_c(torch.cat([changed.context_D, read_TD[1, width:]]))
            )
        assert last_D.tolist() == pytest.approx(by_hand.tolist(), abs=1e-5)


@pytest.mark.parametrize("name", ["transformer", "pre_norm"])
def test_what_follows_from_changed_scores_in_a_transformer(
    explained: dict[str, Explanation], name: str
) -> None:
    """Only one head reads other values: the others' contexts are joined with the changed one by
    hand."""
    found = explained[name]
    first, second = (found.select(ViewOptions("alignment", 2, head, step=1)) for head in (1, 2))
    changed = second.worked([None, *second.worked().scores_K.tolist()[1:]])
    module = found.model.get_submodule(found.of_kind("alignment")[1].name)
    with torch.inference_mode():
        out_D = module.W_O(torch.cat([first.worked().context_D, changed.context_D]))
    assert next(iter(changed.after.values())).tolist() == pytest.approx(out_D.tolist(), abs=1e-6)
    assert [one.probability for one in changed.outcome] != [one.probability for one in found.steps]
    for wrong, message in (([1.0], "1 scores for 6 keys"), ([None] * 6, "every key is hidden")):
        with pytest.raises(DecodeError, match=message):
            second.worked(wrong)


def test_the_printed_numbers_are_those_that_were_worked_out(
    explained: dict[str, Explanation],
) -> None:
    worked = work_out(explained["additive"], step=2)
    text = text_of(worked)
    assert text.startswith(
        "attention over the source (attention), layer 1 of 1, writing ␣, step 2 of 4\n"
    )
    assert "e_ij = v_a . tanh(W_a s_{i-1} + U_a h_j)" in text
    rows = re.findall(
        r"^ +(\S+) +\[.*\] +\[.*\] +(-?[\d.]+) +([\d.]+) +\[.*\] *$", text, flags=re.MULTILINE
    )
    assert [row[0] for row in rows] == ["a", "␣", "b", "␣", "c", "⏎"]
    assert [float(row[1]) for row in rows] == pytest.approx(worked.scores_K.tolist(), abs=1e-4)
    assert [float(row[2]) for row in rows] == pytest.approx(worked.weights_K.tolist(), abs=1e-4)
    context = re.search(r"c_i = sum_j alpha_ij h_j +\[(.*) …\]", text)
    assert context is not None
    assert list(map(float, context[1].split())) == pytest.approx(
        worked.context_D[:4].tolist(), abs=1e-4
    )
    with pytest.raises(DecodeError, match="tokens, not of words"):
        work_out(explained["additive"], words=True)


def test_long_texts_show_the_keys_that_weigh_most(tiny_run: Path) -> None:
    worked = work_out(api.explain(tiny_run, "a b c d e f g h i j" * 2, target="a"))
    largest = sorted(worked.weights_K.tolist())[-16:]
    text = text_of(worked)
    shown = re.findall(r"^ +\S+ +\[.* ([\d.]+) +\[", text, flags=re.MULTILINE)
    assert sorted(map(float, shown)) == pytest.approx(largest, abs=1e-4)
    assert (
        f"and {len(worked.keys) - 16} more, with "
        f"{float(worked.weights_K.sum()) - sum(largest):.4f} of" in text
    )


def test_numbers_are_printed_and_written(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture has no place for them: there it is that of the attention."""
    monkeypatch.setenv("COLUMNS", "200")
    arguments = ("explain", tiny_run, "a b", "--target", "b a", "--numbers", "--step", "2")
    worked = work_out(api.explain(tiny_run, "a b", target="b a"), step=2)
    assert succeed(*arguments).out == text_of(worked)
    shown = succeed(*arguments, "--out", tmp_path / "worked.json", "--json").json
    assert json.loads((tmp_path / "worked.json").read_text(encoding="utf-8")) == shown
    assert (shown["weights"], shown["keys"]) == (worked.weights_K.tolist(), list(worked.keys))
    succeed(*arguments, "--out", tmp_path / "picture.svg")
    assert "<svg" in (tmp_path / "picture.svg").read_text(encoding="utf-8")
    message = "--view: the model 'bahdanau' has no view 'encoder' (allowed for it: alignment)"
    assert fail(*arguments, "--view", "encoder") == [message]


def test_a_text_may_come_on_standard_input(tiny_run: Path) -> None:
    shown = succeed("explain", tiny_run, "a b", "--json").json
    for arguments in ((), ("-",)):
        assert succeed("explain", tiny_run, *arguments, "--json", stdin="a b\n").json == shown
    message = "standard input: explain takes one text, but there are 2 lines (give one of them)"
    assert fail("explain", tiny_run, "-", stdin="a\nb\n") == [message]
    assert fail("explain", tiny_run)[0].startswith("INPUT: there is nothing to explain")
    hint = "give a file, whose suffix says what it is"
    for verb in ("evaluate", "diagnose"):
        assert fail(verb, tiny_run, "--file", "-") == [
            f"--file: standard input is not read here ({hint})"
        ]


# As files

SVG = "{http://www.w3.org/2000/svg}"
SOURCE, ENCODER, DECODER = (
    ATTENTION_NAMES["alignment"],
    ATTENTION_NAMES["encoder"],
    ATTENTION_NAMES["decoder"],
)
MEAN = ("mean of all layers", "mean of all heads")
LONG = "abcdefghij" * 51 + "a"
"""511 characters, with `</s>` 512 tokens."""


@pytest.fixture(scope="module")
def deep_run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> api.Run:
    """The preset `tiny` of the Transformer: four layers of four heads on each side."""
    training = TINY["training"] | {"steps": 1, "validate_every": 1, "decode": 0}
    model = {"kind": "transformer", "preset": "tiny", "norm": "post"}
    recipe = TINY | {"model": model, "training": training}
    return api.train(recipe, out=tmp_path_factory.mktemp("files") / "run", quiet=True)


@pytest.fixture(scope="module")
def deep(deep_run: api.Run) -> Explanation:
    return api.explain(deep_run, "a b c", target="c b")


@pytest.fixture(scope="module")
def long(deep_run: api.Run) -> Explanation:
    return api.explain(deep_run, LONG, target=LONG)


def maps_of(explanation: Explanation, **options: Any) -> HeatMaps:
    parts = [
        part
        for section in explanation.select(ViewOptions(**options)).report().sections
        for part in section.parts
    ]
    [maps] = [part for part in parts if isinstance(part, HeatMaps)]
    return maps


def test_the_page_holds_every_head_every_layer_and_every_rollout(deep: Explanation) -> None:
    offered = {one.choice: one for one in maps_of(deep).maps}
    for attention in deep.attentions.values():
        name, layer = ATTENTION_NAMES[attention.kind], f"layer {attention.layer}"
        for head, weights in enumerate(attention.weights, 1):
            assert np.array_equal(offered[name, layer, f"head {head}"].values, weights)
        mean = attention.weights.mean(0, dtype=np.float64)
        assert offered[name, layer, "mean of all heads"].values == pytest.approx(mean)
        rolled = deep.rollouts[attention.kind][attention.layer - 1].weights[0]
        assert np.array_equal(offered[name, layer, "rolled out up to this layer"].values, rolled)
    assert np.array_equal(offered[SOURCE, *MEAN].values, deep.weights)
    assert offered[DECODER, *MEAN].rows == ["<s>", "c", "␣", "b"]
    others = [choice[0] for choice in offered if choice[1:] == ("", "")]
    masks = [f"{name}: what it may see" for name in (ENCODER, DECODER, SOURCE)]
    assert others == ["c by head", *masks, "positions 0 to 49, 128 dimensions"]
    assert offered[others[-1], "", ""].values[3, :2] == pytest.approx([np.sin(3), np.cos(3)])
    [table] = [
        part
        for section in deep.report().sections
        for part in section.parts
        if isinstance(part, Table)
    ]
    for step, row in zip(deep.steps, table.cells, strict=True):  # the likeliest tokens
        assert all(f"{p:.3f}" in row[-1].text for _, p in step.candidates)


@pytest.mark.parametrize(
    ("options", "opening"),
    [
        ({}, (SOURCE, *MEAN)),
        ({"view": "encoder", "layer": 3, "head": 2}, (ENCODER, "layer 3", "head 2")),
        ({"view": "decoder", "head": 2}, (DECODER, "mean of all layers", "head 2")),
        ({"view": "encoder", "layer": "all", "head": "all"}, (ENCODER, "layer 1", "head 1")),
        ({"rollout": True}, (SOURCE, "layer 4", "rolled out up to this layer")),
        (
            {"view": "encoder", "layer": 2, "rollout": True},
            (ENCODER, "layer 2", "rolled out up to this layer"),
        ),
        ({"view": "heads", "step": 2}, ("␣ by head", "", "")),
        ({"view": "heads", "step": 2, "words": True}, ("b by head", "", "")),
        ({"view": "decoder", "words": True}, (DECODER, *MEAN)),
    ],
    ids=str,
)
def test_what_the_page_opens_with(
    deep: Explanation, options: dict[str, Any], opening: tuple[str, str, str]
) -> None:
    drawn, asked = maps_of(deep, **options).drawn, deep.select(ViewOptions(**options)).heat_maps()
    assert drawn[0].choice == opening
    assert all(
        np.array_equal(one.values, other.values) for one, other in zip(drawn, asked, strict=True)
    )


def test_512_tokens_make_a_page_below_3_megabytes_that_says_what_it_keeps(
    long: Explanation,
) -> None:
    assert len(long.source.texts) == len(long.target.texts) == 512
    assert len(page(long.report()).encode()) < 3_000_000
    data = maps_of(long).to_json()
    packed = {tuple(one["choice"]): one for one in data["maps"]}
    thinned, weights = packed[SOURCE, "layer 4", "head 3"], long.of_kind("alignment")[3].weights[2]
    largest = -np.sort(-weights, axis=1)[:, : data["kept"]]
    assert thinned["share"] == pytest.approx(largest.sum() / weights.sum(), abs=1e-3)
    assert "places" not in packed[SOURCE, *MEAN], "what is shown first is whole"
    other = {tuple(one["choice"]): one for one in maps_of(long, view="encoder").to_json()["maps"]}
    assert ("places" in other[ENCODER, *MEAN], "places" in other[SOURCE, *MEAN]) == (False, True)


def test_512_tokens_make_an_svg_with_one_image_of_the_cells(long: Explanation) -> None:
    pytest.importorskip("matplotlib")
    content = draw([maps_of(long, view="encoder", layer=1, head=1)], Path("x.svg"))
    assert len(content) < 1_000_000
    images = [*ElementTree.fromstring(content).iter(f"{SVG}image")]
    png = base64.b64decode(images[0].attrib["{http://www.w3.org/1999/xlink}href"].partition(",")[2])
    assert png[1:4] == b"PNG"
    assert min(struct.unpack(">II", png[16:24])) >= 512


def test_a_file_is_replaced_whole(deep_run: api.Run, tmp_path: Path) -> None:
    path = tmp_path / "나무.svg"
    path.write_text("old")
    arguments = ("explain", deep_run.folder, "a b", "--layer", 2, "--head", "all", "--out", path)
    assert succeed(*arguments, "--overwrite").out.endswith(f"drawn: {path}\n")
    content = path.read_text(encoding="utf-8")
    assert all(
        content.count(f"layer 2 · head {head}") == 1 for head in range(1, 5)
    )  # one beside the other
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
