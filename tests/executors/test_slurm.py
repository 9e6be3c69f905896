"""The SLURM executor with submitit's local executor: real processes, without a cluster."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.experiments.killing import Notes, config, mortal, uninterrupted, worker_of
from tmln.executors import slurm
from tmln.executors.config import ExecutorConfig
from tmln.executors.execute import Event, Failure, execute
from tmln.executors.interfaces import RunRequest
from tmln.executors.plan import Job, plan
from tmln.executors.slurm import SlurmTask
from tmln.experiments.config import RunConfig
from tmln.experiments.launch import RunOptions
from tmln.experiments.store import Store
from tmln.signals import Interrupted

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("submitit")


@pytest.fixture(autouse=True)
def _local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "CLUSTER", "local")
    monkeypatch.setattr(slurm, "LOOK", 0.1)


def test_a_killed_job_a_failed_run_and_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")  # the network that kills its process is of these tests
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(Path(__file__).parents[2])])
    )
    store, killed = Store(tmp_path / "runs"), mortal(tmp_path / "after", at=15)
    broken = RunConfig(benchmark=f"folder:{tmp_path / 'nowhere'}", method="er")
    jobs = [Job(killed), *plan([config("er")], "final"), Job(broken)]
    notes = Notes()
    options = RunOptions("final", checkpoint_steps=10, checkpoint_seconds=1e9)
    failures = execute(store, jobs, options, ExecutorConfig("slurm", workers=2), on_event=notes)
    assert failures == [Failure(Job(broken), f"{tmp_path / 'nowhere'}: no such folder")]
    (again,) = [event for event in notes.events if event.kind == "retried"]
    assert again.job.config == killed
    resumed = (tmp_path / "after").stat().st_size
    result, er = store.open(killed).result, store.open(config("er")).result
    assert result is not None
    assert er is not None
    assert er.oracle == "final"  # the reference was there in time
    assert result.weights_sha256 == uninterrupted(tmp_path / "again", killed).weights_sha256
    assert 0 < resumed < (tmp_path / "after").stat().st_size - resumed  # not from the beginning


def test_a_signal_cancels_jobs_which_save(tmp_path: Path) -> None:
    long = config(epochs=100_000)
    run = Store(tmp_path).open(long)

    def on_event(event: Event) -> None:
        if event.kind == "started":
            while not run.log.exists():
                pass
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="stopped with 1 of 1 runs to go"):
        execute(Store(tmp_path), [Job(long)], RunOptions(), ExecutorConfig("slurm"), on_event=on_event)
    assert worker_of(run) is None
    assert list(run.checkpoints.glob("*-step-*"))


def test_settings_reach_submitit_and_mistakes_are_reported(tmp_path: Path) -> None:
    chosen = ExecutorConfig("slurm", workers=4, memory="2GiB", gpus=0.5, slurm=["partition=gpu", "time=90"])
    assert slurm._read_settings(chosen) == {
        "name": "tmln",
        "slurm_partition": "gpu",
        "slurm_time": 90,
        "slurm_array_parallelism": 4,
        "mem_gb": 2.0,
        "gpus_per_node": 1,
    }
    with pytest.raises(ValueError, match="--slurm takes KEY=VALUE"):
        slurm._read_settings(ExecutorConfig("slurm", slurm=["partition"]))
    with pytest.raises(ValueError, match="Unknown argument 'partitoin'"):
        execute(Store(tmp_path), [Job(config())], executor=ExecutorConfig("slurm", slurm=["partitoin=gpu"]))


def test_where_it_cannot_work_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "CLUSTER", "slurm")
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ValueError, match="sbatch was not found"), ExecutorConfig("slurm").open_pool():
        pass
    with pytest.raises(ValueError, match="use --executor slurm"), ExecutorConfig(slurm=["time=1"]).open_pool():
        pass


def test_a_job_at_its_time_limit_is_queued_again_as_it_was(tmp_path: Path) -> None:
    request = RunRequest(Job(config()), str(tmp_path), RunOptions())
    task: Callable[..., Any] = SlurmTask()
    again = SlurmTask().checkpoint(request)
    assert (type(again.function), again.args) == (type(task), (request,))
