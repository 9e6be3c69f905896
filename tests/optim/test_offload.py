"""State that waits elsewhere: 8 bytes a weight stay, nothing is fetched in a step, and one parameter's at a boundary.

There is no second device in these tests, so one is played: tensors that wait are ``Far``, and computing with a ``Far``
and another tensor is an error, as it is between devices.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.test_tmln import batch, small, train, weights
from tmln.curvature import diagonal_fisher
from tmln.methods import copy_state
from tmln.optim import TMLN
from tmln.optim import update as offload
from tmln.optim.state import grow_tensor

PLAIN: list[Any] = [{}, {"momentum": 0.9}, {"base": "adam"}, {"geometry": "euclidean"}, {"score_fisher": "current"}]


class Far(Tensor):
    """Of another device: it can be copied over, and that is all."""

    @classmethod
    def __torch_function__(cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func is Tensor.cpu:
                return args[0].as_subclass(Tensor)
            sizes = [isinstance(a, Far) for a in args if isinstance(a, Tensor) and a.dim()]
        if func not in (Tensor.copy_, Tensor.__setitem__) and len(set(sizes)) > 1:
            raise RuntimeError(f"{func.__name__} of tensors on two devices")
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]


class Traffic:
    """What was fetched, and how many numbers of it were in use at one time at most."""

    def __init__(self) -> None:
        self.fetched, self.most = 0, 0
        self._live: dict[int, int] = {}

    def to_device(self, value: Tensor, like: Tensor) -> Tensor:
        here = value.as_subclass(Tensor).clone()
        self.fetched += 1
        self._live[id(here)] = here.numel()
        weakref.finalize(here, self._live.pop, id(here), None)
        self.most = max(self.most, sum(self._live.values()))
        return here


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    made = Traffic()
    monkeypatch.setattr(offload, "to_host", lambda value: value.detach().clone().as_subclass(Far))
    monkeypatch.setattr(offload, "to_device", made.to_device)
    return made


def consolidate(model: nn.Module, optimizer: TMLN) -> None:
    euclidean = optimizer.param_groups[0]["geometry"] == "euclidean"
    optimizer.consolidate(None if euclidean else diagonal_fisher(model, [batch(99)]))


def learned(**options: Any) -> tuple[nn.Module, TMLN]:
    model = small()
    optimizer = TMLN(model.parameters(), **options)
    for task in range(3):
        train(model, optimizer, 4 * task, 4 * task + 4)
        if task < 2:
            consolidate(model, optimizer)
    return model, optimizer


def bytes_here(optimizer: TMLN) -> int:
    values = [v for state in optimizer.state.values() for v in state.values() if not isinstance(v, Far) and v.dim()]
    return sum(value.numel() * value.element_size() for value in values)


@pytest.mark.parametrize("options", PLAIN, ids=str)
def test_the_weights_are_the_same_to_the_bit(traffic: Traffic, options: dict[str, Any]) -> None:
    there, optimizer = learned(offload=True, **options)
    here, plain = learned(**options)
    assert torch.equal(weights(there), weights(here))
    assert optimizer.protection() == plain.protection()
    for p, q in zip(there.parameters(), here.parameters(), strict=True):
        assert torch.equal(optimizer.path(p), plain.path(q))
        assert torch.equal(optimizer.state[p]["sensitivity"].cpu(), plain.state[q]["sensitivity"])


def test_eight_bytes_a_weight_are_left(traffic: Traffic) -> None:
    model, optimizer = learned(offload=True)
    count = sum(p.numel() for p in model.parameters())
    assert bytes_here(optimizer) == 8 * count
    assert bytes_here(learned()[1]) == 20 * count


def test_a_step_fetches_nothing_and_a_boundary_one_parameter_at_a_time(traffic: Traffic) -> None:
    model, optimizer = learned(offload=True)
    before = traffic.fetched
    train(model, optimizer, 20, 24)
    assert traffic.fetched == before
    traffic.most = 0
    consolidate(model, optimizer)
    assert traffic.fetched > before
    assert traffic.most <= 3 * max(p.numel() for p in model.parameters())  # anchor, F and S-bar of the largest


def test_a_banked_path_waits_too(traffic: Traffic) -> None:
    model, optimizer = learned(offload=True)
    copied, plain = learned()
    for trained, steps in ((model, optimizer), (copied, plain)):
        steps.param_groups[0]["damping"] = 0.3  # the path so far is banked under the old metric
        train(trained, steps, 20, 22)
    p, q = next(model.parameters()), next(copied.parameters())
    assert isinstance(optimizer.state[p]["path"], Far)
    assert torch.equal(optimizer.path(p), plain.path(q))


@pytest.mark.parametrize(("saved", "loads"), [(True, True), (True, False), (False, True)])
def test_a_state_goes_on_wherever_it_waited(traffic: Traffic, saved: bool, loads: bool) -> None:
    model, optimizer = learned(offload=saved)
    copied = small(seed=1)
    copied.load_state_dict(model.state_dict())
    second = TMLN(copied.parameters(), offload=loads)
    second.load_state_dict(copy_state(optimizer.state_dict()))
    waits = {key for state in second.state.values() for key, value in state.items() if isinstance(value, Far)}
    assert waits == ({"anchor", "fisher", "sensitivity"} if loads else set())
    for trained, steps in ((model, optimizer), (copied, second)):
        train(trained, steps, 30, 33)
        consolidate(trained, steps)
        train(trained, steps, 33, 35)
    assert torch.equal(weights(model), weights(copied))


def test_what_follows_a_head_that_grew_stays_where_it_waits() -> None:
    assert grow_tensor(torch.zeros(2, device="meta"), torch.zeros(3)).device.type == "meta"


def test_on_the_cpu_nothing_is_copy_state() -> None:
    value = torch.zeros(3)
    assert offload.to_host(value) is value
    assert offload.to_device(value, value) is value
