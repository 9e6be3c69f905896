"""What is asked of Ray: a cluster, existing or of its own, and a machine that has what a run needs."""

from __future__ import annotations

import importlib
import logging
import os
import time
from dataclasses import dataclass
from typing import Any

JOINING = 0.5  # seconds for machines that join in this moment
OBJECT_STORE = 80 * 2**20  # bytes, near Ray's least: results are small, the rest is in the folder of runs


@dataclass(frozen=True)
class Wish:
    """What is asked of Ray: a cluster, and what each run may have of it."""

    address: str | None
    cpus: int | None  # of a cluster of its own
    threads: int
    gpus: float
    memory: int = 0  # bytes that each run asks for


def import_ray() -> Any:
    """Quiet, and without a word to its makers."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")  # we tell of it ourselves
    try:
        ray = importlib.import_module("ray")
        importlib.import_module("ray.util.scheduling_strategies")
        return ray
    except ImportError as error:
        raise ImportError("the ray executor needs ray: pip install 'tmln[ray]', or --executor local") from error


def connect(ray: Any, wish: Wish) -> None:
    """Quietly; a cluster that is not to be had is one sentence."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    logging.getLogger("ray").setLevel(logging.ERROR)  # it speaks before it has read its options
    if wish.address is None:
        local = {"num_cpus": wish.cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
        ray.init("local", _node_ip_address="127.0.0.1", **local, **options)
        return
    try:
        ray.init(wish.address, **options)
    except Exception as error:
        raise ValueError(f"no Ray cluster at {wish.address!r}: {first_line(error)}") from None


def room(ray: Any, wish: Wish) -> int:
    """The CPUs of the largest machine that has room; a task that fits nowhere would wait for ever."""
    asked = {"CPU": wish.threads, "GPU": wish.gpus, "memory": wish.memory}
    end = time.monotonic() + JOINING
    while True:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        fitting = [int(node["CPU"]) for node in nodes if all(node.get(key, 0) >= many for key, many in asked.items())]
        if fitting:
            return max(fitting)
        if time.monotonic() > end:
            break
        time.sleep(0.1)
    cpus, gpus, memory = max((node.get("CPU", 0), node.get("GPU", 0), node.get("memory", 0)) for node in nodes)
    more = f" and {wish.memory / 1e9:.1f} GB of memory" if wish.memory else ""
    theirs = f" and {memory / 1e9:.1f} GB" if wish.memory else ""
    raise ValueError(
        f"no machine of the Ray cluster has {wish.threads} CPUs and {wish.gpus:g} GPUs{more}, which each run asks for; "
        f"the largest has {cpus:g} CPUs and {gpus:g} GPUs{theirs}"
    )


def first_line(error: Exception) -> str:
    """Of what Ray says, which can be a page."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
