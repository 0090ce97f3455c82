"""Tags and entities: from CoNLL's columns and JSON Lines over schemes and scores to a tagger."""

import json
import tracemalloc
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import accuracy_score, classification_report
from seqeval.metrics.sequence_labeling import get_entities

import regard
from command_line import fail, succeed, write
from labelled_cases import SMALL, TAGGING
from model_cases import with_weights_that_matter
from places import SHARED
from regard.api import load
from regard.data.conll import (
    Entity,
    Scheme,
    TaggedText,
    entities_in,
    first_fault,
    labels_of,
    tags_of,
)
from regard.data.dataset import Dataset
from regard.data.framing import windows
from regard.data.readers import open_corpus
from regard.errors import ConfigError, DataError
from regard.models.headed import Headed
from regard.objectives.labels import TagCrossEntropy
from regard.recipes.recipe import recipe_of
from regard.runs import Run
from regard.tasks.tagging import TaggedInput, TaggedWord, Tagging, accuracy, entity_scores
from regard.text.normalise import Span
from regard.text.tokenizers import Tokenizer, TokenizerConfig, Tokenizers
from task_cases import make_task, rows_of
from texts import TEXTS, TOKENIZER_KINDS

REAL = SHARED / "conll2003_en"
CONLL = """\
-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP I-MISC

# text = Peter Blackburn
Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
# SYM I-NP O
"""
SCHEMES: tuple[Scheme, ...] = ("iob1", "iob2", "bioes")
TAGS = st.lists(
    st.sampled_from(
        ["O", *(f"{prefix}-{one}" for prefix in "BIES" for one in ("PER", "LOC", "A-B"))]
    )
)


def read(path: Path, **settings: Any) -> list[tuple[list[str], list[str]]]:
    reader = open_corpus(TaggedText(file=path.name, **settings), path.parent)
    return [tuple(map(json.loads, row.values)) for row in rows_of(reader)]  # type: ignore[misc]


def places(path: Path) -> list[str]:
    reader = open_corpus(TaggedText(file=path.name), path.parent)
    return [reader.where(row.line) for row in rows_of(reader)]


# Schemes


def test_schemes_by_hand() -> None:
    entities = [Entity("PER", 0, 2), Entity("PER", 2, 3), Entity("LOC", 4, 7)]
    assert tags_of(entities, 8, "iob1") == [
        "I-PER",
        "I-PER",
        "B-PER",
        "O",
        "I-LOC",
        "I-LOC",
        "I-LOC",
        "O",
    ]
    assert tags_of(entities, 8, "iob2") == [
        "B-PER",
        "I-PER",
        "B-PER",
        "O",
        "B-LOC",
        "I-LOC",
        "I-LOC",
        "O",
    ]
    assert tags_of(entities, 8, "bioes") == [
        "B-PER",
        "E-PER",
        "S-PER",
        "O",
        "B-LOC",
        "I-LOC",
        "E-LOC",
        "O",
    ]
    assert labels_of({"PER", "LOC"}, "bioes")[:5] == ["O", "B-LOC", "I-LOC", "E-LOC", "S-LOC"]
    assert first_fault(["O", "I-PER"], "iob2") == 1
    assert first_fault(["B-PER", "O"], "iob1") == 0
    assert first_fault(["B-PER", "O"], "bioes") == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["PER", "LOC"]), st.integers(0, 2), st.integers(1, 4)), max_size=6
    )
)
def test_every_scheme_says_the_same(drawn: list[tuple[str, int, int]]) -> None:
    entities, end = [], 0
    for type, gap, words in drawn:
        entities.append(Entity(type, end + gap, end + gap + words))
        end += gap + words
    for scheme in SCHEMES:
        tags = tags_of(entities, end + 1, scheme)
        assert entities_in(tags) == entities
        assert first_fault(tags, scheme) is None


@given(TAGS)
def test_entities_of_sound_and_unsound_tags_against_seqeval(tags: list[str]) -> None:
    expected = [(entity.type, entity.start, entity.end - 1) for entity in entities_in(tags)]
    assert expected == get_entities(tags)


