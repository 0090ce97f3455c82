"""Text -> token ids and back, exactly; unknown words and the spans of tokens; the tokenizers of a
run."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import tokenizers
from pydantic import Field, model_validator
from tokenizers import AddedToken

from regard.config import Config
from regard.errors import CheckpointError, ConfigError, DataError, DecodeError, did_you_mean
from regard.text.byte_tokens import bytes_of, characters_of_bytes
from regard.text.files import TextFile, problem_with
from regard.text.morphemes import CUT, places_in, with_cuts, without_cuts
from regard.text.normalise import Clusters, Span, fold_white_space, nfc, trimmed
from regard.text.sentencepiece import convert_sentencepiece
from regard.text.spelling import Token, UnknownWord, letters_of
from regard.text.templates import Slot, Templates, bert_templates, steps_of, templates_in
from regard.text.vocabularies import MARK, SPECIAL_NAMES, UNK, train_vocabulary

_ALIASES = (
    ("<pad>", "[PAD]", "<PAD>", "<|pad|>", "<|padding|>"),
    ("<unk>", "[UNK]", "<UNK>", "<|unk|>"),
    ("<s>", "[CLS]", "<bos>", "[BOS]", "<BOS>", "<|begin_of_text|>", "<|startoftext|>"),
    ("</s>", "[SEP]", "<eos>", "[EOS]", "<EOS>", "<|end_of_text|>", "<|endoftext|>"),
)
"""Names of padding, unknown, begin and end in the vocabularies of other tools."""
# names of the mask token in the vocabularies of other tools
_MASKS = ("[MASK]", "<mask>", "<|mask|>")
SYLLABLE = "가"
SYLLABLE_LETTERS = "\u1100\u1161"
"""A syllable, and its letters as the Unicode form NFD has them."""
JAMO_NAME = re.compile("HANGUL (?:CHO|JUNG|JONG)SEONG (.+)")
LETTER_NAME = "HANGUL LETTER {}"
"""The names of single jamo, and of the same letters outside of syllables."""
_EXPECTED = "expected is a tokenizer.json of the tokenizers library, or a .model of SentencePiece"


class TokenizerConfig(Config):
    """How text is split into tokens."""

    kind: Literal[
        "word", "character", "byte", "bpe", "wordpiece", "unigram", "morpheme", "jamo"
    ] = "bpe"
    """What a token is. `word`: words and punctuation (see `split`); `character`: code points;
    `byte`: UTF-8 bytes, so no token is ever unknown; `bpe`, `wordpiece`, `unigram`: subwords,
    learned from the training text; `morpheme`: as `word`, but Korean words are cut into morphemes,
    except within a syllable (needs kiwipiepy, also where the run is used); `jamo`: the letters of
    Korean syllables, and other characters."""
    split: Literal["punctuation", "spaces"] = "punctuation"
    """Where `word` splits. `punctuation`: letters, digits and every punctuation mark are words of
    their own. `spaces`: only at spaces, for text that is tokenised already; `<unk>` in the text is
    then the unknown token."""
    vocabulary: int = Field(8000, ge=len(SPECIAL_NAMES) + 1)
    """Largest size, including the special tokens. `byte` always has 256 and those."""
    joint: bool = True
    """One vocabulary for both sides, or one each."""
    lowercase: bool = False
    """Convert text to lower case; output is then lower case."""
    sample: int = Field(1_000_000, ge=1)
    """Train on at most this many lines a side, taken evenly over the corpus."""
    file: str | dict[str, str] | None = None
    """An existing tokenizer.json, or .model of SentencePiece, to use instead of training one; or
    one each, as {source: ..., target: ...}. `kind`, `vocabulary` and `lowercase` are then the
    file's."""

    @model_validator(mode="after")
    def _consistent(self) -> TokenizerConfig:
        if self.split == "spaces" and self.kind != "word":
            raise ValueError(f"split: spaces is only for kind: word, not for {self.kind}")
        if isinstance(self.file, str) and not self.joint:
            raise ValueError(
                "one tokenizer file is one vocabulary: leave joint at true, or name a file for "
                "each side"
            )
        if isinstance(self.file, dict) and self.joint:
            raise ValueError("a tokenizer file for each side needs joint: false")
        return self


