"""Every note to the reader: said once, of all that it is about, to terminal, page and paper alike."""

from __future__ import annotations

import math
from dataclasses import replace

from tests.analysis.made import result
from tmln.analysis.notes import (
    CUT,
    REFERENCE,
    Note,
    difference_notes,
    folder_notes,
    front_notes,
    page_notes,
    row_notes,
    seeds_text,
    table_notes,
    version_notes,
)
from tmln.analysis.read import Problem
from tmln.analysis.rows import group_rows
from tmln.analysis.significance import assess_significance


def test_a_note_as_a_line_and_on_the_page() -> None:
    note = Note("seeds are missing", ("er: seed 2", "si: seeds 0, 1"), "split-digits")
    assert str(note) == "seeds are missing: er: seed 2; si: seeds 0, 1"
    assert note.plain() == {
        "benchmark": "split-digits",
        "text": "Seeds are missing",
        "about": ["er: seed 2", "si: seeds 0, 1"],
    }
    assert str(Note("INT is not there")) == "INT is not there"
    assert (seeds_text([3]), seeds_text([0, 1])) == ("seed 3", "seeds 0, 1")


def test_what_is_wrong_with_rows() -> None:
    runs = [
        *(result("er", s, 0.5 + 0.1 * s, effective_rate=0.01, metrics={"int": 0.1}, oracle="prefix") for s in range(3)),
        result("tmln", 0, 0.9, effective_rate=0.1, metrics={"int": 0.1}, oracle="final"),
        result("tmln", 1, math.nan, diverged="the loss is nan"),
    ]
    assert [str(note) for note in row_notes(group_rows(runs))] == [
        "rows start at different rates (with momentum), and may differ for that alone: 0.01: er; 0.1: tmln",
        "runs that diverged are left out of means: tmln: seed 1",
        "seeds that others have are missing: tmln: seed 2",
        "one seed only: no spread, no interval, no test: tmln",
        f"INT is against {REFERENCE['prefix']}: er",
        f"INT is against {REFERENCE['final']}: tmln",
    ]


def test_what_holds_for_every_row_names_none() -> None:
    two = group_rows([result("er", 0, 0.5), result("tmln", 0, 0.6)])
    single, reference = row_notes(two)
    assert single.about == ("every row",)
    assert (reference.text[:16], reference.about) == ("INT is not there", ())
    (alone, _) = row_notes(two[:1])
    assert alone.about == ("tmln",)
    same = [result(m, s, len(m) / 9, metrics={"int": 0.1}, oracle="prefix") for m in ("er", "ewc") for s in (0, 1)]
    (note,) = row_notes(group_rows(same))
    assert (note.text, note.about) == (f"INT is against {REFERENCE['prefix']}", ())


def test_a_table_begins_with_what_its_columns_are() -> None:
    rows = group_rows([result("er", s, a) for s, a in enumerate((0.05, 0.95))])
    usual, _, cut, *_ = table_notes(rows)
    assert usual.startswith("n seeds: mean ± sample standard deviation")
    assert cut == CUT
    two = group_rows([result(m, s, 0.5 + 0.1 * s) for m in ("er", "si") for s in range(3)])
    assert difference_notes(assess_significance(two))[0].endswith(
        "p: paired t-test, corrected by Holm for 1 comparison"
    )
    assert "ACC against si" in difference_notes(assess_significance(two, reference=two[1]))[0]


def test_a_page_says_it_table_by_table_and_leaves_out_what_is_usual() -> None:
    def mine(benchmark: str, version: str) -> list[Note]:
        runs = [result("er", s, 0.5, benchmark=benchmark, metrics={"int": 0.1}, oracle="prefix") for s in (0, 1)]
        made = [replace(run, versions={"torch": f"{version}{run.seed}"}) for run in runs]
        problems = [Problem("a", "corrupt", "torn"), Problem("b", "unfinished", "")]
        return list(page_notes(group_rows(made), problems))

    corrupt, unfinished, versions = mine("b", "2.")
    assert (corrupt.text, corrupt.about, corrupt.table) == ("runs that cannot be read are left out", ("a: torn",), "")
    assert unfinished.about == ("b",)
    assert (versions.table, versions.about) == ("b", ("2.0 (1 run)", "2.1 (1 run)"))


def test_versions_are_counted_where_they_are_known_and_differ() -> None:
    known = [replace(result("er", s, 0.5), versions={"tmln": v, "torch": "2"}) for s, v in enumerate(("2", "1", "2"))]
    (note,) = version_notes([*known, result("er", 9, 0.5)])
    assert str(note) == "runs were made with several versions of tmln: 1 (1 run); 2 (2 runs)"
    assert list(version_notes(known[:1])) == []
    lacking = replace(known[0], versions={"tmln": "2"})
    assert [note.about for note in version_notes([known[0], lacking])] == [("2 (1 run)", "unknown (1 run)")]


def test_a_folder_counts_what_it_cannot_show_and_names_the_first_ten() -> None:
    ten = [Problem(f"run{number}", "corrupt", "torn") for number in range(10)]
    (said,) = folder_notes([], ten)
    assert said.endswith("run9: torn")
    (said,) = folder_notes([], [*ten, Problem("x\n", "corrupt", "torn")])
    assert said.endswith("run9: torn; and 1 more")
    old = replace(result("er", 0, 0.5), checksum=False)
    assert list(folder_notes([old, result("er", 1, 0.5)], [])) == [
        "1 of 2 results have no checksum: an earlier version of tmln wrote them"
    ]


def test_what_is_on_no_front_and_why() -> None:
    rows = group_rows([result(m, s, 0.5) for m in ("er", "joint") for s in (0, 1)])
    assert front_notes(rows, {"er": ["int"], "si": []}, ("int", "fm"))[1:] == [
        "joint sees all data at once: it is the reference, and on no front",
        "er: no INT, so on no front",
    ]
    alike = front_notes(rows, {"er": ["int", "fm"], "si": ["int", "fm"]}, ("acc", "fm"))
    assert alike[1:] == ["every configuration: no INT and no FM, so on no front"]
    assert not any("INT is" in note for note in alike)
