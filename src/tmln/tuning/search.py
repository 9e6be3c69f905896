"""Search a method's settings for one or several objectives with Optuna.

A trial is a few ordinary runs. The study is in SQLite or any database that Optuna takes by URL.
Optuna's heartbeat finds trials whose process has died; they are queued again, and their runs go on
from their checkpoints.
"""

from __future__ import annotations

import importlib
import math
import random
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tmln.experiments.config import RunConfig, canonical
from tmln.experiments.result import Result
from tmln.metrics import metric_of
from tmln.seeds import seed_of
from tmln.tuning.space import Choices, Range, Space, apply_point

PATIENCE = 10  # seconds for a database server to answer
ATTEMPTS = 5  # processes that begin together on an empty database make its tables at the same time
BEAT, STALE = 5, 60  # seconds between two heartbeats of a trial, and without one until it is queued again
PAUSE = 1.0  # seconds between two looks at the trials of other processes
# Attributes of trials in the database: why one has no values; that it was begun before; its process
# (written until 2026-11).
WHY, AGAIN, OWNER = "why", "again", "owner"


@dataclass(frozen=True)
class Trial:
    """A point of the space, with the values of the objectives, or why there are none."""

    number: int
    config: RunConfig
    params: dict[str, Any]
    values: tuple[float, ...] | None = None
    why: str = ""


def average_objectives(results: Sequence[Result | None], objectives: Sequence[str]) -> tuple[float, ...] | str:
    """Return the mean of each objective over the seeds, or why there is none.

    A mean over fewer seeds would not be comparable, so every seed needs every objective.
    """
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
            missing = ", its joint reference is missing" if metric_of(name).against_reference else ""
            return f"a run has no {name.upper()}{missing}"
        means.append(math.fsum(values) / len(values))
    return tuple(means)


