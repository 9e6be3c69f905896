"""Weights from a safetensors file: what fits is taken, and what was done is said."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor, nn

PICKLES = (".pth", ".pt", ".bin", ".ckpt", ".tar")
SHOWN = 3  # tensors that a line names
PREFIX = "network."  # of the tensors of a network within a model that prepares pictures


@dataclass(frozen=True)
class LoadedWeights:
    """What was taken from a file, by the names of the model's tensors.

    Attributes:
        taken: the model's tensors that were loaded, the head's included.
        backbone: how many tensors the backbone has.
        renamed: the prefix that was removed from the file's names, and the one that was added.
        summed: tensors whose three colours were summed for a model of gray pictures.
        missing: tensors of the backbone that the file lacks or has in another shape.
        left_out: tensors of the file that the model does not take, with their shapes.
        new_head: whether the head keeps its own weights.
    """

    taken: tuple[str, ...]
    backbone: int
    renamed: tuple[str, str]
    summed: tuple[str, ...]
    missing: tuple[str, ...]
    left_out: tuple[str, ...]
    new_head: bool

    def __str__(self) -> str:
        """Return one line: what was taken, renamed, summed and left out."""
        taken = self.backbone - len(self.missing)
        text = f"weights: {taken} of the backbone's {self.backbone} tensors"
        removed, added = self.renamed
        text += f", {removed!r} removed from their names" if removed else ""
        text += f", {added!r} added to their names" if added else ""
        if self.summed:
            text += f", {list_some(self.summed)} summed over three colours for gray pictures"
        text += "; the head is new" if self.new_head else "; the head's, too"
        text += f"; not in the file: {list_some(self.missing)}" if self.missing else ""
        return text + (f"; left out: {list_some(self.left_out)}" if self.left_out else "")


def load_weights(model: nn.Module, path: str | Path, head: str, partial: bool = False) -> LoadedWeights:
    """Load all of the backbone, and the head where it has the same size.

    Names may have a prefix more or less. A first layer of one channel takes the sum of three, which
    is what three equal channels give.

    Args:
        model: the network.
        path: a safetensors file.
        head: name of the layer that gives the output.
        partial: take what fits, also where that is not all of the backbone.

    Raises:
        ValueError: the file is none, or lacks a part of the backbone; nothing was loaded.
    """
    path = Path(path).expanduser()
    own = model.state_dict()
    found = read_tensors(path)
    renamed, by_name = match_names(own, found)
    fitting: dict[str, Tensor] = {}
    summed: list[str] = []
    for name, value in own.items():
        given = found.get(by_name.get(name, ""))
        if given is not None and is_gray_of(value, given):
            given = given.sum(1, keepdim=True)
            summed.append(name)
        if given is not None and given.shape == value.shape:
            fitting[name] = given.to(value.dtype)
    backbone = [name for name in own if not name.startswith(f"{head}.") and not is_counter(name)]
    missing = [name for name in backbone if name not in fitting]
    used = {by_name[name] for name in fitting}
    rest = sorted((name for name in found if name not in used), key=is_counter)
    left_out = [f"{name} {list(found[name].shape)}" for name in rest]
    new_head = any(name.startswith(f"{head}.") and name not in fitting for name in own)
    if len(missing) == len(backbone):
        raise ValueError(f"{path}: none of its {len(found)} tensors ({list_some(left_out)}) is one of the model's")
    if missing and not partial:
        lacks = [describe_missing(name, own, found, by_name) for name in missing]
        raise ValueError(
            f"{path} has {len(backbone) - len(missing)} of the backbone's {len(backbone)} tensors; it lacks "
            f"{list_some(lacks)}; left out: {list_some(left_out) or 'none'}; choose the model that it is of, or take "
            "what fits by --weights-partial"
        )
    if new_head:  # a weight without its bias, say
        fitting = {name: value for name, value in fitting.items() if not name.startswith(f"{head}.")}
    model.load_state_dict(fitting, strict=False)
    return LoadedWeights(
        tuple(fitting), len(backbone), renamed, tuple(summed), tuple(missing), tuple(left_out), new_head
    )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name."""
    if path.suffix in PICKLES and path.exists():
        raise ValueError(
            f"{path} may contain code and is not read; convert it if you trust it: {convert_command(path)}"
        )
    if path.suffix == ".tmln":
        file = path.with_suffix(".safetensors")
        raise ValueError(f"{path} is a state, which has more than weights: tmln export --state {path} -o {file}")
    try:
        return dict(safetensors.torch.load_file(path))
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: cannot be read as safetensors ({error})") from error


def convert_command(path: Path) -> str:
    """Return the command that converts a file of torch's to safetensors."""
    code = (
        "import sys, torch, safetensors.torch as s; w = torch.load(sys.argv[1], 'cpu', weights_only=True); "
        "w = w.get('state_dict', w.get('model', w)); "
        "s.save_file({k: v.clone().contiguous() for k, v in w.items()}, sys.argv[2])"
    )
    return f'python -c "{code}" {shlex.quote(str(path))} {shlex.quote(str(path.with_suffix(".safetensors")))}'


def match_names(own: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> tuple[tuple[str, str], dict[str, str]]:
    """Return the prefixes removed and added, and the file's name for each of the model's.

    Of all pairs of prefixes the one is taken by which most tensors have a partner of their shape.
    """
    names = {name.removeprefix(PREFIX): name for name in own}
    pairs = {("", "")}
    for first in list(names)[:SHOWN]:
        pairs |= {(key.removesuffix(first), "") for key in found if key.endswith(f".{first}")}
        pairs |= {("", first.removesuffix(key)) for key in found if first.endswith(f".{key}")}
    best: dict[str, str] = {}
    renamed, most = ("", ""), -1
    for removed, added in sorted(pairs, key=lambda pair: (len(pair[0]) + len(pair[1]), pair)):
        matched = {
            names[full]: key
            for key in found
            if key.startswith(removed) and (full := added + key.removeprefix(removed)) in names
        }
        count = sum(found[key].shape == own[name].shape for name, key in matched.items())
        if count > most:
            best, renamed, most = matched, (removed, added), count
    return renamed, best


def is_counter(name: str) -> bool:
    """Return whether a tensor counts batches, which nothing depends on."""
    return name.endswith("num_batches_tracked")


def is_gray_of(own: Tensor, given: Tensor) -> bool:
    """Return whether ``given`` is a convolution of three colours where ``own`` is of one."""
    is_convolution = own.dim() == given.dim() == 4 and own.shape[1] == 1 and given.shape[1] == 3
    return is_convolution and own.shape[2:] == given.shape[2:] and own.shape[0] == given.shape[0]


def describe_missing(
    name: str, own: Mapping[str, Tensor], found: Mapping[str, Tensor], by_name: Mapping[str, str]
) -> str:
    """Return a tensor's name, and both shapes where the file has it in another."""
    given = found.get(by_name.get(name, ""))
    return name if given is None else f"{name} {list(own[name].shape)} (it has {list(given.shape)})"


def list_some(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are.

    >>> list_some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
