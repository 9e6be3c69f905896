"""tmln classes, as a person types it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import tmln
from tests.deploy.test_commands import run
from tmln.deploy.learn import LearnRequest, learn_into


@pytest.fixture(scope="module")
def learned(weeks: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("classes") / "shop.tmln"
    learn_into(path, weeks / "week1", LearnRequest(epochs=10))
    learn_into(path, weeks / "week2", LearnRequest(epochs=10))
    return path


@pytest.fixture
def state(learned: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(learned, tmp_path / "shop.tmln"))


def test_classes_are_listed_changed_and_restored(state: Path, weeks: Path) -> None:
    lines = run("classes", state).stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [["bee", "27"], ["owl", "54"], ["ant", "27"]]
    said = run("classes", state, "rename", "owl", "barn owl").stdout
    assert "has 3 classes: bee, barn owl, ant" in said
    assert "before 'the" not in run("undo", "--state", state).stdout
    assert tmln.open(state).class_names == ("bee", "owl", "ant")
    said = run("classes", state, "merge", "ant", "bee").stdout
    assert "has 2 classes: bee, owl" in said
    assert "right of the held-out samples" in said
    found = {one.label for one in tmln.open(state).predict(weeks / "photos")}
    assert found <= {"bee", "owl"}
    assert "  ant: " not in run("inspect", "--state", state).stdout
    assert "3 classes" in run("undo", "--state", state).stdout
    assert "has 2 classes: bee, ant" in run("classes", state, "remove", "owl").stdout
    learn_into(state, weeks / "week1", LearnRequest(epochs=1))  # owl comes back as a new class
    assert tmln.open(state).class_names == ("bee", "ant", "owl")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rename", "owl"], "rename takes the old name and the new one"),
        (["merge", "owl"], "merge takes classes and the one"),
        (["remove", "olw"], "did you mean 'owl'"),
        (["remove"], "no class would be left of none"),
    ],
)
def test_wrong_changes_leave_the_state(state: Path, words: list[str], said: str) -> None:
    before = state.read_bytes()
    assert said in str(run("classes", state, *words, code=1).exception)
    assert state.read_bytes() == before
