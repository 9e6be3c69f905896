"""Boundaries without tasks, and the drift signal: by hand, its false-alarm rate, what it notices, bad input."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tmln
from tests.optim.test_tmln import batch, small, weights
from tmln.optim import TMLNKFAC, Drift
from tmln.optim.task_free import bet_on, rank_p_value


def test_ranks_by_hand() -> None:
    assert rank_p_value(9.0, [], 0.25) == 0.25
    assert rank_p_value(0.5, [1.0, 2.0, 2.0], 0.5) == (3 + 0.5) / 4
    assert rank_p_value(2.0, [1.0, 2.0, 2.0], 0.5) == (0 + 0.5 * 3) / 4


def test_winnings_by_hand_and_fair() -> None:
    assert bet_on(math.exp(-1)) == pytest.approx((1 - 2 * math.exp(-1)) * math.e)
    assert bet_on(1.0) == 0.5
    assert bet_on(0.9998) == pytest.approx(0.5, abs=1e-3)
    # p = exp(-z): the integral over p of bet_on is that of bet_on*exp(-z) over z, with a tail of 1/z
    z = torch.linspace(1e-3, 400, 400_001, dtype=torch.float64)
    integrand = torch.tensor([bet_on(math.exp(-float(v))) * math.exp(-float(v)) for v in z[::20]])
    assert float(torch.trapezoid(integrand, z[::20])) + 1 / 400 == pytest.approx(1.0, abs=0.01)


LOSSES: dict[str, Callable[[random.Random, int], float]] = {
    "normal": lambda draw, k: draw.gauss(0, 1),
    "heavy": lambda draw, k: draw.lognormvariate(0, 2),
    "with ties": lambda draw, k: float(draw.randrange(3)),
    "constant": lambda draw, k: 1.0,
    "falling": lambda draw, k: math.exp(-k / 2000) + 0.1 * draw.random(),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_false_alarms_are_as_rare_as_stated(kind: str) -> None:
    """At most one in alarm_every steps on average: 200 in 20000 at 100; in these runs it was less than a third."""
    draw, drift = random.Random(0), Drift(alarm_every=100, window=50)
    assert sum(drift(LOSSES[kind](draw, k)) for k in range(20_000)) <= 200


@pytest.mark.parametrize(("rise", "within"), [(8.0, 10), (3.0, 15)])
def test_a_rise_is_noticed(rise: float, within: int) -> None:
    """In standard deviations, after 60 losses; in most of 20 trials."""
    delays = []
    for trial in range(20):
        draw, drift = random.Random(trial), Drift(seed=trial)
        assert not any(drift(draw.gauss(0, 1)) for _ in range(60))
        delays.append(next((k for k in range(1, 200) if drift(draw.gauss(rise, 1))), 200))
    assert sorted(delays)[15] <= within


def test_after_an_alarm_it_begins_anew() -> None:
    drift = Drift(alarm_every=20)
    for k in range(50):
        drift(k % 7)
    assert any(drift(100.0 + k) for k in range(20))  # which stops at the alarm
    assert (drift.past, drift.evidence) == ([], 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_none(bad: float) -> None:
    with pytest.raises(ValueError, match="no drift can be detected"):
        Drift()(bad)


def run(boundaries: tmln.Boundaries, model: nn.Module, start: int, stop: int) -> list[int]:
    crossed = []
    for k in range(start, stop):
        x, y = batch(k)
        boundaries.optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        boundaries.optimizer.step()
        boundaries.memory.add(x, y)  # type: ignore[attr-defined]
        if boundaries.step(loss) is not None:
            crossed.append(k)
    return crossed


def made(model: nn.Module, **options: Any) -> tmln.Boundaries:
    return tmln.Boundaries(tmln.TMLN(model.parameters(), decay=0.5), tmln.Reservoir(20), **options)


def test_every_so_many_steps_it_is_consolidate_by_hand() -> None:
    model, copied = small(), small()
    assert run(made(model, every=3), model, 0, 8) == [2, 5]
    optimizer, memory = tmln.TMLN(copied.parameters(), decay=0.5), tmln.Reservoir(20)
    for k in range(8):
        optimizer.zero_grad()
        F.cross_entropy(copied(batch(k)[0]), batch(k)[1]).backward()
        optimizer.step()
        memory.add(*batch(k))
        if k in (2, 5):
            optimizer.consolidate(tmln.diagonal_fisher(copied, memory.batches(256)))
    assert torch.equal(weights(model), weights(copied))


def test_on_drift_it_is_where_the_signal_says(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    boundaries = made(model, on="drift")
    seen: list[float] = []

    def fourth(loss: float) -> bool:
        seen.append(loss)
        return len(seen) == 4

    monkeypatch.setattr(boundaries, "drift", fourth)
    assert run(boundaries, model, 0, 6) == [3]
    assert len(seen) == 6


def test_a_drift_that_was_never_found_is_said_at_the_end() -> None:
    model = small()
    silent, found, unused = made(model, on="drift"), made(model, on="drift"), made(model, on="drift")
    run(silent, model, 0, 3)
    run(found, model, 0, 3)
    found.consolidate()
    assert repr(silent) == "Boundaries(on='drift': 0 in 3 steps)"
    assert repr(made(model, every=3)) == "Boundaries(every=3: 0 in 0 steps)"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del found, unused
    with pytest.warns(UserWarning, match="after 3 steps without a boundary.*every=N"):
        del silent


@pytest.mark.parametrize("options", [{"every": 3}, {"on": "drift", "alarm_every": 2}], ids=str)
def test_a_state_goes_on_to_the_bit(options: dict[str, Any]) -> None:
    whole, half = small(), small()
    one, two = made(whole, **options), made(half, **options)
    expected = run(one, whole, 0, 12)
    assert expected
    first = run(two, half, 0, 5)
    rest = made(half, **options)
    rest.optimizer, rest.memory = two.optimizer, two.memory
    rest.load_state_dict(two.state_dict())
    assert first + run(rest, half, 5, 12) == expected
    assert rest.count == one.count
    assert torch.equal(weights(whole), weights(half))


def test_other_geometries_get_what_they_need() -> None:
    model = small()
    euclidean = tmln.Boundaries(tmln.TMLN(model.parameters(), geometry="euclidean"), tmln.Reservoir(20), every=2)
    assert run(euclidean, model, 0, 2) == [1]
    factored = tmln.Boundaries(TMLNKFAC(model), tmln.Reservoir(20), every=2)
    assert run(factored, model, 0, 2) == [1]
    assert factored.optimizer.kfac.inverses  # type: ignore[attr-defined]


def test_bad_input() -> None:
    model = small()
    optimizer, memory = tmln.TMLN(model.parameters()), tmln.Reservoir(20)
    for options in ({}, {"every": 3, "on": "drift"}):
        with pytest.raises(ValueError, match="one of them"):
            tmln.Boundaries(optimizer, memory, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every must be"):
        tmln.Boundaries(optimizer, memory, every=0)
    with pytest.raises(TypeError, match="SGD has nothing to consolidate"):
        tmln.Boundaries(torch.optim.SGD(model.parameters(), 0.1), memory, every=3)
    with pytest.raises(TypeError, match="goes by the loss"):
        tmln.Boundaries(optimizer, memory, on="drift").step()
    with pytest.raises(RuntimeError, match="the memory is empty"):
        tmln.Boundaries(optimizer, memory, every=1).step()
    with pytest.raises(ValueError, match="come otherwise"):
        made(model, every=3).load_state_dict(made(model, on="drift").state_dict())
    lonely = tmln.TMLN([nn.Parameter(torch.zeros(2))])
    memory.add(*batch(0))
    with pytest.raises(ValueError, match=r"say model=\.\.\."):
        tmln.Boundaries(lonely, memory, every=1).step()
