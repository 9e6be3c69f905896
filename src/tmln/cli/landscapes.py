"""The commands that look into weight space: tmln landscape, barrier."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tmln.cli.echo import say
from tmln.cli.options import Benchmark, Epochs, Methods, Seeds, Sets, Threads
from tmln.cli.parse_configs import configs_of, names_in
from tmln.cli.tables import Format, print_grid

if TYPE_CHECKING:
    from tmln.experiments.config import RunConfig


class Mode(str, Enum):
    """``--mode``: the plane through start and solutions, or random directions around that of task 1."""

    plane = "plane"
    random = "random"


class BatchNorm(str, Enum):
    """``--bn``: running statistics as they were saved, or estimated anew at every point."""

    keep = "keep"
    reestimate = "reestimate"


class Split(str, Enum):
    """``--split``: of which samples the loss is."""

    test = "test"
    train = "train"


Samples = Annotated[int, typer.Option(min=1, help="How many samples of a task the loss is of, the same everywhere.")]
SplitOption = Annotated[Split, typer.Option(help="Whether these are test or training samples.")]
Statistics = Annotated[
    BatchNorm,
    typer.Option(help="Running statistics of batch norm: mixed from the trained networks', or computed at each point."),
]
Out = Annotated[Path, typer.Option(help="The folder of runs; weights are recorded there once, by training again.")]
Picture = Annotated[Path, typer.Option("-o", "--output", help="The picture: NAME.png, .svg or .pdf.")]


def landscape(
    methods: Methods,
    benchmark: Benchmark = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed, which all methods start from.")] = 0,
    epochs: Epochs = None,
    sets: Sets = None,
    resolution: Annotated[int, typer.Option(min=2, help="Points a side of the grid.")] = 25,
    samples: Samples = 500,
    mode: Annotated[
        Mode, typer.Option(help="The plane of start and two solutions, or random filter-normalised directions.")
    ] = Mode.plane,
    checkpoints: Annotated[int, typer.Option(min=1, help="Points of the way that are recorded a task.")] = 20,
    bn: Statistics = BatchNorm.keep,
    split: SplitOption = Split.test,
    out: Out = Path("runs"),
    output: Picture = Path("landscape.png"),
    threads: Threads = None,
) -> None:
    """Draw the first task's loss around the way to the second, methods side by side.

    \b
    Example:
      tmln landscape --benchmark split-digits --methods naive,er,tmln -o landscape.png
    """
    configs = _configs(benchmark, methods, 1, epochs, [*(sets or []), f"seed={seed}"], output, threads)
    from tmln.experiments.store import Store
    from tmln.measure.landscape import landscape as measure
    from tmln.plots.landscape import landscape_figure

    found = measure(
        configs,
        Store(out),
        resolution=resolution,
        samples=samples,
        mode=mode.value,
        bn=bn.value,
        split=split.value,
        checkpoints=checkpoints,
    )
    lines = [["method", "1: start", "end of 1", "end of 2", "2: start", "end of 1", "end of 2", "off plane"]]
    for entry in found["methods"]:
        if entry["problem"]:
            say(f"{entry['label']} is not drawn: {entry['problem']}", err=True)
            continue
        if entry["note"]:
            say(entry["note"], err=True)
        losses = [f"{loss:.3g}" for moments in entry["losses"].values() for loss in moments.values()]
        lines.append([entry["label"], *losses, f"{100 * entry['residual']:.0f}%"])
    print_grid(
        Format.table,
        lines,
        f"{found['benchmark']}, seed {seed}: loss of tasks 1 and 2 ({found['samples']} {split.value} samples)",
    )
    say("off plane: root mean square distance of checkpoints from the picture, of that from its origin")
    _keep(out, "landscape", configs, f"s{seed}-{mode.value}-{bn.value}", found, landscape_figure(found), output)


def barrier(
    methods: Methods,
    benchmark: Benchmark = None,
    seeds: Seeds = 3,
    epochs: Epochs = None,
    sets: Sets = None,
    points: Annotated[int, typer.Option(min=3, help="Points on each line, its ends among them.")] = 11,
    samples: Samples = 500,
    bn: Statistics = BatchNorm.keep,
    split: SplitOption = Split.test,
    out: Out = Path("runs"),
    output: Picture = Path("barrier.png"),
    threads: Threads = None,
) -> None:
    """Measure what earlier tasks lose on the straight line from each task's solution to the next.

    \b
    Example:
      tmln barrier --benchmark split-digits --methods naive,er,tmln --seeds 3 -o barrier.png
    """
    configs = _configs(benchmark, methods, seeds, epochs, sets, output, threads)
    from tmln.experiments.store import Store
    from tmln.measure.barrier import barriers
    from tmln.plots.barrier import barrier_figure, short

    found = barriers(configs, Store(out), points=points, samples=samples, bn=bn.value, split=split.value)
    lines = [["method", "n", "barrier ↓", "climb ↓", "accuracy barrier % ↓", "loss at the ends"]]
    for entry in found["methods"]:
        for problem in entry["problems"]:
            say(f"{entry['label']}: {problem}", err=True)
        summary = entry["summary"]
        cells = [_cell(summary[key], scale) for key, scale in (("barrier", 1), ("climb", 1), ("accuracy_barrier", 100))]
        ends = " to ".join(short(summary[key]["mean"]) for key in ("before", "after")) if entry["seeds"] else "-"
        lines.append([entry["label"], str(len(entry["seeds"])), *cells, ends])
    print_grid(Format.table, lines, f"{found['benchmark']}: the loss of earlier tasks from solution to solution")
    say(
        "barrier: the most by which it exceeds the straight line between both ends (Frankle et al. 2020)\n"
        "climb: the most by which it exceeds its beginning; much can be forgotten without any barrier\n"
        "means over earlier tasks and pairs of solutions, ± sample deviation over n seeds"
    )
    _keep(out, "barrier", configs, f"{seeds}-seeds-{bn.value}", found, barrier_figure(found), output)


def _configs(
    benchmark: str | None,
    methods: str,
    seeds: int,
    epochs: int | None,
    sets: list[str] | None,
    output: Path,
    threads: int | None,
) -> list[RunConfig]:
    """What is to be measured; what cannot work is said before long work."""
    from tmln.plots.figure import checked_suffix, new_figure

    checked_suffix(output)
    new_figure(1.0, 1.0)
    names = names_in(methods)
    if not names:
        raise ValueError("which methods? --methods naive,ewc++,tmln, say (tmln list methods)")
    configs = configs_of(benchmark, names, seeds, epochs, sets)
    if threads is not None:
        import torch

        torch.set_num_threads(threads)
    return configs


def _cell(summary: Mapping[str, Any], scale: float) -> str:
    """``0.12 ± 0.04``; a dash where there is nothing."""
    from tmln.plots.barrier import short

    if not summary["n"]:
        return "-"
    return short(scale * summary["mean"]) + (f" ± {scale * summary['std']:.1g}" if summary["n"] > 1 else "")


def _keep(
    out: Path, kind: str, configs: Sequence[RunConfig], what: str, found: Mapping[str, Any], figure: Any, output: Path
) -> None:
    """The picture, and its numbers beside the runs; measured again, the same runs' numbers give way."""
    from tmln.analysis.measurements import save_analysis
    from tmln.experiments.config import run_id
    from tmln.plots.figure import save_figure

    digest = hashlib.sha256(" ".join(run_id(config) for config in configs).encode()).hexdigest()[:8]
    path = save_analysis(out, kind, f"{configs[0].benchmark.partition(':')[0]}-{what}-{digest}", found)
    say(f"picture: {save_figure(figure, output)}\nnumbers: {path}")
