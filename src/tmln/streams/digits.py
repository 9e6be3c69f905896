"""Split-Digits and Rotated-Digits: the 1,797 8x8 digits that ship with scikit-learn, no download."""

from __future__ import annotations

import numpy as np
import torch

from tmln.streams.domain import domain_incremental, rotations
from tmln.streams.options import Options, SplitOptions
from tmln.streams.samples import Samples
from tmln.streams.split import Pool, class_incremental
from tmln.streams.stream import Stream


def load_digits() -> Pool:
    """Every fifth digit of a class is a test digit; grey levels 0..16 are spread over 0..255."""
    try:
        from sklearn.datasets import load_digits as bundled
    except ImportError as error:
        raise ImportError("the digits come with scikit-learn: pip install 'tmln[digits]'") from error
    data = bundled()
    x = torch.from_numpy(np.round(data.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    y = torch.from_numpy(np.asarray(data.target, dtype=np.int64))
    held_out = torch.zeros(len(y), dtype=torch.bool)
    for label in range(10):
        held_out[(y == label).nonzero().squeeze(1)[4::5]] = True
    samples = Samples.of(x, y)
    return Pool(
        train=samples.subset((~held_out).nonzero().squeeze(1)),
        test=samples.subset(held_out.nonzero().squeeze(1)),
        class_names=tuple(str(label) for label in range(10)),
        mean=(0.3052,),  # of the training digits
        std=(0.3760,),
    )


def split_digits(options: SplitOptions) -> Stream:
    """Five tasks of two digits."""
    return class_incremental("split-digits", load_digits(), options, tasks=5)


def rotated_digits(options: Options) -> Stream:
    """Eight rotations of all ten digits: the small stand-in for CORe50."""
    return domain_incremental("rotated-digits", load_digits(), options, rotations(options.tasks or 8))
