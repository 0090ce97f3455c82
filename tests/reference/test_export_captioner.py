"""A captioner with a Transformer's decoder is run by `transformers` and torch alone, and writes the same captions."""

from __future__ import annotations

import ast
import json
import zipfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import regard
from command_line import fail, succeed, write
from exchange_cases import randomised
from export_cases import near, printed_by_the_card, same_tokens
from regard.data.batch import Batch
from regard.data.images import images_of, read_picture
from regard.exchange.vocabularies import with_roles
from regard.runs import Run
from regard.runs.checkpoints import Checkpoint, load_facts, save_checkpoint
from regard.tasks.inputs import padded
from regard.text.tokenizers import Tokenizer, TokenizerConfig

transformers = pytest.importorskip("transformers")

WIDTH = 7
SIZES = {
    "kind": "captioner",
    "decoder": "transformer",
    "width": 18,
    "heads": 3,
    "feed_forward": 23,
    "layers": 3,
    "channels": [5, 7],
}
CASES: dict[str, dict[str, Any]] = {
    "pixels": {"images": {"size": 23}},
    "features": {"encoder": "features", "feature_width": WIDTH},
}
GRIDS = [(2, 3), (5,), (4, 1), (1, 6), (3, 3)]
"""Of features: rows and columns, or how many regions."""
TRAINING = {"steps": 2, "batch_tokens": 256, "device": "cpu", "decode": 0}


def pictured(folder: Path, case: str) -> list[str]:
    """Files of images of unequal sizes and kinds, or of arrays of unequal grids."""
    random = np.random.default_rng(3)
    if case == "features":
        for number, grid in enumerate(GRIDS):
            np.save(folder / f"{number}.npy", random.normal(size=(*grid, WIDTH)))
        return [f"{number}.npy" for number in range(len(GRIDS))]
    modes = {"RGB": "png", "RGBA": "png", "LA": "png", "CMYK": "jpg", "P": "gif"}
    for mode, kind in modes.items():
        pixels = random.integers(0, 256, (61, 37, 4), dtype=np.uint8)
        image = Image.fromarray(pixels, "CMYK" if mode == "CMYK" else "RGBA").convert(mode)
        image.save(folder / f"{mode}.{kind}", **({"transparency": 7} if mode == "P" else {}))
    photograph = Image.fromarray(random.integers(0, 256, (19, 30, 3), dtype=np.uint8)).resize((210, 134))
    turned = photograph.getexif()
    turned[0x0112] = 6
    photograph.save(folder / "turned.jpg", exif=turned)
    return [*(f"{mode}.{kind}" for mode, kind in modes.items()), "turned.jpg"]


def lively(run: Run) -> None:
    """Weights that all matter, those that read the image most."""
    folder = run.checkpoint("last")
    model = randomised(run.load_model("last"), seed=4)
    with torch.no_grad():
        for block in model.decoder:
            block.cross_attention.W_O.weight.mul_(4)
    save_checkpoint(folder, Checkpoint(model.state_dict(), load_facts(folder)))


@pytest.fixture(scope="module", params=CASES)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, list[Path]]:
    """A run, what it was exported as, and images."""
    home = tmp_path_factory.mktemp(request.param)
    names = pictured(home, request.param)
    captions = ["a red square", "두 개의 파란 원", "큰 초록 삼각형이 왼쪽에 있다", "a dog, and a cat"]
    lines = [{"image": name, "caption": caption} for name, caption in product(names, captions)]
    write(home / "train.jsonl", "\n".join(map(json.dumps, lines)))
    columns = {"file": str(home / "train.jsonl"), "image": "image", "caption": "caption"}
    tree = {
        "task": "captioning",
        "data": {"train": columns, "validation": {"split": 0.2}},
        "tokenizer": {"vocabulary": 60},
        "model": SIZES | CASES[request.param],
        "training": TRAINING,
        "search": {"beam": 3, "length_penalty": 0.8, "no_repeat_ngram": 1},
    }
    run = regard.train(tree, out=home / "run", quiet=True)
    lively(run)
    out = ("--out", home / "theirs", "--checkpoint", "last")
    told = succeed("export", home / "run", "--to", "huggingface", *out, "--json").json
    assert told["note"].endswith(
        f"what it looks at encoder.pt2 makes of images, as {home / 'theirs' / 'README.md'} shows"
    )
    return run, home / "theirs", [home / name for name in names]


