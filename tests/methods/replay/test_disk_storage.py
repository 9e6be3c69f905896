"""A memory on disk: the draws of one in RAM, states that later samples leave alone, folders told from others."""

from __future__ import annotations

import copy
import json
import os
import pickle
import resource
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.methods.replay.oracle import ListReservoir
from tmln.learner.checkpoint import load_file, save_file
from tmln.methods.replay import Reservoir
from tmln.methods.replay.disk_files import FolderLock


def samples(start: int, count: int) -> tuple[Tensor, Tensor]:
    n = torch.arange(start, start + count)
    return torch.stack([n, -n], 1).to(torch.int16), n


def kept(memory: Reservoir) -> list[int]:
    found = [y for _, y in memory.batches(5)]
    for x, y in memory.batches(5):
        assert torch.equal(x, torch.stack([y, -y], 1).to(torch.int16))
    return torch.cat(found).tolist() if found else []


def home(place: Path) -> Path:
    """The one folder that memories have made there."""
    (found,) = place.glob("memory-*")
    return found


def filled(path: Path | None, count: int = 30, capacity: int = 8) -> Reservoir:
    memory = Reservoir(capacity, seed=3, path=path)
    for start in range(0, count, 5):
        memory.add(*samples(start, 5))
    return memory


def loaded(state: dict[str, Any], path: Path | None, capacity: int = 8) -> Reservoir:
    memory = Reservoir(capacity, seed=99, path=path)
    memory.load_state_dict(state)
    return memory


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 30), max_size=8),
    capacity=st.integers(0, 12),
    seed=st.integers(0, 9),
    reload=st.sets(st.integers(0, 7)),
)
def test_what_is_kept_and_drawn_is_that_of_the_list(
    sizes: list[int], capacity: int, seed: int, reload: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("memory") / "here"
    memory, oracle = Reservoir(capacity, seed, path=path), ListReservoir(capacity, seed)
    for number, size in enumerate(sizes):
        memory.add(*samples(oracle.seen, size))
        oracle.add(range(oracle.seen, oracle.seen + size))
        if number in reload:
            memory = loaded(memory.state_dict(), path, capacity)
        assert kept(memory) == oracle.kept
        if oracle.kept:
            assert memory.sample(4)[1].tolist() == oracle.sample(4)
    assert (memory.seen, len(memory)) == (oracle.seen, len(oracle.kept))


DTYPES = (torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16) + (
    torch.float32, torch.float64, torch.complex64,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(dtype=st.sampled_from(DTYPES), shape=st.lists(st.integers(0, 3), max_size=3), seed=st.integers(0, 3))
def test_every_dtype_and_shape(
    dtype: torch.dtype, shape: list[int], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ram, disk = Reservoir(4, seed), Reservoir(4, seed, path=tmp_path_factory.mktemp("memory"))
    generator = torch.Generator().manual_seed(seed)
    for _ in range(3):
        values = torch.randint(0, 200, (5, *shape), generator=generator).to(dtype)
        for memory in (ram, disk):
            memory.add(
                {"v": values.flip(0) if shape else values, "t": values.transpose(-1, -2) if shape[1:] else values}
            )
    for name, value in ram.draw(4).items():
        if name == "v":
            again = disk.draw(4)
        assert again[name].dtype == dtype
        assert torch.equal(again[name], value)


def test_what_is_drawn_is_a_copy(tmp_path: Path) -> None:
    memory = filled(tmp_path)
    before = kept(memory)
    for x, y in [memory.sample(8), *memory.batches(3)]:
        x.zero_()
        y.zero_()
    assert kept(memory) == before


# -- states ------------------------------------------------------------------------------------------------------------


def test_a_state_is_small_and_goes_through_a_file(tmp_path: Path) -> None:
    memory = filled(tmp_path / "memory")
    state = memory.state_dict()
    assert list(state) == ["capacity", "seen", "generator", "files"]
    assert {key: type(value) for key, value in state["files"].items()} == {"path": str, "branch": str, "rows": int}
    save_file(tmp_path / "state", state)
    again = loaded(load_file(tmp_path / "state"), tmp_path / "memory")
    assert kept(again) == kept(memory) == kept(filled(None))


def test_an_empty_memory_has_a_state_and_no_folder(tmp_path: Path) -> None:
    memory = Reservoir(8, path=tmp_path / "memory")
    state = memory.state_dict()
    assert state["fields"] == {}
    assert not (tmp_path / "memory").exists()
    again = loaded(state, tmp_path / "memory")
    again.add(*samples(0, 5))
    assert len(again) == 5


def test_what_a_state_refers_to_is_never_written_again(tmp_path: Path) -> None:
    """A checkpoint costs what was added since the last one."""
    memory = filled(tmp_path)
    states, parts = [], []
    for start in range(30, 90, 20):
        states.append(memory.state_dict())
        rows = states[-1]["files"]["rows"]
        sizes = {"slots": 8 * rows, "0.rows": 4 * rows, "1.rows": 8 * rows}
        parts.append({name: (home(tmp_path) / name).read_bytes()[:size] for name, size in sizes.items()})
        memory.add(*samples(start, 20))
    for part in parts:
        for name, content in part.items():
            assert (home(tmp_path) / name).read_bytes()[: len(content)] == content
    for state, count in zip(states, (30, 50, 70), strict=True):
        oracle = ListReservoir(8, seed=3)
        for start in (*range(0, 30, 5), *range(30, count, 20)):
            oracle.add(range(start, start + (5 if start < 30 else 20)))
        assert kept(loaded(state, tmp_path)) == oracle.kept


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="names of open files are read from /proc")
def test_a_state_is_on_the_disk_when_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Reservoir(8, pad={"1": 0}, path=tmp_path / "memory")
    memory.add((torch.arange(3), [torch.ones(2)] * 3))
    said: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_sync(file: int) -> None:
        said.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)
        fsync(file)

    def noted_replace(source: Any, target: Any) -> None:
        said.append(f"to {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    memory.state_dict()
    assert set(said[:4]) == {"slots", "0.rows", "1.rows", "1.ends"}
    assert said[4:] == [".memory.json.writing", "to memory.json", home(tmp_path / "memory").name]
    said.clear()
    memory.state_dict()
    assert set(said) == {"slots", "0.rows", "1.rows", "1.ends"}


def test_going_back_makes_later_states_void_once_something_is_added(tmp_path: Path) -> None:
    memory = filled(tmp_path / "memory")
    early, expected = memory.state_dict(), kept(memory)
    memory.add(*samples(30, 40))
    late, later = memory.state_dict(), kept(memory)
    assert later != expected
    looked_at = loaded(early, tmp_path / "memory")
    assert kept(looked_at) == expected
    assert kept(loaded(late, tmp_path / "memory")) == later  # looking changes nothing
    looked_at.add(*samples(30, 40))
    assert kept(looked_at) == later
    with pytest.raises(
        ValueError, match=r"memory-\w+ no longer holds this state: the memory went on from an earlier one"
    ):
        loaded(late, tmp_path / "memory")
    with pytest.raises(RuntimeError, match=r"another memory went on in .*load a state"):
        memory.sample(3)
    with pytest.raises(RuntimeError, match="another memory went on"):
        memory.add(*samples(70, 5))
    with pytest.raises(RuntimeError, match="another memory went on"):
        memory.state_dict()
    assert kept(loaded(early, tmp_path / "memory")) == expected
    assert kept(loaded(looked_at.state_dict(), tmp_path / "memory")) == later


def test_of_two_that_go_on_from_one_state_the_first_is_told(tmp_path: Path) -> None:
    first = filled(tmp_path / "memory")
    second = loaded(first.state_dict(), tmp_path / "memory")
    second.add(*samples(30, 30))
    assert kept(first) == kept(filled(None))  # its rows are untouched
    with pytest.raises(RuntimeError, match=r"another memory went on in .*; use that one"):
        first.add(*samples(30, 30))
    assert first.seen == 30


def test_between_memory_and_disk(tmp_path: Path) -> None:
    ram = filled(None)
    disk = loaded(ram.state_dict(), tmp_path / "memory")
    back = loaded(disk.state_dict(), None)
    assert back.state_dict().keys() == {"capacity", "seen", "generator", "fields"}
    for memory in (ram, disk, back):
        memory.add(*samples(30, 30))
    assert kept(ram) == kept(disk) == kept(back)
    assert ram.sample(5)[1].tolist() == disk.sample(5)[1].tolist() == back.sample(5)[1].tolist()


def test_back_to_nothing(tmp_path: Path) -> None:
    """A learner that fails in its first task has an empty memory again, and may meet samples of another kind then."""
    memory = Reservoir(8, seed=3, path=tmp_path / "memory")
    nothing = memory.state_dict()
    memory.add(torch.zeros(20, 3), torch.zeros(20))
    memory.state_dict()
    memory.load_state_dict(nothing)
    for start in range(0, 30, 5):
        memory.add(*samples(start, 5))
    fresh = Reservoir(8, seed=3)
    for start in range(0, 30, 5):
        fresh.add(*samples(start, 5))
    assert kept(memory) == kept(fresh)


def test_a_folder_that_was_moved(tmp_path: Path) -> None:
    memory = filled(tmp_path / "here")
    state, expected = memory.state_dict(), kept(memory)
    (tmp_path / "here").rename(tmp_path / "there")
    assert kept(loaded(state, tmp_path / "there")) == expected
    for path in (tmp_path / "here", None):
        with pytest.raises(
            FileNotFoundError, match=r"no memory in .*here/memory-.*: put the folder back, or say by path="
        ):
            loaded(state, path)


# -- folders that hold something else ----------------------------------------------------------------------------------


def test_memories_share_a_place(tmp_path: Path) -> None:
    first, second = filled(tmp_path), filled(tmp_path, count=20)
    states = [memory.state_dict() for memory in (first, second)]
    assert len(list(tmp_path.iterdir())) == 2
    for state, memory in zip(states, (first, second), strict=True):
        assert kept(loaded(state, tmp_path)) == kept(memory)


def test_what_no_state_refers_to_is_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, alive = filled(tmp_path), filled(tmp_path)
    state = saved.state_dict()
    names = {path.name for path in tmp_path.iterdir()}
    filled(tmp_path)  # nobody refers to it when this line ends
    assert len({path.name for path in tmp_path.iterdir()} - names) == 1
    with monkeypatch.context() as patched:
        patched.setattr(socket, "gethostname", lambda: "another")
        filled(tmp_path)
    assert len({path.name for path in tmp_path.iterdir()} - names) == 2  # who knows who works there
    del saved
    (tmp_path / "memory-of mine").mkdir()
    last = filled(tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert names < left
    assert len(left - names) == 3  # another machine's, mine, and the last one
    assert kept(loaded(state, tmp_path)) == kept(alive) == kept(last)


def test_what_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    memory = filled(tmp_path)
    folder = home(tmp_path)
    del memory
    other = FolderLock(folder)  # as another process has it
    filled(tmp_path)
    assert folder.exists()
    del other
    filled(tmp_path)
    assert not folder.exists()


def test_one_process_writes(tmp_path: Path) -> None:
    memory = filled(tmp_path)
    state = memory.state_dict()
    del memory
    other = FolderLock(home(tmp_path))
    again = loaded(state, tmp_path)
    assert len(kept(again)) == 8
    with pytest.raises(RuntimeError, match="another process writes into this memory"):
        again.add(*samples(0, 5))
    del other
    again.add(*samples(0, 5))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("0.rows", b"", "0.rows is cut short"),
        ("slots", b"", "slots is cut short"),
        ("slots", b"\xff" * 4096, "slots is damaged: it names slots that there are not"),
        ("slots", b"\x00" * 4096, "slots is damaged: slots that were filled are not in it"),
        ("memory.json", b"{", "memory.json cannot be read"),
        ("memory.json", b"[1]", "memory.json cannot be read"),
        ("memory.json", b'{"format": 2}', "format 2, this tmln reads formats up to 1: upgrade tmln"),
    ],
)
def test_damage_is_told(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    state = filled(tmp_path).state_dict()
    (home(tmp_path) / name).write_bytes(content)
    memory = Reservoir(8, seed=1, path=tmp_path)
    with pytest.raises(ValueError, match=words):
        memory.load_state_dict(state)
    assert memory.seen == 0


def test_a_note_holds_dtypes_and_nothing_else(tmp_path: Path) -> None:
    state = filled(tmp_path).state_dict()
    note = home(tmp_path) / "memory.json"
    plain = json.loads(note.read_text())
    plain["fields"]["x"]["dtype"] = "load"
    note.write_text(json.dumps(plain))
    with pytest.raises(ValueError, match="'load' is no dtype"):
        loaded(state, tmp_path)


def test_a_memory_that_is_gone_says_so(tmp_path: Path) -> None:
    memory = filled(tmp_path)
    shutil.rmtree(home(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"the files of the memory in .* are gone"):
        memory.sample(2)


def test_no_second_memory_by_copying(tmp_path: Path) -> None:
    memory = filled(tmp_path)
    for make in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled; its state_dict"):
            make(memory)


# -- a disk that is full -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 100, 200, 400, 1000])
def test_what_the_disk_refuses_is_one_line_and_changes_nothing(room: int, tmp_path: Path) -> None:
    """The kernel itself refuses files of more than ``room`` bytes here."""
    memory, ram = Reservoir(300, seed=3, path=tmp_path / "memory"), Reservoir(300, seed=3)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    refused: Exception | None = None
    start = 0
    while refused is None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            memory.add(*samples(start, 5))
            memory.sample(2)
        except OSError as error:
            refused = error
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        if refused is None:
            ram.add(*samples(start, 5))
            ram.sample(2)
            start += 5
    words = str(refused)
    assert "the memory on disk cannot be written (File too large); nothing was added: make room and go on" in words
    assert str(tmp_path / "memory") in words
    assert "\n" not in words
    if memory.seen == start + 5:  # it was the draw for which there was no room
        ram.add(*samples(start, 5))
        start += 5
    for memory_ in (memory, ram):
        memory_.generator.manual_seed(1)
        memory_.add(*samples(start, 400))
    assert kept(memory) == kept(ram)


def test_a_failed_write_takes_no_random_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, ram = filled(tmp_path), filled(None)
    pwrite, calls = os.pwrite, iter(range(100))

    def full(file: int, data: Any, place: int) -> int:
        if next(calls) == 2:
            raise OSError(28, "No space left on device")
        return pwrite(file, data, place)

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match=r"cannot be written \(No space left on device\).*slots"):
        memory.add(*samples(30, 40))
    assert (memory.seen, kept(memory)) == (30, kept(ram))
    for one in (memory, ram):
        one.add(*samples(30, 40))
    assert kept(memory) == kept(ram)


def test_short_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, place: pwrite(file, data[:7], place))
    assert kept(filled(tmp_path)) == kept(filled(None))
