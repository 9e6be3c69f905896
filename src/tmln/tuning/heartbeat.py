"""Signs of life of trials, in the database: a process of another machine cannot be asked whether it is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

BEAT = "beat"  # of a trial in the database: a number that grows while its process is at work
EVERY = 15.0  # seconds between two beats
SILENT = 120.0  # seconds without one till its trial is somebody else's


class Beating:
    """``with Beating(trials):`` each of them shows that it is being worked on."""

    def __init__(self, trials: Sequence[Any], every: float = EVERY) -> None:
        self.trials, self.every = trials, every
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat of trials", daemon=True)

    def __enter__(self) -> Beating:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _beat(self) -> None:
        number = 0
        while not self._end.wait(self.every):
            number += 1
            for trial in self.trials:
                with suppress(Exception):  # the database is away for a moment, or the trial has been put back
                    trial.set_user_attr(BEAT, number)


class Silences:
    """How long each has not been heard of, by the clock of whoever listens: clocks of machines differ."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._heard: dict[int, tuple[Any, float]] = {}

    def long(self, number: int, beat: Any) -> bool:
        """Whether this trial had the same beat for ``SILENT`` seconds of looking at it."""
        before, since = self._heard.get(number, (None, 0.0))
        if number not in self._heard or before != beat:
            self._heard[number] = (beat, self.clock())
            return False
        return self.clock() - since > SILENT
