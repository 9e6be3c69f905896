"""Set up a learner on the devices of a Lightning Fabric: placement, precision and checks."""

from __future__ import annotations

from typing import Any, get_args

from torch import nn

from tmln.distributed.process_group import SINGLE, Ranks, ranks_of
from tmln.distributed.sharding import REMEDY, shard_model
from tmln.distributed.sync_batchnorm import BatchNorm
from tmln.learner.forward import Precision
from tmln.methods.recipes import FAMILIES, Recipe

REPLICATED = ("SingleDeviceStrategy", "DDPStrategy")  # every rank has all weights
SHARDED = ("ModelParallelStrategy", "FSDPStrategy")  # every rank has a part of each weight


def place_model(model: nn.Module, fabric: Any, recipe: Recipe) -> Ranks:
    """Move the model to this process's device with the first rank's weights; return the ranks.

    Under a sharding strategy of Fabric the weights are sharded by FSDP2 over all its processes.
    """
    if fabric is None:
        return SINGLE
    if hasattr(model, "_forward_module"):
        raise TypeError("the model was set up by Fabric already; give the learner the plain one, and it does the rest")
    strategy = type(fabric.strategy).__name__
    if strategy not in (*REPLICATED, *SHARDED):
        raise ValueError(f"a learner does not work under Fabric's {strategy}: choose 'ddp', or 'fsdp' for shards")
    if strategy in SHARDED:
        check_shardable(recipe)
    model.to(fabric.device)
    if fabric.world_size == 1:
        return SINGLE
    ranks = ranks_of(None)
    if ranks.size != fabric.world_size:
        raise RuntimeError(f"Fabric has {fabric.world_size} processes, not started yet: call fabric.launch() first")
    model.load_state_dict(ranks.broadcast_object(lambda: {k: v.cpu() for k, v in model.state_dict().items()}))
    if strategy in SHARDED:
        shard_model(model, ranks, fabric.device)
    return ranks


def check_shardable(recipe: Recipe) -> None:
    """Raise if a component of the recipe needs full weights."""
    for family in FAMILIES:
        component, settings = recipe.resolve(family)
        if component.supports_fsdp_at(settings):
            continue
        choice = recipe.components[family]
        others = [name for name, other in FAMILIES[family].items() if other.supports_fsdp]
        given = ""
        if component.supports_fsdp:
            given = " with " + ", ".join(f"{name}={value!r}" for name, value in choice.settings.items())
        raise ValueError(
            f"strategy 'fsdp' shards the weights, and {family} {choice.name!r}{given} needs them whole: {REMEDY} "
            f"(--strategy ddp), or another {family} ({', '.join(others)})"
        )


def choose_precision(given: str | None, fabric: Any) -> Precision:
    """Return the given precision, or the Fabric's own."""
    name = given or str(getattr(getattr(fabric, "_precision", None), "precision", "32"))
    name = {"32-true": "32"}.get(name, name)
    if name not in get_args(Precision):
        raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {name!r}")
    return name  # type: ignore[return-value]


def micro_batch_size(batch_size: int, accumulate: int, ranks: Ranks) -> int | None:
    """Return the rows that a rank passes at once when a batch takes ``accumulate`` passes."""
    if accumulate < 1:
        raise ValueError(f"accumulate must be at least 1, got {accumulate}")
    return None if accumulate == 1 else max(1, -(-batch_size // (accumulate * ranks.size)))


def check_compile(model: nn.Module, ranks: Ranks, compile: bool, synced: bool) -> None:
    """Raise if the model would be compiled with batch norm synchronised over ranks."""
    has_norm = any(isinstance(module, BatchNorm) for module in model.modules())
    if ranks.size > 1 and compile and synced and has_norm:
        raise ValueError(
            "batch norm by the rows of all ranks cannot be compiled: leave compile out, or set batch_statistics='rank'"
        )
