"""Text -> token ids and back, exactly; the tokenizers of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Protocol

import tokenizers
from pydantic import Field, model_validator

from regard.config import Config
from regard.errors import CheckpointError, ConfigError, DataError, DecodeError, did_you_mean
from regard.text.files import TextFile, problem_with
from regard.text.pipelines import complete, continuing, special_names
from regard.text.sentencepiece import converted
from regard.text.vocabularies import MARK, SPECIAL, UNK, bytes_of, characters_of_bytes, train_vocabulary

_MASKS = ("[MASK]", "<mask>", "<|mask|>")
"""What stands for a masked token there."""
_EXPECTED = "expected is a tokenizer.json of the tokenizers library, or a .model of SentencePiece"


class TokenizerConfig(Config):
    """How text is cut into tokens."""

    kind: Literal["word", "character", "byte", "bpe", "wordpiece", "unigram"] = "bpe"
    """What a token is. `word`: words and punctuation (see `split`); `character`: code points; `byte`: UTF-8 bytes,
    nothing is ever unknown; `bpe`, `wordpiece`, `unigram`: pieces of words, learned from the training text."""
    split: Literal["punctuation", "spaces"] = "punctuation"
    """Where `word` cuts. `punctuation`: letters, digits and every sign are words of their own. `spaces`: only there,
    for text that is tokenised already; `<unk>` in the text is then the unknown token."""
    vocabulary: int = Field(8000, ge=len(SPECIAL) + 1)
    """Largest size, the special tokens included. `byte` always has 256 and those."""
    joint: bool = True
    """One vocabulary for both sides, or one each."""
    lowercase: bool = False
    """Whether upper and lower case are the same; output is then lower case."""
    sample: int = Field(1_000_000, ge=1)
    """Train on at most this many lines a side, taken evenly over the corpus."""
    file: str | dict[str, str] | None = None
    """An existing tokenizer.json, or .model of SentencePiece, to use instead of training one; or one each, as
    {source: ..., target: ...}. `kind`, `vocabulary` and `lowercase` are then the file's."""

    @model_validator(mode="after")
    def _only_words_split(self) -> TokenizerConfig:
        if self.split == "spaces" and self.kind != "word":
            raise ValueError(f"split: spaces is for kind: word, {self.kind} has its own way to cut")
        return self

    @model_validator(mode="after")
    def _files_match(self) -> TokenizerConfig:
        if isinstance(self.file, str) and not self.joint:
            raise ValueError("one tokenizer file is one vocabulary: leave joint at true, or name a file for each side")
        if isinstance(self.file, dict) and self.joint:
            raise ValueError("a tokenizer file for each side needs joint: false")
        return self


