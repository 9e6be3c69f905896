"""Labels of rows: whatever differs from the method, and what a user called it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analysis.made import result
from tmln.analysis.labels import find_changed_components, label_methods
from tmln.analysis.notes import table_notes
from tmln.analysis.rows import Row, group_rows
from tmln.analysis.selection import select_configurations
from tmln.analysis.summary_text import write_summary
from tmln.experiments.command import changed_of
from tmln.experiments.config import RunConfig
from tmln.experiments.result import Result


def run(acc: float, seed: int = 0, searched: tuple[str, ...] = (), **changes: Any) -> Result:
    """Return the result of a configuration as a run would write it."""
    config = RunConfig.of({"benchmark": "split-digits", "seed": seed, **changes})
    full = config.resolved()
    said = {"acc": acc, "fm": 0.1}
    return Result(
        "split-digits",
        config.method,
        seed,
        full,
        said=said,
        seconds=1.0,
        changed=changed_of(config),
        searched=searched,
        name=f"{config.method} {seed}",
    )


def rows_of(*runs: Result) -> dict[str, Row]:
    return {row.label: row for row in group_rows(runs)}


def test_a_component_that_differs_from_the_method_is_in_the_label() -> None:
    found = rows_of(run(0.2, method="der++", replay="none"), run(0.3, method="der++"))
    assert list(found) == ["der++", "der++ replay=none"]
    assert [row.contender for row in found.values()] == ["der++", "der++ replay=none"]


def test_a_component_is_also_named_where_results_do_not_say_what_changed() -> None:
    full = RunConfig.of({"benchmark": "split-digits", "method": "er", "replay": "none"}).resolved()
    assert find_changed_components(full) == {"replay": "none"}
    assert label_methods([full]) == ["er replay=none"]
    average = RunConfig.of({"benchmark": "split-digits", "method": "tmln+", "weights": "last"}).resolved()
    assert "weights" in average or find_changed_components(average) == {"weights": "last"}
    assert find_changed_components({"method": "gone", "replay": "er", "step": "sgd"}) == {}


def test_every_recipe_differs_from_itself_in_nothing() -> None:
    from tmln.methods.recipes import RECIPES

    for method in RECIPES:
        full = RunConfig(benchmark="split-digits", method=method).resolved()
        assert find_changed_components(full) == {}, method


def test_own_components_on_one_method_compete_as_rows_of_their_own() -> None:
    def own(kind: str, base: float) -> list[Result]:
        runs = [result("er", s, base + 0.01 * s * (1 + base)) for s in range(3)]
        return [Result(**{**vars(r), "config": {**r.config, "replay": kind, "step": "sgd"}}) for r in runs]

    rows = group_rows([*own("a.b:Mine", 0.5), *own("a.b:Yours", 0.8), *own("er", 0.6)])
    assert [row.label for row in rows] == ["er replay=Yours", "er", "er replay=Mine"]
    chosen = select_configurations(rows)
    assert [(one.among, one.fair) for one in chosen] == [(1, True)] * 3
    assert write_summary(rows).startswith("er replay=Yours leads")
    both = group_rows([*own("a.b:Mine", 0.5), *own("c.d:Mine", 0.8)])
    assert [row.label for row in both] == ["er replay=c.d:Mine", "er replay=a.b:Mine"]


def test_settings_that_differ_from_the_methods_are_in_the_label() -> None:
    (label,) = rows_of(run(0.5, method="tmln", settings={"step.damping": 0.2, "step.eps": 1e-8}))
    assert label == "tmln step.damping=0.2"
    found = rows_of(*(run(0.5, method="tmln", settings={"step.damping": d}) for d in (0.1, 0.2)))
    assert set(found) == {"tmln step.damping=0.1", "tmln step.damping=0.2"}
    assert {row.contender for row in found.values()} == {"tmln"}


def test_what_all_rows_share_is_said_once() -> None:
    capacity = {"replay.capacity": 50}
    found = rows_of(run(0.5, method="er", settings=capacity), run(0.6, method="tmln", settings=capacity), run(0.1))
    assert set(found) == {"er replay.capacity=50", "tmln replay.capacity=50", "tmln replay.capacity=500"}
    rows = rows_of(
        run(0.5, method="er", settings=capacity),
        run(0.6, method="tmln", settings={**capacity, "step.damping": 0.2}),
        run(0.1, method="naive"),
    )
    assert set(rows) == {"er", "tmln step.damping=0.2", "naive"}
    assert "set alike in every row that has them: replay.capacity=50" in table_notes(list(rows.values()))


def test_training_that_differs_between_methods_is_in_the_label() -> None:
    assert set(rows_of(run(0.5, method="er", epochs=3), run(0.6, method="naive"))) == {"er epochs=3", "naive"}
    assert set(rows_of(run(0.5, method="er", epochs=3), run(0.6, method="naive", epochs=3))) == {"er", "naive"}
    assert set(rows_of(run(0.5, method="er", lr=0.3), run(0.6, method="naive"))) == {"er", "naive"}  # a column has it


def test_what_a_search_chose_is_a_note_and_no_label() -> None:
    settings = {"step.damping": 0.2, "replay.capacity": 50}
    found = rows_of(run(0.5, method="tmln", settings=settings, searched=("step.damping", "lr")))
    assert list(found) == ["tmln replay.capacity=50"]
    said = table_notes(list(found.values()))
    assert "settings that a search chose: tmln replay.capacity=50: step.damping=0.2" in said


def test_a_row_may_have_a_name() -> None:
    found = rows_of(run(0.5, method="er", name="mine"), run(0.6, method="er"), run(0.7, method="er", name="mine 2"))
    assert list(found) == ["mine 2", "er", "mine"]
    assert [one.row.label for one in select_configurations(list(found.values()))] == ["mine 2", "er", "mine"]
    swept = rows_of(*(run(0.5, method="er", name="my er", settings={"replay.batch": b}) for b in (8, 16)))
    assert set(swept) == {"my er replay.batch=16", "my er replay.batch=8"}
    assert {row.contender for row in swept.values()} == {"my er"}
    both = rows_of(run(0.5, method="er", name="mine"), run(0.6, method="naive", name="mine"))
    assert any("method=naive" in label for label in both)


@pytest.mark.parametrize("name", ["", " ", "a,b", "a\nb", "x" * 61, "tmln"])
def test_names_that_would_mislead_or_break_a_table_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        RunConfig.of({"benchmark": "split-digits", "name": name})
