"""Accuracy and loss on test sets, in eval mode, over a single head without task identity."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tmln.streams.samples import Samples


def mask_logits(output: Tensor, open_classes: Sequence[int] | None) -> Tensor:
    """The output with every class but these closed; None leaves all open."""
    if open_classes is None:
        return output
    closed = torch.ones(output.shape[1], dtype=torch.bool, device=output.device)
    closed[list(open_classes)] = False
    return output.masked_fill(closed, float("-inf"))


@torch.no_grad()
def evaluate(
    model: nn.Module,
    samples: Samples,
    prepare: Callable[[Tensor], Tensor],
    *,
    open_classes: Sequence[int] | None = None,
    batch_size: int = 512,
) -> dict[str, float]:
    """``{"accuracy": fraction, "loss": mean cross entropy}``; the model's mode comes back as it was."""
    if not len(samples):
        raise ValueError("cannot evaluate on an empty set")
    device = next(model.parameters()).device
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    right, loss = 0, 0.0
    try:
        for rows in torch.arange(len(samples)).split(batch_size):
            x, y = samples.gather(rows)
            y = y.to(device)
            output = mask_logits(model(prepare(x.to(device))), open_classes)
            right += int((output.argmax(1) == y).sum())
            loss += float(F.cross_entropy(output, y, reduction="sum"))
    finally:
        for module, mode in modes:
            module.training = mode
    return {"accuracy": right / len(samples), "loss": loss / len(samples)}
