"""Model the cost of training at any size: time, memory and network of a step and of a boundary.

With P parameters of 4 bytes, w multiply-adds of a forward pass on a sample (a transformer of L positions: about P L), b
new and r replayed samples a step, s bytes of a stored sample, a bytes of activations of one, M samples in memory, Q
that the Fisher is taken on, m modules, T tasks of n samples with e tests each, and R ranks (a network of beta bytes/s):

    a step:      c0 m + (c1 3 w + c2 a)(b + r)/R + c3 4P + c4 r s + 2 (R - 1)/R 4P/beta
    a boundary:  f0 m + (f1 3 w + f2 a) Q/R* + f3 4P + c4 n s + (c1 3 w + c2 a) e T/3R + 2 (R - 1)/R 4P/beta
                 + the state/disk
    memory:      4P (2 + k) + a (b + r)/R + M s                    k sums of the method for every weight

R* is 1 where weights are in shards: there every rank passes all samples of a Fisher. The coefficients (``costs.json``)
are fitted on small measurements by ``python -m benchmarks.scale``, which also checks
them on larger ones that the fit has not seen (docs/scale.md).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("costs.json")
WEIGHT = 4  # bytes
FISHER = "a smaller replay.capacity: F is taken on it"
SHARDED = "fully_shard in a loop of your own, which divides them by the ranks"
DIVIDED = f"ddp, where ranks share its samples (in shards each passes all), or {FISHER}"


@dataclass(frozen=True)
class Rates:
    """Seconds of a machine: a call, a multiply-add, a byte; ``bandwidth`` and ``disk`` are bytes a second."""

    call: float  # of a module in a step
    dense: float  # of a multiply-add in training, forward and backward together counted as three
    conv: float
    activation: float  # of a byte of activations in training
    weights: float  # of a byte of weights in a step
    sample: float  # of a byte of a stored sample that is drawn or put in
    fisher_call: float  # of a module in a Fisher pass and what follows
    fisher_dense: float
    fisher_conv: float
    fisher_activation: float
    boundary: float  # of a byte of weights at a boundary
    bandwidth: float
    disk: float


@dataclass(frozen=True)
class Size:
    """What is to be trained, and on how many ranks."""

    parameters: int
    work: float  # multiply-adds of a forward pass on a sample
    conv: float = 0.0  # share of them in convolutions
    batch: int = 128
    replay: int = 0
    sample: int = 0  # bytes of one as it is stored
    activations: int = 0  # bytes that a sample takes in a training pass
    modules: int = 1  # layers, normalisations: what is called one after the other
    capacity: int = 0  # samples in memory
    fisher: int = 0  # samples that a Fisher is taken on at a boundary; 0 for methods without
    tasks: int = 1
    per_task: int = 0  # training samples
    tests: int = 0  # test samples of a task
    epochs: int = 1
    sums: float = 0.0  # what the method keeps for every weight
    ranks: int = 1
    sharded: bool = False  # weights and all that is kept of each, over the ranks

    @property
    def steps(self) -> int:
        """Return the steps of a task."""
        return self.epochs * math.ceil(self.per_task / max(self.batch, 1))


@dataclass(frozen=True)
class Cost:
    """One term: seconds each time it comes, and how often; bytes held on a rank, and sent by it."""

    name: str
    seconds: float = 0.0
    times: float = 0.0
    held: float = 0.0
    sent: float = 0.0
    remedy: str = ""

    @property
    def total(self) -> float:
        """Seconds in all."""
        return self.seconds * self.times


def costs(size: Size, rates: Rates) -> list[Cost]:
    """Return every term, largest share of the time first."""
    rows, ranks = size.batch + size.replay, size.ranks
    steps, ends = size.steps * size.tasks, size.tasks
    weights = WEIGHT * size.parameters
    mine = weights / ranks if size.sharded else weights
    kept = mine * (2 + size.sums)
    each = 3 * _mixed(size, rates.dense, rates.conv) * size.work + rates.activation * size.activations
    fisher = 3 * _mixed(size, rates.fisher_dense, rates.fisher_conv) * size.work
    fisher += rates.fisher_activation * size.activations
    shared = 1 if size.sharded else ranks  # in shards every rank passes all samples
    at_once = (fisher * size.fisher / shared + rates.fisher_call * size.modules) * bool(size.fisher)
    memory = size.capacity * size.sample
    sent = 2 * (ranks - 1) / ranks * weights
    found = [
        Cost("forward and backward", each * rows / ranks, steps, size.activations * rows / ranks, 0.0, "more ranks"),
        Cost("calls of a step", rates.call * size.modules, steps, remedy="a larger batch, --compile"),
        Cost(
            "weights in a step",
            rates.weights * mine,
            steps,
            kept,
            0.0,
            SHARDED,
        ),
        Cost("drawing from memory", rates.sample * size.replay * size.sample, steps, remedy="a smaller replay.batch"),
        Cost("gradients over the network", sent / rates.bandwidth, steps, 0.0, sent, "a larger batch a rank"),
        Cost("Fisher", at_once, ends, remedy=DIVIDED if size.sharded else FISHER),
        Cost("weights at a boundary", rates.boundary * mine, ends),
        Cost("Fisher over the network", sent / rates.bandwidth if size.fisher else 0.0, ends, 0.0, sent),
        Cost("filling the memory", rates.sample * size.per_task * size.sample * bool(memory), ends),
        Cost("the memory", held=memory, remedy="replay.path, a memory on disk; or a smaller replay.capacity"),
        Cost(
            "tests on every task after each",
            each / 3 * size.tests * size.tasks / ranks,
            ends,
            remedy="fewer tests (benchmark.per_class_test): they grow with the square of the tasks",
        ),
        Cost("checkpoints", (kept + memory) / rates.disk, ends, remedy="a memory on disk, saved incrementally"),
    ]
    return sorted(found, key=lambda cost: -cost.total)


def _mixed(size: Size, dense: float, conv: float) -> float:
    return (1 - size.conv) * dense + size.conv * conv


def read_rates(path: Path = FILE) -> tuple[Rates, dict[str, Any]]:
    """The coefficients, and all that the file says of how they were found."""
    said = json.loads(path.read_text(encoding="utf-8"))
    return Rates(**{field.name: float(said["rates"][field.name]) for field in fields(Rates)}), said


def held(found: list[Cost]) -> float:
    """Bytes of a rank."""
    return math.fsum(cost.held for cost in found)


def seconds(found: list[Cost]) -> float:
    """Return the seconds of all terms."""
    return math.fsum(cost.total for cost in found)
