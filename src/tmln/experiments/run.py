"""One run from its configuration to its result: learn every task, test on all after each, be killed, go on."""

from __future__ import annotations

import hashlib
import itertools
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import tmln
from tmln import metrics
from tmln.distributed.process_group import SINGLE, gather_full, ranks_of
from tmln.distributed.sharding import gather_state, is_sharded_model
from tmln.experiments.build import learner_of, merge, steps_in, steps_of, stream_of
from tmln.experiments.command import changed_of
from tmln.experiments.commit import commit
from tmln.experiments.loggers import Logger, make_logger
from tmln.experiments.machine import machine
from tmln.experiments.memory_estimate import fit
from tmln.experiments.null_run import Unwritten
from tmln.experiments.predictions import write_predictions
from tmln.experiments.process_memory import peak_bytes, reset_peak
from tmln.experiments.progress import Progress
from tmln.experiments.reference_runs import reference_names
from tmln.experiments.result import Result
from tmln.experiments.run_options import RunOptions
from tmln.experiments.store import Run
from tmln.learner.checkpoint import read_newest, write_checkpoint
from tmln.learner.evaluation_statistics import Liveliness, Tally
from tmln.signals import Interrupted, saving
from tmln.streams.stream import describe_tests

LOG_EVERY = 50  # steps between lines of the log


@dataclass(frozen=True)
class Moment:
    """What a progress display is told after every step."""

    task: int
    tasks: int
    epoch: int
    epochs: int
    step: int
    steps: int
    samples: int  # of this step, replayed ones included
    loss: float


