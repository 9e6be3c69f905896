"""A real Ray cluster of three machines with addresses of their own: one is killed, one cut off, the head restarted."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from torch import Tensor

from tests.fleet.nodes import Nodes, NoRight
from tests.lab.killing import PATIENCE, config, uninterrupted, worker_of
from tmln.lab.config import RunConfig
from tmln.lab.store import Store
from tmln.models import MLP

pytestmark = pytest.mark.xdist_group("nodes")
SEEDS, EVERY = 4, 3  # runs, and steps between their checkpoints
FAULTS = 3
ROOT = Path(__file__).parents[2]


class Slow(MLP):
    """A pause in every training step where it is asked for, and each of them noted."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(math.prod(shape), 16, classes)
        self.pause, self.notes = float(os.environ.get("TMLN_TEST_PAUSE", 0)), os.environ.get("TMLN_TEST_NOTES")

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.notes:
            time.sleep(self.pause)
            with Path(self.notes).open("a") as file:
                file.write(".")
        return super().forward(x)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    pytest.importorskip("ray")
    try:
        found = Nodes(3)
    except NoRight as why:
        if os.environ.get("CI") and shutil.which("ip") is None:
            pytest.fail(f"no machines could be made: {why}")
        pytest.skip(f"no machines could be made here: {why}")
    found.env |= {
        "TMLN_ALLOW_CODE": "1",
        "TMLN_TEST_PAUSE": "0.25",
        "TMLN_TEST_NOTES": str(found.folder / "notes"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    try:
        found.start(1)
        found.start(2, 3)
        yield found
    finally:
        found.remove()


def wanted(seed: int) -> RunConfig:
    return config("er", epochs=6, seed=seed, model=f"{Slow.__module__}:Slow", lr=0.05)


def command(nodes: Nodes, out: Path, *words: str) -> list[str]:
    asked = ["run", "--benchmark", "split-digits", "--method", "er", "--seeds", str(SEEDS), "--epochs", "6"]
    asked += ["--set", "benchmark.per_class=24", "--set", "benchmark.per_class_test=10", "--set", "lr=0.05"]
    asked += ["--set", f"model={Slow.__module__}:Slow", "--oracle", "none", "--logger", "none", "--out", str(out)]
    asked += ["--checkpoint-steps", str(EVERY), "--executor", "ray", "--address", nodes.address, "--retries", "50"]
    return nodes.within(1, sys.executable, "-m", "tmln", *asked, *words)


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)


def at_work(nodes: Nodes, store: Store, number: int) -> bool:
    """Whether a run that has a checkpoint is being worked on there."""
    found = [run for seed in range(SEEDS) if (run := store.find(wanted(seed))) is not None]
    there = set(nodes.processes(number))
    return any(worker_of(run) in there and any(run.checkpoints.glob("*")) for run in found if not run.finished)


def same_bits(store: Store, root: Path) -> None:
    for seed in range(SEEDS):
        run = store.find(wanted(seed))
        assert run is not None
        assert run.result is not None
        assert run.result.weights_sha256 == uninterrupted(root, wanted(seed)).weights_sha256


def test_a_machine_killed_one_cut_off_and_the_head_restarted(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "runs")
    process = subprocess.Popen(
        command(nodes, tmp_path / "runs"), env=nodes.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    until(lambda: at_work(nodes, store, 2), process)
    nodes.kill(2)
    until(lambda: at_work(nodes, store, 3), process)
    nodes.cut(3)
    time.sleep(8.0)  # longer than Ray waits, as it is set: its head takes the machine for lost
    nodes.mend(3)
    nodes.kill(3)  # which Ray itself does there once it hears what it was taken for
    nodes.start(2, 3)
    until(lambda: any(at_work(nodes, store, number) for number in (1, 2, 3)), process)
    for number in (1, 2, 3):
        nodes.kill(number)
    nodes.start(1)
    nodes.start(2, 3)
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    assert "the Ray cluster was lost, and is waited for" in said
    assert "its worker was lost" in said
    passes = (nodes.folder / "notes").stat().st_size
    monkeypatch.setenv("TMLN_TEST_NOTES", str(tmp_path / "notes"))
    same_bits(store, tmp_path / "local")
    least, again = (tmp_path / "notes").stat().st_size, FAULTS * 3 * (EVERY + 1)  # on each machine since its checkpoint
    assert again < least / SEEDS, "or a run more would not be noticed"
    assert least <= passes <= least + again, "none was computed twice to the end"


def test_runs_are_collected_where_no_disk_is_shared(nodes: Nodes, tmp_path: Path) -> None:
    done = subprocess.run(command(nodes, tmp_path / "runs", "--collect"), env=nodes.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    same_bits(Store(tmp_path / "runs"), tmp_path / "local")
    left = [path for path in nodes.folder.glob("scratch-*/*/*") if not path.name.startswith(".")]
    assert left == [], "what was collected is not kept twice"
    assert list(nodes.folder.glob("scratch-*/*")), "it was not done in the folder of the command"
