"""Complaints: raised, or counted and told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tmln.data import data_root
from tmln.data.reading import BadData
from tmln.streams import BadDataWarning, DataError


def test_raised_at_once() -> None:
    with (
        pytest.raises(DataError, match=r"^a.png: broken \(skip_bad leaves bad data out\)$"),
        BadData("x", False) as bad,
    ):
        bad.add("a.png", "broken")


def complain(number: int) -> None:
    with BadData("x", True) as bad:
        for index in range(number):
            bad.add(f"{index}.png", "broken")


def test_counted() -> None:
    with pytest.warns(BadDataWarning) as told:
        complain(5)
    assert str(told[0].message) == ("x: left out 5 bad item(s): 0.png: broken; 1.png: broken; 2.png: broken; ...")


def fail() -> None:
    with BadData("x", True) as bad:
        bad.add("a", "b")
        raise KeyError


def test_silent_when_all_is_well_or_another_error_is_on_its_way() -> None:
    complain(0)  # a warning would be an error here
    with pytest.raises(KeyError):
        fail()


# -- the data root on every platform


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
