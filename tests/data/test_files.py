"""The data root on every platform."""

from __future__ import annotations

from pathlib import Path

import pytest

from tmln.data import data_root


def test_order_of_precedence() -> None:
    environment = {"TMLN_DATA": "/data", "XDG_CACHE_HOME": "/cache"}
    assert data_root("/here", environment, "linux") == Path("/here")
    assert data_root(None, environment, "linux") == Path("/data")
    assert data_root(None, {"TMLN_DATA": "", "XDG_CACHE_HOME": "/cache"}, "linux") == Path("/cache/tmln")


def test_platforms() -> None:
    home = Path.home()
    assert data_root(None, {}, "linux") == home / ".cache" / "tmln"
    assert data_root(None, {}, "darwin") == home / "Library" / "Caches" / "tmln"
    assert data_root(None, {}, "win32") == home / "AppData" / "Local" / "tmln"
    assert data_root(None, {"LOCALAPPDATA": "/l"}, "win32") == Path("/l/tmln")


def test_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root("~/data") == tmp_path / "data"
