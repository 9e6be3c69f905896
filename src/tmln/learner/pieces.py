"""Batches that do not fit into memory go through the model in pieces, with the same result to rounding."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from tmln.curvature.untouched import untouched


class InPieces(nn.Module):
    """``model``, ``rows`` samples at a time: what the backward pass needs of a piece is computed again when it is due.

    Activations take the memory of one piece; the loss, whatever it is, sees the whole batch. The price is a second
    forward pass. Random numbers (dropout) are the same both times.
    """

    def __init__(self, model: nn.Module, rows: int) -> None:
        super().__init__()
        if rows < 1:
            raise ValueError(f"micro_batch must be at least 1, got {rows}")
        if (norm := next((m for m in model.modules() if isinstance(m, _BatchNorm)), None)) is not None:
            raise ValueError(
                f"micro_batch={rows}: the model has a {type(norm).__name__}, which normalises by the batch, so that in "
                "pieces it would be another network; lower batch_size instead, or use GroupNorm"
            )
        self.model, self.rows = model, rows

    def forward(self, x: Tensor) -> Tensor:
        if len(x) <= self.rows or not torch.is_grad_enabled():
            whole: Tensor = self.model(x)
            return whole
        return torch.cat([checkpoint(self.model, piece, use_reentrant=False) for piece in x.split(self.rows)])


def bytes_per_sample(model: nn.Module, x: Tensor) -> int:
    """What a training pass keeps of each sample of ``x`` for its backward pass, beside the weights."""
    weights = {p.untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}
    kept: dict[int, int] = {}

    def count(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return saved

    with untouched(model, training=True), torch.enable_grad():
        with torch.autograd.graph.saved_tensors_hooks(count, lambda saved: saved):
            output = model(x)
        del output
    return -(-sum(kept.values()) // len(x))
