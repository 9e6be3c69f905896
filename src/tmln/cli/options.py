"""Options that several commands share, and the configurations that they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tmln.lab.config import RunConfig


class OracleName(str, Enum):
    prefix = "prefix"
    final = "final"
    independent = "independent"
    none = "none"


Benchmark = Annotated[str | None, typer.Option(help="A name from `tmln list benchmarks`, or folder:PATH.")]
Seeds = Annotated[
    int, typer.Option(min=1, help="How many seeds: 0, 1, ..., or from the one given by --set seed or --config on.")
]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting, e.g. step.damping=0.2.")
]
Out = Annotated[Path, typer.Option(help="The folder of runs.")]
Config = Annotated[Path | None, typer.Option(exists=True, help="A YAML file with the same settings.")]
OracleOption = Annotated[
    OracleName,
    typer.Option(
        help="The reference of INT, at the benchmark's own lr: joint on tasks 1..k for every k (prefix), one joint "
        "model (final, a shortcut), a model of task k alone (independent), or none."
    ),
]
ShownOracle = Annotated[
    OracleName | None,
    typer.Option(
        "--oracle", help="The reference of INT: prefix, final or independent; the first that has run unless given."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and what it would cost.")]
Every = Annotated[int | None, typer.Option(min=1, help="Steps between checkpoints (besides one every five minutes).")]
LoggerName = Annotated[str, typer.Option(help="tensorboard, wandb, none; auto is tensorboard if installed.")]
Compile = Annotated[bool, typer.Option("--compile", help="torch.compile the training pass: a slow start, then faster.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads for torch; all cores unless given.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Epochs a task; the benchmark's own unless given.")]


def names_in(text: str) -> list[str]:
    """``a, b`` as a list, each name once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def configs_of(
    benchmark: str | None,
    methods: Sequence[str | None],
    seeds: int,
    epochs: int | None,
    sets: list[str] | None,
    file: Path | None,
    compile: bool,
) -> list[RunConfig]:
    """What the options ask for: methods times seeds, every error before any work."""
    from tmln.lab.config import RunConfig
    from tmln.models.own import check_allowed
    from tmln.recipes import find_recipe

    changes: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    if compile:
        changes["compile"] = True
    for text in sets or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set takes KEY=VALUE, e.g. step.damping=0.2; got {text!r}")
        changes[key.strip()] = value.strip()
    if file is None and benchmark is None:
        raise ValueError("which benchmark? --benchmark split-digits, say (tmln list benchmarks)")
    configs = []
    for method in methods:
        if method is not None:
            find_recipe(method)
        base = RunConfig.from_yaml(_text_of(file)) if file else RunConfig(benchmark=str(benchmark))
        given = {k: v for k, v in (("benchmark", benchmark), ("method", method)) if v is not None}
        base = base.with_settings({**given, **changes})
        check_allowed(base.model or "", base.model_options)
        configs += [base.with_setting("seed", base.seed + k) for k in range(seeds)]
    return configs


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is no text in UTF-8 (byte {error.start}); a configuration is YAML") from None
