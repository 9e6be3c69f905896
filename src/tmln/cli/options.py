"""Options that several commands share, each declared once, and the configurations they make."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from tmln.cli.echo import echo
from tmln.methods.registry import FAMILIES

if TYPE_CHECKING:
    from tmln.executors.config import ExecutorConfig
    from tmln.experiments.config import RunConfig
    from tmln.experiments.launch import Devices, RunOptions
    from tmln.experiments.result import Oracle

TRAINING, RECORDING = "What to run", "Runs and what they record"


# Values of ``--int-reference``; :mod:`tmln.experiments.reference_runs` has what they mean.
ReferenceName = Literal["prefix", "final", "independent", "none"]


def complete_methods(incomplete: str) -> list[str]:
    """Return the names of methods that begin so, for the shell."""
    from tmln.methods.recipes import RECIPES

    return [name for name in RECIPES if name.startswith(incomplete)]


def complete_benchmarks(incomplete: str) -> list[str]:
    """Return the names of benchmarks that begin so, for the shell."""
    from tmln.streams.benchmarks import BENCHMARKS

    return [name for name in BENCHMARKS if name.startswith(incomplete)]


Benchmark = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A name (tmln list benchmarks), folder:PATH, FILE.npz, module:function.",
        autocompletion=complete_benchmarks,
        rich_help_panel=TRAINING,
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Method (tmln list methods); tmln by default.",
        autocompletion=complete_methods,
        rich_help_panel=TRAINING,
    ),
]
Methods = Annotated[str, typer.Option(metavar="A,B,...", help="Methods (tmln list methods).", rich_help_panel=TRAINING)]
SeveralMethods = Annotated[
    str | None,
    typer.Option("--methods", metavar="A,B,...", help="Several methods, treated alike.", rich_help_panel=TRAINING),
]
RowName = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="What tables call the row (for several methods: A,B,...).",
        rich_help_panel=TRAINING,
    ),
]
Seeds = Annotated[int, typer.Option(min=1, metavar="N", help="Number of seeds, from 0 on or --set seed.")]
Epochs = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Epochs per task; the benchmark's own by default.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, as lr=0.1 or benchmark.tasks=5."),
]
Runs = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder of runs; none is repeated.")]
RunsArgument = Annotated[Path, typer.Argument(metavar="[RUNS]", help="Folder of runs, or a published file.")]
ShownReference = Annotated[
    ReferenceName | None,
    typer.Option(
        "--int-reference", metavar="KIND", help="Reference of INT: prefix, final, independent; the first that has run."
    ),
]
REFERENCE = "Reference of INT: prefix, final, independent or none. [default: prefix; none for a pre-trained network]"
ReferenceOption = Annotated[
    ReferenceName | None, typer.Option("--int-reference", metavar="KIND", help=REFERENCE, rich_help_panel=RECORDING)
]
Shard = Annotated[
    str | None,
    typer.Option("--shard", metavar="I/N", help="Do only share I of N, as in array jobs.", rich_help_panel=RECORDING),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Only say what would run and what it costs.", rich_help_panel=RECORDING),
]
Threads = Annotated[int | None, typer.Option(min=1, metavar="N", help="Threads of torch; all cores by default.")]
Spaces = Annotated[
    list[str] | None,
    typer.Option(
        "--space",
        metavar="KEY=LOW..HIGH",
        help="Range of a setting: LOW..HIGH (:log or :linear after it), V1,V2,..., or KEY for the declared range; "
        "by default all numbers with a declared range.",
    ),
]


if TYPE_CHECKING:

    class Components:
        """One option for each kind of component."""

else:
    _ABOUT = {  # FAMILIES has these sentences, but would import torch
        "replay": "Stored samples that join the batch.",
        "penalty": "Term added to the loss.",
        "step": "How a gradient becomes an update.",
        "weights": "Weights that predict and start the next task.",
        "answer": "How logits or features become a prediction.",
    }
    _NAMES = [
        (
            family,
            Annotated[str | None, typer.Option(metavar="NAME", help=_ABOUT.get(family, f"The component {family}."))],
            field(default=None),
        )
        for family in FAMILIES
    ]
    _PANEL = "Components, by name (tmln list components) or package.module:Class"
    Components = make_dataclass("Components", _NAMES, frozen=True, namespace={"PANEL": _PANEL})


@dataclass(frozen=True)
class Training:
    """What to run, apart from the methods."""

    PANEL: ClassVar[str] = TRAINING

    benchmark: Benchmark = None
    seeds: Seeds = 1
    epochs: Epochs = None
    sets: Settings = None
    config: Annotated[
        Path | None, typer.Option(exists=True, metavar="FILE", help="YAML file with the same settings.")
    ] = None
    compile: Annotated[bool, typer.Option("--compile", help="Use torch.compile: a slow start, then faster.")] = False

    def configs(
        self,
        methods: Sequence[str | None],
        seeds: int | None = None,
        components: Components | None = None,
        names: str | None = None,
    ) -> list[RunConfig]:
        """Return a configuration for each method and seed; every error comes before any work."""
        named = {family: name for family, name in (vars(components) if components else {}).items() if name is not None}
        return parse_configs(
            self.benchmark,
            methods,
            self.seeds if seeds is None else seeds,
            self.epochs,
            self.sets,
            self.config,
            self.compile,
            named,
            split_row_names(names, methods),
        )


@dataclass(frozen=True)
class RecordingOptions:
    """Where runs are, and what they record."""

    PANEL: ClassVar[str] = RECORDING

    runs: Runs = Path("runs")
    checkpoint_steps: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Steps between checkpoints (also every 5 min)."),
    ] = None
    logger: Annotated[str, typer.Option(metavar="NAME", help="tensorboard, wandb, mlflow, none.")] = "none"
    eval_every: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Also test every N steps, for AAA and min-ACC.")
    ] = None
    keep: Annotated[str | None, typer.Option(metavar="WHAT", help="Also keep: predictions (of all test samples).")] = (
        None
    )


@dataclass(frozen=True)
class DeviceOptions:
    """One run on several devices."""

    PANEL: ClassVar[str] = "One run on several devices"

    devices: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Devices of this machine, one process each.")
    ] = None
    strategy: Annotated[str, typer.Option(metavar="NAME", help="ddp, or fsdp (sharded weights).")] = "ddp"
    accelerator: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda.")] = "auto"
    precision: Annotated[
        str | None, typer.Option(metavar="NAME", help="32, bf16-mixed or 16-mixed; part of a run's identity.")
    ] = None
    accumulate: Annotated[int, typer.Option(min=1, metavar="N", help="Pieces of a batch; equal to rounding.")] = 1

    def set_precision(self, configs: list[RunConfig]) -> list[RunConfig]:
        """Return the configurations with the precision of ``--precision``."""
        given = {} if self.precision is None else {"precision": self.precision}
        return [config.with_settings(given) for config in configs]

    def make_devices(self, executor: ExecutorConfig) -> Devices:
        """Return the devices of one run; check that nothing else distributes runs."""
        from tmln.experiments.launch import Devices

        devices = Devices(self.devices, self.strategy, self.accelerator)
        devices.check()
        if devices.asked and (executor.executor != "local" or executor.workers not in (None, 1)):
            raise ValueError("--devices runs one run at a time, in its own processes: leave out --executor, --workers")
        return devices


def run_options(recording: RecordingOptions, oracle: Oracle, executor: ExecutorConfig) -> RunOptions:
    """Return the options that all runs of a command share."""
    from tmln.experiments.launch import KEEPABLE, RunOptions
    from tmln.experiments.memory_estimate import VARIABLE, read_size
    from tmln.suggest import did_you_mean

    if executor.memory is not None:
        read_size(executor.memory)
        os.environ[VARIABLE] = executor.memory
    keep = tuple(split_names(recording.keep or ""))
    for name in keep:
        if name not in KEEPABLE:
            raise ValueError(f"--keep takes {', '.join(KEEPABLE)}, not {name!r}{did_you_mean(name, KEEPABLE)}")
    return RunOptions(
        oracle,
        checkpoint_steps=recording.checkpoint_steps,
        logger=recording.logger,
        threads=executor.threads,
        eval_every=recording.eval_every,
        keep=keep,
    )


def split_names(text: str) -> list[str]:
    """Return the names in ``a, b``, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def split_settings(texts: Sequence[str] | None) -> dict[str, str]:
    """Return the settings of ``--set KEY=VALUE``."""
    found = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set takes KEY=VALUE, e.g. step.damping=0.2; got {text!r}")
        found[key.strip()] = value.strip()
    return found


