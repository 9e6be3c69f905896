"""The process's memory: its peak since a moment of choice, and an allocator that keeps what it will need again."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from contextlib import suppress
from pathlib import Path

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's numbers of what mallopt sets
KEPT = 2**30


def keep_memory() -> None:
    """Freed blocks stay with the process: a training step asks for the same large ones again and again.

    Otherwise the C library gives each back to the system, and every step pays for fresh, zeroed pages. Where there is
    no such setting nothing happens.
    """
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(MMAP_THRESHOLD, KEPT)
        libc.mallopt(TRIM_THRESHOLD, KEPT)


def reset_peak() -> None:
    """From now on :func:`peak_bytes` counts anew, where the system can do that (Linux)."""
    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def held_bytes() -> int:
    """What the process holds now; where that is not to be had, the most it has held."""
    return _status("VmRSS:") or peak_bytes()


def free_bytes() -> int:
    """What could still be had: of the machine, or of the container this runs in. Without bound where nobody says."""
    found = [2**62]
    with suppress(OSError, ValueError, IndexError):
        meminfo = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(int(meminfo["MemAvailable"].split()[0]) * 1024)
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError):  # "max" is no number: no bound
        found.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        found.append(soft - (_status("VmSize:") or 0))
    return max(0, min(found))


def _status(field: str) -> int | None:
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return None


def peak_bytes() -> int:
    """The most memory the process held since :func:`reset_peak`; elsewhere than on Linux, since it began."""
    if (peak := _status("VmHWM:")) is not None:
        return peak
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
