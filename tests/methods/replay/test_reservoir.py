"""The reservoir: algorithm R to the letter, in law, and across a save."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from tests.methods.replay.oracle import one_by_one
from tmln.methods.replay import Reservoir
from tmln.methods.replay.reservoir import assign_slots


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(0, 40), max_size=6), capacity=st.integers(0, 12), seed=st.integers(0, 9))
def test_batches_equal_one_by_one(sizes: list[int], capacity: int, seed: int) -> None:
    memory, n = Reservoir(capacity, seed), 0
    for size in sizes:
        numbers = torch.arange(n, n + size)
        memory.add(numbers[:, None], numbers)
        n += size
        assert len(memory) == min(n, capacity)
    kept = [int(i) for _, y in memory.batches(5) for i in y]
    assert kept == one_by_one(sizes, capacity, seed)
    assert memory.seen == n


@pytest.mark.slow
def test_every_sample_is_kept_equally_often() -> None:
    """200 samples, 20 slots, 2000 reservoirs: 200 expected of each."""
    counts = torch.zeros(200)
    for seed in range(2000):
        memory = Reservoir(20, seed)
        for start in range(0, 200, 40):
            memory.add(torch.zeros(40, 1), torch.arange(start, start + 40))
        counts[torch.cat([y for _, y in memory.batches(20)])] += 1
    assert counts.sum() == 2000 * 20
    # not independent draws (exactly 20 of 200 each time), which shrinks the statistic by 1 - 20/200
    statistic, _ = chisquare(counts.numpy())
    assert 120 < statistic / 0.9 < 290  # 199 degrees of freedom: about four deviations to each side


def test_a_seeded_trace() -> None:
    generator = torch.Generator().manual_seed(0)
    rows, slots = assign_slots(seen=0, count=10, capacity=3, generator=generator)
    kept = dict(zip(slots.tolist(), rows.tolist(), strict=True))
    assert [kept[i] for i in range(3)] == one_by_one([10], 3, 0)


def test_sampling_without_replacement() -> None:
    memory = Reservoir(50, seed=1)
    memory.add(torch.arange(50)[:, None].to(torch.uint8), torch.arange(50))
    x, y = memory.sample(20)
    assert len(set(y.tolist())) == 20
    assert x.dtype == torch.uint8
    assert torch.equal(x[:, 0].long(), y)
    assert len(memory.sample(80)[1]) == 50
    counts = torch.zeros(50)
    for _ in range(2000):
        counts[memory.sample(5)[1]] += 1
    assert chisquare(counts.numpy()).pvalue > 1e-4


def test_state_dict_goes_on_exactly() -> None:
    first = Reservoir(10, seed=3)
    first.add(torch.randn(25, 2), torch.arange(25), logits=torch.randn(25, 4))
    first.sample(3)
    second = Reservoir(10, seed=99)
    second.load_state_dict(first.state_dict())
    for memory in (first, second):
        generator = torch.Generator().manual_seed(5)
        memory.add(torch.randn(30, 2, generator=generator), torch.arange(30), logits=torch.ones(30, 4))
    a, b = first.draw(7), second.draw(7)
    assert a.keys() == b.keys() == {"x", "y", "logits"}
    assert all(torch.equal(a[key], b[key]) for key in a)
    with pytest.raises(ValueError, match="capacity 11"):
        Reservoir(11).load_state_dict(first.state_dict())


def test_a_loaded_memory_shares_nothing() -> None:
    first = Reservoir(4)
    first.add(torch.zeros(4, 1), torch.zeros(4, dtype=torch.long))
    state = first.state_dict()
    second = Reservoir(4)
    second.load_state_dict(state)
    second.add(torch.ones(400, 1), torch.ones(400, dtype=torch.long))
    assert first.sample(4)[0].sum() == 0
    assert state["fields"]["x"].sum() == 0


def test_global_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    memory = Reservoir(5)
    memory.add(torch.zeros(20, 1), torch.zeros(20))
    memory.sample(3)
    assert torch.equal(before, torch.get_rng_state())


def test_the_seed_is_0_unless_given() -> None:
    kept = []
    for memory in (Reservoir(5), Reservoir(5, 0)):
        memory.add(torch.zeros(200, 1), torch.arange(200))
        kept.append(memory.sample(5)[1].tolist())
    assert kept[0] == kept[1]


def test_nothing_is_drawn_where_nothing_is_asked_for() -> None:
    memory = Reservoir(5)
    memory.add(torch.zeros(3, 2), torch.arange(3))
    assert [tuple(t.shape) for t in memory.sample(0)] == [(0, 2), (0,)]


def test_batches_hold_what_is_stored_and_no_more() -> None:
    memory = Reservoir(50)
    memory.add(torch.zeros(7, 2), torch.arange(7))
    assert [y.tolist() for _, y in memory.batches(3)] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_loaded_memory_has_the_fields_of_the_saved_one_only() -> None:
    first, second = Reservoir(4), Reservoir(4)
    first.add(torch.zeros(4, 1), torch.arange(4))
    second.add(torch.zeros(4, 1), torch.arange(4), logits=torch.zeros(4, 2))
    second.load_state_dict(first.state_dict())
    assert second.draw(2).keys() == {"x", "y"}


def test_no_room_at_all() -> None:
    memory = Reservoir(0)
    memory.add(torch.zeros(20, 1), torch.zeros(20))
    assert len(memory) == 0
    with pytest.raises(ValueError, match="empty"):
        memory.sample(1)


def test_bad_input_leaves_the_memory_as_it_was() -> None:
    memory = Reservoir(8)
    x, y = torch.zeros(6, 3, dtype=torch.uint8), torch.arange(6)
    memory.add(x, y, logits=torch.zeros(6, 2))
    with pytest.raises(ValueError, match="capacity must be"):
        Reservoir(-1)
    with pytest.raises(ValueError, match=r"got torch\.float32"):
        memory.add(x.float(), y, logits=torch.zeros(6, 2))
    with pytest.raises(ValueError, match=r"shape \(4,\)"):
        memory.add(torch.zeros(6, 4, dtype=torch.uint8), y, logits=torch.zeros(6, 2))
    with pytest.raises(ValueError, match="fields x, y, logits; got x, y"):
        memory.add(x, y)
    with pytest.raises(ValueError, match="'y' has shape"):
        memory.add(x, y[:3], logits=torch.zeros(6, 2))
    with pytest.raises(ValueError, match=r"'logits' has shape \(\)"):
        memory.add(x, y, logits=torch.tensor(0.0))
    with pytest.raises(ValueError, match=r"shape \(\)"):
        memory.add(x[:, 0], y, logits=torch.zeros(6, 2))
    with pytest.raises(ValueError, match="cannot draw -1"):
        memory.draw(-1)
    assert memory.seen == len(memory) == 6
