"""Barriers: hand-computed ones, a network whose barrier is known, and what is said where there is none."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from typer.testing import CliRunner

from tmln.analysis.measurements import load_analyses, save_analysis
from tmln.analysis.statistics import summarise
from tmln.cli import app
from tmln.experiments.config import RunConfig
from tmln.experiments.store import Store
from tmln.learner.evaluation import evaluate
from tmln.measure.barrier import NUMBERS, compute_barrier, compute_excess, measure_barriers, measure_run
from tmln.measure.trajectory import Checkpoint, Recording, record
from tmln.plots.barrier import barrier_figure
from tmln.plots.figure import save_figure
from tmln.streams.arrays import stream_of_tasks

SMALL = {"benchmark": "split-digits", "benchmark_options": {"per_class": 24, "per_class_test": 10}, "epochs": 2}
LINE = [index / 10 for index in range(11)]


def config(method: str = "tmln", **changes: Any) -> RunConfig:
    return RunConfig.of({**SMALL, "method": method, **changes})


def test_hand_computed_barriers() -> None:
    wells = [((2 * s - 1) ** 2 - 1) ** 2 for s in LINE]  # (x^2 - 1)^2 from -1 to 1
    assert compute_barrier(wells, LINE) == pytest.approx(1.0)
    assert compute_barrier([value + 3 * s for value, s in zip(wells, LINE, strict=True)], LINE) == pytest.approx(1.0)
    assert compute_barrier([s**2 for s in LINE], LINE) == 0.0  # convex
    assert compute_barrier([1.0, 4.0, 3.0], [0.0, 0.5, 1.0]) == 2.0
    assert compute_barrier([1.0, 2.0, 9.0, 5.0], [0.0, 0.25, 0.5, 1.0]) == 6.0
    assert (
        compute_excess([1.0, 4.0, 3.0], 1.0),
        compute_excess([1.0, 4.0, 3.0], 3.0),
        compute_excess([2.0, 1.0], 2.0),
    ) == (3.0, 1.0, 0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf], ids=str)
def test_what_is_not_finite_is_no_small_barrier(bad: float) -> None:
    assert compute_barrier([1.0, bad, 1.0], [0.0, 0.5, 1.0]) == math.inf
    assert math.isnan(compute_barrier([bad, 1.0, 1.0], [0.0, 0.5, 1.0]))
    assert math.isnan(compute_barrier([1.0, 1.0, bad], [0.0, 0.5, 1.0]))
    assert compute_excess([1.0, bad], 1.0) == math.inf
    assert math.isnan(compute_excess([1.0, 1.0], bad))


@settings(deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=11, max_size=11))
def test_barriers_are_never_negative_and_the_same_both_ways(values: list[float]) -> None:
    found = compute_barrier(values, LINE)
    assert found >= 0.0
    assert compute_barrier(values[::-1], LINE) == pytest.approx(found, abs=1e-9)
    assert found >= compute_excess(values, max(values[0], values[-1])) - 1e-9


@pytest.mark.parametrize("shares", [[0.0, 1.0], [0.1, 0.5, 1.0], [0.0, 0.5, 0.9]], ids=str)
def test_a_path_that_is_none(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        compute_barrier([1.0, 2.0, 3.0], shares)


class Product(nn.Module):
    """Logits (a * b * x, 0): not convex in its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x[:, 0] * self.weights.prod(), 0.0 * x[:, 0]], 1)


def product_recording(*weights: tuple[float, float]) -> Recording:
    data = (torch.ones(3, 1), torch.zeros(3, dtype=torch.int64))
    other = (-torch.ones(3, 1), torch.zeros(3, dtype=torch.int64))  # the second task wants a negative product
    stream = stream_of_tasks([(data, data), (other, other), (data, data)], class_names=["0", "1"])
    points = [Checkpoint(k, k + 1, True, {"weights": torch.tensor(w)}) for k, w in enumerate(weights)]
    start = Checkpoint(0, 0, False, {"weights": torch.zeros(2)})
    return Recording(config(), stream, Product(), (start, *points))


def loss(margin: float) -> float:
    return math.log(1 + math.exp(-margin))


