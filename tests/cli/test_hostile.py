"""The command line among files of others: one bad folder stops nothing, names are shown, code is asked for."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest

from tests.cli.typed import typed
from tmln.analysis.notes import folder_notes
from tmln.analysis.read import Problem
from tmln.cli.echo import echo, echo_note
from tmln.cli.options import parse_configs
from tmln.executors.interfaces import RunRequest
from tmln.executors.plan import Job
from tmln.executors.run_job import run_job
from tmln.experiments import RunConfig, Store
from tmln.experiments.identity import run_name
from tmln.experiments.launch import RunOptions
from tmln.experiments.result import write_result
from tmln.models.custom import code_allowed

TITLE = "\x1b]0;owned\x07"
SOURCE = """
from pathlib import Path
from tmln.models import MLP, factory
Path(__file__).with_name("imported").touch()
@factory
def net(classes, shape):
    return MLP(64, 8, classes)
"""


def result_of(root: Path, seed: int, **changes: str) -> Path:
    """A finished run of er, with fields of its configuration changed at will."""
    resolved = RunConfig(benchmark="split-digits", method="er", seed=seed, benchmark_options={"tasks": 2}).resolved()
    config = {**resolved, **changes}
    place = root / run_name(config)
    place.mkdir(parents=True)
    head = {key: config[key] for key in ("benchmark", "method", "seed")}
    found = {"accuracy": [[0.9, 0.1], [0.5, 0.7]], "metrics": {"acc": 0.6, "fm": 0.4, "int": -0.25}}
    write_result(place / "result.json", {**head, "config": config, **found, "oracle": "prefix", "seconds": 1.0})
    return place


def test_bad_folders_are_counted_and_the_rest_is_shown(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    result_of(runs, 0)
    for name in ("deep", "pipe", f"name {TITLE}\nforged: all is well"):
        (runs / name).mkdir()
    (runs / "deep" / "result.json").write_text("[" * 200_000)
    os.mkfifo(runs / "pipe" / "result.json")
    shown = typed("show", str(runs))
    assert shown.returncode == 0, shown.stderr
    assert "60.0" in shown.stdout
    (line,) = [line for line in shown.stderr.splitlines() if "passed over" in line]
    assert line.startswith("3 folders were passed over: deep: result.json is not JSON; name ")
    assert r"\x1b]0;owned\x07\nforged" in line
    assert "\x1b" not in shown.stderr
    report = typed("report", str(runs), "-o", str(tmp_path / "page.html"))
    assert report.returncode == 0, report.stderr
    assert "result.json is not JSON" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_many_bad_folders_are_one_line() -> None:
    problems = [Problem(f"run{number}", "corrupt", "torn") for number in range(12)]
    problems.append(Problem("half", "unfinished", ""))
    unfinished, corrupt = folder_notes([], problems)
    assert unfinished == "1 folder was left out, not finished: half"
    assert corrupt.startswith("12 folders were passed over: run0: torn; run1: torn; ")
    assert corrupt.endswith("run9: torn; and 2 more")


def test_names_in_results_are_neither_obeyed_nor_run(tmp_path: Path) -> None:
    result_of(tmp_path, 0, method=f"[red]{TITLE}")
    result_of(tmp_path, 0, method="=HYPERLINK(1)")
    shown = typed("show", str(tmp_path))
    assert shown.returncode == 0, shown.stderr
    assert r"[red]\x1b]0;owned\x07" in shown.stdout
    assert "\x1b" not in shown.stdout + shown.stderr
    table = list(csv.DictReader(io.StringIO(typed("show", str(tmp_path), "--format", "csv").stdout)))
    assert sorted(row["method"] for row in table) == ["'=HYPERLINK(1)", r"[red]\x1b]0;owned\x07"]
    assert [float(row["int_mean"]) for row in table] == [-0.25, -0.25]
    as_json = json.loads(typed("show", str(tmp_path), "--format", "json").stdout)
    assert sorted(row["method"] for row in as_json) == ["=HYPERLINK(1)", f"[red]{TITLE}"]


def test_results_without_a_checksum_are_counted(tmp_path: Path) -> None:
    path = result_of(tmp_path, 0) / "result.json"
    old = {**json.loads(path.read_text()), "format": 1}
    del old["checksum"]
    path.write_text(json.dumps(old))
    shown = typed("show", str(tmp_path))
    assert "1 of 1 results have no checksum: an earlier version of tmln wrote them" in shown.stderr


def test_a_tag_on_the_command_line_is_one_line() -> None:
    wrong = typed("run", "--benchmark", "split-digits", "--set", "seed=!!timestamp x")
    assert (wrong.returncode, len(wrong.stderr.strip().splitlines())) == (2, 1)
    assert "seed = '!!timestamp x'" in wrong.stderr


def test_a_configuration_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"seed: \xff")
    with pytest.raises(ValueError, match=r"bytes\.yaml is no text in UTF-8 \(byte 6\); a configuration is YAML"):
        parse_configs(None, [None], 1, None, None, tmp_path / "bytes.yaml", False)


def test_errors_and_warnings_are_shown_not_obeyed(tmp_path: Path) -> None:
    wrong = typed("show", str(tmp_path / TITLE))
    assert wrong.returncode == 2
    assert r"\x1b]0;owned\x07" in wrong.stderr
    assert "\x1b" not in wrong.stderr
    result_of(tmp_path, 0)
    (tmp_path / ".analyses").mkdir()
    (tmp_path / ".analyses" / f"{TITLE}.json").write_text("[" * 200_000)
    said = typed("report", str(tmp_path), "-o", str(tmp_path / "page.html"))
    assert said.returncode == 0, said.stderr
    assert r"\x1b]0;owned\x07.json" in said.stderr
    assert "\x1b" not in said.stderr


SMALL = (
    "--epochs",
    "1",
    "--int-reference",
    "none",
    "--set",
    "benchmark.per_class=24",
    "--set",
    "benchmark.per_class_test=10",
)


@pytest.mark.usefixtures("warm")
def test_models_of_ones_own_are_imported_where_that_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nets_for_a_test.py").write_text(SOURCE)
    config = tmp_path / "own.yaml"
    config.write_text("benchmark: split-digits\nmethod: er\nmodel: nets_for_a_test:net\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    words = ("--config", str(config), "--runs", str(tmp_path / "runs"), *SMALL)
    monkeypatch.syspath_prepend(str(tmp_path))
    refused = typed("run", *words)
    assert (refused.returncode, len(refused.stderr.strip().splitlines())) == (2, 1)
    assert "'nets_for_a_test:net' is code outside tmln, and importing it runs it" in refused.stderr
    assert "tmln --allow-code" in refused.stderr
    assert not (tmp_path / "imported").exists()
    # in processes of its own, which inherit the leave
    swept = typed("--allow-code", "sweep", *words, "--methods", "er", "--workers", "1", PYTHONPATH=path)
    assert swept.returncode == 0, swept.stderr
    assert (tmp_path / "imported").exists()


def test_a_worker_has_the_leave_of_whoever_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker on another machine has an environment of its own; the work says what was allowed."""
    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")
    config = RunConfig(benchmark="split-digits", method="er", model="nowhere_at_all:net")
    work = RunRequest(Job(config), str(tmp_path), RunOptions())
    monkeypatch.delenv("TMLN_ALLOW_CODE")
    assert "no module 'nowhere_at_all'" in run_job(work, lambda moment: None).error
    assert code_allowed()
    monkeypatch.delenv("TMLN_ALLOW_CODE")
    unasked = RunRequest(Job(config), str(tmp_path), RunOptions())
    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")
    assert "--allow-code" in run_job(unasked, lambda moment: None).error
    assert not Store(tmp_path).open(config).finished


def test_a_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A line end in another's file, as in ``machine.processor``, forges no line of its own."""
    echo("differs: run: processor x\n1 of 1 match")
    echo_note("note\n1 of 1 match")
    out = capsys.readouterr().out
    assert out == "differs: run: processor x\\n1 of 1 match\nnote\\n1 of 1 match\n"
