"""One thread a test process: the networks are tiny, and pytest-xdist uses the cores. No test has a time to keep."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import torch
import torch.multiprocessing
from hypothesis import HealthCheck, settings

from tests.warm import Warm
from tmln.methods.answers.ranpac import RanPACSettings
from tmln.methods.recipes import GIVEN, RECIPES
from tmln.user_code import TRUSTED

UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("tmln", max_examples=40, **UNTIMED)  # type: ignore[arg-type]
settings.register_profile("thorough", max_examples=1000, **UNTIMED)  # type: ignore[arg-type]  # --hypothesis-profile
settings.register_profile("quick", max_examples=5, **UNTIMED)  # type: ignore[arg-type]
settings.load_profile("tmln")

# What `make quick` leaves out (marker `slow`): folders about processes, clusters, whole studies and pages; tests that
# use one of these fixtures; modules that import one of these; and functions that carry the marker themselves.
SLOW_FOLDERS = (
    *("docs", "executors", "golden", "integrations", "measure", "paper", "release", "report", "tuning", "deploy"),
    *("test_examples.py", "test_own_components.py", "torture"),
)
SLOW_FIXTURES = {"warm", "browser", "real_root", "ranks", "killed"}
STARTS_PROCESSES = (subprocess, multiprocessing, torch.multiprocessing)
TESTS = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Draw few examples where slow tests are left out."""
    if config.getoption("markexpr") == "not slow" and not config.getoption("hypothesis_profile", None):
        settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the import of slow folders where slow tests are not asked for."""
    left_out = config.getoption("markexpr") == "not slow" and collection_path.parent == TESTS
    return True if left_out and collection_path.name in SLOW_FOLDERS else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what lies in a slow folder, uses a slow fixture, or stands in a module that starts processes."""
    for item in items:
        in_folder = item.path.relative_to(TESTS).parts[0] in SLOW_FOLDERS
        with_fixture = not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        module = item.getparent(pytest.Module)
        used = vars(module.obj).values() if module is not None else ()
        if in_folder or with_fixture or any(one is starter for one in used for starter in STARTS_PROCESSES):
            item.add_marker("slow")


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_registered_methods() -> Iterator[None]:
    """Forget the methods that a test registers, and the code that it trusts."""
    own, variables = dict(RECIPES._own), {name: os.environ.get(name) for name in (GIVEN, TRUSTED)}
    yield
    RECIPES._own.clear()
    RECIPES._own.update(own)
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this Python that a test starts, and those that they start, have imported torch when they begin."""
    monkeypatch.setattr(subprocess, "Popen", Warm)


@pytest.fixture
def narrow() -> Iterator[None]:
    """Give RanPAC 64 random features in tests that go through all methods: with 2,000 one of them took seconds.

    For modules whose tests do not depend on the number: ``pytestmark = pytest.mark.usefixtures("narrow")``.
    """
    field = RanPACSettings.model_fields["width"]
    width = field.default
    field.default = 64
    RanPACSettings.model_rebuild(force=True)
    try:
        yield
    finally:
        field.default = width
        RanPACSettings.model_rebuild(force=True)


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
