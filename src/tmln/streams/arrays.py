"""Streams from Python: arrays, tensors, and map-style ``torch.utils.data.Dataset`` objects."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from tmln.data import DataError
from tmln.data.dataset import Colour
from tmln.streams.assemble import assemble
from tmln.streams.incremental import split_by_class
from tmln.streams.options import Options, SplitOptions, read_options
from tmln.streams.samples import Samples
from tmln.streams.stream import Augment, Prepare, Stream, Task
from tmln.streams.train_test import TrainTestData

Array: TypeAlias = Tensor | NDArray[Any]
Data: TypeAlias = Samples | tuple[Array, Array] | Dataset[Any] | DataLoader[Any]
log = logging.getLogger(__name__)

LABELS = ("label", "labels", "target", "targets", "y")  # keys of the label in a sample that is a dict


@dataclass(frozen=True, eq=False)
class DatasetSource:
    """Inputs of a map-style dataset, read one by one and stacked; shapes and types must agree.

    Random draws of the dataset itself come from no generator of the run, so they do not resume.
    """

    dataset: Dataset[Any]
    shape: tuple[int, ...]
    dtype: torch.dtype

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def take(self, rows: Tensor) -> Tensor:
        """Read a batch; a sample of another shape or type raises an error that names it."""
        inputs = [_read_input(self.dataset, row) for row in rows.tolist()]
        for row, x in zip(rows.tolist(), inputs, strict=True):
            if tuple(x.shape) != self.shape or x.dtype != self.dtype:
                raise DataError(f"sample {row} is {x.dtype} {list(x.shape)}, the first {self.dtype} {list(self.shape)}")
        return torch.stack(inputs) if inputs else torch.empty((0, *self.shape), dtype=self.dtype)


def _read_input(dataset: Dataset[Any], row: int) -> Tensor:
    value = _split_item(dataset[row])[0]
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        kind = type(value).__name__
        raise DataError(f"sample {row} is a {kind}: let the dataset transform its inputs to tensors") from None


def _split_item(item: Any) -> tuple[Any, Any]:
    """Return input and label of one item: the first two of a sequence, or the entries of a dict."""
    if isinstance(item, (Tensor, np.ndarray)) or not isinstance(item, (Mapping, Sequence)) or len(item) < 2:
        raise DataError(f"a sample is a {type(item).__name__}, not (input, label): give (x, y), or a dataset of pairs")
    if not isinstance(item, Mapping):
        return item[0], item[1]
    label = next((key for key in LABELS if key in item), None)
    inputs = [key for key in item if key not in LABELS]
    if label is None or len(inputs) != 1:
        raise DataError(
            f"a sample is a dict with {', '.join(map(str, item))}, but one input and one of {', '.join(LABELS)} are "
            "needed; wrap the dataset so that it gives (input, label)"
        )
    return item[inputs[0]], item[label]


def _take_dataset(loader: DataLoader[Any]) -> Dataset[Any]:
    """Return the dataset of a loader; the learner makes its own batches."""
    if loader.collate_fn is not default_collate:
        raise DataError(
            "a DataLoader with a collate_fn of its own cannot be a task: pass its dataset, and let that do what the "
            "collate_fn does to each sample"
        )
    return loader.dataset


@cache
def _warn_rounded() -> None:
    """Warn once that inputs lose digits."""
    log.warning("inputs are float64, the model is not: they are rounded to float32 (model.double() keeps all digits)")


def as_samples(data: Data, precision: torch.dtype | None = None) -> Samples:
    """Return samples of ``(x, y)`` arrays, or of a dataset of (input, label) pairs or dicts.

    Args:
        data: samples, ``(x, y)``, a dataset, or a ``DataLoader``, of which the dataset is taken.
        precision: the model's type. Float arrays are stored as float32, float64 ones as they are if
            the model is float64; otherwise a warning says that they are rounded.

    Labels are a dataset's ``targets`` if it has them; otherwise every item is read once.
    """
    if isinstance(data, Samples):
        return data
    if isinstance(data, DataLoader):
        data = _take_dataset(data)
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        data = (data.tensors[0], data.tensors[1])
    if isinstance(data, (Tensor, np.ndarray)):
        raise DataError(f"inputs {list(data.shape)} without labels: give (x, y)")
    if isinstance(data, tuple):
        if len(data) != 2:
            raise DataError(f"a tuple of {len(data)} parts: give (x, y), inputs and labels")
        x, y = (torch.as_tensor(part) for part in data)
        if x.dim() == 0 or x.dtype in (torch.bool, torch.int64, torch.complex64):
            raise DataError(f"inputs are uint8 or float [N, ...], not {x.dtype} {list(x.shape)}")
        if x.is_floating_point() and not bool(torch.isfinite(x).all()):
            raise DataError("inputs hold values that are not finite")
        if x.dtype == torch.float64 and precision not in (None, torch.float64):
            _warn_rounded()
        as_it_is = x.dtype in (torch.uint8, precision) and x.dtype in (torch.uint8, torch.float64)
        return Samples.of(x if as_it_is else x.float(), _check_labels(y, len(x)))
    try:
        count = len(data)  # type: ignore[arg-type]
    except TypeError:
        raise DataError(f"{type(data).__name__} has no length: an iterable dataset cannot be a task") from None
    if count == 0:
        raise DataError(f"{type(data).__name__} is empty")
    targets = getattr(data, "targets", None)
    y = torch.as_tensor(targets if targets is not None else [_read_label(data, row) for row in range(count)])
    first = _read_input(data, 0)
    return Samples.of(DatasetSource(data, tuple(first.shape), first.dtype), _check_labels(y, count))


def _read_label(dataset: Dataset[Any], row: int) -> int:
    label = _split_item(dataset[row])[1]
    try:
        number = int(label)
    except (TypeError, ValueError, RuntimeError):
        number = -1
    if isinstance(label, str) or number < 0 or number != label:
        given = list(label.shape) if isinstance(label, Tensor) and label.dim() else repr(label)
        by_name = "; names are taken in (x, y), or as numbers with classes=[...]"
        hint = by_name if isinstance(label, str) else _NUMBERS_ONLY
        raise DataError(f"sample {row} has the label {given}: labels are whole numbers from 0 on{hint}")
    return number


_NUMBERS_ONLY = "; regression and multi-label targets are not supported here (TMLN in your own loop takes any loss)"


def _check_labels(y: Tensor, count: int) -> Tensor:
    """Return labels as int64; an error has the line that converts what are no class numbers."""
    if y.dim() == 2 and len(y) == count and y.shape[1] > 1 and bool(((y == 0) | (y == 1)).all()):
        if bool((y.sum(1) == 1).all()):
            raise DataError(f"labels {list(y.shape)} are one-hot: give class numbers, y.argmax(1)")
        raise DataError(f"labels {list(y.shape)} name several classes of a sample{_NUMBERS_ONLY}")
    if y.shape == (count, 1) and not y.is_floating_point():
        raise DataError(f"{count} inputs but labels of shape {list(y.shape)}: give y.squeeze(1)")
    if y.is_floating_point() and count and (not bool((y == y.round()).all()) or y.dim() > 1):
        raise DataError(f"labels are {y.dtype} {list(y.shape)}, not whole numbers of classes{_NUMBERS_ONLY}")
    if y.dim() != 1 or len(y) != count:
        raise DataError(f"{count} inputs but labels of shape {list(y.shape)}")
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool or (count and int(y.min()) < 0):
        hint = "" if count and y.min() < 0 else ": give y.long() if they are classes"
        raise DataError(f"labels are whole numbers from 0 on, not {y.dtype} from {y.min().item()}{hint}")
    return y.long()


def number_labels(data: Any, names: Sequence[str] | None = None) -> tuple[Any, tuple[str, ...] | None]:
    """Return ``(x, y)`` whose labels are strings with numbers in their place, and the names.

    Names are in the order of ``names``, or sorted. Other data are returned as they are, with None.

    >>> number_labels(([[0.0], [1.0]], ["owl", "ant"]))[0][1], number_labels(([[0.0]], ["owl"]))[1]
    (tensor([1, 0]), ('owl',))
    """
    if not (isinstance(data, tuple) and len(data) == 2) or isinstance(data[1], Tensor):
        return data, None
    labels = np.asarray(data[1])
    if labels.ndim != 1 or not len(labels) or not all(isinstance(label, str) for label in labels.tolist()):
        return data, None
    found = tuple(names or sorted(set(labels.tolist())))
    places = {name: index for index, name in enumerate(found)}
    unknown = next((label for label in labels.tolist() if label not in places), None)
    if unknown is not None:
        raise DataError(f"the label {unknown!r} is none of the classes given: {', '.join(found)}")
    return (data[0], torch.tensor([places[label] for label in labels.tolist()])), found


def name_classes(class_names: Sequence[str] | None, parts: Iterable[Samples]) -> tuple[str, ...]:
    """Return a name for every label: the given names, else the numbers."""
    highest = max(int(part.y.max()) for part in parts if len(part))
    names = tuple(class_names or (str(label) for label in range(highest + 1)))
    if highest >= len(names):
        raise DataError(f"label {highest}, but only {len(names)} class names")
    return names


def stream_of_tasks(
    tasks: Sequence[tuple[Data, Data]] | Mapping[str, tuple[Data, Data]],
    *,
    name: str = "arrays",
    class_names: Sequence[str] | None = None,
    mean: Colour = (0.0,),
    std: Colour = (1.0,),
    augment: Augment | None = None,
    prepare: Prepare | None = None,
    domains: bool = False,
    skip_bad: bool = False,
) -> Stream:
    """Make a stream of (train, test) pairs, in order; a mapping names the tasks."""
    named = tasks if isinstance(tasks, Mapping) else {f"task {i}": pair for i, pair in enumerate(tasks, 1)}
    if not named:
        raise DataError("a stream needs at least one task")
    pairs = {key: (as_samples(train), as_samples(test)) for key, (train, test) in named.items()}
    names = name_classes(class_names, (part for pair in pairs.values() for part in pair))
    shapes = {part.shape for pair in pairs.values() for part in pair}
    if len(shapes) > 1:
        raise DataError(f"inputs of different shapes: {sorted(shapes)}")
    parts = [
        Task(key, train, test, tuple(sorted({*train.classes, *test.classes})), key if domains else None)
        for key, (train, test) in pairs.items()
    ]
    pool = TrainTestData(*next(iter(pairs.values())), names, mean, std)
    return assemble(name, pool, Options(skip_bad=skip_bad), parts, {}, augment=augment, prepare=prepare)


def stream_of_classes(
    train: Data,
    test: Data,
    tasks: int,
    *,
    name: str = "arrays",
    class_names: Sequence[str] | None = None,
    mean: Colour = (0.0,),
    std: Colour = (1.0,),
    augment: Augment | None = None,
    prepare: Prepare | None = None,
    **options: Any,
) -> Stream:
    """Split one data set into ``tasks`` tasks by class; takes the options of ``SplitOptions``."""
    split = read_options("stream_of_classes", SplitOptions, {"tasks": tasks, **options})
    trained, tested = as_samples(train), as_samples(test)
    pool = TrainTestData(trained, tested, name_classes(class_names, (trained, tested)), mean, std)
    return split_by_class(name, pool, split, tasks=tasks, augment=augment, prepare=prepare)
