"""The process's memory: its peak, what it holds, and what is available to it."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

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
