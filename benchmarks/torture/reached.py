"""Import all that these tests use of the package, in one place."""

from __future__ import annotations

import importlib
from types import ModuleType

from tmln.analysis.published import read_published
from tmln.analysis.read import find_defect
from tmln.cli.app import main as command_line
from tmln.data import cifar, images, mnist
from tmln.data.reading import BadData, DataError
from tmln.deploy.learn import LearnRequest, learn_into
from tmln.deploy.state_file import learner_of_run, open_learner
from tmln.executors.config import ExecutorConfig
from tmln.executors.execute import execute
from tmln.executors.plan import Job
from tmln.experiments.build import build
from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.identity import canonical, run_name
from tmln.experiments.launch import RunOptions
from tmln.experiments.lock import LockLost, RunLock, RunLocked
from tmln.experiments.machine import machine
from tmln.experiments.result import checksum_of, read_result
from tmln.experiments.run import Execution, StepInfo
from tmln.experiments.store import Run, Store
from tmln.learner import Learner
from tmln.learner.checkpoint import encode, load_file, read_newest
from tmln.measure.verify import make_jobs
from tmln.methods.recipes import FAMILIES, RECIPES
from tmln.models import make_model
from tmln.report.document import build_document
from tmln.streams import make_stream

__all__ = [
    "FAMILIES",
    "RECIPES",
    "BadData",
    "DataError",
    "Execution",
    "ExecutorConfig",
    "Job",
    "LearnRequest",
    "Learner",
    "LockLost",
    "Run",
    "RunConfig",
    "RunLock",
    "RunLocked",
    "RunOptions",
    "StepInfo",
    "Store",
    "build",
    "build_document",
    "canonical",
    "checksum_of",
    "cifar",
    "command_line",
    "encode",
    "execute",
    "find_defect",
    "images",
    "learn_into",
    "learner_of_run",
    "load_file",
    "machine",
    "make_jobs",
    "make_model",
    "make_stream",
    "mnist",
    "open_learner",
    "read_newest",
    "read_published",
    "read_result",
    "run_id",
    "run_name",
]

# Modules by name, of what is replaced there while a child is tormented.
COMMANDS = "tmln.cli.runs"  # its run_configs does what `tmln run` and `tmln compare` ask for
CLOCKED = ("tmln.experiments.lock", "tmln.experiments.run", "tmln.experiments.store")  # those that look at the time


def module(name: str) -> ModuleType:
    return importlib.import_module(name)
