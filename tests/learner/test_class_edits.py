"""Renaming, merging and removing classes: labels follow everywhere, sums are exact, all is undone to the bit."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tmln.learner import Learner
from tmln.learner import export as exporting
from tmln.learner.class_edits import combine_scores, find_aliases, is_closed
from tmln.learner.export import describe_export
from tmln.methods import copy_state
from tmln.methods.replay.class_balanced import ClassBalancedReservoir
from tmln.methods.replay.reservoir import Reservoir

NAMES = ["ant", "bee", "owl", "cat"]


def data(*labels: int, count: int = 20, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points around the corner of a cube that each class has."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.tensor(labels).repeat_interleave(count)
    x = 0.5 * torch.randn(len(y), 6, generator=generator)
    x[torch.arange(len(y)), y] += 3.0
    return x, y


def learner(labels: tuple[int, ...] = (0, 1, 2, 3), **options: Any) -> Learner:
    torch.manual_seed(0)
    made = Learner(nn.Linear(6, 4), options.pop("method", "er"), lr=0.05, batch_size=10, **options)
    made.learn(data(*labels), 10, classes=NAMES, hold_out=0.2)
    return made


def probabilities(made: Learner, x: Tensor) -> dict[str, Tensor]:
    """Return the probability of each class of all samples."""
    found = made.predict(x, top=9)
    return {name: torch.tensor([dict(one.top)[name] for one in found]) for name in made.class_names}


def test_names_say_which_rows_are_one_class() -> None:
    names = ("ant", "bee", "ant", "", "bee")
    assert find_aliases(names) == {0: [2], 1: [4]}
    assert [is_closed(names, label) for label in range(6)] == [False, False, True, True, True, False]
    scores = torch.log(torch.tensor([[0.1, 0.2, 0.3, 0.15, 0.25]]))
    found = combine_scores(scores, names)[:, :2].exp()
    torch.testing.assert_close(found, torch.tensor([[0.4, 0.45]]))
    assert combine_scores(scores, NAMES) is scores


def test_a_class_gets_another_name() -> None:
    made = learner()
    x = data(0, 1)[0]
    before = probabilities(made, x)
    made.rename_class("ant", "wasp")
    assert made.class_names == ("wasp", "bee", "owl", "cat")
    assert torch.equal(probabilities(made, x)["wasp"], before["ant"])
    assert made.evaluate(data(0), classes=["wasp"])["accuracy"] > 0.9
    made.learn(data(0, seed=8), classes=["wasp"])  # goes on with the same row
    assert made.names == ("wasp", "bee", "owl", "cat")
    for old, new, said in (
        ("ant", "x", "no class 'ant'"),
        ("owl", "bee", "merge 'owl' into it"),
        ("owl", "BEE", "upper and lower case"),
        ("owl", " ", "one that can be read"),
        ("owl", "owl", "already"),
    ):
        with pytest.raises(ValueError, match=said):
            made.rename_class(old, new)
    made.rename_class("owl", "Owl")
    assert "Owl" in made.class_names


@pytest.mark.parametrize("target", ["ant", "owl"])
def test_merged_classes_have_the_sum_of_their_probabilities(target: str) -> None:
    made = learner()
    x, y = data(0, 1, 2, 3, seed=5)
    before = probabilities(made, x)
    made.merge_classes(["ant", "owl"], target)
    found = probabilities(made, x)
    assert made.class_names == (target, "bee", "cat")
    torch.testing.assert_close(found[target], before["ant"] + before["owl"])
    torch.testing.assert_close(found["bee"], before["bee"])
    assert made.evaluate((x, y.where(y != 2, 0)), classes=[target, "bee", "?", "cat"])["accuracy"] > 0.95
    assert made.replay.memory is not None
    labels = torch.cat([labels for _, labels in made.replay.memory.batches(50)])
    assert labels.bincount().tolist() == [32, 16, 0, 16]
    (held,) = made.seen.record.held
    assert held is not None
    assert held.y.bincount().tolist() == [8, 4, 0, 4]
    assert made.seen.record.tasks[0].counts == {0: 32, 1: 16, 3: 16}
    assert {row.label for row in made.retention.rows} == {target, "bee", "cat"}
    x, y = data(0, 4, seed=2)
    made.learn((x, (y > 0).long()), 5, classes=[target, "dog"])
    assert [*made.class_names] == [target, "bee", "cat", "dog"]
    assert made.classes == (0, 1, 3, 4)


@pytest.mark.parametrize("mask", ["none", "seen"])
def test_a_removed_class_is_never_predicted(mask: str) -> None:
    made = learner(logit_mask=mask)
    x, _ = data(2, seed=5)
    made.remove_classes(["owl"])
    assert {one.label for one in made.predict(x)} <= {"ant", "bee", "cat"}
    assert sum(share for _, share in made.predict(x, top=9)[0].top) == pytest.approx(1.0)
    assert len(made.predict(x, top=9)[0].top) == 3
    assert made.replay.memory is not None
    labels = torch.cat([labels for _, labels in made.replay.memory.batches(50)])
    assert set(labels.tolist()) == {0, 1, 3}
    with pytest.raises(ValueError, match="'owl' was never learned"):
        made.evaluate((x, torch.zeros(len(x), dtype=torch.int64)), classes=["owl"])
    made.learn(data(2, seed=7), 5, classes=["x", "y", "owl"])  # a new class of that name
    assert [*made.names] == ["ant", "bee", "", "cat", "x", "y", "owl"]
    with pytest.raises(ValueError, match="no class would be left"):
        made.remove_classes(made.class_names)
    with pytest.raises(ValueError, match="no class 'olw'; did you mean 'owl'"):
        made.remove_classes(["olw"])


@pytest.mark.parametrize("method", ["naive", "tmln", "er+", "der++", "icarl", "slda", "ranpac", "ncm-frozen"])
def test_every_change_is_undone_to_the_bit(method: str, tmp_path: Path) -> None:
    made = learner(method=method, keep=3)
    states = [copy_state(made.state_dict())]
    made.rename_class("bee", "wasp")
    made.merge_classes(["ant"], "owl")
    states.append(copy_state(made.state_dict()))
    made.remove_classes(["cat"])
    made.save(tmp_path / "s.tmln")
    loaded = Learner.load(tmp_path / "s.tmln", nn.Linear(6, 4))
    assert loaded.class_names == ("owl", "wasp")
    x = data(0, 1, seed=9)[0]
    assert [one.label for one in loaded.predict(x)] == [one.label for one in made.predict(x)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded.learn(data(0, 1, seed=3), 2, classes=["owl", "wasp"])
    made.undo()
    assert same(made.state_dict(), states[1])
    assert made.class_names == ("owl", "wasp", "cat")
    made.undo()
    made.undo()
    assert same(made.state_dict(), states[0])
    assert made.seen.record.tasks[0].counts == dict.fromkeys(range(4), 16)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@pytest.mark.parametrize("method", ["slda", "ranpac", "ncm-frozen"])
def test_merged_sums_are_those_of_one_class(method: str) -> None:
    """As if all samples had been learned with the merged labels from the start."""
    made = learner(method=method)
    made.merge_classes(["owl"], "ant")
    x, y = data(0, 1, 2, 3)
    torch.manual_seed(0)
    other = Learner(nn.Linear(6, 4), method, lr=0.05, batch_size=10)
    # the same samples are held out: of each class, by the labels that were there
    held = made.seen.record.held[0]
    assert held is not None
    learned = torch.tensor([not bool((held.x == row).all(1).any()) for row in x])
    other.learn((x[learned], y.where(y != 2, 0)[learned]), 1)
    for name, value in other.answer.sums.items():  # type: ignore[attr-defined]
        torch.testing.assert_close(made.answer.sums[name], value)  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["slda", "ncm-frozen"])
def test_a_removed_class_leaves_the_other_scores(method: str) -> None:
    """Of means they are as without the class; of a shared covariance it stays as it was estimated."""
    made = learner(method=method, settings={"answer.shrinkage": 0.1} if method == "slda" else {})
    x = data(0, 1, 3, seed=4)[0]
    answer: Any = made.answer
    answer.scores(made.model, x)
    before = answer.raw_scores(x.double())[:, [0, 1, 3]]
    made.remove_classes(["owl"])
    answer.scores(made.model, x)
    after = answer.raw_scores(x.double())[:, [0, 1, 3]]
    torch.testing.assert_close(after.double(), before.double(), rtol=1e-5, atol=1e-5)
    assert answer.counts.tolist() == [16.0, 16.0, 0.0, 16.0]
    assert bool((answer.sums["features"][2] == 0).all())
    assert set(answer.kept_y.tolist()) == {0, 1, 3}


def test_an_export_has_them_too() -> None:
    made = learner()
    made.merge_classes(["ant"], "owl")
    made.remove_classes(["cat"])
    assert describe_export(made)["classes"] == ["owl", "bee", None, None]
    x = data(0, 1, 2, 3, seed=6)[0]
    program = torch.export.load(io.BytesIO(exporting.WRITERS[".pt2"](made))).module()
    found = program(x).softmax(1)[:, :2]
    expected = probabilities(made, x)
    torch.testing.assert_close(found.detach(), torch.stack([expected["owl"], expected["bee"]], 1))


def test_a_failure_leaves_the_learner_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    made = learner()
    before = copy_state(made.state_dict())
    monkeypatch.setattr(Learner, "score", lambda self, model, x: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        made.remove_classes(["owl"])
    monkeypatch.undo()
    assert same(made.state_dict(), before)
    assert made.seen.record.tasks[0].counts == dict.fromkeys(range(4), 16)
    assert len(made.seen.previous) == 1


@pytest.mark.parametrize("kind", [Reservoir, ClassBalancedReservoir])
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_memory_follows(kind: type[Reservoir], on_disk: bool, tmp_path: Path) -> None:
    memory = kind(10, path=tmp_path if on_disk else None)
    x = torch.arange(8.0)[:, None]
    memory.add(x, torch.arange(8) % 4)
    before = memory.state_dict()
    memory.relabel({3: 1, 2: None})
    ((found, labels),) = memory.batches(20)
    assert found.flatten().tolist() == [0.0, 1.0, 3.0, 4.0, 5.0, 7.0]
    assert labels.tolist() == [0, 1, 1, 0, 1, 1]
    assert (memory.seen, len(memory)) == (6, 6)
    memory.load_state_dict(before)
    assert len(memory) == 8
    memory.add(torch.zeros(40, 1), torch.arange(40) % 4)
    memory.relabel({3: 1, 2: None})
    assert len(memory) == 10  # stays full
    assert memory.seen > 10
    labels = torch.cat([labels for _, labels in memory.batches(20)])
    assert set(labels.tolist()) <= {0, 1}
    memory.add(torch.zeros(5, 1), torch.zeros(5, dtype=torch.long))
    memory.relabel({0: None, 1: None})
    assert len(memory) == 0
    memory.add(x, torch.arange(8) % 4)
    assert len(memory) == 8
