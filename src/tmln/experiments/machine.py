"""What a run is executed on and by: device, kind of machine, and the commit of tmln's own source.

Runs compute on ``TMLN_DEVICE``, else the first GPU, else the CPU. What identifies one machine of
its kind is not recorded.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")
PATIENCE = 5.0  # seconds for git, which may be on a slow disk
VARIABLE = "TMLN_DEVICE"


def run_device() -> torch.device:
    """Return the device of this process: ``TMLN_DEVICE``, else the first GPU, else the CPU.

    It is no part of a run's identity, though rounding differs between devices.
    """
    name = os.environ.get(VARIABLE) or "auto"
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):  # what torch raises depends on how it was built
        raise ValueError(f"device {name!r} is not to be had here; use auto, cpu, or one that torch sees") from None
    return device


def device_name(device: torch.device) -> str:
    """Return ``cpu``, or the kind of the GPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def machine() -> dict[str, Any]:
    """Return the properties of the machine that times and last bits depend on."""
    return {
        "processor": _processor(),
        "instructions": instructions(),
        "cores": os.cpu_count(),
        "device": device_name(run_device()),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def instructions() -> str:
    """Return what decides the last bits: instruction set, a hash of all CPU flags, and limits set.

    Processors of one name may differ in this.
    """
    flags = next((line for line in _cpuinfo() if line.startswith(("flags", "Features"))), "")
    limits = [f"{name}={os.environ[name]}" for name in LIMITS if name in os.environ]
    return " ".join([torch.backends.cpu.get_cpu_capability(), hashlib.sha256(flags.encode()).hexdigest()[:8], *limits])


def _processor() -> str:
    named = next((line for line in _cpuinfo() if line.startswith("model name")), "")
    return named.partition(":")[2].strip() or platform.processor() or platform.machine()


def _cpuinfo() -> list[str]:
    with suppress(OSError):
        return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return []


@lru_cache(maxsize=1)
def commit() -> str:
    """Return the commit of tmln's own checkout, ``+changes`` if its files differ; empty if unknown.

    Cached for the process. An installed package inside another checkout, as in ``.venv``, has none.
    """
    return commit_of(Path(__file__).resolve().parents[1])


def commit_of(package: Path) -> str:
    """Return the commit of the checkout that tracks this package."""
    if not _git(package, "ls-files", "__init__.py"):
        return ""
    found = _git(package, "rev-parse", "HEAD")
    return f"{found}+changes" if found and _git(package, "status", "--porcelain", "--", ".") else found


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True, timeout=PATIENCE
        )
    except (OSError, subprocess.SubprocessError):  # no git, no checkout, or not ours to read
        return ""
    return done.stdout.strip()
