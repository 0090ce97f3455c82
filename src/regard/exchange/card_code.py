"""The code of a model card: how `transformers` loads an exported model and uses it, to be run as it is printed."""

from __future__ import annotations

from regard.runs.run import Run

LOADERS = {
    "BertModel": "AutoModel",
    "BertForPreTraining": "AutoModelForPreTraining",
    "BertForMaskedLM": "AutoModelForMaskedLM",
    "BertForNextSentencePrediction": "AutoModelForNextSentencePrediction",
    "BertForSequenceClassification": "AutoModelForSequenceClassification",
    "BertForTokenClassification": "AutoModelForTokenClassification",
    "BertForMultipleChoice": "AutoModelForMultipleChoice",
    "BertForQuestionAnswering": "AutoModelForQuestionAnswering",
    "GPT2LMHeadModel": "AutoModelForCausalLM",
    "MarianMTModel": "AutoModelForSeq2SeqLM",
    "PegasusForConditionalGeneration": "AutoModelForSeq2SeqLM",
}
"""Architecture -> the class that loads it."""
_GAP = """\
inputs = tokenizer(f"A {tokenizer.mask_token} of yours.", return_tensors="pt")
gap = inputs.input_ids[0].tolist().index(tokenizer.mask_token_id)
print(tokenizer.decode(model(**inputs).LOGITS[0, gap].argmax()))"""
_WRITTEN = """\
inputs = tokenizer(["A text of yours."], return_tensors="pt", padding=True)
print(TARGET.batch_decode(model.generate(**inputs), skip_special_tokens=True))"""
USES = {
    "BertModel": """\
inputs = tokenizer("A text of yours.", return_tensors="pt")
print(model(**inputs).last_hidden_state)  # a vector for each token""",
    "BertForPreTraining": _GAP.replace("LOGITS", "prediction_logits"),
    "BertForMaskedLM": _GAP.replace("LOGITS", "logits"),
    "BertForNextSentencePrediction": """\
inputs = tokenizer("A sentence of yours.", "Another one.", return_tensors="pt")
print(model(**inputs).logits.softmax(-1)[0, 0].item())  # how likely the second follows the first""",
    "BertForSequenceClassification": """\
inputs = tokenizer(TEXTS, return_tensors="pt")
probabilities = model(**inputs).logits.softmax(-1)[0].tolist()
print({model.config.id2label[number]: one for number, one in enumerate(probabilities)})""",
    "BertForTokenClassification": """\
words = "A text of yours , in words .".split()
inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
tags = [model.config.id2label[number] for number in model(**inputs).logits[0].argmax(-1).tolist()]
print([(word, tags[inputs.word_to_tokens(number).start]) for number, word in enumerate(words)])""",
    "BertForMultipleChoice": """\
choices = ["One way to go on.", "Another one."]
inputs = tokenizer(["A text of yours."] * len(choices), choices, return_tensors="pt", padding=True)
print(choices[model(**{name: tensor[None] for name, tensor in inputs.items()}).logits.argmax()])""",
    "BertForQuestionAnswering": """\
inputs = tokenizer("A question of yours?", "A text that answers it.", return_tensors="pt")
found = model(**inputs)
start = found.start_logits.argmax()
end = start + found.end_logits[0, start:].argmax()
print(tokenizer.decode(inputs.input_ids[0, start : end + 1]))""",
    "GPT2LMHeadModel": """\
inputs = tokenizer("A text", return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs, max_new_tokens=20)[0], skip_special_tokens=True))""",
    "MarianMTModel": _WRITTEN,
    "PegasusForConditionalGeneration": _WRITTEN,
}
"""Architecture -> what is done with `tokenizer` and `model`."""
_NUMBER = """\
inputs = tokenizer(TEXTS, return_tensors="pt")
print(model(**inputs).logits.item())"""
TARGET = """\
target = AutoTokenizer.from_pretrained(FOLDER, subfolder="target")  # what it writes are tokens of another vocabulary"""


def example(run: Run, architecture: str) -> str:
    """The code for a run that was exported as this architecture."""
    loader, use = LOADERS[architecture], USES[architecture]
    if run.recipe.task == "regression":
        use = _NUMBER
    pairs = any(getattr(corpus, "second", None) is not None for corpus in run.recipe.data.train)
    use = use.replace("TEXTS", '"A text of yours.", "Another one."' if pairs else '"A text of yours."')
    lines = [
        f"from transformers import AutoTokenizer, {loader}",
        "",
        'FOLDER = "."  # this one, or where it is from where you are',
        "tokenizer = AutoTokenizer.from_pretrained(FOLDER)",
        *([] if run.tokenizers.joint else [TARGET]),
        f"model = {loader}.from_pretrained(FOLDER)",
        use.replace("TARGET", "tokenizer" if run.tokenizers.joint else "target"),
    ]
    return "\n".join(lines)
