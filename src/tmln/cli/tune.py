"""The command that searches the settings of methods: tmln tune."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tmln.cli.echo import say
from tmln.cli.options import How, Method, OracleName, Spaces, What, run_options
from tmln.cli.parse_configs import method_names, names_in
from tmln.cli.work import display_of, result_of, work
from tmln.executors.config import ExecutorConfig

if TYPE_CHECKING:
    from tmln.executors.interfaces import Executor
    from tmln.experiments.config import RunConfig
    from tmln.experiments.result import Result
    from tmln.experiments.run_options import RunOptions
    from tmln.experiments.store import Store
    from tmln.tuning.protocol import Tuned
    from tmln.tuning.space import Space
    from tmln.tuning.tune import Trial

FINAL_SEEDS = 5  # of what is chosen, where methods are compared


def tune(
    method: Method = None,
    methods: Annotated[
        str | None, typer.Option(help="Several, with commas between: the same number of trials for each.")
    ] = None,
    trials: Annotated[
        int,
        typer.Option("--trials", "--budget", min=1, help="How many for each method; those of earlier sessions count."),
    ] = 20,
    objective: Annotated[
        str | None,
        typer.Option(help="val_acc unless given, or several metrics at once: val_fm,val_learning_accuracy."),
    ] = None,
    space: Spaces = None,
    storage: Annotated[
        str | None,
        typer.Option(help="A database URL, e.g. postgresql://USER@HOST/NAME, to share; a file in --out unless given."),
    ] = None,
    final_seeds: Annotated[
        int | None,
        typer.Option(min=0, help="Fresh seeds for what is chosen; 5 with --methods or --report-on, else none."),
    ] = None,
    report_on: Annotated[
        str | None, typer.Option(metavar="BENCHMARK", help="Run what is chosen on this benchmark instead.")
    ] = None,
    give_back: Annotated[
        bool,
        typer.Option("--give-back", help="Run what is chosen on the validation data, too; else the split is kept."),
    ] = False,
    what: What = What(),
    how: How = How(),
    executor: ExecutorConfig = ExecutorConfig(),
) -> None:
    """Search settings on validation data, a tenth of the training data; --set holds one fixed. Trials are runs.

    \b
    Example:
      tmln tune --benchmark split-digits --methods er,tmln --budget 20 --final-seeds 5
    """
    from tmln.experiments.files import make_folder, refuse_link, to_json, write_whole
    from tmln.experiments.identity import canonical
    from tmln.metrics import metric_of
    from tmln.seeds import seed_of
    from tmln.tuning.database import in_one_line
    from tmln.tuning.protocol import final_configs, fresh_seeds, how_chosen, record, with_split, without_split
    from tmln.tuning.sweep import read_spaces, spaces_for

    names, out, seeds = method_names(method, methods), how.out, what.seeds
    bases = [with_split(base) for base in what.configs(names, seeds=1)]
    objectives = _objectives(objective, bases)
    spaces, notes = spaces_for(bases, read_spaces(space or []))
    count = final_seeds if final_seeds is not None else FINAL_SEEDS if methods or report_on else 0
    stages = bases if report_on is None else _on(report_on, what, names)
    stages = [without_split(stage) for stage in stages] if give_back else stages
    if report_on is not None and not count:
        raise ValueError("--report-on runs what is chosen: --final-seeds is at least 1 with it")
    if count and len(objectives) > 1:
        raise ValueError("what is run with fresh seeds is chosen by one objective: --objective val_acc, say")
    against_joint = any(metric_of(name).against_reference for name in objectives)
    if against_joint and how.oracle is OracleName.none:
        raise ValueError("INT needs a joint reference: leave --oracle none out, or tune --objective val_acc")
    terms = run_options(how, how.oracle.value if against_joint else "none", executor)
    for note in notes:
        say(note, err=True)
    make_folder(out)
    refuse_link(out / "tune.sqlite3")
    url = storage or f"sqlite:///{(out / 'tune.sqlite3').resolve()}"
    with in_one_line(url), executor.pool() as pool:
        task = _Task(objectives, trials, seeds, url, storage is not None, out, executor, terms, pool)
        searches = [task.tuned(base, where, len(bases) > 1) for base, where in zip(bases, spaces, strict=True)]
    fresh = fresh_seeds(bases[0].seed, seeds, count)
    finals = [
        config for tuned, stage in zip(searches, stages, strict=True) for config in final_configs(tuned, stage, fresh)
    ]
    used = range(bases[0].seed, bases[0].seed + seeds)
    kept = record(searches, tuple(objectives), used, finals)
    asked = [canonical([kept["objectives"], kept["seeds"], trials, kept["final_runs"]])]
    asked += [canonical([one["config"], one["spaces"]]) for one in kept["methods"]]
    path = out / f"tune-{seed_of(0, ' '.join(asked)):016x}.json"
    write_whole(path, to_json(kept, indent=1) + "\n")
    say(f"the search: {path}", err=True)
    if finals:
        work(finals, how, executor)
        where = f" of {bases[0].benchmark}" if report_on else ""
        say(f"each method: {how_chosen(tuple(objectives), trials)}{where}, then run with seeds none of them saw")
    elif count:
        raise ValueError("no trial came to an end that counts; see what each said above")


def _on(benchmark: str, what: What, names: Sequence[str | None]) -> list[RunConfig]:
    """The same methods on another benchmark, where nothing is chosen: no split unless --set asks for one."""
    from dataclasses import replace

    return replace(what, benchmark=benchmark).configs(names, seeds=1)


class _Task:
    """What the searches of all methods share."""

    def __init__(
        self,
        objectives: Mapping[str, bool],
        trials: int,
        seeds: int,
        url: str,
        shared: bool,
        out: Path,
        executor: ExecutorConfig,
        terms: RunOptions,
        pool: Executor,
    ) -> None:
        from tmln.experiments.store import Store

        self.objectives, self.trials, self.seeds, self.url, self.shared = objectives, trials, seeds, url, shared
        self.out, self.executor, self.terms, self.pool = out, executor, terms, pool
        self.store: Store = Store(out)

    def tuned(self, base: RunConfig, spaces: Mapping[str, Space], several: bool) -> Tuned:
        """One method's search, to its end; of several, one without a trial that counts is said and left out."""
        from tmln.executors.config import cores
        from tmln.experiments.reference_runs import SHARED
        from tmln.tuning.protocol import Tuned
        from tmln.tuning.tune import Search

        search = Search(base, spaces, self.objectives, self.url, seeds=self.seeds, shared=self.shared)
        if self.terms.oracle != "none" and (own := [key for key in spaces if key.partition(".")[0] in SHARED]):
            say(f"each {' and '.join(own)} has a joint reference of its own, to be run as well", err=True)
        head = f"{base.method}: " if several else ""
        say(f"{head}searching {', '.join(f'{key} in {where}' for key, where in spaces.items())}", err=True)
        if before := len(search.ended()):
            say(f"{head}{before} trials are there already", err=True)
        batch = max(1, (self.executor.workers or cores()) // self.seeds)
        on_trial = lambda trial: say(head + _trial_line(trial, self.objectives), err=True)  # noqa: E731
        search.search(self.trials, batch, self._run, on_trial, _waiting(head))
        best, ended = search.best(), search.ended()
        if not best and several:
            say(f"{head}no trial came to an end that counts; left out", err=True)
        else:
            self._best(best, len(ended), head)
        return Tuned(base, spaces, ended, best[0] if best else None)

    def _points(self, trial: Trial) -> list[RunConfig]:
        return [trial.config.with_setting("seed", trial.config.seed + k) for k in range(self.seeds)]

    def _run(self, trials: Sequence[Trial]) -> list[list[Result | None]]:
        from tmln.executors.execute import execute
        from tmln.executors.plan import plan

        points = [self._points(trial) for trial in trials]
        jobs = plan([config for point in points for config in point], self.terms.oracle)
        with display_of(jobs, brief=True) as display:
            failures = execute(self.store, jobs, self.terms, self.executor, pool=self.pool, on_event=display.note)
        for failure in failures:
            say(f"failed: {failure.job.label}: {failure.error}", err=True)
        return [[result_of(self.store, config) for config in point] for point in points]

    def _best(self, trials: Sequence[Trial], ended: int, head: str) -> None:
        from tmln.experiments.command import command_of
        from tmln.tuning.protocol import how_chosen
        from tmln.tuning.tune import judge

        if not trials:
            raise ValueError("no trial came to an end that counts; see what each said above")
        none_beats = "those that no other beats in all of them" if len(self.objectives) > 1 else "the best"
        say(f"{head}{none_beats}, {how_chosen(tuple(self.objectives), ended)}, and the command for each:")
        for trial in trials:
            tested = judge([result_of(self.store, config) for config in self._points(trial)], ("acc",))
            known = "acc" in self.objectives or isinstance(tested, str)
            test = "" if known else f", test ACC {100 * float(tested[0]):.1f}"
            say(f"{_values(trial, self.objectives)}{test} (trial {trial.number})")
            say(f"  {command_of(trial.config, self.seeds)} --out {shlex.quote(str(self.out))}")


def _waiting(head: str) -> Callable[[int], None]:
    """Says what is waited for whenever that changes."""
    before = -1

    def on_wait(others: int) -> None:
        nonlocal before
        if others != before:
            before = others
            say(f"{head}waiting for {others} trials that other processes are at", err=True)

    return on_wait


def _objectives(text: str | None, bases: Sequence[RunConfig]) -> dict[str, bool]:
    """Metrics, and whether more of each is better; those of the validation split need one."""
    from tmln.metrics import METRICS, metric_of, row_of
    from tmln.suggest import did_you_mean
    from tmln.tuning.protocol import has_split

    split = all(has_split(base) for base in bases)
    names = ["val_acc" if split else "acc"] if text is None else names_in(text.lower())
    for name in names:
        if row_of(name) is None:
            raise ValueError(f"unknown objective {name!r}{did_you_mean(name, METRICS)} (metrics: {', '.join(METRICS)})")
        if name.startswith("val_") and not split:
            raise ValueError(f"{name} needs a validation split: leave benchmark.validation out, or above 0")
    if not names:
        raise ValueError("an objective is a metric, e.g. val_acc, or several: val_fm,val_learning_accuracy")
    return {name: metric_of(name).more_is_better for name in names}


def _values(trial: Trial, objectives: Mapping[str, bool]) -> str:
    from tmln.metrics import metric_of

    said = []
    for name, value in zip(objectives, trial.values or (), strict=True):
        metric = metric_of(name)
        said.append(f"{metric.heading} {100 * value:.1f}" if metric.percent else f"{metric.heading} {value:.1f}")
    return ", ".join(said)


def _trial_line(trial: Trial, objectives: Mapping[str, bool]) -> str:
    where = " ".join(f"{key}={value}" for key, value in trial.params.items())
    return f"trial {trial.number}: {_values(trial, objectives) if trial.values else trial.why} ({where})"
