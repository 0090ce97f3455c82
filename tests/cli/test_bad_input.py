"""What users get wrong: one clear message (what, where, what is allowed), exit code 2, no
traceback, nothing lost."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import regard as api
from command_line import contents, fail, refusal, regard, succeed, write
from raw_cases import Runs
from regard.config import write_yaml
from regard.tasks.occlusion import MAX_OCCLUDED_WORDS

SOURCE = "".join(
    f"{text}\n" for text in ("a b c", "b c d", "c d e", "d e f", "e f g", "f g h") * 10
)
TARGET = SOURCE.upper()
RECIPE: dict[str, Any] = {
    "task": "translation",
    "data": {"train": {"source": "train.s", "target": "train.t"}, "deduplicate": False},
    "tokenizer": {"kind": "character"},
    "model": {"kind": "bahdanau", "embedding": 8, "hidden": 8, "attention": 8},
    "training": {"steps": 2, "device": "cpu", "batch_tokens": 256, "decode": 2},
}
Files = dict[str, str | bytes | None]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder, with a recipe and its files."""
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "train.s": SOURCE,
        "train.t": TARGET,
        "recipe.yaml": write_yaml(RECIPE),
    }.items():
        write(tmp_path / name, content)
    return tmp_path


def test_without_a_mistake_it_works(project: Path) -> None:
    """What is refused below is refused for the mistake that is made there."""
    for overrides in ([], [LOCAL.format("local_m"), "model.window=4"]):
        assert succeed("check", "recipe.yaml", *overrides, "--json").json["ok"]
    assert succeed("train", "recipe.yaml", "--out", "run", "--json").json["best"]
    assert succeed("predict", "run", "a b c").out.endswith("\n")


def test_only_the_input_without_positions_is_skipped(project: Path) -> None:
    succeed("train", "recipe.yaml", LEARNED, "--out", "run")
    write(project / "in", "a b\na b c d\nc d e\n")
    message = "in:2: the text has 8 tokens with the special ones (the model reads at most 6)"
    assert message in fail("predict", "run", "--file", "in")
    done = succeed("predict", "run", "--file", "in", "--skip-bad")
    assert message in done.err
    assert [bool(line) for line in done.out.splitlines()] == [True, False, True]


class Mistake(NamedTuple):
    """A command and how each of its messages begins, where one more file is there. TRAIN stands for
    `check` and `train` of the recipe with overrides, @run for a trained run of translation, @NAME
    for another of raw_cases.py."""

    command: str
    messages: str | list[str]
    files: Files = {}  # noqa: RUF012
    stdin: str | bytes = b""


