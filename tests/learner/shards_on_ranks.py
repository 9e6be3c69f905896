"""What two ranks learn that have their part of every weight each; compared with one process by ``test_shards.py``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from tests.learner.methods_on_ranks import BATCH, CASES, augment, fabric, learned, left, network, tasks
from tmln.distributed.process_group import gather_full, local_part
from tmln.learner import Learner
from tmln.methods.recipes import FAMILIES, Recipe, find_recipe

# What a learner can be told, and parts and settings of which a case that covers the tables need not have any.
TOLD = (
    "closed classes", "pieces", "batch norm", "clipped", "refreshed", "fp16", "joint", "sam around tmln",
    "aligned either way",
)  # fmt: skip
ALL_KEPT: dict[str, Any] = {
    "method": "tmln",
    "penalty": "rwalk",
    "weights": "average",
    "settings": {"penalty.strength": 0.1},
}
OTHER_KEPT: dict[str, Any] = {"method": "wa", "penalty": "consistency", "step": "adamw", "weights": "stable"}


def recipe_of(given: dict[str, Any]) -> Recipe:
    recipe = find_recipe(given["method"])
    for family in FAMILIES:
        recipe = recipe.with_component(family, given[family]) if family in given else recipe
    return recipe.with_settings(given.get("settings", {}))


def parts_of(given: dict[str, Any]) -> set[tuple[str, str]]:
    return {(family, choice.name) for family, choice in recipe_of(given).components.items()}


def able(given: dict[str, Any]) -> bool:
    """Whether every part of the method says that it works in shards."""
    return all(kind.supports_fsdp_at(settings) for kind, settings in map(recipe_of(given).resolve, FAMILIES))


def covering() -> list[str]:
    """Few cases that have among them all parts that work in shards."""
    parts = {name: parts_of(given) for name, given in CASES.items() if able(given)}
    wanted, found = set[tuple[str, str]]().union(*parts.values()), list[str]()
    while wanted:
        found.append(max(parts, key=lambda name: len(parts[name] & wanted)))
        wanted -= parts[found[-1]]
    return found


def compared() -> list[str]:
    return list(dict.fromkeys([*covering(), *TOLD]))


class Odd(nn.Module):
    """A number among its weights, a weight that is used twice, and a layer with fewer rows than there are ranks."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3)])
        first, _, last = (next(block.children()) for block in self.blocks)
        last.weight = first.weight
        self.gate, self.head = nn.Linear(6, 1), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + self.scale * block(x)
        out: Tensor = self.head(x * self.gate(x))
        return out


def odd(fabric: Any = None) -> Learner:
    learner = Learner(Odd(), "tmln", lr=0.05, batch_size=BATCH, seed=3, augment=augment, fabric=fabric)
    for task in tasks():
        learner.learn(task, epochs=2)
    return learner


def halfway(given: dict[str, Any], fabric: Any, path: Path) -> Learner:
    """Two tasks, and a file of the middle of the second."""
    learner = Learner(network(), **given, lr=0.05, batch_size=BATCH, seed=3, augment=augment, fabric=fabric)

    def save(epoch: int, step: int, loss: float) -> None:
        if learner.tasks == 1 and (epoch, step) == (0, 1):
            learner.save(path)

    for task in tasks():
        learner.learn(task, epochs=2, on_step=save)
    return learner


def gone_on(path: Path, fabric: Any = None) -> Learner:
    learner = Learner.load(path, network(), augment=augment, fabric=fabric)
    learner.learn(tasks()[1], epochs=2)
    return learner


def held(learner: Learner, lies: Callable[[Tensor], Tensor]) -> int:
    """Bytes of the weights, their gradients and all that parts keep of them: no samples, no random numbers."""

    def size(value: Any) -> int:
        if isinstance(value, Tensor):
            return lies(value).numel() * value.element_size() if value.is_floating_point() else 0
        items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        return sum(map(size, items))

    kept = [{**local_part.state_dict(), "memory": None} for local_part in tuple(learner.components.values())]
    return size([list(learner.model.parameters()), [p.grad for p in learner.model.parameters()], kept])


def weights(learner: Learner) -> dict[str, Tensor]:
    return {name: gather_full(value).clone() for name, value in learner.model.state_dict().items()}


def fails_and_is_as_before(made: Any) -> None:
    learner = Learner(network(), "tmln", lr=0.05, batch_size=BATCH, seed=3, augment=augment, fabric=made)
    learner.learn(tasks()[0])
    before = weights(learner)

    def fail(epoch: int, step: int, loss: float) -> None:
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        learner.learn(tasks()[1], on_step=fail)
    assert all(torch.equal(value, before[name]) for name, value in weights(learner).items())
    learner.learn(tasks()[1])
    learner.undo()
    assert all(torch.equal(value, before[name]) for name, value in weights(learner).items())
    with pytest.raises(ValueError, match="'3' would have to be given 7 rows, and a head in shards does not change"):
        learner.learn((tasks()[0][0], tasks()[0][1] + 5))


def work(rank: int) -> dict[str, Any]:
    from lightning_fabric.strategies.model_parallel import ModelParallelStrategy

    made = fabric(ModelParallelStrategy(lambda model, mesh: model))
    found: dict[str, Any] = {name: left(learned(CASES[name], made)) for name in compared()}
    found["odd"] = left(odd(made))
    told: list[Any] = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(told)
    folder = Path(told[0])
    for name, given in {"all": ALL_KEPT, "other": OTHER_KEPT}.items():
        learner = halfway(given, made, folder / name)
        found[f"{name} bytes"] = held(learner, local_part), held(learner, lambda value: value)
        found[f"{name} whole"], found[f"{name} file"] = weights(learner), (folder / name).read_bytes()
        found[f"{name} again"] = weights(gone_on(folder / name, made))
        learner.export(folder / f"{rank}.safetensors")
        found[f"{name} exported"] = (folder / f"{rank}.safetensors").read_bytes()
    halfway(OTHER_KEPT, None, folder / f"by {rank}")  # in one process, without a message
    dist.barrier()  # the first one's file is there
    found["from one"] = weights(gone_on(folder / "by 0", made))
    fails_and_is_as_before(made)
    return found
