"""The commands for results that others can check: tmln publish, verify."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from tmln.cli.echo import say
from tmln.printable import one_line


def publish(
    runs: Annotated[Path, typer.Argument(help="A folder of runs.")] = Path("runs"),
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")] = Path("results.json"),
    with_paths: Annotated[
        bool, typer.Option("--with-paths", help="Also runs that name folders of this machine, as folder:PATH does.")
    ] = False,
    light: Annotated[
        bool,
        typer.Option("--light", help="Without confusions, at a tenth of the size; metrics stay."),
    ] = False,
) -> None:
    """Write one file of results that others can check: matrices, configurations, versions, commands, a checksum.

    \b
    Example:
      tmln publish runs -o results.json
    """
    from tmln.analysis.published import names_places
    from tmln.analysis.published import publish as write
    from tmln.analysis.read import read_analyses
    from tmln.cli.tables import finished_results

    results = finished_results(runs)
    kept = [result for result in results if with_paths or not names_places(result)]
    if not kept:
        raise ValueError(
            f"every run in {runs} names a folder of this machine; --with-paths publishes them all the same"
        )
    measured = [one for one in read_analyses(runs) if with_paths or not names_places(one)]
    checksum = write(kept, output, measured, light=light)
    if len(kept) < len(results):
        say(
            f"{len(results) - len(kept)} of {len(results)} runs are left out: they name folders of this machine "
            "(--with-paths publishes them all the same)",
            err=True,
        )
    where = ", ".join(sorted({result.benchmark for result in kept}))
    beside = f", {len(measured)} measurement{'s' * (len(measured) != 1)} beside them" if measured else ""
    say(f"published: {output}, {len(kept)} run{'s' * (len(kept) != 1)} of {where}{beside}; checksum {checksum}")


def verify(
    file: Annotated[Path, typer.Argument(help="A published file.")],
    sample: Annotated[int, typer.Option(min=1, help="How many runs to do again, drawn at random.")] = 3,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the draw; another one each time unless given.")] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0, help="In points, the mean difference of accuracies on learned tasks, on another kind of machine."
        ),
    ] = 2.0,
    out: Annotated[
        Path | None,
        typer.Option(help="Keep the runs in this folder, so that a command that is stopped can go on."),
    ] = None,
) -> None:
    """Run a random few of a published file again, and say whether they match, differ, or cannot be run.

    \b
    Example:
      tmln verify results.json --sample 3
    """
    from tmln.analysis.published import read_published
    from tmln.analysis.validity import complaint
    from tmln.cli.work import display_of
    from tmln.executors.plan import state_of
    from tmln.experiments.store import Store
    from tmln.measure.verify import draw_sample, make_jobs, run_again

    results, refused = read_published(file)
    refused |= {result.name: why for result in results if (why := complaint(result))}
    for name, reason in refused.items():
        say(one_line(f"not believed: {name}: {reason}"), err=True)
    believed = [result for result in results if result.name not in refused]
    if not believed:
        raise ValueError(f"{file} holds no run that could be checked")
    seed = secrets.randbelow(10**6) if seed is None else seed
    chosen = draw_sample(believed, sample, seed)
    say(f"{file.name}: {len(chosen)} of {len(believed)} runs, drawn with --seed {seed}")
    with ExitStack() as opened:
        store = Store(opened.enter_context(TemporaryDirectory(prefix="tmln-verify-")) if out is None else out)
        jobs, verdicts = make_jobs(chosen)
        before = [job for job in jobs.values() if out is not None and state_of(store, job) == "finished"]
        with display_of([*jobs.values()]) as display:
            verdicts += run_again(store, chosen, jobs, tolerance / 100, on_event=display.note)
    for verdict in verdicts:
        say(one_line(f"{verdict.state}: {verdict.name}: {verdict.text}"))
    if before:
        say(f"{len(before)} of these had been finished in {out}, and were not run again", err=True)
    matches = sum(verdict.state == "match" for verdict in verdicts)
    say(f"{matches} of {len(verdicts)} match")
    if matches < len(verdicts) or refused:
        raise typer.Exit(1)
