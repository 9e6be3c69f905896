"""The end of a process that was started here."""

from __future__ import annotations

import subprocess


def end(process: subprocess.Popen[bytes], grace: float = 0.0) -> None:
    """By itself within so many seconds, or killed."""
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
