"""What is offered for a gap."""

from __future__ import annotations

import pytest
import torch

from regard.models.bert import BERT, BERTConfig
from regard.tasks.masked_language_modeling import encode_gaps, filled
from regard.tasks.task import readable
from regard.text.tokenizers import Tokenizer, TokenizerConfig
from regard.text.vocabularies import MASKING

TEXTS = ["농부는 봄에 씨를 뿌리고 가을에 곡식을 거둔다.", "도서관에는 오래된 책이 많다."] * 3


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_a_mark_without_a_word_is_not_offered_and_keeps_its_probability(kind: str) -> None:
    """All tokens are asked for. Those that write nothing are left out; what they had is given to no other."""
    tokenizer = Tokenizer.train(
        TokenizerConfig(kind=kind, vocabulary=80),  # type: ignore[arg-type]
        TEXTS,
        MASKING,
    )
    torch.manual_seed(1)
    model = BERT(BERTConfig(preset="tiny", next_sentence=False), tokenizer.size).eval()
    text = "농부는 봄에 [MASK] 뿌리고"
    rows = readable(encode_gaps(model, tokenizer, [text], [""]))
    [gap] = filled(model, tokenizer, [text], rows, tokenizer.size)[0].gaps
    assert all(gap.words)
    assert set(tokenizer.tokens(range(tokenizer.size))) - set(gap.tokens) == {*MASKING, "▁"}
    assert 0.5 < sum(gap.probabilities) < 0.999
