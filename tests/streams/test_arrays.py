"""Streams from arrays and datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tmln.streams import DataError, Samples, as_samples, stream_of_classes, stream_of_tasks
from tmln.streams.arrays import Data, number_labels
from tmln.streams.samples import TensorSource

X = torch.arange(24, dtype=torch.float32).view(8, 3)
Y = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3])


class Listed(Dataset[tuple[Tensor, int]]):
    """A dataset as users write them; it counts what is read."""

    def __init__(self, x: list[Tensor], y: list[int], targets: bool = False) -> None:
        self.x, self.y, self.read = x, y, 0
        if targets:
            self.targets = y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.read += 1
        return self.x[index], self.y[index]


KINDS: dict[str, Data] = {
    "tensors": (X, Y),
    "numpy": (X.numpy(), Y.numpy().astype(np.int32)),
    "samples": Samples.of(X, Y),
    "tensor dataset": TensorDataset(X, Y),
    "dataset": Listed(list(X), Y.tolist()),
    "with targets": Listed(list(X), Y.tolist(), targets=True),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_reads_alike(kind: str) -> None:
    samples = as_samples(KINDS[kind])
    x, y = samples.gather(torch.tensor([5, 0, 5]))
    assert torch.equal(x, X[[5, 0, 5]])
    assert y.tolist() == [1, 0, 1]
    assert (len(samples), samples.shape, y.dtype) == (8, (3,), torch.int64)
    assert samples.subset(torch.tensor([], dtype=torch.int64)).x.shape == (0, 3)


def test_a_tensor_dataset_is_read_in_one_operation() -> None:
    assert isinstance(as_samples(TensorDataset(X, Y)).source, TensorSource)


def test_targets_spare_a_pass_over_the_data() -> None:
    data = Listed(list(X), Y.tolist(), targets=True)
    as_samples(data)
    assert data.read == 1  # the shape


def test_bytes_stay_bytes_and_doubles_become_floats() -> None:
    assert as_samples((torch.zeros(2, 1, dtype=torch.uint8), torch.tensor([0, 1]))).x.dtype == torch.uint8
    assert as_samples((np.zeros((2, 1)), np.array([0, 1]))).x.dtype == torch.float32


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:7]), r"8 inputs but labels of shape \[7\]"),
        ((X, Y.view(4, 2)), r"labels of shape \[4, 2\]"),
        ((X, Y.float()), r"whole numbers from 0 on, not torch.float32 .*: give y.long\(\)"),
        ((X, Y + 0.5), "not whole numbers of classes; regression and multi-label targets are not supported"),
        ((X, Y.float().view(-1, 1)), r"torch.float32 \[8, 1\], .*; regression"),
        ((X, Y.view(-1, 1)), r"\[8, 1\]: give y.squeeze\(1\)"),
        ((X, torch.eye(8)[Y]), r"\[8, 8\] are one-hot: give class numbers, y.argmax\(1\)"),
        ((X, torch.ones(8, 2)), r"\[8, 2\] name several classes of a sample; regression and multi-label"),
        ((X, Y > 0), r"not torch.bool .*: give y.long\(\)"),
        ((X, Y, Y), r"a tuple of 3 parts: give \(x, y\)"),
        (X, r"without labels: give \(x, y\)"),
        ([*X], r"a sample is a Tensor, not \(input, label\)"),
        ([(X[0], "owl")], "sample 0 has the label 'owl': .* classes="),
        ([(X[0], 0), (X[1], 0.5)], "sample 1 has the label 0.5: .*; regression"),
        ([(X[0], torch.eye(2)[0])], r"sample 0 has the label \[2\]"),
        ((X, Y - 1), "from -1"),
        ((X / 0, Y), "not finite"),
        ((Y, Y), "inputs are uint8 or float"),
        (Listed([], []), "Listed is empty"),
    ],
)
def test_refusals(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_samples(data)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_names_as_labels_are_numbered(kind: Any) -> None:
    data, names = number_labels((X, kind(["owl", "ant", "owl"])))
    assert data[1].tolist() == [1, 0, 1]
    assert names == ("ant", "owl")
    data, names = number_labels((X, kind(["owl", "ant"])), ["owl", "bee", "ant"])
    assert data[1].tolist() == [0, 2]
    assert names == ("owl", "bee", "ant")
    with pytest.raises(DataError, match="the label 'owl' is none of the classes given: ant, bee"):
        number_labels((X, kind(["owl"])), ["ant", "bee"])


def test_other_labels_are_left_alone() -> None:
    for data in ((X, Y), (X, [0, 1]), (X, []), (X, [["a"]]), [(X[0], "owl")], X):
        assert number_labels(data) == (data, None)


def test_datasets_without_length_or_of_mixed_shape() -> None:
    class Endless(IterableDataset[tuple[Tensor, int]]):
        def __iter__(self) -> Iterator[tuple[Tensor, int]]:
            return iter([])

    with pytest.raises(DataError, match="Endless has no length"):
        as_samples(Endless())
    mixed = as_samples(Listed([torch.zeros(3), torch.zeros(4)], [0, 1]))
    with pytest.raises(DataError, match=r"sample 1 is torch.float32 \[4\], the first torch.float32 \[3\]"):
        mixed.gather(torch.tensor([0, 1]))


def test_inputs_that_are_no_tensors() -> None:
    with pytest.raises(DataError, match="sample 0 is a dict: let the dataset transform its inputs to tensors"):
        as_samples(Listed([{"image": 1}], [0]))  # type: ignore[list-item]


def test_stream_of_tasks() -> None:
    halves = [((X[:2], Y[:2]), (X[4:6], Y[4:6])), ((X[2:4], Y[2:4]), (X[6:], Y[6:]))]
    stream = stream_of_tasks(halves)
    assert [(task.name, task.classes) for task in stream] == [("task 1", (0, 1)), ("task 2", (2, 3))]
    assert stream.class_names == ("0", "1", "2", "3")
    assert torch.equal(stream.prepare(X), X)
    named = stream_of_tasks({"mon": halves[0], "tue": halves[0]}, domains=True, class_names=["a", "b", "c"])
    assert [(task.name, task.domain) for task in named] == [("mon", "mon"), ("tue", "tue")]
    assert named.classes == 3


def test_stream_of_tasks_refuses() -> None:
    with pytest.raises(DataError, match="at least one task"):
        stream_of_tasks([])
    with pytest.raises(DataError, match="label 3, but only 2 class names"):
        stream_of_tasks([((X, Y), (X, Y))], class_names=["a", "b"])
    with pytest.raises(DataError, match="different shapes"):
        stream_of_tasks([((X, Y), (X[:, :2], Y))])
    with pytest.raises(DataError, match="class '3': missing from the task's test set"):
        stream_of_tasks([((X, Y), (X[:3], Y[:3]))])


def test_stream_of_classes() -> None:
    stream = stream_of_classes((X, Y), (X, Y), 2, class_order=[3, 0, 1, 2], per_class=1, mean=(1.0,), std=(2.0,))
    assert [task.classes for task in stream] == [(0, 3), (1, 2)]
    assert len(stream[0].train) == 2
    assert torch.equal(stream.augment(X, torch.Generator()), (X - 1) / 2)
    with pytest.raises(ValueError, match="unknown option 'blur'"):
        stream_of_classes((X, Y), (X, Y), 2, blur=1)
    with pytest.raises(DataError, match="only 2 class names"):
        stream_of_classes((X, Y), (X, Y), 2, class_names=["a", "b"])


class Dicts(Dataset[dict[str, Any]]):
    """Samples as Hugging Face's datasets give them."""

    def __init__(self, label: str, **more: Any) -> None:
        self.label, self.more = label, more

    def __len__(self) -> int:
        return 6

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"pixels": torch.full((3,), float(row)), self.label: row % 2, **self.more}