class Lines(Protocol):
    """Text lines that can be counted and picked."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> str: ...


class Tokenizer:
    """A vocabulary, the way into it and the way back.

    `decode(encode(text))` is the text in NFC (and lower case when that was asked for), less what is unknown. No text is
    read as a special token, whatever is typed; only a text of words between spaces may itself say `<unk>`, and there an
    unknown word is written so. Elsewhere each unknown character is one `<unk>`, but WordPiece has one for a whole
    word and unigram one for a row of characters.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, text: str) -> None:
        self._tokenizer, self._json = tokenizer, text
        self.size: int = 1 + max(tokenizer.get_vocab().values())  # a foreign vocabulary may have holes
        tokenizer.encode_special_tokens = True
        special = self.token_ids(special_names(tokenizer, json.loads(text)))
        self.pad, self.unk, self.begin, self.end = special
        masks = (tokenizer.token_to_id(name) for name in _MASKS)
        self.mask: int | None = next((number for number in masks if number is not None), None)
        self._special = frozenset(special if self.mask is None else [*special, self.mask])
        # A foreign vocabulary may have </s> as a plain piece, too (T5's does): text that is spelt so becomes <unk>.
        spelt = tokenizer.encode_batch(self.tokens(sorted(self._special)), add_special_tokens=False)
        self._spelt = (self._special - {self.unk}).intersection(chain.from_iterable(row.ids for row in spelt))
        spelt_unknown = tokenizer.encode(self.tokens([self.unk])[0], add_special_tokens=False).ids
        self._writes_unknown = spelt_unknown == [self.unk]  # so only words between spaces read it

    @classmethod
    def train(cls, config: TokenizerConfig, texts: Iterable[str], special: Sequence[str] = SPECIAL) -> Tokenizer:
        """Learn a vocabulary. The texts are read twice and never held, so they must not be an iterator."""
        assert iter(texts) is not texts, "texts are read twice"
        try:
            trained = train_vocabulary(
                config.kind, config.vocabulary, config.lowercase, texts, special, at_spaces=config.split == "spaces"
            )
        except UnicodeEncodeError as error:
            raise DataError(f"not valid Unicode, there is half a surrogate pair: {error.object[:40]!r}") from None
        return cls(trained, trained.to_str())

    @classmethod
    def from_json(cls, text: str, where: str = "") -> Tokenizer:
        """Read a tokenizer.json of any make; special tokens that it lacks are added. `where` names it in messages."""
        try:
            tokenizer = tokenizers.Tokenizer.from_str(text)
            if complete(tokenizer, json.loads(text)):
                text = tokenizer.to_str()
            return cls(tokenizer, text)
        except Exception as error:  # the library raises bare Exception for all that can be wrong with a file
            raise DataError(f"cannot be used as a tokenizer: {error}", where=where, hint=_EXPECTED) from None

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read a tokenizer.json file, or a .model of SentencePiece, which keeps its ids."""
        try:
            if path.suffix == ".model":
                return cls.from_json(converted(path.read_bytes(), str(path)).to_str(), where=str(path))
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise DataError("there is no such tokenizer file", where=str(path)) from None
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot be read as a tokenizer: {error}", where=str(path)) from None
        return cls.from_json(text, where=str(path))

    def to_json(self) -> str:
        """The whole tokenizer, as the `tokenizers` library and Hugging Face read it."""
        return self._json

    def save(self, path: Path) -> None:
        """Write a tokenizer.json file."""
        path.write_text(self._json, encoding="utf-8", newline="")

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Tokenizer.from_json, (self._json,)  # the library's own pickle forgets encode_special_tokens

    @property
    def special(self) -> frozenset[int]:
        """The tokens that are no text."""
        return self._special

    @cached_property
    def fingerprint(self) -> str:
        """What tells two tokenizers apart, whatever the layout of their files."""
        canonical = json.dumps(json.loads(self._json), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens around it."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, on all cores."""
        return [self._ids(row) for row in self._encodings(texts, self._tokenizer.encode_batch_fast)]

    def encode_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The ids of each text, and the characters of the text as typed that each stands for, as the library says it.

        A composed character is only said to begin where it does: text/offsets.py makes spans of these.
        """
        rows = self._encodings(texts, self._tokenizer.encode_batch)
        return [(self._ids(row), row.offsets) for row in rows]

    def _encodings(self, texts: Sequence[str], encode: Callable[..., list[Any]]) -> list[Any]:
        try:
            return encode(texts, add_special_tokens=False)
        except TypeError:  # what the library makes of half a surrogate pair
            raise DecodeError("an input is not valid Unicode: it holds half a surrogate pair") from None

    def _ids(self, row: Any) -> list[int]:
        ids: list[int] = row.ids
        return [self.unk if token in self._spelt else token for token in ids] if self._spelt else ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids; special tokens are left out (but see above for `<unk>`).

        Broken UTF-8 of a byte vocabulary becomes U+FFFD.
        """
        left_out = self._special - {self.unk} if self._writes_unknown else self._special
        written = [token for token in ids if token not in left_out]
        text: str = self._tokenizer.decode(written, skip_special_tokens=not self._writes_unknown)
        return text

    def as_written(self, text: str) -> str:
        """A text in the spelling in which it would be decoded: NFC, and lower case when that was asked for."""
        normalizer, decoder = self._tokenizer.normalizer, self._tokenizer.decoder
        spelt: str = text.strip() if normalizer is None else normalizer.normalize_str(text.strip())
        return spelt if self._byte_level or decoder is None else decoder.decode([spelt]).strip()

    def written(self) -> list[bytes]:
        """What each token adds to the text before it, as UTF-8; nothing for one that is left out of a text.

        The text of some tokens is what these make one after the other, less a space at its beginning.
        """
        if self._byte_level:
            return [
                b"" if token in self._special else bytes_of(spelt)
                for token, spelt in enumerate(self.tokens(range(self.size)))
            ]
        if "suffix" in (self._decoder or {}):  # the end of a word is marked, not its beginning
            ended = [spelt.replace(self._decoder["suffix"], " ") for spelt in self.tokens(range(self.size))]
            return [b"" if token in self._special else spelt.encode() for token, spelt in enumerate(ended)]
        first = next(token for token in range(self.size) if self.decode([token]).strip())
        before = len(self.decode([first]))
        found = [self.decode([first, token])[before:].encode() for token in range(self.size)]
        for byte in range(256) if "ByteFallback" in json.dumps(self._decoder) else ():
            found[self.id_of(f"<0x{byte:02X}>", self.pad)] = bytes([byte])
        return found

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The vocabulary's own spelling of each token; `token_ids` is the way back."""
        return [self._tokenizer.id_to_token(token) or SPECIAL[UNK] for token in ids]

    def token_ids(self, tokens: Sequence[str]) -> list[int]:
        """The ids of tokens in the vocabulary's own spelling."""
        ids: list[int] = []
        for token in tokens:
            number = self._tokenizer.token_to_id(token)
            if number is None:
                raise DecodeError(f"{token!r} is not a token of this vocabulary of {self.size}")
            ids.append(number)
        return ids

    def id_of(self, token: str, default: int) -> int:
        """The id of a token in the vocabulary's own spelling, or the default where it has none."""
        number: int | None = self._tokenizer.token_to_id(token)
        return default if number is None else number

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What to show for each token: spaces as `▁`, control characters escaped.

        A character that is spread over several tokens of a byte vocabulary is shown at the first, the others are `‿`.
        """
        tokens = self.tokens(ids)
        if self._byte_level:
            special = [token in self._special for token in ids]
            tokens = characters_of_bytes(tokens, special)
        return [_printable(token) for token in tokens]

    def spelling(self, text: str, *, first: bool) -> str:
        """How the vocabulary would spell a token that it lacks, as `pieces` shows those that it has.

        The text is the token's, the space before a word included; `first` says that nothing stands before it.
        """
        normalizer = self._tokenizer.normalizer
        normal = text if normalizer is None else normalizer.normalize_str(text)
        normal = normal[len(self._prepended) :]
        return _printable(MARK + normal if first and self._marks_first else normal)

    @cached_property
    def _prepended(self) -> str:
        """What the normaliser puts before every text: a mark, or nothing."""
        normalizer = self._tokenizer.normalizer
        return MARK if normalizer is not None and normalizer.normalize_str("a").startswith(MARK) else ""

    @cached_property
    def _marks_first(self) -> bool:
        """Whether the first word of a text is marked as those after a space are."""
        splitter, text = self._tokenizer.pre_tokenizer, self._prepended + "a"
        first: str = text if splitter is None else splitter.pre_tokenize_str(text)[0][0]
        return first.startswith(MARK)

    @property
    def between(self) -> str:
        """What stands between two texts that are read as one: nothing, where each gets a mark before it."""
        return "" if self._marks_first else " "

    @cached_property
    def continued(self) -> Tokenizer:
        """The same vocabulary for a text that goes on after another one: no mark is put before it."""
        return Tokenizer.from_json(json.dumps(continuing(json.loads(self._json))))

    def is_foreign(self, ids: Sequence[int]) -> bool:
        """Whether nothing in a text is known: it has no token, or only `<unk>`, other special tokens and spaces."""
        return self._empty.issuperset(ids)

    @cached_property
    def _decoder(self) -> Any:
        """How the library's file has it."""
        return json.loads(self._json)["decoder"]

    @cached_property
    def _byte_level(self) -> bool:
        return '"ByteLevel"' in json.dumps(self._decoder)

    @cached_property
    def keeps_white_space(self) -> bool:
        """Whether it was learned from texts in which line breaks and rows of blanks count, as GPT-2's was: it has a
        token for two of them."""
        return any(self._tokenizer.token_to_id(2 * sign) is not None for sign in (" ", "\n", MARK, "Ġ", "Ċ"))

    @cached_property
    def _empty(self) -> frozenset[int]:
        """The tokens that say nothing: special ones and those of marks and white space only."""
        space = " \t\r\n\u00a0\u3000" + MARK + ("ĠĊĉ" if self._byte_level else "")
        return self._special.union(i for token, i in self._tokenizer.get_vocab().items() if not token.strip(space))


