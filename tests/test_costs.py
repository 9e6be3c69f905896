"""The cost model: by hand, how each term grows, and the kept coefficients with their errors."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
from benchmarks.costs import Cost, Rates, Size, costs, held, read_rates, seconds

RATES = Rates(call=1.0, dense=2.0, conv=8.0, activation=1.5, weights=0.5, sample=0.25, fisher_call=6.0,
              fisher_dense=3.0, fisher_conv=5.0, fisher_activation=2.0, boundary=0.125,
              bandwidth=16.0, disk=64.0)  # fmt: skip
SIZE = Size(
    parameters=10, work=100.0, conv=0.5, batch=4, replay=2, sample=8, activations=7, modules=2, capacity=16, fisher=16,
    tasks=3, per_task=10, tests=6, epochs=2, sums=3.0,
)  # fmt: skip


def named(size: Size) -> dict[str, Cost]:
    return {cost.name: cost for cost in costs(size, RATES)}


def test_each_term_by_hand() -> None:
    found = named(SIZE)
    assert SIZE.steps == 6
    assert found["forward and backward"] == replace(
        found["forward and backward"], seconds=(3 * 5.0 * 100 + 1.5 * 7) * 6, times=18, held=42
    )
    assert found["calls of a step"].total == 36
    assert (found["weights in a step"].seconds, found["weights in a step"].held) == (20.0, 200.0)
    assert found["drawing from memory"].seconds == 0.25 * 2 * 8
    assert found["gradients over the network"].total == 0
    assert found["Fisher"].seconds == (3 * 4.0 * 100 + 2.0 * 7) * 16 + 6.0 * 2
    assert found["weights at a boundary"].seconds == 5.0
    assert found["filling the memory"].seconds == 0.25 * 10 * 8
    assert found["the memory"].held == 128
    assert found["tests on every task after each"].total == pytest.approx((3 * 5.0 * 100 + 1.5 * 7) / 3 * 6 * 3 * 3)
    assert found["checkpoints"].seconds == (200 + 128) / 64
    assert held(costs(SIZE, RATES)) == 42 + 200 + 128
    assert seconds(costs(SIZE, RATES)) == pytest.approx(math.fsum(cost.total for cost in found.values()))


def test_ranks_divide_the_passes_and_cost_network() -> None:
    four = named(replace(SIZE, ranks=4))
    assert four["forward and backward"].seconds == named(SIZE)["forward and backward"].seconds / 4
    assert four["gradients over the network"].sent == 2 * 3 / 4 * 40
    assert four["gradients over the network"].seconds == 60 / 16
    assert four["weights in a step"].held == 200
    assert named(replace(SIZE, ranks=4, sharded=True))["weights in a step"].held == 50
    assert named(replace(SIZE, ranks=4, fisher=0))["Fisher over the network"].seconds == 0


def test_the_order_is_that_of_the_time() -> None:
    found = [cost.total for cost in costs(SIZE, RATES)]
    assert found == sorted(found, reverse=True)


def test_the_kept_coefficients_are_whole_and_say_their_error() -> None:
    rates, said = read_rates()
    assert all(math.isfinite(getattr(rates, field.name)) for field in fields(rates))
    assert min(rates.dense, rates.conv, rates.fisher_dense, rates.bandwidth, rates.disk) > 0
    assert set(said["errors"]["held out"]) == {"step", "boundary"}
    assert not set(said["errors"]["held out"]["step"]) & set(said["errors"]["fitted"]["step"])