def test_a_barrier_in_closed_form() -> None:
    found = measure_run(product_recording((-1, -1), (1, 1), (1, 2)), "a", LINE)
    first, second = found["pairs"]
    assert [one["task"] for one in first["tasks"]] == [1]
    assert [one["task"] for one in second["tasks"]] == [1, 2]
    (path,) = first["tasks"]
    assert path["loss"] == pytest.approx([loss((1 - 2 * s) ** 2) for s in LINE], rel=1e-6)
    barrier = loss(0) - loss(1)  # at the middle, between equal ends
    assert [path[key] for key in ("barrier", "climb", "excess")] == pytest.approx([barrier] * 3, rel=1e-6)
    assert path["accuracy"] == [1.0] * 11  # at the middle both logits are 0, and the first is taken
    one, two = second["tasks"]
    assert one["loss"] == pytest.approx([loss(1 + s) for s in LINE], rel=1e-6)
    assert two["loss"] == pytest.approx([loss(-1 - s) for s in LINE], rel=1e-6)
    assert (one["barrier"], two["barrier"]) == pytest.approx((0.0, 0.0), abs=1e-6)
    assert (one["climb"], two["climb"]) == pytest.approx((0.0, loss(-2) - loss(-1)), rel=1e-6)
    assert two["accuracy"] == [0.0] * 11
    assert found["climb"] == pytest.approx((barrier + (0.0 + loss(-2) - loss(-1)) / 2) / 2, rel=1e-6)
    assert found["before"] == pytest.approx((loss(1) + (loss(1) + loss(-1)) / 2) / 2, rel=1e-6)


def test_an_accuracy_barrier_is_a_fall() -> None:
    recording = product_recording((-1, -1), (2, 0.5), (1, 2))  # the product is negative between the first two
    path = measure_run(recording, "a", LINE)["pairs"][0]["tasks"][0]
    wanted = [(3 * s - 1) * (1.5 * s - 1) for s in LINE]
    assert path["accuracy"] == [float(product >= 0) for product in wanted]
    assert path["accuracy_barrier"] == 1.0


@pytest.mark.parametrize(
    "model", [{}, {"model": "resnet18-slim", "model_options": {"width": 2}}], ids=["mlp", "resnet"]
)
def test_the_ends_are_the_trained_networks(tmp_path: Path, model: dict[str, Any]) -> None:
    recording = record(config("er", **model), Store(tmp_path), checkpoints=0)
    found = measure_run(recording, "er", [0.0, 0.5, 1.0], samples=None)
    network = copy.deepcopy(recording.model)
    for index, end in ((0, 2), (-1, 3)):
        network.load_state_dict(recording.solutions[end].state)
        wanted = evaluate(network, recording.stream[1].test, recording.stream.prepare)
        path = found["pairs"][2]["tasks"][1]
        assert path["loss"][index] == pytest.approx(wanted["loss"], rel=1e-4)
        assert path["accuracy"][index] == wanted["accuracy"]
    fresh = measure_run(recording, "er", [0.0, 0.5, 1.0], samples=None, bn="reestimate")
    assert (fresh["barrier"] == found["barrier"] and fresh["before"] == found["before"]) == (not model)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    store = Store(tmp_path_factory.mktemp("runs"))
    configs = [config(method, seed=seed) for method in ("naive", "tmln") for seed in (0, 1)]
    return measure_barriers([*configs, config("er", lr=1e12)], store, points=3)


def test_seeds_are_summarised_and_the_diverged_named(content: dict[str, Any]) -> None:
    naive, tmln, er = content["methods"]
    assert [one["seed"] for one in naive["seeds"]] == [0, 1]
    assert len(naive["seeds"][0]["pairs"]) == 4
    assert (content["shares"], len(content["tasks"])) == ([0.0, 0.5, 1.0], 5)
    for key in NUMBERS:
        wanted = summarise([one[key] for one in tmln["seeds"]])
        assert tmln["summary"][key]["mean"] == wanted.mean == np.mean([one[key] for one in tmln["seeds"]])
        assert tmln["summary"][key]["std"] == wanted.std
    assert er["seeds"] == []
    assert "seed 0 diverged and is left out" in er["problems"][0]
    assert er["summary"]["barrier"]["n"] == 0


