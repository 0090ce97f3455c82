"""What only a GPU can show: captured steps, packed sentences, half precision, memory that is
full."""

import gc
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from model_cases import CASES, CAUSAL_CASES, build, tokens_of
from regard.engine.attention import CachedRowsVisible
from regard.engine.graphs import CapturedUpdate
from regard.engine.losses import GPULoss
from regard.errors import ConfigError
from regard.layers import scores
from regard.layers.attention import attend
from regard.layers.linear import Dropout
from regard.objectives.cross_entropy import smoothed_loss
from regard.runs.metrics_log import read_metrics
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.text.vocabularies import END
from regard.training.train import train

Tree = dict[str, Any]

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def losses(run: Path) -> list[float]:
    return [
        line["loss"] for line in read_metrics(run / "metrics.jsonl") if line["event"] == "train"
    ]


def changed(recipe: Tree, model: Tree, **training: Any) -> Tree:
    recipe["model"] = model
    recipe["training"] |= {"device": "cuda", "log_every": 1, **training}
    return recipe


TRANSFORMER = {"kind": "transformer", "preset": "tiny", "width": 32, "heads": 2, "dropout": 0.1}


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("case", CAUSAL_CASES)
def test_a_search_finds_the_same_as_on_a_cpu(case: str, beam: int) -> None:
    """Sentences end at all lengths, since each may be so many times as long as its source."""
    draw, model = random.Random(0), build(CASES[case]).double()
    source = tokens_of(
        [[*(draw.randrange(4, 11) for _ in range(draw.randrange(1, 9))), END] for _ in range(24)]
    )
    config = SearchConfig(
        beam=beam, nbest=beam, max_length_ratio=2.0, max_length_offset=2, min_length_ratio=1.0
    )
    expected = search(model, source, config)
    found = search(model.cuda(), source.to("cuda"), config)
    assert len({len(hypotheses[0].tokens) for hypotheses in expected}) > 3
    for one, other in zip(found, expected, strict=True):
        # Not their tokens: of equal ones, either may be kept
        assert [hypothesis.score for hypothesis in one] == pytest.approx(
            [hypothesis.score for hypothesis in other]
        )


@pytest.mark.parametrize("model", [TRANSFORMER, None], ids=["transformer", "bahdanau"])
def test_bf16_learns_what_fp32_learns(
    tiny_recipe: Tree, tmp_path: Path, model: Tree | None
) -> None:
    model = (model or tiny_recipe["model"]) | {
        "dropout": 0.0
    }  # whose noise depends on the shape of a batch
    for precision in ("bf16", "fp32"):
        recipe = changed(tiny_recipe, model, precision=precision, steps=60, fill=True)
        train(recipe, out=tmp_path / precision, quiet=True)
    half, full = losses(tmp_path / "bf16"), losses(tmp_path / "fp32")
    assert half[0] == pytest.approx(full[0], rel=0.02)
    assert half[-1] == pytest.approx(full[-1], rel=0.1)
    assert full[-1] < 0.9 * full[0]


def test_fp16_goes_on_with_its_scaler_where_it_was_left(tiny_recipe: Tree, tmp_path: Path) -> None:
    recipe = changed(tiny_recipe, TRANSFORMER, precision="fp16", steps=20, checkpoint_every=10)
    train(recipe, out=tmp_path / "whole", quiet=True)
    train(recipe, ["training.steps=10"], out=tmp_path / "parts", quiet=True)
    train(recipe, out=tmp_path / "parts", resume=True, quiet=True)
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), rel=0.02)


