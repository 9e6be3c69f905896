"""The file itself: whole, self-contained, and closed to whatever data may say. No browser is needed here."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.report.conftest import keep, result
from tmln import cli
from tmln.report.document import build_document
from tmln.report.page import SCRIPTS, STYLES, embed_json, plain_page, render_page, watch_report, write_report


def test_one_file_below_eight_megabytes_that_asks_for_nothing(runs: Path, tmp_path: Path) -> None:
    path = write_report(runs, tmp_path / "new" / "report.html")
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 8e6
    outside = re.sub(r"(?s)<script.*?</script>|<style.*?</style>", "", text)
    assert re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:,)""", outside) == []
    assert "default-src 'none'" in text
    assert text.count("plotly.js v") == 1
    assert "[[" not in outside


def test_a_watched_page_reloads_shows_new_runs_and_stays_when_the_watch_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins without runs, and ends by Ctrl-C."""
    runs, page, seen = tmp_path / "runs", tmp_path / "report.html", []
    runs.mkdir()

    def sleep(seconds: float) -> None:
        if (text := page.read_text(encoding="utf-8")) in seen:
            return  # not written anew yet
        seen.append(text)
        if len(seen) == 1:
            keep(runs, [result("er", 0)])
        if len(seen) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("tmln.report.page.time.sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        watch_report(runs, page, pause=0.01)
    mark = '<meta http-equiv="refresh" content="1">'
    assert mark in seen[0]
    assert "Nothing has finished yet" in seen[0]
    assert mark in seen[1]
    assert "Nothing has finished yet" not in seen[1]
    assert mark not in page.read_text(encoding="utf-8")


def test_commands_name_the_folder_of_runs(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was typed, and of an absolute path the last name alone: a page may be sent to others."""
    assert build_document(runs)["folder"] == runs.name
    monkeypatch.chdir(runs.parent)
    assert build_document(Path(runs.name))["folder"] == runs.name


def test_only_the_scripts_of_the_page_may_run(runs: Path) -> None:
    text = render_page(build_document(runs))
    allowed = re.findall(r"'sha256-([^']+)'", text)
    scripts = re.findall(r"(?s)<script>(.*?)</script>", text)
    assert [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts] == allowed
    policy = re.findall(r"script-src ([^;]*);", text)[0]
    assert "unsafe" not in policy


def test_the_page_is_the_same_each_time(runs: Path) -> None:
    assert render_page(build_document(runs)) == render_page(build_document(runs))


def test_every_asset_is_used_and_builds_no_markup_from_text() -> None:
    found = {one.name: one for one in (files("tmln.report") / "assets").iterdir()}
    assert sorted(found) == sorted((*SCRIPTS, *STYLES, "page.html"))
    for name in SCRIPTS:
        text = found[name].read_text(encoding="utf-8")
        markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
        assert not re.search(markup, text), name
        assert not re.search(r"Math\.(sqrt|exp|log\b|pow)|\.reduce\(", text), f"{name} computes a statistic"


@given(st.recursive(st.none() | st.text() | st.floats(allow_nan=False, allow_infinity=False), st.lists))
def test_any_text_is_embedded_and_read_again(value: object) -> None:
    text = embed_json({"x": value})
    assert json.loads(text) == {"x": value}
    assert not re.search("[<>&\u2028\u2029]", text)
    text.encode()


def test_a_lone_surrogate_is_embedded_too() -> None:
    text = embed_json({"x": "\ud800</script>"})
    assert json.loads(text.encode().decode()) == {"x": "\ud800</script>"}


def test_words_of_the_template_in_data_are_only_words(tmp_path: Path) -> None:
    text = render_page(build_document(keep(tmp_path, [result("[[script]]", 0), result("er", 0)])))
    assert "has the highest ACC" in text
    assert "[[script]] and er agree to the last digit" in text or "er and [[script]] agree to the last digit" in text
    assert text.count("window.tmlnReport = ") == 1


def test_without_plotly_the_remedy_is_said(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(ImportError, match=r'pip install "tmln\[report\]"'):
        render_page(build_document(runs))


def test_the_command_writes_and_names_the_page(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = CliRunner().invoke(cli.app, ["report", str(runs), "-o", str(out)])
    assert (done.exit_code, done.output) == (0, f"report: {out}\n")
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    done = CliRunner().invoke(cli.app, ["report", str(runs), "-o", str(tmp_path)])
    assert (tmp_path / "report.html").is_file()
    done = CliRunner().invoke(cli.app, ["report", str(tmp_path / "none")])
    assert isinstance(done.exception, ValueError)
    (tmp_path / "empty").mkdir()
    done = CliRunner().invoke(cli.app, ["report", str(tmp_path / "empty"), "-o", str(tmp_path / "empty.html")])
    assert "no finished run" in str(done.exception)
    assert not (tmp_path / "empty.html").exists()


def test_the_demo_ends_well_without_plotly(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.runs, "run_configs", lambda *given: None)
    monkeypatch.setattr("tmln.executors.processes.start_server", lambda: None)
    monkeypatch.setitem(sys.modules, "plotly", None)
    done = CliRunner().invoke(cli.app, ["demo", "--runs", str(runs)])
    assert done.exit_code == 0
    assert 'pip install "tmln[report]"' in done.output


def test_show_says_the_same_sentence(runs: Path) -> None:
    done = CliRunner().invoke(cli.app, ["show", str(runs)])
    assert build_document(runs)["tables"]["split-digits"]["summary"] in done.output


def test_a_page_without_scripts_is_whole_and_harmless() -> None:
    text = plain_page("a & b", ["<b>one</b>", "two"], [["set", "loss"], ["<i>", "1.0"]])
    assert "<title>a &amp; b</title>" in text
    assert "<p>&lt;b&gt;one&lt;/b&gt;</p>\n<p>two</p>" in text
    assert '<th scope="col">set</th><th scope="col">loss</th>' in text
    assert "<tr><td>&lt;i&gt;</td><td>1.0</td></tr>" in text
    assert "--ink: #1d2023" in text
    assert "http" not in text.replace("http-equiv", "")
