"""Run a configuration: learn every task, test on all after each, save, resume, write the result."""

from __future__ import annotations

import hashlib
import itertools
import platform
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

import tmln
from tmln import metrics
from tmln.distributed.process_group import SINGLE, gather_full, ranks_of
from tmln.distributed.sharding import gather_state, is_sharded_model
from tmln.evaluation_counts import add_online, online_accuracies
from tmln.experiments.build import learner_of, merge, steps_in, steps_of, stream_of
from tmln.experiments.command import changed_of
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.launch import RunOptions
from tmln.experiments.loggers import Logger, make_logger
from tmln.experiments.machine import commit, machine
from tmln.experiments.memory_estimate import fit_to_memory, memory_limit, peak_bytes, reset_peak
from tmln.experiments.reference_runs import reference_names
from tmln.experiments.result import Observations, Result
from tmln.experiments.run_state import (
    RunState,
    add_test,
    add_within,
    compact,
    start_within,
    write_predictions,
)  # fmt: skip
from tmln.experiments.store import Run
from tmln.learner.checkpoint import NewerFormat, read_newest, write_checkpoint
from tmln.learner.evaluation import find_unknown
from tmln.learner.evaluation_statistics import Liveliness, Tally
from tmln.printable import one_line
from tmln.signals import Interrupted, saving
from tmln.streams.samples import UNKNOWN_LABEL, Samples, concat
from tmln.streams.stream import describe_tests

LOG_EVERY = 50  # steps between lines of the log


@dataclass(frozen=True)
class StepInfo:
    """The progress of a run after a step."""

    task: int
    tasks: int
    epoch: int
    epochs: int
    step: int
    steps: int
    samples: int  # of this step, replayed ones included
    loss: float


class NullRun:
    """A run's folder for ranks other than the first: they compute everything and write nothing."""

    log_size = log_checksum = 0

    def __init__(self, config: RunConfig) -> None:
        self.config, self.name = config, run_id(config)
        self.result: Result | None = None

    def finish(self, result: Mapping[str, Any]) -> None:
        """Keep the result in memory."""
        config = self.config.resolved()
        head = {key: config[key] for key in ("benchmark", "method", "seed")}
        self.result = Result.of({**head, "config": config, **result}, self.name)

    def append_log(self, record: Mapping[str, Any]) -> None:
        """Leave the log to the first rank."""

    def truncate_log(self, step: int, size: int | None = None, crc: int | None = None) -> None:
        """Leave the log to the first rank."""


