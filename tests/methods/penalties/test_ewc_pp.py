"""EWC++ by hand: the running Fisher, the penalty, and what is frozen when."""

from __future__ import annotations

import pytest
import torch

from tests.methods.penalties.loop import Numbers, close, make_context, make_net, make_tasks
from tmln.curvature.fisher import diagonal_fisher
from tmln.methods.penalties.ewc_pp import EWCPlusPlus, EWCPlusPlusSettings, average_squares_
from tmln.methods.penalties.quadratic import compute_penalty


@pytest.mark.parametrize(("init", "expected"), [("zero", [0.36, 0.64]), ("first", [0.4, 0.8])])
def test_the_running_fisher_by_hand(init: str, expected: list[float]) -> None:
    # alpha=0.8, g=(1,-2) then (0.5,0)
    model = Numbers(0.0, 0.0)
    part = EWCPlusPlus(EWCPlusPlusSettings(alpha=0.8, init=init), model)  # type: ignore[arg-type]
    part.begin(model.context())
    model.walk(part, [1.0, -2.0], [0.1, 0.1])
    model.walk(part, [0.5, 0.0], [0.1, 0.1])
    assert close(part.fisher[0], expected)
    part.end(model.context())
    assert close(part.importance[0], expected)


@pytest.mark.parametrize(("half", "factor"), [(True, 1.0), (False, 2.0)])
def test_the_penalty_by_hand(half: bool, factor: float) -> None:
    # F=(0.36,0.64), lambda=10, theta-theta*=(0.1,-0.2): 0.146 and (0.36,-1.28) in half form
    model = Numbers(1.0, 1.0)
    part = EWCPlusPlus(EWCPlusPlusSettings(strength=10.0, alpha=0.8, half=half), model)
    part.begin(model.context())
    model.walk(part, [1.0, -2.0], [0.0, 0.0])
    model.walk(part, [0.5, 0.0], [0.0, 0.0])
    part.end(model.context())
    part.begin(model.context(1))
    model.walk(part, [0.0, 0.0], [0.1, -0.2])
    assert compute_penalty(part.weights, part.anchor, part.importance, part.stiffness).item() == pytest.approx(
        0.146 * factor
    )
    assert close(model.walk(part, [0.0, 0.0], [0.0, 0.0]), [0.36 * factor, -1.28 * factor])


def test_in_task_two_the_running_fisher_sees_the_plain_gradient_and_the_penaltys_copy_is_frozen() -> None:
    model = Numbers(0.0)
    part = EWCPlusPlus(EWCPlusPlusSettings(strength=10.0, alpha=0.5), model)
    model.walk(part, [2.0], [1.0])
    part.end(model.context())  # F = 2, anchor 1
    model.walk(part, [0.0], [1.0])  # F = 1
    found = model.walk(part, [4.0], [0.0])  # F = 0.5*16 + 0.5*1; penalty 10*2*1
    assert close(found, [24.0])
    assert close(part.fisher[0], [8.5])
    assert close(part.importance[0], [2.0])


def test_normalised_the_largest_importance_is_one() -> None:
    model = Numbers(0.0, 0.0)
    part = EWCPlusPlus(EWCPlusPlusSettings(normalize=True), model)
    model.walk(part, [1.0, 2.0], [0.0, 0.0])
    part.end(model.context())
    assert close(part.importance[0], [0.25, 1.0])


@pytest.mark.parametrize(("init", "first"), [("zero", 0.75), ("first", 1.0)])
def test_from_the_data_set_the_per_sample_fisher_is_averaged_over_tasks(init: str, first: float) -> None:
    model, tasks = make_net(), make_tasks()
    part = EWCPlusPlus(EWCPlusPlusSettings(fisher_source="dataset", alpha=0.75, init=init), model)  # type: ignore[arg-type]
    fishers = []
    for index in range(2):
        context = make_context(model, index, tasks[index])
        part.end(context)
        fishers.append(diagonal_fisher(model, context.batches())["head.weight"])
        with torch.no_grad():
            model.head.weight.mul_(0.5)
    position = next(i for i, p in enumerate(part.parameters) if p is model.head.weight)
    assert torch.allclose(part.importance[position], 0.75 * fishers[1] + 0.25 * first * fishers[0])


def test_the_average_is_the_sum_of_a_geometric_series() -> None:
    gradients = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    fisher = [torch.zeros(4, dtype=torch.float64)]
    for gradient in gradients:
        average_squares_(fisher, [gradient], 0.3)
    expected = sum(0.3 * 0.7 ** (5 - t) * gradients[t].square() for t in range(6))
    assert torch.allclose(fisher[0], torch.as_tensor(expected))
