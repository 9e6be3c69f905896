"""Memory: counted before training, in pieces where it does not fit, refused where that cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.experiments.killing import config
from tmln.executors.estimate import time_steps
from tmln.experiments import memory_estimate as module
from tmln.experiments.build import build
from tmln.experiments.memory_estimate import (
    SLURM,
    VARIABLE,
    DoesNotFit,
    MemoryEstimate,
    _cgroup_bytes,
    estimate_memory,
    fit_pieces,
    fit_to_memory,
    free_bytes,
    held_bytes,
    keep_memory,
    memory_limit,
    peak_bytes,
    read_size,
    reset_peak,
)
from tmln.experiments.result import Result
from tmln.experiments.run import Execution
from tmln.experiments.store import Store
from tmln.signals import Interrupted


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


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4 * 10**9), ("2GiB", 2**31), ("500 mb", 5 * 10**8), ("1.5g", 15 * 10**8), ("1000", 1000), ("3k", 3000)],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1GB", "0", "4 potatoes", "1e9", "4GBB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="memory is written as 4GB"):
        read_size(text)


def test_by_hand() -> None:
    need = MemoryEstimate(held=100, weights=20, memory=30, sample=2, rows=300)
    assert need.total == 100 + 20 + 30 + 300 * 2
    assert fit_pieces(need, 750) == need
    assert fit_pieces(need, 749).pieces == 256  # as many as go at a task's end
    assert fit_pieces(need, 190).pieces == 20
    assert fit_pieces(need, 190).total == 190
    assert fit_pieces(need, 100).pieces == 0


def test_counted_by_hand() -> None:
    """mlp on 8x8 digits: a pass keeps what each linear layer and ReLU is given or gives."""
    stream, learner = build(config("er", batch_size=16))
    need = estimate_memory(learner, stream)
    weights = 4 * sum(p.numel() for p in learner.model.parameters())
    assert need.weights == module.COPIES * weights + 3 * 8 * 128**2  # and the Gram matrix of 128 features
    assert need.rows == 32
    assert need.memory == 500 * 64 * stream[0].train.gather(torch.arange(1))[0].element_size()
    assert need.sample > 4 * 64
    assert need.held > 10**7


def test_kronecker_factors_are_counted_by_hand() -> None:
    """a^2 + g^2 of every layer, four times: factors, inverses, and new ones of both as they are measured."""
    for method in ("ocar", "tmln-kfac"):
        stream, learner = build(config(method))
        layers = [m for m in learner.model.modules() if isinstance(m, nn.Linear)]
        factors = 4 * sum((m.in_features + 1) ** 2 + m.out_features**2 for m in layers)
        weights = 4 * sum(p.numel() for p in learner.model.parameters())
        assert estimate_memory(learner, stream).weights == module.COPIES * weights + 4 * factors + 3 * 8 * 128**2


def test_what_a_process_holds_and_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < held_bytes() < 2**45
    assert 0 < free_bytes() <= 2**62
    assert memory_limit() > held_bytes()
    monkeypatch.setenv(VARIABLE, "3GB")
    assert memory_limit() == 3 * 10**9


def in_memory_for(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if so many samples of a run had room."""
    true = module.estimate_memory

    def small(learner: Any, stream: Any) -> MemoryEstimate:
        need = true(learner, stream)
        return MemoryEstimate(0, 0, 0, 1000, need.rows, need.pieces)

    monkeypatch.setattr(module, "estimate_memory", small)
    monkeypatch.setenv(VARIABLE, str(1000 * rows))


