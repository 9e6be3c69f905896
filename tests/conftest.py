"""One thread a test process: the networks are tiny, and pytest-xdist uses the cores. No test has a time to keep."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile("tmln", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tmln")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)