class Tokenizers(Mapping[str, Tokenizer]):
    """The tokenizer of each column; a joint one is the same object for all."""

    def __init__(self, columns: Mapping[str, Tokenizer]) -> None:
        self._columns = dict(columns)
        self.joint = len({id(tokenizer) for tokenizer in columns.values()}) == 1

    def __getitem__(self, column: str) -> Tokenizer:
        return self._columns[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the columns together."""
        lines = [f"{column} {tokenizer.fingerprint}" for column, tokenizer in sorted(self.items())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def files(self) -> dict[str, Tokenizer]:
        """What `save` writes by name of the file: tokenizer.json, or tokenizer.COLUMN.json for each column."""
        return {_file_name(None if self.joint else column): tokenizer for column, tokenizer in self.items()}

    def save(self, folder: Path) -> None:
        for name, tokenizer in self.files.items():
            tokenizer.save(folder / name)

    @classmethod
    def load(cls, folder: Path, columns: Sequence[str] = ("source", "target")) -> Tokenizers:
        """Read what `save` wrote."""
        try:
            if any((folder / _file_name(column)).exists() for column in columns):
                return cls({column: Tokenizer.load(folder / _file_name(column)) for column in columns})
            return cls(dict.fromkeys(columns, Tokenizer.load(folder / _file_name(None))))
        except DataError as error:
            raise CheckpointError(problems=error.problems) from None


def train_tokenizers(
    config: TokenizerConfig, texts: Mapping[str, Lines], base: Path, special: Sequence[str] = SPECIAL
) -> Tokenizers:
    """The tokenizers of the columns: read from the files that the config names (relative to `base`), or trained."""
    match config.file:
        case str(file):
            return Tokenizers(dict.fromkeys(texts, tokenizer_named(file, base)))
        case dict(files):
            _check_columns(files, texts)
            return Tokenizers({column: tokenizer_named(files[column], base) for column in texts})
    if config.joint:
        trained = Tokenizer.train(config, _Sample([*texts.values()], config.sample), special)
        return Tokenizers(dict.fromkeys(texts, trained))
    return Tokenizers(
        {column: Tokenizer.train(config, _Sample([lines], config.sample), special) for column, lines in texts.items()}
    )


def tokenizer_named(file: str, base: Path) -> Tokenizer:
    """The tokenizer in a file that a recipe names, relative to `base`."""
    if (base / file).is_dir():
        raise DataError(f"{file} is a folder, not a file", where="tokenizer.file", hint=_EXPECTED)
    if problem := problem_with(TextFile(file, base / file)):
        raise DataError(f"{problem.where}: {problem.what}", where="tokenizer.file", hint=problem.hint)
    return Tokenizer.load(base / file)


class _Sample:
    """At most `most` lines of each column, taken evenly, that can be read again and again."""

    def __init__(self, columns: Sequence[Lines], most: int) -> None:
        self._columns, self._most = columns, most

    def __iter__(self) -> Iterator[str]:
        for lines in self._columns:
            count = min(len(lines), self._most)
            for number in range(count):
                yield lines[number * len(lines) // count]


def _check_columns(files: Mapping[str, str], columns: Iterable[str]) -> None:
    for column in files.keys() - set(columns):
        raise ConfigError(f"unknown column {column!r}", where="tokenizer.file", hint=did_you_mean(column, columns))
    for column in columns - files.keys():
        raise ConfigError(f"there is no tokenizer for the column {column!r}", where="tokenizer.file")


def _file_name(column: str | None) -> str:
    return f"tokenizer.{column}.json" if column else "tokenizer.json"


def _printable(piece: str) -> str:
    marked = piece.replace(" ", MARK)
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in marked)
