"""The command that runs many configurations: tmln sweep."""

from __future__ import annotations

from typing import Annotated

import typer

from tmln.cli.options import DryRun, How, Method, Spaces, What, Who, method_names
from tmln.cli.say import say
from tmln.cli.work import work


def sweep(
    method: Method = None,
    methods: Annotated[str | None, typer.Option(help="Several methods, with commas between.")] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", metavar="KEY=V1,V2", help="Any field and its values; several make all combinations."),
    ] = None,
    random: Annotated[int, typer.Option(min=0, help="How many points to draw from --space, for each of the grid.")] = 0,
    space: Spaces = None,
    what: What = What(),
    how: How = How(),
    who: Who = Who(),
    dry_run: DryRun = False,
) -> None:
    """Run a grid, or random draws, times seeds, times methods; stopped at any moment, the same command goes on.

    \b
    Example:
      tmln sweep --benchmark split-digits --grid step.trajectory=0.1,1,10 --seeds 3
    """
    from tmln.search.sweep import read_grid, read_spaces
    from tmln.search.sweep import sweep as combine

    if not (grid or random or methods):
        raise ValueError("nothing to sweep: give --grid KEY=V1,V2, --random N, or --methods A,B")
    if space and not random:
        raise ValueError("--space says where to draw from; --random N says how often")
    bases = what.configs(method_names(method, methods), seeds=1)
    found = combine(bases, read_grid(grid or []), draws=random, space=read_spaces(space or []), seeds=what.seeds)
    for note in found.notes:
        say(note, err=True)
    work(found.configs, how, who, dry_run)
