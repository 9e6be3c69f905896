"""Features of a frozen network, computed once: in memory, and on disk where a folder is named.

Keys are digests of the weights and of every input as the model takes it, so that another transform,
another size or another backbone has keys of its own.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import warnings
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

FOLDER = "TMLN_FEATURES"  # names the folder of the cache on disk
LIMIT = 64 * 2**20  # bytes of features in memory; beyond them nothing more is kept
GIGABYTES = "TMLN_FEATURES_GB"  # limits the cache on disk
TABLE = "rows (key BLOB PRIMARY KEY, bits INTEGER, crc INTEGER, value BLOB)"
DTYPES = {32: torch.float32, 64: torch.float64}

T = TypeVar("T")


def read_disk_limit() -> int:
    """Return the bytes that the cache on disk may take: 10 GB unless ``TMLN_FEATURES_GB`` says."""
    text = os.environ.get(GIGABYTES, "10")
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise ValueError(f"{GIGABYTES} is a number of gigabytes above 0, not {text!r}")
    return int(found * 1e9)


def list_weights(model: nn.Module, head: nn.Module) -> list[tuple[str, bytes]]:
    """Return names and bytes of all weights and buffers but those of ``head``."""
    own = {id(value) for value in head.state_dict(keep_vars=True).values()}
    return [
        (name, value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        for name, value in model.state_dict(keep_vars=True).items()
        if id(value) not in own
    ]


def digest_weights(weights: Iterable[tuple[str, bytes]]) -> bytes:
    """Return a digest of weights, the same in every process."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in weights:
        digest.update(name.encode())
        digest.update(value)
    return digest.digest()


def digest_rows(prefix: bytes, x: Tensor) -> list[bytes]:
    """Return a key for each row of a batch: of ``prefix``, type, shape and values."""
    start = hashlib.blake2b(prefix + f"{x.dtype} {tuple(x.shape[1:])}".encode(), digest_size=16)
    rows = x.detach().cpu().contiguous().flatten(1).view(torch.uint8).numpy()
    keys = []
    for row in rows:
        digest = start.copy()
        digest.update(row.data)
        keys.append(digest.digest())
    return keys


class FeatureCache:
    """Features by the digest of what they were computed from.

    Several processes may use one folder. A database that is damaged, or cannot be read or written,
    is reported once, and features are computed.

    Args:
        limit: bytes that are kept in memory.
        folder: where a database keeps features; ``TMLN_FEATURES`` of the environment unless given.
        disk_limit: bytes of the database, beyond which the oldest features are dropped;
            ``TMLN_FEATURES_GB`` (10) unless given.
    """

    def __init__(self, limit: int = LIMIT, folder: str | Path | None = None, disk_limit: int | None = None) -> None:
        self.limit, self.size = limit, 0
        self.memory: dict[bytes, Tensor] = {}
        place = folder or os.environ.get(FOLDER)
        self.path = Path(place).expanduser() / "features.sqlite" if place else None
        self.disk_limit = read_disk_limit() if disk_limit is None else disk_limit
        self.last: tuple[int, bytes] | None = None  # hash and digest of the weights in the last call

    def get(self, model: nn.Module, head: nn.Module, x: Tensor, compute: Callable[[], Tensor], keep: bool) -> Tensor:
        """Return the features of a batch: those known, or, where one is not, all computed anew.

        Args:
            model: the network; its weights are part of the key.
            head: the layer behind the features, whose weights are not.
            x: inputs of the model.
            compute: computes the features of all of ``x``, [n, d].
            keep: keep them in memory; a database keeps them anyway.
        """
        keys = digest_rows(self._digest(model, head), x)
        if keys and all(key in self.memory for key in keys):
            return torch.stack([self.memory[key] for key in keys]).to(x.device)
        known = self._read_all(keys)
        features = compute() if known is None else known
        rows = features.detach().cpu()
        new = {key: row for key, row in zip(keys, rows, strict=True) if keep and key not in self.memory}
        if self.size + (size := sum(row.nbytes for row in new.values())) <= self.limit:
            self.memory.update({key: row.clone() for key, row in new.items()})
            self.size += size
        if known is None:
            self._use(lambda base: self._write(base, keys, rows))
        return features.to(x.device)

    def _digest(self, model: nn.Module, head: nn.Module) -> bytes:
        """Return the digest of the weights, taken again only if they changed."""
        weights = list_weights(model, head)
        now = hash(tuple(weights))  # of all bytes, by Python's hash of this process
        if self.last is None or self.last[0] != now:
            self.last = now, digest_weights(weights)
        return self.last[1]

    def _read_all(self, keys: list[bytes]) -> Tensor | None:
        """Return the features of all keys from the database; None if it lacks one."""
        if self.path is None or not keys or not self.path.exists():
            return None
        rows = self._use(lambda base: self._read(base, keys))
        return None if rows is None else torch.stack(rows)

    def _use(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return the result of ``work`` on the database; None if there is none that can be used."""
        if self.path is None:
            return None
        base: sqlite3.Connection | None = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            base = sqlite3.connect(self.path, timeout=60)
            with base:
                base.execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")
                return work(base)
        except (sqlite3.OperationalError, OSError) as error:
            path, self.path = self.path, None
            warnings.warn(f"{path} cannot be used ({error}): features are computed, and kept in memory", stacklevel=2)
        except sqlite3.DatabaseError as error:
            with suppress(OSError):
                self.path.unlink()
            warnings.warn(f"{self.path} is damaged ({error}) and begun anew: its features are computed", stacklevel=2)
        finally:
            if base is not None:
                base.close()
        return None

    def _read(self, base: sqlite3.Connection, keys: list[bytes]) -> list[Tensor] | None:
        """Return the features of all keys; None if one is missing or damaged, which is dropped."""
        rows = []
        for key in keys:
            found = base.execute("SELECT bits, crc, value FROM rows WHERE key = ?", (key,)).fetchone()
            if found is None:
                return None
            bits, checksum, value = found
            if zlib.crc32(value) != checksum or bits not in DTYPES:
                base.execute("DELETE FROM rows WHERE key = ?", (key,))
                warnings.warn(f"a row of {self.path} is damaged: its features are computed", stacklevel=2)
                return None
            rows.append(torch.frombuffer(bytearray(value), dtype=DTYPES[bits]))
        return rows

    def _write(self, base: sqlite3.Connection, keys: list[bytes], rows: Tensor) -> None:
        rows = rows if rows.dtype == torch.float64 else rows.float()
        values = [row.numpy().tobytes() for row in rows]
        bits = 8 * rows.element_size()
        if self._count_bytes(base) + sum(map(len, values)) > self.disk_limit:
            (count,) = base.execute("SELECT COUNT(*) FROM rows").fetchone()
            oldest = "SELECT rowid FROM rows ORDER BY rowid LIMIT ?"
            base.execute(f"DELETE FROM rows WHERE rowid IN ({oldest})", (max(count // 4, len(keys)),))
        found = [(key, bits, zlib.crc32(value), value) for key, value in zip(keys, values, strict=True)]
        base.executemany("INSERT OR IGNORE INTO rows VALUES (?, ?, ?, ?)", found)

    def _count_bytes(self, base: sqlite3.Connection) -> int:
        """Return the bytes of pages that are in use; deleted rows leave free ones."""
        size, pages, free = (
            int(base.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_size", "page_count", "freelist_count")
        )
        return size * (pages - free)
