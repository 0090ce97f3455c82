"""Adapt a real translator to one's own text without forgetting general text: OPUS-MT en-fr on
Multi30k, with Tatoeba mixed in.

    python benchmarks/adapt.py MODEL FOLDER [--minutes 10] [--sentences 1000] [--general 12000]
    [--set KEY=VALUE ...]

MODEL is the folder of OPUS-MT en-fr as transformers saves it, FOLDER holds `multi30k` and
`tatoeba_en_fr`. Tatoeba has no test part, so 1,000 of its English sentences, with all their
translations, are held out by a fixed seed. The recipe is `adapt-translator`; the training takes as
long as `--minutes` says. Prints BLEU on both test sets before and after, with the verdict of
`regard compare`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import random
import tempfile
from pathlib import Path

import yaml
from commands import regard

HELD_OUT = 1000


def split_tatoeba(folder: Path, work: Path, sentences: int) -> None:
    """Write general.en and .fr for training, and tatoeba.en and .fr for the test."""
    packed = (folder / "tatoeba_en_fr/fra.tsv.xz").read_bytes()
    rows = [line.split("\t") for line in lzma.decompress(packed).decode().splitlines()]
    translations: dict[str, list[str]] = {}
    for english, french in rows:
        translations.setdefault(english, []).append(french)
    order = sorted(translations)
    random.Random(7).shuffle(order)
    held = [(english, translations[english][0]) for english in order[:HELD_OUT][:sentences]]
    kept = [(english, french) for english in order[HELD_OUT:] for french in translations[english]]
    random.Random(8).shuffle(kept)
    for name, pairs in (("tatoeba", held), ("general", kept)):
        for number, side in enumerate(("en", "fr")):
            text = "".join(f"{pair[number]}\n" for pair in pairs)
            (work / f"{name}.{side}").write_text(text, encoding="utf-8")


def first_lines(folder: Path, work: Path, sentences: int) -> None:
    """Write multi30k.en and .fr: the beginning of test 2016."""
    for side in ("en", "fr"):
        with gzip.open(folder / f"multi30k/test_2016_flickr.{side}.gz", "rt") as file:
            lines = file.read().splitlines()[:sentences]
        (work / f"multi30k.{side}").write_text("".join(f"{line}\n" for line in lines))


def recipe_of(folder: Path, work: Path, options: argparse.Namespace) -> dict[str, object]:
    """The recipe `adapt-translator` for these files and this time."""
    shipped = yaml.safe_load(regard("recipes", "adapt-translator", cache=work / "cache"))
    own = {side: str(folder.absolute() / f"multi30k/train.{side}.gz") for side in ("en", "fr")}
    validation = {name: path.replace("train.", "val.") for name, path in own.items()}
    general = {"source": "general.en", "target": "general.fr", "size": options.general}
    shipped["data"] |= {
        "train": [{"source": own["en"], "target": own["fr"]}, general],
        "validation": {"source": validation["en"], "target": validation["fr"], "size": 200},
    }
    del shipped["training"]["epochs"]
    more = {"init": "base", "minutes": options.minutes, "warmup": 20, "ema": 0.99, "decode": 20}
    shipped["training"] |= more | {"device": "cpu"}
    return dict(shipped)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--general", type=int, default=12_000)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        split_tatoeba(options.folder, work, options.sentences)
        first_lines(options.folder, work, options.sentences)
        (work / "adapt.yaml").write_text(yaml.safe_dump(recipe_of(options.folder, work, options)))
        cache = work / "cache"
        regard("import", str(options.model.absolute()), "--out", "base", cache=cache, folder=work)
        trained = ("train", "adapt.yaml", *options.set, "--out", "adapted")
        regard(*trained, cache=cache, folder=work)
        sets = [
            f"--test-set={name}={name.lower()}.en,{name.lower()}.fr"
            for name in ("Multi30k", "Tatoeba")
        ]
        compared = ("compare", "base", "adapted", "--beam", "4", *sets, "--json")
        found = json.loads(regard(*compared, cache=cache, folder=work))["test_sets"]
    print("| test set | before | after | difference | significant |\n|---|---|---|---|---|")
    for name, result in found.items():
        rows = [row for row in result["significance"] if row["metric"] == "bleu"]
        before, after = (row["score"] for row in rows)
        change = rows[1]["difference"]
        verdict = "yes" if rows[1]["significant"] else "no"
        print(f"| {name} | {before:.1f} | {after:.1f} | {change:+.1f} | {verdict} |")


if __name__ == "__main__":
    main()
