"""Recorded weights of a run: at the start, at checkpoints, after every task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tmln.analysis.measurements import FOLDER
from tmln.executors.execute import Event
from tmln.executors.plan import Job
from tmln.executors.progress_display import ProgressDisplay
from tmln.executors.run_job import throttle
from tmln.experiments.build import build, steps_of
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.files import make_folder, refuse_link
from tmln.experiments.run import StepInfo, fingerprint
from tmln.experiments.store import Run, Store
from tmln.learner import Learner
from tmln.learner.checkpoint import NewerFormat, Torn, load_file, save_file
from tmln.streams import Stream

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Weights and buffers after ``step`` steps; ``solution`` if task ``task`` just ended."""

    task: int
    step: int
    solution: bool
    state: Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class Recording:
    """Recorded weights of a run; ``diverged`` says why it is incomplete, ``note`` what to know."""

    config: RunConfig
    stream: Stream
    model: nn.Module  # of the run's architecture, to be copied and filled
    checkpoints: tuple[Checkpoint, ...]
    diverged: str | None = None
    note: str = ""

    @property
    def start(self) -> Checkpoint:
        """Return the checkpoint before the first step."""
        return self.checkpoints[0]

    @property
    def solutions(self) -> tuple[Checkpoint, ...]:
        """Return the checkpoints after each task, theta_1, theta_2, ..."""
        return tuple(point for point in self.checkpoints if point.solution)

    def weights(self, point: Checkpoint) -> Tensor:
        """Return the trainable parameters as one vector in double precision."""
        names = [name for name, parameter in self.model.named_parameters() if parameter.requires_grad]
        return torch.cat([point.state[name].reshape(-1).double() for name in names])

    def buffers(self, point: Checkpoint) -> dict[str, Tensor]:
        """Return the buffers: running statistics of batch norm."""
        return {name: point.state[name] for name, _ in self.model.named_buffers() if name in point.state}


def recording_path(store: Store, config: RunConfig, tasks: int | None, checkpoints: int) -> Path:
    """Return the file of a recording, in a folder beside the runs."""
    what = f"{'all' if tasks is None else tasks}-tasks-{checkpoints}-checkpoints"
    return store.root / FOLDER / f"{run_id(config)}-{what}.safetensors"


def record(
    config: RunConfig,
    store: Store,
    *,
    tasks: int | None = None,
    least: int = 1,
    checkpoints: int = 20,
    on_step: Callable[[StepInfo], None] = lambda moment: None,
) -> Recording:
    """Train a run and record its weights, or read an earlier recording.

    Args:
        config: the run.
        store: where recordings are kept.
        tasks: tasks to record; None for all, of which there must be ``least``.
        least: smallest number of tasks.
        checkpoints: evenly spaced checkpoints per task, the last is its solution; 0 for solutions
        only.
        on_step: called after every step.

    Returns: The recording. Runs are deterministic, so it is of the run that the store has or would
        have; a recording of all tasks says in ``note`` if its last weights differ from the finished
        run's.
    """
    if config.merged:
        raise ValueError("a merged run learns all tasks at once: it has no trajectory from task to task")
    if checkpoints < 0 or (tasks is not None and tasks < 1):
        raise ValueError(f"a recording is of at least 1 task and 0 checkpoints, not {tasks} and {checkpoints}")
    stream, learner = build(config)
    needed = max(tasks or 1, least)
    if needed > len(stream):
        raise ValueError(f"{config.benchmark} has {len(stream)} task(s), {needed} are needed (--set benchmark.tasks=N)")
    path = recording_path(store, config, tasks, checkpoints)
    refuse_link(path.parent)
    saved = _read(path)
    if saved is None:
        saved = _train(config, stream, learner, tasks or len(stream), checkpoints, on_step)
        make_folder(path.parent)
        save_file(path, saved)
    found = tuple(Checkpoint(**point) for point in saved["checkpoints"])
    note = _find_difference(store.find(config), saved) if tasks in (None, len(stream)) else ""
    return Recording(config, stream, learner.model, found, saved["diverged"], note)


def record_all(
    configs: Sequence[RunConfig], store: Store, *, tasks: int | None = None, least: int = 1, checkpoints: int = 20
) -> None:
    """Make every recording that is missing, and show progress on stderr."""
    jobs = [Job(config) for config in configs]
    with ProgressDisplay({run_id(job.config): (job, job.label) for job in jobs}) as display:
        for job in jobs:
            if recording_path(store, job.config, tasks, checkpoints).is_file():
                display.update(Event("skipped", job))
                continue
            display.update(Event("started", job))
            say = throttle(partial(display.step, job))
            record(job.config, store, tasks=tasks, least=least, checkpoints=checkpoints, on_step=say)
            display.update(Event("finished", job, text="recorded"))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return load_file(path)
    except FileNotFoundError:
        return None
    except (Torn, NewerFormat) as error:
        log.warning("recorded again: %s", error)
        return None


def _train(
    config: RunConfig,
    stream: Stream,
    learner: Learner,
    tasks: int,
    checkpoints: int,
    on_step: Callable[[StepInfo], None],
) -> dict[str, Any]:
    epochs = int(config.resolved()["epochs"])
    steps = steps_of(stream, learner, epochs)[:tasks]
    found: list[dict[str, Any]] = []
    done, diverged = 0, None

    def keep(task: int, solution: bool) -> None:
        state = {name: value.detach().clone() for name, value in learner.model.state_dict().items()}
        found.append({"task": task, "step": done, "solution": solution, "state": state})

    keep(0, False)
    for index, task in enumerate(stream.tasks[:tasks]):
        wanted = {sum(steps[:index]) + number * steps[index] // checkpoints for number in range(1, checkpoints)}

        def after(epoch: int, number: int, loss: float, index: int = index, wanted: set[int] = wanted) -> None:
            nonlocal done
            done += 1
            if done in wanted:
                keep(index, False)
            on_step(StepInfo(index, tasks, epoch, epochs, done, sum(steps), learner.last_batch, loss))

        try:
            learner.learn(task.train, epochs, classes=task.classes, atomic=False, on_step=after)
        except FloatingPointError as error:
            diverged = str(error)
            break
        if not all(bool(torch.isfinite(parameter).all()) for parameter in learner.model.parameters()):
            diverged = f"weights are not finite after task {index + 1}"
            break
        keep(index, True)
    return {"checkpoints": found, "diverged": diverged, "weights_sha256": fingerprint(learner.model)}


def _find_difference(run: Run | None, saved: Mapping[str, Any]) -> str:
    result = None if run is None else run.result
    if run is None or result is None or result.weights_sha256 in ("", saved["weights_sha256"]):
        return ""
    return (
        f"{run.name}: the recording's last weights are not, to the last bit, those of the finished run "
        "(another machine, thread count or version)"
    )
