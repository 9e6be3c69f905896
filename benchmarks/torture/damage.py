"""Damage every region of every file of a run: the same is read, or it is reported, or the run is unfinished.

A damaged file that reads as something else without a word is what must not be.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.torture.kills import killed_at
from benchmarks.torture.reached import (
    Learner,
    Store,
    canonical,
    encode,
    load_file,
    make_model,
    make_stream,
    read_newest,
)
from benchmarks.torture.scene import Scene, config_of, work
from benchmarks.torture.verdict import Verdict, different, lost, unclear
from benchmarks.torture.warm import Tell, call

METHOD, AT = "tmln", 13  # killed at this step: checkpoints of steps 5 and 10, a log of one task and more
Kind = Callable[[bytes, int, int, random.Random], bytes]


def _flip(data: bytes, start: int, stop: int, chance: random.Random) -> bytes:
    at = chance.randrange(start, stop)
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


KINDS: dict[str, Kind] = {
    "a bit flipped": _flip,
    "zeros": lambda data, start, stop, chance: data[:start] + bytes(stop - start) + data[stop:],
    "noise": lambda data, start, stop, chance: data[:start] + chance.randbytes(stop - start) + data[stop:],
    "another digit": lambda data, start, stop, chance: _digit(data, start, chance),
    "cut off": lambda data, start, stop, chance: data[:start],
    "a piece gone": lambda data, start, stop, chance: data[:start] + data[stop:],
    "a piece twice": lambda data, start, stop, chance: data[:stop] + data[start:],
}


def _digit(data: bytes, start: int, chance: random.Random) -> bytes:
    """The next digit from there on is another: what reads well and is wrong."""
    for at in [*range(start, len(data)), *range(start)]:
        if data[at : at + 1].isdigit():
            return data[:at] + str((int(data[at : at + 1]) + chance.randint(1, 9)) % 10).encode() + data[at + 1 :]
    return data


# -- what is read of each file, and whether it may be believed ---------------------------------------------------------


class Heard(logging.Handler):
    """What was said meanwhile."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@contextmanager
def listening() -> Iterator[Heard]:
    heard, log = Heard(), logging.getLogger("tmln")
    log.addHandler(heard)
    try:
        yield heard
    finally:
        log.removeHandler(heard)


def _digest(state: Any) -> str:
    tree, tensors = encode(state)
    found = hashlib.sha256(repr(tree).encode())
    for name in sorted(tensors):
        found.update(tensors[name].reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _checkpoints(folder: Path) -> Any:
    """Return the step and a digest of the newest whole checkpoint, None if there is none."""
    found = read_newest(folder.parent)
    return None if found is None else (found[1], _digest(found[0]))


def _listed(file: Path) -> Any:
    """Return result or configuration as a listing shows them; None if it reports why the run is corrupt."""
    (entry,) = [entry for entry in Store(file.parents[1]).runs() if entry.path == file.parent]
    if entry.state == "corrupt":
        return None if entry.reason else "corrupt, without a reason"
    # 1 for 1.0 is the same configuration, and has the same name
    return entry.state, canonical(entry.config), repr(entry.result)


def _log(file: Path) -> Any:
    run = Store(file.parents[1]).find(config_of(METHOD))
    return None if run is None else repr(run.read_log())


# name -> (which run of the two it is of, where it is in its folder, how it is read)
FILES: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    "checkpoint": ("killed", "checkpoint/*-step-10/tensors.safetensors", lambda path: _checkpoints(path.parent)),
    "checkpoint's state": ("killed", "checkpoint/*-step-10/state.json", lambda path: _checkpoints(path.parent)),
    "saved learner": ("finished", "learner.tmln", lambda path: _digest(load_file(path))),
    "result": ("finished", "result.json", _listed),
    "configuration": ("killed", "config.yaml", _listed),
    "log": ("finished", "log.jsonl", _log),
}


def judge(read: Callable[[Path], Any], file: Path, data: bytes, right: Any, earlier: Any, what: str) -> Verdict:
    """Judge a reading: ``right`` is that of the sound file, ``earlier`` is allowed with a warning."""
    file.write_bytes(data)
    with listening() as heard:
        try:
            found = read(file)
        except (ValueError, OSError) as error:
            clear = "\n" not in str(error) and str(error)
            return Verdict() if clear else unclear(f"{what}: {type(error).__name__} {str(error)[:200]}")
        except Exception as error:
            return unclear(f"{what}: {type(error).__name__} {str(error)[:200]}")
    if found == right or (found == earlier and (heard.said or found is None)):
        return Verdict()
    if heard.said and isinstance(found, str) and read is _log:  # the lines that are sound, and a word on the others
        return Verdict()
    return different(f"{what}: it is read as something else")


