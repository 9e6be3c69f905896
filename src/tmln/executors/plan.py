"""What is to be done: every run once, and the references that intransigence is taken against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tmln.experiments.config import RunConfig, run_id
from tmln.experiments.reference_runs import reference_config
from tmln.experiments.result import REFERENCES, Oracle
from tmln.experiments.store import Store


@dataclass(frozen=True)
class Job:
    """A run to be done; ``reference`` marks those that are there for intransigence only."""

    config: RunConfig
    reference: bool = False

    @property
    def label(self) -> str:
        """``tmln, seed 3``."""
        return f"{self.config.method}, seed {self.config.seed}"

    @property
    def why(self) -> str:
        """Behind its label, wherever it is shown."""
        return " (reference for INT)" if self.reference else ""


def plan(configs: Sequence[RunConfig], oracle: Oracle) -> list[Job]:
    """Every run once, the references first: what needs them comes after."""
    asked = {run_id(config): Job(config) for config in configs}
    needed = {}
    for config in configs:
        wanted = reference_config(config, oracle)
        if wanted is not None and run_id(wanted) not in asked:
            needed[run_id(wanted)] = Job(wanted, reference=True)
    oracles = [name for name in asked if asked[name].config.method in REFERENCES]
    return [*needed.values(), *(asked[name] for name in oracles), *(asked[n] for n in asked if n not in oracles)]


def state_of(store: Store, job: Job) -> Literal["finished", "begun", "new"]:
    """What the store has of it."""
    run = store.find(job.config)
    try:
        return "new" if run is None else "finished" if run.finished else "begun"
    except ValueError:  # of a newer version, and left alone
        return "finished"
