"""YAML, overrides and validation: what a recipe and its configs may say, and what is said about one
that is wrong."""

import copy
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from model_cases import CASES
from regard.config import Config, apply_overrides, parse_yaml, read_yaml, validate, write_yaml
from regard.errors import ConfigError
from regard.models import MODELS
from regard.models.base import ModelConfig, count_parameters
from regard.models.bert import BERTConfig
from regard.models.captioner import CaptionerConfig
from regard.models.gpt import GPTConfig
from regard.models.lstm_lm import LSTMLanguageModelConfig
from regard.models.luong import LuongConfig
from regard.models.transformer import TransformerConfig
from regard.recipes.loading import load_recipe
from regard.recipes.paths import with_absolute_paths
from regard.recipes.recipe import recipe_of
from regard.recipes.shipped import shipped
from regard.search.config import SearchConfig
from regard.tasks import TASKS
from regard.tasks.translation import Parallel
from regard.text.tokenizers import TokenizerConfig

RECIPE: dict[str, Any] = {
    "task": "translation",
    "data": {"train": {"source": "train.en", "target": "train.de"}},
    "model": {"kind": "transformer", "preset": "tiny"},
    "training": {"steps": 10},
}


def problems_of(tree: dict[str, Any], *overrides: str) -> list[tuple[str, str, str]]:
    with pytest.raises(ConfigError) as caught:
        load_recipe(tree, overrides)
    return [(problem.where, problem.what, problem.hint) for problem in caught.value.problems]


# YAML


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("5E3", 5000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-2.5e+3", -2500.0),
        ("17", 17),
        ("-3", -3),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("2024-03-05", "2024-03-05"),
        ("=", "="),
        ("1e", "1e"),
        ("'1e4'", "1e4"),
        ("[1, no, 2e1]", [1, "no", 20.0]),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    read = parse_yaml(f"key: {text}", "recipe.yaml")["key"]
    assert read == value
    assert type(read) is type(value)


def test_a_tree_is_the_callers_own() -> None:
    """Though a text is parsed only once."""
    first = parse_yaml("a: {b: [1]}", "r.yaml")
    first["a"]["b"].append(2)
    assert (
        parse_yaml("a: {b: [1]}", "r.yaml")
        == apply_overrides({}, ["a={b: [1]}"])
        == {"a": {"b": [1]}}
    )


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("a: 1\nb: 2\na: 3", "r.yaml:3", "the key 'a' occurs twice"),
        ("m:\n  x: 1\n  'x': 2", "r.yaml:3", "the key 'x' occurs twice"),
        ("m: {x: 1, x: 1}", "r.yaml:1", "the key 'x' occurs twice"),
        ("a: b: c", "r.yaml:1", "mapping values are not allowed here"),
        ("a: 1\n\tb: 2", "r.yaml:2", "cannot start any token"),
        ("task: t\ndata: [", "r.yaml:2", "expected the node content, but found"),
        ("{[a]: b}", "r.yaml:1", "unhashable key"),
        ("a: !!python/name:os.system x", "r.yaml:1", "could not determine a constructor"),
        ("a: 1\n---\nb: 2", "r.yaml:2", "expected a single document"),
        ("a: \x00", "r.yaml", "special characters are not allowed"),
        ("- a", "r.yaml", "a recipe is a mapping of keys to values"),
        ("", "r.yaml", "a recipe is a mapping of keys to values"),
    ],
)
def test_a_mistake_in_yaml_is_named_with_its_line(text: str, where: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "r.yaml")
    [problem] = caught.value.problems
    assert problem.where == where
    assert what in problem.what
    assert "\n" not in problem.what


