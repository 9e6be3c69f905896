"""Fine-tuning: what is frozen stays to the bit, and backbone and head have rates of their own under every step."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln import Learner
from tmln.methods.fine_tuning import FineTuning, find_fine_tuning, set_fine_tuning, set_training_mode
from tmln.methods.recipes import RECIPES
from tmln.methods.registry import FAMILIES

STEPS = [name for name in FAMILIES["step"] if name not in ("frozen", "first-session", "retrain")]  # in every task


def network(classes: int = 2) -> nn.Sequential:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5))
    return nn.Sequential(body, nn.Linear(6, classes))


def data(labels: int = 2, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(24, 4, generator=generator), torch.arange(24) % labels


def tuned(**how: Any) -> nn.Module:
    model = network()
    set_fine_tuning(model, FineTuning("1", **how))
    return model


def backbone(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items() if name.startswith("0.")}


def test_modes() -> None:
    model = tuned(freeze="backbone")
    set_training_mode(model)
    assert [m.training for m in model.modules() if isinstance(m, (nn.BatchNorm1d, nn.Dropout))] == [False, False]
    assert model[1].training  # type: ignore[index]
    model = tuned(frozen_norms=True)
    set_training_mode(model)
    assert [m.training for m in model.modules() if isinstance(m, (nn.BatchNorm1d, nn.Dropout))] == [False, True]
    plain = network()
    set_training_mode(plain)
    assert all(module.training for module in plain.modules())
    plain[0][1].requires_grad_(False)  # type: ignore[index]  # frozen by hand
    set_training_mode(plain)
    assert not plain[0][1].training  # type: ignore[index]
    assert find_fine_tuning(plain) is None


@pytest.mark.parametrize("mask", ["none", "seen"])
@pytest.mark.parametrize("step", [*STEPS, "retrain"])
def test_a_frozen_backbone_stays_to_the_bit(step: str, mask: Any) -> None:
    model = tuned(freeze="backbone")
    before, head = backbone(model), model.state_dict()["1.weight"].clone()
    learner = Learner(model, "er", step=step, lr=0.05, batch_size=8, logit_mask=mask)
    for task in (data(), (data(seed=1)[0], data()[1] + 2)):
        learner.learn(task, epochs=2)
    after = learner.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert not torch.equal(after["1.weight"][:2], head)
    assert len(after["1.weight"]) == 4


@pytest.mark.parametrize("method", RECIPES)
def test_a_frozen_backbone_stays_to_the_bit_under_every_method(method: str) -> None:
    """Averages, merges, teachers and penalties see it, and none of them moves it."""
    model = tuned(freeze="backbone")
    before = backbone(model)
    learner = Learner(model, method, lr=0.01, batch_size=8)
    for task in (data(), (data(seed=1)[0], data()[1] + 2)):
        learner.learn(task, epochs=2)
    assert 0 <= learner.evaluate(task)["accuracy"] <= 1
    after = learner.model.state_dict()
    assert [name for name, value in before.items() if not torch.equal(after[name], value)] == []


@pytest.mark.parametrize("method", RECIPES)
def test_two_rates_under_every_method(method: str) -> None:
    learner = Learner(tuned(backbone_lr_scale=0.1, frozen_norms=True), method, lr=0.01, batch_size=8)
    statistics = learner.model.state_dict()["0.1.running_mean"].clone()
    for task in (data(), (data(seed=1)[0], data()[1] + 2)):
        learner.learn(task, epochs=2)
    groups = learner.step.optimizer.param_groups
    assert [group["lr"] for group in groups] == pytest.approx([groups[0]["lr"], 0.1 * groups[0]["lr"]])
    assert torch.equal(learner.model.state_dict()["0.1.running_mean"], statistics)
    assert all(value.isfinite().all() for value in learner.model.state_dict().values())


@pytest.mark.parametrize("step", STEPS)
def test_rates_of_backbone_and_head(step: str) -> None:
    """A tiny scale leaves the backbone next to where it was; a scale of 1 is no change at all."""
    found: dict[float | None, nn.Module] = {}
    for scale in (None, 1.0, 1e-6):
        model = network() if scale is None else tuned(backbone_lr_scale=scale)
        learner = Learner(model, "naive", step=step, lr=0.05, batch_size=8)
        learner.learn(data(), epochs=2)
        found[scale] = learner.model
    start = backbone(network())
    moved = {s: max(float((v - start[n]).abs().max()) for n, v in backbone(m).items() if "weight" in n)
             for s, m in found.items()}  # fmt: skip
    same = [torch.equal(a, b) for a, b in zip(found[None].parameters(), found[1.0].parameters(), strict=True)]
    assert all(same)
    assert moved[1e-6] < 1e-3 * moved[1.0]
    assert (found[1e-6].state_dict()["1.weight"] - network().state_dict()["1.weight"]).abs().max() > 1e-3


def test_a_step_of_sgd_by_hand() -> None:
    model = tuned(backbone_lr_scale=0.1).eval()
    learner = Learner(model, "naive", lr=0.5, batch_size=24)
    x, y = data()
    set_fine_tuning(model, FineTuning("1", backbone_lr_scale=0.1, freeze="none", frozen_norms=True))
    expected = copy.deepcopy(model)
    expected[0][3].p = 0.0  # type: ignore[index]
    model[0][3].p = 0.0  # type: ignore[index]
    nn.functional.cross_entropy(expected(x), y).backward()
    learner.learn((x, y))
    for (name, p), q in zip(expected.named_parameters(), model.parameters(), strict=True):
        assert p.grad is not None
        rate = 0.5 if name.startswith("1") else 0.05
        torch.testing.assert_close(q, p - rate * p.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("step", STEPS)
def test_resuming_and_growing_with_two_rates(step: str) -> None:
    def make() -> Learner:
        model = tuned(backbone_lr_scale=0.1, frozen_norms=True)
        return Learner(model, "er", step=step, lr=0.02, batch_size=8, schedule="cosine")

    tasks = [data(), (data(seed=1)[0], data()[1] + 2)]
    whole = make()
    for task in tasks:
        whole.learn(task, epochs=2)
    rates = [group["lr"] for group in whole.step.optimizer.param_groups]
    assert rates == pytest.approx([rates[0], rates[0] * 0.1])
    assert whole.step.optimizer.param_groups[0]["params"][0] is whole.model.get_submodule("1").weight
    part = make()
    part.learn(tasks[0], epochs=2)
    saved: dict[str, Any] = {}

    def stop(epoch: int, number: int, loss: float) -> None:
        if (epoch, number) == (1, 0):
            saved.update(copy.deepcopy(part.state_dict()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        part.learn(tasks[1], epochs=2, atomic=False, on_step=stop)
    again = make()
    again.load_state_dict(saved)
    again.learn(tasks[1], epochs=2)
    for a, b in zip(again.model.state_dict().values(), whole.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_scales_that_are_none_are_refused() -> None:
    for scale in (0.0, -1.0, float("inf")):
        with pytest.raises(ValueError, match="backbone_lr_scale must be positive and finite"):
            tuned(backbone_lr_scale=scale)
