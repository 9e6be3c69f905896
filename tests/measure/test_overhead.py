"""Overheads under a clock of our own: what is timed, what cancels, what is said; and once for real."""

from __future__ import annotations

import copy
import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tmln.analysis.measurements import (
    _bytes,
    _digits,
    _seconds,
    load_analyses,
    overhead_lines,
    overhead_notes,
    overhead_records,
    save_analysis,
)
from tmln.analysis.text_table import records_csv
from tmln.experiments.build import build
from tmln.experiments.config import RunConfig
from tmln.experiments.memory_estimate import peak_bytes
from tmln.learner import Learner
from tmln.measure import overhead
from tmln.measure.overhead import (
    CONTROL,
    PeakMemory,
    TimedTask,
    _summarise_times,
    measure_overhead,
    measure_peak_memory,
    time_rounds,
    time_task,
)
from tmln.methods import TaskContext
from tmln.plots.figure import save_figure
from tmln.plots.overhead import overhead_figure
from tmln.streams import Stream


def config(method: str, **more: Any) -> RunConfig:
    return RunConfig.of({"benchmark": "split-digits", "method": method, **more})


class Clock:
    """Stands still but for what learners are made to cost; ``pace`` is how slow the machine is at the moment."""

    def __init__(self) -> None:
        self.now, self.pace = 0.0, 1.0

    def spend(self, seconds: float) -> None:
        self.now += seconds * self.pace

    def charge(self, learner: Learner, step: float, end: float) -> Learner:
        """Every step and every boundary of the learner takes so long."""
        self._after(learner.step, "step", lambda: step)
        self._after(learner.step, "end", lambda: end)
        return learner

    def _after(self, part: Any, name: str, cost: Callable[[], float]) -> None:
        real = getattr(part, name)

        def slow(*given: Any) -> Any:
            self.spend(cost())
            return real(*given)

        setattr(part, name, slow)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(overhead, "time", SimpleNamespace(perf_counter=lambda: made.now))
    return made


@pytest.fixture(scope="module")
def stream() -> Stream:
    return build(config("naive"))[0]


@pytest.mark.parametrize("steps", [1, 4, 23], ids=lambda steps: f"{steps} steps")
def test_a_turn_is_some_steps_and_the_boundary_of_the_whole_task(clock: Clock, stream: Stream, steps: int) -> None:
    learner = clock.charge(build(config("er"))[1], step=0.25, end=3.0)
    seen: list[Any] = []
    begin, end, move = learner.replay.begin, learner.replay.end, learner.step.step

    def ended(context: TaskContext) -> None:
        seen.append(sum(len(y) for _, y in context.samples()))
        end(context)

    def begun(context: TaskContext) -> None:
        seen.append("begin")
        begin(context)

    def moved(*given: Any) -> None:
        seen.append("step")
        move(*given)

    learner.replay.begin, learner.replay.end = begun, ended  # type: ignore[method-assign]
    learner.step.step = moved  # type: ignore[assignment,method-assign]
    turn = time_task(learner, stream[0], steps)
    assert (turn.step, turn.boundary) == (0.25, 3.0)
    assert seen == ["begin", *["step"] * (steps + 1), len(stream[0].train)]
    assert (learner.tasks, len(learner.replay.memory or ())) == (1, min(500, len(stream[0].train)))
    assert turn.held == {"step.momentum_buffer": 38440}  # the memory is filled at the boundary
    assert time_task(learner, stream[1], steps).held == {"replay.memory": 36000, "step.momentum_buffer": 38440}


