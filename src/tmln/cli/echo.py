"""Where lines of text leave for the terminal: whatever is in them, it is shown and not obeyed."""

from __future__ import annotations

import logging

import typer

from tmln.printable import printable


def say(text: str, err: bool = False) -> None:
    """A line for a person; text of others in it cannot steer the terminal."""
    typer.echo(printable(text), err=err)


class Shown(logging.Formatter):
    """For warnings that modules log: they name files."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