@pytest.mark.parametrize(
    "settings",
    [{"clip": 0.05}, {"clip": None}, {"accumulate": 2, "optimizer": "adam"}],
    ids=["clipped", "not-clipped", "accumulated"],
)
def test_captured_updates_learn_what_others_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Tree
) -> None:
    """The batches have several shapes, and the learning rate changes. `parts` stops and goes on."""
    captures: list[CapturedUpdate] = []
    capture = CapturedUpdate.capture

    def counted(update: CapturedUpdate) -> Any:
        captures.append(update)
        return capture(update)

    monkeypatch.setattr(CapturedUpdate, "capture", counted)
    recipe = word_counting(tmp_path, settings)
    train(recipe, out=tmp_path / "whole", quiet=True)
    train(recipe, ["training.steps=40"], out=tmp_path / "parts", quiet=True)
    train(recipe, out=tmp_path / "parts", resume=True, quiet=True)
    assert len(captures) == 3
    monkeypatch.setattr(CapturedUpdate, "applies", lambda *_: False)
    train(recipe, out=tmp_path / "plain", quiet=True)
    assert len(captures) == 3
    expected = losses(tmp_path / "plain")
    assert expected[-1] < 0.9 * expected[0]
    assert losses(tmp_path / "whole") == pytest.approx(expected, rel=0.02)
    assert losses(tmp_path / "parts") == pytest.approx(expected, rel=0.02)


def word_counting(folder: Path, settings: Tree) -> Tree:
    """A recipe for a small BERT that learns whether a word occurs often."""
    draw = random.Random(1)
    words = ["good", "bad", "so", "very"]
    texts = [draw.choices(words, k=draw.randrange(1, 30)) for _ in range(600)]
    lines = [f"{' '.join(text)}\t{int(text.count('good') > 3)}\n" for text in texts]
    (folder / "train.tsv").write_text(f"text\tlabel\n{''.join(lines)}")
    corpus = {"file": str(folder / "train.tsv"), "text": "text", "label": "label"}
    training = {
        "device": "cuda",
        "precision": "bf16",
        "compile": False,
        "steps": 60,
        "log_every": 1,
        "batch_tokens": 512,
        "learning_rate": 5e-4,
        "schedule": "constant",
        "warmup": 20,
    }
    return {
        "task": "classification",
        "data": {"train": corpus, "validation": {"split": 0.1}},
        "tokenizer": {"kind": "word"},
        "model": {"kind": "bert", "preset": "tiny", "dropout": 0.0},
        "head": {"dropout": 0.0},
        "training": training | settings,
    }


def test_processes_that_share_a_gpu_predict_what_one_predicts(
    tiny_recipe: Tree, tmp_path: Path
) -> None:
    """By the command: a process that has trained may compute products with less precision."""
    recipe = changed(tiny_recipe, tiny_recipe["model"], steps=20)
    train(recipe, out=tmp_path / "run", quiet=True)
    draw = random.Random(1)
    lines = [" ".join(draw.choices("abcdefg", k=draw.randint(1, 9))) for _ in range(400)]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    predict = [sys.executable, "-m", "regard", "predict", "run", "--file", "in.txt"]
    for workers in ("1", "3"):
        options = ["--out", f"out-{workers}.txt", "--workers", workers]
        subprocess.run([*predict, *options], cwd=tmp_path, check=True)
    assert (tmp_path / "out-3.txt").read_bytes() == (tmp_path / "out-1.txt").read_bytes()


def test_too_large_a_batch_names_one_that_fits_and_auto_finds_it(
    tiny_recipe: Tree, tmp_path: Path
) -> None:
    tiny_recipe["data"]["train"]["size"] = 30_000
    model = TRANSFORMER | {"width": 512, "heads": 8, "feed_forward": 2048}
    gc.collect()
    torch.cuda.empty_cache()
    limit = (2 * 2**30 + torch.cuda.memory_reserved()) / torch.cuda.get_device_properties(
        0
    ).total_memory
    torch.cuda.set_per_process_memory_fraction(limit)
    try:
        with pytest.raises(
            ConfigError, match="out of memory with batches of 200,000 tokens"
        ) as error:
            train(
                changed(tiny_recipe, model, batch_tokens=200_000, steps=3),
                out=tmp_path / "large",
                quiet=True,
            )
        hint = str(error.value)
        assert " fits, and" in hint
        fits = int(hint.split("(")[1].split(" fits")[0])
        train(
            changed(tiny_recipe, model, batch_tokens=fits, steps=3),
            out=tmp_path / "named",
            quiet=True,
        )
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert len(losses(tmp_path / "named")) == 3


