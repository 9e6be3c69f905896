"""Two processes on this machine, a group of gloo: for tests of what ranks know together."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.warm import Warm

ROOT = Path(__file__).parents[2]
ENTRY = """
import pickle, sys
import torch, torch.distributed as dist
module, rank, meeting, result = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=2)
found = __import__(module, fromlist=["work"]).work(rank)
with open(result, "wb") as file:
    pickle.dump(found, file)
dist.destroy_process_group()
"""


def run_on_two_ranks(module: str, factory: pytest.TempPathFactory) -> list[Any]:
    """Return what ``work(rank)`` of that module returns on each of two ranks; once for all test processes."""
    together = factory.getbasetemp()
    together = together if os.environ.get("PYTEST_XDIST_WORKER") is None else together.parent
    folder = together / f"ranks-{module}"
    with FileLock(f"{folder}.lock"):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            start_two_ranks(module, folder)
            (folder / "done").touch()
    return [pickle.loads((folder / f"rank{rank}").read_bytes()) for rank in (0, 1)]


def start_two_ranks(module: str, folder: Path) -> None:
    """Run ``work(rank)`` of that module on each of two ranks."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "GLOO_SOCKET_IFNAME": "lo"}
    results = [folder / f"rank{rank}" for rank in (0, 1)]
    processes = [
        Warm(
            [sys.executable, "-c", ENTRY, module, str(rank), str(folder / "meeting"), str(result)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, result in enumerate(results)
    ]
    try:
        errors = [process.communicate(timeout=600)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
