"""Classes that a model has closed, by a logit of minus infinity: as if its head had never had them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.curvature.test_kfac import same
from tmln.curvature import diagonal_fisher
from tmln.curvature.kfac import KFAC
from tmln.curvature.kfac_factors import FISHERS, kfac_factors, sample_labels

OPEN = torch.tensor([1, 2, 4])
CLOSED = torch.tensor([0, 3, 5])
SHUT = torch.tensor([True, False, False, True, False, True])

MASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "masked_fill": lambda logits: logits.masked_fill(SHUT, -math.inf),
    "sum": lambda logits: logits + torch.zeros(6, dtype=logits.dtype).masked_fill(SHUT, -math.inf),
    "where": lambda logits: torch.where(SHUT, -math.inf, logits),
}


class Masked(nn.Module):
    def __init__(self, mask: Callable[[Tensor], Tensor], classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten())
        self.head, self.mask = nn.Linear(16, classes), mask

    def forward(self, x: Tensor) -> Tensor:
        return self.mask(self.head(self.body(x)))


def pair(mask: str) -> tuple[Masked, Masked, Tensor, Tensor]:
    """The model with closed classes, one that has the open rows only, inputs, and labels of the second."""
    torch.manual_seed(0)
    masked, small = Masked(MASKS[mask], 6).double(), Masked(lambda logits: logits, 3).double()
    small.body.load_state_dict(masked.body.state_dict())
    small.head.load_state_dict({name: value[OPEN] for name, value in masked.head.state_dict().items()})
    return masked, small, torch.randn(9, 2, 4, 4, dtype=torch.float64), torch.randint(3, (9,))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sizes", [[9], [1, 8]])
def test_the_fisher_of_labels(mask: str, sizes: list[int]) -> None:
    masked, small, x, y = pair(mask)
    fisher = diagonal_fisher(masked, zip(x.split(sizes), OPEN[y].split(sizes), strict=True))
    assert fisher.strategy == "hooks"
    expected = diagonal_fisher(small, [(x, y)])
    for name, value in expected.items():
        found = fisher[name][OPEN] if name.startswith("head") else fisher[name]
        assert same(found, value, 1e-12)
        if name.startswith("head"):
            assert not fisher[name][CLOSED].any()


@pytest.mark.parametrize("mask", MASKS)
def test_the_fisher_of_drawn_labels(mask: str) -> None:
    """Drawn labels are open ones: the closed rows stay at 0, and the others estimate p(1-p) as before."""
    masked, small, x, _ = pair(mask)
    many, none = x[:1].expand(20_000, -1, -1, -1), torch.full((20_000,), -1)
    fisher = diagonal_fisher(masked, [(many, none)], targets="sampled")
    assert all(value.isfinite().all() for value in fisher.values())
    assert not fisher["head.weight"][CLOSED].any()
    assert not fisher["head.bias"][CLOSED].any()
    p = small(x[:1]).softmax(-1).detach()[0]
    torch.testing.assert_close(fisher["head.bias"][OPEN], p * (1 - p), rtol=0.05, atol=0)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("fisher", FISHERS)
def test_kronecker_factors(mask: str, fisher: str) -> None:
    masked, small, x, y = pair(mask)
    weights = torch.rand(9, dtype=torch.float64)
    found, expected = (
        kfac_factors(
            model, x, targets=labels, weights=weights, fisher=fisher, generator=torch.Generator().manual_seed(0)
        )
        for model, labels in ((masked, OPEN[y]), (small, y))
    )
    assert same(found["body.0"].input, expected["body.0"].input)
    assert same(found["body.0"].output, expected["body.0"].output)
    assert same(found["head"].input, expected["head"].input)
    assert same(found["head"].output[OPEN][:, OPEN], expected["head"].output)
    assert not found["head"].output[CLOSED].any()
    assert not found["head"].output[:, CLOSED].any()


@pytest.mark.parametrize("fisher", FISHERS)
def test_running_factors_and_directions_are_finite(fisher: str) -> None:
    masked, _, x, y = pair("masked_fill")
    curvature = KFAC(masked, fisher=fisher)
    for _ in range(2):
        curvature.update(x, targets=OPEN[y])
        curvature.invert(0.1)
    nn.functional.cross_entropy(masked(x), OPEN[y]).backward()
    directions = curvature.precondition()
    assert len(directions) == 4
    assert all(direction.isfinite().all() for direction in directions.values())
    assert not directions[masked.get_parameter("head.weight")][CLOSED].any()


def test_classes_closed_for_some_samples_only() -> None:
    """Each sample has its own open classes; the exact factors are the mean of theirs, one sample at a time."""
    torch.manual_seed(0)
    model = nn.Linear(3, 4).double()
    x, shut = torch.randn(2, 3, dtype=torch.float64), torch.eye(4)[:2] > 0

    class Own(nn.Module):
        def __init__(self, rows: Tensor) -> None:
            super().__init__()
            self.head, self.rows = model, rows

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(x).masked_fill(self.rows, -math.inf)
            return out

    both = kfac_factors(Own(shut), x, fisher="exact")["head"].output
    alone = [kfac_factors(Own(shut[i : i + 1]), x[i : i + 1], fisher="exact")["head"].output for i in (0, 1)]
    assert same(both, (alone[0] + alone[1]) / 2)


def test_the_exact_objectives_are_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 * log 0 = 0."""
    masked, _, x, _ = pair("masked_fill")
    seen: list[Tensor] = []
    plain = torch.autograd.grad

    def watching(outputs: Tensor, *args: Any, **kwargs: Any) -> Any:
        seen.append(outputs)
        return plain(outputs, *args, **kwargs)

    monkeypatch.setattr(torch.autograd, "grad", watching)
    kfac_factors(masked, x, fisher="exact")
    assert len(seen) == 3  # no backward pass for a class that is closed to all
    assert all(value.isfinite() for value in seen)


@pytest.mark.parametrize(("uniform", "label"), [(0.0, 1), (0.5, 2), (1.0 - 2.0**-53, 4), (0.25, 2)])
def test_a_closed_class_is_never_drawn(uniform: float, label: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at the ends of the interval either, where rounding decides: p = (0, 1/4, 1/2, 0, 1/4, 0)."""
    logits = torch.tensor([[-math.inf, 1.0, 2.0, -math.inf, 1.0, -math.inf]], dtype=torch.float64)
    logits[:, 2] = 1.0 + math.log(2.0)
    monkeypatch.setattr(torch, "rand", lambda *size, **kwargs: torch.full(size, uniform, dtype=torch.float64))
    assert sample_labels(logits, None).tolist() == [label]


def test_the_last_open_class_takes_what_rounding_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nineteen times 1/19 falls short of 1 in float64; a number beyond the sum must not reach the closed classes."""
    logits = torch.zeros(1, 21, dtype=torch.float64)
    logits[:, 19:] = -math.inf
    monkeypatch.setattr(torch, "rand", lambda *size, **kwargs: torch.ones(size, dtype=torch.float64))
    assert sample_labels(logits, None).tolist() == [18]
