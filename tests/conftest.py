"""One thread a test process: the networks are tiny, and pytest-xdist uses the cores. No test has a time to keep."""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Generator

import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.warm import Warm

UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("tmln", max_examples=40, **UNTIMED)  # type: ignore[arg-type]
settings.register_profile("thorough", max_examples=1000, **UNTIMED)  # type: ignore[arg-type]  # --hypothesis-profile
settings.load_profile("tmln")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this Python that a test starts, and those that they start, have imported torch when they begin."""
    monkeypatch.setattr(subprocess, "Popen", Warm)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is made while tests are found is garbage: to look for some took a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _nothing_old_is_looked_through() -> None:
    """Every run collects garbage before it begins: among all that the suite imports that took longer than the run."""
    gc.collect()
    gc.freeze()
