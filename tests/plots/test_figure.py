"""Every recipe looks different from every other, and the same everywhere."""

from __future__ import annotations

import pytest

from tmln.methods.recipes import RECIPES
from tmln.plots.figure import COLOURS, ORDER, get_look


def test_no_two_recipes_look_alike() -> None:
    looks = {name: get_look(name) for name in RECIPES}
    assert len({(look.colour, look.symbol) for look in looks.values()}) == len(RECIPES)
    assert len({(look.colour, look.marker) for look in looks.values()}) == len(RECIPES)
    assert len({looks[name].colour for name in ORDER}) == len(ORDER) == len(COLOURS)


def test_shapes_alone_tell_the_papers_methods_apart() -> None:
    assert len({get_look(name).symbol for name in ORDER}) == len(ORDER)


def test_a_method_of_ones_own_always_looks_the_same() -> None:
    assert get_look("my method") == get_look("my method")


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", COLOURS)
def test_colours_are_seen_on_white_and_on_black(colour: str) -> None:
    light = 1.05 / (_luminance(colour) + 0.05)
    dark = (_luminance(colour) + 0.05) / 0.05
    assert min(light, dark) >= 2.2
