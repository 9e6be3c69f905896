"""Execute runs as jobs of a SLURM cluster, through submitit (``--executor slurm``).

Runs are submitted as job arrays. The folder of runs must be on a disk that the command and all
nodes share; submitit keeps its files and the output of jobs in its subfolder ``.slurm``.
"""

from __future__ import annotations

import importlib
import math
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tmln.executors.interfaces import Outcome, RunRequest

if TYPE_CHECKING:
    from tmln.executors.config import ExecutorConfig
    from tmln.executors.interfaces import OnMessage

CLUSTER = "slurm"  # of submitit's executors
QUEUE = 1000  # jobs in the queue of SLURM at a time, unless --workers says how many
LOOK = 1.0  # seconds between two looks at the files of jobs
GRACE = 8.0  # seconds for runs to save after a signal


class SlurmExecutor:
    """Submits runs as job arrays, one for each number of threads, and polls their files."""

    shared = False

    def __init__(self, config: ExecutorConfig, cores: int) -> None:
        """Check the settings; ``cores`` limits the threads of a run."""
        try:
            self._submitit: Any = importlib.import_module("submitit")
        except ImportError as error:
            raise ImportError("the slurm executor needs submitit: pip install 'tmln[slurm]'") from error
        if CLUSTER == "slurm" and shutil.which("sbatch") is None:
            raise ValueError("the program sbatch was not found: give the command on a login node of a SLURM cluster")
        self.capacity, self.cores = config.workers or QUEUE, cores
        self._settings = _read_settings(config)
        self._submitted: list[tuple[str, RunRequest]] = []
        self._jobs: dict[str, Any] = {}
        self._started: set[str] = set()
        self._stopped_at = math.inf

    def submit(self, name: str, request: RunRequest) -> None:
        """Keep the run for the job array that the next :meth:`wait` submits."""
        self._submitted.append((name, request))

    def wait(self, seconds: float, on_message: OnMessage) -> None:
        """Submit what was kept, and report on jobs that have started or ended."""
        self._submit_arrays()
        time.sleep(max(seconds, LOOK))
        for name, job in list(self._jobs.items()):
            if name not in self._started and job.paths.stdout.exists():
                self._started.add(name)
                on_message(name, "started")
            outcome = self._read_outcome(job) if job.done() else None
            if outcome is None and self._stopped_at < math.inf:
                late = time.monotonic() - self._stopped_at > GRACE
                outcome = (
                    Outcome("stopped", error="its job was cancelled") if late or name not in self._started else None
                )
            if outcome is not None:
                del self._jobs[name]
                self._started.discard(name)
                on_message(name, outcome)

    def stop(self) -> None:
        """Cancel all jobs: SLURM sends SIGTERM to those that run, which save and end."""
        self._stopped_at = time.monotonic()
        for job in self._jobs.values():
            job.cancel(check=False)

    def close(self) -> None:
        """Cancel the jobs that are left."""
        for job in self._jobs.values():
            job.cancel(check=False)

    def count_neighbours(self, runs: int) -> int:
        """Return 0: every run measures the memory of its job."""
        return 0

    def _submit_arrays(self) -> None:
        groups: dict[tuple[str, int], list[tuple[str, RunRequest]]] = defaultdict(list)
        for name, request in self._submitted:
            groups[request.root, request.threads].append((name, request))
        self._submitted = []
        for (root, threads), group in groups.items():
            executor = self._submitit.AutoExecutor(folder=Path(root) / ".slurm", cluster=CLUSTER)
            try:
                executor.update_parameters(cpus_per_task=threads, **self._settings)
            except NameError as error:
                raise ValueError(f"--slurm: {' '.join(str(error).split())}") from None
            names, requests = zip(*group, strict=True)
            self._jobs.update(zip(names, executor.map_array(SlurmTask(), requests), strict=True))

    def _read_outcome(self, job: Any) -> Outcome:
        errors = self._submitit.core.utils
        try:
            outcome: Outcome = job.result()
            return outcome
        except errors.FailedJobError as error:  # before or after the run: tmln is not installed there, say
            return Outcome("failed", error=str(error).strip().splitlines()[-1])
        except errors.UncompletedJobError:
            return Outcome("lost", error=f"its job {job.job_id} ended without a result, see {job.paths.stderr}")


class SlurmTask:
    """The function of a job; submitit calls ``checkpoint`` before a time limit or a preemption."""

    def __call__(self, request: RunRequest) -> Outcome:
        """Execute a run."""
        from tmln.executors.run_job import run_job
        from tmln.signals import asked_to_stop

        with asked_to_stop() as stop:
            return run_job(request, lambda info: None, stop)

    def checkpoint(self, request: RunRequest) -> Any:
        """Return the job to be queued again: the run goes on from its checkpoint."""
        return importlib.import_module("submitit").helpers.DelayedSubmission(self, request)


def _read_settings(config: ExecutorConfig) -> dict[str, Any]:
    """Return the parameters of submitit: those of ``--slurm``, and what each run requests."""
    from tmln.experiments.memory_estimate import read_size
    from tmln.experiments.yaml_reader import read_value

    found: dict[str, Any] = {"name": "tmln"}
    for text in config.slurm or []:
        key, equals, value = text.partition("=")
        if not (key and equals and value):
            raise ValueError(f"--slurm takes KEY=VALUE, e.g. partition=gpu, not {text!r}")
        found[f"slurm_{key.strip()}"] = read_value(value)
    if config.workers:
        found["slurm_array_parallelism"] = config.workers
    if config.memory:
        found["mem_gb"] = read_size(config.memory) / 2**30
    if config.gpus:
        found["gpus_per_node"] = math.ceil(config.gpus)
    return found
