"""The commands for analysis: tmln pareto, ranks, overhead, landscape, barrier."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tmln.cli.echo import echo, echo_block, echo_note
from tmln.cli.options import (
    Benchmark,
    Epochs,
    Methods,
    Runs,
    RunsArgument,
    Seeds,
    Settings,
    Threads,
    parse_configs,
    split_names,
)
from tmln.cli.tables import FormatOption, finished_results, print_for_programs, print_grid

if TYPE_CHECKING:
    from tmln.experiments.config import RunConfig

Picture = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Figure: NAME.png, .svg, .pdf.")]


def pareto(
    runs: RunsArgument = Path("runs"),
    output: Picture = None,
    format: FormatOption = "table",
    x: Annotated[str, typer.Option(metavar="METRIC", help="Metric on the horizontal axis.")] = "int",
    y: Annotated[str, typer.Option(metavar="METRIC", help="Metric on the vertical axis.")] = "fm",
) -> None:
    """Find the Pareto fronts of two metrics, and their hypervolumes.

    The front holds the configurations that no other beats in both metrics.

    \b
    Example:
      tmln pareto runs -o front.pdf
    """
    from tmln.analysis.fronts import (
        configuration_lines,
        front_records,
        front_tree,
        fronts_of,
        volume_lines,
        volume_notes,
    )
    from tmln.analysis.rows import group_by_table, group_rows
    from tmln.plots.figure import check_suffix, save_figure

    if output is not None:
        check_suffix(output)
    every = [fronts_of(rows, x, y) for rows in group_by_table(group_rows(finished_results(runs))).values()]
    if output is not None:
        from tmln.plots.fronts import pareto_figure

        save_figure(pareto_figure(every), output)
    if not print_for_programs(format, front_records(every), front_tree(every)):
        for fronts in every:
            print_grid(format, configuration_lines(fronts), fronts.benchmark)
            print_grid(format, volume_lines(fronts))
            for note in volume_notes(fronts):
                echo_note(note, err=format != "table")
    if output is not None:
        echo(f"picture: {output}", err=format != "table")


def ranks(
    runs: RunsArgument = Path("runs"),
    output: Picture = None,
    format: FormatOption = "table",
    metric: Annotated[str, typer.Option(metavar="METRIC", help="Metric to rank by.")] = "acc",
) -> None:
    """Rank methods over several benchmarks.

    Mean ranks, Friedman's test, Nemenyi's critical difference and its diagram.

    \b
    Example:
      tmln ranks runs -o ranks.pdf
    """
    from tmln.analysis.ranks import explain_missing_ranks, rank_lines, rank_methods, rank_notes, rank_records
    from tmln.analysis.rows import columns_of, group_rows
    from tmln.plots.figure import check_suffix, save_figure

    if output is not None:
        check_suffix(output)
    rows = group_rows(finished_results(runs))
    columns_of(rows, [metric])  # refuses what is no metric
    found = rank_methods(rows, metric)
    if found is None:
        raise ValueError(
            f"ranks are over two benchmarks or more, of two methods or more that ran on all of them; {runs} has "
            f"{explain_missing_ranks(rows, metric)}"
        )
    if output is not None:
        from tmln.plots.ranks import ranks_figure

        save_figure(ranks_figure(found), output)
    records = rank_records(found)
    if not print_for_programs(format, records, records):
        print_grid(format, rank_lines(found), "methods by benchmarks")
        for note in rank_notes(found):
            echo_note(note, err=format != "table")
    if output is not None:
        echo(f"picture: {output}", err=format != "table")


def overhead(
    benchmark: Benchmark = None,
    methods: Methods = "naive,er,ewc++,rwalk,upgd,ocar,tmln",
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Rounds of each method; more make intervals narrower.")
    ] = 10,
    steps: Annotated[
        int, typer.Option(min=1, metavar="N", help="Steps per round; multiples of 50 include all periodic work.")
    ] = 50,
    sets: Settings = None,
    threads: Threads = None,
    peak: Annotated[bool, typer.Option(help="Also measure peak memory, in one process per method.")] = True,
    output: Picture = None,
    runs: Runs = Path("runs"),
    format: FormatOption = "table",
) -> None:
    """Measure each method's time and memory over naive training.

    \b
    Example:
      tmln overhead --benchmark split-digits --methods naive,er,tmln -o overhead.png
    """
    import torch

    from tmln.analysis.measurements import overhead_lines, overhead_notes, overhead_records, save_analysis
    from tmln.measure.overhead import measure_overhead
    from tmln.plots.figure import check_suffix, new_figure, save_figure
    from tmln.plots.overhead import overhead_figure

    if output is not None:
        check_suffix(output)
        new_figure(1, 1)  # fails without matplotlib, before long work
    configs = parse_configs(benchmark, split_names(methods), sets=sets)
    if threads is not None:
        torch.set_num_threads(threads)
    content = measure_overhead(configs, rounds, steps, peak=peak)
    saved = save_analysis(runs, "overhead", configs[0].benchmark, content)
    if output is not None:
        save_figure(overhead_figure(content), output)
    if not print_for_programs(format, overhead_records(content), content):
        print_grid(format, overhead_lines(content, formulas=format != "table"), configs[0].benchmark)
        for note in overhead_notes(content):
            echo_note(note, err=format != "table")
    for what, path in (("saved", saved), ("picture", output)):
        if path is not None:
            echo(f"{what}: {path}", err=format != "table")


Mode = Literal["plane", "random"]  # directions of the landscape
BatchNorm = Literal["keep", "reestimate"]  # running statistics as saved, or estimated again at every point
Split = Literal["test", "train"]  # the samples of the loss
Samples = Annotated[int, typer.Option(min=1, metavar="N", help="Samples of a task, the same at every point.")]
SplitOption = Annotated[Split, typer.Option(metavar="NAME", help="Samples of the test or train split.")]
Statistics = Annotated[
    BatchNorm,
    typer.Option(metavar="NAME", help="Batch norm statistics: keep (interpolated) or reestimate."),
]
Figure = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Figure: NAME.png, .svg, .pdf.")]


def landscape(
    methods: Methods,
    benchmark: Benchmark = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of all methods.")] = 0,
    epochs: Epochs = None,
    sets: Settings = None,
    resolution: Annotated[int, typer.Option(min=2, metavar="N", help="Grid points per side.")] = 25,
    samples: Samples = 500,
    mode: Annotated[
        Mode, typer.Option(metavar="NAME", help="plane (of start and solutions), or random directions.")
    ] = "plane",
    checkpoints: Annotated[
        int, typer.Option(min=1, metavar="N", help="Recorded points of the trajectory per task.")
    ] = 20,
    bn: Statistics = "keep",
    split: SplitOption = "test",
    runs: Runs = Path("runs"),
    output: Figure = Path("landscape.png"),
    threads: Threads = None,
) -> None:
    """Plot the first task's loss landscape, methods side by side.

    \b
    Example:
      tmln landscape --benchmark split-digits --methods naive,er,tmln -o landscape.png
    """
    configs = _configs(benchmark, methods, 1, epochs, [*(sets or []), f"seed={seed}"], output, threads)
    from tmln.experiments.store import Store
    from tmln.measure.landscape import measure_landscape as measure
    from tmln.plots.landscape import format_residual, landscape_figure

    found = measure(
        configs,
        Store(runs),
        resolution=resolution,
        samples=samples,
        mode=mode,
        bn=bn,
        split=split,
        checkpoints=checkpoints,
    )
    lines = [["method", "1: start", "end of 1", "end of 2", "2: start", "end of 1", "end of 2", "off plane"]]
    for entry in found["methods"]:
        if entry["problem"]:
            echo(f"{entry['label']} is not drawn: {entry['problem']}", err=True)
            continue
        if entry["note"]:
            echo(entry["note"], err=True)
        losses = [f"{loss:.3g}" for moments in entry["losses"].values() for loss in moments.values()]
        lines.append([entry["label"], *losses, format_residual(entry["residual"])])
    print_grid(
        "table",
        lines,
        f"{found['benchmark']}, seed {seed}: loss of tasks 1 and 2 ({found['samples']} {split} samples)",
    )
    echo("off plane: root mean square distance of checkpoints from the picture, of that from its origin")
    _save(runs, "landscape", configs, f"s{seed}-{mode}-{bn}", found, landscape_figure(found), output)


def barrier(
    methods: Methods,
    benchmark: Benchmark = None,
    seeds: Seeds = 3,
    epochs: Epochs = None,
    sets: Settings = None,
    points: Annotated[int, typer.Option(min=3, metavar="N", help="Points on each line, with its ends.")] = 11,
    samples: Samples = 500,
    bn: Statistics = "keep",
    split: SplitOption = "test",
    runs: Runs = Path("runs"),
    output: Figure = Path("barrier.png"),
    threads: Threads = None,
) -> None:
    """Measure loss barriers between the solutions of consecutive tasks.

    Loss of earlier tasks on the straight line from one solution to the next.

    \b
    Example:
      tmln barrier --benchmark split-digits --methods naive,er,tmln --seeds 3 -o barrier.png
    """
    configs = _configs(benchmark, methods, seeds, epochs, sets, output, threads)
    from tmln.experiments.store import Store
    from tmln.measure.barrier import measure_barriers
    from tmln.plots.barrier import barrier_figure, format_short

    found = measure_barriers(configs, Store(runs), points=points, samples=samples, bn=bn, split=split)
    lines = [["method", "n", "barrier ↓", "climb ↓", "accuracy barrier % ↓", "loss at the ends"]]
    for entry in found["methods"]:
        for problem in entry["problems"]:
            echo(f"{entry['label']}: {problem}", err=True)
        summary = entry["summary"]
        cells = [_cell(summary[key], scale) for key, scale in (("barrier", 1), ("climb", 1), ("accuracy_barrier", 100))]
        ends = " to ".join(format_short(summary[key]["mean"]) for key in ("before", "after")) if entry["seeds"] else "-"
        lines.append([entry["label"], str(len(entry["seeds"])), *cells, ends])
    print_grid("table", lines, f"{found['benchmark']}: the loss of earlier tasks from solution to solution")
    echo_block(
        "barrier: the most by which it exceeds the straight line between both ends (Frankle et al. 2020)\n"
        "climb: the most by which it exceeds its beginning; much can be forgotten without any barrier\n"
        "means over earlier tasks and pairs of solutions, ± sample deviation over n seeds"
    )
    _save(runs, "barrier", configs, f"{seeds}-seeds-{bn}", found, barrier_figure(found), output)


def _configs(
    benchmark: str | None,
    methods: str,
    seeds: int,
    epochs: int | None,
    sets: list[str] | None,
    output: Path,
    threads: int | None,
) -> list[RunConfig]:
    """Return the configurations to measure; check all options before long work."""
    from tmln.plots.figure import check_suffix, new_figure

    check_suffix(output)
    new_figure(1.0, 1.0)
    names = split_names(methods)
    if not names:
        raise ValueError("which methods? --methods naive,ewc++,tmln, say (tmln list methods)")
    configs = parse_configs(benchmark, names, seeds, epochs, sets)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    return configs


def _cell(summary: Mapping[str, Any], scale: float) -> str:
    """Return ``0.12 ± 0.04``, or a dash where there is nothing."""
    from tmln.plots.barrier import format_short

    if not summary["n"]:
        return "-"
    return format_short(scale * summary["mean"]) + (f" ± {scale * summary['std']:.1g}" if summary["n"] > 1 else "")


def _save(
    runs: Path, kind: str, configs: Sequence[RunConfig], what: str, found: Mapping[str, Any], figure: Any, output: Path
) -> None:
    """Save the figure, and its numbers beside the runs."""
    from tmln.analysis.measurements import save_analysis
    from tmln.experiments.config import run_id
    from tmln.plots.figure import save_figure

    digest = hashlib.sha256(" ".join(run_id(config) for config in configs).encode()).hexdigest()[:8]
    path = save_analysis(runs, kind, f"{configs[0].benchmark.partition(':')[0]}-{what}-{digest}", found)
    echo(f"picture: {save_figure(figure, output)}")
    echo(f"numbers: {path}")
