"""What is named before a training: a model that cannot fit, and settings or data that are probably
not meant."""

from __future__ import annotations

import copy
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from command_line import fail, succeed
from regard.errors import ConfigError
from regard.models import MODELS
from regard.models.base import count_parameters
from regard.recipes.loading import load_recipe
from regard.recipes.shipped import shipped
from regard.training.plausibility import recipe_warnings
from regard.training.size import parameters_of, refuse_too_large

CPU = torch.device("cpu")
GIANT = ["model.width=16384", "model.encoder_layers=48", "model.decoder_layers=48"]
KINDS = [
    (kind, preset) for kind, known in MODELS.items() for preset in list(known.config.PRESETS)[:2]
]


@pytest.mark.parametrize(("kind", "preset"), KINDS)
def test_parameters_are_counted_without_building(kind: str, preset: str) -> None:
    """Of many layers, too: those of few are built."""
    config, layers = MODELS[kind].config, {}
    for name in ("layers", "encoder_layers", "decoder_layers"):
        if name in config.model_fields:
            layers[name] = 5
    made = config.model_validate({"kind": kind, "preset": preset, **layers})
    sizes = [300] * (2 if config.reads == "source" else 1)
    options = (
        {} if made.letters is None else {"characters_VC": torch.zeros((300, 3), dtype=torch.long)}
    )
    assert parameters_of(made, sizes) == count_parameters(
        MODELS[kind].build(made, *sizes, **options)
    )


@pytest.mark.parametrize("kind", ["transformer", "rnn", "gpt"])
def test_millions_of_layers_are_counted_at_once(kind: str) -> None:
    config = MODELS[kind].config
    name = "encoder_layers" if "encoder_layers" in config.model_fields else "layers"
    few, many = (
        config.model_validate({"kind": kind, "preset": "tiny", name: count})
        for count in (10, 1_000_010)
    )
    sizes = [50] * (2 if config.reads == "source" else 1)
    of_one = parameters_of(few, sizes) - parameters_of(few.model_copy(update={name: 9}), sizes)
    assert parameters_of(many, sizes) == parameters_of(few, sizes) + 1_000_000 * of_one


