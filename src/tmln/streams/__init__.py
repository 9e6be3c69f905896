"""Data becomes tasks: benchmarks by name, and the user's own data, as one small type."""

from tmln.data.bad import BadDataWarning, DataError
from tmln.data.downloadbar import download_bar
from tmln.data.root import data_root
from tmln.streams.arrays import as_samples, stream_of_classes, stream_of_tasks
from tmln.streams.benchmarks import BENCHMARKS, Benchmark, make_stream
from tmln.streams.data import check_data, get_data, list_data
from tmln.streams.prefetch import prefetch
from tmln.streams.samples import Samples, concat
from tmln.streams.stream import Stream, Task

__all__ = [
    "BENCHMARKS",
    "BadDataWarning",
    "Benchmark",
    "DataError",
    "Samples",
    "Stream",
    "Task",
    "as_samples",
    "check_data",
    "concat",
    "data_root",
    "download_bar",
    "get_data",
    "list_data",
    "make_stream",
    "prefetch",
    "stream_of_classes",
    "stream_of_tasks",
]
