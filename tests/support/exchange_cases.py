"""Small models of `transformers` as folders, small runs to export, and what must be the same on
both sides."""

import contextlib
import io
import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import regard
from model_cases import with_weights_that_matter
from regard.data.batches import Batch, LabelledBatch, MaskedBatch, TextBatch
from regard.exchange import marian
from regard.models.transformer import Transformer, TransformerConfig
from regard.runs import Run
from regard.runs.checkpoints import load_weights
from regard.tasks.reading import padded
from regard.text.vocabularies import BEGIN, END, PAD
from regard.training.train import train

transformers = pytest.importorskip("transformers")
sentencepiece = pytest.importorskip("sentencepiece")

TEXTS = [
    "The animal did not cross the street, because it was too tired!",
    "나는 학교에 갑니다. 한국어 문장을 나누는 방법은 여러 가지가 있다.",
    "Café naïve 漢字 123, 4567 and 2024-03-05",
]
"""What the small tokenizers are trained on."""
SPECIAL = ["[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
"""They do not all come first, as in the published vocabularies."""
MARKUP = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
"""The special tokens of RoBERTa and XLM-R, in their order."""
LENGTHS = (6, 1, 4)
TRAINING = {
    "steps": 3,
    "batch_tokens": 256,
    "device": "cpu",
    "decode": 0,
    "learning_rate": 0.05,
    "schedule": "constant",
    "warmup": 0,
}
TALES = {
    "train": {"corpus": "tales-en", "size": 40},
    "validation": {"split": 0.1},
    "max_length": 32,
}
FEW = settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
SPECIAL_NAMES = re.compile(r"\[\w+\]|<[/|\w]+>|>>\w+<<")
"""Here a special token that is typed is text like any other, in folders of `transformers` it is the
token."""
CHARACTERS = st.characters(blacklist_categories=["Cs"])
UNICODE = st.text(CHARACTERS, max_size=30).filter(lambda text: SPECIAL_NAMES.search(text) is None)


def _save_randomised(model: Any, folder: Path) -> Any:
    """Save a model whose weights all matter: larger than they begin, and biases that are not
    zero."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        learned = [tensor for tensor in model.parameters() if tensor.requires_grad]
        for tensor in [
            *learned,
            *(buffer for name, buffer in model.named_buffers() if "bias" in name),
        ]:
            if tensor.is_floating_point():
                tensor.add_(torch.randn(tensor.shape, generator=generator), alpha=0.3)
    model.eval().save_pretrained(folder)
    return model


def wordpiece(size: int = 150, *, lowercase: bool = False) -> Tokenizer:
    """A vocabulary like BERT's."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=SPECIAL, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def by_id(tokenizer: Tokenizer) -> list[str]:
    return sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)