def test_a_model_that_cannot_fit_is_named_before_anything_is_built(
    tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    recipe = tiny_recipe | {
        "model": {"kind": "transformer"},
        "training": tiny_recipe["training"] | {"device": "cpu"},
    }
    given, _ = load_recipe(recipe, GIANT)
    started = time.process_time()
    with pytest.raises(ConfigError) as told:
        refuse_too_large(given, CPU, memory=24 * 2**30)
    assert time.process_time() - started < 2
    assert str(told.value) == (
        "model: a model of 157.9 billion parameters does not fit: weights, gradients and the state "
        "of adam take "
        "2,352.3 GiB, and the memory (cpu) is 24.0 GiB (what would fit: model.width=1024 (807 "
        "million parameters); "
        "model.preset=big alone (176 million parameters))"
    )
    assert "does not fit" in str(regard.check(recipe, GIANT, quiet=True).problems[0])
    with pytest.raises(ConfigError, match="does not fit"):
        regard.train(recipe, GIANT, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    refuse_too_large(given, CPU, memory=4 * 2**40)
    with pytest.raises(ConfigError, match="does not fit"):
        refuse_too_large(given, CPU, memory=4 * 2**40, vocabularies=[10**7, 10**7])
    refuse_too_large(given, CPU, memory=2**40, shares=8)


@pytest.mark.parametrize("name", shipped())
@pytest.mark.usefixtures("imported_translator")
def test_no_recipe_that_ships_is_doubted(name: str) -> None:
    if name in ("classification", "regression", "tagging", "question-answering", "multiple-choice"):
        return  # they begin with a run that is not here
    recipe, _ = load_recipe(name)
    assert [*recipe_warnings(recipe)] == []
    refuse_too_large(
        recipe,
        CPU,
        [50_000, 50_000][: 2 if recipe.model.reads == "source" else 1],
        memory=16 * 2**30,
    )


@pytest.mark.parametrize(
    ("override", "warning"),
    [
        (
            "training.learning_rate=1000",
            "training.learning_rate=1000 is far too high for adam, the loss will hardly fall: "
            "0.0001 to 0.01 is usual",
        ),
        (
            "model.dropout=0.9",
            "model.dropout=0.9 leaves out 90 % of the values at every step, the model will hardly "
            "learn: "
            "0.1 to 0.5 is usual",
        ),
        (
            "data.max_length=5",
            "85 % of the training pairs are longer than data.max_length=5 tokens and are not "
            "learned "
            "from: raise it",
        ),
    ],
)
def test_a_setting_that_is_hardly_meant(
    tiny_recipe: dict[str, Any], override: str, warning: str
) -> None:
    assert not any(
        "warning" in finding for finding in regard.check(tiny_recipe, quiet=True).data["findings"]
    )
    found = regard.check(tiny_recipe, [override], quiet=True)
    assert found.ok, found
    [told] = [finding for finding in found.data["findings"] if finding.startswith("warning: ")]
    assert told == f"warning: {warning}"
    assert f"warning    {warning}" in found.sentences()


def test_a_training_begins_with_the_warnings(
    tiny_recipe: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    regard.train(tiny_recipe, ["training.steps=1", "model.dropout=0.8"], out=tmp_path / "run")
    assert "warning: model.dropout=0.8 leaves out 80 % of the values" in capsys.readouterr().err


def pairs_of(lengths: list[int], order: list[int]) -> list[dict[str, str]]:
    sources = [" ".join(["a"] * length) for length in lengths]
    return [
        {"source": f"{number} {sources[number]}", "target": f"{sources[other]} b"}
        for number, other in enumerate(order)
    ]


def test_lines_that_were_shuffled(tiny_recipe: dict[str, Any]) -> None:
    """Not where all sentences have about the same length, nor for pairs of which nothing is
    expected."""
    chance = random.Random(1)
    lengths, order = [chance.randrange(1, 20) for _ in range(300)], [*range(300)]
    recipe, shuffled = copy.deepcopy(tiny_recipe), chance.sample(order, 300)

    def warned(rows: list[dict[str, str]]) -> bool:
        found = regard.check(recipe, data=rows, quiet=True)
        assert found.ok, found
        return any("are unrelated (correlation" in finding for finding in found.data["findings"])

    assert warned(pairs_of(lengths, shuffled))
    assert not warned(pairs_of(lengths, order))
    assert not warned(pairs_of([18 + length % 3 for length in lengths], shuffled))
    recipe |= {"task": "summarization", "search": {}}
    rows = [
        {"document": row["source"], "summary": row["target"]} for row in pairs_of(lengths, shuffled)
    ]
    assert not warned(rows)


def test_a_vocabulary_that_is_larger_than_the_corpus_supports(tiny_recipe: dict[str, Any]) -> None:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(2_000)]
    rows = [
        {"source": f"{word} {words[-number]}", "target": f"{words[-number]} {word}"}
        for number, word in enumerate(words)
    ]
    recipe = tiny_recipe | {"tokenizer": {"kind": "bpe", "vocabulary": 8_000}}
    [warning] = [
        finding
        for finding in regard.check(recipe, data=rows, quiet=True).data["findings"]
        if "subwords" in finding
    ]
    assert warning.startswith("warning: ")
    assert (
        "subwords of the joint vocabulary occur fewer than 5 times in the training data" in warning
    )
    small = regard.check(recipe, {"tokenizer.vocabulary": 500}, data=rows, quiet=True)
    assert not any("subwords" in finding for finding in small.data["findings"])


def test_the_name_of_an_image_is_no_sentence(tiny_run: Path) -> None:
    notes = regard.predict(tiny_run, ["a b", "photos/a.JPG"]).notes
    told = "input 2: 'photos/a.JPG' is the name of an image, and this run reads it as a text"
    assert [(note.kind, note.text) for note in notes if note.kind == "image"] == [("image", told)]
    assert told in succeed("predict", tiny_run, "a b", "photos/a.JPG").err.replace("\n", " ")
    assert fail("check", "dates", "model={kind: transformer}", *GIANT)[0].startswith(
        "model: a model of 155."
    )


@pytest.mark.parametrize(("words", "told"), [(10, True), (40, False)])
def test_short_documents_in_long_joined_rows(tmp_path: Path, words: int, told: bool) -> None:
    """Twelve documents of ten words and an end fill a row of 128; BERT learns nothing from it but
    frequencies."""
    lines = [" ".join(["ab"] * (words - 1) + ["abcdefg"[n % 7]]) for n in range(200)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    recipe = {
        "task": "masked_language_modeling",
        "data": {
            "train": {"text": str(tmp_path / "a.txt"), "documents": "lines"},
            "validation": {"split": 0.1},
            "deduplicate": False,
            "blocks": "contiguous",
        },
        "tokenizer": {"kind": "word"},
        "model": {"kind": "bert", "preset": "tiny", "next_sentence": False},
        "training": {"steps": 1},
    }
    findings = regard.check(recipe, quiet=True).data["findings"]
    warnings = [finding for finding in findings if "data.blocks=contiguous" in finding]
    assert len(warnings) == told
    if told:
        assert (
            "joins about 12 documents of 11 tokens in a row of data.max_length=128" in warnings[0]
        )
        assert "lower data.max_length to about 22, or set data.blocks=documents" in warnings[0]
