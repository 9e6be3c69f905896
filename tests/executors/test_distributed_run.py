"""A run over two processes: killed, gone on with by the same command, under torchrun, and by one process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.experiments.killing import PATIENCE
from tests.warm_process import MORE
from tmln.executors.distributed_run import DistributedExecutor
from tmln.experiments.config import RunConfig
from tmln.experiments.result import Result
from tmln.experiments.run import Execution
from tmln.experiments.store import Store

ROOT = Path(__file__).parents[2]


def arguments(out: Path, after: Path, model: str = "MortalRank", *more: str) -> list[str]:
    sets = ["benchmark.per_class=24", "benchmark.per_class_test=10", "benchmark.tasks=2", "batch_size=16"]
    sets += [f"model=tests.executors.followers:{model}", f"model.after={after}", "model.at=8", *more]
    asked = [word for text in sets for word in ("--set", text)]
    kept = [
        "--int-reference",
        "none",
        "--logger",
        "none",
        "--checkpoint-steps",
        "3",
        "--threads",
        "1",
        "--runs",
        str(out),
    ]
    return [
        "--allow-code",
        "run",
        "--benchmark",
        "split-digits",
        "--epochs",
        "2",
        *asked,
        *kept,
        "--accelerator",
        "cpu",
    ]


def done(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "TMLN_DEVICE": "cpu"}
    environment[MORE] = "lightning_fabric.strategies,tests.executors.followers"
    words = [sys.executable, "-m", *command]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False)


def only(out: Path) -> tuple[RunConfig, Result | None]:
    (entry,) = Store(out).runs()
    assert entry.config is not None
    return RunConfig.of(entry.config), entry.result


@pytest.mark.usefixtures("warm")
def test_killed_gone_on_with_and_the_same_however_it_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after, out = tmp_path / "killed", tmp_path / "runs"
    killed = done("tmln", *arguments(out, after), "--devices", "2")
    assert killed.returncode == 1, killed.stderr
    assert killed.stderr.count("tmln:") == 1, killed.stderr
    assert "tmln: rank 1 was killed by SIGKILL; the same command goes on from the last checkpoint" in killed.stderr
    config, result = only(out)
    assert result is None
    shutil.copytree(out, tmp_path / "alone")

    again = done("tmln", *arguments(out, after), "--devices", "2")
    assert again.returncode == 0, again.stderr
    resumed = only(out)[1]
    assert resumed is not None
    log = Store(out).open(config).read_log()
    assert len({(line["step"], *sorted(line)) for line in log}) == len(log), "one writer"

    other = tmp_path / "torchrun"
    run = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tmln")
    whole = done(*run, *arguments(other, after))
    assert whole.returncode == 0, whole.stderr
    uninterrupted = only(other)[1]
    assert uninterrupted is not None
    assert uninterrupted.weights_sha256 == resumed.weights_sha256
    assert uninterrupted.machine["ranks"] == 2

    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")
    alone = Store(tmp_path / "alone").open(config)
    torch.set_num_threads(1)
    with alone.lock:
        by_one = Execution(alone)()
    assert by_one.accuracy == resumed.accuracy
    assert by_one.steps == resumed.steps
    assert by_one.dormant_units == pytest.approx(resumed.dormant_units)
    assert by_one.feature_rank == pytest.approx(resumed.feature_rank, rel=1e-4)


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("strategy", "sent", "words"),
    [
        ("fsdp", "1:SIGTERM", "stopped at step 8 of 32"),
        ("ddp", "01:SIGINT", "stopped at step 8 of 32"),
        ("ddp", "01:SIGINT,SIGINT", "stopped at once"),
    ],
)
def test_signals_stop_all_ranks_and_the_same_command_goes_on_to_the_bit(
    strategy: str, sent: str, words: str, tmp_path: Path
) -> None:
    """To one that follows; as by Ctrl-C in a terminal to all; and by two of them, which wait for nothing."""

    def run(out: str) -> subprocess.CompletedProcess[str]:
        command = arguments(tmp_path / out, tmp_path / "sent", "Signalled", f"model.sent={sent}")
        return done("tmln", *command, "--devices", "2", "--strategy", strategy)

    stopped = run("runs")
    assert stopped.returncode == 130, stopped.stderr
    assert stopped.stderr.count("tmln:") == 1, stopped.stderr
    assert f"tmln: {words}" in stopped.stderr
    assert only(tmp_path / "runs")[1] is None
    for out in ("runs", "whole"):  # gone on with; and from the beginning, as what was sent is not sent again
        again = run(out)
        assert again.returncode == 0, again.stderr
    resumed, whole = (only(tmp_path / out)[1] for out in ("runs", "whole"))
    assert resumed is not None
    assert whole is not None
    assert resumed.weights_sha256 == whole.weights_sha256


def test_on_one_device_there_is_nobody_to_follow() -> None:
    fabric = pytest.importorskip("lightning_fabric").Fabric(accelerator="cpu", devices=1)
    pool = DistributedExecutor(fabric)
    assert (pool.processes, pool.ranks.size) == (1, 1)
    pool.dismiss()
