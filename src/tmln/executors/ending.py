"""The end of a process that was started here."""

from __future__ import annotations

import subprocess
from typing import Protocol


class Process(Protocol):
    """What is asked of one, whoever its parent is."""

    @property
    def pid(self) -> int:
        """Its number."""

    def wait(self, seconds: float | None = None, /) -> int:
        """Its exit code; ``TimeoutExpired`` if it goes on for longer."""

    def terminate(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL."""


def end(process: Process, grace: float = 0.0) -> None:
    """By itself within so many seconds, or killed."""
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
