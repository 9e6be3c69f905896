"""SCR: the contrastive loss by hand and against sums written out; two views of every sample in a step."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.methods import Batch, read_settings
from tmln.methods.replay.scr import SCR, compute_contrastive_loss


def test_three_samples_by_hand() -> None:
    """z = (1,0), (1,0), (0,1); labels 0, 0, 1; T = 1/2: e^2/(e^2 + 1) twice; the third is alone."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = compute_contrastive_loss(z, torch.tensor([0, 0, 1]), 0.5)
    assert float(found) == pytest.approx(math.log(1 + math.exp(-2)), abs=1e-6)
    # labels 0, 1, 1: samples 2 and 3 attract; their shares are 1/(e^2 + 1) and 1/2
    found = compute_contrastive_loss(z, torch.tensor([0, 1, 1]), 0.5)
    assert float(found) == pytest.approx((math.log(1 + math.exp(2)) + math.log(2)) / 2, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_random_samples_against_sums_written_out(seed: int) -> None:
    torch.manual_seed(seed)
    z, y, t = F.normalize(torch.randn(9, 4, dtype=torch.float64)), torch.randint(3, (9,)), 0.3
    terms = []
    for i in range(9):
        others = [a for a in range(9) if a != i]
        positive = [p for p in others if y[p] == y[i]]
        if positive:
            below = sum(math.exp(float(z[i] @ z[a]) / t) for a in others)
            terms.append(-sum(math.log(math.exp(float(z[i] @ z[p]) / t) / below) for p in positive) / len(positive))
    assert float(compute_contrastive_loss(z, y, t)) == pytest.approx(sum(terms) / len(terms), abs=1e-12)


def test_the_gradient_is_finite_and_pulls_a_class_together() -> None:
    angle = torch.tensor([0.0, 1.0, 2.5], requires_grad=True)
    z = torch.stack([angle.cos(), angle.sin()], 1)
    compute_contrastive_loss(z, torch.tensor([0, 0, 1]), 0.5).backward()
    assert angle.grad is not None
    assert angle.grad.isfinite().all()
    assert angle.grad[0] < 0 < angle.grad[1]  # descent raises the first angle and lowers the second


def test_every_sample_is_there_twice_and_closed_classes_do_not_count() -> None:
    replay = SCR(read_settings(SCR, {"batch": 2}), 0)
    x, y = torch.arange(12.0).reshape(6, 2), torch.arange(6) % 2
    replay.memory.add(x + 100, y)
    drawn, labels, _ = replay.draw(x[:3], y[:3])
    assert torch.equal(drawn[2:5], x[:3])
    assert torch.equal(drawn[:2], drawn[5:])
    assert torch.equal(labels, torch.cat([labels[:2], y[:3], labels[:2]]))

    def closed(x: Tensor) -> Tensor:
        return torch.cat([x, torch.full((len(x), 1), -torch.inf)], 1)

    batch = Batch(torch.cat([x[:3], drawn]) + 1, torch.cat([y[:3], labels]), 3)
    loss, output = replay.loss(closed, batch)  # type: ignore[arg-type]
    assert output.shape == (10, 3)
    assert float(loss) == pytest.approx(float(compute_contrastive_loss(F.normalize(batch.x), batch.y, 0.07)), abs=1e-6)


def test_it_learns_blobs_and_answers_by_class_means() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 6))
    learner = Learner(model, "scr", lr=0.05, batch_size=20)
    centres = 3 * torch.randn(6, 4)
    tasks = [(torch.arange(120) % 2 + 2 * k) for k in range(3)]
    data = [(centres[y] + 0.5 * torch.randn(120, 4), y) for y in tasks]
    for x, y in data:
        learner.learn((x, y), epochs=3)
    assert min(learner.evaluate((x, y))["accuracy"] for x, y in data) > 0.85
