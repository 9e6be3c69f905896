"""What benchmarks there are and what they take: for `tmln list benchmarks [NAME]` and for --help. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.core import TyperCommand

Lines = Iterator[tuple[str, ...]]


class TakesSettings(TyperCommand):
    """A command with --set, whose help ends with the options of benchmarks."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        super().format_epilog(ctx, formatter)
        from tmln.streams.benchmarks import group_options

        for users, options in group_options().items():
            with formatter.section(f"--set benchmark.NAME=VALUE, of {users}"):
                formatter.write_dl([(option.name, f"{option.about} ({option.form})") for option in options])


def all_benchmarks() -> Lines:
    """A line each, with the options that not all of them take."""
    from tmln.streams.benchmarks import BENCHMARKS
    from tmln.streams.options import Options

    yield "name", "tasks", "model", "epochs", "about", "options besides those of all"
    for name, row in BENCHMARKS.items():
        own = ", ".join(option for option in row.options.model_fields if option not in Options.model_fields)
        yield name, str(row.tasks or ""), row.model, str(row.epochs), row.summary, own


def options_of_all() -> str:
    """The line below."""
    from tmln.streams.options import Options

    common = ", ".join(Options.model_fields)
    return f"Options of all: {common}. They are set by --set benchmark.tasks=3; `tmln list benchmarks NAME` explains."


def one_benchmark(name: str) -> Lines:
    """What a run of it takes unless told otherwise, and every option."""
    from tmln.data import DATA
    from tmln.streams.benchmarks import find_benchmark
    from tmln.streams.options import describe_options

    row = find_benchmark(name)
    yield "name", "unless given", "how it is written", "about"
    yield name, "", "", f"{row.title}: {row.summary}"
    if row.data is not None:
        yield "  data", row.data, "", f"{DATA[row.data].summary} (tmln data get {row.data})"
    for key in ("model", "epochs", "batch_size", "lr"):
        yield f"  {key}", str(getattr(row, key)), "", "of a run"
    for option in describe_options(row.options):
        default = str(row.tasks or "") if option.name == "tasks" else option.default
        yield f"  benchmark.{option.name}", default, option.form, option.about
