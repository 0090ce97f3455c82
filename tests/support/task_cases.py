"""Tasks to test with, from as little of a recipe as they read."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from regard.data.config import Recipe
from regard.data.dataset import Dataset
from regard.data.formats import Row
from regard.data.prepare import Prepared, prepare
from regard.data.raw import RawTokens, encode_documents
from regard.data.readers import Reader
from regard.data.store import DOCUMENT_ENDS
from regard.errors import DataError
from regard.recipes.recipe import recipe_of
from regard.tasks import TASKS, Task
from regard.tasks.raw import RawEncoding, learn_text_tokenizer, read_documents
from regard.tasks.translation import Translation
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers
from regard.text.vocabularies import SPECIAL_NAMES

DATA: dict[str, Any] = {
    "translation": {"corpus": "reverse", "size": 10},
    "classification": {"file": "a.tsv", "text": "text", "label": "label"},
    "language_modeling": {"text": "a.txt"},
    "masked_language_modeling": {"text": "a.txt"},
    "tagging": {"file": "a.conll"},
    "question_answering": {"file": "a.json"},
}


def rows_of(reader: Reader) -> Iterator[Row]:
    """The rows of a corpus, up to the first that cannot be read."""
    for row in reader.rows():
        if row.fault is not None:
            raise DataError(problems=[row.fault])
        yield row


def make_task(name: str, tokenizers: Tokenizers, **sections: Any) -> Any:
    """A task of this name; `sections` are those of a recipe, `data` what it says besides the
    corpora."""
    data = {"train": DATA[name], **sections.pop("data", {})}
    model = sections.pop(
        "model", {"kind": "bilstm" if "text" in tokenizers else "rnn", "preset": "tiny"}
    )
    tree = {"task": name, "data": data, "model": model, "training": {"steps": 1}, **sections}
    return TASKS[name](recipe_of(tree), tokenizers)


def prepare_pairs(
    data: Any, tokenizer: TokenizerConfig, base: Path, **options: Any
) -> Prepared[Any]:
    """The pipeline for pairs, from the sections that it reads; options are `seed`, `tokenizers` and
    `progress`."""
    training = SimpleNamespace(seed=options.pop("seed", 1))
    recipe = Recipe.model_construct(
        task="translation", data=data, tokenizer=tokenizer, training=training
    )
    return prepare(Translation, recipe, base, options.get("tokenizers"), options.get("progress"))


class _RawTask(Task):
    """A task on raw text, without a model."""

    name = "raw"
    vocabularies = ("text",)
    sentences: Any = None
    special: Any = SPECIAL_NAMES

    @classmethod
    def learn_tokenizers(cls, recipe: Any, train: Any, base: Path) -> Tokenizers:
        return learn_text_tokenizer(recipe, train, base, cls.special)

    @classmethod
    def make_encoding(cls, recipe: Any, tokenizers: Tokenizers) -> RawEncoding:
        return RawEncoding(recipe, tokenizers, lambda text, part: text.pieces, cls.sentences)

    def objective(self, model: Any) -> Any:
        raise NotImplementedError


def raw_case(
    data: Any,
    tokenizer: TokenizerConfig,
    *,
    sentences: Any = None,
    special: Any = SPECIAL_NAMES,
    letters: int | None = None,
) -> tuple[type[_RawTask], Any]:
    """A task on raw text that finds sentences as asked for, and the sections of a recipe that it
    reads."""
    kind = type("RawCase", (_RawTask,), {"special": special, "sentences": sentences})
    model, training = SimpleNamespace(letters=letters), SimpleNamespace(seed=1)
    return kind, Recipe.model_construct(
        task="raw", data=data, tokenizer=tokenizer, model=model, training=training
    )


def prepare_raw(
    data: Any, tokenizer: TokenizerConfig, base: Path, *, progress: Any = None, **options: Any
) -> Any:
    """The pipeline for raw text: `splits` as RawTokens, `tokenizers` and `report`."""
    kind, recipe = raw_case(data, tokenizer, **options)
    prepared = prepare(kind, recipe, base, None, progress)
    encoding: Any = prepared.encoding
    parts = {"train": prepared.train, "validation": prepared.validation, "test": prepared.test}
    splits = {
        part: encoding.raw_tokens(pieces) for part, pieces in parts.items() if pieces is not None
    }
    return SimpleNamespace(splits=splits, tokenizers=encoding.tokenizers, report=prepared.report)


def read_raw(data: Any, base: Path, tokenizer: Tokenizer, **options: Any) -> RawTokens:
    """The training corpora of the data as they are, encoded in memory."""
    kind, recipe = raw_case(data, TokenizerConfig(), **options)
    encoding = kind.make_encoding(recipe, Tokenizers({"text": tokenizer}))
    return encoding.raw_tokens(read_documents(encoding, data.train, "train", base))


def raw_tokens(
    texts: Sequence[str],
    tokenizer: Tokenizer,
    place: Any = str,
    *,
    sentences: Any = None,
    letters: int | None = None,
) -> RawTokens:
    """Whole documents, encoded in memory; `place` names where one stands."""
    parts = [DOCUMENT_ENDS] * len(texts)
    columns = encode_documents(texts, parts, tokenizer, sentences, letters)
    encoding: Any = SimpleNamespace(encode=lambda texts, place: columns)
    return RawTokens(
        Dataset.of(encoding, {"text": texts, "part": parts}, place), tokenizer, letters
    )
