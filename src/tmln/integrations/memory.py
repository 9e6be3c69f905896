"""Replay memory, batches and task boundaries for the training loops of other libraries."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from tmln.curvature import diagonal_fisher
from tmln.curvature.batches import TARGET_KEYS
from tmln.curvature.likelihoods import IGNORED, LogLikelihood
from tmln.methods.replay import Reservoir
from tmln.methods.replay.fields import Pad

PADS = {"attention_mask": 0, "token_type_ids": 0, "special_tokens_mask": 1}  # as tokenizers pad these fields


def join_batches(new: Any, old: Any, pad: Pad | None = None, name: str = "") -> Any:
    """Append the samples of a second batch, in the first one's containers and on its device.

    >>> old = {"ids": torch.tensor([[3, 4, 5]])}
    >>> join_batches({"ids": torch.tensor([[1, 2]])}, old, {"ids": 0})["ids"].tolist()
    [[1, 2, 0], [3, 4, 5]]
    """
    if isinstance(new, Mapping):
        if not isinstance(old, Mapping) or set(new) != set(old):
            fields = ", ".join(map(str, old)) if isinstance(old, Mapping) else f"a {type(old).__name__}"
            raise ValueError(f"a batch has the fields {', '.join(map(str, new))}, the memory {fields}; make them alike")
        found = {
            key: join_batches(value, old[key], pad, f"{name}.{key}" if name else str(key)) for key, value in new.items()
        }
        kind: Any = type(new)  # a tokenizer's batches are dicts of their own
        return kind(found)
    if isinstance(new, (list, tuple)):
        if not isinstance(old, (list, tuple)) or len(new) != len(old):
            raise ValueError(f"a batch is a {type(new).__name__} of {len(new)}, the memory holds another form")
        pairs = enumerate(zip(new, old, strict=True))
        parts = [join_batches(a, b, pad, f"{name}.{k}" if name else str(k)) for k, (a, b) in pairs]
        return type(new)(*parts) if hasattr(new, "_fields") else type(new)(parts)
    if not isinstance(new, Tensor) or not isinstance(old, Tensor):
        raise TypeError(f"field {name or 'x'!r} of a batch is a {type(new).__name__}; replay mixes tensors")
    filler = (pad or {}).get(name or "x")
    if filler is not None:
        width = max(new.shape[1], old.shape[1])
        new, old = (F.pad(t, (0, 0) * (t.dim() - 2) + (0, width - t.shape[1]), value=filler) for t in (new, old))
    if new.shape[1:] != old.shape[1:] or new.dtype != old.dtype:
        raise ValueError(
            f"field {name or 'x'!r} holds {old.dtype} of shape {tuple(old.shape[1:])} a sample in the memory; got "
            f"{new.dtype} of {tuple(new.shape[1:])}. For sequences of many lengths name it in pad="
        )
    return torch.cat([new, old.to(new.device)])


def get_batch_size(batch: Any) -> int:
    """Return the number of samples in a batch."""
    if isinstance(batch, Tensor):
        return len(batch)
    items = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next((size for item in items if (size := get_batch_size(item))), 0)


def move_batch(batch: Any, device: str | torch.device) -> Any:
    """Copy a batch into plain containers, its tensors on ``device``."""
    if isinstance(batch, Mapping):
        return {key: move_batch(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return (list if isinstance(batch, list) else tuple)(move_batch(value, device) for value in batch)
    return batch.detach().to(device) if isinstance(batch, Tensor) else batch


def take_first(batch: Any, count: int) -> Any:
    """Return the first ``count`` samples of a batch."""
    if isinstance(batch, Mapping):
        return {key: take_first(value, count) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return (list if isinstance(batch, list) else tuple)(take_first(value, count) for value in batch)
    return batch[:count] if isinstance(batch, Tensor) else batch


def find_text_pads(batch: Mapping[str, Any], token: int | None) -> dict[str, float]:
    """Return the padding values of a tokenizer's fields; of labels, if they are tokens.

    >>> ids = torch.ones(2, 3, dtype=torch.long)
    >>> batch = {"input_ids": ids, "attention_mask": ids, "labels": torch.tensor([0, 1])}
    >>> find_text_pads(batch, token=None)
    {'input_ids': 0, 'attention_mask': 0}
    """
    known: dict[str, float] = {"input_ids": token or 0, **PADS, **dict.fromkeys(TARGET_KEYS, IGNORED)}
    ids = batch.get("input_ids")
    return {
        name: known[name]
        for name, value in batch.items()
        if name in known and isinstance(ids, Tensor) and isinstance(value, Tensor) and value.shape == ids.shape
    }


SAME_WEIGHTS = 0.05  # of the norm: weights that went through bfloat16 differ by 0.004, another adapter's by 1
OWN = ("metric", "stretch", "looked")  # state in TMLN's parameter groups, not options of the user


def unwrapped(optimizer: Any) -> Any:
    """Return the optimizer inside the wrappers of Accelerate, Fabric and Lightning.

    >>> import torch
    >>> inner = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    >>> unwrapped(inner) is inner
    True
    """
    while isinstance(getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def has_boundaries(optimizer: Any) -> bool:
    """Return whether the optimizer has task boundaries, as TMLN does."""
    return callable(getattr(optimizer, "consolidate", None))


def carry_state(optimizer: Optimizer, state: Mapping[str, Any], whom: str) -> None:
    """Load the state of an earlier optimizer into a new one, which keeps its own options."""
    if not has_boundaries(optimizer):
        raise ValueError(
            f"{whom} has consolidated, and is now given {type(optimizer).__name__}, which cannot take "
            "over its state; give it a TMLN again, or start with a new callback"
        )
    fresh, saved = optimizer.state_dict(), state
    sizes = [[len(group["params"]) for group in groups] for groups in (fresh["param_groups"], saved["param_groups"])]
    shapes = {index: p.shape for index, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
    odd = [k for k, found in saved["state"].items() if "anchor" in found and found["anchor"].shape != shapes.get(k)]
    if sizes[0] != sizes[1] or odd:
        raise ValueError(
            f"{whom} has consolidated an optimizer of {sizes[1]} parameters a group, and is now given a fresh one of "
            f"{sizes[0]}{f', in which parameter {odd[0]} has another shape' if odd else ''}: its state would be lost. "
            "Give it the same model and groups, or start with a new callback"
        )
    groups = [
        {**mine, "params": theirs["params"], **{key: theirs[key] for key in OWN if key in theirs}}
        for mine, theirs in zip(fresh["param_groups"], saved["param_groups"], strict=True)
    ]
    optimizer.load_state_dict({"state": saved["state"], "param_groups": groups})


def name_in_model(optimizer: Any, model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the optimizer's parameters in order, by their names in the model.

    >>> import torch
    >>> model = torch.nn.Linear(1, 1)
    >>> [name for name, _ in name_in_model(torch.optim.SGD(model.parameters(), lr=0.1), model)]
    ['weight', 'bias']
    """
    names = {p: name for name, p in model.named_parameters()}
    return [(names.get(p, ""), p) for group in optimizer.param_groups for p in group["params"]]


