"""A learner on Lightning Fabric's devices: what it takes of a Fabric, and what it does not do there."""

from __future__ import annotations

from typing import Any, get_args

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tmln.distributed.process_group import ALONE, Ranks, ranks_of
from tmln.learner.fsdp import deal_out, refuse_in_shards
from tmln.learner.mixed_precision import Precision
from tmln.methods.recipes import Recipe

WHOLE = ("SingleDeviceStrategy", "DDPStrategy")  # under which every rank has all weights
SHARDED = ("ModelParallelStrategy", "FSDPStrategy")  # under which it has its part of each


def placed(model: nn.Module, fabric: Any, recipe: Recipe) -> Ranks:
    """The model on this process's device with the first rank's weights, and those who learn together.

    Of a Fabric that deals weights out, its processes are taken: the shards are torch's own, over all of them.
    """
    if fabric is None:
        return ALONE
    if hasattr(model, "_forward_module"):
        raise TypeError("the model was set up by Fabric already; give the learner the plain one, and it does the rest")
    strategy = type(fabric.strategy).__name__
    if strategy not in (*WHOLE, *SHARDED):
        raise ValueError(f"a learner does not work under Fabric's {strategy}: choose 'ddp', or 'fsdp' for shards")
    if strategy in SHARDED:
        refuse_in_shards(recipe)
    model.to(fabric.device)
    if fabric.world_size == 1:
        return ALONE
    ranks = ranks_of(None)
    if ranks.size != fabric.world_size:
        raise RuntimeError(f"Fabric has {fabric.world_size} processes, not started yet: call fabric.launch() first")
    model.load_state_dict(ranks.from_first(lambda: {k: v.cpu() for k, v in model.state_dict().items()}))
    if strategy in SHARDED:
        deal_out(model, ranks, fabric.device)
    return ranks


def precision_of(given: str | None, fabric: Any) -> Precision:
    """As given, else the Fabric's own."""
    name = given or str(getattr(getattr(fabric, "_precision", None), "precision", "32"))
    name = {"32-true": "32"}.get(name, name)
    if name not in get_args(Precision):
        raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {name!r}")
    return name  # type: ignore[return-value]


def piece_of(batch_size: int, accumulate: int, ranks: Ranks) -> int | None:
    """Samples that a rank passes at a time where a batch is passed in ``accumulate`` pieces; None: all at once."""
    if accumulate < 1:
        raise ValueError(f"accumulate must be at least 1, got {accumulate}")
    return None if accumulate == 1 else max(1, -(-batch_size // (accumulate * ranks.size)))


def refuse_together(model: nn.Module, ranks: Ranks, compile: bool, synced: bool) -> None:
    """What several ranks cannot do."""
    normed = any(isinstance(module, _BatchNorm) for module in model.modules())
    if ranks.size > 1 and compile and synced and normed:
        raise ValueError(
            "batch norm by the rows of all ranks cannot be compiled: leave compile out, or set batch_statistics='rank'"
        )
