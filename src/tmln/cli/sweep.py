"""The command that runs many configurations: tmln sweep."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tmln.cli.echo import say
from tmln.cli.options import DryRun, How, Method, Share, Spaces, What
from tmln.cli.parse_configs import method_names
from tmln.cli.work import result_of, work
from tmln.executors.config import ExecutorConfig

if TYPE_CHECKING:
    from tmln.experiments.config import RunConfig


def sweep(
    method: Method = None,
    methods: Annotated[str | None, typer.Option(help="Several methods, with commas between.")] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", metavar="KEY=V1,V2", help="Any field and its values; several make all combinations."),
    ] = None,
    random: Annotated[int, typer.Option(min=0, help="How many points to draw from --space, for each of the grid.")] = 0,
    space: Spaces = None,
    best: Annotated[
        bool,
        typer.Option("--best", help="Say what is best of each method on validation data, a tenth unless set."),
    ] = False,
    what: What = What(),
    how: How = How(),
    executor: ExecutorConfig = ExecutorConfig(),
    shard: Share = None,
    dry_run: DryRun = False,
) -> None:
    """Run a grid, or random draws, times seeds, times methods; stopped at any moment, the same command goes on.

    \b
    Example:
      tmln sweep --benchmark split-digits --grid step.trajectory=0.1,1,10 --seeds 3
      tmln sweep --benchmark split-digits --random 64 --shard $SLURM_ARRAY_TASK_ID/8   (sbatch --array=1-8)
    """
    from tmln.tuning.protocol import with_split
    from tmln.tuning.sweep import read_grid, read_spaces
    from tmln.tuning.sweep import sweep as combine

    if not (grid or random or methods):
        raise ValueError("nothing to sweep: give --grid KEY=V1,V2, --random N, or --methods A,B")
    if space and not random:
        raise ValueError("--space says where to draw from; --random N says how often")
    if best and shard:
        raise ValueError("--best looks at all runs: leave it to the command without --shard, once the shares are done")
    bases = what.configs(method_names(method, methods), seeds=1)
    bases = [with_split(base) for base in bases] if best else bases
    found = combine(bases, read_grid(grid or []), draws=random, space=read_spaces(space or []), seeds=what.seeds)
    for note in found.notes:
        say(note, err=True)
    work(found.configs, how, executor, dry_run, shard=shard)
    if best and not dry_run:
        for line in _best(found.configs, how.out):
            say(line)


def _best(configs: Sequence[RunConfig], out: Path) -> Iterator[str]:
    """Of each method the configuration with the best validation accuracy, from how many, and the command for it."""
    from tmln.analysis.rows import comparable, rows_of
    from tmln.analysis.selection import select_configurations
    from tmln.experiments.command import commands_of
    from tmln.experiments.store import Store

    store = Store(out)
    results = [result for config in configs if (result := result_of(store, config)) is not None]
    for mine in comparable(rows_of(results)).values():
        for choice in select_configurations(mine):
            row = choice.row
            said = [f"test ACC {100 * row.summary('acc').mean:.1f}"]
            if row.summary("val_acc").n:
                said.insert(0, f"val ACC {100 * row.summary('val_acc').mean:.1f}")
            n = row.summary("acc").n
            yield f"{choice.name}: {', '.join(said)} ({n} seed{'s' * (n != 1)} of {row.where})"
            first = row.results[0]
            for command in commands_of(first.config, first.changed or (), [result.seed for result in row.results]):
                yield f"  {command} --out {shlex.quote(str(out))}"