def byte_bpe(texts: Sequence[str], special: Sequence[str] = ()) -> Tokenizer:
    """A vocabulary like GPT-2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    options = {
        "initial_alphabet": pre_tokenizers.ByteLevel.alphabet(),
        "vocab_size": 300,
        "show_progress": False,
    }
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(special_tokens=[*special], **options))
    return tokenizer


def unigram(**special: str) -> Tokenizer:
    names = [special.get(name, name) for name in MARKUP]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=names, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def save_bert(
    folder: Path,
    architecture: str = "BertForPreTraining",
    *,
    vocabulary: str = "tokenizer.json",
    lowercase: bool = True,
    **changes: Any,
) -> Any:
    """A folder with a small BERT and its tokenizer, as one of two files; returns the model."""
    tokenizer = wordpiece(lowercase=lowercase)
    sizes = {
        "hidden_size": 12,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 17,
        "max_position_embeddings": 40,
        "layer_norm_eps": 1e-6,
        "vocab_size": tokenizer.get_vocab_size(),
    }
    torch.manual_seed(1)
    model = getattr(transformers, architecture)(transformers.BertConfig(**sizes | changes))
    _save_randomised(model, folder)
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": lowercase,
        "model_max_length": 40,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if vocabulary == "vocab.txt":
        (folder / "vocab.txt").write_text("\n".join(by_id(tokenizer)) + "\n", encoding="utf-8")
    else:
        transformers.BertTokenizerFast(
            tokenizer_object=tokenizer, do_lower_case=lowercase
        ).save_pretrained(folder)
    return model


def klue() -> Tokenizer:
    """A vocabulary like that of KLUE's RoBERTa: WordPiece, its special tokens in RoBERTa's order."""
    tokenizer = wordpiece()
    pieces = by_id(tokenizer)
    first = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
    ordered = [*first, *(piece for piece in pieces if piece not in first)]
    vocabulary = {piece: number for number, piece in enumerate(ordered)}
    renumbered = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    renumbered.add_special_tokens(first)
    for step in ("normalizer", "pre_tokenizer", "decoder"):
        setattr(renumbered, step, getattr(tokenizer, step))
    return renumbered


def around_roberta(tokenizer: Tokenizer) -> Any:
    return processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)


def around_bert(tokenizer: Tokenizer) -> Any:
    ends = ((name, tokenizer.token_to_id(name)) for name in ("[SEP]", "[CLS]"))
    return processors.BertProcessing(*ends)


def around_xlm(tokenizer: Tokenizer) -> Any:
    return processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )


ENCODER_SIZES: dict[str, Any] = {
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 17,
    "max_position_embeddings": 71,
}
ROBERTA_SIZES = ENCODER_SIZES | {"type_vocab_size": 1, "pad_token_id": 1, "layer_norm_eps": 1e-5}
DISTILBERT_SIZES: dict[str, Any] = {
    "dim": 12,
    "n_layers": 3,
    "n_heads": 3,
    "hidden_dim": 17,
    "max_position_embeddings": 71,
}
DEBERTA_SIZES = ENCODER_SIZES | {
    "relative_attention": True,
    "position_buckets": 4,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
}
MODERNBERT_SIZES = ENCODER_SIZES | {
    "num_hidden_layers": 4,
    "local_attention": 4,
    "pad_token_id": 1,
    "cls_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "sep_token_id": 2,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    },
}
ENCODERS: dict[str, tuple[str, dict[str, Any], Any, Any, str]] = {
    "roberta": (
        "Roberta",
        ROBERTA_SIZES,
        partial(byte_bpe, TEXTS, MARKUP),
        around_roberta,
        "RobertaTokenizer",
    ),
    "klue": ("Roberta", ROBERTA_SIZES, klue, around_bert, "BertTokenizer"),
    "xlm-roberta": ("XLMRoberta", ROBERTA_SIZES, unigram, around_xlm, "XLMRobertaTokenizer"),
    "camembert": ("Camembert", ROBERTA_SIZES, unigram, around_xlm, "CamembertTokenizer"),
    "electra": (
        "Electra",
        ENCODER_SIZES | {"embedding_size": 7},
        wordpiece,
        around_bert,
        "ElectraTokenizer",
    ),
    "electra-base": (
        "Electra",
        ENCODER_SIZES | {"embedding_size": 12},
        wordpiece,
        around_bert,
        "ElectraTokenizer",
    ),
    "mpnet": ("MPNet", ROBERTA_SIZES, klue, around_bert, "PreTrainedTokenizerFast"),
    "deberta": ("DebertaV2", DEBERTA_SIZES, wordpiece, around_bert, "PreTrainedTokenizerFast"),
    "deberta-one-term": (
        "DebertaV2",
        DEBERTA_SIZES | {"pos_att_type": "p2c"},
        wordpiece,
        around_bert,
        "PreTrainedTokenizerFast",
    ),
    "modernbert": (
        "ModernBert",
        MODERNBERT_SIZES,
        partial(byte_bpe, TEXTS, MARKUP),
        around_roberta,
        "PreTrainedTokenizerFast",
    ),
    "distilbert": ("DistilBert", DISTILBERT_SIZES, wordpiece, around_bert, "DistilBertTokenizer"),
}
"""What the names of classes begin with, sizes, tokenizer, the special tokens around a text, and the class of the
tokenizer."""


def learn_again(tokenizer: Tokenizer, texts: Sequence[str], size: int) -> None:
    """Learn a larger vocabulary from other texts, with the same special tokens first."""
    special = MARKUP if "<mask>" in tokenizer.get_vocab() else SPECIAL
    options: dict[str, Any] = {"vocab_size": size, "special_tokens": special}
    options["show_progress"] = False
    match tokenizer.model:
        case models.BPE():
            alphabet = pre_tokenizers.ByteLevel.alphabet()
            trainer: Any = trainers.BpeTrainer(initial_alphabet=alphabet, **options)
        case models.Unigram():
            trainer = trainers.UnigramTrainer(unk_token="<unk>", **options)
        case _:
            trainer = trainers.WordPieceTrainer(**options)
    tokenizer.train_from_iterator(texts, trainer)


def save_encoder(
    folder: Path,
    kind: str,
    end: str = "ForMaskedLM",
    *,
    texts: Sequence[str] = (),
    **changes: Any,
) -> Any:
    """A folder with a small encoder and its tokenizer.json, learned from `texts` if there are any;
    returns the model."""
    name, sizes, make, around, tokenizer_class = ENCODERS[kind]
    tokenizer = make()
    if texts:
        learn_again(tokenizer, texts, 4000)
    tokenizer.post_processor = around(tokenizer)
    if "<mask>" in tokenizer.get_vocab():  # takes the space before it, as in the published ones
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    sizes = sizes | {"vocab_size": tokenizer.get_vocab_size()}
    torch.manual_seed(1)
    config = getattr(transformers, f"{name}Config")(**sizes | changes)
    model = _save_randomised(getattr(transformers, name + end)(config), folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = {token.strip("[]<>").lower(): token for token in (*MARKUP, *SPECIAL)}
    tokens = {role: token for role, token in tokens.items() if token in tokenizer.get_vocab()}
    roles = {"cls": tokens.get("s"), "sep": tokens.get("/s")} if "s" in tokens else {}
    roles |= {role: tokens[role] for role in ("cls", "sep", "pad", "unk", "mask") if role in tokens}
    settings = {f"{role}_token": token for role, token in roles.items()}
    settings |= {"tokenizer_class": tokenizer_class, "model_max_length": 69}
    if "BertTokenizer" in tokenizer_class or "Electra" in tokenizer_class:
        settings["do_lower_case"] = False
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return model


def save_gpt2(
    folder: Path, *, texts: Sequence[str] = TEXTS, vocabulary: str = "tokenizer.json"
) -> Any:
    """The same for GPT-2: in its vocabulary only the end is special, and it comes last."""
    tokenizer = byte_bpe(texts)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    sizes = {"n_embd": 12, "n_layer": 3, "n_head": 3, "n_inner": 17, "n_positions": 40}
    ids = {"vocab_size": tokenizer.get_vocab_size(), "bos_token_id": 0, "eos_token_id": 0}
    torch.manual_seed(1)
    model = _save_randomised(
        transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **ids)), folder
    )
    if vocabulary == "merges.txt":
        tokenizer.model.save(str(folder))
        (folder / "vocab.json").write_text(json.dumps(tokenizer.get_vocab()))
    else:
        special = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(
            folder
        )
    return model


def train_sentencepiece(path: Path, kind: str, size: int, **special: int) -> list[str]:
    """Write a SentencePiece model; returns its pieces without the special ones."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 3),
        model_writer=written,
        model_type=kind,
        vocab_size=size,
        minloglevel=2,
        hard_vocab_limit=False,
        **special,
    )
    path.write_bytes(written.getvalue())
    loaded = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    return [loaded.IdToPiece(number) for number in range(3, loaded.GetPieceSize())]


