"""F of a network's features: what its weights are worth to a head that is not trained yet.

Features f(x) are read as the mean of a Gaussian of unit variance, whose Fisher information is
F = E_x sum_k (df_k / dtheta)^2. It needs no labels, and is sampled by one draw r ~ N(0, I) for each
input: E_r (d(r . f) / dtheta)^2. Weights of the head have F = 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from tmln.curvature import diagonal_fisher
from tmln.curvature.preserve_state import preserve_model
from tmln.methods import Features, TaskContext
from tmln.methods.replay.reservoir import Reservoir

SAMPLES = 200  # inputs of the first task that are drawn, at most


class FeatureOutput(nn.Module):
    """A model whose output is the input of its last layer."""

    def __init__(self, model: nn.Module, features: Features) -> None:
        super().__init__()
        self.model, self.features = model, features

    def forward(self, x: Tensor) -> Tensor:
        return self.features.extract(self.model, x)[1]


def feature_fisher(context: TaskContext, layer: str | None = None) -> dict[Tensor, Tensor]:
    """Return F of the features, by parameter, on a sample of the task's inputs.

    Args:
        context: the task; its labels are not used.
        layer: name of the layer behind the features; found by itself unless given.

    Returns:
        F of every trained weight; nothing where no weight before the head is trained.
    """
    drawn = Reservoir(SAMPLES, 0)
    for x, y in context.samples():
        drawn.add(x, y)
    features = Features(layer, "head")
    with preserve_model(context.model, training=False):
        example = features.extract(context.model, context.example_inputs())[1]
    if not example.requires_grad:
        return {}
    found = diagonal_fisher(
        FeatureOutput(context.model, features),
        _draw_directions(context, drawn, example.shape[1]),
        log_likelihood=lambda output, direction: (output * direction).sum(1),
        progress=False,
    )
    names = dict(context.model.named_parameters())
    return {names[name.removeprefix("model.")]: value for name, value in found.items()}


def _draw_directions(context: TaskContext, drawn: Reservoir, width: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield this rank's inputs, each with a draw from N(0, I): that of a single process."""
    generator = torch.Generator().manual_seed(0)
    for x, y in drawn.batches(context.eval_batch_size, ("x", "y")):
        directions = torch.randn(len(y), width, generator=generator)
        rows = context.ranks.rows(len(y))
        inputs, _ = context.prepare_batch(x[rows], y[rows])
        yield inputs, directions[rows].to(context.reference_weight)
