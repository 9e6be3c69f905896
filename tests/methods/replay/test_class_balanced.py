"""Memories balanced by class: by hand, against lists and loops, and what every class keeps."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import torch
from torch import nn

from tmln.learner import Learner
from tmln.methods.replay.class_balanced import ClassBalancedReservoir, GreedyReservoir


def fill(memory: ClassBalancedReservoir, labels: list[int], size: int) -> list[tuple[int, int]]:
    """Offer numbered samples with these labels, ``size`` at a time; what is kept, slot by slot."""
    y = torch.tensor(labels)
    for rows in torch.arange(len(y)).split(size):
        memory.add(rows, y[rows])
    (found,) = memory.batches(memory.capacity, ("x", "y")) if len(memory) else [(y[:0], y[:0])]
    return list(zip(found[0].tolist(), found[1].tolist(), strict=True))


def chosen(labels: list[int], capacity: int, seed: int, greedy: bool) -> list[tuple[int, int]]:
    """Algorithm 1 of either paper with a list, from the same random numbers."""
    generator, kept = torch.Generator().manual_seed(seed), list[tuple[int, int]]()
    met, full = list[int](), set[int]()
    chances = [torch.rand(1, 2, generator=generator, dtype=torch.float64)[0].tolist() for _ in labels]
    for number, (label, (u, v)) in enumerate(zip(labels, chances, strict=True)):
        met.append(label)
        if len(kept) < capacity:
            kept.append((number, label))
            continue
        sizes = {c: sum(1 for _, other in kept if other == c) for c in met}
        largest = [c for c in sizes if sizes[c] == max(sizes.values())]
        full.update(largest)
        if greedy and sizes[label] >= capacity / len(set(met)):
            continue
        if not greedy and label in full:
            places = [slot for slot, (_, other) in enumerate(kept) if other == label]
            if u * met.count(label) >= len(places):
                continue
        else:
            places = [slot for slot, (_, other) in enumerate(kept) if other in largest]
        kept[places[int(v * len(places))]] = (number, label)
    return kept


@pytest.mark.parametrize("kind", [ClassBalancedReservoir, GreedyReservoir])
@pytest.mark.parametrize("size", [1, 7, 60])
def test_as_written_in_the_papers(kind: type[ClassBalancedReservoir], size: int) -> None:
    dice = random.Random(size)
    labels = [dice.choice([0, 0, 0, 0, 1, 1, number // 12]) for number in range(60)]
    found = fill(kind(9, seed=3), labels, size)
    assert found == chosen(labels, 9, 3, kind is GreedyReservoir)
    assert found != fill(kind(9, seed=4), labels, size)


def test_a_rare_class_gets_as_much_room_as_it_needs_by_hand() -> None:
    """Four places: 0 0 0 0, then class 1 takes two places of class 0, its third sample may replace its own."""
    memory = ClassBalancedReservoir(4)
    assert fill(memory, [0] * 50 + [1], 10)[-1:] != []
    assert Counter(memory._labels.tolist()) == {0: 3, 1: 1}
    memory.add(torch.tensor([51, 52]), torch.tensor([1, 1]))
    assert Counter(memory._labels.tolist()) == {0: 2, 1: 2} or Counter(memory._labels.tolist()) == {0: 1, 1: 3}
    assert memory.offered == {0: 50, 1: 3}


@pytest.mark.parametrize(("kind", "first"), [(ClassBalancedReservoir, False), (GreedyReservoir, True)])
def test_classes_of_a_stream_share_the_memory(kind: type[ClassBalancedReservoir], first: bool) -> None:
    """Classes arrive one after another, the first with ten times the samples; GDumb keeps the first of each."""
    labels = [0] * 400 + [1] * 40 + [2] * 40
    found = fill(kind(12), labels, 10)
    counts = Counter(label for _, label in found)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert all(number < 12 for number, label in found if label == 0) is first


def test_every_sample_of_a_class_is_kept_with_the_same_probability() -> None:
    """Chi-square over 60 samples of a common class; chance exceeds 103 once in 5,000 draws."""
    labels = ([0] * 6 + [1]) * 10
    kept = Counter(
        number
        for seed in range(600)
        for number, label in fill(ClassBalancedReservoir(8, seed), labels, 70)
        if label == 0
    )
    of_class = [number for number, label in enumerate(labels) if label == 0]
    expected = sum(kept.values()) / len(of_class)
    assert sum((kept[number] - expected) ** 2 / expected for number in of_class) < 103


@pytest.mark.parametrize("kind", [ClassBalancedReservoir, GreedyReservoir])
def test_a_saved_memory_goes_on_exactly(kind: type[ClassBalancedReservoir], tmp_path: Any) -> None:
    labels = [number % 3 for number in range(40)] + [0] * 40 + [4] * 5
    whole, first, then = kind(7, 1), kind(7, 1), kind(7, 2, path=tmp_path)
    fill(first, labels[:50], 8)
    then.load_state_dict(first.state_dict())
    for memory in (first, then):
        memory.add(torch.arange(50, 85), torch.tensor(labels[50:]))
    expected = fill(whole, labels[:50], 8) and [t.tolist() for t in next(first.batches(7))]
    assert [t.tolist() for t in next(then.batches(7))] == expected
    assert (then.offered, then.full) == (first.offered, first.full)


def test_an_error_leaves_it_as_it_was() -> None:
    memory = ClassBalancedReservoir(3)
    memory.add(torch.zeros(4, 2), torch.tensor([0, 0, 1, 1]))
    before = repr(memory.state_dict())
    for x, y in [(torch.zeros(2, 3), torch.tensor([5, 5])), (torch.zeros(2, 2), torch.tensor([0.5, 1.0]))]:
        with pytest.raises(ValueError, match=r"shape|labels|\(3,\)|float"):
            memory.add(x, y)
    assert repr(memory.state_dict()) == before


def test_a_memory_without_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="integer labels"):
        ClassBalancedReservoir(3).add(torch.zeros(2, 2))


@pytest.mark.parametrize("selection", ["class-balanced", "greedy"])
@pytest.mark.parametrize(
    ("method", "fill"), [("er", "end"), ("er", "online"), ("der++", "every-epoch"), ("er-ace", "online")]
)
def test_a_method_fills_it_evenly(method: str, fill: str, selection: str) -> None:
    """Class 0 is nine of ten samples of its task."""
    learner = Learner(
        nn.Linear(3, 4),
        method,
        batch_size=10,
        settings={"replay.capacity": 8, "replay.selection": selection, "replay.fill": fill},
    )
    for k in range(2):
        y = 2 * k + (torch.arange(40) % 10 == 0).long()
        learner.learn((torch.randn(40, 3), y))
    assert learner.replay.memory is not None
    ((_, labels),) = learner.replay.memory.batches(8, ("x", "y"))
    assert Counter(labels.tolist()) == {0: 2, 1: 2, 2: 2, 3: 2}
