"""The command line. Every error is one line with a remedy and exit code 2; --debug shows where it came from."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from tmln.cli import benchmarks, data, paper, pictures, report, runs, sweep, tradeoffs, tune
from tmln.cli.say import Shown, say
from tmln.families import FAMILIES

app = typer.Typer(
    help="Train a PyTorch model on one task after another without forgetting, and measure how well that went.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
DEMO = ("naive", "joint", "er", "ewc++", "rwalk", "upgd", "ocar", "tmln")
app.add_typer(data.app, name="data")


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    device: Annotated[
        str | None, typer.Option(help="Where runs compute: cpu, cuda, cuda:1; the first GPU, if any, unless given.")
    ] = None,
    allow_code: Annotated[
        bool,
        typer.Option(
            "--allow-code", help="Let configurations name models and parts of your own, whose code is then run."
        ),
    ] = False,
) -> None:
    _Debug.on = debug
    if device is not None:
        os.environ["TMLN_DEVICE"] = device
    if allow_code:
        os.environ["TMLN_ALLOW_CODE"] = "1"


class _Debug:
    on = False


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder of runs; what is in it is not computed again.")] = Path(
        "tmln-demo"
    ),
) -> None:
    """The one-minute tour: the paper's methods on digits that ship with scikit-learn."""
    typer.echo("Split-Digits: ten digits in five tasks of two, one head, no task identity at test time.")
    runs.compare(",".join(DEMO), "split-digits", seeds=3, out=out, threads=1, logger="none")
    typer.echo(
        "ACC: accuracy over all tasks at the end. FM: how far tasks fell from their best.\n"
        "INT: how much worse each new task is learned than by joint training.\n"
        "Next: tmln list methods, or the three lines in the README for your own loop."
    )
    report.report_of_demo(out)


app.command(cls=benchmarks.TakesSettings)(runs.run)
app.command(cls=benchmarks.TakesSettings)(runs.compare)
app.command()(runs.show)
app.command()(report.report)
app.command(cls=benchmarks.TakesSettings)(sweep.sweep)
app.command(cls=benchmarks.TakesSettings)(tune.tune)
app.command()(tradeoffs.pareto)
app.command(cls=benchmarks.TakesSettings)(tradeoffs.overhead)
app.command(cls=benchmarks.TakesSettings)(pictures.landscape)
app.command(cls=benchmarks.TakesSettings)(pictures.barrier)
app.command()(paper.paper)


class What(str, Enum):
    methods = "methods"
    parts = "parts"
    benchmarks = "benchmarks"
    models = "models"


@app.command("list")
def list_(
    what: Annotated[What, typer.Argument(help="What to list.")],
    name: Annotated[str | None, typer.Argument(help="Of benchmarks: one of them, with all its options.")] = None,
) -> None:
    """What there is: methods, their parts with all settings, benchmarks with their options, models."""
    from rich.console import Console
    from rich.table import Table

    if name is not None and what is not What.benchmarks:
        raise ValueError(f"a name is for benchmarks: tmln list benchmarks split-digits; got {what.value} {name}")
    table = Table(box=None, pad_edge=False)
    for row, columns in enumerate(_rows(what, name)):
        if row == 0:
            for heading in columns:
                table.add_column(heading, no_wrap=heading in ("name", "value", "model", "unless given"))
        else:
            table.add_row(*columns)
    Console().print(table)
    if what is What.benchmarks and name is None:
        say(benchmarks.options_of_all())


def _rows(what: What, name: str | None) -> Iterable[tuple[str, ...]]:
    if what is What.methods:
        from tmln.recipes import RECIPES

        yield "name", *FAMILIES, "about"
        for name, recipe in RECIPES.items():
            yield name, *(recipe.chosen[family].name for family in FAMILIES), recipe.about
    elif what is What.parts:
        yield "name", "value", "about"
        for family, table in FAMILIES.items():
            yield f"{family}s", "", table.question
            for name, part in table.items():
                yield f"{family} {name}", "", (part.__doc__ or "").split("\n")[0]
                for setting, field in part.Settings.model_fields.items():
                    yield f"  {family}.{setting}", str(field.default), field.description or ""
    elif what is What.benchmarks:
        yield from benchmarks.all_benchmarks() if name is None else benchmarks.one_benchmark(name)
    else:
        from tmln.models import MODELS

        yield "name", "about"
        yield from ((name, model.summary) for name, model in MODELS.items())


def _warn(message: Warning | str, *where: Any, **more: Any) -> None:
    say(f"warning: {message}", err=True)


def main() -> None:
    warnings.showwarning = _warn
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Shown())
    try:
        app()
    except (ArithmeticError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        if _Debug.on:
            raise
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        say(f"tmln: {text}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
