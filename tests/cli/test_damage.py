"""Flipped, cut and closed files of a run and of the cache: the right answer or a message, never
another answer."""

import copy
import ctypes
import json
import os
import pickle
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from command_line import contents, fail, succeed, write
from regard.api import compare, evaluate, export_run, load, predict, score, train
from regard.config import apply_overrides, read_yaml, write_yaml
from regard.data.store import MANIFEST, VERIFIED
from regard.errors import CheckpointError, RegardError
from regard.recipes.loading import load_recipe
from regard.runs import Run
from regard.runs.checkpoints import load_training, load_weights
from regard.runs.weights import put_weights
from regard.tasks import TASKS
from regard.text.checksums import word_sums
from tiny import TINY

RECIPE: dict[str, Any] = copy.deepcopy(TINY) | {
    "model": {
        "kind": "transformer",
        "width": 16,
        "heads": 2,
        "feed_forward": 16,
        "encoder_layers": 1,
        "decoder_layers": 1,
    },
    "search": TINY["search"] | {"max_length": 6},
}
RECIPE["data"]["test"] = {"corpus": "reverse", "size": 4}
RECIPE["training"] |= {"ema": 0.9, "decode": 0, "keep_best": 2}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, _own_cache: None) -> Path:
    """A run with every file that a run may have, and two checkpoints."""
    return train(RECIPE, out=tmp_path_factory.mktemp("damage") / "run", quiet=True).folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Run:
    shutil.copytree(trained, tmp_path / "run")
    return Run.open(tmp_path / "run")


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def resume(folder: Path) -> dict[str, torch.Tensor]:
    """The weights after more steps."""
    run = train(RECIPE, ["training.steps=22"], out=folder, resume=True, quiet=True)
    return load_weights(run.checkpoint("last"))


@pytest.mark.parametrize("name", ["model.safetensors", "training.safetensors", "training.pt"])
def test_a_flipped_bit_of_a_checkpoint_is_refused_and_whole_ones_are_named(
    run: Run, name: str
) -> None:
    file, read = (
        run.checkpoint("20") / name,
        load_weights if name == "model.safetensors" else load_training,
    )
    generator, data = random.Random(1), file.read_bytes()
    said = rf"step-00000020/{name}: the file is damaged.*other checkpoints here: step-00000010; "
    for bit in [0, 8 * len(data) - 1, *(generator.randrange(8 * len(data)) for _ in range(20))]:
        flip(file, bit)
        with pytest.raises(CheckpointError, match=said):
            read(file.parent)
        file.write_bytes(data)
    file.unlink()
    flip(run.checkpoint("10") / name, 999)
    with pytest.raises(
        CheckpointError, match=rf"{name}: .*no such file.*copy the checkpoint back from elsewhere"
    ):
        read(file.parent)


def test_words_that_changed_places_are_refused(run: Run) -> None:
    """A sum of them would be the same."""
    file = run.checkpoint() / "model.safetensors"
    data = file.read_bytes()
    last = len(data) // 4096 * 4096 - 4096
    file.write_bytes(
        data[:last] + data[last + 8 : last + 16] + data[last : last + 8] + data[last + 16 :]
    )
    assert file.read_bytes() != data
    assert word_sums(file) == word_sums(write(file.with_name("before"), data))
    [said] = fail("predict", run.folder, "a")
    assert said.startswith(f"{file}: the file is damaged: it is not as it was written")


def test_another_number_of_heads_is_refused(run: Run) -> None:
    """The shapes of the weights are the same."""
    path = run.folder / "recipe.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("heads: 2", "heads: 4"), encoding="utf-8")
    said = f"{path}: model.heads is 4, but {run.checkpoint().name} was trained with 2 (put it back)"
    for verb in (
        ["predict", run.folder, "a"],
        ["score", run.folder, "a", "a"],
        ["evaluate", run.folder],
    ):
        assert fail(*verb) == [said]
    with pytest.raises(CheckpointError, match=r"model\.heads is 4"):
        train(path, out=run.folder, resume=True, quiet=True)
    path.write_text(text.replace("heads: 2", "haeds: 2"), encoding="utf-8")
    assert fail("predict", run.folder, "a") == [
        f"{path}: model.haeds: unknown key 'haeds' (did you mean 'heads'?)"
    ]


