"""Which run is which: the hash of a configuration, and the name of the folder that carries it. Needs no torch."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any


def canonical(value: Any) -> str:
    """JSON in which equal values are equal texts: sorted keys, no spaces, whole numbers without a point."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return int(value) if value.is_integer() else value
        if isinstance(value, Mapping):
            return {str(key): plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value

    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"))


def run_name(resolved: Mapping[str, Any]) -> str:
    """``split-digits-tmln-s0-`` and 16 hexadecimal digits of the hash of a resolved configuration."""
    digest = hashlib.sha256(canonical(resolved).encode()).hexdigest()[:16]
    readable = "{benchmark}-{method}-s{seed}".format_map({key: resolved.get(key) for key in HEAD})
    return f"{re.sub(r'[^a-z0-9+.-]+', '-', readable.lower())}-{digest}"


HEAD = ("benchmark", "method", "seed")


def spell_numbers(value: Any) -> Any:
    """The values with numbers that JSON lacks as words, which a RunConfig reads as numbers again."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): spell_numbers(item) for key, item in value.items()}
    return [spell_numbers(item) for item in value] if isinstance(value, (list, tuple)) else value


def is_named(stored: Mapping[str, Any], name: str) -> bool:
    """Whether a configuration, as it was stored and by whatever version, is that of the folder of this name."""
    return name == run_name(stored) or name == run_name(_numbers(stored))


def _numbers(value: Any) -> Any:
    """What :func:`spell_numbers` spelled."""
    if value in ("inf", "-inf", "nan"):
        return float(value)
    if isinstance(value, Mapping):
        return {key: _numbers(item) for key, item in value.items()}
    return [_numbers(item) for item in value] if isinstance(value, list) else value
