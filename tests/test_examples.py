"""What the documentation shows runs, and does what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import tmln
from tests.docstrings import PEERS
from tmln.progress import track
from tmln.streams import make_stream

ROOT = Path(__file__).parents[1]


def load(name: str) -> object:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Lightning's own, and those of transformers' releases about each other
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning", "ignore:.*many workers:UserWarning")
@pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed:FutureWarning")
@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "examples").glob("*.py")))
def test_examples_run(name: str) -> None:
    found = load(name).main()  # type: ignore[attr-defined]
    accuracies = [f["accuracy"] if isinstance(f, dict) else f for f in found]
    assert min(accuracies) > 0.8


def readmes_loop() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n[^`]*?(optimizer = tmln.*?)```", text, re.DOTALL)
    return str(code)


def test_the_readmes_loop_runs(capsys: pytest.CaptureFixture[str]) -> None:
    code = readmes_loop()
    batches = [(torch.randn(8, 3), torch.randint(2, (8,))) for _ in range(3)]
    given = {"torch": torch, "tmln": tmln, "loss": nn.functional.cross_entropy}
    names = {**given, "model": nn.Linear(3, 2), "tasks": [batches, batches]}
    exec(code, names)
    memory = names["memory"]
    assert isinstance(memory, tmln.Reservoir)
    assert memory.seen == 48
    assert "of the weights slowed by more than 10%" in capsys.readouterr().out


def test_the_readmes_loop_protects() -> None:
    """Ten digits in five tasks: far from what SGD ends with in the same loop without the memory."""
    stream = make_stream("split-digits")
    tasks = [list(zip(stream.prepare(task.train.x).split(32), task.train.y.split(32), strict=True)) for task in stream]
    tests = [(stream.prepare(test.x), test.y) for test in stream.tests]

    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    @torch.no_grad()
    def accuracy(model: nn.Module) -> float:
        return sum(float((model(x).argmax(1) == y).float().mean()) for x, y in tests) / len(tests)

    model = network()
    given = {"torch": torch, "tmln": tmln, "loss": nn.functional.cross_entropy}
    exec(readmes_loop(), {**given, "model": model, "tasks": tasks})
    plain = network()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)  # the rate lr / damping of the other
    for data in tasks:
        for _ in range(10):
            for x, y in data:
                optimizer.zero_grad()
                nn.functional.cross_entropy(plain(x), y).backward()
                optimizer.step()
    assert accuracy(model) > accuracy(plain) + 0.6
    assert accuracy(model) > 0.85


MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(tmln.__path__, "tmln.")
    if "__main__" not in module.name and module.name not in PEERS
)


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_tell_the_truth(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_a_bar_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        list(track(range(5), "counting", show=True)) == list(track(range(5), "counting", show=False)) == [0, 1, 2, 3, 4]
    )
    assert list(track(iter("ab"), "letters", show=True)) == ["a", "b"]
