"""The files of a memory on disk: columns of rows, and a note of what they hold and who may write."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from tmln.methods.replay.fields import Kind

FORMAT = 1
NOTE, LOCK = "memory.json", "lock"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What the disk refuses is one line that names the file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        what = f"the memory on disk cannot be written ({reason}); nothing was added: make room and go on"
        raise OSError(error.errno, what, str(path)) from error


class Column:
    """A file of rows of one dtype and shape, written with plain writes and read through a map of it.

    A write through the map would end the process where the disk is full; a plain write raises.
    """

    def __init__(self, path: Path, dtype: torch.dtype, shape: tuple[int, ...] = ()) -> None:
        self.path, self.dtype, self.shape = path, dtype, shape
        self.values = math.prod(shape)
        self._map = torch.empty((0, *shape), dtype=dtype)
        with naming(path):
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def write(self, at: int, rows: Tensor) -> None:
        """Rows from number ``at`` on."""
        if not rows.numel():
            return
        plain = rows.cpu().resolve_conj().resolve_neg().contiguous().flatten()
        left, place = plain.view(torch.uint8).numpy().data, at * self.values * self.dtype.itemsize
        with naming(self.path):
            while left:
                done = os.pwrite(self._file, left, place)
                left, place = left[done:], place + done

    def rows(self, count: int) -> Tensor:
        """At least the first ``count`` rows, which were written; twice as many are mapped as ever before.

        The file is as long as the map, for the most part a hole: what it takes of the disk is what was written.
        """
        if count > len(self._map):
            room = max(count, 2 * len(self._map))
            if self.values:
                if not self.holds(room):  # torch would make it longer, too, but with a zero byte over the first one
                    with naming(self.path):
                        os.ftruncate(self._file, room * self.values * self.dtype.itemsize)
                flat = torch.from_file(str(self.path), shared=True, size=room * self.values, dtype=self.dtype)
                self._map = flat.view(room, *self.shape)
            else:
                self._map = torch.empty((room, *self.shape), dtype=self.dtype)
        return self._map

    def holds(self, count: int) -> bool:
        """The file is long enough for so many rows."""
        return os.fstat(self._file).st_size >= count * self.values * self.dtype.itemsize

    def sync(self) -> None:
        """On the disk, not only with the system."""
        with naming(self.path):
            os.fsync(self._file)


@dataclass(frozen=True)
class Note:
    """What the columns hold. Rows from ``start`` of a branch to the start of the next were written by that branch.

    A branch is what one memory appended, from its beginning or from a state on. Going on from a state that is not the
    last makes the branches behind it void, and their states are refused.
    """

    capacity: int
    kinds: dict[str, Kind]
    branches: tuple[tuple[str, int], ...]  # name, start
    saved: bool = False  # whether a state refers to it
    host: str = ""  # where it was made

    def holds(self, branch: str, rows: int) -> bool:
        """Whether the first ``rows`` rows are still those that this branch knew."""
        names = [name for name, _ in self.branches]
        if branch not in names:
            return False
        place = names.index(branch)
        end = self.branches[place + 1][1] if place + 1 < len(names) else rows
        return self.branches[place][1] <= rows <= end

    def gone_on(self, branch: str, rows: int, new: str) -> Note:
        """With a new branch behind the first ``rows`` rows of ``branch``, and nothing else behind them."""
        names = [name for name, _ in self.branches]
        return replace(self, branches=(*self.branches[: names.index(branch) + 1], (new, rows)))


def read_note(folder: Path) -> Note | None:
    """The folder's note; None where there is none."""
    try:
        text = (folder / NOTE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        plain = json.loads(text)
        if plain["format"] > FORMAT:
            raise ValueError(f"it has format {plain['format']}, this tmln reads formats up to {FORMAT}: upgrade tmln")
        kinds = {name: _kind(**kind) for name, kind in plain["fields"].items()}
        branches = tuple((str(name), int(start)) for name, start in plain["branches"])
        return Note(int(plain["capacity"]), kinds, branches, bool(plain["saved"]), str(plain["host"]))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"{folder / NOTE} cannot be read: {error}") from error


def write_note(folder: Path, note: Note) -> None:
    """Replaces the old note when it is whole and on the disk."""
    fields = {
        name: {"dtype": str(kind.dtype).removeprefix("torch."), "shape": kind.shape, "ragged": kind.ragged}
        for name, kind in note.kinds.items()
    }
    plain = {"format": FORMAT, "capacity": note.capacity, "fields": fields, "branches": note.branches}
    writing = folder / f".{NOTE}.writing"
    with naming(folder / NOTE):
        with writing.open("w", encoding="utf-8") as file:
            file.write(json.dumps({**plain, "saved": note.saved, "host": note.host}))
            file.flush()
            os.fsync(file.fileno())
        os.replace(writing, folder / NOTE)
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """The names in it, too, are then on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _kind(dtype: str, shape: list[int], ragged: bool) -> Kind:
    found: Any = getattr(torch, dtype)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"{dtype!r} is no dtype")
    return Kind(found, tuple(map(int, shape)), bool(ragged))


class Hold:
    """This process's right to write into a folder, for as long as somebody in it refers to the hold."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self.sure = True
        try:
            import fcntl  # not on every system

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"{folder}: another process writes into this memory; use another folder") from None
        except (ImportError, OSError):  # a system, or a file system, without locks
            self.sure = False

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._file)


_HOLDS: WeakValueDictionary[str, Hold] = WeakValueDictionary()


def hold(folder: Path) -> Hold:
    """The process's one hold on the folder."""
    key = str(folder.resolve())
    held = _HOLDS.get(key)
    if held is None:
        held = _HOLDS[key] = Hold(folder)
    return held


def make_folder(place: Path, name: str) -> tuple[Path, Hold]:
    """A new memory's folder in ``place``. What processes of this machine left there, killed before a state referred to
    it, is cleared away.
    """
    for old in place.glob("memory-*"):
        with suppress(RuntimeError, ValueError, OSError):
            if str(old.resolve()) not in _HOLDS and _left_over(old) and Hold(old).sure and _left_over(old):
                shutil.rmtree(old, ignore_errors=True)
    folder = place / f"memory-{name}"
    with naming(folder):
        folder.mkdir(parents=True)
        return folder, hold(folder)


def _left_over(folder: Path) -> bool:
    note = read_note(folder)
    return note is not None and not note.saved and note.host == socket.gethostname()
