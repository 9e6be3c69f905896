"""Features of a frozen network, computed once: in memory, and on disk where a folder is named.

Keys are digests of the weights and of every input as the model takes it, so that another transform,
another size or another backbone has keys of its own.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

FOLDER = "TMLN_FEATURES"  # names the folder of the cache on disk
LIMIT = 64 * 2**20  # bytes of features in memory; beyond them nothing more is kept


def digest_weights(model: nn.Module, head: nn.Module) -> bytes:
    """Return a digest of all weights and buffers but those of ``head``."""
    own = {id(value) for value in head.state_dict(keep_vars=True).values()}
    digest = hashlib.blake2b(digest_size=16)
    for name, value in model.state_dict(keep_vars=True).items():
        if id(value) not in own:
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
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

    Args:
        limit: bytes that are kept in memory.
        folder: where a database keeps all of them; ``TMLN_FEATURES`` of the environment
            unless given.
    """

    def __init__(self, limit: int = LIMIT, folder: str | Path | None = None) -> None:
        self.limit, self.size = limit, 0
        self.memory: dict[bytes, Tensor] = {}
        place = folder or os.environ.get(FOLDER)
        self.path = Path(place).expanduser() / "features.sqlite" if place else None

    def get(self, model: nn.Module, head: nn.Module, x: Tensor, compute: Callable[[], Tensor], keep: bool) -> Tensor:
        """Return the features of a batch: those known, or, where one is not, all computed anew.

        Args:
            model: the network; its weights are part of the key.
            head: the layer behind the features, whose weights are not.
            x: inputs of the model.
            compute: computes the features of all of ``x``, [n, d].
            keep: keep them in memory; a database keeps them anyway.
        """
        keys = digest_rows(digest_weights(model, head), x)
        known = self._known(keys)
        if known is not None:
            return known.to(x.device)
        features = compute()
        rows = features.detach().cpu()
        if keep and self.size + rows.nbytes <= self.limit:
            self.memory.update(zip(keys, rows.clone(), strict=True))
            self.size += rows.nbytes
        if self.path is not None:
            self._write(keys, rows)
        return features

    def _known(self, keys: list[bytes]) -> Tensor | None:
        if keys and all(key in self.memory for key in keys):
            return torch.stack([self.memory[key] for key in keys])
        if self.path is None or not keys or not self.path.exists():
            return None
        with sqlite3.connect(self.path, timeout=60) as base:
            found = [base.execute("SELECT value FROM features WHERE key = ?", (key,)).fetchone() for key in keys]
        base.close()
        if any(row is None for row in found):
            return None
        return torch.stack([torch.frombuffer(bytearray(row[0]), dtype=torch.float32) for row in found])

    def _write(self, keys: list[bytes], rows: Tensor) -> None:
        assert self.path is not None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        values = [row.numpy().tobytes() for row in rows.float()]
        with sqlite3.connect(self.path, timeout=60) as base:
            base.execute("CREATE TABLE IF NOT EXISTS features (key BLOB PRIMARY KEY, value BLOB)")
            base.executemany("INSERT OR IGNORE INTO features VALUES (?, ?)", zip(keys, values, strict=True))
        base.close()