def fingerprint(model: nn.Module) -> str:
    """Return a hash of every weight and buffer; equal runs have equal ones, to the last bit."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(gather_full(value.detach()).cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class Execution:
    """The execution of one run: ``Execution(run)()`` returns its result. Hold its lock around it.

    Args:
        run: The run's folder, or a :class:`NullRun` on ranks other than the first.
        terms: How the run is executed.
        reference: a*_k for every task, of the options' kind of reference.
        on_step: Called after every step.
        stop: Asked after every step; if true, the run is saved and :class:`Interrupted` raised.
        fabric: Lightning Fabric, whose devices compute. All of its processes do the same.
    """

    def __init__(
        self,
        run: Run | NullRun,
        terms: RunOptions | None = None,
        reference: Sequence[float] | None = None,
        *,
        on_step: Callable[[StepInfo], None] = lambda info: None,
        stop: Callable[[], bool] = lambda: False,
        fabric: Any = None,
    ) -> None:
        self.run, self.terms, self.reference = run, terms or RunOptions(), reference
        self.on_step, self.stop = on_step, stop
        reset_peak()
        self.epochs = int(run.config.resolved()["epochs"])
        together = ranks_of(None) if fabric is not None and fabric.world_size > 1 else SINGLE
        self.stream = together.run_together(lambda: stream_of(run.config))
        self.learner = learner_of(run.config, self.stream, fabric, self.terms.accumulate)
        self.tasks = (merge(self.stream),) if run.config.merged else self.stream.tasks
        if run.config.test_then_train and not all(self._trains(index) for index in range(len(self.tasks))):
            raise ValueError(
                f"test_then_train=true tests on a batch before a step is taken with it, and step "
                f"{self.learner.step.name!r} takes none in some tasks: leave it out, or choose another step"
            )
        self.total = steps_in(self.stream, run.config)
        self.ends = {*itertools.accumulate(steps_of(self.stream, self.learner, self.epochs))}
        self.rate = float(self.learner.step.effective_lr)  # as it starts, also for a run that is resumed
        self.step = 0
        self.observed = Observations(seconds=0.0)
        self.keep: list[str] = []
        self.predicted: list[torch.Tensor] = []
        self.logger: Logger | None = None
        self._saved_at = self._resumed_at = time.monotonic()
        self._restore(self._fit_memory())

    def _trains(self, index: int) -> bool:
        return self.learner.step.trains_at(self.learner.step.settings, index)

    def _fit_memory(self) -> int | None:
        """Return how many samples fit at a time on every rank; all pass the same ones."""
        pieces = self.learner.trained.ranks.gather_objects(lambda: fit_to_memory(self.learner, self.stream).pieces)
        least = min((piece for piece in pieces if piece is not None), default=None)
        if least != pieces[self.learner.trained.ranks.rank]:
            self.learner.trained.limit_rows(least)
        return least

    def __call__(self) -> Result:
        """Train, write the result and return it; a run that diverges has a result, too."""
        diverged = None
        if isinstance(self.run, Run):
            self.logger = make_logger(self.terms.logger, self.run, self.step)
        try:
            while self.learner.tasks < len(self.tasks):
                self._learn(self.learner.tasks)
        except FloatingPointError as error:  # a loss, or the weights that a component makes at a task's end
            diverged = str(error)
        except BaseException:
            with suppress(Exception):  # on a full disk closing fails as well: the first error is to be shown
                self._close()
            raise
        self._close()
        self.run.finish(self._result(diverged))
        result = self.run.result
        assert result is not None
        return result

    def _close(self) -> None:
        if self.logger is not None:
            self.logger.close()

    def _learn(self, index: int) -> None:
        task = self.tasks[index]
        hooks: dict[str, Any] = {"on_step": self._after_step}
        if self.run.config.test_then_train:
            hooks["on_batch"] = self._before_step
        self.learner.learn(task.train, self.epochs, classes=task.classes, atomic=False, **hooks)
        if found := self.learner.diagnostics:  # what the components report of the task, by ``component/quantity``
            self.run.append_log({"step": self.step, "task": index, "boundary": dict(found)})
            self._log({f"boundary/{name}": value for name, value in found.items()})
        self._test()
        row = self.observed.accuracy[-1]
        self.run.append_log({"step": self.step, "task": index, "accuracy": row})
        self._log({f"accuracy/task {j + 1}": value for j, value in enumerate(row)})
        self._log({"accuracy/seen": sum(row[: index + 1]) / (index + 1)})
        if self.run.config.test_then_train:
            online = online_accuracies(self.observed.online)[-1]
            self.run.append_log({"step": self.step, "task": index, "online": online})
            self._log({"accuracy/online": online})
        if self._agree(self._unsaved > 10.0)[0]:  # unless the last checkpoint is fresh
            self._save()

    def _before_step(self, epoch: int, number: int, x: torch.Tensor, y: torch.Tensor) -> None:
        """Test on a batch of the first epoch before it is trained on."""
        if epoch:
            return
        (found,) = self.learner.evaluate_tasks([(Samples.of(x, y), None)])
        index, count = self.learner.tasks, len(y)
        right = round(found["accuracy"] * count)
        online = add_online(self.observed.online, index, count, right, len(self.tasks[index].train))
        self.observed = replace(self.observed, online=online)

    def _after_step(self, epoch: int, number: int, loss: float) -> None:
        self.step += 1
        step, index, every = self.step, self.learner.tasks, self.observed.within.get("every")
        if every and step % every == 0 and step not in self.ends and not self.run.config.merged:
            self._test_within(index)
        if step % LOG_EVERY == 0:
            exact = float(self.learner.last_loss)
            self.run.append_log({"step": step, "task": index, "epoch": epoch, "loss": exact})
            self._log({"loss": exact})
        info = StepInfo(index, len(self.tasks), epoch, self.epochs, step, self.total, self.learner.last_batch, loss)
        self.on_step(info)
        stop, late = self._agree(self.stop(), self._unsaved > self.terms.checkpoint_seconds)
        by_step = self.terms.checkpoint_steps and step % self.terms.checkpoint_steps == 0
        if stop or by_step or late:
            self._save()
        if stop:
            raise Interrupted(f"stopped at step {step} of {self.total}; the same command goes on from there")

    def _log(self, values: dict[str, float]) -> None:
        if self.logger is not None:
            self.logger.scalars(values, self.step)

    def _test(self) -> None:
        """Test on all tasks, after one more was learned."""
        learner, observed = self.learner, self.observed
        tally, liveliness = Tally(seen=len(observed.accuracy) + 1), Liveliness()
        trains = learner.step.trains_at(learner.step.settings, 1)  # else features may be cached, and no unit is seen
        with liveliness.watch(learner.model) if trains else nullcontext():
            found = learner.evaluate_tasks([(task.test, task.classes) for task in self.stream], tally)
        liveliness.of_all(learner.trained.ranks)
        observed = add_test(observed, found, tally, liveliness)
        if "predictions" in self.keep:
            self.predicted.append(compact(torch.cat(tally.predicted), len(tally.confusion)))
        held = [(task.validation, task.classes) for task in self.stream if task.validation is not None]
        if held:
            row = [f["accuracy"] for f in learner.evaluate_tasks(held)]
            observed = replace(observed, validation_accuracy=[*observed.validation_accuracy, row])
        extra = {name: list(values) for name, values in observed.extra_accuracy.items()}
        for name, samples in self.stream.extra_tests.items():
            if samples.classes == (UNKNOWN_LABEL,):
                share = find_unknown(learner, concat(self.stream.tests[: len(observed.accuracy)]), samples)
            else:
                share = learner.evaluate_tasks([(samples, samples.classes)])[0]["accuracy"]
            extra.setdefault(name, []).append(share)
        self.observed = replace(observed, extra_accuracy=extra)

    def _test_within(self, index: int) -> None:
        """Test on the tasks seen so far, the current one included; training is unaffected."""
        seen = self.stream.tasks[: index + 1]
        found = self.learner.evaluate_tasks([(task.test, task.classes) for task in seen])
        row = [f["accuracy"] for f in found]
        within = add_within(self.observed.within, step=self.step, task=index, accuracy=row)
        self.observed = replace(self.observed, within=within)
        self.run.append_log({"step": self.step, "task": index, "within": row})
        self._log({"accuracy/seen": sum(row) / len(row)})

    def _train_accuracy(self) -> float:
        """Return the mean over tasks of the accuracy on their training data, as stored."""
        found = self.learner.evaluate_tasks([(task.train, task.classes) for task in self.stream])
        return sum(f["accuracy"] for f in found) / len(found)

    def _observed_now(self) -> Observations:
        """Return the observations with the steps, seconds and memory of this moment."""
        before = self.observed
        seconds, peak = (
            before.seconds + time.monotonic() - self._resumed_at,
            max(before.peak_memory_bytes, peak_bytes()),
        )
        return replace(before, steps=self.step, seconds=seconds, peak_memory_bytes=peak)

    @property
    def _unsaved(self) -> float:
        """Seconds since the last checkpoint."""
        return time.monotonic() - self._saved_at

    def _agree(self, *asked: bool) -> list[bool]:
        """Return for each question whether any rank says yes: signals and clocks differ."""
        return [bool(found) for found in self.learner.trained.ranks.reduce_max([float(value) for value in asked])]

    def _save(self) -> None:
        if not (isinstance(self.run, Run) or is_sharded_model(self.learner.model)):
            return
        with saving():
            learned = gather_state(self.learner.state_dict(), self.learner.trained.ranks.rank)
            self._saved_at = time.monotonic()
            if not isinstance(self.run, Run):
                return
            state = RunState(
                learned, self._observed_now(), self.keep, self.predicted, self.run.log_size, self.run.log_checksum
            )
            self.run.lock.check()
            try:
                write_checkpoint(self.run.checkpoints, state.to_plain(), self.step)
            except OSError:
                self.run.lock.check()  # another process that took the run over removes what is being written
                raise
            self._saved_at = time.monotonic()

    def _restore(self, pieces: int | None) -> None:
        """Resume from the newest checkpoint, or test the untrained model.

        ``pieces`` is how many samples fit into memory at a time.
        """
        run, learner = self.run, self.learner
        saved = learner.trained.ranks.broadcast_object(
            lambda: read_newest(run.checkpoints, memory_limit()) if isinstance(run, Run) else None
        )
        if saved is None:
            run.truncate_log(-1)
            found = learner.evaluate_tasks([(task.test, task.classes) for task in self.stream])
            baseline, within = [f["accuracy"] for f in found], start_within(self.terms.eval_every or 0)
            self.observed = replace(self.observed, baseline=baseline, within=within, micro_batch=pieces or 0)
            self.keep = list(self.terms.keep)
            return
        try:
            state = RunState.of(saved[0])
            run.truncate_log(saved[1], state.log_size, state.log_crc32)
            history = [task.train for task in self.stream.tasks[: state.learner["tasks"]]]
            learner.load_state_dict(state.learner, history if learner.recipe.joint else ())
        except NewerFormat as error:
            raise NewerFormat(f"the checkpoint of run {run.name} cannot be used: {error}") from None
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            why = one_line(str(error))[:300]
            raise ValueError(
                f"the checkpoint of run {run.name} cannot be used: {why}; remove its folder checkpoint to begin the "
                "run again, or go on with the version of tmln that began it"
            ) from error
        self.step, self.observed, self.keep = state.observations.steps, state.observations, state.keep
        self.predicted = state.predicted
        every, now = self.observed.within.get("every", 0), self.observed.micro_batch or None
        if (every, self.keep) != (self.terms.eval_every or 0, list(self.terms.keep)):
            warnings.warn(
                f"run {run.name} goes on as it began, with --eval-every {every or 'not given'} and "
                f"--keep {','.join(self.keep) or 'not given'}: what is tested on the way cannot change there",
                stacklevel=2,
            )
        if pieces != now and (pieces is None or (now or pieces + 1) <= pieces):
            learner.trained.limit_rows(now)  # as it began, which fits
        else:
            self.observed = replace(self.observed, micro_batch=pieces or 0)

    def _keep_predictions(self) -> str:
        """Write the predictions if they are to be kept; return the checksum of the file."""
        if "predictions" not in self.keep or not isinstance(self.run, Run):
            return ""
        return write_predictions(self.run.path, self.predicted, [task.test for task in self.stream])

    def _result(self, diverged: str | None) -> dict[str, Any]:
        """Return the content of ``result.json``."""
        config, known = self.run.config, self.run.config.train_accuracy and diverged is None
        observed = {
            **vars(self._observed_now()),
            "train_accuracy": self._train_accuracy() if known else None,
            "reference_accuracy": self.reference,
            "effective_rate": self.rate,
        }
        found = {name: value for name, value in metrics.measure(observed).items() if metrics.metric_of(name).percent}
        if config.merged and self.observed.accuracy:
            found["acc"] = sum(self.observed.accuracy[-1]) / len(self.observed.accuracy[-1])
        names = reference_names(config.resolved())
        return {
            **observed,
            "metrics": {"acc": float("nan"), "fm": float("nan"), **found},  # a courtesy: readers compute them anew
            "oracle": self.terms.oracle if self.reference is not None else "none",
            "reference": None if self.reference is None else names.get(self.terms.oracle),
            "references": names,
            "changed": changed_of(config),
            "diverged": diverged,
            "weights_sha256": fingerprint(self.learner.model),
            "predictions_sha256": self._keep_predictions(),
            "log_crc32": self.run.log_checksum,
            "parameters": sum(p.numel() for p in self.learner.model.parameters()),
            "stream": {**self.stream.metadata, **describe_tests(self.stream)},
            "class_names": list(self.stream.class_names),
            "machine": {
                **machine(),
                **({"ranks": self.learner.trained.ranks.size} if self.learner.trained.ranks.size > 1 else {}),
            },
            "commit": commit(),
            "versions": {"tmln": tmln.__version__, "torch": torch.__version__, "python": platform.python_version()},
        }
