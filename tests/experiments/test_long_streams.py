"""Results of long streams: what is written is read again, and no writer writes what its reader refuses."""

from __future__ import annotations

import base64
import json
import math
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch

from tmln.analysis import published
from tmln.analysis.published import publish, read_published
from tmln.analysis.read import read_results
from tmln.evaluation_counts import MOST_NUMBERS, pack_rows, unpack_rows
from tmln.experiments import result as results
from tmln.experiments.config import RunConfig
from tmln.experiments.result import Observations, Result, write_result
from tmln.experiments.run_state import RunState, add_test
from tmln.experiments.store import Run, Store
from tmln.learner.checkpoint import read_newest, write_checkpoint
from tmln.learner.evaluation_statistics import Liveliness, Tally


def run_in(root: Path) -> Run:
    return Store(root).open(RunConfig.of({"benchmark": "split-digits", "method": "er"}))


def rows_of(tasks: int) -> list[list[float]]:
    return [[((7 * k + j) % 11) / 10 for j in range(tasks)] for k in range(tasks)]


def finish(run: Run, **observed: Any) -> Result:
    with run.lock:
        run.finish({"metrics": {}, **observed})
    result = run.result  # read once: a long stream's takes seconds
    assert result is not None
    return result


def test_packed_rows_by_hand() -> None:
    packed = pack_rows([[0.5, None, 0.25], [], [0.5]])
    assert packed["lengths"] == [3, 0, 1]
    assert packed["values"][:2] == [0.25, 0.5]
    assert zlib.decompress(base64.b64decode(packed["codes"])) == bytes([1, 2, 0, 1])
    first, empty, last = unpack_rows(json.loads(json.dumps(packed).replace("NaN", "null")))
    assert (first[0], first[2], empty, last) == (0.5, 0.25, [], [0.5])
    assert math.isnan(first[1])


@pytest.mark.parametrize("distinct", [256, 257, 65536, 65537])
def test_codes_are_as_wide_as_they_have_to_be(distinct: int) -> None:
    rows = [[k / distinct for k in range(distinct)], [0.0]]
    assert unpack_rows(pack_rows(rows)) == rows


WHOLE = pack_rows([[0.5, 1.0], [0.25, 0.5]])
BOMB = base64.b64encode(zlib.compress(bytes(1 << 20))).decode()


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": [2, 1]},
        {"lengths": [2, 3]},
        {"lengths": [2, -1]},
        {"lengths": [2.0, 2]},
        {"lengths": [MOST_NUMBERS, 1]},
        {"lengths": None},
        {"values": [0.5, 1.0]},
        {"values": ["0.25", 0.5, 1.0]},
        {"values": [0.25, 0.5, 1e200]},
        {"codes": WHOLE["codes"][:-4]},
        {"codes": BOMB},
        {"codes": 5},
    ],
)
def test_rows_that_nobody_packed_are_refused(change: dict[str, Any]) -> None:
    assert unpack_rows(WHOLE) == [[0.5, 1.0], [0.25, 0.5]]
    with pytest.raises(ValueError, match="packed"):
        unpack_rows({**WHOLE, **change})


def test_ten_thousand_tasks_are_written_and_read(tmp_path: Path) -> None:
    tasks = 10_000
    few = [[((k + j) % 101) / 100 for j in range(tasks)] for k in range(5)]
    found = finish(run_in(tmp_path), accuracy=[few[k % 5] for k in range(tasks)])
    assert len(found.accuracy) == tasks
    assert all(row == few[k % 5] for k, row in enumerate(found.accuracy))
    assert found.checksum


