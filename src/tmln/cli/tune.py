"""The command that searches a method's settings: tmln tune."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tmln.cli.options import How, Method, OracleName, Spaces, What, Who, names_in
from tmln.cli.say import say
from tmln.cli.work import display_of, result_of

if TYPE_CHECKING:
    from tmln.lab.result import Result
    from tmln.search.tune import Trial


def tune(
    method: Method = None,
    trials: Annotated[int, typer.Option(min=1, help="How many in all; those of earlier sessions count.")] = 20,
    objective: Annotated[str, typer.Option(help="acc, or several metrics at once: fm,int.")] = "fm,int",
    space: Spaces = None,
    storage: Annotated[
        str | None,
        typer.Option(help="A database URL, e.g. postgresql://USER@HOST/NAME, to share; a file in --out unless given."),
    ] = None,
    what: What = What(),
    how: How = How(),
    who: Who = Who(),
) -> None:
    """Search a method's settings for the best trade-offs; --set holds one fixed. Trials are ordinary runs in --out.

    \b
    Example:
      tmln tune --benchmark split-digits --method tmln --trials 40 --objective fm,int
    """
    from tmln.fleet.crew import cores
    from tmln.fleet.execute import execute
    from tmln.fleet.plan import plan
    from tmln.lab.files import make_folder, refuse_link
    from tmln.lab.oracle import SHARED
    from tmln.lab.store import Store
    from tmln.search.database import in_one_line
    from tmln.search.sweep import read_spaces, spaces_of
    from tmln.search.tune import Search

    objectives, out, seeds, crew = _objectives(objective), how.out, what.seeds, who.crew()
    (base,) = what.configs([method], seeds=1)
    spaces = spaces_of(base, read_spaces(space or []))
    against_joint = any(name.startswith("int") for name in objectives)
    terms = who.terms(how, how.oracle.value if against_joint else "none")
    if against_joint and how.oracle is OracleName.none:
        raise ValueError("INT needs a joint reference: leave --oracle none out, or tune --objective acc")
    store = Store(out)
    make_folder(out)
    refuse_link(out / "tune.sqlite3")
    url = storage or f"sqlite:///{(out / 'tune.sqlite3').resolve()}"
    search = Search(base, spaces, objectives, url, seeds=seeds, shared=storage is not None)
    if against_joint and (own := [key for key in spaces if key.partition(".")[0] in SHARED]):
        say(f"each {' and '.join(own)} has a joint reference of its own, to be run as well", err=True)
    say(f"searching {', '.join(f'{key} in {where}' for key, where in spaces.items())}", err=True)

    def run(trials: Sequence[Trial]) -> list[list[Result | None]]:
        points = [[trial.config.with_setting("seed", base.seed + k) for k in range(seeds)] for trial in trials]
        jobs = plan([config for point in points for config in point], terms.oracle)
        with display_of(jobs, brief=True) as display:
            failures = execute(store, jobs, terms, crew, pool=pool, on_event=display.note)
        for failure in failures:
            say(f"failed: {failure.job.label}: {failure.error}", err=True)
        return [[result_of(store, config) for config in point] for point in points]

    with in_one_line(url), crew.pool(who.threads) as pool:
        before = len(search.ended())
        if before:
            say(f"{before} trials are there already", err=True)
        batch = max(1, (who.workers or cores()) // seeds)
        search.search(trials, batch, run, lambda trial: say(_trial_line(trial, objectives), err=True))
    _best(search.best(), objectives, seeds, out)


def _objectives(text: str) -> dict[str, bool]:
    """Metrics, and whether more of each is better."""
    from tmln.metrics import METRICS, metric_of, row_of
    from tmln.suggest import did_you_mean

    names = names_in(text.lower())
    for name in names:
        if row_of(name) is None:
            raise ValueError(f"unknown objective {name!r}{did_you_mean(name, METRICS)} (metrics: {', '.join(METRICS)})")
    if not names:
        raise ValueError("an objective is a metric, e.g. acc, or several: fm,int")
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


def _best(trials: Sequence[Trial], objectives: Mapping[str, bool], seeds: int, out: Path) -> None:
    from tmln.lab.command import command_of

    if not trials:
        raise ValueError("no trial came to an end that counts; see what each said above")
    none_beats = "those that no other beats in all of them" if len(objectives) > 1 else "the best"
    say(f"{none_beats}, and the command for each:")
    for trial in trials:
        say(f"{_values(trial, objectives)} (trial {trial.number})")
        say(f"  {command_of(trial.config, seeds)} --out {shlex.quote(str(out))}")
