"""New classes: the head grows, every part follows, old rows to the bit; what fails leaves the head as it was."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.learner.test_atomic import Stop, _quiet, fail_at_the_end, same  # noqa: F401  # a fixture
from tmln.learner import Learner
from tmln.learner.heads import find_head, grow_head
from tmln.methods.recipes import RECIPES

pytestmark = pytest.mark.usefixtures("narrow")


def network(outputs: int = 2) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, outputs))


def task(k: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(k)
    centre = 2 * torch.randn(6, 6, generator=torch.Generator().manual_seed(99))
    y = torch.arange(40) % 2 + 2 * k
    return centre[y] + torch.randn(40, 6, generator=generator), y


def tensors(state: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a nested state, by its place."""
    if isinstance(state, Tensor):
        yield path, state
    elif isinstance(state, (dict, list, tuple)):
        for key, value in state.items() if isinstance(state, dict) else enumerate(state):
            yield from tensors(value, f"{path}.{key}")


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["none", "seen"])
@pytest.mark.parametrize("method", RECIPES)
def test_every_method_learns_classes_that_come(method: str, mask: Any, tmp_path: Path) -> None:
    learner = Learner(network(), method, lr=0.01, batch_size=10, logit_mask=mask)
    learner.learn(task(0), epochs=2)
    learner.learn(task(1), epochs=2)
    assert learner.model[3].weight.shape == (4, 16)  # type: ignore[index]
    assert learner.model[3].out_features == 4  # type: ignore[index]
    learner.save(tmp_path / "state.tmln")
    history = [task(0), task(1)] if learner.recipe.joint else []
    again = Learner.load(tmp_path / "state.tmln", network(), history=history)  # a model as it was made at first
    assert same(again.state_dict(), learner.state_dict())
    random = torch.get_rng_state()
    for one in (learner, again):
        torch.set_rng_state(random)
        one.learn(task(2), epochs=1)
    assert same(again.state_dict(), learner.state_dict())
    assert learner.classes == (0, 1, 2, 3, 4, 5)


@pytest.mark.slow
@pytest.mark.parametrize("method", RECIPES)
def test_after_a_failure_the_head_is_as_before(method: str) -> None:
    learner = Learner(network(), method, batch_size=10)
    learner.learn(task(0))
    calm, kept = copy.deepcopy(learner), copy.deepcopy(learner.state_dict())

    def stop(epoch: int, step: int, loss: float) -> None:
        raise Stop

    with fail_at_the_end(learner), pytest.raises(Stop):
        learner.learn(task(1), on_step=stop)
    assert same(learner.state_dict(), kept)
    assert learner.model[3].out_features == 2  # type: ignore[index]
    random = torch.get_rng_state()
    for one in (learner, calm):
        torch.set_rng_state(random)
        one.learn(task(1))
    assert same(learner.state_dict(), calm.state_dict())


@pytest.mark.parametrize("method", ["tmln", "er", "ewc", "ewc++", "si", "rwalk", "lwf", "der++", "tmln+"])
def test_grown_is_what_closed_classes_are(method: str) -> None:
    """Two outputs that become four, or four of which two are closed: the same network on the same way, to rounding.

    Not so OCAR, which shares damping out by the mean over all outputs, closed ones too.
    """
    torch.set_default_dtype(torch.float64)
    try:
        small = Learner(network(2), method, lr=0.01, batch_size=10, logit_mask="seen")
        large = Learner(network(4), method, lr=0.01, batch_size=10, logit_mask="seen")
        head, whole = small.model[3], large.model[3]  # type: ignore[index]
        whole.load_state_dict(
            {key: torch.cat([value, 0.1 * torch.ones_like(value)]) for key, value in head.state_dict().items()}
        )
        x, y = task(0)
        for learner in (small, large):
            learner.learn((x.double(), y), epochs=2)
        assert torch.equal(whole.weight[2:], torch.full_like(whole.weight[2:], 0.1))  # closed: it did not move
        grow_head(small, "3", 4)
        with torch.no_grad():  # as the other's begin
            for p in head.parameters():
                p[2:] = 0.1
        small.load_state_dict(_with_rows(small.state_dict()))
        x, y = task(1)
        for learner in (small, large):
            learner.learn((x.double(), y), epochs=2)
        for a, b in zip(small.model.parameters(), large.model.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
    finally:
        torch.set_default_dtype(torch.float32)


def _with_rows(state: dict[str, Any]) -> dict[str, Any]:
    """The state in which copies of the weights have the rows that the test put into the model."""
    for name, value in tensors(state["parts"]):
        copied = any(word in name for word in ("anchor", "mean", "solution"))
        if copied and value.dim() and len(value) == 4 and value[2:].any():
            value[2:] = 0.1
    return state


def test_new_rows_follow_from_the_seed_alone() -> None:
    heads = []
    for noise in (0, 1):
        torch.manual_seed(noise)
        learner = Learner(network(), "naive", seed=5)
        growth = grow_head(learner, "3", 4)
        heads.append(learner.model[3].weight.detach())  # type: ignore[index]
        assert (growth.before, growth.after) == (2, 4)
        assert sorted(growth.names) == ["3.bias", "3.weight"]
    assert torch.equal(heads[0], heads[1])
    assert heads[0][2:].abs().max() <= 1 / 4  # as nn.Linear begins: 1/sqrt(16)


class Cosine(nn.Module):
    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, width))
        self.sigma = nn.Parameter(torch.tensor(4.0))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.normalize(x), F.normalize(self.weight))


