"""Who does the runs, how many at one time, and with how many threads each.

The last bits of a run depend on its threads: sums are split among them. So threads are a matter of rule and never of
what else there is to do: they follow from the network and the machine's cores alone (or are given), and runs at one
time follow from them. A run has the same bits alone or among a hundred, however often it was stopped.
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

EXECUTORS = ("local", "serial", "ray")
# Multiply-adds of an image's forward pass that keep a thread busy. On two cores, two runs of one thread each did 1.65
# times the work of one run of two at 9 million (the reduced ResNet18 of width 8), 1.11 times at 55 million (width 20).
WORTH = 25e6
MOST = 8  # threads: a batch of small images does not feed more
SIDE = 32  # pixels of an image where the benchmark does not say


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class ExecutorConfig:
    """Choose where runs are done: every option of the command line, and what each executor reads as it is."""

    PANEL: ClassVar[str] = "Execution"

    executor: Annotated[str, typer.Option(metavar="NAME", help="local (processes), serial or ray.")] = "local"
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
    gpus: Annotated[float, typer.Option(min=0, metavar="N", help="GPUs of each run on Ray, e.g. 0.5.")] = 0.0
    collect: Annotated[bool, typer.Option("--collect", help="Copy runs back through Ray (no shared disk).")] = False
    fetch: Annotated[bool, typer.Option("--fetch", help="Download data on each machine of Ray first.")] = False
    retries: Annotated[int, typer.Option(min=0, metavar="N", help="Restarts of a run whose worker is lost.")] = 2

    @contextmanager
    def pool(self, jobs: int | None = None) -> Iterator[Executor]:
        """Open workers for so many jobs, and close them in the end; a job alone is done in this process."""
        found = self._pool(jobs)
        try:
            yield found
        finally:
            found.close()

    def _pool(self, jobs: int | None) -> Executor:
        if self.executor not in EXECUTORS:
            raise ValueError(
                f"unknown executor {self.executor!r}{did_you_mean(self.executor, EXECUTORS)} ({', '.join(EXECUTORS)})"
            )
        if self.executor == "ray":
            from tmln.executors.cluster import RayPool

            return RayPool(self, cores())
        if self.collect or self.fetch:
            option = "--collect" if self.collect else "--fetch"
            raise ValueError(f"{option} is for machines of a Ray cluster; use --executor ray")
        if self.address is not None:
            raise ValueError(
                f"the {self.executor} executor has no address ({self.address!r} was given); use --executor ray"
            )
        if self.executor == "serial" or jobs == 1:
            from tmln.executors.serial import SerialPool

            return SerialPool(cores())
        from tmln.executors.processes import LocalPool

        return LocalPool(self.workers or _as_many_as_fit(), cores(), shared=self.workers is None)


def _as_many_as_fit() -> int:
    """A core each; a GPU's memory is not shared out unless somebody says so."""
    from tmln.experiments.device import run_device

    return cores() if run_device().type == "cpu" else 1


def threads_of(config: RunConfig, most: int) -> int:
    """By the work of the run's network on one image, not more than ``most``: one thread for small networks."""
    return max(1, min(most, MOST, int(work_of(config) / WORTH)))


def work_of(config: RunConfig) -> float:
    """Multiply-adds of the network's forward pass on an image of the benchmark's ``size``, or of 32 by 32 pixels.

    Those of convolutions and linear layers; no data are read. 0 for a network that does not take such an image.
    """
    return sum(works_of(config))


def works_of(config: RunConfig) -> tuple[float, float]:
    """The same, of linear layers and of convolutions."""
    from tmln.experiments.config import canonical

    full = config.resolved()
    side = full["benchmark_options"].get("size") or SIDE
    return work_on(full["model"], canonical(full["model_options"]), int(side))


@lru_cache(maxsize=256)
def work_on(model: str, options: str, side: int) -> tuple[float, float]:
    """Multiply-adds of linear layers and of convolutions on an image of this side; ``options`` as JSON."""
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
    torch.set_num_threads(1)  # on a busy machine threads wait for each other longer than they work
    try:
        check_allowed(model, json.loads(options))  # to make a network of somebody's own is to run their code
        with torch.random.fork_rng(devices=()), torch.no_grad():
            network = make_model(model, (3, side, side), 10, **json.loads(options)).eval()
            for module in network.modules():
                if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
                    module.register_forward_hook(count)
            network(torch.zeros(1, 3, side, side))
    except Exception:  # a network of somebody's own may be anything; its run says what is wrong with it
        return 0.0, 0.0
    finally:
        torch.set_num_threads(threads)
    return found[0], found[1]
