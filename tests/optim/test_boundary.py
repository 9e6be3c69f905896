"""TMLN's task boundary: all or nothing, what it forgets, what it reports, and when it warns."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln.optim import TMLN
from tmln.optim.protection import NIL, TOO_STRONG, Shield, measure_protection, quantile

D = torch.float64


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=D)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(actual.detach(), expected, rtol=tolerance, atol=tolerance)


def stepped(*gradients: Tensor, **options: Any) -> tuple[list[nn.Parameter], TMLN]:
    """A parameter at zero for each gradient, and an optimizer that took one step."""
    params = [nn.Parameter(torch.zeros_like(g)) for g in gradients]
    optimizer = TMLN(params, **{"lr": 0.1, "damping": 0.5, "trajectory": 2.0, **options})
    for p, g in zip(params, gradients, strict=True):
        p.grad = g.clone()
    optimizer.step()
    return params, optimizer


# -- all or nothing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("score_max", ["global", "tensor"])
def test_empty_parameters_are_no_obstacle(score_max: str) -> None:
    empty = torch.zeros(0, 3, dtype=D)
    (none, p), optimizer = stepped(empty, vector(1.0, 2.0), score_max=score_max)
    outcome = optimizer.consolidate([empty, vector(0.5, 0.1)])
    close(optimizer.state[p]["sensitivity"], vector(0.25, 1.0))
    assert optimizer.state[none]["sensitivity"].shape == (0, 3)
    assert outcome.mass == {none: 0.0, p: 1.0}
    assert outcome.active == 1.0


@pytest.mark.parametrize("score_max", ["global", "tensor"])
def test_nothing_but_empty_parameters(score_max: str) -> None:
    empty = torch.zeros(0, dtype=D)
    _, optimizer = stepped(empty, score_max=score_max)
    outcome = optimizer.consolidate([empty])
    assert outcome[:4] == (0.0, 0.0, 1.0, 1.0)


def spoil_path(a: nn.Parameter, b: nn.Parameter, optimizer: TMLN) -> None:
    optimizer.state[b]["raw_path"][1] = math.nan


def spoil_weights(a: nn.Parameter, b: nn.Parameter, optimizer: TMLN) -> None:
    b.data[1] = math.inf


def spoil_anchor(a: nn.Parameter, b: nn.Parameter, optimizer: TMLN) -> None:
    optimizer.state[b]["anchor"][0] = math.nan


def overflow(a: nn.Parameter, b: nn.Parameter, optimizer: TMLN) -> None:
    optimizer.state[b]["raw_path"].fill_(1e300)
    optimizer.state[b]["fisher"].zero_()
    optimizer.param_groups[0]["eps"] = 1e-300


def spoil_open(a: nn.Parameter, b: nn.Parameter, optimizer: TMLN) -> None:
    optimizer.state[b]["task_gradient"].fill_(math.inf)


GOOD = (vector(0.5, 0.1), vector(0.2, 0.3))
FAILURES: dict[str, tuple[Callable[..., None], Any, type[Exception], str]] = {
    "path": (spoil_path, GOOD, FloatingPointError, "path integral of parameter 1 of group 0"),
    "weights": (spoil_weights, GOOD, FloatingPointError, "of parameter 1 of group 0 is not finite"),
    "anchor": (spoil_anchor, GOOD, FloatingPointError, "displacement of parameter 1 of group 0"),
    "overflow": (overflow, GOOD, FloatingPointError, r"overflowed \(inf\); raise eps"),
    "open": (spoil_open, GOOD, FloatingPointError, "path integral of parameter 1"),
    "no fisher": (lambda *_: None, None, TypeError, "diagonal_fisher"),
    "a fisher too few": (lambda *_: None, GOOD[:1], ValueError, "2 parameters, 1 tensors"),
    "shape": (lambda *_: None, (GOOD[0], torch.ones(3)), ValueError, "shape"),
    "negative": (lambda *_: None, (GOOD[0], -GOOD[1]), ValueError, "negative"),
    "no tensor": (lambda *_: None, (GOOD[0], [1.0, 2.0]), AttributeError, "shape"),
    "complex": (lambda *_: None, (GOOD[0], torch.ones(2, dtype=torch.complex64)), Exception, "omplex"),
}


def everything(optimizer: TMLN) -> Any:
    weights = [p.detach().clone() for group in optimizer.param_groups for p in group["params"]]
    return copy.deepcopy((optimizer.state_dict(), weights))


def assert_same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, Tensor):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a == b


@pytest.mark.parametrize("score_max", ["global", "tensor"])
@pytest.mark.parametrize("case", FAILURES)
def test_a_boundary_that_fails_has_changed_nothing(case: str, score_max: str) -> None:
    spoil, fisher, error, words = FAILURES[case]
    (a, b), optimizer = stepped(vector(1.0, 2.0), vector(-1.0, 0.5), score_max=score_max, momentum=0.9)
    optimizer.consolidate(GOOD)
    optimizer.after_backward()
    optimizer.step()
    optimizer.param_groups[0]["damping"] = 0.7  # the next step banks the path: there is all of the state there can be
    optimizer.step()
    spoil(a, b, optimizer)
    before = everything(optimizer)
    with pytest.raises(error, match=words):
        optimizer.consolidate(fisher)
    assert_same(everything(optimizer), before)


def test_a_refresh_that_fails_has_changed_nothing() -> None:
    _, optimizer = stepped(vector(1.0, 2.0), vector(-1.0, 0.5))
    before = everything(optimizer)
    with pytest.raises(ValueError, match="negative"):
        optimizer.refresh((GOOD[0], -GOOD[1]))
    assert_same(everything(optimizer), before)


def test_a_nan_in_any_parameter_is_seen() -> None:
    """max() of Python forgets a NaN that does not come first."""
    (_, b), optimizer = stepped(vector(1.0, 2.0), vector(-1.0, 0.5))
    b.data[0] = math.nan
    with pytest.raises(FloatingPointError, match="parameter 1 of group 0"):
        optimizer.consolidate(GOOD)


# -- momentum --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keep", "velocity"), [(False, (1.0, 1.0)), (True, (1.9, -0.8))])
def test_momentum_at_a_boundary_by_hand(keep: bool, velocity: tuple[float, float]) -> None:
    (p,), optimizer = stepped(vector(1.0, -2.0), momentum=0.9, keep_momentum=keep)
    close(p, vector(-0.2, 0.4))
    optimizer.consolidate([torch.zeros(2, dtype=D)])
    assert bool(optimizer.state[p]["momentum_buffer"].any()) is keep
    p.grad = vector(1.0, 1.0)
    optimizer.step()
    shield = vector(0.5 + 2 * 0.25, 0.5 + 2 * 1.0)
    close(p, vector(-0.2, 0.4) - 0.1 * vector(*velocity) / shield)
    close(optimizer.state[p]["momentum_buffer"], vector(*velocity))


def test_groups_may_differ_in_keeping_their_momentum() -> None:
    a, b = (nn.Parameter(torch.zeros(1, dtype=D)) for _ in range(2))
    groups: list[dict[str, Any]] = [{"params": [a], "keep_momentum": True}, {"params": [b]}]
    optimizer = TMLN(groups, momentum=0.9)
    a.grad = b.grad = vector(1.0)
    optimizer.step()
    optimizer.consolidate([vector(1.0)] * 2)
    assert optimizer.state[a]["momentum_buffer"].any()
    assert not optimizer.state[b]["momentum_buffer"].any()


def test_a_new_metric_within_a_task_keeps_the_momentum() -> None:
    (p,), optimizer = stepped(vector(1.0, -2.0), momentum=0.9)
    optimizer.refresh([torch.ones(2, dtype=D)])
    close(optimizer.state[p]["momentum_buffer"], vector(1.0, -2.0))


def test_states_saved_before_there_were_these_options_load() -> None:
    (p,), optimizer = stepped(vector(1.0, -2.0), momentum=0.9)
    old = copy.deepcopy(optimizer.state_dict())
    for group in old["param_groups"]:
        del group["keep_momentum"], group["looked"]
    q = nn.Parameter(p.detach().clone())
    loaded = TMLN([q], momentum=0.5, keep_momentum=True)
    loaded.load_state_dict(old)
    assert loaded.param_groups[0]["keep_momentum"] is False
    for weights, each in ((p, optimizer), (q, loaded)):
        weights.grad = vector(1.0, 1.0)
        each.step()
        each.consolidate([torch.ones(2, dtype=D)])
        each.step()
    assert torch.equal(p, q)


# -- what it found ---------------------------------------------------------------------------------------------------


def test_active_weights_lie_above_a_hundredth_of_the_maximum() -> None:
    """eta = lambda = eps = 1 and F = 0: a score is g^2, exactly."""
    shares = (1.0, 0.0101, 0.0099, 0.5, 0.0)
    g = vector(10.0, *(10 * math.sqrt(s) for s in shares[1:]))
    (_,), optimizer = stepped(g, lr=1.0, damping=1.0, eps=1.0)
    outcome = optimizer.consolidate([torch.zeros(5, dtype=D)])
    assert outcome.peak == 100.0
    assert outcome.active == 3 / 5
    (_,), optimizer = stepped(vector(10.0, 1.0), lr=1.0, damping=1.0, eps=1.0)  # 1/100 itself is not above
    assert optimizer.consolidate([torch.zeros(2, dtype=D)]).active == 1 / 2


@pytest.mark.parametrize(("score_max", "active"), [("global", 2 / 6), ("tensor", 4 / 6)])
def test_mass_is_the_share_of_the_raw_scores(score_max: str, active: float) -> None:
    params, optimizer = stepped(vector(1.0, 0.5), vector(30.0, 40.0), lr=1.0, damping=1.0, eps=1.0, score_max=score_max)
    idle = nn.Parameter(torch.zeros(2, dtype=D))
    optimizer.add_param_group({"params": [idle]})
    outcome = optimizer.consolidate([torch.zeros(2, dtype=D)] * 3)
    total = 1.25 + 2500.0
    assert list(outcome.mass) == [*params, idle]
    assert list(outcome.mass.values()) == pytest.approx([1.25 / total, 2500 / total, 0.0], rel=1e-12)
    assert outcome.peak == 1600.0
    assert outcome.active == active


def test_a_task_without_a_path_has_no_mass() -> None:
    (p,), optimizer = stepped(vector(0.0, 0.0))
    assert optimizer.consolidate([torch.zeros(2, dtype=D)]).mass == {p: 0.0}


def test_the_slowdown_by_hand() -> None:
    """S-bar = (0.25, 1), so d/lambda = (0.3 + 0.5 + 2*0.25, 0.2 + 0.5 + 2) / 0.5 = (2.6, 5.4)."""
    _, optimizer = stepped(vector(1.0, 2.0))
    assert optimizer.protection() == (1.0, 1.0, True)
    outcome = optimizer.consolidate([vector(0.3, 0.2)])
    assert outcome.slowdown_median == pytest.approx(4.0)
    assert outcome.slowdown_p95 == pytest.approx(2.6 + 0.95 * 2.8)
    assert optimizer.protection() == (outcome.slowdown_median, outcome.slowdown_p95, False)
    optimizer.param_groups[0].update(damping=1.0, trajectory=1.0)  # in force from now on: (1.55, 2.2)
    assert optimizer.protection()[:2] == pytest.approx((1.875, 1.55 + 0.95 * 0.65))
    assert optimizer.protection().slowed == 1.0


@pytest.mark.parametrize(
    ("options", "fisher", "slowed"),
    [
        ({"geometry": "euclidean"}, None, (2.0, 5.0)),  # no F
        ({"geometry": "euclidean-score"}, vector(0.3, 0.2), (2.6, 5.4)),
        ({"form": "proximal"}, vector(0.3, 0.2), (1.08, 1.22)),  # lambda = 1/eta = 10
        ({"trajectory": 0.0}, vector(0.3, 0.2), (1.6, 1.4)),
        ({"form": "proximal", "damping": 7.0}, vector(0.3, 0.2), (1.08, 1.22)),
    ],
)
def test_the_slowdown_of_every_form(options: dict[str, Any], fisher: Tensor | None, slowed: tuple[float, ...]) -> None:
    _, optimizer = stepped(vector(1.0, 2.0), eps=1e8, **options)
    outcome = optimizer.consolidate(None if fisher is None else [fisher])
    low, high = sorted(slowed)
    assert outcome[2:4] == pytest.approx(((low + high) / 2, low + 0.95 * (high - low)), rel=1e-7)
    assert optimizer.protection()[:2] == outcome[2:4]


def test_a_rate_of_zero_in_the_proximal_form_slows_nothing_more() -> None:
    _, optimizer = stepped(vector(1.0, 2.0), form="proximal")
    optimizer.consolidate([vector(0.3, 0.2)])
    optimizer.param_groups[0]["lr"] = 0.0
    assert optimizer.protection() == (1.0, 1.0, True)


def test_weights_that_train_count_and_frozen_ones_do_not() -> None:
    moved, waiting, frozen = (nn.Parameter(torch.zeros(2, dtype=D)) for _ in range(3))
    frozen.requires_grad_(False)
    optimizer = TMLN([moved, waiting, frozen], lr=0.1, damping=0.5, geometry="euclidean")
    assert optimizer.protection() == (1.0, 1.0, True)
    moved.grad = vector(1.0, 1.0)
    optimizer.step()
    outcome = optimizer.consolidate()
    assert outcome.active == 2 / 4
    assert outcome.slowdown_median == 2.0  # 1, 1, 3, 3
    assert list(outcome.mass.values()) == [1.0, 0.0, 0.0]
    assert optimizer.protection()[:2] == outcome[2:4]


def test_weights_frozen_after_they_trained_still_count() -> None:
    (a, b), optimizer = stepped(vector(1.0, 1.0), vector(1.0, 1.0))
    b.requires_grad_(False)
    outcome = optimizer.consolidate({a: vector(0.0, 0.0)})
    assert outcome.active == 1.0
    assert outcome.mass == {a: 0.5, b: 0.5}


def test_a_single_weight_is_a_model_too() -> None:
    _, optimizer = stepped(vector(1.0))
    assert optimizer.consolidate([vector(1.0)]).active == 1.0


def test_the_current_fisher_of_a_weight_that_got_no_new_one_is_its_old() -> None:
    (a, b), optimizer = stepped(vector(1.0, 1.0), vector(1.0, 1.0), score_fisher="current")
    optimizer.consolidate([vector(4.0, 2.0)] * 2)
    a.grad = b.grad = vector(1.0, 1.0)
    optimizer.step()
    b.requires_grad_(False)
    before = {p: optimizer.state[p]["sensitivity"].clone() for p in (a, b)}
    optimizer.consolidate({a: vector(4.0, 2.0)})  # what b kept
    assert all(torch.equal(optimizer.state[p]["fisher"], vector(4.0, 2.0)) for p in (a, b))
    close(*(optimizer.state[p]["sensitivity"] - before[p] for p in (a, b)))


def test_half_precision_weights_are_measured_too() -> None:
    p = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    optimizer = TMLN([p], lr=0.125, damping=0.5, trajectory=2.0)
    p.grad = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
    optimizer.step()
    assert optimizer.consolidate([torch.tensor([0.3, 0.2])]).slowdown_median == pytest.approx(4.0)


@pytest.mark.parametrize("size", [1, 2, 3, 20, 21, 22, 101])
@pytest.mark.parametrize("q", [0.0, 0.5, 0.95, 1.0])
def test_quantiles_are_those_of_torch(size: int, q: float) -> None:
    source = torch.Generator().manual_seed(size)
    for values in (torch.rand(size, generator=source), torch.randint(3, (size,), generator=source)):
        assert quantile(values.double(), q) == pytest.approx(float(values.double().quantile(q)), rel=1e-14)


def test_large_models_are_sampled_alike_every_time() -> None:
    source = torch.Generator().manual_seed(0)
    sizes = (30_000, 0, 500, 69_500)
    shields = [Shield(n, torch.rand(n, generator=source), torch.rand(n, generator=source), 0.5, 2.0) for n in sizes]
    exact = measure_protection(shields)
    sampled = measure_protection(shields, most_exact=99_999, sample=20_000)
    torch.manual_seed(torch.initial_seed() + 1)
    state = torch.get_rng_state()
    assert sampled == measure_protection(shields, most_exact=99_999, sample=20_000)
    assert torch.equal(state, torch.get_rng_state())
    assert sampled != exact
    assert sampled[:2] == pytest.approx(exact[:2], rel=0.02)
    assert measure_protection(shields, most_exact=100_000, sample=2) == exact


def test_a_sample_takes_of_every_tensor_its_share() -> None:
    """10% of the weights are slowed; whatever is drawn within a tensor, p95 and median cannot miss them."""
    for order in ((900, 100), (100, 900)):
        shields = [Shield(n, torch.full((n,), 9.0 if n == 100 else 0.0), None, 1.0, 1.0) for n in order]
        assert measure_protection(shields, most_exact=999, sample=100) == (1.0, 10.0, False)
        assert measure_protection(shields, most_exact=999, sample=10)[0] == 1.0
        assert (
            measure_protection(shields).slowed == measure_protection(shields, most_exact=999, sample=100).slowed == 0.1
        )


def test_protection_in_words() -> None:
    found = measure_protection([Shield(4, torch.tensor([0.0, 0.0, 0.0625, 0.25]), None, 1.0, 1.0)])
    assert found.slowed == 0.25
    assert str(found).startswith(
        "25% of the weights slowed by more than 10% (the median by 3.12%, one in twenty by 22.2%"
    )


def test_a_sample_sees_every_column() -> None:
    """A stride of two would see the first column of a matrix with two, and find no shield."""
    matrix = torch.tensor([0.0, 9.0]).repeat(1000, 1)
    found = measure_protection([Shield(2000, matrix, None, 1.0, 1.0)], most_exact=1000, sample=1000)
    assert found.slowdown_p95 == 10.0


# -- the warning -----------------------------------------------------------------------------------------------------


def nil(**options: Any) -> TMLN:
    """100 weights of which the first four are shielded."""
    g = torch.cat([torch.ones(4), torch.zeros(96)]).double()
    return stepped(g, lr=0.1, **options)[1]


def test_a_nil_shield_is_said_once_an_optimizer() -> None:
    none = torch.zeros(100, dtype=D)
    for _ in range(2):
        optimizer = nil()
        with pytest.warns(UserWarning, match="^the shield is nil.*raise trajectory or lower damping") as caught:
            outcome = optimizer.consolidate([none])
        assert outcome.slowdown_p95 == 1.0
        assert optimizer.protection().nil
        assert [w.filename for w in caught] == [__file__]
        assert str(caught[0].message) == NIL
        optimizer.step()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            optimizer.consolidate([none])


@pytest.mark.parametrize(("fisher", "is_due"), [(49.4, False), (49.6, True)])  # slowed by 99.8, 100.2
def test_a_shield_that_is_too_strong_is_said_once(fisher: float, is_due: bool) -> None:
    optimizer = nil()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            optimizer.consolidate([torch.full((100,), fisher, dtype=D)])
            optimizer.step()
    assert [(str(w.message), w.filename) for w in caught] == [(TOO_STRONG, __file__)] * is_due
    assert optimizer.protection().too_strong is is_due


def test_protection_before_a_boundary_says_that_nothing_was_consolidated() -> None:
    optimizer = nil()
    assert optimizer.protection().empty
    assert "nothing was consolidated" in str(optimizer.protection())
    optimizer.consolidate([torch.full((100,), 0.5, dtype=D)])
    assert not optimizer.protection().empty
    assert "nothing was consolidated" not in str(optimizer.protection())


def test_a_boundary_is_told_in_one_short_line() -> None:
    optimizer = nil()
    found = optimizer.consolidate([torch.full((100,), 0.5, dtype=D)])
    assert repr(found) == (
        f"Consolidation(peak={found.peak:.3g}, active=0.04, "
        f"slowdown_median={found.slowdown_median:.4g}, slowdown_p95={found.slowdown_p95:.4g})"
    )


@pytest.mark.parametrize(
    ("options", "fisher"),
    [
        ({"geometry": "euclidean", "trajectory": 0.0}, None),  # nothing is meant to be shielded
        ({"trajectory": 0.0}, torch.full((100,), 0.0051)),
        ({}, torch.full((100,), 0.0051)),  # 1.0102
        ({"geometry": "euclidean-score"}, torch.full((100,), 0.0051)),
    ],
)
def test_no_warning_where_none_is_due(options: dict[str, Any], fisher: Tensor | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nil(**options).consolidate(None if fisher is None else [fisher])


@pytest.mark.parametrize(
    ("options", "fisher"),
    [
        ({"geometry": "euclidean"}, None),
        ({"trajectory": 0.0}, torch.full((100,), 0.0049)),
        ({}, torch.full((100,), 0.0049)),  # 1.0098
    ],
)
def test_a_warning_where_one_is_due(options: dict[str, Any], fisher: Tensor | None) -> None:
    with pytest.warns(UserWarning, match="^the shield is nil"):
        nil(**options).consolidate(None if fisher is None else [fisher])


def test_a_warning_that_is_an_error_leaves_the_boundary_undone() -> None:
    optimizer = nil()
    before = everything(optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="the shield is nil"):
            optimizer.consolidate([torch.zeros(100, dtype=D)])
        assert_same(everything(optimizer), before)
        optimizer.consolidate([torch.zeros(100, dtype=D)])  # it was said


def test_rounding_noise_is_no_score() -> None:
    """A bias before batch norm has a gradient of zero in exact arithmetic: with score_max="tensor" its noise stays one.

    So do the weights of a tensor whose gradient is small, but not noise, keep their full score.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = TMLN(model.parameters(), lr=0.1, score_max="tensor")
    for _ in range(20):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.randn(32, 6)), torch.randint(3, (32,))).backward()
        optimizer.step()
    noise, head = model[0].bias, model[3].bias
    assert isinstance(noise, nn.Parameter)
    assert isinstance(head, nn.Parameter)
    assert float(optimizer.path(noise).abs().max()) > 0
    outcome = optimizer.consolidate([torch.zeros_like(p) for p in model.parameters()])
    assert float(optimizer.state[noise]["sensitivity"].max()) < 0.01
    assert float(optimizer.state[head]["sensitivity"].max()) == 1.0
    assert outcome.mass[noise] < 1e-8
