"""Landscapes: losses known in closed form, coordinates known exactly, every gap said, and the picture of it."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from tmln.analysis.measurements import load_analyses, save_analysis
from tmln.cli import app
from tmln.experiments.build import build
from tmln.experiments.config import RunConfig
from tmln.experiments.store import Store
from tmln.learner.evaluation import evaluate
from tmln.measure.landscape import compute_axes, compute_grid, measure_landscape, project_run
from tmln.measure.losses import STAGES, LossProbe, make_probe, measure_losses, measure_trajectory_losses
from tmln.measure.trajectory import Checkpoint, Recording, record
from tmln.plots.figure import save_figure
from tmln.plots.landscape import FLOOR, landscape_figure
from tmln.streams.arrays import stream_of_tasks

SMALL = {"benchmark": "split-digits", "benchmark_options": {"per_class": 24, "per_class_test": 10}, "epochs": 2}
TINY: dict[str, Any] = {"resolution": 3, "checkpoints": 2}


def config(method: str = "tmln", **changes: Any) -> RunConfig:
    return RunConfig.of({**SMALL, "method": method, **changes})


class Sigmoid(nn.Module):
    """Two classes; the loss of input 1 and class 0 is log(1 + exp(-w)) with w the first weight."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x[:, 0] * self.w[0], 0.0 * x[:, 0]], 1)


def sigmoid_recording(*weights: tuple[float, float, float]) -> Recording:
    """Start, a checkpoint, the first solution, a checkpoint, the second."""
    data = (torch.ones(4, 1), torch.zeros(4, dtype=torch.int64))
    stream = stream_of_tasks([(data, data), (data, data)], class_names=["0", "1"])
    marks = ((0, 0, False), (0, 1, False), (0, 2, True), (1, 3, False), (1, 4, True))
    points = [Checkpoint(*mark, {"w": torch.tensor(w)}) for mark, w in zip(marks, weights, strict=True)]
    return Recording(config(), stream, Sigmoid(), tuple(points))


WAY = sigmoid_recording((0, 0, 0), (1, 0, 2), (3, 0, 0), (4, 2, 1), (5, 4, 0))


def test_the_way_is_where_it_must_be() -> None:
    way = project_run("a", WAY)
    assert [(corner.x, corner.y) for corner in way.corners] == [(0, 0), (3, 0), (5, 4)]
    assert [(p["x"], p["y"], p["residual"]) for p in way.points] == [
        (0, 0, 0),
        (1, 0, 2),
        (3, 0, 0),
        (4, 2, 1),
        (5, 4, 0),
    ]
    assert [p["marker"] for p in way.points] == ["start", None, "after task 1", None, "after task 2"]
    assert way.residual == pytest.approx(math.sqrt((4 + 1) / (5 + 21)))
    assert [(p["task"], p["step"]) for p in way.points] == [(1, 0), (1, 1), (1, 2), (2, 3), (2, 4)]


def test_the_grid_has_the_loss_in_closed_form() -> None:
    way = project_run("a", WAY)
    xs, ys = [-1.0, 0.0, 2.5, 7.0], [-2.0, 0.0, 3.0]
    found = compute_grid(way, make_probe(way.recording, 0), xs, ys, "plane")
    wanted = [[math.log(1 + math.exp(-x)) for x in xs] for _ in ys]  # u is the first weight, v the second
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    turned = project_run(
        "a", sigmoid_recording((0, 0, 0), (0, 1, 0), (0, 2, 0), (1, 1, 1), (4, 0, 0))
    )  # v is the first
    found = compute_grid(turned, make_probe(turned.recording, 0), xs, ys, "plane")
    np.testing.assert_allclose(found, [[math.log(1 + math.exp(-y))] * len(xs) for y in ys], rtol=1e-6)


def test_losses_that_are_not_finite_are_nan() -> None:
    way = project_run("a", WAY)
    data = way.recording.stream[0].test
    probe = LossProbe(way.recording.model, data.x * 1e38, 1 - data.y)
    found = compute_grid(way, probe, [-1.0, 100.0], [0.0, 1.0], "plane")
    assert math.isfinite(found[0][0])
    assert math.isnan(found[0][1])


