"""The store: a run appears whole, is found again, is finished once; a damaged one never breaks a listing."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from tmln.experiments import Run, RunConfig, RunLocked, Store, run_id
from tmln.experiments.files import write_whole
from tmln.experiments.lock import LockLost
from tmln.experiments.result import FORMAT, NewerResult
from tmln.experiments.store import append_line, read_lines, truncate_after

CONFIG = RunConfig(benchmark="split-digits", method="er", seed=1)
RESULT = {"accuracy": [[1.0, 0.0], [0.5, 0.9]], "metrics": {"acc": 0.7, "fm": 0.5, "int": math.nan}, "seconds": 1.5}
LINES = b'{"step": 1}\n{"step": 2}\n{"step": 2, "again": 1}\n{"step": 3}\n'  # 12, 12, 24 and 12 bytes


def finished(store: Store, config: RunConfig = CONFIG) -> Run:
    run = store.open(config)
    with run.lock:
        run.finish(RESULT)
    return run


def test_a_run_from_beginning_to_end(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs")
    assert store.find(CONFIG) is None
    assert list(store.runs()) == []
    run = store.open(CONFIG)
    assert run.path == tmp_path / "runs" / run_id(CONFIG)
    assert run.checkpoints == run.path / "checkpoint"
    assert run.tensorboard == run.path / "tensorboard"
    assert not run.finished
    assert RunConfig.from_yaml((run.path / "config.yaml").read_text()).resolved() == CONFIG.resolved()
    (entry,) = store.runs()
    assert (entry.name, entry.state, entry.config) == (run.name, "unfinished", CONFIG.resolved())

    finished(store)
    again = Store(tmp_path / "runs").find(CONFIG)
    assert again is not None
    assert again.finished
    assert again.result is not None
    assert again.result.accuracy == RESULT["accuracy"]
    assert again.result.metrics["acc"] == 0.7
    assert math.isnan(again.result.metrics["int"])
    assert {key: getattr(again.result, key) for key in ("name", "benchmark", "method", "seed", "seconds")} == {
        "name": again.name,
        "benchmark": "split-digits",
        "method": "er",
        "seed": 1,
        "seconds": 1.5,
    }
    (entry,) = store.runs()
    assert (entry.state, entry.config, entry.result is not None) == ("finished", CONFIG.resolved(), True)
    strict = json.loads((run.path / "result.json").read_text(), parse_constant=pytest.fail)  # NaN is no JSON
    assert strict["metrics"]["int"] is None
    assert sorted(path.name for path in run.path.iterdir()) == [".lock", "config.yaml", "result.json"]


def test_the_same_configuration_is_the_same_run(tmp_path: Path) -> None:
    store = Store(tmp_path)
    finished(store)
    spelled = RunConfig(benchmark="split-digits", method="er", seed=1, epochs=10)
    assert store.open(spelled).finished
    assert not store.open(CONFIG.with_setting("seed", 2)).finished
    assert [entry.state for entry in store.runs()] == ["finished", "unfinished"]


def test_finishing_needs_the_lock_and_a_result(tmp_path: Path) -> None:
    run = Store(tmp_path).open(CONFIG)
    with pytest.raises(LockLost):
        run.finish(RESULT)
    with run.lock:
        with pytest.raises(RunLocked, match=run.name):
            Store(tmp_path).open(CONFIG).lock.acquire()
        with pytest.raises(ValueError, match="lacks accuracy, metrics"):
            run.finish({"seconds": 3})
        with pytest.raises(ValueError, match=r"accuracy\.0 = 0\.5: .* valid list"):
            run.finish({"accuracy": [0.5], "metrics": {}})
    assert not run.finished


DAMAGED: dict[str, tuple[str, str]] = {
    "cut short": ('{"format": 1, "acc', "not JSON"),
    "empty": ("", "not JSON"),
    "not a result": ("[1, 2]", "holds no result"),
    "not text": ("\x00\x01", "not JSON"),
    "lacking": ('{"format": 1, "metrics": {}}', "lacks accuracy, benchmark, method, seed, config"),
    "other types": (
        '{"benchmark": "b", "method": "m", "seed": 0, "config": {}, "accuracy": 3, "metrics": {}}',
        "accuracy = 3",
    ),
    "no metrics": (
        '{"benchmark": "b", "method": "m", "seed": 0, "config": {}, "accuracy": [[1]], "metrics": []}',
        "metrics = []",
    ),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_result_is_listed_with_the_reason_and_computed_again(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    run, text_and_reason = finished(store), DAMAGED[kind]
    finished(store, CONFIG.with_setting("seed", 2))
    (run.path / "result.json").write_text(text_and_reason[0])
    states = {entry.name: (entry.state, entry.reason) for entry in store.runs()}
    assert sorted(state for state, _ in states.values()) == ["corrupt", "finished"]
    assert text_and_reason[1] in states[run.name][1]
    with caplog.at_level(logging.WARNING):
        assert not run.finished
    assert text_and_reason[1] in caplog.text
    assert finished(store).finished


def test_a_newer_result_is_listed_but_never_overwritten(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = finished(store)
    (run.path / "result.json").write_text('{"format": 7, "all": "different"}')
    (entry,) = store.runs()
    assert entry.state == "corrupt"
    assert f"format 7, this tmln reads up to {FORMAT}: upgrade tmln" in entry.reason
    with pytest.raises(NewerResult, match=run.name):
        _ = run.finished


def test_other_things_in_the_folder_do_no_harm(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = store.open(CONFIG)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".making-half").mkdir()
    for name, text in {
        "a-empty": None,
        "b-broken": "a: [",
        "c-list": "- 1",
        "d-tag": "!!python/name:os.system",
    }.items():
        (tmp_path / name).mkdir()
        if text is not None:
            (tmp_path / name / "config.yaml").write_text(text)
    (tmp_path / "e-folder").mkdir()
    (tmp_path / "e-folder" / "result.json").mkdir()
    found = {entry.name: (entry.state, entry.reason) for entry in store.runs()}
    assert found.pop(run.name) == ("unfinished", "")
    assert {state for state, _ in found.values()} == {"corrupt"}
    reasons = [found[name][1].partition(" (")[0] for name in sorted(found)]
    assert reasons[:4] == [
        "no config.yaml",
        "config.yaml cannot be read",
        "config.yaml holds no configuration",
        "config.yaml cannot be read",
    ]


def test_a_lost_configuration_is_written_again(tmp_path: Path) -> None:
    run = Store(tmp_path).open(CONFIG)
    (run.path / "config.yaml").unlink()
    Store(tmp_path).open(CONFIG)
    assert (run.path / "config.yaml").is_file()


@pytest.mark.parametrize(("old", "new"), [("seed: 1", "seed: 2"), ("method: er", "method: si"), ("model:", "modol:")])
def test_a_configuration_that_is_not_its_folders_is_listed_as_such_and_written_again(
    old: str, new: str, tmp_path: Path
) -> None:
    """One flipped bit, and an unfinished run was shown with another seed than its own."""
    store = Store(tmp_path)
    file = store.open(CONFIG).path / "config.yaml"
    sound = file.read_text()
    assert old in sound
    file.write_text(sound.replace(old, new))
    (entry,) = store.runs()
    assert (entry.state, entry.config) == ("corrupt", None)
    assert "is of another run, or damaged" in entry.reason
    store.open(CONFIG)
    assert file.read_text() == sound
    assert [entry.state for entry in store.runs()] == ["unfinished"]


def test_a_run_is_made_once_and_leftovers_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process makes the run between our look and our rename."""
    old, new = tmp_path / ".making-old", tmp_path / ".making-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (time.time() - 7200,) * 2)
    rename = os.rename

    def late(source: Any, target: Any) -> None:
        Path(target).mkdir()
        (Path(target) / "config.yaml").write_text("theirs")
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    run = Store(tmp_path).open(CONFIG)
    assert (run.path / "config.yaml").read_text() == "theirs"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".making-new", run.name]


