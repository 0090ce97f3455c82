"""The README.md of an exported model: what it is, how to use it, what it was trained on, how well it did."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from regard.config import write_yaml
from regard.exchange.folder import Exported
from regard.exchange.marian import not_exported
from regard.runs.run import Run, load_facts, read_metrics

PREDICT_MASK = """\
inputs = tokenizer(f"A {tokenizer.mask_token} of yours.", return_tensors="pt")
mask = inputs.input_ids[0].tolist().index(tokenizer.mask_token_id)
print(tokenizer.decode(model(**inputs).LOGITS[0, mask].argmax()))"""
GENERATE = """\
inputs = tokenizer(["A text of yours."], return_tensors="pt", padding=True)
print(TARGET.batch_decode(model.generate(**inputs), skip_special_tokens=True))"""
REGRESSION = """\
inputs = tokenizer(TEXTS, return_tensors="pt")
print(model(**inputs).logits.item())"""
USES: dict[str, tuple[str, str, str]] = {
    "BertModel": ("AutoModel", "feature-extraction", """\
inputs = tokenizer("A text of yours.", return_tensors="pt")
print(model(**inputs).last_hidden_state)  # a vector for each token"""),
    "BertForPreTraining": (
        "AutoModelForPreTraining", "fill-mask", PREDICT_MASK.replace("LOGITS", "prediction_logits"),
    ),
    "BertForMaskedLM": ("AutoModelForMaskedLM", "fill-mask", PREDICT_MASK.replace("LOGITS", "logits")),
    "BertForNextSentencePrediction": ("AutoModelForNextSentencePrediction", "text-classification", """\
inputs = tokenizer("A sentence of yours.", "Another one.", return_tensors="pt")
print(model(**inputs).logits.softmax(-1)[0, 0].item())  # probability that the second follows the first"""),
    "BertForSequenceClassification": ("AutoModelForSequenceClassification", "text-classification", """\
inputs = tokenizer(TEXTS, return_tensors="pt")
probabilities = model(**inputs).logits.softmax(-1)[0].tolist()
print({model.config.id2label[number]: probability for number, probability in enumerate(probabilities)})"""),
    "BertForTokenClassification": ("AutoModelForTokenClassification", "token-classification", """\
words = "A text of yours , in words .".split()
inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
tags = [model.config.id2label[number] for number in model(**inputs).logits[0].argmax(-1).tolist()]
print([(word, tags[inputs.word_to_tokens(number).start]) for number, word in enumerate(words)])"""),
    "BertForMultipleChoice": ("AutoModelForMultipleChoice", "multiple-choice", """\
choices = ["One way to go on.", "Another one."]
inputs = tokenizer(["A text of yours."] * len(choices), choices, return_tensors="pt", padding=True)
print(choices[model(**{name: tensor[None] for name, tensor in inputs.items()}).logits.argmax()])"""),
    "BertForQuestionAnswering": ("AutoModelForQuestionAnswering", "question-answering", """\
inputs = tokenizer("A question of yours?", "A text that answers it.", return_tensors="pt")
output = model(**inputs)
start = output.start_logits.argmax()
end = start + output.end_logits[0, start:].argmax()
print(tokenizer.decode(inputs.input_ids[0, start : end + 1]))"""),
    "GPT2LMHeadModel": ("AutoModelForCausalLM", "text-generation", """\
inputs = tokenizer("A text", return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs, max_new_tokens=20)[0], skip_special_tokens=True))"""),
    "MarianMTModel": ("AutoModelForSeq2SeqLM", "", GENERATE),
    "PegasusForConditionalGeneration": ("AutoModelForSeq2SeqLM", "", GENERATE),
}  # fmt: skip
"""Architecture -> the class that loads it, the Hub's name of its task (else that of the run), and code that uses it."""


def model_card(run: Run, exported: Exported, checkpoint: str) -> str:
    """The whole card; paths are shortened to the names of files."""
    tag = USES[exported.architecture][1] or run.recipe.task
    recipe: dict[str, Any] = _without_folders(run.recipe.model_dump())
    origin = run.environment.get("imported")
    front = {"library_name": "transformers", "pipeline_tag": tag, "tags": ["regard", run.recipe.task]}
    made = f"imported from `{_without_folders(origin['from'])}`" if origin else "trained with `regard train`"
    missing = ", ".join(f"`{name}`" for name in not_exported(run.recipe.search)) if exported.generation else ""
    note = f"\nThe search of the run also has {missing}, which `generate` does not: outputs may differ.\n"
    return f"""---
{write_yaml(front)}---

# {run.folder.resolve().name}

A {run.recipe.model.kind} for {run.recipe.task.replace("_", " ")}, exported by regard {run.environment["regard"]} as a
`{exported.architecture}`. It was {made}. It loads with transformers 5 or later.

```python
{_code(run, exported.architecture)}
```
{note if missing else ""}
## Data

```yaml
{write_yaml(_given(recipe["data"]))}```

## Metrics

{_metrics(run, checkpoint)}

## Recipe

```yaml
{write_yaml(recipe)}```
"""


def _code(run: Run, architecture: str) -> str:
    """How `transformers` loads the model and uses it; the code runs as it is printed."""
    loader, _, use = USES[architecture]
    if run.recipe.task == "regression":
        use = REGRESSION
    pairs = any(getattr(corpus, "second", None) is not None for corpus in run.recipe.data.train)
    use = use.replace("TEXTS", '"A text of yours.", "Another one."' if pairs else '"A text of yours."')
    target = 'target = AutoTokenizer.from_pretrained(FOLDER, subfolder="target")  # outputs have another vocabulary'
    lines = [
        f"from transformers import AutoTokenizer, {loader}",
        "",
        'FOLDER = "."  # this folder, or its path from where you are',
        "tokenizer = AutoTokenizer.from_pretrained(FOLDER)",
        *([] if run.tokenizers.joint else [target]),
        f"model = {loader}.from_pretrained(FOLDER)",
        use.replace("TARGET", "tokenizer" if run.tokenizers.joint else "target"),
    ]
    return "\n".join(lines)


def _metrics(run: Run, checkpoint: str) -> str:
    """The last validation up to the checkpoint, as a table."""
    step = load_facts(run.checkpoint(checkpoint)).get("step", 0)
    lines = read_metrics(run.folder / "metrics.jsonl")
    validations = [line for line in lines if line.get("event") == "validation" and line.get("step", 0) <= step]
    if not validations:
        return "None were measured here."
    numbers = {name: value for name, value in validations[-1].items() if isinstance(value, float)}
    rows = [f"| {name.replace('_', ' ')} | {value:.4f} |" for name, value in numbers.items()]
    return "\n".join([f"On the validation data, after {step:,} steps:", "", "| metric | value |", "|---|---|", *rows])


def _given(node: Any) -> Any:
    """Without empty settings."""
    if isinstance(node, dict):
        return {key: _given(value) for key, value in node.items() if value not in (None, "")}
    return [_given(value) for value in node] if isinstance(node, list) else node


def _without_folders(node: Any) -> Any:
    """Paths would leak the folders of the machine that trained the model."""
    if isinstance(node, dict):
        return {key: _without_folders(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_without_folders(value) for value in node]
    return PurePath(node).name if isinstance(node, str) and PurePath(node).is_absolute() else node