def test_drift_cancels_and_the_order_rotates(clock: Clock, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"naive": (1.0, 0.5), "er": (1.5, 2.0), "ewc++": (3.0, 0.5)}
    learners = {name: clock.charge(build(config(name))[1], *cost) for name, cost in costs.items()}
    order: list[str] = []

    def slower(learner: Learner, *given: Any) -> Any:
        order.append(next(name for name in learners if learners[name] is learner))
        clock.pace = 1.0 + len(order) // len(learners)  # every round the machine is slower
        if len(order) % len(learners) == 0:
            clock.pace -= 1
        return time_task(learner, *given)

    monkeypatch.setattr(overhead, "time_task", slower)
    found, diverged = time_rounds(stream, learners, rounds=3, steps=2)
    assert diverged == {}
    assert order[:6] == ["naive", "er", "ewc++", "er", "ewc++", "naive"]
    assert [turn.step for turn in found["naive"]] == [2.0, 3.0, 4.0]
    ratios = overhead._summarise_times(found["er"], found["naive"], stream, learners["er"], epochs=10)
    assert ratios["step"]["ratios"] == [1.5, 1.5, 1.5]
    per_epoch = [-(-len(stream[k].train) // 32) for k in range(5)]
    steps = 10 * sum(per_epoch)
    expected = (steps * 1.5 + 5 * 2.0) / (steps * 1.0 + 5 * 0.5)
    assert ratios["training"]["ratio"] == {key: pytest.approx(expected) for key in ("mean", "low", "high")} | {"n": 3}
    assert ratios["boundary"]["seconds"]["mean"] == pytest.approx(2.0 * 3)
    assert ratios["boundary"]["epochs"]["mean"] == pytest.approx(sum(2.0 / per_epoch[k] for k in (1, 2, 3)) / 3)


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    """A real measurement, as small as can be."""
    return measure_overhead([config("er"), config("tmln")], rounds=2, steps=3, peak=False)


def test_a_measurement_is_complete_and_plain(content: dict[str, Any], tmp_path: Path) -> None:
    assert list(content["methods"]) == ["naive", "er", "tmln"]
    assert content["methods"]["naive"]["step"]["ratio"]["mean"] == 1.0
    assert content["control"]["n"] == 2
    for found in content["methods"].values():
        assert found["step"]["seconds"]["mean"] > 0
        assert found["boundary"]["seconds"]["mean"] > 0
        assert len(found["step"]["ratios"]) == 2
        assert found["auxiliary"]["formula_bytes"] == found["auxiliary"]["held_bytes"]
    assert content["methods"]["tmln"]["auxiliary"]["derived"] == ["step.preconditioner"]
    save_analysis(tmp_path, "overhead", content["benchmark"], content)
    assert next(load_analyses(tmp_path, "overhead")).content == content
    assert content["machine"]["threads"] == torch.get_num_threads()


def test_a_table_in_every_format(content: dict[str, Any]) -> None:
    lines = overhead_lines(content)
    assert [line[0] for line in lines] == ["method", "naive", "er", "tmln"]
    assert lines[1][1:4] == ["1.00", "-", "1.00"]
    assert lines[3][6:] == ["5N + 500 samples", "228 kB", "228 kB", "-"]
    assert len(overhead_lines(content, formulas=False)[0]) == len(lines[0]) - 2
    table = list(csv.DictReader(records_csv(overhead_records(content)).splitlines()))
    assert float(table[1]["step_ratio_mean"]) == content["methods"]["er"]["step"]["ratio"]["mean"]
    assert (table[1]["held_bytes"], table[1]["peak_bytes"]) == ("74440", "")
    said = "\n".join(overhead_notes(content))
    assert "control, naive against itself: " in said
    assert "by formula: naive N; er N + 500 samples; tmln 5N + 500 samples" in said
    assert "unlike" not in said


def test_the_picture_has_a_bar_for_each_method(content: dict[str, Any], tmp_path: Path) -> None:
    figure = overhead_figure(content)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    means = [content["methods"][name]["step"]["ratio"]["mean"] for name in names]
    assert sorted(names) == ["er", "naive", "tmln"]
    assert means == sorted(means, reverse=True)
    assert [bar.get_width() for bar in figure.axes[0].patches] == pytest.approx(means)  # type: ignore[attr-defined]
    assert save_figure(figure, tmp_path / "cost.png").stat().st_size > 1000


@pytest.mark.filterwarnings("ignore:.*overshoot")
def test_one_that_diverges_is_left_out_and_said(tmp_path: Path) -> None:
    wild = config("ewc++", settings={"penalty.strength": 1e12, "penalty.proximal": False})
    found = measure_overhead([wild, config("er")], rounds=1, steps=30, peak=False)
    bad = found["methods"]["ewc++"]
    assert bad["step"]["ratio"] == {"mean": None, "low": None, "high": None, "n": 0}
    assert bad["diverged"].startswith("after 0 rounds: ")
    assert found["methods"]["er"]["step"]["ratio"]["n"] == 1
    said = "\n".join(overhead_notes(found))
    assert "ewc++ diverged after 0 rounds" in said
    assert "one round only, so no interval" in said
    assert overhead_lines(found)[2][1:6] == ["-"] * 5
    figure = overhead_figure(found)
    assert "ewc++ diverged" in figure.axes[0].get_title()
    save_figure(figure, tmp_path / "cost.png")


def test_ratios_of_wild_rounds_stay_above_0(stream: Stream) -> None:
    """A step that takes 1/10, then 10 times naive's: the geometric mean is 1, and no interval reaches below 0."""
    learner = build(config("naive"))[1]
    naive = [TimedTask(1.0, 0.001, {}), TimedTask(1.0, 0.001, {})]
    found = _summarise_times([TimedTask(0.1, 0.001, {}), TimedTask(10.0, 9.0, {})], naive, stream, learner, 1)
    ratio = found["step"]["ratio"]
    assert ratio["mean"] == pytest.approx(1.0)
    assert 0 < ratio["low"] == pytest.approx(1 / ratio["high"])
    assert found["training"]["ratio"]["low"] > 0
    assert [found["boundary"][key]["low"] for key in ("seconds", "epochs")] == [0.0, 0.0]
    assert found["step"]["seconds"]["low"] == 0.0


def test_naive_itself_must_not_diverge(monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(*given: Any) -> None:
        raise FloatingPointError("the loss is nan")

    monkeypatch.setattr(overhead, "time_task", diverge)
    with pytest.raises(
        FloatingPointError, match="naive diverged, so there is nothing to compare with: the loss is nan"
    ):
        measure_overhead([config("er")], rounds=1, steps=1, peak=False)


@pytest.mark.parametrize(
    ("methods", "rounds", "message"),
    [
        ([], 1, "no methods"),
        (["joint"], 1, "joint takes naive's steps"),
        (["slda"], 1, "slda takes no steps"),
        (["er"], 0, "at least 1, got 0 and 1"),
    ],
    ids=["none", "joint", "frozen", "no rounds"],
)
def test_what_cannot_be_measured_is_refused(methods: list[str], rounds: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure_overhead([config(name) for name in methods], rounds, steps=1)


def test_one_method_in_two_ways_is_refused() -> None:
    with pytest.raises(ValueError, match="er is given twice with different settings"):
        measure_overhead([config("er"), config("er", lr=0.5)], steps=1)


def test_a_peak_that_could_not_be_measured_does_not_cost_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def peak(given: RunConfig, threads: int) -> PeakMemory:
        if given.method == "er":
            raise RuntimeError("measuring the peak memory of er failed: too much")
        return PeakMemory(123, 45)

    monkeypatch.setattr(overhead, "measure_peak_memory", peak)
    with pytest.warns(UserWarning, match="of er failed: too much"):
        found = measure_overhead([config("er")], rounds=1, steps=1)
    methods = found["methods"].items()
    assert {name: method["peak_bytes"] for name, method in methods} == {"naive": 123, "er": None}
    assert {name: method["device_peak_bytes"] for name, method in methods} == {"naive": 45, "er": None}
    heading, naive, er = overhead_lines(found)
    assert heading[-2:] == ["host peak", "GPU peak"]
    assert [naive[-1], er[-1]] == ["0.045 kB", "-"]


def test_naive_is_measured_with_the_same_model_and_batches(content: dict[str, Any]) -> None:
    given = config("er", model_options={"hidden": [20]}, batch_size=64)
    assert overhead._name_configs([given])["naive"].resolved()["model_options"] == given.resolved()["model_options"]
    assert overhead._name_configs([given])["naive"].batch_size == 64
    assert CONTROL not in content["methods"]


def test_the_peak_is_of_a_process_of_its_own() -> None:
    held = torch.ones(2**29, dtype=torch.uint8)  # what this process holds does not count there
    found = measure_peak_memory(config("tmln"), threads=1)
    assert 50e6 < found.host < peak_bytes()
    assert found.device is None  # of a CPU
    assert len(held) == 2**29


def test_a_child_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "Traceback\n  ...\nMemoryError: too much\n")
    monkeypatch.setattr(subprocess, "run", lambda *given, **more: failed)
    with pytest.raises(RuntimeError, match="measuring the peak memory of er failed: MemoryError: too much"):
        measure_peak_memory(config("er"), threads=1)


def test_content_is_json(content: dict[str, Any]) -> None:
    assert json.loads(json.dumps(content)) == content


def test_numbers_are_short_and_never_lost() -> None:
    assert [_digits(v) for v in (None, 0.0, 1e-6, 0.0057, 0.22, 1.0, 9.96, 10.4, 1234.5)] == [
        "-",
        "0",
        "<0.001",
        "0.0057",
        "0.22",
        "1.0",
        "10.0",
        "10",
        "1234",
    ]
    assert [_seconds(v) for v in (None, 4.5e-5, 0.0062, 1.5, 13.2)] == ["-", "0.045 ms", "6.2 ms", "1.5 s", "13 s"]
    assert [_bytes(v) for v in (None, 0, 38440, 4_436_960, 1_500_000_000)] == ["-", "0 kB", "38 kB", "4.4 MB", "1.5 GB"]


def test_a_formula_that_is_not_what_was_found_is_said(content: dict[str, Any]) -> None:
    wrong = copy.deepcopy(content)
    wrong["methods"]["er"]["auxiliary"]["formula_bytes"] = 1000
    wrong["methods"]["tmln"]["auxiliary"]["formula"] = None
    said = "\n".join(overhead_notes(wrong))
    assert "er N + 500 samples (1.0 kB, unlike what is held); tmln unknown" in said


def test_a_busy_machine_is_said(content: dict[str, Any]) -> None:
    busy = {**content, "machine": {**content["machine"], "load": 3.0, "cores": 2}}
    assert any("others were at work (load 3.0 on 2 cores)" in note for note in overhead_notes(busy))
    free = {**content, "machine": {**content["machine"], "load": 0.1, "cores": 2}}
    assert not any("others were at work" in note for note in overhead_notes(free))
