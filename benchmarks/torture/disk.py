"""Make the disk full or read-only at any write of `tmln run`: one line, and it goes on when there is room."""

from __future__ import annotations

import errno
import itertools
import os
import re
import shutil
import sys
from pathlib import Path

from benchmarks.torture.operations import Operation, Place, full_at, refuse_from
from benchmarks.torture.reached import RECIPES, command_line
from benchmarks.torture.scene import EVERY, METHODS, SMALL, Scene, newest
from benchmarks.torture.verdict import Verdict, lost, unclear
from benchmarks.torture.warm import Ended, Tell, call
from benchmarks.torture.writes import methods_with, operations, place_of

HIDDEN = re.compile(r"\.(lock|trying-[0-9a-f]+)$")
REMEDIES = ("free", "room", "space", "writ", "--runs", "permission", "quota", "mount", "goes on")


def words(root: Path, method: str) -> list[str]:
    options = SMALL["benchmark_options"]
    assert isinstance(options, dict)
    few = [word for key, value in options.items() for word in ("--set", f"benchmark.{key}={value}")]
    run = ["run", "--benchmark", str(SMALL["benchmark"]), "--method", method, "--epochs", str(SMALL["epochs"]), *few]
    return [*run, "--int-reference", "none", "--checkpoint-steps", str(EVERY), "--logger", "none", "--runs", str(root)]


def typed(root: Path, method: str) -> None:
    sys.argv = ["tmln", *words(root, method)]
    command_line()


def full(tell: Tell, root: Path, method: str, place: Place) -> None:
    full_at(root, place, False, tell)
    typed(root, method)


def refused(tell: Tell, root: Path, method: str, number: int, error: int) -> None:
    refuse_from(root, number, error, tell)
    typed(root, method)


def again(tell: Tell, root: Path, method: str) -> None:
    typed(root, method)


def disk_full(scene: Scene, index: int, each: int) -> Verdict:
    """Turn about: no byte more in a file, and no file more."""
    root, method = scene.folder("full", index) / "runs", METHODS[index % len(METHODS)]
    if index % 2 == 0:
        place = place_of(index // 2, scene)
        method = methods_with(place)[index % len(methods_with(place))]
        what = f"{method}, disk full after {place.at} bytes of {place.file} ({place.time + 1}. time)"
        return _judge(scene, call(full, root, method, place), root, method, what, errno.EFBIG)
    number = scene.chance("full", index).randrange(len(operations(scene, method)))
    what = f"{method}, no room from operation {number} on"
    return _judge(scene, call(refused, root, method, number, errno.ENOSPC), root, method, what, errno.ENOSPC)


def read_only(scene: Scene, index: int, each: int) -> Verdict:
    """Refuse writes from any operation on; of the first method, from every one."""
    method = "tmln" if index < len(operations(scene, "tmln")) else METHODS[index % len(RECIPES)]
    number = index % len(operations(scene, method))
    root = scene.folder("read-only", index) / "runs"
    what = f"{method}, read-only from operation {number} on"
    return _judge(scene, call(refused, root, method, number, errno.EROFS), root, method, what, errno.EROFS)


def _judge(scene: Scene, ended: Ended, root: Path, method: str, what: str, error: int) -> Verdict:
    failed = ended.value
    if not isinstance(failed, Operation):  # such as a room that was wanted only after all was done
        return Verdict() if ended.code == 0 else lost(f"{what}: nothing was refused, and it ended with {ended.code}")
    what = f"{what} ({failed.kind} {failed.file})"
    before, said = newest(root, method), unclear_error(ended, failed, error)
    verdict = Verdict(1) + (unclear(f"{what}: {said}") if said else Verdict())
    verdict += scene.gone_on(call(again, root, method), root, method, before, what)
    shutil.rmtree(root.parent, ignore_errors=True)
    return verdict


def unclear_error(ended: Ended, failed: Operation, error: int) -> str:
    """What is wrong with what `tmln` said when a write failed; nothing if it named the file and a remedy in one line.

    A run that finished all the same, because what failed was of no importance, need not say anything.
    """
    lines = [line for line in ended.said.splitlines() if line.startswith("tmln: ")]
    if "Traceback" in ended.said:
        return f"a traceback ({ended.said.strip().splitlines()[-1]})"
    if ended.code == 0:
        return ""
    if ended.code != 2 or len(lines) != 1:
        return f"exit code {ended.code}, {len(lines)} lines: {ended.said.strip()[-200:]}"
    places = {failed.file, Path(failed.path).name, *(part for part in Path(failed.path).parts if part == "checkpoint")}
    # of a lock, and of what is tried before runs begin, the folder that a user knows
    at = [Path(failed.path), *Path(failed.path).parents]
    places |= {above.name for inner, above in itertools.pairwise(at) if HIDDEN.match(inner.name)}
    places |= {re.sub(r"^\.making-(.*)-[0-9a-f]{8}$", r"\1", place) for place in places}  # as it was to be called
    rest = re.sub(r"\[Errno \d+\]|" + re.escape(os.strerror(error)), "", lines[0])
    if not any(place in rest for place in places):
        return f"it does not name {failed.file}: {lines[0][-250:]}"
    rest = re.sub(r"['\"/][^'\"]*['\"]|\S*/\S*", "", rest)  # what a path is called is no remedy
    if not any(remedy in rest.lower() for remedy in REMEDIES):
        return f"it names no remedy: {lines[0][-250:]}"
    return ""
