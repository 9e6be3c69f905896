"""Two batches of one form become one: samples of a memory behind those of a data loader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tmln.curvature.batches import TARGET_KEYS
from tmln.curvature.likelihoods import IGNORED
from tmln.methods.replay.fields import Pad

ENDS = {"attention_mask": 0, "token_type_ids": 0, "special_tokens_mask": 1}  # what fills these up; by the tokenizers


def mixed(new: Any, old: Any, pad: Pad | None = None, name: str = "") -> Any:
    """Both batches' samples, the new ones first, in the new batch's containers and on its device.

    >>> mixed({"ids": torch.tensor([[1, 2]])}, {"ids": torch.tensor([[3, 4, 5]])}, {"ids": 0})["ids"].tolist()
    [[1, 2, 0], [3, 4, 5]]
    """
    if isinstance(new, Mapping):
        if not isinstance(old, Mapping) or set(new) != set(old):
            fields = ", ".join(map(str, old)) if isinstance(old, Mapping) else f"a {type(old).__name__}"
            raise ValueError(f"a batch has the fields {', '.join(map(str, new))}, the memory {fields}; make them alike")
        found = {key: mixed(value, old[key], pad, f"{name}.{key}" if name else str(key)) for key, value in new.items()}
        kind: Any = type(new)  # a tokenizer's batches are dicts of their own
        return kind(found)
    if isinstance(new, (list, tuple)):
        if not isinstance(old, (list, tuple)) or len(new) != len(old):
            raise ValueError(f"a batch is a {type(new).__name__} of {len(new)}, the memory holds another form")
        pairs = enumerate(zip(new, old, strict=True))
        parts = [mixed(a, b, pad, f"{name}.{k}" if name else str(k)) for k, (a, b) in pairs]
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


def size_of(batch: Any) -> int:
    """How many samples a batch has."""
    if isinstance(batch, Tensor):
        return len(batch)
    items = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (list, tuple)) else ()
    return next((size for item in items if (size := size_of(item))), 0)


def moved(batch: Any, device: str | torch.device) -> Any:
    """The same containers as plain ones, their tensors on the device: a memory must not fill an accelerator."""
    if isinstance(batch, Mapping):
        return {key: moved(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return (list if isinstance(batch, list) else tuple)(moved(value, device) for value in batch)
    return batch.detach().to(device) if isinstance(batch, Tensor) else batch


def start_of(batch: Any, count: int) -> Any:
    """The first samples of a batch."""
    if isinstance(batch, Mapping):
        return {key: start_of(value, count) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return (list if isinstance(batch, list) else tuple)(start_of(value, count) for value in batch)
    return batch[:count] if isinstance(batch, Tensor) else batch


def text_pads(batch: Mapping[str, Any], token: int | None) -> dict[str, float]:
    """What fills up the fields of a tokenizer's batch whose samples differ in length; labels, where they are tokens'.

    >>> ids = torch.ones(2, 3, dtype=torch.long)
    >>> text_pads({"input_ids": ids, "attention_mask": ids, "labels": torch.tensor([0, 1])}, token=None)
    {'input_ids': 0, 'attention_mask': 0}
    """
    known: dict[str, float] = {"input_ids": token or 0, **ENDS, **dict.fromkeys(TARGET_KEYS, IGNORED)}
    ids = batch.get("input_ids")
    return {
        name: known[name]
        for name, value in batch.items()
        if name in known and isinstance(ids, Tensor) and isinstance(value, Tensor) and value.shape == ids.shape
    }
