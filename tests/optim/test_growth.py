"""A head that grew in a loop of one's own: its state follows, and an optimizer that was not told says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.optim import OCAR, TMLN, UPGD


def vector(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values))


def test_tmln_by_hand() -> None:
    """One step of lr 0.5, damping 1: theta = 1 - 0.5*2 = 0, q = 0.5*4 = 2, omega = P*q = 2; then a boundary.

    s = relu(2) / (0*1/2 + eps), the only one, so S-bar = 1 for the first weight; the second did not move: 0.
    """
    old = vector(1.0, 5.0)
    optimizer = TMLN([old], lr=0.5, damping=1.0, momentum=0.5, keep_momentum=True)
    old.grad = torch.tensor([2.0, 0.0])
    optimizer.step()
    optimizer.consolidate([torch.tensor([3.0, 4.0])])
    old.grad = torch.tensor([2.0, 2.0])
    optimizer.step()
    # velocity (3, 2): theta -= 0.5*v/(F + 1 + S-bar) = 1.5/5, 1/5; q += 0.5*g*v = 3, 2; omega = q/(F + 1 + S-bar)
    assert old.tolist() == pytest.approx([-0.3, 4.8])
    assert optimizer.path(old).tolist() == pytest.approx([3 / 5, 2 / 5])
    new = vector(*old.tolist(), 7.0)
    before = {key: value.clone() for key, value in optimizer.state[old].items() if key != "preconditioner"}
    optimizer.replace(old, new)

    state = optimizer.state[new]
    assert old not in optimizer.state
    assert [p for group in optimizer.param_groups for p in group["params"]] == [new]
    for key, value in before.items():
        assert torch.equal(state[key][:2], value), key  # to the bit
    assert state["fisher"].tolist() == [3.0, 4.0, 0.0]
    assert state["sensitivity"].tolist() == [1.0, 0.0, 0.0]
    assert state["anchor"].tolist() == [0.0, 5.0, 7.0]
    assert state["momentum_buffer"].tolist() == [3.0, 2.0, 0.0]
    assert optimizer.path(new).tolist() == pytest.approx([0.6, 0.4, 0.0])
    new.grad = torch.tensor([0.0, 0.0, 2.0])
    optimizer.step()
    assert new[2].item() == 7.0 - 0.5 * 2.0 / 1.0  # unshielded: SGD at lr / damping


def test_between_look_and_walk() -> None:
    old = vector(1.0)
    optimizer = TMLN([old], lr=0.5, damping=1.0)
    old.grad = torch.tensor([2.0])
    optimizer.after_backward()
    new = vector(1.0, 3.0)
    optimizer.replace(old, new)
    assert optimizer.state[new]["departure"].tolist() == [1.0, 3.0]
    with torch.no_grad():
        new.sub_(torch.tensor([0.25, 0.0]))
    optimizer.after_update()
    assert optimizer.path(new).tolist() == [0.5, 0.0]


def test_upgd_by_hand() -> None:
    old = vector(2.0)
    optimizer = UPGD([old], lr=0.1, beta_utility=0.5, sigma=0.0)
    old.grad = torch.tensor([-3.0])
    optimizer.step()  # U = 0.5 * 3 * 2
    new = vector(old.item(), 1.0)
    optimizer.replace(old, new)
    assert optimizer.state[new]["utility"].tolist() == [3.0, 0.0]
    assert optimizer.state[new]["step"] == 1


def test_ocar_by_hand() -> None:
    """G of two outputs becomes G of three with a zero row and column; A stays."""
    model: Any = nn.Sequential(nn.Linear(2, 2))
    optimizer = OCAR(model, lr=0.1)
    optimizer.observe(torch.ones(4, 2))
    factors = optimizer.kfac.factors["0"]
    before, model[0] = model[0], nn.Linear(2, 3)
    for old, new in zip(before.parameters(), model[0].parameters(), strict=True):
        optimizer.replace(old, new)
    grown = optimizer.kfac.factors["0"]
    assert torch.equal(grown.input, factors.input)
    assert torch.equal(grown.output[:2, :2], factors.output)
    assert not grown.output[2].any()
    assert not grown.output[:, 2].any()
    assert optimizer.kfac.inverses["0"].output.shape == (3, 3)
    F.cross_entropy(model(torch.ones(4, 2)), torch.zeros(4, dtype=torch.long)).backward()
    kept = model[0].weight.detach().clone()
    optimizer.step()
    assert not torch.equal(model[0].weight, kept)


MAKERS: dict[str, Callable[[nn.Module], Any]] = {
    "tmln": lambda model: TMLN(model.parameters(), lr=0.1),
    "tmln by name": lambda model: TMLN(model.named_parameters(), lr=0.1),
    "tmln of groups": lambda model: TMLN([{"params": list(layer.parameters())} for layer in model.children()], lr=0.1),
    "upgd": lambda model: UPGD(list(model.parameters()), lr=0.1),
    "ocar": lambda model: OCAR(model, lr=0.1, update_every=1),
}


def network() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def one_step(model: nn.Module, optimizer: Any, y: Tensor) -> None:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    if isinstance(optimizer, OCAR):
        optimizer.observe(x)
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


@pytest.mark.parametrize("kept", [False, True], ids=["the old layer is gone", "somebody still has the old layer"])
@pytest.mark.parametrize("steps", [0, 1])
@pytest.mark.parametrize("rows", [2, 4])
@pytest.mark.parametrize("make", MAKERS)
def test_a_head_that_it_was_not_told_of_is_an_error(make: str, rows: int, steps: int, kept: bool) -> None:
    model, y = network(), torch.tensor([0, 1, 0, 1, 0, 1])
    optimizer = MAKERS[make](model)
    for _ in range(steps):
        one_step(model, optimizer, y)
    before = model[2] if kept else None
    model[2] = nn.Linear(5, rows)
    body = model[0].weight.detach().clone()
    with pytest.raises(RuntimeError, match=r"optimizer\.replace\(old_parameter, new_parameter\)"):
        one_step(model, optimizer, y)
    assert torch.equal(model[0].weight, body)  # nothing was stepped
    del before


@pytest.mark.parametrize("make", MAKERS)
def test_told_of_it_goes_on(make: str) -> None:
    model, y = network(), torch.tensor([0, 1, 2, 3, 2, 3])
    optimizer = MAKERS[make](model)
    one_step(model, optimizer, y % 2)
    before, model[2] = model[2], nn.Linear(5, 4)
    for old, new in zip(before.parameters(), model[2].parameters(), strict=True):
        optimizer.replace(old, new)
    head = model[2].weight.detach().clone()
    one_step(model, optimizer, y)
    assert not torch.equal(model[2].weight, head)
    assert optimizer.state_dict()["param_groups"]


class Heads(nn.Module):
    """One of two heads answers at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.a, self.b, self.which = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2), "a"

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = getattr(self, self.which)(self.body(x))
        return answer