def test_a_listing_needs_no_torch(tmp_path: Path) -> None:
    finished(Store(tmp_path))
    script = (
        "import sys; from tmln.experiments.store import Store; "
        "print([entry.state for entry in Store(sys.argv[1]).runs()]); "
        "assert 'torch' not in sys.modules"
    )
    out = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (out.stdout.strip(), out.stderr) == ("['finished']", "")


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    write_whole(path, "old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["result.json"]


# -- the log -----------------------------------------------------------------------------------------------------------


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    run = Store(tmp_path).open(CONFIG)
    assert run.read_log() == []
    run.truncate_log(5)
    for step in range(3):
        run.append_log({"step": step, "loss": 0.5 * step, "lr": math.inf})
    assert run.read_log() == [{"step": step, "loss": 0.5 * step, "lr": None} for step in range(3)]
    with pytest.raises(ValueError, match="whole number 'step'"):
        run.append_log({"loss": 1.0})


def test_a_torn_last_line_and_a_damaged_one_are_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "log.jsonl"
    for step in range(4):
        append_line(path, {"step": step})
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\xff\x00 damage\n" + lines[2] + b'"no record"\n' + lines[3][:-4])
    with caplog.at_level(logging.WARNING):
        assert read_lines(path) == [{"step": 0}, {"step": 2}]
    assert "line 2 is damaged" in caplog.text


def test_lines_of_the_checkpoints_own_step_that_came_after_it_go(tmp_path: Path) -> None:
    """The last step of a task: checkpoint, then a line of accuracies with the same step, then the kill."""
    run = Store(tmp_path).open(CONFIG)
    assert run.log_size == 0
    for step in (1, 2):
        run.append_log({"step": step, "loss": 0.5})
    size = run.log_size
    run.append_log({"step": 2, "accuracy": [0.9]})
    run.truncate_log(2)
    assert len(run.read_log()) == 3
    run.truncate_log(2, size)
    assert run.read_log() == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.5}]
    run.truncate_log(2, 10**6)
    run.truncate_log(1, size)
    assert run.read_log() == [{"step": 1, "loss": 0.5}]


