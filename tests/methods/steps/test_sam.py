"""SAM: two steps by hand, slow loops, its path, and what happens where the loss is no number."""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.methods.penalties.loop import Numbers
from tests.methods.steps.test_path import check, network, task
from tmln.learner import Learner
from tmln.learner.loop import Diverged
from tmln.methods import read_settings
from tmln.methods.steps.sam import SAMStep, ascent


def test_two_steps_by_hand() -> None:
    """L = (x^2 + 4y^2)/2, lr 0.1, rho 0.5, inner momentum 0.9.

    At (3, 1) g = (3, 4), ||g|| = 5, so the loss is looked at in (3.3, 1.4), where its gradient is (3.3, 5.6): that
    moves (3, 1) to (2.67, 0.44). There g = (2.67, 1.76), and so on.
    """
    model = Numbers(3.0, 1.0)
    scale = torch.tensor([1.0, 4.0], dtype=torch.float64)
    step = SAMStep(read_settings(SAMStep, {"rho": 0.5, "inner.momentum": 0.9}), model, 0.1, 0)
    seen: list[Tensor] = []

    def closure() -> float:
        seen.append(model.theta.detach().clone())
        model.theta.grad = scale * model.theta.detach()
        return float((scale * model.theta.detach().square()).sum() / 2)

    step.step(closure, model.context())
    torch.testing.assert_close(torch.stack(seen), torch.tensor([[3.0, 1.0], [3.3, 1.4]], dtype=torch.float64))
    torch.testing.assert_close(model.theta.detach(), torch.tensor([2.67, 0.44], dtype=torch.float64))
    step.step(closure, model.context())
    norm = sqrt(2.67**2 + 1.76**2)
    x, y = 2.67 + 0.5 * 2.67 / norm, 0.44 + 0.5 * 1.76 / norm
    expected = [2.67 - 0.1 * (0.9 * 3.3 + x), 0.44 - 0.1 * (0.9 * 5.6 + 4 * y)]
    torch.testing.assert_close(model.theta.detach(), torch.tensor(expected, dtype=torch.float64))


def test_the_norm_is_one_over_all_tensors() -> None:
    moves = ascent([torch.tensor([3.0]), torch.tensor([[0.0], [4.0]])], 0.5)
    assert [move.tolist() for move in moves] == [pytest.approx([0.3]), [[0.0], pytest.approx([0.4])]]
    assert ascent([torch.zeros(2)], 0.5)[0].tolist() == [0.0, 0.0]
    half = ascent([torch.full((4,), 200.0, dtype=torch.float16)], 0.5)[0]  # whose square is more than float16 holds
    assert half.tolist() == [0.25] * 4


def slow(model: nn.Module, rho: float, strength: float, replay: bool, distil: bool) -> list[Tensor]:
    """Three tasks, whole batches, in plain autograd: the definition, term by term."""
    weights = list(model.parameters())
    anchor: list[Tensor] = []
    fisher: list[Tensor] = []
    old_x: list[Tensor] = []
    old_y: list[Tensor] = []
    teacher: nn.Module | None = None

    def total(x: Tensor, y: Tensor, known: int) -> Tensor:
        joined_x, joined_y = torch.cat([x, *old_x]), torch.cat([y, *old_y])
        output = model(joined_x)
        loss = F.cross_entropy(output, joined_y)
        for p, f, a in zip(weights, fisher, anchor, strict=False):  # none in the first task
            loss = loss + strength / 2 * (f * (p - a) ** 2).sum()
        if teacher is not None:
            expected = (teacher(joined_x)[:, :known] / 2).softmax(1)
            said = (output[:, :known] / 2).log_softmax(1)
            loss = loss + (expected * (expected.log() - said)).sum(1).mean()
        return loss

    for k in range(3):
        x, y = task(k)[0].double(), task(k)[1]
        if distil and k:
            teacher = network()
            teacher.load_state_dict(model.state_dict())
            teacher.requires_grad_(False)
        for _ in range(5):
            gradient = torch.autograd.grad(total(x, y, 2 * k), weights)
            norm = torch.cat([g.flatten() for g in gradient]).norm()
            here = [p.detach().clone() for p in weights]
            for p, g in zip(weights, gradient, strict=True):
                p.data += rho * g / norm
            gradient = torch.autograd.grad(total(x, y, 2 * k), weights)
            for p, at, g in zip(weights, here, gradient, strict=True):
                p.data = at - 0.01 * g
        if strength:
            new = [torch.zeros_like(p) for p in weights]
            for sample, label in zip(x, y, strict=True):
                found = torch.autograd.grad(F.cross_entropy(model(sample[None]), label[None]), weights)
                for square, g in zip(new, found, strict=True):
                    square += g**2 / len(x)
            fisher = [a + b for a, b in zip(fisher, new, strict=True)] if fisher else new
            anchor = [p.detach().clone() for p in weights]
        if replay:
            old_x, old_y = [*old_x, x], [*old_y, y]
    return [p.detach() for p in weights]