def fingerprint(model: nn.Module) -> str:
    """A hash of every weight and buffer: equal runs have equal ones, to the last bit."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(gather_full(value.detach()).cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class Execution:
    """A run at work. Hold the run's lock around it."""

    def __init__(
        self,
        run: Run | Unwritten,
        terms: RunOptions | None = None,
        reference: Sequence[float] | None = None,
        *,
        on_step: Callable[[Moment], None] = lambda moment: None,
        stop: Callable[[], bool] = lambda: False,
        fabric: Any = None,
    ) -> None:
        """``reference`` is that of the terms' oracle; after a step ``on_step`` is told, and ``stop`` is asked.

        ``fabric``: whose devices do it. Every process of it does the same, and the first one writes.
        """
        self.run, self.terms, self.reference = run, terms or RunOptions(), reference
        self.on_step, self.stop = on_step, stop
        reset_peak()
        self.epochs = int(run.config.resolved()["epochs"])
        together = ranks_of(None) if fabric is not None and fabric.world_size > 1 else SINGLE
        self.stream = together.run_together(lambda: stream_of(run.config))
        self.learner = learner_of(run.config, self.stream, fabric, self.terms.accumulate)
        self.tasks = (merge(self.stream),) if run.config.merged else self.stream.tasks
        self.total = steps_in(self.stream, run.config)
        self.ends = {*itertools.accumulate(steps_of(self.stream, self.learner, self.epochs))}
        self.rate = float(self.learner.step.effective_lr)  # as it starts, also for a run that goes on
        self.progress = Progress()
        self.logger: Logger | None = None
        self._saved_at = self._resumed_at = time.monotonic()
        self.progress.pieces = self._fitting()
        self._restore()

    def _fitting(self) -> int | None:
        """Samples at a time that fit on every rank: all pass the same ones at a task's end."""
        pieces = self.learner.ranks.gather_objects(lambda: fit(self.learner, self.stream).pieces)
        least = min((piece for piece in pieces if piece is not None), default=None)
        if least != pieces[self.learner.ranks.rank]:
            self.learner.in_pieces(least)
        return least

    def __call__(self) -> Result:
        """The result, which is also written; a run that diverges has one too, and says so."""
        diverged = None
        if isinstance(self.run, Run):
            self.logger = make_logger(self.terms.logger, self.run, self.progress.step)
        try:
            while self.learner.tasks < len(self.tasks):
                self._learn(self.learner.tasks)
        except FloatingPointError as error:  # a loss, or what a part makes of the weights at a task's end
            diverged = str(error)
        except BaseException:
            with suppress(Exception):  # on a full disk closing fails as well: what came first is to be told
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
        self.learner.learn(task.train, self.epochs, classes=task.classes, atomic=False, on_step=self._after_step)
        self._log_boundary(index)
        self._test()
        row = self.progress.accuracy[-1]
        self.run.append_log({"step": self.progress.step, "task": index, "accuracy": row})
        self._log({f"accuracy/task {j + 1}": value for j, value in enumerate(row)})
        self._log({"accuracy/seen": sum(row[: index + 1]) / (index + 1)})
        if self._agreed(self._unsaved > 10.0)[0]:  # a task's end is a good place, if the last one is not fresh
            self._save()

    def _log_boundary(self, index: int) -> None:
        """What the parts found out about the task when it ended, by ``part/quantity``."""
        found = self.learner.diagnostics
        if found:
            self.run.append_log({"step": self.progress.step, "task": index, "boundary": dict(found)})
            self._log({f"boundary/{name}": value for name, value in found.items()})

    def _after_step(self, epoch: int, number: int, loss: float) -> None:
        self.progress.step += 1
        step, index = self.progress.step, self.learner.tasks
        every = self.progress.every
        if every and step % every == 0 and step not in self.ends and not self.run.config.merged:
            self._test_within(index)
        if step % LOG_EVERY == 0:
            self.run.append_log({"step": step, "task": index, "epoch": epoch, "loss": loss})
            self._log({"loss": loss})
        moment = Moment(index, len(self.tasks), epoch, self.epochs, step, self.total, self.learner.last_batch, loss)
        self.on_step(moment)
        stop, late = self._agreed(self.stop(), self._unsaved > self.terms.checkpoint_seconds)
        by_step = self.terms.checkpoint_steps and step % self.terms.checkpoint_steps == 0
        if stop or by_step or late:
            self._save()
        if stop:
            raise Interrupted(f"stopped at step {step} of {self.total}; the same command goes on from there")

    def _log(self, values: dict[str, float]) -> None:
        if self.logger is not None:
            self.logger.scalars(values, self.progress.step)

    def _test(self) -> None:
        learner, progress = self.learner, self.progress
        tally, liveliness = Tally(seen=len(progress.accuracy) + 1), Liveliness()
        trains = learner.step.trains_at(learner.step.settings, 1)  # else features may be cached, and no unit is seen
        with liveliness.watching(learner.model) if trains else nullcontext():
            found = learner.evaluate_tasks([(task.test, task.classes) for task in self.stream], tally)
        liveliness.of_all(learner.ranks)
        progress.note(tally, liveliness)
        progress.accuracy.append([f["accuracy"] for f in found])
        progress.masked.append([f["masked_accuracy"] for f in found])
        held = [(task.validation, task.classes) for task in self.stream if task.validation is not None]
        if held:
            progress.validation.append([f["accuracy"] for f in learner.evaluate_tasks(held)])
        for name, samples in self.stream.extra_tests.items():
            extra = learner.evaluate_tasks([(samples, samples.classes)])
            progress.extra.setdefault(name, []).append(extra[0]["accuracy"])

    def _test_within(self, index: int) -> None:
        """On the tasks seen so far, the one at work included; training goes on as if nothing had been."""
        seen = self.stream.tasks[: index + 1]
        found = self.learner.evaluate_tasks([(task.test, task.classes) for task in seen])
        row = [f["accuracy"] for f in found]
        self.progress.within.append({"step": self.progress.step, "task": index, "accuracy": row})
        self.run.append_log({"step": self.progress.step, "task": index, "within": row})
        self._log({"accuracy/seen": sum(row) / len(row)})

    def _train_accuracy(self) -> float:
        """Mean over tasks of the accuracy on their training data, as stored."""
        found = self.learner.evaluate_tasks([(task.train, task.classes) for task in self.stream])
        return sum(f["accuracy"] for f in found) / len(found)

    def _seconds(self) -> float:
        return self.progress.seconds + time.monotonic() - self._resumed_at

    def _peak(self) -> int:
        return max(self.progress.peak, peak_bytes())

    @property
    def _unsaved(self) -> float:
        """Seconds since the last checkpoint."""
        return time.monotonic() - self._saved_at

    def _agreed(self, *asked: bool) -> list[bool]:
        """What one rank is asked, all are: a signal comes to one, and clocks differ."""
        return [bool(found) for found in self.learner.ranks.reduce_max([float(value) for value in asked])]

    def _save(self) -> None:
        if not (isinstance(self.run, Run) or is_sharded_model(self.learner.model)):
            return
        with saving():
            learned = gather_state(self.learner.state_dict(), self.learner.ranks.rank)
            self._saved_at = time.monotonic()
            if not isinstance(self.run, Run):
                return
            state = {
                **vars(self.progress),
                "seconds": self._seconds(),
                "peak": self._peak(),
                "learner": learned,
            }
            state["log_size"], state["log_crc32"] = self.run.log_size, self.run.log_checksum
            self.run.lock.check()
            try:
                write_checkpoint(self.run.checkpoints, state, self.progress.step)
            except OSError:
                self.run.lock.check()  # whoever took the run over removes what was being written: that is the reason
                raise
            self._saved_at = time.monotonic()

    def _restore(self) -> None:
        run = self.run
        saved = self.learner.ranks.broadcast_object(
            lambda: read_newest(run.checkpoints) if isinstance(run, Run) else None
        )
        if saved is None:
            self.run.truncate_log(-1)
            tests = [(task.test, task.classes) for task in self.stream]
            found = self.learner.evaluate_tasks(tests)
            self.progress.baseline = [f["accuracy"] for f in found]
            self.progress.every, self.progress.keeps = self.terms.eval_every or 0, list(self.terms.keep)
            return
        state = dict(saved[0])
        self.run.truncate_log(saved[1], state.pop("log_size"), state.pop("log_crc32", None))
        history = [task.train for task in self.stream.tasks[: state["learner"]["tasks"]]]
        self.learner.load_state_dict(state.pop("learner"), history if self.learner.recipe.joint else ())
        now, self.progress = self.progress.pieces, Progress(**state)
        if (self.progress.every, self.progress.keeps) != (self.terms.eval_every or 0, list(self.terms.keep)):
            warnings.warn(
                f"run {self.run.name} goes on as it began, with --eval-every {self.progress.every or 'not given'} and "
                f"--keep {','.join(self.progress.keeps) or 'not given'}: what is tested on the way cannot change there",
                stacklevel=2,
            )
        if now != self.progress.pieces and (now is None or (self.progress.pieces or now + 1) <= now):
            self.learner.in_pieces(self.progress.pieces)  # as it began, which fits
        else:
            self.progress.pieces = now

    def _keep_predictions(self) -> str:
        """Into a file beside the result, whose checksum the result has; nothing where nobody asked."""
        if "predictions" not in self.progress.keeps or not isinstance(self.run, Run):
            return ""
        return write_predictions(self.run.path, self.progress.predicted, [task.test for task in self.stream])

    def _result(self, diverged: str | None) -> dict[str, Any]:
        progress, config = self.progress, self.run.config
        known = config.train_accuracy and diverged is None
        observed = {
            "accuracy": progress.accuracy,
            "masked_accuracy": progress.masked,
            "validation_accuracy": progress.validation,
            "baseline": progress.baseline,
            "extra_accuracy": progress.extra,
            "train_accuracy": self._train_accuracy() if known else None,
            **progress.counted(),
            "reference_accuracy": self.reference,
            "effective_rate": self.rate,
            "seconds": self._seconds(),
        }
        found = {name: value for name, value in metrics.measure(observed).items() if metrics.metric_of(name).percent}
        if config.merged and progress.accuracy:
            found["acc"] = sum(progress.accuracy[-1]) / len(progress.accuracy[-1])
        names = reference_names(config.resolved())
        return {
            **observed,
            "metrics": {"acc": float("nan"), "fm": float("nan"), **found},  # a courtesy: readers compute them anew
            "oracle": self.terms.oracle if self.reference is not None else "none",
            "reference": None if self.reference is None else names.get(self.terms.oracle),
            "references": names,
            "changed": changed_of(config),
            "diverged": diverged,
            "steps": progress.step,
            "peak_memory_bytes": self._peak(),
            "micro_batch": progress.pieces,
            "weights_sha256": fingerprint(self.learner.model),
            "predictions_sha256": self._keep_predictions(),
            "log_crc32": self.run.log_checksum,
            "parameters": sum(p.numel() for p in self.learner.model.parameters()),
            "stream": {**self.stream.metadata, **describe_tests(self.stream)},
            "class_names": list(self.stream.class_names),
            "machine": {**machine(), **({"ranks": self.learner.ranks.size} if self.learner.ranks.size > 1 else {})},
            "commit": commit(),
            "versions": {"tmln": tmln.__version__, "torch": torch.__version__, "python": platform.python_version()},
        }
