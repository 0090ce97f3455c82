"""The order of batches, their budget and padding, resuming, sharding, and preparing ahead."""

import os
import threading
from concurrent.futures import Future
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batches import Batch
from regard.data.dataset import Dataset
from regard.data.epochs import (
    START,
    Position,
    Stream,
    auto_batch_tokens,
    fixed_batches,
    plan,
    row_sizes,
)
from regard.data.store import TextColumn, TokenColumn
from regard.engine import prefetch
from regard.engine.prefetch import ahead
from regard.text.tokenizers import TokenizerConfig, Tokenizers, train_tokenizers
from regard.text.vocabularies import BEGIN, END, PAD
from task_cases import make_task


@pytest.fixture(scope="module")
def tokenizers() -> Tokenizers:
    return train_tokenizers(
        TokenizerConfig(kind="byte"), {"source": ["a"], "target": ["a"]}, Path()
    )


def dataset_of(
    tokenizers: Tokenizers, source: Any, target: Any, weights: tuple[float, ...] = (1.0,)
) -> Dataset:
    """Examples of these lengths, shared out evenly to corpora; token k of example i is 4 + (i + k)
    % 50."""

    def column(lengths: Any) -> TokenColumn:
        return TokenColumn.of(
            [[4 + (i + k) % 50 for k in range(length)] for i, length in enumerate(lengths)]
        )

    columns = {"source": column(source), "target": column(target)}
    texts = {name: TextColumn.of([""] * len(source)) for name in columns}
    corpora = (np.arange(len(source)) * len(weights) // len(source)).astype(np.int16)
    return Dataset(
        make_task("translation", tokenizers).encoding, columns, texts, corpora, weights, str
    )


def long_tailed(tokenizers: Tokenizers, size: int) -> Dataset:
    """Log-normal lengths up to hundreds of tokens, targets of about the source's length."""
    random = np.random.default_rng(0)
    source = np.maximum(1, random.lognormal(2.8, 0.7, size)).astype(int)
    return dataset_of(
        tokenizers, source, np.maximum(1, source * random.lognormal(0, 0.2, size)).astype(int)
    )


@pytest.fixture(scope="module")
def examples(tokenizers: Tokenizers) -> Dataset:
    return long_tailed(tokenizers, 6000)


@pytest.fixture(scope="module")
def few(tokenizers: Tokenizers) -> Dataset:
    return long_tailed(tokenizers, 60)


def listed(batches: list[np.ndarray]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


class TestPlan:
    def test_another_epoch_or_seed_is_another_order_of_other_batches(
        self, examples: Dataset
    ) -> None:
        orders = [
            listed(plan(examples, 2048, seed, epoch)) for seed, epoch in [(1, 0), (1, 1), (2, 0)]
        ]
        assert orders[0] == listed(plan(examples, 2048, 1, 0))
        sets = [{frozenset(batch) for batch in order} for order in orders]
        for a, b in [(0, 1), (0, 2), (1, 2)]:
            assert orders[a] != orders[b]
            assert len(sets[a] & sets[b]) < len(sets[a]) / 3, "only the rare lengths may meet again"
        rising = np.mean(np.diff([examples.lengths[batch].max() for batch in orders[0]]) > 0)
        assert 0.4 < rising < 0.6, "batches do not come sorted by length"

    @given(st.integers(0, 99), st.integers(0, 5), st.integers(1, 600))
    def test_every_example_once_within_the_budget(
        self, few: Dataset, seed: int, epoch: int, budget: int
    ) -> None:
        batches, filled = (plan(few, budget, seed, epoch, fill=fill) for fill in (False, True))
        for planned in (batches, filled):
            assert sorted(i for batch in planned for i in batch.tolist()) == list(range(60))
        for batch in batches:
            longest = max(
                max(len(few.columns[c][i]) for c in ("source", "target")) + 1 for i in batch
            )
            assert len(batch) * longest <= budget or len(batch) == 1
        sizes = row_sizes(few, budget)
        for batch in filled:
            for column, size in (("source", sizes.first), ("target", sizes.second)):
                assert sum(len(few.columns[column][i]) + 1 for i in batch) <= size

    @pytest.mark.parametrize("budget", [1024, 2048])
    def test_little_padding_and_full_batches(self, examples: Dataset, budget: int) -> None:
        batches = plan(examples, budget, 1, 0)
        for column in examples.columns.values():
            filled = sum(column.lengths[batch].sum() + len(batch) for batch in batches)
            space = sum((column.lengths[batch].max() + 1) * len(batch) for batch in batches)
            assert 1 - filled / space <= 0.10
        assert (
            np.median([len(batch) * examples.lengths[batch].max() for batch in batches])
            > 0.9 * budget
        )

    def test_filled_batches_are_full_and_of_mixed_lengths(self, examples: Dataset) -> None:
        batches, sizes = plan(examples, 4096, 1, 0, fill=True), row_sizes(examples, 4096)
        assert listed(batches) != listed(plan(examples, 4096, 1, 1, fill=True))
        both = (("source", sizes.first), ("target", sizes.second))
        used = [
            [(examples.columns[c].lengths[batch] + 1).sum() / size for c, size in both]
            for batch in batches[:-1]
        ]
        assert np.mean(np.max(used, axis=1)) > 0.98
        assert all(np.ptp(examples.lengths[batch]) > 20 for batch in batches[:-1])

    def test_weights(self, tokenizers: Tokenizers) -> None:
        dataset = dataset_of(tokenizers, [5] * 100, [5] * 100, (1.0, 2.0, 0.5, 1.25, 0.001))
        shown = [
            np.bincount(np.concatenate(plan(dataset, 60, 1, epoch)), minlength=100)
            for epoch in (0, 1)
        ]
        for counts in shown:
            assert set(counts[:20]) == {1}
            assert set(counts[20:40]) == {2}
            assert sorted(counts[40:60]) == [0] * 10 + [1] * 10
            assert sorted(counts[60:80]) == [1] * 15 + [2] * 5
            assert counts[80:].sum() == 1, "a small weight still shows something"
        assert shown[0][40:60].tolist() != shown[1][40:60].tolist()
        tenth = dataset_of(tokenizers, [5] * 10, [5] * 10, (1.1,))
        assert sum(map(len, plan(tenth, 60, 1, 0))) == 11, "1.1 - 1 is a little more than 0.1"


def test_fixed_batches_hold_each_example_once_sorted(few: Dataset) -> None:
    batches = fixed_batches(few, 300)
    order = [i for batch in batches for i in batch.tolist()]
    assert sorted(order) == list(range(60))
    assert np.all(np.diff(few.lengths[order]) >= 0)
    assert all(len(batch) * few.lengths[batch].max() <= 300 or len(batch) == 1 for batch in batches)


@pytest.mark.parametrize(
    ("size", "length", "on_cpu", "expected"),
    [
        (100, 9, True, 1024),
        (20_000, 24, False, 5120),
        (100_000, 29, False, 16384),
        (100_000, 29, True, 4096),
    ],
    ids=[
        "not below 1024",
        "20,000 * 25 / 100 = 5,000 to a multiple of 256",
        "not above 16,384",
        "on a CPU 4,096",
    ],
)
def test_auto_batch_tokens(
    tokenizers: Tokenizers, size: int, length: int, on_cpu: bool, expected: int
) -> None:
    column = TokenColumn(np.zeros(0, np.int32), np.arange(size + 1) * length)
    columns = {"source": column, "target": column}
    dataset = Dataset(
        make_task("translation", tokenizers).encoding,
        columns,
        {},
        np.zeros(size, np.int16),
        (1.0,),
        str,
    )
    assert auto_batch_tokens(dataset, on_cpu=on_cpu) == expected


def test_batch_of(tokenizers: Tokenizers) -> None:
    batch = dataset_of(tokenizers, [2, 1, 3], [1, 3, 0]).batch(np.array([2, 0]))
    assert batch.source.ids_BL.tolist() == [[6, 7, 8, END], [4, 5, END, PAD]]
    assert batch.target.ids_BL.tolist() == [[BEGIN, END, PAD], [BEGIN, 4, END]]
    assert (batch.source.lengths_B.tolist(), batch.target.lengths_B.tolist()) == ([4, 3], [2, 3])
    assert (batch.examples, batch.tokens, batch.source.ids_BL.dtype) == ((2, 0), 1 + 2, torch.int64)


def test_a_dataset_in_memory(tokenizers: Tokenizers) -> None:
    texts = {"source": ["ab", "가"], "target": ["c", ""]}
    dataset = Dataset.of(
        make_task("translation", tokenizers).encoding, texts, lambda i: f"input {i + 1}"
    )
    assert len(dataset) == 2
    assert dataset.columns["source"].lengths.tolist() == [2, 3]
    assert dataset.lengths.tolist() == [3, 4]
    assert (dataset.texts["source"][1], dataset.where(1)) == ("가", "input 2")
    assert dataset.batch(np.array([1])).target.ids_BL.tolist() == [[BEGIN, END]]


class TestStream:
    @settings(max_examples=30)
    @given(st.integers(0, 40), st.integers(0, 9), st.integers(1, 4))
    def test_resume_is_the_tail(self, few: Dataset, start: int, seed: int, world: int) -> None:
        whole = list(islice(Stream(few, 200, seed, world=world), start + 12))
        position = whole[start - 1][1] if start else START
        tail = list(islice(Stream(few, 200, seed, position, world=world), 12))
        assert [after for _, after in tail] == [after for _, after in whole[start:]]
        for (batch, _), (again, _) in zip(whole[start:], tail, strict=True):
            assert batch.examples == again.examples
            assert torch.equal(batch.source.ids_BL, again.source.ids_BL)
            assert torch.equal(batch.target.ids_BL, again.target.ids_BL)

    @pytest.mark.parametrize("world", [2, 3, 50])
    def test_ranks_share_the_order_of_one_process(self, few: Dataset, world: int) -> None:
        """Groups reach over the ends of epochs, and there may be more processes than batches in
        one."""
        steps = 4 + 80 // world
        alone = [batch.examples for batch, _ in islice(Stream(few, 200, 1), steps * world)]
        ranks = [
            list(islice(Stream(few, 200, 1, rank=rank, world=world), steps))
            for rank in range(world)
        ]
        assert [ranks[i % world][i // world][0].examples for i in range(steps * world)] == alone
        for rank in ranks:
            assert [after for _, after in rank] == [after for _, after in ranks[0]]
        assert ranks[0][-1][1].epoch >= 2

    def test_epochs_follow_each_other_whole(self, few: Dataset) -> None:
        stream = Stream(few, 200, 1)
        counts = [stream.epoch_batches(epoch) for epoch in range(3)]
        assert counts == [len(plan(few, 200, 1, epoch)) for epoch in range(3)]
        batches = list(islice(stream, sum(counts)))
        planned = [tuple(batch) for epoch in range(3) for batch in listed(plan(few, 200, 1, epoch))]
        assert [batch.examples for batch, _ in batches] == planned
        assert batches[counts[0] - 1][1] == Position(1, 0)
        assert batches[counts[0]][1] == Position(1, 1)


def running() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "regard-batches"]


class TestAhead:
    @pytest.mark.parametrize("depth", [1, 2, 8])
    def test_nothing_is_lost_or_doubled(self, few: Dataset, depth: int) -> None:
        expected = [(batch.examples, after) for batch, after in islice(Stream(few, 200, 1), 40)]
        random_state = torch.get_rng_state()
        prepared = ahead(Stream(few, 200, 1).jobs(), depth)
        assert [(batch.examples, after) for batch, after in islice(prepared, 40)] == expected
        prepared.close()
        assert running() == []
        assert torch.equal(random_state, torch.get_rng_state())
        three = list(islice(Stream(few, 200, 1).jobs(), 3))
        assert [after for _, after in ahead(three, 2)] == [after for _, after in three]
        abandoned = ahead(Stream(few, 200, 1).jobs(), 2)
        next(abandoned)
        del abandoned
        assert running() == []

    @pytest.mark.parametrize("workers", [0, 1, 3])
    def test_threads_change_no_batch(self, few: Dataset, workers: int) -> None:
        """They come in order, though every third one takes longer."""
        slow = threading.Event()

        def late(batch: Batch) -> Batch:
            slow.wait(0.005 if batch.examples[0] % 3 == 0 else 0)
            return batch

        expected = [(batch.examples, after) for batch, after in islice(Stream(few, 200, 1), 40)]
        prepared = ahead(Stream(few, 200, 1).jobs(), 6, late, workers=workers)
        assert [(batch.examples, after) for batch, after in islice(prepared, 40)] == expected
        assert len(running()) == workers
        prepared.close()
        assert running() == []

    def test_more_threads_start_if_the_consumer_has_to_wait(
        self, few: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On a machine with three cores two, which make batches at the same time."""
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2}, raising=False)
        met = threading.Barrier(2, timeout=30)
        asked = threading.Semaphore(0)

        class AskedFor(Future[Any]):
            def done(self) -> bool:
                """Called when the consumer asks for the batch."""
                is_done = super().done()
                asked.release()
                return is_done

        monkeypatch.setattr(prefetch, "Future", AskedFor)

        def together(batch: Batch) -> Batch:
            if len(running()) == 2:
                met.wait()
            else:
                assert asked.acquire(timeout=30)  # the consumer has to wait for every batch
            return batch

        prepared = ahead(Stream(few, 200, 1).jobs(), 2, together)
        expected = [batch.examples for batch, _ in islice(Stream(few, 200, 1), 30)]
        assert [batch.examples for batch, _ in islice(prepared, 30)] == expected
        assert len(running()) == 2
        met.abort()
        prepared.close()
        assert running() == []

    def test_at_most_depth_batches_wait(self, few: Dataset) -> None:
        begun = threading.Semaphore(0)
        taken = []

        def counted():
            for item in Stream(few, 200, 1).jobs():
                taken.append(item)
                begun.release()
                yield item

        prepared = ahead(counted(), 3)
        next(prepared)
        for _ in range(4):  # the one that was taken, and three that wait
            assert begun.acquire(timeout=10)
        prepared.close()
        assert len(taken) == 4

    def test_an_error_reaches_the_consumer_after_the_good_batches(self, few: Dataset) -> None:
        def broken():
            yield from islice(Stream(few, 200, 1).jobs(), 2)
            raise OSError("the disk is gone")

        prepared = ahead(broken(), 4)
        assert len([next(prepared), next(prepared)]) == 2
        with pytest.raises(OSError, match="the disk is gone"):
            next(prepared)
        assert running() == []

    def test_batches_are_moved_in_the_thread(self, few: Dataset) -> None:
        threads = set()

        def move(batch: Batch) -> Batch:
            threads.add(threading.current_thread().name)
            return replace(batch, tokens=-batch.tokens)

        plain = [batch.tokens for batch, _ in islice(Stream(few, 200, 1), 5)]
        prepared = ahead(Stream(few, 200, 1).jobs(), 2, move)
        assert [-batch.tokens for batch, _ in islice(prepared, 5)] == plain
        prepared.close()
        assert threads == {"regard-batches"}
