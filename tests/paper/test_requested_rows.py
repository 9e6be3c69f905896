"""A row of runs asked for by name: what is there, what is not and why, and what it is held against."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analysis.made import result
from tmln.experiments.result import NewerResult, Result
from tmln.paper.study import NOT_RUN, RequestedRow, read_requested_row

R = [[0.9, 0.1], [0.5, 0.7]]


def run(seed: int, **more: object) -> Result:
    """One that names its reference."""
    made = Result("split-digits", "er", seed, {}, accuracy=R, name=f"er{seed}", references={"prefix": f"joint{seed}"})
    return replace(made, **more)  # type: ignore[arg-type]


def joint(seed: int) -> Result:
    return Result("split-digits", "joint", seed, {}, accuracy=[[0.9, 0.0], [0.8, 0.8 + 0.1 * seed]], references={})


def asked(found: dict[str, Result], seeds: int = 2) -> RequestedRow:
    return read_requested_row({seed: f"er{seed}" for seed in range(seeds)}, found.get, lambda name: f"no {name}")


def test_a_row_of_all_seeds_against_their_references() -> None:
    whole = asked({"er0": run(0), "er1": run(1), "joint0": joint(0), "joint1": joint(1)})
    assert whole.row is not None
    assert whole.row.values["int"] == pytest.approx({0: 0.1, 1: 0.2})
    assert (whole.n, whole.text("acc"), whole.text("int")) == (2, "60.0 ± 0.0", "15.0 ± 7.1")
    assert (whole.row.label, whole.notes("ER"), whole.unreferenced) == ("er", [], [])


def test_what_is_not_there_is_said_with_its_reason() -> None:
    nothing = asked({})
    assert (nothing.n, nothing.text("acc"), nothing.summary("acc").n) == (0, NOT_RUN, 0)
    assert nothing.notes("ER") == ["ER: seed 0 not run: no er0", "ER: seed 1 not run: no er1"]
    one = asked({"er0": run(0), "joint0": joint(0)})
    assert (one.text("acc"), one.text("int")) == ("60.0 *", "10.0 *")
    assert one.notes("ER")[1] == "ER: one seed only, so no deviation and no interval"


def test_a_seed_without_reference_has_no_intransigence() -> None:
    half = asked({"er0": run(0), "er1": run(1), "joint1": joint(1)})
    assert (half.text("acc"), half.text("int")) == ("60.0 ± 0.0", "20.0 *")
    assert half.notes("ER") == ["ER: no joint reference for seed 0, so no INT there"]
    assert asked({"er0": run(0)}, 1).text("int") == "no reference"


def test_what_diverged_is_left_out() -> None:
    lost = run(1, accuracy=[[0.5, 0.0]], diverged="the loss is nan")
    some = asked({"er0": run(0), "er1": lost, "joint0": joint(0)})
    assert (some.text("fm"), some.unreferenced) == ("40.0 *", [])
    assert some.notes("ER")[0] == "ER: seed 1 diverged; kept in the store, left out of the mean"
    alone = read_requested_row({1: "er1"}, {"er1": lost}.get, str)
    assert alone.text("acc") == "diverged"
    assert alone.notes("ER") == ["ER: seed 1 diverged; kept in the store, so there is no mean"]


def test_of_a_newer_version_is_left_alone() -> None:
    def read(name: str) -> Result | None:
        if name in ("er1", "joint0"):
            raise NewerResult("upgrade tmln")
        return {"er0": run(0)}.get(name)

    found = read_requested_row({0: "er0", 1: "er1"}, read, str)
    assert (dict(found.why), found.text("int")) == ({1: "upgrade tmln"}, "no reference")


def test_references_need_none_themselves() -> None:
    found = read_requested_row({0: "joint0"}, {"joint0": joint(0)}.get, str)
    assert (found.unreferenced, found.notes("joint")[1:]) == ([], [])
    assert result("joint", 0, 0.5).kind == "prefix"
