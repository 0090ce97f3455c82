"""The token of a language in the vocabulary of a model that translates between many."""

from __future__ import annotations

from difflib import get_close_matches

from regard.errors import ConfigError
from regard.text.tokenizers import Tokenizer

THREE_LETTERS = {
    "ar": "arb_Arab",
    "bn": "ben_Beng",
    "cs": "ces_Latn",
    "da": "dan_Latn",
    "de": "deu_Latn",
    "el": "ell_Grek",
    "en": "eng_Latn",
    "es": "spa_Latn",
    "fa": "pes_Arab",
    "fi": "fin_Latn",
    "fr": "fra_Latn",
    "he": "heb_Hebr",
    "hi": "hin_Deva",
    "hu": "hun_Latn",
    "id": "ind_Latn",
    "it": "ita_Latn",
    "ja": "jpn_Jpan",
    "km": "khm_Khmr",
    "ko": "kor_Hang",
    "mn": "khk_Cyrl",
    "ms": "zsm_Latn",
    "ne": "npi_Deva",
    "nl": "nld_Latn",
    "no": "nob_Latn",
    "pl": "pol_Latn",
    "pt": "por_Latn",
    "ro": "ron_Latn",
    "ru": "rus_Cyrl",
    "sv": "swe_Latn",
    "ta": "tam_Taml",
    "th": "tha_Thai",
    "tl": "tgl_Latn",
    "tr": "tur_Latn",
    "uk": "ukr_Cyrl",
    "ur": "urd_Arab",
    "uz": "uzn_Latn",
    "vi": "vie_Latn",
    "zh": "zho_Hans",
}
"""Codes of two letters -> the language and script as NLLB's vocabulary names them."""


def languages_of(tokenizer: Tokenizer) -> list[str]:
    """The languages of a vocabulary, as its tokens spell them."""
    names = tokenizer.tokens(range(tokenizer.size))
    languages = [name for name in names if name.startswith("__") and name.endswith("__")]
    return languages or [name for name in names if _is_like_nllb(name)]


def language_token(tokenizer: Tokenizer, language: str, where: str) -> int:
    """The id of a language: its token as the vocabulary spells it, or the code in it. `ko` is
    `__ko__` for M2M-100 and `kor_Hang` for NLLB."""
    names = tokenizer.tokens(range(tokenizer.size))
    ids = {name: number for number, name in enumerate(names)}
    spellings = (language, f"__{language}__", THREE_LETTERS.get(language, language))
    known = [ids[name] for name in spellings if name in ids]
    special = [number for number in known if not tokenizer.decode([number])]
    if special:
        return special[0]
    languages = languages_of(tokenizer)
    if not languages:
        what = "the vocabulary has no tokens for languages"
        raise ConfigError(what, where=where, hint="leave it out")
    near = get_close_matches(spellings[-1], languages, n=3, cutoff=0.0)
    what = f"the vocabulary has no token for the language {language!r}"
    hint = f"the nearest of its {len(languages)}: {', '.join(name.strip('_') for name in near)}"
    raise ConfigError(what, where=where, hint=hint)


def _is_like_nllb(name: str) -> bool:
    """Whether a token is three letters for a language and four for its script."""
    language, _, script = name.partition("_")
    return (len(language), len(script)) == (3, 4) and language.islower() and script.istitle()