LOCAL = "model={{kind: luong, embedding: 8, hidden: 8, reach: {}, window: 20}}"
WINDOW = (
    "model.window: 20 positions on each side cover every source: the longest has 6 tokens "
    "(at most 4, or model.reach=global)"
)
LEARNED = "model={kind: transformer, preset: tiny, positions: learned, max_positions: 6}"
NOT_UTF8 = (
    "is not UTF-8 (name its encoding with data.encoding=latin1 (Western Europe), or "
    "another; or save it as UTF-8)"
)
CAFE = TARGET.replace("B C D", "CAFÉ", 1).encode("latin-1")
NO_FILE = "there is no such file (a recipe is a .yaml file, or one that ships;"
NO_RUN = (
    "not a run folder: it has no recipe.yaml (a run folder is what 'regard train RECIPE "
    "--out RUN' makes)"
)
UNDECODED = "the text has bytes that are not valid in its encoding"
EMPTY = "the text is empty (give at least one word)"
UNKNOWN = (
    "every token of '안녕하세요' is unknown to the tokenizer (it was trained on other "
    "words or script)"
)
SKIP = "nothing was written (--skip-bad leaves such lines out, with an empty output for each)"
TOO_LONG = "(at most 2,048: split it into sentences)"
EXISTS, READ = "the file exists already (give another", "this file is read here (give another"
DRAWN = "(allowed: .svg, .png, .html, .json)"
JSON_LIST = '--tokens: not a JSON list of strings (for example ["▁a", "</s>"])'
TWO_FILES = "evaluate @run --file t.s --file t.t"
THREE: Files = {
    "three.tsv": "".join(f"{number}\tGo home {number}.\t집에 {number}.\n" for number in range(9))
}
TEXT_PAIRS = "".join(
    f"the dog sees a cat {number}\t개가 고양이를 본다 {number}\n" for number in range(60)
)
NEEDED = "two columns of text are needed, or a text and its label, but"
NO_MASK = "there is no [MASK] in the text (write [MASK] where a word is to be found)"
TWO_TEXTS = "two texts are expected, not 1 (put a tab between first and second"
NO_IMAGE = (
    "the image nope.png does not exist (paths are relative to the folder that the command runs in)"
)
FLEW = "input 1: the word 'flew' is unknown"
CONTINUES_NOT = "this model does not continue texts"
PREDICTED = "runs of the task language_modeling are compared by their predictions, without a search"
NOT_DECODED = "{0}: story_answering does not decode, so {0} has no effect (leave it out)"
MISTAKES = {
    "models": [
        Mistake(f"TRAIN '{LOCAL.format('local_p')}'", WINDOW),
        # of training and validation texts: one that has no position would abort the training where
        # it is validated
        *(
            Mistake(
                f"TRAIN '{LEARNED}' 'data.{split}={{source: long.s, target: train.t}}'",
                "model.max_positions: the longest text takes up 10 positions, but the model learns "
                "6 (at least 10",
                {"long.s": SOURCE.replace("a b c", "a b c d e", 1)},
            )
            for split in ("train", "validation")
        ),
        # a matrix of hidden * hidden takes 2**58 bytes, more than any machine has
        Mistake(
            f"TRAIN model.hidden={2**28}",
            "model: a model of 1,224,979,142.4 billion parameters does not fit",
        ),
    ],
    "files": [
        # one file does not hide another
        Mistake(
            "TRAIN 'data.test={source: train.s, target: test.t}'",
            [
                "test.t:2: byte 0xc9 at position 4",
                "train.t:2: the line is empty",
                "data.bad_lines: 1 of 60 pairs cannot be used (auto drops up to 1% of them, "
                "data.bad_lines=drop any",
            ],
            {"train.t": TARGET.replace("B C D", "", 1), "test.t": CAFE},
        ),
        Mistake(
            "TRAIN",
            [
                *["train.s:"] * 20,
                "and 10 more such lines",
                "data.bad_lines: 30 of 60 pairs cannot be",
            ],
            {"train.s": SOURCE.replace("c d e", "").replace("d e f", "").replace("e f g", "")},
        ),
        *(
            Mistake(f"predict @run --file {name}", f"{name}: there is no such file")
            for name in ("data.csv", "in.txt")
        ),
    ],
    "splits": [
        Mistake(
            "TRAIN 'data.validation={source: train.s, target: train.t, split: 0.1}'",
            "data.validation: a share of the training examples has no files of its own: give split "
            "or files, not both",
        ),
        Mistake(
            "TRAIN data.encoding=cp94",
            "data.encoding: Python has no text encoding 'cp94' (did you mean 'cp949'?)",
        ),
        Mistake(
            "TRAIN data.encoding=rot13",
            "data.encoding: Python has no text encoding 'rot13' (allowed: big5, cp12",
        ),
        Mistake("TRAIN data.max_length=2", "data.train: no training pair is left: dropped"),
    ],
    "recipes": [
        Mistake(
            "TRAIN training.stesp=5", "training.stesp: unknown key 'stesp' (did you mean 'steps'?)"
        ),
        Mistake(
            "TRAIN training.best=blue",
            "training.best: unknown metric 'blue' (did you mean 'bleu'?)",
        ),
        Mistake(
            "TRAIN training.best=bleu training.decode=0",
            "training.decode: bleu needs decoded examples (set it above 0)",
        ),
        Mistake("TRAIN search.prefix=日本", "search.prefix: the tokenizer cannot write '日本'"),
        Mistake(
            "TRAIN search.min_length_ratio=4.0 search.max_length=10",
            "search.min_length_ratio: a source of 6 tokens needs an output of at least 24, but at "
            "most 10 are allowed",
        ),
        Mistake("TRAIN training.precision=fp16", "training.precision: fp16 needs a CUDA GPU"),
        Mistake(
            "TRAIN 'tokenizer={file: tokeniser.json}'",
            "tokenizer.file: tokeniser.json: there is no such file",
        ),
        Mistake(
            "TRAIN 'tokenizer={file: old}'",
            "tokenizer.file: old is a folder, not a file (expected is",
            {"old": None},
        ),
        *(
            Mistake(
                command,
                "folder: this is a folder, not a recipe (give a .yaml file)",
                {"folder": None},
            )
            for command in ("check folder", "train folder --out x")
        ),
        *(
            Mistake(
                f"train {name} --out x",
                f"{name}: this is not a recipe, which is a .yaml file ('regard check",
                {name: "text,label\na: b,good\n"},
            )
            for name in ("reviews.csv", "text.txt", "pairs.tsv.gz")
        ),
        Mistake(
            "train daets --out x",
            "daets: there is no such recipe (a recipe is a .yaml file, or one that ships; did you "
            "mean 'dates'?)",
        ),
        Mistake("check foo.yml", f"foo.yml: {NO_FILE} 'regard recipes' lists those that ship)"),
        Mistake(
            "train mine.yml --out x",
            f"mine.yml: {NO_FILE} 'regard recipes' lists",
            {"mine.yaml": "task: x"},
        ),
        Mistake(f"check {'x' * 5_000}", f"{'x' * 40}…{'x' * 39}: File name too long"),
        Mistake(
            "recipes daets", "recipes: no recipe of the name 'daets' ships (did you mean 'dates'?)"
        ),
        Mistake(
            "recipes dates --out train.s", "train.s: the file exists already (give another --out)"
        ),
        Mistake("recipes --out x", "--out: name the recipe to copy (allowed: "),
        Mistake("recipes dates --out train.s/x", "train.s/x: cannot be written: Not a directory"),
    ],
    "data without a recipe": [
        Mistake("check missing.tsv", "missing.tsv: there is no such file"),
        Mistake(
            "check p.txt",
            "p.txt: the format is unclear: most lines have tabs (a table (.tsv, .csv, ",
            {"p.txt": TEXT_PAIRS},
        ),
        Mistake(
            "check one.tsv",
            f"one.tsv: {NEEDED} only column 0 looks like text",
            {"one.tsv": "".join(f"the dog sees a cat {number}\t17\t0.5\n" for number in range(60))},
        ),
        Mistake(
            "check ids.tsv",
            f"ids.tsv: {NEEDED} no column looks like text (the file names no columns; it has 3)",
            {"ids.tsv": "".join(f"{number}\t{number}\t{number}\n" for number in range(60))},
        ),
        Mistake("check empty.tsv", "empty.tsv: the file is empty", {"empty.tsv": ""}),
        Mistake(
            "check head.csv",
            "head.csv: there is a header, but no row below it",
            {"head.csv": "text,label\n"},
        ),
        Mistake("check blank.jsonl", f"blank.jsonl: {NEEDED} no column", {"blank.jsonl": "\n\n"}),
        Mistake("check broken.jsonl", "broken.jsonl:1: not valid JSON", {"broken.jsonl": "{\n"}),
        Mistake(
            "check rows.json",
            "rows.json: two columns of text are needed, or a text and its label, but ",
            {"rows.json": '{"rows": []}'},
        ),
        Mistake(
            "check image.txt",
            "image.txt:1: this is a PNG image, not a text",
            {"image.txt": b"\x89PNG\r\n\x1a\n\0\xff"},
        ),
        Mistake(
            "check p.tsv p.tsv",
            "p.tsv: 2 files cannot be read together (one file with all columns",
            {"p.tsv": TEXT_PAIRS},
        ),
        Mistake("check train.s train.s train.s", "train.s: 3 files cannot be read together"),
        Mistake(
            "check p.tsv training.steps=5",
            "training.steps=5: a proposal takes no overrides (save it with --out",
            {"p.tsv": TEXT_PAIRS},
        ),
        Mistake(
            "check p.tsv label=5",
            "p.tsv: there is no column '5' (allowed: 0, 1)",
            {"p.tsv": TEXT_PAIRS},
        ),
        Mistake(
            "check p.tsv text=0 label=0",
            "p.tsv: text and label are the same column (give each one of its own)",
            {"p.tsv": TEXT_PAIRS},
        ),
        Mistake(
            "check p.tsv label=0",
            "p.tsv: column '0' is not a label: it has 60 different values in 60 rows (a",
            {"p.tsv": TEXT_PAIRS},
        ),
        Mistake(
            "check p.tsv text=0",
            "p.tsv: these columns are neither a text and its label nor a pair of texts",
            {"p.tsv": TEXT_PAIRS},
        ),
        Mistake(
            "check train.s label=0",
            "label=0: a proposal takes no overrides (save it with --out, then change it;",
        ),
        Mistake(
            "check dates --out x.yaml",
            "--out: it is only for a recipe that is proposed for data files",
        ),
        Mistake(
            "check mixed",
            "mixed: this is a folder, not a recipe (give a .yaml file)",
            {"mixed/a.txt": "one\n", "mixed/recipe.yaml": "task: translation\n"},
        ),
    ],
    "runs": [
        *(
            Mistake(command, f"folder: {NO_RUN}", {"folder": None})
            for command in (
                "evaluate folder",
                "diagnose folder",
                "predict folder a",
                "explain folder a",
                "score folder a b",
            )
        ),
        Mistake(
            "predict bert a",
            "bert: not a run folder: it has no recipe.yaml (it looks like a model of transformers: "
            "'regard import bert --out RUN' makes a run of it)",
            {"bert/config.json": "{}"},
        ),
        Mistake(
            "predict @runx a",
            "@runx: there is no such run folder (make one with 'regard train RECIPE",
        ),
        Mistake(
            "predict recipe.yaml a",
            "recipe.yaml: is a file, not a run folder (make one with 'regard train RECIPE",
        ),
        Mistake(
            "predict @run a --checkpoint 17",
            "@run/checkpoints/step-00000017: there is no such checkpoint (did you",
        ),
        Mistake(
            "predict @run a --checkpoint first",
            "@run/checkpoints/first: there is no such checkpoint (allowed: step-",
        ),
        Mistake(
            "predict @run a --device meta",
            "--device: there is no device 'meta' here (allowed: auto, ",
        ),
        Mistake(
            "train recipe.yaml --out train.s",
            "train.s: there is a file of this name (give another --out)",
        ),
        Mistake(
            "train recipe.yaml --out train.s/run", "train.s/run: cannot be written: Not a directory"
        ),
        Mistake(
            "train recipe.yaml --out notes",
            "notes: the folder exists already, and contains files",
            {"notes/a": ""},
        ),
        Mistake("train recipe.yaml --out notes --resume", f"notes: {NO_RUN}", {"notes/a": ""}),
        Mistake(
            "train recipe.yaml --out @run",
            "@run: the run folder exists already (--resume continues it; give another --out for a "
            "new run)",
        ),
    ],
    "inputs": [
        Mistake("predict @run 'a b' ' \t ' ''", [f"input 2: {EMPTY}", f"input 3: {EMPTY}"]),
        Mistake("predict @run", [f"standard input:2: {EMPTY}", SKIP], stdin="a b\n\n"),
        Mistake("explain @run ''", f"input: {EMPTY}"),
        Mistake("score @run '' a", f"source: {EMPTY}"),
        Mistake("score @run a ''", f"target: {EMPTY}"),
        Mistake(
            "predict @run", "standard input: there is no input (give texts as arguments, or --file)"
        ),
        Mistake("predict @run 'a b' 안녕하세요", f"input 2: {UNKNOWN}"),
        Mistake("explain @run 안녕하세요", f"input: {UNKNOWN}"),
        Mistake("score @run 안녕하세요 a", f"source: {UNKNOWN}"),
        Mistake("score @run a 안녕하세요", f"target: {UNKNOWN}"),
        Mistake("predict @run --file in", ["in:2", "in:3", SKIP], {"in": "a b\n\n한국어\nb a\n"}),
        Mistake(
            "predict @run --file in",
            [*["in:"] * 20, "and 980 more such problems", SKIP],
            {"in": "\n" * 1_000},
        ),
        Mistake(
            f"predict @run '{'a b ' * 25_000}'", f"input 1: the text has 100,000 tokens {TOO_LONG}"
        ),
        Mistake(f"score @run a {'b' * 5_000}", f"target: the text has 5,001 tokens {TOO_LONG}"),
        Mistake(
            "predict @run --file in",
            f"in:2: byte 0xe9 at position 4 of the line {NOT_UTF8}",
            {"in": b"a b\ncaf\xe9\n"},
        ),
        *(
            Mistake(
                "predict @run",
                f"standard input:2: byte 0x{byte} of the line is not UTF-8 (standard input must be "
                "UTF-8; give the file with --file instead)",
                stdin=b"a b\n" + line,
            )
            for byte, line in {
                "e9 at position 4": b"caf\xe9\n",
                "c0 at position 1": b"\xc0\xda\n",
            }.items()
        ),
        *(
            Mistake(
                "predict @run --file in --set data.encoding=cp949",
                f"in:2: byte 0x{byte} of the line is not CP949 (name its encoding with "
                "data.encoding=utf-8; or",
                {"in": f"a b\n{line}\n"},
            )
            for byte, line in {"ec at position 1": "자", "e2 at position 3": "it’s"}.items()
        ),
        Mistake(
            "predict @run caf\udce9",
            f"input 1: {UNDECODED} (save it as UTF-8, or name a file's encoding",
        ),
        Mistake("predict @run a --file in.txt", "--file: give texts or --file, not both"),
        *(
            Mistake(
                f"{verb} @run --story train.s a", "--story: a run of translation reads no story"
            )
            for verb in ("predict", "explain")
        ),
        Mistake(
            "predict @run --file in",
            "in: the file is empty (one example a line is expected)",
            {"in": ""},
        ),
        Mistake(
            "predict @run a '' --skip-bad",
            "--skip-bad: it is for the lines of --file or standard input (leave it out)",
        ),
        # a bad prefix is no reason to skip an input
        Mistake(
            "predict @run --file in --prefixes p --skip-bad",
            "prefix 3: the tokenizer cannot write '한'",
            {"in": "a b\n\nc d\n", "p": "b\na\n한\n"},
        ),
        Mistake(
            "predict @run --file in --out in --workers 1",
            "in: this file is read here",
            {"in": "a\n"},
        ),
        Mistake("predict @run --file none --out o", "none: there is no such file"),
        Mistake("predict @run --out o.jsonl", "--out: needs --file (or use > FILE)"),
        Mistake("predict @run --resume --file train.s", "--resume: needs --file and --out"),
        *(
            Mistake(f"predict @run --file train.s --out o {option}", message)
            for option, message in (
                ("--record r", "--record: it needs all inputs at once"),
                ("--workers 0", "--workers: '0' is not a number of processes (auto"),
                ("--engine rya", "--engine: there is no engine 'rya' (did you mean"),
                ("--address a:1", "--address: needs --engine ray"),
            )
        ),
    ],
    "inputs of other tasks": [
        *(
            Mistake(f"predict @{run} ' '", f"input 1: {EMPTY}")
            for run in ("bilstm-classifier", "tagging")
        ),
        Mistake(
            "predict @tagging --file bad.jsonl",
            ["bad.jsonl:2: the column 'tokens' holds 3, not a string", SKIP],
            {"bad.jsonl": '{"tokens": ["It"]}\n{"tokens": [3]}\n'},
        ),
        *(
            Mistake(f"predict @{run} '[MASK] {'the child ' * 40}'", "input 1: the text has ")
            for run in ("gpt", "bert")
        ),
        Mistake("predict @bert The", f"input 1: {NO_MASK}"),
        Mistake("predict @bert-single 'Anna sang.\tShe was late.'", f"input 1: {NO_MASK}"),
        Mistake(
            "predict @bert --file b.jsonl --features a.npz",
            ["b.jsonl:2: the column 'text' holds 3, not a string", SKIP],
            {"b.jsonl": '{"text": "The dog"}\n{"text": 3}\n'},
        ),
        *(
            Mistake(
                f"predict @bert --file a.csv {option}",
                "a.csv:1: there is no column 'text' (the columns are id, content)",
                {"a.csv": "id,content\n0,The child\n"},
            )
            for option in ("", "--features a.npz")
        ),
        Mistake(
            "predict @reviews --file a.tsv",
            "a.tsv:1: there is no column 'sentence' (the columns are review, label)",
            {"a.tsv": "review\tlabel\nvery good\t1\n"},
        ),
        *(
            Mistake(f"predict @regression '{text}'", f"input 1: {TWO_TEXTS}")
            for text in ("a", "{first: x}")
        ),
        *(
            Mistake(
                f'{verb} @regression \'{{"a": "x"}}\'',
                f"{place}: there is no column 'b' (the columns are a)",
            )
            for verb, place in (("predict", "input 1"), ("explain", "input"))
        ),
        Mistake(
            'predict @choices \'{"question": "x", "choices": ["a", "b"]}\'',
            "input 1: there is no column 'start' (the columns are question, choices)",
        ),
        Mistake("predict @choices 'a\tb'", "input 1: there are 1 choices"),
        Mistake(
            "predict @questions 'Where is Anna?'",
            "input 1: there is a question, but no text that it is about",
        ),
        Mistake("predict @questions '\tAnna is here.'", f"input 1 (question): {EMPTY}"),
        Mistake("predict @questions 'Where?\t '", f"input 1 (context): {EMPTY}"),
        Mistake(
            'predict @questions \'{"question": "Where?"}\'', "input 1: there is no column 'context'"
        ),
        Mistake(
            'predict @questions \'{"question": "Where?", "context": 3}\'',
            "input 1: the column 'context' holds 3, not a string",
        ),
        Mistake(
            "predict @questions '{\"question'",
            "input 1: there is a question, but no text that it is about",
        ),
        Mistake(
            'predict @questions \'{"question": "Where?", "context": "\\ud83d"}\'',
            "input 1: the column 'context' holds half of a surrogate pair",
        ),
        Mistake(
            "predict @stories 'Mary went to the garden.'", "input 1: the story has no question"
        ),
        Mistake(
            "predict @stories 'Where is Mary?'", "input 1: there is no story before the question"
        ),
        Mistake(
            "predict @stories --story told 'Where is John?'",
            "told:1: the story has no question",
            {"told": "Mary went to the garden.\n\nJohn went to the moon.\n"},
        ),
        Mistake(
            "predict @stories 'Mary flew to the gardn. Where is Mary?'",
            [
                FLEW,
                "input 1: the word 'gardn' is unknown (the run knows the 47 words of its stories)",
            ],
        ),
        Mistake(
            "predict @stories 'Mary flew。 Where is Marry？'",
            [FLEW, "input 1: the word 'Marry' is unknown"],
        ),
        Mistake(
            f"predict @captioner {'x' * 300}", f"input 1: the image {'x' * 300} does not exist"
        ),
        *(
            Mistake(f"{verb} @captioner nope.png", f"{place}: {NO_IMAGE}")
            for verb, place in (("predict", "input 1"), ("explain", "input"))
        ),
    ],
    "what a task or a model does not do": [
        Mistake("predict @elmo 'The child'", f"predict: {CONTINUES_NOT}"),
        *(
            Mistake(f"score @{run} a b", f"score: {CONTINUES_NOT}")
            for run in ("elmo", "autoencoder")
        ),
        *(
            Mistake(
                f"score @{run} a b",
                f"@{run}: score needs a run that writes texts, not one of {task}",
            )
            for run, task in (
                ("bert", "masked_language_modeling"),
                ("bilstm-classifier", "classification"),
            )
        ),
        *(
            Mistake(
                f"diagnose @{run}",
                f"@{run}: diagnose compares outputs with references, which a run of {task} does "
                "not have",
            )
            for run, task in (("gpt", "language_modeling"), ("bilstm-classifier", "classification"))
        ),
        *(
            Mistake(
                f"{command} --nbest 2000", "--nbest: should be less than or equal to 1000, not 2000"
            )
            for command in ("predict @gpt The", "predict @bert [MASK]")
        ),
        *(
            Mistake(
                command,
                f"{command.split()[3]}: it chooses the vectors that --features writes (give "
                "--features FILE",
            )
            for command in (
                "predict @gpt The --layer 1",
                "predict @bert [MASK] --pooling mean",
                "predict @bert [MASK] --normalize",
            )
        ),
        Mistake(
            "predict @gpt The --features a.npz --layer 7",
            "--layer: there is no layer 7 (0 to 2, or -1)",
        ),
        Mistake(
            "predict @gpt The --features a.npz --pooling max",
            "--pooling: there is no pooling 'max' (allowed: mean, first, last)",
        ),
        Mistake(
            "predict @run a --features a.npz",
            "@run: bahdanau for translation has no vectors of a single text",
        ),
        Mistake(
            "predict @bilstm-classifier a --prefix b",
            "--prefix: classification does not decode, so --prefix has no effect (leave it out)",
        ),
        *(
            Mistake(f"predict @stories 'Ann left.' 'Who?' {name} {value}", NOT_DECODED.format(name))
            for name, value in (
                ("--prefix", "the"),
                ("--record", "r.json"),
                ("--beam", 3),
                ("--beam", 0),
                ("--length-penalty", 0.5),
            )
        ),
        Mistake(
            "predict @stories 'Ann left.' 'Who?' --set search.banned=[a]",
            NOT_DECODED.format("search.banned"),
        ),
        Mistake("evaluate @stories --beam 3", NOT_DECODED.format("--beam")),
        Mistake("evaluate @stories --file a.txt --file b.txt", "--file: 2 files are too many"),
        Mistake(
            "explain @bilstm-classifier superb --numbers",
            "--numbers: the model 'bilstm' has no attention to work out (leave it out; views of "
            "it: occlusion)",
        ),
        Mistake(
            f"explain @bilstm-classifier '{'good ' * (MAX_OCCLUDED_WORDS + 1)}'",
            f"explain: the text has {MAX_OCCLUDED_WORDS + 1} "
            f"words, each of which would be left out once (at most {MAX_OCCLUDED_WORDS}: ",
        ),
        Mistake(
            "explain @bilstm-classifier 'so good' --head 1",
            "--head: it does not change occlusion (it changes alignment, ",
        ),
        Mistake(
            "explain @lstm 'The fox' --view heads",
            "--view: the model 'lstm_lm' has no view 'heads' (allowed for it: probabilities)",
        ),
        *(
            Mistake(
                f"explain @bert Hi {name} 3",
                f"{name}: a run of the task masked_language_modeling does not write text",
            )
            for name in ("--target", "--beam")
        ),
        Mistake(
            "compare @run",
            "compare: there is nothing to compare (give two runs, or a run and --hypotheses)",
        ),
        Mistake("compare @run @run/none", "@run/none: there is no such run folder "),
        Mistake(
            "compare @run @translation --baseline tniy",
            "--baseline: there is no system 'tniy' (did you mean 'tiny'?)",
        ),
        Mistake(
            "compare @run @summarization",
            "@summarization: the run's task is summarization, that of @run is translation (compare "
            "runs of one task)",
        ),
        Mistake(
            "compare @run @translation",
            "@translation: its examples differ from those of @run (give the texts to compare on "
            "with --file; ",
        ),
        Mistake(
            "compare @run --hypotheses a.txt",
            "--hypotheses: 'a.txt' does not name a system (NAME=FILE, ",
        ),
        Mistake("compare @run --hypotheses x=no.txt", "no.txt: there is no such file"),
        Mistake(
            "compare @run --hypotheses tiny=no",
            "--hypotheses: the name 'tiny' is a run's (give another name)",
        ),
        Mistake(
            "compare @run --hypotheses x=a --hypotheses x=b",
            "--hypotheses: the name 'x' is given twice ",
        ),
        *(
            Mistake(
                f"compare @run --hypotheses x=o.txt {option}",
                f"o.txt: {count} lines for 15 inputs (one output per line, in the order ",
                {"o.txt": "a b\n" * count},
            )
            for count, option in ((14, ""), (16, "--out new.html"))
        ),
        Mistake(
            "compare @run @run --csv train.s",
            "train.s: this is a file, not a folder (give another --csv)",
        ),
        Mistake(
            "compare @run @run --set search.sample=true",
            "search.sample: samples cannot be compared ",
        ),
        Mistake("compare @gpt @bert", "@bert: the run's task is masked_language_modeling"),
        Mistake("compare @gpt @words --beam 2", f"--beam: {PREDICTED}"),
        Mistake("compare @gpt --hypotheses other=train.s", f"--hypotheses: {PREDICTED}"),
        Mistake(
            "compare @gpt @autoencoder",
            "@autoencoder: it reconstructs texts that it has read (model.objective: autoencoder), "
            "the others predict unseen texts (compare it with other autoencoders)",
        ),
        Mistake(
            "train tales-bert training.init=@bert model.preset=tiny tokenizer.vocabulary=999 "
            "--out a",
            [
                "model.preset: @bert has small, this recipe asks for tiny "
                "(leave the section model out, with model=null: it is then that run's)",
                "tokenizer.vocabulary: @bert has 200, this recipe asks for 999 (leave the section "
                "tokenizer out, "
                "with tokenizer=null: it is then that run's, with which its weights were trained)",
            ],
        ),
        Mistake(
            "check tales-gpt training.init=@bert",
            "model.kind: @bert is a bert, this recipe asks for gpt",
        ),
        Mistake("serve @run --host 0.0.0.0", "--host: whoever reaches 0.0.0.0"),
        Mistake("serve @run @run", "@run: two runs are called 'tiny' (rename one of the folders)"),
        Mistake("serve @run/none", "@run/none: there is no such run folder"),
        Mistake("studio none --no-browser", "none: there is no such run folder"),
        Mistake("course 33", "CHAPTER: there is no chapter '33'"),
        Mistake("course --lang de", "--lang: there is no 'de' (allowed: en, ko)"),
        Mistake("course 3 --full nowhere", "--full nowhere: there is no such folder"),
    ],
    "search": [
        Mistake(
            "predict @run a --beam 0", "search.beam: should be greater than or equal to 1, not 0"
        ),
        Mistake(
            "predict @run a --length-penalty 3 --set search.normalisation=none",
            "--length-penalty: search.normalisation: none has no length penalty (leave it out, or "
            "--set search.",
        ),
        Mistake(
            "predict @run a --beam 2 --nbest 5",
            "search.nbest: a beam of 2 cannot give the best 5: at most beam, or raise beam to 5",
        ),
        Mistake(
            "predict @run a --set saerch.beam=2",
            "saerch: unknown key 'saerch' (did you mean 'search'?)",
        ),
        Mistake(
            "predict @run a --set model.hidden=2",
            "model.hidden=2: model cannot be changed in a trained run (allowed: search, "
            "evaluation, data.encoding, data.source_language, data.target_language)",
        ),
        Mistake("score @run a 'a xyz' --tokens", "target: 'xyz' is not a token of this vocabulary"),
        Mistake(
            "score @run a [] --tokens",
            'target: there are no tokens (give at least one, "</s>" for one)',
        ),
        *(Mistake(f"score @run a '{text}' --tokens", JSON_LIST) for text in ("[1]", "[", '["a"')),
        Mistake(
            "predict @run a --prefix 안녕",
            "search.prefix: the tokenizer cannot write '안녕' "
            "(its vocabulary lacks a part of it: use other words)",
        ),
        Mistake(
            "predict @run a --prefix ' '",
            "search.prefix: the prefix is empty: give at least one word, or leave",
        ),
        Mistake(
            "predict @run a --prefix 'a b' --set search.max_length=3",
            "search.prefix: a prefix of 3 tokens and the end do not fit into the 3 that are "
            "allowed "
            "(shorten it, or raise search.max_length or search.max_length_offset)",
        ),
        Mistake(
            "predict @run a --prefix 'a b' --set search.banned=[b]",
            "search.prefix: 'a b' holds a text that search.banned rules out (change one of the "
            "two)",
        ),
        Mistake(
            "predict @run 'a b' --set search.min_length_ratio=4.0 --set search.max_length=10",
            "search.min_length_ratio: a source of 4 tokens needs an output of at least 16, but at "
            "most 10 are allowed "
            "(lower it, or raise search.max_length or search.max_length_ratio)",
        ),
        Mistake(
            "predict @run a b --prefixes one",
            "one: 1 prefix for 2 inputs (one line for each input, empty where any beginning is all",
            {"one": "b\n"},
        ),
        Mistake(
            "predict @run a --prefix a --prefix b",
            "--prefix: 2 prefixes are given for every output (give one, or --prefixes with a line "
            "for each input)",
        ),
        Mistake(
            "predict @run a --prefixes one --prefix a",
            "--prefixes: give --prefix or --prefixes, not both",
        ),
        Mistake(
            "predict @run a --record no/x.json",
            "no/x.json: there is no folder no (give another --record)",
        ),
        Mistake("predict @run a --record .", ".: this is a folder"),
    ],
    "measuring and drawing": [
        *(
            Mistake(f"{verb} @run --split {split}", message)
            for verb in ("evaluate", "diagnose", "compare @run")
            for split, message in (
                ("tset", "--split: unknown split 'tset' (did you mean 'test'?)"),
                ("a/b", "--split: unknown split 'a/b'"),
                (
                    "test",
                    "data.test: the run's recipe has no test set (--split validation, or --file)",
                ),
            )
        ),
        Mistake(
            "evaluate @run --predictions a.jsonl",
            "--predictions: this task has no answer for each example (",
        ),
        Mistake(
            "evaluate @run --split train --file x.tsv", "--file: give a split or files, not both"
        ),
        *(
            Mistake(
                f"{verb} @run --file t.s --file t.t",
                "t.s:2: t.s has 2 lines, t.t has 1",
                {"t.s": "a\nb\n", "t.t": "a\n"},
            )
            for verb in ("evaluate", "diagnose")
        ),
        Mistake(
            TWO_FILES,
            "t.t:2: the line is empty (fill it, or drop the row)",
            {"t.s": "a\nb\n", "t.t": "a\n\n"},
        ),
        Mistake(
            TWO_FILES,
            "t.t:2: the line has 100,000 characters, data.max_characters allows 20,000",
            {"t.s": "a\nb\n", "t.t": f"a\n{'b' * 100_000}\n"},
        ),
        Mistake(
            TWO_FILES,
            "t.s:2: the pair has 10,000 tokens (at most 2,048: split it)",
            {"t.s": "a\nb\n", "t.t": f"a\n{'b' * 10_000}\n"},
        ),
        Mistake(
            "evaluate @run --file a --file b --file c",
            "--file: 3 files are too many (one with all columns, or 2: source, target)",
        ),
        Mistake(
            "evaluate @run --file train.s",
            "--file: train.s is not a table, so it can hold only one of the columns "
            "(--file SOURCE --file TARGET, or one table: .tsv, .csv, .jsonl, .json, .parquet)",
        ),
        Mistake(
            "evaluate @run --file t.jsonl",
            "t.jsonl:1: there is no column 'source' (the columns are en, ko)",
            {"t.jsonl": '{"en": "a", "ko": "b"}\n'},
        ),
        *(
            Mistake(
                f"{verb} --file three.tsv",
                "three.tsv:1: there is no column 'source' (the columns are 0, Go home 0., 집에 0.)",
                THREE,
            )
            for verb in ("evaluate @run", "diagnose @run", "compare @run @run")
        ),
        Mistake("diagnose @run --limit 0", "--limit: 0 sentences cannot be diagnosed (1 or more)"),
        Mistake(
            "diagnose @run --set search.sample=true",
            "search.sample: sampling is not a search (--set search.",
        ),
        Mistake("diagnose @run --beam 0", "search.beam: "),
        Mistake("diagnose @run --device tpu", "--device: there is no device 'tpu' here "),
        *(
            Mistake(f"{verb} --out report.pdf", "report.pdf: cannot write a .pdf (allowed: .html)")
            for verb in ("diagnose @run", "compare @run @run")
        ),
        Mistake("diagnose @run --out no/report.html", "no/report.html: there is no folder no "),
        Mistake("explain @run a --out x.gif", f"x.gif: cannot write a .gif {DRAWN}"),
        Mistake(
            "explain @run a --out attention",
            f"attention: cannot write a file without suffix {DRAWN}",
        ),
        Mistake(
            "explain @run a --out no/x.svg", "no/x.svg: there is no folder no (give another --out)"
        ),
    ],
    "overwriting": [
        *(
            Mistake(
                f"{command} {file}",
                f"{file}: {EXISTS} {command.split()[-1]}, or --overwrite)",
                {file: "mine"},
            )
            for command, file in (
                ("predict @run a --record", "out"),
                ("predict @run a --features", "out"),
                ("evaluate @run --predictions", "out"),
                ("explain @run a --out", "a.svg"),
                ("diagnose @run --out", "a.html"),
                ("compare @run @run --out", "a.html"),
            )
        ),
        Mistake(
            "evaluate @run --predictions out",
            f"out.errors.jsonl: {EXISTS} --pred",
            {"out.errors.jsonl": "mine"},
        ),
        Mistake(
            "compare @run @run --csv .",
            f"groups.csv: {EXISTS} --csv, or --overwrite)",
            {"groups.csv": "mine"},
        ),
        # never what is read
        *(
            Mistake(
                f"predict @run {inputs} --overwrite",
                f"in: {READ} --{inputs.split('--')[-1][:-3]})",
                {"in": "a b\n"},
            )
            for inputs in (
                "--file in --record in",
                "--file in --features in",
                "a --prefixes in --record in",
            )
        ),
        Mistake(
            "evaluate @run --file in.tsv --predictions in.tsv --overwrite",
            f"in.tsv: {READ} --predictions)",
            {"in.tsv": "source\ttarget\na\tb\n"},
        ),
        Mistake(
            "explain @run a.svg --out a.svg --overwrite", f"a.svg: {READ} --out)", {"a.svg": "mine"}
        ),
        Mistake(
            "compare @run --hypotheses x=a.html --out a.html --overwrite",
            f"a.html: {READ} --out)",
            {"a.html": "A\n"},
        ),
        Mistake(
            "compare @run --hypotheses x=errors.csv --csv . --overwrite",
            f"errors.csv: {READ} --csv)",
            {"errors.csv": "A\n"},
        ),
        *(
            Mistake(
                f"predict @run a --record @run/{name} --overwrite",
                f"@run/{name}: a run needs it (give another",
            )
            for name in (
                "recipe.yaml",
                "tokenizer.json",
                "best",
                "checkpoints/step-00000020/model.safetensors",
            )
        ),
    ],
}


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(
            mistake, id=f"{kind}-{mistake.command[:60].encode('ascii', 'replace').decode()}"
        )
        for kind, mistakes in MISTAKES.items()
        for mistake in mistakes
    ],
)
def test_a_mistake_is_named_and_changes_nothing(
    project: Path, tiny_run: Path, runs: Runs, mistake: Mistake
) -> None:
    def named(text: str) -> str:
        """With the folders that it means."""
        text = text.replace("@here", str(project)).replace("@run", str(tiny_run))
        return re.sub(r"@([\w-]+)", lambda run: str(runs[run[1]]), text)

    for name, content in mistake.files.items():
        if content is None:
            (project / name).mkdir()
        else:
            (project / name).parent.mkdir(exist_ok=True)
            write(project / name, content)
    before, run_before = contents(project), contents(tiny_run)
    arguments = [*map(named, shlex.split(mistake.command))]
    commands = [arguments]
    if arguments[0] == "TRAIN":
        commands = [
            ["check", "recipe.yaml", *arguments[1:]],
            ["train", "recipe.yaml", *arguments[1:], "--out", "run"],
        ]
    expected = [mistake.messages] if isinstance(mistake.messages, str) else mistake.messages
    for command in commands:
        messages = fail(*command, stdin=mistake.stdin)
        assert len(messages) == len(expected), messages
        for message, beginning in zip(messages, expected, strict=True):
            assert message.startswith(named(beginning))
    assert (contents(project), contents(tiny_run)) == (before, run_before)
    assert not (project / "run").exists()