def test_axes_are_a_square_around_all_ways() -> None:
    other = project_run("b", sigmoid_recording((0, 0, 0), (1, 0, 0), (2, 0, 0), (2, -4, 0), (1, 8, 0)))
    xs, ys = compute_axes([project_run("a", WAY), other], "plane", 5)
    assert (xs[0], xs[-1]) == (2.5 - 9, 2.5 + 9)  # 0..5 and -4..8: the longer side is 12, a quarter more on each end
    assert (ys[0], ys[-1]) == (2 - 9, 2 + 9)
    assert compute_axes([other], "random", 3)[0] == [-1.0, 0.0, 1.0]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, dict[str, Any]]:
    store = Store(tmp_path_factory.mktemp("runs"))
    return store, measure_landscape([config("naive"), config("tmln")], store, **TINY)


def test_it_is_of_the_trained_networks(found: tuple[Store, dict[str, Any]]) -> None:
    store, content = found
    assert [entry["label"] for entry in content["methods"]] == ["naive", "tmln"]
    assert (content["samples"], content["tasks"]) == (20, ["task 1", "task 2"])
    stream, learner = build(config("naive"))
    start = evaluate(learner.model, stream[0].test, stream.prepare)["loss"]
    learner.learn(stream[0].train, 2, classes=stream[0].classes)
    after = evaluate(learner.model, stream[1].test, stream.prepare)["loss"]
    naive, tmln = content["methods"]
    assert naive["losses"]["task 1"]["start"] == tmln["losses"]["task 1"]["start"] == pytest.approx(start, rel=1e-5)
    assert naive["losses"]["task 2"]["after task 1"] == pytest.approx(after, rel=1e-5)
    assert naive["markers"]["start"] == tmln["markers"]["start"] == pytest.approx({"x": 0.0, "y": 0.0}, abs=1e-9)
    assert naive["markers"]["after task 1"]["y"] == pytest.approx(0.0, abs=1e-9)
    assert np.array(naive["loss"]).shape == (3, 3)
    assert 0.0 < naive["residual"] < 1.0
    rows = measure_trajectory_losses([config("naive"), config("tmln")], store, checkpoints=2)
    assert [row["losses"] for row in rows] == [entry["losses"] for entry in content["methods"]]


@pytest.mark.parametrize("bn", ["keep", "reestimate"])
def test_with_batch_norm_the_markers_have_the_trained_networks_loss(tmp_path: Path, bn: str) -> None:
    wanted = config("er", model="resnet18-slim", model_options={"width": 2})
    recording = record(wanted, Store(tmp_path), tasks=2, checkpoints=2)
    way = project_run("er", recording)
    probe = make_probe(way.recording, 0, bn=bn)  # type: ignore[arg-type]
    losses = measure_losses(recording)["task 1"]
    for moment, corner in zip(STAGES, way.corners, strict=True):
        ((loss,),) = compute_grid(way, probe, [corner.x], [corner.y], "plane")
        assert (loss == pytest.approx(losses[moment], rel=1e-3)) == (bn == "keep")
    middle = compute_grid(way, probe, [way.corners[2].x / 2], [way.corners[2].y / 2], "plane")
    assert np.isfinite(middle).all()


def test_random_directions_are_around_the_first_solution(tmp_path: Path) -> None:
    content = measure_landscape([config("naive")], Store(tmp_path), mode="random", **TINY)
    (entry,) = content["methods"]
    assert entry["markers"]["after task 1"] == pytest.approx({"x": 0.0, "y": 0.0}, abs=1e-9)
    assert entry["loss"][1][1] == pytest.approx(entry["losses"]["task 1"]["after task 1"], rel=1e-6)
    assert entry["residual"] > 0.9  # random directions see next to nothing of a way
    assert content["x"] == [-1.0, 0.0, 1.0]
    landscape_figure(content)


def test_what_cannot_be_drawn_is_said_and_the_rest_is_drawn(tmp_path: Path) -> None:
    content = measure_landscape([config("naive", lr=1e12), config("tmln")], Store(tmp_path), **TINY)
    broken, whole = content["methods"]
    assert "diverged" in broken["problem"]
    assert whole["problem"] is None
    figure = landscape_figure(content)
    assert "diverged" in figure.axes[0].texts[0].get_text()
    rows = measure_trajectory_losses([config("naive", lr=1e12)], Store(tmp_path), checkpoints=2)
    assert "diverged" in rows[0]["problem"]
    with pytest.raises(ValueError, match="no landscape: naive: diverged"):
        measure_landscape([config("naive", lr=1e12)], Store(tmp_path), **TINY)