def save_marian(folder: Path, *, shared: bool = True, **changes: Any) -> Any:
    """The same for Marian, with a SentencePiece model for each side, and one vocabulary for both or
    one each."""
    folder.mkdir(exist_ok=True)
    source = train_sentencepiece(folder / "source.spm", "unigram", 90)
    target = train_sentencepiece(folder / "target.spm", "bpe" if shared else "char", 130)
    both = sorted({*source, *target}) if shared else source
    vocabularies = {"vocab.json": ["</s>", "<unk>", ">>kor<<", *both, "<pad>"]}
    if not shared:
        vocabularies["target_vocab.json"] = ["</s>", "<unk>", *target, "<pad>"]
    for name, pieces in vocabularies.items():
        (folder / name).write_text(
            json.dumps({piece: number for number, piece in enumerate(pieces)})
        )
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": not shared}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    sizes = [len(pieces) for pieces in vocabularies.values()]
    config = transformers.MarianConfig(
        vocab_size=sizes[0],
        decoder_vocab_size=sizes[-1],
        share_encoder_decoder_embeddings=shared,
        pad_token_id=sizes[-1] - 1,
        decoder_start_token_id=sizes[-1] - 1,
        eos_token_id=0,
        bos_token_id=0,
        **SIZES | {"activation_function": "swish", **changes},
    )
    return _save_seq2seq(transformers.MarianMTModel, config, folder)