def test_options_and_verbs_that_do_not_exist(tiny_run: Path) -> None:
    for arguments, words in (
        (["tarin"], "No such command 'tarin'"),
        (["predict", tiny_run, "a", "--bem", "3"], "No such option: --bem"),
        (["predict", tiny_run, "a", "--beam", "x"], "Invalid value for '--beam'"),
        (["train", "dates"], "Missing option '--out'"),
        (["a" * 9000], "No such command"),
        (["a " * 9000], "No such command"),
        (["--" + "a" * 9000], "No such option"),
        (["predict", "--" + "a" * 9000], "No such option"),
    ):
        result = regard(*arguments)
        assert result.code == 2
        assert len(result.err) < 2000
        assert words in result.err
        assert "Traceback" not in result.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there(project: Path, tiny_run: Path) -> None:
    message = refusal("check", "recipe.yaml", "training.device=cuda")
    assert message.startswith(
        "training.device: there is no cuda on this machine (allowed: auto, cpu"
    )
    message = refusal("predict", tiny_run, "a", "--device", "cuda")
    assert message.startswith("--device: there is no device 'cuda' here (allowed: auto,")


def test_a_folder_named_like_a_recipe_that_ships_is_its_data(project: Path) -> None:
    (project / "dates").mkdir()
    assert succeed("check", "dates", "data.train.size=200", "--json").json["ok"]


