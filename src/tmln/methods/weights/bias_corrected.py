"""Bias correction (BiC: Wu et al. 2019, Large Scale Incremental Learning, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.methods import BuildContext, Features, Guide, Settings, TaskContext, Weights
from tmln.methods.answers.rebalanced import balance_weights
from tmln.methods.weight_copies import check_finite, trained_tensors


class BiasCorrectedSettings(Settings):
    """Settings of q_new <- alpha * q_new + beta."""

    iterations: int = Field(
        100, ge=0, description="maximum number of L-BFGS steps; the problem is convex, 0 leaves the logits as they are"
    )
    layer: str | None = Field(
        None, description="the nn.Linear that gives the output, by name; found by itself unless given"
    )


@torch.enable_grad()
def fit_correction(logits: Tensor, y: Tensor, new: Sequence[int], iterations: int) -> tuple[float, float]:
    """Return the alpha and beta of the new classes' logits with the least cross entropy.

    Every class has the same weight, however many samples it has. One class alone, or none but new
    ones, leaves the logits as they are: (1, 0).

    Args:
        logits: Outputs [n, classes]; closed classes have -inf.
        y: Labels.
        new: The classes whose logits are corrected.
        iterations: L-BFGS steps at most.
    """
    is_new = torch.zeros(logits.shape[1], dtype=torch.bool, device=logits.device)
    is_new[list(new)] = True
    has_new = is_new[y]
    if not iterations or bool(has_new.all()) or not bool(has_new.any()):
        return 1.0, 0.0
    share, fixed = balance_weights(y), logits.detach().double()
    movable = fixed.masked_fill(~is_new, 0.0)  # 0 * -inf of a closed class has no gradient
    found = torch.tensor([1.0, 0.0], dtype=torch.float64, device=logits.device, requires_grad=True)
    solver = torch.optim.LBFGS(
        [found], max_iter=iterations, tolerance_grad=1e-9, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        solver.zero_grad()
        corrected = torch.where(is_new, found[0] * movable + found[1], fixed)
        value = (share * F.cross_entropy(corrected, y, reduction="none")).sum()
        value.backward()
        return value

    solver.step(loss)
    alpha, beta = found.detach().tolist()
    return (alpha, beta) if torch.isfinite(found).all() else (1.0, 0.0)


class BiasCorrectedHead(Weights[BiasCorrectedSettings]):
    """The last layer, with q <- alpha * q + beta for the new classes' logits, at a task's end.

    alpha and beta are fitted to the memory's samples of earlier classes and the task's of new ones,
    every class with the same weight, and become part of the layer's rows and biases, from which
    the next task goes on.
    """

    name = "bias-corrected"
    Settings = BiasCorrectedSettings
    needs_boundary = True
    required_components: ClassVar[Mapping[str, str]] = {"replay": "er"}
    off_settings: ClassVar[Mapping[str, Any] | None] = {"iterations": 0}
    changed_settings: ClassVar[Mapping[str, Any]] = {"iterations": 1}
    fixed_memory_terms = ()
    guide = Guide(
        equation=r"q_c \leftarrow \alpha \, q_c + \beta \quad (c \text{ new}), \qquad \min_{\alpha, \beta} \; "
        r"\mathrm{mean}_c \, \mathrm{mean}_{x \in c} \, \mathrm{CE}(q(x), c)",
        origin="BiC: Wu et al. 2019. They fit to a tenth of the samples, which is not trained on, and keep alpha and "
        "beta beside the layer; here all samples are trained on, and the layer takes both in.",
        cost="A pass over the memory and the task's samples at each task's end.",
        use="With a memory, where the newest classes are predicted too often.",
        avoid="Where training fits its samples so closely that their logits tell nothing of the test's.",
    )

    def __init__(self, settings: BiasCorrectedSettings, context: BuildContext) -> None:
        super().__init__(settings, context)
        self.memory = getattr(context.components["replay"], "memory", None)
        if self.memory is None:
            raise ValueError(
                f"weights 'bias-corrected' are fitted to a memory, and replay {context.components['replay'].name!r} "
                "has none: choose one that has (replay 'er', 'distill')"
            )
        self.features = Features(settings.layer, "weights.layer", linear=True)

    def begin(self, context: TaskContext) -> None:
        head = self.features.find(self.model, context.example_inputs())
        if isinstance(head, nn.Linear) and head.bias is None:
            raise ValueError("weights 'bias-corrected' change biases, and the last layer has none: choose 'aligned'")

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        check_finite(trained_tensors(self.model), "the solution")
        new = [label for label in context.classes if label not in context.known]
        if not new or not self.memory:
            return
        logits, labels = [], []
        with preserve_model(context.model, training=False):
            for batches, wanted in ((context.batches(self.memory), context.known), (context.batches(), new)):
                for x, y in batches:
                    rows = torch.isin(y, torch.tensor(wanted, device=y.device))
                    if bool(rows.any()):
                        logits.append(context.model(x[rows]))
                        labels.append(y[rows])
        alpha, beta = fit_correction(torch.cat(logits), torch.cat(labels), new, self.settings.iterations)
        head = self.features.get_layer(self.model, context.example_inputs())
        assert isinstance(head, nn.Linear)
        head.weight[new] *= alpha
        head.bias[new] = alpha * head.bias[new] + beta
        self.diagnostics = {"alpha": alpha, "beta": beta}
