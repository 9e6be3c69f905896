"""The table of benchmarks. It is read without torch; ``make_stream`` imports it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tmln.streams.options import (
    Core50Options,
    Described,
    DomainOptions,
    FolderOptions,
    ImageOptions,
    Options,
    OwnOptions,
    PictureOptions,
    SplitOptions,
    TextDomainOptions,
    TextOptions,
    describe_options,
    is_own_code,
    is_own_file,
    read_options,
)
from tmln.suggest import did_you_mean

if TYPE_CHECKING:
    from tmln.streams.stream import Stream


@dataclass(frozen=True)
class Benchmark:
    """One row: the data, how they become tasks, the options, and the defaults of a run.

    ``scenario`` is a key of ``scenarios.SCENARIOS``, ``data`` a key of ``tmln.data.DATA``; if it is
    None, the data are the user's and the benchmark is named NAME:PATH. ``tasks`` is None if the
    data determine it. Models, epochs and rates are the paper's if the paper states them.
    ``augment`` is what ``augment=auto`` stands for, ``crop`` what the crop in ``crop-flip`` is.
    """

    title: str
    summary: str
    scenario: str
    data: str | None
    options: type[Options]
    tasks: int | None
    model: str
    epochs: int
    batch_size: int = 128
    lr: float = 0.01
    augment: Literal["none", "crop-flip", "paper"] = "none"
    crop: Literal["shift-flip", "resized-crop"] = "shift-flip"


# fmt: off
BENCHMARKS: dict[str, Benchmark] = {
    "split-digits": Benchmark(
        "Split Digits", "8x8 digits, 5 tasks of 2 classes, embedded", "split", "digits", SplitOptions,
        tasks=5, model="mlp", epochs=10, batch_size=32),
    "rotated-digits": Benchmark(
        "Rotated Digits", "8x8 digits under 8 rotations, embedded", "rotated", "digits", Options,
        tasks=8, model="mlp", epochs=10, batch_size=32),
    "split-mnist": Benchmark(
        "Split MNIST", "MNIST, 5 tasks of 2 classes", "split", "mnist", ImageOptions, tasks=5, model="mlp", epochs=5),
    "permuted-mnist": Benchmark(
        "Permuted MNIST", "MNIST under 10 permutations of its pixels", "permuted", "mnist", Options,
        tasks=10, model="mlp", epochs=5),
    "rotated-mnist": Benchmark(
        "Rotated MNIST", "MNIST under 10 rotations", "rotated", "mnist", Options, tasks=10, model="mlp", epochs=5),
    "split-fashion-mnist": Benchmark(
        "Split Fashion-MNIST", "Fashion-MNIST, 5 tasks of 2 classes", "split", "fashion-mnist", ImageOptions,
        tasks=5, model="mlp", epochs=5),
    "split-cifar10": Benchmark(
        "Split CIFAR-10", "CIFAR-10, 5 tasks of 2 classes", "split", "cifar10", ImageOptions,
        tasks=5, model="resnet18", epochs=20, augment="paper"),
    "split-cifar100": Benchmark(
        "Split CIFAR-100", "CIFAR-100, 10 tasks of 10 classes", "split", "cifar100", ImageOptions,
        tasks=10, model="resnet18", epochs=50, augment="paper"),
    "split-tiny-imagenet": Benchmark(
        "Split Tiny-ImageNet", "Tiny-ImageNet, 10 tasks of 20 classes", "split", "tiny-imagenet", ImageOptions,
        tasks=10, model="resnet18", epochs=50, augment="crop-flip"),
    "split-cub200": Benchmark(
        "Split CUB-200", "CUB-200-2011, 10 tasks of 20 species of birds", "split", "cub200", PictureOptions,
        tasks=10, model="efficientnet-lite0", epochs=10, batch_size=32, augment="crop-flip"),
    "core50": Benchmark(
        "CORe50", "CORe50, 8 sessions as domains, 10 categories", "sessions", "core50", Core50Options,
        tasks=8, model="mobilenetv2", epochs=20, augment="paper", crop="resized-crop"),
    "pacs": Benchmark(
        "PACS", "PACS, 4 domains from photo to sketch, 7 classes", "domains", "pacs", DomainOptions,
        tasks=4, model="resnet18-slim", epochs=20, augment="paper"),
    "split-clinc150": Benchmark(
        "Split CLINC150", "CLINC150, 10 tasks of the 15 intents of a domain", "split", "clinc150", TextOptions,
        tasks=10, model="minilm", epochs=5, batch_size=32),
    "split-banking77": Benchmark(
        "Split Banking77", "Banking77, 7 tasks of 11 intents", "split", "banking77", TextOptions,
        tasks=7, model="minilm", epochs=5, batch_size=32),
    "text-domains": Benchmark(
        "Text domains", "classification of texts, 4 domains from reviews to news", "text-domains", "olora",
        TextDomainOptions, tasks=4, model="minilm", epochs=2, batch_size=32),
    "folder": Benchmark(
        "Folder", "your own images: folder:PATH", "folder", None, FolderOptions,
        tasks=None, model="resnet18-slim", epochs=10),
    "own": Benchmark(
        "Own data", "your own data: module:function, FILE.npz, FILE.csv, FILE.parquet, hf:NAME", "own", None,
        OwnOptions, tasks=None, model="mlp", epochs=10),
}
# fmt: on


def split_name(name: str) -> tuple[str, str]:
    """Return row and path of a benchmark's name; data of one's own need no ``own:`` before them.

    >>> split_name("folder:photos"), split_name("my_data:make"), split_name("split-digits")
    (('folder', 'photos'), ('own', 'my_data:make'), ('split-digits', ''))
    """
    row, _, path = name.partition(":")
    meant = difflib.get_close_matches(row, ("folder", "own"), 1, 0.8)  # a slip of the finger is no module
    if row not in BENCHMARKS and (name.startswith("hf:") or is_own_file(name) or (is_own_code(name) and not meant)):
        return "own", name
    return row, path


def find_benchmark(name: str) -> Benchmark:
    """Return the row of a benchmark; ``folder:PATH`` belongs to ``folder``."""
    row, path = split_name(name)
    if row not in BENCHMARKS or (path and "path" not in BENCHMARKS[row].options.model_fields):
        raise ValueError(f"unknown benchmark {name!r}{did_you_mean(name, BENCHMARKS)} (tmln list benchmarks)")
    return BENCHMARKS[row]


def parse_options(name: str, given: Mapping[str, object]) -> Options:
    """Return a benchmark's options, checked, including the path in ``folder:PATH``."""
    kind = find_benchmark(name).options
    row, path = split_name(name)
    given = {**({"path": path} if path else {}), **given}
    if "path" in kind.model_fields and "path" not in given:
        raise ValueError(f"benchmark {row!r} is called {row}:PATH")
    return read_options(name, kind, given)


