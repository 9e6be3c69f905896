"""The device that runs compute on: ``TMLN_DEVICE``, else the first GPU, else the CPU."""

from __future__ import annotations

import os

import torch

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
