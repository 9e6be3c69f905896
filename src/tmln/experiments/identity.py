"""The identity of a run: the hash of its configuration, and its folder's name. Needs no torch."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any


def canonical(value: Any) -> str:
    """Return JSON in which equal values are equal texts: sorted keys, no spaces, 1 for 1.0."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return int(value) if value.is_integer() else value
        if isinstance(value, Mapping):
            return {str(key): plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value

    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"))


def run_name(resolved: Mapping[str, Any]) -> str:
    """Return the name of a resolved configuration.

    ``split-digits-tmln-s0-`` and 16 digits of a hash.
    """
    digest = hashlib.sha256(canonical(resolved).encode()).hexdigest()[:16]
    readable = "{benchmark}-{method}-s{seed}".format_map({key: resolved.get(key) for key in HEAD})
    return f"{re.sub(r'[^a-z0-9+.-]+', '-', readable.lower())}-{digest}"


HEAD = ("benchmark", "method", "seed")


def spell_numbers(value: Any) -> Any:
    """Return the value with inf and nan, which JSON lacks, as words that a RunConfig reads."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): spell_numbers(item) for key, item in value.items()}
    return [spell_numbers(item) for item in value] if isinstance(value, (list, tuple)) else value


def is_named(stored: Mapping[str, Any], name: str) -> bool:
    """Return whether a stored configuration, of any version, is that of the folder of this name."""
    return name == run_name(stored) or name == run_name(_numbers(stored))


def _numbers(value: Any) -> Any:
    """Return the value with the words of :func:`spell_numbers` as numbers again."""
    if value in ("inf", "-inf", "nan"):
        return float(value)
    if isinstance(value, Mapping):
        return {key: _numbers(item) for key, item in value.items()}
    return [_numbers(item) for item in value] if isinstance(value, list) else value