LAUGHS = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))
HOSTILE = {
    "!!int foo": "r.yaml:1: not valid YAML: 'foo' cannot be read as int",
    "!!float ''": "'' cannot be read as float",
    "!!bool foo": "'foo' cannot be read as bool",
    "!!timestamp foo": "'foo' cannot be read as timestamp",
    "9" * 5000: f"'{'9' * 40}…{'9' * 39}' cannot be read as int",
    "0x" + "f" * 5000: f"'0x{'f' * 38}…{'f' * 39}' cannot be read as int",
    '"\\UFFFFFFFF"': "not valid YAML",
    "[" * 1_000_000: "r.yaml:1: not valid YAML: more than 50 levels",
    "{a: " * 60 + "}" * 60: "not valid YAML: more than 50 levels",
    "&a {train: *a}": "r.yaml:1: not valid YAML: more than 50 levels",
    "&a {<<: *a}": "not valid YAML: more than 50 levels",
    f"&a0 [1, 2]\n{LAUGHS}": "not valid YAML: more than 100,000 values",
    "x" * ((1 << 20) + 1): "not valid YAML: more than 1,048,576 characters",
}


@pytest.mark.parametrize(
    ("value", "message"), HOSTILE.items(), ids=[value[:20] for value in HOSTILE]
)
def test_yaml_that_takes_too_much_or_breaks_the_parser_is_one_message(
    value: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse_yaml(f"data: {value}", "r.yaml")
    with pytest.raises(ConfigError, match=r"data: the value .* is not valid YAML"):
        apply_overrides({}, [f"data={value}"])


def test_anchors_and_merges_work() -> None:
    read = parse_yaml("base: &b {x: 1, y: 2}\nc:\n  <<: *b\n  y: 3\nd: *b", "r.yaml")
    assert read["c"] == {"x": 1, "y": 3}
    assert apply_overrides(read, ["d.x=4"])["base"] == {"x": 1, "y": 2}, (
        "what is shared is not changed together"
    )


def test_a_recipe_file_is_utf8(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(
        b"\xef\xbb\xbfdata: \xed\x95\x9c.txt"
    )  # with the mark that Windows editors write
    assert read_yaml(path) == {"data": "한.txt"}
    path.write_bytes(b"data: caf\xe9")
    with pytest.raises(
        ConfigError, match=r"r\.yaml: cannot be read as a recipe: it is not text in UTF-8"
    ):
        read_yaml(path)


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda below: st.lists(below) | st.dictionaries(st.text(), below),
    max_leaves=20,
)
WORDS = st.from_regex(r"[-+.0-9eExo_:]{1,6}", fullmatch=True) | st.sampled_from(
    ["no", "on", "yes", "~", "null", "="]
)


@given(st.dictionaries(st.text() | WORDS, TREES | WORDS))
def test_what_is_written_reads_back_equal(tree: dict[str, Any]) -> None:
    assert parse_yaml(write_yaml(tree), "r.yaml") == tree


@given(WORDS)
def test_readers_of_the_older_yaml_see_the_same_words(word: str) -> None:
    assert yaml.safe_load(write_yaml({"key": word})) == {"key": word}


# Overrides


def test_overrides_reach_into_mappings_and_lists_and_leave_the_original_alone() -> None:
    tree = {
        "data": {"train": [{"source": "a"}, {"source": "b"}]},
        "betas": [0.9, 0.98],
        "empty": None,
    }
    before = copy.deepcopy(tree)
    overrides = (
        "data.train.1.source=c",
        "betas.0=1e-1",
        "empty.deep.key={x: [1, no]}",
        "data.max=null",
        "word=a=b",
    )
    assert apply_overrides(tree, overrides) == {
        "data": {"train": [{"source": "a"}, {"source": "c"}], "max": None},
        "betas": [0.1, 0.98],
        "empty": {"deep": {"key": {"x": [1, "no"]}}},
        "word": "a=b",
    }
    assert tree == before


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("steps", "steps: an override is key=value (for example training.steps=500)"),
        ("=3", "=3: an override is key=value (for example training.steps=500)"),
        (
            "data.train.²=1",
            "data.train.²: '²' is not a valid list index (allowed: 0 to 1, for example "
            "data.train.0.²)",
        ),
        (f"data{'.a' * 60000}=1", f"data{'.a' * 18}…{'a.' * 19}a: the key has more than 50 levels"),
        ("training.steps=[", "training.steps: the value '[' is not valid YAML"),
        (
            "data.train.2.source=x",
            "data.train.2.source: '2' is not a valid list index (allowed: 0 to 1)",
        ),
        (
            "data.train.x=1",
            "data.train.x: 'x' is not a valid list index (allowed: 0 to 1, for example "
            "data.train.0.x)",
        ),
        ("none.0=1", "none.0: '0' is not a valid list index (the list is empty)"),
        ("task.name=x", "task.name: 'task' is a single value without keys of its own"),
    ],
)
def test_an_override_that_leads_nowhere_is_refused(override: str, message: str) -> None:
    tree = {"task": "translation", "data": {"train": [{}, {}]}, "none": []}
    with pytest.raises(ConfigError) as caught:
        apply_overrides(tree, [override])
    assert str(caught.value) == message


