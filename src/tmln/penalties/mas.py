"""Memory aware synapses (Aljundi et al. 2018): importance is how much a weight moves the output."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from tmln.curvature.untouched import untouched
from tmln.parts import Lesson
from tmln.penalties.quadratic import Quadratic, QuadraticSettings, state_dtype, zeros
from tmln.progress import track

MEMORY = 128 * 2**20  # bytes of per-sample gradients in flight, as for the Fisher
logger = logging.getLogger("tmln.penalties")


def squared_norm(output: Tensor) -> Tensor:
    """||f||^2 of the open outputs: a closed class answers -inf, whatever the weights."""
    return output.masked_fill(output == -torch.inf, 0.0).square().sum()


def output_sensitivity(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], parameters: list[Tensor]
) -> list[Tensor]:
    """Omega = mean_n |d ||f(x_n)||^2 / d theta|: the absolute value of each sample's own gradient, in eval mode.

    The squared norm is of the whole output vector, the logits of every class but those that are closed (-inf). Labels
    play no part. The model comes back as it was.
    """
    sums = zeros(parameters)
    samples, gradients = 0, _vectorised(model, parameters)
    chunk = max(1, MEMORY // max(1, 3 * sum(p.numel() * p.element_size() for p in parameters)))
    with untouched(model, training=False):
        for x, _ in track(batches, "output sensitivity"):
            for part in x.to(parameters[0].device).split(chunk):
                try:
                    found = gradients(part)
                except Exception as reason:
                    if samples:
                        raise
                    logger.warning("mas: %s goes sample by sample, which is slower (%s)", type(model).__name__, reason)
                    for p in parameters:
                        p.requires_grad_(True)  # one that was frozen since counts as it does in a vectorised pass
                    gradients = _one_by_one(model, parameters)
                    found = gradients(part)
                torch._foreach_add_(sums, found)
                samples += len(part)
    if not samples:
        raise ValueError("mas: the task has no samples to measure the output's sensitivity on")
    torch._foreach_div_(sums, float(samples))
    return sums


def _vectorised(model: nn.Module, parameters: list[Tensor]) -> Callable[[Tensor], list[Tensor]]:
    """Sums of absolute per-sample gradients over a chunk, by vmap."""
    named: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    weights = {named[p]: p.detach() for p in parameters}

    def norm(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        output: Tensor = functional_call(model, weights, (x.unsqueeze(0),))
        return squared_norm(output)

    def run(chunk: Tensor) -> list[Tensor]:
        with sdpa_kernel(SDPBackend.MATH):  # fused attention cannot be vectorised
            gradients = vmap(grad(norm), in_dims=(None, 0))(weights, chunk)
        return [gradients[named[p]].abs().sum(0, dtype=state_dtype(p)) for p in parameters]

    return run


def _one_by_one(model: nn.Module, parameters: list[Tensor]) -> Callable[[Tensor], list[Tensor]]:
    """The same with a backward pass a sample: for models that cannot be vectorised."""

    def run(chunk: Tensor) -> list[Tensor]:
        sums = zeros(parameters)
        for x in chunk.split(1):
            with torch.enable_grad():
                norm = squared_norm(model(x))
            for total, gradient in zip(sums, torch.autograd.grad(norm, parameters, allow_unused=True), strict=True):
                if gradient is not None:
                    total.add_(gradient.abs())
        return sums

    return run


class MASSettings(QuadraticSettings):
    strength: float = Field(
        default=1.0,
        ge=0.0,
        allow_inf_nan=False,
        description="lambda in lambda * sum Omega d^2",
        json_schema_extra={"search": {"low": 0.01, "high": 10.0, "log": True}},
    )


class MAS(Quadratic[MASSettings]):
    """lambda * sum Omega_i (theta_i - theta*_i)^2, with Omega added up over the tasks' ends."""

    name = "mas"
    Settings = MASSettings

    @torch.no_grad()
    def end(self, lesson: Lesson) -> None:
        self.join()
        importance = output_sensitivity(lesson.model, lesson.batches(), self.weights)
        if self.importance:
            torch._foreach_add_(importance, self.importance)
        self.consolidate(importance)
