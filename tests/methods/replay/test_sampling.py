"""The beginning of a permutation: torch's own, whatever is left out on the way."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tmln.methods.replay import Reservoir, reservoir
from tmln.methods.replay.reservoir import draw_permutation


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
