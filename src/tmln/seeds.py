"""Named, independent random generators from one seed."""

from __future__ import annotations

import hashlib


def seed_of(seed: int, purpose: str) -> int:
    """Return a seed for one purpose, independent of other purposes and other seeds.

    >>> seed_of(0, "order") != seed_of(0, "noise") != seed_of(1, "order")
    True
    """
    digest = hashlib.sha256(f"{seed} {purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1  # 63 bits: what every generator takes
