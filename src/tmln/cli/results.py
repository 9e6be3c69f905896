"""The commands that show and share results: tmln show, report, publish, verify."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from tmln.cli.echo import echo
from tmln.cli.options import RunsArgument, ShownReference
from tmln.cli.tables import FormatOption, Layout, TestOption, finished_results, print_results


def show(
    runs: RunsArgument = Path("runs"),
    format: FormatOption = "table",
    baseline: Annotated[
        str | None, typer.Option(metavar="ROW", help="Row to compare the others with; the best by default.")
    ] = None,
    test: Annotated[
        TestOption,
        typer.Option(metavar="NAME", help="Paired test: t, wilcoxon or bootstrap; with Holm's correction."),
    ] = "t",
    metrics: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Metrics, e.g. acc,fm,bwt,rate; by default ACC, FM, INT, seconds."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="One table of these columns: metrics, n, interval, shared, delta, delta_interval, p, holm, "
            "seeds_needed, memory.",
        ),
    ] = None,
    caption: Annotated[str | None, typer.Option(metavar="TEXT", help="Caption of a LaTeX table.")] = None,
    label: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Label of a LaTeX table; tab:BENCHMARK by default.")
    ] = None,
    with_trials: Annotated[bool, typer.Option("--with-trials", help="Also show the trials of searches.")] = False,
    oracle: ShownReference = None,
) -> None:
    """Show a table of finished runs, with tests of differences.

    \b
    Example:
      tmln show runs --format latex --columns acc,fm,delta,holm
    """
    layout = Layout(format, columns, caption, label)
    print_results(finished_results(runs, oracle, with_trials), layout, baseline, metrics, test)


def report(
    runs: RunsArgument = Path("runs"),
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The page to write.")] = Path(
        "report.html"
    ),
    watch: Annotated[
        bool, typer.Option("--watch", help="Write the page again whenever a run ends, until Ctrl-C; it reloads itself.")
    ] = False,
    oracle: ShownReference = None,
) -> None:
    """Write one self-contained HTML page of results.

    \b
    Example:
      tmln report runs -o report.html
      tmln report runs --watch
    """
    from tmln.report.page import watch_report, write_report

    if output.is_dir():
        output = output / "report.html"
    if watch:
        if runs.is_file():
            raise ValueError(f"--watch is for a folder of runs that go on; {runs} is a file")
        echo(f"report: {output} is written again whenever a run ends; Ctrl-C ends this", err=True)
        watch_report(runs, output, oracle)
        return
    echo(f"report: {write_report(runs, output, oracle)}")


def publish(
    runs: Annotated[Path, typer.Argument(metavar="[RUNS]", help="Folder of runs.")] = Path("runs"),
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The file to write.")] = Path(
        "results.json"
    ),
    with_paths: Annotated[
        bool, typer.Option("--with-paths", help="Also runs that name folders of this machine, such as folder:PATH.")
    ] = False,
    light: Annotated[bool, typer.Option("--light", help="Without confusion matrices: a tenth of the size.")] = False,
) -> None:
    """Write results to one file that others can verify.

    It holds accuracy matrices, configurations, versions, commands and a checksum.

    \b
    Example:
      tmln publish runs -o results.json
    """
    from tmln.analysis.published import has_paths
    from tmln.analysis.published import publish as write
    from tmln.analysis.read import read_analyses

    results = finished_results(runs)
    kept = [result for result in results if with_paths or not has_paths(result)]
    if not kept:
        raise ValueError(f"every run in {runs} names a folder of this machine; --with-paths publishes them anyway")
    measured = [one for one in read_analyses(runs) if with_paths or not has_paths(one)]
    checksum = write(kept, output, measured, light=light)
    if len(kept) < len(results):
        echo(
            f"{len(results) - len(kept)} of {len(results)} runs are left out: they name folders of this machine "
            "(--with-paths publishes them anyway)",
            err=True,
        )
    benchmarks = ", ".join(sorted({result.benchmark for result in kept}))
    beside = f", {len(measured)} measurement{'s' * (len(measured) != 1)} beside them" if measured else ""
    echo(f"published: {output}, {len(kept)} run{'s' * (len(kept) != 1)} of {benchmarks}{beside}; checksum {checksum}")


def verify(
    file: Annotated[Path, typer.Argument(help="A published file.")],
    sample: Annotated[int, typer.Option(min=1, metavar="N", help="How many runs to repeat, drawn at random.")] = 3,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Seed of the draw; another each time by default.")
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="POINTS",
            help="Mean difference of accuracies that still matches, on another kind of machine.",
        ),
    ] = 2.0,
    runs: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the runs here, so that a stopped command can continue."),
    ] = None,
) -> None:
    """Repeat random runs of a published file and compare the results.

    \b
    Example:
      tmln verify results.json --sample 3
    """
    from tmln.analysis.published import read_published
    from tmln.analysis.read import find_defect
    from tmln.cli.execution import display_of
    from tmln.executors.plan import state_of
    from tmln.experiments.store import Store
    from tmln.measure.verify import draw_sample, make_jobs, run_again

    results, refused = read_published(file)
    refused |= {result.name: why for result in results if (why := find_defect(result))}
    for name, reason in refused.items():
        echo(f"not believed: {name}: {reason}", err=True)
    believed = [result for result in results if result.name not in refused]
    if not believed:
        raise ValueError(f"{file} holds no run that could be checked")
    seed = secrets.randbelow(10**6) if seed is None else seed
    chosen = draw_sample(believed, sample, seed)
    echo(f"{file.name}: {len(chosen)} of {len(believed)} runs, drawn with --seed {seed}")
    with ExitStack() as opened:
        store = Store(opened.enter_context(TemporaryDirectory(prefix="tmln-verify-")) if runs is None else runs)
        jobs, checks = make_jobs(chosen)
        before = [job for job in jobs.values() if runs is not None and state_of(store, job) == "finished"]
        with display_of([*jobs.values()]) as display:
            checks += run_again(store, chosen, jobs, tolerance / 100, on_event=display.update)
    for check in checks:
        echo(f"{check.state}: {check.name}: {check.text}")
    if before:
        echo(f"{len(before)} of these had been finished in {runs}, and were not run again", err=True)
    matches = sum(check.state == "match" for check in checks)
    echo(f"{matches} of {len(checks)} match")
    if matches < len(checks) or refused:
        raise typer.Exit(1)
