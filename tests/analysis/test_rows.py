"""Runs become a table: grouping, labels, what is best, what is missing, and every format."""

from __future__ import annotations

import csv
import json
import math

import pytest

from tests.analysis.made import result
from tmln.analysis.labels import label_methods
from tmln.analysis.notes import CUT, table_notes
from tmln.analysis.rows import best_rows, columns_of, group_rows
from tmln.analysis.significance import assess_significance
from tmln.analysis.tables import difference_lines, find_row_by_label, row_lines, row_records, row_tree
from tmln.analysis.text_table import Strong, grid_latex, grid_markdown, grid_rich, records_csv
from tmln.experiments.files import to_json
from tmln.experiments.result import Result

RUNS = [
    *(result("tmln", s, a, metrics={"int": 0.05}, oracle="prefix") for s, a in enumerate((0.90, 0.92, 0.94))),
    *(result("er", s, a, fm=0.1) for s, a in enumerate((0.80, 0.86))),
    result("er", 2, math.nan, diverged="the loss is nan"),
    *(result("joint", s, 0.99, fm=0.0) for s in range(2)),
]


def test_mean_spread_interval_and_what_is_missing() -> None:
    rows = {row.label: row for row in group_rows(RUNS)}
    assert [row.label for row in group_rows(RUNS)] == ["joint", "tmln", "er"]
    acc = rows["tmln"].summary("acc")
    assert acc.n == 3
    assert [acc.mean, acc.std] == pytest.approx([0.92, 0.02])
    assert acc.high - acc.mean == pytest.approx(4.302653 * 0.02 / math.sqrt(3), rel=1e-5)
    assert rows["er"].summary("acc").n == 2  # the run that diverged does not count
    assert (rows["er"].diverged, rows["er"].missing) == ((2,), ())
    assert rows["joint"].missing == (2,)
    said = table_notes(list(rows.values()))
    assert "runs that diverged are left out of means: er: seed 2" in said
    assert "seeds that others have are missing: joint: seed 2" in said


def test_the_oracle_does_not_compete() -> None:
    rows = group_rows(RUNS)
    assert best_rows(rows, "acc") == {"tmln"}
    assert best_rows(rows, "fm") == {"er"}
    assert best_rows([], "acc") == set()
    assert best_rows(group_rows([*RUNS, result("independent", 0, 0.999)]), "acc") == {"tmln"}


def test_rows_of_one_method_are_told_apart_by_what_differs() -> None:
    runs = [result("tmln", s, 0.9, settings={"step.damping": d, "step.eps": 1}) for s in range(2) for d in (0.1, 0.2)]
    assert label_methods([run.config for run in runs]) == ["tmln step.damping=0.1", "tmln step.damping=0.2"] * 2
    assert [row.summary("acc").n for row in group_rows(runs)] == [2, 2]


def test_paired_p_values_use_the_seeds_that_both_have() -> None:
    rows = {row.label: row for row in group_rows(RUNS)}
    compared = rows["er"].compare_with(rows["tmln"], "acc")
    assert compared.n == 2
    assert compared.mean_difference == pytest.approx(-0.08)
    assert assess_significance(list(rows.values())).reference is rows["tmln"]
    assert find_row_by_label(list(rows.values()), "er") is rows["er"]
    assert find_row_by_label(list(rows.values()), None) is None
    with pytest.raises(ValueError, match="no row is called 'ewc'"):
        find_row_by_label(list(rows.values()), "ewc")


def test_every_format_says_the_same() -> None:
    rows = group_rows([*RUNS, *(result("naive", s, a, metrics={"int": 0.05}) for s, a in enumerate((0.1, 0.12, 0.15)))])
    markdown = grid_markdown(row_lines(rows))
    assert "| tmln | 3 | **92.0 ± 2.0** |" in markdown
    latex = grid_latex(row_lines(rows))
    assert r"tmln & 3 & \textbf{92.0 $\pm$ 2.0}" in latex
    assert latex.splitlines()[1] == r"\toprule"
    table = list(csv.DictReader(records_csv(row_records(rows)).splitlines()))
    assert float(table[1]["acc_mean"]) == pytest.approx(0.92)
    assert table[2]["int_mean"] == ""
    plain = json.loads(to_json(row_tree(rows)))
    assert plain[1]["metrics"]["int"]["mean"] == pytest.approx(0.05)
    assert plain[2]["metrics"]["int"]["mean"] is None
    assert grid_rich(row_lines(rows)).row_count == 4
    assert grid_rich(difference_lines(rows, assess_significance(rows))).row_count == 4


def test_intervals_stay_within_what_a_metric_can_be() -> None:
    runs = [result("er", s, a, fm=a, seconds=1 + 30.0 * s) for s, a in enumerate((0.05, 0.25))]
    (row,) = group_rows(runs)
    assert [(row.summary(m).low, row.summary(m).high) for m in ("acc", "fm")] == [(0.0, 1.0), (-1.0, 1.0)]
    assert row.summary("seconds").low == 0.0
    assert "[0.0, 100.0]" in grid_markdown(row_lines([row]))
    assert CUT in table_notes([row])
    assert row.compare_with(group_rows([result("tmln", s, 0.3 * s) for s in range(2)])[0], "acc").low >= -1.0
    assert not any("ends there" in note for note in table_notes(group_rows(RUNS[:3])))


