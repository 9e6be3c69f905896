"""Tasks: what was held out judges what was kept, too much forgetting is refused, and a task can be taken back."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.learner.test_atomic import same
from tests.learner.test_class_names import learner, pictures
from tmln.learner import Forgot, Learner, Retention
from tmln.learner import history as records
from tmln.learner.checkpoint import load_file, save_file
from tmln.learner.history import HeldOut, RetentionRow, TaskNote, TaskRecord, count_overlap, make_rows, thin_samples
from tmln.methods.recipes import RECIPES
from tmln.streams import Samples

pytestmark = pytest.mark.usefixtures("narrow")


def taught(**options: Any) -> Learner:
    made = learner()
    made.keep = options.pop("keep", 1)
    made.learn(pictures("cat", "owl"), 10, classes=["cat", "owl"], name="week 1", hold_out=0.2)
    made.learn(pictures("ant", "owl"), 10, classes=["ant", "owl"], name="week 2", hold_out=0.2, **options)
    return made


def test_the_table_by_hand() -> None:
    """Two tasks: of 'cat' 3 of 4 then 2 of 4 were right, of 'owl' 1 of 1 both times; the new one has 1 of 2."""
    notes = (TaskNote("week 1", "", {0: 9, 1: 4}), TaskNote("week 2", "", {2: 5}, new=(2,)))
    rows = make_rows(
        TaskRecord(notes, (None, None)),
        ["cat", "owl", "ant"],
        [{0: (4, 0.75), 1: (1, 1.0)}],
        [{0: (4, 0.5), 1: (1, 1.0)}, {2: (2, 0.5)}],
    )
    table = Retention(rows, new=1)
    assert rows == (
        RetentionRow("week 1", "cat", 4, 0.75, 0.5),
        RetentionRow("week 1", "owl", 1, 1.0, 1.0),
        RetentionRow("week 2", "ant", 2, None, 0.5),
    )
    assert table.tasks() == {"week 1": (0.8, 0.6), "week 2": (None, 0.5)}
    assert table.lost == pytest.approx(0.2)
    assert table.summary() == "learned 1 new class, 50%; week 1 fell from 80% to 60%"
    assert str(table).splitlines()[2:4] == [
        "task    class  samples  before  after",
        "week 1  cat          4     75%    50%",
    ]


def test_nothing_held_out_nothing_known() -> None:
    made = learner()
    assert made.retention == Retention()
    made.learn(pictures("cat", "owl"), classes=["cat", "owl"])
    assert made.retention.rows == ()
    assert "nothing was held out" in str(made.retention)
    assert [(note.name, note.counts, note.new) for note in made.seen.record.tasks] == [
        ("task 1", {0: 30, 1: 30}, (0, 1))
    ]


def test_a_task_is_noted() -> None:
    made = taught()
    first, second = made.seen.record.tasks
    assert (first.name, first.counts, first.new) == ("week 1", {0: 24, 1: 24}, (0, 1))
    assert (second.counts, second.new) == ({1: 24, 2: 24}, (2,))
    assert second.date[:2] == "20"
    assert [len(held.y) for held in made.seen.record.held if held] == [12, 12]
    rows = {(row.task, row.label): row for row in made.retention.rows}
    assert rows.keys() == {("week 1", "cat"), ("week 1", "owl"), ("week 2", "ant"), ("week 2", "owl")}
    held = made.seen.record.held[0]
    assert held is not None
    mine = held.y == 0
    right = made.evaluate(Samples.of(held.x[mine], held.y[mine]))["accuracy"]
    assert rows["week 1", "cat"].after == pytest.approx(right)
    assert rows["week 2", "ant"].before is None
    assert second.accuracy == pytest.approx(made.retention.tasks()["week 2"][1])
    assert made.retention.summary().startswith("learned 1 new class, ")


def test_what_is_held_out_is_not_trained_on() -> None:
    made, alone = learner(), learner()
    x, y = pictures("cat", "owl")
    made.learn((x, y), 2, hold_out=0.2)
    held = made.seen.record.held[0]
    assert held is not None
    left = torch.tensor([not any(torch.equal(row, one) for one in held.x) for row in x])
    alone.learn((x[left], y[left]), 2)
    assert torch.equal(made.model[0].weight, alone.model[0].weight)  # type: ignore[index]


def test_a_test_set_of_ones_own() -> None:
    made = learner()
    made.learn(pictures("cat", "owl"), classes=["cat", "owl"], test=pictures("owl", count=7))
    held = made.seen.record.held[0]
    assert held is not None
    assert held.y.tolist() == [0] * 7  # labels without names are the learner's numbers


@pytest.mark.parametrize("method", ["naive", "tmln", "joint", "der++", "ocar"])
def test_too_much_forgetting_is_refused(method: str) -> None:
    made = Learner(learner().model, method, batch_size=20)
    made.learn(pictures("cat", "owl"), 10, classes=["cat", "owl"], hold_out=0.2)
    kept, record = copy.deepcopy(made.state_dict()), made.seen.record
    with pytest.raises(Forgot, match=r"task 1 .* more than the -300 points") as caught:
        made.learn(pictures("ant"), 5, classes=["ant"], max_forgetting=-3.0)  # whatever happens is too much
    assert caught.value.retention.tasks().keys() == {"task 1"}
    assert same(made.state_dict(), kept)
    assert made.seen.record is record
    assert list(made.names) == ["cat", "owl"]
    made.learn(pictures("ant"), 5, classes=["ant"], max_forgetting=1.0)
    assert made.names == ("cat", "owl", "ant")


@pytest.mark.parametrize("method", RECIPES)
def test_undone_is_as_before(method: str, tmp_path: Path) -> None:
    warnings.filterwarnings("ignore", message=".*strength.*")
    made = Learner(learner().model, method, batch_size=20)
    made.learn(pictures("cat", "owl"), classes=["cat", "owl"], hold_out=0.2)
    kept, record = copy.deepcopy(made.state_dict()), made.seen.record
    made.learn(pictures("ant", "owl"), classes=["ant", "owl"])
    made.save(tmp_path / "shop.tmln")
    made.undo()
    assert same(made.state_dict(), kept)
    assert made.seen.record is record
    if not made.recipe.joint:
        again = Learner.load(tmp_path / "shop.tmln", learner().model)
        again.undo()
        assert same(again.state_dict(), kept)
        assert same(again.seen.record.to_dict(), record.to_dict())
    with pytest.raises(RuntimeError, match="no task to undo"):
        made.undo()


def test_as_many_as_are_kept() -> None:
    made = taught(keep=2)
    made.learn(pictures("bee"), classes=["bee"])
    made.undo()
    made.undo()
    assert made.names == ("cat", "owl")
    with pytest.raises(RuntimeError, match="keep="):
        made.undo()
    assert taught(keep=0).seen.previous == []
    with pytest.raises(ValueError, match="keep must be at least 0, got -1"):
        Learner(made.model, keep=-1)


def test_held_out_samples_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldOut(torch.arange(10.0)[:, None], torch.tensor([0] * 6 + [1] * 4))
    few = thin_samples(held, 4)
    assert few.y.tolist() == [0, 0, 1, 1]
    assert few.x.flatten().tolist() == [0.0, 3.0, 6.0, 8.0]
    monkeypatch.setattr(records, "MOST_HELD", 10)
    made = taught()
    assert [len(held.y) for held in made.seen.record.held if held] == [4, 4]  # of 10 each task has 5, of two classes


def test_learning_what_judges_is_warned_of() -> None:
    made = taught()
    held = made.seen.record.held[0]
    assert held is not None
    assert count_overlap(held.as_samples(), made.seen.record) == {"week 1": 12}
    assert count_overlap(Samples.of(held.x + 1, held.y), made.seen.record) == {}
    with pytest.warns(UserWarning, match=r"12 of the samples of 'week 3' are those that 'week 1' is judged by"):
        made.learn((held.x, held.y), name="week 3")


def test_tasks_are_in_the_file_and_names_stay_apart(tmp_path: Path) -> None:
    made = taught()
    made.about = {"model": "mlp"}
    made.save(tmp_path / "shop.tmln")
    again = Learner.load(tmp_path / "shop.tmln", learner().model)
    assert same(again.seen.record.to_dict(), made.seen.record.to_dict())
    assert again.retention == made.retention
    assert again.about == {"model": "mlp"}
    again.learn(pictures("cat"), classes=["cat"], name="week 2")
    assert [note.name for note in again.seen.record.tasks] == ["week 1", "week 2", "week 2 (2)"]


def test_files_from_before_there_were_records_load(tmp_path: Path) -> None:
    made = taught()
    made.save(tmp_path / "new.tmln")
    saved = load_file(tmp_path / "new.tmln")
    old = {key: saved[key] for key in ("recipe", "options", "state")}
    for key in ("names", "earlier"):
        del old["state"][key]
    assert "head" not in old["options"]
    save_file(tmp_path / "old.tmln", old)
    again = Learner.load(tmp_path / "old.tmln", made.model)
    assert again.names == ()
    assert again.seen.record.tasks == ()
    assert again.classes == (0, 1, 2)


def test_a_task_that_was_interrupted_is_judged_from_its_beginning() -> None:
    made, states = taught(), []
    more = pictures("bee", "owl")
    twin = copy.deepcopy(made)
    made.learn(
        more, 2, classes=["bee", "owl"], hold_out=0.2, name="week 3",
        on_step=lambda *step: states.append(copy.deepcopy(made.state_dict())),
    )  # fmt: skip
    twin.load_state_dict(states[1])
    twin.learn(more, 2, classes=["bee", "owl"], hold_out=0.2, name="week 3")
    assert twin.retention == made.retention
    assert same(twin.state_dict(), made.state_dict())


@pytest.mark.parametrize("method", ["tmln", "upgd", "ocar", "naive"])
def test_a_state_that_was_loaded_is_not_written_into(method: str) -> None:
    """torch's optimizers take the tensors of a state as their own: undoing would go back to what was trained since."""
    made = Learner(learner().model, method, batch_size=20)
    made.learn(pictures("cat", "owl"), 2, classes=["cat", "owl"])
    state = copy.deepcopy(made.state_dict())
    kept = copy.deepcopy(state)
    again = Learner(learner().model, method, batch_size=20)
    again.load_state_dict(state)
    again.learn(pictures("cat", "owl"), 2, classes=["cat", "owl"])
    assert same(state, kept)
