"""The lines of a way: from where each task began."""

from __future__ import annotations

import pytest

from tmln.plots.landscape import _trajectories, format_residual

POINTS = [{"task": task, "x": x} for task, x in ((1, 0.0), (1, 1.0), (2, 2.0), (2, 3.0))]


@pytest.mark.parametrize(
    ("method", "begun"), [("er", 1.0), ("joint", 0.0), ("independent", 0.0), ("package.module:Own", 1.0)]
)
def test_a_task_begins_where_its_method_does(method: str, begun: float) -> None:
    ways = _trajectories({"method": method, "points": POINTS})
    assert [[point["x"] for point in way] for way in ways] == [[0.0, 1.0], [begun, 2.0, 3.0]]


def test_where_there_is_nothing_between_tasks_there_is_a_dash() -> None:
    """One step a task leaves no checkpoint between; in a file it is null."""
    assert [format_residual(value) for value in (0.0, 0.126, float("nan"), None)] == ["0%", "13%", "-", "-"]
