"""Runs on a real Ray of this machine: a worker killed in the middle, a run that fails, a cluster by its address."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.experiments.killing import PATIENCE, Notes, config, mortal, uninterrupted
from tmln.executors.config import ExecutorConfig
from tmln.executors.execute import Failure, execute
from tmln.executors.plan import Job, plan
from tmln.executors.ray import reach
from tmln.experiments.config import RunConfig
from tmln.experiments.launch import RunOptions
from tmln.experiments.store import Store

pytestmark = pytest.mark.xdist_group("ray")  # one Ray for all of them


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a cluster of two CPUs that this process is connected to; one at a time, however many processes test."""
    with (tmp_path_factory.getbasetemp().parent / "ray.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield from cluster()


def cluster() -> Iterator[str]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_DEDUP_LOGS_SKIP_REGEX"] = "A worker died"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray: Any = pytest.importorskip("ray")
    options = {"include_dashboard": False, "object_store_memory": 80 * 2**20, "log_to_driver": False}
    ray.init("local", num_cpus=2, logging_level=logging.ERROR, **options)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


@pytest.mark.usefixtures("address")
def test_a_killed_worker_a_failed_run_and_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")  # the network that kills its process is of these tests
    store, killed = Store(tmp_path / "runs"), mortal(tmp_path / "after", at=15)
    broken = RunConfig(benchmark=f"folder:{tmp_path / 'nowhere'}", method="er")
    jobs = [Job(killed), *plan([config("er")], "final"), Job(broken)]
    notes = Notes()
    options = RunOptions("final", checkpoint_steps=10, checkpoint_seconds=1e9)
    failures = execute(store, jobs, options, ExecutorConfig("ray"), on_event=notes)
    assert failures == [Failure(Job(broken), f"{tmp_path / 'nowhere'}: no such folder")]
    (again,) = [event for event in notes.events if event.kind == "retried"]
    assert again.job.config == killed
    assert "its worker was lost" in again.text
    resumed = (tmp_path / "after").stat().st_size
    result, er = store.open(killed).result, store.open(config("er")).result
    assert result is not None
    assert er is not None
    assert er.oracle == "final"  # the reference was there in time
    assert result.weights_sha256 == uninterrupted(tmp_path / "retried", killed).weights_sha256
    assert 0 < resumed < (tmp_path / "after").stat().st_size - resumed  # not from the beginning
    finished = [event.job for event in notes.events if event.kind == "finished"]
    assert len(finished) == len(jobs) - 1


def test_a_cluster_by_its_address_and_a_stop_that_saves(address: str, tmp_path: Path) -> None:
    few = ["--set", "benchmark.per_class=24", "--set", "benchmark.per_class_test=10", "--epochs", "100000"]
    words = ["sweep", "--benchmark", "split-digits", "--methods", "tmln", *few, "--int-reference", "none"]
    command = [sys.executable, "-m", "tmln", *words, "--executor", "ray", "--address", address, "--runs", "runs"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    end = time.monotonic() + PATIENCE
    while not list(tmp_path.glob("runs/*/log.jsonl")) and time.monotonic() < end and process.poll() is None:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, said
    assert said.strip().splitlines()[-1].startswith("tmln: stopped with 1 of 1 runs to go")
    assert list(tmp_path.glob("runs/*/checkpoint/*-step-*"))


@pytest.mark.usefixtures("address")
def test_what_no_machine_has_is_said() -> None:
    with (
        pytest.raises(ValueError, match="no machine of the Ray cluster has 1 CPU, 3 GPU"),
        ExecutorConfig("ray", gpus=3.0).open_pool(),
    ):
        pass


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


ALONE = """
import sys
import ray
from tmln.executors.config import ExecutorConfig

def init(*arguments, **options):
    raise SystemExit("Ray would try for more than a minute")

ray.init = init
try:
    with ExecutorConfig("ray", address=sys.argv[1]).open_pool():
        pass
except ValueError as error:
    print(error)
"""


def test_an_address_without_ray_is_one_line_before_ray_tries() -> None:
    """In a process of its own: this one may be connected already."""
    command = [sys.executable, "-c", ALONE, closed_port()]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not result.stderr
    assert re.fullmatch(
        r"no Ray cluster at '.*' \(.*refused\); start one with `ray start --head`, or leave .*\n", result.stdout
    )


def test_what_is_no_address_is_reported() -> None:
    for wrong in ("nonsense", "host:", ":6379", "ray://host", "host:port"):
        with pytest.raises(ValueError, match="a Ray address is HOST:PORT"):
            reach(wrong)
    with pytest.raises(ValueError, match=r"no Ray cluster at '127\.0\.0\.1:99999'"):
        reach("127.0.0.1:99999")


@pytest.mark.parametrize(
    ("executor", "option"), [(ExecutorConfig(collect=True), "--collect"), (ExecutorConfig(fetch=True), "--fetch")]
)
def test_options_of_ray_without_ray(executor: ExecutorConfig, option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} is for machines of a Ray cluster"), executor.open_pool():
        pass
