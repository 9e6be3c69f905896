"""Analyses beside runs: written whole, read again, damaged ones passed over."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from tmln.analysis.measurements import FOLDER, Analysis, load_analyses, save_analysis
from tmln.experiments.store import Store


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    save_analysis(tmp_path, "overhead", "split-digits", {"rows": [1.0, float("nan")]})
    path = save_analysis(tmp_path, "barrier", "Split / odd: näme", {"x": {"y": 2}})
    assert path.name == "barrier-split-odd-n-me.json"
    found = list(load_analyses(tmp_path))
    assert found == [
        Analysis("barrier", "Split / odd: näme", {"x": {"y": 2}}),
        Analysis("overhead", "split-digits", {"rows": [1.0, None]}),
    ]
    assert [a.kind for a in load_analyses(tmp_path, "overhead")] == ["overhead"]
    save_analysis(tmp_path, "overhead", "split-digits", {"rows": []})
    assert [a.content for a in load_analyses(tmp_path, "overhead")] == [{"rows": []}]


def test_they_are_no_runs(tmp_path: Path) -> None:
    save_analysis(tmp_path, "overhead", "a", {})
    assert list(Store(tmp_path).runs()) == []


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", '{"format": 1, "kind": "overhead", "name": "a", "content": 3}']
)
def test_what_cannot_be_read_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str) -> None:
    save_analysis(tmp_path, "overhead", "whole", {})
    (tmp_path / FOLDER / "overhead-broken.json").write_text(text)
    with caplog.at_level(logging.WARNING):
        assert [a.name for a in load_analyses(tmp_path)] == ["whole"]
    assert "overhead-broken.json" in caplog.text


def test_a_later_format_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = save_analysis(tmp_path, "overhead", "new", {})
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with caplog.at_level(logging.WARNING):
        assert list(load_analyses(tmp_path)) == []
    assert "upgrade tmln" in caplog.text


def test_no_folder_no_analyses(tmp_path: Path) -> None:
    assert list(load_analyses(tmp_path / "nowhere")) == []
