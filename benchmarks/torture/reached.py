"""All that the torture reaches in the package, in one place: what moves there is followed here, and nowhere else."""

from __future__ import annotations

import importlib
from types import ModuleType

from tmln.cli.app import main as command_line
from tmln.data import cifar, images, mnist
from tmln.data.bad import BadData, DataError
from tmln.executors.config import ExecutorConfig
from tmln.executors.execute import execute
from tmln.executors.plan import Job
from tmln.lab.build import build
from tmln.lab.config import RunConfig, run_id
from tmln.lab.identity import canonical
from tmln.lab.lock import LockLost, RunLock, RunLocked
from tmln.lab.machine import machine
from tmln.lab.result import checksum_of, read_result
from tmln.lab.run import Execution, Moment
from tmln.lab.run_options import RunOptions
from tmln.lab.store import Run, Store
from tmln.learner import Learner
from tmln.learner.checkpoint import load_file, read_newest
from tmln.learner.nested import encode
from tmln.models import make_model
from tmln.recipes import FAMILIES, RECIPES
from tmln.report.document import document
from tmln.streams import make_stream

__all__ = [
    "FAMILIES",
    "RECIPES",
    "BadData",
    "DataError",
    "Execution",
    "ExecutorConfig",
    "Job",
    "Learner",
    "LockLost",
    "Moment",
    "Run",
    "RunConfig",
    "RunLock",
    "RunLocked",
    "RunOptions",
    "Store",
    "build",
    "canonical",
    "checksum_of",
    "cifar",
    "command_line",
    "document",
    "encode",
    "execute",
    "images",
    "load_file",
    "machine",
    "make_model",
    "make_stream",
    "mnist",
    "read_newest",
    "read_result",
    "run_id",
]

# Modules by name, of what is replaced there while a child is tormented.
COMMANDS = "tmln.cli.runs"  # its work does what `tmln run` and `tmln compare` ask for
CLOCKED = ("tmln.lab.lock", "tmln.lab.run", "tmln.lab.store")  # those that look at the time


def module(name: str) -> ModuleType:
    return importlib.import_module(name)
