"""Class orders, sizes of tasks, and completeness."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.data import made
from tmln.data import BadDataWarning, DataError
from tmln.streams import Samples, make_stream
from tmln.streams.incremental import compute_task_sizes, resolve_class_order, split_by_class
from tmln.streams.options import SplitOptions
from tmln.streams.train_test import TrainTestData


def test_icarl_order_is_numpys_for_1993() -> None:
    order = resolve_class_order("icarl1993", 100, seed=0)
    assert order[:12] == (68, 56, 78, 8, 23, 84, 90, 65, 74, 76, 40, 89)
    assert sorted(order) == list(range(100))


def test_orders() -> None:
    assert resolve_class_order("ascending", 4, seed=9) == (0, 1, 2, 3)
    assert resolve_class_order("3,1,0,2", 4, seed=0) == resolve_class_order([3, 1, 0, 2], 4, seed=0) == (3, 1, 0, 2)
    assert resolve_class_order("seeded", 100, seed=1993) == resolve_class_order("icarl1993", 100, seed=0)
    assert resolve_class_order("seeded", 10, seed=1) != resolve_class_order("seeded", 10, seed=2)


def test_an_order_drawn_with_a_seed_of_its_own() -> None:
    assert resolve_class_order("seed:1993", 100, seed=5) == resolve_class_order("icarl1993", 100, seed=0)
    assert (
        resolve_class_order("seed:7", 10, seed=1)
        == resolve_class_order("seed:7", 10, seed=2)
        == resolve_class_order("seeded", 10, seed=7)
    )
    for spec in ("seed:", "seed:x", "seed:-1", f"seed:{2**32}"):
        with pytest.raises(ValueError, match=f"below 2..32, not '{spec}'"):
            resolve_class_order(spec, 10, seed=0)
    with pytest.raises(ValueError, match="'run-seed' is an order for runs"):
        resolve_class_order("run-seed", 10, seed=0)
    with pytest.raises(ValueError, match="unknown class order 'seed'; use ascending"):
        resolve_class_order("seed", 10, seed=0)


@pytest.mark.parametrize("spec", ["0,1,2", "0,1,2,2", "0,1,2,4", [0, 1, 2, -1]])
def test_an_order_names_each_class_once(spec: str | list[int]) -> None:
    with pytest.raises(ValueError, match=r"each of the classes 0\.\.3 once"):
        resolve_class_order(spec, 4, seed=0)


def test_sizes() -> None:
    assert compute_task_sizes(10, 5) == (2, 2, 2, 2, 2)
    assert compute_task_sizes(10, 3) == (4, 3, 3)
    with pytest.raises(ValueError, match="10 classes make 1 to 10 tasks, not 0"):
        compute_task_sizes(10, 0)


def pool(train: list[int], test: list[int]) -> TrainTestData:
    def samples(labels: list[int]) -> Samples:
        return Samples.of(torch.arange(len(labels)).view(-1, 1).float(), torch.tensor(labels))

    return TrainTestData(samples(train), samples(test), ("a", "b", "c", "d"))


def test_tasks_follow_the_order_and_labels_stay() -> None:
    options = SplitOptions(class_order="3,1,0,2")
    stream = split_by_class("s", pool([0, 1, 2, 3, 3], [3, 2, 1, 0]), options, tasks=2)
    assert [task.classes for task in stream] == [(1, 3), (0, 2)]
    assert [task.train.y.tolist() for task in stream] == [[1, 3, 3], [0, 2]]
    assert [task.test.x.flatten().tolist() for task in stream] == [[0, 2], [1, 3]]
    assert stream.metadata["class_order"] == [3, 1, 0, 2]


def test_a_class_missing_from_the_test_set() -> None:
    lacking = pool([0, 1, 2, 3], [0, 1, 3])
    with pytest.raises(DataError, match="task 2, class 'c': missing from the task's test set"):
        split_by_class("s", lacking, SplitOptions(), tasks=2)
    with pytest.warns(BadDataWarning, match=r"left out 1 bad item.*class 'c'"):
        stream = split_by_class("s", lacking, SplitOptions(skip_bad=True), tasks=2)
    assert stream[1].classes == stream[1].train.classes == stream[1].test.classes == (3,)


def test_a_class_without_training_samples() -> None:
    lacking = pool([0, 1, 3], [0, 1, 2, 3])
    with pytest.raises(DataError, match="task 2, class 'c': no training samples"):
        split_by_class("s", lacking, SplitOptions(), tasks=2)
    with pytest.warns(BadDataWarning):
        stream = split_by_class("s", lacking, SplitOptions(skip_bad=True), tasks=4)
    assert [task.classes for task in stream] == [(0,), (1,), (3,)]


@pytest.mark.parametrize(
    ("classes", "tasks", "first", "sizes"),
    [
        (100, 6, 50, (50, 10, 10, 10, 10, 10)),  # B50 with steps of 10, as in PyCIL
        (10, 7, 4, (4, 1, 1, 1, 1, 1, 1)),
        (10, 2, 9, (9, 1)),
        (10, 1, 10, (10,)),
        (10, 4, None, (3, 3, 2, 2)),
    ],
)
def test_sizes_of_tasks(classes: int, tasks: int, first: int | None, sizes: tuple[int, ...]) -> None:
    assert compute_task_sizes(classes, tasks, first) == sizes
    assert sum(sizes) == classes


def test_a_larger_first_task_follows_the_order_of_classes() -> None:
    stream = make_stream("split-digits", first=4, tasks=3, class_order="9,8,7,6,5,4,3,2,1,0")
    assert [task.classes for task in stream] == [(6, 7, 8, 9), (3, 4, 5), (0, 1, 2)]
    assert stream.metadata["class_order"] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("given", ["5,0/1, 2,9", [[5, 0], [1, 2, 9]], ["5,0", "1,2,9"], (("5", "0"), (1, 2, 9))])
def test_tasks_by_their_classes(given: object) -> None:
    stream = make_stream("split-digits", task_classes=given, per_class=3)
    assert [task.classes for task in stream] == [(0, 5), (1, 2, 9)]
    assert stream.metadata["class_order"] == [5, 0, 1, 2, 9]
    assert stream.classes == 10  # the classes that are left out keep their outputs
    assert stream.tests[1].classes == (1, 2, 9)


def test_classes_by_name(tmp_path: Path) -> None:
    made.make_folder(tmp_path, {"": {"ant": 4, "owl": 4, "2023": 4, "bee": 4}})
    stream = make_stream(f"folder:{tmp_path}", task_classes="owl,2023/ant")
    assert [[stream.class_names[label] for label in task.classes] for task in stream] == [["2023", "owl"], ["ant"]]
    with pytest.raises(ValueError, match="there is no class 'aunt'; did you mean 'ant'"):
        make_stream(f"folder:{tmp_path}", task_classes="aunt/owl")


def test_folders_that_are_tasks_have_their_classes(tmp_path: Path) -> None:
    made.make_folder(tmp_path, {"mon": {"a": 4}, "tue": {"b": 4}})
    for options in ({"first": 1}, {"task_classes": "a/b"}):
        with pytest.raises(ValueError, match="first, task_classes and class_order are for classes"):
            make_stream(f"folder:{tmp_path}", **options)
