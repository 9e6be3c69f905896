"""Published runs run again: by hand what is a match, and through the command line that a forged number shows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.report.conftest import keep, result
from tmln.cli import app
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.result import Result, checksum_of
from tmln.experiments.run import Execution
from tmln.experiments.store import Store
from tmln.measure.verify import compare_results, draw_sample, make_jobs

MACHINE = {"processor": "P", "device": "cpu", "threads": 1, "system": "S"}
ONE = Result(
    "b", "m", 0, {}, accuracy=[[0.5, 0.0], [0.25, 0.75]], name="r", machine=MACHINE,
    versions={"torch": "2", "tmln": "1"}, weights_sha256="w", commit="c",
)  # fmt: skip
ELSEWHERE = {"machine": {**MACHINE, "threads": 2}, "weights_sha256": "v"}


@pytest.mark.parametrize(
    ("changes", "state", "said"),
    [
        ({}, "match", "every bit of the weights equal, on the same kind of machine"),
        ({"weights_sha256": "v"}, "differs", "not the weights, on the same kind of machine, which should"),
        (ELSEWHERE, "match", "threads: 1, here 2"),
        ({"accuracy": [[0.5, 0.0], [0.25, 0.78]]}, "differs", "by 1.00 points in the mean, 3.00 at most; ACC by +1.50"),
        ({"accuracy": [[0.5, 0.0], [0.25, 0.78]], **ELSEWHERE}, "match", "within the tolerance of 2,"),
        ({"accuracy": [[0.5, 0.0], [0.25, 0.82]], **ELSEWHERE}, "differs", "2.33 points in the mean, 7.00 at most"),
        ({"accuracy": [[0.5, 0.9], [0.25, 0.75]], **ELSEWHERE}, "match", "0.00 points in the mean, 90.00 at most"),
        ({"accuracy": [[0.5]]}, "differs", "2 by 2, here 1 by 1"),
        ({"diverged": "nan"}, "differs", "it diverged here"),
        ({"accuracy": [[0.5]], "commit": "d"}, "differs", "made by commit c of tmln, this is d"),
        ({"accuracy": [[0.5, 0.0], [0.25, 0.78]], "versions": {"torch": "3"}}, "match", "torch: 2, here 3"),
    ],
)
def test_verdicts_by_hand(changes: dict[str, object], state: str, said: str) -> None:
    verdict = compare_results(ONE, replace(ONE, **changes))  # type: ignore[arg-type]
    assert verdict.state == state
    assert said in verdict.text


def test_a_draw_is_its_seeds() -> None:
    results = [replace(ONE, name=str(number)) for number in range(20)]
    names = [[one.name for one in draw_sample(results, 3, seed)] for seed in (0, 0, 1)]
    assert names[0] == names[1] != names[2]
    assert len(set(names[0])) == 3
    assert len(draw_sample(results, 50, 0)) == 20


def test_why_a_run_cannot_be_run() -> None:
    full = RunConfig.of({"benchmark": "split-digits"}).resolved()
    own = {**full, "benchmark": "own", "benchmark_options": {"path": "hf:somebody/data", "fingerprint": "0"}}
    odd = {
        "own": own,
        "unknown": {**full, "method": "magic"},
        "code": {**full, "step": "os:system"},
        "other": full,
        "none": {},
    }
    jobs, verdicts = make_jobs([replace(ONE, name=name, config=config) for name, config in odd.items()])
    assert not jobs
    said = {verdict.name: verdict.text for verdict in verdicts}
    assert "unknown method 'magic'" in said["unknown"]
    assert "another run" in said["code"] or "allow-code" in said["code"]
    assert "another run" in said["other"]
    assert said["none"]
    assert "another run" in said["own"]
    config = RunConfig.of(own)
    ((verdict,),) = [make_jobs([replace(ONE, name=run_id(config), config=config.resolved())])[1]]
    assert "its data hf:somebody/data are a user's own" in verdict.text


def test_a_line_end_in_a_file_forges_no_line(tmp_path: Path) -> None:
    forged = {**MACHINE, "processor": "P\n1 of 1 match", "threads": "2\u2028match"}
    verdict = compare_results(replace(ONE, machine=forged), replace(ONE, accuracy=[[0.5, 0.0], [0.25, 0.78]]))
    assert len(verdict.text.splitlines()) == 1
    _, cannot = make_jobs([replace(ONE, config={"benchmark": "no\n1 of 1 match"})])
    assert len(cannot[0].text.splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"benchmark_options": {"root": "/elsewhere"}}, "benchmark.root"),
        ({"settings": {"replay.path": "/elsewhere"}, "method": "er"}, "replay.path"),
        ({"model": "timm:resnet10t", "model_options": {"pretrained": True}}, "pretrained.*allow-code"),
    ],
)
def test_a_published_run_touches_nothing_outside_its_folder(
    changes: dict[str, object], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMLN_ALLOW_CODE", raising=False)
    config = RunConfig.of({"benchmark": "split-cifar10", **changes})
    jobs, cannot = make_jobs([replace(ONE, name=run_id(config), config={**config.resolved(), **changes})])
    assert not jobs
    assert re.search(why, cannot[0].text), cannot


def test_a_forged_number_shows(tmp_path: Path) -> None:
    options = {"per_class": 12, "per_class_test": 5, "tasks": 2}
    store = Store(tmp_path / "runs")
    for method in ("naive", "er"):
        run = store.open(
            RunConfig.of({"benchmark": "split-digits", "benchmark_options": options, "epochs": 1, "method": method})
        )
        with run.lock:
            Execution(run)()
    file = tmp_path / "results.json"
    done = CliRunner().invoke(app, ["publish", str(tmp_path / "runs"), "-o", str(file)])
    assert done.exit_code == 0, done.output
    assert "2 runs of split-digits" in done.output
    assert str(tmp_path) not in file.read_text()

    done = CliRunner().invoke(app, ["verify", str(file), "--sample", "5", "--runs", str(tmp_path / "again")])
    assert done.exit_code == 0, done.output
    assert done.output.count("every bit of the weights equal") == 2
    assert "2 of 2 match" in done.output

    content = json.loads(file.read_text())
    del content["checksum"]
    content["runs"][0]["accuracy"][-1][0] += 0.1
    file.write_text(json.dumps({**content, "checksum": checksum_of(content)}))
    done = CliRunner().invoke(app, ["verify", str(file), "--sample", "5", "--runs", str(tmp_path / "again")])
    assert done.exit_code == 1
    assert done.output.count("differs: ") == 1
    assert "2 of these had been finished" in done.output
    assert "1 of 2 match" in done.output


def test_a_folder_of_this_machine_is_not_published_unasked(tmp_path: Path) -> None:
    named = result("er", 1)
    named["config"]["benchmark_options"]["path"] = "/home/me/photos"
    runs, file = keep(tmp_path / "runs", [result("er", 0), named]), tmp_path / "results.json"
    done = CliRunner().invoke(app, ["publish", str(runs), "-o", str(file)])
    assert "1 of 2 runs are left out" in done.output
    assert "/home/me" not in file.read_text()
    done = CliRunner().invoke(app, ["publish", str(runs), "-o", str(file), "--with-paths"])
    assert "2 runs of" in done.output
    assert "/home/me" in file.read_text()