def special_names(tokenizer: tokenizers.Tokenizer, tree: Mapping[str, Any]) -> list[str]:
    """The names of padding, unknown, begin and end in this tokenizer.json; our own names for
    missing ones.

    A template may use one token in place of another: GPT-2's end token is also its begin token.
    """
    names = [
        next((n for n in aliases if tokenizer.token_to_id(n) is not None), aliases[0])
        for aliases in _ALIASES
    ]
    model = tree["model"]
    unknown = model.get("unk_token")
    if isinstance(model.get("unk_id"), int):
        unknown = model["vocab"][model["unk_id"]][0]
    if unknown and unknown not in names:
        names[1] = unknown
    processor = tree.get("post_processor") or {}
    templates = [
        part.get("special_tokens") or {} for part in processor.get("processors", [processor])
    ]
    used = {
        name: token["tokens"][0]
        for part in templates
        for name, token in part.items()
        if token["tokens"]
    }
    return [used.get(own, name) for own, name in zip(SPECIAL_NAMES, names, strict=True)]


class Spellings(dict[int, str]):
    """How a vocabulary spells its tokens, each of which is asked for once."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, token: int) -> str:
        spelt: str = self._tokenizer.id_to_token(token) or SPECIAL_NAMES[UNK]
        self[token] = spelt
        return spelt


class Tokenizer:
    """A vocabulary with its encoder and decoder.

    `decode(encode(text))` is the text in NFC (and lower case if configured), without unknown parts.
    Text is never read as a special token, except `<unk>` in a vocabulary of words split at spaces,
    which also decodes unknown words as `<unk>`. Otherwise each unknown character is one `<unk>`,
    but WordPiece has one for a whole word and unigram one for a run of characters.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        text: str | None = None,
        tree: dict[str, Any] | None = None,
    ) -> None:
        """`text` is its JSON, and `tree` the same text parsed, where a caller has them."""
        self._tokenizer = tokenizer
        self._spellings = Spellings(tokenizer)
        self._json = text or tokenizer.to_str()
        self.size: int = 1 + max(tokenizer.get_vocab().values())  # ids of other tools may have gaps
        tokenizer.encode_special_tokens = True
        tree = json.loads(self._json) if tree is None else tree
        self._decoder: dict[str, Any] = tree.get("decoder") or {}
        self._byte_level = '"ByteLevel"' in json.dumps(self._decoder)
        self.cuts_morphemes = CUT in json.dumps(tree["pre_tokenizer"], ensure_ascii=False)
        # a vocabulary of jamo: decoding puts the letters of a syllable together
        self._composes = self._normalise(SYLLABLE) == SYLLABLE_LETTERS
        special = self.token_ids(special_names(tokenizer, tree))
        self._own_templates = templates_in(tree)
        self.pad, self.unk, self.begin, self.end = special
        masks = (tokenizer.token_to_id(name) for name in _MASKS)
        self.mask: int | None = next((number for number in masks if number is not None), None)
        around = (Slot(self.mask, 0), *chain.from_iterable(self._own_templates or ()))
        self.special = frozenset([*special, *(token for token, _ in around if token is not None)])
        if max(self.special) >= self.size:
            raise ValueError("its template has a token that is not in the vocabulary")
        # T5's vocabulary has </s> as an ordinary piece, too: text that is spelt so becomes <unk>.
        spelt = tokenizer.encode_batch(self.tokens(sorted(self.special)), add_special_tokens=False)
        self._spelt = (self.special - {self.unk}).intersection(
            chain.from_iterable(row.ids for row in spelt)
        )
        spelt_unknown = tokenizer.encode(self.tokens([self.unk])[0], add_special_tokens=False).ids
        self._decodes_unknown = spelt_unknown == [self.unk]  # only words split at spaces

    @classmethod
    def train(
        cls, config: TokenizerConfig, texts: Iterable[str], special: Sequence[str] = SPECIAL_NAMES
    ) -> Tokenizer:
        """Learn a vocabulary. The texts are iterated twice and never held, so they must not be an
        iterator."""
        assert iter(texts) is not texts, "texts are read twice"
        try:
            kind = "spaces" if config.split == "spaces" else config.kind
            return cls(train_vocabulary(kind, config.vocabulary, config.lowercase, texts, special))
        except UnicodeEncodeError as error:
            raise DataError(
                f"not valid Unicode, there is half a surrogate pair: {error.object[:40]!r}"
            ) from None

    @classmethod
    def from_json(cls, text: str, where: str = "") -> Tokenizer:
        """Read the tokenizer.json of any tool; missing special tokens are added, and truncation and
        padding turned off.

        `where` names it in messages.
        """
        try:
            tokenizer = tokenizers.Tokenizer.from_str(text)
            changed = tokenizer.truncation is not None or tokenizer.padding is not None
            tokenizer.no_truncation()
            tokenizer.no_padding()
            special = {
                token.content
                for token in tokenizer.get_added_tokens_decoder().values()
                if token.special
            }
            tree = json.loads(text)
            names = dict.fromkeys(special_names(tokenizer, tree))
            missing = [
                AddedToken(name, special=True, normalized=False)
                for name in names
                if name not in special
            ]
            tokenizer.add_special_tokens(missing)
            if missing or changed:
                return cls(tokenizer)
            return cls(tokenizer, text, tree)
        except (
            Exception
        ) as error:  # the library raises bare Exception for whatever is wrong with a file
            raise DataError(
                f"cannot be used as a tokenizer: {error}", where=where, hint=_EXPECTED
            ) from None

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read a tokenizer.json file, or a .model of SentencePiece, which keeps its ids."""
        try:
            if path.suffix == ".model":
                text = convert_sentencepiece(path.read_bytes(), str(path)).to_str()
            else:
                text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise DataError("there is no such tokenizer file", where=str(path)) from None
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot be read as a tokenizer: {error}", where=str(path)) from None
        return cls.from_json(text, where=str(path))

    def to_json(self) -> str:
        return self._json

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        # the library's own pickle loses encode_special_tokens
        return Tokenizer.from_json, (self._json,)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the content, whatever the layout of the file."""
        canonical = json.dumps(
            json.loads(self._json), sort_keys=True, ensure_ascii=False, separators=(",", ":")
        )
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def templates(self) -> Templates:
        """The tokens around one text and around two that a BERT reads: as the vocabulary's own
        template says, else [CLS] A [SEP] and [CLS] A [SEP] B [SEP]."""
        return self._own_templates or bert_templates(self.begin, self.end)

    @cached_property
    def first(self) -> list[int]:
        """The tokens that its own template puts before a text, except for the one that a decoder
        reads first: `<s>` of BART, whose decoder begins with `</s>`."""
        single, _ = self._own_templates or ((), ())
        around = [slot.token for slot in single]
        before = around[: around.index(None)] if None in around else []
        return [token for token in before if token is not None and token != self.begin]

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens around it."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, on all cores."""
        return [self._ids(row) for row in self._encodings(texts, self._tokenizer.encode_batch_fast)]

    def encode_spelled(self, texts: Sequence[str], letters: int | None) -> list[list[Token]]:
        """The tokens of each text. With `letters`, unknown words keep so many of their characters,
        for a model that reads them."""
        rows: list[list[Token]] = [[*ids] for ids in self.encode_batch(texts)]
        if letters is None:
            return rows
        with_unknown = [number for number, ids in enumerate(rows) if self.unk in ids]
        words = self.unknown_words([texts[number] for number in with_unknown])
        for number, row_words in zip(with_unknown, words, strict=True):
            for position, typed in row_words:
                word = self._normalise(typed)[len(self._prepended) :]
                word = shown(MARK + word if position == 0 and self._marks_first else word)
                rows[number][position] = UnknownWord(self.unk, word, letters_of(word, letters))
        return rows

    def unknown_words(self, texts: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
        """The unknown tokens of each text: their positions and their text, including the space
        before a word.

        A text of words split at spaces may itself contain `<unk>`: that one is known.
        """
        [unknown] = self.tokens([self.unk])
        # Offsets of a decomposed character cover only its first code point, so take them from the
        # composed text.
        composed = [nfc(text) for text in texts]
        rows = self._offsets(texts)
        composed_rows = rows if composed == [*texts] else self._offsets(composed)
        for text, composed_text, row, composed_row in zip(
            texts, composed, rows, composed_rows, strict=True
        ):
            # not so for a vocabulary of another tool that does not compose
            same = composed_row[0] == row[0]
            source, (ids, offsets) = (composed_text, composed_row) if same else (text, row)
            words = (
                (place, source[slice(*offsets[place])])
                for place, token in enumerate(ids)
                if token == self.unk
            )
            yield [(place, word) for place, word in words if word.strip() != unknown]

    def token_spans(self, texts: Sequence[str]) -> list[tuple[list[int], list[Span]]]:
        """The tokens of each text and their spans in it as it was typed, without white space at the
        ends.

        Tokens that share a grapheme cluster, such as the bytes of a syllable, all have the whole of
        it; a token of white space has an empty span.
        """
        rows = []
        for text, (ids, offsets) in zip(texts, self._offsets(texts), strict=True):
            clusters = Clusters(text)
            rows.append((ids, [clusters.whole(*trimmed(text, *offset)) for offset in offsets]))
        return rows

    def _offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The ids of each text, and the library's offsets of each token in the text before
        normalisation."""
        rows = self._encodings(texts, self._tokenizer.encode_batch)
        if not self.cuts_morphemes:
            return [(self._ids(row), row.offsets) for row in rows]
        return [
            (
                self._ids(row),
                [
                    (without_cuts(start, cuts), without_cuts(end, cuts))
                    for start, end in row.offsets
                ],
            )
            for row, cuts in zip(rows, places_in(texts), strict=True)
        ]

    def _encodings(self, texts: Sequence[str], encode: Callable[..., list[Any]]) -> list[Any]:
        try:
            if self.cuts_morphemes:
                texts = [*map(with_cuts, texts, places_in(texts))]
            return encode(texts, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):  # reactions to half a surrogate pair
            raise DecodeError(
                "an input is not valid Unicode: it holds half a surrogate pair"
            ) from None

    def _ids(self, row: Any) -> list[int]:
        ids: list[int] = row.ids
        return (
            [self.unk if token in self._spelt else token for token in ids] if self._spelt else ids
        )

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids without special tokens (but see above for `<unk>`).

        Invalid UTF-8 of a byte vocabulary becomes U+FFFD.
        """
        text = self.spelt_text(ids)
        return nfc(text) if self._composes else text

    def spelt_text(self, ids: Sequence[int]) -> str:
        """The text as the vocabulary spells it: one of jamo as single letters."""
        left_out = self.special - {self.unk} if self._decodes_unknown else self.special
        kept = [token for token in ids if token not in left_out]
        text: str = self._tokenizer.decode(kept, skip_special_tokens=not self._decodes_unknown)
        return text

    @cached_property
    def keeps_white_space(self) -> bool:
        """Whether line breaks and runs of blanks matter to the vocabulary, as to GPT-2's: it has a
        token for two."""
        return any(
            self._tokenizer.token_to_id(2 * sign) is not None
            for sign in (" ", "\n", MARK, "Ġ", "Ċ")
        )

    def fold(self, text: str) -> str:
        """A document as language models read it: white space folded, unless the vocabulary keeps
        it."""
        return text if self.keeps_white_space else fold_white_space(text)

    def normalised(self, text: str) -> str:
        """A stripped text as the bytes of tokens spell it: in NFC, or single jamo, and lower case if
        configured."""
        spelt = self._normalise(text.strip())
        decoder = self._tokenizer.decoder
        return spelt if self._byte_level or decoder is None else decoder.decode([spelt]).strip()

    def token_bytes(self) -> list[bytes]:
        """The bytes of UTF-8 that each token adds to the decoded text, whose syllables a vocabulary
        of jamo spells as letters; none for special tokens.

        The decoded text of some tokens is their concatenation, without a space at its beginning.
        """
        # of a vocabulary that marks the end of a word, not its beginning
        suffix = self._decoder.get("suffix")
        if self._byte_level or suffix:
            spelt = self.tokens(range(self.size))
            added = [
                own.replace(suffix, " ").encode() if suffix else bytes_of(own) for own in spelt
            ]
            return [b"" if token in self.special else own for token, own in enumerate(added)]
        first = next(token for token in range(self.size) if self.spelt_text([token]).strip())
        start = len(self.spelt_text([first]))
        added = [self.spelt_text([first, token])[start:].encode() for token in range(self.size)]
        for byte in range(256) if "ByteFallback" in json.dumps(self._decoder) else ():
            number = self._tokenizer.token_to_id(f"<0x{byte:02X}>")
            added[self.pad if number is None else number] = bytes([byte])
        return added

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Each token as the vocabulary spells it; `token_ids` is the inverse."""
        return [*map(self._spellings.__getitem__, ids)]

    def token_ids(self, tokens: Sequence[str]) -> list[int]:
        ids: list[int] = []
        for token in tokens:
            number = self._tokenizer.token_to_id(token)
            if number is None:
                raise DecodeError(f"{token!r} is not a token of this vocabulary of {self.size}")
            ids.append(number)
        return ids

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A text to show for each token: spaces as `▁`, control characters escaped.

        A character that takes several tokens of a byte vocabulary is shown at the first, the others
        are `‿`.
        """
        tokens = self.tokens(ids)
        if self._byte_level:
            tokens = characters_of_bytes(tokens, [token in self.special for token in ids])
        if self._composes:
            tokens = ["".join(map(letter_of_jamo, token)) for token in tokens]
        return [shown(token) for token in tokens]

    def _normalise(self, text: str) -> str:
        normalizer = self._tokenizer.normalizer
        return text if normalizer is None else str(normalizer.normalize_str(text))

    @cached_property
    def _prepended(self) -> str:
        """The prefix that the normaliser adds to every text: a mark, or nothing."""
        return MARK if self._normalise("a").startswith(MARK) else ""

    @cached_property
    def _marks_first(self) -> bool:
        """Whether the first word of a text is marked like those after a space."""
        splitter = self._tokenizer.pre_tokenizer
        text = self._prepended + "a"
        first: str = text if splitter is None else splitter.pre_tokenize_str(text)[0][0]
        return first.startswith(MARK)

    @property
    def between(self) -> str:
        """The separator of two texts that are encoded one after the other: empty if each gets a
        mark before it."""
        return "" if self._marks_first else " "

    @cached_property
    def continued(self) -> Tokenizer:
        """A tokenizer with this vocabulary for texts that continue others: it puts no mark before a
        text."""
        tree = json.loads(self._json)
        for step in steps_of(tree["normalizer"]):
            if "normalizers" in step:
                step["normalizers"] = [
                    part for part in step["normalizers"] if part["type"] != "Prepend"
                ]
        for step in steps_of(tree["pre_tokenizer"]):
            if step["type"] == "Metaspace":
                step["prepend_scheme"] = "never"
        return Tokenizer.from_json(json.dumps(tree))

    def all_unknown(self, ids: Sequence[int]) -> bool:
        """Whether no token of a text is known: there are only `<unk>`, other special tokens and
        spaces, or none."""
        return self._unknown_tokens.issuperset(ids)

    @cached_property
    def _unknown_tokens(self) -> frozenset[int]:
        space = " \t\r\n\u00a0\u3000" + MARK + ("ĠĊĉ" if self._byte_level else "")
        spelt = enumerate(self.tokens(range(self.size)))
        return self.special | {token for token, own in spelt if not own.strip(space)}


class Tokenizers(dict[str, Tokenizer]):
    """The tokenizer of each column; a joint one is the same object for all."""

    @property
    def joint(self) -> bool:
        return len({id(tokenizer) for tokenizer in self.values()}) == 1

    @property
    def fingerprint(self) -> str:
        lines = [f"{column} {tokenizer.fingerprint}" for column, tokenizer in sorted(self.items())]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def files(self) -> dict[str, Tokenizer]:
        """The files that `save` writes, by name: tokenizer.json, or tokenizer.COLUMN.json for each
        column."""
        return {
            _file_name(None if self.joint else column): tokenizer
            for column, tokenizer in self.items()
        }

    def save(self, folder: Path) -> None:
        for name, tokenizer in self.files.items():
            (folder / name).write_text(tokenizer.to_json(), encoding="utf-8", newline="")

    @classmethod
    def load(cls, folder: Path, columns: Sequence[str] = ("source", "target")) -> Tokenizers:
        try:
            if any((folder / _file_name(column)).exists() for column in columns):
                return cls(
                    {column: Tokenizer.load(folder / _file_name(column)) for column in columns}
                )
            return cls(dict.fromkeys(columns, Tokenizer.load(folder / _file_name(None))))
        except DataError as error:
            raise CheckpointError(problems=error.problems) from None


def train_tokenizers(
    config: TokenizerConfig,
    texts: Mapping[str, Sequence[str]],
    base: Path,
    special: Sequence[str] = SPECIAL_NAMES,
    normalise: Callable[[str], str] = str,
) -> Tokenizers:
    """The tokenizers of the columns: read from the files that the config names (relative to
    `base`), or trained."""
    match config.file:
        case str(file):
            return Tokenizers(dict.fromkeys(texts, tokenizer_named(file, base)))
        case dict(files):
            for column in files.keys() - texts.keys():
                hint = did_you_mean(column, texts)
                raise ConfigError(f"unknown column {column!r}", where="tokenizer.file", hint=hint)
            for column in texts.keys() - files.keys():
                raise ConfigError(
                    f"there is no tokenizer for the column {column!r}", where="tokenizer.file"
                )
            return Tokenizers({column: tokenizer_named(files[column], base) for column in texts})
    groups = [[*texts]] if config.joint else [[column] for column in texts]
    samples = [
        _Sample([texts[column] for column in group], config.sample, normalise) for group in groups
    ]
    trained = [Tokenizer.train(config, sample, special) for sample in samples]
    return Tokenizers(
        {column: own for group, own in zip(groups, trained, strict=True) for column in group}
    )


def tokenizer_named(file: str, base: Path) -> Tokenizer:
    """The tokenizer in a file that a recipe names, relative to `base`."""
    if (base / file).is_dir():
        raise DataError(f"{file} is a folder, not a file", where="tokenizer.file", hint=_EXPECTED)
    if problem := problem_with(TextFile(file, base / file)):
        raise DataError(
            f"{problem.where}: {problem.what}", where="tokenizer.file", hint=problem.hint
        )
    return Tokenizer.load(base / file)


class _Sample:
    """At most `most` lines of each column, taken evenly; can be iterated repeatedly."""

    def __init__(
        self, columns: Sequence[Sequence[str]], most: int, normalise: Callable[[str], str]
    ) -> None:
        self._columns = columns
        self._most = most
        self._normalise = normalise

    def __iter__(self) -> Iterator[str]:
        for lines in self._columns:
            count = min(len(lines), self._most)
            for number in range(count):
                yield self._normalise(lines[number * len(lines) // count])


def _file_name(column: str | None) -> str:
    return f"tokenizer.{column}.json" if column else "tokenizer.json"


def letter_of_jamo(character: str) -> str:
    """A consonant or vowel of a syllable as a letter of its own, which fonts show alone: ᆫ -> ㄴ;
    other characters as they are."""
    name = JAMO_NAME.fullmatch(unicodedata.name(character, ""))
    return unicodedata.lookup(LETTER_NAME.format(name[1])) if name else character


def shown(piece: str) -> str:
    r"""A token with the mark for a space, and unprintable characters as Python escapes, such as \n
    and \u200b."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode()
        for c in piece.replace(" ", MARK)
    )
