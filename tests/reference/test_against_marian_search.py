"""Our search against that of `transformers`, on Marian and Pegasus models with the same weights.

Outputs and scores must be the same where the semantics agree: where outputs end by themselves, and
in a beam as wide as the space of outputs. They differ where a hypothesis ends: ours keeps its place
in the beam for good (test_search.py shows that by plain loops), theirs gives it to the next best
one.
"""

import ast
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from exchange_cases import TEXTS, printed_by_the_card, save_marian, save_pegasus, small_marian
from model_cases import SOURCES, batch_of, tokens_of
from regard.models.transformer import Transformer
from regard.runs import Run
from regard.search.config import SearchConfig
from regard.search.decode import search
from regard.search.hypotheses import Hypothesis
from regard.search.rules import Constraints
from regard.search.scoring import token_scores
from regard.text.vocabularies import BEGIN, END
from toy_models import ban_tokens

transformers = pytest.importorskip("transformers")

LIMIT = 4
WORDS = (4, 5, 6, 7, 8)
OTHERS = [token for token in range(13) if token not in (*WORDS, END)]
SPACE = sum(len(WORDS) ** n for n in range(LIMIT))
"""How many outputs there are of at most LIMIT tokens."""
NEVER = -1e8
"""Below it are the scores of what `transformers` fills a beam with that is wider than the space."""
Outputs = list[tuple[tuple[int, ...], float]]


@pytest.fixture(scope="module", name="pair", params=range(3))
def models_that_end(request: pytest.FixtureRequest) -> tuple[Transformer, Any]:
    """The two models in float64 with biases that let them end, and keep them from repeating one
    word for ever."""
    ours, theirs = (model.double() for model in small_marian())
    torch.manual_seed(request.param)
    bias_V = torch.randn(13, dtype=torch.float64)
    bias_V[END] = 2.5
    with torch.no_grad():
        for table_VD in (ours.source_embedding.weight, theirs.model.shared.weight):
            table_VD.mul_(
                0.9 ** (1 + request.param)
            )  # tied to the readout, so that logits differ between the seeds
        ours.output.linear.bias.copy_(bias_V)
        theirs.final_logits_bias.copy_(bias_V)
    return ours, theirs


def generated(
    theirs: Any, *, beam: int, nbest: int = 1, limit: int = LIMIT, **options: Any
) -> list[Outputs]:
    """What `transformers` writes for each source, with its scores."""
    source = tokens_of(SOURCES)
    visible_BS = torch.arange(source.ids_BL.shape[1]) < source.lengths_B[:, None]
    given = (
        {
            "num_beams": beam,
            "num_return_sequences": nbest,
            "max_new_tokens": limit,
            "suppress_tokens": OTHERS,
            "do_sample": False,
            "output_scores": True,
            "return_dict_in_generate": True,
        }
        | options
        | ({} if beam == 1 else {"early_stopping": "never"})
    )
    out = theirs.generate(input_ids=source.ids_BL, attention_mask=visible_BS.long(), **given)
    sequences = [tuple(row[1:]) for row in out.sequences.tolist()]
    cut = [ids[: ids.index(END) + 1] if END in ids else ids for ids in sequences]
    scores = [0.0] * len(cut) if beam == 1 else out.sequences_scores.tolist()
    rows = list(zip(cut, scores, strict=True))
    return [rows[b * nbest : (b + 1) * nbest] for b in range(len(SOURCES))]


def written(
    ours: Transformer, *, limit: int = LIMIT, prefixes: Any = (), banned: Any = (), **options: Any
) -> list[list[Hypothesis]]:
    """What we write for each source, of the same words."""
    wording = Constraints(prefixes, ban_tokens([*((token,) for token in OTHERS), *banned]))
    return search(
        ours, tokens_of(SOURCES), SearchConfig(max_length=limit, **options), constraints=wording
    )


def ended(outputs: Outputs) -> Outputs:
    return [output for output in outputs if output[0][-1] == END and output[1] > NEVER]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_a_beam_as_wide_as_the_space_ranks_and_scores_the_same(
    pair: tuple[Transformer, Any], alpha: float
) -> None:
    """`length_penalty` is the same exponent of the same length, `</s>` counted."""
    ours, theirs = pair
    expected = generated(theirs, beam=4 * SPACE, nbest=SPACE, length_penalty=alpha)
    for hypotheses, outputs in zip(
        written(ours, beam=SPACE, nbest=20, length_penalty=alpha), expected, strict=True
    ):
        same = ended(outputs)[:20]
        assert [hypothesis.tokens for hypothesis in hypotheses] == [ids for ids, _ in same]
        values = [hypothesis.objective for hypothesis in hypotheses]
        assert values == pytest.approx([value for _, value in same], abs=1e-5)


@pytest.mark.parametrize(
    ("options", "theirs_call_it"),
    [
        ({"no_repeat_ngram": 1}, {"no_repeat_ngram_size": 1}),
        ({"no_repeat_ngram": 2}, {"no_repeat_ngram_size": 2}),
        ({"min_length": 4}, {"min_new_tokens": 3}),
        ({"banned": [(4,), (5, 6), (6, 6, 7)]}, {"bad_words_ids": [[4], [5, 6], [6, 6, 7]]}),
        ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
    ],
    ids=lambda options: next(iter(options)),
)
def test_same_rules(
    pair: tuple[Transformer, Any], options: dict[str, Any], theirs_call_it: dict[str, Any]
) -> None:
    """Their `min_new_tokens` does not count `</s>`, our `min_length` does."""
    ours, theirs = pair
    found = written(ours, beam=SPACE, nbest=10, length_penalty=1.0, **options)
    expected = generated(theirs, beam=4 * SPACE, nbest=SPACE, length_penalty=1.0, **theirs_call_it)
    for hypotheses, outputs in zip(found, expected, strict=True):
        same = ended(outputs)[:10]
        assert [hypothesis.tokens for hypothesis in hypotheses][: len(same)] == [
            ids for ids, _ in same
        ]
        assert len(same) >= 5