def test_a_log_that_changed_is_told_when_it_is_read_and_when_it_is_gone_on_with(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A digit can change and the line is still JSON; a last line can go without a trace."""
    run = Store(tmp_path).open(CONFIG)
    assert run.log_checksum == 0
    for step in (1, 2):
        run.append_log({"step": step, "loss": 0.5})
    size, crc, sound = run.log_size, run.log_checksum, run.log.read_bytes()
    assert crc == zlib.crc32(sound)
    with run.lock:
        run.finish({**RESULT, "log_crc32": crc})
    with caplog.at_level(logging.WARNING):
        assert len(run.read_log()) == 2
        run.append_log({"step": 3, "loss": 0.5})
        run.truncate_log(2, size, crc)
        assert run.log.read_bytes() == sound
    assert not caplog.text
    for bad in (sound.replace(b"0.5", b"0.7", 1), sound[: len(sound) // 2], b""):
        run.log.write_bytes(bad)
        caplog.clear()
        run.read_log()
        assert "does not match its checksum in result.json" in caplog.text
        caplog.clear()
        run.truncate_log(2, size, crc)
        assert "is not what it was at step 2" in caplog.text


@pytest.mark.parametrize("torn", [0, 1, 5, 11])
@pytest.mark.parametrize("checkpoint", [-1, 0, 4, 7, 9])
def test_a_resumed_log_is_the_uninterrupted_one(checkpoint: int, torn: int, tmp_path: Path) -> None:
    """Killed after step 7 (and a part of the next line), resumed from an earlier checkpoint."""
    whole, resumed = tmp_path / "whole.jsonl", tmp_path / "resumed.jsonl"

    def line(step: int) -> dict[str, Any]:
        return {"step": step, "loss": 1 / (step + 1)}

    for step in range(12):
        append_line(whole, line(step))
    for step in range(8):
        append_line(resumed, line(step))
    with resumed.open("ab") as file:
        file.write(json.dumps(line(8)).encode()[:torn])
    truncate_after(resumed, checkpoint)
    for step in range(min(checkpoint, 7) + 1, 12):
        append_line(resumed, line(step))
    assert resumed.read_bytes() == whole.read_bytes()


def test_a_run_that_another_took_over_is_not_logged_to(tmp_path: Path) -> None:
    """The folder was removed, and another process began anew, in the middle of a step."""
    run = Store(tmp_path).open(RunConfig(benchmark="split-digits"))
    run.append_log({"step": 0})  # without a lock it is nobody's
    with run.lock:
        run.append_log({"step": 1})
        (run.path / ".lock" / "owner").write_text("process 1 on another machine\n")
        with pytest.raises(LockLost):
            run.append_log({"step": 2})
    assert [record["step"] for record in run.read_log()] == [0, 1]


def test_a_line_begun_before_a_run_was_taken_over_reaches_no_log(tmp_path: Path) -> None:
    """The process sleeps between the look at its lock and the write; meanwhile another goes on from a checkpoint."""
    path = tmp_path / "log.jsonl"
    for step in (1, 2, 3):
        append_line(path, {"step": step})

    def taken_over_meanwhile() -> None:
        truncate_after(path, 2)
        append_line(path, {"step": 3, "by": "another"})

    append_line(path, {"step": 4}, taken_over_meanwhile)
    assert read_lines(path) == [{"step": 1}, {"step": 2}, {"step": 3, "by": "another"}]
    assert [file.name for file in tmp_path.iterdir()] == ["log.jsonl"]


def test_a_new_run_is_on_the_disk_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("tmln.experiments.store.sync_path", synced.append)
    config = RunConfig(benchmark="split-digits", method="naive")
    Store(tmp_path / "runs").open(config)
    assert synced == [tmp_path / "runs"]
    Store(tmp_path / "runs").open(config)
    assert len(synced) == 1  # it was there


def log(folder: Path, content: bytes = LINES) -> Path:
    path = folder / "log.jsonl"
    path.write_bytes(content)
    return path


def test_lines_are_added_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert read_lines(path) == []
    append_line(path, {"step": 1, "loss": float("nan")})
    append_line(path, {"step": 2})
    assert path.read_bytes() == b'{"step": 1, "loss": null}\n{"step": 2}\n'
    assert read_lines(path) == [{"step": 1, "loss": None}, {"step": 2}]


@pytest.mark.parametrize("record", [{}, {"step": None}, {"step": 1.0}, {"step": "1"}])
def test_a_line_without_a_step_is_not_written(tmp_path: Path, record: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="whole number 'step'"):
        append_line(tmp_path / "log.jsonl", record)
    assert not (tmp_path / "log.jsonl").exists()


def test_a_line_without_an_end_does_not_count(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It may be the beginning of a longer one, even where it reads as JSON."""
    assert read_lines(log(tmp_path, b'{"step": 1}\n{"step": 2}')) == [{"step": 1}]
    assert caplog.records == []


@pytest.mark.parametrize("damaged", [b"\0\0\0", b"[1]", b'{"loss": 1}', b'{"step": 1.5}', b"\xff"])
def test_damaged_lines_are_passed_over_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: bytes
) -> None:
    with caplog.at_level(logging.WARNING):
        found = read_lines(log(tmp_path, b'{"step": 1}\n' + damaged + b'\n{"step": 3}\n'))
    assert found == [{"step": 1}, {"step": 3}]
    assert [record.getMessage().split(": ")[1] for record in caplog.records] == ["line 2 is damaged and passed over"]


