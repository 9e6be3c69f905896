"""Current and replayed samples in one pass, or a pass for each draw."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.methods.replay.test_parts import make
from tmln.methods import Batch
from tmln.methods.replay.er_ace import cross_entropy_among_present

NORMED = ["er", "er-ace", "der++"]


def network(norm: bool) -> nn.Module:
    torch.manual_seed(0)
    between = nn.BatchNorm1d(5) if norm else nn.Tanh()
    return nn.Sequential(nn.Linear(2, 5), between, nn.ReLU(), nn.Linear(5, 3)).double()


def batch(name: str) -> Batch:
    """Four current samples, three replayed; of der++ three with logits, then three with labels."""
    torch.manual_seed(1)
    count = 10 if name == "der++" else 7
    fields = {"logits": torch.randn(3, 3).double()} if name == "der++" else {}
    return Batch(torch.randn(count, 2).double(), torch.arange(count) % 3, 4, fields)


@pytest.mark.parametrize("name", NORMED)
@pytest.mark.parametrize("norm", [True, False])
def test_they_differ_by_batch_statistics_alone(name: str, norm: bool) -> None:
    losses = []
    for passes in ("together", "separate"):
        part: Any = make(name, passes=passes)
        losses.append(part.loss(network(norm), batch(name))[0].item())
    assert (abs(losses[0] - losses[1]) > 1e-3) is norm
    assert losses[0] == pytest.approx(losses[1], abs=1e-12) or norm


@pytest.mark.parametrize("name", NORMED)
def test_separate_passes_by_hand(name: str) -> None:
    """Mammoth's order: the current batch, the draw with logits, the draw with labels; statistics move thrice."""
    model, given, calls = network(True), batch(name), list[Tensor]()
    model.register_forward_pre_hook(lambda module, inputs: calls.append(inputs[0]))
    part: Any = make(name, passes="separate", **({"alpha": 0.2, "beta": 0.7} if name == "der++" else {}))
    loss, output = part.loss(model, given)
    assert [len(x) for x in calls] == ([4, 3, 3] if name == "der++" else [4, 3])
    assert torch.equal(torch.cat(calls), given.x)
    other, y = network(True), given.y
    parts = [other(x) for x in given.x.split([4, 3, 3] if name == "der++" else [4, 3])]
    if name == "der++":
        expected = F.cross_entropy(parts[0], y[:4]) + 0.2 * F.mse_loss(parts[1], given.fields["logits"])
        expected = expected + 0.7 * F.cross_entropy(parts[2], y[7:])
    elif name == "er":
        expected = F.cross_entropy(torch.cat(parts), y)
    else:
        expected = cross_entropy_among_present(parts[0], y[:4]) + F.cross_entropy(parts[1], y[4:])
    torch.testing.assert_close(loss, expected)
    assert torch.equal(output, torch.cat(parts))
    for ours, theirs in zip(model.buffers(), other.buffers(), strict=True):
        assert torch.equal(ours, theirs)


def test_without_replayed_samples_there_is_one_pass() -> None:
    given = Batch(torch.randn(4, 2).double(), torch.arange(4) % 3, 4)
    for name in NORMED:
        together, separate = (make(name, passes=p).loss(network(True), given)[0] for p in ("together", "separate"))
        assert torch.equal(together, separate)