def save_pegasus(folder: Path, *, vocabulary: str = "spiece.model", **changes: Any) -> Any:
    """The same for Pegasus, with its SentencePiece model and a few of the tokens that its
    pre-training needs."""
    folder.mkdir(exist_ok=True)
    special = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    size = 3 + 9 + len(train_sentencepiece(folder / "spiece.model", "unigram", 90, **special))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PegasusTokenizer", "offset": 9})
    )
    config = transformers.PegasusConfig(
        vocab_size=size, **SIZES | {"activation_function": "relu", **changes}
    )
    model = _save_seq2seq(transformers.PegasusForConditionalGeneration, config, folder)
    if vocabulary == "tokenizer.json":
        transformers.PegasusTokenizer.from_pretrained(folder).save_pretrained(folder)
        (folder / "spiece.model").unlink()
    return model


def save_bart(folder: Path, *, vocabulary: str = "bart", **changes: Any) -> Any:
    """The same for BART, with byte BPE as one of two files; or with the vocabulary of KoBART, which
    puts no `<s>` before a text."""
    tokenizer = byte_bpe(TEXTS, MARKUP) if vocabulary != "kobart" else unigram()
    start = {"decoder_start_token_id": 2, "eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1}
    config = transformers.BartConfig(
        vocab_size=tokenizer.get_vocab_size(),
        **LONGER | {"scale_embedding": False} | start | changes,
    )
    torch.manual_seed(1)
    model = transformers.BartForConditionalGeneration(config)
    model.final_logits_bias.normal_()
    _save_randomised(model, folder)
    if vocabulary == "merges.txt":
        tokenizer.model.save(str(folder))
    else:
        if vocabulary == "bart":
            tokenizer.post_processor = around_roberta(tokenizer)
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
        tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 60}))
    return model


LANGUAGES = ("ko", "en", "fr")