# Validation


def test_the_keys_that_are_offered_are_those_of_the_chosen_model() -> None:
    [(where, what, hint)] = problems_of(RECIPE, "model={kind: rnn, heads: 4}")
    assert (where, what) == ("model.heads", "unknown key 'heads'")
    assert "hidden" in hint
    assert "feed_forward" not in hint


def test_every_problem_is_found_at_once() -> None:
    tree = {
        "task": "translation",
        "data": {"train": {"source": "a.en"}, "max_length": -4},
        "tokenizer": {"kind": "bp"},
        "model": {"kind": "transformer", "width": 10, "heads": 3},
        "training": {"steps": "many", "seeed": 1},
    }
    assert problems_of(tree) == [
        (
            "data.train",
            "name the target: a file each, or 'file' with the columns in it, or 'corpus'",
            "",
        ),
        ("data.max_length", "should be greater than or equal to 1, not -4", ""),
        ("tokenizer.kind", "'bp' is not allowed", "did you mean 'bpe'?"),
        ("model", "3 heads do not divide the width 10 (heads that do: 1, 2, 5, 10)", ""),
        ("training.steps", "should be a valid integer, not 'many'", ""),
        ("training.seeed", "unknown key 'seeed'", "did you mean 'seed'?"),
    ]


@pytest.mark.parametrize(
    ("override", "where", "what"),
    [
        ("modle={}", "modle", "unknown key 'modle' (did you mean 'model'?)"),
        ("training.stesp=5", "training.stesp", "unknown key 'stesp' (did you mean 'steps'?)"),
        (
            "training.learning_rates=1",
            "training.learning_rates",
            "unknown key 'learning_rates' (did you mean 'learning_rate'?)",
        ),
        ("data.tran=x", "data.tran", "unknown key 'tran' (did you mean 'train'?)"),
        ("data.train.sorce=x", "data.train.sorce", "unknown key 'sorce' (did you mean 'source'?)"),
        (
            "data.train=[{source: a, target: b}, {source: a, target: b, wieght: 2}]",
            "data.train.1.wieght",
            "unknown key 'wieght' (did you mean 'weight'?)",
        ),
        (
            "data.validation={splt: 0.1}",
            "data.validation.splt",
            "unknown key 'splt' (did you mean 'split'?)",
        ),
        (
            "data.test={source: a, target: b, sise: 3}",
            "data.test.sise",
            "unknown key 'sise' (did you mean 'size'?)",
        ),
        (
            "data.test={split: 0.1, splt: 0.2}",
            "data.test.splt",
            "unknown key 'splt' (did you mean 'split'?)",
        ),
        (
            "tokenizer.vocab=5",
            "tokenizer.vocab",
            "unknown key 'vocab' (did you mean 'vocabulary'?)",
        ),
        ("model.widht=64", "model.widht", "unknown key 'widht' (did you mean 'width'?)"),
        ("search.beem=2", "search.beem", "unknown key 'beem' (did you mean 'beam'?)"),
        (
            "evaluation.lower=true",
            "evaluation.lower",
            "unknown key 'lower' (did you mean 'lowercase'?)",
        ),
        (
            "training.steps=1e3",
            "training.steps",
            "should be a whole number, not 1000.0 (write 1000)",
        ),
        ("training.steps='5'", "training.steps", "should be a valid integer, not '5'"),
        ("training.steps=true", "training.steps", "should be a valid integer, not True"),
        (
            "training.compile=yes",
            "training.compile",
            "'yes' is not allowed (allowed: auto, false, true)",
        ),
        (
            "training.learning_rate=fast",
            "training.learning_rate",
            "should be a valid number, not 'fast'",
        ),
        (
            "training.learning_rate=.inf",
            "training.learning_rate",
            "should be a valid number, not '.inf'",
        ),
        ("training.betas=[0.9]", "training.betas", "should have at least 2 items, not 1"),
        ("training.betas=[0.9, 1.5]", "training.betas.1", "should be less than 1, not 1.5"),
        (
            "training.batch_tokens=0",
            "training.batch_tokens",
            "0 is too small (allowed: 1 and more, or auto)",
        ),
        ("training.seed=1" + 20 * "0", "training.seed", "should be less than 9223372036854775808"),
        ("training=5", "training", "should be a mapping of keys to values, not 5"),
        ("training={}", "training", "say when to stop: give steps, epochs, or both; or minutes"),
        ("model=transformer", "model", "should be a mapping of keys to values, not 'transformer'"),
        (
            "model={}",
            "model",
            "the key 'kind' is required (allowed: bahdanau, luong, rnn, self_attention, "
            "transformer)",
        ),
        ("model.kind=bahdanu", "model", "unknown kind 'bahdanu' (did you mean 'bahdanau'?)"),
        (
            "model.preset=huge",
            "model.preset",
            "'huge' is not allowed (allowed: base, big, small, tiny)",
        ),
        ("training.seed=null", "training.seed", "may not be null (should be a valid integer)"),
        (
            "training.schedule=null",
            "training.schedule",
            "may not be null (allowed: constant, cosine, inverse_sqrt, ",
        ),
        ("data.validation=null", "data.validation", "may not be null (should be a valid list)"),
        (
            "data.validation=0.1",
            "data.validation",
            "a share of the training examples is written as {split: 0.1}",
        ),
        (
            "data.train={file:a.csv}",
            "data.train.file:a.csv",
            "unknown key 'file:a.csv' (write a space after the colon)",
        ),
        (
            "data.train={document: a, target: b}",
            "data.train.document",
            "unknown key 'document' (the task's columns are source, target)",
        ),
        ("epochs=3", "epochs", "unknown key 'epochs' (did you mean 'training.epochs'?)"),
        ("model.kind=null", "model", "the key 'kind' is required (allowed: bahdanau, luong, "),
        ("model=null", "model", "this key is required"),
        ("data=null", "data", "this key is required"),
        ("data.train=[]", "data.train", "there is nothing to train on (name at least one corpus)"),
        (
            "data.validation=[]",
            "data.validation",
            "the list is empty: name at least one corpus, or leave the key out",
        ),
        (
            "data.test=[]",
            "data.test",
            "the list is empty: name at least one corpus, or leave the key out",
        ),
        (
            "data.train.header=true",
            "data.train",
            "'header' needs 'file: ...' beside it, a .tsv or .csv",
        ),
        (
            "data.train={file: a.jsonl, source: a, target: b, header: true}",
            "data.train",
            "'header' needs 'file: ...'",
        ),
        (
            "data.train.seed=9",
            "data.train",
            "'seed' needs 'size: ...' beside it, or 'corpus: ...', a built-in one",
        ),
        (
            "data.train={corpus: dates, source: a}",
            "data.train",
            "a built-in corpus takes no file and no columns",
        ),
        (
            "data.train={source: 0, target: 1}",
            "data.train",
            "a column number needs 'file: ...' beside it",
        ),
        ("data.validation={split: 1}", "data.validation.split", "should be less than 1, not 1"),
        ("search.beam=0", "search.beam", "should be greater than or equal to 1, not 0"),
        ("task=null", "task", "this key is required (allowed: "),
        ("task=translaton", "task", "unknown task 'translaton' (did you mean 'translation'?)"),
    ],
)
def test_a_mistake_is_named_with_what_is_allowed(override: str, where: str, what: str) -> None:
    [(found_where, found_what, hint)] = problems_of(RECIPE, override)
    assert found_where == where
    assert f"{found_what} ({hint})".startswith(what)


