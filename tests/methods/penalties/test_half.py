"""Half-precision weights: importances, Fishers and paths are summed in float32, from the moves that happened."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.methods.penalties.loop import make_context, make_tasks, one_step, run_steps, same
from tests.methods.penalties.test_every_penalty import NAMES, make
from tmln.curvature.fisher import diagonal_fisher
from tmln.methods.penalties import PENALTIES
from tmln.methods.penalties.mas import compute_output_sensitivity
from tmln.methods.penalties.path_integral import Path
from tmln.methods.penalties.quadratic import Quadratic, add_penalty_gradient, proximal_step_

QUADRATIC = [name for name in NAMES if issubclass(PENALTIES[name], Quadratic)]
STEPS = 400  # beyond 256 equal terms a sum in bfloat16 no longer grows
HALVES = [torch.bfloat16, torch.float16]


class Bare(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=dtype))


Moves = list[tuple[Tensor, Tensor, Tensor]]


def walked(part: Any, model: Bare, index: int) -> Moves:
    """A task of steps as they come; the plain gradient and the weights before and after each, in float64 (exact)."""
    context = make_context(model, index, make_tasks()[0])
    generator = torch.Generator().manual_seed(index)
    moves = []
    part.begin(context)
    for _ in range(STEPS):
        gradient = (0.1 * torch.rand(3, generator=generator) + 0.05).to(model.theta.dtype)
        before = model.theta.detach().double()
        model.theta.grad = gradient.clone()
        part.after_backward()
        part.add_gradient()
        with torch.no_grad():
            model.theta.sub_(0.1 * model.theta.grad)
        part.after_step()
        moves.append((gradient.double(), before, model.theta.detach().double()))
    part.end(context)
    return moves


def path(moves: Moves) -> Tensor:
    total = torch.zeros(3, dtype=torch.float64)
    for gradient, before, after in moves:
        total -= gradient * (after - before)
    return total


def running(fisher: Tensor, moves: Moves, alpha: float) -> list[Tensor]:
    values = []
    for gradient, _, _ in moves:
        fisher = alpha * gradient * gradient + (1 - alpha) * fisher
        values.append(fisher)
    return values


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("strength", [0.0, 0.2])
def test_si_against_float64(dtype: torch.dtype, strength: float) -> None:
    model = Bare(dtype)
    part: Any = make("si", model, strength=strength)
    expected = torch.zeros(3, dtype=torch.float64)
    for index in range(2):
        moves = walked(part, model, index)
        expected += path(moves).clamp(min=0) / ((moves[-1][2] - moves[0][1]).square() + 1e-3)
        torch.testing.assert_close(part.importance[0].double(), expected, rtol=1e-5, atol=0)
        assert part.importance[0].dtype == torch.float32


@pytest.mark.parametrize("dtype", HALVES)
def test_ewcpp_against_float64(dtype: torch.dtype) -> None:
    model = Bare(dtype)
    part: Any = make("ewc++", model, strength=1.0, alpha=0.001)
    fisher = torch.zeros(3, dtype=torch.float64)
    for index in range(2):
        fisher = running(fisher, walked(part, model, index), 0.001)[-1]
        torch.testing.assert_close(part.importance[0].double(), fisher, rtol=1e-5, atol=0)
        assert part.importance[0].dtype == torch.float32


@pytest.mark.parametrize("dtype", HALVES)
def test_rwalk_against_float64(dtype: torch.dtype) -> None:
    model = Bare(dtype)
    part: Any = make("rwalk", model, strength=0.01, alpha=0.001, interval=150, normalize=False)
    fisher, scores = torch.zeros(3, dtype=torch.float64), []
    for index in range(2):
        moves = walked(part, model, index)
        values = running(fisher, moves, 0.001)
        fisher, score = values[-1], torch.zeros(3, dtype=torch.float64)
        for start in range(0, STEPS, 150):
            some = moves[start : start + 150]
            distance = (some[-1][2] - some[0][1]).square()
            current = values[start + len(some) - 1]
            score += path(some).clamp(min=0) / (0.5 * current * distance + 1e-3)
        scores.append(score)
        expected = fisher + torch.stack(scores).mean(0)
        torch.testing.assert_close(part.importance[0].double(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
def test_fishers_of_the_data_are_not_rounded(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, (x, y) = nn.Linear(6, 4).to(dtype), make_tasks()[0]
    context = make_context(model, 0, (x.to(dtype), y))
    fisher = diagonal_fisher(model, context.batches())
    for name in ("ewc", "ewc++"):
        part: Any = make(name, model, **({"fisher_source": "dataset", "alpha": 1.0} if name == "ewc++" else {}))
        part.end(context)
        assert torch.equal(part.importance[0], fisher["weight"])


class Growing(nn.Module):
    """f = 3x, by a weight; ``branches`` is how not to be vectorised."""

    def __init__(self, dtype: torch.dtype, branches: bool) -> None:
        super().__init__()
        self.weight, self.branches = nn.Parameter(torch.tensor([3.0], dtype=dtype)), branches

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x if not self.branches or x.sum() > 0 else x


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("branches", [False, True])
def test_so_are_sensitivities(dtype: torch.dtype, branches: bool) -> None:
    # d f^2/dw = 2*3*x^2: 6 at x=1 and 3/128 at x=1/16, the mean 771/256; in bfloat16 6 + 3/128 is already 6
    model = Growing(dtype, branches)
    batch = torch.tensor([[1.0], [1 / 16]], dtype=dtype), torch.tensor([0, 0])
    (found,) = compute_output_sensitivity(model, [batch] * STEPS, [model.weight])
    assert found.tolist() == [771 / 256]


@pytest.mark.parametrize("dtype", HALVES)
def test_the_pull_is_rounded_once(dtype: torch.dtype) -> None:
    weights, anchor = [torch.tensor([3.0], dtype=dtype)], [torch.tensor([1.0])]
    importance = [torch.tensor([0.123456789])]
    gradient = [torch.tensor([0.3], dtype=dtype)]
    expected = (gradient[0].double() + 7.0 * importance[0].double() * 2.0).to(dtype)
    assert same(add_penalty_gradient(gradient, weights, anchor, importance, 7.0), [expected])
    proximal_step_(weights, anchor, importance, 7.0)
    share = 7.0 * 0.123456789
    assert same(weights, [torch.tensor([(3.0 + share) / (1 + share)], dtype=torch.float64).to(dtype)])


@pytest.mark.parametrize("name", QUADRATIC)
@pytest.mark.parametrize("proximal", [False, True])
def test_a_resumed_run_keeps_float32_and_goes_on_exactly(name: str, proximal: bool) -> None:
    tasks = [(x.bfloat16(), y) for x, y in make_tasks()]

    def made(weights: dict[str, Tensor] | None = None) -> tuple[nn.Module, Any, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6)).bfloat16()
        if weights is not None:
            model.load_state_dict(weights)
        return model, make(name, model, strength=0.01, proximal=proximal), torch.optim.SGD(model.parameters(), lr=0.1)

    model, part, optimizer = made()
    part.begin(make_context(model, 0, tasks[0]))
    run_steps(part, model, optimizer, tasks[0], range(5))
    part.end(make_context(model, 0, tasks[0]))
    part.begin(make_context(model, 1, tasks[1]))
    run_steps(part, model, optimizer, tasks[1], range(3))
    twin, resumed, other = made(dict(model.state_dict()))
    resumed.load_state_dict(part.state_dict())
    assert {value.dtype for value in resumed.importance} == {torch.float32}
    for a, b, c in ((part, model, optimizer), (resumed, twin, other)):
        one_step(a, b, c, *tasks[1])
        a.end(make_context(b, 1, tasks[1]))
        a.begin(make_context(b, 2, tasks[2]))
        one_step(a, b, c, *tasks[2])
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert same(model.state_dict(), twin.state_dict())
    assert same(part.state_dict(), resumed.state_dict())


def test_a_path_that_was_saved_in_half_precision_goes_on_in_float32() -> None:
    weights: list[Tensor] = [torch.zeros(2, dtype=torch.bfloat16)]
    loaded = Path(weights)
    half = [torch.ones(2, dtype=torch.bfloat16)]
    loaded.load_state_dict({"banked": half, "recent": half, "steps": 3})
    assert loaded.total[0].dtype == torch.float32
