"""Benchmarks of your own data: arrays, torch and Hugging Face datasets, and files that name them.

``--benchmark`` takes ``module:function`` (with ``--allow-code``), an ``.npz``, a ``.csv`` or
``.parquet`` of paths and labels, and ``hf:NAME``. Data are read into memory whole, and a run's
identity has their fingerprint: changed data are another run.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from tmln.data import BadData, DataError, data_root
from tmln.data.folder import hold_out
from tmln.data.image_files import ImageFile, load_images
from tmln.data.own_data import choose_reader, load_npz
from tmln.streams.arrays import LABELS, as_samples, name_classes, number_labels
from tmln.streams.benchmarks import BENCHMARKS
from tmln.streams.incremental import split_by_class
from tmln.streams.options import IN_MEMORY, OwnOptions, is_own_code, read_options
from tmln.streams.samples import Samples
from tmln.streams.stream import Stream
from tmln.streams.train_test import TrainTestData
from tmln.user_code import check_code, found_code

Layout: TypeAlias = Literal["auto", "chw", "hwc"]
CHANNELS = (1, 3, 4)  # of images: grey, colour, colour with opacity
INPUTS = ("image", "images", "img", "pixel_values", "input", "inputs", "x", "path", "file", "filename", "features")
TRAIN, TEST = ("train", "training"), ("test", "validation", "valid", "val")


@dataclass(frozen=True, eq=False)
class OwnArrays:
    """Inputs, channels first, and labels by number, to train on and to test; and class names."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    names: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """Return 16 digits of a hash of all inputs, labels and names."""
        digest = hashlib.sha256("\0".join(self.names).encode())
        for part in (*self.train, *self.test):
            digest.update(f"{part.dtype} {list(part.shape)}".encode())
            digest.update(np.ascontiguousarray(part.numpy()).data)
        return digest.hexdigest()[:16]


def from_arrays(
    x: Any,
    y: Any,
    x_test: Any = None,
    y_test: Any = None,
    *,
    classes: Sequence[str] | None = None,
    layout: Layout = "auto",
    test_fraction: float = 0.2,
    **options: Any,
) -> Stream:
    """Make a class-incremental stream of arrays or tensors, for :func:`tmln.compare` or a loop.

    >>> x, y = np.zeros((40, 8, 8, 3), np.uint8), np.arange(40) % 4
    >>> stream = from_arrays(x, y, tasks=2)
    >>> len(stream), stream.shape, stream.class_names
    (2, (3, 8, 8), ('0', '1', '2', '3'))

    Args:
        x: Inputs [N, ...]: uint8 or float. Images are [N, H, W], [N, H, W, C] or [N, C, H, W].
        y: Labels: whole numbers from 0 on, or words.
        x_test: Inputs to test on; without them a share of each class is held out.
        y_test: Their labels.
        classes: Names of the classes, where labels are numbers.
        layout: Of images: ``chw`` or ``hwc``, where sizes do not show it.
        test_fraction: The share that is held out.
        **options: Further options of benchmarks: ``tasks``, ``class_order``, ``validation``, ...
    """
    given = {"layout": layout, "test_fraction": test_fraction, **options}
    test = None if x_test is None else (x_test, y_test)
    return _stream_in_memory((x, y) if test is None else ((x, y), test), given, classes)


def from_dataset(
    train: Any,
    test: Any = None,
    *,
    input: str | None = None,
    label: str | None = None,
    classes: Sequence[str] | None = None,
    **options: Any,
) -> Stream:
    """Make a class-incremental stream of torch or Hugging Face datasets, or of a ``DatasetDict``.

    Args:
        train: A map-style ``torch.utils.data.Dataset`` of (input, label), torchvision's included, a
            Hugging Face ``Dataset``, or a ``DatasetDict``, whose splits are train and test.
        test: The same to test on; without it a share of each class is held out.
        input: The column of inputs, of datasets with columns.
        label: The column of labels.
        classes: Names of the classes, where the data have none.
        **options: As of :func:`from_arrays`.
    """
    given = {"input": input, "label": label, **options}
    return _stream_in_memory(train if test is None else (train, test), given, classes)


_streams: dict[str, Stream] = {}  # that this program made, by fingerprint: tmln.compare runs on them


def _stream_in_memory(found: Any, given: Mapping[str, Any], classes: Sequence[str] | None) -> Stream:
    kept = {key: value for key, value in given.items() if value is not None}
    options = read_options("from_arrays", OwnOptions, {"path": IN_MEMORY, **kept})
    return make_stream_of(read_splits(found, options, classes), options)


def keep_stream(stream: Stream) -> str:
    """Keep a stream for the runs of this process, and return the fingerprint that names it."""
    digest = hashlib.sha256(repr((stream.class_names, stream.shape)).encode())
    for task in stream:
        for samples in (task.train, task.test):
            digest.update(repr((task.name, task.classes)).encode())
            digest.update(np.ascontiguousarray(samples.y.numpy()).data)
            for start in range(0, len(samples), 1024):
                rows = torch.arange(start, min(start + 1024, len(samples)))
                digest.update(np.ascontiguousarray(samples.gather(rows)[0].numpy()).data)
    fingerprint = digest.hexdigest()[:16]
    _streams[fingerprint] = stream
    return fingerprint


def find_stream(fingerprint: str) -> Stream:
    """Return a stream that this program keeps."""
    if fingerprint not in _streams:
        raise DataError(
            f"the data {fingerprint or 'of this run'} were given by a program, not by name: run that program again"
        )
    return _streams[fingerprint]


# -- by name --


def fingerprint_of(options: OwnOptions) -> str:
    """Return the fingerprint of the data that the options name, reading them."""
    if options.path == IN_MEMORY:
        find_stream("")  # which raises the error
    return _load(options).fingerprint


def make_own_stream(options: OwnOptions) -> Stream:
    """Make tasks of the classes in the user's own data, by default two classes per task."""
    if options.path == IN_MEMORY:
        plain = OwnOptions(path=IN_MEMORY, fingerprint=options.fingerprint)
        if differing := [key for key in OwnOptions.model_fields if getattr(options, key) != getattr(plain, key)]:
            raise DataError(
                f"benchmark.{differing[0]} is an option of the stream itself: pass {differing[0]}= to from_arrays"
            )
        return find_stream(options.fingerprint)
    found = _load(options)
    if options.fingerprint not in ("", found.fingerprint):
        raise DataError(
            f"{options.path}: the data have changed since the run began ({found.fingerprint} now, then "
            f"{options.fingerprint}); begin another run, or restore the data"
        )
    return make_stream_of(found, options)


