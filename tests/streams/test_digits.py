"""The embedded digits."""

from __future__ import annotations

import torch

from tmln.streams import make_stream
from tmln.streams.digits import load_digits


def test_the_split_is_fixed_and_disjoint() -> None:
    pool = load_digits()
    assert (len(pool.train), len(pool.test)) == (1442, 355)
    rows = torch.cat((pool.train.rows, pool.test.rows)).sort().values
    assert torch.equal(rows, torch.arange(1797))
    first_zeros = (torch.cat((pool.train.y, pool.test.y)) == 0).nonzero()
    assert len(first_zeros) == 178


def test_grey_levels_are_kept() -> None:
    from sklearn.datasets import load_digits as bundled

    pool = load_digits()
    levels = (pool.train.x.double() * 16 / 255).round()
    assert torch.equal(levels.squeeze(1), torch.from_numpy(bundled().images)[pool.train.rows])


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
