"""Where lines of text leave for the terminal: whatever is in them, it is shown and not obeyed."""

from __future__ import annotations

import logging

import typer

from tmln.printable import one_line, printable


def say(text: str, err: bool = False) -> None:
    """A line for a person; text of others in it cannot steer the terminal."""
    typer.echo(printable(text), err=err)


class Shown(logging.Formatter):
    """For warnings that modules log: they name files, which can have line ends in their names."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return printable(text) if record.exc_info else one_line(text)
