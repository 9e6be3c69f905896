"""The memory of the process, and an estimate of what a run needs before it is trained.

Pieces are no part of a run's identity, as its device and threads are not: in pieces a run has the
same result to rounding. They are kept in its checkpoint, so that a resumed run continues to the
bit, whatever memory is free then.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import torch
from torch import nn

from tmln.curvature.kfac_layers import factor_elements
from tmln.distributed.data_parallel import has_batch_norm
from tmln.distributed.process_group import local_part
from tmln.distributed.sharding import is_sharded_model
from tmln.learner import Learner
from tmln.learner.forward import bytes_in_pass, bytes_per_sample
from tmln.methods import prepare_inputs
from tmln.optim.state import state_dtype
from tmln.streams import Stream
from tmln.streams.samples import Samples

VARIABLE = "TMLN_MEMORY"
COPIES = 13  # of the weights: themselves, gradients, five in the components, and six more while a checkpoint is written
GATHERED = 2  # copies of all weights where they lie in shards: a Fisher pass takes them whole, and so does a write
FACTOR_COPIES = 2  # of Kronecker factors, besides those a method holds: while they are measured anew
BACKWARD = 1.3  # times what a pass keeps: room for gradients of activations and for the kernels; a safe guess
LIBRARIES = 64 << 20  # bytes that a process grows by in its first steps and tests: kernels, their caches, threads
LEFT = 0.9  # of what is free: other programs live, too
GRAM_COPIES = 3  # of the features' Gram matrix in tests: the sum, a batch's, and one for its eigenvalues
BOUNDARY = 256  # samples that go through the model at a time at a task's end
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's numbers of what mallopt sets
KEPT = 2**30
CGROUPS, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
SLURM = "SLURM_MEM_PER_NODE"  # MiB that a job may hold on this node


def keep_memory() -> None:
    """Keep freed blocks with the process, as a training step requests the same large ones again.

    Otherwise the C library returns each to the system, and every step pays for fresh, zeroed pages.
    Without such a setting in the C library nothing happens.
    """
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(MMAP_THRESHOLD, KEPT)
        libc.mallopt(TRIM_THRESHOLD, KEPT)


def reset_peak() -> None:
    """Let :func:`peak_bytes` count anew from now on, where the system supports that (Linux)."""
    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def held_bytes() -> int:
    """Return what the process holds now; its peak where that is unknown."""
    return _status("VmRSS:") or peak_bytes()


def free_bytes() -> int:
    """Return the available bytes.

    The least that the machine, every cgroup above it, the SLURM job and ulimit -v leave.
    """
    found = [2**62]
    with suppress(OSError, ValueError, IndexError):
        meminfo = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(int(meminfo["MemAvailable"].split()[0]) * 1024)
    found += _cgroup_bytes(CGROUPS, MEMBERSHIP)
    with suppress(ValueError):
        if given := int(os.environ.get(SLURM, "0")):  # 0: all of the node
            found.append(given * 2**20 - held_bytes())
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        found.append(soft - (_status("VmSize:") or 0))
    return max(0, min(found))


def _cgroup_bytes(root: Path, membership: Path) -> Iterator[int]:
    """Yield what each memory cgroup of version 1 or 2 leaves, from the process's own to the root.

    A limit holds for all groups below it, and batch systems set it at any level. Cached files can
    be dropped.
    """
    names = ("memory.max", "memory.current", "inactive_file"), (
        "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
    )  # fmt: skip
    lines = []
    with suppress(OSError):
        lines = membership.read_text(encoding="utf-8", errors="replace").splitlines()
    groups = [(root, "", names[0])]  # a container sees its own group as the root
    for line in lines:
        _, controllers, path = (line + "::").split(":")[:3]
        if not controllers:
            groups.append((root, path, names[0]))
        elif "memory" in controllers.split(","):
            groups.append((root / "memory", path, names[1]))
    for base, path, (limit, usage, cached) in groups:
        place = base / path.strip("/") if ".." not in path else base
        for folder in (place, *place.parents):
            if not folder.is_relative_to(base):
                break
            with suppress(OSError, ValueError):  # "max" is no number: no limit
                left = int((folder / limit).read_text()) - int((folder / usage).read_text())
                yield left + _cached_bytes(folder / "memory.stat", cached)


def _cached_bytes(stat: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        for line in stat.read_text().splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1])
    return 0


def _status(field: str) -> int | None:
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return None


def peak_bytes() -> int:
    """Return the most memory held since :func:`reset_peak`; outside Linux, since the start."""
    if (peak := _status("VmHWM:")) is not None:
        return peak
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class DoesNotFit(ValueError):
    """The run would need more memory than there is."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a run takes.

    ``held`` is what the process holds now, data included; ``weights`` includes all that is kept of
    each.
    """

    held: int
    weights: int  # and Kronecker factors
    memory: int  # of replayed samples
    sample: int  # of one in a training pass
    rows: int  # samples of a step, replayed ones included
    pieces: int | None = None  # samples that go through the model at a time, if not all
    before: int = 0  # the most that was held so far: while the data were read, say

    @property
    def at_a_time(self) -> int:
        """Samples whose activations are held together."""
        return max(self.rows, BOUNDARY) if self.pieces is None else self.pieces

    @property
    def total(self) -> int:
        """Bytes of the whole process while it trains and tests, at most."""
        return self.held + self.weights + self.memory + self.at_a_time * self.sample

    @property
    def peak(self) -> int:
        """Bytes of the whole process since its beginning, at most."""
        return max(self.total, self.before)


def read_size(text: str) -> int:
    """Return the bytes of ``4GB``, ``500MiB`` or ``2.5g``."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?)b?\s*", text.lower())
    if found is None or found[2] not in UNITS or float(found[1]) <= 0:
        raise ValueError(f"memory is written as 4GB, 500MB or 2GiB, not {text!r}")
    return int(float(found[1]) * UNITS[found[2]])


