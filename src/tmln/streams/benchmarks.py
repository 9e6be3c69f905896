"""The table of benchmarks, and ``make_stream``, which finds one in it and checks its options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from tmln.streams.cifar import split_cifar10, split_cifar100
from tmln.streams.core50 import Core50Options, core50
from tmln.streams.digits import rotated_digits, split_digits
from tmln.streams.folder import FolderOptions, folder
from tmln.streams.mnist import permuted_mnist, rotated_mnist, split_fashion_mnist, split_mnist
from tmln.streams.options import Options, SplitOptions
from tmln.streams.stream import Stream
from tmln.streams.tiny_imagenet import split_tiny_imagenet
from tmln.suggest import did_you_mean


@dataclass(frozen=True)
class Benchmark:
    """One row: what builds the stream, the options it takes, the data it needs (None: nothing to fetch)."""

    build: Callable[[Any], Stream]
    options: type[Options]
    summary: str
    data: str | None = None


BENCHMARKS: dict[str, Benchmark] = {
    "split-digits": Benchmark(split_digits, SplitOptions, "8x8 digits, 5 tasks of 2 classes, embedded"),
    "rotated-digits": Benchmark(rotated_digits, Options, "8x8 digits under 8 rotations, embedded"),
    "split-mnist": Benchmark(split_mnist, SplitOptions, "MNIST, 5 tasks of 2 classes", "mnist"),
    "permuted-mnist": Benchmark(permuted_mnist, Options, "MNIST under 10 permutations of its pixels", "mnist"),
    "rotated-mnist": Benchmark(rotated_mnist, Options, "MNIST under 10 rotations", "mnist"),
    "split-fashion-mnist": Benchmark(
        split_fashion_mnist, SplitOptions, "Fashion-MNIST, 5 tasks of 2 classes", "fashion-mnist"
    ),
    "split-cifar10": Benchmark(split_cifar10, SplitOptions, "CIFAR-10, 5 tasks of 2 classes", "cifar10"),
    "split-cifar100": Benchmark(split_cifar100, SplitOptions, "CIFAR-100, 10 tasks of 10 classes", "cifar100"),
    "split-tiny-imagenet": Benchmark(
        split_tiny_imagenet, SplitOptions, "Tiny-ImageNet, 10 tasks of 20 classes", "tiny-imagenet"
    ),
    "core50": Benchmark(core50, Core50Options, "CORe50, 8 sessions as domains, 10 categories", "core50"),
    "folder": Benchmark(folder, FolderOptions, "your own images: folder:PATH"),
}


def make_stream(name: str, **options: object) -> Stream:
    """The stream of a benchmark: ``make_stream("split-cifar100", class_order="icarl1993", per_class=50)``.

    ``folder:PATH`` is a folder of the user's images.
    """
    row, _, path = name.partition(":")
    if row not in BENCHMARKS or (path and row != "folder"):
        raise ValueError(f"unknown benchmark {name!r}{did_you_mean(name, BENCHMARKS)} (tmln list benchmarks)")
    benchmark = BENCHMARKS[row]
    if row == "folder":
        options = {**({"path": path} if path else {}), **options}
        if "path" not in options:
            raise ValueError("benchmark 'folder' is called folder:PATH")
    return benchmark.build(checked_options(name, benchmark.options, options))


def checked_options(name: str, kind: type[Options], given: dict[str, object]) -> Options:
    """Options of this kind; names and types are checked, and text as it comes from a command line is read."""
    from pydantic import TypeAdapter, ValidationError

    known = [field.name for field in fields(kind)]
    for option in given:
        if option not in known:
            hint = did_you_mean(option, known) or f"; it takes {', '.join(known)}"
            raise ValueError(f"unknown option {option!r} of {name}{hint}")
    try:
        return TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        place = f"option {first['loc'][0]!r}: " if first["loc"] else ""
        reason = first["msg"].removeprefix("Value error, ").removesuffix(" for <class 'pathlib.Path'>")
        value = f", not {first['input']!r}" if first["loc"] else ""
        raise ValueError(f"{name}: {place}{reason}{value}") from None
