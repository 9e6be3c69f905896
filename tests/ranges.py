"""What a part's setting is unless given, and what it may be: tests of each family walk a table of these."""

from __future__ import annotations

from typing import Any

import pytest

from tmln.methods import Component, read_settings


def check_setting(kind: type[Component[Any]], name: str, default: object, allowed: str) -> None:
    """``allowed`` is an interval with whole ends, such as '[0, 1)' or '(0, inf)', or 'any'."""
    found = getattr(read_settings(kind, {}), name)
    assert (found, type(found)) == (default, type(default))
    if allowed == "any":
        return
    low, high = allowed[1:-1].split(", ")
    ends = [(low, allowed[0] == "[", -1)]
    ends += [(high, allowed[-1] == "]", 1)] if high != "inf" else []
    for end, inside, outward in ends:
        if inside:
            assert getattr(read_settings(kind, {name: int(end)}), name) == int(end)
        with pytest.raises(ValueError, match=name):
            read_settings(kind, {name: int(end) + (outward if inside else 0)})
    if not allowed.startswith("["):  # close to an end that is left out
        assert getattr(read_settings(kind, {name: int(low) + 1e-6}), name) == int(low) + 1e-6
