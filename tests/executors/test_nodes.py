"""A real Ray cluster of three machines with their own addresses: one is killed, one cut off, the head lost."""

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

from tests.executors.nodes import Nodes, NoRight, clear_old, probe
from tests.experiments.killing import PATIENCE, config, uninterrupted, worker_of
from tmln.experiments.config import RunConfig
from tmln.experiments.store import Store
from tmln.models import MLP

pytestmark = pytest.mark.xdist_group("nodes")
SEEDS, EVERY = 4, 3  # runs, and steps between their checkpoints
AT_FIRST = 2 * EVERY + 2  # steps that a process may take before it is told to go on: no fault comes too late
ROOT = Path(__file__).parents[2]


class Held(MLP):
    """Notes every training step, and waits in one till it may go on."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(math.prod(shape), 16, classes)
        self.folder, self.passes = os.environ.get("TMLN_TEST_FOLDER"), 0

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.folder:
            self.passes += 1
            while self.passes > AT_FIRST and not Path(self.folder, "go").exists():
                time.sleep(0.05)
            with Path(self.folder, "notes").open("a") as file:
                file.write(".")
        return super().forward(x)


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")  # the network is of these tests, here as on the machines


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    pytest.importorskip("ray")
    if shutil.which("ip") is None:
        assert not os.environ.get("CI"), "no program `ip`: .ci/run installs iproute2"
        pytest.skip("no machines can be made without the program `ip`: apt-get install iproute2")
    try:
        probe()
    except NoRight as why:
        pytest.skip(f"no machines can be made here: {why}")
    clear_old()
    found = Nodes(3)
    found.env |= {
        "TMLN_ALLOW_CODE": "1",
        "TMLN_TEST_FOLDER": str(found.folder),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    try:
        found.build()
        found.start(1)
        found.start(2, 3)
        yield found
    finally:
        found.remove()


def wanted(seed: int) -> RunConfig:
    return config("er", epochs=6, seed=seed, model=f"{Held.__module__}:Held", lr=0.05)


def command(nodes: Nodes, out: Path, *words: str) -> list[str]:
    asked = ["run", "--benchmark", "split-digits", "--method", "er", "--seeds", str(SEEDS), "--epochs", "6"]
    asked += ["--set", "benchmark.per_class=24", "--set", "benchmark.per_class_test=10", "--set", "lr=0.05"]
    asked += [
        "--set",
        f"model={Held.__module__}:Held",
        "--int-reference",
        "none",
        "--logger",
        "none",
        "--runs",
        str(out),
    ]
    asked += ["--checkpoint-steps", str(EVERY), "--executor", "ray", "--address", nodes.address, "--retries", "50"]
    return nodes.within(1, sys.executable, "-m", "tmln", *asked, *words)


class Command:
    """It runs; what it says is in a file, and can be looked at meanwhile."""

    def __init__(self, words: list[str], env: dict[str, str], file: Path) -> None:
        self.file = file
        with file.open("w") as said:
            self.process = subprocess.Popen(words, env=env, stdout=said, stderr=subprocess.STDOUT)

    @property
    def said(self) -> str:
        return self.file.read_text()

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, self.said
            assert time.monotonic() < end, self.said
            time.sleep(0.1)

    def ends_well(self) -> None:
        assert self.process.wait(PATIENCE) == 0, self.said


def at_work(nodes: Nodes, store: Store, *numbers: int) -> bool:
    """Whether each of these machines has a run with a checkpoint."""
    found = [run for seed in range(SEEDS) if (run := store.find(wanted(seed))) is not None and not run.finished]
    busy = {worker_of(run) for run in found if any(run.checkpoints.glob("*-step-*"))}
    return all(busy & set(nodes.processes(number)) for number in numbers)


def same_bits(store: Store, root: Path) -> None:
    for seed in range(SEEDS):
        run = store.find(wanted(seed))
        assert run is not None
        assert run.result is not None
        assert run.result.weights_sha256 == uninterrupted(root, wanted(seed)).weights_sha256


def test_a_lost_head_ends_the_command_and_lost_machines_do_not(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, words = Store(tmp_path / "runs"), command(nodes, tmp_path / "runs")
    first = Command(words, nodes.env, tmp_path / "first")
    first.until(lambda: at_work(nodes, store, 1, 2, 3))
    for number in (1, 2, 3):
        nodes.kill(number)
    assert first.process.wait(PATIENCE) == 1, first.said
    end = time.monotonic() + PATIENCE
    while "tmln:" not in first.said and time.monotonic() < end:  # Ray may end the command, and its watcher says so then
        time.sleep(0.1)
    (line,) = [line for line in first.said.splitlines() if line.startswith("tmln:")]
    assert "the Ray cluster was lost" in line
    assert "run the same command again" in line

    nodes.start(1)
    nodes.start(2, 3)
    again = Command(words, nodes.env, tmp_path / "again")
    again.until(lambda: at_work(nodes, store, 1, 2, 3))
    nodes.kill(2)
    nodes.cut(3)
    (nodes.folder / "go").touch()
    again.ends_well()
    assert "its worker was lost" in again.said
    nodes.mend(3)
    nodes.kill(3)  # which Ray itself does there once it hears what it was taken for
    nodes.start(2, 3)
    passes = (nodes.folder / "notes").stat().st_size
    monkeypatch.setenv("TMLN_TEST_FOLDER", str(tmp_path))
    (tmp_path / "go").touch()
    same_bits(store, tmp_path / "local")
    least = (tmp_path / "notes").stat().st_size
    assert least <= passes < least + least // SEEDS, "none was computed twice to the end"


def test_runs_are_collected_where_no_disk_is_shared(nodes: Nodes, tmp_path: Path) -> None:
    (nodes.folder / "go").touch()
    work = Command(command(nodes, tmp_path / "runs", "--collect"), nodes.env, tmp_path / "said")
    work.ends_well()
    same_bits(Store(tmp_path / "runs"), tmp_path / "local")
    left = [path for path in nodes.folder.glob("scratch-*/*/*") if not path.name.startswith(".")]
    assert left == [], "what was collected is not kept twice"
    assert list(nodes.folder.glob("scratch-*/*")), "it was not done in the folder of the command"
