"""The limits that SECURITY.md promises are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tmln import evaluation_counts
from tmln.analysis import published
from tmln.data import extract, images, mnist, own_data, safe_pickle, texts
from tmln.deploy.serve import Limits
from tmln.experiments import files, result, run_state, yaml_reader
from tmln.learner import checkpoint, heads, task_data
from tmln.methods.replay import disk_files
from tmln.models import small

PAGE = (Path(__file__).parents[1] / "SECURITY.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "promise",
    [
        f"an image | {images.MAX_PIXELS:,} pixels, {images.MAX_BYTES >> 20} MiB of file",
        f"CIFAR | {safe_pickle.MAX_BYTES >> 30} GiB, {safe_pickle.MAX_READS:,} reads",
        f"packed or not | {mnist.MAX_BYTES >> 20} MiB",
        f"an archive | {extract.MIN_UNPACKED >> 20} MiB and {extract.MAX_RATIO} times its own size, unpacked; "
        f"{extract.MAX_MEMBERS:,} members, {extract.MAX_DEPTH} folders deep",
        f"an .npz of arrays | {own_data.MIN_UNPACKED >> 20} MiB and {own_data.MAX_RATIO} times its own size, unpacked, "
        f"at most {own_data.MAX_ARRAYS >> 30} GiB; labels below {own_data.MAX_CLASSES:,}",
        f"a table or file of texts | {texts.LIMIT >> 30} GiB",
        f"a configuration | {yaml_reader.LONGEST:,} characters, {yaml_reader.DEEPEST} levels",
        f"a state or checkpoint | {checkpoint.MOST_STATE_BYTES >> 20} MiB of JSON",
        f"a published file | {published.MOST_BYTES >> 20} MiB, {files.DEEPEST} levels",
        f"predictions of a run | {run_state.MOST_PREDICTION_BYTES >> 30} GiB",
        f"a result | {result.MOST_BYTES >> 20} MiB, {files.DEEPEST} levels, {evaluation_counts.MOST_NUMBERS:,} numbers",
        f"a state | samples of {task_data.MOST_VALUES:,} values; as many classes as the largest dimension "
        f"of its tensors, or {heads.MAX_UNNAMED:,}",
        f"depth of a perceptron | {small.DEEPEST:,} hidden layers",
        f"a request to `tmln serve` | {Limits().body >> 20} MiB, {Limits().batch} pictures",
        f"the note of a memory folder | {disk_files.MOST_NOTE_BYTES >> 20} MiB",
        f"an analysis | {files.MOST_BYTES >> 20} MiB, {files.DEEPEST} levels",
    ],
)
def test_every_limit_is_the_codes(promise: str) -> None:
    assert promise in PAGE


def test_every_format_is_named() -> None:
    assert all(name.lower() in PAGE.lower() for name in images.FORMATS)
