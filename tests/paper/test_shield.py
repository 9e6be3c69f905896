"""What the shield changes, at one rate."""

from __future__ import annotations

import pytest

from tmln.paper import shield
from tmln.paper.scales import SCALES
from tmln.paper.study import Study


def test_all_rows_of_a_case_have_one_rate_and_one_memory() -> None:
    for case in shield.list_cases(SCALES["cpu"]):
        found = [config.resolved() for config in shield.list_configs(case)]
        rates = {full["lr"] / full["settings"].get("step.damping", 1.0) for full in found}
        assert max(rates) == pytest.approx(min(rates))
        assert {full["settings"].get("replay.capacity") for full in found} == {case.memory}
        assert {full["benchmark_options"]["tasks"] for full in found} == {
            case.tasks or case.setup.config("tmln").resolved()["benchmark_options"]["tasks"]
        }
        assert all(not full["settings"].get("step.momentum") for full in found)


def test_a_difference_is_shield_less_plain(study: Study) -> None:
    page = shield.render(study)
    case = shield.list_cases(study.scale)[0]
    named = {}
    for which in (None, shield.SHIELDS[0]):
        found = shield._find(study, case, which)
        named[which] = found.summary("acc").mean
    record = page.records[0]
    assert record["plain"] == pytest.approx(named[None])
    assert record["difference"] == pytest.approx(named[shield.SHIELDS[0]] - named[None])
    assert record["low"] <= record["difference"] <= record["high"]
    lines = page.sheets[0].lines
    assert len(lines) == 1 + len(shield.list_cases(study.scale))
    assert lines[1][3].startswith(f"{100 * record['difference']:+.1f} [")
