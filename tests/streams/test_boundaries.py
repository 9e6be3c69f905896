"""Blurry and repeated boundaries: where samples go, and that none is lost."""

from __future__ import annotations

import pytest
import torch

from tmln.streams import Samples, Stream, Task
from tmln.streams.assemble import blur, repeat
from tmln.streams.augment import Normalise


def tasks(sizes: tuple[int, ...]) -> list[Task]:
    """Task k holds samples of class k only; the inputs number all samples."""
    made, start = [], 0
    for label, size in enumerate(sizes):
        x = torch.arange(start, start + size).view(-1, 1)
        samples = Samples.of(x, torch.full((size,), label))
        made.append(Task(f"task {label + 1}", samples, samples, (label,)))
        start += size
    return made


def test_blur_moves_the_fraction_to_the_other_tasks() -> None:
    plain = tasks((10, 10, 20))
    blurred = blur(plain, 0.4, seed=0)
    counts = [task.train.y.bincount(minlength=3).tolist() for task in blurred]
    assert counts == [[6, 2, 4], [2, 6, 4], [2, 2, 12]]
    everything = torch.cat([task.train.x for task in blurred]).flatten()
    assert everything.sort().values.tolist() == list(range(40))
    for task, before in zip(blurred, plain, strict=True):
        assert task.test is before.test
        assert task.classes == before.classes


@pytest.mark.parametrize(("fraction", "strayed"), [(0.24, 2), (0.25, 2), (0.26, 3), (0.35, 4), (0.04, 0), (1.0, 10)])
def test_blur_moves_the_nearest_whole_number(fraction: float, strayed: int) -> None:
    """Of ten; halves go to the even number, as Python's do."""
    blurred = blur(tasks((10, 10)), fraction, seed=0)
    assert [task.train.y.bincount(minlength=2).tolist() for task in blurred] == [
        [10 - strayed, strayed],
        [strayed, 10 - strayed],
    ]


def test_blur_is_drawn_from_its_seed() -> None:
    one, same, other = (blur(tasks((10, 10)), 0.5, seed)[0].train.x.flatten().tolist() for seed in (1, 1, 2))
    assert one == same != other


def test_nothing_to_blur() -> None:
    plain = tasks((4, 4))
    assert blur(plain, 0.0, seed=0) == tuple(plain)
    assert blur(plain[:1], 0.5, seed=0) == (plain[0],)


def test_repeat_deals_each_class_over_the_visits() -> None:
    x = torch.arange(7).view(-1, 1)
    samples = Samples.of(x, torch.tensor([0, 1, 0, 1, 0, 1, 0]))
    task = Task("task 1", samples, samples, (0, 1))
    visits = repeat([task], 2)
    assert [visit.name for visit in visits] == ["task 1 visit 1", "task 1 visit 2"]
    # By class: 0 2 4 6 | 1 3 5, then every second one.
    assert [visit.train.x.flatten().tolist() for visit in visits] == [[0, 1, 4, 5], [2, 3, 6]]
    assert repeat([task], 1) == (task,)


def test_the_order_of_visits() -> None:
    assert [task.classes for task in repeat(tasks((4, 4)), 2)] == [(0,), (1,), (0,), (1,)]


def test_too_few_samples_to_repeat() -> None:
    with pytest.raises(ValueError, match="'task 1' has 2 samples: too few for 3 visits"):
        repeat(tasks((2,)), 3)


def test_seen_counts_what_strays_in() -> None:
    def stream(parts: tuple[Task, ...]) -> Stream:
        return Stream("s", parts, ("a", "b", "c"), (1,), Normalise(), Normalise())

    plain = stream(tuple(tasks((10, 10, 10))))
    assert [plain.seen(index) for index in range(3)] == [(0,), (0, 1), (0, 1, 2)]
    assert plain.classes == 3
    assert plain[1] is plain.tasks[1]
    assert stream(blur(plain.tasks, 0.5, seed=0)).seen(0) == (0, 1, 2)
