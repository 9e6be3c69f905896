"""SGD by hand, and to the bit against torch's own, whatever has a gradient and whenever it first has one."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from tmln.optim.sgd import SGD


def test_two_steps_by_hand() -> None:
    theta = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = SGD([theta], 0.1, momentum=0.5, weight_decay=0.25)
    theta.grad = torch.tensor([1.0, 0.0], dtype=torch.float64)
    optimizer.step()  # v = [1 + 0.25, -0.5]
    assert theta.tolist() == pytest.approx([0.875, -1.95])
    theta.grad = torch.tensor([0.0, 1.0], dtype=torch.float64)
    optimizer.step()  # v = [0.625 + 0.21875, -0.25 + 1 - 0.4875]
    assert theta.tolist() == pytest.approx([0.790625, -1.97625])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_to_the_bit_as_torch_has_it(momentum: float, decay: float) -> None:
    torch.manual_seed(0)
    mine = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)).to(torch.float32)
    mine.append(nn.Linear(3, 2).double())  # of another type, and without a gradient at first
    theirs = copy.deepcopy(mine)
    one, other = (
        kind(network.parameters(), 0.1, momentum=momentum, weight_decay=decay, foreach=True)
        for kind, network in ((SGD, mine), (torch.optim.SGD, theirs))
    )
    for step in range(6):
        for network, optimizer in ((mine, one), (theirs, other)):
            torch.manual_seed(step)
            x = torch.randn(4, 5)

            def closure(network: nn.Module = network, x: torch.Tensor = x, late: bool = step > 2) -> float:
                network.zero_grad()
                hidden = network[:3](x)  # type: ignore[index]
                loss = (network[3](hidden.double()) if late else hidden).square().sum()  # type: ignore[index]
                loss.backward()
                return float(loss.detach())

            assert (optimizer.step(closure) or 0.0) > 0
        assert one.state_dict()["param_groups"] == other.state_dict()["param_groups"]
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(a, b)
            kept, wanted = one.state[a].get("momentum_buffer"), other.state[b].get("momentum_buffer")
            assert (kept is None) == (wanted is None)
            assert kept is None or torch.equal(kept, wanted)