def regions(size: int, count: int) -> list[tuple[int, int]]:
    """The whole file in this many pieces, fewer if it has fewer bytes."""
    edges = sorted({size * part // count for part in range(count + 1)})
    return list(itertools.pairwise(edges))


# -- the trials --------------------------------------------------------------------------------------------------------


def prepared(scene: Scene) -> Path:
    """Prepare a killed run, and a finished one with a saved learner in its folder."""

    def make() -> Path:
        root = scene.folder("damage", 0)
        ended = [call(killed_at, root / "killed", METHOD, AT), call(work, root / "finished", METHOD)]
        ended.append(call(saved, root / "finished"))
        if [one.code for one in ended] != [-9, 0, 0]:
            raise RuntimeError(f"there is nothing to damage: {ended}")
        return root

    root: Path = scene.once("damage", make)
    return root


def saved(tell: Tell, root: Path) -> None:
    stream = make_stream("split-digits", per_class=24, per_class_test=10)
    learner = Learner(make_model("mlp", stream.shape, stream.classes), METHOD, prepare=stream.prepare)
    learner.learn(stream[0].train, epochs=1)
    (folder,) = [path for path in root.iterdir() if path.is_dir()]
    learner.save(folder / "learner.tmln")


def many(tell: Tell, root: Path, name: str, kind: str, count: int, seed: str) -> Verdict:
    """Damage every region of this file in this way, in a copy of its run."""
    _, pattern, read = FILES[name]
    (file,) = root.glob(f"*/{pattern}")
    data, right, chance = file.read_bytes(), read(file), random.Random(seed)
    file.unlink()
    earlier = None
    if name.startswith("checkpoint"):
        shutil.move(file.parent, root.parent / "aside")
        earlier = read(file)
        shutil.move(root.parent / "aside", file.parent)
    found = Verdict()
    for start, stop in regions(len(data), count):
        bad = KINDS[kind](data, start, stop, chance)
        if bad != data:
            found += Verdict(1) + judge(read, file, bad, right, earlier, f"{name}, {kind} at {start} to {stop}")
    return found


def reading(scene: Scene, index: int, each: int) -> Verdict:
    """Damage one file in one way, each in turn, and read it."""
    name, kind = list(FILES)[index % len(FILES)], list(KINDS)[index // len(FILES) % len(KINDS)]
    root = scene.folder("reading", index)
    shutil.copytree(prepared(scene) / FILES[name][0], root / "runs")
    ended = call(many, root / "runs", name, kind, each, f"{scene.seed} {index}")
    shutil.rmtree(root)
    return (
        ended.value if isinstance(ended.value, Verdict) else lost(f"{name}, {kind}: {ended.code} {ended.said[-500:]}")
    )


def told(tell: Tell, root: Path) -> tuple[int, list[str]]:
    with listening() as heard:
        return work(lambda value: None, root, METHOD), heard.said


def going_on(scene: Scene, index: int, each: int) -> Verdict:
    """Damage a killed run, then continue it: the result is the same, unless damage is reported."""
    chance, root = scene.chance("going on", index), scene.folder("going-on", index)
    shutil.copytree(prepared(scene) / "killed", root / "runs")
    patterns = (
        "checkpoint/*-step-10/tensors.safetensors",
        "checkpoint/*-step-10/state.json",
        "config.yaml",
        "log.jsonl",
    )
    pattern = patterns[index % len(patterns)]
    (file,) = (root / "runs").glob(f"*/{pattern}")
    data, kind = file.read_bytes(), list(KINDS)[index // len(patterns) % len(KINDS)]
    start, stop = chance.choice(regions(len(data), 64))
    file.write_bytes(KINDS[kind](data, start, stop, chance))
    what, ended = f"{file.name}, {kind} at {start} to {stop}, gone on", call(told, root / "runs")
    if not isinstance(ended.value, tuple):
        return Verdict(1) + lost(f"{what}: {ended.said[-300:]}")
    first, said = ended.value
    checkpoint = "checkpoint" in pattern
    before = 5 if checkpoint and said else 10
    verdict = scene.gone_on(type(ended)(0, "", first), root / "runs", METHOD, before, what)
    if verdict.different and said and file.name == "log.jsonl":
        verdict = Verdict(lost=verdict.lost, notes=())  # what is gone cannot come back, but it was said
    shutil.rmtree(root)
    return Verdict(1) + verdict
