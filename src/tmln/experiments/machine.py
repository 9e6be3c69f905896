"""The kind of machine that a measurement is of; what identifies one of its kind is not recorded."""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from tmln.experiments.device import device_name, run_device

LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")


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
