"""Prefetch: the same batches, in the same order, resumable, and no thread left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tmln.streams import make_stream, prefetch

DEPTHS = pytest.mark.parametrize("depth", [0, 1, 3])


def batches(seed: int, state: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
    """Augmented batches, each with the generator's state after it, as a learner would make them."""
    stream = make_stream("split-digits")
    generator = torch.Generator().manual_seed(seed)
    if state is not None:
        generator.set_state(state)
    for _ in range(6):
        rows = torch.randint(0, len(stream[0].train), (8,), generator=generator)
        x, _ = stream[0].train.gather(rows)
        yield stream.augment(x, generator) + torch.rand(1, generator=generator), generator.get_state()


@DEPTHS
def test_nothing_changes(depth: int) -> None:
    expected = [batch for batch, _ in batches(0)]
    found = [batch for batch, _ in prefetch(batches(0), depth)]
    assert len(found) == 6
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@DEPTHS
def test_resumed_from_the_state_a_batch_carries(depth: int) -> None:
    whole = list(batches(0))
    items = prefetch(batches(0), depth)
    next(items)
    _, state = next(items)
    items.close()
    resumed = prefetch(batches(0, state), depth)
    for (expected, _), (batch, _) in zip(whole[2:], resumed, strict=False):
        assert torch.equal(batch, expected)


@DEPTHS
def test_errors_arrive_after_what_came_before_them(depth: int) -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise RuntimeError("disk gone")

    items = prefetch(failing(), depth)
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(RuntimeError, match="disk gone"):
        next(items)


def test_an_early_end_stops_the_thread() -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    before = threading.active_count()
    items = prefetch(endless(), depth=2)
    assert [next(items), next(items)] == [0, 1]
    items.close()
    assert threading.active_count() == before


def test_it_works_ahead_but_not_far() -> None:
    made: list[int] = []

    def counted() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    items = prefetch(counted(), depth=2)
    next(items)
    end = time.monotonic() + 600
    while len(made) < 4 and time.monotonic() < end:
        time.sleep(0.01)
    assert len(made) == 4  # one taken, two waiting, one in hand
    items.close()
