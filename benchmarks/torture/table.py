"""List the faults. A new one is a row: the runner, the tests and the documents find it here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.torture import clocks, crowd, damage, disk, fuzz, kills, meaning, ray_worker, soak, words, writes
from benchmarks.torture.scene import Scene
from benchmarks.torture.verdict import Verdict

Trial = Callable[[Scene, int, int], Verdict]


@dataclass(frozen=True)
class Fault:
    """``trial(scene, index, each)`` puts faults in and judges: ``full`` and ``lean`` are (trials, each)."""

    what: str
    trial: Trial
    full: tuple[int, int]
    lean: tuple[int, int]
    share: float = 1.0  # of the time, where that is short
    alone: bool = False  # no second trial beside it


FAULTS: dict[str, Fault] = {
    "kills": Fault("killed at any moment, every method", kills.trial, (120, 2), (4, 1), 3.0),
    "between": Fault("killed between two writes", writes.between, (200, 1), (8, 1), 2.0),
    "inside": Fault("killed inside a write", writes.inside, (150, 1), (10, 1), 2.0),
    "full": Fault("disk full at any write", disk.disk_full, (120, 1), (10, 1), 2.0),
    "read-only": Fault("disk read-only from any write on", disk.read_only, (120, 1), (5, 1), 2.0),
    "damage": Fault("a file damaged, then read", damage.reading, (42, 400), (42, 5), 2.0),
    "damage-go-on": Fault("a file damaged, the run gone on with", damage.going_on, (112, 1), (8, 1), 1.0),
    "crowd": Fault("8 processes on one run", crowd.trial, (20, 8), (1, 8), 1.0, alone=True),
    "clocks": Fault("clocks that jump", clocks.trial, (30, 1), (2, 1), 1.0),
    "ray": Fault("a worker of Ray lost", ray_worker.trial, (1, 10), (1, 1), 1.0, alone=True),
    "soak": Fault("a thousand tasks", soak.trial, (len(soak.METHODS), 1000), (2, 40), 3.0),
    "sets": Fault("fuzzed --set strings", words.strings, (20, 100), (2, 100), 1.0),
    "configurations": Fault("fuzzed configurations", words.configurations, (10, 100), (2, 50), 1.0),
    "mutated": Fault(
        "files mutated blindly, for every reader", fuzz.blind, (len(fuzz.NAMES), 2000), (len(fuzz.NAMES), 60)
    ),
    "meaning": Fault("sealed files changed by meaning", meaning.trial, (2 * meaning.MANY, 100), (meaning.MANY, 8), 2.0),
    "fuzz": Fault(
        "files made by a guided fuzzer, for every reader", fuzz.guided, (len(fuzz.NAMES), 50_000), (1, 300), 3.0
    ),
}
