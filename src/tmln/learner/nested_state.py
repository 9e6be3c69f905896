"""A nested state taken apart into plain JSON values and named tensors, and put together again bit for bit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

TAG = "$"  # marks what JSON has no form for; a dictionary with this key is written as a list of its items
# The dtypes that every version of safetensors stores; others are stored as their bytes.
STORED = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64) + (
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
)  # fmt: skip


def encode(state: Mapping[Any, Any]) -> tuple[Any, dict[str, Tensor]]:
    """A nested state as plain JSON values and the tensors that they refer to by name."""
    tensors: dict[str, Tensor] = {}
    seen: dict[tuple[Any, ...], dict[str, Any]] = {}

    def node(value: Any, path: str) -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {TAG: "float", "value": repr(float(value))}
        if isinstance(value, Tensor):
            return tensor(value.detach(), path)
        if isinstance(value, list):
            return [node(item, f"{path}.{index}") for index, item in enumerate(value)]
        if type(value) in (tuple, torch.Size):
            return {TAG: "tuple", "items": [node(item, f"{path}.{index}") for index, item in enumerate(value)]}
        if isinstance(value, Mapping):
            for key in value:
                if not isinstance(key, (str, int)) or isinstance(key, bool):
                    raise TypeError(f"a checkpoint cannot hold the key {key!r} of {path or 'the state'}; use a string")
            items = [[key, node(item, f"{path}.{key}" if path else str(key))] for key, item in value.items()]
            plain = all(isinstance(key, str) and key != TAG for key in value)
            return dict(items) if plain else {TAG: "dict", "items": items}
        raise TypeError(
            f"a checkpoint cannot hold {path or 'the state'}, a {type(value).__name__}; "
            "it holds tensors, numbers, strings, None, and lists, tuples and dictionaries of them"
        )

    def tensor(value: Tensor, path: str) -> dict[str, Any]:
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise TypeError(f"a checkpoint cannot hold {path}, a sparse, quantized or meta tensor; make it dense")
        value = value.resolve_conj().resolve_neg()
        view = (value.device, value.dtype, value.data_ptr(), value.shape, value.stride())
        if view not in seen or not value.numel():
            dense = _dense(value)
            name = f"{len(tensors)}:{path}".encode("ascii", "backslashreplace").decode()
            tensors[name] = _in_memory_order(dense)
            shape, stride = list(dense.shape), list(dense.stride())
            dtype = str(dense.dtype).removeprefix("torch.")
            seen[view] = {TAG: "tensor", "name": name, "dtype": dtype, "shape": shape, "stride": stride}
        return seen[view]

    return node(state, ""), _unshared(tensors)


def decode(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The state that :func:`encode` took apart; strides are those of before, and what was shared is shared."""
    made: dict[str, Tensor] = {}

    def node(value: Any) -> Any:
        if isinstance(value, list):
            return [node(item) for item in value]
        if not isinstance(value, dict):
            return value
        kind = value.get(TAG)
        if kind is None:
            return {key: node(item) for key, item in value.items()}
        if kind == "float":
            return float(value["value"])
        if kind == "tuple":
            return tuple(node(item) for item in value["items"])
        if kind == "dict":
            return {key: node(item) for key, item in value["items"]}
        if kind != "tensor":
            raise ValueError(f"unknown kind {kind!r}")
        name = value["name"]
        if name not in made:
            dtype, shape, stride = getattr(torch, value["dtype"]), value["shape"], value["stride"]
            stored = tensors[name].reshape(-1)
            _check_layout(name, dtype, shape, stride, stored.nbytes)
            flat = stored if dtype in STORED else stored.clone().view(dtype)
            # Memory of torch's own, aligned as in the uninterrupted run: some kernels round differently elsewhere.
            made[name] = torch.empty_strided(shape, stride, dtype=dtype).copy_(flat.as_strided(shape, stride))
        return made[name]

    return node(tree)


def _check_layout(name: str, dtype: Any, shape: Any, stride: Any, stored_bytes: int) -> None:
    """Raise unless a tensor of this layout takes exactly the bytes that are stored for it."""
    sizes = [*shape, *stride]
    if not isinstance(dtype, torch.dtype) or not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError(f"tensor {name} has no valid layout")
    items = math.prod(shape)
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if items * dtype.itemsize != stored_bytes or (items and extent != items):
        raise ValueError(f"tensor {name} has another size than its bytes")


def _order(value: Tensor) -> list[int]:
    """Its dimensions from the slowest to the fastest."""
    return sorted(range(value.dim()), key=value.stride().__getitem__, reverse=True)


def _dense(value: Tensor) -> Tensor:
    """On the CPU, without gaps or overlaps; channels_last and other orders of the dimensions stay."""
    value = value.cpu()
    return value if value.permute(_order(value)).is_contiguous() else value.clone()


def _in_memory_order(dense: Tensor) -> Tensor:
    """The same memory as a contiguous tensor of a dtype that safetensors stores."""
    flat = dense.as_strided((dense.numel(),), (1,))  # dimensions of size 1 can have any stride
    return flat.view([dense.shape[dim] for dim in _order(dense)]) if dense.dtype in STORED else flat.view(torch.uint8)


def _unshared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """safetensors refuses tensors that overlap: of those in one storage, all but the first are copied."""
    storages: set[int] = set()
    apart = {}
    for name, value in tensors.items():
        storage = value.untyped_storage().data_ptr()
        apart[name] = value.clone() if storage in storages else value
        storages.add(storage)
    return apart