@pytest.mark.parametrize(
    ("configs", "options", "said"),
    [
        ([], {}, "at least one method"),
        ([config(), config("naive", seed=1)], {}, "differ in seed"),
        ([config(), config()], {}, "twice"),
        ([config()], {"resolution": 1}, "at least 2"),
        ([config()], {"mode": "plain"}, "plane or random"),
        ([config()], {"samples": 0}, "at least 1"),
        ([config(benchmark_options={"tasks": 1})], {}, "has 1 task"),
    ],
    ids=["none", "seeds", "twice", "resolution", "mode", "samples", "one task"],
)
def test_mistakes_are_answered(tmp_path: Path, configs: list[RunConfig], options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        measure_landscape(configs, Store(tmp_path), **{**TINY, **options})
    assert not any(Store(tmp_path).runs())  # nothing is trained in vain


def test_the_picture_is_of_what_was_saved(found: tuple[Store, dict[str, Any]], tmp_path: Path) -> None:
    content = copy.deepcopy(found[1])
    content["methods"][0]["loss"][0][0] = math.nan
    content["methods"][0]["loss"][0][1] = 0.0
    save_analysis(tmp_path, "landscape", "a", content)
    (analysis,) = load_analyses(tmp_path)
    assert analysis.content["methods"][0]["loss"][0][0] is None
    figure = landscape_figure(analysis.content)
    naive, tmln, bar = figure.axes
    assert naive.get_title().startswith("naive\n")
    assert "off the plane" in tmln.get_title()
    assert naive.get_xlim() == tmln.get_xlim() == (content["x"][0], content["x"][-1])
    levels = [axes.collections[0].levels for axes in (naive, tmln)]  # type: ignore[attr-defined]
    assert levels[0].tolist() == levels[1].tolist()
    lowest = min(value for entry in content["methods"] for row in entry["loss"] for value in row if value > 0)
    assert levels[0][0] <= math.log10(FLOOR) < math.log10(lowest)
    assert "log10" in bar.get_ylabel()
    assert [text.get_text() for text in figure.legends[0].texts] == ["start", "task-1 solution", "task-2 solution"]
    for suffix in (".png", ".svg", ".pdf"):
        assert save_figure(figure, tmp_path / f"a{suffix}").stat().st_size > 1000


def test_losses_that_are_all_one_or_all_gone_can_be_drawn(found: tuple[Store, dict[str, Any]], tmp_path: Path) -> None:
    for value in (2.0, None):
        content = copy.deepcopy(found[1])
        for entry in content["methods"]:
            entry["loss"] = [[value] * 3 for _ in range(3)]
        save_figure(landscape_figure(content), tmp_path / "a.png")


WORDS = ["landscape", "--benchmark", "split-digits", "--set", "benchmark.per_class=24", "--epochs", "1"]


def test_the_command(tmp_path: Path) -> None:
    picture = tmp_path / "a.svg"
    more = ["--methods", "naive, tmln", "--seed", "3", "--resolution", "3", "--checkpoints", "2", "--samples", "9"]
    result = CliRunner().invoke(app, [*WORDS, *more, "--runs", str(tmp_path / "runs"), "-o", str(picture)])
    assert result.exit_code == 0, result.output
    assert "off plane" in result.output
    assert "9 test samples" in result.output
    assert picture.read_text().startswith("<?xml")
    (analysis,) = load_analyses(tmp_path / "runs", "landscape")
    assert (analysis.content["seed"], len(analysis.content["methods"])) == (3, 2)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--methods", "tlmn"], "did you mean 'tmln'"),
        (["--methods", " , "], "which methods"),
        (["--methods", "tmln", "-o", "a.bmp"], "NAME.png"),
        (["--methods", "tmln", "--set", "seed"], "KEY=VALUE"),
    ],
    ids=["method", "no method", "picture", "set"],
)
def test_the_commands_mistakes_are_answered(tmp_path: Path, more: list[str], said: str) -> None:
    result = CliRunner().invoke(app, [*WORDS, *more, "--runs", str(tmp_path / "runs")])
    assert result.exit_code != 0
    assert said in str(result.exception)
    assert not (tmp_path / "runs").exists()
