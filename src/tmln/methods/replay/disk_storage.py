"""A memory larger than RAM: samples are appended to files, and a table maps slots to rows.

Rows are never overwritten, so that a state is a number of rows that are flushed to the disk. A
process may be killed at any moment; rows that no state refers to are overwritten when the memory
continues from its last state.

Every memory makes a folder of its own, so that runs may share a place:

    memory.json             the description of the columns; replaced atomically
    slots                   the slot of each row
    0.rows, 1.rows, ...     the fields, in the note's order; sequences end to end,
    0.ends, ...             and the end of each sequence
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tmln.methods.replay.disk_files import (
    NOTE,
    Column,
    MemoryNote,
    lock_folder,
    make_folder,
    name_path_in_errors,
    read_note,
    write_note,
)
from tmln.methods.replay.fields import Kind, Rows
from tmln.methods.replay.storage import read_saved_rows, select_rows
from tmln.writing import sync_path


class OnDisk:
    """Slots in files, in a folder within ``place`` that is made at the first write."""

    def __init__(self, place: str | os.PathLike[str], capacity: int) -> None:
        self.place, self.capacity = Path(place).absolute(), capacity
        self.path = self.place  # until there is a folder
        self.kinds: dict[str, Kind] = {}
        self._rows = 0
        self._note: MemoryNote | None = None
        self._noted: tuple[int, int] | None = None  # inode and time of the note's file
        self._branch = ""
        self._lock: object | None = None  # while this memory appends

    def __getstate__(self) -> Any:
        raise TypeError(f"the memory in {self.path} cannot be copied or pickled; its state_dict() can")

    def empty(self) -> OnDisk:
        """Return an empty one in the same place."""
        return OnDisk(self.place, self.capacity)

    def begin(self, kinds: dict[str, Kind], rows: Mapping[str, Rows]) -> None:
        """Make the folder and a file for each field; safe against a kill at any moment."""
        branch = secrets.token_hex(8)
        self.path, held = make_folder(self.place, branch)
        self._set_note(MemoryNote(self.capacity, kinds, ((branch, 0),), host=socket.gethostname()))
        self._lock, self._branch = held, branch
        self._open(kinds, 0)
        with name_path_in_errors(self.path):
            sync_path(self.path)
            sync_path(self.place)
        self.kinds = kinds

    def write(self, slots: Tensor, rows: Mapping[str, Rows]) -> None:
        """Append rows; older checkpoints still find theirs."""
        self._start_appending()
        at, count = self._rows, len(slots)
        for name, column in self._columns.items():
            value = rows[name]
            if isinstance(value, Tensor):
                column.write(at, value)
            elif value:
                start = self._end(name)
                lengths = torch.tensor([len(row) for row in value])
                column.write(start, torch.cat([row.cpu() for row in value]))
                self._ends[name].write(at, start + lengths.cumsum(0))
        self._slots.write(at, slots)
        self._table[slots] = torch.arange(at, at + count)
        self._rows = at + count

    def read(self, slots: Tensor | slice) -> dict[str, Rows]:
        """Return the rows of these slots."""
        self._check()
        if not self.kinds:
            return {}
        places, rows = select_rows(self._table, slots), self._rows
        return {
            name: list(self._sequences(name, places))
            if kind.ragged
            else select_rows(self._columns[name].rows(rows), places)
            for name, kind in self.kinds.items()
        }

    def state_dict(self, count: int) -> dict[str, Any]:
        """Flush the files and return their place and number of rows."""
        if not self.kinds:
            return {"fields": {}}
        self._check()
        assert self._note is not None
        if self._lock is not None:
            for column in (*self._columns.values(), *self._ends.values(), self._slots):
                column.sync()
            if not self._note.saved:
                self._set_note(replace(self._note, saved=True))
        return {"files": {"path": str(self.path), "branch": self._branch, "rows": self._rows}}

    def load(self, state: Mapping[str, Any], count: int) -> OnDisk:
        """Continue from the files of a state, or write the samples of a state to new files."""
        if "files" in state:
            return self._find_saved(state["files"], count)
        made = OnDisk(self.place, self.capacity)
        kinds, rows = read_saved_rows(state)
        if kinds:
            made.begin(kinds, rows)
            made.write(torch.arange(count), rows)
        return made

    def _find_saved(self, files: Mapping[str, Any], count: int) -> OnDisk:
        """Return the memory of a state, from its folder or, if that was moved, this one's place."""
        named, branch, rows = Path(files["path"]), files["branch"], files["rows"]
        void = None
        for folder in dict.fromkeys((self.place / named.name, named)):
            note = read_note(folder)
            if note is None or note.capacity != self.capacity:
                continue
            if note.holds(branch, rows):
                made = OnDisk(self.place, self.capacity)
                made.path, made._note, made._branch = folder, note, branch
                made._noted = made._stat_note()
                made._open(note.kinds, rows)
                made._read_table(count)
                made.kinds = note.kinds
                return made
            void = void or folder
        if void is not None:
            raise ValueError(f"{void} no longer holds this state: the memory went on from an earlier one in its place")
        raise FileNotFoundError(f"no memory in {named}: put the folder back, or say by path= in which folder it is now")

    def _open(self, kinds: dict[str, Kind], rows: int) -> None:
        self._columns = {
            name: Column(self.path / f"{number}.rows", kind.dtype, kind.shape)
            for number, (name, kind) in enumerate(kinds.items())
        }
        self._ends = {
            name: Column(self.path / f"{number}.ends", torch.int64)
            for number, (name, kind) in enumerate(kinds.items())
            if kind.ragged
        }
        self._slots = Column(self.path / "slots", torch.int64)
        self._table = torch.full((self.capacity,), -1)
        self._rows = rows

    def _read_table(self, count: int) -> None:
        """Read the row of each slot: the last one written for it."""
        for column in (self._slots, *self._ends.values()):
            _check_length(column, self._rows)
        for name, column in self._columns.items():
            _check_length(column, self._end(name) if name in self._ends else self._rows)
        slots, table = self._slots.rows(self._rows)[: self._rows].numpy(), self._table.numpy()
        if len(slots) and not 0 <= int(slots.min()) <= int(slots.max()) < self.capacity:
            raise ValueError(f"{self._slots.path} is damaged: it names slots that there are not")
        table[slots] = np.arange(self._rows)  # for duplicates numpy keeps the last
        if (table[:count] < 0).any():
            raise ValueError(f"{self._slots.path} is damaged: slots that were filled are not in it")

    def _end(self, name: str) -> int:
        return int(self._ends[name].rows(self._rows)[self._rows - 1]) if self._rows else 0

    def _sequences(self, name: str, places: Tensor) -> Iterator[Tensor]:
        ends = self._ends[name].rows(self._rows)
        stops, starts = ends[places], torch.where(places > 0, ends[(places - 1).clamp(min=0)], 0)
        values = self._columns[name].rows(self._end(name))
        return (values[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True))

    def _start_appending(self) -> None:
        """Lock the folder and start a new branch, unless this memory already appends."""
        if self._lock is None:
            held = lock_folder(self.path)
        self._check()
        assert self._note is not None
        if self._lock is None:
            branch = secrets.token_hex(8)
            self._set_note(self._note.branch_off(self._branch, self._rows, branch))
            self._lock, self._branch = held, branch
        elif self._note.branches[-1][0] != self._branch:
            raise RuntimeError(f"another memory went on in {self.path} from a state of this one; use that one")

    def _check(self) -> None:
        """Raise an error if another memory has overwritten rows of this one."""
        if self._note is None or self._noted == self._stat_note():
            return
        note = read_note(self.path)
        if note is None:
            raise FileNotFoundError(f"the files of the memory in {self.path} are gone; put them back, or begin anew")
        if not note.holds(self._branch, self._rows):
            raise RuntimeError(f"another memory went on in {self.path} from a state before this one's; load a state")
        self._note, self._noted = note, self._stat_note()

    def _set_note(self, note: MemoryNote) -> None:
        write_note(self.path, note)
        self._note, self._noted = note, self._stat_note()

    def _stat_note(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path / NOTE)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns


def _check_length(column: Column, rows: int) -> None:
    if not column.holds(rows):
        raise ValueError(f"{column.path} is cut short: the memory's state knows {rows} rows of it")