def test_a_head_that_rests_is_no_error() -> None:
    model, y = Heads(), torch.tensor([0, 1, 0, 1, 0, 1])
    optimizer = TMLN(model.parameters(), lr=0.1)
    for model.which in ("a", "b", "a"):
        one_step(model, optimizer, y)
    model.a.requires_grad_(False)
    model.which = "b"
    one_step(model, optimizer, y)


def test_another_optimizers_head_is_no_error() -> None:
    model, y = network(), torch.tensor([0, 1, 0, 1, 0, 1])
    optimizer = TMLN(model[0].parameters(), lr=0.1)
    one_step(model, optimizer, y)
    model[0].bias = None
    optimizer.param_groups[0]["params"].pop()
    one_step(model, optimizer, y)


@pytest.mark.parametrize("make", [lambda p: TMLN(p), lambda p: UPGD(p)])
def test_what_cannot_follow_is_refused(make: Callable[[list[Tensor]], Any]) -> None:
    a, b = nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(2, 3))
    optimizer = make([a, b])
    for new in (torch.zeros(1, 3), torch.zeros(3, 4), torch.zeros(3)):
        with pytest.raises(ValueError, match=r"more rows of the same width: old has the shape \(2, 3\)"):
            optimizer.replace(a, nn.Parameter(new))
    with pytest.raises(KeyError, match="not a parameter of this optimizer"):
        optimizer.replace(nn.Parameter(torch.zeros(2, 3)), nn.Parameter(torch.zeros(3, 3)))
    with pytest.raises(ValueError, match="already"):
        optimizer.replace(a, b)
    with pytest.raises(ValueError, match="put the new layer there first"):
        OCAR(model := nn.Linear(3, 2)).replace(model.weight, nn.Parameter(torch.zeros(3, 3)))
