"""UPGD against hand-computed numbers, a loop over single weights, and the promises of an optimizer."""

from __future__ import annotations

import copy
import doctest
import io
import math
import pickle
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tmln.optim.upgd
from tmln.optim.upgd import UPGD


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tiny tensors on several threads of a busy machine only wait: 30 s for a test of 0.1 s."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def parameter(values: list[float]) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def close(actual: Tensor, expected: list[float], tolerance: float = 1e-9) -> bool:
    return torch.allclose(actual.detach(), torch.tensor(expected, dtype=actual.dtype), rtol=0, atol=tolerance)


# Hand vectors


def test_one_step_by_hand() -> None:
    theta = parameter([0.5, 0.8, -1.0, 1.5])
    curvature, centre = parameter([1, 4, 0.5, 2]), parameter([1, -0.5, 2, 0.25])
    optimizer = UPGD([theta], lr=0.1, beta_utility=0.0, sigma=0.0)
    torch.autograd.backward((0.5 * curvature * (theta - centre) ** 2).sum())
    optimizer.step()
    assert close(optimizer.state[theta]["utility"], [0.25, -4.16, -1.5, -3.75])
    assert close(theta, [0.5134470711, 0.2800000309, -0.8503708935, 1.2500000765], 1e-10)


def test_factor_two_makes_a_weight_without_utility_take_a_plain_step() -> None:
    theta = parameter([0.0, 1.0])
    theta.grad = torch.tensor([3.0, -1.0], dtype=torch.float64)
    UPGD([theta], lr=0.1, beta_utility=0.0, sigma=0.0, factor=2.0).step()
    assert close(theta, [-0.3, 1.0 + 0.2 / (1 + math.e)], 1e-12)


def test_the_uncorrected_maximum_freezes_the_best_weight_at_first() -> None:
    # beta=0.9, t=1: ratio 1/(1-beta) = 10, gate 4.5e-5; corrected: ratio 1, gate 0.2689
    for correct_max, gate in ((False, 1 / (1 + math.exp(10))), (True, 1 / (1 + math.e))):
        theta = parameter([1.0])
        theta.grad = torch.tensor([-1.0], dtype=torch.float64)
        UPGD([theta], lr=0.1, beta_utility=0.9, sigma=0.0, correct_max=correct_max).step()
        assert close(theta, [1.0 + 0.1 * gate], 1e-13)


def test_a_maximum_of_zero_gates_by_half() -> None:
    theta = parameter([0.0, 1.0])
    theta.grad = torch.tensor([1.0, 1.0], dtype=torch.float64)  # utilities 0 and -1
    UPGD([theta], lr=0.1, beta_utility=0.0, sigma=0.0).step()
    assert close(theta, [-0.05, 0.95], 1e-13)


def test_a_vanishing_maximum_does_not_become_nan() -> None:
    theta = nn.Parameter(torch.tensor([0.0, 1e-20]))
    theta.grad = torch.tensor([1.0, -1e-20])
    UPGD([theta], lr=0.1, beta_utility=0.0, sigma=0.0).step()
    assert close(theta, [-0.05, 0.0])


@pytest.mark.parametrize("variant", ["global", "local"])
def test_protection_is_relative_however_small_utilities_are(variant: str) -> None:
    theta = parameter([1e-4])
    theta.grad = torch.tensor([-1e-7], dtype=torch.float64)  # U = M = |U| = 1e-11
    UPGD([theta], lr=1.0, beta_utility=0.0, sigma=0.0, variant=variant).step()
    assert close(theta, [1e-4 + 1e-7 / (1 + math.e)], 1e-13)


def test_a_negative_maximum_inverts_protection_unless_guarded() -> None:
    gradient = torch.tensor([1.0, 2.0], dtype=torch.float64)  # utilities -1 and -2, M = -1
    literal, guarded = parameter([1.0, 1.0]), parameter([1.0, 1.0])
    literal.grad, guarded.grad = gradient.clone(), gradient.clone()
    UPGD([literal], lr=0.1, beta_utility=0.0, sigma=0.0).step()
    UPGD([guarded], lr=0.1, beta_utility=0.0, sigma=0.0, guard_negative_max=True).step()
    assert close(literal, [1 - 0.1 / (1 + math.e), 1 - 0.2 / (1 + math.exp(2))], 1e-12)
    assert close(guarded, [0.95, 0.9], 1e-12)


