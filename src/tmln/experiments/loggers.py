"""Log a run to TensorBoard, Weights & Biases or MLflow behind one small interface."""

from __future__ import annotations

import os
import re
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

from tmln.experiments.store import Run
from tmln.suggest import did_you_mean
from tmln.writing import writing


class Logger(Protocol):
    """Receives numbers by name at a step."""

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log the values of one step, by name."""

    def close(self) -> None:
        """Write everything before returning."""


class TensorBoard:
    """Event files in the run's folder; what a killed run wrote past its checkpoint is dropped."""

    def __init__(self, run: Run, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.folder = run.tensorboard
        with writing(self.folder):
            self.writer: Any = SummaryWriter(str(run.tensorboard), purge_step=step + 1)

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log values; an error of the writer's thread is raised at the next call."""
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
            raise ValueError(
                f"W&B cannot be started ({_reason(error)}); log in (wandb login), set WANDB_MODE=offline, or use "
                "--logger none"
            ) from error

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        self.run.finish()


class MLflow:
    """One MLflow run for each run, found by its name, on the server MLFLOW_TRACKING_URI.

    Logged values cannot be removed there. A resumed run repeats them to the bit, so known ones are
    not sent again.
    """

    def __init__(self, run: Run, step: int) -> None:
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # its own seven take minutes to say no
        with _reaching_mlflow():
            from mlflow.tracking import MlflowClient

            self.client: Any = MlflowClient()
            found = self.client.get_experiment_by_name(EXPERIMENT)
            place = found.experiment_id if found is not None else self.client.create_experiment(EXPERIMENT)
            known = self.client.search_runs([place], f"tags.{TAG} = '{run.name}'", max_results=1)
            self.resumed = bool(known)
            if known:
                self.id = known[0].info.run_id
                self.client.update_run(self.id, status="RUNNING")
            else:
                self.id = self.client.create_run(place, tags={TAG: run.name}, run_name=run.name).info.run_id
                for name, value in run.config.resolved().items():
                    self.client.log_param(self.id, name, str(value)[:LONGEST])
        self.sent: dict[str, int] = {}  # the last step of each name that is known there

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Log each value once, whatever was sent before a kill."""
        with _reaching_mlflow():
            for name, value in ((NOT_IN_NAMES.sub("", given), value) for given, value in values.items()):
                if name not in self.sent:
                    before = self.client.get_metric_history(self.id, name) if self.resumed else []
                    self.sent[name] = max((metric.step for metric in before), default=-1)
                if step > self.sent[name]:
                    self.client.log_metric(self.id, name, value, int(1000 * time.time()), step)

    def close(self) -> None:
        with _reaching_mlflow():
            self.client.set_terminated(self.id)


NOT_IN_NAMES = re.compile(r"[^\w\-. :/]")  # which MLflow refuses in the name of a metric
EXPERIMENT, TAG = "tmln", "tmln.run"
LONGEST = 500  # letters of a parameter, which every server takes


@contextmanager
def _reaching_mlflow() -> Iterator[None]:
    """Raise one line for a server that is missing or asks for a login.

    MLflow has no common error.
    """
    try:
        yield
    except Exception as error:
        why = textwrap.shorten(_reason(error), 200)
        raise ValueError(
            f"MLflow cannot be reached ({why}); start a server (mlflow server) and set "
            "MLFLOW_TRACKING_URI=http://HOST:PORT, log in if it asks (MLFLOW_TRACKING_USERNAME and _PASSWORD), or use "
            "--logger none"
        ) from error


def _reason(error: Exception) -> str:
    return " ".join((str(error).strip() or type(error).__name__).split())


# name -> (package it needs, how it is made)
LOGGERS: dict[str, tuple[str, Callable[[Run, int], Logger]]] = {
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", WeightsAndBiases),
    "mlflow": ("mlflow", MLflow),
}


def make_logger(name: str, run: Run, step: int) -> Logger | None:
    """Return the logger of a run that continues after ``step``.

    ``auto`` is TensorBoard if installed.
    """
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
