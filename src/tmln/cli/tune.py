"""The command that searches the settings of methods: tmln tune."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from tmln.cli.echo import echo
from tmln.cli.execution import check_data_of, display_of, print_failures, run_configs
from tmln.cli.options import (
    Method,
    RecordingOptions,
    ReferenceOption,
    SeveralMethods,
    Spaces,
    Training,
    choose_methods,
    run_options,
    split_names,
)
from tmln.executors.config import ExecutorConfig

if TYPE_CHECKING:
    from tmln.executors.interfaces import Executor
    from tmln.experiments.config import RunConfig
    from tmln.experiments.launch import RunOptions
    from tmln.experiments.result import Result
    from tmln.experiments.store import Store
    from tmln.tuning.protocol import Tuned
    from tmln.tuning.search import Trial
    from tmln.tuning.space import Space

FINAL_SEEDS = 5  # of chosen settings, where methods are compared
SEARCH = "Search"


def tune(
    method: Method = None,
    methods: SeveralMethods = None,
    training: Training = Training(),
    trials: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Trials per method, with earlier ones.", rich_help_panel=SEARCH),
    ] = 20,
    objective: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Metrics to optimise; val_acc by default.", rich_help_panel=SEARCH),
    ] = None,
    space: Spaces = None,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Shared database, e.g. postgresql://USER@HOST/NAME; by default a file in --runs.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    final_seeds: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="New seeds for the chosen settings; 5 with --methods or --report-on, else 0.",
            rich_help_panel=SEARCH,
        ),
    ] = None,
    report_on: Annotated[
        str | None,
        typer.Option(metavar="BENCHMARK", help="Run the chosen settings on this one.", rich_help_panel=SEARCH),
    ] = None,
    give_back: Annotated[
        bool,
        typer.Option("--give-back", help="Train final runs on the validation data, too.", rich_help_panel=SEARCH),
    ] = False,
    tune_seeds: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Seeds of each trial, which counts by their mean.", rich_help_panel=SEARCH
        ),
    ] = None,
    recording: RecordingOptions = RecordingOptions(),
    oracle: ReferenceOption = None,
    executor: ExecutorConfig = ExecutorConfig(),
) -> None:
    """Search settings on validation data, a tenth of the training data.

    Settings given by --set stay fixed. Trials are ordinary runs.

    \b
    Example:
      tmln tune --benchmark split-digits --methods er,tmln --trials 20 --final-seeds 5
    """
    from tmln.experiments.files import make_folder, refuse_link, to_json, write_whole
    from tmln.experiments.identity import canonical
    from tmln.experiments.store import Store
    from tmln.metrics import metric_of
    from tmln.seeds import seed_of
    from tmln.tuning.protocol import (
        describe_effort,
        describe_searches,
        final_configs,
        fresh_seeds,
        how_chosen,
        with_split,
        without_split,
    )
    from tmln.tuning.search import database_errors, require_optuna
    from tmln.tuning.sweep import read_spaces, spaces_for

    names, runs, seeds = choose_methods(method, methods), recording.runs, tune_seeds or training.seeds
    bases = [with_split(base) for base in training.configs(names, seeds=1)]
    objectives = _read_objectives(objective, bases)
    spaces, notes = spaces_for(bases, read_spaces(space or []))
    count = final_seeds if final_seeds is not None else FINAL_SEEDS if methods or report_on else 0
    stages = bases if report_on is None else replace(training, benchmark=report_on).configs(names, seeds=1)
    stages = [without_split(stage) for stage in stages] if give_back else stages
    if report_on is not None and not count:
        raise ValueError("--report-on runs what is chosen: --final-seeds must be at least 1")
    if count and len(objectives) > 1:
        raise ValueError("what is run with fresh seeds is chosen by one objective: --objective val_acc, say")
    against_joint = any(metric_of(name).against_reference for name in objectives)
    if against_joint and oracle == "none":
        raise ValueError("INT needs a joint reference: leave --int-reference none out, or tune --objective val_acc")
    oracle = oracle or ("prefix" if against_joint else None)
    options = run_options(recording, oracle if oracle and against_joint else "none", executor)
    for note in notes:
        echo(note, err=True)
    require_optuna()
    check_data_of([*bases, *(stages if count else ())], executor)
    make_folder(runs)
    refuse_link(runs / "tune.sqlite3")
    url = storage or f"sqlite:///{(runs / 'tune.sqlite3').resolve()}"
    with database_errors(url), executor.open_pool() as pool:
        search = _MethodSearch(
            objectives, trials, seeds, url, storage is not None, Store(runs), executor, options, pool
        )
        searches = [search.run(base, where, len(bases) > 1) for base, where in zip(bases, spaces, strict=True)]
    fresh = fresh_seeds(bases[0].seed, seeds, count)
    finals = [
        config for tuned, stage in zip(searches, stages, strict=True) for config in final_configs(tuned, stage, fresh)
    ]
    used = range(bases[0].seed, bases[0].seed + seeds)
    kept = describe_searches(searches, tuple(objectives), used, finals)
    requested = [canonical([kept["objectives"], kept["seeds"], trials, kept["final_runs"]])]
    requested += [canonical([one["config"], one["spaces"]]) for one in kept["methods"]]
    path = runs / f"tune-{seed_of(0, ' '.join(requested)):016x}.json"
    write_whole(path, to_json(kept, indent=1) + "\n")
    echo(f"the search: {path}", err=True)
    if finals:
        run_configs(finals, recording, oracle, executor)
        where = f" of {bases[0].benchmark}" if report_on else ""
        echo(f"each method: {how_chosen(tuple(objectives), trials)}{where}, then run with seeds none of them saw")
        for line in describe_effort(searches):
            echo(line)
    elif count:
        raise ValueError("no trial succeeded; see the reason of each above")


@dataclass
class _MethodSearch:
    """Search the settings of one method after another, with the same options."""

    objectives: Mapping[str, bool]
    trials: int
    seeds: int
    url: str
    shared: bool
    store: Store
    executor: ExecutorConfig
    options: RunOptions
    pool: Executor

    def run(self, base: RunConfig, spaces: Mapping[str, Space], several: bool) -> Tuned:
        """Search one method's settings; several methods continue if one has no valid trial."""
        from tmln.executors.config import cores
        from tmln.experiments.reference_runs import SHARED
        from tmln.tuning.protocol import Tuned
        from tmln.tuning.search import Search

        search = Search(base, spaces, self.objectives, self.url, seeds=self.seeds, shared=self.shared)
        if self.options.oracle != "none" and (own := [key for key in spaces if key.partition(".")[0] in SHARED]):
            echo(f"each {' and '.join(own)} has a joint reference of its own, to be run as well", err=True)
        head = f"{base.method}: " if several else ""
        echo(f"{head}searching {', '.join(f'{key} in {where}' for key, where in spaces.items())}", err=True)
        if before := len(search.list_ended()):
            echo(f"{head}{before} trials are there already", err=True)
        batch = max(1, (self.executor.workers or cores()) // self.seeds)
        on_trial = lambda trial: echo(head + _trial_line(trial, self.objectives), err=True)  # noqa: E731
        with closing(search):
            search.search(self.trials, batch, self._run_trials, on_trial, _make_waiting_note(head))
            best, ended = search.best(), search.list_ended()
        if not best and several:
            echo(f"{head}no trial succeeded; left out", err=True)
        else:
            self._print_best(best, len(ended), head)
        return Tuned(base, spaces, ended, best[0] if best else None)

    def _points(self, trial: Trial) -> list[RunConfig]:
        return [trial.config.with_setting("seed", trial.config.seed + k) for k in range(self.seeds)]

    def _run_trials(self, trials: Sequence[Trial]) -> list[list[Result | None]]:
        from tmln.executors.execute import execute
        from tmln.executors.plan import plan

        points = [self._points(trial) for trial in trials]
        jobs = plan([config for point in points for config in point], self.options.oracle)
        with display_of(jobs, brief=True) as display:
            failures = execute(self.store, jobs, self.options, self.executor, pool=self.pool, on_event=display.update)
        print_failures(failures)
        return [[self.store.find_result(config) for config in point] for point in points]

    def _print_best(self, trials: Sequence[Trial], ended: int, head: str) -> None:
        from tmln.experiments.command import command_of
        from tmln.tuning.protocol import how_chosen
        from tmln.tuning.search import average_objectives

        if not trials:
            raise ValueError("no trial succeeded; see the reason of each above")
        none_beats = "those that no other beats in all of them" if len(self.objectives) > 1 else "the best"
        echo(f"{head}{none_beats}, {how_chosen(tuple(self.objectives), ended)}, and the command for each:")
        for trial in trials:
            tested = average_objectives([self.store.find_result(config) for config in self._points(trial)], ("acc",))
            known = "acc" in self.objectives or isinstance(tested, str)
            test = "" if known else f", test ACC {100 * float(tested[0]):.1f}"
            echo(f"{_format_values(trial, self.objectives)}{test} (trial {trial.number})")
            echo(f"  {command_of(trial.config, self.seeds)} --runs {shlex.quote(str(self.store.root))}")


def _make_waiting_note(head: str) -> Callable[[int], None]:
    """Return a callback that says how many trials of other processes are running."""
    before = -1

    def on_wait(others: int) -> None:
        nonlocal before
        if others != before:
            before = others
            echo(f"{head}waiting for {others} trials of other processes", err=True)

    return on_wait


def _read_objectives(text: str | None, bases: Sequence[RunConfig]) -> dict[str, bool]:
    """Return the metrics to optimise, and whether more of each is better."""
    from tmln.metrics import METRICS, metric_of, row_of
    from tmln.suggest import did_you_mean
    from tmln.tuning.protocol import has_split

    split = all(has_split(base) for base in bases)
    names = ["val_acc" if split else "acc"] if text is None else split_names(text.lower())
    for name in names:
        if row_of(name) is None:
            raise ValueError(f"unknown objective {name!r}{did_you_mean(name, METRICS)} (metrics: {', '.join(METRICS)})")
        if name.startswith("val_") and not split:
            raise ValueError(f"{name} needs a validation split: leave benchmark.validation out, or above 0")
    if not names:
        raise ValueError("an objective is a metric, e.g. val_acc, or several: val_fm,val_learning_accuracy")
    return {name: metric_of(name).more_is_better for name in names}


def _format_values(trial: Trial, objectives: Mapping[str, bool]) -> str:
    from tmln.metrics import metric_of

    written = []
    for name, value in zip(objectives, trial.values or (), strict=True):
        metric = metric_of(name)
        written.append(f"{metric.heading} {100 * value:.1f}" if metric.percent else f"{metric.heading} {value:.1f}")
    return ", ".join(written)


def _trial_line(trial: Trial, objectives: Mapping[str, bool]) -> str:
    where = " ".join(f"{key}={value}" for key, value in trial.params.items())
    return f"trial {trial.number}: {_format_values(trial, objectives) if trial.values else trial.why} ({where})"