def make_stream_of(found: OwnArrays, options: OwnOptions) -> Stream:
    """Split arrays into tasks by class, as the options say."""
    from tmln.streams.scenarios import choose_augment

    train, test = (Samples.of(*part) for part in (found.train, found.test))
    pool = TrainTestData(train, test, found.names)
    augment = choose_augment(BENCHMARKS["own"], options, pool)
    tasks = max(1, len(found.names) // 2)
    return split_by_class(f"own:{options.path}", pool, options, tasks=tasks, augment=augment)


def _load(options: OwnOptions) -> OwnArrays:
    path = Path(options.path)
    stamp = (path.stat().st_mtime_ns, path.stat().st_size) if path.is_file() else (0, 0)
    plain = OwnOptions(
        **{key: getattr(options, key) for key in ("path", "input", "label", "layout", "size", "test_fraction", "seed")}
    )
    return _load_once(plain, stamp)


@lru_cache(maxsize=2)
def _load_once(options: OwnOptions, stamp: tuple[int, int]) -> OwnArrays:
    """Read the data that the options name; the last ones are kept."""
    path = options.path
    if path.startswith("hf:"):
        return read_splits(load_hugging_face(path.removeprefix("hf:")), options)
    if is_own_code(path):
        check_code("benchmark", path)
        made = found_code("benchmark", path)
        if not callable(made):
            raise DataError(f"benchmark {path!r} is a {type(made).__name__}, not a function that returns data")
        return read_splits(made(), options)
    file = Path(path)
    if not file.is_file():
        raise DataError(f"{path}: no such file")
    if file.suffix == ".npz":
        return read_splits(_read_npz(file), options)
    return read_splits(_read_table(file, options), options.model_copy(update={"layout": "chw"}))


def _read_npz(file: Path) -> Any:
    """Return x and y (or x_train, y_train), x_test, y_test and classes of an ``.npz``."""
    names = ("x", "y", "x_train", "y_train", "x_test", "y_test", "classes")
    return load_npz(file, (), names)


def load_hugging_face(name: str) -> Any:
    """Load a data set of the Hugging Face hub, or a local folder; none of its code."""
    try:
        import datasets
    except ImportError as error:
        raise ImportError("hf:NAME needs datasets: pip install 'tmln[huggingface]'") from error
    folder = Path(name).expanduser()
    saved = folder.is_dir() and any((folder / file).is_file() for file in ("dataset_dict.json", "state.json"))
    try:
        if saved:
            return datasets.load_from_disk(str(folder))
        return datasets.load_dataset(str(folder) if folder.is_dir() else name)
    except Exception as error:  # of any kind: a network, a server, a file
        raise DataError(f"hf:{name} cannot be loaded: {' '.join(str(error).split())[:300]}") from error


# -- what functions and files give --


def read_splits(found: Any, options: OwnOptions, classes: Sequence[str] | None = None) -> OwnArrays:
    """Return arrays of training and test samples.

    Args:
        found: ``(x, y)``, ``(x, y, x_test, y_test)``, ``(train, test)``, a mapping of splits or of
            these arrays, or one dataset.
        options: Columns, layout, and the share that is held out where there is no test set.
        classes: Names of the classes.
    """
    train, test, named = _pair(found)
    names = classes or named
    first, second = _read_part(train, options), None if test is None else _read_part(test, options)
    names = names or first.names
    parts = [part for part in (first, second) if part is not None]
    if len({_is_words(part.y) for part in parts}) > 1:
        raise DataError("labels to train on and to test on are words in one and numbers in the other")
    if _is_words(first.y):
        names = names or sorted({str(label) for part in parts for label in part.y.tolist()})
    samples = [as_samples(number_labels((part.x, part.y), names)[0]) for part in parts]
    if second is None:
        samples = _hold_out(samples[0], options)
    elif samples[0].shape != samples[1].shape:
        raise DataError(f"inputs to train on have the shape {samples[0].shape}, those to test on {samples[1].shape}")
    names = name_classes(None if names is None else [*map(str, names)], samples)
    pairs = [(part.gather(torch.arange(len(part)))[0].contiguous(), part.y) for part in samples]
    return OwnArrays(pairs[0], pairs[1], names)


@dataclass(frozen=True, eq=False)
class _Part:
    x: Tensor
    y: NDArray[Any]
    names: tuple[str, ...] | None = None


def _pair(found: Any) -> tuple[Any, Any, Sequence[str] | None]:
    """Return what to train on, what to test on (or None), and the names of classes, if given."""
    if isinstance(found, Mapping):
        keys = {str(key).lower(): key for key in found}
        x, y = (next((keys[k] for k in names if k in keys), None) for names in (("x", "x_train"), ("y", "y_train")))
        if x is not None and y is not None:
            test = (found[keys["x_test"]], found[keys["y_test"]]) if {"x_test", "y_test"} <= keys.keys() else None
            names = [str(name) for name in found[keys["classes"]]] if "classes" in keys else None
            return (found[x], found[y]), test, names
        train, test = (next((found[keys[k]] for k in names if k in keys), None) for names in (TRAIN, TEST))
        if train is None:
            raise DataError(f"there is no split 'train' among {', '.join(map(str, found))}, nor arrays x and y")
        return train, test, None
    if isinstance(found, tuple) and len(found) == 4:
        return (found[0], found[1]), (found[2], found[3]), None
    if isinstance(found, tuple) and len(found) == 2 and not _is_array(found[0]):
        return found[0], found[1], None
    if isinstance(found, tuple) and len(found) != 2:
        raise DataError(f"{len(found)} values: give (x, y), (x, y, x_test, y_test), or (train, test)")
    return found, None, None


def _is_array(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray, list))


