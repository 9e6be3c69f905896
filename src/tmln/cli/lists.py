"""The commands for lists and data sets: tmln list, tmln data list, get, check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import typer

from tmln.cli.command import Group, add_command
from tmln.cli.echo import echo
from tmln.cli.options import complete_benchmarks
from tmln.methods.registry import FAMILIES

data = typer.Typer(
    cls=Group,
    help="List, download and check data sets.\n\n\b\nExample:\n  tmln data get cifar10",
    no_args_is_help=True,
)


# What ``tmln list`` lists; ``parts`` is the old name of components.
ListName = Literal["methods", "components", "parts", "benchmarks", "models"]


def list_names(
    what: Annotated[ListName, typer.Argument(metavar="WHAT", help="methods, components, benchmarks or models.")],
    name: Annotated[
        str | None,
        typer.Argument(help="One benchmark, with all its options.", autocompletion=complete_benchmarks),
    ] = None,
) -> None:
    """List methods, components and their settings, benchmarks, models.

    \b
    Example:
      tmln list methods
      tmln list benchmarks split-cifar100
    """
    from rich.console import Console
    from rich.table import Table

    if name is not None and what != "benchmarks":
        raise ValueError(f"a name is for benchmarks: tmln list benchmarks split-digits; got {what} {name}")
    if what == "parts":
        echo("warning: parts are now components: tmln list components; the old name goes with the next release", True)
    table = Table(box=None, pad_edge=False)
    for row, columns in enumerate(_rows(what, name)):
        if row == 0:
            for heading in columns:
                table.add_column(heading, no_wrap=heading in ("name", "value", "model", "default"), overflow="fold")
        else:
            table.add_row(*columns)
    Console().print(table)
    if what == "benchmarks" and name is None:
        from tmln.streams.options import Options

        echo(f"Options of all: {', '.join(Options.model_fields)}.")
        echo("Set them by --set benchmark.tasks=3; `tmln list benchmarks NAME` explains them.")


def _rows(what: ListName, name: str | None) -> Iterator[tuple[str, ...]]:
    if what == "methods":
        from tmln.methods.recipes import RECIPES

        yield "name", "components", "about"
        for method in RECIPES:
            try:
                recipe = RECIPES[method]
            except ValueError as error:  # of an installed package
                yield method, "-", str(error)
                continue
            names = {family: recipe.components[family].name for family in FAMILIES}
            chosen = [f"{family} {name}" for family, name in names.items() if name != FAMILIES.default(family)]
            yield method, ", ".join(chosen) or "-", recipe.about
    elif what in ("components", "parts"):
        yield "name", "value", "about"
        for family, table in FAMILIES.items():
            yield family, "", table.question
            for component, kind in table.items():
                yield f"{family} {component}", "", (kind.__doc__ or "").split("\n")[0]
                for setting, field in kind.Settings.model_fields.items():
                    yield f"  {family}.{setting}", str(field.default), field.description or ""
    elif what == "benchmarks":
        yield from _benchmarks() if name is None else _benchmark(name)
    else:
        from tmln.models import MODELS

        yield "name", "about"
        yield from ((model, row.summary) for model, row in MODELS.items())
        yield "timm:NAME", "any network of timm; model.pretrained=true or model.weights=FILE.safetensors"
        yield "transformers:FOLDER", "an image or text model as save_pretrained writes it; nothing is downloaded"
        yield "package.module:Class", "a network of your own, with --allow-code"


def _benchmarks() -> Iterator[tuple[str, ...]]:
    """Yield one line per benchmark, with the options that not all of them take."""
    from tmln.streams.benchmarks import BENCHMARKS
    from tmln.streams.options import Options

    yield "name", "tasks", "model", "epochs", "about", "own options"
    for name, row in BENCHMARKS.items():
        own = ", ".join(option for option in row.options.model_fields if option not in Options.model_fields)
        yield name, str(row.tasks or ""), row.model, str(row.epochs), row.summary, own


def _benchmark(name: str) -> Iterator[tuple[str, ...]]:
    """Yield the defaults of a benchmark's runs, and all its options."""
    from tmln.data import DATA
    from tmln.streams.benchmarks import find_benchmark
    from tmln.streams.options import describe_options

    row = find_benchmark(name)
    yield "name", "default", "values", "about"
    yield name, "", "", f"{row.title}: {row.summary}"
    if row.data is not None:
        yield "  data", row.data, "", f"{DATA[row.data].summary} (tmln data get {row.data})"
    for key in ("model", "epochs", "batch_size", "lr"):
        yield f"  {key}", str(getattr(row, key)), "", "default of a run"
    for option in describe_options(row.options):
        default = str(row.tasks or "") if option.name == "tasks" else option.default
        yield f"  benchmark.{option.name}", default, option.form, option.about


DataName = Annotated[str, typer.Argument(help="A name from `tmln data list`.")]


def data_list() -> None:
    """List data sets: which are here, and the size of the others.

    \b
    Example:
      tmln data list
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tmln.data import data_root, list_data
    from tmln.printable import one_line

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "at hand", "MB", "about"):
        table.add_column(heading)
    for status in list_data():
        size = f"{status.bytes / 1e6:.0f}" if status.bytes else ""
        table.add_row(status.name, Text(one_line(str(status.path or "no"))), size, status.summary)
    Console().print(table)
    echo(f"data root: {data_root()} (set TMLN_DATA to change it)")


def data_get(name: DataName) -> None:
    """Download and verify a data set; an interrupted download resumes.

    \b
    Example:
      tmln data get cifar100
    """
    from tmln.data import download_bar, get_data

    with download_bar() as bar:
        echo(f"{name}: {get_data(name, progress=bar)}")


def data_check(name: DataName) -> None:
    """Verify a data set; exit code 1 if anything is wrong.

    \b
    Example:
      tmln data check cifar100
    """
    from tmln.data import check_data

    problems = 0
    for check in check_data(name):
        problems += bool(check.problem)
        echo(f"{'WRONG' if check.problem else 'ok':<6}{check.what} {check.problem or check.note or ''}".rstrip())
    raise typer.Exit(1 if problems else 0)


add_command(data, data_list, name="list")
add_command(data, data_get, name="get")
add_command(data, data_check, name="check")
