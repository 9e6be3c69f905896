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


def peak_bytes() -> int:
    """The most memory the process held since :func:`reset_peak`; elsewhere than on Linux, since it began."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
