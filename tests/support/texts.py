"""Texts with signs of many scripts, for hypothesis, and the kinds of tokenizers to read them."""

from importlib.util import find_spec
from typing import get_args

from hypothesis import strategies as st

from regard.text.tokenizers import TokenizerConfig

TOKENIZER_KINDS = [
    kind
    for kind in get_args(TokenizerConfig.model_fields["kind"].annotation)
    if kind != "morpheme" or find_spec("kiwipiepy")
]
"""All, except those whose library is not installed."""

SIGNS = (
    "aZéß İJ\u030c e\u0301\u0323 \u1100\u1161\u11a8 \uac00\uac01 한국어 \u3131 "
    "👨\u200d👩\u200d👧 👍🏽 🇰🇷 ❤\ufe0f \u0e01\u0e33 क\u094d\u0937 \t\r\n\u3000▁.,!?()'\"-$ 🙂 "
    "\u0000 ﬁ 123"
)
TEXTS = st.text(st.sampled_from(SIGNS), max_size=30) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=20
)
