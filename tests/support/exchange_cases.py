"""Models of `transformers` in small, with random weights and odd sizes, as folders; and what they should say."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

TEXTS = [
    "The animal did not cross the street, because it was too tired!",
    "나는 학교에 갑니다. 한국어 문장을 나누는 방법은 여러 가지가 있다.",
    "Café naïve 漢字 123, 4567 and 2024-03-05",
]
"""What the small tokenizers are trained on."""
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TINY_BERT = {
    "hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 17,
    "max_position_embeddings": 40, "layer_norm_eps": 1e-6,
}  # fmt: skip


def spells_nothing_special(text: str) -> bool:
    """Here a special token that is typed is text like any other, in `transformers` it is the token."""
    return re.search(r"\[\w+\]|<[/|\w]+>|>>\w+<<", text) is None


def randomised(model: Any, seed: int = 0) -> Any:
    """Weights that all matter: larger than they begin, and biases that are not zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        learned = [tensor for tensor in model.parameters() if tensor.requires_grad]
        for tensor in [*learned, *(buffer for name, buffer in model.named_buffers() if "bias" in name)]:
            if tensor.is_floating_point():
                tensor.add_(torch.randn(tensor.shape, generator=generator), alpha=0.3)
    return model.eval()


def wordpiece(size: int = 150, *, lowercase: bool = False) -> Tokenizer:
    """A vocabulary of the make of BERT's."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    # Special tokens that do not come first, as in the published vocabularies.
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=["[PAD]", "[unused1]", *SPECIAL[1:]], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def byte_level(size: int = 300, texts: Sequence[str] = TEXTS) -> Tokenizer:
    """A vocabulary of the make of GPT-2's: only an end is special, and it comes last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(initial_alphabet=alphabet, vocab_size=size, show_progress=False)
    )
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def save_bert(
    folder: Path,
    architecture: str = "BertForPreTraining",
    *,
    vocabulary: str = "tokenizer.json",
    lowercase: bool = True,
    **changes: Any,
) -> Any:
    """A folder with a small BERT, its tokenizer as one of the two files; the model itself comes back."""
    tokenizer = wordpiece(lowercase=lowercase)
    config = transformers.BertConfig(**{"vocab_size": tokenizer.get_vocab_size(), **TINY_BERT, **changes})
    torch.manual_seed(1)
    model = randomised(getattr(transformers, architecture)(config))
    model.save_pretrained(folder)
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": lowercase, "model_max_length": 40}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if vocabulary == "vocab.txt":
        pieces = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
        (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    else:
        transformers.BertTokenizerFast(tokenizer_object=tokenizer, do_lower_case=lowercase).save_pretrained(folder)
    return model


def save_gpt2(folder: Path, *, texts: Sequence[str] = TEXTS, **changes: Any) -> Any:
    """The same for GPT-2."""
    tokenizer = byte_level(texts=texts)
    sizes = {
        "n_embd": 12,
        "n_layer": 3,
        "n_head": 3,
        "n_inner": 17,
        "n_positions": 40,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    config = transformers.GPT2Config(**{"vocab_size": tokenizer.get_vocab_size(), **sizes, **changes})
    torch.manual_seed(1)
    model = randomised(transformers.GPT2LMHeadModel(config))
    model.save_pretrained(folder)
    end = "<|endoftext|>"
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=end, eos_token=end, unk_token=end
    )
    wrapped.save_pretrained(folder)
    return model


def train_sentencepiece(path: Path, kind: str, size: int, **special: int) -> list[str]:
    """A SentencePiece model of one side; its pieces without the special ones."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 3), model_writer=written, model_type=kind, vocab_size=size, minloglevel=2,
        hard_vocab_limit=False, **special,
    )  # fmt: skip
    path.write_bytes(written.getvalue())
    loaded = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    return [loaded.IdToPiece(number) for number in range(3, loaded.GetPieceSize())]


def save_marian(folder: Path, *, shared: bool = True, **changes: Any) -> Any:
    """The same for Marian, with a SentencePiece model for each side, and one vocabulary for both or one each."""
    folder.mkdir(exist_ok=True)
    pieces = [
        train_sentencepiece(folder / "source.spm", "unigram", 90),
        train_sentencepiece(folder / "target.spm", "bpe" if shared else "char", 130),
    ]
    both = sorted({*pieces[0], *pieces[1]}) if shared else pieces[0]
    vocabularies = [["</s>", "<unk>", ">>kor<<", *both, "<pad>"], ["</s>", "<unk>", *pieces[1], "<pad>"]]
    numbered = [{piece: number for number, piece in enumerate(one)} for one in vocabularies]
    (folder / "vocab.json").write_text(json.dumps(numbered[0]))
    settings: dict[str, Any] = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": not shared}
    if not shared:
        (folder / "target_vocab.json").write_text(json.dumps(numbered[1]))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    sizes = {"vocab_size": len(numbered[0]), "decoder_vocab_size": len(numbered[0 if shared else 1])}
    pad = sizes["decoder_vocab_size"] - 1
    config = transformers.MarianConfig(
        **sizes, share_encoder_decoder_embeddings=shared, d_model=12, encoder_layers=2, decoder_layers=3,
        encoder_attention_heads=3, decoder_attention_heads=3, encoder_ffn_dim=17, decoder_ffn_dim=17,
        max_position_embeddings=60, scale_embedding=True, pad_token_id=pad, eos_token_id=0, bos_token_id=0,
        decoder_start_token_id=pad, forced_eos_token_id=None, **{"activation_function": "swish", **changes},
    )  # fmt: skip
    return _saved(transformers.MarianMTModel, config, folder)


def save_pegasus(folder: Path, **changes: Any) -> Any:
    """The same for Pegasus, with its SentencePiece model and a few of the tokens that its pre-training needs."""
    folder.mkdir(exist_ok=True)
    own = {"offset": 9}
    size = (
        3
        + own["offset"]
        + len(train_sentencepiece(folder / "spiece.model", "unigram", 90, pad_id=0, eos_id=1, unk_id=2, bos_id=-1))
    )
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PegasusTokenizer", **own}))
    config = transformers.PegasusConfig(
        vocab_size=size, d_model=12, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3,
        decoder_attention_heads=3, encoder_ffn_dim=17, decoder_ffn_dim=17, max_position_embeddings=60,
        **{"scale_embedding": True, "activation_function": "relu", "forced_eos_token_id": None, **changes},
    )  # fmt: skip
    return _saved(transformers.PegasusForConditionalGeneration, config, folder)


def _saved(architecture: Any, config: Any, folder: Path) -> Any:
    """With random weights, drawn anew from the same seed."""
    torch.manual_seed(1)
    model = architecture(config)
    model.final_logits_bias.normal_()
    model = randomised(model)
    model.save_pretrained(folder)
    return model