@given(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=5))
def test_scores_against_seqeval(pairs: list[tuple[list[str], list[str]]]) -> None:
    gold = [ours[: min(len(ours), len(theirs))] for ours, theirs in pairs]
    said = [theirs[: len(ours)] for ours, (_, theirs) in zip(gold, pairs, strict=True)]
    found = entity_scores(gold, said)
    if any(gold):
        assert accuracy(gold, said) == pytest.approx(accuracy_score(gold, said))
    if not found["types"]:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seqeval warns of what it divides by zero
        report = classification_report(gold, said, output_dict=True, zero_division=0)
    for name, scores in {**found["types"], "micro avg": found}.items():
        theirs = report[name]
        assert [scores[key] for key in ("precision", "recall", "f1")] == pytest.approx(
            [theirs["precision"], theirs["recall"], theirs["f1-score"]]
        )


# Reading


def test_columns_by_hand(tmp_path: Path) -> None:
    path = write(tmp_path / "train.conll", CONLL)
    assert read(path) == [
        (["EU", "rejects", "German"], ["I-ORG", "O", "I-MISC"]),
        (["Peter", "Blackburn", "#"], ["I-PER", "I-PER", "O"]),
    ]
    assert places(path) == ["train.conll:3", "train.conll:8"]
    assert read(path, tags=1, scheme="plain")[0][1] == ["NNP", "VBZ", "JJ"]
    assert read(path, tokens=-4, tags=3) == read(path)
    assert read(write(tmp_path / "b.txt", CONLL.replace(" ", "\t").replace("\n", "\r\n"))) == read(
        path
    )
    path = write(
        tmp_path / "klue.tsv",
        "## id-1\t민수 집\n민\tB-PS\n수\tI-PS\n \tO\n집\tO\n\n## id-2\t#\n#\tO\n",
    )
    assert read(path) == [(["민", "수", " ", "집"], ["B-PS", "I-PS", "O", "O"]), (["#"], ["O"])]
    path = write(tmp_path / "first.conll", "# 1 O\n#1 B-X\n\n#2 O\nhit O\n")
    assert read(path) == [(["#1"], ["B-X"]), (["#2", "hit"], ["O", "O"])], (
        "the first line is judged by the others"
    )
    path = write(tmp_path / "tabs.conll", "# two\n#1\tO\n# two\nhit\tO\n")
    assert read(path) == [(["#1", "hit"], ["O", "O"])]
    path = write(
        tmp_path / "a.conll",
        "New\u00a0York  X B-LOC\n東\u3000京 X B-LOC \n \u00a0 \nBern\u2009 X B-LOC\n",
    )
    words = [words for words, _ in read(path)]
    assert words == [["New\u00a0York", "東\u3000京"], ["Bern\u2009"]], (
        "other spaces are part of a word"
    )


def test_json_lines(tmp_path: Path) -> None:
    lines = '{"tokens": ["Anna", "left"], "tags": ["B-PER", "O"]}\n\n{"tokens": [], "tags": []}\n'
    path = write(tmp_path / "a.jsonl", lines)
    assert read(path) == [(["Anna", "left"], ["B-PER", "O"])]
    path = write(tmp_path / "b.jsonl", '{"words": ["Anna"], "ner": {"iob": ["B-PER"]}}\n')
    assert read(path, tokens="words", tags="ner.iob") == [(["Anna"], ["B-PER"])]
    path = write(tmp_path / "c.jsonl", '{"tokens": ["Anna", "left"], "tags": [7, 0]}\n')
    assert read(path, scheme="plain") == [(["Anna", "left"], ["7", "0"])], (
        "as the Hugging Face datasets have them"
    )


