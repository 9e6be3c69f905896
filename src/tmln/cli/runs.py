"""The commands that train on benchmarks: tmln demo, run, compare, sweep."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tmln.cli import deploy
from tmln.cli.echo import echo, echo_block
from tmln.cli.execution import run_configs
from tmln.cli.options import (
    Components,
    DeviceOptions,
    DryRun,
    Method,
    Methods,
    RecordingOptions,
    ReferenceOption,
    RowName,
    SeveralMethods,
    Shard,
    Spaces,
    Training,
    choose_methods,
    split_names,
)
from tmln.cli.results import report
from tmln.executors.config import ExecutorConfig

if TYPE_CHECKING:
    from tmln.experiments.config import RunConfig


DEMO = ("naive", "joint", "er", "ewc++", "rwalk", "upgd", "ocar", "tmln")
AT_TMLN_RATE = ("naive", "er")  # also at TMLN's effective learning rate
DEMO_SEEDS = 3


def show_pictures(root: Path) -> None:
    """Draw images of four shapes, learn them in two weeks, and test what is known."""
    from tmln.deploy.demo import draw_weeks

    state = root / "shapes.tmln"
    if state.exists():
        raise ValueError(f"{state} is there already: remove it, or choose another folder with --runs")
    echo(f"Images of four shapes, drawn by tmln (no photographs), in {root}: week1, week2, test.")
    draw_weeks(root)
    for week in ("week1", "week2"):
        _announce("learn", "--state", state, "--data", root / week)
        deploy.learn(state=state, data=root / week)
    _announce("evaluate", "--state", state, "--data", root / "test")
    deploy.evaluate(state=state, data=root / "test")
    pictures = [str(root / "test" / name / "0.png") for name in ("circle", "ring")]
    _announce("predict", "--state", state, *pictures)
    deploy.predict(pictures=pictures, state=state)
    echo("")
    echo(f"Next: tmln undo --state {shlex.quote(str(state))}, or a folder of your own (docs/own_data.md)")


def _announce(*words: object) -> None:
    """Print a command as a person types it."""
    echo("")
    echo(f"$ tmln {shlex.join(map(str, words))}")


def demo(
    runs: Annotated[Path, typer.Option(metavar="DIR", help="Folder of runs; finished runs are not repeated.")] = Path(
        "tmln-demo"
    ),
    pictures: Annotated[
        bool, typer.Option("--pictures", help="Instead, a state that learns folders of images, week after week.")
    ] = False,
) -> None:
    """Compare the paper's methods on small digits in about a minute.

    The digits come with scikit-learn: pip install "tmln[digits,report]". With --pictures, tmln
    draws images, and learns, tests and predicts them by the commands for your own data.

    \b
    Example:
      tmln demo --runs tour
      tmln demo --pictures
    """
    if pictures:
        show_pictures(runs)
        return
    echo("Split-Digits: ten digits in five tasks of two; one head for all classes, no task identity at test time.")
    from tmln.executors.processes import start_server

    if not runs.exists():
        start_server()  # which loads torch while this process does
    from tmln.experiments.reference_runs import equal_rate

    configs = Training(benchmark="split-digits", seeds=DEMO_SEEDS).configs(DEMO)
    rate = equal_rate(next(config for config in configs if config.method == "tmln"))
    at_rate = [config.with_settings(rate) for config in configs if config.method in AT_TMLN_RATE]
    run_configs([*configs, *at_rate], RecordingOptions(runs=runs), "prefix", ExecutorConfig())
    echo_block(
        "ACC: mean accuracy over all tasks at the end. FM: forgetting, the drop from each task's best accuracy.\n"
        "INT: intransigence, how much worse each new task is learned than by joint training.\n"
        "Next: tmln list methods, or the loop in the README for your own."
    )
    try:
        report(runs, runs / "report.html")
    except ImportError as error:  # without plotly
        echo(str(error))


def run(
    method: Method = None,
    name: RowName = None,
    training: Training = Training(),
    components: Components = Components(),
    recording: RecordingOptions = RecordingOptions(logger="auto"),
    oracle: ReferenceOption = None,
    shard: Shard = None,
    dry_run: DryRun = False,
    executor: ExecutorConfig = ExecutorConfig(),
    spread: DeviceOptions = DeviceOptions(),
) -> None:
    """Train one method on a benchmark; repeat it to continue after a stop.

    \b
    Example:
      tmln run --benchmark split-digits --method tmln --seeds 5 --set step.damping=0.2

    Options of one benchmark: tmln list benchmarks NAME.
    """
    configs = spread.set_precision(training.configs([method], components=components, names=name))
    devices = spread.make_devices(executor)
    for config in configs:
        devices.check_method(config.recipe())
    if dry_run or not devices.asked:
        run_configs(configs, recording, oracle, executor, dry_run, accumulate=spread.accumulate, shard=shard)
        return
    from tmln.executors.distributed_run import open_distributed

    with open_distributed(devices) as pool:
        if pool is not None:  # this process leads
            run_configs(configs, recording, oracle, executor, pool=pool, accumulate=spread.accumulate, shard=shard)


def compare(
    methods: Methods,
    name: RowName = None,
    training: Training = Training(seeds=3),
    components: Components = Components(),
    recording: RecordingOptions = RecordingOptions(logger="auto"),
    oracle: ReferenceOption = None,
    shard: Shard = None,
    dry_run: DryRun = False,
    executor: ExecutorConfig = ExecutorConfig(),
) -> None:
    """Train several methods on a benchmark and compare them.

    \b
    Example:
      tmln compare --benchmark split-digits --methods naive,er,tmln --seeds 5
    """
    configs = training.configs(split_names(methods), components=components, names=name)
    run_configs(configs, recording, oracle, executor, dry_run, shard=shard)


def sweep(
    method: Method = None,
    methods: SeveralMethods = None,
    name: RowName = None,
    training: Training = Training(),
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=V1,V2",
            help="Values of a setting; several: all combinations.",
            rich_help_panel="Sweep",
        ),
    ] = None,
    random: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Random draws from --space, per grid point.", rich_help_panel="Sweep"),
    ] = 0,
    space: Spaces = None,
    best: Annotated[
        bool,
        typer.Option("--best", help="Choose the best of each method on validation data.", rich_help_panel="Sweep"),
    ] = False,
    recording: RecordingOptions = RecordingOptions(),
    oracle: ReferenceOption = None,
    shard: Shard = None,
    dry_run: DryRun = False,
    executor: ExecutorConfig = ExecutorConfig(),
) -> None:
    """Run a grid or random draws of settings, times seeds and methods.

    \b
    Example:
      tmln sweep --benchmark split-digits --grid step.trajectory=0.1,1,10 --seeds 3
      tmln sweep --benchmark split-digits --random 64 --executor slurm
    """
    from tmln.tuning.protocol import with_split
    from tmln.tuning.sweep import read_grid, read_spaces
    from tmln.tuning.sweep import sweep as combine

    if not (grid or random or methods):
        raise ValueError("nothing to sweep: give --grid KEY=V1,V2, --random N, or --methods A,B")
    if space and not random:
        raise ValueError("--space says where to draw from; --random N says how often")
    if best and shard:
        raise ValueError("--best needs all runs: leave out --shard, once all shares are done")
    bases = training.configs(choose_methods(method, methods), seeds=1, names=name)
    bases = [with_split(base) for base in bases] if best else bases
    found = combine(bases, read_grid(grid or []), draws=random, space=read_spaces(space or []), seeds=training.seeds)
    for note in found.notes:
        echo(note, err=True)
    run_configs(found.configs, recording, oracle, executor, dry_run, shard=shard)
    if best and not dry_run:
        for line in _best_lines(found.configs, recording.runs):
            echo(line)


def _best_lines(configs: Sequence[RunConfig], runs: Path) -> Iterator[str]:
    """Yield each method's configuration with the best validation accuracy, and its command."""
    from tmln.analysis.rows import group_by_table, group_rows
    from tmln.analysis.selection import select_configurations
    from tmln.experiments.command import commands_of
    from tmln.experiments.store import Store

    store = Store(runs)
    results = [result for config in configs if (result := store.find_result(config)) is not None]
    for rows in group_by_table(group_rows(results)).values():
        for choice in select_configurations(rows):
            row = choice.row
            measured = [f"test ACC {100 * row.summary('acc').mean:.1f}"]
            if row.summary("val_acc").n:
                measured.insert(0, f"val ACC {100 * row.summary('val_acc').mean:.1f}")
            n = row.summary("acc").n
            yield f"{choice.name}: {', '.join(measured)} ({n} seed{'s' * (n != 1)} of {row.title})"
            first = row.results[0]
            for command in commands_of(first.config, first.changed or (), [result.seed for result in row.results]):
                yield f"  {command} --runs {shlex.quote(str(runs))}"
