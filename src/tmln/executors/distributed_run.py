"""Execute one run after another, each on several processes (ranks) of a Lightning Fabric.

Rank 0 holds the lock, the log, the checkpoints and the display. It broadcasts a run once it holds
its lock; from then on all ranks execute the same steps. A failure on one rank ends the job, as the
others would wait for it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import torch

from tmln.distributed.process_group import Ranks, ranks_of
from tmln.executors.config import cores
from tmln.executors.interfaces import Outcome, RunRequest
from tmln.executors.run_job import SerialExecutor, run_job
from tmln.experiments.launch import Devices, end, launch_fabric
from tmln.experiments.memory_estimate import keep_memory
from tmln.experiments.run import Execution, NullRun, StepInfo
from tmln.signals import AT_ONCE, SIGNALS, Interrupted

PAUSE = 2.0  # seconds in which rank 0 reports an error that all ranks have


class DistributedExecutor(SerialExecutor):
    """Executes runs in this process, which is rank 0, and in the other ranks."""

    def __init__(self, fabric: Any) -> None:
        self.processes = int(getattr(fabric.strategy, "num_processes", 1))  # of this machine
        super().__init__(max(1, cores() // self.processes))
        self.fabric, self.ranks = fabric, ranks_of(None)

    def execute(self, request: RunRequest, on_step: Callable[[StepInfo], None], stop: Callable[[], bool]) -> Outcome:
        """Execute one run; one that fails or is stopped on any rank ends the job."""
        outcome = run_job(request, on_step, stop, self.fabric)
        if self.ranks.size > 1 and outcome.state == "stopped":
            raise Interrupted(outcome.error)
        if self.ranks.size > 1 and outcome.state in ("failed", "disk_full"):
            if "onnection" in outcome.error:  # another rank has ended: experiments/launch.py reports which one
                time.sleep(PAUSE)
            raise RuntimeError(
                f"{request.job.label}: {outcome.error}; the same command goes on from the last checkpoint"
            )
        return outcome

    def count_neighbours(self, runs: int) -> int:
        """Return the number of ranks on this machine."""
        return self.processes

    def dismiss(self) -> None:
        """Tell the other ranks that no run is left."""
        if self.ranks.size > 1:
            self.ranks.broadcast_object(lambda: None)


@contextmanager
def open_distributed(devices: Devices) -> Iterator[DistributedExecutor | None]:
    """Yield an executor on rank 0; on other ranks follow it to the end, then yield None."""
    fabric, children = launch_fabric(devices)
    if fabric.global_rank:
        follow(fabric)
        yield None
        return
    done = False
    try:
        executor = DistributedExecutor(fabric)
        yield executor
        executor.dismiss()
        done = True
    except Interrupted as stopped:
        # All ranks have stopped at the same step, and wait. Those started here are ended: on a busy
        # machine their own end takes longer than a stopped program may.
        if str(stopped) != AT_ONCE and not children:
            executor.dismiss()
            done = True
        raise
    finally:
        end(children, at_once=not done)
        if done and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def follow(fabric: Any) -> None:
    """Execute what rank 0 executes until it has no more runs; rank 0 handles signals."""
    stopping = threading.Event()
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        signal.signal(number, lambda *_: stopping.set())
    ranks = ranks_of(None)
    while (request := _receive(ranks)) is not None:
        torch.set_num_threads(request.threads)
        request.options.apply()
        keep_memory()
        options = replace(request.options, logger="none", keep=())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                Execution(NullRun(request.job.config), options, stop=stopping.is_set, fabric=fabric)()
            except Interrupted:
                pass
            except Exception as error:
                _give_up(ranks, error)
    torch.distributed.destroy_process_group()


def _receive(ranks: Ranks) -> RunRequest | None:
    try:
        return ranks.broadcast_object(lambda: None)
    except RuntimeError:  # rank 0 has ended, and has reported why
        os._exit(1)


def _give_up(ranks: Ranks, error: Exception) -> NoReturn:
    """End this rank; report the error unless it follows from that of another rank."""
    time.sleep(PAUSE)
    if not str(error).startswith("rank ") and "onnection" not in str(error):
        print(f"tmln: rank {ranks.rank}: {type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
    os._exit(1)
