"""A run on another machine: is the folder the command's, are the data there, and how its files come back."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tmln.data import data_root, get_data
from tmln.executors.bundle import furthest, names_in, pack, unpack
from tmln.executors.interfaces import Outcome, RunRequest
from tmln.executors.run_job import perform
from tmln.experiments.files import make_folder
from tmln.experiments.lock import RunLocked
from tmln.experiments.run import Moment
from tmln.experiments.store import Run, Store
from tmln.streams.benchmarks import find_benchmark

VARIABLE = "TMLN_SCRATCH"  # where a machine keeps runs that will be collected
SEEN = 10.0  # seconds till a file that was made elsewhere must be seen here
LEASE = 90.0  # seconds for which a collected run goes on without a word from its command: Ray gives up after about 65


@dataclass(frozen=True)
class Errand:
    """A task and what it needs away from home.

    ``token`` is a file in the folder of runs, by which a machine sees that its folder is the same one. With ``collect``
    there is none: ``sent`` has the files of runs by name, the run's own so far and its reference's result.
    """

    task: RunRequest
    data: str | None = None
    fetch: bool = False
    collect: bool = False
    token: str = ""
    sent: Mapping[str, bytes] = field(default_factory=dict)


def do(errand: Errand, on_step: Callable[[Moment], None], stop: Callable[[], bool]) -> tuple[Outcome, bytes]:
    """How it ended, and, if it is collected, the run's files; they are kept here unless the run is finished."""
    if errand.data is not None:
        os.environ.setdefault("TMLN_DATA", errand.data)
    try:
        provide(errand)
        if not errand.collect:
            see(errand)
            return perform(errand.task, on_step, stop), b""
        run = taken_in(errand)
    except RunLocked as error:
        return Outcome("locked", error=str(error)), b""
    except (OSError, ValueError, ImportError) as error:
        return Outcome("failed", error=f"on {socket.gethostname()}: {error}"), b""
    outcome = perform(replace(errand.task, root=str(run.path.parent)), on_step, stop)
    files = pack(run.path) if outcome.state in ("finished", "stopped", "failed") else b""
    if outcome.state == "finished":
        shutil.rmtree(run.path, ignore_errors=True)
    return outcome, files


def taken_in(errand: Errand) -> Run:
    """The run in this machine's own folder: as it was sent, unless what a loss left here goes further."""
    root = scratch(errand.task.root)
    run = Store(root).open(errand.task.job.config)
    for name, files in errand.sent.items():
        if name != run.name:
            unpack(files, root / name)
    own = errand.sent.get(run.name, b"")
    with run.lock:
        here = (path.relative_to(run.path).as_posix() for path in run.checkpoints.glob("*/*"))
        if furthest(names_in(own)) > furthest(here):
            shutil.rmtree(run.checkpoints, ignore_errors=True)
            unpack(own, run.path)
    return run


def see(errand: Errand) -> None:
    """An error unless the folder of runs here is the one of the command."""
    token, end = Path(errand.task.root) / errand.token, time.monotonic() + SEEN
    while errand.token and not token.exists():
        if time.monotonic() > end:
            raise ValueError(
                f"{errand.task.root} is not the command's folder: put --runs on a disk that all machines see under "
                "this path, or give --collect"
            )
        time.sleep(0.2)


def provide(errand: Errand) -> None:
    """Fetch the data set, verified by checksum, where it is not at hand and ``fetch`` says so; one at a time."""
    name = find_benchmark(errand.task.job.config.benchmark).data
    if name is None or not errand.fetch:
        return  # what is not at hand is the run's own error, which says how to get it
    make_folder(data_root())
    with (data_root() / f".getting-{name}").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        get_data(name)


def scratch(root: str) -> Path:
    """This machine's own folder for runs of that one: a run that comes back after a loss finds its checkpoint."""
    place = Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "tmln" / "collected")
    folder = place / hashlib.sha256(root.encode()).hexdigest()[:16]
    make_folder(folder)
    return folder


class Lease:
    """Whether the command was heard of lately: a machine that is cut off must not go on where another took over."""

    def __init__(self, seconds: float = LEASE, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.clock = seconds, clock
        self.heard = clock()

    def hear(self) -> None:
        """An answer came."""
        self.heard = self.clock()

    @property
    def over(self) -> bool:
        """Nothing for too long."""
        return self.clock() - self.heard > self.seconds