@pytest.mark.parametrize("method", ["er", "tmln", "ewc++", "lwf"])
def test_in_pieces_a_run_is_the_same_to_rounding(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def done(root: Path) -> tuple[Result, list[torch.Tensor]]:
        run = Store(root).open(config(method))
        with run.lock:
            execution = Execution(run)
            result = execution()
        return result, [p.detach() for p in execution.learner.model.parameters()]

    whole, expected = done(tmp_path / "whole")
    in_memory_for(5, monkeypatch)
    pieces, found = done(tmp_path / "pieces")
    assert (whole.micro_batch, pieces.micro_batch) == (0, 5)
    assert pieces.accuracy == whole.accuracy
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    assert [path.name for path in (tmp_path / "whole").iterdir()] == [p.name for p in (tmp_path / "pieces").iterdir()]


def test_a_run_goes_on_in_the_pieces_it_began_with_to_the_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(root: Path, rows: int, until: int | None = None) -> Result:
        in_memory_for(rows, monkeypatch)
        run, seen = Store(root).open(config("er")), []
        with run.lock:
            try:
                return Execution(run, on_step=lambda moment: seen.append(moment.step), stop=lambda: seen[-1] == until)()
            finally:
                monkeypatch.undo()

    whole = work(tmp_path / "whole", 5)
    with pytest.raises(Interrupted):
        work(tmp_path / "stopped", 5, until=11)
    resumed = work(tmp_path / "stopped", 10**6)
    assert resumed.micro_batch == 5
    assert resumed.weights_sha256 == whole.weights_sha256
    with pytest.raises(Interrupted):
        work(tmp_path / "less", 10**6, until=11)
    assert work(tmp_path / "less", 7).micro_batch == 7


class Normed(nn.Sequential):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Linear(16, classes))


def test_batch_norm_is_refused_with_the_batch_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")
    normed = config("naive", model=f"{__name__}:Normed", batch_size=32)
    in_memory_for(20, monkeypatch)
    stream, learner = build(normed)
    with pytest.raises(DoesNotFit, match=r"would take about .*batch norm.*--set batch_size=20, or .*--memory"):
        fit_to_memory(learner, stream)
    with pytest.raises(DoesNotFit):
        time_steps(normed, stream)
    in_memory_for(32, monkeypatch)
    assert fit_to_memory(learner, stream).pieces == 32  # a step's batch fits; a task's end goes in pieces
    assert (learner.trained.micro_batch, learner.trained.rows_per_pass) == (None, 32)


def test_where_nothing_is_trained_batch_norm_is_passed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen backbone of 224 pixels was refused with 4 GB: its passes were counted with gradients, whole."""
    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")
    slda = config("slda", model=f"{__name__}:Normed", batch_size=32)
    stream, learner = build(slda)
    assert estimate_memory(learner, stream).sample == 2 * (
        2 * 4 * (64 + 64) + 3 * 64 + 4 * 64
    )  # flattening; uint8 images
    in_memory_for(20, monkeypatch)
    assert fit_to_memory(learner, stream).pieces == 20
    assert (learner.trained.micro_batch, learner.trained.rows_per_pass) == (None, 20)


@pytest.mark.parametrize("hidden", [5 * 10**7, 2**31 - 1, [2**31 - 1, 2**31 - 1]])
def test_a_model_that_is_too_large_is_refused_before_it_is_built(hidden: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "4GB")
    with pytest.raises(DoesNotFit, match=r"4\.0 GB are there; try a smaller model"):
        build(config("naive", model_options={"hidden": hidden}))


def test_where_not_even_one_sample_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory_for(0, monkeypatch)
    monkeypatch.setenv(VARIABLE, "1")
    stream, learner = build(config("naive"))
    with pytest.raises(DoesNotFit, match="try a smaller model, or --memory"):
        fit_to_memory(learner, stream)


ONE_TASK = """
import sys, torch
from tmln.experiments.memory_estimate import estimate_memory, held_bytes, peak_bytes
from tmln.learner import Learner
from tmln.models import make_model
from tmln.streams import stream_of_classes

x, y = torch.randint(0, 256, (512, 3, 32, 32), dtype=torch.uint8), torch.arange(512) % 4
stream = stream_of_classes((x, y), (x, y), 2)
learner = Learner(make_model("convnet", stream.shape, 4, width=32), sys.argv[1], batch_size=128)
need = estimate_memory(learner, stream)
learner.learn(stream[0].train, classes=stream[0].classes)
learner.evaluate(stream[0].test)
print(held_bytes(), need.total, need.peak, peak_bytes())
"""


@pytest.mark.slow
@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize("method", ["er", "tmln", "ocar"])
def test_no_more_is_held_than_was_said(method: str) -> None:
    # in a process of its own: one that ran other tests before has memory of theirs, in pieces
    done = subprocess.run([sys.executable, "-c", ONE_TASK, method], capture_output=True, text=True, check=True)
    held, total, peak, reached = map(int, done.stdout.split())
    assert held <= total <= peak
    assert peak >= reached
