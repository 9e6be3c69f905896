"""The files of a memory on disk: columns of rows, a note about them, and a lock."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from tmln.methods.replay.fields import Kind
from tmln.writing import sync_path

FORMAT = 1
NOTE, LOCK = "memory.json", "lock"
MOST_NOTE_BYTES = 1 << 24  # of a note that is read; a branch, one for each time it was gone on from, has some 30


@contextmanager
def name_path_in_errors(path: Path) -> Iterator[None]:
    """Raise disk errors as one line that names the file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        what = f"the memory on disk cannot be written ({reason}); nothing was added: make room and go on"
        raise OSError(error.errno, what, str(path)) from error


def open_plain(path: Path, flags: int) -> int:
    """Return a descriptor of a plain file; refuse a link, hard link, pipe or device of that name.

    A memory folder may come from another user, and may hold a link to a file of this one.
    """
    if path.is_symlink():
        raise ValueError(f"{path} is a link, and links in a memory folder are not followed; remove it")
    careful = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    handle = os.open(path, flags | careful, 0o666)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(handle)
        raise ValueError(f"{path} is not a plain file of its own, and does not belong in a memory folder; remove it")
    return handle


class Column:
    """A file of rows of one dtype and shape, written by plain writes and read through a map.

    On a full disk a plain write raises, while a write through the map would end the process.
    """

    def __init__(self, path: Path, dtype: torch.dtype, shape: tuple[int, ...] = ()) -> None:
        self.path, self.dtype, self.shape = path, dtype, shape
        self.values = math.prod(shape)
        self._map = torch.empty((0, *shape), dtype=dtype)
        with name_path_in_errors(path):
            self._file = open_plain(path, os.O_RDWR | os.O_CREAT)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def write(self, at: int, rows: Tensor) -> None:
        """Write rows from number ``at`` on."""
        if not rows.numel():
            return
        plain = rows.cpu().resolve_conj().resolve_neg().contiguous().flatten()
        left, place = plain.view(torch.uint8).numpy().data, at * self.values * self.dtype.itemsize
        with name_path_in_errors(self.path):
            while left:
                done = os.pwrite(self._file, left, place)
                left, place = left[done:], place + done

    def rows(self, count: int) -> Tensor:
        """Return at least the first ``count`` rows, which were written.

        The map doubles as it grows, and the sparse file with it.
        """
        if count > len(self._map):
            room = max(count, 2 * len(self._map))
            if self.values:
                if not self.holds(room):  # torch itself would overwrite the first byte
                    with name_path_in_errors(self.path):
                        os.ftruncate(self._file, room * self.values * self.dtype.itemsize)
                flat = torch.from_file(str(self.path), shared=True, size=room * self.values, dtype=self.dtype)
                self._map = flat.view(room, *self.shape)
            else:
                self._map = torch.empty((room, *self.shape), dtype=self.dtype)
        return self._map

    def holds(self, count: int) -> bool:
        """Return whether the file is long enough for so many rows."""
        return os.fstat(self._file).st_size >= count * self.values * self.dtype.itemsize

    def sync(self) -> None:
        """Flush the file to the disk."""
        with name_path_in_errors(self.path):
            os.fsync(self._file)


@dataclass(frozen=True)
class MemoryNote:
    """The description of the columns.

    A branch is what one memory appended, from its beginning or from a loaded state: the rows from
    its ``start`` to the start of the next branch. Continuing from a state that is not the last
    invalidates the branches behind it, and their states are refused.
    """

    capacity: int
    kinds: dict[str, Kind]
    branches: tuple[tuple[str, int], ...]  # name, start
    saved: bool = False  # a state refers to it
    host: str = ""  # where it was made

    def holds(self, branch: str, rows: int) -> bool:
        """Return whether the first ``rows`` rows are still those of this branch."""
        names = [name for name, _ in self.branches]
        if branch not in names:
            return False
        place = names.index(branch)
        end = self.branches[place + 1][1] if place + 1 < len(names) else rows
        return self.branches[place][1] <= rows <= end

    def branch_off(self, branch: str, rows: int, new: str) -> MemoryNote:
        """Return the note with a new branch after the first ``rows`` rows of ``branch``."""
        names = [name for name, _ in self.branches]
        return replace(self, branches=(*self.branches[: names.index(branch) + 1], (new, rows)))


