"""Write and read nested states: safetensors and JSON with a checksum, written whole or not at all.

A checkpoint is a folder ``SERIAL-step-STEP`` with two files, ``tensors.safetensors`` and
``state.json``; the newest has the highest serial number, whatever its step. In every format version
``state.json`` is ``{"checksum", "content"}`` with ``content["format"]``, so that a newer format can
be told from damage. Loading runs no code.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from tmln.writing import replacing, sync_path, writing

FORMAT = 1
KEEP = 2
TENSORS, STATE = "tensors.safetensors", "state.json"
FOLDER = re.compile(r"(\d+)-step-\d+")
MOST_STATE_BYTES = 1 << 28  # of the JSON of a state that is read
# What reading a damaged file can raise; one that asks for too much memory counts as damaged.
_USUAL = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError, MemoryError)
DAMAGE = (safetensors.SafetensorError, OSError, *_USUAL)

TAG = "$"  # marks what JSON has no form for; a dictionary with this key is written as a list of its items
# The dtypes that every version of safetensors stores; others are stored as their bytes.
STORED_DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64) + (
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
)  # fmt: skip

log = logging.getLogger(__name__)


class Torn(ValueError):
    """A file that is cut short, damaged, or not a tmln state at all."""


class NewerFormat(ValueError):
    """A file that a later version of tmln saved."""


def _seal(tree: Any, tensors: Mapping[str, Tensor], **more: Any) -> str:
    content = {"format": FORMAT, **more, "tensors": _checksum(tensors), "state": tree}
    text = json.dumps({"checksum": zlib.crc32(_canonical_json(content)), "content": content}, allow_nan=False)
    _check_length(len(text))
    return text


def _unseal(text: str | bytes) -> dict[str, Any]:
    _check_length(len(text))
    sealed = json.loads(text)
    content: dict[str, Any] = sealed["content"]
    if sealed["checksum"] != zlib.crc32(_canonical_json(content)):
        raise ValueError("its JSON does not match its checksum")
    if content["format"] > FORMAT:
        raise NewerFormat(f"format {content['format']}, but this tmln reads formats up to {FORMAT}: upgrade tmln")
    return content


def _check_length(size: int) -> None:
    if size > MOST_STATE_BYTES:
        raise ValueError(f"its JSON has {size:,} bytes, more than the {MOST_STATE_BYTES:,} that are read")


def _read_state(folder: Path) -> dict[str, Any]:
    _check_length((folder / STATE).stat().st_size)
    return _unseal((folder / STATE).read_bytes())


def _canonical_json(content: Any) -> bytes:
    return json.dumps(content).encode()


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    """Return the CRC-32 of all tensors (0.08 s for 220 MB, where BLAKE2 took 0.39 s)."""
    total = 0
    for name in sorted(tensors):
        value = tensors[name]
        total = zlib.crc32(f"{name} {value.dtype} {list(value.shape)}".encode(), total)
        if value.numel():
            total = zlib.crc32(value.reshape(-1).view(torch.uint8).numpy().data, total)
    return total


def _write_tensors(tensors: dict[str, Tensor], path: Path, header: dict[str, str] | None = None) -> None:
    path.touch()
    mode = path.stat().st_mode
    try:
        safetensors.torch.save_file(tensors, path, metadata=header)
    except safetensors.SafetensorError as error:  # of a full disk, too, which it tells of in words only
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
    path.chmod(mode)  # some versions of safetensors let the owner alone read


def _read_tensors(path: Path) -> dict[str, Tensor]:
    with safetensors.safe_open(path, framework="pt") as file:
        names = file.keys()
        return {name: file.get_tensor(name) for name in names}


def _decode(content: dict[str, Any], tensors: Mapping[str, Tensor]) -> dict[Any, Any]:
    if content["tensors"] != _checksum(tensors):
        raise ValueError("its tensors do not match their checksum")
    state = decode(content["state"], tensors)
    if not isinstance(state, dict):
        raise TypeError("it holds no dictionary")
    return state


def save_file(path: str | os.PathLike[str], state: Mapping[Any, Any]) -> None:
    """Write one safetensors file with the JSON in its header; replace an older one at once."""
    path = Path(path)
    tree, tensors = encode(state)
    with replacing(path) as aside:
        _write_tensors(tensors, aside, {"tmln": _seal(tree, tensors)})


def load_file(path: str | os.PathLike[str]) -> dict[Any, Any]:
    """Read what :func:`save_file` saved."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
        if "tmln" not in header:
            raise ValueError("it was not saved by tmln")
        return _decode(_unseal(header["tmln"]), _read_tensors(path))
    except NewerFormat as error:
        raise NewerFormat(f"{path}: {error}") from None
    except DAMAGE as error:
        raise Torn(f"{path} cannot be loaded: {_describe_error(error)}; save it again, or use another copy") from error


