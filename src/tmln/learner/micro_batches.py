"""Batches that do not fit into memory go through the model in pieces, with the same result to rounding."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from tmln.curvature.preserve_state import preserve_model
from tmln.distributed.process_group import SINGLE, Ranks, local_part


class InPieces(nn.Module):
    """``model``, ``rows`` samples at a time: what the backward pass needs of a piece is computed again when it is due.

    Activations take the memory of one piece; the loss, whatever it is, sees the whole batch. The price is a second
    forward pass. Random numbers (dropout) are the same both times. ``ranks``: those whose weights are gathered for each
    pass, so that all of them pass as many pieces, whatever rows each has.
    """

    def __init__(self, model: nn.Module, rows: int, ranks: Ranks = SINGLE) -> None:
        super().__init__()
        if rows < 1:
            raise ValueError(f"micro_batch must be at least 1, got {rows}")
        if (norm := next((m for m in model.modules() if isinstance(m, _BatchNorm)), None)) is not None:
            raise ValueError(
                f"micro_batch={rows}: the model has a {type(norm).__name__}, which normalises by the batch, so that in "
                "pieces it would be another network; lower batch_size instead, or use GroupNorm"
            )
        self.model, self.rows, self.ranks = model, rows, ranks

    def forward(self, x: Tensor) -> Tensor:
        most = int(self.ranks.reduce_max([len(x)])[0])
        if most <= self.rows or not torch.is_grad_enabled():
            whole: Tensor = self.model(x)
            return whole
        pieces = x.split(self.rows) if self.ranks.size == 1 else x.tensor_split(-(-most // self.rows))
        return torch.cat([checkpoint(self.model, piece, use_reentrant=False) for piece in pieces])


def bytes_per_sample(model: nn.Module, x: Tensor) -> int:
    """What a training pass keeps of each sample of ``x`` for its backward pass, beside the weights."""
    weights = {local_part(p).untyped_storage().data_ptr() for p in [*model.parameters(), *model.buffers()]}
    kept: dict[int, torch.UntypedStorage] = {}

    def count(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage._cdata] = storage
        return saved

    with preserve_model(model, training=True), torch.enable_grad():
        with torch.autograd.graph.saved_tensors_hooks(count, lambda saved: saved):
            output = model(x)
        size = sum(storage.nbytes() for storage in kept.values())  # weights that were gathered are gone by now
        del output
    return -(-size // len(x))
