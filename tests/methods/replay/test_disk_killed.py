"""A memory on disk that is killed at any moment, or whose machine loses its power, goes on to the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from tmln.learner.checkpoint import load_file, save_file
from tmln.methods.replay import Reservoir

STEPS, EVERY = 9, 2
TOUCHES = ("pwrite", "ftruncate", "fsync", "replace")  # by which anything reaches the disk


def work(folder: Path, on_disk: bool = True) -> list[Any]:
    """Texts are added and drawn step by step, the state saved now and then; goes on where a state was saved."""
    place = folder / "memory" if on_disk else None
    memory, step, drawn = Reservoir(6, seed=4, pad={"ids": 0}, path=place), 0, []
    if (folder / "state").exists():
        saved = load_file(folder / "state")
        memory.load_state_dict(saved["memory"])
        step, drawn = saved["step"], saved["drawn"]
    while step < STEPS:
        numbers = torch.arange(7 * step, 7 * step + 7)
        memory.add({"ids": [torch.full((int(n) % 4,), int(n)) for n in numbers], "y": numbers})
        drawn = [*drawn, memory.sample(3)["y"].tolist()]
        step += 1
        if step % EVERY == 0:
            save_file(folder / "state", {"memory": memory.state_dict(), "step": step, "drawn": drawn})
    return [drawn, [str(batch) for batch in memory.batches(4)], memory.generator.get_state().sum().item()]


class Killed(BaseException):
    """In place of a signal, from which nothing can clean up either."""


class Disk:
    """Counts what touches the disk, ends at one of these calls, and can forget what was not brought to the disk."""

    def __init__(self, last: int) -> None:
        self.left, self.real = last, {name: getattr(os, name) for name in TOUCHES}
        self.undo: list[tuple[str, int | None, bytes | None]] = []  # file, place or None for all of it, what was there

    def pwrite(self, file: int, data: Any, place: int) -> int:
        name = os.readlink(f"/proc/self/fd/{file}")
        self.undo.append((name, place, os.pread(file, len(data), place).ljust(len(data), b"\0")))
        if self.ends():
            self.real["pwrite"](file, data[: len(data) // 2], place)
            raise Killed
        return int(self.real["pwrite"](file, data, place))

    def ftruncate(self, file: int, size: int) -> None:
        if self.ends():
            raise Killed
        self.real["ftruncate"](file, size)

    def fsync(self, file: int) -> None:
        if self.ends():
            raise Killed
        name = os.readlink(f"/proc/self/fd/{file}")
        whole = Path(name).is_dir()  # a folder: the names in it
        self.undo = [
            (other, place, was)
            for other, place, was in self.undo
            if not (other == name and place is not None)
            and not (whole and place is None and Path(other).parent == Path(name))
        ]
        self.real["fsync"](file)

    def replace(self, source: Any, target: Any) -> None:
        if self.ends():
            raise Killed
        was = Path(target).read_bytes() if Path(target).exists() else None
        self.undo.append((str(target), None, was))
        self.real["replace"](source, target)

    def ends(self) -> bool:
        self.left -= 1
        return self.left < 0

    def lose_power(self) -> None:
        """Undo what was not synced."""
        for name, place, was in reversed(self.undo):
            if place is None:
                Path(name).unlink(missing_ok=True)
                if was is not None:
                    Path(name).write_bytes(was)
            elif Path(name).exists():
                with open(name, "r+b") as file:
                    file.seek(place)
                    file.write(was or b"")

    @contextmanager
    def in_place(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patched:
            for name in TOUCHES:
                patched.setattr(os, name, getattr(self, name))
            yield


def calls_of(folder: Path) -> int:
    folder.mkdir()
    disk = Disk(10**9)
    with disk.in_place():
        work(folder)
    return 10**9 - disk.left


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="names of open files are read from /proc")


@needs_proc
@pytest.mark.parametrize("power", [False, True])
def test_killed_at_every_call_and_again_on_the_way_back(power: bool, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    expected = work(tmp_path / "whole")
    assert expected == work(tmp_path / "whole" / "..", on_disk=False)
    calls = calls_of(tmp_path / "counted")
    assert calls >= 40
    for last in range(calls):
        folder = tmp_path / str(last)
        folder.mkdir()
        for lives in (last, last // 2):  # and while it goes on from there
            disk = Disk(lives)
            with disk.in_place(), suppress(Killed):
                work(folder)
            if power:
                disk.lose_power()
        assert work(folder) == expected, last


@pytest.mark.usefixtures("warm")
@needs_proc
def test_killed_by_a_signal(tmp_path: Path) -> None:
    """The same by the system's own means, in processes of their own, forked by one that has imported torch."""
    (tmp_path / "whole").mkdir()
    moments = (7, 30, 55)
    code = f"""
import os, signal
from pathlib import Path
from tests.methods.replay.test_disk_killed import Disk, Killed, work
for last in {moments}:
    folder = Path({str(tmp_path)!r}, str(last))
    folder.mkdir()
    if not (child := os.fork()):
        try:
            with Disk(last).in_place():
                work(folder)
        except Killed:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
"""
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=True)
    expected = work(tmp_path / "whole")
    for last in moments:
        assert work(tmp_path / str(last)) == expected
