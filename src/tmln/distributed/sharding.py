"""Weights in shards (torch's FSDP2): shard a model, gather weights and state, load full tensors.

FSDP2 gathers the model layer by layer during a pass, and reduces gradients to shards. Files hold
full tensors, so that they do not depend on the number of ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tmln.distributed.process_group import Ranks, gather_full, is_sharded, shard_like

# Hooks of these modules gather parameters or shard inputs.
HOOK_MODULES = ("torch.distributed.",)
HOOK_TABLES = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
LEAST = 1 / 32  # of all weights: gathering a smaller layer separately is not worth a message
REMEDY = "use strategy 'ddp', under which every rank has all weights"


def is_sharded_model(model: nn.Module) -> bool:
    """Return whether each rank holds only a part of the model's weights."""
    return any(is_sharded(p) for p in model.parameters())


def shard_model(model: nn.Module, ranks: Ranks, device: torch.device) -> None:
    """Shard every weight along its first dimension; scalars stay whole on every rank.

    Layers in ``nn.Sequential`` and ``nn.ModuleList`` are gathered one at a time, all others
    together with the model: it is not known whether those are called or only lend their weights.
    Nothing stays gathered after a pass, so that weights can be changed between passes.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for p in model.parameters():
        p.data = p.data.contiguous()  # FSDP2 accepts no other memory format
    scalars = {p for p in model.parameters() if p.dim() == 0}
    mesh = init_device_mesh(device.type, (ranks.size,))
    for unit in [*sharding_units(model), model]:
        fully_shard(unit, mesh=mesh, reshard_after_forward=True, ignored_params=scalars)


def sharding_units(model: nn.Module) -> list[nn.Module]:
    """Return the layers to gather separately, inner ones first.

    No unit has a weight that is used outside of it. A layer all of whose weights belong to inner
    units is not one itself:

    >>> inner = nn.Sequential(nn.Linear(9, 9), nn.Linear(9, 1))
    >>> model = nn.Sequential(nn.Linear(9, 9), nn.ReLU(), inner)
    >>> [len(list(unit.parameters())) for unit in sharding_units(model)]
    [2, 2, 2]
    """
    least = LEAST * sum(p.numel() for p in model.parameters())
    uses = _count_uses(model)
    units: list[nn.Module] = []
    claimed: set[Tensor] = set()
    for module in reversed(list(model.modules())):  # inner modules come after the ones that contain them
        for child in module.children() if isinstance(module, (nn.Sequential, nn.ModuleList)) else ():
            own = _count_uses(child)
            is_closed = all(uses[p] == count for p, count in own.items())
            if is_closed and child not in units and sum(p.numel() for p in own if p not in claimed) >= max(1, least):
                units.append(child)
                claimed |= set(own)
    return units


def _count_uses(model: nn.Module) -> Counter[Tensor]:
    """Count the modules in ``model`` that each parameter belongs to."""
    return Counter(p for module in model.modules() for p in module.parameters(recurse=False))


def reshard_model(model: nn.Module) -> None:
    """Free the weights that a forward pass of FSDP2 left gathered; optimizers know the shards."""
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
def gather_parameters(model: nn.Module) -> Iterator[dict[Tensor, Tensor]]:
    """Replace sharded parameters by full ones within the block, and yield ``{sharded: full}``.

    All ranks must enter together, and each holds all weights meanwhile. Hooks of
    ``torch.distributed`` are off. A model without shards is left alone.
    """
    sharded = [
        (module, name, p)
        for module in model.modules()
        for name, p in module.named_parameters(recurse=False, remove_duplicate=False)
        if is_sharded(p)
    ]
    if not sharded:
        yield {}
        return
    full: dict[Tensor, Tensor] = {}
    hooks: list[tuple[dict[int, Any], dict[int, Any]]] = []
    try:
        for module, name, p in sharded:
            if p not in full:
                full[p] = nn.Parameter(gather_full(p.detach()), requires_grad=p.requires_grad)
            setattr(module, name, full[p])
        for module in model.modules():
            for kind in HOOK_TABLES:
                table: dict[int, Any] = getattr(module, kind)
                hooks.append((table, dict(table)))
                for key, hook in list(table.items()):
                    if str(getattr(hook, "__module__", "")).startswith(HOOK_MODULES):
                        del table[key]
        yield full
    finally:
        for table, before in hooks:
            table.clear()
            table.update(before)
        for module, name, p in sharded:
            setattr(module, name, p)


def gather_state(state: Any, rank: int) -> Any:
    """Return the state with full tensors on the host of rank 0, and without tensors elsewhere.

    All ranks must call together; each gathers one tensor at a time.
    """
    if isinstance(state, Tensor):
        if is_sharded(state):
            full = gather_full(state.detach())
            return None if rank else full.cpu()
        return None if rank else state
    if isinstance(state, Mapping):
        return {key: gather_state(value, rank) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(gather_state(value, rank) for value in state)
    return state


def load_model_weights(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Load a state dict of full or sharded tensors into a model that may be sharded."""
    own = model.state_dict() if is_sharded_model(model) else {}
    model.load_state_dict(
        {name: shard_like(value, own[name]) if name in own else value for name, value in state.items()}
    )