def format_size(size: float) -> str:
    """Return ``1.5 GB`` or ``20 MB``, in units of 10^9 and 10^6 bytes."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def estimate_memory(learner: Learner, stream: Stream) -> MemoryEstimate:
    """Estimate the memory of a run; a training pass of two samples measures one of them.

    Where nothing is trained, it is a pass without gradients, of which tests take two at once.
    """
    few = stream[0].train.gather(torch.arange(min(2, len(stream[0].train))))[0]
    inputs = prepare_inputs(learner.model, few, learner.prepare)
    stored = few[0].numel() * few.element_size()
    weights = sum(local_part(p).numel() * p.element_size() for p in learner.model.parameters())
    whole = sum(p.numel() * p.element_size() for p in learner.model.parameters())
    gathered = GATHERED * whole if is_sharded_model(learner.model) else 0
    memory = learner.replay.memory
    drawn = 0 if memory is None else getattr(learner.replay.settings, "batch", None)
    rows = learner.batch_size + (learner.batch_size if drawn is None else drawn)
    rows = -(-rows // learner.trained.ranks.size)  # those that this process passes
    single = len(few) == 1 and has_batch_norm(learner.model)
    kept = 0 if single or not trains_weights(learner) else bytes_per_sample(learner.trained.masked, inputs)
    sample = int(BACKWARD * kept) + 3 * stored + 2 * prod(inputs.shape[1:]) * inputs.element_size()
    if not trains_weights(learner):
        sample = 2 * (bytes_in_pass(learner.trained.masked, inputs) + 3 * stored + inputs[0].nbytes)
    return MemoryEstimate(
        held_bytes() + LIBRARIES,
        COPIES * weights + gathered + factor_bytes(learner) + gram_bytes(learner.model),
        0 if memory is None else memory.capacity * stored,
        sample,
        rows,
        learner.trained.micro_batch,
        peak_bytes(),
    )


def trains_weights(learner: Learner) -> bool:
    """Return whether the step trains in the first task; ``frozen`` trains in none."""
    return learner.step.trains_at(learner.step.settings, 0)


def gram_bytes(model: nn.Module) -> int:
    """Return the bytes of the features' Gram matrix, from which tests compute the feature rank."""
    widths = [module.in_features for module in model.modules() if isinstance(module, nn.Linear)]
    return GRAM_COPIES * torch.float64.itemsize * widths[-1] ** 2 if widths else 0