def test_a_short_result_is_written_as_ever(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    finish(run, accuracy=rows_of(20), masked_accuracy=rows_of(20))
    written = json.loads((run.path / "result.json").read_text())
    assert written["format"] == 2
    assert written["accuracy"] == written["masked_accuracy"] == rows_of(20)


def test_every_matrix_of_a_long_stream_comes_back_also_published(tmp_path: Path) -> None:
    tasks = 600
    R, steps = rows_of(tasks), list(range(tasks))
    within = [[0.5], *(row[: k + 1] for k, row in enumerate(R[1:], start=1))]
    wide = {"every": 1, "step": steps * 2, "task": steps * 2, "accuracy": within * 2}
    run = run_in(tmp_path / "runs")
    found = finish(run, accuracy=R, masked_accuracy=R, validation_accuracy=R, within=wide)
    assert json.loads((run.path / "result.json").read_text())["format"] == 3
    publish([found], tmp_path / "all.json")
    (again,), refused = read_published(tmp_path / "all.json")
    assert not refused
    for one in (found, again, *read_results(tmp_path / "runs")[0], *read_results(tmp_path / "all.json")[0]):
        assert one.accuracy == one.masked_accuracy == one.validation_accuracy == R
        assert one.within == wide
        assert one.metrics["acc"] == pytest.approx(sum(R[-1]) / tasks)
    publish([again], tmp_path / "twice.json")
    assert (tmp_path / "twice.json").read_bytes() == (tmp_path / "all.json").read_bytes()


def test_what_would_be_refused_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_in(tmp_path)
    whole = finish(run, accuracy=rows_of(20))
    before = (run.path / "result.json").read_bytes()
    monkeypatch.setattr(results, "MOST_BYTES", len(before))
    with pytest.raises(ValueError, match=r"more than the [\d,]+ that are read"):
        finish(run, accuracy=rows_of(21))
    assert (run.path / "result.json").read_bytes() == before
    assert run.result == whole
    monkeypatch.setattr(published, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="publish fewer"):
        publish([whole], tmp_path / "all.json")
    assert not (tmp_path / "all.json").exists()


def test_a_damaged_packed_matrix_is_no_result(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    finish(run, accuracy=rows_of(600))
    content = json.loads((run.path / "result.json").read_text())
    content["accuracy"]["lengths"][0] -= 1
    write_result(run.path / "result.json", {**content, "accuracy": rows_of(2)})
    assert run.result is not None
    content.pop("checksum")
    content["checksum"] = results.checksum_of(content)
    (run.path / "result.json").write_text(json.dumps(content))
    assert run.result is None


def test_confusions_that_could_not_be_read_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that a checkpoint or result can hold the last one stays; one that is too large is not kept at all."""
    monkeypatch.setattr("tmln.experiments.run_state.MOST_BYTES", 4 * 3**2)
    observed, tally, found = Observations(), Tally(1), [{"accuracy": 1.0, "masked_accuracy": 1.0}]
    tally(0, torch.eye(3), torch.arange(3))
    lengths = []
    for _ in range(3):
        observed = add_test(observed, found, tally, Liveliness())
        lengths.append(len(observed.confusion))
    assert lengths == [1, 1, 1]
    larger = Tally(1)
    larger(0, torch.eye(4), torch.arange(4))
    assert len(add_test(observed, found, larger, Liveliness()).confusion) == 1
    assert add_test(Observations(), found, larger, Liveliness()).confusion == []


def test_a_checkpoint_of_ten_thousand_tasks_is_written_and_read(tmp_path: Path) -> None:
    """Its matrices are arrays: each number takes eight bytes, and state.json stays short."""
    few = [[((k + j) % 101) / 100 for j in range(10_000)] for k in range(5)]
    state = RunState({"tasks": 400}, Observations(accuracy=[few[k % 5] for k in range(400)], steps=7))
    write_checkpoint(tmp_path, state.to_plain(), 7)
    assert (tmp_path / "00000001-step-7" / "state.json").stat().st_size < 10_000
    read = read_newest(tmp_path)
    assert read is not None
    found = RunState.of(read[0])
    assert (found.learner, found.observations.steps) == ({"tasks": 400}, 7)
    assert found.observations.accuracy == state.observations.accuracy
