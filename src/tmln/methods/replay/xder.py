"""X-DER (Boschini et al. 2022, Class-Incremental Learning into the eXtended DER-verse)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from tmln.curvature.preserve_state import preserve_model
from tmln.methods import Batch, Guide, TaskContext, prepare_inputs
from tmln.methods.replay.derpp import DERpp, DERSettings


class XDERSettings(DERSettings):
    """Settings of the loss, and of what is written into stored logits."""

    gamma: float = Field(
        0.85,
        gt=0,
        le=1,
        description="largest share of the true class's logit that logits written into the memory may have",
        json_schema_extra={"search": {"low": 0.5, "high": 1.0}},
    )
    eta: float = Field(
        0.1,
        ge=0,
        allow_inf_nan=False,
        description="weight of the constraint that keeps classes of earlier tasks below those of the task",
        json_schema_extra={"search": {"low": 0.01, "high": 1.0, "log": True}},
    )
    margin: float = Field(0.3, ge=0, le=1, description="m: by which probability, for current samples")
    fill: Literal["end"] = Field("end", description="samples are stored at the task's end, with their logits")


def limit_logits(written: Tensor, true: Tensor, gamma: float) -> Tensor:
    """Return logits to be written, scaled so that none is above ``gamma`` times the true one.

    Rows whose largest logit is below the true class's stay as they are.

    >>> limit_logits(torch.tensor([[1.0, 4.0], [1.0, -1.0]]), torch.tensor([2.0, 2.0]), 0.5)
    tensor([[ 0.2500,  1.0000],
            [ 1.0000, -1.0000]])
    """
    top = written.max(1).values
    factor = gamma * true / top.where(top != 0, torch.ones_like(top))
    return written * torch.where(top > true, factor, torch.ones_like(factor))[:, None]


def compute_margin_loss(output: Tensor, known: Sequence[int], task: Sequence[int], margin: float) -> Tensor:
    """Return how far p of earlier classes comes up to that of the task's, less the margin.

    The mean of max_earlier p - max_task p + margin over samples where it is positive; no gradient
    passes through p of the earlier classes' maximum.
    """
    share = output[:, [*known, *task]].softmax(1)
    excess = share[:, : len(known)].max(1).values.detach() + margin - share[:, len(known) :].max(1).values
    over = excess[excess > 0]
    return over.mean() if len(over) else excess.sum() * 0.0


class XDER(DERpp):
    """DER++ with a cross entropy for each task, and stored logits that are kept up to date.

    Current samples compete among the task's classes, replayed ones among those of earlier tasks,
    and all stored logits are to be kept. At the task's end those of its classes and of classes to
    come are written anew for samples of earlier tasks, below that of the true class. The paper's
    preparation of classes to come, and its updates of logits within a task, are left out.
    """

    name = "x-der"
    Settings = XDERSettings  # type: ignore[assignment]  # its constructor takes fill="end" alone
    settings: XDERSettings
    off_settings: ClassVar[Mapping[str, Any] | None] = None
    changed_settings: ClassVar[Mapping[str, Any]] = {"alpha": 2.0, "eta": 5.0}
    state_names = (*DERpp.state_names, "known", "task")
    needs_boundary = True
    guide = Guide(
        equation=r"\mathcal{L} = \mathrm{CE}_{\text{task}}(f(x), y) + \alpha \, \mathrm{MSE}(f(x'), z') + "
        r"\beta \, \mathrm{CE}_{\text{old}}(f(x''), y'') + \eta \, [\max p_{\text{old}}(x) + m - \max "
        r"p_{\text{task}}(x)]_+",
        origin="Boschini et al. 2022, without the preparation of classes to come (neither contrastive nor with a fixed "
        "polytope) and without updates of stored logits within a task.",
        cost="As `der++`, and a pass over the memory at each task's end.",
        use="Where new classes come in every task, in place of `der++`.",
        avoid="Where the classes stay the same and only the domain changes; in streams without boundaries.",
    )

    def __init__(self, settings: XDERSettings, seed: int) -> None:
        super().__init__(settings, seed)
        self._refuse_balance("has a cross entropy for each part of them")
        self.known: list[int] = []  # classes of earlier tasks
        self.task: list[int] = []  # classes of this task that are new

    @classmethod
    def refuse_task_heads(cls, settings: Any) -> str:
        return "compares outputs of classes of other tasks"

    def begin(self, context: TaskContext) -> None:
        super().begin(context)
        self.known = list(context.known)
        self.task = [label for label in context.classes if label not in context.known]

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        settings, n, stored = self.settings, batch.current, batch.fields.get("logits")
        labelled = n if stored is None else n + len(stored)
        output = self._forward(model, batch, labelled - n)
        now = output[:n]
        loss = F.cross_entropy(_keep(now, {*self.task, *batch.y[:n].tolist()}), batch.y[:n])
        if not self.known:
            return loss, output
        if stored is not None:
            replayed = output[n:labelled]
            kept = stored.isfinite() & replayed.isfinite()  # not of classes that were, or are, closed
            loss = loss + settings.alpha * F.mse_loss(replayed[kept], stored[kept])
        if len(batch.y) > labelled:
            past = _keep(output[labelled:], {*self.known, *batch.y[labelled:].tolist()})
            loss = loss + settings.beta * F.cross_entropy(past, batch.y[labelled:])
        if settings.eta and self.task:
            loss = loss + settings.eta * compute_margin_loss(now, self.known, self.task, settings.margin)
        return loss, output

    @torch.no_grad()
    def end(self, context: TaskContext) -> None:
        if self.known and self.task and len(self.memory):
            reference = context.reference_weight

            def write(rows: Mapping[str, Any]) -> Tensor:
                x, y, logits = rows["x"], rows["y"].long(), rows["logits"].clone()
                output = context.model(prepare_inputs(reference, x, context.prepare)).to(logits)
                later = output.isfinite().all(0)
                later[self.known] = False
                true = logits.gather(1, y[:, None])[:, 0]
                logits[:, later] = limit_logits(output[:, later], true, self.settings.gamma)
                return torch.as_tensor(logits)

            with preserve_model(context.model, training=False):
                self.memory.update_field("logits", context.eval_batch_size, write)
        super().end(context)

    @torch.no_grad()
    def _get_fields_at_end(self, context: TaskContext, x: Tensor, y: Tensor) -> dict[str, Any]:
        logits = super()._get_fields_at_end(context, x, y)["logits"]
        if self.known:
            true = logits.gather(1, y.to(logits.device)[:, None])[:, 0]
            logits[:, self.known] = limit_logits(logits[:, self.known], true, self.settings.gamma)
        return {"logits": logits}


def _keep(output: Tensor, classes: set[int]) -> Tensor:
    """Return the logits with those of all other classes at -inf."""
    closed = torch.ones(output.shape[1], dtype=torch.bool, device=output.device)
    closed[list(classes)] = False
    return output.masked_fill(closed, float("-inf"))
