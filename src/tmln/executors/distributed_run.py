"""One run after another, each by several processes: the first one leads, as if it were alone; the others follow.

The leader has the lock, the log, the checkpoints and the display. It tells the others of a run once it has its lock;
from there on all of them do the same, and meet at every step. What fails on one of them ends the job: those that are
left would wait for it.
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
from tmln.executors.run_job import perform
from tmln.executors.serial import SerialPool
from tmln.experiments.launch import Devices, end, launched
from tmln.experiments.null_run import Unwritten
from tmln.experiments.process_memory import keep_memory
from tmln.experiments.run import Execution, Moment
from tmln.signals import AT_ONCE, SIGNALS, Interrupted

PAUSE = 2.0  # seconds in which the leader tells of what both of them met


class TogetherPool(SerialPool):
    """The leader's: runs are done in this process, and in those that follow it."""

    def __init__(self, fabric: Any) -> None:
        self.processes = int(getattr(fabric.strategy, "num_processes", 1))  # of this machine
        super().__init__(max(1, cores() // self.processes))
        self.fabric, self.ranks = fabric, ranks_of(None)

    def perform(self, task: RunRequest, on_step: Callable[[Moment], None]) -> Outcome:
        """A run that fails, or that any of the ranks was asked to stop, ends the job, with its own words."""
        outcome = perform(task, on_step, self.asked, self.fabric)
        if self.ranks.size > 1 and outcome.state == "stopped":
            raise Interrupted(outcome.error)
        if self.ranks.size > 1 and outcome.state in ("failed", "unwritable"):
            if "onnection" in outcome.error:  # another rank has ended: experiments/launch.py reports which one
                time.sleep(PAUSE)
            raise RuntimeError(f"{task.job.label}: {outcome.error}; the same command goes on from the last checkpoint")
        return outcome

    def dismiss(self) -> None:
        """Nothing is left to be done."""
        if self.ranks.size > 1:
            self.ranks.broadcast_object(lambda: None)


@contextmanager
def together(devices: Devices) -> Iterator[TogetherPool | None]:
    """A pool over these devices; None in the processes that follow, which have done all when they get it."""
    fabric, children = launched(devices)
    if fabric.global_rank:
        follow(fabric)
        yield None
        return
    done = False
    try:
        pool = TogetherPool(fabric)
        yield pool
        pool.dismiss()
        done = True
    except Interrupted as stopped:
        # All of them have stopped at the same step, and wait. Those started here are ended: on a busy machine their own
        # end takes longer than a stopped program may.
        if str(stopped) != AT_ONCE and not children:
            pool.dismiss()
            done = True
        raise
    finally:
        end(children, at_once=not done)
        if done and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def follow(fabric: Any) -> None:
    """Do what the leader does, run after run, till there is no more. Signals are the leader's to obey."""
    asked = threading.Event()
    signal.set_wakeup_fd(-1)
    for number in SIGNALS:
        signal.signal(number, lambda *_: asked.set())
    ranks = ranks_of(None)
    while (task := _next(ranks)) is not None:
        torch.set_num_threads(task.threads)
        task.terms.apply()
        keep_memory()
        terms = replace(task.terms, logger="none", keep=())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                Execution(Unwritten(task.job.config), terms, stop=asked.is_set, fabric=fabric)()
            except Interrupted:
                pass
            except Exception as error:
                _give_up(ranks, error)
    torch.distributed.destroy_process_group()


def _next(ranks: Ranks) -> RunRequest | None:
    try:
        return ranks.broadcast_object(lambda: None)
    except RuntimeError:  # the leader has gone, and has said why
        os._exit(1)


def _give_up(ranks: Ranks, error: Exception) -> NoReturn:
    """Silent where the leader has met the same and ends; its end is this process's, see devices."""
    time.sleep(PAUSE)
    if not str(error).startswith("rank ") and "onnection" not in str(error):
        print(f"tmln: rank {ranks.rank}: {type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
    os._exit(1)