def group_options() -> dict[str, list[Described]]:
    """Return descriptions of all options, grouped by the benchmarks that take them."""
    users: dict[Described, list[str]] = {}
    for name, row in BENCHMARKS.items():
        for option in describe_options(row.options):
            users.setdefault(option, []).append(name)
    groups: dict[str, list[Described]] = {}
    for option, names in users.items():
        others = [name for name in BENCHMARKS if name not in names]
        every = f"every benchmark{' but ' if others else ''}{', '.join(others)}"
        heading = every if len(others) < 2 else ", ".join(names)
        groups.setdefault(heading, []).append(option)
    return groups


def check_data(name: str, given: Mapping[str, object]) -> None:
    """Raise if the data of a benchmark are not on this machine; the error says how to get them."""
    from tmln.data import DataError, locate

    row, options = find_benchmark(name), parse_options(name, given).model_dump()
    if row.data is not None:
        locate(row.data, options.get("root"))
    elif row.scenario == "folder" and not Path(options["path"]).expanduser().exists():
        raise DataError(f"there is no {options['path']}, which {name} reads")


def make_stream(name: str, **options: object) -> Stream:
    """Make the stream of a benchmark.

    ``make_stream("split-cifar100", class_order="icarl1993", per_class=50)``; ``folder:PATH`` is a
    folder of the user's images.
    """
    from tmln.streams.scenarios import SCENARIOS

    row = find_benchmark(name)
    return SCENARIOS[row.scenario](name, row, parse_options(name, options))
