"""Multi-objective search over a method's settings with Optuna; every trial is a few ordinary runs of the store."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tmln.experiments.config import RunConfig, canonical
from tmln.experiments.lock import Owner, alive
from tmln.experiments.result import Result
from tmln.metrics import metric_of
from tmln.seeds import seed_of
from tmln.tuning.database import open_study
from tmln.tuning.heartbeat import BEAT, Beating, Silences
from tmln.tuning.space import Choices, Range, Space

PAUSE = 1.0  # seconds between two looks at what other processes have come to
# What a trial in the database says of itself: whose it is, why it has no values, and that it was begun before.
OWNER, WHY, AGAIN = "owner", "why", "again"


@dataclass(frozen=True)
class Trial:
    """A point of the space; ``values`` are of the objectives, in order, or None and ``why`` there are none."""

    number: int
    config: RunConfig
    params: dict[str, Any]
    values: tuple[float, ...] | None = None
    why: str = ""


def judge(results: Sequence[Result | None], objectives: Sequence[str]) -> tuple[float, ...] | str:
    """The mean of each objective over the seeds, or why there is none: a mean of fewer seeds would not compare."""
    if any(result is None for result in results):
        return "a run failed"
    good = [result for result in results if result is not None]
    for result in good:
        if result.diverged:
            return f"seed {result.seed} diverged: {result.diverged}"
    means = []
    for name in objectives:
        found = [result.metrics.get(name) for result in good]
        values = [float(value) for value in found if value is not None and math.isfinite(value)]
        if len(values) < len(found):
            return f"a run has no {name.upper()}" + (
                ", its joint reference is missing" if metric_of(name).against_reference else ""
            )
        means.append(math.fsum(values) / len(values))
    return tuple(means)


class Search:
    """A study that any number of processes work on; the same one again goes on where it was.

    ``objectives`` are metrics, and whether more of each is better.
    """

    def __init__(
        self,
        base: RunConfig,
        spaces: Mapping[str, Space],
        objectives: Mapping[str, bool],
        storage: str,
        *,
        seeds: int = 1,
        shared: bool = False,
    ) -> None:
        self.base, self.spaces, self.objectives, self.seeds = base, dict(spaces), dict(objectives), seeds
        directions = ["maximize" if more_is_better else "minimize" for more_is_better in objectives.values()]
        self.study = open_study(storage, self.name, directions)
        # Several processes must not draw alike; one alone draws the same whenever it is interrupted.
        self._seed = None if shared else base.seed
        self._silences = Silences()
        self._take_back()

    @property
    def name(self) -> str:
        """Of the study: searches that differ in anything that matters have different ones."""
        what = {
            "base": self.base.resolved(),
            "spaces": {key: str(space) for key, space in self.spaces.items()},
            "seeds": self.seeds,
        }
        digest = seed_of(0, canonical(what))
        return f"{self.base.benchmark.partition(':')[0]} {self.base.method} {','.join(self.objectives)} {digest:016x}"

    def search(
        self,
        trials: int,
        batch: int,
        run: Callable[[Sequence[Trial]], list[list[Result | None]]],
        on_trial: Callable[[Trial], None] = lambda trial: None,
        on_wait: Callable[[int], None] = lambda others: None,
    ) -> list[Trial]:
        """Until the study has this many trials, ``batch`` of them at a time; the new ones are returned.

        ``run`` does the runs of several trials: one list of results for each, None where a run failed. What other
        processes are at counts, and is waited for: all of them end with the same best. ``on_wait`` is told of how many.
        """
        found: list[Trial] = []
        while (left := trials - len(self.ended())) > 0:
            others = len(self._take_back())
            asked = self._within([self._ask() for _ in range(min(batch, left - others))], trials)
            if not asked:
                on_wait(others)
                time.sleep(PAUSE)
                continue
            mine = [self._trial(trial) for trial in asked]
            try:
                with Beating(asked):
                    results = run(mine)
            except BaseException:
                for trial in asked:
                    self._put_back(trial)
                raise
            for trial, point, seeds in zip(asked, mine, results, strict=True):
                found.append(self._tell(trial, point, judge(seeds, tuple(self.objectives))))
                on_trial(found[-1])
        return found

    def ended(self) -> list[Trial]:
        """Every trial with a verdict, by number; one that was interrupted has none."""
        from optuna.trial import TrialState

        found = self.study.get_trials(deepcopy=False, states=[TrialState.COMPLETE, TrialState.FAIL])
        return [self._trial(t) for t in found if t.state == TrialState.COMPLETE or WHY in t.user_attrs]

    def best(self) -> list[Trial]:
        """Those that no other beats in everything, by the first objective."""
        from optuna.trial import TrialState

        if not self.study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]):
            return []
        found = [self._trial(trial) for trial in self.study.best_trials]
        unlike = {canonical(trial.params): trial for trial in reversed(found)}  # the first of equal ones
        sign = -1.0 if next(iter(self.objectives.values())) else 1.0
        return sorted(unlike.values(), key=lambda trial: sign * trial.values[0] if trial.values else math.inf)

    def _ask(self) -> Any:
        import optuna

        seed = None if self._seed is None else seed_of(self._seed, f"trial {len(self.study.trials)}") % 2**32
        self.study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        trial = self.study.ask()
        trial.set_user_attr(OWNER, json.dumps(vars(Owner.this_process())))
        trial.set_user_attr(BEAT, 0)
        for key, space in self.spaces.items():
            if isinstance(space, Choices):
                trial.suggest_categorical(key, list(space.values))
            elif space.whole:
                trial.suggest_int(key, int(space.low), int(space.high), log=space.log)
            else:
                trial.suggest_float(key, space.low, space.high, log=space.log)
        return trial

    def _within(self, asked: list[Any], trials: int) -> list[Any]:
        """Those that there is a place for; of several processes that ask for the last one, the lowest number wins."""
        from optuna.trial import TrialState

        running = self.study.get_trials(deepcopy=False, states=[TrialState.RUNNING])
        taken = sorted([trial.number for trial in running] + [trial.number for trial in self.ended()])[:trials]
        for trial in asked:
            if trial.number not in taken:
                self._put_back(trial, again=AGAIN in trial.user_attrs)
        return [trial for trial in asked if trial.number in taken]

    def _tell(self, trial: Any, point: Trial, verdict: tuple[float, ...] | str) -> Trial:
        """A process that slept for long may find its trial put back: another does it, and this verdict is dropped."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        failed = isinstance(verdict, str)
        with suppress(UpdateFinishedTrialError):
            if failed:
                trial.set_user_attr(WHY, verdict)
            state, values = (TrialState.FAIL, None) if failed else (TrialState.COMPLETE, list(verdict))
            self.study.tell(trial, values, state, skip_if_finished=True)
        if isinstance(verdict, str):
            return Trial(point.number, point.config, point.params, why=verdict)
        return Trial(point.number, point.config, point.params, verdict)

    def _put_back(self, trial: Any, again: bool = True) -> None:
        """The next process takes it up, and its runs go on from their checkpoints; where several do this, one does."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        with suppress(UpdateFinishedTrialError, ValueError):  # ValueError: it had ended when it was looked at
            self.study.tell(trial.number, state=TrialState.FAIL)
            if again:
                self.study.enqueue_trial(trial.params, user_attrs={AGAIN: True})

    def _take_back(self) -> list[Any]:
        """Put back trials of processes that were killed, or far away and silent; those at work are returned."""
        from optuna.trial import TrialState

        working = []
        for trial in self.study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
            owner = trial.user_attrs.get(OWNER)
            there = alive(Owner(**json.loads(owner))) if owner is not None else None
            if there is False or (there is None and self._silences.long(trial.number, trial.user_attrs.get(BEAT))):
                self._put_back(trial)
            else:
                working.append(trial)
        return working

    def _trial(self, trial: Any) -> Trial:
        params = {
            key: space.rounded(trial.params[key]) if isinstance(space, Range) else trial.params[key]
            for key, space in self.spaces.items()
            if key in trial.params
        }
        values = tuple(trial.values) if getattr(trial, "values", None) else None
        why = trial.user_attrs.get(WHY, "")
        return Trial(trial.number, self.base.with_settings(params), params, values, why)
