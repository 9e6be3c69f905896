"""The study of benchmarks/language.py on a tiny model: all methods run, a stopped study goes on, the front."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from benchmarks.language import METHODS, Texts, draw, front, read_domain, sample_stories, split, study, summarise, table

from tests.integrations.test_language_retention import model_of, tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
PARTS = {"train": 8, "validation": 2, "test": 2}


def texts(*words: str) -> Texts:
    return split([" ".join([word, *words, word]) for word in words * 12], PARTS)


def run_study(done: Any, methods: Any = METHODS) -> list[dict[str, Any]]:
    domains = {"news": texts("red", "blue", "sky"), "reviews": texts("dog", "ran", "far")}
    return list(study(model_of(0), tokenizer(), texts("cat", "sat", "mat"), domains, [0], done, methods))


@pytest.mark.slow
def test_all_methods_run_and_a_stopped_study_goes_on(tmp_path: Path) -> None:
    runs = run_study([])
    names = [run["method"] for run in runs]
    assert names == ["base", "naive", "wise-ft 0.5", "wise-ft auto", *(method.name for method in METHODS[1:])]
    assert run_study(runs) == []
    loss = {run["method"]: run["loss"] for run in runs}
    assert loss["naive"]["news"] < loss["base"]["news"]
    assert loss["naive"] != loss["ewc 1"] != loss["tmln 0.01"]
    again = run_study(runs[:1], METHODS[:1])
    assert [run["loss"] for run in again] == [run["loss"] for run in runs[1:4]]
    draw(runs, tmp_path / "front.svg")
    assert (tmp_path / "front.svg").stat().st_size > 1000
    assert len(table(runs)) == 2 + len(runs)


def test_numbers_of_a_table_by_hand() -> None:
    base = {"stories": 1.0, "news": 4.0, "reviews": 6.0}
    runs = [{"method": "base", "seed": 0, "loss": base}]
    for seed, stories in ((0, 1.5), (1, 2.5)):
        runs.append({"method": "naive", "seed": seed, "loss": {"stories": stories, "news": 2.0, "reviews": 4.0}})
    (_, _, lost, _), (name, new, forgotten, _) = summarise(runs)
    assert (name, lost, new, forgotten) == ("naive", [0.0], [3.0, 3.0], [0.5, 1.5])
    assert table(runs)[2] == f"| naive | {math.exp(3):.0f} | {math.exp(2):.0f} | {math.exp(4):.0f} | 1.00 ± 0.71 | 2 |"
    assert front({"a": (1.0, 3.0), "b": (2.0, 1.0), "c": (2.0, 3.0)}) == ["a", "b"]


def test_texts_of_a_domain(tmp_path: Path) -> None:
    rows = [{"label": "x", "sentence": f"Title: {k}\nText: {'word ' * 30}\\nend"} for k in range(3)] + [
        {"sentence": "short"}
    ]
    (tmp_path / "d.json").write_text(json.dumps(rows), encoding="utf-8")
    found = read_domain(tmp_path / "d.json", {"train": 2, "test": 1})
    assert found["train"][1].split()[:2] == ["1", "word"]
    assert found["test"][0].endswith("word end")
    with pytest.raises(ValueError, match="test"):
        read_domain(tmp_path / "d.json", {"train": 3, "test": 1})


def test_stories_of_the_model_itself() -> None:
    found = sample_stories(model_of(0), tokenizer(), {"train": 2, "test": 1})
    assert [len(found["train"]), len(found["test"])] == [2, 1]
    assert found == sample_stories(model_of(0), tokenizer(), {"train": 2, "test": 1})