def test_a_wrong_task_does_not_hide_what_is_wrong_for_every_task() -> None:
    overrides = ("task=translaton", "training.stepz=1", "tokenizer.kind=bpo", "data.max_length=0")
    assert [where for where, _, _ in problems_of(RECIPE, *overrides)] == [
        "task",
        "tokenizer.kind",
        "training.stepz",
    ]


def test_two_kinds_of_value_leave_no_trace_in_the_path() -> None:
    """Pydantic puts the branches of a union into the path; a user has not written them."""
    wheres = {
        where
        for where, _, _ in problems_of(
            RECIPE, "training.batch_tokens={}", "data.train.source={a: 1}"
        )
    }
    assert wheres == {"training.batch_tokens", "data.train.source"}


def test_a_config_does_not_change() -> None:
    recipe = recipe_of(RECIPE)
    with pytest.raises(ValueError, match="frozen"):
        recipe.training.steps = 5


# The recipe as a whole


@st.composite
def recipes(draw: st.DrawFn) -> dict[str, Any]:
    """Recipes that are valid, with names of files that are as odd as they come."""
    name = st.text(min_size=1) | WORDS
    two_files = st.fixed_dictionaries(
        {"source": name, "target": name}, optional={"weight": st.floats(0.1, 9)}
    )
    table = st.fixed_dictionaries(
        {
            "file": name.map("{}.tsv".format),
            "source": name | st.integers(0, 9),
            "target": name | st.integers(0, 9),
        },
        optional={"header": st.booleans(), "size": st.integers(1, 10**9)},
    )
    built_in = st.fixed_dictionaries(
        {"corpus": st.sampled_from(["dates", "copy"])}, optional={"seed": st.integers(0)}
    )
    corpora = st.lists(two_files | table | built_in, min_size=1, max_size=3) | two_files
    share = st.fixed_dictionaries({"split": st.floats(0.001, 0.999)})
    model = draw(
        st.sampled_from(
            sorted(kind for kind, known in MODELS.items() if known.config.reads == "source")
        )
    )
    others = {
        "validation": corpora | share,
        "test": corpora | share,
        "max_ratio": st.floats(1.1, 99),
    }
    training = {
        "learning_rate": st.floats(1e-30, 1e30),
        "batch_tokens": st.integers(1) | st.just("auto"),
    }
    return {
        "task": "translation",
        "data": draw(st.fixed_dictionaries({"train": corpora}, optional=others)),
        "tokenizer": {
            "kind": draw(st.sampled_from(["word", "bpe"])),
            "vocabulary": draw(st.integers(5)),
        },
        "model": {
            "kind": model,
            "preset": draw(st.sampled_from(["tiny", "base"])),
            "dropout": draw(st.floats(0, 1, exclude_max=True)),
        },
        "training": draw(st.fixed_dictionaries({"steps": st.integers(1)}, optional=training)),
        "search": draw(
            st.sampled_from([{}, {"sample": True, "top_p": 0.5}, {"beam": 3, "nbest": 2}])
        ),
    }


