"""Typer commands with shared option groups, help in sections, and renamed options.

A command takes dataclasses of options (``training: Training = Training()``); typer reads
signatures and needs them flat, so :func:`add_command` spreads the fields out and puts the
dataclasses together again when the command is called. A group's ``PANEL`` is the heading of
its options in the help.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, ClassVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from tmln.cli.echo import echo

# Old spellings, which work and warn for one release: each where only the new one is an option.
RENAMED = {
    "--budget": "--trials",
    "--cpus": "--threads",
    "--keep": "--undo-levels",
    "--memory": "--memory-limit",
    "--oracle": "--int-reference",
    "--out": "--runs",
    "--reference": "--baseline",
    "--trials": "--with-trials",
    "--weights": "--initial-weights",
}
# What other tools call an option, and how it is written here; each where the first is no option.
INSTEAD = {
    "--seed": "--set seed=3 for one seed, --seeds 3 for the first three",
    **dict.fromkeys(("--lr", "--learning-rate", "--learning_rate"), "--set lr=0.01"),
    **dict.fromkeys(("--batch-size", "--batch_size"), "--set batch_size=128"),
    **dict.fromkeys(("--optimizer", "--optim"), "--step NAME"),
}
EVERY_COMMAND = "Every command"
RANGE = re.compile(r"[<>]=?")
WIDTH = 28  # of the column of options: longer ones have a line of their own


class Command(TyperCommand):
    """A command with its options in sections, which still understands old spellings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = {name for param in self.params for name in param.opts}
        words = list(replace_old_spellings(args, options, not ctx.resilient_parsing))
        has_arguments = any(param.param_type_name == "argument" for param in self.params)
        if "--set" in options and not ctx.resilient_parsing:
            for before, word in zip(["", *words], words, strict=False):
                option, equals, _ = word.partition("=")
                if before == "--":
                    break
                if option in INSTEAD and option not in options:
                    ctx.fail(f"there is no {option}: write {INSTEAD[option]}")
                is_setting = equals and option.replace(".", "").isidentifier() and not before.startswith("-")
                if is_setting and not has_arguments:
                    instead = INSTEAD.get(f"--{option}") or f"--set {word}"
                    ctx.fail(f"settings are given by --set: {instead}")
        return super().parse_args(ctx, words)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        write_options(self, ctx, formatter)


class Group(TyperGroup):
    """A group of commands, listed in sections."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            heading = getattr(command, "rich_help_panel", None) or "Commands"
            sections.setdefault(str(heading), []).append((name, command.short_help or ""))
        write_sections(formatter, sections)
        write_options(self, ctx, formatter)


@dataclass(frozen=True)
class CommonOptions:
    """Options of every command, before or after its name."""

    PANEL: ClassVar[str] = EVERY_COMMAND
    show_traceback: ClassVar[bool] = False  # what --debug sets

    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="cpu, cuda, cuda:1; by default the first GPU."),
    ] = None
    allow_code: Annotated[
        bool, typer.Option("--allow-code", help="Allow importing your own models and components.")
    ] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False

    def apply(self) -> None:
        """Set what the options say for this process and those that it starts."""
        CommonOptions.show_traceback |= self.debug
        if self.device is not None:
            os.environ["TMLN_DEVICE"] = self.device
        if self.allow_code:
            os.environ["TMLN_ALLOW_CODE"] = "1"


def replace_old_spellings(args: Iterable[str], options: set[str], warn: bool) -> Iterable[str]:
    """Yield arguments with old names of options replaced, up to ``--``; warn about each."""
    literal = False
    for word in args:
        literal |= word == "--"
        old, equals, value = word.partition("=")
        new = RENAMED.get(old)
        if literal or new is None or old in options or new not in options:
            yield word
            continue
        if warn:
            echo(f"warning: {old} is now {new}; the old spelling goes with the next release", err=True)
        yield f"{new}{equals}{value}"


def write_options(command: Any, ctx: Any, formatter: Any) -> None:
    """Write arguments and options under the headings of their groups."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is None:
            continue
        heading = "Arguments" if param.param_type_name == "argument" else getattr(param, "rich_help_panel", None)
        if param.name == "help" and EVERY_COMMAND in sections:
            heading = EVERY_COMMAND
        sections.setdefault(str(heading or "Options"), []).append((record[0], _without_range(record[1])))
    write_sections(formatter, sections)


def write_sections(formatter: Any, sections: dict[str, list[tuple[str, str]]]) -> None:
    """Write lists under headings, with one column width for all."""
    width = max((len(name) for rows in sections.values() for name, _ in rows if len(name) <= WIDTH), default=0)
    for heading, rows in sections.items():
        with formatter.section(heading):
            formatter.write_dl([(name.ljust(width), text) for name, text in rows])


def _without_range(text: str) -> str:
    """Return a help text without ``x>=1``: an error says it where it matters."""
    about, bracket, extra = text.rpartition("  [")
    if not bracket:
        return text
    kept = "; ".join(part for part in extra.rstrip("]").split("; ") if not RANGE.search(part))
    return f"{about} [{kept}]" if kept else about


def add_command(app: typer.Typer, command: Callable[..., None], panel: str | None = None, name: str = "") -> None:
    """Add a command under a heading, its option groups spread out; its summary is one line."""
    summary = " ".join((command.__doc__ or "").partition("\n\n")[0].split())
    flat = flatten_options(command)
    name = name or command.__name__
    app.command(name, cls=Command, short_help=summary.rstrip("."), rich_help_panel=panel)(flat)


def flatten_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with every option as a parameter, as typer reads it.

    The default of a group says in which options the command differs: ``training: Training =
    Training(seeds=3)``.
    """
    hints, groups = get_type_hints(command, include_extras=True), dict[str, Any]()
    parameters = inspect.signature(command).parameters
    flat: list[inspect.Parameter] = []
    every = {} if "common" in parameters else {"common": (CommonOptions, CommonOptions())}
    for key, (kind, default) in {
        **{name: (hints[name], parameter.default) for name, parameter in parameters.items()},
        **every,
    }.items():
        if not is_dataclass(kind):
            flat.append(inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind))
            continue
        inner = get_type_hints(kind, include_extras=True)
        groups[key] = kind
        for field in fields(kind):
            annotation = inner[field.name]
            annotation.__metadata__[0].rich_help_panel = getattr(kind, "PANEL", None)
            value = getattr(default, field.name)
            flat.append(
                inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=annotation)
            )

    @functools.wraps(command)
    def call(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)}) for name, kind in groups.items()
        }
        if every:
            made.pop("common").apply()
        command(**given, **made)

    call.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    return call