def seen_by(folder: Path, run: Run, files: Sequence[Path]) -> dict[str, torch.Tensor]:
    """What encoder.pt2 makes of images as the run reads them, and which regions there are; features stand in a list."""
    pictures = [read_picture(str(file), Path(), run.recipe.model.reading, "") for file in files]
    encoder = torch.export.load(folder / "encoder.pt2").module()
    if run.recipe.model.feature_width is None:
        return {"encoder_hidden_states": encoder(images_of(pictures).shown)}
    rows = [encoder(torch.from_numpy(one.shown.reshape(1, -1, one.columns, WIDTH)))[0] for one in pictures]
    padding = torch.nn.utils.rnn.pad_sequence
    visible = padding([torch.ones(len(row)) for row in rows], batch_first=True)
    return {"encoder_hidden_states": padding(rows, batch_first=True), "encoder_attention_mask": visible}


@torch.no_grad()
def test_the_logits_are_the_same(exported: tuple[Run, Path, list[Path]]) -> None:
    run, folder, files = exported
    theirs, facts = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(facts.values()), "nothing is missing, and nothing is too many"
    assert type(theirs).__name__ == "PegasusForCausalLM"
    ours, tokenizer = run.load_model("last"), run.tokenizers["target"]
    assert ours.output.linear.bias.abs().max() > 1, "the bias that their readout lacks matters"
    captions = ["a red square", "두 개", "a", "큰 초록 삼각형이 왼쪽에 있다", "원 and a cat", "dog"]
    rows = [[tokenizer.begin, *tokenizer.encode(caption), tokenizer.end] for caption in captions[: len(files)]]
    pictures = [read_picture(str(file), Path(), run.recipe.model.reading, "") for file in files]
    target = padded(rows, tokenizer.pad)
    expected_BTV = ours.readout(ours(Batch(images_of(pictures), target)).hidden_BTD)
    found_BTV = theirs(target.ids_BL[:, :-1], **seen_by(folder, run, files)).logits
    for row, ids in enumerate(rows):
        near(found_BTV[row, : len(ids) - 1], expected_BTV[row, : len(ids) - 1])
    same_tokens(folder, run, "target", [tokenizer.begin], [tokenizer.end])


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("beam", [1, 3])
def test_greedy_and_beam_search_write_the_same(exported: tuple[Run, Path, list[Path]], beam: int, cached: bool) -> None:
    """Without a cache, which is how they are told to write, and with the two that the card gives them."""
    run, folder, files = exported
    theirs, target = transformers.AutoModelForCausalLM.from_pretrained(folder), run.tokenizers["target"]
    assert theirs.generation_config.use_cache is False
    start, options = torch.full((len(files), 1), target.begin), {"num_beams": beam}
    if cached:
        caches = (transformers.DynamicCache(), transformers.DynamicCache())
        options |= {"use_cache": True, "past_key_values": transformers.EncoderDecoderCache(*caches)}
    written = theirs.generate(start, **seen_by(folder, run, files), **options).tolist()
    predicted = regard.predict(run, list(map(str, files)), beam=beam, checkpoint="last")
    found = [target.token_ids(one.nbest[0].tokens) for one in predicted]
    assert [ids[1 : 1 + len(best)] for ids, best in zip(written, found, strict=True)] == found
    assert 3 < max(map(len, found)) < 40, "they end by themselves"
    assert len(set(map(tuple, found))) > 2, "and hang on the image"


def test_the_code_of_the_card_writes_our_captions(exported: tuple[Run, Path, list[Path]]) -> None:
    """As it stands for one image, and for all of them with only their names put in; it reads pixels as we do."""
    run, folder, files = exported
    outputs = [one.output for one in regard.predict(run, list(map(str, files)), checkpoint="last")]
    card = folder / "README.md"
    before, name = card.read_text(encoding="utf-8"), f"image.{'npy' if files[0].suffix == '.npy' else 'png'}"
    (folder / name).write_bytes(files[0].read_bytes())
    assert ast.literal_eval(printed_by_the_card(folder)) == outputs[:1]
    card.write_text(before.replace(f'["{name}"]', str(list(map(str, files)))), encoding="utf-8")
    names: dict[str, Any] = {}
    assert ast.literal_eval(printed_by_the_card(folder, names)) == outputs
    card.write_text(before, encoding="utf-8")
    words, regions = names["caches"].self_attention_cache, names["caches"].cross_attention_cache
    assert regions.get_seq_length() == names["seen"]["encoder_hidden_states"].shape[1]
    assert words.get_seq_length() >= names["written"].shape[1] - 1, "no word is worked out twice"
    for file in files if "pixels" in names else []:
        expected = read_picture(str(file), Path(), run.recipe.model.reading, "").shown
        np.testing.assert_array_equal(names["pixels"](file), expected)