class Scaled(nn.Module):
    """Something still happens to what the head says."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.body, self.fc, self.num_classes = nn.Linear(6, 8), head, 2

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = 3 * self.fc(self.body(x))
        return answer


class Inner(nn.Module):
    """As Hugging Face's heads of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.out_proj = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.out_proj(torch.tanh(self.dense(x)))
        return answer


@pytest.mark.parametrize(
    ("model", "named", "found"),
    [
        (lambda: nn.Sequential(nn.Linear(6, 2)), None, "0"),
        (lambda: nn.Linear(6, 2), None, ""),
        (lambda: nn.Sequential(nn.Linear(6, 2), nn.Tanh(), nn.Linear(2, 2)), None, "2"),  # as wide within
        (lambda: Scaled(nn.Linear(8, 2)), None, "fc"),
        (lambda: Scaled(Cosine(8, 2)), None, "fc"),
        (lambda: Scaled(Inner()), "fc", "fc.out_proj"),
        (lambda: Scaled(Inner()), None, "fc.out_proj"),
    ],
)
def test_heads_are_found_and_grow(model: Any, named: str | None, found: str) -> None:
    made = model()
    assert find_head(made, torch.randn(1, 6), named) == found
    learner = Learner(made, "tmln", head=named, batch_size=10)
    for k in range(2):
        learner.learn(task(k), epochs=2)
    assert made(torch.randn(3, 6)).shape == (3, 4)
    assert getattr(made, "num_classes", 4) == 4


class Sum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.left(x) + self.right(x)
        return answer


def test_a_head_that_cannot_be_found_names_the_candidates() -> None:
    learner = Learner(Sum(), "naive")
    kept = copy.deepcopy(learner.state_dict())
    with pytest.raises(ValueError, match=r"several layers .* head=, one of right \(2 outputs\), left \(2 outputs\)"):
        learner.learn(task(1))
    assert same(learner.state_dict(), kept)
    with pytest.raises(ValueError, match=r"head='rihgt' is no layer .*; did you mean 'right'"):
        Learner(Sum(), "naive", head="rihgt").learn(task(1))


def test_a_tied_head_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].weight = model[1].weight
    x, y = task(1)
    with pytest.raises(ValueError, match="shares its weights with '0'"):
        Learner(model, "naive", head="1").learn((x[:, :2], y))


def test_a_frozen_body_stays_frozen_and_the_head_learns() -> None:
    model = network()
    for p in model[:3].parameters():
        p.requires_grad_(False)
    body = model[0].weight.detach().clone()
    learner = Learner(model, "tmln", batch_size=10)
    for k in range(2):
        learner.learn(task(k), epochs=10)
    assert torch.equal(model[0].weight, body)
    assert learner.evaluate(task(1))["accuracy"] > 0.6


def test_labels_that_are_no_numbers_of_classes_are_refused() -> None:
    with pytest.raises(ValueError, match="count classes from 0 on"):
        Learner(network(), "naive").learn((torch.zeros(2, 6), torch.tensor([0, 10**8])))


def test_a_memory_on_disk_grows_too(tmp_path: Path) -> None:
    found = []
    for settings in ({}, {"replay.path": str(tmp_path)}):
        learner = Learner(network(), "der++", settings=settings, batch_size=10)
        for k in range(2):
            learner.learn(task(k), epochs=2)
        assert learner.replay.memory is not None
        logits = learner.replay.memory.draw(40)["logits"]
        assert logits.shape == (40, 4)
        found.append(logits)
    assert torch.equal(*found)
    assert found[0].isinf().any()