CHANGES = {
    "training.seed": (1, 3),
    "data.max_length": (40, 41),
    "search.repetition_penalty": (1.0, 3.0),
    "data.validation.split": (0.05, 0.5),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_recipe_is_named_and_can_be_accepted(run: Run, name: str) -> None:
    path, (there, here) = run.folder / "recipe.yaml", CHANGES[name]
    write(path, write_yaml(apply_overrides(read_yaml(path), [f"{name}={here}"])))
    step = run.checkpoint().name
    said = (
        f"{path}: {step} was trained with another recipe: {name} is {here}, not {there} (put it "
        "back; or "
        "--accept-recipe uses it as it is now, in Python accept_recipe=True)"
    )
    for verb in (
        ["predict", run.folder, "a"],
        ["evaluate", run.folder],
        ["score", run.folder, "a", "a"],
        ["export", run.folder, "--to", "word2vec", "--out", run.folder / "new"],
    ):
        assert fail(*verb) == [said]
    assert fail("train", path, "--out", run.folder, "--resume")[0].startswith(
        f"{path}: step-00000020 was trained with"
    )
    succeed("predict", run.folder, "a", "--accept-recipe")
    with pytest.raises(CheckpointError, match="was trained with another recipe"):
        load(run.folder)
    assert load(run.folder, accept_recipe=True).score("a", "a") == score(
        run.folder, "a", "a", accept_recipe=True
    )


def test_what_a_user_may_change_in_a_recipe(tmp_path: Path) -> None:
    """What a resumed training may change, and where files are; a field that is missing has its
    default."""
    pairs = write(tmp_path / "a.tsv", "a b\tb a\n")
    test = json.dumps({"file": str(pairs), "source": 0, "target": 1})
    run = train(RECIPE, ["training.steps=2", f"data.test={test}"], out=tmp_path / "run", quiet=True)
    pairs.rename(tmp_path / "moved.tsv")
    path = run.folder / "recipe.yaml"
    text = (
        path.read_text()
        .replace("log_every: 5", "log_every: 7")
        .replace("  repetition_penalty: 1.0\n", "")
    )
    path.write_text(text.replace("a.tsv", "moved.tsv"))
    assert evaluate(run.folder, split="test", device="cpu").keys() >= {"bleu"}


def test_files_that_name_another_checkpoint(run: Run, tmp_path: Path) -> None:
    best = run.folder / "best"
    right = best.read_text()
    [wrong] = {"step-00000010\n", "step-00000020\n"} - {right}
    best.write_text(wrong)
    said = (
        f"{best}: it names {wrong.strip()}, but the best checkpoint is {right.strip()}, as "
        "step-00000020 says "
        f"(write {right.strip()} into it; or --checkpoint {wrong.strip()} uses the other one)"
    )
    assert fail("predict", run.folder, "a") == [said]
    succeed("predict", run.folder, "a", "--checkpoint", wrong.strip())
    succeed("train", run.folder / "recipe.yaml", "--out", run.folder, "--resume")
    assert best.read_text() == right
    best.write_text("step-00000099\n")
    assert "there is no such checkpoint" in fail("predict", run.folder, "a")[0]
    best.write_text(right)
    facts, first = run.checkpoint() / "checkpoint.json", run.checkpoint("10") / "checkpoint.json"
    second = run.checkpoint("20") / "checkpoint.json"
    kept = {path: path.read_bytes() for path in (first, second)}
    second.write_bytes(kept[first])
    said = f"{second}: the file is missing or damaged: it is of another checkpoint, step-00000010"
    assert fail("predict", run.folder, "a", "--checkpoint", "20")[0].startswith(said)
    another = train(RECIPE, ["training.learning_rate=0.02"], out=tmp_path / "another", quiet=True)
    facts.write_bytes((another.checkpoints / facts.parent.name / "checkpoint.json").read_bytes())
    assert "training.learning_rate is 0.01, not 0.02" in fail("predict", run.folder, "a")[0]
    said = f"{facts}: it is of another checkpoint: no file beside it has the checksum that it gives"
    assert fail("predict", run.folder, "a", "--accept-recipe")[0].startswith(said)
    old = json.loads(kept.get(facts, kept[second]))
    facts.write_text(json.dumps({name: old[name] for name in ("step", "best", "tokenizer")}))
    said = (
        f"{facts}: it has no checksums, which every checkpoint of this run has: it is of "
        "another run"
    )
    assert fail("predict", run.folder, "a")[0].startswith(said)


def test_a_cache_entry_is_verified_when_a_training_starts(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever its size and times say; elsewhere a file that cannot be read is enough to make it
    anew."""
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    expected = (
        TASKS[run.recipe.task].prepare(run.recipe, run.folder).train.columns["target"][0].tolist()
    )

    def remembered(folder: Path) -> None:
        """Its files as if they had been found whole like this."""
        stats = {
            path.name: path.stat()
            for path in folder.iterdir()
            if path.name not in (MANIFEST, VERIFIED)
        }
        stamps = {
            name: [file.st_size, file.st_mtime_ns, file.st_ctime_ns] for name, file in stats.items()
        }
        write(folder / VERIFIED, json.dumps(stamps))

    def first() -> list[int]:
        return list(run.task.prepare(run.recipe, run.folder).train.columns["target"][0].tolist())

    [values] = tmp_path.glob("cache/encoded-*/train.target.values")
    whole = values.read_bytes()
    values.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    remembered(values.parent)
    assert first() != expected, "it is trusted"
    train(RECIPE, out=tmp_path / "again", quiet=True)
    assert values.read_bytes() == whole
    assert "damaged" in caplog.text
    values.with_name("train.target.offsets.npy").write_bytes(b"")
    remembered(values.parent)
    assert first() == expected
    assert (values.parent / "train.target.offsets.npy").stat().st_size


def test_a_damaged_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "cache"))
    recipe, base = load_recipe(RECIPE, ["data.train.size=40"])

    def tokens() -> list[list[int]]:
        column = TASKS[recipe.task].prepare(recipe, base).train.columns["target"]
        return [column[row].tolist() for row in range(len(column))]

    expected = tokens()
    kept = {path: path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert len(kept) > 15
    for path, data in [*kept.items()][::3]:
        caplog.clear()
        flip(path, 4 * len(data)) if data else path.unlink()
        assert tokens() == expected
        [line] = [
            record.getMessage() for record in caplog.records if record.name.startswith("regard")
        ]
        assert path.parent.name in line
        assert "damaged" in line
        assert path.read_bytes() == data


def test_a_flipped_or_cut_file_gives_the_right_answer_or_a_message(
    trained: Path, tmp_path: Path
) -> None:
    """Never a traceback. What a resumed training may change is not compared."""
    expected: dict[str, Any] = {}
    folder = tmp_path / "run"

    def exported() -> dict[str, bytes]:
        out = tmp_path / f"exported{generator.random()}"
        export_run(folder, to="huggingface", out=out)
        return {name: data for name, data in contents(out).items() if name != "README.md"}

    verbs: dict[str, Callable[[], Any]] = {
        "predict": lambda: [one.to_json() for one in predict(folder, ["a b c"])],
        "export": exported,
        "resume": lambda: {name: tensor.tolist() for name, tensor in resume(folder).items()},
        "compare": lambda: compare([folder, trained], split="test").baseline,
    }
    generator, outcomes = random.Random(1), Counter[str]()
    for name in [
        "",
        *(name for name in contents(trained) if name != ".lock" and "tensorboard" not in name),
    ]:
        for verb, use in verbs.items():
            if verb in ("compare", "export") and name not in (
                "",
                "metrics.jsonl",
                "environment.json",
            ):
                continue
            shutil.copytree(trained, folder)
            if not name:
                expected[verb] = use()
            elif generator.random() < 0.5:
                flip(folder / name, generator.randrange(8 * (folder / name).stat().st_size))
            else:
                os.truncate(folder / name, generator.randrange((folder / name).stat().st_size))
            try:
                right = (
                    use() == expected[verb] or Run.open(folder).recipe != Run.open(trained).recipe
                )
                outcomes["right" if right else f"{verb} after damage to {name}"] += 1
            except RegardError:
                outcomes["refused"] += 1
            shutil.rmtree(folder)
    assert outcomes.keys() == {"right", "refused"}


TENSORS, FACTS, SURROUNDINGS = "model.safetensors", "checkpoint.json", "environment.json"
NO_CHECKPOINT = "there is no such checkpoint"
DAMAGES: list[tuple[str, str, Any, str]] = [
    *(
        ("predict resume", *damage)
        for damage in [
            (TENSORS, 0.5, r"model\.safetensors: the file is damaged"),
            (TENSORS, 0.0, r"model\.safetensors: the file is damaged"),
            (TENSORS, None, r"model\.safetensors: there is no such"),
            (TENSORS, "folder", r"model\.safetensors: cannot be read: Is a dir"),
            (TENSORS, "link", r"model\.safetensors: is a link to gone"),
            (FACTS, None, r"checkpoint\.json: the file is missing"),
            *(
                (FACTS, how, r"checkpoint\.json: the file is missing or damaged")
                for how in (0.5, b"[1]", b'"tokenizer"', b'{"tokenizer": 1, "step": "a"}')
            ),
            ("tokenizer.json", None, r"tokenizer\.json: there is no such"),
            ("tokenizer.json", 0.5, r"tokenizer\.json: "),
            ("", None, NO_CHECKPOINT),  # the whole of it
            ("recipe.yaml", b"task: translation", "data: this key is req"),
            (SURROUNDINGS, b'{"format": 99, "regard": "9.0"}', r"newer regard, 9\.0"),
            *(
                (SURROUNDINGS, how, r"environment\.json: cannot be read")
                for how in (0.5, b"[]", b'{"format": "1", "regard": ""}', b"[" * 100_000)
            ),
        ]
    ),
    ("predict", "best", b"\xff\xfe", NO_CHECKPOINT),
    ("predict", "best", b"a" * 5000, NO_CHECKPOINT),
    ("resume", "last", b"\xff", NO_CHECKPOINT),
    *(
        ("export compare", "metrics.jsonl", content, rf"metrics\.jsonl:{line}: the line is damaged")
        for content, line in (
            (b'{"event": "validation", "step": 1}\n{"event": \n', 2),
            (b"\xff\n", 1),
            (b"[]\n", 1),
            (b'{"event": "train", "step": 1}\n', 1),
        )
    ),
]
"""Who refuses it; the file; what is put there, or the share that is left of it; the message."""


@pytest.mark.parametrize(("verbs", "name", "how", "said"), DAMAGES)
def test_what_is_damaged_is_named(
    run: Run, tmp_path: Path, verbs: str, name: str, how: Any, said: str
) -> None:
    path = (run.checkpoint() if name in (TENSORS, FACTS, "") else run.folder) / name
    if isinstance(how, bytes):
        path.write_bytes(how)
    elif isinstance(how, float):
        os.truncate(path, int(path.stat().st_size * how))
    else:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        if how is not None:
            path.mkdir() if how == "folder" else path.symlink_to("gone")
    uses: dict[str, Callable[[], object]] = {
        "predict": lambda: predict(run.folder, ["a"]),
        "resume": lambda: resume(run.folder),
        "export": lambda: export_run(run.folder, to="huggingface", out=tmp_path / "out"),
        "compare": lambda: compare([run.folder, run.folder], split="test"),
    }
    for verb in verbs.split():
        with pytest.raises(RegardError if verb == "resume" else CheckpointError, match=said):
            uses[verb]()


def forget_checksums(run: Run) -> None:
    """As in checkpoints of the first version."""
    surroundings = run.folder / "environment.json"
    surroundings.write_text(json.dumps(json.loads(surroundings.read_text()) | {"format": 1}))
    path = run.checkpoint("last") / "checkpoint.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({name: facts[name] for name in ("step", "best", "tokenizer")}))


@pytest.mark.filterwarnings("ignore")
def test_flipped_bytes_in_a_state_never_give_a_traceback(run: Run) -> None:
    """Whatever the reader stumbles over, it is told as a damaged file; where it does not, the
    values are plain."""
    forget_checksums(run)
    path, generator, refused = (
        run.checkpoint("last") / "training.pt",
        torch.Generator().manual_seed(1),
        0,
    )
    data = path.read_bytes()
    for _ in range(150):
        spoilt = bytearray(data)
        for place in torch.randint(len(data), (8,), generator=generator).tolist():
            spoilt[place] ^= 1 + int(torch.randint(255, (), generator=generator))
        path.write_bytes(spoilt)
        try:
            load_training(path.parent)
        except CheckpointError:
            refused += 1
    assert refused > 50


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("archive", [True, False])
def test_code_in_a_state_is_refused_and_not_run(run: Run, tmp_path: Path, archive: bool) -> None:
    forget_checksums(run)
    path = run.checkpoint("last") / "training.pt"
    if archive:
        torch.save({"optimiser": Malicious(tmp_path / "taken")}, path)
    else:
        path.write_bytes(pickle.dumps({"optimiser": Malicious(tmp_path / "taken")}, protocol=2))
    with pytest.raises(CheckpointError, match=r"training\.pt"):
        resume(run.folder)
    assert not (tmp_path / "taken").exists()
    torch.load(path, weights_only=False) if archive else pickle.loads(
        path.read_bytes()
    )  # this runs it
    assert (tmp_path / "taken").exists()


def test_weights_of_another_model_are_refused(run: Run) -> None:
    weights = load_weights(run.checkpoint("last"))
    name = next(name for name, tensor in weights.items() if tensor.dim() == 2)
    model = run.task.network.build()
    with pytest.raises(CheckpointError, match=name):
        put_weights(model, weights | {name: weights[name][:, 1:]}, run.folder)
    with pytest.raises(CheckpointError, match=name):
        put_weights(
            model, {key: value for key, value in weights.items() if key != name}, run.folder
        )
    with pytest.raises(CheckpointError, match="another"):
        put_weights(model, weights | {"another": torch.zeros(1)}, run.folder)


def test_a_changed_digit_and_a_lost_line_of_the_log(run: Run, tmp_path: Path) -> None:
    """What reads it refuses it; a training continues, and says so once."""
    log = run.folder / "metrics.jsonl"
    whole = log.read_bytes()
    changed = re.sub(
        rb'("loss": \d\.\d)(\d)',
        lambda found: found[1] + b"%d" % (9 - int(found[2])),
        whole,
        count=1,
    )
    for content, what in (
        (changed, "it is not as it was written"),
        (whole[: whole.rindex(b"{")], "its end is missing"),
    ):
        log.write_bytes(content)
        said = (
            f"{log}: the file is damaged: {what} (copy the file back from elsewhere, or remove it"
        )
        assert fail("compare", run.folder, run.folder, "--split", "test")[0].startswith(said)
        assert fail("export", run.folder, "--to", "huggingface", "--out", tmp_path / "out")[
            0
        ].startswith(said)
    recipe = write(tmp_path / "recipe.yaml", json.dumps(RECIPE))
    more = [
        succeed("train", recipe, f"training.steps={steps}", "--out", run.folder, "--resume")
        for steps in (22, 24)
    ]
    note = (
        "metrics.jsonl: the file is damaged: its end is missing; the training is not, and "
        "continues\n"
    )
    assert [note in one.err for one in more] == [True, False]
    log.write_bytes(log.read_bytes().replace(b'"event"', b'"evnt"', 1))
    last = succeed("train", recipe, "training.steps=26", "--out", run.folder, "--resume")
    assert f"done: {run.folder}" in last.err
    log.unlink()
    compared = succeed("compare", run.folder, run.folder, "--split", "test").out
    assert "the run has no metrics.jsonl, so nothing is known about its training." in " ".join(
        compared.split()
    )
    assert (
        compare([run.folder, run.folder], split="test").tables["systems"][0]["training_steps"]
        is None
    )


@pytest.mark.parametrize("number", ["9" * 5000, "9" * 300, "²", "a" * 300, "..", ""])
def test_checkpoints_that_no_run_has(run: Run, number: str) -> None:
    with pytest.raises(CheckpointError, match="there is no such checkpoint"):
        predict(run.folder, ["a"], checkpoint=number)


STATES: dict[str, Callable[[dict[str, Any]], object]] = {
    "no optimiser": lambda state: state.pop("optimiser"),
    "no progress": lambda state: state.pop("progress"),
    "no generators": lambda state: state.pop("random"),
    "a huge batch": lambda state: state["progress"].update(position={"epoch": 0, "index": 10**15}),
    "a batch before the first": lambda state: state["progress"].update(
        position={"epoch": 0, "index": -1}
    ),
    "a step that is no number": lambda state: state["progress"].update(step="many"),
    "a length that is no number": lambda state: state["progress"].update(log_length=None),
    "another optimiser": lambda state: state["optimiser"].update(param_groups=[]),
    "other generators": lambda state: state["random"][0].update(cpu=torch.zeros(3)),
}


@pytest.mark.parametrize("state", STATES)
def test_states_of_another_shape(run: Run, state: str) -> None:
    """In a checkpoint of an older version, which has no checksums."""
    folder = run.checkpoint("last")
    forget_checksums(run)
    training = torch.load(folder / "training.pt", weights_only=True)
    STATES[state](training)
    torch.save(training, folder / "training.pt")
    before = contents(run.folder)
    with pytest.raises(CheckpointError, match=r"training\.pt: the file is damaged"):
        resume(run.folder)
    assert contents(run.folder) | {".lock": b""} == before | {".lock": b""}


NOBODY = 65534
PLAIN = (
    "task: translation\ndata: {train: {source: a.s, target: a.t}}\nmodel: {kind: "
    "rnn}\ntraining: {steps: 1}\n"
)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Files are opened as a user who owns none; the superuser could open all."""
    set_user = ctypes.CDLL(None).setfsuid
    before = set_user(NOBODY)
    try:
        yield
    finally:
        set_user(before)


@pytest.fixture(scope="module")
def closable(tiny_run: Path) -> Iterator[Path]:
    """A folder that all may enter, which that of the tests is not, with a run, a recipe and its
    data."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copytree(tiny_run, folder / "run")
        write(
            folder / "a.s", "".join(f"{one} {other}\n" for one in "abcdefg" for other in "abcdefg")
        )
        write(folder / "a.t", "x y\n" * 49)
        write(folder / "pairs.tsv", "source\ttarget\n" + "a b\tb a\n" * 3)
        write(folder / "recipe.yaml", PLAIN)
        (folder / "new").mkdir()
        for command in (
            "check recipe.yaml",
            "predict run a",
            "explain run a",
            "compare run run --file pairs.tsv",
        ):
            succeed(
                *(folder / word if (folder / word).exists() else word for word in command.split())
            )  # imports all
        yield folder


@pytest.mark.parametrize(
    ("closed", "command", "named"),
    [
        ("recipe.yaml", "check {}/recipe.yaml", "{}/recipe.yaml"),
        ("a.s", "check {}/recipe.yaml", "a.s"),
        ("a.s", "predict {}/run --file {}/a.s", "{}/a.s"),
        ("run/recipe.yaml", "predict {}/run a", "{}/run/recipe.yaml"),
        ("run/environment.json", "predict {}/run a", "{}/run/environment.json"),
        ("run/tokenizer.json", "predict {}/run a", "{}/run/tokenizer.json"),
        ("run/best", "predict {}/run a", "{}/run/best"),
        ("run/metrics.jsonl", "compare {}/run {}/run --file {}/pairs.tsv", "{}/run/metrics.jsonl"),
        ("run/checkpoints", "predict {}/run a", "{}/run/checkpoints"),
        (
            "run/checkpoints/*/model.safetensors",
            "predict {}/run a",
            "{}/run/checkpoints/step-00000020/model.safetensors",
        ),
        ("run", "predict {}/run a", "{}/run/recipe.yaml"),
        ("new", "train {}/recipe.yaml --out {}/new/run", "{}/new/run"),
        ("new", "predict {}/run a --record {}/new/out.json", "{}/new/out.json"),
        ("new", "explain {}/run a --out {}/new/out.svg", "{}/new/out.svg"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="another user is made in the way of Linux")
def test_no_permission(closable: Path, closed: str, command: str, named: str) -> None:
    [path] = closable.glob(closed)
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        with as_nobody():
            [message] = fail(*command.replace("{}", str(closable)).split())
    finally:
        path.chmod(mode)
    assert re.match(
        rf"{re.escape(named.replace('{}', str(closable)))}: .*Permission denied", message
    )
