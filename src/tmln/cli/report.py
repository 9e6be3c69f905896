"""The command that makes the page: tmln report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tmln.cli.echo import say
from tmln.cli.options import ShownOracle


def report(
    runs: Annotated[Path, typer.Argument(help="A folder of runs, or a published file.")] = Path("runs"),
    output: Annotated[Path, typer.Option("-o", "--output", help="The page to write.")] = Path("report.html"),
    oracle: ShownOracle = None,
) -> None:
    """Write one self-contained page of a folder of runs or a published file: open it in any browser, offline.

    \b
    Example:
      tmln report runs -o report.html
    """
    from tmln.report import write_report

    if output.is_dir():
        output = output / "report.html"
    say(f"report: {write_report(runs, output, None if oracle is None else oracle.value)}")


def report_of_demo(runs: Path) -> None:
    """The page beside the demo's runs; without plotly only the remedy."""
    try:
        report(runs, runs / "report.html")
    except ImportError as error:
        say(str(error))