def test_the_picture_is_of_what_was_saved(content: dict[str, Any], tmp_path: Path) -> None:
    content = copy.deepcopy(content)
    content["methods"][0]["seeds"][0]["pairs"][0]["tasks"][0]["loss"][1] = math.inf
    content["methods"][0]["seeds"][0]["barrier"] = math.inf
    content["methods"][0]["summary"]["barrier"]["mean"] = math.inf
    save_analysis(tmp_path, "barrier", "a", content)
    (analysis,) = load_analyses(tmp_path)
    figure = barrier_figure(analysis.content)
    path, barrier, climb = figure.axes
    legend = path.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["naive", "tmln", "straight line"]
    said = [text.get_text() for text in barrier.texts]
    assert "not finite" in said
    assert "diverged" in said
    middle = content["methods"][1]["summary"]["climb"]["mean"]
    assert f"{middle:.2g}" in [text.get_text() for text in climb.texts]
    assert save_figure(figure, tmp_path / "a.png").stat().st_size > 1000
    assert "a small tick for each seed" in climb.get_xlabel()


def test_the_straight_line_is_straight_however_far_losses_reach(content: dict[str, Any]) -> None:
    content = copy.deepcopy(content)
    for path in content["methods"][1]["seeds"][0]["pairs"][0]["tasks"]:
        path["loss"] = [1e-4, 1.0, 1e3]
    path = barrier_figure(content).axes[0]
    assert path.get_yscale() == "linear"
    for line in (line for line in path.get_lines() if line.get_linestyle() == ":"):
        points = path.transData.transform(np.asarray(line.get_xydata(), dtype=np.float64))
        if not len(points):  # the legend's
            continue
        slopes = np.diff(points[:, 1]) / np.diff(points[:, 0])
        assert np.allclose(slopes, slopes[0])


def test_zeros_are_a_sentence_and_no_empty_panel(content: dict[str, Any]) -> None:
    content = copy.deepcopy(content)
    for entry in content["methods"]:
        for seed in entry["seeds"]:
            seed["barrier"] = 0.0
    _, barrier, climb = barrier_figure(content).axes
    assert [text.get_text().replace("\n", " ") for text in barrier.texts] == [
        "0 for every method: on no line does the loss rise above the straight one"
    ]
    assert not barrier.get_lines()
    assert climb.get_lines()


@pytest.mark.parametrize(
    ("configs", "options", "said"),
    [
        ([], {}, "at least one method"),
        ([config(), config()], {}, "twice"),
        ([config()], {"points": 2}, "at least 3 points"),
        ([config(), config(benchmark="rotated-digits")], {}, "one benchmark"),
        ([config(benchmark_options={"tasks": 1})], {}, "has 1 task"),
        ([config("naive", lr=1e12)], {}, "no barrier: naive: seed 0 diverged"),
        ([config()], {"samples": 0}, "at least 1"),
    ],
    ids=["none", "twice", "points", "benchmarks", "one task", "diverged", "samples"],
)
def test_mistakes_are_answered(tmp_path: Path, configs: list[RunConfig], options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        measure_barriers(configs, Store(tmp_path), **options)
    assert ("diverged" in said) == any(tmp_path.rglob("*.safetensors"))  # nothing is trained in vain


def test_the_command(tmp_path: Path) -> None:
    words = ["barrier", "--benchmark", "split-digits", "--set", "benchmark.per_class=24", "--epochs", "1"]
    words += ["--methods", "tmln", "--seeds", "2", "--points", "3", "--samples", "20"]
    result = CliRunner().invoke(app, [*words, "--runs", str(tmp_path / "runs"), "-o", str(tmp_path / "a.pdf")])
    assert result.exit_code == 0, result.output
    assert "barrier" in result.output
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    (analysis,) = load_analyses(tmp_path / "runs", "barrier")
    assert analysis.content["methods"][0]["summary"]["barrier"]["n"] == 2
