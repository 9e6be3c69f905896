"""Arrays to tasks: benchmarks by name, and the user's own data."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tmln.data import BadDataWarning, DataError, check_data, data_root, download_bar, get_data, list_data
    from tmln.streams.arrays import as_samples, stream_of_classes, stream_of_tasks
    from tmln.streams.benchmarks import BENCHMARKS, Benchmark, make_stream
    from tmln.streams.own_benchmark import from_arrays, from_dataset
    from tmln.streams.samples import Samples, concat, prefetch
    from tmln.streams.stream import Stream, Task

# Imported when first used: the table of benchmarks is read without torch.
_HOMES = {
    "tmln.data": "BadDataWarning DataError check_data data_root download_bar get_data list_data",
    "tmln.streams.arrays": "as_samples stream_of_classes stream_of_tasks",
    "tmln.streams.benchmarks": "BENCHMARKS Benchmark make_stream",
    "tmln.streams.own_benchmark": "from_arrays from_dataset",
    "tmln.streams.samples": "Samples concat prefetch",
    "tmln.streams.stream": "Stream Task",
}
__all__ = [
    "BENCHMARKS", "BadDataWarning", "Benchmark", "DataError", "Samples", "Stream", "Task", "as_samples",
    "check_data", "concat", "data_root", "download_bar", "from_arrays", "from_dataset", "get_data", "list_data",
    "make_stream", "prefetch", "stream_of_classes", "stream_of_tasks",
]  # fmt: skip


if not TYPE_CHECKING:  # type checkers and editors follow the imports above, and refuse other names

    def __getattr__(name):
        for home, names in _HOMES.items():
            if name in names.split():
                return getattr(importlib.import_module(home), name)
        raise AttributeError(f"module 'tmln.streams' has no attribute {name!r}")