def _read_part(data: Any, options: OwnOptions) -> _Part:
    """Read one split into memory, whatever it is, with images channels first."""
    names: tuple[str, ...] | None = None
    if isinstance(data, tuple):
        x, y = torch.as_tensor(data[0]), np.asarray(data[1])
    elif hasattr(data, "column_names"):  # a Hugging Face Dataset
        x, y, names = _read_columns(data, options)
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        x, y, names = _read_items(data)
    else:
        raise DataError(
            f"a {type(data).__name__} is no data: give arrays (x, y), a map-style torch Dataset, or a Hugging Face one"
        )
    if x.dim() < 2 or len(x) != len(y) or not len(x):
        raise DataError(f"inputs {list(x.shape)} and {len(y)} labels: one label for each of N inputs [N, ...]")
    if x.dtype == torch.float64:
        x = x.float()
    return _Part(to_channels_first(x, options.layout), y, names)


def _read_items(data: Dataset[Any]) -> tuple[Tensor, NDArray[Any], tuple[str, ...] | None]:
    """Read a map-style dataset of (input, label); pictures become arrays."""
    inputs, labels = [], []
    for row in range(len(data)):  # type: ignore[arg-type]
        item = data[row]
        if isinstance(item, Mapping):
            item = tuple(item[_choose(list(item), None, names, what)] for names, what in _WANTED)
        if not isinstance(item, (tuple, list)) or len(item) < 2:
            raise DataError(f"sample {row} is a {type(item).__name__}, not (input, label)")
        inputs.append(_as_tensor(item[0], row))
        labels.append(item[1])
    names = getattr(data, "classes", None)
    return _stack(inputs), np.asarray(labels), tuple(map(str, names)) if isinstance(names, (list, tuple)) else None


