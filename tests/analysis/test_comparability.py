"""Which runs stand in one table: those of one benchmark, options, data and test sets, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.analysis.made import result
from tmln.analysis.comparability import has_own_order
from tmln.analysis.notes import table_notes
from tmln.analysis.rows import group_by_table, group_rows
from tmln.experiments.result import Result


def on(
    method: str, run: int, where: str = "split-digits", /, stream: dict[str, Any] | None = None, **options: Any
) -> Result:
    made = result(method, run, 0.5 + 0.01 * run + 0.001 * len(method), benchmark=where, stream=stream or {})
    return replace(made, config={**made.config, "benchmark_options": options})


def tables(*results: Result) -> dict[str, list[tuple[str, int]]]:
    found = group_by_table(group_rows(results))
    return {name: [(row.label, row.summary("acc").n) for row in rows] for name, rows in found.items()}


def test_one_benchmark_is_called_by_its_name() -> None:
    assert tables(on("er", 0, tasks=5), on("er", 1, tasks=5), on("si", 0, tasks=5)) == {
        "split-digits": [("er", 2), ("si", 1)]
    }


def test_options_that_differ_are_tables_of_their_own_and_their_titles_say_which() -> None:
    found = tables(
        on("er", 0, tasks=2, seed=0), on("er", 0, tasks=5, seed=0), on("si", 0, tasks=5, seed=0), on("er", 0, "core50")
    )
    assert found == {
        "core50": [("er", 1)],
        "split-digits, tasks=2": [("er", 1)],
        "split-digits, tasks=5": [("er", 1), ("si", 1)],
    }
    split = tables(on("er", 0, tasks=5), on("er", 1, tasks=5, validation=0.1))
    assert list(split) == ["split-digits, no validation", "split-digits, validation=0.1"]


def test_a_head_for_each_task_is_always_said() -> None:
    """The task is told in its tests: without a word, the accuracy would be taken for that of one head."""
    assert list(tables(on("er", 0, tasks=5, heads="per-task"))) == ["split-digits, heads=per-task"]
    assert list(tables(on("er", 0, tasks=5), on("er", 0, tasks=5, heads="per-task"))) == [
        "split-digits, heads=per-task",
        "split-digits, heads=single",
    ]


def test_an_option_that_is_left_out_has_its_default() -> None:
    found = tables(on("er", 0, "split-cifar10"), on("er", 0, "split-cifar10", augment="none"))
    assert list(found) == ["split-cifar10, augment=auto", "split-cifar10, augment=none"]
    assert len(tables(on("er", 0, "split-cifar10"), on("er", 0, "split-cifar10", normalise=False))) == 2
    assert "split-cifar10, normalise=true" in tables(
        on("er", 0, "split-cifar10"), on("er", 0, "split-cifar10", normalise=False)
    )


def test_folders_are_told_apart_by_as_little_of_their_paths_as_does_it() -> None:
    found = tables(*(on("er", 0, "folder", path=path) for path in ("/home/me/a/x", "/home/me/b/x", "/home/me/b/y")))
    assert list(found) == ["folder, path=a/x", "folder, path=b/x", "folder, path=b/y"]


def test_orders_and_subsets_are_other_benchmarks() -> None:
    found = tables(on("er", 0, class_order="ascending", per_class=9), on("er", 0, class_order=[1, 0], per_class=None))
    assert len(found) == 2


def test_test_sets_that_differ_under_equal_options_are_not_compared() -> None:
    """A folder to which images came between two runs; what an earlier version ran is with those that are all alike."""
    old, new = {"tests": "aaaaaaaaaa"}, {"tests": "bbbbbbbbbb"}
    assert list(tables(on("er", 0, stream=old), on("er", 1, stream=new))) == [
        "split-digits, test data aaaaaa",
        "split-digits, test data bbbbbb",
    ]
    assert tables(on("er", 0, stream=old), on("er", 1)) == {"split-digits": [("er", 2)]}
    assert len(tables(on("er", 0, stream=old), on("er", 1, stream=new), on("er", 2))) == 3
    two, three = (replace(on("er", k), accuracy=[[0.5] * k] * k) for k in (2, 3))
    assert list(tables(two, three)) == ["split-digits, 2 tasks", "split-digits, 3 tasks"]


def test_orders_drawn_from_the_runs_seed_are_replicates() -> None:
    kinds: list[list[dict[str, Any]]] = [
        [{"class_order": "run-seed", "seed": 0}] * 3,
        [{"class_order": "seeded", "seed": seed} for seed in range(3)],
        [{"class_order": f"seed:{seed}", "seed": 0} for seed in range(3)],
        [{"session_order": f"seed:{seed}", "seed": 0} for seed in range(3)],
    ]
    for options in kinds:
        runs = [on(method, seed, **mine) for method in ("er", "si") for seed, mine in enumerate(options)]
        assert tables(*runs) == {"split-digits": [("er", 3), ("si", 3)]}
        assert all(map(has_own_order, runs))
        assert any("intervals are over orders, too" in note for note in table_notes(group_rows(runs)))


def test_an_order_that_several_seeds_share_is_fixed() -> None:
    shared = [on("er", seed, class_order="seeded", seed=0) for seed in range(3)]
    assert tables(*shared) == {"split-digits": [("er", 3)]}
    other = [on("er", seed, class_order="seeded", seed=7) for seed in range(3)]
    assert list(tables(*shared, *other)) == ["split-digits, seed=0", "split-digits, seed=7"]
    assert not any("over orders" in note for note in table_notes(group_rows(shared)))