def test_one_cache_for_both_attentions_does_not_do(exported: tuple[Run, Path, list[Path]]) -> None:
    """The card says so; where `transformers` learns it, the card may give no caches."""
    run, folder, files = exported
    theirs, seen = transformers.AutoModelForCausalLM.from_pretrained(folder), seen_by(folder, run, files[:1])
    start = torch.full((1, 1), run.tokenizers["target"].begin)
    assert theirs.generate(start, **seen, use_cache=True).tolist() != theirs.generate(start, **seen).tolist()


def test_a_vocabulary_whose_padding_begins_a_text(tmp_path: Path) -> None:
    """As that of a Marian model, which may be taken for captions, too."""
    drawn = Tokenizer.train(TokenizerConfig(kind="word"), ["a small red large blue circle square left of above"])
    own = with_roles(json.loads(drawn.to_json()), {"<s>": "<pad>"})
    data = {"train": {"corpus": "shapes", "size": 20}, "validation": {"split": 0.2}}
    tree = {
        "task": "captioning",
        "data": data,
        "tokenizer": {"file": str(write(tmp_path / "own.json", json.dumps(own)))},
        "model": SIZES | {"images": {"size": 16}},
        "training": TRAINING,
    }
    run = regard.train(tree, out=tmp_path / "run", quiet=True)
    lively(run)
    target = run.tokenizers["target"]
    assert target.begin == target.pad != target.end
    folder = regard.export_run(run, to="huggingface", out=tmp_path / "theirs", checkpoint="last")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    scenes = [
        "shapes: small red star 24 25, small blue circle 78 59",
        "shapes: large blue square 30 70, large red star 70 30",
    ]
    shown = images_of([read_picture(scene, Path(), run.recipe.model.reading, "") for scene in scenes]).shown
    seen = torch.export.load(folder / "encoder.pt2").module()(shown)
    written = theirs.generate(torch.full((2, 1), target.begin), encoder_hidden_states=seen, num_beams=1).tolist()
    found = [target.token_ids(one.nbest[0].tokens) for one in regard.predict(run, scenes, beam=1, checkpoint="last")]
    assert [ids[1 : 1 + len(best)] for ids, best in zip(written, found, strict=True)] == found


def test_the_folder_says_nothing_of_this_machine(exported: tuple[Run, Path, list[Path]]) -> None:
    """Nor holds anything that a reader would have to unpickle."""
    _, folder, _ = exported
    with zipfile.ZipFile(folder / "encoder.pt2") as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    assert any(held.values())
    home = str(Path(regard.__file__).parents[2]).encode()
    assert not any(home in content for content in held.values())
    assert not any(content for name, content in held.items() if name.endswith(".pt"))


def test_the_folder_appears_whole_or_not_at_all(exported: tuple[Run, Path, list[Path]], tmp_path: Path) -> None:
    """Where the disk holds no file as large as encoder.pt2."""
    resource = pytest.importorskip("resource")
    run, folder, _ = exported
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "encoder.pt2").stat().st_size // 2, before[1]))
        [message] = fail("export", run.folder, "--to", "huggingface", "--out", tmp_path / "out", "--checkpoint", "last")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert message == f"{tmp_path / 'out'}: cannot be written: File too large"
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_exchanged_is_named(exported: tuple[Run, Path, list[Path]], tmp_path: Path) -> None:
    run, folder, _ = exported
    [message] = fail("export", run.folder, "--to", "ctranslate2", "--out", tmp_path / "out")
    what = "CTranslate2 does not run a captioner for captioning"
    assert message == f"{run.folder}: {what} (a transformer for translation or summarization can be exported)"
    [message] = fail("import", folder, "--out", tmp_path / "out")
    what = "a PegasusForCausalLM of the type 'pegasus' cannot be imported (supported: BertModel, BertForMaskedLM, "
    assert message.startswith(f"{folder / 'config.json'}: {what}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "what", "hint"),
    [
        ({"decoder": "plain"}, "decoder: plain, which is an LSTM", "one with model.decoder: transformer"),
        ({"decoder": "attention"}, "decoder: attention, which is an LSTM", "one with model.decoder: transformer"),
        ({"width": 9}, "width: 9", "one whose model.width is even"),
    ],
    ids=["plain", "attention", "odd"],
)
def test_a_captioner_that_transformers_cannot_have(
    tmp_path: Path, changes: dict[str, Any], what: str, hint: str
) -> None:
    data = {"train": {"corpus": "shapes", "size": 20}, "validation": {"split": 0.2}}
    model = SIZES | {"images": {"size": 8}} | changes
    run = regard.train(
        {"task": "captioning", "data": data, "model": model, "training": TRAINING}, out=tmp_path / "run", quiet=True
    )
    [message] = fail("export", run.folder, "--to", "huggingface", "--out", tmp_path / "out")
    assert message == f"{run.folder}: transformers has no model like a captioner with {what} ({hint} can be exported)"
    assert not (tmp_path / "out").exists()
