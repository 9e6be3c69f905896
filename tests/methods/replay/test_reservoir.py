"""The reservoir: algorithm R to the letter, in law, and across a save."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from tests.methods.replay.oracle import one_by_one
from tmln.methods.replay import Reservoir, reservoir
from tmln.methods.replay.reservoir import assign_slots, draw_permutation


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


# -- the beginning of a permutation: torch's own, whatever is left out on the way


def shortened(total: int, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The draw, and the generator after it, as if this total were a large one."""
    generator = torch.Generator().manual_seed(seed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reservoir, "LARGE", range(total, total + 1))
        patched.setattr(reservoir, "FEW", 0)
        patched.setattr(torch, "randperm", None)
        return draw_permutation(total, count, generator), generator.get_state()


@settings(max_examples=60, deadline=None)
@given(total=st.integers(1, 3000), share=st.floats(0, 1), seed=st.integers(0, 9))
def test_it_is_torchs_and_leaves_the_generator_as_torch_does(total: int, share: float, seed: int) -> None:
    count = min(total - 1, round(share * total))
    found, after = shortened(total, count, seed)
    generator = torch.Generator().manual_seed(seed)
    assert torch.equal(found, torch.randperm(total, generator=generator)[:count])
    assert torch.equal(after, generator.get_state())


@pytest.mark.parametrize("total", [2**18 - 1, 2**18, 700_001])
def test_sizes_about_those_where_it_changes(total: int) -> None:
    first, second = (torch.Generator().manual_seed(1) for _ in range(2))
    found = draw_permutation(total, 100, first)
    assert torch.equal(found, torch.randperm(total, generator=second)[:100])
    assert torch.equal(first.get_state(), second.get_state())


def test_a_large_memory_draws_without_a_permutation(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Reservoir(2**18)
    memory.add(torch.arange(2**18))
    generator = torch.Generator().manual_seed(0)
    torch.rand(2**18, generator=generator, dtype=torch.float64)
    expected = torch.randperm(2**18, generator=generator)[:50]
    monkeypatch.setattr(torch, "randperm", None)
    assert torch.equal(memory.sample(50), expected)


# -- draws recorded on 2026-11-17, when a memory took (x, y) alone: the same seed still gives the same bits


KEPT = [0, 16, 19, 8, 13, 12]


def digest(value: Tensor) -> str:
    return sha256(value.numpy().tobytes()).hexdigest()[:16]


def filled() -> Reservoir:
    """Twenty samples in batches of five through six slots."""
    memory = Reservoir(6, seed=3)
    for k in range(4):
        n = torch.arange(5 * k, 5 * k + 5)
        memory.add(torch.stack([n, -n], 1).to(torch.int16), n, logits=n[:, None] / 2)
    return memory


def goes_on(memory: Reservoir) -> tuple[list[int], list[int]]:
    """What is kept after fifty more samples, and a draw then."""
    memory.add(torch.zeros(50, 2, dtype=torch.int16), torch.arange(100, 150), logits=torch.zeros(50, 1))
    return memory.state_dict()["fields"]["y"].tolist(), memory.draw(3)["y"].tolist()


AFTER = ([149, 16, 119, 104, 133, 106], [119, 149, 133])


def drawn_from(memory: Reservoir) -> None:
    assert len(memory.draw(0)["y"]) == 0  # a draw all the same
    assert [memory.draw(4)["y"].tolist(), memory.draw(9)["y"].tolist()] == [[8, 19, 12, 0], [12, 19, 8, 16, 13, 0]]
    found = memory.draw(3)
    assert found["x"].tolist() == [[16, -16], [19, -19], [12, -12]]
    assert found["logits"].tolist() == [[8.0], [9.5], [6.0]]


def test_what_is_kept_and_drawn() -> None:
    memory = filled()
    assert memory.state_dict()["fields"]["y"].tolist() == KEPT
    drawn_from(memory)
    assert goes_on(memory) == AFTER


def test_the_state_has_the_same_form() -> None:
    memory = filled()
    drawn_from(memory)
    state = memory.state_dict()
    assert list(state) == ["capacity", "seen", "generator", "fields"]
    assert (state["capacity"], state["seen"]) == (6, 20)
    assert digest(state["generator"]) == "c8d191e4dc25b126"
    assert {name: (value.dtype, tuple(value.shape)) for name, value in state["fields"].items()} == {
        "x": (torch.int16, (6, 2)),
        "y": (torch.int64, (6,)),
        "logits": (torch.float32, (6, 1)),
    }


def test_a_state_saved_then_is_loaded() -> None:
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        torch.rand(5, generator=generator, dtype=torch.float64)
    for _ in range(4):
        torch.randperm(6, generator=generator)
    kept = torch.tensor(KEPT)
    fields = {"x": torch.stack([kept, -kept], 1).to(torch.int16), "y": kept, "logits": kept[:, None] / 2}
    saved: dict[str, Any] = {"capacity": 6, "seen": 20, "generator": generator.get_state(), "fields": fields}
    memory = Reservoir(6)
    memory.load_state_dict(saved)
    assert goes_on(memory) == AFTER


def test_a_larger_memory() -> None:
    memory = Reservoir(1000, seed=11)
    for k in range(20):
        memory.add(torch.zeros(500, 1), torch.arange(500 * k, 500 * k + 500))
    assert digest(torch.cat([y for _, y in memory.batches(128)])) == "ffe021549c7eb1b5"
    assert digest(torch.cat([memory.sample(10)[1] for _ in range(20)])) == "de6c4d09c89310a7"
