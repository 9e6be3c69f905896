"""The log: whole lines only, in order, and cut to the byte where a checkpoint was written."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tmln.experiments.logfile import append_line, read_lines, truncate_after

LINES = b'{"step": 1}\n{"step": 2}\n{"step": 2, "again": 1}\n{"step": 3}\n'  # 12, 12, 24 and 12 bytes


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
