"""Forgetting with intervals: what held-out samples can tell, what is refused, and what is accepted all the same."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.learner.test_atomic import same
from tmln.learner import Forgot, Learner, Retention
from tmln.learner.history import RetentionRow, bound_loss

pytestmark = pytest.mark.usefixtures("narrow")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))


def of_class(label: int, count: int = 60) -> tuple[Tensor, Tensor]:
    x = 0.3 * torch.randn(count, 4, generator=torch.Generator().manual_seed(label)) + 3 * torch.eye(4)[label]
    return x, torch.zeros(count, dtype=torch.int64)


def forgetful() -> Learner:
    """A learner that knows a and b, by a method that does nothing against forgetting."""
    made = Learner(network(), "naive", lr=0.1, batch_size=8)
    (a, y), (b, _) = of_class(0), of_class(1)
    made.learn((torch.cat([a, b]), torch.cat([y, y + 1])), 5, classes=["a", "b"], hold_out=0.2)
    return made


def test_intervals_by_hand() -> None:
    """4 of 20 lost, none won: p = 4.5/22 and 0.5/22, 0.1818 +- 1.96*sqrt((0.2273 - 0.0331)/22)."""
    before, after = torch.ones(20, dtype=torch.bool), torch.arange(20) >= 4
    assert bound_loss(before, after) == pytest.approx((-0.0023, 0.3660), abs=1e-4)
    low, high = bound_loss(after, before)  # won in place of lost
    assert (low, high) == pytest.approx((-0.3660, 0.0023), abs=1e-4)
    low, high = bound_loss(before, before)
    assert low == pytest.approx(-high)
    assert bound_loss(before[:6], ~before[:6])[1] == 1.0  # no more than all


def test_more_samples_tell_more() -> None:
    """One in five lost: the lower end passes 5 points once enough samples are held out."""
    lows = [bound_loss(torch.ones(n, dtype=torch.bool), torch.arange(n) >= n // 5)[0] for n in (5, 20, 80, 320)]
    assert lows == sorted(lows)
    assert lows[1] < 0.05 < lows[2]


def test_a_loss_that_few_samples_show_is_undecided() -> None:
    rows = (RetentionRow("w1", "a", 20, 1.0, 0.8), RetentionRow("w2", "b", 80, 1.0, 0.8))
    table = Retention(rows, 0, {"w1": (-0.002, 0.366), "w2": (0.1, 0.3)})
    assert table.forgotten(0.05) == ["w2"]
    assert table.undecided(0.05) == ["w1"]
    assert table.forgotten(0.5) == table.undecided(0.5) == []
    assert Retention(rows).forgotten(0.05) == ["w1", "w2"]  # without intervals, by the loss itself
    assert "w2 fell from 100% to 80% (95% interval of the loss: 10 to 30 points)" in table.summary()


def test_advice_names_what_went_badly() -> None:
    rows = (RetentionRow("w1", "a", 50, 1.0, 0.5), RetentionRow("w2", "b", 9, None, 0.3))
    learned, forgotten = Retention(rows, 1, {"w1": (0.35, 0.65)}).advice()
    assert "b (30%)" in learned
    assert "--try" in learned
    assert "w1" in forgotten
    assert "undo" in forgotten
    assert Retention((RetentionRow("w1", "a", 50, None, 0.9),), 1).advice() == []


def test_a_class_of_one_sample_is_said_to_be_unmeasured() -> None:
    learner = Learner(torch.nn.Linear(3, 3), "naive", seed=0)
    x, y = torch.randn(21, 3), torch.tensor([*[0] * 10, *[1] * 10, 2])
    learner.learn((x, y), 1, hold_out=0.2)
    table = learner.retention
    assert [row.label for row in table.rows] == ["0", "1"]
    assert table.unmeasured == ("2",)
    assert "2" in table.advice()[-1]
    learner.learn((torch.randn(20, 3), y[:20]), 1, hold_out=0.2)
    assert learner.retention.unmeasured == ()
    learner.learn((torch.randn(21, 3), y), 1, hold_out=0.0)
    assert learner.retention.unmeasured == ()  # nothing is held out, which is said elsewhere


def test_a_refused_task_is_accepted_without_learning_again(tmp_path: Path) -> None:
    made, free = forgetful(), forgetful()
    kept = copy.deepcopy(made.state_dict())
    with pytest.raises(RuntimeError, match="no refused task"):
        made.accept()
    with pytest.raises(Forgot, match="more than the 5 points"):
        made.learn(of_class(2), 8, classes=["c"], hold_out=0.2, max_forgetting=0.05)
    assert same(made.state_dict(), kept)
    made.save(tmp_path / "s.tmln")
    made = Learner.load(tmp_path / "s.tmln", network())
    made.accept()
    free.learn(of_class(2), 8, classes=["c"], hold_out=0.2)
    assert made.names == ("a", "b", "c")
    assert same(dict(made.model.state_dict()), dict(free.model.state_dict()))
    assert made.retention == free.retention
    with pytest.raises(RuntimeError, match="no refused task"):
        made.accept()
    made.undo()
    assert same(made.state_dict(), kept)


def test_a_task_that_is_learned_since_drops_the_refused_one() -> None:
    made = forgetful()
    with pytest.raises(Forgot):
        made.learn(of_class(2), 8, classes=["c"], hold_out=0.2, max_forgetting=0.05)
    made.learn(of_class(3), 1, classes=["d"])
    with pytest.raises(RuntimeError, match="no refused task"):
        made.accept()


def test_a_loss_that_cannot_be_told_is_learned() -> None:
    """Two held-out samples: even if both are lost, they do not tell that more than 60 points are."""
    made = Learner(network(), "naive", lr=0.1, batch_size=8)
    (a, y), (b, _) = of_class(0, 8), of_class(1, 8)
    made.learn((torch.cat([a, b]), torch.cat([y, y + 1])), 20, classes=["a", "b"], hold_out=0.1)
    made.learn(of_class(2), 8, classes=["c"], hold_out=0.1, max_forgetting=0.6)
    assert made.retention.lost == 1.0
    assert made.retention.undecided(0.6) == ["task 1"]


def test_duplicates_of_held_out_samples_are_warned_of() -> None:
    made, (x, y) = Learner(network(), "naive", batch_size=8), of_class(0)
    with pytest.warns(UserWarning, match=r"of the .* samples of 'twice' equal one that is held out"):
        made.learn((torch.cat([x, x]), torch.cat([y, y])), 1, classes=["a"], hold_out=0.2, name="twice")


class Counted(nn.Module):
    """A frozen network that counts the samples that pass through it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.passed = nn.Linear(4, 8), nn.Linear(8, 2), 0

    def forward(self, x: Tensor) -> Tensor:
        self.passed += len(x)
        found: Tensor = self.head(self.body(x).relu())
        return found


@pytest.mark.parametrize("method", ["slda", "ranpac", "ncm-frozen"])
def test_held_out_samples_pass_through_a_frozen_network_once(method: str, tmp_path: Path) -> None:
    model = Counted()
    made = Learner(model, method, batch_size=8)
    (a, y), (b, _) = of_class(0), of_class(1)
    made.learn((torch.cat([a, b]), torch.cat([y, y + 1])), classes=["a", "b"], hold_out=0.2)
    made.save(tmp_path / "s.tmln")
    made = Learner.load(tmp_path / "s.tmln", model)
    model.passed = 0
    made.learn(of_class(2), classes=["c"], hold_out=0.2)
    assert model.passed <= 60 + 4  # the new samples, and a few to find the layer: not the 24 held out before
    for held in made.seen.record.held:
        assert held is not None
        expected = (made.predict_labels(held.as_samples()) == held.y).float().mean()
        rows = [row for row in made.retention.rows if row.label in {made.names[c] for c in held.y.tolist()}]
        assert sum(row.count * row.after for row in rows) / len(held.y) == pytest.approx(float(expected))
