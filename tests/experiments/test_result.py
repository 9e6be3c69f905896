"""A result as it is read: typed, its metrics computed, and refused where a key or type is not of the schema."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from tmln.analysis.read import find_defect
from tmln.experiments.config import RunConfig
from tmln.experiments.result import Result, checksum_of, read_result, write_result
from tmln.experiments.store import Store

R = [[0.9, 0.1], [0.5, 0.7]]
HEAD: dict[str, Any] = {"benchmark": "split-digits", "method": "er", "seed": 0, "config": {}}


def test_metrics_are_computed_and_what_was_said_counts_only_where_they_cannot_be() -> None:
    said = {"acc": 0.99, "fm": None, "int": 0.3, "own": 1, "flag": True, "note": "fine"}
    found = Result.of({**HEAD, "accuracy": R, "metrics": said, "seconds": 2})
    assert found.metrics["acc"] == pytest.approx(0.6)
    assert found.metrics["fm"] == pytest.approx(0.4)
    assert {key: found.metrics[key] for key in ("int", "own", "seconds")} == {"int": 0.3, "own": 1, "seconds": 2}
    assert not {"flag", "note", "fwt"} & found.metrics.keys()
    assert "int" not in found.without_reference().metrics
    assert found.without_reference().metrics["own"] == 1


ODD: dict[str, Any] = {
    "metrics": [],
    "metrics.acc": "good",
    "seconds": "long",
    "steps": True,
    "diverged": 7,
    "oracle": 7,
    "stream": [1],
    "versions": "1.0",
    "baseline": "none",
    "baseline.0": 1e200,
    "extra_accuracy": [],
    "references": "joint",
    "references.prefix": 1,
    "changed": 3,
    "config": None,
    "accuracy.1.0": "half",
    "unheard_of": 1,
}


@pytest.mark.parametrize("key", ODD)
def test_what_is_of_another_kind_is_no_result(key: str, tmp_path: Path) -> None:
    """Neither written nor read, whatever its checksum: one line names the key."""
    run = Store(tmp_path).open(RunConfig(benchmark="split-digits", method="er"))
    good = {"accuracy": [[0.9, 0.1], [0.5, 0.7]], "metrics": {}, "baseline": [0.1, 0.1], "references": {}}
    with run.lock:
        run.finish(good)
        read = json.loads((run.path / "result.json").read_text())
        inside, places = read, key.split(".")
        for place in places[:-1]:
            inside = inside[int(place) if place.isdigit() else place]
        inside[int(places[-1]) if places[-1].isdigit() else places[-1]] = ODD[key]
        del read["checksum"]
        with pytest.raises(ValueError, match=f"(?s)^(?!.*\n).*{key}"):
            write_result(run.path / "result.json", read)
    read["checksum"] = checksum_of(read)
    (run.path / "result.json").write_text(json.dumps(read))
    with pytest.raises(ValueError, match=f"(?s)^(?!.*\n).*{key}"):
        read_result(run.path / "result.json")


@pytest.mark.parametrize("key", ["dormant_units", "feature_rank", "extra_accuracy", "masked_accuracy"])
def test_null_as_a_whole_is_nothing(key: str, tmp_path: Path) -> None:
    """Behind a right checksum, as whoever writes a file can write it."""
    run = Store(tmp_path).open(RunConfig(benchmark="split-digits", method="er"))
    with run.lock:
        run.finish({"accuracy": [[0.9, 0.1], [0.5, 0.7]], "metrics": {}})
    content = {**json.loads((run.path / "result.json").read_text()), key: None}
    del content["checksum"]
    (run.path / "result.json").write_text(json.dumps({**content, "checksum": checksum_of(content)}))
    found = read_result(run.path / "result.json")
    assert found.metrics["acc"] == pytest.approx(0.6)
    assert not find_defect(found)


def test_a_reference_is_the_diagonal_or_the_last_row_and_nothing_if_it_diverged() -> None:
    found = Result.of({**HEAD, "method": "joint", "accuracy": R})
    assert found.as_reference("prefix") == [0.9, 0.7]
    assert found.as_reference("final") == [0.5, 0.7]
    assert Result.of({**HEAD, "accuracy": R, "diverged": "boom"}).as_reference("prefix") == ()
    kinds = [Result.of({**HEAD, "method": method}).kind for method in ("joint", "er")]
    assert kinds == ["prefix", None]
    assert Result.of({**HEAD, "method": "independent"}).kind == "independent"
    assert Result.of({**HEAD, "method": "naive", "config": {"merged": True}}).kind == "final"


def test_what_was_written_is_read_again_with_null_as_no_number(tmp_path: Path) -> None:
    config = RunConfig(benchmark="split-digits", method="er")
    run = Store(tmp_path).open(config)
    observed = {
        "accuracy": [[0.9, math.nan], [0.5, 0.7]],
        "baseline": [math.nan, 0.1],
        "extra_accuracy": {"official": [0.5, math.nan]},
        "metrics": {"acc": math.nan},
        "references": {"prefix": "joint"},
        "changed": ["epochs"],
    }
    with run.lock:
        run.finish(observed)
    found = read_result(run.path / "result.json")
    assert (found.name, found.checksum, found.config["epochs"]) == (run.name, True, 10)
    assert (found.references, found.changed) == ({"prefix": "joint"}, ["epochs"])
    assert found.accuracy[1] == [0.5, 0.7]
    for value in (found.accuracy[0][1], found.baseline[0], found.extra_accuracy["official"][1]):
        assert math.isnan(value)
    assert repr(pickle.loads(pickle.dumps(found))) == repr(found)  # to another process and back
    assert repr(Store(tmp_path).result(run.name)) == repr(found)
    assert Store(tmp_path).result("nothing") is None
    plain = json.loads((run.path / "result.json").read_text())
    plain["format"] = 1
    del plain["checksum"]
    (run.path / "result.json").write_text(json.dumps(plain))
    assert not read_result(run.path / "result.json").checksum
    write_result(run.path / "result.json", plain)
    assert read_result(run.path / "result.json").checksum


@pytest.mark.parametrize(
    "text", [rb'"\ud800 alone"', rb'"\uD800 alone"', b'"\xed\xa0\x80 alone"'], ids=["lower", "upper", "raw"]
)
def test_halves_of_characters_become_question_marks(tmp_path: Path, text: bytes) -> None:
    run = Store(tmp_path).open(RunConfig(benchmark="split-digits", method="er"))
    with run.lock:
        run.finish({"accuracy": R, "metrics": {}, "diverged": "HERE", "stream": {"name": "\U0001f600"}})
    path = run.path / "result.json"
    plain = json.loads(path.read_text())
    del plain["checksum"]
    path.write_bytes(json.dumps({**plain, "format": 1}).encode().replace(b'"HERE"', text))
    found = read_result(path)
    assert found.diverged == "? alone"
    assert found.stream == {"name": "\U0001f600"}  # a whole one stays