@pytest.mark.parametrize(
    ("step", "size", "left"),
    [
        (0, None, 0),
        (1, None, 12),
        (2, None, 48),  # all lines of that step, where the size is not known
        (9, None, 60),
        (2, 48, 48),
        (2, 47, 24),
        (2, 24, 24),  # the second line of step 2 came after the checkpoint
        (2, 23, 12),
        (2, 0, 0),
        (2, 1000, 48),
        (1, 1000, 12),
    ],
)
def test_cut_by_step_and_by_size(tmp_path: Path, step: int, size: int | None, left: int) -> None:
    path = log(tmp_path, LINES + b'{"st')
    truncate_after(path, step, size)
    assert path.read_bytes() == LINES[:left]


def test_cutting_keeps_damaged_lines_and_needs_no_file(tmp_path: Path) -> None:
    """A damaged line has no step by which to judge it: it goes with what follows, or stays with what came before."""
    path = log(tmp_path, b'{"step": 1}\nspoilt\n{"step": 2}\n{"step": 3}\n')
    truncate_after(path, 2)
    assert path.read_bytes() == b'{"step": 1}\nspoilt\n{"step": 2}\n'
    truncate_after(tmp_path / "none.jsonl", 2)
    assert not (tmp_path / "none.jsonl").exists()


def test_what_follows_the_first_later_line_goes_too(tmp_path: Path) -> None:
    """Steps that went back come from a run that was resumed; they are repeated."""
    path = log(tmp_path, b'{"step": 1}\n{"step": 5}\n{"step": 2}\n')
    truncate_after(path, 2)
    assert path.read_bytes() == b'{"step": 1}\n'