class TaskMemory:
    """Replay memory and task boundaries of a model that another library's loop trains.

    ``memory`` is drawn from. ``coming`` also has the samples of the current task and replaces it at
    the boundary, so that a task replays those before it, as in :class:`tmln.Learner`.
    """

    def __init__(
        self,
        memory: Reservoir,
        log_likelihood: str | LogLikelihood | None = None,
        batch_size: int = 128,
    ) -> None:
        self.memory = memory
        self.coming: Reservoir | None = None
        self.log_likelihood, self.batch_size = log_likelihood, batch_size
        self.boundaries = 0
        self.optimizer_state: dict[str, Any] | None = None  # after the last boundary, for a new optimizer
        self.names: list[str] = []  # of the parameters of that state, by index
        self._owners: list[weakref.ref[Tensor]] = []  # those parameters, where they are still there

    def rehearse(self, model: nn.Module, batch: Any) -> None:
        """Compute the Fisher of two samples, so that errors appear before the first step."""
        diagonal_fisher(model, [take_first(batch, 2)], log_likelihood=self.log_likelihood, progress=False)

    def offer(self, batch: Any) -> None:
        """Add samples of the current task, each once; other fields than before are refused."""
        if self.coming is None:
            self.coming = copy.deepcopy(self.memory)
        self.coming.add(batch)

    def boundary(self, model: nn.Module, optimizer: Any) -> None:
        """Pass a task boundary: update the memory, then consolidate the optimizer if it can."""
        if self.coming is not None:
            self.memory, self.coming = self.coming, None
        if has_boundaries(optimizer):
            euclidean = all(group.get("geometry") == "euclidean" for group in optimizer.param_groups)
            batches = self.memory.batches(self.batch_size)
            fisher = None if euclidean else diagonal_fisher(model, batches, log_likelihood=self.log_likelihood)
            optimizer.consolidate(fisher)
            self.boundaries += 1

    def note(self, optimizer: Any, model: nn.Module) -> None:
        """Store the optimizer's state at the end of a training, for the next one."""
        if has_boundaries(optimizer) and self.boundaries:
            self.optimizer_state = copy.deepcopy(optimizer.state_dict())
            named = name_in_model(optimizer, model)
            self.names, self._owners = [name for name, _ in named], [weakref.ref(p) for _, p in named]

    def hand_over(self, optimizer: Any, whom: str, model: nn.Module) -> None:
        """Give a new optimizer the stored state at the beginning of a training."""
        if self.optimizer_state is None:
            if self.boundaries:
                raise ValueError(
                    f"{whom} has consolidated {self.boundaries} times, and the state of that optimizer is missing: "
                    "the protection would be lost. Restore it from the checkpoint of that training"
                )
            return
        if not any(optimizer.state.values()):
            carry_state(optimizer, self.optimizer_state, whom)
            self._check_owners(optimizer, whom, model)

    def _check_owners(self, optimizer: Optimizer, whom: str, model: nn.Module) -> None:
        """Raise if a parameter is another than that of which it got the state, as an adapter's.

        It is the same if it is the same object, or has the same name and the weights of then.
        """
        for index, (name, p) in enumerate(name_in_model(optimizer, model)):
            if index < len(self._owners) and self._owners[index]() is p:
                continue
            known, anchor = self.names[index] if self.names else name, optimizer.state[p].get("anchor")
            moved = 0.0 if anchor is None else float((p.detach() - anchor.to(p)).norm())
            if name != known or (anchor is not None and moved > SAME_WEIGHTS * float(anchor.norm())):
                optimizer.state.clear()
                raise ValueError(
                    f"{whom} has consolidated {known!r}, and is now given "
                    f"{f'{name!r}' if name != known else 'another one of that name'}, which must not get its shield: "
                    "for another adapter or head begin with a new one, Continual(memory=continual.memory)"
                )

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_owners": []}  # in a copy they are other parameters

    def state_dict(self) -> dict[str, Any]:
        coming = None if self.coming is None else self.coming.state_dict()
        return {
            "memory": self.memory.state_dict(),
            "coming": coming,
            "boundaries": self.boundaries,
            "names": list(self.names),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the memory; the optimizer's state is stored elsewhere in the checkpoint."""
        self.memory.load_state_dict(state["memory"])
        self.coming = None
        if state["coming"] is not None:
            self.coming = copy.deepcopy(self.memory)
            self.coming.load_state_dict(state["coming"])
        self.boundaries, self.optimizer_state = state["boundaries"], None
        self.names, self._owners = list(state.get("names", ())), []  # older files have no names
