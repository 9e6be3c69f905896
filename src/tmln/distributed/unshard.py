"""A model whose parameters lie in shards, made plain for a pass: whole weights, and no hooks that deal them out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from tmln.distributed.process_group import is_sharded, whole

DEALERS = ("torch.distributed.",)  # whose hooks gather parameters, or shard what a layer is given
HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def at_rest(model: nn.Module) -> None:
    """Parameters that a forward pass of FSDP2 left gathered go back to their shards, which an optimizer knows."""
    for module in model.modules():
        if type(module).__name__ == "FullyShardedDataParallel":
            raise TypeError(
                "FullyShardedDataParallel hides the parameters of its layers in a flat one; "
                "shard the model by torch.distributed.fsdp.fully_shard (FSDP2)"
            )
        if any(base.__name__ == "FSDPModule" for base in type(module).__mro__):
            reshard: Any = module.reshard
            reshard()


@contextmanager
def gathered(model: nn.Module) -> Iterator[dict[Tensor, Tensor]]:
    """Within the block every sharded parameter is a plain one, ``{sharded: plain}``; all ranks must enter together.

    All weights are whole on every rank for that long. A model without shards is left alone.
    """
    held = [
        (module, name, p)
        for module in model.modules()
        for name, p in module._parameters.items()
        if p is not None and is_sharded(p)
    ]
    if not held:
        yield {}
        return
    plain: dict[Tensor, Tensor] = {}
    hooks: list[tuple[dict[int, Any], dict[int, Any]]] = []
    try:
        for module, name, p in held:
            if p not in plain:
                plain[p] = nn.Parameter(whole(p.detach()), requires_grad=p.requires_grad)
            module._parameters[name] = plain[p]  # type: ignore[assignment]
        for module in model.modules():
            for kind in HOOKS:
                table: dict[int, Any] = getattr(module, kind)
                hooks.append((table, dict(table)))
                for key in [key for key, hook in table.items() if _deals(hook)]:
                    del table[key]
        yield plain
    finally:
        for table, before in hooks:
            table.clear()
            table.update(before)
        for module, name, p in held:
            module._parameters[name] = p


def _deals(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith(DEALERS)
