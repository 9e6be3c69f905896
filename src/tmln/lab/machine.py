"""What kind of machine a measurement is of, not which one."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from tmln.lab.device import device_name, run_device


def machine() -> dict[str, Any]:
    """What a time was measured on, for those who compare it."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": device_name(run_device()),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
