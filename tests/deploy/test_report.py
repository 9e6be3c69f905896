"""What tmln learn says of a task: what was left out, what it took, what was refused and may be accepted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.deploy.conftest import draw
from tests.deploy.test_commands import run
from tmln.deploy.learn import LearnNotes, LearnRequest, learn_into
from tmln.deploy.state_file import open_learner


def test_a_new_state_from_scratch_has_replay_averages_and_a_falling_rate(weeks: Path, tmp_path: Path) -> None:
    said = run(
        "learn", "--state", tmp_path / "s.tmln", "--data", weeks / "week1", "--from-scratch", "--epochs", 1
    ).output
    assert "er+ with AdamW" in said
    learner = open_learner(tmp_path / "s.tmln")
    assert {family: part.name for family, part in learner.components.items()} == {
        "replay": "er", "penalty": "none", "step": "adamw", "weights": "average", "answer": "argmax",
    }  # fmt: skip
    assert learner.replay.settings.balance == 1.0
    assert learner.lr_schedule.rule == "cosine"
    assert learner.lr == 0.003
    asked = ("--method", "tmln", "--set", "schedule=constant", "--set", "warmup=0", "--epochs", 1)
    run("learn", "--state", tmp_path / "t.tmln", "--data", weeks / "week1", *asked)
    assert not open_learner(tmp_path / "t.tmln").lr_schedule.changes
    assert open_learner(tmp_path / "t.tmln").step.name == "tmln"
    assert open_learner(tmp_path / "t.tmln").lr == 0.01


def test_bad_files_are_listed_once_and_counted(weeks: Path, tmp_path: Path) -> None:
    shutil.copytree(weeks / "week1", tmp_path / "week1")
    (tmp_path / "week1" / "bee" / "notes.txt").write_text("no picture")
    (tmp_path / "week1" / "cat").mkdir()
    words = ("learn", "--state", tmp_path / "s.tmln", "--data", tmp_path / "week1", "--epochs", 1)
    error = str(run(*words, code=1).exception)
    assert "2 bad items" in error
    assert "--skip-bad" in error
    said = run(*words, "--skip-bad").output
    assert "left out 2 bad files:" in said
    assert said.count("notes.txt") == said.count("an empty class") == 1
    assert "took " in said
    assert open_learner(tmp_path / "s.tmln").names == ("bee", "owl")
    (tmp_path / "week1" / "bee" / "cut.png").write_bytes(b"no picture")
    with pytest.warns(UserWarning, match=r"left out 1 bad: .*cut\.png"):
        said = run("predict", "--state", tmp_path / "s.tmln", tmp_path / "week1" / "bee", "--skip-bad").output
    assert len(said.splitlines()) == 31


def test_a_class_with_one_picture_is_learned(weeks: Path, tmp_path: Path) -> None:
    shutil.copytree(weeks / "week1", tmp_path / "week1")
    draw(tmp_path / "week1", "cat", 1)
    learner, table = learn_into(tmp_path / "s.tmln", tmp_path / "week1", LearnRequest(epochs=1))
    assert learner.names == ("bee", "cat", "owl")
    assert {row.label for row in table.rows} == {"bee", "owl"}  # the one picture is learned, none is held out


def test_what_was_refused_is_accepted(weeks: Path, tmp_path: Path) -> None:
    state = tmp_path / "s.tmln"
    options = ("--method", "naive", "--epochs", 15, "--set", "lr=0.1")
    run("learn", "--state", state, "--data", weeks / "week1", *options)
    draw(tmp_path / "new", "ant", 40)
    said = run(
        "learn", "--state", state, "--data", tmp_path / "new", "--max-forgetting", 5, "--epochs", 30, code=3
    ).output
    assert "95% interval of the loss" in said
    assert "tmln accept" in said
    assert open_learner(state).names == ("bee", "owl")
    said = run("accept", "--state", state).output
    assert "learned 1 new class" in said
    assert open_learner(state).names == ("bee", "owl", "ant")
    run("undo", "--state", state)
    assert open_learner(state).names == ("bee", "owl")
    assert "no refused task" in str(run("accept", "--state", state, code=1).exception)


def test_candidates_are_compared_and_the_best_is_kept(weeks: Path, tmp_path: Path) -> None:
    state = tmp_path / "s.tmln"
    words = ("learn", "--state", state, "--data", weeks / "week1", "--try", "--from-scratch", "--epochs", 2)
    lines = run(*words).output.splitlines()
    assert lines[0].split()[:2] == ["method", "accuracy"]
    shown = {line.split("  ")[0]: float(line.split("%")[0].split()[-1]) for line in lines[1:4]}
    assert list(shown) == ["er+ (adamw)", "er+", "tmln+"]
    (kept,) = [line for line in lines[1:4] if line.endswith("(kept)")]
    assert shown[kept.split("  ")[0]] == max(shown.values())
    assert open_learner(state).seen.record.tasks[-1].accuracy == pytest.approx(max(shown.values()) / 100, abs=1e-3)
    assert "exists already" in str(run(*words, code=1).exception)
    run("learn", "--state", state, "--data", weeks / "week2", "--epochs", 1)  # an ordinary state, which learns on


def test_the_tour_learns_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weeks = {"week1": (("circle", "square"), 10), "week2": (("ring",), 10), "test": (("circle", "ring"), 4)}
    monkeypatch.setattr("tmln.deploy.demo.WEEKS", weeks)
    said = run("demo", "--pictures", "--runs", tmp_path / "tour").output
    assert said.count("$ tmln learn") == 2
    assert "accuracy " in said
    assert open_learner(tmp_path / "tour" / "shapes.tmln").names == ("circle", "square", "ring")
    assert "is there already" in str(run("demo", "--pictures", "--runs", tmp_path / "tour", code=1).exception)


def test_with_a_backbone_closed_forms_are_tried(weeks: Path, tmp_path: Path) -> None:
    notes = LearnNotes()
    learner, _ = learn_into(tmp_path / "s.tmln", weeks / "week1", LearnRequest(try_candidates=True), notes=notes)
    assert [one.method for one in notes.candidates] == ["slda", "ranpac", "ranpac+"]
    assert learner.about["model"] == "efficientnet-lite0"
    best = max(one.accuracy for one in notes.candidates)
    assert next(one.method for one in notes.candidates if one.accuracy == best) == learner.about["method"]