@settings(max_examples=60)
@given(recipes())
def test_a_resolved_recipe_reads_back_equal(tree: dict[str, Any]) -> None:
    recipe = recipe_of(tree)
    assert recipe_of(parse_yaml(write_yaml(recipe.model_dump()), "recipe.yaml")) == recipe
    resolved = with_absolute_paths(recipe, Path("/somewhere"))
    assert recipe_of(parse_yaml(write_yaml(resolved.model_dump()), "recipe.yaml")) == resolved
    assert with_absolute_paths(resolved, Path("/elsewhere")) == resolved


def test_paths_are_relative_to_the_recipe(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    tree = copy.deepcopy(RECIPE)
    tree["data"] |= {
        "validation": {"file": "v.tsv", "source": 0, "target": 1},
        "test": {"split": 0.1},
    }
    tree["tokenizer"] = {"file": "../tokenizer.json"}
    (folder / "r.yaml").write_text(write_yaml(tree), encoding="utf-8")
    recipe, base = load_recipe(folder / "r.yaml")
    assert base == folder
    resolved = with_absolute_paths(recipe, base).model_dump()
    assert resolved["data"]["train"][0]["source"] == str(folder / "train.en")
    assert resolved["data"]["validation"][0]["file"] == str(folder / "v.tsv")
    assert resolved["data"]["validation"][0]["source"] == 0
    assert resolved["data"]["test"] == {"split": 0.1}
    assert Path(resolved["tokenizer"]["file"]).resolve() == tmp_path / "tokenizer.json"


@pytest.mark.usefixtures("imported_translator")
def test_the_recipes_that_ship_are_valid_and_every_task_has_one() -> None:
    loaded = [load_recipe(name) for name in shipped()]
    assert {recipe.task for recipe, _ in loaded} == set(TASKS)
    assert {base for _, base in loaded} == {Path.cwd()}


# Configs of models, tokenizers, corpora and the search


def test_tying_both_sides_needs_one_vocabulary() -> None:
    with pytest.raises(ConfigError, match=r"model\.tie: 'all' needs one vocabulary.*13 and 11"):
        MODELS["rnn"].build(CASES["rnn-gru-reversed"], 13, 11)  # type: ignore[arg-type]


def test_presets_fill_in_and_given_fields_win() -> None:
    base = TransformerConfig(preset="base", heads=16)
    assert (base.width, base.heads, base.feed_forward, base.encoder_layers, base.dropout) == (
        512,
        16,
        2048,
        6,
        0.1,
    )
    assert TransformerConfig(preset="big").dropout == 0.3
    assert TransformerConfig() == TransformerConfig(preset="small")
    assert TransformerConfig.model_validate(base.model_dump()) == base
    tree = {"task": "translation", "data": {"train": {"corpus": "copy"}}, "training": {"steps": 1}}
    asked = tree | {"model": {"kind": "transformer", "preset": "base", "heads": 16}}
    for overrides, width in (([], 512), (["model.preset=tiny"], 128)):
        model = load_recipe(asked, overrides)[0].model
        assert (model.width, model.heads) == (width, 16)


@pytest.mark.parametrize(
    ("config", "sizes", "published"),
    [
        # table 3: 65 million parameters; 63 million of ours, and a bias a token
        (TransformerConfig(preset="base", tie="all"), (37000, 37000), 63_119_496),
        # 12 layers, 768, 12 heads, 3072, 512 positions: 117 million with the tied softmax
        (GPTConfig(preset="base"), (40478,), 116_534_784),
        # the published encoder with its pooler, and the two heads
        (
            BERTConfig(preset="base"),
            (30522,),
            109_482_240 + 768 * 768 + 768 + 2 * 768 + 30522 + 2 * 768 + 2,
        ),
    ],
    ids=["transformer", "gpt", "bert"],
)
def test_base_has_the_published_size(
    config: ModelConfig, sizes: tuple[int, ...], published: int
) -> None:
    with torch.device("meta"):
        model = MODELS[config.kind].build(config, *sizes)
    assert count_parameters(model) == published


@pytest.mark.parametrize("reach", ["local_m", "local_p"])
def test_a_window_that_holds_every_source_whole_is_refused(reach: str) -> None:
    """5 tokens: with 3 to each side the first does not see the last, with 4 it does."""
    LuongConfig(reach=reach, window=3).check_data(longest_source=5)  # type: ignore[arg-type]
    refused = r"model\.window: 4 positions.*longest has 5 tokens \(at most 3, or model\.reach"
    with pytest.raises(ConfigError, match=refused):
        LuongConfig(reach=reach, window=4).check_data(longest_source=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"longest has 2 tokens \(model\.reach=global\)"):
        LuongConfig(reach=reach, window=1).check_data(longest_source=2)  # type: ignore[arg-type]
    LuongConfig(reach="global", window=4).check_data(longest_source=5)


@pytest.mark.parametrize("kind", MODELS)
def test_every_preset_of_every_model_can_be_built(kind: str) -> None:
    config = MODELS[kind].config
    assert get_args(config.model_fields["kind"].annotation) == (kind,)
    assert list(config.PRESETS) == list(get_args(config.model_fields["preset"].annotation))
    vocabularies = [1000] * (2 if config.reads == "source" else 1)
    spells = kind in ("elmo", "fasttext")
    options = {"characters_VC": torch.zeros(1000, 50, dtype=torch.long)} if spells else {}
    sizes = []
    for preset in config.PRESETS:
        if "_" in preset:  # another paper's model of this kind
            continue
        chosen = config.model_validate({"kind": kind, "preset": preset})
        with torch.device("meta"):
            sizes.append(count_parameters(MODELS[kind].build(chosen, *vocabularies, **options)))
    assert sizes == sorted(set(sizes)), "each is larger than the one before"


@pytest.mark.parametrize(
    ("config", "given", "where", "words"),
    [
        (BERTConfig, {"heads": 3, "width": 16}, "", "3 heads do not divide the width 16"),
        (TransformerConfig, {"width": -1}, "width", "greater than or equal to 1"),
        (TransformerConfig, {"preset": ["tiny"]}, "preset", "is not allowed"),
        (TransformerConfig, {"dropout": 1.0}, "dropout", "less than 1"),
        (
            LuongConfig,
            {"score": "dot", "bidirectional": True},
            "",
            "(allowed with it: general, concat;",
        ),
        (
            LuongConfig,
            {"score": "scaled_dot", "bidirectional": True},
            "",
            "score: scaled_dot multiplies states",
        ),
        (
            LSTMLanguageModelConfig,
            {"hidden": 12, "embedding": 10, "layers": 1},
            "",
            "hidden=10 or tie=false",
        ),
        (CaptionerConfig, {"encoder": "features"}, "", "must be given together"),
        (CaptionerConfig, {"feature_width": 3}, "", "must be given together"),
        (
            CaptionerConfig,
            {"decoder": "transformer", "width": 10, "heads": 4},
            "",
            "4 heads do not divide",
        ),
        (SearchConfig, {"beam": 1_000_000}, "beam", "less than or equal to 1000"),
        (SearchConfig, {"sample": True, "nbest": 10_001}, "nbest", "less than or equal to 10000"),
        (SearchConfig, {"beam": 2, "nbest": 3}, "nbest", "raise beam to 3"),
        (SearchConfig, {"nbest": 6}, "nbest", "a beam of 5 cannot give the best 6"),
        (SearchConfig, {"sample": True, "beam": 4}, "beam", "set beam: 1"),
        (SearchConfig, {"temperature": 0.7}, "temperature", "set sample: true"),
        (SearchConfig, {"top_k": 10}, "top_k", "set sample: true"),
        (SearchConfig, {"top_p": 0.9}, "top_p", "set sample: true"),
        (SearchConfig, {"sample": True, "top_p": 1.5}, "top_p", "less than or equal to 1"),
        (SearchConfig, {"sample": True, "temperature": 0.0}, "temperature", "greater than 0"),
        (SearchConfig, {"min_length": 9, "max_length": 8}, "max_length", "below min_length, 9"),
        (SearchConfig, {"min_length": 99_999}, "min_length", "less than or equal to 2048"),
        (SearchConfig, {"length_penalty": -1.0}, "length_penalty", "greater than or equal to 0"),
        (SearchConfig, {"normalisation": "sum"}, "normalisation", "mean"),
        (
            SearchConfig,
            {"coverage_penalty": -0.1},
            "coverage_penalty",
            "greater than or equal to 0",
        ),
        (
            SearchConfig,
            {"repetition_penalty": 0.9},
            "repetition_penalty",
            "greater than or equal to 1",
        ),
        *(
            (SearchConfig, {"sample": True, name: most * 10}, name, f"less than or equal to {most}")
            for name, most in {
                "coverage_penalty": 100,
                "repetition_penalty": 100,
                "max_length_ratio": 100,
                "max_length_offset": 100_000,
                "temperature": 100,
                "top_k": 1_000_000,
            }.items()
        ),
        (SearchConfig, {"no_repeat_ngram": 0}, "no_repeat_ngram", "greater than or equal to 1"),
        (
            SearchConfig,
            {"min_length_ratio": 60.0},
            "min_length_ratio",
            "more than max_length_ratio and max_length",
        ),
        (SearchConfig, {"banned": ["Haus", " "]}, "banned", "every output contains it"),
        (SearchConfig, {"prefix": " "}, "prefix", "the prefix is empty"),
        (SearchConfig, {"beam": None}, "beam", "may not be null"),
        (TokenizerConfig, {"vocabulary": 4}, "vocabulary", "should be greater than or equal to 5"),
        (
            TokenizerConfig,
            {"file": "a.json", "joint": False},
            "",
            "one tokenizer file is one vocabulary",
        ),
        (
            TokenizerConfig,
            {"file": {"source": "a.json", "target": "b.json"}},
            "",
            "needs joint: false",
        ),
        (
            TokenizerConfig,
            {"kind": "bpe", "split": "spaces"},
            "",
            "split: spaces is only for kind: word, not for bpe",
        ),
        (Parallel, {"corpus": "dates", "min_words": 3}, "", "need 'corpus: phrases-en-ko'"),
        (
            Parallel,
            {"source": "a", "target": "b", "max_words": 9},
            "",
            "need 'corpus: phrases-en-ko'",
        ),
        (
            Parallel,
            {"corpus": "phrases-en-ko", "min_words": 9, "max_words": 8},
            "",
            "min_words 9 is more than max_words 8",
        ),
        (
            Parallel,
            {"corpus": "phrases-en-ko", "min_words": 2},
            "min_words",
            "greater than or equal to 3",
        ),
        (
            Parallel,
            {"corpus": "phrases-en-fr", "max_words": 61},
            "max_words",
            "less than or equal to 60",
        ),
        (Parallel, {"corpus": "phrases-en-kr"}, "corpus", "did you mean 'phrases-en-ko'?"),
    ],
)
def test_a_config_that_cannot_be(
    config: type[Config], given: dict[str, object], where: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(config, given)
    [problem] = caught.value.problems
    assert problem.where == where
    assert words in str(problem)


def test_null_stands_for_no_sampling_and_for_nothing_else() -> None:
    assert (
        validate(SearchConfig, {"temperature": None, "top_k": None, "top_p": None})
        == SearchConfig()
    )


def test_no_text_is_longer_than_the_positions_that_are_learned() -> None:
    TransformerConfig(positions="learned", max_positions=12).check_data(12, 12)
    TransformerConfig(positions="sinusoidal", max_positions=12).check_data(25, 13)
    for lengths in ((13, 5), (5, 13)):
        with pytest.raises(
            ConfigError, match=r"model.max_positions: the longest text takes up 13 positions"
        ):
            TransformerConfig(positions="learned", max_positions=12).check_data(*lengths)
