"""Where a run's numbers go besides log.jsonl: TensorBoard, Weights & Biases, behind one small interface."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Protocol

from tmln.lab.store import Run
from tmln.suggest import did_you_mean
from tmln.writing import writing


class Logger(Protocol):
    """Takes numbers by name at a step."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Values of one step, by name."""

    def close(self) -> None:
        """All is written before it returns."""


class TensorBoard:
    """Event files in the run's folder; what a killed run wrote past its checkpoint is dropped."""

    def __init__(self, run: Run, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.folder = run.tensorboard
        with writing(self.folder):
            self.writer: Any = SummaryWriter(str(run.tensorboard), purge_step=step + 1)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Its thread writes later: what that met is raised at the next call."""
        with writing(self.folder):
            for name, value in values.items():
                self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        with writing(self.folder):
            self.writer.close()


class WeightsAndBiases:
    """One W&B run for each run, under its name; WANDB_MODE=offline keeps it on this machine."""

    def __init__(self, run: Run, step: int) -> None:
        import wandb

        where: dict[str, Any] = {"project": "tmln", "id": run.name, "name": run.name, "dir": str(run.path)}
        try:
            self.run: Any = wandb.init(**where, config=run.config.resolved(), resume="allow")
        except Exception as error:  # without a login or a network: its errors are of no common kind
            reason = " ".join((str(error).strip() or type(error).__name__).split())
            raise ValueError(
                f"W&B cannot be started ({reason}); log in (wandb login), set WANDB_MODE=offline, or use --logger none"
            ) from error

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        self.run.finish()


# name -> (package it needs, how it is made)
LOGGERS: dict[str, tuple[str, Callable[[Run, int], Logger]]] = {
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", WeightsAndBiases),
}


def make_logger(name: str, run: Run, step: int) -> Logger | None:
    """The logger for a run that goes on after ``step``; ``auto`` is TensorBoard where it is installed."""
    if name == "auto":
        name = "tensorboard" if find_spec("tensorboard") else "none"
    if name == "none":
        return None
    if name not in LOGGERS:
        raise ValueError(f"unknown logger {name!r}{did_you_mean(name, LOGGERS)} (auto, none, {', '.join(LOGGERS)})")
    package, make = LOGGERS[name]
    if find_spec(package) is None:
        raise ImportError(f"logger {name!r} needs {package}: pip install 'tmln[{name}]', or --logger none")
    return make(run, step)
