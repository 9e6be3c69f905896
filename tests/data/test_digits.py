"""The embedded digits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tmln.data import Arrays, BadData
from tmln.data.digits import read_bundled, read_digits
from tmln.streams import make_stream


def digits() -> Arrays:
    return read_digits(Path(), BadData("digits", skip=False))


def test_every_fifth_of_a_class_tests() -> None:
    held = digits()
    assert held.counts() == {"training": 1442, "test": 355}
    zeros = held.is_test[held.labels == 0]
    assert len(zeros) == 178
    assert zeros[:10].tolist() == [False, False, False, False, True] * 2


@pytest.mark.parametrize("found", [True, False], ids=["by its file", "by the package"])
def test_they_are_scikit_learns(found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.datasets import load_digits

    if not found:
        monkeypatch.setattr("tmln.data.digits.find_spec", lambda name: None)
    images, labels = read_bundled.__wrapped__()
    assert images.dtype == np.float64
    assert labels.dtype == np.int64
    assert np.array_equal(images, load_digits().images)
    assert np.array_equal(labels, load_digits().target)
    assert np.array_equal(np.round(digits().pixels.astype(np.float64) * 16 / 255), images)


def test_reading_them_does_not_import_the_package() -> None:
    code = "import sys; from tmln.data.digits import read_bundled; read_bundled(); assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_normalised() -> None:
    stream = make_stream("split-digits")
    x = stream.prepare(torch.cat([task.train.x for task in stream]))
    assert abs(float(x.mean())) < 1e-3
    assert abs(float(x.std()) - 1.0) < 1e-3


def test_five_tasks_of_two() -> None:
    stream = make_stream("split-digits")
    assert [task.classes for task in stream] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert stream.shape == (1, 8, 8)
    assert stream.class_names == tuple("0123456789")
