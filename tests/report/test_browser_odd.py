"""The page in a real browser, of folders that are odd: hostile names, damaged runs, too few, too many."""

from __future__ import annotations

import csv
import io
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import Reader, downloaded, everything_drawn, labels, look, press
from tests.report.conftest import keep, result, usual
from tmln.analysis.measurements import save_analysis
from tmln.metrics import METRICS, Metric
from tmln.report.page import write_report


@pytest.fixture(scope="module")
def one(browser: Any) -> Iterator[Reader]:
    one = Reader(browser)
    yield one
    one.close()


@pytest.fixture
def reader(one: Reader) -> Iterator[Reader]:
    one.asked, one.wrong = [], []
    yield one
    assert one.asked == []
    assert one.wrong == []


EVIL = (
    '<img src=x onerror="window.pwned=1">',
    "</script><script>window.pwned=1</script>",
    '"><svg onload=window.pwned=1>',
    "<a href='javascript:window.pwned=1'>x</a><b>bold</b>",
    "${window.pwned=1}%{x}{{1}}",
    "\u202egnirts \u2028\U0001f600\x00\ud800",
    "__proto__",
    "=cmd|'/c calc'!A1, \"x\"",
    "&lt;i&gt;",
)


def test_whatever_data_say_stays_text(reader: Reader, tmp_path: Path) -> None:
    runs = []
    for text in EVIL:
        one = result(text, 0, known="er", stream={"tasks": [text, text, text]}, versions={text: text})
        one["config"]["settings"][text] = text
        runs += [one, result(text, 1, known="er", diverged=text), result(text, 0, known="er", benchmark=f"b {text}")]
    folder = keep(tmp_path / "evil <b>", runs)
    (folder / "run-<img src=x onerror=window.pwned=1>").mkdir()
    save_analysis(folder, "landscape", EVIL[0], {"benchmark": "split-digits", "methods": EVIL[1], "x": EVIL[2]})
    hurt = {"method": EVIL[0], "label": EVIL[0], "seeds": [], "problems": [EVIL[1]], "summary": {}}
    save_analysis(
        folder, "barrier", EVIL[1], {"benchmark": f"b {EVIL[0]}", "methods": [hurt], "tasks": [], "shares": []}
    )
    page = reader.open(folder, "#b=split-digits&all=1")
    everything_drawn(page)
    for text in EVIL[:4]:
        assert text in page.inner_text("#sections")
    opened = "name => { location.hash = new URLSearchParams({ b: 'split-digits', open: name }) }"
    for label in labels(page):
        page.evaluate(opened, label)
        page.wait_for_selector("dialog[open]")
    assert page.evaluate("window.pwned") is None
    strange = ":is(img, iframe, object, embed, a[href^=javascript], i, b)"
    assert page.locator(f"main {strange}, dialog {strange}, main script, .plot a").count() == 0
    page.keyboard.press("Escape")
    page.select_option('select[data-focus="Benchmark"]', f"b {EVIL[0]}")
    everything_drawn(page)
    assert EVIL[1] in page.inner_text("#landscape")
    assert page.locator(f"main {strange}, main script, .plot a").count() == 0
    page.select_option('select[data-focus="Benchmark"]', "split-digits")
    found = {
        line["method"] for line in csv.DictReader(io.StringIO(downloaded(page, "#table", "CSV").decode(), newline=""))
    }
    assert any(name.startswith("'=cmd") for name in found)  # text to a spreadsheet, not a formula
    assert not any(name.startswith("=") for name in found)
    assert "This part cannot be shown" in page.inner_text("#landscape")
    assert all("content.methods" in text for text in reader.wrong)  # the landscape that is none is said there too
    reader.wrong.clear()