def split_row_names(names: str | None, methods: Sequence[str | None]) -> list[str | None]:
    """Return the name of each method's row, None where none is given."""
    found: list[str | None] = [None] * len(methods) if names is None else [*split_names(names)]
    if len(found) != len(methods):
        raise ValueError(
            f"--name {names} has {len(found)} name{'s' * (len(found) != 1)} for {len(methods)} "
            f"method{'s' * (len(methods) != 1)}; give one for each, separated by commas"
        )
    return found


def choose_methods(method: str | None, methods: str | None) -> Sequence[str | None]:
    """Return the names of ``--method`` or ``--methods``; None is the configuration's own."""
    if method is not None and methods is not None:
        raise ValueError("give --method or --methods, not both")
    if methods is None:
        return [method]
    names = split_names(methods)
    if not names:
        raise ValueError("--methods is empty; write --methods er,tmln (tmln list methods)")
    return names


def parse_configs(
    benchmark: str | None,
    methods: Sequence[str | None],
    seeds: int = 1,
    epochs: int | None = None,
    sets: Sequence[str] | None = None,
    file: Path | None = None,
    compile: bool = False,
    components: Mapping[str, str] | None = None,
    names: Sequence[str | None] | None = None,
) -> list[RunConfig]:
    """Return the configurations that options name, methods times seeds; check each of them.

    Of several methods, one whose components lack a setting goes without it, which is said.
    """
    from tmln.experiments.config import RunConfig
    from tmln.methods.recipes import find_recipe
    from tmln.models.custom import check_allowed

    changes: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    if compile:
        changes["compile"] = True
    changes |= {**split_settings(sets), **(components or {})}
    if file is None and benchmark is None:
        raise ValueError("which benchmark? --benchmark split-digits, say (tmln list benchmarks)")
    configs = []
    notes: dict[str, list[str]] = {}  # what is lacking -> the methods that lack it
    for method, name in zip(methods, names or [None] * len(methods), strict=True):
        if method is not None:
            find_recipe(method)
        base = RunConfig.from_yaml(_read_text(file)) if file else RunConfig(benchmark=str(benchmark))
        given = {k: v for k, v in (("benchmark", benchmark), ("method", method)) if v is not None}
        # with its options: own data can need them to be read, as the column of labels
        options = {key: value for key, value in changes.items() if key.startswith("benchmark.")}
        base = base.with_settings({**given, **options, **({} if name is None else {"name": name})})
        lacking = _find_lacking(base, changes) if len(methods) > 1 else {}
        for why in lacking.values():
            notes.setdefault(why, []).append(str(method))
        base = base.with_settings({key: value for key, value in changes.items() if key not in lacking})
        check_allowed(base.model or "", base.model_options)
        base.recipe().check_code()
        configs += [base.with_setting("seed", base.seed + k) for k in range(seeds)]
    for why, lack in notes.items():
        if len(lack) == len(methods):
            key = why.partition(" ")[0]
            configs[0].with_setting(key, changes[key])  # raises the error
        echo(f"{', '.join(lack)}: run without {why}", err=True)
    return configs


def _find_lacking(base: RunConfig, changes: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings that components of the configuration lack, and the reason for each."""
    base.recipe().check_code()
    heads = {key: value for key, value in changes.items() if "." not in key or key.endswith(".inner")}
    whole = base.with_settings({key: value for key, value in heads.items() if not base.lacks(key)})
    whole.recipe().check_code()
    return {key: f"{key} ({why})" for key in changes if (why := whole.lacks(key))}


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is no text in UTF-8 (byte {error.start}); a configuration is YAML") from None
