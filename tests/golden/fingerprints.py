"""Fingerprints of one short run of every recipe: hashes of the final weights and of all that was observed.

``python -m tests.golden fingerprints`` records them for the instructions of this CPU. A change that only moves or
renames code must not change one.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

from tmln.experiments.config import RunConfig
from tmln.experiments.machine import instructions
from tmln.experiments.run import Execution
from tmln.experiments.store import Store

FINGERPRINTS = Path(__file__).parent / "fingerprints.json"
FIXTURES = Path(__file__).parent / "fixtures"
RESULTS = Path(__file__).parents[2] / "results"
OBSERVED = (
    "accuracy",
    "masked_accuracy",
    "baseline",
    "confusion",
    "dormant_units",
    "steps",
    "effective_rate",
    "diverged",
)


def digits_config(method: str, **options: Any) -> RunConfig:
    """Return a configuration of Split-Digits that trains within a fraction of a second."""
    return RunConfig.of(
        {
            "benchmark": "split-digits",
            "method": method,
            "model": "mlp",
            "model_options": {"hidden": 16},
            "benchmark_options": {"per_class": 24, "per_class_test": 10, "tasks": 5},
            "settings": {},
            "batch_size": 16,
            "epochs": 2,
            **options,
        }
    )


def run_once(config: RunConfig, folder: Path) -> Any:
    """Run a configuration on one thread in ``folder`` and return its result."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        run = Store(folder).open(config)
        with run.lock:
            return Execution(run)()
    finally:
        torch.set_num_threads(threads)


def fingerprint_of(result: Any) -> dict[str, Any]:
    """Return the hashes of a result's weights and of what was observed, times left out, and its final accuracy."""
    observed = json.dumps([getattr(result, name) for name in OBSERVED], sort_keys=True)
    final = result.accuracy[-1]
    return {
        "weights": result.weights_sha256,
        "observed": hashlib.sha256(observed.encode()).hexdigest(),
        "accuracy": round(sum(final) / len(final), 4),
    }


def fingerprint(method: str) -> dict[str, Any]:
    """Train a recipe on Split-Digits and return its fingerprint."""
    with tempfile.TemporaryDirectory() as folder:
        return fingerprint_of(run_once(digits_config(method), Path(folder)))


def recorded() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the recorded fingerprints: instructions of the CPU -> recipe -> fingerprint."""
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(FINGERPRINTS.read_text(encoding="utf-8"))
    return found


def record(methods: list[str]) -> None:
    """Record the fingerprints of these recipes for this CPU; those of other CPUs are kept."""
    known = recorded() if FINGERPRINTS.exists() else {}
    here = {**known.get(instructions(), {}), **{method: fingerprint(method) for method in methods}}
    FINGERPRINTS.write_text(json.dumps({**known, instructions(): here}, indent=1, sort_keys=True) + "\n")


def published_names(path: Path) -> list[str]:
    """Return the names of a published file's runs in their order."""
    return [run["name"] for run in json.loads(path.read_text(encoding="utf-8"))["runs"]]