def save_m2m100(folder: Path, *, nllb: bool = False, **changes: Any) -> Any:
    """The same for M2M-100, with a SentencePiece model and a vocabulary; or for NLLB, with a
    tokenizer.json whose template has a language."""
    folder.mkdir(exist_ok=True)
    if nllb:
        tokenizer = unigram()
        tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
        names = ["eng_Latn", "fra_Latn", "kor_Hang"]
        tokenizer.add_special_tokens(names)
        english = tokenizer.token_to_id("eng_Latn")
        tokenizer.post_processor = processors.TemplateProcessing(
            single="eng_Latn $A </s>",
            pair="eng_Latn $A $B </s>",
            special_tokens=[("eng_Latn", english), ("</s>", 2)],
        )
        size = tokenizer.get_vocab_size()
        settings: dict[str, Any] = {"tokenizer_class": "NllbTokenizer"}
    else:
        pieces = train_sentencepiece(folder / "sentencepiece.bpe.model", "bpe", 200)
        vocabulary = ["<s>", "<pad>", "</s>", "<unk>", *pieces]
        ids = {piece: number for number, piece in enumerate(vocabulary)}
        (folder / "vocab.json").write_text(json.dumps(ids))
        settings = {
            "tokenizer_class": "M2M100Tokenizer",
            "additional_special_tokens": [f"__{code}__" for code in LANGUAGES],
        }
        size = len(ids) + len(LANGUAGES) + 2  # two rows that no token has
    start = {"decoder_start_token_id": 2, "eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1}
    config = transformers.M2M100Config(vocab_size=size, **LONGER | start | changes)
    torch.manual_seed(1)
    model = _save_randomised(transformers.M2M100ForConditionalGeneration(config), folder)
    if nllb:
        tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return model


def small_marian() -> tuple[Transformer, Any]:
    """A Transformer and a Marian model with the same weights, over 13 tokens."""
    config = TransformerConfig(
        width=16,
        heads=4,
        feed_forward=24,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        tie="all",
        norm="post",
    )
    torch.manual_seed(0)
    theirs = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=13,
            d_model=16,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=24,
            decoder_ffn_dim=24,
            max_position_embeddings=20,
            activation_function="relu",
            scale_embedding=True,
            dropout=0.0,
            pad_token_id=PAD,
            eos_token_id=END,
            bos_token_id=BEGIN,
            decoder_start_token_id=BEGIN,
            forced_eos_token_id=None,
            attn_implementation="eager",
        )
    )
    theirs.final_logits_bias.normal_(std=0.3)
    with_weights_that_matter(theirs)
    ours = Transformer(config, 13, 13).eval()
    ours.load_state_dict(
        marian.read_weights(theirs.state_dict(), config.model_dump(), ""), strict=False
    )
    return ours, theirs


SIZES: dict[str, Any] = {
    "d_model": 12,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 17,
    "decoder_ffn_dim": 17,
    "max_position_embeddings": 60,
    "scale_embedding": True,
    "forced_eos_token_id": None,
}
LONGER = SIZES | {"max_position_embeddings": 90}
SAVERS: dict[str, Any] = {
    "bert": save_bert,
    "gpt2": save_gpt2,
    "marian": save_marian,
    "pegasus": save_pegasus,
    "bart": save_bart,
    "m2m100": save_m2m100,
}


def _save_seq2seq(architecture: Any, config: Any, folder: Path) -> Any:
    torch.manual_seed(1)
    model = architecture(config)
    model.final_logits_bias.normal_()
    return _save_randomised(model, folder)


