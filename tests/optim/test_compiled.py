"""A compiled step: one graph without breaks, one compilation for all rates and over boundaries, the eager weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.optim.test_tmln import batch, small, weights
from tmln.optim import TMLN
from tmln.optim import update as moving


class Counting:
    """A backend that compiles nothing, and counts."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        self.graphs += 1
        return graph.forward


def trained(compiled: bool, rate: float | Tensor, **options: Any) -> tuple[Tensor, list[int]]:
    """Two tasks of four steps, each at a rate of its own; the weights, and how many graphs there were by then."""
    torch._dynamo.reset()
    backend, counts = Counting(), []
    model = small()
    optimizer = TMLN(model.parameters(), lr=rate, **options)  # type: ignore[arg-type]
    step = torch.compile(optimizer.step, backend=backend, fullgraph=True) if compiled else optimizer.step
    for k in range(8):
        optimizer.zero_grad()
        F.cross_entropy(model(batch(k)[0]), batch(k)[1]).backward()
        group = optimizer.param_groups[0]
        if isinstance(rate, Tensor):
            group["lr"].fill_(0.01 / (k + 1))
        else:
            group["lr"] = 0.01 / (k + 1)
        step()
        counts.append(backend.graphs)
        if k == 3:
            optimizer.consolidate([torch.full_like(p, 0.1) for p in model.parameters()])
    return weights(model), counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tensor", "options"),
    [
        (False, {}),
        (True, {}),
        (True, {"base": "adam", "weight_decay": 0.1}),
        (True, {"momentum": 0.9, "clip_norm": 0.1}),
    ],
    ids=str,
)
def test_a_step_is_compiled_once_for_all_rates(tensor: bool, options: dict[str, Any]) -> None:
    found, counts = trained(True, torch.tensor(0.01) if tensor else 0.01, **options)
    assert counts == [1, 2, 2, 2, 2, 2, 2, 2]  # the first step makes the state
    torch.testing.assert_close(found, trained(False, 0.01, **options)[0])


@pytest.mark.parametrize("options", [{}, {"base": "adam", "capturable": True}, {"momentum": 0.9}], ids=str)
@pytest.mark.parametrize("foreach", [True, False])
def test_a_rate_that_is_a_tensor_is_the_same_rate(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], foreach: bool
) -> None:
    """On the CPU it is taken as a number, elsewhere as it is: as if this were elsewhere."""
    expected = trained(False, 0.01, **{**options, "capturable": False})[0]
    torch.testing.assert_close(trained(False, torch.tensor(0.01), foreach=foreach, **options)[0], expected)

    def taken_as_it_is(group: dict[str, Any]) -> Any:
        return group["lr"] * (group["metric"][0] if group["base"] == "adam" else 1.0)

    monkeypatch.setattr(moving, "rate_of", taken_as_it_is)
    torch.testing.assert_close(trained(False, torch.tensor(0.01), foreach=foreach, **options)[0], expected)