PREFIX = (7, 5)
DIFFERENCES: dict[str, tuple[dict[str, Any], dict[str, Any], Any]] = {
    "their forced end costs nothing": (
        {},
        {"forced_eos_token_id": END},
        lambda log_p, best: sum(log_p[:-1]),
    ),
    "their score leaves the prefix out": (
        {"prefixes": [PREFIX] * len(SOURCES)},
        {
            "decoder_input_ids": torch.tensor([[BEGIN, *PREFIX]] * len(SOURCES)),
            "limit": LIMIT - len(PREFIX),
        },
        lambda log_p, best: sum(log_p[len(PREFIX) :]),
    ),
    "their score holds the repetition penalty": (
        {"repetition_penalty": 2.0},
        {"repetition_penalty": 2.0},
        lambda log_p, best: best.objective,
    ),
}
"""Our options, theirs, and what their score is, from log P of each token and our hypothesis."""


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_scores_that_differ(pair: tuple[Transformer, Any], difference: str) -> None:
    """Our score is log P of all tokens, always."""
    options, theirs_call_it, their_score = DIFFERENCES[difference]
    ours, theirs = pair
    found = written(ours, beam=SPACE, nbest=SPACE, length_penalty=0.0, **options)
    expected = generated(
        theirs, beam=4 * SPACE, nbest=4 * SPACE, length_penalty=0.0, **theirs_call_it
    )
    differing = 0
    for source, hypotheses, outputs in zip(SOURCES, found, expected, strict=True):
        values = {
            ids: value
            for ids, value in ended(outputs)
            if "forced" not in difference or len(ids) == LIMIT
        }
        for hypothesis in [hypothesis for hypothesis in hypotheses if hypothesis.tokens in values][
            :60
        ]:
            [log_p] = token_scores(ours, batch_of([source], [[BEGIN, *hypothesis.tokens]]))
            assert hypothesis.score == pytest.approx(sum(log_p), abs=1e-9)
            assert values[hypothesis.tokens] == pytest.approx(
                their_score(log_p, hypothesis), abs=1e-5
            )
            differing += abs(values[hypothesis.tokens] - hypothesis.score) > 1e-3
    assert differing > 5


# Whole folders, which bring the options of their search

FOLDERS: dict[str, Any] = {
    "marian": save_marian,
    "marian-two-vocabularies": partial(save_marian, shared=False),
    "pegasus": save_pegasus,
}


def imported(folder: Path, save: Any, end: float, overrides: list[str], **options: Any) -> Run:
    """A model with a bias that makes it end, and these options of generation; and what it is
    exported as again."""
    theirs = save(folder / "theirs")
    theirs.final_logits_bias[0, theirs.config.eos_token_id] = end
    theirs.generation_config.update(**options)
    theirs.save_pretrained(folder / "theirs")
    run = regard.import_run(folder / "theirs", out=folder / "run", overrides=overrides)
    regard.export_run(run, to="huggingface", out=folder / "again")
    return run


def written_by_both(run: Run, beam: int) -> list[list[int]]:
    """The same tokens from both."""
    folder = run.folder.parent / "again"
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    inputs = transformers.AutoTokenizer.from_pretrained(folder)(
        TEXTS, return_tensors="pt", padding=True
    )
    generated = theirs.generate(**inputs, num_beams=beam).tolist()
    target = run.tokenizers["target"]
    ours = [
        target.token_ids(prediction.nbest[0].tokens)
        for prediction in regard.predict(run, TEXTS, beam=beam)
    ]
    assert [ids[1 : 1 + len(best)] for ids, best in zip(generated, ours, strict=True)] == ours
    return ours


@pytest.mark.parametrize("save", FOLDERS.values(), ids=FOLDERS)
def test_greedy_and_beam_search_write_the_same(tmp_path: Path, save: Any) -> None:
    options = {"num_beams": 3, "length_penalty": 0.8, "no_repeat_ngram_size": 1}
    run = imported(tmp_path, save, 2.0, [], **options)
    search = run.recipe.search
    assert [search.beam, search.length_penalty, search.no_repeat_ngram] == [*options.values()]
    lengths = [len(ids) for beam in (1, 2, 3) for ids in written_by_both(run, beam)]
    assert 3 < max(lengths) < 50, "they end by themselves"
    [prediction] = regard.predict(run, ["A text of yours."])
    assert ast.literal_eval(printed_by_the_card(tmp_path / "again")) == [prediction.output]


def test_options_of_the_search_come_back_and_others_are_named(tmp_path: Path) -> None:
    """With a beam: their greedy search penalises repetition in logits, their beam search and ours
    in log P."""
    run = imported(
        tmp_path,
        save_marian,
        4.0,
        ["search.banned=[zebra]"],
        min_new_tokens=6,
        repetition_penalty=1.3,
    )
    assert (run.recipe.search.min_length, run.recipe.search.repetition_penalty) == (7, 1.3)
    assert min(map(len, written_by_both(run, 3))) == 7, "the shortest that is allowed"
    assert "`search.banned`" in (tmp_path / "again" / "README.md").read_text(encoding="utf-8")


def test_options_that_mean_something_else_there_are_named(tmp_path: Path) -> None:
    options = ["search.normalisation=wu", "search.beam=1", "search.repetition_penalty=1.2"]
    imported(tmp_path, save_marian, 4.0, options)
    card = (tmp_path / "again" / "README.md").read_text(encoding="utf-8")
    assert "`search.normalisation`" in card
    assert "`search.repetition_penalty`" in card
