"""Peaks of memory are those since the last reset; the allocator's setting changes no result."""

from __future__ import annotations

import sys

import pytest
import torch

from tmln.experiments.process_memory import keep_memory, peak_bytes, reset_peak


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget a peak")
def test_a_peak_is_that_since_the_reset() -> None:
    reset_peak()
    before = peak_bytes()
    block = torch.ones(50 * 2**20)  # 200 MiB
    held = peak_bytes()
    assert held - before > 190 * 2**20
    del block
    assert peak_bytes() > held - 2**20  # the system counts in batches
    reset_peak()
    assert peak_bytes() < held - 150 * 2**20


def test_memory_that_was_kept_is_given_back_at_a_reset() -> None:
    keep_memory()
    reset_peak()
    before = peak_bytes()
    assert before > 0
    block = torch.ones(25 * 2**20)
    del block
    reset_peak()
    assert peak_bytes() < before + 50 * 2**20