@pytest.mark.parametrize(
    ("parts", "settings", "oracle"),
    [
        ({}, {}, (0.0, False, False)),
        ({"penalty": "ewc"}, {"penalty.strength": 20.0}, (20.0, False, False)),
        ({"penalty": "lwf"}, {}, (0.0, False, True)),
        ({"replay": "er"}, {"replay.batch": 999, "replay.capacity": 999}, (0.0, True, False)),
        (
            {"replay": "er", "penalty": "ewc"},
            {"replay.batch": 999, "replay.capacity": 999, "penalty.strength": 20.0},
            (20.0, True, False),
        ),
    ],
)
def test_against_a_slow_loop(parts: dict[str, str], settings: dict[str, Any], oracle: tuple[float, bool, bool]) -> None:
    """The second gradient, too, is of the replayed samples and of the penalty."""
    learner = Learner(network(), "naive", step="sam", settings={"step.rho": 0.3, **settings}, **parts)  # type: ignore[arg-type]
    for k in range(3):
        learner.learn(task(k), epochs=5)
    for found, expected in zip(learner.model.parameters(), slow(network(), 0.3, *oracle), strict=True):
        torch.testing.assert_close(found.detach(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*overshoot")
@pytest.mark.parametrize("penalty", ["none", "ewc", "si", "lwf"])
@pytest.mark.parametrize("options", [{}, {"step.inner.momentum": 0.5, "step.inner.clip_norm": 0.1}])
def test_tmlns_path_is_of_the_tasks_gradient_where_the_step_begins(penalty: str, options: dict[str, Any]) -> None:
    strength = {} if penalty == "none" else {"penalty.strength": 2.0}
    settings = {"step.inner": "tmln", "step.rho": 0.5, **strength, **options}
    check(Learner(network(), "naive", replay="none", penalty=penalty, step="sam", settings=settings))


def test_the_path_of_penalties_is_of_the_tasks_gradient_where_the_step_begins() -> None:
    learner = Learner(network(), "naive", penalty="si", step="sam", settings={"step.rho": 0.5})
    (x, y), weights = task(0), list(learner.model.parameters())
    total = [torch.zeros_like(p) for p in weights]
    before: list[tuple[Tensor, Tensor]] = []

    def look() -> None:
        gradients = torch.autograd.grad(F.cross_entropy(learner.model(x.double()), y), weights)
        before[:] = [(p.detach().clone(), g) for p, g in zip(weights, gradients, strict=True)]

    def walk(epoch: int, step: int, loss: float) -> None:
        for omega, p, (at, gradient) in zip(total, weights, before, strict=True):
            omega -= gradient * (p.detach() - at)
        for found, omega in zip(learner.penalty.path.total, total, strict=True):  # type: ignore[attr-defined]
            torch.testing.assert_close(found, omega, rtol=1e-9, atol=1e-12)
        look()

    look()
    learner.learn((x, y), epochs=5, on_step=walk)


def test_a_place_where_the_loss_is_no_number_leaves_the_weights_alone() -> None:
    learner = Learner(network(), "naive", step="sam", settings={"step.rho": 1e308})
    before = [p.detach().clone() for p in learner.model.parameters()]
    with pytest.raises(Diverged):
        learner.learn(task(0), atomic=False)
    assert all(torch.equal(p, at) for p, at in zip(learner.model.parameters(), before, strict=True))


def test_what_has_no_gradient_is_left_alone() -> None:
    model = nn.Linear(2, 2)
    step = SAMStep(read_settings(SAMStep, {}), model, 0.1, 0)
    before = model.weight.detach().clone()
    step.step(lambda: 0.0, Numbers(1.0).context())
    assert torch.equal(model.weight, before)