@pytest.mark.parametrize("vocabulary", [5, 4096, 5001])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_and_its_gradient_are_those_of_the_equation(
    vocabulary: int, smoothing: float
) -> None:
    torch.set_float32_matmul_precision("highest")  # a training before may have lowered it
    labels_P = torch.randint(vocabulary, (7,), device="cuda")
    labels_P[2] = -100  # filler
    tensors = [
        torch.randn(shape, device="cuda", requires_grad=True)
        for shape in ((7, 3), (vocabulary, 3), vocabulary)
    ]
    found = GPULoss.apply(*tensors, labels_P, smoothing, True)
    expected = smoothed_loss(
        torch.nn.functional.linear(*tensors).log_softmax(-1), labels_P, smoothing
    )
    gradients = [torch.autograd.grad(0.7 * sums_2[0], tensors) for sums_2 in (found, expected)]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(GPULoss.apply(*tensors, labels_P, smoothing, False), expected)


def test_compiled_dropout_drops_its_share_and_keeps_the_mean() -> None:
    dropout, x_RD = Dropout(0.1), torch.ones(4000, 250, device="cuda", requires_grad=True)
    compiled = torch.compile(dropout)
    first_RD, second_RD = compiled(x_RD), compiled(x_RD)
    deviation = (0.1 * 0.9 / x_RD.numel()) ** 0.5
    assert float((first_RD == 0).float().mean()) == pytest.approx(0.1, abs=5 * deviation)
    assert float(((first_RD == 0) & (second_RD == 0)).float().mean()) == pytest.approx(
        0.01, abs=5 * deviation
    )
    assert first_RD.unique().tolist() == pytest.approx([0.0, 1 / 0.9], rel=1e-4)
    [gradient_RD] = torch.autograd.grad(first_RD.sum(), x_RD)
    torch.testing.assert_close(
        gradient_RD, first_RD.detach()
    )  # x is 1, so both are the mask times 1 / (1 - p)
    assert torch.equal(torch.compile(dropout.eval())(x_RD), x_RD)


@pytest.mark.parametrize("kind", [scores.AdditiveAttention, scores.FullyConnectedAttention])
def test_a_step_of_additive_attention_is_that_of_the_equation(kind: Any) -> None:
    attention = kind(6, 10, 12).cuda()
    h_BSD = torch.randn(3, 19, 10, device="cuda", requires_grad=True)
    lengths_B = torch.tensor([19, 1, 7], device="cuda")
    queries = [torch.randn(3, 1, 6, device="cuda", requires_grad=True) for _ in range(3)]
    results = []
    for fast in (True, False):
        memory = attention.memory(h_BSD, lengths_B)
        attend = (
            attention.attend_to(memory)
            if fast
            else lambda s_BQD, memory=memory: attention(s_BQD, memory)
        )
        contexts = [attend(query) for query in queries]
        loss = sum((context * number).sin().sum() for number, context in enumerate(contexts, 1))
        results.append(
            [*contexts, *torch.autograd.grad(loss, [h_BSD, *queries, *attention.parameters()])]
        )
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("length", [1, 32, 33, 40])
def test_attention_to_a_cache_whose_rows_have_moved_is_that_of_the_equation(length: int) -> None:
    own_M2RHE = torch.randn(40, 2, 6, 3, 24, device="cuda")
    rows_MR = torch.randint(6, (40, 6), device="cuda", dtype=torch.int32)
    q_RH1E = torch.randn(6, 3, 1, 24, device="cuda")
    k_RHKE, v_RHKE = own_M2RHE.permute(1, 2, 3, 0, 4)
    visible = CachedRowsVisible(torch.tensor([length], device="cuda"), rows_MR)
    found = attend(q_RH1E, k_RHKE, v_RHKE, visible, owner=torch.nn.Identity())
    for row in range(6):
        k_HKE, v_HKE = (
            torch.stack([kv[rows_MR[m, row], :, m] for m in range(length)], 1)
            for kv in (k_RHKE, v_RHKE)
        )
        weights_HK = torch.tensor(
            [[q @ k for k in keys] for q, keys in zip(q_RH1E[row, :, 0], k_HKE, strict=True)]
        )
        expected_HE = ((weights_HK / 24**0.5).softmax(-1).cuda()[:, None] @ v_HKE)[:, 0]
        torch.testing.assert_close(found[row, :, 0], expected_HE)
