"""What was published is read as the runs it was made of; what was changed in it is not believed; it names no place."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import keep, read, result, usual
from tmln.analysis.measurements import Analysis, save_analysis
from tmln.analysis.published import has_paths, publish, read_measured, read_published
from tmln.analysis.read import read_analyses, read_results
from tmln.evaluation_counts import pack_confusion
from tmln.experiments.config import RunConfig
from tmln.experiments.identity import run_name
from tmln.experiments.result import Result, checksum_of
from tmln.report.document import build_document


def changed(path: Path, change: Any) -> None:
    """The file as a forger would leave it: its checksum is right."""
    content = json.loads(path.read_text())
    content.pop("checksum")
    change(content)
    path.write_text(json.dumps({**content, "checksum": checksum_of(content)}))


def test_a_published_file_says_what_its_runs_say(tmp_path: Path) -> None:
    runs = keep(tmp_path / "runs", usual())
    results, _ = read_results(runs)
    publish(results, tmp_path / "out" / "results.json")
    again, problems = read_results(tmp_path / "out" / "results.json")
    assert not problems
    assert [one.name for one in again] == [one.name for one in results]
    for one, other in zip(results, again, strict=True):
        assert one.metrics.keys() == other.metrics.keys()
        assert all(v == other.metrics[k] or math.isnan(v) for k, v in one.metrics.items())
        assert (one.config, one.accuracy, one.versions, one.diverged) == (
            other.config, other.accuracy, other.versions, other.diverged
        )  # fmt: skip
    whole, published = build_document(runs), build_document(tmp_path / "out")
    assert published.keys() == whole.keys()
    assert {key for key in whole if published[key] != whole[key]} <= {"title", "folder"}
    assert build_document(tmp_path / "out" / "results.json")["title"] == "results"


def test_a_light_file_has_the_metrics_of_a_whole_one(tmp_path: Path) -> None:
    counts = [pack_confusion([[4, 0], [1, 3]])] * 2 + [pack_confusion([[3, 1], [2, 2]])]
    bins = {"count": [[2.0, 6.0]] * 3, "right": [[1.0, 4.0]] * 3, "confidence": [[1.0, 5.0]] * 3}
    (one,) = read([result("er", 0, confusion=counts, calibration=bins)])
    publish([one], tmp_path / "whole.json")
    publish([one], tmp_path / "light.json", light=True)
    (whole,), (light,) = (read_published(tmp_path / f"{name}.json")[0] for name in ("whole", "light"))
    assert (len(whole.confusion), len(light.confusion), dict(light.calibration)) == (3, 0, {})
    assert light.metrics == pytest.approx(whole.metrics, nan_ok=True)
    assert light.metrics["worst_class"] == 0.5
    assert (light.accuracy, light.name, light.config) == (whole.accuracy, whole.name, whole.config)


def test_what_was_measured_is_published_with_the_runs(tmp_path: Path) -> None:
    runs = keep(tmp_path / "runs", usual())
    for name in ("b", "a"):
        save_analysis(runs, "overhead", name, {"methods": {}, "seconds": [0.25, None]})
    save_analysis(runs, "barrier", "a", {"methods": [{"method": "er"}]})
    measured = read_analyses(runs)
    assert [(one.kind, one.name) for one in measured] == [("barrier", "a"), ("overhead", "a"), ("overhead", "b")]
    there = tmp_path / "out" / "results.json"
    publish(read_results(runs)[0], there, measured)
    for place in (there, there.parent):
        assert read_analyses(place) == measured
        assert read_analyses(place, "barrier") == measured[:1]
    assert build_document(there)["analyses"] == build_document(runs)["analyses"] != []
    save_analysis(there.parent, "barrier", "a", {"methods": []})  # measured anew beside the file
    assert read_analyses(there.parent, "barrier")[0].content == {"methods": []}


def test_measurements_that_are_none_are_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    there = tmp_path / "a.json"
    publish(read([result("er", 0)]), there, [Analysis("overhead", "one", {"a": 1})])

    def spoil(content: dict[str, Any]) -> None:
        good = content["measurements"][0]
        content["measurements"] = [{**good, "format": 99}, "text", None, {**good, "content": 3}, {}, good]

    changed(there, spoil)
    assert read_measured(there) == [Analysis("overhead", "one", {"a": 1})]
    assert len(caplog.messages) == 5
    assert "format 99" in caplog.text
    changed(there, lambda content: content.update(measurements={"a": 1}))
    assert read_measured(there) == []
    assert len(read_published(there)[0]) == 1


def test_a_measurement_may_name_a_place() -> None:
    assert has_paths(Analysis("overhead", "n", {"methods": {"er": "/home/me/data"}}))
    assert not has_paths(Analysis("overhead", "n", {"methods": {"er": 0.1}}))


def test_the_file_by_hand(tmp_path: Path) -> None:
    (one,) = read([result("er", 3, machine={"processor": "P", "threads": 1, "host": "mine"}, commit="abc")])
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    said = publish([one], first)
    assert publish([one], second) == said
    assert first.read_bytes() == second.read_bytes()
    content = json.loads(first.read_text())
    assert content.pop("checksum") == said == checksum_of(content)
    (run,) = content["runs"]
    assert run["name"] == run_name(run["config"]) == one.name
    assert (
        run["command"] == "tmln run --benchmark split-digits --method er --seeds 1 --set benchmark.tasks=3 --set seed=3"
    )
    assert run["machine"] == {"processor": "P", "threads": 1}
    assert run["commit"] == "abc"
    assert run["accuracy"] == one.accuracy
    assert len(first.read_text().splitlines()) == 3  # a line a run, so that changes can be seen


def test_infinite_settings_come_back(tmp_path: Path) -> None:
    config = RunConfig.of({"benchmark": "split-digits", "method": "lwf"}).resolved()
    config["settings"]["penalty.temperature"] = math.inf
    (one,) = read([result("lwf", 0) | {"config": config}])
    publish([one], tmp_path / "a.json")
    assert read_published(tmp_path / "a.json")[0][0].name == one.name


def set_accuracy(content: Any) -> None:
    content["runs"][0]["accuracy"][0][0] = 0.123


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c["runs"][0]["config"].update(lr=0.5), "of another run"),
        (lambda c: c["runs"][0].pop("name"), "no name of its own"),
        (lambda c: c["runs"].append(dict(c["runs"][0])), "no name of its own"),
        (lambda c: c["runs"][0].update(config=[1]), "config = [1]"),
        (lambda c: c["runs"][0].update(accuracy="high"), "accuracy = 'high'"),
        (lambda c: c["runs"][0].update(format=99), "upgrade tmln"),
        (lambda c: c["runs"].insert(0, 7), "no name of its own"),
        (lambda c: c["runs"][0].update(unheard_of=1), "unknown key unheard_of"),
        (lambda c: c["runs"][0].update(baseline=[{"a": 1}]), "baseline.0 = "),
        (lambda c: c["runs"][0].update(masked_accuracy=[[{}]]), "masked_accuracy.0.0 = {}"),
        (lambda c: c["runs"][0].update(extra_accuracy={"a": 1}), "extra_accuracy.a = 1"),
        (lambda c: c["runs"][0].update(dormant_units=[1e308]), "dormant_units.0 = 1e+308"),
        (lambda c: c["runs"][0].update(references={"prefix": [1]}), "references.prefix = [1]"),
        (lambda c: c["runs"][0].update(references=[1]), "references = [1]"),
    ],
    ids=[
        "configuration",
        "nameless",
        "twice",
        "odd config",
        "odd matrix",
        "newer run",
        "no object",
        "unknown key",
        "baseline",
        "masked",
        "extra",
        "huge",
        "reference",
        "references",
    ],
)
def test_a_run_that_is_not_what_its_name_says_is_left_out(tmp_path: Path, change: Any, said: str) -> None:
    publish(read([result("er", seed) for seed in (0, 1)]), tmp_path / "a.json")
    changed(tmp_path / "a.json", change)
    results, problems = read_results(tmp_path)
    assert results
    assert [said in problem.reason for problem in problems] == [True]


@pytest.mark.parametrize(
    ("change", "said"),
    [(lambda c: c.update(format=99), "upgrade tmln"), (lambda c: c.update(runs={}), "no list of runs")],
    ids=["newer", "no runs"],
)
def test_a_file_that_is_not_believed_at_all(tmp_path: Path, change: Any, said: str) -> None:
    publish(read([result("er", 0)]), tmp_path / "a.json")
    changed(tmp_path / "a.json", change)
    with pytest.raises(ValueError, match=said):
        read_published(tmp_path / "a.json")
    assert [said in problem.reason for problem in read_results(tmp_path)[1]] == [True]


def test_one_digit_is_enough_for_the_checksum(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    publish(read([result("er", 0)]), path)
    content = json.loads(path.read_text())
    set_accuracy(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="does not match its checksum"):
        read_published(path)


@pytest.mark.parametrize("text", ["{", "[" * 10**5, "[1, 2]", '{"kind": "something else"}', "\udcff"], ids=range(5))
def test_whatever_else_lies_there(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=r"a\.json"):
        read_published(path)
    keep(tmp_path, [result("er", 0)])
    assert len(read_results(tmp_path)[0]) == 1


@pytest.mark.parametrize(("name", "said"), [("a.json", "no file .*tmln publish"), ("runs", "no folder .*tmln compare")])
def test_what_is_not_there_is_called_what_it_would_be(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_results(tmp_path / name)


def test_links_and_pipes_are_not_opened(tmp_path: Path) -> None:
    publish(read([result("er", 0)]), tmp_path / "elsewhere")
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "a.json").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(folder / "b.json")
    results, problems = read_results(folder)
    assert not results
    assert [problem.name for problem in problems] == ["a.json", "b.json"]


def test_the_folders_own_run_comes_before_the_published(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep(tmp_path, [result("er", 0, base=0.5)])
    publish(read([result("er", 0, base=0.7), result("er", 1)]), tmp_path / "a.json")
    results, _ = read_results(tmp_path)
    assert [(one.seed, one.accuracy[0][0]) for one in results] == [(0, 0.5), (1, 0.9)]
    assert "twice" in caplog.text


@pytest.mark.parametrize(
    ("more", "places"),
    [
        ({}, False),
        ({"stream": {"tasks": ["a/b", "n/a", "1/2", "plane -/- bird"]}}, False),
        ({"benchmark_options": {"path": "/home/me/photos"}}, True),
        ({"model_options": {"weights": "C:\\nets\\a.pt"}}, True),
        ({"diverged": "no file '~/x'"}, True),
    ],
    ids=["none", "slashes", "folder", "windows", "sentence"],
)
def test_which_results_name_places(more: dict[str, Any], places: bool) -> None:
    plain = result("er", 0)
    config = {**plain["config"], **{key: more.pop(key) for key in list(more) if key.endswith("options")}}
    assert has_paths(Result.of({**plain, **more, "config": config}, "er")) is places
