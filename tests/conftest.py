"""One thread a test process: the networks are tiny, and pytest-xdist uses the cores."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