def test_a_tokenizer_of_another_run(tiny_run: Path, project: Path) -> None:
    copied = shutil.copytree(tiny_run, project / "copied")
    succeed("train", "recipe.yaml", "--out", "run", "--json")
    shutil.copy("run/tokenizer.json", copied / "tokenizer.json")
    message = (
        "copied/tokenizer.json: the tokenizer is not the one this run was trained with "
        "(put the run's own tokenizer back; another one gives every token another meaning)"
    )
    for verb in (["predict", "copied", "?"], ["evaluate", "copied"], ["score", "copied", "a", "b"]):
        assert fail(*verb) == [message]
    before = contents(copied)
    result = regard(
        "train", "copied/recipe.yaml", "training.steps=30", "--out", "copied", "--resume", "--json"
    )
    assert (result.code, result.err) == (2, f"regard: {message}\n")
    assert contents(copied) == before
    succeed("train", "recipe.yaml", "tokenizer.joint=false", "--out", "two")
    shutil.copy("two/tokenizer.source.json", "two/tokenizer.target.json")
    message = "two/tokenizer.target.json: the tokenizer is not the one this run was trained with"
    assert refusal("predict", "two", "a b c").startswith(message)


def test_bad_lines_of_a_file_can_be_skipped(tiny_run: Path, tmp_path: Path) -> None:
    """Every line keeps its place: an empty output for each that was skipped, null with the reason
    in JSON."""
    content = (
        b"\n".join([b"a b c", b"", b"d e", "한국어".encode(), b"caf\xe9", b"b a", b"  "]) + b"\n"
    )
    good, file = ["a b c", "d e", "b a"], write(tmp_path / "in.txt", content)
    first, second, third = succeed("predict", tiny_run, *good).out.splitlines()
    printed = succeed("predict", tiny_run, "--file", file, "--skip-bad")
    assert printed.out.split("\n") == [first, "", second, "", "", third, "", ""]
    assert printed.err == f"skipped 4 of 7 inputs; the first: {file}:2: {EMPTY}\n"
    assert succeed("predict", tiny_run, "--skip-bad", stdin=content).out == printed.out
    objects = succeed("predict", tiny_run, "--file", file, "--skip-bad", "--json").jsons
    expected = succeed("predict", tiny_run, *good, "--json").jsons
    assert [one for one in objects if one["output"] is not None] == expected
    places = [one["problem"]["where"] for one in objects if one["output"] is None]
    assert places == [f"{file}:{line}" for line in (2, 4, 5, 7)]
    assert objects[3]["problem"]["what"] == "every token of '한국어' is unknown to the tokenizer"
    assert objects[4]["problem"]["what"] == UNDECODED
    assert succeed("predict", tiny_run, "--file", write(file, "\n\n"), "--skip-bad").out == "\n\n"
    predictions = api.predict(tiny_run, ["", "b a"], skip_bad=True)
    assert [one.to_json()["output"] for one in predictions] == [None, third]
    assert [problem.where for problem in predictions.skipped] == ["input 1"]


def test_skipping_keeps_prefixes_beside_their_inputs(tiny_run: Path, project: Path) -> None:
    write(project / "in.txt", "a b\n\nc d\n")
    write(project / "p.txt", "b\na\nd\n")
    printed = succeed(
        "predict", tiny_run, "--file", "in.txt", "--prefixes", "p.txt", "--skip-bad"
    ).out
    first, second, third = printed.splitlines()
    assert (first[0], second, third[0]) == ("b", "", "d")


def test_unknown_words_among_others_are_read(tiny_run: Path) -> None:
    assert succeed("score", tiny_run, "a", "<unk> </s>", "--tokens", "--json").json["tokens"] == [
        "<unk>",
        "</s>",
    ]
    assert (
        succeed("predict", tiny_run, "a 안녕하세요 b").out
        != succeed("predict", tiny_run, "a b").out
    )