_WANTED = ((INPUTS, "input"), (LABELS, "label"))


def _read_columns(data: Any, options: OwnOptions) -> tuple[Tensor, NDArray[Any], tuple[str, ...] | None]:
    """Read a Hugging Face dataset by the names of its columns."""
    columns = list(data.column_names)
    label = _choose(columns, options.label, LABELS, "label")
    source = _choose([name for name in columns if name != label], options.input, INPUTS, "input")
    names = getattr(data.features[label], "names", None)
    data = data.with_format("numpy") if hasattr(data, "with_format") else data
    inputs = [_as_tensor(value, row) for row, value in enumerate(data[source])]
    return _stack(inputs), np.asarray([*data[label]]), None if names is None else tuple(names)


def _choose(columns: Sequence[str], asked: str | None, usual: Sequence[str], what: str) -> str:
    """Return the column that is asked for, or the only one with a usual name."""
    listed = ", ".join(columns) or "none"
    if asked is not None:
        if asked not in columns:
            raise DataError(f"there is no column {asked!r} for the {what} (columns: {listed})")
        return asked
    found = [name for name in columns if name.lower() in usual]
    if len(found) == 1 or (not found and len(columns) == 1):
        return (found or list(columns))[0]
    raise DataError(f"which column is the {what}? set benchmark.{what}=NAME (columns: {listed})")


def _as_tensor(value: Any, row: int) -> Tensor:
    array = value if isinstance(value, Tensor) else np.asarray(value)
    try:
        return torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(f"sample {row} is a {type(value).__name__}, which is no picture and no array") from None


def _stack(inputs: Sequence[Tensor]) -> Tensor:
    if not inputs:
        raise DataError("there are no samples")
    for row, x in enumerate(inputs):
        if x.shape != inputs[0].shape or x.dtype != inputs[0].dtype:
            raise DataError(
                f"sample {row} is {x.dtype} {list(x.shape)}, the first {inputs[0].dtype} {list(inputs[0].shape)}: "
                "resize them to one size"
            )
    return torch.stack(list(inputs))


