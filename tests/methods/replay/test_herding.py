"""Herding: by hand, against a slow loop, class by class at task ends, with further fields and on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.methods.replay.herding import Exemplars, select_by_herding, split_capacity


def task(k: int, count: int = 24) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    y = torch.arange(count) % 2 + 2 * k
    return torch.randn(count, 5, generator=generator) + y[:, None], y


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 6))


def learner(method: str = "er", **settings: Any) -> Learner:
    chosen = {"selection": "herding", "capacity": 7, "fill": "end", **settings}
    return Learner(network(), method, settings={f"replay.{k}": v for k, v in chosen.items()}, batch_size=8)


def stored(trained: Learner, *fields: str) -> tuple[Tensor, ...]:
    assert trained.replay.memory is not None
    (found,) = trained.replay.memory.batches(100, fields)
    return tuple(value.clone() for value in found)


def test_herding_by_hand() -> None:
    """The mean is 2.5: 3 is nearest; then (3+1)/2 = 2 before 1.5 and 4.5; then (3+1+6)/3 = 3.33 before 1.33."""
    assert select_by_herding(torch.tensor([[0.0], [3.0], [6.0], [1.0]]), 9) == [1, 3, 2, 0]


def test_herding_against_a_slow_loop() -> None:
    features = torch.randn(20, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found: list[int] = []
    while len(found) < 12:
        means = {row: features[[*found, row]].mean(0) for row in range(20) if row not in found}
        found.append(min(means, key=lambda row: float((means[row] - features.mean(0)).norm())))
    assert select_by_herding(features, 12) == found
    assert sorted(select_by_herding(features, 50)) == list(range(20))


def test_places_are_shared_out() -> None:
    assert split_capacity(7, [0, 1, 4, 5]) == {0: 2, 1: 2, 4: 2, 5: 1}
    assert split_capacity(2, [0, 1, 4]) == {0: 1, 1: 1, 4: 0}


def test_classes_keep_the_first_of_their_order_as_others_come() -> None:
    trained = learner()
    trained.learn(task(0))
    first_x, first_y = stored(trained, "x", "y")
    assert first_y.tolist() == [0, 0, 0, 0, 1, 1, 1]
    trained.learn(task(1))
    x, y = stored(trained, "x", "y")
    assert y.tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert torch.equal(x[:4], first_x[[0, 1, 4, 5]])


def test_a_class_that_comes_again_is_herded_out_of_both() -> None:
    """Two samples a class: in the second task class 0 has the same ones again, in which nothing was stored as good."""
    trained = learner(capacity=4)
    trained.learn(task(0))
    x, y = task(0)
    again = torch.cat([x[y == 0] + 3, task(1)[0][:1]]), torch.cat([y[y == 0], torch.tensor([2])])
    before = stored(trained, "x")[0]
    trained.learn(again, classes=(0, 2))
    kept, labels = stored(trained, "x", "y")
    assert labels.tolist() == [0, 0, 1, 2]  # two places for the first class, one for each other
    pool = torch.cat([before[:2], again[0][:-1]])
    trained.model.eval()
    with torch.no_grad():
        phi = nn.functional.normalize(trained.model[:3](pool))  # type: ignore[index]
    assert torch.equal(kept[:2], pool[select_by_herding(phi, 2)])


def test_further_fields_are_stored_with_new_samples_and_kept_with_old_ones() -> None:
    trained = learner("der++")
    trained.learn(task(0))
    x, logits = stored(trained, "x", "logits")
    trained.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(logits, trained.model(x))
    trained.learn(task(1))
    kept_x, kept = stored(trained, "x", "logits")
    assert torch.equal(kept[:4], logits[[0, 1, 4, 5]])
    trained.model.eval()
    with torch.no_grad():
        torch.testing.assert_close(kept[4:], trained.model(kept_x[4:]))


def test_on_disk_and_saved_it_is_the_same(tmp_path: Path) -> None:
    ram, disk = learner(), learner(path=str(tmp_path / "memory"))
    for trained in (ram, disk):
        for k in range(2):
            trained.learn(task(k))
    ram.save(tmp_path / "state.tmln")
    again = Learner.load(tmp_path / "state.tmln", network())
    for trained in (disk, again):
        assert all(torch.equal(a, b) for a, b in zip(stored(ram, "x", "y"), stored(trained, "x", "y"), strict=True))
    for trained in (ram, disk, again):
        trained.learn(task(2))
    for trained in (disk, again):
        assert all(torch.equal(a, b) for a, b in zip(stored(ram, "x", "y"), stored(trained, "x", "y"), strict=True))


def test_what_cannot_be_is_told() -> None:
    with pytest.raises(ValueError, match=r"'herding' chooses at a task's end, but replay.fill = 'online': set"):
        learner(fill="online")
    bare = Learner(nn.Sequential(nn.Linear(5, 6), nn.Tanh()), "er", settings={"replay.selection": "herding"})
    with pytest.raises(ValueError, match=r"features of Sequential cannot be found.*replay\.layer=NAME"):
        bare.learn(task(0))
    with pytest.raises(ValueError, match="3 samples do not fit into a memory of 2"):
        Exemplars(2).replace({"x": torch.zeros(3, 1), "y": torch.zeros(3, dtype=torch.long)})
