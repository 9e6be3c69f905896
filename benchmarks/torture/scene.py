"""Hold what trials share: a folder, a seed, and each small run as it ends without a fault."""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.torture.reached import RECIPES, Execution, Run, RunConfig, RunOptions, StepInfo, Store
from benchmarks.torture.verdict import Verdict, different, lost, total
from benchmarks.torture.warm import Ended, Tell, call

SMALL = {"benchmark": "split-digits", "benchmark_options": {"per_class": 24, "per_class_test": 10}, "epochs": 2}
EVERY = 5  # steps between checkpoints
METHODS = tuple(RECIPES)
_STEPS: dict[str, tuple[Any, Any]] = {name: recipe.resolve("step") for name, recipe in RECIPES.items()}
TRAINED = tuple(name for name, (step, own) in _STEPS.items() if step.trains_at(own, 1))  # in all tasks, by steps
OF_THE_CLOCK = ("seconds", "peak_memory_bytes", "checksum")  # of a result; the checksum covers the other two


def config_of(method: str) -> RunConfig:
    return RunConfig.of({**SMALL, "method": method})


def work(tell: Tell, root: Path, method: str, on_step: Callable[[StepInfo], None] = lambda info: None) -> int:
    """Do the run, or go on with it, and say where that began: the number of its first step, 0 if there was none."""
    run = Store(root).open(config_of(method))
    first = 0

    def step(info: StepInfo) -> None:
        nonlocal first
        first = first or info.step
        on_step(info)

    with run.lock:
        if not run.finished:
            execution = Execution(run, RunOptions(checkpoint_seconds=1e9, checkpoint_steps=EVERY), on_step=step)
            tell("begun")
            execution()
    return first


@dataclass(frozen=True)
class Seen:
    """A run's folder as it was left: to be compared to the bit."""

    result: dict[str, Any] | None
    log: bytes
    tensors: dict[tuple[int, int], str]  # of the checkpoints, by step and tasks learned

    @classmethod
    def of(cls, root: Path, method: str) -> Seen:
        run = Store(root).find(config_of(method))
        if run is None:
            return cls(None, b"", {})
        found = {
            (step_of(path), tasks_of(path)): hashlib.sha256((path / "tensors.safetensors").read_bytes()).hexdigest()
            for path in run.checkpoints.glob("[0-9]*-step-*")
        }
        result = said_by(run) if run.finished else None
        return cls(result, run.log.read_bytes() if run.log.exists() else b"", found)


def said_by(run: Run) -> dict[str, Any]:
    """Return all of result.json but what the clock decides."""
    saved = json.loads((run.path / "result.json").read_bytes())
    return {key: value for key, value in saved.items() if key not in OF_THE_CLOCK}


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def tasks_of(checkpoint: Path) -> int:
    """Return the tasks learned by a checkpoint: a last step and the boundary after it have one number."""
    content = json.loads((checkpoint / "state.json").read_bytes())["content"]
    return int(content["state"]["learner"]["tasks"])


def newest(root: Path, method: str) -> int:
    """Return the step of the newest checkpoint, 0 if there is none."""
    run = Store(root).find(config_of(method))
    return max((step_of(path) for path in run.checkpoints.glob("[0-9]*-step-*")), default=0) if run else 0


def compare(whole: Seen, got: Seen, what: str) -> Verdict:
    """Compare results (with the hash of the weights), logs, and checkpoints: weights, components, generators."""
    if got.result is None:
        return lost(f"{what}: no result")
    found = []
    if json.dumps(got.result, sort_keys=True) != json.dumps(whole.result, sort_keys=True):
        keys = [
            key
            for key in {**got.result, **(whole.result or {})}
            if got.result.get(key) != (whole.result or {}).get(key)
        ]
        found.append(different(f"{what}: result ({', '.join(keys)})"))
    if got.log != whole.log:
        found.append(different(f"{what}: log"))
    both = got.tensors.keys() & whole.tensors.keys()
    saves = (whole.result or {}).get("steps", EVERY) >= EVERY  # else by the clock alone, often none
    if (saves and not both) or any(got.tensors[key] != whole.tensors[key] for key in both):
        found.append(different(f"{what}: checkpoint"))
    return Verdict(different=min(1, len(found)), notes=total(found).notes)


@dataclass
class Scene:
    """``root`` is emptied by whoever made it; trials take folders of their own in it."""

    root: Path
    seed: int = 0
    _turns: defaultdict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    kept: dict[str, Any] = field(default_factory=dict)

    def chance(self, what: str, index: int) -> random.Random:
        return random.Random(f"{self.seed} {what} {index}")

    def folder(self, what: str, index: int) -> Path:
        path = self.root / f"{what}-{index}"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def whole(self, method: str) -> Seen:
        """The run, undisturbed; done once."""
        found: Seen = self.once(f"whole {method}", lambda: self._undisturbed(method))
        return found

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What several trials need, made by the first of them."""
        with self._turns[name]:
            if name not in self.kept:
                self.kept[name] = make()
            return self.kept[name]

    def _undisturbed(self, method: str) -> Seen:
        ended = call(work, self.root / "whole", method)
        found = Seen.of(self.root / "whole", method)
        if ended.code or found.result is None:
            raise RuntimeError(f"{method} fails undisturbed:\n{ended.said}")
        return found

    def gone_on(self, ended: Ended, root: Path, method: str, before: int, what: str) -> Verdict:
        """The verdict on a run that was to go on to its end from the checkpoint of step ``before``, or a later one."""
        if ended.code:
            return lost(f"{what}: {last_line(ended.said)}")
        late = isinstance(ended.value, int) and 0 < ended.value <= before
        again = lost(f"{what}: step {ended.value} was done again, {before} were saved") if late else Verdict()
        return again + compare(self.whole(method), Seen.of(root, method), what)


def last_line(said: str) -> str:
    return (said.strip().splitlines() or ["(nothing was said)"])[-1]
