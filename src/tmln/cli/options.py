"""Options that several commands share: each group is declared once, and ``grouped.py`` puts it into a command."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tmln.cli.parse_configs import configs_of, names_in
from tmln.methods.registry import FAMILIES

if TYPE_CHECKING:
    from tmln.executors.config import ExecutorConfig
    from tmln.experiments.config import RunConfig
    from tmln.experiments.launch import Devices
    from tmln.experiments.result import Oracle
    from tmln.experiments.run_options import RunOptions


class OracleName(str, Enum):
    """``--oracle``: the kinds of reference of INT (:mod:`tmln.experiments.reference_runs`)."""

    prefix = "prefix"
    final = "final"
    independent = "independent"
    none = "none"


Benchmark = Annotated[str | None, typer.Option(help="A name from `tmln list benchmarks`, or folder:PATH.")]
Method = Annotated[str | None, typer.Option(help="A name from `tmln list methods`; tmln unless given.")]
Methods = Annotated[str, typer.Option(help="Names from `tmln list methods`, with commas between.")]
Seeds = Annotated[
    int, typer.Option(min=1, help="How many seeds: 0, 1, ..., or from the one given by --set seed or --config on.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, e.g. step.damping=0.2 or benchmark.tasks=5."),
]
Out = Annotated[Path, typer.Option(help="The folder of runs.")]
ShownOracle = Annotated[
    OracleName | None,
    typer.Option(
        "--oracle", help="The reference of INT: prefix, final or independent; the first that has run unless given."
    ),
]
Share = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        help="Only share I of N, 1/N to N/N: disjoint, and together everything. For array jobs, on one folder or many.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and what it would cost.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads for torch; all cores unless given.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Epochs a task; the benchmark's own unless given.")]
Spaces = Annotated[
    list[str] | None,
    typer.Option(
        "--space",
        metavar="KEY=LOW..HIGH",
        help="Where to look: LOW..HIGH (log scale from a factor of ten on; :log or :linear after it say which), "
        "V1,V2,..., or KEY alone for what the part declares. Without any, all numbers that the parts declare.",
    ),
]


if TYPE_CHECKING:

    class Parts:
        """A part by name, for every family."""

else:  # an option for every family: --replay and so on
    _ABOUT = "The part {} by name (tmln list parts), or package.module:Class, in place of the method's."
    Parts = make_dataclass(
        "Parts",
        [
            (family, Annotated[str | None, typer.Option(help=_ABOUT.format(family))], field(default=None))
            for family in FAMILIES
        ],
        frozen=True,
    )


@dataclass(frozen=True)
class What:
    """What is run, apart from the methods."""

    benchmark: Benchmark = None
    seeds: Seeds = 1
    epochs: Epochs = None
    sets: Sets = None
    config: Annotated[Path | None, typer.Option(exists=True, help="A YAML file with the same settings.")] = None
    compile: Annotated[
        bool, typer.Option("--compile", help="torch.compile the training pass: a slow start, then faster.")
    ] = False

    def configs(
        self, methods: Sequence[str | None], seeds: int | None = None, parts: Parts | None = None
    ) -> list[RunConfig]:
        """Methods times seeds, every error before any work."""
        many = self.seeds if seeds is None else seeds
        named = {family: name for family, name in (vars(parts) if parts else {}).items() if name is not None}
        return configs_of(self.benchmark, methods, many, self.epochs, self.sets, self.config, self.compile, named)


@dataclass(frozen=True)
class Kept:
    """Where runs are kept, and what is kept of them on the way."""

    out: Out = Path("runs")
    checkpoint_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps between checkpoints (besides one every five minutes).")
    ] = None
    logger: Annotated[str, typer.Option(help="tensorboard, wandb, mlflow, none; auto: tensorboard if installed.")] = (
        "none"
    )
    eval_every: Annotated[
        int | None, typer.Option(min=1, help="Also test within tasks, every so many steps, for AAA and min-ACC.")
    ] = None
    keep: Annotated[
        str | None, typer.Option(help="What to keep besides: predictions, of every test sample after every task.")
    ] = None


@dataclass(frozen=True)
class How(Kept):
    """The same, and what they are held against."""

    oracle: Annotated[
        OracleName,
        typer.Option(
            help="The reference of INT, at the benchmark's own lr: joint on tasks 1..k for every k (prefix), one joint "
            "model (final, a shortcut), a model of task k alone (independent), or none."
        ),
    ] = OracleName.prefix


@dataclass(frozen=True)
class Spread:
    """One run over several devices."""

    devices: Annotated[
        int | None,
        typer.Option(min=1, help="Devices of this machine over which a run is spread, a process each."),
    ] = None
    strategy: Annotated[str, typer.Option(help="ddp: every process has all weights; fsdp: its part of each.")] = "ddp"
    accelerator: Annotated[str, typer.Option(help="With --devices: auto, cpu or cuda.")] = "auto"
    precision: Annotated[
        str | None, typer.Option(help="Of training passes: 32, bf16-mixed or 16-mixed; another is another run.")
    ] = None
    accumulate: Annotated[
        int, typer.Option(min=1, help="Pieces in which a batch is passed; the same result to rounding.")
    ] = 1

    def of(self, configs: list[RunConfig]) -> list[RunConfig]:
        """With the precision that was asked for."""
        given = {} if self.precision is None else {"precision": self.precision}
        return [config.with_settings(given) for config in configs]

    def asked(self, executor: ExecutorConfig) -> Devices:
        """The same as the lab takes it; it goes with no other way to spread work."""
        from tmln.experiments.launch import Devices

        devices = Devices(self.devices, self.strategy, self.accelerator)
        devices.check()
        if devices.asked and (executor.executor != "local" or executor.workers not in (None, 1)):
            raise ValueError(
                "--devices does one run after another, in processes of its own: leave out --executor and --workers"
            )
        return devices


def run_options(kept: Kept, oracle: Oracle, executor: ExecutorConfig) -> RunOptions:
    """Return the options that all runs of a command share."""
    from tmln.experiments.memory_estimate import VARIABLE, read_size
    from tmln.experiments.run_options import KEEPABLE, RunOptions
    from tmln.suggest import did_you_mean

    if executor.memory is not None:
        read_size(executor.memory)
        os.environ[VARIABLE] = executor.memory
    keep = tuple(names_in(kept.keep or ""))
    for name in keep:
        if name not in KEEPABLE:
            raise ValueError(f"--keep takes {', '.join(KEEPABLE)}, not {name!r}{did_you_mean(name, KEEPABLE)}")
    return RunOptions(
        oracle,
        checkpoint_steps=kept.checkpoint_steps,
        logger=kept.logger,
        threads=executor.threads,
        eval_every=kept.eval_every,
        keep=keep,
    )
