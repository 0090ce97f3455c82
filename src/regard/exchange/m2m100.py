"""M2M-100 and NLLB under the names of `transformers` (Fan et al. 2020, arXiv:2010.11125; NLLB team
2022, arXiv:2207.04672): one pre-norm Transformer for many languages.

A source begins with the token of its language, and the first token of a target is that of the
language to write. The sine waves are those of tensor2tensor, from position 2 on. As in Marian all
sines come before all cosines, so the width is put into our order, which changes no value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken
from torch import Tensor

from regard.errors import DataError
from regard.exchange.encoder_decoder import (
    ACTIVATIONS,
    DECODER_TABLE,
    ENCODER_TABLE,
    FIELDS,
    READOUT_TABLE,
    SHARED_TABLE,
    block_names,
    fixed_settings,
    read_search,
    reordered,
    special_ids,
    width_order,
    write_search,
)
from regard.exchange.folder import (
    Architecture,
    Exported,
    Imported,
    ModelFolder,
    config_fields,
    require_settings,
)
from regard.exchange.renaming import to_ours, to_theirs, without_copies
from regard.exchange.tokenizers import TokenizerTree, fit_rows, ids_of, with_template
from regard.runs.run import Run
from regard.runs.weights import stored_weights
from regard.tasks.reading import first_tokens
from regard.text.sentencepiece import convert_sentencepiece
from regard.text.templates import templates_in
from regard.text.tokenizers import Tokenizer, Tokenizers

OWN_SETTINGS: dict[str, Any] = {
    "norm": "pre",
    "positions": "tensor2tensor",
    "first_position": 2,
    "scaled_embeddings": True,
    "readout_bias": False,
    "tie": "all",
}
"""The settings of a Transformer that make it an M2M-100."""
ALLOWED_SETTINGS: dict[str, tuple[Any, ...]] = {
    **{name: (value,) for name, value in OWN_SETTINGS.items()},
    "embedding_norm": (False,),
    "scaled": (True,),
    "look_ahead": (False,),
    "residual": (True,),
}
SIDES = ("source", "target")
PIECES = "sentencepiece.bpe.model"


def read(folder: ModelFolder) -> Imported:
    """Read an M2M100ForConditionalGeneration, with the languages that its folder names, if any."""
    folder.expect(
        {
            **fixed_settings(folder),
            "scale_embedding": (True,),
            "tie_word_embeddings": (True,),
            "decoder_start_token_id": (folder.number("eos_token_id", 2),),
        }
    )
    config = {
        "kind": "transformer",
        **OWN_SETTINGS,
        **folder.fields(FIELDS),
        "activation": ACTIVATIONS[folder.config.get("activation_function", "relu")],
    }
    theirs = each_once(folder.weights(), folder.name)
    weights = reordered(
        to_ours(weight_names(config), theirs, folder.name), width_order(config["width"]).argsort()
    )
    tree = _read_tree(folder)
    languages = _languages(folder, tree)
    plain = Tokenizer.from_json(json.dumps(tree), where=folder.name)
    [end] = plain.tokens([plain.end])
    bare = tree | {"post_processor": None}
    tokenizer = fit_rows(
        with_template(bare, f"$A {end}", {"<s>": end}),
        len(weights["source_embedding.weight"]),
        folder,
    )
    data = {"max_length": config["max_positions"], **languages}
    return Imported(
        "translation",
        config,
        weights,
        Tokenizers(dict.fromkeys(SIDES, tokenizer)),
        has_languages=True,
        sections={"search": read_search(folder), "data": data},
    )


def each_once(theirs: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    copies = (ENCODER_TABLE, DECODER_TABLE, READOUT_TABLE)
    return without_copies(theirs, dict.fromkeys(copies, SHARED_TABLE), where)


def weight_names(config: Mapping[str, Any]) -> dict[str, str]:
    """Our names of all weights -> theirs."""
    return {"source_embedding.weight": SHARED_TABLE} | block_names(config)


def write(run: Run, checkpoint: str) -> Exported:
    """Write an M2M100ForConditionalGeneration for the languages of the run."""
    config = run.recipe.model
    tokenizer = run.tokenizers["target"]
    require_settings(run, "model", ALLOWED_SETTINGS, tool="transformers")
    theirs = to_theirs(
        weight_names(config.model_dump()),
        reordered(stored_weights(run.load_model(checkpoint)), width_order(config.width)),
    )
    source, target = (first_tokens(run.recipe, run.tokenizers, side) for side in SIDES)
    ids = special_ids(run)
    forced = {"forced_bos_token_id": target[0]} if target else {}
    [end] = tokenizer.tokens([tokenizer.end])
    generation, not_exported = write_search(run)
    return Exported(
        "M2M100ForConditionalGeneration",
        {
            "model_type": "m2m_100",
            "is_encoder_decoder": True,
            "vocab_size": tokenizer.size,
            **config_fields(FIELDS, config),
            "decoder_attention_heads": config.heads,
            "decoder_ffn_dim": config.feed_forward,
            "activation_function": config.activation,
            "scale_embedding": True,
            "tie_word_embeddings": True,
            **ids,
        },
        theirs,
        f"$A {end}",
        config.max_positions,
        ids | forced | generation,
        not_exported,
        source_token=" ".join(tokenizer.tokens(source)),
    )


# Tokenizers


def _read_tree(folder: ModelFolder) -> TokenizerTree:
    """NLLB's tokenizer.json, or M2M-100's SentencePiece model with a vocabulary, whose languages
    come after the pieces in the order of tokenizer_config.json."""
    if (folder.path / "tokenizer.json").exists():
        return folder.json("tokenizer.json")
    path = folder.path / PIECES
    ids = folder.json("vocab.json")
    if not path.exists() or not ids:
        hint = f"expected: tokenizer.json, or {PIECES} with vocab.json"
        raise DataError("there is no tokenizer in the folder", where=folder.name, hint=hint)
    languages = _listed_languages(folder)
    tokenizer = convert_sentencepiece(path.read_bytes(), str(path), ids)
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token in ("<s>", "<pad>", "</s>", "<unk>", *languages)
        ]
    )
    tree: TokenizerTree = json.loads(tokenizer.to_str())
    return tree


def _listed_languages(folder: ModelFolder) -> Sequence[str]:
    """The tokens of languages, which M2M-100 lists as additional special tokens."""
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        settings = folder.json(file)
        for key in ("additional_special_tokens", "extra_special_tokens"):
            listed = settings.get(key)
            if isinstance(listed, list) and all(isinstance(name, str) for name in listed):
                names = [name for name in listed if name.startswith("__")]
                if names:
                    return names
    what = "its additional_special_tokens name no languages"
    where = str(folder.path / "special_tokens_map.json")
    raise DataError(what, where=where, hint='expected: a list of tokens such as "__ko__"')


def _languages(folder: ModelFolder, tree: TokenizerTree) -> dict[str, str]:
    """The languages that an exported folder was written for: before each source in its tokenizer,
    and the first token of its outputs."""
    names = {number: name for name, number in ids_of(tree).items()}
    single, _ = templates_in(tree) or ((), ())
    first = next((slot.token for slot in single), None)
    forced = folder.json("generation_config.json").get("forced_bos_token_id")
    if forced is None or first is None or forced not in names:
        return {}
    return {"source_language": names[first], "target_language": names[forced]}


ARCHITECTURE = Architecture(
    {"m2m_100": ("M2M100ForConditionalGeneration",)},
    read,
    [("translation", "transformer"), ("summarization", "transformer")],
    write,
    lambda config: bool(config.positions == "tensor2tensor"),
)
