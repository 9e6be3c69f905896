"""Peaks of memory are those since the last reset; the allocator's setting changes no result."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tmln.experiments.process_memory import (
    SLURM,
    _cgroup_bytes,
    free_bytes,
    held_bytes,
    keep_memory,
    peak_bytes,
    reset_peak,
)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget a peak")
def test_a_peak_is_that_since_the_reset() -> None:
    reset_peak()
    before = peak_bytes()
    block = torch.ones(50 * 2**20)  # 200 MiB
    held = peak_bytes()
    assert held - before > 190 * 2**20
    del block
    assert peak_bytes() > held - 2**20  # the system counts in batches
    reset_peak()
    assert peak_bytes() < held - 150 * 2**20


def test_memory_that_was_kept_is_given_back_at_a_reset() -> None:
    keep_memory()
    reset_peak()
    before = peak_bytes()
    assert before > 0
    block = torch.ones(25 * 2**20)
    del block
    reset_peak()
    assert peak_bytes() < before + 50 * 2**20


def write_group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / f"memory.{name}").write_text(f"{value}\n")


def test_limits_of_nested_groups_count_in_version_2(tmp_path: Path) -> None:
    """The limit is two levels above the process's own group, as systemd and containers set it."""
    membership = tmp_path / "cgroup"
    membership.write_text("0::/slice/scope/task\n")
    write_group(tmp_path / "slice/scope/task", max="max", current=10)
    write_group(tmp_path / "slice/scope", max=1000, current=600, stat="anon 5\ninactive_file 50")
    write_group(tmp_path / "slice", max=5000, current=600)
    assert sorted(_cgroup_bytes(tmp_path, membership)) == [450, 4400]


def test_limits_of_nested_groups_count_in_version_1(tmp_path: Path) -> None:
    """SLURM's: a job, a step and a task, of which the job has the limit."""
    membership = tmp_path / "cgroup"
    membership.write_text("9:cpuset:/\n4:memory,hugetlb:/slurm/uid_0/job_7/step_0/task_0\n1:name=systemd:/x\n")
    unlimited = 9223372036854771712
    write_group(tmp_path / "memory/slurm/uid_0/job_7/step_0/task_0", limit_in_bytes=unlimited, usage_in_bytes=5)
    write_group(tmp_path / "memory/slurm/uid_0/job_7", limit_in_bytes=900, usage_in_bytes=500)
    assert min(_cgroup_bytes(tmp_path, membership)) == 400


def test_groups_that_cannot_be_read_set_no_limit(tmp_path: Path) -> None:
    (tmp_path / "cgroup").write_bytes(b"nonsense\n0::/../..\n\xff")
    assert list(_cgroup_bytes(tmp_path, tmp_path / "cgroup")) == []
    assert list(_cgroup_bytes(tmp_path / "no", tmp_path / "nothing")) == []


def test_the_memory_of_a_slurm_job_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SLURM, str(held_bytes() // 2**20 + 100))
    assert free_bytes() <= 101 * 2**20
    monkeypatch.setenv(SLURM, "much")
    assert free_bytes() > 0
