"""X-DER: what is written into logits, and every term of the loss, by hand and against plain sums."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.methods import Batch, read_settings
from tmln.methods.replay.xder import XDER, compute_margin_loss, limit_logits


def test_written_logits_by_hand() -> None:
    """True logit 2, gamma 0.85: a largest one of 4 becomes 1.7, the others are scaled alike; one of 1 stays."""
    written = torch.tensor([[4.0, 2.0, -2.0], [1.0, 0.5, 0.0]])
    found = limit_logits(written, torch.tensor([2.0, 2.0]), 0.85)
    assert found.tolist() == [pytest.approx([1.7, 0.85, -0.85]), [1.0, 0.5, 0.0]]
    assert limit_logits(torch.zeros(1, 2), torch.tensor([-1.0]), 0.85).isfinite().all()


def test_margin_by_hand() -> None:
    """p = (.5, .25, .25) of known class 0 and task's 1, 2: 0.5 + 0.3 - 0.25 = 0.55; a sure sample adds nothing."""
    output = torch.tensor([[math.log(2.0), 0.0, 0.0], [0.0, 9.0, 0.0]], requires_grad=True)
    loss = compute_margin_loss(output, [0], [1, 2], 0.3)
    assert float(loss.detach()) == pytest.approx(0.55, abs=1e-6)
    loss.backward()
    assert output.grad is not None
    assert not output.grad[1].any()  # only where the margin is not kept
    # d(-p_1): -p_1 (1 - p_1) of its own logit; p_0 is detached, so class 0 has p_1 p_0
    assert output.grad[0].tolist() == pytest.approx([0.125, -0.1875, 0.0625], abs=1e-6)
    assert float(compute_margin_loss(output[1:].detach(), [0], [1, 2], 0.3)) == 0


def test_the_loss_is_the_sum_of_its_terms() -> None:
    torch.manual_seed(0)
    replay = XDER(read_settings(XDER, {"alpha": 0.7, "beta": 0.4, "eta": 0.2, "margin": 0.3}), 0)
    replay.known, replay.task = [0, 1], [2, 3]
    output, stored = torch.randn(9, 5, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    y = torch.tensor([2, 3, 2, 0, 1, 1, 0, 1, 0])

    def model(x: Tensor) -> Tensor:
        return output

    stored[:, 4] = -torch.inf  # was closed, and is not compared
    found, _ = replay.loss(model, Batch(torch.zeros(9, 1), y, 3, {"logits": stored}))  # type: ignore[arg-type]
    terms = [-math.log(math.exp(output[i, y[i]]) / sum(math.exp(output[i, c]) for c in (2, 3))) / 3 for i in range(3)]
    terms += [0.7 * float((output[3 + i, c] - stored[i, c]) ** 2) / 12 for i in range(3) for c in range(4)]
    terms += [
        -0.4 * math.log(math.exp(output[i, y[i]]) / sum(math.exp(output[i, c]) for c in (0, 1))) / 3
        for i in range(6, 9)
    ]
    shares = [[math.exp(v) / sum(math.exp(w) for w in row[:4]) for v in row[:4]] for row in output[:3].tolist()]
    over = [e for s in shares if (e := max(s[:2]) + 0.3 - max(s[2:])) > 0]
    terms.append(0.2 * sum(over) / len(over))
    assert float(found) == pytest.approx(sum(terms), abs=1e-9)
    replay.known, replay.task = [], [0, 1, 2, 3]
    first, _ = replay.loss(lambda x: output[:3], Batch(torch.zeros(3, 1), y[:3], 3))  # type: ignore[arg-type]
    assert float(first) == pytest.approx(float(F.cross_entropy(output[:3, :4], y[:3])), abs=1e-9)


def test_at_the_end_stored_samples_get_the_logits_of_new_classes() -> None:
    torch.manual_seed(0)
    learner = Learner(nn.Linear(3, 5), "x-der", lr=0.1, batch_size=8, settings={"replay.capacity": 12})
    data = [(torch.randn(24, 3), torch.arange(24) % 2 + 2 * k) for k in range(2)]
    learner.learn(data[0], epochs=2)
    memory = learner.replay.memory
    assert memory is not None
    ((x1, _, first),) = memory.batches(100, ("x", "y", "logits"))
    learner.learn(data[1], epochs=2)
    ((x, y, logits),) = memory.batches(100, ("x", "y", "logits"))
    assert sorted(y.tolist()) == sorted([0, 1, 2, 3] * 3)
    output = learner.model(x).detach()
    for row in range(12):
        old = bool(y[row] < 2)
        written, kept = (slice(2, 5), slice(0, 2)) if old else (slice(0, 2), slice(2, 5))
        before = first[(x1 == x[row]).all(1)][0] if old else output[row]
        assert torch.allclose(logits[row, kept], before[kept], atol=1e-6)
        expected, true = output[row, written].clone(), logits[row, y[row]]
        if expected.max() > true:
            expected *= 0.85 * true / expected.max()
        assert torch.allclose(logits[row, written], expected, atol=1e-5)
