"""A step without torch's wrapping is the same step, and whoever watches sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tmln import TMLN
from tmln.optim.sgd import SGD
from tmln.optim.step_utils import stepped

MAKERS: dict[str, Callable[[list[Tensor]], Optimizer]] = {
    "sgd": lambda weights: SGD(weights, 0.1, momentum=0.9),
    "torch's": lambda weights: torch.optim.AdamW(weights, 0.1),
    "tmln": lambda weights: TMLN(weights, 0.1),
}


def made(name: str) -> tuple[Tensor, Optimizer, Callable[[], float]]:
    weight = torch.tensor([1.0, -2.0], requires_grad=True)
    optimizer = MAKERS[name]([weight])

    def closure() -> float:
        optimizer.zero_grad()
        loss = (weight**2).sum()
        loss.backward()
        return float(loss.detach())

    return weight, optimizer, closure


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_step(name: str) -> None:
    (ours, our_optimizer, our_closure), (plain, optimizer, closure) = made(name), made(name)
    for _ in range(3):
        stepped(our_optimizer, our_closure)
        optimizer.step(closure)
    assert torch.equal(ours, plain)


@pytest.mark.parametrize(
    "register",
    [
        lambda optimizer, hook: optimizer.register_step_pre_hook(hook),
        lambda optimizer, hook: optimizer.register_step_post_hook(hook),
        lambda optimizer, hook: register_optimizer_step_pre_hook(hook),
        lambda optimizer, hook: register_optimizer_step_post_hook(hook),
    ],
    ids=["before", "after", "before any", "after any"],
)
def test_hooks_are_called(register: Callable[[Optimizer, Callable[..., None]], Any]) -> None:
    _, optimizer, closure = made("sgd")
    seen: list[object] = []
    handle = register(optimizer, lambda optimizer, args, kwargs: seen.append(optimizer))
    stepped(optimizer, closure)
    handle.remove()
    stepped(optimizer, closure)
    assert seen == [optimizer]


def test_a_schedule_counts_steps() -> None:
    _, optimizer, closure = made("sgd")
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    stepped(optimizer, closure)
    schedule.step()  # a warning, and so an error here, if no step was seen before it
    assert optimizer._opt_called  # type: ignore[attr-defined]


def test_the_profiler_sees_it() -> None:
    _, optimizer, closure = made("sgd")
    with torch.autograd.profiler.profile() as found:
        stepped(optimizer, closure)
    assert "Optimizer.step#SGD.step" in {event.name for event in found.function_events or []}


def test_where_torch_has_other_names_the_step_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    _, optimizer, closure = made("sgd")
    called: list[object] = []
    monkeypatch.setattr(type(optimizer).step, "__wrapped__", lambda *given: called.append(given))
    stepped(optimizer, closure)
    assert called == [(optimizer, closure)]  # as torch 2.13 has it
    monkeypatch.delattr(optimizer, "_optimizer_step_pre_hooks")
    with pytest.raises(AttributeError, match="_optimizer_step_pre_hooks"):  # torch's own step asks for it
        stepped(optimizer, closure)
    assert len(called) == 1
