"""The commands for data sets: tmln data list, get, check."""

from __future__ import annotations

from typing import Annotated

import typer

from tmln.cli.echo import say
from tmln.cli.option_groups import add

app = typer.Typer(
    help="Data sets: what is at hand, and how to get the rest.\n\n\b\nExample:\n  tmln data get cifar10",
    no_args_is_help=True,
)


def data_list() -> None:
    """Which data sets are at hand, and how large the others are.

    \b
    Example:
      tmln data list
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tmln.data import data_root, list_data
    from tmln.printable import printable

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "at hand", "MB", "about"):
        table.add_column(heading)
    for status in list_data():
        size = f"{status.bytes / 1e6:.0f}" if status.bytes else ""
        table.add_row(status.name, Text(printable(str(status.path or "no"))), size, status.summary)
    Console().print(table)
    say(f"data root: {data_root()} (set TMLN_DATA to change it)")


def data_get(name: Annotated[str, typer.Argument(help="A name from `tmln data list`.")]) -> None:
    """Download a data set, resuming where an earlier try stopped, and verify it.

    \b
    Example:
      tmln data get cifar100
    """
    from tmln.data import download_bar, get_data

    with download_bar() as bar:
        say(f"{name}: {get_data(name, progress=bar)}")


def data_check(name: Annotated[str, typer.Argument(help="A name from `tmln data list`.")]) -> None:
    """Verify a data set that is at hand; exit code 1 if anything is wrong.

    \b
    Example:
      tmln data check cifar100
    """
    from tmln.data import check_data

    problems = 0
    for check in check_data(name):
        problems += bool(check.problem)
        say(f"{'WRONG' if check.problem else 'ok':<6}{check.what} {check.problem or check.note or ''}".rstrip())
    raise typer.Exit(1 if problems else 0)


add(app, data_list, "list")
add(app, data_get, "get")
add(app, data_check, "check")