def to_channels_first(x: Tensor, layout: Layout = "auto") -> Tensor:
    """Return images [N, C, H, W]; other arrays as they are.

    Of four dimensions, the channels are where there are 1, 3 or 4 of them. Where both ends or
    neither fit, nothing is guessed: ``layout`` says it. Images [N, H, W] of whole numbers are grey.

    >>> tuple(to_channels_first(torch.zeros(5, 8, 9, 3)).shape)
    (5, 3, 8, 9)
    """
    if x.dim() == 3 and x.dtype == torch.uint8:
        return x.unsqueeze(1)
    if x.dim() != 4:
        return x
    first, last = x.shape[1] in CHANNELS, x.shape[3] in CHANNELS
    if layout == "auto" and first == last:
        raise DataError(
            f"inputs {list(x.shape)}: is it [N, C, H, W] or [N, H, W, C]? set benchmark.layout=chw or hwc (layout=...)"
        )
    is_last = layout == "hwc" or (layout == "auto" and last)
    return x.permute(0, 3, 1, 2).contiguous() if is_last else x


def _is_words(y: NDArray[Any]) -> bool:
    return y.dtype.kind in "UO" and all(isinstance(label, str) for label in y.tolist())


def _hold_out(samples: Samples, options: OwnOptions) -> list[Samples]:
    """Return training and test samples: a share of each class is held out at random."""
    files = [ImageFile(Path(str(row)), label) for row, label in enumerate(samples.y.tolist())]
    marked = torch.tensor([file.test for file in hold_out(files, options.test_fraction, options.seed)])
    return [samples.subset((marked == role).nonzero().squeeze(1)) for role in (False, True)]


def _read_table(file: Path, options: OwnOptions) -> Any:
    """Read the pictures and labels of a table of paths; a column ``split`` says which are tests."""
    columns = _read_csv(file) if file.suffix == ".csv" else _read_parquet(file)
    names = list(columns)
    label = _choose(names, options.label, LABELS, "label")
    source = _choose([name for name in names if name not in (label, "split")], options.input, INPUTS, "input")
    paths = [file.parent / Path(str(path)).expanduser() for path in columns[source]]
    labels = columns[label]
    if all(str(value).isdecimal() for value in labels):
        labels = [int(value) for value in labels]
    with BadData(str(file), False) as bad:
        reader = choose_reader(paths, None, options.size)
        pixels, kept = load_images(paths, reader, bad, data_root() / "prepared" / "own")
    x, y = np.asarray(pixels)[kept], np.asarray(labels)[kept]
    x = x if x.ndim == 4 else x[..., None]
    x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))  # known here, whatever the sizes show
    if "split" not in columns:
        return (x, y)
    words = np.asarray([str(value).lower() for value in columns["split"]])[kept]
    if odd := sorted(set(words.tolist()) - {*TRAIN, *TEST}):
        raise DataError(f"{file}: split is {' or '.join((TRAIN[0], TEST[0]))}, not {odd[0]!r}")
    is_test = np.isin(words, TEST)
    return (x[~is_test], y[~is_test], x[is_test], y[is_test])


def _read_csv(file: Path) -> dict[str, list[Any]]:
    try:
        with file.open(encoding="utf-8", newline="") as opened:
            rows = list(csv.DictReader(opened))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} is no CSV in UTF-8: {error}") from None
    if not rows or any(None in row or None in row.values() for row in rows):
        raise DataError(f"{file}: a first line with the names of columns, then one line for each picture")
    return {name: [row[name] for row in rows] for name in rows[0]}


def _read_parquet(file: Path) -> dict[str, list[Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ImportError(".parquet needs pyarrow: pip install 'tmln[huggingface]'") from error
    try:
        found: dict[str, list[Any]] = parquet.read_table(file).to_pydict()
    except (OSError, ArrowException) as error:
        raise DataError(f"{file} cannot be read: {' '.join(str(error).split())[:200]}") from None
    return found