def change(path: Path, **changes: Any) -> None:
    """Change some keys of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def trained(folder: Path, **sections: Any) -> Run:
    """A run of three steps."""
    recipe = {"data": TALES, "training": TRAINING, "tokenizer": {"vocabulary": 300}, **sections}
    return train(recipe, out=folder, quiet=True)


def there_and_back(run: Run, folder: Path) -> Run:
    regard.export_run(run, to="huggingface", out=folder / "exported")
    return regard.import_run(folder / "exported", out=folder / "back")


def answers(run: Run, *texts: str) -> list[dict[str, Any]]:
    """Texts of one input have tabs between them."""
    inputs = [tuple(text.split("\t")) if "\t" in text else text for text in texts]
    return [prediction.to_json() for prediction in regard.predict(run, inputs)]


def near(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def same_weights(run: Run, other: Run) -> None:
    ours, theirs = load_weights(run.checkpoint()), load_weights(other.checkpoint())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def _mask_of(rows: list[list[int]]) -> torch.Tensor:
    return (torch.arange(max(map(len, rows))) < torch.tensor([[len(row)] for row in rows])).long()


def _rows(size: int, begin: Sequence[int], end: Sequence[int]) -> list[list[int]]:
    """Random texts of unequal length, without special tokens inside them."""
    generator = torch.Generator().manual_seed(2)
    drawn = [
        torch.randint(6, size - 5, (length,), generator=generator).tolist() for length in LENGTHS
    ]
    return [[*begin, *row, *end] for row in drawn]


def _near_each(ours: torch.Tensor, theirs: torch.Tensor, rows: list[list[int]]) -> None:
    """Row by row without the padding; of whole texts there is one vector a row."""
    assert len(ours) == len(theirs) == len(rows)
    for row, ids in enumerate(rows):
        length = None if ours.dim() == 2 else len(ids)
        near(ours[row, :length], theirs[row, :length])


def _same_logits_of_pairs(run: Run, theirs: Any) -> None:
    model = run.load_model()
    source, target = run.tokenizers["source"], run.tokenizers["target"]
    sources, targets = (
        _rows(source.size, [], [source.end]),
        _rows(target.size, [target.begin], []),
    )
    batch = Batch(
        padded(sources, source.pad), padded([[*row, target.end] for row in targets], target.pad)
    )
    given = {
        "attention_mask": _mask_of(sources),
        "decoder_input_ids": padded(targets, target.pad).ids_BL,
    }
    logits_BTV = theirs(batch.source.ids_BL, **given).logits
    assert logits_BTV[..., target.size :].eq(-torch.inf).all(), (
        "tokens that only the source has are never written"
    )
    _near_each(model.readout(model(batch).hidden_BTD), logits_BTV[..., : target.size], targets)


def _same_masked_logits(
    run: Run, model: Any, batch: MaskedBatch, output: Any, rows: list[list[int]]
) -> None:
    hidden_BLD = model(batch).hidden_BTD
    if "last_hidden_state" in output:
        _near_each(hidden_BLD, output.last_hidden_state, rows)
    if getattr(run.recipe.model, "replaced_head", False):
        _near_each(model.replaced(hidden_BLD)[..., None], output.logits[..., None], rows)
    elif run.recipe.model.masked_head:
        logits_BLV = output.prediction_logits if "prediction_logits" in output else output.logits
        _near_each(model.readout(hidden_BLD), logits_BLV, rows)
    if "seq_relationship_logits" in output:
        near(model.next_sentence(hidden_BLD), output.seq_relationship_logits)


@torch.no_grad()
def same_logits(run: Run, theirs: Any) -> None:
    """A batch of texts of unequal length gets the same logits from a run and from a model of
    `transformers`."""
    if "target" in run.tokenizers:
        _same_logits_of_pairs(run, theirs)
        return
    model, task = run.load_model(), run.recipe.task
    tokenizer = run.tokenizers["text"]
    if task == "language_modeling":
        rows = _rows(tokenizer.size, [tokenizer.end], [])
        hidden_BTD = model(TextBatch(padded([[*row, 0] for row in rows], tokenizer.pad))).hidden_BTD
        logits_BTV = theirs(
            padded(rows, tokenizer.pad).ids_BL, attention_mask=_mask_of(rows)
        ).logits
        _near_each(model.readout(hidden_BTD), logits_BTV, rows)
        return
    rows = _rows(tokenizer.size, [tokenizer.begin], [tokenizer.end])
    text, owners_B, nothing = (
        padded(rows, tokenizer.pad),
        torch.arange(len(rows)),
        torch.zeros(0, dtype=torch.long),
    )
    segments_BL = _mask_of(rows) * (torch.arange(text.ids_BL.shape[1]) > 3)
    given = {"input_ids": text.ids_BL, "attention_mask": _mask_of(rows)}
    if getattr(theirs.config, "type_vocab_size", 0) == 2:
        given["token_type_ids"] = segments_BL
    if task == "multiple_choice":
        given = {name: tensor[None] for name, tensor in given.items()}
    output = theirs(**given)
    if task == "masked_language_modeling":
        batch = MaskedBatch(text, segments_BL, nothing, nothing)
        _same_masked_logits(run, model, batch, output, rows)
        return
    logits = model(LabelledBatch(text, segments_BL, owners_B, owners_B))
    if task == "question_answering":
        _near_each(logits, torch.stack([output.start_logits, output.end_logits], -1), rows)
    else:
        _near_each(logits, output.logits.T if task == "multiple_choice" else output.logits, rows)


def printed_by_the_card(folder: Path) -> str:
    """What the code of the folder's model card prints when it is run there as it stands."""
    code = (
        (folder / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```\n")[0]
    )
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(compile(code, str(folder / "README.md"), "exec"), {})
    return printed.getvalue().strip()
