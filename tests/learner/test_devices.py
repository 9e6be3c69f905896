"""Every method on another device than the data's: nothing meets across devices, whatever a part keeps for itself.

There is no second device here, so the model lives on torch's ``meta`` device, whose kernels check where their operands
are and compute nothing; numbers that the host asks for are made up.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental import _config
from torch.utils._python_dispatch import TorchDispatchMode

from tmln.learner import Learner
from tmln.methods.recipes import RECIPES
from tmln.methods.steps import STEPS
from tmln.optim import UPGD

pytestmark = pytest.mark.usefixtures("narrow")

aten = torch.ops.aten


class Elsewhere(TorchDispatchMode):
    """What is read from the far device is a made-up number."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is aten._local_scalar_dense.default and args[0].is_meta:
            made: bool | int | float = 0.5 if args[0].is_floating_point() else True
            return made
        if func is aten.equal.default and args[0].is_meta:
            return True
        if func is aten._to_copy.default and args[0].is_meta and kwargs.get("device") == torch.device("cpu"):
            return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        return func(*args, **kwargs)


@pytest.fixture(autouse=True)
def _noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no generators on the far device."""
    monkeypatch.setattr(UPGD, "_standard_normal", lambda self, p: torch.randn_like(p))


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 6)).to("meta")


def task(k: int) -> tuple[Tensor, Tensor]:
    return torch.randint(0, 256, (4, 5), dtype=torch.uint8), torch.arange(4) % 2 + 2 * k


def far(**options: Any) -> Learner:
    holds = _config.patch(meta_nonzero_assume_all_nonzero=True)  # type: ignore[attr-defined]  # whatever is asked there
    with Elsewhere(), warnings.catch_warnings(), holds:  # type: ignore[no-untyped-call]
        warnings.filterwarnings("ignore", message=".*strength.*|.*shield.*|the features of all", category=UserWarning)
        learner = Learner(network(), batch_size=2, **options)
        for k in range(2):
            learner.learn(task(k), atomic=False)
        learner.evaluate(task(0))
    return learner


def covering() -> list[str]:
    """Few methods that have among them all parts of all methods."""
    parts = {
        method: {(f, choice.name) for f, choice in recipe.components.items()} for method, recipe in RECIPES.items()
    }
    wanted, found = set[tuple[str, str]]().union(*parts.values()), list[str]()
    while wanted:
        found.append(max(parts, key=lambda method: len(parts[method] & wanted)))
        wanted -= parts[found[-1]]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "mask"), [*((method, "seen") for method in RECIPES), *((method, "none") for method in covering())]
)
def test_every_method_trains_where_the_model_is(method: str, mask: str) -> None:
    learner = far(method=method, logit_mask=mask)
    assert learner.tasks == 2
    assert all(p.is_meta for p in learner.model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("inner", [name for name in STEPS if name != "a-gem"])
def test_every_step_within_a_gem(inner: str) -> None:
    assert far(method="a-gem", settings={"step.inner": inner}).tasks == 2


def test_the_check_sees_operands_of_two_devices() -> None:
    """The test above can fail."""

    class Careless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()
            self.shift = [torch.ones(5)]  # not a buffer: stays behind

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.inner(x + self.shift[0])
            return out

    with pytest.raises(RuntimeError, match="device"), Elsewhere():  # type: ignore[no-untyped-call]
        Learner(Careless(), "naive").learn(task(0), atomic=False)
