"""One seed gives many generators: each purpose has its own, by name, independent of the others and of other seeds'."""

from __future__ import annotations

import hashlib


def seed_of(seed: int, purpose: str) -> int:
    """A seed for this purpose alone.

    >>> seed_of(0, "order") != seed_of(0, "noise") != seed_of(1, "order")
    True
    """
    digest = hashlib.sha256(f"{seed} {purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1  # 63 bits: what every generator takes
