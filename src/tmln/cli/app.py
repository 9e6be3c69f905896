"""The program ``tmln``: an error is one line with a remedy; --debug shows tracebacks."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import warnings
from contextlib import suppress
from typing import Annotated, Any

import typer

import tmln
from tmln.cli import analyses, deploy, language, lists, paper, results, runs, tune
from tmln.cli.command import CommonOptions, Group, add_command, flatten_options
from tmln.cli.echo import SafeFormatter, echo, echo_note
from tmln.signals import CODE, SIGNALS, owned
from tmln.writing import REASONS, CannotWrite

ABOUT = """Continual learning with PyTorch: train on one task after another with less
forgetting, and compare methods.

\b
Example:
  tmln demo"""
COMMANDS = {
    "Train and compare": (runs.demo, runs.run, runs.compare, runs.sweep, tune.tune, paper.paper),
    "Results": (results.show, results.report, results.publish, results.verify),
    "Analysis": (analyses.pareto, analyses.ranks, analyses.overhead, analyses.landscape, analyses.barrier),
    "Your own data": (
        deploy.learn,
        deploy.accept,
        deploy.evaluate,
        deploy.predict,
        deploy.inspect,
        deploy.undo,
        deploy.classes,
        deploy.export,
        deploy.serve,
    ),
    "Language models": (language.retention, language.merge),
}
LISTS = "Data and lists"


class Program(Group):
    """The program; a command that is stopped ends with one line and its own exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            raise typer.Exit(_report_stop(stopped)) from None


app = typer.Typer(cls=Program, help=ABOUT, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tmln {tmln.__version__}")
        raise typer.Exit


def _start(
    common: CommonOptions = CommonOptions(),
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    CommonOptions.show_traceback = False
    common.apply()


app.callback()(flatten_options(_start))
for panel, commands in COMMANDS.items():
    for command in commands:
        add_command(app, command, panel)
add_command(app, lists.list_names, LISTS, "list")
app.add_typer(lists.data, name="data", rich_help_panel=LISTS, short_help="List, download and check data sets")


def main() -> None:
    """Run the command line; an error is one line and exit code 2, with ``--debug`` a traceback."""
    try:
        with owned():
            _main()
    except SystemExit as end:
        if end.code == CODE:  # everything is saved; on a busy machine the interpreter takes seconds to shut down
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(CODE)
        raise
    finally:
        for number in SIGNALS:  # nothing is lost from here on
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)


def _main() -> None:
    warnings.showwarning = _print_warning
    threading.excepthook = _report_thread_error
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(SafeFormatter())
    try:
        app()
    except KeyboardInterrupt as stopped:
        sys.exit(_report_stop(stopped))
    except (ArithmeticError, ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        if CommonOptions.show_traceback:
            raise
        if isinstance(error, OSError) and error.filename is None and error.errno in REASONS:
            error = CannotWrite(error.errno, error.strerror, "to the standard output")
        text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        echo_note(f"tmln: {text}", err=True)
        sys.exit(2)


def _report_stop(why: KeyboardInterrupt) -> int:
    echo(f"tmln: {str(why) or 'stopped'}", err=True)
    return CODE


def _print_warning(message: Warning | str, *where: Any, **more: Any) -> None:
    echo_note(f"warning: {message}", err=True)


def _report_thread_error(args: threading.ExceptHookArgs) -> None:
    """Report errors of a library's threads, but for failed writes: the next write reports those."""
    if not isinstance(args.exc_value, OSError) or CommonOptions.show_traceback:
        threading.__excepthook__(args)


if __name__ == "__main__":
    main()