def test_the_local_variant_normalises_rows_of_the_last_dimension() -> None:
    theta = nn.Parameter(torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64))
    theta.grad = -torch.ones_like(theta)  # utilities (3, 4) with norm 5, and a row of zeros
    UPGD([theta], lr=0.1, beta_utility=0.0, sigma=0.0, variant="local").step()
    gates = [1 / (1 + math.exp(0.6)), 1 / (1 + math.exp(0.8)), 0.5, 0.5]
    expected = [w + 0.1 * q for w, q in zip((3.0, 4.0, 0.0, 0.0), gates, strict=True)]
    assert close(theta.flatten(), expected, 1e-12)


# Oracle: every weight by itself, in Python floats


def slow_step(
    weights: list[list[float]],
    gradients: list[list[float]],
    utilities: list[list[float]],
    noise: list[list[float]],
    t: int,
    s: dict[str, Any],
) -> None:
    sign = -1 if s["maximize"] else 1
    beta = s["beta_utility"]
    for w, g, u in zip(weights, gradients, utilities, strict=True):
        for i in range(len(w)):
            u[i] = beta * u[i] + (1 - beta) * (-sign * g[i] * w[i])
    correction = 1 - beta**t
    peak = max(max(u) for u in utilities) / (correction if s["correct_max"] else 1)
    for w, g, u, xi in zip(weights, gradients, utilities, noise, strict=True):
        norm = max(math.sqrt(sum((v / correction) ** 2 for v in u)), 1e-12)
        for i in range(len(w)):
            scaled = u[i] / correction / (norm if s["variant"] == "local" else peak)
            gate = 1 - 1 / (1 + math.exp(-scaled))
            w[i] *= 1 - s["lr"] * s["weight_decay"]
            kick = s["sigma"] * xi[i]
            if s["protecting"]:
                w[i] -= s["factor"] * s["lr"] * (sign * g[i] + kick) * gate
            else:
                w[i] -= s["lr"] * (sign * g[i] + s["factor"] * kick * gate)


OPTIONS = [
    {"variant": v, "protecting": p, "factor": f, "correct_max": c, "maximize": m, "weight_decay": d}
    for v, p, (f, c, m, d) in product(
        ("global", "local"),
        (True, False),
        ((1.0, False, False, 0.0), (2.0, True, False, 0.1), (1.5, False, True, 0.3), (1.0, True, True, 0.0)),
    )
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(str(v) for v in o.values()))
def test_equals_the_loop_over_single_weights(options: dict[str, Any]) -> None:
    settings = {"lr": 0.05, "beta_utility": 0.8, "sigma": 0.3, **options}
    source = torch.Generator().manual_seed(5)
    shapes = [3, 20, 1]
    start = [torch.randn(n, generator=source, dtype=torch.float64) for n in shapes]
    parameters = [nn.Parameter(w.clone()) for w in start]
    optimizer = UPGD(parameters, seed=11, **settings)
    weights = [w.tolist() for w in start]
    utilities = [[0.0] * n for n in shapes]
    noise_source = torch.Generator().manual_seed(11)
    for t in range(1, 6):
        gradients = [torch.randn(n, generator=source, dtype=torch.float64) for n in shapes]
        for p, g in zip(parameters, gradients, strict=True):
            p.grad = g.clone()
        noise = [torch.randn(n, generator=noise_source, dtype=torch.float64).tolist() for n in shapes]
        optimizer.step()
        slow_step(weights, [g.tolist() for g in gradients], utilities, noise, t, settings)
        for p, w in zip(parameters, weights, strict=True):
            assert close(p, w, 1e-12)


