"""Choose where runs are executed, how many at a time, and with how many threads each.

The last bits of a result depend on the number of threads, among which sums are split. So threads
follow from the network and the cores of the machine alone (or are given), never from what else is
to be done, and the number of runs at a time follows from them. A run has the same bits alone or
among a hundred, however often it was stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from tmln.suggest import did_you_mean

if TYPE_CHECKING:
    from tmln.executors.interfaces import Executor
    from tmln.experiments.config import RunConfig

EXECUTORS = ("local", "serial", "ray", "slurm")
# Multiply-adds of an image's forward pass that keep a thread busy. On two cores, two runs of one
# thread each did 1.65 times the work of one run of two threads at 9 million (the reduced ResNet18
# of width 8), 1.11 times at 55 million (width 20).
WORTH = 25e6
MOST = 8  # threads: a batch of small images does not feed more
SIDE = 32  # pixels of an image where the benchmark does not say


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class ExecutorConfig:
    """The options of all executors, as the command line declares and each executor reads them.

    Args:
        executor: ``local`` uses processes of this machine, and this process for a single run.
        workers: runs at a time.
        threads: of each run; a result's last bits depend on them.
        memory: of each run, also requested from Ray and SLURM. Batches are processed in pieces that
            fit, with the same result to rounding; by default the run's share of the free memory.
        address: of the Ray cluster.
        gpus: of each run on Ray or SLURM.
        collect: Ray's machines share no disk; run folders are sent back through Ray.
        fetch: each of Ray's machines downloads the data set if it lacks it.
        retries: how often a run whose worker is lost goes on from its checkpoint.
        slurm: settings of SLURM jobs, e.g. ``partition=gpu`` or ``time=120`` (minutes).
    """

    PANEL: ClassVar[str] = "Execution"

    executor: Annotated[str, typer.Option(metavar="NAME", help="local, serial, ray or slurm.")] = "local"
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Runs at a time; by default as many as cores allow.")
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Threads of each run; by default from its network."),
    ] = None
    memory: Annotated[
        str | None,
        typer.Option("--memory-limit", metavar="SIZE", help="Memory of each run, e.g. 4GB; splits batches."),
    ] = None
    address: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Ray cluster; a local one by default.")] = (
        None
    )
    gpus: Annotated[float, typer.Option(min=0, metavar="N", help="GPUs of each run on Ray or SLURM.")] = 0.0
    collect: Annotated[bool, typer.Option("--collect", help="Copy runs back through Ray (no shared disk).")] = False
    fetch: Annotated[bool, typer.Option("--fetch", help="Download data on each machine of Ray first.")] = False
    retries: Annotated[int, typer.Option(min=0, metavar="N", help="Restarts of a run whose worker is lost.")] = 2
    slurm: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Setting of SLURM jobs, e.g. partition=gpu.")
    ] = None

    @contextmanager
    def open_pool(self, jobs: int | None = None) -> Iterator[Executor]:
        """Open the workers for a number of jobs, and close them in the end.

        A single job is executed in this process, by the local executor.
        """
        pool = self._open(jobs)
        try:
            yield pool
        finally:
            pool.close()

    def _open(self, jobs: int | None) -> Executor:
        if self.executor not in EXECUTORS:
            raise ValueError(
                f"unknown executor {self.executor!r}{did_you_mean(self.executor, EXECUTORS)} ({', '.join(EXECUTORS)})"
            )
        if self.executor == "ray":
            from tmln.executors.ray import RayExecutor

            return RayExecutor(self, cores())
        for option, given in (("--collect", self.collect), ("--fetch", self.fetch), ("--address", self.address)):
            if given:
                raise ValueError(f"{option} is for machines of a Ray cluster; use --executor ray")
        if self.executor == "slurm":
            from tmln.executors.slurm import SlurmExecutor

            return SlurmExecutor(self, cores())
        if self.slurm:
            raise ValueError(f"--slurm {self.slurm[0]} is for jobs of a SLURM cluster; use --executor slurm")
        if self.executor == "serial" or jobs == 1:
            from tmln.executors.run_job import SerialExecutor

            return SerialExecutor(cores())
        from tmln.executors.processes import ProcessExecutor

        return ProcessExecutor(self.workers or _default_workers(), cores(), shared=self.workers is None)


def _default_workers() -> int:
    """Return one worker a core; on a GPU one, as its memory cannot be divided by itself."""
    from tmln.experiments.machine import run_device

    return cores() if run_device().type == "cpu" else 1


def threads_of(config: RunConfig, most: int) -> int:
    """Return the threads of a run, at most ``most``, by the multiply-adds of its network."""
    return max(1, min(most, MOST, int(work_of(config) / WORTH)))


def work_of(config: RunConfig) -> float:
    """Return the multiply-adds of the network's forward pass on one image, without reading data.

    Convolutions and linear layers are counted, on an image of the benchmark's ``size`` or of 32 by
    32 pixels; 0 for a network that does not take such an image.
    """
    return sum(works_of(config))


def works_of(config: RunConfig) -> tuple[float, float]:
    """Return the multiply-adds of a run's linear layers, and those of its convolutions."""
    from tmln.experiments.config import canonical

    full = config.resolved()
    side = full["benchmark_options"].get("size") or SIDE
    return work_on(full["model"], canonical(full["model_options"]), int(side))


@lru_cache(maxsize=256)
def work_on(model: str, options: str, side: int) -> tuple[float, float]:
    """Return the multiply-adds of linear layers, and of convolutions; ``options`` is JSON."""
    import json

    import torch
    from torch import nn

    from tmln.models import make_model
    from tmln.models.custom import check_allowed

    found = [0.0, 0.0]

    def count(module: nn.Module, given: object, output: torch.Tensor) -> None:
        assert isinstance(module.weight, torch.Tensor)
        found[not isinstance(module, nn.Linear)] += output.numel() * module.weight[0].numel()

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine threads wait for each other longer than they compute
    try:
        check_allowed(model, json.loads(options))  # to build a user's network is to run code
        with torch.random.fork_rng(devices=()), torch.no_grad():
            network = make_model(model, (3, side, side), 10, **json.loads(options)).eval()
            for module in network.modules():
                if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
                    module.register_forward_hook(count)
            network(torch.zeros(1, 3, side, side))
    except Exception:  # a user's network may be anything; its run reports what is wrong
        return 0.0, 0.0
    finally:
        torch.set_num_threads(threads)
    return found[0], found[1]