def write_checkpoint(root: str | os.PathLike[str], state: Mapping[Any, Any], step: int) -> Path:
    """Write a new checkpoint under ``root``, which appears at once; keep the newest two.

    One process writes at a time (the run's lock sees to it).
    """
    root = Path(root)
    tree, tensors = encode(state)
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
        for left in (*root.glob(".writing-*"), *root.glob(".old-*")):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        serial = 1 + max((number for number, _ in _list_checkpoints(root)), default=0)
    final, aside = root / f"{serial:08d}-step-{step}", root / f".writing-{serial:08d}"
    with writing(final):
        try:
            aside.mkdir()
            _write_tensors(tensors, aside / TENSORS)
            (aside / STATE).write_text(_seal(tree, tensors, step=step), encoding="ascii")
            for path in (aside / TENSORS, aside / STATE, aside):
                sync_path(path)
            os.rename(aside, final)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        sync_path(root)
        _prune(root)
    return final


def read_newest(root: str | os.PathLike[str], most_bytes: int = 1 << 62) -> tuple[dict[Any, Any], int] | None:
    """Return state and step of the newest whole checkpoint; warn of damaged ones.

    A checkpoint whose tensors have more than ``most_bytes`` counts as damaged.
    """
    for _, folder in _list_checkpoints(Path(root)):
        if found := _read(folder, most_bytes):
            return found
    return None


def _read(folder: Path, most_bytes: int) -> tuple[dict[Any, Any], int] | None:
    try:
        content = _read_state(folder)
        if (size := (folder / TENSORS).stat().st_size) > most_bytes:
            raise ValueError(f"its tensors have {size:,} bytes, and there is memory for {most_bytes:,}")
        return _decode(content, _read_tensors(folder / TENSORS)), int(content["step"])
    except NewerFormat as error:
        raise NewerFormat(f"checkpoint {folder}: {error}") from None
    except DAMAGE as error:
        log.warning("checkpoint %s is not whole (%s); looking for the one before it", folder, _describe_error(error))
        return None


def _list_checkpoints(root: Path) -> list[tuple[int, Path]]:
    """Return serial numbers and folders, newest first."""
    found = [(match, path) for path in root.glob("*-step-*") if (match := FOLDER.fullmatch(path.name))]
    return sorted(((int(match[1]), path) for match, path in found), reverse=True)


def _prune(root: Path) -> None:
    """Delete all but the newest two that open."""
    sound = 0
    for _, folder in _list_checkpoints(root):
        sound += (opens := _is_whole(folder))
        if not opens or sound > KEEP:
            gone = folder.with_name(f".old-{folder.name}")
            os.rename(folder, gone)
            shutil.rmtree(gone, ignore_errors=True)


def _is_whole(folder: Path) -> bool:
    """Return whether a checkpoint is whole, as far as can be told without reading the tensors."""
    try:
        _read_state(folder)
        with safetensors.safe_open(folder / TENSORS, framework="pt"):
            return True
    except (NewerFormat, MemoryError):  # neither is a reason to delete it
        return True
    except DAMAGE:
        return False


def _describe_error(error: BaseException) -> str:
    return f"no {Path(error.filename).name}" if isinstance(error, FileNotFoundError) and error.filename else str(error)


def encode(state: Mapping[Any, Any]) -> tuple[Any, dict[str, Tensor]]:
    """Return a nested state as plain JSON values, and the tensors that they refer to by name."""
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
            dense = _make_dense(value)
            name = f"{len(tensors)}:{path}".encode("ascii", "backslashreplace").decode()
            tensors[name] = _flatten(dense)
            shape, stride = list(dense.shape), list(dense.stride())
            dtype = str(dense.dtype).removeprefix("torch.")
            seen[view] = {TAG: "tensor", "name": name, "dtype": dtype, "shape": shape, "stride": stride}
        return seen[view]

    return node(state, ""), _copy_shared(tensors)


def decode(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the state that :func:`encode` took apart, with its strides and shared tensors."""
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
            flat = stored if dtype in STORED_DTYPES else stored.clone().view(dtype)
            # Memory of torch's own, aligned as in the uninterrupted run: rounding depends on it.
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
    """Return the dimensions from the slowest to the fastest."""
    return sorted(range(value.dim()), key=value.stride().__getitem__, reverse=True)


def _make_dense(value: Tensor) -> Tensor:
    """Return the tensor on the CPU without gaps or overlaps, its memory format kept."""
    value = value.cpu()
    return value if value.permute(_order(value)).is_contiguous() else value.clone()


def _flatten(dense: Tensor) -> Tensor:
    """Return the same memory as a contiguous tensor of a dtype that safetensors stores."""
    flat = dense.as_strided((dense.numel(),), (1,))  # dimensions of size 1 can have any stride
    return (
        flat.view([dense.shape[dim] for dim in _order(dense)])
        if dense.dtype in STORED_DTYPES
        else flat.view(torch.uint8)
    )


def _copy_shared(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copy all but the first tensor of each storage: safetensors refuses tensors that overlap."""
    storages: set[int] = set()
    apart = {}
    for name, value in tensors.items():
        storage = value.untyped_storage().data_ptr()
        apart[name] = value.clone() if storage in storages else value
        storages.add(storage)
    return apart
