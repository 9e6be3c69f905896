"""How a run is executed: options that change no result, and several devices by Lightning Fabric."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import socket
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn

import torch

from tmln.experiments.machine import VARIABLE as DEVICE
from tmln.experiments.memory_estimate import VARIABLE as MEMORY
from tmln.experiments.result import Oracle
from tmln.learner.trained import check_shardable
from tmln.methods.recipes import Recipe
from tmln.models.custom import VARIABLE as ALLOW_CODE
from tmln.models.custom import code_allowed
from tmln.suggest import did_you_mean

STRATEGIES = ("ddp", "fsdp")
ACCELERATORS = ("auto", "cpu", "cuda")
# A rank waits for the first one, which may wait for a run of another job; a dead one is noticed
# otherwise.
PATIENCE = timedelta(days=7)
LOOK = 0.2  # seconds between two looks at the other processes
GRACE = 10.0  # seconds for them to end by themselves
KEEPABLE = ("predictions",)


@dataclass(frozen=True)
class RunOptions:
    """Options of how one run is executed.

    ``threads`` follow the rule of :mod:`tmln.executors.config` unless given.
    """

    oracle: Oracle = "none"
    checkpoint_seconds: float = 300.0
    checkpoint_steps: int | None = None
    logger: str = "none"
    threads: int | None = None
    device: str = field(default_factory=lambda: os.environ.get(DEVICE) or "auto")
    memory: str = field(default_factory=lambda: os.environ.get(MEMORY) or "")  # what each run may hold
    allow_code: bool = field(default_factory=code_allowed)
    eval_every: int | None = None  # steps between tests within tasks; none but after each task
    keep: tuple[str, ...] = ()  # of KEEPABLE: what is kept besides the result
    accumulate: int = 1  # pieces in which a batch is passed

    def apply(self) -> None:
        """Set device, memory and permission to import code for this process."""
        os.environ[DEVICE] = self.device
        os.environ[MEMORY] = self.memory
        os.environ[ALLOW_CODE] = "1" if self.allow_code else "0"


@dataclass(frozen=True)
class Devices:
    """The devices of a run: ``count`` of this machine, a process each.

    Without a count they are those of ``torchrun``, if it started this process.
    """

    count: int | None = None
    strategy: str = "ddp"
    accelerator: str = "auto"

    @property
    def asked(self) -> bool:
        """Whether the run goes through Fabric."""
        return self.count is not None or _by_torchrun()

    def check(self) -> None:
        """Raise for unknown values, before a process is started."""
        for name, known in (("strategy", STRATEGIES), ("accelerator", ACCELERATORS)):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"unknown {name} {value!r}{did_you_mean(value, known)} ({', '.join(known)})")

    def check_method(self, recipe: Recipe) -> None:
        """Raise for a method that cannot be sharded, before a process is started."""
        if self.strategy == "fsdp" and self.asked and self.count != 1:
            recipe.check_code()
            check_shardable(recipe)

    def fabric(self) -> Any:
        """Return Fabric for these devices, not launched yet."""
        self.check()
        Fabric, strategies = _lightning()
        accelerator, count, machines = self._kind(), self.count, 1
        if _by_torchrun():
            local = int(os.environ["LOCAL_WORLD_SIZE"])
            machines = int(os.environ["WORLD_SIZE"]) // local
            if count not in (None, local):
                raise ValueError(f"torchrun started {local} processes here, but --devices is {count}: leave it out")
            count = local
        elif "SLURM_NTASKS" in os.environ:
            machines = int(os.environ.get("SLURM_NNODES", "1"))
        assert count is not None
        if count * machines == 1:
            return Fabric(accelerator=accelerator, devices=1)
        backend = "gloo" if accelerator == "cpu" else "nccl"
        if machines == 1 and "lo" in {name for _, name in socket.if_nameindex()}:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # a machine's own name need not lead to it
        try:
            given: dict[str, Any] = {"process_group_backend": backend, "timeout": PATIENCE}
            if self.strategy == "fsdp":  # Fabric's, which knows CPUs, too; the learner deals out its model itself
                strategy = strategies.ModelParallelStrategy(lambda model, mesh: model, **given)
            else:
                strategy = strategies.DDPStrategy(**given)
            return Fabric(accelerator=accelerator, devices=count, num_nodes=machines, strategy=strategy)
        except Exception as error:  # Fabric's own kinds, for devices that are not there
            raise ValueError(f"{count} devices of {accelerator!r} are not to be had here: {error}") from None

    def _kind(self) -> str:
        if self.accelerator != "auto":
            return self.accelerator
        named = os.environ.get(DEVICE) or "auto"
        if named not in ("auto", "cpu", "cuda"):
            raise ValueError(f"--device {named} is one device; with --devices write --accelerator cpu or cuda")
        return named if named != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def launch_fabric(devices: Devices) -> tuple[Any, list[subprocess.Popen[bytes]]]:
    """Launch Fabric; return it and the processes that this one started for it.

    They are watched from here: Fabric itself would end this process without a message.
    """
    fabric = devices.fabric()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fabric.launch()
    launcher = fabric.strategy.launcher
    children: list[subprocess.Popen[bytes]] = list(getattr(launcher, "procs", ()))
    if children:
        launcher.procs.clear()
        _watch(lambda: _lost(children))
    elif fabric.global_rank and not _by_torchrun() and "SLURM_NTASKS" not in os.environ:
        parent = os.getppid()
        _watch(lambda: os._exit(1) if os.getppid() != parent else None)
    return fabric, children


def end(children: list[subprocess.Popen[bytes]], at_once: bool) -> None:
    """Wait for the processes to end by themselves, or kill them ``at_once``."""
    ending = [*children]
    children.clear()  # from now on their end is no failure to report
    for child in ending:
        if not at_once:
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE)
        if child.poll() is None:
            child.kill()
        child.wait()


def _lightning() -> tuple[Any, Any]:
    """Import Fabric alone if possible: all of ``lightning`` takes seconds to import."""
    for package in ("lightning_fabric", "lightning.fabric"):
        with suppress(ImportError):
            found = importlib.import_module(package).Fabric
            logging.getLogger(package).setLevel(logging.WARNING)
            return found, importlib.import_module(f"{package}.strategies")
    raise ImportError("several devices need Lightning Fabric: pip install 'tmln[distributed]'")


def _by_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def _watch(look: Callable[[], None]) -> None:
    def again() -> None:
        while True:
            time.sleep(LOOK)
            look()

    threading.Thread(target=again, name="tmln-ranks", daemon=True).start()


def _lost(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """End all processes with the first that fails, as the others would wait for it."""
    for rank, child in enumerate(children, 1):
        code = child.poll()
        if code:
            leave(children, f"rank {rank} {_death(code)}; the same command goes on from the last checkpoint")


def leave(children: Sequence[subprocess.Popen[bytes]], why: str) -> NoReturn:
    """Print one line and end all processes; files on the disk are whole at any moment."""
    cursor = "\x1b[?25h" if os.isatty(2) else ""  # a bar may have hidden it
    os.write(2, f"{cursor}tmln: {why}\n".encode())
    for child in children:
        child.kill()
    os._exit(1)


def _death(code: int) -> str:
    return f"ended with exit code {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"
