"""What a machine of a Ray cluster does, without Ray: which files it takes, whose folder it has, what it sends."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.experiments.killing import config
from tmln.executors import ray
from tmln.executors.interfaces import Outcome, RunRequest
from tmln.executors.plan import Job
from tmln.executors.ray import LOST_OR_KILLED, RayTask, execute_task, fetch_data, names_in, pack, receive, unpack
from tmln.experiments.files import write_whole
from tmln.experiments.launch import RunOptions
from tmln.experiments.lock import RunLock
from tmln.experiments.store import Store

NODE = SimpleNamespace(get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "n"))
MAILBOX = SimpleNamespace(put=SimpleNamespace(remote=lambda *message: None))


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ray.SCRATCH, str(tmp_path / "scratch"))
    monkeypatch.setitem(sys.modules, "ray", NODE)


def asked(tmp_path: Path, **changes: Any) -> RayTask:
    request = RunRequest(Job(config("naive", epochs=1)), str(tmp_path / "runs"), RunOptions())
    return replace(RayTask("a", request, None, fetch=False, collect=True), **changes)


def execute(task: RayTask) -> tuple[Outcome, bytes]:
    return execute_task(task, MAILBOX)


def write_files(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def scratch_store(task: RayTask) -> Store:
    return Store(receive(task).path.parent)


FILES = ("config.yaml", "result.json", "tensorboard/events", "checkpoint/00000002-step-30/state.json")


def test_all_but_the_lock_is_packed_and_the_result_is_written_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed, written = pack(write_files(tmp_path / "run", *FILES, ".lock/held")), list[str]()

    def write(path: Path, data: bytes) -> None:
        written.append(path.name)
        write_whole(path, data)

    monkeypatch.setattr("tmln.experiments.files.write_whole", write)
    unpack(packed, tmp_path / "there")
    assert written[-1] == "result.json"
    found = {
        path.relative_to(tmp_path / "there").as_posix() for path in (tmp_path / "there").rglob("*") if path.is_file()
    }
    assert found == set(names_in(packed)) == set(FILES)
    assert (tmp_path / "there/config.yaml").read_text() == "config.yaml"


def test_some_files_or_none(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "run", *FILES)
    assert names_in(pack(folder, ("config.yaml", "result.json"))) == ["config.yaml", "result.json"]
    assert pack(tmp_path / "nowhere") == b""
    assert names_in(b"") == []
    unpack(b"", tmp_path / "there")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", ".lock", "a/.b/c"])
def test_nothing_is_written_elsewhere(name: str, tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        file.writestr(name, "x")
    with pytest.raises(ValueError, match="is no file of a run"):
        unpack(data.getvalue(), tmp_path / "there" / "run")


def test_files_larger_than_the_archive_are_refused(tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("log.jsonl", bytes(1_000_000))
    with pytest.raises(ValueError, match="claims to hold 1000000"):
        unpack(data.getvalue(), tmp_path / "there" / "run")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(("left", "sent", "taken"), [(9, 30, 30), (30, 9, 30), (None, 9, 9), (9, None, 9)])
def test_the_later_checkpoint_is_taken(left: int | None, sent: int | None, taken: int, tmp_path: Path) -> None:
    task = asked(tmp_path)
    run = Store(task.request.root).open(task.request.job.config)
    for store, step in ((scratch_store(task), left), (Store(task.request.root), sent)):
        if step is not None:
            write_files(store.open(run.config).path, f"checkpoint/00000001-step-{step}/state.json")
    found = receive(replace(task, files={run.name: pack(run.path)}))
    assert [path.name for path in found.checkpoints.iterdir()] == [f"00000001-step-{taken}"]
    assert not found.lock.held


def test_a_run_that_another_process_works_on_here_is_left_to_it(tmp_path: Path) -> None:
    task = asked(tmp_path)
    run = scratch_store(task).open(task.request.job.config)
    with RunLock(run.path / ".lock"):
        outcome, files = execute(task)
    assert (outcome.state, files) == ("locked", b"")


def test_a_collected_run_is_sent_and_not_kept(tmp_path: Path) -> None:
    outcome, files = execute(asked(tmp_path))
    assert outcome.state == "finished"
    assert files
    assert not list((tmp_path / "scratch").glob("*/[!.]*"))
    assert not (tmp_path / "runs").exists(), "the folder of the command is on another machine"


def test_a_folder_that_is_not_the_commands_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "VISIBLE", 0.0)
    outcome, _ = execute(asked(tmp_path, collect=False, token=".command-1"))
    assert outcome.state == "failed"
    assert "is not the folder of the command" in outcome.error
    assert "--collect" in outcome.error


def test_data_are_fetched_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[str] = []
    monkeypatch.setenv("TMLN_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("tmln.data.get_data", got.append)
    request = replace(asked(tmp_path).request, job=Job(config("naive", benchmark="split-mnist")))
    fetch_data(request)
    assert got == ["mnist"]


def test_memory_is_requested_from_a_machine_that_has_it() -> None:
    nodes = [
        {"Alive": True, "Resources": {"CPU": 2.0, "memory": 4e9}},
        {"Alive": True, "Resources": {"CPU": 1.0, "memory": 64e9}},
        {"Alive": False, "Resources": {"CPU": 99.0, "memory": 999e9}},
    ]

    def largest(**options: Any) -> int:
        executor = ray.RayExecutor.__new__(ray.RayExecutor)
        executor.__dict__ |= {"_ray": SimpleNamespace(nodes=lambda: nodes), "_config": ray_config(**options)}
        return executor._check_resources()

    assert largest() == 2
    assert largest(memory="8GB") == 1
    with pytest.raises(ValueError, match=r"has 2 CPU, 0 GPU, 8e\+09 memory.*largest has 2 CPU"):
        largest(threads=2, memory="8GB")


def ray_config(**options: Any) -> Any:
    from tmln.executors.config import ExecutorConfig

    return ExecutorConfig("ray", **options)


@pytest.mark.parametrize(("closes", "expected"), [(True, ""), (False, LOST_OR_KILLED)])
def test_a_command_that_ray_ends_is_explained(closes: bool, expected: str) -> None:
    end = "watcher.communicate(b'.')" if closes else "os._exit(1)"
    program = f"import os; from tmln.executors.ray import start_watcher; watcher = start_watcher(); {end}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stderr.strip() == expected
