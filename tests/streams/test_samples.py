"""Samples: exact reads, the same from every kind of storage."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tmln.streams import make_stream, prefetch
from tmln.streams.samples import JoinedSource, Samples, TensorSource, concat, select_classes

X = torch.arange(5 * 2 * 3 * 4, dtype=torch.uint8).view(5, 2, 3, 4)
Y = torch.tensor([0, 1, 0, 2, 1])
DEPTHS = pytest.mark.parametrize("depth", [0, 1, 3])


def stored(kind: str, folder: Path) -> Samples:
    """The same five images [2, 3, 4] (channels, height, width) in different storage."""
    if kind == "memory":
        return Samples.of(X, Y)
    pixels = X.permute(0, 2, 3, 1).contiguous()
    if kind == "channels_last":
        return Samples.of(pixels, Y, channels_last=True)
    np.save(folder / "x.npy", pixels.numpy())
    mapped = torch.from_numpy(np.load(folder / "x.npy", mmap_mode="c"))
    return Samples.of(mapped, Y, channels_last=True)


@pytest.mark.parametrize("kind", ["memory", "channels_last", "mapped"])
def test_gather_subset_and_x(kind: str, tmp_path: Path) -> None:
    samples = stored(kind, tmp_path)
    assert (len(samples), samples.shape, samples.classes) == (5, (2, 3, 4), (0, 1, 2))
    x, y = samples.gather(torch.tensor([4, 0, 4]))
    assert torch.equal(x, X[[4, 0, 4]])
    assert y.tolist() == [1, 0, 1]
    assert x.is_contiguous(memory_format=torch.contiguous_format if kind == "memory" else torch.channels_last)
    part = samples.subset(torch.tensor([3, 1])).subset(torch.tensor([1]))
    assert torch.equal(part.x, X[[1]])
    assert part.y.tolist() == [1]
    empty = samples.subset(torch.tensor([], dtype=torch.int64))
    assert (len(empty), empty.x.shape, empty.classes) == (0, (0, 2, 3, 4), ())


def test_a_batch_is_a_copy() -> None:
    samples = Samples.of(X.clone(), Y)
    samples.gather(torch.tensor([0]))[0].zero_()
    assert torch.equal(samples.x, X)


def test_batches_are_all_samples_in_order() -> None:
    samples = Samples.of(X, Y).subset(torch.tensor([4, 3, 2, 1, 0]))
    found = list(samples.batches(2))
    assert [y.tolist() for _, y in found] == [[1, 2], [0, 1], [0]]
    assert torch.equal(torch.cat([x for x, _ in found]), X.flip(0))
    ((x, y),) = samples.subset(torch.tensor([], dtype=torch.int64)).batches(2)
    assert (x.shape, len(y)) == ((0, 2, 3, 4), 0)


def test_map_sees_each_batch_as_it_is_read() -> None:
    seen: list[int] = []

    def negative(x: torch.Tensor) -> torch.Tensor:
        seen.append(len(x))
        return 255 - x

    mapped = Samples.of(X, Y).map(negative)
    assert seen == []
    assert torch.equal(mapped.gather(torch.tensor([2, 3]))[0], 255 - X[[2, 3]])
    assert seen == [2]


def test_concat_of_one_source_stays_one_source() -> None:
    samples = Samples.of(X, Y)
    both = concat([samples.subset(torch.tensor([4])), samples.subset(torch.tensor([0, 1]))])
    assert both.source is samples.source
    assert torch.equal(both.x, X[[4, 0, 1]])
    assert both.y.tolist() == [1, 0, 1]


def test_concat_of_several_sources(tmp_path: Path) -> None:
    parts = [stored("memory", tmp_path).subset(torch.tensor([1, 3])), stored("mapped", tmp_path)]
    both = concat([*parts, parts[0]])
    assert both.y.tolist() == [1, 2, 0, 1, 0, 2, 1, 1, 2]
    assert torch.equal(both.x, X[[1, 3, 0, 1, 2, 3, 4, 1, 3]])
    assert torch.equal(both.gather(torch.tensor([8, 2, 0]))[0], X[[3, 0, 1]])
    assert both.gather(torch.tensor([], dtype=torch.int64))[0].shape == (0, 2, 3, 4)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.data())
def test_joined_is_a_cat(lengths: list[int], data: st.DataObject) -> None:
    tensors = [torch.arange(length).view(-1, 1) + 100 * index for index, length in enumerate(lengths)]
    rows = data.draw(st.lists(st.integers(0, sum(lengths) - 1), max_size=8))
    joined = JoinedSource(tuple(TensorSource(tensor) for tensor in tensors))
    index = torch.tensor(rows, dtype=torch.int64)
    assert torch.equal(joined.take(index), torch.cat(tensors)[index])


def test_joined_keeps_channels_last(tmp_path: Path) -> None:
    one, other = stored("channels_last", tmp_path), stored("mapped", tmp_path)
    x, _ = concat([one, other]).gather(torch.tensor([7, 1]))
    assert torch.equal(x, X[[2, 1]])
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="5 inputs but 4 labels"):
        Samples.of(X, Y[:4])
    with pytest.raises(TypeError, match="labels are int64"):
        Samples.of(X, Y.float())
    with pytest.raises(ValueError, match="differ in shape"):
        concat([Samples.of(X, Y), Samples.of(X.flatten(1), Y)])
    with pytest.raises(ValueError, match="nothing"):
        concat([])


def test_of_classes() -> None:
    samples = Samples.of(torch.arange(9).view(9, 1), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 0]))
    assert select_classes(samples, [2, 0]).x.flatten().tolist() == [0, 2, 3, 5, 6, 8]
    assert select_classes(samples, [2, 0], 2).x.flatten().tolist() == [0, 2, 5, 6]
    assert select_classes(samples, [1], 9).x.flatten().tolist() == [1, 4, 7]


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
