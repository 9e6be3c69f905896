"""The page without scripts."""

from __future__ import annotations

from tmln.report.plain import plain_page


def test_all_of_it_is_there_and_harmless() -> None:
    page = plain_page("a & b", ["<b>one</b>", "two"], [["set", "loss"], ["<i>", "1.0"]])
    assert "<title>a &amp; b</title>" in page
    assert "<p>&lt;b&gt;one&lt;/b&gt;</p>\n<p>two</p>" in page
    assert '<th scope="col">set</th><th scope="col">loss</th>' in page
    assert "<tr><td>&lt;i&gt;</td><td>1.0</td></tr>" in page
    assert "--ink: #1d2023" in page
    assert "http" not in page.replace("http-equiv", "")