def test_without_noise_the_non_protecting_form_is_sgd_exactly() -> None:
    models = [nn.Linear(5, 3), nn.Linear(5, 3)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [
        UPGD(models[0].parameters(), lr=0.1, sigma=0.0, protecting=False, factor=2.0),
        torch.optim.SGD(models[1].parameters(), lr=0.1),
    ]
    for _ in range(4):
        x = torch.randn(8, 5)
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    assert torch.equal(models[0].weight, models[1].weight)
    assert torch.equal(models[0].bias, models[1].bias)


# Promises of an optimizer


def small_run(optimizer: UPGD, model: nn.Module, steps: range) -> None:
    for step in steps:
        x = torch.randn(4, 6, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def small_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.mark.parametrize("stop", [0, 3])
def test_resumed_run_is_bit_identical(stop: int) -> None:
    whole = small_model()
    small_run(UPGD(whole.parameters(), lr=0.05, seed=3), whole, range(7))
    first = small_model()
    optimizer = UPGD(first.parameters(), lr=0.05, seed=3)
    small_run(optimizer, first, range(stop))
    file = io.BytesIO()
    torch.save({"model": first.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second = small_model()
    second.load_state_dict(saved["model"])
    resumed = UPGD(second.parameters(), lr=0.9, seed=77)
    resumed.load_state_dict(saved["optimizer"])
    small_run(resumed, second, range(stop, 7))
    for a, b in zip(whole.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_state_dict_holds_tensors_and_plain_values_only() -> None:
    model = small_model()
    optimizer = UPGD(model.parameters())
    small_run(optimizer, model, range(1))

    def leaves(value: object) -> list[object]:
        if isinstance(value, dict):
            return [leaf for v in value.values() for leaf in leaves(v)]
        if isinstance(value, list | tuple):
            return [leaf for v in value for leaf in leaves(v)]
        return [value]

    state = optimizer.state_dict()
    assert all(type(leaf) in (Tensor, int, float, str, bool, type(None)) for leaf in leaves(state))
    assert state["noise"]["generators"]["cpu"].dtype == torch.uint8


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_go_on_alike(duplicate: Any) -> None:
    model = small_model()
    optimizer = UPGD(model.parameters(), lr=0.05, seed=3)
    small_run(optimizer, model, range(2))
    copied_model, copied = duplicate((model, optimizer))
    small_run(optimizer, model, range(2, 4))
    small_run(copied, copied_model, range(2, 4))
    for a, b in zip(model.parameters(), copied_model.parameters(), strict=True):
        assert torch.equal(a, b)


def moved_by_noise(seed: int | None, **layout: Any) -> Tensor:
    weight = nn.Parameter(torch.zeros(4, 3, 3, 3).to(**layout))
    weight.grad = torch.zeros_like(weight)
    UPGD([weight], lr=1.0, sigma=1.0, seed=seed).step()
    return weight.detach()


def test_noise_follows_the_seed_and_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    assert torch.equal(moved_by_noise(1), moved_by_noise(1))
    assert not torch.equal(moved_by_noise(1), moved_by_noise(2))
    assert torch.equal(before, torch.get_rng_state())


def test_without_a_seed_noise_follows_the_global_generator() -> None:
    torch.manual_seed(4)
    moved = moved_by_noise(None)
    torch.manual_seed(4)
    assert torch.equal(moved, -0.5 * torch.randn(4, 3, 3, 3))


def test_noise_does_not_depend_on_the_memory_format() -> None:
    assert torch.equal(moved_by_noise(1), moved_by_noise(1, memory_format=torch.channels_last))


def test_parameters_without_gradient_are_skipped() -> None:
    # an idle parameter in front neither moves nor draws noise nor sets the maximum
    alone, idle, beside = parameter([0.5, -1.0]), parameter([100.0]), parameter([0.5, -1.0])
    one, two = UPGD([alone], lr=0.1), UPGD([idle, beside], lr=0.1)
    for _ in range(3):
        alone.grad = torch.tensor([-1.0, 0.3], dtype=torch.float64)
        beside.grad = alone.grad.clone()
        one.step()
        two.step()
    assert torch.equal(alone, beside)
    assert close(idle, [100.0], 0.0)
    assert idle not in two.state


def test_a_parameter_that_joins_late_has_its_own_bias_correction() -> None:
    early, late = parameter([1.0]), parameter([1.0])
    optimizer = UPGD([early, late], lr=0.1, beta_utility=0.5, sigma=0.0)
    early.grad = torch.tensor([-1.0], dtype=torch.float64)
    optimizer.step()
    weight = early.item()
    late.grad = early.grad.clone()
    optimizer.step()
    utility = 0.25 + 0.5 * weight  # early: U = 0.5*0.5 + 0.5*w, the maximum; late: U = 0.5 at t = 1
    gate = 1 / (1 + math.exp(0.5 / 0.5 / utility))
    assert close(late, [1.0 + 0.1 * gate], 1e-12)


def test_groups_have_their_own_settings_and_share_the_maximum() -> None:
    a, b = parameter([1.0]), parameter([2.0])
    optimizer = UPGD([{"params": [a], "lr": 0.2}], lr=0.1, beta_utility=0.0, sigma=0.0)
    optimizer.add_param_group({"params": [b]})
    for p in (a, b):
        p.grad = -torch.ones_like(p)  # utilities 1 and 2, M = 2
    optimizer.step()
    assert close(a, [1.0 + 0.2 / (1 + math.exp(0.5))], 1e-12)
    assert close(b, [2.0 + 0.1 / (1 + math.e)], 1e-12)


def test_schedulers_and_closures_work() -> None:
    p = parameter([0.0])
    optimizer = UPGD([p], lr=1.0, sigma=0.0, protecting=False)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.1)

    def closure() -> float:
        optimizer.zero_grad()
        loss = p.sum()
        torch.autograd.backward(loss)
        return loss.item()

    assert optimizer.step(closure) == 0.0
    scheduler.step()
    assert optimizer.step(closure) == -1.0
    assert p.item() == pytest.approx(-1.1)


def test_empty_and_scalar_parameters_do_not_trouble_either_variant() -> None:
    for variant in ("global", "local"):
        empty, scalar = nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.tensor(2.0))
        empty.grad, scalar.grad = torch.zeros(0, 3), torch.tensor(-1.0)
        UPGD([empty, scalar], lr=0.1, beta_utility=0.0, sigma=0.0, variant=variant).step()
        assert scalar.item() == pytest.approx(2.0 + 0.1 / (1 + math.e))
    UPGD([nn.Parameter(torch.zeros(2))]).step()  # no gradient anywhere: nothing to do


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", -0.1),
        ("lr", math.nan),
        ("beta_utility", 1.0),
        ("beta_utility", -0.1),
        ("sigma", -1.0),
        ("weight_decay", math.inf),
        ("factor", 0.0),
        ("variant", "gobal"),
    ],
)
def test_bad_values_are_named(name: str, value: object) -> None:
    settings: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match=name):
        UPGD([parameter([1.0])], **settings)
    optimizer = UPGD([parameter([1.0])])
    with pytest.raises(ValueError, match=name):
        optimizer.add_param_group({"params": [parameter([1.0])], **settings})
    assert len(optimizer.param_groups) == 1


def test_sparse_and_complex_are_refused_before_anything_moves() -> None:
    dense, table = parameter([1.0]), nn.Embedding(3, 2, sparse=True)
    dense.grad = torch.ones_like(dense)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(TypeError, match="dense"):
        UPGD([dense, table.weight]).step()
    assert close(dense, [1.0], 0.0)
    wave = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    wave.grad = torch.zeros_like(wave)
    with pytest.raises(TypeError, match="real parameters"):
        UPGD([wave]).step()


def test_another_optimizers_state_is_refused() -> None:
    p = parameter([1.0])
    with pytest.raises(ValueError, match="noise"):
        UPGD([p]).load_state_dict(torch.optim.SGD([p], lr=0.1).state_dict())


def test_the_documented_examples_run() -> None:
    result = doctest.testmod(tmln.optim.upgd)
    assert (result.attempted, result.failed) == (4, 0)