def test_what_is_injected_could_neither_run_nor_ask(browser: Any, runs: Path) -> None:
    reached: list[str] = []

    class Ear(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            reached.append(self.path)

        def log_message(self, *about: Any) -> None: ...

    reader = Reader(browser)  # the policy's refusals are errors in the console
    page = reader.open(runs)
    page.evaluate(
        "() => { const s = document.createElement('script'); s.text = 'window.pwned = 1'; document.body.append(s) }"
    )
    assert page.evaluate("window.pwned") is None
    with ThreadingHTTPServer(("127.0.0.1", 0), Ear) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}"
        assert page.evaluate(f"fetch('{place}/fetch').then(() => 'sent', () => 'refused')") == "refused"
        image = f"const one = new Image(); one.onload = one.onerror = () => done(); one.src = '{place}/image.png'"
        page.evaluate(f"() => new Promise(done => {{ {image} }})")
        server.shutdown()
    assert reached == []
    assert any("Content Security Policy" in text for text in reader.wrong)
    reader.close()


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no finished run in .*empty"):
        write_report(tmp_path / "empty", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_damaged_unfinished_and_newer_runs_are_named(reader: Reader, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    for name, text in (("torn", "{"), ("newer", '{"format": 99}'), ("list", "[]")):
        (bad / name).mkdir(parents=True)
        (bad / name / "result.json").write_text(text)
    (bad / "half").mkdir()
    (bad / "half" / "config.yaml").write_text("method: er\n")
    page = reader.open(bad)
    assert "No run has finished yet" in page.inner_text("#summary")
    said = page.inner_text("#warnings")
    for text in ("torn: result.json is not JSON", "upgrade tmln", "half"):
        assert text in said


def test_mixed_benchmarks_one_seed_and_missing_metrics(reader: Reader, tmp_path: Path) -> None:
    bare = result("er", 0, benchmark="bare", accuracy=[[math.nan] * 3] * 3)
    bare["metrics"] = {}
    bare.pop("seconds")
    gone = result("er", 0, benchmark="gone", accuracy=[], diverged="at once", metrics={"acc": math.nan})
    single = result("er", 0, benchmark="single", accuracy=[[0.5]], metrics={"fm": math.nan})
    two = [result("er", 0), result("tmln", 0, 0.8)]
    page = reader.open(keep(tmp_path / "mixed", [bare, gone, single, *two]))
    assert labels(page) == ["er", "tmln"]  # the benchmark with the most runs
    look(page, "#b=bare")
    assert labels(page) == ["er"]
    assert page.inner_text("#sentence") == "No method has an accuracy on bare yet."
    assert "No run here has" in page.inner_text("#tradeoff")
    for name in ("gone", "single"):
        press(page.locator(f'.others button:has-text("{name}")'))
        everything_drawn(page)
    assert "Accuracy over time needs" in page.inner_text("#time")
    assert page.inner_text("#sentence").startswith("er is the only method on single: ACC 50.0 (1 seed)")
    page.select_option('select[data-focus="Benchmark"]', "split-digits")
    assert "#" not in page.url
    assert labels(page) == ["er", "tmln"]
    assert "One seed only" in page.inner_text("#warnings")


def test_measurements_beside_runs_are_drawn(reader: Reader, runs: Path) -> None:
    some = {"mean": 1.5, "low": 1.2, "high": 1.8, "n": 4}
    none = {"mean": None, "low": None, "high": None, "n": 0}
    whole: dict[str, Any] = {
        "step": {"ratio": some, "seconds": some, "ratios": [1.5]},
        "training": {"ratio": some},
        "boundary": {"seconds": some, "epochs": some},
        "auxiliary": {"formula": "5N", "held_bytes": 1234},
        "peak_bytes": None,
        "diverged": None,
    }
    broken = {**whole, "step": {"ratio": none}, "diverged": "at once"}
    overhead: dict[str, Any] = {
        "rounds": 4,
        "steps": 50,
        "model": "mlp",
        "parameters": 9,
        "machine": {"processor": "<b>fast</b>"},
    }
    overhead |= {"methods": {"tmln": whole, "er": broken}, "control": some}
    place = {"x": 0.0, "y": 0.0}
    entry: dict[str, Any] = {
        "method": "tmln",
        "label": "tmln",
        "problem": None,
        "residual": 0.1,
        "loss": [[1.0, None], [0.1, 0.01]],
    }
    entry |= {"points": [{"task": 1, "step": 0, **place}, {"task": 2, "step": 9, "x": 1.0, "y": 1.0}]}
    entry |= {"markers": {"start": place, "one": place, "two": place}}
    landscape: dict[str, Any] = {
        "x": [0.0, 1.0],
        "y": [0.0, 1.0],
        "mode": "plane",
        "samples": 5,
        "split": "test",
        "seed": 0,
    }
    landscape |= {
        "tasks": ["task 1", "task 2"],
        "methods": [entry, {"method": "er", "label": "er", "problem": "no way"}],
    }
    path = {"task": 1, "loss": [0.001, 0.5, 0.1], "accuracy": [1.0, 0.5, 0.9]}
    seed = {"seed": 0, "pairs": [{"from": 1, "to": 2, "tasks": [path]}]}
    number = {"n": 1, "mean": 0.4495, "std": None}
    summary = {"barrier": number, "climb": number, "accuracy_barrier": number}
    barrier: dict[str, Any] = {"tasks": ["a", "b"], "shares": [0.0, 0.5, 1.0]}
    barrier |= {"methods": [{"method": "tmln", "label": "tmln", "seeds": [seed], "problems": [], "summary": summary}]}
    for kind, content in (("overhead", overhead), ("landscape", landscape), ("barrier", barrier)):
        save_analysis(runs, kind, "x", {"benchmark": "split-digits", **content})
        save_analysis(runs, kind, "elsewhere", {**content, "benchmark": "other"})
    page = reader.open(runs)
    everything_drawn(page)
    assert page.locator("#cost figure").count() == 2
    assert "1.50 [1.20, 1.80]" in page.inner_text("#cost")
    assert "<b>fast</b>" in page.inner_text("#cost")
    assert "Diverged: er" in page.inner_text("#cost")
    assert page.locator("#landscape .contourlayer path").count() > 0
    assert "Not drawn: no way" in page.inner_text("#landscape")
    assert "0.45" in page.inner_text('[aria-label="Table of barriers"]')
    look(page, "#hide=tmln")
    assert page.locator("#landscape .contourlayer").count() == 0
    assert page.locator("#cost table .name", has_text="tmln").count() == 0


def test_five_hundred_runs_are_shown_in_part_and_on_demand_whole(reader: Reader, tmp_path: Path) -> None:
    many = [
        result("tmln", seed, 0.9 - 0.001 * number, 0.01, settings={"step.damping": 0.01 * (number + 1)})
        for number in range(100)
        for seed in range(5)
    ]
    page = reader.open(keep(tmp_path / "many", many))
    assert (tmp_path / "many.html").stat().st_size < 8e6
    assert len(labels(page)) == 1
    page.select_option('select[data-focus="Configurations"]', "all")
    assert len(labels(page)) == 25
    press(page.locator("#table .more button"))
    assert len(labels(page)) == 100
    look(page, "#f=step.damping%3D0.5")
    assert len(labels(page)) == 1


def test_a_page_of_usual_runs_is_quiet(reader: Reader, tmp_path: Path) -> None:
    page = reader.open(keep(tmp_path / "usual", usual()), width=700)
    everything_drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 700


def test_a_new_metric_is_a_column_with_its_own_heading_and_direction(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drops = {"er": (0.02, 0.021, 0.02), "naive": (0.3, 0.29, 0.31)}
    runs = keep(tmp_path / "runs", [result(m, s, 0.9, d) for m, mine in drops.items() for s, d in enumerate(mine)])
    toy = Metric("worst FM", "the most that any task fell", lambda R: R[0][0] - R[-1][0], more_is_better=False)
    monkeypatch.setitem(METRICS, "fm_worst", replace(toy, shown="always"))
    page = reader.open(runs)
    assert "worst FM % ↓" in page.inner_text("#table thead")
    best = page.locator('#table td[data-metric="fm_worst"] strong')
    assert best.all_inner_texts() == ["4.1 ± 0.1"]  # of er, which loses 2 % with each of two tasks
    assert page.locator('details.columns input[data-metric="fm_worst"]').count() == 1
