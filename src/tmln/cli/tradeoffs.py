"""The commands that weigh methods against each other: tmln pareto, ranks, overhead."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tmln.cli.echo import say
from tmln.cli.options import Out, Sets, Threads
from tmln.cli.parse_configs import configs_of, names_in
from tmln.cli.tables import Format, FormatOption, finished_results, print_grid, print_whole

Picture = Annotated[Path | None, typer.Option("-o", "--output", help="A picture: NAME.png, .svg or .pdf.")]


def pareto(
    runs: Annotated[Path, typer.Argument(help="A folder of runs.")] = Path("runs"),
    output: Picture = None,
    format: FormatOption = Format.table,
    x: Annotated[str, typer.Option(help="The metric on the horizontal axis.")] = "int",
    y: Annotated[str, typer.Option(help="The metric on the vertical axis.")] = "fm",
) -> None:
    """Which configurations no other beats in two metrics at once: fronts by method and overall, and hypervolumes.

    \b
    Example:
      tmln pareto runs -o front.pdf
    """
    from tmln.analysis.fronts import fronts_of
    from tmln.analysis.rows import comparable, rows_of
    from tmln.analysis.tables import configuration_lines, front_records, front_tree, volume_lines, volume_notes
    from tmln.plots.figure import checked_suffix, save_figure

    if output is not None:
        checked_suffix(output)
    every = [fronts_of(rows, x, y) for rows in comparable(rows_of(finished_results(runs))).values()]
    if output is not None:
        from tmln.plots.fronts import pareto_figure

        save_figure(pareto_figure(every), output)
    if not print_whole(format, front_records(every), front_tree(every)):
        for fronts in every:
            print_grid(format, configuration_lines(fronts), fronts.benchmark)
            print_grid(format, volume_lines(fronts))
            for note in volume_notes(fronts):
                say(note, err=format is not Format.table)
    if output is not None:
        say(f"picture: {output}", err=format is not Format.table)


def ranks(
    runs: Annotated[Path, typer.Argument(help="A folder of runs on several benchmarks.")] = Path("runs"),
    output: Picture = None,
    format: FormatOption = Format.table,
    metric: Annotated[str, typer.Option(help="By which methods are ranked.")] = "acc",
) -> None:
    """Methods over several benchmarks: mean ranks, Friedman's test, Nemenyi's critical difference and its diagram.

    \b
    Example:
      tmln ranks runs -o ranks.pdf
    """
    from tmln.analysis.across_benchmarks import across, why_no_ranks
    from tmln.analysis.across_table import across_lines, across_notes, across_records
    from tmln.analysis.rows import columns_of, rows_of
    from tmln.plots.figure import checked_suffix, save_figure

    if output is not None:
        checked_suffix(output)
    rows = rows_of(finished_results(runs))
    columns_of(rows, [metric])  # refuses what is no metric
    found = across(rows, metric)
    if found is None:
        raise ValueError(
            f"ranks are over two benchmarks or more, of two methods or more that ran on all of them; {runs} has "
            f"{why_no_ranks(rows, metric)}"
        )
    if output is not None:
        from tmln.plots.ranks import ranks_figure

        save_figure(ranks_figure(found), output)
    records = across_records(found)
    if not print_whole(format, records, records):
        print_grid(format, across_lines(found), "methods by benchmarks")
        for note in across_notes(found):
            say(note, err=format is not Format.table)
    if output is not None:
        say(f"picture: {output}", err=format is not Format.table)


def overhead(
    benchmark: Annotated[str, typer.Option(help="A name from `tmln list benchmarks`, or folder:PATH.")],
    methods: Annotated[str, typer.Option(help="Names from `tmln list methods`, with commas between.")] = (
        "naive,er,ewc++,rwalk,upgd,ocar,tmln"
    ),
    rounds: Annotated[int, typer.Option(min=1, help="Turns of each method; more make intervals narrower.")] = 10,
    steps: Annotated[int, typer.Option(min=1, help="Steps a turn; a multiple of 50 has all that is periodic.")] = 50,
    sets: Sets = None,
    threads: Threads = None,
    peak: Annotated[bool, typer.Option(help="Measure peak memory too, each method in a process of its own.")] = True,
    output: Picture = None,
    out: Out = Path("runs"),
    format: FormatOption = Format.table,
) -> None:
    """What each method costs over naive training: time of a step and of a task boundary, and memory.

    \b
    Example:
      tmln overhead --benchmark split-digits --methods naive,er,tmln -o overhead.png
    """
    import torch

    from tmln.analysis.measurements import save_analysis
    from tmln.analysis.overhead_table import overhead_lines, overhead_notes, overhead_records
    from tmln.measure.overhead import measure_overhead
    from tmln.plots.figure import checked_suffix, new_figure, save_figure
    from tmln.plots.overhead import overhead_figure

    if output is not None:
        checked_suffix(output)
        new_figure(1, 1)  # is matplotlib there? asked before long work
    if threads is not None:
        torch.set_num_threads(threads)
    content = measure_overhead(configs_of(benchmark, names_in(methods), sets=sets), rounds, steps, peak=peak)
    saved = save_analysis(out, "overhead", benchmark, content)
    if output is not None:
        save_figure(overhead_figure(content), output)
    if not print_whole(format, overhead_records(content), content):
        print_grid(format, overhead_lines(content, formulas=format is not Format.table), benchmark)
        for note in overhead_notes(content):
            say(note, err=format is not Format.table)
    for what, path in (("saved", saved), ("picture", output)):
        if path is not None:
            say(f"{what}: {path}", err=format is not Format.table)
