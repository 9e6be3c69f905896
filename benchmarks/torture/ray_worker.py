"""Kill workers of Ray in the middle of a run: the run goes on in another, from its checkpoint, to the same end."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.experiments.killing import Mortal, Notes, config

from benchmarks.torture.reached import Execution, ExecutorConfig, Job, RunConfig, RunOptions, Store, execute, run_id
from benchmarks.torture.scene import EVERY, TRAINED, Scene, said_by
from benchmarks.torture.verdict import Verdict, different, lost, unclear
from benchmarks.torture.warm import Tell, call


def mortal(method: str, after: Path, at: int) -> RunConfig:
    name = f"{Mortal.__module__}:{Mortal.__qualname__}"
    return config(method, model=name, model_options={"after": str(after), "at": at})


def killed_workers(tell: Tell, root: Path, wanted: list[tuple[str, int]]) -> Verdict:
    os.environ["TMLN_ALLOW_CODE"] = "1"  # the network that kills its process is of the tests
    configs = [mortal(method, root / f"after-{n}", at) for n, (method, at) in enumerate(wanted)]
    store, notes, verdict = Store(root / "runs"), Notes(), Verdict()
    options = RunOptions("none", checkpoint_steps=EVERY, checkpoint_seconds=1e9)
    failures = execute(store, [Job(one) for one in configs], options, ExecutorConfig("ray", workers=2), on_event=notes)
    for failure in failures:
        verdict += lost(f"{failure.job.label} on Ray: {failure.error}")
    again = [event for event in notes.events if event.kind == "retried"]
    verdict += Verdict(len(again))
    verdict += sum((unclear(e.text) for e in again if "worker was lost" not in e.text or "\n" in e.text), Verdict())
    for one in configs:
        run, whole = store.open(one), Store(root / "whole").open(one)
        with whole.lock:
            Execution(whole, options)()
        if not run.finished or said_by(run) != said_by(whole) or run.log.read_bytes() != whole.log.read_bytes():
            verdict += different(f"{run_id(one)}, whose worker of Ray was killed")
    return (
        verdict if len(again) >= len(configs) else verdict + lost(f"{len(again)} of {len(configs)} workers were killed")
    )


def trial(scene: Scene, index: int, each: int) -> Verdict:
    """Start Ray and ``each`` runs, every one of which kills its worker once."""
    chance, root = scene.chance("ray", index), scene.folder("ray", index)
    wanted = [(TRAINED[(index * each + n) % len(TRAINED)], chance.randint(7, 19)) for n in range(each)]
    ended = call(killed_workers, root, wanted)
    shutil.rmtree(root, ignore_errors=True)
    if "timed out during startup" in ended.said:  # Ray's own limit, which a busy machine does not keep
        return Verdict(notes=("not done: Ray did not start in its own time; the machine is too busy",))
    return ended.value if isinstance(ended.value, Verdict) else lost(f"Ray: {ended.code} {ended.said[-500:]}")
