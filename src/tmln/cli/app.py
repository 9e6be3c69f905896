"""The command line. Every error is one line with a remedy and exit code 2; --debug shows where it came from."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tmln.cli import benchmarks, data, deploy, landscapes, paper, publish, report, runs, sweep, tradeoffs, tune
from tmln.cli.echo import Shown, say
from tmln.cli.option_groups import add
from tmln.cli.options import How, What
from tmln.cli.work import work
from tmln.executors.config import ExecutorConfig
from tmln.methods.registry import FAMILIES
from tmln.printable import one_line
from tmln.signals import CODE, SIGNALS, owned
from tmln.writing import REASONS, CannotWrite

if TYPE_CHECKING:
    pass


def _stopped(why: KeyboardInterrupt) -> int:
    say(f"tmln: {str(why) or 'stopped'}", err=True)
    return CODE


class Interruptible(TyperGroup):
    """Whatever the command was at when it was asked to stop: one line, and the exit code of that."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            raise typer.Exit(_stopped(stopped)) from None


app = typer.Typer(
    cls=Interruptible,
    help="Train a PyTorch model on one task after another without forgetting, and measure how well that went.\n\n"
    "\b\nExample:\n  tmln demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
DEMO = ("naive", "joint", "er", "ewc++", "rwalk", "upgd", "ocar", "tmln")
AT_TMLNS_RATE = ("naive", "er")  # once more at the rate that TMLN starts with: its lr is not its rate
DEMO_SEEDS = 3
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


def demo(
    out: Annotated[Path, typer.Option(help="The folder of runs; what is in it is not computed again.")] = Path(
        "tmln-demo"
    ),
) -> None:
    """The one-minute tour: the paper's methods on digits that ship with scikit-learn.

    \b
    Example:
      tmln demo --out tour
    """
    typer.echo("Split-Digits: ten digits in five tasks of two, one head, no task identity at test time.")
    from tmln.executors.processes import start_server

    if not out.exists():
        start_server()  # which loads torch while this process does
    from tmln.experiments.matched_lr import equal_rate

    what = What(benchmark="split-digits", seeds=DEMO_SEEDS)
    configs = what.configs(DEMO)
    rate = equal_rate(next(config for config in configs if config.method == "tmln"))
    at_rate = [config.with_settings(rate) for config in configs if config.method in AT_TMLNS_RATE]
    work([*configs, *at_rate], How(out=out), ExecutorConfig())
    typer.echo(
        "ACC: accuracy over all tasks at the end. FM: how far tasks fell from their best.\n"
        "INT: how much worse each new task is learned than by joint training.\n"
        "Next: tmln list methods, or the loop in the README for your own."
    )
    report.report_of_demo(out)


add(app, demo)
add(app, runs.run)
add(app, runs.compare)
add(app, runs.show)
add(app, report.report)
add(app, publish.publish)
add(app, publish.verify)
add(app, sweep.sweep)
add(app, tune.tune)
add(app, tradeoffs.pareto)
add(app, tradeoffs.ranks)
add(app, tradeoffs.overhead)
add(app, landscapes.landscape)
add(app, landscapes.barrier)
add(app, paper.paper)
add(app, deploy.learn)
add(app, deploy.evaluate)
add(app, deploy.predict)
add(app, deploy.inspect)
add(app, deploy.undo)
add(app, deploy.export)


class Kind(str, Enum):
    """What ``tmln list`` lists."""

    methods = "methods"
    parts = "parts"
    benchmarks = "benchmarks"
    models = "models"


def list_(
    what: Annotated[Kind, typer.Argument(help="What to list.")],
    name: Annotated[str | None, typer.Argument(help="Of benchmarks: one of them, with all its options.")] = None,
) -> None:
    """What there is: methods, their parts with all settings, benchmarks with their options, models.

    \b
    Example:
      tmln list methods
    """
    from rich.console import Console
    from rich.table import Table

    if name is not None and what is not Kind.benchmarks:
        raise ValueError(f"a name is for benchmarks: tmln list benchmarks split-digits; got {what.value} {name}")
    table = Table(box=None, pad_edge=False)
    for row, columns in enumerate(_rows(what, name)):
        if row == 0:
            for heading in columns:
                whole = heading in ("name", "value", "model", "unless given")
                table.add_column(heading, no_wrap=whole, overflow="fold")
        else:
            table.add_row(*columns)
    Console().print(table)
    if what is Kind.benchmarks and name is None:
        say(benchmarks.options_of_all())


add(app, list_, "list")


def _rows(what: Kind, name: str | None) -> Iterable[tuple[str, ...]]:
    if what is Kind.methods:
        from tmln.methods.recipes import RECIPES

        yield "name", *FAMILIES, "about"
        for name, recipe in RECIPES.items():
            yield name, *(recipe.components[family].name for family in FAMILIES), recipe.about
    elif what is Kind.parts:
        yield "name", "value", "about"
        for family, table in FAMILIES.items():
            yield f"{family}s", "", table.question
            for name, part in table.items():
                yield f"{family} {name}", "", (part.__doc__ or "").split("\n")[0]
                for setting, field in part.Settings.model_fields.items():
                    yield f"  {family}.{setting}", str(field.default), field.description or ""
    elif what is Kind.benchmarks:
        yield from benchmarks.all_benchmarks() if name is None else benchmarks.one_benchmark(name)
    else:
        from tmln.models import MODELS

        yield "name", "about"
        yield from ((name, model.summary) for name, model in MODELS.items())


def _warn(message: Warning | str, *where: Any, **more: Any) -> None:
    say(one_line(f"warning: {message}"), err=True)


def _of_thread(said: threading.ExceptHookArgs) -> None:
    """What ends a thread of a library's: a failed write is told by whoever writes next, and names the file."""
    if not isinstance(said.exc_value, OSError) or _Debug.on:
        threading.__excepthook__(said)


def main() -> None:
    """What ``tmln`` does: an error is a sentence and exit code 2, with ``--debug`` a traceback."""
    try:
        with owned():
            _main()
    except SystemExit as end:
        if end.code == CODE:  # all is put away; on a busy machine the interpreter takes seconds to clear itself away
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(CODE)
        raise
    finally:
        for number in SIGNALS:  # what is left to do is the interpreter's, and nothing is lost with it
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)


def _main() -> None:
    warnings.showwarning = _warn
    threading.excepthook = _of_thread
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Shown())
    try:
        app()
    except KeyboardInterrupt as stopped:
        sys.exit(_stopped(stopped))
    except (ArithmeticError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        if _Debug.on:
            raise
        if isinstance(error, OSError) and error.filename is None and error.errno in REASONS:
            error = CannotWrite(error.errno, error.strerror, "to the standard output")
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        say(one_line(f"tmln: {text}"), err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
