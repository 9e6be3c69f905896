"""The last layer refitted with balanced classes (Castro et al. 2018; Kang et al. 2020)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.distributed.process_group import gather_full
from tmln.methods import BuildContext, Growth, Guide
from tmln.methods.answers.memory import LayerSettings, MemoryAnswer
from tmln.methods.features import replace_layer


class RebalancedSettings(LayerSettings):
    """Settings of mean_c CE_c + decay/2 * ||theta - theta_trained||^2."""

    # Flat between 0.001 and 0.1 for 'er' with 200 samples, on validation data of Split-Digits and
    # a tenth of CIFAR-10.
    decay: float = Field(
        0.03,
        gt=0,
        description="strength of the pull to the trained layer",
        json_schema_extra={"search": {"low": 1e-4, "high": 1.0, "log": True}},
    )
    iterations: int = Field(100, ge=1, description="maximum number of L-BFGS steps; the problem is convex")


def balance_weights(y: Tensor) -> Tensor:
    """Return weights that balance classes: 1/(number of classes * samples of its class).

    >>> balance_weights(torch.tensor([0, 0, 3]))
    tensor([0.2500, 0.2500, 0.5000], dtype=torch.float64)
    """
    _, place, counts = y.unique(return_inverse=True, return_counts=True)
    weights: Tensor = 1 / (len(counts) * counts.double())
    return weights[place]


@torch.enable_grad()
def refit_layer(
    features: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None, closed: Tensor, decay: float, iterations: int
) -> list[Tensor]:
    """Return weight and bias at the minimum, in float64; ``closed`` classes do not compete."""
    trained = [t.detach().double() for t in (weight, bias) if t is not None]
    found = [t.clone().requires_grad_() for t in trained]
    features, share = features.double(), balance_weights(y)
    solver = torch.optim.LBFGS(
        found, max_iter=iterations, tolerance_grad=1e-9, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        solver.zero_grad()
        output = F.linear(features, *found).masked_fill(closed, float("-inf"))
        value = (share * F.cross_entropy(output, y, reduction="none")).sum()
        value = value + decay / 2 * sum((a - b).square().sum() for a, b in zip(found, trained, strict=True))
        value.backward()
        return value

    solver.step(loss)
    return [t.detach() for t in found]


class RebalancedAnswer(MemoryAnswer[RebalancedSettings]):
    """The largest output of a last layer refitted to the memory at the task's end."""

    name = "rebalanced"
    supports_fsdp = True
    Settings = RebalancedSettings
    state_names: ClassVar[tuple[str, ...]] = ("rows",)
    needs_linear = True
    guide = Guide(
        equation=r"\min_W \; \mathrm{mean}_c \, \mathrm{mean}_{x \in c} \, \mathrm{CE}(W \varphi(x), c) + "
        r"\frac{\text{decay}}{2} \| W - W_{\text{trained}} \|^2",
        origin="Castro et al. 2018; Kang et al. 2020.",
        cost="A pass over the memory and a fit of the last layer at each task's end.",
        use="With a memory and plain replay, where the newest classes win by their frequency.",
        avoid="After `replay.balance` and averaged weights: there is nothing left to put right.",
    )

    def __init__(self, settings: RebalancedSettings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.rows: list[Tensor] = []  # weight and, if the layer has one, bias

    @property
    def is_fitted(self) -> bool:
        return bool(self.rows)

    def reset(self) -> None:
        self.rows = []

    def grow(self, growth: Growth) -> None:
        super().grow(growth)
        self.rows = [growth.grow_rows(row) for row in self.rows]

    def fit(self, features: Tensor, output: Tensor, y: Tensor, layer: nn.Module) -> None:
        assert isinstance(layer, nn.Linear)
        closed = output.isinf().all(0)
        s = self.settings
        weight, bias = gather_full(layer.weight), None if layer.bias is None else gather_full(layer.bias)
        rows = refit_layer(features, y, weight, bias, closed, s.decay, s.iterations)
        self.rows = [t.to(layer.weight.dtype) for t in rows]

    def in_model(self, model: nn.Module, x: Tensor) -> AbstractContextManager[None]:
        """Replace the model's last layer by the refitted one."""
        if not self.rows:
            return nullcontext()
        layer = self.features.get_layer(model, x)
        weight = self.rows[0]
        made = nn.Linear(weight.shape[1], len(weight), len(self.rows) > 1, device=weight.device, dtype=weight.dtype)
        with torch.no_grad():
            for p, row in zip(made.parameters(), self.rows, strict=True):
                p.copy_(row)
        return replace_layer(model, layer, made.eval())

    def score(self, output: Tensor, features: Tensor) -> Tensor:
        return F.linear(features, *self.rows)
