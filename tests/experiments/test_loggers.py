"""Numbers go to TensorBoard, W&B and MLflow, and a resumed run does not write them twice."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tmln.experiments.config import RunConfig
from tmln.experiments.launch import RunOptions
from tmln.experiments.loggers import make_logger
from tmln.experiments.run import Execution
from tmln.experiments.store import Run, Store

SMALL = {"benchmark": "split-digits", "benchmark_options": {"per_class": 24, "per_class_test": 10}, "epochs": 12}


def run_of(root: Path) -> Run:
    return Store(root).open(RunConfig.of({**SMALL, "method": "naive"}))


def test_tensorboard_holds_loss_and_accuracy(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = run_of(tmp_path)
    with run.lock:
        result = Execution(run, RunOptions(logger="tensorboard"))()
    events = EventAccumulator(str(run.tensorboard))
    events.Reload()
    last = [event.value for event in events.Scalars("accuracy/task 5")]
    assert last == pytest.approx([row[4] for row in result.accuracy])
    assert [event.step for event in events.Scalars("loss")] == [r["step"] for r in run.read_log() if "loss" in r]


def test_what_a_killed_run_wrote_past_its_checkpoint_is_purged(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = run_of(tmp_path)
    killed = make_logger("tensorboard", run, 0)
    assert killed is not None
    for step in (1, 2, 3, 4):
        killed.scalars({"loss": float(step)}, step)
    killed.close()
    resumed = make_logger("tensorboard", run, 2)  # the checkpoint is of step 2
    assert resumed is not None
    resumed.scalars({"loss": 30.0}, 3)
    resumed.close()
    events = EventAccumulator(str(run.tensorboard))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_wandb_gets_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the package: what it is called with."""
    said: list[Any] = []
    stand_in: Any = types.ModuleType("wandb")
    stand_in.__spec__ = types.SimpleNamespace()

    class Online:
        def log(self, values: dict[str, float], step: int) -> None:
            said.append((step, values))

        def finish(self) -> None:
            said.append("finished")

    def init(**options: Any) -> Online:
        said.append(options)
        return Online()

    stand_in.init = init
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    run = run_of(tmp_path)
    with run.lock:
        Execution(run, RunOptions(logger="wandb"))()
    assert said[0]["id"] == run.name
    assert said[0]["resume"] == "allow"
    assert said[-1] == "finished"
    assert any("accuracy/seen" in values for _, values in said[1:-1])


def test_loggers_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path)
    assert make_logger("none", run, 0) is None
    with pytest.raises(ValueError, match="did you mean 'tensorboard'"):
        make_logger("tensorbord", run, 0)
    monkeypatch.setattr("tmln.experiments.loggers.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'tmln\[wandb\]'"):
        make_logger("wandb", run, 0)


def test_wandb_without_a_login_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> None:
        raise Exception("No API key configured.\nUse wandb login.")

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    monkeypatch.setattr("tmln.experiments.loggers.find_spec", lambda name: True)
    with pytest.raises(
        ValueError, match=r"^W&B cannot be started \(No API key configured. Use wandb login.\); log in "
    ):
        make_logger("wandb", run_of(tmp_path), 0)


class Server:
    """A stand-in for MLflow's client and what is behind it."""

    runs: dict[str, dict[str, Any]]

    def __init__(self) -> None:
        self.runs = {}

    def get_experiment_by_name(self, name: str) -> Any:
        return types.SimpleNamespace(experiment_id=name)

    def search_runs(self, places: list[str], filter_string: str, max_results: int) -> list[Any]:
        return [
            types.SimpleNamespace(info=types.SimpleNamespace(run_id=key))
            for key, run in self.runs.items()
            if filter_string == f"tags.tmln.run = '{run['tags']['tmln.run']}'"
        ]

    def create_run(self, place: str, tags: dict[str, str], run_name: str) -> Any:
        self.runs[run_name] = {"tags": tags, "params": {}, "metrics": [], "status": "RUNNING"}
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_name))

    def update_run(self, key: str, status: str) -> None:
        self.runs[key]["status"] = status

    def log_param(self, key: str, name: str, value: str) -> None:
        self.runs[key]["params"][name] = value

    def log_metric(self, key: str, name: str, value: float, timestamp: int, step: int) -> None:
        self.runs[key]["metrics"].append((name, step, value))

    def get_metric_history(self, key: str, name: str) -> list[Any]:
        return [types.SimpleNamespace(step=step) for known, step, _ in self.runs[key]["metrics"] if known == name]

    def set_terminated(self, key: str) -> None:
        self.runs[key]["status"] = "FINISHED"


