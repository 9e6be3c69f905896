"""A learner whose weights lie in shards (torch's FSDP2): each rank holds its part of every weight, and of its state.

The model is gathered layer by layer while it is passed, and gradients come back summed over the ranks and cut. What is
written is whole, tensor by tensor, so that a file does not tell how many ranks there were.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tmln.distributed.process_group import Ranks, as_sharded, is_sharded, whole
from tmln.methods.recipes import FAMILIES, Recipe

LEAST = 1 / 32  # of the weights: a layer that has less is not worth a message of its own
REMEDY = "use strategy 'ddp', under which every rank has all weights"


def in_shards(model: nn.Module) -> bool:
    """Whether each rank holds a part of its weights."""
    return any(is_sharded(p) for p in model.parameters())


def refuse_in_shards(recipe: Recipe) -> None:
    """Before any work: a part that needs whole weights."""
    for family in FAMILIES:
        part, settings = recipe.part(family)
        if part.supports_fsdp_at(settings):
            continue
        choice, others = (
            recipe.chosen[family],
            [name for name, other in FAMILIES[family].items() if other.supports_fsdp],
        )
        given = ", ".join(f"{name}={value!r}" for name, value in choice.settings.items()) if part.supports_fsdp else ""
        raise ValueError(
            f"strategy 'fsdp' deals out the weights, and {family} {choice.name!r}{' with ' * bool(given)}{given} needs "
            f"them whole: {REMEDY} (--strategy ddp), or another {family} ({', '.join(others)})"
        )


def deal_out(model: nn.Module, ranks: Ranks, device: torch.device) -> None:
    """Every weight in shards along its first dimension; single numbers stay whole on every rank.

    Layers within ``nn.Sequential`` and ``nn.ModuleList`` are gathered one at a time, what is outside of them with the
    model itself: of others it is not known whether a pass calls them, or takes their weights. Nothing stays gathered
    after a pass, so that weights can be changed between any two.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for p in model.parameters():
        p.data = p.data.contiguous()  # FSDP2 takes no other order of the dimensions
    numbers = {p for p in model.parameters() if p.dim() == 0}
    mesh = init_device_mesh(device.type, (ranks.size,))
    for unit in [*units(model), model]:
        fully_shard(unit, mesh=mesh, reshard_after_forward=True, ignored_params=numbers)


def units(model: nn.Module) -> list[nn.Module]:
    """The layers that are gathered by themselves, inner ones first; none has a weight that is used outside of it.

    One all of whose weights are those of layers in it is none itself:

    >>> model = nn.Sequential(nn.Linear(9, 9), nn.ReLU(), nn.Sequential(nn.Linear(9, 9), nn.Linear(9, 1)))
    >>> [len(list(unit.parameters())) for unit in units(model)]
    [2, 2, 2]
    """
    least = LEAST * sum(p.numel() for p in model.parameters())
    users: dict[Tensor, int] = {}
    for module in model.modules():
        for p in module._parameters.values():
            if p is not None:
                users[p] = users.get(p, 0) + 1
    found: list[nn.Module] = []
    claimed: set[Tensor] = set()
    for module in reversed(list(model.modules())):  # inner ones come after those that they are in
        for child in module.children() if isinstance(module, (nn.Sequential, nn.ModuleList)) else ():
            within: dict[Tensor, int] = {}
            for inner in child.modules():
                for p in inner._parameters.values():
                    if p is not None:
                        within[p] = within.get(p, 0) + 1
            alone = all(users[p] == count for p, count in within.items())
            if alone and child not in found and sum(p.numel() for p in within if p not in claimed) >= max(1, least):
                found.append(child)
                claimed |= set(within)
    return found


def assembled_for(state: Any, rank: int) -> Any:
    """The state with every tensor whole and on the host, where ``rank`` is the first; elsewhere nothing of it is kept.

    All ranks ask together, and hold one whole tensor at a time; the first one, which writes, ends with all of them.
    """
    if isinstance(state, Tensor):
        if is_sharded(state):
            found = whole(state.detach())
            return None if rank else found.cpu()
        return None if rank else state
    if isinstance(state, Mapping):
        return {key: assembled_for(value, rank) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(assembled_for(value, rank) for value in state)
    return state


def load_weights(model: nn.Module, state: Mapping[str, Any]) -> None:
    """``model.load_state_dict``, of whole tensors or of those that are cut already."""
    own = model.state_dict() if in_shards(model) else {}
    laid_out = {name: as_sharded(value, own[name]) if name in own else value for name, value in state.items()}
    model.load_state_dict(laid_out)