@pytest.mark.parametrize("label", ["label", "labels", "target", "targets", "y"])
def test_samples_that_are_dicts(label: str) -> None:
    samples = as_samples(Dicts(label))
    x, y = samples.gather(torch.tensor([4, 1]))
    assert x[:, 0].tolist() == [4.0, 1.0]
    assert y.tolist() == [0, 1]


def test_dicts_that_do_not_say_which_is_the_input() -> None:
    with pytest.raises(DataError, match=r"pixels, label, mask, but one input and one of label, .* are needed"):
        as_samples(Dicts("label", mask=1))
    with pytest.raises(DataError, match="pixels, caption"):
        as_samples(Dicts("caption"))


def test_a_loader_stands_for_its_dataset() -> None:
    pairs = TensorDataset(torch.arange(8.0).reshape(4, 2), torch.tensor([0, 1, 0, 1]))
    samples = as_samples(DataLoader(pairs, batch_size=3, shuffle=True))
    assert samples.x.tolist() == pairs.tensors[0].tolist()
    with pytest.raises(DataError, match="collate_fn of its own"):
        as_samples(DataLoader(pairs, collate_fn=list))


def test_a_stream_prints_as_a_short_table() -> None:
    x, y = torch.zeros(8, 3, 4, 4), torch.arange(8) % 2
    stream = stream_of_tasks({"week 1": ((x, y), (x, y)), "week 10": ((x, y), (x, y))}, class_names=["ant", "owl"])
    assert str(stream).splitlines() == [
        "arrays: 2 tasks, 2 classes, inputs of 3x4x4",
        "  week 1        8 to learn       8 to test  ant, owl",
        "  week 10       8 to learn       8 to test  ant, owl",
    ]
    assert repr(stream[0].train) == "Samples(8 of 3x4x4, 2 classes)"
    assert len(repr(stream[0])) < 300
