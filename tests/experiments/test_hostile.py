"""Configurations and folders of runs from anybody: small files that blow up, links that lead out, results that lie."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from tmln.analysis.measurements import save_analysis
from tmln.experiments import Run, RunConfig, Store, run_id
from tmln.experiments.build import build, steps_in, stream_of
from tmln.experiments.files import UnsafePath, from_json, read_regular, write_whole
from tmln.experiments.identity import is_named, run_name
from tmln.experiments.result import read_result, write_result
from tmln.experiments.store import append_line, read_lines, truncate_after
from tmln.experiments.yaml_reader import read_value, read_yaml
from tmln.learner.checkpoint import write_checkpoint
from tmln.measure.trajectory import record

CONFIG = RunConfig(benchmark="split-digits", method="er", seed=1)
RESULT = {"accuracy": [[1.0, 0.0], [0.5, 0.9]], "metrics": {"acc": 0.7, "fm": 0.5, "int": math.nan}, "seconds": 1.5}


def finished(store: Store, config: RunConfig = CONFIG) -> Run:
    run = store.open(config)
    with run.lock:
        run.finish(RESULT)
    return run


# -- YAML and JSON -----------------------------------------------------------------------------------------------------

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LAUGHS, "line 1 has an anchor or alias"),
        ("a: 1\nb: *a", "line 2 has an anchor or alias"),
        ("[" * 200_000, "more than 20 lists or mappings deep"),
        ("{a: " * 200_000, "more than 20 lists or mappings deep"),
        ("- " * 200_000, "more than 20 lists or mappings deep"),
        ("!!timestamp x", r"line 1 has a tag \(tag:yaml.org,2002:timestamp\)"),
        ("a: !!int x", "has a tag"),
        ("a: " + "9" * 5000, "not YAML"),
        ("x" * 2_000_000, "2,000,000 characters, more than"),
        ("a: [", "not YAML"),
        ("\x00", "not YAML"),
    ],
    ids=["laughs", "alias", "lists", "mappings", "items", "timestamp", "int", "digits", "long", "open", "null"],
)
def test_yaml_that_blows_up_is_one_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        read_yaml(text)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=why):
        RunConfig.from_yaml(text)


def test_plain_yaml_is_read_as_before() -> None:
    assert read_yaml("a: [1, 2.5, {b: null}]\nc: 'x'\nd: true") == {"a": [1, 2.5, {"b": None}], "c": "x", "d": True}
    assert RunConfig.from_yaml(CONFIG.to_yaml()).resolved() == CONFIG.resolved()


def test_values_of_a_command_line_that_are_no_yaml_are_text() -> None:
    assert read_value("!!timestamp x") == "!!timestamp x"
    with pytest.raises(ValueError, match="seed = '!!timestamp x'"):
        CONFIG.with_setting("seed", "!!timestamp x")


@pytest.mark.parametrize("text", [b"[" * 200_000, b"[" * 500 + b"]" * 500, b"1" + b"0" * 200, b"{", b"\xff"])
def test_json_that_nothing_could_be_done_with_is_no_json(text: bytes) -> None:
    with pytest.raises(ValueError):
        from_json(text)
    assert from_json(b'{"a": [1, 2.5, null, [[true]]]}') == {"a": [1, 2.5, None, [[True]]]}


# -- a folder of runs that somebody sent -------------------------------------------------------------------------------


def spoiled(run: Path, how: str) -> None:
    result, config = run / "result.json", run / "config.yaml"
    if how.startswith("config"):
        config.unlink()
    if how == "deep result":
        result.write_text("[" * 200_000)
    elif how == "long result":
        with result.open("wb") as file:
            file.truncate(1 << 27)
    elif how == "pipe":
        os.mkfifo(result)
    elif how == "endless":
        result.symlink_to("/dev/zero")
    elif how == "folder":
        result.mkdir()
    elif how == "config deep":
        config.write_text("[" * 200_000)
    elif how == "config tag":
        config.write_text("seed: !!timestamp x")
    elif how == "config pipe":
        os.mkfifo(config)
    elif how == "config endless":
        config.symlink_to("/dev/zero")
    elif how == "config bytes":
        config.write_bytes(b"\xff\xfe\x00")


BAD = ("deep result", "long result", "pipe", "endless", "folder")
BAD_CONFIGS = ("config deep", "config tag", "config pipe", "config endless", "config bytes")


@pytest.mark.parametrize("how", [*BAD, *BAD_CONFIGS])
def test_no_folder_stops_a_listing(how: str, tmp_path: Path) -> None:
    store = Store(tmp_path)
    good, bad = finished(store), store.open(CONFIG.with_setting("seed", 2))
    spoiled(bad.path, how)
    entries = {entry.name: entry for entry in store.runs()}
    assert entries[good.name].state == "finished"
    assert entries[bad.name].state == "corrupt"
    assert entries[bad.name].reason
    assert "\n" not in entries[bad.name].reason


def test_a_linked_run_is_listed_as_such_and_a_linked_root_is_fine(tmp_path: Path) -> None:
    elsewhere = finished(Store(tmp_path / "real"))
    (tmp_path / "root").symlink_to(tmp_path / "real")
    assert [entry.state for entry in Store(tmp_path / "root").runs()] == ["finished"]
    assert Store(tmp_path / "root").open(CONFIG).finished
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / elsewhere.name).symlink_to(elsewhere.path)
    (entry,) = Store(tmp_path / "runs").runs()
    assert (entry.state, "is a link" in entry.reason) == ("corrupt", True)
    for ask in (Store(tmp_path / "runs").open, Store(tmp_path / "runs").find):
        with pytest.raises(UnsafePath, match="is a link, and links within a folder of runs are not followed"):
            ask(CONFIG)


@pytest.mark.parametrize(
    "name",
    ["log.jsonl", "config.yaml", "checkpoint", ".lock", "tensorboard", "wandb", "checkpoint/1", ".lock/00000001"],
)
def test_nothing_is_done_in_a_run_with_a_link_in_it(name: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "0001-step-1").mkdir()
    store = Store(tmp_path / "runs")
    run = store.open(CONFIG)
    place = run.path / name
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(mine)
    with pytest.raises(UnsafePath, match=f"{name} is a link"):
        store.open(CONFIG)
    assert [path.name for path in mine.iterdir()] == ["0001-step-1"]


@pytest.mark.parametrize("name", ["result.json", ".lock/00000001", "checkpoint/00000001-step-1/state.json"])
def test_nothing_is_waited_for_in_a_run(name: str, tmp_path: Path) -> None:
    """A lock, a checkpoint or a result that is a pipe would be read for ever."""
    store = Store(tmp_path)
    place = store.open(CONFIG).path / name
    place.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(place)
    with pytest.raises(UnsafePath, match=rf"{place.name} is neither a file nor a folder.*remove it"):
        store.open(CONFIG)


def test_analyses_are_not_written_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / ".analyses").symlink_to(tmp_path / "mine")
    with pytest.raises(UnsafePath, match=r"\.analyses is a link"):
        save_analysis(tmp_path / "runs", "overhead", "x", {})
    with pytest.raises(UnsafePath, match=r"\.analyses is a link"):
        record(CONFIG, Store(tmp_path / "runs"), tasks=1)
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    mine, log = tmp_path / "mine.txt", tmp_path / "log.jsonl"
    mine.write_text('{"step": 9}\n')
    log.symlink_to(mine)
    for attempt in (
        lambda: append_line(log, {"step": 1}),
        lambda: truncate_after(log, 0),
        lambda: read_lines(log),
        lambda: read_regular(log),
    ):
        with pytest.raises(UnsafePath):
            attempt()
    assert mine.read_text() == '{"step": 9}\n'


def test_a_file_is_not_replaced_through_a_link(tmp_path: Path) -> None:
    mine, path = tmp_path / "mine.txt", tmp_path / "result.json"
    mine.write_text("mine")
    (tmp_path / f".result.json.writing-{os.getpid()}").symlink_to(mine)
    path.symlink_to(mine)
    write_whole(path, "new")
    assert mine.read_text() == "mine"
    assert (path.is_symlink(), path.read_text()) == (False, "new")


def test_wandbs_own_links_do_no_harm(tmp_path: Path) -> None:
    """Its folder has a link to the latest of its runs."""
    store = Store(tmp_path)
    run = store.open(CONFIG)
    (run.path / "wandb" / "run-1").mkdir(parents=True)
    (run.path / "wandb" / "latest-run").symlink_to("run-1")
    write_checkpoint(run.checkpoints, {"step": 1}, 1)
    assert store.open(CONFIG).path == run.path


# -- results -----------------------------------------------------------------------------------------------------------


def test_no_damaged_result_is_believed(tmp_path: Path) -> None:
    """Every byte changed once: what is read is what was written, or nothing is."""
    path = finished(Store(tmp_path)).path / "result.json"
    data, whole = path.read_bytes(), read_result(path)
    believed = 0
    for place in range(len(data)):
        for change in (0x01, 0x10):
            path.write_bytes(data[:place] + bytes((data[place] ^ change,)) + data[place + 1 :])
            try:
                found = read_result(path)
            except ValueError:
                continue
            believed += 1
            assert json.dumps(found) == json.dumps(whole)
    assert believed < len(data)


def test_a_result_that_was_edited_is_not_believed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = finished(store)
    path = run.path / "result.json"
    path.write_text(path.read_text().replace('"acc": 0.7', '"acc": 0.9'))
    (entry,) = store.runs()
    assert (entry.state, entry.reason) == (
        "corrupt",
        "result.json does not match its checksum: it was damaged, or edited",
    )
    assert not run.finished


def test_another_runs_result_is_not_believed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run, other = store.open(CONFIG), finished(store, CONFIG.with_setting("epochs", 3))
    for text in (other.path / "result.json").read_text(), stripped(other.path / "result.json"):
        (run.path / "result.json").write_text(text)
        entry = next(entry for entry in store.runs() if entry.name == run.name)
        assert (entry.state, "is of another run" in entry.reason) == ("corrupt", True)
        assert not run.finished
    with pytest.raises(ValueError, match="is of another run"):
        write_result(run.path / "result.json", json.loads((other.path / "result.json").read_text()))


def stripped(path: Path, **changes: Any) -> str:
    """As the first version wrote it."""
    old = {**json.loads(path.read_text()), "format": 1, **changes}
    del old["checksum"]
    return json.dumps(old)


def test_results_of_the_first_version_are_read_with_a_doubt(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run = finished(store)
    path = run.path / "result.json"
    path.write_text(stripped(path))
    (entry,) = store.runs()
    assert (entry.state, entry.reason) == ("finished", "no checksum")
    assert run.finished
    finished(store)
    path.write_text(stripped(path, method="tmln"))
    (entry,) = store.runs()
    assert (entry.state, entry.reason) == ("corrupt", "result.json: its method is not that of its configuration")


def test_a_run_of_an_older_version_stays_that_of_its_folder() -> None:
    """A later version adds a setting: the configuration is compared as it was stored."""
    stored = {key: value for key, value in CONFIG.resolved().items() if key != "compile"}
    old = run_name(stored)
    assert old != run_id(CONFIG)
    assert is_named(stored, old)
    assert is_named(json.loads(json.dumps(CONFIG.resolved())), run_id(CONFIG))


def test_settings_that_json_has_no_number_for(tmp_path: Path) -> None:
    endless = RunConfig(benchmark="split-digits", method="tmln", settings={"step.damping": math.inf})
    run = finished(Store(tmp_path), endless)
    assert run.result is not None
    again = RunConfig.of(run.result.config)
    assert run_id(again) == run.name


# -- code --------------------------------------------------------------------------------------------------------------


def test_a_configuration_runs_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMLN_ALLOW_CODE", raising=False)
    text = f"benchmark: split-digits\nmodel: os:system\nmodel_options: {{command: 'touch {tmp_path}/made'}}\n"
    config = RunConfig.from_yaml(text)
    with pytest.raises(ValueError, match=r"'os:system' is code outside tmln.*tmln --allow-code"):
        build(config)
    monkeypatch.setenv("TMLN_ALLOW_CODE", "1")
    with pytest.raises(ValueError, match="neither a"):
        build(config)
    assert not (tmp_path / "made").exists()


def test_no_module_is_imported_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "springs_when_imported.py").write_text(f"open({str(tmp_path / 'made')!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("TMLN_ALLOW_CODE", raising=False)
    with pytest.raises(ValueError, match="--allow-code"):
        build(RunConfig(benchmark="split-digits", model="springs_when_imported:Net"))
    with pytest.raises(ValueError, match="--allow-code"):
        steps_in(
            stream_of(RunConfig(benchmark="split-digits")),
            RunConfig.of({"benchmark": "split-digits", "step": "springs_when_imported:Net"}),
        )
    assert not (tmp_path / "made").exists()
