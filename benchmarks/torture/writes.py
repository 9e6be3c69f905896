"""Kill inside writes: before every operation on a file, and after any number of bytes of any file."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from benchmarks.torture.operations import Operation, Place, full_at, kill_before, look
from benchmarks.torture.scene import METHODS, TRAINED, Scene, newest, work
from benchmarks.torture.verdict import Verdict, lost
from benchmarks.torture.warm import Ended, Tell, call

FIRST = "tmln"  # every operation of this one, then any of any
# What a run writes: the name and about how many bytes, each time.
FILES = (
    ("tensors.safetensors", 100_000),
    ("state.json", 2_800),
    ("result.json", 2_000),
    ("config.yaml", 400),
    ("log.jsonl", 60),
)
OF_STEPS = ("tensors.safetensors", "state.json")  # written every few steps: not by what takes none
TIMES = 3  # how often a file is written that is written more than once


def count(tell: Tell, root: Path, method: str) -> list[Operation]:
    found: list[Operation] = []
    look(root, found.append)
    work(lambda value: None, root, method)
    return found


def operations(scene: Scene, method: str) -> list[Operation]:
    """Return the operations of the whole run."""

    def make() -> list[Operation]:
        ended = call(count, scene.folder("operations", METHODS.index(method)) / "runs", method)
        if not isinstance(ended.value, list):
            raise RuntimeError(f"{method} fails undisturbed:\n{ended.said}")
        return ended.value

    found: list[Operation] = scene.once(f"operations {method}", make)
    return found


def killed_before(tell: Tell, root: Path, method: str, number: int) -> int:
    kill_before(root, number)
    return work(tell, root, method)


def between(scene: Scene, index: int, each: int) -> Verdict:
    """Kill before an operation: of the first method before every one, then anywhere."""
    chance, method, number = scene.chance("between", index), FIRST, index
    if index >= len(operations(scene, FIRST)):
        method = chance.choice(METHODS)
        number = chance.randrange(len(operations(scene, method)))
    root = scene.folder("between", index) / "runs"
    operation = operations(scene, method)[number]
    what = f"{method}, killed before operation {number} ({operation.kind} {operation.file})"
    return _go_on(scene, call(killed_before, root, method, number), signal.SIGKILL, root, method, what)


def place_of(index: int, scene: Scene) -> Place:
    """Return a place of each file in turn: its first byte, its last, and any between."""
    file, size = FILES[index % len(FILES)]
    chance = scene.chance("place", index)
    turn = index // len(FILES)
    often = file in (*OF_STEPS, "log.jsonl")
    share = {0: 0.0, 1: 0.999}.get(turn, chance.random())
    return Place(file, chance.randrange(TIMES) if often else 0, share, size)


def methods_with(place: Place) -> tuple[str, ...]:
    """Return the methods that write this file."""
    return TRAINED if place.file in OF_STEPS else METHODS


def cut_short(tell: Tell, root: Path, method: str, place: Place) -> int:
    full_at(root, place, True, lambda operation: None)
    return work(tell, root, method)


def inside(scene: Scene, index: int, each: int) -> Verdict:
    """Kill in the middle of a write, by the system, after a number of bytes."""
    chance, place = scene.chance("inside", index), place_of(index, scene)
    method, root = chance.choice(methods_with(place)), scene.folder("inside", index) / "runs"
    what = f"{method}, killed after {place.at} bytes of {place.file} ({place.time + 1}. time)"
    return _go_on(scene, call(cut_short, root, method, place), signal.SIGXFSZ, root, method, what)


def _go_on(scene: Scene, ended: Ended, number: int, root: Path, method: str, what: str) -> Verdict:
    if ended.code != -number:
        return lost(f"{what}: it was not, but ended with {ended.code} {ended.said[-300:]}")
    before = newest(root, method)
    verdict = Verdict(1) + scene.gone_on(call(work, root, method), root, method, before, what)
    shutil.rmtree(root.parent)
    return verdict