class Search:
    """An Optuna study that several processes may work on, and that can be continued."""

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
        """Open the study.

        Args:
            base: the configuration whose settings are searched.
            spaces: where to look for each setting.
            objectives: names of metrics, and whether more of each is better.
            storage: the URL of a database.
            seeds: runs of each trial.
            shared: whether other processes, which must draw differently, search at the same time.
        """
        self.base, self.spaces, self.objectives, self.seeds = base, dict(spaces), dict(objectives), seeds
        directions = ["maximize" if more_is_better else "minimize" for more_is_better in objectives.values()]
        self.study, self._storage = open_study(storage, self.name, directions)
        self._seed = None if shared else base.seed
        self._requeue_stale()

    def close(self) -> None:
        """Close the connections to the database."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    @property
    def name(self) -> str:
        """Return the name of the study, which has a hash of all that matters to its results."""
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
        """Search until the study has a number of trials, and return the new ones.

        Trials of other processes count and are waited for: all processes end with the same best.

        Args:
            trials: how many the study has in the end.
            batch: how many are executed at the same time.
            run: executes trials; returns a list of results for each, None where a run failed.
            on_trial: called with every trial that ended.
            on_wait: called with the number of other processes' trials while waiting for them.
        """
        found: list[Trial] = []
        while (left := trials - len(self.list_ended())) > 0:
            others = len(self._requeue_stale())
            requested = self._limit([self._ask() for _ in range(min(batch, left - others))], trials)
            if not requested:
                on_wait(others)
                time.sleep(PAUSE)
                continue
            points = [self._read(trial) for trial in requested]
            try:
                with self._heartbeat(requested):
                    results = run(points)
            except BaseException:
                for trial in requested:
                    self._requeue(trial)
                raise
            for trial, point, seeds in zip(requested, points, results, strict=True):
                found.append(self._end(trial, point, average_objectives(seeds, tuple(self.objectives))))
                on_trial(found[-1])
        return found

    def list_ended(self) -> list[Trial]:
        """Return the trials that have values or failed, by number, without interrupted ones."""
        from optuna.trial import TrialState

        found = self.study.get_trials(deepcopy=False, states=[TrialState.COMPLETE, TrialState.FAIL])
        return [self._read(t) for t in found if t.state == TrialState.COMPLETE or WHY in t.user_attrs]

    def best(self) -> list[Trial]:
        """Return the trials that no other dominates, sorted by the first objective."""
        from optuna.trial import TrialState

        if not self.study.get_trials(deepcopy=False, states=[TrialState.COMPLETE]):
            return []
        found = [self._read(trial) for trial in self.study.best_trials]
        distinct = {canonical(trial.params): trial for trial in reversed(found)}  # the first of equal ones
        sign = -1.0 if next(iter(self.objectives.values())) else 1.0
        return sorted(distinct.values(), key=lambda trial: sign * trial.values[0] if trial.values else math.inf)

    def _ask(self) -> Any:
        import optuna

        seed = None if self._seed is None else seed_of(self._seed, f"trial {len(self.study.trials)}") % 2**32
        self.study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        with _without_optuna_warnings():
            trial = self.study.ask()
        self._storage.record_heartbeat(self._id_of(trial))
        for key, space in self.spaces.items():
            if isinstance(space, Choices):
                trial.suggest_categorical(key, list(space.values))
            elif space.whole:
                trial.suggest_int(key, int(space.low), int(space.high), log=space.log)
            else:
                trial.suggest_float(key, space.low, space.high, log=space.log)
        return trial

    def _limit(self, asked: list[Any], trials: int) -> list[Any]:
        """Return the trials within the limit: among processes, the lowest numbers win."""
        running = [trial.number for trial in self._list_running()]
        allowed = sorted(running + [trial.number for trial in self.list_ended()])[:trials]
        for trial in asked:
            if trial.number not in allowed:
                self._requeue(trial, again=AGAIN in trial.user_attrs)
        return [trial for trial in asked if trial.number in allowed]

    def _end(self, trial: Any, point: Trial, values: tuple[float, ...] | str) -> Trial:
        """Store the values of a trial, unless it was queued again while this process slept."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        with suppress(UpdateFinishedTrialError):
            if isinstance(values, str):
                trial.set_user_attr(WHY, values)
                self.study.tell(trial, None, TrialState.FAIL, skip_if_finished=True)
            else:
                self.study.tell(trial, list(values), TrialState.COMPLETE, skip_if_finished=True)
        if isinstance(values, str):
            return Trial(point.number, point.config, point.params, why=values)
        return Trial(point.number, point.config, point.params, values)

    def _requeue(self, trial: Any, again: bool = True) -> None:
        """End a trial and queue its point again; where several processes do so, one succeeds."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        with suppress(UpdateFinishedTrialError, ValueError):  # ValueError: it has ended
            self.study.tell(trial.number, state=TrialState.FAIL)
            if again:
                queue_again(self.study, trial)

    def _requeue_stale(self) -> list[Any]:
        """Queue the trials of dead processes again; return those that are running."""
        from optuna.storages import fail_stale_trials

        with _without_optuna_warnings():
            fail_stale_trials(self.study)
        for trial in self._list_running():
            if OWNER in trial.user_attrs:  # of an earlier version, which recorded no heartbeats
                self._requeue(trial)
        return self._list_running()

    def _list_running(self) -> list[Any]:
        from optuna.trial import TrialState

        return list(self.study.get_trials(deepcopy=False, states=[TrialState.RUNNING]))

    @contextmanager
    def _heartbeat(self, trials: Sequence[Any]) -> Iterator[None]:
        """Record heartbeats of trials within the block; Optuna does so only in its own loop."""
        ids, end = [self._id_of(trial) for trial in trials], threading.Event()

        def beat() -> None:
            while not end.wait(BEAT):
                for number in ids:
                    with suppress(Exception):  # the database is away for a moment
                        self._storage.record_heartbeat(number)

        thread = threading.Thread(target=beat, name="heartbeat of trials", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def _id_of(self, trial: Any) -> int:
        study = self._storage.get_study_id_from_name(self.study.study_name)
        return int(self._storage.get_trial_id_from_study_id_trial_number(study, trial.number))

    def _read(self, trial: Any) -> Trial:
        params = {
            key: space.round(trial.params[key]) if isinstance(space, Range) else trial.params[key]
            for key, space in self.spaces.items()
            if key in trial.params
        }
        values = tuple(trial.values) if getattr(trial, "values", None) else None
        return Trial(trial.number, apply_point(self.base, params), params, values, trial.user_attrs.get(WHY, ""))


def queue_again(study: Any, trial: Any) -> None:
    """Queue the point of a trial that was interrupted: the next trial of any process has it."""
    study.enqueue_trial(trial.params, user_attrs={AGAIN: True})


def require_optuna() -> Any:
    """Return the module optuna; the error names the extra that brings it."""
    try:
        return importlib.import_module("optuna")
    except ImportError as error:
        raise ImportError("tmln tune needs optuna: pip install 'tmln[tune]'") from error


def open_study(url: str, name: str, directions: Sequence[str]) -> tuple[Any, Any]:
    """Open or create a study; return it with its storage.

    Raises:
        ImportError: if Optuna or the driver of the database is missing.
        ValueError: if the database cannot be reached.
    """
    optuna = require_optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    server = url.startswith(("postgres", "mysql", "mariadb"))
    # A connection is tested before use: runs take hours, and servers and routers end idle ones.
    options = {"connect_args": {"connect_timeout": PATIENCE}, "pool_pre_ping": True} if server else {}
    with database_errors(url):
        try:
            storage = _open_storage(optuna, url, options)
        except ImportError as error:
            driver = getattr(error.__cause__ or error.__context__, "name", None) or "a driver"
            package = {"psycopg": "'psycopg[binary]'", "psycopg2": "psycopg2-binary"}.get(driver, driver)
            raise ImportError(f"the database {_hide_password(url)} needs {driver}: pip install {package}") from None
        study = optuna.create_study(storage=storage, study_name=name, directions=list(directions), load_if_exists=True)
        return study, storage


def _open_storage(optuna: Any, url: str, options: dict[str, Any]) -> Any:
    errors = importlib.import_module("sqlalchemy.exc")
    for left in reversed(range(ATTEMPTS)):
        try:
            with _without_optuna_warnings():
                return optuna.storages.RDBStorage(
                    url,
                    engine_kwargs=options,
                    heartbeat_interval=BEAT,
                    grace_period=STALE,
                    heartbeat_stale_trial_callback=queue_again,
                )
        except (errors.IntegrityError, errors.ProgrammingError, errors.OperationalError) as error:
            made = isinstance(error, errors.IntegrityError) or "already exists" in str(error)
            if not (made and left):
                raise
            time.sleep(random.random())
    raise AssertionError


@contextmanager
def _without_optuna_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # heartbeats are experimental, and meant for its own loop
        yield


@contextmanager
def database_errors(url: str) -> Iterator[None]:
    """Turn errors of the database into a ValueError of one line, without its password."""
    errors = importlib.import_module("sqlalchemy.exc")
    internal = importlib.import_module("optuna.exceptions").StorageInternalError
    shown = _hide_password(url)
    try:
        yield
    except errors.ArgumentError:
        raise ValueError(
            f"{shown!r} is no database URL; write sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME"
        ) from None
    except (errors.SQLAlchemyError, internal) as error:
        cause = error.__cause__ if isinstance(error, internal) else error
        text = str(getattr(cause, "orig", None) or cause).strip().splitlines()[0]
        raise ValueError(f"the database {shown} cannot be reached or written: {text}") from None


def _hide_password(url: str) -> str:
    return re.sub(r"(//[^:/@]*):[^@]*@", r"\1:...@", url)