BAD = {
    "one column": (
        "a.conll",
        "Anna\nleft\n",
        {},
        "a.conll:1: there is one column: words and tags cannot be the same",
    ),
    "missing column": (
        "a.conll",
        "Anna O\n",
        {"tags": 3},
        "a.conll:1: there is no column 3 (tags)",
    ),
    "named column": (
        "a.conll",
        "Anna O\n",
        {"tags": "ner"},
        "a.conll:1: columns have no names here",
    ),
    "not IOB2": (
        "a.conll",
        "x O\nAnna I-PER\n",
        {"scheme": "iob2"},
        "a.conll:2: 'I-PER' is not allowed after 'O' in",
    ),
    "not IOB1": (
        "a.conll",
        "Anna B-PER\n",
        {"scheme": "iob1"},
        "a.conll:1: 'B-PER' is not allowed at the beginning",
    ),
    "not IOB": (
        "a.conll",
        "x O\ny O\nAnna S-PER\n",
        {"scheme": "iob2"},
        "a.conll:3: 'S-PER' is not allowed after 'O'",
    ),
    "half a pair": (
        "a.jsonl",
        '{"tokens": ["\\ud83d"], "tags": ["O"]}',
        {},
        "a.jsonl:1: the column 'tokens'",
    ),
    "empty": ("a.conll", "", {}, "a.conll: the file is empty"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_bad_files_are_named_with_their_line(
    tmp_path: Path, case: tuple[str, str, dict[str, Any], str]
) -> None:
    name, content, settings, expected = case
    with pytest.raises(DataError) as error:
        read(write(tmp_path / name, content), **settings)
    assert str(error.value).startswith(expected)


@pytest.mark.skipif(not REAL.is_dir(), reason="needs ../shared/data")
def test_conll_2003_is_read_as_its_readme_counts_it() -> None:
    reader = open_corpus(TaggedText(file="eng.testa.xz", scheme="iob1"), REAL)
    rows = [json.loads(row.values[1]) for row in rows_of(reader)]
    assert (len(rows), sum(map(len, rows))) == (3250, 51362)
    assert sum(tag == "B-MISC" for row in rows for tag in row) == 4
    assert (
        sum(len(entities_in(row)) for row in rows) == 5942
    )  # as published: 1837 LOC, 922 MISC, 1341 ORG, 1842 PER


# Words and rows


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(
        TokenizerConfig(kind="bpe", vocabulary=60), ["Anna lives in Oslo and Hong Kong ."] * 4
    )


def tagger(
    tokenizer: Tokenizer, kind: str = "bert", words: str = "punctuation"
) -> tuple[Any, Headed]:
    """The task, and a model with random weights that say something."""
    head, model = {"labels": labels_of({"PER", "LOC"}, "iob2")}, {"kind": kind, **SMALL[kind]}
    sections = {"data": {"max_length": 8, "words": words}, "model": model, "head": head}
    task = make_task("tagging", Tokenizers({"text": tokenizer}), **sections)
    torch.manual_seed(0)
    return task, with_weights_that_matter(task.network.build())


def test_every_word_is_tagged_once_where_most_stands_around_it(tokenizer: Tokenizer) -> None:
    task = tagger(tokenizer)[0]
    sentence = "Anna livesin Hong Kong and OsloAnna in . Kongs lives ."
    [words] = task.encoding.encode_words([sentence.split()])
    first = np.cumsum([0, *map(len, words)])[:-1].tolist()
    rows = task.encoding.rows(words)
    assert len(rows) > 3
    assert max(map(len, words)) > 1
    assert sorted(word for row in rows for word in row.words) == list(range(len(words)))
    ends = windows(sum(map(len, words)), 6)
    for number, row in enumerate(rows):
        assert len(row.row.ids) <= 8
        for place, word in zip(row.places, row.words, strict=True):
            assert row.row.ids[place] == words[word][0]
            around = [min(first[word] - start, stop - 1 - first[word]) for start, stop in ends]
            assert around[number] == max(around)


def test_a_long_line_takes_memory_in_proportion_to_its_words(tokenizer: Tokenizer) -> None:
    task, peaks = tagger(tokenizer)[0], list[int]()
    for count in (1_000, 8_000):
        words = [[4]] * count
        tracemalloc.start()
        rows = task.encoding.rows(words)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert sorted(word for row in rows for word in row.words) == list(range(count))
    assert peaks[1] < 12 * peaks[0]


def test_a_word_that_is_read_from_left_to_right_is_known_at_its_last_token(
    tokenizer: Tokenizer,
) -> None:
    words = [[4, 5], [6], [7, 8, 9]]
    for kind, places in (("bert", [1, 3, 4]), ("gpt", [2, 3, 6])):
        [row] = tagger(tokenizer, kind)[0].encoding.rows(words)
        assert row.places == places


@pytest.mark.parametrize("kind", SMALL)
def test_every_model_tags_a_sentence_the_same_alone_and_among_others(
    tokenizer: Tokenizer, kind: str
) -> None:
    tree = {
        **TAGGING,
        "model": {"kind": kind, "preset": "tiny"},
        "head": {"labels": labels_of({"PER"}, "bioes")},
    }
    torch.manual_seed(0)
    task: Any = Tagging(recipe_of(tree), Tokenizers({"text": tokenizer}))
    model = with_weights_that_matter(task.network.build())
    words = task.encoding.encode_words(
        [["Anna", "."], ["Anna", "lives", "in", "Hong", "Kong"], ["Oslo", "and", "Hong"]]
    )
    together = [tags.log_p_WY for tags in task.answers.tag_words(model, words)]
    assert [one.shape for one in together] == [(2, 5), (5, 5), (3, 5)]
    assert together[1].std() > 0.1
    for row, alone in zip(words, together, strict=True):
        np.testing.assert_allclose(
            task.answers.tag_words(model, [row])[0].log_p_WY, alone, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_words_are_encoded_as_in_a_text_with_spaces(kind: Any) -> None:
    text = "Anna lives in 서울 , Oslo ."
    tokenizer = Tokenizer.train(TokenizerConfig(kind=kind, vocabulary=300), [text] * 3)
    [words] = tagger(tokenizer)[0].encoding.encode_words([text.split()])
    assert [token for word in words for token in word] == tokenizer.encode(text)
    [[one]] = tagger(tokenizer)[0].encoding.encode_words([["\u200b"]])
    assert one  # a word of which a vocabulary knows nothing has a token, too


def test_loss_is_that_of_the_words_alone(tokenizer: Tokenizer) -> None:
    task, model = tagger(tokenizer)
    sentences = [["Anna", "lives", "in", "Oslo", "and", "Hong", "Kong", "."], ["Anna", "."]]
    tags = [["B-PER", "O", "O", "B-LOC", "O", "B-LOC", "I-LOC", "O"], ["B-PER", "O"]]
    examples = Dataset.of(
        task.encoding,
        {"tokens": [*map(json.dumps, sentences)], "tags": [*map(json.dumps, tags)]},
        str,
    )
    batch = examples.batch(np.array([0, 1]))
    assert len(batch.text) > 2  # the first sentence is read in several rows
    assert batch.tokens == 10
    log_p = [tags.log_p_WY for tags in task.answers.results(model, examples)]
    expected = -sum(
        float(one[word, task.encoding.labels.index(tag)])
        for one, own in zip(log_p, tags, strict=True)
        for word, tag in enumerate(own)
    )
    assert TagCrossEntropy(model).eval()(batch).tolist() == pytest.approx(
        [expected, expected], rel=1e-5
    )
    smoothed = TagCrossEntropy(model, smoothing=0.1)
    smoothed.training = True  # the model itself stays in eval mode, without dropout
    uniform = -sum(float(one.mean(-1).sum()) for one in log_p)
    assert float(smoothed(batch)[0].detach()) == pytest.approx(
        0.9 * expected + 0.1 * uniform, rel=1e-5
    )


@cache
def tagger_of_bytes(kind: str, words: str) -> tuple[Any, Headed]:
    return tagger(Tokenizer.train(TokenizerConfig(kind="byte", lowercase=True), ["a"]), kind, words)


@pytest.mark.parametrize("kind", ["bert", "gpt", "lstm_lm", "cnn"])
@settings(max_examples=40)
@given(
    TEXTS.filter(lambda text: text.strip()),
    st.sampled_from(["punctuation", "whitespace", "characters"]),
)
def test_every_entity_is_a_slice_of_whole_characters_of_the_text_as_typed(
    kind: str, text: str, words: str
) -> None:
    task, model = tagger_of_bytes(kind, words)
    [found] = task.predict(model, task.inputs.typed_lines([text]))
    told = found.to_json()
    edges = {0, *(one.end() for one in regex.finditer(r"\X", text))}
    for part in [*told["entities"], *told["words"]]:
        assert part["text"] == text[part["start"] : part["end"]] != ""
        assert {part["start"], part["end"]} <= edges
        assert 0 < part["probability"] <= 1
    opened = told["output"]
    for entity in told["entities"]:  # the brackets taken out again leave the text
        opened = opened.replace(f"[{entity['type']} {entity['text']}]", entity["text"], 1)
    assert opened == text


# Through the command line


UNKNOWN = "is not in the training sentences or head.labels"
SOUND = "Anna B-PER\nleft O\n\nBen B-PER\nleft O\n\nMary B-PER\nleft O\n\n"
OBJECTS: list[Any] = [
    {"tokens": ["Anna", "left"], "tags": ["B-PER", "O"]},
    {"tokens": ["a", "b"], "tags": ["O"]},
    [1, 2],
    {"tokens": "a b", "tags": ["O"]},
    {"words": ["a"], "tags": ["O"]},
    {"tokens": ["a"], "tags": ["NN"]},
]
NO_ENTITY = "Anna NNP O\nleft VB O\n\nBen NNP O\nleft VB O\n"
ALL_WRONG: list[tuple[str, str, dict[str, Any], list[str]]] = [
    (
        "a.conll",
        f"{SOUND}in X O\nOslo B-LOC\non\n\nIn B_LOC\nOslo B_LOC\n\nBen X\n",
        {},
        [
            "a.conll:10: there are 3 columns, where the lines before have 2",
            "a.conll:12: there is one column, where",
            "a.conll:14: the tag 'B_LOC' is not a BIO or BIOES tag",
            "a.conll:17: the tag 'X' is not a BIO or BIOES tag",
        ],
    ),
    (
        "a.jsonl",
        "".join(json.dumps(one) + "\n" for one in OBJECTS) + "{no\n",
        {},
        [
            "a.jsonl:2: there are 2 words and 1 tags",
            "a.jsonl:3: [1, 2] is not an object (one object a line is expected, with 'tokens', "
            "'tags')",
            "a.jsonl:4: the column 'tokens' holds \"a b\", not a list",
            "a.jsonl:5: there is no column 'tokens'",
            "a.jsonl:6: the tag 'NN' is not a BIO or BIOES tag",
            "a.jsonl:7: not valid JSON",
        ],
    ),
    (
        "a.jsonl",
        '{"tokens": ["Anna"], "ner": ["B-PER"]}\n' * 32,
        {},  # one setting is to blame
        ["a.jsonl:1: there is no column 'tags' (the columns are tokens, ner)"],
    ),
    (
        "a.conll",
        "It O\n\n" + "Anna I-PER\nleft O\n\n" * 30 + "Ben\n",
        {"scheme": "iob2"},
        [
            "a.conll:3: 'I-PER' is not allowed at the beginning of a sentence in the scheme iob2, "
            "and so in 29 more",
            "a.conll:93: there is one column",
        ],
    ),
    (
        "a.conll",
        "Anna NNP O\n\nleft VB O\n" * 30,
        {"tags": 1},
        ["a.conll:1: the tag 'NNP' is not a BIO or BIOES tag"],
    ),
    (
        "a.jsonl",
        '{"tokens": ["Anna", "left"], "ner": [7, 0]}\n' * 2,
        {"tags": "ner"},
        [
            "a.jsonl:1: the tag '7' is not a BIO or BIOES tag (expected is O, B-PER, I-PER, E-PER, "
            "S-PER"
        ],
    ),
    (
        "a.conll",
        NO_ENTITY,
        {},
        ["data.train: every tag is 'O' (two tags at the least: is it the right column?"],
    ),
    ("a.conll", NO_ENTITY, {"tags": 2, "scheme": "plain"}, ["data.train: every tag is 'O'"]),
    (
        "a.parquet",
        "PAR1",
        {},
        ["a.parquet: tagged sentences cannot be read from a .parquet (CoNLL's columns, a word"],
    ),
    ("a.json", "{}", {}, ["a.json: object 1: there is no column 'tokens' (the columns are none)"]),
]


@pytest.mark.parametrize(("name", "content", "settings", "expected"), ALL_WRONG)
def test_all_mistakes(
    tmp_path: Path, name: str, content: str, settings: dict[str, Any], expected: list[str]
) -> None:
    write(tmp_path / name, content)
    messages = fail(
        "check",
        recipe_file(tmp_path, data={"train": {"file": name, **settings}, "bad_lines": "error"}),
    )
    assert len(messages) == len(expected)
    for message, start in zip(messages, expected, strict=True):
        assert message.startswith(start)


def recipe_file(folder: Path, **changes: Any) -> Path:
    return write(folder / "recipe.yaml", json.dumps({**TAGGING, **changes}))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    folder = tmp_path_factory.mktemp("tagging")
    succeed("train", recipe_file(folder), "--out", folder / "run", "--json")
    return folder / "run"


def test_it_learns_to_find_names(run: Path) -> None:
    found = succeed("evaluate", run, "--json").json
    assert found["sentences"] == 200
    assert found["f1"] > 0.9
    assert set(found["types"]) == {"PER", "LOC", "ORG"}
    lines = [json.loads(line) for line in (run / "predictions.jsonl").read_text().splitlines()]
    wrong = [json.loads(line) for line in (run / "errors.jsonl").read_text().splitlines()]
    assert len(lines) == 200
    assert [one for one in lines if one["tags"] != one["expected_tags"]] == wrong
    gold, said = ([one[name] for one in lines] for name in ("expected_tags", "tags"))
    assert classification_report(gold, said, output_dict=True)["micro avg"][
        "f1-score"
    ] == pytest.approx(found["f1"])
    assert Run.open(run).recipe.head.labels == labels_of({"PER", "LOC", "ORG"}, "iob2")


def test_entities_come_with_their_places(run: Path) -> None:
    text = "  Anna Kim lives in Paris.\tBen Adams, of Kim Bank, left"
    [found] = succeed("predict", run, text, "--json").jsons
    assert found["input"] == text
    told = [(one["type"], one["text"], one["start"]) for one in found["entities"]]
    assert told[:3] == [("PER", "Anna Kim", 2), ("LOC", "Paris", 20), ("PER", "Ben Adams", 27)]
    assert (
        succeed("predict", run, "Anna Kim lives in Paris.").out
        == "[PER Anna Kim] lives in [LOC Paris].\n"
    )
    assert (
        succeed("predict", run, stdin="Anna Kim lives in Paris.\n").out
        == "[PER Anna Kim] lives in [LOC Paris].\n"
    )


def test_every_verb_has_the_words_of_the_file(run: Path, tmp_path: Path) -> None:
    words = ["Anna", "'s", "firm", "...", "New York", "."]
    content = "".join(
        f"{word}\tO\n" for word in (*words[:3], " ", *words[3:])
    )  # white space alone is no word
    columns = write(tmp_path / "t.conll", content)
    objects = write(tmp_path / "t.jsonl", json.dumps({"tokens": words, "tags": ["O"] * 6}) + "\n")
    found = [succeed("predict", run, "--file", file, "--json").json for file in (columns, objects)]
    found.append(succeed("predict", run, json.dumps({"tokens": words}), "--json").json)
    found.append(load(run).predict({"tokens": words})[0].to_json())
    for number, workers in enumerate((1, 2)):
        out = tmp_path / f"{number}.jsonl"
        succeed("predict", run, "--file", columns, "--out", out, "--workers", workers)
        found.append(json.loads(out.read_text()))
    assert [[word["text"] for word in one["words"]] for one in found] == [words] * 6
    assert all(one == found[0] for one in found)
    succeed("evaluate", run, "--file", columns, "--predictions", tmp_path / "p.jsonl")
    line = json.loads((tmp_path / "p.jsonl").read_text())
    assert (line["input"], line["tokens"]) == (found[0]["input"], words)
    assert line["tags"] == [word["tag"] for word in found[0]["words"]]
    explained = succeed(
        "explain", run, json.dumps({"tokens": words}), "--view", "occlusion", "--json"
    ).json
    assert explained["occlusion"]["words"] == words
    assert [word["text"] for word in explained["words"]] == words


def test_syllables_in_bioes_and_plain_tags_are_learned(tmp_path: Path) -> None:
    korean = {
        "train": {"corpus": "names-ko", "size": 600},
        "words": "characters",
        "learned": "bioes",
    }
    succeed(
        "train",
        recipe_file(tmp_path, data=korean),
        "training.epochs=4",
        "--out",
        tmp_path / "ko",
        "--json",
    )
    [found] = succeed("predict", tmp_path / "ko", "김민수는 부산에 산다.", "--json").jsons
    assert [(one["type"], one["text"]) for one in found["entities"]] == [
        ("PER", "김민수"),
        ("LOC", "부산"),
    ]
    assert {one["tag"] for one in found["words"][:3]} == {"B-PER", "I-PER", "E-PER"}
    write(
        tmp_path / "pos.txt",
        "the\tDET\ncat\tNOUN\nsat\tVERB\n\nthe\tDET\ndog\tNOUN\nran\tVERB\n\n" * 20,
    )
    data = {
        "train": {"file": "pos.txt", "scheme": "plain"},
        "validation": {"file": "pos.txt", "scheme": "plain"},
    }
    succeed("train", recipe_file(tmp_path, data=data), "--out", tmp_path / "pos", "--json")
    assert Run.open(tmp_path / "pos").recipe.training.best == "accuracy"
    [message] = fail(
        "train", recipe_file(tmp_path, data=data), "training.best=f1", "--out", tmp_path / "none"
    )
    assert message.startswith("training.best: plain tags mark no entities, so that there is no f1")
    assert succeed("predict", tmp_path / "pos", "the dog sat").out == "the/DET dog/NOUN sat/VERB\n"
    found = succeed("evaluate", tmp_path / "pos", "--file", tmp_path / "pos.txt", "--json").json
    assert found["accuracy"] == 1
    assert "f1" not in found


def test_sentences_with_faults_are_dropped_or_skipped(run: Path, tmp_path: Path) -> None:
    bad = write(tmp_path / "b.conll", f"{SOUND}in X O\n\nOslo\n")
    report = succeed(
        "check", recipe_file(tmp_path, data={"train": {"file": "b.conll"}, "bad_lines": "drop"})
    ).out
    assert "b.conll:10" in report
    for verb in ("evaluate", "predict"):
        messages = fail(verb, run, "--file", bad)
        assert [message.partition(": ")[0] for message in messages[:2]] == [
            f"{bad}:10",
            f"{bad}:12",
        ]
    found = succeed("predict", run, "--file", bad, "--skip-bad", "--json").jsons
    assert [one["output"] is None for one in found] == [False, False, False, True, True]
    write(tmp_path / "d.conll", "It O\n\n" + "left X\n\n" * 30)
    [message] = fail("evaluate", run, "--file", tmp_path / "d.conll")
    assert "the tag 'X' is not a BIO or BIOES tag, and so in 29 more lines (" in message
    unknown = write(tmp_path / "c.conll", "Oslo B-CITY\nin O\nMay B-DATE\n\nBern B-CITY\n")
    messages = fail(
        "evaluate", run, "--file", unknown
    )  # each unknown tag at the sentence where it first stands
    expected = [
        f"{unknown}:1: the tag {tag} {UNKNOWN}"
        for tag in ("'B-CITY' of 'Oslo'", "'B-DATE' of 'May'")
    ]
    assert [message.partition(" (")[0] for message in messages] == expected


def test_entities_are_slices_of_the_text() -> None:
    text, tags = "Anna Kim lives in Oslo.", ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]
    spans = [Span(0, 4), Span(5, 8), Span(9, 14), Span(15, 17), Span(18, 22), Span(22, 23)]
    words = tuple(TaggedWord(span, tag, 0.5) for span, tag in zip(spans, tags, strict=True))
    entities = [
        tuple(entity.values()) for entity in TaggedInput(text, words, finds_entities=True).entities
    ]
    assert entities == [("PER", 0, 8, "Anna Kim", 0.25), ("LOC", 18, 22, "Oslo", 0.5)]
    assert TaggedInput(text, words, finds_entities=False).entities == []


def test_bad_data_is_refused_with_its_line(tmp_path: Path) -> None:
    write(tmp_path / "train.conll", "Anna B-PER\nleft O\n\nBen B-PER\nleft O\n")
    write(tmp_path / "dev.conll", "# id = 1\nAnna B-PER\n\nin O\nOslo B-LOC\n")
    files = {"train": {"file": "train.conll"}, "validation": {"file": "dev.conll"}}
    [message] = fail("train", recipe_file(tmp_path, data=files), "--out", tmp_path / "new")
    assert message == f"dev.conll:4: the tag 'B-LOC' of 'Oslo' {UNKNOWN} (there are PER)"
    labels = {"labels": ["O", "B-LOC", "I-LOC"]}
    [message] = fail(
        "train", recipe_file(tmp_path, data=files, head=labels), "--out", tmp_path / "new"
    )
    assert message == f"train.conll:1: the tag 'B-PER' of 'Anna' {UNKNOWN} (there are LOC)"
    refused: list[tuple[dict[str, Any], str]] = [
        ({"data": {"train": {}}}, "name the tagged sentences"),
        (
            {"data": {"train": [{"corpus": "names-en"}, {"file": "a", "scheme": "plain"}]}},
            "scheme: plain is for all",
        ),
        (
            {"data": {"train": {"file": "train.tsv", "header": True}}},
            "tagged sentences have no 'header'",
        ),
    ]
    for changes, expected in refused:
        assert (
            expected
            in fail("train", recipe_file(tmp_path, **changes), "--out", tmp_path / "new")[0]
        )


def test_where_syllables_are_tagged_a_text_is_read_by_syllables(tmp_path: Path) -> None:
    """With `words: punctuation`, the default, the syllables would be scored, and whole words tagged
    by `predict`."""
    syllables = "".join(f"{one}\t{'O' if one in '에간' else 'B-LOC'}\n" for one in "서울에간")
    write(tmp_path / "train.conll", f"{syllables}\n" * 20)
    corpus = {"file": "train.conll"}
    recipe = {**TAGGING, "data": {"train": corpus, "validation": corpus}}
    recipe["training"] = {"steps": 2, "batch_tokens": 64, "device": "cpu"}
    succeed("train", write(tmp_path / "recipe.yaml", json.dumps(recipe)), "--out", tmp_path / "run")
    assert Run(tmp_path / "run").recipe.data.words == "characters"
    found = succeed("predict", tmp_path / "run", "서울에 간다", "--json").json
    assert [word["text"] for word in found["words"]] == [*"서울에간다"]


def test_blanks_among_tagged_characters_are_positions(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    lines = []
    # a syllable is a name only after a blank, so that the tags cannot be learned without blanks
    for _ in range(300):
        syllables = random.permutation([*"가나다라마"]).tolist()
        syllables.insert(int(random.integers(1, 5)), " ")
        tags = ["B-X" if before == " " else "O" for before in ["", *syllables[:-1]]]
        lines += [
            *(f"{syllable}\t{tag}" for syllable, tag in zip(syllables, tags, strict=True)),
            "",
        ]
    file = write(tmp_path / "t.conll", "\n".join(lines))
    recipe = {
        "task": "tagging",
        "data": {
            "train": {"file": str(file)},
            "validation": {"split": 0.1},
            "test": {"split": 0.1},
        },
        "tokenizer": {"kind": "character"},
        "model": {"kind": "bilstm", "preset": "tiny"},
        "training": {
            "steps": 100,
            "learning_rate": 0.01,
            "batch_tokens": 256,
            "device": "cpu",
            "schedule": "constant",
        },
    }
    run = regard.train(recipe, out=tmp_path / "run", quiet=True)
    assert run.recipe.data.words == "characters_and_blanks"
    assert regard.evaluate(run, predictions=False)["f1"] == 1
    [typed] = regard.predict(run, "나라 가마다")
    assert typed.output == "나라 [X 가]마다"
    untagged = write(tmp_path / "untagged.conll", "나\tO\n라\tO\n \tO\n가\tO\n")
    [read_in] = regard.predict(run, file=untagged)
    assert [(word["text"], word["tag"]) for word in read_in.to_json()["words"]][2:] == [
        (" ", "O"),
        ("가", "B-X"),
    ]


def test_a_crf_and_a_linear_model_beside_a_tagger(tmp_path: Path) -> None:
    settings = [
        "data.train.size=200",
        "tokenizer.split=spaces",
        "tokenizer.vocabulary=60",
        "training.epochs=1",
    ]
    settings += ["model.characters=8", "head.crf=true", "head.linear=4096"]
    run = regard.train(TAGGING, settings, out=tmp_path / "run", quiet=True)
    found = regard.evaluate(run, baseline=True)
    assert found["f1"] > 0.9
    assert found["baseline"]["f1"] > 0.9
    alone = regard.train(TAGGING, [*settings, "head.linear=0"], out=tmp_path / "alone", quiet=True)
    assert regard.evaluate(alone)["f1"] < found["f1"]  # one epoch is not enough for the network
    [tagged] = regard.predict(run, "Anna Kim lives in Paris .")
    assert all(0 < word.probability <= 1 for word in tagged.words)
    with pytest.raises(
        ConfigError, match="the linear model reads the letters of words, and this model does not"
    ):
        regard.train(TAGGING, ["head.linear=16"], out=tmp_path / "other", quiet=True)
    with pytest.raises(ConfigError, match="a CRF has no probabilities for single tags"):
        regard.train(TAGGING, ["head.crf=true", "head.consistency=4"], out=tmp_path / "twice")
