"""The embedded digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from tmln.data import Arrays, BadData
from tmln.data.digits import read_digits
from tmln.streams import make_stream


def digits() -> Arrays:
    return read_digits(Path(), BadData("digits", skip=False))


def test_every_fifth_of_a_class_tests() -> None:
    held = digits()
    assert held.counts() == {"training": 1442, "test": 355}
    zeros = held.tested[held.labels == 0]
    assert len(zeros) == 178
    assert zeros[:10].tolist() == [False, False, False, False, True] * 2


def test_grey_levels_are_kept() -> None:
    from sklearn.datasets import load_digits

    assert np.array_equal(np.round(digits().pixels.astype(np.float64) * 16 / 255), load_digits().images)


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