def serve(monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setitem(sys.modules, "mlflow", types.ModuleType("mlflow"))
    monkeypatch.setitem(sys.modules, "mlflow.tracking", types.SimpleNamespace(MlflowClient=client))
    monkeypatch.setattr("tmln.experiments.loggers.find_spec", lambda name: True)


def test_mlflow_gets_each_value_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server, run = Server(), run_of(tmp_path)
    serve(monkeypatch, lambda: server)
    killed = make_logger("mlflow", run, 0)
    assert killed is not None
    for step in (1, 2, 3):
        killed.scalars({"loss": 1.0 / step}, step)
    resumed = make_logger("mlflow", run, 1)  # the checkpoint is of step 1: 2 and 3 come again
    assert resumed is not None
    for step in (2, 3, 4):
        resumed.scalars({"loss": 1.0 / step, "accuracy/seen": 0.5}, step)
    resumed.scalars({"boundary/step/slow-down, median": 0.5}, 4)  # MLflow refuses the comma
    resumed.close()
    (kept,) = server.runs.values()
    assert [entry for entry in kept["metrics"] if entry[0] == "loss"] == [("loss", n, 1.0 / n) for n in (1, 2, 3, 4)]
    assert [step for name, step, _ in kept["metrics"] if name == "accuracy/seen"] == [2, 3, 4]
    assert ("boundary/step/slow-down median", 4, 0.5) in kept["metrics"]
    assert kept["status"] == "FINISHED"
    assert kept["params"]["benchmark"] == "split-digits"
    assert all(len(value) <= 500 for value in kept["params"].values())


@pytest.mark.filterwarnings("ignore")  # of SQLAlchemy, about MLflow
def test_every_number_of_a_run_reaches_mlflow_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package, with a database of its own: it refuses names that the stand-in above does not."""
    pytest.importorskip("mlflow")
    for needed in ("sqlalchemy", "alembic"):
        pytest.importorskip(needed)
    from mlflow.tracking import MlflowClient

    place = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", place)
    run = Store(tmp_path).open(RunConfig.of({**SMALL, "epochs": 1, "method": "tmln"}))
    with run.lock:
        result = Execution(run, RunOptions(logger="mlflow"))()
    client = MlflowClient(place)
    (experiment,) = [one for one in client.search_experiments() if one.name == "tmln"]
    (kept,) = client.search_runs([experiment.experiment_id])
    assert kept.info.status == "FINISHED"
    assert kept.data.metrics["accuracy/task 5"] == pytest.approx(result.accuracy[-1][4])
    assert "boundary/step/slow-down median" in kept.data.metrics


def test_mlflow_without_a_server_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def client() -> None:
        raise Exception("API request failed\n" + 80 * "very long ")

    serve(monkeypatch, client)
    with pytest.raises(
        ValueError, match=r"^MLflow cannot be reached \(API request failed very .*MLFLOW_TRACKING_URI="
    ) as e:
        make_logger("mlflow", run_of(tmp_path), 0)
    assert len(str(e.value)) < 450
    monkeypatch.setattr("tmln.experiments.loggers.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install 'tmln\[mlflow\]'"):
        make_logger("mlflow", run_of(tmp_path), 0)
