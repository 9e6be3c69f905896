"""The bar for downloads: seen on request, silent otherwise."""

from __future__ import annotations

import pytest

from tmln.streams import download_bar


@pytest.mark.parametrize("show", [True, False, None])
def test_seen_or_not(show: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    with download_bar(show) as report:
        report("file.bin", 500_000, 1_000_000)
        report("file.bin", 1_000_000, 1_000_000)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("file.bin" in err and "1.0/1.0 MB" in err) == (show is True)