def read_note(folder: Path) -> MemoryNote | None:
    """Return the folder's note; None where there is none."""
    if folder.is_symlink():
        raise ValueError(f"{folder} is a link, and a memory folder behind a link is not used; name the folder itself")
    try:
        handle = open_plain(folder / NOTE, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(handle, "rb") as file:
        text = file.read(MOST_NOTE_BYTES + 1)
    try:
        if len(text) > MOST_NOTE_BYTES:
            raise ValueError(f"it has more than the {MOST_NOTE_BYTES:,} bytes that are read")
        plain = json.loads(text)
        if plain["format"] > FORMAT:
            raise ValueError(f"it has format {plain['format']}, this tmln reads formats up to {FORMAT}: upgrade tmln")
        kinds = {name: _kind(**kind) for name, kind in plain["fields"].items()}
        branches = tuple((str(name), int(start)) for name, start in plain["branches"])
        return MemoryNote(int(plain["capacity"]), kinds, branches, bool(plain["saved"]), str(plain["host"]))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"{folder / NOTE} cannot be read: {error}") from error


def write_note(folder: Path, note: MemoryNote) -> None:
    """Replace the note atomically."""
    fields = {
        name: {"dtype": str(kind.dtype).removeprefix("torch."), "shape": kind.shape, "ragged": kind.ragged}
        for name, kind in note.kinds.items()
    }
    plain = {"format": FORMAT, "capacity": note.capacity, "fields": fields, "branches": note.branches}
    writing = folder / f".{NOTE}.writing"
    with name_path_in_errors(folder / NOTE):
        writing.unlink(missing_ok=True)
        with os.fdopen(open_plain(writing, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w", encoding="utf-8") as file:
            file.write(json.dumps({**plain, "saved": note.saved, "host": note.host}))
            file.flush()
            os.fsync(file.fileno())
        os.replace(writing, folder / NOTE)
        sync_path(folder)


def _kind(dtype: str, shape: list[int], ragged: bool) -> Kind:
    found: Any = getattr(torch, dtype)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"{dtype!r} is no dtype")
    return Kind(found, tuple(map(int, shape)), bool(ragged))


class FolderLock:
    """The right of this process to write into a folder, held while it is referenced."""

    def __init__(self, folder: Path) -> None:
        self._file = open_plain(folder / LOCK, os.O_RDWR | os.O_CREAT)
        self.is_exclusive = True
        try:
            import fcntl  # not on every system

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"{folder}: another process writes into this memory; use another folder") from None
        except (ImportError, OSError):  # a system, or a file system, without locks
            self.is_exclusive = False

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._file)


_LOCKS: WeakValueDictionary[str, FolderLock] = WeakValueDictionary()


def lock_folder(folder: Path) -> FolderLock:
    """Return the lock of the folder, one for all memories of this process."""
    key = str(folder.resolve())
    held = _LOCKS.get(key)
    if held is None:
        held = _LOCKS[key] = FolderLock(folder)
    return held


def make_folder(place: Path, name: str) -> tuple[Path, FolderLock]:
    """Make a new memory's folder in ``place``.

    Folders of killed processes of this machine to which no state refers are deleted.
    """
    for old in place.glob("memory-*"):
        with suppress(RuntimeError, ValueError, OSError):
            if (
                str(old.resolve()) not in _LOCKS
                and _is_left_over(old)
                and FolderLock(old).is_exclusive
                and _is_left_over(old)
            ):
                shutil.rmtree(old, ignore_errors=True)
    folder = place / f"memory-{name}"
    with name_path_in_errors(folder):
        folder.mkdir(parents=True)
        return folder, lock_folder(folder)


def _is_left_over(folder: Path) -> bool:
    note = read_note(folder)
    return note is not None and not note.saved and note.host == socket.gethostname()
