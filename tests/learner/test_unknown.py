"""What is of no class learned: the evidence by hand, the threshold by held-out samples, a class that is far off."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.learner.evaluation import compute_evidence, find_unknown
from tmln.learner.export import describe_export
from tmln.learner.history import choose_threshold
from tmln.streams.samples import Samples


def test_evidence_by_hand() -> None:
    scores = torch.tensor([[4.0, 1.0, 1.0, 9.0], [2.0, 2.0, 2.0, -torch.inf]])
    assert compute_evidence(scores, [0, 1, 2]).tolist() == [2.0, 0.0]
    assert compute_evidence(scores + 100.0, [0, 1, 2]).tolist() == [2.0, 0.0]  # a shift says nothing


@pytest.mark.parametrize(("keep", "least", "kept"), [(1.0, 1.0, 10), (0.9, 2.0, 9), (0.95, 1.0, 10), (0.5, 6.0, 5)])
def test_a_threshold_keeps_at_least_the_share(keep: float, least: float, kept: int) -> None:
    evidence = torch.arange(10.0, 0.0, -1.0)
    assert choose_threshold(evidence, keep) == least
    assert int((evidence >= least).sum()) == kept


def test_the_share_of_unknown_samples_by_hand() -> None:
    """Scores (e, 0, 0) have the evidence 2e/3; of e = 1 to 20 the 5% quantile is at e = 1.95."""
    made = Learner(nn.Linear(3, 3, bias=False), "naive")
    with torch.no_grad():
        made.model.weight.copy_(torch.eye(3))  # type: ignore[operator]
    made.position.classes = (0, 1, 2)
    known, unknown = (torch.zeros(n, 3) for n in (20, 4))
    known[:, 0], unknown[:, 0] = torch.arange(1.0, 21.0), torch.tensor([1.0, 1.9, 2.0, 9.0])
    labels = torch.zeros(20, dtype=torch.int64)
    samples = Samples.of(known, labels), Samples.of(unknown, labels[:4] - 1)
    assert find_unknown(made, *samples) == 0.5


def clusters(*centres: int, count: int = 60, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points around the corner of a cube in which each class lies, in eight dimensions."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % len(centres)
    x = 0.3 * torch.randn(count, 8, generator=generator)
    x[torch.arange(count), torch.tensor(centres)[y]] += 3.0
    return x, y


def learner(**options: object) -> Learner:
    torch.manual_seed(0)
    made = Learner(nn.Linear(8, 3), "naive", lr=0.1, batch_size=10, **options)  # type: ignore[arg-type]
    made.learn(clusters(0, 1, 2), 20, classes=["ant", "bee", "owl"], hold_out=0.3)
    return made


@pytest.mark.parametrize("options", [{}, {"answer": "slda"}, {"replay": "er", "answer": "ncm"}])
def test_a_far_class_is_unknown_and_known_ones_are_kept(options: dict[str, str]) -> None:
    made = learner(**options)
    known = made.predict(clusters(0, 1, 2, count=90, seed=1)[0], unknown=True)
    assert sum(one.known for one in known) >= 75
    far = made.predict(clusters(6, count=40, seed=2)[0], unknown=True)
    assert sum(not one.known for one in far) >= 36
    one = next(one for one in far if not one.known)
    assert (one.label, one.nearest) == ("unknown", made.names[one.index])
    assert str(one).startswith(f"unknown (nearest {one.nearest}")
    plain = made.predict(clusters(6, count=40, seed=2)[0])
    assert [found.label for found in plain] == [found.nearest for found in far]
    assert all(found.known for found in plain)


def test_it_is_kept_and_undone(tmp_path: Path) -> None:
    made = learner()
    evidence, least = made.seen.record.evidence, made.unknown_threshold()
    assert evidence is not None
    assert evidence.shape == (18,)
    x = clusters(0, 1, 2, seed=3)[0]
    assert [one.known for one in made.predict(x, unknown=least)] == [one.known for one in made.predict(x, unknown=True)]
    found = describe_export(made)["unknown"]
    assert (found["threshold"], found["over"], found["held_out_samples"]) == (least, [0, 1, 2], 18)
    made.learn(clusters(3, 4), 20, classes=["cat", "dog"], hold_out=0.3)
    assert made.seen.record.evidence is not None
    assert made.seen.record.evidence.shape == (36,)
    made.undo()
    assert made.unknown_threshold() == least
    made.save(tmp_path / "s.tmln")
    loaded = Learner.load(tmp_path / "s.tmln", nn.Linear(8, 3))
    assert loaded.unknown_threshold() == least
    loaded.seen.record.to_dict()
    state = made.seen.record.to_dict()
    state.pop("evidence")  # a state of before: measured when it is asked for
    loaded.seen.record = type(made.seen.record).from_dict(state)
    assert loaded.unknown_threshold() == pytest.approx(least)


def test_without_held_out_samples_it_says_so() -> None:
    made = Learner(nn.Linear(8, 3), "naive")
    made.learn(clusters(0, 1, 2))
    with pytest.raises(ValueError, match="no sample was held out"):
        made.predict(clusters(0)[0], unknown=True)
    assert describe_export(made)["unknown"] is None
    made = Learner(nn.Linear(8, 3), "naive")
    made.learn(clusters(0), hold_out=0.3)
    with pytest.raises(ValueError, match="fewer than two classes"):
        made.unknown_threshold()
    with pytest.raises(ValueError, match="a share above 0"):
        learner().unknown_threshold(1.5)