def rated(method: str, rate: float | None, lr: float = 0.01) -> Result:
    return result(method, 0, 0.5, lr=lr, effective_rate=math.nan if rate is None else rate)


def test_rates_are_a_column_where_they_differ() -> None:
    """0.01 / 0.1 in floating point is not 0.1."""
    rows = group_rows([rated("tmln", 0.01 / 0.1), rated("naive", 0.01), rated("er", None), rated("joint", 0.5)])
    assert columns_of(rows) == ("acc", "fm", "peak", "int", "rate", "seconds")
    lines = {line[0]: line for line in row_lines(rows)}
    assert [lines[name][6] for name in ("tmln", "naive", "er")] == ["0.1", "0.01", "-"]
    assert not isinstance(lines["naive"][6], Strong)  # a rate is no merit
    (said,) = [note for note in table_notes(rows) if "rate" in note]
    assert said.endswith("(with momentum), and may differ for that alone: 0.01: naive; 0.1: tmln")


def test_rates_are_a_column_where_they_are_not_lr_and_else_on_request() -> None:
    alone = group_rows([rated("tmln", 0.1)])
    assert "rate" in columns_of(alone)
    assert not any("rate" in note for note in table_notes(alone))  # nothing beside it
    equal = group_rows([rated("naive", 0.1, lr=0.1), rated("er", 0.1, lr=0.1)])
    assert "rate" not in columns_of(equal)
    assert row_lines(equal, ["rate"])[1][2] == "0.1"


def test_training_accuracy_is_shown_where_it_was_asked_for() -> None:
    rows = group_rows([result("er", 0, 0.5, metrics={"acc_train": 0.75})])
    assert columns_of(rows) == ("acc", "fm", "peak", "int", "acc_train", "seconds")
    assert row_lines(rows)[0][6] == "train ACC % ↑"


def test_the_reference_of_intransigence_is_said() -> None:
    def against(method: str, oracle: str) -> Result:
        return result(method, 0, 0.5, metrics={"int": 0.1}, oracle=oracle)

    said = table_notes(group_rows([against("er", "prefix"), against("tmln", "prefix")]))
    assert "INT is against joint training on tasks 1..k under the same seed at the benchmark's own lr" in said
    said = table_notes(group_rows([against("er", "prefix"), against("tmln", "independent"), against("si", "final")]))
    assert [note.rpartition(": ")[2] for note in said if note.startswith("INT is against")] == ["er", "si", "tmln"]


def test_what_a_run_said_before_it_diverged_does_not_count() -> None:
    (row,) = group_rows([result("er", 0, 0.8), result("er", 1, 0.1, diverged="the loss is nan")])
    assert row.values["acc"] == {0: 0.8}
    assert row.diverged == (1,)


def test_rows_are_by_benchmark_then_accuracy_and_what_has_none_comes_last() -> None:
    runs = [
        result("er", 0, 0.9, benchmark="b"),
        result("er", 0, math.nan, benchmark="a"),
        result("tmln", 0, 0.2, benchmark="a"),
        result("naive", 0, 0.5, benchmark="a"),
    ]
    for given in (runs, runs[::-1]):
        assert [(row.benchmark, row.label) for row in group_rows(given)] == [
            ("a", "naive"),
            ("a", "tmln"),
            ("a", "er"),
            ("b", "er"),
        ]


def test_names_cannot_break_a_table() -> None:
    rows = group_rows([result("a|b[bold]_%", s, 0.5) for s in range(2)])
    assert r"a\|b[bold]_%" in grid_markdown(row_lines(rows))
    assert r"a|b[bold]\_\%" in grid_latex(row_lines(rows))
    assert grid_rich(row_lines(rows)).row_count == 1


def test_one_seed_and_no_reference_are_said() -> None:
    said = table_notes(group_rows([result("er", 0, 0.5)]))
    assert any("one seed only" in note for note in said)
    assert any("no joint reference" in note for note in said)


def test_extra_test_sets_are_shown_and_any_metric_can_be_asked_for() -> None:
    extra = {"acc_official": 0.7, "acc_task_masked": 0.95, "bwt": -0.1}
    rows = group_rows([result("er", s, 0.5, metrics=extra) for s in range(2)])
    assert columns_of(rows) == ("acc", "fm", "peak", "int", "acc_official", "seconds")
    assert "ACC official % ↑" in grid_markdown(row_lines(rows))
    wanted = ["bwt", "acc_task_masked"]
    assert grid_markdown(row_lines(rows, wanted)).splitlines()[0] == (
        "| method | n | BWT % ↑ | masked ACC % ↑ | ACC 95% |"
    )
    assert list(json.loads(to_json(row_tree(rows, wanted)))[0]["metrics"]) == wanted
    with pytest.raises(ValueError, match="unknown metric 'bvt'; did you mean 'bwt'"):
        columns_of(rows, ["bvt"])


def test_a_field_that_only_some_runs_have_tells_them_apart() -> None:
    runs = [result("er", 0, 0.5), result("er", 0, 0.6, settings={"replay.batch": 8})]
    assert label_methods([run.config for run in runs]) == ["er settings={}", "er replay.batch=8"]
