"""Every method, learned by as many ranks as there are: what is left of it, to be compared with one process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tmln.distributed.process_group import gather_full, ranks_of
from tmln.learner import Learner
from tmln.methods.recipes import RECIPES

FEATURES, CLASSES, BATCH = 6, 4, 8

# Beside the named methods: parts and settings that none of them has, and what a learner can be told.
MORE: dict[str, dict[str, Any]] = {
    "merge by fisher": {"method": "er", "weights": "merge", "settings": {"weights.by": "fisher"}},
    "rebalanced": {"method": "er", "answer": "rebalanced"},
    "clipped": {"method": "tmln", "settings": {"step.clip_norm": 0.01, "step.momentum": 0.5}},
    "refreshed": {"method": "tmln", "settings": {"step.fisher_refresh_every": 3}},
    "factors": {"method": "tmln-kfac", "settings": {"step.factors": "boundary", "step.labels": "exact"}},
    "sam around tmln": {"method": "tmln", "step": "sam", "settings": {"step.inner": "tmln"}, "penalty": "lwf"},
    "path and distillation": {"method": "tmln", "penalty": "lwf"},
    "closed classes": {"method": "der++", "logit_mask": "seen"},
    "pieces": {"method": "tmln", "accumulate": 2},
    "cosine": {"method": "rwalk", "schedule": "cosine"},
    "own": {"method": "er", "penalty": "tests.toys:LeashPenalty", "settings": {"penalty.strength": 0.5}},
    "batch norm": {"method": "er", "norm": True},
    "own statistics": {"method": "er", "norm": True, "batch_statistics": "rank"},
    "dropout": {"method": "er", "dropout": True},
    "bf16": {"method": "tmln", "precision": "bf16-mixed"},
    "fp16": {"method": "tmln", "precision": "16-mixed"},
    "ridge by held-out samples": {"method": "ranpac", "settings": {"answer.choice": "held-out", "answer.width": 30}},
    "aligned either way": {"method": "wa", "settings": {"weights.lengthen": True, "weights.positive": True}},
}
CASES: dict[str, dict[str, Any]] = {**{name: {"method": name} for name in RECIPES}, **MORE}
for name in ("ranpac", "ranpac+"):
    CASES[name]["settings"] = {"answer.width": 64}  # of 2,000, with which it took seconds
CASES["fopng"]["double"] = True  # it solves a system in which the rounding of single precision shows at 1e-5


def fabric(strategy: Any = "ddp") -> Any:
    """Of the group that is there."""
    from lightning_fabric import Fabric

    ranks = ranks_of(None)
    os.environ.update(LOCAL_RANK=str(ranks.rank), NODE_RANK="0", WORLD_SIZE=str(ranks.size))
    made = Fabric(accelerator="cpu", devices=ranks.size, strategy=strategy)
    made.launch()
    return made


def tasks() -> list[tuple[Tensor, Tensor]]:
    """Two, of two classes each; the last batch of an epoch has 5 samples, which are not dealt out evenly."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 13, FEATURES, generator=generator)
    return [(x[k], torch.arange(13) % 2 + 2 * k) for k in (0, 1)]


def augment(x: Tensor, generator: torch.Generator) -> Tensor:
    return x + 0.1 * torch.randn(x.shape, generator=generator)


def network(norm: bool = False, dropout: bool = False, double: bool = False) -> nn.Module:
    torch.manual_seed(0)
    middle: nn.Module = nn.BatchNorm1d(10) if norm else nn.Dropout() if dropout else nn.Tanh()
    made = nn.Sequential(nn.Linear(FEATURES, 10), middle, nn.ReLU(), nn.Linear(10, CLASSES))
    return made.double() if double else made


def learned(given: dict[str, Any], fabric: Any = None) -> Learner:
    kinds = {key: given[key] for key in ("norm", "dropout", "double") if key in given}
    options, model = {key: value for key, value in given.items() if key not in kinds}, network(**kinds)
    learner = Learner(model, **options, lr=0.05, batch_size=BATCH, seed=3, augment=augment, fabric=fabric)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for task in tasks():
            learner.learn(task, epochs=2)
    return learner


def left(learner: Learner) -> dict[str, Any]:
    """Weights, what it says of the tests, the memory, and where its random numbers are."""
    memory = learner.replay.memory
    stored = list(memory.batches(100)) if memory is not None and len(memory) else []
    return {
        "weights": {name: gather_full(value).clone() for name, value in learner.model.state_dict().items()},
        "tests": [learner.evaluate(task) for task in tasks()],
        "memory": [v for batch in stored for v in (batch.values() if isinstance(batch, Mapping) else batch)],
        "draws": [learner.position.order.get_state(), learner.position.noise.get_state(), torch.get_rng_state()],
    }


def work(rank: int) -> dict[str, Any]:
    made = fabric()
    return {name: left(learned(given, made)) for name, given in CASES.items()}