def check_weights(model: Callable[[], nn.Module], copies: int = COPIES) -> None:
    """Raise :class:`DoesNotFit` if the weights of a model cannot fit, before it is built."""
    try:
        with torch.device("meta"):
            size = copies * sum(p.numel() * p.element_size() for p in model().parameters())
    except (RuntimeError, TypeError, NotImplementedError) as error:
        if "overflow" not in str(error):  # a model that can only be built with values; it is checked afterwards
            return
        size = 1 << 62
    if size > max(most := memory_limit(), LIBRARIES):  # a small model can be built, and is checked with all the rest
        raise DoesNotFit(
            f"the weights of the run would take {format_size(size)} of memory or more, {format_size(most)} are there; "
            "try a smaller model, or --memory-limit, if more may be used"
        )


def factor_bytes(learner: Learner) -> int:
    """Return the bytes of Kronecker factors, their inverses, and new ones being measured."""
    held = sum(term.times for term in learner.recipe.memory_terms() or [] if term.unit == "K")
    if not held:
        return 0
    size = max(state_dtype(p).itemsize for p in learner.model.parameters())
    return (held + FACTOR_COPIES) * size * factor_elements(learner.model)


def memory_limit() -> int:
    """Return the bytes that the process may hold.

    ``TMLN_MEMORY`` (``tmln run --memory-limit 4GB``), else what it holds and what is free.
    """
    given = os.environ.get(VARIABLE)
    return read_size(given) if given else int(LEFT * free_bytes()) + held_bytes()


def fit_pieces(need: MemoryEstimate, most: int) -> MemoryEstimate:
    """Return the estimate with pieces that fit into ``most`` bytes; unchanged if it fits."""
    if need.total <= most:
        return need
    room = (most - replace(need, pieces=0).total) // max(need.sample, 1)
    return replace(need, pieces=max(0, min(room, BOUNDARY)))


def fit_to_memory(learner: Learner, stream: Stream) -> MemoryEstimate:
    """Let the learner work in pieces that fit; raise with the setting to change if none do."""
    most, need = memory_limit(), estimate_memory(learner, stream)
    found = fit_pieces(need, most)
    if found.pieces == need.pieces:
        return need
    normed = has_batch_norm(learner.model) and trains_weights(learner)
    pieces = found.pieces or 0
    whole = pieces >= need.rows  # only a task's end, where nothing is normalised by the batch, is too large
    if pieces < 1 or (normed and not whole):
        raise DoesNotFit(_refusal(learner, stream[0].train, need, most, pieces, normed))
    learner.trained.limit_rows(pieces)
    return found


def _refusal(learner: Learner, samples: Samples, need: MemoryEstimate, most: int, pieces: int, normed: bool) -> str:
    head = (
        f"the run would take about {format_size(need.total)} of memory, {format_size(most)} are there: the process "
        f"with its data holds {format_size(need.held)}, weights and what is kept of each "
        f"{format_size(need.weights)}, {need.at_a_time} samples "
        f"of {'x'.join(map(str, samples.shape))} at a time take {format_size(need.at_a_time * need.sample)}"
    )
    remedies = []
    if normed and pieces >= 2:
        remedies.append(f"--set batch_size={max(1, pieces * learner.batch_size // need.rows)}")
    if len(samples.shape) == 3 and min(samples.shape[1:]) > 32:
        remedies.append(f"--set benchmark.size={max(32, min(samples.shape[1:]) // 2)}")
    remedies += ["a smaller model", "--memory-limit, if more may be used"]
    why = ", and batch norm, which normalises by the whole batch, forbids to pass it in pieces" if normed else ""
    return f"{head}{why}; try {', or '.join(remedies)}"
