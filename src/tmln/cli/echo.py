"""Printing to the terminal: control characters are shown as escapes, and a line stays one line."""

from __future__ import annotations

import logging
import shutil
import sys
import textwrap

import typer

from tmln.printable import one_line, printable


def echo(text: str, err: bool = False) -> None:
    """Print one line; line ends and control characters in it are written as escapes."""
    typer.echo(one_line(text), err=err)


def echo_note(text: str, err: bool = False) -> None:
    """Print a sentence as one line, wrapped at words in a terminal."""
    text = one_line(text)
    if (sys.stderr if err else sys.stdout).isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
    typer.echo(text, err=err)


def echo_block(text: str, err: bool = False) -> None:
    """Print text of several lines; control characters in it are written as escapes."""
    typer.echo(printable(text), err=err)


class SafeFormatter(logging.Formatter):
    """Format log records, which may name files, for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return printable(text) if record.exc_info else one_line(text)
